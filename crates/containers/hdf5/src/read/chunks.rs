//! Chunked datasets: where each chunk lies, and what tensor they make together.

use super::chunked::ChunkedSource;
use super::file::{File, fault};
use super::index::Reading;
use super::layout::{Chunked, Index};
use crate::Dataset;
use hdf5_reader::chunk_index::{ChunkEntry, collect_v2_chunk_entries_storage};
use hdf5_reader::messages::dataspace::UNLIMITED;
use std::sync::Arc;
use weighbridge_core::checkpoint::{Piece, Pieces, TensorEntry};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::tensor::Region;
use weighbridge_io::source::SourceRef;

/// Chunks that become pieces of their own; where there are more, they are one source.
const PIECES: u64 = 1 << 16;
/// Chunks side by side may be so many times as long as the file.
const BAND_TIMES: u64 = 16;
/// The places of chunks, a number for each dimension, may take so many times the length of the file while an
/// index is read: in as many dimensions that is never too much.
const PLACES_TIMES: u64 = 8;
/// What they may take however short the file is, in bytes.
const PLACES_LEAST: u64 = 8 << 20;

/// The grid of chunks over a dataset.
#[derive(Debug, Clone)]
pub(super) struct Grid {
    /// Extents of the dataset, in elements; none is 0.
    pub(super) shape: Vec<u64>,
    /// Extents of a chunk, in elements; none is 0.
    pub(super) chunk: Vec<u64>,
    /// Chunks along each dimension.
    pub(super) counts: Vec<u64>,
    /// Bytes of an element.
    pub(super) size: u64,
    /// Bytes of a chunk.
    pub(super) chunk_len: u64,
}

/// A chunk in the file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slot {
    /// Its place in the grid, counted row by row.
    pub(super) number: u64,
    /// Offset of its first byte in the source.
    pub(super) offset: u64,
    /// Its bytes there.
    pub(super) len: u64,
    /// The filters that were left out: bit i for filter i.
    pub(super) mask: u32,
}

impl Grid {
    fn new(dataset: &Dataset, chunked: &Chunked) -> Result<Self> {
        let (shape, chunk) = (dataset.shape.dims(), &chunked.chunk);
        let size = u64::from(dataset.stored.element.size);
        let chunk_len = chunk.iter().try_fold(size, |len, &extent| len.checked_mul(extent));
        // A single element cannot be cut into chunks: there is no dimension to cut along.
        let fits = !chunk.is_empty() && shape.len() == chunk.len();
        let Some(chunk_len) = chunk_len.filter(|&len| len > 0 && fits) else {
            return Err(Error::corrupt("hdf5-corrupt", "HDF5: chunks that do not fit the dataset")
                .expected(format_args!("chunks for {}", dataset.shape))
                .found(format_args!("{chunk:?}")));
        };
        let counts = shape.iter().zip(chunk).map(|(&all, &one)| all.div_ceil(one)).collect();
        Ok(Self { shape: shape.to_vec(), chunk: chunk.clone(), counts, size, chunk_len })
    }

    /// The number of the chunk that begins at these elements; `None` where it lies outside of the
    /// dataset, as chunks do after it was made smaller.
    fn number(&self, offsets: &[u64]) -> Result<Option<u64>> {
        let mut number = 0u64;
        if offsets.len() < self.shape.len() {
            return Err(bad_place(offsets));
        }
        for (axis, &offset) in offsets.iter().take(self.shape.len()).enumerate() {
            if offset % self.chunk[axis] != 0 {
                return Err(bad_place(offsets));
            }
            if offset >= self.shape[axis] {
                return Ok(None);
            }
            // No more chunks than elements, and those were counted.
            number = number * self.counts[axis] + offset / self.chunk[axis];
        }
        Ok(Some(number))
    }

    /// Bytes of the chunks that are come back to before the next are come to, if `written` of them are there;
    /// nothing where it is one chunk.
    fn band(&self, written: usize) -> u64 {
        let Some(axis) = self.chunk.iter().zip(&self.shape).position(|(&chunk, &all)| chunk > 1 && all > 1)
        else {
            return 0;
        };
        let chunks = self.counts[axis + 1..].iter().product::<u64>().min(written as u64);
        if chunks > 1 { chunks.saturating_mul(self.chunk_len) } else { 0 }
    }

