//! Types of metadata values, and their encoding.
//!
//! A value has one of 13 types. Most types follow from the [`Value`]; others, such as 8-bit integers, are recorded beside the metadata
//! under the key [`TYPES`].

use std::collections::HashMap;
use std::fmt;
use weighbridge_core::budget::Budget;
use weighbridge_core::checkpoint::{Name, Value};

/// Key of the types that do not follow from the values: a map from keys to types, such as `u8` and `[i32]`.
pub(crate) const TYPES: &str = "gguf.types";

/// Type of a single value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scalar {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Bool,
    Text,
    U64,
    I64,
    F64,
}

/// Number of the type of arrays.
pub(crate) const ARRAY: u32 = 9;

const SCALARS: [(Scalar, u32, &str); 12] = [
    (Scalar::U8, 0, "u8"),
    (Scalar::I8, 1, "i8"),
    (Scalar::U16, 2, "u16"),
    (Scalar::I16, 3, "i16"),
    (Scalar::U32, 4, "u32"),
    (Scalar::I32, 5, "i32"),
    (Scalar::F32, 6, "f32"),
    (Scalar::Bool, 7, "bool"),
    (Scalar::Text, 8, "str"),
    (Scalar::U64, 10, "u64"),
    (Scalar::I64, 11, "i64"),
    (Scalar::F64, 12, "f64"),
];

impl Scalar {
    /// Returns the type of that number.
    pub(crate) fn of_id(id: u32) -> Option<Self> {
        SCALARS.iter().find(|row| row.1 == id).map(|row| row.0)
    }

    fn id(self) -> u32 {
        SCALARS.iter().find(|row| row.0 == self).map_or(0, |row| row.1)
    }

    /// Returns the bytes of a value; `None` for text.
    pub(crate) fn size(self) -> Option<u64> {
        Some(match self {
            Self::U8 | Self::I8 | Self::Bool => 1,
            Self::U16 | Self::I16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
            Self::Text => return None,
        })
    }

    /// Returns the range of an integer type.
    fn range(self) -> Option<(i128, i128)> {
        Some(match self {
            Self::U8 => (0, u8::MAX.into()),
            Self::I8 => (i8::MIN.into(), i8::MAX.into()),
            Self::U16 => (0, u16::MAX.into()),
            Self::I16 => (i16::MIN.into(), i16::MAX.into()),
            Self::U32 => (0, u32::MAX.into()),
            Self::I32 => (i32::MIN.into(), i32::MAX.into()),
            Self::U64 => (0, u64::MAX.into()),
            Self::I64 => (i64::MIN.into(), i64::MAX.into()),
            _ => return None,
        })
    }

    /// Decodes the little-endian bytes of a number; `None` for a boolean other than 0 and 1.
    pub(crate) fn decode(self, bytes: [u8; 8]) -> Option<Value> {
        let [b0, b1, b2, b3, ..] = bytes;
        let low = [b0, b1, b2, b3];
        Some(match self {
            Self::U8 => Value::U32(b0.into()),
            Self::I8 => Value::I64(b0.cast_signed().into()),
            Self::U16 => Value::U32(u16::from_le_bytes([b0, b1]).into()),
            Self::I16 => Value::I64(i16::from_le_bytes([b0, b1]).into()),
            Self::U32 => Value::U32(u32::from_le_bytes(low)),
            Self::I32 => Value::I64(i32::from_le_bytes(low).into()),
            Self::F32 => Value::F32(u32::from_le_bytes(low)),
            Self::Bool if b0 < 2 => Value::Bool(b0 == 1),
            Self::Bool | Self::Text => return None,
            Self::U64 => Value::U64(u64::from_le_bytes(bytes)),
            Self::I64 => Value::I64(i64::from_le_bytes(bytes)),
            Self::F64 => Value::F64(u64::from_le_bytes(bytes)),
        })
    }
}

/// Type of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Type {
    One(Scalar),
    /// Array; `None` for items of unknown type, if there are none.
    Array(Option<Box<Type>>),
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(scalar) => {
                f.write_str(SCALARS.iter().find(|row| row.0 == *scalar).map_or("", |row| row.2))
            }
            Self::Array(None) => f.write_str("[]"),
            Self::Array(Some(item)) => write!(f, "[{item}]"),
        }
    }
}

