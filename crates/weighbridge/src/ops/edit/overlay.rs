//! Check of a patched file before it is written: the old file with the patch on top is opened and compared.

use super::to_file::Prepared;
use crate::checkpoint::{Checkpoint, escape_text};
use crate::engine::patch::Patch;
use crate::error::{Error, Result};
use crate::formats::{OpenOptions, registry};
use crate::source::{ConcatSource, FolderRef, LocalFolder, MemorySource, SourceRef};
use std::path::Path;
use std::sync::Arc;

/// Fails unless the patched file opens and has the edited tensors and metadata. A format may be unable to store them, and a file
/// that does not open must not be written.
///
/// # Errors
/// [`crate::Kind::Mismatch`], `not-held`; errors of opening.
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
        Error::mismatch("not-held", "the format cannot store the result of the rules")
            .in_file(path.display())
            .found(what)
            .hint("write another format, or remove that rule")
    };
    let (expected, actual) = (summaries(&edit.checkpoint), summaries(&opened));
    if let Some(lost) = expected.iter().find(|one| actual.binary_search(one).is_err()) {
        return Err(fail(format!("no {}", escape_text(lost))));
    }
    if expected.len() != actual.len() {
        return Err(fail(format!("{} tensors, not {}", actual.len(), expected.len())));
    }
    for change in &edit.report.metadata {
        if opened.metadata.get(&change.key).map(crate::checkpoint::Value::to_json) != change.after {
            return Err(fail(format!("metadata {} unchanged", escape_text(&change.key))));
        }
    }
    Ok(())
}

/// Returns the tensors as text, sorted.
fn summaries(checkpoint: &Checkpoint) -> Vec<String> {
    let one = |t: &crate::TensorEntry| format!("{} {} {}", t.text(), t.dtype(), t.shape);
    let mut all: Vec<String> = checkpoint.tensors.iter().map(one).collect();
    all.sort();
    all
}

/// Returns the old file with the ranges of the patch replaced.
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
