//! What checking a file brings to light, and the verdict that follows.

use crate::FindingCode;
use crate::error::{Error, Kind};
use crate::phrase::{Face, Phrase, Worded};
use serde_json::{Value as Json, json};
use std::fmt;

/// What is known after a check. What was not checked is never called sound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Everything was checked and nothing is wrong.
    Sound,
    /// Nothing wrong was found, but not everything could be checked.
    CouldNotTell,
    /// Something is wrong.
    Unsound,
}

impl Verdict {
    /// The word in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sound => "sound",
            Self::CouldNotTell => "could-not-tell",
            Self::Unsound => "unsound",
        }
    }
}

/// How much a finding weighs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Severity {
    /// Worth knowing, nothing wrong.
    Note,
    /// Odd, and likely a mistake, but the file can be used. The verdict stays.
    Warning,
    /// A part could not be checked.
    Unchecked,
    /// Wrong.
    Error,
}

impl Severity {
    /// The word in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Unchecked => "unchecked",
            Self::Error => "error",
        }
    }
}

/// One thing that a check brought to light.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// How much it weighs.
    pub severity: Severity,
    /// Stable, for programs.
    pub code: FindingCode,
    /// For people.
    pub text: Phrase,
    /// The file concerned.
    pub file: Option<String>,
    /// The member of the archive or the part of the file concerned, where a scan looked into one: the
    /// offset counts from its start.
    pub member: Option<String>,
    /// The place in the file, in bytes.
    pub offset: Option<u64>,
    /// The tensor concerned, as displayed.
    pub tensor: Option<String>,
    /// What to try.
    pub hint: Option<Phrase>,
    /// How many of this code and weight it stands for: 1, or more where others are not told one by one.
    pub alike: usize,
}

impl Finding {
    /// A finding without a place. Of a text that quotes more of a file than anybody reads, the beginning is told.
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
    /// What stands for `more` findings of one code and weight that are not told one by one.
    pub(crate) fn and_more(severity: Severity, code: FindingCode, more: usize) -> Self {
        Self { alike: more, ..Self::new(severity, code, format!("and {more} more of these")) }
    }
    /// Something wrong.
    pub fn error(code: impl Into<FindingCode>, text: impl Into<Phrase>) -> Self {
        Self::new(Severity::Error, code, text)
    }
    /// Something odd.
    pub fn warning(code: impl Into<FindingCode>, text: impl Into<Phrase>) -> Self {
        Self::new(Severity::Warning, code, text)
    }
    /// Something that could not be checked.
    pub fn unchecked(code: impl Into<FindingCode>, text: impl Into<Phrase>) -> Self {
        Self::new(Severity::Unchecked, code, text)
    }
    /// A remark.
    pub fn note(code: impl Into<FindingCode>, text: impl Into<Phrase>) -> Self {
        Self::new(Severity::Note, code, text)
    }
    /// Names the file.
    #[must_use]
    pub fn in_file(mut self, file: impl fmt::Display) -> Self {
        self.file = Some(file.to_string());
        self
    }
    /// Gives the place in the file, in bytes.
    #[must_use]
    pub fn at(mut self, offset: u64) -> Self {
        self.offset = Some(offset);
        self
    }
    /// Names the tensor.
    #[must_use]
    pub fn on_tensor(mut self, tensor: impl fmt::Display) -> Self {
        self.tensor = Some(tensor.to_string());
        self
    }
    /// Says what to try.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<Phrase>) -> Self {
        self.hint = Some(hint.into().brief());
        self
    }

    /// What an error of reading means for a check: damage is wrong, what is not understood or is
    /// beyond a limit could not be checked. `None` for errors that are not about the file: of use,
    /// of the device, of being stopped.
    pub fn from_error(error: &Error) -> Option<Self> {
        let severity = match error.kind() {
            Kind::Corrupt | Kind::Mismatch => Severity::Error,
            Kind::Unsupported | Kind::Limit => Severity::Unchecked,
            _ => return None,
        };
        let mut text = error.message().to_owned();
        for (word, part) in [("expected", error.expected_text()), ("found", error.found_text())] {
            if let Some(part) = part {
                text.push_str(&format!("; {word} {part}"));
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

    /// `code: text in FILE at OFFSET`, in one line.
    pub fn told(&self) -> String {
        let file = self.file.as_deref().map_or_else(String::new, |file| format!(" in {file}"));
        let at = self.offset.map_or_else(String::new, |offset| format!(" at {offset}"));
        format!("{}: {}{file}{at}", self.code, self.text)
    }

    /// All fields; those without a value are null.
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

/// The verdict that follows from findings.
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
    fn the_heaviest_finding_decides() {
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
        assert_eq!(finding.text, "short; found 3");
        let unknown = Finding::from_error(&Error::unsupported("x", "y")).unwrap();
        assert_eq!(unknown.severity, Severity::Unchecked);
        assert!(Finding::from_error(&Error::usage("x", "y")).is_none());
    }
}
