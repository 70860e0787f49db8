//! Third step: edges of numbers become edges of ids, sorted by bucket.

use super::dictionary::Ids;
use super::numbers;
use super::segment::{Edges, Schema, damaged};
use std::sync::Arc;
use weighbridge_core::error::{Error, Result};
use weighbridge_io::source::{Source, SourceRef, check_range, read_vec, to_usize};

/// Ids and partitions of all names.
pub(super) struct Relabeling<'s> {
    pub(super) schema: &'s Schema,
    /// Ids by dictionary.
    pub(super) ids: Vec<Ids<'s>>,
    /// First row of each partition of each dictionary, and the number of rows.
    pub(super) starts: Vec<Vec<u64>>,
    /// Numbers of partitions of left and right sides: the table of buckets.
    pub(super) buckets: [u64; 2],
}

/// Columns of relabeled edges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Column {
    Lhs,
    Rhs,
    Relation,
    Weight,
    /// End of the features of each edge of a side, after a zero.
    Ends(usize),
    /// Features of all edges of a side.
    Features(usize),
}

/// Bytes before the first edges of the buckets: numbers of edges, of skipped edges and of bad lines, and the bytes of a relation and
/// of a row.
const HEAD: u64 = 40;
/// Row of an edge with features instead of an entity: −1 in the file.
const NO_ROW: u32 = u32::MAX;

/// Partition of a name, and its row there.
#[derive(Debug, Clone, Copy)]
struct Place {
    part: u32,
    row: u32,
}

/// Place of a name that is dropped.
const DROPPED: Place = Place { part: u32::MAX, row: 0 };

/// Memory of a worker, used again for each chunk: the system takes its time to clear new memory.
#[derive(Default)]
pub(super) struct Buffers {
    /// Places of the names of the chunk.
    entities: Vec<Place>,
    relations: Vec<Place>,
    /// Numbers of the names of one side of the edges, and their places.
    numbers: Vec<u32>,
    found: Vec<Place>,
    /// Relation of each edge.
    related: Vec<u32>,
    ids: [Vec<u32>; 2],
    bucket_of: Vec<u32>,
    /// Place of each edge among those of the chunk, sorted by bucket.
    places: Vec<usize>,
    file: Vec<u8>,
}

/// Features of the edges of a side.
struct FeatureLists {
    ids: Vec<u32>,
    /// End of the features of each edge.
    ends: Vec<usize>,
}

