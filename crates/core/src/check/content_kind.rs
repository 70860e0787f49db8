//! Magic-byte detection for bytes of unknown use.

use crate::error::Result;
use crate::source::{Source, read_vec, to_usize};

/// Bytes of a range that detection reads.
const HEAD_LEN: u64 = 4096;
/// Bytes per read when skipping zeros.
const STEP: u64 = 64 << 10;

/// Magic bytes with the description of their file type.
const MAGIC: &[(&[u8], &str)] = &[
    (b"PK\x03\x04", "a zip archive"),
    (b"PK\x01\x02", "the directory of a zip archive"),
    (b"PK\x05\x06", "the end of a zip archive"),
    (b"PK\x07\x08", "the descriptor of a zip member"),
    (b"\x1f\x8b", "gzip"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\0", "xz"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"Rar!\x1a\x07", "a rar archive"),
    (b"\x7fELF", "a program (ELF)"),
    (b"MZ", "a program (PE)"),
    (b"\xcf\xfa\xed\xfe", "a program (Mach-O)"),
    (b"\xca\xfe\xba\xbe", "a program (Mach-O or Java)"),
    (b"\0asm", "a program (WebAssembly)"),
    (b"#!", "a script"),
    (b"%PDF", "PDF"),
    (b"\x89PNG", "a picture (PNG)"),
    (b"\xff\xd8\xff", "a picture (JPEG)"),
    (b"\x93NUMPY", "a numpy array"),
    (b"\x89HDF\r\n\x1a\n", "HDF5"),
    (b"PAR1", "Parquet"),
    (b"ARROW1", "Arrow"),
    (b"\x80\x02", "a pickle"),
    (b"\x80\x03", "a pickle"),
    (b"\x80\x04", "a pickle"),
    (b"\x80\x05", "a pickle"),
    (b"SQLite format 3\0", "a database (SQLite)"),
];

/// Description of bytes that are all zero.
pub(super) const ZEROS: &str = "zeros";
/// Description of bytes of no known kind.
pub(super) const UNRECOGNIZED: &str = "unrecognized data";

/// Minimum bytes for the detection of compressed or encrypted data.
const MIN_RANDOM_LEN: usize = 256;

/// Returns the offset of the first nonzero byte in `from .. to`; `to` if all are zero.
pub(super) fn first_not_zero(source: &dyn Source, from: u64, to: u64) -> Result<u64> {
    let mut at = from;
    let mut buffer = vec![0; to_usize(STEP.min(to.saturating_sub(from)))?];
    while at < to {
        let take = to_usize(STEP.min(to - at))?;
        source.read_at(at, &mut buffer[..take])?;
        if let Some(place) = buffer[..take].iter().position(|&byte| byte != 0) {
            return Ok(at + place as u64);
        }
        at += take as u64;
    }
    Ok(to)
}

/// Describes the `len` bytes at `offset` in a few words.
///
/// # Errors
/// [`crate::Kind::Io`] if they cannot be read.
pub(super) fn content_kind(source: &dyn Source, offset: u64, len: u64) -> Result<&'static str> {
    let end = offset.saturating_add(len);
    let start = first_not_zero(source, offset, end)?;
    if start == end {
        return Ok(ZEROS);
    }
    // Magic bytes may begin with one zero.
    let from = if start > offset { start - 1 } else { start };
    let head = read_vec(source, from, HEAD_LEN.min(end - from))?;
    let behind = head.get(1..).unwrap_or_default();
    let known = MAGIC
        .iter()
        .find(|(magic, _)| head.starts_with(magic) || (from < start && behind.starts_with(magic)));
    if let Some((_, words)) = known {
        return Ok(words);
    }
    Ok(match if from < start { behind } else { &head } {
        [first, rest @ ..] if !rest.is_empty() && rest.iter().all(|byte| byte == first) => {
            "one repeated byte"
        }
        bytes if is_text(bytes) => "text",
        bytes if is_random(bytes) => "random bytes (compressed or encrypted)",
        _ => UNRECOGNIZED,
    })
}

/// Returns true for UTF-8 without control characters. The last character may be incomplete.
fn is_text(bytes: &[u8]) -> bool {
    let whole = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(bytes.get(..error.valid_up_to()).unwrap_or_default()).unwrap_or_default()
        }
        Err(_) => return false,
    };
    !whole.is_empty() && whole.chars().all(|c| !c.is_control() || matches!(c, '\n' | '\r' | '\t'))
}

/// Returns true if all byte values are about equally frequent, by the chi-squared statistic: about 255 for random bytes, a
/// multiple of that for text, numbers and code.
fn is_random(bytes: &[u8]) -> bool {
    if bytes.len() < MIN_RANDOM_LEN {
        return false;
    }
    let mut counts = [0u64; 256];
    bytes.iter().for_each(|&byte| counts[usize::from(byte)] += 1);
    let len = bytes.len() as u64;
    let squares: u64 = counts.iter().map(|count| count * count).sum();
    (squares * 256 / len).saturating_sub(len) < 400 + len / 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::MemorySource;

    fn kind(bytes: &[u8]) -> &'static str {
        content_kind(&MemorySource::new("m", bytes.to_vec()), 0, bytes.len() as u64).unwrap()
    }

    #[test]
    fn detects_content_by_magic_bytes() {
        assert_eq!(kind(b"PK\x03\x04rest"), "a zip archive");
        assert_eq!(kind(b"\0\0\0\x7fELF\x02"), "a program (ELF)");
        assert_eq!(kind(b"\0asm\x01\0\0\0"), "a program (WebAssembly)");
        assert_eq!(kind(b"\x80\x04\x95\0"), "a pickle");
        assert_eq!(kind(&[0; 300]), "zeros");
        assert_eq!(kind(&[7; 300]), "one repeated byte");
        assert_eq!(kind("a secret: ü\n".as_bytes()), "text");
        assert_eq!(kind(&"ü".as_bytes()[..1]), "unrecognized data");
        assert_eq!(kind(b"\x01\x02\x03"), "unrecognized data");
        let mut state = 1u64;
        let random: Vec<u8> = (0..1000)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                state.to_be_bytes()[0]
            })
            .collect();
        assert_eq!(kind(&random), "random bytes (compressed or encrypted)");
    }

    #[test]
    fn skips_zeros_across_reads() {
        let mut bytes = vec![0; 200_000];
        let source = |bytes: &[u8]| MemorySource::new("m", bytes.to_vec());
        assert_eq!(first_not_zero(&source(&bytes), 10, 200_000).unwrap(), 200_000);
        bytes[150_000] = 1;
        assert_eq!(first_not_zero(&source(&bytes), 10, 200_000).unwrap(), 150_000);
        assert_eq!(first_not_zero(&source(&bytes), 10, 150_000).unwrap(), 150_000);
    }
}
