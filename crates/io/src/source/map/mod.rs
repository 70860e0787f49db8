//! Mapped files: no copy, and no signal that ends the process.
//!
//! The one module of the library with `unsafe` code.
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
/// When another program cuts the file short, or the device fails, the system raises a signal at the first
/// touch of a lost page. The guard puts pages of zeros there and takes note: the process lives on, and
/// [`intact`](Self::intact) says from then on that the bytes are not the file's. Whoever computes from
/// [`bytes`](Self::bytes) asks it *afterwards*, before the result is believed: it also looks whether the file still
/// reaches to the end of the map, as the system tells nobody of what is lost within the last page.
///
/// Another program that writes into the file changes the bytes under the reader's eyes, as with any map.
#[derive(Debug)]
pub struct Map {
    // Given back before the map is: its addresses may be another map's a moment later.
    guard: guard::Guard,
    map: memmap2::Mmap,
    end: End,
}

/// A file, and how long it must be so that a map of it holds its bytes. The system fills the rest of the last page that is
/// there with zeros, and raises no signal for these.
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

    /// True while the file reaches to the end of the map.
    fn stands(&self) -> bool {
        self.file.metadata().is_ok_and(|metadata| metadata.len() >= self.at)
    }
}

impl Map {
    /// Maps `len` bytes from `offset` on, which lie within the file, to be looked at now: the system is asked to
    /// read them ahead.
    ///
    /// `None` where the file cannot be mapped, or maps are not guarded ([`guard_maps`]): then it is to be read.
    pub(crate) fn of(file: &File, offset: u64, len: u64) -> Option<Self> {
        let map = Self::of_later(file, offset, len)?;
        // Read ahead for as much; where it fails, pages come one by one. What is there already is mapped at its first touch, by
        // whoever touches it: to have it all mapped here costs more than that.
        #[cfg(unix)]
        let _ = map.map.advise(memmap2::Advice::WillNeed);
        Some(map)
    }

    /// As [`of`](Self::of), where pages come when they are touched.
    pub(crate) fn of_later(file: &File, offset: u64, len: u64) -> Option<Self> {
        let len = to_usize(len).ok().filter(|&len| len > 0 && guard::maps_are_guarded())?;
        let mut options = memmap2::MmapOptions::new();
        // SAFETY: the map is read-only, and a page that is lost is replaced by the guard below, before which
        // nothing is touched. Rust cannot forbid other processes to write to the file: the bytes are only read
        // as numbers, never trusted to stay what they were, and no reference to them is kept as anything else.
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
        match self.guard.lost() || !self.end.stands() {
            true => Err(Error::shrank()),
            false => Ok(()),
        }
    }
}

/// A range of a file of which every page is copied when it is written to: what is written never reaches the file. Guarded as
/// [`Map`]: pages behind the end of a file that was cut short are lost, also where they were written to.
#[derive(Debug)]
pub(crate) struct PrivateMap {
    guard: guard::Guard,
    map: memmap2::MmapMut,
    end: End,
}

impl PrivateMap {
    /// Maps `len` bytes from `offset` on, which lie within the file. `None` as for [`Map::of`].
    pub(crate) fn of(file: &File, offset: u64, len: u64) -> Option<Self> {
        let len = to_usize(len).ok().filter(|&len| len > 0 && guard::maps_are_guarded())?;
        let mut options = memmap2::MmapOptions::new();
        // SAFETY: as for `Map`; besides, nobody but the owner can write to these pages.
        #[allow(unsafe_code)]
        let map = unsafe { options.offset(offset).len(len).no_reserve_swap().map_copy(file) }.ok()?;
        let guard = guard::Guard::over(&map, true)?;
        Some(Self { guard, map, end: End::of(file, offset, len)? })
    }

    /// The bytes; zeros where they were lost.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.map
    }

    /// The bytes, to be written to.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.map
    }

    /// True when bytes that were looked at since the file was mapped were not the file's.
    pub(crate) fn lost(&self) -> bool {
        self.guard.lost() || !self.end.stands()
    }
}

/// A file mapped into memory, for views that copy nothing: [`MapSource::bytes`].
///
/// Pages count as resident memory while they are touched. Reading it as a [`Source`] goes through the file and not
/// through the map. [`FileSource`] is what opening a path uses.
#[derive(Debug)]
pub struct MapSource {
    /// `None` where there is no byte.
    map: Option<Map>,
    file: FileSource,
}

impl MapSource {
    /// Maps the file at `path`, read-only.
    ///
    /// # Errors
    /// As [`FileSource::open`], and [`weighbridge_core::Kind::Unsupported`], `cannot-map`, when the program did not call
    /// [`guard_maps`], the system refuses the map, or another part of the process took the signal that guards it.
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
                    .hint("a program calls `guard_maps` once before it maps files")
            })?),
        };
        Ok(Self { map, file })
    }

    /// The whole file, without a copy. Where the file was cut short after it was opened, bytes that are lost read as
    /// zeros: ask [`check`](Self::check) after looking.
    pub fn bytes(&self) -> &[u8] {
        self.map.as_ref().map_or(&[], Mapped::bytes)
    }

    /// Fails when bytes that were looked at were lost.
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

/// Taken by tests that need a place in the guard's table; by the one that fills the table, to be alone.
#[cfg(test)]
pub(super) static TABLE: std::sync::RwLock<()> = std::sync::RwLock::new(());

/// Guards maps, and takes [`TABLE`] for a test that needs a place in it.
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
    fn lost_pages_are_zeros_and_known() {
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
        // Nobody touched the other; the file is too short for it all the same.
        assert_eq!(other.check().unwrap_err().code().as_str(), "file-shrank");
    }

    #[test]
    fn a_file_longer_than_memory_is_replaced_too() {
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
    fn many_maps_come_and_go_by_many_threads() {
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
    fn more_maps_than_the_guard_can_hold_are_not_made() {
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
    fn an_empty_file_is_mapped_too() {
        let _table = guarded();
        let file = tempfile::NamedTempFile::new().unwrap();
        let map = MapSource::open(file.path()).unwrap();
        assert!(map.bytes().is_empty());
        map.check().unwrap();
    }
}
