//! Check of page headers before pages are unpacked: unpacking allocates as much memory as the header
//! claims.
//!
//! ```text
//! header    thrift, compact form: 2: unpacked bytes, 3: bytes in the file, 4: their CRC-32, and more
//! page      as many bytes as the header declares; the next header follows
//! ```

use super::chunks::Forwards;
use super::thrift::{Bytes, Event, Stop, Structure, low};
use flate2::read::MultiGzDecoder;
use lz4_flex::frame::FrameDecoder;
use parquet::basic::{Compression, Type};
use parquet::schema::types::ColumnDescriptor;
use std::io::Read;
use std::ops::Range;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_io::source::{SourceRef, read_vec};

/// Bytes of a header to read; the next size is tried if the header is longer. A header may hold the smallest
/// and the largest value of its page.
const WINDOWS: [u64; 3] = [256, 64 << 10, 16 << 20];
/// Encodings of values: `PLAIN_DICTIONARY`, `RLE_DICTIONARY`, `DELTA_LENGTH_BYTE_ARRAY`, `DELTA_BYTE_ARRAY`.
const PLAIN_DICTIONARY: i32 = 2;
const RLE_DICTIONARY: i32 = 8;
const DELTA_LENGTHS: i32 = 6;
const DELTA_PREFIXES: i32 = 7;
/// First bytes of an LZ4 frame.
const LZ4_MAGIC: [u8; 4] = 0x184d_2204u32.to_le_bytes();

/// Sizes of unpacked pages, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Unpacked {
    /// All pages together.
    pub(super) total: u64,
    /// Pages held at the same time: a dictionary and a data page, and the decoded dictionary.
    pub(super) held: u64,
    /// The longest dictionary, packed or not.
    pub(super) dictionary: u64,
    /// The longest data page that is not dictionary indexes, packed or not; and all such pages.
    pub(super) longest: u64,
    pub(super) plain: u64,
    /// True where some of these begin with delta-encoded text lengths.
    pub(super) deltas: bool,
    /// Values of all data pages, by their headers.
    pub(super) values: u64,
}

/// Size of a value.
#[derive(Debug, Clone, Copy)]
pub(super) struct Width {
    /// Minimum bits in a dictionary.
    least: u64,
    /// Decoded bytes, without those of a text.
    decoded: u64,
    /// True where a text is decoded into a copy of its bytes.
    text: bool,
}

impl Width {
    /// Width of the values of a column.
    pub(super) fn of(column: &ColumnDescriptor) -> Self {
        let bytes = match column.physical_type() {
            Type::BOOLEAN => return Self { least: 1, decoded: 1, text: false },
            // A length of four bytes; an offset and a length, or the size of a view.
            Type::BYTE_ARRAY => return Self { least: 32, decoded: 16, text: true },
            Type::FIXED_LEN_BYTE_ARRAY => u64::try_from(column.type_length()).unwrap_or(0).max(1),
            Type::INT32 | Type::FLOAT => 4,
            Type::INT64 | Type::DOUBLE => 8,
            Type::INT96 => 12,
        };
        Self { least: bytes.saturating_mul(8), decoded: bytes, text: false }
    }
}

