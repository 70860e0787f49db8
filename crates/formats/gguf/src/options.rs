//! Read options of this format.

use std::sync::Arc;
use weighbridge_format::{FormatOptions, WrapFiles};

/// Read options for GGUF files.
#[derive(Debug, Clone, Copy, Default)]
pub struct ReadOptions {
    /// Lists the values of quantized tensors as `f32` instead of their blocks.
    pub dequantize: bool,
}

impl FormatOptions for ReadOptions {
    fn wrapped(&self, _: &dyn WrapFiles) -> Arc<dyn FormatOptions> {
        Arc::new(*self)
    }

    fn words(&self) -> Vec<String> {
        if self.dequantize { vec!["dequantize".to_owned()] } else { Vec::new() }
    }
}
