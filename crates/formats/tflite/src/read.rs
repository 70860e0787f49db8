//! Reader: file to checkpoint. Elements of buffers are not read.

use crate::flat::{File, List, Table, Tables};
use crate::{MAGIC, MODEL, dtype, graph};
use std::sync::Arc;
use weighbridge_core::checkpoint::{
    Attributes, Checkpoint, Damage, Distinct, Name, Note, Role, TensorEntry, TensorPath, Value,
};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::tensor::{DType, Encoding, Shape};
use weighbridge_core::text::{counted, quoted};
use weighbridge_format::OpenOptions;
use weighbridge_io::source::{RangeSource, SourceRef, read_vec};

/// Metadata key of the signatures.
pub(crate) const SIGNATURES: &str = "signatures";
/// Metadata key of named buffers.
pub(crate) const METADATA: &str = "metadata";
/// Name of the metadata about the conversion of a model, itself a FlatBuffer.
const CONVERSION: &[u8] = b"CONVERSION_METADATA";
/// Attribute with the scheme of a quantized tensor. Scale and zero point are nested under its name.
const QUANTIZED: &str = "quantized";
/// Attribute with the dtype of a tensor whose elements share bytes, such as `int4`. The tensor has its bytes as `u8`.
const PACKED_DTYPE: &str = "packed_dtype";
/// Attribute with the shape of a tensor whose elements share bytes.
const PACKED_SHAPE: &str = "packed_shape";
/// Version of the schema.
const VERSION: u64 = 3;
/// Memory of a tensor, besides its name.
const ENTRY: u64 = 400;

/// Opened file with the tables at its top.
pub(crate) struct Model<'a> {
    /// Root.
    pub(crate) root: Table<'a>,
    /// Subgraphs.
    pub(crate) subgraphs: Tables<'a>,
    /// Buffers.
    pub(crate) buffers: Tables<'a>,
}

impl<'a> Model<'a> {
    /// Reads the top of a file.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`] if it is not a model; [`weighbridge_core::Kind::Unsupported`] for another version.
    pub(crate) fn new(file: &'a File) -> Result<Self> {
        let head = read_vec(&*file.source, 0, file.source.len().min(8))?;
        if head.get(4..8) != Some(MAGIC) {
            let shown = head.get(4..).unwrap_or_default().escape_ascii().to_string();
            return Err(Error::corrupt("bad-magic", "the file is not a model of TensorFlow Lite")
                .at(4)
                .expected("`TFL3`")
                .found(quoted(&shown)));
        }
        let root = file.root("Model")?;
        let version = root.uint("version")?;
        if version != VERSION {
            return Err(Error::unsupported("format-version", "the version of the model is not read")
                .at(root.at)
                .expected(VERSION)
                .found(version));
        }
        Ok(Self { root, subgraphs: root.tables("subgraphs")?, buffers: root.tables("buffers")? })
    }

    /// Returns the bytes of a buffer; `None` for one without bytes.
    pub(crate) fn buffer(&self, number: u64, at: u64) -> Result<Option<List>> {
        let Some(buffer) = self.buffers.get(number)? else {
            return Err(Error::corrupt("index-out-of-range", "the buffer does not exist")
                .at(at)
                .expected(format_args!("less than {}", self.buffers.len()))
                .found(number));
        };
        if let Some((list, _)) = buffer.list("data")?.filter(|(list, _)| list.count > 0) {
            return Ok(Some(list));
        }
        // In a file of more than 2 GB, the bytes follow the FlatBuffer. Smaller offsets are placeholders.
        let (at, count) = (buffer.uint("offset")?, buffer.uint("size")?);
        if at <= 1 {
            return Ok(None);
        }
        weighbridge_io::source::check_range(&*self.root.file.source, at, count)?;
        Ok(Some(List { at, count }))
    }

    /// Returns the bytes of a buffer that a tensor refers to; `None` if it is not a constant.
    pub(crate) fn constant(&self, tensor: &Table<'_>) -> Result<Option<List>> {
        match tensor.uint("buffer")? {
            0 => Ok(None),
            number => self.buffer(number, tensor.at),
        }
    }
}

