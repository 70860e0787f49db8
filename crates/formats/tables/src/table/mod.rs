//! Shared code of the table formats: selection of tables, output files, rows decoded
//! on access, and numbers as text.
//!
//! A table is a tensor of two dimensions that may have row names
//! ([`TensorEntry::row_names`]). One table is written as one file, several as a folder of files.

#[cfg(feature = "scan")]
pub(crate) mod binaries;
pub(super) mod columns;
mod decoded;
pub(super) mod digits;
pub(super) mod flat;
pub(super) mod lines;
#[cfg(feature = "scan")]
pub(crate) mod pickled;
pub(super) mod pipe;
mod plan;
pub(super) mod records;
pub mod salvage;
#[cfg(test)]
mod tests;
pub(super) mod text;

pub(super) use decoded::{DecodedSource, Decoder};
pub(super) use plan::{Form, NO_COLUMNS, is_table, plan};

use std::ops::Range;
use std::sync::Arc;
use weighbridge_core::budget::Budget;
use weighbridge_core::checkpoint::{RowNameList, RowNamesRef, TensorEntry, check_count};
use weighbridge_core::error::Result;
use weighbridge_core::plan::{Elements, Output};
use weighbridge_core::tensor::{Order, Region};
use weighbridge_io::source::SourceRef;

/// Number of copies of unpacked bytes: the bytes, and the elements or names.
pub(super) const COPIES: u64 = 2;
/// Work units per unpacked byte.
const WORK_PER_BYTE: u64 = 5;

/// Fails if `bytes` exceed the amount that may be unpacked at once. The bytes are temporary, and short files compress well: so
/// the bound is the remaining work, or else the memory budget.
pub(super) fn check_at_once(budget: &Budget, bytes: u64) -> Result<()> {
    if bytes.saturating_mul(WORK_PER_BYTE) <= budget.work_left() {
        return Ok(());
    }
    let held = bytes.saturating_mul(COPIES);
    budget.take_memory(held)?;
    budget.give_memory(held);
    Ok(())
}

/// Tensor viewed as rows.
#[derive(Debug, Clone)]
pub(super) struct Table {
    /// The tensor, of one dimension or two.
    pub entry: TensorEntry,
    /// Number of rows.
    pub rows: u64,
    /// Number of elements of a row.
    pub columns: u64,
}

impl Table {
    /// Returns the tensor as a table if it has two dimensions, or one dimension (one column).
    pub(super) fn new(entry: &TensorEntry) -> Option<Self> {
        let (rows, columns) = match *entry.shape.dims() {
            [rows] => (rows, 1),
            [rows, columns] => (rows, columns),
            _ => return None,
        };
        Some(Self { entry: entry.clone(), rows, columns })
    }

    /// Bytes of a row of decoded elements.
    pub(super) fn row_bytes(&self) -> u64 {
        self.columns.saturating_mul(self.entry.dtype().size().unwrap_or(1) as u64)
    }

    /// Region of the tensor for a range of rows.
    pub(super) fn region(&self, rows: &Range<u64>) -> Region {
        let mut region = Region::whole(&self.entry.shape);
        region.start[0] = rows.start;
        region.shape[0] = rows.end - rows.start;
        region
    }

    /// Reads a range of rows in row-major order.
    pub(super) fn read(
        &self,
        rows: &Range<u64>,
        elements: &mut (impl Elements + ?Sized),
        into: &mut Vec<u8>,
    ) -> Result<()> {
        elements.read(&self.entry, &self.region(rows), Order::Row, into)
    }

    /// Row names, as many as rows; `None` if the table has none.
    pub(super) fn names(&self) -> Result<Option<Arc<RowNameList>>> {
        let Some(row_names) = &self.entry.row_names else { return Ok(None) };
        let list = row_names.read()?;
        check_count(&**row_names, list.len() as u64, self.rows)?;
        Ok(Some(list))
    }

    /// Sources of the row names.
    pub(super) fn name_sources(&self) -> Vec<SourceRef> {
        self.entry.row_names.iter().flat_map(|row_names: &RowNamesRef| row_names.sources()).collect()
    }

    /// Number of rows to encode together, at `each` bytes of memory per row, within the share of a
    /// worker. Column-major tensors are read in longer runs.
    pub(super) fn rows_at_once(&self, each: u64, out: &dyn Output) -> u64 {
        let moved = self.entry.order() != Order::Row && !self.entry.shape.is_order_free();
        let most = out.share() / 2;
        let wanted = if moved { most } else { most.min(1 << 20) };
        (wanted / each.max(1)).clamp(1, self.rows.max(1))
    }

    /// Approximate size of the output file in bytes.
    pub(super) fn estimate(&self) -> u64 {
        let names = if self.entry.row_names.is_some() { 12 } else { 0 };
        self.row_bytes().saturating_add(names).saturating_mul(self.rows).saturating_add(1000)
    }

    /// Description such as `5 rows of 8 f32, with names`.
    pub(super) fn describe(&self) -> String {
        let names = if self.entry.row_names.is_some() { ", with names" } else { "" };
        format!("{}  {} rows of {} {}{names}", self.entry.name(), self.rows, self.columns, self.entry.dtype())
    }
}
