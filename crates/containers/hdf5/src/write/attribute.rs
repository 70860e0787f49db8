//! Attributes: encoding of a [`Value`].

use super::datatype;
use super::header::{MAX_DIMENSIONS, Space};
use crate::StoredAs;
use crate::read::{Class, Padding, Type, number};
use weighbridge_core::checkpoint::Value;
use weighbridge_core::tensor::{DType, Endian, cast};

/// The elements of an attribute.
pub(super) enum Elements<'a> {
    /// Encoded elements.
    Bytes(Vec<u8>),
    /// Texts, stored in a global heap.
    Texts(Vec<&'a [u8]>),
}

/// An encoded attribute.
pub(super) struct Attribute<'a> {
    /// Datatype message.
    pub(super) datatype: Vec<u8>,
    /// Dataspace.
    pub(super) space: Space,
    /// Elements.
    pub(super) elements: Elements<'a>,
}

impl<'a> Attribute<'a> {
    /// Encodes `value` in its default type; the error is the reason why HDF5 cannot hold it.
    pub(super) fn new(value: &'a Value) -> Result<Self, &'static str> {
        let list = match value {
            Value::List(list) => Some(list),
            _ => None,
        };
        let first = list.map_or(Some(value), |list| list.first());
        // As in numpy, an empty list has the type f64.
        let datatype = match first {
            None => datatype::float(8, 11, 52, 1023),
            Some(value) => of(value)?,
        };
        let values = list.map_or(std::slice::from_ref(value), Vec::as_slice);
        if values.iter().any(|value| first.is_some_and(|first| !alike(first, value))) {
            return Err("the elements have different types");
        }
        let texts: Vec<&str> = values.iter().filter_map(text).collect();
        if texts.iter().any(|text| text.contains('\0')) {
            return Err("the text contains a NUL character");
        }
        let elements = if texts.is_empty() {
            Elements::Bytes(values.iter().flat_map(bytes).collect())
        } else {
            Elements::Texts(texts.into_iter().map(str::as_bytes).collect())
        };
        let dims = list.map(|list| list.len() as u64);
        Ok(Self { datatype, space: Space::Simple(dims.into_iter().collect()), elements })
    }

    /// Encodes `value` in the given type; the error is the reason why that type cannot hold it.
    pub(super) fn typed(value: &'a Value, stored_as: &StoredAs) -> Result<Self, &'static str> {
        let StoredAs { datatype, dims } = stored_as;
        let element = Type::parse(datatype).map_err(|_| "the stored type is unreadable")?;
        let (dims, mut values) = match dims {
            Some(dims) => (dims.clone(), Vec::new()),
            None => (dimensions(value)?, Vec::new()),
        };
        let empty = dims.contains(&0);
        let space = match value {
            Value::Null => Space::Null,
            _ => Space::Simple(dims),
        };
        match value {
            Value::Null => {}
            Value::List(list) if empty != list.is_empty() => {
                return Err("the number of elements does not match the dimensions");
            }
            _ => flatten(value, &mut values),
        }
        let size = element.size as usize;
        if datatype.len() > MAX_LEN || values.len().checked_mul(size).is_none_or(|len| len > MAX_LEN) {
            return Err("the value is longer than 60,000 bytes");
        }
        let mut bytes = Vec::with_capacity(values.len() * size);
        let elements = match &element.class {
            Class::LongText => {
                let all = values.iter().map(|value| bytes_of(value)).collect::<Option<Vec<_>>>();
                // The length of a reference depends on the offset size of its file; files written here use 8 bytes.
                if size != REFERENCE {
                    return Err("the stored type uses another offset size");
                }
                Elements::Texts(all.ok_or("the value is not a text, but its stored type is")?)
            }
            class => {
                for value in values {
                    let element = encoded(class, size, value)
                        .ok_or("the stored type cannot represent the value exactly")?;
                    bytes.extend(element);
                }
                Elements::Bytes(bytes)
            }
        };
        Ok(Self { datatype: datatype.clone(), space, elements })
    }
}

/// Maximum length of the elements of an attribute, and of its datatype message, in bytes.
const MAX_LEN: usize = 60_000;
/// Length of a reference to a text, in bytes.
const REFERENCE: usize = 16;

/// Dimensions of nested lists; the lists of one level must have equal lengths.
fn dimensions(value: &Value) -> Result<Vec<u64>, &'static str> {
    let (mut dims, mut level) = (Vec::new(), vec![value]);
    while let Some(Value::List(first)) = level.first() {
        if dims.len() == MAX_DIMENSIONS {
            return Err("HDF5 supports at most 32 dimensions");
        }
        dims.push(first.len() as u64);
        let mut next = Vec::new();
        for value in level {
            match value {
                Value::List(list) if list.len() == first.len() => next.extend(list),
                _ => return Err("the nested lists have different lengths"),
            }
        }
        level = next;
    }
    Ok(dims)
}

/// Collects the elements of nested lists, at most as deep as [`dimensions`] allows.
fn flatten<'a>(value: &'a Value, found: &mut Vec<&'a Value>) {
    match value {
        Value::List(list) => list.iter().for_each(|value| flatten(value, found)),
        value => found.push(value),
    }
}

