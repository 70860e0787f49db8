//! Reports as JSON that is made as it is written: a list of a million tensors is never held as a tree.

use crate::checkpoint::escape_text;
use crate::error::Error;
use serde::ser::{Serialize, Serializer};
use serde_json::Value as Json;

/// A list whose items are made one after the other while it is written.
pub struct Rows<I>(
    /// The items, from the first on.
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

/// A list of `items`, each as `json` makes it.
pub fn rows<'a, T, J: Serialize>(
    items: &'a [T],
    json: impl Fn(&'a T) -> J + Clone + 'a,
) -> impl Serialize + 'a {
    Rows(items.iter().map(json))
}

/// An object whose fields, a name and a value each, are made while it is written.
pub struct Fields<I>(pub I);

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

/// `report` as a tree, several times as large as its text.
pub fn tree(report: &impl Serialize) -> Json {
    // It fails for keys that are no text alone, which no report has.
    serde_json::to_value(report).unwrap_or_default()
}

/// Characters of a parser's message that are shown: it may quote the file at length.
const SHOWN: usize = 200;

/// The byte of `text` at which the parser stood. It counts lines from 1, and in a line the bytes
/// that it has taken.
pub fn place_of(text: &str, error: &serde_json::Error) -> u64 {
    let line_start = match error.line() {
        0 | 1 => 0,
        line => text.match_indices('\n').nth(line - 2).map_or(0, |(i, _)| i + 1),
    };
    (line_start + error.column().saturating_sub(1)) as u64
}

/// The parser's error for a text that should be a `what`, without its line and column.
pub fn syntax_error(error: &serde_json::Error, what: &str) -> Error {
    let text = error.to_string();
    let message = text.rsplit_once(" at line ").map_or(text.as_str(), |(message, _)| message);
    let message: String = escape_text(message).chars().take(SHOWN).collect();
    if error.is_data() {
        Error::corrupt("bad-header", format!("this is not the JSON of a {what}: {message}"))
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
    fn items_are_made_when_they_are_written() {
        let made = Cell::new(0);
        let list = Rows((0..3).inspect(|_| made.set(made.get() + 1)));
        assert_eq!(made.get(), 0);
        assert_eq!(tree(&list), json!([0, 1, 2]));
        assert_eq!(made.get(), 3);
        assert_eq!(serde_json::to_string_pretty(&rows(&[0u8; 0], |n| *n)).ok().as_deref(), Some("[]"));
    }
}
