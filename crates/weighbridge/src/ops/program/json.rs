//! Complete program as JSON, with the stable schema of the command `program`.

use crate::checkpoint::Name;
use crate::tensor::DType;
use crate::text::json_number;
use crate::topology::{Attribute, AttributeValue, Block, Endpoint, Operator, Slot, Topology, Variable};
use serde_json::{Value as Json, json};

/// Maximum depth of nested lists of an attribute; deeper ones are null. Readers reject such files.
const MAX_DEPTH: usize = 256;

/// Returns all of `topology`: `form`, `writer`, `inputs`, `outputs`, `operator_versions`, `blocks`. The schema is documented in
/// `docs/src/reference/json.md`.
pub fn to_json(topology: &Topology) -> Json {
    let version = |(operator, version): &(String, i64)| json!({ "operator": operator, "version": version });
    json!({
        "form": topology.form,
        "writer": topology.writer,
        "inputs": topology.feeds.iter().map(endpoint).collect::<Json>(),
        "outputs": topology.fetches.iter().map(endpoint).collect::<Json>(),
        "operator_versions": topology.operator_versions.iter().map(version).collect::<Json>(),
        "blocks": topology.blocks.iter().map(block).collect::<Json>(),
    })
}

/// Returns `{"name", "dtype", "shape"}`.
pub(super) fn endpoint(endpoint: &Endpoint) -> Json {
    json!({ "name": endpoint.name, "dtype": endpoint.dtype.map(DType::name), "shape": endpoint.shape })
}

fn block(block: &Block) -> Json {
    json!({
        "parent": block.parent,
        "arguments": block.arguments,
        "variables": block.variables.iter().map(variable).collect::<Json>(),
        "operators": block.operators.iter().map(operator).collect::<Json>(),
    })
}

fn variable(variable: &Variable) -> Json {
    json!({
        "name": variable.name,
        "kind": variable.kind.as_str(),
        "dtype": variable.dtype.map(DType::name),
        "type": variable.dtype_name,
        "shape": variable.shape,
        "lod_level": variable.lod_level,
        "persistable": variable.persistable,
        "parameter": variable.parameter,
        "stop_gradient": variable.stop_gradient,
    })
}

fn operator(operator: &Operator) -> Json {
    let slot = |slot: &Slot| json!({ "slot": slot.name, "arguments": slot.arguments });
    json!({
        "type": operator.kind,
        "inputs": operator.inputs.iter().map(slot).collect::<Json>(),
        "outputs": operator.outputs.iter().map(slot).collect::<Json>(),
        "attributes": operator.attributes.iter().map(attribute).collect::<Json>(),
        "blocks": operator.blocks,
    })
}

fn attribute(attribute: &Attribute) -> Json {
    json!({ "name": attribute.name, "type": attribute.kind, "value": value(&attribute.value, 0) })
}

pub(in crate::ops) fn value(value_of: &AttributeValue, depth: usize) -> Json {
    match value_of {
        AttributeValue::None => Json::Null,
        AttributeValue::Bool(b) => json!(b),
        AttributeValue::Int(n) => json!(n),
        // The shortest decimal of the f32, not of the widened f64.
        AttributeValue::Float(x) if x.is_finite() => json!(x.to_string().parse::<f64>().ok()),
        AttributeValue::Float(x) => json_number((*x).into()),
        AttributeValue::Double(x) => json_number(*x),
        AttributeValue::Complex(re, im) => json!([json_number(*re), json_number(*im)]),
        AttributeValue::Text(text) | AttributeValue::Word(text) => json!(text),
        AttributeValue::Bytes(bytes) => Name::new(bytes.as_slice()).to_json(),
        AttributeValue::List(_) if depth >= MAX_DEPTH => Json::Null,
        AttributeValue::List(values) => values.iter().map(|v| value(v, depth + 1)).collect(),
        AttributeValue::Block(number) => json!({ "block": number }),
        AttributeValue::Variable(name) => json!({ "variable": name }),
    }
}
