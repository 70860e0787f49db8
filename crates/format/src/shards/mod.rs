//! Sharded models: several files with an index of the file of each tensor, as written by libraries of Hugging Face and PaddleNLP.
//!
//! ```text
//! {"metadata": {"total_size": bytes of all tensors, ...},
//!  "weight_map": {"name of a tensor": "model-00001-of-00002.safetensors", ...}}
//! ```
//!
//! Shards may be of any format: the format supplies a [`Reader`] of one shard, and receives the joined [`Checkpoint`].

mod index;
mod join;
mod names;

pub use index::ShardIndex;
pub use join::{Joint, Part, Reader, enumerated, open_index, short};
pub use names::{IndexName, file_names};

use weighbridge_core::checkpoint::Checkpoint;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
#[cfg(feature = "scan")]
use weighbridge_io::source::read_vec;
use weighbridge_io::source::{FolderRef, SourceRef};
#[cfg(feature = "scan")]
use weighbridge_scan::{Scan, config};

/// Index of shards in a folder, with the files that it names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexFile {
    /// Name of the index.
    pub name: String,
    /// Names of the shards, without duplicates. They may be missing.
    pub files: Vec<String>,
    /// Names of tensors, each with the index of its shard in `files`.
    pub tensors: Vec<(String, usize)>,
}

/// Indexes of shards in a folder.
#[derive(Debug, Default)]
pub struct IndexFiles {
    /// Readable indexes, sorted by name.
    pub read: Vec<IndexFile>,
    /// Names of unreadable indexes, with their errors.
    pub unread: Vec<(String, Error)>,
}

impl IndexFiles {
    /// Finds the indexes of shards in `folder`, for shards of any format. Other JSON with the name of an index (`.index.json`,
    /// `.index.VARIANT.json`) is skipped.
    ///
    /// # Errors
    /// As [`Folder::list`](weighbridge_io::source::Folder::list), and [`weighbridge_core::Kind::Io`] if a file cannot be read.
    pub fn in_folder(folder: &FolderRef, limits: &Limits) -> Result<IndexFiles> {
        let mut lists = IndexFiles::default();
        for item in folder.list(1)? {
            let Some(name) = item.name.to_str().filter(|name| IndexName::parse(name).is_some()) else {
                continue;
            };
            let Some(source) = folder.open(&item.name)? else { continue };
            let name = name.to_owned();
            match ShardIndex::is_index_file(&source)? {
                true => match ShardIndex::read(&source, limits) {
                    Ok(ShardIndex { files, tensors, .. }) => {
                        lists.read.push(IndexFile { name, files, tensors });
                    }
                    Err(error) => lists.unread.push((name, error)),
                },
                // Valid JSON of another form is not an index; damaged JSON may have been one.
                false => {
                    lists.unread.extend(index::whole_json(&source, limits).err().map(|error| (name, error)));
                }
            }
        }
        Ok(lists)
    }

    /// Returns the name of the first index in the folder that lists the file `name` as a shard; `None` without one. Unreadable
    /// indexes are ignored.
    ///
    /// # Errors
    /// As [`in_folder`](Self::in_folder).
    pub fn with(folder: &FolderRef, name: &str, limits: &Limits) -> Result<Option<String>> {
        let mut lists = IndexFiles::in_folder(folder, limits)?.read.into_iter();
        Ok(lists.find(|list| list.files.iter().any(|file| file == name)).map(|list| list.name))
    }
}

/// Scans an index. It contains names only; missing shards are not reported here.
#[cfg(feature = "scan")]
pub fn scan(source: &SourceRef, limits: &Limits) -> Result<Scan> {
    ShardIndex::read(source, limits)?;
    let mut scan = Scan::default();
    let bytes = read_vec(&**source, 0, source.len())?;
    config(&String::from_utf8_lossy(&bytes), limits, &mut scan);
    Ok(scan)
}

/// Rejects an index opened without its folder.
///
/// # Errors
/// [`weighbridge_core::Kind::Usage`], `list-alone`.
pub fn alone(source: &SourceRef) -> Result<Checkpoint> {
    Err(Error::usage("list-alone", "an index of shards cannot be opened without its folder")
        .in_file(source.label())
        .hint("open the index by its path, or open its folder"))
}
