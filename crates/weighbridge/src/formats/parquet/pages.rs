//! The heads of pages, looked at before the pages are: whoever unpacks a page takes as much memory
//! as its head asks for.
//!
//! ```text
//! head      thrift, compact form: 2: bytes when unpacked, 3: bytes in the file, 4: their CRC-32, and more
//! page      as many bytes as the head says; the next head follows
//! ```

use crate::error::{Error, Result};
use crate::limits::Limits;
use crate::source::{SourceRef, read_vec};
use parquet::basic::Compression;
use std::ops::Range;

/// Bytes of a head that are read; more of it only where these were too few. A head may hold the least
/// and the largest value of its page.
const WINDOWS: [u64; 3] = [256, 64 << 10, 16 << 20];
/// Structures within each other in a head; honest ones have three.
const DEEPEST: u32 = 32;
/// Every page may have this many bytes when unpacked, however short it is.
const SLACK: u64 = 64 << 10;

/// Holds what the pages in `range` of `source` claim against what their bytes can give, and against
/// the limit `header_bytes`.
///
/// Bytes that are no head end the search: what reads pages stops there as well.
///
/// # Errors
/// [`crate::Kind::Corrupt`], `page-size`, `page-values`; [`crate::Kind::Limit`].
pub(super) fn check(
    source: &SourceRef,
    range: Range<u64>,
    compression: Compression,
    limits: &Limits,
) -> Result<()> {
    let packed = compression != Compression::UNCOMPRESSED;
    let end = range.end.min(source.len());
    let mut at = range.start;
    while at < end {
        let Some(head) = read(source, at)? else { break };
        // Room for the values of a dictionary is taken by their number, before they are read.
        if head.dictionary > head.unpacked {
            return Err(Error::corrupt("page-values", "a dictionary claims more values than it has bytes")
                .at(at)
                .found(format_args!("{} values in {} bytes", head.dictionary, head.unpacked)));
        }
        let most = head.stored.saturating_mul(ratio(compression)).saturating_add(SLACK);
        if packed && head.unpacked > most {
            return Err(Error::corrupt("page-size", "a page claims more bytes than it can be unpacked to")
                .at(at)
                .found(format_args!("{} bytes out of {}", head.unpacked, head.stored)));
        }
        if packed {
            Limits::check("bytes of a page", "header_bytes", head.unpacked, limits.header_bytes)
                .map_err(|e| e.at(at))?;
        }
        at = at.saturating_add(head.len).saturating_add(head.stored);
    }
    Ok(())
}

/// A page in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Page {
    /// Offset of its head.
    pub(super) offset: u64,
    /// Bytes of the head.
    pub(super) head: u64,
    /// Bytes behind it.
    pub(super) stored: u64,
    /// The CRC-32 that these shall have, where the writer gave one.
    pub(super) crc: Option<u32>,
}

/// The pages in `range` of `source`, up to the first bytes that are no head, or a page that leaves the
/// range.
///
/// # Errors
/// [`crate::Kind::Io`]; `page-head` and `limit` for a head that is none.
pub(super) fn all(source: &SourceRef, range: Range<u64>) -> Result<Vec<Page>> {
    let end = range.end.min(source.len());
    let (mut at, mut pages) = (range.start, Vec::new());
    while at < end {
        let Some(head) = read(source, at)? else { break };
        let next = at.saturating_add(head.len).saturating_add(head.stored);
        if next > end {
            break;
        }
        pages.push(Page { offset: at, head: head.len, stored: head.stored, crc: head.crc });
        at = next;
    }
    Ok(pages)
}

/// How many bytes a byte can be unpacked to, at most.
fn ratio(compression: Compression) -> u64 {
    match compression {
        Compression::SNAPPY => 22,
        Compression::LZ4 | Compression::LZ4_RAW => 255,
        Compression::GZIP(_) => 1032,
        // A block of 4 bytes that repeats one byte is 128 KiB at most.
        Compression::ZSTD(_) => 32 << 10,
        _ => u64::MAX,
    }
}

