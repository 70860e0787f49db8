//! Files whose length depends on the elements: text, compressed tables.
//!
//! Such a file cannot be laid out as segments. It is planned as an [`Encode`], which the engine lets
//! write from front to back into an [`Output`]. It is staged, synced and published as any other.

use super::{PlannedFile, SourceCheck};
use crate::checkpoint::TensorEntry;
use crate::error::Result;
use crate::source::SourceRef;
use crate::tensor::{Order, Region};
use std::fmt::Debug;
use std::sync::Arc;

/// Something that writes a file from front to back. Pure data: nothing happens before
/// [`encode`](Self::encode), and that may be run again and gives the same bytes.
pub trait Encode: Debug + Send + Sync {
    /// What is written, for people: `1000 rows of 8 f32 as text`.
    fn describe(&self) -> String;

    /// About how many bytes it will write. Progress is measured by it; nothing relies on it.
    fn estimate(&self) -> u64;

    /// The tensors that it reads.
    fn tensors(&self) -> Vec<&TensorEntry>;

    /// What it reads besides the tensors: names of rows.
    fn other_sources(&self) -> Vec<SourceRef> {
        Vec::new()
    }

    /// Writes the file.
    ///
    /// # Errors
    /// What the sources and `out` say, and what cannot be encoded.
    fn encode(&self, out: &mut dyn Output) -> Result<()>;
}

/// Reads elements on behalf of an encoder; the engine counts what casts do.
pub trait Elements {
    /// Puts the elements of a box into `into`, which is cleared: little-endian, dense in `order`, in
    /// the entry's [`dtype`](TensorEntry::dtype).
    ///
    /// # Errors
    /// As [`TensorEntry::read_region`](crate::TensorEntry::read_region).
    fn read(&mut self, entry: &TensorEntry, region: &Region, order: Order, into: &mut Vec<u8>) -> Result<()>;
}

/// Makes the block of that number at the end of an empty buffer.
pub type MakeBlock<'a> = dyn Fn(u64, &mut dyn Elements, &mut Vec<u8>) -> Result<()> + Sync + 'a;

/// Where an encoder writes.
pub trait Output: Elements {
    /// Appends these bytes.
    ///
    /// # Errors
    /// [`crate::Kind::Io`]; [`crate::Kind::Cancelled`].
    fn write(&mut self, bytes: &[u8]) -> Result<()>;

    /// Appends the blocks `0..count`, which are made by many workers at once and written in their
    /// order. What making one of them takes in memory should stay below [`share`](Self::share).
    ///
    /// # Errors
    /// What `make` says, and as [`write`](Self::write).
    fn blocks(&mut self, count: u64, make: &MakeBlock<'_>) -> Result<()>;

    /// Bytes appended so far.
    fn position(&self) -> u64;

    /// Bytes that all buffers of one worker together may take.
    fn share(&self) -> u64;
}

/// The encoder of a planned file, with the sources that it reads.
#[derive(Debug, Clone)]
pub struct Streamed {
    encoder: Arc<dyn Encode>,
    sources: Vec<SourceRef>,
}

impl Streamed {
    /// What writes the file.
    pub fn encoder(&self) -> &Arc<dyn Encode> {
        &self.encoder
    }

    /// Every source that is read.
    pub fn sources(&self) -> &[SourceRef] {
        &self.sources
    }
}

impl PartialEq for Streamed {
    /// Two are the same when they are one object, or say the same of themselves and of their tensors.
    fn eq(&self, other: &Self) -> bool {
        let told = |s: &Self| (s.encoder.describe(), s.encoder.estimate());
        let (ours, theirs) = (self.encoder.tensors(), other.encoder.tensors());
        Arc::ptr_eq(&self.encoder, &other.encoder)
            || (told(self) == told(other)
                && ours.len() == theirs.len()
                && ours.iter().zip(theirs).all(|(a, b)| super::same_tensor(a, b)))
    }
}

impl PlannedFile {
    /// A file that `encoder` writes from front to back. Its length is an estimate and it has no
    /// segments. The checksums that the sources of its tensors give are held against them.
    pub fn streamed(name: impl Into<String>, encoder: Arc<dyn Encode>) -> Self {
        let mut sources = Vec::new();
        let mut checks = Vec::new();
        for tensor in encoder.tensors() {
            for extent in &tensor.extents {
                sources.push(extent.source.clone());
                checks.extend(extent.check.as_deref().map(|check| SourceCheck {
                    source: extent.source.clone(),
                    check: *check,
                    tensor: tensor.name(),
                }));
            }
        }
        sources.extend(encoder.other_sources());
        Self {
            name: name.into(),
            len: encoder.estimate(),
            segments: Vec::new(),
            checks,
            stream: Some(Streamed { encoder, sources }),
        }
    }

    /// True where [`len`](Self::len) is an estimate: the file is written from front to back.
    pub fn is_estimated(&self) -> bool {
        self.stream.is_some()
    }

    /// The length with which the file is staged: 0 where it grows as it is written.
    pub fn staged_len(&self) -> u64 {
        if self.is_estimated() { 0 } else { self.len }
    }
}
