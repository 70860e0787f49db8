//! Execution of a plan: workers, memory budget, checksums, progress.

use super::files::fill_all;
use super::latin1::{self, parts};
use super::tasks::{Lane, Part, Sizes, Task, VERIFIED, Work, copied, cut};
use super::{Sink, StagedFile, default_threads};
use crate::source::{SourceRef, to_usize};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use weighbridge_core::checkpoint::TensorEntry;
use weighbridge_core::checksum::{Checksum, ChecksumKind};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::plan::{Content, PlannedFile, Segment, SourceCheck, WritePlan};
use weighbridge_core::read::Scratch;
use weighbridge_core::tensor::{CastReport, Order, Region};

/// Bytes that are read and written at a time: the second-level cache of a processor holds them.
const COPIED: u64 = 256 << 10;

/// Smallest memory budget, in bytes.
pub const MIN_MEMORY: u64 = 8 << 20;

/// Options for running a plan.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// Number of workers; 0 means one for each processor.
    pub threads: usize,
    /// Memory of all buffers together, in bytes. The index and the plan are not counted.
    pub memory: u64,
    /// Waits until the result survives a power failure.
    pub sync: bool,
    /// Receiver of progress, which can cancel the run.
    pub progress: Arc<dyn Progress>,
}

impl Default for RunOptions {
    /// Returns one worker for each processor, 256 MiB, synced, without progress.
    fn default() -> Self {
        Self { threads: 0, memory: 256 << 20, sync: true, progress: Arc::new(NoProgress) }
    }
}

/// Receiver of progress, which can cancel the run. Called from many threads.
pub trait Progress: std::fmt::Debug + Send + Sync {
    /// Work on `bytes` bytes begins.
    fn begin(&self, bytes: u64) {
        let _ = bytes;
    }
    /// `bytes` more bytes are written.
    fn advance(&self, bytes: u64) {
        let _ = bytes;
    }
    /// Returns true to cancel as soon as possible; the target is unchanged then.
    fn stopped(&self) -> bool {
        false
    }
}

/// Receiver that ignores progress.
#[derive(Debug)]
pub struct NoProgress;
impl Progress for NoProgress {}

/// Report of a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RunReport {
    /// Bytes written to all files.
    pub bytes: u64,
    /// Part of `bytes` that the kernel copied from file to file.
    pub kernel_copied: u64,
    /// Cast reports by displayed tensor name.
    pub casts: BTreeMap<String, CastReport>,
}

impl RunReport {
    /// Adds the report of another file.
    pub(super) fn add(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.kernel_copied += other.kernel_copied;
        for (name, cast) in other.casts {
            self.casts.entry(name).or_default().add(&cast);
        }
    }
}

/// Fails where a budget of `memory` bytes is below [`MIN_MEMORY`].
pub fn check_memory(memory: u64) -> Result<()> {
    if memory >= MIN_MEMORY {
        return Ok(());
    }
    Err(Error::usage("too-little-memory", "the memory budget is too small")
        .expected(format_args!("at least {MIN_MEMORY} bytes ({}MiB)", MIN_MEMORY >> 20))
        .found(memory))
}

/// Writes `plan` to `sink` atomically: stages, fills, syncs, publishes.
///
/// # Errors
/// [`weighbridge_core::Kind::Usage`] for a budget below [`MIN_MEMORY`]; [`weighbridge_core::Kind::Cancelled`]; and
/// errors of the sources and the sink. The target is then unchanged, unless only the final sync of the folder failed.
pub fn run(plan: &WritePlan, sink: &dyn Sink, options: &RunOptions) -> Result<RunReport> {
    check_memory(options.memory)?;
    let published = fill_all(plan, sink, options).and_then(|report| {
        if options.sync {
            sink.sync()?;
        }
        if options.progress.stopped() {
            return Err(Error::cancelled());
        }
        sink.publish()?;
        Ok(report)
    });
    let settled = published.and_then(|report| {
        if options.sync {
            sink.settle()?;
        }
        Ok(report)
    });
    sink.discard();
    settled
}

