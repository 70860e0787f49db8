//! Changes of an edit: tensors and metadata before and after.

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

/// Name, type and shape of a tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorSummary {
    /// The displayed name, not escaped.
    pub name: String,
    /// The element type.
    pub dtype: &'static str,
    /// The size of each dimension.
    pub shape: Vec<u64>,
    /// The name of the tensor that it shares storage with.
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

/// Change to a tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorChange {
    /// The tensor before the edit.
    pub before: TensorSummary,
    /// The tensor after the edit; `None` where it is dropped.
    pub after: Option<TensorSummary>,
    /// True where its dimensions are permuted, even if the shape stays the same.
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

/// Change to a metadata key.
#[derive(Debug, Clone, PartialEq)]
pub struct MetadataChange {
    /// The key.
    pub key: String,
    /// The old value; `None` for a new key.
    pub before: Option<Json>,
    /// The new value; `None` for a removed key.
    pub after: Option<Json>,
}

/// Target of an edit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EditMode {
    /// A new file or folder.
    NewFile,
    /// The existing file: bytes around its tensors are changed.
    Header,
    /// A new file that replaces the old one.
    Rewrite,
}

impl EditMode {
    /// Returns the word in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NewFile => "new-file",
            Self::Header => "header",
            Self::Rewrite => "rewrite",
        }
    }
}

/// Changes of an edit, planned or carried out.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct EditReport {
    /// The source.
    pub source: String,
    /// The target.
    pub target: String,
    /// The kind of target.
    pub how: EditMode,
    /// The format of the target.
    pub format: &'static str,
    /// The kind within the format.
    pub kind: &'static str,
    /// Number of tensors after the edit.
    pub tensors: usize,
    /// The changed tensors, in order.
    pub changes: Vec<TensorChange>,
    /// The changed metadata.
    pub metadata: Vec<MetadataChange>,
    /// Effects of casts, by displayed name.
    pub casts: BTreeMap<String, CastReport>,
    /// Losses.
    pub losses: Vec<Loss>,
    /// Notes on the source, and on rules that matched nothing.
    pub notes: Vec<Note>,
    /// Number of bytes written; in place, of those that differ.
    pub bytes: u64,
}

impl EditReport {
    /// Returns the report as JSON, with `"done"`: true if carried out. As a tree; [`EditReport::as_json`] streams it.
    pub fn to_json(&self, done: bool) -> Json {
        tree(&self.as_json(done))
    }

    /// As [`EditReport::to_json`], serialized without an intermediate tree.
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

/// Document of an edit in place: that of the report, and `ranges`, the written byte ranges.
#[derive(Serialize)]
struct InPlaceDocument<Report: Serialize, Ranges: Serialize> {
    #[serde(flatten)]
    report: Report,
    #[serde(skip_serializing_if = "Option::is_none")]
    ranges: Option<Ranges>,
}

impl EditReport {
    /// Returns the document of an edit; for an edit in place also with the `patch` that it writes.
    pub fn document<'a>(&'a self, patch: Option<&'a Patch>, done: bool) -> impl Serialize + 'a {
        let range = |range: &PatchRange| json!({ "offset": range.offset, "old_bytes": range.old.len(), "new_bytes": range.new.len() });
        let ranges = patch.map(|patch| rows(&patch.ranges, range));
        InPlaceDocument { report: self.as_json(done), ranges }
    }
}

/// Returns the document of an edit that was undone (`undo`), or whose undo record was removed (`forget-undo`).
pub fn undone_document(path: &Path, done: &str, bytes: u64) -> Json {
    json!({ "path": path_text(path), "done": done, "bytes": bytes })
}

/// Document of a report.
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

/// Returns the changes to tensors.
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
        let (summary, then) = (TensorSummary::of(old), new.map(TensorSummary::of));
        if transposed || then.as_ref() != Some(&summary) {
            changes.push(TensorChange { before: summary, after: then, transposed });
        }
    }
    changes
}

/// True where the dimensions are permuted. Ties change the bytes and casts the type: only a transpose reads the same extent
/// differently.
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
