//! What an edit changes: before and after, of what is not the same.

use super::apply::Applied;
use crate::checkpoint::{Attributes, Checkpoint, Loss, Note, TensorEntry};
use crate::engine::patch::{Patch, PatchRange};
use crate::json::{Fields, rows, tree};
use crate::tensor::CastReport;
use crate::text::path_text;
use serde::Serialize;
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::path::Path;

/// A tensor as a reader sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorSummary {
    /// The displayed name, not escaped.
    pub name: String,
    /// The type of its elements.
    pub dtype: &'static str,
    /// Its extents.
    pub shape: Vec<u64>,
    /// The name that it shares its bytes with.
    pub alias_of: Option<String>,
}

impl TensorSummary {
    fn of(entry: &TensorEntry) -> Self {
        Self {
            name: entry.text(),
            dtype: entry.dtype().name(),
            shape: entry.shape.dims().to_vec(),
            alias_of: entry.text_attribute(Attributes::ALIAS_OF).map(str::to_owned),
        }
    }

    fn to_json(&self) -> Json {
        let mut json = json!({ "name": self.name, "dtype": self.dtype, "shape": self.shape });
        if let Some(of) = &self.alias_of {
            json["alias_of"] = json!(of);
        }
        json
    }
}

/// A tensor that is not what it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorChange {
    /// As it was.
    pub before: TensorSummary,
    /// As it is; `None` where it is left out.
    pub after: Option<TensorSummary>,
    /// True where its dimensions change places, also where that gives the same shape.
    pub transposed: bool,
}

impl TensorChange {
    fn to_json(&self) -> Json {
        json!({
            "before": self.before.to_json(),
            "after": self.after.as_ref().map(TensorSummary::to_json),
            "transposed": self.transposed,
        })
    }
}

/// A key of the metadata that does not say what it said.
#[derive(Debug, Clone, PartialEq)]
pub struct MetadataChange {
    /// The key.
    pub key: String,
    /// What it said; `None` where it was not there.
    pub before: Option<Json>,
    /// What it says; `None` where it is not there any more.
    pub after: Option<Json>,
}

/// Where an edit goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EditMode {
    /// To a new file or folder.
    NewFile,
    /// Into the file that is there, around its tensors.
    Header,
    /// To a new file that takes the place of the old one.
    Rewrite,
}

impl EditMode {
    /// The word in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NewFile => "new-file",
            Self::Header => "header",
            Self::Rewrite => "rewrite",
        }
    }
}

/// What an edit changes.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct EditReport {
    /// What is edited.
    pub source: String,
    /// Where it is written to.
    pub target: String,
    /// In which way.
    pub how: EditMode,
    /// The format that is written.
    pub format: &'static str,
    /// The kind within the format.
    pub kind: &'static str,
    /// How many tensors there are afterwards.
    pub tensors: usize,
    /// The tensors that change, in their order.
    pub changes: Vec<TensorChange>,
    /// The metadata that change.
    pub metadata: Vec<MetadataChange>,
    /// What casts do, by displayed name.
    pub casts: BTreeMap<String, CastReport>,
    /// What is lost.
    pub losses: Vec<Loss>,
    /// What was odd about the source, and rules that did nothing.
    pub notes: Vec<Note>,
    /// Bytes that are written; in place, those that differ.
    pub bytes: u64,
}

impl EditReport {
    /// All of it, and `"done"`: whether it was carried out. As a tree; [`EditReport::as_json`] takes no memory.
    pub fn to_json(&self, done: bool) -> Json {
        tree(&self.as_json(done))
    }

    /// As [`EditReport::to_json`], made as it is written.
    pub fn as_json(&self, done: bool) -> impl Serialize + '_ {
        let metadata = |change: &MetadataChange| json!({ "key": change.key, "before": change.before, "after": change.after });
        Document {
            source: &self.source,
            target: &self.target,
            how: self.how.as_str(),
            done,
            format: self.format,
            kind: self.kind,
            tensors: self.tensors,
            bytes: self.bytes,
            changes: rows(&self.changes, TensorChange::to_json),
            metadata: rows(&self.metadata, metadata),
            casts: Fields(self.casts.iter().map(|(name, cast)| (name, cast.to_json()))),
            losses: rows(&self.losses, Loss::to_json),
            notes: rows(&self.notes, Note::to_json),
        }
    }
}

