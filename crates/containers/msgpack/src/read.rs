//! Sequential reader of headers.

use super::{ARRAY, BIN, Family, MAP, STR, put_int, put_length, put_uint};
use weighbridge_core::error::{Error, Result};
use weighbridge_io::source::Cursor;

/// Header of an object. Lengths are not compared with the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Item {
    /// Nil.
    Nil,
    /// Boolean.
    Bool(bool),
    /// Integer of at least 0.
    Uint(u64),
    /// Negative integer.
    Int(i64),
    /// Bits of a float32.
    F32(u32),
    /// Bits of a float64.
    F64(u64),
    /// String of that many bytes, which follow.
    Str(u32),
    /// Bin of that many bytes, which follow.
    Bin(u32),
    /// Array of that many items, which follow.
    Array(u32),
    /// Map of that many pairs, which follow.
    Map(u32),
    /// Extension of that type and number of bytes, which follow.
    Ext {
        /// Type.
        kind: i8,
        /// Number of bytes.
        len: u32,
    },
}

/// Sequential reader that counts headers longer than necessary.
#[derive(Debug)]
pub struct Reader {
    /// Position in the source.
    pub cursor: Cursor,
    /// Number of headers longer than necessary, and the offset of the first one.
    pub long_headers: Option<(u64, u64)>,
}

impl Reader {
    /// Creates a reader at the position of `cursor`.
    pub fn new(cursor: Cursor) -> Self {
        Self { cursor, long_headers: None }
    }

    /// Returns the offset of the next byte.
    pub fn position(&self) -> u64 {
        self.cursor.position()
    }

    /// Reads the next header. `what` names the object in errors: `the value of a key`.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`]: `truncated` at the end of the source, `msgpack-marker` for the byte that MessagePack
    /// never uses.
    pub fn item(&mut self, what: &str) -> Result<Item> {
        let at = self.position();
        let [marker] = self.cursor.array(what)?;
        let item = match marker {
            0x00..=0x7f => Item::Uint(marker.into()),
            0xe0..=0xff => Item::Int(i64::from(marker.cast_signed())),
            0xc0 => Item::Nil,
            0xc1 => {
                let error = Error::corrupt("msgpack-marker", format!("{what} is not MessagePack"));
                return Err(error.at(at).found("c1, a byte that MessagePack never uses"));
            }
            0xc2 | 0xc3 => Item::Bool(marker == 0xc3),
            0xca => Item::F32(u32::from_be_bytes(self.cursor.array(what)?)),
            0xcb => Item::F64(u64::from_be_bytes(self.cursor.array(what)?)),
            0xcc..=0xcf => Item::Uint(self.number(1 << (marker - 0xcc), what)?),
            0xd0..=0xd3 => {
                let width = 1 << (marker - 0xd0);
                let unused = 64 - 8 * width;
                // The sign is the highest bit of the stored width.
                let value = (self.number(width, what)? << unused).cast_signed() >> unused;
                u64::try_from(value).map_or(Item::Int(value), Item::Uint)
            }
            0xd4..=0xd8 => self.ext(1 << (marker - 0xd4), what)?,
            0xc7..=0xc9 => {
                let len = self.length_of(1 << (marker - 0xc7), what)?;
                self.ext(len, what)?
            }
            0x80..=0x8f | 0xde | 0xdf => Item::Map(self.rest(MAP, marker, what)?),
            0x90..=0x9f | 0xdc | 0xdd => Item::Array(self.rest(ARRAY, marker, what)?),
            0xa0..=0xbf | 0xd9..=0xdb => Item::Str(self.rest(STR, marker, what)?),
            0xc4..=0xc6 => Item::Bin(self.rest(BIN, marker, what)?),
        };
        if shortest(item).is_some_and(|len| len < self.position() - at) {
            self.long_headers.get_or_insert((0, at)).0 += 1;
        }
        Ok(item)
    }

    /// Reads the length of an object of that family, or returns the marker of another type.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`], `truncated`.
    pub fn length(&mut self, family: Family, what: &str) -> Result<Result<u32, u8>> {
        let at = self.position();
        let [marker] = self.cursor.array(what)?;
        let fixed = family.fix.is_some_and(|(base, most)| (base..=base + most).contains(&marker));
        if !fixed && family.wide.iter().all(|&(wide, _)| wide != marker) {
            return Ok(Err(marker));
        }
        let len = self.rest(family, marker, what)?;
        if header_len(family, len) < self.position() - at {
            self.long_headers.get_or_insert((0, at)).0 += 1;
        }
        Ok(Ok(len))
    }

    /// Reads the length behind `marker`, which is of the family.
    fn rest(&mut self, family: Family, marker: u8, what: &str) -> Result<u32> {
        let width = family.wide.iter().find(|&&(wide, _)| wide == marker).map(|&(_, width)| width);
        match (width, family.fix) {
            (Some(width), _) => self.length_of(width, what),
            (None, fix) => Ok(u32::from(marker - fix.map_or(0, |(base, _)| base))),
        }
    }

    fn length_of(&mut self, width: usize, what: &str) -> Result<u32> {
        // At most four bytes.
        Ok(u32::try_from(self.number(width, what)?).unwrap_or(u32::MAX))
    }

    fn ext(&mut self, len: u32, what: &str) -> Result<Item> {
        let [kind] = self.cursor.array(what)?;
        Ok(Item::Ext { kind: kind.cast_signed(), len })
    }

    fn number(&mut self, width: usize, what: &str) -> Result<u64> {
        Ok(match width {
            1 => u64::from(self.cursor.array::<1>(what)?[0]),
            2 => u64::from(u16::from_be_bytes(self.cursor.array(what)?)),
            4 => u64::from(u32::from_be_bytes(self.cursor.array(what)?)),
            _ => u64::from_be_bytes(self.cursor.array(what)?),
        })
    }
}

