//! First step: lines become edges of numbers, and the distinct names of each chunk.
//!
//! A chunk of lines becomes two files. `names`: for each partition of each dictionary the distinct names of the chunk; their first
//! places and numbers of uses where the import needs them. `edges`: for each edge the numbers of its names among those. A
//! dictionary is partitioned by the first bits of the hashes, so that each partition is completed in little memory. The hashes of
//! the names are not written: a large import takes as long as the disk needs for these files.

use super::numbers;
use super::slots::Slots;
use super::text::{BadLine, Edge, Field};
use std::collections::HashMap;
use twox_hash::XxHash3_64;
use weighbridge_core::error::{Error, Result};
use weighbridge_io::source::{Source, SourceRef, read_vec, to_usize};

/// Separator of the features in a list.
const SEPARATOR: u8 = b',';
/// Maximum number of relations that an error names.
pub(super) const MAX_NAMED: usize = 5;
/// Meaning of the names of an edge.
#[derive(Debug)]
pub(super) struct Schema {
    /// Indexes of the relations by name; `None` for dynamic relations, whose names are a dictionary.
    pub(super) relations: Option<HashMap<Vec<u8>, u32>>,
    /// Names of the first relations, for errors.
    pub(super) first_relations: Vec<String>,
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
        // Tests need different names with equal hashes.
        #[cfg(test)]
        if self.seed == super::tests::WEAK {
            return hash & 0xff;
        }
        hash
    }

    /// First bits of a hash that tell its group of partitions.
    fn group_bits(&self) -> u32 {
        self.bits.min(GROUP_BITS)
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
    pub(super) fn configured(&self, relation: u32) -> usize {
        if self.relation_dictionary.is_some() { 0 } else { relation as usize }
    }
}

/// Name that an edge uses.
#[derive(Debug, Clone, Copy)]
struct Name {
    hash: u64,
    /// Place in [`Uses::text`].
    field: Field,
}

/// Uses of names in a group of partitions of a dictionary. A name that was found in [`Segment::recent`] is not listed again.
#[derive(Debug, Clone, Default)]
struct Uses {
    list: Vec<Name>,
    /// All names of the list: in the text of the chunk, those of a group are far apart, and would be fetched from memory one by one.
    text: Vec<u8>,
    /// Place of each among the uses of the chunk, if the order needs it.
    places: Vec<u32>,
    /// Number of uses of each, if names with few uses are dropped.
    counts: Vec<u32>,
    /// Number of each among the distinct names of the chunk.
    numbers: Vec<u32>,
}

/// Use of a name by an edge: its group, and its place in [`Uses::list`].
type Used = (u32, u32);

/// Maximum first bits of a hash that tell its group. Processors fetch the ends of some 30 lists ahead, not those of all partitions.
const GROUP_BITS: u32 = 4;

/// Slots for names that were used lately: a power of two.
const RECENT: usize = 1 << 10;

/// Edges of one chunk. Cleared and used again for the next one.
#[derive(Debug)]
pub(super) struct Segment<'s> {
    schema: &'s Schema,
    sides: [Vec<Used>; 2],
    /// Names of dynamic relations.
    named_relations: Vec<Used>,
    /// Indexes of the relations of the configuration.
    relations: Vec<u32>,
    weight: Vec<f32>,
    /// Number of features of each edge, for each side; empty for a side without lists.
    counts: [Vec<u32>; 2],
    /// All features, for each side.
    features: [Vec<Used>; 2],
    /// Number of uses of names.
    places: u32,
    /// Uses of names, for each group of partitions of each dictionary.
    uses: Vec<Uses>,
    /// Last use in each slot, by the last bits of its hash. Most graphs use some names often.
    recent: Vec<Used>,
    /// Lines that were skipped as malformed.
    pub(super) bad: u64,
    /// Files of the names and of the edges. Their memory is used again, too: the system takes its time to clear new memory.
    files: [Vec<u8>; 2],
}

impl<'s> Segment<'s> {
    pub(super) fn new(schema: &'s Schema) -> Self {
        let uses = vec![Uses::default(); schema.dictionaries << schema.group_bits()];
        Self {
            schema,
            sides: [Vec::new(), Vec::new()],
            named_relations: Vec::new(),
            relations: Vec::new(),
            weight: Vec::new(),
            counts: [Vec::new(), Vec::new()],
            features: [Vec::new(), Vec::new()],
            places: 0,
            uses,
            recent: vec![(u32::MAX, 0); RECENT],
            bad: 0,
            files: [Vec::new(), Vec::new()],
        }
    }

