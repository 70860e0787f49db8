//! Conversion of the tensors of an index to primitiv parameters with their stats.
//!
//! The planner and the typed API share this conversion, so both refuse the same tensors.

use super::{BATCH, Shape};
use std::collections::{HashMap, HashSet};
use weighbridge_core::checkpoint::{Checkpoint, Name, Role, TensorEntry, TensorPath, Value};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::phrase;
use weighbridge_core::phrase::{Opt, Phrase};
use weighbridge_core::tensor::DType;

/// Entry with its primitiv shape.
#[derive(Debug)]
pub(super) struct Held<'a> {
    pub(super) entry: &'a TensorEntry,
    pub(super) shape: Shape,
    /// True where the entry has trailing dimensions of 1, which primitiv does not store.
    pub(super) normalised: bool,
}

/// Parameter with its stats, in the order of the index.
#[derive(Debug)]
pub(super) struct HeldParameter<'a> {
    pub(super) value: Held<'a>,
    pub(super) stats: Vec<(&'a Name, Held<'a>)>,
}

impl HeldParameter<'_> {
    pub(super) fn path(&self) -> &TensorPath {
        &self.value.entry.path
    }
}

/// Most values of a tensor: the length in bytes is a 32-bit number.
const MAX_VALUES: u64 = (1 << 30) - 1;

/// Checks that a primitiv tensor can store an entry.
pub(super) fn hold(entry: &TensorEntry) -> Result<Held<'_>> {
    hold_unnamed(entry).map_err(|e| e.on_tensor(entry.name()))
}

fn hold_unnamed(entry: &TensorEntry) -> Result<Held<'_>> {
    let dtype = entry.dtype();
    if dtype != DType::F32 {
        let error = Error::mismatch("dtype", "primitiv stores only float32").expected("f32").found(dtype);
        return Err(if dtype.is_float() {
            error.hint(entry.f32_hint())
        } else {
            let drop = Opt::Drop.with(entry.name());
            error.hint(phrase!["exclude it with ", drop, format_args!("; {dtype} cannot be cast")])
        });
    }
    let elements = entry.shape.elements();
    if elements == Some(0) {
        return Err(Error::mismatch("zero-size", "primitiv cannot store empty tensors")
            .found(&entry.shape)
            .hint(phrase!["exclude it with ", Opt::Drop]));
    }
    if elements.is_none_or(|n| n > MAX_VALUES) {
        return Err(Error::mismatch(
            "too-large",
            "the tensor has 2^30 elements or more, which primitiv cannot store",
        )
        .found(&entry.shape)
        .hint("split the tensor"));
    }
    let mut dims = entry.shape.dims().to_vec();
    let batch = match entry.attributes.get(BATCH) {
        None => 1,
        Some(Value::U64(batch)) if dims.pop() == Some(*batch) => *batch,
        Some(value) => {
            return Err(Error::mismatch("batch", "the batch is not the last dimension")
                .expected(&entry.shape)
                .found(format_args!("batch {}", value.to_json())));
        }
    };
    let too_large = |_| Error::mismatch("too-large", "a dimension does not fit 32 bits");
    let dims = dims.into_iter().map(u32::try_from).collect::<Result<Vec<_>, _>>().map_err(too_large)?;
    // Trailing 1s beyond the eighth dimension are removed like all others.
    let kept = dims.iter().rposition(|&dim| dim != 1).map_or(0, |last| last + 1);
    let shape = Shape::new(&dims[..kept], u32::try_from(batch).map_err(too_large)?)
        .map_err(|e| e.hint("reshape the tensor to fewer dimensions first"))?;
    Ok(Held { entry, shape, normalised: kept < dims.len() })
}

