//! Files with edges, cut into chunks of whole lines or rows.

use super::table::{self, Rows, TableReader};
use super::text::{Columns, TextForm};
use super::{MAX_LINE, lock};
use std::io::Read;
use std::sync::Mutex;
use weighbridge_core::checkpoint::RecordsRef;
use weighbridge_core::error::{Error, Result};
use weighbridge_io::source::{SourceRef, read_vec, to_usize};

/// Bytes of a read while looking for the end of a line.
const TAIL: usize = 16 << 10;

/// File with edges: lines of text, plain or compressed with gzip or Zstandard, or a table.
#[derive(Debug, Clone)]
pub struct EdgeFile {
    pub(super) source: SourceRef,
    pub(super) content: Content,
}

/// Content of a file with edges.
#[derive(Debug, Clone)]
pub(super) enum Content {
    Text(TextForm, Packing),
    Table(RecordsRef),
}

/// Compression of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Packing {
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
        Ok(Self { source, content: Content::Text(form, packing) })
    }

    /// Describes a table: `records` has columns of text named `lhs`, `rhs` and perhaps `rel`, and perhaps numbers of dtype `f64`
    /// named `weight`, in any order.
    pub fn of_records(source: SourceRef, records: RecordsRef) -> Self {
        Self { source, content: Content::Table(records) }
    }

    /// True where the edges have a column of this name; text has the columns of the import.
    pub(super) fn has(&self, name: &str, columns: &Columns) -> bool {
        match &self.content {
            Content::Text(TextForm::NTriples, _) if name == "rel" => true,
            Content::Text(..) => columns.has(name),
            Content::Table(records) => records.columns().iter().any(|column| column.name == name),
        }
    }

    /// Form of the content, and the columns of a table.
    pub(super) fn describe(&self) -> String {
        match &self.content {
            Content::Text(form, _) => form.name().to_owned(),
            Content::Table(records) => {
                let names: Vec<&str> = records.columns().iter().map(|column| column.name.as_str()).collect();
                format!("table of {}", names.join(","))
            }
        }
    }

    /// Number of bytes of text, estimated for a compressed file and a table.
    pub(super) fn estimated_len(&self) -> u64 {
        match &self.content {
            Content::Text(_, Packing::Plain) => self.source.len(),
            Content::Text(..) => self.source.len().saturating_mul(4),
            Content::Table(records) => table::estimated_len(records),
        }
    }

    /// Average length of the first lines in bytes, at least 1.
    pub(super) fn line_len(&self) -> Result<u64> {
        if let Content::Table(records) = &self.content {
            return Ok(table::row_len(records));
        }
        let mut head = Vec::new();
        let read = self.reader()?.take(64 << 10).read_to_end(&mut head).map_err(|e| self.failed(&e))?;
        Ok((read as u64 / (memchr::memchr_iter(b'\n', &head).count() as u64).max(1)).max(1))
    }

    fn packing(&self) -> Packing {
        match &self.content {
            Content::Text(_, packing) => *packing,
            Content::Table(_) => Packing::Plain,
        }
    }

    fn reader(&self) -> Result<Box<dyn Read + Send>> {
        let file = Sequential { source: self.source.clone(), at: 0 };
        Ok(match self.packing() {
            Packing::Plain => Box::new(file),
            Packing::Gzip => Box::new(flate2::read::MultiGzDecoder::new(file)),
            Packing::Zstd => Box::new(zstd::stream::read::Decoder::new(file).map_err(|e| self.failed(&e))?),
        })
    }

    /// Returns the error for compressed bytes that cannot be read.
    fn failed(&self, cause: &std::io::Error) -> Error {
        let form = if self.packing() == Packing::Gzip { "gzip" } else { "Zstandard" };
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

/// Part of a file.
#[derive(Debug)]
pub(super) struct Chunk {
    /// Number of the chunk in its file.
    pub(super) number: u64,
    pub(super) part: Part,
}

/// Whole lines or rows.
#[derive(Debug)]
pub(super) enum Part {
    /// Text, and the offset of its first byte in the text of the file.
    Lines(u64, Vec<u8>),
    Rows(Rows),
}

/// Chunks of a file, for several threads. A line belongs to the chunk in which it begins.
pub(super) struct Chunks<'f> {
    file: &'f EdgeFile,
    size: u64,
    state: Mutex<State<'f>>,
}

