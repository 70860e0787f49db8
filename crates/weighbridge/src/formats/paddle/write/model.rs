//! Folders: a program and its parameters.

use super::super::stream::{dense, selected_rows, vocab};
use super::super::{FORM_PIR, PARAMETERS_MISSING, STOP_GRADIENT, TRAINABLE, state};
use super::variables::{self, Stored};
use super::{Edited, literal, names, streams};
use crate::checkpoint::{Checkpoint, Loss, Role, STRUCTURED_NAME, TensorEntry, VARIABLE_NAME, Value};
use crate::error::{Error, Result};
use crate::formats::PlanOptions;
use crate::plan::{FileBuilder, PlannedFile};

/// The program and all parameters in one file.
pub(super) fn inference(
    checkpoint: &Checkpoint,
    (program, topology): &Edited,
    options: &PlanOptions,
    losses: &mut Vec<Loss>,
) -> Result<Vec<PlannedFile>> {
    let names = names::of(checkpoint, topology.form, options)?;
    let mut files = vec![
        literal(&names.program, program.to_bytes()),
        streams::combined(&names.parameters, checkpoint, Some(topology), options, losses)?,
    ];
    if topology.form != FORM_PIR
        && names.parameters.ends_with(".pdiparams")
        && let Some(bytes) = structured_names(checkpoint)?
    {
        files.push(literal(&format!("{}.info", names.parameters), bytes));
    }
    Ok(files)
}

/// The list of structured names, where any tensor has one.
fn structured_names(checkpoint: &Checkpoint) -> Result<Option<Vec<u8>>> {
    let mut info = Vec::new();
    for entry in checkpoint.tensors.iter().filter(|t| t.role.slot().is_none()) {
        let kept = entry.text_attribute(STRUCTURED_NAME).map(str::to_owned);
        // Where the variable's name is kept beside it, the path is the structured one.
        let own = entry.attributes.contains_key(VARIABLE_NAME).then(|| entry.path.to_text());
        let flag = |key: &str| match entry.attributes.get(key) {
            Some(Value::Bool(flag)) => Some(*flag),
            _ => None,
        };
        if let Some(name) = kept.or(own) {
            info.push(state::InfoRow {
                variable: variables::variable_name(entry),
                structured_name: Some(name),
                stop_gradient: flag(STOP_GRADIENT).or(Some(entry.role == Role::Buffer)),
                trainable: flag(TRAINABLE).or((entry.role == Role::Parameter).then_some(true)),
            });
        }
    }
    if info.is_empty() { Ok(None) } else { Ok(Some(state::info_bytes(&info)?)) }
}

/// The program, and one file for each parameter.
pub(super) fn separate(
    checkpoint: &Checkpoint,
    program: Option<&Edited>,
    options: &PlanOptions,
    losses: &mut Vec<Loss>,
) -> Result<Vec<PlannedFile>> {
    if options.setting("stream").is_some_and(|s| s != "paddle") {
        return Err(Error::usage("unknown-stream", "separate files are streams as Paddle writes them"));
    }
    let topology = program.map(|(_, topology)| &**topology);
    let mut files = Vec::new();
    if let Some((program, topology)) = program {
        let name = if topology.form == FORM_PIR { "__model__.json" } else { "__model__" };
        files.push(literal(name, program.to_bytes()));
    }
    // A folder that lacked files is written as it was; that they are missing is a loss already.
    let gaps = checkpoint.notes.iter().any(|note| note.code == PARAMETERS_MISSING && note.omission);
    for Stored { name, entry } in variables::in_file_order(checkpoint, topology, gaps, losses)? {
        let mut file = FileBuilder::new(&name);
        if entry.attributes.contains_key(selected_rows::ROWS) {
            selected_rows::write(&mut file, entry)?;
        } else {
            dense::write(&mut file, entry)?;
        }
        files.push(file.finish());
    }
    for (name, words) in streams::vocabularies(checkpoint)? {
        let mut file = FileBuilder::new(&name);
        vocab::write(&mut file, &words);
        files.push(file.finish());
    }
    Ok(files)
}

/// A program with pickled states: parameters, and what the optimizer keeps, as `static.save` writes
/// them.
pub(super) fn training(
    checkpoint: &Checkpoint,
    (program, topology): &Edited,
    options: &PlanOptions,
    losses: &mut Vec<Loss>,
) -> Result<Vec<PlannedFile>> {
    let stem = names::stem(checkpoint, options)?;
    let ending = if topology.form == FORM_PIR { "json" } else { "pdmodel" };
    let mut files = vec![literal(&format!("{stem}.{ending}"), program.to_bytes())];
    // What belongs to no parameter, such as the learning rate, is the optimizer's.
    let of_optimizer = |entry: &TensorEntry| matches!(entry.role, Role::OptimizerState { .. } | Role::Other);
    for (ending, wanted) in [("pdparams", false), ("pdopt", true)] {
        let mut part = checkpoint.clone();
        part.topology = None;
        part.tensors.retain(|entry| of_optimizer(entry) == wanted);
        if !wanted {
            let kept = part.metadata.iter().filter(|(key, _)| state::is_of_parameters(key));
            part.metadata = kept.map(|(key, value)| (key.to_owned(), value.clone())).collect();
        }
        if wanted && part.tensors.is_empty() {
            continue;
        }
        let settings = PlanOptions { kind: None, settings: options.settings.clone() };
        let plan = state::plan(&part, &settings)?;
        losses.extend(plan.losses.into_iter().filter(|loss| !losses.contains(loss)).collect::<Vec<_>>());
        for mut file in plan.files {
            file.name = format!("{stem}.{ending}");
            files.push(file);
        }
    }
    Ok(files)
}

/// The error for a program of the other form.
pub(super) fn wrong_form(has: &str, wanted: &str) -> Error {
    Error::mismatch("other-form", "the program has another form, and the form of a program cannot be changed")
        .expected(wanted)
        .found(has)
}