    /// True where a chunk sticks out of the dataset.
    pub(super) fn is_edge(&self, number: u64) -> bool {
        let mut rest = number;
        (0..self.counts.len()).rev().any(|axis| {
            let at = rest % self.counts[axis];
            rest /= self.counts[axis];
            (at + 1) * self.chunk[axis] > self.shape[axis]
        })
    }
}

fn bad_place(offsets: &[u64]) -> Error {
    Error::corrupt("hdf5-corrupt", "HDF5: a chunk at a place where none can be")
        .found(format_args!("{offsets:?}"))
}

impl Dataset {
    /// Fills `entry` with pieces: the chunks.
    pub(super) fn chunks(&self, chunked: &Chunked, mut entry: TensorEntry, len: u64) -> Result<TensorEntry> {
        let stored = &self.stored;
        let encoding = entry.pieces[0].encoding;
        if len == 0 {
            return Ok(entry);
        }
        super::filters::check(&stored.filters, stored.element.size)?;
        let grid = Grid::new(self, chunked)?;
        let slots = self.slots(chunked, &grid)?;
        let all: u64 = grid.counts.iter().product();
        let unwritten = (all - slots.len() as u64).saturating_mul(grid.chunk_len.min(len));
        self.check_unwritten(unwritten, stored.place.source.len())?;
        let whole_rows = grid.chunk[1..] == grid.shape[1..];
        if stored.filters.is_empty() && whole_rows && all <= PIECES {
            entry.pieces = self.pieces(&grid, &slots, &entry, all)?;
            self.count(len)?;
            return Ok(entry);
        }
        // A chunk is read as a whole, however little of it is in the dataset.
        let chunks_len = (slots.len() as u64).saturating_mul(grid.chunk_len);
        self.count(len.max(chunks_len))?;
        if !stored.filters.is_empty() {
            let most = stored.place.limits.chunk_bytes;
            Limits::check("bytes in a chunk", "chunk_bytes", grid.chunk_len, most)?;
            // What a row goes through is unpacked again for the next row, unless all of it is kept.
            let most = (most / 2).max(stored.place.source.len().saturating_mul(BAND_TIMES));
            Limits::check("bytes in chunks side by side", "chunk_bytes", grid.band(slots.len()), most)?;
        }
        let keeps_plain = stored.place.account.take_plain(chunks_len, stored.place.source.len());
        let source = ChunkedSource::new(stored, grid, slots, chunked.edges_plain, len);
        let source: SourceRef = Arc::new(source.keeping_plain(keeps_plain));
        entry.pieces = [Piece { source, offset: 0, len, encoding, part: None, check: None }].into();
        Ok(entry)
    }

    /// Bytes of the chunks that stand side by side.
    pub(super) fn band_of(&self, chunked: &Chunked) -> u64 {
        Grid::new(self, chunked).map_or(u64::MAX, |grid| grid.band(usize::MAX))
    }

    /// Chunks of whole rows, as the byte ranges that they are; neighbours in the file are one.
    fn pieces(&self, grid: &Grid, slots: &[Slot], entry: &TensorEntry, all: u64) -> Result<Pieces> {
        let stored = &self.stored;
        let row = grid.shape[1..].iter().product::<u64>() * grid.size;
        let mut parts: Vec<(Region, Piece)> = Vec::new();
        let mut slots = slots.iter().peekable();
        // All chunks that were never written are one source, of as many bytes as the largest has.
        let mut unwritten: Option<SourceRef> = None;
        for number in 0..all {
            let start = number * grid.chunk[0];
            let rows = grid.chunk[0].min(grid.shape[0] - start);
            let slot = slots.next_if(|slot| slot.number == number);
            let (source, offset) = match slot {
                Some(slot) => (stored.place.source.clone(), slot.offset),
                None => match &unwritten {
                    Some(source) => (source.clone(), 0),
                    // No later chunk has more rows.
                    None => (unwritten.insert(self.filled(rows * row)?).clone(), 0),
                },
            };
            if let (Some((region, last)), Some(_)) = (parts.last_mut(), slot)
                && Arc::ptr_eq(&last.source, &source)
                && last.offset + last.len == offset
            {
                last.len += rows * row;
                region.extent[0] += rows;
                continue;
            }
            let mut region = Region::whole(&entry.shape);
            (region.start[0], region.extent[0]) = (start, rows);
            let encoding = entry.pieces[0].encoding;
            let piece = Piece { source, offset, len: rows * row, encoding, part: None, check: None };
            parts.push((region, piece));
        }
        let whole =
            |(region, piece): (Region, Piece)| Piece { part: region.unless_whole(&entry.shape), ..piece };
        Ok(parts.into_iter().map(whole).collect())
    }

