//! The index as JSON, with the stable schema of the command's `ls`.

use super::{Checkpoint, Note, TensorEntry};
use serde_json::{Map, Value as Json, json};

impl Checkpoint {
    /// The index as one JSON document: `path`, `format`, `kind`, `tensors`, `metadata`, `notes`,
    /// and `damage` where it was salvaged.
    pub fn to_json(&self) -> Json {
        let mut json = json!({
            "path": self.label,
            "format": self.format,
            "kind": self.kind,
            "tensors": null,
            "metadata": null,
            "notes": self.notes.iter().map(Note::to_json).collect::<Json>(),
        });
        // The macro would copy them.
        json["tensors"] = self.tensors.iter().map(TensorEntry::to_json).collect();
        json["metadata"] = self.metadata.to_json();
        if let Some(origin) = self.carried_origin() {
            json["origin"] = json!({ "format": origin.format, "kind": origin.kind });
        }
        if let Some(damage) = &self.damage {
            json["damage"] = damage.to_json(self.tensors.len());
        }
        json
    }
}

impl Note {
    /// `{"code", "text"}`.
    pub fn to_json(&self) -> Json {
        json!({ "code": self.code, "text": self.text })
    }
}

impl TensorEntry {
    /// `name`, `path`, `role`, `slot`, `dtype`, `shape`, `order`, `bytes`, the attributes, and
    /// `guessed` where it is so.
    pub fn to_json(&self) -> Json {
        let mut json = Map::new();
        json.insert("name".into(), json!(self.text()));
        json.insert("path".into(), self.path.to_json());
        json.insert("role".into(), json!(self.role.as_str()));
        if let Some(slot) = self.role.slot() {
            json.insert("slot".into(), slot.to_json());
        }
        json.insert("dtype".into(), json!(self.dtype().name()));
        json.insert("shape".into(), json!(self.shape.dims()));
        json.insert("order".into(), json!(self.order().as_str()));
        json.insert("bytes".into(), json!(self.bytes()));
        if let Some(labels) = &self.labels {
            json.insert("row_names".into(), json!(labels.label()));
        }
        for (key, value) in &self.attributes {
            json.entry(key.clone()).or_insert_with(|| value.to_json());
        }
        if self.guessed {
            json.insert("guessed".into(), json!(true));
        }
        Json::Object(json)
    }

    /// Where the bytes are: for each piece `file`, `offset`, `bytes`, and the box that it fills, as
    /// `start` and `extent` along each dimension.
    pub fn pieces_to_json(&self) -> Json {
        let piece = |piece: &super::Piece| {
            json!({
                "file": piece.source.label(),
                "offset": piece.offset,
                "bytes": piece.len,
                "start": piece.region.start,
                "extent": piece.region.extent,
            })
        };
        self.pieces.iter().map(piece).collect()
    }
}
