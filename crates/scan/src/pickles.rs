//! Every pickle of a source, one behind the other, and those within their bytes.

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

/// The instruction that declares the protocol.
const PROTO: u8 = 0x80;
/// The fewest instructions of a pickle that does anything: protocol, a value, `STOP`.
pub(crate) const FEWEST: u64 = 3;
/// So many bytes are not all instructions by chance, with those that import among them.
const NO_CHANCE: u64 = 8;
/// So few bytes of a string that is cut do not show whether it goes on as a pickle.
const FEW_BYTES: u64 = 1 << 10;
const NOT_FOLLOWED: &str = "what may be a long pickle was not followed to its end";

/// Judges the pickles of `source` from `offset` on: `expected` of them as the format has them, and
/// whatever follows.
///
/// Returns the offset behind the pickles that were expected; `None` where one of them breaks. What
/// follows is told: another pickle is judged too, anything else is `trailing-bytes`. Where
/// `raw_follows`, the format has bytes of its own there, which are left to the caller.
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

/// As [`pickles`]. Of a packed source what is within the pickles is left for `later`: nothing is read twice, as all would be
/// unpacked from the start for it.
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
                let text = format!("{rest} bytes follow behind the pickle and were not looked at");
                scan.push_at("trailing-bytes", at, text);
                return Some(at);
            }
            scan.push_at("another-pickle", at, "another pickle follows behind the first");
        }
        let (end, blobs) = tell(source, report, scan);
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

/// Options for pickles in `source` and those within them: they share the budget of the file.
fn options(source: &SourceRef, limits: &Limits) -> Options {
    // A pickle within a packed one is read into memory, where its own length says nothing.
    Options::with_limits(limits.with_budget_of(source))
}

