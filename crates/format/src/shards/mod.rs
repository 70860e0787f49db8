//! Several files that are one model, and their index: which tensor is in which file, as Hugging Face's libraries and
//! PaddleNLP write it.
//!
//! ```text
//! {"metadata": {"total_size": bytes of all tensors, ...},
//!  "weight_map": {"name of a tensor": "model-00001-of-00002.safetensors", ...}}
//! ```
//!
//! The files are of any format: it gives a [`Reader`] of one file, and gets the joint [`Checkpoint`].

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

/// An index of shards in a folder, and the files that it names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexFile {
    /// The name of the index.
    pub name: String,
    /// The names of the files, each once. They were not looked for.
    pub files: Vec<String>,
}

/// The indexes of shards in a folder.
#[derive(Debug, Default)]
pub struct IndexFiles {
    /// Those that can be read, in the order of their names.
    pub read: Vec<IndexFile>,
    /// The names of those that cannot be read, and why.
    pub unread: Vec<(String, Error)>,
}

impl IndexFiles {
    /// The indexes of shards in `folder`, of files of any format. What has the name of an index (`.index.json`,
    /// `.index.VARIANT.json`) and is none is passed over.
    ///
    /// # Errors
    /// As [`Folder::list`](weighbridge_io::source::Folder::list), and [`weighbridge_core::Kind::Io`] where a file cannot be read.
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
                    Ok(index) => lists.read.push(IndexFile { name, files: index.files }),
                    Err(error) => lists.unread.push((name, error)),
                },
                // What is whole and no index is something else; what is damaged may have been one.
                false => {
                    lists.unread.extend(index::whole_json(&source, limits).err().map(|error| (name, error)));
                }
            }
        }
        Ok(lists)
    }

    /// The name of the index beside the file `name` that names it as one of its shards, in the order of names; `None`
    /// where there is none. What has the name of an index and cannot be read names nothing.
    ///
    /// # Errors
    /// As `index_files`.
    pub fn with(folder: &FolderRef, name: &str, limits: &Limits) -> Result<Option<String>> {
        let mut lists = IndexFiles::in_folder(folder, limits)?.read.into_iter();
        Ok(lists.find(|list| list.files.iter().any(|file| file == name)).map(|list| list.name))
    }
}

/// Scans an index: it holds names only, and whether the files are there is another question.
#[cfg(feature = "scan")]
pub fn scan(source: &SourceRef, limits: &Limits) -> Result<Scan> {
    ShardIndex::read(source, limits)?;
    let mut scan = Scan::default();
    let bytes = read_vec(&**source, 0, source.len())?;
    config(&String::from_utf8_lossy(&bytes), limits, &mut scan);
    Ok(scan)
}

/// Refuses an index without its folder.
///
/// # Errors
/// [`weighbridge_core::Kind::Usage`], `list-alone`.
pub fn alone(source: &SourceRef) -> Result<Checkpoint> {
    Err(Error::usage("list-alone", "this is an index of shards, without the shards")
        .in_file(source.label())
        .hint("open it by its path, or open its folder"))
}
