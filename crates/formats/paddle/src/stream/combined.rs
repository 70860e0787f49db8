//! Files of several streams, end to end until the end of the file. The file has no count, names or sizes;
//! the k-th stream belongs to the k-th parameter name of the program.

use super::dense;
use super::header::{Dense, Header};
use super::unshipped::size_prefixed;
use super::vocab::{self, Vocab};
use weighbridge_core::ErrorCode;
use weighbridge_core::checkpoint::{Name, TensorEntry, TensorPath};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::plan::FileBuilder;
use weighbridge_core::text::counted;
use weighbridge_io::source::{Cursor, SourceRef};

/// Length of a version word in bytes. A shorter remainder cannot begin another stream.
const VERSION_WORD: u64 = 4;

/// Content of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Dense tensor.
    Dense,
    /// Vocabulary: words with their numbers.
    Vocab,
}

/// Stream declared by the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Path of the tensor; errors name it.
    pub path: TensorPath,
    /// Content of the stream.
    pub kind: Kind,
}

/// Stream read from a file.
#[derive(Debug, Clone)]
pub enum Stream {
    /// Dense tensor.
    Dense(Dense),
    /// Vocabulary: words with their numbers.
    Vocab(Vocab),
}

/// Streams read before the first error.
#[derive(Debug)]
pub struct Salvage<T> {
    /// Complete streams, in order.
    pub streams: Vec<T>,
    /// Error that ended reading; `None` if the whole file was read.
    pub error: Option<Error>,
}

impl<T> Salvage<T> {
    /// Returns all streams.
    ///
    /// # Errors
    /// The error that ended reading, if any.
    pub fn whole(self) -> Result<Vec<T>> {
        match self.error {
            None => Ok(self.streams),
            Some(error) => Err(error),
        }
    }
}

/// Reads all streams of a file of dense tensors. The k-th tensor gets the path `["k"]`, counted from 0, because
/// the file has no names.
///
/// # Errors
/// Same as [`dense::read`]; [`weighbridge_core::Kind::Corrupt`]: `empty-file`, and `trailing-bytes` for a
/// remainder that is too short for a stream; [`weighbridge_core::Kind::Unsupported`]: `size-prefixed`;
/// [`weighbridge_core::Kind::Limit`] for more tensors than the limits allow.
pub fn read_all(source: &SourceRef, limits: &Limits) -> Result<Vec<Dense>> {
    salvage(source, limits).whole()
}

/// Same as [`read_all`], but keeps the streams read before an error.
pub fn salvage(source: &SourceRef, limits: &Limits) -> Salvage<Dense> {
    let mut reader = Reader::new(source, limits);
    let mut streams = Vec::new();
    let mut read = || -> Result<()> {
        if source.is_empty() {
            return Err(empty(source));
        }
        while reader.cursor.remaining() > 0 {
            let start = reader.cursor.position();
            let path = number(streams.len());
            let stream = reader.dense(&path, streams.len()).map_err(|e| {
                let e = if e.tensor().is_some() { e.on_tensor(format_args!("#{path}")) } else { e };
                explain(e, source, start, limits)
            })?;
            streams.push(stream);
        }
        Ok(())
    };
    let error = read().err().map(|e| e.in_file(source.label()));
    Salvage { streams, error }
}

/// Reads a file with exactly these streams: their number, order, names and kinds come from the program.
///
/// # Errors
/// Same as [`read_all`] and [`vocab::read`]; [`weighbridge_core::Kind::Corrupt`]: `missing-tensors` if the file
/// ends after too few complete streams, `extra-tensors` and `trailing-bytes` if it continues after the last.
pub(crate) fn read_with(source: &SourceRef, wanted: &[Wanted], limits: &Limits) -> Result<Vec<Stream>> {
    salvage_with(source, wanted, limits).whole()
}

