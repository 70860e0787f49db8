//! What torch has no place for, as the text of a JSON object of strings.

use serde_json::value::RawValue;
use serde_json::{Map, Value as Json};
use std::collections::BTreeMap;
use weighbridge_core::checkpoint::{Checkpoint, Loss, Metadata, Value, escape_text};

/// Metadata goes into the carried index as a whole, so that its order comes back, where its texts
/// have no more bytes than this together; an index that is too long would not be read.
const MOST_TEXT: usize = 256 << 10;

/// The JSON; `None` where there is nothing to say.
pub(super) fn encode(checkpoint: &Checkpoint, names: &[String], losses: &mut Vec<Loss>) -> Option<String> {
    let mut map = Map::new();
    let whole = !is_plain(&checkpoint.metadata) && text_len(&checkpoint.metadata) <= MOST_TEXT;
    for (key, value) in checkpoint.metadata.iter() {
        match value {
            Value::Text(_) if is_of_safetensors(checkpoint, key) => {}
            Value::Text(_) if key.starts_with(Metadata::RESERVED_PREFIX) => {
                let detail = "keys of this beginning are reserved for what this library carries";
                losses.push(Loss::new("metadata-dropped", escape_text(key), detail));
            }
            Value::Text(text) if !whole => {
                map.insert(key.to_owned(), Json::from(text.as_str()));
            }
            // Typed values, or all of them, go into the carried index.
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

/// True for the key with which a file of safetensors says that it is for PyTorch.
fn is_of_safetensors(checkpoint: &Checkpoint, key: &str) -> bool {
    checkpoint.format == "safetensors"
        && checkpoint.carried_origin().is_none_or(|origin| origin.format == "torch")
        && key == "format"
        && matches!(checkpoint.metadata.get(key), Some(Value::Text(library)) if library == "pt")
}

/// True where an object of strings says everything: texts, in the order of their keys.
fn is_plain(metadata: &Metadata) -> bool {
    metadata.iter().all(|(_, value)| matches!(value, Value::Text(_)))
        && metadata.iter().map(|(key, _)| key).is_sorted()
}

/// The bytes of all texts and their keys together.
fn text_len(metadata: &Metadata) -> usize {
    let len = |(key, value): (&str, &Value)| match value {
        Value::Text(text) => key.len() + text.len(),
        _ => 0,
    };
    metadata.iter().map(len).sum()
}

/// The text metadata, and the carried index. `None` where this is no such JSON.
pub(super) fn decode(bytes: &[u8]) -> Option<(Metadata, Option<String>)> {
    // Values stay text until they are seen to be strings: a tree would take a multiple of its text.
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
