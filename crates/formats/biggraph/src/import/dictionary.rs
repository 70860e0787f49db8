//! Second step: complete dictionaries, and the order of their names.
//!
//! Names are ranked by their hashes, and names with equal hashes by their bytes: a partition of a dictionary is a range of ranks. Without another order a rank is an id. So ids
//! are random, as upstream shuffles them, but the same for the same names and seed, whatever the order of the input.

use super::EntityOrder;
use super::numbers;
use super::segment::{NamesOfChunk, Piece, Schema, damaged};
use super::slots::Slots;
use super::twister::Twister;
use super::work::WorkFolder;
use crate::text::json::write_string;
use std::ops::{Deref, Range};
use std::sync::Arc;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::phrase;
use weighbridge_core::phrase::Opt;
use weighbridge_io::source::{Mapped, Source, SourceRef, check_range, read_vec, to_usize};

/// Bytes before the columns of a partition: numbers of kept and of found names, and the offset of the ranks.
const HEAD: u64 = 24;
/// Names of a block of JSON.
const BLOCK: u64 = 4096;
/// Number of names that are looked up together.
const TOGETHER: usize = 64;
/// Maximum memory of the first ranks of all chunks in all files, in bytes.
const MAX_STARTS: u64 = 32 << 20;
/// Rank of a name that is dropped: all bits of a rank in the file.
const DROPPED: u32 = u32::MAX;

/// Distinct name of a partition.
struct Entry {
    hash: u64,
    /// Place of the name among all texts.
    start: usize,
    len: u32,
    number: u32,
}

impl Entry {
    fn name<'t>(&self, texts: &'t [u8]) -> &'t [u8] {
        &texts[self.start..self.start + self.len as usize]
    }
}

/// Completes a partition from the files of names of all chunks, in order; keeps names with at least `min_count` uses. Returns the
/// file: kept and found names, and the offset of the ranks; first places if the order needs them, ends of the names, names; the
/// first rank of each chunk, and the ranks: that of each name of each chunk, counted within the partition, in few bytes.
pub(super) fn complete(
    chunks: &[NamesOfChunk],
    part: usize,
    min_count: u64,
    schema: &Schema,
) -> Result<Vec<u8>> {
    let pieces = chunks.iter().map(|names| Piece::read(names, part, schema)).collect::<Result<Vec<_>>>()?;
    let mut entries: Vec<Entry> = Vec::new();
    // Copied, as names of one piece each are far apart.
    let mut texts: Vec<u8> = Vec::new();
    // First place and number of uses of each entry, where the import needs them.
    let (mut places, mut counts): (Vec<u64>, Vec<u64>) = (Vec::new(), Vec::new());
    let mut slots = Slots::default();
    slots.reset(TOGETHER * 2);
    // Entry of each name of each chunk.
    let mut numbers: Vec<u32> = Vec::new();
    let mut starts: Vec<u64> = vec![0];
    for (segment, piece) in (0u64..).zip(&pieces) {
        let mut names = piece.names().map(|one| (schema.hash(one.name), one)).peekable();
        let mut block = Vec::with_capacity(TOGETHER);
        while names.peek().is_some() {
            if entries.len() + TOGETHER >= slots.capacity() {
                slots.reset(slots.capacity() * 4);
                (0u32..).zip(&entries).for_each(|(number, entry)| slots.add(entry.hash, number));
            }
            // Memory that is not in the caches of the processor is waited for together.
            block.clear();
            block.extend(names.by_ref().take(TOGETHER));
            let known = block.iter().map(|(hash, _)| entries.get(slots.first(*hash)));
            std::hint::black_box(known.flatten().fold(0, |all, entry| all ^ entry.hash));
            for (hash, one) in &block {
                let known = |number: u32| &entries[number as usize];
                let is_same = |number| known(number).name(&texts) == one.name;
                let next = u32::try_from(entries.len()).unwrap_or(u32::MAX);
                let number = slots.find_or_add(*hash, next, |number| known(number).hash, is_same)?;
                numbers.push(number);
                if number == next {
                    let (start, len) = (texts.len(), u32::try_from(one.name.len()).unwrap_or(u32::MAX));
                    texts.extend_from_slice(one.name);
                    entries.push(Entry { hash: *hash, start, len, number });
                    if schema.places {
                        places.push(segment << 32 | u64::from(one.place));
                    }
                    if schema.counts {
                        counts.push(u64::from(one.count));
                    }
                } else if let Some(count) = counts.get_mut(number as usize) {
                    *count += u64::from(one.count);
                }
            }
        }
        starts.push(numbers.len() as u64);
    }
    drop(pieces);
    let found = entries.len();
    if schema.counts {
        entries.retain(|entry| counts[entry.number as usize] >= min_count);
    }
    entries.sort_unstable_by(|a, b| a.hash.cmp(&b.hash).then_with(|| a.name(&texts).cmp(b.name(&texts))));
    let mut ranks = vec![DROPPED; found];
    for (rank, entry) in (0u32..).zip(&entries) {
        ranks[entry.number as usize] = rank;
    }
    let names: usize = entries.iter().map(|entry| entry.len as usize).sum();
    let before_ranks = HEAD + (entries.len() * if schema.places { 16 } else { 8 } + names) as u64;
    let width = rank_width(entries.len() as u64);
    let mut file = Vec::with_capacity(to_usize(before_ranks)? + starts.len() * 8 + numbers.len() * width);
    for word in [entries.len() as u64, found as u64, before_ranks] {
        file.extend(word.to_le_bytes());
    }
    if schema.places {
        let places = entries.iter().map(|entry| places[entry.number as usize]);
        places.for_each(|place| file.extend_from_slice(&place.to_le_bytes()));
    }
    let mut end = 0u64;
    for entry in &entries {
        end += u64::from(entry.len);
        file.extend_from_slice(&end.to_le_bytes());
    }
    entries.iter().for_each(|entry| file.extend_from_slice(entry.name(&texts)));
    starts.iter().for_each(|start| file.extend_from_slice(&start.to_le_bytes()));
    numbers::append(&mut file, width, numbers.iter().map(|number| ranks[*number as usize]));
    Ok(file)
}

