//! Memory for whole tensors.

use crate::error::{Error, Result};
use crate::source::to_usize;
use memmap2::MmapMut;
use std::ops::{Deref, DerefMut};

/// From this size on, memory comes from the system in large pages, where it has them: filling many
/// small ones takes longer than reading the file.
const LARGE: u64 = 4 << 20;

/// Bytes of known length.
#[derive(Debug)]
pub struct Buffer(Inner);

#[derive(Debug)]
enum Inner {
    Heap(Vec<u8>),
    Pages(MmapMut),
}

impl Buffer {
    /// `len` zeros.
    ///
    /// # Errors
    /// [`crate::Kind::Limit`] where the machine has no such memory.
    pub fn zeroed(len: u64) -> Result<Self> {
        let size = to_usize(len)?;
        if len < LARGE {
            return Ok(Self(Inner::Heap(vec![0; size])));
        }
        let pages = MmapMut::map_anon(size).map_err(|e| {
            Error::limit("no-memory", format!("{len} bytes of memory are not to be had: {e}"))
        })?;
        // Only advice: a system without large pages gives small ones.
        #[cfg(target_os = "linux")]
        let _ = pages.advise(memmap2::Advice::HugePage);
        Ok(Self(Inner::Pages(pages)))
    }
}

impl From<Vec<u8>> for Buffer {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Inner::Heap(bytes))
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Inner::Heap(bytes) => bytes,
            Inner::Pages(pages) => pages,
        }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Inner::Heap(bytes) => bytes,
            Inner::Pages(pages) => pages,
        }
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_begin_with_zeros_and_can_be_filled() {
        for len in [0, 1, LARGE - 1, LARGE, LARGE + 1] {
            let mut buffer = Buffer::zeroed(len).unwrap();
            assert_eq!(buffer.len() as u64, len);
            assert!(buffer.iter().all(|&b| b == 0));
            buffer.fill(7);
            assert!(buffer.iter().all(|&b| b == 7));
        }
        assert_eq!(Buffer::from(vec![1, 2]).as_ref(), [1, 2]);
    }
}