/// Returns the bytes of a text.
fn bytes_of(value: &Value) -> Option<&[u8]> {
    match value {
        Value::Text(text) => Some(text.as_bytes()),
        Value::Bytes(bytes) => Some(bytes),
        _ => None,
    }
}

/// Encodes one element of `size` bytes; `None` where the type cannot represent the value exactly.
fn encoded(class: &Class, size: usize, value: &Value) -> Option<Vec<u8>> {
    match class {
        Class::Number(dtype, endian) | Class::Enum(dtype, endian, ..) => {
            let mut bytes = number_bytes(*dtype, size, value)?;
            if *endian == Endian::Big {
                Endian::swap_bytes(&mut bytes, dtype.swap_unit());
            }
            (number(*dtype, *endian, &bytes).as_ref() == Some(value)).then_some(bytes)
        }
        Class::Text(padding) => {
            let mut bytes = bytes_of(value)?.to_vec();
            let fill = if *padding == Padding::Spaces { b' ' } else { 0 };
            let fits = bytes.len() <= size && padding.trim(&bytes).len() == bytes.len();
            bytes.resize(size, fill);
            fits.then_some(bytes)
        }
        Class::Opaque(_) => bytes_of(value).filter(|bytes| bytes.len() == size).map(<[u8]>::to_vec),
        Class::LongText | Class::Array(..) | Class::Other(_) => None,
    }
}

/// Encodes a number as `size` little-endian bytes of a type. The caller reads them again, so a value that does not
/// fit is found there.
fn number_bytes(dtype: DType, size: usize, value: &Value) -> Option<Vec<u8>> {
    let mut bytes = match value {
        Value::Bool(truth) => vec![u8::from(*truth)],
        Value::I64(n) => n.to_le_bytes().to_vec(),
        Value::U64(n) => n.to_le_bytes().to_vec(),
        Value::F64(bits) if dtype == DType::F64 => bits.to_le_bytes().to_vec(),
        Value::F64(bits) => {
            let mut narrow = Vec::new();
            cast(&bits.to_le_bytes(), DType::F64, dtype, &mut narrow)?;
            narrow
        }
        _ => return None,
    };
    (bytes.len() >= size).then(|| bytes.truncate(size))?;
    Some(bytes)
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
            Ok(0) => return Err("opaque elements cannot be empty"),
            Ok(size) => datatype::opaque(size),
            Err(_) => return Err("the value is longer than 4 GiB"),
        },
        Value::Null => return Err("HDF5 has no null value without a stored type"),
        Value::List(_) => return Err("nested lists need a stored type"),
        Value::Map(_) => return Err("maps are not supported"),
    })
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::Text(text) => Some(text),
        _ => None,
    }
}

/// Encodes a scalar as little-endian bytes; empty for values that are not numbers or bytes.
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
