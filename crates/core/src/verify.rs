//! Verification of checksums stored in a file.

use crate::checkpoint::TensorEntry;
use crate::error::Result;
use crate::source::{SourceRef, to_usize};

/// Bytes per read.
const STEP: u64 = 256 << 10;

impl TensorEntry {
    /// Verifies the checksums that the file states for the bytes of the tensor, if any. For callers that read the whole tensor;
    /// a plan is verified while it runs.
    ///
    /// # Errors
    /// [`crate::Kind::Corrupt`], code `crc-mismatch`; errors of the sources.
    pub fn verify_tensor(&self) -> Result<()> {
        for extent in &self.extents {
            if let Some(check) = &extent.check {
                check.verify().map_err(|e| e.on_tensor(self.name()))?;
            }
        }
        Ok(())
    }
}

/// Returns true if the bytes are decoded from others. Checks of the encoding run only when the source is read to its end.
pub fn is_encoded(source: &SourceRef) -> bool {
    source.is_decoded()
}

/// Reads a whole source, to run the checks of its decoder.
///
/// # Errors
/// Errors of the source.
pub fn read_through(source: &SourceRef) -> Result<()> {
    let mut buffer = vec![0; to_usize(source.len().min(STEP))?];
    let mut at = 0;
    while at < source.len() {
        let step = to_usize((source.len() - at).min(STEP))?;
        source.read_at(at, &mut buffer[..step])?;
        at += step as u64;
    }
    Ok(())
}
