//! Operators and nodes that contribute to the outputs.

use crate::model::{Attr, Graph, Node};
use std::collections::HashSet;
use weighbridge_core::topology::{Operator, Topology};

/// Returns, for each operator of each block, whether it contributes to the outputs. An operator of a body counts if the operator
/// that runs the body does.
pub(super) fn of(topology: &Topology) -> Vec<Vec<bool>> {
    let mut live: Vec<Vec<bool>> = topology.blocks.iter().map(|b| vec![false; b.operators.len()]).collect();
    let mut wanted: HashSet<&str> = topology.fetches.iter().map(|fetch| fetch.name.as_str()).collect();
    let mut bodies: Vec<usize> = Vec::new();
    if let Some(main) = topology.blocks.first() {
        for (place, operator) in main.operators.iter().enumerate().rev() {
            let is_end = matches!(operator.kind.as_str(), "fetch" | "pd_op.fetch" | "builtin.shadow_output");
            let writes = operator.outputs.iter().flat_map(|slot| &slot.arguments);
            let takes_apart = operator.kind == "builtin.split" || operator.kind == "builtin.slice";
            // An operator that changes a list or writes variables through its bodies.
            let changes = is_in_place(operator)
                && operator
                    .inputs
                    .iter()
                    .flat_map(|s| &s.arguments)
                    .any(|name| wanted.contains(name.as_str()));
            let mut inner = written_by_bodies(topology, operator);
            let needed = is_end
                || changes
                || writes.clone().any(|name| wanted.contains(name.as_str()))
                || inner.any(|name| wanted.contains(name));
            if !needed {
                continue;
            }
            live[0][place] = !is_end && !takes_apart;
            wanted.extend(read(operator));
            let known = bodies.len();
            for body in &operator.blocks {
                collect(topology, *body, &mut bodies);
            }
            for body in &bodies[known..] {
                for inner in &topology.blocks[*body].operators {
                    wanted.extend(read(inner));
                }
            }
        }
    }
    for body in bodies {
        for (place, operator) in topology.blocks[body].operators.iter().enumerate() {
            live[body][place] = !matches!(operator.kind.as_str(), "builtin.split" | "builtin.slice");
        }
    }
    live
}

/// Returns the variables that an operator reads: its inputs, and those that supply attributes.
fn read(operator: &Operator) -> impl Iterator<Item = &str> {
    let inputs = operator.inputs.iter().flat_map(|slot| &slot.arguments).map(String::as_str);
    inputs
        .chain(operator.attributes.iter().flat_map(|attribute| super::operator::variables(&attribute.value)))
}

/// Returns the variables that operators and outputs of a program read.
pub(super) fn all_read(topology: &Topology) -> HashSet<&str> {
    let operators = topology.blocks.iter().flat_map(|block| &block.operators).flat_map(read);
    operators.chain(topology.fetches.iter().map(|fetch| fetch.name.as_str())).collect()
}

/// Returns true for an operator that changes an operand.
fn is_in_place(operator: &Operator) -> bool {
    matches!(
        operator.kind.as_str(),
        "write_to_array" | "pd_op.array_write_" | "pd_op.assign_out_" | "pd_op.increment_"
    )
}

/// Adds a block and the blocks that its operators run.
fn collect(topology: &Topology, number: usize, found: &mut Vec<usize>) {
    if number == 0 || number >= topology.blocks.len() || found.contains(&number) {
        return;
    }
    found.push(number);
    for operator in &topology.blocks[number].operators {
        for body in &operator.blocks {
            collect(topology, *body, found);
        }
    }
}

/// Returns the variables that the bodies of an operator write.
fn written_by_bodies<'a>(
    topology: &'a Topology,
    operator: &Operator,
) -> impl Iterator<Item = &'a str> + use<'a> {
    let mut bodies = Vec::new();
    for body in &operator.blocks {
        collect(topology, *body, &mut bodies);
    }
    bodies.into_iter().flat_map(|body| &topology.blocks[body].operators).flat_map(|operator| {
        let outputs = operator.outputs.iter().flat_map(|s| &s.arguments);
        let changed = is_in_place(operator).then(|| operator.inputs.iter().flat_map(|s| &s.arguments));
        outputs.chain(changed.into_iter().flatten()).map(String::as_str)
    })
}

/// Removes nodes and stored tensors that contribute to no output.
pub(super) fn prune(graph: &mut Graph) {
    let mut wanted: HashSet<String> = graph.outputs.iter().map(|output| output.name.clone()).collect();
    let mut kept: Vec<Node> = Vec::new();
    while let Some(node) = graph.nodes.pop() {
        if node.outputs.iter().any(|name| wanted.contains(name)) {
            read_by(&node, &mut wanted);
            kept.push(node);
        }
    }
    kept.reverse();
    graph.nodes = kept;
    graph.initializers.retain(|initializer| wanted.contains(&initializer.name));
}

/// Adds the names that a node reads, in its bodies too.
fn read_by(node: &Node, wanted: &mut HashSet<String>) {
    wanted.extend(node.inputs.iter().filter(|name| !name.is_empty()).cloned());
    for (_, attribute) in &node.attributes {
        if let Attr::Graph(body) = attribute {
            body.nodes.iter().for_each(|node| read_by(node, wanted));
            wanted.extend(body.outputs.iter().map(|output| output.name.clone()));
        }
    }
}
