//! Blocks that were unpacked and may be asked for again, of all sources together.
//!
//! A source that unpacks what it reads comes back to the same block with the next row. What is
//! kept for that is counted over the whole process: a checkpoint of a thousand packed tables, or a
//! thousand files of one, takes no more memory than one table.

use crate::error::Result;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

/// Bytes that all blocks may have together. The one that came last is kept whatever its length.
const MOST: u64 = 128 << 20;
/// What a block costs besides its bytes: blocks may be tiny.
const EACH: u64 = 256;

/// The blocks of the whole process.
static ALL: LazyLock<Arc<Store>> = LazyLock::new(|| Arc::new(Store::new(MOST)));

/// A block that is or will be made. Its lock is held while that is done.
type Cell = Arc<Mutex<Option<Arc<[u8]>>>>;

/// Blocks of several owners, under one bound.
#[derive(Debug)]
struct Store {
    most: u64,
    owners: AtomicU64,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    /// By owner and number: when it came, what it costs, the block.
    blocks: HashMap<u64, HashMap<u64, (u64, u64, Cell)>>,
    /// Owner and number by when they came: first come, first dropped.
    order: BTreeMap<u64, (u64, u64)>,
    /// Blocks that came so far.
    came: u64,
    /// What all of them cost, in bytes.
    cost: u64,
}

impl Store {
    fn new(most: u64) -> Self {
        Self { most, owners: AtomicU64::new(0), kept: Mutex::default() }
    }

    fn cell(&self, owner: u64, number: u64, len: u64) -> Cell {
        let mut kept = lock(&self.kept);
        if let Some((.., cell)) = kept.blocks.get(&owner).and_then(|own| own.get(&number)) {
            return cell.clone();
        }
        let (cell, cost) = (Cell::default(), len.saturating_add(EACH));
        let when = kept.came;
        kept.came += 1;
        kept.blocks.entry(owner).or_default().insert(number, (when, cost, cell.clone()));
        kept.order.insert(when, (owner, number));
        kept.cost = kept.cost.saturating_add(cost);
        while kept.cost > self.most && kept.order.len() > 1 {
            let Some((_, (owner, number))) = kept.order.pop_first() else { break };
            let Some(own) = kept.blocks.get_mut(&owner) else { continue };
            let dropped = own.remove(&number);
            if own.is_empty() {
                kept.blocks.remove(&owner);
            }
            kept.cost = kept.cost.saturating_sub(dropped.map_or(0, |(_, cost, _)| cost));
        }
        cell
    }

    fn forget(&self, owner: u64) {
        let mut kept = lock(&self.kept);
        for (when, cost, _) in kept.blocks.remove(&owner).into_iter().flat_map(HashMap::into_values) {
            kept.order.remove(&when);
            kept.cost = kept.cost.saturating_sub(cost);
        }
    }
}

/// The blocks of one source among those of the process. They are dropped with it, or earlier where
/// others need the room.
#[derive(Debug)]
pub(crate) struct KeptBlocks {
    store: Arc<Store>,
    owner: u64,
}

impl KeptBlocks {
    /// None so far.
    pub(crate) fn new() -> Self {
        Self::in_store(&ALL)
    }

    fn in_store(store: &Arc<Store>) -> Self {
        Self { store: store.clone(), owner: store.owners.fetch_add(1, Ordering::Relaxed) }
    }

    /// The block of that number: the one that is kept, else what `make` gives, of `len` bytes. A
    /// thread that asks for a block that another one makes waits for it; one that failed is made
    /// again.
    ///
    /// # Errors
    /// What `make` says.
    pub(crate) fn get(
        &self,
        number: u64,
        len: u64,
        make: impl FnOnce() -> Result<Vec<u8>>,
    ) -> Result<Arc<[u8]>> {
        let cell = self.store.cell(self.owner, number, len);
        // A thread that failed left nothing half done.
        let mut block = lock(&cell);
        if let Some(block) = &*block {
            return Ok(block.clone());
        }
        let made: Arc<[u8]> = make()?.into();
        *block = Some(made.clone());
        Ok(made)
    }
}

impl Drop for KeptBlocks {
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
        let bytes = kept.blocks.values().flat_map(HashMap::values).filter_map(|(.., cell)| {
            let cell = lock(cell);
            cell.as_ref().map(|block| block.len() as u64)
        });
        assert_eq!(kept.order.len(), kept.blocks.values().map(HashMap::len).sum::<usize>());
        (bytes.sum(), kept.order.len())
    }

    #[test]
    fn all_sources_share_one_bound() {
        let store = Arc::new(Store::new(100_000));
        let owners: Vec<KeptBlocks> = (0..50).map(|_| KeptBlocks::in_store(&store)).collect();
        for owner in &owners {
            for number in 0..3 {
                let block = owner.get(number, 10_000, || Ok(vec![7; 10_000])).unwrap();
                assert_eq!(block.len(), 10_000);
                assert!(held(&store).0 <= 100_000);
            }
        }
        assert_eq!(held(&store), (90_000, 9));
        // The last three owners have them; what is kept is not made again.
        owners[49].get(0, 10_000, || panic!("made again")).unwrap();
        owners[47].get(2, 10_000, || panic!("made again")).unwrap();
        let mut made = false;
        owners[0].get(0, 10_000, || Ok(vec![u8::from(std::mem::replace(&mut made, true)); 10_000])).unwrap();
        assert!(made);
        drop(owners);
        assert_eq!(held(&store), (0, 0));
        assert_eq!(lock(&store.kept).cost, 0);
    }

    #[test]
    fn tiny_blocks_cost_something_and_the_last_one_stays() {
        let store = Arc::new(Store::new(10_000));
        let owner = KeptBlocks::in_store(&store);
        for number in 0..1000 {
            owner.get(number, 1, || Ok(vec![1])).unwrap();
        }
        assert_eq!(held(&store), (38, 38));
        owner.get(1000, 50_000, || Ok(vec![2; 50_000])).unwrap();
        assert_eq!(held(&store), (50_000, 1));
        owner.get(1000, 50_000, || panic!("made again")).unwrap();
        let refused = owner.get(1001, 1, || Err(Error::corrupt("x", "y")));
        assert_eq!(refused.unwrap_err().code(), "x");
        assert_eq!(*owner.get(1001, 1, || Ok(vec![3])).unwrap(), [3]);
    }
}
