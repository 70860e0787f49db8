//! File `.metadata`: a pickle of the tensors and values of a checkpoint, and of their byte ranges in the data files.
//!
//! ```text
//! Metadata
//!   state_dict_metadata   {"fc.weight": TensorStorageMetadata(properties, size, chunks), "step": BytesStorageMetadata()}
//!   planner_data          {"fc.weight": ("model", "fc.weight"), ...}: keys of the nested dicts; None in a flat checkpoint
//!   storage_data          {MetadataIndex("fc.weight", offset of the chunk): _StorageInfo(file, offset, length), ...}
//!   storage_meta, version since torch 2.3 and later
//! ```
//!
//! A chunk is a box of its tensor: offsets and sizes.

use std::collections::HashMap;
use std::sync::Arc;
use weighbridge_core::Budget;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::phrase::Phrase;
use weighbridge_core::tensor::{DType, Region, Shape};
use weighbridge_core::text::escape;
use weighbridge_io::source::{SourceRef, read_vec};
use weighbridge_pickle::{self as pickle, Cost, Graph, Location, Object, ObjectId, Options, Stored};
use weighbridge_torch_archive::dtype_of;

/// Module of the classes of the metadata.
pub(super) const MODULE: &str = "torch.distributed.checkpoint.metadata";
/// Module of the class of byte ranges.
pub(super) const STORAGE_MODULE: &str = "torch.distributed.checkpoint.filesystem";
/// Maximum offset of the name of the first class in the file: after the header of the pickle.
const FIRST_CLASS: usize = 64;
/// Memory of a byte range, with its key.
const PLACE: u64 = 200;

/// Content of the file.
#[derive(Debug)]
pub(super) struct Described {
    pub(super) items: Vec<Item>,
    /// Keys of the nested dicts by flat name, without those of one key.
    pub(super) paths: HashMap<String, Vec<Step>>,
    /// Warning if loading the file would run a dangerous import.
    pub(super) warning: Option<Phrase>,
}

/// Key of a nested dict, or index of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    Key(String),
    Index(i64),
}

/// Tensor or value by its flat name.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) name: String,
    pub(super) content: Content,
}

#[derive(Debug)]
pub(super) enum Content {
    /// Chunks of a tensor. The dtype is `Err` with its name if it is not supported.
    Tensor { dtype: std::result::Result<DType, String>, shape: Shape, chunks: Vec<(Region, Place)> },
    /// Value written by torch.save.
    Value(Place),
}

/// Byte range in a data file.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) file: Arc<str>,
    pub(super) offset: u64,
    pub(super) len: u64,
    /// Names of the stream transforms of the bytes, such as compression; `None` for plain bytes.
    pub(super) transforms: Option<String>,
}

/// Returns true for the beginning of a metadata file.
pub(super) fn is_metadata(head: &[u8]) -> bool {
    let head = &head[..head.len().min(FIRST_CLASS + MODULE.len())];
    head.starts_with(b"\x80") && head.windows(MODULE.len()).any(|window| window == MODULE.as_bytes())
}

/// Reads the file. The cost depends on the number of objects in it.
///
/// # Errors
/// Errors of reading the pickle; [`weighbridge_core::Kind::Corrupt`], `dcp-metadata`, for content of another form.
pub(super) fn read(source: &SourceRef, limits: &Limits) -> Result<Described> {
    let limits = limits.with_budget_of(source);
    let read = pickle::read(source, 0, &Options::with_limits(limits.clone()))?;
    if read.end < source.len() {
        return Err(bad("bytes follow the pickle").in_file(source.label()).at(read.end));
    }
    let reader = Reader { graph: &read.graph, source, limits: &limits, budget: read.budget() };
    reader.read(read.root, read.warning()).map_err(|error| error.in_file(source.label()))
}

fn bad(message: impl Into<String>) -> Error {
    Error::corrupt("dcp-metadata", message.into())
}

/// Byte ranges by name of the tensor or value, and by offsets of the chunk.
type Places = HashMap<(String, Option<Vec<u64>>), Place>;

struct Reader<'a> {
    graph: &'a Graph,
    source: &'a SourceRef,
    limits: &'a Limits,
    budget: &'a Budget,
}

