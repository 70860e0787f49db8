//! Memory-mapped files: no copy, and no SIGBUS that ends the process.
//!
//! This is the only module of the library with `unsafe` code.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

mod guard;

use super::{FileRange, FileSource, Mapped, Source, check_range, to_usize};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use weighbridge_core::error::{Error, Result};

pub use guard::{guard_maps, maps_are_guarded, notify};

/// A range of a file, mapped read-only and guarded.
///
/// When another program truncates the file, or the device fails, the system raises a signal at the first
/// access to a lost page. The guard maps pages of zeros there and records the loss: the process continues, and
/// [`intact`](Self::intact) fails from then on. Callers must call it *after* computing from
/// [`bytes`](Self::bytes) and before they use the result. It also checks that the file still reaches the end of
/// the map, as no signal is raised for bytes lost within the last page.
///
/// If another program writes to the file, the mapped bytes change during reading, as with any map.
#[derive(Debug)]
pub struct Map {
    // Dropped before the map: its addresses may belong to another map right after.
    guard: guard::Guard,
    map: memmap2::Mmap,
    end: End,
}

/// A file, and the minimum length for which a map is complete. The system fills the rest of the last page with zeros,
/// and raises no signal for these.
#[derive(Debug)]
struct End {
    file: File,
    at: u64,
}

impl End {
    fn of(file: &File, offset: u64, len: usize) -> Option<Self> {
        let at = offset.checked_add(u64::try_from(len).ok()?)?;
        Some(Self { file: file.try_clone().ok()?, at })
    }

    /// True while the file reaches the end of the map.
    fn is_reached(&self) -> bool {
        self.file.metadata().is_ok_and(|metadata| metadata.len() >= self.at)
    }
}

impl Map {
    /// Maps `len` bytes from `offset` on, within the file, for immediate reading: the system is asked to read them
    /// ahead.
    ///
    /// `None` where the file cannot be mapped, or maps are not guarded ([`guard_maps`]): the caller must read it instead.
    pub(crate) fn of(file: &File, offset: u64, len: u64) -> Option<Self> {
        let map = Self::of_later(file, offset, len)?;
        // If this fails, pages are loaded one by one. Cached pages are mapped at their first access: mapping all of them
        // here costs more.
        #[cfg(unix)]
        let _ = map.map.advise(memmap2::Advice::WillNeed);
        Some(map)
    }

    /// Same as [`of`](Self::of), without reading ahead.
    pub(crate) fn of_later(file: &File, offset: u64, len: u64) -> Option<Self> {
        let len = to_usize(len).ok().filter(|&len| len > 0 && guard::maps_are_guarded())?;
        let mut options = memmap2::MmapOptions::new();
        // SAFETY: the map is read-only, and a lost page is replaced by the guard below; nothing is accessed
        // before the guard exists. Rust cannot prevent other processes from writing to the file: the bytes are
        // only read as plain numbers, never assumed to stay unchanged, and never referenced as another type.
        #[allow(unsafe_code)]
        let map = unsafe { options.offset(offset).len(len).map(file) }.ok()?;
        let guard = guard::Guard::over(&map, false)?;
        Some(Self { guard, map, end: End::of(file, offset, len)? })
    }
}

impl Mapped for Map {
    fn bytes(&self) -> &[u8] {
        &self.map
    }

    fn intact(&self) -> Result<()> {
        match self.guard.lost() || !self.end.is_reached() {
            true => Err(Error::shrank()),
            false => Ok(()),
        }
    }
}

/// Range of a file mapped copy-on-write: writes never reach the file. Guarded like [`Map`]: pages beyond the end of a
/// truncated file are lost, also those that were written to.
#[derive(Debug)]
pub(crate) struct PrivateMap {
    guard: guard::Guard,
    map: memmap2::MmapMut,
    end: End,
}

impl PrivateMap {
    /// Maps `len` bytes from `offset` on, within the file. `None` as for [`Map::of`].
    pub(crate) fn of(file: &File, offset: u64, len: u64) -> Option<Self> {
        let len = to_usize(len).ok().filter(|&len| len > 0 && guard::maps_are_guarded())?;
        let mut options = memmap2::MmapOptions::new();
        // SAFETY: as for `Map`; besides, only the owner can write to these pages.
        #[allow(unsafe_code)]
        let map = unsafe { options.offset(offset).len(len).no_reserve_swap().map_copy(file) }.ok()?;
        let guard = guard::Guard::over(&map, true)?;
        Some(Self { guard, map, end: End::of(file, offset, len)? })
    }

    /// The bytes; zeros where they were lost.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.map
    }

    /// The bytes, writable.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.map
    }

    /// True where bytes read since the mapping were not those of the file.
    pub(crate) fn lost(&self) -> bool {
        self.guard.lost() || !self.end.is_reached()
    }
}

/// A file mapped into memory, for views that copy nothing: [`MapSource::bytes`].
///
/// Accessed pages count as resident memory. Reads as a [`Source`] use the file and not the map. Opening a path uses
/// [`FileSource`].
#[derive(Debug)]
pub struct MapSource {
    /// `None` for an empty file.
    map: Option<Map>,
    file: FileSource,
}

