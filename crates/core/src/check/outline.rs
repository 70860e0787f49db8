//! The outline of a file: which of its ranges hold no elements, and what they are.
//!
//! A format gives it on demand, from headers alone (`Format::outline` of `weighbridge-format`): opening does
//! not pay for it. What neither a tensor nor the outline claims is nobody's.

use super::Use;
use crate::finding::Finding;
use std::borrow::Cow;

impl Outline {
    /// The words for bytes of a storage that no listed tensor has.
    pub const BEYOND_TENSORS: &'static str = "storage beyond its tensors";
}

/// A range of a file that holds no elements of a tensor, or says where encoded ones are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Offset of the first byte in the file.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
    /// What they are for.
    pub used: Use,
    /// What they are, in a few words: `npy header`.
    pub what: Cow<'static, str>,
    /// True for bytes of unknown use that a finding need not tell of: something else does.
    pub told: bool,
}

/// Where zeros that nothing claims are padding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Gaps {
    /// Nowhere: the format has no room between its parts.
    #[default]
    Forbidden,
    /// Between two parts, in runs of at most so many bytes: alignment.
    Zeros(u64),
    /// Between two parts and at the end, however long: the format has room that is free.
    Free,
}

/// The ranges of a file, as its format sees them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outline {
    /// The ranges, in any order. Where two overlap, the one that begins first counts; elements of
    /// tensors count before all.
    pub parts: Vec<Part>,
    /// Where zeros between them are padding.
    pub gaps: Gaps,
    /// True where the parts say which bytes hold the elements of tensors that are stored encoded:
    /// then these say more than the tensors themselves.
    pub elements: bool,
    /// Rules of the format that are broken, as far as only this look shows.
    pub findings: Vec<Finding>,
}

impl Outline {
    /// An empty outline.
    #[must_use]
    pub fn new(gaps: Gaps) -> Self {
        Self { gaps, ..Self::default() }
    }

    /// The outline of a file that is one thing from front to back.
    #[must_use]
    pub fn whole(len: u64, what: impl Into<Cow<'static, str>>) -> Self {
        let mut outline = Self::default();
        outline.header(0, len, what);
        outline
    }

    /// Claims a range that describes tensors, or holds other content of the file.
    pub fn header(&mut self, offset: u64, len: u64, what: impl Into<Cow<'static, str>>) {
        self.push(offset, len, Use::Header, what.into(), false);
    }

    /// Claims a range that only keeps a distance; its bytes were looked at.
    pub fn padding(&mut self, offset: u64, len: u64, what: impl Into<Cow<'static, str>>) {
        self.push(offset, len, Use::Padding, what.into(), false);
    }

    /// Claims a range of encoded elements.
    pub fn elements(&mut self, offset: u64, len: u64, what: impl Into<Cow<'static, str>>) {
        self.push(offset, len, Use::Tensor, what.into(), false);
    }

    /// Names a range that is no part of what the format has there: a finding will tell of it.
    pub fn hidden(&mut self, offset: u64, len: u64, what: impl Into<Cow<'static, str>>) {
        self.push(offset, len, Use::Unknown, what.into(), false);
    }

    /// Names a range that stands where it should and was not understood, which was told already.
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

    /// The parts in order, without overlap, none of them past `end`.
    pub(super) fn disjoint(&self, end: u64) -> Vec<Part> {
        let mut parts = self.parts.clone();
        // Stable: of those that begin together the first stays first.
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
    fn neighbours_are_one_and_overlaps_are_cut() {
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
