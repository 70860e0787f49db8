//! Operators in one vocabulary: that of `ProgramDesc`.
//!
//! PIR has the same operators with other names, operands without slots, and attributes as operands. A row of the table gives
//! an operator's names and slots in both forms, so a translation reads one form.

use super::builder::Builder;
use crate::constant::Constant;
use std::cell::Cell;
use std::collections::HashMap;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::tensor::DType;
use weighbridge_core::topology::{AttributeValue, Block, Operator};

/// Translation of an operator to nodes.
pub(super) type Translate = fn(&mut Builder<'_>, &Op<'_>) -> Result<()>;

/// Row of the table of operators.
#[derive(Clone, Copy)]
pub(super) struct Row {
    /// Names in `ProgramDesc`, separated by spaces; empty if PIR alone has the operator.
    pub(super) desc: &'static str,
    /// Names in PIR without dialect and without the `_` of in-place variants, separated by spaces; empty if none.
    pub(super) pir: &'static str,
    /// Input slots, named as in `ProgramDesc`, in the order of the operands of PIR.
    pub(super) inputs: &'static str,
    /// Output slots, named as in `ProgramDesc`, in the order of the results of PIR.
    pub(super) outputs: &'static str,
    /// Attributes whose names differ, separated by spaces: `transpose_x=trans_x`, with the name in PIR first.
    pub(super) renamed: &'static str,
    /// Translation.
    pub(super) translate: Translate,
}

/// Creates a row: names in `ProgramDesc`, names in PIR, input slots, output slots, translation.
pub(super) const fn row(
    desc: &'static str,
    pir: &'static str,
    inputs: &'static str,
    outputs: &'static str,
    translate: Translate,
) -> Row {
    Row { desc, pir, inputs, outputs, renamed: "", translate }
}

impl Row {
    /// Adds attributes whose names differ: `transpose_x=trans_x`, with the name in PIR first.
    pub(super) const fn renamed(mut self, renamed: &'static str) -> Self {
        self.renamed = renamed;
        self
    }
}

/// Operator of a program.
#[derive(Clone)]
pub(super) struct Op<'a> {
    /// Name without dialect, such as `conv2d`.
    pub(super) kind: &'a str,
    /// Name for messages, as in the program.
    pub(super) shown: &'a str,
    /// True for an operator of PIR.
    pub(super) is_pir: bool,
    /// Inputs: slot and names of variables.
    pub(super) inputs: Vec<(&'a str, Vec<&'a str>)>,
    /// Outputs: slot and names of variables.
    pub(super) outputs: Vec<(&'a str, Vec<&'a str>)>,
    /// Attributes.
    pub(super) attributes: Vec<(&'a str, &'a AttributeValue)>,
    /// Blocks that it runs.
    pub(super) blocks: &'a [usize],
    /// Attributes that variables supply: each is an input with the name of the attribute.
    computed: Vec<&'a str>,
    /// Bits of the first of them that the translation has read.
    read: Cell<u64>,
}

/// Name of an absent operand.
const EMPTY: &str = "@EMPTY@";

/// Returns the name of a PIR operator without its dialect and without the `_` of in-place variants.
pub(super) fn pir_name(kind: &str) -> &str {
    let name = kind.split_once('.').map_or(kind, |(_, name)| name);
    name.strip_suffix('_').filter(|name| !name.is_empty()).unwrap_or(name)
}

/// Lists of PIR values: `builtin.combine` makes one, `builtin.split` and `builtin.slice` take it apart.
#[derive(Default)]
pub(super) struct Lists<'a> {
    /// Members of a list, by the name of the list.
    members: HashMap<&'a str, Vec<&'a str>>,
}

impl<'a> Lists<'a> {
    /// Collects the lists of a block and adds them.
    pub(super) fn add(&mut self, block: &'a Block) {
        for operator in &block.operators {
            let inputs = operator.input("");
            let outputs = operator.output("");
            match (operator.kind.as_str(), inputs, outputs) {
                ("builtin.combine", members, [list]) => {
                    self.members.insert(list, members.iter().map(String::as_str).collect());
                }
                ("builtin.split", [list], members) => {
                    self.members.entry(list).or_insert_with(|| members.iter().map(String::as_str).collect());
                }
                ("builtin.slice", [list], [member]) => {
                    let index = operator.attribute("index").and_then(integer).unwrap_or(0);
                    let Ok(index) = usize::try_from(index) else { continue };
                    let members = self.members.entry(list).or_default();
                    if index < 4096 && members.len() <= index {
                        members.resize(index + 1, EMPTY);
                    }
                    if let Some(place) = members.get_mut(index).filter(|place| **place == EMPTY) {
                        *place = member;
                    }
                }
                _ => {}
            }
        }
    }

