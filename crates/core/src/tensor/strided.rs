//! Block-wise copies of elements between layouts in memory.
//!
//! [`copy_strided`] serves slices, joins and transposes. It merges dimensions that are adjacent in both layouts and copies runs
//! if both sides are fastest along the same dimension. Otherwise it moves small square tiles within areas that fit the cache.

use super::{Order, Shape};

/// Side, in elements, of the area whose tiles are moved before the next area: its rows are few enough for the TLB.
const AREA: usize = 256;

#[derive(Debug, Clone, Copy)]
struct Axis {
    len: usize,
    src: usize,
    dst: usize,
}

/// Copies a box of `dims` elements of `size` bytes from `src` to `dst`. The element at index `(i, j, ...)` is at
/// `i * strides[0] + j * strides[1] + ...`, counted in elements.
///
/// `size` is 1, 2, 4, 8 or 16.
///
/// # Panics
/// If an index exceeds a slice, or for another `size`: callers check both first.
pub fn copy_strided(
    src: &[u8],
    src_strides: &[usize],
    dst: &mut [u8],
    dst_strides: &[usize],
    dims: &[usize],
    size: usize,
) {
    let axes = normalise(src_strides, dst_strides, dims);
    let Some(axes) = axes else { return };
    match size {
        1 => copy_axes(src, dst, &axes),
        2 => copy_axes(src.as_chunks::<2>().0, dst.as_chunks_mut::<2>().0, &axes),
        4 => copy_axes(src.as_chunks::<4>().0, dst.as_chunks_mut::<4>().0, &axes),
        8 => copy_axes(src.as_chunks::<8>().0, dst.as_chunks_mut::<8>().0, &axes),
        16 => copy_axes(src.as_chunks::<16>().0, dst.as_chunks_mut::<16>().0, &axes),
        other => unreachable!("no dtype has elements of {other} bytes"),
    }
}

/// Copies the dense tensor `src` of `dims`, stored in order `from`, to `dst` in order `to`.
///
/// # Panics
/// As [`copy_strided`], if a slice is shorter than the tensor.
pub fn relayout(src: &[u8], from: Order, dst: &mut [u8], to: Order, dims: &[usize], size: usize) {
    let shape = Shape::new(dims.iter().map(|&e| e as u64).collect::<Vec<_>>());
    let strides = |order| shape.dense_strides(order);
    copy_strided(src, &strides(from), dst, &strides(to), dims, size);
}

impl Shape {
    /// Returns the strides as `usize`, for tensors in memory.
    #[allow(clippy::cast_possible_truncation)]
    pub fn dense_strides(&self, order: Order) -> Vec<usize> {
        self.strides(order).into_iter().map(|s| s as usize).collect()
    }
}

/// Drops dimensions of size 1, sorts by destination from slow to fast, and merges neighbours that are one run on both sides.
/// `None` if there are no elements.
fn normalise(src: &[usize], dst: &[usize], dims: &[usize]) -> Option<Vec<Axis>> {
    if dims.contains(&0) {
        return None;
    }
    let mut axes: Vec<Axis> = (0..dims.len())
        .filter(|&a| dims[a] != 1)
        .map(|a| Axis { len: dims[a], src: src[a], dst: dst[a] })
        .collect();
    axes.sort_by_key(|axis| std::cmp::Reverse(axis.dst));
    let mut merged: Vec<Axis> = Vec::with_capacity(axes.len());
    for axis in axes {
        match merged.last_mut() {
            Some(outer) if outer.src == axis.src * axis.len && outer.dst == axis.dst * axis.len => {
                *outer = Axis { len: outer.len * axis.len, ..axis };
            }
            _ => merged.push(axis),
        }
    }
    Some(merged)
}

fn copy_axes<T: Copy>(src: &[T], dst: &mut [T], axes: &[Axis]) {
    let Some((&fast, rest)) = axes.split_last() else {
        dst[0] = src[0];
        return;
    };
    if fast.src == 1 && fast.dst == 1 {
        walk(rest, |s, d| dst[d..d + fast.len].copy_from_slice(&src[s..s + fast.len]));
        return;
    }
    // The fastest dimension of the source becomes the other side of the tile.
    let Some(across) = (0..rest.len()).min_by_key(|&i| rest[i].src) else {
        for i in 0..fast.len {
            dst[i * fast.dst] = src[i * fast.src];
        }
        return;
    };
    let mut others = rest.to_vec();
    let across = others.remove(across);
    walk(&others, |s, d| transpose(&src[s..], &mut dst[d..], fast, across));
}

