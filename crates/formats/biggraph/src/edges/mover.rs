//! Destination of edges: the counting pass, and the selection of a block's edges for one bucket.
//!
//! Edges are processed in blocks. Planning counts the edges of each block for each new bucket, so
//! all lengths are known. The content of a new column is assembled on access, from the old columns of the
//! blocks it uses.
//!
//! Memory is bounded by a budget ([`EdgeBudget`]). If all edges fit into three quarters of it (seven million
//! edges at the default of 256 MiB), the blocks sorted while counting are kept, and every edge is
//! read once. Otherwise all blocks are read again once for each group of new buckets that fit into the store
//! together: with 256 MiB, for about every three million written edges. A single bucket above that size
//! rereads its blocks for each of its columns. Feature lists are always reread, for
//! each bucket and column.

use super::buckets::{Bucket, Side};
use super::integers;
use super::repartitioning::{Repartitioning, Window};
use super::sorted::{Assigned, Groups, Selection, Sorted, Store};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::phrase;
use weighbridge_core::phrase::Opt;
use weighbridge_core::tensor::DType;
use weighbridge_io::engine::{MIN_MEMORY, default_threads};
use weighbridge_io::source::to_usize;

/// Default budget in bytes: that of [`RunOptions`](weighbridge_io::engine::RunOptions).
const DEFAULT_MEMORY: u64 = 256 << 20;
/// Budget in bytes of each counting thread.
const THREAD_MEMORY: u64 = 32 << 20;
/// Maximum bytes per edge of the block that a thread processes.
const WORK_BYTES_PER_EDGE: u64 = 64;
/// Maximum bytes per edge in the store.
const STORED_BYTES_PER_EDGE: u64 = 28;

/// Memory budget of a [`Mover`], divided by use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EdgeBudget {
    /// Number of edges in a block.
    pub(super) block: u64,
    /// Number of counting threads.
    pub(super) threads: usize,
    /// Bytes of edges kept between planning and writing: of all blocks, or of the blocks' shares for groups of new
    /// buckets. Two groups fit: one ends where the next begins.
    pub(super) edges: u64,
    /// Maximum number of runs. Every block may have one for every new bucket.
    pub(super) runs: u64,
}

impl EdgeBudget {
    /// Divides `memory` bytes, or the default.
    pub(crate) fn of(memory: Option<u64>) -> Self {
        let memory = memory.unwrap_or(DEFAULT_MEMORY).max(MIN_MEMORY);
        let threads = to_usize(memory / THREAD_MEMORY).unwrap_or(1).clamp(1, default_threads());
        let run = (size_of::<Run>() + size_of::<Share>()) as u64;
        let budget = Self {
            block: (memory / 8 / threads as u64 / WORK_BYTES_PER_EDGE).clamp(1 << 12, 1 << 18),
            threads,
            edges: memory / 4 * 3,
            runs: memory / 4 / run,
        };
        // Small test graphs have several blocks too, and more than are kept.
        if cfg!(test) { Self { block: 16, edges: 8 << 10, ..budget } } else { budget }
    }
}

/// Maximum number of edges to move. A file that declares more without having the bytes would only waste
/// time.
const MAX_EDGES: u64 = 1 << 36;

/// Edges that move to other buckets.
#[derive(Debug)]
pub(crate) struct Mover {
    label: String,
    buckets: Vec<Bucket>,
    repartitioning: Repartitioning,
    blocks: Vec<Block>,
    targets: Vec<Target>,
    /// True for each side whose edges have feature lists.
    pub(super) lists: [bool; 2],
    /// Dtype of the weights, if any.
    pub(super) weight: Option<DType>,
    groups: Groups,
    /// Store of the groups' shares of blocks that are not kept.
    store: Store,
    /// True where all blocks are kept.
    keep: bool,
    budget: EdgeBudget,
}

#[derive(Debug)]
struct Block {
    bucket: usize,
    first: u64,
    count: u64,
    sorted: Option<Arc<Sorted>>,
}

/// Sources of a new bucket.
#[derive(Debug, Default)]
pub(super) struct Target {
    /// Runs in the order of the old buckets and their edges.
    pub(super) runs: Vec<Run>,
    pub(super) edges: u64,
    pub(super) features: [u64; 2],
}

