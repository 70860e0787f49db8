//! Attributes of groups and datasets as values.

use super::broken::REPORTED;
use super::file::File;
use super::header::{Header, MessageType, follow};
use super::heap::Heaps;
use super::links::dense_attributes;
use super::space::Space;
use super::types::{Class, Padding, Type};
use super::values;
use crate::{Attributes, StoredAs, Types};
use weighbridge_core::checkpoint::Value;
use weighbridge_core::error::{Error, Kind, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::tensor::{DType, Endian};
use weighbridge_core::text::escape;

/// Maximum length of elements that are written without a stored type, in bytes.
const MAX_PLAIN_LEN: usize = 60_000;
/// Memory overhead of a stored type, in the list and as metadata, in bytes.
const STORED_TYPE_OVERHEAD: usize = 4 * size_of::<(String, StoredAs)>();

/// Reads the attributes of an object. Errors go to `problems`, up to [`REPORTED`] of each kind. An attribute that
/// exceeds a limit is omitted.
pub(super) fn attributes(
    file: &File,
    header: &Header,
    heaps: &mut Heaps,
    problems: &mut Vec<Error>,
) -> (Attributes, Types) {
    let (mut found, mut types, mut more) = (Attributes::new(), Types::new(), 0u64);
    let mut read = |bytes: &[u8]| attribute(file, bytes, heaps).map_err(as_unsupported);
    let mut take = |bytes: Result<&[u8]>| match bytes.and_then(&mut read) {
        Ok((name, value, stored_as)) => {
            types.extend(stored_as.map(|stored_as| (name.clone(), stored_as)));
            found.push((name, value));
        }
        // Errors are limited: each takes hundreds of bytes, a message only eight.
        Err(error) => match problems.iter().filter(|other| other.kind() == error.kind()).count() < REPORTED {
            true => problems.push(error),
            false => more += 1,
        },
    };
    for message in header.all(MessageType::Attribute) {
        match header.payload(file, message) {
            Ok(payload) => take(Ok(&payload)),
            Err(error) => take(Err(error.within("an attribute of the object"))),
        }
    }
    match dense_attributes(file, header) {
        Ok(objects) => objects.iter().for_each(|bytes| take(Ok(bytes))),
        Err(error) => take(Err(error.within("the attributes of the object"))),
    }
    if more > 0 {
        let text = format!("HDF5: {more} more attributes are unreadable");
        problems.push(Error::unsupported("hdf5-value", text));
    }
    (found, types)
}

/// Makes an exceeded limit an unsupported attribute instead of a failure of the file. A byte of the file can become a value of
/// thirty bytes, so well-formed files exceed the limit, too.
fn as_unsupported(error: Error) -> Error {
    if error.kind() != Kind::Limit {
        return error;
    }
    let hint = error.hint_text().map(|hint| format!(" ({hint})")).unwrap_or_default();
    Error::unsupported("hdf5-value", format!("{}; the attribute is omitted{hint}", error.message()))
}

/// Parses the name and value of an attribute message, and its stored type where the value does not determine it.
fn attribute(file: &File, bytes: &[u8], heaps: &mut Heaps) -> Result<(String, Value, Option<StoredAs>)> {
    let mut reader = file.reader(bytes);
    let version = reader.u8()?;
    if !(1..=3).contains(&version) {
        return Err(Error::unsupported(
            "hdf5-unsupported",
            "HDF5: the attribute message has an unsupported version",
        )
        .found(version));
    }
    // Version 1 has no flags.
    let flags = Some(reader.u8()?).filter(|_| version > 1).unwrap_or(0);
    let lens = [reader.u16()?, reader.u16()?, reader.u16()?].map(usize::from);
    if version == 3 {
        reader.skip(1)?;
    }
    let mut part = |len: usize| -> Result<&[u8]> {
        let bytes = reader.take(len)?;
        if version == 1 {
            reader.skip((len.next_multiple_of(8) - len).min(reader.left()))?;
        }
        Ok(bytes)
    };
    let (name, class, space) = (part(lens[0])?, part(lens[1])?, part(lens[2])?);
    let data = reader.take(reader.left())?;
    if flags > 3 || memchr::memchr(0, name) != lens[0].checked_sub(1) {
        let text = "HDF5: the attribute message has a wrong name length or unknown flags";
        return Err(
            Error::corrupt("hdf5-corrupt", text).found(format_args!("{} bytes, flags {flags}", lens[0]))
        );
    }
    let Ok(name) = std::str::from_utf8(Padding::Terminated.trim(name)) else {
        return Err(Error::unsupported("hdf5-name", "HDF5: an attribute name is not UTF-8"));
    };
    let mut value = || -> Result<(Value, Option<StoredAs>)> {
        file.context.list_value((name.len() + size_of::<(String, Value)>()) as u64)?;
        let shared_class;
        let datatype = match flags & 1 {
            0 => class,
            _ => {
                shared_class = follow(file, MessageType::Datatype as u16, class)?;
                &shared_class
            }
        };
        let class = Type::parse(datatype)?;
        let shared;
        let space = match flags & 2 {
            0 => space,
            _ => {
                shared = follow(file, MessageType::Dataspace as u16, space)?;
                &shared
            }
        };
        let Space { dims, is_null, .. } = Space::parse(file, space)?;
        let found = match is_null {
            true => Value::Null,
            false => value(file, &class, &dims, data, heaps)?,
        };
        if is_default_form(&found, &class, &dims, data.len()) {
            return Ok((found, None));
        }
        let dims = (found == Value::List(Vec::new())).then_some(dims);
        let taken = name.len()
            + datatype.len()
            + STORED_TYPE_OVERHEAD
            + dims.as_ref().map_or(0, |dims| 8 * dims.len());
        file.context.list_value(taken as u64)?;
        Ok((found, Some(StoredAs { datatype: datatype.to_vec(), dims })))
    };
    let within = |error: Error| error.within(format_args!("the attribute {}", escape(name)));
    let (value, stored_as) = value().map_err(within)?;
    Ok((name.to_owned(), value, stored_as))
}

/// True where the value alone determines the stored form: little-endian numbers of
/// 64 bits, booleans, text of variable length, bytes without a tag, and flat lists of these.
fn is_default_form(value: &Value, class: &Type, dims: &[u64], len: usize) -> bool {
    let list = match value {
        Value::List(list) => list.as_slice(),
        value => std::slice::from_ref(value),
    };
    let is_plain = |value: &Value| match (value, &class.class) {
        (Value::Bool(_), Class::Number(DType::Bool, _))
        | (Value::I64(_), Class::Number(DType::I64, Endian::Little))
        | (Value::U64(_), Class::Number(DType::U64, Endian::Little))
        | (Value::F64(_), Class::Number(DType::F64, Endian::Little)) => true,
        (Value::Text(text), Class::LongText) => !text.contains('\0'),
        (Value::Bytes(_), Class::Opaque(tag)) => tag.is_empty(),
        _ => false,
    };
    // An empty list is written as f64, and long values may not fit beside other attributes.
    let reals = class.class == Class::Number(DType::F64, Endian::Little) && dims == [0];
    (!list.is_empty() || reals) && len <= MAX_PLAIN_LEN && list.iter().all(is_plain)
}

/// Decodes the elements in `data`, of the type `class` and the dimensions `dims`.
fn value(file: &File, class: &Type, dims: &[u64], data: &[u8], heaps: &mut Heaps) -> Result<Value> {
    let mut dims = dims.to_vec();
    let mut element = class;
    // An array type adds dimensions.
    while let Class::Array(base, inner) = &element.class {
        dims.extend(inner.iter().map(|&n| u64::from(n)));
        element = base;
    }
    // The dimensions become nested lists.
    Limits::check("dimensions", "dimensions", dims.len() as u64, file.context.limits.dimensions)?;
    let short = || {
        Error::corrupt(
            "hdf5-corrupt",
            "HDF5: the attribute value is shorter than its type and dimensions require",
        )
    };
    let count = dims.iter().try_fold(1u64, |n, &dim| n.checked_mul(dim)).ok_or_else(short)?;
    let size = u64::from(element.size);
    let len = count.checked_mul(size).and_then(|len| usize::try_from(len).ok()).ok_or_else(short)?;
    let data = data.get(..len).ok_or_else(short)?;
    // Memory of the values; with several dimensions the flat and the nested values exist at the same time.
    let each = size_of::<Value>() as u64;
    let outer = dims.iter().take(dims.len().saturating_sub(1));
    let lists = outer.scan(count.min(1), |lists, &dim| {
        *lists = lists.saturating_mul(dim);
        Some(*lists)
    });
    let lists = lists.fold(0, u64::saturating_add);
    let values = if dims.len() > 1 { count.saturating_mul(2) } else { count };
    file.context.list_value(values.saturating_add(lists).saturating_mul(each))?;
    let flat = values.saturating_sub(count).saturating_mul(each);
    let size = element.size as usize;
    let mut values = Vec::with_capacity(data.len() / size.max(1));
    for bytes in data.chunks_exact(size.max(1)) {
        let value = match &element.class {
            Class::LongText => {
                let text = heaps.value(file, bytes)?;
                file.context.list_value(text.len() as u64)?;
                values::text(Padding::Zeros.trim(&text))
            }
            Class::Text(padding) => {
                let text = padding.trim(bytes);
                file.context.list_value(text.len() as u64)?;
                values::text(text)
            }
            Class::Opaque(_) => {
                file.context.list_value(bytes.len() as u64)?;
                Value::Bytes(bytes.to_vec())
            }
            Class::Number(dtype, endian) | Class::Enum(dtype, endian, ..) => {
                values::number(*dtype, *endian, bytes).ok_or_else(|| no_value(element))?
            }
            Class::Array(..) | Class::Other(_) => return Err(no_value(element)),
        };
        values.push(value);
    }
    let folded = fold(values, &dims);
    // The flat list is freed.
    file.context.unlist(flat);
    Ok(folded)
}

fn no_value(class: &Type) -> Error {
    Error::unsupported("hdf5-value", "HDF5: attribute values of this type are not supported")
        .found(escape(&class.words()))
}

/// Turns a flat list into nested lists, the last dimension innermost; without dimensions returns the only value.
fn fold(mut values: Vec<Value>, dims: &[u64]) -> Value {
    let Some((_, inner)) = dims.split_first() else { return values.pop().unwrap_or(Value::Null) };
    for &dim in inner.iter().rev() {
        // Without elements there is nothing to group.
        let Some(dim) = usize::try_from(dim).ok().filter(|&dim| dim > 0 && !values.is_empty()) else {
            return Value::List(Vec::new());
        };
        let mut groups = Vec::with_capacity(values.len() / dim);
        let mut rest = values.into_iter().peekable();
        while rest.peek().is_some() {
            groups.push(Value::List(rest.by_ref().take(dim).collect()));
        }
        values = groups;
    }
    Value::List(values)
}
