//! Elements of the datasets of a file, read within one bound.

use super::file::File;
use super::heap::Heaps;
use super::texts::{RawText, each_text};
use crate::Dataset;
use weighbridge_core::error::{Error, Result};
use weighbridge_io::source::SourceRef;

/// Reads elements of the datasets of a file, all within one bound.
#[derive(Default)]
pub struct ElementReader {
    /// Opened once: what it may read holds for all datasets together.
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
    /// A reader that takes `most` bytes, unpacked, from all datasets together.
    pub fn new(most: u64) -> Self {
        Self { file: None, heaps: Heaps::default(), left: most }
    }

    /// Bytes that are left of the bound.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Takes `bytes` from the bound.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Limit`] where they are more than is left.
    pub fn take(&mut self, bytes: u64) -> Result<()> {
        taken(&mut self.left, bytes)
    }

    /// Gives each text of `dataset`, of which `bytes` are [those of all elements](Dataset::bytes), to `look`, row by
    /// row, with its number.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Usage`], code `hdf5-type`, where it holds no texts; [`weighbridge_core::Kind::Limit`] where they are more
    /// than is left of the bound; [`weighbridge_core::Kind::Corrupt`] where a text is not where it should be; what `look` says.
    pub fn each_text(
        &mut self,
        dataset: &Dataset,
        bytes: &SourceRef,
        look: &mut dyn FnMut(u64, RawText<'_>) -> Result<()>,
    ) -> Result<()> {
        let Self { file, heaps, left } = self;
        let file = file.get_or_insert_with(|| dataset.stored.place.open());
        each_text(dataset, bytes, file, heaps, &mut |bytes| taken(left, bytes), look)
    }
}

fn taken(left: &mut u64, bytes: u64) -> Result<()> {
    *left = left.checked_sub(bytes).ok_or_else(|| {
        Error::limit("limit", "HDF5: what is looked at of datasets takes many times the length of the file")
    })?;
    Ok(())
}
