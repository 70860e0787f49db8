//! Shape of a primitiv tensor.

use std::fmt;
use weighbridge_core::error::{Error, Kind, Result};

/// Shape of a primitiv tensor: dimensions without trailing 1s, and a batch size.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Shape {
    dims: Vec<u32>,
    batch: u32,
}

impl Shape {
    /// Greatest number of dimensions.
    pub const MAX_DIMS: usize = 8;

    /// Creates a shape with these dimensions; trailing 1s are removed, as in primitiv.
    ///
    /// # Errors
    /// [`Kind::Mismatch`]: `too-many-dims` for more than 8 (counting trailing 1s), `zero-dim`,
    /// `zero-batch`, `shape-overflow` for 2^32 values and more.
    pub fn new(dims: &[u32], batch: u32) -> Result<Self> {
        Self::checked(dims, batch, Kind::Mismatch)
    }

    /// Same as [`new`](Self::new), with errors of the given kind.
    pub(super) fn checked(dims: &[u32], batch: u32, kind: Kind) -> Result<Self> {
        let found = |error: Error| error.found(format_args!("dims {dims:?}, batch {batch}"));
        if dims.len() > Self::MAX_DIMS {
            return Err(Error::new(
                kind,
                "too-many-dims",
                "the shape has more dimensions than primitiv allows",
            )
            .expected(format_args!("at most {}", Self::MAX_DIMS))
            .found(dims.len()));
        }
        if dims.contains(&0) {
            return Err(found(Error::new(
                kind,
                "zero-dim",
                "a dimension is 0; primitiv does not support empty tensors",
            )));
        }
        if batch == 0 {
            return Err(found(Error::new(kind, "zero-batch", "the batch size is 0; it must be at least 1")));
        }
        let values = dims.iter().try_fold(batch, |product, &dim| product.checked_mul(dim));
        if values.is_none() {
            return Err(found(Error::new(kind, "shape-overflow", "the shape has 2^32 values or more")));
        }
        let kept = dims.iter().rposition(|&dim| dim != 1).map_or(0, |last| last + 1);
        Ok(Self { dims: dims[..kept].to_vec(), batch })
    }

    /// Returns the dimensions without trailing 1s, first dimension first. Empty for a scalar.
    pub fn dims(&self) -> &[u32] {
        &self.dims
    }

    /// Returns the batch size: the number of consecutive tensors of these dimensions.
    pub fn batch(&self) -> u32 {
        self.batch
    }

    /// Returns the number of values of the whole batch.
    pub fn values(&self) -> u32 {
        self.dims.iter().fold(self.batch, |product, &dim| product.saturating_mul(dim))
    }

    /// Returns the position of a value in storage order: the first index varies fastest, the batch slowest. Indices
    /// beyond the dimensions must be 0, as those dimensions are 1.
    pub(super) fn place(&self, batch: u32, index: &[u32]) -> Option<usize> {
        let rest = index.get(self.dims.len()..)?;
        if batch >= self.batch || rest.iter().any(|&i| i != 0) {
            return None;
        }
        let mut place = u64::from(batch);
        for (&dim, &i) in self.dims.iter().zip(index).rev() {
            if i >= dim {
                return None;
            }
            place = place * u64::from(dim) + u64::from(i);
        }
        usize::try_from(place).ok()
    }

    /// Returns the shape in the index: the dimensions, then the batch if it is above 1.
    pub(super) fn logical(&self) -> weighbridge_core::tensor::Shape {
        let batch = (self.batch > 1).then_some(self.batch);
        weighbridge_core::tensor::Shape::new(
            self.dims.iter().copied().chain(batch).map(u64::from).collect::<Vec<_>>(),
        )
    }
}

impl fmt::Display for Shape {
    /// Writes `[3, 4]`, or `[3, 4] x 2` with a batch of 2.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.dims)?;
        if self.batch > 1 { write!(f, " x {}", self.batch) } else { Ok(()) }
    }
}
