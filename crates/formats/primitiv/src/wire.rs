//! Reader and writer of the MessagePack types of primitiv, as the original encodes them.

use super::{FileKind, Shape};
use weighbridge_core::checkpoint::Name;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_io::source::Cursor;

/// Marker of a uint32.
pub(super) const UINT: u8 = 0xce;
/// Marker of a float32.
const FLOAT: u8 = 0xca;
/// First bytes of every file: version 0.1.
pub(super) const MAGIC: [u8; 10] = *b"\xce\0\0\0\0\xce\0\0\0\x01";

/// Encoding of the length of a variable-length type.
#[derive(Debug, Clone, Copy)]
pub(super) struct Family {
    name: &'static str,
    /// Marker with a length from 0 to the given maximum in its low bits.
    fix: Option<(u8, u8)>,
    /// Markers with the number of length bytes that follow, shortest first.
    wide: &'static [(u8, usize)],
}

pub(super) const STR: Family =
    Family { name: "a string", fix: Some((0xa0, 31)), wide: &[(0xd9, 1), (0xda, 2), (0xdb, 4)] };
pub(super) const BIN: Family = Family { name: "a bin", fix: None, wide: &[(0xc4, 1), (0xc5, 2), (0xc6, 4)] };
pub(super) const ARRAY: Family =
    Family { name: "an array", fix: Some((0x90, 15)), wide: &[(0xdc, 2), (0xdd, 4)] };
pub(super) const MAP: Family = Family { name: "a map", fix: Some((0x80, 15)), wide: &[(0xde, 2), (0xdf, 4)] };

/// Sequential reader that counts headers longer than necessary.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) cursor: Cursor,
    /// Number of such headers, and the offset of the first one.
    pub(super) long_headers: Option<(u64, u64)>,
}

impl Wire {
    pub(super) fn new(cursor: Cursor) -> Self {
        Self { cursor, long_headers: None }
    }

    pub(super) fn position(&self) -> u64 {
        self.cursor.position()
    }

    /// Reads a uint32. Shorter integers are refused, as in the original.
    pub(super) fn uint(&mut self, what: &str) -> Result<u32> {
        self.marker(UINT, "a uint32 (ce)", what)?;
        Ok(u32::from_be_bytes(self.cursor.array(what)?))
    }

    /// Reads the bits of a float32.
    pub(super) fn float_bits(&mut self, what: &str) -> Result<u32> {
        self.marker(FLOAT, "a float32 (ca)", what)?;
        Ok(u32::from_be_bytes(self.cursor.array(what)?))
    }

    fn marker(&mut self, wanted: u8, expected: &str, what: &str) -> Result<()> {
        let at = self.position();
        let [marker] = self.cursor.array(what)?;
        if marker == wanted { Ok(()) } else { Err(wrong_marker(marker, expected, what, at)) }
    }

    /// Reads the length of a string, bin, array or map, without checking it.
    pub(super) fn length(&mut self, family: Family, what: &str) -> Result<u32> {
        let at = self.position();
        let [marker] = self.cursor.array(what)?;
        let fixed = family.fix.and_then(|(base, most)| marker.checked_sub(base).filter(|&n| n <= most));
        if let Some(len) = fixed {
            return Ok(u32::from(len));
        }
        let width = family.wide.iter().find(|&&(wide, _)| wide == marker).map(|&(_, width)| width);
        let len = match width {
            Some(1) => u32::from(self.cursor.array::<1>(what)?[0]),
            Some(2) => u32::from(u16::from_be_bytes(self.cursor.array(what)?)),
            Some(_) => u32::from_be_bytes(self.cursor.array(what)?),
            None => return Err(wrong_marker(marker, family.name, what, at)),
        };
        let mut shortest = Vec::with_capacity(5);
        put_length(&mut shortest, family, len);
        if shortest.first() != Some(&marker) {
            self.long_headers.get_or_insert((0, at)).0 += 1;
        }
        Ok(len)
    }

    /// Reads a string of at most `most` bytes.
    pub(super) fn name(&mut self, what: &str, most: u64) -> Result<Name> {
        let at = self.position();
        let len = u64::from(self.length(STR, what)?);
        if len == 0 {
            return Ok(Name::default());
        }
        self.cursor.need(len, what)?;
        Limits::check("bytes in a name", "name_bytes", len, most).map_err(|e| e.at(at))?;
        Ok(Name::new(self.cursor.bytes(len, what)?))
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

/// MessagePack type of a marker.
fn marker_name(marker: u8) -> &'static str {
    match marker {
        0x00..=0x7f => "a small integer",
        0x80..=0x8f | 0xde | 0xdf => "a map",
        0x90..=0x9f | 0xdc | 0xdd => "an array",
        0xa0..=0xbf | 0xd9..=0xdb => "a string",
        0xc0 => "nil",
        0xc1 => "a byte that MessagePack never uses",
        0xc2 | 0xc3 => "a bool",
        0xc4..=0xc6 => "a bin",
        0xc7..=0xc9 | 0xd4..=0xd8 => "an extension",
        0xca => "a float32",
        0xcb => "a float64",
        0xcc => "a uint8",
        0xcd => "a uint16",
        0xce => "a uint32",
        0xcf => "a uint64",
        0xd0..=0xd3 => "a signed integer",
        0xe0..=0xff => "a small negative integer",
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

/// Appends the shortest header for `len`.
pub(super) fn put_length(out: &mut Vec<u8>, family: Family, len: u32) {
    let bytes = len.to_be_bytes();
    if let Some((base, most)) = family.fix
        && len <= u32::from(most)
    {
        out.push(base | bytes[3]);
        return;
    }
    for &(marker, width) in family.wide {
        let (high, low) = bytes.split_at(bytes.len() - width);
        if high.iter().all(|&byte| byte == 0) {
            out.push(marker);
            out.extend_from_slice(low);
            return;
        }
    }
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
