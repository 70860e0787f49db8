//! Metadata that bridge formats cannot represent, stored under one reserved key.
//!
//! safetensors and npz support flat names and strings only. Paths with dots or non-UTF-8 parts, slots of optimizer state, the
//! order of the file, batches and typed metadata are stored as one JSON document under [`Metadata::INDEX_KEY`]: the bridge index.
//! Converting back restores the same file. Files without such data get no document.
//!
//! The document is untrusted: entries that do not match the tensors are ignored, with a note.

use super::tagged::{Tagged, TaggedAttributes};
use super::{
    Attributes, Checkpoint, Loss, Metadata, Name, Note, Origin, Role, StateOf, TensorEntry, TensorPath,
    Value, escape_text,
};
use crate::phrase::Opt;
use crate::text::counted;
use crate::topology::VariableKind;
use crate::{NoteCode, phrase};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde::{Deserialize, Serialize as DeriveSerialize};
use serde_json::value::RawValue;
use serde_json::{Value as Json, json};
use std::collections::{BTreeMap, HashMap, HashSet};

impl Metadata {
    /// Prefix of the metadata keys reserved for Weighbridge.
    pub const RESERVED_PREFIX: &'static str = "weighbridge.";

    /// Metadata key of the bridge index.
    pub const INDEX_KEY: &'static str = "weighbridge.index";
}
/// Maximum bytes of JSON text for typed metadata: a vocabulary of 300,000 tokens with its merges takes half of it.
const MAX_METADATA: usize = 32 << 20;
/// Maximum bytes of JSON text for the attributes of all tensors together.
const MAX_ATTRIBUTES: usize = 2 << 20;
/// Attributes about bytes shared by tensors.
const SHARING: [&str; 2] = [Attributes::ALIAS_OF, Attributes::STORAGE];
/// Version of the bridge index.
const VERSION: u64 = 1;

impl Checkpoint {
    /// Returns unique names of all tensors, in order: their display names, passed through `tidy` for characters that the format
    /// cannot represent. A duplicate, or a `reserved` name of the format, gets the suffix `~2`. See
    /// [`Checkpoint::renamed_losses`] for the consequences in other programs.
    pub fn bridge_names(&self, tidy: impl Fn(String) -> String, reserved: &[&str]) -> Vec<String> {
        let mut taken: HashSet<String> = HashSet::with_capacity(self.tensors.len());
        let is_free = |name: &str| !reserved.contains(&name);
        // Last suffix per base: many paths may have the same display name, and a search from 2 each time is quadratic.
        let mut counts: HashMap<String, u64> = HashMap::with_capacity(self.tensors.len());
        let unique = |entry: &TensorEntry| {
            let base = tidy(entry.text());
            let mut name = base.clone();
            let count = counts.entry(base.clone()).or_insert(1);
            while !is_free(&name) || !taken.insert(name.clone()) {
                *count += 1;
                name = if is_free(&base) { format!("{base}~{count}") } else { format!("_{base}~{count}") };
            }
            name
        };
        self.tensors.iter().map(unique).collect()
    }

    /// Returns losses for tensors written under other names. The bridge index restores the names, but other programs do not read
    /// it.
    pub fn renamed_losses<'a>(&'a self, names: &'a [String]) -> impl Iterator<Item = Loss> + 'a {
        let pairs = self.tensors.iter().zip(names);
        pairs.filter(|(tensor, name)| tensor.text() != **name).map(|(tensor, name)| {
            let detail = format!("written as {}; only Weighbridge restores the name", escape_text(name));
            Loss::new("renamed", tensor.name(), detail)
        })
    }

