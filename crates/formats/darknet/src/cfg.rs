//! Networks in text: sections with options.

use weighbridge_core::budget::Budget;
use weighbridge_core::error::{Error, Result};

/// Memory of a section or an option, besides its texts.
const ENTRY: u64 = 100;

/// Section: a layer, or the network.
#[derive(Debug, Default)]
pub(crate) struct Section {
    /// Type, without brackets.
    pub(crate) kind: String,
    /// Number of its line.
    pub(crate) line: usize,
    /// Offset of its line.
    pub(crate) at: u64,
    /// Options in the order of the file.
    pub(crate) options: Vec<(String, String)>,
}

impl Section {
    /// Returns the text of an option. The first one of several counts.
    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        self.options.iter().find(|(own, _)| own == key).map(|(_, value)| value.as_str())
    }

    /// Returns the integer of an option, or a default.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`], `bad-number`.
    pub(crate) fn int(&self, key: &str, default: i64) -> Result<i64> {
        let Some(text) = self.text(key) else { return Ok(default) };
        // Darknet reads the digits at the beginning.
        let end = text.find(|c: char| !(c.is_ascii_digit() || matches!(c, '-' | '+'))).unwrap_or(text.len());
        text.get(..end).and_then(|digits| digits.parse().ok()).ok_or_else(|| self.bad(key, "an integer"))
    }

    /// Returns the integer of an option that is not negative, or a default.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`], `bad-number`.
    pub(crate) fn size(&self, key: &str, default: u64) -> Result<u64> {
        let value = self.int(key, i64::try_from(default).unwrap_or(i64::MAX))?;
        // The range of Darknet, so that products of a few sizes are within 64 bits.
        u32::try_from(value).map(u64::from).map_err(|_| self.bad(key, "0 to 4294967295"))
    }

    /// Returns the numbers of other layers in an option; a negative one counts from this layer.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`], `bad-number` or `index-out-of-range`.
    pub(crate) fn layers(&self, key: &str, own: usize) -> Result<Vec<usize>> {
        let mut layers = Vec::new();
        for word in
            self.text(key).unwrap_or_default().split(',').map(str::trim).filter(|word| !word.is_empty())
        {
            let number: i64 = word.parse().map_err(|_| self.bad(key, "numbers of layers"))?;
            let base = if number < 0 { i64::try_from(own).unwrap_or(i64::MAX) } else { 0 };
            let layer = usize::try_from(base.saturating_add(number)).ok().filter(|&layer| layer < own);
            layers.push(layer.ok_or_else(|| {
                Error::corrupt("index-out-of-range", format!("{key} refers to a layer that does not precede"))
                    .at(self.at)
                    .expected(format_args!("a layer before {own}, in line {}", self.line))
                    .found(number)
            })?);
        }
        Ok(layers)
    }

    fn bad(&self, key: &str, expected: &str) -> Error {
        Error::corrupt("bad-number", format!("the option {key} is malformed"))
            .at(self.at)
            .expected(format_args!("{expected}, in the section of line {}", self.line))
            .found(weighbridge_core::text::quoted(self.text(key).unwrap_or_default()))
    }
}

/// Parses a text.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`], `bad-line`; [`weighbridge_core::Kind::Limit`].
pub(crate) fn parse(text: &str, budget: &Budget) -> Result<Vec<Section>> {
    let mut sections: Vec<Section> = Vec::new();
    let mut at = 0u64;
    for (number, line) in text.split('\n').enumerate() {
        budget.take_memory(ENTRY + line.len() as u64)?;
        // Darknet removes all blanks.
        let plain: String = line.chars().filter(|c| !c.is_whitespace()).collect();
        let fail = |text: &str| {
            Error::corrupt("bad-line", text)
                .at(at)
                .expected("[SECTION], OPTION=VALUE, or a comment")
                .found(format_args!("{} in line {}", weighbridge_core::text::quoted(&plain), number + 1))
        };
        match plain.chars().next() {
            None | Some('#' | ';') => {}
            Some('[') => {
                let kind = plain.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
                let kind = kind.ok_or_else(|| fail("a section has no closing bracket"))?.to_owned();
                sections.push(Section { kind, line: number + 1, at, options: Vec::new() });
            }
            Some(_) => {
                let (key, value) = plain.split_once('=').ok_or_else(|| fail("a line is not an option"))?;
                let section =
                    sections.last_mut().ok_or_else(|| fail("an option precedes the first section"))?;
                section.options.push((key.to_owned(), value.to_owned()));
            }
        }
        at += line.len() as u64 + 1;
    }
    Ok(sections)
}
