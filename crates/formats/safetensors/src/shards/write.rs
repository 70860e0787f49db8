//! Writer: checkpoint to the plan of a folder of shards and their index.

use super::super::header_space::HeaderSpace;
use super::super::library::library;
use super::super::write::{Row, Texts, file, rows};
use super::super::{FORMAT, METADATA, SHARDED};
use super::names::{list_name, shard_name};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use weighbridge_core::checkpoint::{Checkpoint, Loss, Metadata, Value, escape_text};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::plan::{FileBuilder, WritePlan};
use weighbridge_format::PlanOptions;
use weighbridge_format::json::write_string;
use weighbridge_format::shards::ShardIndex;

/// Default shard size in bytes, that of Hugging Face.
pub(in super::super) const DEFAULT_SIZE: u64 = 5_000_000_000;

/// Units of sizes: powers of 1000 as in Hugging Face, powers of 1024 with an `i`.
const UNITS: [(&str, u64); 10] = [
    ("KIB", 1 << 10),
    ("MIB", 1 << 20),
    ("GIB", 1 << 30),
    ("TIB", 1 << 40),
    ("KB", 1000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("B", 1),
    ("", 1),
];

/// Parses a size such as `5GB`, `64MiB` or `1000` into bytes.
///
/// # Errors
/// [`weighbridge_core::Kind::Usage`], code `bad-size`.
pub fn parse_size(text: &str) -> Result<u64> {
    let upper = text.trim().to_ascii_uppercase();
    let digits = upper.len() - upper.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = upper.split_at(digits);
    let unit = UNITS.iter().find(|(name, _)| *name == unit.trim_start());
    let bytes = unit.and_then(|(_, unit)| number.parse::<u64>().ok()?.checked_mul(*unit));
    bytes.filter(|&bytes| bytes > 0).ok_or_else(|| {
        let is_zero = unit.is_some() && number.parse() == Ok(0u64);
        Error::usage("bad-size", "invalid shard size")
            .expected(match is_zero {
                true => "more than 0",
                false => "a number with a unit (5GB, 500MB, 64MiB) or a number of bytes",
            })
            .found(escape_text(text))
    })
}

/// Plans `checkpoint` as shards of at most `most` bytes of tensors.
///
/// # Errors
/// As for one file.
pub(in super::super) fn plan(
    checkpoint: &Checkpoint,
    most: u64,
    space: HeaderSpace,
    options: &PlanOptions,
) -> Result<WritePlan> {
    if let HeaderSpace::UpTo(_) = space {
        return Err(Error::usage("bad-setting", "the setting data_offset does not apply to shards"));
    }
    checkpoint.check_unique()?;
    let names = checkpoint.bridge_names(|name| name, &[METADATA]);
    let shards = split(rows(checkpoint, &names)?, most);
    let count = shards.len() as u64;

    let mut losses: Vec<Loss> = checkpoint.renamed_losses(&names).collect();
    if checkpoint.metadata.get(Metadata::INDEX_KEY).is_some() {
        losses.push(Loss::new(
            "reserved-key",
            Metadata::INDEX_KEY,
            "metadata dropped: the key is reserved for bridge metadata",
        ));
    }
    // Other programs read this key from every shard.
    let format = match checkpoint.metadata.get(FORMAT) {
        Some(Value::Text(format)) => Some(format.as_str()),
        _ => library(checkpoint),
    };
    let texts: Texts<'_> = format.map(|format| (FORMAT, Cow::from(format))).into_iter().collect();

    let file_names: Vec<String> = (1..=count).map(|number| shard_name(number, count)).collect();
    let mut map: BTreeMap<&str, &str> = BTreeMap::new();
    let mut total = 0u64;
    let mut files = Vec::with_capacity(shards.len() + 1);
    for (name, shard) in file_names.iter().zip(shards) {
        for row in &shard {
            // A shard above 2^64 bytes is rejected below; the total may be larger.
            total = total.saturating_add(row.bytes);
            map.insert(row.name, name);
        }
        files.push(file(name, shard, &texts, space)?);
    }
    let mut list = FileBuilder::new(list_name());
    list.owned(list_text(&metadata(checkpoint, &names, total, options, &mut losses), &map));
    files.push(list.finish());
    losses.extend(checkpoint.left_behind());
    Ok(WritePlan { format: "safetensors", kind: SHARDED, files, losses })
}

/// Returns a shard size in bytes that splits an opened checkpoint into the same shards: the size of the largest shard with
/// several tensors. Any next tensor exceeded the original size, so it exceeds this one, too. A
/// shard of one tensor may be larger. `None` where no shard has any bytes.
pub(in super::super) fn size_as_cut(checkpoint: &Checkpoint) -> Option<u64> {
    let mut shards: HashMap<&str, (usize, u64)> = HashMap::new();
    for extent in checkpoint.tensors.iter().flat_map(|tensor| &tensor.extents).filter(|extent| extent.len > 0)
    {
        let (count, bytes) = shards.entry(extent.source.label()).or_default();
        *count += 1;
        *bytes = bytes.saturating_add(extent.len);
    }
    let several = shards.values().filter(|(count, _)| *count > 1).map(|(_, bytes)| *bytes).max();
    // If every shard has one tensor, no two tensors may fit into a shard.
    several.or_else(|| shards.values().map(|(_, bytes)| *bytes).min())
}

/// Splits the tensors into shards, in their order. Tensors with shared storage stay together, at the position
/// of the first of them. A tensor above the shard size has a shard of its own.
fn split(rows: Vec<Row<'_>>, most: u64) -> Vec<Vec<Row<'_>>> {
    let (mut shards, mut current, mut filled) = (Vec::new(), Vec::new(), 0u64);
    for unit in units(rows) {
        let bytes = unit.iter().fold(0u64, |sum, row| sum.saturating_add(row.bytes));
        // A tensor above the shard size ends the current shard: filling it later would change the order.
        if bytes > most - filled && !current.is_empty() {
            shards.push(std::mem::take(&mut current));
            filled = 0;
        }
        if bytes > most {
            shards.push(unit);
            continue;
        }
        filled += bytes;
        current.extend(unit);
    }
    if !current.is_empty() {
        shards.push(current);
    }
    shards
}

/// Groups the tensors; tensors with the same byte range of a source form one unit.
fn units(rows: Vec<Row<'_>>) -> Vec<Vec<Row<'_>>> {
    let mut units: Vec<Vec<Row<'_>>> = Vec::with_capacity(rows.len());
    let mut known: HashMap<(usize, u64, u64), usize> = HashMap::new();
    for row in rows {
        let bytes = row.entry.single_extent().filter(|extent| extent.len > 0);
        let key = bytes.map(|p| (Arc::as_ptr(&p.source).cast::<()>().addr(), p.offset, p.len));
        let next = units.len();
        let place = key.map_or(next, |key| *known.entry(key).or_insert(next));
        match units.get_mut(place) {
            Some(unit) => unit.push(row),
            None => units.push(vec![row]),
        }
    }
    units
}

/// Returns the metadata of the index, as JSON by key.
fn metadata<'a>(
    checkpoint: &'a Checkpoint,
    names: &[String],
    total: u64,
    options: &PlanOptions,
    losses: &mut Vec<Loss>,
) -> BTreeMap<&'a str, String> {
    let mut pairs = BTreeMap::from([(ShardIndex::TOTAL_SIZE, total.to_string())]);
    for (key, value) in checkpoint.metadata.iter().filter(|(key, value)| fits_index(key, value)) {
        let json = match value {
            // Stored in every shard.
            Value::Text(_) if key == FORMAT => continue,
            Value::Text(text) => json_text(text),
            value => value.to_json().to_string(),
        };
        pairs.insert(key, json);
    }
    let held = |key: &str, value: &Value| key == Metadata::INDEX_KEY || fits_index(key, value);
    let index = checkpoint.bridge_index_beside(names, held);
    if let Some(index) = options.own_entry(index, &checkpoint.label, losses) {
        pairs.insert(Metadata::INDEX_KEY, json_text(&index));
    }
    pairs
}

/// True for metadata that the index stores without loss.
fn fits_index(key: &str, value: &Value) -> bool {
    let exact = matches!(value, Value::Text(_) | Value::Bool(_) | Value::U64(_) | Value::Null);
    exact && key != ShardIndex::TOTAL_SIZE && key != Metadata::INDEX_KEY
}

/// Encodes the index like `json.dumps(index, indent=2, sort_keys=True)`, with a trailing newline.
fn list_text(metadata: &BTreeMap<&str, String>, map: &BTreeMap<&str, &str>) -> String {
    fn member(text: &mut String, key: &str, write: impl FnOnce(&mut String)) {
        text.push_str(if text.ends_with('{') { "\n    " } else { ",\n    " });
        write_string(text, key);
        text.push_str(": ");
        write(text);
    }
    let end = |text: &mut String| text.push_str(if text.ends_with('{') { "}" } else { "\n  }" });
    let mut text = String::from("{\n  \"metadata\": {");
    metadata.iter().for_each(|(key, value)| member(&mut text, key, |text| text.push_str(value)));
    end(&mut text);
    text.push_str(",\n  \"weight_map\": {");
    map.iter().for_each(|(key, file)| member(&mut text, key, |text| write_string(text, file)));
    end(&mut text);
    text.push_str("\n}\n");
    text
}

/// Encodes `text` as ASCII JSON, as Python does.
fn json_text(text: &str) -> String {
    let mut json = String::with_capacity(text.len() + 2);
    write_string(&mut json, text);
    json
}
