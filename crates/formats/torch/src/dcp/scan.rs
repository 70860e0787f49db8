//! Scan of the files of a checkpoint for code that torch would run on load.

use super::archives::archives;
use super::metadata::is_metadata;
use std::sync::Arc;
use weighbridge_core::error::Result;
use weighbridge_format::{OpenOptions, Scan};
use weighbridge_io::source::{RangeSource, SourceRef};
use weighbridge_scan::{AssumedType, pickles};

/// Scans one file: the pickle of the metadata, which torch loads without restrictions, or the archives of a data file.
pub(super) fn scan(source: &SourceRef, options: &OpenOptions) -> Result<Scan> {
    let mut scan = Scan::default();
    let mut head = [0; 512];
    let count = usize::try_from(source.len()).unwrap_or(head.len()).min(head.len());
    source.read_at(0, &mut head[..count])?;
    if is_metadata(&head[..count]) {
        pickles(source, 0, 1, false, &options.limits, &mut scan);
        return Ok(scan);
    }
    let (archives, before) = match archives(source, &options.limits) {
        Ok(found) => found,
        Err(error) => return Scan::of_error(error),
    };
    if before > 0 {
        let text = format!("{before} bytes are not in an archive of torch.save");
        scan.push_at("left-out", 0, text);
        let rest = RangeSource::new(source.clone(), 0, before)?;
        scan.look_into("(outside of the archives)", Arc::new(rest), AssumedType::File);
    }
    for range in archives {
        let nested: SourceRef =
            Arc::new(RangeSource::new(source.clone(), range.start, range.end - range.start)?);
        let mut inner = Scan::default();
        match crate::scan::zipped(&nested, options, &mut inner) {
            Ok(()) => {}
            Err(error) => inner.push_error(error)?,
        }
        scan.absorb(inner, Some(&format!("(archive at byte {})", range.start)));
    }
    Ok(scan)
}
