//! Files of many streams: one behind the other until the file ends. No count, no names, no sizes;
//! the k-th stream belongs to the k-th name that the program gives.

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

/// Fewer bytes than this behind the last stream do not even tell the version of another one.
const VERSION_WORD: u64 = 4;

/// What a stream holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A dense tensor.
    Dense,
    /// Words with their numbers.
    Vocab,
}

/// A stream that the program says there is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The path of its tensor; errors name it.
    pub path: TensorPath,
    /// What it holds.
    pub kind: Kind,
}

/// A stream that was read.
#[derive(Debug, Clone)]
pub enum Stream {
    /// A dense tensor.
    Dense(Dense),
    /// Words with their numbers.
    Vocab(Vocab),
}

/// What could be read before the first error.
#[derive(Debug)]
pub struct Salvage<T> {
    /// The streams that are whole, in order.
    pub streams: Vec<T>,
    /// Why there are no more; `None` where the file is used up.
    pub error: Option<Error>,
}

impl<T> Salvage<T> {
    /// All streams.
    ///
    /// # Errors
    /// The error, where there is one.
    pub fn whole(self) -> Result<Vec<T>> {
        match self.error {
            None => Ok(self.streams),
            Some(error) => Err(error),
        }
    }
}

/// Reads all streams of a file of dense tensors. The k-th gets the path `["k"]`, from 0 on: the
/// file knows no names.
///
/// # Errors
/// As [`dense::read`]; [`weighbridge_core::Kind::Corrupt`]: `empty-file`, and `trailing-bytes` for a rest
/// that is too short to tell what it is; [`weighbridge_core::Kind::Unsupported`]: `size-prefixed`;
/// [`weighbridge_core::Kind::Limit`] for more tensors than are allowed.
pub fn read_all(source: &SourceRef, limits: &Limits) -> Result<Vec<Dense>> {
    salvage(source, limits).whole()
}

/// As [`read_all`], keeping what was read before an error.
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
            let stream = reader.dense(&path, streams.len()).map_err(|e| explain(e, source, start, limits))?;
            streams.push(stream);
        }
        Ok(())
    };
    let error = read().err().map(|e| e.in_file(source.label()));
    Salvage { streams, error }
}

/// Reads a file that holds just these streams: their number, order, names and kinds are what the
/// program says.
///
/// # Errors
/// As [`read_all`] and [`vocab::read`]; [`weighbridge_core::Kind::Corrupt`]: `missing-tensors` where the file
/// ends behind a whole stream but too soon, `extra-tensors` and `trailing-bytes` where it goes on.
pub(crate) fn read_with(source: &SourceRef, wanted: &[Wanted], limits: &Limits) -> Result<Vec<Stream>> {
    salvage_with(source, wanted, limits).whole()
}

/// As [`read_with`], keeping what was read before an error.
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
                // What is too short for a version word is a tensor cut short here: one must follow.
                _ => e,
            })?);
        }
        if reader.cursor.remaining() > 0 { Err(reader.surplus(wanted.len())) } else { Ok(()) }
    };
    let error = read().err().map(|e| e.in_file(source.label()));
    Salvage { streams, error }
}

/// The kinds of all streams of a file, where it can be told from the content alone and the file is
/// used up. A dense tensor cannot be mistaken for words, nor words for it: the first word of a
/// dense stream is 0, and no Vocab that is taken for one is empty.
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
            reader.spend(vocab.stream_bytes);
            Kind::Vocab
        };
        kinds.push(kind);
    }
    (!kinds.is_empty()).then_some(kinds)
}

/// Lays out dense tensors, one behind the other: Paddle sorts them by the bytes of their names.
///
/// # Errors
/// As [`dense::write`].
pub fn layout<'a>(file: &mut FileBuilder, entries: impl IntoIterator<Item = &'a TensorEntry>) -> Result<()> {
    entries.into_iter().try_for_each(|entry| dense::write(file, entry))
}

