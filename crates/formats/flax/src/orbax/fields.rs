//! Fields of decoded nodes.

use weighbridge_core::error::{Error, Result};
use weighbridge_io::source::to_usize;

/// Sequential reader of the body of a node.
pub(super) struct Fields<'a> {
    bytes: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    pub(super) fn take(&mut self, len: u64) -> Result<&'a [u8]> {
        let Some((taken, rest)) = self.bytes.split_at_checked(to_usize(len)?) else { return Err(ended()) };
        self.bytes = rest;
        Ok(taken)
    }

    /// Returns all bytes not yet read.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    pub(super) fn byte(&mut self) -> Result<u8> {
        Ok(self.take(1)?[0])
    }

    pub(super) fn varint(&mut self) -> Result<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let part = u64::from(byte & 0x7f);
            if (part << shift) >> shift != part {
                break;
            }
            value |= part << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Error::corrupt("bad-varint", "OCDBT: a number exceeds 64 bits"))
    }

    /// Reads a count of entries. An entry takes at least one byte.
    pub(super) fn count(&mut self) -> Result<usize> {
        let count = to_usize(self.varint()?)?;
        if count <= self.bytes.len() {
            Ok(count)
        } else {
            Err(ended().expected(format_args!("{count} entries")))
        }
    }

    /// Reads a column of numbers.
    pub(super) fn column(&mut self, count: usize) -> Result<Vec<u64>> {
        if count > self.bytes.len() {
            return Err(ended().expected(format_args!("{count} numbers")));
        }
        (0..count).map(|_| self.varint()).collect()
    }
}

fn ended() -> Error {
    Error::corrupt("ocdbt-node", "OCDBT: a node ends within its fields")
}
