//! Source files of virtual datasets.

use super::types::Type;
use std::sync::Arc;
use weighbridge_core::error::Result;
use weighbridge_io::source::SourceRef;

/// A source dataset of a virtual dataset.
#[derive(Debug)]
pub(super) struct SourceDataset {
    pub(super) element: Type,
    pub(super) dims: Vec<u64>,
    /// Elements, row by row.
    pub(super) bytes: SourceRef,
    /// Maximum number of bytes unpacked to read a run of elements.
    pub(super) unpacked: u64,
    /// Bytes of these that must stay cached so that the next run does not unpack them again.
    pub(super) kept: u64,
}

/// Access to the source files of virtual datasets.
pub(super) trait Sources: std::fmt::Debug + Send + Sync {
    /// Total length of the file itself and of the files opened so far.
    fn bytes(&self) -> u64;

    /// Returns the dataset at `path` in the file named `file`.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`]: `hdf5-virtual-missing` where the file
    /// or the dataset is missing; [`weighbridge_core::Kind::Unsupported`]: `unsafe-name` for a file outside of the folder,
    /// `hdf5-virtual` for a dataset that is virtual itself; errors of reading the file.
    fn dataset(&self, file: &str, path: &str) -> Result<Arc<SourceDataset>>;
}
