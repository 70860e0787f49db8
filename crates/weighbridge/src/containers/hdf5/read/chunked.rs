//! Chunks as one row-major run of bytes.

use super::chunks::{Grid, Slot};
use super::dataset::Stored;
use super::file::fault;
use super::fill::repeat;
use crate::error::{Error, Result};
use crate::source::{KeptBlocks, Source, SourceRef, Within, check_range, read_vec, to_usize};
use hdf5_reader::filters::apply_pipeline_with_limit;
use hdf5_reader::messages::filter_pipeline::FilterDescription;
use std::sync::Arc;

/// Runs of at least so many bytes are read where they lie, without the chunk around them.
const LONG_RUN: usize = 4 << 10;
/// Larger chunks that are not packed are never read whole.
const LARGE_PLAIN: u64 = 1 << 20;

/// The elements of a chunked dataset, row by row. Chunks are unpacked when they are needed and kept
/// for a while, as reading row by row comes back to each chunk of a row of chunks; several threads
/// can read at once, and wait for each other's chunk instead of unpacking it twice.
#[derive(Debug)]
pub(super) struct ChunkedSource {
    source: SourceRef,
    grid: Grid,
    slots: Vec<Slot>,
    filters: Vec<FilterDescription>,
    fill: Vec<u8>,
    edges_plain: bool,
    len: u64,
    kept: KeptBlocks,
}

impl ChunkedSource {
    /// The dataset of `len` bytes; `slots` are in the order of the grid.
    pub(super) fn new(stored: &Stored, grid: Grid, slots: Vec<Slot>, edges_plain: bool, len: u64) -> Self {
        Self {
            source: stored.place.source.clone(),
            grid,
            slots,
            filters: stored.filters.clone(),
            fill: stored.fill.clone(),
            edges_plain,
            len,
            kept: KeptBlocks::new(),
        }
    }

    fn slot(&self, number: u64) -> Option<&Slot> {
        let at = self.slots.binary_search_by_key(&number, |slot| slot.number).ok()?;
        self.slots.get(at)
    }

    fn is_plain(&self, number: u64) -> bool {
        self.filters.is_empty() || (self.edges_plain && self.grid.is_edge(number))
    }

    /// The bytes of a chunk, unpacked.
    fn chunk(&self, slot: &Slot) -> Result<Arc<[u8]>> {
        self.kept.get(slot.number, self.grid.chunk_len, || self.unpack(slot))
    }

    fn unpack(&self, slot: &Slot) -> Result<Vec<u8>> {
        let packed = read_vec(&*self.source, slot.offset, slot.len)?;
        let len = to_usize(self.grid.chunk_len)?;
        let bytes = match self.is_plain(slot.number) {
            true => packed,
            false => {
                let size = to_usize(self.grid.size)?;
                apply_pipeline_with_limit(&packed, &self.filters, slot.mask, size, None, Some(len))
                    .map_err(|error| fault(error).in_file(self.source.label()).at(slot.offset))?
            }
        };
        if bytes.len() == len {
            return Ok(bytes);
        }
        Err(Error::corrupt("hdf5-chunk", "HDF5: a chunk has not as many bytes as it should")
            .in_file(self.source.label())
            .at(slot.offset)
            .expected(format_args!("{len} bytes"))
            .found(format_args!("{} bytes", bytes.len())))
    }

    /// Where the byte `at` of the dataset is: the number of its chunk, the offset in it, and how many
    /// bytes follow there as they do in the dataset.
    fn find(&self, at: u64) -> (u64, u64, u64) {
        let Grid { shape, chunk, counts, size, .. } = &self.grid;
        let mut rest = at / size;
        let (mut number, mut offset) = (0, 0);
        let (mut chunks, mut stride, mut run) = (1, 1, 0);
        for axis in (0..shape.len()).rev() {
            let index = rest % shape[axis];
            rest /= shape[axis];
            let inside = index % chunk[axis];
            if axis + 1 == shape.len() {
                run = (chunk[axis] - inside).min(shape[axis] - index);
            }
            number += index / chunk[axis] * chunks;
            offset += inside * stride;
            chunks *= counts[axis];
            stride *= chunk[axis];
        }
        (number, offset * size + at % size, run * size - at % size)
    }
}

impl Source for ChunkedSource {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        check_range(self, offset, buffer.len() as u64)?;
        let (mut at, mut rest) = (offset, buffer);
        let mut last: Option<(u64, Arc<[u8]>)> = None;
        while !rest.is_empty() {
            let (number, inside, run) = self.find(at);
            let (now, later) = rest.split_at_mut(to_usize(run.min(rest.len() as u64))?);
            rest = later;
            let start = at;
            at += now.len() as u64;
            if let Some((known, chunk)) = &last
                && *known == number
            {
                copy(chunk, inside, now)?;
                continue;
            }
            let Some(slot) = self.slot(number) else {
                repeat(&self.fill, start, now);
                continue;
            };
            let direct = now.len() >= LONG_RUN || self.grid.chunk_len > LARGE_PLAIN;
            if direct && self.is_plain(number) && slot.len == self.grid.chunk_len {
                self.source.read_at(slot.offset + inside, now)?;
                continue;
            }
            let chunk = self.chunk(slot)?;
            copy(&chunk, inside, now)?;
            last = Some((number, chunk));
        }
        Ok(())
    }

    fn made_of(&self) -> Option<Vec<Within<'_>>> {
        let mut all = Vec::with_capacity(self.slots.len());
        for Slot { offset, len, .. } in &self.slots {
            all.push(Within { source: &self.source, offset: *offset, len: *len, encoded: true });
        }
        Some(all)
    }

    fn label(&self) -> &str {
        self.source.label()
    }
}

/// Copies what stands at `at` of a chunk.
fn copy(chunk: &[u8], at: u64, to: &mut [u8]) -> Result<()> {
    let at = to_usize(at)?;
    match chunk.get(at..at + to.len()) {
        Some(bytes) => {
            to.copy_from_slice(bytes);
            Ok(())
        }
        None => Err(Error::corrupt("hdf5-chunk", "HDF5: a chunk is too short")),
    }
}
