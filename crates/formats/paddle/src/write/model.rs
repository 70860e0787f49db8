//! Model folders: a program and its parameters.

use super::super::stream::{dense, selected_rows, vocab};
use super::super::{PARAMETERS_FILE, PARAMETERS_MISSING, Paddle, STOP_GRADIENT, TRAINABLE, state};
use super::variables::{self, Stored};
use super::{Edited, literal, names, streams};
use std::collections::HashMap;
use weighbridge_core::checkpoint::{Attributes, Checkpoint, Loss, Role, TensorEntry, Value};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::phrase;
use weighbridge_core::phrase::Opt;
use weighbridge_core::plan::{FileBuilder, PlannedFile};
use weighbridge_core::text::counted;
use weighbridge_format::PlanOptions;
use weighbridge_io::source::read_vec;

/// Plans the program and one file of all parameters.
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
    if topology.form != Paddle::FORM_PIR
        && names.parameters.ends_with(".pdiparams")
        && let Some(bytes) = structured_names(checkpoint)?
    {
        files.push(literal(&list_name(checkpoint, &names.parameters), bytes));
    } else {
        names_are_lost(checkpoint, losses);
    }
    Ok(files)
}

/// Returns the list of structured names, if any tensor has one. The list that was read is updated with the
/// current variable names; otherwise a new list is made from the tensors.
fn structured_names(checkpoint: &Checkpoint) -> Result<Option<Vec<u8>>> {
    let list = checkpoint.companions.iter().find(|(name, _)| name.ends_with(".info"));
    if let Some((_, source)) = list
        && let Some(mut rows) = state::read_info(source, &Limits::default())?
    {
        let mut changed = false;
        let now: HashMap<String, String> = checkpoint
            .tensors
            .iter()
            .filter_map(|entry| Some((structured_name(entry)?, variables::variable_name(entry))))
            .collect();
        for row in &mut rows {
            let new = row.structured_name.as_ref().and_then(|name| now.get(name));
            if let Some(new) = new.filter(|new| **new != row.variable) {
                row.variable.clone_from(new);
                changed = true;
            }
        }
        let bytes = if changed { state::info_bytes(&rows)? } else { read_vec(&**source, 0, source.len())? };
        return Ok(Some(bytes));
    }
    let mut info = Vec::new();
    for entry in checkpoint.tensors.iter().filter(|t| t.role.slot().is_none()) {
        let flag = |key: &str| match entry.attributes.get(key) {
            Some(Value::Bool(flag)) => Some(*flag),
            _ => None,
        };
        if let Some(name) = structured_name(entry) {
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

/// Returns the file name of the list of structured names. Functions of one layer share the list of the first,
/// so the list keeps its name if the parameters keep theirs.
fn list_name(checkpoint: &Checkpoint, parameters: &str) -> String {
    let same = checkpoint.metadata.get(PARAMETERS_FILE) == Some(&Value::Text(parameters.to_owned()));
    let had = checkpoint.companions.iter().map(|(name, _)| name).find(|name| name.ends_with(".info"));
    match had {
        Some(name) if same && !name.contains(['/', '\\']) => name.clone(),
        _ => format!("{parameters}.info"),
    }
}

/// Returns the structured name of a tensor, if it has one: the stored attribute, or the path if the
/// variable name is stored as an attribute.
fn structured_name(entry: &TensorEntry) -> Option<String> {
    let kept = entry.text_attribute(Attributes::STRUCTURED_NAME).map(str::to_owned);
    kept.or_else(|| entry.attributes.contains_key(Attributes::VARIABLE_NAME).then(|| entry.path.to_text()))
}

/// Reports the loss of structured names. Only the list of `x.pdiparams` can store them.
pub(super) fn names_are_lost(checkpoint: &Checkpoint, losses: &mut Vec<Loss>) {
    losses.extend(checkpoint.info_losses());
    let count =
        checkpoint.tensors.iter().filter(|t| t.role.slot().is_none() && structured_name(t).is_some()).count();
    if count > 0 {
        let detail = phrase![
            "structured names dropped: this kind has no list for them; ",
            Opt::Kind.with("inference"),
            " with era 2 has one"
        ];
        losses.push(Loss::new("structured-names", counted(count, "tensor", "tensors"), detail));
    }
}

/// Plans the program and one file for each parameter.
pub(super) fn separate(
    checkpoint: &Checkpoint,
    program: Option<&Edited>,
    options: &PlanOptions,
    losses: &mut Vec<Loss>,
) -> Result<Vec<PlannedFile>> {
    if options.setting("stream").is_some_and(|s| s != "paddle") {
        return Err(Error::usage("unknown-stream", "separate files support only the stream form `paddle`"));
    }
    let topology = program.map(|(_, topology)| &**topology);
    names_are_lost(checkpoint, losses);
    let mut files = Vec::new();
    if let Some((program, topology)) = program {
        let name = if topology.form == Paddle::FORM_PIR { "__model__.json" } else { "__model__" };
        files.push(literal(name, program.to_bytes()));
    }
    // Missing files of a folder stay missing; their absence is already reported as a loss.
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

/// Plans a program with pickled states of parameters and optimizer, as `static.save` writes them.
pub(super) fn training(
    checkpoint: &Checkpoint,
    (program, topology): &Edited,
    options: &PlanOptions,
    losses: &mut Vec<Loss>,
) -> Result<Vec<PlannedFile>> {
    let stem = names::stem(checkpoint, options)?;
    let ending = if topology.form == Paddle::FORM_PIR { "json" } else { "pdmodel" };
    let mut files = vec![literal(&format!("{stem}.{ending}"), program.to_bytes())];
    // Tensors without a parameter, such as the learning rate, belong to the optimizer.
    let of_optimizer = |entry: &TensorEntry| entry.role.is_state() || entry.role == Role::Other;
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
        let settings = PlanOptions { kind: None, ..options.clone() };
        let plan = state::plan(&part, &settings)?;
        losses.extend(plan.losses.into_iter().filter(|loss| !losses.contains(loss)).collect::<Vec<_>>());
        for mut file in plan.files {
            file.name = format!("{stem}.{ending}");
            files.push(file);
        }
    }
    Ok(files)
}

/// Returns the error for a program of the other form.
pub(super) fn wrong_form(has: &str, wanted: &str) -> Error {
    Error::mismatch("other-form", "the form of a program cannot be changed").expected(wanted).found(has)
}
