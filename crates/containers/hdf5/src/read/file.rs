//! An opened file: its bytes by address, the widths of its numbers, and what reading it may cost.

use super::bytes::Reader;
use super::image::Image;
use super::record::{self, Record};
use super::sources::Sources;
use super::superblock::{Halves, Superblock};
use bytes::Bytes;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use weighbridge_core::budget::Budget;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_io::source::{SourceRef, check_range, read_vec, to_usize};

/// Files up to this length are read whole: one read costs less than five small ones.
const WHOLE: u64 = 256 << 10;
/// Longer files are read in blocks of this size, so that headers that lie together cost one read.
const BLOCK: u64 = 16 << 10;
/// Blocks that are kept while a file is listed.
const BLOCKS: usize = 256;
/// A read costs at least as much work as so many bytes.
const READ: u64 = 256;
/// Copies of a listed object: in the list, in the index with its metadata, and where it is shown.
const COPIES: u64 = 3;

/// Where a file is and how its numbers are written. Cheap to keep: it holds no cache.
pub(super) struct Address {
    pub(super) source: SourceRef,
    /// The whole source, where it is in memory.
    held: Option<Bytes>,
    pub(super) superblock: Superblock,
    /// End of the file: the superblock's, counted from the superblock, or the real one if that is earlier.
    end: u64,
    /// Room in the nodes of trees.
    pub(super) halves: Halves,
    /// Metadata that is not at its place.
    pub(super) image: Image,
    pub(super) limits: Limits,
    /// For all that is read of the file.
    pub(super) budget: Budget,
    /// Memory that attributes must leave free, so that all tensors are listed.
    reserve: u64,
    /// Bytes of elements of all datasets, as they are when they are read.
    pub(super) elements: AtomicU64,
    /// Chunks that are not packed and not byte ranges: those that names share would be kept for each name.
    pub(super) plain: Parts,
    /// The files that its virtual datasets lead to, where they are followed.
    pub(super) sources: Option<Arc<dyn Sources>>,
}

impl std::fmt::Debug for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Place")
            .field("source", &self.source)
            .field("at", &self.superblock.at)
            .finish_non_exhaustive()
    }
}

impl Address {
    /// The file that begins with `superblock`.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`].
    pub(super) fn new(
        source: &SourceRef,
        superblock: Superblock,
        limits: &Limits,
        sources: Option<Arc<dyn Sources>>,
    ) -> Result<Self> {
        let held = match source.as_slice() {
            Some(_) => Some(Bytes::from_owner(Borrowed(source.clone()))),
            None if source.len() <= WHOLE => Some(read_vec(&**source, 0, source.len())?.into()),
            None => None,
        };
        let left = source.len().saturating_sub(superblock.at);
        let budget = limits.budget_for(source.len());
        Ok(Self {
            held,
            end: superblock.end.saturating_sub(superblock.base).min(left),
            halves: superblock.halves,
            superblock,
            image: Image::default(),
            limits: limits.clone(),
            reserve: budget.memory_left() / 5,
            budget,
            elements: AtomicU64::new(0),
            plain: Parts::new(source.len()),
            source: source.clone(),
            sources,
        })
    }

    /// Where the file ends as it says itself, in bytes from its start.
    pub(super) fn stated_end(&self) -> u64 {
        self.superblock.end.saturating_sub(self.superblock.base).saturating_add(self.superblock.at)
    }

    /// Opens it for a piece of work.
    pub(super) fn open(self: &Arc<Self>) -> File {
        File { place: self.clone(), blocks: Mutex::default(), record: None }
    }

    /// As [`open`](Self::open); what is read is remembered.
    pub(super) fn open_recorded(self: &Arc<Self>, record: &Arc<Record>) -> File {
        File { record: Some(record.clone()), ..self.open() }
    }

    /// Fails unless the bytes at `address` are in the file; their offset in the source.
    pub(super) fn offset(&self, address: u64, len: u64) -> Result<u64> {
        let offset = address.saturating_add(self.superblock.at);
        check_range(&*self.source, offset, len)?;
        // The original reads nothing behind the end that the file states.
        if address.checked_add(len).is_none_or(|end| end > self.end) {
            return Err(Error::corrupt("past-the-end", "HDF5: bytes behind the end that the file states")
                .at(offset)
                .expected(format_args!("{len} bytes from here"))
                .found(format_args!("{} bytes", self.end.saturating_sub(address))));
        }
        Ok(offset)
    }

