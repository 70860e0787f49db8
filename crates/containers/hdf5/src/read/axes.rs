//! Decomposition of a run of bytes of a dataset into boxes, and of boxes into chunks.

use super::grid::Grid;
use std::ops::Range;

/// A dimension of a dataset, or several that are contiguous in dataset and chunk; the last axis counts bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Axis {
    pub(super) size: u64,
    /// Size of a chunk along the axis.
    pub(super) chunk: u64,
    /// Stride in the dataset, in bytes.
    pub(super) step: u64,
    /// Stride in a chunk, in bytes.
    pub(super) inner: u64,
    /// Stride of chunk numbers along the axis.
    pub(super) numbers: u64,
}

/// A box of bytes: a range on each axis.
pub(super) type Bounds = Vec<Range<u64>>;

/// Returns the axes of a grid, without dimensions of size 1: there are no more axes than bits in the length of the
/// dataset.
pub(super) fn axes(grid: &Grid) -> Vec<Axis> {
    let mut last = Axis { size: grid.size, chunk: grid.size, step: 1, inner: 1, numbers: 1 };
    let mut axes = Vec::new();
    let (mut step, mut inner, mut numbers) = (grid.size, grid.size, 1);
    for ((&size, &chunk), &count) in grid.shape.iter().zip(&grid.chunk).zip(&grid.counts).rev() {
        if size > 1 && last.size == last.chunk && last.inner * last.size == inner {
            // Chunks cover the inner axis completely: both axes merge.
            last = Axis { size: last.size * size, chunk: last.chunk.saturating_mul(chunk), numbers, ..last };
        } else if size > 1 {
            axes.push(std::mem::replace(&mut last, Axis { size, chunk, step, inner, numbers }));
        }
        (step, inner, numbers) = (step * size, inner * chunk, numbers * count);
    }
    axes.push(last);
    axes.reverse();
    axes
}

/// Splits the bytes `from..to` into boxes, at most two for each axis. The chunks of a box have consecutive numbers.
pub(super) fn boxes(axes: &[Axis], from: u64, to: u64) -> Vec<Bounds> {
    let mut found = Vec::new();
    split(axes, &mut Vec::new(), from, to, &mut found);
    found
}

fn split(axes: &[Axis], fixed: &mut Bounds, from: u64, to: u64, found: &mut Vec<Bounds>) {
    let Some((axis, behind)) = axes.split_first().filter(|_| from < to) else { return };
    let (first, last) = (from / axis.step, to / axis.step);
    let (head, tail) = (from % axis.step, to % axis.step);
    let mut within = |at: u64, from: u64, to: u64, found: &mut Vec<Bounds>| {
        fixed.push(at..at + 1);
        split(behind, fixed, from, to, found);
        fixed.pop();
    };
    if first == last {
        return within(first, head, tail, found);
    }
    if head > 0 {
        within(first, head, axis.step, found);
    }
    let whole = first + u64::from(head > 0)..last;
    if tail > 0 {
        within(last, 0, tail, found);
    }
    if !whole.is_empty() {
        let behind = behind.iter().map(|axis| 0..axis.size);
        found.push(fixed.iter().cloned().chain([whole]).chain(behind).collect());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(shape: &[u64], chunk: &[u64], size: u64) -> Grid {
        let counts = shape.iter().zip(chunk).map(|(&all, &one)| all.div_ceil(one)).collect();
        let chunk_len = chunk.iter().product::<u64>() * size;
        Grid { shape: shape.to_vec(), chunk: chunk.to_vec(), counts, size, chunk_len }
    }

    /// The chunk of a byte, and the offset in it, computed from the dimensions.
    fn place(grid: &Grid, byte: u64) -> (u64, u64) {
        let mut rest = byte / grid.size;
        let (mut number, mut offset, mut chunks, mut stride) = (0, 0, 1, 1);
        for axis in (0..grid.shape.len()).rev() {
            let at = rest % grid.shape[axis];
            rest /= grid.shape[axis];
            number += at / grid.chunk[axis] * chunks;
            offset += at % grid.chunk[axis] * stride;
            chunks *= grid.counts[axis];
            stride *= grid.chunk[axis];
        }
        (number, offset * grid.size + byte % grid.size)
    }

    /// All positions in bounds.
    fn all(bounds: &[Range<u64>]) -> Vec<Vec<u64>> {
        bounds.iter().fold(vec![Vec::new()], |all, range| {
            all.iter().flat_map(|start| range.clone().map(|at| [&start[..], &[at]].concat())).collect()
        })
    }

    #[test]
    fn boxes_contain_each_byte_exactly_once() {
        for (shape, chunk, size) in [
            (&[7][..], &[3][..], 4),
            (&[5, 4], &[2, 1], 1),
            (&[5, 4], &[2, 4], 2),
            (&[3, 4, 5], &[2, 4, 5], 1),
            (&[3, 4, 5], &[2, 3, 2], 3),
            (&[1, 4, 1, 5, 1], &[1, 2, 3, 5, 2], 2),
            (&[4, 3, 1], &[1, 5, 1], 2),
            (&[1], &[4], 3),
            (&[2, 2, 2], &[4, 2, 3], 1),
        ] {
            let grid = grid(shape, chunk, size);
            let axes = axes(&grid);
            let len = shape.iter().product::<u64>() * size;
            for from in 0..len {
                for to in from..=len {
                    let boxes = boxes(&axes, from, to);
                    assert!(boxes.len() <= 2 * axes.len());
                    let mut found = Vec::new();
                    for at in boxes.iter().flat_map(|bounds| all(bounds)) {
                        let (mut byte, mut number, mut offset) = (0, 0, 0);
                        for (axis, at) in axes.iter().zip(at) {
                            byte += at * axis.step;
                            number += at / axis.chunk * axis.numbers;
                            offset += at % axis.chunk * axis.inner;
                        }
                        assert_eq!((number, offset), place(&grid, byte), "{shape:?} {chunk:?} {byte}");
                        found.push(byte);
                    }
                    found.sort_unstable();
                    assert!(found.into_iter().eq(from..to), "{shape:?} {chunk:?} {from}..{to}");
                }
            }
        }
    }

    #[test]
    fn dimensions_of_size_1_add_no_axes() {
        let shape = [&[100_000_000][..], &[1; 59]].concat();
        let chunk = [1; 60];
        let rows = axes(&grid(&shape, &chunk, 1));
        assert_eq!(rows.len(), 1);
        assert_eq!(boxes(&rows, 3, 100_000_000).len(), 1);
        // Chunks of one column each: two of them for any run of rows.
        let columns = axes(&grid(&[100_000_000, 2], &[100_000, 1], 1));
        assert_eq!(boxes(&columns, 1, 199_999).len(), 3);
    }
}