/// What a head says.
#[derive(Debug, PartialEq)]
struct Head {
    /// Its own length in bytes.
    len: u64,
    /// Bytes of the page when unpacked.
    unpacked: u64,
    /// Bytes of the page in the file.
    stored: u64,
    /// Values of a dictionary; 0 of other pages.
    dictionary: u64,
    /// Their CRC-32, where it is given.
    crc: Option<u32>,
}

/// The head at `at`; `None` where there is none.
fn read(source: &SourceRef, at: u64) -> Result<Option<Head>> {
    let left = source.len().saturating_sub(at);
    for window in WINDOWS {
        let bytes = read_vec(&**source, at, window.min(left))?;
        let mut bytes = Bytes { all: &bytes, at: 0 };
        match bytes.head() {
            Ok(head) => return Ok(Some(head)),
            Err(Stop::Wrong) => return Ok(None),
            Err(Stop::End) if window >= left => return Ok(None),
            Err(Stop::End) => {}
            Err(Stop::Deep) => {
                return Err(Error::corrupt("page-head", "the head of a page has too many levels").at(at));
            }
            Err(Stop::Endless) if window >= left => {
                return Err(
                    Error::corrupt("page-head", "the head of a page has a list without an end").at(at)
                );
            }
            Err(Stop::Endless) => {}
        }
    }
    Err(Error::limit("limit", "the head of a page is too long").at(at).expected("at most 16 MiB"))
}

/// Why a head was not read.
enum Stop {
    /// It goes on behind these bytes.
    End,
    /// This is no head.
    Wrong,
    /// Structures stand within each other without end.
    Deep,
    /// A list of truths, or of more values of fixed length than there are bytes. The reader that comes
    /// after this one passes over as many as are claimed, without missing their bytes.
    Endless,
}

/// Looks through a footer for what its reader would never come to the end of.
///
/// # Errors
/// [`crate::Kind::Corrupt`], code `footer`.
pub(super) fn check_footer(footer: &[u8]) -> Result<()> {
    let what = match (Bytes { all: footer, at: 0 }).fields(0, 0, &mut |_, _, _| {}) {
        Err(Stop::Deep) => "the footer has too many levels",
        Err(Stop::Endless) => "the footer has a list without an end",
        // Its reader says better what is wrong.
        Ok(()) | Err(Stop::End | Stop::Wrong) => return Ok(()),
    };
    Err(Error::corrupt("footer", what))
}

/// Thrift's compact form.
struct Bytes<'a> {
    all: &'a [u8],
    at: usize,
}

