//! Files with lines, cut into chunks of whole lines.

use super::text::TextForm;
use super::{MAX_LINE, lock};
use std::io::Read;
use std::sync::Mutex;
use weighbridge_core::error::{Error, Result};
use weighbridge_io::source::{SourceRef, read_vec, to_usize};

/// Bytes of a read while looking for the end of a line.
const TAIL: usize = 16 << 10;

/// File with edges as lines of text, plain or compressed with gzip or Zstandard.
#[derive(Debug, Clone)]
pub struct EdgeFile {
    pub(super) source: SourceRef,
    pub(super) form: TextForm,
    packing: Packing,
}

/// Compression of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Packing {
    Plain,
    Gzip,
    Zstd,
}

impl EdgeFile {
    /// Describes a file: its form follows from its name unless it is given; its compression from its first bytes.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`].
    pub fn new(source: SourceRef, form: Option<TextForm>) -> Result<Self> {
        let head = read_vec(&*source, 0, source.len().min(4))?;
        let packing = match head[..] {
            [0x1f, 0x8b, ..] => Packing::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd] => Packing::Zstd,
            _ => Packing::Plain,
        };
        let form = form.unwrap_or_else(|| TextForm::of_name(source.label()));
        Ok(Self { source, form, packing })
    }

    /// Number of bytes of text, estimated for a compressed file.
    pub(super) fn estimated_len(&self) -> u64 {
        match self.packing {
            Packing::Plain => self.source.len(),
            _ => self.source.len().saturating_mul(4),
        }
    }

    /// Average length of the first lines in bytes, at least 1.
    pub(super) fn line_len(&self) -> Result<u64> {
        let mut head = Vec::new();
        let read = self.reader()?.take(64 << 10).read_to_end(&mut head).map_err(|e| self.failed(&e))?;
        Ok((read as u64 / (memchr::memchr_iter(b'\n', &head).count() as u64).max(1)).max(1))
    }

    pub(super) fn is_plain(&self) -> bool {
        self.packing == Packing::Plain
    }

    fn reader(&self) -> Result<Box<dyn Read + Send>> {
        let file = Sequential { source: self.source.clone(), at: 0 };
        Ok(match self.packing {
            Packing::Plain => Box::new(file),
            Packing::Gzip => Box::new(flate2::read::MultiGzDecoder::new(file)),
            Packing::Zstd => Box::new(zstd::stream::read::Decoder::new(file).map_err(|e| self.failed(&e))?),
        })
    }

    /// Returns the error for compressed bytes that cannot be read.
    fn failed(&self, cause: &std::io::Error) -> Error {
        let form = if self.packing == Packing::Gzip { "gzip" } else { "Zstandard" };
        Error::corrupt("bad-compression", format!("cannot decompress the file as {form}"))
            .in_file(self.source.label())
            .found(cause)
            .hint("the file is truncated or damaged")
    }

    /// Returns the number of the line, from 1, with the byte at `offset` of the text.
    pub(super) fn line_at(&self, offset: u64) -> Result<u64> {
        let mut reader = self.reader()?.take(offset);
        let (mut buffer, mut lines) = (vec![0; 1 << 20], 1);
        loop {
            match reader.read(&mut buffer) {
                Ok(0) => return Ok(lines),
                Ok(n) => lines += memchr::memchr_iter(b'\n', &buffer[..n]).count() as u64,
                Err(e) => return Err(self.failed(&e)),
            }
        }
    }
}

/// Reads a source from its beginning.
struct Sequential {
    source: SourceRef,
    at: u64,
}

impl Read for Sequential {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let left = usize::try_from(self.source.len() - self.at).unwrap_or(usize::MAX);
        let len = buffer.len().min(left);
        self.source.read_at(self.at, &mut buffer[..len]).map_err(std::io::Error::other)?;
        self.at += len as u64;
        Ok(len)
    }
}

/// Whole lines of a file.
#[derive(Debug)]
pub(super) struct Chunk {
    /// Number of the chunk in its file.
    pub(super) number: u64,
    /// Offset of its first byte in the text of the file.
    pub(super) offset: u64,
    pub(super) text: Vec<u8>,
}

/// Chunks of a file, for several threads. A line belongs to the chunk in which it begins.
pub(super) struct Chunks<'f> {
    file: &'f EdgeFile,
    size: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next: u64,
    /// Compressed files are read in order.
    reader: Option<Box<dyn Read + Send>>,
    /// Text after the last whole line.
    rest: Vec<u8>,
    offset: u64,
    is_done: bool,
    /// The text begins within a line that is too long.
    is_within: bool,
}

impl<'f> Chunks<'f> {
    pub(super) fn new(file: &'f EdgeFile, size: u64) -> Result<Self> {
        let reader = if file.is_plain() { None } else { Some(file.reader()?) };
        Ok(Self { file, size, state: Mutex::new(State { reader, ..State::default() }) })
    }

    /// Number of chunks handed out or skipped so far: all of them after [`next`](Self::next) returned `None`.
    pub(super) fn count(&self) -> u64 {
        lock(&self.state).next
    }

    /// Returns the next chunk that is `wanted`.
    pub(super) fn next(&self, wanted: &dyn Fn(u64) -> Result<bool>) -> Result<Option<Chunk>> {
        loop {
            let mut state = lock(&self.state);
            let number = state.next;
            if state.reader.is_none() {
                let start = number.saturating_mul(self.size);
                if start >= self.file.source.len() {
                    return Ok(None);
                }
                state.next += 1;
                drop(state);
                if wanted(number)? {
                    return self.plain(number, start).map(Some);
                }
                continue;
            }
            let Some(chunk) = self.unpacked(&mut state)? else { return Ok(None) };
            drop(state);
            if wanted(number)? {
                return Ok(Some(chunk));
            }
        }
    }

