//! Concatenation of ranges of sources.

use super::{Source, SourceRef, Within, check_range, to_usize};
use crate::error::{Error, Result};

/// Source with the bytes of several ranges in sequence.
#[derive(Debug)]
pub struct ConcatSource {
    label: String,
    parts: Vec<Part>,
    len: u64,
}

#[derive(Debug)]
struct Part {
    /// Offset of its first byte in the concatenation.
    start: u64,
    source: SourceRef,
    offset: u64,
    len: u64,
}

impl ConcatSource {
    /// Concatenates ranges `(source, offset, length in bytes)` to a source named `label` in errors.
    ///
    /// # Errors
    /// [`crate::Kind::Corrupt`], code `past-the-end`, if a range exceeds its source; [`crate::Kind::Limit`] if the total
    /// exceeds 2^64 bytes.
    pub fn new(label: impl Into<String>, ranges: Vec<(SourceRef, u64, u64)>) -> Result<Self> {
        let mut parts = Vec::with_capacity(ranges.len());
        let mut start = 0u64;
        for (source, offset, len) in ranges {
            check_range(&*source, offset, len)?;
            let next = start
                .checked_add(len)
                .ok_or_else(|| Error::limit("too-long", "the total length exceeds 2^64 bytes"))?;
            if len > 0 {
                parts.push(Part { start, source, offset, len });
            }
            start = next;
        }
        Ok(Self { label: label.into(), parts, len: start })
    }
}

impl Source for ConcatSource {
    fn len(&self) -> u64 {
        self.len
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        check_range(self, offset, buffer.len() as u64)?;
        let mut at = offset;
        let mut rest = buffer;
        // Part with the first byte: the last one that begins at or before it.
        let first = self.parts.partition_point(|part| part.start <= offset).saturating_sub(1);
        for part in self.parts.get(first..).unwrap_or_default() {
            if rest.is_empty() {
                break;
            }
            let within = at - part.start;
            let take = to_usize((part.len - within).min(rest.len() as u64))?;
            let (now, later) = rest.split_at_mut(take);
            part.source.read_at(part.offset + within, now)?;
            at += take as u64;
            rest = later;
        }
        Ok(())
    }
    fn label(&self) -> &str {
        &self.label
    }
    fn is_sequential(&self) -> bool {
        self.parts.iter().any(|part| part.source.is_sequential())
    }
    fn is_decoded(&self) -> bool {
        self.parts.iter().any(|part| part.source.is_decoded())
    }
    fn made_of(&self) -> Option<Vec<Within<'_>>> {
        // With several parts, an offset here is not the offset in a part.
        let encoded = self.parts.len() != 1;
        let mut all = Vec::with_capacity(self.parts.len());
        for Part { source, offset, len, .. } in &self.parts {
            all.push(Within { source, offset: *offset, len: *len, encoded });
        }
        Some(all)
    }
}
