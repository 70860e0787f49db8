//! Reading of files and folders into checkpoints.

mod beside;
mod folder;
mod info;
mod join;
mod model;
mod params;
mod roles;
mod salvage;
mod shards;
mod state_names;

use super::any_program::{Form, Program};
use super::state;
use beside::Beside;
pub(super) use folder::program as program_in;
pub(super) use shards::is_index;
use std::path::Path;
use std::sync::Arc;
use weighbridge_core::checkpoint::{Checkpoint, Origin};
use weighbridge_core::error::Result;
use weighbridge_format::shards::alone;
use weighbridge_format::{Input, OpenOptions};
use weighbridge_io::source::{FolderRef, SourceRef};

/// Returns an empty checkpoint of a kind.
fn checkpoint(kind: &'static str, label: &str) -> Checkpoint {
    Checkpoint::new("paddle", kind, label)
}

/// Opens a single file without its folder.
pub(super) fn open(source: &SourceRef, options: &OpenOptions) -> Result<Checkpoint> {
    open_file(source, None, options)
}

/// Opens a file together with the related files of its folder.
pub(super) fn open_beside(
    source: &SourceRef,
    folder: &FolderRef,
    name: &Path,
    options: &OpenOptions,
) -> Result<Checkpoint> {
    open_file(source, Some(Beside { folder, name }), options)
}

/// Extracts the intact parts of a damaged file or folder.
pub(super) fn salvage(place: &Input<'_>, options: &OpenOptions) -> Result<Checkpoint> {
    match *place {
        Input::Alone(source) => open(source, options),
        Input::Beside(source, folder, name) => open_beside(source, folder, name, options),
        Input::Folder(folder) => open_folder(folder, options),
    }
}

/// Opens a folder.
pub(super) fn open_folder(folder: &FolderRef, options: &OpenOptions) -> Result<Checkpoint> {
    Ok(with_origin(folder::open(folder, options)?))
}

/// True if the folder is a Paddle model.
pub(super) fn recognises_folder(folder: &FolderRef) -> bool {
    folder::recognises(folder)
}

fn open_file(source: &SourceRef, beside: Option<Beside<'_>>, options: &OpenOptions) -> Result<Checkpoint> {
    // A list of structured names is opened as the parameters that it describes.
    if let Some(beside) = beside
        && let Some(parameters) = beside.file_name().strip_suffix(info::ENDING)
        && let Some((file, name)) = beside.first(&[parameters.to_owned()])?
    {
        let mut checkpoint = open_file(&file, Some(Beside { name: Path::new(&name), ..beside }), options)?;
        source.label().clone_into(&mut checkpoint.label);
        return Ok(checkpoint);
    }
    let head = beside::head(source)?;
    if is_index(&head, source) {
        let Some(Beside { folder, name }) = beside else { return alone(source) };
        let around = name.parent().unwrap_or(Path::new(""));
        return Ok(with_origin(shards::open(source, folder, around, options)?));
    }
    let checkpoint = if Form::of(&head, source.len()).is_some() {
        model::open(source, beside, options)?
    } else if state::looks_like_pickle(&head, source) {
        state::read(source, options)?
    } else {
        params::open(source, beside, options)?
    };
    Ok(with_origin(checkpoint))
}

/// Adds the program that the caller names to tensors of another format.
pub fn attach(checkpoint: &mut Checkpoint, program: &SourceRef, options: &OpenOptions) -> Result<()> {
    checkpoint.topology = Some(Arc::new(Program::read(program, &options.limits)?.topology()));
    checkpoint.files.push(program.clone());
    info::attach(checkpoint, options)
}

fn with_origin(mut checkpoint: Checkpoint) -> Checkpoint {
    let kind = checkpoint.kind.to_owned();
    checkpoint.origin.get_or_insert(Origin { format: "paddle".to_owned(), kind });
    checkpoint
}

/// Merges two states. Metadata of the first takes precedence.
fn merge_states(mut whole: Checkpoint, part: Checkpoint) -> Checkpoint {
    whole.tensors.extend(part.tensors);
    whole.files.extend(part.files);
    match (&mut whole.damage, part.damage) {
        (Some(whole), Some(part)) => whole.lost.extend(part.lost),
        (none, part) => *none = none.take().or(part),
    }
    for (key, value) in part.metadata.iter() {
        if whole.metadata.get(key).is_none() {
            whole.metadata.set(key, value.clone());
        }
    }
    for note in part.notes {
        if !whole.notes.contains(&note) {
            whole.notes.push(note);
        }
    }
    whole
}
