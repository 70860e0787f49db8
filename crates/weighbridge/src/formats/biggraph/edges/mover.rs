//! Which edges go where: the counting pass, and the edges of a block that go to one bucket.
//!
//! Edges are looked at in blocks. Planning counts how many of each block go to each new bucket; that
//! fixes every length. What a new column holds is made when it is read, from the old columns of the
//! blocks that it draws from. Blocks that were sorted while counting are kept as long as there is
//! room for them ([`KEPT`]), so that graphs of up to ten million edges are read once; of larger
//! ones, a block that is not kept is read again for each bucket that it feeds.

use super::buckets::{Bucket, Side};
use super::integers;
use super::places::{Places, Window};
use crate::engine::default_threads;
use crate::error::{Error, Result};
use crate::source::to_usize;
use crate::tensor::DType;
use std::borrow::Cow;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Edges in a block: a few megabytes of columns.
const BLOCK: u64 = if cfg!(test) { 16 } else { 1 << 18 };
/// Bytes of sorted blocks that are kept between planning and writing.
const KEPT: u64 = 256 << 20;
/// The most edges that are moved. A file that claims more without having the bytes would only waste
/// time.
const MOST_EDGES: u64 = 1 << 36;

/// The edges of a folder on their way into other buckets.
#[derive(Debug)]
pub(crate) struct Mover {
    label: String,
    buckets: Vec<Bucket>,
    places: Places,
    blocks: Vec<Block>,
    targets: Vec<Target>,
    /// Whether the edges of each side have lists of features.
    pub(super) lists: [bool; 2],
    /// The type of the weights, where there are any.
    pub(super) weight: Option<DType>,
}

#[derive(Debug)]
struct Block {
    bucket: usize,
    first: u64,
    count: u64,
    sorted: Option<Sorted>,
}

/// The edges of a block, sorted by where they go.
#[derive(Debug)]
struct Sorted {
    /// Each new bucket that gets some, and where its edges begin.
    starts: Vec<(u32, usize)>,
    /// Where each edge stands in the block; left out where nothing but these columns is moved.
    positions: Vec<u32>,
    ids: [Vec<i64>; 2],
    rel: Vec<i64>,
}

/// What a new bucket is made of.
#[derive(Debug, Default)]
pub(super) struct Target {
    /// In the order of the old buckets, and of the edges in them.
    pub(super) runs: Vec<Run>,
    pub(super) edges: u64,
    pub(super) features: [u64; 2],
}

/// The edges of one block that go to one new bucket.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) block: usize,
    /// Its first edge and feature in the new bucket.
    pub(super) first: u64,
    pub(super) first_feature: [u64; 2],
    pub(super) edges: u64,
    pub(super) features: [u64; 2],
}

/// The edges of a block that go to one new bucket, in their order.
pub(super) struct Selection<'a> {
    pub(super) positions: Cow<'a, [u32]>,
    pub(super) ids: [Cow<'a, [i64]>; 2],
    pub(super) rel: Cow<'a, [i64]>,
}

/// Where each edge of a block goes.
struct Assigned {
    target: Vec<u32>,
    ids: [Vec<i64>; 2],
    rel: Vec<i64>,
}

/// What a block gives to a new bucket.
struct Share {
    target: u32,
    edges: u64,
    features: [u64; 2],
}

