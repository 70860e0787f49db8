//! Stable codes of errors, notes, losses and findings, for programs that branch on them.
//!
//! A code is a word in kebab-case; JSON contains the same word. A note or a finding that reports an error has the code of
//! the error. Formats that a program registers may use codes of their own, as `Other`.
//!
//! ```
//! use weighbridge_core::{Error, ErrorCode};
//!
//! let error = Error::corrupt("truncated", "the file ends early");
//! assert!(matches!(error.code(), ErrorCode::Truncated));
//! assert_eq!(error.code().as_str(), "truncated");
//! assert_eq!(ErrorCode::from("of-my-own"), ErrorCode::Other("of-my-own"));
//! ```

mod error;
mod finding;
mod loss;
mod note;

pub use error::ErrorCode;
pub use finding::FindingCode;
pub use loss::LossCode;
pub use note::NoteCode;

/// Defines an enum of codes with conversions to and from their words.
macro_rules! codes {
    ($(#[$doc:meta])* $name:ident { $($code:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Eq)]
        #[non_exhaustive]
        pub enum $name {
            $(#[doc = concat!("`", $text, "`")] $code,)*
            /// Code outside this list: of a reported error, or of a format that a program registers. `From` creates it for
            /// unlisted words. `Other` with a listed word equals that variant, but does not match its pattern.
            Other(&'static str),
        }

        impl $name {
            /// Returns the word used in JSON and in reports.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$code => $text,)*
                    Self::Other(text) => text,
                }
            }
        }

        impl From<&'static str> for $name {
            fn from(text: &'static str) -> Self {
                match text {
                    $($text => Self::$code,)*
                    _ => Self::Other(text),
                }
            }
        }

        $crate::codes::as_text!($name);
    };
}

/// Implements comparison, hashing and printing of codes by their words.
macro_rules! as_text {
    ($name:ident) => {
        impl PartialEq for $name {
            fn eq(&self, other: &Self) -> bool {
                self.as_str() == other.as_str()
            }
        }

        impl PartialEq<str> for $name {
            fn eq(&self, other: &str) -> bool {
                self.as_str() == other
            }
        }

        impl PartialEq<&str> for $name {
            fn eq(&self, other: &&str) -> bool {
                self.as_str() == *other
            }
        }

        impl PartialEq<$name> for &str {
            fn eq(&self, other: &$name) -> bool {
                *self == other.as_str()
            }
        }

        impl PartialOrd for $name {
            fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
                Some(self.cmp(other))
            }
        }

        impl Ord for $name {
            fn cmp(&self, other: &Self) -> std::cmp::Ordering {
                self.as_str().cmp(other.as_str())
            }
        }

        impl std::hash::Hash for $name {
            fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
                self.as_str().hash(state);
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Debug::fmt(self.as_str(), f)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl From<$name> for $crate::phrase::Phrase {
            fn from(code: $name) -> Self {
                code.as_str().into()
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }
    };
}

use {as_text, codes};

/// Implements conversions between kinds of codes, by their words: a note or a finding may report an error.
macro_rules! convert {
    ($($from:ident => $to:ident),* $(,)?) => {$(
        impl From<$from> for $to {
            fn from(code: $from) -> Self {
                code.as_str().into()
            }
        }
    )*};
}

convert! {
    ErrorCode => NoteCode,
    ErrorCode => FindingCode,
    ErrorCode => LossCode,
    NoteCode => FindingCode,
    NoteCode => LossCode,
    NoteCode => ErrorCode,
    LossCode => NoteCode,
    LossCode => FindingCode,
    FindingCode => NoteCode,
    FindingCode => ErrorCode,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_convert_by_their_words() {
        let error = ErrorCode::from("truncated");
        assert!(matches!(error, ErrorCode::Truncated));
        assert_eq!(
            (error.to_string(), format!("{error:?}")),
            ("truncated".to_owned(), "\"truncated\"".to_owned())
        );
        assert_eq!(serde_json::to_value(error).unwrap(), "truncated");
        assert!(matches!(NoteCode::from(ErrorCode::Limit), NoteCode::Other("limit")));
        assert_eq!(FindingCode::from(NoteCode::Other("of-my-own")), "of-my-own");
        assert!(ErrorCode::Other("b") > ErrorCode::Other("a"));
    }
}
