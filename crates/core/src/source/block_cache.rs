//! Cache of unpacked blocks, shared by all sources of an opened checkpoint.
//!
//! A source with packed blocks needs the same block for several rows. The cache is part of [`Limits`](crate::Limits): files
//! opened with the same limits, or with clones of them, share it. A checkpoint of a thousand packed tables takes no more
//! memory than one table. There is no process-wide cache.
//!
//! The newest block of each source has a bound of its own. Otherwise sources with large blocks, read in turn, would evict each
//! other's at every step. Within each bound, the oldest block is evicted first.
//!
//! ```text
//! newest block of each source   384 MiB in total; beyond that the oldest of them count as others
//! others                        128 MiB in total
//! all                           512 MiB, for any number of sources; more only if a single block
//!                               is longer than 384 MiB: the newest one is never evicted
//! ```

use crate::error::Result;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Maximum bytes of the newest blocks of all sources. The latest block is kept at any length.
const MAX_NEWEST: u64 = 384 << 20;
/// Maximum bytes of all other blocks.
const MAX_OTHERS: u64 = 128 << 20;
/// Overhead per block in bytes: blocks may be tiny.
const BLOCK_OVERHEAD: u64 = 256;

/// Unpacked blocks of several sources, at most 512 MiB in total. Clones share the cache.
///
/// `Limits::default()` creates a new cache. To bound the cache for many files together, open them with clones of one
/// [`Limits`](crate::Limits).
#[derive(Debug, Clone)]
pub struct BlockCache(Arc<Store>);

impl Default for BlockCache {
    fn default() -> Self {
        Self(Arc::new(Store::new(MAX_NEWEST, MAX_OTHERS)))
    }
}

/// All caches compare equal, so that [`Limits`](crate::Limits) compare by their numbers.
impl PartialEq for BlockCache {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for BlockCache {}

impl BlockCache {
    /// Creates an empty cache.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers a source. Its blocks are dropped with the returned value, or earlier when evicted.
    #[must_use]
    pub fn blocks(&self) -> CachedBlocks {
        CachedBlocks::in_store(&self.0)
    }
}

/// Block, or `None` until it is unpacked. The lock is held while unpacking.
type Cell = Arc<Mutex<Option<Arc<Vec<u8>>>>>;

/// Blocks of several owners, under one pair of bounds.
#[derive(Debug)]
struct Store {
    max_newest: u64,
    max_others: u64,
    owners: AtomicU64,
    cached: Mutex<Cached>,
}

#[derive(Debug, Default)]
struct Cached {
    owners: HashMap<u64, OwnerBlocks>,
    /// Newest blocks of owners.
    newest: Queue,
    /// All others.
    others: Queue,
    /// Time stamp of the next block: blocks added so far.
    clock: u64,
}

/// Blocks of one owner.
#[derive(Debug, Default)]
struct OwnerBlocks {
    /// Time stamp and block by number.
    blocks: HashMap<u64, (u64, Cell)>,
    /// Time stamp of the last one. It may be evicted by now.
    newest: u64,
}

/// Blocks in the order of their time stamps.
#[derive(Debug, Default)]
struct Queue {
    /// Owner, number and cost by time stamp.
    blocks: BTreeMap<u64, (u64, u64, u64)>,
    /// Total cost in bytes.
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

impl Cached {
    /// Adds a block of `cost` bytes as the newest of its owner.
    fn add(&mut self, owner: u64, number: u64, cost: u64) -> Cell {
        let (cell, when) = (Cell::default(), self.clock);
        self.clock += 1;
        let own = self.owners.entry(owner).or_default();
        own.blocks.insert(number, (when, cell.clone()));
        let before = std::mem::replace(&mut own.newest, when);
        // For a new owner `before` is 0, which may be the block of another owner.
        if own.blocks.len() > 1 {
            self.demote(before);
        }
        self.newest.add(when, (owner, number, cost));
        cell
    }

    /// Moves a block from the newest to the others.
    fn demote(&mut self, when: u64) {
        if let Some(block) = self.newest.remove(when) {
            self.others.add(when, block);
        }
    }

