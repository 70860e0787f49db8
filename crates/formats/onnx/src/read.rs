//! Reader: file to checkpoint. Elements of tensors are not read, but integers in typed fields are counted.

use crate::MODEL;
use crate::dtype;
use crate::external::{Files, Place as Outside};
use crate::graph::{self, Content, Described, Place, bad};
use crate::skeleton::{RAW, Run, Skeleton, Stored};
use crate::typed::{DOUBLES, FLOATS, TypedSource, shared};
use crate::wire::LEN;
use std::path::Path;
use std::sync::Arc;
use weighbridge_core::budget::Budget;
use weighbridge_core::checkpoint::{Checkpoint, Note, Role, TensorEntry, TensorPath, Value, escape_text};
use weighbridge_core::error::{Error, Kind, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::phrase;
use weighbridge_core::tensor::{DType, Encoding, Shape};
use weighbridge_format::OpenOptions;
use weighbridge_io::source::{FolderRef, SourceRef};

/// Attribute with the dtype of a tensor whose elements share bytes, such as `int4`. The tensor has its bytes as `u8`.
pub(crate) const PACKED_DTYPE: &str = "packed_dtype";
/// Attribute with the shape of a tensor whose elements share bytes.
pub(crate) const PACKED_SHAPE: &str = "packed_shape";
/// Attribute of the values of a sparse tensor: its shape.
const SPARSE_SHAPE: &str = "sparse_shape";
/// Plausible versions of the file format.
const IR_VERSIONS: std::ops::RangeInclusive<u64> = 1..=64;
/// Maximum number of fields read to recognize a file.
const MAX_FIELDS: usize = 100;

/// Returns true for a file whose fields are those of a model: a version, and a graph. The graph may exceed a truncated file.
pub(crate) fn recognises(head: &[u8], source: &SourceRef) -> bool {
    // Most files of other formats are decided by their first byte.
    let first = head.first().copied().unwrap_or(0);
    if !matches!(first, 0x08 | 0x12 | 0x1a | 0x22 | 0x28 | 0x32 | 0x3a | 0x42) {
        return false;
    }
    let mut cursor = weighbridge_io::source::Cursor::new(source.clone(), 0);
    let (mut has_version, mut has_graph, mut has_opset) = (false, false, false);
    for _ in 0..MAX_FIELDS {
        if cursor.remaining() == 0 {
            break;
        }
        let Ok(bytes) = cursor.peek_up_to(2 * crate::wire::MAX_VARINT) else { return false };
        let all = bytes.len();
        let Some((tag, rest)) = crate::wire::varint(bytes) else { return false };
        let (number, wire) = (tag >> 3, (tag & 7) as u8);
        let Some((value, rest)) = crate::wire::varint(rest) else { return false };
        let used = (all - rest.len()) as u64;
        let expected = match number {
            1 | 5 => crate::wire::VARINT,
            2..=4 | 6..=8 | 14 | 20 | 25 | 26 => LEN,
            _ => return false,
        };
        if wire != expected {
            return false;
        }
        match number {
            1 if !IR_VERSIONS.contains(&value) => return false,
            1 => has_version = true,
            7 if !begins_as_graph(rest, value) => return false,
            7 => has_graph = true,
            8 => has_opset = true,
            _ => {}
        }
        let len = if wire == LEN { value } else { 0 };
        if len > cursor.remaining().saturating_sub(used) {
            return has_version && (has_graph || has_opset);
        }
        if cursor.skip(used + len, "a field").is_err() {
            return false;
        }
    }
    has_graph && (has_version || has_opset)
}

/// Returns true for the beginning of a graph of `len` bytes: the tag of one of its fields.
fn begins_as_graph(bytes: &[u8], len: u64) -> bool {
    const TAGS: [u8; 8] = [0x0a, 0x12, 0x2a, 0x52, 0x5a, 0x62, 0x6a, 0x72];
    len == 0 || bytes.first().is_none_or(|tag| TAGS.contains(tag) || matches!(tag, 0x7a | 0x82))
}

/// Reads the index of `source`. `around` is its folder with its name in it; `salvaged` is the error of opening a damaged file.
///
/// # Errors
/// [`Kind::Corrupt`], [`Kind::Unsupported`] or [`Kind::Limit`], with the offset.
pub(crate) fn open(
    source: &SourceRef,
    around: Option<(&FolderRef, &Path)>,
    options: &OpenOptions,
    salvaged: Option<&Error>,
) -> Result<Checkpoint> {
    let limits = options.limits.with_budget_of(source);
    let budget = limits.budget_of(source);
    let skeleton = Skeleton::read(source, &limits, salvaged.is_some())?;
    if !has_graph(&skeleton.bytes)? {
        return Err(Error::corrupt("truncated", "the model has no graph")
            .at(source.len())
            .expected("a field 7 with the graph")
            .found("the end of the file")
            .hint("the download may be incomplete; compare the length of the file with the original"));
    }
    budget.take_memory(2 * skeleton.bytes.len() as u64)?;
    let Content { topology, tensors, metadata, .. } = graph::parse(&skeleton.bytes, &budget)?;
    let mut checkpoint = Checkpoint::new("onnx", MODEL, source.label());
    checkpoint.topology = Some(Arc::new(topology));
    for (key, value) in metadata {
        checkpoint.metadata.set(key, value);
    }
    checkpoint.files.push(source.clone());
    if let Some(error) = salvaged {
        checkpoint.damage_mut(error);
    }
    let mut files = Files::new(source, around);
    let mut sparse = 0;
    for (described, stored) in tensors.iter().zip(&skeleton.tensors) {
        let name = described.path.to_text();
        check_name(&name, &described.path, &limits).map_err(|e| e.at(stored.at))?;
        if described.is_duplicate {
            let text = format!("duplicate tensor name; the second tensor is named {}", escape_text(&name));
            checkpoint.notes.push(Note::new("name-collision", text));
        }
        if let Some(reason) = skipped(described) {
            checkpoint.notes.push(Note::skipped_tensor(name, reason));
            continue;
        }
        let placed = |error: Error| error.on_tensor(&described.path).at(stored.at);
        let entry = entry(described, stored, source, &mut files, &limits, &budget).map_err(placed);
        match entry {
            Ok(entry) => {
                sparse += u64::from(matches!(described.place, Place::SparseValues(_)));
                checkpoint.tensors.push(entry);
            }
            Err(error) if salvaged.is_some() && is_damage(&error) => checkpoint.lose(&described.path, &error),
            Err(error) => return Err(error),
        }
    }
    files.check(&limits)?;
    checkpoint.files.extend(files.unused(&checkpoint));
    if sparse > 0 {
        let count = weighbridge_core::text::counted(sparse, "sparse tensor is", "sparse tensors are");
        let text = format!("{count} listed as values and indices");
        checkpoint.notes.push(Note::new("sparse-as-parts", text));
    }
    if tensors.iter().any(|t| dtype::packed_bits(t.header.dtype).is_some_and(|_| is_plain_bytes(t))) {
        let text =
            "tensors of 2-bit and 4-bit elements are listed as their bytes; attributes have dtype and shape";
        checkpoint.notes.push(Note::new("packed-as-bytes", text));
    }
    Ok(checkpoint)
}

fn has_graph(skeleton: &[u8]) -> Result<bool> {
    for field in crate::wire::Fields::of(skeleton) {
        let field = field?;
        if field.number == 7 && field.bytes().is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

fn is_damage(error: &Error) -> bool {
    matches!(error.kind(), Kind::Corrupt | Kind::Unsupported | Kind::Mismatch)
}

fn check_name(name: &str, path: &TensorPath, limits: &Limits) -> Result<()> {
    Limits::check("bytes in a name", "name_bytes", name.len() as u64, limits.name_bytes)?;
    Limits::check("parts in a name", "path_parts", path.parts().len() as u64, limits.path_parts)
}

/// Returns the reason for which a tensor is not in the index.
fn skipped(described: &Described) -> Option<String> {
    let number = described.header.dtype;
    match number {
        dtype::STRING => Some("holds text, which is not read".to_owned()),
        0 => Some("has no dtype".to_owned()),
        number if known(number) => None,
        number => Some(format!("has the unknown dtype {number}")),
    }
}

/// Returns true for a tensor that is in the index of an intact model.
pub(crate) fn is_listed(described: &Described) -> bool {
    skipped(described).is_none()
}

fn known(number: i64) -> bool {
    dtype::from_number(number).is_some() || dtype::packed_bits(number).is_some()
}

/// Returns dtype and shape in the index, with the shape of the tensor if its elements share bytes.
///
/// # Errors
/// [`Kind::Corrupt`] for negative dimensions and too many elements.
pub(crate) fn layout(number: i64, dims: &[i64]) -> Result<(DType, Shape, Option<Shape>)> {
    let shape: Option<Vec<u64>> = dims.iter().map(|&size| u64::try_from(size).ok()).collect();
    let Some(shape) = shape.map(Shape::new) else {
        return Err(Error::corrupt("negative-dimension", "a dimension is negative")
            .expected("0 or more")
            .found(format_args!("{dims:?}")));
    };
    let too_large =
        || Error::corrupt("shape-overflow", "the tensor exceeds 2^64 bits").found(format_args!("{shape}"));
    if let Some(bits) = dtype::packed_bits(number) {
        let all = shape.elements().and_then(|count| count.checked_mul(bits)).ok_or_else(too_large)?;
        return Ok(match dtype::from_number(number) {
            Some(dtype) if all.is_multiple_of(8) => (dtype, shape, None),
            _ => (DType::U8, Shape::from([all.div_ceil(8)]), Some(shape)),
        });
    }
    let dtype = dtype::from_number(number)
        .ok_or_else(|| Error::unsupported("onnx-dtype", "unknown dtype").found(number))?;
    shape.bytes(dtype).ok_or_else(too_large)?;
    Ok((dtype, shape, None))
}

/// Returns true for a tensor that is listed as its bytes.
fn is_plain_bytes(described: &Described) -> bool {
    layout(described.header.dtype, &described.header.dims).is_ok_and(|(_, _, packed)| packed.is_some())
}

fn entry(
    described: &Described,
    stored: &Stored,
    source: &SourceRef,
    files: &mut Files<'_>,
    limits: &Limits,
    budget: &Budget,
) -> Result<TensorEntry> {
    let header = &described.header;
    Limits::check("dimensions", "dimensions", header.dims.len() as u64, limits.dimensions)?;
    let (dtype, shape, packed) = layout(header.dtype, &header.dims)?;
    if let Some(damage) = &stored.damage {
        return Err(damage.again());
    }
    let len = shape.bytes(dtype).unwrap_or(u64::MAX);
    let (from, offset) = if header.is_external {
        if stored.runs.iter().any(|run| run.len > 0) {
            return Err(bad(
                "external-data",
                "the tensor has elements here and in another file",
                &described.path,
            )
            .at(stored.at));
        }
        files.find(&Outside::of(header)?, len, limits)?
    } else {
        inside(described, stored, (dtype, len), source, budget)?
    };
    let path = described.path.clone();
    let mut entry = TensorEntry::dense(path, dtype, shape, &from, offset, Encoding::ROW)?;
    entry.role = match described.place {
        Place::Initializer(_) | Place::SparseValues(_) => Role::Parameter,
        Place::Constant(_) | Place::SparseIndices | Place::Attribute => Role::Buffer,
    };
    if let Some(shape) = packed {
        let word = dtype::name(header.dtype).unwrap_or_default().to_lowercase();
        entry.attributes.insert(PACKED_DTYPE.to_owned(), Value::Text(word));
        entry.attributes.insert(PACKED_SHAPE.to_owned(), sizes(shape.dims().iter().copied()));
    }
    if let Place::SparseValues(dims) = &described.place {
        let dims = dims.iter().map(|&size| u64::try_from(size).unwrap_or(0));
        entry.attributes.insert(SPARSE_SHAPE.to_owned(), sizes(dims));
    }
    Ok(entry)
}

fn sizes(dims: impl Iterator<Item = u64>) -> Value {
    Value::List(dims.map(Value::U64).collect())
}

/// Returns the source and offset of elements in the model.
fn inside(
    described: &Described,
    stored: &Stored,
    (dtype, len): (DType, u64),
    source: &SourceRef,
    budget: &Budget,
) -> Result<(SourceRef, u64)> {
    let wrong = |found: u64, at: u64| {
        bad("length-mismatch", "the elements do not match shape and dtype", &described.path)
            .at(at)
            .expected(format_args!("{len} bytes for {dtype} {:?}", described.header.dims))
            .found(format_args!("{found} bytes"))
    };
    // An empty field has no elements: writers of all kinds add them.
    let runs: Vec<Run> = stored.runs.iter().copied().filter(|run| run.len > 0).collect();
    match runs.as_slice() {
        [] if len == 0 => Ok((source.clone(), stored.at)),
        [] => Err(wrong(0, stored.at).hint("the model may have been saved without its weights")),
        [run] if run.wire == LEN && matches!(run.field, RAW | FLOATS | DOUBLES) => {
            if run.field != RAW {
                check_field(described, run)?;
            }
            match run.len == len {
                true => Ok((source.clone(), run.at)),
                false => Err(wrong(run.len, run.at)),
            }
        }
        [first, ..] => {
            for run in &runs {
                check_field(described, run)?;
                if run.field != first.field {
                    return Err(bad("wrong-type", "the elements are stored in two fields", &described.path)
                        .at(run.at)
                        .expected("one field")
                        .found(format_args!("fields {} and {}", first.field, run.field)));
                }
            }
            let typed = TypedSource::new(source, &runs, dtype, budget)?;
            let found = weighbridge_io::source::Source::len(&typed);
            match found == len {
                true => Ok((shared(typed), 0)),
                false => Err(wrong(found, first.at)),
            }
        }
    }
}

/// Rejects elements in a field that does not fit the dtype.
fn check_field(described: &Described, run: &Run) -> Result<()> {
    let expected = dtype::typed_field(described.header.dtype);
    if run.field == expected {
        return Ok(());
    }
    Err(bad("wrong-type", "the elements are in a field for another dtype", &described.path)
        .at(run.at)
        .expected(format_args!("field {RAW} or {expected}"))
        .found(format_args!("field {}", run.field)))
}

/// Returns a hint to open the rest of a model without a file.
pub(crate) fn without_file() -> weighbridge_core::phrase::Phrase {
    phrase!["copy the file of external data next to the model"]
}