    pub(super) fn clear(&mut self) {
        self.sides.iter_mut().for_each(Vec::clear);
        self.named_relations.clear();
        self.relations.clear();
        self.weight.clear();
        self.counts.iter_mut().for_each(Vec::clear);
        self.features.iter_mut().for_each(Vec::clear);
        self.places = 0;
        for uses in &mut self.uses {
            uses.list.clear();
            uses.text.clear();
            uses.places.clear();
            uses.counts.clear();
        }
        self.recent.fill((u32::MAX, 0));
        self.bad = 0;
    }

    pub(super) fn push(&mut self, text: &[u8], edge: &Edge) -> Result<(), BadLine> {
        let schema = self.schema;
        let named = |field: Field| &text[field.range()];
        let relation = match (&schema.relations, edge.rel) {
            (Some(known), Some(field)) => {
                let found = known.get(named(field));
                let unknown = || BadLine::Relation {
                    found: String::from_utf8_lossy(named(field)).into_owned(),
                    known: schema.first_relations.clone(),
                };
                *found.ok_or_else(unknown)?
            }
            _ => 0,
        };
        let configured = relation as usize;
        let sides = [edge.lhs, edge.rhs];
        // Before any name is used: a line that is skipped uses none.
        for (side, field) in sides.into_iter().enumerate() {
            if schema.is_list(configured, side) && features(text, field).any(|feature| feature.len == 0) {
                return Err(BadLine::EmptyName);
            }
        }
        for (side, field) in sides.into_iter().enumerate() {
            let dictionary = schema.sides[configured][side];
            let (mut count, mut used) = (0, (0, 0));
            if schema.is_list(configured, side) {
                for feature in features(text, field) {
                    let feature = self.use_name(dictionary, named(feature));
                    self.features[side].push(feature);
                    count += 1;
                }
            } else {
                used = self.use_name(dictionary, named(field));
            }
            self.sides[side].push(used);
            if schema.listed[side] {
                self.counts[side].push(count);
            }
        }
        match schema.relation_dictionary {
            Some(dictionary) => {
                let used = self.use_name(dictionary, edge.rel.map_or(&[], named));
                self.named_relations.push(used);
            }
            None => self.relations.push(relation),
        }
        if schema.weighted {
            self.weight.push(edge.weight);
        }
        Ok(())
    }

    fn use_name(&mut self, dictionary: usize, name: &[u8]) -> Used {
        let hash = self.schema.hash(name);
        let group_bits = self.schema.group_bits();
        let group = dictionary << group_bits | first_bits(hash, group_bits);
        let uses = &mut self.uses[group];
        let recent = &mut self.recent[low_bits(hash, RECENT)];
        self.places += 1;
        if recent.0 as usize == group
            && let Some(known) = uses.list.get(recent.1 as usize)
            && known.hash == hash
            && &uses.text[known.field.range()] == name
        {
            if let Some(count) = uses.counts.get_mut(recent.1 as usize) {
                *count += 1;
            }
            return *recent;
        }
        *recent = (small(group), small(uses.list.len()));
        let start = uses.text.len();
        uses.text.extend_from_slice(name);
        uses.list.push(Name { hash, field: Field::of(start..uses.text.len()) });
        if self.schema.places {
            uses.places.push(self.places - 1);
        }
        if self.schema.counts {
            uses.counts.push(1);
        }
        *recent
    }

    /// Returns the files of the names and of the edges.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Limit`], `names-collide`.
    pub(super) fn files(&mut self) -> Result<[&[u8]; 2]> {
        let (schema, groups) = (self.schema, 1 << self.schema.group_bits());
        let parts = schema.dictionaries << schema.bits;
        let head = (parts + 1) * 8;
        let [mut names, mut edges] = std::mem::take(&mut self.files);
        names.clear();
        names.resize(head, 0);
        let mut ends = Vec::with_capacity(parts);
        let (mut next, mut first_relation) = (0, 0);
        let mut sorter = Sorter::default();
        for (group, uses) in self.uses.iter_mut().enumerate() {
            if schema.relation_dictionary.is_some_and(|number| number * groups == group) {
                first_relation = next;
            }
            uses.unite(&mut sorter, schema.bits)?;
            for part in sorter.parts() {
                ends.push(names.len() as u64);
                names.extend((part.len() as u64).to_le_bytes());
                for column in [&uses.places, &uses.counts].into_iter().filter(|column| !column.is_empty()) {
                    part.iter().for_each(|at| names.extend_from_slice(&column[*at as usize].to_le_bytes()));
                }
                let fields = || part.iter().map(|at| uses.list[*at as usize].field);
                fields().for_each(|field| push_len(&mut names, field.len));
                fields().for_each(|field| names.extend_from_slice(&uses.text[field.range()]));
            }
            next = uses.number(&mut sorter, next);
        }
        ends.push(names.len() as u64);
        for (at, end) in names[..head].chunks_exact_mut(8).zip(&ends) {
            at.copy_from_slice(&end.to_le_bytes());
        }
        self.edges(first_relation, next, &mut edges);
        self.files = [names, edges];
        Ok(self.files.each_ref().map(|file| &**file))
    }

