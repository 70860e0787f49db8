//! Content of a model: its program, the descriptions of its tensors, and metadata, from the [skeleton](crate::skeleton).

use crate::dtype;
use crate::wire::{Field, Fields, Value as Wire};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use weighbridge_core::budget::Budget;
use weighbridge_core::checkpoint::{Name, TensorPath, Value, escape_text};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::topology::{
    Attribute, AttributeValue, Block, Endpoint, Operator, Slot, Topology, Variable, VariableKind,
};

/// Form of a program that is an ONNX model.
pub(crate) const FORM: &str = "onnx";
/// Domain of the standard operators, in full.
const STANDARD: &str = "ai.onnx";
/// Memory of an entry of the index, of a node or of a variable, besides its names.
const ENTRY: u64 = 300;

/// Metadata keys with a field of their own.
pub(crate) const FIELDS: [&str; 8] = [
    "ir_version",
    "opset",
    "producer_name",
    "producer_version",
    "domain",
    "model_version",
    "doc_string",
    "graph_name",
];

/// Content of a model.
#[derive(Debug)]
pub(crate) struct Content {
    /// Program.
    pub(crate) topology: Topology,
    /// Tensors, in the order of the file.
    pub(crate) tensors: Vec<Described>,
    /// Metadata.
    pub(crate) metadata: Vec<(String, Value)>,
    /// Names of the outputs of all graphs and functions.
    pub(crate) outputs: Vec<String>,
    /// Kinds of operators that functions of the model define.
    #[cfg_attr(not(feature = "scan"), expect(dead_code, reason = "scans need it"))]
    pub(crate) functions: Vec<String>,
}

/// Tensor as the model describes it.
#[derive(Debug, Clone)]
pub(crate) struct Described {
    /// Path in the index.
    pub(crate) path: TensorPath,
    /// Graph or node that the tensor belongs to: all but the last part of the path, which is its own name.
    pub(crate) prefix: TensorPath,
    /// Place in the model.
    pub(crate) place: Place,
    /// Block with the value of the tensor.
    pub(crate) block: usize,
    /// True if another tensor has the same name.
    pub(crate) is_duplicate: bool,
    /// Fields.
    pub(crate) header: Header,
}

/// Place of a tensor in a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// Initializer of a graph: a value of this name.
    Initializer(String),
    /// Value of a node `Constant`: a value of this name.
    Constant(String),
    /// Values of a sparse tensor with this shape.
    SparseValues(Vec<i64>),
    /// Indices of a sparse tensor.
    SparseIndices,
    /// Attribute of a node.
    Attribute,
}

impl Place {
    /// Returns the name of the value in its graph, if the tensor is one.
    pub(crate) fn value(&self) -> Option<&str> {
        match self {
            Self::Initializer(name) | Self::Constant(name) => Some(name),
            _ => None,
        }
    }
}

/// Fields of a tensor, without elements.
#[derive(Debug, Clone, Default)]
pub(crate) struct Header {
    /// Name.
    pub(crate) name: String,
    /// Sizes of the dimensions.
    pub(crate) dims: Vec<i64>,
    /// Number of the dtype.
    pub(crate) dtype: i64,
    /// Keys and values that locate external elements.
    pub(crate) external: Vec<(String, String)>,
    /// True for elements in another file.
    pub(crate) is_external: bool,
    /// Number of texts.
    pub(crate) texts: u64,
}

impl Header {
    /// Parses the message of a tensor in the skeleton.
    pub(crate) fn parse(message: &[u8]) -> Result<Self> {
        let mut header = Self::default();
        for field in Fields::of(message) {
            let field = field?;
            match field.number {
                1 => field.ints(&mut header.dims),
                2 => header.dtype = field.int().unwrap_or(0),
                6 => header.texts += 1,
                8 => header.name = field.text().unwrap_or_default(),
                13 => header.external.extend(field.bytes().map(pair).transpose()?),
                14 => header.is_external = field.int() == Some(1),
                _ => {}
            }
        }
        Ok(header)
    }

