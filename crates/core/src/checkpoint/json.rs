//! Index as JSON, with the stable schema of the `ls` command.

use super::{Checkpoint, Note, TensorEntry};
use crate::json::{Rows, rows, tree};
use serde::Serialize;
use serde_json::{Map, Value as Json, json};

/// JSON document of an index.
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
    /// Returns the index as a JSON tree: `path`, `format`, `kind`, `tensors`, `metadata`, `notes`, and `damage` if it was
    /// salvaged. [`Checkpoint::as_json`] avoids the tree.
    pub fn to_json(&self) -> Json {
        tree(&self.as_json())
    }

    /// Returns the document of [`Checkpoint::to_json`], serialized without a tree in memory.
    pub fn as_json(&self) -> impl Serialize + '_ {
        self.as_json_with(|_, tensor| tensor.to_json())
    }

    /// Returns the document of [`Checkpoint::as_json`]. `one` supplies the document of each tensor, by its index in
    /// [`Checkpoint::tensors`].
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

    /// Returns the damage of the file, if any.
    pub fn damage_json(&self) -> Option<Json> {
        self.damage.as_ref().map(|damage| damage.to_json(self.tensors.len()))
    }
}

impl Note {
    /// Returns `{"code", "text"}`, and `tensor` for a skipped tensor.
    pub fn to_json(&self) -> Json {
        let mut json = json!({ "code": self.code, "text": self.text });
        if let Some(tensor) = &self.skipped {
            json["tensor"] = json!(tensor.name);
        }
        json
    }
}

impl TensorEntry {
    /// Returns `name`, `path`, `role`, `slot`, `state_of`, `dtype`, `shape`, `order`, `bytes`, the attributes, and `guessed` if
    /// true.
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

    /// Returns the extents: for each one `file`, `offset`, `bytes`, and its box, as `start` and `extent` (size) along each
    /// dimension.
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
