//! Conversion between values of the library and of Python.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyFloat, PyList, PyString, PyTuple};
use serde_json::Value as Json;
use weighbridge::Error;
use weighbridge::checkpoint::{Metadata, Name, TensorPath, Value};

use crate::errors::raise;

/// Converts JSON to the Python objects that `json.loads` returns.
pub(crate) fn json<'py>(py: Python<'py>, value: &Json) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Json::Null => py.None().into_bound(py),
        Json::Bool(truth) => truth.into_pyobject(py)?.to_owned().into_any(),
        Json::Number(number) => match (number.as_u64(), number.as_i64()) {
            (Some(n), _) => n.into_pyobject(py)?.into_any(),
            (None, Some(n)) => n.into_pyobject(py)?.into_any(),
            (None, None) => PyFloat::new(py, number.as_f64().unwrap_or(f64::NAN)).into_any(),
        },
        Json::String(text) => PyString::new(py, text).into_any(),
        Json::Array(values) => {
            let list = PyList::empty(py);
            for value in values {
                list.append(json(py, value)?)?;
            }
            list.into_any()
        }
        Json::Object(pairs) => {
            let dict = PyDict::new(py);
            for (key, value) in pairs {
                dict.set_item(key, json(py, value)?)?;
            }
            dict.into_any()
        }
    })
}

/// Converts a typed value: numbers, text, bytes, lists and dicts. The last of duplicate keys wins.
pub(crate) fn value<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::Bool(truth) => truth.into_pyobject(py)?.to_owned().into_any(),
        Value::I64(n) => n.into_pyobject(py)?.into_any(),
        Value::U32(n) => n.into_pyobject(py)?.into_any(),
        Value::U64(n) => n.into_pyobject(py)?.into_any(),
        Value::F32(bits) => PyFloat::new(py, f32::from_bits(*bits).into()).into_any(),
        Value::F64(bits) => PyFloat::new(py, f64::from_bits(*bits)).into_any(),
        Value::Text(text) => PyString::new(py, text).into_any(),
        Value::Bytes(bytes) => PyBytes::new(py, bytes).into_any(),
        Value::List(values) => {
            let list = PyList::empty(py);
            for one in values {
                list.append(self::value(py, one)?)?;
            }
            list.into_any()
        }
        Value::Map(pairs) => {
            let dict = PyDict::new(py);
            for (key, one) in pairs {
                dict.set_item(key.to_text(), self::value(py, one)?)?;
            }
            dict.into_any()
        }
        // `Null`, and kinds of values added later.
        _ => py.None().into_bound(py),
    })
}

/// Converts pairs of text and typed values to a dict, in order.
pub(crate) fn dict<'a, 'py>(
    py: Python<'py>,
    pairs: impl Iterator<Item = (&'a str, &'a Value)>,
) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (key, one) in pairs {
        dict.set_item(key, value(py, one)?)?;
    }
    Ok(dict)
}

/// Converts a Python object to a typed value: the inverse of [`value`].
pub(crate) fn to_value(object: &Bound<'_, PyAny>) -> PyResult<Value> {
    // Safe for Rust's stack; Python's own recursion limit is of the same order.
    to_value_within(object, 200)
}

