//! Reader of SavedModels and of single graphs.

use crate::objects::CHECKPOINT_KEY;
use crate::program::{self, Constants, SIGNATURES};
use crate::read::{self, Around, INDEX};
use crate::{GRAPH, SAVED_MODEL};
use std::path::Path;
use std::sync::Arc;
use weighbridge_core::checkpoint::{Checkpoint, Note};
use weighbridge_core::error::{Error, Result};
use weighbridge_format::OpenOptions;
use weighbridge_io::source::{FolderRef, SourceRef};

/// Names of the file with the graphs of a SavedModel.
pub(crate) const SAVED: [&str; 2] = ["saved_model.pb", "saved_model.pbtxt"];
/// Name of the checkpoint in a SavedModel.
pub(crate) const VARIABLES: &str = "variables/variables";
/// Other files of a SavedModel.
const OTHERS: [&str; 3] = [FINGERPRINT, KERAS, "saved_model_debug_info.pb"];
/// File with hashes of the others.
pub(crate) const FINGERPRINT: &str = "fingerprint.pb";
/// File with the configuration of a model of tf-keras.
pub(crate) const KERAS: &str = "keras_metadata.pb";
/// Folders of files that the graphs of a SavedModel read.
const ASSETS: [&str; 2] = ["assets", "assets.extra"];

/// Returns true for metadata about the file rather than the model.
pub(crate) fn is_format_metadata(key: &str) -> bool {
    let is_signature =
        key.strip_prefix(SIGNATURES).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    is_signature || matches!(key, "tensorflow_version" | "producer" | "tags")
}

/// Reads a graph: all of its constants are tensors.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`], with the offset; [`weighbridge_core::Kind::Limit`].
pub(crate) fn open_graph(
    source: &SourceRef,
    options: &OpenOptions,
    salvaged: Option<&Error>,
) -> Result<Checkpoint> {
    let mut checkpoint = Checkpoint::new("tensorflow", GRAPH, source.label());
    add(&mut checkpoint, source, false, Constants::All, options, salvaged)?;
    checkpoint.files.push(source.clone());
    Ok(checkpoint)
}

/// Reads a SavedModel: the variables in `variables`, or else the constants of its graph.
///
/// # Errors
/// As [`open_graph`] and [`read::open`].
pub(crate) fn open_saved(
    source: &SourceRef,
    around: Around<'_>,
    options: &OpenOptions,
    salvaged: Option<&Error>,
) -> Result<Checkpoint> {
    let mut variables = None;
    if let Some((folder, name)) = around {
        let index = name.parent().unwrap_or(Path::new("")).join(format!("{VARIABLES}{INDEX}"));
        variables = folder.open(&index)?.map(|source| (source, folder, index));
    }
    let mut checkpoint = match &variables {
        Some((index, folder, name)) => read::open(index, Some((folder, name)), options, salvaged)?,
        None => Checkpoint::new("tensorflow", SAVED_MODEL, source.label()),
    };
    checkpoint.kind = SAVED_MODEL;
    source.label().clone_into(&mut checkpoint.label);
    let is_text = around.is_some_and(|(_, name)| name.extension().is_some_and(|end| end == "pbtxt"));
    match is_text {
        true => {
            let text = "the graphs are in text form, which is not read";
            checkpoint.notes.push(Note::omission("no-program", text));
        }
        false => {
            let which = constants(&checkpoint);
            add(&mut checkpoint, source, true, which, options, salvaged)?;
        }
    }
    checkpoint.files.push(source.clone());
    if let Some((folder, name)) = around {
        let dir = name.parent().unwrap_or(Path::new(""));
        for name in OTHERS {
            checkpoint.files.extend(folder.open(&dir.join(name))?);
        }
        checkpoint.companions = assets(folder, dir)?;
    }
    Ok(checkpoint)
}

/// Returns the constants to list beside the variables of a SavedModel.
fn constants(variables: &Checkpoint) -> Constants {
    match variables.tensors.as_slice() {
        [] => Constants::Numbers,
        tensors if tensors.iter().any(|tensor| tensor.attributes.contains_key(CHECKPOINT_KEY)) => {
            Constants::Captured
        }
        _ => Constants::None,
    }
}

/// Returns the constants that a graph or SavedModel lists, without its variables.
///
/// # Errors
/// As [`open_graph`].
pub(crate) fn constants_of(source: &SourceRef, variables: Option<&Checkpoint>) -> Result<Checkpoint> {
    let mut found = Checkpoint::new("tensorflow", GRAPH, source.label());
    let which = variables.map_or(Constants::All, constants);
    add(&mut found, source, variables.is_some(), which, &OpenOptions::default(), None)?;
    Ok(found)
}

/// Adds the program of a file, and its constants.
fn add(
    checkpoint: &mut Checkpoint,
    source: &SourceRef,
    is_saved: bool,
    which: Constants,
    options: &OpenOptions,
    salvaged: Option<&Error>,
) -> Result<()> {
    let limits = options.limits.with_budget_of(source);
    let budget = limits.budget_of(source);
    if let Some(error) = salvaged {
        checkpoint.damage_mut(error);
    }
    let mut program = program::read(source, is_saved, &limits, &budget, salvaged.is_some())?;
    let topology = program.topology();
    program.describe(checkpoint);
    let cost = (&limits, &budget);
    program.list(which, &topology.blocks, source, checkpoint, cost, salvaged.is_some())?;
    checkpoint.topology = Some(Arc::new(topology));
    Ok(())
}

/// Returns the files that the graphs of a SavedModel read, by name.
fn assets(folder: &FolderRef, around: &Path) -> Result<Vec<(String, SourceRef)>> {
    let mut found = Vec::new();
    for item in folder.list(weighbridge_io::source::FolderItem::DEPTH)? {
        let Ok(inner) = item.name.strip_prefix(around) else { continue };
        let is_asset =
            inner.parent().is_some_and(|parent| ASSETS.iter().any(|folder| parent.starts_with(folder)));
        if let (true, Some(text), Some(source)) = (is_asset, inner.to_str(), folder.open(&item.name)?) {
            found.push((text.replace(std::path::MAIN_SEPARATOR, "/"), source));
        }
    }
    Ok(found)
}

/// Returns true for the name of a file of a SavedModel besides its variables and assets.
pub(crate) fn is_own_file(name: &str) -> bool {
    SAVED.contains(&name) || OTHERS.contains(&name)
}
