//! Elements that lie apart, as bytes that follow each other.

use weighbridge_core::error::{Error, Result};
use weighbridge_core::tensor::copy_strided;
use weighbridge_io::source::{Source, SourceRef, Within, check_range, to_usize};

/// What is read at once spans at most so many bytes.
const MOST_SPAN: u64 = 1 << 20;

/// Bytes between two elements that are rather read with them than passed over by another call.
const GAP: u64 = 2048;

/// The elements of a strided view, dense and row-major. A stride may be 0 or make elements overlap:
/// these are read again.
#[derive(Debug)]
pub struct StridedSource {
    outer: SourceRef,
    /// Offset of the first element.
    start: u64,
    /// Bytes of an element: 1, 2, 4, 8 or 16.
    size: u64,
    /// The dimensions, slowest first.
    dims: Vec<Dim>,
    /// Bytes of all elements.
    len: u64,
    /// Bytes from the first element to the end of the last one.
    reach: u64,
}

/// A dimension. All but the extent in elements.
#[derive(Debug, Clone, Copy)]
struct Dim {
    extent: u64,
    /// From one index to the next where the elements lie.
    from: u64,
    /// From one index to the next where they become dense.
    to: u64,
    /// Indices that are read at once.
    step: u64,
}

impl StridedSource {
    /// The elements of `size` bytes at `start` and `strides` elements further on along each
    /// dimension, of which there are `extents`. Reads nothing.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`], code `past-the-end`, where an element leaves `outer`;
    /// [`weighbridge_core::Kind::Usage`], `strides`, where there are not as many strides as extents, the
    /// elements pass 2^64 bytes, or have another size than 1, 2, 4, 8 or 16.
    pub fn new(outer: SourceRef, start: u64, size: u64, extents: &[u64], strides: &[u64]) -> Result<Self> {
        let bad = || Error::usage("strides", "these are not the extents and strides of a tensor");
        let count = extents.iter().try_fold(1u64, |n, &extent| n.checked_mul(extent));
        let len = count.and_then(|n| n.checked_mul(size)).ok_or_else(bad)?;
        if extents.len() != strides.len() || !matches!(size, 1 | 2 | 4 | 8 | 16) {
            return Err(bad());
        }
        let (mut dims, mut reach, mut to) = (Vec::with_capacity(extents.len()), size, 1);
        if len > 0 {
            for (&extent, &from) in extents.iter().zip(strides).rev() {
                let bytes = (extent - 1).checked_mul(from).and_then(|n| n.checked_mul(size));
                reach = bytes.and_then(|bytes| reach.checked_add(bytes)).ok_or_else(bad)?;
                dims.push(Dim { extent, from, to, step: 1 });
                to *= extent;
            }
            dims.reverse();
            check_range(&*outer, start, reach)?;
        }
        Ok(Self { outer, start, size, dims, len, reach })
    }

    /// Fills `dense` with whole elements, from the one with the number `first` on. They are taken
    /// as the largest boxes that follow each other.
    fn elements(&self, first: u64, dense: &mut [u8]) -> Result<()> {
        let (mut at, mut rest) = (first, dense);
        let mut raw = Vec::new();
        while !rest.is_empty() {
            let room = rest.len() as u64 / self.size;
            let slowest = self.dims.iter().position(|dim| at % dim.to == 0 && dim.to <= room);
            let mut dims = self.dims[slowest.unwrap_or(self.dims.len())..].to_vec();
            if let Some(dim) = dims.first_mut() {
                dim.extent = (dim.extent - at / dim.to % dim.extent).min(room / dim.to);
            }
            let count = dims.iter().map(|dim| dim.extent).product::<u64>();
            let (now, later) = rest.split_at_mut(to_usize(count * self.size)?);
            let place = self.dims.iter().map(|dim| at / dim.to % dim.extent * dim.from).sum::<u64>();
            self.gather(place, dims, &mut raw, now)?;
            at += count;
            rest = later;
        }
        Ok(())
    }

    /// Fills `dense` with a box of `dims` whose first element is the one at `place`.
    fn gather(&self, place: u64, mut dims: Vec<Dim>, raw: &mut Vec<u8>, dense: &mut [u8]) -> Result<()> {
        dims.sort_by_key(|dim| dim.from);
        self.take_near(&mut dims);
        // The first element of each part: what lies far apart is walked slowest.
        let mut index = vec![0; dims.len()];
        loop {
            let (mut from, mut to, mut reach) = (place, 0, 1);
            let (mut near, mut strides, mut extents) = (Vec::new(), Vec::new(), Vec::new());
            for (dim, &i) in dims.iter().zip(&index) {
                from += i * dim.from;
                to += i * dim.to;
                let extent = dim.step.min(dim.extent - i);
                if extent > 1 {
                    reach += (extent - 1) * dim.from;
                    near.push(to_usize(dim.from)?);
                    strides.push(to_usize(dim.to)?);
                    extents.push(to_usize(extent)?);
                }
            }
            raw.resize(to_usize(reach * self.size)?, 0);
            self.outer.read_at(self.start + from * self.size, raw)?;
            let dense = &mut dense[to_usize(to * self.size)?..];
            copy_strided(raw, &near, dense, &strides, &extents, to_usize(self.size)?);
            let following = dims.iter().zip(&mut index).any(|(dim, i)| {
                *i += dim.step;
                let more = *i < dim.extent;
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

    /// Decides what of a box is read at once: `dims`, from near to far, as long as little is read
    /// that is not asked for.
    fn take_near(&self, dims: &mut [Dim]) {
        let most = MOST_SPAN / self.size;
        let mut reach = 1u64;
        for dim in dims {
            if dim.from.saturating_sub(reach).saturating_mul(self.size) > GAP {
                return;
            }
            // How many more indices the span has room for.
            dim.step = dim.extent.min(1 + (most - reach).checked_div(dim.from).unwrap_or(u64::MAX - 1));
            reach += (dim.step - 1) * dim.from;
            if dim.step < dim.extent {
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
        // Elements that the range cuts are read whole.
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
