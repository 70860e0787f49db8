//! Reader and writer of the MessagePack types of primitiv, as the original encodes them.

use super::{FileKind, Shape};
use weighbridge_core::checkpoint::Name;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_io::source::Cursor;
pub(super) use weighbridge_msgpack::{ARRAY, BIN, MAP, STR, put_length};
use weighbridge_msgpack::{Family, Reader, marker_name};

/// Marker of a uint32.
pub(super) const UINT: u8 = 0xce;
/// Marker of a float32.
const FLOAT: u8 = 0xca;
/// First bytes of every file: version 0.1.
pub(super) const MAGIC: [u8; 10] = *b"\xce\0\0\0\0\xce\0\0\0\x01";

/// Sequential reader of the types of primitiv.
#[derive(Debug)]
pub(super) struct Wire(Reader);

impl Wire {
    pub(super) fn new(cursor: Cursor) -> Self {
        Self(Reader::new(cursor))
    }

    pub(super) fn cursor(&self) -> &Cursor {
        &self.0.cursor
    }

    /// Skips `len` bytes without reading them.
    pub(super) fn skip(&mut self, len: u64, what: &str) -> Result<()> {
        self.0.cursor.skip(len, what)
    }

    /// Number of headers longer than necessary, and the offset of the first one.
    pub(super) fn long_headers(&self) -> Option<(u64, u64)> {
        self.0.long_headers
    }

    pub(super) fn position(&self) -> u64 {
        self.0.cursor.position()
    }

    /// Reads a uint32. Shorter integers are refused, as in the original.
    pub(super) fn uint(&mut self, what: &str) -> Result<u32> {
        self.marker(UINT, "a uint32 (ce)", what)?;
        Ok(u32::from_be_bytes(self.0.cursor.array(what)?))
    }

    /// Reads the bits of a float32.
    pub(super) fn float_bits(&mut self, what: &str) -> Result<u32> {
        self.marker(FLOAT, "a float32 (ca)", what)?;
        Ok(u32::from_be_bytes(self.0.cursor.array(what)?))
    }

    fn marker(&mut self, wanted: u8, expected: &str, what: &str) -> Result<()> {
        let at = self.position();
        let [marker] = self.0.cursor.array(what)?;
        if marker == wanted { Ok(()) } else { Err(wrong_marker(marker, expected, what, at)) }
    }

    /// Reads the length of a string, bin, array or map, without checking it.
    pub(super) fn length(&mut self, family: Family, what: &str) -> Result<u32> {
        let at = self.position();
        self.0.length(family, what)?.map_err(|marker| wrong_marker(marker, family.name, what, at))
    }

    /// Reads a string of at most `most` bytes.
    pub(super) fn name(&mut self, what: &str, most: u64) -> Result<Name> {
        let at = self.position();
        let len = u64::from(self.length(STR, what)?);
        if len == 0 {
            return Ok(Name::default());
        }
        self.0.cursor.need(len, what)?;
        Limits::check("bytes in a name", "name_bytes", len, most).map_err(|e| e.at(at))?;
        Ok(Name::new(self.0.cursor.bytes(len, what)?))
    }
}

fn wrong_marker(marker: u8, expected: &str, what: &str, at: u64) -> Error {
    let error = Error::corrupt("primitiv-marker", format!("{what} has the wrong MessagePack type"))
        .at(at)
        .expected(expected)
        .found(format_args!("{} ({marker:02x})", marker_name(marker)));
    if expected.contains("int") && matches!(marker, 0..0x80 | 0xcc | 0xcd | 0xcf..=0xd3 | 0xe0..) {
        error.hint("write integers as uint32 (ce): general MessagePack writers shorten them, and primitiv reads only ce")
    } else {
        error
    }
}

/// Appends the header of a file of this kind.
pub(super) fn put_header(out: &mut Vec<u8>, kind: FileKind) {
    out.extend_from_slice(&MAGIC);
    put_uint(out, kind.number());
}

pub(super) fn put_uint(out: &mut Vec<u8>, value: u32) {
    out.push(UINT);
    out.extend_from_slice(&value.to_be_bytes());
}

pub(super) fn put_float_bits(out: &mut Vec<u8>, bits: u32) {
    out.push(FLOAT);
    out.extend_from_slice(&bits.to_be_bytes());
}

/// Appends a string.
///
/// # Errors
/// [`weighbridge_core::Kind::Mismatch`] for 2^32 bytes and more.
pub(super) fn put_name(out: &mut Vec<u8>, name: &Name) -> Result<()> {
    put_length(out, STR, count("bytes of a name", name.as_bytes().len())?);
    out.extend_from_slice(name.as_bytes());
    Ok(())
}

pub(super) fn put_shape(out: &mut Vec<u8>, shape: &Shape) {
    // A shape has at most 8 dimensions.
    put_length(out, ARRAY, u32::try_from(shape.dims().len()).unwrap_or(0));
    for &dim in shape.dims() {
        put_uint(out, dim);
    }
    put_uint(out, shape.batch());
}

/// Converts a count to 32 bits.
///
/// # Errors
/// [`weighbridge_core::Kind::Mismatch`] for 2^32 and more.
pub(super) fn count(what: &str, n: usize) -> Result<u32> {
    u32::try_from(n).map_err(|_| {
        Error::mismatch("too-many", format!("the number of {what} exceeds 32 bits"))
            .expected("at most 4294967295")
            .found(n)
    })
}
