//! Reader of checkpoints: an index with its data files.

use crate::bundle::{Entry, Header, OBJECT_GRAPH};
use crate::objects::{self, CHECKPOINT_KEY, Objects};
use crate::ordered::{Range, slice_key};
use crate::table::{Table, unmask};
use crate::text::{self, Place};
use crate::{CHECKPOINT, dtype, names};
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use weighbridge_core::budget::Budget;
use weighbridge_core::checkpoint::{Checkpoint, Extent, Metadata, Name, Note, Role, TensorEntry, Value};
use weighbridge_core::checksum::{Check, ChecksumKind};
use weighbridge_core::error::{Error, Kind, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::tensor::{DType, Encoding, Region, Shape};
use weighbridge_core::text::{counted, path_text};
use weighbridge_format::OpenOptions;
use weighbridge_format::overlap::OverlapBudget;
use weighbridge_io::source::{FolderRef, SourceRef, read_vec};

/// Ending of the name of an index.
pub(crate) const INDEX: &str = ".index";
/// Attribute with the name of a dtype whose elements are listed as other integers, such as `qint8`.
pub(crate) const TF_DTYPE: &str = "tensorflow_dtype";
/// Memory of an entry of the index, besides its key.
const ENTRY: u64 = 300;
/// Maximum number of slices of a variable: pairs of them are compared.
const MAX_SLICES: usize = 4096;

/// Folder of an index, and the name of the index in it.
pub(crate) type Around<'a> = Option<(&'a FolderRef, &'a Path)>;

/// Entries of an index.
pub(crate) struct Index {
    /// Header.
    pub(crate) header: Header,
    /// Entries in the order of their keys.
    pub(crate) entries: Vec<Entry>,
}

impl Index {
    /// Reads an index. `salvage` skips damaged parts.
    ///
    /// # Errors
    /// [`Kind::Corrupt`], [`Kind::Unsupported`] or [`Kind::Limit`], with the offset.
    pub(crate) fn read(source: &SourceRef, limits: &Limits, budget: &Budget, salvage: bool) -> Result<Self> {
        let (mut header, mut entries) = (None, Vec::new());
        let mut table = Table::new(source, budget);
        let mut take = |key: &[u8], value: &[u8], at: u64| {
            if key.is_empty() {
                header = Some(Header::parse(value).map_err(|error| error.at(at))?);
                return Ok(());
            }
            Limits::check("bytes in a name", "name_bytes", key.len() as u64, limits.name_bytes)?;
            Limits::check("tensors", "tensors", entries.len() as u64, limits.tensors)?;
            budget.take_memory(ENTRY.saturating_add(2 * (key.len() + value.len()) as u64))?;
            let entry = Entry::parse(key, value);
            entries.push(entry.map_err(|error| error.at(at).on_tensor(names::shown(key)))?);
            Ok(())
        };
        match salvage {
            true => table.salvage(&mut take)?,
            false => table.read(&mut take)?,
        }
        let header = header.ok_or_else(|| {
            Error::corrupt("missing-field", "the index has no header")
                .expected("an entry with an empty key")
                .at(0)
        })?;
        Ok(Self { header, entries })
    }

    /// Returns the entry of that key.
    pub(crate) fn find(&self, key: &[u8]) -> Option<&Entry> {
        let place = self.entries.binary_search_by(|entry| entry.key.as_slice().cmp(key)).ok()?;
        self.entries.get(place)
    }
}

/// Returns the name of a data file.
pub(crate) fn shard_name(prefix: &str, number: u64, count: u64) -> String {
    format!("{prefix}.data-{number:05}-of-{count:05}")
}

/// Returns the name of an index without its ending.
pub(crate) fn prefix_of(name: &Path) -> String {
    let text = name.to_string_lossy();
    text.strip_suffix(INDEX).unwrap_or(&text).to_owned()
}

/// Data files of a checkpoint, opened when an entry needs them.
struct Shards<'a> {
    around: Around<'a>,
    index: &'a SourceRef,
    count: u64,
    opened: BTreeMap<u64, SourceRef>,
    overlap: OverlapBudget,
}

