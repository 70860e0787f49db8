//! Source that counts reads.

use super::{FileRange, Mapped, Source, SourceRef};
use crate::error::Result;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Source that forwards to another one and counts reads, to verify that listing reads headers only.
#[derive(Debug)]
pub struct CountingSource {
    inner: SourceRef,
    bytes: AtomicU64,
    calls: AtomicU64,
}

impl CountingSource {
    /// Counts the reads from `inner`.
    pub fn new(inner: SourceRef) -> Self {
        Self { inner, bytes: AtomicU64::new(0), calls: AtomicU64::new(0) }
    }
    /// Returns the bytes read so far.
    pub fn bytes_read(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
    /// Returns the number of reads so far.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }
}

impl Source for CountingSource {
    fn len(&self) -> u64 {
        self.inner.len()
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.bytes.fetch_add(buffer.len() as u64, Ordering::Relaxed);
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.inner.read_at(offset, buffer)
    }
    fn label(&self) -> &str {
        self.inner.label()
    }
    fn file(&self) -> Option<FileRange<'_>> {
        self.inner.file()
    }
    fn map(&self, offset: u64, len: u64) -> Option<Arc<dyn Mapped>> {
        self.inner.map(offset, len)
    }
    fn is_sequential(&self) -> bool {
        self.inner.is_sequential()
    }
}
