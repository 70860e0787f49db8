//! Attributes: what a [`Value`] becomes.

use super::datatype;
use crate::checkpoint::Value;

/// The elements of an attribute.
pub(super) enum Elements<'a> {
    /// These bytes.
    Bytes(Vec<u8>),
    /// Texts, which stand in a global heap.
    Texts(Vec<&'a str>),
}

/// An attribute that is ready to be written.
pub(super) struct Attribute<'a> {
    /// Its datatype message.
    pub(super) datatype: Vec<u8>,
    /// The number of elements in a list; `None` for a scalar.
    pub(super) dims: Option<u64>,
    /// Its elements.
    pub(super) elements: Elements<'a>,
}

impl<'a> Attribute<'a> {
    /// The attribute that says `value`; else in words why there is none.
    pub(super) fn new(value: &'a Value) -> Result<Self, &'static str> {
        let list = match value {
            Value::List(list) => Some(list),
            _ => None,
        };
        let first = list.map_or(Some(value), |list| list.first());
        // As numpy has it, an empty list is one of reals.
        let datatype = match first {
            None => datatype::float(8, 11, 52, 1023),
            Some(value) => of(value)?,
        };
        let values = list.map_or(std::slice::from_ref(value), Vec::as_slice);
        if values.iter().any(|value| first.is_some_and(|first| !alike(first, value))) {
            return Err("its elements have different types");
        }
        let texts: Vec<&str> = values.iter().filter_map(text).collect();
        if texts.iter().any(|text| text.contains('\0')) {
            return Err("it holds the character NUL, at which HDF5 ends a text");
        }
        let elements = if texts.is_empty() {
            Elements::Bytes(values.iter().flat_map(bytes).collect())
        } else {
            Elements::Texts(texts)
        };
        Ok(Self { datatype, dims: list.map(|list| list.len() as u64), elements })
    }
}

fn alike(a: &Value, b: &Value) -> bool {
    match (a, b) {
        // Opaque elements have one length.
        (Value::Bytes(a), Value::Bytes(b)) => a.len() == b.len(),
        _ => std::mem::discriminant(a) == std::mem::discriminant(b),
    }
}

/// The datatype of a scalar.
fn of(value: &Value) -> Result<Vec<u8>, &'static str> {
    Ok(match value {
        Value::Bool(_) => datatype::boolean(),
        Value::I64(_) => datatype::integer(8, true),
        Value::U32(_) => datatype::integer(4, false),
        Value::U64(_) => datatype::integer(8, false),
        Value::F32(_) => datatype::float(4, 8, 23, 127),
        Value::F64(_) => datatype::float(8, 11, 52, 1023),
        Value::Text(_) => datatype::text(),
        Value::Bytes(bytes) => match u32::try_from(bytes.len()) {
            Ok(0) => return Err("HDF5 has no opaque element of no bytes"),
            Ok(size) => datatype::opaque(size),
            Err(_) => return Err("it is longer than 4 GiB"),
        },
        Value::Null => return Err("HDF5 has no value that is nothing"),
        Value::List(_) => return Err("HDF5 has no list of lists here"),
        Value::Map(_) => return Err("HDF5 has no named values within an attribute"),
    })
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::Text(text) => Some(text),
        _ => None,
    }
}

/// A scalar as little-endian bytes; nothing for what is no number.
fn bytes(value: &Value) -> Vec<u8> {
    match value {
        Value::Bool(truth) => vec![u8::from(*truth)],
        Value::I64(n) => n.to_le_bytes().to_vec(),
        Value::U32(n) | Value::F32(n) => n.to_le_bytes().to_vec(),
        Value::U64(n) | Value::F64(n) => n.to_le_bytes().to_vec(),
        Value::Bytes(bytes) => bytes.clone(),
        _ => Vec::new(),
    }
}