    /// Returns the members of a list, or the name itself.
    pub(super) fn of(&self, name: &'a str) -> Vec<&'a str> {
        self.members.get(name).cloned().unwrap_or_else(|| vec![name])
    }
}

impl<'a> Op<'a> {
    /// Creates an operator in the vocabulary of `ProgramDesc`, as a step of another.
    pub(super) fn step_of(
        whole: &Op<'a>,
        kind: &'a str,
        inputs: Vec<(&'a str, Vec<&'a str>)>,
        outputs: Vec<(&'a str, Vec<&'a str>)>,
        attributes: Vec<(&'a str, &'a AttributeValue)>,
    ) -> Self {
        Self {
            kind,
            shown: whole.shown,
            is_pir: false,
            inputs,
            outputs,
            attributes,
            blocks: &[],
            computed: Vec::new(),
            read: std::cell::Cell::default(),
        }
    }

    /// Views an operator of `ProgramDesc`.
    pub(super) fn of_desc(operator: &'a Operator) -> Self {
        let slots = |slots: &'a [weighbridge_core::topology::Slot]| {
            let names = |slot: &'a weighbridge_core::topology::Slot| {
                (slot.name.as_str(), slot.arguments.iter().map(String::as_str).collect())
            };
            slots.iter().map(names).collect()
        };
        let mut inputs: Vec<(&str, Vec<&str>)> = slots(&operator.inputs);
        let mut computed = Vec::new();
        for attribute in &operator.attributes {
            let variables: Vec<&str> = variables(&attribute.value).collect();
            if !variables.is_empty() {
                inputs.push((&attribute.name, variables));
                computed.push(attribute.name.as_str());
            }
        }
        Self {
            kind: &operator.kind,
            shown: &operator.kind,
            is_pir: false,
            inputs,
            computed,
            read: Cell::new(0),
            outputs: slots(&operator.outputs),
            attributes: operator.attributes.iter().map(|a| (a.name.as_str(), &a.value)).collect(),
            blocks: &operator.blocks,
        }
    }

    /// Views an operator of PIR with the slots of its row; without a row, operands have no slots.
    pub(super) fn of_pir(operator: &'a Operator, row: Option<&Row>, lists: &Lists<'a>) -> Self {
        let (inputs, outputs) = row.map_or(("", ""), |row| (row.inputs, row.outputs));
        let slots = |names: &'static str, arguments: &'a [String]| -> Vec<(&'a str, Vec<&'a str>)> {
            let mut names = names.split_ascii_whitespace();
            let slot = |argument: &'a String| {
                let slot = names.next().unwrap_or("");
                (slot, if argument == EMPTY { Vec::new() } else { lists.of(argument) })
            };
            arguments.iter().map(slot).collect()
        };
        let renamed = |name: &'a str| -> &'a str {
            let pairs = row.map_or("", |row| row.renamed).split_ascii_whitespace();
            pairs
                .filter_map(|pair| pair.split_once('='))
                .find(|(from, _)| *from == name)
                .map_or(name, |p| p.1)
        };
        Self {
            kind: pir_name(&operator.kind),
            shown: &operator.kind,
            is_pir: true,
            inputs: slots(inputs, operator.input("")),
            computed: Vec::new(),
            read: Cell::new(0),
            outputs: slots(outputs, operator.output("")),
            attributes: operator.attributes.iter().map(|a| (renamed(&a.name), &a.value)).collect(),
            blocks: &operator.blocks,
        }
    }

    /// Returns the names of the variables of an input slot; empty if absent.
    pub(super) fn input(&self, slot: &str) -> &[&'a str] {
        for (place, _) in self.computed.iter().enumerate().take(64).filter(|(_, name)| **name == slot) {
            self.read.set(self.read.get() | 1 << place);
        }
        self.inputs.iter().find(|(name, _)| *name == slot).map_or(&[], |(_, names)| names)
    }

    /// Returns the names of the variables of an output slot; empty if absent.
    pub(super) fn output(&self, slot: &str) -> &[&'a str] {
        self.outputs.iter().find(|(name, _)| *name == slot).map_or(&[], |(_, names)| names)
    }

    /// Returns an attribute that a variable supplies and that nothing has read.
    pub(super) fn unread(&self) -> Option<&'a str> {
        let is_unread = |place: usize| place >= 64 || self.read.get() & (1 << place) == 0;
        self.computed.iter().enumerate().find(|(place, _)| is_unread(*place)).map(|(_, name)| *name)
    }

    /// Returns the attribute. Optimised programs may hold one twice: the last counts.
    pub(super) fn attribute(&self, name: &str) -> Option<&'a AttributeValue> {
        self.attributes.iter().rfind(|(own, _)| *own == name).map(|(_, value)| *value)
    }

    /// Returns true if the attribute is present with a value.
    pub(super) fn has(&self, name: &str) -> bool {
        !matches!(self.attribute(name), None | Some(AttributeValue::None))
    }

    /// Returns an integer attribute, or the default.
    pub(super) fn int(&self, name: &str, default: i64) -> i64 {
        self.attribute(name).and_then(integer).unwrap_or(default)
    }

    /// Returns a number as an attribute, or the default.
    pub(super) fn float(&self, name: &str, default: f64) -> f64 {
        self.attribute(name).and_then(number).unwrap_or(default)
    }

    /// Returns a boolean attribute, or the default.
    pub(super) fn bool(&self, name: &str, default: bool) -> bool {
        match self.attribute(name) {
            Some(AttributeValue::Bool(value)) => *value,
            Some(AttributeValue::Int(value)) => *value != 0,
            _ => default,
        }
    }

    /// Returns a text attribute, or the default.
    pub(super) fn text(&self, name: &str, default: &'a str) -> &'a str {
        match self.attribute(name) {
            Some(AttributeValue::Text(value) | AttributeValue::Word(value)) => value,
            _ => default,
        }
    }

    /// Returns a list of integers; a single integer is a list of one. `None` if absent.
    pub(super) fn ints(&self, name: &str) -> Option<Vec<i64>> {
        match self.attribute(name)? {
            AttributeValue::List(values) if !is_scalar(values) => values.iter().map(integer).collect(),
            value => integer(value).map(|value| vec![value]),
        }
    }

    /// Returns a list of numbers; a single number is a list of one. `None` if absent.
    pub(super) fn floats(&self, name: &str) -> Option<Vec<f64>> {
        match self.attribute(name)? {
            AttributeValue::List(values) if !is_scalar(values) => values.iter().map(number).collect(),
            value => number(value).map(|value| vec![value]),
        }
    }

    /// Returns a dtype attribute: a number of `ProgramDesc`, or a word of PIR. `None` if absent or undefined (-1).
    pub(super) fn dtype(&self, name: &str) -> Option<DType> {
        match self.attribute(name)? {
            AttributeValue::Int(number) => dtype_of_number(*number),
            AttributeValue::Word(word) | AttributeValue::Text(word) => {
                DType::from_spelling(&word.to_lowercase())
            }
            _ => None,
        }
    }

    /// Returns the error for a variant of the operator that has no translation.
    pub(super) fn refuse(&self, reason: impl std::fmt::Display) -> Error {
        Error::unsupported("operator-variant", format!("{}: {reason}", self.shown))
    }

    /// Returns the error for a program that lacks a part the operator needs.
    pub(super) fn malformed(&self, fault: impl std::fmt::Display) -> Error {
        Error::corrupt("bad-program", format!("the operator {} {fault}", self.shown))
    }
}

