//! Selections: the elements of a dataset that a mapping uses.
//!
//! The elements of a selection are ordered by position in the dataset, row by row. A mapping is two
//! selections of equal size: the n-th element of one is the n-th of the other.

use super::super::bytes::Reader;
use weighbridge_core::error::{Error, Result};

/// Types of selections, as numbered in the file.
const NONE: u32 = 0;
const POINTS: u32 = 1;
const HYPERSLABS: u32 = 2;
const ALL: u32 = 3;

/// Width of a number in versions 1 and 2, in bytes.
const NARROW: usize = 4;
const WIDE: usize = 8;
/// Maximum number of dimensions.
const MAX_DIMS: u32 = 32;

/// A selection as stored in a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Stored {
    /// No element.
    None,
    /// All elements.
    All,
    /// Regular hyperslab: start, stride, count and block size of each dimension.
    Regular(Vec<[u64; 4]>),
    /// Boxes, each with the first and last index of each dimension.
    Boxes(Vec<Vec<[u64; 2]>>),
}

impl Stored {
    /// Reads a selection.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Unsupported`]: `hdf5-virtual-unlimited` for an unlimited selection,
    /// `hdf5-virtual-selection` for point selections and unknown types; [`weighbridge_core::Kind::Corrupt`] where it
    /// is cut short.
    pub(super) fn parse(reader: &mut Reader<'_>) -> Result<Self> {
        let (kind, version) = (reader.u32()?, reader.u32()?);
        match (kind, version) {
            (NONE | ALL, 1) => {
                reader.skip(8)?;
                Ok(if kind == ALL { Self::All } else { Self::None })
            }
            (HYPERSLABS, 1) => {
                reader.skip(8)?;
                Self::boxes(reader, NARROW)
            }
            (HYPERSLABS, 2) => {
                let flags = reader.u8()?;
                reader.skip(4)?;
                Self::hyperslabs(reader, flags, WIDE)
            }
            (HYPERSLABS, 3) => {
                let (flags, width) = (reader.u8()?, reader.u8()?);
                if ![2, 4, 8].contains(&width) {
                    return Err(Error::corrupt(
                        "hdf5-corrupt",
                        "HDF5: a selection of the virtual dataset has numbers of invalid width",
                    )
                    .expected("2, 4 or 8 bytes")
                    .found(width));
                }
                Self::hyperslabs(reader, flags, usize::from(width))
            }
            (POINTS, _) => Err(unsupported("HDF5: the virtual dataset uses a point selection")),
            _ => Err(unsupported("HDF5: the virtual dataset uses a selection of unknown type")
                .found(format_args!("type {kind}, version {version}"))),
        }
    }

    fn hyperslabs(reader: &mut Reader<'_>, flags: u8, width: usize) -> Result<Self> {
        match flags {
            0 => return Self::boxes(reader, width),
            1 => {}
            _ => {
                let text = "HDF5: a selection of the virtual dataset has invalid flags";
                return Err(Error::corrupt("hdf5-corrupt", text).found(flags));
            }
        }
        let rank = rank(reader)?;
        let mut dims = Vec::with_capacity(rank);
        let unlimited = u64::MAX >> (64 - 8 * width);
        for _ in 0..rank {
            let mut dim = [0; 4];
            for number in &mut dim {
                *number = reader.number(width)?;
            }
            let [_, _, count, block] = dim;
            if count == unlimited || block == unlimited {
                return Err(Error::unsupported(
                    "hdf5-virtual-unlimited",
                    "HDF5: the virtual dataset is unlimited: it grows with its sources",
                )
                .hint("copy the dataset with h5py or h5repack first"));
            }
            dims.push(dim);
        }
        Ok(Self::Regular(dims))
    }

    fn boxes(reader: &mut Reader<'_>, width: usize) -> Result<Self> {
        let rank = rank(reader)?;
        let count = reader.number(width)?;
        let mut boxes = Vec::new();
        for _ in 0..count {
            let mut own = vec![[0; 2]; rank];
            for side in 0..2 {
                for bounds in &mut own {
                    bounds[side] = reader.number(width)?;
                }
            }
            boxes.push(own);
        }
        Ok(Self::Boxes(boxes))
    }
}

