//! Streamed files: the engine's implementation of [`weighbridge_core::plan::Output`].
//!
//! Many workers encode blocks. Each waits for its turn only to learn its offset, so that writing is parallel too. A
//! worker holds at most one block, which bounds memory.

use super::StagedFile;
use super::run::{RunOptions, RunReport, WorkerConfig};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use weighbridge_core::checkpoint::TensorEntry;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::plan::{Elements, MakeBlock, Output, PlannedFile, Streamed};
use weighbridge_core::read::Scratch;
use weighbridge_core::tensor::{CastReport, Order, Region};

/// Size of the write buffer in bytes.
const WRITE_BUFFER: usize = 256 << 10;

/// Runs the encoder of `file`. The report has the actual length.
pub(super) fn encode(
    file: &PlannedFile,
    stream: &Streamed,
    staged: &dyn StagedFile,
    options: &RunOptions,
    workers: WorkerConfig,
    stop: &AtomicBool,
) -> Result<RunReport> {
    // A sequential source is read by one worker.
    let sequential = stream.sources().iter().any(|source| source.is_sequential());
    let mut writer = Writer {
        staged,
        options,
        stop,
        threads: if sequential { 1 } else { workers.threads },
        share: workers.share(),
        position: 0,
        buffered: Vec::new(),
        reader: Reader::default(),
        progress: Progress { promised: file.len, reported: AtomicU64::new(0) },
    };
    let encoded = stream.encoder().encode(&mut writer).and_then(|()| writer.flush());
    if let Err(error) = encoded {
        stop.store(true, Ordering::Relaxed);
        return Err(error);
    }
    writer.progress.finish(options);
    Ok(RunReport { bytes: writer.position, kernel_copied: 0, casts: writer.reader.casts })
}

/// Reads elements and collects cast reports.
#[derive(Default)]
struct Reader {
    scratch: Scratch,
    casts: BTreeMap<String, CastReport>,
}

impl Elements for Reader {
    fn read(&mut self, entry: &TensorEntry, region: &Region, order: Order, into: &mut Vec<u8>) -> Result<()> {
        into.clear();
        if let Some(cast) = entry.read_into(region, order, &mut self.scratch, into)? {
            self.casts.entry(entry.name()).or_default().add(&cast);
        }
        Ok(())
    }
}

/// Progress relative to the estimated length: never more than it, and all of it at the end.
struct Progress {
    promised: u64,
    reported: AtomicU64,
}

impl Progress {
    fn advance(&self, bytes: u64, options: &RunOptions) {
        let before = self.reported.fetch_add(bytes, Ordering::Relaxed);
        options.progress.advance(bytes.min(self.promised.saturating_sub(before)));
    }

    fn finish(&self, options: &RunOptions) {
        options.progress.advance(self.promised.saturating_sub(self.reported.load(Ordering::Relaxed)));
    }
}

struct Writer<'a> {
    staged: &'a dyn StagedFile,
    options: &'a RunOptions,
    stop: &'a AtomicBool,
    threads: usize,
    share: u64,
    /// Offset of the buffered bytes.
    position: u64,
    buffered: Vec<u8>,
    reader: Reader,
    progress: Progress,
}

impl Writer<'_> {
    fn check_stop(&self) -> Result<()> {
        if self.stop.load(Ordering::Relaxed) || self.options.progress.stopped() {
            return Err(Error::cancelled());
        }
        Ok(())
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.check_stop()?;
        self.staged.write_at(self.position, bytes)?;
        self.position += bytes.len() as u64;
        self.progress.advance(bytes.len() as u64, self.options);
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        if self.buffered.is_empty() {
            return Ok(());
        }
        let bytes = std::mem::take(&mut self.buffered);
        self.put(&bytes)?;
        self.buffered = bytes;
        self.buffered.clear();
        Ok(())
    }
}

impl Elements for Writer<'_> {
    fn read(&mut self, entry: &TensorEntry, region: &Region, order: Order, into: &mut Vec<u8>) -> Result<()> {
        self.check_stop()?;
        self.reader.read(entry, region, order, into)
    }
}

