//! A program: what a framework would run, read without running it.
//!
//! A [`Topology`] is the original bytes of a program plus what was understood of them, in terms
//! that hold for every framework: blocks of operators, variables with type and shape, feeds and
//! fetches. It is for looking and checking. Who wants to change a program changes its own form
//! (such as the programs of `weighbridge-paddle`) and understands it anew; so what is unknown here
//! survives.

mod attribute;
mod quantized;

pub use attribute::{Attribute, AttributeValue};
pub use quantized::{Quantized, QuantizedRole};

use crate::tensor::DType;
use std::sync::Arc;

/// A program as it was understood, beside its bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct Topology {
    /// The form of [`bytes`](Self::bytes): `program-desc` (protobuf) or `pir` (JSON).
    pub form: &'static str,
    /// The version of the framework, or of the form, that the program names, as people write it:
    /// `2.6.2`.
    pub writer: Option<String>,
    /// The program as it was read.
    pub bytes: Arc<[u8]>,
    /// The blocks; the first one is the main block, others are bodies of control flow.
    pub blocks: Vec<Block>,
    /// The inputs of the program, in their order for the caller.
    pub feeds: Vec<Endpoint>,
    /// The outputs of the program, in their order for the caller.
    pub fetches: Vec<Endpoint>,
    /// Versions of operators that the program names.
    pub operator_versions: Vec<(String, i64)>,
}

/// A sequence of operators with the variables that they share.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Block {
    /// The place in [`Topology::blocks`] of the block around this one.
    pub parent: Option<usize>,
    /// Names of values that the block is given by the operator that holds it.
    pub arguments: Vec<String>,
    /// The variables that are declared here, in the order of the file.
    pub variables: Vec<Variable>,
    /// The operators, in order of execution.
    pub operators: Vec<Operator>,
}

/// A named value.
#[derive(Debug, Clone, PartialEq)]
pub struct Variable {
    /// Its name, unique in its block.
    pub name: String,
    /// What it holds.
    pub kind: VariableKind,
    /// The type of its elements, where it is a tensor of a known type.
    pub dtype: Option<DType>,
    /// The framework's own word for the element type, known or not: `FP32`, `t_f32`.
    pub dtype_name: Option<String>,
    /// Its extents; -1 is an extent that is known at run time only.
    pub shape: Option<Vec<i64>>,
    /// Levels of LoD (Paddle: how many nested sequences its rows form); 0 for most.
    pub lod_level: u32,
    /// True where it outlives a run: parameters and state, which stand in files.
    pub persistable: bool,
    /// True where the program says that it is a parameter; inference programs often forget it.
    pub parameter: bool,
    /// True where no gradient flows through it.
    pub stop_gradient: bool,
}

/// What a variable holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VariableKind {
    /// A dense tensor.
    Tensor,
    /// Some rows of a tall tensor.
    SelectedRows,
    /// A list of tensors.
    TensorArray,
    /// The list of inputs that the executor fills.
    Feed,
    /// The list of outputs that the executor reads.
    Fetch,
    /// Words with numbers.
    Vocab,
    /// A reader of data.
    Reader,
    /// Anything that the framework keeps for itself.
    Raw,
    /// None of these: the framework's own word.
    Other(String),
}

/// One step of a block.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Operator {
    /// Its type, such as `conv2d`.
    pub kind: String,
    /// What it reads.
    pub inputs: Vec<Slot>,
    /// What it writes.
    pub outputs: Vec<Slot>,
    /// Its settings, in the order of the file.
    pub attributes: Vec<Attribute>,
    /// Places in [`Topology::blocks`] of the bodies that it runs.
    pub blocks: Vec<usize>,
}

/// A named group of arguments of an operator. In forms whose operands have no names (PIR) there
/// is one slot without a name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Slot {
    /// The operator's name for it, such as `Filter`.
    pub name: String,
    /// Names of variables, in order.
    pub arguments: Vec<String>,
}

/// An input or output of the whole program.
#[derive(Debug, Clone, PartialEq)]
pub struct Endpoint {
    /// The name of the variable.
    pub name: String,
    /// Its element type, where known.
    pub dtype: Option<DType>,
    /// Its extents; -1 where open.
    pub shape: Option<Vec<i64>>,
}

impl Topology {
    /// The variables that stand in parameter files: persistable, and data rather than the lists
    /// and handles of the executor. All blocks; a name counts once; in the order of their UTF-8
    /// bytes, which is that of Paddle's combined files.
    pub fn parameters(&self) -> Vec<&Variable> {
        let stored = |v: &&Variable| {
            use VariableKind::{Feed, Fetch, Raw, Reader};
            v.persistable && !matches!(v.kind, Feed | Fetch | Raw | Reader)
        };
        let mut all: Vec<&Variable> = self.blocks.iter().flat_map(|b| &b.variables).filter(stored).collect();
        all.sort_by(|a, b| a.name.as_bytes().cmp(b.name.as_bytes()));
        all.dedup_by(|a, b| a.name == b.name);
        all
    }

