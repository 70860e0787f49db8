//! Division of a planned file into tasks: byte ranges that one worker writes at once.

use crate::source::SourceRef;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use weighbridge_core::checkpoint::TensorEntry;
use weighbridge_core::plan::{Content, PlannedFile, SourceCheck};
use weighbridge_core::tensor::Region;

/// Shortest copy, in bytes, that is done by the kernel.
const MIN_KERNEL_COPY: u64 = 1 << 20;
/// Bytes of a part of a checksum.
pub(super) const VERIFIED: u64 = 16 << 20;
/// Longest single kernel copy, so that progress is visible and cancelling is quick.
const MAX_KERNEL_COPY: u64 = 64 << 20;

/// Smallest block, in bytes, into which a transform is divided for more workers: small blocks of a matrix read short
/// runs of its source.
const MIN_BLOCK: u64 = 32 << 20;

/// Shortest source run, in bytes, of a block that is contiguous in the target. Below this, tiles are moved instead,
/// whose runs are of medium length in source and target.
const MIN_RUN: u64 = 4 << 10;

/// Size limits of tasks, in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    /// Most bytes assembled in a buffer before they are written.
    pub chunk: u64,
    /// Most memory of a transform: result and temporaries.
    pub transform: u64,
    /// Number of workers, so that one large tensor feeds all of them.
    pub threads: u64,
}

/// Task for a byte range of a file.
#[derive(Debug)]
pub(super) struct Task {
    pub offset: u64,
    pub len: u64,
    pub work: Work,
}

#[derive(Debug)]
pub(super) enum Work {
    /// Assemble these parts in a buffer and write it.
    Assemble(Vec<Part>),
    /// Let the kernel copy the bytes of a segment, from `skip` on.
    KernelCopy { segment: usize, skip: u64 },
    /// Compute a part of the checksum of a source range.
    Verify { check: usize, skip: u64, len: u64 },
    /// Compute a box of a transform segment, and write it run by run.
    Scatter { segment: usize, region: Region },
    /// Encode the text of a segment, part by part.
    Text { segment: usize },
}

/// Part of a segment.
#[derive(Debug)]
pub(super) enum Part {
    /// `len` bytes from `skip` on, of a segment that is not a transform.
    Bytes { segment: usize, skip: u64, len: u64 },
    /// A box of a segment that is a transform.
    Block { segment: usize, region: Region },
}

/// Tasks that must be done in order by one worker.
pub(super) type Lane = Vec<Task>;

