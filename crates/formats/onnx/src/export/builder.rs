//! Builder of the graph: values, nodes, constants, bodies.

mod budget;

use super::infer::{self, Inferred};
use super::names::Names;
use super::operator::Op;
use crate::constant::{Constant, Data};
use crate::dtype;
use crate::model::{Attr, Dim, Graph, Initializer, InitializerData, Node, ValueInfo};
use std::collections::hash_map::RandomState;
use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher;
use std::sync::Arc;
use weighbridge_core::budget::Budget;
use weighbridge_core::checkpoint::TensorEntry;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::tensor::{DType, Order};
use weighbridge_core::topology::{Topology, Variable, VariableKind};

pub(super) use budget::check_rank;
use budget::{DIM, ELEMENT, NAME, NODE};

/// Maximum elements of a parameter whose values a translation may read.
const MAX_READ: u64 = 1 << 16;
/// Maximum elements of a constant that is computed while exporting.
const MAX_FOLDED: usize = 1 << 12;
/// Dimensions of a value; `None` if the rank is unknown.
pub(super) type Dims = Option<Vec<Dim>>;
/// Attributes of a node.
pub(super) type Attrs = Vec<(&'static str, Attr)>;

/// Value of the graph: result of a node, input, stored tensor or constant.
#[derive(Debug, Clone)]
pub(super) struct Value {
    /// Name in the graph; empty for a constant that no node uses yet, and for an omitted input.
    pub(super) name: String,
    /// Dtype of the elements.
    pub(super) dtype: DType,
    /// Dimensions.
    pub(super) dims: Dims,
    /// Elements, if known while exporting.
    pub(super) constant: Option<Arc<Constant>>,
    /// True for a list of tensors.
    pub(super) is_sequence: bool,
}

impl Value {
    /// Returns an omitted input.
    pub(super) fn none() -> Self {
        Self { name: String::new(), dtype: DType::F32, dims: None, constant: None, is_sequence: false }
    }

    /// Returns true for an omitted input.
    pub(super) fn is_none(&self) -> bool {
        self.name.is_empty() && self.constant.is_none()
    }

    /// Returns a constant.
    pub(super) fn of(constant: Constant) -> Self {
        let dims = constant.shape.iter().map(|size| Dim::Size(*size)).collect();
        Self {
            name: String::new(),
            dtype: constant.dtype,
            dims: Some(dims),
            constant: Some(Arc::new(constant)),
            is_sequence: false,
        }
    }

    /// Returns the number of dimensions, if known.
    pub(super) fn rank(&self) -> Option<usize> {
        self.dims.as_ref().map(Vec::len)
    }

    /// Returns the size of a dimension, if known.
    pub(super) fn size(&self, axis: usize) -> Option<i64> {
        self.dims.as_ref()?.get(axis)?.size()
    }

    /// Returns all sizes, if known.
    pub(super) fn sizes(&self) -> Option<Vec<i64>> {
        self.dims.as_ref()?.iter().map(Dim::size).collect()
    }
}

/// Values and nodes of the main graph or of a body.
#[derive(Default)]
struct Scope {
    values: HashMap<String, Value>,
    nodes: Vec<Node>,
    /// Variables that the operator being translated has assigned.
    recent: Vec<String>,
}

/// Builder of a graph.
pub(super) struct Builder<'a> {
    /// Program.
    pub(super) topology: &'a Topology,
    /// Version of the standard operators.
    pub(super) opset: i64,
    /// State of translations of control flow.
    pub(super) control: super::control::State,
    parameters: HashMap<String, &'a TensorEntry>,
    declared: Vec<HashMap<&'a str, &'a Variable>>,
    scopes: Vec<Scope>,
    initializers: Vec<Initializer>,
    /// Nodes that cast parameters, before all others.
    casts: Vec<Node>,
    /// Stored constants with their names, by the hashes of their elements.
    constants: HashMap<u64, Vec<(Arc<Constant>, String)>>,
    hashes: RandomState,
    /// Names of outputs.
    pub(super) fetched: HashSet<String>,
    /// Variables that the program reads, once they are collected.
    read: std::cell::OnceCell<HashSet<&'a str>>,
    used: Names<'a>,
    budget: Budget,
    /// First excess of the budget. The graph does not grow after it.
    excess: Option<Error>,
    /// Block being translated.
    block: usize,
    /// Base of names of intermediate values: the first output of the operator.
    hint: String,
    /// Number of nodes of the scope before the operator.
    start: usize,
}

