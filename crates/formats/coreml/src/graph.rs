//! Layers and operations as a program.

use crate::describe;
use crate::dtype::{self, Stored};
use crate::schema::Kind;
use crate::tree::{File, Message, Plain, Range, varints};
use std::collections::HashSet;
use std::sync::Arc;
use weighbridge_core::error::Result;
use weighbridge_core::topology::{
    Attribute, AttributeValue, Block, Endpoint, Operator, Slot, Topology, Variable, VariableKind,
};
use weighbridge_io::source::read_vec;

/// Form of a program that is a model of Core ML.
pub(crate) const FORM: &str = "coreml";
/// Memory of a variable, an operator or an attribute, besides its texts.
const ENTRY: u64 = 300;
/// Memory of an argument, besides its text.
const ITEM: u64 = 40;
/// Messages with tensors or with a program of their own.
const OTHER: [&str; 4] = ["WeightParams", "NeuralNetwork", "NeuralNetworkLayer", "Pipeline"];

/// Program in the making.
pub(crate) struct Builder<'a> {
    file: &'a File,
    blocks: Vec<Block>,
    declared: Vec<HashSet<String>>,
}

impl<'a> Builder<'a> {
    /// Creates an empty program.
    pub(crate) fn new(file: &'a File) -> Self {
        Self { file, blocks: Vec::new(), declared: Vec::new() }
    }

    /// Adds a block, and returns its number.
    pub(crate) fn block(&mut self, parent: Option<usize>) -> Result<usize> {
        self.file.budget.take_memory(ENTRY)?;
        self.blocks.push(Block { parent, ..Block::default() });
        self.declared.push(HashSet::new());
        Ok(self.blocks.len() - 1)
    }

    /// Declares a variable, unless the block has one of its name.
    pub(crate) fn declare(&mut self, block: usize, variable: Variable) -> Result<()> {
        let rank = variable.shape.as_ref().map_or(0, |shape| shape.len() as u64);
        self.file.budget.take_memory(ENTRY + 2 * variable.name.len() as u64 + 8 * rank)?;
        if self.declared.get_mut(block).is_some_and(|declared| declared.insert(variable.name.clone()))
            && let Some(block) = self.blocks.get_mut(block)
        {
            block.variables.push(variable);
        }
        Ok(())
    }

    /// Adds the name of a value passed to a block.
    pub(crate) fn argument(&mut self, block: usize, name: &str) -> Result<()> {
        self.file.budget.take_memory(ITEM + name.len() as u64)?;
        if let Some(block) = self.blocks.get_mut(block) {
            block.arguments.push(name.to_owned());
        }
        Ok(())
    }

    /// Adds an operator.
    pub(crate) fn operator(&mut self, block: usize, operator: Operator) -> Result<()> {
        self.file.budget.take_memory(ENTRY + operator.kind.len() as u64)?;
        if let Some(block) = self.blocks.get_mut(block) {
            block.operators.push(operator);
        }
        Ok(())
    }

    /// Returns a group of arguments.
    pub(crate) fn slot<'n>(&self, name: &str, names: impl Iterator<Item = &'n str>) -> Result<Slot> {
        self.file.budget.take_memory(ITEM + name.len() as u64)?;
        let mut slot = Slot { name: name.to_owned(), arguments: Vec::new() };
        for name in names {
            self.file.budget.take_memory(ITEM + name.len() as u64)?;
            slot.arguments.push(name.to_owned());
        }
        Ok(slot)
    }

    /// Declares the inputs and outputs of a model.
    pub(crate) fn ports(&mut self, block: usize, model: &Message<'a>) -> Result<()> {
        for feature in describe::ports(model, "input").chain(describe::ports(model, "output")) {
            let endpoint = self.endpoint(&feature)?;
            let mut variable = variable(endpoint.name);
            (variable.dtype, variable.shape) = (endpoint.dtype, endpoint.shape);
            self.declare(block, variable)?;
        }
        Ok(())
    }

    fn endpoint(&self, feature: &Message<'a>) -> Result<Endpoint> {
        let name = feature.text("name").to_owned();
        let (dtype, shape) = describe::array(feature)?;
        self.file.budget.take_memory(ITEM + name.len() as u64)?;
        Ok(Endpoint { name, dtype, shape })
    }

    /// Returns the program of a model.
    pub(crate) fn finish(mut self, model: &Message<'a>) -> Result<Topology> {
        if self.blocks.is_empty() {
            self.block(None)?;
        }
        self.ports(0, model)?;
        let [feeds, fetches] = ["input", "output"].map(|list| {
            describe::ports(model, list).map(|feature| self.endpoint(&feature)).collect::<Result<Vec<_>>>()
        });
        Ok(Topology {
            form: FORM,
            writer: describe::writer(model),
            bytes: Arc::new([]),
            feeds: feeds?,
            fetches: fetches?,
            blocks: self.blocks,
            operator_versions: Vec::new(),
        })
    }
}

/// Returns a value that a run computes.
pub(crate) fn variable(name: String) -> Variable {
    Variable {
        name,
        kind: VariableKind::Tensor,
        dtype: None,
        dtype_name: None,
        shape: None,
        lod_level: 0,
        persistable: false,
        parameter: false,
        stop_gradient: false,
    }
}

