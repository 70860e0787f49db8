//! Stored types of attributes as metadata: a map from the name of an attribute to the bytes of its datatype message, with
//! the dimensions of an attribute without elements.

use std::collections::HashMap;
use weighbridge_core::checkpoint::{Name, Value};
use weighbridge_hdf5::{StoredAs, Types};

/// Key of the stored types, among the attributes that they describe.
pub(super) const KEY: &str = "hdf5.types";

/// Stored types by name of the attribute.
pub(super) type StoredTypes<'a> = HashMap<&'a str, StoredAs>;

/// Encodes stored types as a value; `None` where there are none.
pub(super) fn to_value(types: Types) -> Option<Value> {
    let pair = |(name, StoredAs { datatype, dims }): (String, StoredAs)| {
        let datatype = Value::Bytes(datatype);
        let value = match dims {
            None => datatype,
            Some(dims) => {
                Value::List(vec![datatype, Value::List(dims.into_iter().map(Value::U64).collect())])
            }
        };
        (Name::from(name.as_str()), value)
    };
    let pairs: Vec<_> = types.into_iter().map(pair).collect();
    (!pairs.is_empty()).then_some(Value::Map(pairs))
}

/// True for a value of [`to_value`], as opposed to an attribute.
pub(super) fn is_types(key: &str, value: &Value) -> bool {
    key == KEY && matches!(value, Value::Map(_))
}

/// Decodes stored types; invalid entries are ignored.
pub(super) fn from_value(value: Option<&Value>) -> StoredTypes<'_> {
    let Some(Value::Map(pairs)) = value else { return StoredTypes::new() };
    pairs.iter().filter_map(|(name, value)| Some((name.as_str()?, one(value)?))).collect()
}

fn one(value: &Value) -> Option<StoredAs> {
    let (datatype, dims) = match value {
        Value::Bytes(datatype) => (datatype, None),
        Value::List(parts) => match parts.as_slice() {
            [Value::Bytes(datatype), Value::List(dims)] => {
                let dim = |dim: &Value| match dim {
                    Value::U64(dim) => Some(*dim),
                    _ => None,
                };
                (datatype, Some(dims.iter().map(dim).collect::<Option<Vec<_>>>()?))
            }
            _ => return None,
        },
        _ => return None,
    };
    Some(StoredAs { datatype: datatype.clone(), dims })
}
