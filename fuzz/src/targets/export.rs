//! Exports of damaged Paddle programs to ONNX: a model, or an error. Each parameter of a program gets a small tensor.

use super::Outcome;
use std::sync::Arc;
use weighbridge::checkpoint::{Checkpoint, TensorEntry, TensorPath};
use weighbridge::formats::{OpenOptions, registry};
use weighbridge::ops::{ConvertOptions, plan_checkpoint};
use weighbridge::source::{MemorySource, SourceRef};
use weighbridge::tensor::{DType, Encoding, Shape};

/// Largest size of a dimension of a parameter; larger ones become 1.
const SIZE: i64 = 64;
/// Largest number of bytes of a parameter; larger ones get dimensions of 1.
const BYTES: usize = 1 << 16;

pub(super) fn run(_: &'static str, bytes: &[u8]) -> Outcome {
    let source: SourceRef = Arc::new(MemorySource::new("input", bytes.to_vec()));
    let Ok(mut checkpoint) = registry().open_source(source, &OpenOptions::default()) else {
        return Outcome::Refused;
    };
    if checkpoint.topology.is_none() {
        return Outcome::Refused;
    }
    add_parameters(&mut checkpoint);
    let Ok(onnx) = registry().by_id("onnx") else { return Outcome::Refused };
    match plan_checkpoint(checkpoint, onnx, None, &ConvertOptions::default()) {
        Ok(plan) => {
            assert!(!plan.files.is_empty());
            Outcome::Opened
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            Outcome::Refused
        }
    }
}

/// Adds a tensor of zeros for each parameter of the program.
fn add_parameters(checkpoint: &mut Checkpoint) {
    let Some(topology) = checkpoint.topology.clone() else { return };
    let zeros: SourceRef = Arc::new(MemorySource::new("zeros", vec![0; BYTES]));
    for variable in topology.parameters() {
        let dtype = variable.dtype.unwrap_or(DType::F32);
        let sizes = variable.shape.as_deref().unwrap_or_default().iter().take(8);
        let sizes: Vec<u64> =
            sizes.map(|s| if (0..=SIZE).contains(s) { s.unsigned_abs() } else { 1 }).collect();
        let mut shape = Shape::new(&sizes);
        if shape.bytes(dtype).is_none_or(|bytes| bytes > BYTES as u64) {
            shape = Shape::new(vec![1; sizes.len()]);
        }
        let path = TensorPath::from_dotted(&variable.name);
        if let Ok(entry) = TensorEntry::dense(path, dtype, shape, &zeros, 0, Encoding::ROW) {
            checkpoint.tensors.push(entry);
        }
    }
}