impl Shards<'_> {
    fn get(&mut self, number: u64) -> Result<SourceRef> {
        if let Some(source) = self.opened.get(&number) {
            return Ok(source.clone());
        }
        if number >= self.count {
            return Err(Error::corrupt(
                "shard-mismatch",
                "the number of the data file is not one of this checkpoint",
            )
            .expected(format_args!("0 to {}", self.count - 1))
            .found(number.cast_signed()));
        }
        let Some((folder, index)) = self.around else {
            return Err(Error::corrupt("shard-missing", "the index was opened without its data files")
                .in_file(self.index.label())
                .hint("open the checkpoint by its path"));
        };
        let name = PathBuf::from(shard_name(&prefix_of(index), number, self.count));
        let source = folder.open(&name)?.ok_or_else(|| {
            Error::corrupt("shard-missing", "a data file of the checkpoint is missing")
                .expected(format_args!("the file {}", path_text(&name)))
                .hint("copy all files of the checkpoint to one folder, under their original names")
        })?;
        self.opened.insert(number, source.clone());
        Ok(source)
    }
}

/// Content that is not a tensor of numbers.
#[derive(Default)]
struct Extra {
    objects: Option<Objects>,
    bridge: Option<String>,
}

/// Reads the index of a checkpoint. `salvaged` is the error of opening a damaged one.
///
/// # Errors
/// [`Kind::Corrupt`], [`Kind::Unsupported`] or [`Kind::Limit`], with the place.
pub(crate) fn open(
    source: &SourceRef,
    around: Around<'_>,
    options: &OpenOptions,
    salvaged: Option<&Error>,
) -> Result<Checkpoint> {
    let limits = options.limits.with_budget_of(source);
    let budget = limits.budget_of(source);
    let index = Index::read(source, &limits, &budget, salvaged.is_some())?;
    let mut shards = Shards {
        around,
        index: source,
        count: index.header.shards,
        opened: BTreeMap::new(),
        overlap: OverlapBudget::default(),
    };
    let mut checkpoint = Checkpoint::new("tensorflow", CHECKPOINT, source.label());
    if let Some(error) = salvaged {
        checkpoint.damage_mut(error);
    }
    let mut keys = Vec::new();
    let mut slices: HashSet<Vec<u8>> = HashSet::new();
    let mut extra = Extra::default();
    for entry in index.entries.iter().filter(|entry| entry.key.first() != Some(&0)) {
        let named = |error: Error| error.on_tensor(names::shown(&entry.key));
        let result = if let Some(reason) = dtype::skipped(entry.dtype) {
            special(entry, reason, &mut shards, &mut extra, &mut checkpoint, &budget)
        } else {
            match tensor(entry, &index, &mut shards, &limits, &budget, &mut slices) {
                Ok(tensor) => {
                    keys.push(entry.key.clone());
                    checkpoint.tensors.push(tensor);
                    Ok(())
                }
                Err(error) => Err(error),
            }
        };
        match result.map_err(named) {
            Err(error) if salvaged.is_some() && is_damage(&error) => {
                checkpoint.lose(named_text(&entry.key), &error);
            }
            result => result?,
        }
    }
    std::mem::take(&mut shards.overlap).check("overlap", &limits)?;
    let unused = index
        .entries
        .iter()
        .filter(|entry| entry.key.first() == Some(&0) && !slices.contains(&entry.key))
        .count();
    if unused > 0 && salvaged.is_none() {
        let text = format!("{} of no variable", counted(unused as u64, "slice is", "slices are"));
        checkpoint.notes.push(Note::omission("not-listed", text));
    }
    finish(&mut checkpoint, &keys, extra);
    checkpoint.files.push(source.clone());
    checkpoint.files.extend(shards.opened.into_values());
    Ok(checkpoint)
}

