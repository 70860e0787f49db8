//! The index: JSON, read key by key, so that a duplicate key is seen.

use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value as Json;
use serde_json::value::RawValue;
use std::collections::{HashMap, HashSet};
use std::fmt;
use weighbridge_core::checkpoint::{Name, Note, Value, escape_text};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::json::{place_of, syntax_error};
use weighbridge_core::limits::Limits;
use weighbridge_io::source::{SourceRef, read_vec};

impl ShardIndex {
    /// The key of the index's metadata that gives the bytes of all tensors.
    pub const TOTAL_SIZE: &'static str = "total_size";
}
/// The key of the names of files.
const WEIGHT_MAP: &str = "weight_map";
/// The key of all else.
const METADATA: &str = "metadata";
/// Bytes that are looked through at once.
const STEP: u64 = 64 << 10;
/// The longest metadata that is no text, in bytes of JSON: understood, it takes a multiple of that.
const MOST_METADATA: usize = 2 << 20;

/// An index of shards, in its own order.
#[derive(Debug, Default)]
pub struct ShardIndex {
    /// The names of files, each once.
    pub files: Vec<String>,
    /// The names of tensors, each once, with the place of its file in `files`.
    pub tensors: Vec<(String, usize)>,
    /// The bytes of all tensors, as the index has them: a number in every file that a framework wrote.
    pub total_size: Option<Json>,
    /// What else it says.
    pub metadata: Vec<(String, Value)>,
    /// What is odd.
    pub notes: Vec<Note>,
}

impl ShardIndex {
    /// True where a source is an index of shards by its beginning `head`, and by further keys where the
    /// beginning does not tell.
    pub fn is_index(head: &[u8], source: &SourceRef) -> bool {
        let Some((b'{', rest)) = head.split_first() else { return false };
        let rest = rest.trim_ascii_start();
        let begins = |key: &str| {
            let rest = rest.strip_prefix(b"\"").and_then(|rest| rest.strip_prefix(key.as_bytes()));
            rest.is_some_and(|rest| rest.starts_with(b"\""))
        };
        let has_files = || mentions(source, &format!("\"{WEIGHT_MAP}\"")).unwrap_or(false);
        begins(WEIGHT_MAP) || (begins(METADATA) && has_files())
    }

    /// As [`ShardIndex::is_index`], for a source of which nothing is known yet.
    pub fn is_index_file(source: &SourceRef) -> Result<bool> {
        let head = read_vec(&**source, 0, source.len().min(STEP))?;
        Ok(ShardIndex::is_index(&head, source))
    }

    /// True where an index names files with one of these endings.
    pub fn names_files(source: &SourceRef, endings: &[&str]) -> bool {
        endings.iter().any(|ending| mentions(source, &format!("{ending}\"")).unwrap_or(false))
    }
}

/// True where `key` is somewhere in the text of an index.
///
/// # Errors
/// What the source says.
fn mentions(source: &SourceRef, key: &str) -> Result<bool> {
    let end = source.len().min(Limits::default().header_bytes);
    let mut at = 0;
    while at < end {
        // The steps overlap by a key, which may lie across their border.
        let bytes = read_vec(&**source, at, (end - at).min(STEP + key.len() as u64))?;
        if bytes.windows(key.len()).any(|window| window == key.as_bytes()) {
            return Ok(true);
        }
        at += STEP;
    }
    Ok(false)
}

/// Fails where a source is no JSON from its first byte to its last, whatever it says.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`], `bad-json`; [`weighbridge_core::Kind::Limit`].
pub(super) fn whole_json(source: &SourceRef, limits: &Limits) -> Result<()> {
    Limits::check("bytes of an index of shards", "header_bytes", source.len(), limits.header_bytes)?;
    let bytes = read_vec(&**source, 0, source.len())?;
    let parsed = serde_json::from_slice::<de::IgnoredAny>(&bytes);
    parsed.map(drop).map_err(|error| Error::corrupt("bad-json", format!("this is no JSON: {error}")))
}

impl ShardIndex {
    /// Reads an index.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`]: `not-utf8`, `bad-json`, `bad-header` for JSON of another form,
    /// `duplicate-key`; [`weighbridge_core::Kind::Limit`].
    pub fn read(source: &SourceRef, limits: &Limits) -> Result<ShardIndex> {
        Limits::check("bytes of an index of shards", "header_bytes", source.len(), limits.header_bytes)?;
        let bytes = read_vec(&**source, 0, source.len())?;
        parse(&bytes, limits)
    }
}

fn parse(bytes: &[u8], limits: &Limits) -> Result<ShardIndex> {
    let text = std::str::from_utf8(bytes).map_err(|e| {
        Error::corrupt("not-utf8", "the index of shards is not UTF-8").at(e.valid_up_to() as u64)
    })?;
    let mut state = State { limits, index: ShardIndex::default(), failure: None, left: MOST_METADATA };
    let mut json = serde_json::Deserializer::from_str(text);
    let result = Top(&mut state).deserialize(&mut json).and_then(|()| json.end());
    let State { index, failure, .. } = state;
    match result {
        Ok(()) => Ok(index),
        Err(error) => {
            let place = place_of(text, &error);
            Err(failure.unwrap_or_else(|| syntax_error(&error, "index of shards")).at(place))
        }
    }
}

