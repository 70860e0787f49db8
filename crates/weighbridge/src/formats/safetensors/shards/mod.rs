//! Several files that are one model, and the list of which tensor stands in which.

mod list;
mod names;
mod read;
#[cfg(test)]
mod tests;
mod write;

pub(super) use list::{is_list, is_list_file, read_list};
pub(super) use read::{open_folder, open_list, recognises_folder};
pub use write::parse_size;
pub(super) use write::{DEFAULT_SIZE, plan};

use crate::checkpoint::Checkpoint;
use crate::error::Error;
use crate::finding::Finding;

/// The key of the list's metadata that gives the bytes of all tensors.
const TOTAL_SIZE: &str = "total_size";
/// The key of metadata that other programs ask every shard for.
const FORMAT: &str = "format";
/// The codes of remarks on what keeps nobody from reading the tensors, but is a mistake.
const MISTAKES: [&str; 4] = ["total-size-differs", "not-in-list", "list-missing", "metadata-differs"];

/// The error for a list without its folder.
pub(super) fn alone() -> Error {
    Error::usage("list-alone", "this is a list of shards, which says nothing without the shards")
        .hint("open it by its path, or the folder in which it stands")
}

/// Mistakes that opening only remarks on.
pub(super) fn check(checkpoint: &Checkpoint) -> Vec<Finding> {
    let own = checkpoint.notes.iter().filter(|note| MISTAKES.contains(&note.code));
    own.map(|note| Finding::warning(note.code, note.text.clone())).collect()
}