/// Same as [`read_with`], but keeps the streams read before an error.
pub(crate) fn salvage_with(source: &SourceRef, wanted: &[Wanted], limits: &Limits) -> Salvage<Stream> {
    let mut reader = Reader::new(source, limits);
    let mut streams = Vec::new();
    let mut read = || -> Result<()> {
        for (k, Wanted { path, kind }) in wanted.iter().enumerate() {
            let start = reader.cursor.position();
            if reader.cursor.remaining() == 0 {
                let error = if start == 0 { empty(source) } else { missing(source, k, wanted.len()) };
                return Err(error.on_tensor(path));
            }
            let stream = match kind {
                Kind::Dense => reader.dense(path, k).map(Stream::Dense),
                Kind::Vocab => reader.vocab(k).map(Stream::Vocab).map_err(|e| e.on_tensor(path)),
            };
            streams.push(stream.map_err(|e| match (e.code(), start) {
                (ErrorCode::TruncatedData, _) if k + 1 < wanted.len() => in_the_middle(&e, k, wanted.len()),
                (_, 0) => explain(e, source, 0, limits),
                // A remainder shorter than a version word is a truncated tensor here: another one must follow.
                _ => e,
            })?);
        }
        if reader.cursor.remaining() > 0 { Err(reader.surplus(wanted.len())) } else { Ok(()) }
    };
    let error = read().err().map(|e| e.in_file(source.label()));
    Salvage { streams, error }
}

/// Detects the kinds of all streams from the content, if the streams fill the file exactly. Dense tensors and
/// vocabularies are distinguishable: the first word of a dense stream is 0, and an accepted vocabulary is
/// never empty.
pub fn kinds(source: &SourceRef, limits: &Limits) -> Option<Vec<Kind>> {
    let mut reader = Reader::new(source, limits);
    let mut kinds = Vec::new();
    while reader.cursor.remaining() > 0 {
        let start = reader.cursor.position();
        let kind = if reader.dense(&TensorPath::value(), kinds.len()).is_ok() {
            Kind::Dense
        } else {
            reader.cursor = Cursor::new(source.clone(), start);
            let vocab = vocab::read_plausible(&mut reader.cursor, &reader.limits)?;
            reader.charge(vocab.stream_bytes);
            Kind::Vocab
        };
        kinds.push(kind);
    }
    (!kinds.is_empty()).then_some(kinds)
}

/// Lays out dense tensors end to end. Paddle sorts them by the bytes of their names.
///
/// # Errors
/// Same as [`dense::write`].
pub fn layout<'a>(file: &mut FileBuilder, entries: impl IntoIterator<Item = &'a TensorEntry>) -> Result<()> {
    entries.into_iter().try_for_each(|entry| dense::write(file, entry))
}

/// Stream to be written.
#[derive(Debug, Clone, Copy)]
pub enum Item<'a> {
    /// Dense tensor.
    Dense(&'a TensorEntry),
    /// Vocabulary: words with their numbers.
    Vocab(&'a [(Name, i32)]),
}

/// Lays out streams of both kinds end to end.
///
/// # Errors
/// Same as [`dense::write`].
pub(crate) fn layout_with<'a>(
    file: &mut FileBuilder,
    items: impl IntoIterator<Item = Item<'a>>,
) -> Result<()> {
    items.into_iter().try_for_each(|item| match item {
        Item::Dense(entry) => dense::write(file, entry),
        Item::Vocab(words) => {
            vocab::write(file, words);
            Ok(())
        }
    })
}

/// Cursor with the limits that remain for the file.
struct Reader {
    cursor: Cursor,
    limits: Limits,
}

impl Reader {
    fn new(source: &SourceRef, limits: &Limits) -> Self {
        Self { cursor: Cursor::new(source.clone(), 0), limits: limits.clone() }
    }

    /// Charges memory of headers. The headers of all streams together have one limit.
    fn charge(&mut self, bytes: u64) {
        self.limits.header_bytes = self.limits.header_bytes.saturating_sub(bytes);
    }

    fn count(&self, before: usize) -> Result<()> {
        Limits::check("tensors", "tensors", before as u64 + 1, self.limits.tensors)
            .map_err(|e| e.at(self.cursor.position()))
    }