/// Reads the number of dimensions. 0 is rejected: such boxes take no bytes, so their number would be unbounded.
fn rank(reader: &mut Reader<'_>) -> Result<usize> {
    match reader.u32()? {
        rank @ 1..=MAX_DIMS => Ok(rank as usize),
        rank => Err(Error::corrupt(
            "hdf5-corrupt",
            "HDF5: a selection of the virtual dataset has an invalid number of dimensions",
        )
        .expected(format_args!("1 to {MAX_DIMS}"))
        .found(rank)),
    }
}

fn unsupported(text: &str) -> Error {
    Error::unsupported("hdf5-virtual-selection", text).hint("copy the dataset with h5py or h5repack first")
}

/// A selection of the bytes of a dataset, row by row: the selected elements, with the bytes of an element as an additional
/// dimension.
#[derive(Debug)]
pub(super) struct Selection {
    form: Form,
    /// Number of selected bytes.
    pub(super) len: u64,
    /// Maximum number of contiguous runs.
    pub(super) runs: u64,
}

#[derive(Debug)]
enum Form {
    /// Dimensions, slowest first.
    Regular(Vec<Strided>),
    /// Nested spans, and the stride of each level in bytes.
    Nested(Level, Vec<u64>),
}

/// Regularly spaced blocks along a dimension.
#[derive(Debug, Clone, Copy)]
struct Strided {
    start: u64,
    stride: u64,
    count: u64,
    block: u64,
    dim_size: u64,
    /// Bytes between consecutive indices.
    step: u64,
    /// Selected bytes at each index.
    below: u64,
}

/// Selected indices along a dimension, in order.
#[derive(Debug, Default)]
struct Level {
    spans: Vec<Span>,
    /// Number of selected bytes.
    len: u64,
    runs: u64,
}

#[derive(Debug)]
struct Span {
    start: u64,
    end: u64,
    /// Selected bytes in the spans before.
    before: u64,
    /// Selection at each index; `None` in the last dimension.
    below: Option<Level>,
}

impl Selection {
    /// Applies `stored` to a dataset with the dimensions `dims` and elements of `size` bytes, below 2^64 bytes in total.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`] where the selection exceeds the dimensions, or contradicts itself.
    pub(super) fn new(stored: &Stored, dims: &[u64], size: u64) -> Result<Self> {
        match stored {
            Stored::None => Self::regular(&[], &[0], 1),
            Stored::All => Self::regular(
                &dims.iter().map(|&dim_size| [0, 1, 1, dim_size]).collect::<Vec<_>>(),
                dims,
                size,
            ),
            Stored::Regular(blocks) => Self::regular(blocks, dims, size),
            Stored::Boxes(boxes) if boxes.is_empty() => Self::regular(&[], &[0], 1),
            Stored::Boxes(boxes) => Self::nested(boxes, dims, size),
        }
    }

    fn regular(blocks: &[[u64; 4]], dims: &[u64], size: u64) -> Result<Self> {
        let is_empty = |[_, _, count, block]: &[u64; 4]| *count == 0 || *block == 0;
        if size == 0 || dims.contains(&0) || blocks.iter().any(is_empty) {
            return match blocks.iter().any(is_empty) || dims.contains(&0) && blocks.is_empty() {
                true => Ok(Self { form: Form::Regular(Vec::new()), len: 0, runs: 0 }),
                false => Err(outside(dims)),
            };
        }
        if blocks.len() != dims.len() {
            return Err(wrong_rank(blocks.len(), dims.len()));
        }
        let mut found: Vec<Strided> = Vec::new();
        let full = |dim_size| Strided {
            start: 0,
            stride: dim_size,
            count: 1,
            block: dim_size,
            dim_size,
            step: 1,
            below: 1,
        };
        let mut last = full(size);
        for (&[start, stride, count, block], &dim_size) in blocks.iter().zip(dims).rev() {
            if count > 1 && stride < block {
                return Err(Error::corrupt(
                    "hdf5-corrupt",
                    "HDF5: a selection of the virtual dataset has overlapping blocks",
                )
                .expected(format_args!("a stride of at least {block}"))
                .found(stride));
            }
            let span = (count - 1).checked_mul(stride).and_then(|span| span.checked_add(block));
            if span.and_then(|span| span.checked_add(start)).is_none_or(|end| end > dim_size) {
                return Err(outside(dims));
            }
            // Adjacent blocks are merged.
            let (count, block) =
                if count > 1 && stride > block { (count, block) } else { (1, count * block) };
            let stride = if count > 1 { stride } else { block };
            if last.block == last.dim_size {
                let whole = last.dim_size;
                last = Strided {
                    start: start * whole,
                    stride: stride * whole,
                    count,
                    block: block * whole,
                    dim_size: dim_size * whole,
                    step: last.step,
                    below: last.below,
                };
            } else if dim_size > 1 {
                let (step, below) = (last.step * last.dim_size, last.below * last.count * last.block);
                found.push(last);
                last = Strided { start, stride, count, block, dim_size, step, below };
            }
        }
        let len = last.below * last.count * last.block;
        found.push(last);
        let runs = len / found[0].block;
        found.reverse();
        Ok(Self { form: Form::Regular(found), len, runs })
    }

