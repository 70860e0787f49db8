//! Data layout messages: location of the elements of a dataset.

use super::file::File;
use super::header::Payload;
use bytes::Bytes;
use weighbridge_core::error::{Error, Result};

/// Maximum number of sizes in a layout message: the dimensions, and the element size.
const MAX_SIZES: u8 = 33;

/// Layout of the elements.
#[derive(Debug, Clone)]
pub(super) enum Layout {
    /// In the header: address of the first byte, and length.
    Compact(u64, u64),
    /// In one run: address, `None` where it is unwritten; and length, where it is stated.
    Contiguous(Option<u64>, Option<u64>),
    /// In chunks of equal dimensions.
    Chunked(Chunked),
    /// In other datasets.
    Virtual(Virtual),
}

/// Location of chunks.
#[derive(Debug, Clone)]
pub(super) struct Chunked {
    /// Dimensions of a chunk, in elements.
    pub(super) chunk: Vec<u64>,
    /// Element size in bytes.
    pub(super) element: u64,
    /// FileContext of the index; `None` where no chunk is written.
    pub(super) address: Option<u64>,
    pub(super) index: Index,
    /// True where partial edge chunks are not filtered.
    pub(super) edges_plain: bool,
}

/// Location of the mappings of a virtual dataset, and their bytes once they are read.
#[derive(Debug, Clone)]
pub(super) struct Virtual {
    /// FileContext of the global heap; `None` where there is no mapping.
    pub(super) address: Option<u64>,
    /// Index of the object in the heap.
    pub(super) object: u32,
    pub(super) block: Bytes,
}

/// Kind of chunk index.
#[derive(Debug, Clone, Copy)]
pub(super) enum Index {
    Tree1,
    /// The single chunk itself: stored length (0: unfiltered) and mask of skipped filters.
    Single(u64, u32),
    /// No index: all chunks are consecutive.
    Implicit,
    Fixed,
    Extensible,
    Tree2,
}

impl Layout {
    /// Parses the message.
    pub(super) fn parse(file: &File, message: &Payload) -> Result<Self> {
        let mut reader = file.reader(message);
        let defined = |address: u64| Some(address).filter(|&address| address != u64::MAX);
        let version = reader.u8()?;
        if !(1..=5).contains(&version) {
            return Err(Error::unsupported(
                "hdf5-unsupported",
                "HDF5: the layout message has an unsupported version",
            )
            .at(message.address)
            .found(version));
        }
        if version <= 2 {
            let (rank, class) = (reader.u8()?, reader.u8()?);
            if rank == 0 || rank > MAX_SIZES {
                return Err(bad_rank(rank).at(message.address));
            }
            reader.skip(5)?;
            let address = if class == 0 { None } else { defined(reader.offset()?) };
            let sizes = (0..rank).map(|_| reader.u32().map(u64::from)).collect::<Result<Vec<_>>>()?;
            return match class {
                0 => {
                    let len = u64::from(reader.u32()?);
                    Ok(Self::Compact(message.address + reader.at() as u64, len))
                }
                1 => Ok(Self::Contiguous(address, None)),
                2 => {
                    let (chunk, element) = split(sizes, message.address)?;
                    let index = Index::Tree1;
                    Ok(Self::Chunked(Chunked { chunk, element, address, index, edges_plain: false }))
                }
                class => Err(unsupported_class(class).at(message.address)),
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
                let sizes = (0..rank).map(|_| reader.u32().map(u64::from)).collect::<Result<Vec<_>>>()?;
                let (chunk, element) = split(sizes, message.address)?;
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
                let sizes =
                    (0..rank).map(|_| reader.number(usize::from(width))).collect::<Result<Vec<_>>>()?;
                let (chunk, element) = split(sizes, message.address)?;
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
                            "HDF5: the layout message has an unsupported chunk index type",
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
            class => Err(unsupported_class(class).at(message.address)),
        }
    }
}

/// Splits sizes into the dimensions of a chunk and the element size behind them.
fn split(mut sizes: Vec<u64>, address: u64) -> Result<(Vec<u64>, u64)> {
    let rank = u8::try_from(sizes.len()).unwrap_or(u8::MAX);
    match sizes.pop() {
        Some(element) if rank > 1 && rank <= MAX_SIZES && !sizes.contains(&0) => Ok((sizes, element)),
        _ => Err(bad_rank(rank).at(address)),
    }
}

fn bad_rank(rank: u8) -> Error {
    Error::corrupt("hdf5-corrupt", "HDF5: the layout message has an invalid number of dimensions")
        .expected(format_args!("at most {MAX_SIZES}, for chunks at least 2 and all nonzero"))
        .found(rank)
}

fn unsupported_class(class: u8) -> Error {
    Error::unsupported("hdf5-unsupported", "HDF5: the layout message has an unsupported class").found(class)
}
