//! Source of the elements of a virtual dataset.

use super::super::fill::repeat;
use super::selection::Selection;
use std::sync::Arc;
use weighbridge_core::error::{Error, Result};
use weighbridge_io::source::{Source, SourceRef, Within, check_range, read_vec, to_usize};

/// Minimum length of a run that is read directly.
const LONG_RUN: u64 = 4 << 10;
/// Length of the windows from which shorter runs are copied.
const WINDOW: u64 = 64 << 10;
/// Maximum ratio of the length of a window to the bytes copied from it.
const MAX_SPARSITY: u64 = 4;

/// Bytes of a source dataset, and their positions in the virtual dataset.
#[derive(Debug)]
pub(super) struct Part {
    to: Selection,
    from: Selection,
    bytes: SourceRef,
    /// Offset of its first byte in the virtual dataset, and the end of the last.
    start: u64,
    end: u64,
}

impl Part {
    /// Maps the bytes that `from` selects in `bytes` to those that `to` selects, of equal number.
    pub(super) fn new(to: Selection, from: Selection, bytes: SourceRef) -> Self {
        let last = to.len.checked_sub(1).map(|last| to.run(last).0);
        let start = last.map_or(0, |_| to.run(0).0);
        Self { start, end: last.map_or(0, |last| last + 1), to, from, bytes }
    }

    /// True where all its bytes precede those of `next`.
    pub(super) fn is_before(&self, next: &Self) -> bool {
        self.end <= next.start
    }

    /// Number of mapped bytes.
    pub(super) fn len(&self) -> u64 {
        self.to.len
    }

    /// Length of the virtual dataset from the first to the last mapped byte.
    fn span(&self) -> u64 {
        self.end - self.start
    }

    /// Maximum number of runs copied separately.
    pub(super) fn runs(&self) -> u64 {
        self.to.runs.saturating_add(self.from.runs)
    }

    /// Maximum number of reads of its source, by a caller that reads blocks of a window or more.
    pub(super) fn reads(&self) -> u64 {
        (self.span() / WINDOW).saturating_add(self.runs()).saturating_add(1)
    }

    /// Copies its bytes into `buffer`, which begins at `offset` of the virtual dataset.
    fn copy(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let end = offset + buffer.len() as u64;
        if self.end <= offset || end <= self.start {
            return Ok(());
        }
        let (mut number, stop) = (self.to.before(offset), self.to.before(end));
        let (mut window, mut first) = (Vec::new(), 0);
        while number < stop {
            let ((to, room), (from, run)) = (self.to.run(number), self.from.run(number));
            let take = room.min(run).min(stop - number);
            let at = to_usize(to - offset)?;
            let len = to_usize(take)?;
            let Some(buffer) = buffer.get_mut(at..at.saturating_add(len)) else { return Err(short()) };
            number += take;
            if take >= LONG_RUN {
                self.bytes.read_at(from, buffer)?;
                continue;
            }
            if from < first || from + take > first + window.len() as u64 {
                let next = (number - take).saturating_add(WINDOW).min(stop);
                let span = self.from.run(next - 1).0 + 1 - from;
                if span > (next + take - number).saturating_mul(MAX_SPARSITY) {
                    self.bytes.read_at(from, buffer)?;
                    continue;
                }
                (window, first) = (read_vec(&*self.bytes, from, span)?, from);
            }
            let at = to_usize(from - first)?;
            let Some(bytes) = window.get(at..at.saturating_add(len)) else { return Err(short()) };
            buffer.copy_from_slice(bytes);
        }
        Ok(())
    }
}

/// Source of the elements of a virtual dataset, row by row.
#[derive(Debug)]
pub(super) struct MappedSource {
    label: String,
    fill: Vec<u8>,
    len: u64,
    parts: Vec<Part>,
    /// Distinct sources.
    sources: Vec<SourceRef>,
}

impl MappedSource {
    /// Creates the source of a dataset of `len` bytes; the last of overlapping parts applies.
    pub(super) fn new(label: &str, fill: Vec<u8>, len: u64, parts: Vec<Part>) -> Self {
        let mut seen = std::collections::HashSet::new();
        let is_new = |source: &&SourceRef| seen.insert(Arc::as_ptr(source).cast::<()>().addr());
        let sources = parts.iter().map(|part| &part.bytes).filter(is_new).cloned().collect();
        Self { label: label.to_owned(), fill, len, parts, sources }
    }
}

impl Source for MappedSource {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        check_range(self, offset, buffer.len() as u64)?;
        repeat(&self.fill, offset, buffer);
        self.parts.iter().try_for_each(|part| part.copy(offset, buffer))
    }

    fn is_decoded(&self) -> bool {
        self.sources.iter().any(|source| source.is_decoded())
    }

    fn made_of(&self) -> Option<Vec<Within<'_>>> {
        let whole = |source| Within { source, offset: 0, len: Source::len(&**source), encoded: true };
        Some(self.sources.iter().map(whole).collect())
    }

    fn label(&self) -> &str {
        &self.label
    }
}

fn short() -> Error {
    Error::corrupt("hdf5-corrupt", "HDF5: a mapping of the virtual dataset exceeds its source")
}
