//! Formats that this build does not have, as jobs of all formats ask for them: there is nothing of them.

use crate::checkpoint::Checkpoint;
use crate::error::Result;
use crate::source::FolderRef;

#[cfg(not(feature = "safetensors"))]
pub(crate) mod safetensors {
    use super::{FolderRef, Result};
    use crate::limits::Limits;
    pub(crate) use weighbridge_format::shards::{IndexFile, IndexFiles};

    pub(crate) fn index_files(_: &FolderRef, _: &Limits) -> Result<IndexFiles> {
        Ok(IndexFiles::default())
    }
}

#[cfg(not(feature = "torch"))]
pub(crate) mod torch {
    use super::Checkpoint;

    pub(crate) fn was_object(_: &Checkpoint) -> bool {
        false
    }

    pub(crate) fn mark_object(_: &mut Checkpoint) {}
}
