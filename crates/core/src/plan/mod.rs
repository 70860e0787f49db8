//! Plans of output files: values that can be printed and compared before any byte is written.
//!
//! A format builds a [`WritePlan`] with [`FileBuilder`]. This module opens, reads and writes no file; the engine of
//! `weighbridge-io` runs the plan.

mod builder;
mod print;
mod stream;

pub use builder::FileBuilder;
pub use stream::{Elements, Encode, MakeBlock, Output, Streamed};

use crate::checkpoint::{Loss, TensorEntry};
use crate::checksum::Check;
use crate::phrase::{Face, Worded};
use crate::source::SourceRef;
use crate::tensor::{DType, Order, Region, Shape};
use std::ops::Range;
use std::sync::Arc;

/// Plan of all files that a conversion writes, with its losses.
#[derive(Debug, Clone, PartialEq)]
pub struct WritePlan {
    /// Id of the target format.
    pub format: &'static str,
    /// Kind of file within the format.
    pub kind: &'static str,
    /// Files, with names relative to the target.
    pub files: Vec<PlannedFile>,
    /// Losses: data that the target cannot represent.
    pub losses: Vec<Loss>,
}

impl Worded for WritePlan {
    fn word(&mut self, face: Face<'_>) {
        self.losses.word(face);
    }
}

/// One file: consecutive segments without gaps, or a stream.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedFile {
    /// Name relative to the target; empty for the target itself.
    pub name: String,
    /// Length in bytes; an estimate if the file is [streamed](Self::stream).
    pub len: u64,
    /// Segments, in order of their offsets; empty if the file is streamed.
    pub segments: Vec<Segment>,
    /// Checksums of the sources. All must match before the file is committed.
    pub checks: Vec<SourceCheck>,
    /// Encoder that writes the file sequentially, if it has no segments.
    pub stream: Option<Streamed>,
    /// Content besides the tensors, as text for users: the nodes of a graph. Empty for most formats.
    pub content: String,
}

/// Checksum that a source states for bytes of a tensor.
#[derive(Debug, Clone, PartialEq)]
pub struct SourceCheck {
    /// Range and expected checksum.
    pub check: Arc<Check>,
    /// Display name of the tensor.
    pub tensor: String,
}

/// Run of bytes in a planned file.
#[derive(Debug, Clone, PartialEq)]
pub struct Segment {
    /// Offset in the file.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
    /// Content.
    pub content: Content,
}

/// Content of a segment.
#[derive(Debug, Clone)]
pub enum Content {
    /// Literal bytes.
    Literal(Vec<u8>),
    /// Repeated byte.
    Padding(u8),
    /// Unchanged range of a source.
    Copy {
        /// Source.
        source: SourceRef,
        /// Offset in the source.
        offset: u64,
        /// Display name of the tensor, or the name of a copied file.
        tensor: String,
        /// Dtype and shape of the tensor; `None` for a copied file.
        form: Option<Box<(DType, Shape)>>,
    },
    /// Elements of a tensor, little-endian, dense in this order, with the cast of the entry applied.
    Tensor {
        /// Tensor.
        entry: Arc<TensorEntry>,
        /// Order of the output.
        order: Order,
    },
    /// Elements of a box of a tensor as UTF-8 text, little-endian, dense in this order, with the cast of the entry applied.
    /// Each byte is one code point, so bytes from 0x80 on take two. The length depends on the elements and was measured.
    Latin1 {
        /// Tensor.
        entry: Arc<TensorEntry>,
        /// Order of the output.
        order: Order,
        /// Box with elements consecutive in that order.
        region: Region,
    },
    /// CRC-32 (as in zip) of a range of the same file, 4 little-endian bytes. Filled in after that range is written.
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
    /// Compares contents. Sources are equal if they are one object, or have the same label and length.
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Literal(a), Self::Literal(b)) => a == b,
            (Self::Padding(a), Self::Padding(b)) => a == b,
            (Self::Crc32(a), Self::Crc32(b)) => a == b,
            (
                Self::Copy { source: s, offset: o, tensor: t, form: f },
                Self::Copy { source: s2, offset: o2, tensor: t2, form: f2 },
            ) => same(s, s2) && (o, t, f) == (o2, t2, f2),
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
    /// Returns the total bytes of all files; an estimate if one of them is streamed.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|f| f.len).sum()
    }

    /// Returns true if the length of a file is unknown before it is written.
    pub fn is_estimated(&self) -> bool {
        self.files.iter().any(PlannedFile::is_estimated)
    }

    /// Returns true if the target is one file, not a folder of files.
    pub fn is_one_file(&self) -> bool {
        matches!(self.files.as_slice(), [file] if file.name.is_empty())
    }

    /// Returns every source that the plan reads.
    pub fn sources(&self) -> impl Iterator<Item = &SourceRef> {
        self.files.iter().flat_map(PlannedFile::sources)
    }
}

impl PlannedFile {
    /// Returns every source that the file reads, once for each segment and extent.
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
