//! The types of attributes beside their values: a map from the name of an attribute to the bytes of its datatype message, with
//! its extents where it has no elements.

use std::collections::HashMap;
use weighbridge_core::checkpoint::{Name, Value};
use weighbridge_hdf5::{StoredAs, Types};

/// The key of the types of the attributes that it stands among.
pub(super) const KEY: &str = "hdf5.types";

/// The types of attributes, by their names.
pub(super) type Known<'a> = HashMap<&'a str, StoredAs>;

/// The types as a value; `None` where there are none.
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

/// True for a value that [`to_value`] made, not one of an attribute.
pub(super) fn is_types(key: &str, value: &Value) -> bool {
    key == KEY && matches!(value, Value::Map(_))
}

/// The types that `value` says; what is no type is passed over.
pub(super) fn from_value(value: Option<&Value>) -> Known<'_> {
    let Some(Value::Map(pairs)) = value else { return Known::new() };
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
