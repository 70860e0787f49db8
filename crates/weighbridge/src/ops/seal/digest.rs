//! Hash algorithms and digests of a seal.

use crate::checkpoint::Name;
use crate::error::{Error, Result};
use sha2::{Digest as _, Sha256};

/// Digest of either algorithm: 32 bytes.
pub type Digest = [u8; 32];

/// Hash algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Algorithm {
    /// SHA-256.
    Sha256,
    /// BLAKE3, of 32 bytes, without a key.
    Blake3,
}

impl Algorithm {
    /// All algorithms, in order of preference.
    pub const ALL: [Self; 2] = [Self::Sha256, Self::Blake3];

    /// Returns the word in a manifest and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sha256 => "sha256",
            Self::Blake3 => "blake3",
        }
    }

    /// Returns the algorithm of that word.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.as_str() == name)
    }
}

/// Set of hash algorithms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Algorithms {
    /// SHA-256.
    pub sha256: bool,
    /// BLAKE3.
    pub blake3: bool,
}

impl Algorithms {
    /// Both.
    pub const BOTH: Self = Self { sha256: true, blake3: true };
    /// None: bytes are only read.
    pub(super) const NONE: Self = Self { sha256: false, blake3: false };

    /// Returns the set of this algorithm.
    pub fn only(algorithm: Algorithm) -> Self {
        Self { sha256: algorithm == Algorithm::Sha256, blake3: algorithm == Algorithm::Blake3 }
    }

    /// Parses words separated by commas: `sha256,blake3`.
    ///
    /// # Errors
    /// [`crate::Kind::Usage`], `unknown-algorithm`, for another word.
    pub fn parse(text: &str) -> Result<Self> {
        let mut wanted = Self::default();
        for word in text.split(',') {
            match Algorithm::from_name(word.trim()) {
                Some(Algorithm::Sha256) => wanted.sha256 = true,
                Some(Algorithm::Blake3) => wanted.blake3 = true,
                None => {
                    return Err(Error::usage("unknown-algorithm", "unknown hash algorithm")
                        .found(word)
                        .hint("the algorithms are sha256 and blake3"));
                }
            }
        }
        Ok(wanted)
    }

    /// True where the set is empty.
    pub fn is_empty(self) -> bool {
        self == Self::NONE
    }

    /// Returns the algorithm of the list of files: SHA-256 if it is in the set.
    pub fn main(self) -> Algorithm {
        if self.sha256 || !self.blake3 { Algorithm::Sha256 } else { Algorithm::Blake3 }
    }

    /// Returns the words of the algorithms.
    pub fn names(self) -> Vec<&'static str> {
        let wanted = |a: &Algorithm| match a {
            Algorithm::Sha256 => self.sha256,
            Algorithm::Blake3 => self.blake3,
        };
        Algorithm::ALL.iter().filter(|a| wanted(a)).map(|a| a.as_str()).collect()
    }
}

/// Digests of the same bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Digests {
    /// SHA-256, where known.
    pub sha256: Option<Digest>,
    /// BLAKE3, where known.
    pub blake3: Option<Digest>,
}

impl Digests {
    /// Returns the digest of that algorithm.
    pub fn get(&self, algorithm: Algorithm) -> Option<&Digest> {
        match algorithm {
            Algorithm::Sha256 => self.sha256.as_ref(),
            Algorithm::Blake3 => self.blake3.as_ref(),
        }
    }

    /// Keeps only the digests of these algorithms.
    #[must_use]
    pub fn only(self, wanted: Algorithms) -> Self {
        Self { sha256: self.sha256.filter(|_| wanted.sha256), blake3: self.blake3.filter(|_| wanted.blake3) }
    }

    /// Returns the first of the `preferred` algorithms for which both have a digest.
    pub(super) fn common(&self, other: &Self, preferred: &[Algorithm]) -> Option<Algorithm> {
        preferred.iter().copied().find(|&a| self.get(a).is_some() && other.get(a).is_some())
    }
}

/// Hashers of a sequence of bytes.
#[derive(Debug)]
pub(super) struct Hashers {
    sha256: Option<Sha256>,
    blake3: Option<Box<blake3::Hasher>>,
}

impl Hashers {
    pub(super) fn new(wanted: Algorithms) -> Self {
        Self {
            sha256: wanted.sha256.then(Sha256::new),
            blake3: wanted.blake3.then(|| Box::new(blake3::Hasher::new())),
        }
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        if let Some(hasher) = &mut self.sha256 {
            hasher.update(bytes);
        }
        if let Some(hasher) = &mut self.blake3 {
            hasher.update(bytes);
        }
    }

    pub(super) fn finish(self) -> Digests {
        Digests {
            sha256: self.sha256.map(|hasher| hasher.finalize().into()),
            blake3: self.blake3.map(|hasher| *hasher.finalize().as_bytes()),
        }
    }
}

/// Returns the digests of zero bytes.
pub(super) fn of_nothing(wanted: Algorithms) -> Digests {
    Hashers::new(wanted).finish()
}

/// Returns 64 lower-case hexadecimal digits.
pub(super) fn text(digest: &Digest) -> String {
    Name::hex(digest)
}

/// Parses 64 hexadecimal digits.
pub(super) fn parse(text: &str) -> Option<Digest> {
    Name::unhex(text)?.try_into().ok()
}