/// Returns the variable of a named value of a program.
pub(crate) fn typed(value: &Message<'_>) -> Result<Variable> {
    let mut variable = variable(value.text("name").to_owned());
    let Some(kind) = value.message("type") else { return Ok(variable) };
    let Some(tensor) = tensor_type(&kind) else {
        let word = kind.fields().map(|(field, _)| field.name).last();
        variable.kind = VariableKind::Other(word.unwrap_or("unknown").to_owned());
        return Ok(variable);
    };
    let number = tensor.number("dataType");
    variable.dtype = dtype::of_number(number).and_then(|stored| match stored {
        Stored::Plain(dtype) => Some(dtype),
        Stored::Packed(..) => None,
    });
    variable.dtype_name = Some(match value.file.schema.word("DataType", number) {
        Some(word) => word.to_owned(),
        None => number.to_string(),
    });
    let size = |dimension: Message<'_>| {
        let constant = dimension.message("constant");
        constant.and_then(|constant| i64::try_from(constant.number("size")).ok()).unwrap_or(-1)
    };
    variable.shape = Some(tensor.messages("dimensions").map(size).collect());
    Ok(variable)
}

/// Returns the type of a tensor, or of the tensor in a state.
pub(crate) fn tensor_type<'a>(kind: &Message<'a>) -> Option<Message<'a>> {
    let state = || kind.message("stateType")?.message("wrappedType")?.message("tensorType");
    kind.message("tensorType").or_else(state)
}

/// Adds the plain fields of a message as attributes. Fields of messages in it are joined by dots.
pub(crate) fn attributes(message: &Message<'_>, prefix: &str, all: &mut Vec<Attribute>) -> Result<()> {
    let budget = &message.file.budget;
    // Entries of a map have the name of their key.
    let is_entry = message.name().ends_with("Entry");
    let is_value = message.name().ends_with("ParamValue");
    let key = if is_entry { message.text("key") } else { "" };
    for (field, value) in message.fields() {
        let own = if is_entry { key } else { field.name };
        let name = match (is_entry && field.name == "key", is_value, prefix.is_empty()) {
            (true, ..) => continue,
            (_, true, _) => prefix.to_owned(),
            (.., true) => own.to_owned(),
            _ => format!("{prefix}.{own}"),
        };
        let value = match (value, field.kind) {
            (Plain::Message(inner), _) if OTHER.contains(&inner.name()) => continue,
            (Plain::Message(inner), _) => {
                budget.take_memory(name.len() as u64)?;
                if inner.fields().next().is_some() {
                    attributes(&inner, &name, all)?;
                    continue;
                }
                AttributeValue::None
            }
            (Plain::Text(text), _) => AttributeValue::Text(text.to_owned()),
            (Plain::Number(number), kind) => scalar(message, kind, number),
            (Plain::Range(range), Kind::Float | Kind::Double | Kind::Bytes | Kind::Message(_)) => {
                // Lists of floats are tensors, and other bytes are reported.
                if !matches!(field.name, "fractionalScalingFactor") {
                    continue;
                }
                floats(message.file, range)?
            }
            (Plain::Range(range), kind) => {
                budget.take_memory(range.len.saturating_mul(40))?;
                let numbers = varints(message.file, range)?;
                AttributeValue::List(
                    numbers.into_iter().map(|number| scalar(message, kind, number)).collect(),
                )
            }
        };
        let text = if let AttributeValue::Text(text) = &value { text.len() as u64 } else { 0 };
        budget.take_memory(ENTRY + name.len() as u64 + text)?;
        push(all, Attribute { name, kind: String::new(), value }, field.is_list);
    }
    Ok(())
}

/// Adds an attribute. Texts of a list are one attribute.
fn push(all: &mut Vec<Attribute>, attribute: Attribute, is_list: bool) {
    if !is_list || matches!(attribute.value, AttributeValue::List(_) | AttributeValue::None) {
        return all.push(attribute);
    }
    match all.last_mut().filter(|last| last.name == attribute.name) {
        Some(Attribute { value: AttributeValue::List(values), .. }) => values.push(attribute.value),
        _ => all.push(Attribute { value: AttributeValue::List(vec![attribute.value]), ..attribute }),
    }
}

fn floats(file: &File, range: Range) -> Result<AttributeValue> {
    file.budget.take_memory(range.len.saturating_mul(10))?;
    let bytes = read_vec(&*file.source, range.at, range.len)?;
    let numbers = bytes.as_chunks::<4>().0.iter();
    Ok(AttributeValue::List(numbers.map(|bytes| AttributeValue::Float(f32::from_le_bytes(*bytes))).collect()))
}

fn scalar(message: &Message<'_>, kind: Kind, number: u64) -> AttributeValue {
    match kind {
        Kind::Bool => AttributeValue::Bool(number != 0),
        Kind::Float => AttributeValue::Float(f32::from_bits(u32::try_from(number).unwrap_or(0))),
        Kind::Double => AttributeValue::Double(f64::from_bits(number)),
        Kind::Enum(name) => match message.file.schema.word(name, number) {
            Some(word) => AttributeValue::Word(word.to_owned()),
            None => AttributeValue::Int(number.cast_signed()),
        },
        _ => AttributeValue::Int(number.cast_signed()),
    }
}
