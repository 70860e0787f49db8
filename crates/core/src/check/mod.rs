//! Checks for all formats: names, extents, the use of every byte of a file, LoD, and programs with their parameters.
//!
//! Each check takes an opened index and returns [`Finding`]s. `verify` runs all of them; a format can call some from its own
//! check.

mod account;
mod content_kind;
mod extents;
mod file_extents;
mod lod;
mod names;
mod outline;
mod program;
mod shared;
mod structure;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

use crate::FindingCode;
pub use account::{Account, Span, Use, account};
pub use extents::extents;
pub use file_extents::{FileExtents, held};
pub use lod::lod;
pub use names::names;
pub use outline::{Gaps, Outline, Part};
pub use program::{parameters, program, variable_names};
pub use shared::shared_bytes;
pub use structure::structure;

use crate::finding::{Finding, Severity};
use crate::text::{first_and_more, quoted};
use std::collections::{BTreeMap, HashMap};

/// Maximum findings of one code and severity that are listed individually.
pub(crate) const MAX_ALIKE: usize = 100;

/// Code, tensor and offset of a finding.
type Subject = (FindingCode, Option<String>, Option<u64>);

impl Finding {
    /// Keeps at most 100 findings of each code and severity, and appends the count of the others. Removes duplicates.
    #[must_use]
    pub fn capped(findings: Vec<Finding>) -> Vec<Finding> {
        let mut counts: HashMap<(FindingCode, Severity), usize> = HashMap::new();
        let mut kept: Vec<Finding> = Vec::new();
        let mut seen: HashMap<Subject, Vec<usize>> = HashMap::new();
        for finding in findings {
            let key = (finding.code, finding.tensor.clone(), finding.offset);
            let alike = seen.entry(key).or_default();
            if alike.iter().any(|&place| kept.get(place) == Some(&finding)) {
                continue;
            }
            let count = counts.entry((finding.code, finding.severity)).or_default();
            *count = count.saturating_add(finding.alike);
            if *count <= MAX_ALIKE && finding.alike == 1 {
                alike.push(kept.len());
                kept.push(finding);
            }
        }
        let mut more: Vec<((FindingCode, Severity), usize)> =
            counts.into_iter().filter(|(_, count)| *count > MAX_ALIKE).collect();
        more.sort_unstable();
        for ((code, severity), count) in more {
            kept.push(Finding::and_more(severity, code, count - MAX_ALIKE));
        }
        kept
    }
}

/// Errors of a check that may find one in every few bytes of a file. Per code, some are listed and the others counted.
#[derive(Debug, Default)]
struct Findings {
    list: Vec<Finding>,
    counts: BTreeMap<FindingCode, usize>,
}

impl Findings {
    /// Maximum errors listed per code. More than in [`Finding::capped`], which removes duplicates first.
    const MAX: usize = 10_000;

    /// Adds an error. Its text is built only if it is listed.
    fn error(&mut self, code: &'static str, text: impl FnOnce() -> String) {
        let count = self.counts.entry(code.into()).or_default();
        *count += 1;
        if *count <= Self::MAX {
            self.list.push(Finding::error(code, text()));
        }
    }

    fn finish(mut self) -> Vec<Finding> {
        for (code, count) in self.counts.into_iter().filter(|(_, count)| *count > Self::MAX) {
            self.list.push(Finding::and_more(Severity::Error, code, count - Self::MAX));
        }
        self.list
    }
}

/// Formats the first few of `names`, escaped, and the count of the others.
fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    const SHOWN: usize = 5;
    first_and_more(names.into_iter().map(quoted), SHOWN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_beyond_the_limit_are_counted_and_duplicates_removed() {
        let one = |i: u64| Finding::warning("nan", "not a number").at(i);
        let mut findings: Vec<_> = (0..250).map(one).collect();
        findings.push(one(3));
        findings.push(Finding::error("nan", "another weight"));
        let kept = Finding::capped(findings);
        assert_eq!(kept.len(), MAX_ALIKE + 2);
        assert_eq!(kept.last().unwrap().text, "and 150 more of these");
        assert_eq!(Finding::capped(vec![one(1), one(1)]), [one(1)]);
        let mut many = Findings::default();
        (0..30_000).for_each(|number| many.error("lost", || format!("{number} is lost")));
        let many = many.finish();
        assert_eq!(many.len(), Findings::MAX + 1);
        let kept = Finding::capped(many);
        assert_eq!((kept.len(), kept[MAX_ALIKE].text.as_str()), (MAX_ALIKE + 1, "and 29900 more of these"));
    }

    #[test]
    fn lists_are_truncated() {
        assert_eq!(listed(["a", "b\n"]), "a, b\\n");
        assert_eq!(listed(["a"; 7]), "a, a, a, a, a and 2 more");
    }
}
