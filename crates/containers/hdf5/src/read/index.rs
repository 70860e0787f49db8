//! Chunk indexes: version-1 B-trees, fixed and extensible arrays, with the checks of the HDF5 library.
//!
//! An array lists chunks by number, row by row over the maximum dimensions; an extensible array puts the unlimited
//! dimension first.

use super::broken::Broken;
use super::bytes::Reader;
use super::file::{File, Parts};
use super::grid::Grid;
use super::siblings::Siblings;
use super::sums;
use super::tree::Tree;
use bytes::Bytes;
use std::collections::HashSet;
use weighbridge_core::budget::Budget;
use weighbridge_core::error::{Error, Result};
use weighbridge_io::source::to_usize;

/// Name of the structure in errors.
const STRUCTURE: &str = "chunk index";
/// Types of version-2 B-trees of chunks: unfiltered, and filtered.
const PLAIN: u8 = 10;
const FILTERED: u8 = 11;

/// A chunk of an index.
pub(super) struct Entry {
    pub(super) address: u64,
    /// Stored length in bytes; 0 where the index does not state it.
    pub(super) size: u64,
    /// Mask of skipped filters: bit i for filter i.
    pub(super) mask: u32,
    /// Number in the grid, row by row; `None` outside of the dataset: chunks remain when a dataset shrinks.
    pub(super) number: Option<u64>,
}

/// Reader of a chunk index.
pub(super) struct IndexReader<'a> {
    file: &'a File,
    /// Byte budget of the blocks: they must not overlap.
    parts: Parts,
    grid: &'a Grid,
    /// True where chunks are filtered: the index then states their lengths.
    is_filtered: bool,
    found: Vec<Entry>,
}

/// Mapping from the index in an array to a chunk of the grid.
struct Numbering {
    /// Dimensions, slowest first, each with its maximum number of chunks.
    axes: Vec<(usize, u64)>,
    /// First number beyond the dataset.
    end: u64,
}

impl Numbering {
    /// Creates a row-by-row numbering over the dimensions `full`, with the dimension `first` slowest.
    fn new(grid: &Grid, full: &[u64], first: usize) -> Self {
        let others = (0..full.len()).filter(|&axis| axis != first);
        let axes: Vec<(usize, u64)> = std::iter::once(first)
            .chain(others)
            .map(|axis| (axis, full[axis].div_ceil(grid.chunk[axis]).max(grid.counts[axis])))
            .collect();
        let last = axes.iter().fold(0u64, |number, &(axis, count)| {
            number.saturating_mul(count).saturating_add(grid.counts[axis].saturating_sub(1))
        });
        Self { axes, end: last.saturating_add(1) }
    }

    /// Returns the number in the grid; `None` for a chunk beyond the dataset.
    fn number(&self, mut number: u64, grid: &Grid) -> Option<u64> {
        let mut places = vec![0; self.axes.len()];
        for (place, &(axis, count)) in self.axes.iter().enumerate().rev() {
            places[axis] = if place == 0 { number } else { number % count };
            number /= count;
        }
        grid.number(&places)
    }
}

/// Parameters of the elements of an array.
#[derive(Clone, Copy)]
struct Elements {
    /// Length of an element in bytes.
    size: u64,
    /// FileContext of the array header, which every block repeats.
    head: u64,
    /// Number of elements in a page; longer blocks consist of pages.
    page: u64,
    /// Width of the block offset in a block header of an extensible array, in bytes.
    place: usize,
}

impl<'a> IndexReader<'a> {
    pub(super) fn new(file: &'a File, grid: &'a Grid, is_filtered: bool) -> Self {
        Self { file, parts: file.parts(), grid, is_filtered, found: Vec::new() }
    }

