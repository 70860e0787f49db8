//! Dense source over strided elements.

use weighbridge_core::error::{Error, Result};
use weighbridge_core::tensor::copy_strided;
use weighbridge_io::source::{Source, SourceRef, Within, check_range, to_usize};

/// Maximum number of bytes that one read spans.
const MAX_SPAN: u64 = 1 << 20;

/// Maximum gap between two elements, in bytes, that is read along instead of starting another read.
const MAX_GAP: u64 = 2048;

/// Source over the elements of a strided view, dense and row-major. A stride may be 0 or make elements
/// overlap; shared elements are read repeatedly.
#[derive(Debug)]
pub struct StridedSource {
    outer: SourceRef,
    /// Offset of the first element.
    start: u64,
    /// Bytes per element: 1, 2, 4, 8 or 16.
    size: u64,
    /// Dimensions, slowest first.
    dims: Vec<Dim>,
    /// Total bytes of all elements.
    len: u64,
    /// Bytes from the first element to the end of the last one.
    reach: u64,
}

/// A dimension. Strides count elements.
#[derive(Debug, Clone, Copy)]
struct Dim {
    size: u64,
    /// Stride in the storage.
    from: u64,
    /// Stride in the dense result.
    to: u64,
    /// Number of indices per read.
    step: u64,
}

impl StridedSource {
    /// Creates a view of elements of `size` bytes: the first one at byte `start`, with shape `shape` and
    /// strides in elements. Reads nothing.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`], code `past-the-end`, if an element exceeds `outer`;
    /// [`weighbridge_core::Kind::Usage`], `strides`, if the numbers of strides and dimensions differ, the
    /// elements take 2^64 bytes or more, or `size` is not 1, 2, 4, 8 or 16.
    pub fn new(outer: SourceRef, start: u64, size: u64, shape: &[u64], strides: &[u64]) -> Result<Self> {
        let bad = || Error::usage("strides", "invalid shape and strides");
        let count = shape.iter().try_fold(1u64, |n, &dim| n.checked_mul(dim));
        let len = count.and_then(|n| n.checked_mul(size)).ok_or_else(bad)?;
        if shape.len() != strides.len() || !matches!(size, 1 | 2 | 4 | 8 | 16) {
            return Err(bad());
        }
        let (mut dims, mut reach, mut to) = (Vec::with_capacity(shape.len()), size, 1);
        if len > 0 {
            for (&dim, &from) in shape.iter().zip(strides).rev() {
                let bytes = (dim - 1).checked_mul(from).and_then(|n| n.checked_mul(size));
                reach = bytes.and_then(|bytes| reach.checked_add(bytes)).ok_or_else(bad)?;
                dims.push(Dim { size: dim, from, to, step: 1 });
                to *= dim;
            }
            dims.reverse();
            check_range(&*outer, start, reach)?;
        }
        Ok(Self { outer, start, size, dims, len, reach })
    }

    /// Fills `dense` with whole elements, from element number `first` on, as a sequence of the largest
    /// possible boxes.
    fn elements(&self, first: u64, dense: &mut [u8]) -> Result<()> {
        let (mut at, mut rest) = (first, dense);
        let mut raw = Vec::new();
        while !rest.is_empty() {
            let room = rest.len() as u64 / self.size;
            let slowest = self.dims.iter().position(|dim| at % dim.to == 0 && dim.to <= room);
            let mut dims = self.dims[slowest.unwrap_or(self.dims.len())..].to_vec();
            if let Some(dim) = dims.first_mut() {
                dim.size = (dim.size - at / dim.to % dim.size).min(room / dim.to);
            }
            let count = dims.iter().map(|dim| dim.size).product::<u64>();
            let (now, later) = rest.split_at_mut(to_usize(count * self.size)?);
            let place = self.dims.iter().map(|dim| at / dim.to % dim.size * dim.from).sum::<u64>();
            self.gather(place, dims, &mut raw, now)?;
            at += count;
            rest = later;
        }
        Ok(())
    }

    /// Fills `dense` with a box of `dims` whose first element is at `place`.
    fn gather(&self, place: u64, mut dims: Vec<Dim>, raw: &mut Vec<u8>, dense: &mut [u8]) -> Result<()> {
        dims.sort_by_key(|dim| dim.from);
        self.set_steps(&mut dims);
        // Index of the first element of each read; dimensions with large strides are outermost.
        let mut index = vec![0; dims.len()];
        loop {
            let (mut from, mut to, mut reach) = (place, 0, 1);
            let (mut near, mut strides, mut sizes) = (Vec::new(), Vec::new(), Vec::new());
            for (dim, &i) in dims.iter().zip(&index) {
                from += i * dim.from;
                to += i * dim.to;
                let size = dim.step.min(dim.size - i);
                if size > 1 {
                    reach += (size - 1) * dim.from;
                    near.push(to_usize(dim.from)?);
                    strides.push(to_usize(dim.to)?);
                    sizes.push(to_usize(size)?);
                }
            }
            raw.resize(to_usize(reach * self.size)?, 0);
            self.outer.read_at(self.start + from * self.size, raw)?;
            let dense = &mut dense[to_usize(to * self.size)?..];
            copy_strided(raw, &near, dense, &strides, &sizes, to_usize(self.size)?);
            let following = dims.iter().zip(&mut index).any(|(dim, i)| {
                *i += dim.step;
                let more = *i < dim.size;
                if !more {
                    *i = 0;
                }
                more
            });
            if !following {
                return Ok(());
            }
        }
    }

    /// Sets the steps of `dims`, from small to large strides, so that one read spans few unneeded bytes.
    fn set_steps(&self, dims: &mut [Dim]) {
        let most = MAX_SPAN / self.size;
        let mut reach = 1u64;
        for dim in dims {
            if dim.from.saturating_sub(reach).saturating_mul(self.size) > MAX_GAP {
                return;
            }
            // Number of further indices within the span.
            dim.step = dim.size.min(1 + (most - reach).checked_div(dim.from).unwrap_or(u64::MAX - 1));
            reach += (dim.step - 1) * dim.from;
            if dim.step < dim.size {
                return;
            }
        }
    }
}

impl Source for StridedSource {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        check_range(self, offset, buffer.len() as u64)?;
        // Elements at the edges of the range are read whole.
        let (mut first, mut buffer) = (offset / self.size, buffer);
        let before = to_usize(offset % self.size)?;
        let mut element = [0; 16];
        let element = &mut element[..to_usize(self.size)?];
        if before > 0 && !buffer.is_empty() {
            self.elements(first, element)?;
            let (head, tail) = buffer.split_at_mut(buffer.len().min(element.len() - before));
            head.copy_from_slice(&element[before..before + head.len()]);
            (first, buffer) = (first + 1, tail);
        }
        let (whole, tail) = buffer.split_at_mut(buffer.len() - buffer.len() % element.len());
        self.elements(first, whole)?;
        if !tail.is_empty() {
            self.elements(first + whole.len() as u64 / self.size, element)?;
            tail.copy_from_slice(&element[..tail.len()]);
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
