//! Parser of the index: JSON, read key by key to detect duplicates.

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
    /// Metadata key with the total bytes of all tensors.
    pub const TOTAL_SIZE: &'static str = "total_size";
}
/// Key of the map from tensors to shards.
const WEIGHT_MAP: &str = "weight_map";
/// Key of the metadata.
const METADATA: &str = "metadata";
/// Bytes per read in a search.
const STEP: u64 = 64 << 10;
/// Maximum bytes of JSON for metadata other than strings: parsed, it takes a multiple of that.
const MAX_METADATA: usize = 2 << 20;

/// Index of shards, in the order of the file.
#[derive(Debug, Default)]
pub struct ShardIndex {
    /// Names of shards, without duplicates.
    pub files: Vec<String>,
    /// Names of tensors, without duplicates, each with the index of its shard in `files`.
    pub tensors: Vec<(String, usize)>,
    /// Total bytes of all tensors, as stated in the index: a number in every index written by a framework.
    pub total_size: Option<Json>,
    /// Other metadata.
    pub metadata: Vec<(String, Value)>,
    /// Notes.
    pub notes: Vec<Note>,
}

impl ShardIndex {
    /// Returns true if a source is an index of shards, by its beginning `head`, and by later keys if that is not enough.
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

    /// Returns true if a source is an index of shards. Reads its beginning.
    pub fn is_index_file(source: &SourceRef) -> Result<bool> {
        let head = read_vec(&**source, 0, source.len().min(STEP))?;
        Ok(ShardIndex::is_index(&head, source))
    }

    /// Returns true if an index names files with one of these endings.
    pub fn names_files(source: &SourceRef, endings: &[&str]) -> bool {
        endings.iter().any(|ending| mentions(source, &format!("{ending}\"")).unwrap_or(false))
    }
}

/// Returns true if the text of an index contains `key`.
///
/// # Errors
/// Errors of the source.
fn mentions(source: &SourceRef, key: &str) -> Result<bool> {
    let end = source.len().min(Limits::default().header_bytes);
    let mut at = 0;
    while at < end {
        // Reads overlap by the length of a key, which may cross their boundary.
        let bytes = read_vec(&**source, at, (end - at).min(STEP + key.len() as u64))?;
        if bytes.windows(key.len()).any(|window| window == key.as_bytes()) {
            return Ok(true);
        }
        at += STEP;
    }
    Ok(false)
}

/// Fails if a source is not valid JSON.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`], `bad-json`; [`weighbridge_core::Kind::Limit`].
pub(super) fn whole_json(source: &SourceRef, limits: &Limits) -> Result<()> {
    Limits::check_part("bytes of an index of shards", "header_bytes", source.len(), limits.header_bytes, 1)?;
    let bytes = read_vec(&**source, 0, source.len())?;
    let parsed = serde_json::from_slice::<de::IgnoredAny>(&bytes);
    parsed.map(drop).map_err(|error| Error::corrupt("bad-json", format!("the file is not JSON: {error}")))
}

impl ShardIndex {
    /// Reads an index.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`]: `not-utf8`, `bad-json`, `bad-header` for JSON of another form,
    /// `duplicate-key`; [`weighbridge_core::Kind::Limit`].
    pub fn read(source: &SourceRef, limits: &Limits) -> Result<ShardIndex> {
        Limits::check_part(
            "bytes of an index of shards",
            "header_bytes",
            source.len(),
            limits.header_bytes,
            1,
        )?;
        let bytes = read_vec(&**source, 0, source.len())?;
        parse(&bytes, limits)
    }
}

fn parse(bytes: &[u8], limits: &Limits) -> Result<ShardIndex> {
    let text = std::str::from_utf8(bytes).map_err(|e| {
        Error::corrupt("not-utf8", "the index of shards is not UTF-8").at(e.valid_up_to() as u64)
    })?;
    let mut state = State { limits, index: ShardIndex::default(), failure: None, left: MAX_METADATA };
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

/// State of the parser. Errors other than those of serde are stored in `failure` until it returns.
struct State<'l> {
    limits: &'l Limits,
    index: ShardIndex,
    failure: Option<Error>,
    /// Remaining bytes of metadata.
    left: usize,
}

impl State<'_> {
    fn refuse<E: de::Error>(&mut self, error: Error) -> E {
        self.failure = Some(error);
        E::custom("refused")
    }

    fn duplicate<E: de::Error>(&mut self, what: &str, key: &str) -> E {
        self.refuse(
            Error::corrupt("duplicate-key", format!("duplicate {what} in the index of shards"))
                .found(escape_text(key))
                .hint("remove one of them; readers differ in the one they use"),
        )
    }
}

/// Visitor of the whole index.
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
                return Err(state.duplicate("key", &key));
            }
            match key.as_str() {
                WEIGHT_MAP => map.next_value_seed(Files(state))?,
                METADATA => map.next_value_seed(MetadataVisitor(state))?,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                    unknown += 1;
                }
            }
        }
        if !keys.contains(WEIGHT_MAP) {
            let error = Error::corrupt("bad-header", "the index of shards lists no files");
            return Err(state.refuse(error.expected(format_args!("a key {WEIGHT_MAP}"))));
        }
        if unknown > 0 {
            let text = format!("unknown keys of the index of shards skipped: {unknown}");
            state.index.notes.push(Note::omission("unknown-field", text));
        }
        Ok(())
    }
}

/// Visitor of `weight_map`: shard by tensor name.
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
                return Err(state.duplicate("tensor name", &name));
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

/// Visitor of `metadata`: any JSON by key, or null.
struct MetadataVisitor<'s, 'l>(&'s mut State<'l>);

impl<'de> DeserializeSeed<'de> for MetadataVisitor<'_, '_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for MetadataVisitor<'_, '_> {
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
                return Err(state.duplicate("metadata key", &key));
            }
            let raw = map.next_value::<&'de RawValue>()?.get();
            if raw.starts_with('"') && key != ShardIndex::TOTAL_SIZE {
                let text = serde_json::from_str(raw).map_err(de::Error::custom)?;
                state.index.metadata.push((key, Value::Text(text)));
                continue;
            }
            let Some(left) = state.left.checked_sub(raw.len()) else {
                let text = format!("{}: metadata skipped because of its length", escape_text(&key));
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

/// Converts JSON to a value. The depth is bounded by that of the parser.
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
