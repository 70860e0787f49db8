//! Chunked datasets: byte ranges of the chunks, and the tensor that they form.

use super::chunked::ChunkedSource;
use super::file::File;
use super::grid::{Grid, Slot};
use super::index::{Entry, IndexReader};
use super::layout::{Chunked, Index};
use crate::Dataset;
use std::sync::Arc;
use weighbridge_core::checkpoint::{Extent, Pieces, TensorEntry};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::tensor::Region;
use weighbridge_io::source::SourceRef;

/// Maximum number of chunks that become separate extents; more chunks become a single source.
const MAX_EXTENTS: u64 = 1 << 16;

impl Dataset {
    /// Sets the extents of `entry` to the chunks.
    pub(super) fn chunks(&self, chunked: &Chunked, mut entry: TensorEntry, len: u64) -> Result<TensorEntry> {
        let stored = &self.stored;
        let encoding = entry.extents[0].encoding;
        if len == 0 {
            return Ok(entry);
        }
        super::filters::check(&stored.filters, stored.element.size)?;
        let grid = self.grid(chunked)?;
        let slots = self.slots(chunked, &grid)?;
        let all: u64 = grid.counts.iter().product();
        let unwritten = (all - slots.len() as u64).saturating_mul(grid.chunk_len.min(len));
        self.check_unwritten(unwritten, stored.context.source.len())?;
        let whole_rows = grid.chunk[1..] == grid.shape[1..];
        if stored.filters.is_empty() && whole_rows && all <= MAX_EXTENTS {
            entry.extents = self.extents(&grid, &slots, &entry, all)?;
            self.count(len)?;
            return Ok(entry);
        }
        // Chunks are read whole, even where they exceed the dataset.
        let chunks_len = (slots.len() as u64).saturating_mul(grid.chunk_len);
        self.count(len.max(chunks_len))?;
        if !stored.filters.is_empty() {
            let most = stored.context.limits.chunk_bytes;
            Limits::check("bytes in a chunk", "chunk_bytes", grid.chunk_len, most)?;
            // The chunks of a row are unpacked again for the next row, unless all of them stay in the cache.
            let most = (most / 2).max(stored.context.budget.work_left());
            Limits::check("bytes in a row of chunks", "chunk_bytes", grid.band(slots.len()), most)?;
        }
        let keeps_plain = stored.context.plain.take(chunks_len).is_ok();
        let source = ChunkedSource::new(stored, grid, slots, chunked.edges_plain, len);
        let source: SourceRef = Arc::new(source.keeping_plain(keeps_plain));
        entry.extents = [Extent { source, offset: 0, len, encoding, part: None, check: None }].into();
        Ok(entry)
    }

    fn grid(&self, chunked: &Chunked) -> Result<Grid> {
        Grid::new(self.shape.dims(), &chunked.chunk, self.stored.element.size.into())
    }

    /// Bytes of a row of chunks.
    pub(super) fn band_of(&self, chunked: &Chunked) -> u64 {
        self.grid(chunked).map_or(u64::MAX, |grid| grid.band(usize::MAX))
    }

    /// Returns chunks of whole rows as extents; adjacent ranges of the file are joined.
    fn extents(&self, grid: &Grid, slots: &[Slot], entry: &TensorEntry, all: u64) -> Result<Pieces> {
        let stored = &self.stored;
        let row = grid.shape[1..].iter().product::<u64>() * grid.size;
        let mut parts: Vec<(Region, Extent)> = Vec::new();
        let mut slots = slots.iter().peekable();
        // All unwritten chunks share one source, as long as the largest of them.
        let mut unwritten: Option<SourceRef> = None;
        for number in 0..all {
            let start = number * grid.chunk[0];
            let rows = grid.chunk[0].min(grid.shape[0] - start);
            let slot = slots.next_if(|slot| slot.number == number);
            let (source, offset) = match slot {
                Some(slot) => (stored.context.source.clone(), slot.offset),
                None => match &unwritten {
                    Some(source) => (source.clone(), 0),
                    // Later chunks do not have more rows.
                    None => (unwritten.insert(self.filled(rows * row)?).clone(), 0),
                },
            };
            if let (Some((region, last)), Some(_)) = (parts.last_mut(), slot)
                && Arc::ptr_eq(&last.source, &source)
                && last.offset + last.len == offset
            {
                last.len += rows * row;
                region.shape[0] += rows;
                continue;
            }
            let mut region = Region::whole(&entry.shape);
            (region.start[0], region.shape[0]) = (start, rows);
            let encoding = entry.extents[0].encoding;
            let extent = Extent { source, offset, len: rows * row, encoding, part: None, check: None };
            parts.push((region, extent));
        }
        let whole =
            |(region, extent): (Region, Extent)| Extent { part: region.unless_whole(&entry.shape), ..extent };
        Ok(parts.into_iter().map(whole).collect())
    }

