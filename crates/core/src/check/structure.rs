//! A program on its own: does it hold together?

use super::{Findings, listed};
use crate::finding::Finding;
use crate::text::quoted;
use crate::topology::{Attribute, AttributeValue, Operator, Topology};
use std::collections::HashSet;

/// The name that stands where an argument is left out.
const EMPTY: &str = "@EMPTY@";
/// Lists within lists of an attribute are followed so far.
const MOST_NESTED: usize = 64;

/// Looks for what a program refers to and does not have: `unknown-feed` and `unknown-fetch` (an
/// input or output that no block declares or writes), `undeclared-variable` (an operator reads what
/// nobody declares or writes), `unknown-block` (a body, or the block around one, that is not
/// there), `block-ring` (blocks that stand in each other); and, as a warning, `unused-parameters`.
pub fn structure(topology: &Topology) -> Vec<Finding> {
    let known = known_names(topology);
    let mut found = Findings::default();
    blocks(topology, &mut found);
    for (endpoints, code, what) in
        [(&topology.feeds, "unknown-feed", "input"), (&topology.fetches, "unknown-fetch", "output")]
    {
        for endpoint in endpoints.iter().filter(|e| !known.contains(e.name.as_str())) {
            found.error(code, || {
                format!("the program names an {what} that no block has: {}", quoted(&endpoint.name))
            });
        }
    }
    let mut told = HashSet::new();
    for (number, block) in topology.blocks.iter().enumerate() {
        for operator in &block.operators {
            for name in arguments(operator).filter(|name| !known.contains(name) && told.insert(*name)) {
                found.error("undeclared-variable", || {
                    format!(
                        "{} in block {number} reads {}, which nobody declares or writes",
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

/// All names that exist: declared, given to a block, or written by an operator.
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

/// What an operator reads: the arguments of its slots that are not left out.
fn arguments(operator: &Operator) -> impl Iterator<Item = &str> {
    let all = operator.inputs.iter().flat_map(|slot| &slot.arguments).map(String::as_str);
    all.filter(|name| !name.is_empty() && *name != EMPTY)
}

fn blocks(topology: &Topology, found: &mut Findings) {
    let count = topology.blocks.len();
    for (number, block) in topology.blocks.iter().enumerate() {
        if let Some(parent) = block.parent.filter(|&parent| parent >= count) {
            found.error("unknown-block", || {
                format!("block {number} stands in block {parent}, which is not there")
            });
        }
        for operator in &block.operators {
            for body in operator.blocks.iter().filter(|&&body| body >= count) {
                found.error("unknown-block", || {
                    let kind = quoted(&operator.kind);
                    format!("{kind} in block {number} runs block {body}, which is not there")
                });
            }
        }
    }
    for number in ring(topology) {
        found.error("block-ring", || {
            format!("block {number} stands, through the blocks around it, in itself")
        });
    }
}

/// Blocks from which the way outwards never ends, by a walk that sees each block once.
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

/// Parameters that nothing reads, as one warning.
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

/// Names of variables that stand in for the value of an attribute.
fn variables_of<'a>(attribute: &'a Attribute, used: &mut HashSet<&'a str>) {
    let mut open = vec![(&attribute.value, 0)];
    while let Some((value, depth)) = open.pop() {
        match value {
            AttributeValue::Variable(name) => {
                used.insert(name);
            }
            AttributeValue::List(values) if depth < MOST_NESTED => {
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
    fn a_whole_program_is_silent() {
        assert_eq!(structure(&linear()), []);
        let mut optional = linear();
        optional.blocks[0].operators[0].inputs[0].arguments.push(EMPTY.to_owned());
        assert_eq!(structure(&optional), []);
    }

    #[test]
    fn what_is_referred_to_must_be_there() {
        let mut bad = linear();
        bad.feeds.push(endpoint("z", &[1]));
        bad.fetches.push(endpoint("w\n", &[1]));
        bad.blocks[0].operators.push(operator("scale", &[("X", &["lost", "y"])], &[("Out", &["new"])]));
        bad.blocks[0].operators.push(operator("scale", &[("X", &["lost", "new"])], &[("Out", &["o"])]));
        bad.blocks[0].operators[0].blocks = vec![7];
        let findings = structure(&bad);
        let codes: Vec<_> = findings.iter().map(|f| f.code.as_str()).collect();
        assert_eq!(codes, ["unknown-block", "unknown-feed", "unknown-fetch", "undeclared-variable"]);
        assert!(findings[2].text.ends_with("w\\n"));
        assert_eq!(findings[3].text, "scale in block 0 reads lost, which nobody declares or writes");
    }

    #[test]
    fn parents_must_lead_out() {
        let inside = |parent| Block { parent: Some(parent), ..Block::default() };
        let make = |blocks: Vec<Block>| program(blocks, Vec::new(), Vec::new());
        assert_eq!(codes(&make(vec![Block::default(), inside(0), inside(1), inside(1)])), [""; 0]);
        let rings = make(vec![Block::default(), inside(2), inside(1), inside(1), inside(4)]);
        assert_eq!(codes(&rings), ["block-ring"; 4]);
        assert_eq!(codes(&make(vec![inside(0)])), ["block-ring"]);
        assert_eq!(codes(&make(vec![inside(9)])), ["unknown-block"]);
    }

    #[test]
    fn parameters_that_nobody_reads_are_named() {
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