    /// Returns the value of an entry about external elements.
    pub(crate) fn external(&self, key: &str) -> Option<&str> {
        self.external.iter().find(|(own, _)| own == key).map(|(_, value)| value.as_str())
    }
}

/// Parses a pair of texts.
pub(crate) fn pair(message: &[u8]) -> Result<(String, String)> {
    let (mut key, mut value) = (String::new(), String::new());
    for field in Fields::of(message) {
        let field = field?;
        match field.number {
            1 => key = field.text().unwrap_or_default(),
            2 => value = field.text().unwrap_or_default(),
            _ => {}
        }
    }
    Ok((key, value))
}

/// Type of a value.
#[derive(Debug, Default)]
struct Type {
    kind: Option<VariableKind>,
    dtype: i64,
    shape: Option<Vec<i64>>,
}

/// Parses a skeleton.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`] for malformed messages; [`weighbridge_core::Kind::Limit`].
pub(crate) fn parse(skeleton: &[u8], budget: &Budget) -> Result<Content> {
    let topology = Topology {
        form: FORM,
        writer: None,
        bytes: Arc::from(skeleton),
        blocks: vec![Block::default()],
        feeds: Vec::new(),
        fetches: Vec::new(),
        operator_versions: Vec::new(),
    };
    let mut parser = Parser {
        topology,
        tensors: Vec::new(),
        variables: vec![HashMap::new()],
        texts: HashMap::new(),
        budget: budget.clone(),
        metadata: Vec::new(),
        keys: HashMap::new(),
        outputs: Vec::new(),
        fetches: Vec::new(),
        functions: Vec::new(),
    };
    parser.model(skeleton)?;
    let Parser { topology, tensors, metadata, outputs, functions, .. } = parser;
    Ok(Content { topology, tensors, metadata, outputs, functions })
}

/// Parses the skeleton of an opened checkpoint, which was within the limits before.
pub(crate) fn parse_again(topology: &Topology) -> Result<Content> {
    parse(&topology.bytes, &Budget::new(u64::MAX, &Limits::default()))
}

struct Parser {
    topology: Topology,
    tensors: Vec<Described>,
    /// Index of each variable of a block.
    variables: Vec<HashMap<String, usize>>,
    /// Names of tensors, each with the next suffix.
    texts: HashMap<String, u64>,
    budget: Budget,
    metadata: Vec<(String, Value)>,
    /// Places of keys in the metadata.
    keys: HashMap<String, usize>,
    outputs: Vec<String>,
    /// Names of the outputs of the main graph.
    fetches: Vec<String>,
    functions: Vec<String>,
}

impl Parser {
    fn model(&mut self, message: &[u8]) -> Result<()> {
        let (mut producer, mut version) = (String::new(), String::new());
        let mut properties = Vec::new();
        let (mut inputs, mut steps) = (Vec::new(), 0);
        for field in Fields::of(message) {
            let field = field?;
            match (field.number, field.bytes()) {
                (1, None) => self.set("ir_version", Value::I64(field.int().unwrap_or(0)))?,
                (2, Some(_)) => producer = field.text().unwrap_or_default(),
                (3, Some(_)) => version = field.text().unwrap_or_default(),
                (4, Some(_)) => self.text("domain", &field)?,
                (5, None) => self.set("model_version", Value::I64(field.int().unwrap_or(0)))?,
                (6, Some(_)) => self.text("doc_string", &field)?,
                (7, Some(graph)) => inputs.extend(self.graph(graph, 0, &TensorPath::default())?),
                (8, Some(opset)) => self.opset(opset)?,
                (14, Some(property)) => properties.push(pair(property)?),
                (20, Some(step)) => {
                    let path = TensorPath::new([Name::from(format!("training_{steps}").as_str())]);
                    steps += 1;
                    self.training(step, &path)?;
                }
                (25, Some(function)) => self.function(function)?,
                _ => {}
            }
        }
        for (key, text) in [("producer_name", &producer), ("producer_version", &version)] {
            if !text.is_empty() {
                self.set(key, Value::Text(text.clone()))?;
            }
        }
        if !producer.is_empty() {
            self.topology.writer = Some(format!("{producer} {version}").trim_end().to_owned());
        }
        let versions = &self.topology.operator_versions;
        let opset = match versions.as_slice() {
            [(domain, version)] if is_standard(domain) => Value::I64(*version),
            _ => Value::Map(
                versions.iter().map(|(name, v)| (Name::from(name.as_str()), Value::I64(*v))).collect(),
            ),
        };
        if !versions.is_empty() {
            self.set("opset", opset)?;
        }
        for (key, value) in properties {
            self.set(&property_key(&key), Value::Text(value))?;
        }
        self.ends(inputs);
        Ok(())
    }

