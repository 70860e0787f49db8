//! Loading of whole checkpoints into memory.

use super::default_threads;
use crate::source::to_usize;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use weighbridge_core::checkpoint::TensorEntry;
use weighbridge_core::error::Result;
use weighbridge_core::tensor::{Endian, Order};

/// Reads every tensor of `tensors` into memory, dense and little-endian: in `order`, or in the stored order of
/// each tensor where `order` is `None`. The results are in the order of `tensors`.
///
/// `threads` of 0 means one for each processor. Sequential sources are best read with one.
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

/// Reads the elements of a tensor; directly into the result where the stored layout is the requested one.
fn whole(tensor: &TensorEntry, order: Order) -> Result<Vec<u8>> {
    let direct = tensor.single_extent().filter(|extent| {
        let same_order = extent.encoding.order == order || tensor.shape.is_order_free();
        let little = extent.encoding.endian == Endian::Little || tensor.stored.swap_unit() == 1;
        same_order && little && tensor.cast.is_none() && Some(extent.len) == tensor.shape.bytes(tensor.stored)
    });
    let Some(extent) = direct else { return tensor.read_tensor(order) };
    crate::source::check_range(&*extent.source, extent.offset, extent.len)
        .map_err(|e| e.on_tensor(tensor.name()))?;
    // Fresh pages are zero without being written; huge ones would take longer to allocate.
    let mut buffer = vec![0; to_usize(extent.len)?];
    extent.source.read_at(extent.offset, &mut buffer).map_err(|e| e.on_tensor(tensor.name()))?;
    Ok(buffer)
}
