//! One error type for the whole library: the situation, a stable code, and the place.
//!
//! An error names *what* went wrong (`message`), *where* (`file`, `offset`, `tensor`), what was
//! `expected` and `found`, and, where there is one, a `hint` that helps. Callers branch on
//! [`Kind`] or on the stable [`Error::code`]; people read the [`std::fmt::Display`] form.

use crate::codes::ErrorCode;
use crate::phrase::{Face, Phrase, Worded};
use crate::text::{brief, escape};
use std::fmt;

/// The numbers of the system's errors of too many open files: in the whole system, and in this process.
#[cfg(unix)]
const TOO_MANY_OPEN: &[i32] = &[libc::ENFILE, libc::EMFILE];
/// They have no numbers that are known here.
#[cfg(not(unix))]
const TOO_MANY_OPEN: &[i32] = &[];
/// What helps against them: a model holds each of its files open.
const MORE_FILES: &str =
    "the system allows no more open files; `ulimit -n NUMBER` in the same shell allows more";

/// The result of everything in this library that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The situation in which an error arose. Codes say more; this is what a caller branches on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// The bytes contradict the format or themselves.
    Corrupt,
    /// The bytes may be fine, but this library does not handle them.
    Unsupported,
    /// A limit of [`crate::Limits`] would be passed.
    Limit,
    /// Two things that must fit together do not: a name that is absent, a shape that differs, a
    /// target that cannot hold what the source has.
    Mismatch,
    /// The operating system refused, or a device failed.
    Io,
    /// The caller asked for something that makes no sense.
    Usage,
    /// The caller asked to stop.
    Cancelled,
}

impl Kind {
    /// The word used in JSON and in messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Corrupt => "corrupt",
            Self::Unsupported => "unsupported",
            Self::Limit => "limit",
            Self::Mismatch => "mismatch",
            Self::Io => "io",
            Self::Usage => "usage",
            Self::Cancelled => "cancelled",
        }
    }
}

/// What went wrong, where, and what to do about it. One pointer wide.
pub struct Error(Box<Inner>);

#[derive(Debug)]
struct Inner {
    kind: Kind,
    code: ErrorCode,
    message: String,
    file: Option<String>,
    offset: Option<u64>,
    tensor: Option<String>,
    expected: Option<String>,
    found: Option<Phrase>,
    hint: Option<Phrase>,
    cause: Option<std::io::Error>,
}

macro_rules! constructors {
    ($($name:ident => $kind:ident),* $(,)?) => {$(
        #[doc = concat!("An error of kind [`Kind::", stringify!($kind), "`] with a stable `code` in kebab-case.")]
        pub fn $name(code: impl Into<ErrorCode>, message: impl Into<String>) -> Self {
            Self::new(Kind::$kind, code, message)
        }
    )*};
}

