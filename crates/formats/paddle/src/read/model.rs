//! Program files with their parameters.

use super::super::any_program::{Form, Program};
use super::super::stream::{Stream, StreamKind, detect};
use super::super::{PARAMETERS_MISSING, PROGRAM_FILE, Paddle, VOCAB, state};
use super::beside::{Beside, Found, base_name, head, parameter_names, text};
use super::params::{open_combined, open_separate, words_value};
use super::{checkpoint, roles, state_names};
use crate::ReadOptions;
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use weighbridge_core::checkpoint::{Checkpoint, Damage, Name, Note, Value};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::phrase::Opt;
use weighbridge_core::text::counted;
use weighbridge_core::topology::{Topology, Variable};
use weighbridge_core::{ErrorCode, phrase};
use weighbridge_format::OpenOptions;
use weighbridge_io::source::SourceRef;

/// Maximum number of files of a folder that are probed for tensors outside the program.
const MAX_FILES_PROBED: usize = 64;
/// Maximum number of parameters named in a note.
const MAX_NAMES_SHOWN: usize = 5;

/// Opens a program file and its parameters.
pub(super) fn open(
    source: &SourceRef,
    beside: Option<Beside<'_>>,
    options: &OpenOptions,
) -> Result<Checkpoint> {
    if options.own::<ReadOptions>().program.is_some() {
        return Err(Error::usage("two-programs", "the input already has a program")
            .in_file(source.label())
            .hint(phrase!["omit ", Opt::Program, ", or pass the path of the parameter file"]));
    }
    let program = match Program::read(source, &options.limits) {
        Ok(program) => program,
        Err(error) if options.salvage && Damage::is(&error) => {
            return salvage_parameters(source, beside, error, options);
        }
        Err(error) => return Err(error),
    };
    let topology = Arc::new(program.topology());
    let name = base_name(source.label());
    if program.has_odd_names() {
        let mut checkpoint = program_only(source, &topology);
        checkpoint.notes.push(Note::omission(
            "names-not-utf8",
            "variable names of the program are not UTF-8: no parameters are joined",
        ));
        checkpoint.topology = Some(topology);
        return Ok(checkpoint);
    }
    let found = Found { topology: topology.clone(), file: source.clone(), name: name.clone(), sure: true };
    let mut checkpoint = match beside {
        Some(beside) => with_parameters(source, &found, beside, options)?,
        None => program_only(source, &topology),
    };
    checkpoint.metadata.set(PROGRAM_FILE, Value::Text(name));
    checkpoint.notes.extend(program.notes());
    checkpoint.files.push(source.clone());
    checkpoint.topology = Some(topology);
    if checkpoint.kind == "separate" {
        state_names::join(&mut checkpoint, beside, options)?;
    }
    source.label().clone_into(&mut checkpoint.label);
    Ok(checkpoint)
}

/// Opens the parameters of a damaged program, if a related file contains them.
fn salvage_parameters(
    source: &SourceRef,
    beside: Option<Beside<'_>>,
    error: Error,
    options: &OpenOptions,
) -> Result<Checkpoint> {
    let Some(beside) = beside else { return Err(error) };
    let Some((file, name)) = beside.first(&parameter_names(beside.file_name()))? else { return Err(error) };
    let beside = Beside { name: Path::new(&name), ..beside };
    let mut checkpoint = open_combined(&file, None, Some(beside), options)?;
    checkpoint.lose("(the program)", &error.in_file(source.label()));
    source.label().clone_into(&mut checkpoint.label);
    Ok(checkpoint)
}

/// Returns a program without parameters.
fn program_only(source: &SourceRef, topology: &Topology) -> Checkpoint {
    let kind = if topology.form == Paddle::FORM_PIR { "pir" } else { "program" };
    checkpoint(kind, source.label())
}

fn with_parameters(
    source: &SourceRef,
    found: &Found,
    beside: Beside<'_>,
    options: &OpenOptions,
) -> Result<Checkpoint> {
    let parameters = found.topology.parameters();
    if let Some((file, name)) = beside.first(&parameter_names(beside.file_name()))? {
        return combined(&file, &name, found, beside, options);
    }
    if let Some(checkpoint) = separate(&parameters, found, beside, options)? {
        return Ok(checkpoint);
    }
    if let Some(checkpoint) = training(found, beside, options)? {
        return Ok(checkpoint);
    }
    if !parameters.is_empty()
        && let Some((file, name)) = lone_parameters(&beside)?
    {
        return combined(&file, &name, found, beside, options);
    }
    let mut checkpoint = program_only(source, &found.topology);
    if !parameters.is_empty() {
        let text = format!(
            "the program has {}, but no parameter file was found",
            counted(parameters.len(), "parameter", "parameters")
        );
        checkpoint.notes.push(Note::new(PARAMETERS_MISSING, text));
    }
    Ok(checkpoint)
}

/// Opens a program with one file of all parameters.
fn combined(
    file: &SourceRef,
    name: &str,
    found: &Found,
    beside: Beside<'_>,
    options: &OpenOptions,
) -> Result<Checkpoint> {
    let beside = Beside { name: Path::new(name), ..beside };
    let mut checkpoint = open_combined(file, Some(found.clone()), Some(beside), options)?;
    checkpoint.kind = "inference";
    // The file may contain vocabularies only.
    checkpoint.files.push(file.clone());
    Ok(checkpoint)
}