    /// Returns losses for a target without a list of structured names: its entries that no tensor has.
    pub fn info_losses(&self) -> impl Iterator<Item = Loss> + '_ {
        let notes = self.notes.iter().filter(|note| note.code == NoteCode::InfoEntries);
        notes.map(|note| Loss::new("info-entries", "list of structured names", note.text.as_str()))
    }

    /// Returns losses for a format of tensors and metadata only: the parts of the source outside the index (`omitted`), companion
    /// files (`companion`), and the program (`program`).
    pub fn left_behind(&self) -> Vec<Loss> {
        let mut losses: Vec<Loss> = self.left_out().map(Note::loss).collect();
        // The index has the content of these files, as metadata and as tensor names.
        let in_index = |name: &str| name == "config.json" || name.ends_with(".info");
        for (name, _) in self.companions.iter().filter(|(name, _)| !in_index(name)) {
            let detail = "the target format has no place for this file";
            losses.push(Loss::new("companion", name, detail));
        }
        losses.extend(self.info_losses());
        if let Some(program) = &self.topology {
            let detail = match program.has_tensors() {
                true => phrase!["the target format has no place for the graph; keep the original model"],
                false => phrase![
                    "the target format has no place for the program; keep its file, and pass it with ",
                    Opt::Program,
                    " when you convert back"
                ],
            };
            let file = match self.metadata.get(Metadata::PROGRAM_FILE_KEY) {
                Some(Value::Text(name)) => escape_text(name),
                _ => escape_text(&self.label),
            };
            losses.push(Loss::new("program", file, detail));
        }
        if let Some(topology) = &self.topology
            && self.notes.iter().any(|note| note.code == NoteCode::ParametersMissing && !note.omission)
        {
            let detail = "the program has this parameter, but no parameter file was found";
            let parameters = topology.parameters().into_iter().filter(|v| v.kind != VariableKind::Vocab);
            losses.extend(parameters.map(|v| Loss::new("tensors", escape_text(&v.name), detail)));
        }
        losses
    }

    /// Returns the bridge index for tensors written under `names`; `None` if names and plain text metadata suffice.
    pub fn bridge_index(&self, names: &[String]) -> Option<String> {
        self.bridge_index_beside(names, |_, value| matches!(value, Value::Text(_)))
    }

    /// Returns the bridge index, as [`Checkpoint::bridge_index`], for a format that stores the metadata selected by `held` itself.
    pub fn bridge_index_beside(
        &self,
        names: &[String],
        held: impl Fn(&str, &Value) -> bool,
    ) -> Option<String> {
        self.index_of(names, held, false)
    }

    /// Returns the bridge index also where names suffice: for a format whose reader guesses roles without an index.
    pub fn full_bridge_index(&self, names: &[String]) -> Option<String> {
        self.index_of(names, |_, _| false, true)
    }

    fn index_of(
        &self,
        names: &[String],
        held: impl Fn(&str, &Value) -> bool,
        is_needed: bool,
    ) -> Option<String> {
        let rows: Vec<RowOf<'_>> =
            self.tensors.iter().zip(names).map(|(tensor, name)| RowOf { tensor, name }).collect();
        let typed: Vec<_> = self
            .metadata
            .iter()
            .filter(|(key, value)| !held(key, value))
            .map(|(key, value)| (key, Tagged(value)))
            .collect();
        if !is_needed && self.origin.is_none() && rows.iter().all(RowOf::is_plain) && typed.is_empty() {
            return None;
        }
        let index = IndexOf {
            version: VERSION,
            format: self.origin.as_ref().map(|origin| &*origin.format),
            kind: self.origin.as_ref().map(|origin| &*origin.kind),
            tensors: rows,
            metadata: typed,
        };
        // Cannot fail: all keys are text.
        serde_json::to_string(&index).ok()
    }
}

impl Metadata {
    /// Returns the metadata keys in an entry of this library: a bridge index, or an object of texts that contains one.
    pub fn carried_keys(entry: &str) -> Vec<String> {
        #[derive(Deserialize)]
        struct Keys {
            #[allow(dead_code, reason = "distinguishes an index from an object of texts")]
            version: u64,
            #[serde(default)]
            metadata: Vec<(String, serde::de::IgnoredAny)>,
        }
        if let Ok(index) = serde_json::from_str::<Keys>(entry) {
            return index.metadata.into_iter().map(|(key, _)| key).collect();
        }
        let texts: BTreeMap<String, String> = serde_json::from_str(entry).unwrap_or_default();
        let (index, keys): (Vec<_>, Vec<_>) =
            texts.into_iter().partition(|(key, _)| key == Metadata::INDEX_KEY);
        let keys = keys.into_iter().map(|(key, _)| key);
        keys.chain(index.iter().flat_map(|(_, index)| Metadata::carried_keys(index))).collect()
    }
}

/// Serializer of the bridge index, without a tree in memory.
#[derive(DeriveSerialize)]
struct IndexOf<'a> {
    version: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    format: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'a str>,
    tensors: Vec<RowOf<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    metadata: Vec<(&'a str, Tagged<'a>)>,
}

