//! Tensor with permuted dimensions, read as if it were stored that way.

use crate::checkpoint::TensorEntry;
use crate::error::Result;
use crate::source::{Source, check_range, to_usize};
use crate::tensor::{Order, Region, Shape, copy_strided};
use std::sync::{Mutex, PoisonError};

/// Elements of a tensor in the stored type, little-endian, row-major in its permuted shape. They are read on demand.
#[derive(Debug)]
pub(super) struct PermutedSource {
    /// The original tensor, without a cast.
    entry: TensorEntry,
    /// The dimension of the tensor for each dimension here.
    axes: Vec<usize>,
    shape: Shape,
    /// Bytes of one element.
    size: u64,
    len: u64,
    label: String,
    /// True when the tensor was verified against the checksums of the file.
    verified: Mutex<bool>,
}

impl PermutedSource {
    /// Permutes the dimensions of `entry`; `axes` has each dimension once. `None` for elements of less than a byte.
    pub(super) fn new(entry: &TensorEntry, axes: &[usize]) -> Option<Self> {
        let size = entry.stored.size()? as u64;
        let shape = permuted(&entry.shape, axes);
        let len = shape.bytes(entry.stored)?;
        let label = entry.extents.first().map_or_else(String::new, |extent| extent.source.label().to_owned());
        let entry = TensorEntry { cast: None, ..entry.clone() };
        Some(Self { entry, axes: axes.to_vec(), shape, size, len, label, verified: Mutex::new(false) })
    }

    fn verify(&self) -> Result<()> {
        let mut verified = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        if !*verified {
            self.entry.verify_tensor()?;
            *verified = true;
        }
        Ok(())
    }

    /// Fills `out` with whole elements from `first` on.
    fn elements(&self, first: u64, out: &mut [u8]) -> Result<()> {
        let size = to_usize(self.size)?;
        let count = (out.len() / size) as u64;
        let mut rest = out;
        for region in boxes(self.shape.dims(), first, count) {
            let mut inner = Region { start: region.start.clone(), shape: region.shape.clone() };
            for (place, &axis) in self.axes.iter().enumerate() {
                inner.start[axis] = region.start[place];
                inner.shape[axis] = region.shape[place];
            }
            let bytes = self.entry.read_region(&inner, Order::Row)?;
            let own = Shape::dense_strides(&inner.shape(), Order::Row);
            let from: Vec<usize> = self.axes.iter().map(|&axis| own[axis]).collect();
            let extents = region.shape.iter().map(|&e| to_usize(e)).collect::<Result<Vec<_>>>()?;
            let to = Shape::dense_strides(&region.shape(), Order::Row);
            let (now, later) = rest.split_at_mut(bytes.len());
            copy_strided(&bytes, &from, now, &to, &extents, size);
            rest = later;
        }
        Ok(())
    }
}

/// Returns the shape whose dimension `i` is dimension `axes[i]` of `shape`.
pub(super) fn permuted(shape: &Shape, axes: &[usize]) -> Shape {
    Shape::new(axes.iter().filter_map(|&axis| shape.dims().get(axis).copied()).collect::<Vec<_>>())
}

/// Splits `count` elements from `first` on into boxes, in row-major order; a few per dimension. No dimension is 0.
fn boxes(dims: &[u64], first: u64, count: u64) -> Vec<Region> {
    let strides = Shape::new(dims).strides(Order::Row);
    let (mut at, end) = (first, first + count);
    let mut boxes = Vec::new();
    while at < end {
        let start: Vec<u64> = dims.iter().zip(&strides).map(|(&dim, &stride)| at / stride % dim).collect();
        // Dimensions from `whole` on are taken completely; of the dimension before, a range.
        let mut whole = dims.len();
        while whole > 0 && start[whole - 1] == 0 && strides[whole - 1] * dims[whole - 1] <= end - at {
            whole -= 1;
        }
        let mut extent: Vec<u64> =
            dims.iter().enumerate().map(|(axis, &dim)| if axis >= whole { dim } else { 1 }).collect();
        let block: u64 = dims[whole..].iter().product();
        let mut taken = block;
        if let Some(cut) = whole.checked_sub(1) {
            extent[cut] = ((end - at) / block).clamp(1, dims[cut] - start[cut]);
            taken = block * extent[cut];
        }
        boxes.push(Region { start, shape: extent });
        at += taken;
    }
    boxes
}

