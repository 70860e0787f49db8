//! Archives in a data file, found without the metadata: consecutive zip archives, each with its end record.
//!
//! They are found from the end of the file: an end record has the length of its archive. Only these records are read.

use std::ops::Range;
use std::sync::Arc;
use weighbridge_core::check::Outline;
use weighbridge_core::error::Result;
use weighbridge_core::limits::Limits;
use weighbridge_io::source::{RangeSource, SourceRef};

/// Bytes of an end record without a comment, of its zip64 form, and of the locator of that.
const END: u64 = 22;
const END64: u64 = 56;
const LOCATOR: u64 = 20;
/// Value of a 32-bit field that is in the zip64 record instead.
const IN_ZIP64: u64 = 0xffff_ffff;

/// Returns the ranges of the archives in file order, and the bytes before them that are not an archive.
///
/// # Errors
/// Errors of the source; [`weighbridge_core::Kind::Limit`] for too many archives.
pub(super) fn archives(source: &SourceRef, limits: &Limits) -> Result<(Vec<Range<u64>>, u64)> {
    let budget = limits.budget_of(source);
    let (mut found, mut end) = (Vec::new(), source.len());
    while let Some(start) = start_of(source, end)? {
        budget.take_work(END)?;
        budget.take_memory(size_of::<Range<u64>>() as u64)?;
        found.push(start..end);
        end = start;
    }
    found.reverse();
    Ok((found, end))
}

/// Returns the start of the archive that ends at `end`; `None` without one.
fn start_of(source: &SourceRef, end: u64) -> Result<Option<u64>> {
    let record = |at: Option<u64>, len: u64, magic: &[u8]| -> Result<Option<Vec<u8>>> {
        let Some(at) = at.filter(|&at| at.checked_add(len).is_some_and(|stop| stop <= end)) else {
            return Ok(None);
        };
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
        source.read_at(at, &mut bytes)?;
        Ok(bytes.starts_with(magic).then_some(bytes))
    };
    let number = |bytes: &[u8], at: usize, len: usize| {
        let bytes = bytes.get(at..at + len).unwrap_or_default();
        bytes.iter().rev().fold(0u64, |sum, &byte| sum << 8 | u64::from(byte))
    };
    let at = end.checked_sub(END);
    let Some(bytes) = record(at, END, b"PK\x05\x06")? else { return Ok(None) };
    let (mut size, mut offset, mut directory_end) = (number(&bytes, 12, 4), number(&bytes, 16, 4), end - END);
    let locator = end.checked_sub(END + LOCATOR);
    let has_zip64 = record(locator, LOCATOR, b"PK\x06\x07")?.is_some();
    if has_zip64 && let Some(bytes) = record(end.checked_sub(END + LOCATOR + END64), END64, b"PK\x06\x06")? {
        directory_end = end - END - LOCATOR - END64;
        if size == IN_ZIP64 || offset == IN_ZIP64 {
            (size, offset) = (number(&bytes, 40, 8), number(&bytes, 48, 8));
        }
    }
    let start = directory_end.checked_sub(size).and_then(|directory| directory.checked_sub(offset));
    let Some(start) = start else { return Ok(None) };
    // An empty archive has no member, and torch writes none.
    let first = record(Some(start), 4, b"PK\x03\x04")?;
    Ok(first.map(|_| start))
}

/// Returns the outline of a data file.
///
/// # Errors
/// Errors of reading the archives.
pub(super) fn outline(source: &SourceRef, limits: &Limits) -> Result<Outline> {
    let (archives, before) = archives(source, limits)?;
    let mut whole = Outline::default();
    whole.hidden(0, before, "bytes outside of the archives");
    for range in archives {
        let (start, len) = (range.start, range.end - range.start);
        let nested: SourceRef = Arc::new(RangeSource::new(source.clone(), start, len)?);
        let mut inner = crate::outline::outline(&nested, limits)?;
        whole.gaps = inner.gaps;
        inner.parts.iter_mut().for_each(|part| part.offset += start);
        inner.findings.iter_mut().for_each(|finding| finding.offset = finding.offset.map(|at| at + start));
        whole.parts.extend(inner.parts);
        whole.findings.extend(inner.findings);
    }
    Ok(whole)
}
