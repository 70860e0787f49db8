//! Where the elements of a dataset are, as its header says.

use super::file::File;
use super::header::Payload;
use crate::error::{Error, Result};

/// How the elements are kept.
#[derive(Debug, Clone)]
pub(super) enum Layout {
    /// In the header: address of the first byte, and their number.
    Compact(u64, u64),
    /// In one run at this address; `None` where it was never written.
    Contiguous(Option<u64>),
    /// In boxes of equal extents.
    Chunked(Chunked),
}

/// How chunks are found.
#[derive(Debug, Clone)]
pub(super) struct Chunked {
    /// Extents of a chunk, in elements.
    pub(super) chunk: Vec<u64>,
    /// The address of the index; `None` where no chunk was written.
    pub(super) address: Option<u64>,
    pub(super) index: Index,
    /// True where chunks that stick out of the dataset are not filtered.
    pub(super) edges_plain: bool,
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
        let mut reader = file.place.reader(message);
        let defined = |address: u64| Some(address).filter(|&address| address != u64::MAX);
        let version = reader.u8()?;
        if !(1..=5).contains(&version) {
            return Err(Error::unsupported("hdf5-unsupported", "HDF5: a layout of unknown version")
                .at(message.address)
                .found(version));
        }
        if version <= 2 {
            let (rank, class) = (reader.u8()?, reader.u8()?);
            reader.skip(5)?;
            let address = if class == 0 { None } else { defined(reader.offset()?) };
            let mut extents = (0..rank).map(|_| reader.u32().map(u64::from)).collect::<Result<Vec<_>>>()?;
            return match class {
                0 => {
                    let len = u64::from(reader.u32()?);
                    Ok(Self::Compact(message.address + reader.at() as u64, len))
                }
                1 => Ok(Self::Contiguous(address)),
                2 => {
                    // The last extent is the size of an element.
                    extents.pop();
                    let chunked =
                        Chunked { chunk: extents, address, index: Index::Tree1, edges_plain: false };
                    Ok(Self::Chunked(chunked))
                }
                class => Err(refused(class).at(message.address)),
            };
        }
        match reader.u8()? {
            0 => {
                let len = u64::from(reader.u16()?);
                Ok(Self::Compact(message.address + reader.at() as u64, len))
            }
            1 => Ok(Self::Contiguous(defined(reader.offset()?))),
            2 if version == 3 => {
                let rank = reader.u8()?;
                let address = defined(reader.offset()?);
                let mut chunk = (0..rank).map(|_| reader.u32().map(u64::from)).collect::<Result<Vec<_>>>()?;
                chunk.pop();
                Ok(Self::Chunked(Chunked { chunk, address, index: Index::Tree1, edges_plain: false }))
            }
            2 => {
                let (flags, rank, width) = (reader.u8()?, reader.u8()?, reader.u8()?);
                let mut chunk =
                    (0..rank).map(|_| reader.number(usize::from(width))).collect::<Result<Vec<_>>>()?;
                chunk.pop();
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
                Ok(Self::Chunked(Chunked { chunk, address, index, edges_plain: flags & 1 != 0 }))
            }
            class => Err(refused(class).at(message.address)),
        }
    }
}

fn refused(class: u8) -> Error {
    match class {
        3 => Error::unsupported(
            "hdf5-virtual",
            "HDF5: a virtual dataset, whose elements are in other datasets",
        )
        .hint("other files are never followed: copy the dataset with its own library first"),
        class => Error::unsupported("hdf5-unsupported", "HDF5: a layout of unknown class").found(class),
    }
}
