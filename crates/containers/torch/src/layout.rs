//! Layout of the elements of a tensor in its storage.

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

/// A tensor as a view of a storage. All numbers are unchecked values of the file.
#[derive(Debug)]
pub(super) struct View {
    pub(super) storage: Storage,
    /// Stated number of elements of the storage, and bytes per element.
    pub(super) storage_elements: u64,
    pub(super) storage_unit: u64,
    /// First element and number of elements of the visible part of the storage.
    pub(super) part: Option<(u64, u64)>,
    /// Element type of the tensor; offset and strides count elements of this type.
    pub(super) dtype: DType,
    pub(super) offset: u64,
    pub(super) size: Vec<u64>,
    pub(super) stride: Vec<u64>,
}

/// Creates the index entry of a view.
pub(super) fn entry(view: &View, path: TensorPath, saved: &Saved) -> Result<TensorEntry> {
    let bad = |message: &str| Error::corrupt("torch-tensor", message);
    let (start, len) = storage_range(view)?;
    let size = view.dtype.size().ok_or_else(|| bad("the elements are not whole bytes"))? as u64;
    if view.size.len() != view.stride.len() {
        return Err(bad("the numbers of strides and dimensions differ"));
    }
    let shape = Shape::new(&view.size);
    let bytes = shape.bytes(view.dtype);
    let bytes = bytes.ok_or_else(|| bad("the tensor has 2^64 bytes or more").found(&shape))?;
    let encoding = |order| Encoding { order, endian: saved.endian() };
    let source = &view.storage.source;
    if bytes == 0 {
        return TensorEntry::dense(path, view.dtype, shape, source, start, encoding(Order::Row));
    }
    let outside = || {
        Error::corrupt("torch-outside-storage", "the tensor exceeds its storage")
            .expected(format_args!("at most {} elements", len / size))
            .found(format_args!("shape {shape} with strides {:?} at element {}", view.stride, view.offset))
    };
    let last = view
        .size
        .iter()
        .zip(&view.stride)
        .try_fold(view.offset, |last, (&dim, &stride)| last.checked_add((dim - 1).checked_mul(stride)?));
    last.filter(|&last| last < len / size).ok_or_else(outside)?;
    let first = start + view.offset * size;
    if let Some(order) = dense_order(&shape, &view.stride) {
        let mut entry = TensorEntry::dense(path, view.dtype, shape, source, first, encoding(order))?;
        entry.extents.iter_mut().for_each(|extent| extent.check.clone_from(&view.storage.check));
        return Ok(entry);
    }
    // A few bytes must not become a huge file, neither in one view nor in many.
    if bytes > len {
        let most = saved.limits.repeated_bytes;
        let (before, all) = saved.repeated.add(view, bytes);
        if all > most {
            return Err(Error::limit("torch-repeated", "expanded tensors repeat too many bytes")
                .expected(format_args!("at most {most} bytes in all expanded tensors"))
                .found(format_args!("{bytes} bytes from a storage of {len}, after {before} bytes"))
                .hint(phrase!["if you trust the file, raise the limit ", limit("repeated_bytes")]));
        }
    }
    let gathered = StridedSource::new(source.clone(), first, size, &view.size, &view.stride)?;
    let gathered: SourceRef = Arc::new(gathered);
    let mut entry = TensorEntry::dense(path, view.dtype, shape, &gathered, 0, encoding(Order::Row))?;
    entry.extents.iter_mut().for_each(|extent| extent.check.clone_from(&view.storage.check));
    Ok(entry)
}

/// Another name for a counted view counts this fraction of its bytes.
const ALIAS_DIVISOR: u64 = 64;

/// Total of the tensors that repeat their elements. A view with several names, such as a shared table, counts about once.
#[derive(Debug, Default)]
pub(super) struct Repeated(Mutex<(u64, HashSet<Box<[u64]>>)>);

impl Repeated {
    /// Counts a view of `bytes` bytes; returns the total before and after.
    fn add(&self, view: &View, bytes: u64) -> (u64, u64) {
        let mut counted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (sum, seen) = &mut *counted;
        let place =
            [view.storage.offset, view.storage.len, view.offset, view.part.map_or(0, |(first, _)| first)];
        let source = Arc::as_ptr(&view.storage.source).cast::<()>().addr() as u64;
        let key = [&[source][..], &place, &view.size, &view.stride].concat().into_boxed_slice();
        let before = *sum;
        *sum = sum.saturating_add(if seen.insert(key) { bytes } else { bytes / ALIAS_DIVISOR });
        (before, *sum)
    }
}

/// Byte offset and length of the storage range that the tensor may use.
fn storage_range(view: &View) -> Result<(u64, u64)> {
    let wrong = || {
        Error::corrupt("torch-storage-length", "the storage length differs from the length in the pickle")
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

/// Dense order of the elements, if any. Strides of dimensions of size 1 do not matter.
fn dense_order(shape: &Shape, stride: &[u64]) -> Option<Order> {
    [Order::Row, Order::Column].into_iter().find(|&order| {
        let dense = shape.strides(order);
        shape.dims().iter().zip(stride.iter().zip(dense)).all(|(&dim, (&a, b))| dim == 1 || a == b)
    })
}
