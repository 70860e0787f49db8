//! Writing into a file that is there: only the bytes around tensors, and never without a way back.
//!
//! 1. [`Patch::find`] runs the plan of the new file against the old one. Where tensors keep their places, what is
//!    left is a [`Patch`]: the few ranges that differ.
//! 2. [`Patch::write`] first keeps an undo record beside the file, `NAME.weighbridge-undo`, synced; then it
//!    writes the ranges, and syncs.
//! 3. [`Patch::undo`] puts the old bytes back, also where the writing was cut short at any point; [`Patch::forget`]
//!    removes the record.
//!
//! ```text
//! offset  bytes
//!      0     16  "weighbridge undo"
//!     16      4  version, 2 or 3, little-endian, as all numbers here
//!     20      8  length of the file before
//!     28      8  length of the file after
//!     36      8  number of ranges
//!     44         for each range: offset (8), old length (8), new length (8), old bytes, new bytes
//!    end     32  BLAKE3 (version 2) or SHA-256 (version 3) of the bytes outside of the ranges, in their order
//!   then     32  SHA-256 of all before
//! ```
//!
//! Version 2 is written and read with the feature `blake3`, version 3 without it; version 3 is read always.
//!
//! What stands outside of the ranges is the same before, after, and at any point between. Where it is not, the
//! file is another one, and nothing is put back into it.
//!
//! Old and new length of a range are the same, but for one that reaches the end of the file.

mod disk;
mod find;
mod outside;
mod record;
#[cfg(test)]
mod tests;
mod write;

pub use disk::{Fingerprint, LocalPatchDisk, PatchDisk, PatchFile};

/// What must be written into a file to make it another one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Patch {
    /// The length of the file before, in bytes.
    pub old_len: u64,
    /// The length of the file after.
    pub new_len: u64,
    /// What differs, in order, apart from each other.
    pub ranges: Vec<PatchRange>,
}

/// A range of a file whose bytes differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PatchRange {
    /// The offset of the first byte.
    pub offset: u64,
    /// What stands there.
    pub old: Vec<u8>,
    /// What shall stand there; shorter or longer only at the end of the file.
    pub new: Vec<u8>,
}

impl Patch {
    /// True where both files are the same.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty() && self.old_len == self.new_len
    }

    /// Bytes that are written.
    pub fn bytes(&self) -> u64 {
        self.ranges.iter().map(|range| range.new.len() as u64).sum()
    }
}
