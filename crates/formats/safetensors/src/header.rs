//! Header parser: JSON read key by key, so that duplicate keys are detected.

use super::{DTYPE_NAMES, METADATA};
use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::collections::HashSet;
use std::fmt;
use weighbridge_core::checkpoint::{Note, escape_text};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::json::{place_of, syntax_error};
use weighbridge_core::limits::Limits;
use weighbridge_core::tensor::{DType, Shape};

/// Maximum length of a quoted name, in characters: it may be as long as the header.
const MAX_QUOTED_LEN: usize = 200;

/// Parsed header, in its own order. The offsets are not checked yet.
#[derive(Debug, Default)]
pub(super) struct Header {
    /// Tensors, with unique names.
    pub(super) tensors: Vec<Row>,
    /// Pairs of `__metadata__`, with unique keys.
    pub(super) metadata: Vec<(String, String)>,
    /// Notes about ignored content.
    pub(super) notes: Vec<Note>,
}

/// Header entry of one tensor.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) dtype: DType,
    pub(super) shape: Shape,
    /// Offset of the first byte, relative to the end of the header.
    pub(super) begin: u64,
    /// Offset behind the last byte.
    pub(super) end: u64,
}

/// Parses the header in `bytes`, which begin at offset `at` of the file.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`]: `not-utf8`, `bad-json`, `bad-header` for JSON with another structure,
/// `duplicate-key`, `missing-field`; [`weighbridge_core::Kind::Unsupported`]: `unknown-dtype`; and
/// [`weighbridge_core::Kind::Limit`].
pub(super) fn parse(bytes: &[u8], at: u64, limits: &Limits) -> Result<Header> {
    if bytes.first() != Some(&b'{') {
        return Err(Error::corrupt("bad-header", "the header does not begin with `{`").at(at));
    }
    let text = std::str::from_utf8(bytes)
        .map_err(|e| Error::corrupt("not-utf8", "the header is not UTF-8").at(at + e.valid_up_to() as u64))?;
    let mut state = State { limits, header: Header::default(), failure: None, tensor: None, extra: None };
    let mut json = serde_json::Deserializer::from_str(text);
    let result = Top(&mut state).deserialize(&mut json).and_then(|()| json.end());
    let State { mut header, failure, tensor, extra, .. } = state;
    if let Err(error) = result {
        let place = at + place_of(text, &error);
        let error = failure.unwrap_or_else(|| syntax_error(&error, "safetensors header")).at(place);
        return Err(match tensor {
            Some(name) => error.on_tensor(escape_text(&name)),
            None => error,
        });
    }
    if let Some((count, first)) = extra {
        let text = format!("{count} unknown header fields ignored, first {first}");
        header.notes.push(Note::omission("unknown-field", text));
    }
    Ok(header)
}

/// Parses the entry of a single tensor.
///
/// # Errors
/// As [`parse`].
pub(super) fn entry(name: String, json: &str, limits: &Limits) -> Result<Row> {
    Limits::check("bytes in a name", "name_bytes", name.len() as u64, limits.name_bytes)?;
    let parts = name.bytes().filter(|&b| b == b'.').count() as u64 + 1;
    Limits::check("parts in a name", "path_parts", parts, limits.path_parts)?;
    let mut state = State { limits, header: Header::default(), failure: None, tensor: None, extra: None };
    let read = Info(&mut state, &name).deserialize(&mut serde_json::Deserializer::from_str(json));
    let Fields { dtype, shape, begin, end } = read.map_err(|error| {
        state.failure.take().unwrap_or_else(|| syntax_error(&error, "safetensors header"))
    })?;
    Ok(Row { name, dtype, shape, begin, end })
}

/// Parses the value of `__metadata__`.
///
/// # Errors
/// As [`parse`].
pub(super) fn metadata(json: &str, limits: &Limits) -> Result<Vec<(String, String)>> {
    let mut state = State { limits, header: Header::default(), failure: None, tensor: None, extra: None };
    let read = Texts(&mut state).deserialize(&mut serde_json::Deserializer::from_str(json));
    read.map_err(|error| state.failure.take().unwrap_or_else(|| syntax_error(&error, "safetensors header")))?;
    Ok(state.header.metadata)
}

