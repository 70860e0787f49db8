//! Differences of two programs: operators in order, their attributes, variables, inputs and outputs.

use super::Change;
use super::brief::{change, excerpt};
use crate::ops::program::value;
use crate::topology::{Block, Endpoint, Operator, Slot, Topology, Variable};
use serde_json::{Value as Json, json};
use similar::{Algorithm, DiffOp, capture_diff_slices};
use std::collections::{BTreeMap, HashMap};

/// Difference between two programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramChange {
    /// The index of the block.
    pub block: usize,
    /// The subject: `operator 3 (conv2d)`, `variable fc_0.w_0`, `inputs`.
    pub subject: String,
    /// The part of it: `attribute strides`, `input X`, `shape`. `None` where it exists on one side only.
    pub part: Option<String>,
    /// The value on the left.
    pub left: Option<String>,
    /// The value on the right.
    pub right: Option<String>,
}

impl ProgramChange {
    /// Returns the JSON of a report.
    pub fn to_json(&self) -> Json {
        json!({ "block": self.block, "subject": self.subject, "part": self.part, "left": self.left, "right": self.right })
    }
}

/// The property of a variable that is compared on request.
const STOP_GRADIENT: &str = "stop_gradient";
/// Maximum number of listed differences: an operator takes five bytes in a file, but a hundred bytes of JSON here.
const MAX_CHANGES: usize = 20_000;

/// Differences of two programs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProgramDiff {
    /// Differences in the order of the programs, at most 20,000.
    pub changes: Vec<ProgramChange>,
    /// Number of unlisted differences.
    pub more: usize,
}

impl ProgramDiff {
    /// Returns the number of differences, listed or not.
    pub fn count(&self) -> usize {
        self.changes.len() + self.more
    }
}

/// Returns the differences. Equal programs have none, even if their bytes or producers differ.
pub fn program(left: &Topology, right: &Topology) -> ProgramDiff {
    compare(left, right, true)
}

/// As [`program`]; without `all`, gradient flags of variables are ignored.
pub(super) fn compare(left: &Topology, right: &Topology, all: bool) -> ProgramDiff {
    let mut changes = Changes { block: 0, all, found: ProgramDiff::default() };
    for (word, a, b) in [("inputs", &left.feeds, &right.feeds), ("outputs", &left.fetches, &right.fetches)] {
        changes.part(word, None, &endpoints(a), &endpoints(b));
    }
    // Other forms of a program have other versions.
    if left.form == right.form {
        changes.part("versions of operators", None, &versions(left), &versions(right));
    }
    for number in 0..left.blocks.len().max(right.blocks.len()) {
        changes.block = number;
        match (left.blocks.get(number), right.blocks.get(number)) {
            (Some(a), Some(b)) => changes.blocks(a, b),
            (a, b) => changes.push("block", None, a.map(size), b.map(size)),
        }
    }
    changes.found
}

/// Returns the program with new names of values: those of the other side, for tensors that were paired under two names.
pub(super) fn renamed(topology: &Topology, names: &HashMap<String, String>) -> Topology {
    let mut renamed = topology.clone();
    for block in &mut renamed.blocks {
        let slots = block.operators.iter_mut().flat_map(|op| op.inputs.iter_mut().chain(&mut op.outputs));
        let used = slots.flat_map(|slot| &mut slot.arguments).chain(&mut block.arguments);
        for name in used.chain(block.variables.iter_mut().map(|variable| &mut variable.name)) {
            if let Some(new) = names.get(name.as_str()) {
                name.clone_from(new);
            }
        }
    }
    renamed
}

fn versions(topology: &Topology) -> String {
    let versions = topology.operator_versions.iter().map(|(name, version)| format!("{name} {version}"));
    versions.collect::<Vec<_>>().join(", ")
}

fn size(block: &Block) -> String {
    format!("{} operators, {} variables", block.operators.len(), block.variables.len())
}

struct Changes {
    block: usize,
    all: bool,
    found: ProgramDiff,
}

impl Changes {
    fn push(&mut self, subject: &str, part: Option<&str>, left: Option<String>, right: Option<String>) {
        if self.found.changes.len() == MAX_CHANGES {
            self.found.more += 1;
            return;
        }
        // Names have any length, and each may have many differences.
        let (subject, part) = (excerpt(subject, 0), part.map(|part| excerpt(part, 0)));
        let Change { left, right, .. } = change(String::new(), left, right);
        self.found.changes.push(ProgramChange { block: self.block, subject, part, left, right });
    }

