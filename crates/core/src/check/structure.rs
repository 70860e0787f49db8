//! Consistency check of a program by itself.

use super::{Findings, listed};
use crate::finding::Finding;
use crate::text::quoted;
use crate::topology::{Attribute, AttributeValue, Operator, Topology};
use std::collections::HashSet;

/// Name of an omitted argument.
const EMPTY: &str = "@EMPTY@";
/// Maximum nesting of lists in an attribute.
const MAX_DEPTH: usize = 64;

/// Finds dangling references of a program.
///
/// Errors: `unknown-feed` and `unknown-fetch` (an input or output that no block declares or writes), `undeclared-variable` (an
/// operator reads a variable that no block declares or writes), `unknown-block` (a missing body or parent block), `block-ring`
/// (blocks nested in each other). Warning: `unused-parameters`.
pub fn structure(topology: &Topology) -> Vec<Finding> {
    let known = known_names(topology);
    let mut found = Findings::default();
    blocks(topology, &mut found);
    for (endpoints, code, what) in
        [(&topology.feeds, "unknown-feed", "input"), (&topology.fetches, "unknown-fetch", "output")]
    {
        for endpoint in endpoints.iter().filter(|e| !known.contains(e.name.as_str())) {
            found.error(code, || {
                format!("the {what} {} is not declared or written in any block", quoted(&endpoint.name))
            });
        }
    }
    let mut reported = HashSet::new();
    for (number, block) in topology.blocks.iter().enumerate() {
        for operator in &block.operators {
            for name in arguments(operator).filter(|name| !known.contains(name) && reported.insert(*name)) {
                found.error("undeclared-variable", || {
                    format!(
                        "{} in block {number} reads {}, which is not declared or written",
                        quoted(&operator.kind),
                        quoted(name)
                    )
                });
            }
        }
    }
    let mut findings = found.finish();
    findings.extend(unused(topology));
    findings
}

/// Returns all names that exist: declared, passed to a block, or written by an operator.
fn known_names(topology: &Topology) -> HashSet<&str> {
    let mut names = HashSet::new();
    for block in &topology.blocks {
        names.extend(block.variables.iter().map(|v| v.name.as_str()));
        names.extend(block.arguments.iter().map(String::as_str));
        let written = block.operators.iter().flat_map(|o| &o.outputs).flat_map(|s| &s.arguments);
        names.extend(written.map(String::as_str));
    }
    names
}

/// Returns the names that an operator reads, without omitted arguments.
fn arguments(operator: &Operator) -> impl Iterator<Item = &str> {
    let all = operator.inputs.iter().flat_map(|slot| &slot.arguments).map(String::as_str);
    all.filter(|name| !name.is_empty() && *name != EMPTY)
}

fn blocks(topology: &Topology, found: &mut Findings) {
    let count = topology.blocks.len();
    for (number, block) in topology.blocks.iter().enumerate() {
        if let Some(parent) = block.parent.filter(|&parent| parent >= count) {
            found.error("unknown-block", || {
                format!("the parent of block {number} is block {parent}, which does not exist")
            });
        }
        for operator in &block.operators {
            for body in operator.blocks.iter().filter(|&&body| body >= count) {
                found.error("unknown-block", || {
                    let kind = quoted(&operator.kind);
                    format!("{kind} in block {number} runs block {body}, which does not exist")
                });
            }
        }
    }
    for number in ring(topology) {
        found.error("block-ring", || format!("block {number} is its own ancestor"));
    }
}

/// Returns the blocks whose chain of parents never ends. The walk visits each block once.
fn ring(topology: &Topology) -> Vec<usize> {
    #[derive(Clone, Copy, PartialEq)]
    enum Seen {
        No,
        OnThisWalk,
        Ends,
        Rings,
    }
    let mut seen = vec![Seen::No; topology.blocks.len()];
    for first in 0..seen.len() {
        let (mut walk, mut at) = (Vec::new(), Some(first));
        let end = loop {
            let Some((number, state)) = at.and_then(|n| Some((n, *seen.get(n)?))) else { break Seen::Ends };
            match state {
                Seen::No => {
                    seen[number] = Seen::OnThisWalk;
                    walk.push(number);
                    at = topology.blocks[number].parent;
                }
                Seen::OnThisWalk => break Seen::Rings,
                known => break known,
            }
        };
        for number in walk {
            seen[number] = end;
        }
    }
    (0..seen.len()).filter(|&n| seen[n] == Seen::Rings).collect()
}

