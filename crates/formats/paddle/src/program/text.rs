//! Programs in protobuf's text format.

use super::{ProgramDesc, budget, check, framework, too_much};
use buffa::text::{ParseErrorKind, TextDecoder, TextEncoder, TextFormat};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;

impl ProgramDesc {
    /// Returns the program in protobuf's text format, as Paddle 2 prints it except for order and whitespace. Strings
    /// that are not UTF-8 are escaped and preserved. The payload of a NaN in a float attribute is lost. Unknown
    /// fields are shown by number; a text with unknown fields cannot be read back, here or in Paddle, because a number
    /// does not determine the type.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        let mut encoder = TextEncoder::new_pretty(&mut text).emit_unknown(true);
        // Writing to a string does not fail.
        let _ = self.message.encode_text(&mut encoder);
        if !text.is_empty() {
            text.push('\n');
        }
        text
    }

    /// Parses the text format, with the field names of Paddle 2 or of Paddle 3.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`] for text that is not a program, with line and column;
    /// [`weighbridge_core::Kind::Limit`].
    pub fn from_text(text: &str, limits: &Limits) -> Result<Self> {
        Limits::check_part("bytes of a program", "header_bytes", text.len() as u64, limits.header_bytes, 1)?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut message = framework::ProgramDesc::default();
        let mut decoder = TextDecoder::new(text).with_element_memory_limit(budget(text.len(), limits));
        message.merge_text(&mut decoder).map_err(|error| {
            let place = format!("line {}, column {}", error.line, error.col);
            match error.kind {
                ParseErrorKind::ElementMemoryLimitExceeded => too_much(text.len(), limits).found(place),
                kind => {
                    let error =
                        Error::corrupt("bad-text", format!("the text is not a program: {kind}, {place}"));
                    match kind {
                        ParseErrorKind::UnknownField => error.hint(
                            "remove fields that have a number instead of a name; they cannot be read from text",
                        ),
                        _ => error.hint("correct the text at this place"),
                    }
                }
            }
        })?;
        let program = Self::of(message)?;
        if program.bytes.is_empty() {
            return Err(Error::corrupt("empty-program", "the program text is empty"));
        }
        check::check(&program.bytes, limits, false)?;
        Ok(program)
    }
}
