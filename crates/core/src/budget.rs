//! Budget for reading one file: memory, work and nesting depth.
//!
//! A few bytes of a file can be expensive: one pickle instruction creates an object, a page unpacks to a thousand times its
//! length, ten names share one dataset. The readers of pickles, HDF5 and tables charge one [`Budget`] per file before they
//! allocate or unpack. A file that exceeds it is rejected, whichever reader notices.
//!
//! ```
//! use weighbridge_core::{budget::Budget, limits::Limits};
//!
//! let budget = Budget::new(1_000, &Limits::default());
//! budget.take_memory(64)?; // before allocating an object
//! budget.take_work(4096)?; // before unpacking bytes
//! Budget::check_depth(3)?; // before recursing
//! assert!(budget.take_memory(1 << 40).is_err());
//! # Ok::<(), weighbridge_core::Error>(())
//! ```

use crate::error::{Error, Result};
use crate::limits::Limits;
use crate::phrase;
use crate::phrase::Term;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Memory per byte of a file, and base memory of any file. Well-formed pickles of small values take 20 to 70 times their
/// bytes: a pair of numbers takes 500 bytes for 8 in the file, a word with its number 190 for 10.
const MEMORY_PER_BYTE: u64 = 80;
const BASE_MEMORY: u64 = 16_000_000;
/// Maximum memory for a file of at most 4 MB: attackers can afford files of this size, so tens of megabytes must suffice.
const MAX_MEMORY_OF_SMALL: u64 = 60_000_000;
const SMALL: u64 = 4_000_000;
/// Memory per byte beyond [`SMALL`].
const MEMORY_PER_BYTE_BEYOND: u64 = 48;
/// Work per byte of a file, and base work of any file: one or two seconds of a processor for the smallest.
const WORK_PER_BYTE: u64 = 16;
const BASE_WORK: u64 = 128 << 20;

/// Remaining memory and work for one file. Clones share the counters.
#[derive(Debug, Clone)]
pub struct Budget(Arc<Counts>);

/// All budgets compare equal, so that two [`Limits`] compare by their limits and not by their remaining budgets.
impl PartialEq for Budget {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Budget {}

#[derive(Debug)]
struct Counts {
    memory: Count,
    work: Count,
    /// Limit of the user; both counters rise with it.
    header_bytes: u64,
}

#[derive(Debug)]
struct Count {
    max: u64,
    left: AtomicU64,
}

impl Count {
    fn new(max: u64) -> Self {
        Self { max, left: AtomicU64::new(max) }
    }

    fn left(&self) -> u64 {
        self.left.load(Ordering::Relaxed)
    }

    /// Takes `bytes`, or returns how many are missing.
    fn take(&self, bytes: u64) -> std::result::Result<(), u64> {
        let take = |left: u64| left.checked_sub(bytes);
        let taken = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        taken.map(drop).map_err(|left| bytes.saturating_sub(left))
    }
}

impl Budget {
    /// Maximum nesting depth of lists, groups, types and values. Ordinary files have a third of it.
    pub const DEPTH: usize = 128;

    /// Creates the budget for a file of `len` bytes, or for a folder of files with `len` bytes in total.
    ///
    /// Memory is 16 MB plus 80 times `len`, at most 60 MB, plus 48 times the part of `len` beyond 4 MB. It is at least one
    /// byte for each of [`Limits::pickle_objects`]. Work is 128 MiB plus 16 times `len`. If [`Limits::header_bytes`] is
    /// raised, both rise by the difference.
    pub fn new(len: u64, limits: &Limits) -> Self {
        let small = len.saturating_mul(MEMORY_PER_BYTE).saturating_add(BASE_MEMORY).min(MAX_MEMORY_OF_SMALL);
        let beyond = len.saturating_sub(SMALL).saturating_mul(MEMORY_PER_BYTE_BEYOND);
        let memory = small.saturating_add(beyond).max(limits.pickle_objects);
        let work = len.saturating_mul(WORK_PER_BYTE).saturating_add(BASE_WORK);
        let raised = limits.raised();
        Self(Arc::new(Counts {
            memory: Count::new(memory.saturating_add(raised)),
            work: Count::new(work.saturating_add(raised)),
            header_bytes: limits.header_bytes.max(Limits::default().header_bytes),
        }))
    }

    /// Takes memory for a value that is kept: an object, a name, an entry of the index.
    ///
    /// # Errors
    /// [`crate::Kind::Limit`], `limit`, if fewer bytes are left.
    pub fn take_memory(&self, bytes: u64) -> Result<()> {
        let message = "parsing exceeds the memory budget for a file of this size";
        self.0.memory.take(bytes).map_err(|missing| self.exceeded(message, &self.0.memory, missing))
    }

    /// Returns memory to the budget.
    pub fn give_memory(&self, bytes: u64) {
        let more = |left: u64| Some(left.saturating_add(bytes).min(self.0.memory.max));
        let _always = self.0.memory.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
    }

    /// Takes work for bytes that are read, unpacked, compared or produced, and not kept.
    ///
    /// # Errors
    /// [`crate::Kind::Limit`], `limit`, if fewer bytes are left.
    pub fn take_work(&self, bytes: u64) -> Result<()> {
        let message = "parsing exceeds the work budget for a file of this size";
        self.0.work.take(bytes).map_err(|missing| self.exceeded(message, &self.0.work, missing))
    }