    fn dense(&mut self, path: &TensorPath, before: usize) -> Result<Dense> {
        self.count(before)?;
        let stream = dense::read(&mut self.cursor, path, &self.limits)?;
        if !stream.entry.attributes.is_empty() {
            self.charge(stream.header.data_offset - stream.header.stream_offset);
        }
        Ok(stream)
    }

    fn vocab(&mut self, before: usize) -> Result<Vocab> {
        self.count(before)?;
        let vocab = vocab::read(&mut self.cursor, &self.limits)?;
        self.charge(vocab.stream_bytes);
        Ok(vocab)
    }

    /// Returns the error for data after the last of `wanted` streams.
    fn surplus(&mut self, wanted: usize) -> Error {
        let (start, rest) = (self.cursor.position(), self.cursor.remaining());
        let mut extra = 0;
        while self.cursor.remaining() > 0 && self.dense(&number(wanted + extra), wanted + extra).is_ok() {
            extra += 1;
        }
        if self.cursor.remaining() > 0 {
            return trailing(start, rest);
        }
        Error::corrupt("extra-tensors", "the file has more tensors than the program")
            .at(start)
            .expected(format_args!("{wanted} tensors"))
            .found(format_args!("{} tensors", wanted + extra))
            .hint("use the program that was saved with this file; Paddle rejects it with \"Not allowed to load partial data via load_combine_op\"")
    }
}

/// Returns the path of a tensor without a name: its position, counted from 0.
pub(super) fn number(place: usize) -> TensorPath {
    TensorPath::new(vec![Name::from(place.to_string().as_str())])
}

pub(super) fn empty(source: &SourceRef) -> Error {
    Error::corrupt("empty-file", "the file is empty")
        .in_file(source.label())
        .at(0)
        .hint("the write may have failed; use another copy of the file")
}

fn missing(source: &SourceRef, read: usize, wanted: usize) -> Error {
    Error::corrupt("missing-tensors", "the file has fewer tensors than the program")
        .at(source.len())
        .expected(format_args!("{wanted} tensors"))
        .found(format_args!("{read} tensors"))
        .hint(
            "the file is truncated or belongs to another program; download it again, or use its own program",
        )
}

/// Returns the error for a file that ends within the data of tensor number `k`, while more tensors should
/// follow. Paddle detects this case, unlike a truncated last tensor.
fn in_the_middle(error: &Error, k: usize, wanted: usize) -> Error {
    let message = format!("the file ends within tensor {} of {wanted}; the later tensors are missing", k + 1);
    Error::corrupt("truncated-data", message)
        .at(error.offset().unwrap_or(0))
        .on_tensor(error.tensor().unwrap_or_default())
        .expected(error.expected_text().unwrap_or_default())
        .found(error.found_text().unwrap_or_default())
        .hint("the file is truncated; compare its length with the original, or download it again")
}

/// Returns the error for `rest` bytes at `start`, after the last tensor.
pub(super) fn trailing(start: u64, rest: u64) -> Error {
    let bytes = counted(rest, "byte", "bytes");
    Error::corrupt("trailing-bytes", format!("the file has {bytes} after its last tensor"))
        .at(start)
        .expected("the end of the file")
        .found(bytes)
        .hint("bytes were appended, or the header of another tensor is truncated")
}

/// Returns a more specific error if no stream begins at `start`.
fn explain(error: Error, source: &SourceRef, start: u64, limits: &Limits) -> Error {
    let rest = source.len().saturating_sub(start);
    if start > 0 && rest < VERSION_WORD {
        return trailing(start, rest);
    }
    if start == 0 && error.code() == ErrorCode::StreamVersion && size_prefixed::begins(source, limits) {
        return Error::unsupported(
            "size-prefixed",
            "each tensor is prefixed with its size, as in a design note",
        )
        .at(0)
        .expected("a tensor stream, which begins with 00 00 00 00")
        .found("an 8-byte length before the stream")
        .hint("no released Paddle reads this form; convert the file");
    }
    error
}

/// Skips the stream of a dense tensor, and returns its header.
pub(in super::super) fn skip_dense(cursor: &mut Cursor, limits: &Limits) -> Result<Header> {
    dense::read(cursor, &TensorPath::value(), limits).map(|dense| dense.header)
}
