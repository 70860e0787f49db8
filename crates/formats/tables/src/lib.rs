//! Tables as tensors: all numeric columns as one tensor, with its row names.

// Items used only by scans.
#![cfg_attr(not(feature = "scan"), allow(dead_code, unused_imports))]

pub mod arrow;
pub mod parquet;
pub mod records;
pub mod table;
pub mod tsv;
pub mod word2vec;

/// Registry of the formats of this crate, for tests.
#[cfg(test)]
pub(crate) mod opening {
    use weighbridge_core::Checkpoint;
    use weighbridge_core::Result;
    use weighbridge_core::source::SourceRef;
    use weighbridge_format::{Format, OpenOptions, Registry};

    fn registry() -> Registry {
        Registry::new([
            &crate::tsv::Tsv as _,
            &crate::word2vec::Word2Vec as _,
            &crate::arrow::Arrow as _,
            &crate::parquet::Parquet as _,
        ])
    }

    pub(crate) fn by_id(id: &str) -> Result<&'static dyn Format> {
        registry().by_id(id)
    }

    pub(crate) fn detect(source: &SourceRef) -> Result<&'static dyn Format> {
        registry().detect(source)
    }

    pub(crate) fn open_source(source: SourceRef, options: &OpenOptions) -> Result<Checkpoint> {
        registry().open_source(source, options)
    }
}
