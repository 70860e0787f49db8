//! How the elements of a tensor lie in its storage.

use super::saved::Saved;
use super::storage::Storage;
use super::strided::StridedSource;
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use weighbridge_core::checkpoint::{TensorEntry, TensorPath};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::phrase;
use weighbridge_core::phrase::limit;
use weighbridge_core::tensor::{DType, Encoding, Order, Shape};
use weighbridge_io::source::SourceRef;

/// A tensor as a view of a storage. All numbers are claims.
#[derive(Debug)]
pub(super) struct View {
    pub(super) storage: Storage,
    /// The elements that the storage shall have, and the bytes of one.
    pub(super) storage_elements: u64,
    pub(super) storage_unit: u64,
    /// First element and number of elements of the part of the storage that is seen.
    pub(super) part: Option<(u64, u64)>,
    /// The type of the tensor's elements; the rest counts in these.
    pub(super) dtype: DType,
    pub(super) offset: u64,
    pub(super) size: Vec<u64>,
    pub(super) stride: Vec<u64>,
}

/// The entry of a view.
pub(super) fn entry(view: &View, path: TensorPath, saved: &Saved) -> Result<TensorEntry> {
    let bad = |message: &str| Error::corrupt("torch-tensor", message);
    let (start, len) = room(view)?;
    let size = view.dtype.size().ok_or_else(|| bad("its elements are no whole bytes"))? as u64;
    if view.size.len() != view.stride.len() {
        return Err(bad("it has not as many strides as dimensions"));
    }
    let shape = Shape::new(&view.size);
    let bytes = shape.bytes(view.dtype);
    let bytes = bytes.ok_or_else(|| bad("its shape has no length below 2^64").found(&shape))?;
    let encoding = |order| Encoding { order, endian: saved.endian() };
    let source = &view.storage.source;
    if bytes == 0 {
        return TensorEntry::dense(path, view.dtype, shape, source, start, encoding(Order::Row));
    }
    let outside = || {
        Error::corrupt("torch-outside-storage", "the tensor has elements that lie outside of its storage")
            .expected(format_args!("at most {} elements", len / size))
            .found(format_args!("{shape} with strides {:?} from {} on", view.stride, view.offset))
    };
    let last = view.size.iter().zip(&view.stride).try_fold(view.offset, |last, (&extent, &stride)| {
        last.checked_add((extent - 1).checked_mul(stride)?)
    });
    last.filter(|&last| last < len / size).ok_or_else(outside)?;
    let first = start + view.offset * size;
    if let Some(order) = dense_order(&shape, &view.stride) {
        let mut entry = TensorEntry::dense(path, view.dtype, shape, source, first, encoding(order))?;
        entry.extents.iter_mut().for_each(|extent| extent.check = view.storage.check.map(Box::new));
        return Ok(entry);
    }
    // A few bytes must not become an endless file, nor many views of them together.
    if bytes > len {
        let most = saved.limits.repeated_bytes;
        let (before, all) = saved.repeated.add(view, bytes);
        if all > most {
            return Err(Error::limit("torch-repeated", "tensors repeat their elements without measure")
                .expected(format_args!("at most {most} bytes, of all such tensors together"))
                .found(format_args!("{bytes} bytes out of {len}, and {before} before"))
                .hint(phrase!["if you trust the file, raise the limit ", limit("repeated_bytes")]));
        }
    }
    let gathered = StridedSource::new(source.clone(), first, size, &view.size, &view.stride)?;
    let gathered: SourceRef = Arc::new(gathered);
    TensorEntry::dense(path, view.dtype, shape, &gathered, 0, encoding(Order::Row))
}

/// A name more for a view counts this part of it.
const ONCE_MORE: u64 = 64;

/// Tensors that repeat their elements. What several names have, such as a table that all layers share, counts about once.
#[derive(Debug, Default)]
pub(super) struct Repeated(Mutex<(u64, HashSet<Box<[u64]>>)>);

impl Repeated {
    /// Counts a view of so many `bytes`; what all had before, and have with it.
    fn add(&self, view: &View, bytes: u64) -> (u64, u64) {
        let mut counted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (sum, seen) = &mut *counted;
        let place =
            [view.storage.offset, view.storage.len, view.offset, view.part.map_or(0, |(first, _)| first)];
        let source = Arc::as_ptr(&view.storage.source).cast::<()>().addr() as u64;
        let key = [&[source][..], &place, &view.size, &view.stride].concat().into_boxed_slice();
        let before = *sum;
        *sum = sum.saturating_add(if seen.insert(key) { bytes } else { bytes / ONCE_MORE });
        (before, *sum)
    }
}

/// Offset and length in bytes of what the tensor may lie in.
fn room(view: &View) -> Result<(u64, u64)> {
    let wrong = || {
        Error::corrupt("torch-storage-length", "the storage has another length than is said of it")
            .expected(format_args!("{} elements of {} bytes", view.storage_elements, view.storage_unit))
            .found(format_args!("{} bytes", view.storage.len))
    };
    let len = view.storage_elements.checked_mul(view.storage_unit).ok_or_else(wrong)?;
    if len != view.storage.len {
        return Err(wrong());
    }
    let Some((first, count)) = view.part else { return Ok((view.storage.offset, len)) };
    let end = first.checked_add(count).filter(|&end| end <= view.storage_elements).ok_or_else(wrong)?;
    let (first, end) = (first * view.storage_unit, end * view.storage_unit);
    Ok((view.storage.offset + first, end - first))
}

/// The order in which the elements lie densely. Strides of dimensions of one index mean nothing.
fn dense_order(shape: &Shape, stride: &[u64]) -> Option<Order> {
    [Order::Row, Order::Column].into_iter().find(|&order| {
        let dense = shape.strides(order);
        shape.dims().iter().zip(stride.iter().zip(dense)).all(|(&extent, (&a, b))| extent == 1 || a == b)
    })
}
