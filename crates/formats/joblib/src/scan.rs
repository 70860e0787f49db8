//! Scan of a file for code that loading it in Python would run.

use super::read::unpacked;
use weighbridge_core::error::Result;
use weighbridge_format::{OpenOptions, Scan};
use weighbridge_io::source::SourceRef;
use weighbridge_scan::pickles;

/// Scans the pickle of a file, or of its unpacked content.
pub(super) fn scan(source: &SourceRef, options: &OpenOptions) -> Result<Scan> {
    let mut scan = Scan::default();
    match unpacked(source, &options.limits) {
        Ok((bytes, _)) => {
            pickles(&bytes, 0, 1, false, &options.limits, &mut scan);
        }
        Err(error) => return Scan::of_error(error),
    }
    match super::read::open(source, options) {
        Ok(checkpoint) => scan.judge_names(&checkpoint),
        Err(error) => scan.push_error(error)?,
    }
    Ok(scan)
}
