//! Protobuf wire format: fields of a message in memory, fields of a message in a file, and encoding.

#![doc = include_str!("../README.md")]

use weighbridge_core::error::{Error, Result};
use weighbridge_io::source::{Cursor, SourceRef};

/// Wire type of a number of variable length.
pub const VARINT: u8 = 0;
/// Wire type of 8 bytes.
pub const FIXED64: u8 = 1;
/// Wire type of bytes with a length: texts, messages, packed numbers.
pub const LEN: u8 = 2;
/// Wire type of 4 bytes.
pub const FIXED32: u8 = 5;
/// Maximum bytes of a number of variable length.
pub const MAX_VARINT: usize = 10;

/// Field of a message.
#[derive(Debug, Clone, Copy)]
pub struct Field<'a> {
    /// Number.
    pub number: u32,
    /// Value.
    pub value: Value<&'a [u8]>,
    /// All bytes of the field, with its tag.
    pub raw: &'a [u8],
    /// Bytes of the tag.
    pub tag: &'a [u8],
    /// Bytes by which the length is longer than necessary.
    pub excess: usize,
}

/// Value of a field. `T` is the payload of a field with a length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<T> {
    /// Integer.
    Varint(u64),
    /// 8 bytes, little-endian.
    Fixed64(u64),
    /// Bytes with a length: a text, a message, packed numbers.
    Bytes(T),
    /// 4 bytes, little-endian.
    Fixed32(u32),
}

impl<'a> Field<'a> {
    /// Returns the bytes of a field with a length.
    pub fn bytes(&self) -> Option<&'a [u8]> {
        match self.value {
            Value::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Returns the text of a field; bytes that are not UTF-8 become `\xNN`.
    pub fn text(&self) -> Option<String> {
        self.bytes().map(text)
    }

    /// Returns the integer of a field.
    pub fn uint(&self) -> Option<u64> {
        match self.value {
            Value::Varint(value) => Some(value),
            _ => None,
        }
    }

    /// Returns the signed integer of a field.
    pub fn int(&self) -> Option<i64> {
        self.uint().map(u64::cast_signed)
    }

    /// Appends the integers of a field that may be packed.
    pub fn ints(&self, all: &mut Vec<i64>) {
        match self.value {
            Value::Varint(value) => all.push(value.cast_signed()),
            Value::Bytes(mut bytes) => {
                while let Some((value, rest)) = varint(bytes) {
                    all.push(value.cast_signed());
                    bytes = rest;
                }
            }
            _ => {}
        }
    }
}

/// Returns the text of bytes; those that are not UTF-8 become `\xNN`.
pub fn text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => weighbridge_core::checkpoint::Name::new(bytes).to_text(),
    }
}

/// Splits a number of variable length off the front; `None` if it is incomplete or longer than 10 bytes.
pub fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0u64;
    for ((place, &byte), shift) in bytes.iter().take(MAX_VARINT).enumerate().zip((0..).step_by(7)) {
        value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
        if byte < 0x80 {
            return Some((value, bytes.get(place + 1..)?));
        }
    }
    None
}

/// Returns the minimum length of a number in bytes.
pub fn varint_len(value: u64) -> usize {
    (64 - value.leading_zeros() as usize).div_ceil(7).max(1)
}

/// Appends a length, longer by `excess` bytes than necessary.
pub fn push_length(out: &mut Vec<u8>, length: u64, excess: usize) {
    put_varint(out, length);
    let padded = excess.min(MAX_VARINT.saturating_sub(varint_len(length)));
    if let Some(last) = out.last_mut().filter(|_| padded > 0) {
        *last |= 0x80;
        out.extend(std::iter::repeat_n(0x80, padded - 1));
        out.push(0);
    }
}

/// Appends a number of variable length.
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    loop {
        let low = value.to_le_bytes()[0];
        value >>= 7;
        if value == 0 {
            return out.push(low);
        }
        out.push(low | 0x80);
    }
}

