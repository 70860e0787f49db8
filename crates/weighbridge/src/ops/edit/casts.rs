//! Effect of the casts of an index, measured before writing.

use crate::checkpoint::{Checkpoint, SameRead};
use crate::engine::Scratch;
use crate::error::Result;
use crate::ops::parallel;
use crate::tensor::{CastReport, Region};
use std::collections::{BTreeMap, HashMap};

/// Block size, in stored bytes.
const BLOCK: u64 = 4 << 20;

/// Reads every tensor with a pending cast, in blocks, and counts the effects, by displayed name. Takes about 16 MiB per
/// thread for tensors of any size; `threads` of 0 is one per processor.
///
/// # Errors
/// Errors of the sources.
pub(crate) fn cast_reports(checkpoint: &Checkpoint, threads: usize) -> Result<BTreeMap<String, CastReport>> {
    #[derive(Default)]
    struct Worker {
        scratch: Scratch,
        bytes: Vec<u8>,
        sum: CastReport,
    }
    let mut reports = BTreeMap::new();
    // Tensors that share storage are read once.
    let mut known: HashMap<SameRead<'_>, CastReport> = HashMap::new();
    for entry in checkpoint.tensors.iter().filter(|tensor| tensor.cast.is_some()) {
        if let Some(report) = known.get(&SameRead(entry)) {
            reports.insert(entry.name(), *report);
            continue;
        }
        let order = entry.order();
        let most = (BLOCK / entry.stored.size().unwrap_or(1) as u64).max(1);
        let sequential = entry.extents.iter().any(|extent| extent.source.is_sequential());
        let jobs = entry.elements().div_ceil(most);
        let workers = if sequential { 1 } else { parallel::workers(threads, jobs) };
        let blocks = Region::blocks(&entry.shape, order, most);
        let done = parallel::each(blocks, workers, |worker: &mut Worker, _, block| {
            worker.bytes.clear();
            if let Some(cast) = entry.read_into(&block, order, &mut worker.scratch, &mut worker.bytes)? {
                worker.sum.add(&cast);
            }
            Ok(())
        })?;
        let mut sum = CastReport::default();
        done.iter().for_each(|worker| sum.add(&worker.sum));
        known.insert(SameRead(entry), sum);
        reports.insert(entry.name(), sum);
    }
    Ok(reports)
}
