//! Reader: file to checkpoint. Elements are not read.

use crate::blob::{self, Around, Blobs};
use crate::dtype::Stored;
use crate::tree::{File, Message, Range};
use crate::values::Decoded;
use crate::{MODEL, classic, describe, graph, network, program};
use std::sync::Arc;
use weighbridge_core::budget::Budget;
use weighbridge_core::checkpoint::{
    Attributes, Checkpoint, Damage, Distinct, Name, Note, Role, TensorEntry, TensorPath, Value,
};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::tensor::{DType, Encoding, Shape};
use weighbridge_core::text::{counted, quoted};
use weighbridge_format::OpenOptions;
use weighbridge_io::source::SourceRef;
use weighbridge_protobuf::{Reader, Value as Wire};

/// Attribute with the scheme of a quantized tensor. Its scales and its table are nested under its name.
const QUANTIZED: &str = "quantized";
/// Attribute with the dtype of a tensor whose elements share bytes, such as `uint4`. The tensor has its bytes as `u8`.
const PACKED_DTYPE: &str = "packed_dtype";
/// Attribute with the shape of a tensor whose elements share bytes.
const PACKED_SHAPE: &str = "packed_shape";
/// Memory of a tensor, besides its name.
const ENTRY: u64 = 400;
/// Factor of the length of a file for its budget.
const SMALL_MESSAGES: u64 = 4;
/// Maximum number of fields read to recognize a file.
const MAX_FIELDS: usize = 16;
/// Numbers of the fields of a model that are one of its types.
const TYPES: std::ops::RangeInclusive<u32> = 200..=3000;

/// Returns true for a file whose fields are those of a model: a version, a description and one of the types. The last one may exceed a
/// truncated file.
pub(crate) fn recognises(head: &[u8], source: &SourceRef) -> bool {
    let [0x08, 1..=127, next, rest @ ..] = head else { return false };
    // A description, or the tag of a type of two bytes.
    if !(matches!(next, 0x12 | 0x50) || (*next >= 0x80 && next & 7 == 2 && !rest.is_empty())) {
        return false;
    }
    let mut reader = Reader::new(source);
    let end = source.len();
    let (mut has_version, mut number_of_messages) = (false, 0);
    for _ in 0..MAX_FIELDS {
        match reader.next(end) {
            Ok(Some((1, Wire::Varint(_)))) => has_version = true,
            Ok(Some((10, Wire::Varint(0 | 1)))) => {}
            Ok(Some((2, Wire::Bytes(end)))) if number_of_messages == 0 => {
                number_of_messages += 1;
                if reader.skip_to(end).is_err() {
                    return false;
                }
            }
            Ok(Some((number, Wire::Bytes(_)))) if TYPES.contains(&number) => return has_version,
            // The type exceeds the file.
            Err(_) => return has_version && begins_as_type(head, reader.value_at()),
            _ => return false,
        }
    }
    false
}

/// Returns true if the field before `at` has the number of a type. Its tag has two or three bytes.
fn begins_as_type(head: &[u8], at: u64) -> bool {
    let Ok(at) = usize::try_from(at) else { return false };
    (2..=3).any(|len| {
        let tag = at.checked_sub(len).and_then(|from| weighbridge_protobuf::varint(head.get(from..at)?));
        tag.is_some_and(|(tag, rest)| {
            rest.is_empty()
                && tag & 7 == 2
                && u32::try_from(tag >> 3).is_ok_and(|number| TYPES.contains(&number))
        })
    })
}

/// Reads the index of `source`. `around` is its folder with its name in it; `salvaged` is the error of opening a damaged file.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`], [`weighbridge_core::Kind::Unsupported`] or [`weighbridge_core::Kind::Limit`], with the offset.
pub(crate) fn open(
    source: &SourceRef,
    around: Option<Around<'_>>,
    options: &OpenOptions,
    salvaged: Option<&Error>,
) -> Result<Checkpoint> {
    let limits = options.limits.with_budget_of(source);
    let file = File::parse(source, &budget_of(source, &limits), salvaged.is_some())?;
    let mut index = index(&file, around, &limits, salvaged, true)?;
    index.finish();
    let files = std::mem::take(&mut index.blobs.opened);
    let mut checkpoint = index.checkpoint;
    checkpoint.mark_ties(&file.budget)?;
    let listed = checkpoint.tensors.len();
    if let Some(damage) = &mut checkpoint.damage
        && file.fault.is_none()
    {
        damage.expected = Some((listed + damage.lost.len()) as u64);
    }
    checkpoint.files.push(source.clone());
    checkpoint.files.extend(files);
    Ok(checkpoint)
}

