//! Edges of a block in the order of the new buckets, and the store of sorted blocks.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Mutex};
use weighbridge_io::source::to_usize;

/// Target bucket of each edge of a block.
pub(super) struct Assigned {
    pub(super) target: Vec<u32>,
    pub(super) ids: [Vec<i64>; 2],
    pub(super) rel: Vec<i64>,
}

impl Assigned {
    /// Start of the edges of each non-empty bucket, in bucket order; afterwards `tally` holds
    /// the next position for each bucket.
    pub(super) fn tally(&self, tally: &mut [usize]) -> Vec<(u32, usize)> {
        let mut starts = Vec::new();
        for &target in &self.target {
            let count = &mut tally[target as usize];
            if *count == 0 {
                starts.push((target, 0));
            }
            *count += 1;
        }
        starts.sort_unstable();
        let mut next = 0;
        for (target, start) in &mut starts {
            *start = next;
            next += std::mem::replace(&mut tally[*target as usize], next);
        }
        starts
    }

    /// Edges for some buckets, in bucket order.
    pub(super) fn pick(&self, targets: &Range<u32>, with_positions: bool) -> Sorted {
        let of = |index: &u32| self.target[*index as usize];
        let mut order: Vec<u32> =
            (0u32..).zip(&self.target).filter(|(_, target)| targets.contains(target)).map(|p| p.0).collect();
        // Stable: edges of a bucket keep their order.
        order.sort_by_key(of);
        let mut starts: Vec<(u32, usize)> = Vec::new();
        for (place, target) in order.iter().map(of).enumerate() {
            if starts.last().is_none_or(|last| last.0 != target) {
                starts.push((target, place));
            }
        }
        let pick = |all: &[i64]| order.iter().map(|&index| all[index as usize]).collect();
        let (ids, rel) = ([pick(&self.ids[0]), pick(&self.ids[1])], pick(&self.rel));
        Sorted { starts, positions: if with_positions { order } else { Vec::new() }, ids, rel }
    }

    /// Sorts the edges by bucket. `next` holds the next position for each.
    pub(super) fn sort(self, starts: Vec<(u32, usize)>, next: &mut [usize], with_positions: bool) -> Sorted {
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

/// Edges of a block, sorted by target bucket.
#[derive(Debug, Default)]
pub(super) struct Sorted {
    /// Each new bucket with edges, and the start of its edges.
    pub(super) starts: Vec<(u32, usize)>,
    /// Index of each edge in the block; empty if no other columns are moved.
    pub(super) positions: Vec<u32>,
    pub(super) ids: [Vec<i64>; 2],
    pub(super) rel: Vec<i64>,
}

/// Edges of a block that go to one new bucket, in order.
#[derive(Debug)]
pub(super) struct Selection {
    sorted: Arc<Sorted>,
    range: Range<usize>,
}

impl Selection {
    /// Indexes of the edges in the block.
    pub(super) fn positions(&self) -> &[u32] {
        self.sorted.positions.get(self.range.clone()).unwrap_or_default()
    }
    /// Ids of one side.
    pub(super) fn ids(&self, side: usize) -> &[i64] {
        self.sorted.ids.get(side).and_then(|ids| ids.get(self.range.clone())).unwrap_or_default()
    }
    /// Relations.
    pub(super) fn rel(&self) -> &[i64] {
        self.sorted.rel.get(self.range.clone()).unwrap_or_default()
    }
}

impl Sorted {
    fn bytes(&self) -> usize {
        self.rel.len() * 24 + self.positions.len() * 4 + self.starts.len() * 16
    }

    /// Edges for one bucket.
    pub(super) fn select(self: &Arc<Self>, target: u32) -> Selection {
        let place = self.starts.partition_point(|(t, _)| *t < target);
        let start = self.starts.get(place).map_or(self.rel.len(), |s| s.1);
        let has = self.starts.get(place).is_some_and(|s| s.0 == target);
        let end = if has { self.starts.get(place + 1).map_or(self.rel.len(), |s| s.1) } else { start };
        Selection { sorted: self.clone(), range: start..end }
    }
}

/// Groups of consecutive new buckets whose edges fit in memory together: a block's edges for a group
/// are read at once.
#[derive(Debug, Default)]
pub(super) struct Groups(Vec<u32>);

impl Groups {
    /// Groups of buckets of up to `most` edges, or of a single bucket; `edges` lists the edges per bucket.
    pub(super) fn new(edges: impl Iterator<Item = u64>, most: u64) -> Self {
        let mut starts = Vec::new();
        let mut sum = 0u64;
        for (target, edges) in (0u32..).zip(edges) {
            sum = sum.saturating_add(edges);
            if starts.is_empty() || sum > most {
                starts.push(target);
                sum = edges;
            }
        }
        Self(starts)
    }

    /// Group of a bucket.
    pub(super) fn of(&self, target: u32) -> Range<u32> {
        let next = self.0.partition_point(|start| *start <= target);
        let start = next.checked_sub(1).and_then(|place| self.0.get(place)).copied();
        start.unwrap_or(0)..self.0.get(next).copied().unwrap_or(u32::MAX)
    }
}

/// Cache of blocks' edges for groups of buckets; evicts the oldest first.
#[derive(Debug, Default)]
pub(super) struct Store {
    inner: Mutex<Inner>,
}

/// Block, and the first bucket of a group.
type Key = (usize, u32);

#[derive(Debug, Default)]
struct Inner {
    all: HashMap<Key, Arc<Sorted>>,
    order: VecDeque<Key>,
    bytes: usize,
}

impl Store {
    pub(super) fn get(&self, key: Key) -> Option<Arc<Sorted>> {
        self.inner.lock().ok()?.all.get(&key).cloned()
    }

    /// Stores `sorted`, and evicts others until all fit in `most` bytes.
    pub(super) fn put(&self, key: Key, sorted: Arc<Sorted>, most: u64) {
        let Ok(mut inner) = self.inner.lock() else { return };
        let most = to_usize(most).unwrap_or(usize::MAX);
        let more = sorted.bytes();
        if more > most || inner.all.contains_key(&key) {
            return;
        }
        while inner.bytes + more > most {
            let Some(oldest) = inner.order.pop_front() else { break };
            let gone = inner.all.remove(&oldest).map_or(0, |sorted| sorted.bytes());
            inner.bytes -= gone;
        }
        inner.bytes += more;
        inner.all.insert(key, sorted);
        inner.order.push_back(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_buckets_up_to_the_budget() {
        let groups = Groups::new([3, 3, 5, 20, 0, 1].into_iter(), 8);
        let all: Vec<_> = (0..6).map(|target| groups.of(target)).collect();
        assert_eq!(all, [0..2, 0..2, 2..3, 3..4, 4..u32::MAX, 4..u32::MAX]);
    }

    #[test]
    fn evicts_the_oldest_and_rejects_oversized_entries() {
        let sorted = |edges: usize| {
            let rel = vec![1; edges];
            Arc::new(Sorted { ids: [rel.clone(), rel.clone()], rel, ..Sorted::default() })
        };
        let store = Store::default();
        for block in 0..3 {
            store.put((block, 0), sorted(1), 48);
        }
        let kept: Vec<bool> = (0..3).map(|block| store.get((block, 0)).is_some()).collect();
        assert_eq!(kept, [false, true, true]);
        store.put((3, 0), sorted(3), 48);
        assert!(store.get((3, 0)).is_none() && store.get((2, 0)).is_some());
    }
}
