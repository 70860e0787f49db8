//! Consecutive pickles of a source, and pickles nested in their byte strings.

use super::{Scan, found};
use std::sync::Arc;
use weighbridge_core::error::{Error, Kind, Result};
use weighbridge_core::finding::{Finding, Severity};
use weighbridge_core::limits::Limits;
use weighbridge_core::text::escape;
use weighbridge_core::{Budget, ErrorCode, FindingCode, HeldMemory};
use weighbridge_io::source::{MemorySource, RangeSource, SourceRef};
use weighbridge_pickle::{
    self as pickle, GlobalFinding, ImportVerdict, Opcodes, Options, Report, Span, Stored,
};

/// Opcode that declares the protocol.
const PROTO: u8 = 0x80;
/// Fewest instructions of a pickle with an effect: protocol, a value, `STOP`.
pub(crate) const MIN_INSTRUCTIONS: u64 = 3;
/// Instruction count from which bytes with an import among them are not a pickle by chance.
const MIN_CERTAIN_INSTRUCTIONS: u64 = 8;
/// Fewest bytes of a truncated string that show whether it continues as a pickle.
const MIN_NESTED_BYTES: u64 = 1 << 10;
const NOT_FOLLOWED: &str = "a byte string that may be a long pickle was not scanned to its end";

/// Scans the pickles of `source` from `offset` on: `expected` of them, as the format defines, and everything
/// after them.
///
/// Returns the offset after the expected pickles; `None` where one of them breaks. Another pickle after them is
/// scanned and reported, other bytes are reported as `trailing-bytes`. With `raw_follows`, the format has bytes
/// of its own there, which are left to the caller.
pub fn pickles(
    source: &SourceRef,
    offset: u64,
    expected: usize,
    raw_follows: bool,
    limits: &Limits,
    scan: &mut Scan,
) -> Option<u64> {
    let options = options(source, limits);
    let mut later = Vec::new();
    let end = in_a_row(source, offset, expected, raw_follows, &options, scan, &mut later);
    all_nested(source, later, 1, &options, scan);
    end
}

/// Same as [`pickles`]. Nested pickles of a compressed source are collected in `later`: reading back would decompress it from
/// the start again.
fn in_a_row(
    source: &SourceRef,
    offset: u64,
    expected: usize,
    raw_follows: bool,
    options: &Options,
    scan: &mut Scan,
    later: &mut Vec<Span>,
) -> Option<u64> {
    let mut opcodes = Opcodes::new(source, offset);
    let mut at = offset;
    for number in 0.. {
        if number == expected && raw_follows {
            return Some(at);
        }
        if number >= expected && at >= source.len() {
            return Some(at);
        }
        let declares = opcodes.at_protocol();
        let report = pickle::inspect_next(&mut opcodes, options);
        if number >= expected {
            let rest = source.len().saturating_sub(at);
            if !is_pickle(declares, &report) {
                let text = format!("{rest} bytes after the pickle were not scanned");
                scan.push_at("trailing-bytes", at, text);
                return Some(at);
            }
            scan.push_at("another-pickle", at, "another pickle follows the first");
        }
        let (end, blobs) = add_report(source, report, scan);
        if source.is_sequential() {
            later.extend(blobs);
        } else {
            all_nested(source, blobs, 1, options, scan);
        }
        match end {
            Some(end) => at = end,
            None => return if number < expected { None } else { Some(at) },
        }
    }
    Some(at)
}

/// Options for the pickles in `source` and nested ones: they share the budget of the file.
fn options(source: &SourceRef, limits: &Limits) -> Options {
    // A pickle nested in a compressed one is read into memory, where its own length does not define the budget.
    Options::with_limits(limits.with_budget_of(source))
}

/// Scans `source` if all of it is a pickle, and reports that; returns false where it is not a pickle.
///
/// For bytes with another assumed type, such as numbers. A text of digits can be a pickle of an old protocol
/// too, but without an import it has no effect.
pub fn embedded(source: &SourceRef, limits: &Limits, scan: &mut Scan) -> bool {
    let options = options(source, limits);
    if !may_be_pickle(source).is_ok_and(|may| may) {
        return false;
    }
    let report = pickle::inspect(source, 0, &options);
    match Likeness::of(&report, declares(source, 0), source.len()) {
        Likeness::Pickle => scan.push_at("nested-pickle", 0, "the bytes are a pickle"),
        Likeness::TooLong => {
            scan.push_at("nested-too-deep", 0, NOT_FOLLOWED);
            return false;
        }
        Likeness::None => return false,
    }
    let end = judge(source, report, 1, &options, scan);
    if let Some(end) = end.filter(|&end| end < source.len()) {
        pickles(source, end, 0, false, limits, scan);
    }
    true
}

