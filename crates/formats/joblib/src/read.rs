//! Reader: from the objects of a pickle to the index.
//!
//! | object | as |
//! | --- | --- |
//! | array of numpy, in the pickle or of joblib | tensor, named by its path |
//! | dict, list, tuple, array of objects | keys and positions are parts of the path |
//! | object of a class | its attributes are parts of the path; its class is metadata under `@class` |
//! | number, text, bytes, and containers of them | metadata |

use super::stream::{Compression, StreamSource};
use super::{CLASS, INFO, KIND};
use std::collections::{BTreeMap, HashMap, HashSet};
use weighbridge_core::checkpoint::{
    Attributes, Checkpoint, Distinct, Name, Note, Origin, TensorEntry, TensorPath, Value, escape_text,
};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::phrase;
use weighbridge_core::phrase::limit;
use weighbridge_core::tensor::{DType, Endian};
use weighbridge_core::text::counted;
use weighbridge_core::{Budget, HeldMemory};
use weighbridge_format::OpenOptions;
use weighbridge_format::overlap::OverlapBudget;
use weighbridge_io::source::{SourceRef, read_vec};
use weighbridge_pickle::{
    self as pickle, Cost, Graph, JoblibArray, Location, NdArray, Object, ObjectId, Options, Pickle, Reach,
    Reduced, Stored, bytes_of, scalar,
};

/// Maximum number of kinds of omitted objects that are named; more are counted together.
const MAX_NAMED: usize = 100;
/// Bytes of the beginning that decide the compression.
const HEAD: usize = 16;

/// Returns the bytes of the pickle: the file, or its unpacked content.
pub(super) fn unpacked(source: &SourceRef, limits: &Limits) -> Result<(SourceRef, Option<Compression>)> {
    let mut head = [0; HEAD];
    let count = usize::try_from(source.len()).unwrap_or(HEAD).min(HEAD);
    source.read_at(0, &mut head[..count])?;
    match Compression::of(&head[..count]) {
        Some(compression) => Ok((StreamSource::open(source, compression, limits)?, Some(compression))),
        None => Ok((source.clone(), None)),
    }
}

/// Reads the pickle in a file.
///
/// # Errors
/// Errors of the pickle reader for a malformed pickle or array; [`weighbridge_core::Kind::Corrupt`], `joblib-stream`, for a damaged compressed file;
/// [`weighbridge_core::Kind::Limit`].
pub(super) fn open(source: &SourceRef, options: &OpenOptions) -> Result<Checkpoint> {
    let (bytes, compression) = unpacked(source, &options.limits)?;
    let bounds = Options { arrays: true, ..Options::with_limits(options.limits.with_budget_of(&bytes)) };
    let read = pickle::read(&bytes, 0, &bounds)?;
    let mut walk = Walk::new(&read, &bytes, &bounds);
    walk.node(read.root, 0)?;
    let mut checkpoint = walk.finish(source.label(), compression.is_some())?;
    checkpoint.warn_of_code(read.warning());
    checkpoint.files.push(source.clone());
    if let Some(compression) = compression {
        checkpoint.metadata.set("compression", Value::Text(compression.as_str().to_owned()));
    }
    if read.end < bytes.len() {
        let text = format!("{} bytes after the pickle omitted; joblib ignores them", bytes.len() - read.end);
        checkpoint.notes.push(Note::omission("trailing-bytes", text));
    }
    Ok(checkpoint)
}

struct Walk<'a> {
    pickle: &'a Pickle,
    source: &'a SourceRef,
    bounds: &'a Options,
    budget: &'a Budget,
    reach: Reach,
    /// Arrays of joblib by their description.
    arrays: HashMap<ObjectId, JoblibArray>,
    checkpoint: Checkpoint,
    path: Vec<Name>,
    /// Objects around the current one: an object that contains itself is walked once.
    around: HashSet<ObjectId>,
    names: Distinct,
    /// Index of the first tensor of each object.
    first: HashMap<ObjectId, usize>,
    /// Byte ranges of the distinct tensors.
    spans: OverlapBudget,
    omitted: BTreeMap<String, u64>,
    more: u64,
    duplicate_keys: u64,
}

