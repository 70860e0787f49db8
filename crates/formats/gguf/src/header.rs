//! Header of a file: metadata, and the descriptions of the tensors.

use crate::value::{ARRAY, Scalar, Type};
use weighbridge_core::budget::Budget;
use weighbridge_core::checkpoint::{Value, escape_text};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_io::source::{Cursor, SourceRef, to_usize};

/// First bytes of a file, in both byte orders.
pub(crate) const MAGIC: [u8; 4] = *b"GGUF";
/// Metadata key of the alignment of tensors in bytes.
pub(crate) const ALIGNMENT: &str = "general.alignment";
/// Alignment of files without the key.
pub(crate) const DEFAULT_ALIGNMENT: u32 = 32;
/// Memory of a metadata value, and of a tensor in the index, without their texts and items.
const PAIR: u64 = 200;
const TENSOR: u64 = 900;
/// Memory of an item of a list.
const ITEM: u64 = size_of::<Value>() as u64;

/// Header of a file.
#[derive(Debug)]
pub(crate) struct Header {
    /// Version of the file format.
    pub(crate) version: u32,
    /// True for numbers and elements in big-endian byte order.
    pub(crate) is_big_endian: bool,
    /// Metadata with their types.
    pub(crate) pairs: Vec<(String, Value, Type)>,
    /// Descriptions of the tensors.
    pub(crate) tensors: Vec<Described>,
    /// Alignment of tensors in bytes.
    pub(crate) alignment: u64,
    /// Offset of the end of the header.
    pub(crate) end: u64,
    /// Offset of the data.
    pub(crate) data: u64,
}

/// Description of a tensor.
#[derive(Debug)]
pub(crate) struct Described {
    /// Name.
    pub(crate) name: String,
    /// Dimensions in logical order: the last one is contiguous.
    pub(crate) dims: Vec<u64>,
    /// Number of the element type.
    pub(crate) kind: u32,
    /// Offset of the elements in the data.
    pub(crate) offset: u64,
    /// Offset of the description in the file.
    pub(crate) at: u64,
}

impl Header {
    /// Returns the value of a metadata key.
    pub(crate) fn get(&self, key: &str) -> Option<&Value> {
        self.pairs.iter().find(|pair| pair.0 == key).map(|pair| &pair.1)
    }

    /// Reads the header of `source`.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`], [`weighbridge_core::Kind::Unsupported`] or [`weighbridge_core::Kind::Limit`], with the offset.
    pub(crate) fn read(source: &SourceRef, limits: &Limits) -> Result<Self> {
        let mut reader = Reader::new(source, limits)?;
        let (tensors, pairs) = (reader.count("the number of tensors")?, reader.count("the number of keys")?);
        Limits::check("tensors", "tensors", tensors, limits.tensors).map_err(|e| e.at(8))?;
        let pairs = reader.pairs(pairs)?;
        let tensors = reader.tensors(tensors)?;
        let end = reader.cursor.position();
        let alignment = alignment(&pairs)?;
        let data = end.next_multiple_of(alignment);
        let (version, is_big_endian) = (reader.version, reader.is_big_endian);
        Ok(Self { version, is_big_endian, pairs, tensors, alignment, end, data })
    }
}

/// Returns the alignment that the metadata state.
fn alignment(pairs: &[(String, Value, Type)]) -> Result<u64> {
    let Some((_, value, kind)) = pairs.iter().find(|pair| pair.0 == ALIGNMENT) else {
        return Ok(DEFAULT_ALIGNMENT.into());
    };
    match (value, kind) {
        (&Value::U32(alignment), Type::One(Scalar::U32)) if alignment.is_power_of_two() => {
            Ok(alignment.into())
        }
        (value, kind) => {
            Err(Error::corrupt("wrong-value", format!("the metadata key {ALIGNMENT} is not an alignment"))
                .expected("a power of two of type u32")
                .found(format_args!("{} of type {kind}", escape_text(&value.to_json().to_string()))))
        }
    }
}

/// Returns version and byte order of the first 8 bytes of a file.
pub(crate) fn version(head: [u8; 8]) -> Option<(u32, bool)> {
    let [m0, m1, m2, m3, v0, v1, v2, v3] = head;
    let version = [v0, v1, v2, v3];
    // No version has a number above 2^16: zeros in the low half are another byte order.
    let is_big_endian = v0 == 0 && v1 == 0 && version != [0; 4];
    let number = if is_big_endian { u32::from_be_bytes(version) } else { u32::from_le_bytes(version) };
    ([m0, m1, m2, m3] == MAGIC).then_some((number, is_big_endian))
}