impl Bytes<'_> {
    fn head(&mut self) -> Result<Head, Stop> {
        let (mut unpacked, mut stored, mut crc, mut dictionary) = (None, None, None, Some(0));
        self.fields(0, 0, &mut |within, id, value| match (within, id) {
            (0, 2) => unpacked = Some(value),
            (0, 3) => stored = Some(value),
            (0, 4) => crc = i32::try_from(value).ok().map(i32::cast_unsigned),
            (7, 1) => dictionary = Some(value),
            _ => {}
        })?;
        let size = |value: Option<i64>| value.and_then(|n| u64::try_from(n).ok()).ok_or(Stop::Wrong);
        let (unpacked, stored, dictionary) = (size(unpacked)?, size(stored)?, size(dictionary)?);
        Ok(Head { len: self.at as u64, unpacked, stored, dictionary, crc })
    }

    /// The fields of a structure; `number` is told those that are whole numbers: the field of the head
    /// that the structure is (0: it is the head itself, -1: it lies deeper), the field, and the number.
    fn fields(&mut self, depth: u32, within: i64, number: &mut dyn FnMut(i64, i64, i64)) -> Result<(), Stop> {
        if depth > DEEPEST {
            return Err(Stop::Deep);
        }
        let mut id = 0i64;
        loop {
            let head = self.byte()?;
            match (head & 15, i64::from(head >> 4)) {
                (0, _) => return Ok(()),
                (_, 0) => id = self.zigzag()?,
                (_, step) => id = id.wrapping_add(step),
            }
            match head & 15 {
                // The value of a truth stands in its head.
                1 | 2 => {}
                4..=6 => number(within, id, self.zigzag()?),
                12 => self.fields(depth + 1, if depth == 0 { id } else { -1 }, number)?,
                kind => self.skip(kind, depth)?,
            }
        }
    }

    /// Passes over a value that is no field, or no number.
    fn skip(&mut self, kind: u8, depth: u32) -> Result<(), Stop> {
        if depth > DEEPEST {
            return Err(Stop::Deep);
        }
        match kind {
            1..=3 => self.pass(1),
            4..=6 => self.varint().map(|_| ()),
            7 => self.pass(8),
            8 => {
                let len = self.varint()?;
                self.pass(len)
            }
            9 | 10 => {
                let head = self.byte()?;
                let count = match head >> 4 {
                    15 => self.varint()?,
                    count => u64::from(count),
                };
                if let Some(size) = fixed(head & 15) {
                    return self.pass_all(count, size);
                }
                // Every value has a byte, so that these come to an end.
                (0..count).try_for_each(|_| self.skip(head & 15, depth + 1))
            }
            11 => {
                let count = self.varint()?;
                let kinds = if count > 0 { self.byte()? } else { 0 };
                if let (Some(key), Some(value)) = (fixed(kinds >> 4), fixed(kinds & 15)) {
                    return self.pass_all(count, key + value);
                }
                (0..count).try_for_each(|_| {
                    self.skip(kinds >> 4, depth + 1)?;
                    self.skip(kinds & 15, depth + 1)
                })
            }
            12 => self.fields(depth + 1, -1, &mut |_, _, _| {}),
            13 => self.pass(16),
            _ => Err(Stop::Wrong),
        }
    }

    /// Passes over `count` values of `size` bytes each.
    fn pass_all(&mut self, count: u64, size: u64) -> Result<(), Stop> {
        let len = count.checked_mul(size).ok_or(Stop::Endless)?;
        match self.pass(len) {
            Ok(()) if size > 0 || count == 0 => Ok(()),
            _ => Err(Stop::Endless),
        }
    }

    fn byte(&mut self) -> Result<u8, Stop> {
        let byte = *self.all.get(self.at).ok_or(Stop::End)?;
        self.at += 1;
        Ok(byte)
    }

    fn pass(&mut self, count: u64) -> Result<(), Stop> {
        let count = usize::try_from(count).map_err(|_| Stop::End)?;
        self.at = self.at.checked_add(count).filter(|&at| at <= self.all.len()).ok_or(Stop::End)?;
        Ok(())
    }

    /// As the reader that comes after this one: a number may be of any length, and wraps.
    fn varint(&mut self) -> Result<u64, Stop> {
        let (mut value, mut shift) = (0u64, 0u32);
        loop {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f).wrapping_shl(shift);
            if byte < 0x80 {
                return Ok(value);
            }
            shift = shift.wrapping_add(7);
        }
    }

    fn zigzag(&mut self) -> Result<i64, Stop> {
        let value = self.varint()?;
        Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }
}

