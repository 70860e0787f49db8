//! Structure around the tensors, as a [`Value`] that keeps Python's types.
//!
//! Plain values are stored directly: `None`, bools, integers, floats, text, bytes, lists. A dict with text keys
//! only is a map. Other Python types are maps whose first key is a marker:
//!
//! | marker | value | meaning |
//! | --- | --- | --- |
//! | `@tuple` | list | a tuple |
//! | `@dict` | map, or list of `[key, value]` | a dict whose first key resembles a marker, or with keys other than text |
//! | `@ordered` | as `@dict` | a `collections.OrderedDict` |
//! | `@set`, `@frozenset` | list | a set |
//! | `@scalar` | text: the dtype | a numpy scalar; its little-endian bytes follow under `bytes` |
//! | `@integer` | bytes | an integer beyond 64 bits: two's complement, little-endian |
//! | `@global` | text: `module name` | a class or function |
//! | `@object` | text: description | an omitted object |
//! | `@tensor` | text: which tensor | a tensor as `tuple((name, array))` |
//! | `@pair` | text: which tensor | a tensor as `(name, array)` |
//! | `@array` | text: which tensor | a tensor as an array without a name |
//! | `@lod` | text: which tensor | a tensor as `eval("data", {"data": array})` |
//! | `@metadata` | text: the key | a value stored in the metadata |
//! | `@names` | null, or list of `key` or `[key, name]` | the table of names; null: all tensors of the root, in order |

use weighbridge_core::checkpoint::{Name, Value};

/// Marker of a tuple.
pub(super) const TUPLE: &str = "@tuple";
/// Marker of a dict.
pub(super) const DICT: &str = "@dict";
/// Marker of an ordered dict.
pub(super) const ORDERED: &str = "@ordered";
/// Marker of a set.
pub(super) const SET: &str = "@set";
/// Marker of a frozen set.
pub(super) const FROZEN_SET: &str = "@frozenset";
/// Marker of a numpy scalar.
pub(super) const SCALAR: &str = "@scalar";
/// Key of the bytes of a numpy scalar.
pub(super) const SCALAR_BYTES: &str = "bytes";
/// Marker of a large integer.
pub(super) const INTEGER: &str = "@integer";
/// Marker of a class or function.
pub(super) const GLOBAL: &str = "@global";
/// Marker of an omitted object.
pub(super) const OBJECT: &str = "@object";
/// Marker of a value stored in the metadata.
pub(super) const METADATA: &str = "@metadata";
/// Marker of the table of names.
pub(super) const NAMES: &str = "@names";

/// Form of a tensor in the pickle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// `tuple((name, array))`.
    Tensor,
    /// `(name, array)`.
    Pair,
    /// An array without a name.
    Array,
    /// `eval("data", {"data": array})`.
    Lod,
}

impl Form {
    const ALL: [Self; 4] = [Self::Tensor, Self::Pair, Self::Array, Self::Lod];

    /// Returns the marker.
    pub(super) fn marker(self) -> &'static str {
        match self {
            Self::Tensor => "@tensor",
            Self::Pair => "@pair",
            Self::Array => "@array",
            Self::Lod => "@lod",
        }
    }
}

