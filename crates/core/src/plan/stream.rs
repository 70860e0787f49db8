//! Streamed files, with a length that depends on the elements: text, compressed tables.
//!
//! These files have no segments. Their plan is an [`Encode`], which writes sequentially to an [`Output`] of the engine. They are
//! staged, synced and committed as any other file.

use super::{PlannedFile, SourceCheck};
use crate::checkpoint::TensorEntry;
use crate::error::Result;
use crate::source::SourceRef;
use crate::tensor::{Order, Region};
use std::fmt::Debug;
use std::sync::Arc;

/// Encoder that writes a file sequentially. Pure data: [`encode`](Self::encode) does the work, can be repeated, and writes the
/// same bytes each time.
pub trait Encode: Debug + Send + Sync {
    /// Describes the output for users: `1000 rows of 8 f32 as text`.
    fn describe(&self) -> String;

    /// Estimates the bytes written. Used for progress only.
    fn estimate(&self) -> u64;

    /// Returns the tensors that it reads.
    fn tensors(&self) -> Vec<&TensorEntry>;

    /// Returns the sources that it reads besides the tensors, such as row names.
    fn other_sources(&self) -> Vec<SourceRef> {
        Vec::new()
    }

    /// Writes the file.
    ///
    /// # Errors
    /// Errors of the sources and of `out`, and for values that cannot be encoded.
    fn encode(&self, out: &mut dyn Output) -> Result<()>;
}

/// Reader of elements for an encoder. The engine collects the reports of casts.
pub trait Elements {
    /// Replaces the content of `into` with the elements of a box: little-endian, dense in `order`, in the entry's
    /// [`dtype`](TensorEntry::dtype).
    ///
    /// # Errors
    /// As [`TensorEntry::read_region`](crate::TensorEntry::read_region).
    fn read(&mut self, entry: &TensorEntry, region: &Region, order: Order, into: &mut Vec<u8>) -> Result<()>;
}

/// Function that appends the block of that number to an empty buffer.
pub type MakeBlock<'a> = dyn Fn(u64, &mut dyn Elements, &mut Vec<u8>) -> Result<()> + Sync + 'a;

/// Output of an encoder.
pub trait Output: Elements {
    /// Appends these bytes.
    ///
    /// # Errors
    /// [`crate::Kind::Io`]; [`crate::Kind::Cancelled`].
    fn write(&mut self, bytes: &[u8]) -> Result<()>;

    /// Appends the blocks `0..count`. Workers make them in parallel; they are written in order. The memory for making one block
    /// should stay below [`share`](Self::share).
    ///
    /// # Errors
    /// Errors of `make` and of [`write`](Self::write).
    fn blocks(&mut self, count: u64, make: &MakeBlock<'_>) -> Result<()>;

    /// Returns the bytes appended so far.
    fn position(&self) -> u64;

    /// Returns the maximum bytes of all buffers of one worker.
    fn share(&self) -> u64;
}

/// Encoder of a planned file, with the sources that it reads.
#[derive(Debug, Clone)]
pub struct Streamed {
    encoder: Arc<dyn Encode>,
    sources: Vec<SourceRef>,
}

impl Streamed {
    /// Returns the encoder.
    pub fn encoder(&self) -> &Arc<dyn Encode> {
        &self.encoder
    }

    /// Returns every source that it reads.
    pub fn sources(&self) -> &[SourceRef] {
        &self.sources
    }
}

impl PartialEq for Streamed {
    /// Compares encoders: equal if one object, or if description, estimate and tensors are equal.
    fn eq(&self, other: &Self) -> bool {
        let summary = |s: &Self| (s.encoder.describe(), s.encoder.estimate());
        let (ours, theirs) = (self.encoder.tensors(), other.encoder.tensors());
        Arc::ptr_eq(&self.encoder, &other.encoder)
            || (summary(self) == summary(other)
                && ours.len() == theirs.len()
                && ours.iter().zip(theirs).all(|(a, b)| super::same_tensor(a, b)))
    }
}

impl PlannedFile {
    /// Creates a file that `encoder` writes sequentially. Its length is an estimate and it has no segments. The checksums of
    /// the extents of its tensors are verified.
    pub fn streamed(name: impl Into<String>, encoder: Arc<dyn Encode>) -> Self {
        let mut sources = Vec::new();
        let mut checks = Vec::new();
        for tensor in encoder.tensors() {
            for extent in &tensor.extents {
                sources.push(extent.source.clone());
                let check = extent.check.clone();
                checks.extend(check.map(|check| SourceCheck { check, tensor: tensor.name() }));
            }
        }
        sources.extend(encoder.other_sources());
        Self {
            name: name.into(),
            len: encoder.estimate(),
            segments: Vec::new(),
            checks,
            stream: Some(Streamed { encoder, sources }),
            content: String::new(),
        }
    }

    /// Returns true if [`len`](Self::len) is an estimate: the file is streamed.
    pub fn is_estimated(&self) -> bool {
        self.stream.is_some()
    }

    /// Returns the initial length of the staged file: 0 for a streamed file, which grows.
    pub fn staged_len(&self) -> u64 {
        if self.is_estimated() { 0 } else { self.len }
    }
}
