//! What stands around the tensors, as a [`Value`] that keeps Python's types.
//!
//! Plain values are themselves: `None`, bools, integers, floats, text, bytes, lists. A dict whose
//! keys are all text is a map. What JSON-like values cannot tell apart is a map whose first key is
//! a marker:
//!
//! | marker | its value | what it is |
//! | --- | --- | --- |
//! | `@tuple` | list | a tuple |
//! | `@dict` | map, or list of `[key, value]` | a dict whose first key looks like a marker, or with keys that are no text |
//! | `@ordered` | as `@dict` | a `collections.OrderedDict` |
//! | `@set`, `@frozenset` | list | a set |
//! | `@scalar` | text: the dtype | a numpy scalar; its little-endian bytes follow under `bytes` |
//! | `@integer` | bytes | an integer beyond 64 bits: two's complement, little-endian |
//! | `@global` | text: `module name` | a class or function |
//! | `@object` | text: what it would be | something that is not kept |
//! | `@tensor` | text: which tensor | a tensor as `tuple((name, array))` |
//! | `@pair` | text: which tensor | a tensor as `(name, array)` |
//! | `@array` | text: which tensor | a tensor as an array without a name |
//! | `@lod` | text: which tensor | a tensor as `eval("data", {"data": array})` |
//! | `@metadata` | text: the key | a value that stands in the metadata |
//! | `@names` | null, or list of `key` or `[key, name]` | the table of names; null: all tensors of the root, in order |

use weighbridge_core::checkpoint::{Name, Value};

/// A tuple.
pub(super) const TUPLE: &str = "@tuple";
/// A dict that needs a marker.
pub(super) const DICT: &str = "@dict";
/// An ordered dict.
pub(super) const ORDERED: &str = "@ordered";
/// A set.
pub(super) const SET: &str = "@set";
/// A frozen set.
pub(super) const FROZEN_SET: &str = "@frozenset";
/// A numpy scalar.
pub(super) const SCALAR: &str = "@scalar";
/// The bytes of a numpy scalar.
pub(super) const SCALAR_BYTES: &str = "bytes";
/// A large integer.
pub(super) const INTEGER: &str = "@integer";
/// A class or function.
pub(super) const GLOBAL: &str = "@global";
/// What is not kept.
pub(super) const OBJECT: &str = "@object";
/// A value of the metadata.
pub(super) const METADATA: &str = "@metadata";
/// The table of names.
pub(super) const NAMES: &str = "@names";

/// How a tensor stands in the pickle.
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

    /// The marker.
    pub(super) fn marker(self) -> &'static str {
        match self {
            Self::Tensor => "@tensor",
            Self::Pair => "@pair",
            Self::Array => "@array",
            Self::Lod => "@lod",
        }
    }
}

/// The pairs of a dict.
#[derive(Debug, Clone, Copy)]
pub(super) enum Pairs<'a> {
    /// With keys that are text.
    Named(&'a [(Name, Value)]),
    /// With any keys: lists of a key and a value each.
    Listed(&'a [Value]),
}

/// What a value means.
#[derive(Debug, Clone, Copy)]
pub(super) enum View<'a> {
    /// Itself.
    Plain(&'a Value),
    /// A list.
    List(&'a [Value]),
    /// A tuple.
    Tuple(&'a [Value]),
    /// A dict.
    Dict {
        /// What is in it.
        pairs: Pairs<'a>,
        /// True for an ordered dict.
        ordered: bool,
    },
    /// The tensor of that displayed text.
    Tensor(Form, &'a str),
    /// The value of that key of the metadata.
    Metadata(&'a str),
    /// The table of names.
    Names(Option<&'a [Value]>),
    /// A numpy scalar: dtype and bytes.
    Scalar(&'a str, &'a [u8]),
    /// An integer beyond 64 bits: two's complement, little-endian.
    Integer(&'a [u8]),
    /// A class or function: `module name`.
    Global(&'a str),
    /// What cannot be written.
    Other(&'a str),
}

/// A value under a marker.
pub(super) fn marked(marker: &str, value: Value) -> Value {
    Value::Map(vec![(Name::from(marker), value)])
}

/// The tensor of that displayed text.
pub(super) fn tensor(form: Form, text: String) -> Value {
    marked(form.marker(), Value::Text(text))
}

/// A dict of these pairs, whose keys may be anything.
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

/// A dict with keys that are text.
pub(super) fn named_dict(pairs: Vec<(Name, Value)>, ordered: bool) -> Value {
    if ordered {
        return marked(ORDERED, Value::Map(pairs));
    }
    let looks_marked = pairs.first().is_some_and(|(key, _)| key.as_bytes().starts_with(b"@"));
    if looks_marked { marked(DICT, Value::Map(pairs)) } else { Value::Map(pairs) }
}

/// What `value` means.
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
            _ => View::Other("a numpy scalar without its bytes"),
        },
        (OBJECT, Value::Text(what)) => View::Other(what),
        (SET, _) => View::Other("a set"),
        (FROZEN_SET, _) => View::Other("a frozen set"),
        (INTEGER, Value::Bytes(bytes)) => View::Integer(bytes),
        (_, Value::Text(text)) => match Form::ALL.into_iter().find(|form| form.marker() == marker) {
            Some(form) => View::Tensor(form, text),
            None => View::Other("something of an unknown kind"),
        },
        _ => View::Other("something of an unknown kind"),
    }
}

/// True where no tensor stands in `value`. Bounded by the depth of the value.
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
