//! Verification of checksums stored in a file.

use crate::checkpoint::{Check, TensorEntry};
use crate::checksum::Checksum;
use crate::error::{Error, Result};
use crate::phrase;
use crate::phrase::Opt;
use crate::source::{SourceRef, to_usize};

/// Bytes per read.
const STEP: u64 = 256 << 10;

/// Reads the range and compares its checksum.
pub fn verify(source: &SourceRef, check: &Check) -> Result<()> {
    let found = checksum(source, check)?;
    if found == check.value {
        return Ok(());
    }
    Err(check.mismatch(source.label(), found))
}

/// Reads the range of `check` and returns its checksum.
///
/// # Errors
/// Errors of the source.
pub fn checksum(source: &SourceRef, check: &Check) -> Result<u32> {
    crate::source::check_range(&**source, check.offset, check.len)?;
    let mut hasher = Checksum::new(check.kind);
    let mut buffer = vec![0; to_usize(check.len.min(STEP))?];
    let mut done = 0;
    while done < check.len {
        let step = &mut buffer[..to_usize((check.len - done).min(STEP))?];
        source.read_at(check.offset + done, step)?;
        hasher.update(step);
        done += step.len() as u64;
    }
    Ok(hasher.finish())
}

impl Check {
    /// Returns the error for bytes of the file `label` with the wrong checksum `found`.
    pub fn mismatch(&self, label: &str, found: u32) -> Error {
        Error::corrupt("crc-mismatch", "the checksum of the data does not match")
            .in_file(label)
            .at(self.offset)
            .expected(format_args!("{} {:08x} over {} bytes", self.kind.name(), self.value, self.len))
            .found(format_args!("{found:08x}"))
            .hint(phrase![
                "the file is damaged; get another copy, or read the intact tensors with ",
                Opt::Salvage
            ])
    }
}

impl TensorEntry {
    /// Verifies the checksums that the file states for the bytes of the tensor, if any. For callers that read the whole tensor;
    /// a plan is verified while it runs.
    ///
    /// # Errors
    /// [`crate::Kind::Corrupt`], code `crc-mismatch`; errors of the sources.
    pub fn verify_tensor(&self) -> Result<()> {
        for extent in &self.extents {
            if let Some(check) = &extent.check {
                verify(&extent.source, check).map_err(|e| e.on_tensor(self.name()))?;
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
