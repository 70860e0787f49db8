//! A program as a graph in the language of Graphviz.

use super::{EMPTY, MAX_NESTING, type_text};
use crate::text::escape;
use crate::topology::{Block, Topology, Variable};
use std::collections::{HashMap, HashSet};
use std::fmt::Write;

/// Returns the Graphviz graph of `topology`: operators are boxes, variables ellipses, parameters shaded; inputs and outputs have
/// a thick border. Blocks of control flow are clusters with a dashed arrow to them. Nodes have numbers; names occur only in
/// labels, quoted.
pub fn to_dot<'a>(topology: &'a Topology) -> String {
    let mut children: Vec<Vec<usize>> = vec![Vec::new(); topology.blocks.len()];
    for (number, block) in topology.blocks.iter().enumerate() {
        if let Some(of_parent) = block.parent.and_then(|parent| children.get_mut(parent)) {
            of_parent.push(number);
        }
    }
    let nodes = topology.blocks.iter().map(|_| HashMap::new()).collect();
    let count = topology.blocks.len();
    let ends = [&topology.feeds, &topology.fetches].into_iter().flatten().map(|e| e.name.as_str()).collect();
    // Of two of one name, the first counts.
    let by_name = |block: &'a Block| block.variables.iter().rev().map(|v| (v.name.as_str(), v)).collect();
    let mut graph = Graph {
        topology,
        declared: topology.blocks.iter().map(by_name).collect(),
        children,
        ends,
        nodes,
        next: 0,
        out: String::new(),
        edges: String::new(),
        done: vec![false; count],
    };
    graph
        .out
        .push_str("digraph program {\n  rankdir=TB;\n  compound=true;\n  node [fontname=\"sans-serif\"];\n");
    for number in 0..count {
        // Nested blocks are written with their parents, unless the parents form a cycle or are nested too deeply.
        if topology.blocks[number].parent.is_none_or(|parent| parent >= count) {
            graph.block(number, 1);
        }
    }
    for number in 0..count {
        graph.block(number, 1);
    }
    let Graph { mut out, edges, .. } = graph;
    out.push_str(&edges);
    out.push_str("}\n");
    out
}

struct Graph<'a> {
    topology: &'a Topology,
    /// The variables declared by each block.
    declared: Vec<HashMap<&'a str, &'a Variable>>,
    /// The child blocks of each block.
    children: Vec<Vec<usize>>,
    /// The names of inputs and outputs.
    ends: HashSet<&'a str>,
    /// The nodes of the variables of each block.
    nodes: Vec<HashMap<&'a str, usize>>,
    next: usize,
    out: String,
    edges: String,
    done: Vec<bool>,
}

impl<'a> Graph<'a> {
    /// Writes a line, or a part of one. Writing to a string cannot fail.
    fn line(&mut self, depth: usize, text: &str) {
        self.out.extend(std::iter::repeat_n("  ", depth));
        self.out.push_str(text);
        self.out.push('\n');
    }

    fn block(&mut self, number: usize, depth: usize) {
        let topology = self.topology;
        let Some(block) = topology.blocks.get(number) else { return };
        if depth > MAX_NESTING || std::mem::replace(&mut self.done[number], true) {
            return;
        }
        let inner = number > 0;
        if inner {
            self.line(depth, &format!("subgraph cluster_{number} {{"));
            self.line(depth + 1, &format!("label=\"block {number}\"; style=rounded;"));
        }
        for (place, operator) in block.operators.iter().enumerate() {
            let node = format!("o{number}_{place}");
            self.line(depth + 1, &format!("{node} [shape=box, label={}];", label(&operator.kind, "")));
            for slot in &operator.inputs {
                for name in slot.arguments.iter().filter(|name| is_there(name)) {
                    let variable = self.variable(number, name, depth + 1);
                    let _ = writeln!(self.edges, "  v{variable} -> {node};");
                }
            }
            for slot in &operator.outputs {
                for name in slot.arguments.iter().filter(|name| is_there(name)) {
                    let variable = self.variable(number, name, depth + 1);
                    let _ = writeln!(self.edges, "  {node} -> v{variable};");
                }
            }
            for &body in &operator.blocks {
                // An arrow needs a target node.
                let filled = topology.blocks.get(body).is_some_and(|b| !b.operators.is_empty());
                if filled && body > 0 {
                    let _ =
                        writeln!(self.edges, "  {node} -> o{body}_0 [style=dashed, lhead=cluster_{body}];");
                }
            }
        }
        for child in std::mem::take(&mut self.children[number]) {
            self.block(child, depth + 1);
        }
        if inner {
            self.line(depth, "}");
        }
    }

    /// Returns the node of a variable; it is created at its first use.
    fn variable(&mut self, block: usize, name: &'a str, depth: usize) -> usize {
        let (owner, declared) = self.owner(block, name);
        if let Some(&node) = self.nodes[owner].get(name) {
            return node;
        }
        let node = self.next;
        self.next += 1;
        self.nodes[owner].insert(name, node);
        let kind = declared
            .map_or_else(String::new, |v| type_text(v.dtype, v.dtype_name.as_deref(), v.shape.as_deref()));
        let style = match (declared.is_some_and(|v| v.persistable), self.ends.contains(name)) {
            (true, _) => ", style=filled, fillcolor=lightgrey",
            (false, true) => ", penwidth=3",
            (false, false) => "",
        };
        self.line(depth, &format!("v{node} [shape=ellipse, label={}{style}];", label(name, &kind)));
        node
    }

    /// Returns the block whose declaration of a variable is visible in `block`; `block` itself where there is none.
    fn owner(&self, block: usize, name: &str) -> (usize, Option<&'a Variable>) {
        let mut at = Some(block);
        for _ in 0..=MAX_NESTING {
            let Some((number, here)) = at.and_then(|n| Some((n, self.topology.blocks.get(n)?))) else {
                break;
            };
            if let Some(found) = self.declared[number].get(name) {
                return (number, Some(found));
            }
            if self.nodes[number].contains_key(name) {
                return (number, None);
            }
            at = here.parent;
        }
        (block, None)
    }
}

fn is_there(name: &str) -> bool {
    !name.is_empty() && name != EMPTY
}

/// Returns a quoted label of one or two lines, with escaped quotes and backslashes.
fn label(name: &str, kind: &str) -> String {
    let safe = |text: &str| escape(text).replace('\\', "\\\\").replace('"', "\\\"");
    match kind {
        "" => format!("\"{}\"", safe(name)),
        kind => format!("\"{}\\n{}\"", safe(name), safe(kind)),
    }
}