macro_rules! places {
    ($shorten:expr; $($(#[$doc:meta])* $setter:ident, $getter:ident);* $(;)?) => {$(
        $(#[$doc])*
        #[must_use]
        pub fn $setter(mut self, text: impl fmt::Display) -> Self {
            self.0.$getter.get_or_insert_with(|| $shorten(text.to_string()));
            self
        }
    )*};
}

impl Error {
    /// An error of any kind. `code` is stable: programs match on it.
    pub fn new(kind: Kind, code: impl Into<ErrorCode>, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            code: code.into(),
            message: brief(message.into()),
            file: None,
            offset: None,
            tensor: None,
            expected: None,
            found: None,
            hint: None,
            cause: None,
        }))
    }

    constructors! {
        corrupt => Corrupt,
        unsupported => Unsupported,
        limit => Limit,
        mismatch => Mismatch,
        usage => Usage,
    }

    /// A file that became shorter, or could not be read, while it was mapped.
    pub fn shrank() -> Self {
        Self::new(
            Kind::Io,
            "file-shrank",
            "the file became shorter, or could not be read, while it was mapped",
        )
    }

    /// An error of the operating system, met while doing `what`.
    pub fn io(what: impl Into<String>, cause: std::io::Error) -> Self {
        let code = match cause.kind() {
            std::io::ErrorKind::NotFound => "not-found",
            std::io::ErrorKind::PermissionDenied => "permission-denied",
            std::io::ErrorKind::StorageFull => "storage-full",
            _ => "io",
        };
        let mut error = Self::new(Kind::Io, code, what);
        if cause.raw_os_error().is_some_and(|number| TOO_MANY_OPEN.contains(&number)) {
            error = error.hint(MORE_FILES);
        }
        error.0.cause = Some(cause);
        error
    }

    /// The error of work that was stopped because the caller asked for it.
    pub fn cancelled() -> Self {
        Self::new(Kind::Cancelled, "cancelled", "stopped on request; nothing was changed")
    }

    places! { Into::into;
        /// Names the file. The first name given stays: it is the one nearest to the fault.
        in_file, file;
        /// Names the tensor.
        on_tensor, tensor;
    }
    // What quotes a file may be as long as the file: its beginning is told.
    places! { brief;
        /// Says what should have been there.
        expected, expected;
    }

    /// Says what was there. The first text given stays.
    #[must_use]
    pub fn found(self, text: impl fmt::Display) -> Self {
        self.found_phrase(text.to_string())
    }

    /// As [`found`](Self::found), of what names options.
    #[must_use]
    pub fn found_phrase(mut self, found: impl Into<Phrase>) -> Self {
        self.0.found.get_or_insert_with(|| found.into().brief());
        self
    }

    /// Says what to try. The first hint given stays.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<Phrase>) -> Self {
        self.0.hint.get_or_insert_with(|| hint.into().brief());
        self
    }

    /// Gives the offset in the file, in bytes. The first offset given stays.
    #[must_use]
    pub fn at(mut self, offset: u64) -> Self {
        self.0.offset.get_or_insert(offset);
        self
    }

    /// Says what else to try, after the hint that there is.
    #[must_use]
    pub fn hint_too(mut self, hint: impl Into<Phrase>) -> Self {
        let hint = hint.into().brief();
        self.0.hint = Some(match self.0.hint.take() {
            Some(first) => first.and("; ").and(hint),
            None => hint,
        });
        self
    }

    /// Puts `step` in front of the message: the step of a longer work at which it came up.
    #[must_use]
    pub fn within(mut self, step: impl fmt::Display) -> Self {
        self.0.message = brief(format!("{step}: {}", self.0.message));
        self
    }

    /// The situation.
    pub fn kind(&self) -> Kind {
        self.0.kind
    }
    /// The stable code, for programs.
    pub fn code(&self) -> ErrorCode {
        self.0.code
    }
    /// The message alone, without place and hint.
    pub fn message(&self) -> &str {
        &self.0.message
    }
    /// The file in which the fault lies.
    pub fn file(&self) -> Option<&str> {
        self.0.file.as_deref()
    }
    /// The offset in the file, in bytes.
    pub fn offset(&self) -> Option<u64> {
        self.0.offset
    }
    /// The tensor concerned, as displayed.
    pub fn tensor(&self) -> Option<&str> {
        self.0.tensor.as_deref()
    }
    /// What should have been there.
    pub fn expected_text(&self) -> Option<&str> {
        self.0.expected.as_deref()
    }
    /// What was there.
    pub fn found_text(&self) -> Option<&str> {
        self.0.found.as_deref()
    }
    /// The hint in neutral words: what to try.
    pub fn hint_text(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }
    /// The hint: what to try.
    pub fn hint_phrase(&self) -> Option<&Phrase> {
        self.0.hint.as_ref()
    }

    /// The error as the value of `"error"` in the JSON of the command.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::json!({
            "kind": self.kind().as_str(),
            "code": self.code().as_str(),
            "message": self.full_message(),
            "file": self.file(),
            "offset": self.offset(),
            "tensor": self.tensor(),
            "expected": self.expected_text(),
            "found": self.found_text(),
            "hint": self.hint_text(),
        })
    }

    fn full_message(&self) -> String {
        match &self.0.cause {
            Some(cause) => format!("{}: {cause}", self.0.message),
            None => self.0.message.clone(),
        }
    }
}

impl fmt::Display for Error {
    /// Message, then place, expected, found and hint on lines of their own; safe for terminals.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", escape(&self.full_message()))?;
        let offset = self.0.offset.map(|o| format!("{o} (0x{o:x})"));
        let places = [
            ("file", self.file()),
            ("offset", offset.as_deref()),
            ("tensor", self.tensor()),
            ("expected", self.expected_text()),
            ("found", self.found_text()),
            ("hint", self.hint_text()),
        ];
        for (label, text) in places {
            if let Some(text) = text {
                write!(f, "\n  {:<9} {}", format!("{label}:"), escape(text))?;
            }
        }
        Ok(())
    }
}

impl Worded for Error {
    fn word(&mut self, face: Face<'_>) {
        self.0.found.word(face);
        self.0.hint.word(face);
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{} {}] {self}", self.kind().as_str(), self.code())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.cause.as_ref().map(|e| e as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn too_many_open_files_say_how_to_allow_more() {
        let hint = |number| {
            let error = Error::io("cannot open the file", std::io::Error::from_raw_os_error(number));
            error.hint_text().map(str::to_owned)
        };
        assert_eq!(
            [libc::EMFILE, libc::ENFILE].map(hint),
            [const { Some(MORE_FILES) }; 2].map(|h| h.map(str::to_owned))
        );
        assert_eq!(hint(libc::ENOENT), None);
    }
}
