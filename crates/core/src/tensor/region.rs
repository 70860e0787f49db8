//! Boxes of a tensor: slices, extents and blocks of work.

use super::{Order, Shape};

/// Box within a tensor: a start and a size for each dimension, in elements.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Region {
    /// First index along each dimension.
    pub start: Vec<u64>,
    /// Number of indices along each dimension.
    pub shape: Vec<u64>,
}

impl Region {
    /// Returns the box of a whole tensor of `shape`.
    pub fn whole(shape: &Shape) -> Self {
        Self { start: vec![0; shape.rank()], shape: shape.dims().to_vec() }
    }
    /// Returns the box in the form of [`Extent::part`](crate::checkpoint::Extent::part): `None` for the whole tensor.
    pub fn unless_whole(self, shape: &Shape) -> Option<Box<Self>> {
        (!self.is_whole(shape)).then(|| Box::new(self))
    }
    /// Returns true if the box covers all of `shape`.
    pub fn is_whole(&self, shape: &Shape) -> bool {
        self.shape == shape.dims() && self.start.iter().all(|&start| start == 0)
    }
    /// Returns the shape of the box.
    pub fn shape(&self) -> Shape {
        Shape::new(&self.shape)
    }
    /// Returns true if the box is within `shape`.
    pub fn fits(&self, shape: &Shape) -> bool {
        self.start.len() == shape.rank()
            && self.shape.len() == shape.rank()
            && self
                .start
                .iter()
                .zip(&self.shape)
                .zip(shape.dims())
                .all(|((&s, &e), &d)| s.checked_add(e).is_some_and(|end| end <= d))
    }
    /// Returns the intersection of both boxes; `None` if it is empty.
    pub fn intersect(&self, other: &Self) -> Option<Self> {
        let mut start = Vec::with_capacity(self.start.len());
        let mut shape = Vec::with_capacity(self.start.len());
        for axis in 0..self.start.len() {
            let from = self.start[axis].max(other.start[axis]);
            let to = (self.start[axis] + self.shape[axis]).min(other.start[axis] + other.shape[axis]);
            if from >= to {
                return None;
            }
            start.push(from);
            shape.push(to - from);
        }
        Some(Self { start, shape })
    }
    /// Reverses the order of the dimensions.
    pub fn reverse(&mut self) {
        self.start.reverse();
        self.shape.reverse();
    }
    /// Returns the box relative to the corner of `outer`, which must contain it.
    #[must_use]
    pub fn relative_to(&self, outer: &Self) -> Self {
        Self {
            start: self.start.iter().zip(&outer.start).map(|(a, b)| a - b).collect(),
            shape: self.shape.clone(),
        }
    }
    /// Splits `shape` into boxes of at most `max` elements (at least one). Each is contiguous in a tensor stored in `order`, and
    /// they follow in that order.
    pub fn blocks(shape: &Shape, order: Order, max: u64) -> Blocks {
        Blocks::new(shape, order, max.max(1))
    }
}

impl Region {
    /// Splits `shape` into boxes of at most `max` elements with long runs in both storage orders, for transposes.
    pub fn tiles(shape: &Shape, max: u64) -> Vec<Self> {
        let dims = shape.dims();
        if dims.contains(&0) {
            return Vec::new();
        }
        let max = max.max(1);
        let side = max.isqrt().max(1);
        let mut extent = vec![1u64; dims.len()];
        let last_first: Vec<usize> = (0..dims.len()).rev().collect();
        let first_first: Vec<usize> = (0..dims.len()).collect();
        for axes in [&last_first, &first_first] {
            let mut run = 1;
            for &axis in axes {
                let step = (side / run).clamp(1, dims[axis]);
                extent[axis] = extent[axis].max(step);
                run *= step;
                if step < dims[axis] {
                    break;
                }
            }
        }
        // Remaining elements extend the side on which runs are written.
        for &axis in &last_first {
            let whole: u64 = extent.iter().product();
            extent[axis] = (extent[axis] * (max / whole).max(1)).min(dims[axis]);
        }
        let mut tiles = vec![Self { start: Vec::new(), shape: Vec::new() }];
        for (axis, &step) in extent.iter().enumerate() {
            let cut = |tile: Self| {
                (0..dims[axis].div_ceil(step)).map(move |i| {
                    let mut tile = tile.clone();
                    tile.start.push(i * step);
                    tile.shape.push(step.min(dims[axis] - i * step));
                    tile
                })
            };
            tiles = tiles.into_iter().flat_map(cut).collect();
        }
        tiles
    }

    /// Returns the contiguous runs of this box in a tensor of `shape` stored densely in `order`: their length and their starts,
    /// in elements, in the order of the box.
    pub fn runs(&self, shape: &Shape, order: Order) -> (u64, Vec<u64>) {
        let strides = shape.strides(order);
        let mut fast_to_slow: Vec<usize> = (0..shape.rank()).collect();
        if order == Order::Row {
            fast_to_slow.reverse();
        }
        let mut run = 1;
        let mut outer = fast_to_slow.len();
        for (place, &axis) in fast_to_slow.iter().enumerate() {
            run *= self.shape[axis];
            if self.shape[axis] != shape.dims()[axis] {
                outer = place + 1;
                break;
            }
        }
        let mut starts = vec![self.start.iter().zip(&strides).map(|(s, stride)| s * stride).sum()];
        for &axis in fast_to_slow[outer..].iter() {
            let before: Vec<u64> = std::mem::take(&mut starts);
            for i in 0..self.shape[axis] {
                starts.extend(before.iter().map(|at| at + i * strides[axis]));
            }
        }
        (run, starts)
    }
}

