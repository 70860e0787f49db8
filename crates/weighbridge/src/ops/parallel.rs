//! Parallel work on the blocks of a tensor, or on many tensors.

use crate::checkpoint::TensorEntry;
use crate::engine::{Scratch, for_each_chunk, read_or_map};
use crate::error::{Error, Result};
use crate::tensor::{Order, Region};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Locks a mutex, also after a panic of another worker: the values in these mutexes are never half changed.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Returns the number of workers for `jobs` jobs; `threads` is the requested number (0: one per processor).
pub(super) fn workers(threads: usize, jobs: u64) -> usize {
    let requested = match threads {
        0 => crate::engine::default_threads(),
        n => n.min(256),
    };
    requested.min(usize::try_from(jobs).unwrap_or(usize::MAX)).max(1)
}

/// Passes every job to `work`, which accumulates into one `A` per worker. Jobs are numbered and handed out in order. Of
/// several failures, the failure of the first job is returned.
pub(super) fn each<J: Send, A: Default + Send>(
    jobs: impl Iterator<Item = J> + Send,
    workers: usize,
    work: impl Fn(&mut A, usize, J) -> Result<()> + Sync,
) -> Result<Vec<A>> {
    let queue = Mutex::new(jobs.enumerate());
    let failure: Mutex<Option<(usize, Error)>> = Mutex::new(None);
    let stop = AtomicBool::new(false);
    let run = || {
        let mut gathered = A::default();
        while !stop.load(Ordering::Relaxed) {
            let Some((number, job)) = lock(&queue).next() else { break };
            if let Err(error) = work(&mut gathered, number, job) {
                stop.store(true, Ordering::Relaxed);
                let mut first = lock(&failure);
                if first.as_ref().is_none_or(|(other, _)| number < *other) {
                    *first = Some((number, error));
                }
            }
        }
        gathered
    };
    let gathered = if workers <= 1 {
        vec![run()]
    } else {
        std::thread::scope(|scope| {
            let handles: Vec<_> = (0..workers).map(|_| scope.spawn(run)).collect();
            handles
                .into_iter()
                .map(|handle| handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect()
        })
    };
    match failure.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner) {
        Some((_, error)) => Err(error),
        None => Ok(gathered),
    }
}

/// Buffers of one worker for reading blocks, with its accumulated result.
#[derive(Default)]
struct Reader<A> {
    gathered: A,
    scratch: Scratch,
    spare: Vec<u8>,
}

/// Reads `entry` once, in blocks of about `block_bytes` in storage order, and passes the number and bytes of each block to
/// `work`: at once or in consecutive parts of whole elements. The blocks do not depend on `threads`; their order of arrival does.
pub(super) fn over_blocks<A: Default + Send>(
    entry: &TensorEntry,
    block_bytes: u64,
    threads: usize,
    work: impl Fn(&mut A, usize, &[u8]) + Sync,
) -> Result<Vec<A>> {
    let order = entry.order();
    let size = entry.dtype().size().unwrap_or(1) as u64;
    let most = (block_bytes / size).max(1);
    let sequential = entry.extents.iter().any(|extent| extent.source.is_sequential());
    let workers = if sequential { 1 } else { workers(threads, entry.elements().div_ceil(most)) };
    let blocks = Region::blocks(&entry.shape, order, most);
    let readers = each(blocks, workers, |reader: &mut Reader<A>, number, block| {
        let Reader { gathered, scratch, spare } = reader;
        for_each_chunk(entry, &block, order, scratch, spare, |bytes| work(gathered, number, bytes))
    })?;
    Ok(readers.into_iter().map(|reader| reader.gathered).collect())
}

/// Passes the bytes of [`Region::blocks`] in row-major order to `take`, one block after the other.
pub(super) fn row_major(
    entry: &TensorEntry,
    block_bytes: u64,
    take: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let size = entry.dtype().size().unwrap_or(1) as u64;
    let (mut scratch, mut spare) = (Scratch::default(), Vec::new());
    for block in Region::blocks(&entry.shape, Order::Row, (block_bytes / size).max(1)) {
        let held = read_or_map(entry, &block, Order::Row, &mut scratch, spare)?;
        take(held.bytes())?;
        held.intact().map_err(|e| e.on_tensor(entry.name()))?;
        spare = held.into_spare();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_job_is_done_once_and_the_first_failure_wins() {
        for count in [1, 2, 7] {
            let gathered = each(0..1000u64, count, |sum: &mut u64, _, job| {
                *sum += job;
                Ok(())
            });
            assert_eq!(gathered.unwrap().iter().sum::<u64>(), 499_500);
            let failed = each(0..1000u64, count, |_: &mut (), number, job| {
                assert_eq!(number as u64, job);
                if job >= 100 { Err(Error::usage("test", job.to_string())) } else { Ok(()) }
            });
            assert_eq!(failed.unwrap_err().message(), "100");
        }
    }

    #[test]
    fn as_many_workers_as_there_is_work() {
        assert_eq!(workers(8, 3), 3);
        assert_eq!(workers(8, 0), 1);
        assert!(workers(0, u64::MAX) >= 1);
        assert_eq!(workers(usize::MAX, u64::MAX), 256);
    }
}
