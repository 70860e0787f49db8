//! An opened file: its bytes by address, the widths of its numbers, and how much may be read.

use super::account::Account;
use super::bytes::Reader;
use super::extension::{self, Halves, Head, Image};
use super::mapped::Beside;
use super::record::{self, Record};
use hdf5_reader::error::Error as Fault;
use hdf5_reader::storage::{BlockCacheStorage, DynStorage, Storage, StorageBuffer};
use hdf5_reader::superblock::Superblock;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::phrase;
use weighbridge_core::phrase::limit;
use weighbridge_io::source::{SourceRef, read_vec, to_usize};

/// Files up to this length are read whole: one read costs less than five small ones.
const WHOLE: u64 = 256 << 10;
/// Longer files are read in blocks of this size, so that headers that lie together cost one read.
const BLOCK: usize = 16 << 10;
/// Blocks that are kept while a file is listed.
const BLOCKS: usize = 256;
/// A listing reads no more than this many times the length of the file: structures that point to
/// the same bytes again and again would otherwise multiply them.
const MOST_TIMES: u64 = 16;
/// What a listing may read of a file however short it is.
const LEAST: u64 = 16 << 20;
/// Heads, which are read once more with what is behind them, have fewer bytes.
const HEAD: u64 = 64;

/// Where a file is and how its numbers are written. Cheap to keep: it holds no cache.
pub(super) struct Place {
    pub(super) source: SourceRef,
    /// Offset of the superblock: addresses are counted from here.
    pub(super) base: u64,
    raw: DynStorage,
    /// True where `raw` is in memory.
    quick: bool,
    pub(super) superblock: Superblock,
    pub(super) head: Head,
    /// Where the file ends as it says itself, counted from `base`, or where it ends if that is before.
    end: u64,
    /// Room in the nodes of trees.
    pub(super) halves: Halves,
    /// Metadata that is not at its place.
    pub(super) image: Arc<Image>,
    pub(super) limits: Limits,
    /// What its datasets took so far.
    pub(super) account: Account,
    /// The files that its virtual datasets lead to, where they are followed.
    pub(super) beside: Option<Arc<Beside>>,
}

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Place")
            .field("source", &self.source)
            .field("base", &self.base)
            .finish_non_exhaustive()
    }
}

impl Place {
    /// Finds the superblock of `source`.
    pub(super) fn find(source: &SourceRef, limits: &Limits) -> Result<Arc<Self>> {
        Self::find_beside(source, limits, None)
    }

    /// As [`find`](Self::find); virtual datasets are followed to the files of `beside`.
    pub(super) fn find_beside(
        source: &SourceRef,
        limits: &Limits,
        beside: Option<Arc<Beside>>,
    ) -> Result<Arc<Self>> {
        let quick = source.len() <= WHOLE || source.as_slice().is_some();
        let held: Option<Arc<dyn AsRef<[u8]> + Send + Sync>> = match source.as_slice() {
            Some(_) => Some(Arc::new(Borrowed(source.clone()))),
            None if quick => Some(Arc::new(read_vec(&**source, 0, source.len())?)),
            None => None,
        };
        let raw = |base, end, image| Raw { source: source.clone(), held: held.clone(), base, end, image };
        let none = Arc::new(Image::default());
        let whole = raw(0, source.len(), none.clone());
        let superblock =
            Superblock::parse_from_storage(&whole).map_err(|e| fault(e).in_file(source.label()))?;
        let base = superblock.base_address;
        let left = source.len().saturating_sub(base);
        let start = whole.read_range(base, to_usize(left.min(HEAD * 4))?).map_err(fault)?;
        let reader = Reader::new(&start, superblock.offset_size, superblock.length_size);
        let head = Head::parse(superblock.version, reader)?;
        let end = superblock.eof_address.saturating_sub(head.base).min(left);
        let has_extension = superblock.extension_address.is_some();
        let place = |halves, image: Arc<Image>| {
            Arc::new(Self {
                source: source.clone(),
                base,
                raw: Arc::new(raw(base, end, image.clone())),
                quick,
                superblock: superblock.clone(),
                halves,
                head,
                end,
                image,
                limits: limits.clone(),
                account: Account::default(),
                beside: beside.clone(),
            })
        };
        let plain = place(head.halves, none);
        if !has_extension {
            return Ok(plain);
        }
        let (halves, image) = extension::changes(&plain.open());
        Ok(place(halves, Arc::new(image)))
    }

    /// Where the file ends as it says itself, in bytes from its start.
    pub(super) fn stated_end(&self) -> u64 {
        self.superblock.eof_address.saturating_sub(self.head.base).saturating_add(self.base)
    }