    /// FileContext and length of every chunk in the index, including those outside of the dataset,
    /// which remain when a dataset shrinks. The index is read through `file`.
    pub(super) fn chunk_ranges(&self, file: &File, chunked: &Chunked) -> Result<Vec<(u64, u64)>> {
        let (Some(address), true) = (chunked.address, self.byte_len()? > 0) else { return Ok(Vec::new()) };
        let grid = self.grid(chunked)?;
        if let Index::Implicit = chunked.index {
            let base = file.context.superblock.at;
            let slots = self.implicit(&grid, address)?;
            return Ok(slots.iter().map(|slot| (slot.offset.saturating_sub(base), slot.len)).collect());
        }
        let entries = self.index(file, chunked, &grid, address)?;
        Ok(entries.iter().map(|entry| (entry.address, self.len_of(entry, &grid))).collect())
    }

    /// Stored length of a chunk in bytes.
    fn len_of(&self, entry: &Entry, grid: &Grid) -> u64 {
        match entry.size {
            size if size > 0 && !self.stored.filters.is_empty() => size,
            _ => grid.chunk_len,
        }
    }

    /// Returns the written chunks in the order of the grid; each must be within the file.
    fn slots(&self, chunked: &Chunked, grid: &Grid) -> Result<Vec<Slot>> {
        let Some(address) = chunked.address else { return Ok(Vec::new()) };
        if let Index::Implicit = chunked.index {
            return self.implicit(grid, address);
        }
        let place = &self.stored.context;
        let file = place.open();
        let mut slots = Vec::new();
        for entry in self.index(&file, chunked, grid, address)? {
            let Some(number) = entry.number else { continue };
            let len = self.len_of(&entry, grid);
            let offset = place.offset(entry.address, len)?;
            slots.push(Slot { number, offset, len, mask: entry.mask });
        }
        slots.sort_by_key(|slot| slot.number);
        if let Some(pair) = slots.windows(2).find(|pair| pair[0].number == pair[1].number) {
            return Err(
                Error::corrupt("hdf5-corrupt", "HDF5: duplicate chunk in the chunk index").at(pair[1].offset)
            );
        }
        // Writers never share bytes between chunks.
        let (all, len) = (slots.iter().map(|slot| u128::from(slot.len)).sum::<u128>(), place.source.len());
        if all > u128::from(len) {
            return Err(Error::corrupt("hdf5-corrupt", "HDF5: the chunks of the dataset overlap")
                .expected(format_args!("at most {len} bytes, the length of the file"))
                .found(format_args!("{all} bytes")));
        }
        Ok(slots)
    }

    /// Reads the chunks of the index, in any order.
    fn index(&self, file: &File, chunked: &Chunked, grid: &Grid, address: u64) -> Result<Vec<Entry>> {
        let reading = IndexReader::new(file, grid, !self.stored.filters.is_empty());
        let mut entries = match chunked.index {
            Index::Tree1 => reading.tree(address, file.context.half_capacities.chunk),
            Index::Single(size, mask) => Ok(vec![Entry { address, size, mask, number: Some(0) }]),
            // [`Self::implicit`] computes these without an index.
            Index::Implicit => Ok(Vec::new()),
            Index::Fixed => reading.fixed(address, self.full(grid)),
            Index::Extensible => {
                let most = self.stored.most.as_deref().unwrap_or_default();
                let first = most.iter().position(|&most| most == u64::MAX).unwrap_or(0);
                let bounded = |(axis, &now): (usize, &u64)| match most.get(axis) {
                    Some(&most) if most != u64::MAX => most.max(now),
                    _ => now,
                };
                let full: Vec<u64> = grid.shape.iter().enumerate().map(bounded).collect();
                reading.extensible(address, &full, first)
            }
            Index::Tree2 => reading.records(address),
        }?;
        entries.retain(|entry| entry.address != u64::MAX);
        Limits::check("chunks", "tensors", entries.len() as u64, file.context.limits.tensors)?;
        Ok(entries)
    }

    /// Dimensions used to number chunks: the maximum dimensions where they are bounded.
    fn full<'a>(&'a self, grid: &'a Grid) -> &'a [u64] {
        let most = self.stored.most.as_ref().filter(|most| {
            most.len() == grid.shape.len()
                && most.iter().zip(&grid.shape).all(|(&most, &now)| most != u64::MAX && most >= now)
        });
        most.unwrap_or(&grid.shape)
    }

    /// Returns consecutive chunks from `address` on, in the order of the grid.
    fn implicit(&self, grid: &Grid, address: u64) -> Result<Vec<Slot>> {
        let (place, full) = (&self.stored.context, self.full(grid));
        let all: u64 = grid.counts.iter().product();
        Limits::check("chunks", "tensors", all, place.limits.tensors)?;
        place.list(all.saturating_mul(size_of::<Slot>() as u64))?;
        let past =
            || Error::corrupt("past-the-end", "HDF5: the chunks exceed the end of the file").at(address);
        // Distance in chunks between neighbours along each dimension with several chunks.
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
            // The range check bounds the number of chunks by the length of the file.
            let offset = place.offset(at.ok_or_else(past)?, grid.chunk_len)?;
            slots.push(Slot { number, offset, len: grid.chunk_len, mask: 0 });
        }
        Ok(slots)
    }
}
