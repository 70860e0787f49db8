//! A cache of unpacked blocks that may be asked for again, shared by all sources of an opened checkpoint.
//!
//! A source that unpacks its blocks comes back to the same block with the next row. The cache is part of the
//! [`Limits`](crate::Limits): all files that are opened with the same limits, or with clones of them, share it. A checkpoint of a
//! thousand packed tables takes no more memory than one table. There is no cache of the whole process.
//!
//! The newest block of each source is counted apart: sources whose blocks are large, read in turn, would
//! drop each other's at every step. Within each bound, the oldest block is dropped first.
//!
//! ```text
//! the newest of each source   384 MiB together; past that the oldest of them count as others
//! others                      128 MiB together
//! all                         512 MiB, whatever the number of sources; more only where a single
//!                             block is longer than 384 MiB: the last one always stays
//! ```

use crate::error::Result;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes that the newest blocks of all sources may have together. The one that came last is kept whatever
/// its length.
const MOST_NEWEST: u64 = 384 << 20;
/// Bytes that all other blocks may have together.
const MOST_OTHERS: u64 = 128 << 20;
/// What a block costs besides its bytes: blocks may be tiny.
const EACH: u64 = 256;

/// Unpacked blocks of several sources, at most 512 MiB together. Clones are the same cache.
///
/// Each value of [`Limits`](crate::Limits) that is made by `default` has a cache of its own. A program that opens many
/// files at a time, and wants one bound for all of them, opens them with clones of one value.
#[derive(Debug, Clone)]
pub struct BlockCache(Arc<Store>);

impl Default for BlockCache {
    fn default() -> Self {
        Self(Arc::new(Store::new(MOST_NEWEST, MOST_OTHERS)))
    }
}

/// Limits are the same whatever is cached under them.
impl PartialEq for BlockCache {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for BlockCache {}

impl BlockCache {
    /// An empty cache.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The blocks of one more source. They are dropped with the returned value, or earlier where other blocks need the
    /// memory.
    #[must_use]
    pub fn blocks(&self) -> CachedBlocks {
        CachedBlocks::in_store(&self.0)
    }
}

/// A block that is or will be made. Its lock is held while that is done.
type Cell = Arc<Mutex<Option<Arc<Vec<u8>>>>>;

/// Blocks of several owners, under one pair of bounds.
#[derive(Debug)]
struct Store {
    most_newest: u64,
    most_others: u64,
    owners: AtomicU64,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    owners: HashMap<u64, Own>,
    /// The newest blocks of owners.
    newest: Queue,
    /// All others.
    others: Queue,
    /// Blocks that came so far.
    came: u64,
}

/// The blocks of one owner.
#[derive(Debug, Default)]
struct Own {
    /// By number: when it came, and the block.
    blocks: HashMap<u64, (u64, Cell)>,
    /// When the last of them came. It may be dropped by now.
    newest: u64,
}

/// Blocks in the order in which they came.
#[derive(Debug, Default)]
struct Queue {
    /// By when it came: its owner, its number, what it costs.
    blocks: BTreeMap<u64, (u64, u64, u64)>,
    /// What all of them cost, in bytes.
    cost: u64,
}

impl Queue {
    fn add(&mut self, when: u64, block: (u64, u64, u64)) {
        self.cost = self.cost.saturating_add(block.2);
        self.blocks.insert(when, block);
    }

    fn remove(&mut self, when: u64) -> Option<(u64, u64, u64)> {
        let block = self.blocks.remove(&when)?;
        self.cost = self.cost.saturating_sub(block.2);
        Some(block)
    }

    fn first(&self) -> Option<u64> {
        self.blocks.keys().next().copied()
    }
}

impl Kept {
    /// Takes a block of `cost` bytes, which is now the newest of its owner.
    fn add(&mut self, owner: u64, number: u64, cost: u64) -> Cell {
        let (cell, when) = (Cell::default(), self.came);
        self.came += 1;
        let own = self.owners.entry(owner).or_default();
        own.blocks.insert(number, (when, cell.clone()));
        let before = std::mem::replace(&mut own.newest, when);
        // Of a new owner this is 0: a block of somebody else, or of nobody.
        if own.blocks.len() > 1 {
            self.demote(before);
        }
        self.newest.add(when, (owner, number, cost));
        cell
    }

    /// Counts a block among the others, if it is one of the newest.
    fn demote(&mut self, when: u64) {
        if let Some(block) = self.newest.remove(when) {
            self.others.add(when, block);
        }
    }

    /// Drops blocks until both bounds are kept. The one that came last stays.
    fn keep_within(&mut self, most_newest: u64, most_others: u64) {
        while self.newest.cost > most_newest
            && self.newest.blocks.len() > 1
            && let Some(when) = self.newest.first()
        {
            self.demote(when);
        }
        while self.others.cost > most_others
            && let Some(when) = self.others.first()
        {
            let Some((owner, number, _)) = self.others.remove(when) else { break };
            let Some(own) = self.owners.get_mut(&owner) else { continue };
            own.blocks.remove(&number);
            if own.blocks.is_empty() {
                self.owners.remove(&owner);
            }
        }
    }
}

impl Store {
    fn new(most_newest: u64, most_others: u64) -> Self {
        Self { most_newest, most_others, owners: AtomicU64::new(0), kept: Mutex::default() }
    }

