//! Reading forwards with hops: what a parser of headers needs.

use super::{SourceRef, check_range, to_usize};
use crate::error::{Error, Result};

/// Bytes fetched first after a hop. Large enough for the header of a tensor, small enough that
/// listing a file of many large tensors stays cheap.
const SMALL: usize = 512;
/// Bytes fetched at most when reading goes on without hops.
const LARGE: usize = 64 << 10;

/// A position in a source with a small window of bytes around it.
///
/// The window grows while reading is sequential and shrinks after a hop, so a file of many small
/// tensors is read in large pieces, and tensor data between headers is never touched.
#[derive(Debug)]
pub struct Cursor {
    source: SourceRef,
    position: u64,
    window: Vec<u8>,
    window_at: u64,
    next_window: usize,
}

impl Cursor {
    /// A cursor at `position` of `source`.
    pub fn new(source: SourceRef, position: u64) -> Self {
        Self { source, position, window: Vec::new(), window_at: 0, next_window: SMALL }
    }

    /// Where the next byte is read, counted from the start of the source.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The bytes left from here to the end of the source.
    pub fn remaining(&self) -> u64 {
        self.source.len().saturating_sub(self.position)
    }

    /// The source that is read.
    pub fn source(&self) -> &SourceRef {
        &self.source
    }

    /// Fails unless `len` more bytes are there; `what` names them.
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
            .expected(format_args!("{len} bytes from here"))
            .found(format_args!("{} bytes", self.remaining()))
            .hint("the file may be cut short: compare its length with the original's"))
    }

    /// Goes `len` bytes forward without reading them.
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
    /// As [`need`](Self::need), and what the source says.
    pub fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N]> {
        self.need(N as u64, what)?;
        let bytes = self.view(N)?;
        let mut array = [0; N];
        array.copy_from_slice(bytes);
        self.position += N as u64;
        Ok(array)
    }

    /// The next `N` bytes, without going on; `None` where there are fewer.
    ///
    /// # Errors
    /// What the source says.
    pub fn peek<const N: usize>(&mut self) -> Result<Option<[u8; N]>> {
        if self.remaining() < N as u64 {
            return Ok(None);
        }
        let mut array = [0; N];
        array.copy_from_slice(self.view(N)?);
        Ok(Some(array))
    }

    /// The next bytes, `most` of them or as many as there are, without going on.
    ///
    /// # Errors
    /// What the source says.
    pub fn peek_up_to(&mut self, most: usize) -> Result<&[u8]> {
        let len = (most as u64).min(self.remaining());
        self.view(to_usize(len)?)
    }

    /// Reads `len` bytes. The caller has held `len` against its limits; here it is held against
    /// the end of the source before memory is taken.
    ///
    /// # Errors
    /// As [`need`](Self::need), and what the source says.
    pub fn bytes(&mut self, len: u64, what: &str) -> Result<Vec<u8>> {
        self.need(len, what)?;
        let bytes = if len <= LARGE as u64 {
            self.view(to_usize(len)?)?.to_vec()
        } else {
            super::read_vec(&*self.source, self.position, len)?
        };
        self.position += len;
        Ok(bytes)
    }

    /// `len` bytes from the position on, which were checked to be there.
    fn view(&mut self, len: usize) -> Result<&[u8]> {
        let end = self.window_at + self.window.len() as u64;
        let inside = self.window_at <= self.position && self.position + len as u64 <= end;
        if !inside {
            // A hop shorter than the smallest window skips nothing worth skipping: so a file of tiny
            // tensors is read in large pieces too.
            let sequential =
                self.window_at <= self.position && self.position <= end + SMALL as u64 && end > 0;
            let size = if sequential { (self.next_window * 2).min(LARGE) } else { SMALL };
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
                Err(Error::corrupt("truncated", "the source gave fewer bytes than its length"))
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
    fn hops_do_not_read_what_they_pass() {
        let counted = Arc::new(CountingSource::new(Arc::new(MemorySource::new("m", vec![7; 10 << 20]))));
        let mut cursor = Cursor::new(counted.clone(), 0);
        for _ in 0..10 {
            assert_eq!(cursor.array::<4>("header").unwrap(), [7; 4]);
            cursor.skip((1 << 20) - 4, "data").unwrap();
        }
        assert_eq!(cursor.remaining(), 0);
        assert!(counted.bytes_read() <= 10 * SMALL as u64);
        assert_eq!(cursor.array::<1>("end").unwrap_err().code().as_str(), "truncated");
    }

    /// What was looked at is read from the window: a packed source would begin again for it.
    #[test]
    fn peeking_reads_nothing_twice() {
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
    fn tiny_hops_take_few_calls() {
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
    fn sequential_reading_takes_few_calls() {
        let counted = Arc::new(CountingSource::new(Arc::new(MemorySource::new("m", vec![7; 1 << 20]))));
        let mut cursor = Cursor::new(counted.clone(), 0);
        for _ in 0..(1 << 20) / 8 {
            cursor.array::<8>("word").unwrap();
        }
        assert!(counted.calls() < 40);
        assert_eq!(counted.bytes_read(), 1 << 20);
    }
}
