//! Metadata that torch cannot hold, as a JSON object of strings.

use serde_json::value::RawValue;
use serde_json::{Map, Value as Json};
use std::collections::BTreeMap;
use weighbridge_core::checkpoint::{Checkpoint, Loss, Metadata, Value, escape_text};

/// Maximum bytes of metadata text that go into the bridge index as a whole, to keep their order; an
/// overlong index could not be read.
const MAX_INDEXED_TEXT: usize = 256 << 10;

/// Encodes the metadata; `None` without any.
pub(super) fn encode(checkpoint: &Checkpoint, names: &[String], losses: &mut Vec<Loss>) -> Option<String> {
    let mut map = Map::new();
    let whole = !is_plain(&checkpoint.metadata) && text_len(&checkpoint.metadata) <= MAX_INDEXED_TEXT;
    for (key, value) in checkpoint.metadata.iter() {
        match value {
            Value::Text(_) if is_of_safetensors(checkpoint, key) => {}
            Value::Text(_) if key.starts_with(Metadata::RESERVED_PREFIX) => {
                let detail = "the key prefix is reserved for Weighbridge";
                losses.push(Loss::new("metadata-dropped", escape_text(key), detail));
            }
            Value::Text(text) if !whole => {
                map.insert(key.to_owned(), Json::from(text.as_str()));
            }
            // Typed values, or all values, go into the bridge index.
            _ => {}
        }
    }
    let held = |key: &str, value: &Value| {
        matches!(value, Value::Text(_))
            && (!whole || key.starts_with(Metadata::RESERVED_PREFIX) || is_of_safetensors(checkpoint, key))
    };
    if let Some(index) = checkpoint.bridge_index_beside(names, held) {
        map.insert(Metadata::INDEX_KEY.into(), index.into());
    }
    (!map.is_empty()).then(|| Json::Object(map).to_string())
}

/// Returns true for the key `format` of safetensors files with the value `pt`.
fn is_of_safetensors(checkpoint: &Checkpoint, key: &str) -> bool {
    checkpoint.format == "safetensors"
        && checkpoint.carried_origin().is_none_or(|origin| origin.format == "torch")
        && key == "format"
        && matches!(checkpoint.metadata.get(key), Some(Value::Text(library)) if library == "pt")
}

/// Returns true if an object of strings represents the metadata: texts, sorted by key.
fn is_plain(metadata: &Metadata) -> bool {
    metadata.iter().all(|(_, value)| matches!(value, Value::Text(_)))
        && metadata.iter().map(|(key, _)| key).is_sorted()
}

/// Total bytes of all texts and their keys.
fn text_len(metadata: &Metadata) -> usize {
    let len = |(key, value): (&str, &Value)| match value {
        Value::Text(text) => key.len() + text.len(),
        _ => 0,
    };
    metadata.iter().map(len).sum()
}

/// Decodes the text metadata and the bridge index. `None` for other content.
pub(super) fn decode(bytes: &[u8]) -> Option<(Metadata, Option<String>)> {
    // Values are parsed as raw text first: a parsed tree would take a multiple of its text.
    let map = serde_json::from_slice::<BTreeMap<String, Box<RawValue>>>(bytes).ok()?;
    let (mut index, mut pairs) = (None, Vec::new());
    for (key, value) in map {
        match serde_json::from_str::<String>(value.get()).ok()? {
            text if key == Metadata::INDEX_KEY => index = Some(text),
            text => pairs.push((key, Value::Text(text))),
        }
    }
    Some((pairs.into_iter().collect(), index))
}
