//! Rows of a table as `f32`, with the adjustments of upstream's lookups.

use super::super::rows::GatherSource;
use super::comparator::square;
use std::ops::Range;
use std::sync::Arc;
use weighbridge_core::checkpoint::TensorEntry;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::read::{Scratch, read_or_map};
use weighbridge_core::tensor::{DType, Encoding, Order, Region, Shape};
use weighbridge_io::source::{SourceRef, read_vec, to_usize};

/// Addend of upstream's division by a norm.
const NORM_ADDEND: f32 = 1e-7;

/// Table of rows.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    entry: TensorEntry,
    rows: u64,
    columns: usize,
    /// Maximum norm of rows. Upstream rescales longer ones when they are looked up.
    max_norm: Option<f32>,
    /// Vector that is added to each row.
    global: Option<Arc<[f32]>>,
}

impl Table {
    /// Creates a table of the rows of a tensor, read as `f32`.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Mismatch`], `not-a-table`, unless the tensor has two dimensions and a column;
    /// [`weighbridge_core::Kind::Unsupported`], `not-numbers`, for complex and packed elements.
    pub(crate) fn new(entry: &TensorEntry) -> Result<Self> {
        let [rows, columns] = *entry.shape.dims() else { return Err(not_a_table(entry)) };
        if columns == 0 {
            return Err(not_a_table(entry));
        }
        let complex = matches!(entry.dtype(), DType::C64 | DType::C128);
        if complex || entry.dtype().size().is_none() || entry.stored.size().is_none() {
            return Err(Error::unsupported("not-numbers", "rows of this type cannot be compared")
                .on_tensor(entry.name())
                .expected("real numbers of whole bytes")
                .found(entry.dtype()));
        }
        let mut entry = entry.clone();
        entry.row_names = None;
        if entry.dtype() != DType::F32 {
            entry.cast = Some(DType::F32.into());
        }
        let columns = to_usize(columns)?;
        // The sizes of blocks in bytes are below 2^64.
        if (columns as u64).checked_mul(1 << 20).is_none() || entry.shape.bytes(DType::F32).is_none() {
            return Err(Error::corrupt("shape-overflow", "the byte size of the table overflows 64 bits")
                .on_tensor(entry.name()));
        }
        Ok(Self { entry, rows, columns, max_norm: None, global: None })
    }

    /// Returns the table with rescaled long rows, and a vector added to each row.
    pub(crate) fn adjusted(mut self, max_norm: Option<f32>, global: Option<Vec<f32>>) -> Self {
        (self.max_norm, self.global) = (max_norm, global.map(Into::into));
        self
    }

    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    pub(crate) fn columns(&self) -> usize {
        self.columns
    }

    /// Tensor of the table.
    pub(crate) fn entry(&self) -> &TensorEntry {
        &self.entry
    }

    /// Bytes of a row in memory.
    pub(crate) fn row_bytes(&self) -> u64 {
        self.columns as u64 * 4
    }

    /// Reads consecutive rows.
    pub(crate) fn block(&self, rows: Range<u64>, scratch: &mut Scratch) -> Result<Vec<f32>> {
        let region = Region {
            start: vec![rows.start, 0],
            shape: vec![rows.end.saturating_sub(rows.start), self.columns as u64],
        };
        let values = if self.entry.cast.is_some() {
            let mut bytes = Vec::new();
            self.entry.read_into(&region, Order::Row, scratch, &mut bytes)?;
            floats(&bytes)
        } else {
            let bytes = read_or_map(&self.entry, &region, Order::Row, scratch, Vec::new())?;
            let values = floats(bytes.bytes());
            bytes.intact().map_err(|error| error.on_tensor(self.entry.name()))?;
            values
        };
        Ok(self.adjust(values))
    }

    /// Reads rows in any order.
    pub(crate) fn gather(&self, rows: &[u64]) -> Result<Vec<f32>> {
        let source = self.source(rows.to_vec())?;
        let bytes = read_vec(&source, 0, self.row_bytes().saturating_mul(rows.len() as u64))?;
        Ok(self.adjust(floats(&bytes)))
    }

