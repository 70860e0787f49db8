//! Unindexed content of a side: it may differ, but was not compared.

use super::{DiffOptions, Pair, Status};
use crate::checkpoint::{Checkpoint, Note};
use crate::error::Result;
use crate::source::{FileSource, PathKind, Source, to_usize};
use std::collections::HashSet;
use std::path::Path;
use weighbridge_core::NoteCode;

/// Bytes compared at once.
const BLOCK: u64 = 1 << 20;
/// Omissions of metadata only, such as attributes of objects, without tensors.
const METADATA: [NoteCode; 11] = [
    NoteCode::AttributesDiffer,
    NoteCode::ColumnMetadata,
    NoteCode::MetadataDamaged,
    NoteCode::MetadataDiffers,
    NoteCode::MetadataKeyTaken,
    NoteCode::MetadataTooLong,
    NoteCode::MetadataUnreadable,
    NoteCode::NamedType,
    NoteCode::UnknownClass,
    NoteCode::UnknownField,
    NoteCode::ValueLeftOut,
];
/// Omissions of programs: where only one side has any, there is no counterpart to compare with.
const PROGRAMS: [NoteCode; 2] = [NoteCode::MorePrograms, NoteCode::TorchscriptCode];
/// Missing parameters are not unread: a side that has them lists them as tensors.
const ABSENT: &str = "parameters-missing";

/// Returns the number of parts of the sides that were not read and may differ.
pub(super) fn count(sides: [&Checkpoint; 2], pairs: &[Pair], options: &DiffOptions) -> usize {
    let is_program = |note: &&Note| PROGRAMS.contains(&note.code);
    let both = sides.iter().all(|side| side.left_out().any(|note| is_program(&note)));
    let counts = |note: &&Note| {
        note.code != ABSENT
            && (both || !is_program(note))
            && !(options.no_metadata && METADATA.contains(&note.code))
    };
    let notes = sides.iter().map(|side| side.left_out().filter(counts).count());
    notes.sum::<usize>() + sides.iter().filter(|side| is_damaged(side, pairs, options)).count()
}

/// True where damage may have lost more than the unread pairs and the ignored tensors.
fn is_damaged(side: &Checkpoint, pairs: &[Pair], options: &DiffOptions) -> bool {
    let Some(damage) = &side.damage else { return false };
    let known = (damage.lost.len() as u64).saturating_add(side.tensors.len() as u64);
    if damage.lost.is_empty() || damage.expected.is_none_or(|expected| known < expected) {
        return true;
    }
    if !(options.select.is_empty() && options.drop.is_empty()) {
        // Every lost tensor has a name, and the selected ones are reported.
        return false;
    }
    let unread: HashSet<&str> = pairs
        .iter()
        .filter(|pair| pair.status == Status::Unread)
        .filter_map(|pair| pair.unread.as_ref()?.tensor.as_deref())
        .collect();
    damage.lost.iter().any(|lost| !unread.contains(lost.name.as_str()))
}

/// True for a checkpoint of a single file, with nothing beside it.
pub(super) fn stands_alone(checkpoint: &Checkpoint) -> bool {
    let mut extents = checkpoint.tensors.iter().flat_map(|tensor| &tensor.extents);
    checkpoint.files.is_empty()
        && checkpoint.companions.is_empty()
        && extents.all(|extent| extent.source.label().starts_with(&checkpoint.label))
}

/// True where both paths are files with identical bytes.
///
/// # Errors
/// [`crate::Kind::Io`] where one cannot be read.
pub(super) fn same_bytes(left: &Path, right: &Path) -> Result<bool> {
    for path in [left, right] {
        if PathKind::of(path)? == PathKind::Folder {
            return Ok(false);
        }
    }
    let sides = [FileSource::open(left)?, FileSource::open(right)?];
    let [len, other] = sides.each_ref().map(Source::len);
    if len != other {
        return Ok(false);
    }
    let mut bytes = [Vec::new(), Vec::new()];
    let mut at = 0;
    while at < len {
        let part = (len - at).min(BLOCK);
        for (side, bytes) in sides.iter().zip(&mut bytes) {
            bytes.resize(to_usize(part)?, 0);
            side.read_at(at, bytes)?;
        }
        if bytes[0] != bytes[1] {
            return Ok(false);
        }
        at += part;
    }
    Ok(true)
}