impl<'a> Walk<'a> {
    fn new(pickle: &'a Pickle, source: &'a SourceRef, bounds: &'a Options) -> Self {
        let arrays: HashMap<ObjectId, JoblibArray> =
            pickle.arrays.iter().map(|array| (array.object, *array)).collect();
        let graph = &pickle.graph;
        let reach = Reach::of(graph, |id| arrays.contains_key(&id) || NdArray::is_one(graph, id));
        Self {
            pickle,
            source,
            bounds,
            budget: pickle.budget(),
            reach,
            arrays,
            checkpoint: Checkpoint::new(INFO.id, KIND, ""),
            path: Vec::new(),
            around: HashSet::new(),
            names: Distinct::default(),
            first: HashMap::new(),
            spans: OverlapBudget::default(),
            omitted: BTreeMap::new(),
            more: 0,
            duplicate_keys: 0,
        }
    }

    fn graph(&self) -> &'a Graph {
        &self.pickle.graph
    }

    fn finish(mut self, label: &str, is_compressed: bool) -> Result<Checkpoint> {
        self.spans.check("joblib-repeated", &self.bounds.limits).map_err(|error| error.in_file(label))?;
        if is_compressed {
            in_stream_order(&mut self.checkpoint, &self.bounds.limits)
                .map_err(|error| error.in_file(label))?;
        }
        self.checkpoint.label = label.to_owned();
        self.checkpoint.origin = Some(Origin { format: INFO.id.to_owned(), kind: KIND.to_owned() });
        if self.duplicate_keys > 0 {
            let keys = counted(self.duplicate_keys, "duplicate dict key", "duplicate dict keys");
            let text = format!("{keys}: the last value counts, as in Python");
            self.checkpoint.notes.push(Note::new("duplicate-key", text));
        }
        for (what, count) in std::mem::take(&mut self.omitted) {
            let count = if count == 1 { String::new() } else { format!(" ({count} times)") };
            self.checkpoint.notes.push(Note::omission("unread-object", format!("{what}{count}: not read")));
        }
        if self.more > 0 {
            let text = format!("{} of other kinds: not read", counted(self.more, "object", "objects"));
            self.checkpoint.notes.push(Note::omission("unread-object", text));
        }
        Ok(self.checkpoint)
    }

    /// Displayed name of the current path.
    fn name(&self) -> String {
        match self.path.is_empty() {
            true => TensorPath::value().to_text(),
            false => TensorPath::new(self.path.clone()).to_text(),
        }
    }

    fn node(&mut self, id: ObjectId, depth: usize) -> Result<()> {
        // Shared objects are visited repeatedly, and nested lists of them multiply.
        self.budget.take_work(Cost::VISIT)?;
        let graph = self.graph();
        if depth > Budget::DEPTH {
            return self.omit(id, "value nested too deeply");
        }
        if let Some(array) = self.arrays.get(&id).copied() {
            let found = self.located(NdArray::of_joblib(graph, &array, self.bounds), id)?;
            return self.array(id, found, array.content, depth);
        }
        if NdArray::is_one(graph, id) {
            let found = self.located(NdArray::of(graph, id, self.bounds), id)?;
            return self.array(id, found, Some(id), depth);
        }
        let made = graph.made(id);
        if !self.reach.holds_tensor(id) {
            let held = HeldMemory::of(self.budget);
            let mut plain = Plain { walk: self, held };
            if let Some(value) = plain.value(id, 0)? {
                plain.held.keep();
                return self.keep(value);
            }
        }
        if !self.around.insert(id) {
            return self.omit(id, "object that contains itself");
        }
        let walked = match graph.object(id) {
            Object::Dict(pairs) => self.dict(pairs, depth),
            Object::List(items) | Object::Set(items) => self.items(items, depth),
            Object::Tuple(items) | Object::FrozenSet(items) => self.items(items, depth),
            _ => match made {
                Some(made) => self.object(id, made, depth),
                None => self.omit(id, "value of an unsupported type"),
            },
        };
        self.around.remove(&id);
        walked
    }

    /// Adds the position of an array to an error.
    fn located<T>(&self, found: Result<T>, id: ObjectId) -> Result<T> {
        let at = self.graph().made(id).map_or(0, |made| made.offset);
        found.map_err(|error| error.at(at).on_tensor(escape_text(&self.name())))
    }

    /// Adds an array as a tensor. `content` is an array of objects, whose items are walked.
    fn array(
        &mut self,
        id: ObjectId,
        found: Option<NdArray>,
        content: Option<ObjectId>,
        depth: usize,
    ) -> Result<()> {
        let Some(array) = found else { return self.skip("numpy array of a subclass") };
        if array.dtype.is_none() {
            let items = content.and_then(|content| objects_of(self.graph(), content));
            return match items.filter(|_| array.descr.starts_with('O')) {
                Some(items) if self.around.insert(id) => {
                    let walked = self.items(items, depth);
                    self.around.remove(&id);
                    walked
                }
                _ => self.skip(&format!("numpy array of dtype {}", escape_text(&array.descr))),
            };
        }
        let limits = &self.bounds.limits;
        Limits::check("tensors", "tensors", self.checkpoint.tensors.len() as u64 + 1, limits.tensors)?;
        Limits::check("parts in a name", "path_parts", self.path.len() as u64, limits.path_parts)?;
        let path = match self.path.is_empty() {
            true => TensorPath::value(),
            false => TensorPath::new(self.path.clone()),
        };
        let bytes = path.byte_len() as u64;
        Limits::check("bytes in a name", "name_bytes", bytes, limits.name_bytes)?;
        let first = self.first.get(&id).copied();
        self.budget.take_memory(Cost::entry(first.is_some()) + Cost::name(self.path.len(), bytes))?;
        self.budget.take_memory(Cost::dimensions(array.shape.rank()))?;
        let (Some(dtype), Some((source, offset, encoding))) =
            (array.dtype, self.located(array.elements(self.source), id)?)
        else {
            return self.skip("array without elements");
        };
        let mut entry = TensorEntry::dense(path, dtype, array.shape, &source, offset, encoding)?;
        match first.and_then(|first| self.checkpoint.tensors.get(first)) {
            Some(first) => {
                self.budget.take_memory(Cost::attributes(first.text().len() as u64))?;
                entry.attributes.insert(Attributes::ALIAS_OF.to_owned(), Value::Text(first.text()));
                entry.extents.clone_from(&first.extents);
            }
            None => {
                self.first.insert(id, self.checkpoint.tensors.len());
                if let Some(extent) = entry.single_extent().filter(|extent| extent.len > 0) {
                    // Arrays in memory are decoded texts of their own.
                    let storage = usize::from(!std::sync::Arc::ptr_eq(&extent.source, self.source));
                    if storage == 0 {
                        self.spans.add(0, (extent.offset, extent.offset + extent.len), extent.len);
                    }
                }
            }
        }
        self.checkpoint.notes.extend(self.names.add(&mut entry));
        self.checkpoint.tensors.push(entry);
        Ok(())
    }

    /// Notes a tensor outside of the index.
    fn skip(&mut self, reason: &str) -> Result<()> {
        let name = self.name();
        self.budget.take_memory(Cost::entry(false) + Cost::text((name.len() + reason.len()) as u64))?;
        self.checkpoint.notes.push(Note::skipped_tensor(name, reason));
        Ok(())
    }

    /// Counts an omitted object; one that contains arrays is a skipped tensor.
    fn omit(&mut self, id: ObjectId, what: &str) -> Result<()> {
        if self.reach.holds_tensor(id) {
            return self.skip(what);
        }
        if self.omitted.len() < MAX_NAMED || self.omitted.contains_key(what) {
            *self.omitted.entry(what.to_owned()).or_default() += 1;
        } else {
            self.more += 1;
        }
        Ok(())
    }

    /// Keeps a plain value as metadata under the current path.
    fn keep(&mut self, value: Value) -> Result<()> {
        let key = self.name();
        self.budget.take_memory(Cost::CONTAINER + Cost::text(key.len() as u64))?;
        self.checkpoint.metadata.set(key, value);
        Ok(())
    }

    fn below(&mut self, key: &str, id: ObjectId, depth: usize) -> Result<()> {
        let height = self.path.len();
        self.path.extend(key.split('.').map(Name::from));
        let walked = self.node(id, depth + 1);
        self.path.truncate(height);
        walked
    }

    fn items(&mut self, items: &[ObjectId], depth: usize) -> Result<()> {
        for (place, &item) in items.iter().enumerate() {
            self.below(&place.to_string(), item, depth)?;
        }
        Ok(())
    }

    fn dict(&mut self, pairs: &[(ObjectId, ObjectId)], depth: usize) -> Result<()> {
        let mut places: HashMap<String, usize> = HashMap::new();
        let mut members: Vec<(String, ObjectId)> = Vec::new();
        for &(key, value) in pairs {
            self.budget.take_work(Cost::VISIT)?;
            let Some(text) = key_text(self.graph(), key) else {
                self.omit(value, "dict entry whose key is neither text nor number")?;
                continue;
            };
            match places.get(&text) {
                Some(&place) => {
                    self.duplicate_keys += 1;
                    if let Some(member) = members.get_mut(place) {
                        member.1 = value;
                    }
                }
                None => {
                    places.insert(text.clone(), members.len());
                    members.push((text, value));
                }
            }
        }
        for (key, value) in members {
            self.below(&key, value, depth)?;
        }
        Ok(())
    }

    /// Walks the attributes, items and arguments of an object. Nothing is called.
    fn object(&mut self, id: ObjectId, made: &Reduced, depth: usize) -> Result<()> {
        let graph = self.graph();
        let Some((module, name)) = class_of(graph, made) else {
            return self.omit(id, "object of an unnamed class");
        };
        let class = format!("{module}.{name}");
        let parts = made.states.iter().chain(std::iter::once(&made.args)).chain(&made.kwargs);
        if parts.clone().all(|&part| part == ObjectId::EMPTY_TUPLE)
            && made.pairs.is_empty()
            && made.items.is_empty()
        {
            return self.omit(id, &format!("object of `{}`", escape_text(&class)));
        }
        self.path.push(Name::from(CLASS));
        self.keep(Value::Text(class))?;
        self.path.pop();
        for &state in &made.states {
            // With slots, the state is a pair of dicts.
            for (place, &part) in
                graph.tuple(state).unwrap_or(std::slice::from_ref(&state)).iter().enumerate()
            {
                match graph.pairs(part) {
                    Some(pairs) => self.dict(pairs, depth)?,
                    None if part == ObjectId::NONE => {}
                    None => self.below(&place.to_string(), part, depth)?,
                }
            }
        }
        self.dict(&made.pairs, depth)?;
        self.items(&made.items, depth)?;
        // Arguments repeat attributes, such as the sizes of a tree; arrays among them are listed.
        for (place, &arg) in graph.tuple(made.args).unwrap_or_default().iter().enumerate() {
            self.budget.take_work(Cost::VISIT)?;
            if self.reach.holds_tensor(arg) {
                self.below(&format!("args.{place}"), arg, depth)?;
            }
        }
        Ok(())
    }
}

