//! Findings of checks and scans, and the verdict they imply.

use crate::FindingCode;
use crate::error::{Error, Kind};
use crate::phrase::{Face, Phrase, Worded};
use serde_json::{Value as Json, json};
use std::fmt;

/// Verdict of a check. A file with unchecked parts is never [`Sound`](Self::Sound).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// All parts were checked, without errors.
    Sound,
    /// No errors found, but some parts could not be checked.
    CouldNotTell,
    /// Errors found.
    Unsound,
}

impl Verdict {
    /// Returns the verdict as written in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sound => "sound",
            Self::CouldNotTell => "could-not-tell",
            Self::Unsound => "unsound",
        }
    }
}

/// Severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Severity {
    /// Information.
    Note,
    /// Likely mistake in a usable file. The verdict does not change.
    Warning,
    /// Part that could not be checked.
    Unchecked,
    /// Error.
    Error,
}

impl Severity {
    /// Returns the severity as written in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Unchecked => "unchecked",
            Self::Error => "error",
        }
    }
}

/// Finding of a check or a scan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Severity.
    pub severity: Severity,
    /// Stable code, for programs.
    pub code: FindingCode,
    /// Text for users.
    pub text: Phrase,
    /// Affected file.
    pub file: Option<String>,
    /// Affected member of an archive or part of a file, if a scan entered one. The offset counts from its start.
    pub member: Option<String>,
    /// Offset in the file, in bytes.
    pub offset: Option<u64>,
    /// Display name of the affected tensor.
    pub tensor: Option<String>,
    /// Suggested action.
    pub hint: Option<Phrase>,
    /// Number of findings of this code and severity that this one represents: 1, or more for a summary.
    pub alike: usize,
}

impl Finding {
    /// Creates a finding without a location. Long text is truncated.
    pub fn new(severity: Severity, code: impl Into<FindingCode>, text: impl Into<Phrase>) -> Self {
        Self {
            severity,
            code: code.into(),
            text: text.into().brief(),
            file: None,
            member: None,
            offset: None,
            tensor: None,
            hint: None,
            alike: 1,
        }
    }
    /// Creates the summary of `more` findings of one code and severity.
    pub(crate) fn and_more(severity: Severity, code: FindingCode, more: usize) -> Self {
        Self { alike: more, ..Self::new(severity, code, format!("and {more} more of these")) }
    }
    /// Creates a finding of severity [`Severity::Error`].
    pub fn error(code: impl Into<FindingCode>, text: impl Into<Phrase>) -> Self {
        Self::new(Severity::Error, code, text)
    }
    /// Creates a finding of severity [`Severity::Warning`].
    pub fn warning(code: impl Into<FindingCode>, text: impl Into<Phrase>) -> Self {
        Self::new(Severity::Warning, code, text)
    }
    /// Creates a finding of severity [`Severity::Unchecked`].
    pub fn unchecked(code: impl Into<FindingCode>, text: impl Into<Phrase>) -> Self {
        Self::new(Severity::Unchecked, code, text)
    }
    /// Creates a finding of severity [`Severity::Note`].
    pub fn note(code: impl Into<FindingCode>, text: impl Into<Phrase>) -> Self {
        Self::new(Severity::Note, code, text)
    }
    /// Sets the file.
    #[must_use]
    pub fn in_file(mut self, file: impl fmt::Display) -> Self {
        self.file = Some(file.to_string());
        self
    }
    /// Sets the offset in the file, in bytes.
    #[must_use]
    pub fn at(mut self, offset: u64) -> Self {
        self.offset = Some(offset);
        self
    }
    /// Sets the tensor.
    #[must_use]
    pub fn on_tensor(mut self, tensor: impl fmt::Display) -> Self {
        self.tensor = Some(tensor.to_string());
        self
    }
    /// Sets the hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<Phrase>) -> Self {
        self.hint = Some(hint.into().brief());
        self
    }

    /// Converts a read error to a finding. Corrupt and mismatched data are errors; unsupported data and exceeded limits are
    /// unchecked. `None` for errors unrelated to the content: usage, I/O, cancellation.
    pub fn from_error(error: &Error) -> Option<Self> {
        let severity = match error.kind() {
            Kind::Corrupt | Kind::Mismatch => Severity::Error,
            Kind::Unsupported | Kind::Limit => Severity::Unchecked,
            _ => return None,
        };
        let mut text = error.message().to_owned();
        for (word, part) in [("expected", error.expected_text()), ("found", error.found_text())] {
            if let Some(part) = part {
                text.push_str(&format!("; {word}: {part}"));
            }
        }
        Some(Self {
            severity,
            code: error.code().into(),
            text: text.into(),
            file: error.file().map(str::to_owned),
            member: None,
            offset: error.offset(),
            tensor: error.tensor().map(str::to_owned),
            hint: error.hint_phrase().cloned(),
            alike: 1,
        })
    }

    /// Returns one line: `code: text (FILE, offset OFFSET)`.
    pub fn told(&self) -> String {
        let place = match (&self.file, self.offset) {
            (Some(file), Some(offset)) => format!(" ({file}, offset {offset})"),
            (Some(file), None) => format!(" ({file})"),
            (None, Some(offset)) => format!(" (offset {offset})"),
            (None, None) => String::new(),
        };
        format!("{}: {}{place}", self.code, self.text)
    }

    /// Returns all fields as JSON; missing values are null.
    pub fn to_json(&self) -> Json {
        json!({
            "severity": self.severity.as_str(),
            "code": self.code,
            "text": self.text,
            "file": self.file,
            "offset": self.offset,
            "tensor": self.tensor,
            "hint": self.hint,
        })
    }
}

impl Worded for Finding {
    fn word(&mut self, face: Face<'_>) {
        self.text.word(face);
        self.hint.word(face);
    }
}

/// Returns the verdict for a list of findings.
pub fn verdict(findings: &[Finding]) -> Verdict {
    match findings.iter().map(|f| f.severity).max() {
        Some(Severity::Error) => Verdict::Unsound,
        Some(Severity::Unchecked) => Verdict::CouldNotTell,
        _ => Verdict::Sound,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdict_follows_the_most_severe_finding() {
        let note = Finding::note("n", "");
        let warning = Finding::warning("w", "");
        let unchecked = Finding::unchecked("u", "");
        let error = Finding::error("e", "");
        assert_eq!(verdict(&[]), Verdict::Sound);
        assert_eq!(verdict(&[note.clone(), warning.clone()]), Verdict::Sound);
        assert_eq!(verdict(&[unchecked.clone(), note]), Verdict::CouldNotTell);
        assert_eq!(verdict(&[unchecked, error, warning]), Verdict::Unsound);
    }

    #[test]
    fn errors_become_findings() {
        let damage = Error::corrupt("truncated", "short").at(7).found(3).on_tensor("w");
        let finding = Finding::from_error(&damage).unwrap();
        assert_eq!((finding.severity, finding.offset), (Severity::Error, Some(7)));
        assert_eq!(finding.text, "short; found: 3");
        let unknown = Finding::from_error(&Error::unsupported("x", "y")).unwrap();
        assert_eq!(unknown.severity, Severity::Unchecked);
        assert!(Finding::from_error(&Error::usage("x", "y")).is_none());
    }
}
