//! Checksums that files state for their bytes.

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