    fn nested(boxes: &[Vec<[u64; 2]>], dims: &[u64], size: u64) -> Result<Self> {
        for own in boxes {
            if own.len() != dims.len() {
                return Err(wrong_rank(own.len(), dims.len()));
            }
            if size == 0
                || own.iter().zip(dims).any(|(&[first, last], &dim_size)| first > last || last >= dim_size)
            {
                return Err(outside(dims));
            }
        }
        // Dimensions that every box covers completely are merged with the one before.
        let is_whole = |axis: usize| boxes.iter().all(|own| own[axis] == [0, dims[axis] - 1]);
        let depth = (1..dims.len()).rev().find(|&axis| !is_whole(axis)).unwrap_or(0) + 1;
        let unit = dims[depth..].iter().product::<u64>() * size;
        let level = Level::new(boxes, 0, depth, unit)?;
        let mut steps = vec![1; depth];
        let mut step = unit;
        for axis in (0..depth - 1).rev() {
            step *= dims[axis + 1];
            steps[axis] = step;
        }
        Ok(Self { len: level.len, runs: level.runs, form: Form::Nested(level, steps) })
    }

    /// Number of selected bytes before the offset `byte` of the dataset.
    pub(super) fn before(&self, byte: u64) -> u64 {
        let (mut rest, mut before) = (byte, 0);
        match &self.form {
            Form::Regular(dims) => {
                for dim in dims {
                    let at = rest / dim.step;
                    rest %= dim.step;
                    let (selected, is_within) = dim.before(at);
                    before += selected * dim.below;
                    if !is_within {
                        break;
                    }
                }
            }
            Form::Nested(level, steps) => {
                let mut level = level;
                for step in steps {
                    let at = rest / step;
                    rest %= step;
                    let number = level.spans.partition_point(|span| span.end <= at);
                    let Some(span) = level.spans.get(number) else { return before + level.len };
                    before += span.before;
                    if at < span.start {
                        break;
                    }
                    let Some(below) = &span.below else { return before + at - span.start };
                    before += (at - span.start) * below.len;
                    level = below;
                }
            }
        }
        before
    }

    /// Returns the offset in the dataset of the selected byte `number`, and the length of the contiguous run from there.
    /// `number` must be below [`len`](Self::len).
    pub(super) fn run(&self, number: u64) -> (u64, u64) {
        let (mut rest, mut at, mut run) = (number, 0, 1);
        match &self.form {
            Form::Regular(dims) => {
                for dim in dims {
                    let index = rest / dim.below;
                    rest %= dim.below;
                    let within = index % dim.block;
                    at += (dim.start + index / dim.block * dim.stride + within) * dim.step;
                    run = dim.block - within;
                }
            }
            Form::Nested(level, steps) => {
                let mut level = level;
                for step in steps {
                    let number = level.spans.partition_point(|span| span.before <= rest).saturating_sub(1);
                    let Some(span) = level.spans.get(number) else { break };
                    rest -= span.before;
                    let Some(below) = &span.below else {
                        at += (span.start + rest) * step;
                        run = (span.end - span.start).saturating_sub(rest);
                        break;
                    };
                    at += (span.start + rest / below.len) * step;
                    rest %= below.len;
                    level = below;
                }
            }
        }
        (at, run)
    }
}

