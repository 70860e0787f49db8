//! Budget for reading one file: memory, work and depth.
//!
//! A few bytes of a file can ask for very much: an instruction of a pickle makes an object, a page unpacks to a thousand times
//! its length, ten names share one dataset. All that readers of pickles, HDF5 and tables make of one file
//! is taken from its one [`Budget`] before it is made, so a file that asks for too much is refused wherever it does so.
//!
//! ```
//! use weighbridge_core::{budget::Budget, limits::Limits};
//!
//! let budget = Budget::new(1_000, &Limits::default());
//! budget.take_memory(64)?; // before the object is made
//! budget.take_work(4096)?; // before the bytes are unpacked
//! Budget::check_depth(3)?; // before the reader calls itself
//! assert!(budget.take_memory(1 << 40).is_err());
//! # Ok::<(), weighbridge_core::Error>(())
//! ```

use crate::error::{Error, Result};
use crate::limits::Limits;
use crate::phrase;
use crate::phrase::Term;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Memory for each byte of a file, and for any file. Well-formed pickles of nothing but small values take 20 to 70 times their
/// bytes: a pair of numbers 500 bytes for 8, a word and its number 190 for 10.
const MEMORY_TIMES: u64 = 80;
const MEMORY_FREE: u64 = 16_000_000;
/// A file of 4 MB may be made for this alone, and must not take more than tens of megabytes.
const MEMORY_OF_SMALL: u64 = 60_000_000;
const SMALL: u64 = 4_000_000;
/// Memory for each byte beyond that.
const MEMORY_TIMES_BEYOND: u64 = 48;
/// Work for each byte of a file, and for any file: a second or two of a processor for the smallest.
const WORK_TIMES: u64 = 16;
const WORK_FREE: u64 = 128 << 20;

/// Memory and work that are left for one file. Clones share the counts.
#[derive(Debug, Clone)]
pub struct Budget(Arc<Counts>);

/// Budgets compare equal: two [`Limits`] with the same limits are the same, however much of a budget is left.
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
    /// The limit of the user by which both rise.
    header_bytes: u64,
}

#[derive(Debug)]
struct Count {
    most: u64,
    left: AtomicU64,
}

impl Count {
    fn new(most: u64) -> Self {
        Self { most, left: AtomicU64::new(most) }
    }

    fn left(&self) -> u64 {
        self.left.load(Ordering::Relaxed)
    }

    /// The bytes that are missing where so many are not left.
    fn take(&self, bytes: u64) -> std::result::Result<(), u64> {
        let take = |left: u64| left.checked_sub(bytes);
        let taken = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        taken.map(drop).map_err(|left| bytes.saturating_sub(left))
    }
}

impl Budget {
    /// Deepest nesting of lists, groups, types and values that is followed. Ordinary files have a third of it.
    pub const DEPTH: usize = 128;

    /// The budget for a file of `len` bytes, or a folder of files of so many bytes together.
    ///
    /// Memory is 80 times the file and 16 MB, at most 60 MB and 48 times what is beyond 4 MB; at least a byte for each object
    /// that [`Limits::pickle_objects`] allows. Work is 16 times the file and 128 MiB. By as much as
    /// [`Limits::header_bytes`] is raised, both rise.
    pub fn new(len: u64, limits: &Limits) -> Self {
        let small = len.saturating_mul(MEMORY_TIMES).saturating_add(MEMORY_FREE).min(MEMORY_OF_SMALL);
        let beyond = len.saturating_sub(SMALL).saturating_mul(MEMORY_TIMES_BEYOND);
        let memory = small.saturating_add(beyond).max(limits.pickle_objects);
        let work = len.saturating_mul(WORK_TIMES).saturating_add(WORK_FREE);
        let raised = limits.raised();
        Self(Arc::new(Counts {
            memory: Count::new(memory.saturating_add(raised)),
            work: Count::new(work.saturating_add(raised)),
            header_bytes: limits.header_bytes.max(Limits::default().header_bytes),
        }))
    }

    /// Takes memory for what is about to be made and stays: an object, a name, an entry of the index.
    ///
    /// # Errors
    /// [`crate::Kind::Limit`], `limit`, where so many bytes are not left.
    pub fn take_memory(&self, bytes: u64) -> Result<()> {
        let what = "parsing needs more memory than a file of this length may take";
        self.0.memory.take(bytes).map_err(|missing| self.refusal(what, &self.0.memory, missing))
    }

    /// Gives memory back that is held no more.
    pub fn give_memory(&self, bytes: u64) {
        let more = |left: u64| Some(left.saturating_add(bytes).min(self.0.memory.most));
        let _always = self.0.memory.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
    }

    /// Takes bytes that are about to be read, unpacked, compared or produced, and need not stay.
    ///
    /// # Errors
    /// [`crate::Kind::Limit`], `limit`, where so many bytes are not left.
    pub fn take_work(&self, bytes: u64) -> Result<()> {
        let what = "the file is read or unpacked too often for its length";
        self.0.work.take(bytes).map_err(|missing| self.refusal(what, &self.0.work, missing))
    }

    /// Takes work that is done, as far as it is left: for those who looked before how much they may do.
    pub fn spend_work(&self, bytes: u64) {
        let less = |left: u64| Some(left.saturating_sub(bytes));
        let _always = self.0.work.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// Bytes of memory that are left.
    pub fn memory_left(&self) -> u64 {
        self.0.memory.left()
    }

    /// Bytes of work that are left.
    pub fn work_left(&self) -> u64 {
        self.0.work.left()
    }

    /// Refuses nesting of more than [`DEPTH`](Self::DEPTH) levels: a reader that calls itself asks before it does.
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

    fn refusal(&self, what: &'static str, count: &Count, missing: u64) -> Error {
        // More will be asked for: twice as much goes further than what was missing now.
        let enough = self.0.header_bytes.saturating_add(missing.max(count.most));
        Error::limit("limit", what)
            .expected(format_args!("at most {} bytes", count.most))
            .found(format_args!("{} bytes so far", count.most.saturating_add(missing)))
            .hint(phrase![
                "if you trust the file, raise the limit ",
                Term::Limit { name: "header_bytes", enough: Some(enough) }
            ])
    }
}

/// Memory that was taken of a budget. It is given back when this is dropped.
#[derive(Debug)]
pub struct HeldMemory {
    budget: Budget,
    bytes: u64,
}

impl HeldMemory {
    /// Holds nothing yet.
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

    /// Bytes that are held now.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The budget that it was taken of.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Leaves the memory taken: what was made stays.
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
    fn what_is_taken_is_gone_for_all_clones_until_it_is_given_back() {
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
    fn a_budget_goes_by_the_file_and_by_what_the_user_raised() {
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
    fn what_is_held_is_given_back_unless_it_is_kept() {
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
    fn depth_has_an_end() {
        Budget::check_depth(Budget::DEPTH).unwrap();
        assert_eq!(Budget::check_depth(Budget::DEPTH + 1).unwrap_err().code().as_str(), "limit");
    }
}