/// Reads the index of `source`. `salvaged` is the error of opening a damaged file.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`], [`weighbridge_core::Kind::Unsupported`] or [`weighbridge_core::Kind::Limit`], with the offset.
pub(crate) fn open(
    source: &SourceRef,
    options: &OpenOptions,
    salvaged: Option<&Error>,
) -> Result<Checkpoint> {
    let limits = options.limits.with_budget_of(source);
    let file = File::new(source, &limits.budget_of(source));
    let model = Model::new(&file)?;
    let mut reader = Reader {
        model: &model,
        checkpoint: Checkpoint::new("tflite", MODEL, source.label()),
        limits: &limits,
        names: Distinct::default(),
        quantized: None,
        packed: 0,
        salvage: salvaged.is_some(),
    };
    if let Some(error) = salvaged {
        reader.checkpoint.damage_mut(error);
    }
    for (number, subgraph) in (0..).zip(model.subgraphs.iter()) {
        reader.subgraph(number, &subgraph?)?;
    }
    reader.finish();
    let mut checkpoint = reader.checkpoint;
    checkpoint.mark_ties(&file.budget)?;
    let listed = checkpoint.tensors.len();
    if let Some(damage) = &mut checkpoint.damage {
        damage.expected = Some((listed + damage.lost.len()) as u64);
    }
    let described = describe(&model, &mut checkpoint);
    match described.and_then(|writer| graph::topology(&model, writer)) {
        Ok(topology) => checkpoint.topology = Some(Arc::new(topology)),
        // The tensors are worth more than the program.
        Err(error) if salvaged.is_some() && Damage::is(&error) => {}
        Err(error) => return Err(error),
    }
    checkpoint.files.push(source.clone());
    Ok(checkpoint)
}

struct Reader<'a> {
    model: &'a Model<'a>,
    checkpoint: Checkpoint,
    limits: &'a Limits,
    names: Distinct,
    /// Count of quantized tensors, and the name of the first one.
    quantized: Option<(u64, String)>,
    packed: u64,
    salvage: bool,
}

impl Reader<'_> {
    fn subgraph(&mut self, number: u64, subgraph: &Table<'_>) -> Result<()> {
        let prefix = match number {
            0 => None,
            _ => Some(name_or(subgraph.text("name")?, || format!("subgraph_{number}"))),
        };
        for (place, tensor) in (0u64..).zip(subgraph.tables("tensors")?.iter()) {
            self.model.root.file.budget.take_memory(ENTRY)?;
            let tensor = tensor?;
            let name = tensor_name(&tensor, place)?;
            let path: TensorPath = prefix.iter().cloned().chain([name]).collect();
            // The path, and its text.
            self.model.root.file.budget.take_memory(2 * path.byte_len() as u64)?;
            self.tensor(&tensor, path)?;
        }
        Ok(())
    }

    fn tensor(&mut self, tensor: &Table<'_>, path: TensorPath) -> Result<()> {
        let text = path.to_text();
        Limits::check("bytes in a name", "name_bytes", path.byte_len() as u64, self.limits.name_bytes)
            .map_err(|error| error.at(tensor.at))?;
        if let Some(reason) = self.skipped(tensor)? {
            self.checkpoint.notes.push(Note::skipped_tensor(text, reason));
            return Ok(());
        }
        match self.entries(tensor, &path) {
            Ok(()) => Ok(()),
            Err(error) if self.salvage && Damage::is(&error) => {
                self.checkpoint.lose(&path, &error);
                Ok(())
            }
            Err(error) => Err(error.on_tensor(&path).at(tensor.at)),
        }
    }

    /// Returns the reason for which a constant is not in the index.
    fn skipped(&self, tensor: &Table<'_>) -> Result<Option<String>> {
        let external = tensor.uint("external_buffer")?;
        if external > 0 {
            return Ok(Some(format!("its elements are in another file, as external buffer {external}")));
        }
        let reason = skipped(tensor)?;
        // Tensors without elements are values of a run.
        Ok(reason.filter(|_| self.model.constant(tensor).is_ok_and(|found| found.is_some())))
    }

    /// Lists a constant.
    fn entries(&mut self, tensor: &Table<'_>, path: &TensorPath) -> Result<()> {
        let Some(elements) = self.model.constant(tensor)? else { return Ok(()) };
        let count = self.checkpoint.tensors.len() as u64 + 1;
        Limits::check("tensors", "tensors", count, self.limits.tensors)?;
        let source = &self.model.root.file.source;
        let number = tensor.int("type")?;
        let (dtype, shape, packed) = layout(number, &tensor.ints("shape")?, self.limits)?;
        let needed = shape.bytes(dtype).unwrap_or(u64::MAX);
        if needed != elements.count {
            return Err(Error::corrupt("length-mismatch", "the elements do not match shape and dtype")
                .expected(format_args!("{needed} bytes for {dtype} {shape}"))
                .found(format_args!("{} bytes", elements.count)));
        }
        let mut entry = TensorEntry::dense(path.clone(), dtype, shape, source, elements.at, Encoding::ROW)?;
        let quantization = tensor.table("quantization")?;
        let parts = match &quantization {
            Some(quantization) => parts(quantization, &mut entry, packed.is_some())?,
            None => Vec::new(),
        };
        // Integers that are not quantized are shapes, axes and indices.
        let is_weight = dtype.is_float() || !parts.is_empty() || packed.is_some();
        let role = if is_weight { Role::Parameter } else { Role::Buffer };
        entry.role = role.clone();
        if let Some((word, shape)) = packed {
            self.packed += 1;
            entry.attributes.insert(PACKED_DTYPE.to_owned(), Value::Text(word.to_owned()));
            let dims = shape.dims().iter().map(|&size| Value::U64(size)).collect();
            entry.attributes.insert(PACKED_SHAPE.to_owned(), Value::List(dims));
        }
        self.checkpoint.notes.extend(self.names.add(&mut entry));
        let path = entry.path.clone();
        if !parts.is_empty() {
            self.quantized.get_or_insert_with(|| (0, path.to_text())).0 += 1;
        }
        self.checkpoint.tensors.push(entry);
        for (name, dtype, list, is_scalar) in parts {
            self.model.root.file.budget.take_memory(ENTRY)?;
            let shape = if is_scalar { Shape::default() } else { Shape::from([list.count]) };
            let path = path.parts().iter().cloned().chain([Name::from(name)]).collect();
            let mut part = TensorEntry::dense(path, dtype, shape, source, list.at, Encoding::ROW)?;
            part.role = role.clone();
            self.checkpoint.notes.extend(self.names.add(&mut part));
            self.checkpoint.tensors.push(part);
        }
        Ok(())
    }

    fn finish(&mut self) {
        if let Some((count, first)) = &self.quantized {
            let tensors = counted(*count, "quantized tensor", "quantized tensors");
            let more = if *count == 1 { "" } else { ", ..." };
            let text = format!(
                "{tensors} (`{}`{more}) listed as integers, with `scale` and `zero_point` nested under the name",
                quoted(first)
            );
            self.checkpoint.notes.push(Note::new("quantized-as-integers", text));
        }
        if self.packed > 0 {
            let text = "tensors of 2-bit and 4-bit elements are listed as their bytes; attributes have dtype and shape";
            self.checkpoint.notes.push(Note::new("packed-as-bytes", text));
        }
    }
}