impl Strided {
    /// Number of selected indices before `index`, and whether `index` is selected.
    fn before(&self, index: u64) -> (u64, bool) {
        let Some(behind) = index.checked_sub(self.start) else { return (0, false) };
        let (blocks, within) = (behind / self.stride, behind % self.stride);
        if blocks >= self.count {
            return (self.count * self.block, false);
        }
        (blocks * self.block + within.min(self.block), within < self.block)
    }
}

impl Level {
    /// Builds the level of these boxes from the dimension `axis` on, of `depth` dimensions; `unit` is the number of bytes of
    /// an index of the last dimension.
    fn new(boxes: &[Vec<[u64; 2]>], axis: usize, depth: usize, unit: u64) -> Result<Self> {
        let (mut level, mut boxes, mut end) = (Self::default(), boxes, 0);
        while let Some(first) = boxes.first() {
            let bounds = first[axis];
            let alike = boxes.iter().take_while(|own| own[axis] == bounds).count();
            let (group, rest) = boxes.split_at(alike);
            let is_last = axis + 1 == depth;
            // The HDF5 library writes boxes in order and without overlaps.
            if bounds[0] < end || (is_last && alike > 1) {
                return Err(Error::corrupt(
                    "hdf5-corrupt",
                    "HDF5: a selection of the virtual dataset has boxes that overlap or are out of order",
                ));
            }
            end = bounds[1] + 1;
            let before = level.len;
            let (start, stop, below) = match is_last {
                true => {
                    level.len += (end - bounds[0]) * unit;
                    level.runs += 1;
                    (bounds[0] * unit, end * unit, None)
                }
                false => {
                    let below = Self::new(group, axis + 1, depth, unit)?;
                    level.len += (end - bounds[0]) * below.len;
                    level.runs += (end - bounds[0]) * below.runs;
                    (bounds[0], end, Some(below))
                }
            };
            level.spans.push(Span { start, end: stop, before, below });
            boxes = rest;
        }
        Ok(level)
    }
}

fn wrong_rank(found: usize, expected: usize) -> Error {
    Error::corrupt(
        "hdf5-corrupt",
        "HDF5: a selection of the virtual dataset has another number of dimensions than its dataset",
    )
    .expected(expected)
    .found(found)
}