impl Output for Writer<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        if self.buffered.len() + bytes.len() > WRITE_BUFFER {
            self.flush()?;
        }
        if bytes.len() >= WRITE_BUFFER {
            return self.put(bytes);
        }
        self.buffered.extend_from_slice(bytes);
        Ok(())
    }

    fn blocks(&mut self, count: u64, make: &MakeBlock<'_>) -> Result<()> {
        self.flush()?;
        let queue = BlockQueue {
            staged: self.staged,
            options: self.options,
            stop: self.stop,
            progress: &self.progress,
            count,
            make,
            next: AtomicU64::new(0),
            state: Mutex::new(State { turn: 0, position: self.position, ..State::default() }),
            moved: Condvar::new(),
        };
        let others = self.threads.saturating_sub(1).min(usize::try_from(count).unwrap_or(usize::MAX));
        std::thread::scope(|scope| {
            for _ in 0..others {
                scope.spawn(|| queue.work(&mut Reader::default()));
            }
            queue.work(&mut self.reader);
        });
        let state = queue.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        for (name, cast) in state.casts {
            self.reader.casts.entry(name).or_default().add(&cast);
        }
        self.position = state.position;
        state.error.map_or(Ok(()), Err)
    }

    fn position(&self) -> u64 {
        self.position + self.buffered.len() as u64
    }

    fn share(&self) -> u64 {
        self.share
    }
}

/// Blocks that workers encode in parallel and write in order.
struct BlockQueue<'a> {
    staged: &'a dyn StagedFile,
    options: &'a RunOptions,
    stop: &'a AtomicBool,
    progress: &'a Progress,
    count: u64,
    make: &'a MakeBlock<'a>,
    next: AtomicU64,
    state: Mutex<State>,
    moved: Condvar,
}

#[derive(Default)]
struct State {
    /// Number of the next block that gets an offset.
    turn: u64,
    position: u64,
    error: Option<Error>,
    casts: BTreeMap<String, CastReport>,
}

impl BlockQueue<'_> {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self, reader: &mut Reader) {
        // If an encoder panics, the others must not wait for its block.
        let guard = PanicGuard(self);
        let mut block = Vec::new();
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if number >= self.count {
                break;
            }
            if let Err(error) = self.one(number, reader, &mut block) {
                self.fail(Some(error));
                break;
            }
        }
        drop(guard);
        let mut state = self.state();
        for (name, cast) in std::mem::take(&mut reader.casts) {
            state.casts.entry(name).or_default().add(&cast);
        }
    }

    fn one(&self, number: u64, reader: &mut Reader, block: &mut Vec<u8>) -> Result<()> {
        if self.stop.load(Ordering::Relaxed) || self.options.progress.stopped() {
            return Err(Error::cancelled());
        }
        block.clear();
        (self.make)(number, reader, block)?;
        let Some(offset) = self.place(number, block.len() as u64) else { return Err(Error::cancelled()) };
        if !block.is_empty() {
            self.staged.write_at(offset, block)?;
        }
        self.progress.advance(block.len() as u64, self.options);
        Ok(())
    }

    /// Waits for the turn of a block and returns its offset; `None` where another block failed.
    fn place(&self, number: u64, len: u64) -> Option<u64> {
        let mut state = self.state();
        while state.turn != number {
            if self.stop.load(Ordering::Relaxed) {
                return None;
            }
            // A worker on another file cannot wake this one: check `stop` regularly.
            let wait = std::time::Duration::from_millis(50);
            state = self.moved.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0;
        }
        let offset = state.position;
        state.position += len;
        state.turn += 1;
        self.moved.notify_all();
        Some(offset)
    }

    fn fail(&self, error: Option<Error>) {
        let mut state = self.state();
        // The cancellation of other workers is not the cause of the failure.
        if !self.stop.swap(true, Ordering::Relaxed) || state.error.is_none() {
            state.error = error.or(state.error.take());
        }
        self.moved.notify_all();
    }
}

struct PanicGuard<'a, 'b>(&'a BlockQueue<'b>);

impl Drop for PanicGuard<'_, '_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail(None);
        }
    }
}

/// Encodes a streamed file in memory.
#[cfg(any(test, feature = "testing"))]
#[allow(clippy::unwrap_used)]
pub fn encoded(file: &PlannedFile) -> Vec<u8> {
    #[derive(Debug, Default)]
    struct Memory(Mutex<Vec<u8>>);
    impl StagedFile for Memory {
        fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
            let mut all = self.0.lock().unwrap();
            let at = usize::try_from(offset).unwrap();
            let end = (at + bytes.len()).max(all.len());
            all.resize(end, 0);
            all[at..at + bytes.len()].copy_from_slice(bytes);
            Ok(())
        }
        fn copy_from(&self, _: crate::source::FileRange<'_>, _: u64, _: u64, _: u64) -> Result<u64> {
            Ok(0)
        }
    }
    let memory = Memory::default();
    let options = RunOptions { threads: 3, ..RunOptions::default() };
    let workers = WorkerConfig::new(&options).unwrap();
    let report =
        encode(file, file.stream.as_ref().unwrap(), &memory, &options, workers, &AtomicBool::new(false));
    let bytes = memory.0.into_inner().unwrap();
    assert_eq!(report.unwrap().bytes, bytes.len() as u64);
    bytes
}
