//! Several tensors in the form of the note "Merging all params in a single file": each is prefixed with its size,
//! so that the k-th is found without parsing the others. **Paddle does not read it.**
//!
//! ```text
//! u64 bytes of the stream | the stream, as in a file of one tensor | u64 | stream | …
//! ```
//!
//! A released file begins with 4 zero bytes. A size does so only for a stream of a multiple of 4 GiB, so the first
//! bytes distinguish the two forms.

use super::super::combined::{empty, number, skip_dense};
use super::super::dense::{self, MIN_LEN};
use super::super::header::{Dense, array};
use weighbridge_core::checkpoint::TensorEntry;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::plan::FileBuilder;
use weighbridge_io::source::{Cursor, SourceRef};

/// Reads all tensors of a file of this form. The k-th tensor gets the path `["k"]`, counted from 0. The
/// [header](super::super::Header) of each describes its stream without the size prefix.
///
/// # Errors
/// Same as [`dense::read`]; [`weighbridge_core::Kind::Corrupt`]: `empty-file`, and `size-prefix` if a size does
/// not match the file or its stream.
pub fn read_all(source: &SourceRef, limits: &Limits) -> Result<Vec<Dense>> {
    if source.is_empty() {
        return Err(empty(source));
    }
    let mut limits = limits.clone();
    let mut cursor = Cursor::new(source.clone(), 0);
    let mut tensors = Vec::new();
    while cursor.remaining() > 0 {
        let count = tensors.len() as u64 + 1;
        Limits::check("tensors", "tensors", count, limits.tensors).map_err(|e| e.at(cursor.position()))?;
        let dense = read_one(&mut cursor, tensors.len(), &limits)?;
        if !dense.entry.attributes.is_empty() {
            let spent = dense.header.data_offset - dense.header.stream_offset;
            limits.header_bytes = limits.header_bytes.saturating_sub(spent);
        }
        tensors.push(dense);
    }
    Ok(tensors)
}

/// Reads tensor number `k` of a file of this form, counted from 0. Earlier tensors are skipped by their sizes.
///
/// # Errors
/// Same as [`read_all`], for the skipped sizes and the tensor; [`weighbridge_core::Kind::Mismatch`]:
/// `no-such-tensor` if the file has fewer tensors.
pub fn nth(source: &SourceRef, k: usize, limits: &Limits) -> Result<Dense> {
    let mut cursor = Cursor::new(source.clone(), 0);
    let mut passed = 0;
    // Each skip covers at least 8 bytes, so their number is bounded by the length of the file.
    while passed < k && cursor.remaining() > 0 {
        let size = size(&mut cursor, passed)?;
        cursor.skip(size, "a tensor")?;
        passed += 1;
    }
    if cursor.remaining() == 0 {
        return Err(Error::mismatch("no-such-tensor", "the file has fewer tensors")
            .in_file(source.label())
            .expected(format_args!("tensor {k}, counted from 0"))
            .found(format_args!("{passed} tensors")));
    }
    read_one(&mut cursor, k, limits)
}

/// Appends tensors in this form. **Paddle does not read it.**
///
/// # Errors
/// Same as [`dense::write`].
pub fn write<'a>(file: &mut FileBuilder, entries: impl IntoIterator<Item = &'a TensorEntry>) -> Result<()> {
    entries.into_iter().try_for_each(|entry| {
        file.literal(dense::stream_bytes(entry)?.to_le_bytes());
        dense::write(file, entry)
    })
}

/// True if the file begins with a size and the header of a tensor of exactly that size.
pub(in super::super) fn begins(source: &SourceRef, limits: &Limits) -> bool {
    let mut cursor = Cursor::new(source.clone(), 0);
    let Ok(size) = array(&mut cursor, "a size").map(u64::from_le_bytes) else { return false };
    // A size beyond the end of the file is invalid, or the file is truncated: not enough for detection.
    size >= MIN_LEN
        && size <= cursor.remaining()
        && skip_dense(&mut cursor, limits).is_ok_and(|header| header.stream_bytes == size)
}

fn read_one(cursor: &mut Cursor, k: usize, limits: &Limits) -> Result<Dense> {
    let at = cursor.position();
    let size = size(cursor, k)?;
    let dense = dense::read(cursor, &number(k), limits)?;
    if dense.header.stream_bytes == size {
        return Ok(dense);
    }
    Err(Error::corrupt("size-prefix", "the size prefix does not match the stream of the tensor")
        .in_file(cursor.source().label())
        .at(at)
        .on_tensor(number(k))
        .expected(format_args!("{} bytes", dense.header.stream_bytes))
        .found(format_args!("{size} bytes")))
}

/// Reads a size, and compares it with the rest of the file.
fn size(cursor: &mut Cursor, k: usize) -> Result<u64> {
    let at = cursor.position();
    let place = |e: Error, cursor: &Cursor| e.in_file(cursor.source().label()).on_tensor(number(k));
    let size = array(cursor, "the size of a tensor").map_err(|e| place(e, cursor))?;
    let size = u64::from_le_bytes(size);
    if (MIN_LEN..=cursor.remaining()).contains(&size) {
        return Ok(size);
    }
    let error = Error::corrupt("size-prefix", "the size prefix of a tensor is out of range")
        .at(at)
        .expected(format_args!("{MIN_LEN} to {} bytes", cursor.remaining()))
        .found(format_args!("{size} bytes"));
    Err(place(error, cursor))
}
