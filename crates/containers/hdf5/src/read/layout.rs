//! Where the elements of a dataset are, as its header says.

use super::file::File;
use super::header::Payload;
use bytes::Bytes;
use weighbridge_core::error::{Error, Result};

/// Extents in a layout: the dimensions, and the size of an element.
const MOST_EXTENTS: u8 = 33;

/// How the elements are kept.
#[derive(Debug, Clone)]
pub(super) enum Layout {
    /// In the header: address of the first byte, and their number.
    Compact(u64, u64),
    /// In one run at this address, `None` where it was never written; and its bytes, where they are stated.
    Contiguous(Option<u64>, Option<u64>),
    /// In boxes of equal extents.
    Chunked(Chunked),
    /// In other datasets.
    Virtual(Virtual),
}

/// How chunks are found.
#[derive(Debug, Clone)]
pub(super) struct Chunked {
    /// Extents of a chunk, in elements.
    pub(super) chunk: Vec<u64>,
    /// Bytes of an element.
    pub(super) element: u64,
    /// The address of the index; `None` where no chunk was written.
    pub(super) address: Option<u64>,
    pub(super) index: Index,
    /// True where chunks that stick out of the dataset are not filtered.
    pub(super) edges_plain: bool,
}

/// Location of the mappings of a virtual dataset, and their bytes once they were read.
#[derive(Debug, Clone)]
pub(super) struct Virtual {
    /// The address of the heap; `None` where there is no mapping.
    pub(super) address: Option<u64>,
    /// The number of the object in it.
    pub(super) object: u32,
    pub(super) block: Bytes,
}

/// The kinds of index over chunks.
#[derive(Debug, Clone, Copy)]
pub(super) enum Index {
    Tree1,
    /// The only chunk itself: its bytes in the file (0: as many as it has) and the filters left out.
    Single(u64, u32),
    /// All chunks one after the other.
    Implicit,
    Fixed,
    Extensible,
    Tree2,
}

impl Layout {
    /// Understands the message.
    pub(super) fn parse(file: &File, message: &Payload) -> Result<Self> {
        let mut reader = file.reader(message);
        let defined = |address: u64| Some(address).filter(|&address| address != u64::MAX);
        let version = reader.u8()?;
        if !(1..=5).contains(&version) {
            return Err(Error::unsupported("hdf5-unsupported", "HDF5: a layout of unknown version")
                .at(message.address)
                .found(version));
        }
        if version <= 2 {
            let (rank, class) = (reader.u8()?, reader.u8()?);
            if rank == 0 || rank > MOST_EXTENTS {
                return Err(bad_rank(rank).at(message.address));
            }
            reader.skip(5)?;
            let address = if class == 0 { None } else { defined(reader.offset()?) };
            let extents = (0..rank).map(|_| reader.u32().map(u64::from)).collect::<Result<Vec<_>>>()?;
            return match class {
                0 => {
                    let len = u64::from(reader.u32()?);
                    Ok(Self::Compact(message.address + reader.at() as u64, len))
                }
                1 => Ok(Self::Contiguous(address, None)),
                2 => {
                    let (chunk, element) = split(extents, message.address)?;
                    let index = Index::Tree1;
                    Ok(Self::Chunked(Chunked { chunk, element, address, index, edges_plain: false }))
                }
                class => Err(refused(class).at(message.address)),
            };
        }
        match reader.u8()? {
            0 => {
                let len = u64::from(reader.u16()?);
                Ok(Self::Compact(message.address + reader.at() as u64, len))
            }
            1 => Ok(Self::Contiguous(defined(reader.offset()?), Some(reader.length()?))),
            2 if version == 3 => {
                let rank = reader.u8()?;
                let address = defined(reader.offset()?);
                let extents = (0..rank).map(|_| reader.u32().map(u64::from)).collect::<Result<Vec<_>>>()?;
                let (chunk, element) = split(extents, message.address)?;
                Ok(Self::Chunked(Chunked {
                    chunk,
                    element,
                    address,
                    index: Index::Tree1,
                    edges_plain: false,
                }))
            }
            2 => {
                let (flags, rank, width) = (reader.u8()?, reader.u8()?, reader.u8()?);
                let extents =
                    (0..rank).map(|_| reader.number(usize::from(width))).collect::<Result<Vec<_>>>()?;
                let (chunk, element) = split(extents, message.address)?;
                let index = match reader.u8()? {
                    1 if flags & 2 != 0 => Index::Single(
                        if version == 4 { reader.length()? } else { reader.offset()? },
                        reader.u32()?,
                    ),
                    1 => Index::Single(0, 0),
                    2 => Index::Implicit,
                    3 => {
                        reader.skip(1)?;
                        Index::Fixed
                    }
                    4 => {
                        reader.skip(5)?;
                        Index::Extensible
                    }
                    5 => {
                        reader.skip(6)?;
                        Index::Tree2
                    }
                    kind => {
                        return Err(Error::unsupported(
                            "hdf5-unsupported",
                            "HDF5: an unknown index of chunks",
                        )
                        .at(message.address)
                        .found(kind));
                    }
                };
                let address = defined(reader.offset()?);
                Ok(Self::Chunked(Chunked { chunk, element, address, index, edges_plain: flags & 1 != 0 }))
            }
            3 if version >= 4 => {
                let (address, object) = (defined(reader.offset()?), reader.u32()?);
                Ok(Self::Virtual(Virtual { address, object, block: Bytes::new() }))
            }
            class => Err(refused(class).at(message.address)),
        }
    }
}

/// The extents of a chunk, and the size of an element behind them.
fn split(mut extents: Vec<u64>, address: u64) -> Result<(Vec<u64>, u64)> {
    let rank = u8::try_from(extents.len()).unwrap_or(u8::MAX);
    match extents.pop() {
        Some(element) if rank > 1 && rank <= MOST_EXTENTS && !extents.contains(&0) => Ok((extents, element)),
        _ => Err(bad_rank(rank).at(address)),
    }
}

fn bad_rank(rank: u8) -> Error {
    Error::corrupt("hdf5-corrupt", "HDF5: a layout of extents that cannot be")
        .expected(format_args!("at most {MOST_EXTENTS}, of chunks at least 2, none of them 0"))
        .found(rank)
}

fn refused(class: u8) -> Error {
    Error::unsupported("hdf5-unsupported", "HDF5: a layout of unknown class").found(class)
}
