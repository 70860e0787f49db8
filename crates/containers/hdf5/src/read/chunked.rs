//! Chunks as one row-major source of bytes.

use super::axes::{Axis, axes, boxes};
use super::fill::repeat;
use super::filters::{Filter, undo};
use super::grid::{Grid, Slot};
use super::stored::Stored;
use std::ops::Range;
use std::sync::Arc;
use weighbridge_core::error::{Error, Result};
use weighbridge_io::source::{CachedBlocks, Source, SourceRef, Within, check_range, read_vec, to_usize};

/// Minimum length of a run that is read directly, without the rest of its chunk.
const LONG_RUN: u64 = 4 << 10;
/// Maximum length of an unfiltered chunk that is read whole.
const MAX_PLAIN_LEN: u64 = 1 << 20;
/// Length of the windows in which short runs of such a chunk are read: a call for each run would be slow.
const WINDOW: u64 = 256 << 10;

/// Source of the elements of a chunked dataset, row by row. Chunks are unpacked on demand and cached,
/// because row-by-row reading revisits each chunk of a row of chunks. Several threads
/// can read at once; a chunk is unpacked by one of them.
#[derive(Debug)]
pub(super) struct ChunkedSource {
    source: SourceRef,
    grid: Grid,
    axes: Vec<Axis>,
    slots: Vec<Slot>,
    /// True where some chunks are unwritten.
    gaps: bool,
    filters: Vec<Filter>,
    fill: Vec<u8>,
    edges_plain: bool,
    /// True where small unfiltered chunks are cached, too.
    keeps_plain: bool,
    len: u64,
    blocks: CachedBlocks,
}

impl ChunkedSource {
    /// Creates the source of a dataset of `len` bytes; `slots` are in the order of the grid.
    pub(super) fn new(stored: &Stored, grid: Grid, slots: Vec<Slot>, edges_plain: bool, len: u64) -> Self {
        Self {
            source: stored.context.source.clone(),
            axes: axes(&grid),
            gaps: (slots.len() as u64) < grid.counts.iter().product(),
            grid,
            slots,
            filters: stored.filters.clone(),
            fill: stored.fill.clone(),
            edges_plain,
            keeps_plain: true,
            len,
            blocks: stored.context.limits.blocks.blocks(),
        }
    }

    /// Sets whether small unfiltered chunks are cached; the default is true.
    pub(super) fn keeping_plain(self, keeps_plain: bool) -> Self {
        Self { keeps_plain, ..self }
    }

    fn is_plain(&self, number: u64) -> bool {
        self.filters.is_empty() || (self.edges_plain && self.grid.is_edge(number))
    }

    /// Returns the unpacked bytes of a chunk.
    fn chunk(&self, slot: &Slot) -> Result<Arc<Vec<u8>>> {
        self.blocks.get(slot.number, self.grid.chunk_len, || self.unpack(slot))
    }

    fn unpack(&self, slot: &Slot) -> Result<Vec<u8>> {
        let packed = read_vec(&*self.source, slot.offset, slot.len)?;
        let len = to_usize(self.grid.chunk_len)?;
        let bytes = match self.is_plain(slot.number) {
            true => packed,
            false => {
                let size = to_usize(self.grid.size)?;
                undo(packed, &self.filters, slot.mask, size, len)
                    .map_err(|error| error.in_file(self.source.label()).at(slot.offset))?
            }
        };
        if bytes.len() == len {
            return Ok(bytes);
        }
        Err(Error::corrupt("hdf5-chunk", "HDF5: the unpacked chunk has a wrong length")
            .in_file(self.source.label())
            .at(slot.offset)
            .expected(format_args!("{len} bytes"))
            .found(format_args!("{} bytes", bytes.len())))
    }

