//! A source as the library for Parquet reads one.

use bytes::Bytes;
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};
use std::io;
use weighbridge_io::source::{SourceRef, read_vec};

/// Bytes that are read ahead where a page is read without a known length.
const AHEAD: usize = 64 << 10;

/// A source as the library wants it.
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
        Ok(io::BufReader::with_capacity(AHEAD, Forwards::new(self.0.clone(), start)))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let bytes = read_vec(&*self.0, start, length as u64);
        bytes.map(Bytes::from).map_err(|e| ParquetError::External(Box::new(e)))
    }
}

/// Reads forwards to the end of the source.
pub(super) struct Forwards {
    source: SourceRef,
    at: u64,
}

impl Forwards {
    /// Begins at `at`.
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
