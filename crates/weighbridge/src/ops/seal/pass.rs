//! Single pass over many files: every byte is read once, and goes to all of its hashes.
//!
//! A file is read in blocks, by any worker. BLAKE3 and CRC-32 of a block do not depend on earlier blocks: the worker that reads
//! a block computes them at once. SHA-256 is sequential: there is one lane for the file and one for the tensors in it, and each
//! lane has at most one worker at a time. Blocks stay in memory until all lanes have processed them. Several files are open at
//! once, to keep all workers busy. The result does not depend on the assignment of work.

use super::block::BLOCK;
use super::block::{Block, FileHashed, Gathered, Stretch, StretchHashed, Sums, parts, reach};
use super::digest::{Algorithms, of_nothing};
use crate::engine::Progress;
use crate::error::{Error, Result};
use crate::ops::parallel;
use crate::source::{FileSource, MapWindows, MaybeMapped, SourceRef, check_range};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Maximum number of blocks in memory for lanes, for any number of workers: 64 MiB.
const MAX_BLOCKS: usize = 64;

/// Source of the bytes of a file.
#[derive(Debug, Clone)]
pub(super) enum From {
    /// An open source.
    Source(SourceRef),
    /// A path that is opened when needed, so that not all files are open at once.
    Path(PathBuf),
}

/// File with the requested hashes.
#[derive(Debug, Clone)]
pub(super) struct Job {
    /// The file.
    pub(super) from: From,
    /// Its length in bytes, as far as known: for progress.
    pub(super) len: u64,
    /// The hashes of the whole file. Where there are none, only the stretches are read.
    pub(super) whole: Algorithms,
    /// Byte ranges to hash, in the order of their starts.
    pub(super) stretches: Vec<Stretch>,
}

impl Job {
    /// Returns the approximate number of bytes to read.
    pub(super) fn bytes(&self) -> u64 {
        if !self.whole.is_empty() {
            return self.len;
        }
        self.stretches.iter().fold(0, |sum, s| sum.saturating_add(s.end - s.start))
    }
}

/// Runs all jobs with `threads` workers; the results are in the order of the jobs.
///
/// # Errors
/// Errors of the sources, of the first file that fails; [`crate::Kind::Cancelled`].
pub(super) fn run(jobs: &[Job], threads: usize, progress: &dyn Progress) -> Result<Vec<FileHashed>> {
    let blocks = jobs.iter().fold(0u64, |sum, job| sum.saturating_add(job.bytes() / BLOCK + 1));
    // One for reading, and two lanes.
    let workers = parallel::workers(threads, blocks.saturating_mul(3));
    let state = State {
        belts: Vec::new(),
        next_job: 0,
        blocks: 0,
        spare: Vec::new(),
        done: jobs.iter().map(|_| None).collect(),
        failure: None,
        panicked: false,
    };
    let pass = Pass { jobs, workers, progress, state: Mutex::new(state), wake: Condvar::new() };
    std::thread::scope(|scope| {
        for _ in 1..workers {
            scope.spawn(|| pass.work());
        }
        pass.work();
    });
    let state = pass.state.into_inner().unwrap_or_else(PoisonError::into_inner);
    match state.failure {
        Some((_, error)) => Err(error),
        None => Ok(state.done.into_iter().flatten().collect()),
    }
}

/// Shared data of all workers.
struct Pass<'a> {
    jobs: &'a [Job],
    workers: usize,
    progress: &'a dyn Progress,
    state: Mutex<State<'a>>,
    wake: Condvar,
}

/// State of the work.
struct State<'a> {
    /// The files in progress.
    belts: Vec<Belt<'a>>,
    next_job: usize,
    /// Blocks in memory for lanes.
    blocks: usize,
    /// Free buffers for reuse.
    spare: Vec<Vec<u8>>,
    done: Vec<Option<FileHashed>>,
    failure: Option<(usize, Error)>,
    panicked: bool,
}

/// File in progress.
struct Belt<'a> {
    number: usize,
    file: Arc<File<'a>>,
    /// Offset of the next block to read.
    at: u64,
    /// Its number.
    next: u64,
    /// The first stretch that has not begun yet.
    stretch: usize,
    /// The stretches that have begun but not ended.
    active: Vec<usize>,
    /// Number of blocks being read.
    reading: usize,
    lanes: Vec<LaneState>,
    /// Blocks that at least one lane still needs.
    loaded: BTreeMap<u64, Arc<Block>>,
}

struct LaneState {
    lane: Lane,
    /// The number of the next block.
    next: u64,
    busy: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lane {
    Whole,
    Stretches,
}

/// Shared data of the workers on one file.
struct File<'a> {
    job: &'a Job,
    source: SourceRef,
    windows: MapWindows,
    len: u64,
    gathered: Mutex<Gathered>,
    whole: Mutex<Sha256>,
    sums: Mutex<Sums>,
    out: Mutex<FileHashed>,
}

