//! Damaged files: an error that says what can be done, and the word that goes with what was salvaged.

use crate::Outcome;
use crate::args::Input;
use crate::output::Output;
use serde_json::Value as Json;
use std::io;
use std::path::Path;
use weighbridge::checkpoint::{Loss, Note};
use weighbridge::source::{PathKind, kind_of_path};
use weighbridge::{Checkpoint, Error, Kind, OpenOptions, Result};

/// Files up to this length are tried to be salvaged only to say what that would give.
const MOST_TRIED: u64 = 16 << 20;

/// Opens what a verb reads; an error about a damaged file says what `--salvage` would give.
pub(crate) fn open(path: &Path, input: &Input) -> Result<Checkpoint> {
    let options = input.options()?;
    weighbridge::open_with(path, &options).map_err(|error| advise(error, path, &options))
}

/// Adds to the error of a damaged file what `--salvage` would give.
pub fn advise(error: Error, path: &Path, options: &OpenOptions) -> Error {
    if options.salvage || error.kind() != Kind::Corrupt {
        return error;
    }
    let is_file = matches!(kind_of_path(path), Ok(PathKind::File));
    let short = path.metadata().is_ok_and(|facts| facts.len() <= MOST_TRIED);
    if !is_file || !short {
        return error.hint_too("--salvage gives the tensors that are intact");
    }
    let options = OpenOptions { salvage: true, ..options.clone() };
    match weighbridge::open_with(path, &options) {
        Ok(saved) if saved.tensors.is_empty() => {
            error.hint_too("--salvage would find no tensor that is intact")
        }
        Ok(saved) => {
            let count = saved.tensors.len();
            let noun = if count == 1 { "tensor" } else { "tensors" };
            error.hint_too(format_args!("--salvage would list {count} {noun}"))
        }
        Err(_) => error,
    }
}

/// The outcome of what was written from a source: it is sound, but where tensors of a damaged source are
/// missing it is not all that there was.
pub(crate) fn outcome(losses: &[Loss]) -> Outcome {
    if losses.iter().any(|loss| loss.code == "missing-damaged") { Outcome::Finding } else { Outcome::Done }
}

/// Puts the damage of a file into a document of it.
pub(crate) fn put(checkpoint: &Checkpoint, document: &mut Json) {
    if let Some(damage) = &checkpoint.damage {
        document["damage"] = damage.to_json(checkpoint.tensors.len());
    }
}

/// Says that a file is damaged, where it is.
pub(crate) fn say(checkpoint: &Checkpoint, output: &mut Output) -> io::Result<()> {
    let damaged: Vec<Note> = checkpoint.notes.iter().filter(|note| note.code == "damaged").cloned().collect();
    output.notes(&damaged)
}
