//! First step: lines become edges of hashes, and the distinct names of each chunk.
//!
//! A chunk of lines becomes two files. `edges`: for each edge the hashes of its names. `names`: for each partition of each
//! dictionary the distinct names of the chunk; their first places and numbers of uses where the import needs them. A dictionary is
//! partitioned by the first bits of the hashes, so that each partition is completed in little memory. The hashes of the names are
//! not written: a large import takes as long as the disk needs for these files.

use super::text::{BadLine, Edge, Field};
use std::collections::HashMap;
use twox_hash::XxHash3_64;
use weighbridge_core::error::{Error, Result};
use weighbridge_io::source::{Source, SourceRef, read_vec, to_usize};

/// Separator of the features in a list.
const SEPARATOR: u8 = b',';
/// Maximum number of relations that an error names.
const MAX_NAMED: usize = 5;

/// Meaning of the names of an edge.
#[derive(Debug)]
pub(super) struct Schema {
    /// Indexes of the relations by name; `None` for dynamic relations, whose names are a dictionary.
    pub(super) relations: Option<HashMap<Vec<u8>, u32>>,
    /// Dictionaries of lhs and rhs, for each relation of the configuration.
    pub(super) sides: Vec<[usize; 2]>,
    /// Number of dictionaries: one for each entity type, and the last for dynamic relations.
    pub(super) dictionaries: usize,
    /// Dictionaries with names of features: a side of an edge is a list of them, with commas between.
    pub(super) featurized: Vec<bool>,
    /// Sides on which some relation has features.
    pub(super) listed: [bool; 2],
    /// Dictionary of the relations, if they are dynamic.
    pub(super) relation_dictionary: Option<usize>,
    /// First bits of a hash that tell its partition.
    pub(super) bits: u32,
    /// Seed of the hashes.
    pub(super) seed: u64,
    /// True where edges have weights.
    pub(super) weighted: bool,
    /// True where the order of the names depends on their first places.
    pub(super) places: bool,
    /// True where names with few uses are dropped.
    pub(super) counts: bool,
}

impl Schema {
    pub(super) fn hash(&self, name: &[u8]) -> u64 {
        let hash = XxHash3_64::oneshot_with_seed(self.seed, name);
        // Tests need names with equal hashes.
        #[cfg(test)]
        if self.seed == super::tests::WEAK {
            return hash & 0xff;
        }
        hash
    }

    /// Partition of a hash among those of its dictionary.
    pub(super) fn part_of(&self, hash: u64) -> usize {
        hash.checked_shr(u64::BITS - self.bits).map_or(0, |part| usize::try_from(part).unwrap_or(usize::MAX))
    }

    /// Number of partitions of each dictionary.
    pub(super) fn parts(&self) -> usize {
        1 << self.bits
    }

    /// True where this side of a relation is a list of features.
    pub(super) fn is_list(&self, relation: usize, side: usize) -> bool {
        self.sides.get(relation).is_some_and(|sides| self.featurized[sides[side]])
    }

    /// Relation of the configuration: the first if they are dynamic.
    pub(super) fn configured(&self, relation: u64) -> Result<usize> {
        if self.relation_dictionary.is_some() { Ok(0) } else { to_usize(relation) }
    }

    /// Bytes of the relation of an edge: of the hash of its name if relations are dynamic.
    fn relation_width(&self) -> usize {
        if self.relation_dictionary.is_some() { 8 } else { index_width(self.sides.len() as u64) }
    }
}

/// Name, with its uses since it was last found in [`Segment::recent`].
#[derive(Debug, Clone, Copy)]
struct Use {
    hash: u64,
    /// Place among the uses of the chunk.
    place: u32,
    count: u32,
    name: Field,
}

/// Uses of names in a partition of a dictionary. They have their own copies of the names: those of one partition are far apart in
/// the text, and would be fetched from memory one by one.
#[derive(Debug, Clone, Default)]
struct Uses {
    list: Vec<Use>,
    names: Vec<u8>,
}

impl Uses {
    fn name(&self, one: &Use) -> &[u8] {
        &self.names[one.name.range()]
    }
}

/// Slots for names that were used lately: a power of two.
const RECENT: usize = 1 << 10;