/// Edges of one block that go to one new bucket.
#[derive(Debug)]
pub(super) struct Run {
    block: u32,
    edges: u32,
    /// Index of its first edge in the new bucket.
    pub(super) first: u64,
    /// For each side with lists, index of its first feature in the new bucket, and number of features.
    features: Option<Box<[[u64; 2]; 2]>>,
}

impl Run {
    pub(super) fn block(&self) -> usize {
        self.block as usize
    }
    pub(super) fn edges(&self) -> u64 {
        u64::from(self.edges)
    }
    /// End index of its edges.
    pub(super) fn end(&self) -> u64 {
        self.first + self.edges()
    }
    /// First feature of a side.
    pub(super) fn first_feature(&self, side: Side) -> u64 {
        self.features.as_ref().map_or(0, |of| of[side as usize][0])
    }
    /// Number of features of a side.
    pub(super) fn features(&self, side: Side) -> u64 {
        self.features.as_ref().map_or(0, |of| of[side as usize][1])
    }
}

/// Shared state of counting.
struct Counting {
    /// Number of runs so far.
    runs: AtomicU64,
    /// Maximum number of runs.
    most_runs: u64,
    /// Pool of zeroed counters, one list per thread with one number per new bucket; every block would otherwise
    /// allocate and clear its own.
    tallies: Mutex<Vec<Vec<usize>>>,
}

impl Counting {
    fn new(budget: EdgeBudget) -> Self {
        let tallies = Mutex::new(Vec::new());
        Self { runs: AtomicU64::new(0), most_runs: budget.runs, tallies }
    }

    /// Takes a list of `targets` zeros from the pool.
    fn tally(&self, targets: usize) -> Vec<usize> {
        let free = self.tallies.lock().ok().and_then(|mut free| free.pop());
        free.unwrap_or_else(|| vec![0; targets])
    }

    /// Returns a list of zeros to the pool.
    fn recycle(&self, tally: Vec<usize>) {
        if let Ok(mut free) = self.tallies.lock() {
            free.push(tally);
        }
    }
}

/// Edges of a block for one new bucket.
struct Share {
    target: u32,
    edges: u32,
    /// Number of features of each side, if edges have lists.
    features: Option<Box<[u64; 2]>>,
}

impl Mover {
    /// Counts the edges. Reads all of them once.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`]: `id-out-of-range`, `relation-out-of-range`, `bad-list` and
    /// `no-such-partition` with the bucket and the index of the edge; [`weighbridge_core::Kind::Mismatch`],
    /// `weights-differ`, if weights of two buckets have different dtypes, or only some buckets have weights;
    /// [`weighbridge_core::Kind::Limit`]: `too-many-edges`, and `too-many-runs` if too many edges go to too
    /// many buckets.
    pub(crate) fn new(
        label: &str,
        buckets: Vec<Bucket>,
        repartitioning: Repartitioning,
        budget: EdgeBudget,
    ) -> Result<Self> {
        let mut blocks = Vec::new();
        let mut sum = 0u64;
        for (place, bucket) in buckets.iter().enumerate() {
            let edges = bucket.edges()?;
            sum = sum.saturating_add(edges);
            if sum > MAX_EDGES {
                return Err(Error::limit("too-many-edges", "too many edges to repartition")
                    .in_file(label)
                    .expected(format_args!("at most {MAX_EDGES}"))
                    .found(sum));
            }
            blocks.extend((0..edges.div_ceil(budget.block)).map(|number| {
                let first = number * budget.block;
                Block { bucket: place, first, count: budget.block.min(edges - first), sorted: None }
            }));
        }
        let has = |name: &str| buckets.iter().any(|b| b.column(name).is_some());
        let lists = Side::BOTH.map(|side| has(side.offsets()));
        let weight = weight_type(&buckets)?;
        let targets = (0..repartitioning.buckets()).map(|_| Target::default()).collect();
        let mut mover = Self {
            label: label.to_owned(),
            buckets,
            repartitioning,
            blocks,
            targets,
            lists,
            weight,
            groups: Groups::default(),
            store: Store::default(),
            keep: lists == [false; 2] && sum.saturating_mul(STORED_BYTES_PER_EDGE) <= budget.edges,
            budget,
        };
        mover.check_ends()?;
        let counting = Counting::new(budget);
        let counted = parallel(mover.blocks.len(), budget.threads, |block| mover.count(block, &counting))?;
        drop(counting);
        for (block, (shares, sorted)) in counted.into_iter().enumerate() {
            mover.blocks[block].sorted = sorted.map(Arc::new);
            for share in shares {
                let target = &mut mover.targets[share.target as usize];
                let (first, starts) = (target.edges, target.features);
                let Share { edges, features, .. } = share;
                target.edges += u64::from(edges);
                for (sum, own) in target.features.iter_mut().zip(features.as_deref().into_iter().flatten()) {
                    // Several edges may refer to the same features, so their sum may be very large.
                    *sum = sum.checked_add(*own).ok_or_else(|| {
                        Error::corrupt("bad-list", "the total length of the feature lists overflows")
                            .in_file(label)
                    })?;
                }
                let features = features.map(|own| Box::new([[starts[0], own[0]], [starts[1], own[1]]]));
                // There are at most 2^36 edges, and at least 2^12 in a block.
                let block = u32::try_from(block).unwrap_or(u32::MAX);
                target.runs.push(Run { block, edges, first, features });
            }
        }
        let edges = mover.targets.iter().map(|target| target.edges);
        mover.groups = Groups::new(edges, budget.edges / 2 / STORED_BYTES_PER_EDGE);
        Ok(mover)
    }