    fn cell(&self, owner: u64, number: u64, len: u64) -> Cell {
        let mut kept = lock(&self.kept);
        if let Some((_, cell)) = kept.owners.get(&owner).and_then(|own| own.blocks.get(&number)) {
            return cell.clone();
        }
        let cell = kept.add(owner, number, len.saturating_add(EACH));
        kept.keep_within(self.most_newest, self.most_others);
        cell
    }

    fn forget(&self, owner: u64) {
        let mut kept = lock(&self.kept);
        for (when, _) in kept.owners.remove(&owner).into_iter().flat_map(|own| own.blocks.into_values()) {
            kept.newest.remove(when);
            kept.others.remove(when);
        }
    }
}

/// The blocks of one source in a [`BlockCache`].
#[derive(Debug)]
pub struct CachedBlocks {
    store: Arc<Store>,
    owner: u64,
}

impl CachedBlocks {
    fn in_store(store: &Arc<Store>) -> Self {
        Self { store: store.clone(), owner: store.owners.fetch_add(1, Ordering::Relaxed) }
    }

    /// The block of that number: the cached one, else the result of `make`, of `len` bytes. A
    /// thread that asks for a block that another one makes waits for it; a block that failed is made
    /// again.
    ///
    /// # Errors
    /// Those of `make`.
    pub fn get(&self, number: u64, len: u64, make: impl FnOnce() -> Result<Vec<u8>>) -> Result<Arc<Vec<u8>>> {
        let cell = self.store.cell(self.owner, number, len);
        // A thread that failed left nothing half done.
        let mut block = lock(&cell);
        if let Some(block) = &*block {
            return Ok(block.clone());
        }
        let made = Arc::new(make()?);
        *block = Some(made.clone());
        Ok(made)
    }
}

impl Drop for CachedBlocks {
    fn drop(&mut self) {
        self.store.forget(self.owner);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    fn held(store: &Store) -> (u64, usize) {
        let kept = lock(&store.kept);
        let cells = kept.owners.values().flat_map(|own| own.blocks.values());
        let bytes = cells.clone().filter_map(|(_, cell)| {
            let cell = lock(cell);
            cell.as_ref().map(|block| block.len() as u64)
        });
        assert_eq!(kept.newest.blocks.len() + kept.others.blocks.len(), cells.clone().count());
        (bytes.sum(), cells.count())
    }

    fn again(owner: &CachedBlocks, number: u64, len: u64) -> bool {
        let mut made = false;
        let bytes = vec![7; usize::try_from(len).unwrap()];
        let make = || {
            made = true;
            Ok(bytes)
        };
        let block = owner.get(number, len, make).unwrap();
        assert_eq!(block.len() as u64, len);
        made
    }

    #[test]
    fn all_sources_share_the_bounds() {
        let store = Arc::new(Store::new(50_000, 100_000));
        let owners: Vec<CachedBlocks> = (0..50).map(|_| CachedBlocks::in_store(&store)).collect();
        for owner in &owners {
            for number in 0..3 {
                assert!(again(owner, number, 10_000));
                assert!(held(&store).0 <= 150_000);
            }
        }
        // The newest of the last four, and nine others; what is kept is not made again.
        assert_eq!(held(&store), (130_000, 13));
        assert!(!again(&owners[49], 0, 10_000));
        assert!(!again(&owners[46], 2, 10_000));
        assert!(again(&owners[0], 2, 10_000));
        drop(owners);
        assert_eq!(held(&store), (0, 0));
        let kept = lock(&store.kept);
        assert_eq!((kept.newest.cost, kept.others.cost), (0, 0));
    }

    #[test]
    fn large_blocks_that_are_read_in_turn_stay() {
        let store = Arc::new(Store::new(40_000, 10_000));
        let owners: Vec<CachedBlocks> = (0..4).map(|_| CachedBlocks::in_store(&store)).collect();
        // Three newest blocks have room together, though two of them pass the bound for others.
        let mut made = 0;
        for _ in 0..16 {
            made += owners[..3].iter().filter(|owner| again(owner, 0, 12_000)).count();
        }
        assert_eq!((made, held(&store)), (3, (36_000, 3)));
        // The next block of one takes the place of its own, not of another's.
        assert!(again(&owners[1], 1, 12_000));
        assert!(!again(&owners[0], 0, 12_000) && !again(&owners[2], 0, 12_000));
        assert_eq!(held(&store), (36_000, 3));
        // A fourth has no room: what came first goes.
        assert!(again(&owners[3], 0, 12_000));
        assert_eq!(held(&store), (36_000, 3));
        assert!(!again(&owners[1], 1, 12_000) && !again(&owners[2], 0, 12_000));
        assert!(again(&owners[0], 0, 12_000));
    }

    #[test]
    fn tiny_blocks_cost_something_and_the_last_one_stays() {
        let store = Arc::new(Store::new(1_000, 10_000));
        let owner = CachedBlocks::in_store(&store);
        for number in 0..1000 {
            owner.get(number, 1, || Ok(vec![1])).unwrap();
        }
        assert_eq!(held(&store), (39, 39));
        owner.get(1000, 50_000, || Ok(vec![2; 50_000])).unwrap();
        assert_eq!(held(&store), (50_038, 39));
        owner.get(1000, 50_000, || panic!("made again")).unwrap();
        let refused = owner.get(1001, 1, || Err(Error::corrupt("x", "y")));
        assert_eq!(refused.unwrap_err().code().as_str(), "x");
        // The long one is not the newest any more, and too long for the others.
        assert!(held(&store).0 < 10_000);
        assert_eq!(*owner.get(1001, 1, || Ok(vec![3])).unwrap(), vec![3]);
    }
}
