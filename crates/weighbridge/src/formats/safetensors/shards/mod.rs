//! Several files that are one model, and the list of which tensor stands in which.

mod list;
mod names;
mod read;
#[cfg(test)]
mod tests;
mod write;

use list::whole_json;
pub(in crate::formats) use list::{List, is_list, mentions, read_list};
pub(super) use list::{is_list_file, is_of_states};
use names::ListName;
pub(super) use read::{open_folder, open_list, recognises_folder};
pub use write::parse_size;
pub(super) use write::{DEFAULT_SIZE, plan, size_as_cut};

use crate::checkpoint::{Checkpoint, METADATA_DIFFERS};
use crate::error::{Error, Result};
use crate::finding::Finding;
use crate::limits::Limits;
use crate::scan::{Scan, config};
use crate::source::{FolderRef, SourceRef, read_vec};
use std::path::Path;

/// The key of the list's metadata that gives the bytes of all tensors.
const TOTAL_SIZE: &str = "total_size";
/// The codes of remarks on what keeps nobody from reading the tensors, but is a mistake.
const MISTAKES: [&str; 4] = ["total-size-differs", "not-in-list", "list-missing", METADATA_DIFFERS];

/// True for a file of tensors in the folder: where it is not one of the shards, a note says so.
pub(super) fn tells_of(name: &Path) -> bool {
    name.components().count() == 1 && name.to_str().is_some_and(names::is_file_name)
}

/// The error for a list without its folder.
pub(super) fn alone() -> Error {
    Error::usage("list-alone", "this is a list of shards, which says nothing without the shards")
        .hint("open it by its path, or the folder in which it stands")
}

/// A list of shards in a folder, and the files that it names as its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListOfShards {
    /// The name of the list.
    pub name: String,
    /// The names of the files of safetensors, each once. They were not looked for.
    pub files: Vec<String>,
}

/// The lists of shards in a folder.
#[derive(Debug, Default)]
pub struct ListsOfShards {
    /// Those of safetensors, in the order of their names.
    pub read: Vec<ListOfShards>,
    /// The names of those that cannot be read, and why.
    pub unread: Vec<(String, Error)>,
}

/// The lists of shards of safetensors in `folder`. What has the name of a list (`.index.json`, `.index.VARIANT.json`) and is
/// none, or is one of other files, is passed over.
///
/// # Errors
/// As [`Folder::list`](crate::source::Folder::list), and [`crate::Kind::Io`] where a file cannot be read.
pub fn lists_of_shards(folder: &FolderRef, limits: &Limits) -> Result<ListsOfShards> {
    let mut lists = named_lists(folder, limits)?;
    lists
        .read
        .retain(|list| !list.files.is_empty() && list.files.iter().all(|file| names::is_file_name(file)));
    Ok(lists)
}

/// The name of the list beside the file `name` that names it as one of its own, in the order of names; `None`
/// where there is none. What has the name of a list and is none that can be read names nothing.
///
/// # Errors
/// As [`lists_of_shards`].
pub fn list_with(folder: &FolderRef, name: &str, limits: &Limits) -> Result<Option<String>> {
    let mut lists = named_lists(folder, limits)?.read.into_iter();
    Ok(lists.find(|list| list.files.iter().any(|file| file == name)).map(|list| list.name))
}

/// The lists in a folder, of files of any form.
fn named_lists(folder: &FolderRef, limits: &Limits) -> Result<ListsOfShards> {
    let mut lists = ListsOfShards::default();
    for item in folder.list(1)? {
        let Some(name) = item.name.to_str().filter(|name| ListName::parse(name).is_some()) else { continue };
        let Some(source) = folder.open(&item.name)? else { continue };
        let name = name.to_owned();
        match is_list_file(&source)? {
            true => match read_list(&source, limits) {
                Ok(list) => lists.read.push(ListOfShards { name, files: list.files }),
                Err(error) => lists.unread.push((name, error)),
            },
            // What is whole and no list is something else; what is damaged may have been one.
            false => lists.unread.extend(whole_json(&source, limits).err().map(|error| (name, error))),
        }
    }
    Ok(lists)
}

/// Looks through a list: it holds names only, and whether the files are there is another question.
pub(super) fn scan_list(source: &SourceRef, limits: &Limits) -> Result<Scan> {
    read_list(source, limits)?;
    let mut scan = Scan::default();
    let bytes = read_vec(&**source, 0, source.len())?;
    config(&String::from_utf8_lossy(&bytes), &mut scan);
    Ok(scan)
}

/// Mistakes that opening only remarks on.
pub(super) fn check(checkpoint: &Checkpoint) -> Vec<Finding> {
    let own = checkpoint.notes.iter().filter(|note| MISTAKES.contains(&note.code));
    own.map(|note| Finding::warning(note.code, note.text.clone())).collect()
}