    /// As [`open`](Self::open); what is read is remembered.
    pub(super) fn open_recorded(self: &Arc<Self>, record: &Arc<Record>) -> File {
        let mut file = self.open();
        file.storage.record = Some(record.clone());
        file
    }

    /// Opens it for a piece of work, with what that work may read.
    pub(super) fn open(self: &Arc<Self>) -> File {
        let storage = match self.quick {
            true => self.raw.clone(),
            false => Arc::new(BlockCacheStorage::new(self.raw.clone(), BLOCK, BLOCKS)),
        };
        let most = self.limits.header_bytes.saturating_mul(MOST_TIMES);
        let left = self.source.len().saturating_mul(MOST_TIMES).min(most).saturating_add(LEAST);
        let left = left.saturating_add(self.limits.raised());
        File { place: self.clone(), storage: Metered { storage, left: AtomicU64::new(left), record: None } }
    }

    /// Fails unless the bytes at `address` are in the file; their offset in the source.
    pub(super) fn offset(&self, address: u64, len: u64) -> Result<u64> {
        let offset = address.saturating_add(self.base);
        weighbridge_io::source::check_range(&*self.source, offset, len)?;
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
}

/// A file while it is worked on.
pub(super) struct File {
    pub(super) place: Arc<Place>,
    storage: Metered,
}

impl File {
    /// The bytes at `address`: a structure, or a part of one.
    pub(super) fn bytes(&self, address: u64, len: u64) -> Result<StorageBuffer> {
        self.bytes_as(record::PLAIN, address, len)
    }

    /// As [`bytes`](Self::bytes); `what` they are, should they have no mark.
    pub(super) fn bytes_as(&self, what: &'static str, address: u64, len: u64) -> Result<StorageBuffer> {
        let bytes = self.peek(address, len)?;
        if let Some(record) = &self.storage.record {
            record.add(address, &bytes, what);
        }
        Ok(bytes)
    }

    /// The bytes at `address`, which may reach beyond a structure.
    pub(super) fn peek(&self, address: u64, len: u64) -> Result<StorageBuffer> {
        // Held against the file before memory is taken.
        self.place.offset(address, len)?;
        self.storage.spend(address, to_usize(len)?).map_err(fault)
    }

    /// Where what is read is remembered, if it is.
    pub(super) fn record(&self) -> Option<&Record> {
        self.storage.record.as_deref()
    }

    /// The bytes, for structures that the library behind understands.
    pub(super) fn storage(&self) -> &dyn Storage {
        &self.storage
    }

    /// The bytes of one structure of many parts: a tree, an index.
    pub(super) fn once(&self) -> Once<'_> {
        Once { file: self, left: AtomicU64::new(self.place.source.len()), is_index: false }
    }

    /// The bytes of one index of chunks, counted among all that are read.
    pub(super) fn index(&self) -> Once<'_> {
        Once { is_index: true, ..self.once() }
    }

    /// Bytes of an address in this file.
    pub(super) fn offset_size(&self) -> u8 {
        self.place.superblock.offset_size
    }

    /// Bytes of a length in this file.
    pub(super) fn length_size(&self) -> u8 {
        self.place.superblock.length_size
    }
}

/// Bytes that a source lends.
struct Borrowed(SourceRef);

impl AsRef<[u8]> for Borrowed {
    fn as_ref(&self) -> &[u8] {
        self.0.as_slice().unwrap_or_default()
    }
}

/// A source from `base` on.
struct Raw {
    source: SourceRef,
    /// The whole source, where it is in memory.
    held: Option<Arc<dyn AsRef<[u8]> + Send + Sync>>,
    base: u64,
    /// Where it ends, counted from `base`.
    end: u64,
    image: Arc<Image>,
}

impl Raw {
    fn read(&self, offset: u64, len: usize) -> hdf5_reader::error::Result<StorageBuffer> {
        let at = self.base.checked_add(offset).ok_or(Fault::OffsetOutOfBounds(offset))?;
        if let Some(held) = &self.held {
            let start = usize::try_from(at).map_err(|_| Fault::OffsetOutOfBounds(offset))?;
            return StorageBuffer::from_shared_owner(held.clone(), start, len);
        }
        read_vec(&*self.source, at, len as u64)
            .map(StorageBuffer::from_vec)
            .map_err(|error| Fault::Io(std::io::Error::other(error)))
    }
}

impl Storage for Raw {
    fn len(&self) -> u64 {
        self.end
    }

