//! Text of a graph, for `--plan`.

use crate::model::{Attr, Dim, Graph, InitializerData, Node, ValueInfo};
use std::fmt::Write as _;
use weighbridge_core::text::escape;

/// Maximum elements of a list in an attribute.
const MAX_ITEMS: usize = 8;

/// Returns the inputs, the nodes and the outputs of a graph, a line each; nodes of bodies are indented.
pub(crate) fn graph(graph: &Graph) -> String {
    let mut out = String::new();
    let parameters =
        graph.initializers.iter().filter(|i| matches!(i.data, InitializerData::Entry(_))).count();
    let constants = graph.initializers.len() - parameters;
    // Writing to a text does not fail.
    let _ =
        writeln!(out, "graph of {} nodes, {parameters} parameters and {constants} constants", count(graph));
    ends(&mut out, "input", &graph.inputs);
    nodes(&mut out, &graph.nodes, 1);
    ends(&mut out, "output", &graph.outputs);
    out
}

/// Counts the nodes, those of bodies too.
fn count(graph: &Graph) -> usize {
    let inner = |node: &Node| -> usize {
        let body = |attr: &Attr| if let Attr::Graph(body) = attr { count(body) } else { 0 };
        node.attributes.iter().map(|(_, attr)| body(attr)).sum()
    };
    graph.nodes.iter().map(|node| 1 + inner(node)).sum()
}

fn ends(out: &mut String, what: &str, values: &[ValueInfo]) {
    for value in values {
        let shape = value.shape.as_ref().map_or_else(|| "of any shape".to_owned(), |dims| shape(dims));
        let _ = writeln!(out, "  {what} {} {} {shape}", escape(&value.name), value.dtype);
    }
}

/// Returns dimensions as `[batch, 3, ?]`.
pub(crate) fn shape(dims: &[Dim]) -> String {
    let dim = |dim: &Dim| match dim {
        Dim::Size(size) => size.to_string(),
        Dim::Symbol(name) => escape(name),
        Dim::Open => "?".to_owned(),
    };
    format!("[{}]", dims.iter().map(dim).collect::<Vec<_>>().join(", "))
}

fn nodes(out: &mut String, nodes: &[Node], depth: usize) {
    for node in nodes {
        let names = |names: &[String]| names.iter().map(|n| escape(n)).collect::<Vec<_>>().join(", ");
        let indent = "  ".repeat(depth);
        let _ = write!(out, "{indent}{} = {}({}", names(&node.outputs), node.kind, names(&node.inputs));
        let mut first = node.inputs.is_empty();
        for (name, value) in &node.attributes {
            if let Some(value) = attribute(value) {
                let gap = if first { "" } else { ", " };
                let _ = write!(out, "{gap}{name}={value}");
                first = false;
            }
        }
        out.push_str(")\n");
        for (name, value) in &node.attributes {
            if let Attr::Graph(body) = value {
                let inputs: Vec<String> = body.inputs.iter().map(|i| escape(&i.name)).collect();
                let outputs: Vec<String> = body.outputs.iter().map(|o| escape(&o.name)).collect();
                let _ = writeln!(out, "{indent}  {name}({}) -> {}:", inputs.join(", "), outputs.join(", "));
                self::nodes(out, &body.nodes, depth + 2);
            }
        }
    }
}

/// Returns the text of an attribute; `None` for a body, which is shown below its node.
fn attribute(value: &Attr) -> Option<String> {
    fn list<T: ToString>(values: &[T]) -> String {
        let mut items: Vec<String> = values.iter().take(MAX_ITEMS).map(T::to_string).collect();
        if values.len() > MAX_ITEMS {
            items.push(format!("... {} in all", values.len()));
        }
        format!("[{}]", items.join(", "))
    }
    Some(match value {
        Attr::Int(value) => value.to_string(),
        Attr::Float(value) => value.to_string(),
        Attr::Text(value) => escape(value),
        Attr::Ints(values) => list(values),
        Attr::Floats(values) => list(values),
        Attr::Texts(values) => list(&values.iter().map(|v| escape(v)).collect::<Vec<_>>()),
        Attr::Tensor(tensor) => format!("{} {}", tensor.dtype, list(&tensor.to_floats())),
        Attr::Graph(_) => return None,
    })
}