/// Sorts the tensors of a compressed file by their position, so that it is unpacked once. Tensors that repeat bytes begin again.
fn in_stream_order(checkpoint: &mut Checkpoint, limits: &Limits) -> Result<()> {
    let place = |entry: &TensorEntry| entry.single_extent().map_or(0, |extent| extent.offset);
    checkpoint.tensors.sort_by_key(place);
    let (mut at, mut again) = (0u64, 0u64);
    for extent in checkpoint.tensors.iter().filter_map(TensorEntry::single_extent) {
        if extent.offset < at && extent.source.is_sequential() {
            again = again.saturating_add(extent.offset.saturating_add(extent.len));
        }
        at = extent.offset.saturating_add(extent.len);
    }
    if again <= limits.repeated_bytes {
        return Ok(());
    }
    Err(Error::limit("joblib-repeated", "reading the tensors unpacks the file too often")
        .expected(format_args!("at most {} bytes again", limits.repeated_bytes))
        .found(format_args!("{again} bytes"))
        .hint(phrase!["if you trust the file, raise the limit ", limit("repeated_bytes")]))
}

/// Returns the items of an array of objects in row-major order.
fn objects_of(graph: &Graph, id: ObjectId) -> Option<&[ObjectId]> {
    let state = graph.tuple(graph.made(id)?.state()?)?;
    match *state {
        [_, _, _, fortran, items] | [_, _, fortran, items] if graph.truth(fortran) == Some(false) => {
            match graph.object(items) {
                Object::List(items) => Some(items),
                _ => None,
            }
        }
        _ => None,
    }
}

