//! An opened file: bytes by address, widths of numbers, and the budget of reads.

use super::bytes::Reader;
use super::image::Image;
use super::record::{self, Record};
use super::sources::Sources;
use super::superblock::{HalfCapacities, Superblock};
use bytes::Bytes;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use weighbridge_core::budget::Budget;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_io::source::{SourceRef, check_range, read_vec, to_usize};

/// Maximum length of a file that is read whole: one read costs less than five small ones.
const MAX_WHOLE_LEN: u64 = 256 << 10;
/// Block size of longer files, so that adjacent headers cost one read.
const BLOCK_LEN: u64 = 16 << 10;
/// Maximum number of cached blocks while a file is listed.
const MAX_BLOCKS: usize = 256;
/// Minimum cost of a read, in bytes of work.
const MIN_READ_COST: u64 = 256;
/// Copies of a listed object in memory: in the list, in the index with its metadata, and in reports.
const COPIES: u64 = 3;

/// Shared state of a file: source, superblock, limits and budget. It holds no cache.
pub(super) struct FileContext {
    pub(super) source: SourceRef,
    /// The whole source, if it is in memory.
    held: Option<Bytes>,
    pub(super) superblock: Superblock,
    /// End of the file, counted from the superblock: the stated end, or the real one if that is earlier.
    end: u64,
    /// Capacities of B-tree nodes.
    pub(super) half_capacities: HalfCapacities,
    /// Metadata that the writer left in a cache image.
    pub(super) image: Image,
    pub(super) limits: Limits,
    /// Budget of all reads of the file.
    pub(super) budget: Budget,
    /// Memory reserved for tensors: attributes must not use it.
    reserve: u64,
    /// Unpacked bytes of the elements of all datasets.
    pub(super) elements: AtomicU64,
    /// Budget of cached unfiltered chunks: those of a dataset with several names are cached for each name.
    pub(super) plain: Parts,
    /// Source files of virtual datasets, if these are followed.
    pub(super) sources: Option<Arc<dyn Sources>>,
}

impl std::fmt::Debug for FileContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileContext")
            .field("source", &self.source)
            .field("at", &self.superblock.at)
            .finish_non_exhaustive()
    }
}

impl FileContext {
    /// Creates the state of the file that begins with `superblock`.
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
            None if source.len() <= MAX_WHOLE_LEN => Some(read_vec(&**source, 0, source.len())?.into()),
            None => None,
        };
        let left = source.len().saturating_sub(superblock.at);
        let budget = limits.budget_for(source.len());
        Ok(Self {
            held,
            end: superblock.end.saturating_sub(superblock.base).min(left),
            half_capacities: superblock.half_capacities,
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

    /// End of the file as the superblock states it, in bytes from the start of the source.
    pub(super) fn stated_end(&self) -> u64 {
        self.superblock.end.saturating_sub(self.superblock.base).saturating_add(self.superblock.at)
    }

    /// Opens the file with a block cache of its own.
    pub(super) fn open(self: &Arc<Self>) -> File {
        File { context: self.clone(), blocks: Mutex::default(), record: None }
    }

    /// As [`open`](Self::open); reads are recorded in `record`.
    pub(super) fn open_recorded(self: &Arc<Self>, record: &Arc<Record>) -> File {
        File { record: Some(record.clone()), ..self.open() }
    }

    /// Returns the offset in the source of `len` bytes at `address`; fails unless they are within the file.
    pub(super) fn offset(&self, address: u64, len: u64) -> Result<u64> {
        let offset = address.saturating_add(self.superblock.at);
        check_range(&*self.source, offset, len)?;
        // The HDF5 library reads nothing behind the stated end of the file.
        if address.checked_add(len).is_none_or(|end| end > self.end) {
            return Err(Error::corrupt(
                "past-the-end",
                "HDF5: a structure or dataset exceeds the stated end of the file",
            )
            .at(offset)
            .expected(format_args!("{len} bytes from here"))
            .found(format_args!("{} bytes", self.end.saturating_sub(address))));
        }
        Ok(offset)
    }

    /// Creates a reader of `bytes` with the widths of this file.
    pub(super) fn reader<'a>(&self, bytes: &'a [u8]) -> Reader<'a> {
        Reader::new(bytes, self.superblock.offset_size, self.superblock.length_size)
    }

    /// Takes memory for listed objects from the budget.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Limit`].
    pub(super) fn list(&self, bytes: u64) -> Result<()> {
        self.budget.take_memory(bytes.saturating_mul(COPIES))
    }

    /// As [`list`](Self::list), for values of attributes.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Limit`].
    pub(super) fn list_value(&self, bytes: u64) -> Result<()> {
        // The reserve is taken as well and returned at once, so that values never use it.
        self.list(bytes.saturating_add(self.reserve / COPIES))?;
        self.unlist(self.reserve / COPIES);
        Ok(())
    }

    /// Returns the memory of values that were dropped.
    pub(super) fn unlist(&self, bytes: u64) {
        self.budget.give_memory(bytes.saturating_mul(COPIES));
    }

    /// Adds elements of `len` bytes to the total, and compares it with the length `files` of the files. Aliases of a
    /// dataset, overlapping datasets, compressed chunks and unwritten elements all expand beyond that length.
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

