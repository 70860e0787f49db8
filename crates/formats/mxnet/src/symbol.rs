//! Symbols: graphs of operators as JSON.

use serde::Deserialize;
use serde_json::{Map, Value as Json};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use weighbridge_core::budget::Budget;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::topology::{
    Attribute, AttributeValue, Block, Endpoint, Operator, Slot, Topology, Variable, VariableKind,
};
use weighbridge_io::source::{SourceRef, read_vec};

/// Form of a program that is a symbol.
pub(crate) const FORM: &str = "mxnet";
/// Operator of a node that is a variable.
const VARIABLE: &str = "null";
/// Endings that MXNet appends to the name of an operator for its own parameters.
const PARAMETERS: [&str; 8] =
    ["_weight", "_bias", "_gamma", "_beta", "_moving_mean", "_moving_var", "_alpha", "_parameters"];
/// Attributes that only parameters have.
const PARAMETER_KEYS: [&str; 2] = ["__lr_mult__", "__init__"];
/// Bytes at the beginning that contain the first node of a symbol.
const BEGINNING: usize = 512;
/// Memory per byte of text while it is parsed.
const PER_BYTE: u64 = 8;
/// Memory of a node or variable, besides its names.
const NODE: u64 = 500;

/// Graph in the JSON.
#[derive(Debug, Deserialize)]
struct Graph {
    nodes: Vec<Node>,
    #[serde(default)]
    heads: Vec<Entry>,
    #[serde(default)]
    attrs: Map<String, Json>,
}

/// Node of a graph. The attributes are in `attrs`; older versions wrote `attr` or `param`.
#[derive(Debug, Deserialize)]
struct Node {
    op: String,
    name: String,
    #[serde(default)]
    attrs: Map<String, Json>,
    #[serde(default)]
    attr: Map<String, Json>,
    #[serde(default)]
    param: Map<String, Json>,
    #[serde(default)]
    inputs: Vec<Entry>,
    #[serde(default)]
    subgraphs: Vec<Graph>,
}

/// Output of a node: the index of the node, that of the output, and a version.
#[derive(Debug, Deserialize)]
struct Entry(
    u64,
    u64,
    #[serde(default)]
    #[expect(dead_code, reason = "outputs are never replaced")]
    u64,
);

impl Node {
    fn is_variable(&self) -> bool {
        self.op == VARIABLE
    }

    fn attributes(&self) -> impl Iterator<Item = (&String, &Json)> {
        self.param.iter().chain(&self.attr).chain(&self.attrs)
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.attributes().find(|(own, _)| *own == key).and_then(|(_, value)| value.as_str())
    }
}

/// Returns true for the beginning of a symbol: an object with the list of nodes first.
pub(crate) fn recognises(head: &[u8]) -> bool {
    let head = head.get(..BEGINNING).unwrap_or(head);
    let text = head.utf8_chunks().next().map_or("", |chunk| chunk.valid());
    let compact: String = text.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    compact.starts_with("{\"nodes\":[{\"op\":\"")
}

/// Reads a symbol. `stored` has the names of the tensors of its model.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`], `bad-json` or `bad-program`; [`weighbridge_core::Kind::Limit`].
pub(crate) fn read(
    source: &SourceRef,
    limits: &Limits,
    budget: &Budget,
    stored: &HashSet<String>,
) -> Result<Topology> {
    let len = source.len();
    Limits::check("bytes of a symbol", "header_bytes", len, limits.header_bytes)?;
    budget.take_memory(len.saturating_mul(PER_BYTE))?;
    let bytes = read_vec(&**source, 0, len)?;
    parse(bytes, budget, stored).map_err(|error| error.in_file(source.label()))
}

fn parse(bytes: Vec<u8>, budget: &Budget, stored: &HashSet<String>) -> Result<Topology> {
    let graph: Graph = serde_json::from_slice(&bytes).map_err(|fault| {
        Error::corrupt("bad-json", "the symbol is not the JSON of a graph")
            .at(offset(&bytes, fault.line(), fault.column()))
            .expected("an object with `nodes` and `heads`")
            .found(fault)
    })?;
    let writer = graph.attrs.get("mxnet_version").and_then(version);
    let mut out = Topology {
        form: FORM,
        writer,
        bytes: Arc::from(bytes),
        blocks: Vec::new(),
        feeds: Vec::new(),
        fetches: Vec::new(),
        operator_versions: Vec::new(),
    };
    add(&graph, None, &mut out, budget, stored, 0)?;
    Ok(out)
}

/// Returns the offset of a place in a text.
fn offset(bytes: &[u8], line: usize, column: usize) -> u64 {
    let before: usize =
        bytes.split_inclusive(|&byte| byte == b'\n').take(line.saturating_sub(1)).map(<[u8]>::len).sum();
    (before + column.saturating_sub(1)) as u64
}

/// Returns the version of MXNet from its attribute: `["int", 10901]` is 1.9.1.
fn version(value: &Json) -> Option<String> {
    let number = value.as_array()?.last()?.as_u64()?;
    Some(format!("{}.{}.{}", number / 10_000, number / 100 % 100, number % 100))
}

