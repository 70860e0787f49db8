//! Reader of the tree: nested maps with arrays and plain values as leaves. Elements are not read.

use crate::array::{self, Array, Read};
use crate::keys::{ARRAYS, LEAVES, key_of};
use std::collections::HashSet;
use std::sync::Arc;
use weighbridge_core::budget::Budget;
use weighbridge_core::checkpoint::{Metadata, Name, Note, TensorEntry, TensorPath, Value};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::tensor::{Encoding, Shape};
use weighbridge_core::text::counted;
use weighbridge_format::OpenOptions;
use weighbridge_io::source::{ConcatSource, Cursor, SourceRef};
use weighbridge_msgpack::{Item, Reader, STR, marker_name};

/// Extension of an array.
pub(crate) const NDARRAY: i8 = 1;
/// Extension of a complex number of Python.
pub(crate) const COMPLEX: i8 = 2;
/// Extension of a scalar of numpy.
pub(crate) const SCALAR: i8 = 3;
/// First key of a map that stores a large array in parts.
pub(crate) const CHUNKED: &str = "__msgpack_chunked_array__";
/// Attribute of a numpy scalar; an array without dimensions has none.
pub(crate) const IS_SCALAR: &str = "numpy_scalar";
/// Attribute of an array in parts: elements in each part but the last one.
pub(crate) const CHUNK: &str = "chunk_elements";
/// Memory of an entry of the index besides its path, in bytes.
const ENTRY: u64 = 256;

/// Content of a file.
#[derive(Debug, Default)]
pub(crate) struct Content {
    /// Arrays in the order of the file; the path of a single array without a map is `value`.
    pub(crate) tensors: Vec<TensorEntry>,
    /// Plain values in the order of the file.
    pub(crate) values: Vec<Leaf>,
    /// Paths of arrays of MessagePack that contain tensors.
    pub(crate) arrays: Vec<TensorPath>,
    /// True if the file is one array without a map.
    pub(crate) is_bare: bool,
    /// Skipped tensors and oddities.
    pub(crate) notes: Vec<Note>,
}

/// Plain value of the tree.
#[derive(Debug)]
pub(crate) struct Leaf {
    pub(crate) path: TensorPath,
    /// Number of tensors before it.
    pub(crate) place: u64,
    pub(crate) value: Value,
    /// Type of the extension that stores it, if any.
    pub(crate) ext: Option<i8>,
}

impl Content {
    /// Returns the values as metadata, with their places.
    pub(crate) fn metadata(&self) -> Metadata {
        let mut metadata = Metadata::default();
        let mut places = Vec::with_capacity(self.values.len());
        for leaf in &self.values {
            let key = key_of(&leaf.path);
            let place = Value::U64(leaf.place);
            let place = match leaf.ext {
                Some(ext) => Value::List(vec![place, Value::I64(ext.into())]),
                None => place,
            };
            places.push((Name::from(key.as_str()), place));
            metadata.set(key, leaf.value.clone());
        }
        if !places.is_empty() {
            metadata.set(LEAVES, Value::Map(places));
        }
        if !self.arrays.is_empty() {
            let paths = self.arrays.iter().map(|path| Value::Text(key_of(path))).collect();
            metadata.set(ARRAYS, Value::List(paths));
        }
        metadata
    }
}

/// Sequential reader of the tree.
pub(crate) struct TreeReader<'a> {
    source: &'a SourceRef,
    reader: Reader,
    limits: &'a Limits,
    budget: Budget,
    path: Vec<Name>,
    path_bytes: u64,
    /// Content so far; after an error, all before the fault.
    pub(crate) content: Content,
}

impl<'a> TreeReader<'a> {
    pub(crate) fn new(source: &'a SourceRef, limits: &'a Limits) -> Self {
        Self {
            source,
            reader: Reader::new(Cursor::new(source.clone(), 0)),
            limits,
            budget: limits.budget_of(source),
            path: Vec::new(),
            path_bytes: 0,
            content: Content::default(),
        }
    }

