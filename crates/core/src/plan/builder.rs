//! Builder of a planned file.

use super::{Content, PlannedFile, Segment, SourceCheck};
use crate::checkpoint::TensorEntry;
use crate::error::{Error, Result};
use crate::source::SourceRef;
use crate::tensor::{Blocks, Endian, Order, Region};
use std::ops::Range;
use std::sync::Arc;

/// Builder of the layout of one file. Each call appends at the current position.
#[derive(Debug)]
pub struct FileBuilder {
    name: String,
    position: u64,
    segments: Vec<Segment>,
    checks: Vec<SourceCheck>,
    content: String,
}

impl FileBuilder {
    /// Creates an empty file of that name relative to the target; an empty name is the target itself.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            position: 0,
            segments: Vec::new(),
            checks: Vec::new(),
            content: String::new(),
        }
    }

    /// Returns a file of that name with the bytes of `source`.
    pub fn copy_of(name: impl Into<String>, source: &SourceRef) -> PlannedFile {
        let mut file = Self::new(name);
        let tensor = file.name.clone();
        file.push(source.len(), Content::Copy { source: source.clone(), offset: 0, tensor, form: None });
        file.finish()
    }

    /// Describes the content besides the tensors, for users who print the plan.
    pub fn describe(&mut self, content: impl Into<String>) {
        self.content = content.into();
    }

    /// Returns the offset of the next byte.
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

    /// Appends these bytes without a copy, for headers of up to a hundred megabytes.
    pub fn owned(&mut self, bytes: impl Into<Vec<u8>>) {
        let bytes = bytes.into();
        self.push(bytes.len() as u64, Content::Literal(bytes));
    }

    /// Appends a whole planned file, such as a member of an archive. Its checksum ranges move with it. A
    /// [streamed](PlannedFile::streamed) file has no segments and appends nothing.
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

    /// Appends the elements of `entry`, little-endian and dense in `order`: as a copy if they are stored so, else as a
    /// transform.
    ///
    /// # Errors
    /// [`crate::Kind::Unsupported`] for a reordering of elements smaller than a byte.
    pub fn tensor(&mut self, entry: &TensorEntry, order: Order) -> Result<()> {
        let Some(len) = entry.shape.bytes(entry.dtype()) else {
            return Err(Error::unsupported(
                "shape-overflow",
                "the length of the tensor after the cast exceeds 2^64 bytes",
            )
            .on_tensor(entry.name()));
        };
        self.check_extents(entry);
        if let Some((source, offset)) = unchanged(entry, order) {
            let form = Some(Box::new((entry.dtype(), entry.shape.clone())));
            self.push(len, Content::Copy { source, offset, tensor: entry.name(), form });
        } else if entry.stored.size().is_none() {
            return Err(Error::unsupported(
                "packed-transpose",
                format!("elements of dtype {} share bytes and cannot be reordered", entry.stored),
            )
            .on_tensor(entry.name()));
        } else {
            self.push(len, Content::Tensor { entry: Arc::new(entry.clone()), order });
        }
        Ok(())
    }

    /// Appends the elements of `entry`, dense in `order`, as UTF-8 text with one code point per byte. `lengths` are the results
    /// of `latin1_lengths` in `weighbridge-io`: one for each of the [`Blocks::latin1`]. Each block is one segment.
    ///
    /// # Errors
    /// [`crate::Kind::Unsupported`] for elements smaller than a byte; [`crate::Kind::Usage`], `latin1-lengths`, if the lengths
    /// do not match this tensor.
    pub fn latin1(&mut self, entry: &TensorEntry, order: Order, lengths: &[u64]) -> Result<()> {
        let blocks = Blocks::latin1(entry, order)?;
        let size = entry.dtype().size().unwrap_or(1) as u64;
        let wrong =
            || Error::usage("latin1-lengths", "the lengths do not match the tensor").on_tensor(entry.name());
        self.check_extents(entry);
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

    /// Adds the checksums of the extents of a tensor. They are verified when the plan runs.
    fn check_extents(&mut self, entry: &TensorEntry) {
        for extent in &entry.extents {
            if let Some(check) = extent.check.clone() {
                self.checks.push(SourceCheck { check, tensor: entry.name() });
            }
        }
    }

    /// Appends the CRC-32 of `range` of this file, 4 bytes. The range must not contain a CRC itself. Two ranges of one file are
    /// equal or disjoint.
    pub fn crc32(&mut self, range: Range<u64>) {
        self.push(4, Content::Crc32(range));
    }

    /// Returns the finished file.
    pub fn finish(self) -> PlannedFile {
        PlannedFile {
            name: self.name,
            len: self.position,
            segments: self.segments,
            checks: self.checks,
            stream: None,
            content: self.content,
        }
    }

    fn push(&mut self, len: u64, content: Content) {
        if len > 0 {
            self.segments.push(Segment { offset: self.position, len, content });
            self.position += len;
        }
    }
}

/// Bytes of a block before its conversion to text.
const LATIN1_BLOCK: u64 = 1 << 20;
/// Bytes of a block if elements are reordered: larger blocks have longer runs in the source.
const LATIN1_MOVED: u64 = 16 << 20;

impl Blocks {
    /// Returns the blocks of a tensor that [`FileBuilder::latin1`] writes as text, consecutive in `order`.
    ///
    /// # Errors
    /// [`crate::Kind::Unsupported`] for elements smaller than a byte.
    pub fn latin1(entry: &TensorEntry, order: Order) -> Result<Blocks> {
        let Some(size) = entry.dtype().size().filter(|_| entry.stored.size().is_some()) else {
            return Err(Error::unsupported(
                "packed-text",
                format!("elements of dtype {} share bytes and cannot be written as text", entry.stored),
            )
            .on_tensor(entry.name()));
        };
        let moved = entry.order() != order && !entry.shape.is_order_free();
        let bytes = if moved { LATIN1_MOVED } else { LATIN1_BLOCK };
        Ok(Region::blocks(&entry.shape, order, bytes / size as u64))
    }
}

/// Source and offset of the bytes of `entry`, if they need no change.
fn unchanged(entry: &TensorEntry, order: Order) -> Option<(SourceRef, u64)> {
    let extent = entry.single_extent()?;
    let same_order = extent.encoding.order == order || entry.shape.is_order_free();
    let same_bytes = extent.encoding.endian == Endian::Little || entry.stored.swap_unit() == 1;
    let same_type = entry.cast.is_none() && Some(extent.len) == entry.shape.bytes(entry.stored);
    (same_order && same_bytes && same_type).then(|| (extent.source.clone(), extent.offset))
}
