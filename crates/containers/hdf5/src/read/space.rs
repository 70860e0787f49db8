//! Dataspaces: dimensions of datasets and attributes.

use super::file::File;
use weighbridge_core::error::{Error, Result};

/// Maximum number of dimensions.
const MAX_DIMS: u8 = 32;

/// A dataspace.
pub(super) struct Space {
    /// Dimensions; none for a scalar.
    pub(super) dims: Vec<u64>,
    /// Maximum dimensions, `u64::MAX` if unlimited; `None` where the dimensions are fixed.
    pub(super) most: Option<Vec<u64>>,
    /// True for a null dataspace: neither elements nor dimensions.
    pub(super) is_null: bool,
}

impl Space {
    /// Reads a dataspace message.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`] for dataspaces that the HDF5 library rejects: more than 32 dimensions,
    /// dimensions above their maximum;
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
                let text = "HDF5: the dataspace message has an unsupported version";
                return Err(Error::unsupported("hdf5-unsupported", text).found(version));
            }
        };
        if rank > MAX_DIMS {
            return Err(Error::corrupt("hdf5-corrupt", "HDF5: the dataspace has too many dimensions")
                .expected(format_args!("at most {MAX_DIMS}"))
                .found(rank));
        }
        if flags > 1 || class > 2 || (class != 1 && rank > 0) {
            return Err(Error::corrupt("hdf5-corrupt", "HDF5: the dataspace has an invalid type or flags")
                .found(format_args!("type {class}, flags {flags}, {rank} dimensions")));
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
                "HDF5: a dimension of the dataspace exceeds its maximum",
            )
            .expected(format_args!("at most {most}"))
            .found(now));
        }
        Ok(Self { dims, most, is_null: class == 2 })
    }
}
