//! Which ranges of a file were read as structures, and what they are.

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
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Range {
    pub(super) address: u64,
    pub(super) end: u64,
    pub(super) what: &'static str,
}

/// Remembers ranges; those that repeat or follow each other are one.
#[derive(Debug, Default)]
pub(super) struct Record(Mutex<Vec<Range>>);

impl Record {
    /// Remembers that `bytes` were read at `address`; `what` they are where they have no mark.
    pub(super) fn add(&self, address: u64, bytes: &[u8], what: &'static str) {
        let mark = MARKS.iter().find(|(mark, _)| bytes.starts_with(*mark));
        let what = mark.map_or(what, |(_, name)| name);
        self.claim(address, bytes.len() as u64, what);
    }

    /// Remembers a range that was not read.
    pub(super) fn claim(&self, address: u64, len: u64, what: &'static str) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(Range { address, end: address.saturating_add(len), what });
        if all.len() >= MOST {
            let joined = join(std::mem::take(&mut *all));
            *all = joined;
        }
    }

    /// All ranges, in order.
    pub(super) fn ranges(&self) -> Vec<Range> {
        join(std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

/// In order of their beginnings, longest first; what lies within another one of that kind is left out.
fn join(mut all: Vec<Range>) -> Vec<Range> {
    all.sort_by_key(|range| (range.address, std::cmp::Reverse(range.end)));
    let mut joined: Vec<Range> = Vec::with_capacity(all.len().min(MOST / 2));
    for range in all {
        match joined.last_mut() {
            Some(last) if range.end <= last.end => {}
            Some(last) if range.what == last.what && range.address <= last.end => last.end = range.end,
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
