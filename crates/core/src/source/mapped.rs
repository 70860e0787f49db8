//! Bytes for a single pass: mapped if that saves a copy, else read.

use super::{Source, check_range, to_usize};
use crate::error::Result;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// Minimum bytes to map: a map costs some system calls, so shorter ranges are read.
const MAPPED_FROM: u64 = 256 << 10;
/// Bytes of a window. Unmapping interrupts all threads, so windows are large and few.
const WINDOW: u64 = 16 << 20;
/// Bytes shared with the next window, for ranges across the boundary.
const OVERLAP: u64 = 2 << 20;

/// Bytes of a file mapped into memory.
pub trait Mapped: Debug + Send + Sync {
    /// Returns the bytes; zeros after the end of a file that was truncated.
    fn bytes(&self) -> &[u8];

    /// Fails if the file was truncated or became unreadable since it was mapped.
    ///
    /// # Errors
    /// [`crate::Kind::Io`], `file-shrank`.
    fn intact(&self) -> Result<()>;
}

/// Range of a shared map.
#[derive(Debug, Clone)]
pub struct MappedRange {
    map: Arc<dyn Mapped>,
    range: Range<usize>,
}

impl MappedRange {
    /// Returns `len` bytes from `from`; `None` if the range exceeds the map.
    pub fn of(map: Arc<dyn Mapped>, from: u64, len: u64) -> Option<Self> {
        let end = to_usize(from.checked_add(len)?).ok()?;
        let range = to_usize(from).ok()?..end;
        (end <= map.bytes().len()).then_some(Self { map, range })
    }

    /// Returns the bytes; zeros for lost ones.
    pub fn bytes(&self) -> &[u8] {
        &self.map.bytes()[self.range.clone()]
    }

    /// Fails if bytes were lost; see [`Mapped::intact`].
    ///
    /// # Errors
    /// As [`Mapped::intact`].
    pub fn intact(&self) -> Result<()> {
        self.map.intact()
    }
}

/// Bytes of a source in memory.
///
/// Bytes of a file are mapped without a copy. A page lost after a truncation reads as zeros: call [`intact`](Self::intact)
/// after processing the bytes and before using the result.
#[derive(Debug)]
pub enum MaybeMapped {
    /// Bytes that were read.
    Read(Vec<u8>),
    /// Mapped range of a file.
    Mapped(MappedRange),
}

impl Default for MaybeMapped {
    fn default() -> Self {
        Self::Read(Vec::new())
    }
}

impl MaybeMapped {
    /// Returns `len` bytes from `offset`. `spare` is reused as the buffer if the bytes are read.
    ///
    /// # Errors
    /// As [`Source::read_at`].
    pub fn of(source: &dyn Source, offset: u64, len: u64, mut spare: Vec<u8>) -> Result<Self> {
        check_range(source, offset, len)?;
        if len >= MAPPED_FROM
            && let Some(map) = source.map(offset, len)
            && let Some(part) = MappedRange::of(map, 0, len)
        {
            return Ok(Self::Mapped(part));
        }
        let len = to_usize(len)?;
        if spare.capacity() < len {
            spare = Vec::with_capacity(len);
        }
        spare.resize(len, 0);
        source.read_at(offset, &mut spare)?;
        Ok(Self::Read(spare))
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Read(bytes) => bytes,
            Self::Mapped(part) => part.bytes(),
        }
    }

    /// Fails if mapped bytes were lost.
    ///
    /// # Errors
    /// [`crate::Kind::Io`], `file-shrank`, without file and offset: the caller adds them.
    pub fn intact(&self) -> Result<()> {
        match self {
            Self::Read(_) => Ok(()),
            Self::Mapped(part) => part.intact(),
        }
    }

    /// Returns the buffer for reuse; empty for mapped bytes.
    pub fn into_spare(self) -> Vec<u8> {
        match self {
            Self::Read(bytes) => bytes,
            Self::Mapped(_) => Vec::new(),
        }
    }
}

/// Mapped windows of one source, for many threads that read successive ranges. Neighbouring ranges share a window.
#[derive(Debug, Default)]
pub struct MapWindows {
    /// Start and map of the last window.
    last: Mutex<Option<(u64, Arc<dyn Mapped>)>>,
}

impl MapWindows {
    /// Returns `len` bytes from `offset`, as [`MaybeMapped::of`]. All calls must pass the same source.
    ///
    /// # Errors
    /// As [`MaybeMapped::of`].
    pub fn get(&self, source: &dyn Source, offset: u64, len: u64, spare: Vec<u8>) -> Result<MaybeMapped> {
        check_range(source, offset, len)?;
        let part = self
            .window(source, offset, len)
            .and_then(|(start, map)| MappedRange::of(map, offset - start, len));
        part.map_or_else(|| MaybeMapped::of(source, offset, len, spare), |part| Ok(MaybeMapped::Mapped(part)))
    }

    /// Returns the window that contains the range, and its start.
    fn window(&self, source: &dyn Source, offset: u64, len: u64) -> Option<(u64, Arc<dyn Mapped>)> {
        let start = offset - offset % WINDOW;
        let end = source.len().min(start + WINDOW + OVERLAP);
        if len == 0 || offset + len > end || end - start < MAPPED_FROM {
            return None;
        }
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, map)) = last.as_ref().filter(|(at, _)| *at == start) {
            return Some((start, map.clone()));
        }
        let map = source.map(start, end - start)?;
        *last = Some((start, map.clone()));
        Some((start, map))
    }
}
