//! Renaming of entity types in tables, counts and names, the parameters of a type, and the
//! configuration, which defines the meaning of edges.

use super::detect::CONFIG_JSON;
use super::edges::{CONFIG, COUNTS};
use super::layout::{FileName, is_type_name};
use super::text::json::{self, Json};
use std::collections::BTreeSet;
use std::sync::Arc;
use weighbridge_core::checkpoint::{Checkpoint, Name, TensorPath, Value};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_io::source::{MemorySource, SourceRef, read_vec};

/// Parses pairs of old and new names: `OLD=NEW,OLD=NEW`.
///
/// # Errors
/// [`weighbridge_core::Kind::Usage`], `bad-setting`, for any other text.
pub(super) fn parse(text: &str) -> Result<Vec<(String, String)>> {
    let bad = || {
        Error::usage("bad-setting", "invalid list of renamed entity types")
            .expected("OLD=NEW,OLD=NEW, with names without `.` and `/`")
            .found(text)
    };
    let pair = |part: &str| {
        let (old, new) = part.split_once('=').ok_or_else(bad)?;
        let fits = !old.is_empty() && is_type_name(new);
        fits.then(|| (old.to_owned(), new.to_owned())).ok_or_else(bad)
    };
    text.split(',').map(pair).collect()
}

/// Returns the checkpoint, edges or entities with the type `old` renamed to `new`.
///
/// # Errors
/// [`weighbridge_core::Kind::Usage`]: `no-such-type` without a type `old`, `type-exists` if there is a type
/// `new`; and errors of reading the configuration of the folder.
pub(super) fn rename_type(checkpoint: &Checkpoint, old: &str, new: &str) -> Result<Checkpoint> {
    let known = types(checkpoint);
    if !known.contains(old) {
        return Err(Error::usage("no-such-type", "unknown entity type")
            .in_file(&checkpoint.label)
            .expected(known.into_iter().collect::<Vec<_>>().join(", "))
            .found(old));
    }
    if known.contains(new) {
        return Err(Error::usage("type-exists", "an entity type with the new name exists already")
            .in_file(&checkpoint.label)
            .found(new));
    }
    let mut made = checkpoint.clone();
    for tensor in &mut made.tensors {
        let parts = tensor.path.parts();
        let is_of_type = matches!(parts.first().and_then(Name::as_str), Some("embeddings" | "entities"))
            && parts.get(1).and_then(Name::as_str) == Some(old);
        if !is_of_type {
            continue;
        }
        let mut parts = parts.to_vec();
        parts[1] = Name::from(new);
        if parts.len() == 3
            && let Some(key) = tensor.attributes.get_mut("state_dict_key")
        {
            *key = Value::Text(format!("global_embs.emb_{new}"));
        }
        tensor.path = TensorPath::new(parts);
    }
    for key in ["partitions", COUNTS] {
        if let Some(Value::Map(mut pairs)) = made.metadata.get(key).cloned() {
            rename_key(&mut pairs, old, new);
            made.metadata.set(key, Value::Map(pairs));
        }
    }
    if let Some(Value::Map(mut pairs)) = made.metadata.get("optimizer").cloned() {
        for (name, of) in &mut pairs {
            if let (Some("embeddings"), Value::Map(tables)) = (name.as_str(), of) {
                rename_key(tables, old, new);
            }
        }
        made.metadata.set("optimizer", Value::Map(pairs));
    }
    if let Some(Value::Map(mut pairs)) = made.metadata.get("attributes").cloned() {
        for (name, of) in &mut pairs {
            if let (Some(CONFIG_JSON), Value::Text(text)) = (name.as_str(), of) {
                *text = in_config(text, old, new)?;
            }
        }
        made.metadata.set("attributes", Value::Map(pairs));
    }
    if let Some(Value::Text(text)) = made.metadata.get(CONFIG).cloned() {
        made.metadata.set(CONFIG, Value::Text(in_config(&text, old, new)?));
    }
    let file = FileName::Config.to_string();
    for (_, source) in made.companions.iter_mut().filter(|(name, _)| *name == file) {
        let limits = Limits::default();
        Limits::check_part("bytes of a configuration", "header_bytes", source.len(), limits.header_bytes, 1)?;
        let bytes = read_vec(&**source, 0, source.len())?;
        let renamed = in_config(&String::from_utf8_lossy(&bytes), old, new)?;
        *source = Arc::new(MemorySource::new(source.label(), renamed.into_bytes())) as SourceRef;
    }
    Ok(made)
}

/// Names of all entity types of a checkpoint.
fn types(checkpoint: &Checkpoint) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for tensor in &checkpoint.tensors {
        if let [first, entity, ..] = tensor.path.parts()
            && matches!(first.as_str(), Some("embeddings" | "entities"))
        {
            all.extend(entity.as_str().map(str::to_owned));
        }
    }
    for key in ["partitions", COUNTS] {
        if let Some(Value::Map(pairs)) = checkpoint.metadata.get(key) {
            all.extend(pairs.iter().filter_map(|(name, _)| name.as_str()).map(str::to_owned));
        }
    }
    let config = super::check::config_of(checkpoint);
    all.extend(config.into_iter().flat_map(|config| config.entities).map(|(name, _)| name));
    all
}

fn rename_key(pairs: &mut [(Name, Value)], old: &str, new: &str) {
    for (name, _) in pairs.iter_mut().filter(|(name, _)| name.as_str() == Some(old)) {
        *name = Name::from(new);
    }
}

/// Text of a configuration with a type renamed: as a key of `entities`, and as a side of
/// relations. Everything else stays, including unknown keys.
fn in_config(text: &str, old: &str, new: &str) -> Result<String> {
    let mut config = json::parse(text)?;
    let Json::Object(keys) = &mut config else { return Ok(text.to_owned()) };
    for (key, value) in keys {
        match (key.as_str(), value) {
            ("entities", Json::Object(types)) => {
                types.iter_mut().filter(|(name, _)| name == old).for_each(|(name, _)| new.clone_into(name));
            }
            ("relations", Json::List(relations)) => relations.iter_mut().for_each(|relation| {
                let Json::Object(sides) = relation else { return };
                for (side, entity) in sides {
                    if let ("lhs" | "rhs", Json::Text(entity)) = (side.as_str(), entity)
                        && entity == old
                    {
                        new.clone_into(entity);
                    }
                }
            }),
            _ => {}
        }
    }
    Ok(json::write(&config))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renaming_keeps_the_rest_of_the_configuration() {
        let text = concat!(
            "{\n    \"entities\": {\n        \"user\": {\n            \"num_partitions\": 1\n        }\n    },\n",
            "    \"relations\": [\n        {\n            \"name\": \"user\",\n            \"lhs\": \"user\",\n",
            "            \"rhs\": \"item\"\n        }\n    ],\n    \"own\": \"user\"\n}"
        );
        let renamed = in_config(text, "user", "person").unwrap();
        let expected = text
            .replacen("\"user\": {", "\"person\": {", 1)
            .replace("\"lhs\": \"user\"", "\"lhs\": \"person\"");
        assert_eq!(renamed, expected);
    }

    #[test]
    fn parses_pairs_of_names() {
        let pairs = parse("a=b,c=d=e").unwrap();
        assert_eq!(pairs, [("a".to_owned(), "b".to_owned()), ("c".to_owned(), "d=e".to_owned())]);
        for bad in ["", "a", "=b", "a=", "a=b.c", "a=b,"] {
            assert_eq!(parse(bad).unwrap_err().code().as_str(), "bad-setting", "{bad}");
        }
    }
}
