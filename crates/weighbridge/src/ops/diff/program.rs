//! Two programs: operators in their order, their settings, variables, inputs and outputs.

use super::Change;
use super::brief::{change, excerpt};
use crate::ops::program::value;
use crate::topology::{Block, Endpoint, Operator, Slot, Topology, Variable};
use serde_json::{Value as Json, json};
use similar::{Algorithm, DiffOp, capture_diff_slices};
use std::collections::BTreeMap;

/// One difference between two programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramChange {
    /// The place of the block.
    pub block: usize,
    /// What it is about: `operator 3 (conv2d)`, `variable fc_0.w_0`, `inputs`.
    pub subject: String,
    /// What of it: `attribute strides`, `input X`, `shape`. `None` where it is there on one side only.
    pub part: Option<String>,
    /// What the left side has.
    pub left: Option<String>,
    /// What the right side has.
    pub right: Option<String>,
}

impl ProgramChange {
    /// As it stands in the JSON of a report.
    pub fn to_json(&self) -> Json {
        json!({ "block": self.block, "subject": self.subject, "part": self.part, "left": self.left, "right": self.right })
    }
}

/// The fact of a variable that is compared on request.
const STOP_GRADIENT: &str = "stop_gradient";
/// So many differences are listed: an operator takes five bytes in a file, and a line or a hundred bytes of JSON here.
const MOST: usize = 20_000;

/// What is different in two programs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProgramDiff {
    /// In the order of the programs, 20,000 at most.
    pub changes: Vec<ProgramChange>,
    /// How many more there are.
    pub more: usize,
}

impl ProgramDiff {
    /// How many differences there are, listed or not.
    pub fn count(&self) -> usize {
        self.changes.len() + self.more
    }
}

/// What is different. Nothing where both say the same, whatever their bytes and whoever wrote them.
pub fn program(left: &Topology, right: &Topology) -> ProgramDiff {
    compare(left, right, true)
}

/// As [`program`]; without `all`, whether gradients flow through a variable does not count.
pub(super) fn compare(left: &Topology, right: &Topology, all: bool) -> ProgramDiff {
    let mut changes = Changes { block: 0, all, found: ProgramDiff::default() };
    for (word, a, b) in [("inputs", &left.feeds, &right.feeds), ("outputs", &left.fetches, &right.fetches)] {
        changes.part(word, None, &endpoints(a), &endpoints(b));
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
        if self.found.changes.len() == MOST {
            self.found.more += 1;
            return;
        }
        // Names are as long as the file has them, and each may have many differences.
        let (subject, part) = (excerpt(subject, 0), part.map(|part| excerpt(part, 0)));
        let Change { left, right, .. } = change(String::new(), left, right);
        self.found.changes.push(ProgramChange { block: self.block, subject, part, left, right });
    }

    /// A difference, where the texts are different.
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
                    let pairs = facts(variable).into_iter().zip(facts(other));
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

    /// Operators of one type that stand at the same place among the others are compared.
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

fn facts(variable: &Variable) -> [(&'static str, String); 5] {
    let open = || "not said".to_owned();
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