struct State<'f> {
    next: u64,
    reader: Reader<'f>,
}

/// Reader of a file. Compressed text and tables are read in order.
enum Reader<'f> {
    Plain,
    Packed(Unpacker),
    Table(TableReader<'f>),
}

/// Reader of compressed lines.
struct Unpacker {
    reader: Box<dyn Read + Send>,
    /// Text after the last whole line.
    rest: Vec<u8>,
    offset: u64,
    is_done: bool,
    /// The text begins within a line that is too long.
    is_within: bool,
}

impl<'f> Chunks<'f> {
    pub(super) fn new(file: &'f EdgeFile, size: u64) -> Result<Self> {
        let reader = match &file.content {
            Content::Text(_, Packing::Plain) => Reader::Plain,
            Content::Text(..) => Reader::Packed(Unpacker {
                reader: file.reader()?,
                rest: Vec::new(),
                offset: 0,
                is_done: false,
                is_within: false,
            }),
            Content::Table(records) => Reader::Table(TableReader::new(records)),
        };
        Ok(Self { file, size, state: Mutex::new(State { next: 0, reader }) })
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
            let part = match &mut state.reader {
                Reader::Plain => {
                    let start = number.saturating_mul(self.size);
                    (start < self.file.source.len()).then_some(None)
                }
                Reader::Packed(reader) => self.unpacked(reader)?.map(Some),
                Reader::Table(reader) => reader.next(self.size)?.map(|rows| Some(Part::Rows(rows))),
            };
            let Some(part) = part else { return Ok(None) };
            state.next += 1;
            drop(state);
            if !wanted(number)? {
                continue;
            }
            let part = match part {
                Some(part) => part,
                // Plain text is read by all threads at the same time.
                None => self.plain(number * self.size)?,
            };
            return Ok(Some(Chunk { number, part }));
        }
    }

    /// Reads the lines that begin in the chunk at `start` of a plain file.
    fn plain(&self, start: u64) -> Result<Part> {
        let source = &*self.file.source;
        let end = source.len().min(start + self.size);
        // The byte before tells whether a line begins at `start`.
        let before = u64::from(start > 0);
        let mut text = Vec::with_capacity(to_usize(end - start + before)? + TAIL);
        text.resize(to_usize(end - start + before)?, 0);
        source.read_at(start - before, &mut text)?;
        let skip = if before == 0 { 0 } else { memchr::memchr(b'\n', &text).map_or(text.len(), |at| at + 1) };
        if skip >= text.len() {
            return Ok(Part::Lines(end, Vec::new()));
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
        Ok(Part::Lines(start - before + skip as u64, text))
    }

    /// Reads the next whole lines of a compressed file.
    fn unpacked(&self, state: &mut Unpacker) -> Result<Option<Part>> {
        let mut text = std::mem::take(&mut state.rest);
        let size = to_usize(self.size)?;
        let mut read = |text: &mut Vec<u8>, want: usize| {
            let more = state.reader.by_ref().take(want as u64).read_to_end(text);
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
        let part = Part::Lines(state.offset, text);
        state.offset += cut as u64;
        Ok(Some(part))
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
            let Part::Lines(start, text) = chunk.part else { panic!("rows") };
            if !text.is_empty() {
                assert_eq!(start, offset);
            }
            offset += text.len() as u64;
            all.extend(text.split_inclusive(|b| *b == b'\n').map(|l| String::from_utf8(l.to_vec()).unwrap()));
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
