//! Reader: file to checkpoint. Reads only the header.

use crate::dequantize::Dequantized;
use crate::header::{Described, Header};
use crate::quantization::{Blocks, ElementType, Layout};
use crate::{MODEL, ReadOptions, salvage, value};
use std::collections::HashMap;
use weighbridge_core::checkpoint::{Checkpoint, Note, TensorEntry, TensorPath, Value, escape_text};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::phrase;
use weighbridge_core::phrase::Opt;
use weighbridge_core::tensor::{DType, Encoding, Endian, Order, Shape};
use weighbridge_core::text::counted;
use weighbridge_format::OpenOptions;
use weighbridge_io::source::{SourceRef, check_range};

/// Attribute with the type of quantized blocks, such as `Q4_K`. The tensor has their bytes as `u8`.
pub(crate) const QUANTIZATION: &str = "quantization";
/// Attribute with the shape of a quantized tensor, in elements.
pub(crate) const QUANTIZED_SHAPE: &str = "quantized_shape";
/// Attribute of quantized blocks in big-endian byte order.
pub(crate) const BYTE_ORDER: &str = "byte_order";
/// Metadata key of the version of the format.
pub(crate) const VERSION_KEY: &str = "GGUF.version";
/// Metadata key of a byte order other than little-endian.
pub(crate) const BYTE_ORDER_KEY: &str = "GGUF.byte_order";

/// Returns true for a key of the index that is not metadata of the file.
pub(crate) fn is_own_key(key: &str, value: &Value) -> bool {
    matches!(key, VERSION_KEY | BYTE_ORDER_KEY) || value::is_types(key, value)
}

/// Contents of one file.
pub(crate) struct Contents {
    /// Tensors, and notes. Metadata are not restored.
    pub(crate) checkpoint: Checkpoint,
    /// Names of the tensors.
    pub(crate) names: Vec<String>,
    /// Metadata, bridge metadata included.
    pub(crate) metadata: Vec<(String, Value)>,
}

/// Reads the index of `source`. `salvaged` is the error of opening a damaged file.
///
/// # Errors
/// As [`contents`] and [`finish`].
pub(crate) fn open(
    source: &SourceRef,
    options: &OpenOptions,
    salvaged: Option<&Error>,
) -> Result<Checkpoint> {
    let header = Header::read(source, &options.limits)?;
    let Contents { mut checkpoint, names, metadata } = contents(header, source, salvaged)?;
    checkpoint.restore_carried(&names, metadata);
    finish(&mut checkpoint, options)?;
    Ok(checkpoint)
}

/// Lists the contents that a header describes.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`] or [`weighbridge_core::Kind::Unsupported`] for a tensor, with the offset. In a salvage, such tensors
/// are lost.
pub(crate) fn contents(header: Header, source: &SourceRef, salvaged: Option<&Error>) -> Result<Contents> {
    let mut checkpoint = Checkpoint::new("gguf", MODEL, source.label());
    checkpoint.files.push(source.clone());
    if let Some(error) = salvaged {
        checkpoint.damage_mut(error).expected = Some(header.tensors.len() as u64);
    }
    let certain = salvaged.map(|_| salvage::certain(&header, source)).transpose()?;
    let is_certain = |place: usize| certain.as_ref().is_none_or(|certain| certain.get(place) == Some(&true));
    let overlapping = overlapping(&header, is_certain);
    let mut names = Vec::new();
    let mut uses: HashMap<&str, usize> = HashMap::new();
    for described in &header.tensors {
        *uses.entry(&described.name).or_default() += 1;
    }
    for (place, (described, overlaps)) in header.tensors.iter().zip(&overlapping).enumerate() {
        let is_unique = uses.get(described.name.as_str()) == Some(&1);
        let read = match overlaps {
            _ if !is_unique => {
                Err(Error::corrupt("duplicate-name", "duplicate tensor name").at(described.at))
            }
            &Some(other) => {
                let text =
                    format!("its elements overlap those of {}", escape_text(&header.tensors[other].name));
                Err(Error::corrupt("overlap", text).at(header.data.saturating_add(described.offset)))
            }
            None if !is_certain(place) => Err(salvage::uncertain(described)),
            None => entry(described, &header, source),
        };
        match read.map_err(|e| e.on_tensor(escape_text(&described.name))) {
            Ok(Some(tensor)) => {
                checkpoint.tensors.push(tensor);
                names.push(described.name.clone());
            }
            Ok(None) => {
                let reason = ElementType::unknown(described.kind);
                checkpoint.notes.push(Note::skipped_tensor(described.name.as_str(), reason));
            }
            Err(error) if salvaged.is_some() => checkpoint.lose(escape_text(&described.name), &error),
            Err(error) => return Err(error),
        }
    }
    let metadata = metadata(header, &mut checkpoint.notes);
    Ok(Contents { checkpoint, names, metadata })
}