    /// Reads the whole file. Bytes after the tree are an error; for a lenient open they are a note, unless they
    /// look like a part of the tree.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`], [`weighbridge_core::Kind::Unsupported`] or [`weighbridge_core::Kind::Limit`], with the offset
    /// and the path of the leaf.
    pub(crate) fn read(&mut self, options: &OpenOptions) -> Result<()> {
        self.tree()?;
        let (at, rest) = (self.reader.position(), self.reader.cursor.remaining());
        if rest > 0 {
            // Another object: a header is damaged, and names may be in other maps than before.
            let continues = matches!(self.reader.cursor.peek()?, Some([0x80..=0xff]));
            if !options.lenient || continues {
                return Err(Error::corrupt("trailing-bytes", "bytes follow the end of the tree")
                    .at(at)
                    .expected("the end of the file")
                    .found(counted(rest, "more byte", "more bytes")));
            }
            let text = format!("{rest} trailing bytes ignored, from offset {at} on");
            self.content.notes.push(Note::omission("trailing-bytes", text));
        }
        if let Some((count, first)) = self.reader.long_headers {
            let text = format!(
                "lengths or numbers use longer headers than needed; saving writes the shortest ones ({count}, the first at offset {first})"
            );
            self.content.notes.push(Note::new("long-headers", text));
        }
        Ok(())
    }

    /// Reads the tree, up to its last byte.
    pub(crate) fn tree(&mut self) -> Result<()> {
        self.value()
    }

    /// Offset of the next byte.
    pub(crate) fn position(&self) -> u64 {
        self.reader.position()
    }

    /// Path of the current leaf.
    pub(crate) fn path(&self) -> TensorPath {
        self.path.iter().cloned().collect()
    }

    fn value(&mut self) -> Result<()> {
        Budget::check_depth(self.path.len()).map_err(|e| e.at(self.position()))?;
        let at = self.position();
        let value = match self.reader.item("a value")? {
            Item::Map(0) => Value::Map(Vec::new()),
            Item::Map(pairs) => return self.map(pairs),
            Item::Array(items) => match self.plain_list(items, self.path.len())? {
                Some(list) => list,
                None => return self.array(at),
            },
            Item::Ext { kind: kind @ (NDARRAY | SCALAR), len } => return self.tensor(kind, len),
            Item::Ext { kind, len } => {
                let value = self.extension(kind, len)?;
                return self.leaf(value, Some(kind));
            }
            item => self.plain(item)?,
        };
        self.leaf(value, None)
    }

    fn leaf(&mut self, value: Value, ext: Option<i8>) -> Result<()> {
        self.charge()?;
        let place = self.content.tensors.len() as u64;
        self.content.values.push(Leaf { path: self.path(), place, value, ext });
        Ok(())
    }

    /// Charges the memory of an entry with the current path.
    fn charge(&self) -> Result<()> {
        let parts = self.path.len() as u64;
        self.budget
            .take_memory(ENTRY.saturating_add(self.path_bytes).saturating_add(parts * 24))
            .map_err(|e| e.at(self.position()))
    }

    /// Enters a part of the path for `work`.
    fn within(&mut self, part: Name, work: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        let bytes = part.as_bytes().len() as u64;
        self.path_bytes += bytes;
        let at = self.position();
        Limits::check("bytes in a name", "name_bytes", self.path_bytes, self.limits.name_bytes)
            .map_err(|e| e.at(at))?;
        self.path.push(part);
        Limits::check("parts in a name", "path_parts", self.path.len() as u64, self.limits.path_parts)
            .map_err(|e| e.at(at))?;
        work(self)?;
        self.path.pop();
        self.path_bytes -= bytes;
        Ok(())
    }

    fn map(&mut self, pairs: u32) -> Result<()> {
        self.reader.cursor.need(u64::from(pairs).saturating_mul(2), "a map")?;
        let mut keys: HashSet<Name> = HashSet::new();
        for number in 0..pairs {
            let at = self.position();
            let key = self.key()?;
            if key.as_bytes() == CHUNKED.as_bytes() {
                if number > 0 {
                    return Err(chunks(at).expected(format_args!("{CHUNKED} as the first key of its map")));
                }
                return self.chunked(pairs);
            }
            self.budget.take_memory(64 + key.as_bytes().len() as u64).map_err(|e| e.at(at))?;
            if !keys.insert(key.clone()) {
                return Err(Error::corrupt("duplicate-key", "duplicate key in a map")
                    .at(at)
                    .found(&key)
                    .hint("Flax uses the last one; other readers differ"));
            }
            self.within(key, Self::value)?;
        }
        for key in keys {
            self.budget.give_memory(64 + key.as_bytes().len() as u64);
        }
        Ok(())
    }