/// Number of workers on a file, and size limits of their tasks.
#[derive(Clone, Copy)]
pub(super) struct WorkerConfig {
    pub threads: usize,
    sizes: Sizes,
}

impl WorkerConfig {
    pub(super) fn new(options: &RunOptions) -> Result<Self> {
        let threads = if options.threads == 0 { default_threads() } else { options.threads };
        // Every worker needs at least half of the smallest budget.
        let threads = threads.clamp(1, to_usize(options.memory / (MIN_MEMORY / 2))?.max(1));
        let share = options.memory / threads as u64;
        let chunk = (share / 8).clamp(64 << 10, 4 << 20);
        // The rest after the chunk that receives a block and the buffer for short runs.
        let sizes = Sizes { chunk, transform: share - chunk - (512 << 10), threads: threads as u64 };
        Ok(Self { threads, sizes })
    }

    /// Memory of one worker for its results, in bytes.
    pub(super) fn share(self) -> u64 {
        self.sizes.transform
    }

    /// Configuration of a single worker with its share of the memory.
    pub(super) fn one(self) -> Self {
        Self { threads: 1, sizes: Sizes { threads: 1, ..self.sizes } }
    }
}

/// Fills one file. `stop` is set by a failing worker on any file.
pub(super) fn fill(
    file: &PlannedFile,
    staged: &dyn StagedFile,
    options: &RunOptions,
    workers: WorkerConfig,
    stop: &AtomicBool,
) -> Result<RunReport> {
    let streamed = match &file.stream {
        Some(stream) => Some(super::stream::encode(file, stream, staged, options, workers, stop)?),
        None => None,
    };
    let mut checked: Vec<Range<u64>> = checked_ranges(file).collect();
    checked.sort_by_key(|r| (r.start, r.end));
    checked.dedup();
    let is_stopped = || stop.load(Ordering::Relaxed) || options.progress.stopped();
    let (written, verified) = checks(file, &checked, workers.threads, &is_stopped)?;
    let lanes = cut(file, &checked, &verified, workers.sizes);
    let job = Job {
        file,
        staged,
        options,
        checked: &checked,
        verified: &verified,
        transform: workers.sizes.transform,
        next: AtomicUsize::new(0),
        failed: stop,
        shared: Mutex::new(Shared::default()),
    };
    std::thread::scope(|scope| {
        for _ in 1..workers.threads.min(lanes.len()) {
            scope.spawn(|| job.work(&lanes));
        }
        job.work(&lanes);
    });
    let mut shared = job.shared.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some(error) = shared.error.take() {
        return Err(error);
    }
    // A worker on another file failed: sums may be incomplete.
    if stop.load(Ordering::Relaxed) {
        return Err(Error::cancelled());
    }
    compare(&verified, shared.verified)?;
    if let Some(report) = streamed {
        return Ok(report);
    }
    let values = values(&checked, shared.sums);
    for (range, planned) in written {
        planned.check.settle(values[range]).map_err(|e| e.on_tensor(&planned.tensor))?;
    }
    patch(file, staged, &checked, &values)?;
    Ok(RunReport { bytes: file.len, kernel_copied: shared.kernel_copied, casts: shared.casts })
}

fn checked_ranges(file: &PlannedFile) -> impl Iterator<Item = Range<u64>> {
    file.segments.iter().filter_map(|s| match &s.content {
        Content::Crc32(range) => Some(range.clone()),
        _ => None,
    })
}

/// CRC of a part of a checked range.
struct PartialSum {
    range: usize,
    start: u64,
    hasher: crc32fast::Hasher,
}

#[derive(Default)]
struct Shared {
    error: Option<Error>,
    kernel_copied: u64,
    casts: BTreeMap<String, CastReport>,
    sums: Vec<PartialSum>,
    /// Parts of checksums of sources: index of the checksum, and bytes before the part.
    verified: Vec<(usize, u64, Checksum)>,
}

