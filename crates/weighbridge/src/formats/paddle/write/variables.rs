//! Which tensor is which variable: names, renames, and the order of files.

use crate::checkpoint::{Checkpoint, Loss, PARAMETER_VARIABLE, RENAMED_FROM, TensorEntry, VARIABLE_NAME};
use crate::error::{Error, Result};
use crate::topology::{Topology, VariableKind};
use std::collections::{BTreeMap, HashMap};

/// A tensor under the name that it has as a variable.
#[derive(Debug, Clone)]
pub(super) struct Stored<'a> {
    pub(super) name: String,
    pub(super) entry: &'a TensorEntry,
}

/// The name that a tensor has as a variable: the one it keeps beside its structured name, else its
/// path; for state `PARAMETER_SLOT`, as Paddle's optimizers name it.
pub(super) fn variable_name(entry: &TensorEntry) -> String {
    if let Some(own) = entry.text_attribute(VARIABLE_NAME) {
        return own.to_owned();
    }
    match entry.role.slot() {
        Some(slot) => {
            let parameter = entry.text_attribute(PARAMETER_VARIABLE);
            let parameter = parameter.map_or_else(|| entry.path.to_text(), str::to_owned);
            format!("{parameter}_{}", slot.to_text())
        }
        None => entry.path.to_text(),
    }
}

/// The variables that were renamed since the program was read: old name to new.
pub(super) fn renames(checkpoint: &Checkpoint) -> BTreeMap<String, String> {
    let renamed = |entry: &TensorEntry| {
        let old = entry.text_attribute(RENAMED_FROM)?;
        let new = variable_name(entry);
        let old = match entry.role.slot() {
            Some(slot) => format!("{old}_{}", slot.to_text()),
            None => old.to_owned(),
        };
        (old != new).then_some((old, new))
    };
    checkpoint.tensors.iter().filter_map(renamed).collect()
}

/// The tensors of a checkpoint in the order of a combined file.
///
/// With a program they are its parameters, all of them and no others; without one they are sorted
/// by name, and a file that had no names keeps its order. Two tensors that are one variable
/// (tied weights under several structured names) are written once.
///
/// # Errors
/// [`crate::Kind::Mismatch`]: `parameters-missing` where the program has parameters that the
/// checkpoint lacks, unless `gaps` are fine.
pub(super) fn in_file_order<'a>(
    checkpoint: &'a Checkpoint,
    topology: Option<&Topology>,
    gaps: bool,
    losses: &mut Vec<Loss>,
) -> Result<Vec<Stored<'a>>> {
    let mut all = Vec::with_capacity(checkpoint.tensors.len());
    let mut places = HashMap::with_capacity(checkpoint.tensors.len());
    for entry in &checkpoint.tensors {
        let name = variable_name(entry);
        if places.contains_key(&name) {
            let detail =
                format!("it is the variable {name}, which another tensor is too; one of them is written");
            losses.push(Loss::new("one-variable", entry.name(), detail));
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
            // Words are no tensors; who writes them looks for them elsewhere.
            None if variable.kind == VariableKind::Vocab => {}
            None => missing.push(variable.name.as_str()),
        }
    }
    if !missing.is_empty() && !gaps {
        let shown = missing.iter().take(5).copied().collect::<Vec<_>>().join(", ");
        return Err(Error::mismatch(
            "parameters-missing",
            "the program has parameters that the tensors lack",
        )
        .expected(format_args!("{} more: {shown}", missing.len()))
        .found(format_args!("{} tensors", checkpoint.tensors.len()))
        .hint("are these the names of its variables? --names variable, or --rename, makes them so"));
    }
    let mut left: Vec<usize> = places.into_values().collect();
    left.sort_unstable();
    for place in left {
        let detail = "the program has no such parameter; it is left out";
        losses.push(Loss::new("not-in-program", all[place].entry.name(), detail));
    }
    Ok(ordered)
}
