//! Code scan: pickles that numpy would load with `allow_pickle`.

use super::SUFFIX;
use weighbridge_core::error::Result;
use weighbridge_core::text::escape;
use weighbridge_format::{OpenOptions, Scan};
use weighbridge_io::source::SourceRef;
use weighbridge_scan::{AssumedType, archive};

/// Scans an archive: each member is scanned as a file of its own.
pub(super) fn scan(source: &SourceRef, options: &OpenOptions) -> Result<Scan> {
    let mut scan = Scan::default();
    let is_array = |name: &str| name.ends_with(SUFFIX);
    archive(source, &options.limits, &mut scan, &is_array, &mut |member, bytes, scan| {
        // The metadata member, too: in an untrusted archive it may contain anything.
        scan.look_into(escape(&member.name), bytes, AssumedType::File);
        Ok(())
    })?;
    Ok(scan)
}
