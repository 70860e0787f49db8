//! Loading whole checkpoints into memory.

use super::{default_threads, read_tensor};
use crate::checkpoint::TensorEntry;
use crate::error::Result;
use crate::tensor::Order;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Reads every tensor of `tensors` into memory, dense and little-endian: in `order`, or each in
/// the order in which it is stored where that is `None`. The result is in the order given.
///
/// `threads` of 0 is one for each processor. Sequential sources are best read with one.
///
/// # Errors
/// As [`read_tensor`]; the first failure by position.
pub fn load(tensors: &[TensorEntry], order: Option<Order>, threads: usize) -> Result<Vec<Vec<u8>>> {
    let threads = if threads == 0 { default_threads() } else { threads };
    let next = AtomicUsize::new(0);
    let slots: Vec<Mutex<Option<Result<Vec<u8>>>>> = tensors.iter().map(|_| Mutex::new(None)).collect();
    let work = || {
        while let Some((tensor, slot)) = {
            let i = next.fetch_add(1, Ordering::Relaxed);
            tensors.get(i).zip(slots.get(i))
        } {
            let bytes = read_tensor(tensor, order.unwrap_or(tensor.order()));
            if let Ok(mut slot) = slot.lock() {
                *slot = Some(bytes);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.min(tensors.len()) {
            scope.spawn(work);
        }
        work();
    });
    slots.into_iter().map(|slot| slot.into_inner().ok().flatten().unwrap_or_else(|| Ok(Vec::new()))).collect()
}