/// Returns true for an error about the content of a file.
pub(crate) fn is_damage(error: &Error) -> bool {
    matches!(error.kind(), Kind::Corrupt | Kind::Unsupported | Kind::Mismatch)
}

/// Returns the display name of a key, not escaped.
fn named_text(key: &[u8]) -> String {
    let named = names::of_key(key);
    match &named.slot {
        Some((_, slot)) => format!("{}/{slot}", named.path.to_text()),
        None => named.path.to_text(),
    }
}

/// Sets roles, names and metadata.
fn finish(checkpoint: &mut Checkpoint, keys: &[Vec<u8>], extra: Extra) {
    slots(&mut checkpoint.tensors, keys);
    match &extra.objects {
        Some(objects) => objects.describe(&mut checkpoint.tensors, keys),
        // The bridge index states the roles.
        None if extra.bridge.is_some() => {}
        None => {
            let count = objects::guess(&mut checkpoint.tensors);
            if count > 0 {
                let text = format!(
                    "{} by its name",
                    counted(
                        count as u64,
                        "slot of an optimizer is recognized",
                        "slots of optimizers are recognized, each"
                    )
                );
                checkpoint.notes.push(Note::new("names-of-state", text));
            }
        }
    }
    if let Some(bridge) = extra.bridge {
        let names = bridge_names(keys);
        checkpoint.restore_carried(&names, [(Metadata::INDEX_KEY.to_owned(), Value::Text(bridge))]);
    }
}

/// Returns the names under which the bridge index has the tensors of these keys: the texts of their paths, or the keys if two of
/// them have the same text.
pub(crate) fn bridge_names(keys: &[Vec<u8>]) -> Vec<String> {
    let texts: Vec<String> = keys.iter().map(|key| names::of_key(key).path.to_text()).collect();
    let distinct: HashSet<&String> = texts.iter().collect();
    match distinct.len() == texts.len() {
        true => texts,
        false => keys.iter().map(|key| Name::new(key).to_text()).collect(),
    }
}

/// Sets the slots of state. With several optimizers, a slot has the path of its own one.
fn slots(tensors: &mut [TensorEntry], keys: &[Vec<u8>]) {
    let all: Vec<names::Named> = keys.iter().map(|key| names::of_key(key)).collect();
    let optimizers: HashSet<&String> = all.iter().filter_map(|named| Some(&named.slot.as_ref()?.0)).collect();
    let is_single = optimizers.len() < 2;
    for ((tensor, key), named) in tensors.iter_mut().zip(keys).zip(&all) {
        if named.is_object {
            let key = Name::new(key).to_text();
            tensor.attributes.insert(CHECKPOINT_KEY.to_owned(), Value::Text(key));
        }
        if let Some((optimizer, slot)) = &named.slot {
            let slot = if is_single { slot.clone() } else { format!("{optimizer}/{slot}") };
            tensor.role = Role::OptimizerState { slot: Name::from(slot.as_str()) };
        }
    }
}

/// Returns the place of a tensor of text.
///
/// # Errors
/// [`Kind::Corrupt`] for an impossible shape.
pub(crate) fn text_place(entry: &Entry) -> Result<Place> {
    let count = shape(entry)?.elements().unwrap_or(u64::MAX);
    Ok(Place { offset: entry.offset, len: entry.len, count, crc: entry.crc })
}