/// Opens one file for each parameter, named like the parameter. `None` if there are no such files.
fn separate(
    parameters: &[&Variable],
    found: &Found,
    beside: Beside<'_>,
    options: &OpenOptions,
) -> Result<Option<Checkpoint>> {
    let mut checkpoint = checkpoint("separate", beside.folder.label());
    let mut words = Vec::new();
    let mut missing = Vec::new();
    for variable in parameters {
        let file = match beside.open(&variable.name) {
            Ok(Some(file)) => file,
            Ok(None) => {
                missing.push(variable.name.as_str());
                continue;
            }
            // A name that points outside the folder does not name a file in it.
            Err(error) if error.code() == ErrorCode::UnsafeName => {
                missing.push(variable.name.as_str());
                continue;
            }
            Err(error) => return Err(error),
        };
        let (stream, note) = match open_separate(&file, &variable.name, &variable.kind, options) {
            Err(error) if options.salvage && Damage::is(&error) => {
                checkpoint.lose(&variable.name, &error);
                continue;
            }
            read => read?,
        };
        checkpoint.notes.extend(note);
        match stream {
            Stream::Dense(dense) => checkpoint.tensors.push(dense.entry),
            Stream::Vocab(vocab) => {
                checkpoint.files.push(file);
                words.push((Name::from(variable.name.as_str()), words_value(vocab.words)));
            }
        }
    }
    if checkpoint.tensors.is_empty() && words.is_empty() {
        return Ok(None);
    }
    if !words.is_empty() {
        checkpoint.metadata.set(VOCAB, Value::Map(words));
    }
    checkpoint.notes.extend(files_not_in_program(parameters, &beside)?);
    if !missing.is_empty() {
        let shown = missing.iter().take(MAX_NAMES_SHOWN).copied().collect::<Vec<_>>().join(", ");
        let parameters =
            counted(missing.len(), "parameter of the program has", "parameters of the program have");
        let text = format!("{parameters} no file: {shown}");
        for name in missing.iter().filter(|_| options.salvage) {
            checkpoint.lose(name, &Error::corrupt(PARAMETERS_MISSING, "the parameter has no file"));
        }
        checkpoint.notes.push(Note::omission(PARAMETERS_MISSING, text));
    }
    roles::from_program(&mut checkpoint.tensors, &found.topology);
    Ok(Some(checkpoint))
}

/// Finds tensor files whose names are not parameters of the program.
fn files_not_in_program(parameters: &[&Variable], beside: &Beside<'_>) -> Result<Option<Note>> {
    let own: HashSet<&str> = parameters.iter().map(|v| v.name.as_str()).collect();
    let at = beside.name.parent().unwrap_or(Path::new(""));
    let mut found = Vec::new();
    for item in beside.folder.list(1)?.into_iter().take(MAX_FILES_PROBED.saturating_add(own.len())) {
        let Ok(name) = item.name.strip_prefix(at) else { continue };
        if own.contains(text(name)) || item.name == beside.name {
            continue;
        }
        let Some(source) = beside.folder.open(&item.name)? else { continue };
        let kind = detect(&source, &weighbridge_core::limits::Limits::default());
        if matches!(kind, Some(StreamKind::Dense | StreamKind::SelectedRows)) {
            found.push(weighbridge_core::text::escape(&name.to_string_lossy()));
        }
    }
    Ok((!found.is_empty()).then(|| {
        let shown = found.iter().take(MAX_NAMES_SHOWN).cloned().collect::<Vec<_>>().join(", ");
        let files = counted(found.len(), "tensor file is", "tensor files are");
        let text = format!("{files} not in the program and skipped: {shown}");
        Note::new("files-not-in-program", text)
    }))
}

/// Opens `x.pdparams` and `x.pdopt` next to `x.pdmodel` or `x.json`, as `static.save` writes them.
fn training(found: &Found, beside: Beside<'_>, options: &OpenOptions) -> Result<Option<Checkpoint>> {
    let name = beside.file_name();
    let Some(stem) = [".pdmodel", ".json"].iter().find_map(|end| name.strip_suffix(end)) else {
        return Ok(None);
    };
    let mut joined: Option<Checkpoint> = None;
    for end in [".pdparams", ".pdopt"] {
        let Some(file) = beside.open(&format!("{stem}{end}"))? else { continue };
        let part = state::read(&file, options)?;
        joined = Some(match joined {
            None => part,
            Some(whole) => super::merge_states(whole, part),
        });
    }
    if let Some(checkpoint) = &mut joined {
        checkpoint.kind = "training";
        checkpoint.origin = None;
        checkpoint.attach_state();
        roles::from_program(&mut checkpoint.tensors, &found.topology);
    }
    Ok(joined)
}

/// Returns the only other file of the folder that contains several streams.
fn lone_parameters(beside: &Beside<'_>) -> Result<Option<(SourceRef, String)>> {
    let folder = beside.folder;
    let mut found = Vec::new();
    for item in beside.others()? {
        let Some(source) = folder.open(&item.name)? else { continue };
        let streams = Form::of(&head(&source)?, source.len()).is_none()
            && matches!(
                detect(&source, &weighbridge_core::limits::Limits::default()),
                Some(StreamKind::Combined | StreamKind::Vocab | StreamKind::VocabCombined)
            );
        if streams {
            found.push((source, text(&item.name).to_owned()));
        }
    }
    Ok(if found.len() == 1 { found.pop() } else { None })
}
