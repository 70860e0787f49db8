//! Values of metadata and attributes, compared and told.

use super::Change;
use crate::checkpoint::{Attributes, Checkpoint, Metadata, Value};
use crate::formats::{self, Format};
use std::borrow::Cow;
use std::collections::HashMap;

/// The longest text of a value in a report, in characters.
const LONGEST: usize = 200;
/// What stands before the first difference of long texts, in characters.
const BEFORE: usize = 60;
/// Maps are looked into so deep.
const DEEPEST: usize = 16;
/// The format whose files have metadata of their form, and leave no origin.
const NO_ORIGIN: &str = "safetensors";
/// Attributes that are names of the tensor, of others or of what they are stored in: names are compared by themselves.
const NAMES: [&str; 6] = [
    Attributes::VARIABLE_NAME,
    Attributes::STRUCTURED_NAME,
    Attributes::PARAMETER_VARIABLE,
    Attributes::RENAMED_FROM,
    Attributes::ALIAS_OF,
    Attributes::STORAGE,
];

/// Attributes that are compared on request: few files keep them.
const ON_REQUEST: [&str; 4] = ["stop_gradient", "trainable", "requires_grad", "class"];

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

/// Differences of metadata, those within maps told by the keys that lead to them. What speaks of the form of a file alone
/// is left out: forms are no difference. Only the forms of the two sides are meant, and of what they were made of: in other
/// files the same key is somebody's own.
pub(super) fn metadata(left: &Checkpoint, right: &Checkpoint, changes: &mut Vec<Change>) {
    fn pairs(all: &Metadata) -> Pairs<'_> {
        all.iter().map(|(key, value)| (Cow::Borrowed(key), value)).collect()
    }
    let is_known =
        |format: &&&dyn Format| [left, right].into_iter().any(|side| has_form(side, format.info().id));
    let known: Vec<&dyn Format> = formats::ALL.iter().filter(is_known).copied().collect();
    let is_of_form = |key: &str, value: Option<&Value>| {
        value.is_none_or(|value| known.iter().any(|format| format.is_format_metadata(key, value)))
    };
    let left_out = |key: &str, a: Option<&Value>, b: Option<&Value>| is_of_form(key, a) && is_of_form(key, b);
    below("", &pairs(&left.metadata), &pairs(&right.metadata), &left_out, 0, changes);
}

/// True where the side is of that format, or was made of a file of it.
fn has_form(side: &Checkpoint, format: &str) -> bool {
    // Of files that say no origin, as safetensors do, the metadata alone are carried.
    let origin = side.origin.as_ref().map_or(NO_ORIGIN, |origin| &origin.format);
    side.format == format || origin == format
}

/// Differences of what is known of two tensors besides names and elements: levels of sequences, rows that
/// are selected, batches. With `all` also those that few files keep.
pub(super) fn attributes(left: &Attributes, right: &Attributes, all: bool, changes: &mut Vec<Change>) {
    fn pairs(attributes: &Attributes, all: bool) -> Pairs<'_> {
        let is_left_out = |key: &str| NAMES.contains(&key) || (!all && ON_REQUEST.contains(&key));
        let chosen = attributes.iter().filter(|(key, _)| !is_left_out(key));
        chosen.map(|(key, value)| (Cow::Owned(format!("attribute {key}")), value)).collect()
    }
    below("", &pairs(left, all), &pairs(right, all), &|_, _, _| false, 0, changes);
}

/// Keys with their values.
type Pairs<'a> = Vec<(Cow<'a, str>, &'a Value)>;

/// True for the key that does not count with these values.
type LeftOut<'a> = dyn Fn(&str, Option<&Value>, Option<&Value>) -> bool + 'a;

/// The pairs of a map whose keys stand once.
fn pairs(value: &Value) -> Option<Pairs<'_>> {
    let Value::Map(all) = value else { return None };
    let pairs: Pairs<'_> = all.iter().map(|(key, value)| (Cow::Owned(key.to_text()), value)).collect();
    let mut keys: Vec<&str> = pairs.iter().map(|(key, _)| &**key).collect();
    keys.sort_unstable();
    keys.dedup();
    (keys.len() == all.len()).then_some(pairs)
}

/// Tells what differs of these pairs. True where something of them differs, whether it counts or not.
fn below(
    above: &str,
    left: &Pairs<'_>,
    right: &Pairs<'_>,
    left_out: &LeftOut<'_>,
    depth: usize,
    changes: &mut Vec<Change>,
) -> bool {
    let mut any = false;
    let known: HashMap<&str, &Value> = left.iter().map(|(key, value)| (&**key, *value)).collect();
    let other: HashMap<&str, &Value> = right.iter().map(|(key, value)| (&**key, *value)).collect();
    let new = right.iter().filter(|(key, _)| !known.contains_key(&**key));
    for (key, _) in left.iter().chain(new) {
        let (a, b) = (known.get(&**key).copied(), other.get(&**key).copied());
        if a == b {
            continue;
        }
        any = true;
        let what = if above.is_empty() { key.clone().into_owned() } else { format!("{above}/{key}") };
        if left_out(&what, a, b) {
            continue;
        }
        if let (Some(a), Some(b)) = (a, b)
            && depth < DEEPEST
            && let (Some(a), Some(b)) = (pairs(a), pairs(b))
        {
            // What leads to all that is below is told with each of it.
            let what = excerpt(&what, 0);
            if !below(&what, &a, &b, left_out, depth + 1, changes) {
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
    any
}
