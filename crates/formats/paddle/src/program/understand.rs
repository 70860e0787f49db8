//! Conversion of a program message to a [`Topology`].

use super::ProgramDesc;
use super::access::{bytes, kind, shown};
use super::framework::op_desc::Attr;
use super::framework::var_type::TensorDesc;
use super::framework::{self, AttrType, OpDesc, Scalar, VarDesc, VarType, scalar};
use crate::dtype;
use buffa::Enumeration;
use std::sync::Arc;
use weighbridge_core::topology::{
    Attribute, AttributeValue, Block, Endpoint, Operator, Slot, Topology, Variable, VariableKind,
};

impl ProgramDesc {
    /// Returns the content of the program. Bytes of names and texts that are not UTF-8 are shown as `\xNN`. An
    /// attribute without a value has the default of protobuf: 0, false, empty text. Unknown kinds and types are shown
    /// as numbers.
    pub fn topology(&self) -> Topology {
        let count = self.message.blocks.len();
        let blocks: Vec<Block> = self.message.blocks.iter().map(|b| block(b, count)).collect();
        let mut topology = Topology {
            form: "program-desc",
            writer: writer(self.version().unwrap_or(0)),
            bytes: Arc::clone(&self.bytes),
            blocks,
            feeds: Vec::new(),
            fetches: Vec::new(),
            operator_versions: operator_versions(&self.message),
        };
        topology.feeds = endpoints(&topology, "feed", |op| op.output("Out"));
        topology.fetches = endpoints(&topology, "fetch", |op| op.input("X"));
        topology
    }
}

/// Implements [`ProgramDesc::parameters`]. The order is that of the original bytes; escaped names may sort differently.
pub(super) fn parameters(program: &framework::ProgramDesc) -> Vec<Variable> {
    let stored = |v: &&VarDesc| v.persistable.unwrap_or(false) && !matches!(kind(v), Some(9 | 10 | 15 | 17));
    let mut all: Vec<&VarDesc> = program.blocks.iter().flat_map(|b| &b.vars).filter(stored).collect();
    all.sort_by_key(|v| bytes(&v.name));
    all.dedup_by_key(|v| bytes(&v.name));
    all.into_iter().map(variable).collect()
}

/// Returns `2.6.2` for 2006002; `None` for 0.
fn writer(version: i64) -> Option<String> {
    (version > 0).then(|| format!("{}.{}.{}", version / 1_000_000, version / 1000 % 1000, version % 1000))
}

fn operator_versions(program: &framework::ProgramDesc) -> Vec<(String, i64)> {
    let Some(map) = program.op_version_map.as_option() else { return Vec::new() };
    let pair = |pair: &framework::op_version_map::OpVersionPair| {
        let version = pair.op_version.as_option().and_then(|v| v.version).unwrap_or(0);
        (text(&pair.op_name), i64::from(version))
    };
    map.pair.iter().map(pair).collect()
}

/// Returns the inputs or outputs of the program: the operators of that type in the main block, in the
/// order of their attribute `col`.
fn endpoints(topology: &Topology, kind: &str, names: fn(&Operator) -> &[String]) -> Vec<Endpoint> {
    let Some(main) = topology.blocks.first() else { return Vec::new() };
    let column = |op: &&Operator| match op.attribute("col") {
        Some(AttributeValue::Int(col)) => *col,
        _ => 0,
    };
    let mut operators: Vec<&Operator> = main.operators.iter().filter(|op| op.kind == kind).collect();
    if operators.is_empty() {
        return Vec::new();
    }
    operators.sort_by_key(column);
    // One table for all, because a malformed program may have as many endpoints as variables.
    let mut declared = std::collections::HashMap::new();
    for variable in &main.variables {
        declared.entry(variable.name.as_str()).or_insert(variable);
    }
    let endpoint = |name: &String| {
        let variable = declared.get(name.as_str());
        Endpoint {
            name: name.clone(),
            dtype: variable.and_then(|v| v.dtype),
            shape: variable.and_then(|v| v.shape.clone()),
        }
    };
    operators.into_iter().flat_map(names).map(endpoint).collect()
}

fn block(desc: &framework::BlockDesc, count: usize) -> Block {
    Block {
        parent: place(desc.parent_idx.unwrap_or(-1)).filter(|&p| p < count),
        arguments: Vec::new(),
        variables: desc.vars.iter().map(variable).collect(),
        operators: desc.ops.iter().map(operator).collect(),
    }
}

/// Converts a number to an index; `None` if it is negative.
fn place(number: i32) -> Option<usize> {
    usize::try_from(number).ok()
}

fn variable(desc: &VarDesc) -> Variable {
    let number = kind(desc).unwrap_or(-1);
    let (tensor, lod_level) = desc.r#type.as_option().map_or((None, 0), |t| tensor(t, number));
    let element = tensor.and_then(|t| t.data_type).map(|t| t.to_i32());
    Variable {
        name: text(&desc.name),
        kind: variable_kind(number),
        dtype: element.and_then(dtype::from_number),
        dtype_name: element.map(|n| dtype::word(n).map_or_else(|| n.to_string(), str::to_owned)),
        shape: tensor.map(|t| t.dims.clone()),
        lod_level: u32::try_from(lod_level).unwrap_or(0),
        persistable: desc.persistable.unwrap_or(false),
        parameter: desc.is_parameter.unwrap_or(false),
        stop_gradient: desc.stop_gradient.unwrap_or(false),
    }
}

