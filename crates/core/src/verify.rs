//! Holding bytes against the checksum that their file gives for them.

use crate::checkpoint::{Check, TensorEntry};
use crate::error::{Error, Result};
use crate::phrase;
use crate::phrase::Opt;
use crate::source::{SourceRef, to_usize};

/// Bytes that are read at once.
const STEP: u64 = 256 << 10;

/// Reads the range and compares its CRC-32.
pub fn verify(source: &SourceRef, check: &Check) -> Result<()> {
    crate::source::check_range(&**source, check.offset, check.len)?;
    let mut hasher = crc32fast::Hasher::new();
    let mut buffer = vec![0; to_usize(check.len.min(STEP))?];
    let mut done = 0;
    while done < check.len {
        let step = &mut buffer[..to_usize((check.len - done).min(STEP))?];
        source.read_at(check.offset + done, step)?;
        hasher.update(step);
        done += step.len() as u64;
    }
    let found = hasher.finalize();
    if found == check.crc32 {
        return Ok(());
    }
    Err(check.mismatch(source.label(), found))
}

impl Check {
    /// Error for bytes in the file `label` whose CRC-32 is `found`, which is another one.
    pub fn mismatch(&self, label: &str, found: u32) -> Error {
        Error::corrupt("crc-mismatch", "the bytes are not those that were written: the checksum differs")
            .in_file(label)
            .at(self.offset)
            .expected(format_args!("CRC-32 {:08x} over {} bytes", self.crc32, self.len))
            .found(format_args!("{found:08x}"))
            .hint(phrase![
                "the file was damaged after it was written: look for another copy, or read with ",
                Opt::Salvage,
                " what is intact"
            ])
    }
}

impl TensorEntry {
    /// Holds the bytes of `self` against the checksums that its file gives, if it gives any. For
    /// those who read the whole tensor; a plan is verified while it runs.
    ///
    /// # Errors
    /// [`crate::Kind::Corrupt`], code `crc-mismatch`; and what the sources say.
    pub fn verify_tensor(&self) -> Result<()> {
        for extent in &self.extents {
            if let Some(check) = &extent.check {
                verify(&extent.source, check).map_err(|e| e.on_tensor(self.name()))?;
            }
        }
        Ok(())
    }
}

/// True where the bytes are made from others, whose own checks are met only by reading to the end.
pub fn is_encoded(source: &SourceRef) -> bool {
    source.is_decoded()
}

/// Reads a source from front to back, for the checks that its decoding makes.
///
/// # Errors
/// What the source says.
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