/// Reads the program of a model without its files of weights.
///
/// # Errors
/// As [`open`].
#[cfg(feature = "scan")]
pub(crate) fn program(source: &SourceRef, options: &OpenOptions) -> Result<Checkpoint> {
    let limits = options.limits.with_budget_of(source);
    let file = File::parse(source, &budget_of(source, &limits), false)?;
    Ok(index(&file, None, &limits, None, false)?.checkpoint)
}

/// Lists the ranges with elements in the index, and those with elements that are not.
///
/// # Errors
/// As [`open`].
pub(crate) fn unread(source: &SourceRef, limits: &Limits) -> Result<(Vec<Range>, Vec<Range>)> {
    let limits = limits.with_budget_of(source);
    let file = File::parse(source, &budget_of(source, &limits), false)?;
    let index = index(&file, None, &limits, None, false)?;
    Ok((index.listed, index.unread))
}

fn index<'a>(
    file: &'a File,
    around: Option<Around<'a>>,
    limits: &'a Limits,
    salvaged: Option<&Error>,
    needs_blobs: bool,
) -> Result<Index<'a>> {
    let mut index = Index {
        file,
        checkpoint: Checkpoint::new("coreml", MODEL, file.source.label()),
        limits,
        names: Distinct::default(),
        blobs: Blobs::new(around),
        listed: Vec::new(),
        unread: Vec::new(),
        quantized: None,
        packed: 0,
        salvage: salvaged.is_some(),
        needs_blobs,
    };
    if let Some(error) = salvaged {
        index.checkpoint.damage_mut(error);
    }
    let root = file.root();
    describe::metadata(&root, &mut index.checkpoint.metadata)?;
    if !index.salvage && model_type(&root).is_none() {
        return Err(Error::corrupt("truncated", "the model has no content")
            .at(file.source.len())
            .expected("a field with a neural network, a program or another type of model")
            .found("the end of the file"));
    }
    let mut builder = graph::Builder::new(file);
    model(&root, &TensorPath::default(), &mut index, &mut builder, None)?;
    index.checkpoint.topology = Some(Arc::new(builder.finish(&root)?));
    index.blobs.check(limits)?;
    Ok(index)
}

/// Returns the budget of a model. Messages of programs are small: a dimension of a shape has 6 bytes in the file, and 300 in memory. Up to
/// 1 MB, the budget is that of all formats.
fn budget_of(source: &SourceRef, limits: &Limits) -> Budget {
    Budget::new(source.len().saturating_mul(SMALL_MESSAGES), limits)
}

/// Returns the type of a model: its name and its content.
pub(crate) fn model_type<'a>(model: &Message<'a>) -> Option<(&'static str, Message<'a>)> {
    let known = model.fields().filter_map(|(field, value)| match value {
        crate::tree::Plain::Message(inner) if TYPES.contains(&field.number) => Some((field.name, inner)),
        _ => None,
    });
    known.last()
}

/// Lists the tensors of a model, and adds its program. Models of a pipeline are nested. `block` is the block of a nested model.
///
/// # Errors
/// As [`open`].
pub(crate) fn model<'a>(
    model: &Message<'a>,
    path: &TensorPath,
    index: &mut Index<'a>,
    builder: &mut graph::Builder<'a>,
    block: Option<usize>,
) -> Result<()> {
    let Some((kind, content)) = model_type(model) else { return Ok(()) };
    let block = match block {
        Some(block) => block,
        None => builder.block(None)?,
    };
    match kind {
        "neuralNetwork" | "neuralNetworkClassifier" | "neuralNetworkRegressor" => {
            network::read(&content, path, index, builder, block)
        }
        "mlProgram" => program::read(&content, path, index, builder, block),
        _ => classic::read(kind, model, &content, path, index, builder, block),
    }
}

/// Place of the elements of a tensor.
#[derive(Debug)]
pub(crate) enum Place {
    /// Bytes of the model, as one or several ranges.
    Ranges(Vec<Range>),
    /// Packed integers of the model.
    Integers(Vec<Range>),
    /// Blob at an offset of a file of that name.
    Blob(String, u64),
}

