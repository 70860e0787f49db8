//! Record of the ranges of a file that were read as structures.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Number of ranges kept before they are joined.
const MAX_RANGES: usize = 1 << 18;

/// Signatures of structures, and their names in outlines.
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
    (b"FAHD", "hdf5 chunk index"),
    (b"FADB", "hdf5 chunk index"),
    (b"EAHD", "hdf5 chunk index"),
    (b"EAIB", "hdf5 chunk index"),
    (b"EASB", "hdf5 chunk index"),
    (b"EADB", "hdf5 chunk index"),
];

/// Name of a structure without a signature.
pub(super) const PLAIN: &str = "hdf5 structure";

/// A range of addresses, and its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) address: u64,
    pub(super) end: u64,
    pub(super) what: &'static str,
    /// True where it begins with a signature: it is then the start of a structure.
    pub(super) marked: bool,
}

/// Record of ranges; repeated and adjacent ranges are joined.
#[derive(Debug, Default)]
pub(super) struct Record {
    all: Mutex<Ranges>,
    /// Addresses and lengths of ignored bytes within structures.
    hidden: Mutex<BTreeMap<u64, u64>>,
}

#[derive(Debug)]
struct Ranges {
    kept: Vec<Range>,
    /// Number of ranges at which they are joined next: twice the number that the last join left, so that ranges that
    /// cannot be joined are not sorted again for each new one.
    next: usize,
}

impl Default for Ranges {
    fn default() -> Self {
        Self { kept: Vec::new(), next: MAX_RANGES }
    }
}

impl Record {
    /// Records that `bytes` were read at `address`; `what` names them where they have no signature.
    pub(super) fn add(&self, address: u64, bytes: &[u8], what: &'static str) {
        let mark = MARKS.iter().find(|(mark, _)| bytes.starts_with(*mark));
        let len = bytes.len() as u64;
        let what = mark.map_or(what, |(_, name)| name);
        self.push(Range { address, end: address.saturating_add(len), what, marked: mark.is_some() });
    }

    /// Records a range that was not read.
    pub(super) fn claim(&self, address: u64, len: u64, what: &'static str) {
        self.push(Range { address, end: address.saturating_add(len), what, marked: false });
    }

    /// Records nonzero bytes within a structure that readers ignore.
    pub(super) fn hide(&self, address: u64, len: u64) {
        let mut hidden = self.hidden.lock().unwrap_or_else(PoisonError::into_inner);
        if hidden.len() < MAX_RANGES {
            hidden.insert(address, len);
        }
    }

    /// Takes the ignored bytes, in order: addresses and lengths.
    pub(super) fn hidden(&self) -> Vec<(u64, u64)> {
        let mut hidden = self.hidden.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *hidden).into_iter().collect()
    }

    fn push(&self, range: Range) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.kept.push(range);
        if all.kept.len() >= all.next {
            let joined = join(std::mem::take(&mut all.kept));
            all.next = MAX_RANGES.max(joined.len().saturating_mul(2));
            all.kept = joined;
        }
    }

    /// Takes all ranges, in order.
    pub(super) fn ranges(&self) -> Vec<Range> {
        join(std::mem::take(&mut self.all.lock().unwrap_or_else(PoisonError::into_inner).kept))
    }
}

/// Sorts ranges by start, longest first. A range within another is dropped; an adjacent range without a
/// signature extends the one before.
fn join(mut all: Vec<Range>) -> Vec<Range> {
    all.sort_by_key(|range| (range.address, std::cmp::Reverse(range.end), range.what));
    let mut joined: Vec<Range> = Vec::with_capacity(all.len().min(MAX_RANGES / 2));
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
    fn joins_ranges_and_names_them_by_signature() {
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
