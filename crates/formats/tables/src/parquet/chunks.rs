//! Adapter of a source for the Parquet library.

use bytes::Bytes;
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};
use std::io;
use weighbridge_io::source::{SourceRef, read_vec};

/// Read-ahead in bytes where the length of a page is unknown.
const READ_AHEAD: usize = 64 << 10;

/// Source with the interface that the library expects.
#[derive(Debug, Clone)]
pub(super) struct Chunks(pub(super) SourceRef);

impl Length for Chunks {
    fn len(&self) -> u64 {
        self.0.len()
    }
}

impl ChunkReader for Chunks {
    type T = io::BufReader<Forwards>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        Ok(io::BufReader::with_capacity(READ_AHEAD, Forwards::new(self.0.clone(), start)))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let bytes = read_vec(&*self.0, start, length as u64);
        bytes.map(Bytes::from).map_err(|e| ParquetError::External(Box::new(e)))
    }
}

/// Sequential reader up to the end of the source.
pub(super) struct Forwards {
    source: SourceRef,
    at: u64,
}

impl Forwards {
    /// Starts at `at`.
    pub(super) fn new(source: SourceRef, at: u64) -> Self {
        Self { source, at }
    }
}

impl io::Read for Forwards {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.source.len().saturating_sub(self.at)).unwrap_or(usize::MAX);
        let take = buffer.len().min(left);
        self.source.read_at(self.at, &mut buffer[..take]).map_err(io::Error::other)?;
        self.at += take as u64;
        Ok(take)
    }
}
