//! Source over bytes that a pickle stores as text.

use super::graph::{Span, Stored};
use std::sync::{Mutex, PoisonError};
use weighbridge_core::error::{Error, Result};
use weighbridge_io::source::{Source, SourceRef, Within, check_range, to_usize};

/// Encoded bytes decoded at a time; also the granularity of the index.
const CHUNK: u64 = 64 << 10;
/// Length of the longest escape, `\UXXXXXXXX`.
const MAX_ESCAPE_LEN: usize = 10;

/// Bytes of a span, raw or decoded from text.
///
/// Creating the source reads nothing. Decoding goes forward and records the start of each 64 KiB of
/// text, so a read at an earlier offset starts near it. Text that does not decode to the expected
/// number of bytes fails the read that reaches it. The last chunk is cached until the end is read.
#[derive(Debug)]
pub struct PayloadSource {
    outer: SourceRef,
    span: Span,
    len: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Decoded and encoded start of each chunk, in order; the frontier follows the last one.
    index: Vec<(u64, u64)>,
    frontier: (u64, u64),
    /// Chunk that was decoded last, and the decoded offset of its first byte.
    chunk: Vec<u8>,
    chunk_at: u64,
}

impl PayloadSource {
    /// Creates a source over the `len` bytes that `span` of `outer` decodes to.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`]: `past-the-end` if the span exceeds `outer`, `pickle-payload`
    /// if it cannot hold that many bytes.
    pub fn new(outer: SourceRef, span: Span, len: u64) -> Result<Self> {
        check_range(&*outer, span.offset, span.len)?;
        if !may_hold(span, len) {
            return Err(wrong_length(len).at(span.offset).found(format_args!("{} bytes of text", span.len)));
        }
        Ok(Self { outer, span, len, state: Mutex::default() })
    }

    fn place(&self, error: Error, encoded: u64) -> Error {
        error.at(self.span.offset + encoded).in_file(self.outer.label())
    }

    /// Decodes the chunk at these offsets into `state`; returns the offsets of the next chunk.
    fn decode(&self, state: &mut State, (decoded, encoded): (u64, u64)) -> Result<(u64, u64)> {
        let take = CHUNK.min(self.span.len - encoded);
        let mut text = vec![0; to_usize(take)?];
        self.outer.read_at(self.span.offset + encoded, &mut text)?;
        let last = encoded + take == self.span.len;
        state.chunk.clear();
        state.chunk_at = decoded;
        let used =
            decode(&text, last, self.span.stored, &mut state.chunk).map_err(|e| self.place(e, encoded))?;
        if used == 0 {
            return Err(self.place(wrong_length(self.len).found(format_args!("{decoded} bytes")), encoded));
        }
        let next = (decoded + state.chunk.len() as u64, encoded + used as u64);
        let ends = next.1 == self.span.len;
        if next.0 > self.len || (ends && next.0 != self.len) {
            return Err(self.place(wrong_length(self.len).found(format_args!("{} bytes", next.0)), encoded));
        }
        Ok(next)
    }

    /// Decodes the chunk that holds decoded byte `offset` into `state`.
    fn seek(&self, state: &mut State, offset: u64) -> Result<()> {
        let end = state.chunk_at + state.chunk.len() as u64;
        if (state.chunk_at..end).contains(&offset) {
            return Ok(());
        }
        if offset < state.frontier.0 {
            let after = state.index.partition_point(|&(decoded, _)| decoded <= offset);
            let start = after.checked_sub(1).and_then(|at| state.index.get(at)).copied().unwrap_or((0, 0));
            self.decode(state, start)?;
            return Ok(());
        }
        while state.frontier.0 <= offset {
            let start = state.frontier;
            let next = self.decode(state, start)?;
            state.index.push(start);
            state.frontier = next;
        }
        Ok(())
    }
}

impl Source for PayloadSource {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        check_range(self, offset, buffer.len() as u64)?;
        if self.span.stored == Stored::Raw {
            return self.outer.read_at(self.span.offset + offset, buffer);
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut filled = 0;
        while filled < buffer.len() {
            let at = offset + filled as u64;
            if let Err(error) = self.seek(&mut state, at) {
                state.chunk.clear();
                return Err(error);
            }
            let from = to_usize(at - state.chunk_at)?;
            let have = state.chunk.get(from..).unwrap_or_default();
            let room = &mut buffer[filled..];
            let count = have.len().min(room.len());
            room[..count].copy_from_slice(&have[..count]);
            filled += count;
        }
        // Free the chunk after the last byte: a file may hold thousands of arrays.
        if offset + filled as u64 == self.len {
            state.chunk = Vec::new();
        }
        Ok(())
    }

    fn within(&self) -> Option<Within<'_>> {
        let (offset, len) = (self.span.offset, self.span.len);
        Some(Within { source: &self.outer, offset, len, encoded: self.span.stored != Stored::Raw })
    }

    fn label(&self) -> &str {
        self.outer.label()
    }

    fn is_sequential(&self) -> bool {
        self.span.stored != Stored::Raw || self.outer.is_sequential()
    }
}

/// Returns true if `span` can decode to `len` bytes.
pub(super) fn may_hold(span: Span, len: u64) -> bool {
    let longest = match span.stored {
        Stored::Raw => 1,
        Stored::Utf8 => 2,
        Stored::StringEscape => 4,
        Stored::UnicodeEscape => MAX_ESCAPE_LEN as u64,
    };
    len <= span.len && span.len <= len.saturating_mul(longest)
}

fn wrong_length(len: u64) -> Error {
    Error::corrupt("pickle-payload", "the text decodes to the wrong number of bytes")
        .expected(format_args!("{len} bytes"))
}

