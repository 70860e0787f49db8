//! Building a planned file from front to back.

use super::{Content, PlannedFile, Segment, SourceCheck};
use crate::checkpoint::TensorEntry;
use crate::error::{Error, Result};
use crate::source::SourceRef;
use crate::tensor::{Blocks, Endian, Order, Region};
use std::ops::Range;
use std::sync::Arc;

/// Lays out one file. Each call appends; the position moves on.
#[derive(Debug)]
pub struct FileBuilder {
    name: String,
    position: u64,
    segments: Vec<Segment>,
    checks: Vec<SourceCheck>,
}

impl FileBuilder {
    /// An empty file of that name relative to the target; empty for the target itself.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), position: 0, segments: Vec::new(), checks: Vec::new() }
    }

    /// A file of that name with the bytes of `source`.
    pub fn copy_of(name: impl Into<String>, source: &SourceRef) -> PlannedFile {
        let mut file = Self::new(name);
        let tensor = file.name.clone();
        file.push(source.len(), Content::Copy { source: source.clone(), offset: 0, tensor });
        file.finish()
    }

    /// The offset of the next byte.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Appends these bytes.
    pub fn literal(&mut self, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        if let Some(Segment { len, content: Content::Literal(last), .. }) = self.segments.last_mut() {
            last.extend_from_slice(bytes);
            *len += bytes.len() as u64;
            self.position += bytes.len() as u64;
        } else {
            self.push(bytes.len() as u64, Content::Literal(bytes.to_vec()));
        }
    }

    /// Appends these bytes without copying them: those of a header may be a hundred megabytes.
    pub fn owned(&mut self, bytes: impl Into<Vec<u8>>) {
        let bytes = bytes.into();
        self.push(bytes.len() as u64, Content::Literal(bytes));
    }

    /// Appends a whole planned file, as it would be on its own: a file within this one. Its checksums
    /// are of itself, wherever it stands. A [streamed](PlannedFile::streamed) file has no segments and
    /// adds nothing: it can only be a file of its own.
    pub fn embed(&mut self, file: PlannedFile) {
        let start = self.position;
        for segment in file.segments {
            let content = match segment.content {
                Content::Crc32(range) => Content::Crc32(range.start + start..range.end + start),
                content => content,
            };
            self.push(segment.len, content);
        }
        self.checks.extend(file.checks);
    }

    /// Appends `count` times `byte`.
    pub fn padding(&mut self, byte: u8, count: u64) {
        self.push(count, Content::Padding(byte));
    }

    /// Appends the elements of `entry`, little-endian and dense in `order`: as a copy of its
    /// bytes where they are so already, else as a transform.
    ///
    /// # Errors
    /// [`crate::Kind::Unsupported`] where elements of less than a byte would have to move.
    pub fn tensor(&mut self, entry: &TensorEntry, order: Order) -> Result<()> {
        let Some(len) = entry.shape.bytes(entry.dtype()) else {
            return Err(Error::unsupported(
                "shape-overflow",
                "after the cast, the tensor has no length below 2^64",
            )
            .on_tensor(entry.name()));
        };
        self.check_pieces(entry);
        if let Some((source, offset)) = as_it_is(entry, order) {
            self.push(len, Content::Copy { source, offset, tensor: entry.name() });
        } else if entry.stored.size().is_none() {
            return Err(Error::unsupported(
                "packed-transpose",
                format!("elements of type {} share bytes and cannot be reordered", entry.stored),
            )
            .on_tensor(entry.name()));
        } else {
            self.push(len, Content::Tensor { entry: Arc::new(entry.clone()), order });
        }
        Ok(())
    }

    /// Appends the elements of `entry`, dense in `order`, as UTF-8 text whose code points are the
    /// bytes. `lengths` are what `latin1_lengths` of `weighbridge-io` measured: one
    /// for each of the [`Blocks::latin1`], which become one segment each.
    ///
    /// # Errors
    /// [`crate::Kind::Unsupported`] for elements of less than a byte; [`crate::Kind::Usage`],
    /// `latin1-lengths`, where these lengths are not of this tensor.
    pub fn latin1(&mut self, entry: &TensorEntry, order: Order, lengths: &[u64]) -> Result<()> {
        let blocks = Blocks::latin1(entry, order)?;
        let size = entry.dtype().size().unwrap_or(1) as u64;
        let wrong = || {
            Error::usage("latin1-lengths", "these are not the lengths of this tensor").on_tensor(entry.name())
        };
        self.check_pieces(entry);
        let shared = Arc::new(entry.clone());
        let mut lengths = lengths.iter();
        for region in blocks {
            let &len = lengths.next().ok_or_else(wrong)?;
            let bytes = region.shape().elements().unwrap_or(0).saturating_mul(size);
            if len < bytes || len > bytes.saturating_mul(2) {
                return Err(wrong());
            }
            self.push(len, Content::Latin1 { entry: shared.clone(), order, region });
        }
        if lengths.next().is_some() { Err(wrong()) } else { Ok(()) }
    }

    /// The checksums that the sources of a tensor give are held against them when the plan runs.
    fn check_pieces(&mut self, entry: &TensorEntry) {
        for extent in &entry.extents {
            if let Some(check) = extent.check.as_deref() {
                let source = extent.source.clone();
                self.checks.push(SourceCheck { source, check: *check, tensor: entry.name() });
            }
        }
    }

    /// Appends the CRC-32 of `range` of this file, 4 bytes. The range must not hold a CRC itself,
    /// and two ranges of one file are either the same or do not meet.
    pub fn crc32(&mut self, range: Range<u64>) {
        self.push(4, Content::Crc32(range));
    }

    /// The finished file.
    pub fn finish(self) -> PlannedFile {
        PlannedFile {
            name: self.name,
            len: self.position,
            segments: self.segments,
            checks: self.checks,
            stream: None,
        }
    }

    fn push(&mut self, len: u64, content: Content) {
        if len > 0 {
            self.segments.push(Segment { offset: self.position, len, content });
            self.position += len;
        }
    }
}

