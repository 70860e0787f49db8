//! Blocks of a table, read and processed in parallel.

use super::Table;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::read::Scratch;
use weighbridge_io::engine::{Progress, default_threads};

/// Bytes of a block of rows.
const BLOCK_BYTES: u64 = 2 << 20;
/// Maximum number of rows of a block.
const MAX_ROWS: u64 = 8192;
/// Maximum number of threads.
const MAX_THREADS: usize = 256;

/// Threads and progress of a job.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Workers<'a> {
    /// Number of threads; 0 for one a processor.
    pub(crate) threads: usize,
    pub(crate) progress: &'a dyn Progress,
}

/// Reads `rows` of a table in blocks, and passes the first row and the elements of each to `work`. Each thread accumulates
/// into a state of its own.
///
/// # Errors
/// Errors of reading and of `work`; [`weighbridge_core::Kind::Cancelled`].
pub(crate) fn each_block<S: Default + Send>(
    table: &Table,
    rows: Range<u64>,
    workers: Workers<'_>,
    work: impl Fn(&mut S, u64, Vec<f32>) -> Result<()> + Sync,
) -> Result<Vec<S>> {
    let count = rows.end.saturating_sub(rows.start);
    let size = (BLOCK_BYTES / table.row_bytes()).clamp(1, MAX_ROWS);
    let blocks = count.div_ceil(size);
    let threads = if workers.threads == 0 { default_threads() } else { workers.threads };
    let threads = threads.min(MAX_THREADS).min(usize::try_from(blocks).unwrap_or(usize::MAX)).max(1);
    let next = AtomicU64::new(0);
    let failure: Mutex<Option<Error>> = Mutex::new(None);
    let fail = |error| {
        // The other threads find no block.
        next.store(blocks, Ordering::Relaxed);
        failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    };
    let run = || {
        let (mut state, mut scratch) = (S::default(), Scratch::default());
        loop {
            let block = next.fetch_add(1, Ordering::Relaxed);
            if block >= blocks {
                return state;
            }
            if workers.progress.stopped() {
                fail(Error::cancelled());
                return state;
            }
            let first = rows.start + block * size;
            let end = rows.end.min(first + size);
            let done =
                table.block(first..end, &mut scratch).and_then(|values| work(&mut state, first, values));
            if let Err(error) = done {
                fail(error);
                return state;
            }
            workers.progress.advance((end - first) * table.row_bytes());
        }
    };
    let states = if threads == 1 {
        vec![run()]
    } else {
        std::thread::scope(|scope| {
            let handles: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
            let join = |handle: std::thread::ScopedJoinHandle<'_, S>| {
                handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            handles.into_iter().map(join).collect()
        })
    };
    match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(error),
        None => Ok(states),
    }
}
