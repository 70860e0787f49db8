//! Accessors for generated messages.

use super::framework::op_desc::{Attr, Var};
use super::framework::{OpDesc, ProgramDesc, VarDesc};
use std::borrow::Cow;

/// Returns the bytes of an optional string; empty if it is not set.
pub(super) fn bytes(field: &Option<Vec<u8>>) -> &[u8] {
    field.as_deref().unwrap_or_default()
}

/// Returns a string as text. Bytes that are not UTF-8 are shown as `\xNN`, so that distinct names stay distinct.
pub(super) fn shown(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return Cow::Borrowed(text);
    }
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    Cow::Owned(text)
}

/// Returns the attribute with a name. Paddle writes some attributes in duplicate and reads the last.
pub(super) fn attribute<'a>(op: &'a OpDesc, name: &str) -> Option<&'a Attr> {
    op.attrs.iter().rev().find(|a| bytes(&a.name) == name.as_bytes())
}

/// Returns the number of a variable's type, such as 7 for a tensor.
pub(super) fn kind(var: &VarDesc) -> Option<i32> {
    var.r#type.as_option().and_then(|t| t.r#type).map(|t| t.to_i32())
}

/// Iterates over the variable names in the slots.
pub(super) fn arguments(slots: &[Var]) -> impl Iterator<Item = &Vec<u8>> {
    slots.iter().flat_map(|slot| &slot.arguments)
}

/// Iterates over the variables that an operator reads as attribute values.
pub(super) fn in_attributes(op: &OpDesc) -> impl Iterator<Item = &Vec<u8>> {
    op.attrs.iter().flat_map(|a| a.var_name.iter().chain(&a.vars_name))
}

/// Iterates over all operators of all blocks.
pub(super) fn operators(program: &ProgramDesc) -> impl Iterator<Item = &OpDesc> {
    program.blocks.iter().flat_map(|block| &block.ops)
}