/// Returns the variables that supply an attribute.
pub(super) fn variables(value: &AttributeValue) -> impl Iterator<Item = &str> {
    let list = match value {
        AttributeValue::List(list) => list.as_slice(),
        one => std::slice::from_ref(one),
    };
    list.iter().filter_map(|value| match value {
        AttributeValue::Variable(name) => Some(name.as_str()),
        _ => None,
    })
}

/// Returns true for a scalar of PIR: its dtype and value.
fn is_scalar(values: &[AttributeValue]) -> bool {
    matches!(values, [AttributeValue::Word(word), _] if DType::from_spelling(word).is_some())
}

/// Returns the integer of an attribute. A scalar of PIR is a list of its dtype and value.
pub(super) fn integer(value: &AttributeValue) -> Option<i64> {
    #[allow(clippy::cast_possible_truncation)] // Paddle casts a scalar so.
    match value {
        AttributeValue::Int(value) => Some(*value),
        AttributeValue::Bool(value) => Some(i64::from(*value)),
        AttributeValue::Float(value) => Some(*value as i64),
        AttributeValue::Double(value) => Some(*value as i64),
        AttributeValue::List(pair) => match pair.as_slice() {
            [AttributeValue::Word(_), value] => integer(value),
            [value] => integer(value),
            _ => None,
        },
        AttributeValue::Text(text) | AttributeValue::Word(text) => text.parse().ok(),
        _ => None,
    }
}

/// Returns the number of an attribute. A scalar of PIR is a list of its dtype and value.
pub(super) fn number(value: &AttributeValue) -> Option<f64> {
    #[allow(clippy::cast_precision_loss)]
    match value {
        AttributeValue::Int(value) => Some(*value as f64),
        AttributeValue::Bool(value) => Some(f64::from(u8::from(*value))),
        AttributeValue::Float(value) => Some(f64::from(*value)),
        AttributeValue::Double(value) => Some(*value),
        AttributeValue::List(pair) => match pair.as_slice() {
            [AttributeValue::Word(_), value] => number(value),
            [value] => number(value),
            _ => None,
        },
        AttributeValue::Text(text) | AttributeValue::Word(text) => match text.as_str() {
            "inf" | "Infinity" => Some(f64::INFINITY),
            "-inf" | "-Infinity" => Some(f64::NEG_INFINITY),
            "nan" | "NaN" => Some(f64::NAN),
            text => text.parse().ok(),
        },
        _ => None,
    }
}

/// Returns the dtype with a number in `VarType.Type`.
pub(super) fn dtype_of_number(number: i64) -> Option<DType> {
    Some(match number {
        0 => DType::Bool,
        1 => DType::I16,
        2 => DType::I32,
        3 => DType::I64,
        4 => DType::F16,
        5 => DType::F32,
        6 => DType::F64,
        20 => DType::U8,
        21 => DType::I8,
        22 => DType::BF16,
        23 => DType::C64,
        24 => DType::C128,
        _ => return None,
    })
}

/// Returns the number of a constant with one element.
pub(super) fn only(constant: &Constant) -> Option<f64> {
    (constant.len() == 1).then(|| constant.to_floats()[0])
}
