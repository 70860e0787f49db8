//! What is listed of a scan: what is found of one pickle is bounded, and a file may hold very many.

use super::{Scan, found};
use std::collections::HashMap;
use weighbridge_core::finding::{Finding, Severity};
use weighbridge_pickle::{Call, GlobalFinding};

/// Different calls of all pickles of a file that are listed.
const MOST_CALLS: usize = 1_000;
/// Findings of one weight, and imports, that are listed of all pickles of a file.
const MOST: usize = 10_000;
/// Bytes of texts and names of the findings of one weight, and of the imports.
const MOST_TEXT: usize = 2 << 20;

/// What is listed already, and what is only counted.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tally {
    /// The place of each call in the list.
    calls: HashMap<(&'static str, Option<String>), usize>,
    /// Findings, by their weight: remarks must not crowd out what weighs more.
    findings: HashMap<Severity, Room>,
    imports: Room,
    dropped: u64,
    worst_dropped: Option<Severity>,
}

/// What a list has taken.
#[derive(Debug, Clone, Copy, Default)]
struct Room {
    items: usize,
    bytes: usize,
}

impl Room {
    /// True where something that long still goes into the list.
    fn take(&mut self, bytes: usize) -> bool {
        let fits = self.items < MOST && bytes <= MOST_TEXT.saturating_sub(self.bytes);
        if fits {
            self.items += 1;
            self.bytes += bytes;
        }
        fits
    }
}

impl Tally {
    fn drop(&mut self, severity: Severity) {
        self.dropped += 1;
        self.worst_dropped = self.worst_dropped.max(Some(severity));
    }

    /// Adds what was not listed of a part.
    pub(super) fn absorb(&mut self, part: &Self) {
        self.dropped += part.dropped;
        self.worst_dropped = self.worst_dropped.max(part.worst_dropped);
    }
}

impl Scan {
    /// Adds a finding of a part, or counts it where very many are listed.
    pub fn list(&mut self, finding: Finding) {
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let hint = finding.hint.as_ref().map_or(0, |hint| hint.len());
        let bytes = finding.text.len() + text(&finding.member) + text(&finding.tensor) + hint;
        if self.tally.findings.entry(finding.severity).or_default().take(bytes) {
            self.findings.push(finding);
        } else {
            self.tally.drop(finding.severity);
        }
    }

    /// Adds an import, or counts it where very many are listed: what is wrong with it is a finding.
    pub fn list_import(&mut self, import: GlobalFinding) {
        let member = import.member.as_ref().map_or(0, String::len);
        if self.tally.imports.take(import.module.len() + import.name.len() + member) {
            self.imports.push(import);
        } else {
            self.tally.drop(Severity::Note);
        }
    }

    /// Adds a call, or its number to one that is the same.
    pub fn count_call(&mut self, call: Call) {
        let what = (call.how, call.callable.clone());
        if let Some(known) = self.tally.calls.get(&what).and_then(|&place| self.calls.get_mut(place)) {
            known.count = known.count.saturating_add(call.count);
        } else if self.calls.len() < MOST_CALLS {
            self.tally.calls.insert(what, self.calls.len());
            self.calls.push(call);
        } else {
            self.tally.drop(Severity::Note);
        }
    }

    /// Tells how much was not listed.
    pub fn finish(&mut self) {
        let Tally { dropped, worst_dropped, .. } = std::mem::take(&mut self.tally);
        if dropped > 0 {
            let text = format!("{dropped} more findings, imports or calls of many parts are not listed");
            let mut finding = found("more-findings", text);
            finding.severity = worst_dropped.unwrap_or(Severity::Note);
            self.findings.push(finding);
        }
    }
}
