//! A mapped file: no copy, but the file must not change while it is open.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use super::{FileRange, FileSource, Source, check_range};
use crate::error::{Error, Result};
use std::path::Path;

/// A file mapped into memory, for views that copy nothing: [`MapSource::bytes`].
///
/// Choose it knowingly. When another program cuts the file short under the map, touching the lost
/// pages through `bytes` ends the process with a signal; and pages count as resident memory while
/// they are touched. Reading it as a [`Source`] goes through the file and not through the map: all that
/// this crate does with it gives an error then, never a signal. [`FileSource`] is what
/// [`crate::open`] uses.
#[derive(Debug)]
pub struct MapSource {
    map: memmap2::Mmap,
    file: FileSource,
}

impl MapSource {
    /// Maps the file at `path`, read-only.
    ///
    /// # Errors
    /// As [`FileSource::open`], and [`crate::Kind::Io`] when the system refuses the map.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let file = FileSource::open(path)?;
        let Some(range) = file.file() else {
            return Err(Error::usage("not-a-file", "only files can be mapped"));
        };
        // SAFETY: the map is read-only and lives as long as `self`. Rust cannot forbid other
        // processes to write to the file; the type's documentation passes that duty on, and no
        // code of this crate keeps a value that it derived from mapped bytes without checking.
        #[allow(unsafe_code)]
        let map = unsafe { memmap2::Mmap::map(range.file) }
            .map_err(|e| Error::io("cannot map the file", e).in_file(file.label()))?;
        Ok(Self { map, file })
    }

    /// The whole file, without a copy. Whoever looks at it answers for the file staying as long as it is.
    pub fn bytes(&self) -> &[u8] {
        &self.map
    }
}

impl Source for MapSource {
    fn len(&self) -> u64 {
        self.map.len() as u64
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
}
