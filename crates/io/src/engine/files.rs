//! Filling of all files of a plan, sequentially or in parallel.
//!
//! One worker fills each file that is a small part of the plan, so that a model of ten thousand files is written in parallel, and as
//! workers that write to one file wait for each other. All workers together fill the other files.

use super::Sink;
use super::run::{RunOptions, RunReport, WorkerConfig, fill};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use weighbridge_core::error::{Error, Kind, Result};
use weighbridge_core::plan::{PlannedFile, WritePlan};

/// Length in bytes up to which one worker fills a file in any case.
const MAX_SMALL_FILE: u64 = 8 << 20;
/// Minimum number of files of one worker if they are longer: while the last one is filled, the other workers have none.
const FILES_EACH: u64 = 4;

/// Stages and fills every file.
pub(super) fn fill_all(plan: &WritePlan, sink: &dyn Sink, options: &RunOptions) -> Result<RunReport> {
    let workers = WorkerConfig::new(options)?;
    sink.begin(&plan.files)?;
    options.progress.begin(plan.bytes());
    let stop = AtomicBool::new(false);
    let one = |file: &PlannedFile, workers: WorkerConfig| {
        if options.progress.stopped() {
            return Err(Error::cancelled());
        }
        let staged = sink.stage(file)?;
        fill(file, &*staged, options, workers, &stop)
    };
    let mut report = RunReport::default();
    let part = plan.bytes() / (workers.threads as u64 * FILES_EACH);
    let (small, large): (Vec<_>, Vec<_>) = groups(&plan.files).into_iter().partition(|group| {
        // The encoder of a streamed file has memory of its own.
        let is_streamed = group.iter().any(|file| file.stream.is_some());
        let most = if is_streamed { MAX_SMALL_FILE } else { part.max(MAX_SMALL_FILE) };
        plan.files.len() > 1 && group.iter().map(|file| file.len).sum::<u64>() <= most
    });
    for file in large.into_iter().flatten() {
        report.add(one(file, workers)?);
    }
    let shared = Mutex::new((report, None));
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(group) = small.get(next.fetch_add(1, Ordering::Relaxed)) {
            for file in group {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                let filled = one(file, workers.one());
                let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
                match filled {
                    Ok(report) => shared.0.add(report),
                    Err(error) => {
                        stop.store(true, Ordering::Relaxed);
                        // The cancellation of other workers is not the cause of the failure.
                        if shared.1.as_ref().is_none_or(|old: &Error| old.kind() == Kind::Cancelled) {
                            shared.1 = Some(error);
                        }
                    }
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..workers.threads.min(small.len()) {
            scope.spawn(work);
        }
        work();
    });
    match shared.into_inner().unwrap_or_else(PoisonError::into_inner) {
        (report, None) => Ok(report),
        (_, Some(error)) => Err(error),
    }
}

/// Groups files that read from one stream, in their order; each other file is a group.
fn groups(files: &[PlannedFile]) -> Vec<Vec<&PlannedFile>> {
    let mut groups: Vec<Vec<&PlannedFile>> = Vec::new();
    let mut streams: HashMap<usize, usize> = HashMap::new();
    for file in files {
        let stream = file.sources().find(|source| source.is_sequential());
        let next = groups.len();
        let group = stream
            .map_or(next, |source| *streams.entry(Arc::as_ptr(source).cast::<()>().addr()).or_insert(next));
        match groups.get_mut(group) {
            Some(group) => group.push(file),
            None => groups.push(vec![file]),
        }
    }
    groups
}
