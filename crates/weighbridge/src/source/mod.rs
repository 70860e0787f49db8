//! Where bytes come from: a file, a map, memory, a range of another source.
//!
//! A [`Source`] has a length and positional reads into the caller's buffer. There is no seek
//! position, so one source serves many threads.

mod concat;
mod counting;
mod cursor;
mod file;
mod folder;
mod held;
mod identity;
mod kept;
mod map;
mod memory;
mod range;
mod rows;
mod stamp;
mod witness;

pub use concat::ConcatSource;
pub use counting::CountingSource;
pub use cursor::Cursor;
pub(crate) use file::read_exact_at as read_file_at;
pub use file::{FileSource, PathKind, check_local, kind_of_path};
pub(crate) use folder::{FOLDER_DEPTH, IGNORED_NAMES, check_no_links, check_plain, check_shard};
pub use folder::{
    Folder, FolderItem, FolderRef, LocalFolder, MemoryFolder, SkipReason, SkippedItem, Survey, check_relative,
};
pub(crate) use held::{Held, Windows};
pub(crate) use identity::FileIdentity;
pub(crate) use kept::KeptBlocks;
#[cfg(test)]
pub(crate) use map::TABLE;
pub(crate) use map::{Map, MapPart, PrivateMap};
pub use map::{MapSource, notify as notify_of_lost_pages};
pub use memory::MemorySource;
pub use range::RangeSource;
pub use rows::RowsSource;
pub(crate) use stamp::stamp_of_itself;
pub use stamp::{Stamp, name_below, own_name, real_path, stamp_of_path};
pub use witness::Witnesses;

use crate::error::{Error, Result};
use std::fmt::Debug;
use std::sync::Arc;

/// A shared source. Cheap to clone.
pub type SourceRef = Arc<dyn Source>;

/// Bytes of known length that can be read at any place, by many threads at once.
///
/// To implement it: [`len`](Self::len), [`read_at`](Self::read_at) and [`label`](Self::label).
/// `read_at` fills the whole buffer or fails; it never returns less. An asynchronous store adapts
/// itself inside its own source.
pub trait Source: Debug + Send + Sync {
    /// The length in bytes, as it was when the source was opened.
    fn len(&self) -> u64;

    /// True where there is not one byte.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `buffer` with the bytes from `offset` on.
    ///
    /// # Errors
    /// [`crate::Kind::Corrupt`] with code `past-the-end` when the range leaves the source,
    /// [`crate::Kind::Io`] when the device fails or the file has shrunk.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()>;

    /// What people call it: the path of a file. Errors name it.
    fn label(&self) -> &str;

    /// All bytes at once, where they are in memory anyway.
    fn as_slice(&self) -> Option<&[u8]> {
        None
    }

    /// The file behind the bytes and the offset at which they begin in it, for copies by the
    /// kernel and to recognise that an output is an input.
    fn file(&self) -> Option<FileRange<'_>> {
        None
    }

    /// True where reading forwards is much cheaper than jumping, as in a compressed stream. The
    /// engine reads such a source from one thread, in order.
    fn is_sequential(&self) -> bool {
        false
    }

    /// True where reading unpacks bytes or holds them against a checksum, and so finds what is damaged.
    fn is_decoded(&self) -> bool {
        self.within().is_some_and(|within| within.encoded || within.source.is_decoded())
    }

    /// Where these bytes stand in another source, for those who account for every byte of it.
    fn within(&self) -> Option<Within<'_>> {
        None
    }

    /// The ranges of other sources that these bytes come from: none where the bytes stand nowhere
    /// and are made when they are read; `None` where they stand in this source itself, as in a file.
    fn made_of(&self) -> Option<Vec<Within<'_>>> {
        self.within().map(|within| vec![within])
    }
}

/// The range of another source that a source is made of.
#[derive(Debug, Clone, Copy)]
pub struct Within<'a> {
    /// The other source.
    pub source: &'a SourceRef,
    /// Offset of the first byte in it.
    pub offset: u64,
    /// Number of bytes in it.
    pub len: u64,
    /// True where the range is an encoded form of the bytes, such as a deflated one; false where
    /// they stand there as they are.
    pub encoded: bool,
}