/// Scans `source`, a file of another format, as a program would unpickle it from its first byte. Returns true where
/// that reaches an import. A name with any character but letters, digits, dots and underscores does not count:
/// Python finds nothing under it.
///
/// Leading pickles without an effect are skipped: a loader of several pickles continues after them.
///
/// # Errors
/// As the source.
pub fn pickle_too(source: &SourceRef, limits: &Limits, scan: &mut Scan) -> Result<bool> {
    let options = options(source, limits);
    let mut at = 0;
    loop {
        let rest = RangeSource::new(source.clone(), at, source.len().saturating_sub(at))?;
        if !may_be_pickle(&(Arc::new(rest) as SourceRef))? {
            return Ok(false);
        }
        let report = pickle::inspect(source, at, &options);
        if let Some(error) = report.error.as_ref().filter(|error| error.kind() == Kind::Limit) {
            let text = format!("{}: read as a pickle: {}", error.code(), error.message());
            scan.push_at("unreadable", at, text);
        }
        // After a break, letters that look like an import occur in any file.
        let broken = breaks_at(&report);
        let known = |offset| scan.imports.iter().any(|i| i.member.is_none() && i.offset == offset);
        let reached = |found: &&GlobalFinding| found.offset < broken && found.can_be_found();
        let reached = report.globals.iter().find(reached);
        if let Some(reached) = reached {
            if known(reached.offset) {
                return Ok(false);
            }
            let name = escape(&format!("{}.{}", reached.module, reached.name));
            let text = format!("the file is also a pickle: unpickling it would import `{name}`");
            scan.push_at("two-formats", at, text);
            judge(source, report, 1, &options, scan);
            return Ok(true);
        }
        match report.end {
            Some(end) if end < source.len() => at = end,
            _ => return Ok(false),
        }
    }
}

/// True where the bytes can begin a pickle: with the protocol opcode, or with any instruction that takes nothing
/// from the stack.
///
/// # Errors
/// As the source.
pub fn may_be_pickle(source: &SourceRef) -> Result<bool> {
    let mut head = [0; 2];
    if source.len() < head.len() as u64 {
        return Ok(false);
    }
    source.read_at(0, &mut head)?;
    Ok(pickle::begins(head))
}

/// True for a value that may be a pickle with an import: it begins like a pickle and contains a module and a name in
/// lines, or an opcode beyond ASCII. A cheap filter for many values.
pub fn may_import(bytes: &[u8]) -> bool {
    let Some(&[first, second]) = bytes.first_chunk() else { return false };
    pickle::begins([first, second])
        && (first == PROTO
            || memchr::memchr(0x93, bytes).is_some()
            || memchr::memchr3(0x82, 0x83, 0x84, bytes).is_some()
            || imports_in_lines(bytes))
}

/// True where a line ends with an import opcode and a module, and the next line is a name.
fn imports_in_lines(bytes: &[u8]) -> bool {
    let is_part = |byte: &u8| matches!(byte, b'_' | b'.' | 0x80..) || byte.is_ascii_alphanumeric();
    let mut starts = false;
    let mut rest = bytes;
    while let Some(end) = memchr::memchr(b'\n', rest) {
        let line = &rest[..end];
        if starts && end > 0 && line.iter().all(is_part) {
            return true;
        }
        let name = line.iter().rposition(|byte| !is_part(byte)).map_or(line, |at| &line[at + 1..]);
        starts = name.split_last().is_some_and(|(_, before)| memchr::memchr2(b'c', b'i', before).is_some());
        rest = &rest[end + 1..];
    }
    false
}

/// True where a pickle at this offset would declare its protocol.
fn declares(source: &SourceRef, at: u64) -> bool {
    let mut first = [0];
    source.read_at(at, &mut first).is_ok() && first == [PROTO]
}

/// Likeness to a pickle of bytes with another assumed type, such as numbers or text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Likeness {
    /// A pickle: it makes a call, or is complete and imports, or declares its protocol and continues like a pickle.
    Pickle,
    /// Reaches imports, but was not scanned to its end.
    TooLong,
    /// Not a pickle: numbers may begin like one, but do not continue like one.
    None,
}

