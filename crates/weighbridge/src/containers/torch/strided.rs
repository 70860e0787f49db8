//! Elements that lie apart, as bytes that follow each other.

use crate::error::{Error, Result};
use crate::source::{Source, SourceRef, Within, check_range, to_usize};
use crate::tensor::copy_strided;

/// Inner dimensions whose elements lie within so many bytes are read at once.
const MOST_SPAN: u64 = 1 << 20;

/// The elements of a strided view, dense and row-major. A stride may be 0 or make elements overlap:
/// these are read again.
#[derive(Debug)]
pub struct StridedSource {
    outer: SourceRef,
    /// Offset of the first element.
    start: u64,
    /// Bytes of an element: 1, 2, 4, 8 or 16.
    size: u64,
    /// Extent and stride in elements of each dimension, slowest first.
    dims: Vec<(u64, u64)>,
    /// Where the dimensions begin that are read at once, the elements of such a block, and the
    /// bytes that they lie in.
    inner: usize,
    block: u64,
    span: u64,
    len: u64,
    /// Bytes from the first element to the end of the last one.
    reach: u64,
}

impl StridedSource {
    /// The elements of `size` bytes at `start` and `strides` elements further on along each
    /// dimension, of which there are `extents`. Reads nothing.
    ///
    /// # Errors
    /// [`crate::Kind::Corrupt`], code `past-the-end`, where an element leaves `outer`;
    /// [`crate::Kind::Usage`], `strides`, where there are not as many strides as extents, the
    /// elements pass 2^64 bytes, or have another size than 1, 2, 4, 8 or 16.
    pub fn new(outer: SourceRef, start: u64, size: u64, extents: &[u64], strides: &[u64]) -> Result<Self> {
        let bad = || Error::usage("strides", "these are not the extents and strides of a tensor");
        let count = extents.iter().try_fold(1u64, |n, &extent| n.checked_mul(extent));
        let len = count.and_then(|n| n.checked_mul(size)).ok_or_else(bad)?;
        if extents.len() != strides.len() || !matches!(size, 1 | 2 | 4 | 8 | 16) {
            return Err(bad());
        }
        let dims: Vec<(u64, u64)> = extents.iter().copied().zip(strides.iter().copied()).collect();
        let (mut inner, mut block, mut reach, mut span) = (dims.len(), 1u64, size, size);
        if len > 0 {
            let mut whole = true;
            for (place, &(extent, stride)) in dims.iter().enumerate().rev() {
                let bytes = (extent - 1).checked_mul(stride).and_then(|n| n.checked_mul(size));
                reach = bytes.and_then(|bytes| reach.checked_add(bytes)).ok_or_else(bad)?;
                // No block is larger than what it takes to hold it once more, repeated or not.
                whole &= reach <= MOST_SPAN && block.saturating_mul(extent).saturating_mul(size) <= MOST_SPAN;
                if whole {
                    (inner, block, span) = (place, block * extent, reach);
                }
            }
            check_range(&*outer, start, reach)?;
        }
        Ok(Self { outer, start, size, dims, inner, block, span, len, reach })
    }

    /// Offset in `outer` of the first element of a block.
    fn place(&self, block: u64) -> u64 {
        let (mut rest, mut at) = (block, 0);
        for &(extent, stride) in self.dims[..self.inner].iter().rev() {
            at += rest % extent * stride;
            rest /= extent;
        }
        self.start + at * self.size
    }

    /// Fills `dense` with the elements of a block.
    fn gather(&self, block: u64, raw: &mut [u8], dense: &mut [u8]) -> Result<()> {
        self.outer.read_at(self.place(block), raw)?;
        let inner = &self.dims[self.inner..];
        let extents = inner.iter().map(|d| to_usize(d.0)).collect::<Result<Vec<_>>>()?;
        let from = inner.iter().map(|d| to_usize(d.1)).collect::<Result<Vec<_>>>()?;
        let mut to = vec![1; extents.len()];
        for axis in (1..extents.len()).rev() {
            to[axis - 1] = to[axis] * extents[axis];
        }
        copy_strided(raw, &from, dense, &to, &extents, to_usize(self.size)?);
        Ok(())
    }
}

impl Source for StridedSource {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        check_range(self, offset, buffer.len() as u64)?;
        if buffer.is_empty() {
            return Ok(());
        }
        let bytes = self.block * self.size;
        // At most MOST_SPAN each.
        let mut raw = vec![0; to_usize(self.span)?];
        let mut dense = vec![0; to_usize(bytes)?];
        let (mut at, mut rest) = (offset, buffer);
        while !rest.is_empty() {
            let within = to_usize(at % bytes)?;
            let take = rest.len().min(dense.len() - within);
            let (now, later) = rest.split_at_mut(take);
            self.gather(at / bytes, &mut raw, &mut dense)?;
            now.copy_from_slice(&dense[within..within + take]);
            at += take as u64;
            rest = later;
        }
        Ok(())
    }

    fn label(&self) -> &str {
        self.outer.label()
    }

    fn is_sequential(&self) -> bool {
        self.outer.is_sequential()
    }

    fn within(&self) -> Option<Within<'_>> {
        Some(Within { source: &self.outer, offset: self.start, len: self.reach, encoded: true })
    }
}
