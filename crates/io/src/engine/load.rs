//! Loading whole checkpoints into memory.

use super::default_threads;
use crate::source::to_usize;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use weighbridge_core::checkpoint::TensorEntry;
use weighbridge_core::error::Result;
use weighbridge_core::tensor::{Endian, Order};

/// Reads every tensor of `tensors` into memory, dense and little-endian: in `order`, or each in
/// the order in which it is stored where that is `None`. The result is in the order given.
///
/// `threads` of 0 is one for each processor. Sequential sources are best read with one.
///
/// # Errors
/// As [`TensorEntry::read_tensor`]; the first failure by position.
pub fn load(tensors: &[TensorEntry], order: Option<Order>, threads: usize) -> Result<Vec<Vec<u8>>> {
    let threads = if threads == 0 { default_threads() } else { threads };
    let next = AtomicUsize::new(0);
    let slots: Vec<Mutex<Option<Result<Vec<u8>>>>> = tensors.iter().map(|_| Mutex::new(None)).collect();
    let work = || {
        while let Some((tensor, slot)) = {
            let i = next.fetch_add(1, Ordering::Relaxed);
            tensors.get(i).zip(slots.get(i))
        } {
            let bytes = whole(tensor, order.unwrap_or(tensor.order()));
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

/// The elements of a tensor. Where they lie in the source as they are wanted, they are read straight
/// into their place.
fn whole(tensor: &TensorEntry, order: Order) -> Result<Vec<u8>> {
    let as_it_lies = tensor.single_extent().filter(|extent| {
        let same_order = extent.encoding.order == order || tensor.shape.is_order_free();
        let little = extent.encoding.endian == Endian::Little || tensor.stored.swap_unit() == 1;
        same_order && little && tensor.cast.is_none() && Some(extent.len) == tensor.shape.bytes(tensor.stored)
    });
    let Some(extent) = as_it_lies else { return tensor.read_tensor(order) };
    crate::source::check_range(&*extent.source, extent.offset, extent.len)
        .map_err(|e| e.on_tensor(tensor.name()))?;
    // Fresh pages are zero without being written; huge ones would take longer to be had.
    let mut buffer = vec![0; to_usize(extent.len)?];
    extent.source.read_at(extent.offset, &mut buffer).map_err(|e| e.on_tensor(tensor.name()))?;
    Ok(buffer)
}