    fn read_range(&self, offset: u64, len: usize) -> hdf5_reader::error::Result<StorageBuffer> {
        let available = self.end.saturating_sub(offset);
        if len as u64 > available {
            return Err(Fault::UnexpectedEof { offset, needed: len as u64, available });
        }
        let bytes = self.read(offset, len)?;
        Ok(self.image.patched(offset, &bytes).map_or(bytes, StorageBuffer::from_vec))
    }
}

/// A storage of which only so much is read.
struct Metered {
    storage: DynStorage,
    left: AtomicU64,
    /// Where what the library behind reads is remembered: it reads structures and nothing more.
    record: Option<Arc<Record>>,
}

impl Metered {
    fn spend(&self, offset: u64, len: usize) -> hdf5_reader::error::Result<StorageBuffer> {
        let take = |left: u64| left.checked_sub(len as u64);
        if self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_err() {
            return Err(Fault::ResourceLimit(
                "its structures would make this library read the same bytes too often".to_owned(),
            ));
        }
        self.storage.read_range(offset, len)
    }
}

impl Storage for Metered {
    fn len(&self) -> u64 {
        self.storage.len()
    }

    fn read_range(&self, offset: u64, len: usize) -> hdf5_reader::error::Result<StorageBuffer> {
        let bytes = self.spend(offset, len)?;
        if let Some(record) = &self.record {
            record.add(offset, &bytes, record::PLAIN);
        }
        Ok(bytes)
    }
}

/// A file as one structure: its parts lie beside each other, so no more is read than the file has. What the library
/// behind makes of them takes many times their bytes.
pub(super) struct Once<'a> {
    file: &'a File,
    left: AtomicU64,
    is_index: bool,
}

impl Storage for Once<'_> {
    fn len(&self) -> u64 {
        self.file.storage.len()
    }

    fn read_range(&self, offset: u64, len: usize) -> hdf5_reader::error::Result<StorageBuffer> {
        let own = |error: Error| Fault::Io(std::io::Error::other(error));
        // More than the file has is told of as what it is.
        let all = self.file.place.source.len();
        let bytes = Some(len as u64).filter(|&bytes| bytes <= all).unwrap_or(0);
        let take = |left: u64| if bytes <= HEAD { Some(left) } else { left.checked_sub(bytes) };
        if self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_err() {
            let error = Error::corrupt("hdf5-corrupt", "HDF5: the parts of an index lie over each other");
            return Err(own(error.expected(format_args!("at most {all} bytes, as the file has")).at(offset)));
        }
        if self.is_index {
            self.file.place.account.index(bytes, all).map_err(own)?;
        }
        self.file.storage.read_range(offset, len)
    }
}

/// What the library behind says, as an error of this one.
pub(super) fn fault(fault: Fault) -> Error {
    let text = format!("HDF5: {fault}");
    match fault {
        Fault::Io(error) => match error.downcast::<Error>() {
            Ok(own) => own,
            Err(error) => Error::io("cannot read the file", error),
        },
        Fault::InvalidMagic => Error::corrupt("hdf5-magic", "this is no HDF5 file: it has no superblock"),
        Fault::ChecksumMismatch { .. } => Error::corrupt("hdf5-checksum", text),
        Fault::ResourceLimit(_) => Error::limit("limit", text)
            .hint(phrase!["if you trust the file, raise the limit ", limit("header_bytes")]),
        // Their texts say the offset, too.
        Fault::UnexpectedEof { offset, needed, available } => {
            Error::corrupt("past-the-end", "HDF5: unexpected end of data")
                .expected(format_args!("{needed} bytes"))
                .found(format_args!("{available} bytes"))
                .at(offset)
        }
        Fault::OffsetOutOfBounds(offset) => {
            Error::corrupt("past-the-end", "HDF5: this place is behind the end of the data").at(offset)
        }
        Fault::UnsupportedSuperblockVersion(_)
        | Fault::UnsupportedOffsetSize(_)
        | Fault::UnsupportedLengthSize(_)
        | Fault::UnsupportedFilter(_)
        | Fault::UnsupportedEncoding(_)
        | Fault::UnsupportedFractalHeapVersion(_)
        | Fault::UnsupportedFilterPipelineVersion(_)
        | Fault::UnsupportedFillValueVersion(_)
        | Fault::UnsupportedDataspaceVersion(_)
        | Fault::UnsupportedLinkVersion(_)
        | Fault::UnsupportedLinkType(_) => Error::unsupported("hdf5-unsupported", text),
        _ => Error::corrupt("hdf5-corrupt", text),
    }
}