/// Tensor as the model describes it.
#[derive(Debug)]
pub(crate) struct Described {
    /// Path.
    pub(crate) path: TensorPath,
    /// Dtype.
    pub(crate) stored: Stored,
    /// Shape; `None` for one dimension of the stored length.
    pub(crate) dims: Option<Vec<u64>>,
    /// Place of the elements.
    pub(crate) place: Place,
    /// Offset of the description.
    pub(crate) at: u64,
    /// Role, if it is not that of the dtype.
    pub(crate) role: Option<Role>,
    /// Scheme of quantization, with the axis of channels.
    pub(crate) scheme: Option<(&'static str, Option<i64>)>,
}

/// Index in the making.
pub(crate) struct Index<'a> {
    pub(crate) file: &'a File,
    pub(crate) checkpoint: Checkpoint,
    limits: &'a Limits,
    names: Distinct,
    pub(crate) blobs: Blobs<'a>,
    listed: Vec<Range>,
    unread: Vec<Range>,
    /// Count of quantized tensors, and the name of the first one.
    quantized: Option<(u64, String)>,
    packed: u64,
    salvage: bool,
    /// False if tensors in other files do not matter.
    needs_blobs: bool,
}

impl Index<'_> {
    /// Reports elements that are not listed.
    pub(crate) fn skip(
        &mut self,
        path: &TensorPath,
        reason: &str,
        ranges: impl Iterator<Item = Range>,
    ) -> Result<()> {
        self.file.budget.take_memory(ENTRY + 2 * path.byte_len() as u64)?;
        for range in ranges {
            self.file.budget.take_memory(32)?;
            self.unread.push(range);
        }
        self.checkpoint.notes.push(Note::skipped_tensor(path.to_text(), reason.to_owned()));
        Ok(())
    }

    /// Lists a tensor.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`] if the elements do not match the description; [`weighbridge_core::Kind::Limit`].
    pub(crate) fn add(&mut self, described: Described) -> Result<()> {
        if !self.needs_blobs && matches!(described.place, Place::Blob(..)) {
            return Ok(());
        }
        let (path, at) = (described.path.clone(), described.at);
        self.file.budget.take_memory(ENTRY + 3 * path.byte_len() as u64)?;
        let length = path.byte_len() as u64;
        Limits::check("bytes in a name", "name_bytes", length, self.limits.name_bytes)
            .map_err(|e| e.at(at))?;
        let count = self.checkpoint.tensors.len() as u64 + 1;
        Limits::check("tensors", "tensors", count, self.limits.tensors)?;
        match self.entry(described) {
            Ok(entry) => {
                self.checkpoint.tensors.push(entry);
                Ok(())
            }
            Err(error) if self.salvage && is_loss(&error) => {
                self.checkpoint.lose(&path, &error);
                Ok(())
            }
            Err(error) => Err(error.on_tensor(&path).at(at)),
        }
    }

    fn entry(&mut self, described: Described) -> Result<TensorEntry> {
        let Described { path, stored, dims, place, at, role, scheme } = described;
        let (mut source, mut offset) = (self.file.source.clone(), at);
        let mut found = 0u64;
        match place {
            Place::Ranges(ranges) => {
                found = ranges.iter().fold(0, |sum, range| sum.saturating_add(range.len));
                if let [range] = ranges.as_slice() {
                    offset = range.at;
                } else if found > 0 {
                    let parts = ranges.iter().map(|range| (source.clone(), range.at, range.len)).collect();
                    source = Arc::new(weighbridge_core::source::ConcatSource::new(source.label(), parts)?);
                    offset = 0;
                }
                self.file.budget.take_memory(32 * ranges.len() as u64)?;
                self.listed.extend(ranges);
            }
            Place::Integers(ranges) => {
                let Stored::Plain(dtype) = stored else {
                    return Err(blob::differs("form", "bytes", "integers"));
                };
                if !ranges.is_empty() {
                    self.file.budget.take_memory(32 * ranges.len() as u64)?;
                    self.listed.extend(&ranges);
                    let decoded = Decoded::new(self.file, ranges, dtype)?;
                    (offset, found) = (decoded.place().at, decoded.place().len);
                    source = Arc::new(decoded);
                }
            }
            Place::Blob(name, at) => {
                let blob = self.blobs.find(&name, at)?;
                if blob.stored != stored {
                    let error = blob::differs("dtype", &stored.to_string(), &blob.stored.to_string());
                    return Err(error.in_file(blob.source.label()).at(at));
                }
                (source, offset, found) = (blob.source, blob.range.at, blob.range.len);
            }
        }
        if found == 0 && dims.is_none() && self.is_cut() {
            return Err(incomplete(at));
        }
        let (dtype, shape, packed) = layout(stored, dims, found, self.limits)?;
        let needed = shape.bytes(dtype).unwrap_or(u64::MAX);
        if needed != found {
            return Err(Error::corrupt("length-mismatch", "the elements do not match shape and dtype")
                .expected(format_args!("{needed} bytes for {dtype} {shape}"))
                .found(format_args!("{found} bytes"))
                .in_file(source.label()));
        }
        let mut entry = TensorEntry::dense(path, dtype, shape, &source, offset, Encoding::ROW)?;
        let is_weight = dtype.is_float() || packed.is_some() || scheme.is_some();
        entry.role = role.unwrap_or(if is_weight { Role::Parameter } else { Role::Buffer });
        if let Some((scheme, axis)) = scheme {
            entry.attributes.insert(QUANTIZED.to_owned(), Value::Text(scheme.to_owned()));
            if let Some(axis) = axis {
                entry.attributes.insert(Attributes::QUANTIZED_AXIS.to_owned(), Value::I64(axis));
            }
        }
        if let Some((word, dims)) = packed {
            self.packed += 1;
            entry.attributes.insert(PACKED_DTYPE.to_owned(), Value::Text(word.to_owned()));
            let dims = dims.into_iter().map(Value::U64).collect();
            entry.attributes.insert(PACKED_SHAPE.to_owned(), Value::List(dims));
        }
        self.checkpoint.notes.extend(self.names.add(&mut entry));
        if scheme.is_some() {
            let text = entry.path.to_text();
            self.quantized.get_or_insert((0, text)).0 += 1;
        }
        Ok(entry)
    }

    fn finish(&mut self) {
        if let Some((count, first)) = &self.quantized {
            let tensors = counted(*count, "quantized tensor", "quantized tensors");
            let more = if *count == 1 { "" } else { ", ..." };
            let text = format!(
                "{tensors} (`{}`{more}) listed as stored, with scales, zero points and tables nested under the name",
                quoted(first)
            );
            self.checkpoint.notes.push(Note::new("quantized-as-integers", text));
        }
        if self.packed > 0 {
            let text = "tensors of elements smaller than a byte are listed as their bytes; attributes have dtype and shape";
            self.checkpoint.notes.push(Note::new("packed-as-bytes", text));
        }
    }

    /// Returns true for a damaged model whose end is missing or malformed.
    pub(crate) fn is_cut(&self) -> bool {
        self.salvage && self.file.fault.is_some()
    }
}