/// Edges of one chunk. Cleared and used again for the next one.
#[derive(Debug)]
pub(super) struct Segment<'s> {
    schema: &'s Schema,
    lhs: Vec<u64>,
    rhs: Vec<u64>,
    rel: Vec<u64>,
    weight: Vec<f32>,
    /// Number of features of each edge, for each side; empty for a side without lists.
    counts: [Vec<u32>; 2],
    /// Hashes of all features, for each side.
    features: [Vec<u64>; 2],
    /// Number of uses of names.
    places: u32,
    /// Uses of names, for each partition of each dictionary.
    uses: Vec<Uses>,
    /// Last use in each slot, by the last bits of its hash: the partition, and the place there. Most graphs use some names often.
    recent: Vec<(u32, u32)>,
    /// Lines that were skipped as malformed.
    pub(super) bad: u64,
}

impl<'s> Segment<'s> {
    pub(super) fn new(schema: &'s Schema) -> Self {
        let uses = vec![Uses::default(); schema.dictionaries << schema.bits];
        Self {
            schema,
            lhs: Vec::new(),
            rhs: Vec::new(),
            rel: Vec::new(),
            weight: Vec::new(),
            counts: [Vec::new(), Vec::new()],
            features: [Vec::new(), Vec::new()],
            places: 0,
            uses,
            recent: vec![(u32::MAX, 0); RECENT],
            bad: 0,
        }
    }

    pub(super) fn clear(&mut self) {
        self.lhs.clear();
        self.rhs.clear();
        self.rel.clear();
        self.weight.clear();
        self.counts.iter_mut().for_each(Vec::clear);
        self.features.iter_mut().for_each(Vec::clear);
        self.places = 0;
        for uses in &mut self.uses {
            uses.list.clear();
            uses.names.clear();
        }
        self.recent.fill((u32::MAX, 0));
        self.bad = 0;
    }

    pub(super) fn push(&mut self, text: &[u8], edge: &Edge) -> Result<(), BadLine> {
        let schema = self.schema;
        let named = |field: Field| &text[field.range()];
        let (relation, rel) = match (&schema.relations, edge.rel) {
            (Some(known), Some(field)) => {
                let found = known.get(named(field));
                let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
                let unknown = || {
                    let mut all: Vec<(&u32, &Vec<u8>)> =
                        known.iter().map(|(name, index)| (index, name)).collect();
                    all.sort_unstable();
                    let known = all.iter().take(MAX_NAMED).map(|(_, name)| text(name)).collect();
                    BadLine::Relation { found: text(named(field)), known }
                };
                let index = *found.ok_or_else(unknown)?;
                (index as usize, u64::from(index))
            }
            (None, Some(field)) => (0, schema.hash(named(field))),
            (_, None) => (0, 0),
        };
        let sides = [edge.lhs, edge.rhs];
        // Before any name is used: a line that is skipped uses none.
        for (side, field) in sides.into_iter().enumerate() {
            if schema.is_list(relation, side) && features(text, field).any(|feature| feature.len == 0) {
                return Err(BadLine::EmptyName);
            }
        }
        let mut hashes = [0; 2];
        for (side, field) in sides.into_iter().enumerate() {
            let dictionary = schema.sides[relation][side];
            let mut count = 0;
            if schema.is_list(relation, side) {
                for feature in features(text, field) {
                    let hash = schema.hash(named(feature));
                    self.use_name(dictionary, hash, named(feature));
                    self.features[side].push(hash);
                    count += 1;
                }
            } else {
                hashes[side] = schema.hash(named(field));
                self.use_name(dictionary, hashes[side], named(field));
            }
            if schema.listed[side] {
                self.counts[side].push(count);
            }
        }
        if let (Some(dictionary), Some(name)) = (schema.relation_dictionary, edge.rel) {
            self.use_name(dictionary, rel, named(name));
        }
        self.lhs.push(hashes[0]);
        self.rhs.push(hashes[1]);
        self.rel.push(rel);
        if schema.weighted {
            self.weight.push(edge.weight);
        }
        Ok(())
    }