/// Bytes of a block of text, before they become text.
const LATIN1_BLOCK: u64 = 1 << 20;
/// The same where the elements must be reordered: larger blocks are longer runs of the source.
const LATIN1_MOVED: u64 = 16 << 20;

impl Blocks {
    /// The boxes in which the elements of a tensor become text: see [`FileBuilder::latin1`]. They follow
    /// each other in `order`.
    ///
    /// # Errors
    /// [`crate::Kind::Unsupported`] for elements of less than a byte.
    pub fn latin1(entry: &TensorEntry, order: Order) -> Result<Blocks> {
        let Some(size) = entry.dtype().size().filter(|_| entry.stored.size().is_some()) else {
            return Err(Error::unsupported(
                "packed-text",
                format!("elements of type {} share bytes and cannot be written as text", entry.stored),
            )
            .on_tensor(entry.name()));
        };
        let moved = entry.order() != order && !entry.shape.is_order_free();
        let bytes = if moved { LATIN1_MOVED } else { LATIN1_BLOCK };
        Ok(Region::blocks(&entry.shape, order, bytes / size as u64))
    }
}

/// Source and offset of the bytes of `entry`, where they need no change.
fn as_it_is(entry: &TensorEntry, order: Order) -> Option<(SourceRef, u64)> {
    let extent = entry.single_extent()?;
    let same_order = extent.encoding.order == order || entry.shape.is_order_free();
    let same_bytes = extent.encoding.endian == Endian::Little || entry.stored.swap_unit() == 1;
    let same_type = entry.cast.is_none() && Some(extent.len) == entry.shape.bytes(entry.stored);
    (same_order && same_bytes && same_type).then(|| (extent.source.clone(), extent.offset))
}