/// Returns the error for elements that a damaged model lacks.
pub(crate) fn incomplete(at: u64) -> Error {
    Error::corrupt("truncated", "the elements are incomplete").at(at)
}

/// Returns true for an error that loses one tensor of a damaged file.
fn is_loss(error: &Error) -> bool {
    Damage::is(error) || error.code().as_str() == "file-missing"
}

/// Dtype and shape in the index; name of the dtype and shape of a tensor whose elements share bytes.
type Layout = (DType, Shape, Option<(&'static str, Vec<u64>)>);

/// Returns dtype and shape in the index, with dtype and shape of the tensor if its elements share bytes. `bytes` is the stored length.
fn layout(stored: Stored, dims: Option<Vec<u64>>, bytes: u64, limits: &Limits) -> Result<Layout> {
    let rank = dims.as_ref().map_or(1, Vec::len) as u64;
    Limits::check("dimensions", "dimensions", rank, limits.dimensions)?;
    let too_large = |dims: &[u64]| {
        Error::corrupt("shape-overflow", "the tensor exceeds 2^64 bytes").found(format_args!("{dims:?}"))
    };
    match stored {
        Stored::Plain(dtype) => {
            let dims = dims.unwrap_or_else(|| vec![bytes / dtype.size().unwrap_or(1).max(1) as u64]);
            let shape = Shape::new(dims.clone());
            shape.bytes(dtype).ok_or_else(|| too_large(&dims))?;
            Ok((dtype, shape, None))
        }
        Stored::Packed(word, bits) => {
            let dims = dims.unwrap_or_else(|| vec![bytes.saturating_mul(8) / bits]);
            let count = Shape::new(dims.clone()).elements();
            let all = count.and_then(|count| count.checked_mul(bits)).ok_or_else(|| too_large(&dims))?;
            Ok((DType::U8, Shape::from([all.div_ceil(8)]), Some((word, dims))))
        }
    }
}

/// Returns the path of a tensor under another one.
pub(crate) fn below(path: &TensorPath, name: &str) -> TensorPath {
    path.parts().iter().cloned().chain([Name::from(name)]).collect()
}
