//! Where bytes come from: a file, a map, memory, a range of another source. Files themselves are opened by
//! `weighbridge-io`.
//!
//! A [`Source`] has a length and positional reads into the caller's buffer. There is no seek
//! position, so one source serves many threads.

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

    /// Maps `len` bytes from `offset` on, which lie within the source, to be looked at now. `None` where they
    /// cannot be mapped and must be read.
    fn map(&self, offset: u64, len: u64) -> Option<Arc<dyn Mapped>> {
        let _ = (offset, len);
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
///
/// # Errors
/// [`crate::Kind::Limit`], `too-large-for-memory`.
pub fn to_usize(n: u64) -> Result<usize> {
    usize::try_from(n).map_err(|_| {
        Error::limit(
            "too-large-for-memory",
            format!("{n} bytes do not fit into this machine's address space"),
        )
    })
}
