//! Forward reading with skips, for parsers of headers.

use super::{SourceRef, check_range, to_usize};
use crate::error::{Error, Result};
use crate::text::counted;

/// Bytes fetched first after a skip. Large enough for the header of a tensor, small enough to list a file of many large
/// tensors cheaply.
const MIN_WINDOW: usize = 512;
/// Maximum bytes fetched at once by sequential reads.
const MAX_WINDOW: usize = 64 << 10;

/// Position in a source with a small buffered window.
///
/// The window grows while reads are sequential and shrinks after a skip. A file of many small tensors is read in large chunks,
/// and tensor data between headers is never read.
#[derive(Debug)]
pub struct Cursor {
    source: SourceRef,
    position: u64,
    window: Vec<u8>,
    window_at: u64,
    next_window: usize,
}

impl Cursor {
    /// Creates a cursor at `position` of `source`.
    pub fn new(source: SourceRef, position: u64) -> Self {
        Self { source, position, window: Vec::new(), window_at: 0, next_window: MIN_WINDOW }
    }

    /// Returns the offset of the next byte in the source.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Returns the number of bytes up to the end of the source.
    pub fn remaining(&self) -> u64 {
        self.source.len().saturating_sub(self.position)
    }

    /// Returns the source.
    pub fn source(&self) -> &SourceRef {
        &self.source
    }

    /// Fails if fewer than `len` bytes remain. `what` names them in the error: `the header`.
    ///
    /// # Errors
    /// [`crate::Kind::Corrupt`], code `truncated`.
    pub fn need(&self, len: u64, what: &str) -> Result<()> {
        if len <= self.remaining() {
            return Ok(());
        }
        Err(Error::corrupt("truncated", format!("the file ends within {what}"))
            .in_file(self.source.label())
            .at(self.position)
            .expected(format_args!("{} from here", counted(len, "byte", "bytes")))
            .found(counted(self.remaining(), "byte", "bytes"))
            .hint("the file is truncated or damaged; compare its length with the original"))
    }

    /// Skips `len` bytes without reading them.
    ///
    /// # Errors
    /// As [`need`](Self::need).
    pub fn skip(&mut self, len: u64, what: &str) -> Result<()> {
        self.need(len, what)?;
        self.position += len;
        Ok(())
    }