/// Returns the length of the shortest header of an item in bytes; `None` if it has only one.
fn shortest(item: Item) -> Option<u64> {
    let mut out = Vec::with_capacity(9);
    match item {
        Item::Uint(value) => put_uint(&mut out, value),
        Item::Int(value) => put_int(&mut out, value),
        Item::Str(len) => put_length(&mut out, STR, len),
        Item::Bin(len) => put_length(&mut out, BIN, len),
        Item::Array(len) => put_length(&mut out, ARRAY, len),
        Item::Map(len) => put_length(&mut out, MAP, len),
        Item::Ext { kind, len } => super::put_ext(&mut out, kind, len),
        Item::Nil | Item::Bool(_) | Item::F32(_) | Item::F64(_) => return None,
    }
    Some(out.len() as u64)
}

fn header_len(family: Family, len: u32) -> u64 {
    let mut out = Vec::with_capacity(5);
    put_length(&mut out, family, len);
    out.len() as u64
}

/// Returns the MessagePack type of a marker, with an article: `a map`.
pub fn marker_name(marker: u8) -> &'static str {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{put_ext, put_f32, put_f64};
    use std::sync::Arc;
    use weighbridge_core::source::MemorySource;

    fn reader(bytes: &[u8]) -> Reader {
        Reader::new(Cursor::new(Arc::new(MemorySource::new("m", bytes.to_vec())), 0))
    }

    #[test]
    fn written_headers_read_back_in_their_shortest_form() {
        let numbers =
            [0u64, 1, 31, 32, 127, 128, 255, 256, 65_535, 65_536, u32::MAX.into(), 1 << 32, u64::MAX];
        let mut items: Vec<Item> = numbers.iter().map(|&n| Item::Uint(n)).collect();
        items.extend(
            [-1, -32, -33, -128, -129, -32_768, -32_769, i64::from(i32::MIN), i64::MIN].map(Item::Int),
        );
        items.extend([Item::F32(0x7fc0_0001), Item::F64(u64::MAX)]);
        for len in [0u32, 1, 2, 3, 4, 8, 15, 16, 17, 31, 32, 255, 256, 65_535, 65_536, u32::MAX] {
            items.extend([Item::Str(len), Item::Bin(len), Item::Array(len), Item::Map(len)]);
            items.extend([-128, 1, 127].map(|kind| Item::Ext { kind, len }));
        }
        let mut bytes = Vec::new();
        for &item in &items {
            match item {
                Item::Uint(value) => put_uint(&mut bytes, value),
                Item::Int(value) => put_int(&mut bytes, value),
                Item::F32(bits) => put_f32(&mut bytes, bits),
                Item::F64(bits) => put_f64(&mut bytes, bits),
                Item::Str(len) => put_length(&mut bytes, STR, len),
                Item::Bin(len) => put_length(&mut bytes, BIN, len),
                Item::Array(len) => put_length(&mut bytes, ARRAY, len),
                Item::Map(len) => put_length(&mut bytes, MAP, len),
                Item::Ext { kind, len } => put_ext(&mut bytes, kind, len),
                Item::Nil | Item::Bool(_) => {}
            }
        }
        let mut reader = reader(&bytes);
        for item in items {
            assert_eq!(reader.item("x").unwrap(), item);
        }
        assert_eq!((reader.position(), reader.long_headers), (bytes.len() as u64, None));
        assert_eq!(reader.item("x").unwrap_err().code(), "truncated");
    }

    #[test]
    fn long_headers_are_counted() {
        let bytes = [0xcc, 7, 0xd0, 7, 0xd1, 0xff, 0xff, 0xd9, 3, 0xdc, 0, 1, 0xc7, 1, 5, 0xdf, 0, 0, 0, 0];
        let mut reader = reader(&bytes);
        let read: Vec<Item> = (0..7).map(|_| reader.item("x").unwrap()).collect();
        let one = Item::Ext { kind: 5, len: 1 };
        assert_eq!(
            read,
            [Item::Uint(7), Item::Uint(7), Item::Int(-1), Item::Str(3), Item::Array(1), one, Item::Map(0)]
        );
        assert_eq!(reader.long_headers, Some((7, 0)));
    }

    #[test]
    fn lengths_of_another_type_return_the_marker() {
        let mut reader = reader(&[0x93, 0xc3, 0xc1]);
        assert_eq!(reader.length(ARRAY, "x").unwrap(), Ok(3));
        assert_eq!(reader.length(MAP, "x").unwrap(), Err(0xc3));
        assert_eq!(reader.item("x").unwrap_err().code(), "msgpack-marker");
    }

    #[test]
    fn every_byte_and_every_prefix_is_an_item_or_an_error() {
        for marker in 0..=255u8 {
            let bytes = [marker, 0x80, 1, 2, 3, 4, 5, 6, 7, 8];
            for len in 0..bytes.len() {
                let read = reader(&bytes[..len]).item("x");
                assert_eq!(
                    read.is_err(),
                    len == 0 || marker == 0xc1 || is_cut(marker, len),
                    "{marker:x} {len}"
                );
            }
        }
        fn is_cut(marker: u8, len: usize) -> bool {
            let needed = match marker {
                0xca | 0xce | 0xd2 | 0xdb | 0xdd | 0xdf | 0xc6 => 5,
                0xcb | 0xcf | 0xd3 => 9,
                0xcc | 0xd0 | 0xd9 | 0xc4 | 0xd4..=0xd8 => 2,
                0xcd | 0xd1 | 0xda | 0xdc | 0xde | 0xc5 | 0xc7 => 3,
                0xc8 => 4,
                0xc9 => 6,
                _ => 1,
            };
            len < needed
        }
    }
}