    /// The variable of that name as a block sees it: its own, or that of a block around it.
    pub fn variable(&self, block: usize, name: &str) -> Option<&Variable> {
        let mut at = Some(block);
        // A chain of parents is no longer than there are blocks, whatever the file says.
        for _ in 0..=self.blocks.len() {
            let block = self.blocks.get(at?)?;
            if let Some(found) = block.variables.iter().find(|v| v.name == name) {
                return Some(found);
            }
            at = block.parent;
        }
        None
    }

    /// All operators of all blocks.
    pub fn operators(&self) -> impl Iterator<Item = &Operator> {
        self.blocks.iter().flat_map(|b| &b.operators)
    }

    /// How often each type of operator occurs, most frequent first, then by name.
    pub fn histogram(&self) -> Vec<(&str, u64)> {
        let mut counts = std::collections::BTreeMap::<&str, u64>::new();
        for operator in self.operators() {
            *counts.entry(&operator.kind).or_default() += 1;
        }
        let mut counts: Vec<_> = counts.into_iter().collect();
        counts.sort_by_key(|&(_, n)| std::cmp::Reverse(n));
        counts
    }
}

impl Variable {
    /// True where a tensor of these extents is what is declared: an open extent matches any, and so
    /// does a variable without a shape.
    pub fn admits(&self, dims: &[u64]) -> bool {
        let open_or_equal =
            |(&declared, &found): (&i64, &u64)| u64::try_from(declared).map_or(true, |d| d == found);
        let same = |shape: &Vec<i64>| shape.len() == dims.len() && shape.iter().zip(dims).all(open_or_equal);
        self.shape.as_ref().is_none_or(same)
    }
}

impl VariableKind {
    /// The word in JSON.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Tensor => "tensor",
            Self::SelectedRows => "selected-rows",
            Self::TensorArray => "tensor-array",
            Self::Feed => "feed",
            Self::Fetch => "fetch",
            Self::Vocab => "vocab",
            Self::Reader => "reader",
            Self::Raw => "raw",
            Self::Other(word) => word,
        }
    }
}

impl Operator {
    /// The attribute of that name.
    pub fn attribute(&self, name: &str) -> Option<&AttributeValue> {
        self.attributes.iter().find(|a| a.name == name).map(|a| &a.value)
    }

    /// The arguments of the input slot of that name; none where there is no such slot.
    pub fn input(&self, slot: &str) -> &[String] {
        self.inputs.iter().find(|s| s.name == slot).map_or(&[], |s| &s.arguments)
    }

    /// The arguments of the output slot of that name; none where there is no such slot.
    pub fn output(&self, slot: &str) -> &[String] {
        self.outputs.iter().find(|s| s.name == slot).map_or(&[], |s| &s.arguments)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variable(name: &str, kind: VariableKind, persistable: bool) -> Variable {
        Variable {
            name: name.to_owned(),
            kind,
            dtype: Some(DType::F32),
            dtype_name: Some("FP32".to_owned()),
            shape: Some(vec![-1, 2]),
            lod_level: 0,
            persistable,
            parameter: false,
            stop_gradient: false,
        }
    }

    fn topology(blocks: Vec<Block>) -> Topology {
        Topology {
            form: "program-desc",
            writer: None,
            bytes: Arc::new([]),
            blocks,
            feeds: Vec::new(),
            fetches: Vec::new(),
            operator_versions: Vec::new(),
        }
    }

    #[test]
    fn parameters_are_in_byte_order_and_leave_the_executors_lists_out() {
        let names = ["fc_2.b_0", "权重", "fc_10.w_0", "Zeta", "_under", "alpha"];
        let mut variables: Vec<_> = names.iter().map(|n| variable(n, VariableKind::Tensor, true)).collect();
        variables.push(variable("feed", VariableKind::Feed, true));
        variables.push(variable("raw", VariableKind::Raw, true));
        variables.push(variable("tmp", VariableKind::Tensor, false));
        let inner = Block {
            parent: Some(0),
            variables: vec![variable("alpha", VariableKind::Tensor, true)],
            ..Block::default()
        };
        let program = topology(vec![Block { variables, ..Block::default() }, inner]);
        let found: Vec<_> = program.parameters().iter().map(|v| v.name.as_str()).collect();
        assert_eq!(found, ["Zeta", "_under", "alpha", "fc_10.w_0", "fc_2.b_0", "权重"]);
    }

    #[test]
    fn open_extents_admit_any() {
        let mut declared = variable("x", VariableKind::Tensor, true);
        assert!(declared.admits(&[7, 2]) && declared.admits(&[0, 2]));
        assert!(!declared.admits(&[7, 3]) && !declared.admits(&[2]) && !declared.admits(&[7, 2, 1]));
        declared.shape = None;
        assert!(declared.admits(&[1]));
    }

    #[test]
    fn variables_are_found_through_parents_even_in_a_ring() {
        let outer = Block { variables: vec![variable("x", VariableKind::Tensor, false)], ..Block::default() };
        let ring = |parent| Block { parent: Some(parent), ..Block::default() };
        let program = topology(vec![outer, ring(0), ring(3), ring(2)]);
        assert!(program.variable(1, "x").is_some());
        assert!(program.variable(2, "x").is_none());
        assert!(program.variable(9, "x").is_none());
    }
}