/// Judges `source` where it is a whole pickle and nothing else, and says so; false where it is none.
///
/// For bytes that are taken for something else, such as numbers. A text of digits can be a pickle of an
/// old protocol too, but one that imports nothing does nothing.
pub fn embedded(source: &SourceRef, limits: &Limits, scan: &mut Scan) -> bool {
    let options = options(source, limits);
    if !may_be_pickle(source).is_ok_and(|may| may) {
        return false;
    }
    let report = pickle::inspect(source, 0, &options);
    match Likeness::of(&report, declares(source, 0), source.len()) {
        Likeness::Pickle => scan.push_at("nested-pickle", 0, "these bytes are a pickle"),
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

/// Judges what `source`, a file of another format, does to a program that unpickles it from its first byte,
/// where that reaches an import; false where it does not. Names without a letter, digit, dot or underscore at
/// every place are no import: Python finds nothing under them.
///
/// Pickles in front that do nothing are passed over: a loader of several reads on behind them.
///
/// # Errors
/// What the source says.
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
            let text = format!("{}: taken for a pickle, {}", error.code(), error.message());
            scan.push_at("unreadable", at, text);
        }
        // Behind a break, letters that look like an import are many in any file.
        let broken = breaks_at(&report);
        let known = |offset| scan.imports.iter().any(|i| i.member.is_none() && i.offset == offset);
        let reached = |found: &&GlobalFinding| found.offset < broken && found.can_be_found();
        let reached = report.globals.iter().find(reached);
        if let Some(reached) = reached {
            if known(reached.offset) {
                return Ok(false);
            }
            let name = escape(&format!("{}.{}", reached.module, reached.name));
            let text = format!("the file is a pickle as well: unpickled, it imports {name}");
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

/// True where bytes begin as a pickle may: with its protocol, or with any instruction that takes nothing from
/// the stack.
///
/// # Errors
/// What the source says.
pub fn may_be_pickle(source: &SourceRef) -> Result<bool> {
    let mut head = [0; 2];
    if source.len() < head.len() as u64 {
        return Ok(false);
    }
    source.read_at(0, &mut head)?;
    Ok(pickle::begins(head))
}

/// True for a value, of many, that may be a pickle that does something: it begins as one, and has what imports need,
/// which words do not: a module and a name in lines, or an instruction beyond ASCII.
pub fn may_import(bytes: &[u8]) -> bool {
    let Some(&[first, second]) = bytes.first_chunk() else { return false };
    pickle::begins([first, second])
        && (first == PROTO
            || memchr::memchr(0x93, bytes).is_some()
            || memchr::memchr3(0x82, 0x83, 0x84, bytes).is_some()
            || imports_in_lines(bytes))
}

/// True where a line ends with the instruction to import and a module, and the next one is a name.
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

/// True where a pickle that begins there would declare its protocol.
fn declares(source: &SourceRef, at: u64) -> bool {
    let mut first = [0];
    source.read_at(at, &mut first).is_ok() && first == [PROTO]
}

/// How much like a pickle bytes are that are taken for something else, such as numbers or text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Likeness {
    /// It is one: it runs something, or is one to its end and imports, or declares its protocol and goes on like one.
    Pickle,
    /// It reaches imports, but was not followed to its end.
    TooLong,
    /// Numbers may begin like a pickle; they do not go on like one.
    None,
}

impl Likeness {
    /// Of `len` bytes of which `report` is known.
    fn of(report: &Report, declares: bool, len: u64) -> Self {
        let whole = report.error.is_none();
        let imports = report.imports();
        let is_pickle = if declares {
            report.instructions >= FEWEST && (whole || imports)
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

/// True where a name that Python could find is imported, or something else in so many instructions that these are no chance.
fn reaches_import(report: &Report) -> bool {
    report.globals.iter().any(GlobalFinding::can_be_found)
        || (report.instructions >= NO_CHANCE && report.imports())
}

/// True for a pickle: it begins with its protocol, is one to its end, or imports.
fn is_pickle(declares: bool, report: &Report) -> bool {
    (declares && report.instructions >= FEWEST)
        || !report.globals.is_empty()
        || (report.error.is_none() && report.instructions >= 2)
}

/// Takes what is known of a pickle into `scan`, and looks at those within it. Returns the offset behind it.
fn judge(
    source: &SourceRef,
    report: Report,
    depth: usize,
    options: &Options,
    scan: &mut Scan,
) -> Option<u64> {
    let (end, blobs) = tell(source, report, scan);
    all_nested(source, blobs, depth, options, scan);
    end
}

/// Takes what is known of a pickle into `scan`. Returns the offset behind it, and where others may be within it.
fn tell(source: &SourceRef, report: Report, scan: &mut Scan) -> (Option<u64>, Vec<Span>) {
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
        let text = format!("{}: {}; Python would have run what stands before", error.code(), error.message());
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

/// Judges what may be pickles within a pickle, at so many levels below the first one.
fn all_nested(source: &SourceRef, blobs: Vec<Span>, depth: usize, options: &Options, scan: &mut Scan) {
    for blob in blobs {
        if Budget::check_depth(depth).is_err() {
            let text = "more pickles within the pickle were not looked at";
            return scan.push_at("nested-too-deep", blob.offset, text);
        }
        nested(source, blob, depth, options, scan);
    }
}

/// Judges a string within a pickle, where it is a pickle itself, or several one behind the other.
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
            (ends || error.kind() == Kind::Limit) && report.instructions >= FEWEST
        };
        let cut = report.error.as_ref().is_some_and(is_cut);
        match Likeness::of(&report, declares(&bytes, at), bytes.len()) {
            Likeness::Pickle => {
                let len = end.unwrap_or(bytes.len()) - at;
                inner.push_at("nested-pickle", at, format!("{len} bytes within the pickle are a pickle"));
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
    // Counted from the start of the pickle around it; of what is spelled as text, as the bytes that it stands for.
    let shift = |offset: u64| offset.saturating_add(blob.offset);
    for finding in &mut inner.findings {
        finding.offset = finding.offset.map(shift);
    }
    inner.imports.iter_mut().for_each(|import| import.offset = shift(import.offset));
    inner.calls.iter_mut().for_each(|call| call.offset = shift(call.offset));
    scan.absorb(inner, None);
}

/// The bytes of a string within a pickle, whether these are all, and their memory; `None` where they cannot be had.
fn opened(source: &SourceRef, blob: Span, options: &Options) -> Option<(SourceRef, bool, HeldMemory)> {
    let budget = options.limits.budget_of(source);
    let mut held = HeldMemory::of(&budget);
    if blob.stored == Stored::Raw && !source.is_sequential() {
        let range = RangeSource::new(source.clone(), blob.offset, blob.len).ok()?;
        return Some((Arc::new(range), true, held));
    }
    // Read anywhere, packed bytes would be unpacked from their start each time.
    // Half of the memory is for what is found in them, and text is held as it is spelled, too.
    let most = blob.len.min(budget.memory_left() / 4);
    if most < blob.len.min(FEW_BYTES) {
        return None;
    }
    held.take(2 * most).ok()?;
    budget.spend_work(most);
    let (bytes, whole) = pickle::string_bytes(source, blob, most).ok()?;
    Some((Arc::new(MemorySource::new(source.label(), bytes)), whole, held))
}

/// The place up to which Python may have come: where the pickle breaks. What goes on behind that to its end need not have
/// stopped Python.
fn breaks_at(report: &Report) -> u64 {
    let at = report.error.as_ref().filter(|_| !report.goes_on).and_then(Error::offset);
    at.unwrap_or(u64::MAX)
}

/// True for a pickle that imports something dangerous, or calls what it imports, before it breaks: Python has done so by
/// then. Words in lines may look like an import, and do not go on like one.
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

/// The finding under its rule's code; `None` for what is told otherwise here.
fn rename(mut finding: Finding) -> Option<Finding> {
    let code = match finding.code {
        // What follows is looked at by the caller.
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
    fn values_that_may_import() {
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
