//! Formats that this build does not have, as jobs of all formats ask for them: there is nothing of them.

#[cfg(not(feature = "biggraph"))]
pub(crate) mod biggraph {
    use crate::checkpoint::{Checkpoint, LabelList, TensorEntry};
    use crate::error::{Error, Result};
    use crate::source::FolderRef;
    use std::path::PathBuf;

    /// The error for a job that needs the format.
    fn left_out() -> Error {
        Error::unsupported("left-out-of-build", "this program was built without what this needs")
            .expected("the feature `biggraph` of the crate `weighbridge`")
    }

    /// There is no way to draw embeddings.
    #[derive(Debug, Clone, Copy)]
    pub enum Draw {}

    pub(crate) fn draw(_: &mut Checkpoint, draw: Draw) -> Result<()> {
        match draw {}
    }

    pub(crate) fn grow(_: &mut Checkpoint, _: &str, _: &LabelList, _: u64) -> Result<()> {
        Err(left_out())
    }

    pub(crate) fn relation_rows(_: &Checkpoint, _: &TensorEntry) -> Option<LabelList> {
        None
    }

    pub(crate) fn entity_files(folder: &FolderRef) -> Result<Vec<PathBuf>> {
        Err(left_out().in_file(folder.label()))
    }

    #[cfg(feature = "scan")]
    pub(crate) fn is_text(
        _: &std::path::Path,
        _: &crate::source::SourceRef,
        _: &crate::limits::Limits,
    ) -> Result<bool> {
        Ok(false)
    }

    pub(crate) mod rows {
        use super::{Checkpoint, Result, left_out};

        pub(crate) fn add_global_embeddings(_: &mut Checkpoint) -> Result<usize> {
            Err(left_out())
        }
    }
}

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

    pub(crate) const BEYOND: &str = "storage beyond its tensors";

    pub(crate) fn was_object(_: &Checkpoint) -> bool {
        false
    }

    pub(crate) fn mark_object(_: &mut Checkpoint) {}
}