/// Next action of a worker.
enum Action<'a> {
    Open(usize),
    Read { number: usize, file: Arc<File<'a>>, place: u64, block: Block, behind: u64, kept: bool },
    Hash { number: usize, file: Arc<File<'a>>, lane: Lane, block: Arc<Block> },
}

/// Locks a mutex, also after a panic of another worker: all workers stop then.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Wakes the waiting workers if this one panics.
struct Guard<'p, 'a>(&'p Pass<'a>);

impl Drop for Guard<'_, '_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            lock(&self.0.state).panicked = true;
            self.0.wake.notify_all();
        }
    }
}

impl<'a> Pass<'a> {
    fn work(&self) {
        let _guard = Guard(self);
        let mut own = Vec::new();
        while let Some(action) = self.next() {
            let (number, result) = match action {
                _ if self.progress.stopped() => (0, Err(Error::cancelled())),
                Action::Open(number) => (number, self.open(number)),
                Action::Read { number, file, place, block, behind, kept } => {
                    (number, self.read(number, &file, place, block, behind, kept, &mut own))
                }
                Action::Hash { number, file, lane, block } => (number, self.hash(number, &file, lane, block)),
            };
            if let Err(error) = result {
                let mut state = lock(&self.state);
                if state.failure.as_ref().is_none_or(|(other, _)| number < *other) {
                    state.failure = Some((number, error));
                }
            }
            self.wake.notify_all();
        }
        // The others wait for the same end.
        self.wake.notify_all();
    }

    /// Waits for the next action; `None` when all work is done or a worker failed.
    fn next(&self) -> Option<Action<'a>> {
        let mut state = lock(&self.state);
        loop {
            if state.failure.is_some() || state.panicked {
                return None;
            }
            if let Some(action) = state.pick(self.workers) {
                return Some(action);
            }
            let ended = state.sweep();
            if state.next_job < self.jobs.len() && state.belts.len() < self.workers {
                state.next_job += 1;
                return Some(Action::Open(state.next_job - 1));
            }
            if ended {
                continue;
            }
            if state.next_job >= self.jobs.len() && state.belts.is_empty() && state.all_done() {
                return None;
            }
            state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn open(&self, number: usize) -> Result<()> {
        let Some(job) = self.jobs.get(number) else { return Ok(()) };
        let source: SourceRef = match &job.from {
            From::Source(source) => source.clone(),
            From::Path(path) => Arc::new(FileSource::open(path)?),
        };
        let len = source.len();
        for stretch in &job.stretches {
            check_range(&*source, stretch.start, stretch.end.saturating_sub(stretch.start))?;
        }
        let out = FileHashed {
            len,
            whole: if len == 0 { of_nothing(job.whole) } else { super::Digests::default() },
            stretches: vec![StretchHashed::default(); job.stretches.len()],
        };
        let mut lanes = Vec::new();
        if job.whole.sha256 {
            lanes.push(LaneState { lane: Lane::Whole, next: 0, busy: false });
        }
        if job.stretches.iter().any(|s| s.hashes.sha256) {
            lanes.push(LaneState { lane: Lane::Stretches, next: 0, busy: false });
        }
        let file = File {
            job,
            source,
            windows: MapWindows::default(),
            len,
            gathered: Mutex::new(Gathered::new(len)),
            whole: Mutex::new(Sha256::new()),
            sums: Mutex::default(),
            out: Mutex::new(out),
        };
        let belt = Belt {
            number,
            file: Arc::new(file),
            at: 0,
            next: 0,
            stretch: 0,
            active: Vec::new(),
            reading: 0,
            lanes,
            loaded: BTreeMap::new(),
        };
        let mut state = lock(&self.state);
        // In the order of the files, so that they finish one after the other.
        let place = state.belts.partition_point(|other| other.number < number);
        state.belts.insert(place, belt);
        Ok(())
    }

    /// Reads a block and computes the hashes that do not depend on earlier blocks.
    #[allow(clippy::too_many_arguments)]
    fn read(
        &self,
        number: usize,
        file: &File,
        place: u64,
        mut block: Block,
        behind: u64,
        kept: bool,
        own: &mut Vec<u8>,
    ) -> Result<()> {
        let spare = if kept { std::mem::take(&mut block.bytes).into_spare() } else { std::mem::take(own) };
        block.bytes = file.windows.get(&*file.source, block.start, block.len + behind, spare)?;
        let made = parts(&block, &file.job.stretches, file.job.whole, file.len)?;
        block.bytes.intact().map_err(|e| e.in_file(file.source.label()).at(block.start))?;
        lock(&file.gathered).take(place, made, &file.job.stretches, &mut lock(&file.out));
        self.progress.advance(block.len);
        let mut state = lock(&self.state);
        let Some(belt) = state.belts.iter_mut().find(|belt| belt.number == number) else { return Ok(()) };
        belt.reading -= 1;
        if kept {
            belt.loaded.insert(place, Arc::new(block));
        } else {
            *own = block.bytes.into_spare();
        }
        Ok(())
    }

    /// Hashes a block in a lane.
    fn hash(&self, number: usize, file: &File, lane: Lane, block: Arc<Block>) -> Result<()> {
        match lane {
            Lane::Whole => {
                let mut hasher = lock(&file.whole);
                Sums::whole(&mut hasher, &block)?;
                if block.start + block.len == file.len {
                    lock(&file.out).whole.sha256 = Some(hasher.finalize_reset().into());
                }
            }
            Lane::Stretches => {
                let done = lock(&file.sums).take(&block, &file.job.stretches)?;
                let mut out = lock(&file.out);
                for (stretch, digest) in done {
                    if let Some(out) = out.stretches.get_mut(stretch) {
                        out.digests.sha256 = Some(digest);
                    }
                }
            }
        }
        block.bytes.intact().map_err(|e| e.in_file(file.source.label()).at(block.start))?;
        drop(block);
        let mut state = lock(&self.state);
        let Some(belt) = state.belts.iter_mut().find(|belt| belt.number == number) else { return Ok(()) };
        for own in belt.lanes.iter_mut().filter(|own| own.lane == lane) {
            own.next += 1;
            own.busy = false;
        }
        // Free the blocks that all lanes have processed.
        let passed = belt.lanes.iter().map(|state| state.next).min().unwrap_or(0);
        let mut free = Vec::new();
        while let Some(entry) = belt.loaded.first_entry().filter(|entry| *entry.key() < passed) {
            free.push(entry.remove());
        }
        for block in free {
            state.blocks -= 1;
            if let Some(block) = Arc::into_inner(block) {
                state.spare.push(block.bytes.into_spare());
            }
        }
        Ok(())
    }
}

impl<'a> State<'a> {
    fn pick(&mut self, workers: usize) -> Option<Action<'a>> {
        for belt in &mut self.belts {
            for state in belt.lanes.iter_mut().filter(|state| !state.busy) {
                let Some(block) = belt.loaded.get(&state.next) else { continue };
                state.busy = true;
                return Some(Action::Hash {
                    number: belt.number,
                    file: belt.file.clone(),
                    lane: state.lane,
                    block: block.clone(),
                });
            }
        }
        let most = (2 * workers + 2).min(MAX_BLOCKS.max(workers + 1));
        for belt in &mut self.belts {
            let kept = !belt.lanes.is_empty();
            if kept && self.blocks >= most {
                continue;
            }
            let Some((mut block, behind)) = belt.cut() else { continue };
            let place = belt.next;
            belt.next += 1;
            belt.reading += 1;
            if kept {
                self.blocks += 1;
                block.bytes = MaybeMapped::Read(self.spare.pop().unwrap_or_default());
            }
            let (number, file) = (belt.number, belt.file.clone());
            return Some(Action::Read { number, file, place, block, behind, kept });
        }
        None
    }

