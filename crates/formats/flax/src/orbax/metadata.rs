//! Description of the tree in `_METADATA`, and the files beside it.

use serde::Deserialize;
use serde_json::Value as Json;
use serde_json::value::RawValue;
use weighbridge_core::budget::Budget;
use weighbridge_core::checkpoint::{Name, TensorPath, Value};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::json::place_of;
use weighbridge_core::limits::Limits;
use weighbridge_io::source::{SourceRef, read_vec};

/// Name of the description of the tree.
pub(super) const METADATA: &str = "_METADATA";
/// Name of the description of a step.
pub(super) const STEP_METADATA: &str = "_CHECKPOINT_METADATA";
/// Name of the file of texts.
pub(super) const STRINGS: &str = "_strings.json";
/// Memory of an entry of the tree, in bytes.
const ENTRY: u64 = 512;
/// Maximum bytes of metadata of the user.
const MAX_CUSTOM: usize = 2 << 20;

/// Leaf of the tree.
#[derive(Debug)]
pub(super) struct Leaf {
    pub(super) path: TensorPath,
    /// Keys joined by dots: the name in the store.
    pub(super) name: String,
    /// Type of the value: `jax.Array`, `np.ndarray`, `scalar`, `string`, or an empty container.
    pub(super) kind: String,
}

impl Leaf {
    /// Returns the value of an empty container or `None`.
    pub(super) fn empty(&self) -> Option<Value> {
        match self.kind.as_str() {
            "None" => Some(Value::Null),
            "Dict" | "NamedTuple" | "Mapping" => Some(Value::Map(Vec::new())),
            "List" | "Tuple" => Some(Value::List(Vec::new())),
            _ => None,
        }
    }
}

/// Description of the tree.
#[derive(Debug, Default)]
pub(super) struct Tree {
    pub(super) leaves: Vec<Leaf>,
    /// Metadata of the user.
    pub(super) custom: Option<Value>,
}

#[derive(Deserialize)]
struct RawTree {
    #[serde(default)]
    tree_metadata: Pairs<RawLeaf>,
    #[serde(default)]
    custom_metadata: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
struct RawLeaf {
    key_metadata: Vec<RawKey>,
    value_metadata: RawValueMetadata,
}

#[derive(Deserialize)]
struct RawKey {
    key: Json,
}

#[derive(Deserialize)]
struct RawValueMetadata {
    #[serde(default)]
    value_type: String,
}

/// Pairs of an object, in order; the keys repeat the key metadata.
struct Pairs<T>(Vec<T>);

impl<T> Default for Pairs<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Pairs<T> {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        struct Visitor<T>(std::marker::PhantomData<T>);
        impl<'de, T: Deserialize<'de>> serde::de::Visitor<'de> for Visitor<T> {
            type Value = Pairs<T>;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object of leaves")
            }
            fn visit_map<A: serde::de::MapAccess<'de>>(
                self,
                mut map: A,
            ) -> std::result::Result<Pairs<T>, A::Error> {
                let mut pairs = Vec::new();
                while map.next_key::<serde::de::IgnoredAny>()?.is_some() {
                    pairs.push(map.next_value()?);
                }
                Ok(Pairs(pairs))
            }
        }
        from.deserialize_map(Visitor(std::marker::PhantomData))
    }
}

/// Reads the text of a JSON file.
fn text(source: &SourceRef, limits: &Limits, budget: &Budget) -> Result<String> {
    Limits::check_part("bytes of a JSON file", "header_bytes", source.len(), limits.header_bytes, 1)?;
    budget.take_work(source.len())?;
    let bytes = read_vec(&**source, 0, source.len())?;
    String::from_utf8(bytes).map_err(|e| {
        Error::corrupt("not-utf8", "the file is not UTF-8").at(e.utf8_error().valid_up_to() as u64)
    })
}

/// Parses a JSON file.
fn parse<'t, T: Deserialize<'t>>(text: &'t str) -> Result<T> {
    serde_json::from_str(text).map_err(|e| {
        Error::corrupt("bad-json", format!("the file is not the JSON of Orbax: {e}")).at(place_of(text, &e))
    })
}

/// Reads `_METADATA`.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`]: `bad-json`, `not-utf8`, with the offset; [`weighbridge_core::Kind::Limit`].
pub(super) fn read(source: &SourceRef, limits: &Limits, budget: &Budget) -> Result<Tree> {
    let named = |error: Error| error.in_file(source.label());
    let text = text(source, limits, budget).map_err(named)?;
    let raw: RawTree = parse(&text).map_err(named)?;
    let mut tree = Tree::default();
    for leaf in raw.tree_metadata.0 {
        let keys: Vec<String> = leaf.key_metadata.into_iter().map(|key| plain(&key.key)).collect();
        let bytes: u64 = keys.iter().map(|key| key.len() as u64 + 32).sum();
        budget.take_memory(ENTRY + 2 * bytes).map_err(named)?;
        let count = tree.leaves.len() as u64 + 1;
        Limits::check("tensors", "tensors", count, limits.tensors).map_err(named)?;
        Limits::check("parts in a name", "path_parts", keys.len() as u64, limits.path_parts)
            .map_err(named)?;
        let path: TensorPath = keys.iter().map(|key| Name::from(key.as_str())).collect();
        tree.leaves.push(Leaf { path, name: keys.join("."), kind: leaf.value_metadata.value_type });
    }
    if let Some(custom) = raw.custom_metadata.filter(|custom| custom.get().len() <= MAX_CUSTOM) {
        let json: Json = parse(custom.get()).map_err(named)?;
        tree.custom = (!json.is_null()).then(|| value(json));
    }
    Ok(tree)
}

/// Reads the texts of `_strings.json`, by name in the store.
///
/// # Errors
/// As [`read`].
pub(super) fn strings(
    source: &SourceRef,
    limits: &Limits,
    budget: &Budget,
) -> Result<std::collections::HashMap<String, String>> {
    let named = |error: Error| error.in_file(source.label());
    let text = text(source, limits, budget).map_err(named)?;
    budget.take_memory(2 * source.len()).map_err(named)?;
    parse(&text).map_err(named)
}

/// Returns the text of a key: a string, or the number of an item of a sequence.
fn plain(key: &Json) -> String {
    match key {
        Json::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Converts JSON to metadata.
fn value(json: Json) -> Value {
    match json {
        Json::Null => Value::Null,
        Json::Bool(value) => Value::Bool(value),
        Json::String(text) => Value::Text(text),
        Json::Array(list) => Value::List(list.into_iter().map(value).collect()),
        Json::Object(map) => {
            Value::Map(map.into_iter().map(|(key, json)| (Name::from(key.as_str()), value(json))).collect())
        }
        Json::Number(number) => match (number.as_u64(), number.as_i64()) {
            (Some(number), _) => Value::U64(number),
            (None, Some(number)) => Value::I64(number),
            (None, None) => Value::F64(number.as_f64().unwrap_or(f64::NAN).to_bits()),
        },
    }
}
