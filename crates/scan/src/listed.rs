//! Bounds of the lists of a scan: the findings of one pickle are bounded, but a file may hold very many pickles.

use super::{Scan, found};
use std::collections::HashMap;
use weighbridge_core::finding::{Finding, Severity};
use weighbridge_pickle::{Call, GlobalFinding, ListBound};

/// Bounds of the lists, and the number of items that are counted but not listed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tally {
    /// Index of each call in the list.
    calls: HashMap<(&'static str, Option<String>), usize>,
    called: ListBound,
    /// Bound of the findings of each severity: notes must not crowd out errors.
    findings: HashMap<Severity, ListBound>,
    imports: ListBound,
    dropped: u64,
    worst_dropped: Option<Severity>,
}

impl Tally {
    fn drop(&mut self, severity: Severity) {
        self.dropped += 1;
        self.worst_dropped = self.worst_dropped.max(Some(severity));
    }

    /// Adds the dropped items of a part.
    pub(super) fn absorb(&mut self, part: &Self) {
        self.dropped += part.dropped;
        self.worst_dropped = self.worst_dropped.max(part.worst_dropped);
    }
}

impl Scan {
    /// Adds a finding of a part, or counts it once the list is full.
    pub fn list(&mut self, finding: Finding) {
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let hint = finding.hint.as_ref().map_or(0, |hint| hint.len());
        let bytes = finding.text.len() + text(&finding.member) + text(&finding.tensor) + hint;
        let bound = self.tally.findings.entry(finding.severity).or_default();
        if bound.is_full() {
            self.tally.drop(finding.severity);
        } else {
            bound.add(bytes);
            self.findings.push(finding);
        }
    }

    /// Adds an import, or counts it once the list is full. A dangerous import is a finding besides.
    pub fn list_import(&mut self, import: GlobalFinding) {
        let member = import.member.as_ref().map_or(0, String::len);
        if self.tally.imports.is_full() {
            self.tally.drop(Severity::Note);
        } else {
            self.tally.imports.add(import.module.len() + import.name.len() + member);
            self.imports.push(import);
        }
    }

    /// Adds a call, or adds its count to an equal one.
    pub fn count_call(&mut self, call: Call) {
        let what = (call.how, call.callable.clone());
        if let Some(known) = self.tally.calls.get(&what).and_then(|&place| self.calls.get_mut(place)) {
            known.count = known.count.saturating_add(call.count);
        } else if !self.tally.called.is_full() {
            self.tally.called.add(call.callable.as_ref().map_or(0, String::len));
            self.tally.calls.insert(what, self.calls.len());
            self.calls.push(call);
        } else {
            self.tally.drop(Severity::Note);
        }
    }

    /// Reports the number of items that are not listed.
    pub fn finish(&mut self) {
        let Tally { dropped, worst_dropped, .. } = std::mem::take(&mut self.tally);
        if dropped > 0 {
            let text = format!("{dropped} more findings, imports or calls are not listed");
            let mut finding = found("more-findings", text);
            finding.severity = worst_dropped.unwrap_or(Severity::Note);
            self.findings.push(finding);
        }
    }
}