fn to_value_within(object: &Bound<'_, PyAny>, depth: u32) -> PyResult<Value> {
    let refused = |code, text: &str| {
        let kind = object.get_type().name().map_or_else(|_| "?".to_owned(), |name| name.to_string());
        Err(raise(object.py(), Error::usage(code, text).found(kind)))
    };
    let Some(depth) = depth.checked_sub(1) else {
        return refused("metadata-depth", "metadata are nested too deeply");
    };
    if object.is_none() {
        return Ok(Value::Null);
    }
    if let Ok(truth) = object.cast::<pyo3::types::PyBool>() {
        return Ok(Value::Bool(truth.is_true()));
    }
    if object.is_instance_of::<pyo3::types::PyInt>() {
        return match (object.extract::<i64>(), object.extract::<u64>()) {
            (Ok(n), _) => Ok(Value::I64(n)),
            (Err(_), Ok(n)) => Ok(Value::U64(n)),
            _ => refused("metadata-value", "metadata integer exceeds 64 bits"),
        };
    }
    if let Ok(number) = object.cast::<PyFloat>() {
        return Ok(Value::F64(number.extract::<f64>()?.to_bits()));
    }
    if object.is_instance_of::<PyString>() {
        return Ok(Value::Text(text(object, "metadata text")?));
    }
    if let Ok(bytes) = object.cast::<PyBytes>() {
        return Ok(Value::Bytes(bytes.as_bytes().to_vec()));
    }
    if object.is_instance_of::<PyList>() || object.is_instance_of::<PyTuple>() {
        let values = object.try_iter()?.map(|one| to_value_within(&one?, depth));
        return Ok(Value::List(values.collect::<PyResult<_>>()?));
    }
    if let Ok(dict) = object.cast::<PyDict>() {
        let pairs = dict.iter().map(|(key, one)| Ok((name(&key)?, to_value_within(&one, depth)?)));
        return Ok(Value::Map(pairs.collect::<PyResult<_>>()?));
    }
    refused(
        "metadata-value",
        "unsupported type of metadata value; use None, bool, int, float, str, bytes, or lists and dicts of these",
    )
}

/// Converts a dict to metadata.
pub(crate) fn metadata(dict: &Bound<'_, PyDict>) -> PyResult<Metadata> {
    dict.iter().map(|(key, one)| Ok((text(&key, "a metadata key")?, to_value(&one)?))).collect()
}

/// Part of a path: `str`, or `bytes` if it is not UTF-8.
pub(crate) fn part<'py>(py: Python<'py>, name: &Name) -> Bound<'py, PyAny> {
    match name.as_str() {
        Some(text) => PyString::new(py, text).into_any(),
        None => PyBytes::new(py, name.as_bytes()).into_any(),
    }
}

/// Parts of a path as a tuple.
pub(crate) fn path<'py>(py: Python<'py>, path: &TensorPath) -> PyResult<Bound<'py, PyTuple>> {
    PyTuple::new(py, path.parts().iter().map(|name| part(py, name)))
}

/// Extracts a `str` that UTF-8 can encode; `what` names it in errors.
pub(crate) fn text(object: &Bound<'_, PyAny>, what: &str) -> PyResult<String> {
    if !object.is_instance_of::<PyString>() {
        return Err(wrong_type(object, &format!("{what} must be a str")));
    }
    object.extract::<String>().map_err(|_| {
        let error = Error::usage("not-utf8", format!("{what} cannot be encoded as UTF-8"));
        let found = object.repr().map_or_else(|_| "?".to_owned(), |repr| repr.to_string());
        let hint = "pass the name as a tuple of its parts, with bytes for a part that is not UTF-8";
        raise(object.py(), error.found(found).hint(hint))
    })
}

/// Error for an object of an unsupported type.
fn wrong_type(object: &Bound<'_, PyAny>, text: &str) -> PyErr {
    let kind = object.get_type().name().map_or_else(|_| "?".to_owned(), |name| name.to_string());
    raise(object.py(), Error::usage("wrong-type", text).found(kind))
}

/// Converts `str` or `bytes` to a name.
pub(crate) fn name(object: &Bound<'_, PyAny>) -> PyResult<Name> {
    match object.cast::<PyBytes>() {
        Ok(bytes) => Ok(Name::new(bytes.as_bytes())),
        Err(_) => Ok(Name::from(text(object, "a part of a name")?.as_str())),
    }
}

/// Converts a tuple or list of parts, or a dotted name, to a path.
pub(crate) fn to_path(object: &Bound<'_, PyAny>) -> PyResult<TensorPath> {
    if object.is_instance_of::<PyString>() {
        return Ok(TensorPath::parse(&text(object, "a name")?));
    }
    if !(object.is_instance_of::<PyTuple>() || object.is_instance_of::<PyList>()) {
        return Err(wrong_type(object, "a name must be a str, or a tuple of its parts"));
    }
    let parts = object.try_iter()?.map(|one| name(&one?)).collect::<PyResult<Vec<_>>>()?;
    Ok(TensorPath::new(parts))
}
