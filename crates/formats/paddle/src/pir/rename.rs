//! Renaming of tensors.

use super::edit::Edits;
use super::json::{Document, Item, Kind};
use super::model::Model;
use super::words::bare;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::text::escape;
use weighbridge_core::topology::AttributeValue;

/// Returns the edits, and the old names that the program has.
pub(super) fn edits(
    model: &Model,
    bytes: &[u8],
    names: &BTreeMap<String, String>,
) -> Result<(Edits, BTreeSet<String>)> {
    let operators = || model.blocks.iter().flat_map(|b| &b.operators);
    let present: BTreeSet<&str> =
        operators().filter_map(|op| op.named.as_ref()).map(|n| n.name.as_str()).collect();
    let mut taken: HashMap<&str, &str> = HashMap::new();
    for &old in &present {
        let new = names.get(old).map_or(old, String::as_str);
        if new.is_empty() {
            return Err(Error::usage("bad-name", "the new tensor name is empty").on_tensor(escape(old)));
        }
        if let Some(other) = taken.insert(new, old) {
            return Err(Error::mismatch("name-taken", "duplicate tensor name after renaming")
                .on_tensor(escape(old))
                .expected("a unique name")
                .found(format_args!("{new}, already the name of {other}")));
        }
    }
    let mut edits = Edits::default();
    let mut renamed = BTreeSet::new();
    let mut replace = |old: &str, span| {
        if let Some(new) = names.get(old).filter(|new| *new != old) {
            edits.replace(span, quoted(new));
        }
    };
    for op in operators() {
        if let Some(named) = &op.named {
            if names.contains_key(&named.name) {
                renamed.insert(named.name.clone());
            }
            replace(&named.name, named.span.clone());
        }
        // Attributes may refer to tensors by name.
        for attr in op.attributes.iter().filter(|a| mentions(&a.attribute.value)) {
            let document = Document::parse(&bytes[attr.span.clone()])?;
            let [value] = document.root().fields("an attribute", ["AT"])?;
            let mut found = Vec::new();
            if let Some(value) = value {
                mentioned(value, &mut found)?;
            }
            for name in found.into_iter().filter(|n| present.contains(n.string_text().as_str())) {
                let span = name.span();
                let start = attr.span.start;
                replace(&name.string_text(), start + span.start..start + span.end);
            }
        }
    }
    Ok((edits, renamed))
}

/// Encodes a text as JSON, with the escapes of Paddle's own writer.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn mentions(value: &AttributeValue) -> bool {
    match value {
        AttributeValue::Variable(_) => true,
        AttributeValue::List(list) => list.iter().any(mentions),
        _ => false,
    }
}

/// Finds the tensor names in an attribute value.
fn mentioned<'d>(item: Item<'d>, found: &mut Vec<Item<'d>>) -> Result<()> {
    match item.kind() {
        Kind::Array => item.elements().try_for_each(|e| mentioned(e, found)),
        Kind::Object => {
            let [kind, data] = item.fields("an attribute", ["#", "D"])?;
            let (Some(kind), Some(data)) = (kind, data) else { return Ok(()) };
            if bare(&kind.string_text()) == "a_tensorname" {
                found.push(data);
                return Ok(());
            }
            mentioned(data, found)
        }
        _ => Ok(()),
    }
}
