//! The superblock: signature, widths of numbers, and address of the root group.

use super::bytes::Reader;
use super::sums;
use weighbridge_core::error::{Error, Result};
use weighbridge_io::source::{SourceRef, read_vec};

const SIGNATURE: &[u8] = b"\x89HDF\r\n\x1a\n";
/// Minimum length of a user block; longer ones have this length times a power of two.
const MIN_USER_BLOCK: u64 = 512;
/// Maximum length of a superblock.
const MAX_LEN: u64 = 256;
/// Default half capacity of a node of a chunk B-tree.
const CHUNK_HALF: u16 = 32;
/// Default half capacities of a leaf and of a node of a group B-tree.
const LEAF_HALF: u16 = 4;
const NODE_HALF: u16 = 16;

/// Half capacities of B-tree nodes, by kind.
#[derive(Debug, Clone, Copy)]
pub(super) struct HalfCapacities {
    pub(super) leaf: u16,
    pub(super) node: u16,
    pub(super) chunk: u16,
}

/// Fields of the superblock. An undefined address is `u64::MAX`.
#[derive(Debug, Clone)]
pub(super) struct Superblock {
    pub(super) version: u8,
    /// Widths of an address and of a length, in bytes.
    pub(super) offset_size: u8,
    pub(super) length_size: u8,
    /// Offset of the superblock in the source: addresses are relative to it.
    pub(super) at: u64,
    /// Base address, as stated.
    pub(super) base: u64,
    /// End-of-file address, relative to the same origin as `base`.
    pub(super) end: u64,
    pub(super) flags: u32,
    /// Address of the header of the root group.
    pub(super) root: u64,
    /// Address of the header of the superblock extension.
    pub(super) extension: u64,
    /// FileContext of the driver information block.
    pub(super) driver: u64,
    pub(super) half_capacities: HalfCapacities,
    /// Versions of free space, root group and shared headers in superblocks of version 0 and 1.
    pub(super) versions: [u8; 3],
    /// FileContext field that must be undefined in superblocks of version 0 and 1.
    pub(super) reserved: u64,
    /// Cache type of the root group entry.
    pub(super) root_cache: u32,
}

impl Superblock {
    /// Finds and reads the superblock.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`]: `hdf5-magic` where there is none, `hdf5-checksum`, `hdf5-corrupt` where
    /// it is cut short;
    /// [`weighbridge_core::Kind::Unsupported`] for unknown versions and widths; [`weighbridge_core::Kind::Io`].
    pub(super) fn find(source: &SourceRef) -> Result<Self> {
        let starts = std::iter::successors(Some(MIN_USER_BLOCK), |at| at.checked_mul(2));
        let fits = |at: &u64| at.saturating_add(SIGNATURE.len() as u64) <= source.len();
        for at in std::iter::once(0).chain(starts).take_while(fits) {
            if read_vec(&**source, at, SIGNATURE.len() as u64)? == SIGNATURE {
                return Self::parse(&read_vec(&**source, at, (source.len() - at).min(MAX_LEN))?, at);
            }
        }
        Err(Error::corrupt("hdf5-magic", "the file has no HDF5 signature"))
    }

    fn parse(bytes: &[u8], at: u64) -> Result<Self> {
        let mut reader = Reader::new(bytes, 8, 8);
        reader.skip(SIGNATURE.len())?;
        let version = reader.u8()?;
        if version > 3 {
            let text = "HDF5: the superblock has an unsupported version";
            return Err(Error::unsupported("hdf5-unsupported", text).at(at).found(version));
        }
        let first = version < 2;
        // Versions of free space and root group, a reserved byte, version of shared headers.
        let mut versions = [0; 3];
        if first {
            let [free, root, _, shared] = [reader.u8()?, reader.u8()?, reader.u8()?, reader.u8()?];
            versions = [free, root, shared];
        }
        let (offset_size, length_size) = (reader.u8()?, reader.u8()?);
        if [offset_size, length_size].iter().any(|size| ![2, 4, 8].contains(size)) {
            return Err(Error::unsupported(
                "hdf5-unsupported",
                "HDF5: the superblock states unsupported widths of addresses and lengths",
            )
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
            half_capacities: HalfCapacities { leaf: LEAF_HALF, node: NODE_HALF, chunk: CHUNK_HALF },
            versions,
            reserved: u64::MAX,
            root_cache: 0,
        };
        let mut reader = Reader::new(bytes, offset_size, length_size).from(reader.at());
        if first {
            reader.skip(1)?;
            (found.half_capacities.leaf, found.half_capacities.node) = (reader.u16()?, reader.u16()?);
            found.flags = reader.u32()?;
            if version == 1 {
                found.half_capacities.chunk = reader.u16()?;
                reader.skip(2)?;
            }
            (found.base, found.reserved) = (reader.offset()?, reader.offset()?);
            (found.end, found.driver) = (reader.offset()?, reader.offset()?);
            // Root group entry: name offset, header address, cache type, four reserved bytes, sixteen bytes of cache.
            reader.offset()?;
            (found.root, found.root_cache) = (reader.offset()?, reader.u32()?);
            reader.skip(20)?;
        } else {
            found.flags = reader.u8()?.into();
            (found.base, found.extension) = (reader.offset()?, reader.offset()?);
            (found.end, found.root) = (reader.offset()?, reader.offset()?);
            let end = reader.at();
            sums::matches(&bytes[..end], reader.u32()?, "superblock", at)?;
        }
        Ok(found)
    }
}
