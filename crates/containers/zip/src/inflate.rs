//! A deflated member as a source.

use super::Member;
use flate2::{Decompress, FlushDecompress, Status};
use std::sync::{Mutex, PoisonError};
use weighbridge_core::error::{Error, Result};
use weighbridge_io::source::{Source, SourceRef, Within, check_range, to_usize};

/// Compressed bytes of the first read: enough for the header of an array.
const MIN_READ_LEN: u64 = 1 << 10;
/// Most compressed bytes of one read.
const MAX_READ_LEN: u64 = 64 << 10;
/// Size of the buffer for inflated bytes that are skipped.
const SKIP_LEN: usize = 64 << 10;

/// Inflated bytes of a deflated member.
///
/// Sequential reads continue the stream; a read at an earlier offset begins again at the start. Memory is that
/// of one inflater, and is freed after the last byte is read. The length is the one claimed by the archive. If
/// the stream is shorter or longer, or its CRC-32 differs, the read that reaches the end fails.
pub struct InflateSource {
    packed: Packed,
    len: u64,
    /// Expected CRC-32; `None` where it is not checked.
    crc32: Option<u32>,
    inflater: Mutex<Option<Box<Inflater>>>,
}

/// Range of the compressed bytes.
#[derive(Debug, Clone)]
struct Packed {
    outer: SourceRef,
    member: String,
    start: u64,
    len: u64,
}

impl Packed {
    fn corrupt(&self, code: &'static str, message: &str) -> Error {
        Error::corrupt(
            code,
            format!("{message} (member {})", weighbridge_core::checkpoint::escape_text(&self.member)),
        )
        .in_file(self.outer.label())
        .at(self.start)
    }
}

struct Inflater {
    stream: Decompress,
    input: Vec<u8>,
    consumed: usize,
    fetched: u64,
    produced: u64,
    ended: bool,
    crc: crc32fast::Hasher,
}

impl InflateSource {
    /// Opens the inflated bytes of `member` of the archive `outer`. Reads nothing.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`], code `past-the-end`, where the member extends beyond `outer`.
    pub fn new(outer: SourceRef, member: &Member) -> Result<Self> {
        check_range(&*outer, member.data_offset, member.compressed_len)?;
        let packed = Packed {
            outer,
            member: member.name.clone(),
            start: member.data_offset,
            len: member.compressed_len,
        };
        Ok(Self { packed, len: member.len, crc32: Some(member.crc32), inflater: Mutex::new(None) })
    }

    /// Same as [`new`](Self::new), without checking the CRC-32: for scanning bytes whose checksum is wrong.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn unchecked(outer: SourceRef, member: &Member) -> Result<Self> {
        Ok(Self { crc32: None, ..Self::new(outer, member)? })
    }
}

/// Inflates up to `most` bytes of a deflate stream at `start` of `outer`; fewer where it ends or breaks before.
pub(super) fn inflate_prefix(outer: &SourceRef, start: u64, most: usize) -> Result<Vec<u8>> {
    let len = outer.len().saturating_sub(start);
    let packed = Packed { outer: outer.clone(), member: String::new(), start, len };
    let mut bytes = vec![0; most];
    let count = Inflater::new().fill(&packed, &mut bytes)?;
    bytes.truncate(count);
    Ok(bytes)
}

/// Measured lengths of a deflate stream.
pub(super) struct Extent {
    /// Compressed bytes; of a broken stream, all bytes that were read.
    pub(super) taken: u64,
    /// Inflated bytes.
    pub(super) given: u64,
    /// CRC-32 of the inflated bytes; `None` where the stream breaks or exceeds its bounds.
    pub(super) crc32: Option<u32>,
}

/// Measures a deflate stream at `start` of `outer`, of at most `most_taken` compressed and `most_given` inflated bytes.
pub(super) fn extent(outer: &SourceRef, start: u64, most_taken: u64, most_given: u64) -> Result<Extent> {
    let len = outer.len().saturating_sub(start).min(most_taken);
    let packed = Packed { outer: outer.clone(), member: String::new(), start, len };
    let mut inflater = Inflater::new();
    let mut waste = vec![0; SKIP_LEN];
    while !inflater.ended && inflater.produced < most_given {
        match inflater.fill(&packed, &mut waste) {
            Ok(0) if !inflater.ended => break,
            Ok(_) => {}
            Err(error) if error.kind() == weighbridge_core::Kind::Corrupt => break,
            Err(error) => return Err(error),
        }
    }
    let (fetched, given) = (inflater.fetched, inflater.produced);
    if !inflater.ended || given > most_given {
        return Ok(Extent { taken: fetched, given, crc32: None });
    }
    let taken = fetched - (inflater.input.len() - inflater.consumed) as u64;
    Ok(Extent { taken, given, crc32: Some(inflater.crc.finalize()) })
}