    fn use_name(&mut self, dictionary: usize, hash: u64, name: &[u8]) {
        let part = dictionary << self.schema.bits | self.schema.part_of(hash);
        let uses = &mut self.uses[part];
        let recent = &mut self.recent[low_bits(hash, RECENT)];
        self.places += 1;
        if recent.0 as usize == part
            && let Some(known) = uses.list.get_mut(recent.1 as usize)
            && known.hash == hash
            && &uses.names[known.name.range()] == name
        {
            known.count += 1;
            return;
        }
        let small = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        *recent = (small(part), small(uses.list.len()));
        let start = uses.names.len();
        uses.names.extend_from_slice(name);
        let name = Field::of(start..uses.names.len());
        uses.list.push(Use { hash, place: self.places - 1, count: 1, name });
    }

    /// Returns the parts of the file of edges.
    pub(super) fn edges(&self) -> Vec<u8> {
        let edges = self.lhs.len();
        let mut file = Vec::with_capacity(16 + edges * 28);
        file.extend((edges as u64).to_le_bytes());
        file.extend(self.bad.to_le_bytes());
        for column in [&self.lhs, &self.rhs] {
            column.iter().for_each(|hash| file.extend_from_slice(&hash.to_le_bytes()));
        }
        let width = self.schema.relation_width();
        self.rel.iter().for_each(|rel| file.extend_from_slice(&rel.to_le_bytes()[..width]));
        self.weight.iter().for_each(|weight| file.extend_from_slice(&weight.to_le_bytes()));
        for (counts, features) in self.counts.iter().zip(&self.features) {
            counts.iter().for_each(|count| file.extend_from_slice(&count.to_le_bytes()));
            features.iter().for_each(|hash| file.extend_from_slice(&hash.to_le_bytes()));
        }
        file
    }

    /// Returns the file of the distinct names: the offset of each partition, and the partitions.
    pub(super) fn names(&mut self) -> Vec<u8> {
        let head = (self.uses.len() + 1) * 8;
        let mut file = vec![0; head];
        let mut table: Vec<u32> = Vec::new();
        for (part, uses) in self.uses.iter_mut().enumerate() {
            let offset = file.len() as u64;
            file[part * 8..][..8].copy_from_slice(&offset.to_le_bytes());
            uses.unite(&mut table);
            let distinct = || uses.list.iter().filter(|one| one.count > 0);
            file.extend((distinct().count() as u64).to_le_bytes());
            if self.schema.places {
                distinct().for_each(|one| file.extend_from_slice(&one.place.to_le_bytes()));
            }
            if self.schema.counts {
                distinct().for_each(|one| file.extend_from_slice(&one.count.to_le_bytes()));
            }
            distinct().for_each(|one| push_len(&mut file, one.name.len));
            distinct().for_each(|one| file.extend_from_slice(uses.name(one)));
        }
        let end = file.len() as u64;
        file[head - 8..head].copy_from_slice(&end.to_le_bytes());
        file
    }
}

impl Uses {
    /// Adds the uses of each name to its first one; the others count none. `table` is an open hash table of first uses.
    fn unite(&mut self, table: &mut Vec<u32>) {
        let slots = (self.list.len() * 2).next_power_of_two();
        table.clear();
        table.resize(slots, u32::MAX);
        for number in 0..self.list.len() {
            let one = self.list[number];
            let mut slot = low_bits(one.hash, slots);
            loop {
                let first = table[slot] as usize;
                let Some(known) = self.list.get(first) else {
                    table[slot] = u32::try_from(number).unwrap_or(u32::MAX);
                    break;
                };
                if known.hash == one.hash && self.name(known) == self.name(&one) {
                    self.list[first].count += one.count;
                    self.list[number].count = 0;
                    break;
                }
                slot = (slot + 1) & (slots - 1);
            }
        }
    }
}

/// Places of the names in a list of features.
fn features(text: &[u8], list: Field) -> impl Iterator<Item = Field> {
    let mut start = list.range().start;
    text[list.range()].split(|byte| *byte == SEPARATOR).map(move |name| {
        let field = Field::of(start..start + name.len());
        start += name.len() + 1;
        field
    })
}