    fn key(&mut self) -> Result<Name> {
        let at = self.position();
        let len = self.reader.length(STR, "the key of a map")?.map_err(|marker| {
            Error::unsupported("flax-key", "the key of a map is not a string")
                .at(at)
                .expected("a string")
                .found(format_args!("{} ({marker:02x})", marker_name(marker)))
                .hint("flax.serialization.to_bytes writes string keys only")
        })?;
        self.reader.cursor.need(len.into(), "the key of a map")?;
        Limits::check("bytes in a name", "name_bytes", len.into(), self.limits.name_bytes)
            .map_err(|e| e.at(at))?;
        Ok(Name::new(self.reader.cursor.bytes(len.into(), "the key of a map")?))
    }

    /// Reads an array of MessagePack that contains tensors, from its header at `at`.
    fn array(&mut self, at: u64) -> Result<()> {
        self.reader.cursor = Cursor::new(self.source.clone(), at);
        let Item::Array(items) = self.reader.item("an array")? else { return Ok(()) };
        self.charge()?;
        self.content.arrays.push(self.path());
        for number in 0..items {
            self.within(Name::from(number.to_string().as_str()), Self::value)?;
        }
        Ok(())
    }

    /// Reads a list of plain values; `None` if it contains a tensor.
    fn plain_list(&mut self, items: u32, depth: usize) -> Result<Option<Value>> {
        self.reader.cursor.need(items.into(), "an array")?;
        Budget::check_depth(depth).map_err(|e| e.at(self.position()))?;
        let mut list = Vec::new();
        for _ in 0..items {
            self.budget.take_work(16)?;
            let value = match self.reader.item("a value")? {
                Item::Array(items) => self.plain_list(items, depth + 1)?,
                Item::Map(pairs) => self.plain_map(pairs, depth + 1)?,
                Item::Ext { .. } => None,
                item => Some(self.plain(item)?),
            };
            let Some(value) = value else { return Ok(None) };
            self.budget.take_memory(64)?;
            list.push(value);
        }
        Ok(Some(Value::List(list)))
    }

    /// Reads a map of plain values inside a list; `None` if it contains a tensor.
    fn plain_map(&mut self, pairs: u32, depth: usize) -> Result<Option<Value>> {
        self.reader.cursor.need(u64::from(pairs).saturating_mul(2), "a map")?;
        Budget::check_depth(depth).map_err(|e| e.at(self.position()))?;
        let mut map = Vec::new();
        for _ in 0..pairs {
            self.budget.take_work(16)?;
            let key = self.key()?;
            let value = match self.reader.item("a value")? {
                Item::Array(items) => self.plain_list(items, depth + 1)?,
                Item::Map(pairs) => self.plain_map(pairs, depth + 1)?,
                Item::Ext { .. } => None,
                item => Some(self.plain(item)?),
            };
            let Some(value) = value else { return Ok(None) };
            self.budget.take_memory(96 + key.as_bytes().len() as u64)?;
            map.push((key, value));
        }
        Ok(Some(Value::Map(map)))
    }

    /// Reads the rest of a value that is neither a container nor an extension.
    fn plain(&mut self, item: Item) -> Result<Value> {
        let at = self.position();
        Ok(match item {
            Item::Bool(value) => Value::Bool(value),
            Item::Uint(value) => Value::U64(value),
            Item::Int(value) => Value::I64(value),
            Item::F32(bits) => Value::F32(bits),
            Item::F64(bits) => Value::F64(bits),
            Item::Bin(len) => Value::Bytes(self.bytes(len, "bytes")?),
            Item::Str(len) => {
                let text = String::from_utf8(self.bytes(len, "a text")?);
                Value::Text(text.map_err(|e| {
                    let at = at + e.utf8_error().valid_up_to() as u64;
                    Error::corrupt("not-utf8", "a text is not UTF-8").at(at)
                })?)
            }
            // Containers and extensions are read by the callers.
            Item::Nil | Item::Array(_) | Item::Map(_) | Item::Ext { .. } => Value::Null,
        })
    }

