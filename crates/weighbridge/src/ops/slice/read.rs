//! Reading of the elements of a slice, also where steps leave gaps.

use super::{Picked, Taken};
use crate::checkpoint::TensorEntry;
use crate::engine::Scratch;
use crate::error::{Error, Result};
use crate::source::to_usize;
use crate::tensor::{Order, Region, Shape, copy_strided};

/// Scattered elements in a box of at most this many bytes are read together with the bytes between them.
const SMALL_BOX: u64 = 1 << 20;
/// The same, where at least one of [`DENSE`] elements of the box is selected.
const LARGE_BOX: u64 = 256 << 20;
/// See [`LARGE_BOX`].
const DENSE: u64 = 16;

/// Maximum number of bytes of the box around a slice with steps that are read at once; also the maximum number of unneeded
/// bytes between two elements.
const BLOCK: u64 = 8 << 20;

/// Reads the elements of a slice, dense in `order`.
///
/// # Errors
/// Errors of the sources; [`crate::Kind::Unsupported`] for a part of a tensor with packed elements.
pub fn read_taken(entry: &TensorEntry, taken: &Taken, order: Order) -> Result<Vec<u8>> {
    if let Some(region) = taken.region() {
        return entry.read_region(&region, order);
    }
    let mut rows = Vec::new();
    if taken.axes.iter().all(|axis| axis.count > 0) {
        read_blocks(entry, &mut taken.axes.clone(), 0, element_size(entry)?, &mut rows)?;
    }
    let shape = Shape::new(taken.axes.iter().map(|axis| axis.count).collect::<Vec<_>>());
    if order == Order::Row || shape.is_order_free() {
        return Ok(rows);
    }
    let extents = shape.dims().iter().map(|&d| to_usize(d)).collect::<Result<Vec<_>>>()?;
    let (from, to) = (shape.dense_strides(Order::Row), shape.dense_strides(order));
    let mut out = vec![0; rows.len()];
    copy_strided(&rows, &from, &mut out, &to, &extents, element_size(entry)?);
    Ok(out)
}

/// Appends the elements at all combinations of `axes`, row-major. The axes before `at` have one index each. A box that is too
/// large is read in parts along the first axis with several indices.
fn read_blocks(
    entry: &TensorEntry,
    axes: &mut [Picked],
    at: usize,
    size: usize,
    out: &mut Vec<u8>,
) -> Result<()> {
    let extent = |axis: &Picked| (axis.count - 1) * axis.step + 1;
    let hull = Region {
        start: axes.iter().map(|axis| axis.start).collect(),
        shape: axes.iter().map(extent).collect(),
    };
    let bytes = hull.shape().bytes(entry.dtype()).unwrap_or(u64::MAX);
    let split = (at..axes.len()).find(|&axis| axes[axis].count > 1).filter(|_| bytes > BLOCK);
    let Some(split) = split else {
        let read = entry.read_region(&hull, Order::Row)?;
        let places: Vec<Vec<u64>> =
            axes.iter().map(|axis| (0..axis.count).map(|place| place * axis.step).collect()).collect();
        pick(&read, &Shape::dense_strides(&hull.shape(), Order::Row), &places, size, out);
        return Ok(());
    };
    let whole = axes[split];
    let apart = (bytes / extent(&whole)).saturating_mul(whole.step).max(1);
    let together = (BLOCK / apart).max(1);
    let mut done = 0;
    while done < whole.count {
        let count = together.min(whole.count - done);
        axes[split] = Picked { start: whole.at(done), count, ..whole };
        let next = if count == 1 { split + 1 } else { split };
        read_blocks(entry, axes, next, size, out)?;
        done += count;
    }
    axes[split] = whole;
    Ok(())
}

fn element_size(entry: &TensorEntry) -> Result<usize> {
    let packed =
        || Error::unsupported("packed-slice", "a tensor of packed elements can only be read as a whole");
    entry.dtype().size().ok_or_else(packed)
}