fn words(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect()
}

/// Bytes of a rank in the file, or of [`DROPPED`], where `kept` names have ranks.
fn rank_width(kept: u64) -> usize {
    numbers::width_of(kept + 1)
}

/// Complete dictionary.
#[derive(Debug)]
pub(super) struct Dictionary {
    /// Files of its partitions.
    parts: Vec<SourceRef>,
    /// First rank of each partition, and the number of names.
    starts: Vec<u64>,
    /// Offset of the ranks in each file: the first one of each chunk, and all.
    ranks_at: Vec<u64>,
    /// Number of chunks.
    chunks: u64,
    /// First rank of each chunk in each file, and their number; empty where they take more than [`MAX_STARTS`]. Opening a file takes
    /// longer than reading a few ranks, so these are read once.
    chunk_starts: Vec<Vec<u64>>,
    /// True where the files have first places.
    places: bool,
    /// Distinct names in the input.
    pub(super) found: u64,
}

impl Dictionary {
    pub(super) fn open(parts: Vec<SourceRef>, chunks: usize, schema: &Schema) -> Result<Self> {
        let (mut starts, mut ranks_at, mut chunk_starts, mut found) = (vec![0], Vec::new(), Vec::new(), 0);
        let chunks = chunks as u64;
        for part in &parts {
            let head = read_vec(&**part, 0, HEAD)?;
            let head: Vec<u64> = head.as_chunks().0.iter().map(|b| u64::from_le_bytes(*b)).collect();
            let [kept, all, ranks] = head[..] else { return Err(damaged(&**part)) };
            let columns = if schema.places { 16 } else { 8 };
            let end = kept.checked_mul(columns).and_then(|n| n.checked_add(HEAD));
            if ranks > part.len() || end.is_none_or(|end| end > ranks) {
                return Err(damaged(&**part));
            }
            if parts.len() as u64 * (chunks + 1) * 8 <= MAX_STARTS {
                chunk_starts.push(words(&read_vec(&**part, ranks, (chunks + 1) * 8)?));
            }
            ranks_at.push(ranks);
            starts.push(starts.last().copied().unwrap_or(0) + kept);
            found += all;
        }
        Ok(Self { parts, starts, ranks_at, chunks, chunk_starts, places: schema.places, found })
    }

    /// Number of names.
    pub(super) fn len(&self) -> u64 {
        self.starts.last().copied().unwrap_or(0)
    }

    fn kept(&self, part: usize) -> u64 {
        self.starts[part + 1] - self.starts[part]
    }

    /// Names in the order of their ranks.
    fn by_rank(&self) -> NameTable {
        let pieces = self.parts.iter().enumerate().map(|(part, source)| {
            let kept = self.kept(part);
            let ends = HEAD + if self.places { kept * 8 } else { 0 };
            NamePiece { source: source.clone(), ends, names: ends + kept * 8 }
        });
        NameTable { pieces: pieces.collect(), starts: self.starts.clone() }
    }

