//! Writer: checkpoint to plan. Version 3 in little-endian byte order, laid out as the package `gguf` does it.

use crate::header::{ALIGNMENT, DEFAULT_ALIGNMENT, Header, MAGIC};
use crate::quantization::ElementType;
use crate::read::{self, Contents};
use crate::value::{StoredTypes, TYPES, Type, encode_text};
use crate::{ALIGNMENT as SETTING, MODEL};
use weighbridge_core::checkpoint::{Checkpoint, Loss, Metadata, TensorEntry, Value, escape_text};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::phrase;
use weighbridge_core::phrase::Opt;
use weighbridge_core::plan::{FileBuilder, PlannedFile, WritePlan};
use weighbridge_core::tensor::Order;
use weighbridge_format::PlanOptions;
use weighbridge_io::source::SourceRef;

/// Version of written files.
const VERSION: u32 = 3;

/// Plans `checkpoint` as one file. An unchanged GGUF file is copied.
///
/// # Errors
/// [`weighbridge_core::Kind::Mismatch`]: `no-such-dtype`, `part-of-a-block`, `big-endian`, `name-collision`, `too-long`;
/// [`weighbridge_core::Kind::Usage`] for another kind, and for an invalid alignment.
pub(crate) fn plan(checkpoint: &Checkpoint, options: &PlanOptions) -> Result<WritePlan> {
    if let Some(kind) = options.kind.as_deref().filter(|&kind| kind != MODEL) {
        return Err(Error::usage("unknown-kind", "unknown kind of GGUF file").expected(MODEL).found(kind));
    }
    let plan = |file, losses| WritePlan { format: "gguf", kind: MODEL, files: vec![file], losses };
    let setting = options.setting(SETTING).map(setting).transpose()?;
    if setting.is_none()
        && !options.plain
        && let Some(source) = unchanged(checkpoint)
    {
        return Ok(plan(FileBuilder::copy_of("", source), Vec::new()));
    }
    checkpoint.check_unique()?;
    let names = checkpoint.bridge_names(|name| name, &[]);
    let mut losses = checkpoint.left_behind();
    losses.extend(checkpoint.renamed_losses(&names));
    let rows = checkpoint.tensors.iter().zip(&names).map(|(entry, name)| Row::new(entry, name));
    let rows = rows.collect::<Result<Vec<_>>>()?;
    let alignment = setting.map_or_else(|| alignment(checkpoint), Ok)?;

    let types = StoredTypes::of(checkpoint.metadata.get(TYPES));
    let index = index(checkpoint, &names, &types);
    let index = options.own_entry(index, &checkpoint.label, &mut losses);
    let mut pairs = Pairs::default();
    for (key, value) in checkpoint.metadata.iter().filter(|(key, value)| !read::is_own_key(key, value)) {
        match types.get(key, value) {
            _ if key == Metadata::INDEX_KEY => {
                let detail = "metadata dropped: the key is reserved for bridge metadata";
                losses.push(Loss::new("reserved-key", escape_text(key), detail));
            }
            _ if key == ALIGNMENT => pairs.alignment(alignment),
            Some(kind) => pairs.push(key, value, &kind),
            // Stored in the bridge index.
            None => {}
        }
    }
    if !pairs.has_alignment && alignment != DEFAULT_ALIGNMENT {
        pairs.alignment(alignment);
    }
    if let Some(index) = index {
        let value = Value::Text(index);
        if let Some(kind) = Type::of(&value) {
            pairs.push(Metadata::INDEX_KEY, &value, &kind);
        }
    }
    Ok(plan(file(&rows, &pairs, alignment)?, losses))
}

/// Returns the bridge index. Attributes of blocks are part of the format.
fn index(checkpoint: &Checkpoint, names: &[String], types: &StoredTypes<'_>) -> Option<String> {
    let held = |key: &str, value: &Value| {
        read::is_own_key(key, value) || key == ALIGNMENT || types.get(key, value).is_some()
    };
    if checkpoint.tensors.iter().all(|tensor| tensor.attributes.is_empty()) {
        return checkpoint.bridge_index_beside(names, held);
    }
    let mut bare = checkpoint.clone();
    for tensor in &mut bare.tensors {
        if tensor.text_attribute(read::QUANTIZATION).is_some() {
            tensor.attributes.remove(read::QUANTIZATION);
            tensor.attributes.remove(read::QUANTIZED_SHAPE);
        }
    }
    bare.bridge_index_beside(names, held)
}

/// Encoded metadata.
#[derive(Default)]
struct Pairs {
    bytes: Vec<u8>,
    count: u64,
    has_alignment: bool,
}

impl Pairs {
    fn push(&mut self, key: &str, value: &Value, kind: &Type) {
        encode_text(key.as_bytes(), &mut self.bytes);
        kind.encode(value, &mut self.bytes);
        self.count += 1;
    }

    fn alignment(&mut self, alignment: u32) {
        let value = Value::U32(alignment);
        if let Some(kind) = Type::of(&value) {
            self.push(ALIGNMENT, &value, &kind);
        }
        self.has_alignment = true;
    }
}

/// Tensor with its description.
struct Row<'a> {
    entry: &'a TensorEntry,
    name: &'a str,
    kind: &'static ElementType,
    /// Shape in elements.
    dims: Vec<u64>,
}

