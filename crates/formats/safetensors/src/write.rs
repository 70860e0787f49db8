//! Writer: checkpoint to plan. Equal checkpoints have equal bytes: no timestamps, no hash order.

use super::header_space::HeaderSpace;
use super::library::library;
use super::{DTYPE_NAMES, FORMAT, KIND, MAX_HEADER, METADATA, PREFIX, SHARD, SHARDED, shards};
use serde_json::Value as Json;
use std::borrow::Cow;
use std::collections::BTreeMap;
use weighbridge_core::checkpoint::{Checkpoint, Loss, Metadata, TensorEntry, Value, escape_text};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::phrase;
use weighbridge_core::phrase::Opt;
use weighbridge_core::plan::{FileBuilder, PlannedFile, WritePlan};
use weighbridge_core::tensor::Order;
use weighbridge_format::PlanOptions;

/// Plans `checkpoint` as one file, or as shards if the options request them.
///
/// The tensors of a file are sorted as in the safetensors library: by decreasing alignment,
/// then by name. So each tensor is aligned to the size of its elements.
///
/// # Errors
/// [`weighbridge_core::Kind::Mismatch`] for what the format cannot hold: `no-such-dtype`, `shape-overflow`,
/// `part-of-a-byte`, `name-collision`, `header-too-long`, `too-long`; [`weighbridge_core::Kind::Usage`] for
/// another kind than `single` and `sharded`, and for an invalid shard size.
pub(super) fn plan(checkpoint: &Checkpoint, options: &PlanOptions) -> Result<WritePlan> {
    let most = options.setting(SHARD).map(shards::parse_size).transpose()?;
    let space = HeaderSpace::of(options)?;
    let was_sharded = (checkpoint.format, checkpoint.kind) == ("safetensors", SHARDED);
    match (options.kind.as_deref(), most) {
        (None | Some(SHARDED), Some(most)) => return shards::plan(checkpoint, most, space, options),
        (Some(SHARDED), None) => return shards::plan(checkpoint, shards::DEFAULT_SIZE, space, options),
        (None, None) if was_sharded => {
            return shards::plan(checkpoint, shards::DEFAULT_SIZE, space, options);
        }
        (None | Some(KIND), None) => {}
        (Some(KIND), Some(_)) => {
            return Err(Error::usage(
                "shards-in-a-folder",
                "a single file is requested, but shards are several files",
            )
            .hint(phrase![
                "write to a folder: ",
                Opt::To.with("safetensors"),
                ", and a target without .safetensors"
            ]));
        }
        (Some(kind), _) => {
            return Err(Error::usage("unknown-kind", "unknown kind of safetensors file")
                .expected(format_args!("{KIND} or {SHARDED}"))
                .found(kind));
        }
    }
    checkpoint.check_unique()?;
    let names = checkpoint.bridge_names(|name| name, &[METADATA]);
    let mut losses = checkpoint.left_behind();
    losses.extend(checkpoint.renamed_losses(&names));
    let rows = rows(checkpoint, &names)?;
    let index = options.own_entry(checkpoint.bridge_index(&names), &checkpoint.label, &mut losses);
    let file = file("", rows, &metadata(checkpoint, index, &mut losses), space)?;
    Ok(WritePlan { format: "safetensors", kind: KIND, files: vec![file], losses })
}

/// Returns the tensors of `checkpoint` with their `names`, in its order.
///
/// # Errors
/// [`weighbridge_core::Kind::Mismatch`] for a tensor that the format cannot hold.
pub(super) fn rows<'a>(checkpoint: &'a Checkpoint, names: &'a [String]) -> Result<Vec<Row<'a>>> {
    checkpoint.tensors.iter().zip(names).map(|(entry, name)| Row::new(entry, name)).collect()
}

/// Plans a file of these tensors.
///
/// # Errors
/// [`weighbridge_core::Kind::Mismatch`]: `header-too-long`, `too-long`, `no-room`.
pub(super) fn file(
    name: &str,
    mut rows: Vec<Row<'_>>,
    metadata: &Texts<'_>,
    space: HeaderSpace,
) -> Result<PlannedFile> {
    // The order is total: names are unique.
    rows.sort_unstable_by(|a, b| b.rank.cmp(&a.rank).then_with(|| a.name.as_bytes().cmp(b.name.as_bytes())));
    if let HeaderSpace::UpTo(_) = space {
        // In the order of the source, as a reader lists them.
        rows.sort_by_key(|row| {
            row.entry.single_extent().map_or((u64::MAX, 0), |extent| (extent.offset, extent.len))
        });
    }
    let header = header(&rows, metadata, space)?;
    let mut file = FileBuilder::new(name);
    file.literal((header.len() as u64).to_le_bytes());
    file.owned(header);
    for row in &rows {
        file.tensor(row.entry, Order::Row)?;
    }
    Ok(file.finish())
}