    /// Sets feeds and fetches.
    fn ends(&mut self, inputs: Vec<String>) {
        let stored: HashSet<&str> =
            self.tensors.iter().filter(|t| t.block == 0).filter_map(|t| t.place.value()).collect();
        let main = self.topology.blocks.first();
        let endpoint = |name: &String| {
            let place = self.variables.first().and_then(|known| known.get(name));
            let variable = place.and_then(|&place| main.and_then(|main| main.variables.get(place)));
            Endpoint {
                name: name.clone(),
                dtype: variable.and_then(|v| v.dtype),
                shape: variable.and_then(|v| v.shape.clone()),
            }
        };
        let feeds = inputs.iter().filter(|name| !stored.contains(name.as_str())).map(endpoint).collect();
        let fetches = self.fetches.iter().map(endpoint).collect();
        (self.topology.feeds, self.topology.fetches) = (feeds, fetches);
    }

    /// Sets an entry of the metadata. The last value of a key counts.
    fn set(&mut self, key: &str, value: Value) -> Result<()> {
        match self.keys.get(key).and_then(|&place| self.metadata.get_mut(place)) {
            Some((_, old)) => *old = value,
            None => {
                self.budget.take_memory(ENTRY.saturating_add(2 * key.len() as u64))?;
                self.keys.insert(key.to_owned(), self.metadata.len());
                self.metadata.push((key.to_owned(), value));
            }
        }
        Ok(())
    }

    fn text(&mut self, key: &str, field: &Field<'_>) -> Result<()> {
        match field.text().filter(|text| !text.is_empty()) {
            Some(text) => self.set(key, Value::Text(text)),
            None => Ok(()),
        }
    }

    fn opset(&mut self, message: &[u8]) -> Result<()> {
        let (mut domain, mut version) = (String::new(), 0);
        for field in Fields::of(message) {
            let field = field?;
            match field.number {
                1 => domain = field.text().unwrap_or_default(),
                2 => version = field.int().unwrap_or(0),
                _ => {}
            }
        }
        let domain = if domain.is_empty() { STANDARD.to_owned() } else { domain };
        self.budget.take_memory(ENTRY)?;
        self.topology.operator_versions.push((domain, version));
        Ok(())
    }

    fn training(&mut self, message: &[u8], path: &TensorPath) -> Result<()> {
        for field in Fields::of(message) {
            let field = field?;
            let name = match field.number {
                1 => "initialization",
                2 => "algorithm",
                _ => continue,
            };
            if let Some(graph) = field.bytes() {
                let block = self.new_block(None)?;
                self.graph(graph, block, &below(path, name))?;
            }
        }
        Ok(())
    }