    /// Reads the chunks of the fixed array at `address`, numbered over the dimensions `full`.
    pub(super) fn fixed(mut self, address: u64, full: &[u64]) -> Result<Vec<Entry>> {
        let (offset, length) = self.file.widths();
        let head = self.summed(address, 12 + offset + length, b"FAHD")?;
        let mut reader = self.file.reader(&head);
        reader.skip(5)?;
        let elements = self.elements(&mut reader, address)?;
        let bits = reader.u8()?;
        let (count, block) = (reader.length()?, reader.offset()?);
        let numbering = Numbering::new(self.grid, full, 0);
        if count < numbering.end {
            return Err(self
                .bad(address, "the chunk index has fewer elements than there are chunks")
                .expected(format_args!("at least {}", numbering.end))
                .found(count));
        }
        if block == u64::MAX {
            return Ok(self.found);
        }
        let page = 1u64.checked_shl(bits.into()).filter(|_| bits > 0).unwrap_or(u64::MAX);
        let elements = Elements { page, ..elements };
        let prefix = 6 + offset;
        if count <= page {
            let len = prefix.saturating_add(count.saturating_mul(elements.size)).saturating_add(4);
            let bytes = self.block(block, len, b"FADB", elements)?;
            self.take(&bytes[to_usize(prefix)?..], 0, &numbering, elements)?;
            return Ok(self.found);
        }
        let pages = count.div_ceil(page);
        let head = prefix + pages.div_ceil(8);
        let bytes = self.block(block, head + 4, b"FADB", elements)?;
        let written = bytes.get(to_usize(prefix)?..).unwrap_or_default().to_vec();
        let first = block.saturating_add(head + 4);
        self.pages(first, 0, count, |page| bit(&written, page), &numbering, elements)?;
        Ok(self.found)
    }

    /// Reads the chunks of the extensible array at `address`, numbered over the dimensions `full`, with the
    /// dimension `first` slowest.
    pub(super) fn extensible(mut self, address: u64, full: &[u64], first: usize) -> Result<Vec<Entry>> {
        let (offset, length) = self.file.widths();
        let head = self.summed(address, 16 + 6 * length + offset, b"EAHD")?;
        let mut reader = self.file.reader(&head);
        reader.skip(5)?;
        let elements = self.elements(&mut reader, address)?;
        let (bits, own, least, pointers) = (reader.u8()?, reader.u8()?, reader.u8()?, reader.u8()?);
        let page_bits = reader.u8()?;
        for _ in 0..6 {
            reader.length()?;
        }
        let index = reader.offset()?;
        let levels = u32::from(bits).checked_sub(least.trailing_zeros()).map(|levels| levels + 1);
        let Some(levels) =
            levels.filter(|_| bits <= 64 && least.is_power_of_two() && pointers.is_power_of_two())
        else {
            return Err(self.bad(address, "the chunk index states impossible block sizes"));
        };
        if index == u64::MAX {
            return Ok(self.found);
        }
        let page = 1u64.checked_shl(page_bits.into()).filter(|_| page_bits > 0).unwrap_or(u64::MAX);
        let elements = Elements { page, place: usize::from(bits.div_ceil(8)), ..elements };
        let numbering = Numbering::new(self.grid, full, first);
        // The index block lists the data blocks of the first levels; a secondary block lists those of each other level.
        let direct = (2 * pointers.trailing_zeros()).min(levels);
        let direct_blocks = 2 * (u64::from(pointers) - 1);
        let prefix = 6 + offset;
        let own_len = u64::from(own) * elements.size;
        let len = prefix + own_len + (direct_blocks + u64::from(levels - direct)) * offset + 4;
        let bytes = self.block(index, len, b"EAIB", Elements { place: 0, ..elements })?;
        let mut reader = self.file.reader(&bytes);
        reader.skip(to_usize(prefix)?)?;
        let inner = reader.take(to_usize(own_len)?)?;
        self.take(inner, 0, &numbering, elements)?;
        let mut start = u64::from(own);
        for level in 0..levels {
            // A level has 2^(level / 2) blocks of `count` elements.
            let (blocks, count) =
                (1u64 << (level / 2), u64::from(least).saturating_mul(1 << level.div_ceil(2)));
            if start >= numbering.end {
                break;
            }
            if level < direct {
                for block in 0..blocks {
                    let address = reader.offset()?;
                    let start = start.saturating_add(block * count);
                    self.data_block(address, start, count, |_| false, &numbering, elements)?;
                }
            } else {
                let address = reader.offset()?;
                self.blocks(address, start, (blocks, count), &numbering, elements)?;
            }
            start = start.saturating_add(blocks.saturating_mul(count));
        }
        Ok(self.found)
    }