/// A stream to be written.
#[derive(Debug, Clone, Copy)]
pub enum Item<'a> {
    /// A dense tensor.
    Dense(&'a TensorEntry),
    /// Words with their numbers.
    Vocab(&'a [(Name, i32)]),
}

/// Lays out streams of both kinds, one behind the other.
///
/// # Errors
/// As [`dense::write`].
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

/// A cursor, and limits of which a file of many streams uses up its part.
struct Reader {
    cursor: Cursor,
    limits: Limits,
}

impl Reader {
    fn new(source: &SourceRef, limits: &Limits) -> Self {
        Self { cursor: Cursor::new(source.clone(), 0), limits: limits.clone() }
    }

    /// What is kept in memory of all headers together has one limit.
    fn spend(&mut self, bytes: u64) {
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
            self.spend(stream.header.data_offset - stream.header.stream_offset);
        }
        Ok(stream)
    }

    fn vocab(&mut self, before: usize) -> Result<Vocab> {
        self.count(before)?;
        let vocab = vocab::read(&mut self.cursor, &self.limits)?;
        self.spend(vocab.stream_bytes);
        Ok(vocab)
    }

    /// The error for what stands behind the last of `wanted` streams.
    fn surplus(&mut self, wanted: usize) -> Error {
        let (start, rest) = (self.cursor.position(), self.cursor.remaining());
        let mut extra = 0;
        while self.cursor.remaining() > 0 && self.dense(&number(wanted + extra), wanted + extra).is_ok() {
            extra += 1;
        }
        if self.cursor.remaining() > 0 {
            return trailing(start, rest);
        }
        Error::corrupt("extra-tensors", "the file holds more tensors than the program has")
            .at(start)
            .expected(format_args!("{wanted} tensors"))
            .found(format_args!("{} tensors", wanted + extra))
            .hint("Paddle refuses it: \"Not allowed to load partial data via load_combine_op\"")
    }
}

/// The path of a tensor without a name: its place, from 0 on.
pub(super) fn number(place: usize) -> TensorPath {
    TensorPath::new(vec![Name::from(place.to_string().as_str())])
}

pub(super) fn empty(source: &SourceRef) -> Error {
    Error::corrupt("empty-file", "the file ends before the first tensor")
        .in_file(source.label())
        .at(0)
        .hint("the write that made it may have failed: look for another copy")
}

fn missing(source: &SourceRef, read: usize, wanted: usize) -> Error {
    Error::corrupt("missing-tensors", "the file ends behind a whole tensor, but the program has more")
        .at(source.len())
        .expected(format_args!("{wanted} tensors"))
        .found(format_args!("{read} tensors"))
        .hint("the file is cut short, or belongs to another program")
}

/// The error for a file that is cut short within the data of tensor number `k`, and more were to
/// follow: unlike with the last one, Paddle notices.
fn in_the_middle(error: &Error, k: usize, wanted: usize) -> Error {
    let message = format!("the file ends within tensor {} of {wanted}; all behind it are missing too", k + 1);
    Error::corrupt("truncated-data", message)
        .at(error.offset().unwrap_or(0))
        .on_tensor(error.tensor().unwrap_or_default())
        .expected(error.expected_text().unwrap_or_default())
        .found(error.found_text().unwrap_or_default())
        .hint("the file is cut short: compare its length with the original's")
}

/// The error for `rest` bytes at `start`, behind the last tensor.
pub(super) fn trailing(start: u64, rest: u64) -> Error {
    let bytes = counted(rest, "byte", "bytes");
    Error::corrupt("trailing-bytes", format!("{bytes} behind the last tensor are no tensor"))
        .at(start)
        .expected("the end of the file")
        .found(bytes)
        .hint("bytes were added, or the header of another tensor is cut short")
}

/// Says more where what follows the last whole stream, or the whole file, is no stream at all.
fn explain(error: Error, source: &SourceRef, start: u64, limits: &Limits) -> Error {
    let rest = source.len().saturating_sub(start);
    if start > 0 && rest < VERSION_WORD {
        return trailing(start, rest);
    }
    if start == 0 && error.code() == ErrorCode::StreamVersion && size_prefixed::begins(source, limits) {
        return Error::unsupported(
            "size-prefixed",
            "every tensor has its size in front, as in a design note",
        )
        .at(0)
        .expected("a tensor stream, which begins with 00 00 00 00")
        .found("the length of one in 8 bytes, then the stream")
        .hint("no released Paddle wrote or reads this form: write the file anew");
    }
    error
}

/// Hops over the stream of a dense tensor: for those who want to know only where it ends.
pub(in super::super) fn hop(cursor: &mut Cursor, limits: &Limits) -> Result<Header> {
    dense::read(cursor, &TensorPath::value(), limits).map(|dense| dense.header)
}
