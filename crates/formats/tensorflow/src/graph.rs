//! Graph of operators: `GraphDef` with its functions. Elements of constants are skipped, not read.

use crate::dtype;
use crate::values::{self, Run};
use crate::wire::{Fields, Reader, Value, text};
use std::collections::HashMap;
use weighbridge_core::budget::Budget;
use weighbridge_core::checkpoint::{Name, TensorPath};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::topology::{
    Attribute, AttributeValue, Block, Endpoint, Operator, Slot, Variable, VariableKind,
};

/// Memory of an operator, an attribute or a name, besides its text.
const ENTRY: u64 = 200;
/// Maximum bytes of an attribute whose value is shown.
const MAX_VALUE: u64 = 4096;
/// Name of the slot with the operators that come before, without a value.
const CONTROL: &str = "control";

/// Tensor of an operator `Const`.
#[derive(Debug, Clone)]
pub(crate) struct Constant {
    /// Path: that of the operator, below the name of its function.
    pub(crate) path: TensorPath,
    /// Name of the operator in its block.
    pub(crate) node: String,
    /// Block.
    pub(crate) block: usize,
    /// Offset of the message.
    pub(crate) at: u64,
    /// Number of the dtype.
    pub(crate) dtype: u64,
    /// Sizes of the dimensions.
    pub(crate) dims: Vec<i64>,
    /// Elements.
    pub(crate) runs: Vec<Run>,
}

/// Graphs of a file.
#[derive(Debug)]
pub(crate) struct Graph {
    /// Blocks: the main graph, and one for each function.
    pub(crate) blocks: Vec<Block>,
    /// Constants, in the order of the file.
    pub(crate) constants: Vec<Constant>,
    /// Versions: producer, and the oldest consumer.
    pub(crate) producer: Option<u64>,
    /// Names of functions, by their blocks.
    pub(crate) functions: Vec<(String, usize)>,
    /// Error of the damaged part of a salvaged graph.
    pub(crate) damage: Option<Error>,
}

/// Parser of graphs.
pub(crate) struct Parser<'a> {
    /// Reader of the file.
    pub(crate) reader: &'a mut Reader,
    /// Budget.
    pub(crate) budget: &'a Budget,
    /// Limits.
    pub(crate) limits: &'a Limits,
    /// Graphs so far.
    pub(crate) graph: Graph,
}

impl Graph {
    /// Creates an empty graph.
    pub(crate) fn new() -> Self {
        Self {
            blocks: vec![Block::default()],
            constants: Vec::new(),
            producer: None,
            functions: Vec::new(),
            damage: None,
        }
    }

    /// Completes the blocks: outputs that only inputs name, and bodies of calls.
    pub(crate) fn finish(&mut self) {
        let functions: HashMap<&str, usize> =
            self.functions.iter().map(|(name, block)| (name.as_str(), *block)).collect();
        for block in &mut self.blocks {
            let mut places: HashMap<String, usize> = HashMap::new();
            for (place, operator) in block.operators.iter().enumerate() {
                places.extend(node_name(operator).map(|name| (name.to_owned(), place)));
            }
            let named = block.operators.iter().flat_map(|o| &o.inputs).flat_map(|slot| &slot.arguments);
            let mut more: Vec<(usize, String)> = named
                .filter(|name| name.contains(':'))
                .filter_map(|name| Some((*places.get(name.split(':').next()?)?, name.clone())))
                .collect();
            more.sort();
            more.dedup();
            for (place, name) in more {
                if let Some(slot) = block.operators.get_mut(place).and_then(|o| o.outputs.first_mut()) {
                    slot.arguments.push(name);
                }
            }
            for operator in &mut block.operators {
                let called = operator.attributes.iter().filter_map(|attribute| match &attribute.value {
                    AttributeValue::Word(name) if attribute.kind == "func" => functions.get(name.as_str()),
                    _ => None,
                });
                let mut blocks: Vec<usize> = called.copied().collect();
                blocks.extend(functions.get(operator.kind.as_str()));
                operator.blocks = blocks;
            }
        }
    }