/// Reads the elements at all combinations of `axes`, dense and row-major: for each dimension of the tensor its indices in rising
/// order. Reads few of the bytes between them.
///
/// # Errors
/// As [`read_taken`].
pub fn read_at(entry: &TensorEntry, mut axes: Vec<Vec<u64>>) -> Result<Vec<u8>> {
    if axes.iter().any(Vec::is_empty) {
        return Ok(Vec::new());
    }
    let size = element_size(entry)?;
    let hull = Region {
        start: axes.iter().map(|a| a.first().copied().unwrap_or(0)).collect(),
        shape: axes
            .iter()
            .map(|a| a.last().zip(a.first()).map_or(0, |(last, first)| last - first + 1))
            .collect(),
    };
    let mut out = Vec::new();
    let wanted: u64 = axes.iter().map(|a| a.len() as u64).product();
    let together = hull.shape().bytes(entry.dtype()).is_some_and(|bytes| {
        bytes <= SMALL_BOX || (bytes <= LARGE_BOX && bytes / DENSE <= wanted * size as u64)
    });
    if together {
        let bytes = entry.read_region(&hull, Order::Row)?;
        for (axis, &start) in axes.iter_mut().zip(&hull.start) {
            axis.iter_mut().for_each(|index| *index -= start);
        }
        pick(&bytes, &Shape::dense_strides(&hull.shape(), Order::Row), &axes, size, &mut out);
    } else {
        read_scattered(entry, &axes, size, &mut out)?;
    }
    Ok(out)
}

/// Reads the elements at all combinations of `axes` by runs along the dimension that is contiguous in the file, always forwards.
fn read_scattered(entry: &TensorEntry, axes: &[Vec<u64>], size: usize, out: &mut Vec<u8>) -> Result<()> {
    let counts: Vec<usize> = axes.iter().map(Vec::len).collect();
    let mut steps = vec![size; axes.len()];
    for axis in (1..axes.len()).rev() {
        steps[axis - 1] = steps[axis] * counts[axis];
    }
    out.resize(counts.iter().product::<usize>() * size, 0);
    let mut slow_to_fast: Vec<usize> = (0..axes.len()).collect();
    if entry.order() == Order::Column {
        slow_to_fast.reverse();
    }
    let Some((&fast, slow)) = slow_to_fast.split_last() else { return Ok(()) };
    let (mut scratch, mut run_bytes) = (Scratch::default(), Vec::new());
    let mut region = Region { start: axes.iter().map(|a| a[0]).collect(), shape: vec![1; axes.len()] };
    let mut places = vec![0usize; axes.len()];
    loop {
        let base: usize = slow.iter().map(|&axis| places[axis] * steps[axis]).sum();
        let mut place = 0;
        for run in axes[fast].chunk_by(|a, b| a + 1 == *b) {
            region.start[fast] = run[0];
            region.shape[fast] = run.len() as u64;
            run_bytes.clear();
            entry.read_into(&region, Order::Row, &mut scratch, &mut run_bytes)?;
            for element in run_bytes.chunks_exact(size) {
                let at = base + place * steps[fast];
                out[at..at + size].copy_from_slice(element);
                place += 1;
            }
        }
        let turned = slow.iter().rev().find(|&&axis| {
            places[axis] = (places[axis] + 1) % counts[axis];
            region.start[axis] = axes[axis][places[axis]];
            places[axis] > 0
        });
        if turned.is_none() {
            return Ok(());
        }
    }
}

/// Appends the elements at all combinations of `axes`, row-major, of a dense array with strides in elements. No axis is empty,
/// and every index is within the array.
fn pick(bytes: &[u8], strides: &[usize], axes: &[Vec<u64>], size: usize, out: &mut Vec<u8>) {
    let Some((indices, rest)) = axes.split_first() else {
        out.extend_from_slice(&bytes[..size]);
        return;
    };
    for &index in indices {
        // The array is in memory, so every index of it fits.
        let at = usize::try_from(index).unwrap_or(usize::MAX) * strides[0] * size;
        pick(&bytes[at..], &strides[1..], rest, size, out);
    }
}