/// Reads the graph of objects and the bridge index, and notes other tensors without numbers.
fn special(
    entry: &Entry,
    reason: String,
    shards: &mut Shards<'_>,
    extra: &mut Extra,
    checkpoint: &mut Checkpoint,
    budget: &Budget,
) -> Result<()> {
    let is_graph = entry.key == OBJECT_GRAPH;
    let is_bridge = entry.key == Metadata::INDEX_KEY.as_bytes();
    if !(entry.is_text() && (is_graph || is_bridge)) {
        // Its bytes exist, at least.
        if entry.len > 0 {
            weighbridge_io::source::check_range(&*shards.get(entry.shard)?, entry.offset, entry.len)?;
        }
        checkpoint.notes.push(Note::skipped_tensor(named_text(&entry.key), reason));
        return Ok(());
    }
    let source = shards.get(entry.shard)?;
    budget.take_work(2 * entry.len)?;
    budget.take_memory(entry.len)?;
    let begin = text::verify(&source, text_place(entry)?)?;
    let bytes = read_vec(&*source, begin, entry.offset + entry.len - begin)?;
    if is_graph {
        extra.objects = Some(Objects::parse(&bytes, budget)?);
    } else {
        extra.bridge = Some(String::from_utf8_lossy(&bytes).into_owned());
    }
    Ok(())
}

/// Returns the shape of an entry.
fn shape(entry: &Entry) -> Result<Shape> {
    let dims: Option<Vec<u64>> = entry.dims.iter().map(|&size| u64::try_from(size).ok()).collect();
    dims.map(Shape::new).ok_or_else(|| {
        Error::corrupt("negative-dimension", "a dimension is negative")
            .expected("0 or more")
            .found(format_args!("{:?}", entry.dims))
    })
}

/// Creates the tensor of an entry.
fn tensor(
    entry: &Entry,
    index: &Index,
    shards: &mut Shards<'_>,
    limits: &Limits,
    budget: &Budget,
    used: &mut HashSet<Vec<u8>>,
) -> Result<TensorEntry> {
    Limits::check("dimensions", "dimensions", entry.dims.len() as u64, limits.dimensions)?;
    let named = names::of_key(&entry.key);
    Limits::check("parts in a name", "path_parts", named.path.parts().len() as u64, limits.path_parts)?;
    let dtype = dtype::of_number(entry.dtype)
        .ok_or_else(|| Error::unsupported("dtype", "unknown dtype").found(entry.dtype.cast_signed()))?;
    let shape = shape(entry)?;
    let mut tensor = if entry.slices.is_empty() {
        dense(entry, &named.path, dtype, shape, shards)?
    } else {
        joined(entry, &named.path, dtype, shape, index, shards, budget, used)?
    };
    if let Some(name) = dtype::other_name(entry.dtype) {
        tensor.attributes.insert(TF_DTYPE.to_owned(), Value::Text(name.to_owned()));
    }
    Ok(tensor)
}

fn dense(
    entry: &Entry,
    path: &weighbridge_core::checkpoint::TensorPath,
    dtype: DType,
    shape: Shape,
    shards: &mut Shards<'_>,
) -> Result<TensorEntry> {
    let source = shards.get(entry.shard)?;
    if let Some(expected) = shape.bytes(dtype).filter(|&expected| expected != entry.len) {
        return Err(Error::corrupt(
            "length-mismatch",
            "the length of the elements does not match dtype and shape",
        )
        .in_file(source.label())
        .at(entry.offset)
        .expected(format_args!("{expected} bytes for {dtype} {shape}"))
        .found(format_args!("{} bytes", entry.len.cast_signed())));
    }
    let mut tensor = TensorEntry::dense(path.clone(), dtype, shape, &source, entry.offset, Encoding::ROW)?;
    let number = usize::try_from(entry.shard).unwrap_or(usize::MAX);
    shards.overlap.add(number, (entry.offset, entry.offset.saturating_add(entry.len)), entry.len);
    for extent in &mut tensor.extents {
        let kind = ChecksumKind::Crc32c;
        extent.check = Some(Check::new(&source, entry.offset, entry.len, kind, unmask(entry.crc)));
    }
    Ok(tensor)
}

