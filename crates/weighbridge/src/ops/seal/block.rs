//! What is hashed of a file, and the work on one block of it.

use super::digest::{Algorithms, Digests};
use super::tree::{Tree, Unit};
use crate::error::Result;
use crate::source::{MaybeMapped, to_usize};
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, HashMap};

/// Bytes of a file that are read at once: few enough to stay near the processor while they are hashed.
/// A power of two: the unit of the file's own BLAKE3.
pub(super) const BLOCK: u64 = 1 << 20;
/// Bytes of a unit of the BLAKE3 of a stretch. Stretches begin anywhere, so that units lie across the
/// ends of blocks: a block is read with up to this much behind it.
pub(super) const UNIT: u64 = 64 << 10;

/// A range of a file of which something is wanted.
#[derive(Debug, Clone)]
pub(super) struct Stretch {
    /// Offset of the first byte.
    pub(super) start: u64,
    /// Offset behind the last byte; there is at least one.
    pub(super) end: u64,
    /// The hashes that are wanted.
    pub(super) hashes: Algorithms,
    /// True where the CRC-32 is wanted.
    pub(super) crc: bool,
}

/// What came out for a stretch.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct StretchHashed {
    /// The hashes.
    pub(super) digests: Digests,
    /// The CRC-32.
    pub(super) crc: Option<u32>,
}

/// What came out for a file.
#[derive(Debug, Clone, Default)]
pub(super) struct FileHashed {
    /// Its length in bytes.
    pub(super) len: u64,
    /// The hashes of the whole.
    pub(super) whole: Digests,
    /// For each stretch, in the order of the job.
    pub(super) stretches: Vec<StretchHashed>,
}

/// A block of a file, in memory.
#[derive(Debug)]
pub(super) struct Block {
    /// Offset of its first byte in the file.
    pub(super) start: u64,
    /// Its length, without what was read behind it.
    pub(super) len: u64,
    /// The stretches that it meets.
    pub(super) active: Vec<usize>,
    /// Its bytes, and some behind it.
    pub(super) bytes: MaybeMapped,
}

impl Block {
    /// The bytes from `from` to `to`, which are offsets in the file.
    fn slice(&self, from: u64, to: u64) -> Result<&[u8]> {
        let (from, to) = (to_usize(from - self.start)?, to_usize(to - self.start)?);
        Ok(self.bytes.bytes().get(from..to).unwrap_or_default())
    }

    fn end(&self) -> u64 {
        self.start + self.len
    }

    /// The part of this block that belongs to `stretch`.
    fn of(&self, stretch: &Stretch) -> Result<&[u8]> {
        self.slice(stretch.start.max(self.start), stretch.end.min(self.end()))
    }
}

/// The offset behind the last unit of a stretch that begins before `end`.
pub(super) fn reach(stretch: &Stretch, end: u64) -> u64 {
    let units = end.saturating_sub(stretch.start).div_ceil(UNIT);
    stretch.start.saturating_add(units.saturating_mul(UNIT)).min(stretch.end)
}

/// What can be computed of a block without those before it.
#[derive(Debug, Default)]
pub(super) struct Parts {
    whole: Option<Unit>,
    stretches: Vec<(usize, Vec<Unit>, Option<crc32fast::Hasher>)>,
}

/// Hashes what can be hashed of `block` by itself.
pub(super) fn parts(block: &Block, stretches: &[Stretch], whole: Algorithms, len: u64) -> Result<Parts> {
    let mut parts = Parts::default();
    if whole.blake3 {
        parts.whole = Some(Unit::of(block.slice(block.start, block.end())?, block.start, len));
    }
    for &number in &block.active {
        let Some(stretch) = stretches.get(number) else { continue };
        if !stretch.crc && !stretch.hashes.blake3 {
            continue;
        }
        let crc = if stretch.crc {
            let mut crc = crc32fast::Hasher::new();
            crc.update(block.of(stretch)?);
            Some(crc)
        } else {
            None
        };
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

/// Puts the parts of blocks together, which may come in any order.
#[derive(Debug)]
pub(super) struct Gathered {
    next: u64,
    waiting: BTreeMap<u64, Parts>,
    whole: Tree,
    trees: HashMap<usize, Tree>,
    crcs: HashMap<usize, crc32fast::Hasher>,
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

    /// Takes the parts of the block of that number.
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
                    let sum = self.crcs.entry(number).or_default();
                    sum.combine(&crc);
                    // The last part counts.
                    out.crc = Some(sum.clone().finalize());
                }
            }
        }
    }
}

/// The SHA-256 of stretches, block by block in order.
#[derive(Debug, Default)]
pub(super) struct Sums(HashMap<usize, Sha256>);

impl Sums {
    /// Takes the next block. Returns the hashes of the stretches that end in it.
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

    /// Takes the next block into the hash of the whole file.
    pub(super) fn whole(hasher: &mut Sha256, block: &Block) -> Result<()> {
        hasher.update(block.slice(block.start, block.end())?);
        Ok(())
    }
}