    /// Reads a secondary block: `blocks` data blocks of `count` elements each.
    fn blocks(
        &mut self,
        address: u64,
        start: u64,
        (blocks, count): (u64, u64),
        numbering: &Numbering,
        elements: Elements,
    ) -> Result<()> {
        if address == u64::MAX {
            return Ok(());
        }
        let (offset, _) = self.file.widths();
        let prefix = 6 + offset + elements.place as u64;
        let pages = if count > elements.page { count.div_ceil(elements.page) } else { 0 };
        let bits = blocks.saturating_mul(pages.div_ceil(8));
        let len = prefix.saturating_add(bits).saturating_add(blocks.saturating_mul(offset)).saturating_add(4);
        let bytes = self.block(address, len, b"EASB", elements)?;
        let mut reader = self.file.reader(&bytes);
        reader.skip(to_usize(prefix)?)?;
        let written = reader.take(to_usize(bits)?)?;
        for block in 0..blocks {
            let address = reader.offset()?;
            let start = start.saturating_add(block.saturating_mul(count));
            if start >= numbering.end {
                break;
            }
            let is_written = |page| bit(written, block * pages + page);
            self.data_block(address, start, count, is_written, numbering, elements)?;
        }
        Ok(())
    }

    /// Reads a data block of an extensible array: `count` elements from the number `start` on.
    #[allow(clippy::too_many_arguments)]
    fn data_block(
        &mut self,
        address: u64,
        start: u64,
        count: u64,
        is_written: impl Fn(u64) -> bool,
        numbering: &Numbering,
        elements: Elements,
    ) -> Result<()> {
        if address == u64::MAX {
            return Ok(());
        }
        let prefix = 6 + self.file.widths().0 + elements.place as u64;
        if count <= elements.page {
            let len = prefix.saturating_add(count.saturating_mul(elements.size)).saturating_add(4);
            let bytes = self.block(address, len, b"EADB", elements)?;
            return self.take(&bytes[to_usize(prefix)?..], start, numbering, elements);
        }
        self.block(address, prefix + 4, b"EADB", elements)?;
        self.pages(address.saturating_add(prefix + 4), start, count, is_written, numbering, elements)
    }

    /// Reads the pages of a block of `count` elements. The pages begin at `address`, each with a checksum.
    fn pages(
        &mut self,
        address: u64,
        start: u64,
        count: u64,
        is_written: impl Fn(u64) -> bool,
        numbering: &Numbering,
        elements: Elements,
    ) -> Result<()> {
        let step = elements.page.saturating_mul(elements.size).saturating_add(4);
        for page in 0..count.div_ceil(elements.page) {
            let first = start.saturating_add(page.saturating_mul(elements.page));
            if first >= numbering.end {
                break;
            }
            if !is_written(page) {
                continue;
            }
            let left = count - page * elements.page;
            let len = elements.page.min(left).saturating_mul(elements.size).saturating_add(4);
            let bytes = self.summed(address.saturating_add(page.saturating_mul(step)), len, b"")?;
            self.take(&bytes, first, numbering, elements)?;
        }
        Ok(())
    }

    /// Reads the kind and the element size in an array header.
    fn elements(&self, reader: &mut Reader<'_>, head: u64) -> Result<Elements> {
        let (kind, size) = (reader.u8()?, reader.u8()?);
        let offset = self.file.offset_size();
        let fits = match self.is_filtered {
            false => size == offset,
            // An address, a length of at most eight bytes, and the mask of skipped filters.
            true => (offset + 5..=offset + 12).contains(&size),
        };
        if kind != u8::from(self.is_filtered) || !fits {
            return Err(self
                .bad(head, "the chunk index does not fit the filters of the dataset")
                .found(format_args!("kind {kind}, elements of {size} bytes")));
        }
        Ok(Elements { size: size.into(), head, page: u64::MAX, place: 0 })
    }

    /// Adds the elements in `bytes`, from the number `number` on.
    fn take(&mut self, bytes: &[u8], number: u64, numbering: &Numbering, elements: Elements) -> Result<()> {
        let size = to_usize(elements.size)?;
        for (at, element) in bytes.chunks_exact(size).enumerate() {
            let number = number.saturating_add(at as u64);
            if number >= numbering.end {
                break;
            }
            let mut reader = self.file.reader(element);
            let address = reader.offset()?;
            let (size, mask) = match self.is_filtered {
                true => (reader.number(reader.left() - 4)?, reader.u32()?),
                false => (0, 0),
            };
            let number = numbering.number(number, self.grid);
            if address != u64::MAX && number.is_some() {
                self.push(Entry { address, size, mask, number })?;
            }
        }
        Ok(())
    }