/// Returns the metadata: the version of the format, the pairs of the file, and their types.
fn metadata(header: Header, notes: &mut Vec<Note>) -> Vec<(String, Value)> {
    let mut metadata = vec![(VERSION_KEY.to_owned(), Value::U32(header.version))];
    if header.is_big_endian {
        metadata.push((BYTE_ORDER_KEY.to_owned(), Value::Text("big".to_owned())));
    }
    let own = [VERSION_KEY, BYTE_ORDER_KEY, value::TYPES];
    let (pairs, taken): (Vec<_>, Vec<_>) =
        header.pairs.into_iter().partition(|(key, ..)| !own.contains(&key.as_str()));
    for (key, ..) in taken {
        let text = format!("metadata key {key} ignored: the name is reserved");
        notes.push(Note::omission("metadata-key-taken", text));
    }
    let types = value::recorded(pairs.iter().map(|(key, value, kind)| (key.as_str(), value, kind)));
    metadata.extend(pairs.into_iter().map(|(key, value, _)| (key, value)));
    metadata.extend(types.map(|types| (value::TYPES.to_owned(), types)));
    metadata
}

/// Returns the number of bytes of a tensor; `None` for an unknown type or an overflow.
pub(crate) fn bytes_of(described: &Described) -> Option<u64> {
    let elements = described.dims.iter().try_fold(1u64, |n, &d| n.checked_mul(d))?;
    match ElementType::of_id(described.kind)?.layout {
        Layout::Plain(dtype) => elements.checked_mul(dtype.size()? as u64),
        Layout::Blocks(blocks) => (elements / blocks.elements).checked_mul(blocks.bytes),
    }
}

/// Returns for each tensor another one whose bytes it shares, if any, among those with a certain place.
fn overlapping(header: &Header, is_certain: impl Fn(usize) -> bool) -> Vec<Option<usize>> {
    let mut found = vec![None; header.tensors.len()];
    let mut spans: Vec<(u64, u64, usize)> = Vec::new();
    for (place, described) in header.tensors.iter().enumerate() {
        if let Some(len) = bytes_of(described).filter(|&len| len > 0 && is_certain(place)) {
            spans.push((described.offset, described.offset.saturating_add(len), place));
        }
    }
    spans.sort_unstable();
    let mut last: Option<(u64, usize)> = None;
    for (begin, end, place) in spans {
        if let Some((_, other)) = last.filter(|(stop, _)| *stop > begin) {
            found[place] = Some(other);
            found[other] = found[other].or(Some(place));
        }
        if last.is_none_or(|(stop, _)| stop < end) {
            last = Some((end, place));
        }
    }
    found
}

/// Returns the entry of a tensor; `None` for an unknown type.
fn entry(described: &Described, header: &Header, source: &SourceRef) -> Result<Option<TensorEntry>> {
    let Some(kind) = ElementType::of_id(described.kind) else { return Ok(None) };
    let offset = header.data.checked_add(described.offset);
    let Some((offset, len)) = offset.zip(bytes_of(described)) else {
        return Err(Error::corrupt("shape-overflow", "the tensor exceeds 2^64 bytes")
            .at(described.at)
            .found(format_args!("{} {} at {}", kind.name, shape_of(&described.dims), described.offset)));
    };
    let (dtype, dims) = match kind.layout {
        Layout::Plain(dtype) => (dtype, described.dims.clone()),
        Layout::Blocks(blocks) => {
            let dims = byte_dims(&described.dims, blocks).ok_or_else(|| {
                Error::corrupt("part-of-a-block", "the last dimension is not a whole number of blocks")
                    .at(described.at)
                    .expected(format_args!("a multiple of {}", blocks.elements))
                    .found(format_args!("{} {}", kind.name, shape_of(&described.dims)))
            })?;
            (DType::U8, dims)
        }
    };
    if len > 0 && check_range(&**source, offset, len).is_err() {
        return Err(Error::corrupt("truncated", "the elements of the tensor exceed the file")
            .at(offset)
            .expected(format_args!("elements up to offset {}", offset.saturating_add(len)))
            .found(format_args!("end of the file at {}", source.len()))
            .hint("the download may be incomplete; compare the length of the file with the original"));
    }
    // Empty tensors may be behind the end.
    let offset = if len == 0 { header.end } else { offset };
    let endian = if header.is_big_endian { Endian::Big } else { Endian::Little };
    let encoding = Encoding { order: Order::Row, endian };
    let path = TensorPath::from_dotted(&described.name);
    let mut tensor = TensorEntry::dense(path, dtype, Shape::new(dims), source, offset, encoding)?;
    if let Layout::Blocks(_) = kind.layout {
        let text = |text: &str| Value::Text(text.to_owned());
        let dims = described.dims.iter().map(|&dim| Value::U64(dim)).collect();
        tensor.attributes.insert(QUANTIZATION.to_owned(), text(kind.name));
        tensor.attributes.insert(QUANTIZED_SHAPE.to_owned(), Value::List(dims));
        if header.is_big_endian {
            tensor.attributes.insert(BYTE_ORDER.to_owned(), text("big"));
        }
    }
    Ok(Some(tensor))
}

