//! Serialization of values as JSON without a tree: a tree takes three times the memory of a list of numbers, and ten times that
//! of pairs.

use super::metadata::float_json;
use super::{Attributes, Name, Value};
use serde::ser::{Serialize, SerializeMap, Serializer};

/// Serializes as [`Value::to_json`], but keeps duplicate keys of a map.
impl Serialize for Value {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => out.serialize_unit(),
            Self::Bool(b) => b.serialize(out),
            Self::I64(n) => n.serialize(out),
            Self::U32(n) => n.serialize(out),
            Self::U64(n) => n.serialize(out),
            Self::F32(bits) => float_json(f32::from_bits(*bits)).serialize(out),
            Self::F64(bits) => crate::text::json_number(f64::from_bits(*bits)).serialize(out),
            Self::Text(text) => text.serialize(out),
            Self::Bytes(bytes) => one(out, "hex", &Name::hex(bytes)),
            Self::List(values) => out.collect_seq(values),
            Self::Map(pairs) => out.collect_map(pairs.iter().map(|(key, value)| (key.to_text(), value))),
        }
    }
}

/// JSON that keeps type and bits: `{"f32": "3f800000"}`.
pub(super) struct Tagged<'a>(pub(super) &'a Value);

impl Serialize for Tagged<'_> {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Null => one(out, "null", &true),
            Value::Bool(b) => one(out, "bool", b),
            Value::I64(n) => one(out, "i64", n),
            Value::U32(n) => one(out, "u32", n),
            Value::U64(n) => one(out, "u64", n),
            Value::F32(bits) => one(out, "f32", &format!("{bits:08x}")),
            Value::F64(bits) => one(out, "f64", &format!("{bits:016x}")),
            Value::Bytes(bytes) => one(out, "hex", &Name::hex(bytes)),
            Value::Text(text) => one(out, "text", text),
            // Long lists of numbers, such as the offsets of a LoD, are tagged once.
            Value::List(values) if all(values, |v| matches!(v, Value::U64(_))) => one(out, "u64s", values),
            Value::List(values) if all(values, |v| matches!(v, Value::I64(_))) => one(out, "i64s", values),
            Value::List(values) => one(out, "list", &List(values)),
            Value::Map(pairs) => one(out, "map", &Pairs(pairs)),
        }
    }
}

/// Attributes of a tensor, each tagged.
pub(super) struct TaggedAttributes<'a>(pub(super) &'a Attributes);

impl Serialize for TaggedAttributes<'_> {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_map(self.0.iter().map(|(key, value)| (key, Tagged(value))))
    }
}

struct List<'a>(&'a [Value]);

impl Serialize for List<'_> {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_seq(self.0.iter().map(Tagged))
    }
}

struct Pairs<'a>(&'a [(Name, Value)]);

impl Serialize for Pairs<'_> {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_seq(self.0.iter().map(|(key, value)| (key.to_json(), Tagged(value))))
    }
}

fn all(values: &[Value], is: impl Fn(&Value) -> bool) -> bool {
    !values.is_empty() && values.iter().all(is)
}

fn one<S: Serializer>(out: S, key: &str, value: &(impl Serialize + ?Sized)) -> Result<S::Ok, S::Error> {
    let mut map = out.serialize_map(Some(1))?;
    map.serialize_entry(key, value)?;
    map.end()
}
