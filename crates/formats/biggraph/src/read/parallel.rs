//! Parallel opening of many small files.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};
use weighbridge_io::engine::default_threads;

/// Minimum number of files per thread.
const MIN_FILES_PER_THREAD: usize = 8;

/// Results of `work` for each item, in the order of the items.
pub(in super::super) fn map<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let threads = default_threads().min(items.len() / MIN_FILES_PER_THREAD);
    if threads <= 1 {
        return items.iter().map(work).collect();
    }
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, R)>> = Mutex::new(Vec::with_capacity(items.len()));
    let run = || {
        let mut own = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(number) else { break };
            own.push((number, work(item)));
        }
        done.lock().unwrap_or_else(PoisonError::into_inner).extend(own);
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(run);
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn results_keep_the_order_of_the_items() {
        for count in [0u32, 1, 7, 8, 1000] {
            let items: Vec<u32> = (0..count).collect();
            let doubled: Vec<u32> = items.iter().map(|n| n * 2).collect();
            assert_eq!(super::map(&items, |n| n * 2), doubled);
        }
    }
}
