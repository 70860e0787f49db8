//! Selection of rows of a column-major extent.

use super::{Source, SourceRef, Within, check_range, to_usize};
use crate::checkpoint::Extent;
use crate::error::Result;
use crate::tensor::Shape;
use std::ops::Range;

/// Range of rows of a column-major extent, as a smaller column-major extent. Each column contributes one run of bytes.
#[derive(Debug)]
pub struct RowsSource {
    outer: SourceRef,
    /// Offset of the first row of the first column.
    start: u64,
    /// Bytes from column to column.
    stride: u64,
    /// Bytes selected from each column.
    run: u64,
    len: u64,
}

impl RowsSource {
    /// Selects `rows` of `extent`, which is column-major with elements of `size` bytes, of a tensor of `shape`.
    ///
    /// # Errors
    /// [`crate::Kind::Corrupt`], code `past-the-end`, if the extent exceeds its source.
    pub fn new(extent: &Extent, shape: &Shape, size: u64, rows: Range<u64>) -> Result<Self> {
        check_range(&*extent.source, extent.offset, extent.len)?;
        let dims = extent.shape(shape);
        let all = dims.first().copied().unwrap_or(1);
        let rows = rows.start.min(all)..rows.end.min(all);
        let columns = dims.iter().skip(1).product::<u64>();
        let run = (rows.end - rows.start.min(rows.end)) * size;
        Ok(Self {
            outer: extent.source.clone(),
            start: extent.offset + rows.start * size,
            stride: all * size,
            run,
            len: run * columns,
        })
    }
}

impl Source for RowsSource {
    fn len(&self) -> u64 {
        self.len
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        check_range(self, offset, buffer.len() as u64)?;
        let (mut at, mut rest) = (offset, buffer);
        while !rest.is_empty() {
            let within = at % self.run;
            let take = to_usize((self.run - within).min(rest.len() as u64))?;
            let (now, later) = rest.split_at_mut(take);
            self.outer.read_at(self.start + at / self.run * self.stride + within, now)?;
            at += take as u64;
            rest = later;
        }
        Ok(())
    }
    fn label(&self) -> &str {
        self.outer.label()
    }
    fn is_sequential(&self) -> bool {
        self.outer.is_sequential()
    }
    fn within(&self) -> Option<Within<'_>> {
        let len = self.outer.len().saturating_sub(self.start);
        Some(Within { source: &self.outer, offset: self.start, len, encoded: true })
    }
}