/// Compares the sizes declared by the pages in `range` of `source` with the limit `header_bytes`, and with the unpacked
/// data where the decoder unpacks to the end. Returns the unpacked sizes; uncompressed pages count their own length.
///
/// Bytes that are not a page header end the search: the page reader stops there as well.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`], `page-size`, `page-values`; [`weighbridge_core::Kind::Limit`].
pub(super) fn check(
    source: &SourceRef,
    range: Range<u64>,
    compression: Compression,
    width: Width,
    limits: &Limits,
) -> Result<Unpacked> {
    let packed = compression != Compression::UNCOMPRESSED;
    let end = range.end.min(source.len());
    let mut at = range.start;
    let (mut unpacked, mut largest, mut second, mut decoded) = (Unpacked::default(), 0, 0, 0u64);
    while at < end {
        let Some(head) = read(source, at, end)? else { break };
        // The reader ignores the declared unpacked size of an uncompressed page.
        let bytes = if packed { head.unpacked } else { head.stored };
        // The reader allocates dictionary values by their number, before reading them.
        if head.dictionary.saturating_mul(width.least) > bytes.saturating_mul(8) {
            return Err(Error::corrupt(
                "page-values",
                "a dictionary page declares more values than its bytes can hold",
            )
            .at(at)
            .found(format_args!("{} values in {bytes} bytes", head.dictionary)));
        }
        if packed {
            Limits::check("bytes of a page", "header_bytes", head.unpacked, limits.header_bytes)
                .map_err(|e| e.at(at))?;
            let body = at.saturating_add(head.len).saturating_add(head.levels);
            let stored = body..at.saturating_add(head.len).saturating_add(head.stored).min(end);
            if unpacks_beyond(source, stored, compression, head.unpacked) {
                return Err(Error::corrupt("page-size", "a page unpacks to more bytes than declared")
                    .at(at)
                    .expected(format_args!("{} bytes", head.unpacked)));
            }
            unpacked.total = unpacked.total.saturating_add(head.unpacked);
            second = second.max(head.unpacked.min(largest));
            largest = largest.max(head.unpacked);
        }
        if head.dictionary > 0 {
            unpacked.dictionary = unpacked.dictionary.max(bytes);
            let copied = if width.text { bytes } else { 0 };
            let values = head.dictionary.saturating_mul(width.decoded);
            decoded = decoded.saturating_add(values).saturating_add(copied);
        } else if head.plain {
            unpacked.longest = unpacked.longest.max(bytes);
            unpacked.plain = unpacked.plain.saturating_add(bytes);
            unpacked.deltas |= head.deltas;
        }
        unpacked.values = unpacked.values.saturating_add(head.values);
        at = at.saturating_add(head.len).saturating_add(head.stored);
    }
    unpacked.held = largest.saturating_add(second).saturating_add(decoded);
    Ok(unpacked)
}

/// True where the bytes in `range` unpack to more than `most` bytes in a decoder that ignores the header: gzip and
/// LZ4 frames. Other codecs are bounded by the declared size.
fn unpacks_beyond(source: &SourceRef, range: Range<u64>, compression: Compression, most: u64) -> bool {
    let bytes = Forwards::new(source.clone(), range.start).take(range.end.saturating_sub(range.start));
    match compression {
        Compression::GZIP(_) => exceeds(MultiGzDecoder::new(bytes), most),
        Compression::LZ4 if read_vec(&**source, range.start, 4).is_ok_and(|head| head == LZ4_MAGIC) => {
            exceeds(FrameDecoder::new(bytes), most)
        }
        _ => false,
    }
}

/// True where more than `most` bytes follow. An earlier failure also occurs in the page reader.
fn exceeds(mut bytes: impl Read, most: u64) -> bool {
    let mut buffer = vec![0; 64 << 10];
    let mut count = 0u64;
    loop {
        match bytes.read(&mut buffer) {
            Ok(0) | Err(_) => return false,
            Ok(more) => count += more as u64,
        }
        if count > most {
            return true;
        }
    }
}

/// Page in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Page {
    /// Offset of its header.
    pub(super) offset: u64,
    /// Length of the header in bytes.
    pub(super) head: u64,
    /// Length of the data behind the header in bytes.
    pub(super) stored: u64,
    /// Unpacked length in bytes, by the header.
    pub(super) unpacked: u64,
    /// Number of values, of data or of a dictionary.
    pub(super) values: u64,
    pub(super) is_dictionary: bool,
    /// Expected CRC-32 of the data, where the writer stored one.
    pub(super) crc: Option<u32>,
}

/// Pages in `range` of `source`, up to the first bytes that are not a page header, or a page that extends beyond
/// the range.
///
/// # Errors
/// [`weighbridge_core::Kind::Io`]; `page-head` and `limit` for an invalid header.
pub(super) fn all(source: &SourceRef, range: Range<u64>) -> Result<Vec<Page>> {
    let end = range.end.min(source.len());
    let (mut at, mut pages) = (range.start, Vec::new());
    while at < end {
        let Some(head) = read(source, at, end)? else { break };
        let next = at.saturating_add(head.len).saturating_add(head.stored);
        if next > end {
            break;
        }
        pages.push(Page {
            offset: at,
            head: head.len,
            stored: head.stored,
            unpacked: head.unpacked,
            values: if head.is_dictionary { head.dictionary } else { head.values },
            is_dictionary: head.is_dictionary,
            crc: head.crc,
        });
        at = next;
    }
    Ok(pages)
}

/// Encoding of the values of a page, as far as it matters here.
#[derive(PartialEq, Eq)]
enum Encodings {
    /// Dictionary indexes.
    Places,
    /// Delta-encoded text lengths before the values.
    Lengths,
    Other,
}