impl Likeness {
    /// Likeness of `len` bytes with this report.
    fn of(report: &Report, declares: bool, len: u64) -> Self {
        let whole = report.error.is_none();
        let imports = report.imports();
        let is_pickle = if declares {
            report.instructions >= MIN_INSTRUCTIONS && (whole || imports)
        } else {
            whole && (reaches_import(report) || (imports && report.end == Some(len)))
        };
        if is_pickle || runs(report) {
            return Self::Pickle;
        }
        let cut = report.error.as_ref().is_some_and(|error| error.kind() == Kind::Limit);
        if cut && imports { Self::TooLong } else { Self::None }
    }
}

/// True where a name that Python could find is imported, or any name in a pickle too long to be one by chance.
fn reaches_import(report: &Report) -> bool {
    report.globals.iter().any(GlobalFinding::can_be_found)
        || (report.instructions >= MIN_CERTAIN_INSTRUCTIONS && report.imports())
}

/// True for a pickle: it declares its protocol, is complete, or imports.
fn is_pickle(declares: bool, report: &Report) -> bool {
    (declares && report.instructions >= MIN_INSTRUCTIONS)
        || !report.globals.is_empty()
        || (report.error.is_none() && report.instructions >= 2)
}

/// Adds the report of a pickle to `scan` and scans nested pickles. Returns the offset after the pickle.
fn judge(
    source: &SourceRef,
    report: Report,
    depth: usize,
    options: &Options,
    scan: &mut Scan,
) -> Option<u64> {
    let (end, blobs) = add_report(source, report, scan);
    all_nested(source, blobs, depth, options, scan);
    end
}

/// Adds the report of a pickle to `scan`. Returns the offset after it, and the strings that may be nested pickles.
fn add_report(source: &SourceRef, report: Report, scan: &mut Scan) -> (Option<u64>, Vec<Span>) {
    let Report { findings, globals, calls, blobs, dropped, worst_dropped, end, error, .. } = report;
    for finding in findings.into_iter().filter_map(rename) {
        scan.list(finding.in_file(source.label()));
    }
    for import in globals {
        scan.list_import(import);
    }
    for call in calls {
        scan.count_call(call);
    }
    if let Some(error) = error {
        let text =
            format!("{}: {}; Python would run the instructions before it", error.code(), error.message());
        let mut finding = found("pickle-breaks", text);
        finding.offset = error.offset();
        scan.list(finding.in_file(source.label()));
    }
    if dropped > 0 {
        let mut finding =
            found("more-findings", format!("{dropped} more findings or imports are not listed"));
        finding.severity = worst_dropped.unwrap_or(Severity::Note);
        scan.list(finding.in_file(source.label()));
    }
    (end, blobs)
}

/// Scans the strings that may be nested pickles, `depth` levels below the first pickle.
fn all_nested(source: &SourceRef, blobs: Vec<Span>, depth: usize, options: &Options, scan: &mut Scan) {
    for blob in blobs {
        if Budget::check_depth(depth).is_err() {
            let text = "pickles nested deeper in the pickle were not scanned";
            return scan.push_at("nested-too-deep", blob.offset, text);
        }
        nested(source, blob, depth, options, scan);
    }
}

/// Scans a string of a pickle that is itself one or several consecutive pickles.
fn nested(source: &SourceRef, blob: Span, depth: usize, options: &Options, scan: &mut Scan) {
    let Some((bytes, whole, _held)) = opened(source, blob, options) else {
        return scan.push_at("nested-too-deep", blob.offset, NOT_FOLLOWED);
    };
    let (mut inner, mut at) = (Scan::default(), 0);
    loop {
        let report = pickle::inspect(&bytes, at, options);
        let end = report.end;
        let is_cut = |error: &Error| {
            let ends = error.code() == ErrorCode::Truncated && !whole;
            (ends || error.kind() == Kind::Limit) && report.instructions >= MIN_INSTRUCTIONS
        };
        let cut = report.error.as_ref().is_some_and(is_cut);
        match Likeness::of(&report, declares(&bytes, at), bytes.len()) {
            Likeness::Pickle => {
                let len = end.unwrap_or(bytes.len()) - at;
                inner.push_at(
                    "nested-pickle",
                    at,
                    format!("a byte string ({len} bytes) in the pickle is itself a pickle"),
                );
                judge(&bytes, report, depth + 1, options, &mut inner);
            }
            Likeness::None if !cut => {}
            _ => inner.push_at("nested-too-deep", at, NOT_FOLLOWED),
        }
        match end.filter(|&end| end < bytes.len()) {
            Some(end) => at = end,
            None => break,
        }
    }
    // Offsets count from the start of the outer pickle; in a string spelled as text, in the decoded bytes.
    let shift = |offset: u64| offset.saturating_add(blob.offset);
    for finding in &mut inner.findings {
        finding.offset = finding.offset.map(shift);
    }
    inner.imports.iter_mut().for_each(|import| import.offset = shift(import.offset));
    inner.calls.iter_mut().for_each(|call| call.offset = shift(call.offset));
    scan.absorb(inner, None);
}