/// A file handle with the place where a source begins in it.
#[derive(Debug, Clone, Copy)]
#[allow(clippy::disallowed_types)]
pub struct FileRange<'a> {
    /// The opened file.
    pub file: &'a std::fs::File,
    /// Offset of the source's first byte in the file.
    pub offset: u64,
}

/// Fails unless `offset .. offset + len` lies within `source`.
///
/// # Errors
/// [`crate::Kind::Corrupt`], code `past-the-end`.
pub fn check_range(source: &dyn Source, offset: u64, len: u64) -> Result<()> {
    match offset.checked_add(len) {
        Some(end) if end <= source.len() => Ok(()),
        _ => Err(Error::corrupt("past-the-end", "the file ends before the data it announces")
            .in_file(source.label())
            .at(offset)
            .expected(format_args!("{len} bytes from here"))
            .found(format_args!("{} bytes", source.len().saturating_sub(offset)))),
    }
}

/// Reads `len` bytes into memory, after holding the range against the source.
///
/// # Errors
/// As [`check_range`] and [`Source::read_at`].
pub fn read_vec(source: &dyn Source, offset: u64, len: u64) -> Result<Vec<u8>> {
    check_range(source, offset, len)?;
    let mut bytes = vec![0; to_usize(len)?];
    source.read_at(offset, &mut bytes)?;
    Ok(bytes)
}

/// A length as an index of memory.
pub(crate) fn to_usize(n: u64) -> Result<usize> {
    usize::try_from(n).map_err(|_| {
        Error::limit(
            "too-large-for-memory",
            format!("{n} bytes do not fit into this machine's address space"),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// What every source owes: the same bytes at every place, and an error past the end.
    fn conforms(source: &dyn Source, truth: &[u8]) {
        assert_eq!(source.len(), truth.len() as u64);
        for offset in 0..=truth.len() {
            for len in [0, 1, 3, truth.len() - offset] {
                let mut buffer = vec![0xAA; len];
                let result = source.read_at(offset as u64, &mut buffer);
                match truth.get(offset..offset + len) {
                    Some(expected) => {
                        result.unwrap();
                        assert_eq!(buffer, expected);
                    }
                    None => assert_eq!(result.unwrap_err().code(), "past-the-end"),
                }
            }
        }
        assert_eq!(source.read_at(u64::MAX, &mut [0]).unwrap_err().code(), "past-the-end");
        if let Some(slice) = source.as_slice() {
            assert_eq!(slice, truth);
        }
    }

    #[test]
    fn all_sources_conform() {
        let truth: Vec<u8> = (0..100).collect();
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&truth).unwrap();
        let opened: SourceRef = Arc::new(FileSource::open(file.path()).unwrap());
        conforms(&*opened, &truth);
        let map = MapSource::open(file.path()).unwrap();
        conforms(&map, &truth);
        assert_eq!(map.bytes(), truth);
        conforms(&MemorySource::new("memory", truth.clone()), &truth);
        let range = RangeSource::new(opened.clone(), 10, 50).unwrap();
        conforms(&range, &truth[10..60]);
        assert_eq!(range.file().unwrap().offset, 10);
        let parts = vec![(opened.clone(), 0, 7), (opened.clone(), 7, 0), (opened.clone(), 7, 93)];
        conforms(&ConcatSource::new("parts", parts).unwrap(), &truth);
        assert!(ConcatSource::new("parts", vec![(opened.clone(), 99, 2)]).is_err());
        let counting = CountingSource::new(opened);
        conforms(&counting, &truth);
        assert!(counting.bytes_read() > 0);
    }

    #[test]
    fn a_range_must_lie_within() {
        let memory: SourceRef = Arc::new(MemorySource::new("m", vec![0; 4]));
        assert!(RangeSource::new(memory.clone(), 4, 0).is_ok());
        assert!(RangeSource::new(memory.clone(), 3, 2).is_err());
        assert!(RangeSource::new(memory, u64::MAX, 2).is_err());
    }

    #[test]
    fn a_file_that_shrinks_is_an_error() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&[1; 100]).unwrap();
        let sources: [SourceRef; 2] = [
            Arc::new(FileSource::open(file.path()).unwrap()),
            Arc::new(MapSource::open(file.path()).unwrap()),
        ];
        file.as_file().set_len(10).unwrap();
        for source in sources {
            let error = source.read_at(0, &mut [0; 100]).unwrap_err();
            assert_eq!(error.code(), "file-shrank");
        }
    }
}