impl Encodings {
    fn of(number: i32) -> Self {
        match number {
            RLE_DICTIONARY | PLAIN_DICTIONARY => Self::Places,
            DELTA_LENGTHS | DELTA_PREFIXES => Self::Lengths,
            _ => Self::Other,
        }
    }
}

/// Contents of a page header.
#[derive(Debug, PartialEq)]
struct Head {
    /// Length of the header itself in bytes.
    len: u64,
    /// Unpacked bytes of the page.
    unpacked: u64,
    /// Bytes of the page in the file.
    stored: u64,
    /// Uncompressed bytes at its start: the levels of a version 2 data page.
    levels: u64,
    /// Number of dictionary values; 0 for other pages.
    dictionary: u64,
    /// Number of values of a data page.
    values: u64,
    is_dictionary: bool,
    /// True where values may be something else than dictionary indexes; and where text lengths are delta-encoded.
    plain: bool,
    deltas: bool,
    /// CRC-32 of the data, where stored.
    crc: Option<u32>,
}

/// Header at `at` of a column that ends at `end`; `None` if there is none.
fn read(source: &SourceRef, at: u64, end: u64) -> Result<Option<Head>> {
    let left = end.saturating_sub(at);
    for window in WINDOWS {
        let bytes = read_vec(&**source, at, window.min(left))?;
        match head(&bytes) {
            Ok(head) => return Ok(Some(head)),
            // Zeros may fill the rest; the page reader stops there as well.
            Err(Stop::Malformed | Stop::Missing) if bytes.first() == Some(&0) => return Ok(None),
            Err(Stop::Malformed) => {
                return Err(Error::corrupt("page-head", "not a page header").at(at));
            }
            // The page reader would continue beyond the column, once for each column that starts at the same long header.
            Err(Stop::Truncated) if window >= left => {
                return Err(Error::corrupt("page-head", "the page header extends beyond its column").at(at));
            }
            Err(Stop::Truncated) => {}
            Err(Stop::TooDeep) => {
                return Err(Error::corrupt("page-head", "the page header is nested too deeply").at(at));
            }
            Err(Stop::Missing) => {
                let text = "the page header lacks a required field";
                return Err(Error::corrupt("page-head", text).at(at));
            }
            Err(Stop::WrongPageType) => {
                let text = "the page header has a structure of another page type";
                return Err(Error::corrupt("page-head", text).at(at));
            }
            Err(Stop::Mistyped) => {
                let text = "a field of the page header has the wrong type";
                return Err(Error::corrupt("page-head", text).at(at));
            }
            Err(Stop::Unbounded) if window >= left => {
                return Err(Error::corrupt("page-head", "the page header has an unbounded list").at(at));
            }
            Err(Stop::Unbounded) => {}
        }
    }
    Err(Error::limit("limit", "the page header is too long").at(at).expected("at most 16 MiB"))
}

/// Page type that a structure in a header belongs to.
fn kind_of(structure: Structure) -> Option<i32> {
    match structure {
        Structure::Data => Some(0),
        Structure::Dictionary => Some(2),
        Structure::SecondData => Some(3),
        _ => None,
    }
}