    /// Fails if features belong to no edge: they would be lost.
    fn check_ends(&self) -> Result<()> {
        for bucket in &self.buckets {
            for side in Side::BOTH {
                let Some(offsets) = bucket.column(side.offsets()) else { continue };
                let (edges, features) = (bucket.edges()?, bucket.needed(side.data())?.elements());
                let end = |place: u64| Ok(integers::read(offsets, place..place + 1)?.first().copied());
                let (first, last) = (end(0)?, end(edges)?);
                if first != Some(0) || last.and_then(|n| u64::try_from(n).ok()) != Some(features) {
                    let text = format!("some features of {bucket} belong to no edge");
                    let shown = |end: Option<i64>| end.map_or("nothing".to_owned(), |n| n.to_string());
                    return Err(Error::corrupt("bad-list", text)
                        .in_file(&self.label)
                        .expected(format_args!("{} from 0 to {features}", side.offsets()))
                        .found(format_args!("{} to {}", shown(first), shown(last))));
                }
            }
        }
        Ok(())
    }

    pub(crate) fn repartitioning(&self) -> &Repartitioning {
        &self.repartitioning
    }

    pub(super) fn label(&self) -> &str {
        &self.label
    }

    pub(super) fn target(&self, number: usize) -> Result<&Target> {
        self.targets
            .get(number)
            .ok_or_else(|| Error::usage("no-such-bucket", "the edge bucket does not exist"))
    }

    pub(super) fn bucket_of(&self, block: usize) -> &Bucket {
        &self.buckets[self.blocks[block].bucket]
    }

    /// Index in its bucket of the first edge of a block.
    pub(super) fn first_of(&self, block: usize) -> u64 {
        self.blocks[block].first
    }

    /// Shares of a block for each new bucket, and its sorted edges if they are kept.
    fn count(&self, number: usize, counting: &Counting) -> Result<(Vec<Share>, Option<Sorted>)> {
        let assigned = self.assign(number)?;
        let mut tally = counting.tally(self.targets.len());
        let starts = assigned.tally(&mut tally);
        let ends = starts.iter().skip(1).map(|s| s.1).chain([assigned.target.len()]);
        let has_lists = self.lists != [false; 2];
        let share = |(&(target, start), end): (&(u32, usize), usize)| Share {
            target,
            edges: u32::try_from(end - start).unwrap_or(u32::MAX),
            features: has_lists.then(Box::default),
        };
        let mut shares: Vec<Share> = starts.iter().zip(ends).map(share).collect();
        let runs = counting.runs.fetch_add(shares.len() as u64, Ordering::Relaxed);
        if runs.saturating_add(shares.len() as u64) > counting.most_runs {
            return Err(Error::limit("too-many-runs", "too many runs of edges to repartition at once")
                .in_file(&self.label)
                .expected(format_args!("at most {} runs of edges for one bucket", counting.most_runs))
                .found(format_args!("more, for {} buckets", self.targets.len()))
                .hint(phrase!["use fewer partitions, or raise the memory limit: ", Opt::Memory]));
        }
        for side in Side::BOTH.into_iter().filter(|side| self.lists[*side as usize]) {
            for (index, list) in self.lists(number, side)?.into_iter().enumerate() {
                let target = assigned.target[index];
                let place = shares.partition_point(|share| share.target < target);
                // At most 2^18 lists of less than 2^63 features; larger sums are rejected.
                if let Some(sums) = &mut shares[place].features {
                    let sum = &mut sums[side as usize];
                    *sum = sum.saturating_add(list.end - list.start);
                }
            }
        }
        let touched: Vec<u32> = starts.iter().map(|s| s.0).collect();
        let sorted = self.keep.then(|| assigned.sort(starts, &mut tally, self.with_positions()));
        touched.into_iter().for_each(|target| tally[target as usize] = 0);
        counting.recycle(tally);
        Ok((shares, sorted))
    }