impl Type {
    /// Parses the text of a type. Its length bounds the recursion.
    fn parse(text: &str) -> Option<Self> {
        if text.len() > 2 * Budget::DEPTH {
            return None;
        }
        if let Some(item) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            let item = if item.is_empty() { None } else { Some(Box::new(Self::parse(item)?)) };
            return Some(Self::Array(item));
        }
        SCALARS.iter().find(|row| row.2 == text).map(|row| Self::One(row.0))
    }

    /// Returns the type that follows from a value, if GGUF has one.
    pub(crate) fn of(value: &Value) -> Option<Self> {
        let one = |scalar| Some(Self::One(scalar));
        match value {
            Value::Bool(_) => one(Scalar::Bool),
            Value::I64(_) => one(Scalar::I64),
            Value::U32(_) => one(Scalar::U32),
            Value::U64(_) => one(Scalar::U64),
            Value::F32(_) => one(Scalar::F32),
            Value::F64(_) => one(Scalar::F64),
            Value::Text(_) => one(Scalar::Text),
            Value::Bytes(_) => Some(Self::Array(Some(Box::new(Self::One(Scalar::U8))))),
            Value::List(items) => {
                let first = Self::of(items.first()?)?;
                let is_same = |item: &Value| match (&first, item) {
                    // Strings and numbers need no allocation.
                    (Self::One(scalar), item) => scalar_of(item) == Some(*scalar),
                    (first, item) => Self::of(item).as_ref() == Some(first),
                };
                items.iter().all(is_same).then(|| Self::Array(Some(Box::new(first))))
            }
            Value::Null | Value::Map(_) => None,
        }
    }

    /// Returns true if `value` can be stored as this type without a change.
    fn fits(&self, value: &Value) -> bool {
        match (self, value) {
            (Self::One(scalar), value) => fits_scalar(*scalar, value),
            (Self::Array(Some(item)), Value::Bytes(_)) => **item == Self::One(Scalar::U8),
            (Self::Array(None), Value::List(items)) => items.is_empty(),
            (Self::Array(Some(item)), Value::List(items)) => items.iter().all(|value| item.fits(value)),
            _ => false,
        }
    }

    fn id(&self) -> u32 {
        match self {
            Self::One(scalar) => scalar.id(),
            Self::Array(_) => ARRAY,
        }
    }

    /// Appends the number of the type, and a value that [fits](Self::fits), for version 3 in little-endian byte order.
    pub(crate) fn encode(&self, value: &Value, out: &mut Vec<u8>) {
        out.extend(self.id().to_le_bytes());
        self.encode_value(value, out);
    }

    fn encode_value(&self, value: &Value, out: &mut Vec<u8>) {
        match (self, value) {
            (Self::One(scalar), value) => encode_scalar(*scalar, value, out),
            (Self::Array(item), value) => {
                out.extend(item.as_ref().map_or(0, |item| item.id()).to_le_bytes());
                match value {
                    Value::Bytes(bytes) => encode_text(bytes, out),
                    Value::List(items) => {
                        out.extend((items.len() as u64).to_le_bytes());
                        for value in items {
                            if let Some(item) = item {
                                item.encode_value(value, out);
                            }
                        }
                    }
                    _ => {}
                }
            }
        }
    }
}

fn scalar_of(value: &Value) -> Option<Scalar> {
    match Type::of(value) {
        Some(Type::One(scalar)) => Some(scalar),
        _ => None,
    }
}

fn integer(value: &Value) -> Option<i128> {
    match value {
        Value::I64(n) => Some((*n).into()),
        Value::U32(n) => Some((*n).into()),
        Value::U64(n) => Some((*n).into()),
        _ => None,
    }
}

fn fits_scalar(scalar: Scalar, value: &Value) -> bool {
    match (scalar, value) {
        (Scalar::F32, Value::F32(_))
        | (Scalar::F64, Value::F64(_))
        | (Scalar::Bool, Value::Bool(_))
        | (Scalar::Text, Value::Text(_) | Value::Bytes(_)) => true,
        (scalar, value) => match (scalar.range(), integer(value)) {
            (Some((least, most)), Some(n)) => (least..=most).contains(&n),
            _ => false,
        },
    }
}

