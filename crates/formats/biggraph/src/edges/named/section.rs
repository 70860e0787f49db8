//! Reading of a bucket's edges by name.

use super::super::buckets::Side;
use super::super::integers;
use super::meaning::{EntityType, Partition};
use super::{EdgeBucket, EdgeRecords, featurised};
use crate::text::read_names;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use weighbridge_core::checkpoint::{Cells, RecordSection, RowNameList};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::plan::Elements;
use weighbridge_core::tensor::{Order, Region};

/// Bytes of a cell without text: a number, or the end of a text.
const CELL: u64 = 20 + size_of::<usize>() as u64;

/// Type and partition.
type Key = (usize, u64);

/// Names of partitions, kept for the next buckets within a budget.
#[derive(Debug)]
pub(super) struct NameCache {
    held: Mutex<HashMap<Key, PartNames>>,
    most: u64,
    limits: Limits,
}

/// Names of a partition.
#[derive(Debug, Clone)]
struct PartNames {
    list: Arc<RowNameList>,
    /// Bytes of the longest name.
    longest: u64,
}

impl NameCache {
    pub(super) fn new(memory: u64, limits: Limits) -> Self {
        Self { held: Mutex::new(HashMap::new()), most: memory, limits }
    }

    /// Names of a partition. If the held names exceed the budget, those not in `needed` are dropped first.
    fn get(&self, key: Key, partition: &Partition, needed: &HashSet<Key>) -> Result<Option<PartNames>> {
        let Some(source) = &partition.names else { return Ok(None) };
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(names) = held.get(&key) {
            return Ok(Some(names.clone()));
        }
        // A file of names is about as long as the names in memory.
        let sum = held.values().fold(source.len(), |sum, names| sum.saturating_add(names.list.bytes()));
        if sum > self.most {
            held.retain(|key, _| needed.contains(key));
        }
        let mut list = RowNameList::new();
        let count = read_names(source, &self.limits, partition.rows, &mut list)?;
        if let Some(rows) = partition.rows.filter(|rows| count < *rows) {
            return Err(Error::mismatch("names-differ", "fewer names than rows")
                .in_file(source.label())
                .expected(format_args!("{rows} names"))
                .found(count));
        }
        let longest = list.iter().map(str::len).max().unwrap_or(0) as u64;
        let names = PartNames { list: Arc::new(list), longest };
        held.insert(key, names.clone());
        Ok(Some(names))
    }
}

/// Rows that the ids of one side refer to.
#[derive(Debug)]
struct End {
    partition: Partition,
    names: Option<PartNames>,
}

impl End {
    /// Number of rows, if known.
    fn rows(&self) -> Option<u64> {
        self.names.as_ref().map(|names| names.list.len() as u64).or(self.partition.rows)
    }
}

/// Opened bucket.
struct Section<'a> {
    edges: &'a EdgeRecords,
    bucket: &'a EdgeBucket,
    /// Rows of each type, for both sides; `None` for a type that is not on this side, or does not have the partition.
    ends: [Vec<Option<End>>; 2],
    row_bytes: u64,
}

/// Opens a bucket.
///
/// # Errors
/// Errors of reading names.
pub(super) fn open(edges: &EdgeRecords, section: usize) -> Result<Box<dyn RecordSection + '_>> {
    let bucket =
        edges.buckets.get(section).ok_or_else(|| Error::usage("no-such-bucket", "no such bucket"))?;
    let mut row_bytes = CELL * 3 + edges.meaning.longest_relation();
    row_bytes += bucket.weight.as_ref().map_or(0, |weight| weight.dtype().size().unwrap_or(1) as u64);
    let types = edges.meaning.types();
    let partitions = Side::BOTH.map(|side| {
        let part = bucket.parts[side as usize];
        let used = edges.meaning.used(side);
        let of = |(kind, used): (&EntityType, bool)| kind.partition(part).filter(|_| used);
        types.iter().zip(used).map(of).collect::<Vec<_>>()
    });
    let all = partitions.iter().flat_map(|side| side.iter().enumerate());
    let needed: HashSet<Key> = all.filter_map(|(kind, p)| Some((kind, p.as_ref()?.part))).collect();
    let mut ends = [Vec::new(), Vec::new()];
    for (ends, partitions) in ends.iter_mut().zip(partitions) {
        let mut longest = 0;
        for (kind, partition) in partitions.into_iter().enumerate() {
            let Some(partition) = partition else {
                ends.push(None);
                continue;
            };
            let names = edges.names.get((kind, partition.part), &partition, &needed)?;
            longest = names.as_ref().map_or(longest, |names| longest.max(names.longest));
            ends.push(Some(End { partition, names }));
        }
        row_bytes += longest;
    }
    Ok(Box::new(Section { edges, bucket, ends, row_bytes }))
}