/// Header at the start of `bytes`. Numbers are cut to 32 bits, as in the page reader.
fn head(bytes: &[u8]) -> Result<Head, Stop> {
    let (mut unpacked, mut stored, mut crc, mut dictionary, mut values) = (None, None, None, 0, 0);
    let (mut levels, mut plain, mut deltas) = ([0; 2], false, false);
    let (mut kind, mut kinds) = (None, Vec::new());
    let mut bytes = Bytes::new(bytes);
    bytes.structure(Structure::Head, &mut |structure, event| {
        let Event::Number(id, value) = event else {
            if let Some(of) = kind_of(structure).filter(|of| !kinds.contains(of)) {
                kinds.push(of);
            }
            return;
        };
        match (structure, id) {
            (Structure::Head, 1) => kind = Some(low(value)),
            (Structure::Head, 2) => unpacked = Some(low(value)),
            (Structure::Head, 3) => stored = Some(low(value)),
            (Structure::Head, 4) => crc = Some(low(value).cast_unsigned()),
            (Structure::Dictionary, 1) => dictionary = low(value),
            (Structure::Data | Structure::SecondData, 1) => values = low(value),
            (Structure::Data, 2) | (Structure::SecondData, 4) => {
                let encoding = Encodings::of(low(value));
                plain |= encoding != Encodings::Places;
                deltas |= encoding == Encodings::Lengths;
            }
            (Structure::SecondData, 5) => levels[0] = low(value),
            (Structure::SecondData, 6) => levels[1] = low(value),
            _ => {}
        }
    })?;
    // The page reader goes by the page type alone: sizes from another structure would be compared with the wrong bounds.
    if kinds.iter().any(|&of| kind != Some(of)) {
        return Err(Stop::WrongPageType);
    }
    let size = |value: Option<i32>| value.and_then(|n| u64::try_from(n).ok()).ok_or(Stop::Malformed);
    let (unpacked, stored) = (size(unpacked)?, size(stored)?);
    // Negative counts are an error of the page reader.
    let [dictionary, values] = [dictionary, values].map(|count| u64::try_from(count).unwrap_or(0));
    let levels = levels.iter().filter_map(|&n| u64::try_from(n).ok()).sum();
    let is_dictionary = kind == kind_of(Structure::Dictionary);
    let len = bytes.at() as u64;
    Ok(Head { len, unpacked, stored, levels, dictionary, values, is_dictionary, plain, deltas, crc })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use weighbridge_core::budget::Budget;
    use weighbridge_io::source::MemorySource;

    fn varint(mut n: u64) -> Vec<u8> {
        let mut out = Vec::new();
        while n >= 0x80 {
            out.push(n.to_le_bytes()[0] | 0x80);
            n >>= 7;
        }
        out.push(n.to_le_bytes()[0]);
        out
    }

    /// Data page with statistics of `long` bytes, and its content.
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

    const FLOATS: Width = Width { least: 32, decoded: 4, text: false };

    fn checked(bytes: Vec<u8>, compression: Compression) -> Result<Unpacked> {
        let len = bytes.len() as u64;
        let source: SourceRef = Arc::new(MemorySource::new("m", bytes));
        check(&source, 0..len, compression, FLOATS, &Limits::default())
    }

    #[test]
    fn reads_page_headers_of_any_length() {
        for long in [0, 3, 255, 300, 70_000] {
            let bytes = page(1000, 100, long);
            let len = bytes.len() as u64 - 100;
            let source: SourceRef = Arc::new(MemorySource::new("m", bytes));
            let head = read(&source, 0, source.len()).unwrap();
            assert_eq!(
                head,
                Some(Head {
                    len,
                    unpacked: 1000,
                    stored: 100,
                    levels: 0,
                    dictionary: 0,
                    values: 3,
                    is_dictionary: false,
                    plain: true,
                    deltas: false,
                    crc: None
                }),
                "{long}"
            );
        }
    }

    /// Declared sizes count as the page size; the page reader charges them to the budget before it unpacks.
    #[test]
    fn counts_declared_sizes_and_rejects_impossible_ones() {
        for (unpacked, compression, code) in [
            (90_000_000, Compression::SNAPPY, None),
            (90_000_000, Compression::ZSTD(Default::default()), None),
            (0x7fff_ffff, Compression::LZ4_RAW, Some("limit")),
            (0x7fff_ffff, Compression::BROTLI(Default::default()), Some("limit")),
            (0x7fff_ffff, Compression::UNCOMPRESSED, None),
        ] {
            let bytes = [page(1000, 100, 0), page(unpacked, 10, 5), page(7, 7, 7)].concat();
            let found = checked(bytes, compression);
            let packed = compression != Compression::UNCOMPRESSED;
            if let (Ok(found), true) = (&found, packed) {
                assert_eq!((found.held, found.total), (unpacked + 1000, unpacked + 1007));
            }
            let found = found.err().map(|e| (e.code().as_str(), e.offset().is_some()));
            assert_eq!(found, code.map(|code| (code, true)), "{unpacked} {compression:?}");
        }
    }

    #[test]
    fn rejects_unbounded_lists() {
        // Field 9: a list of 2^31 - 1 booleans, and the same behind a number of twelve bytes.
        let list = [0x99, 0xf1, 0xff, 0xff, 0xff, 0xff, 0x07];
        let long = [&[0x15][..], &[0x80; 11], &[0, 0x89], &list[1..]].concat();
        let within = [0x1c, 0x99, 0xf2, 0xff, 0xff, 0xff, 0xff, 0x07];
        // Numbers of 8 bytes, and pairs of 16 and 16.
        let numbers = [0x99, 0xf7, 0xff, 0xff, 0xff, 0xff, 0x07];
        let pairs = [0x9b, 0xff, 0xff, 0xff, 0xff, 0x07, 0xdd];
        for bytes in [&list[..], &long, &within, &numbers, &pairs] {
            let bytes = [bytes, &[0; 40]].concat();
            assert_eq!(
                super::super::footer::check(&bytes, &Budget::new(0, &Limits::default()))
                    .unwrap_err()
                    .code()
                    .as_str(),
                "footer"
            );
            let zstd = Compression::ZSTD(Default::default());
            assert_eq!(checked(bytes, zstd).unwrap_err().code().as_str(), "page-head");
        }
    }

    /// The decoder unpacks them to the end, whatever the header declares.
    #[test]
    fn rejects_pages_that_unpack_beyond_declared_size() {
        use std::io::Write;
        let zeros = vec![0; 20 << 20];
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        gzip.write_all(&zeros).unwrap();
        let mut frame = lz4_flex::frame::FrameEncoder::new(Vec::new());
        frame.write_all(&zeros).unwrap();
        let gzip = (gzip.finish().unwrap(), Compression::GZIP(Default::default()));
        for (bytes, compression) in [gzip, (frame.finish().unwrap(), Compression::LZ4)] {
            let stored = bytes.len() as u64;
            for (claim, code) in
                [(20 << 20, None), ((20 << 20) - 1, Some("page-size")), (10, Some("page-size"))]
            {
                let head = page(claim, stored, 0);
                let head = &head[..head.len() - bytes.len()];
                let found =
                    checked([head, &bytes[..]].concat(), compression).err().map(|e| e.code().as_str());
                assert_eq!(found, code, "{compression:?} {claim}");
            }
        }
    }

    #[test]
    fn invalid_page_header_ends_the_search() {
        let zstd = Compression::ZSTD(Default::default());
        for rest in [&b""[..], b"\0", b"\0\0\0"] {
            assert!(checked([page(10, 10, 0), rest.to_vec()].concat(), zstd).is_ok(), "{rest:?}");
        }
        let behind = [page(10, 10, 0), b"\xff\xff".to_vec()].concat();
        assert_eq!(checked(behind, zstd).unwrap_err().code().as_str(), "page-head");
        assert_eq!(checked(vec![0xac; 1000], zstd).unwrap_err().code().as_str(), "page-head");
    }

    /// Many columns may begin at the same long header.
    #[test]
    fn rejects_page_headers_beyond_their_column() {
        let bytes = page(10, 10, 300);
        let source: SourceRef = Arc::new(MemorySource::new("m", bytes.clone()));
        let head = bytes.len() as u64 - 10;
        for (end, code) in [(0, None), (1, Some("page-head")), (head - 1, Some("page-head")), (head, None)] {
            let found = check(&source, 0..end, Compression::UNCOMPRESSED, FLOATS, &Limits::default());
            assert_eq!(found.err().map(|e| e.code().as_str()), code, "{end}");
        }
    }

    /// The reader allocates dictionary values by their number.
    #[test]
    fn rejects_dictionaries_with_more_values_than_bytes() {
        let dictionary = |values: u64, unpacked: u64, stored: u64| {
            let head = [
                &[0x15, 4, 0x15][..],
                &varint(unpacked * 2),
                &[0x15],
                &varint(stored * 2),
                &[0x4c, 0x15],
                &varint(values * 2),
                &[0x15, 0, 0, 0],
            ];
            [head.concat(), vec![0; usize::try_from(stored).unwrap()]].concat()
        };
        let plain = Compression::UNCOMPRESSED;
        let text = Width { least: 32, decoded: 16, text: true };
        for (values, unpacked, stored, compression, held) in [
            (1, 4, 4, plain, Some(4)),
            (2, 8, 4, plain, None),
            (1, 2_000_000_000, 4, plain, Some(4)),
            (2_000_000_000, 2_000_000_000, 4, plain, None),
            (1000, 4000, 100, Compression::SNAPPY, Some(4000 + 4000)),
            (1001, 4000, 100, Compression::SNAPPY, None),
        ] {
            let bytes = dictionary(values, unpacked, stored);
            let found = checked(bytes, compression).map(|unpacked| unpacked.held).ok();
            assert_eq!(found, held, "{values} {unpacked} {stored} {compression:?}");
        }
        let bytes = dictionary(100, 1000, 1000);
        let source: SourceRef = Arc::new(MemorySource::new("m", bytes));
        let found = check(&source, 0..source.len(), plain, text, &Limits::default()).unwrap();
        assert_eq!((found.held, found.dictionary), (100 * 16 + 1000, 1000));
    }

    /// The page reader uses the low 32 bits of a number and the low 16 bits of a field id, and ignores types.
    #[test]
    fn parses_headers_like_the_page_reader() {
        let snappy = Compression::SNAPPY;
        let number = |n: u64| varint(n);
        let head = |size: &[u8]| [&[0x15, 0][..], size, &[0x15, 20, 0], &[0; 10]].concat();
        let huge = 2 * 0x7000_0000u64;
        // Field 2 as it is written, with higher bits, and as field 2 + 2^16.
        let written = [&[0x15][..], &number(huge)].concat();
        let higher = [&[0x15][..], &number(huge + (1 << 40))].concat();
        let below = [&[0x15][..], &number(2 * (1 << 32) + 2 * 0x1000_0000 - 1)].concat();
        let by_id = [&[0x05][..], &number(2 * (2 + (1 << 16))), &number(huge)].concat();
        for size in [&written, &higher, &by_id] {
            assert_eq!(checked(head(size), snappy).unwrap_err().code().as_str(), "limit", "{size:x?}");
        }
        // Negative in 32 bits: not a page.
        assert_eq!(checked(head(&below), snappy).unwrap_err().code().as_str(), "page-head");
        // Skipped content: ids beyond 16 bits in a skipped structure, booleans in a map, which have no bytes.
        for passed in [&[&[0x9c][..], &[0xf1; 2200], &[0]].concat()[..], &[0x9b, 1, 0x15, 0]] {
            let claim = [&[0x15, 0][..], &written, &[0x15, 20], passed, &[0], &[0; 10]].concat();
            assert_eq!(checked(claim, snappy).unwrap_err().code().as_str(), "limit", "{passed:x?}");
        }
        // A text, a list, a structure and a boolean as the size, and a number in place of a structure.
        let text = [&[0x18][..], &number(huge)].concat();
        for size in [&text[..], &[0x19, 0x13, 1], &[0x1c, 0], &[0x11]] {
            assert_eq!(checked(head(size), snappy).unwrap_err().code().as_str(), "page-head", "{size:x?}");
        }
        let number_for_structure = [0x15, 0, 0x15, 20, 0x15, 20, 0x45, 0, 0];
        assert_eq!(checked(number_for_structure.to_vec(), snappy).unwrap_err().code().as_str(), "page-head");
        // Skipped fields may have any type.
        let unknown = [&[0x15, 0, 0x15, 20, 0x15, 20, 0x88, 3][..], b"abc", &[0; 11]].concat();
        assert!(checked(unknown, snappy).is_ok());
    }

    /// The page reader goes by the page type: the structure of another type must not count.
    #[test]
    fn rejects_headers_with_structure_of_another_page_type() {
        let zstd = Compression::ZSTD(Default::default());
        // Values, and required fields of both versions of data pages; values of a dictionary.
        let first = [0x2c, 0x15, 20, 0x15, 0, 0x15, 6, 0x15, 6, 0];
        let second = [0x5c, 0x15, 0, 0x15, 0, 0x15, 0, 0x15, 0, 0x15, 0, 0x15, 0, 0];
        let behind_first = [&[0x3c][..], &second[1..]].concat();
        let dictionary = [0x4c, 0x15, 2, 0x15, 0, 0];
        let behind = [&[0x2c][..], &dictionary[1..]].concat();
        let head = |kind: u8, structures: &[&[u8]]| {
            [&[0x15, kind * 2, 0x15, 20, 0x15, 20][..], &structures.concat(), &[0], &[0; 10]].concat()
        };
        for (kind, structures, good) in [
            (0, &[&first[..]][..], true),
            (2, &[&dictionary], true),
            (3, &[&second], true),
            (0, &[&first, &behind], false),
            (0, &[&first, &behind_first], false),
            (2, &[&first, &behind], false),
            (3, &[&first], false),
            (1, &[&first], false),
        ] {
            for compression in [zstd, Compression::UNCOMPRESSED] {
                let found = checked(head(kind, structures), compression).err().map(|e| e.code().as_str());
                assert_eq!(found, (!good).then_some("page-head"), "{kind} {structures:x?}");
            }
        }
    }
}