    /// A reader of numbers in the widths of this file.
    pub(super) fn reader<'a>(&self, bytes: &'a [u8]) -> Reader<'a> {
        Reader::new(bytes, self.superblock.offset_size, self.superblock.length_size)
    }

    /// Takes memory for what is listed.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Limit`].
    pub(super) fn list(&self, bytes: u64) -> Result<()> {
        self.budget.take_memory(bytes.saturating_mul(COPIES))
    }

    /// As [`list`](Self::list), for the values of attributes.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Limit`].
    pub(super) fn list_value(&self, bytes: u64) -> Result<()> {
        // What they may not take is asked for with it, and given back.
        self.list(bytes.saturating_add(self.reserve / COPIES))?;
        self.unlist(self.reserve / COPIES);
        Ok(())
    }

    /// Returns the memory of values that were dropped.
    pub(super) fn unlist(&self, bytes: u64) {
        self.budget.give_memory(bytes.saturating_mul(COPIES));
    }

    /// Counts elements of `len` bytes: names for one dataset, datasets in one place, chunks that inflate and elements
    /// that were never written are all small in the files, which have `files` bytes.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Limit`], `inflated`.
    pub(super) fn count_elements(&self, len: u64, files: u64) -> Result<()> {
        let most = self.limits.expanded(files);
        let add = |now: u64| now.checked_add(len).filter(|&all| all <= most);
        let all = match self.elements.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add) {
            Ok(before) | Err(before) => before.saturating_add(len),
        };
        self.limits.check_expansion("the elements of all datasets together are", all, files)
    }
}

/// The bytes of a file, of which each part of a structure has its own: parts that lie over each other would make many
/// times as much of them.
#[derive(Debug)]
pub(super) struct Parts {
    left: AtomicU64,
    all: u64,
}

impl Parts {
    /// Tracks the parts of a file of `len` bytes.
    pub(super) fn new(all: u64) -> Self {
        Self { left: AtomicU64::new(all), all }
    }

    /// Takes those of one part.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`], `hdf5-corrupt`.
    pub(super) fn take(&self, bytes: u64) -> Result<()> {
        let take = |left: u64| left.checked_sub(bytes);
        let taken = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        taken.map(drop).map_err(|_| {
            Error::corrupt("hdf5-corrupt", "HDF5: the parts of a structure lie over each other")
                .expected(format_args!("at most {} bytes, as the file has", self.all))
        })
    }
}

/// A file while it is worked on.
pub(super) struct File {
    pub(super) place: Arc<Address>,
    blocks: Mutex<HashMap<u64, Bytes>>,
    /// Tracker of the parts that were read.
    record: Option<Arc<Record>>,
}

impl File {
    /// The bytes at `address`: a structure, or a part of one.
    pub(super) fn bytes(&self, address: u64, len: u64) -> Result<Bytes> {
        self.bytes_as(record::PLAIN, address, len)
    }

    /// As [`bytes`](Self::bytes); `what` they are, should they have no mark.
    pub(super) fn bytes_as(&self, what: &'static str, address: u64, len: u64) -> Result<Bytes> {
        let bytes = self.peek(address, len)?;
        if let Some(record) = &self.record {
            record.add(address, &bytes, what);
        }
        Ok(bytes)
    }

    /// The bytes at `address`, which may reach beyond a structure.
    pub(super) fn peek(&self, address: u64, len: u64) -> Result<Bytes> {
        // Held against the file before memory is taken.
        let offset = self.place.offset(address, len)?;
        self.place.budget.take_work(len.max(READ))?;
        Ok(self.place.image.patched(address, self.read(offset, len)?))
    }

    fn read(&self, offset: u64, len: u64) -> Result<Bytes> {
        let source = &self.place.source;
        let cut = |bytes: &Bytes, from: u64, to: u64| Ok(bytes.slice(to_usize(from)?..to_usize(to)?));
        if let Some(held) = &self.place.held {
            return cut(held, offset, offset + len);
        }
        let first = offset - offset % BLOCK;
        if offset + len > first + BLOCK {
            return Ok(read_vec(&**source, offset, len)?.into());
        }
        let mut blocks = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        if blocks.len() >= BLOCKS {
            blocks.clear();
        }
        let block = match blocks.get(&first) {
            Some(block) => block.clone(),
            None => Bytes::from(read_vec(&**source, first, BLOCK.min(source.len() - first))?),
        };
        blocks.insert(first, block.clone());
        cut(&block, offset - first, offset - first + len)
    }

    /// Tracker of the parts that were read, if there is one.
    pub(super) fn record(&self) -> Option<&Record> {
        self.record.as_deref()
    }

    /// A reader of numbers in the widths of this file.
    pub(super) fn reader<'a>(&self, bytes: &'a [u8]) -> Reader<'a> {
        self.place.reader(bytes)
    }

    /// Bytes of an address in this file.
    pub(super) fn offset_size(&self) -> u8 {
        self.place.superblock.offset_size
    }

    /// Bytes of an address and of a length in this file.
    pub(super) fn widths(&self) -> (u64, u64) {
        (self.place.superblock.offset_size.into(), self.place.superblock.length_size.into())
    }

    /// The bytes of one structure of many parts.
    pub(super) fn parts(&self) -> Parts {
        Parts::new(self.place.source.len())
    }
}

/// Bytes that a source lends.
struct Borrowed(SourceRef);

impl AsRef<[u8]> for Borrowed {
    fn as_ref(&self) -> &[u8] {
        self.0.as_slice().unwrap_or_default()
    }
}