/// Reports parameters that no operator reads, as one warning.
fn unused(topology: &Topology) -> Option<Finding> {
    let mut used: HashSet<&str> = topology.fetches.iter().map(|f| f.name.as_str()).collect();
    for operator in topology.operators() {
        used.extend(arguments(operator));
        for attribute in &operator.attributes {
            variables_of(attribute, &mut used);
        }
    }
    let unused: Vec<&str> =
        topology.parameters().iter().map(|v| v.name.as_str()).filter(|name| !used.contains(name)).collect();
    if unused.is_empty() {
        return None;
    }
    let text =
        format!("no operator reads {} of the parameters: {}", unused.len(), listed(unused.iter().copied()));
    Some(Finding::warning("unused-parameters", text))
}

/// Collects the names of variables used as values of an attribute.
fn variables_of<'a>(attribute: &'a Attribute, used: &mut HashSet<&'a str>) {
    let mut open = vec![(&attribute.value, 0)];
    while let Some((value, depth)) = open.pop() {
        match value {
            AttributeValue::Variable(name) => {
                used.insert(name);
            }
            AttributeValue::List(values) if depth < MAX_DEPTH => {
                open.extend(values.iter().map(|value| (value, depth + 1)));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{endpoint, linear, operator, program, variable};
    use super::*;
    use crate::topology::Block;

    fn codes(topology: &Topology) -> Vec<&'static str> {
        structure(topology).iter().map(|f| f.code.as_str()).collect()
    }

    #[test]
    fn accepts_a_complete_program() {
        assert_eq!(structure(&linear()), []);
        let mut optional = linear();
        optional.blocks[0].operators[0].inputs[0].arguments.push(EMPTY.to_owned());
        assert_eq!(structure(&optional), []);
    }

    #[test]
    fn reports_dangling_references() {
        let mut bad = linear();
        bad.feeds.push(endpoint("z", &[1]));
        bad.fetches.push(endpoint("w\n", &[1]));
        bad.blocks[0].operators.push(operator("scale", &[("X", &["lost", "y"])], &[("Out", &["new"])]));
        bad.blocks[0].operators.push(operator("scale", &[("X", &["lost", "new"])], &[("Out", &["o"])]));
        bad.blocks[0].operators[0].blocks = vec![7];
        let findings = structure(&bad);
        let codes: Vec<_> = findings.iter().map(|f| f.code.as_str()).collect();
        assert_eq!(codes, ["unknown-block", "unknown-feed", "unknown-fetch", "undeclared-variable"]);
        assert!(findings[2].text.contains(" w\\n "));
        assert_eq!(findings[3].text, "scale in block 0 reads lost, which is not declared or written");
    }

    #[test]
    fn reports_cycles_of_blocks() {
        let inside = |parent| Block { parent: Some(parent), ..Block::default() };
        let make = |blocks: Vec<Block>| program(blocks, Vec::new(), Vec::new());
        assert_eq!(codes(&make(vec![Block::default(), inside(0), inside(1), inside(1)])), [""; 0]);
        let rings = make(vec![Block::default(), inside(2), inside(1), inside(1), inside(4)]);
        assert_eq!(codes(&rings), ["block-ring"; 4]);
        assert_eq!(codes(&make(vec![inside(0)])), ["block-ring"]);
        assert_eq!(codes(&make(vec![inside(9)])), ["unknown-block"]);
    }

    #[test]
    fn reports_unused_parameters() {
        let mut idle = linear();
        idle.blocks[0].variables.push(variable("idle", &[1], true));
        assert_eq!(codes(&idle), ["unused-parameters"]);
        let list = AttributeValue::List(vec![AttributeValue::Variable("idle".into())]);
        idle.blocks[0].operators[0].attributes.push(Attribute {
            name: "ShapeTensor".into(),
            kind: "VARS".into(),
            value: list,
        });
        assert_eq!(structure(&idle), []);
    }
}
