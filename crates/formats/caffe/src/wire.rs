//! Protobuf wire format: fields of a message in memory.

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
        self.bytes().map(|bytes| weighbridge_core::checkpoint::Name::new(bytes).to_text())
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

/// Splits a number of variable length off the front; `None` if it is incomplete or longer than 10 bytes.
pub(crate) fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0u64;
    for ((place, &byte), shift) in bytes.iter().take(MAX_VARINT).enumerate().zip((0..).step_by(7)) {
        value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
        if byte < 0x80 {
            return Some((value, bytes.get(place + 1..)?));
        }
    }
    None
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
        let (tag, rest) = varint(self.0)?;
        let number = u32::try_from(tag >> 3).ok().filter(|&number| number > 0)?;
        let (value, rest) = match (tag & 7) as u8 {
            VARINT => varint(rest).map(|(value, rest)| (Value::Varint(value), rest))?,
            FIXED64 => {
                let (bytes, rest) = rest.split_first_chunk::<8>()?;
                (Value::Fixed64(u64::from_le_bytes(*bytes)), rest)
            }
            LEN => {
                let (len, after) = varint(rest)?;
                let (bytes, rest) = after.split_at_checked(usize::try_from(len).ok()?)?;
                (Value::Bytes(bytes), rest)
            }
            FIXED32 => {
                let (bytes, rest) = rest.split_first_chunk::<4>()?;
                (Value::Fixed32(u32::from_le_bytes(*bytes)), rest)
            }
            _ => return None,
        };
        self.0 = rest;
        Some(Field { number, value })
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
