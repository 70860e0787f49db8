//! An unpacked member as a source.

use super::{Member, Method};
use weighbridge_core::error::Result;
use weighbridge_io::source::{Source, SourceRef, Within};

/// Unpacked bytes of a member, with the archive that contains it.
#[derive(Debug)]
pub struct Unpacked {
    /// The unpacked bytes.
    pub bytes: SourceRef,
    /// The archive.
    pub archive: SourceRef,
    /// The member.
    pub member: Member,
}

impl Source for Unpacked {
    fn len(&self) -> u64 {
        self.bytes.len()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.bytes.read_at(offset, buffer)
    }

    fn label(&self) -> &str {
        self.bytes.label()
    }

    fn as_slice(&self) -> Option<&[u8]> {
        self.bytes.as_slice()
    }

    fn is_sequential(&self) -> bool {
        self.bytes.is_sequential()
    }

    fn within(&self) -> Option<Within<'_>> {
        let (offset, len) = (self.member.data_offset, self.member.compressed_len);
        Some(Within { source: &self.archive, offset, len, encoded: self.member.method == Method::Deflated })
    }
}
