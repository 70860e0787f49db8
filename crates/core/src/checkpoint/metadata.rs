//! Metadata of a file: ordered keys with typed values.
use super::name::Name;
use serde_json::{Value as Json, json};
use std::collections::HashMap;
use std::sync::Arc;

/// Typed value. Floats are kept as bits to preserve NaN payloads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// Boolean.
    Bool(bool),
    /// Explicit null: `None` in Python.
    Null,
    /// Signed integer.
    I64(i64),
    /// Unsigned integer of up to 32 bits.
    U32(u32),
    /// Unsigned integer.
    U64(u64),
    /// Bits of a binary32.
    F32(u32),
    /// Bits of a binary64.
    F64(u64),
    /// Text.
    Text(String),
    /// Bytes that are not text.
    Bytes(Vec<u8>),
    /// Sequence.
    List(Vec<Value>),
    /// Named values in the order of the file; names may repeat and need not be UTF-8.
    Map(Vec<(Name, Value)>),
}

impl Value {
    /// Returns plain JSON. A float is the shortest decimal with the same bits; NaN and infinities are strings. A name that is not
    /// UTF-8 contains `\xNN`.
    pub fn to_json(&self) -> Json {
        match self {
            Self::Null => Json::Null,
            Self::Bool(b) => json!(b),
            Self::I64(n) => json!(n),
            Self::U32(n) => json!(n),
            Self::U64(n) => json!(n),
            Self::F32(bits) => float_json(f32::from_bits(*bits)),
            Self::F64(bits) => crate::text::json_number(f64::from_bits(*bits)),
            Self::Text(text) => json!(text),
            Self::Bytes(bytes) => json!({ "hex": Name::hex(bytes) }),
            Self::List(values) => values.iter().map(Self::to_json).collect(),
            Self::Map(pairs) => pairs
                .iter()
                .map(|(k, v)| (k.to_text(), v.to_json()))
                .collect::<serde_json::Map<_, _>>()
                .into(),
        }
    }

    /// Inverse of [`Tagged`](super::tagged::Tagged). The depth is bounded by that of the parser.
    pub(super) fn from_tagged(json: &Json) -> Option<Self> {
        let object = json.as_object()?;
        let (tag, value) = object.iter().next()?;
        if object.len() != 1 {
            return None;
        }
        Some(match tag.as_str() {
            "null" => Self::Null,
            "bool" => Self::Bool(value.as_bool()?),
            "i64" => Self::I64(value.as_i64()?),
            "u32" => Self::U32(u32::try_from(value.as_u64()?).ok()?),
            "u64" => Self::U64(value.as_u64()?),
            "f32" => Self::F32(u32::from_str_radix(value.as_str()?, 16).ok()?),
            "f64" => Self::F64(u64::from_str_radix(value.as_str()?, 16).ok()?),
            "hex" => Self::Bytes(Name::unhex(value.as_str()?)?),
            "text" => Self::Text(value.as_str()?.to_owned()),
            "list" => Self::List(value.as_array()?.iter().map(Self::from_tagged).collect::<Option<_>>()?),
            "u64s" => numbers(value, |n| n.as_u64().map(Self::U64))?,
            "i64s" => numbers(value, |n| n.as_i64().map(Self::I64))?,
            "map" => {
                let pair = |pair: &Json| {
                    let [name, value] = pair.as_array()?.as_slice() else { return None };
                    Some((Name::from_json(name)?, Self::from_tagged(value)?))
                };
                Self::Map(value.as_array()?.iter().map(pair).collect::<Option<_>>()?)
            }
            _ => return None,
        })
    }
}

fn numbers(json: &Json, number: impl Fn(&Json) -> Option<Value>) -> Option<Value> {
    json.as_array()?.iter().map(number).collect::<Option<_>>().map(Value::List)
}

/// Returns the shortest decimal of an `f32` as a JSON number; a string for NaN and infinities.
pub(super) fn float_json(x: f32) -> Json {
    if x.is_finite() {
        // Shortest decimal of the f32, not of the f64 it is widened to.
        x.to_string().parse::<f64>().map_or(Json::Null, |wide| json!(wide))
    } else {
        crate::text::json_number(x.into())
    }
}

/// Ordered map of keys to values. Keys are unique.
#[derive(Debug, Clone, Default)]
pub struct Metadata {
    pairs: Vec<(Arc<str>, Value)>,
    /// Index of each key: a file may have very many.
    places: HashMap<Arc<str>, usize>,
}

/// Compares keys, values and order.
impl PartialEq for Metadata {
    fn eq(&self, other: &Self) -> bool {
        self.pairs == other.pairs
    }
}

impl Eq for Metadata {}

