//! numpy files: single arrays and folders of arrays ([`npy`]), and archives of arrays ([`npz`]).

pub mod npy;
pub mod npz;

/// The formats of this crate as a registry, for tests.
#[cfg(test)]
pub(crate) mod opening {
    use weighbridge_core::Checkpoint;
    use weighbridge_core::Result;
    use weighbridge_core::source::{FolderRef, SourceRef};
    use weighbridge_format::{Format, OpenOptions, Registry};

    fn registry() -> Registry {
        Registry::new([&crate::npy::Npy as _, &crate::npz::Npz as _])
    }

    pub(crate) fn detect_folder(folder: &FolderRef) -> Result<&'static dyn Format> {
        registry().detect_folder(folder)
    }

    pub(crate) fn open_folder(folder: &FolderRef, options: &OpenOptions) -> Result<Checkpoint> {
        registry().open_folder(folder, options)
    }

    pub(crate) fn open_source(source: SourceRef, options: &OpenOptions) -> Result<Checkpoint> {
        registry().open_source(source, options)
    }
}
