//! Files that virtual datasets refer to.

use super::types::Type;
use std::sync::Arc;
use weighbridge_core::error::Result;
use weighbridge_io::source::SourceRef;

/// A dataset that others are made of.
#[derive(Debug)]
pub(super) struct SourceDataset {
    pub(super) element: Type,
    pub(super) dims: Vec<u64>,
    /// Its elements, row by row.
    pub(super) bytes: SourceRef,
    /// Bytes that are unpacked to read a run of them, at most.
    pub(super) unpacked: u64,
    /// The part of them that must stay in memory so that the next run does not unpack it again.
    pub(super) kept: u64,
}

/// Files that virtual datasets may lead to.
pub(super) trait Sources: std::fmt::Debug + Send + Sync {
    /// Bytes of the files that were opened so far, and of the file itself.
    fn bytes(&self) -> u64;

    /// The dataset at `path` in the file of that name.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`]: `unsafe-name` for a file that is not in the folder, `hdf5-virtual-missing` where the file
    /// or the dataset is not there; [`weighbridge_core::Kind::Unsupported`]: `hdf5-virtual` for a dataset that is virtual itself;
    /// what reading the file says.
    fn dataset(&self, file: &str, path: &str) -> Result<Arc<SourceDataset>>;
}