fn shape_of(dims: &[u64]) -> Shape {
    Shape::new(dims)
}

/// Returns the shape of the blocks in bytes; `None` if a row is not a whole number of blocks.
fn byte_dims(dims: &[u64], blocks: Blocks) -> Option<Vec<u64>> {
    let (&last, rows) = dims.split_last()?;
    let row =
        last.is_multiple_of(blocks.elements).then(|| last / blocks.elements)?.checked_mul(blocks.bytes)?;
    Some(rows.iter().copied().chain([row]).collect())
}

/// Returns the type of a tensor of quantized blocks, with their shape in elements.
///
/// # Errors
/// [`weighbridge_core::Kind::Mismatch`], `part-of-a-block`, if its rows are not whole blocks.
pub(crate) fn quantization(tensor: &TensorEntry) -> Result<Option<(&'static ElementType, Blocks, Vec<u64>)>> {
    let Some(name) = tensor.text_attribute(QUANTIZATION).filter(|_| tensor.dtype() == DType::U8) else {
        return Ok(None);
    };
    let Some((kind, blocks)) = ElementType::quantized(name) else { return Ok(None) };
    let dims = tensor.shape.dims().split_last().and_then(|(&row, rows)| {
        let row =
            row.is_multiple_of(blocks.bytes).then(|| (row / blocks.bytes).checked_mul(blocks.elements))?;
        Some(rows.iter().copied().chain([row?]).collect::<Vec<u64>>())
    });
    let dims = dims.ok_or_else(|| {
        Error::mismatch("part-of-a-block", "the rows of the tensor are not whole blocks")
            .on_tensor(tensor.name())
            .expected(format_args!("a last dimension that is a multiple of {} bytes of {name}", blocks.bytes))
            .found(&tensor.shape)
    })?;
    Ok(Some((kind, blocks, dims)))
}

/// Dequantizes the tensors if the options request it; else adds a note on quantized ones.
///
/// # Errors
/// [`weighbridge_core::Kind::Unsupported`], `not-dequantized`, for types without a decoder, and for blocks in big-endian byte order.
pub(crate) fn finish(checkpoint: &mut Checkpoint, options: &OpenOptions) -> Result<()> {
    let dequantize = options.own::<ReadOptions>().dequantize;
    let mut count = 0u64;
    for tensor in &mut checkpoint.tensors {
        let Some((kind, blocks, dims)) = quantization(tensor)? else { continue };
        count += 1;
        if dequantize {
            dequantized(tensor, kind, blocks, dims)?;
        }
    }
    if count > 0 && !dequantize {
        let tensors = counted(count, "quantized tensor is", "quantized tensors are");
        let text = phrase![
            format_args!("{tensors} listed as the bytes of blocks; "),
            Opt::Dequantize,
            " lists the values"
        ];
        checkpoint.notes.push(Note::new("packed-as-bytes", text));
    }
    Ok(())
}

fn dequantized(tensor: &mut TensorEntry, kind: &ElementType, blocks: Blocks, dims: Vec<u64>) -> Result<()> {
    let refused = |text: &str| {
        Error::unsupported("not-dequantized", text).on_tensor(tensor.name()).found(kind.name).hint(phrase![
            "omit ",
            Opt::Dequantize,
            " to list the bytes of the blocks"
        ])
    };
    let Some(decode) = blocks.decode else {
        return Err(refused("the package gguf has no values for tensors of this type"));
    };
    if tensor.attributes.contains_key(BYTE_ORDER) {
        return Err(refused("blocks in big-endian byte order are not dequantized"));
    }
    let shape = Shape::new(dims);
    let Some(extent) = tensor.single_extent().filter(|_| shape.bytes(DType::F32).is_some()) else {
        return Err(Error::unsupported("too-large", "the values exceed 2^64 bytes").on_tensor(tensor.name()));
    };
    let values =
        Dequantized::new(&extent.source, extent.offset, extent.len / blocks.bytes, blocks, decode)?.shared();
    let whole = TensorEntry::dense(tensor.path.clone(), DType::F32, shape, &values, 0, Encoding::ROW)?;
    tensor.stored = DType::F32;
    tensor.shape = whole.shape;
    tensor.extents = whole.extents;
    for key in [QUANTIZATION, QUANTIZED_SHAPE] {
        tensor.attributes.remove(key);
    }
    Ok(())
}
