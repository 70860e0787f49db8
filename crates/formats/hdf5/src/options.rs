//! Read options of this format.

use std::sync::Arc;
use weighbridge_format::{FormatOptions, WrapFiles};

/// Read options for HDF5 files.
#[derive(Debug, Clone, Copy, Default)]
pub struct ReadOptions {
    /// Reads virtual datasets from source files in the same folder.
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
