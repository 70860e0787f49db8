//! Boxes of a tensor: what a slice names, what a piece fills, what a block of work covers.

use super::{Order, Shape};

/// A box within a tensor: for each dimension a start and a size, in elements.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Region {
    /// First index along each dimension.
    pub start: Vec<u64>,
    /// Number of indices along each dimension.
    pub shape: Vec<u64>,
}

impl Region {
    /// The whole of `shape`.
    pub fn whole(shape: &Shape) -> Self {
        Self { start: vec![0; shape.rank()], shape: shape.dims().to_vec() }
    }
    /// The box as a [`Extent`](crate::checkpoint::Extent) of a tensor of `shape` has it: `None` for the whole.
    pub fn unless_whole(self, shape: &Shape) -> Option<Box<Self>> {
        (!self.is_whole(shape)).then(|| Box::new(self))
    }
    /// True where it covers all of `shape`.
    pub fn is_whole(&self, shape: &Shape) -> bool {
        self.shape == shape.dims() && self.start.iter().all(|&start| start == 0)
    }
    /// The shape of the box itself.
    pub fn shape(&self) -> Shape {
        Shape::new(&self.shape)
    }
    /// True where it lies wholly within `shape`.
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
    /// What both boxes cover, or `None` where they do not meet.
    pub fn intersect(&self, other: &Self) -> Option<Self> {
        let mut start = Vec::with_capacity(self.start.len());
        let mut extent = Vec::with_capacity(self.start.len());
        for axis in 0..self.start.len() {
            let from = self.start[axis].max(other.start[axis]);
            let to = (self.start[axis] + self.shape[axis]).min(other.start[axis] + other.shape[axis]);
            if from >= to {
                return None;
            }
            start.push(from);
            extent.push(to - from);
        }
        Some(Self { start, shape: extent })
    }
    /// Puts the dimensions into the opposite order.
    pub fn reverse(&mut self) {
        self.start.reverse();
        self.shape.reverse();
    }
    /// The same box seen from the corner of `outer`, which must contain it.
    #[must_use]
    pub fn relative_to(&self, outer: &Self) -> Self {
        Self {
            start: self.start.iter().zip(&outer.start).map(|(a, b)| a - b).collect(),
            shape: self.shape.clone(),
        }
    }
    /// Cuts `shape` into boxes of at most `most` elements (at least one), each of which is
    /// contiguous when the tensor is stored in `order`, in that order.
    pub fn blocks(shape: &Shape, order: Order, most: u64) -> Blocks {
        Blocks::new(shape, order, most.max(1))
    }
}

impl Region {
    /// Cuts `shape` into boxes of at most about `most` elements that are made of long runs in both
    /// row-major and column-major order: what a transpose reads from one and writes to the other.
    pub fn tiles(shape: &Shape, most: u64) -> Vec<Self> {
        let dims = shape.dims();
        if dims.contains(&0) {
            return Vec::new();
        }
        let most = most.max(1);
        let side = most.isqrt().max(1);
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
        // What room is left goes to the side on which runs are written.
        for &axis in &last_first {
            let whole: u64 = extent.iter().product();
            extent[axis] = (extent[axis] * (most / whole).max(1)).min(dims[axis]);
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

    /// The runs of this box within a tensor of `shape` that is stored densely in `order`: the
    /// length of each, and where each begins, both in elements, in the order of the box itself.
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

/// The blocks of a tensor, in storage order. See [`Region::blocks`].
///
/// Dimensions slower than `axis` are walked index by index, `axis` in steps, and the faster ones
/// are taken whole.
#[derive(Debug, Clone)]
pub struct Blocks {
    shape: Vec<u64>,
    /// Dimensions from slowest to fastest.
    slow_to_fast: Vec<usize>,
    /// Position in `slow_to_fast` of the dimension that is cut into steps.
    cut: usize,
    step: u64,
    next: Option<Vec<u64>>,
}

impl Blocks {
    fn new(shape: &Shape, order: Order, most: u64) -> Self {
        let dims = shape.dims().to_vec();
        let mut slow_to_fast: Vec<usize> = (0..dims.len()).collect();
        if order == Order::Column {
            slow_to_fast.reverse();
        }
        let mut cut = slow_to_fast.len();
        let mut inner = 1u64; // elements below the dimension that is cut
        let mut step = 1;
        while cut > 0 {
            let extent = dims[slow_to_fast[cut - 1]];
            cut -= 1;
            step = extent;
            match inner.checked_mul(extent) {
                Some(product) if product <= most => inner = product,
                _ => {
                    step = (most / inner).max(1);
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
        // Advance like an odometer, from the cut dimension towards the slower ones.
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
    fn intersections() {
        let a = Region { start: vec![0, 2], shape: vec![4, 4] };
        let b = Region { start: vec![2, 0], shape: vec![4, 4] };
        let both = a.intersect(&b).unwrap();
        assert_eq!(both, Region { start: vec![2, 2], shape: vec![2, 2] });
        assert_eq!(both.relative_to(&a).start, [2, 0]);
        let far = Region { start: vec![4, 0], shape: vec![1, 1] };
        assert_eq!(a.intersect(&far), None);
    }
}