/// State of the visitors. The JSON parser returns only its own errors, so the error of the visitors is kept in
/// `failure`.
struct State<'l> {
    limits: &'l Limits,
    header: Header,
    failure: Option<Error>,
    /// Tensor of the failure.
    tensor: Option<String>,
    /// Number of unknown fields, and the first one.
    extra: Option<(u64, String)>,
}

impl State<'_> {
    fn refuse<E: de::Error>(&mut self, error: Error) -> E {
        self.failure = Some(error);
        E::custom("refused")
    }

    fn check<E: de::Error>(
        &mut self,
        what: &str,
        field: &'static str,
        claim: u64,
        limit: u64,
    ) -> Result<(), E> {
        Limits::check(what, field, claim, limit).map_err(|e| self.refuse(e))
    }

    fn duplicate<E: de::Error>(&mut self, what: &str, key: &str) -> E {
        self.refuse(
            Error::corrupt("duplicate-key", format!("duplicate {what} in the header"))
                .found(escape_text(key))
                .hint(
                    "readers differ in the value that they use; write the file again without the duplicate",
                ),
        )
    }
}

/// Visitor of the whole header.
struct Top<'s, 'l>(&'s mut State<'l>);

impl<'de> DeserializeSeed<'de> for Top<'_, '_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Top<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self(state) = self;
        let mut names: HashSet<String> = HashSet::new();
        while let Some(name) = map.next_key::<String>()? {
            let limits = state.limits;
            state.check("bytes in a name", "name_bytes", name.len() as u64, limits.name_bytes)?;
            if !names.insert(name.clone()) {
                let error = state.duplicate("tensor name", &name);
                state.tensor = (name != METADATA).then_some(name);
                return Err(error);
            }
            if name == METADATA {
                map.next_value_seed(Texts(state))?;
                continue;
            }
            let parts = name.bytes().filter(|&b| b == b'.').count() as u64 + 1;
            state.check("parts in a name", "path_parts", parts, limits.path_parts)?;
            let count = state.header.tensors.len() as u64 + 1;
            state.check("tensors", "tensors", count, limits.tensors)?;
            match map.next_value_seed(Info(state, &name)) {
                Ok(info) => {
                    let Fields { dtype, shape, begin, end } = info;
                    state.header.tensors.push(Row { name, dtype, shape, begin, end });
                }
                Err(error) => {
                    state.tensor = Some(name);
                    return Err(error);
                }
            }
        }
        Ok(())
    }
}

/// Visitor of `__metadata__`: strings by key. As in the safetensors library, null means none.
struct Texts<'s, 'l>(&'s mut State<'l>);

impl<'de> DeserializeSeed<'de> for Texts<'_, '_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Texts<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of strings as __metadata__")
    }

    fn visit_unit<E: de::Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self(state) = self;
        let mut keys: HashSet<String> = HashSet::new();
        while let Some(key) = map.next_key::<String>()? {
            if !keys.insert(key.clone()) {
                return Err(state.duplicate("key of __metadata__", &key));
            }
            let value = map.next_value::<String>()?;
            state.header.metadata.push((key, value));
        }
        Ok(())
    }
}

/// Fields of a tensor.
struct Fields {
    dtype: DType,
    shape: Shape,
    begin: u64,
    end: u64,
}