impl Relabeling<'_> {
    /// Returns the file of the chunk of that number: numbers of edges, of skipped edges and of bad lines, and the bytes of a
    /// relation and of a row; the first edge of each bucket; its first feature on each side with lists; columns; the ends of the lists and the
    /// features.
    pub(super) fn file<'b>(&self, chunk: usize, edges: &Edges, buffers: &'b mut Buffers) -> Result<&'b [u8]> {
        let buckets = to_usize(self.buckets[0] * self.buckets[1])?;
        let Buffers { entities, relations, numbers, found, related, ids, bucket_of, places, file } = buffers;
        self.places(chunk, entities, relations)?;
        if edges.distinct != (entities.len() + relations.len()) as u64 {
            return Err(Error::corrupt(
                "bad-list",
                "the names and the edges of a chunk differ in the unfinished import",
            )
            .hint("import again"));
        }
        // The bucket of each edge; none for one that is skipped.
        bucket_of.clear();
        bucket_of.resize(edges.len, 0);
        edges.relations(related);
        let mut lists: [Option<FeatureLists>; 2] = [None, None];
        for side in 0..2 {
            let step =
                if side == 0 { u32::try_from(self.buckets[1]).map_err(|_| out_of_range())? } else { 1 };
            // In a loop of its own: the processor waits for several at a time.
            found.clear();
            let place = |number: u32| entities.get(number as usize).copied().unwrap_or(DROPPED);
            edges.side(side, numbers);
            found.extend(numbers.iter().copied().map(place));
            ids[side].clear();
            for ((found, relation), bucket) in found.iter().zip(&*related).zip(bucket_of.iter_mut()) {
                let configured = self.schema.configured(*relation);
                let Place { part, row } = match self.schema.is_list(configured, side) {
                    true => Place { part: 0, row: NO_ROW },
                    false => *found,
                };
                ids[side].push(row);
                *bucket = match part {
                    u32::MAX => u32::MAX,
                    _ if *bucket == u32::MAX => u32::MAX,
                    part => *bucket + part * step,
                };
            }
            if self.schema.listed[side] {
                lists[side] = Some(lists_of(edges, side, entities, bucket_of));
            }
        }
        if self.schema.relation_dictionary.is_some() {
            for (number, bucket) in related.iter().zip(bucket_of.iter_mut()) {
                if relations.get(*number as usize).is_none_or(|place| place.part == u32::MAX) {
                    *bucket = u32::MAX;
                }
            }
        }
        let mut starts = vec![0u64; buckets + 1];
        for bucket in bucket_of.iter().filter(|bucket| **bucket != u32::MAX) {
            starts[*bucket as usize + 1] += 1;
        }
        for bucket in 0..buckets {
            starts[bucket + 1] += starts[bucket];
        }
        let kept = to_usize(starts[buckets])?;
        let weights = edges.weights(self.schema);
        let row_width = self.row_width();
        let relation_width = numbers::width_of(match self.schema.relation_dictionary {
            None => self.schema.sides.len() as u64,
            Some(dictionary) => self.ids[dictionary].len(),
        });
        let each = 2 * row_width + if weights.is_empty() { 0 } else { 4 };
        let sections = 1 + lists.iter().flatten().count();
        let head = to_usize(HEAD)? + starts.len() * 8 * sections;
        file.clear();
        file.resize(head + kept * (each + relation_width), 0);
        file[..8].copy_from_slice(&(kept as u64).to_le_bytes());
        file[8..16].copy_from_slice(&((edges.len - kept) as u64).to_le_bytes());
        file[16..24].copy_from_slice(&edges.bad.to_le_bytes());
        file[24..32].copy_from_slice(&(relation_width as u64).to_le_bytes());
        file[32..40].copy_from_slice(&(row_width as u64).to_le_bytes());
        for (start, bytes) in starts.iter().zip(file[40..head].chunks_exact_mut(8)) {
            bytes.copy_from_slice(&start.to_le_bytes());
        }
        let mut next: Vec<usize> = starts.iter().map(|start| to_usize(*start)).collect::<Result<_>>()?;
        places.clear();
        places.extend(bucket_of.iter().map(|bucket| match bucket {
            &u32::MAX => usize::MAX,
            bucket => {
                let place = &mut next[*bucket as usize];
                *place += 1;
                *place - 1
            }
        }));
        let (columns, last) = file[head..].split_at_mut(kept * each);
        let (rows, weight_column) = columns.split_at_mut(kept * 2 * row_width);
        for (values, column) in ids.iter().zip(rows.chunks_exact_mut((kept * row_width).max(1))) {
            numbers::put(column, row_width, places.iter().copied().zip(values.iter().copied()));
        }
        let values = weights.iter().map(|weight| u32::from_le_bytes(*weight));
        numbers::put(weight_column, 4, places.iter().copied().zip(values));
        let relation = |number: u32| match self.schema.relation_dictionary {
            Some(_) => relations.get(number as usize).map_or(0, |place| place.row),
            None => number,
        };
        let all = related.iter().copied().map(relation);
        numbers::put(last, relation_width, places.iter().copied().zip(all));
        if sections > 1 {
            let mut sorted: Vec<usize> = vec![0; kept];
            for (edge, place) in places.iter().enumerate().filter(|(_, place)| **place != usize::MAX) {
                sorted[*place] = edge;
            }
            for (section, list) in lists.iter().flatten().enumerate() {
                let at = to_usize(HEAD)? + starts.len() * 8 * (section + 1);
                list.append(&sorted, &starts, at, file)?;
            }
        }
        Ok(file)
    }

    /// Bytes of a row: those of the largest partition, or of [`NO_ROW`].
    fn row_width(&self) -> usize {
        if self.schema.listed.contains(&true) {
            return 4;
        }
        let counts = self.starts.iter().flat_map(|starts| starts.windows(2).map(|pair| pair[1] - pair[0]));
        numbers::width_of(counts.max().unwrap_or(0))
    }

    /// Finds the places of all names of a chunk: entities by their numbers, and dynamic relations by theirs.
    fn places(&self, chunk: usize, entities: &mut Vec<Place>, relations: &mut Vec<Place>) -> Result<()> {
        entities.clear();
        relations.clear();
        for (dictionary, ids) in self.ids.iter().enumerate() {
            let is_relation = Some(dictionary) == self.schema.relation_dictionary;
            let (rows, starts) = (ids.len(), &self.starts[dictionary]);
            let parts = starts.len() as u64 - 1;
            let into = if is_relation { &mut *relations } else { &mut *entities };
            // Ids of the partition of the name before: mostly also of the next, and a division takes long.
            let (mut near, mut near_part) = (0..0, 0);
            ids.of_chunk(chunk, |id| {
                let Some(id) = id else {
                    into.push(DROPPED);
                    return Ok(());
                };
                if !near.contains(&id) {
                    near_part = part_of(id, rows, parts);
                    let part = to_usize(near_part)?;
                    let Some(&[start, end]) = starts.get(part..part + 2) else { return Err(out_of_range()) };
                    near = start..end;
                }
                into.push(place_of(near_part, id - near.start)?);
                Ok(())
            })?;
        }
        Ok(())
    }
}

