//! In-place edits of an existing file: only bytes around tensors change, and an undo record is kept.
//!
//! 1. [`Patch::find`] compares the plan of the new file with the old file. If tensors keep their offsets, the result
//!    is a [`Patch`]: the few ranges that differ.
//! 2. [`Patch::write`] first writes a synced undo record beside the file, `NAME.weighbridge-undo`; then it writes the
//!    ranges and syncs.
//! 3. [`Patch::undo`] restores the old bytes, also if writing was interrupted at any point; [`Patch::forget`] removes
//!    the record.
//!
//! ```text
//! offset  bytes
//!      0     16  "weighbridge undo"
//!     16      4  version, 2 or 3, little-endian, as all numbers here
//!     20      8  old length of the file
//!     28      8  new length of the file
//!     36      8  number of ranges
//!     44         for each range: offset (8), old length (8), new length (8), old bytes, new bytes
//!    end     32  BLAKE3 (version 2) or SHA-256 (version 3) of the bytes outside of the ranges, in their order
//!   then     32  SHA-256 of all before
//! ```
//!
//! Version 2 is written and read with the feature `blake3`, version 3 without it; version 3 is read always.
//!
//! Bytes outside the ranges never change during an edit. If they differ from the recorded hash, the file was modified
//! otherwise, and the undo writes nothing.
//!
//! Old and new length of a range are equal, except for a range at the end of the file.

mod disk;
mod find;
mod outside;
mod record;
#[cfg(test)]
mod tests;
mod write;

pub use disk::{Fingerprint, LocalPatchDisk, PatchDisk, PatchFile};

/// Difference between two versions of a file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Patch {
    /// Old length of the file, in bytes.
    pub old_len: u64,
    /// New length of the file, in bytes.
    pub new_len: u64,
    /// Differing ranges, sorted and disjoint.
    pub ranges: Vec<PatchRange>,
}

/// Range of a file whose bytes differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PatchRange {
    /// Offset of the first byte.
    pub offset: u64,
    /// Old bytes.
    pub old: Vec<u8>,
    /// New bytes; of a different length only at the end of the file.
    pub new: Vec<u8>,
}

impl Patch {
    /// True where both versions are equal.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty() && self.old_len == self.new_len
    }

    /// Number of bytes that are written.
    pub fn bytes(&self) -> u64 {
        self.ranges.iter().map(|range| range.new.len() as u64).sum()
    }
}
