//! Contiguous view of a tensor, independent of its storage.

use weighbridge_core::checkpoint::TensorEntry;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::tensor::{Order, Region};
use weighbridge_io::source::{Source, check_range, to_usize};

/// Elements of a tensor as one byte sequence: row-major, little-endian, after any cast, as in numpy's `flatten`.
#[derive(Debug)]
pub(super) struct FlatSource {
    entry: TensorEntry,
    size: u64,
    len: u64,
}

impl FlatSource {
    /// Wraps `entry`.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Unsupported`] for elements smaller than a byte, or a length beyond 2^64.
    pub(super) fn new(entry: TensorEntry) -> Result<Self> {
        let size = entry.dtype().size();
        match (size, entry.shape.bytes(entry.dtype())) {
            (Some(size), Some(len)) => Ok(Self { entry, size: size as u64, len }),
            _ => Err(Error::unsupported(
                "part-of-a-byte",
                "elements smaller than a byte are not supported in a pickled state",
            )
            .on_tensor(entry.name())),
        }
    }
}

impl Source for FlatSource {
    fn len(&self) -> u64 {
        self.len
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        check_range(self, offset, buffer.len() as u64)?;
        if buffer.is_empty() {
            return Ok(());
        }
        let end = offset + buffer.len() as u64;
        let first = offset / self.size;
        let mut skip = to_usize(offset - first * self.size)?;
        let mut rest = buffer;
        for region in boxes(self.entry.shape.dims(), first, end.div_ceil(self.size) - first) {
            let bytes = self.entry.read_region(&region, Order::Row)?;
            let bytes = bytes.get(skip..).unwrap_or_default();
            skip = 0;
            let take = bytes.len().min(rest.len());
            let (now, later) = rest.split_at_mut(take);
            now.copy_from_slice(&bytes[..take]);
            rest = later;
        }
        Ok(())
    }
    fn label(&self) -> &str {
        self.entry.extents.first().map_or("", |extent| extent.source.label())
    }
    fn is_sequential(&self) -> bool {
        self.entry.extents.iter().any(|extent| extent.source.is_sequential())
    }
}

/// Splits the `count` elements from the row-major position `start` into boxes, in order: at most two for
/// each dimension.
fn boxes(dims: &[u64], start: u64, count: u64) -> Vec<Region> {
    if count == 0 {
        return Vec::new();
    }
    let Some((_, inner)) = dims.split_first() else {
        return vec![Region { start: Vec::new(), shape: Vec::new() }];
    };
    let row: u64 = inner.iter().product();
    let mut all = Vec::new();
    let (mut at, mut left) = (start, count);
    // The remainder of a partial row, then whole rows, then the beginning of a row.
    while left > 0 && row > 0 {
        let (index, within) = (at / row, at % row);
        let taken = if within == 0 && left >= row {
            let rows = left / row;
            let mut region = Region { start: vec![0; dims.len()], shape: dims.to_vec() };
            region.start[0] = index;
            region.shape[0] = rows;
            all.push(region);
            rows * row
        } else {
            let part = left.min(row - within);
            for mut region in boxes(inner, within, part) {
                region.start.insert(0, index);
                region.shape.insert(0, 1);
                all.push(region);
            }
            part
        };
        at += taken;
        left -= taken;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use weighbridge_core::checkpoint::TensorPath;
    use weighbridge_core::tensor::{DType, Encoding, Shape};
    use weighbridge_io::source::{MemorySource, SourceRef, read_vec};

    #[test]
    fn reads_every_byte_range_of_a_column_major_tensor() {
        let shape = Shape::from([2, 3, 2]);
        let row: Vec<u8> = (0u16..12).flat_map(u16::to_le_bytes).collect();
        let mut column = vec![0; row.len()];
        weighbridge_core::tensor::relayout(&row, Order::Row, &mut column, Order::Column, &[2, 3, 2], 2);
        let source: SourceRef = Arc::new(MemorySource::new("m", column));
        let entry =
            TensorEntry::dense(TensorPath::value(), DType::U16, shape, &source, 0, Encoding::COLUMN).unwrap();
        let flat = FlatSource::new(entry).unwrap();
        for offset in 0..=24u64 {
            for len in 0..=24 - offset {
                let from = usize::try_from(offset).unwrap();
                let to = usize::try_from(offset + len).unwrap();
                assert_eq!(read_vec(&flat, offset, len).unwrap(), row[from..to]);
            }
        }
        assert_eq!(read_vec(&flat, 24, 1).unwrap_err().code().as_str(), "past-the-end");
    }
}
