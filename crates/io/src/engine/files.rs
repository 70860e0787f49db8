//! Filling of all files of a plan, sequentially or in parallel.
//!
//! One worker fills each file, so that a model of ten thousand files is written in parallel, and as workers that write to one
//! file wait for each other. All workers together fill a file that is a large part of the plan.

use super::Sink;
use super::run::{RunOptions, RunReport, WorkerConfig, fill};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use weighbridge_core::error::{Error, Kind, Result};
use weighbridge_core::plan::{PlannedFile, WritePlan};

/// Length in bytes up to which one worker fills a file.
const MAX_SMALL_FILE: u64 = 8 << 20;
/// Files of one worker, at least, where all of the plan are of one length: while the last is filled, other workers have none.
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
    let most = MAX_SMALL_FILE.max(plan.bytes() / (workers.threads as u64 * FILES_EACH));
    let (small, large): (Vec<_>, Vec<_>) =
        plan.files.iter().partition(|file| plan.files.len() > 1 && file.len <= most);
    for file in large {
        report.add(one(file, workers)?);
    }
    let groups = groups(small);
    let shared = Mutex::new((report, None));
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(group) = groups.get(next.fetch_add(1, Ordering::Relaxed)) {
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
        for _ in 1..workers.threads.min(groups.len()) {
            scope.spawn(work);
        }
        work();
    });
    match shared.into_inner().unwrap_or_else(PoisonError::into_inner) {
        (report, None) => Ok(report),
        (_, Some(error)) => Err(error),
    }
}

/// Groups files that read from one stream, in their order, for one worker; each other file is a group.
fn groups(files: Vec<&PlannedFile>) -> Vec<Vec<&PlannedFile>> {
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