    /// Evicts blocks until both bounds hold. The latest block stays.
    fn keep_within(&mut self, max_newest: u64, max_others: u64) {
        while self.newest.cost > max_newest
            && self.newest.blocks.len() > 1
            && let Some(when) = self.newest.first()
        {
            self.demote(when);
        }
        while self.others.cost > max_others
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
    fn new(max_newest: u64, max_others: u64) -> Self {
        Self { max_newest, max_others, owners: AtomicU64::new(0), cached: Mutex::default() }
    }

    fn cell(&self, owner: u64, number: u64, len: u64) -> Cell {
        let mut cached = lock(&self.cached);
        if let Some((_, cell)) = cached.owners.get(&owner).and_then(|own| own.blocks.get(&number)) {
            return cell.clone();
        }
        let cell = cached.add(owner, number, len.saturating_add(BLOCK_OVERHEAD));
        cached.keep_within(self.max_newest, self.max_others);
        cell
    }

    fn remove_owner(&self, owner: u64) {
        let mut cached = lock(&self.cached);
        for (when, _) in cached.owners.remove(&owner).into_iter().flat_map(|own| own.blocks.into_values()) {
            cached.newest.remove(when);
            cached.others.remove(when);
        }
    }
}

/// Blocks of one source in a [`BlockCache`].
#[derive(Debug)]
pub struct CachedBlocks {
    store: Arc<Store>,
    owner: u64,
}

impl CachedBlocks {
    fn in_store(store: &Arc<Store>) -> Self {
        Self { store: store.clone(), owner: store.owners.fetch_add(1, Ordering::Relaxed) }
    }

    /// Returns the cached block of that number, or caches the result of `make`, of `len` bytes. Threads that request the same
    /// block wait for the first one. Errors are not cached.
    ///
    /// # Errors
    /// Those of `make`.
    pub fn get(&self, number: u64, len: u64, make: impl FnOnce() -> Result<Vec<u8>>) -> Result<Arc<Vec<u8>>> {
        let cell = self.store.cell(self.owner, number, len);
        // A failed thread leaves `None`, so a poisoned lock is still consistent.
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
        self.store.remove_owner(self.owner);
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
        let cached = lock(&store.cached);
        let cells = cached.owners.values().flat_map(|own| own.blocks.values());
        let bytes = cells.clone().filter_map(|(_, cell)| {
            let cell = lock(cell);
            cell.as_ref().map(|block| block.len() as u64)
        });
        assert_eq!(cached.newest.blocks.len() + cached.others.blocks.len(), cells.clone().count());
        (bytes.sum(), cells.count())
    }

    /// Gets a block; true if it was not cached.
    fn is_made(owner: &CachedBlocks, number: u64, len: u64) -> bool {
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
                assert!(is_made(owner, number, 10_000));
                assert!(held(&store).0 <= 150_000);
            }
        }
        // The newest of the last four, and nine others.
        assert_eq!(held(&store), (130_000, 13));
        assert!(!is_made(&owners[49], 0, 10_000));
        assert!(!is_made(&owners[46], 2, 10_000));
        assert!(is_made(&owners[0], 2, 10_000));
        drop(owners);
        assert_eq!(held(&store), (0, 0));
        let cached = lock(&store.cached);
        assert_eq!((cached.newest.cost, cached.others.cost), (0, 0));
    }

    #[test]
    fn large_blocks_read_in_turn_stay_cached() {
        let store = Arc::new(Store::new(40_000, 10_000));
        let owners: Vec<CachedBlocks> = (0..4).map(|_| CachedBlocks::in_store(&store)).collect();
        // Three newest blocks fit, though two of them exceed the bound for others.
        let mut made = 0;
        for _ in 0..16 {
            made += owners[..3].iter().filter(|owner| is_made(owner, 0, 12_000)).count();
        }
        assert_eq!((made, held(&store)), (3, (36_000, 3)));
        // The next block of a source evicts its own previous block.
        assert!(is_made(&owners[1], 1, 12_000));
        assert!(!is_made(&owners[0], 0, 12_000) && !is_made(&owners[2], 0, 12_000));
        assert_eq!(held(&store), (36_000, 3));
        // A fourth source evicts the oldest block.
        assert!(is_made(&owners[3], 0, 12_000));
        assert_eq!(held(&store), (36_000, 3));
        assert!(!is_made(&owners[1], 1, 12_000) && !is_made(&owners[2], 0, 12_000));
        assert!(is_made(&owners[0], 0, 12_000));
    }

    #[test]
    fn tiny_blocks_have_overhead_and_the_latest_stays() {
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
        // The long one is no longer the newest, and exceeds the bound for others.
        assert!(held(&store).0 < 10_000);
        assert_eq!(*owner.get(1001, 1, || Ok(vec![3])).unwrap(), vec![3]);
    }
}