/// Appends a field with an integer.
pub fn put_int(out: &mut Vec<u8>, number: u32, value: u64) {
    put_varint(out, u64::from(number) << 3);
    put_varint(out, value);
}

/// Appends a field with bytes.
pub fn put_bytes(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    put_varint(out, u64::from(number) << 3 | 2);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends a field with 4 bytes.
pub fn put_fixed32(out: &mut Vec<u8>, number: u32, value: u32) {
    put_varint(out, u64::from(number) << 3 | 5);
    out.extend_from_slice(&value.to_le_bytes());
}

/// Iterator over the fields of a message. It ends with an error at a malformed field.
#[derive(Debug, Clone)]
pub struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    /// Creates an iterator over the fields of a message.
    pub fn of(message: &'a [u8]) -> Self {
        Self(message)
    }

    fn take(&mut self) -> Option<Field<'a>> {
        let all = self.0;
        let (tag, rest) = varint(all)?;
        let head = all.get(..all.len() - rest.len())?;
        let number = u32::try_from(tag >> 3).ok().filter(|&number| number > 0)?;
        let (value, rest, excess) = match (tag & 7) as u8 {
            VARINT => {
                let (value, rest) = varint(rest)?;
                (Value::Varint(value), rest, 0)
            }
            FIXED64 => {
                let (bytes, rest) = rest.split_first_chunk::<8>()?;
                (Value::Fixed64(u64::from_le_bytes(*bytes)), rest, 0)
            }
            LEN => {
                let (len, after) = varint(rest)?;
                let excess = (rest.len() - after.len()).saturating_sub(varint_len(len));
                let (bytes, rest) = after.split_at_checked(usize::try_from(len).ok()?)?;
                (Value::Bytes(bytes), rest, excess)
            }
            FIXED32 => {
                let (bytes, rest) = rest.split_first_chunk::<4>()?;
                (Value::Fixed32(u32::from_le_bytes(*bytes)), rest, 0)
            }
            _ => return None,
        };
        self.0 = rest;
        Some(Field { number, value, raw: all.get(..all.len() - rest.len())?, tag: head, excess })
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Field<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.take();
        if field.is_none() {
            self.0 = &[];
        }
        Some(field.ok_or_else(|| Error::corrupt("bad-field-number", "a message has a malformed field")))
    }
}

/// Reader of messages in a file. Payloads are skipped unless they are asked for.
#[derive(Debug)]
pub struct Reader {
    cursor: Cursor,
    /// Offset of the value of the last field.
    value_at: u64,
}

impl Reader {
    /// Creates a reader at the beginning of a file.
    pub fn new(source: &SourceRef) -> Self {
        Self { cursor: Cursor::new(source.clone(), 0), value_at: 0 }
    }

    /// Returns the offset of the next byte.
    pub fn position(&self) -> u64 {
        self.cursor.position()
    }

    /// Returns the offset of the value of the last field, behind its tag.
    pub fn value_at(&self) -> u64 {
        self.value_at
    }

    /// Reads the tag of the next field of a message that ends at `end`, and its number if it is one. The payload of a field with a
    /// length comes next: `Bytes` has its end.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`], with the offset.
    pub fn next(&mut self, end: u64) -> Result<Option<(u32, Value<u64>)>> {
        let at = self.position();
        if at >= end {
            return Ok(None);
        }
        let bad = || Error::corrupt("bad-field-number", "a message has a malformed field").at(at);
        let tag = self.varint().map_err(|_| bad())?;
        let number = u32::try_from(tag >> 3).ok().filter(|&number| number > 0).ok_or_else(bad)?;
        self.value_at = self.position();
        let value = match tag & 7 {
            0 => Value::Varint(self.varint()?),
            1 => Value::Fixed64(u64::from_le_bytes(self.cursor.array("a number")?)),
            2 => {
                let len = self.varint()?;
                self.cursor.need(len, "a field")?;
                Value::Bytes(self.position() + len)
            }
            5 => Value::Fixed32(u32::from_le_bytes(self.cursor.array("a number")?)),
            _ => return Err(bad()),
        };
        let stop = if let Value::Bytes(stop) = value { stop } else { self.position() };
        if stop > end {
            return Err(Error::corrupt("length-mismatch", "a field exceeds its message")
                .at(at)
                .expected(format_args!("an end at {end} or before"))
                .found(format_args!("an end at {stop}")));
        }
        Ok(Some((number, value)))
    }

