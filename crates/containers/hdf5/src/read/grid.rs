//! Grid of the chunks of a dataset.

use weighbridge_core::error::{Error, Result};

/// The grid of chunks over a dataset.
#[derive(Debug, Clone)]
pub(super) struct Grid {
    /// Dimensions of the dataset, in elements; none is 0.
    pub(super) shape: Vec<u64>,
    /// Dimensions of a chunk, in elements; none is 0.
    pub(super) chunk: Vec<u64>,
    /// Number of chunks along each dimension.
    pub(super) counts: Vec<u64>,
    /// Bytes of an element.
    pub(super) size: u64,
    /// Bytes of a chunk.
    pub(super) chunk_len: u64,
}

/// A chunk in the file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slot {
    /// Number in the grid, row by row.
    pub(super) number: u64,
    /// Offset of its first byte in the source.
    pub(super) offset: u64,
    /// Stored length in bytes.
    pub(super) len: u64,
    /// Mask of skipped filters: bit i for filter i.
    pub(super) mask: u32,
}

impl Grid {
    /// Creates the grid of chunks with the dimensions `chunk`.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`] where the chunks do not fit the dataset.
    pub(super) fn new(shape: &[u64], chunk: &[u64], size: u64) -> Result<Self> {
        let chunk_len = chunk.iter().try_fold(size, |len, &dim| len.checked_mul(dim));
        // A single element cannot be cut into chunks: there is no dimension to cut along.
        let fits = !chunk.is_empty() && shape.len() == chunk.len();
        let Some(chunk_len) = chunk_len.filter(|&len| len > 0 && fits) else {
            return Err(Error::corrupt("hdf5-corrupt", "HDF5: the chunk dimensions do not fit the dataset")
                .expected(format_args!("chunks for {shape:?}"))
                .found(format_args!("{chunk:?}")));
        };
        let counts = shape.iter().zip(chunk).map(|(&all, &one)| all.div_ceil(one)).collect();
        Ok(Self { shape: shape.to_vec(), chunk: chunk.to_vec(), counts, size, chunk_len })
    }

    /// Returns the number of the chunk at `places`, counted in chunks along each dimension; `None` outside of the dataset.
    pub(super) fn number(&self, places: &[u64]) -> Option<u64> {
        // No overflow: there are no more chunks than elements.
        let add = |number: u64, (&at, &count): (&u64, &u64)| (at < count).then(|| number * count + at);
        places.iter().zip(&self.counts).try_fold(0, add)
    }

    /// Bytes of the chunks that row-by-row reading revisits, if `written` chunks exist; 0 for a single chunk.
    pub(super) fn band(&self, written: usize) -> u64 {
        let Some(axis) = self.chunk.iter().zip(&self.shape).position(|(&chunk, &all)| chunk > 1 && all > 1)
        else {
            return 0;
        };
        let chunks = self.counts[axis + 1..].iter().product::<u64>().min(written as u64);
        if chunks > 1 { chunks.saturating_mul(self.chunk_len) } else { 0 }
    }

    /// True where a chunk exceeds the dataset.
    pub(super) fn is_edge(&self, number: u64) -> bool {
        let mut rest = number;
        (0..self.counts.len()).rev().any(|axis| {
            let at = rest % self.counts[axis];
            rest /= self.counts[axis];
            (at + 1) * self.chunk[axis] > self.shape[axis]
        })
    }
}
