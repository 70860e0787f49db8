//! Sharded models: several files with an index.

mod names;
mod read;
#[cfg(test)]
mod tests;
mod write;

pub(super) use read::{open_folder, open_list, recognises_folder};
pub use write::parse_size;
pub(super) use write::{DEFAULT_SIZE, plan, size_as_cut};

use super::IndexFiles;
use std::path::Path;
use weighbridge_core::NoteCode;
use weighbridge_core::checkpoint::Checkpoint;
use weighbridge_core::error::Result;
use weighbridge_core::finding::Finding;
use weighbridge_core::limits::Limits;
use weighbridge_format::shards::ShardIndex;
use weighbridge_io::source::{FolderRef, SourceRef};

/// Suffixes of shards of other formats.
const OTHERS: [&str; 4] = [".bin", ".pdparams", ".pdopt", ".msgpack"];
/// Codes of notes about mistakes that do not prevent reading the tensors.
const MISTAKES: [NoteCode; 4] =
    [NoteCode::TotalSizeDiffers, NoteCode::NotInList, NoteCode::ListMissing, NoteCode::MetadataDiffers];

/// True for an index of safetensors files, or an index without files of other formats.
pub(super) fn is_ours(source: &SourceRef) -> bool {
    ShardIndex::names_files(source, &[names::SUFFIX]) || !ShardIndex::names_files(source, &OTHERS)
}

/// True for a safetensors file in the folder; a note names files that are not shards of the model.
pub(super) fn owns_sibling(name: &Path) -> bool {
    name.components().count() == 1 && name.to_str().is_some_and(names::is_file_name)
}

/// Returns the shard indexes of safetensors in `folder`. Invalid files with the name of an index (`.index.json`,
/// `.index.VARIANT.json`), and indexes of other formats, are ignored.
///
/// # Errors
/// As [`Folder::list`](weighbridge_io::source::Folder::list), and [`weighbridge_core::Kind::Io`] where a file cannot be read.
pub fn index_files(folder: &FolderRef, limits: &Limits) -> Result<IndexFiles> {
    let mut lists = IndexFiles::in_folder(folder, limits)?;
    lists
        .read
        .retain(|list| !list.files.is_empty() && list.files.iter().all(|file| names::is_file_name(file)));
    Ok(lists)
}

/// Turns notes about mistakes into findings.
pub(super) fn check(checkpoint: &Checkpoint) -> Vec<Finding> {
    let own = checkpoint.notes.iter().filter(|note| MISTAKES.contains(&note.code));
    own.map(|note| Finding::warning(note.code, note.text.clone())).collect()
}
