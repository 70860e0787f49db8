//! Source of bytes in memory.

use super::{Source, check_range};
use crate::error::Result;

/// Owned bytes with a label for errors.
#[derive(Debug)]
pub struct MemorySource {
    label: String,
    bytes: Vec<u8>,
}

impl MemorySource {
    /// Creates a source of `bytes`, named `label` in errors.
    pub fn new(label: impl Into<String>, bytes: Vec<u8>) -> Self {
        Self { label: label.into(), bytes }
    }
}

impl Source for MemorySource {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        check_range(self, offset, buffer.len() as u64)?;
        let start = super::to_usize(offset)?;
        buffer.copy_from_slice(&self.bytes[start..start + buffer.len()]);
        Ok(())
    }
    fn label(&self) -> &str {
        &self.label
    }
    fn as_slice(&self) -> Option<&[u8]> {
        Some(&self.bytes)
    }
}