impl Metadata {
    /// Returns true if there are no keys.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }
    /// Sets `key`: an existing key keeps its position, a new one is appended.
    pub fn set(&mut self, key: impl Into<String>, value: Value) {
        let key: String = key.into();
        match self.places.get(key.as_str()).and_then(|&place| self.pairs.get_mut(place)) {
            Some((_, old)) => *old = value,
            None => {
                let key: Arc<str> = key.into();
                self.places.insert(key.clone(), self.pairs.len());
                self.pairs.push((key, value));
            }
        }
    }
    /// Removes `key` and returns its value; the others keep their order.
    pub fn remove(&mut self, key: &str) -> Option<Value> {
        let removed = self.places.remove(key)?;
        self.places.values_mut().filter(|place| **place > removed).for_each(|place| *place -= 1);
        Some(self.pairs.remove(removed).1)
    }
    /// Removes all pairs for which `wanted` is true and returns them; both parts keep their order.
    pub(super) fn take(&mut self, wanted: impl Fn(&str, &Value) -> bool) -> Self {
        let all = std::mem::take(self).pairs.into_iter();
        let (taken, kept): (Vec<_>, Vec<_>) = all.partition(|(key, value)| wanted(key, value));
        let whole = |pairs: Vec<(Arc<str>, Value)>| {
            let places = pairs.iter().enumerate().map(|(place, (key, _))| (key.clone(), place)).collect();
            Self { pairs, places }
        };
        *self = whole(kept);
        whole(taken)
    }
    /// Returns the value of `key`.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.places.get(key).and_then(|&place| self.pairs.get(place)).map(|(_, value)| value)
    }
    /// Returns all pairs, in order, by value.
    pub(super) fn into_pairs(self) -> impl Iterator<Item = (Arc<str>, Value)> {
        self.pairs.into_iter()
    }
    /// Returns all pairs, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.pairs.iter().map(|(k, v)| (&**k, v))
    }
    /// Returns a JSON object of plain values; see [`Value::to_json`].
    pub fn to_json(&self) -> Json {
        self.iter().map(|(k, v)| (k.to_owned(), v.to_json())).collect::<serde_json::Map<_, _>>().into()
    }
}

impl FromIterator<(String, Value)> for Metadata {
    /// Collects pairs in order. A repeated key keeps its first position and its last value.
    fn from_iter<I: IntoIterator<Item = (String, Value)>>(pairs: I) -> Self {
        let mut metadata = Self::default();
        pairs.into_iter().for_each(|(key, value)| metadata.set(key, value));
        metadata
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tagged_json_keeps_type_and_bits() {
        let value = Value::Map(vec![
            (Name::new(*b"\xff"), Value::F32(0x7fc0_0001)),
            (
                Name::from("list"),
                Value::List(vec![Value::U32(1), Value::Text("x".into()), Value::Bool(true)]),
            ),
            (Name::from("list"), Value::U64(u64::MAX)),
            (Name::from("null"), Value::Null),
            (Name::from("less"), Value::I64(i64::MIN)),
            (Name::from("wide"), Value::F64(0xfff8_0000_0000_0001)),
            (Name::from("bytes"), Value::Bytes(vec![0, 255])),
            (
                Name::from("offsets"),
                Value::List(vec![Value::List(vec![Value::U64(0), Value::U64(u64::MAX)])]),
            ),
            (Name::from("rows"), Value::List(vec![Value::I64(-1), Value::I64(7)])),
            (Name::from("none"), Value::List(Vec::new())),
        ]);
        assert_eq!(Value::from_tagged(&json!(crate::checkpoint::tagged::Tagged(&value))), Some(value));
        assert_eq!(Value::from_tagged(&json!({"f32": 1})), None);
        assert_eq!(Value::from_tagged(&json!({"u32": 1u64 << 40})), None);
    }

    #[test]
    fn keys_are_unique_and_keep_their_order() {
        let mut metadata = Metadata::default();
        for (key, n) in [("b", 1), ("a", 2), ("c", 3), ("b", 4), ("d", 5)] {
            metadata.set(key, Value::U64(n));
        }
        assert_eq!(metadata.remove("a"), Some(Value::U64(2)));
        assert_eq!((metadata.remove("a"), metadata.get("a")), (None, None));
        let mut rest = metadata.clone();
        let taken = rest.take(|key, _| key != "c");
        let keys = |metadata: &Metadata| metadata.iter().map(|(key, _)| key.to_owned()).collect::<Vec<_>>();
        assert_eq!((keys(&taken), keys(&rest)), (vec!["b".to_owned(), "d".to_owned()], vec!["c".to_owned()]));
        assert_eq!((taken.get("d"), rest.get("c")), (Some(&Value::U64(5)), Some(&Value::U64(3))));
        metadata.set("d", Value::U64(6));
        metadata.set("a", Value::U64(7));
        let wanted = [("b", 4), ("c", 3), ("d", 6), ("a", 7)];
        for (key, n) in wanted {
            assert_eq!(metadata.get(key), Some(&Value::U64(n)));
        }
        assert_eq!(metadata, wanted.into_iter().map(|(key, n)| (key.to_owned(), Value::U64(n))).collect());
        let other = [("c", 3), ("b", 4), ("d", 6), ("a", 7)];
        assert_ne!(metadata, other.into_iter().map(|(key, n)| (key.to_owned(), Value::U64(n))).collect());
    }

    #[test]
    fn plain_json_has_short_floats() {
        assert_eq!(Value::F32(0x3f66_6666).to_json().to_string(), "0.9");
        assert_eq!(Value::F32(0x7fc0_0001).to_json(), json!("NaN"));
    }
}
