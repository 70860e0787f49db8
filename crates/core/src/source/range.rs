//! Range of another source: a member of an archive, a blob inside a file.

use super::{FileRange, Mapped, Source, SourceRef, Within, check_range, to_usize};
use crate::error::Result;
use std::sync::Arc;

/// Bytes `start .. start + len` of another source. Offsets in errors are those of the outer file.
#[derive(Debug)]
pub struct RangeSource {
    outer: SourceRef,
    start: u64,
    len: u64,
}

impl RangeSource {
    /// Creates the source for `len` bytes of `outer` from `start`.
    ///
    /// # Errors
    /// [`crate::Kind::Corrupt`], code `past-the-end`, if the range exceeds `outer`.
    pub fn new(outer: SourceRef, start: u64, len: u64) -> Result<Self> {
        check_range(&*outer, start, len)?;
        Ok(Self { outer, start, len })
    }
}

impl Source for RangeSource {
    fn len(&self) -> u64 {
        self.len
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        check_range(self, offset, buffer.len() as u64)?;
        self.outer.read_at(self.start + offset, buffer)
    }
    fn label(&self) -> &str {
        self.outer.label()
    }
    fn as_slice(&self) -> Option<&[u8]> {
        let start = to_usize(self.start).ok()?;
        self.outer.as_slice()?.get(start..start + to_usize(self.len).ok()?)
    }
    fn file(&self) -> Option<FileRange<'_>> {
        let outer = self.outer.file()?;
        Some(FileRange { offset: outer.offset + self.start, ..outer })
    }
    fn map(&self, offset: u64, len: u64) -> Option<Arc<dyn Mapped>> {
        self.outer.map(self.start.checked_add(offset)?, len)
    }
    fn is_sequential(&self) -> bool {
        self.outer.is_sequential()
    }
    fn within(&self) -> Option<Within<'_>> {
        Some(Within { source: &self.outer, offset: self.start, len: self.len, encoded: false })
    }
}
