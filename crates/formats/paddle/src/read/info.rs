//! Structured names of variables from `x.pdiparams.info` (specification section 4).

use super::super::state::{self, Info, InfoRow};
use super::super::{INFO_FILE, STOP_GRADIENT, TRAINABLE};
use super::beside::{Beside, base_name};
use super::join::path_of;
use crate::ReadOptions;
use std::collections::{HashMap, HashSet};
use weighbridge_core::NoteCode;
use weighbridge_core::checkpoint::{Attributes, Checkpoint, Note, Role, TensorPath, Value};
use weighbridge_core::error::Result;
use weighbridge_core::text::{counted, escape, first_and_more};
use weighbridge_format::OpenOptions;
use weighbridge_io::source::SourceRef;

/// Suffix appended to the name of the parameter file.
pub(super) const ENDING: &str = ".info";
/// Maximum number of variables named in a note.
const MAX_NAMES_SHOWN: usize = 5;

/// Adds the structured names from the info file to the tensors of a joined checkpoint.
pub(super) fn join(
    checkpoint: &mut Checkpoint,
    beside: Option<Beside<'_>>,
    options: &OpenOptions,
) -> Result<()> {
    let Some((source, name)) = find(checkpoint, beside, options)? else { return Ok(()) };
    match state::read_info(&source, &options.limits) {
        Ok(Some(info)) => {
            let entries = apply(checkpoint, &info);
            checkpoint
                .notes
                .extend(entries.map(|text| Note::new(NoteCode::InfoEntries, format!("{name}: {text}"))));
            checkpoint.metadata.set(INFO_FILE, Value::Text(name.clone()));
            checkpoint.companions.push((name, source));
        }
        Ok(None) => {
            checkpoint.notes.push(Note::omission(
                "info-ignored",
                format!("{name} skipped: it is not a list of structured names"),
            ));
        }
        Err(error) => {
            checkpoint
                .notes
                .push(Note::omission("info-ignored", format!("{name} skipped: {}", error.message())));
        }
    }
    Ok(())
}

/// Adds the variable names to tensors of another format that have structured names.
pub(super) fn attach(checkpoint: &mut Checkpoint, options: &OpenOptions) -> Result<()> {
    let Some(source) = &options.own::<ReadOptions>().program_info else { return Ok(()) };
    let Ok(Some(info)) = state::read_info(source, &options.limits) else { return Ok(()) };
    // The list may have more entries than there are tensors.
    checkpoint.companions.push((base_name(source.label()), source.clone()));
    let name = |row: &InfoRow| Some((path_of(row.structured_name.as_ref()?), row.variable.clone()));
    let variables: HashMap<TensorPath, String> = info.iter().filter_map(name).collect();
    for tensor in checkpoint.tensors.iter_mut().filter(|t| t.role.slot().is_none()) {
        if let Some(variable) = variables.get(&tensor.path) {
            tensor
                .attributes
                .entry(Attributes::VARIABLE_NAME.to_owned())
                .or_insert_with(|| Value::Text(variable.clone()));
        }
    }
    Ok(())
}

/// Finds the info file of the parameters, else the one of the program that the caller names.
fn find(
    checkpoint: &Checkpoint,
    beside: Option<Beside<'_>>,
    options: &OpenOptions,
) -> Result<Option<(SourceRef, String)>> {
    let named = || {
        options.own::<ReadOptions>().program_info.map(|source| (source.clone(), base_name(source.label())))
    };
    let Some(beside) = beside else { return Ok(named()) };
    let file = match checkpoint.metadata.get(super::super::PARAMETERS_FILE) {
        Some(Value::Text(name)) => name.clone(),
        _ => return Ok(None),
    };
    // Functions of one layer share the file of the first: x.second.pdiparams, x.pdiparams.info.
    let mut names = vec![format!("{file}{ENDING}")];
    if let Some((first, rest)) = file.split_once('.')
        && rest != "pdiparams"
    {
        names.push(format!("{first}.pdiparams{ENDING}"));
    }
    Ok(beside.first(&names)?.or_else(named))
}

/// Applies the info entries. Returns a note text on entries whose variables the model lacks.
fn apply(checkpoint: &mut Checkpoint, info: &Info) -> Option<String> {
    let rows: HashMap<TensorPath, &InfoRow> = info.iter().map(|row| (path_of(&row.variable), row)).collect();
    for tensor in checkpoint.tensors.iter_mut().filter(|t| !t.guessed) {
        let Some(row) = rows.get(&tensor.path) else { continue };
        if let Some(name) = &row.structured_name {
            tensor.attributes.insert(Attributes::STRUCTURED_NAME.to_owned(), Value::Text(name.clone()));
        }
        for (key, flag) in [(STOP_GRADIENT, row.stop_gradient), (TRAINABLE, row.trainable)] {
            if let Some(flag) = flag {
                tensor.attributes.insert(key.to_owned(), Value::Bool(flag));
            }
        }
        if row.trainable.is_none() {
            tensor.role = Role::Buffer;
        }
    }
    let held: HashSet<&TensorPath> = checkpoint.tensors.iter().map(|tensor| &tensor.path).collect();
    let rest = info.iter().filter(|row| !held.contains(&path_of(&row.variable)));
    let rest: Vec<String> = rest.map(|row| escape(&row.variable)).collect();
    (!rest.is_empty()).then(|| {
        let entries = counted(rest.len(), "entry is for", "entries are for");
        format!("{entries} variables that the model lacks: {}", first_and_more(rest, MAX_NAMES_SHOWN))
    })
}
