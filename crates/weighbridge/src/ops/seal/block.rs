//! Byte ranges to hash in a file, and the work on one block.

use super::digest::{Algorithms, Digests};
use super::tree::{Tree, Unit};
use crate::checksum::{Checksum, ChecksumKind};
use crate::error::Result;
use crate::source::{MaybeMapped, to_usize};
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, HashMap, hash_map::Entry};

/// Block size in bytes: small enough to stay in the processor cache during hashing. A power of two: the unit of the file's
/// BLAKE3.
pub(super) const BLOCK: u64 = 1 << 20;
/// Unit size of the BLAKE3 of a stretch. Stretches begin at any offset, so units cross block ends: a block is read with up to
/// this many bytes after it.
pub(super) const UNIT: u64 = 64 << 10;

/// Byte range of a file to hash.
#[derive(Debug, Clone)]
pub(super) struct Stretch {
    /// Offset of the first byte.
    pub(super) start: u64,
    /// End offset, exclusive; the range is not empty.
    pub(super) end: u64,
    /// The requested hashes.
    pub(super) hashes: Algorithms,
    /// Requested checksum.
    pub(super) crc: Option<ChecksumKind>,
}

/// Result for a stretch.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct StretchHashed {
    /// The hashes.
    pub(super) digests: Digests,
    /// The checksum.
    pub(super) crc: Option<u32>,
}

/// Result for a file.
#[derive(Debug, Clone, Default)]
pub(super) struct FileHashed {
    /// Its length in bytes.
    pub(super) len: u64,
    /// The hashes of the whole file.
    pub(super) whole: Digests,
    /// The results of the stretches, in the order of the job.
    pub(super) stretches: Vec<StretchHashed>,
}

/// A block of a file, in memory.
#[derive(Debug)]
pub(super) struct Block {
    /// Offset of its first byte in the file.
    pub(super) start: u64,
    /// Its length, without the bytes after it.
    pub(super) len: u64,
    /// The stretches that overlap it.
    pub(super) active: Vec<usize>,
    /// Its bytes, and some bytes after it.
    pub(super) bytes: MaybeMapped,
}

impl Block {
    /// Returns the bytes from `from` to `to`, which are offsets in the file.
    fn slice(&self, from: u64, to: u64) -> Result<&[u8]> {
        let (from, to) = (to_usize(from - self.start)?, to_usize(to - self.start)?);
        Ok(self.bytes.bytes().get(from..to).unwrap_or_default())
    }

    fn end(&self) -> u64 {
        self.start + self.len
    }

    /// Returns the part of this block that belongs to `stretch`.
    fn of(&self, stretch: &Stretch) -> Result<&[u8]> {
        self.slice(stretch.start.max(self.start), stretch.end.min(self.end()))
    }
}

/// Returns the end offset of the last unit of a stretch that begins before `end`.
pub(super) fn reach(stretch: &Stretch, end: u64) -> u64 {
    let units = end.saturating_sub(stretch.start).div_ceil(UNIT);
    stretch.start.saturating_add(units.saturating_mul(UNIT)).min(stretch.end)
}

/// Hashes of a block that do not depend on earlier blocks.
#[derive(Debug, Default)]
pub(super) struct Parts {
    whole: Option<Unit>,
    stretches: Vec<(usize, Vec<Unit>, Option<Checksum>)>,
}

/// Computes the hashes of `block` that do not depend on earlier blocks.
pub(super) fn parts(block: &Block, stretches: &[Stretch], whole: Algorithms, len: u64) -> Result<Parts> {
    let mut parts = Parts::default();
    if whole.blake3 {
        parts.whole = Some(Unit::of(block.slice(block.start, block.end())?, block.start, len));
    }
    for &number in &block.active {
        let Some(stretch) = stretches.get(number) else { continue };
        if stretch.crc.is_none() && !stretch.hashes.blake3 {
            continue;
        }
        let mut crc = stretch.crc.map(Checksum::new);
        if let Some(crc) = &mut crc {
            crc.update(block.of(stretch)?);
        }
        let mut units = Vec::new();
        if stretch.hashes.blake3 {
            // The first unit that begins in this block.
            let mut at = block.start.saturating_sub(stretch.start).div_ceil(UNIT) * UNIT;
            while stretch.start + at < block.end().min(stretch.end) {
                let from = stretch.start + at;
                let bytes = block.slice(from, from.saturating_add(UNIT).min(stretch.end))?;
                units.push(Unit::of(bytes, at, stretch.end - stretch.start));
                at += UNIT;
            }
        }
        parts.stretches.push((number, units, crc));
    }
    Ok(parts)
}

/// Combines the partial hashes of blocks, which may arrive in any order.
#[derive(Debug)]
pub(super) struct Gathered {
    next: u64,
    waiting: BTreeMap<u64, Parts>,
    whole: Tree,
    trees: HashMap<usize, Tree>,
    crcs: HashMap<usize, Checksum>,
}

impl Gathered {
    pub(super) fn new(len: u64) -> Self {
        Self {
            next: 0,
            waiting: BTreeMap::new(),
            whole: Tree::new(len, BLOCK),
            trees: HashMap::new(),
            crcs: HashMap::new(),
        }
    }

    /// Adds the partial hashes of the block of that number.
    pub(super) fn take(&mut self, number: u64, parts: Parts, stretches: &[Stretch], out: &mut FileHashed) {
        self.waiting.insert(number, parts);
        while let Some(parts) = self.waiting.remove(&self.next) {
            self.next += 1;
            if let Some(unit) = parts.whole {
                self.whole.push(unit);
                out.whole.blake3 = self.whole.digest();
            }
            for (number, units, crc) in parts.stretches {
                let (Some(stretch), Some(out)) = (stretches.get(number), out.stretches.get_mut(number))
                else {
                    continue;
                };
                let len = stretch.end - stretch.start;
                let tree = self.trees.entry(number).or_insert_with(|| Tree::new(len, UNIT));
                units.into_iter().for_each(|unit| tree.push(unit));
                if let Some(digest) = tree.digest() {
                    out.digests.blake3 = Some(digest);
                    self.trees.remove(&number);
                }
                if let Some(crc) = crc {
                    // The last value is the result.
                    out.crc = Some(match self.crcs.entry(number) {
                        Entry::Vacant(empty) => empty.insert(crc).finish(),
                        Entry::Occupied(mut sum) => {
                            sum.get_mut().combine(&crc);
                            sum.get().finish()
                        }
                    });
                }
            }
        }
    }
}

/// SHA-256 of stretches, block by block in order.
#[derive(Debug, Default)]
pub(super) struct Sums(HashMap<usize, Sha256>);

impl Sums {
    /// Adds the next block. Returns the hashes of the stretches that end in it.
    pub(super) fn take(&mut self, block: &Block, stretches: &[Stretch]) -> Result<Vec<(usize, [u8; 32])>> {
        let mut done = Vec::new();
        for &number in &block.active {
            let Some(stretch) = stretches.get(number).filter(|s| s.hashes.sha256) else { continue };
            let bytes = block.of(stretch)?;
            if stretch.end > block.end() {
                self.0.entry(number).or_default().update(bytes);
                continue;
            }
            let mut hasher = self.0.remove(&number).unwrap_or_default();
            hasher.update(bytes);
            done.push((number, hasher.finalize().into()));
        }
        Ok(done)
    }

    /// Adds the next block to the hash of the whole file.
    pub(super) fn whole(hasher: &mut Sha256, block: &Block) -> Result<()> {
        hasher.update(block.slice(block.start, block.end())?);
        Ok(())
    }
}