/// What is gathered while the parser calls. It knows only its own errors, so ours wait in
/// `failure` until it has come back.
struct State<'l> {
    limits: &'l Limits,
    index: ShardIndex,
    failure: Option<Error>,
    /// Bytes of metadata that may still be understood.
    left: usize,
}

impl State<'_> {
    fn refuse<E: de::Error>(&mut self, error: Error) -> E {
        self.failure = Some(error);
        E::custom("refused")
    }

    fn duplicate<E: de::Error>(&mut self, what: &str, key: &str) -> E {
        self.refuse(
            Error::corrupt("duplicate-key", format!("{what} is twice in the index of shards"))
                .found(escape_text(key))
                .hint("readers differ in which of the two they take, so neither is believed"),
        )
    }
}

/// The whole index.
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
        f.write_str("an object of metadata and weight_map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self(state) = self;
        let mut keys: HashSet<String> = HashSet::new();
        let mut unknown = 0u64;
        while let Some(key) = map.next_key::<String>()? {
            if !keys.insert(key.clone()) {
                return Err(state.duplicate("a key", &key));
            }
            match key.as_str() {
                WEIGHT_MAP => map.next_value_seed(Files(state))?,
                METADATA => map.next_value_seed(Sayings(state))?,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                    unknown += 1;
                }
            }
        }
        if !keys.contains(WEIGHT_MAP) {
            let error =
                Error::corrupt("bad-header", "the index of shards does not say which files there are");
            return Err(state.refuse(error.expected(format_args!("a key {WEIGHT_MAP}"))));
        }
        if unknown > 0 {
            let text = format!("{unknown} keys of the index of shards are not known and were passed over");
            state.index.notes.push(Note::omission("unknown-field", text));
        }
        Ok(())
    }
}

/// `weight_map`: names of files by names of tensors.
struct Files<'s, 'l>(&'s mut State<'l>);

impl<'de> DeserializeSeed<'de> for Files<'_, '_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Files<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of names of files")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self(state) = self;
        let mut names: HashSet<String> = HashSet::new();
        let mut files: HashMap<String, usize> = HashMap::new();
        while let Some(name) = map.next_key::<String>()? {
            let (count, most) = (names.len() as u64 + 1, state.limits.tensors);
            Limits::check("tensors", "tensors", count, most).map_err(|e| state.refuse(e))?;
            let (length, most) = (name.len() as u64, state.limits.name_bytes);
            Limits::check("bytes in a name", "name_bytes", length, most).map_err(|e| state.refuse(e))?;
            if !names.insert(name.clone()) {
                return Err(state.duplicate("a name", &name));
            }
            let file = map.next_value::<String>()?;
            let next = state.index.files.len();
            let place = *files.entry(file).or_insert_with_key(|file| {
                state.index.files.push(file.clone());
                next
            });
            state.index.tensors.push((name, place));
        }
        Ok(())
    }
}

/// `metadata`: any JSON by name. Null is none.
struct Sayings<'s, 'l>(&'s mut State<'l>);

impl<'de> DeserializeSeed<'de> for Sayings<'_, '_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Sayings<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object as metadata")
    }

    fn visit_unit<E: de::Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self(state) = self;
        let mut keys: HashSet<String> = HashSet::new();
        while let Some(key) = map.next_key::<String>()? {
            if !keys.insert(key.clone()) {
                return Err(state.duplicate("a key of the metadata", &key));
            }
            let raw = map.next_value::<&'de RawValue>()?.get();
            if raw.starts_with('"') && key != ShardIndex::TOTAL_SIZE {
                let text = serde_json::from_str(raw).map_err(de::Error::custom)?;
                state.index.metadata.push((key, Value::Text(text)));
                continue;
            }
            let Some(left) = state.left.checked_sub(raw.len()) else {
                let text = format!("{}: metadata of this length is passed over", escape_text(&key));
                state.index.notes.push(Note::omission("metadata-too-long", text));
                continue;
            };
            state.left = left;
            let json = serde_json::from_str::<Json>(raw).map_err(de::Error::custom)?;
            if key == ShardIndex::TOTAL_SIZE {
                state.index.total_size = Some(json);
            } else {
                state.index.metadata.push((key, value(json)));
            }
        }
        Ok(())
    }
}

/// JSON as a value. The depth is bounded by that of the parser.
fn value(json: Json) -> Value {
    match json {
        Json::Null => Value::Null,
        Json::Bool(b) => Value::Bool(b),
        Json::String(text) => Value::Text(text),
        Json::Array(list) => Value::List(list.into_iter().map(value).collect()),
        Json::Object(map) => {
            Value::Map(map.into_iter().map(|(k, v)| (Name::from(k.as_str()), value(v))).collect())
        }
        Json::Number(n) => match (n.as_u64(), n.as_i64()) {
            (Some(n), _) => Value::U64(n),
            (None, Some(n)) => Value::I64(n),
            (None, None) => Value::F64(n.as_f64().unwrap_or(f64::NAN).to_bits()),
        },
    }
}
