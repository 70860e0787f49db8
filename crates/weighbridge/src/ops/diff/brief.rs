//! Comparison of metadata and attribute values, with short texts.

use super::Change;
use crate::checkpoint::{Attributes, Checkpoint, Metadata, Value};
use crate::formats::{self, Format};
use serde_json::Value as Json;
use std::borrow::Cow;
use std::collections::HashMap;

/// Maximum length of a value in a report, in characters.
const MAX_TEXT_LEN: usize = 200;
/// Number of characters shown before the first difference of long texts.
const CONTEXT_LEN: usize = 60;
/// Maximum nesting depth of compared maps.
const MAX_DEPTH: usize = 16;
/// The format that stores format metadata but no origin.
const NO_ORIGIN: &str = "safetensors";
/// Attributes that are names of the tensor, of other tensors or of storages: names are compared separately.
const NAMES: [&str; 6] = [
    Attributes::VARIABLE_NAME,
    Attributes::STRUCTURED_NAME,
    Attributes::PARAMETER_VARIABLE,
    Attributes::RENAMED_FROM,
    Attributes::ALIAS_OF,
    Attributes::STORAGE,
];

/// Attributes that are compared on request: few formats store them.
const ON_REQUEST: [&str; 4] = ["stop_gradient", "trainable", "requires_grad", "class"];

/// Returns a change, with long texts cut around the first difference.
pub(super) fn change(what: String, left: Option<String>, right: Option<String>) -> Change {
    let same = match (&left, &right) {
        (Some(a), Some(b)) => a.chars().zip(b.chars()).take_while(|(a, b)| a == b).count(),
        _ => 0,
    };
    let cut = |text: String| excerpt(&text, same.saturating_sub(CONTEXT_LEN));
    Change { what: excerpt(&what, 0), left: left.map(cut), right: right.map(cut) }
}

/// Returns at most [`MAX_TEXT_LEN`] characters of `text`, from `start` on where it is longer.
pub(super) fn excerpt(text: &str, start: usize) -> String {
    if text.chars().nth(MAX_TEXT_LEN).is_none() {
        return text.to_owned();
    }
    let mut rest = text.chars().skip(start);
    let shown: String = rest.by_ref().take(MAX_TEXT_LEN).collect();
    let (before, behind) =
        (if start > 0 { "..." } else { "" }, if rest.next().is_some() { "..." } else { "" });
    format!("{before}{shown}{behind}")
}

/// Adds differences of metadata, within maps by the path of keys. Metadata of the format itself are ignored, for the formats of
/// both sides and their origins: in other formats the same key belongs to the user.
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

/// True where the side has that format, or was converted from it.
fn has_form(side: &Checkpoint, format: &str) -> bool {
    // Formats without an origin, such as safetensors, carry only their metadata.
    let origin = side.origin.as_ref().map_or(NO_ORIGIN, |origin| &origin.format);
    side.format == format || origin == format
}

/// Adds differences of attributes of two tensors: levels of sequences, selected rows, batches. With `all` also the attributes
/// that few formats store.
pub(super) fn attributes(left: &Attributes, right: &Attributes, all: bool, changes: &mut Vec<Change>) {
    fn pairs(attributes: &Attributes, all: bool) -> Pairs<'_> {
        let is_left_out = |key: &str| NAMES.contains(&key) || (!all && ON_REQUEST.contains(&key));
        let chosen = attributes.iter().filter(|(key, _)| !is_left_out(key));
        chosen.map(|(key, value)| (Cow::Owned(format!("attribute {key}")), value)).collect()
    }
    below("", &pairs(left, all), &pairs(right, all), &|_, _, _| false, 0, changes);
}

type JsonMap = serde_json::Map<String, Json>;

/// Keys with values.
type Pairs<'a> = Vec<(Cow<'a, str>, &'a Value)>;

/// True for a key that is ignored with these values.
type LeftOut<'a> = dyn Fn(&str, Option<&Value>, Option<&Value>) -> bool + 'a;

/// Returns the pairs of a map with unique keys.
fn pairs(value: &Value) -> Option<Pairs<'_>> {
    let Value::Map(all) = value else { return None };
    let pairs: Pairs<'_> = all.iter().map(|(key, value)| (Cow::Owned(key.to_text()), value)).collect();
    let mut keys: Vec<&str> = pairs.iter().map(|(key, _)| &**key).collect();
    keys.sort_unstable();
    keys.dedup();
    (keys.len() == all.len()).then_some(pairs)
}

/// Parses a text that is JSON, such as the configuration of a checkpoint.
fn from_text(value: &Value) -> Option<Json> {
    let Value::Text(text) = value else { return None };
    serde_json::from_str(text).ok()
}

/// Adds the differences of two JSON objects, by the path of keys. Their parser limits the depth.
fn below_json(above: &str, left: &JsonMap, right: &JsonMap, changes: &mut Vec<Change>) {
    let new = right.keys().filter(|key| !left.contains_key(*key));
    for key in left.keys().chain(new) {
        let what = excerpt(&format!("{above}/{key}"), 0);
        match (left.get(key), right.get(key)) {
            (a, b) if a == b => {}
            (Some(Json::Object(a)), Some(Json::Object(b))) => below_json(&what, a, b, changes),
            (a, b) => changes.push(change(what, a.map(Json::to_string), b.map(Json::to_string))),
        }
    }
}

/// Adds the differences of these pairs. True where any of them differs, ignored or not.
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
        if let (Some(Json::Object(a)), Some(Json::Object(b))) = (a.and_then(from_text), b.and_then(from_text))
            && a != b
        {
            below_json(&what, &a, &b, changes);
        } else if let (Some(a), Some(b)) = (a, b)
            && depth < MAX_DEPTH
            && let (Some(a), Some(b)) = (pairs(a), pairs(b))
        {
            // The path of keys is repeated with each nested difference.
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