impl MapSource {
    /// Maps the file at `path`, read-only.
    ///
    /// # Errors
    /// As [`FileSource::open`], and [`weighbridge_core::Kind::Unsupported`], `cannot-map`, where the program did not call
    /// [`guard_maps`], the system refuses the map, or another part of the process replaced the signal handler.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let file = FileSource::open(path)?;
        let Some(range) = file.file() else {
            return Err(Error::usage("not-a-file", "only files can be mapped"));
        };
        let map = match file.len() {
            0 => None,
            len => Some(Map::of_later(range.file, 0, len).ok_or_else(|| {
                Error::unsupported("cannot-map", "the file cannot be mapped")
                    .in_file(file.label())
                    .hint("call `guard_maps` once before mapping files")
            })?),
        };
        Ok(Self { map, file })
    }

    /// Returns the whole file without a copy. If the file was truncated after opening, lost bytes read as zeros: call
    /// [`check`](Self::check) after reading.
    pub fn bytes(&self) -> &[u8] {
        self.map.as_ref().map_or(&[], Mapped::bytes)
    }

    /// Fails where bytes that were read were lost.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`], `file-shrank`.
    pub fn check(&self) -> Result<()> {
        self.map.as_ref().map_or(Ok(()), Mapped::intact).map_err(|e| e.in_file(self.label()))
    }
}

impl Source for MapSource {
    fn len(&self) -> u64 {
        self.file.len()
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        check_range(self, offset, buffer.len() as u64)?;
        self.file.read_at(offset, buffer)
    }
    fn label(&self) -> &str {
        self.file.label()
    }
    fn file(&self) -> Option<FileRange<'_>> {
        self.file.file()
    }
    fn map(&self, offset: u64, len: u64) -> Option<Arc<dyn Mapped>> {
        self.file.map(offset, len)
    }
}

/// Lock for tests that need a slot of the guard's table; held exclusively by the test that fills the table.
#[cfg(test)]
pub(super) static TABLE: std::sync::RwLock<()> = std::sync::RwLock::new(());

/// Guards maps, and locks [`TABLE`] for a test that needs a slot.
#[cfg(test)]
pub fn guarded() -> std::sync::RwLockReadGuard<'static, ()> {
    assert!(guard_maps());
    TABLE.read().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn lost_pages_are_zeros_and_reported() {
        let _table = guarded();
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&[7; 1 << 20]).unwrap();
        let other = MapSource::open(file.path()).unwrap();
        let map = MapSource::open(file.path()).unwrap();
        assert!(map.bytes().iter().all(|&b| b == 7));
        map.check().unwrap();
        file.as_file().set_len(10).unwrap();
        // The system keeps the last page, filled with zeros.
        assert_eq!(map.bytes()[..11], [7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 0]);
        assert_eq!(map.check().unwrap_err().code().as_str(), "file-shrank");
        assert!(map.bytes()[1 << 19..].iter().all(|&b| b == 0));
        assert_eq!(map.check().unwrap_err().code().as_str(), "file-shrank");
        // The other map was not accessed since; the file is still too short for it.
        assert_eq!(other.check().unwrap_err().code().as_str(), "file-shrank");
    }

    #[test]
    fn lost_pages_of_files_larger_than_memory_are_replaced() {
        let _table = guarded();
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 42).unwrap();
        let map = Map::of_later(file.as_file(), 0, 1 << 42).unwrap();
        let mut private = PrivateMap::of(file.as_file(), 0, 1 << 36).unwrap();
        file.as_file().set_len(0).unwrap();
        for place in [0, 1 << 20, (1 << 42) - 1] {
            assert_eq!(map.bytes()[place], 0);
        }
        private.bytes_mut()[1 << 35] = 1;
        assert_eq!(private.bytes()[1 << 35..][..2], [1, 0]);
        assert!(map.intact().is_err() && private.lost());
    }

    #[test]
    fn maps_are_guarded_in_many_threads() {
        let _table = guarded();
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&[7; 1 << 16]).unwrap();
        let mut cut = tempfile::NamedTempFile::new().unwrap();
        cut.write_all(&[7; 1 << 16]).unwrap();
        std::thread::scope(|scope| {
            for number in 0..4 {
                let (file, cut) = (file.as_file(), cut.as_file());
                scope.spawn(move || {
                    for _ in 0..200 {
                        let whole = Map::of(file, 4096 * number + 5, 9000).unwrap();
                        let lost = Map::of_later(cut, 1 << 12, 1 << 12).unwrap();
                        cut.set_len(0).unwrap();
                        assert_eq!(lost.bytes().iter().map(|&b| u64::from(b)).sum::<u64>(), 0);
                        assert!(lost.intact().is_err());
                        assert!(whole.bytes().iter().all(|&b| b == 7));
                        whole.intact().unwrap();
                    }
                });
            }
        });
    }

    #[test]
    fn maps_beyond_the_guard_table_are_refused() {
        assert!(guard_maps());
        let _table = TABLE.write().unwrap();
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&[7; 5000]).unwrap();
        let maps: Vec<_> = (0..guard::SLOTS + 10).map(|_| Map::of(file.as_file(), 0, 5000)).collect();
        assert!(maps.last().unwrap().is_none());
        drop(maps);
        assert!(Map::of(file.as_file(), 0, 5000).is_some());
        assert!(Map::of(file.as_file(), 0, 0).is_none());
    }

    #[test]
    fn empty_files_can_be_mapped() {
        let _table = guarded();
        let file = tempfile::NamedTempFile::new().unwrap();
        let map = MapSource::open(file.path()).unwrap();
        assert!(map.bytes().is_empty());
        map.check().unwrap();
    }
}