fn outside(dims: &[u64]) -> Error {
    Error::corrupt("hdf5-corrupt", "HDF5: a selection of the virtual dataset exceeds its dataset")
        .expected(format_args!("indices within {dims:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Offsets of the selected bytes, from the definition of the selection.
    fn places(stored: &Stored, dims: &[u64], size: u64) -> Vec<u64> {
        let elements: u64 = dims.iter().product();
        let is_selected = |element: u64| {
            let (mut rest, mut index) = (element, vec![0; dims.len()]);
            for axis in (0..dims.len()).rev() {
                (index[axis], rest) = (rest % dims[axis], rest / dims[axis]);
            }
            match stored {
                Stored::None => false,
                Stored::All => true,
                Stored::Regular(blocks) => {
                    index.iter().zip(blocks).all(|(&at, &[start, stride, count, block])| {
                        (0..count).any(|n| (start + n * stride..start + n * stride + block).contains(&at))
                    })
                }
                Stored::Boxes(boxes) => boxes
                    .iter()
                    .any(|own| index.iter().zip(own).all(|(&at, &[first, last])| first <= at && at <= last)),
            }
        };
        let selected = (0..elements).filter(|&element| is_selected(element));
        selected.flat_map(|element| element * size..(element + 1) * size).collect()
    }

    #[test]
    fn numbers_every_selected_byte() {
        let regular = |dims: &[[u64; 4]]| Stored::Regular(dims.to_vec());
        let boxes = |all: &[&[[u64; 2]]]| Stored::Boxes(all.iter().map(|own| own.to_vec()).collect());
        for (stored, dims) in [
            (Stored::None, &[3, 4][..]),
            (Stored::All, &[3, 4]),
            (Stored::All, &[]),
            (Stored::All, &[3, 0]),
            (regular(&[[2, 3, 2, 2]]), &[9]),
            (regular(&[[0, 1, 5, 1]]), &[5]),
            (regular(&[[1, 7, 1, 3], [0, 1, 1, 4]]), &[5, 4]),
            (regular(&[[1, 2, 2, 1], [0, 1, 1, 4]]), &[5, 4]),
            (regular(&[[0, 1, 1, 2], [0, 1, 1, 1], [1, 2, 2, 1]]), &[3, 1, 4]),
            (regular(&[[1, 3, 2, 2], [1, 3, 2, 1], [0, 2, 2, 1]]), &[6, 5, 3]),
            (regular(&[[1, 3, 0, 2], [1, 3, 2, 1]]), &[6, 5]),
            (boxes(&[&[[1, 2]], &[[4, 4]]]), &[6]),
            (boxes(&[&[[0, 0], [0, 2]], &[[1, 2], [2, 4]], &[[1, 2], [6, 6]], &[[4, 4], [0, 6]]]), &[6, 7]),
            (boxes(&[&[[0, 1], [0, 2]], &[[3, 3], [0, 2]]]), &[6, 3]),
            (boxes(&[&[[0, 1], [1, 1], [0, 2]], &[[0, 1], [3, 4], [0, 2]]]), &[2, 5, 3]),
            (boxes(&[&[[0, 1], [1, 1], [0, 0]], &[[0, 1], [1, 1], [2, 2]]]), &[2, 5, 3]),
            (boxes(&[]), &[2]),
        ] {
            for size in [1, 3] {
                let places = places(&stored, dims, size);
                let selection = Selection::new(&stored, dims, size).unwrap();
                assert_eq!(selection.len, places.len() as u64, "{stored:?}");
                let mut runs = 0;
                for (number, &place) in places.iter().enumerate() {
                    let (at, run) = selection.run(number as u64);
                    assert_eq!(at, place, "{stored:?} {number}");
                    let side = places[number..].iter().zip(place..).take_while(|(own, at)| **own == *at);
                    assert!((1..=side.count() as u64).contains(&run), "{stored:?} {number} {run}");
                    runs += u64::from(number == 0 || places[number - 1] + 1 != place);
                }
                assert!(runs <= selection.runs && selection.runs <= selection.len, "{stored:?}");
                for byte in 0..=dims.iter().product::<u64>() * size {
                    let before = places.iter().filter(|&&place| place < byte).count();
                    assert_eq!(selection.before(byte), before as u64, "{stored:?} {byte}");
                }
            }
        }
    }

    #[test]
    fn rejects_selections_that_exceed_the_dataset_or_overlap() {
        let regular = |dims: &[[u64; 4]]| Stored::Regular(dims.to_vec());
        let boxes = |all: &[&[[u64; 2]]]| Stored::Boxes(all.iter().map(|own| own.to_vec()).collect());
        for stored in [
            regular(&[[0, 1, 1, 4]]),
            regular(&[[0, 1, 1, 6], [0, 1, 1, 3]]),
            regular(&[[u64::MAX, 1, 1, 1], [0, 1, 1, 3]]),
            regular(&[[0, u64::MAX, 3, 1], [0, 1, 1, 3]]),
            regular(&[[0, 1, u64::MAX, u64::MAX - 1], [0, 1, 1, 3]]),
            regular(&[[0, 1, 2, 2], [0, 1, 1, 3]]),
            regular(&[[0, 0, 2, 1], [0, 1, 1, 3]]),
            boxes(&[&[[0, 1]]]),
            boxes(&[&[[0, 5], [0, 0]]]),
            boxes(&[&[[2, 1], [0, 0]]]),
            boxes(&[&[[0, u64::MAX], [0, 0]]]),
            boxes(&[&[[0, 1], [0, 0]], &[[1, 2], [1, 1]]]),
            boxes(&[&[[2, 2], [0, 0]], &[[0, 0], [0, 0]]]),
            boxes(&[&[[0, 0], [0, 1]], &[[0, 0], [1, 2]]]),
            boxes(&[&[[0, 0], [0, 1]], &[[0, 0], [0, 1]]]),
        ] {
            let error = Selection::new(&stored, &[5, 3], 2).unwrap_err();
            assert_eq!(error.code().as_str(), "hdf5-corrupt", "{stored:?}");
        }
        // A selection of an empty dataset must be empty.
        assert!(Selection::new(&regular(&[[0, 1, 1, 1], [0, 1, 1, 1]]), &[5, 0], 2).is_err());
        assert!(Selection::new(&boxes(&[&[[0, 0], [0, 0]]]), &[5, 0], 2).is_err());
    }
}