    /// Writes the files of another order than that of the ranks: the id of each rank, and the names by id.
    pub(super) fn sort(
        &self,
        order: EntityOrder,
        twister: Option<&mut Twister>,
        memory: u64,
        work: &WorkFolder,
        number: usize,
    ) -> Result<()> {
        let table = self.by_rank();
        let bytes: u64 = self.ranks_at.iter().sum();
        // Names and their ends, and the same again in the new order; a rank and an id for each.
        let needed = bytes.saturating_mul(2).saturating_add(self.len() * 8);
        if needed > memory {
            return Err(Error::limit("too-little-memory", "too little memory for this order of entities")
                .expected(format_args!("at least {needed} bytes"))
                .found(memory)
                .hint(phrase![
                    Opt::Order.with("random"),
                    " needs none, ",
                    Opt::Memory.any("SIZE"),
                    " gives more"
                ]));
        }
        let len = to_usize(self.len())?;
        let (mut names, mut ends) = (Vec::new(), Vec::with_capacity(len + 1));
        ends.push(0);
        table.each(0..self.len(), &mut |name| {
            names.extend_from_slice(name);
            ends.push(names.len());
        })?;
        let name = |rank: u32| &names[ends[rank as usize]..ends[rank as usize + 1]];
        let count = u32::try_from(len)
            .map_err(|_| Error::limit("too-many-entities", "too many entities for this order").found(len))?;
        let mut ranks: Vec<u32> = (0..count).collect();
        if order == EntityOrder::Sorted {
            ranks.sort_unstable_by(|a, b| name(*a).cmp(name(*b)));
        } else {
            let mut places: Vec<u64> = Vec::with_capacity(len);
            for (part, source) in self.parts.iter().enumerate() {
                let kept = self.kept(part);
                let bytes = read_vec(&**source, HEAD, kept * 8)?;
                places.extend(bytes.as_chunks().0.iter().map(|b| u64::from_le_bytes(*b)));
            }
            ranks.sort_unstable_by_key(|rank| places[*rank as usize]);
            if let Some(twister) = twister {
                twister.shuffle(&mut ranks)?;
            }
        }
        let mut ids = vec![0; len * 4];
        let (mut by_id, mut end) = (Vec::with_capacity(names.len()), Vec::with_capacity(len * 8));
        for (id, rank) in (0u32..).zip(&ranks) {
            ids[*rank as usize * 4..][..4].copy_from_slice(&id.to_le_bytes());
            by_id.extend_from_slice(name(*rank));
            end.extend_from_slice(&(by_id.len() as u64).to_le_bytes());
        }
        work.put(&format!("order-{number}"), &[&end, &by_id])?;
        work.put(&format!("ids-of-{number}"), &[&ids])
    }

    /// Names in the order of their ids.
    pub(super) fn names(&self, order: EntityOrder, work: &WorkFolder, number: usize) -> Result<NameTable> {
        if order == EntityOrder::Random {
            return Ok(self.by_rank());
        }
        let source = work.open_file(&format!("order-{number}"))?;
        let piece = NamePiece { source, ends: 0, names: self.len() * 8 };
        Ok(NameTable { pieces: vec![piece], starts: vec![0, self.len()] })
    }

    /// Opens the ids of an order; maps their file where `memory` would not suffice.
    pub(super) fn ids(
        &self,
        order: EntityOrder,
        memory: u64,
        work: &WorkFolder,
        number: usize,
    ) -> Result<Ids<'_>> {
        let ids = if order == EntityOrder::Random {
            None
        } else {
            let (source, len) = (work.open_file(&format!("ids-of-{number}"))?, self.len() * 4);
            let mapped = if len > memory { source.map(0, len) } else { None };
            Some(match mapped {
                Some(map) => Bytes::Mapped(map),
                None => Bytes::Read(read_vec(&*source, 0, len)?),
            })
        };
        Ok(Ids { dictionary: self, ids })
    }
}

/// Bytes of a file in memory.
enum Bytes {
    Read(Vec<u8>),
    Mapped(Arc<dyn Mapped>),
}

impl Deref for Bytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Self::Read(bytes) => bytes,
            Self::Mapped(map) => map.bytes(),
        }
    }
}

