//! Integers of variable length as elements.

use crate::tree::{File, Range, varints};
use weighbridge_core::error::Result;
use weighbridge_core::tensor::DType;
use weighbridge_io::source::{Source, SourceRef, Within, check_range, to_usize};

/// Decoded integers as little-endian bytes. They begin at the offset of the packed ones, so that each tensor has a place of its own.
#[derive(Debug)]
pub(crate) struct Decoded {
    outer: SourceRef,
    ranges: Vec<Range>,
    /// Offset of the first byte. Zeros precede it.
    start: u64,
    bytes: Vec<u8>,
}

impl Decoded {
    /// Decodes the packed integers of several ranges.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`], `bad-varint`; [`weighbridge_core::Kind::Limit`].
    pub(crate) fn new(file: &File, ranges: Vec<Range>, dtype: DType) -> Result<Self> {
        let width = dtype.size().unwrap_or(1);
        let mut bytes = Vec::new();
        for range in &ranges {
            for number in varints(file, *range)? {
                let number = if dtype == DType::Bool { u64::from(number != 0) } else { number };
                bytes.extend(number.to_le_bytes().into_iter().take(width));
            }
        }
        file.budget.take_memory(bytes.len() as u64)?;
        let start = ranges.first().map_or(0, |range| range.at);
        Ok(Self { outer: file.source.clone(), ranges, start, bytes })
    }

    /// Returns the place of the bytes.
    pub(crate) fn place(&self) -> Range {
        Range { at: self.start, len: self.bytes.len() as u64 }
    }
}

impl Source for Decoded {
    fn len(&self) -> u64 {
        self.start.saturating_add(self.bytes.len() as u64)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        check_range(self, offset, buffer.len() as u64)?;
        let before = to_usize(self.start.saturating_sub(offset))?.min(buffer.len());
        let (zeros, rest) = buffer.split_at_mut(before);
        zeros.fill(0);
        let from = to_usize(offset.saturating_sub(self.start))?;
        if let Some(bytes) = self.bytes.get(from..from.saturating_add(rest.len())) {
            rest.copy_from_slice(bytes);
        }
        Ok(())
    }

    fn label(&self) -> &str {
        self.outer.label()
    }

    fn is_decoded(&self) -> bool {
        true
    }

    fn within(&self) -> Option<Within<'_>> {
        None
    }

    fn made_of(&self) -> Option<Vec<Within<'_>>> {
        let range =
            |range: &Range| Within { source: &self.outer, offset: range.at, len: range.len, encoded: true };
        Some(self.ranges.iter().map(range).collect())
    }
}