    fn function(&mut self, message: &[u8]) -> Result<()> {
        let (mut name, mut domain) = (String::new(), String::new());
        for field in Fields::of(message) {
            let field = field?;
            match field.number {
                1 => name = field.text().unwrap_or_default(),
                10 => domain = field.text().unwrap_or_default(),
                _ => {}
            }
        }
        let block = self.new_block(None)?;
        let kind = kind(&domain, &name);
        let path = TensorPath::new([Name::from(kind.as_str())]);
        self.functions.push(kind);
        for field in Fields::of(message) {
            let field = field?;
            match (field.number, field.bytes()) {
                (4, Some(_)) => {
                    let name = field.text().unwrap_or_default();
                    self.block(block).arguments.push(name);
                }
                (5, Some(_)) => self.outputs.extend(field.text()),
                (7, Some(node)) => self.node(node, block, &path)?,
                (11, Some(attribute)) => {
                    let mut operator = Operator::default();
                    self.attribute(attribute, block, &path, &mut operator)?;
                }
                (12, Some(value)) => _ = self.value(value, block)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Adds a graph to a block, and returns the names of its inputs.
    fn graph(&mut self, message: &[u8], block: usize, path: &TensorPath) -> Result<Vec<String>> {
        let mut inputs = Vec::new();
        for field in Fields::of(message) {
            let field = field?;
            let Some(bytes) = field.bytes() else { continue };
            match field.number {
                1 => self.node(bytes, block, path)?,
                2 if block == 0 => self.text("graph_name", &field)?,
                5 => {
                    let header = Header::parse(bytes)?;
                    let place = Place::Initializer(header.name.clone());
                    self.declare(block, &header, false)?;
                    self.tensor(header, place, block, path, None)?;
                }
                11 => inputs.push(self.value(bytes, block)?),
                12 => {
                    let name = self.value(bytes, block)?;
                    if block == 0 {
                        self.fetches.push(name.clone());
                    }
                    self.outputs.push(name);
                }
                13 => _ = self.value(bytes, block)?,
                15 => self.sparse(bytes, block, path, "")?,
                _ => {}
            }
        }
        if block > 0 {
            self.block(block).arguments.extend(inputs.iter().cloned());
        }
        Ok(inputs)
    }

    fn node(&mut self, message: &[u8], block: usize, path: &TensorPath) -> Result<()> {
        let (mut name, mut op, mut domain) = (String::new(), String::new(), String::new());
        let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
        self.budget.take_memory(ENTRY.saturating_add(message.len() as u64))?;
        for field in Fields::of(message) {
            let field = field?;
            let Some(text) = field.text().filter(|_| matches!(field.number, 1..=4 | 7)) else { continue };
            match field.number {
                1 => inputs.push(text),
                2 => outputs.push(text),
                3 => name = text,
                4 => op = text,
                _ => domain = text,
            }
        }
        let label = outputs.iter().find(|output| !output.is_empty());
        let label = label.or(Some(&name).filter(|name| !name.is_empty())).cloned();
        let count = self.block(block).operators.len();
        let label = label.unwrap_or_else(|| format!("node_{count}"));
        let mut operator = Operator { kind: kind(&domain, &op), ..Operator::default() };
        let is_constant = operator.kind == "Constant" && outputs.len() == 1;
        let slot = |arguments: Vec<String>| Slot { name: String::new(), arguments };
        operator.inputs.extend((!inputs.is_empty()).then(|| slot(inputs)));
        operator.outputs.extend((!outputs.is_empty()).then(|| slot(outputs)));
        // A body is in the block of the operator, whose place is known now.
        let place = match is_constant {
            true => Owner::Constant(&label),
            false => Owner::Node(&label),
        };
        self.attributes(message, block, path, place, &mut operator)?;
        self.block(block).operators.push(operator);
        Ok(())
    }

    fn attributes(
        &mut self,
        node: &[u8],
        block: usize,
        path: &TensorPath,
        owner: Owner<'_>,
        operator: &mut Operator,
    ) -> Result<()> {
        for field in Fields::of(node) {
            let field = field?;
            if let (5, Some(bytes)) = (field.number, field.bytes()) {
                match owner {
                    Owner::Constant(output) => {
                        self.constant(bytes, block, path, output, operator)?;
                    }
                    Owner::Node(label) => self.attribute(bytes, block, &below(path, label), operator)?,
                }
            }
        }
        Ok(())
    }

    /// Adds the attribute of a node `Constant`: a tensor in `value` has the name of its output.
    fn constant(
        &mut self,
        message: &[u8],
        block: usize,
        path: &TensorPath,
        output: &str,
        operator: &mut Operator,
    ) -> Result<()> {
        let mut tensors = Vec::new();
        let mut name = String::new();
        let mut is_plain = true;
        for field in Fields::of(message) {
            let field = field?;
            match (field.number, field.bytes()) {
                (1, Some(_)) => name = field.text().unwrap_or_default(),
                (5, Some(tensor)) => tensors.push(tensor),
                (6 | 10 | 11 | 22 | 23, Some(_)) => is_plain = false,
                _ => {}
            }
        }
        let [tensor] = tensors.as_slice() else {
            return self.attribute(message, block, &below(path, output), operator);
        };
        if name != "value" || !is_plain {
            return self.attribute(message, block, &below(path, output), operator);
        }
        let header = Header::parse(tensor)?;
        let shown = shown(&header);
        self.declare(block, &Header { name: output.to_owned(), ..header.clone() }, true)?;
        self.tensor(header, Place::Constant(output.to_owned()), block, path, None)?;
        operator.attributes.push(Attribute {
            name,
            kind: "TENSOR".to_owned(),
            value: AttributeValue::Word(shown),
        });
        Ok(())
    }

    fn attribute(
        &mut self,
        message: &[u8],
        block: usize,
        path: &TensorPath,
        operator: &mut Operator,
    ) -> Result<()> {
        let (mut name, mut kind, mut reference) = (String::new(), 0, None);
        for field in Fields::of(message) {
            let field = field?;
            match field.number {
                1 => name = field.text().unwrap_or_default(),
                20 => kind = field.int().unwrap_or(0),
                21 => reference = field.text().filter(|text| !text.is_empty()),
                _ => {}
            }
        }
        let path = below(path, &name);
        self.budget.take_work(path.byte_len() as u64)?;
        let mut values: Vec<(i64, AttributeValue)> = Vec::new();
        for field in Fields::of(message) {
            let field = field?;
            let (numbered, value) = match (field.number, field.value) {
                (2, Wire::Fixed32(bits)) => (1, AttributeValue::Float(f32::from_bits(bits))),
                (3, Wire::Varint(value)) => (2, AttributeValue::Int(value.cast_signed())),
                (4, Wire::Bytes(bytes)) => (3, words(bytes)),
                (5 | 10, Wire::Bytes(tensor)) => {
                    let header = Header::parse(tensor)?;
                    let shown = shown(&header);
                    let last = (field.number == 10).then(|| format!("{}", values.len()));
                    self.tensor(header, Place::Attribute, block, &path, last)?;
                    (if field.number == 5 { 4 } else { 9 }, AttributeValue::Word(shown))
                }
                (6 | 11, Wire::Bytes(graph)) => {
                    let own = self.new_block(Some(block))?;
                    let path = match field.number {
                        6 => path.clone(),
                        _ => below(&path, &values.len().to_string()),
                    };
                    self.graph(graph, own, &path)?;
                    operator.blocks.push(own);
                    (if field.number == 6 { 5 } else { 10 }, AttributeValue::Block(own))
                }
                (7, Wire::Fixed32(bits)) => (6, AttributeValue::Float(f32::from_bits(bits))),
                (7, Wire::Bytes(packed)) => {
                    let floats = packed.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b));
                    self.budget.take_memory((packed.len() as u64).saturating_mul(10))?;
                    values.extend(floats.map(|float| (6, AttributeValue::Float(float))));
                    continue;
                }
                (8, _) => {
                    let mut ints = Vec::new();
                    field.ints(&mut ints);
                    self.budget.take_memory((ints.len() as u64).saturating_mul(48))?;
                    values.extend(ints.into_iter().map(|int| (7, AttributeValue::Int(int))));
                    continue;
                }
                (9, Wire::Bytes(bytes)) => (8, words(bytes)),
                (14, Wire::Bytes(_)) => (13, AttributeValue::None),
                (15, Wire::Bytes(_)) => (14, AttributeValue::None),
                (22 | 23, Wire::Bytes(sparse)) => {
                    let last = if field.number == 23 { values.len().to_string() } else { String::new() };
                    self.sparse(sparse, block, &path, &last)?;
                    (if field.number == 22 { 11 } else { 12 }, AttributeValue::Word("sparse".to_owned()))
                }
                _ => continue,
            };
            self.budget.take_memory(64)?;
            values.push((numbered, value));
        }
        // Files before IR version 2 have no types.
        if kind == 0 {
            kind = values.first().map_or(0, |(kind, _)| *kind);
        }
        let is_list = matches!(kind, 6..=10 | 12 | 14);
        let mut values = values.into_iter().filter(|(own, _)| *own == kind).map(|(_, value)| value);
        let value = match reference {
            Some(reference) => AttributeValue::Word(format!("@{reference}")),
            None if is_list => AttributeValue::List(values.collect()),
            None => values.next_back().unwrap_or_else(|| default(kind)),
        };
        self.budget.take_memory(ENTRY)?;
        operator.attributes.push(Attribute { name, kind: kind_name(kind).to_owned(), value });
        Ok(())
    }

    fn sparse(&mut self, message: &[u8], block: usize, path: &TensorPath, last: &str) -> Result<()> {
        let (mut dims, mut name, mut dtype) = (Vec::new(), String::new(), 0);
        for field in Fields::of(message) {
            let field = field?;
            match (field.number, field.bytes()) {
                (3, _) => field.ints(&mut dims),
                (1, Some(values)) => {
                    let header = Header::parse(values)?;
                    (name, dtype) = (header.name, header.dtype);
                }
                _ => {}
            }
        }
        let own = if name.is_empty() { last } else { &name };
        let path = if own.is_empty() { path.clone() } else { below(path, own) };
        if !name.is_empty() {
            self.budget.take_memory(ENTRY)?;
            let kind = VariableKind::Other("sparse-tensor".to_owned());
            let declared = Type { kind: Some(kind), dtype, shape: Some(dims.clone()) };
            self.variable(block, &name, declared);
        }
        for field in Fields::of(message) {
            let field = field?;
            let Some(bytes) = field.bytes() else { continue };
            let (place, word) = match field.number {
                1 => (Place::SparseValues(dims.clone()), "values"),
                2 => (Place::SparseIndices, "indices"),
                _ => continue,
            };
            self.tensor(Header::parse(bytes)?, place, block, &path, Some(word.to_owned()))?;
        }
        Ok(())
    }

    /// Adds a tensor. Its last part is `last`, the name of its value, or nothing for an attribute.
    fn tensor(
        &mut self,
        header: Header,
        place: Place,
        block: usize,
        prefix: &TensorPath,
        last: Option<String>,
    ) -> Result<()> {
        let own = match (&last, place.value()) {
            (Some(last), _) => last.as_str(),
            (None, Some(value)) => value,
            (None, None) => "",
        };
        let parts = prefix.parts().iter().cloned();
        let mut path: TensorPath = match (own.is_empty(), prefix.parts().is_empty()) {
            (true, false) => prefix.clone(),
            (true, true) => TensorPath::value(),
            (false, _) => parts.chain(TensorPath::from_dotted(own).parts().iter().cloned()).collect(),
        };
        let text = path.to_text();
        // A dot of a name is a part of the path: 24 bytes in memory.
        self.budget.take_memory(ENTRY.saturating_add(32 * text.len() as u64))?;
        let is_duplicate = self.texts.contains_key(&text);
        if is_duplicate {
            // The last suffix of a name is known: thousands of duplicates take one step each.
            loop {
                let next = self.texts.entry(text.clone()).or_default();
                *next += 1;
                let new = format!("{text}~{next}");
                if !self.texts.contains_key(&new) {
                    path = TensorPath::from_dotted(&new);
                    break;
                }
            }
        }
        self.texts.insert(path.to_text(), 0);
        let prefix = prefix.clone();
        self.tensors.push(Described { path, prefix, place, block, is_duplicate, header });
        Ok(())
    }

    /// Declares the value of a stored tensor.
    fn declare(&mut self, block: usize, header: &Header, is_constant: bool) -> Result<()> {
        self.budget.take_memory(ENTRY.saturating_add(header.name.len() as u64))?;
        let declared =
            Type { kind: Some(VariableKind::Tensor), dtype: header.dtype, shape: Some(header.dims.clone()) };
        let place = self.variable(block, &header.name, declared);
        if let Some(variable) = self.block(block).variables.get_mut(place) {
            variable.persistable = true;
            variable.parameter = !is_constant;
        }
        Ok(())
    }

    /// Declares a value, and returns its name.
    fn value(&mut self, message: &[u8], block: usize) -> Result<String> {
        let (mut name, mut declared) = (String::new(), Type::default());
        self.budget.take_memory(ENTRY.saturating_add(message.len() as u64))?;
        for field in Fields::of(message) {
            let field = field?;
            match (field.number, field.bytes()) {
                (1, Some(_)) => name = field.text().unwrap_or_default(),
                (2, Some(message)) => declared = value_type(message)?,
                _ => {}
            }
        }
        self.variable(block, &name, declared);
        Ok(name)
    }

    /// Declares a variable, or completes its declaration. Returns its index in the block.
    fn variable(&mut self, block: usize, name: &str, declared: Type) -> usize {
        let Type { kind, dtype, shape } = declared;
        let number = dtype;
        let known = self.variables.get(block).and_then(|known| known.get(name)).copied();
        let place = known.unwrap_or_else(|| {
            let variable = Variable {
                name: name.to_owned(),
                kind: VariableKind::Other("value".to_owned()),
                dtype: None,
                dtype_name: None,
                shape: None,
                lod_level: 0,
                persistable: false,
                parameter: false,
                stop_gradient: false,
            };
            let variables = &mut self.block(block).variables;
            variables.push(variable);
            let place = variables.len() - 1;
            if let Some(known) = self.variables.get_mut(block) {
                known.insert(name.to_owned(), place);
            }
            place
        });
        if let Some(variable) = self.block(block).variables.get_mut(place) {
            if let Some(kind) = kind {
                variable.kind = kind;
            }
            if number != 0 {
                variable.dtype = dtype::from_number(number);
                variable.dtype_name = dtype::name(number).map(str::to_owned);
            }
            variable.shape = shape.or(variable.shape.take());
        }
        place
    }

    /// Returns a block that exists: its index is that of [`new_block`](Self::new_block), or 0.
    fn block(&mut self, block: usize) -> &mut Block {
        if self.topology.blocks.len() <= block {
            self.topology.blocks.resize_with(block + 1, Block::default);
        }
        &mut self.topology.blocks[block]
    }

    fn new_block(&mut self, parent: Option<usize>) -> Result<usize> {
        self.budget.take_memory(ENTRY)?;
        self.topology.blocks.push(Block { parent, ..Block::default() });
        self.variables.push(HashMap::new());
        Ok(self.topology.blocks.len() - 1)
    }
}

/// Node that an attribute belongs to.
#[derive(Clone, Copy)]
enum Owner<'a> {
    /// Node `Constant` with this output.
    Constant(&'a str),
    /// Other node with this label.
    Node(&'a str),
}

/// Returns the metadata key of a property of the model: its own, unless a field of the model has that name.
pub(crate) fn property_key(key: &str) -> String {
    match FIELDS.contains(&key) {
        true => format!("metadata_props.{key}"),
        false => key.to_owned(),
    }
}

fn below(path: &TensorPath, name: &str) -> TensorPath {
    path.parts().iter().cloned().chain([Name::from(name)]).collect()
}

/// Returns true for the domain of the standard operators.
pub(crate) fn is_standard(domain: &str) -> bool {
    domain.is_empty() || domain == STANDARD
}

fn kind(domain: &str, op: &str) -> String {
    if is_standard(domain) { op.to_owned() } else { format!("{domain}:{op}") }
}

fn words(bytes: &[u8]) -> AttributeValue {
    match std::str::from_utf8(bytes) {
        Ok(text) => AttributeValue::Text(text.to_owned()),
        Err(_) => AttributeValue::Bytes(bytes.to_vec()),
    }
}

/// Returns the value of an attribute whose field was omitted, as writers of proto3 do for zero.
fn default(kind: i64) -> AttributeValue {
    match kind {
        1 => AttributeValue::Float(0.0),
        2 => AttributeValue::Int(0),
        3 => AttributeValue::Text(String::new()),
        _ => AttributeValue::None,
    }
}

fn kind_name(kind: i64) -> &'static str {
    const NAMES: [&str; 15] = [
        "UNDEFINED",
        "FLOAT",
        "INT",
        "STRING",
        "TENSOR",
        "GRAPH",
        "FLOATS",
        "INTS",
        "STRINGS",
        "TENSORS",
        "GRAPHS",
        "SPARSE_TENSOR",
        "SPARSE_TENSORS",
        "TYPE_PROTO",
        "TYPE_PROTOS",
    ];
    usize::try_from(kind).ok().and_then(|kind| NAMES.get(kind)).copied().unwrap_or("UNDEFINED")
}

/// Returns dtype and shape of a tensor as text.
fn shown(header: &Header) -> String {
    let word = match dtype::from_number(header.dtype) {
        Some(dtype) => dtype.name().to_owned(),
        None => dtype::name(header.dtype).unwrap_or("unknown").to_lowercase(),
    };
    escape_text(&format!("{word} {:?}", header.dims))
}

fn value_type(message: &[u8]) -> Result<Type> {
    let mut found = Type::default();
    for field in Fields::of(message) {
        let field = field?;
        let Some(bytes) = field.bytes() else { continue };
        match field.number {
            1 => found = tensor_type(bytes, VariableKind::Tensor)?,
            4 => found.kind = Some(VariableKind::TensorArray),
            5 => found.kind = Some(VariableKind::Other("map".to_owned())),
            7 => found.kind = Some(VariableKind::Other("opaque".to_owned())),
            8 => found = tensor_type(bytes, VariableKind::Other("sparse-tensor".to_owned()))?,
            9 => found.kind = Some(VariableKind::Other("optional".to_owned())),
            _ => {}
        }
    }
    Ok(found)
}

fn tensor_type(message: &[u8], kind: VariableKind) -> Result<Type> {
    let mut found = Type { kind: Some(kind), ..Type::default() };
    for field in Fields::of(message) {
        let field = field?;
        match (field.number, field.bytes()) {
            (1, None) => found.dtype = field.int().unwrap_or(0),
            (2, Some(shape)) => {
                let mut dims = Vec::new();
                for dim in Fields::of(shape) {
                    let dim = dim?;
                    let Some(bytes) = dim.bytes().filter(|_| dim.number == 1) else { continue };
                    let mut size = -1;
                    for part in Fields::of(bytes) {
                        let part = part?;
                        if let (1, Some(value)) = (part.number, part.int()) {
                            size = value;
                        }
                    }
                    dims.push(size);
                }
                found.shape = Some(dims);
            }
            _ => {}
        }
    }
    Ok(found)
}

/// Returns the error for a tensor that the model describes inconsistently.
pub(crate) fn bad(code: &'static str, text: &str, path: &TensorPath) -> Error {
    Error::corrupt(code, text).on_tensor(path)
}