    /// Returns the inputs of the main graph: its placeholders.
    pub(crate) fn placeholders(&self) -> Vec<Endpoint> {
        let Some(main) = self.blocks.first() else { return Vec::new() };
        let declared: HashMap<&str, &Variable> =
            main.variables.iter().map(|v| (v.name.as_str(), v)).collect();
        let placeholders = main.operators.iter().filter(|operator| is_placeholder(&operator.kind));
        placeholders
            .filter_map(|operator| {
                let name = node_name(operator)?;
                let variable = declared.get(name);
                Some(Endpoint {
                    name: name.to_owned(),
                    dtype: variable.and_then(|v| v.dtype),
                    shape: variable.and_then(|v| v.shape.clone()),
                })
            })
            .collect()
    }

    /// Returns the outputs of the main graph, as far as its operators show them: values that no operator reads.
    pub(crate) fn sinks(&self) -> Vec<Endpoint> {
        let Some(main) = self.blocks.first() else { return Vec::new() };
        let slots = main.operators.iter().flat_map(|operator| &operator.inputs);
        let read: std::collections::HashSet<&str> =
            slots.flat_map(|slot| &slot.arguments).filter_map(|name| name.split(':').next()).collect();
        let is_sink = |operator: &&Operator| {
            let plain = !matches!(operator.kind.as_str(), "Const" | "NoOp" | "Assert")
                && !is_placeholder(&operator.kind);
            plain && node_name(operator).is_some_and(|name| !read.contains(name))
        };
        let sinks = main.operators.iter().filter(is_sink);
        sinks
            .filter_map(|operator| {
                Some(Endpoint { name: node_name(operator)?.to_owned(), dtype: None, shape: None })
            })
            .collect()
    }
}

fn is_placeholder(kind: &str) -> bool {
    matches!(kind, "Placeholder" | "PlaceholderV2" | "PlaceholderWithDefault")
}

/// Returns the name of the node of an operator: that of its first output.
pub(crate) fn node_name(operator: &Operator) -> Option<&str> {
    operator.outputs.first()?.arguments.first().map(String::as_str)
}