    /// Address and length of every chunk that the index lists, also of those outside of the dataset,
    /// which stay when it is made smaller. The index is read through `file`.
    pub(super) fn chunk_ranges(&self, file: &File, chunked: &Chunked) -> Result<Vec<(u64, u64)>> {
        let (Some(address), true) = (chunked.address, self.byte_len()? > 0) else { return Ok(Vec::new()) };
        let grid = Grid::new(self, chunked)?;
        if let Index::Implicit = chunked.index {
            let base = file.place.base;
            let slots = self.implicit(&grid, address)?;
            return Ok(slots.iter().map(|slot| (slot.offset.saturating_sub(base), slot.len)).collect());
        }
        let entries = self.index(file, chunked, &grid, address)?;
        Limits::check("chunks", "tensors", entries.len() as u64, file.place.limits.tensors)?;
        let mut ranges = Vec::with_capacity(entries.len());
        for entry in entries {
            if !hdf5_reader::io::Cursor::is_undefined_offset(entry.address, file.offset_size()) {
                ranges.push((entry.address, self.len_of(&entry, &grid)));
            }
        }
        Ok(ranges)
    }

    /// Bytes of a chunk in the file.
    fn len_of(&self, entry: &ChunkEntry, grid: &Grid) -> u64 {
        match entry.size {
            size if size > 0 && !self.stored.filters.is_empty() => size,
            _ => grid.chunk_len,
        }
    }

    /// The chunks that were written, in the order of the grid, each held against the file.
    fn slots(&self, chunked: &Chunked, grid: &Grid) -> Result<Vec<Slot>> {
        let Some(address) = chunked.address else { return Ok(Vec::new()) };
        if let Index::Implicit = chunked.index {
            return self.implicit(grid, address);
        }
        let place = &self.stored.place;
        let file = place.open();
        let entries = self.index(&file, chunked, grid, address)?;
        Limits::check("chunks", "tensors", entries.len() as u64, place.limits.tensors)?;
        place.account.list(entries.len() as u64, place.source.len())?;
        let mut slots = Vec::with_capacity(entries.len());
        for entry in entries {
            if hdf5_reader::io::Cursor::is_undefined_offset(entry.address, file.offset_size()) {
                continue;
            }
            let Some(number) = grid.number(&entry.offsets)? else { continue };
            let len = self.len_of(&entry, grid);
            let offset = place.offset(entry.address, len)?;
            slots.push(Slot { number, offset, len, mask: entry.filter_mask });
        }
        slots.sort_by_key(|slot| slot.number);
        if let Some(pair) = slots.windows(2).find(|pair| pair[0].number == pair[1].number) {
            return Err(Error::corrupt("hdf5-corrupt", "HDF5: two chunks for one place").at(pair[1].offset));
        }
        // Each has bytes of its own, as writers make them.
        let (all, len) = (slots.iter().map(|slot| u128::from(slot.len)).sum::<u128>(), place.source.len());
        if all > u128::from(len) {
            return Err(Error::corrupt("hdf5-corrupt", "HDF5: the chunks of a dataset lie over each other")
                .expected(format_args!("at most {len} bytes, as the file has"))
                .found(format_args!("{all} bytes")));
        }
        Ok(slots)
    }

