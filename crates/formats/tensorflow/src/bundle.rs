//! Index of a checkpoint: its header and its entries.

use crate::dtype;
use crate::ordered::Range;
use crate::wire::{Fields, Value, put_bytes, put_fixed32, put_int};
use weighbridge_core::error::{Error, Result};

/// Key of the graph of objects.
pub(crate) const OBJECT_GRAPH: &[u8] = b"_CHECKPOINTABLE_OBJECT_GRAPH";
/// Version of the format.
const VERSION: u64 = 1;
/// Length of a dimension that is not known, and of a slice that is a whole dimension.
const ALL: i64 = -1;

/// Header of an index: the entry with an empty key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    /// Number of data files.
    pub(crate) shards: u64,
}

impl Header {
    /// Parses the header.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Unsupported`] for big-endian elements and newer versions; [`weighbridge_core::Kind::Corrupt`].
    pub(crate) fn parse(message: &[u8]) -> Result<Self> {
        let (mut shards, mut order, mut consumer) = (0, 0, 0);
        for field in Fields::of(message) {
            let field = field?;
            match (field.number, field.value) {
                (1, Value::Varint(value)) => shards = value,
                (2, Value::Varint(value)) => order = value,
                (3, Value::Bytes(version)) => {
                    for field in Fields::of(version) {
                        let field = field?;
                        if field.number == 2 {
                            consumer = field.uint().unwrap_or_default();
                        }
                    }
                }
                // The old format of checkpoints is one table of slices, whose first entry describes all of them.
                (1, Value::Bytes(_)) => {
                    return Err(Error::unsupported(
                        "format-version",
                        "checkpoints of version 1 are not read",
                    )
                    .expected("a checkpoint of version 2: an .index file with data files")
                    .hint("load it with tf.compat.v1.train.Saver, and save it again"));
                }
                _ => {}
            }
        }
        if order != 0 {
            return Err(Error::unsupported("big-endian", "the elements are big-endian, which is not read")
                .hint("save the checkpoint again on a little-endian machine"));
        }
        if consumer > VERSION {
            return Err(Error::unsupported("format-version", "the checkpoint needs a newer reader")
                .expected(format_args!("version {VERSION} or below"))
                .found(consumer));
        }
        if shards == 0 || shards > i32::MAX.cast_unsigned().into() {
            return Err(Error::corrupt("bad-number", "the number of data files is not possible")
                .expected("1 to 2147483647")
                .found(shards.cast_signed()));
        }
        Ok(Self { shards })
    }

    /// Encodes the header of a checkpoint with one data file.
    pub(crate) fn encode() -> Vec<u8> {
        let mut out = Vec::new();
        put_int(&mut out, 1, 1);
        let mut version = Vec::new();
        put_int(&mut version, 1, VERSION);
        put_bytes(&mut out, 3, &version);
        out
    }
}

/// Entry of a tensor.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Key.
    pub(crate) key: Vec<u8>,
    /// Number of the dtype.
    pub(crate) dtype: u64,
    /// Sizes of the dimensions.
    pub(crate) dims: Vec<i64>,
    /// Number of the data file.
    pub(crate) shard: u64,
    /// Offset in the data file.
    pub(crate) offset: u64,
    /// Length in bytes.
    pub(crate) len: u64,
    /// Masked checksum.
    pub(crate) crc: u32,
    /// Ranges of the slices of a partitioned variable, which have entries of their own.
    pub(crate) slices: Vec<Vec<Range>>,
}

impl Entry {
    /// Parses an entry.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`].
    pub(crate) fn parse(key: &[u8], message: &[u8]) -> Result<Self> {
        let mut entry = Self { key: key.to_vec(), ..Self::default() };
        for field in Fields::of(message) {
            let field = field?;
            match (field.number, field.value) {
                (1, Value::Varint(value)) => entry.dtype = value,
                (2, Value::Bytes(shape)) => entry.dims = dims(shape)?,
                (3, Value::Varint(value)) => entry.shard = value,
                (4, Value::Varint(value)) => entry.offset = value,
                (5, Value::Varint(value)) => entry.len = value,
                (6, Value::Fixed32(value)) => entry.crc = value,
                (7, Value::Bytes(slice)) => entry.slices.push(ranges(slice)?),
                _ => {}
            }
        }
        Ok(entry)
    }

    /// Encodes an entry, with its checksum in any case.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_int(&mut out, 1, self.dtype);
        let mut shape = Vec::new();
        for &size in &self.dims {
            let mut dim = Vec::new();
            // Protobuf omits zeros.
            if size != 0 {
                put_int(&mut dim, 1, size.cast_unsigned());
            }
            put_bytes(&mut shape, 2, &dim);
        }
        put_bytes(&mut out, 2, &shape);
        for (number, value) in [(3, self.shard), (4, self.offset), (5, self.len)] {
            if value != 0 {
                put_int(&mut out, number, value);
            }
        }
        put_fixed32(&mut out, 6, self.crc);
        out
    }

    /// Returns true for a tensor without numbers: text, handles.
    pub(crate) fn is_text(&self) -> bool {
        self.dtype == dtype::STRING
    }
}

/// Parses the sizes of a `TensorShapeProto`.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`].
pub(crate) fn dims(message: &[u8]) -> Result<Vec<i64>> {
    let mut dims = Vec::new();
    for field in Fields::of(message) {
        let field = field?;
        if let (2, Value::Bytes(dim)) = (field.number, field.value) {
            let mut size = 0;
            for field in Fields::of(dim) {
                let field = field?;
                if field.number == 1 {
                    size = field.int().unwrap_or_default();
                }
            }
            dims.push(size);
        }
        // A shape of unknown rank.
        if field.number == 3 && field.uint().unwrap_or_default() != 0 {
            dims.push(ALL);
        }
    }
    Ok(dims)
}

/// Parses the ranges of a slice.
fn ranges(message: &[u8]) -> Result<Vec<Range>> {
    let mut ranges = Vec::new();
    for field in Fields::of(message) {
        let field = field?;
        let (1, Value::Bytes(extent)) = (field.number, field.value) else { continue };
        let (mut begin, mut len) = (0, ALL);
        for field in Fields::of(extent) {
            let field = field?;
            match field.number {
                1 => begin = field.int().unwrap_or_default(),
                2 => len = field.int().unwrap_or_default(),
                _ => {}
            }
        }
        ranges.push((len != ALL || begin != 0).then_some((begin, len)));
    }
    Ok(ranges)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_read_as_written() {
        let entry = Entry {
            key: b"w".to_vec(),
            dtype: 1,
            dims: vec![3, 0, 300],
            shard: 0,
            offset: 1 << 40,
            len: 0,
            crc: 0,
            slices: Vec::new(),
        };
        assert_eq!(Entry::parse(b"w", &entry.encode()).unwrap(), entry);
        assert_eq!(Header::parse(&Header::encode()).unwrap(), Header { shards: 1 });
    }

    #[test]
    fn rejects_headers_of_other_kinds() {
        let code = |message: &[u8]| Header::parse(message).unwrap_err().code().as_str().to_owned();
        assert_eq!(code(&[8, 1, 16, 1]), "big-endian");
        assert_eq!(code(&[8, 1, 26, 4, 8, 1, 16, 2]), "format-version");
        assert_eq!(code(&[10, 2, 8, 1]), "format-version");
        assert_eq!(code(&[8, 0]), "bad-number");
        assert_eq!(code(&[]), "bad-number");
    }
}
