//! Operators and nodes that contribute to the outputs.

use super::control::{MAX_DEPTH, too_deep};
use crate::model::{Attr, Graph, Node};
use std::collections::HashSet;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::topology::{Operator, Topology};

/// Returns, for each operator of each block, whether it contributes to the outputs. An operator of a body counts if the operator
/// that runs the body does.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`] for a block that two operators run; [`weighbridge_core::Kind::Limit`] for blocks that are
/// nested too deeply.
pub(super) fn of(topology: &Topology) -> Result<Vec<Vec<bool>>> {
    let mut live: Vec<Vec<bool>> = topology.blocks.iter().map(|b| vec![false; b.operators.len()]).collect();
    let mut wanted: HashSet<&str> = topology.fetches.iter().map(|fetch| fetch.name.as_str()).collect();
    let mut is_run: Vec<bool> = vec![false; topology.blocks.len()];
    let Some(main) = topology.blocks.first() else { return Ok(live) };
    for (place, operator) in main.operators.iter().enumerate().rev() {
        let is_end = matches!(operator.kind.as_str(), "fetch" | "pd_op.fetch" | "builtin.shadow_output");
        let takes_apart = operator.kind == "builtin.split" || operator.kind == "builtin.slice";
        let bodies = bodies(topology, operator, &mut is_run)?;
        let inner = || bodies.iter().flat_map(|body| &topology.blocks[*body].operators);
        // Operators change lists, and write variables through their bodies.
        let mut writes = std::iter::once(operator).chain(inner()).flat_map(written);
        if !is_end && !writes.any(|name| wanted.contains(name)) {
            continue;
        }
        live[0][place] = !is_end && !takes_apart;
        wanted.extend(std::iter::once(operator).chain(inner()).flat_map(read));
        for body in &bodies {
            for (place, operator) in topology.blocks[*body].operators.iter().enumerate() {
                live[*body][place] = !matches!(operator.kind.as_str(), "builtin.split" | "builtin.slice");
            }
        }
    }
    Ok(live)
}

/// Returns the blocks that an operator of the main block runs, and those that their operators run. `is_run` marks the blocks that
/// operators run.
fn bodies(topology: &Topology, operator: &Operator, is_run: &mut [bool]) -> Result<Vec<usize>> {
    let mut found = Vec::new();
    let mut next: Vec<(usize, usize)> = operator.blocks.iter().map(|body| (*body, 1)).collect();
    while let Some((body, depth)) = next.pop() {
        // The translation reports a block that does not exist.
        let Some(block) = topology.blocks.get(body) else { continue };
        if depth > MAX_DEPTH {
            return Err(too_deep());
        }
        if body == 0 || std::mem::replace(&mut is_run[body], true) {
            return Err(Error::corrupt("bad-program", "two operators of the program run the same block")
                .found(format_args!("block {body}")));
        }
        found.push(body);
        next.extend(block.operators.iter().flat_map(|o| &o.blocks).map(|body| (*body, depth + 1)));
    }
    Ok(found)
}

/// Returns the variables that an operator assigns: its outputs, and the operands that it changes.
fn written(operator: &Operator) -> impl Iterator<Item = &str> {
    let changed = is_in_place(operator).then_some(&operator.inputs);
    let slots = operator.outputs.iter().chain(changed.into_iter().flatten());
    slots.flat_map(|slot| &slot.arguments).map(String::as_str)
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