    fn bytes(&mut self, len: u32, what: &str) -> Result<Vec<u8>> {
        self.reader.cursor.need(len.into(), what)?;
        self.budget.take_memory(len.into()).map_err(|e| e.at(self.position()))?;
        self.reader.cursor.bytes(len.into(), what)
    }

    /// Reads an extension that is not an array: a complex number, or one unknown to Flax.
    fn extension(&mut self, kind: i8, len: u32) -> Result<Value> {
        let at = self.position();
        let bytes = self.bytes(len, "an extension")?;
        if kind != COMPLEX {
            return Ok(Value::Bytes(bytes));
        }
        // Two float64 in an array.
        match bytes.as_slice() {
            &[0x92, 0xcb, a, b, c, d, e, f, g, h, 0xcb, i, j, k, l, m, n, o, p] => Ok(Value::List(vec![
                Value::F64(u64::from_be_bytes([a, b, c, d, e, f, g, h])),
                Value::F64(u64::from_be_bytes([i, j, k, l, m, n, o, p])),
            ])),
            _ => Err(Error::corrupt("flax-complex", "a complex number is not encoded as Flax encodes it")
                .at(at)
                .expected("an array of two float64")),
        }
    }

    fn tensor(&mut self, kind: i8, len: u32) -> Result<()> {
        let read = array::read(&mut self.reader, len, self.limits)?;
        self.content.is_bare = self.path.is_empty();
        let path = if self.content.is_bare { TensorPath::value() } else { self.path() };
        self.charge()?;
        match read {
            Read::OtherDType(name) => {
                self.skip(&path, &name);
                Ok(())
            }
            Read::Array(Array { dtype, shape, offset, .. }) => {
                let mut entry = TensorEntry::dense(path, dtype, shape, self.source, offset, Encoding::ROW)?;
                if kind == SCALAR {
                    entry.attributes.insert(IS_SCALAR.to_owned(), Value::Bool(true));
                }
                self.push(entry)
            }
        }
    }

    fn skip(&mut self, path: &TensorPath, dtype: &str) {
        let note = Note::skipped_tensor(path.to_text(), format!("its dtype {dtype} is not supported"));
        self.content.notes.push(note.of_state(crate::roles::is_state(path)));
    }

    fn push(&mut self, entry: TensorEntry) -> Result<()> {
        let count = self.content.tensors.len() as u64 + 1;
        Limits::check("tensors", "tensors", count, self.limits.tensors).map_err(|e| e.at(self.position()))?;
        self.content.tensors.push(entry);
        Ok(())
    }