impl Mover {
    /// Counts. All edges are read once.
    ///
    /// # Errors
    /// [`crate::Kind::Corrupt`]: `id-out-of-range`, `relation-out-of-range`, `bad-list` and
    /// `no-such-partition` with the bucket and the number of the edge; [`crate::Kind::Mismatch`],
    /// `weights-differ`, where the weights of two buckets are not of one type, or only some have any.
    pub(crate) fn new(label: &str, buckets: Vec<Bucket>, places: Places) -> Result<Self> {
        let mut blocks = Vec::new();
        let mut sum = 0u64;
        for (place, bucket) in buckets.iter().enumerate() {
            let edges = bucket.edges()?;
            sum = sum.saturating_add(edges);
            if sum > MOST_EDGES {
                return Err(Error::limit("too-many-edges", "there are more edges than can be moved")
                    .in_file(label)
                    .expected(format_args!("at most {MOST_EDGES}"))
                    .found(sum));
            }
            blocks.extend((0..edges.div_ceil(BLOCK)).map(|number| {
                let first = number * BLOCK;
                Block { bucket: place, first, count: BLOCK.min(edges - first), sorted: None }
            }));
        }
        let has = |name: &str| buckets.iter().any(|b| b.column(name).is_some());
        let lists = Side::BOTH.map(|side| has(side.offsets()));
        let weight = weight_type(&buckets)?;
        let targets = (0..places.buckets()).map(|_| Target::default()).collect();
        let mut mover = Self { label: label.to_owned(), buckets, places, blocks, targets, lists, weight };
        let room = AtomicU64::new(KEPT);
        let counted = parallel(mover.blocks.len(), |block| mover.count(block, &room))?;
        for (block, (shares, sorted)) in counted.into_iter().enumerate() {
            mover.blocks[block].sorted = sorted;
            for share in shares {
                let target = &mut mover.targets[share.target as usize];
                let (first, first_feature) = (target.edges, target.features);
                let Share { edges, features, .. } = share;
                target.runs.push(Run { block, first, first_feature, edges, features });
                target.edges += edges;
                for side in 0..2 {
                    // Features may be named by several edges; together they may be very many.
                    target.features[side] =
                        first_feature[side].checked_add(features[side]).ok_or_else(|| {
                            Error::corrupt("bad-list", "the lists of features never end").in_file(label)
                        })?;
                }
            }
        }
        Ok(mover)
    }

    pub(crate) fn places(&self) -> &Places {
        &self.places
    }

    pub(super) fn label(&self) -> &str {
        &self.label
    }

    pub(super) fn target(&self, number: usize) -> Result<&Target> {
        self.targets.get(number).ok_or_else(|| Error::usage("no-such-bucket", "there is no such bucket"))
    }

    pub(super) fn bucket_of(&self, block: usize) -> &Bucket {
        &self.buckets[self.blocks[block].bucket]
    }

    /// The number of the first edge of a block in its bucket.
    pub(super) fn first_of(&self, block: usize) -> u64 {
        self.blocks[block].first
    }

    /// What a block gives to each new bucket, and its edges sorted where there is room for them.
    fn count(&self, number: usize, room: &AtomicU64) -> Result<(Vec<Share>, Option<Sorted>)> {
        let assigned = self.assign(number)?;
        let mut counts = vec![0usize; self.targets.len()];
        for &target in &assigned.target {
            counts[target as usize] += 1;
        }
        let mut shares = Vec::new();
        let mut starts = Vec::new();
        let mut start = 0;
        for (target, count) in counts.iter_mut().enumerate().filter(|(_, count)| **count > 0) {
            let target = u32::try_from(target).unwrap_or(u32::MAX);
            shares.push(Share { target, edges: *count as u64, features: [0; 2] });
            starts.push((target, start));
            // From here on: where the next edge for it goes.
            start += std::mem::replace(count, start);
        }
        for side in Side::BOTH.into_iter().filter(|side| self.lists[*side as usize]) {
            for (index, list) in self.lists(number, side)?.into_iter().enumerate() {
                let target = assigned.target[index];
                let place = shares.partition_point(|share| share.target < target);
                // At most 2^18 lists of less than 2^63 features; sums above are refused.
                let sum = &mut shares[place].features[side as usize];
                *sum = sum.saturating_add(list.end - list.start);
            }
        }
        let columns = 3 + u64::from(self.weight.is_some());
        let bytes = assigned.rel.len() as u64 * 8 * columns;
        let claim = |left: u64| left.checked_sub(bytes);
        let keep = self.lists == [false; 2]
            && room.fetch_update(Ordering::Relaxed, Ordering::Relaxed, claim).is_ok();
        let sorted = keep.then(|| assigned.sort(starts, counts, self.weight.is_some()));
        Ok((shares, sorted))
    }

