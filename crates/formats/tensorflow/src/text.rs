//! Tensors of text: the lengths, a checksum of them, and the bytes.
//!
//! ```text
//! lengths    one number of variable length for each text
//! checksum   masked CRC-32C of the lengths, each as 4 bytes (8 from 2^32 on)
//! bytes      of all texts
//! ```
//!
//! The checksum of the entry is that of the same lengths, of the checksum, and of the bytes.

use crate::table::{crc32c, mask, unmask};
use crate::wire::{put_varint, varint};
use weighbridge_core::checksum::{Checksum, ChecksumKind};
use weighbridge_core::error::{Error, Result};
use weighbridge_io::source::{Cursor, SourceRef};

/// Bytes of texts read at once.
const STEP: u64 = 256 << 10;
/// Maximum bytes of a number of variable length.
const MAX_VARINT: usize = 10;

/// Encodes one text. Returns the bytes, and the checksum of the entry.
pub(crate) fn encode(text: &[u8]) -> (Vec<u8>, u32) {
    let mut out = Vec::with_capacity(text.len() + 14);
    put_varint(&mut out, text.len() as u64);
    let len = length(text.len() as u64);
    let lengths = mask(crc32c(&[&len])).to_le_bytes();
    out.extend(lengths);
    out.extend_from_slice(text);
    let crc = crc32c(&[&len, &lengths, text]);
    (out, mask(crc))
}

/// Returns the bytes of a length that its checksum covers.
fn length(len: u64) -> Vec<u8> {
    match u32::try_from(len) {
        Ok(short) => short.to_le_bytes().to_vec(),
        Err(_) => len.to_le_bytes().to_vec(),
    }
}

/// Place of a tensor of text: offset, length, number of texts, and masked checksum.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    /// Offset in the data file.
    pub(crate) offset: u64,
    /// Length in bytes.
    pub(crate) len: u64,
    /// Number of texts.
    pub(crate) count: u64,
    /// Masked checksum.
    pub(crate) crc: u32,
}

/// Verifies a tensor of text. Returns the offset of the bytes of its texts.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`]: `past-the-end`, `length-mismatch`, `crc-mismatch`.
pub(crate) fn verify(source: &SourceRef, place: Place) -> Result<u64> {
    let Place { offset, len, count, crc } = place;
    weighbridge_io::source::check_range(&**source, offset, len)?;
    let end = offset + len;
    let wrong = |text: &str, at: u64| {
        Error::corrupt("length-mismatch", text.to_owned()).in_file(source.label()).at(at)
    };
    // Empty tensors of older releases have no checksum.
    if count == 0 && len == 0 {
        return Ok(offset);
    }
    // Each text has a length of at least one byte.
    if count > len {
        return Err(wrong("the shape of a tensor of text exceeds its bytes", offset)
            .expected(format_args!("at most {len} texts"))
            .found(count));
    }
    let mut cursor = Cursor::new(source.clone(), offset);
    let mut sum = Checksum::new(ChecksumKind::Crc32c);
    let mut total = 0u64;
    for _ in 0..count {
        let bytes = cursor.peek_up_to(MAX_VARINT)?;
        let all = bytes.len();
        let Some((one, rest)) = varint(bytes) else {
            return Err(wrong("the length of a text is malformed", cursor.position()));
        };
        let used = (all - rest.len()) as u64;
        cursor.skip(used, "the lengths of texts")?;
        sum.update(&length(one));
        total = total.saturating_add(one);
    }
    let stored: [u8; 4] = cursor.array("the checksum of the lengths")?;
    if sum.finish() != unmask(u32::from_le_bytes(stored)) {
        return Err(Error::corrupt("crc-mismatch", "the checksum of the lengths of texts does not match")
            .in_file(source.label())
            .at(offset)
            .expected(format_args!("CRC-32C {:08x}", unmask(u32::from_le_bytes(stored))))
            .found(format_args!("{:08x}", sum.finish())));
    }
    let begin = cursor.position();
    if begin.checked_add(total) != Some(end) {
        return Err(wrong("the lengths of texts do not match the bytes of their tensor", offset)
            .expected(format_args!("an end at {end}"))
            .found(format_args!("{total} bytes from {begin}")));
    }
    sum.update(&stored);
    while cursor.position() < end {
        let step = (end - cursor.position()).min(STEP);
        sum.update(&cursor.bytes(step, "the bytes of texts")?);
    }
    if sum.finish() != unmask(crc) {
        return Err(Error::corrupt("crc-mismatch", "the checksum of a tensor of text does not match")
            .in_file(source.label())
            .at(offset)
            .expected(format_args!("CRC-32C {:08x} over {len} bytes", unmask(crc)))
            .found(format_args!("{:08x}", sum.finish()))
            .hint("the file is damaged; get another copy"));
    }
    Ok(begin)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use weighbridge_core::source::MemorySource;

    #[test]
    fn encoded_texts_are_verified() {
        for text in ["", "a", &"long ".repeat(1000)] {
            let (bytes, crc) = encode(text.as_bytes());
            let len = bytes.len() as u64;
            let check = |bytes: Vec<u8>| {
                let source: SourceRef = Arc::new(MemorySource::new("t", bytes));
                verify(&source, Place { offset: 0, len, count: 1, crc })
            };
            assert_eq!(check(bytes.clone()).unwrap(), len - text.len() as u64);
            for place in 0..bytes.len().min(40) {
                let mut changed = bytes.clone();
                changed[place] ^= 1;
                assert!(check(changed).is_err(), "{place}");
            }
            assert!(check(bytes[1..].to_vec()).is_err());
        }
    }
}
