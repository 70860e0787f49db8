//! What would run if torch opened a file with all that a pickle may do.

use super::read;
use crate::containers::torch::{self, is_legacy};
use crate::containers::zip::read_directory;
use crate::error::Result;
use crate::finding::{Finding, Severity};
use crate::formats::{OpenOptions, Scan};
use crate::pickle::{self, Options};
use crate::source::SourceRef;
use crate::text::escape;

/// Pickles of the legacy form.
const PICKLES: usize = 5;

/// Looks through one file.
pub(super) fn scan(source: &SourceRef, options: &OpenOptions) -> Result<Scan> {
    let mut head = [0; 32];
    let count = usize::try_from(source.len()).unwrap_or(head.len()).min(head.len());
    source.read_at(0, &mut head[..count])?;
    let mut scan = Scan::default();
    let whole = if is_legacy(&head[..count]) {
        legacy(source, options, &mut scan);
        true
    } else {
        archive(source, options, &mut scan)?
    };
    // What cannot be opened may hold more than was seen.
    if whole && let Err(error) = read::open(source, options) {
        scan.findings.extend(Scan::of_error(error)?.findings);
    }
    Ok(scan)
}

/// The pickles of the legacy form, one behind the other. Raw numbers follow.
fn legacy(source: &SourceRef, options: &OpenOptions, scan: &mut Scan) {
    let mut at = Some(0);
    for _ in 0..PICKLES {
        let Some(offset) = at else { break };
        at = pickled(source, offset, true, options, scan);
    }
    if let Ok(saved) = torch::read(source, &options.limits)
        && saved.legacy_end().is_some_and(|end| end < source.len())
    {
        let text = "bytes follow behind the last storage and were not looked at";
        scan.findings.push(Finding::unchecked("trailing-bytes", text).in_file(source.label()));
    }
}

/// Every pickle of an archive. False where its directory cannot be read.
fn archive(source: &SourceRef, options: &OpenOptions, scan: &mut Scan) -> Result<bool> {
    let members = match read_directory(source, &options.limits) {
        Ok(members) => members,
        Err(error) => {
            *scan = Scan::of_error(error)?;
            return Ok(false);
        }
    };
    let (mut code, mut other) = (Vec::new(), 0u64);
    for member in &members {
        let inner = member.name.split_once('/').map_or("", |(_, inner)| inner);
        if member.name.ends_with(".pkl") {
            match member.open(source) {
                Ok(bytes) => {
                    pickled(&bytes, 0, false, options, scan);
                }
                Err(error) => scan.findings.extend(Scan::of_error(error)?.findings),
            }
        } else if inner.starts_with("code/") || member.name.ends_with(".py") {
            code.push(escape(&member.name));
        } else if !(inner.starts_with("data/")
            || inner.starts_with("constants/")
            || inner.starts_with(".data/")
            || matches!(inner, "byteorder" | "version" | ".format_version" | ".storage_alignment"))
        {
            other += 1;
        }
    }
    if let Some(first) = code.first() {
        let text = format!("{} members hold code that would run, such as {first}", code.len());
        scan.findings.push(Finding::error("torchscript-code", text).in_file(source.label()));
    }
    if other > 0 {
        let text = format!("{other} members that torch.save does not write were not looked at");
        scan.findings.push(Finding::unchecked("unread-member", text).in_file(source.label()));
    }
    Ok(true)
}

/// Judges a pickle; gives the offset behind it.
fn pickled(
    source: &SourceRef,
    offset: u64,
    more: bool,
    options: &OpenOptions,
    scan: &mut Scan,
) -> Option<u64> {
    let report = pickle::inspect(source, offset, &Options::with_limits(options.limits.clone()));
    for mut finding in report.findings {
        if matches!(finding.code, "another-pickle" | "trailing-bytes") {
            if more {
                continue;
            }
            // Torch stops before these bytes; others may not, and they were not looked at.
            finding.severity = Severity::Unchecked;
        }
        scan.findings.push(finding.in_file(source.label()));
    }
    if let Some(error) = &report.error {
        let text = format!("the pickle cannot be read to its end: {}", error.message());
        scan.findings.push(Finding::unchecked(error.code(), text).in_file(source.label()));
    }
    if report.dropped > 0 {
        let text = format!("{} more findings are not listed", report.dropped);
        scan.findings.push(Finding::note("more-findings", text));
    }
    scan.imports.extend(report.globals);
    report.end
}
