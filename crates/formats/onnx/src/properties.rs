//! Changes of the metadata of an opened model.

use crate::encode::Message as Out;
use crate::graph::FIELDS;
use std::collections::{BTreeMap, HashMap, HashSet};
use weighbridge_core::checkpoint::{Checkpoint, Loss, Value, escape_text};
use weighbridge_core::error::{Error, Result};

/// Changes of the metadata.
#[derive(Default)]
pub(crate) struct Properties {
    /// New values of properties by key; `None` removes one.
    pub(crate) changed: HashMap<String, Option<String>>,
    /// Properties to add.
    pub(crate) added: Vec<(String, String)>,
    /// New values of fields of the model, by number.
    pub(crate) fields: BTreeMap<u32, Value>,
}

impl Properties {
    pub(crate) fn of(
        checkpoint: &Checkpoint,
        old: &[(String, Value)],
        losses: &mut Vec<Loss>,
    ) -> Result<Self> {
        let mut all = Self::default();
        let field = |key: &str| match key {
            "producer_name" => Some(2),
            "producer_version" => Some(3),
            "domain" => Some(4),
            "model_version" => Some(5),
            "doc_string" => Some(6),
            _ => None,
        };
        for (key, value) in old {
            match checkpoint.metadata.get(key) {
                Some(now) if now == value => {}
                None if !FIELDS.contains(&key.as_str()) => _ = all.changed.insert(key.clone(), None),
                Some(Value::Text(now)) if !FIELDS.contains(&key.as_str()) => {
                    all.changed.insert(key.clone(), Some(now.clone()));
                }
                now => match (field(key), now) {
                    (Some(5), Some(number @ (Value::I64(_) | Value::U64(_)))) => {
                        all.fields.insert(5, number.clone());
                    }
                    (Some(number), Some(Value::Text(_)) | None) if number != 5 => {
                        let text = now.cloned().unwrap_or(Value::Text(String::new()));
                        all.fields.insert(number, text);
                    }
                    (_, Some(now)) => return Err(unchangeable(key, value, now)),
                    (_, None) => losses.push(Loss::new(
                        "metadata-dropped",
                        escape_text(key),
                        "kept in the file: the graph depends on it",
                    )),
                },
            }
        }
        let known: HashSet<&str> = old.iter().map(|(key, _)| key.as_str()).collect();
        for (key, value) in checkpoint.metadata.iter() {
            if known.contains(key) {
                continue;
            }
            match (field(key), value) {
                (Some(5), Value::I64(_) | Value::U64(_)) => _ = all.fields.insert(5, value.clone()),
                (Some(number), Value::Text(_)) if number != 5 => _ = all.fields.insert(number, value.clone()),
                (None, Value::Text(text)) if !FIELDS.contains(&key) => {
                    all.added.push((key.to_owned(), text.clone()));
                }
                _ => losses.push(not_text(key)),
            }
        }
        Ok(all)
    }
}

/// Returns the loss of metadata that are not text.
pub(crate) fn not_text(key: &str) -> Loss {
    Loss::new("metadata-dropped", escape_text(key), "dropped: properties of an ONNX model are texts")
}

fn unchangeable(key: &str, old: &Value, new: &Value) -> Error {
    Error::mismatch(
        "belongs-to-a-program",
        format!("`{}` cannot be changed: the graph depends on it", escape_text(key)),
    )
    .expected(old.to_json())
    .found(new.to_json())
}

/// Appends a field of the model.
pub(crate) fn put_field(number: u32, value: &Value, out: &mut Out) {
    match value {
        Value::Text(text) if !text.is_empty() => out.text(number, text),
        Value::I64(value) => out.int(number, *value),
        Value::U64(value) => out.int(number, value.cast_signed()),
        _ => {}
    }
}