/// Row of a tensor: `name`, `shape`, and all that does not follow from the name.
struct RowOf<'a> {
    tensor: &'a TensorEntry,
    name: &'a str,
}

impl RowOf<'_> {
    fn is_plain(&self) -> bool {
        self.tensor.path == TensorPath::from_dotted(self.name)
            && self.tensor.role == Role::Parameter
            && self.tensor.attributes.is_empty()
            && !self.tensor.guessed
    }
}

impl Serialize for RowOf<'_> {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        let tensor = self.tensor;
        let mut row = out.serialize_map(None)?;
        row.serialize_entry("name", self.name)?;
        row.serialize_entry("shape", tensor.shape.dims())?;
        if tensor.path != TensorPath::from_dotted(self.name) {
            row.serialize_entry("path", &tensor.path.to_json())?;
        }
        if tensor.role != Role::Parameter {
            row.serialize_entry("role", tensor.role.as_str())?;
        }
        if let Some(slot) = tensor.role.slot() {
            row.serialize_entry("slot", &slot.to_json())?;
        }
        if let Some(of) = tensor.role.state_of() {
            row.serialize_entry("state_of", &of.name)?;
            if of.guessed {
                row.serialize_entry("state_of_guessed", &true)?;
            }
        }
        if !tensor.attributes.is_empty() {
            row.serialize_entry("attributes", &TaggedAttributes(&tensor.attributes))?;
        }
        if tensor.guessed {
            row.serialize_entry("guessed", &true)?;
        }
        row.end()
    }
}

/// Bridge index as parsed. Typed, so that it takes about as much memory as its text; free values stay text until their length
/// is checked.
#[derive(Deserialize)]
struct Index {
    version: u64,
    format: Option<String>,
    kind: Option<String>,
    #[serde(default)]
    tensors: Vec<Row>,
    metadata: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
struct Row {
    name: String,
    shape: Vec<u64>,
    path: Option<Parts>,
    role: Option<String>,
    slot: Option<Part>,
    state_of: Option<Box<str>>,
    #[serde(default)]
    state_of_guessed: bool,
    attributes: Option<Box<RawValue>>,
    #[serde(default)]
    guessed: bool,
}

/// Parts of a path in JSON.
pub struct Parts(Vec<Part>);

/// Maximum number of parts, for any limits: in memory a part takes many times its JSON.
const MAX_PARTS: usize = 1 << 16;

impl<'de> Deserialize<'de> for Parts {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Names;
        impl<'de> serde::de::Visitor<'de> for Names {
            type Value = Parts;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an array of names")
            }
            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut list: A) -> Result<Parts, A::Error> {
                let mut parts = Vec::new();
                while let Some(part) = list.next_element()? {
                    if parts.len() == MAX_PARTS {
                        return Err(serde::de::Error::custom("a path has too many names"));
                    }
                    parts.push(part);
                }
                Ok(Parts(parts))
            }
        }
        from.deserialize_seq(Names)
    }
}

impl Parts {
    /// Returns the path; `None` for an invalid part.
    pub fn path(self) -> Option<TensorPath> {
        Some(TensorPath::new(self.0.into_iter().map(Part::name).collect::<Option<Vec<_>>>()?))
    }
}

/// [`Name`] in JSON.
#[derive(Deserialize)]
#[serde(untagged)]
pub enum Part {
    /// UTF-8.
    Text(String),
    /// Other bytes.
    Bytes {
        /// Two hexadecimal digits per byte.
        hex: String,
    },
}

impl Part {
    /// Returns the name; `None` for invalid hexadecimal digits.
    pub fn name(self) -> Option<Name> {
        match self {
            Self::Text(text) => Some(Name::from(text.as_str())),
            Self::Bytes { hex } => Name::from_json(&json!({ "hex": hex })),
        }
    }
}

/// Parses a value, unless its text is longer than `max` bytes.
fn parse_bounded(raw: &RawValue, max: usize) -> Option<Json> {
    (raw.get().len() <= max).then(|| serde_json::from_str(raw.get()).ok()).flatten()
}

