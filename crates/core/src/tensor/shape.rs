//! Shapes, storage orders and byte orders.

use super::DType;
use smallvec::SmallVec;
use std::fmt::{self, Write};

/// Sizes of the dimensions of a tensor, first dimension first. Empty for a scalar.
///
/// Up to two dimensions need no allocation: a file may have millions of vectors and matrices.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Shape(SmallVec<[u64; 2]>);

impl Shape {
    /// Creates a shape of these sizes.
    pub fn new(dims: impl AsRef<[u64]>) -> Self {
        Self(SmallVec::from_slice(dims.as_ref()))
    }
    /// Returns the sizes of the dimensions.
    pub fn dims(&self) -> &[u64] {
        &self.0
    }
    /// Returns the number of dimensions.
    pub fn rank(&self) -> usize {
        self.0.len()
    }
    /// Returns the number of elements; `None` if it exceeds 2^64 - 1.
    ///
    /// A shape with a zero has 0 elements, even if the product of the others overflows.
    pub fn elements(&self) -> Option<u64> {
        if self.0.contains(&0) {
            return Some(0);
        }
        self.0.iter().try_fold(1u64, |n, &d| n.checked_mul(d))
    }
    /// Returns the bytes of the elements, densely packed; `None` on overflow, or if elements smaller than a byte do not fill
    /// whole bytes.
    pub fn bytes(&self, dtype: DType) -> Option<u64> {
        let bits = self.elements()?.checked_mul(u64::from(dtype.bits()))?;
        bits.is_multiple_of(8).then_some(bits / 8)
    }
    /// Returns the strides of dense storage in `order`, in elements. They wrap if [`elements`](Self::elements) overflows: check
    /// that first.
    pub fn strides(&self, order: Order) -> Vec<u64> {
        let mut strides = vec![0; self.rank()];
        let mut step = 1u64;
        let mut fill = |axis: usize| {
            strides[axis] = step;
            step = step.wrapping_mul(self.0[axis]);
        };
        match order {
            Order::Row => (0..self.rank()).rev().for_each(&mut fill),
            Order::Column => (0..self.rank()).for_each(&mut fill),
        }
        strides
    }
    /// Returns true if row-major and column-major storage are the same bytes: at most one dimension is not 1, or there are no
    /// elements.
    pub fn is_order_free(&self) -> bool {
        self.0.contains(&0) || self.0.iter().filter(|&&d| d != 1).count() <= 1
    }
    /// Returns the shape with its dimensions reversed.
    #[must_use]
    pub fn reversed(&self) -> Self {
        Self(self.0.iter().rev().copied().collect())
    }
}

impl fmt::Display for Shape {
    /// Writes a list as in Python and JSON: `[3, 4]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::with_capacity(2 + 8 * self.0.len());
        for (place, dim) in self.0.iter().enumerate() {
            text.push_str(if place == 0 { "[" } else { ", " });
            write!(text, "{dim}")?;
        }
        text.push_str(if self.0.is_empty() { "[]" } else { "]" });
        f.pad(&text)
    }
}

impl<const N: usize> From<[u64; N]> for Shape {
    fn from(dims: [u64; N]) -> Self {
        Self::new(dims)
    }
}

/// Storage order of elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Order {
    /// Row-major: the last index is fastest (C, most frameworks).
    Row,
    /// Column-major: the first index is fastest (Fortran, primitiv).
    Column,
}

impl Order {
    /// Returns `row` or `column`, as in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Row => "row",
            Self::Column => "column",
        }
    }
    /// Returns the other order.
    #[must_use]
    pub fn flipped(self) -> Self {
        match self {
            Self::Row => Self::Column,
            Self::Column => Self::Row,
        }
    }
}

/// Byte order of multi-byte elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Endian {
    /// Least significant byte first.
    Little,
    /// Most significant byte first.
    Big,
}

/// Layout of the elements of an extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Encoding {
    /// Storage order.
    pub order: Order,
    /// Byte order of the elements.
    pub endian: Endian,
}

impl Encoding {
    /// Row-major, little-endian: safetensors and most others.
    pub const ROW: Self = Self { order: Order::Row, endian: Endian::Little };
    /// Column-major, little-endian: primitiv.
    pub const COLUMN: Self = Self { order: Order::Column, endian: Endian::Little };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_counted_without_overflow() {
        assert_eq!(Shape::new([]).elements(), Some(1));
        assert_eq!(Shape::from([3, 4, 5]).elements(), Some(60));
        assert_eq!(Shape::from([1 << 32, 1 << 32]).elements(), None);
        assert_eq!(Shape::from([1 << 40, 0, 1 << 40]).elements(), Some(0));
        assert_eq!(Shape::from([1 << 62]).bytes(DType::F32), None);
        assert_eq!(Shape::from([3]).bytes(DType::F4), None);
        assert_eq!(Shape::from([4]).bytes(DType::F4), Some(2));
    }

    #[test]
    fn strides_follow_the_order() {
        let shape = Shape::from([2, 3, 4]);
        assert_eq!(shape.strides(Order::Row), [12, 4, 1]);
        assert_eq!(shape.strides(Order::Column), [1, 2, 6]);
        assert!(Shape::from([1, 7, 1]).is_order_free());
        assert!(!shape.is_order_free());
    }
}
