//! Length of a written header.

use super::{DATA_OFFSET, HEADER_PADDING, PREFIX};
use weighbridge_core::checkpoint::escape_text;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::phrase;
use weighbridge_core::phrase::Opt;
use weighbridge_format::PlanOptions;

/// Alignment of the data in bytes, so that a mapped tensor is aligned for its type.
const ALIGN: u64 = 64;

/// Space for a header; the unused part is padding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeaderSpace {
    /// At least this much padding, up to the next multiple of [`ALIGN`].
    Padding(u64),
    /// The header ends at this offset of the file.
    UpTo(u64),
}

impl HeaderSpace {
    /// Reads the settings.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Usage`], `bad-setting`, for a value that is not a number, and for both settings at once.
    pub(super) fn of(options: &PlanOptions) -> Result<Self> {
        let number = |name: &str| -> Result<Option<u64>> {
            let Some(text) = options.setting(name) else { return Ok(None) };
            let bad = || {
                Error::usage("bad-setting", format!("the setting {name} is not a number of bytes"))
                    .found(escape_text(text))
            };
            text.parse().map(Some).map_err(|_| bad())
        };
        match (number(HEADER_PADDING)?, number(DATA_OFFSET)?) {
            (padding, None) => Ok(Self::Padding(padding.unwrap_or(0))),
            (None, Some(offset)) => Ok(Self::UpTo(offset)),
            (Some(_), Some(_)) => {
                let text =
                    format!("{HEADER_PADDING} cannot be set where the data keeps its place ({DATA_OFFSET})");
                Err(Error::usage("bad-setting", text).hint(phrase![
                    "an edit in place keeps the place of the data; ",
                    Opt::InPlace.with("rewrite"),
                    " writes a new file"
                ]))
            }
        }
    }

    /// Returns the length in bytes of a header with a text of `text` bytes.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Mismatch`], `no-room`, where the text does not fit.
    pub(super) fn length(self, text: u64) -> Result<u64> {
        match self {
            Self::Padding(padding) => {
                let least = text.saturating_add(padding).saturating_add(PREFIX);
                Ok(least.checked_next_multiple_of(ALIGN).unwrap_or(u64::MAX) - PREFIX)
            }
            Self::UpTo(offset) => match offset.checked_sub(PREFIX) {
                Some(there) if text <= there => Ok(there),
                there => Err(Error::mismatch("no-room", "the new header does not fit before the data")
                    .expected(format_args!("at most {} bytes", there.unwrap_or(0)))
                    .found(format_args!("{text} bytes"))
                    .hint(phrase![
                        "use ",
                        Opt::InPlace.with("rewrite"),
                        ", which writes a new file and replaces the old one; ",
                        Opt::Set.pair(HEADER_PADDING, "4096"),
                        " reserves room for later edits"
                    ])),
            },
        }
    }
}