    /// Adds a difference, if the texts differ.
    fn part(&mut self, subject: &str, part: Option<&str>, left: &str, right: &str) {
        if left != right {
            self.push(subject, part, Some(left.to_owned()), Some(right.to_owned()));
        }
    }

    fn blocks(&mut self, left: &Block, right: &Block) {
        fn by_name(block: &Block) -> BTreeMap<&str, &Variable> {
            block.variables.iter().map(|v| (v.name.as_str(), v)).collect()
        }
        let all = self.all;
        let (old, new) = (by_name(left), by_name(right));
        for (name, variable) in &old {
            let subject = format!("variable {name}");
            match new.get(name) {
                Some(other) => {
                    let pairs = properties(variable).into_iter().zip(properties(other));
                    for ((part, a), (_, b)) in pairs.filter(|((part, _), _)| all || *part != STOP_GRADIENT) {
                        self.part(&subject, Some(part), &a, &b);
                    }
                }
                None => self.push(&subject, None, Some(variable.kind.as_str().to_owned()), None),
            }
        }
        for (name, variable) in new.iter().filter(|(name, _)| !old.contains_key(**name)) {
            self.push(&format!("variable {name}"), None, None, Some(variable.kind.as_str().to_owned()));
        }
        self.operators(&left.operators, &right.operators);
    }

    /// Compares operators of one type at the same position among the others.
    fn operators(&mut self, left: &[Operator], right: &[Operator]) {
        let kinds = |list: &[Operator]| list.iter().map(|op| op.kind.clone()).collect::<Vec<_>>();
        for step in capture_diff_slices(Algorithm::Patience, &kinds(left), &kinds(right)) {
            let (old, new) = (step.old_range(), step.new_range());
            if let DiffOp::Equal { .. } = step {
                for (a, (place, b)) in
                    left[old].iter().zip(right[new.clone()].iter().zip(new).map(|(b, at)| (at, b)))
                {
                    self.operator(place, a, b);
                }
                continue;
            }
            for (place, op) in old.clone().zip(&left[old]) {
                self.push(&format!("operator {place}"), None, Some(op.kind.clone()), None);
            }
            for (place, op) in new.clone().zip(&right[new]) {
                self.push(&format!("operator {place}"), None, None, Some(op.kind.clone()));
            }
        }
    }

    fn operator(&mut self, place: usize, left: &Operator, right: &Operator) {
        let subject = format!("operator {place} ({})", right.kind);
        for (word, a, b) in
            [("input", &left.inputs, &right.inputs), ("output", &left.outputs, &right.outputs)]
        {
            fn names(slots: &[Slot]) -> BTreeMap<&str, String> {
                slots.iter().map(|slot| (slot.name.as_str(), slot.arguments.join(", "))).collect()
            }
            self.maps(&subject, word, &names(a), &names(b));
        }
        fn settings(op: &Operator) -> BTreeMap<&str, String> {
            op.attributes.iter().map(|a| (a.name.as_str(), value(&a.value, 0).to_string())).collect()
        }
        self.maps(&subject, "attribute", &settings(left), &settings(right));
    }

    fn maps(
        &mut self,
        subject: &str,
        word: &str,
        left: &BTreeMap<&str, String>,
        right: &BTreeMap<&str, String>,
    ) {
        let mut keys: Vec<&str> = left.keys().chain(right.keys()).copied().collect();
        keys.sort_unstable();
        keys.dedup();
        for key in keys {
            let (a, b) = (left.get(key), right.get(key));
            if a != b {
                self.push(subject, Some(&format!("{word} {key}")), a.cloned(), b.cloned());
            }
        }
    }
}

fn properties(variable: &Variable) -> [(&'static str, String); 5] {
    let open = || "unspecified".to_owned();
    [
        ("kind", variable.kind.as_str().to_owned()),
        (
            "dtype",
            variable
                .dtype
                .map_or_else(|| variable.dtype_name.clone().unwrap_or_else(open), |t| t.to_string()),
        ),
        ("shape", variable.shape.as_ref().map_or_else(open, |dims| format!("{dims:?}"))),
        ("persistable", variable.persistable.to_string()),
        (STOP_GRADIENT, variable.stop_gradient.to_string()),
    ]
}

fn endpoints(list: &[Endpoint]) -> String {
    let one = |end: &Endpoint| {
        let shape = end.shape.as_ref().map_or_else(String::new, |dims| format!(" {dims:?}"));
        format!("{}{shape}", end.name)
    };
    list.iter().map(one).collect::<Vec<_>>().join(", ")
}