/// Returns a key as a part of a path.
fn key_text(graph: &Graph, key: ObjectId) -> Option<String> {
    match graph.object(key) {
        Object::Int(n) => Some(n.to_string()),
        Object::Bool(b) => Some(b.to_string()),
        _ => match graph.text(key) {
            Some(text) => Some(text.to_owned()),
            None => number(graph, key).map(|value| value.to_json().to_string()),
        },
    }
}

/// Returns the class of an object: of its call, or the class that `copyreg` reconstructs.
fn class_of<'a>(graph: &'a Graph, made: &Reduced) -> Option<(&'a str, &'a str)> {
    let callable = graph.global(made.callable)?;
    let is_copyreg = matches!(callable, ("copyreg" | "copy_reg", "_reconstructor" | "__newobj__"));
    match graph.tuple(made.args) {
        Some(&[class, ..]) if is_copyreg => graph.global(class),
        _ => Some(callable),
    }
}

/// Returns the value of a numpy scalar.
fn number(graph: &Graph, id: ObjectId) -> Option<Value> {
    let found = scalar(graph, id).ok()??;
    let bytes = found.payload.as_ref()?.short.as_ref()?;
    let dtype = found.dtype?;
    let mut bytes = bytes.to_vec();
    if found.endian == Endian::Big {
        bytes.reverse();
    }
    Some(match (dtype, bytes.as_slice()) {
        (DType::Bool, &[byte]) => Value::Bool(byte != 0),
        (DType::U8, &[byte]) => Value::I64(byte.into()),
        (DType::I8, &[byte]) => Value::I64(byte.cast_signed().into()),
        (DType::U16, bytes) => Value::I64(u16::from_le_bytes(bytes.try_into().ok()?).into()),
        (DType::I16, bytes) => Value::I64(i16::from_le_bytes(bytes.try_into().ok()?).into()),
        (DType::U32, bytes) => Value::I64(u32::from_le_bytes(bytes.try_into().ok()?).into()),
        (DType::I32, bytes) => Value::I64(i32::from_le_bytes(bytes.try_into().ok()?).into()),
        (DType::U64, bytes) => Value::U64(u64::from_le_bytes(bytes.try_into().ok()?)),
        (DType::I64, bytes) => Value::I64(i64::from_le_bytes(bytes.try_into().ok()?)),
        (DType::F32, bytes) => Value::F32(u32::from_le_bytes(bytes.try_into().ok()?)),
        (DType::F64, bytes) => Value::F64(u64::from_le_bytes(bytes.try_into().ok()?)),
        _ => return None,
    })
}

