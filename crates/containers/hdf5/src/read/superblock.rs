//! The superblock: how a file begins, the widths of its numbers, and where its root is.

use super::bytes::Reader;
use super::sums;
use weighbridge_core::error::{Error, Result};
use weighbridge_io::source::{SourceRef, read_vec};

const MARK: &[u8] = b"\x89HDF\r\n\x1a\n";
/// The shortest user block; a longer one is twice as long, or four times, and so on.
const USER_BLOCK: u64 = 512;
/// No superblock is longer.
const LONGEST: u64 = 256;
/// Half the number of children of a node in an index of chunks, where the file does not say it.
const CHUNK_HALF: u16 = 32;
/// Half the number of entries of a leaf, and of children of a node, of a group, where the file does not say it.
const LEAF_HALF: u16 = 4;
const NODE_HALF: u16 = 16;

/// Half the number of entries that there is room for in nodes of each kind.
#[derive(Debug, Clone, Copy)]
pub(super) struct Halves {
    pub(super) leaf: u16,
    pub(super) node: u16,
    pub(super) chunk: u16,
}

/// Fields of the superblock. An undefined address is `u64::MAX`.
#[derive(Debug, Clone)]
pub(super) struct Superblock {
    pub(super) version: u8,
    /// Bytes of an address and of a length.
    pub(super) offset_size: u8,
    pub(super) length_size: u8,
    /// Offset of the superblock in the source: addresses are counted from here.
    pub(super) at: u64,
    /// Base address when the file was written.
    pub(super) base: u64,
    /// End of file, counted as `base` is.
    pub(super) end: u64,
    pub(super) flags: u32,
    /// The header of the root group.
    pub(super) root: u64,
    /// The header of its extension.
    pub(super) extension: u64,
    /// Address of the driver information block.
    pub(super) driver: u64,
    pub(super) halves: Halves,
    /// The three versions in a superblock of the first kind.
    pub(super) versions: [u8; 3],
    /// The place that only later superblocks have something at.
    pub(super) reserved: u64,
    /// The kind of the entry of the root group.
    pub(super) root_cache: u32,
}

impl Superblock {
    /// Finds and reads it.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`]: `hdf5-magic` where there is none, `hdf5-checksum`, `hdf5-corrupt` where it ends too early;
    /// [`weighbridge_core::Kind::Unsupported`] for unknown versions and widths; [`weighbridge_core::Kind::Io`].
    pub(super) fn find(source: &SourceRef) -> Result<Self> {
        let starts = std::iter::successors(Some(USER_BLOCK), |at| at.checked_mul(2));
        let fits = |at: &u64| at.saturating_add(MARK.len() as u64) <= source.len();
        for at in std::iter::once(0).chain(starts).take_while(fits) {
            if read_vec(&**source, at, MARK.len() as u64)? == MARK {
                return Self::parse(&read_vec(&**source, at, (source.len() - at).min(LONGEST))?, at);
            }
        }
        Err(Error::corrupt("hdf5-magic", "this is no HDF5 file: it has no superblock"))
    }

    fn parse(bytes: &[u8], at: u64) -> Result<Self> {
        let mut reader = Reader::new(bytes, 8, 8);
        reader.skip(MARK.len())?;
        let version = reader.u8()?;
        if version > 3 {
            let text = "HDF5: a superblock of unknown version";
            return Err(Error::unsupported("hdf5-unsupported", text).at(at).found(version));
        }
        let first = version < 2;
        // Of free room and of the root; nothing; of shared headers.
        let mut versions = [0; 3];
        if first {
            let [free, root, _, shared] = [reader.u8()?, reader.u8()?, reader.u8()?, reader.u8()?];
            versions = [free, root, shared];
        }
        let (offset_size, length_size) = (reader.u8()?, reader.u8()?);
        if [offset_size, length_size].iter().any(|size| ![2, 4, 8].contains(size)) {
            return Err(Error::unsupported("hdf5-unsupported", "HDF5: numbers of an unknown width")
                .at(at)
                .expected("addresses and lengths of 2, 4 or 8 bytes")
                .found(format_args!("{offset_size} and {length_size} bytes")));
        }
        let mut found = Self {
            version,
            offset_size,
            length_size,
            at,
            base: 0,
            end: 0,
            flags: 0,
            root: 0,
            extension: u64::MAX,
            driver: u64::MAX,
            halves: Halves { leaf: LEAF_HALF, node: NODE_HALF, chunk: CHUNK_HALF },
            versions,
            reserved: u64::MAX,
            root_cache: 0,
        };
        let mut reader = Reader::new(bytes, offset_size, length_size).from(reader.at());
        if first {
            reader.skip(1)?;
            (found.halves.leaf, found.halves.node) = (reader.u16()?, reader.u16()?);
            found.flags = reader.u32()?;
            if version == 1 {
                found.halves.chunk = reader.u16()?;
                reader.skip(2)?;
            }
            (found.base, found.reserved) = (reader.offset()?, reader.offset()?);
            (found.end, found.driver) = (reader.offset()?, reader.offset()?);
            // The entry of the root: its name, its header, its kind; four bytes, and sixteen that depend on the kind.
            reader.offset()?;
            (found.root, found.root_cache) = (reader.offset()?, reader.u32()?);
            reader.skip(20)?;
        } else {
            found.flags = reader.u8()?.into();
            (found.base, found.extension) = (reader.offset()?, reader.offset()?);
            (found.end, found.root) = (reader.offset()?, reader.offset()?);
            let end = reader.at();
            sums::matches(&bytes[..end], reader.u32()?, "the superblock", at)?;
        }
        Ok(found)
    }
}