    /// Reads a block and finds where each edge goes.
    fn assign(&self, number: usize) -> Result<Assigned> {
        let block = &self.blocks[number];
        let bucket = &self.buckets[block.bucket];
        let range = block.first..block.first + block.count;
        let column = |name: &str| integers::read(bucket.needed(name)?, range.clone());
        let (mut left, mut right, rel) = (column("lhs")?, column("rhs")?, column("rel")?);
        let windows = self.places.windows(bucket.parts.unwrap_or([0, 0]));
        let right_parts = self.places.parts()[1];
        let mut target = Vec::with_capacity(rel.len());
        for (index, &rel) in rel.iter().enumerate() {
            let edge = || block.first + index as u64;
            let Some(relation) = self.places.relation(rel) else {
                return Err(self
                    .fault(
                        "relation-out-of-range",
                        "an edge is of a relation that there is not",
                        bucket,
                        edge(),
                    )
                    .expected(self.places.expected_relation())
                    .found(rel));
            };
            let Some([from, to]) = &windows[relation] else {
                return Err(self.fault(
                    "no-such-partition",
                    "an edge stands in a bucket whose partitions its types do not have",
                    bucket,
                    edge(),
                ));
            };
            let out_of_range = |side: Side, window: &Window<'_>, id: i64| {
                self.fault("id-out-of-range", "an edge leads to a row that there is not", bucket, edge())
                    .expected(window.expected())
                    .found(format_args!("{} {id}", side.ids()))
            };
            let (from_part, from_id) =
                from.place(left[index]).ok_or_else(|| out_of_range(Side::Left, from, left[index]))?;
            let (to_part, to_id) =
                to.place(right[index]).ok_or_else(|| out_of_range(Side::Right, to, right[index]))?;
            (left[index], right[index]) = (from_id, to_id);
            // There are at most a million buckets.
            target.push(u32::try_from(from_part * right_parts + to_part).unwrap_or(u32::MAX));
        }
        Ok(Assigned { target, ids: [left, right], rel })
    }

    fn fault(&self, code: &'static str, text: &str, bucket: &Bucket, edge: u64) -> Error {
        Error::corrupt(code, format!("{text}: edge {edge} of {bucket}")).in_file(&self.label)
    }

    /// Which features each edge of a block has.
    pub(super) fn lists(&self, number: usize, side: Side) -> Result<Vec<std::ops::Range<u64>>> {
        let block = &self.blocks[number];
        let bucket = &self.buckets[block.bucket];
        let Some(offsets) = bucket.column(side.offsets()) else {
            return Ok(vec![0..0; to_usize(block.count)?]);
        };
        let features = bucket.needed(side.data())?.elements();
        let bounds = integers::read(offsets, block.first..block.first + block.count + 1)?;
        let list = |pair: &[i64]| {
            let (start, end) = (u64::try_from(pair[0]).ok()?, u64::try_from(pair[1]).ok()?);
            (start <= end && end <= features).then_some(start..end)
        };
        let lists = bounds.windows(2).enumerate().map(|(index, pair)| {
            list(pair).ok_or_else(|| {
                let edge = block.first + index as u64;
                self.fault("bad-list", "the list of features of an edge is none", bucket, edge)
                    .expected(format_args!("two offsets from 0 to {features}, in order"))
                    .found(format_args!("{} and {}", pair[0], pair[1]))
            })
        });
        lists.collect()
    }

    /// The edges of a block that go to one new bucket.
    pub(super) fn select(&self, number: usize, target: usize) -> Result<Selection<'_>> {
        let target = u32::try_from(target).unwrap_or(u32::MAX);
        if let Some(sorted) = &self.blocks[number].sorted {
            return Ok(sorted.select(target));
        }
        let assigned = self.assign(number)?;
        let positions: Vec<u32> =
            (0u32..).zip(&assigned.target).filter(|(_, t)| **t == target).map(|p| p.0).collect();
        let pick = |all: &[i64]| Cow::Owned(positions.iter().map(|&p| all[p as usize]).collect());
        let ids = [pick(&assigned.ids[0]), pick(&assigned.ids[1])];
        let rel = pick(&assigned.rel);
        Ok(Selection { positions: positions.into(), ids, rel })
    }
}