impl RecordSection for Section<'_> {
    fn row_bytes(&self) -> u64 {
        self.row_bytes
    }

    fn read(&self, rows: Range<u64>, elements: &mut dyn Elements, into: &mut [Cells]) -> Result<()> {
        let [lhs, rel, rhs, weight @ ..] = into else { return Ok(()) };
        let relations = integers::read(&self.bucket.rel, rows.clone())?;
        let mut pairs = Vec::with_capacity(relations.len());
        for (edge, number) in rows.clone().zip(&relations) {
            let meaning = &self.edges.meaning;
            let pair = meaning.pair(*number).ok_or_else(|| {
                self.fault("relation-out-of-range", "an edge has an undefined relation", edge)
                    .expected(meaning.expected_relation())
                    .found(number)
            })?;
            pairs.push(pair);
            match rel {
                // Each relation has a name if any has.
                Cells::Text(list) => list.push(meaning.relation_name(*number).unwrap_or_default()),
                Cells::Numbers(bytes) => bytes.extend_from_slice(&number.to_le_bytes()),
            }
        }
        self.side(Side::Left, &rows, &pairs, lhs)?;
        self.side(Side::Right, &rows, &pairs, rhs)?;
        if let ([Cells::Numbers(bytes)], Some(entry)) = (weight, &self.bucket.weight) {
            let region = Region { start: vec![rows.start], shape: vec![rows.end - rows.start] };
            let mut own = Vec::new();
            elements.read(entry, &region, Order::Row, &mut own)?;
            bytes.append(&mut own);
        }
        Ok(())
    }
}

impl Section<'_> {
    /// Appends the names of one side of the edges `rows`.
    fn side(&self, side: Side, rows: &Range<u64>, pairs: &[[usize; 2]], cells: &mut Cells) -> Result<()> {
        let ids = integers::read(&self.bucket.ids[side as usize], rows.clone())?;
        let ends = &self.ends[side as usize];
        for ((edge, id), pair) in rows.clone().zip(ids).zip(pairs) {
            let kind = pair[side as usize];
            let end = ends[kind].as_ref().ok_or_else(|| {
                let text = "the entity types of an edge do not have the partitions of its bucket";
                self.fault("no-such-partition", text, edge)
            })?;
            if self.edges.meaning.types()[kind].featurised {
                return Err(featurised().in_file(&self.edges.label).found(format_args!("edge {edge}")));
            }
            let row = u64::try_from(id).ok().filter(|id| end.rows().is_none_or(|rows| *id < rows));
            let row = row.ok_or_else(|| self.out_of_range(side, edge, id, kind, end))?;
            match (&mut *cells, &end.names) {
                (Cells::Text(list), Some(names)) => {
                    let name = usize::try_from(row).ok().and_then(|row| names.list.get(row));
                    list.push(name.unwrap_or_default());
                }
                (Cells::Text(list), None) => list.push(&(end.partition.start + row).to_string()),
                (Cells::Numbers(bytes), _) => {
                    bytes.extend_from_slice(&(end.partition.start + row).to_le_bytes())
                }
            }
        }
        Ok(())
    }

    fn out_of_range(&self, side: Side, edge: u64, id: i64, kind: usize, end: &End) -> Error {
        let name = self.edges.meaning.types()[kind].shown();
        let expected = match end.rows() {
            Some(rows) => {
                format!("0 to {} (this partition of type {name} has {rows} rows)", rows.saturating_sub(1))
            }
            None => "0 or more".to_owned(),
        };
        self.fault("id-out-of-range", "an edge refers to a row beyond its table", edge)
            .expected(expected)
            .found(format_args!("{} {id}", side.ids()))
    }

    fn fault(&self, code: &'static str, text: &str, edge: u64) -> Error {
        self.edges.fault(code, text, self.bucket, edge)
    }
}
