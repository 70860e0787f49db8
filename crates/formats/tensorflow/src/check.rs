//! Outlines of files, and checks of a checkpoint.

use crate::bundle::{Entry, OBJECT_GRAPH};
use crate::names;
use crate::place::FileType;
use crate::read::{INDEX, Index, prefix_of, shard_name, text_place};
use crate::table::Table;
use crate::{dtype, text};
use std::path::Path;
use weighbridge_core::check::{Gaps, Outline};
use weighbridge_core::checkpoint::{Checkpoint, Metadata};
use weighbridge_core::error::Result;
use weighbridge_core::finding::Finding;
use weighbridge_core::limits::Limits;
use weighbridge_io::source::{SourceRef, read_vec};

/// Maximum padding between two tensors: some writers align them.
const ALIGNMENT: u64 = 4096;

/// Returns the ranges of a file without elements.
pub(crate) fn outline(source: &SourceRef, limits: &Limits) -> Result<Outline> {
    let head = read_vec(&**source, 0, source.len().min(weighbridge_format::HEAD as u64))?;
    match FileType::of(&head, source) {
        Some(FileType::Index) => {
            let limits = limits.with_budget_of(source);
            let budget = limits.budget_of(source);
            let mut table = Table::new(source, &budget);
            table.read(&mut |_, _, _| Ok(()))?;
            let mut outline = Outline::new(Gaps::Forbidden);
            for part in &table.parts {
                outline.header(part.offset, part.len, part.what);
            }
            Ok(outline)
        }
        Some(FileType::State) => weighbridge_format::outline::text(source, "names of checkpoints"),
        Some(FileType::Saved | FileType::SavedText | FileType::Graph | FileType::Keras) => {
            Ok(Outline::whole(source.len(), "graph of TensorFlow"))
        }
        None => Ok(Outline::new(Gaps::Zeros(ALIGNMENT))),
    }
}

/// Returns the ranges of a file of a checkpoint. The index lists the content of data files.
pub(crate) fn outline_within(
    checkpoint: &Checkpoint,
    source: &SourceRef,
    limits: &Limits,
) -> Result<Outline> {
    let name = Path::new(source.label())
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default();
    if crate::saved::is_own_file(&name) {
        return Ok(Outline::whole(source.len(), "file of a SavedModel"));
    }
    if checkpoint.companions.iter().any(|(_, own)| own.label() == source.label()) {
        return Ok(Outline::whole(source.len(), "asset of a SavedModel"));
    }
    let mut outline = outline(source, limits)?;
    let Some(index) = index_of(checkpoint) else { return Ok(outline) };
    let damaged = checkpoint.damage.is_some();
    let limits = limits.with_budget_of(index);
    let index_name = Path::new(index.label()).file_name().unwrap_or_default();
    let prefix = prefix_of(Path::new(index_name));
    if !name.starts_with(&format!("{prefix}.data-")) {
        return Ok(outline);
    }
    let read = Index::read(index, &limits, &limits.budget_of(index), damaged)?;
    for entry in special(&read) {
        if shard_name(&prefix, entry.shard, read.header.shards) == name {
            let what = match entry.key.as_slice() {
                OBJECT_GRAPH => "graph of objects",
                key if key == Metadata::INDEX_KEY.as_bytes() => "index of Weighbridge",
                _ if entry.is_text() => "tensor of text",
                _ => "tensor that is not listed",
            };
            outline.header(entry.offset, entry.len, what);
        }
    }
    Ok(outline)
}

/// Returns the index of an opened checkpoint.
fn index_of(checkpoint: &Checkpoint) -> Option<&SourceRef> {
    checkpoint.files.iter().find(|file| file.label().ends_with(INDEX))
}

/// Returns the entries without numbers.
fn special(index: &Index) -> impl Iterator<Item = &Entry> {
    index
        .entries
        .iter()
        .filter(|entry| entry.key.first() != Some(&0) && dtype::skipped(entry.dtype).is_some())
}

/// Checks the tensors of text. Opening has verified the graph of objects; reading verifies the others.
pub(crate) fn check(checkpoint: &Checkpoint) -> Result<Vec<Finding>> {
    let Some(source) = index_of(checkpoint) else { return Ok(Vec::new()) };
    let limits = Limits::default().with_budget_of(source);
    let index = Index::read(source, &limits, &limits.budget_of(source), checkpoint.damage.is_some())?;
    let index_name = Path::new(source.label()).file_name().unwrap_or_default();
    let prefix = prefix_of(Path::new(index_name));
    let mut findings = Vec::new();
    for entry in special(&index).filter(|entry| entry.is_text()) {
        let name = shard_name(&prefix, entry.shard, index.header.shards);
        let shard = checkpoint.files.iter().find(|file| Path::new(file.label()).ends_with(&name));
        let Some(shard) = shard else { continue };
        if let Err(error) = text_place(entry).and_then(|place| text::verify(shard, place)) {
            let error = error.on_tensor(names::shown(&entry.key));
            match Finding::from_error(&error) {
                Some(finding) => findings.push(finding),
                None => return Err(error),
            }
        }
    }
    Ok(findings)
}