impl Parser<'_> {
    /// Parses a `GraphDef` that ends at `end` as the main block.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`], with the offset; [`weighbridge_core::Kind::Limit`].
    pub(crate) fn graph(&mut self, end: u64) -> Result<()> {
        while let Some((number, value)) = self.reader.next(end)? {
            match (number, value) {
                (1, Value::Bytes(stop)) => self.node(stop, 0, None)?,
                (2, Value::Bytes(stop)) => self.library(stop)?,
                (4, Value::Bytes(stop)) => {
                    while let Some((number, value)) = self.reader.next(stop)? {
                        match (number, value) {
                            (1, Value::Varint(version)) => self.graph.producer = Some(version),
                            (_, Value::Bytes(stop)) => self.reader.skip_to(stop)?,
                            _ => {}
                        }
                    }
                }
                (_, Value::Bytes(stop)) => self.reader.skip_to(stop)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn library(&mut self, end: u64) -> Result<()> {
        while let Some((number, value)) = self.reader.next(end)? {
            match (number, value) {
                (1, Value::Bytes(stop)) => self.function(stop)?,
                (_, Value::Bytes(stop)) => self.reader.skip_to(stop)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn function(&mut self, end: u64) -> Result<()> {
        self.budget.take_memory(ENTRY)?;
        let block = self.graph.blocks.len();
        self.graph.blocks.push(Block::default());
        let mut name = format!("function_{block}");
        // The signature comes first.
        while let Some((number, value)) = self.reader.next(end)? {
            match (number, value) {
                (1, Value::Bytes(stop)) => name = self.signature(stop, block)?,
                (3, Value::Bytes(stop)) => self.node(stop, block, Some(&name))?,
                (_, Value::Bytes(stop)) => self.reader.skip_to(stop)?,
                _ => {}
            }
        }
        self.graph.functions.push((name, block));
        Ok(())
    }

    fn signature(&mut self, end: u64, block: usize) -> Result<String> {
        let mut name = String::new();
        while let Some((number, value)) = self.reader.next(end)? {
            match (number, value) {
                (1, Value::Bytes(stop)) => name = self.text(stop)?,
                (2, Value::Bytes(stop)) => {
                    while let Some((number, value)) = self.reader.next(stop)? {
                        match (number, value) {
                            (1, Value::Bytes(stop)) => {
                                let argument = self.text(stop)?;
                                if let Some(block) = self.graph.blocks.get_mut(block) {
                                    block.arguments.push(argument);
                                }
                            }
                            (_, Value::Bytes(stop)) => self.reader.skip_to(stop)?,
                            _ => {}
                        }
                    }
                }
                (_, Value::Bytes(stop)) => self.reader.skip_to(stop)?,
                _ => {}
            }
        }
        Ok(name)
    }

    /// Reads a text up to `end`.
    pub(crate) fn text(&mut self, end: u64) -> Result<String> {
        let len = end.saturating_sub(self.reader.position());
        Limits::check("bytes in a name", "name_bytes", len, self.limits.name_bytes)?;
        self.budget.take_memory(ENTRY.saturating_add(len))?;
        Ok(text(&self.reader.bytes_to(end)?))
    }

    fn node(&mut self, end: u64, block: usize, function: Option<&str>) -> Result<()> {
        self.budget.take_memory(2 * ENTRY)?;
        let mut operator = Operator::default();
        let mut name = String::new();
        let (mut inputs, mut control) = (Vec::new(), Vec::new());
        let mut tensor = None;
        while let Some((number, value)) = self.reader.next(end)? {
            match (number, value) {
                (1, Value::Bytes(stop)) => name = self.text(stop)?,
                (2, Value::Bytes(stop)) => operator.kind = self.text(stop)?,
                (3, Value::Bytes(stop)) => {
                    let input = self.text(stop)?;
                    match input.strip_prefix('^') {
                        Some(before) => control.push(before.to_owned()),
                        None => inputs.push(
                            input
                                .strip_suffix(":0")
                                .filter(|_| function.is_none())
                                .unwrap_or(&input)
                                .to_owned(),
                        ),
                    }
                }
                (5, Value::Bytes(stop)) => {
                    let (attribute, value) = self.attribute(stop)?;
                    if attribute.name == "value" {
                        tensor = value;
                    }
                    operator.attributes.push(attribute);
                }
                (_, Value::Bytes(stop)) => self.reader.skip_to(stop)?,
                _ => {}
            }
        }
        // A function names the output of an operator, too: `NODE:OUTPUT:0`.
        let slot = |name: &str, arguments| Slot { name: name.to_owned(), arguments };
        operator.inputs.extend((!inputs.is_empty()).then(|| slot("", inputs)));
        operator.inputs.extend((!control.is_empty()).then(|| slot(CONTROL, control)));
        operator.outputs.push(slot("", vec![name.clone()]));
        let Some(own) = self.graph.blocks.get_mut(block) else { return Ok(()) };
        own.variables.extend(declared(&operator, &name));
        if let Some(tensor) = tensor.filter(|_| operator.kind == "Const") {
            let parts = function.into_iter().chain(name.split('/')).map(Name::from);
            let path = TensorPath::new(parts.collect::<Vec<_>>());
            Limits::check(
                "parts in a name",
                "path_parts",
                path.parts().len() as u64,
                self.limits.path_parts,
            )?;
            Limits::check("tensors", "tensors", self.graph.constants.len() as u64, self.limits.tensors)?;
            self.budget.take_memory(ENTRY.saturating_add(2 * name.len() as u64))?;
            self.graph.constants.push(Constant { path, node: name, block, ..tensor });
        }
        own.operators.push(operator);
        Ok(())
    }

    /// Reads an entry of the map of attributes, and the tensor that is its value.
    fn attribute(&mut self, end: u64) -> Result<(Attribute, Option<Constant>)> {
        let mut attribute =
            Attribute { name: String::new(), kind: String::new(), value: AttributeValue::None };
        let mut tensor = None;
        while let Some((number, value)) = self.reader.next(end)? {
            match (number, value) {
                (1, Value::Bytes(stop)) => attribute.name = self.text(stop)?,
                (2, Value::Bytes(stop)) => {
                    while let Some((number, value)) = self.reader.next(stop)? {
                        self.value(number, value, &mut attribute, &mut tensor)?;
                    }
                }
                (_, Value::Bytes(stop)) => self.reader.skip_to(stop)?,
                _ => {}
            }
        }
        Ok((attribute, tensor))
    }

    fn value(
        &mut self,
        number: u32,
        value: Value<u64>,
        attribute: &mut Attribute,
        tensor: &mut Option<Constant>,
    ) -> Result<()> {
        let (kind, shown) = match (number, value) {
            (3, Value::Varint(value)) => ("int", AttributeValue::Int(value.cast_signed())),
            (4, Value::Fixed32(value)) => ("float", AttributeValue::Float(f32::from_bits(value))),
            (5, Value::Varint(value)) => ("bool", AttributeValue::Bool(value != 0)),
            (6, Value::Varint(value)) => ("type", AttributeValue::Word(type_name(value))),
            (8, Value::Bytes(stop)) => {
                let constant = self.tensor(stop)?;
                let shown = format!("{} {}", type_name(constant.dtype), dims_text(&constant.dims));
                *tensor = Some(constant);
                ("tensor", AttributeValue::Word(shown))
            }
            (_, Value::Bytes(stop)) => {
                let len = stop.saturating_sub(self.reader.position());
                if len > MAX_VALUE {
                    self.reader.skip_to(stop)?;
                    attribute.kind = "bytes".to_owned();
                    attribute.value = AttributeValue::Word(format!("{len} bytes"));
                    return Ok(());
                }
                self.budget.take_memory(ENTRY.saturating_add(40 * len))?;
                let bytes = self.reader.bytes_to(stop)?;
                match number {
                    1 => ("list", AttributeValue::List(list(&bytes)?)),
                    2 => ("string", text_value(&bytes)),
                    7 => ("shape", AttributeValue::Word(dims_text(&crate::bundle::dims(&bytes)?))),
                    10 => ("func", AttributeValue::Word(function_name(&bytes)?)),
                    9 => ("placeholder", AttributeValue::Variable(text(&bytes))),
                    _ => return Ok(()),
                }
            }
            _ => return Ok(()),
        };
        attribute.kind = kind.to_owned();
        attribute.value = shown;
        Ok(())
    }

    /// Reads a `TensorProto`, and skips its elements.
    fn tensor(&mut self, end: u64) -> Result<Constant> {
        let at = self.reader.position();
        let mut constant = Constant {
            path: TensorPath::default(),
            node: String::new(),
            block: 0,
            at,
            dtype: 0,
            dims: Vec::new(),
            runs: Vec::new(),
        };
        loop {
            let Some((number, value)) = self.reader.next(end)? else { return Ok(constant) };
            match (number, value) {
                (1, Value::Varint(value)) => constant.dtype = value,
                (2, Value::Bytes(stop)) => {
                    let len = stop.saturating_sub(self.reader.position());
                    Limits::check_part("bytes of a shape", "header_bytes", len, self.limits.header_bytes, 1)?;
                    self.budget.take_memory(4 * len)?;
                    constant.dims = crate::bundle::dims(&self.reader.bytes_to(stop)?)?;
                }
                (field, Value::Bytes(stop)) => {
                    if values::is_data(field) {
                        let at = self.reader.position();
                        let run = Run { field, at, len: stop.saturating_sub(at), is_varint: false };
                        self.push(&mut constant, run)?;
                    }
                    self.reader.skip_to(stop)?;
                }
                // A number outside a list ends here.
                (field, number) if values::is_data(field) => {
                    let is_varint = matches!(number, Value::Varint(_));
                    let at = self.reader.value_at();
                    let len = self.reader.position().saturating_sub(at);
                    self.push(&mut constant, Run { field, at, len, is_varint })?;
                }
                _ => {}
            }
        }
    }

    fn push(&self, constant: &mut Constant, run: Run) -> Result<()> {
        self.budget.take_memory(2 * size_of::<Run>() as u64)?;
        constant.runs.push(run);
        Ok(())
    }
}

/// Returns the variable that an operator declares, if its attributes state dtype or shape.
fn declared(operator: &Operator, name: &str) -> Option<Variable> {
    let word = |key: &str| match operator.attribute(key) {
        Some(AttributeValue::Word(word)) => Some(word.clone()),
        _ => None,
    };
    if !is_placeholder(&operator.kind) && operator.kind != "Const" {
        return None;
    }
    let dtype_name = word("dtype");
    let shape = match operator.kind.as_str() {
        "Const" => word("value").and_then(|value| parse_dims(value.split_once(' ')?.1)),
        _ => word("shape").and_then(|shape| parse_dims(&shape)),
    };
    Some(Variable {
        name: name.to_owned(),
        kind: VariableKind::Tensor,
        dtype: dtype_name.as_deref().and_then(dtype::of_name),
        dtype_name,
        shape,
        lod_level: 0,
        persistable: false,
        parameter: false,
        stop_gradient: false,
    })
}

/// Returns dimensions as `[3, ?]`.
pub(crate) fn dims_text(dims: &[i64]) -> String {
    let one = |size: &i64| if *size < 0 { "?".to_owned() } else { size.to_string() };
    format!("[{}]", dims.iter().map(one).collect::<Vec<_>>().join(", "))
}

fn parse_dims(text: &str) -> Option<Vec<i64>> {
    let inner = text.strip_prefix('[')?.strip_suffix(']')?;
    let sizes = inner.split(", ").filter(|size| !size.is_empty());
    sizes.map(|size| if size == "?" { Some(-1) } else { size.parse().ok() }).collect()
}

/// Returns the name of a dtype in TensorFlow, also for references and unknown numbers.
pub(crate) fn type_name(number: u64) -> String {
    const REFERENCE: u64 = 100;
    match (dtype::name(number), number.checked_sub(REFERENCE).and_then(dtype::name)) {
        (Some(name), _) => name.to_owned(),
        (None, Some(name)) => format!("{name}_ref"),
        (None, None) => format!("type {number}"),
    }
}

fn text_value(bytes: &[u8]) -> AttributeValue {
    match std::str::from_utf8(bytes) {
        Ok(text) => AttributeValue::Text(text.to_owned()),
        Err(_) => AttributeValue::Bytes(bytes.to_vec()),
    }
}

fn function_name(bytes: &[u8]) -> Result<String> {
    for field in Fields::of(bytes) {
        let field = field?;
        if field.number == 1 {
            return Ok(field.text().unwrap_or_default());
        }
    }
    Ok(String::new())
}

/// Parses a list of values.
fn list(bytes: &[u8]) -> Result<Vec<AttributeValue>> {
    let mut all = Vec::new();
    for field in Fields::of(bytes) {
        let field = field?;
        let number = |value: u64| match field.number {
            5 => AttributeValue::Bool(value != 0),
            6 => AttributeValue::Word(type_name(value)),
            _ => AttributeValue::Int(value.cast_signed()),
        };
        match (field.number, field.value) {
            (2, Value::Bytes(bytes)) => all.push(text_value(bytes)),
            (3 | 5 | 6, Value::Varint(value)) => all.push(number(value)),
            (3 | 5 | 6, Value::Bytes(mut bytes)) => {
                while let Some((value, rest)) = crate::wire::varint(bytes) {
                    all.push(number(value));
                    bytes = rest;
                }
            }
            (4, Value::Fixed32(value)) => all.push(AttributeValue::Float(f32::from_bits(value))),
            (4, Value::Bytes(bytes)) => {
                let floats = bytes.as_chunks::<4>().0.iter();
                all.extend(floats.map(|float| AttributeValue::Float(f32::from_le_bytes(*float))));
            }
            (7, Value::Bytes(shape)) => {
                all.push(AttributeValue::Word(dims_text(&crate::bundle::dims(shape)?)))
            }
            (9, Value::Bytes(function)) => all.push(AttributeValue::Word(function_name(function)?)),
            _ => {}
        }
    }
    Ok(all)
}