    /// Reads a block of an array, without its checksum.
    fn block(&self, address: u64, len: u64, mark: &[u8; 4], elements: Elements) -> Result<Bytes> {
        let bytes = self.summed(address, len, mark)?;
        let mut reader = self.file.reader(&bytes);
        reader.skip(4)?;
        let (version, kind, head) = (reader.u8()?, reader.u8()?, reader.offset()?);
        if version != 0 || kind != u8::from(self.is_filtered) || head != elements.head {
            return Err(self.bad(address, "a block of the chunk index belongs to another index"));
        }
        Ok(bytes)
    }

    /// Reads `len` bytes at `address`; returns them without the checksum in the last four.
    fn summed(&self, address: u64, len: u64, mark: &[u8]) -> Result<Bytes> {
        let bytes = self.file.bytes(address, len)?;
        self.parts.take(len)?;
        sums::checked(&bytes, mark, STRUCTURE, address)?;
        Ok(bytes.slice(..bytes.len().saturating_sub(4)))
    }

    fn push(&mut self, entry: Entry) -> Result<()> {
        self.file.context.list(size_of::<Entry>() as u64)?;
        self.found.push(entry);
        Ok(())
    }

    fn bad(&self, address: u64, text: &str) -> Error {
        Error::corrupt("hdf5-corrupt", format!("HDF5: {text}")).at(address)
    }

    /// Reads the chunks of the version-2 B-tree at `root`.
    pub(super) fn records(mut self, root: u64) -> Result<Vec<Entry>> {
        let tree = Tree::open(self.file, root, if self.is_filtered { FILTERED } else { PLAIN })?;
        let mut broken = Broken::default();
        let records = tree.records(self.file, &mut broken)?;
        broken.into_result()?;
        let (offset, _) = self.file.widths();
        // An address, an offset along each dimension; the rest is the length of the chunk.
        let fixed = to_usize(offset)? + 8 * self.grid.chunk.len() + if self.is_filtered { 4 } else { 0 };
        let width = tree.record.checked_sub(fixed);
        let most = if self.is_filtered { 1..=8 } else { 0..=0 };
        let Some(width) = width.filter(|width| most.contains(width)) else {
            return Err(self
                .bad(root, "the chunk index does not fit the chunks of the dataset")
                .found(format_args!("records of {} bytes", tree.record)));
        };
        for record in records.chunks_exact(tree.record) {
            let mut reader = self.file.reader(record);
            let (address, size) = (reader.offset()?, reader.number(width)?);
            let mask = if self.is_filtered { reader.u32()? } else { 0 };
            let places = self.grid.chunk.iter().map(|_| reader.number(8)).collect::<Result<Vec<_>>>()?;
            self.push(Entry { address, size, mask, number: self.grid.number(&places) })?;
        }
        Ok(self.found)
    }

