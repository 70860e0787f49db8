//! Bytes to look at once: mapped where that saves a copy, else read.

use super::{Map, MapPart, Source, check_range, to_usize};
use crate::error::Result;
use std::sync::{Arc, Mutex, PoisonError};

/// Shorter ranges are read: a map costs some calls of the system.
const MAPPED_FROM: u64 = 256 << 10;
/// Bytes of a window: giving a map back stops all threads for a moment, so few are made.
const WINDOW: u64 = 16 << 20;
/// Bytes by which a window reaches into the next one, for ranges that lie across its end.
const OVERLAP: u64 = 2 << 20;

/// Bytes of a source in memory.
///
/// Those of a file are mapped, which costs no copy; a page that was lost meanwhile reads as zeros, and
/// [`intact`](Self::intact) tells. It is asked when the bytes were looked at, before the result is believed.
#[derive(Debug)]
pub(crate) enum Held {
    /// They were read.
    Read(Vec<u8>),
    /// They are a file's: a range of what is mapped of it.
    Mapped(MapPart),
}

impl Default for Held {
    fn default() -> Self {
        Self::Read(Vec::new())
    }
}

impl Held {
    /// Gets `len` bytes from `offset` on. `spare` lends its memory where bytes have to be read.
    ///
    /// # Errors
    /// As [`Source::read_at`].
    pub(crate) fn of(source: &dyn Source, offset: u64, len: u64, mut spare: Vec<u8>) -> Result<Self> {
        check_range(source, offset, len)?;
        if let Some(range) = source.file().filter(|_| len >= MAPPED_FROM)
            && let Some(place) = range.offset.checked_add(offset)
            && let Some(map) = Map::of(range.file, place, len)
            && let Some(part) = MapPart::of(Arc::new(map), 0, len)
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
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Read(bytes) => bytes,
            Self::Mapped(part) => part.bytes(),
        }
    }

    /// Fails when bytes that were looked at were lost.
    ///
    /// # Errors
    /// [`crate::Kind::Io`], `file-shrank`; the caller knows the file and the place.
    pub(crate) fn intact(&self) -> Result<()> {
        match self {
            Self::Read(_) => Ok(()),
            Self::Mapped(part) => part.intact(),
        }
    }

    /// Memory for the next one.
    pub(crate) fn into_spare(self) -> Vec<u8> {
        match self {
            Self::Read(bytes) => bytes,
            Self::Mapped(_) => Vec::new(),
        }
    }
}

/// Gets ranges of one source one after the other, by many threads: a file is mapped in windows that neighbours share.
#[derive(Debug, Default)]
pub(crate) struct Windows {
    /// Where the last window begins.
    last: Mutex<Option<(u64, Arc<Map>)>>,
}

impl Windows {
    /// As [`Held::of`]; always for the same source.
    ///
    /// # Errors
    /// As [`Held::of`].
    pub(crate) fn get(&self, source: &dyn Source, offset: u64, len: u64, spare: Vec<u8>) -> Result<Held> {
        check_range(source, offset, len)?;
        let part =
            self.window(source, offset, len).and_then(|(start, map)| MapPart::of(map, offset - start, len));
        part.map_or_else(|| Held::of(source, offset, len, spare), |part| Ok(Held::Mapped(part)))
    }

    /// The window that holds the range, and where it begins.
    fn window(&self, source: &dyn Source, offset: u64, len: u64) -> Option<(u64, Arc<Map>)> {
        let start = offset - offset % WINDOW;
        let end = source.len().min(start + WINDOW + OVERLAP);
        if len == 0 || offset + len > end || end - start < MAPPED_FROM {
            return None;
        }
        let range = source.file()?;
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, map)) = last.as_ref().filter(|(at, _)| *at == start) {
            return Some((start, map.clone()));
        }
        let map = Arc::new(Map::of(range.file, range.offset.checked_add(start)?, end - start)?);
        *last = Some((start, map.clone()));
        Some((start, map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{FileSource, MemorySource};
    use std::io::Write;

    #[test]
    fn ranges_are_the_same_mapped_and_read() {
        let len = usize::try_from(WINDOW).unwrap() * 2 + 12345;
        let bytes: Vec<u8> = (0..len).map(|i| u8::try_from(i * 7 % 251).unwrap()).collect();
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&bytes).unwrap();
        let file = FileSource::open(file.path()).unwrap();
        let memory = MemorySource::new("m", bytes.clone());
        let (windows, others) = (Windows::default(), Windows::default());
        let megabyte = 1 << 20;
        for start in
            [0, 5, WINDOW - megabyte, WINDOW - 1, WINDOW, WINDOW + OVERLAP, 2 * WINDOW - 1, 2 * WINDOW]
        {
            for wanted in [0, 1, megabyte, 3 * megabyte, WINDOW] {
                let wanted = wanted.min(len as u64 - start);
                let from = usize::try_from(start).unwrap();
                let truth = &bytes[from..from + usize::try_from(wanted).unwrap()];
                for held in [
                    windows.get(&file, start, wanted, Vec::new()),
                    others.get(&memory, start, wanted, vec![1; 9]),
                    Held::of(&file, start, wanted, vec![1; 9]),
                ] {
                    let held = held.unwrap();
                    assert!(held.bytes() == truth, "{start} {wanted}");
                    held.intact().unwrap();
                }
            }
        }
        assert_eq!(windows.get(&file, len as u64, 1, Vec::new()).unwrap_err().code(), "past-the-end");
    }
}