    /// Removes the finished files. True where there was one.
    fn sweep(&mut self) -> bool {
        let before = self.belts.len();
        let mut through = Vec::new();
        self.belts.retain(|belt| {
            let ended = belt.at >= belt.file.len && belt.reading == 0 && belt.loaded.is_empty();
            if ended {
                through.push((belt.number, std::mem::take(&mut *lock(&belt.file.out))));
            }
            !ended
        });
        for (number, hashed) in through {
            if let Some(slot) = self.done.get_mut(number) {
                *slot = Some(hashed);
            }
        }
        self.belts.len() < before
    }

    fn all_done(&self) -> bool {
        self.done.iter().all(Option::is_some)
    }
}

impl Belt<'_> {
    /// Returns the next block to read, and the number of bytes after it that are needed.
    fn cut(&mut self) -> Option<(Block, u64)> {
        let (job, file_len) = (self.file.job, self.file.len);
        loop {
            if self.at >= file_len {
                return None;
            }
            let (start, end) = (self.at, (self.at + BLOCK).min(file_len));
            let begun = |number: usize| job.stretches.get(number).is_some_and(|s| s.start < end);
            while begun(self.stretch) {
                self.active.push(self.stretch);
                self.stretch += 1;
            }
            self.active.retain(|&number| job.stretches.get(number).is_some_and(|s| s.end > start));
            if self.active.is_empty() && job.whole.is_empty() {
                // Skip to the block in which the next stretch begins.
                let next = job.stretches.get(self.stretch).map(|s| s.start / BLOCK * BLOCK);
                self.at = next.unwrap_or(file_len).max(end);
                continue;
            }
            self.at = end;
            let active = self.active.iter().filter_map(|&number| job.stretches.get(number));
            let reached = active.filter(|s| s.hashes.blake3).map(|s| reach(s, end)).max();
            let behind = reached.unwrap_or(end).saturating_sub(end);
            let active = self.active.clone();
            return Some((Block { start, len: end - start, active, bytes: MaybeMapped::default() }, behind));
        }
    }
}
