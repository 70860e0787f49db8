//! Extents of datasets and attributes.

use super::file::File;
use weighbridge_core::error::{Error, Result};

/// Dimensions that the original reads.
const MOST_DIMS: u8 = 32;

/// A dataspace.
pub(super) struct Space {
    /// Its extents; none for a scalar.
    pub(super) dims: Vec<u64>,
    /// How far each extent may grow, `u64::MAX` without a bound; `None` where none may.
    pub(super) most: Option<Vec<u64>>,
    /// True where it has neither an element nor extents.
    pub(super) is_null: bool,
}

impl Space {
    /// Reads a dataspace message.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`] for what the original refuses: more than 32 dimensions, extents beyond their largest;
    /// [`weighbridge_core::Kind::Unsupported`] for unknown versions.
    pub(super) fn parse(file: &File, bytes: &[u8]) -> Result<Self> {
        let mut reader = file.reader(bytes);
        let (version, rank, flags) = (reader.u8()?, reader.u8()?, reader.u8()?);
        let class = match version {
            1 => {
                reader.skip(5)?;
                u8::from(rank > 0)
            }
            2 => reader.u8()?,
            version => {
                let text = "HDF5: extents of unknown version";
                return Err(Error::unsupported("hdf5-unsupported", text).found(version));
            }
        };
        if rank > MOST_DIMS {
            return Err(Error::corrupt("hdf5-corrupt", "HDF5: too many dimensions")
                .expected(format_args!("at most {MOST_DIMS}"))
                .found(rank));
        }
        if flags > 1 || class > 2 || (class != 1 && rank > 0) {
            return Err(Error::corrupt("hdf5-corrupt", "HDF5: extents of a kind that cannot be")
                .found(format_args!("class {class}, flags {flags}, {rank} dimensions")));
        }
        let dims = (0..rank).map(|_| reader.length()).collect::<Result<Vec<_>>>()?;
        let most = match flags {
            0 => None,
            _ => Some((0..rank).map(|_| reader.largest()).collect::<Result<Vec<_>>>()?),
        };
        if let Some((now, most)) =
            most.iter().flat_map(|most| dims.iter().zip(most)).find(|(now, most)| now > most)
        {
            return Err(Error::corrupt(
                "hdf5-corrupt",
                "HDF5: an extent is larger than the largest it may have",
            )
            .expected(format_args!("at most {most}"))
            .found(now));
        }
        Ok(Self { dims, most, is_null: class == 2 })
    }
}
