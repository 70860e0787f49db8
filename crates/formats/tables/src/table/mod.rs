//! What the formats of tables share: which tensors are tables, their files, rows that are decoded
//! when they are asked for, and numbers as text.
//!
//! A table is a tensor of two dimensions, a row for each thing, that may know the names of its rows
//! ([`TensorEntry::labels`]). One table becomes one file; several become a folder of files.

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

/// Copies of unpacked bytes: as they are, and as elements or names.
pub(super) const COPIES: u64 = 2;
/// It costs so many times its bytes of work.
const TIMES: u64 = 5;

/// Fails where so many bytes are more than may be unpacked at once. They need not stay, and short files are packed well: so
/// the work that is left for them counts, too, or else their memory.
pub(super) fn check_at_once(budget: &Budget, bytes: u64) -> Result<()> {
    if bytes.saturating_mul(TIMES) <= budget.work_left() {
        return Ok(());
    }
    let held = bytes.saturating_mul(COPIES);
    budget.take_memory(held)?;
    budget.give_memory(held);
    Ok(())
}

/// A tensor as rows.
#[derive(Debug, Clone)]
pub(super) struct Table {
    /// The tensor, of one dimension or two.
    pub entry: TensorEntry,
    /// The number of rows.
    pub rows: u64,
    /// Elements of a row.
    pub columns: u64,
}

impl Table {
    /// The tensor as a table, if it is one: of two dimensions, or of one, which is one column.
    pub(super) fn new(entry: &TensorEntry) -> Option<Self> {
        let (rows, columns) = match *entry.shape.dims() {
            [rows] => (rows, 1),
            [rows, columns] => (rows, columns),
            _ => return None,
        };
        Some(Self { entry: entry.clone(), rows, columns })
    }

    /// Bytes of a row, as its elements are read.
    pub(super) fn row_bytes(&self) -> u64 {
        self.columns.saturating_mul(self.entry.dtype().size().unwrap_or(1) as u64)
    }

    /// The box of some rows.
    pub(super) fn region(&self, rows: &Range<u64>) -> Region {
        let mut region = Region::whole(&self.entry.shape);
        region.start[0] = rows.start;
        region.shape[0] = rows.end - rows.start;
        region
    }

    /// Reads some rows, row by row.
    pub(super) fn read(
        &self,
        rows: &Range<u64>,
        elements: &mut (impl Elements + ?Sized),
        into: &mut Vec<u8>,
    ) -> Result<()> {
        elements.read(&self.entry, &self.region(rows), Order::Row, into)
    }

    /// The names of the rows, as many as there are rows; `None` where they have none.
    pub(super) fn names(&self) -> Result<Option<Arc<RowNameList>>> {
        let Some(labels) = &self.entry.row_names else { return Ok(None) };
        let list = labels.read()?;
        check_count(&**labels, list.len() as u64, self.rows)?;
        Ok(Some(list))
    }

    /// What the names are read from.
    pub(super) fn name_sources(&self) -> Vec<SourceRef> {
        self.entry.row_names.iter().flat_map(|labels: &RowNamesRef| labels.sources()).collect()
    }

    /// Rows that are made together, where each takes `each` bytes of memory: enough to be worth the
    /// while, and what one worker may hold. Columns that lie apart are read in longer runs.
    pub(super) fn rows_at_once(&self, each: u64, out: &dyn Output) -> u64 {
        let moved = self.entry.order() != Order::Row && !self.entry.shape.is_order_free();
        let most = out.share() / 2;
        let wanted = if moved { most } else { most.min(1 << 20) };
        (wanted / each.max(1)).clamp(1, self.rows.max(1))
    }

    /// About how many bytes the file of it takes.
    pub(super) fn estimate(&self) -> u64 {
        let names = if self.entry.row_names.is_some() { 12 } else { 0 };
        self.row_bytes().saturating_add(names).saturating_mul(self.rows).saturating_add(1000)
    }

    /// `5 rows of 8 f32, with names`.
    pub(super) fn describe(&self) -> String {
        let names = if self.entry.row_names.is_some() { ", with names" } else { "" };
        format!("{}  {} rows of {} {}{names}", self.entry.name(), self.rows, self.columns, self.entry.dtype())
    }
}