    /// The chunks that the index lists, whatever their order.
    fn index(&self, file: &File, chunked: &Chunked, grid: &Grid, address: u64) -> Result<Vec<ChunkEntry>> {
        let reading = Reading::new(file, grid, !self.stored.filters.is_empty());
        let (offsets, lengths, storage) = (file.offset_size(), file.length_size(), &file.index());
        let chunk = grid.chunk.iter().map(|&extent| u32::try_from(extent)).collect::<Result<Vec<_>, _>>();
        let chunk = chunk
            .map_err(|_| Error::unsupported("hdf5-unsupported", "HDF5: chunks of 2^32 elements or more"))?;
        let rank = u32::try_from(chunk.len()).unwrap_or(u32::MAX);
        let full = self.full(grid);
        // Each entry has an address in the file.
        let all = grid.counts.iter().product::<u64>().min(file.place.source.len() / 8);
        let most = file.place.source.len().saturating_mul(PLACES_TIMES).saturating_add(PLACES_LEAST);
        if all.saturating_mul(8 * u64::from(rank)) > most {
            return Err(Error::limit(
                "limit",
                "HDF5: the places of chunks take more memory than the file allows",
            )
            .expected(format_args!("at most {most} bytes"))
            .found(format_args!("{all} chunks of {rank} dimensions"))
            .hint("write the file again with larger chunks"));
        }
        match chunked.index {
            Index::Tree1 => reading.tree(address, file.place.halves.chunk),
            Index::Single(size, filter_mask) => {
                Ok(vec![ChunkEntry { address, size, filter_mask, offsets: vec![0; grid.shape.len()] }])
            }
            // Made by [`Self::implicit`], without a list of places.
            Index::Implicit => Ok(Vec::new()),
            Index::Fixed => reading.fixed(address, full),
            Index::Extensible => {
                let most = self.stored.most.as_deref().unwrap_or_default();
                let first = most.iter().position(|&most| most == UNLIMITED).unwrap_or(0);
                let bounded = |(axis, &now): (usize, &u64)| match most.get(axis) {
                    Some(&most) if most != UNLIMITED => most.max(now),
                    _ => now,
                };
                let full: Vec<u64> = grid.shape.iter().enumerate().map(bounded).collect();
                reading.extensible(address, &full, first)
            }
            Index::Tree2 => {
                collect_v2_chunk_entries_storage(storage, address, offsets, lengths, rank, &chunk, None)
                    .map_err(fault)
            }
        }
    }

    /// The extents by which places are counted: where the dataset may grow, as if it had.
    fn full<'a>(&'a self, grid: &'a Grid) -> &'a [u64] {
        let most = self.stored.most.as_ref().filter(|most| {
            most.len() == grid.shape.len()
                && most.iter().zip(&grid.shape).all(|(&most, &now)| most != UNLIMITED && most >= now)
        });
        most.unwrap_or(&grid.shape)
    }

    /// Chunks one after the other from `address` on, in the order of the grid.
    fn implicit(&self, grid: &Grid, address: u64) -> Result<Vec<Slot>> {
        let (place, full) = (&self.stored.place, self.full(grid));
        let all: u64 = grid.counts.iter().product();
        Limits::check("chunks", "tensors", all, place.limits.tensors)?;
        place.account.list(all, place.source.len())?;
        let past = || Error::corrupt("past-the-end", "HDF5: chunks leave the file").at(address);
        // Chunks from one to the next along each dimension that has several.
        let (mut steps, mut step) = (Vec::new(), 1u64);
        for ((&count, &full), &chunk) in grid.counts.iter().zip(full).zip(&grid.chunk).rev() {
            if count > 1 {
                steps.push((count, step));
            }
            step = step.saturating_mul(full.div_ceil(chunk));
        }
        let mut slots = Vec::new();
        for number in 0..all {
            let (mut rest, mut before) = (number, 0u64);
            for &(count, step) in &steps {
                let at = (rest % count).checked_mul(step);
                before = at.and_then(|at| before.checked_add(at)).ok_or_else(past)?;
                rest /= count;
            }
            let at = before.checked_mul(grid.chunk_len).and_then(|at| at.checked_add(address));
            // No more of them are kept than there are chunks in the file.
            let offset = place.offset(at.ok_or_else(past)?, grid.chunk_len)?;
            slots.push(Slot { number, offset, len: grid.chunk_len, mask: 0 });
        }
        Ok(slots)
    }
}
