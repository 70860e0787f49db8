//! What will be written, before a byte is: a value that can be printed, compared and refused.
//!
//! A format's layouter builds a [`WritePlan`] with [`FileBuilder`]. It is pure: nothing here opens,
//! reads or writes a file. The engine runs it.

mod builder;
mod print;
mod stream;

pub use builder::FileBuilder;
pub use stream::{Elements, Encode, MakeBlock, Output, Streamed};

use crate::checkpoint::{Check, Loss, TensorEntry};
use crate::phrase::{Face, Worded};
use crate::source::SourceRef;
use crate::tensor::{Order, Region};
use std::ops::Range;
use std::sync::Arc;

/// Every file that a conversion writes, and what is lost on the way.
#[derive(Debug, Clone, PartialEq)]
pub struct WritePlan {
    /// The id of the format that is written.
    pub format: &'static str,
    /// The kind of file within the format.
    pub kind: &'static str,
    /// The files, with names relative to the target.
    pub files: Vec<PlannedFile>,
    /// What the target cannot hold.
    pub losses: Vec<Loss>,
}

impl Worded for WritePlan {
    fn word(&mut self, face: Face<'_>) {
        self.losses.word(face);
    }
}

/// One file: segments that follow each other without gaps.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedFile {
    /// The name, relative to the target; empty for the target itself.
    pub name: String,
    /// The length in bytes; an estimate where the file is [streamed](Self::stream).
    pub len: u64,
    /// The segments, in order of their offsets; none where the file is streamed.
    pub segments: Vec<Segment>,
    /// What must hold of the sources for the file to be published.
    pub checks: Vec<SourceCheck>,
    /// What writes the file from front to back, where it has no segments.
    pub stream: Option<Streamed>,
}

/// A checksum that a source gives for bytes that are read.
#[derive(Debug, Clone)]
pub struct SourceCheck {
    /// What holds the bytes.
    pub source: SourceRef,
    /// Which bytes, and what their checksum must be.
    pub check: Check,
    /// The tensor, for people.
    pub tensor: String,
}

impl PartialEq for SourceCheck {
    fn eq(&self, other: &Self) -> bool {
        (self.check, &self.tensor, self.source.label()) == (other.check, &other.tensor, other.source.label())
    }
}

/// A run of bytes in a planned file.
#[derive(Debug, Clone, PartialEq)]
pub struct Segment {
    /// Where it begins in the file.
    pub offset: u64,
    /// How many bytes it has.
    pub len: u64,
    /// What the bytes are.
    pub content: Content,
}

/// What the bytes of a segment are.
#[derive(Debug, Clone)]
pub enum Content {
    /// These bytes.
    Literal(Vec<u8>),
    /// The same byte again and again.
    Padding(u8),
    /// A range of a source as it is, for the tensor of that displayed name.
    Copy {
        /// Where the bytes come from.
        source: SourceRef,
        /// Offset in the source.
        offset: u64,
        /// The tensor, for people.
        tensor: String,
    },
    /// The elements of a tensor, little-endian and dense in this order, cast if the entry asks.
    Tensor {
        /// The tensor.
        entry: Arc<TensorEntry>,
        /// The order that is written.
        order: Order,
    },
    /// The elements of a box of a tensor, little-endian and dense in this order, cast if the entry
    /// asks, as UTF-8 text: each byte is the code point of its number, so that those from 0x80 on
    /// take two bytes. The length depends on the elements and was measured.
    Latin1 {
        /// The tensor.
        entry: Arc<TensorEntry>,
        /// The order that is written.
        order: Order,
        /// The box; its elements follow each other in that order.
        region: Region,
    },
    /// The CRC-32 (as in zip) of a range of the same file, as 4 little-endian bytes, filled in
    /// when that range has been written.
    Crc32(Range<u64>),
}

fn same(a: &SourceRef, b: &SourceRef) -> bool {
    Arc::ptr_eq(a, b) || (a.label() == b.label() && a.len() == b.len())
}

fn same_tensor(a: &TensorEntry, b: &TensorEntry) -> bool {
    (&a.path, &a.role, a.stored, a.cast, &a.shape) == (&b.path, &b.role, b.stored, b.cast, &b.shape)
        && a.extents.len() == b.extents.len()
        && a.extents.iter().zip(&b.extents).all(|(p, q)| {
            (p.offset, p.len, p.encoding) == (q.offset, q.len, q.encoding)
                && p.region(&a.shape) == q.region(&b.shape)
                && same(&p.source, &q.source)
        })
}

impl PartialEq for Content {
    /// Two sources are the same when they are one object, or have one label and length.
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Literal(a), Self::Literal(b)) => a == b,
            (Self::Padding(a), Self::Padding(b)) => a == b,
            (Self::Crc32(a), Self::Crc32(b)) => a == b,
            (
                Self::Copy { source: s, offset: o, tensor: t },
                Self::Copy { source: s2, offset: o2, tensor: t2 },
            ) => same(s, s2) && o == o2 && t == t2,
            (Self::Tensor { entry: e, order: o }, Self::Tensor { entry: e2, order: o2 }) => {
                o == o2 && same_tensor(e, e2)
            }
            (
                Self::Latin1 { entry: e, order: o, region: r },
                Self::Latin1 { entry: e2, order: o2, region: r2 },
            ) => (o, r) == (o2, r2) && same_tensor(e, e2),
            _ => false,
        }
    }
}

impl WritePlan {
    /// The bytes of all files together; an estimate where one of them is streamed.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|f| f.len).sum()
    }

    /// True where the length of a file is not known before it is written.
    pub fn is_estimated(&self) -> bool {
        self.files.iter().any(PlannedFile::is_estimated)
    }

    /// True where the target is one file, not a folder of files.
    pub fn is_one_file(&self) -> bool {
        matches!(self.files.as_slice(), [file] if file.name.is_empty())
    }

    /// Every source that the plan reads.
    pub fn sources(&self) -> impl Iterator<Item = &SourceRef> {
        self.files.iter().flat_map(PlannedFile::sources)
    }
}

impl PlannedFile {
    /// Every source that the file is made from, once for each segment and piece.
    pub fn sources(&self) -> impl Iterator<Item = &SourceRef> {
        let streamed = self.stream.iter().flat_map(Streamed::sources);
        streamed.chain(self.segments.iter().flat_map(|segment| {
            let (one, extents) = match &segment.content {
                Content::Copy { source, .. } => (Some(source), &[][..]),
                Content::Tensor { entry, .. } | Content::Latin1 { entry, .. } => {
                    (None, entry.extents.as_slice())
                }
                _ => (None, &[][..]),
            };
            one.into_iter().chain(extents.iter().map(|extent| &extent.source))
        }))
    }
}
