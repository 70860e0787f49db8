//! Mapping of tensors to variables: names, renames, and file order.

use std::collections::{BTreeMap, HashMap, HashSet};
use weighbridge_core::checkpoint::{Attributes, Checkpoint, Loss, TensorEntry, escape_text};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::phrase;
use weighbridge_core::phrase::Opt;
use weighbridge_core::tensor::Order;
use weighbridge_core::text::first_and_more;
use weighbridge_core::topology::{Topology, Variable, VariableKind};

/// Tensor with its name as a variable.
#[derive(Debug, Clone)]
pub(super) struct Stored<'a> {
    pub(super) name: String,
    pub(super) entry: &'a TensorEntry,
}

/// Returns the variable name of a tensor: the stored attribute, else its path. Optimizer state is named
/// `PARAMETER_SLOT`, as in Paddle's optimizers.
pub(super) fn variable_name(entry: &TensorEntry) -> String {
    if let Some(own) = entry.text_attribute(Attributes::VARIABLE_NAME) {
        return own.to_owned();
    }
    match entry.role.slot() {
        Some(slot) => {
            let parameter = entry.text_attribute(Attributes::PARAMETER_VARIABLE);
            let parameter = parameter.map_or_else(|| entry.path.to_text(), str::to_owned);
            format!("{parameter}_{}", slot.to_text())
        }
        None => entry.path.to_text(),
    }
}

/// Returns the variables renamed since the program was read: old name to new.
pub(super) fn renames(checkpoint: &Checkpoint) -> BTreeMap<String, String> {
    let renamed = |entry: &TensorEntry| {
        let old = entry.text_attribute(Attributes::RENAMED_FROM)?;
        let new = variable_name(entry);
        let old = match entry.role.slot() {
            Some(slot) => format!("{old}_{}", slot.to_text()),
            None => old.to_owned(),
        };
        (old != new).then_some((old, new))
    };
    checkpoint.tensors.iter().filter_map(renamed).collect()
}

