//! Bytes to look at once: mapped where that saves a copy, else read.

use super::{Source, check_range, to_usize};
use crate::error::Result;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// Shorter ranges are read: a map costs some calls of the system.
const MAPPED_FROM: u64 = 256 << 10;
/// Bytes of a window: giving a map back stops all threads for a moment, so few are made.
const WINDOW: u64 = 16 << 20;
/// Bytes by which a window reaches into the next one, for ranges that lie across its end.
const OVERLAP: u64 = 2 << 20;

/// Bytes of a file that are mapped into memory.
pub trait Mapped: Debug + Send + Sync {
    /// The bytes; zeros where they were lost because the file became shorter.
    fn bytes(&self) -> &[u8];

    /// Fails when bytes that were looked at since the file was mapped were not the file's.
    ///
    /// # Errors
    /// [`crate::Kind::Io`], `file-shrank`.
    fn intact(&self) -> Result<()>;
}

/// A range that lies within a map, which others may share.
#[derive(Debug, Clone)]
pub struct MappedRange {
    map: Arc<dyn Mapped>,
    range: Range<usize>,
}

impl MappedRange {
    /// `len` bytes from `from` on; `None` where they are not all within the map.
    pub fn of(map: Arc<dyn Mapped>, from: u64, len: u64) -> Option<Self> {
        let end = to_usize(from.checked_add(len)?).ok()?;
        let range = to_usize(from).ok()?..end;
        (end <= map.bytes().len()).then_some(Self { map, range })
    }

    /// The bytes; zeros where they were lost.
    pub fn bytes(&self) -> &[u8] {
        &self.map.bytes()[self.range.clone()]
    }

    /// As [`Mapped::intact`].
    ///
    /// # Errors
    /// As [`Mapped::intact`].
    pub fn intact(&self) -> Result<()> {
        self.map.intact()
    }
}

/// Bytes of a source in memory.
///
/// Those of a file are mapped, which costs no copy; a page that was lost meanwhile reads as zeros, and
/// [`intact`](Self::intact) tells. It is asked when the bytes were looked at, before the result is believed.
#[derive(Debug)]
pub enum MaybeMapped {
    /// They were read.
    Read(Vec<u8>),
    /// They are a file's: a range of what is mapped of it.
    Mapped(MappedRange),
}

impl Default for MaybeMapped {
    fn default() -> Self {
        Self::Read(Vec::new())
    }
}

impl MaybeMapped {
    /// Gets `len` bytes from `offset` on. `spare` lends its memory where bytes have to be read.
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

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Read(bytes) => bytes,
            Self::Mapped(part) => part.bytes(),
        }
    }

    /// Fails when bytes that were looked at were lost.
    ///
    /// # Errors
    /// [`crate::Kind::Io`], `file-shrank`; the caller knows the file and the place.
    pub fn intact(&self) -> Result<()> {
        match self {
            Self::Read(_) => Ok(()),
            Self::Mapped(part) => part.intact(),
        }
    }

    /// Memory for the next one.
    pub fn into_spare(self) -> Vec<u8> {
        match self {
            Self::Read(bytes) => bytes,
            Self::Mapped(_) => Vec::new(),
        }
    }
}

/// Gets ranges of one source one after the other, by many threads: a file is mapped in windows that neighbours share.
#[derive(Debug, Default)]
pub struct MapWindows {
    /// Where the last window begins.
    last: Mutex<Option<(u64, Arc<dyn Mapped>)>>,
}

impl MapWindows {
    /// As [`MaybeMapped::of`]; always for the same source.
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

    /// The window that holds the range, and where it begins.
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