struct Reader<'a> {
    cursor: Cursor,
    limits: &'a Limits,
    budget: Budget,
    version: u32,
    is_big_endian: bool,
}

impl<'a> Reader<'a> {
    fn new(source: &SourceRef, limits: &'a Limits) -> Result<Self> {
        let mut cursor = Cursor::new(source.clone(), 0);
        let head = cursor.array::<8>("the magic number and the version")?;
        let Some((number, is_big_endian)) = version(head) else {
            return Err(Error::corrupt("wrong-value", "not a GGUF file: wrong magic number")
                .at(0)
                .expected("GGUF")
                .found(escape_text(&String::from_utf8_lossy(&head[..4]))));
        };
        if !(1..=3).contains(&number) {
            return Err(Error::unsupported("unknown-version", "unknown version of GGUF")
                .at(4)
                .expected("1, 2 or 3")
                .found(number));
        }
        let budget = limits.budget_of(source);
        Ok(Self { cursor, limits, budget, version: number, is_big_endian })
    }

    fn u32(&mut self, what: &str) -> Result<u32> {
        let bytes = self.cursor.array::<4>(what)?;
        Ok(if self.is_big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    }

    fn u64(&mut self, what: &str) -> Result<u64> {
        let bytes = self.cursor.array::<8>(what)?;
        Ok(if self.is_big_endian { u64::from_be_bytes(bytes) } else { u64::from_le_bytes(bytes) })
    }

    /// Reads a count, a length or a dimension: 32 bits in version 1.
    fn count(&mut self, what: &str) -> Result<u64> {
        if self.version == 1 { self.u32(what).map(u64::from) } else { self.u64(what) }
    }

    /// Rejects `len` more bytes of a header that is too long. They are within the file.
    fn check(&self, len: u64, what: &str) -> Result<()> {
        self.cursor.need(len, what)?;
        let claim = self.cursor.position().saturating_add(len);
        Limits::check_part("bytes of header", "header_bytes", claim, self.limits.header_bytes, 1)
            .map_err(|e| e.at(self.cursor.position()))
    }

    fn bytes(&mut self, what: &str) -> Result<Vec<u8>> {
        let len = self.count(what)?;
        self.check(len, what)?;
        self.budget.take_memory(len)?;
        self.cursor.bytes(len, what)
    }

    /// Reads a name or a key.
    fn name(&mut self, what: &str) -> Result<String> {
        let at = self.cursor.position();
        let name = self.bytes(what)?;
        Limits::check("bytes in a name", "name_bytes", name.len() as u64, self.limits.name_bytes)
            .map_err(|e| e.at(at))?;
        String::from_utf8(name).map_err(|error| {
            let found = escape_text(&String::from_utf8_lossy(error.as_bytes()));
            Error::corrupt("not-utf8", format!("{what} is not UTF-8")).at(at).found(found)
        })
    }

    fn pairs(&mut self, count: u64) -> Result<Vec<(String, Value, Type)>> {
        let mut pairs = Vec::new();
        let mut known = std::collections::HashSet::new();
        for _ in 0..count {
            let at = self.cursor.position();
            self.budget.take_memory(PAIR)?;
            let key = self.name("a metadata key")?;
            let kind = self.u32("the type of a metadata value")?;
            let read = self.value(kind, 0);
            let (value, kind) =
                read.map_err(|e| e.within(format_args!("metadata key {}", escape_text(&key))))?;
            if !known.insert(key.clone()) {
                return Err(Error::corrupt("duplicate-key", "duplicate metadata key")
                    .at(at)
                    .found(escape_text(&key)));
            }
            pairs.push((key, value, kind));
        }
        Ok(pairs)
    }

    fn value(&mut self, kind: u32, depth: usize) -> Result<(Value, Type)> {
        let at = self.cursor.position();
        if kind == ARRAY {
            return self.array(depth + 1);
        }
        let Some(scalar) = Scalar::of_id(kind) else {
            return Err(Error::corrupt("unknown-type", "unknown type of a metadata value")
                .at(at.saturating_sub(4))
                .expected("0 to 12")
                .found(kind));
        };
        let value = match scalar.size() {
            None => text(self.bytes("a metadata value")?),
            Some(size) => {
                self.check(size, "a metadata value")?;
                let bytes = self.cursor.bytes(size, "a metadata value")?;
                self.number(scalar, &bytes).ok_or_else(|| not_bool(at, &bytes))?
            }
        };
        Ok((value, Type::One(scalar)))
    }

    /// Decodes a number in the byte order of the file.
    fn number(&self, scalar: Scalar, bytes: &[u8]) -> Option<Value> {
        let mut wide = [0; 8];
        let order = |(to, from): (&mut u8, &u8)| *to = *from;
        match self.is_big_endian {
            true => wide.iter_mut().zip(bytes.iter().rev()).for_each(order),
            false => wide.iter_mut().zip(bytes).for_each(order),
        }
        scalar.decode(wide)
    }

    fn array(&mut self, depth: usize) -> Result<(Value, Type)> {
        const WHAT: &str = "a metadata array";
        Budget::check_depth(depth)?;
        let at = self.cursor.position();
        let kind = self.u32(WHAT)?;
        let count = self.count(WHAT)?;
        let array = |item| Type::Array(Some(Box::new(item)));
        if kind == ARRAY {
            return self.nested(count, depth);
        }
        let Some(scalar) = Scalar::of_id(kind) else {
            return Err(Error::corrupt("unknown-type", "unknown type of the items of a metadata array")
                .at(at)
                .expected("0 to 12")
                .found(kind));
        };
        let Some(size) = scalar.size() else {
            let mut items = Vec::new();
            for _ in 0..count {
                self.budget.take_memory(ITEM)?;
                items.push(text(self.bytes(WHAT)?));
            }
            return Ok((Value::List(items), array(Type::One(scalar))));
        };
        let len = count.saturating_mul(size);
        self.check(len, WHAT)?;
        self.budget.take_memory(if scalar == Scalar::U8 { len } else { count.saturating_mul(ITEM) })?;
        let at = self.cursor.position();
        let bytes = self.cursor.bytes(len, WHAT)?;
        if scalar == Scalar::U8 {
            return Ok((Value::Bytes(bytes), array(Type::One(scalar))));
        }
        // The memory was taken: an exact capacity saves as much again.
        let mut items = Vec::with_capacity(to_usize(count)?);
        for (place, bytes) in bytes.chunks_exact(to_usize(size)?).enumerate() {
            items.push(self.number(scalar, bytes).ok_or_else(|| not_bool(at + place as u64, bytes))?);
        }
        Ok((Value::List(items), array(Type::One(scalar))))
    }

    /// Reads an array of arrays, all of the same type.
    fn nested(&mut self, count: u64, depth: usize) -> Result<(Value, Type)> {
        let (mut items, mut kind) = (Vec::new(), None);
        for _ in 0..count {
            let at = self.cursor.position();
            self.budget.take_memory(ITEM)?;
            let (value, own) = self.array(depth + 1)?;
            items.push(value);
            match &kind {
                None => kind = Some(own),
                Some(first) if *first == own => {}
                Some(first) => {
                    let message = "a metadata array has arrays of different types";
                    return Err(Error::unsupported("unknown-type", message)
                        .at(at)
                        .expected(first)
                        .found(own));
                }
            }
        }
        let item = kind.unwrap_or(Type::Array(None));
        Ok((Value::List(items), Type::Array(Some(Box::new(item)))))
    }

    fn tensors(&mut self, count: u64) -> Result<Vec<Described>> {
        const WHAT: &str = "the description of a tensor";
        let mut tensors = Vec::new();
        for _ in 0..count {
            let at = self.cursor.position();
            self.budget.take_memory(TENSOR)?;
            let name = self.name("the name of a tensor")?;
            let on_tensor = |e: Error| e.on_tensor(escape_text(&name));
            let rank = self.u32(WHAT).map_err(on_tensor)?;
            Limits::check("dimensions", "dimensions", rank.into(), self.limits.dimensions)
                .map_err(|e| on_tensor(e.at(at)))?;
            let mut dims = Vec::new();
            for _ in 0..rank {
                dims.push(self.count(WHAT).map_err(on_tensor)?);
            }
            // The file has the contiguous dimension first.
            dims.reverse();
            let kind = self.u32(WHAT).map_err(on_tensor)?;
            let offset = self.u64(WHAT).map_err(on_tensor)?;
            self.check(0, WHAT)?;
            tensors.push(Described { name, dims, kind, offset, at });
        }
        Ok(tensors)
    }
}

/// Returns text; bytes where it is not UTF-8.
fn text(bytes: Vec<u8>) -> Value {
    String::from_utf8(bytes).map_or_else(|error| Value::Bytes(error.into_bytes()), Value::Text)
}

fn not_bool(at: u64, bytes: &[u8]) -> Error {
    Error::corrupt("wrong-value", "a metadata value is not a boolean")
        .at(at)
        .expected("0 or 1")
        .found(bytes.first().copied().unwrap_or(0))
}
