//! Complete program as text, one line per variable and operator.

use super::{MAX_NESTING, name, quoted, type_text};
use crate::checkpoint::Name;
use crate::text::escape;
use crate::topology::{Attribute, AttributeValue, Operator, Slot, Topology, Variable, VariableKind};
use std::fmt::Write;

/// Maximum number of shown values of a list.
const SHOWN_VALUES: usize = 8;
/// Maximum number of shown characters of a text.
const SHOWN_CHARS: usize = 60;
/// Maximum depth of shown nested lists.
const SHOWN_LEVELS: usize = 4;

/// Returns all of `topology`: blocks, variables, operators. The body of an operator follows it, indented. Long values are
/// shortened; everything is escaped.
pub fn listing(topology: &Topology) -> String {
    let mut writer = Writer { topology, out: String::new(), done: vec![false; topology.blocks.len()] };
    writer.line(
        0,
        &format!(
            "{}, written by {}",
            topology.form,
            topology.writer.as_deref().map_or_else(|| "?".into(), escape)
        ),
    );
    for (label, endpoints) in [("input", &topology.feeds), ("output", &topology.fetches)] {
        for one in endpoints {
            let dtype = type_text(one.dtype, None, one.shape.as_deref());
            writer.line(0, &format!("{label} {}: {dtype}", name(&one.name)));
        }
    }
    // The main block first; then the blocks that no earlier operator runs.
    for number in 0..topology.blocks.len() {
        writer.block(number, 0);
    }
    writer.out
}

struct Writer<'a> {
    topology: &'a Topology,
    out: String,
    /// Blocks that were shown already.
    done: Vec<bool>,
}

impl Writer<'_> {
    fn line(&mut self, depth: usize, text: &str) {
        self.out.extend(std::iter::repeat_n("  ", depth));
        self.out.push_str(text);
        self.out.push('\n');
    }

    /// Writes a block and its content, once. Recursion ends at [`MAX_NESTING`]; deeper blocks are written later, by the loop over
    /// all blocks.
    fn block(&mut self, number: usize, depth: usize) {
        let topology = self.topology;
        let Some(block) = topology.blocks.get(number) else { return };
        if std::mem::replace(&mut self.done[number], true) {
            return;
        }
        let mut title = format!("block {number}");
        if !block.arguments.is_empty() {
            title.push_str(&format!("({})", list(block.arguments.iter().map(|a| name(a)))));
        }
        if let Some(parent) = block.parent {
            title.push_str(&format!(" in block {parent}"));
        }
        self.line(depth, &format!("{title}:"));
        for variable in &block.variables {
            self.line(depth + 1, &declaration(variable));
        }
        for operator in &block.operators {
            self.line(depth + 1, &step(operator));
            for &body in &operator.blocks {
                match self.done.get(body) {
                    None => self.line(depth + 2, &format!("block {body} is missing")),
                    Some(true) => self.line(depth + 2, &format!("block {body}: shown elsewhere")),
                    Some(false) if depth >= MAX_NESTING => {
                        self.line(depth + 2, &format!("block {body}: shown below"));
                    }
                    Some(false) => self.block(body, depth + 2),
                }
            }
        }
    }
}

/// Returns `var fc.w: f32 [3, 4], persistable`.
fn declaration(variable: &Variable) -> String {
    let mut text = format!("var {}: ", name(&variable.name));
    if variable.kind != VariableKind::Tensor {
        text.push_str(&format!("{} ", escape(variable.kind.as_str())));
    }
    let word = variable.dtype_name.as_deref();
    if variable.kind == VariableKind::Tensor || variable.dtype.is_some() || variable.shape.is_some() {
        text.push_str(&type_text(variable.dtype, word, variable.shape.as_deref()));
    }
    text.truncate(text.trim_end().len());
    if variable.lod_level > 0 {
        text.push_str(&format!(", lod level {}", variable.lod_level));
    }
    for (flag, word) in [
        (variable.parameter, "parameter"),
        (variable.persistable, "persistable"),
        (variable.stop_gradient, "no gradient"),
    ] {
        if flag {
            text.push_str(", ");
            text.push_str(word);
        }
    }
    text
}

/// Returns `t = matmul_v2(X=[x], Y=[fc.w], trans_x=false)`.
fn step(operator: &Operator) -> String {
    let outputs: Vec<&Slot> = operator.outputs.iter().filter(|s| !s.arguments.is_empty()).collect();
    let mut text = match outputs.as_slice() {
        [] => String::new(),
        [one] => list(one.arguments.iter().map(|a| name(a))),
        several => list(several.iter().map(|slot| arguments(slot))),
    };
    if !text.is_empty() {
        text.push_str(" = ");
    }
    let inputs = operator.inputs.iter().map(arguments);
    let settings = operator.attributes.iter().map(setting);
    // Writing to a string cannot fail.
    let _ = write!(text, "{}({})", name(&operator.kind), list(inputs.chain(settings)));
    text
}

fn arguments(slot: &Slot) -> String {
    let all = list(slot.arguments.iter().map(|a| name(a)));
    match slot.name.as_str() {
        "" => all,
        slot => format!("{}=[{all}]", name(slot)),
    }
}

fn setting(attribute: &Attribute) -> String {
    format!("{}={}", name(&attribute.name), value(&attribute.value, 0))
}

fn value(value_of: &AttributeValue, depth: usize) -> String {
    match value_of {
        AttributeValue::None => "none".to_owned(),
        AttributeValue::Bool(b) => b.to_string(),
        AttributeValue::Int(n) => n.to_string(),
        AttributeValue::Float(x) => format!("{x:?}"),
        AttributeValue::Double(x) => format!("{x:?}"),
        AttributeValue::Complex(re, im) => format!("({re:?}, {im:?})"),
        AttributeValue::Text(text) => shortened(text),
        AttributeValue::Bytes(bytes) => shortened(&Name::new(bytes.as_slice()).to_text()),
        AttributeValue::List(_) if depth >= SHOWN_LEVELS => "[...]".to_owned(),
        AttributeValue::List(values) => {
            let shown = values.iter().take(SHOWN_VALUES).map(|v| value(v, depth + 1));
            let more = values.len().saturating_sub(SHOWN_VALUES);
            let rest = (more > 0).then(|| format!("... {more} more"));
            format!("[{}]", list(shown.chain(rest)))
        }
        AttributeValue::Block(number) => format!("block {number}"),
        AttributeValue::Variable(variable) => format!("var {}", name(variable)),
        AttributeValue::Word(word) => name(word),
    }
}

fn shortened(text: &str) -> String {
    let cut: String = text.chars().take(SHOWN_CHARS).collect();
    let more = if cut.len() < text.len() { "..." } else { "" };
    format!("{}{more}", quoted(&cut))
}

fn list(parts: impl Iterator<Item = String>) -> String {
    let mut text = String::new();
    for (place, part) in parts.enumerate() {
        text.push_str(if place > 0 { ", " } else { "" });
        text.push_str(&part);
    }
    text
}