impl Source for InflateSource {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        check_range(self, offset, buffer.len() as u64)?;
        if buffer.is_empty() {
            return Ok(());
        }
        let mut place = self.inflater.lock().unwrap_or_else(PoisonError::into_inner);
        // Taken out, so that the next read after an error begins at the start.
        let mut inflater = match place.take() {
            Some(inflater) if inflater.produced <= offset => inflater,
            _ => Box::new(Inflater::new()),
        };
        inflater.skip_to(&self.packed, offset)?;
        if inflater.fill(&self.packed, buffer)? < buffer.len() {
            return Err(ends_early(&self.packed, self.len, inflater.produced));
        }
        if inflater.produced == self.len {
            return inflater.check_end(&self.packed, self.len, self.crc32);
        }
        *place = Some(inflater);
        Ok(())
    }

    fn label(&self) -> &str {
        self.packed.outer.label()
    }

    fn is_sequential(&self) -> bool {
        true
    }
    fn within(&self) -> Option<Within<'_>> {
        let Packed { outer, start, len, .. } = &self.packed;
        Some(Within { source: outer, offset: *start, len: *len, encoded: true })
    }
}

impl std::fmt::Debug for InflateSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InflateSource").field("packed", &self.packed).field("len", &self.len).finish()
    }
}

fn ends_early(packed: &Packed, expected: u64, found: u64) -> Error {
    packed
        .corrupt("deflate-too-short", "the compressed data yields fewer bytes than the archive claims")
        .expected(format_args!("{expected} bytes"))
        .found(format_args!("{found} bytes"))
}

impl Inflater {
    fn new() -> Self {
        Self {
            stream: Decompress::new(false),
            input: Vec::new(),
            consumed: 0,
            fetched: 0,
            produced: 0,
            ended: false,
            crc: crc32fast::Hasher::new(),
        }
    }

    /// Inflates until `out` is full or the stream ends; returns the number of bytes.
    fn fill(&mut self, packed: &Packed, out: &mut [u8]) -> Result<usize> {
        let mut filled = 0;
        while filled < out.len() && !self.ended {
            if self.consumed == self.input.len() {
                self.fetch(packed)?;
            }
            let (taken, given) = self.step(packed, &mut out[filled..])?;
            filled += given;
            if taken == 0 && given == 0 {
                break;
            }
        }
        self.crc.update(&out[..filled]);
        self.produced += filled as u64;
        Ok(filled)
    }

    /// Calls the inflater once; returns the consumed and the produced bytes.
    fn step(&mut self, packed: &Packed, out: &mut [u8]) -> Result<(usize, usize)> {
        let before = (self.stream.total_in(), self.stream.total_out());
        let status = self
            .stream
            .decompress(&self.input[self.consumed..], out, FlushDecompress::None)
            .map_err(|e| packed.corrupt("bad-deflate", &format!("the compressed data is damaged: {e}")))?;
        let taken = to_usize(self.stream.total_in() - before.0)?;
        let given = to_usize(self.stream.total_out() - before.1)?;
        self.consumed += taken;
        self.ended = status == Status::StreamEnd;
        Ok((taken, given))
    }

    /// Reads the next compressed bytes; none at the end.
    fn fetch(&mut self, packed: &Packed) -> Result<()> {
        // As many as were read so far: reading a header is cheap, and the rest takes few calls.
        let most = self.fetched.clamp(MIN_READ_LEN, MAX_READ_LEN);
        let take = most.min(packed.len - self.fetched);
        self.input.resize(to_usize(take)?, 0);
        self.consumed = 0;
        packed.outer.read_at(packed.start + self.fetched, &mut self.input)?;
        self.fetched += take;
        Ok(())
    }

    fn skip_to(&mut self, packed: &Packed, offset: u64) -> Result<()> {
        if self.produced == offset {
            return Ok(());
        }
        let mut waste = vec![0; to_usize((offset - self.produced).min(SKIP_LEN as u64))?];
        while self.produced < offset {
            let want = to_usize((offset - self.produced).min(SKIP_LEN as u64))?;
            if self.fill(packed, &mut waste[..want])? < want {
                return Err(ends_early(packed, offset, self.produced));
            }
        }
        Ok(())
    }

    /// Checks the end of the stream against the length and CRC-32 claimed by the archive.
    fn check_end(&mut self, packed: &Packed, len: u64, crc32: Option<u32>) -> Result<()> {
        let more = self.produced == len && self.fill(packed, &mut [0])? > 0;
        let left = packed.len - self.fetched + (self.input.len() - self.consumed) as u64;
        if more || !self.ended || left > 0 {
            let message = match () {
                () if more => "the compressed data yields more bytes than the archive claims",
                () if !self.ended => "the compressed data has no end marker",
                () => "bytes follow the end of the compressed data",
            };
            return Err(packed.corrupt("deflate-too-long", message).expected(format_args!("{len} bytes")));
        }
        let found = self.crc.clone().finalize();
        if let Some(crc32) = crc32.filter(|&crc32| crc32 != found) {
            return Err(packed
                .corrupt("crc-mismatch", "the CRC-32 of the data does not match")
                .expected(format_args!("{crc32:08x}"))
                .found(format_args!("{found:08x}")));
        }
        Ok(())
    }
}
