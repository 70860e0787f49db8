//! Exports of damaged Paddle programs to ONNX: a model, or an error.

use super::Outcome;
use std::sync::Arc;
use weighbridge::formats::{OpenOptions, registry};
use weighbridge::ops::{ConvertOptions, plan_checkpoint};
use weighbridge::source::{MemorySource, SourceRef};

pub(super) fn run(_: &'static str, bytes: &[u8]) -> Outcome {
    let source: SourceRef = Arc::new(MemorySource::new("input", bytes.to_vec()));
    let Ok(checkpoint) = registry().open_source(source, &OpenOptions::default()) else {
        return Outcome::Refused;
    };
    if checkpoint.topology.is_none() {
        return Outcome::Refused;
    }
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