    /// Copies the bytes of a box within a chunk into `buffer`, which begins at `offset` of the dataset.
    fn copy(&self, slot: &Slot, bounds: &[Range<u64>], offset: u64, buffer: &mut [u8]) -> Result<()> {
        let (mut rest, mut to, mut from) = (slot.number, 0, 0);
        let mut within = Vec::with_capacity(bounds.len());
        for (axis, bounds) in self.axes.iter().zip(bounds) {
            let start = rest / axis.numbers * axis.chunk;
            rest %= axis.numbers;
            let range = start.max(bounds.start)..start.saturating_add(axis.chunk).min(bounds.end);
            if range.is_empty() {
                return Ok(());
            }
            to += range.start * axis.step;
            from += (range.start - start) * axis.inner;
            within.push(range.end - range.start);
        }
        let run = within.last().copied().unwrap_or(0);
        // Bytes that are not revisited need not be cached.
        let long = run >= LONG_RUN.min(self.grid.chunk_len) || self.grid.chunk_len > MAX_PLAIN_LEN;
        let direct =
            (long || !self.keeps_plain) && self.is_plain(slot.number) && slot.len == self.grid.chunk_len;
        let chunk = if direct { None } else { Some(self.chunk(slot)?) };
        let (len, mut to) = (to_usize(run)?, to - offset);
        // Short runs close to each other are copied from windows.
        let near = self.axes.iter().rev().nth(1).is_some_and(|axis| axis.inner <= WINDOW / 4);
        let windowed = direct && run < LONG_RUN && near;
        let behind: u64 = within.iter().zip(&self.axes).map(|(&n, axis)| (n - 1) * axis.inner).sum();
        let end = from + behind + 1;
        let (mut window, mut first) = (Vec::new(), from);
        let mut at = vec![0; within.len()];
        loop {
            let start = to_usize(to)?;
            let Some(now) = buffer.get_mut(start..start + len) else { return Err(short()) };
            if windowed && from + run > first + window.len() as u64 {
                first = from;
                window = read_vec(&*self.source, slot.offset + from, (end - from).min(WINDOW))?;
            }
            match &chunk {
                None if !windowed => self.source.read_at(slot.offset + from, now)?,
                held => {
                    let (held, from) = match held {
                        Some(chunk) => (chunk.as_slice(), to_usize(from)?),
                        None => (window.as_slice(), to_usize(from - first)?),
                    };
                    let Some(bytes) = held.get(from..from + len) else { return Err(short()) };
                    match (&mut *now, bytes) {
                        // Faster than a call for a single byte.
                        ([to], [from]) => *to = *from,
                        (to, from) => to.copy_from_slice(from),
                    }
                }
            }
            // The next run: the next index on the axis before the last, or on an outer axis.
            let mut axis = within.len() - 1;
            loop {
                let Some(outer) = axis.checked_sub(1) else { return Ok(()) };
                axis = outer;
                let Axis { step, inner, .. } = self.axes[axis];
                at[axis] += 1;
                if at[axis] < within[axis] {
                    (to, from) = (to + step, from + inner);
                    break;
                }
                at[axis] = 0;
                (to, from) = (to - (within[axis] - 1) * step, from - (within[axis] - 1) * inner);
            }
        }
    }
}

impl Source for ChunkedSource {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        check_range(self, offset, buffer.len() as u64)?;
        if self.gaps {
            repeat(&self.fill, offset, buffer);
        }
        for bounds in boxes(&self.axes, offset, offset + buffer.len() as u64) {
            let (mut first, mut last) = (0, 0);
            for (axis, bounds) in self.axes.iter().zip(&bounds) {
                first += bounds.start / axis.chunk * axis.numbers;
                last += (bounds.end - 1) / axis.chunk * axis.numbers;
            }
            // Only written chunks: the unwritten ones may be far more.
            let from = self.slots.partition_point(|slot| slot.number < first);
            for slot in self.slots[from..].iter().take_while(|slot| slot.number <= last) {
                self.copy(slot, &bounds, offset, buffer)?;
            }
        }
        Ok(())
    }

    fn is_decoded(&self) -> bool {
        !self.filters.is_empty()
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

fn short() -> Error {
    Error::corrupt("hdf5-chunk", "HDF5: the chunk is too short")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};
    use weighbridge_io::source::BlockCache;

    /// Source that counts its reads.
    #[derive(Debug)]
    struct ReadCounter(Vec<u8>, AtomicU64);

    impl Source for ReadCounter {
        fn len(&self) -> u64 {
            self.0.len() as u64
        }
        fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
            self.1.fetch_add(1, Ordering::Relaxed);
            let at = to_usize(offset)?;
            buffer.copy_from_slice(&self.0[at..at + buffer.len()]);
            Ok(())
        }
        fn label(&self) -> &str {
            "asked"
        }
    }

    /// Long chunks of few columns, one beyond the dataset: any range reads correctly, without a call for each row.
    #[test]
    fn narrow_chunks_are_read_in_windows() {
        let (rows, columns, wide) = (600_000u64, 3, 2);
        let bytes: Vec<u8> = (0..rows * 4 + 10).map(|n| (n % 251) as u8).collect();
        let file = Arc::new(ReadCounter(bytes, AtomicU64::new(0)));
        let chunk_len = rows * wide;
        assert!(chunk_len > MAX_PLAIN_LEN);
        let grid = Grid {
            shape: vec![rows, columns],
            chunk: vec![rows, wide],
            counts: vec![1, 2],
            size: 1,
            chunk_len,
        };
        let slot = |number| Slot { number, offset: 10 + number * chunk_len, len: chunk_len, mask: 0 };
        let chunks = ChunkedSource {
            source: file.clone(),
            axes: axes(&grid),
            slots: vec![slot(0), slot(1)],
            gaps: false,
            grid,
            filters: Vec::new(),
            fill: Vec::new(),
            edges_plain: false,
            keeps_plain: true,
            len: rows * columns,
            blocks: BlockCache::new().blocks(),
        };
        let expected: Vec<u8> = (0..rows * columns)
            .map(|at| {
                let (row, column) = (at / columns, at % columns);
                let offset = 10 + column / wide * chunk_len + row * wide + column % wide;
                file.0[to_usize(offset).unwrap()]
            })
            .collect();
        for (from, to) in [(0, expected.len()), (1, 5), (2, 1_000_000), (899_999, 1_800_000), (7, 7)] {
            let mut read = vec![0; to - from];
            file.1.store(0, Ordering::Relaxed);
            chunks.read_at(from as u64, &mut read).unwrap();
            assert!(read == expected[from..to], "{from}..{to}");
            let calls = file.1.load(Ordering::Relaxed);
            assert!(calls < 20, "{calls} calls for {from}..{to}");
        }
    }
}