    /// Returns the table of some rows, in that order.
    pub(crate) fn subset(&self, rows: Vec<u64>) -> Result<Self> {
        let shape = Shape::new([rows.len() as u64, self.columns as u64]);
        let source: SourceRef = Arc::new(self.source(rows)?);
        let path = self.entry.path.clone();
        let entry = TensorEntry::dense(path, DType::F32, shape, &source, 0, Encoding::ROW)?;
        Self::new(&entry).map(|table| Self { max_norm: self.max_norm, global: self.global.clone(), ..table })
    }

    fn source(&self, rows: Vec<u64>) -> Result<GatherSource> {
        let label = self.entry.extents.first().map_or("", |extent| extent.source.label());
        GatherSource::new(label, std::slice::from_ref(&self.entry), rows)
            .map_err(|error| error.on_tensor(self.entry.name()))
    }

    fn adjust(&self, mut values: Vec<f32>) -> Vec<f32> {
        if self.max_norm.is_none() && self.global.is_none() {
            return values;
        }
        for row in values.chunks_exact_mut(self.columns) {
            if let Some(most) = self.max_norm {
                let norm = square(row).sqrt();
                if norm > most {
                    let factor = most / (norm + NORM_ADDEND);
                    row.iter_mut().for_each(|x| *x *= factor);
                }
            }
            if let Some(global) = &self.global {
                row.iter_mut().zip(global.iter()).for_each(|(x, addend)| *x += addend);
            }
        }
        values
    }
}

fn not_a_table(entry: &TensorEntry) -> Error {
    Error::mismatch("not-a-table", "the tensor is not a table of rows")
        .on_tensor(entry.name())
        .expected("two dimensions, with at least one column")
        .found(&entry.shape)
}

/// Decodes little-endian `f32`.
pub(super) fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use weighbridge_core::checkpoint::TensorPath;
    use weighbridge_io::source::MemorySource;

    fn table(dtype: DType, shape: &[u64], bytes: Vec<u8>) -> Result<Table> {
        let source: SourceRef = Arc::new(MemorySource::new("m", bytes));
        let path = TensorPath::from_dotted("t");
        let shape = Shape::new(shape);
        Table::new(&TensorEntry::dense(path, dtype, shape, &source, 0, Encoding::ROW).unwrap())
    }

    #[test]
    fn rows_are_read_as_f32_and_adjusted() {
        let bytes = [3f64, 4.0, 0.0, 0.5, -1.0, 2.0].iter().flat_map(|x| x.to_le_bytes()).collect();
        let table = table(DType::F64, &[3, 2], bytes).unwrap();
        assert_eq!(table.block(1..3, &mut Scratch::default()).unwrap(), [0.0, 0.5, -1.0, 2.0]);
        assert_eq!(table.gather(&[2, 0, 2]).unwrap(), [-1.0, 2.0, 3.0, 4.0, -1.0, 2.0]);
        let adjusted = table.adjusted(Some(1.0), Some(vec![10.0, 20.0]));
        let rows = adjusted.block(0..2, &mut Scratch::default()).unwrap();
        for (row, truth) in rows.iter().zip([10.6, 20.8, 10.0, 20.5]) {
            assert!((row - truth).abs() < 1e-5, "{rows:?}");
        }
        let subset = adjusted.subset(vec![1, 0]).unwrap();
        assert_eq!(subset.rows(), 2);
        let swapped = subset.block(0..2, &mut Scratch::default()).unwrap();
        assert_eq!(swapped, [&rows[2..], &rows[..2]].concat());
    }

    #[test]
    fn rejects_tensors_that_are_not_tables() {
        let code = |dtype, shape: &[u64]| table(dtype, shape, vec![0; 64]).unwrap_err().code().as_str();
        assert_eq!(code(DType::F32, &[4]), "not-a-table");
        assert_eq!(code(DType::F32, &[4, 0]), "not-a-table");
        assert_eq!(code(DType::C64, &[2, 2]), "not-numbers");
    }
}