impl Assigned {
    /// Brings the edges into the order of their buckets. `next` says where the next edge for each goes.
    fn sort(self, starts: Vec<(u32, usize)>, mut next: Vec<usize>, with_positions: bool) -> Sorted {
        let count = self.target.len();
        let mut positions = vec![0u32; if with_positions { count } else { 0 }];
        let mut ids = [vec![0; count], vec![0; count]];
        let mut rel = vec![0; count];
        for (index, &target) in (0u32..).zip(&self.target) {
            let place = next[target as usize];
            next[target as usize] += 1;
            let from = index as usize;
            ids[0][place] = self.ids[0][from];
            ids[1][place] = self.ids[1][from];
            rel[place] = self.rel[from];
            if with_positions {
                positions[place] = index;
            }
        }
        Sorted { starts, positions, ids, rel }
    }
}

impl Sorted {
    fn select(&self, target: u32) -> Selection<'_> {
        let place = self.starts.partition_point(|(t, _)| *t < target);
        let start = self.starts.get(place).map_or(self.rel.len(), |s| s.1);
        let has = self.starts.get(place).is_some_and(|s| s.0 == target);
        let end = if has { self.starts.get(place + 1).map_or(self.rel.len(), |s| s.1) } else { start };
        Selection {
            positions: self.positions.get(start..end).unwrap_or_default().into(),
            ids: [(&self.ids[0][start..end]).into(), (&self.ids[1][start..end]).into()],
            rel: (&self.rel[start..end]).into(),
        }
    }
}

/// The type of all weights.
fn weight_type(buckets: &[Bucket]) -> Result<Option<DType>> {
    let mut first: Option<(Option<DType>, &Bucket)> = None;
    for bucket in buckets {
        if bucket.edges()? == 0 {
            continue;
        }
        let own = bucket.column("weight").map(|w| w.dtype());
        match first {
            None => first = Some((own, bucket)),
            Some((other, _)) if other == own => {}
            Some((other, one)) => {
                let word = |dtype: Option<DType>| dtype.map_or("none", DType::name);
                return Err(Error::mismatch(
                    "weights-differ",
                    "edges with different weights cannot share a file",
                )
                .expected(format_args!("{} weights, as {one}", word(other)))
                .found(format_args!("{} weights of {bucket}", word(own))));
            }
        }
    }
    match first {
        Some((dtype, _)) => Ok(dtype),
        None => Ok(buckets.iter().find_map(|b| b.column("weight")).map(|w| w.dtype())),
    }
}

/// Does `count` pieces of work on all processors. The results are in order; the first failure wins.
fn parallel<T: Send>(count: usize, work: impl Fn(usize) -> Result<T> + Sync) -> Result<Vec<T>> {
    let next = AtomicUsize::new(0);
    let slots: Vec<Mutex<Option<Result<T>>>> = (0..count).map(|_| Mutex::new(None)).collect();
    let run = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(slot) = slots.get(number) else { break };
            let done = work(number);
            if done.is_err() {
                // The others stop after what they are at.
                next.store(count, Ordering::Relaxed);
            }
            if let Ok(mut slot) = slot.lock() {
                *slot = Some(done);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..default_threads().min(count) {
            scope.spawn(run);
        }
        run();
    });
    let results = slots.into_iter().filter_map(|slot| slot.into_inner().ok().flatten());
    let mut done = Vec::with_capacity(count);
    for result in results {
        done.push(result?);
    }
    Ok(done)
}
