//! Programs of a framework, parsed without running them.
//!
//! A [`Topology`] has the original bytes of a program and their interpretation, independent of the framework: blocks of operators,
//! variables with dtype and shape, feeds and fetches. It is read-only. To change a program, change its original form (such as the
//! programs of `weighbridge-paddle`) and parse it again: fields unknown here are preserved.

mod attribute;
mod quantized;

pub use attribute::{Attribute, AttributeValue};
pub use quantized::{Quantized, QuantizedRole};

use crate::tensor::DType;
use std::sync::Arc;

/// Parsed program with its original bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct Topology {
    /// Form of [`bytes`](Self::bytes): `program-desc` (protobuf), `pir` (JSON), `mxnet` (JSON), `caffe` (protobuf without blobs, or
    /// its text form), `darknet` (text), `openvino` (XML), `ncnn` (text or binary), `onnx` (protobuf, without the elements of its tensors), or `tensorflow`, `tflite` and `coreml` (no bytes: they stay
    /// in the file).
    pub form: &'static str,
    /// Version of the framework or of the form stated in the program: `2.6.2`.
    pub writer: Option<String>,
    /// Original bytes.
    pub bytes: Arc<[u8]>,
    /// Blocks; the first one is the main block, others are bodies of control flow.
    pub blocks: Vec<Block>,
    /// Inputs of the program, in the order of arguments.
    pub feeds: Vec<Endpoint>,
    /// Outputs of the program, in the order of results.
    pub fetches: Vec<Endpoint>,
    /// Operator versions stated in the program.
    pub operator_versions: Vec<(String, i64)>,
}

/// Sequence of operators with their variables.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Block {
    /// Index in [`Topology::blocks`] of the enclosing block.
    pub parent: Option<usize>,
    /// Names of values passed to the block by its operator.
    pub arguments: Vec<String>,
    /// Declared variables, in the order of the file.
    pub variables: Vec<Variable>,
    /// Operators, in order of execution.
    pub operators: Vec<Operator>,
}

/// Named value.
#[derive(Debug, Clone, PartialEq)]
pub struct Variable {
    /// Name, unique in its block.
    pub name: String,
    /// Kind of value.
    pub kind: VariableKind,
    /// Dtype of the elements, for a tensor of a known dtype.
    pub dtype: Option<DType>,
    /// Dtype as named by the framework, known or not: `FP32`, `t_f32`.
    pub dtype_name: Option<String>,
    /// Sizes of the dimensions; -1 is a size known only at run time.
    pub shape: Option<Vec<i64>>,
    /// LoD levels (Paddle: nesting of the sequences that its rows form); 0 for most.
    pub lod_level: u32,
    /// True if it outlives a run: parameters and state, which are stored in files.
    pub persistable: bool,
    /// True if the program marks it as a parameter; inference programs often do not.
    pub parameter: bool,
    /// True if no gradient flows through it.
    pub stop_gradient: bool,
}

/// Kind of value of a variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VariableKind {
    /// Dense tensor.
    Tensor,
    /// Selected rows of a tall tensor.
    SelectedRows,
    /// List of tensors.
    TensorArray,
    /// List of inputs that the executor fills.
    Feed,
    /// List of outputs that the executor reads.
    Fetch,
    /// Vocabulary: words with numbers.
    Vocab,
    /// Data reader.
    Reader,
    /// Internal value of the framework.
    Raw,
    /// Other kind, as named by the framework.
    Other(String),
}

/// Operator of a block.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Operator {
    /// Type, such as `conv2d`.
    pub kind: String,
    /// Inputs.
    pub inputs: Vec<Slot>,
    /// Outputs.
    pub outputs: Vec<Slot>,
    /// Attributes, in the order of the file.
    pub attributes: Vec<Attribute>,
    /// Indices in [`Topology::blocks`] of the bodies that it runs.
    pub blocks: Vec<usize>,
}

