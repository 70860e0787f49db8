//! Options of opening that only this format has.

use std::sync::Arc;
use weighbridge_format::{FormatOptions, WrapFiles};

/// Options of opening for HDF5 files.
#[derive(Debug, Clone, Copy, Default)]
pub struct ReadOptions {
    /// Read virtual datasets from the files in the same folder that they are made of.
    pub follow_virtual: bool,
}

impl FormatOptions for ReadOptions {
    fn wrapped(&self, _: &dyn WrapFiles) -> Arc<dyn FormatOptions> {
        Arc::new(*self)
    }

    fn words(&self) -> Vec<String> {
        if self.follow_virtual { vec!["follow-virtual".to_owned()] } else { Vec::new() }
    }
}
