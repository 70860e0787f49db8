//! The file as it will be, before it is: the old one with a patch upon it, opened and looked at.

use super::to_file::Prepared;
use crate::checkpoint::{Checkpoint, escape_text};
use crate::engine::patch::Patch;
use crate::error::{Error, Result};
use crate::formats::{OpenOptions, registry};
use crate::source::{ConcatSource, FolderRef, LocalFolder, MemorySource, SourceRef};
use std::path::Path;
use std::sync::Arc;

/// Fails unless the patched file opens and shows what the edit wants: a format may have no place for it, and a
/// file that does not open must not be written.
///
/// # Errors
/// [`crate::Kind::Mismatch`], `not-held`; what opening says.
pub(super) fn check(
    edit: &Prepared,
    patch: &Patch,
    old: &SourceRef,
    path: &Path,
    options: &OpenOptions,
) -> Result<()> {
    let source: SourceRef = Arc::new(patched(patch, old)?);
    let opened = match LocalFolder::around(path) {
        Some((folder, name)) => {
            registry().open_in_folder(source, &(Arc::new(folder) as FolderRef), &name, options)?
        }
        None => registry().open_source(source, options)?,
    };
    let fail = |what: String| {
        Error::mismatch("not-held", "a file of this form has no place for all that the rules say")
            .in_file(path.display())
            .found(what)
            .hint("write another form, or leave that rule out")
    };
    let (wanted, there) = (told(&edit.checkpoint), told(&opened));
    if let Some(lost) = wanted.iter().find(|one| there.binary_search(one).is_err()) {
        return Err(fail(format!("no {}", escape_text(lost))));
    }
    if wanted.len() != there.len() {
        return Err(fail(format!("{} tensors, not {}", there.len(), wanted.len())));
    }
    for change in &edit.report.metadata {
        if opened.metadata.get(&change.key).map(crate::checkpoint::Value::to_json) != change.after {
            return Err(fail(format!("metadata {} as they were", escape_text(&change.key))));
        }
    }
    Ok(())
}

/// The tensors as text, sorted.
fn told(checkpoint: &Checkpoint) -> Vec<String> {
    let one = |t: &crate::TensorEntry| format!("{} {} {}", t.text(), t.dtype(), t.shape);
    let mut all: Vec<String> = checkpoint.tensors.iter().map(one).collect();
    all.sort();
    all
}

/// The old file with the ranges of the patch in place of its own.
fn patched(patch: &Patch, old: &SourceRef) -> Result<ConcatSource> {
    let mut parts: Vec<(SourceRef, u64, u64)> = Vec::new();
    let mut at = 0;
    for range in &patch.ranges {
        parts.push((old.clone(), at, range.offset.saturating_sub(at)));
        let new: SourceRef = Arc::new(MemorySource::new(old.label(), range.new.clone()));
        parts.push((new, 0, range.new.len() as u64));
        at = range.offset.saturating_add(range.old.len() as u64);
    }
    parts.push((old.clone(), at, patch.old_len.saturating_sub(at)));
    ConcatSource::new(old.label(), parts)
}
