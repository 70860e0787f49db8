//! Protobuf wire format: fields of a message in memory.

use buffa::encoding::encode_varint;
use weighbridge_core::error::{Error, Result};

/// Wire type of a number of variable length.
pub(crate) const VARINT: u8 = 0;
/// Wire type of 8 bytes.
pub(crate) const FIXED64: u8 = 1;
/// Wire type of bytes with a length: texts, messages, packed numbers.
pub(crate) const LEN: u8 = 2;
/// Wire type of 4 bytes.
pub(crate) const FIXED32: u8 = 5;
/// Maximum bytes of a number of variable length.
pub(crate) const MAX_VARINT: usize = 10;

/// Field of a message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Field<'a> {
    /// Number.
    pub(crate) number: u32,
    /// Value.
    pub(crate) value: Value<'a>,
    /// All bytes of the field, with its tag.
    pub(crate) raw: &'a [u8],
    /// Bytes of the tag.
    pub(crate) tag: &'a [u8],
    /// Bytes by which the length is longer than necessary.
    pub(crate) excess: usize,
}

/// Value of a field.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Value<'a> {
    /// Integer.
    Varint(u64),
    /// 8 bytes.
    Fixed64(u64),
    /// Bytes with a length.
    Bytes(&'a [u8]),
    /// 4 bytes.
    Fixed32(u32),
}

impl<'a> Field<'a> {
    /// Returns the bytes of a field with a length.
    pub(crate) fn bytes(&self) -> Option<&'a [u8]> {
        match self.value {
            Value::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Returns the text of a field; bytes that are not UTF-8 become `\xNN`.
    pub(crate) fn text(&self) -> Option<String> {
        self.bytes().map(text)
    }

    /// Returns the signed integer of a field.
    pub(crate) fn int(&self) -> Option<i64> {
        match self.value {
            Value::Varint(value) => Some(value.cast_signed()),
            _ => None,
        }
    }

    /// Appends the integers of a field that may be packed.
    pub(crate) fn ints(&self, all: &mut Vec<i64>) {
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
pub(crate) fn text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => weighbridge_core::checkpoint::Name::new(bytes).to_text(),
    }
}

/// Splits a number of variable length off the front; `None` if it is incomplete or longer than 10 bytes.
pub(crate) fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0u64;
    for (place, &byte) in bytes.iter().take(MAX_VARINT).enumerate() {
        value |= u64::from(byte & 0x7f).checked_shl(7 * place as u32).unwrap_or(0);
        if byte < 0x80 {
            return Some((value, bytes.get(place + 1..)?));
        }
    }
    None
}

/// Returns the minimum length of a number in bytes.
pub(crate) fn varint_len(value: u64) -> usize {
    (64 - value.leading_zeros() as usize).div_ceil(7).max(1)
}

/// Appends a length, longer by `excess` bytes than necessary.
pub(crate) fn push_length(out: &mut Vec<u8>, length: u64, excess: usize) {
    encode_varint(length, out);
    let padded = excess.min(MAX_VARINT.saturating_sub(varint_len(length)));
    if let Some(last) = out.last_mut().filter(|_| padded > 0) {
        *last |= 0x80;
        out.extend(std::iter::repeat_n(0x80, padded - 1));
        out.push(0);
    }
}

/// Iterator over the fields of a message. It ends with an error at a malformed field.
#[derive(Debug, Clone)]
pub(crate) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    /// Creates an iterator over the fields of a message.
    pub(crate) fn of(message: &'a [u8]) -> Self {
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

#[cfg(test)]
mod tests {
    use super::*;

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
        }
        let all: Vec<_> = Fields::of(&[0x08, 0x96, 0x01, 0x12, 1, 7]).map(|f| f.unwrap().number).collect();
        assert_eq!(all, [1, 2]);
    }
}