/// Finds the features of a side, without those that are dropped. An edge whose features are all dropped has no bucket.
fn lists_of(edges: &Edges, side: usize, entities: &[Place], bucket_of: &mut [u32]) -> FeatureLists {
    let (counts, mut numbers) = edges.lists(side);
    let mut lists = FeatureLists { ids: Vec::new(), ends: Vec::with_capacity(edges.len) };
    for (count, bucket) in counts.zip(bucket_of) {
        let before = lists.ids.len();
        let places = numbers.by_ref().take(count as usize).filter_map(|number| entities.get(number as usize));
        lists.ids.extend(places.filter(|place| place.part != u32::MAX).map(|place| place.row));
        if count > 0 && lists.ids.len() == before {
            *bucket = u32::MAX;
        }
        lists.ends.push(lists.ids.len());
    }
    lists
}

/// Partition of an id, where `rows` names are in `parts` partitions.
fn part_of(id: u64, rows: u64, parts: u64) -> u64 {
    match id.checked_mul(parts) {
        _ if parts == 1 => 0,
        Some(product) => product / rows,
        None => u64::try_from(u128::from(id) * u128::from(parts) / u128::from(rows)).unwrap_or(0),
    }
}

fn place_of(part: u64, row: u64) -> Result<Place> {
    match (u32::try_from(part), u32::try_from(row)) {
        (Ok(part), Ok(row)) if row != NO_ROW && part != u32::MAX => Ok(Place { part, row }),
        _ => Err(out_of_range()),
    }
}

impl FeatureLists {
    /// Features of an edge.
    fn of(&self, edge: usize) -> &[u32] {
        let start = if edge == 0 { 0 } else { self.ends[edge - 1] };
        &self.ids[start..self.ends[edge]]
    }

    /// Appends the ends of the lists of the edges `sorted` by bucket, counted from the beginning of their bucket, and their
    /// features. Writes the first feature of each bucket at `at`.
    fn append(&self, sorted: &[usize], starts: &[u64], at: usize, file: &mut Vec<u8>) -> Result<()> {
        let mut all: Vec<u8> = Vec::with_capacity(self.ids.len() * 4);
        let mut put =
            |bucket: usize, first: u64| file[at + bucket * 8..][..8].copy_from_slice(&first.to_le_bytes());
        let mut ends: Vec<u8> = Vec::with_capacity(sorted.len() * 4);
        for bucket in 0..starts.len() - 1 {
            let first = all.len() / 4;
            put(bucket, first as u64);
            for edge in &sorted[to_usize(starts[bucket])?..to_usize(starts[bucket + 1])?] {
                self.of(*edge).iter().for_each(|id| all.extend_from_slice(&id.to_le_bytes()));
                let end = u32::try_from(all.len() / 4 - first).map_err(|_| out_of_range())?;
                ends.extend_from_slice(&end.to_le_bytes());
            }
        }
        put(starts.len() - 1, (all.len() / 4) as u64);
        file.extend_from_slice(&ends);
        file.extend_from_slice(&all);
        Ok(())
    }
}

fn out_of_range() -> Error {
    Error::limit("too-many-entities", "a partition has 2^32 entities or more, or there are as many relations")
        .hint("use more partitions")
}

