//! Column of a new bucket, assembled from the old buckets on access.

use super::buckets::Side;
use super::integers::{self, read_elements};
use super::mover::{Mover, Run, Target};
use std::ops::Range;
use std::sync::Arc;
use weighbridge_core::error::Result;
use weighbridge_core::tensor::{DType, Order, Region};
use weighbridge_io::source::{Source, check_range, to_usize};

/// Content of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    Ids(Side),
    Relations,
    Weights(DType),
    /// Start of each feature list, and the end of the last.
    Offsets(Side),
    Features(Side),
}

impl Content {
    pub(super) fn dtype(self) -> DType {
        match self {
            Self::Weights(dtype) => dtype,
            _ => DType::I64,
        }
    }
}

/// Column of a new bucket, little-endian.
#[derive(Debug)]
pub(super) struct MovedColumn {
    mover: Arc<Mover>,
    target: usize,
    what: Content,
    size: u64,
    elements: u64,
}

impl MovedColumn {
    pub(super) fn new(mover: &Arc<Mover>, target: usize, what: Content) -> Result<Self> {
        let bucket = mover.target(target)?;
        let elements = match what {
            Content::Offsets(_) => bucket.edges + 1,
            Content::Features(side) => bucket.features[side as usize],
            _ => bucket.edges,
        };
        let size = what.dtype().size().unwrap_or(1) as u64;
        Ok(Self { mover: mover.clone(), target, what, size, elements })
    }

    pub(super) fn elements(&self) -> u64 {
        self.elements
    }

    fn make(&self, range: Range<u64>, out: &mut Vec<u8>) -> Result<()> {
        let target = self.mover.target(self.target)?;
        match self.what {
            Content::Features(side) => self.features(target, side, range, out),
            Content::Offsets(side) => self.offsets(target, side, range, out),
            _ => {
                let first = target.runs.partition_point(|run| run.end() <= range.start);
                for run in target.runs[first..].iter().take_while(|run| run.first < range.end) {
                    let start = range.start.max(run.first) - run.first;
                    let end = range.end.min(run.end()) - run.first;
                    self.edges(run, to_usize(start)?..to_usize(end)?, out)?;
                }
                Ok(())
            }
        }
    }

    /// Appends some edges of a run.
    fn edges(&self, run: &Run, range: Range<usize>, out: &mut Vec<u8>) -> Result<()> {
        let selection = self.mover.select(run.block(), self.target)?;
        let numbers = match self.what {
            Content::Ids(side) => selection.ids(side as usize),
            Content::Relations => selection.rel(),
            _ => return self.weights(run, selection.positions().get(range).unwrap_or_default(), out),
        };
        for number in numbers.get(range).unwrap_or_default() {
            out.extend_from_slice(&number.to_le_bytes());
        }
        Ok(())
    }

    fn weights(&self, run: &Run, positions: &[u32], out: &mut Vec<u8>) -> Result<()> {
        let (Some(&first), Some(&last)) = (positions.first(), positions.last()) else { return Ok(()) };
        let column = self.mover.bucket_of(run.block()).needed("weight")?;
        let region = Region {
            start: vec![self.mover.first_of(run.block()) + u64::from(first)],
            shape: vec![u64::from(last - first) + 1],
        };
        let bytes = column.read_region(&region, Order::Row)?;
        let size = to_usize(self.size)?;
        for position in positions {
            let at = (position - first) as usize * size;
            out.extend_from_slice(bytes.get(at..at + size).unwrap_or_default());
        }
        Ok(())
    }

    /// Appends offsets: element 0 is 0, element k + 1 is the end of the list of edge k.
    fn offsets(&self, target: &Target, side: Side, range: Range<u64>, out: &mut Vec<u8>) -> Result<()> {
        if range.start == 0 {
            out.extend_from_slice(&0u64.to_le_bytes());
        }
        let edges = range.start.saturating_sub(1)..range.end.saturating_sub(1);
        let first = target.runs.partition_point(|run| run.end() <= edges.start);
        for run in target.runs[first..].iter().take_while(|run| run.first < edges.end) {
            let lists = self.mover.lists(run.block(), side)?;
            let selection = self.mover.select(run.block(), self.target)?;
            let mut end = run.first_feature(side);
            for (edge, &position) in (run.first..).zip(selection.positions()) {
                let list = &lists[position as usize];
                end = end.saturating_add(list.end - list.start);
                if edges.contains(&edge) {
                    out.extend_from_slice(&end.to_le_bytes());
                }
            }
        }
        Ok(())
    }

    fn features(&self, target: &Target, side: Side, range: Range<u64>, out: &mut Vec<u8>) -> Result<()> {
        let end_of = |run: &Run| run.first_feature(side) + run.features(side);
        let first = target.runs.partition_point(|run| end_of(run) <= range.start);
        for run in target.runs[first..].iter().take_while(|run| run.first_feature(side) < range.end) {
            if run.features(side) == 0 {
                continue;
            }
            let column = self.mover.bucket_of(run.block()).needed(side.data())?;
            let lists = self.mover.lists(run.block(), side)?;
            let selection = self.mover.select(run.block(), self.target)?;
            let mut at = run.first_feature(side);
            for &position in selection.positions() {
                let list = &lists[position as usize];
                let begin = at;
                at += list.end - list.start;
                // The requested part of the list.
                let (from, to) = (range.start.max(begin), range.end.min(at));
                if from < to {
                    let wanted = list.start + (from - begin)..list.start + (to - begin);
                    for number in integers::read(column, wanted)? {
                        out.extend_from_slice(&number.to_le_bytes());
                    }
                }
            }
        }
        Ok(())
    }
}

impl Source for MovedColumn {
    fn len(&self) -> u64 {
        self.elements.saturating_mul(self.size)
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        check_range(self, offset, buffer.len() as u64)?;
        read_elements(offset, buffer, self.size, |range, out| self.make(range, out))
    }
    fn label(&self) -> &str {
        self.mover.label()
    }
}
