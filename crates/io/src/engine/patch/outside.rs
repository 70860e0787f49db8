//! Hash of the bytes outside the ranges of a patch.

use sha2::{Digest, Sha256};
use weighbridge_core::error::{Error, Result};

/// Hash algorithm, stored as the version of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Algorithm {
    /// BLAKE3: several times as fast; requires the feature `blake3`.
    Blake3,
    /// SHA-256: in every build.
    Sha256,
}

/// Hash of the bytes of a file outside the ranges of a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Outside {
    pub(super) algorithm: Algorithm,
    pub(super) hash: [u8; 32],
}

impl Algorithm {
    /// Algorithm of new records.
    pub(super) const OWN: Self = if cfg!(feature = "blake3") { Self::Blake3 } else { Self::Sha256 };

    /// Version of records with this algorithm.
    pub(super) fn version(self) -> u32 {
        match self {
            Self::Blake3 => 2,
            Self::Sha256 => 3,
        }
    }

    /// Algorithm of records of this version.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Unsupported`], `undo-version`.
    pub(super) fn of_version(version: u32) -> Result<Self> {
        match version {
            2 if cfg!(feature = "blake3") => Ok(Self::Blake3),
            3 => Ok(Self::Sha256),
            _ => Err(Error::unsupported("undo-version", "the version of the undo record is not supported")
                .expected(Self::OWN.version())
                .found(version)),
        }
    }
}

/// Hash computation in progress.
pub(super) enum Hasher {
    #[cfg(feature = "blake3")]
    Blake3(Box<blake3::Hasher>),
    Sha256(Sha256),
}

impl Hasher {
    pub(super) fn new(algorithm: Algorithm) -> Self {
        match algorithm {
            #[cfg(feature = "blake3")]
            Algorithm::Blake3 => Self::Blake3(Box::default()),
            _ => Self::Sha256(Sha256::new()),
        }
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        match self {
            #[cfg(feature = "blake3")]
            Self::Blake3(hasher) => {
                hasher.update(bytes);
            }
            Self::Sha256(hasher) => hasher.update(bytes),
        }
    }

    pub(super) fn finish(self) -> [u8; 32] {
        match self {
            #[cfg(feature = "blake3")]
            Self::Blake3(hasher) => *hasher.finalize().as_bytes(),
            Self::Sha256(hasher) => hasher.finalize().into(),
        }
    }
}
