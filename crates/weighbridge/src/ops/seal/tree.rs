//! BLAKE3 over parts that are hashed by several threads.
//!
//! BLAKE3 is a tree: the hash of a run of whole units, with a power of two as unit length, can be computed independently, and the
//! tree above combines these. The library hashes units and merges subtrees; this module tracks their positions.

use super::digest::Digest;
use blake3::hazmat::{ChainingValue, HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root};

/// Hash of one unit.
#[derive(Debug, Clone, Copy)]
pub(super) enum Unit {
    /// One of several units.
    Part(ChainingValue),
    /// The only unit.
    Whole(Digest),
}

impl Unit {
    /// Hashes the unit that begins at `start`, a multiple of the unit length, of data that is `whole` bytes long. `bytes` is not
    /// empty, and shorter than a unit only at the end.
    pub(super) fn of(bytes: &[u8], start: u64, whole: u64) -> Self {
        if start == 0 && bytes.len() as u64 == whole {
            return Self::Whole(*blake3::hash(bytes).as_bytes());
        }
        let mut hasher = blake3::Hasher::new();
        hasher.set_input_offset(start).update(bytes);
        Self::Part(hasher.finalize_non_root())
    }
}

/// Tree over units, which arrive in order.
#[derive(Debug)]
pub(super) struct Tree {
    /// Total number of units.
    units: u64,
    /// Number of units so far.
    count: u64,
    /// Complete subtrees, the largest first.
    stack: Vec<ChainingValue>,
    digest: Option<Digest>,
}

impl Tree {
    /// Makes the tree for `len` bytes in units of `unit`.
    pub(super) fn new(len: u64, unit: u64) -> Self {
        Self { units: len.div_ceil(unit), count: 0, stack: Vec::new(), digest: None }
    }

    /// Adds the next unit.
    pub(super) fn push(&mut self, unit: Unit) {
        self.count += 1;
        let mut right = match unit {
            Unit::Whole(digest) => {
                self.digest = Some(digest);
                return;
            }
            Unit::Part(value) => value,
        };
        if self.count < self.units {
            // Two complete subtrees of one size make one of twice the size. None of them is the root, because more units follow.
            for _ in 0..self.count.trailing_zeros() {
                let Some(left) = self.stack.pop() else { break };
                right = merge_subtrees_non_root(&left, &right, Mode::Hash);
            }
            self.stack.push(right);
            return;
        }
        while let Some(left) = self.stack.pop() {
            if self.stack.is_empty() {
                let root = merge_subtrees_root(&left, &right, Mode::Hash);
                self.digest = Some(*root.as_bytes());
            } else {
                right = merge_subtrees_non_root(&left, &right, Mode::Hash);
            }
        }
    }

    /// Returns the hash, once all units were added.
    pub(super) fn digest(&self) -> Option<Digest> {
        self.digest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_is_that_of_the_library() {
        let bytes: Vec<u8> = (0..70_000u32).map(|i| u8::try_from(i % 251).unwrap()).collect();
        let lengths =
            [1, 1023, 1024, 1025, 2047, 2048, 2049, 3000, 4096, 4097, 16_384, 16_385, 33_000, 70_000];
        for unit in [1024u64, 2048, 16_384] {
            for len in lengths {
                let bytes = &bytes[..len];
                let mut tree = Tree::new(len as u64, unit);
                for (i, part) in bytes.chunks(usize::try_from(unit).unwrap()).enumerate() {
                    assert_eq!(tree.digest(), None);
                    tree.push(Unit::of(part, i as u64 * unit, len as u64));
                }
                assert_eq!(tree.digest(), Some(*blake3::hash(bytes).as_bytes()), "{len} in units of {unit}");
            }
        }
    }
}