impl<'a> Reader<'a> {
    fn read(&self, root: ObjectId, warning: Option<Phrase>) -> Result<Described> {
        let state =
            self.state(root, "Metadata")?.ok_or_else(|| bad("the pickle is not a `Metadata` object"))?;
        let mut places = self.places(self.field(state, "storage_data", "Metadata")?)?;
        let described = self.field(state, "state_dict_metadata", "Metadata")?;
        let described =
            self.graph.pairs(described).ok_or_else(|| bad("`state_dict_metadata` is not a dict"))?;
        Limits::check("tensors", "tensors", described.len() as u64, self.limits.tensors)?;
        let mut items = Vec::with_capacity(described.len());
        let mut known = std::collections::HashSet::new();
        for &(key, value) in described {
            let name = self.name(key)?;
            if !known.insert(name.clone()) {
                return Err(bad("a name occurs twice").on_tensor(escape(&name)));
            }
            let content = self.content(&name, value, &mut places).map_err(|e| e.on_tensor(escape(&name)))?;
            items.push(Item { name, content });
        }
        let paths = match find(self.graph, state, "planner_data") {
            Some(planned) => self.paths(planned)?,
            None => HashMap::new(),
        };
        Ok(Described { items, paths, warning })
    }

    fn content(&self, name: &str, id: ObjectId, places: &mut Places) -> Result<Content> {
        let mut place = |offsets: Option<Vec<u64>>| {
            let place = places.remove(&(name.to_owned(), offsets));
            place.ok_or_else(|| bad("no byte range for the tensor or value, or for one of its chunks"))
        };
        if self.class(id).is_some_and(|(_, class)| class == "BytesStorageMetadata") {
            return place(None).map(Content::Value);
        }
        let class = "TensorStorageMetadata";
        let state = self.state(id, class)?.ok_or_else(|| bad("neither a tensor nor a value"))?;
        let properties = self.field(state, "properties", class)?;
        let dtype = self.dtype(properties)?;
        let shape = self.numbers(self.field(state, "size", class)?)?;
        let chunks = self.field(state, "chunks", class)?;
        let chunks = self.graph.sequence(chunks).ok_or_else(|| bad("the chunks are not a list"))?;
        let mut found = Vec::new();
        for &chunk in chunks {
            let class = "ChunkStorageMetadata";
            let state = self.state(chunk, class)?.ok_or_else(|| bad("a chunk has no offsets and sizes"))?;
            let start = self.numbers(self.field(state, "offsets", class)?)?;
            let sizes = self.numbers(self.field(state, "sizes", class)?)?;
            let place = place(Some(start.clone()))?;
            found.push((Region { start, shape: sizes }, place));
        }
        Ok(Content::Tensor { dtype, shape: Shape::new(shape), chunks: found })
    }

    /// Reads the dtype: the first part of the state of the properties, or their field.
    fn dtype(&self, properties: ObjectId) -> Result<std::result::Result<DType, String>> {
        let graph = self.graph;
        let state = graph.made(properties).and_then(|made| made.state());
        let dtype = state.and_then(|state| match graph.tuple(state) {
            Some(parts) => parts.first().copied(),
            None => find(graph, graph.pairs(state)?, "dtype"),
        });
        let dtype = dtype.ok_or_else(|| bad("the properties of the tensor have no dtype"))?;
        match (dtype_of(graph, dtype), graph.global(dtype)) {
            (Some(dtype), _) => Ok(Ok(dtype)),
            (None, Some((module, name))) => Ok(Err(format!("{module}.{name}"))),
            (None, None) => Err(bad("the dtype of the tensor is not a name")),
        }
    }

    /// Reads the byte ranges of all tensors and values.
    fn places(&self, id: ObjectId) -> Result<Places> {
        let pairs = self.graph.pairs(id).ok_or_else(|| bad("`storage_data` is not a dict"))?;
        let mut places = Places::new();
        let mut files: HashMap<String, Arc<str>> = HashMap::new();
        for &(key, value) in pairs {
            self.visit(PLACE)?;
            let class = "MetadataIndex";
            let index = self.state(key, class)?.ok_or_else(|| bad("a key of `storage_data` has no name"))?;
            let name = self.name(self.field(index, "fqn", class)?)?;
            let offsets = match find(self.graph, index, "offset") {
                None | Some(ObjectId::NONE) => None,
                Some(offsets) => Some(self.numbers(offsets)?),
            };
            let wrong = |what: &str| bad(format!("the byte range has no {what}")).on_tensor(escape(&name));
            let is_info = self.class(value).is_some_and(|(_, class)| class == "_StorageInfo");
            let state = self.graph.made(value).filter(|_| is_info).and_then(|made| made.state());
            let state = state.and_then(|state| self.graph.pairs(state));
            let state = state.ok_or_else(|| wrong("file, offset and length"))?;
            let number = |field: &str| {
                let number = find(self.graph, state, field).and_then(|id| self.graph.int(id));
                number.and_then(|number| u64::try_from(number).ok()).ok_or_else(|| wrong(field))
            };
            let (offset, len) = (number("offset")?, number("length")?);
            let file = find(self.graph, state, "relative_path").ok_or_else(|| wrong("file"))?;
            let file = self.name(file)?;
            let file = files.entry(file).or_insert_with_key(|file| Arc::from(file.as_str())).clone();
            let transforms =
                find(self.graph, state, "transform_descriptors").filter(|&id| id != ObjectId::NONE);
            let transforms = transforms.map(|id| self.words(id)).filter(|words| !words.is_empty());
            let place = Place { file, offset, len, transforms };
            if places.insert((name.clone(), offsets), place).is_some() {
                return Err(bad("two byte ranges for one chunk").on_tensor(escape(&name)));
            }
        }
        Ok(places)
    }