/// Relabeled edges of a chunk.
#[derive(Debug)]
pub(super) struct Relabeled {
    source: SourceRef,
    /// First edge of each bucket, and the number of edges.
    starts: Vec<u32>,
    /// Sides with lists of features.
    lists: [Option<Listed>; 2],
    /// Offset of the columns, and the bytes of a row.
    head: u64,
    row_width: u64,
    /// Offset of the relations, the last column, and the bytes of one.
    relations: u64,
    relation_width: u64,
    pub(super) skipped: u64,
    pub(super) bad: u64,
}

/// Lists of a side in the file of a chunk.
#[derive(Debug)]
struct Listed {
    /// Offset of the ends.
    ends: u64,
    /// Offset of the features.
    features: u64,
    /// First feature of each bucket, and the number of features.
    starts: Vec<u32>,
}

impl Relabeled {
    pub(super) fn open(source: SourceRef, buckets: usize, schema: &Schema) -> Result<Self> {
        let sections = 1 + schema.listed.iter().filter(|listed| **listed).count();
        let head = HEAD + (buckets as u64 + 1) * 8 * sections as u64;
        let bytes = read_vec(&*source, 0, head)?;
        let words: Vec<u64> = bytes.as_chunks().0.iter().map(|b| u64::from_le_bytes(*b)).collect();
        let [_, skipped, bad, relation_width @ 1..=4, row_width @ 1..=4, ..] = words[..] else {
            return Err(damaged(&*source));
        };
        let mut sections = words[5..].chunks_exact(buckets + 1).map(|starts| {
            let starts = starts.iter().map(|start| u32::try_from(*start).map_err(|_| damaged(&*source)));
            starts
                .collect::<Result<Vec<u32>>>()
                .and_then(|starts| if starts.is_sorted() { Ok(starts) } else { Err(damaged(&*source)) })
        });
        let mut next = || sections.next().unwrap_or_else(|| Err(damaged(&*source)));
        let starts = next()?;
        let edges = starts.last().copied().map_or(0, u64::from);
        let relations = head + edges * (2 * row_width + if schema.weighted { 4 } else { 0 });
        let mut at = relations + edges * relation_width;
        let mut lists = [None, None];
        for (list, _) in lists.iter_mut().zip(schema.listed).filter(|(_, listed)| *listed) {
            let starts = next()?;
            let (ends, features) = (at, at + edges * 4);
            at = features + starts.last().copied().map_or(0, u64::from) * 4;
            *list = Some(Listed { ends, features, starts });
        }
        drop(sections);
        Ok(Self { source, starts, lists, head, row_width, relations, relation_width, skipped, bad })
    }

    /// Number of edges.
    pub(super) fn len(&self) -> u64 {
        self.starts.last().copied().map_or(0, u64::from)
    }

    /// Number of elements of a column in a bucket.
    fn in_bucket(&self, column: Column, bucket: usize) -> u64 {
        let starts = match column {
            Column::Features(side) => self.lists[side].as_ref().map_or(&[][..], |list| &list.starts),
            _ => &self.starts,
        };
        starts.get(bucket..bucket + 2).map_or(0, |pair| u64::from(pair[1] - pair[0]))
    }

    /// Offset of an element of a column.
    fn offset(&self, column: Column, bucket: usize, element: u64) -> u64 {
        let edge = u64::from(self.starts[bucket]) + element;
        match column {
            Column::Lhs => self.head + edge * self.row_width,
            Column::Rhs => self.head + (self.len() + edge) * self.row_width,
            Column::Weight => self.head + 2 * self.len() * self.row_width + edge * 4,
            Column::Relation => self.relations + edge * self.relation_width,
            Column::Ends(side) => self.lists[side].as_ref().map_or(0, |list| list.ends + edge * 4),
            Column::Features(side) => self.lists[side]
                .as_ref()
                .map_or(0, |list| list.features + (u64::from(list.starts[bucket]) + element) * 4),
        }
    }
}

/// Column of a bucket: the elements of all chunks in order, as 64-bit integers, or 32-bit floats for weights.
#[derive(Debug)]
pub(super) struct BucketColumn {
    chunks: Arc<Vec<Relabeled>>,
    /// First element of each chunk in the bucket, and their number; the same for all columns with one element an edge.
    starts: Arc<Vec<u64>>,
    /// First feature of each chunk in the bucket, for a column of ends.
    features: Arc<Vec<u64>>,
    bucket: usize,
    column: Column,
    label: String,
}