/// Conversion of an object without arrays to a value.
struct Plain<'w, 'a> {
    walk: &'w Walk<'a>,
    /// Memory of the values made so far.
    held: HeldMemory,
}

impl Plain<'_, '_> {
    /// Returns the value; `None` if a part of the object is not a plain value.
    fn value(&mut self, id: ObjectId, depth: usize) -> Result<Option<Value>> {
        self.held.budget().take_work(Cost::VISIT)?;
        self.held.take(Cost::VALUE)?;
        if depth > Budget::DEPTH {
            return Ok(None);
        }
        let graph = self.walk.graph();
        Ok(match graph.object(id) {
            Object::None => Some(Value::Null),
            Object::Bool(b) => Some(Value::Bool(*b)),
            Object::Int(n) => Some(Value::I64(*n)),
            Object::Float(x) => Some(Value::F64(x.to_bits())),
            Object::Text(_) | Object::ByteString(_) => self.text(id)?,
            Object::Bytes(blob) | Object::ByteArray(blob) => {
                blob.short.as_ref().map(|bytes| Value::Bytes(bytes.to_vec()))
            }
            Object::List(items) | Object::Set(items) => self.list(items, depth)?,
            Object::Tuple(items) | Object::FrozenSet(items) => self.list(items, depth)?,
            Object::Dict(pairs) => self.map(pairs, depth)?,
            Object::Global { .. } => match graph.global(id) {
                Some((module, name)) => {
                    self.held.take(Cost::text((module.len() + name.len()) as u64))?;
                    Some(Value::Text(format!("{module}.{name}")))
                }
                None => None,
            },
            Object::Reduced(_) => match graph.call(id) {
                Some((("numpy", "dtype"), &[code, ..])) => self.text(code)?,
                Some((("_codecs", "encode"), _)) => {
                    let bytes = bytes_of(graph, id, None).ok().flatten().and_then(|bytes| bytes.short);
                    bytes.map(|bytes| Value::Bytes(bytes.into_vec()))
                }
                _ => match number(graph, id) {
                    Some(number) => Some(number),
                    None => match graph.pairs(id) {
                        Some(pairs) => self.map(pairs, depth)?,
                        None => None,
                    },
                },
            },
            _ => None,
        })
    }

