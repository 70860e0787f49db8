//! Write plans for checkpoints. The same checkpoint always leads to the same bytes.

mod model;
mod names;
mod streams;
mod variables;

use super::any_program::Program;
use super::{Kind, Paddle, state};
use std::collections::HashSet;
use std::sync::Arc;
use weighbridge_core::checkpoint::{Checkpoint, Loss, Note, Role, TensorEntry, escape_text};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::phrase;
use weighbridge_core::phrase::Opt;
use weighbridge_core::plan::{FileBuilder, PlannedFile, WritePlan};
use weighbridge_core::topology::Topology;
use weighbridge_format::PlanOptions;

/// Lays out `checkpoint` as the requested kind, else its original kind, else a suitable one.
pub(super) fn plan(checkpoint: &Checkpoint, options: &PlanOptions) -> Result<WritePlan> {
    checkpoint.check_unique()?;
    let kind = kind(checkpoint, options)?;
    if kind == Kind::State {
        return state::plan(checkpoint, options);
    }
    let mut losses = Vec::new();
    losses.extend(checkpoint.left_out().map(Note::loss));
    let program = edited_program(checkpoint)?;
    let topology = program.as_ref().map(|(_, topology)| &**topology);
    let files = match kind {
        Kind::Tensor => vec![streams::one(checkpoint, options, &mut losses)?],
        Kind::SelectedRows => vec![streams::rows(checkpoint, &mut losses)?],
        Kind::Vocab => vec![streams::words(checkpoint, topology)?],
        Kind::Combined => {
            model::names_are_lost(checkpoint, &mut losses);
            vec![streams::combined("", checkpoint, topology, options, &mut losses)?]
        }
        Kind::Program | Kind::Pir => {
            let (program, topology) = needed(program.as_ref(), checkpoint)?;
            let wanted = if kind == Kind::Pir { Paddle::FORM_PIR } else { Paddle::FORM_DESC };
            if topology.form != wanted {
                return Err(model::wrong_form(topology.form, wanted));
            }
            let none = |tensor: &TensorEntry| {
                Loss::new("tensors", tensor.name(), "dropped: a program file has no tensors")
            };
            losses.extend(checkpoint.tensors.iter().map(none));
            vec![literal("", program.to_bytes())]
        }
        Kind::Separate => model::separate(checkpoint, program.as_ref(), options, &mut losses)?,
        Kind::Inference => {
            let program = needed(program.as_ref(), checkpoint)?;
            model::inference(checkpoint, program, options, &mut losses)?
        }
        Kind::Training => {
            let program = needed(program.as_ref(), checkpoint)?;
            model::training(checkpoint, program, options, &mut losses)?
        }
        Kind::State => Vec::new(),
    };
    let more = without_place(checkpoint, &losses);
    losses.extend(more);
    Ok(WritePlan { format: "paddle", kind: kind.word(), files, losses })
}

/// Returns the losses of what only a state dict can hold: metadata of other formats, and the roles of their optimizer state.
/// Tensors that are lost themselves are not listed again.
fn without_place(checkpoint: &Checkpoint, losses: &[Loss]) -> Vec<Loss> {
    if checkpoint.format == "paddle" {
        return Vec::new();
    }
    let lost: HashSet<&str> =
        losses.iter().filter(|loss| loss.is_tensor()).map(|loss| loss.subject.as_str()).collect();
    let keys = checkpoint.metadata.iter().map(|(key, _)| key).filter(|key| !key.starts_with(state::RESERVED));
    let detail = "metadata dropped: this kind has no place for it";
    let mut more: Vec<Loss> =
        keys.map(|key| Loss::new("metadata-dropped", escape_text(key), detail)).collect();
    let state = checkpoint.tensors.iter().filter(|tensor| matches!(tensor.role, Role::OptimizerPart { .. }));
    let detail = "this kind stores no roles: optimizer state is read as a parameter";
    let read = state.map(TensorEntry::name).filter(|name| !lost.contains(name.as_str()));
    more.extend(read.map(|name| Loss::new("read-as-parameter", name, detail)));
    more
}

/// Returns the kind to write.
fn kind(checkpoint: &Checkpoint, options: &PlanOptions) -> Result<Kind> {
    if let Some(word) = &options.kind {
        return Kind::from_word(word).ok_or_else(|| {
            let words: Vec<_> = Kind::ALL.iter().map(|k| k.word()).collect();
            Error::usage("unknown-kind", "unknown kind of Paddle file").expected(words.join(", ")).found(word)
        });
    }
    let origin = checkpoint.origin.as_ref().filter(|o| o.format == "paddle");
    let had = origin.and_then(|o| Kind::from_word(&o.kind));
    let needs_program =
        |kind: Kind| matches!(kind, Kind::Inference | Kind::Training | Kind::Program | Kind::Pir);
    match had {
        Some(kind) if !needs_program(kind) || checkpoint.topology.is_some() => Ok(kind),
        _ if checkpoint.topology.is_some() => Ok(Kind::Inference),
        // The only kind that keeps the names without a program.
        _ => Ok(Kind::State),
    }
}

/// Program and its topology, after renames.
type Edited = (Program, Arc<Topology>);

/// Returns the program of a checkpoint with its variables renamed like its tensors.
fn edited_program(checkpoint: &Checkpoint) -> Result<Option<Edited>> {
    let Some(topology) = &checkpoint.topology else { return Ok(None) };
    let mut program = Program::of(topology)?;
    let mut renames = variables::renames(checkpoint);
    if renames.is_empty() {
        return Ok(Some((program, topology.clone())));
    }
    // A parameter whose tensor keeps its name is not renamed: `w@scale` next to a renamed `w`.
    for variable in topology.parameters().into_iter().filter(|variable| variable.name.contains('@')) {
        renames.entry(variable.name.clone()).or_insert_with(|| variable.name.clone());
    }
    program.rename(&renames)?;
    let topology = Arc::new(program.topology());
    Ok(Some((program, topology)))
}

fn needed<'a>(program: Option<&'a Edited>, checkpoint: &Checkpoint) -> Result<&'a Edited> {
    program.ok_or_else(|| {
        Error::mismatch("no-program", "this kind of model needs a program, and the model has none")
            .in_file(&checkpoint.label)
            .hint(phrase![
                "give the program with ",
                Opt::Program.any("FILE"),
                ", or write the parameters alone with ",
                Opt::Kind.with("combined"),
                " or ",
                Opt::Kind.with("state")
            ])
    })
}

fn literal(name: &str, bytes: Vec<u8>) -> PlannedFile {
    let mut file = FileBuilder::new(name);
    file.literal(bytes);
    file.finish()
}