/// Appends the block of a graph and those of its subgraphs; returns the index of its block.
fn add(
    graph: &Graph,
    parent: Option<usize>,
    out: &mut Topology,
    budget: &Budget,
    stored: &HashSet<String>,
    depth: usize,
) -> Result<usize> {
    Budget::check_depth(depth)?;
    let index = out.blocks.len();
    out.blocks.push(Block { parent, ..Block::default() });
    // Outputs of each node that are used.
    let mut several: HashSet<u64> = HashSet::new();
    for Entry(node, output, _) in graph.nodes.iter().flat_map(|node| &node.inputs).chain(&graph.heads) {
        if *output > 0 {
            several.insert(*node);
        }
    }
    let name_of = |entry: &Entry, before: usize| -> Result<String> {
        let found = usize::try_from(entry.0).ok().filter(|&place| place < before);
        let Some(node) = found.and_then(|place| graph.nodes.get(place)) else {
            return Err(Error::corrupt(
                "bad-program",
                "a node of the symbol reads one that does not precede it",
            )
            .expected(format_args!("a node below {before}"))
            .found(entry.0));
        };
        Ok(match (node.is_variable(), several.contains(&entry.0)) {
            (true, _) => node.name.clone(),
            (false, true) => format!("{}_output{}", node.name, entry.1),
            (false, false) => format!("{}_output", node.name),
        })
    };
    let parameters = parameters(graph, stored);
    let mut written: HashMap<u64, HashSet<u64>> = HashMap::new();
    for Entry(node, output, _) in graph.nodes.iter().flat_map(|node| &node.inputs).chain(&graph.heads) {
        written.entry(*node).or_default().insert(*output);
    }
    let (mut variables, mut operators, mut arguments) = (Vec::new(), Vec::new(), Vec::new());
    for (place, node) in graph.nodes.iter().enumerate() {
        budget.take_memory(NODE.saturating_add(3 * node.name.len() as u64))?;
        if node.is_variable() {
            let variable = variable(node, parameters.contains(node.name.as_str()));
            if parent.is_some() {
                arguments.push(variable.name.clone());
            } else if !variable.persistable {
                let (name, dtype, shape) = (variable.name.clone(), variable.dtype, variable.shape.clone());
                out.feeds.push(Endpoint { name, dtype, shape });
            }
            variables.push(variable);
            continue;
        }
        let mut inputs = Vec::with_capacity(node.inputs.len());
        for entry in &node.inputs {
            let name = name_of(entry, place)?;
            budget.take_memory(name.len() as u64 + 32)?;
            inputs.push(name);
        }
        let own = place as u64;
        let mut outputs: Vec<u64> = written.remove(&own).unwrap_or_default().into_iter().collect();
        outputs.sort_unstable();
        if outputs.is_empty() {
            outputs.push(0);
        }
        let outputs = outputs.into_iter().map(|output| name_of(&Entry(own, output, 0), place + 1));
        let outputs: Vec<String> = outputs.collect::<Result<_>>()?;
        let attributes = node.attributes().map(|(name, value)| Attribute {
            name: name.clone(),
            kind: "str".to_owned(),
            value: AttributeValue::Text(value.as_str().map_or_else(|| value.to_string(), str::to_owned)),
        });
        let mut blocks = Vec::new();
        for inner in &node.subgraphs {
            blocks.push(add(inner, Some(index), out, budget, stored, depth + 1)?);
        }
        operators.push(Operator {
            kind: node.op.clone(),
            inputs: vec![Slot { name: String::new(), arguments: inputs }],
            outputs: vec![Slot { name: String::new(), arguments: outputs }],
            attributes: attributes.collect(),
            blocks,
        });
    }
    if parent.is_none() {
        for head in &graph.heads {
            let name = name_of(head, graph.nodes.len())?;
            out.fetches.push(Endpoint { name, dtype: None, shape: None });
        }
    }
    if let Some(block) = out.blocks.get_mut(index) {
        (block.variables, block.operators, block.arguments) = (variables, operators, arguments);
    }
    Ok(index)
}

/// Returns the names of the variables that are parameters: those with a tensor, with attributes of parameters, or with a name that
/// MXNet makes from that of their operator.
fn parameters<'a>(graph: &'a Graph, stored: &HashSet<String>) -> HashSet<&'a str> {
    let mut found = HashSet::new();
    for node in graph.nodes.iter().filter(|node| node.is_variable()) {
        if stored.contains(&node.name) || PARAMETER_KEYS.iter().any(|key| node.text(key).is_some()) {
            found.insert(node.name.as_str());
        }
    }
    for node in graph.nodes.iter().filter(|node| !node.is_variable()) {
        let inputs = node.inputs.iter().filter_map(|entry| graph.nodes.get(usize::try_from(entry.0).ok()?));
        for input in inputs.filter(|input| input.is_variable()) {
            let ending = input.name.strip_prefix(node.name.as_str());
            if ending.is_some_and(|ending| PARAMETERS.contains(&ending)) {
                found.insert(input.name.as_str());
            }
        }
    }
    found
}

fn variable(node: &Node, is_parameter: bool) -> Variable {
    let number = node.text("__dtype__").and_then(|text| text.parse::<usize>().ok());
    let declared = number.and_then(|number| crate::DTYPES.get(number).copied());
    Variable {
        name: node.name.clone(),
        kind: VariableKind::Tensor,
        // Loading parameters casts the declaration, not the parameters.
        dtype: declared.filter(|_| !is_parameter),
        dtype_name: declared.map(|dtype| dtype.name().to_owned()),
        shape: node.text("__shape__").and_then(shape),
        lod_level: 0,
        persistable: is_parameter,
        parameter: is_parameter,
        stop_gradient: false,
    }
}

/// Parses a shape as Python prints it: `(16, -1)`, `[3]`. Sizes of 0 and -1 are unknown.
fn shape(text: &str) -> Option<Vec<i64>> {
    let inner = text.trim().strip_prefix(['(', '['])?.strip_suffix([')', ']'])?;
    let sizes = inner.split(',').map(str::trim).filter(|part| !part.is_empty());
    let sizes =
        sizes.map(|part| part.trim_end_matches('L').parse::<i64>().ok().map(|n| if n == 0 { -1 } else { n }));
    // A shape without sizes is unknown in files of Module.
    sizes.collect::<Option<Vec<i64>>>().filter(|sizes| !sizes.is_empty())
}