/// Slot of a hash in a table with a power of two of slots.
pub(super) fn low_bits(hash: u64, slots: usize) -> usize {
    // The first bits are equal within a partition.
    usize::try_from(hash & (slots as u64 - 1)).unwrap_or(0)
}

/// Edges of a chunk, read back.
pub(super) struct Edges {
    pub(super) bad: u64,
    pub(super) len: usize,
    bytes: Vec<u8>,
    width: usize,
    /// Offsets of the counts of features and of their hashes, for each side with lists.
    lists: [Option<Lists>; 2],
}

/// Lists of features of a side: numbers of them, and their hashes.
#[derive(Debug, Clone, Copy)]
struct Lists {
    counts: usize,
    features: usize,
    end: usize,
}

impl Edges {
    pub(super) fn read(source: &dyn Source, schema: &Schema) -> Result<Self> {
        let bytes = read_vec(source, 0, source.len())?;
        let number =
            |at: usize| bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map(u64::from_le_bytes);
        let (Some(edges), Some(bad)) = (number(0), number(8)) else { return Err(damaged(source)) };
        let len = to_usize(edges)?;
        let width = schema.relation_width();
        let each = 16 + width + if schema.weighted { 4 } else { 0 };
        let mut end = len.checked_mul(each).and_then(|n| n.checked_add(16));
        let mut lists = [None; 2];
        for (lists, _) in lists.iter_mut().zip(schema.listed).filter(|(_, listed)| *listed) {
            let counts = end.filter(|end| *end <= bytes.len()).ok_or_else(|| damaged(source))?;
            let features =
                len.checked_mul(4).and_then(|n| n.checked_add(counts)).ok_or_else(|| damaged(source))?;
            let all = bytes.get(counts..features).ok_or_else(|| damaged(source))?;
            let sum: u64 = all.as_chunks().0.iter().map(|b| u64::from(u32::from_le_bytes(*b))).sum();
            end = to_usize(sum)?.checked_mul(8).and_then(|n| n.checked_add(features));
            *lists = Some(Lists { counts, features, end: end.unwrap_or(usize::MAX) });
        }
        if end != Some(bytes.len()) {
            return Err(damaged(source));
        }
        Ok(Self { bad, len, bytes, width, lists })
    }

    /// Hashes of the names of a side.
    pub(super) fn side(&self, side: usize) -> impl Iterator<Item = u64> {
        let start = 16 + side * self.len * 8;
        self.bytes[start..start + self.len * 8].as_chunks().0.iter().map(|b| u64::from_le_bytes(*b))
    }

    /// Relations: indexes, or hashes of their names.
    pub(super) fn relations(&self) -> impl Iterator<Item = u64> {
        let start = 16 + self.len * 16;
        self.bytes[start..start + self.len * self.width].chunks_exact(self.width).map(|b| {
            let mut word = [0; 8];
            word[..b.len()].copy_from_slice(b);
            u64::from_le_bytes(word)
        })
    }

    /// Weights, as bytes; empty without.
    pub(super) fn weights(&self, schema: &Schema) -> &[[u8; 4]] {
        let start = 16 + self.len * (16 + self.width);
        let end = if schema.weighted { start + self.len * 4 } else { start };
        self.bytes[start..end].as_chunks().0
    }

    /// Number of features of each edge, and the hashes of all; empty for a side without lists.
    pub(super) fn lists(&self, side: usize) -> (impl Iterator<Item = u32>, impl Iterator<Item = u64>) {
        let Lists { counts, features, end } =
            self.lists[side].unwrap_or(Lists { counts: 0, features: 0, end: 0 });
        (
            self.bytes[counts..features].as_chunks().0.iter().map(|b| u32::from_le_bytes(*b)),
            self.bytes[features..end].as_chunks().0.iter().map(|b| u64::from_le_bytes(*b)),
        )
    }
}

/// Distinct names of a chunk in one partition, read back.
pub(super) struct Piece {
    bytes: Vec<u8>,
    len: usize,
    /// Offsets of the first places, numbers of uses, lengths of the names, and names.
    places: Option<usize>,
    counts: Option<usize>,
    lens: usize,
    names: usize,
}

