//! Third step: edges of hashes become edges of ids, sorted by bucket.

use super::dictionary::{self, Lookup};
use super::segment::{Edges, Schema, damaged};
use crate::layout::part_start;
use std::sync::Arc;
use weighbridge_core::error::{Error, Result};
use weighbridge_io::source::{Source, SourceRef, check_range, read_vec, to_usize};

/// Ids and partitions of all names.
pub(super) struct Relabeling<'s> {
    pub(super) schema: &'s Schema,
    /// Ids by dictionary.
    pub(super) lookups: Vec<Lookup>,
    /// Number of partitions of each entity type.
    pub(super) parts: Vec<u64>,
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
}

impl Relabeling<'_> {
    /// Returns the file of a chunk: numbers of edges, of skipped edges and of bad lines; the first edge of each bucket; columns.
    pub(super) fn file(&self, edges: &Edges) -> Result<Vec<u8>> {
        let buckets = to_usize(self.buckets[0] * self.buckets[1])?;
        let mut ids: [Vec<u32>; 2] = [Vec::with_capacity(edges.len), Vec::with_capacity(edges.len)];
        // The bucket of each edge; none for one that is skipped.
        let mut bucket_of: Vec<u32> = vec![0; edges.len];
        let is_dynamic = self.schema.relation_dictionary.is_some();
        let mut keys = Vec::with_capacity(edges.len);
        let mut found = Vec::with_capacity(edges.len);
        for side in 0..2 {
            let step = if side == 0 { self.buckets[1] } else { 1 };
            keys.clear();
            for (hash, relation) in edges.side(side).zip(edges.relations()) {
                let relation = if is_dynamic { 0 } else { to_usize(relation)? };
                let sides = self.schema.sides.get(relation).ok_or_else(out_of_range)?;
                keys.push((sides[side], hash));
            }
            found.clear();
            dictionary::ids(&self.lookups, self.schema, &keys, &mut found);
            for ((id, (dictionary, _)), bucket) in found.iter().zip(&keys).zip(&mut bucket_of) {
                let (part, row) = match id {
                    Some(id) => self.place(*dictionary, *id),
                    None => (u64::MAX, 0),
                };
                ids[side].push(u32::try_from(row).map_err(|_| out_of_range())?);
                *bucket = match part {
                    u64::MAX => u32::MAX,
                    _ if *bucket == u32::MAX => u32::MAX,
                    part => *bucket + u32::try_from(part * step).map_err(|_| out_of_range())?,
                };
            }
        }
        found.clear();
        match self.schema.relation_dictionary {
            None => found.extend(edges.relations().map(Some)),
            Some(dictionary) => {
                keys.clear();
                keys.extend(edges.relations().map(|hash| (dictionary, hash)));
                dictionary::ids(&self.lookups, self.schema, &keys, &mut found);
            }
        }
        let mut relations: Vec<u32> = Vec::with_capacity(edges.len);
        for (id, bucket) in found.iter().zip(&mut bucket_of) {
            if id.is_none() {
                *bucket = u32::MAX;
            }
            relations.push(u32::try_from(id.unwrap_or(0)).map_err(|_| out_of_range())?);
        }
        let mut starts = vec![0u64; buckets + 1];
        for bucket in bucket_of.iter().filter(|bucket| **bucket != u32::MAX) {
            starts[*bucket as usize + 1] += 1;
        }
        for bucket in 0..buckets {
            starts[bucket + 1] += starts[bucket];
        }
        let kept = to_usize(starts[buckets])?;
        let weights = edges.weights();
        let columns = if weights.is_empty() { 3 } else { 4 };
        let head = 24 + starts.len() * 8;
        let mut file = vec![0; head + kept * columns * 4];
        file[..8].copy_from_slice(&(kept as u64).to_le_bytes());
        file[8..16].copy_from_slice(&((edges.len - kept) as u64).to_le_bytes());
        file[16..24].copy_from_slice(&edges.bad.to_le_bytes());
        for (start, bytes) in starts.iter().zip(file[24..head].chunks_exact_mut(8)) {
            bytes.copy_from_slice(&start.to_le_bytes());
        }
        let mut next: Vec<usize> = starts.iter().map(|start| to_usize(*start)).collect::<Result<_>>()?;
        let places: Vec<usize> = bucket_of
            .iter()
            .map(|bucket| match bucket {
                &u32::MAX => usize::MAX,
                bucket => {
                    let place = &mut next[*bucket as usize];
                    *place += 1;
                    *place - 1
                }
            })
            .collect();
        let mut column = file[head..].chunks_exact_mut((kept * 4).max(1));
        for values in [&ids[0], &ids[1], &relations] {
            let Some(bytes) = column.next() else { break };
            for (value, place) in values.iter().zip(&places).filter(|(_, place)| **place != usize::MAX) {
                bytes[place * 4..][..4].copy_from_slice(&value.to_le_bytes());
            }
        }
        if let Some(bytes) = column.next() {
            for (value, place) in weights.iter().zip(&places).filter(|(_, place)| **place != usize::MAX) {
                bytes[place * 4..][..4].copy_from_slice(value);
            }
        }
        Ok(file)
    }

    /// Partition of an id, and its row there.
    fn place(&self, dictionary: usize, id: u64) -> (u64, u64) {
        let parts = self.parts[dictionary];
        if parts == 1 {
            return (0, id);
        }
        let rows = self.lookups[dictionary].len;
        let part = match id.checked_mul(parts) {
            Some(product) => product / rows,
            None => u64::try_from(u128::from(id) * u128::from(parts) / u128::from(rows)).unwrap_or(0),
        };
        (part, id - part_start(part, rows, parts))
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
    pub(super) skipped: u64,
    pub(super) bad: u64,
}

