//! Records: rows of text and numbers, such as edges by the names of their entities.
//!
//! The edges of a graph are tensors of row numbers. Formats with columns of text write them as records instead, with the names
//! of the rows. The reader of the edges supplies an [`AsRecords`], and the writer of a table reads the records in order.

use super::{Checkpoint, Loss, RowNameList, TensorEntry};
use crate::error::Result;
use crate::plan::Elements;
use crate::source::SourceRef;
use crate::tensor::DType;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

/// Shared records. Cheap to clone.
pub type RecordsRef = Arc<dyn Records>;

/// View of a checkpoint as records, supplied by its reader.
pub trait AsRecords: Debug + Send + Sync {
    /// Returns the records of `checkpoint`, whose tensors may have changed since it was opened, and the losses. `None` if the
    /// tensors are not records. Reading them keeps at most about `memory` bytes besides the current section.
    ///
    /// # Errors
    /// [`crate::Kind::Mismatch`] if records cannot represent the tensors; errors of reading their names.
    fn records(&self, checkpoint: &Checkpoint, memory: u64) -> Result<Option<(RecordsRef, Vec<Loss>)>>;
}

/// Rows of text and numbers, in sections.
pub trait Records: Debug + Send + Sync {
    /// Describes the records for users: `1000 edges by name`.
    fn describe(&self) -> String;

    /// Returns the columns.
    fn columns(&self) -> &[RecordColumn];

    /// Returns the number of rows of each section, in order.
    fn sections(&self) -> Vec<u64>;

    /// Returns the tensors with the numbers.
    fn tensors(&self) -> Vec<&TensorEntry>;

    /// Returns the sources of the text.
    fn sources(&self) -> Vec<SourceRef>;

    /// Opens a section: reads the text that its rows refer to.
    ///
    /// # Errors
    /// Errors of the sources.
    fn open(&self, section: usize) -> Result<Box<dyn RecordSection + '_>>;
}

/// Opened section of records. Several threads may read it.
pub trait RecordSection: Send + Sync {
    /// Returns the maximum bytes of one row of [`Cells`].
    fn row_bytes(&self) -> u64;

    /// Appends the cells of a range of rows to `into`, which has an item for each column.
    ///
    /// # Errors
    /// Errors of the sources; [`crate::Kind::Corrupt`] for a number that refers to no text.
    fn read(&self, rows: Range<u64>, elements: &mut dyn Elements, into: &mut [Cells]) -> Result<()>;
}

/// Column of records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordColumn {
    /// Name.
    pub name: String,
    /// Dtype of numbers; `None` for text.
    pub dtype: Option<DType>,
}

/// Cells of a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cells {
    /// Text.
    Text(RowNameList),
    /// Numbers: little-endian elements.
    Numbers(Vec<u8>),
}

impl Cells {
    /// Creates cells for each of `columns`, without rows.
    pub fn of(columns: &[RecordColumn]) -> Vec<Self> {
        let empty = |column: &RecordColumn| match column.dtype {
            None => Self::Text(RowNameList::new()),
            Some(_) => Self::Numbers(Vec::new()),
        };
        columns.iter().map(empty).collect()
    }

    /// Returns the bytes of the cells.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Text(list) => list.bytes(),
            Self::Numbers(bytes) => bytes.len() as u64,
        }
    }

    /// Removes the cells and keeps the allocated memory.
    pub fn clear(&mut self) {
        match self {
            Self::Text(list) => list.clear(),
            Self::Numbers(bytes) => bytes.clear(),
        }
    }
}
