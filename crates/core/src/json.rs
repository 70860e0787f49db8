//! Lazy JSON for reports: a list of a million tensors is serialized without a tree in memory.

use crate::checkpoint::escape_text;
use crate::error::Error;
use serde::ser::{Serialize, Serializer};
use serde_json::Value as Json;

/// JSON list with items generated during serialization.
pub struct Rows<I>(
    /// Items.
    pub I,
);

impl<I> Serialize for Rows<I>
where
    I: Iterator + Clone,
    I::Item: Serialize,
{
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.0.clone())
    }
}

/// Returns a JSON list of `items`, each converted by `json`.
pub fn rows<'a, T, J: Serialize>(
    items: &'a [T],
    json: impl Fn(&'a T) -> J + Clone + 'a,
) -> impl Serialize + 'a {
    Rows(items.iter().map(json))
}

/// JSON object with fields (name and value) generated during serialization.
pub struct Fields<I>(
    /// Fields.
    pub I,
);

impl<I, K, V> Serialize for Fields<I>
where
    I: Iterator<Item = (K, V)> + Clone,
    K: Serialize,
    V: Serialize,
{
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.0.clone())
    }
}

/// Returns `report` as a tree, several times as large as its text.
pub fn tree(report: &impl Serialize) -> Json {
    // Fails only for keys that are not text, which reports do not have.
    serde_json::to_value(report).unwrap_or_default()
}

/// Maximum characters shown of a parser message: it may quote the file at length.
const MAX_SHOWN: usize = 200;

/// Returns the byte offset in `text` of a parser error. The parser counts lines from 1, and consumed bytes within a line.
pub fn place_of(text: &str, error: &serde_json::Error) -> u64 {
    let line_start = match error.line() {
        0 | 1 => 0,
        line => text.match_indices('\n').nth(line - 2).map_or(0, |(i, _)| i + 1),
    };
    (line_start + error.column().saturating_sub(1)) as u64
}

/// Converts an error of the JSON parser, without line and column. `what` is the document: `header`.
pub fn syntax_error(error: &serde_json::Error, what: &str) -> Error {
    let text = error.to_string();
    let message = text.rsplit_once(" at line ").map_or(text.as_str(), |(message, _)| message);
    let message: String = escape_text(message).chars().take(MAX_SHOWN).collect();
    if error.is_data() {
        Error::corrupt("bad-header", format!("the JSON is not a {what}: {message}"))
    } else {
        Error::corrupt("bad-json", format!("the {what} is not JSON: {message}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::cell::Cell;

    #[test]
    fn items_are_generated_during_serialization() {
        let made = Cell::new(0);
        let list = Rows((0..3).inspect(|_| made.set(made.get() + 1)));
        assert_eq!(made.get(), 0);
        assert_eq!(tree(&list), json!([0, 1, 2]));
        assert_eq!(made.get(), 3);
        assert_eq!(serde_json::to_string_pretty(&rows(&[0u8; 0], |n| *n)).ok().as_deref(), Some("[]"));
    }
}