fn variable_kind(number: i32) -> VariableKind {
    match number {
        7 => VariableKind::Tensor,
        8 => VariableKind::SelectedRows,
        9 => VariableKind::Feed,
        10 => VariableKind::Fetch,
        13 => VariableKind::TensorArray,
        15 => VariableKind::Reader,
        17 => VariableKind::Raw,
        27 => VariableKind::Vocab,
        other => VariableKind::Other(dtype::word(other).map_or_else(|| other.to_string(), str::to_owned)),
    }
}

/// Returns the tensor described by a type with this number, and its LoD levels.
fn tensor(desc: &VarType, number: i32) -> (Option<&TensorDesc>, i32) {
    match number {
        7 => desc
            .lod_tensor
            .as_option()
            .map_or((None, 0), |t| (t.tensor.as_option(), t.lod_level.unwrap_or(0))),
        13 => desc
            .tensor_array
            .as_option()
            .map_or((None, 0), |t| (t.tensor.as_option(), t.lod_level.unwrap_or(0))),
        8 => (desc.selected_rows.as_option(), 0),
        25 => (desc.string.as_option(), 0),
        26 => (desc.strings.as_option(), 0),
        27 => (desc.vocab.as_option(), 0),
        30 => (desc.sparse_coo.as_option(), 0),
        31 => (desc.sparse_csr.as_option(), 0),
        _ => (None, 0),
    }
}

fn operator(desc: &OpDesc) -> Operator {
    let mut operator = Operator {
        kind: text(&desc.r#type),
        inputs: desc.inputs.iter().map(slot).collect(),
        outputs: desc.outputs.iter().map(slot).collect(),
        attributes: desc.attrs.iter().map(attribute).collect(),
        blocks: Vec::new(),
    };
    for attribute in &operator.attributes {
        let values = match &attribute.value {
            AttributeValue::List(values) => values.as_slice(),
            value => std::slice::from_ref(value),
        };
        operator.blocks.extend(values.iter().filter_map(|value| match value {
            AttributeValue::Block(place) => Some(*place),
            _ => None,
        }));
    }
    operator
}

fn slot(desc: &framework::op_desc::Var) -> Slot {
    Slot {
        name: text(&desc.parameter),
        arguments: desc.arguments.iter().map(|a| shown(a).into_owned()).collect(),
    }
}

fn attribute(attr: &Attr) -> Attribute {
    let number = attr.r#type.map_or(-1, |t| t.to_i32());
    let known = <AttrType as Enumeration>::from_i32(number);
    Attribute {
        name: text(&attr.name),
        kind: known.map_or_else(|| number.to_string(), |kind| kind.proto_name().to_owned()),
        value: known.map_or(AttributeValue::None, |kind| value(attr, kind)),
    }
}

fn value(attr: &Attr, kind: AttrType) -> AttributeValue {
    use AttributeValue::{Bool, Double, Float, Int};
    match kind {
        AttrType::INT => Int(attr.i.unwrap_or(0).into()),
        AttrType::FLOAT => Float(attr.f.unwrap_or(0.0)),
        AttrType::STRING => words(bytes(&attr.s)),
        AttrType::INTS => list(&attr.ints, |&i| Int(i.into())),
        AttrType::FLOATS => list(&attr.floats, |&f| Float(f)),
        AttrType::STRINGS => list(&attr.strings, |s| words(s)),
        AttrType::BOOLEAN => Bool(attr.b.unwrap_or(false)),
        AttrType::BOOLEANS => list(&attr.bools, |&b| Bool(b)),
        AttrType::BLOCK => body(attr.block_idx.unwrap_or(0)),
        AttrType::LONG => Int(attr.l.unwrap_or(0)),
        AttrType::BLOCKS => list(&attr.blocks_idx, |&b| body(b)),
        AttrType::LONGS => list(&attr.longs, |&l| Int(l)),
        AttrType::FLOAT64S => list(&attr.float64s, |&d| Double(d)),
        AttrType::VAR => AttributeValue::Variable(text(&attr.var_name)),
        AttrType::VARS => list(&attr.vars_name, |v| AttributeValue::Variable(shown(v).into_owned())),
        AttrType::FLOAT64 => Double(attr.float64.unwrap_or(0.0)),
        AttrType::SCALAR => attr.scalar.as_option().map_or(AttributeValue::None, number),
        AttrType::SCALARS => list(&attr.scalars, number),
    }
}

fn list<T>(values: &[T], one: impl Fn(&T) -> AttributeValue) -> AttributeValue {
    AttributeValue::List(values.iter().map(one).collect())
}

/// Returns a block, or the number if it cannot be a block index.
fn body(number: i32) -> AttributeValue {
    place(number).map_or(AttributeValue::Int(number.into()), AttributeValue::Block)
}

fn words(text: &[u8]) -> AttributeValue {
    match std::str::from_utf8(text) {
        Ok(text) => AttributeValue::Text(text.to_owned()),
        Err(_) => AttributeValue::Bytes(text.to_vec()),
    }
}

fn number(scalar: &Scalar) -> AttributeValue {
    match scalar.r#type.and_then(|t| t.as_known()) {
        Some(scalar::Type::BOOLEAN) => AttributeValue::Bool(scalar.b.unwrap_or(false)),
        Some(scalar::Type::LONG) => AttributeValue::Int(scalar.i.unwrap_or(0)),
        Some(scalar::Type::FLOAT64) => AttributeValue::Double(scalar.r.unwrap_or(0.0)),
        Some(scalar::Type::COMPLEX128) => {
            let part = |part: Option<f64>| part.unwrap_or(0.0);
            let c = scalar.c.as_option();
            AttributeValue::Complex(part(c.and_then(|c| c.r)), part(c.and_then(|c| c.i)))
        }
        None => AttributeValue::None,
    }
}

fn text(field: &Option<Vec<u8>>) -> String {
    shown(bytes(field)).into_owned()
}