/// Joins the slices of a partitioned variable.
#[allow(clippy::too_many_arguments)] // Each is a part of the same reader.
fn joined(
    entry: &Entry,
    path: &weighbridge_core::checkpoint::TensorPath,
    dtype: DType,
    shape: Shape,
    index: &Index,
    shards: &mut Shards<'_>,
    budget: &Budget,
    used: &mut HashSet<Vec<u8>>,
) -> Result<TensorEntry> {
    Limits::check("slices of a variable", "slices", entry.slices.len() as u64, MAX_SLICES as u64)?;
    let whole = shape.bytes(dtype).ok_or_else(|| {
        Error::corrupt("shape-overflow", "the tensor exceeds 2^64 bytes")
            .found(format_args!("{dtype} {shape}"))
    })?;
    let mut extents: Vec<Extent> = Vec::with_capacity(entry.slices.len());
    let mut total = 0u64;
    for ranges in &entry.slices {
        let region = region(ranges, &shape)?;
        let key = slice_key(&entry.key, ranges);
        let slice = index.find(&key).ok_or_else(|| {
            Error::corrupt("partition-missing", "a slice of the variable has no entry")
                .expected(format_args!("the slice from {:?} of {:?}", region.start, region.shape))
        })?;
        if slice.dtype != entry.dtype
            || shape_of(slice) != Some(region.shape.clone())
            || !slice.slices.is_empty()
        {
            return Err(Error::corrupt("shard-mismatch", "a slice does not match its variable")
                .expected(format_args!("dtype {} and shape {:?}", entry.dtype, region.shape))
                .found(format_args!("dtype {} and shape {:?}", slice.dtype, slice.dims)));
        }
        let part = dense(slice, path, dtype, region.shape(), shards)?;
        total = total.saturating_add(slice.len);
        for mut extent in part.extents {
            extent.part = region.clone().unless_whole(&shape);
            extents.push(extent);
        }
        used.insert(key);
    }
    budget.take_work((extents.len() * extents.len()) as u64)?;
    let regions: Vec<Region> = extents.iter().map(|extent| extent.region(&shape).into_owned()).collect();
    let overlaps = regions.iter().enumerate().any(|(place, one)| {
        regions
            .iter()
            .take(place)
            .any(|other| one.intersect(other).is_some_and(|both| both.shape().elements() != Some(0)))
    });
    if overlaps || total != whole {
        let text = if overlaps {
            "two slices of the variable overlap"
        } else {
            "the slices do not cover the variable"
        };
        return Err(Error::corrupt("overlap", text)
            .expected(format_args!("{whole} bytes for {dtype} {shape}"))
            .found(format_args!("{total} bytes in {} slices", regions.len())));
    }
    extents.sort_by(|a, b| a.region(&shape).start.cmp(&b.region(&shape).start));
    let first = extents
        .first()
        .map(|extent| extent.source.clone())
        .ok_or_else(|| Error::corrupt("partition-missing", "the variable has no slices"))?;
    // The extents replace that of an empty tensor.
    let mut tensor = TensorEntry::dense(path.clone(), dtype, Shape::from([0]), &first, 0, Encoding::ROW)?;
    tensor.shape = shape;
    tensor.extents = extents.into_iter().collect();
    Ok(tensor)
}

fn shape_of(entry: &Entry) -> Option<Vec<u64>> {
    entry.dims.iter().map(|&size| u64::try_from(size).ok()).collect()
}

/// Returns the box of a slice.
fn region(ranges: &[Range], shape: &Shape) -> Result<Region> {
    let bad = || {
        Error::corrupt("bad-slice", "a slice does not fit its variable")
            .expected(format_args!("ranges within {shape}"))
            .found(format_args!("{ranges:?}"))
    };
    if ranges.len() != shape.rank() {
        return Err(bad());
    }
    let mut region = Region { start: Vec::new(), shape: Vec::new() };
    for (range, &size) in ranges.iter().zip(shape.dims()) {
        let (begin, len) = match *range {
            None => (0, size),
            Some((begin, len)) => {
                (u64::try_from(begin).map_err(|_| bad())?, u64::try_from(len).map_err(|_| bad())?)
            }
        };
        if begin.checked_add(len).is_none_or(|end| end > size) {
            return Err(bad());
        }
        region.start.push(begin);
        region.shape.push(len);
    }
    Ok(region)
}
