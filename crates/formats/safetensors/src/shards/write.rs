//! From an index to the plan of a folder: shards in order, then their list.

use super::super::library::library;
use super::super::room::Room;
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

/// Bytes of tensors in a shard where nobody says another number: what Hugging Face takes.
pub(in super::super) const DEFAULT_SIZE: u64 = 5_000_000_000;

/// Units of sizes: those of Hugging Face are powers of 1000, those with an `i` of 1024.
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

/// The bytes that a text such as `5GB`, `64MiB` or `1000` means.
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
        Error::usage("bad-size", "this is no size of a shard")
            .expected("a number with a unit: 5GB, 500MB, 64MiB, or bytes")
            .found(escape_text(text))
    })
}

/// Lays out `checkpoint` as shards of at most `most` bytes of tensors.
///
/// # Errors
/// As for one file.
pub(in super::super) fn plan(
    checkpoint: &Checkpoint,
    most: u64,
    room: Room,
    options: &PlanOptions,
) -> Result<WritePlan> {
    if let Room::Until(_) = room {
        return Err(Error::usage("bad-setting", "several files have no one place at which the data begin"));
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
            "this key is reserved for the carried index",
        ));
    }
    // Every shard says what other programs ask it for.
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
            // Any shard that passes 2^64 bytes is refused below; all together need not fit a file.
            total = total.saturating_add(row.bytes);
            map.insert(row.name, name);
        }
        files.push(file(name, shard, &texts, room)?);
    }
    let mut list = FileBuilder::new(list_name());
    list.owned(list_text(&metadata(checkpoint, &names, total, options, &mut losses), &map));
    files.push(list.finish());
    losses.extend(checkpoint.left_behind());
    Ok(WritePlan { format: "safetensors", kind: SHARDED, files, losses })
}

/// The size of shards that cuts an opened checkpoint as it is cut now, in bytes. Whatever the size was that a shard
/// did not pass, the next tensor would have passed it, and so it would the largest shard of several tensors. A
/// shard of one tensor may be larger than that. `None` where there is none of any bytes.
pub(in super::super) fn size_as_cut(checkpoint: &Checkpoint) -> Option<u64> {
    let mut shards: HashMap<&str, (usize, u64)> = HashMap::new();
    for extent in checkpoint.tensors.iter().flat_map(|tensor| &tensor.extents).filter(|extent| extent.len > 0)
    {
        let (count, bytes) = shards.entry(extent.source.label()).or_default();
        *count += 1;
        *bytes = bytes.saturating_add(extent.len);
    }
    let several = shards.values().filter(|(count, _)| *count > 1).map(|(_, bytes)| *bytes).max();
    // Where each stands alone no two of them may fit.
    several.or_else(|| shards.values().map(|(_, bytes)| *bytes).min())
}

/// Cuts the tensors into shards, in their order. Tensors that share their bytes stay together, in the place
/// of the first of them. What is larger than a shard becomes one of its own.
fn split(rows: Vec<Row<'_>>, most: u64) -> Vec<Vec<Row<'_>>> {
    let (mut shards, mut current, mut filled) = (Vec::new(), Vec::new(), 0u64);
    for unit in units(rows) {
        let bytes = unit.iter().fold(0u64, |sum, row| sum.saturating_add(row.bytes));
        // Where one is too large, what was being filled is not filled on behind it: that would change the order.
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

/// The tensors, those that are the same bytes of one source together.
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

/// The metadata of the list, as JSON by key.
fn metadata<'a>(
    checkpoint: &'a Checkpoint,
    names: &[String],
    total: u64,
    options: &PlanOptions,
    losses: &mut Vec<Loss>,
) -> BTreeMap<&'a str, String> {
    let mut pairs = BTreeMap::from([(ShardIndex::TOTAL_SIZE, total.to_string())]);
    for (key, value) in checkpoint.metadata.iter().filter(|(key, value)| stands_in_list(key, value)) {
        let json = match value {
            // Every shard says it.
            Value::Text(_) if key == FORMAT => continue,
            Value::Text(text) => json_text(text),
            value => value.to_json().to_string(),
        };
        pairs.insert(key, json);
    }
    let held = |key: &str, value: &Value| key == Metadata::INDEX_KEY || stands_in_list(key, value);
    let index = checkpoint.bridge_index_beside(names, held);
    if let Some(index) = options.own_entry(index, &checkpoint.label, losses) {
        pairs.insert(Metadata::INDEX_KEY, json_text(&index));
    }
    pairs
}

/// True for what the list gives back as it was.
fn stands_in_list(key: &str, value: &Value) -> bool {
    let exact = matches!(value, Value::Text(_) | Value::Bool(_) | Value::U64(_) | Value::Null);
    exact && key != ShardIndex::TOTAL_SIZE && key != Metadata::INDEX_KEY
}

/// The list as `json.dumps(list, indent=2, sort_keys=True)` gives it, with a line end.
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

/// `text` as JSON in ASCII, as Python writes it.
fn json_text(text: &str) -> String {
    let mut json = String::with_capacity(text.len() + 2);
    write_string(&mut json, text);
    json
}