/// Returns the first element of each chunk in a column of a bucket, and their number.
pub(super) fn starts_in(chunks: &[Relabeled], column: Column, bucket: usize) -> Vec<u64> {
    let mut starts = vec![0];
    let mut sum = 0;
    for chunk in chunks {
        sum += chunk.in_bucket(column, bucket);
        starts.push(sum);
    }
    starts
}

impl BucketColumn {
    pub(super) fn new(
        chunks: &Arc<Vec<Relabeled>>,
        starts: &Arc<Vec<u64>>,
        bucket: usize,
        column: Column,
        label: String,
    ) -> Self {
        let features = match column {
            Column::Ends(side) => starts_in(chunks, Column::Features(side), bucket),
            _ => Vec::new(),
        };
        let features = Arc::new(features);
        Self { chunks: chunks.clone(), starts: starts.clone(), features, bucket, column, label }
    }

    /// Number of elements before those of the edges: the ends are preceded by a zero, and so are the offsets of all lists.
    fn before(&self) -> u64 {
        u64::from(matches!(self.column, Column::Ends(_)))
    }

    fn width(&self) -> u64 {
        if self.column == Column::Weight { 4 } else { 8 }
    }

    /// Reads whole elements.
    fn elements(&self, mut from: u64, mut buffer: &mut [u8]) -> Result<()> {
        let width = to_usize(self.width())?;
        if self.before() > 0 && from == 0 && !buffer.is_empty() {
            let (zero, rest) = buffer.split_at_mut(width);
            zero.fill(0);
            buffer = rest;
        } else {
            from -= self.before();
        }
        let mut chunk = self.starts.partition_point(|start| *start <= from).saturating_sub(1);
        while !buffer.is_empty() {
            let (Some(own), Some([start, end])) = (self.chunks.get(chunk), self.starts.get(chunk..chunk + 2))
            else {
                return Err(damaged(self));
            };
            let count = (end - from).min((buffer.len() / width) as u64);
            let offset = own.offset(self.column, self.bucket, from - start);
            let stored = match self.column {
                Column::Lhs | Column::Rhs => own.row_width,
                Column::Relation => own.relation_width,
                _ => 4,
            };
            let bytes = read_vec(&*own.source, offset, count * stored)?;
            let (now, rest) = buffer.split_at_mut(to_usize(count)? * width);
            let base = self.features.get(chunk).copied().unwrap_or(0);
            let wide = now.as_chunks_mut::<8>().0.iter_mut();
            match stored {
                _ if width == 4 => now.copy_from_slice(&bytes),
                1 => wide.zip(&bytes).for_each(|(wide, value)| *wide = u64::from(*value).to_le_bytes()),
                2 => wide
                    .zip(bytes.as_chunks().0)
                    .for_each(|(wide, value)| *wide = u64::from(u16::from_le_bytes(*value)).to_le_bytes()),
                3 => wide.zip(bytes.as_chunks().0).for_each(|(wide, [a, b, c])| {
                    *wide = u64::from_le_bytes([*a, *b, *c, 0, 0, 0, 0, 0]).to_le_bytes();
                }),
                _ => wide.zip(bytes.as_chunks().0).for_each(|(wide, value)| {
                    let value = match u32::from_le_bytes(*value) {
                        NO_ROW => u64::MAX,
                        value => base + u64::from(value),
                    };
                    *wide = value.to_le_bytes();
                }),
            }
            buffer = rest;
            from += count;
            chunk += 1;
        }
        Ok(())
    }
}

impl Source for BucketColumn {
    fn len(&self) -> u64 {
        (self.starts.last().copied().unwrap_or(0) + self.before()) * self.width()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let len = buffer.len() as u64;
        check_range(self, offset, len)?;
        let width = self.width();
        if offset.is_multiple_of(width) && len.is_multiple_of(width) {
            return self.elements(offset / width, buffer);
        }
        let (first, end) = (offset / width, (offset + len).div_ceil(width));
        let mut whole = vec![0; to_usize((end - first) * width)?];
        self.elements(first, &mut whole)?;
        let skip = to_usize(offset - first * width)?;
        buffer.copy_from_slice(&whole[skip..skip + buffer.len()]);
        Ok(())
    }

    fn label(&self) -> &str {
        &self.label
    }
}
