//! The filter lzf of h5py: literal runs and back-references.

use super::super::bytes::Reader;
use weighbridge_core::error::{Error, Result};

/// Control bytes below this are the length of a literal run, minus one.
const LITERAL: u8 = 32;

/// Unpacks `packed` to at most `most` bytes.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`] where it ends within a run, refers to bytes before its beginning, or is longer.
pub(super) fn unpack(packed: &[u8], most: usize) -> Result<Vec<u8>> {
    let bad = || Error::corrupt("hdf5-chunk", "HDF5: the chunk cannot be unpacked (filter lzf)");
    let mut unpacked: Vec<u8> = Vec::new();
    let mut reader = Reader::new(packed, 8, 8);
    while reader.left() > 0 {
        let control = reader.u8()?;
        if control < LITERAL {
            unpacked.extend_from_slice(reader.take(usize::from(control) + 1)?);
        } else {
            let short = usize::from(control >> 5) + 2;
            let len = if short == 9 { short + usize::from(reader.u8()?) } else { short };
            let back = ((usize::from(control & 31) << 8) | usize::from(reader.u8()?)) + 1;
            let from = unpacked.len().checked_sub(back).ok_or_else(bad)?;
            // A back-reference may overlap its own output.
            for at in from..from + len {
                unpacked.push(unpacked[at]);
            }
        }
        if unpacked.len() > most {
            return Err(bad());
        }
    }
    Ok(unpacked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn back_references_repeat_earlier_bytes() {
        // "abc", then five bytes from distance three: overlaps its output.
        assert_eq!(unpack(&[2, b'a', b'b', b'c', 3 << 5, 2], 8).unwrap(), b"abcabcab");
        // A long run: nine bytes and two more of the last.
        assert_eq!(unpack(&[0, b'x', 7 << 5, 2, 0], 12).unwrap(), [b'x'; 12]);
    }

    #[test]
    fn damaged_runs_are_refused() {
        for packed in
            [&[3, 1][..], &[0, 1, 1 << 5], &[0, 1, 1 << 5, 1], &[7 << 5], &[0, b'x', 7 << 5, 255, 0]]
        {
            assert!(unpack(packed, 12).is_err(), "{packed:?}");
        }
    }
}