/// Bytes of a string in a pickle, whether they are complete, and their memory; `None` where they cannot be read.
fn opened(source: &SourceRef, blob: Span, options: &Options) -> Option<(SourceRef, bool, HeldMemory)> {
    let budget = options.limits.budget_of(source);
    let mut held = HeldMemory::of(&budget);
    if blob.stored == Stored::Raw && !source.is_sequential() {
        let range = RangeSource::new(source.clone(), blob.offset, blob.len).ok()?;
        return Some((Arc::new(range), true, held));
    }
    // Random reads of compressed bytes would decompress them from their start each time.
    // Half of the memory is for the scan of these bytes, and text is also held as spelled.
    let most = blob.len.min(budget.memory_left() / 4);
    if most < blob.len.min(MIN_NESTED_BYTES) {
        return None;
    }
    held.take(2 * most).ok()?;
    budget.spend_work(most);
    let (bytes, whole) = pickle::string_bytes(source, blob, most).ok()?;
    Some((Arc::new(MemorySource::new(source.label(), bytes)), whole, held))
}

/// Offset that Python may have reached: the break of the pickle. A pickle that continues to its end after the break need
/// not have stopped Python.
fn breaks_at(report: &Report) -> u64 {
    let at = report.error.as_ref().filter(|_| !report.goes_on).and_then(Error::offset);
    at.unwrap_or(u64::MAX)
}

/// True for a pickle that makes a dangerous import, or calls an import, before it breaks: Python has run it by then. Words
/// in lines may look like an import, but do not continue like one.
pub fn runs(report: &Report) -> bool {
    let broken = breaks_at(report);
    let reached = |found: &&GlobalFinding| found.offset < broken && found.can_be_found();
    (report.goes_on && reaches_import(report))
        || report.calls.iter().any(|call| call.callable.is_some())
        || report
            .globals
            .iter()
            .filter(reached)
            .any(|found| matches!(found.judgement, ImportVerdict::Dangerous(_)))
}

/// The finding under the code of its rule; `None` for a finding that this module reports itself.
fn rename(mut finding: Finding) -> Option<Finding> {
    let code = match finding.code {
        // The caller scans the bytes after the pickle.
        FindingCode::AnotherPickle | FindingCode::TrailingBytes => return None,
        FindingCode::Pop
        | FindingCode::Dup
        | FindingCode::MemoAgain
        | FindingCode::NoProtocol
        | FindingCode::ProtocolInside
        | FindingCode::StackLeft => FindingCode::OddPickle,
        FindingCode::FrameCutsInstruction | FindingCode::FrameInFrame | FindingCode::FrameLength => {
            FindingCode::FramesDisagree
        }
        code => code,
    };
    if let Some(rule) = super::Rule::of(code.as_str()) {
        finding.code = rule.code.into();
        finding.severity = finding.severity.max(rule.severity);
    } else {
        finding.severity = finding.severity.max(Severity::Unchecked);
    }
    Some(finding)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_may_import_are_detected() {
        for may in [
            &b"cos\ngetcwd\n)R."[..],
            b"(S'a'\nios\ngetcwd\n.",
            b"I1\n0cos.path\njoin\n.",
            b"\x80\x02.",
            b"Va\n\x93.",
            b"K\x01\x82\x01.",
        ] {
            assert!(may_import(may), "{may:?}");
        }
        for not in [&b"cos"[..], b"cos\ngetcwd", b"This is\na text\n", b"x", b"Item\n\n", b"zcos\ngetcwd\n"] {
            assert!(!may_import(not), "{not:?}");
        }
    }
}
