//! Opening files, with a hint at `--salvage` for damaged ones.

use crate::args::Input;
use crate::flags::flags;
use crate::output::Output;
use crate::streams::{is_spool, shown};
use std::io;
use std::path::Path;
use weighbridge::checkpoint::Note;
use weighbridge::formats::registry;
use weighbridge::phrase::Worded;
use weighbridge::{Checkpoint, NoteCode, Result};

/// Opens the input of a verb. For a damaged file, the hint states how many tensors `--salvage` extracts.
pub(crate) fn open(path: &Path, input: &Input) -> Result<Checkpoint> {
    let options = input.options()?;
    let mut opened = weighbridge::formats::open_with(path, &options)
        .map_err(|error| registry().offer_salvage(error, path, &options))?;
    if is_spool(path) {
        opened.label = shown(path);
    }
    Ok(opened)
}

/// Prints the note about damage, if there is one.
pub(crate) fn say(checkpoint: &Checkpoint, output: &mut Output) -> io::Result<()> {
    let damaged: Vec<Note> = checkpoint
        .notes
        .iter()
        .filter(|note| note.code == NoteCode::Damaged)
        .cloned()
        .map(|note| note.worded(&flags))
        .collect();
    output.notes(&damaged)
}