    /// Returns a text, also a long one.
    fn text(&mut self, id: ObjectId) -> Result<Option<Value>> {
        let (Object::Text(text) | Object::ByteString(text)) = self.walk.graph().object(id) else {
            return Ok(None);
        };
        match (&text.short, text.place) {
            (Some(short), _) => {
                self.held.take(Cost::text(short.len() as u64))?;
                Ok(Some(Value::Text(short.to_string())))
            }
            (None, Location::Source(span)) if matches!(span.stored, Stored::Raw | Stored::Utf8) => {
                let limits = &self.walk.bounds.limits;
                Limits::check("bytes of text", "header_bytes", span.len, limits.header_bytes)?;
                self.held.take(Cost::text(span.len))?;
                // A compressed file may be unpacked from its beginning again.
                if self.walk.source.is_sequential()
                    && self.held.budget().take_work(span.offset.saturating_add(span.len)).is_err()
                {
                    return Ok(None);
                }
                let bytes = read_vec(&**self.walk.source, span.offset, span.len)?;
                Ok(String::from_utf8(bytes).ok().map(Value::Text))
            }
            _ => Ok(None),
        }
    }

    fn list(&mut self, items: &[ObjectId], depth: usize) -> Result<Option<Value>> {
        let mut values = Vec::new();
        for &item in items {
            let Some(value) = self.value(item, depth + 1)? else { return Ok(None) };
            values.push(value);
        }
        Ok(Some(Value::List(values)))
    }

    fn map(&mut self, pairs: &[(ObjectId, ObjectId)], depth: usize) -> Result<Option<Value>> {
        let mut values = Vec::new();
        for &(key, value) in pairs {
            let Some(key) = key_text(self.walk.graph(), key) else { return Ok(None) };
            self.held.take(Cost::ITEM + Cost::text(key.len() as u64))?;
            let Some(value) = self.value(value, depth + 1)? else { return Ok(None) };
            values.push((Name::from(key.as_str()), value));
        }
        Ok(Some(Value::Map(values)))
    }
}
