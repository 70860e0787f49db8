//! Error type of the whole library: kind, stable code, message, location and hint.
//!
//! An [`Error`] has a message, a location (`file`, `offset`, `tensor`), the `expected` and `found` values, and a `hint`.
//! All but the message are optional. Programs branch on [`Kind`] or on the stable [`Error::code`]; the
//! [`Display`](std::fmt::Display) form is for users.
//!
//! ```
//! use weighbridge_core::{Error, Kind};
//!
//! let error = Error::corrupt("truncated", "the tensor data ends early")
//!     .in_file("net.safetensors")
//!     .on_tensor("fc1.w")
//!     .expected("4096 bytes")
//!     .found("3072 bytes");
//! assert_eq!(error.kind(), Kind::Corrupt);
//! assert_eq!(error.code(), "truncated");
//! let lines: Vec<_> = error.to_string().lines().map(str::to_owned).collect();
//! assert_eq!(lines[0], "the tensor data ends early");
//! assert_eq!(lines[2], "  tensor:   fc1.w");
//! ```

use crate::codes::ErrorCode;
use crate::phrase::{Face, Phrase, Worded};
use crate::text::{brief, escape};
use std::fmt;

/// OS error numbers for too many open files, in the system and in this process.
#[cfg(unix)]
const TOO_MANY_OPEN: &[i32] = &[libc::ENFILE, libc::EMFILE];
/// Not mapped on this platform.
#[cfg(not(unix))]
const TOO_MANY_OPEN: &[i32] = &[];
/// Hint for these errors: a model keeps each of its files open.
const MORE_FILES: &str = "too many open files; raise the limit with `ulimit -n NUMBER` in the same shell";

/// Result with the [`Error`] of this library.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Class of an error, for callers to branch on. An [`ErrorCode`] is more specific.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// The bytes violate the format or contradict each other.
    Corrupt,
    /// The bytes may be valid, but this library does not support them.
    Unsupported,
    /// A limit of [`crate::Limits`] or a [`crate::Budget`] is exceeded.
    Limit,
    /// Inputs or targets do not fit together: a name is missing, a shape differs, or the target format cannot store the
    /// data.
    Mismatch,
    /// The operating system or a device reported an error.
    Io,
    /// The request is invalid.
    Usage,
    /// The caller cancelled the operation.
    Cancelled,
}

impl Kind {
    /// Returns the kind as written in JSON.
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

/// Error with a kind, a stable code, a message, a location and a hint. One pointer wide.
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
        #[doc = concat!("Creates an error of kind [`Kind::", stringify!($kind), "`] with a stable `code` in kebab-case.")]
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
    /// Creates an error with a kind and a stable `code`.
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

    /// Creates the error for a mapped file that was truncated or became unreadable.
    pub fn shrank() -> Self {
        Self::new(Kind::Io, "file-shrank", "the file was truncated or became unreadable while mapped")
    }

    /// Creates an error from one of the operating system. `message` names the failed operation: `cannot open the file`.
    pub fn io(message: impl Into<String>, cause: std::io::Error) -> Self {
        let code = match cause.kind() {
            std::io::ErrorKind::NotFound => "not-found",
            std::io::ErrorKind::PermissionDenied => "permission-denied",
            std::io::ErrorKind::StorageFull => "storage-full",
            _ => "io",
        };
        let mut error = Self::new(Kind::Io, code, message);
        if cause.raw_os_error().is_some_and(|number| TOO_MANY_OPEN.contains(&number)) {
            error = error.hint(MORE_FILES);
        }
        error.0.cause = Some(cause);
        error
    }

    /// Creates the error for an operation that the caller cancelled.
    pub fn cancelled() -> Self {
        Self::new(Kind::Cancelled, "cancelled", "cancelled; nothing was changed")
    }

    places! { Into::into;
        /// Sets the file, unless it is set: the first one is nearest to the fault.
        in_file, file;
        /// Sets the tensor, unless it is set.
        on_tensor, tensor;
    }
    // Text quoted from a file may be as long as the file, so it is truncated.
    places! { brief;
        /// Sets the expected value, unless it is set. Long text is truncated.
        expected, expected;
    }

    /// Sets the value found, unless it is set. Long text is truncated.
    #[must_use]
    pub fn found(self, text: impl fmt::Display) -> Self {
        self.found_phrase(text.to_string())
    }

    /// Sets the value found, as [`found`](Self::found), to a phrase that names options.
    #[must_use]
    pub fn found_phrase(mut self, found: impl Into<Phrase>) -> Self {
        self.0.found.get_or_insert_with(|| found.into().brief());
        self
    }

    /// Sets the hint, unless it is set.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<Phrase>) -> Self {
        self.0.hint.get_or_insert_with(|| hint.into().brief());
        self
    }

    /// Sets the offset in the file, in bytes, unless it is set.
    #[must_use]
    pub fn at(mut self, offset: u64) -> Self {
        self.0.offset.get_or_insert(offset);
        self
    }

    /// Sets the hint, and drops the one that is set.
    #[must_use]
    pub fn hint_instead(mut self, hint: impl Into<Phrase>) -> Self {
        self.0.hint = Some(hint.into().brief());
        self
    }

    /// Appends to the hint, after `; `.
    #[must_use]
    pub fn hint_too(mut self, hint: impl Into<Phrase>) -> Self {
        let hint = hint.into().brief();
        self.0.hint = Some(match self.0.hint.take() {
            Some(first) => first.and("; ").and(hint),
            None => hint,
        });
        self
    }

    /// Prefixes the message with the `step` of the operation that failed: `step: message`.
    #[must_use]
    pub fn within(mut self, step: impl fmt::Display) -> Self {
        self.0.message = brief(format!("{step}: {}", self.0.message));
        self
    }

    /// Returns the kind.
    pub fn kind(&self) -> Kind {
        self.0.kind
    }
    /// Returns the stable code, for programs.
    pub fn code(&self) -> ErrorCode {
        self.0.code
    }
    /// Returns the message without location and hint.
    pub fn message(&self) -> &str {
        &self.0.message
    }
    /// Returns the file that has the fault.
    pub fn file(&self) -> Option<&str> {
        self.0.file.as_deref()
    }
    /// Returns the offset in the file, in bytes.
    pub fn offset(&self) -> Option<u64> {
        self.0.offset
    }
    /// Returns the display name of the tensor.
    pub fn tensor(&self) -> Option<&str> {
        self.0.tensor.as_deref()
    }
    /// Returns the expected value.
    pub fn expected_text(&self) -> Option<&str> {
        self.0.expected.as_deref()
    }
    /// Returns the value found.
    pub fn found_text(&self) -> Option<&str> {
        self.0.found.as_deref()
    }
    /// Returns the hint as neutral text.
    pub fn hint_text(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }
    /// Returns the hint with its option terms.
    pub fn hint_phrase(&self) -> Option<&Phrase> {
        self.0.hint.as_ref()
    }

    /// Returns the value of `"error"` in the JSON output of the command.
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
    /// Writes the message, then location, expected, found and hint on separate lines. Control characters are escaped.
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
    fn too_many_open_files_has_a_hint() {
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
