//! Formats that this build does not have, as jobs of all formats ask for them: there is nothing of them.

#[cfg(not(feature = "safetensors"))]
pub(crate) mod safetensors {
    use crate::error::Result;
    use crate::limits::Limits;
    use crate::source::FolderRef;
    pub(crate) use weighbridge_format::shards::{IndexFile, IndexFiles};

    pub(crate) fn index_files(_: &FolderRef, _: &Limits) -> Result<IndexFiles> {
        Ok(IndexFiles::default())
    }
}

#[cfg(not(feature = "torch"))]
pub(crate) mod torch {
    use crate::checkpoint::Checkpoint;

    pub(crate) fn was_object(_: &Checkpoint) -> bool {
        false
    }

    pub(crate) fn mark_object(_: &mut Checkpoint) {}
}
