//! Encoding of optimizer state as the blob that upstream's optimizers load.

use weighbridge_core::checkpoint::{Name, TensorEntry, Value};
use weighbridge_core::error::Result;
use weighbridge_core::plan::PlannedFile;
use weighbridge_pickle::ObjectId;
use weighbridge_torch_archive::SavedBuilder;

/// Optimizer state of one parameter.
#[derive(Debug)]
pub(in super::super) struct Slots {
    /// Number of the parameter.
    pub(in super::super) parameter: i64,
    /// Number of optimizer calls, if known.
    pub(in super::super) step: Option<Step>,
    /// Sums of squared gradients.
    pub(in super::super) sum: Option<TensorEntry>,
}

/// Number of optimizer calls, as a tensor or as Python's integer.
#[derive(Debug)]
pub(in super::super) enum Step {
    Tensor(TensorEntry),
    Number(Value),
}

/// Writes the blob `{"state": {...}, "param_groups": groups}`.
///
/// # Errors
/// Values that a torch file cannot hold.
pub(in super::super) fn blob(state: &[Slots], groups: &Value) -> Result<PlannedFile> {
    let mut saved = SavedBuilder::new();
    let mut numbers = Vec::with_capacity(state.len());
    for one in state {
        let mut slots = Vec::new();
        if let Some(step) = &one.step {
            let step = match step {
                Step::Tensor(entry) => saved.tensor(entry)?,
                Step::Number(value) => saved.value(value)?,
            };
            slots.push((saved.builder_mut().interned("step")?, step));
        }
        if let Some(sum) = &one.sum {
            let sum = saved.tensor(sum)?;
            slots.push((saved.builder_mut().interned("sum")?, sum));
        }
        let builder = saved.builder_mut();
        numbers.push((builder.int(one.parameter)?, builder.dict(slots)?));
    }
    let groups = saved.value(groups)?;
    let builder = saved.builder_mut();
    let state = builder.dict(numbers)?;
    let pairs = vec![(builder.interned("state")?, state), (builder.interned("param_groups")?, groups)];
    let root = builder.dict(pairs)?;
    finish(saved, root)
}

/// Writes the blob `{}` of a model without parameters.
///
/// # Errors
/// Like [`blob`].
pub(in super::super) fn empty() -> Result<PlannedFile> {
    let mut saved = SavedBuilder::new();
    let root = saved.builder_mut().dict(Vec::new())?;
    finish(saved, root)
}

fn finish(saved: SavedBuilder, root: ObjectId) -> Result<PlannedFile> {
    saved.finish(root, "")
}

/// Default optimizer options of a partition.
pub(in super::super) fn table_groups(lr: f64) -> Value {
    let group = [
        ("lr", Value::F64(lr.to_bits())),
        ("lr_decay", Value::I64(0)),
        ("weight_decay", Value::I64(0)),
        ("params", Value::List(vec![Value::I64(0)])),
    ];
    one_group(group)
}

/// Default optimizer options of a model with this number of parameters, as in torch 2.2;
/// other versions of torch add missing options.
pub(in super::super) fn model_groups(lr: f64, parameters: usize) -> Value {
    let numbers = (0i64..).take(parameters).map(Value::I64).collect();
    let group = [
        ("lr", Value::F64(lr.to_bits())),
        ("lr_decay", Value::I64(0)),
        ("eps", Value::F64(1e-10f64.to_bits())),
        ("weight_decay", Value::I64(0)),
        ("initial_accumulator_value", Value::I64(0)),
        ("foreach", Value::Null),
        ("maximize", Value::Bool(false)),
        ("differentiable", Value::Bool(false)),
        ("params", Value::List(numbers)),
    ];
    one_group(group)
}

fn one_group<const N: usize>(group: [(&str, Value); N]) -> Value {
    Value::List(vec![Value::Map(group.map(|(name, value)| (Name::from(name), value)).into())])
}
