//! Which ranges of a file were read as structures, and what they are.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Ranges that are kept before they are joined.
const MOST: usize = 1 << 18;

/// How structures begin, and what they are called.
const MARKS: &[(&[u8; 4], &str)] = &[
    (b"OHDR", "hdf5 object header"),
    (b"OCHK", "hdf5 object header"),
    (b"TREE", "hdf5 tree"),
    (b"SNOD", "hdf5 group"),
    (b"HEAP", "hdf5 local heap"),
    (b"GCOL", "hdf5 global heap"),
    (b"FRHP", "hdf5 fractal heap"),
    (b"FHDB", "hdf5 fractal heap"),
    (b"FHIB", "hdf5 fractal heap"),
    (b"BTHD", "hdf5 tree"),
    (b"BTIN", "hdf5 tree"),
    (b"BTLF", "hdf5 tree"),
    (b"FAHD", "hdf5 index of chunks"),
    (b"FADB", "hdf5 index of chunks"),
    (b"EAHD", "hdf5 index of chunks"),
    (b"EAIB", "hdf5 index of chunks"),
    (b"EASB", "hdf5 index of chunks"),
    (b"EADB", "hdf5 index of chunks"),
];

/// What a structure without a mark of its own is called.
pub(super) const PLAIN: &str = "hdf5 structure";

/// A range by its address, and what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) address: u64,
    pub(super) end: u64,
    pub(super) what: &'static str,
    /// True where it begins with a mark: then it is the beginning of a structure.
    pub(super) marked: bool,
}

/// Remembers ranges; those that repeat or follow each other are one.
#[derive(Debug, Default)]
pub(super) struct Record {
    all: Mutex<Ranges>,
    /// The addresses and lengths of what stands within structures and says nothing.
    hidden: Mutex<BTreeMap<u64, u64>>,
}

#[derive(Debug)]
struct Ranges {
    kept: Vec<Range>,
    /// Joined when there are so many: twice as many as the last time left, else ranges that cannot be joined would be sorted
    /// with each that comes.
    next: usize,
}

impl Default for Ranges {
    fn default() -> Self {
        Self { kept: Vec::new(), next: MOST }
    }
}

impl Record {
    /// Remembers that `bytes` were read at `address`; `what` they are where they have no mark.
    pub(super) fn add(&self, address: u64, bytes: &[u8], what: &'static str) {
        let mark = MARKS.iter().find(|(mark, _)| bytes.starts_with(*mark));
        let len = bytes.len() as u64;
        let what = mark.map_or(what, |(_, name)| name);
        self.push(Range { address, end: address.saturating_add(len), what, marked: mark.is_some() });
    }

    /// Remembers a range that was not read.
    pub(super) fn claim(&self, address: u64, len: u64, what: &'static str) {
        self.push(Range { address, end: address.saturating_add(len), what, marked: false });
    }

    /// Remembers bytes within a structure that no reader looks at, though they are not zero.
    pub(super) fn hide(&self, address: u64, len: u64) {
        let mut hidden = self.hidden.lock().unwrap_or_else(PoisonError::into_inner);
        if hidden.len() < MOST {
            hidden.insert(address, len);
        }
    }

    /// All that was hidden, in order: addresses and lengths.
    pub(super) fn hidden(&self) -> Vec<(u64, u64)> {
        let mut hidden = self.hidden.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *hidden).into_iter().collect()
    }

    fn push(&self, range: Range) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.kept.push(range);
        if all.kept.len() >= all.next {
            let joined = join(std::mem::take(&mut all.kept));
            all.next = MOST.max(joined.len().saturating_mul(2));
            all.kept = joined;
        }
    }

    /// All ranges, in order.
    pub(super) fn ranges(&self) -> Vec<Range> {
        join(std::mem::take(&mut self.all.lock().unwrap_or_else(PoisonError::into_inner).kept))
    }
}

/// In order of their beginnings, longest first; what lies within another one is left out, and what
/// follows one without a mark of its own is a part of it.
fn join(mut all: Vec<Range>) -> Vec<Range> {
    all.sort_by_key(|range| (range.address, std::cmp::Reverse(range.end), range.what));
    let mut joined: Vec<Range> = Vec::with_capacity(all.len().min(MOST / 2));
    for range in all {
        match joined.last_mut() {
            Some(last) if range.end <= last.end => {}
            Some(last)
                if !range.marked
                    && range.address <= last.end
                    && (range.what == last.what || range.what == PLAIN) =>
            {
                last.end = range.end;
            }
            _ => joined.push(range),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_joined_and_named_by_their_marks() {
        let record = Record::default();
        record.add(40, b"SNOD....", PLAIN);
        record.add(8, &[0; 8], PLAIN);
        record.add(0, &[0; 8], PLAIN);
        record.add(42, &[0; 2], PLAIN);
        record.claim(48, 4, "hdf5 chunk");
        let found: Vec<_> = record.ranges().iter().map(|r| (r.address, r.end, r.what)).collect();
        assert_eq!(found, [(0, 16, PLAIN), (40, 48, "hdf5 group"), (48, 52, "hdf5 chunk")]);
    }
}