    fn varint(&mut self) -> Result<u64> {
        let at = self.position();
        let bytes = self.cursor.peek_up_to(MAX_VARINT)?;
        let all = bytes.len();
        let Some((value, rest)) = varint(bytes) else {
            let fault = match all < MAX_VARINT {
                true => Error::corrupt("truncated", "the file ends within a number"),
                false => Error::corrupt("bad-varint", "a number is longer than 10 bytes"),
            };
            return Err(fault.at(at));
        };
        let used = (all - rest.len()) as u64;
        self.cursor.skip(used, "a number")?;
        Ok(value)
    }

    /// Skips to `end`.
    ///
    /// # Errors
    /// Errors of the source.
    pub fn skip_to(&mut self, end: u64) -> Result<()> {
        self.cursor.skip(end.saturating_sub(self.position()), "a field")
    }

    /// Reads the bytes up to `end`. The caller has bounded their number.
    ///
    /// # Errors
    /// Errors of the source.
    pub fn bytes_to(&mut self, end: u64) -> Result<Vec<u8>> {
        self.cursor.bytes(end.saturating_sub(self.position()), "a field")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use weighbridge_core::source::MemorySource;

    #[test]
    fn lengths_keep_their_excess() {
        for (length, excess) in [(0, 0), (0, 1), (5, 4), (300, 0), (300, 3), (u64::MAX, 7)] {
            let mut bytes = Vec::new();
            push_length(&mut bytes, length, excess);
            let (value, rest) = varint(&bytes).unwrap();
            assert_eq!((value, rest.len()), (length, 0));
            assert_eq!(bytes.len(), (varint_len(length) + excess).min(MAX_VARINT));
        }
    }

    #[test]
    fn malformed_fields_end_the_iteration() {
        for bytes in [&[0x00][..], &[0x08], &[0x0b], &[0x12, 5, 1], &[0x0d, 1], &[0x80; 11]] {
            let all: Vec<_> = Fields::of(bytes).collect();
            assert!(matches!(all.as_slice(), [Err(_)]), "{bytes:?}");
            let source: SourceRef = Arc::new(MemorySource::new("m", bytes.to_vec()));
            assert!(Reader::new(&source).next(bytes.len() as u64).is_err(), "{bytes:?}");
        }
        let all: Vec<_> = Fields::of(&[0x08, 0x96, 0x01, 0x12, 1, 7]).map(|f| f.unwrap().number).collect();
        assert_eq!(all, [1, 2]);
    }

    #[test]
    fn fields_in_memory_and_in_a_file_are_equal() {
        let mut bytes = Vec::new();
        put_int(&mut bytes, 1, u64::MAX);
        put_bytes(&mut bytes, 300, b"text");
        put_fixed32(&mut bytes, 3, 7);
        let source: SourceRef = Arc::new(MemorySource::new("m", bytes.clone()));
        let mut reader = Reader::new(&source);
        for field in Fields::of(&bytes) {
            let field = field.unwrap();
            let (number, value) = reader.next(bytes.len() as u64).unwrap().unwrap();
            assert_eq!(number, field.number);
            match (value, field.value) {
                (Value::Bytes(end), Value::Bytes(inner)) => assert_eq!(reader.bytes_to(end).unwrap(), inner),
                (Value::Varint(a), Value::Varint(b)) => assert_eq!(a, b),
                (Value::Fixed32(a), Value::Fixed32(b)) => assert_eq!((a, b), (7, 7)),
                (a, b) => panic!("{a:?} {b:?}"),
            }
        }
        assert_eq!(reader.next(bytes.len() as u64).unwrap(), None);
        assert!(reader.next(bytes.len() as u64 + 1).is_err());
    }
}
