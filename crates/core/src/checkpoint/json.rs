//! The index as JSON, with the stable schema of the command's `ls`.

use super::{Checkpoint, Note, TensorEntry};
use crate::json::{Rows, rows, tree};
use serde::Serialize;
use serde_json::{Map, Value as Json, json};

/// The document of an index.
#[derive(Serialize)]
struct Index<'a, Tensors: Serialize, Notes: Serialize> {
    path: &'a str,
    format: &'a str,
    kind: &'a str,
    tensors: Tensors,
    metadata: Json,
    notes: Notes,
    #[serde(skip_serializing_if = "Option::is_none")]
    origin: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    damage: Option<Json>,
}

impl Checkpoint {
    /// The index as one JSON document: `path`, `format`, `kind`, `tensors`, `metadata`, `notes`,
    /// and `damage` where it was salvaged. As a tree; [`Checkpoint::as_json`] takes no memory.
    pub fn to_json(&self) -> Json {
        tree(&self.as_json())
    }

    /// As [`Checkpoint::to_json`], made as it is written.
    pub fn as_json(&self) -> impl Serialize + '_ {
        self.as_json_with(|_, tensor| tensor.to_json())
    }

    /// As [`Checkpoint::as_json`], with the document of each tensor, which stands at that place of
    /// [`Checkpoint::tensors`], from `one`.
    pub fn as_json_with<'a>(
        &'a self,
        one: impl Fn(usize, &'a TensorEntry) -> Json + Clone + 'a,
    ) -> impl Serialize + 'a {
        Index {
            path: &self.label,
            format: self.shown_format(),
            kind: self.kind,
            tensors: Rows(self.tensors.iter().enumerate().map(move |(place, tensor)| one(place, tensor))),
            metadata: self.metadata.to_json(),
            notes: rows(&self.notes, Note::to_json),
            origin: self.carried_origin().map(|of| json!({ "format": of.format, "kind": of.kind })),
            damage: self.damage_json(),
        }
    }

    /// The damage of the file, where it is damaged.
    pub fn damage_json(&self) -> Option<Json> {
        self.damage.as_ref().map(|damage| damage.to_json(self.tensors.len()))
    }
}

impl Note {
    /// `{"code", "text"}`, and `tensor` for one that was skipped.
    pub fn to_json(&self) -> Json {
        let mut json = json!({ "code": self.code, "text": self.text });
        if let Some(tensor) = &self.skipped {
            json["tensor"] = json!(tensor.name);
        }
        json
    }
}

impl TensorEntry {
    /// `name`, `path`, `role`, `slot`, `state_of`, `dtype`, `shape`, `order`, `bytes`, the attributes, and
    /// `guessed` where it is so.
    pub fn to_json(&self) -> Json {
        let mut json = Map::new();
        json.insert("name".into(), json!(self.text()));
        json.insert("path".into(), self.path.to_json());
        json.insert("role".into(), json!(self.role.as_str()));
        if let Some(slot) = self.role.slot() {
            json.insert("slot".into(), slot.to_json());
        }
        if let Some(of) = self.role.state_of() {
            json.insert("state_of".into(), json!(of.name));
            if of.guessed {
                json.insert("state_of_guessed".into(), json!(true));
            }
        }
        json.insert("dtype".into(), json!(self.dtype().name()));
        json.insert("shape".into(), json!(self.shape.dims()));
        json.insert("order".into(), json!(self.order().as_str()));
        json.insert("bytes".into(), json!(self.bytes()));
        if let Some(labels) = &self.row_names {
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
    pub fn extents_to_json(&self) -> Json {
        let extent = |extent: &super::Extent| {
            let region = extent.region(&self.shape);
            json!({
                "file": extent.source.label(),
                "offset": extent.offset,
                "bytes": extent.len,
                "start": region.start,
                "extent": region.shape,
            })
        };
        self.extents.iter().map(extent).collect()
    }
}
