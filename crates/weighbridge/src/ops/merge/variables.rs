//! Variable names of the tensors of several checkpoints.

use crate::checkpoint::{Attributes, Checkpoint, Loss, TensorEntry, Value, escape_text};
use crate::error::{Error, Result};
use std::collections::{HashMap, HashSet};
use weighbridge_core::phrase;
use weighbridge_core::phrase::{Job, Opt};

/// Prefixes the other names of tensors, too: two files may have the same ones.
pub(super) fn put_below(source: &mut Checkpoint, prefix: &str) {
    for tensor in &mut source.tensors {
        for key in [Attributes::VARIABLE_NAME, Attributes::PARAMETER_VARIABLE, Attributes::STRUCTURED_NAME] {
            if let Some(Value::Text(name)) = tensor.attributes.get_mut(key) {
                *name = format!("{prefix}.{name}");
            }
        }
    }
}

/// Removes the variable name of a parameter where a parameter of an earlier file has the same one; each is a loss.
///
/// # Errors
/// [`crate::Kind::Mismatch`], `state-of-which`, where state refers to its parameter by that name.
pub(super) fn keep_apart(sources: &mut [Checkpoint], losses: &mut Vec<Loss>) -> Result<()> {
    // A tensor without a variable name is referred to by its path.
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
        let detail = format!("dropped from {}: {owner} has a variable of the same name", source.label);
        let Some(tensor) = source.tensors.get_mut(place) else { continue };
        tensor.attributes.remove(Attributes::VARIABLE_NAME);
        losses.push(Loss::new("variable-name", escape_text(&name), detail));
    }
    Ok(())
}

/// Returns the error for state that could belong to several parameters.
pub(super) fn of_which(state: &TensorEntry, source: &Checkpoint) -> Error {
    Error::mismatch("state-of-which", "the optimizer state could belong to parameters of several files")
        .in_file(&source.label)
        .on_tensor(state.name())
        .hint(phrase![
            "merge each model with its own state first, then both; or drop the state: ",
            Job::Edit.brief().with(Opt::NoState),
            "; or keep both models apart: ",
            Opt::PrefixEach
        ])
}

/// Returns the error for state with an unknown parameter, in a file whose parameters are partly kept.
pub(super) fn partly(state: &TensorEntry, source: &Checkpoint) -> Error {
    Error::mismatch(
        "state-of-which",
        "the parameter of the optimizer state is unknown, and only some parameters of its file are kept",
    )
    .in_file(&source.label)
    .on_tensor(state.name())
    .hint(phrase![
        "drop the state first: ",
        Job::Edit.brief().with(Opt::NoState),
        "; or keep both models apart: ",
        Opt::PrefixEach
    ])
}
