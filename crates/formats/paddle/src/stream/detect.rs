//! What kind of tensor file this is, by its content alone.
//!
//! Paddle's tensor files have no mark. But every stream begins with fields that fit each other and
//! the length of the file, or it does not; so a file of another kind is refused after its first
//! bytes, and one whose header is damaged in one place is still known.

use super::combined::{self, Kind};
use super::header::{Dense, array};
use super::unshipped::{design_note, size_prefixed};
use super::{dense, desc, selected_rows};
use weighbridge_core::ErrorCode;
use weighbridge_core::checkpoint::TensorPath;
use weighbridge_core::error::Result;
use weighbridge_core::limits::Limits;
use weighbridge_io::source::{Cursor, SourceRef};

/// What a file of streams is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StreamKind {
    /// One dense tensor.
    Dense,
    /// Selected rows of a tensor.
    SelectedRows,
    /// Dense tensors, one behind the other. Also where a header is damaged or the file cut short:
    /// reading says what is wrong.
    Combined,
    /// One Vocab.
    Vocab,
    /// Several streams, Vocabs among them, and perhaps dense tensors.
    VocabCombined,
    /// One tensor in the form of the first design note, which never shipped.
    DesignNote,
    /// Tensors behind their sizes, as in the second design note, which never shipped.
    SizePrefixed,
}

/// The most LoD levels that a damaged header may have and still be known: Paddle's own models
/// have one or two.
const LEVELS: u64 = 8;
/// The longest desc that a damaged header may announce and still be known.
const DESC: u64 = 1024;

/// What files of other families begin with: zip, an empty zip, Parquet. These are no damaged versions.
const MARKS: [[u8; 4]; 3] = [*b"PK\x03\x04", *b"PK\x05\x06", *b"PAR1"];

/// What kind of file `source` is, or `None` where it is no file of streams.
///
/// The real forms go before the others. Files of other families are not claimed: their first
/// bytes, read as a version or a count, do not fit what follows.
pub fn detect(source: &SourceRef, limits: &Limits) -> Option<StreamKind> {
    let mut cursor = Cursor::new(source.clone(), 0);
    let version = u32::from_le_bytes(array(&mut cursor, "the first bytes").ok()?);
    if version == 0 {
        real(source, limits)
            .or_else(|| whole_design_note(source, limits).then_some(StreamKind::DesignNote))
            .or_else(|| resembles_stream(source, limits).unwrap_or(false).then_some(StreamKind::Combined))
    } else if size_prefixed::begins(source, limits) {
        Some(StreamKind::SizePrefixed)
    } else if resembles_stream(source, limits).unwrap_or(false) {
        Some(StreamKind::Combined)
    } else {
        with_vocab(source, limits)
    }
}

/// The kinds that begin with a version.
fn real(source: &SourceRef, limits: &Limits) -> Option<StreamKind> {
    let path = TensorPath::value();
    let mut cursor = Cursor::new(source.clone(), 0);
    let first = dense::read(&mut cursor, &path, limits);
    if first.is_ok() {
        if cursor.remaining() == 0 {
            return Some(StreamKind::Dense);
        }
        if has_header(&dense::read(&mut cursor, &path, limits)) {
            return Some(StreamKind::Combined);
        }
    }
    // Selected rows that could be read as a dense tensor would have to be made for it; then the
    // reading that uses the file up is right.
    let mut cursor = Cursor::new(source.clone(), 0);
    let rows = selected_rows::read(&mut cursor, &path, limits);
    if has_header(&rows) && (!has_header(&first) || (rows.is_ok() && cursor.remaining() == 0)) {
        return Some(StreamKind::SelectedRows);
    }
    match first {
        Ok(_) => Some(with_vocab(source, limits).unwrap_or(StreamKind::Combined)),
        Err(_) => has_header(&first).then_some(StreamKind::Dense),
    }
}

/// True where the header of a stream was read, though its data may be cut short.
fn has_header(read: &Result<Dense>) -> bool {
    read.as_ref().map_or_else(|e| e.code() == ErrorCode::TruncatedData, |_| true)
}

fn whole_design_note(source: &SourceRef, limits: &Limits) -> bool {
    design_note::read_file(source, &TensorPath::value(), limits).is_ok()
}

fn with_vocab(source: &SourceRef, limits: &Limits) -> Option<StreamKind> {
    match combined::kinds(source, limits)?.as_slice() {
        [Kind::Vocab] => Some(StreamKind::Vocab),
        [Kind::Dense] => Some(StreamKind::Dense),
        kinds if kinds.contains(&Kind::Vocab) => Some(StreamKind::VocabCombined),
        _ => Some(StreamKind::Combined),
    }
}

/// True where the file begins as a dense stream does, with at most one thing wrong: a version, the
/// length of the desc, or what the desc says.
fn resembles_stream(source: &SourceRef, limits: &Limits) -> Result<bool> {
    let mut cursor = Cursor::new(source.clone(), 0);
    let version = u32::from_le_bytes(array(&mut cursor, "the version of a stream")?);
    let levels = u64::from_le_bytes(array(&mut cursor, "the number of LoD levels")?);
    if levels > LEVELS || MARKS.contains(&version.to_le_bytes()) {
        return Ok(false);
    }
    for _ in 0..levels {
        let len = u64::from_le_bytes(array(&mut cursor, "the length of a LoD level")?);
        cursor.skip(len, "a LoD level")?;
    }
    let tensor_version = u32::from_le_bytes(array(&mut cursor, "the version of a tensor")?);
    let len = i32::from_le_bytes(array(&mut cursor, "the length of a desc")?);
    let len = u64::try_from(len).ok().filter(|len| (2..=DESC).contains(len));
    let there = len.unwrap_or(DESC).min(cursor.remaining());
    let bytes = cursor.bytes(there, "a desc")?;
    let wrong_versions = u8::from(version != 0) + u8::from(tensor_version != 0);
    Ok(match (len, wrong_versions) {
        // Cut short within the desc, or the desc says what none can say.
        (Some(len), 0) if there < len => desc::is_beginning(&bytes),
        (Some(_), 0) => desc::is_message(&bytes, limits),
        (Some(_), 1) => desc::TensorDesc::parse(&bytes, 0, limits).is_ok(),
        (None, 0) => desc::is_beginning(&bytes),
        _ => false,
    })
}