/// Counts the bytes of the UTF-8 text that protocol 2 writes for `len` bytes of `source` at `offset`.
/// Reads them all, in chunks.
///
/// # Errors
/// Errors of the source.
#[cfg(test)]
pub(crate) fn latin1_len(source: &dyn Source, offset: u64, len: u64) -> Result<u64> {
    check_range(source, offset, len)?;
    let mut buffer = vec![0; to_usize(len.min(CHUNK))?];
    let (mut done, mut high) = (0, 0);
    while done < len {
        let take = to_usize((len - done).min(CHUNK))?;
        let piece = &mut buffer[..take];
        source.read_at(offset + done, piece)?;
        high += piece.iter().filter(|&&b| b >= 0x80).count() as u64;
        done += take as u64;
    }
    Ok(len + high)
}

/// Decodes whole units of `text` into `out`; `last` means that no text follows. Returns the number of
/// bytes used: all of them for the last text.
pub(super) fn decode(text: &[u8], last: bool, stored: Stored, out: &mut Vec<u8>) -> Result<usize> {
    let mut used = 0;
    while let Some(rest) = text.get(used..).filter(|rest| !rest.is_empty()) {
        if !last && rest.len() < MAX_ESCAPE_LEN {
            break;
        }
        // Plain bytes come in runs.
        let plain = match stored {
            Stored::Utf8 => rest.iter().take_while(|&&b| b < 0x80).count(),
            Stored::Raw => rest.len(),
            _ => rest.iter().take_while(|&&b| b != b'\\').count(),
        };
        if plain > 0 {
            out.extend_from_slice(&rest[..plain]);
            used += plain;
            continue;
        }
        if let (Stored::Utf8, [lead @ 0xc2..=0xc3, tail @ 0x80..=0xbf, ..]) = (stored, rest) {
            out.push((lead << 6) | (tail & 0x3f));
            used += 2;
            continue;
        }
        let (unit, len) = escape(rest, stored).ok_or_else(|| not_bytes(used))?;
        match unit {
            Unit::None => {}
            Unit::One(c) => out.push(u8::try_from(c).map_err(|_| not_bytes(used))?),
            Unit::Backslash(c) => out.extend([b'\\', c]),
        }
        used += len;
    }
    Ok(used)
}

fn not_bytes(at: usize) -> Error {
    Error::corrupt("pickle-payload", "the text does not encode bytes")
        .expected("code points U+0000 to U+00FF")
        .found(format_args!("another code point {at} bytes into this chunk"))
}

/// Decoded value of an escape.
enum Unit {
    /// Nothing: a line continuation.
    None,
    /// A code point.
    One(u32),
    /// A backslash and the byte after it.
    Backslash(u8),
}

/// Decodes the escape at the start of `rest`; returns its value and length.
fn escape(rest: &[u8], stored: Stored) -> Option<(Unit, usize)> {
    let [b'\\', kind, ..] = *rest else {
        // A trailing backslash is literal in `UnicodeEscape`, and an error in `StringEscape`.
        return (rest == b"\\" && stored == Stored::UnicodeEscape)
            .then_some((Unit::One(u32::from(b'\\')), 1));
    };
    let hex = |len: usize| {
        let digits = rest.get(2..2 + len)?;
        let ascii = digits.iter().all(u8::is_ascii_hexdigit);
        let text = std::str::from_utf8(digits).ok().filter(|_| ascii)?;
        Some((Unit::One(u32::from_str_radix(text, 16).ok()?), 2 + len))
    };
    let one = |byte: u8| Some((Unit::One(u32::from(byte)), 2));
    match (stored, kind) {
        (Stored::UnicodeEscape, b'u') => hex(4),
        (Stored::UnicodeEscape, b'U') => hex(8),
        (Stored::UnicodeEscape, other) => Some((Unit::Backslash(other), 2)),
        (Stored::StringEscape, b'x') => hex(2),
        (Stored::StringEscape, b'\\' | b'\'' | b'"') => one(kind),
        (Stored::StringEscape, b'\n') => Some((Unit::None, 2)),
        (Stored::StringEscape, b'n') => one(b'\n'),
        (Stored::StringEscape, b'r') => one(b'\r'),
        (Stored::StringEscape, b't') => one(b'\t'),
        (Stored::StringEscape, b'a') => one(7),
        (Stored::StringEscape, b'b') => one(8),
        (Stored::StringEscape, b'f') => one(12),
        (Stored::StringEscape, b'v') => one(11),
        (Stored::StringEscape, b'0'..=b'7') => {
            let len = rest[1..].iter().take(3).take_while(|b| matches!(b, b'0'..=b'7')).count();
            let value = rest[1..=len].iter().fold(0u32, |n, b| n * 8 + u32::from(b - b'0'));
            // Three octal digits can exceed a byte; Python keeps the low bits.
            Some((Unit::One(value & 0xff), 1 + len))
        }
        (Stored::StringEscape, other) => Some((Unit::Backslash(other), 2)),
        _ => None,
    }
}

/// Decodes the characters of a short text with escapes.
pub(super) fn unescape(text: &[u8], stored: Stored) -> Result<Vec<char>> {
    let mut chars = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        if *first != b'\\' {
            chars.push(char::from(*first));
            rest = tail;
            continue;
        }
        let bad = || Error::corrupt("pickle-string", "the string has an invalid escape");
        let (unit, len) = escape(rest, stored).ok_or_else(bad)?;
        match unit {
            Unit::None => {}
            Unit::One(c) => chars.push(char::from_u32(c).unwrap_or(char::REPLACEMENT_CHARACTER)),
            Unit::Backslash(c) => chars.extend(['\\', char::from(c)]),
        }
        rest = rest.get(len..).unwrap_or_default();
    }
    Ok(chars)
}
