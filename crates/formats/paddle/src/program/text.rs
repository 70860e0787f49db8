//! Programs as text: the text form of protobuf.

use super::{ProgramDesc, budget, check, framework, too_much};
use buffa::text::{ParseErrorKind, TextDecoder, TextEncoder, TextFormat};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;

impl ProgramDesc {
    /// The program in the text form of protobuf, as Paddle 2 prints it but for order and blanks.
    /// Strings that are not UTF-8 are escaped and survive. Of a NaN in a float attribute the text
    /// keeps that it is one. Fields that are not known here show as their number; a text with such
    /// fields cannot be read back, here or in Paddle, since a number tells no type.
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

    /// Reads the text form, with the names of fields of Paddle 2 or of Paddle 3.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`] for text that is no program, with line and column;
    /// [`weighbridge_core::Kind::Limit`].
    pub fn from_text(text: &str, limits: &Limits) -> Result<Self> {
        Limits::check("bytes of a program", "header_bytes", text.len() as u64, limits.header_bytes)?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut message = framework::ProgramDesc::default();
        let mut decoder = TextDecoder::new(text).with_element_memory_limit(budget(text.len(), limits));
        message.merge_text(&mut decoder).map_err(|error| {
            let place = format!("line {}, column {}", error.line, error.col);
            match error.kind {
                ParseErrorKind::ElementMemoryLimitExceeded => too_much(text.len(), limits).found(place),
                kind => Error::corrupt("bad-text", format!("not the text of a program: {kind}, {place}"))
                    .hint("fields without a name (numbers) cannot be read from text"),
            }
        })?;
        let program = Self::of(message)?;
        if program.bytes.is_empty() {
            return Err(Error::corrupt("empty-program", "an empty text is no program"));
        }
        check::check(&program.bytes, limits, false)?;
        Ok(program)
    }
}
