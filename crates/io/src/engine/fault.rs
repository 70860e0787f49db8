//! Fault injection: a sink that fails on request, to prove that no failure leaves a partial file.

use super::{Sink, StagedFile};
use crate::source::FileRange;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::plan::PlannedFile;

/// Forwards calls to another sink, counts them, and fails the requested one.
#[derive(Debug)]
pub struct FailingSink<S> {
    inner: S,
    count: Arc<Count>,
}

#[derive(Debug)]
struct Count {
    calls: AtomicU64,
    fail_at: u64,
    after: bool,
}

impl Count {
    /// Runs `call` unless this is the call to fail. With `after`, the call runs before it fails.
    fn pass<T>(&self, call: impl FnOnce() -> Result<T>) -> Result<T> {
        let number = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        if number != self.fail_at {
            return call();
        }
        if self.after {
            let _ = call();
        }
        Err(Error::io("injected failure", std::io::Error::other(format!("call {number}"))))
    }
}

impl<S: Sink> FailingSink<S> {
    /// Fails the `n`-th call, counted from 1 (0: none), without making it.
    pub fn before(inner: S, n: u64) -> Self {
        Self { inner, count: Arc::new(Count { calls: AtomicU64::new(0), fail_at: n, after: false }) }
    }
    /// Fails the `n`-th call after making it.
    pub fn after(inner: S, n: u64) -> Self {
        Self { inner, count: Arc::new(Count { calls: AtomicU64::new(0), fail_at: n, after: true }) }
    }
    /// Number of calls so far.
    pub fn calls(&self) -> u64 {
        self.count.calls.load(Ordering::SeqCst)
    }
}

impl<S: Sink> Sink for FailingSink<S> {
    fn begin(&self, files: &[PlannedFile]) -> Result<()> {
        self.count.pass(|| self.inner.begin(files))
    }
    fn stage(&self, file: &PlannedFile) -> Result<Box<dyn StagedFile>> {
        let inner = self.count.pass(|| self.inner.stage(file))?;
        Ok(Box::new(FailingFile { inner, count: self.count.clone() }))
    }
    fn sync(&self) -> Result<()> {
        self.count.pass(|| self.inner.sync())
    }
    fn publish(&self) -> Result<()> {
        self.count.pass(|| self.inner.publish())
    }
    fn settle(&self) -> Result<()> {
        self.count.pass(|| self.inner.settle())
    }
    fn discard(&self) {
        self.inner.discard();
    }
}

#[derive(Debug)]
struct FailingFile {
    inner: Box<dyn StagedFile>,
    count: Arc<Count>,
}

impl StagedFile for FailingFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.count.pass(|| self.inner.write_at(offset, bytes))
    }
    fn copy_from(&self, from: FileRange<'_>, skip: u64, offset: u64, len: u64) -> Result<u64> {
        self.count.pass(|| self.inner.copy_from(from, skip, offset, len))
    }
}
