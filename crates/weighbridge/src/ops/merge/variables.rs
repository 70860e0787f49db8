//! What tensors of several checkpoints are called as variables.

use crate::checkpoint::{Attributes, Checkpoint, Loss, TensorEntry, Value, escape_text};
use crate::error::{Error, Result};
use std::collections::{HashMap, HashSet};
use weighbridge_core::phrase;
use weighbridge_core::phrase::{Job, Opt};

/// Puts the other names that tensors go by below `prefix`, too: two files may have the same ones.
pub(super) fn put_below(source: &mut Checkpoint, prefix: &str) {
    for tensor in &mut source.tensors {
        for key in [Attributes::VARIABLE_NAME, Attributes::PARAMETER_VARIABLE, Attributes::STRUCTURED_NAME] {
            if let Some(Value::Text(name)) = tensor.attributes.get_mut(key) {
                *name = format!("{prefix}.{name}");
            }
        }
    }
}

/// Takes the name of a variable from parameters, where one of an earlier file has it: which is a loss.
///
/// # Errors
/// [`crate::Kind::Mismatch`], `state-of-which`, where there is state that knows its parameter by that name.
pub(super) fn keep_apart(sources: &mut [Checkpoint], losses: &mut Vec<Loss>) -> Result<()> {
    // A tensor without such a name goes by its path.
    let variable = |tensor: &TensorEntry| match tensor.text_attribute(Attributes::VARIABLE_NAME) {
        Some(name) => name.to_owned(),
        None => tensor.path.to_text(),
    };
    let mut owners: HashMap<String, (usize, String)> = HashMap::new();
    let mut twice: Vec<(usize, usize, String)> = Vec::new();
    for (number, source) in sources.iter().enumerate() {
        for (place, tensor) in source.tensors.iter().enumerate() {
            if tensor.role.is_state() {
                continue;
            }
            let name = variable(tensor);
            let owner = owners.entry(name.clone()).or_insert_with(|| (number, source.label.clone()));
            if owner.0 != number && tensor.attributes.contains_key(Attributes::VARIABLE_NAME) {
                twice.push((number, place, name));
            }
        }
    }
    if twice.is_empty() {
        return Ok(());
    }
    let wanted: HashSet<&str> = twice.iter().map(|(_, _, name)| name.as_str()).collect();
    for source in sources.iter() {
        for state in source.tensors.iter().filter(|tensor| tensor.role.slot().is_some()) {
            let path = state.path.to_text();
            let name = state.text_attribute(Attributes::PARAMETER_VARIABLE).unwrap_or(&path);
            if wanted.contains(name) {
                return Err(of_which(state, source));
            }
        }
    }
    for (number, place, name) in twice {
        let Some(source) = sources.get_mut(number) else { continue };
        let owner = owners.get(&name).map(|(_, label)| label.as_str()).unwrap_or_default();
        let detail = format!("it is dropped from {}: {owner} has a variable of this name", source.label);
        let Some(tensor) = source.tensors.get_mut(place) else { continue };
        tensor.attributes.remove(Attributes::VARIABLE_NAME);
        losses.push(Loss::new("variable-name", escape_text(&name), detail));
    }
    Ok(())
}

/// The error for state that could belong to several parameters.
pub(super) fn of_which(state: &TensorEntry, source: &Checkpoint) -> Error {
    Error::mismatch(
        "state-of-which",
        "parameters of several files could be the one that this state was trained with",
    )
    .in_file(&source.label)
    .on_tensor(state.name())
    .hint(phrase![
        "merge each model with its own state first, and then the two; or leave the state out: ",
        Job::Edit.brief().with(Opt::NoState),
        "; or keep both models apart: ",
        Opt::PrefixEach
    ])
}

/// The error for state of which nobody knows the parameter, where some of its file are taken and others are not.
pub(super) fn partly(state: &TensorEntry, source: &Checkpoint) -> Error {
    Error::mismatch(
        "state-of-which",
        "some parameters of this file give way to others, and nobody says which one this state was trained with",
    )
    .in_file(&source.label)
    .on_tensor(state.name())
    .hint(phrase!["leave the state out first: ", Job::Edit.brief().with(Opt::NoState), "; or keep both models apart: ", Opt::PrefixEach])
}
