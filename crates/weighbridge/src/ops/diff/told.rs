//! Values of metadata and attributes, compared and told.

use super::Change;
use crate::checkpoint::{Attributes, Metadata, RENAMED_FROM, STRUCTURED_NAME, VARIABLE_NAME, Value};
use std::borrow::Cow;
use std::collections::HashMap;

/// The longest text of a value in a report, in characters.
const LONGEST: usize = 200;
/// What stands before the first difference of long texts, in characters.
const BEFORE: usize = 60;
/// Maps are looked into so deep.
const DEEPEST: usize = 16;
/// Attributes that are names of the tensor, or of others: names are compared by themselves.
const NAMES: [&str; 4] = [VARIABLE_NAME, STRUCTURED_NAME, RENAMED_FROM, "alias_of"];

/// A change, with long texts cut around the place where they begin to differ.
pub(super) fn change(what: String, left: Option<String>, right: Option<String>) -> Change {
    let same = match (&left, &right) {
        (Some(a), Some(b)) => a.chars().zip(b.chars()).take_while(|(a, b)| a == b).count(),
        _ => 0,
    };
    let cut = |text: String| excerpt(&text, same.saturating_sub(BEFORE));
    Change { what: excerpt(&what, 0), left: left.map(cut), right: right.map(cut) }
}

/// At most [`LONGEST`] characters of `text`, from `start` on where it is longer than that.
pub(super) fn excerpt(text: &str, start: usize) -> String {
    if text.chars().nth(LONGEST).is_none() {
        return text.to_owned();
    }
    let mut rest = text.chars().skip(start);
    let shown: String = rest.by_ref().take(LONGEST).collect();
    let (before, behind) =
        (if start > 0 { "..." } else { "" }, if rest.next().is_some() { "..." } else { "" });
    format!("{before}{shown}{behind}")
}

/// Differences of metadata, those within maps told by the keys that lead to them.
pub(super) fn metadata(left: &Metadata, right: &Metadata, changes: &mut Vec<Change>) {
    fn pairs(all: &Metadata) -> Pairs<'_> {
        all.iter().map(|(key, value)| (Cow::Borrowed(key), value)).collect()
    }
    below("", &pairs(left), &pairs(right), 0, changes);
}

/// Differences of what is known of two tensors besides names and elements: levels of sequences, rows that
/// are selected, batches.
pub(super) fn attributes(left: &Attributes, right: &Attributes, changes: &mut Vec<Change>) {
    fn pairs(all: &Attributes) -> Pairs<'_> {
        let chosen = all.iter().filter(|(key, _)| !NAMES.contains(&key.as_str()));
        chosen.map(|(key, value)| (Cow::Owned(format!("attribute {key}")), value)).collect()
    }
    below("", &pairs(left), &pairs(right), 0, changes);
}

/// Keys with their values.
type Pairs<'a> = Vec<(Cow<'a, str>, &'a Value)>;

/// The pairs of a map whose keys stand once.
fn pairs(value: &Value) -> Option<Pairs<'_>> {
    let Value::Map(all) = value else { return None };
    let pairs: Pairs<'_> = all.iter().map(|(key, value)| (Cow::Owned(key.to_text()), value)).collect();
    let mut keys: Vec<&str> = pairs.iter().map(|(key, _)| &**key).collect();
    keys.sort_unstable();
    keys.dedup();
    (keys.len() == all.len()).then_some(pairs)
}

fn below(above: &str, left: &Pairs<'_>, right: &Pairs<'_>, depth: usize, changes: &mut Vec<Change>) {
    let known: HashMap<&str, &Value> = left.iter().map(|(key, value)| (&**key, *value)).collect();
    let other: HashMap<&str, &Value> = right.iter().map(|(key, value)| (&**key, *value)).collect();
    let new = right.iter().filter(|(key, _)| !known.contains_key(&**key));
    for (key, _) in left.iter().chain(new) {
        let (a, b) = (known.get(&**key).copied(), other.get(&**key).copied());
        if a == b {
            continue;
        }
        let what = if above.is_empty() { key.clone().into_owned() } else { format!("{above}/{key}") };
        if let (Some(a), Some(b)) = (a, b)
            && depth < DEEPEST
            && let (Some(a), Some(b)) = (pairs(a), pairs(b))
        {
            let before = changes.len();
            // What leads to all that is below is told with each of it.
            let what = excerpt(&what, 0);
            below(&what, &a, &b, depth + 1, changes);
            if changes.len() == before {
                // The same pairs in another order.
                changes.push(change(
                    what,
                    Some("another order".to_owned()),
                    Some("another order".to_owned()),
                ));
            }
        } else {
            let text = |value: Option<&Value>| value.map(|value| value.to_json().to_string());
            changes.push(change(what, text(a), text(b)));
        }
    }
}
