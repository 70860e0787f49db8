//! Reader: file to checkpoint. Reads only the header.

use super::header::{self, Header, Row};
use super::{KIND, PREFIX};
use weighbridge_core::checkpoint::{Checkpoint, Metadata, Note, TensorEntry, TensorPath, Value, escape_text};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::phrase;
use weighbridge_core::phrase::Opt;
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

/// Contents of one file.
pub(super) struct Contents {
    /// Tensors in the order of the data, with the paths of their names.
    pub(super) tensors: Vec<TensorEntry>,
    /// Names of the tensors, if requested or needed for bridge metadata.
    pub(super) names: Vec<String>,
    /// Pairs of `__metadata__`, bridge metadata included.
    pub(super) metadata: Vec<(String, String)>,
    /// Notes about ignored content.
    pub(super) notes: Vec<Note>,
}

/// Reads the header of `source`; `keep_names` requests the names of the tensors.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`], [`weighbridge_core::Kind::Unsupported`] or [`weighbridge_core::Kind::Limit`] with the
/// offset of the fault in the header, or of the data of the tensor.
pub(super) fn contents(source: &SourceRef, options: &OpenOptions, keep_names: bool) -> Result<Contents> {
    let length = header_length(source, &options.limits)?;
    let bytes = read_vec(&**source, PREFIX, length)?;
    let Header { tensors: mut rows, metadata, mut notes } = header::parse(&bytes, PREFIX, &options.limits)?;
    drop(bytes);

    // An empty tensor precedes the tensor that begins at the same offset.
    rows.sort_by_key(|row| (row.begin, row.end));
    check_cover(&rows, source, PREFIX + length, options.lenient, &mut notes)?;

    // Only bridge metadata needs the original names.
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

/// Reads the header length; it must be within the limit and the file.
pub(super) fn header_length(source: &SourceRef, limits: &Limits) -> Result<u64> {
    if source.len() < PREFIX {
        return Err(Error::corrupt("truncated", "the file ends within the header length field")
            .at(0)
            .expected(format_args!("{PREFIX} bytes"))
            .found(format_args!("{} bytes", source.len())));
    }
    let mut bytes = [0; 8];
    source.read_at(0, &mut bytes)?;
    let length = u64::from_le_bytes(bytes);
    let there = source.len() - PREFIX;
    if length > limits.header_bytes && length > there {
        return Err(Error::limit("limit", "not a safetensors file: the header length exceeds the file")
            .at(0)
            .expected(format_args!("at most {there}"))
            .found(length)
            .hint(phrase!["omit ", Opt::From, " to detect the format; the file may also be damaged"]));
    }
    Limits::check_part("bytes of header", "header_bytes", length, limits.header_bytes, 1)
        .map_err(|e| e.at(0))?;
    if length > there {
        return Err(Error::corrupt("truncated", "the header length exceeds the file")
            .at(PREFIX)
            .expected(format_args!("{length} bytes of header"))
            .found(format_args!("{there} bytes"))
            .hint("the download may be incomplete; download the file again"));
    }
    Ok(length)
}

/// Checks every tensor, in the order of the data, against its shape, its neighbours and the
/// end of the file. `data` is the offset of the data.
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
            return Err(fail(Error::corrupt("overlap", "tensor data overlaps"))
                .expected(format_args!("an offset of {covered}, the end of {other}")));
        }
        if row.begin > covered {
            if !lenient {
                return Err(fail(Error::corrupt("hole", "gap before the data of the tensor"))
                    .expected(format_args!("an offset of {covered}"))
                    .hint(phrase![Opt::Lenient, " ignores bytes without a tensor"]));
            }
            holes += row.begin - covered;
            first_hole.get_or_insert(covered);
        }
        if row.end > there {
            return Err(Error::corrupt("truncated", "the data of the tensor exceeds the file")
                .on_tensor(escape_text(&row.name))
                .at(data.saturating_add(row.begin))
                .expected(format_args!("data up to offset {}", data.saturating_add(row.end)))
                .found(format_args!("end of the file at {}", source.len()))
                .hint(format_args!(
                    "the download may be incomplete; {index} of {} tensors are complete",
                    rows.len()
                )));
        }
        covered = row.end;
    }
    if let Some(first) = first_hole {
        let place = data + first;
        let text = format!("{holes} bytes between tensors ignored, first at offset {place}");
        notes.push(Note::omission("hole", text));
    }
    if covered < there {
        let (count, place) = (there - covered, data + covered);
        if !lenient {
            return Err(Error::corrupt("trailing-bytes", "bytes follow the last tensor")
                .at(place)
                .expected("the end of the file")
                .found(format_args!("{count} more bytes"))
                .hint(phrase![Opt::Lenient, " ignores bytes without a tensor"]));
        }
        let text = format!("{count} trailing bytes ignored, from offset {place} on");
        notes.push(Note::omission("trailing-bytes", text));
    }
    Ok(())
}

/// Checks the offsets of a tensor against its shape.
pub(super) fn check_length(row: &Row) -> Result<()> {
    let Some(length) = row.end.checked_sub(row.begin) else {
        return Err(Error::corrupt("bad-offsets", "the begin offset exceeds the end offset")
            .expected("begin at most end")
            .found(format_args!("[{}, {}]", row.begin, row.end)));
    };
    let needed = bytes_of(row)?;
    if needed == length {
        return Ok(());
    }
    Err(Error::corrupt("length-mismatch", "the length of the data does not match shape and dtype")
        .expected(format_args!("{needed} bytes for {} {}", row.dtype, row.shape))
        .found(format_args!("{length} bytes")))
}

/// Returns the length in bytes of dtype and shape. As in the safetensors library, the product of the dimensions must not
/// overflow, even if a later dimension is 0.
fn bytes_of(row: &Row) -> Result<u64> {
    let elements = row.shape.dims().iter().try_fold(1u64, |n, &d| n.checked_mul(d));
    let bits = elements.and_then(|n| n.checked_mul(u64::from(row.dtype.bits())));
    match bits {
        Some(bits) if bits.is_multiple_of(8) => Ok(bits / 8),
        Some(_) => Err(Error::corrupt("part-of-a-byte", "the elements do not fill whole bytes")),
        None => Err(Error::corrupt("shape-overflow", "the tensor exceeds 2^64 bits")),
    }
    .map_err(|e: Error| e.found(format_args!("{} {}", row.dtype, row.shape)))
}