/// Pairs of a dict.
#[derive(Debug, Clone, Copy)]
pub(super) enum Pairs<'a> {
    /// Pairs with text keys.
    Named(&'a [(Name, Value)]),
    /// Pairs with arbitrary keys: lists of a key and a value each.
    Listed(&'a [Value]),
}

/// Meaning of a value.
#[derive(Debug, Clone, Copy)]
pub(super) enum View<'a> {
    /// Plain value.
    Plain(&'a Value),
    /// List.
    List(&'a [Value]),
    /// Tuple.
    Tuple(&'a [Value]),
    /// Dict.
    Dict {
        /// Items of the dict.
        pairs: Pairs<'a>,
        /// True for an ordered dict.
        ordered: bool,
    },
    /// Tensor with a displayed name.
    Tensor(Form, &'a str),
    /// Metadata value with a key.
    Metadata(&'a str),
    /// Table of names.
    Names(Option<&'a [Value]>),
    /// Numpy scalar: dtype and bytes.
    Scalar(&'a str, &'a [u8]),
    /// Integer beyond 64 bits: two's complement, little-endian.
    Integer(&'a [u8]),
    /// Class or function: `module name`.
    Global(&'a str),
    /// Unsupported object.
    Other(&'a str),
}

/// Returns a value with a marker.
pub(super) fn marked(marker: &str, value: Value) -> Value {
    Value::Map(vec![(Name::from(marker), value)])
}

/// Returns the marker of a tensor with a displayed name.
pub(super) fn tensor(form: Form, text: String) -> Value {
    marked(form.marker(), Value::Text(text))
}

/// Returns a dict of pairs with arbitrary keys.
pub(super) fn dict(pairs: Vec<(Value, Value)>, ordered: bool) -> Value {
    let marker = if ordered { ORDERED } else { DICT };
    if pairs.iter().all(|(key, _)| matches!(key, Value::Text(_))) {
        let named = pairs.into_iter().map(|(key, value)| match key {
            Value::Text(key) => (Name::from(key.as_str()), value),
            _ => (Name::default(), value),
        });
        return named_dict(named.collect(), ordered);
    }
    let listed = pairs.into_iter().map(|(key, value)| Value::List(vec![key, value])).collect();
    marked(marker, Value::List(listed))
}

/// Returns a dict of pairs with text keys.
pub(super) fn named_dict(pairs: Vec<(Name, Value)>, ordered: bool) -> Value {
    if ordered {
        return marked(ORDERED, Value::Map(pairs));
    }
    let looks_marked = pairs.first().is_some_and(|(key, _)| key.as_bytes().starts_with(b"@"));
    if looks_marked { marked(DICT, Value::Map(pairs)) } else { Value::Map(pairs) }
}

/// Interprets a value.
pub(super) fn view(value: &Value) -> View<'_> {
    let pairs = match value {
        Value::List(items) => return View::List(items),
        Value::Map(pairs) => pairs,
        plain => return View::Plain(plain),
    };
    let whole = View::Dict { pairs: Pairs::Named(pairs), ordered: false };
    let Some((key, inner)) = pairs.first() else { return whole };
    let Some(marker) = key.as_str().filter(|key| key.starts_with('@')) else { return whole };
    let ordered = marker == ORDERED;
    match (marker, inner) {
        (TUPLE, Value::List(items)) => View::Tuple(items),
        (DICT | ORDERED, Value::Map(pairs)) => View::Dict { pairs: Pairs::Named(pairs), ordered },
        (DICT | ORDERED, Value::List(pairs)) => View::Dict { pairs: Pairs::Listed(pairs), ordered },
        (METADATA, Value::Text(key)) => View::Metadata(key),
        (NAMES, Value::Null) => View::Names(None),
        (NAMES, Value::List(names)) => View::Names(Some(names)),
        (GLOBAL, Value::Text(name)) => View::Global(name),
        (SCALAR, Value::Text(dtype)) => match pairs.get(1) {
            Some((_, Value::Bytes(bytes))) => View::Scalar(dtype, bytes),
            _ => View::Other("a numpy scalar without bytes"),
        },
        (OBJECT, Value::Text(what)) => View::Other(what),
        (SET, _) => View::Other("a set"),
        (FROZEN_SET, _) => View::Other("a frozen set"),
        (INTEGER, Value::Bytes(bytes)) => View::Integer(bytes),
        (_, Value::Text(text)) => match Form::ALL.into_iter().find(|form| form.marker() == marker) {
            Some(form) => View::Tensor(form, text),
            None => View::Other("an object of an unknown kind"),
        },
        _ => View::Other("an object of an unknown kind"),
    }
}

/// True if `value` contains no tensors. The recursion is bounded by the depth of the value.
pub(super) fn is_free_of_tensors(value: &Value) -> bool {
    match view(value) {
        View::Tensor(..) | View::Names(_) => false,
        View::List(items) | View::Tuple(items) => items.iter().all(is_free_of_tensors),
        View::Dict { pairs: Pairs::Named(pairs), .. } => {
            pairs.iter().all(|(_, value)| is_free_of_tensors(value))
        }
        View::Dict { pairs: Pairs::Listed(pairs), .. } => pairs.iter().all(is_free_of_tensors),
        _ => true,
    }
}