/// Ids of the names of each chunk.
pub(super) struct Ids<'d> {
    dictionary: &'d Dictionary,
    /// Id of each rank, where they differ.
    ids: Option<Bytes>,
}

impl Ids<'_> {
    /// Number of names.
    pub(super) fn len(&self) -> u64 {
        self.dictionary.len()
    }

    /// Calls `each` with the id of each name of a chunk, in the order of its file of names; `None` for one that is dropped.
    pub(super) fn of_chunk(
        &self,
        chunk: usize,
        mut each: impl FnMut(Option<u64>) -> Result<()>,
    ) -> Result<()> {
        let Dictionary { parts, starts, ranks_at, chunks, chunk_starts, .. } = self.dictionary;
        let mut ranks = Vec::new();
        for (part, (source, first)) in parts.iter().zip(starts).enumerate() {
            let source = &**source;
            let own;
            let bounds = match chunk_starts.get(part) {
                Some(all) => all.get(chunk..chunk + 2),
                None => {
                    own = words(&read_vec(source, ranks_at[part] + chunk as u64 * 8, 16)?);
                    Some(&own[..])
                }
            };
            let Some(&[from, to]) = bounds else { return Err(damaged(source)) };
            let width = rank_width(self.dictionary.kept(part));
            let len = to.checked_sub(from).and_then(|len| len.checked_mul(width as u64));
            let start = ranks_at[part] + (chunks + 1) * 8 + from * width as u64;
            numbers::read(&read_vec(source, start, len.ok_or_else(|| damaged(source))?)?, width, &mut ranks);
            let dropped = DROPPED & numbers::largest(width);
            for rank in &ranks {
                each(match rank {
                    rank if *rank == dropped => None,
                    rank => Some(self.id(first + u64::from(*rank)).ok_or_else(|| damaged(source))?),
                })?;
            }
        }
        Ok(())
    }

    fn id(&self, rank: u64) -> Option<u64> {
        match &self.ids {
            None => Some(rank),
            Some(ids) => {
                let id = ids.as_chunks::<4>().0.get(usize::try_from(rank).ok()?)?;
                Some(u64::from(u32::from_le_bytes(*id)))
            }
        }
    }
}

/// Names in the order of their ids.
#[derive(Debug)]
pub(super) struct NameTable {
    pieces: Vec<NamePiece>,
    /// First id of each piece, and the number of names.
    starts: Vec<u64>,
}

#[derive(Debug)]
struct NamePiece {
    source: SourceRef,
    /// Offset of the ends of its names.
    ends: u64,
    /// Offset of its names.
    names: u64,
}

impl NameTable {
    /// Reads the names of the ids `range`.
    fn each(&self, range: Range<u64>, each: &mut dyn FnMut(&[u8])) -> Result<()> {
        let mut at = range.start;
        let mut piece = self.starts.partition_point(|start| *start <= at).saturating_sub(1);
        while at < range.end {
            let (Some(own), Some([start, end])) = (self.pieces.get(piece), self.starts.get(piece..piece + 2))
            else {
                break;
            };
            let stop = range.end.min(*end).min(at + BLOCK);
            if stop > at {
                self.read(own, at - start..stop - start, each)?;
                at = stop;
            }
            if at >= *end {
                piece += 1;
            }
        }
        Ok(())
    }

    fn read(&self, piece: &NamePiece, rows: Range<u64>, each: &mut dyn FnMut(&[u8])) -> Result<()> {
        let source = &*piece.source;
        // The end before the first name is its start.
        let before = u64::from(rows.start > 0);
        let ends =
            read_vec(source, piece.ends + (rows.start - before) * 8, (rows.end - rows.start + before) * 8)?;
        let mut ends = ends.as_chunks().0.iter().map(|b| u64::from_le_bytes(*b));
        let first = if before > 0 { ends.next().unwrap_or(0) } else { 0 };
        let ends: Vec<u64> = ends.collect();
        let last = ends.last().copied().unwrap_or(first);
        let len = last.checked_sub(first).ok_or_else(|| damaged(source))?;
        let names = read_vec(source, piece.names + first, len)?;
        let mut from = 0;
        for end in ends {
            let to = end
                .checked_sub(first)
                .map(to_usize)
                .transpose()?
                .filter(|to| from <= *to && *to <= names.len());
            let to = to.ok_or_else(|| damaged(source))?;
            each(&names[from..to]);
            from = to;
        }
        Ok(())
    }
}