impl Checkpoint {
    /// Restores paths, roles and attributes of the tensors of an opened bridge file from `index`. `names` are the names of the
    /// tensors in the file, from which their current paths were derived. Attributes about shared bytes
    /// ([`Attributes::ALIAS_OF`], [`Attributes::STORAGE`]) are set by the reader, not restored: the index describes the original
    /// file.
    pub fn restore_bridge_index(&mut self, names: &[String], index: &str) {
        match serde_json::from_str::<Index>(index) {
            Ok(index) if index.version == VERSION => restore(self, names, index),
            _ => self.notes.push(Note::omission(
                "carried-index-unreadable",
                format!(
                    "metadata key {} ignored: not a bridge index of version {VERSION}",
                    Metadata::INDEX_KEY
                ),
            )),
        }
    }

    /// Restores the metadata of an opened file: the bridge index applies to the tensors `names`, all other keys stay.
    pub fn restore_carried(&mut self, names: &[String], metadata: impl IntoIterator<Item = (String, Value)>) {
        let mut index = None;
        let plain = metadata.into_iter().filter_map(|(key, value)| match value {
            Value::Text(text) if key == Metadata::INDEX_KEY => {
                index = Some(text);
                None
            }
            value => Some((key, value)),
        });
        self.metadata = plain.collect();
        if let Some(index) = index {
            self.restore_bridge_index(names, &index);
        }
    }
}

/// Returns the text of the note on an index whose only fault is that it lists tensors that are not in the file.
pub(super) fn missing_text(missing: usize) -> String {
    differs(&[lists_missing(missing)])
}

fn lists_missing(missing: usize) -> String {
    format!("lists {} not there", counted(missing, "tensor that is", "tensors that are"))
}

fn differs(faults: &[String]) -> String {
    format!(
        "the metadata `{}` {}: the file was changed after it was written, or a part is missing",
        Metadata::INDEX_KEY,
        faults.join(", ")
    )
}

fn restore(checkpoint: &mut Checkpoint, names: &[String], index: Index) {
    if let (Some(format), Some(kind)) = (index.format, index.kind) {
        checkpoint.origin = Some(Origin { format, kind });
    }
    let (mut unknown, mut missing, mut unreadable) = (0usize, 0usize, false);
    if let Some(raw) = index.metadata {
        match parse_bounded(&raw, MAX_METADATA).as_ref().and_then(Json::as_array) {
            Some(pairs) => restore_metadata(checkpoint, pairs),
            None => unreadable = true,
        }
    }
    let mut found: HashMap<&str, TensorEntry> =
        names.iter().map(String::as_str).zip(std::mem::take(&mut checkpoint.tensors)).collect();
    let mut left = MAX_ATTRIBUTES;
    // Changed names, which the aliases refer to.
    let mut renamed: HashMap<String, String> = HashMap::new();
    for row in index.tensors {
        match found.remove(row.name.as_str()) {
            Some(mut tensor) => {
                let own = SHARING.map(|key| tensor.attributes.get(key).cloned());
                let before = row.path.is_some().then(|| tensor.text());
                if apply(row, &mut tensor, &mut left).is_none() {
                    unknown += 1;
                } else {
                    for (key, own) in SHARING.into_iter().zip(own) {
                        tensor.attributes.remove(key);
                        if let Some(own) = own {
                            tensor.attributes.insert(key.to_owned(), own);
                        }
                    }
                    renamed.extend(before.map(|before| (before, tensor.text())));
                }
                checkpoint.tensors.push(tensor);
            }
            None => missing += 1,
        }
    }
    let added = found.len();
    checkpoint.tensors.extend(names.iter().filter_map(|name| found.remove(name.as_str())));
    for tensor in checkpoint.tensors.iter_mut().filter(|_| !renamed.is_empty()) {
        if let Some(name) = tensor.text_attribute(Attributes::ALIAS_OF).and_then(|of| renamed.get(of)) {
            tensor.attributes.insert(Attributes::ALIAS_OF.to_owned(), Value::Text(name.clone()));
        }
    }
    let faults = [
        (missing, lists_missing(missing)),
        (unknown, format!("describes {}", counted(unknown, "tensor otherwise", "tensors otherwise"))),
        (added, format!("lacks {} of the file", counted(added, "tensor", "tensors"))),
        (usize::from(unreadable), "holds unreadable metadata".to_owned()),
    ];
    let faults: Vec<String> =
        faults.into_iter().filter(|&(count, _)| count > 0).map(|(_, text)| text).collect();
    if !faults.is_empty() {
        let text = differs(&faults);
        checkpoint.notes.push(Note::omission("carried-index-differs", text));
    }
}