/// Calls `each` with the source and destination offset of every index of `axes`.
fn walk(axes: &[Axis], mut each: impl FnMut(usize, usize)) {
    let mut index = vec![0usize; axes.len()];
    let (mut s, mut d) = (0, 0);
    loop {
        each(s, d);
        let mut place = axes.len();
        loop {
            let Some(next) = place.checked_sub(1) else { return };
            place = next;
            let axis = axes[place];
            index[place] += 1;
            s += axis.src;
            d += axis.dst;
            if index[place] < axis.len {
                break;
            }
            s -= axis.src * axis.len;
            d -= axis.dst * axis.len;
            index[place] = 0;
        }
    }
}

/// Transposes a matrix: `fast` is the fastest dimension of the destination, `across` that of the source.
fn transpose<T: Copy>(src: &[T], dst: &mut [T], fast: Axis, across: Axis) {
    for a0 in (0..across.len).step_by(AREA) {
        let columns = AREA.min(across.len - a0);
        for f0 in (0..fast.len).step_by(AREA) {
            let rows = AREA.min(fast.len - f0);
            let src = &src[f0 * fast.src + a0 * across.src..];
            let dst = &mut dst[f0 * fast.dst + a0 * across.dst..];
            let (fast, across) = (Axis { len: rows, ..fast }, Axis { len: columns, ..across });
            match size_of::<T>() {
                1 => transpose_area::<T, 16>(src, dst, fast, across),
                2 => transpose_area::<T, 8>(src, dst, fast, across),
                _ => transpose_area::<T, 4>(src, dst, fast, across),
            }
        }
    }
}

/// Moves whole tiles of `B` x `B` by lines of `B` elements, the rest element by element.
fn transpose_area<T: Copy, const B: usize>(src: &[T], dst: &mut [T], fast: Axis, across: Axis) {
    let dense = across.src == 1 && fast.dst == 1;
    let (tiled_rows, tiled_columns) = if dense { (fast.len / B * B, across.len / B * B) } else { (0, 0) };
    for f0 in (0..tiled_rows).step_by(B) {
        for a0 in (0..tiled_columns).step_by(B) {
            let from: [&[T]; B] = std::array::from_fn(|f| {
                let at = (f0 + f) * fast.src + a0;
                &src[at..at + B]
            });
            for a in 0..B {
                let at = (a0 + a) * across.dst + f0;
                let line = &mut dst[at..at + B];
                for (value, from) in line.iter_mut().zip(&from) {
                    *value = from[a];
                }
            }
        }
    }
    for a in 0..across.len {
        let first = if a < tiled_columns { tiled_rows } else { 0 };
        for f in first..fast.len {
            dst[f * fast.dst + a * across.dst] = src[f * fast.src + a * across.src];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reference implementation, element by element.
    fn naive(src: &[u8], from: Order, to: Order, dims: &[usize], size: usize) -> Vec<u8> {
        let shape = Shape::new(dims.iter().map(|&e| e as u64).collect::<Vec<_>>());
        let (s, d) = (shape.dense_strides(from), shape.dense_strides(to));
        let mut dst = vec![0; src.len()];
        for block in super::super::Region::blocks(&shape, Order::Row, 1) {
            let dot = |strides: &[usize]| -> usize {
                block.start.iter().zip(strides).map(|(&i, &s)| usize::try_from(i).unwrap() * s).sum()
            };
            let (a, b) = (dot(&s) * size, dot(&d) * size);
            dst[b..b + size].copy_from_slice(&src[a..a + size]);
        }
        dst
    }

    #[test]
    fn every_element_keeps_its_index() {
        let shapes: [&[usize]; 9] =
            [&[], &[1], &[7], &[3, 5], &[33, 65], &[1, 40, 1, 33], &[2, 3, 4, 5], &[70, 2, 35], &[3, 0, 2]];
        for dims in shapes {
            for size in [1, 2, 4, 8, 16] {
                let n: usize = dims.iter().product::<usize>() * size;
                let src: Vec<u8> = (0..n).map(|i| u8::try_from(i * 31 % 251).unwrap()).collect();
                for (from, to) in
                    [(Order::Row, Order::Column), (Order::Column, Order::Row), (Order::Row, Order::Row)]
                {
                    let mut dst = vec![0; n];
                    relayout(&src, from, &mut dst, to, dims, size);
                    assert_eq!(dst, naive(&src, from, to, dims, size), "{dims:?} {size}");
                }
            }
        }
    }

    #[test]
    fn copies_a_box_of_a_larger_tensor() {
        // Columns 1..3 of a 2 x 4 matrix, row-major, to a dense column-major box.
        let src: Vec<u8> = (0..8).collect();
        let mut dst = vec![0; 4];
        copy_strided(&src[1..], &[4, 1], &mut dst, &[1, 2], &[2, 2], 1);
        assert_eq!(dst, [1, 5, 2, 6]);
    }
}