/// Named group of arguments of an operator. In forms with unnamed operands (PIR), one slot with an empty name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Slot {
    /// Name in the operator, such as `Filter`.
    pub name: String,
    /// Names of variables, in order.
    pub arguments: Vec<String>,
}

/// Input or output of the whole program.
#[derive(Debug, Clone, PartialEq)]
pub struct Endpoint {
    /// Name of the variable.
    pub name: String,
    /// Dtype, if known.
    pub dtype: Option<DType>,
    /// Sizes of the dimensions; -1 if open.
    pub shape: Option<Vec<i64>>,
}

impl Topology {
    /// Returns true if the file of the program also contains its tensors, which therefore match their declarations.
    pub fn has_tensors(&self) -> bool {
        matches!(
            self.form,
            "onnx" | "caffe" | "darknet" | "openvino" | "tensorflow" | "tflite" | "coreml" | "ncnn"
        )
    }

    /// Returns the variables stored in parameter files: persistable data of all blocks, without lists and handles of the
    /// executor. Names are unique and sorted by their UTF-8 bytes, as in combined files of Paddle.
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

    /// Returns the variable of that name visible in a block: its own, or that of an enclosing block.
    pub fn variable(&self, block: usize, name: &str) -> Option<&Variable> {
        let mut at = Some(block);
        // Bounded by the number of blocks: a malformed file may have a cycle of parents.
        for _ in 0..=self.blocks.len() {
            let block = self.blocks.get(at?)?;
            if let Some(found) = block.variables.iter().find(|v| v.name == name) {
                return Some(found);
            }
            at = block.parent;
        }
        None
    }

    /// Returns all operators of all blocks.
    pub fn operators(&self) -> impl Iterator<Item = &Operator> {
        self.blocks.iter().flat_map(|b| &b.operators)
    }

    /// Returns the count of each operator type, most frequent first, then by name.
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
    /// Returns true if a tensor of these sizes matches the declaration. A dimension of -1 matches any size, and a variable without
    /// a shape any tensor.
    pub fn admits(&self, dims: &[u64]) -> bool {
        let open_or_equal =
            |(&declared, &found): (&i64, &u64)| u64::try_from(declared).map_or(true, |d| d == found);
        let same = |shape: &Vec<i64>| shape.len() == dims.len() && shape.iter().zip(dims).all(open_or_equal);
        self.shape.as_ref().is_none_or(same)
    }
}

impl VariableKind {
    /// Returns the kind as written in JSON.
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
    /// Returns the attribute of that name.
    pub fn attribute(&self, name: &str) -> Option<&AttributeValue> {
        self.attributes.iter().find(|a| a.name == name).map(|a| &a.value)
    }

    /// Returns the arguments of an input slot; empty if there is no such slot.
    pub fn input(&self, slot: &str) -> &[String] {
        self.inputs.iter().find(|s| s.name == slot).map_or(&[], |s| &s.arguments)
    }

    /// Returns the arguments of an output slot; empty if there is no such slot.
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
    fn parameters_are_in_byte_order_without_executor_lists() {
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
    fn open_dimensions_match_any_size() {
        let mut declared = variable("x", VariableKind::Tensor, true);
        assert!(declared.admits(&[7, 2]) && declared.admits(&[0, 2]));
        assert!(!declared.admits(&[7, 3]) && !declared.admits(&[2]) && !declared.admits(&[7, 2, 1]));
        declared.shape = None;
        assert!(declared.admits(&[1]));
    }

    #[test]
    fn finds_variables_through_parents_even_in_a_cycle() {
        let outer = Block { variables: vec![variable("x", VariableKind::Tensor, false)], ..Block::default() };
        let ring = |parent| Block { parent: Some(parent), ..Block::default() };
        let program = topology(vec![outer, ring(0), ring(3), ring(2)]);
        assert!(program.variable(1, "x").is_some());
        assert!(program.variable(2, "x").is_none());
        assert!(program.variable(9, "x").is_none());
    }
}
