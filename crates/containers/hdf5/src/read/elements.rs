//! Elements of the datasets of a file, read within one budget.

use super::file::File;
use super::heap::Heaps;
use super::texts::{RawText, each_text};
use crate::Dataset;
use weighbridge_core::error::{Error, Result};
use weighbridge_io::source::SourceRef;

/// Reader of the elements of the datasets of a file, within one budget for all of them.
#[derive(Default)]
pub struct ElementReader {
    /// Opened once: its budget applies to all datasets together.
    file: Option<File>,
    heaps: Heaps,
    left: u64,
}

impl std::fmt::Debug for ElementReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ElementReader").field("left", &self.left).finish_non_exhaustive()
    }
}

impl ElementReader {
    /// Creates a reader with a budget of `most` unpacked bytes for all datasets together.
    pub fn new(most: u64) -> Self {
        Self { file: None, heaps: Heaps::default(), left: most }
    }

    /// Bytes left in the budget.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Takes `bytes` from the budget.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Limit`] where the budget is exceeded.
    pub fn take(&mut self, bytes: u64) -> Result<()> {
        take(&mut self.left, bytes)
    }

    /// Calls `look` for each text of `dataset`, row by row, with its number. `bytes` is the source of
    /// [all elements](Dataset::bytes).
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Usage`], code `hdf5-type`, where the dataset does not contain texts;
    /// [`weighbridge_core::Kind::Limit`] where the
    /// budget is exceeded; [`weighbridge_core::Kind::Corrupt`] where a text is not in its heap; errors of `look`.
    pub fn each_text(
        &mut self,
        dataset: &Dataset,
        bytes: &SourceRef,
        look: &mut dyn FnMut(u64, RawText<'_>) -> Result<()>,
    ) -> Result<()> {
        let Self { file, heaps, left } = self;
        let file = file.get_or_insert_with(|| dataset.stored.context.open());
        each_text(dataset, bytes, file, heaps, &mut |bytes| take(left, bytes), look)
    }
}

fn take(left: &mut u64, bytes: u64) -> Result<()> {
    *left = left.checked_sub(bytes).ok_or_else(|| {
        Error::limit(
            "limit",
            "HDF5: the elements of the datasets exceed the budget, a multiple of the length of the file",
        )
    })?;
    Ok(())
}
