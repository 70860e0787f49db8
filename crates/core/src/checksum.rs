//! Checksums that files state for their bytes.

use crate::error::{Error, Result};
use crate::phrase;
use crate::phrase::Opt;
use crate::source::{SourceRef, check_range, to_usize};
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes per read.
const STEP: u64 = 256 << 10;

/// Kind of checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChecksumKind {
    /// CRC-32, as in zip.
    Crc32,
    /// CRC-32C (Castagnoli), as in LevelDB and TensorFlow.
    #[cfg(feature = "crc32c")]
    Crc32c,
}

impl ChecksumKind {
    /// Returns the name for users.
    pub fn name(self) -> &'static str {
        match self {
            Self::Crc32 => "CRC-32",
            #[cfg(feature = "crc32c")]
            Self::Crc32c => "CRC-32C",
        }
    }
}

/// Checksum of the bytes so far.
#[derive(Debug, Clone)]
pub enum Checksum {
    /// CRC-32.
    Crc32(crc32fast::Hasher),
    /// CRC-32C, and the number of bytes.
    #[cfg(feature = "crc32c")]
    Crc32c {
        /// Value.
        value: u32,
        /// Number of bytes.
        len: u64,
    },
}

impl Checksum {
    /// Creates the checksum of no bytes.
    pub fn new(kind: ChecksumKind) -> Self {
        match kind {
            ChecksumKind::Crc32 => Self::Crc32(crc32fast::Hasher::new()),
            #[cfg(feature = "crc32c")]
            ChecksumKind::Crc32c => Self::Crc32c { value: 0, len: 0 },
        }
    }

    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Crc32(hasher) => hasher.update(bytes),
            #[cfg(feature = "crc32c")]
            Self::Crc32c { value, len } => {
                *value = crc32c::crc32c_append(*value, bytes);
                *len += bytes.len() as u64;
            }
        }
    }

    /// Adds the checksum of the bytes that follow. Checksums of different kinds are not combined: the second one is ignored.
    pub fn combine(&mut self, next: &Self) {
        match (self, next) {
            (Self::Crc32(hasher), Self::Crc32(next)) => hasher.combine(next),
            #[cfg(feature = "crc32c")]
            (Self::Crc32c { value, len }, Self::Crc32c { value: next, len: more }) => {
                let bytes = usize::try_from(*more).unwrap_or(usize::MAX);
                *value = crc32c::crc32c_combine(*value, *next, bytes);
                *len += more;
            }
            #[cfg(feature = "crc32c")]
            _ => {}
        }
    }

    /// Returns the value.
    pub fn finish(&self) -> u32 {
        match self {
            Self::Crc32(hasher) => hasher.clone().finalize(),
            #[cfg(feature = "crc32c")]
            Self::Crc32c { value, .. } => *value,
        }
    }
}

/// Checksum that a file states for a range of its bytes. All tensors in the range share it, and it is computed once.
#[derive(Debug)]
pub struct Check {
    source: SourceRef,
    offset: u64,
    len: u64,
    kind: ChecksumKind,
    value: u32,
    /// Checksum of the bytes, once computed.
    found: Mutex<Option<u32>>,
}

impl Check {
    /// Creates the checksum `value` of `len` bytes of `source` from `offset`.
    pub fn new(source: &SourceRef, offset: u64, len: u64, kind: ChecksumKind, value: u32) -> Arc<Self> {
        Arc::new(Self { source: source.clone(), offset, len, kind, value, found: Mutex::new(None) })
    }

    /// Returns the source.
    pub fn source(&self) -> &SourceRef {
        &self.source
    }

    /// Returns the offset of the first byte in the source.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns true for a range of no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the kind of checksum.
    pub fn kind(&self) -> ChecksumKind {
        self.kind
    }

    /// Returns the checksum that the file states.
    pub fn value(&self) -> u32 {
        self.value
    }

    /// Reads the range, unless its checksum is known, and compares the checksum.
    ///
    /// # Errors
    /// [`crate::Kind::Corrupt`], code `crc-mismatch`; errors of the source.
    pub fn verify(&self) -> Result<()> {
        let mut known = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let found = match *known {
            Some(found) => found,
            None => *known.insert(self.part(self.offset, self.len)?.finish()),
        };
        drop(known);
        self.compare(found)
    }

    /// Returns true if the checksum is known, so that [`verify`](Self::verify) reads nothing.
    pub fn is_known(&self) -> bool {
        self.found.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Keeps the checksum `found` of the bytes, which the caller computed, and compares it.
    ///
    /// # Errors
    /// [`crate::Kind::Corrupt`], code `crc-mismatch`.
    pub fn settle(&self, found: u32) -> Result<()> {
        *self.found.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
        self.compare(found)
    }

    /// Computes the checksum of `len` bytes of the source from `offset`.
    ///
    /// # Errors
    /// Errors of the source.
    pub fn part(&self, offset: u64, len: u64) -> Result<Checksum> {
        check_range(&*self.source, offset, len)?;
        let mut sum = Checksum::new(self.kind);
        let mut buffer = vec![0; to_usize(len.min(STEP))?];
        let mut done = 0;
        while done < len {
            let step = &mut buffer[..to_usize((len - done).min(STEP))?];
            self.source.read_at(offset + done, step)?;
            sum.update(step);
            done += step.len() as u64;
        }
        Ok(sum)
    }

    fn compare(&self, found: u32) -> Result<()> {
        match found == self.value {
            true => Ok(()),
            false => Err(self.mismatch(self.source.label(), found)),
        }
    }

    /// Returns the error for bytes of the file `label` with the wrong checksum `found`.
    pub fn mismatch(&self, label: &str, found: u32) -> Error {
        // Users know the file, not the range of it that is the source.
        let (mut offset, mut source) = (self.offset, &self.source);
        while let Some(within) = source.within().filter(|within| !within.encoded) {
            (offset, source) = (offset.saturating_add(within.offset), within.source);
        }
        Error::corrupt("crc-mismatch", "the checksum of the data does not match")
            .in_file(label)
            .at(offset)
            .expected(format_args!("{} {:08x} over {} bytes", self.kind.name(), self.value, self.len))
            .found(format_args!("{found:08x}"))
            .hint(phrase![
                "the file is damaged; get another copy, or extract the readable tensors with ",
                Opt::Salvage
            ])
    }
}

impl PartialEq for Check {
    /// Compares range and value. Sources are equal if they have the same label.
    fn eq(&self, other: &Self) -> bool {
        let key = |check: &Self| (check.offset, check.len, check.kind, check.value);
        key(self) == key(other) && self.source.label() == other.source.label()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn combined_checksums_are_those_of_the_whole() {
        let kinds = [
            (ChecksumKind::Crc32, 0xcbf4_3926),
            #[cfg(feature = "crc32c")]
            (ChecksumKind::Crc32c, 0xe306_9283),
        ];
        for (kind, expected) in kinds {
            for cut in 0..=9 {
                let (mut first, mut second) = (Checksum::new(kind), Checksum::new(kind));
                let (a, b) = b"123456789".split_at(cut);
                first.update(a);
                second.update(b);
                first.combine(&second);
                assert_eq!(first.finish(), expected, "{kind:?} {cut}");
            }
        }
    }
}