    /// Writes the file of the edges: their number, the number of bad lines, the bytes of a relation, the number of distinct names; columns. Dynamic relations are
    /// numbered from the first one, which is `first_relation` of the `distinct` names.
    fn edges(&self, first_relation: u32, distinct: u32, file: &mut Vec<u8>) {
        let edges = self.sides[0].len();
        let width = match self.schema.relation_dictionary {
            Some(_) => numbers::width_of(u64::from(distinct - first_relation)),
            None => numbers::width_of(self.schema.sides.len() as u64),
        };
        file.clear();
        file.extend((edges as u64).to_le_bytes());
        file.extend(self.bad.to_le_bytes());
        file.extend((width as u64).to_le_bytes());
        file.extend(u64::from(distinct).to_le_bytes());
        let number = |used: &Used| -> u32 {
            let uses = self.uses.get(used.0 as usize);
            uses.and_then(|uses| uses.numbers.get(used.1 as usize)).copied().unwrap_or(0)
        };
        for side in &self.sides {
            numbers::append(file, numbers::width_of(u64::from(distinct)), side.iter().map(number));
        }
        let named = self.named_relations.iter().map(|used| number(used) - first_relation);
        numbers::append(file, width, named);
        numbers::append(file, width, self.relations.iter().copied());
        self.weight.iter().for_each(|weight| file.extend_from_slice(&weight.to_le_bytes()));
        for (counts, features) in self.counts.iter().zip(&self.features) {
            counts.iter().for_each(|count| file.extend_from_slice(&count.to_le_bytes()));
            features.iter().for_each(|used| file.extend_from_slice(&number(used).to_le_bytes()));
        }
    }
}

/// Distinct names of a group, sorted by partition.
#[derive(Default)]
struct Sorter {
    /// Places of first uses.
    slots: Slots,
    /// Places of the first uses, by partition.
    firsts: Vec<u32>,
    /// Start of each partition among them, and their number.
    starts: Vec<usize>,
    /// Number of the name of each first use.
    numbers: Vec<u32>,
}

impl Sorter {
    /// Places of the first uses, for each partition.
    fn parts(&self) -> impl Iterator<Item = &[u32]> {
        self.starts.windows(2).map(|bounds| &self.firsts[bounds[0]..bounds[1]])
    }
}

impl Uses {
    /// Adds the uses of each name to its first one, and sorts the first uses by partition. [`numbers`](Self::numbers) become the
    /// places of the first uses.
    fn unite(&mut self, sorter: &mut Sorter, bits: u32) -> Result<()> {
        sorter.slots.reset(self.list.len());
        self.numbers.clear();
        // Partitions of the group, by the bits after its own.
        let parts = 1 << bits.saturating_sub(GROUP_BITS);
        let part_of = |hash| first_bits(hash, bits) & (parts - 1);
        let starts = &mut sorter.starts;
        starts.clear();
        starts.resize(parts + 1, 0);
        for (place, one) in self.list.iter().enumerate() {
            let known = |first: u32| &self.list[first as usize];
            let name = &self.text[one.field.range()];
            let is_same = |first| &self.text[known(first).field.range()] == name;
            let first =
                sorter.slots.find_or_add(one.hash, small(place), |first| known(first).hash, is_same)?;
            self.numbers.push(first);
            if first as usize == place {
                starts[part_of(one.hash) + 1] += 1;
            } else if let Some(count) = self.counts.get(place) {
                self.counts[first as usize] += *count;
            }
        }
        for part in 0..parts {
            starts[part + 1] += starts[part];
        }
        sorter.firsts.clear();
        sorter.firsts.resize(starts[parts], 0);
        let mut next = starts.clone();
        for (place, (one, first)) in self.list.iter().zip(&self.numbers).enumerate() {
            if *first as usize == place {
                let at = &mut next[part_of(one.hash)];
                sorter.firsts[*at] = small(place);
                *at += 1;
            }
        }
        Ok(())
    }