/// Appends a length and the bytes.
pub(crate) fn encode_text(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend((bytes.len() as u64).to_le_bytes());
    out.extend_from_slice(bytes);
}

fn encode_scalar(scalar: Scalar, value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Text(text) => encode_text(text.as_bytes(), out),
        Value::Bytes(bytes) => encode_text(bytes, out),
        Value::Bool(is) => out.push(u8::from(*is)),
        Value::F32(bits) => out.extend(bits.to_le_bytes()),
        Value::F64(bits) => out.extend(bits.to_le_bytes()),
        // Two's complement: the low bytes are those of a shorter integer.
        value => {
            let bytes = integer(value).unwrap_or(0).to_le_bytes();
            let size = scalar.size().and_then(|size| usize::try_from(size).ok()).unwrap_or(8);
            out.extend_from_slice(&bytes[..size]);
        }
    }
}

/// Types of metadata that do not follow from the values.
#[derive(Default)]
pub(crate) struct StoredTypes<'a>(HashMap<&'a str, Type>);

impl<'a> StoredTypes<'a> {
    /// Reads the value of the key [`TYPES`]; invalid entries are ignored.
    pub(crate) fn of(value: Option<&'a Value>) -> Self {
        let Some(Value::Map(pairs)) = value else { return Self::default() };
        let pair = |(name, value): &'a (Name, Value)| match value {
            Value::Text(text) => Some((name.as_str()?, Type::parse(text)?)),
            _ => None,
        };
        Self(pairs.iter().filter_map(pair).collect())
    }

    /// Returns the type of a value: the stored one if it fits, else the one that follows from the value.
    pub(crate) fn get(&self, key: &str, value: &Value) -> Option<Type> {
        let stored = self.0.get(key).filter(|stored| stored.fits(value)).cloned();
        stored.or_else(|| Type::of(value))
    }
}

/// Returns true for the recorded types, as opposed to a value of the file.
pub(crate) fn is_types(key: &str, value: &Value) -> bool {
    key == TYPES && matches!(value, Value::Map(_))
}

/// Returns the value of the key [`TYPES`] for these pairs; `None` if all types follow from the values.
pub(crate) fn recorded<'a>(pairs: impl Iterator<Item = (&'a str, &'a Value, &'a Type)>) -> Option<Value> {
    let rest = pairs.filter(|(_, value, kind)| Type::of(value).as_ref() != Some(kind));
    let map: Vec<_> = rest.map(|(key, _, kind)| (Name::from(key), Value::Text(kind.to_string()))).collect();
    (!map.is_empty()).then_some(Value::Map(map))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_parsed_as_written() {
        for text in ["u8", "f64", "str", "[u8]", "[[str]]", "[[]]", "[]"] {
            assert_eq!(Type::parse(text).map(|kind| kind.to_string()).as_deref(), Some(text));
        }
        for bad in ["", "u128", "[u8", "u8]", "[x]"] {
            assert_eq!(Type::parse(bad), None, "{bad}");
        }
        assert_eq!(Type::parse(&format!("{}{}", "[".repeat(100_000), "]".repeat(100_000))), None);
    }

    #[test]
    fn a_recorded_type_applies_while_the_value_fits() {
        let map = Value::Map(vec![(Name::from("k"), Value::Text("u8".into()))]);
        let types = StoredTypes::of(Some(&map));
        assert_eq!(types.get("k", &Value::I64(255)), Some(Type::One(Scalar::U8)));
        assert_eq!(types.get("k", &Value::I64(256)), Some(Type::One(Scalar::I64)));
        assert_eq!(types.get("k", &Value::Text("x".into())), Some(Type::One(Scalar::Text)));
        assert_eq!(types.get("other", &Value::U32(1)), Some(Type::One(Scalar::U32)));
        assert_eq!(types.get("other", &Value::List(vec![Value::U32(1), Value::Bool(true)])), None);
        assert_eq!(types.get("other", &Value::List(vec![])), None);
    }
}
