//! Little-endian numbers from bytes in memory.

use weighbridge_core::error::{Error, Result};

/// Forward reader of the bytes of one structure; all numbers are little-endian.
#[derive(Debug, Clone)]
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    offsets: u8,
    lengths: u8,
}

impl<'a> Reader<'a> {
    /// Creates a reader of `bytes`, in a file whose addresses have `offsets` bytes and whose lengths have `lengths` bytes.
    pub(super) fn new(bytes: &'a [u8], offsets: u8, lengths: u8) -> Self {
        Self { bytes, at: 0, offsets, lengths }
    }

    /// Moves the reader to the byte `at`.
    pub(super) fn from(self, at: usize) -> Self {
        Self { at: at.min(self.bytes.len()), ..self }
    }

    /// Number of bytes read so far.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// Number of bytes left.
    pub(super) fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// Returns the next `len` bytes.
    pub(super) fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let end = self.at.checked_add(len);
        match end.and_then(|end| self.bytes.get(self.at..end)) {
            Some(bytes) => {
                self.at += len;
                Ok(bytes)
            }
            None => Err(Error::corrupt("hdf5-corrupt", "HDF5: a structure ends before its last field")
                .expected(format_args!("{len} more bytes"))
                .found(self.left())
                .hint("the file is truncated or damaged; use another copy")),
        }
    }

    /// Skips `len` bytes.
    pub(super) fn skip(&mut self, len: usize) -> Result<()> {
        self.take(len).map(drop)
    }

    /// Reads a number of `len` bytes, at most 8.
    pub(super) fn number(&mut self, len: usize) -> Result<u64> {
        let bytes = self.take(len)?;
        let mut wide = [0; 8];
        match wide.get_mut(..len) {
            Some(low) => low.copy_from_slice(bytes),
            None => {
                return Err(Error::corrupt("hdf5-corrupt", "HDF5: a number is wider than 8 bytes").found(len));
            }
        }
        Ok(u64::from_le_bytes(wide))
    }

    pub(super) fn u8(&mut self) -> Result<u8> {
        Ok(self.take(1)?[0])
    }

    pub(super) fn u16(&mut self) -> Result<u16> {
        let bytes = self.take(2)?;
        Ok(u16::from_le_bytes([bytes[0], bytes[1]]))
    }

    pub(super) fn u32(&mut self) -> Result<u32> {
        let bytes = self.take(4)?;
        Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    /// Reads an address; `u64::MAX` where it is undefined.
    pub(super) fn offset(&mut self) -> Result<u64> {
        let address = self.number(usize::from(self.offsets))?;
        let undefined = match self.offsets {
            8.. => u64::MAX,
            bytes => (1 << (8 * u32::from(bytes))) - 1,
        };
        Ok(if address == undefined { u64::MAX } else { address })
    }

    /// Reads a length.
    pub(super) fn length(&mut self) -> Result<u64> {
        self.number(usize::from(self.lengths))
    }

    /// Reads a maximum dimension; `u64::MAX` (unlimited) where all bits are set.
    pub(super) fn largest(&mut self) -> Result<u64> {
        let length = self.length()?;
        let most = u64::MAX >> (64 - 8 * u32::from(self.lengths.clamp(1, 8)));
        Ok(if length == most { u64::MAX } else { length })
    }

    /// Reads a NUL-terminated text, without the NUL.
    pub(super) fn text(&mut self) -> Result<&'a [u8]> {
        let rest = &self.bytes[self.at..];
        let Some(len) = memchr::memchr(0, rest) else {
            return Err(Error::corrupt("hdf5-corrupt", "HDF5: a name is not NUL-terminated"));
        };
        self.at += len + 1;
        Ok(&rest[..len])
    }
}