/// Returns the reason for which a constant of that type is not in the index.
pub(crate) fn skipped(tensor: &Table<'_>) -> Result<Option<String>> {
    let number = tensor.int("type")?;
    Ok(match number {
        dtype::STRING => Some("holds text, which is not read".to_owned()),
        _ if tensor.table("sparsity")?.is_some() => Some("is sparse, which is not read".to_owned()),
        _ if dtype::of_number(number).is_some() || dtype::packed(number).is_some() => None,
        _ => Some(format!("has the unknown dtype {number}")),
    })
}

/// Dtype and shape in the index; name of the dtype and shape of a tensor whose elements share bytes.
type Layout = (DType, Shape, Option<(&'static str, Shape)>);

/// Returns dtype and shape in the index, with dtype and shape of the tensor if its elements share bytes.
fn layout(number: i64, dims: &[i64], limits: &Limits) -> Result<Layout> {
    Limits::check("dimensions", "dimensions", dims.len() as u64, limits.dimensions)?;
    let sizes: Option<Vec<u64>> = dims.iter().map(|&size| u64::try_from(size).ok()).collect();
    let Some(shape) = sizes.map(Shape::new) else {
        return Err(Error::corrupt("negative-dimension", "a dimension is negative")
            .expected("0 or more")
            .found(format_args!("{dims:?}")));
    };
    let too_large =
        || Error::corrupt("shape-overflow", "the tensor exceeds 2^64 bytes").found(format_args!("{shape}"));
    if let Some((word, bits)) = dtype::packed(number) {
        let all = shape.elements().and_then(|count| count.checked_mul(bits)).ok_or_else(too_large)?;
        return Ok((DType::U8, Shape::from([all.div_ceil(8)]), Some((word, shape))));
    }
    let dtype =
        dtype::of_number(number).ok_or_else(|| Error::unsupported("dtype", "unknown dtype").found(number))?;
    shape.bytes(dtype).ok_or_else(too_large)?;
    Ok((dtype, shape, None))
}

/// Part of a quantized tensor: its name, its place, and true for one without dimensions.
type QuantizedPart = (&'static str, DType, List, bool);

/// Sets the attributes of a quantized tensor, and returns its scales and zero points.
fn parts(quantization: &Table<'_>, entry: &mut TensorEntry, is_packed: bool) -> Result<Vec<QuantizedPart>> {
    if let Some((number, details)) = quantization.union("details")? {
        // Scales of such a tensor are tensors of the subgraph, or unknown.
        let word = details.map_or_else(|| format!("type {number}"), |details| details.kind.to_owned());
        entry.attributes.insert(QUANTIZED.to_owned(), Value::Text(word));
        return Ok(Vec::new());
    }
    let list = |name| Ok(quantization.list(name)?.map(|(list, _)| list).filter(|list: &List| list.count > 0));
    let (scale, zero_point): (Option<List>, Option<List>) = (list("scale")?, list("zero_point")?);
    let Some(scale) = scale else { return Ok(Vec::new()) };
    let is_scalar = scale.count == 1;
    if !is_scalar {
        let axis = Value::I64(quantization.int("quantized_dimension")?);
        entry.attributes.insert(Attributes::QUANTIZED_AXIS.to_owned(), axis);
    }
    // The integers of a packed tensor are not those of the scheme, but their bytes.
    if !is_packed {
        let scheme = if is_scalar { "per_tensor_affine" } else { "per_channel_affine" };
        entry.attributes.insert(QUANTIZED.to_owned(), Value::Text(scheme.to_owned()));
    }
    let mut parts = vec![("scale", DType::F32, scale, is_scalar)];
    if let Some(zero_point) = zero_point {
        parts.push(("zero_point", DType::I64, zero_point, is_scalar && zero_point.count == 1));
    }
    Ok(parts)
}

/// Returns the name of a tensor of a subgraph.
pub(crate) fn tensor_name(tensor: &Table<'_>, place: u64) -> Result<Name> {
    Ok(name_or(tensor.text("name")?, || format!("tensor_{place}")))
}

/// Returns a name, or another one for a name that is missing or empty.
fn name_or(name: Option<Vec<u8>>, other: impl FnOnce() -> String) -> Name {
    match name {
        Some(name) if !name.is_empty() => Name::new(name),
        _ => Name::from(other().as_str()),
    }
}

/// Sets the metadata. Returns the version of TensorFlow that converted the model.
fn describe(model: &Model<'_>, checkpoint: &mut Checkpoint) -> Result<Option<String>> {
    let root = &model.root;
    if let Some(text) = root.text("description")?.filter(|text| !text.is_empty()) {
        checkpoint.metadata.set("description", shown(text));
    }
    let (mut entries, mut writer, mut is_known) = (Vec::new(), None, false);
    for entry in root.tables("metadata")?.iter() {
        root.file.budget.take_memory(ENTRY)?;
        let entry = entry?;
        let name = entry.text("name")?.unwrap_or_default();
        let bytes = match model.buffer(entry.uint("buffer")?, entry.at)? {
            Some(list) => {
                if name == CONVERSION && !is_known {
                    writer = version(root.file, list)?;
                    is_known = true;
                }
                root.file.bytes(list.at, list.count)?
            }
            None => Vec::new(),
        };
        entries.push((Name::new(name), shown(bytes)));
    }
    if !entries.is_empty() {
        checkpoint.metadata.set(METADATA, Value::Map(entries));
    }
    let signatures = graph::signatures(model)?;
    if !signatures.is_empty() {
        checkpoint.metadata.set(SIGNATURES, Value::Map(signatures));
    }
    Ok(writer)
}

/// Returns the version of TensorFlow in the metadata about a conversion; `None` if that is malformed.
fn version(file: &File, list: List) -> Result<Option<String>> {
    let inner = std::sync::Arc::new(RangeSource::new(file.source.clone(), list.at, list.count)?);
    let inner: SourceRef = inner;
    let inner = File::new(&inner, &file.budget);
    let read = || -> Result<Option<Vec<u8>>> {
        match inner.root("ConversionMetadata")?.table("environment")? {
            Some(environment) => environment.text("tensorflow_version"),
            None => Ok(None),
        }
    };
    let text = read().ok().flatten().and_then(|bytes| String::from_utf8(bytes).ok());
    Ok(text.filter(|text| !text.is_empty()).map(|text| format!("TensorFlow {text}")))
}

/// Returns a text, or bytes that are not text. Zeros fill a text up to its length.
fn shown(bytes: Vec<u8>) -> Value {
    let end = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    match bytes.get(..end).and_then(|text| std::str::from_utf8(text).ok()) {
        Some(text) if !text.chars().any(|c| c.is_control() && !c.is_whitespace()) => {
            Value::Text(text.to_owned())
        }
        _ => Value::Bytes(bytes),
    }
}
