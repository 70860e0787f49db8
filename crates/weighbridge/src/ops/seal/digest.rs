//! The hashes that a seal may hold.

use crate::checkpoint::Name;
use crate::error::{Error, Result};
use sha2::{Digest as _, Sha256};

/// 32 bytes: what both algorithms give.
pub type Digest = [u8; 32];

/// A way to hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Algorithm {
    /// SHA-256.
    Sha256,
    /// BLAKE3, of 32 bytes, without a key.
    Blake3,
}

impl Algorithm {
    /// All of them, in the order in which they are preferred.
    pub const ALL: [Self; 2] = [Self::Sha256, Self::Blake3];

    /// The word in a manifest and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sha256 => "sha256",
            Self::Blake3 => "blake3",
        }
    }

    /// The algorithm of that word.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.as_str() == name)
    }
}

/// Which hashes are wanted.
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

    /// Only this one.
    pub fn only(algorithm: Algorithm) -> Self {
        Self { sha256: algorithm == Algorithm::Sha256, blake3: algorithm == Algorithm::Blake3 }
    }

    /// These, separated by commas: `sha256,blake3`.
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
                    return Err(Error::usage("unknown-algorithm", "there is no such algorithm")
                        .found(word)
                        .hint("the algorithms are sha256 and blake3"));
                }
            }
        }
        Ok(wanted)
    }

    /// True where none is wanted.
    pub fn is_empty(self) -> bool {
        self == Self::NONE
    }

    /// The one that the list of files is made with: SHA-256 where it is there.
    pub fn main(self) -> Algorithm {
        if self.sha256 || !self.blake3 { Algorithm::Sha256 } else { Algorithm::Blake3 }
    }

    /// The words of those that are wanted.
    pub fn names(self) -> Vec<&'static str> {
        let wanted = |a: &Algorithm| match a {
            Algorithm::Sha256 => self.sha256,
            Algorithm::Blake3 => self.blake3,
        };
        Algorithm::ALL.iter().filter(|a| wanted(a)).map(|a| a.as_str()).collect()
    }
}

/// The hashes of the same bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Digests {
    /// By SHA-256, where it is known.
    pub sha256: Option<Digest>,
    /// By BLAKE3, where it is known.
    pub blake3: Option<Digest>,
}

impl Digests {
    /// The hash by that algorithm.
    pub fn get(&self, algorithm: Algorithm) -> Option<&Digest> {
        match algorithm {
            Algorithm::Sha256 => self.sha256.as_ref(),
            Algorithm::Blake3 => self.blake3.as_ref(),
        }
    }

    /// Only those that are wanted.
    #[must_use]
    pub fn only(self, wanted: Algorithms) -> Self {
        Self { sha256: self.sha256.filter(|_| wanted.sha256), blake3: self.blake3.filter(|_| wanted.blake3) }
    }

    /// The first algorithm, of those `preferred`, by which both are known.
    pub(super) fn common(&self, other: &Self, preferred: &[Algorithm]) -> Option<Algorithm> {
        preferred.iter().copied().find(|&a| self.get(a).is_some() && other.get(a).is_some())
    }
}

/// Hashes bytes from front to back.
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

/// The hashes of no bytes.
pub(super) fn of_nothing(wanted: Algorithms) -> Digests {
    Hashers::new(wanted).finish()
}

/// 64 lower-case hexadecimal digits.
pub(super) fn text(digest: &Digest) -> String {
    Name::hex(digest)
}

/// The digest that 64 hexadecimal digits mean.
pub(super) fn parse(text: &str) -> Option<Digest> {
    Name::unhex(text)?.try_into().ok()
}