/// The document of an edit in place: that of the report, and `ranges`: what of the file is written.
#[derive(Serialize)]
struct InPlaceDocument<Report: Serialize, Ranges: Serialize> {
    #[serde(flatten)]
    report: Report,
    #[serde(skip_serializing_if = "Option::is_none")]
    ranges: Option<Ranges>,
}

impl EditReport {
    /// The document of an edit, and of one in place with the `patch` that it writes, where it does.
    pub fn document<'a>(&'a self, patch: Option<&'a Patch>, done: bool) -> impl Serialize + 'a {
        let range = |range: &PatchRange| json!({ "offset": range.offset, "old_bytes": range.old.len(), "new_bytes": range.new.len() });
        let ranges = patch.map(|patch| rows(&patch.ranges, range));
        InPlaceDocument { report: self.as_json(done), ranges }
    }
}

/// The document of an edit that was taken back (`undo`), or whose record was removed (`forget-undo`).
pub fn undone_document(path: &Path, done: &str, bytes: u64) -> Json {
    json!({ "path": path_text(path), "done": done, "bytes": bytes })
}

/// The document of a report.
#[derive(Serialize)]
struct Document<'a, Changes, Metadata, Casts, Losses, Notes> {
    source: &'a str,
    target: &'a str,
    how: &'a str,
    done: bool,
    format: &'a str,
    kind: &'a str,
    tensors: usize,
    bytes: u64,
    changes: Changes,
    metadata: Metadata,
    casts: Casts,
    losses: Losses,
    notes: Notes,
}

/// What of the tensors is not as it was.
pub(super) fn tensor_changes(
    before: &Checkpoint,
    after: &Checkpoint,
    applied: &Applied,
) -> Vec<TensorChange> {
    let mut now: Vec<Option<&TensorEntry>> = vec![None; before.tensors.len()];
    for (entry, &place) in after.tensors.iter().zip(&applied.places) {
        if let Some(slot) = now.get_mut(place) {
            *slot = Some(entry);
        }
    }
    let mut changes = Vec::new();
    for (old, new) in before.tensors.iter().zip(now) {
        let transposed = new.is_some_and(|new| is_transposed(old, new));
        let (told, then) = (TensorSummary::of(old), new.map(TensorSummary::of));
        if transposed || then.as_ref() != Some(&told) {
            changes.push(TensorChange { before: told, after: then, transposed });
        }
    }
    changes
}

/// Ties give other bytes, casts another type: only transposes change how the same piece is read.
fn is_transposed(old: &TensorEntry, new: &TensorEntry) -> bool {
    let (Some(a), Some(b)) = (old.extents.first(), new.extents.first()) else {
        return old.shape != new.shape;
    };
    let same = std::sync::Arc::ptr_eq(&a.source, &b.source) && (a.offset, a.len) == (b.offset, b.len);
    old.shape != new.shape || (same && a.encoding != b.encoding)
}

pub(super) fn metadata_changes(before: &Checkpoint, after: &Checkpoint) -> Vec<MetadataChange> {
    let mut changes = Vec::new();
    for (key, value) in before.metadata.iter() {
        let now = after.metadata.get(key);
        if now != Some(value) {
            let (before, after) = (Some(value.to_json()), now.map(|value| value.to_json()));
            changes.push(MetadataChange { key: key.to_owned(), before, after });
        }
    }
    for (key, value) in after.metadata.iter().filter(|(key, _)| before.metadata.get(key).is_none()) {
        changes.push(MetadataChange { key: key.to_owned(), before: None, after: Some(value.to_json()) });
    }
    changes
}