    /// Reads a block and assigns a bucket to each edge.
    fn assign(&self, number: usize) -> Result<Assigned> {
        let block = &self.blocks[number];
        let bucket = &self.buckets[block.bucket];
        let range = block.first..block.first + block.count;
        let column = |name: &str| integers::read(bucket.needed(name)?, range.clone());
        let (mut left, mut right, rel) = (column("lhs")?, column("rhs")?, column("rel")?);
        let windows = self.repartitioning.windows(bucket.parts.unwrap_or([0, 0]));
        let right_parts = self.repartitioning.parts()[1];
        let mut target = Vec::with_capacity(rel.len());
        for (index, &rel) in rel.iter().enumerate() {
            let edge = || block.first + index as u64;
            let Some(relation) = self.repartitioning.relation(rel) else {
                return Err(self
                    .fault("relation-out-of-range", "an edge has an undefined relation", bucket, edge())
                    .expected(self.repartitioning.expected_relation())
                    .found(rel));
            };
            let Some([from, to]) = &windows[relation] else {
                return Err(self.fault(
                    "no-such-partition",
                    "the entity types of an edge do not have the partitions of its bucket",
                    bucket,
                    edge(),
                ));
            };
            let out_of_range = |side: Side, window: &Window<'_>, id: i64| {
                self.fault("id-out-of-range", "an edge refers to a row beyond its table", bucket, edge())
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

    /// Feature range of each edge of a block.
    pub(super) fn lists(&self, number: usize, side: Side) -> Result<Vec<Range<u64>>> {
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
                self.fault("bad-list", "an edge has an invalid feature list", bucket, edge)
                    .expected(format_args!("two offsets from 0 to {features}, in order"))
                    .found(format_args!("{} and {}", pair[0], pair[1]))
            })
        });
        lists.collect()
    }

    /// True where the position of an edge in its block is needed, to fetch other columns.
    fn with_positions(&self) -> bool {
        self.weight.is_some() || self.lists != [false; 2]
    }

    /// Edges of a block that go to one new bucket.
    pub(super) fn select(&self, number: usize, target: usize) -> Result<Selection> {
        let target = u32::try_from(target).unwrap_or(u32::MAX);
        if let Some(sorted) = &self.blocks[number].sorted {
            return Ok(sorted.select(target));
        }
        let group = self.groups.of(target);
        let key = (number, group.start);
        if let Some(sorted) = self.store.get(key) {
            return Ok(sorted.select(target));
        }
        let sorted = Arc::new(self.assign(number)?.pick(&group, self.with_positions()));
        self.store.put(key, sorted.clone(), self.budget.edges);
        Ok(sorted.select(target))
    }
}

/// Dtype of all weights.
pub(super) fn weight_type(buckets: &[Bucket]) -> Result<Option<DType>> {
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
                    "edge buckets with different weights cannot be merged",
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

/// Runs `count` jobs on several threads. Results are in order; the first failure wins.
fn parallel<T: Send>(
    count: usize,
    threads: usize,
    work: impl Fn(usize) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let next = AtomicUsize::new(0);
    let slots: Vec<Mutex<Option<Result<T>>>> = (0..count).map(|_| Mutex::new(None)).collect();
    let run = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(slot) = slots.get(number) else { break };
            let done = work(number);
            if done.is_err() {
                // The others stop after their current job.
                next.store(count, Ordering::Relaxed);
            }
            if let Ok(mut slot) = slot.lock() {
                *slot = Some(done);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.min(count) {
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
