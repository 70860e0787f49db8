//! Attributes: what a [`Value`] becomes.

use super::datatype;
use super::header::{MOST_DIMENSIONS, Space};
use crate::StoredAs;
use crate::read::{Class, Padding, Type, number};
use weighbridge_core::checkpoint::Value;
use weighbridge_core::tensor::{DType, Endian, cast};

/// The elements of an attribute.
pub(super) enum Elements<'a> {
    /// These bytes.
    Bytes(Vec<u8>),
    /// Texts, which stand in a global heap.
    Texts(Vec<&'a [u8]>),
}

/// An attribute that is ready to be written.
pub(super) struct Attribute<'a> {
    /// Its datatype message.
    pub(super) datatype: Vec<u8>,
    /// How many elements it has.
    pub(super) space: Space,
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
            Elements::Texts(texts.into_iter().map(str::as_bytes).collect())
        };
        let dims = list.map(|list| list.len() as u64);
        Ok(Self { datatype, space: Space::Extents(dims.into_iter().collect()), elements })
    }

    /// The attribute that says `value` in that type; else in words why there is none.
    pub(super) fn typed(value: &'a Value, stored_as: &StoredAs) -> Result<Self, &'static str> {
        let StoredAs { datatype, dims } = stored_as;
        let element = Type::parse(datatype).map_err(|_| "its type cannot be read")?;
        let (dims, mut values) = match dims {
            Some(dims) => (dims.clone(), Vec::new()),
            None => (extents(value)?, Vec::new()),
        };
        let empty = dims.contains(&0);
        let space = match value {
            Value::Null => Space::Null,
            _ => Space::Extents(dims),
        };
        match value {
            Value::Null => {}
            Value::List(list) if empty != list.is_empty() => {
                return Err("it is not as long as its extents say");
            }
            _ => flat(value, &mut values),
        }
        let size = element.size as usize;
        if datatype.len() > LONGEST || values.len().checked_mul(size).is_none_or(|len| len > LONGEST) {
            return Err("it is longer than 60,000 bytes, which is about what an object has room for");
        }
        let mut bytes = Vec::with_capacity(values.len() * size);
        let elements = match &element.class {
            Class::LongText => {
                let all = values.iter().map(|value| bytes_of(value)).collect::<Option<Vec<_>>>();
                // References of another length are those of files with other offsets.
                if size != REFERENCE {
                    return Err("its file has other offsets");
                }
                Elements::Texts(all.ok_or("it is no text any more")?)
            }
            class => {
                for value in values {
                    let element = encoded(class, size, value).ok_or("its type does not hold it as it is")?;
                    bytes.extend(element);
                }
                Elements::Bytes(bytes)
            }
        };
        Ok(Self { datatype: datatype.clone(), space, elements })
    }
}

/// The longest elements of an attribute, and its longest type, in bytes.
const LONGEST: usize = 60_000;
/// Bytes of a reference to a text.
const REFERENCE: usize = 16;

/// The extents of lists within lists, which are of one length each.
fn extents(value: &Value) -> Result<Vec<u64>, &'static str> {
    let (mut dims, mut level) = (Vec::new(), vec![value]);
    while let Some(Value::List(first)) = level.first() {
        if dims.len() == MOST_DIMENSIONS {
            return Err("HDF5 has at most 32 dimensions");
        }
        dims.push(first.len() as u64);
        let mut next = Vec::new();
        for value in level {
            match value {
                Value::List(list) if list.len() == first.len() => next.extend(list),
                _ => return Err("its lists have different lengths"),
            }
        }
        level = next;
    }
    Ok(dims)
}

/// The elements of lists within lists: no more levels than [`extents`] allowed.
fn flat<'a>(value: &'a Value, found: &mut Vec<&'a Value>) {
    match value {
        Value::List(list) => list.iter().for_each(|value| flat(value, found)),
        value => found.push(value),
    }
}

/// The bytes of a text.
fn bytes_of(value: &Value) -> Option<&[u8]> {
    match value {
        Value::Text(text) => Some(text.as_bytes()),
        Value::Bytes(bytes) => Some(bytes),
        _ => None,
    }
}

/// One element of `size` bytes; `None` where the type does not give this value back.
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

/// A number as little-endian bytes of a type: those that are cut off say the sign alone, which is seen when it is read.
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
