//! Filling of all files of a plan, sequentially or in parallel.
//!
//! All workers together fill a large file. One worker fills each small file, so that a model of ten
//! thousand files is written in parallel.

use super::Sink;
use super::run::{RunOptions, RunReport, WorkerConfig, fill};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use weighbridge_core::error::{Error, Kind, Result};
use weighbridge_core::plan::{PlannedFile, WritePlan};

/// Longest file, in bytes, that is filled by one worker.
const MAX_SMALL_FILE: u64 = 8 << 20;

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
    let (small, large): (Vec<_>, Vec<_>) =
        plan.files.iter().partition(|file| plan.files.len() > 1 && file.len <= MAX_SMALL_FILE);
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