/// Inserts the typed metadata before the metadata of the file.
fn restore_metadata(checkpoint: &mut Checkpoint, pairs: &[Json]) {
    let pair = |pair: &Json| {
        let [key, value] = pair.as_array()?.as_slice() else { return None };
        Some((key.as_str()?.to_owned(), Value::from_tagged(value)?))
    };
    let own: Vec<_> = checkpoint.metadata.iter().map(|(k, v)| (k.to_owned(), v.clone())).collect();
    checkpoint.metadata = pairs.iter().filter_map(pair).chain(own).collect::<Metadata>();
}

/// Applies `row` to `tensor`; `None`, without changes, if it does not match. Takes the bytes of its attributes from `left`.
fn apply(row: Row, tensor: &mut TensorEntry, left: &mut usize) -> Option<()> {
    if row.shape != tensor.shape.dims() {
        return None;
    }
    let path = match row.path {
        Some(parts) => parts.path()?,
        None => tensor.path.clone(),
    };
    let slot = match row.slot {
        Some(slot) => Some(slot.name()?),
        None => None,
    };
    let role = match (row.role.as_deref().unwrap_or("parameter"), slot) {
        ("optimizer", None) => {
            let of = |name: Box<str>| StateOf { name: name.into(), guessed: row.state_of_guessed };
            Role::OptimizerPart { of: row.state_of.map(|name| Box::new(of(name))) }
        }
        (word, slot) => Role::from_parts(word, slot)?,
    };
    let mut attributes = super::Attributes::new();
    if let Some(raw) = row.attributes {
        for (key, value) in parse_bounded(&raw, *left)?.as_object()? {
            attributes.insert(key.clone(), Value::from_tagged(value)?);
        }
        *left -= raw.get().len();
    }
    tensor.path = path;
    tensor.role = role;
    tensor.attributes = attributes;
    tensor.guessed = row.guessed;
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{MemorySource, SourceRef};
    use crate::tensor::{DType, Encoding, Shape};
    use std::sync::Arc;

    fn tensor(path: &[&str], slot: Option<&str>) -> TensorEntry {
        let source: SourceRef = Arc::new(MemorySource::new("m", vec![0; 8]));
        let path = TensorPath::new(path.iter().map(|&p| Name::from(p)).collect::<Vec<_>>());
        let mut entry =
            TensorEntry::dense(path, DType::F32, Shape::from([2]), &source, 0, Encoding::ROW).unwrap();
        if let Some(slot) = slot {
            entry.role = Role::OptimizerState { slot: slot.into() };
        }
        entry
    }

    /// Returns the checkpoint as read from a bridge file: names only.
    fn flattened(checkpoint: &Checkpoint, names: &[String]) -> Checkpoint {
        let mut flat = Checkpoint::new("bridge", "single", "");
        for (entry, name) in checkpoint.tensors.iter().zip(names).rev() {
            let mut entry = entry.clone();
            entry.path = TensorPath::from_dotted(name);
            entry.role = Role::Parameter;
            entry.attributes.clear();
            flat.tensors.push(entry);
        }
        flat
    }

    #[test]
    fn bridge_index_restores_everything() {
        let mut checkpoint = Checkpoint::new("primitiv", "model", "");
        checkpoint.origin = Some(Origin { format: "primitiv".into(), kind: "model".into() });
        checkpoint.metadata.set("configs", Value::F32(0x7fc0_0001));
        checkpoint.tensors = vec![
            tensor(&["a", "b"], None),
            tensor(&["a", "b"], Some("Adam.m2")),
            tensor(&["a", "b"], Some("Adam.m1")),
            tensor(&["a.b"], None),
            tensor(&["__metadata__"], None),
            tensor(&["weighbridge.index"], None),
            tensor(&["state", "0", "m"], None),
            tensor(&["state", "1", "m"], None),
        ];
        let of = StateOf { name: "a.b".into(), guessed: true };
        checkpoint.tensors[6].role = Role::OptimizerPart { of: Some(Box::new(of)) };
        checkpoint.tensors[7].role = Role::OptimizerPart { of: None };
        checkpoint.tensors[3].attributes.insert("batch".into(), Value::U64(2));
        let names = checkpoint.bridge_names(|n| n, &["__metadata__"]);
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), 8);
        assert_eq!(names[3..6], ["a.b~2", "___metadata__~2", "weighbridge.index"]);
        let losses: Vec<_> =
            checkpoint.renamed_losses(&names).map(|loss| (loss.code.as_str(), loss.subject)).collect();
        assert_eq!(losses, ["a.b", "__metadata__"].map(|name| ("renamed", name.to_owned())));
        let index = checkpoint.bridge_index(&names).unwrap();

        let mut back = flattened(&checkpoint, &names);
        let reversed: Vec<String> = names.iter().rev().cloned().collect();
        back.restore_bridge_index(&reversed, &index);
        assert_eq!(back.notes, []);
        assert_eq!(back.origin, checkpoint.origin);
        assert_eq!(back.metadata, checkpoint.metadata);
        for (a, b) in back.tensors.iter().zip(&checkpoint.tensors) {
            assert_eq!((&a.path, &a.role, &a.attributes), (&b.path, &b.role, &b.attributes));
        }
    }

    /// 2^16 paths with the same display name: each suffix continues from the one before.
    #[test]
    fn many_equal_display_names_take_linear_time() {
        let mut checkpoint = Checkpoint::new("primitiv", "model", "");
        let one = tensor(&["a"], None);
        for cuts in 0u32..1 << 16 {
            let mut parts = vec![String::from("a")];
            for bit in 0..16 {
                match parts.last_mut() {
                    Some(last) if cuts >> bit & 1 == 0 => last.push_str(".a"),
                    _ => parts.push("a".into()),
                }
            }
            let path = TensorPath::new(parts.iter().map(|p| Name::from(p.as_str())).collect::<Vec<_>>());
            checkpoint.tensors.push(TensorEntry { path, ..one.clone() });
        }
        let names = checkpoint.bridge_names(|n| n, &["__metadata__"]);
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), 1 << 16);
        assert!(names[65535].ends_with(".a~65536"), "{}", names[65535]);
    }

    #[test]
    fn plain_files_get_no_bridge_index() {
        let mut checkpoint = Checkpoint::new("npz", "archive", "");
        checkpoint.tensors = vec![tensor(&["a", "b"], None), tensor(&["c"], None)];
        let names = checkpoint.bridge_names(|n| n, &["__metadata__"]);
        assert_eq!(checkpoint.bridge_index(&names), None);
    }

    /// Text that would be a large tree of values is rejected at its first value.
    #[test]
    fn rejects_an_index_of_the_wrong_type_early() {
        let many = "0,".repeat(1000);
        for index in [
            format!(r#"{{"version":1,"tensors":[{many}0]}}"#),
            format!(r#"{{"version":1,"tensors":[{{"name":"a","shape":[],"path":[{many}0]}}]}}"#),
        ] {
            let mut checkpoint = Checkpoint::new("npz", "archive", "");
            checkpoint.restore_bridge_index(&[], &index);
            assert_eq!(checkpoint.notes[0].code.as_str(), "carried-index-unreadable");
        }
        let long = "0,".repeat(MAX_METADATA);
        let mut checkpoint = Checkpoint::new("npz", "archive", "");
        checkpoint.restore_bridge_index(&[], &format!(r#"{{"version":1,"metadata":[{long}0]}}"#));
        assert_eq!(checkpoint.notes[0].code.as_str(), "carried-index-differs");
        assert!(checkpoint.notes[0].omission);
    }

    #[test]
    fn notes_an_index_that_does_not_match() {
        for index in ["", "[]", "{}", r#"{"version":2}"#] {
            let mut checkpoint = Checkpoint::new("npz", "archive", "");
            checkpoint.restore_bridge_index(&[], index);
            assert_eq!(checkpoint.notes[0].code.as_str(), "carried-index-unreadable");
        }
        let mut checkpoint = Checkpoint::new("npz", "archive", "");
        checkpoint.tensors = vec![tensor(&["a"], None), tensor(&["new"], None)];
        let index = r#"{"version":1,"tensors":[{"name":"a","shape":[3],"role":"buffer"},{"name":"gone","shape":[]}]}"#;
        checkpoint.restore_bridge_index(&["a".into(), "new".into()], index);
        assert_eq!(checkpoint.notes[0].code.as_str(), "carried-index-differs");
        assert_eq!(checkpoint.tensors.len(), 2);
        assert_eq!(checkpoint.tensors[0].role, Role::Parameter);
    }
}