    /// Numbers the names from `next` on. Returns the number after the last one.
    fn number(&mut self, sorter: &mut Sorter, next: u32) -> u32 {
        sorter.numbers.clear();
        sorter.numbers.resize(self.list.len(), 0);
        for (number, place) in (next..).zip(&sorter.firsts) {
            sorter.numbers[*place as usize] = number;
        }
        for first in &mut self.numbers {
            *first = sorter.numbers[*first as usize];
        }
        next + small(sorter.firsts.len())
    }
}

fn small(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
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

/// First bits of a hash, as a number.
fn first_bits(hash: u64, bits: u32) -> usize {
    hash.checked_shr(u64::BITS - bits).map_or(0, |number| usize::try_from(number).unwrap_or(usize::MAX))
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
    /// Number of distinct names.
    pub(super) distinct: u64,
    bytes: Vec<u8>,
    /// Bytes of the number of a name, and of a relation.
    name_width: usize,
    width: usize,
    /// Offsets of the counts of features and of their numbers, for each side with lists.
    lists: [Option<Lists>; 2],
}

/// Bytes before the columns of a file of edges.
const EDGES_HEAD: usize = 32;

/// Lists of features of a side: numbers of them, and the numbers of their names.
#[derive(Debug, Clone, Copy)]
struct Lists {
    counts: usize,
    features: usize,
    end: usize,
}

impl Edges {
    pub(super) fn read(source: &dyn Source, schema: &Schema) -> Result<Self> {
        let bytes = read_vec(source, 0, source.len())?;
        let words = bytes.as_chunks().0;
        let word = |at: usize| words.get(at).map(|b| u64::from_le_bytes(*b));
        let (Some(edges), Some(bad), Some(width @ 1..=4), Some(distinct)) =
            (word(0), word(1), word(2), word(3))
        else {
            return Err(damaged(source));
        };
        let (len, width) = (to_usize(edges)?, to_usize(width)?);
        let name_width = numbers::width_of(distinct);
        let each = 2 * name_width + width + if schema.weighted { 4 } else { 0 };
        let mut end = len.checked_mul(each).and_then(|n| n.checked_add(EDGES_HEAD));
        let mut lists = [None; 2];
        for (lists, _) in lists.iter_mut().zip(schema.listed).filter(|(_, listed)| *listed) {
            let counts = end.filter(|end| *end <= bytes.len()).ok_or_else(|| damaged(source))?;
            let features =
                len.checked_mul(4).and_then(|n| n.checked_add(counts)).ok_or_else(|| damaged(source))?;
            let all = bytes.get(counts..features).ok_or_else(|| damaged(source))?;
            let sum: u64 = all.as_chunks().0.iter().map(|b| u64::from(u32::from_le_bytes(*b))).sum();
            end = to_usize(sum)?.checked_mul(4).and_then(|n| n.checked_add(features));
            *lists = Some(Lists { counts, features, end: end.unwrap_or(usize::MAX) });
        }
        if end != Some(bytes.len()) {
            return Err(damaged(source));
        }
        Ok(Self { bad, len, distinct, bytes, name_width, width, lists })
    }

    /// Reads the numbers of the names of a side.
    pub(super) fn side(&self, side: usize, into: &mut Vec<u32>) {
        let len = self.len * self.name_width;
        let start = EDGES_HEAD + side * len;
        numbers::read(&self.bytes[start..start + len], self.name_width, into);
    }

    /// Reads the relations: their indexes, or the numbers of their names from the first relation on.
    pub(super) fn relations(&self, into: &mut Vec<u32>) {
        let start = EDGES_HEAD + self.len * 2 * self.name_width;
        numbers::read(&self.bytes[start..start + self.len * self.width], self.width, into);
    }

    /// Weights, as bytes; empty without.
    pub(super) fn weights(&self, schema: &Schema) -> &[[u8; 4]] {
        let start = EDGES_HEAD + self.len * (2 * self.name_width + self.width);
        let end = if schema.weighted { start + self.len * 4 } else { start };
        self.bytes[start..end].as_chunks().0
    }

    /// Number of features of each edge, and the numbers of the names of all; empty for a side without lists.
    pub(super) fn lists(&self, side: usize) -> (impl Iterator<Item = u32>, impl Iterator<Item = u32>) {
        let Lists { counts, features, end } =
            self.lists[side].unwrap_or(Lists { counts: 0, features: 0, end: 0 });
        (words(&self.bytes[counts..features]), words(&self.bytes[features..end]))
    }
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u32> {
    bytes.as_chunks().0.iter().map(|b| u32::from_le_bytes(*b))
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

/// Returns the error for a file of the work folder that was changed meanwhile: its checksum was right before.
pub(super) fn damaged(source: &dyn Source) -> Error {
    Error::corrupt("bad-list", "a file of the unfinished import has changed")
        .in_file(source.label())
        .hint("import again")
}