    /// Reads an array in parts, after the first key of its map.
    fn chunked(&mut self, pairs: u32) -> Result<()> {
        let at = self.position();
        if pairs != 3 || self.reader.item("a value")? != Item::Bool(true) {
            return Err(chunks(at).expected("the keys shape and chunks"));
        }
        self.named("shape")?;
        let mut dims = Vec::new();
        for number in 0..self.numbered(self.limits.dimensions)? {
            self.named(&number.to_string())?;
            let at = self.position();
            match self.reader.item("a dimension")? {
                Item::Uint(dim) => dims.push(dim),
                _ => return Err(chunks(at).expected("a dimension of at least 0")),
            }
        }
        let shape = Shape::new(dims);
        self.named("chunks")?;
        let mut parts: Vec<Array> = Vec::new();
        let mut other = None;
        let count = self.numbered(u64::MAX)?;
        for number in 0..count {
            self.named(&number.to_string())?;
            let at = self.position();
            let Item::Ext { kind: NDARRAY, len } = self.reader.item("a part of an array")? else {
                return Err(chunks(at).expected("an array"));
            };
            match array::read(&mut self.reader, len, self.limits)? {
                Read::OtherDType(name) => other = Some(name),
                Read::Array(array) => {
                    if array.shape.rank() != 1
                        || parts.first().is_some_and(|first| first.dtype != array.dtype)
                    {
                        return Err(chunks(at).expected("parts of one dimension and one dtype"));
                    }
                    self.budget.take_memory(ENTRY)?;
                    parts.push(array);
                }
            }
        }
        let path = self.path();
        self.charge()?;
        let first = match (other, parts.first()) {
            (None, Some(first)) => first,
            (Some(name), _) => {
                self.skip(&path, &name);
                return Ok(());
            }
            (None, None) => return Err(chunks(at).expected("at least one part")),
        };
        let elements = first.shape.elements().unwrap_or(0);
        let (dtype, total) = (first.dtype, parts.iter().fold(0u64, |sum, part| sum.saturating_add(part.len)));
        if shape.bytes(dtype) != Some(total) {
            return Err(Error::corrupt(
                "length-mismatch",
                "the length of the elements does not match dtype and shape",
            )
            .at(at)
            .found(format_args!("{} for {dtype} {shape}", counted(total, "byte", "bytes"))));
        }
        let ranges = parts.iter().map(|part| (self.source.clone(), part.offset, part.len)).collect();
        let joined: SourceRef = Arc::new(ConcatSource::new(self.source.label(), ranges)?);
        let mut entry = TensorEntry::dense(path, dtype, shape, &joined, 0, Encoding::ROW)?;
        entry.attributes.insert(CHUNK.to_owned(), Value::U64(elements));
        self.push(entry)
    }

    /// Reads a key that must be `name`.
    fn named(&mut self, name: &str) -> Result<()> {
        let at = self.position();
        let key = self.key()?;
        if key.as_bytes() == name.as_bytes() { Ok(()) } else { Err(chunks(at).expected(name).found(key)) }
    }

    /// Reads the header of a map of at most `most` pairs.
    fn numbered(&mut self, most: u64) -> Result<u32> {
        let at = self.position();
        let Item::Map(pairs) = self.reader.item("a map")? else { return Err(chunks(at).expected("a map")) };
        self.reader.cursor.need(u64::from(pairs).saturating_mul(2), "a map")?;
        Limits::check("dimensions", "dimensions", pairs.into(), most).map_err(|e| e.at(at))?;
        Ok(pairs)
    }
}

fn chunks(at: u64) -> Error {
    Error::corrupt("flax-chunks", "an array in parts is not encoded as Flax encodes it").at(at)
}

/// Returns true for the beginning of a tree of Flax: maps with string keys, down to the first array.
pub(crate) fn is_tree(source: &SourceRef) -> bool {
    // Maps nested more deeply, or with more values before the first array, are not detected.
    const MAX_ITEMS: usize = 10_000;
    let mut reader = Reader::new(Cursor::new(source.clone(), 0));
    for number in 0..MAX_ITEMS {
        let Ok(item) = reader.item("a value") else { return false };
        let skipped = match item {
            // The pairs of maps follow each other: only the first item must be a container.
            Item::Map(count) | Item::Array(count) if count > 0 || number > 0 => 0,
            Item::Ext { kind: NDARRAY | SCALAR, len } => {
                let read = array::read(&mut reader, len, &Limits::default());
                // The elements may be cut off.
                return match read {
                    Ok(_) => true,
                    Err(error) => {
                        error.code() == "truncated"
                            && reader.position() < source.len()
                            && is_array(source, reader.position())
                    }
                };
            }
            _ if number == 0 => return false,
            Item::Str(len) | Item::Bin(len) | Item::Ext { len, .. } => len,
            _ => 0,
        };
        if reader.cursor.skip(skipped.into(), "a value").is_err() {
            return false;
        }
    }
    false
}

/// Returns true for the header of an array with a shape at an offset.
fn is_array(source: &SourceRef, at: u64) -> bool {
    let mut head = [0; 2];
    source.read_at(at, &mut head).is_ok() && head[0] == 0x93 && matches!(head[1], 0x90..=0x9f | 0xdc)
}

/// Returns true for a file of MessagePack: a tree, even without arrays.
pub(crate) fn is_any(source: &SourceRef) -> bool {
    let mut head = [0];
    source.read_at(0, &mut head).is_ok() && matches!(head[0], 0x80..=0x8f | 0xde | 0xdf)
}
