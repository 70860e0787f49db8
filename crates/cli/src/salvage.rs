//! Damaged files: opened with an error that says what can be done, and the word that goes with what was salvaged.

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

/// Opens what a verb reads; an error about a damaged file says what `--salvage` would give.
pub(crate) fn open(path: &Path, input: &Input) -> Result<Checkpoint> {
    let options = input.options()?;
    let mut opened = weighbridge::formats::open_with(path, &options)
        .map_err(|error| registry().offer_salvage(error, path, &options))?;
    if is_spool(path) {
        opened.label = shown(path);
    }
    Ok(opened)
}

/// Says that a file is damaged, where it is.
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