/// Divides `file` into tasks. Every byte is in exactly one task. `checked` are the sorted ranges that need a CRC:
/// their bytes must pass through this process. `checks` are checksums of sources to verify.
pub(super) fn cut(
    file: &PlannedFile,
    checked: &[Range<u64>],
    checks: &[&SourceCheck],
    sizes: Sizes,
) -> Vec<Lane> {
    let mut cutter =
        Cutter { lanes: Vec::new(), sequential: HashMap::new(), run: Vec::new(), run_at: 0, run_len: 0 };
    for (index, segment) in file.segments.iter().enumerate() {
        match &segment.content {
            Content::Copy { source, .. } if source.is_sequential() => {
                cutter.close();
                let key = Arc::as_ptr(source).cast::<()>() as usize;
                for (skip, len) in steps(segment.len, sizes.chunk) {
                    let part = Part::Bytes { segment: index, skip, len };
                    let offset = segment.offset + skip;
                    cutter.push(Some(key), Task { offset, len, work: Work::Assemble(vec![part]) });
                }
            }
            Content::Copy { source, .. }
                if segment.len >= MIN_KERNEL_COPY
                    && source.file().is_some()
                    && !overlaps(checked, segment.offset, segment.len) =>
            {
                cutter.close();
                for (skip, len) in steps(segment.len, MAX_KERNEL_COPY) {
                    let work = Work::KernelCopy { segment: index, skip };
                    cutter.lanes.push(vec![Task { offset: segment.offset + skip, len, work }]);
                }
            }
            Content::Latin1 { entry, .. } => {
                cutter.close();
                let work = Work::Text { segment: index };
                cutter.push(stream(entry), Task { offset: segment.offset, len: segment.len, work });
            }
            Content::Tensor { entry, order } => {
                let result = entry.dtype().size().unwrap_or(1) as u64;
                let stored = entry.stored.size().unwrap_or(1) as u64;
                let each = result + stored * if entry.cast.is_some() { 2 } else { 1 };
                // Divide for every worker, but keep the runs long enough.
                let share = (segment.len / (sizes.threads * 4)).max(MIN_BLOCK) / result;
                let most = (sizes.transform / each).min(share).max(1);
                let moves = entry.order() != *order && !entry.shape.is_order_free();
                let scattered = moves && !overlaps(checked, segment.offset, segment.len);
                let key = stream(entry);
                let short = || {
                    let first = Region::blocks(&entry.shape, *order, most).next();
                    first.is_some_and(|block| block.runs(&entry.shape, entry.order()).0 * stored < MIN_RUN)
                };
                if scattered && entry.elements() > most && (key.is_some() || short()) {
                    cutter.close();
                    // A sequential source is read once, in its order, even if writing is scattered.
                    let regions = match key {
                        Some(_) => Region::blocks(&entry.shape, entry.order(), most).collect(),
                        None => Region::tiles(&entry.shape, most),
                    };
                    for region in regions {
                        let len = region.shape().elements().unwrap_or(0) * result;
                        let work = Work::Scatter { segment: index, region };
                        cutter.push(key, Task { offset: segment.offset, len, work });
                    }
                    continue;
                }
                let mut at = segment.offset;
                for region in Region::blocks(&entry.shape, *order, most) {
                    let len = region.shape().elements().unwrap_or(0) * result;
                    let part = Part::Block { segment: index, region };
                    if key.is_some() {
                        cutter.close();
                        cutter.push(key, Task { offset: at, len, work: Work::Assemble(vec![part]) });
                    } else {
                        cutter.add(at, len, part, sizes.chunk);
                    }
                    at += len;
                }
            }
            _ => {
                for (skip, len) in steps(segment.len, sizes.chunk) {
                    cutter.add(
                        segment.offset + skip,
                        len,
                        Part::Bytes { segment: index, skip, len },
                        sizes.chunk,
                    );
                }
            }
        }
    }
    cutter.close();
    for (check, planned) in checks.iter().enumerate() {
        for (skip, len) in steps(planned.check.len(), VERIFIED) {
            cutter.push(None, Task { offset: 0, len: 0, work: Work::Verify { check, skip, len } });
        }
    }
    cutter.lanes
}

struct Cutter {
    lanes: Vec<Lane>,
    /// Index of the lane of each sequential source, by the address of the source.
    sequential: HashMap<usize, usize>,
    run: Vec<Part>,
    run_at: u64,
    run_len: u64,
}

impl Cutter {
    fn add(&mut self, at: u64, len: u64, part: Part, chunk: u64) {
        if !self.run.is_empty() && self.run_len + len > chunk {
            self.close();
        }
        if self.run.is_empty() {
            self.run_at = at;
            self.run_len = 0;
        }
        self.run.push(part);
        self.run_len += len;
    }

    fn close(&mut self) {
        if !self.run.is_empty() {
            let parts = std::mem::take(&mut self.run);
            let work = Work::Assemble(parts);
            self.lanes.push(vec![Task { offset: self.run_at, len: self.run_len, work }]);
        }
    }

    /// Adds a task to the lane of the sequential source `key`, or to a new lane.
    fn push(&mut self, key: Option<usize>, task: Task) {
        let next = self.lanes.len();
        let lane = key.map_or(next, |key| *self.sequential.entry(key).or_insert(next));
        if lane == next {
            self.lanes.push(Vec::new());
        }
        self.lanes[lane].push(task);
    }
}

/// Address of the sequential source of a tensor, if it has one.
fn stream(entry: &TensorEntry) -> Option<usize> {
    let extent = entry.extents.iter().find(|extent| extent.source.is_sequential())?;
    Some(Arc::as_ptr(&extent.source).cast::<()>() as usize)
}

/// Divides `len` into steps of at most `most`: pairs of offset and length.
fn steps(len: u64, most: u64) -> impl Iterator<Item = (u64, u64)> {
    (0..len.div_ceil(most)).map(move |i| (i * most, most.min(len - i * most)))
}

/// True where one of the sorted, disjoint `ranges` overlaps `offset .. offset + len`.
fn overlaps(ranges: &[Range<u64>], offset: u64, len: u64) -> bool {
    let after = ranges.partition_point(|r| r.end <= offset);
    ranges.get(after).is_some_and(|r| r.start < offset + len)
}

/// Source and offset of a copied segment.
pub(super) fn copied(file: &PlannedFile, segment: usize) -> Option<(&SourceRef, u64)> {
    match &file.segments.get(segment)?.content {
        Content::Copy { source, offset, .. } => Some((source, *offset)),
        _ => None,
    }
}