/// The bytes of a value of that kind, where all have the same, as the reader that comes after this one takes
/// them: a truth in a list has none.
fn fixed(kind: u8) -> Option<u64> {
    match kind {
        1 | 2 => Some(0),
        7 => Some(8),
        13 => Some(16),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::MemorySource;
    use std::sync::Arc;

    fn varint(mut n: u64) -> Vec<u8> {
        let mut out = Vec::new();
        while n >= 0x80 {
            out.push(n.to_le_bytes()[0] | 0x80);
            n >>= 7;
        }
        out.push(n.to_le_bytes()[0]);
        out
    }

    /// A data page with statistics of `long` bytes, and its content.
    fn page(unpacked: u64, stored: u64, long: u64) -> Vec<u8> {
        let text = [varint(long), vec![b'x'; usize::try_from(long).unwrap()]].concat();
        let stored_bytes = vec![0; usize::try_from(stored).unwrap()];
        // 5: 1: values, 2 to 4: encodings, 5: statistics, 1: the largest value
        let data = [&[0x2c, 0x15, 6, 0x15, 0, 0x15, 6, 0x15, 6, 0x1c, 0x18][..], &text, &[0, 0]].concat();
        [
            &[0x15, 0, 0x15][..],
            &varint(unpacked * 2),
            &[0x15],
            &varint(stored * 2),
            &data,
            &[0],
            &stored_bytes,
        ]
        .concat()
    }

    fn checked(bytes: Vec<u8>, compression: Compression) -> Result<()> {
        let len = bytes.len() as u64;
        let source: SourceRef = Arc::new(MemorySource::new("m", bytes));
        check(&source, 0..len, compression, &Limits::default())
    }

    #[test]
    fn heads_are_read_however_long_they_are() {
        for long in [0, 3, 255, 300, 70_000] {
            let bytes = page(1000, 100, long);
            let len = bytes.len() as u64 - 100;
            let source: SourceRef = Arc::new(MemorySource::new("m", bytes));
            let head = read(&source, 0).unwrap();
            assert_eq!(
                head,
                Some(Head { len, unpacked: 1000, stored: 100, dictionary: 0, crc: None }),
                "{long}"
            );
        }
    }

    #[test]
    fn claims_that_cannot_be_are_refused_wherever_they_stand() {
        for (unpacked, compression, code) in [
            (SLACK + 22 * 10, Compression::SNAPPY, None),
            (SLACK + 22 * 10 + 1, Compression::SNAPPY, Some("page-size")),
            (SLACK + 255 * 10 + 1, Compression::LZ4_RAW, Some("page-size")),
            (SLACK + 10 * (32 << 10), Compression::ZSTD(Default::default()), None),
            (SLACK + 10 * (32 << 10) + 1, Compression::ZSTD(Default::default()), Some("page-size")),
            (0x7fff_ffff, Compression::BROTLI(Default::default()), Some("limit")),
            (0x7fff_ffff, Compression::UNCOMPRESSED, None),
        ] {
            let bytes = [page(1000, 100, 0), page(unpacked, 10, 5), page(7, 7, 7)].concat();
            let found = checked(bytes, compression).err().map(|e| (e.code(), e.offset().is_some()));
            assert_eq!(found, code.map(|code| (code, true)), "{unpacked} {compression:?}");
        }
    }

    #[test]
    fn lists_without_an_end_are_refused() {
        // Field 9: a list of 2^31 - 1 truths, and the same behind a number of twelve bytes.
        let list = [0x99, 0xf1, 0xff, 0xff, 0xff, 0xff, 0x07];
        let long = [&[0x15][..], &[0x80; 11], &[0, 0x89], &list[1..]].concat();
        let within = [0x1c, 0x99, 0xf2, 0xff, 0xff, 0xff, 0xff, 0x07];
        // Numbers of 8 bytes, and pairs of 16 and 16.
        let numbers = [0x99, 0xf7, 0xff, 0xff, 0xff, 0xff, 0x07];
        let pairs = [0x9b, 0xff, 0xff, 0xff, 0xff, 0x07, 0xdd];
        for bytes in [&list[..], &long, &within, &numbers, &pairs] {
            let bytes = [bytes, &[0; 40]].concat();
            assert_eq!(check_footer(&bytes).unwrap_err().code(), "footer");
            let zstd = Compression::ZSTD(Default::default());
            assert_eq!(checked(bytes, zstd).unwrap_err().code(), "page-head");
        }
    }

    #[test]
    fn what_is_no_head_ends_the_search() {
        let zstd = Compression::ZSTD(Default::default());
        for rest in [&b""[..], b"\0", b"\xff\xff", &[0x19, 0xfc, 0xff, 0xff, 0xff, 0xff, 0x0f]] {
            assert!(checked([page(10, 10, 0), rest.to_vec()].concat(), zstd).is_ok(), "{rest:?}");
        }
        assert_eq!(checked(vec![0x1c; 1000], zstd).unwrap_err().code(), "page-head");
    }
}