    /// Takes at most the remaining work. For callers that checked [`work_left`](Self::work_left) before.
    pub fn spend_work(&self, bytes: u64) {
        let less = |left: u64| Some(left.saturating_sub(bytes));
        let _always = self.0.work.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// Returns the remaining bytes of memory.
    pub fn memory_left(&self) -> u64 {
        self.0.memory.left()
    }

    /// Returns the remaining bytes of work.
    pub fn work_left(&self) -> u64 {
        self.0.work.left()
    }

    /// Rejects nesting beyond [`DEPTH`](Self::DEPTH) levels. Recursive readers call it before they recurse.
    ///
    /// # Errors
    /// [`crate::Kind::Limit`], `limit`.
    pub fn check_depth(depth: usize) -> Result<()> {
        if depth <= Self::DEPTH {
            return Ok(());
        }
        Err(Error::limit("limit", "the file is nested too deeply")
            .expected(format_args!("at most {} levels", Self::DEPTH))
            .found(format_args!("{depth} levels")))
    }

    fn exceeded(&self, message: &'static str, count: &Count, missing: u64) -> Error {
        // Later requests need more than the bytes missing now, so the budget is doubled at least.
        let enough = self.0.header_bytes.saturating_add(missing.max(count.max));
        Error::limit("limit", message)
            .expected(format_args!("at most {} bytes", count.max))
            .found(format_args!("{} bytes so far", count.max.saturating_add(missing)))
            .hint(phrase![
                "if you trust the file, raise the limit ",
                Term::Limit { name: "header_bytes", enough: Some(enough) }
            ])
    }
}

/// Memory taken from a budget. Dropping it returns the memory.
#[derive(Debug)]
pub struct HeldMemory {
    budget: Budget,
    bytes: u64,
}

impl HeldMemory {
    /// Creates an empty reservation on `budget`.
    pub fn of(budget: &Budget) -> Self {
        Self { budget: budget.clone(), bytes: 0 }
    }

    /// Takes more memory.
    ///
    /// # Errors
    /// As [`Budget::take_memory`].
    pub fn take(&mut self, bytes: u64) -> Result<()> {
        self.budget.take_memory(bytes)?;
        self.bytes = self.bytes.saturating_add(bytes);
        Ok(())
    }

    /// Returns the bytes held.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the budget that the memory was taken from.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Keeps the memory charged: the values stay alive.
    pub fn keep(mut self) {
        self.bytes = 0;
    }
}

impl Drop for HeldMemory {
    fn drop(&mut self) {
        self.budget.give_memory(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_share_the_remaining_budget() {
        let budget = Budget::new(0, &Limits::default());
        let (clone, all) = (budget.clone(), budget.memory_left());
        assert_eq!(all, 16_000_000);
        clone.take_memory(all).unwrap();
        assert_eq!(budget.memory_left(), 0);
        let error = budget.take_memory(10).unwrap_err();
        assert_eq!(error.code().as_str(), "limit");
        assert!(error.hint_text().unwrap().ends_with("`header_bytes` to 116000000"), "{error}");
        budget.give_memory(u64::MAX);
        assert_eq!(clone.memory_left(), all);
        assert!(budget.take_work(u64::MAX).is_err());
        assert_eq!(budget.work_left(), 128 << 20);
    }

    #[test]
    fn budget_depends_on_file_length_and_raised_limits() {
        let defaults = Limits::default();
        let memory = |len| Budget::new(len, &defaults).memory_left();
        assert_eq!(
            [memory(100_000), memory(4_000_000), memory(5_000_000)],
            [24_000_000, 60_000_000, 108_000_000]
        );
        let raised = Limits { header_bytes: defaults.header_bytes + 5, ..defaults.clone() };
        assert_eq!(Budget::new(0, &raised).memory_left(), 16_000_005);
        assert_eq!(Budget::new(1, &raised).work_left(), (128 << 20) + 16 + 5);
        let objects = Limits { pickle_objects: 1 << 40, ..defaults };
        assert_eq!(Budget::new(0, &objects).memory_left(), 1 << 40);
        assert_eq!(Budget::new(u64::MAX, &objects).memory_left(), u64::MAX);
    }

    #[test]
    fn dropped_memory_returns_to_the_budget_unless_kept() {
        let budget = Budget::new(0, &Limits::default());
        let all = budget.memory_left();
        let mut held = HeldMemory::of(&budget);
        held.take(10).unwrap();
        held.take(u64::MAX).unwrap_err();
        assert_eq!((held.bytes(), budget.memory_left()), (10, all - 10));
        drop(held);
        assert_eq!(budget.memory_left(), all);
        let mut held = HeldMemory::of(&budget);
        held.take(10).unwrap();
        held.keep();
        assert_eq!(budget.memory_left(), all - 10);
    }

    #[test]
    fn rejects_nesting_beyond_the_depth_limit() {
        Budget::check_depth(Budget::DEPTH).unwrap();
        assert_eq!(Budget::check_depth(Budget::DEPTH + 1).unwrap_err().code().as_str(), "limit");
    }
}