/// Name of a piece.
pub(super) struct Named<'p> {
    /// First place in the chunk; 0 where it is not needed.
    pub(super) place: u32,
    /// Number of uses; 1 where it is not needed.
    pub(super) count: u32,
    pub(super) name: &'p [u8],
}

/// File of the names of a chunk, with the offsets of its partitions.
pub(super) struct NamesOfChunk {
    source: SourceRef,
    offsets: Vec<u64>,
}

impl NamesOfChunk {
    /// Opens the file, which has `parts` partitions.
    pub(super) fn open(source: SourceRef, parts: usize) -> Result<Self> {
        let head = read_vec(&*source, 0, (parts as u64 + 1) * 8)?;
        let offsets = head.as_chunks().0.iter().map(|b| u64::from_le_bytes(*b)).collect();
        Ok(Self { source, offsets })
    }
}

impl Piece {
    pub(super) fn read(names: &NamesOfChunk, part: usize, schema: &Schema) -> Result<Self> {
        let source = &*names.source;
        let Some(&[start, end]) = names.offsets.get(part..part + 2) else { return Err(damaged(source)) };
        let bytes = read_vec(source, start, end.checked_sub(start).ok_or_else(|| damaged(source))?)?;
        let len = bytes.first_chunk().map(|b| u64::from_le_bytes(*b)).ok_or_else(|| damaged(source))?;
        let len = to_usize(len)?;
        let mut at = 8;
        let mut column = |is_there: bool| {
            let start = at;
            at = if is_there { len.checked_mul(4)?.checked_add(at)? } else { at };
            (at <= bytes.len()).then_some(is_there.then_some(start))
        };
        let (Some(places), Some(counts)) = (column(schema.places), column(schema.counts)) else {
            return Err(damaged(source));
        };
        let lens = at;
        let mut sum = 0usize;
        for _ in 0..len {
            let len = take_len(&bytes, &mut at).ok_or_else(|| damaged(source))?;
            sum = sum.saturating_add(len);
        }
        if at.checked_add(sum) != Some(bytes.len()) {
            return Err(damaged(source));
        }
        Ok(Self { len, places, counts, lens, names: at, bytes })
    }

    /// Word of a column that may be absent.
    fn word(&self, column: Option<usize>, at: usize) -> Option<u32> {
        self.bytes.get(column? + 4 * at..).and_then(<[u8]>::first_chunk).map(|b| u32::from_le_bytes(*b))
    }

    pub(super) fn names(&self) -> impl Iterator<Item = Named<'_>> {
        let (mut len_at, mut start) = (self.lens, self.names);
        (0..self.len).map(move |at| {
            let size = take_len(&self.bytes, &mut len_at).unwrap_or(0);
            let name = &self.bytes[start..start + size];
            start += size;
            let place = self.word(self.places, at).unwrap_or(0);
            Named { place, count: self.word(self.counts, at).unwrap_or(1), name }
        })
    }
}

/// Appends a length: seven bits in a byte, the lowest first; the highest bit of a byte tells that more follow.
fn push_len(file: &mut Vec<u8>, mut len: u32) {
    while len >= 0x80 {
        file.push(len.to_le_bytes()[0] | 0x80);
        len >>= 7;
    }
    file.push(len.to_le_bytes()[0]);
}

/// Reads a length that [`push_len`] wrote at the offset `at`, and moves it.
fn take_len(bytes: &[u8], at: &mut usize) -> Option<usize> {
    let (mut len, mut shift) = (0u64, 0);
    loop {
        let byte = *bytes.get(*at)?;
        *at += 1;
        len |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte < 0x80 {
            return usize::try_from(len).ok();
        }
        if shift > 28 {
            return None;
        }
    }
}

/// Bytes of an index of `count` things, such as the relation of an edge.
pub(super) fn index_width(count: u64) -> usize {
    match count {
        0..=0x100 => 1,
        0x101..=0x1_0000 => 2,
        _ => 4,
    }
}

/// Returns the error for a file of the work folder that was changed meanwhile: its checksum was right before.
pub(super) fn damaged(source: &dyn Source) -> Error {
    Error::corrupt("bad-list", "a file of the unfinished import has changed")
        .in_file(source.label())
        .hint("remove this folder, and import again")
}