/// Job of filling one file, shared by the workers.
struct Job<'a> {
    file: &'a PlannedFile,
    staged: &'a dyn StagedFile,
    options: &'a RunOptions,
    checked: &'a [Range<u64>],
    /// Checksums of sources to verify.
    verified: &'a [&'a SourceCheck],
    /// Most memory for computing a block.
    transform: u64,
    next: AtomicUsize,
    failed: &'a AtomicBool,
    shared: Mutex<Shared>,
}

impl Job<'_> {
    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self, lanes: &[Lane]) {
        let mut buffers = Buffers::default();
        while let Some(lane) = lanes.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            for task in lane {
                if self.failed.load(Ordering::Relaxed) {
                    return;
                }
                let result = if self.options.progress.stopped() {
                    Err(Error::cancelled())
                } else {
                    self.run(task, &mut buffers)
                };
                match result {
                    Ok(()) => self.options.progress.advance(task.len),
                    Err(error) => {
                        self.failed.store(true, Ordering::Relaxed);
                        self.shared().error.get_or_insert(error);
                        return;
                    }
                }
            }
        }
    }

    fn run(&self, task: &Task, buffers: &mut Buffers) -> Result<()> {
        match &task.work {
            Work::Assemble(parts) => {
                if let [part] = parts.as_slice()
                    && let Some(bytes) = self.in_memory(part)?
                {
                    return self.write(task.offset, bytes);
                }
                // Other sources may compute a whole block for each step.
                if let [Part::Bytes { segment, skip, len }] = parts.as_slice()
                    && copied(self.file, *segment).is_some_and(|(source, _)| source.file().is_some())
                {
                    return self.in_steps(*segment, *skip, task.offset, *len, buffers);
                }
                buffers.out.clear();
                buffers.out.reserve_exact(to_usize(task.len)?);
                for part in parts {
                    self.assemble(part, buffers)?;
                }
                self.write(task.offset, &buffers.out)?;
            }
            Work::KernelCopy { segment, skip } => {
                self.copy(*segment, *skip, task.offset, task.len, buffers)?;
            }
            Work::Verify { check, skip, len } => {
                let planned = self.verified[*check];
                let sum = planned.check.part(planned.check.offset() + skip, *len);
                let sum = sum.map_err(|e| e.on_tensor(&planned.tensor))?;
                self.shared().verified.push((*check, *skip, sum));
            }
            Work::Text { segment } => self.text(&self.file.segments[*segment], buffers)?,
            Work::Scatter { segment, region } => {
                let Content::Tensor { entry, order } = &self.file.segments[*segment].content else {
                    return Ok(());
                };
                buffers.out.clear();
                self.block(entry, region, *order, buffers)?;
                let size = entry.dtype().size().unwrap_or(1);
                let (run, starts) = region.runs(&entry.shape, *order);
                let runs = buffers.out.chunks(to_usize(run)? * size);
                for (bytes, start) in runs.zip(starts) {
                    self.staged.write_at(task.offset + start * size as u64, bytes)?;
                }
            }
        }
        Ok(())
    }

    /// Writes the text of a segment in parts that fit in the memory of one worker.
    fn text(&self, segment: &Segment, buffers: &mut Buffers) -> Result<()> {
        let Content::Latin1 { entry, order, region } = &segment.content else { return Ok(()) };
        let mut at = segment.offset;
        let end = segment.offset + segment.len;
        let mut text = std::mem::take(&mut buffers.text);
        for part in parts(entry, region, *order, self.transform) {
            buffers.out.clear();
            self.block(entry, &part, *order, buffers)?;
            text.clear();
            latin1::encode(&buffers.out, &mut text);
            if text.len() as u64 > end - at {
                return Err(latin1::changed(entry));
            }
            self.write(at, &text)?;
            at += text.len() as u64;
        }
        buffers.text = text;
        if at == end { Ok(()) } else { Err(latin1::changed(entry)) }
    }

    /// Appends a box of a tensor to the buffer.
    fn block(&self, entry: &TensorEntry, region: &Region, order: Order, buffers: &mut Buffers) -> Result<()> {
        if let Some(cast) = entry.read_into(region, order, &mut buffers.scratch, &mut buffers.out)? {
            self.shared().casts.entry(entry.name()).or_default().add(&cast);
        }
        Ok(())
    }

    fn assemble(&self, part: &Part, buffers: &mut Buffers) -> Result<()> {
        let out = &mut buffers.out;
        match part {
            Part::Block { segment, region } => {
                if let Content::Tensor { entry, order } = &self.file.segments[*segment].content {
                    self.block(entry, region, *order, buffers)?;
                }
            }
            Part::Bytes { segment, skip, len } => {
                let from = to_usize(*skip)?;
                let count = to_usize(*len)?;
                match &self.file.segments[*segment].content {
                    Content::Literal(bytes) => out.extend_from_slice(&bytes[from..from + count]),
                    Content::Padding(byte) => out.resize(out.len() + count, *byte),
                    Content::Copy { source, offset, tensor, .. } => {
                        let start = out.len();
                        out.resize(start + count, 0);
                        source.read_at(offset + skip, &mut out[start..]).map_err(|e| e.on_tensor(tensor))?;
                    }
                    // CRCs are written at the end, after their ranges.
                    Content::Crc32(_) | Content::Tensor { .. } | Content::Latin1 { .. } => {
                        out.resize(out.len() + count, 0);
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns the bytes of a part if they are in memory already.
    fn in_memory(&self, part: &Part) -> Result<Option<&[u8]>> {
        let Part::Bytes { segment, skip, len } = part else { return Ok(None) };
        let Content::Copy { source, offset, .. } = &self.file.segments[*segment].content else {
            return Ok(None);
        };
        let Some(all) = source.as_slice() else { return Ok(None) };
        let start = to_usize(offset + skip)?;
        Ok(all.get(start..start + to_usize(*len)?))
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let end = offset + bytes.len() as u64;
        let first = self.checked.partition_point(|r| r.end <= offset);
        for (range, r) in self.checked.iter().enumerate().skip(first).take_while(|(_, r)| r.start < end) {
            let (start, stop) = (r.start.max(offset), r.end.min(end));
            let mut hasher = crc32fast::Hasher::new();
            hasher.update(&bytes[to_usize(start - offset)?..to_usize(stop - offset)?]);
            self.shared().sums.push(PartialSum { range, start, hasher });
        }
        self.staged.write_at(offset, bytes)
    }

    /// Copies through the kernel, and writes the rest directly.
    fn copy(&self, segment: usize, skip: u64, to: u64, len: u64, buffers: &mut Buffers) -> Result<()> {
        let Some((source, from)) = copied(self.file, segment) else { return Ok(()) };
        crate::source::check_range(&**source, from + skip, len)?;
        let done = match source.file() {
            Some(range) => self.staged.copy_from(range, from + skip, to, len)?,
            None => 0,
        };
        self.shared().kernel_copied += done;
        self.in_steps(segment, skip + done, to + done, len - done, buffers)
    }

    /// Writes `len` bytes of a segment in steps that stay in the cache of a processor.
    fn in_steps(&self, segment: usize, skip: u64, to: u64, len: u64, buffers: &mut Buffers) -> Result<()> {
        let mut at = 0;
        while at < len {
            let step = (len - at).min(COPIED);
            buffers.out.clear();
            self.assemble(&Part::Bytes { segment, skip: skip + at, len: step }, buffers)?;
            self.write(to + at, &buffers.out)?;
            at += step;
        }
        Ok(())
    }
}

/// Buffers that a worker reuses.
#[derive(Default)]
struct Buffers {
    out: Vec<u8>,
    text: Vec<u8>,
    scratch: Scratch,
}

/// Checksums of copied bytes, each with the index of the range that has the same bytes, and those of other bytes.
type Checks<'a> = (Vec<(usize, &'a SourceCheck)>, Vec<&'a SourceCheck>);

/// Returns the checksums of sources that are not known yet. Those of copied bytes are those of ranges of `checked`, whose CRC is
/// computed anyway. The others must be verified; a single worker verifies the short ones here, as workers on other files may need
/// the same ones.
///
/// # Errors
/// As [`Check::verify`](weighbridge_core::checksum::Check::verify); [`weighbridge_core::Kind::Cancelled`].
fn checks<'a>(
    file: &'a PlannedFile,
    checked: &[Range<u64>],
    threads: usize,
    is_stopped: &dyn Fn() -> bool,
) -> Result<Checks<'a>> {
    let (mut copied, mut verified, mut seen) = (Vec::new(), Vec::new(), HashSet::new());
    let verify = |planned: &SourceCheck| planned.check.verify().map_err(|e| e.on_tensor(&planned.tensor));
    let mut new = Vec::new();
    for planned in file.checks.iter().filter(|planned| seen.insert(Arc::as_ptr(&planned.check))) {
        match planned.check.is_known() {
            true => verify(planned)?,
            false => new.push(planned),
        }
    }
    let mut copies = HashMap::new();
    if new.iter().any(|planned| planned.check.kind() == ChecksumKind::Crc32) {
        for segment in &file.segments {
            let range = segment.offset..segment.offset + segment.len;
            if let Content::Copy { source, offset, .. } = &segment.content
                && let Some(place) = place(source, *offset)
                && let Ok(index) =
                    checked.binary_search_by_key(&(range.start, range.end), |r| (r.start, r.end))
            {
                copies.insert((place, segment.len), index);
            }
        }
    }
    for planned in new {
        let check = &planned.check;
        let place = place(check.source(), check.offset()).filter(|_| check.kind() == ChecksumKind::Crc32);
        match place.and_then(|place| copies.get(&(place, check.len()))) {
            Some(&range) => copied.push((range, planned)),
            None if threads == 1 && check.len() <= VERIFIED => {
                if is_stopped() {
                    return Err(Error::cancelled());
                }
                verify(planned)?;
            }
            None => verified.push(planned),
        }
    }
    Ok((copied, verified))
}

/// Returns the address of the file with the bytes of `source` from `offset`, and their offset in it.
fn place(source: &SourceRef, offset: u64) -> Option<(usize, u64)> {
    let range = source.file()?;
    Some((std::ptr::from_ref(range.file).addr(), range.offset.checked_add(offset)?))
}

/// Compares the checksums of sources with their parts.
fn compare(checks: &[&SourceCheck], mut parts: Vec<(usize, u64, Checksum)>) -> Result<()> {
    parts.sort_by_key(|&(check, skip, _)| (check, skip));
    let mut parts = parts.into_iter().peekable();
    for (number, planned) in checks.iter().enumerate() {
        let mut whole = Checksum::new(planned.check.kind());
        while let Some((_, _, part)) = parts.next_if(|&(check, ..)| check == number) {
            whole.combine(&part);
        }
        planned.check.settle(whole.finish()).map_err(|e| e.on_tensor(&planned.tensor))?;
    }
    Ok(())
}

/// Returns the CRC of each range of `checked`.
fn values(checked: &[Range<u64>], mut sums: Vec<PartialSum>) -> Vec<u32> {
    sums.sort_by_key(|s| (s.range, s.start));
    let mut whole = vec![crc32fast::Hasher::new(); checked.len()];
    for sum in &sums {
        whole[sum.range].combine(&sum.hasher);
    }
    whole.into_iter().map(crc32fast::Hasher::finalize).collect()
}

/// Writes the checksums at their offsets.
fn patch(file: &PlannedFile, staged: &dyn StagedFile, checked: &[Range<u64>], values: &[u32]) -> Result<()> {
    for segment in &file.segments {
        if let Content::Crc32(range) = &segment.content {
            let place = checked.binary_search_by_key(&(range.start, range.end), |r| (r.start, r.end));
            let value = place.map_or(0, |i| values[i]);
            staged.write_at(segment.offset, &value.to_le_bytes())?;
        }
    }
    Ok(())
}