    /// Reads the chunks of the version-1 B-tree at `root`; a node has at most `2 * half` children. The HDF5 library finds a
    /// chunk by the keys on both sides of it, so all keys must be in order.
    pub(super) fn tree(mut self, root: u64, half: u16) -> Result<Vec<Entry>> {
        let (offset, _) = self.file.widths();
        let rank = self.grid.chunk.len();
        let key = 8 + 8 * (rank as u64 + 1);
        let head = 8 + 2 * offset;
        let most = 2 * u64::from(half);
        let full = head + most * (key + offset) + key;
        let mut siblings = Siblings::default();
        let mut seen = HashSet::new();
        // Each node with its level, if known, and the bounds of its keys.
        let mut open: Vec<PendingNode> =
            vec![PendingNode { address: root, level: None, low: None, high: None }];
        let mut last: Option<Vec<u64>> = None;
        while let Some(PendingNode { address, level, low, high }) = open.pop() {
            if !seen.insert(address) {
                return Err(self.bad(address, "the chunk index has a cycle"));
            }
            let start = self.file.bytes(address, head)?;
            let mut reader = self.file.reader(&start);
            if reader.take(4)? != b"TREE" || reader.u8()? != 1 {
                return Err(sums::lost(STRUCTURE, address));
            }
            let (own, count) = (reader.u8()?, reader.u16()?);
            let (left, right) = (reader.offset()?, reader.offset()?);
            if level.is_some_and(|level| level != own) || u64::from(count) > most {
                return Err(self
                    .bad(address, "a node of the chunk index has a wrong level or too many entries")
                    .found(format_args!("level {own}, {count} entries")));
            }
            Budget::check_depth(own.into())
                .map_err(|_| self.bad(address, "the chunk index is nested too deep").found(own))?;
            siblings.check_next(own, address, left, right)?;
            // The HDF5 library reads the full node, unused entries included.
            self.file.context.offset(address, full)?;
            let len = head + u64::from(count) * (key + offset) + key;
            let bytes = self.file.bytes(address, len)?;
            self.parts.take(len)?;
            let mut reader = self.file.reader(&bytes);
            reader.skip(to_usize(head)?)?;
            let mut before: Option<Key> = None;
            let mut children = Vec::with_capacity(count.into());
            for number in 0..=count {
                let own_key = Key::read(&mut reader, self.grid)?;
                let in_order = before.as_ref().is_none_or(|before| before.places < own_key.places)
                    && low.as_ref().is_none_or(|low| *low <= own_key.places)
                    && high.as_ref().is_none_or(|high| own_key.places <= *high);
                // The only key of an empty node has no order.
                if !in_order && count > 0 {
                    return Err(self.bad(address, "the keys of the chunk index are not in order"));
                }
                if let Some(before) = before.take() {
                    children.push((before, own_key.places.clone()));
                }
                before = Some(own_key);
                if number < count {
                    let child = reader.offset()?;
                    if let Some(key) = &mut before {
                        key.child = child;
                    }
                }
            }
            if own > 0 {
                for (key, high) in children.into_iter().rev() {
                    let (low, high) = (Some(key.places), Some(high));
                    open.push(PendingNode { address: key.child, level: Some(own - 1), low, high });
                }
                continue;
            }
            for (key, _) in children {
                if last.as_ref().is_some_and(|last| *last >= key.places) || key.places.last() != Some(&0) {
                    return Err(self.bad(address, "the keys of the chunk index are not in order"));
                }
                let (size, mask, address_of_chunk) = (key.size, key.mask, key.child);
                let number = self.grid.number(&key.places);
                last = Some(key.places);
                if size == 0 || (!self.is_filtered && u64::from(size) != self.grid.chunk_len) {
                    return Err(self
                        .bad(address, "the chunk index states a wrong chunk length")
                        .expected(format_args!("{} bytes", self.grid.chunk_len))
                        .found(format_args!("{size} bytes")));
                }
                self.push(Entry { address: address_of_chunk, size: size.into(), mask, number })?;
            }
        }
        siblings.end()?;
        Ok(self.found)
    }
}

/// True where bit `number` is set, counted from the highest bit of the first byte.
fn bit(bytes: &[u8], number: u64) -> bool {
    let byte = usize::try_from(number / 8).ok().and_then(|at| bytes.get(at));
    byte.is_some_and(|byte| byte & (0x80 >> (number % 8)) != 0)
}

/// A node that is not read yet.
struct PendingNode {
    address: u64,
    level: Option<u8>,
    low: Option<Vec<u64>>,
    high: Option<Vec<u64>>,
}

/// A key of a B-tree, with the child behind it.
struct Key {
    size: u32,
    mask: u32,
    /// Offset along each dimension, in chunks; then that within an element, 0 in valid files.
    places: Vec<u64>,
    child: u64,
}

impl Key {
    fn read(reader: &mut Reader<'_>, grid: &Grid) -> Result<Self> {
        let (size, mask) = (reader.u32()?, reader.u32()?);
        let mut places = Vec::with_capacity(grid.chunk.len() + 1);
        for &step in grid.chunk.iter().chain([&grid.size]) {
            let offset = reader.number(8)?;
            if offset % step != 0 {
                let text = "HDF5: a chunk offset in the chunk index is not a multiple of the chunk size";
                return Err(Error::corrupt("hdf5-corrupt", text).found(offset));
            }
            places.push(offset / step);
        }
        Ok(Self { size, mask, places, child: u64::MAX })
    }
}