/// Iterator over the blocks of a tensor, in storage order. See [`Region::blocks`].
///
/// The dimension `cut` is split into steps. Slower dimensions advance by one index; faster ones are whole.
#[derive(Debug, Clone)]
pub struct Blocks {
    shape: Vec<u64>,
    /// Dimensions from slowest to fastest.
    slow_to_fast: Vec<usize>,
    /// Position in `slow_to_fast` of the dimension that is split into steps.
    cut: usize,
    step: u64,
    next: Option<Vec<u64>>,
}

impl Blocks {
    fn new(shape: &Shape, order: Order, max: u64) -> Self {
        let dims = shape.dims().to_vec();
        let mut slow_to_fast: Vec<usize> = (0..dims.len()).collect();
        if order == Order::Column {
            slow_to_fast.reverse();
        }
        let mut cut = slow_to_fast.len();
        let mut inner = 1u64; // elements of the faster dimensions
        let mut step = 1;
        while cut > 0 {
            let extent = dims[slow_to_fast[cut - 1]];
            cut -= 1;
            step = extent;
            match inner.checked_mul(extent) {
                Some(product) if product <= max => inner = product,
                _ => {
                    step = (max / inner).max(1);
                    break;
                }
            }
        }
        let empty = dims.contains(&0);
        Self { next: (!empty).then(|| vec![0; dims.len()]), shape: dims, slow_to_fast, cut, step }
    }
}

impl Iterator for Blocks {
    type Item = Region;

    fn next(&mut self) -> Option<Region> {
        let start = self.next.take()?;
        let extent = (0..self.shape.len())
            .map(|axis| {
                let place = self.slow_to_fast.iter().position(|&a| a == axis).unwrap_or(0);
                match place.cmp(&self.cut) {
                    std::cmp::Ordering::Less => 1,
                    std::cmp::Ordering::Equal => self.step.min(self.shape[axis] - start[axis]),
                    std::cmp::Ordering::Greater => self.shape[axis],
                }
            })
            .collect();
        // Advance the index, from the split dimension towards the slower ones.
        let mut following = start.clone();
        for place in (0..=self.cut).rev() {
            let Some(&axis) = self.slow_to_fast.get(place) else { continue };
            let by = if place == self.cut { self.step } else { 1 };
            following[axis] += by;
            if following[axis] < self.shape[axis] {
                self.next = Some(following);
                break;
            }
            following[axis] = 0;
        }
        Some(Region { start, shape: extent })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_cover_everything_once_and_in_order() {
        for dims in [vec![], vec![5], vec![3, 4], vec![2, 3, 4], vec![1, 7, 1, 2], vec![4, 0, 2]] {
            let shape = Shape::new(dims);
            for order in [Order::Row, Order::Column] {
                for most in 1..30 {
                    let strides = shape.strides(order);
                    let mut expected = 0;
                    for block in Region::blocks(&shape, order, most) {
                        assert!(block.fits(&shape));
                        let count = block.shape().elements().unwrap();
                        assert!(count <= most && count > 0);
                        let first: u64 = block.start.iter().zip(&strides).map(|(a, b)| a * b).sum();
                        assert_eq!(first, expected, "{shape} {order:?} {most}");
                        expected += count;
                    }
                    assert_eq!(expected, shape.elements().unwrap());
                }
            }
        }
    }

    #[test]
    fn tiles_cover_everything_once_in_long_runs() {
        for dims in [vec![], vec![5], vec![30, 40], vec![2, 300], vec![300, 2], vec![4, 5, 6, 7], vec![3, 0]]
        {
            let shape = Shape::new(dims);
            for most in [1, 7, 100, 1000, 1 << 40] {
                let tiles = Region::tiles(&shape, most);
                for order in [Order::Row, Order::Column] {
                    let mut seen = std::collections::BTreeSet::new();
                    for tile in &tiles {
                        assert!(tile.fits(&shape));
                        assert!(tile.shape().elements().unwrap() <= most.max(1), "{shape} {most} {tile:?}");
                        let (run, starts) = tile.runs(&shape, order);
                        assert_eq!(run * starts.len() as u64, tile.shape().elements().unwrap());
                        for at in starts {
                            (at..at + run).for_each(|element| assert!(seen.insert(element)));
                        }
                    }
                    assert_eq!(seen.len() as u64, shape.elements().unwrap());
                    assert!(seen.last().is_none_or(|&last| last + 1 == shape.elements().unwrap()));
                }
            }
        }
        // A table of many short columns: whole columns are read, long rows written.
        let tile = &Region::tiles(&Shape::from([500, 500_000]), 4 << 20)[0];
        assert_eq!(tile.shape[0], 500);
        assert!(tile.shape[1] > 8000);
    }

    #[test]
    fn intersects_boxes() {
        let a = Region { start: vec![0, 2], shape: vec![4, 4] };
        let b = Region { start: vec![2, 0], shape: vec![4, 4] };
        let both = a.intersect(&b).unwrap();
        assert_eq!(both, Region { start: vec![2, 2], shape: vec![2, 2] });
        assert_eq!(both.relative_to(&a).start, [2, 0]);
        let far = Region { start: vec![4, 0], shape: vec![1, 1] };
        assert_eq!(a.intersect(&far), None);
    }
}
