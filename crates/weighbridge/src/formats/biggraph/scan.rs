//! What a file would run if BigGraph opened it: the optimizer's state is a pickle.

use super::read;
use crate::checkpoint::Checkpoint;
use crate::error::Result;
use crate::formats::{OpenOptions, Scan, by_id};
use crate::source::SourceRef;

/// Looks through one file. A configuration is text, and nothing in it is run.
pub(super) fn scan(source: &SourceRef, options: &OpenOptions) -> Result<Scan> {
    let lenient = OpenOptions { lenient: true, ..options.clone() };
    let opened = match read::open(source, &lenient) {
        Ok(opened) => opened,
        Err(error) => return Scan::of_error(error),
    };
    let blob = match read::blob(source, options) {
        Ok(Some(blob)) => blob,
        Ok(None) => return Ok(Scan::of_notes(&opened)),
        Err(error) => return Scan::of_error(error),
    };
    // The room of torch's files looks at each pickle in it.
    let mut scan = by_id("torch")?.scan(&blob, options)?;
    scan.findings.extend(Scan::of_notes(&without_state(opened)).findings);
    Ok(scan)
}

/// The same without remarks on the optimizer's state: whether it is as it must be is not asked here.
fn without_state(mut opened: Checkpoint) -> Checkpoint {
    opened.notes.retain(|note| !note.code.starts_with("state-"));
    opened
}