/// Returns the tensors of a checkpoint in the order of a combined file.
///
/// With a program they are exactly its parameters. Without one they are sorted by name; a file without
/// names keeps its order. Several tensors of one variable (tied weights under several structured names)
/// are written once.
///
/// # Errors
/// [`weighbridge_core::Kind::Mismatch`]: `parameters-missing` if the checkpoint lacks parameters of the
/// program, unless `gaps` are allowed; `shape-differs` if a tensor differs from its declaration in the
/// program; `one-variable` if two different tensors are the same variable.
pub(super) fn in_file_order<'a>(
    checkpoint: &'a Checkpoint,
    topology: Option<&Topology>,
    gaps: bool,
    losses: &mut Vec<Loss>,
) -> Result<Vec<Stored<'a>>> {
    let mut all = Vec::with_capacity(checkpoint.tensors.len());
    let mut places = HashMap::with_capacity(checkpoint.tensors.len());
    let declared: HashSet<&str> =
        topology.map(|t| t.parameters().into_iter().map(|v| v.name.as_str()).collect()).unwrap_or_default();
    for entry in &checkpoint.tensors {
        let mut name = variable_name(entry);
        let path = entry.path.to_text();
        // A tensor renamed to a parameter of the program becomes that parameter.
        if entry.role.slot().is_none()
            && !declared.contains(name.as_str())
            && declared.contains(path.as_str())
        {
            name = path;
        }
        if let Some(&place) = places.get(&name) {
            let first: &Stored<'_> = &all[place];
            if !same_elements(first.entry, entry)? {
                return Err(Error::mismatch(
                    "one-variable",
                    "two tensors with different values map to one variable",
                )
                .on_tensor(entry.name())
                .found(format_args!("{} also maps to {name}", first.entry.name()))
                .hint(phrase!["use ", Opt::Drop, " to remove one of them"]));
            }
            continue;
        }
        places.insert(name.clone(), all.len());
        all.push(Stored { name, entry });
    }
    let Some(topology) = topology else {
        let unnamed = !all.is_empty() && all.iter().all(|s| s.entry.guessed && s.name.starts_with('#'));
        if !unnamed {
            all.sort_by(|a, b| a.name.as_bytes().cmp(b.name.as_bytes()));
        }
        return Ok(all);
    };
    let mut ordered = Vec::with_capacity(all.len());
    let mut missing = Vec::new();
    for variable in topology.parameters() {
        match places.remove(&variable.name) {
            Some(place) => ordered.push(all[place].clone()),
            // Vocabularies are not tensors; they are written separately.
            None if variable.kind == VariableKind::Vocab => {}
            None => missing.push(variable.name.as_str()),
        }
    }
    if !missing.is_empty() && !gaps {
        let shown = first_and_more(missing.iter().map(|name| escape_text(name)), 5);
        let has_variables =
            || checkpoint.tensors.iter().any(|t| t.text_attribute(Attributes::VARIABLE_NAME).is_some());
        let hint = match &*all {
            [_, ..] if ordered.is_empty() && has_variables() => {
                phrase!["use ", Opt::Names.with("variable"), " to switch to variable names"]
            }
            [_, ..] if ordered.is_empty() => phrase!["rename them with ", Opt::Rename],
            _ => phrase!["write all parameters of the program, or use the program of this model"],
        };
        let count = ordered.len() + missing.len();
        let (wanted, found) = match &*all {
            [first, ..] if ordered.is_empty() => (
                format!("tensors for all {count} parameters of the program"),
                format!("none of these names; the model has {}, ...", escape_text(&first.name)),
            ),
            _ => (
                format!("tensors for {} more parameters of the program", missing.len()),
                format!("tensors for {} of {count} parameters", ordered.len()),
            ),
        };
        return Err(Error::mismatch("parameters-missing", "parameters of the program have no tensors")
            .expected(format_args!("{wanted}: {shown}"))
            .found(found)
            .hint(hint));
    }
    let pairs = ordered.iter().map(|s| (s.name.as_str(), s.entry));
    against_program(topology, pairs, losses)?;
    let mut left: Vec<usize> = places.into_values().collect();
    left.sort_unstable();
    for place in left {
        let detail = "dropped: the program has no such parameter";
        losses.push(Loss::new("not-in-program", all[place].entry.name(), detail));
    }
    Ok(ordered)
}

/// Compares tensors with their declarations in the program. Another shape is an error: Paddle does not check
/// on loading and fails when an operator runs. Another type is a loss for the same reason.
fn against_program<'a>(
    topology: &Topology,
    tensors: impl Iterator<Item = (&'a str, &'a TensorEntry)>,
    losses: &mut Vec<Loss>,
) -> Result<()> {
    let declared: HashMap<&str, &Variable> =
        topology.parameters().into_iter().map(|v| (v.name.as_str(), v)).collect();
    let quantized = topology.quantized();
    for (name, entry) in tensors {
        let Some(variable) = declared.get(name) else { continue };
        let admitted = quantized.admits(variable, entry.shape.dims());
        if let Some(shape) = variable.shape.as_ref().filter(|_| !admitted) {
            return Err(Error::mismatch(
                "shape-differs",
                "the shape differs from the declaration in the program",
            )
            .on_tensor(entry.name())
            .expected(format_args!("{shape:?}"))
            .found(&entry.shape)
            .hint(phrase![
                "the program may belong to another model; use ",
                Opt::Kind.with("state"),
                " to write the tensors without it"
            ]));
        }
        if let Some(dtype) = variable.dtype.filter(|_| !quantized.admits_dtype(variable, entry.dtype())) {
            let detail = format!(
                "the program declares {dtype}, the tensor is {}: Paddle loads it and fails when an operator runs",
                entry.dtype()
            );
            losses.push(Loss::new("dtype-differs", entry.name(), detail));
        }
    }
    Ok(())
}

/// True if two tensors have the same elements.
fn same_elements(a: &TensorEntry, b: &TensorEntry) -> Result<bool> {
    if a.dtype() != b.dtype() || a.shape != b.shape {
        return Ok(false);
    }
    Ok(a.read_tensor(Order::Row)? == b.read_tensor(Order::Row)?)
}