impl Source for PermutedSource {
    fn len(&self) -> u64 {
        self.len
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        check_range(self, offset, buffer.len() as u64)?;
        if buffer.is_empty() {
            return Ok(());
        }
        self.verify()?;
        let end = offset + buffer.len() as u64;
        if offset.is_multiple_of(self.size) && end.is_multiple_of(self.size) {
            return self.elements(offset / self.size, buffer);
        }
        // Partial elements at the ends.
        let first = offset / self.size;
        let count = end.div_ceil(self.size) - first;
        let mut whole = vec![0; to_usize(count * self.size)?];
        self.elements(first, &mut whole)?;
        let skip = to_usize(offset - first * self.size)?;
        buffer.copy_from_slice(&whole[skip..skip + buffer.len()]);
        Ok(())
    }
    fn label(&self) -> &str {
        &self.label
    }
    fn is_sequential(&self) -> bool {
        self.entry.extents.iter().any(|extent| extent.source.is_sequential())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::TensorPath;
    use crate::source::{MemorySource, SourceRef};
    use crate::tensor::{DType, Encoding, Endian};
    use std::sync::Arc;

    fn entry(dims: &[u64], encoding: Encoding) -> TensorEntry {
        let shape = Shape::new(dims);
        let count = u16::try_from(shape.elements().unwrap()).unwrap();
        let bytes: Vec<u8> = (0..count).flat_map(u16::to_be_bytes).collect();
        let source: SourceRef = Arc::new(MemorySource::new("m", bytes));
        TensorEntry::dense(TensorPath::value(), DType::U16, shape, &source, 0, encoding).unwrap()
    }

    /// The definition, element by element.
    fn expected(entry: &TensorEntry, axes: &[usize]) -> Vec<u8> {
        let shape = permuted(&entry.shape, axes);
        let mut bytes = Vec::new();
        for block in Region::blocks(&shape, Order::Row, 1) {
            let mut region = block.clone();
            for (place, &axis) in axes.iter().enumerate() {
                region.start[axis] = block.start[place];
            }
            bytes.extend(entry.read_region(&region, Order::Row).unwrap());
        }
        bytes
    }

    #[test]
    fn every_range_of_every_permutation() {
        let big = Encoding { order: Order::Column, endian: Endian::Big };
        for encoding in [Encoding::ROW, big] {
            for (dims, axes) in [
                (&[2, 3, 4][..], &[2, 0, 1][..]),
                (&[2, 3, 4], &[0, 2, 1]),
                (&[3, 1, 2, 4], &[2, 3, 1, 0]),
                (&[5], &[0]),
                (&[], &[]),
            ] {
                let entry = entry(dims, encoding);
                let truth = expected(&entry, axes);
                let source = PermutedSource::new(&entry, axes).unwrap();
                assert_eq!(source.len(), truth.len() as u64);
                for from in 0..truth.len() {
                    for to in from..=truth.len() {
                        let mut buffer = vec![0; to - from];
                        source.read_at(from as u64, &mut buffer).unwrap();
                        assert_eq!(buffer, truth[from..to], "{dims:?} {axes:?} {from}..{to}");
                    }
                }
                assert!(source.read_at(truth.len() as u64, &mut [0]).is_err());
            }
        }
    }

    #[test]
    fn no_elements_are_no_bytes() {
        let source = PermutedSource::new(&entry(&[2, 0, 3], Encoding::ROW), &[1, 2, 0]).unwrap();
        assert_eq!(source.len(), 0);
        source.read_at(0, &mut []).unwrap();
    }
}
