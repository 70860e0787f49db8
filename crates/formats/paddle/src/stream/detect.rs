//! Detection of tensor files by their content.
//!
//! Paddle's tensor files have no magic bytes. But a stream begins with fields that must be consistent with each other
//! and with the length of the file. Other files are therefore rejected after their first bytes, and a file
//! whose header has a single fault is still detected.

use super::combined::{self, Kind};
use super::header::{Dense, array};
use super::unshipped::{design_note, size_prefixed};
use super::{dense, desc, selected_rows};
use weighbridge_core::ErrorCode;
use weighbridge_core::checkpoint::TensorPath;
use weighbridge_core::error::Result;
use weighbridge_core::limits::Limits;
use weighbridge_io::source::{Cursor, SourceRef};

/// Kind of a file of streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StreamKind {
    /// One dense tensor.
    Dense,
    /// Selected rows of a tensor.
    SelectedRows,
    /// Dense tensors, end to end. Also detected if a header is damaged or the file truncated: reading
    /// reports the fault.
    Combined,
    /// One vocabulary.
    Vocab,
    /// Several streams with vocabularies, and possibly dense tensors.
    VocabCombined,
    /// One tensor in the form of the first design note, which was never released.
    DesignNote,
    /// Tensors prefixed with their sizes, as in the second design note, which was never released.
    SizePrefixed,
}

/// Maximum number of LoD levels in a damaged header that is still detected. Paddle's own models have one or two.
const MAX_LOD_LEVELS: u64 = 8;
/// Maximum length in bytes of a desc in a damaged header that is still detected.
const MAX_DESC_LEN: u64 = 1024;

/// Magic bytes of other formats: zip, an empty zip, Parquet. They are not damaged versions.
const OTHER_MAGICS: [[u8; 4]; 3] = [*b"PK\x03\x04", *b"PK\x05\x06", *b"PAR1"];

/// Detects the kind of file of `source`; `None` if it is not a file of streams.
///
/// Released forms take precedence. Files of other formats are not claimed: their first bytes, interpreted as
/// a version or a count, are inconsistent with the following bytes.
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

/// Detects the kinds that begin with a version.
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
    // Selected rows that are also a valid dense tensor must be constructed on purpose; then the interpretation that
    // fills the file is used.
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

/// True if the header of a stream was read, even if its data are truncated.
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

/// True if the file begins like a dense stream with at most one fault: in a version, the length of the desc, or
/// the content of the desc.
fn resembles_stream(source: &SourceRef, limits: &Limits) -> Result<bool> {
    let mut cursor = Cursor::new(source.clone(), 0);
    let version = u32::from_le_bytes(array(&mut cursor, "the version of a stream")?);
    let levels = u64::from_le_bytes(array(&mut cursor, "the number of LoD levels")?);
    if levels > MAX_LOD_LEVELS || OTHER_MAGICS.contains(&version.to_le_bytes()) {
        return Ok(false);
    }
    for _ in 0..levels {
        let len = u64::from_le_bytes(array(&mut cursor, "the length of a LoD level")?);
        cursor.skip(len, "a LoD level")?;
    }
    let tensor_version = u32::from_le_bytes(array(&mut cursor, "the version of a tensor")?);
    let len = i32::from_le_bytes(array(&mut cursor, "the length of a desc")?);
    let len = u64::try_from(len).ok().filter(|len| (2..=MAX_DESC_LEN).contains(len));
    let there = len.unwrap_or(MAX_DESC_LEN).min(cursor.remaining());
    let bytes = cursor.bytes(there, "a desc")?;
    let wrong_versions = u8::from(version != 0) + u8::from(tensor_version != 0);
    Ok(match (len, wrong_versions) {
        // Truncated within the desc, or an invalid value in the desc.
        (Some(len), 0) if there < len => desc::is_beginning(&bytes),
        (Some(_), 0) => desc::is_message(&bytes, limits),
        (Some(_), 1) => desc::TensorDesc::parse(&bytes, 0, limits).is_ok(),
        (None, 0) => desc::is_beginning(&bytes),
        _ => false,
    })
}
