//! Outline of a file: its ranges without elements, such as headers.
//!
//! A format computes it on demand from headers (`Format::outline` of `weighbridge-format`), not on opening. Bytes that neither a
//! tensor nor the outline claims are unknown.

use super::Use;
use crate::finding::Finding;
use std::borrow::Cow;

impl Outline {
    /// Description of bytes of a storage outside all listed tensors.
    pub const BEYOND_TENSORS: &'static str = "storage beyond its tensors";
}

/// Range of a file without elements of a tensor, or with encoded ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Offset of the first byte in the file.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
    /// Use of the bytes.
    pub used: Use,
    /// Description in a few words: `npy header`.
    pub what: Cow<'static, str>,
    /// True for bytes of unknown use that are reported already, so that no finding is needed.
    pub told: bool,
}

/// Treatment of unclaimed zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Gaps {
    /// Never padding: the format has no gaps.
    #[default]
    Forbidden,
    /// Padding between two parts, in runs of at most this many bytes: alignment.
    Zeros(u64),
    /// Padding between two parts and at the end, at any length: the format has free space.
    Free,
}

/// Ranges of a file, as described by its format.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outline {
    /// Ranges, in any order. Elements of tensors take precedence; of two overlapping parts, the one that begins first does.
    pub parts: Vec<Part>,
    /// Treatment of unclaimed zeros.
    pub gaps: Gaps,
    /// True if the parts list the bytes of encoded elements: then they are more precise than the extents of the tensors.
    pub elements: bool,
    /// Violated rules of the format, as far as only the outline shows them.
    pub findings: Vec<Finding>,
}

impl Outline {
    /// Creates an empty outline.
    #[must_use]
    pub fn new(gaps: Gaps) -> Self {
        Self { gaps, ..Self::default() }
    }

    /// Creates the outline of a file with a single range.
    #[must_use]
    pub fn whole(len: u64, what: impl Into<Cow<'static, str>>) -> Self {
        let mut outline = Self::default();
        outline.header(0, len, what);
        outline
    }

    /// Adds a range that describes tensors, or contains other content of the file.
    pub fn header(&mut self, offset: u64, len: u64, what: impl Into<Cow<'static, str>>) {
        self.push(offset, len, Use::Header, what.into(), false);
    }

    /// Adds a range of padding. The caller has checked its bytes.
    pub fn padding(&mut self, offset: u64, len: u64, what: impl Into<Cow<'static, str>>) {
        self.push(offset, len, Use::Padding, what.into(), false);
    }

    /// Adds a range of encoded elements.
    pub fn elements(&mut self, offset: u64, len: u64, what: impl Into<Cow<'static, str>>) {
        self.push(offset, len, Use::Tensor, what.into(), false);
    }

    /// Adds a range outside the format. A finding reports it.
    pub fn hidden(&mut self, offset: u64, len: u64, what: impl Into<Cow<'static, str>>) {
        self.push(offset, len, Use::Unknown, what.into(), false);
    }

    /// Adds a valid range that was not understood and is reported already.
    pub fn unread(&mut self, offset: u64, len: u64, what: impl Into<Cow<'static, str>>) {
        self.push(offset, len, Use::Unknown, what.into(), true);
    }

    fn push(&mut self, offset: u64, len: u64, used: Use, what: Cow<'static, str>, told: bool) {
        if len == 0 {
            return;
        }
        if let Some(last) = self.parts.last_mut()
            && last.offset.checked_add(last.len) == Some(offset)
            && (last.used, &last.what, last.told) == (used, &what, told)
            && used != Use::Unknown
        {
            last.len = last.len.saturating_add(len);
            return;
        }
        self.parts.push(Part { offset, len, used, what, told });
    }

    /// Returns the parts in order, without overlap, none of them past `end`.
    pub(super) fn disjoint(&self, end: u64) -> Vec<Part> {
        let mut parts = self.parts.clone();
        // Stable: parts with the same offset keep their order.
        parts.sort_by_key(|part| part.offset);
        let mut at = 0;
        parts.retain_mut(|part| {
            let stop = part.offset.saturating_add(part.len).min(end);
            part.offset = part.offset.max(at);
            part.len = stop.saturating_sub(part.offset);
            at = at.max(stop);
            part.len > 0
        });
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjacent_parts_are_joined_and_overlaps_removed() {
        let mut outline = Outline::new(Gaps::Free);
        outline.header(0, 4, "a");
        outline.header(4, 4, "a");
        outline.header(8, 0, "nothing");
        outline.padding(8, 2, "a");
        outline.header(6, 20, "b");
        outline.header(7, 3, "within");
        outline.header(40, 1, "past the end");
        let parts: Vec<_> = outline.disjoint(20).iter().map(|p| (p.offset, p.len, p.used)).collect();
        assert_eq!(parts, [(0, 8, Use::Header), (8, 12, Use::Header)]);
        assert_eq!(outline.parts.len(), 5);
    }
}