/// Texts by key, as in `__metadata__`.
pub(super) type Texts<'a> = BTreeMap<&'a str, Cow<'a, str>>;

/// A tensor with its header entry.
#[derive(Clone, Copy)]
pub(super) struct Row<'a> {
    pub(super) entry: &'a TensorEntry,
    pub(super) name: &'a str,
    /// Index of the dtype in [`DTYPE_NAMES`].
    rank: usize,
    pub(super) bytes: u64,
}

impl<'a> Row<'a> {
    fn new(entry: &'a TensorEntry, name: &'a str) -> Result<Self> {
        let dtype = entry.dtype();
        let fail = |error: Error| Err(error.on_tensor(entry.name()));
        let Some(rank) = DTYPE_NAMES.iter().position(|&(known, _)| known == dtype) else {
            return fail(
                Error::mismatch("no-such-dtype", format!("safetensors does not support the dtype {dtype}"))
                    .hint(match dtype == weighbridge_core::tensor::DType::C128 {
                        true => "deselect the tensor, or write a format that supports the dtype, such as npz",
                        false => "cast or deselect the tensor, or write a format that supports the dtype, such as npz",
                    }),
            );
        };
        // The safetensors library multiplies all dimensions, so a 0 does not prevent an overflow.
        let elements = entry.shape.dims().iter().try_fold(1u64, |n, &d| n.checked_mul(d));
        let Some(bits) = elements.and_then(|n| n.checked_mul(u64::from(dtype.bits()))) else {
            return fail(
                Error::mismatch("shape-overflow", "the shape exceeds 2^64 bits")
                    .found(format_args!("{dtype} {}", entry.shape)),
            );
        };
        if !bits.is_multiple_of(8) {
            return fail(
                Error::mismatch("part-of-a-byte", "the elements do not fill whole bytes")
                    .found(format_args!("{dtype} {}", entry.shape)),
            );
        }
        Ok(Self { entry, name, rank, bytes: bits / 8 })
    }
}

/// Returns the pairs of `__metadata__`: texts, and bridge metadata if any.
fn metadata<'a>(checkpoint: &'a Checkpoint, index: Option<String>, losses: &mut Vec<Loss>) -> Texts<'a> {
    let mut pairs = BTreeMap::new();
    for (key, value) in checkpoint.metadata.iter() {
        match value {
            Value::Text(_) if key == Metadata::INDEX_KEY => {
                let detail = "metadata dropped: the key is reserved for bridge metadata";
                losses.push(Loss::new("reserved-key", escape_text(key), detail));
            }
            Value::Text(text) => {
                pairs.insert(key, Cow::from(text));
            }
            // Other values are stored as bridge metadata.
            _ => {}
        }
    }
    if let Some(library) = library(checkpoint) {
        pairs.entry(FORMAT).or_insert(Cow::from(library));
    }
    if let Some(index) = index {
        pairs.insert(Metadata::INDEX_KEY, Cow::from(index));
    }
    pairs
}

/// Encodes the header with its padding.
fn header(rows: &[Row<'_>], metadata: &Texts<'_>, space: HeaderSpace) -> Result<String> {
    let mut text = String::from("{");
    if !metadata.is_empty() {
        text.push_str(&format!("{}:{{", quoted(METADATA)));
        for (key, value) in metadata {
            text.push_str(&quoted(key));
            text.push(':');
            text.push_str(&quoted(value));
            text.push(',');
        }
        text.pop();
        text.push_str("},");
    }
    let mut begin = 0u64;
    for row in rows {
        let Some(end) = begin.checked_add(row.bytes) else {
            return Err(
                Error::mismatch("too-long", "the tensors exceed 2^64 bytes").on_tensor(row.entry.name())
            );
        };
        let shape = row.entry.shape.dims().iter().map(u64::to_string).collect::<Vec<_>>().join(",");
        text.push_str(&format!(
            "{}:{{\"dtype\":\"{}\",\"shape\":[{shape}],\"data_offsets\":[{begin},{end}]}},",
            quoted(row.name),
            DTYPE_NAMES[row.rank].1,
        ));
        begin = end;
    }
    if text.ends_with(',') {
        text.pop();
    }
    text.push('}');
    let length = space.length(text.len() as u64)?;
    if length > MAX_HEADER {
        return Err(Error::mismatch("header-too-long", "the header exceeds the limit of safetensors")
            .expected(format_args!("at most {MAX_HEADER} bytes"))
            .found(length)
            .hint("write shards, or less metadata"));
    }
    // The end of the data must have an offset, too.
    if begin.checked_add(PREFIX + length).is_none() {
        return Err(Error::mismatch("too-long", "the file would exceed 2^64 bytes"));
    }
    while (text.len() as u64) < length {
        text.push(' ');
    }
    Ok(text)
}

/// Encodes `text` as a JSON string.
fn quoted(text: &str) -> String {
    Json::from(text).to_string()
}