impl<'a> Builder<'a> {
    /// Creates a builder for a program and its parameters, by the names of their variables.
    pub(super) fn new(
        topology: &'a Topology,
        parameters: HashMap<String, &'a TensorEntry>,
        opset: i64,
        budget: Budget,
    ) -> Self {
        let mut declared: Vec<HashMap<&str, &Variable>> = Vec::new();
        for block in &topology.blocks {
            let mut names = HashMap::new();
            for variable in &block.variables {
                names.entry(variable.name.as_str()).or_insert(variable);
            }
            declared.push(names);
        }
        let used = Names::new(declared.iter().flat_map(HashMap::keys).copied().collect());
        Self {
            topology,
            opset,
            control: super::control::State::default(),
            parameters,
            declared,
            scopes: vec![Scope::default()],
            initializers: Vec::new(),
            casts: Vec::new(),
            constants: HashMap::new(),
            hashes: RandomState::new(),
            fetched: HashSet::new(),
            read: std::cell::OnceCell::new(),
            used,
            budget,
            excess: None,
            block: 0,
            hint: "value".to_owned(),
            start: 0,
        }
    }

    // ---- variables

    /// Returns the declaration of a variable visible in the current block.
    pub(super) fn declaration(&self, name: &str) -> Option<&'a Variable> {
        let mut at = Some(self.block);
        for _ in 0..=super::control::MAX_DEPTH {
            let block = at?;
            if let Some(variable) = self.declared.get(block)?.get(name) {
                return Some(variable);
            }
            at = self.topology.blocks.get(block)?.parent;
        }
        None
    }

    /// Returns the current value of a variable.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`] for a variable that nothing assigns.
    pub(super) fn get(&mut self, name: &str) -> Result<Value> {
        if let Some(value) = self.lookup(name) {
            return Ok(value);
        }
        if let Some(entry) = self.parameters.get(name).copied() {
            return self.parameter(name, entry);
        }
        if self.declaration(name).is_some_and(|variable| variable.persistable) {
            return Err(Error::mismatch("parameters-missing", "a parameter of the program has no tensor")
                .on_tensor(weighbridge_core::text::escape(name))
                .hint("give the folder with the program and all of its parameters; a parameter that an output needs cannot be dropped"));
        }
        Err(Error::corrupt("bad-program", "an operator reads a variable that no operator assigns")
            .found(weighbridge_core::text::escape(name)))
    }

    /// Returns the current value of a variable, if it is assigned or a parameter.
    pub(super) fn find(&mut self, name: &str) -> Result<Option<Value>> {
        if self.lookup(name).is_some() || self.parameters.contains_key(name) {
            return self.get(name).map(Some);
        }
        Ok(None)
    }

    fn lookup(&self, name: &str) -> Option<Value> {
        self.scopes.iter().rev().find_map(|scope| scope.values.get(name)).cloned()
    }

    /// Returns the value that an operator has assigned to the variable.
    pub(super) fn assigned(&self, name: &str) -> Option<Value> {
        self.lookup(name)
    }

    /// Returns true if the variable has a value in the scope of the current body, or in one around it.
    pub(super) fn is_assigned(&self, name: &str) -> bool {
        self.lookup(name).is_some() || self.parameters.contains_key(name)
    }

    /// Makes the stored tensor of a parameter a value.
    fn parameter(&mut self, name: &str, entry: &TensorEntry) -> Result<Value> {
        let dtype = entry.dtype();
        if dtype::number(dtype).is_none() {
            return Err(Error::unsupported("onnx-dtype", "ONNX lacks the dtype of a parameter")
                .on_tensor(entry.name())
                .found(dtype));
        }
        let dims = entry.shape.dims().iter().map(|d| Dim::Size(i64::try_from(*d).unwrap_or(i64::MAX)));
        let value = Value {
            name: self.unique(name),
            dtype,
            dims: Some(dims.collect()),
            constant: None,
            is_sequence: false,
        };
        let data = InitializerData::Entry(Box::new(entry.clone()));
        self.initializers.push(Initializer { name: value.name.clone(), data });
        let value = if entry.cast.is_some() { self.cast_back(value, entry.stored) } else { value };
        self.scopes[0].values.insert(name.to_owned(), value.clone());
        Ok(value)
    }

    /// Returns a parameter that is stored with another dtype in the dtype of the program. The node is before all others, since
    /// bodies share the result.
    fn cast_back(&mut self, stored: Value, dtype: DType) -> Value {
        let name = self.unique(&format!("{}.{dtype}", stored.name));
        let to = dtype::number(dtype).unwrap_or(1);
        self.casts.push(Node {
            name: String::new(),
            kind: "Cast".to_owned(),
            domain: "",
            inputs: vec![stored.name],
            outputs: vec![name.clone()],
            attributes: vec![("to", Attr::Int(to))],
        });
        Value { name, dtype, ..stored }
    }

    /// Returns the elements of a value, if they are known: those of a constant, or of a small parameter, which is read.
    ///
    /// # Errors
    /// Errors of reading.
    pub(super) fn known(&mut self, value: &Value) -> Result<Option<Arc<Constant>>> {
        if value.constant.is_some() {
            return Ok(value.constant.clone());
        }
        let own = |initializer: &&Initializer| initializer.name == value.name;
        let Some(initializer) = self.initializers.iter().find(own) else { return Ok(None) };
        match &initializer.data {
            InitializerData::Constant(constant) => Ok(Some(constant.clone())),
            InitializerData::Entry(entry) => {
                if entry.shape.elements().is_none_or(|count| count > MAX_READ) {
                    return Ok(None);
                }
                let bytes = entry.read_tensor(Order::Row)?;
                let shape = value.sizes().unwrap_or_default();
                let constant = Constant::from_bytes(entry.dtype(), &shape, &bytes);
                self.take_work(bytes.len());
                Ok(constant.map(Arc::new))
            }
        }
    }

    /// Returns the integers of a value, if they are known.
    ///
    /// # Errors
    /// Errors of reading.
    pub(super) fn known_ints(&mut self, value: &Value) -> Result<Option<Vec<i64>>> {
        Ok(self.known(value)?.and_then(|constant| constant.as_ints().map(<[i64]>::to_vec)))
    }

    /// Assigns a value to a variable. The value takes the name of the variable if an operator just made it.
    pub(super) fn set(&mut self, variable: &str, mut value: Value) {
        self.refine(variable, &mut value);
        let top = self.scopes.len() - 1;
        let start = self.start.min(self.scopes[top].nodes.len());
        let nodes = &mut self.scopes[top].nodes[start..];
        let is_new = nodes.iter().any(|node| node.outputs.contains(&value.name));
        if is_new && !value.name.is_empty() && !self.used.contains(variable) && is_plain(variable) {
            let old = std::mem::replace(&mut value.name, variable.to_owned());
            nodes.iter_mut().for_each(|node| rename(node, &old, variable));
            self.used.insert(variable.to_owned());
            let Scope { values, recent, .. } = &mut self.scopes[top];
            for name in recent.iter() {
                if let Some(other) = values.get_mut(name).filter(|other| other.name == old) {
                    variable.clone_into(&mut other.name);
                }
            }
        }
        let scope = &mut self.scopes[top];
        scope.recent.push(variable.to_owned());
        scope.values.insert(variable.to_owned(), value);
    }

    /// Completes the rank of a value by the declaration of the variable. Declared sizes are not taken: Paddle computes wrong ones
    /// from sizes that are known at run time, and a variable that is assigned twice has those of the last assignment.
    fn refine(&self, variable: &str, value: &mut Value) {
        if value.dims.is_some() {
            return;
        }
        let Some(declared) = self.declaration(variable) else { return };
        let Some(shape) = declared.shape.as_ref().filter(|_| declared.kind == VariableKind::Tensor) else {
            return;
        };
        // In programs of the first versions, an unknown shape is empty.
        if !shape.is_empty() || self.topology.form == "pir" {
            value.dims = Some(vec![Dim::Open; shape.len()]);
        }
    }

    /// Begins an operator: names of intermediate values are based on its first output.
    pub(super) fn begin(&mut self, block: usize, op: &Op<'_>) {
        self.block = block;
        let first = op.outputs.iter().flat_map(|(_, names)| names).next();
        self.hint = first.map_or_else(|| op.kind.to_owned(), |name| (*name).to_owned());
        let scope = self.top();
        scope.recent.clear();
        self.start = scope.nodes.len();
    }

    /// Begins a part of an operator: a result that is assigned next is made by the nodes that follow.
    pub(super) fn next_part(&mut self) {
        self.start = self.top().nodes.len();
    }

    // ---- operands and results of an operator

    /// Returns the value of a required input.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`] if it is missing.
    pub(super) fn input(&mut self, op: &Op<'_>, slot: &str) -> Result<Value> {
        self.optional(op, slot)?.ok_or_else(|| op.malformed(format_args!("lacks its input {slot}")))
    }

    /// Returns the value of an input, if present.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub(super) fn optional(&mut self, op: &Op<'_>, slot: &str) -> Result<Option<Value>> {
        match op.input(slot).first() {
            Some(name) => self.get(name).map(Some),
            None => Ok(None),
        }
    }

    /// Returns the values of an input with several variables.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub(super) fn inputs(&mut self, op: &Op<'_>, slot: &str) -> Result<Vec<Value>> {
        op.input(slot).iter().map(|name| self.get(name)).collect()
    }

    /// Assigns a result; ignored if the operator does not have that output.
    pub(super) fn bind(&mut self, op: &Op<'_>, slot: &str, value: Value) {
        self.bind_all(op, slot, vec![value]);
    }

    /// Assigns results to an output with several variables.
    pub(super) fn bind_all(&mut self, op: &Op<'_>, slot: &str, values: Vec<Value>) {
        for (name, value) in op.output(slot).iter().zip(values) {
            self.set(name, value);
        }
    }

    /// Returns true if an operator or an output of the program reads a result.
    pub(super) fn is_used(&self, op: &Op<'_>, slot: &str) -> bool {
        let read = self.read.get_or_init(|| super::liveness::all_read(self.topology));
        op.output(slot).iter().any(|name| read.contains(name))
    }

    /// Returns the declared dtype of a result.
    pub(super) fn declared_dtype(&self, op: &Op<'_>, slot: &str) -> Option<DType> {
        op.output(slot).first().and_then(|name| self.declaration(name)).and_then(|variable| variable.dtype)
    }

    /// Returns the rank of a value.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Unsupported`] if it is unknown.
    pub(super) fn rank(&self, op: &Op<'_>, value: &Value) -> Result<usize> {
        value.rank().ok_or_else(|| op.refuse("the number of dimensions of an input is unknown"))
    }

    /// Returns an axis counted from the front.
    ///
    /// # Errors
    /// As [`rank`](Self::rank); [`weighbridge_core::Kind::Corrupt`] if the axis is outside the dimensions.
    pub(super) fn axis(&self, op: &Op<'_>, value: &Value, axis: i64) -> Result<usize> {
        let rank = self.rank(op, value)?;
        let signed = i64::try_from(rank).unwrap_or(i64::MAX);
        let front = if axis < 0 { axis.saturating_add(signed) } else { axis };
        usize::try_from(front)
            .ok()
            .filter(|axis| *axis < rank.max(1))
            .ok_or_else(|| op.malformed(format_args!("has the axis {axis} for {rank} dimensions")))
    }

    // ---- nodes

    fn top(&mut self) -> &mut Scope {
        let last = self.scopes.len() - 1;
        &mut self.scopes[last]
    }

    /// Returns a name that no value has, close to `base`.
    pub(super) fn unique(&mut self, base: &str) -> String {
        let base = if is_plain(base) { base.to_owned() } else { weighbridge_core::text::escape(base) };
        let (name, tries) = self.used.unique(&base);
        self.take_work(NAME.saturating_mul(tries));
        name
    }

    /// Returns a name for an intermediate value of the operator.
    fn intermediate(&mut self) -> String {
        let base = format!("{}.v", self.hint);
        self.unique(&base)
    }

    /// Returns the name of a value for use in a node. A constant becomes a stored tensor; equal ones are stored once.
    pub(super) fn name(&mut self, value: &Value) -> String {
        let Some(constant) = value.constant.as_ref().filter(|_| value.name.is_empty()) else {
            return value.name.clone();
        };
        if self.excess.is_some() {
            return String::new();
        }
        let bytes = constant.to_bytes().unwrap_or_default();
        self.take_work(bytes.len().max(constant.len().saturating_mul(ELEMENT)));
        let hash = self.hashes.hash_one((constant.dtype, &constant.shape, &bytes));
        for (known, name) in self.constants.get(&hash).into_iter().flatten() {
            let is_same = known.dtype == constant.dtype && known.shape == constant.shape;
            if is_same && known.to_bytes().unwrap_or_default() == bytes {
                return name.clone();
            }
        }
        self.take_memory(NAME.saturating_add(constant.len().saturating_mul(ELEMENT)));
        let name = self.unique("constant");
        self.constants.entry(hash).or_default().push((constant.clone(), name.clone()));
        let data = InitializerData::Constant(constant.clone());
        self.initializers.push(Initializer { name: name.clone(), data });
        name
    }

    /// Adds a node with one result. Shape arithmetic on constants is computed instead.
    pub(super) fn node(&mut self, kind: &str, inputs: &[&Value], attributes: Attrs) -> Value {
        if let Some(constant) = super::fold::fold(kind, inputs, &attributes)
            && constant.len() <= MAX_FOLDED
        {
            return Value::of(constant);
        }
        self.nodes(kind, inputs, attributes, 1).pop().unwrap_or_else(Value::none)
    }

    /// Adds a node with several results.
    pub(super) fn nodes(
        &mut self,
        kind: &str,
        inputs: &[&Value],
        attributes: Attrs,
        results: usize,
    ) -> Vec<Value> {
        let inferred = infer::infer(kind, inputs, &attributes, results);
        self.typed(kind, inputs, attributes, inferred)
    }

    /// Adds a node whose results have these types: for control flow, and operators whose results depend on more than the
    /// inputs.
    pub(super) fn typed(
        &mut self,
        kind: &str,
        inputs: &[&Value],
        attributes: Attrs,
        results: Vec<Inferred>,
    ) -> Vec<Value> {
        let dims: usize = results.iter().map(|result| result.dims.as_ref().map_or(0, Vec::len)).sum();
        let memory = inputs.len().saturating_add(results.len()).saturating_mul(NAME);
        self.take_memory(memory.saturating_add(dims.saturating_mul(DIM)).saturating_add(NODE));
        if self.excess.is_some() {
            let none = |r: Inferred| Value {
                dtype: r.dtype,
                dims: r.dims,
                is_sequence: r.is_sequence,
                ..Value::none()
            };
            return results.into_iter().map(none).collect();
        }
        let mut names: Vec<String> = inputs.iter().map(|value| self.name(value)).collect();
        while names.last().is_some_and(String::is_empty) {
            names.pop();
        }
        let mut values = Vec::new();
        for Inferred { dtype, dims, is_sequence } in results {
            values.push(Value { name: self.intermediate(), dtype, dims, constant: None, is_sequence });
        }
        let name = self.unique(&format!("{}/{kind}", self.hint.clone()));
        let outputs = values.iter().map(|value| value.name.clone()).collect();
        let node = Node { name, kind: kind.to_owned(), domain: "", inputs: names, outputs, attributes };
        self.top().nodes.push(node);
        values
    }

    /// Builds a body of control flow: `make` adds its nodes and returns its results. Values of outer graphs are visible in it; its own
    /// are not visible outside. `inputs` are its formal inputs.
    ///
    /// # Errors
    /// Errors of `make`.
    pub(super) fn body(
        &mut self,
        inputs: &[Value],
        make: impl FnOnce(&mut Self) -> Result<Vec<Value>>,
    ) -> Result<(Graph, Vec<Value>)> {
        let (block, hint, start) = (self.block, self.hint.clone(), self.start);
        self.scopes.push(Scope::default());
        self.start = 0;
        let made = make(self);
        let made = made.map(|values| {
            // A result must be made by a node of the body, once.
            let made = self.made();
            let mut seen = HashSet::new();
            let mut results = Vec::new();
            for value in values {
                let own = made.contains(&value.name);
                let own = own && value.constant.is_none() && seen.insert(value.name.clone());
                results.push(if own { value } else { self.identity(&value) });
            }
            results
        });
        let scope = self.scopes.pop().unwrap_or_default();
        (self.block, self.hint, self.start) = (block, hint, start);
        let results = made?;
        let graph = Graph {
            name: self.unique("body"),
            nodes: scope.nodes,
            initializers: Vec::new(),
            inputs: inputs.iter().map(value_info).collect(),
            outputs: results.iter().map(value_info).collect(),
        };
        Ok((graph, results))
    }

    /// Returns a mark, to forget the names of a body that is built again.
    pub(super) fn names(&self) -> Mark {
        Mark { names: self.used.mark(), initializers: self.initializers.len(), casts: self.casts.len() }
    }

    /// Forgets the names taken since [`names`](Self::names), except those of stored tensors.
    pub(super) fn forget_names(&mut self, mark: &Mark) {
        self.used.undo(mark.names);
        for initializer in &self.initializers[mark.initializers..] {
            self.used.insert(initializer.name.as_str());
        }
        for name in self.casts[mark.casts..].iter().flat_map(|cast| &cast.outputs) {
            self.used.insert(name.as_str());
        }
    }

    /// Returns a formal input for a body.
    pub(super) fn formal(&mut self, base: &str, dtype: DType, dims: Dims, is_sequence: bool) -> Value {
        self.take_memory(NAME.saturating_add(dims.as_ref().map_or(0, Vec::len).saturating_mul(DIM)));
        Value { name: self.unique(base), dtype, dims, constant: None, is_sequence }
    }

    /// Returns true if a node of the current graph makes the value.
    pub(super) fn is_made(&mut self, name: &str) -> bool {
        self.top().nodes.iter().any(|node| node.outputs.iter().any(|output| output == name))
    }

    /// Returns the names of all values that nodes of the current graph make.
    pub(super) fn made(&mut self) -> HashSet<String> {
        self.top().nodes.iter().flat_map(|node| &node.outputs).cloned().collect()
    }

    /// Renames the result of the last node.
    pub(super) fn rename_last(&mut self, old: &str, new: &str) {
        if let Some(node) = self.top().nodes.last_mut() {
            rename(node, old, new);
        }
    }

    /// Takes the graph: its nodes and stored tensors.
    pub(super) fn finish(mut self) -> (Vec<Node>, Vec<Initializer>) {
        let scope = self.scopes.pop().unwrap_or_default();
        self.casts.extend(scope.nodes);
        (self.casts, self.initializers)
    }

    // ---- short forms of common nodes

    /// Returns a constant of rank 1 of 64-bit integers.
    pub(super) fn ints(&self, values: &[i64]) -> Value {
        Value::of(Constant::ints(values))
    }

    /// Returns a scalar constant of 64-bit integers.
    pub(super) fn int(&self, value: i64) -> Value {
        Value::of(Constant { dtype: DType::I64, shape: Vec::new(), data: Data::Ints(vec![value]) })
    }

    /// Returns a scalar constant.
    pub(super) fn scalar(&self, value: f64, dtype: DType) -> Value {
        Value::of(Constant::scalar(value, dtype))
    }

    /// Adds a node of one input and no attributes.
    pub(super) fn unary(&mut self, kind: &str, x: &Value) -> Value {
        self.node(kind, &[x], Vec::new())
    }

    /// Adds a node of two inputs and no attributes.
    pub(super) fn binary(&mut self, kind: &str, x: &Value, y: &Value) -> Value {
        self.node(kind, &[x, y], Vec::new())
    }

    /// Copies a value by an `Identity` node.
    pub(super) fn identity(&mut self, value: &Value) -> Value {
        let result =
            Inferred { dtype: value.dtype, dims: value.dims.clone(), is_sequence: value.is_sequence };
        self.typed("Identity", &[value], Vec::new(), vec![result]).pop().unwrap_or_else(Value::none)
    }

    /// Casts a value; unchanged if it has that dtype.
    pub(super) fn cast(&mut self, value: &Value, dtype: DType) -> Value {
        if value.dtype == dtype {
            return value.clone();
        }
        let to = dtype::number(dtype).unwrap_or(1);
        self.node("Cast", &[value], vec![("to", Attr::Int(to))])
    }

    /// Reshapes to constant sizes: 0 copies a size, -1 is the rest.
    pub(super) fn reshape(&mut self, value: &Value, sizes: &[i64]) -> Value {
        let shape = self.ints(sizes);
        self.binary("Reshape", value, &shape)
    }

    /// Permutes the dimensions.
    pub(super) fn transpose(&mut self, value: &Value, order: &[usize]) -> Value {
        if order.iter().enumerate().all(|(place, axis)| place == *axis) {
            return value.clone();
        }
        let order = order.iter().map(|axis| i64::try_from(*axis).unwrap_or(0)).collect();
        self.node("Transpose", &[value], vec![("perm", Attr::Ints(order))])
    }

    /// Inserts dimensions of size 1 at these axes of the result.
    pub(super) fn unsqueeze(&mut self, value: &Value, axes: &[i64]) -> Value {
        if axes.is_empty() {
            return value.clone();
        }
        let axes = self.ints(axes);
        self.binary("Unsqueeze", value, &axes)
    }

    /// Removes dimensions of size 1.
    pub(super) fn squeeze(&mut self, value: &Value, axes: &[i64]) -> Value {
        if axes.is_empty() {
            return value.clone();
        }
        let axes = self.ints(axes);
        self.binary("Squeeze", value, &axes)
    }

    /// Returns the range `start..end` of one axis; `i64::MAX` is the end of the axis.
    pub(super) fn slice(&mut self, value: &Value, axis: i64, start: i64, end: i64) -> Value {
        let (starts, ends, axes) = (self.ints(&[start]), self.ints(&[end]), self.ints(&[axis]));
        self.node("Slice", &[value, &starts, &ends, &axes], Vec::new())
    }

    /// Concatenates values along an axis.
    pub(super) fn concat(&mut self, values: &[&Value], axis: i64) -> Value {
        match values {
            [one] => (*one).clone(),
            values => self.node("Concat", values, vec![("axis", Attr::Int(axis))]),
        }
    }

    /// Reduces over axes. The axes are an attribute before version 18 of the operators (of `ReduceSum`, before 13).
    pub(super) fn reduce(&mut self, kind: &str, x: &Value, axes: &[i64], keep: bool) -> Value {
        let keep = ("keepdims", Attr::Int(i64::from(keep)));
        if kind == "ReduceSum" || self.opset >= 18 {
            let axes = self.ints(axes);
            return self.node(kind, &[x, &axes], vec![keep]);
        }
        self.node(kind, &[x], vec![("axes", Attr::Ints(axes.to_vec())), keep])
    }

    /// Gathers along an axis.
    pub(super) fn gather(&mut self, value: &Value, indices: &Value, axis: i64) -> Value {
        self.node("Gather", &[value, indices], vec![("axis", Attr::Int(axis))])
    }

    /// Returns the shape of a value: 64-bit integers, rank 1.
    pub(super) fn shape_of(&mut self, value: &Value) -> Value {
        self.unary("Shape", value)
    }

    /// Returns the size of one dimension as a tensor of rank 1 with one element.
    pub(super) fn dim(&mut self, value: &Value, axis: usize) -> Value {
        if let Some(size) = value.size(axis) {
            return self.ints(&[size]);
        }
        let shape = self.shape_of(value);
        let place = self.ints(&[i64::try_from(axis).unwrap_or(0)]);
        self.gather(&shape, &place, 0)
    }

    /// Returns a tensor filled with a number; `shape` has rank 1.
    pub(super) fn filled(&mut self, shape: &Value, number: f64, dtype: DType) -> Value {
        let constant = Constant::filled(number, dtype, &[1]);
        self.node("ConstantOfShape", &[shape], vec![("value", Attr::Tensor(constant))])
    }
}

/// State of a builder, to forget the names of a body.
pub(super) struct Mark {
    names: usize,
    initializers: usize,
    casts: usize,
}

/// Returns true for a name that needs no escape.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && !name.chars().any(char::is_control)
}

/// Renames a value in a node and in its bodies.
fn rename(node: &mut Node, old: &str, new: &str) {
    for name in node.inputs.iter_mut().chain(&mut node.outputs).filter(|name| *name == old) {
        new.clone_into(name);
    }
    for (_, attribute) in &mut node.attributes {
        if let Attr::Graph(graph) = attribute {
            graph.nodes.iter_mut().for_each(|node| rename(node, old, new));
        }
    }
}

/// Returns the name and type of a value.
pub(super) fn value_info(value: &Value) -> ValueInfo {
    ValueInfo {
        name: value.name.clone(),
        dtype: value.dtype,
        shape: value.dims.clone(),
        sequence: value.is_sequence,
    }
}
