//! From bytes to an index. Reads the header only.

use super::header::{self, Header, Row};
use super::{KIND, PREFIX};
use weighbridge_core::checkpoint::{Checkpoint, Metadata, Note, TensorEntry, TensorPath, Value, escape_text};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::tensor::Encoding;
use weighbridge_format::OpenOptions;
use weighbridge_io::source::{SourceRef, read_vec};

/// Reads the index of `source`.
///
/// # Errors
/// As [`contents`].
pub(super) fn open(source: &SourceRef, options: &OpenOptions) -> Result<Checkpoint> {
    let Contents { tensors, names, metadata, notes } = contents(source, options, false)?;
    let mut checkpoint = Checkpoint::new("safetensors", KIND, source.label());
    checkpoint.tensors = tensors;
    checkpoint.notes = notes;
    let metadata = metadata.into_iter().map(|(key, text)| (key, Value::Text(text)));
    checkpoint.restore_carried(&names, metadata);
    Ok(checkpoint)
}

/// What stands in one file.
pub(super) struct Contents {
    /// The tensors in the order of the data, under the paths that follow from their names.
    pub(super) tensors: Vec<TensorEntry>,
    /// Their names, where they were asked for or an index is carried.
    pub(super) names: Vec<String>,
    /// The pairs of `__metadata__`, the carried index among them.
    pub(super) metadata: Vec<(String, String)>,
    /// What is odd.
    pub(super) notes: Vec<Note>,
}

/// Reads the header of `source`; the names of the tensors are kept where `keep_names` asks for them.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`], [`weighbridge_core::Kind::Unsupported`] or [`weighbridge_core::Kind::Limit`] with the
/// place: that of a fault in the header, or where the data of the tensor begin.
pub(super) fn contents(source: &SourceRef, options: &OpenOptions, keep_names: bool) -> Result<Contents> {
    let length = header_length(source, &options.limits)?;
    let bytes = read_vec(&**source, PREFIX, length)?;
    let Header { tensors: mut rows, metadata, mut notes } = header::parse(&bytes, PREFIX, &options.limits)?;
    drop(bytes);

    // A tensor without elements stands before the one that begins at the same place.
    rows.sort_by_key(|row| (row.begin, row.end));
    check_cover(&rows, source, PREFIX + length, options.lenient, &mut notes)?;

    // Only the carried index asks for the names as they are.
    let is_carried = metadata.iter().any(|(key, _)| key == Metadata::INDEX_KEY);
    let mut names = Vec::new();
    let mut tensors = Vec::with_capacity(rows.len());
    for Row { name, dtype, shape, begin, .. } in rows {
        let path = TensorPath::from_dotted(&name);
        let offset = PREFIX + length + begin;
        tensors.push(TensorEntry::dense(path, dtype, shape, source, offset, Encoding::ROW)?);
        if keep_names || is_carried {
            names.push(name);
        }
    }
    Ok(Contents { tensors, names, metadata, notes })
}

/// The length of the header, held against the limit and the end of the file.
pub(super) fn header_length(source: &SourceRef, limits: &Limits) -> Result<u64> {
    if source.len() < PREFIX {
        return Err(Error::corrupt("truncated", "the file ends within the length of its header")
            .at(0)
            .expected(format_args!("{PREFIX} bytes"))
            .found(format_args!("{} bytes", source.len())));
    }
    let mut bytes = [0; 8];
    source.read_at(0, &mut bytes)?;
    let length = u64::from_le_bytes(bytes);
    let there = source.len() - PREFIX;
    if length > limits.header_bytes && length > there {
        return Err(Error::limit("limit", "the file asks for more bytes of header than is allowed")
            .at(0)
            .expected(format_args!("at most {}", limits.header_bytes))
            .found(length)
            .hint("the whole file is shorter than that: it is damaged, or of another format"));
    }
    Limits::check("bytes of header", "header_bytes", length, limits.header_bytes).map_err(|e| e.at(0))?;
    if length > there {
        return Err(Error::corrupt("truncated", "the file ends within its header")
            .at(PREFIX)
            .expected(format_args!("{length} bytes of header"))
            .found(format_args!("{there} bytes"))
            .hint("the file may be cut short: compare its length with the original's"));
    }
    Ok(length)
}