/// Byte budget of the parts of a structure: parts that do not overlap have at most as many bytes as the file.
#[derive(Debug)]
pub(super) struct Parts {
    left: AtomicU64,
    all: u64,
}

impl Parts {
    /// Creates the budget of a file of `all` bytes.
    pub(super) fn new(all: u64) -> Self {
        Self { left: AtomicU64::new(all), all }
    }

    /// Takes the bytes of one part.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`], `hdf5-corrupt`.
    pub(super) fn take(&self, bytes: u64) -> Result<()> {
        let take = |left: u64| left.checked_sub(bytes);
        let taken = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        taken.map(drop).map_err(|_| {
            Error::corrupt("hdf5-corrupt", "HDF5: the parts of a structure overlap")
                .expected(format_args!("at most {} bytes, the length of the file", self.all))
        })
    }
}

/// An open file, with its block cache.
pub(super) struct File {
    pub(super) context: Arc<FileContext>,
    blocks: Mutex<HashMap<u64, Bytes>>,
    /// Record of the ranges read.
    record: Option<Arc<Record>>,
}

impl File {
    /// Reads the bytes of a structure, or of a part of one, at `address`.
    pub(super) fn bytes(&self, address: u64, len: u64) -> Result<Bytes> {
        self.bytes_as(record::PLAIN, address, len)
    }

    /// As [`bytes`](Self::bytes); `what` names a structure without a signature.
    pub(super) fn bytes_as(&self, what: &'static str, address: u64, len: u64) -> Result<Bytes> {
        let bytes = self.peek(address, len)?;
        if let Some(record) = &self.record {
            record.add(address, &bytes, what);
        }
        Ok(bytes)
    }

    /// Reads bytes at `address` without recording them: they may exceed the structure.
    pub(super) fn peek(&self, address: u64, len: u64) -> Result<Bytes> {
        // The range is checked before memory is allocated.
        let offset = self.context.offset(address, len)?;
        self.context.budget.take_work(len.max(MIN_READ_COST))?;
        Ok(self.context.image.patched(address, self.read(offset, len)?))
    }

    fn read(&self, offset: u64, len: u64) -> Result<Bytes> {
        let source = &self.context.source;
        let cut = |bytes: &Bytes, from: u64, to: u64| Ok(bytes.slice(to_usize(from)?..to_usize(to)?));
        if let Some(held) = &self.context.held {
            return cut(held, offset, offset + len);
        }
        let first = offset - offset % BLOCK_LEN;
        if offset + len > first + BLOCK_LEN {
            return Ok(read_vec(&**source, offset, len)?.into());
        }
        let mut blocks = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        if blocks.len() >= MAX_BLOCKS {
            blocks.clear();
        }
        let block = match blocks.get(&first) {
            Some(block) => block.clone(),
            None => Bytes::from(read_vec(&**source, first, BLOCK_LEN.min(source.len() - first))?),
        };
        blocks.insert(first, block.clone());
        cut(&block, offset - first, offset - first + len)
    }

    /// Record of the ranges read, if there is one.
    pub(super) fn record(&self) -> Option<&Record> {
        self.record.as_deref()
    }

    /// Creates a reader of `bytes` with the widths of this file.
    pub(super) fn reader<'a>(&self, bytes: &'a [u8]) -> Reader<'a> {
        self.context.reader(bytes)
    }

    /// Width of an address in bytes.
    pub(super) fn offset_size(&self) -> u8 {
        self.context.superblock.offset_size
    }

    /// Widths of an address and of a length in bytes.
    pub(super) fn widths(&self) -> (u64, u64) {
        (self.context.superblock.offset_size.into(), self.context.superblock.length_size.into())
    }

    /// Creates the byte budget of one structure.
    pub(super) fn parts(&self) -> Parts {
        Parts::new(self.context.source.len())
    }
}

/// In-memory bytes of a source.
struct Borrowed(SourceRef);

impl AsRef<[u8]> for Borrowed {
    fn as_ref(&self) -> &[u8] {
        self.0.as_slice().unwrap_or_default()
    }
}