/// Returns the parameters of an index with their stats, sorted by path.
///
/// # Errors
/// [`weighbridge_core::Kind::Mismatch`] where primitiv cannot store a tensor, for duplicate names, and for stats
/// without their parameter.
pub(super) fn parameters(checkpoint: &Checkpoint, with_stats: bool) -> Result<Vec<HeldParameter<'_>>> {
    let mut stats: HashMap<&TensorPath, Vec<(&Name, Held<'_>)>> = HashMap::new();
    let mut parameters: Vec<HeldParameter<'_>> = Vec::new();
    for entry in &checkpoint.tensors {
        match &entry.role {
            Role::OptimizerState { slot } if with_stats => {
                stats.entry(&entry.path).or_default().push((slot, hold(entry)?));
            }
            Role::OptimizerState { .. } => {}
            _ => parameters.push(HeldParameter { value: hold(entry)?, stats: Vec::new() }),
        }
    }
    parameters.sort_by(|a, b| a.path().cmp(b.path()));
    for pair in parameters.windows(2) {
        let [first, second] = pair else { continue };
        if first.path() == second.path() {
            return Err(collision(&second.value));
        }
        // In sorted order, an address directly precedes one that continues it.
        if second.path().starts_with(first.path()) {
            return Err(Error::mismatch("name-clash", "the path continues the path of another parameter")
                .on_tensor(second.value.entry.name())
                .found(format_args!("the parameter {}", first.path()))
                .hint(
                    "rename one: a primitiv model cannot have a parameter and a submodel with the same name",
                ));
        }
    }
    for parameter in &mut parameters {
        let value = &parameter.value;
        if value.shape.batch() > 1 {
            return Err(Error::mismatch(
                "batched-parameter",
                "the value of a primitiv parameter must not have a batch",
            )
            .on_tensor(value.entry.name())
            .expected("batch 1")
            .found(format_args!("batch {}", value.shape.batch())));
        }
        parameter.stats = stats.remove(parameter.path()).unwrap_or_default();
        let mut slots = HashSet::with_capacity(parameter.stats.len());
        for (slot, held) in &parameter.stats {
            if !slots.insert(*slot) {
                return Err(collision(held));
            }
        }
    }
    // Report the first remaining stat in the index, so that errors do not depend on hashes.
    let lost = checkpoint.tensors.iter().find(|t| t.role.slot().is_some() && stats.contains_key(&t.path));
    if let Some(lost) = lost {
        return Err(Error::mismatch("state-without-parameter", "the optimizer state has no parameter")
            .on_tensor(lost.name())
            .hint("include the parameter, or drop the state: primitiv stores state inside its parameter"));
    }
    Ok(parameters)
}

fn collision(held: &Held<'_>) -> Error {
    Error::mismatch("name-collision", "duplicate tensor name").on_tensor(held.entry.name())
}

/// Returns the only entry of an index with exactly one tensor.
pub(super) fn only(checkpoint: &Checkpoint) -> Result<Held<'_>> {
    match checkpoint.tensors.as_slice() {
        [entry] => hold(entry),
        others => {
            let mut values = others.iter().filter(|entry| !entry.role.is_state());
            let error = not_one("tensor", others.len());
            Err(match (values.next(), values.next()) {
                (Some(only), None) => error
                    .hint(phrase![format_args!("{} has optimizer state; add ", only.name()), Opt::NoState]),
                _ => error.hint(select_one()),
            })
        }
    }
}

/// Returns the only parameter of an index, with its stats.
pub(super) fn only_parameter(checkpoint: &Checkpoint, with_stats: bool) -> Result<HeldParameter<'_>> {
    let mut all = parameters(checkpoint, with_stats)?;
    match (all.pop(), all.len()) {
        (Some(parameter), 0) => Ok(parameter),
        (last, others) => Err(not_one("parameter", others + usize::from(last.is_some())).hint(select_one())),
    }
}

fn not_one(what: &'static str, found: usize) -> Error {
    Error::mismatch("not-one-tensor", format!("a primitiv {what} file stores exactly one {what}"))
        .expected("1")
        .found(found)
}

fn select_one() -> Phrase {
    phrase!["select one with ", Opt::Select, ", or write a .model"]
}