impl Relabeled {
    pub(super) fn open(source: SourceRef, buckets: usize) -> Result<Self> {
        let head = read_vec(&*source, 0, 24 + (buckets as u64 + 1) * 8)?;
        let words: Vec<u64> = head.as_chunks().0.iter().map(|b| u64::from_le_bytes(*b)).collect();
        let [_, skipped, bad, ..] = words[..] else { return Err(damaged(&*source)) };
        let starts = words[3..].iter().map(|start| u32::try_from(*start).map_err(|_| damaged(&*source)));
        let starts = starts.collect::<Result<Vec<u32>>>()?;
        if !starts.is_sorted() {
            return Err(damaged(&*source));
        }
        Ok(Self { source, starts, skipped, bad })
    }

    /// Number of edges.
    pub(super) fn len(&self) -> u64 {
        self.starts.last().copied().map_or(0, u64::from)
    }

    /// Number of edges in a bucket.
    fn in_bucket(&self, bucket: usize) -> u64 {
        u64::from(self.starts[bucket + 1] - self.starts[bucket])
    }

    /// Offset of an element of a column.
    fn offset(&self, column: Column, bucket: usize, element: u64) -> u64 {
        let head = 24 + self.starts.len() as u64 * 8;
        head + (column as u64 * self.len() + u64::from(self.starts[bucket]) + element) * 4
    }
}

/// Column of a bucket: the edges of all chunks in order, as 64-bit integers, or 32-bit floats for weights.
#[derive(Debug)]
pub(super) struct BucketColumn {
    chunks: Arc<Vec<Relabeled>>,
    /// First edge of each chunk in the bucket, and their number; the same for all columns of the bucket.
    starts: Arc<Vec<u64>>,
    bucket: usize,
    column: Column,
    label: String,
}

/// Returns the first edge of each chunk in a bucket, and their number.
pub(super) fn starts_in(chunks: &[Relabeled], bucket: usize) -> Vec<u64> {
    let mut starts = vec![0];
    let mut sum = 0;
    for chunk in chunks {
        sum += chunk.in_bucket(bucket);
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
        Self { chunks: chunks.clone(), starts: starts.clone(), bucket, column, label }
    }

    fn width(&self) -> u64 {
        if self.column == Column::Weight { 4 } else { 8 }
    }

    /// Reads whole elements.
    fn elements(&self, mut from: u64, mut buffer: &mut [u8]) -> Result<()> {
        let width = to_usize(self.width())?;
        let mut chunk = self.starts.partition_point(|start| *start <= from).saturating_sub(1);
        while !buffer.is_empty() {
            let (Some(own), Some([start, end])) = (self.chunks.get(chunk), self.starts.get(chunk..chunk + 2))
            else {
                return Err(damaged(self));
            };
            let count = (end - from).min((buffer.len() / width) as u64);
            let bytes =
                read_vec(&*own.source, own.offset(self.column, self.bucket, from - start), count * 4)?;
            let (now, rest) = buffer.split_at_mut(to_usize(count)? * width);
            if width == 4 {
                now.copy_from_slice(&bytes);
            } else {
                for (wide, narrow) in now.as_chunks_mut::<8>().0.iter_mut().zip(bytes.as_chunks::<4>().0) {
                    *wide = u64::from(u32::from_le_bytes(*narrow)).to_le_bytes();
                }
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
        self.starts.last().copied().unwrap_or(0) * self.width()
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
