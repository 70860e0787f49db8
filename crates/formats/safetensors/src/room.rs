//! How long a header is made.

use super::{DATA_OFFSET, HEADER_PADDING, PREFIX};
use weighbridge_core::checkpoint::escape_text;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::phrase;
use weighbridge_core::phrase::Opt;
use weighbridge_format::PlanOptions;

/// The data begin at a multiple of this, so that a mapped tensor is aligned for its type.
const ALIGN: u64 = 64;

/// The room that a header gets; what it does not need is blanks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    /// At least so many blanks, up to the next multiple of [`ALIGN`].
    Spare(u64),
    /// All up to this offset of the file.
    Until(u64),
}

impl Room {
    /// The room that the settings ask for.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Usage`], `bad-setting`, for what is no number, and where both are asked for.
    pub(super) fn of(options: &PlanOptions) -> Result<Self> {
        let number = |name: &str| -> Result<Option<u64>> {
            let Some(text) = options.setting(name) else { return Ok(None) };
            let bad = || {
                Error::usage("bad-setting", format!("{name} is a number of bytes")).found(escape_text(text))
            };
            text.parse().map(Some).map_err(|_| bad())
        };
        match (number(HEADER_PADDING)?, number(DATA_OFFSET)?) {
            (padding, None) => Ok(Self::Spare(padding.unwrap_or(0))),
            (None, Some(offset)) => Ok(Self::Until(offset)),
            (Some(_), Some(_)) => {
                let text = format!("{DATA_OFFSET} says where the data begin, so {HEADER_PADDING} cannot");
                Err(Error::usage("bad-setting", text))
            }
        }
    }

    /// The length in bytes of a header whose text takes `text` of them.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Mismatch`], `no-room`, where it does not fit.
    pub(super) fn length(self, text: u64) -> Result<u64> {
        match self {
            Self::Spare(padding) => {
                let least = text.saturating_add(padding).saturating_add(PREFIX);
                Ok(least.checked_next_multiple_of(ALIGN).unwrap_or(u64::MAX) - PREFIX)
            }
            Self::Until(offset) => match offset.checked_sub(PREFIX) {
                Some(there) if text <= there => Ok(there),
                there => Err(Error::mismatch("no-room", "the header does not fit before the data")
                    .expected(format_args!("at most {} bytes", there.unwrap_or(0)))
                    .found(format_args!("{text} bytes"))
                    .hint(phrase![
                        "write the file anew, with room for later: ",
                        Opt::Set.pair(HEADER_PADDING, "4096")
                    ])),
            },
        }
    }
}
