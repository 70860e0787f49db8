//! Checksums, and structures that end with a checksum.

use weighbridge_core::error::{Error, Result};

/// Checksum of metadata: lookup3 by Bob Jenkins.
pub(super) fn lookup3(bytes: &[u8]) -> u32 {
    // The length is taken modulo 2^32.
    let len = u32::try_from(bytes.len() & 0xffff_ffff).unwrap_or_default();
    let [mut a, mut b, mut c] = [0xdead_beef_u32.wrapping_add(len); 3];
    let mut rest = bytes;
    while !rest.is_empty() {
        let (block, behind) = rest.split_at(rest.len().min(12));
        let mut words = [0; 12];
        words[..block.len()].copy_from_slice(block);
        let word = |at: usize| u32::from_le_bytes([words[at], words[at + 1], words[at + 2], words[at + 3]]);
        (a, b, c) = (a.wrapping_add(word(0)), b.wrapping_add(word(4)), c.wrapping_add(word(8)));
        rest = behind;
        if !rest.is_empty() {
            for turn in [4, 6, 8, 16, 19, 4] {
                a = a.wrapping_sub(c) ^ c.rotate_left(turn);
                c = c.wrapping_add(b);
                // The three words rotate.
                (a, b, c) = (b, c, a);
            }
            continue;
        }
        for turns in [[14, 11, 25], [16, 4, 14]] {
            c = (c ^ b).wrapping_sub(b.rotate_left(turns[0]));
            a = (a ^ c).wrapping_sub(c.rotate_left(turns[1]));
            b = (b ^ a).wrapping_sub(a.rotate_left(turns[2]));
        }
        c = (c ^ b).wrapping_sub(b.rotate_left(24));
    }
    c
}

/// Checksum of chunks: two sums of big-endian 16-bit words.
pub(super) fn fletcher32(bytes: &[u8]) -> u32 {
    let fold = |sum: u32| (sum & 0xffff) + (sum >> 16);
    let (mut first, mut second) = (0, 0);
    for word in bytes.chunks(2) {
        let word = u32::from(word[0]) << 8 | word.get(1).map_or(0, |&low| u32::from(low));
        first = fold(first + word);
        second = fold(second + first);
    }
    fold(second) << 16 | fold(first)
}

/// Returns the bytes of a structure without its trailing checksum, which must match; `what` names the structure in errors.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`]: `hdf5-corrupt` where the structure does not begin with `mark`, `hdf5-checksum`.
pub(super) fn checked<'a>(bytes: &'a [u8], mark: &[u8], what: &str, address: u64) -> Result<&'a [u8]> {
    let Some((body, sum)) = bytes.split_last_chunk::<4>().filter(|(body, _)| body.starts_with(mark)) else {
        return Err(lost(what, address));
    };
    matches(body, u32::from_le_bytes(*sum), what, address)?;
    Ok(body)
}

/// Fails unless `sum` is the checksum of `body`; `what` names the structure in errors.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`], `hdf5-checksum`.
pub(super) fn matches(body: &[u8], sum: u32, what: &str, address: u64) -> Result<()> {
    let own = lookup3(body);
    if own == sum {
        return Ok(());
    }
    Err(Error::corrupt("hdf5-checksum", format!("HDF5: the {what} does not match its checksum"))
        .at(address)
        .expected(format_args!("{sum:#010x}"))
        .found(format_args!("{own:#010x}")))
}

/// Error of a structure that does not begin with its signature.
pub(super) fn lost(what: &str, address: u64) -> Error {
    Error::corrupt("hdf5-corrupt", format!("HDF5: the {what} has a wrong signature or version")).at(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values from lookup3.c, and from RFC 3309 and others for Fletcher's sum.
    #[test]
    fn checksums_match_published_values() {
        assert_eq!(lookup3(b""), 0xdead_beef);
        assert_eq!(lookup3(b"Four score and seven years ago"), 0x1777_0551);
        assert_eq!(fletcher32(&[0, 1, 0, 2]), 0x0004_0003);
        assert_eq!(fletcher32(&[0, 1, 2]), 0x0202_0201);
        assert_eq!(fletcher32(&[0xff; 2_000]), 0xffff_ffff);
    }
}
