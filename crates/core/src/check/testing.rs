//! Small indexes and programs for tests.
#![allow(clippy::unwrap_used)]

use crate::checkpoint::{TensorEntry, TensorPath};
use crate::source::{MemorySource, SourceRef};
use crate::tensor::{DType, Encoding, Shape};
use crate::topology::{Block, Endpoint, Operator, Slot, Topology, Variable, VariableKind};
use std::sync::Arc;

/// Returns a source of zero bytes.
pub fn source(bytes: usize) -> SourceRef {
    Arc::new(MemorySource::new("m", vec![0; bytes]))
}

/// Returns a dense row-major tensor.
pub fn tensor(name: &str, dtype: DType, dims: &[u64], source: &SourceRef, at: u64) -> TensorEntry {
    let path = TensorPath::from_dotted(name);
    TensorEntry::dense(path, dtype, Shape::new(dims), source, at, Encoding::ROW).unwrap()
}

/// Returns a float variable.
pub fn variable(name: &str, dims: &[i64], persistable: bool) -> Variable {
    Variable {
        name: name.to_owned(),
        kind: VariableKind::Tensor,
        dtype: Some(DType::F32),
        dtype_name: Some("FP32".to_owned()),
        shape: Some(dims.to_vec()),
        lod_level: 0,
        persistable,
        parameter: false,
        stop_gradient: false,
    }
}

/// Returns an operator with its slots.
pub fn operator(kind: &str, inputs: &[(&str, &[&str])], outputs: &[(&str, &[&str])]) -> Operator {
    let slots = |list: &[(&str, &[&str])]| {
        let slot = |(name, arguments): &(&str, &[&str])| Slot {
            name: (*name).to_owned(),
            arguments: arguments.iter().map(|a| (*a).to_owned()).collect(),
        };
        list.iter().map(slot).collect()
    };
    Operator { kind: kind.to_owned(), inputs: slots(inputs), outputs: slots(outputs), ..Operator::default() }
}

/// Returns an input or output.
pub fn endpoint(name: &str, dims: &[i64]) -> Endpoint {
    Endpoint { name: name.to_owned(), dtype: Some(DType::F32), shape: Some(dims.to_vec()) }
}

/// Returns a program of these blocks.
pub fn program(blocks: Vec<Block>, feeds: Vec<Endpoint>, fetches: Vec<Endpoint>) -> Topology {
    Topology {
        form: "program-desc",
        writer: Some("2.6.2".to_owned()),
        bytes: Arc::new([]),
        blocks,
        feeds,
        fetches,
        operator_versions: vec![("conv2d".to_owned(), 1)],
    }
}

/// Returns `y = relu(x @ fc.w + fc.b)`, with both parameters declared.
pub fn linear() -> Topology {
    let main = Block {
        variables: vec![
            variable("x", &[-1, 3], false),
            variable("fc.w", &[3, 4], true),
            variable("fc.b", &[4], true),
            variable("t", &[-1, 4], false),
            variable("u", &[-1, 4], false),
            variable("y", &[-1, 4], false),
        ],
        operators: vec![
            operator("matmul_v2", &[("X", &["x"]), ("Y", &["fc.w"])], &[("Out", &["t"])]),
            operator("elementwise_add", &[("X", &["t"]), ("Y", &["fc.b"])], &[("Out", &["u"])]),
            operator("relu", &[("X", &["u"])], &[("Out", &["y"])]),
        ],
        ..Block::default()
    };
    program(vec![main], vec![endpoint("x", &[-1, 3])], vec![endpoint("y", &[-1, 4])])
}