/// Visitor of the entry of a tensor.
struct Info<'s, 'l>(&'s mut State<'l>, &'s str);

impl<'de> DeserializeSeed<'de> for Info<'_, '_> {
    type Value = Fields;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Fields, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Info<'_, '_> {
    type Value = Fields;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of dtype, shape and data_offsets")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
        let Self(state, name) = self;
        let dimensions = state.limits.dimensions;
        let (mut dtype, mut shape, mut offsets) = (None, None, None);
        while let Some(field) = map.next_key_seed(FieldName)? {
            let is_duplicate = match &field {
                Field::Dtype => dtype.replace(map.next_value_seed(Type(state))?).is_some(),
                Field::Shape => shape.replace(map.next_value_seed(Sizes(state, dimensions))?).is_some(),
                Field::Offsets => {
                    offsets.replace(map.next_value_seed(Sizes(state, dimensions.max(2)))?).is_some()
                }
                Field::Other(key) => {
                    map.next_value::<IgnoredAny>()?;
                    let first = || (0, format!("{} of {}", escape_text(key), escape_text(name)));
                    state.extra.get_or_insert_with(first).0 += 1;
                    false
                }
            };
            if is_duplicate {
                return Err(state.duplicate("field of the tensor", field.as_str()));
            }
        }
        let missing = |field: &str| {
            Error::corrupt("missing-field", format!("missing field {field} in the header entry"))
        };
        let Some(dtype) = dtype else { return Err(state.refuse(missing("dtype"))) };
        let Some(shape) = shape else { return Err(state.refuse(missing("shape"))) };
        let Some(offsets) = offsets else { return Err(state.refuse(missing("data_offsets"))) };
        match offsets[..] {
            [begin, end] => Ok(Fields { dtype, shape: Shape::new(shape), begin, end }),
            _ => Err(state.refuse(
                Error::corrupt("bad-header", "data_offsets is not a pair of numbers")
                    .expected("[begin, end]")
                    .found(format_args!("{} numbers", offsets.len())),
            )),
        }
    }
}

/// A field of a tensor.
enum Field {
    Dtype,
    Shape,
    Offsets,
    Other(String),
}

impl Field {
    fn as_str(&self) -> &str {
        match self {
            Self::Dtype => "dtype",
            Self::Shape => "shape",
            Self::Offsets => "data_offsets",
            Self::Other(name) => name,
        }
    }
}

struct FieldName;

impl<'de> DeserializeSeed<'de> for FieldName {
    type Value = Field;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Field, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for FieldName {
    type Value = Field;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a field")
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<Field, E> {
        Ok(match name {
            "dtype" => Field::Dtype,
            "shape" => Field::Shape,
            "data_offsets" => Field::Offsets,
            other => Field::Other(other.to_owned()),
        })
    }
}

/// Visitor of a dtype.
struct Type<'s, 'l>(&'s mut State<'l>);

impl<'de> DeserializeSeed<'de> for Type<'_, '_> {
    type Value = DType;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<DType, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Type<'_, '_> {
    type Value = DType;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a dtype")
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<DType, E> {
        if let Some(&(dtype, _)) = DTYPE_NAMES.iter().find(|(_, known)| *known == name) {
            return Ok(dtype);
        }
        let shown: String = escape_text(name).chars().take(MAX_QUOTED_LEN).collect();
        let error = Error::unsupported("unknown-dtype", format!("unknown dtype {shown}"))
            .expected(format_args!("one of {}", DTYPE_NAMES.map(|(_, known)| known).join(" ")))
            .found(shown);
        let upper = name.to_ascii_uppercase();
        Err(self.0.refuse(if DTYPE_NAMES.iter().any(|(_, known)| *known == upper) {
            error.hint("dtype names are uppercase in safetensors")
        } else {
            error
        }))
    }
}

/// Visitor of a list of sizes or offsets, with its maximum length.
struct Sizes<'s, 'l>(&'s mut State<'l>, u64);

impl<'de> DeserializeSeed<'de> for Sizes<'_, '_> {
    type Value = Vec<u64>;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Vec<u64>, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Sizes<'_, '_> {
    type Value = Vec<u64>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of whole numbers from 0 to 2^64 - 1")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<u64>, A::Error> {
        let Self(state, most) = self;
        let mut sizes = Vec::new();
        while let Some(size) = list.next_element::<u64>()? {
            state.check("dimensions of a tensor", "dimensions", sizes.len() as u64 + 1, most)?;
            sizes.push(size);
        }
        Ok(sizes)
    }
}