impl<'a> Row<'a> {
    fn new(entry: &'a TensorEntry, name: &'a str) -> Result<Self> {
        let row = |kind, dims| Ok(Self { entry, name, kind, dims });
        if let Some((kind, _, dims)) = read::quantization(entry)? {
            if entry.attributes.contains_key(read::BYTE_ORDER) {
                return Err(Error::mismatch(
                    "big-endian",
                    "the blocks of the tensor are in big-endian byte order",
                )
                .on_tensor(entry.name())
                .found(kind.name)
                .hint("only an unchanged copy of the file can have them"));
            }
            return row(kind, dims);
        }
        let dtype = entry.dtype();
        match ElementType::plain(dtype) {
            Some(kind) => row(kind, entry.shape.dims().to_vec()),
            None => Err(Error::mismatch("no-such-dtype", format!("GGUF does not support the dtype {dtype}"))
                .on_tensor(entry.name())
                .hint(phrase![
                    "exclude the tensor with ",
                    Opt::Drop.with(entry.name()),
                    ", or write a format that supports the dtype, such as safetensors"
                ])),
        }
    }
}

/// Plans the file.
fn file(rows: &[Row<'_>], pairs: &Pairs, alignment: u32) -> Result<PlannedFile> {
    let alignment = u64::from(alignment);
    let too_long = |row: &Row<'_>| {
        Error::mismatch("too-long", "the tensors exceed 2^64 bytes").on_tensor(row.entry.name())
    };
    let mut head = Vec::new();
    head.extend(MAGIC);
    head.extend(VERSION.to_le_bytes());
    head.extend((rows.len() as u64).to_le_bytes());
    head.extend(pairs.count.to_le_bytes());
    head.extend_from_slice(&pairs.bytes);
    let mut offset = 0u64;
    for row in rows {
        encode_text(row.name.as_bytes(), &mut head);
        let rank = u32::try_from(row.dims.len()).map_err(|_| too_long(row))?;
        head.extend(rank.to_le_bytes());
        for dim in row.dims.iter().rev() {
            head.extend(dim.to_le_bytes());
        }
        head.extend(row.kind.id.to_le_bytes());
        head.extend(offset.to_le_bytes());
        let end = row.entry.shape.bytes(row.entry.dtype()).and_then(|len| offset.checked_add(len));
        offset = end.and_then(|end| end.checked_next_multiple_of(alignment)).ok_or_else(|| too_long(row))?;
    }
    let mut file = FileBuilder::new("");
    file.owned(head);
    let pad = |file: &mut FileBuilder| {
        let end = file.position().checked_next_multiple_of(alignment).unwrap_or(file.position());
        file.padding(0, end - file.position());
    };
    pad(&mut file);
    for row in rows {
        file.tensor(row.entry, Order::Row)?;
        pad(&mut file);
    }
    Ok(file.finish())
}

/// Parses the alignment setting.
fn setting(text: &str) -> Result<u32> {
    text.parse().ok().filter(|alignment: &u32| alignment.is_power_of_two()).ok_or_else(|| {
        Error::usage("bad-setting", "the setting alignment is not a power of two")
            .expected("a power of two, in bytes")
            .found(escape_text(text))
    })
}

/// Returns the alignment that the metadata state.
fn alignment(checkpoint: &Checkpoint) -> Result<u32> {
    let Some(value) = checkpoint.metadata.get(ALIGNMENT) else { return Ok(DEFAULT_ALIGNMENT) };
    let number = match value {
        Value::U32(n) => Some(*n),
        Value::U64(n) => u32::try_from(*n).ok(),
        Value::I64(n) => u32::try_from(*n).ok(),
        _ => None,
    };
    number.filter(|number| number.is_power_of_two()).ok_or_else(|| {
        Error::mismatch("wrong-value", format!("the metadata key {ALIGNMENT} is not an alignment"))
            .in_file(&checkpoint.label)
            .expected("a power of two")
            .found(escape_text(&value.to_json().to_string()))
            .hint(phrase!["choose one with ", Opt::Set.pair(SETTING, "32")])
    })
}

/// Returns the source of an opened file, if nothing was changed since.
fn unchanged(checkpoint: &Checkpoint) -> Option<&SourceRef> {
    let is_whole = (checkpoint.format, checkpoint.kind) == ("gguf", MODEL)
        && checkpoint.damage.is_none()
        && checkpoint.topology.is_none()
        && checkpoint.companions.is_empty();
    let [source] = checkpoint.files.as_slice() else { return None };
    if !is_whole {
        return None;
    }
    let header = Header::read(source, &Limits::default()).ok()?;
    let Contents { checkpoint: mut original, names, metadata } = read::contents(header, source, None).ok()?;
    original.restore_carried(&names, metadata);
    let is_same = original.metadata == checkpoint.metadata
        && original.tensors.len() == checkpoint.tensors.len()
        && original.tensors.iter().zip(&checkpoint.tensors).all(|(a, b)| is_same(a, b));
    is_same.then_some(source)
}

fn is_same(a: &TensorEntry, b: &TensorEntry) -> bool {
    let entry = |t: &TensorEntry| (t.path.clone(), t.role.clone(), t.stored, t.cast, t.shape.clone());
    let same_extents = match (a.single_extent(), b.single_extent()) {
        (Some(a), Some(b)) => {
            (a.offset, a.len, a.encoding) == (b.offset, b.len, b.encoding)
                && (a.source.label(), a.source.len()) == (b.source.label(), b.source.len())
        }
        _ => false,
    };
    entry(a) == entry(b) && a.attributes == b.attributes && same_extents
}