    /// Reads `N` bytes.
    ///
    /// # Errors
    /// As [`need`](Self::need) and [`Source::read_at`](super::Source::read_at).
    pub fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N]> {
        self.need(N as u64, what)?;
        let bytes = self.view(N)?;
        let mut array = [0; N];
        array.copy_from_slice(bytes);
        self.position += N as u64;
        Ok(array)
    }

    /// Returns the next `N` bytes without advancing; `None` if fewer remain.
    ///
    /// # Errors
    /// As [`Source::read_at`](super::Source::read_at).
    pub fn peek<const N: usize>(&mut self) -> Result<Option<[u8; N]>> {
        if self.remaining() < N as u64 {
            return Ok(None);
        }
        let mut array = [0; N];
        array.copy_from_slice(self.view(N)?);
        Ok(Some(array))
    }

    /// Returns up to `max` next bytes without advancing.
    ///
    /// # Errors
    /// As [`Source::read_at`](super::Source::read_at).
    pub fn peek_up_to(&mut self, max: usize) -> Result<&[u8]> {
        let len = (max as u64).min(self.remaining());
        self.view(to_usize(len)?)
    }

    /// Reads `len` bytes. The caller compares `len` with its limits; this method compares it with the end of the source
    /// before it allocates.
    ///
    /// # Errors
    /// As [`need`](Self::need) and [`Source::read_at`](super::Source::read_at).
    pub fn bytes(&mut self, len: u64, what: &str) -> Result<Vec<u8>> {
        self.need(len, what)?;
        let bytes = if len <= MAX_WINDOW as u64 {
            self.view(to_usize(len)?)?.to_vec()
        } else {
            super::read_vec(&*self.source, self.position, len)?
        };
        self.position += len;
        Ok(bytes)
    }

    /// Returns `len` bytes from the position. The caller checked that they exist.
    fn view(&mut self, len: usize) -> Result<&[u8]> {
        let end = self.window_at + self.window.len() as u64;
        let inside = self.window_at <= self.position && self.position + len as u64 <= end;
        if !inside {
            // A skip shorter than the smallest window counts as sequential, so that a file of tiny
            // tensors is read in large chunks too.
            let sequential =
                self.window_at <= self.position && self.position <= end + MIN_WINDOW as u64 && end > 0;
            let size = if sequential { (self.next_window * 2).min(MAX_WINDOW) } else { MIN_WINDOW };
            self.next_window = size;
            let take = (size.max(len) as u64).min(self.remaining());
            self.window.resize(to_usize(take)?, 0);
            self.window_at = self.position;
            if let Err(error) = self.source.read_at(self.position, &mut self.window) {
                self.window.clear();
                return Err(error);
            }
        }
        let from = to_usize(self.position - self.window_at)?;
        match self.window.get(from..from + len) {
            Some(bytes) => Ok(bytes),
            None => {
                check_range(&*self.source, self.position, len as u64)?;
                Err(Error::corrupt("truncated", "the source returned fewer bytes than its length"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{CountingSource, MemorySource};
    use std::sync::Arc;

    #[test]
    fn skipped_bytes_are_not_read() {
        let counted = Arc::new(CountingSource::new(Arc::new(MemorySource::new("m", vec![7; 10 << 20]))));
        let mut cursor = Cursor::new(counted.clone(), 0);
        for _ in 0..10 {
            assert_eq!(cursor.array::<4>("header").unwrap(), [7; 4]);
            cursor.skip((1 << 20) - 4, "data").unwrap();
        }
        assert_eq!(cursor.remaining(), 0);
        assert!(counted.bytes_read() <= 10 * MIN_WINDOW as u64);
        assert_eq!(cursor.array::<1>("end").unwrap_err().code().as_str(), "truncated");
    }

    /// Peeked bytes stay in the window: a packed source would decompress them twice.
    #[test]
    fn peeked_bytes_are_read_once() {
        let counted = Arc::new(CountingSource::new(Arc::new(MemorySource::new("m", (0..100).collect()))));
        let mut cursor = Cursor::new(counted.clone(), 97);
        assert_eq!(cursor.peek::<2>().unwrap(), Some([97, 98]));
        assert_eq!(cursor.array::<2>("two").unwrap(), [97, 98]);
        assert_eq!((cursor.peek::<2>().unwrap(), cursor.peek::<1>().unwrap()), (None, Some([99])));
        assert_eq!((counted.bytes_read(), cursor.position()), (3, 99));
        assert_eq!(cursor.peek_up_to(9).unwrap(), [99]);
        assert_eq!(cursor.position(), 99);
    }

    #[test]
    fn tiny_skips_take_few_reads() {
        let counted = Arc::new(CountingSource::new(Arc::new(MemorySource::new("m", vec![7; 1 << 20]))));
        let mut cursor = Cursor::new(counted.clone(), 0);
        for _ in 0..(1 << 20) / 200 {
            cursor.array::<30>("header").unwrap();
            cursor.skip(170, "data").unwrap();
        }
        assert!(counted.calls() < 40);
        assert!(counted.bytes_read() <= 1 << 20);
    }

    #[test]
    fn sequential_reading_takes_few_reads() {
        let counted = Arc::new(CountingSource::new(Arc::new(MemorySource::new("m", vec![7; 1 << 20]))));
        let mut cursor = Cursor::new(counted.clone(), 0);
        for _ in 0..(1 << 20) / 8 {
            cursor.array::<8>("word").unwrap();
        }
        assert!(counted.calls() < 40);
        assert_eq!(counted.bytes_read(), 1 << 20);
    }
}
