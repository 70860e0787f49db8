//! Sources of bytes: files, memory, ranges of other sources, and caches over them.
//!
//! A [`Source`] has a length and positional reads into the caller's buffer. It has no seek position: threads can share
//! one. `weighbridge-io` opens files.

mod block_cache;
mod concat;
mod counting;
mod cursor;
mod folder;
mod mapped;
mod memory;
mod range;
mod read_tracker;
mod rows;

pub use block_cache::{BlockCache, CachedBlocks};
pub use concat::ConcatSource;
pub use counting::CountingSource;
pub use cursor::Cursor;
pub use folder::{
    Folder, FolderItem, FolderRef, MemoryFolder, SkipReason, SkippedItem, check_plain, check_relative,
    check_shard, sort_by_name,
};
pub use mapped::{MapWindows, Mapped, MappedRange, MaybeMapped};
pub use memory::MemorySource;
pub use range::RangeSource;
pub use read_tracker::ReadTracker;
pub use rows::RowsSource;

use crate::error::{Error, Result};
use crate::text::counted;
use std::fmt::Debug;
use std::sync::Arc;

/// Shared source. Cheap to clone.
pub type SourceRef = Arc<dyn Source>;

/// Bytes of known length, readable at any offset by many threads at once.
///
/// Implementations need [`len`](Self::len), [`read_at`](Self::read_at) and [`label`](Self::label). `read_at` fills the whole
/// buffer or fails. An asynchronous store blocks inside its own source.
pub trait Source: Debug + Send + Sync {
    /// Returns the length in bytes at the time of opening.
    fn len(&self) -> u64;

    /// Returns true if the source has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `buffer` with the bytes from `offset` on.
    ///
    /// # Errors
    /// [`crate::Kind::Corrupt`] with code `past-the-end` if the range exceeds the source, [`crate::Kind::Io`] if the device
    /// fails or the file was truncated.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()>;

    /// Returns the display name for errors: the path of a file.
    fn label(&self) -> &str;

    /// Returns all bytes, if they are in memory already.
    fn as_slice(&self) -> Option<&[u8]> {
        None
    }

    /// Returns the file with the bytes, and their offset in it. Used for copies by the kernel, and to detect an output that is
    /// also an input.
    fn file(&self) -> Option<FileRange<'_>> {
        None
    }

    /// Maps `len` bytes from `offset`, a range within the source. `None` if they cannot be mapped and must be read.
    fn map(&self, offset: u64, len: u64) -> Option<Arc<dyn Mapped>> {
        let _ = (offset, len);
        None
    }

    /// Returns true if sequential reads are much cheaper than random ones, as in a compressed stream. The engine reads such a
    /// source in order from one thread.
    fn is_sequential(&self) -> bool {
        false
    }

    /// Returns true if reading decompresses the bytes or verifies a checksum, and so detects damage.
    fn is_decoded(&self) -> bool {
        self.within().is_some_and(|within| within.encoded || within.source.is_decoded())
    }

    /// Returns the range of another source with these bytes, for checks that account for every byte of it.
    fn within(&self) -> Option<Within<'_>> {
        None
    }

    /// Returns the ranges of other sources with these bytes. Empty if the bytes are generated on reading; `None` if this source
    /// stores them itself, as a file does.
    fn made_of(&self) -> Option<Vec<Within<'_>>> {
        self.within().map(|within| vec![within])
    }
}

/// Range of another source that contains the bytes of a source.
#[derive(Debug, Clone, Copy)]
pub struct Within<'a> {
    /// Other source.
    pub source: &'a SourceRef,
    /// Offset of the first byte in it.
    pub offset: u64,
    /// Number of bytes in it.
    pub len: u64,
    /// True if the range is an encoded form of the bytes, such as deflated; false if it contains them unchanged.
    pub encoded: bool,
}

/// File handle with the offset of a source in it.
#[derive(Debug, Clone, Copy)]
#[allow(clippy::disallowed_types)]
pub struct FileRange<'a> {
    /// Opened file.
    pub file: &'a std::fs::File,
    /// Offset of the source's first byte in the file.
    pub offset: u64,
}

/// Rejects a range `offset .. offset + len` that exceeds `source`.
///
/// # Errors
/// [`crate::Kind::Corrupt`], code `past-the-end`.
pub fn check_range(source: &dyn Source, offset: u64, len: u64) -> Result<()> {
    match offset.checked_add(len) {
        Some(end) if end <= source.len() => Ok(()),
        _ => Err(Error::corrupt("past-the-end", "the data range exceeds the file")
            .in_file(source.label())
            .at(offset)
            .expected(format_args!("{} from here", counted(len, "byte", "bytes")))
            .found(counted(source.len().saturating_sub(offset), "byte", "bytes"))
            .hint("the file is truncated or damaged")),
    }
}

/// Reads `len` bytes into memory. The range is checked first.
///
/// # Errors
/// As [`check_range`] and [`Source::read_at`].
pub fn read_vec(source: &dyn Source, offset: u64, len: u64) -> Result<Vec<u8>> {
    check_range(source, offset, len)?;
    let mut bytes = vec![0; to_usize(len)?];
    source.read_at(offset, &mut bytes)?;
    Ok(bytes)
}

/// Converts a length to `usize`.
///
/// # Errors
/// [`crate::Kind::Limit`], `too-large-for-memory`.
pub fn to_usize(n: u64) -> Result<usize> {
    usize::try_from(n).map_err(|_| {
        Error::limit("too-large-for-memory", format!("{n} bytes exceed the address space of this machine"))
    })
}