/// Holds every tensor, in the order of the data, against its own shape, its neighbours and the
/// end of the file. `data` is the offset at which the data begin.
fn check_cover(
    rows: &[Row],
    source: &SourceRef,
    data: u64,
    lenient: bool,
    notes: &mut Vec<Note>,
) -> Result<()> {
    let there = source.len() - data;
    let mut covered = 0;
    let mut holes = 0u64;
    let mut first_hole = None;
    for (index, row) in rows.iter().enumerate() {
        check_length(row)
            .map_err(|e| e.on_tensor(escape_text(&row.name)).at(data.saturating_add(row.begin)))?;
        let fail = |error: Error| {
            let found = format!("bytes {} to {} of the data", row.begin, row.end);
            error.on_tensor(escape_text(&row.name)).at(data.saturating_add(row.begin)).found(found)
        };
        if row.begin < covered {
            let other = rows[..index].last().map_or(String::new(), |r| escape_text(&r.name));
            return Err(fail(Error::corrupt("overlap", "two tensors lie on the same bytes"))
                .expected(format_args!("a beginning at {covered}, where {other} ends")));
        }
        if row.begin > covered {
            if !lenient {
                return Err(fail(Error::corrupt("hole", "bytes before this tensor belong to no tensor"))
                    .expected(format_args!("a beginning at {covered}"))
                    .hint("a lenient reading passes over such bytes"));
            }
            holes += row.begin - covered;
            first_hole.get_or_insert(covered);
        }
        if row.end > there {
            return Err(Error::corrupt("truncated", "the file ends within the data of this tensor")
                .on_tensor(escape_text(&row.name))
                .at(data.saturating_add(row.begin))
                .expected(format_args!("{} bytes of data up to here", row.end))
                .found(format_args!("{there} bytes"))
                .hint(format_args!(
                    "the file may be cut short: {index} of {} tensors are whole",
                    rows.len()
                )));
        }
        covered = row.end;
    }
    if let Some(first) = first_hole {
        let place = data + first;
        let text = format!("{holes} bytes between tensors belong to none, first at offset {place}");
        notes.push(Note::omission("hole", text));
    }
    if covered < there {
        let (count, place) = (there - covered, data + covered);
        if !lenient {
            return Err(Error::corrupt("trailing-bytes", "bytes after the last tensor belong to no tensor")
                .at(place)
                .expected("the end of the file")
                .found(format_args!("{count} bytes more"))
                .hint("a lenient reading passes over such bytes"));
        }
        let text = format!("{count} bytes at the end belong to no tensor, from offset {place} on");
        notes.push(Note::omission("trailing-bytes", text));
    }
    Ok(())
}

/// Holds the offsets of a tensor against its shape.
pub(super) fn check_length(row: &Row) -> Result<()> {
    let Some(length) = row.end.checked_sub(row.begin) else {
        return Err(Error::corrupt("bad-offsets", "the tensor ends before it begins")
            .expected("begin not above end")
            .found(format_args!("[{}, {}]", row.begin, row.end)));
    };
    let needed = bytes_of(row)?;
    if needed == length {
        return Ok(());
    }
    Err(Error::corrupt("length-mismatch", "shape and dtype need another number of bytes")
        .expected(format_args!("{needed} bytes for {} {}", row.dtype, row.shape))
        .found(format_args!("{length} bytes")))
}

/// The bytes that dtype and shape need. As in the original, the product of the extents may not
/// overflow on the way, though a later extent be 0.
fn bytes_of(row: &Row) -> Result<u64> {
    let elements = row.shape.dims().iter().try_fold(1u64, |n, &d| n.checked_mul(d));
    let bits = elements.and_then(|n| n.checked_mul(u64::from(row.dtype.bits())));
    match bits {
        Some(bits) if bits.is_multiple_of(8) => Ok(bits / 8),
        Some(_) => Err(Error::corrupt("part-of-a-byte", "the elements do not fill whole bytes")),
        None => Err(Error::corrupt("shape-overflow", "the shape has no length in bits below 2^64")),
    }
    .map_err(|e: Error| e.found(format_args!("{} {}", row.dtype, row.shape)))
}
