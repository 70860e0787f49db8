//! Accessors for arguments and attributes of an operator, with errors that name them.

use weighbridge_core::error::{Error, Result};
use weighbridge_core::topology::{AttributeValue, Operator, Slot};

/// Name in a slot for an omitted argument.
const EMPTY: &str = "@EMPTY@";
/// Maximum rank of a shape.
const MAX_RANK: usize = 64;

/// Returns the single argument of an input slot.
pub(super) fn input(operator: &Operator, slot: &str) -> Result<String> {
    one(&operator.inputs, "input", slot)
}

/// Returns the single argument of an output slot.
pub(super) fn output(operator: &Operator, slot: &str) -> Result<String> {
    one(&operator.outputs, "output", slot)
}

/// Returns the argument of an input slot that may be empty.
pub(super) fn optional_input(operator: &Operator, slot: &str) -> Result<Option<String>> {
    if names(&operator.inputs, slot).next().is_none() {
        return Ok(None);
    }
    input(operator, slot).map(Some)
}

/// Returns all arguments of an input slot: at least one.
pub(super) fn inputs(operator: &Operator, slot: &str) -> Result<Vec<String>> {
    some(&operator.inputs, "input", slot)
}

/// Returns all arguments of an output slot: at least one.
pub(super) fn outputs(operator: &Operator, slot: &str) -> Result<Vec<String>> {
    some(&operator.outputs, "output", slot)
}

/// Fails if an unsupported input slot is used.
pub(super) fn no_input(operator: &Operator, slot: &str) -> Result<()> {
    match names(&operator.inputs, slot).next() {
        None => Ok(()),
        Some(name) => {
            Err(Error::unsupported("input", format!("the input `{slot}` is not supported")).found(name))
        }
    }
}

fn names<'a>(slots: &'a [Slot], slot: &'a str) -> impl Iterator<Item = &'a String> {
    let same = slots.iter().filter(move |s| s.name == slot);
    same.flat_map(|s| &s.arguments).filter(|name| *name != EMPTY)
}

fn one(slots: &[Slot], side: &str, slot: &str) -> Result<String> {
    let mut all = names(slots, slot);
    match (all.next(), all.next()) {
        (Some(name), None) => Ok(name.clone()),
        _ => Err(arity(side, slot, "one variable", names(slots, slot).count())),
    }
}

fn some(slots: &[Slot], side: &str, slot: &str) -> Result<Vec<String>> {
    let all: Vec<_> = names(slots, slot).cloned().collect();
    if all.is_empty() { Err(arity(side, slot, "at least one variable", 0)) } else { Ok(all) }
}

fn arity(side: &str, slot: &str, expected: &str, found: usize) -> Error {
    Error::corrupt("operator-arity", format!("the {side} `{slot}` has the wrong number of variables"))
        .expected(expected)
        .found(found)
}

/// Returns a required text attribute.
pub(super) fn text<'a>(operator: &'a Operator, name: &str) -> Result<&'a str> {
    match value(operator, name) {
        None => Err(missing(name)),
        Some(AttributeValue::Text(text)) => Ok(text),
        Some(other) => Err(wrong(name, "text", other)),
    }
}

/// Returns a text attribute; empty if it is missing.
pub(super) fn text_or_empty<'a>(operator: &'a Operator, name: &str) -> Result<&'a str> {
    if value(operator, name).is_some() { text(operator, name) } else { Ok("") }
}

/// Returns a boolean attribute. Programs may store it as a number.
pub(super) fn truth(operator: &Operator, name: &str, default: bool) -> Result<bool> {
    match value(operator, name) {
        None => Ok(default),
        Some(AttributeValue::Bool(truth)) => Ok(*truth),
        Some(AttributeValue::Int(number)) => Ok(*number != 0),
        Some(other) => Err(wrong(name, "a boolean", other)),
    }
}

/// Returns an integer attribute; `None` if it is missing.
pub(super) fn int(operator: &Operator, name: &str) -> Result<Option<i64>> {
    match value(operator, name) {
        None => Ok(None),
        Some(AttributeValue::Int(number)) => Ok(Some(*number)),
        Some(other) => Err(wrong(name, "an integer", other)),
    }
}

/// Returns a required integer attribute.
pub(super) fn required_int(operator: &Operator, name: &str) -> Result<i64> {
    int(operator, name)?.ok_or_else(|| missing(name))
}

/// Returns a number attribute as 64 bits; Paddle stores 32 bits.
pub(super) fn number(operator: &Operator, name: &str, default: f64) -> Result<f64> {
    match value(operator, name) {
        None => Ok(default),
        Some(AttributeValue::Float(number)) => Ok(f64::from(*number)),
        Some(AttributeValue::Double(number)) => Ok(*number),
        Some(AttributeValue::Bool(truth)) => Ok(f64::from(u8::from(*truth))),
        Some(AttributeValue::Int(number)) => {
            Ok(weighbridge_core::tensor::Element::Int(i128::from(*number)).to_f64())
        }
        Some(other) => Err(wrong(name, "a number", other)),
    }
}

/// Returns a shape attribute; rank 0 if it is missing.
pub(super) fn dims(operator: &Operator, name: &str) -> Result<Vec<u64>> {
    let list = match value(operator, name) {
        None => return Ok(Vec::new()),
        Some(AttributeValue::List(list)) if list.len() <= MAX_RANK => list,
        Some(other) => return Err(wrong(name, "a list of at most 64 dimensions", other)),
    };
    let dim = |dim: &AttributeValue| {
        let AttributeValue::Int(dim) = dim else {
            return Err(wrong(name, "a list of integers", dim));
        };
        u64::try_from(*dim).map_err(|_| {
            Error::corrupt("attribute-value", format!("the attribute `{name}` has a negative dimension"))
                .expected("0 or more")
                .found(dim)
        })
    };
    list.iter().map(dim).collect()
}

fn value<'a>(operator: &'a Operator, name: &str) -> Option<&'a AttributeValue> {
    operator.attribute(name).filter(|value| !matches!(value, AttributeValue::None))
}

fn missing(name: &str) -> Error {
    Error::corrupt("missing-attribute", format!("the attribute `{name}` is missing"))
}

fn wrong(name: &str, expected: &str, found: &AttributeValue) -> Error {
    let found = match found {
        AttributeValue::None => "nothing",
        AttributeValue::Bool(_) => "a boolean",
        AttributeValue::Int(_) => "an integer",
        AttributeValue::Float(_) | AttributeValue::Double(_) => "a number",
        AttributeValue::Complex(..) => "a complex number",
        AttributeValue::Text(_) => "text",
        AttributeValue::Bytes(_) => "bytes that are not UTF-8",
        AttributeValue::List(list) if list.len() > MAX_RANK => "a longer list",
        AttributeValue::List(_) => "a list",
        AttributeValue::Block(_) => "a block",
        AttributeValue::Variable(_) => "a variable instead of a value, which is not supported",
        AttributeValue::Word(_) => "a word",
    };
    Error::corrupt("attribute-type", format!("the attribute `{name}` has the wrong type"))
        .expected(expected)
        .found(found)
}