/// File with the names of a partition as JSON, generated on reading.
#[derive(Debug)]
pub(super) struct NamesFile {
    label: String,
    names: Arc<NameTable>,
    rows: Range<u64>,
    /// Offset of each block, and the length.
    offsets: Vec<u64>,
}

impl NamesFile {
    pub(super) fn new(label: String, names: Arc<NameTable>, rows: Range<u64>) -> Result<Self> {
        let mut file = Self { label, names, rows, offsets: vec![0] };
        let mut text = String::new();
        let mut offset = 0;
        for block in 0..file.blocks() {
            text.clear();
            file.block(block, &mut text)?;
            offset += text.len() as u64;
            file.offsets.push(offset);
        }
        Ok(file)
    }

    fn blocks(&self) -> u64 {
        (self.rows.end - self.rows.start).div_ceil(BLOCK).max(1)
    }

    fn block(&self, block: u64, text: &mut String) -> Result<()> {
        if self.rows.is_empty() {
            text.push_str("[]");
            return Ok(());
        }
        let start = self.rows.start + block * BLOCK;
        let end = (start + BLOCK).min(self.rows.end);
        let mut is_first = start == self.rows.start;
        self.names.each(start..end, &mut |name| {
            text.push_str(if std::mem::take(&mut is_first) { "[\n    " } else { ",\n    " });
            write_name(text, name);
        })?;
        if end == self.rows.end {
            text.push_str("\n]");
        }
        Ok(())
    }
}

impl Source for NamesFile {
    fn len(&self) -> u64 {
        self.offsets.last().copied().unwrap_or(0)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        check_range(self, offset, buffer.len() as u64)?;
        let mut block = self.offsets.partition_point(|start| *start <= offset).saturating_sub(1);
        let (mut at, mut rest) = (offset, buffer);
        let mut text = String::new();
        while !rest.is_empty() {
            text.clear();
            self.block(block as u64, &mut text)?;
            let within = to_usize(at - self.offsets.get(block).copied().unwrap_or(at))?;
            let bytes = text.as_bytes().get(within..).unwrap_or_default();
            let take = bytes.len().min(rest.len());
            if take == 0 {
                return Err(damaged(self));
            }
            let (now, later) = rest.split_at_mut(take);
            now.copy_from_slice(&bytes[..take]);
            rest = later;
            at += take as u64;
            block += 1;
        }
        Ok(())
    }

    fn label(&self) -> &str {
        &self.label
    }

    /// Returns true: each read generates its block again.
    fn is_sequential(&self) -> bool {
        true
    }
}

/// Appends a name as JSON. A byte that is not UTF-8 becomes the lone surrogate that Python's `surrogateescape` gives it.
fn write_name(text: &mut String, name: &[u8]) {
    if let Ok(name) = std::str::from_utf8(name) {
        write_string(text, name);
        return;
    }
    text.push('"');
    let mut valid = String::new();
    for chunk in name.utf8_chunks() {
        valid.clear();
        write_string(&mut valid, chunk.valid());
        text.push_str(&valid[1..valid.len() - 1]);
        for byte in chunk.invalid() {
            text.push_str(&format!("\\udc{byte:02x}"));
        }
    }
    text.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use weighbridge_io::source::MemorySource;

    #[test]
    fn ids_of_a_chunk_are_the_same_with_and_without_its_start_in_memory() {
        // Two names; the first chunk has the second one and a dropped one, the second chunk has the first one.
        let mut file: Vec<u8> = [2u64, 3, 42, 1, 2].iter().flat_map(|word| word.to_le_bytes()).collect();
        file.extend(b"ab");
        file.extend([0u64, 2, 3].iter().flat_map(|word| word.to_le_bytes()));
        file.extend([1, 0xff, 0]);
        let dictionary = |chunk_starts| Dictionary {
            parts: vec![Arc::new(MemorySource::new("part", file.clone()))],
            starts: vec![0, 2],
            ranks_at: vec![42],
            chunks: 2,
            chunk_starts,
            places: false,
            found: 3,
        };
        for dictionary in [dictionary(vec![vec![0, 2, 3]]), dictionary(Vec::new())] {
            let ids = Ids { dictionary: &dictionary, ids: None };
            let of_chunk = |chunk| {
                let mut found = Vec::new();
                ids.of_chunk(chunk, |id| {
                    found.push(id);
                    Ok(())
                })
                .map(|()| found)
            };
            assert_eq!(of_chunk(0).unwrap(), [Some(1), None]);
            assert_eq!(of_chunk(1).unwrap(), [Some(0)]);
        }
    }
}