    /// Reads the lines that begin in the chunk at `start` of a plain file.
    fn plain(&self, number: u64, start: u64) -> Result<Chunk> {
        let source = &*self.file.source;
        let end = source.len().min(start + self.size);
        // The byte before tells whether a line begins at `start`.
        let before = u64::from(start > 0);
        let mut text = Vec::with_capacity(to_usize(end - start + before)? + TAIL);
        text.resize(to_usize(end - start + before)?, 0);
        source.read_at(start - before, &mut text)?;
        let skip = if before == 0 { 0 } else { memchr::memchr(b'\n', &text).map_or(text.len(), |at| at + 1) };
        if skip >= text.len() {
            return Ok(Chunk { number, offset: end, text: Vec::new() });
        }
        let mut at = end;
        while text.last() != Some(&b'\n')
            && at < source.len()
            && text.len() - skip < to_usize(self.size)? + MAX_LINE
        {
            let more = read_vec(source, at, (TAIL as u64).min(source.len() - at))?;
            let stop = memchr::memchr(b'\n', &more).map_or(more.len(), |at| at + 1);
            text.extend_from_slice(&more[..stop]);
            at += stop as u64;
        }
        text.drain(..skip);
        Ok(Chunk { number, offset: start - before + skip as u64, text })
    }

    /// Reads the next whole lines of a compressed file.
    fn unpacked(&self, state: &mut State) -> Result<Option<Chunk>> {
        let Some(reader) = state.reader.as_mut() else { return Ok(None) };
        let mut text = std::mem::take(&mut state.rest);
        let size = to_usize(self.size)?;
        let mut read = |text: &mut Vec<u8>, want: usize| {
            let more = reader.by_ref().take(want as u64).read_to_end(text);
            more.map(|read| read < want).map_err(|e| self.file.failed(&e))
        };
        while state.is_within {
            let end = memchr::memchr(b'\n', &text);
            let skipped = end.map_or(text.len(), |at| at + 1);
            text.drain(..skipped);
            state.offset += skipped as u64;
            state.is_within = end.is_none() && !state.is_done;
            if state.is_within {
                state.is_done = read(&mut text, TAIL)?;
            }
        }
        let mut cut = None;
        while !state.is_done && cut.is_none() {
            let from = text.len();
            let want = if from < size { size - from } else { TAIL };
            state.is_done = read(&mut text, want)?;
            if text.len() >= size {
                cut = memchr::memrchr(b'\n', &text[from..]).map(|at| from + at + 1);
                // No line ends in the text, which is returned as a line that is too long.
                if cut.is_none() && text.len() > size + MAX_LINE {
                    state.is_within = true;
                    cut = Some(text.len());
                }
            }
        }
        if text.is_empty() {
            return Ok(None);
        }
        let cut = if state.is_done { text.len() } else { cut.unwrap_or(text.len()) };
        state.rest = text.split_off(cut);
        let chunk = Chunk { number: state.next, offset: state.offset, text };
        state.offset += cut as u64;
        state.next += 1;
        Ok(Some(chunk))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use weighbridge_io::source::MemorySource;

    fn lines(bytes: Vec<u8>, size: u64) -> (Vec<String>, u64) {
        let file = EdgeFile::new(Arc::new(MemorySource::new("edges.tsv", bytes)), None).unwrap();
        let chunks = Chunks::new(&file, size).unwrap();
        let (mut all, mut offset) = (Vec::new(), 0);
        while let Some(chunk) = chunks.next(&|_| Ok(true)).unwrap() {
            if !chunk.text.is_empty() {
                assert_eq!(chunk.offset, offset);
            }
            offset += chunk.text.len() as u64;
            all.extend(
                chunk.text.split_inclusive(|b| *b == b'\n').map(|l| String::from_utf8(l.to_vec()).unwrap()),
            );
        }
        (all, offset)
    }

    #[test]
    fn chunks_are_whole_lines_whatever_their_size() {
        let text = "a\tr\tb\n\nlonger line than a chunk\n1\n22\n333\n4444\nend".to_owned();
        let expected: Vec<String> = text.split_inclusive('\n').map(str::to_owned).collect();
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut gzip, &text.as_bytes()[..20]).unwrap();
        let mut gzip = gzip.finish().unwrap();
        let mut second = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut second, &text.as_bytes()[20..]).unwrap();
        gzip.extend(second.finish().unwrap());
        let packed = zstd::encode_all(text.as_bytes(), 1).unwrap();
        for bytes in [text.clone().into_bytes(), gzip, packed] {
            for size in 1..60 {
                let (found, len) = lines(bytes.clone(), size);
                assert_eq!(found, expected, "{size}");
                assert_eq!(len, text.len() as u64);
            }
        }
    }

    #[test]
    fn damaged_files_are_errors() {
        let packed = zstd::encode_all(&b"a\tr\tb\n".repeat(1000)[..], 1).unwrap();
        let file =
            EdgeFile::new(Arc::new(MemorySource::new("e.zst", packed[..packed.len() - 3].to_vec())), None);
        let file = file.unwrap();
        let chunks = Chunks::new(&file, 100).unwrap();
        let error = loop {
            match chunks.next(&|_| Ok(true)) {
                Ok(Some(_)) => {}
                Ok(None) => panic!("no error"),
                Err(error) => break error,
            }
        };
        assert_eq!(error.code().as_str(), "bad-compression");
    }
}
