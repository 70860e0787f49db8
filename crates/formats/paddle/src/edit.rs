//! Changes to a program together with its parameters.

use super::any_program::Program;
use super::program::derived_name;
use super::{Strip, StripReport};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use weighbridge_core::check::variable_names;
use weighbridge_core::checkpoint::{Attributes, Checkpoint, Note, TensorEntry, TensorPath, Value};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::phrase;
use weighbridge_core::phrase::Opt;
use weighbridge_core::text::escape;
use weighbridge_core::topology::Topology;

/// Returns the program of a checkpoint.
fn program(checkpoint: &Checkpoint) -> Result<(Program, Arc<Topology>)> {
    let topology = checkpoint.topology.clone().ok_or_else(|| {
        Error::mismatch("no-program", "the model has no program to change")
            .in_file(&checkpoint.label)
            .hint(phrase!["give a program of another folder with ", Opt::Program.any("FILE")])
    })?;
    let program = Program::of(&topology).map_err(|error| error.in_file(&checkpoint.label))?;
    Ok((program, topology))
}

/// Removes parts of the program of `checkpoint`, and the tensors that the program no longer declares.
///
/// # Errors
/// [`weighbridge_core::Kind::Mismatch`], `no-program`; errors of [`Program::strip`]. On error the checkpoint
/// is unchanged.
pub fn strip(checkpoint: &mut Checkpoint, what: &Strip) -> Result<StripReport> {
    let (mut program, before) = program(checkpoint)?;
    let report = program.strip(what)?;
    checkpoint.notes.extend(no_outputs(&report.ends));
    let after = program.topology();
    let declared = |topology: &Topology| -> HashSet<String> {
        topology.parameters().iter().map(|v| v.name.clone()).collect()
    };
    let (had, has) = (declared(&before), declared(&after));
    let names = variable_names(&before, &checkpoint.tensors);
    let mut names = names.iter();
    // Tensors that the program never declared are kept.
    checkpoint.tensors.retain(|_| names.next().is_none_or(|name| has.contains(name) || !had.contains(name)));
    checkpoint.topology = Some(Arc::new(after));
    Ok(report)
}

/// Returns the note on a training program without outputs; `ends` are the ends of its forward pass.
fn no_outputs(ends: &[String]) -> Option<Note> {
    const MAX_SHOWN: usize = 8;
    let shown: Vec<String> = ends.iter().rev().take(MAX_SHOWN).map(|name| escape(name)).collect();
    let more = if ends.len() > MAX_SHOWN { ", ..." } else { "" };
    let text = format!(
        "the program has no outputs and keeps its whole forward pass, which ends in {}{more}; name the outputs \
         to reduce it to an inference model",
        shown.join(", ")
    );
    (!ends.is_empty()).then(|| Note::new("no-outputs", text))
}

/// Renames variables of the program of `checkpoint`, and the corresponding tensors. The optimizer state of a renamed
/// parameter is renamed too, and so are variables that Paddle derived by an `@`, such as the scale `w@scale`. In a
/// combined file the order of the tensors changes with the names.
///
/// # Errors
/// [`weighbridge_core::Kind::Mismatch`]: `no-program`; `no-such-variable` for a name that the program lacks; a
/// new name in use. On error the checkpoint is unchanged.
pub fn rename(checkpoint: &mut Checkpoint, names: &BTreeMap<String, String>) -> Result<()> {
    let (mut program, before) = program(checkpoint)?;
    let known: HashSet<&str> =
        before.blocks.iter().flat_map(|b| &b.variables).map(|v| v.name.as_str()).collect();
    if let Some(name) = names.keys().find(|name| !known.contains(name.as_str())) {
        return Err(Error::mismatch("no-such-variable", "the program has no variable with this name")
            .in_file(&checkpoint.label)
            .found(escape(name)));
    }
    let own = variable_names(&before, &checkpoint.tensors);
    let names = &with_derived(&program, &before, names);
    let mut all = names.clone();
    for (tensor, old) in checkpoint.tensors.iter().zip(&own) {
        if let (Some(slot), Some(parameter)) = (tensor.role.slot(), names.get(&parameter_of(tensor)))
            && known.contains(old.as_str())
        {
            all.entry(old.clone()).or_insert_with(|| format!("{parameter}_{}", slot.to_text()));
        }
    }
    program.rename(&all)?;
    for (tensor, old) in checkpoint.tensors.iter_mut().zip(own) {
        rename_tensor(tensor, &old, names, &all);
    }
    checkpoint.topology = Some(Arc::new(program.topology()));
    Ok(())
}

/// Returns `names` together with the new names of derived parameters that a protobuf program renames too.
fn with_derived(
    program: &Program,
    before: &Topology,
    names: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let mut all = names.clone();
    if let Program::Desc(_) = program {
        for variable in before.parameters().into_iter().filter(|v| !names.contains_key(&v.name)) {
            all.extend(derived_name(&variable.name, names).map(|new| (variable.name.clone(), new)));
        }
    }
    all
}

/// Returns the variable name of the parameter of an optimizer tensor.
fn parameter_of(tensor: &TensorEntry) -> String {
    tensor.text_attribute(Attributes::PARAMETER_VARIABLE).map_or_else(|| tensor.path.to_text(), str::to_owned)
}

/// Renames the tensor of the variable `old`: `all` contains the new names of all variables, `names` the requested ones.
fn rename_tensor(
    tensor: &mut TensorEntry,
    old: &str,
    names: &BTreeMap<String, String>,
    all: &BTreeMap<String, String>,
) {
    let named = tensor.attributes.contains_key(Attributes::VARIABLE_NAME);
    if tensor.role.slot().is_some() {
        let parameter = names.get(&parameter_of(tensor));
        if let Some(new) = parameter {
            match tensor.attributes.get_mut(Attributes::PARAMETER_VARIABLE) {
                Some(name) => *name = Value::Text(new.clone()),
                None => tensor.path = TensorPath::from_dotted(new),
            }
        }
        // A name that does not follow from the parameter's must be stored.
        if let Some(new) = all.get(old).filter(|_| named || names.contains_key(old)) {
            tensor.attributes.insert(Attributes::VARIABLE_NAME.to_owned(), Value::Text(new.clone()));
        }
        return;
    }
    let Some(new) = names.get(old) else { return };
    if named {
        tensor.attributes.insert(Attributes::VARIABLE_NAME.to_owned(), Value::Text(new.clone()));
    } else {
        tensor.path = TensorPath::from_dotted(new);
        // The program uses the new name from now on.
        tensor.attributes.remove(Attributes::RENAMED_FROM);
    }
}