    /// Joins the texts of a list.
    fn words(&self, id: ObjectId) -> String {
        let items = self.graph.sequence(id).unwrap_or_default().iter();
        items.map(|&item| self.graph.text(item).unwrap_or("unknown")).take(4).collect::<Vec<_>>().join(", ")
    }

    /// Reads the keys of the nested dicts. Names of one key are omitted.
    fn paths(&self, id: ObjectId) -> Result<HashMap<String, Vec<Step>>> {
        let mut paths = HashMap::new();
        // Without the names, the checkpoint is flat.
        for &(key, value) in self.graph.pairs(id).unwrap_or_default() {
            let (name, steps) = (self.name(key)?, self.graph.tuple(value).unwrap_or_default());
            let mut path = Vec::with_capacity(steps.len());
            for &step in steps {
                self.visit(Cost::name(1, 0))?;
                path.push(match self.graph.int(step) {
                    Some(number) => Step::Index(number),
                    None => Step::Key(self.name(step)?),
                });
            }
            if path.len() > 1 {
                paths.insert(name, path);
            }
        }
        Ok(paths)
    }

    fn class(&self, id: ObjectId) -> Option<(&'a str, &'a str)> {
        self.graph.global(self.graph.made(id)?.callable)
    }

    /// Returns the attributes of an object of `class`; `None` for another object.
    fn state(&self, id: ObjectId, class: &str) -> Result<Option<&'a [(ObjectId, ObjectId)]>> {
        self.visit(0)?;
        if self.class(id) != Some((MODULE, class)) {
            return Ok(None);
        }
        let state = self.graph.made(id).and_then(|made| made.state());
        Ok(state.and_then(|state| self.graph.pairs(state)))
    }

    fn field(&self, state: &[(ObjectId, ObjectId)], name: &str, class: &str) -> Result<ObjectId> {
        find(self.graph, state, name).ok_or_else(|| bad(format!("`{class}` has no attribute `{name}`")))
    }

    /// Reads a `torch.Size`, tuple or list of non-negative integers.
    fn numbers(&self, id: ObjectId) -> Result<Vec<u64>> {
        let items = match self.graph.call(id) {
            Some((("torch", "Size"), &[items])) => self.graph.sequence(items),
            _ => self.graph.sequence(id),
        };
        let wrong = || bad("a size or an offset is not a list of non-negative integers");
        let items = items.ok_or_else(wrong)?;
        Limits::check("dimensions", "dimensions", items.len() as u64, self.limits.dimensions)?;
        self.visit(Cost::dimensions(items.len()))?;
        let number = |&id: &ObjectId| u64::try_from(self.graph.int(id)?).ok();
        items.iter().map(number).collect::<Option<_>>().ok_or_else(wrong)
    }

    /// Reads a name of any length.
    fn name(&self, id: ObjectId) -> Result<String> {
        let wrong = || bad("a name is not text in UTF-8");
        let Object::Text(text) = self.graph.object(id) else { return Err(wrong()) };
        let (len, place) = match (&text.short, text.place) {
            (Some(short), _) => (short.len() as u64, None),
            (None, Location::Source(span)) if span.stored == Stored::Utf8 => (span.len, Some(span)),
            _ => return Err(wrong()),
        };
        Limits::check("bytes in a name", "name_bytes", len, self.limits.name_bytes)?;
        self.visit(Cost::text(len))?;
        match (&text.short, place) {
            (Some(short), _) => Ok(short.to_string()),
            (None, Some(span)) => {
                String::from_utf8(read_vec(&**self.source, span.offset, span.len)?).map_err(|_| wrong())
            }
            (None, None) => Err(wrong()),
        }
    }

    /// Charges a visit of an object and `memory`: shared objects are visited repeatedly.
    fn visit(&self, memory: u64) -> Result<()> {
        self.budget.take_work(Cost::VISIT)?;
        self.budget.take_memory(memory)
    }
}

/// Returns the value of a text key; of duplicates the last one, as in Python.
fn find(graph: &Graph, pairs: &[(ObjectId, ObjectId)], name: &str) -> Option<ObjectId> {
    pairs.iter().rev().find(|(key, _)| graph.text(*key) == Some(name)).map(|&(_, value)| value)
}
