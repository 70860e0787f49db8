//! Blobs with shared objects.

use super::read;
use std::sync::Arc;
use weighbridge_core::checkpoint::{TensorEntry, TensorPath, Value};
use weighbridge_core::error::Result;
use weighbridge_core::limits::Limits;
use weighbridge_core::plan::WritePlan;
use weighbridge_core::tensor::{DType, Encoding, Shape};
use weighbridge_io::source::{MemorySource, SourceRef};
use weighbridge_io::testing::materialise;
use weighbridge_pickle::ObjectId;
use weighbridge_torch_archive::SavedBuilder;

fn bytes(bytes: Vec<u8>) -> TensorEntry {
    let shape = Shape::new([bytes.len() as u64]);
    let source: SourceRef = Arc::new(MemorySource::new("blob", bytes));
    TensorEntry::dense(TensorPath::value(), DType::U8, shape, &source, 0, Encoding::ROW).unwrap()
}

/// Blob with `parameters` parameters that share the slots made by `slots`.
fn blob(parameters: i64, slots: impl FnOnce(&mut SavedBuilder) -> Result<ObjectId>) -> TensorEntry {
    let build = || -> Result<Vec<u8>> {
        let mut saved = SavedBuilder::new();
        let shared = slots(&mut saved)?;
        let builder = saved.builder_mut();
        let groups = builder.list(Vec::new())?;
        let state = (0..parameters).map(|n| Ok((builder.int(n)?, shared))).collect::<Result<Vec<_>>>()?;
        let state = builder.dict(state)?;
        let pairs = vec![(builder.interned("state")?, state), (builder.interned("param_groups")?, groups)];
        let root = builder.dict(pairs)?;
        let files = vec![saved.finish(root, "")?];
        let plan = WritePlan { format: "torch", kind: "object", files, losses: Vec::new() };
        Ok(materialise(&plan).remove(0))
    };
    bytes(build().unwrap())
}

fn numbers(saved: &mut SavedBuilder, count: i64) -> Result<ObjectId> {
    saved.value(&Value::List((0..count).map(Value::I64).collect()))
}

/// One slot of this name.
fn slot(saved: &mut SavedBuilder, name: &str, value: ObjectId) -> Result<ObjectId> {
    let name = saved.builder_mut().interned(name)?;
    saved.builder_mut().dict(vec![(name, value)])
}

fn code(entry: &TensorEntry) -> &'static str {
    read(entry, &Limits::default()).unwrap_err().code().as_str()
}

#[test]
fn shared_slots_count_for_each_parameter() {
    let shared = |parameters, count| {
        let slots = |saved: &mut SavedBuilder| {
            let list = numbers(saved, count)?;
            slot(saved, "list", list)
        };
        blob(parameters, slots)
    };
    let state = read(&shared(100, 50), &Limits::default()).unwrap();
    assert_eq!((state.state.len(), state.state[99].values.len()), (100, 1));
    assert!(state.unknown.is_empty());
    assert_eq!(code(&shared(1000, 1000)), "state-size");
}

#[test]
fn shared_tensors_count_for_each_parameter() {
    let slots = |saved: &mut SavedBuilder| {
        let tensor = saved.tensor(&bytes(vec![1]))?;
        let builder = saved.builder_mut();
        let slots = (0..1000).map(|n| Ok((builder.interned(&format!("s{n}"))?, tensor)));
        let slots = slots.collect::<Result<Vec<_>>>()?;
        builder.dict(slots)
    };
    assert_eq!(code(&blob(1000, slots)), "state-size");
}

#[test]
fn slots_nested_too_deeply_are_unknown() {
    let slots = |saved: &mut SavedBuilder| {
        let deep = saved.value(&Value::List(vec![Value::List(vec![Value::I64(1)])]))?;
        slot(saved, "deep", deep)
    };
    let state = read(&blob(2, slots), &Limits::default()).unwrap();
    assert_eq!(state.unknown, ["deep", "deep"]);
    assert_eq!(state.state.len(), 2);
}
