//! Tensor stream files: single tensors, combined parameters, vocabularies.

use super::super::stream::unshipped::{design_note, size_prefixed};
use super::super::stream::{Kind, Stream, StreamKind, Wanted, combined, dense, detect, selected_rows, vocab};
use super::super::{PARAMETERS_FILE, PROGRAM_FILE, VOCAB};
use super::beside::{Beside, Found, base_name, find_program, head};
use super::join::{fits, name_in_order, path_of};
use super::{checkpoint, info, state_names};
use std::cell::{OnceCell, RefCell};
use weighbridge_core::checkpoint::{
    Checkpoint, Damage, Metadata, Name, Note, TensorEntry, TensorPath, Value,
};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::phrase;
use weighbridge_core::phrase::Opt;
use weighbridge_core::topology::{Topology, Variable, VariableKind};
use weighbridge_format::{OpenOptions, unknown};
use weighbridge_io::source::{Cursor, SourceRef};

/// Opens a stream file together with the program that names its tensors.
pub(super) fn open(
    source: &SourceRef,
    beside: Option<Beside<'_>>,
    options: &OpenOptions,
) -> Result<Checkpoint> {
    let limits = &options.limits;
    let kind = detect(source, limits).ok_or_else(|| unknown(source))?;
    // Read once, regardless of the number of programs in the folder. An unreadable file fits no program, so no
    // search takes place.
    let tensors: OnceCell<Option<Vec<TensorEntry>>> = OnceCell::new();
    let tensors = || tensors.get_or_init(|| without_program(source, kind, limits)).as_deref();
    let readable = || kind != StreamKind::Combined || tensors().is_some();
    let tried = RefCell::default();
    let fits = |topology: &Topology| match kind {
        StreamKind::Vocab | StreamKind::VocabCombined => holds_words(source, topology, limits, &tried),
        _ => tensors().is_some_and(|tensors| fits(tensors, topology)),
    };
    let program = || find_program(beside, options, readable, fits);
    match kind {
        StreamKind::SelectedRows => {
            let mut cursor = Cursor::new(source.clone(), 0);
            let entry = selected_rows::read(&mut cursor, &file_path(source), limits)?.entry;
            let mut checkpoint = single(source, "selected-rows", entry);
            checkpoint.notes.extend(trailing_bytes(&cursor, options)?);
            Ok(checkpoint)
        }
        StreamKind::DesignNote => {
            let entry = design_note::read_file(source, &file_path(source), limits)?.entry;
            let mut checkpoint = single(source, "tensor", entry);
            checkpoint.notes.push(Note::new(
                "design-note",
                "the file uses the layout of the design note (LoD after the data); no released Paddle reads it",
            ));
            Ok(checkpoint)
        }
        StreamKind::Dense => match program()? {
            Some(found) if is_combined(source, &found) => open_combined(source, Some(found), beside, options),
            None if named_combined(source) => open_combined(source, None, beside, options),
            _ => {
                let mut cursor = Cursor::new(source.clone(), 0);
                let entry = dense::read(&mut cursor, &file_path(source), limits)?.entry;
                let mut checkpoint = single(source, "tensor", entry);
                checkpoint.notes.extend(trailing_bytes(&cursor, options)?);
                Ok(checkpoint)
            }
        },
        StreamKind::Combined | StreamKind::Vocab | StreamKind::VocabCombined | StreamKind::SizePrefixed => {
            open_combined(source, program()?, beside, options)
        }
    }
}

/// True if a single-tensor file is a combined file: it has a program and is not named after the
/// variable. A file named after its variable is one of many.
fn is_combined(source: &SourceRef, found: &Found) -> bool {
    let name = base_name(source.label());
    !found.topology.parameters().iter().any(|v| v.name == name)
}

/// True for names of combined files. A single tensor in such a file may be the remainder of many.
fn named_combined(source: &SourceRef) -> bool {
    let name = base_name(source.label());
    name.ends_with(".pdiparams") || matches!(name.as_str(), "__params__" | "params")
}

/// Opens a combined file, and names its tensors after the parameters of the program.
pub(super) fn open_combined(
    source: &SourceRef,
    program: Option<Found>,
    beside: Option<Beside<'_>>,
    options: &OpenOptions,
) -> Result<Checkpoint> {
    let mut checkpoint = checkpoint("combined", source.label());
    let streams = if detect(source, &options.limits) == Some(StreamKind::SizePrefixed) {
        checkpoint.notes.push(Note::new(
            "size-prefixed",
            "each tensor is prefixed with its size, as in a design note; no released Paddle reads this",
        ));
        size_prefixed::read_all(source, &options.limits)?.into_iter().map(Stream::Dense).collect()
    } else {
        let topology = program.as_ref().map(|found| &*found.topology);
        match streams(source, topology, &options.limits) {
            Err(error) if options.salvage && Damage::is(&error) && encrypted(source)?.is_none() => {
                super::salvage::streams(source, topology, &error, &mut checkpoint, options)
            }
            Err(error) => return Err(encrypted(source)?.unwrap_or(error)),
            Ok(read) => read,
        }
    };
    let mut words = Metadata::default();
    let vocabs = program.as_ref().map(|found| vocab_names(&found.topology)).unwrap_or_default();
    let mut vocabs = vocabs.into_iter();
    for stream in streams {
        match stream {
            Stream::Dense(dense) => checkpoint.tensors.push(dense.entry),
            Stream::Vocab(vocab) => {
                let name = vocabs.next().unwrap_or_else(|| format!("#{}", words.iter().count()));
                words.set(name, words_value(vocab.words));
            }
        }
    }
    if words.iter().next().is_some() {
        if checkpoint.tensors.is_empty() {
            checkpoint.kind = "vocab";
        }
        let words = words.iter().map(|(name, value)| (Name::from(name), value.clone())).collect();
        checkpoint.metadata.set(VOCAB, Value::Map(words));
    }
    checkpoint.metadata.set(PARAMETERS_FILE, Value::Text(base_name(source.label())));
    join(&mut checkpoint, program, beside, options)?;
    Ok(checkpoint)
}

/// Returns an error if the file appears to be encrypted.
fn encrypted(source: &SourceRef) -> Result<Option<Error>> {
    Ok(unknown::encrypted(&head(source)?, source, "Paddle tensor file"))
}

/// Reads the streams of a combined file. The vocabularies that the program declares are used if they fit.
/// A file that does not match its program is still read, so that it can be listed and checked.
fn streams(source: &SourceRef, program: Option<&Topology>, limits: &Limits) -> Result<Vec<Stream>> {
    if let Some(topology) = program
        && topology.parameters().iter().any(|v| v.kind == VariableKind::Vocab)
    {
        return combined::read_with(source, &wanted(topology), limits);
    }
    let error = match combined::read_all(source, limits) {
        Ok(all) => return Ok(all.into_iter().map(Stream::Dense).collect()),
        Err(error) => error,
    };
    // Vocabularies among the tensors, without a program that locates them.
    match combined::kinds(source, limits) {
        Some(kinds) if kinds.contains(&Kind::Vocab) => {
            let wanted = |kind| Wanted { path: TensorPath::value(), kind };
            combined::read_with(source, &kinds.into_iter().map(wanted).collect::<Vec<_>>(), limits)
        }
        _ => Err(match program {
            Some(topology) => with_program_details(error, source, topology, limits),
            None => error,
        }),
    }
}

/// Returns the same error with the details that the program adds: the tensor's name and the missing tensors.
/// If a program that does not fit leads to a different error, the original is returned.
fn with_program_details(error: Error, source: &SourceRef, topology: &Topology, limits: &Limits) -> Error {
    match combined::read_with(source, &wanted(topology), limits) {
        Err(detailed) if (detailed.code(), detailed.offset()) == (error.code(), error.offset()) => detailed,
        _ => error,
    }
}

pub(super) fn wanted(topology: &Topology) -> Vec<Wanted> {
    let kind = |v: &Variable| if v.kind == VariableKind::Vocab { Kind::Vocab } else { Kind::Dense };
    topology.parameters().iter().map(|v| Wanted { path: path_of(&v.name), kind: kind(v) }).collect()
}

fn vocab_names(topology: &Topology) -> Vec<String> {
    let vocabs = topology.parameters().into_iter().filter(|v| v.kind == VariableKind::Vocab);
    vocabs.map(|v| v.name.clone()).collect()
}

/// Adds names, program and structured names to the tensors of a combined file.
fn join(
    checkpoint: &mut Checkpoint,
    program: Option<Found>,
    beside: Option<Beside<'_>>,
    options: &OpenOptions,
) -> Result<()> {
    let notes = match &program {
        Some(found) => {
            let why = if found.sure { "" } else { " (the only matching one in the folder)" };
            name_in_order(&mut checkpoint.tensors, Some(&found.topology), &format!("{}{why}", found.name))
        }
        None if checkpoint.tensors.is_empty() => Vec::new(),
        None => {
            let label = base_name(&checkpoint.label);
            name_in_order(&mut checkpoint.tensors, None, &label)
        }
    };
    checkpoint.notes.extend(notes);
    if let Some(found) = program {
        checkpoint.files.push(found.file);
        checkpoint.metadata.set(PROGRAM_FILE, Value::Text(found.name));
        super::roles::from_program(&mut checkpoint.tensors, &found.topology);
        checkpoint.topology = Some(found.topology);
    }
    info::join(checkpoint, beside, options)?;
    state_names::join(checkpoint, beside, options)
}

/// Reads the tensors of a combined file that can be read without a program.
fn without_program(source: &SourceRef, kind: StreamKind, limits: &Limits) -> Option<Vec<TensorEntry>> {
    let all = match kind {
        StreamKind::Combined | StreamKind::Dense => combined::read_all(source, limits),
        StreamKind::SizePrefixed => size_prefixed::read_all(source, limits),
        _ => return None,
    };
    Some(all.ok()?.into_iter().map(|dense| dense.entry).collect())
}

/// Maximum number of vocabulary and tensor sequences tried in the search for a program.
const MAX_SEQUENCES_TRIED: usize = 8;

/// True if a file with vocabularies has exactly the streams that the program declares. `tried` caches the result
/// for each sequence of vocabularies and tensors.
fn holds_words(
    source: &SourceRef,
    topology: &Topology,
    limits: &Limits,
    tried: &RefCell<Vec<(Vec<Kind>, bool)>>,
) -> bool {
    let wanted = wanted(topology);
    let kinds: Vec<Kind> = wanted.iter().map(|wanted| wanted.kind).collect();
    let mut tried = tried.borrow_mut();
    if let Some((_, holds)) = tried.iter().find(|(other, _)| *other == kinds) {
        return *holds;
    }
    let holds = tried.len() < MAX_SEQUENCES_TRIED && combined::read_with(source, &wanted, limits).is_ok();
    if tried.len() < MAX_SEQUENCES_TRIED {
        tried.push((kinds, holds));
    }
    holds
}

/// Reads the stream of a variable that has a separate file, with a note on trailing bytes.
pub(super) fn open_separate(
    source: &SourceRef,
    variable: &str,
    kind: &VariableKind,
    options: &OpenOptions,
) -> Result<(Stream, Option<Note>)> {
    let limits = &options.limits;
    let path = path_of(variable);
    let mut cursor = Cursor::new(source.clone(), 0);
    let stream = match kind {
        VariableKind::Vocab => Stream::Vocab(vocab::read(&mut cursor, limits)?),
        VariableKind::SelectedRows => Stream::Dense(selected_rows::read(&mut cursor, &path, limits)?),
        _ => Stream::Dense(dense::read(&mut cursor, &path, limits)?),
    };
    let note = trailing_bytes(&cursor, options)?;
    Ok((stream, note))
}

/// Returns a vocabulary as metadata: pairs of word and number in file order.
pub(super) fn words_value(words: Vec<(Name, i32)>) -> Value {
    Value::Map(words.into_iter().map(|(word, number)| (word, Value::I64(number.into()))).collect())
}

/// Checks for bytes after the stream of a single-tensor file. Paddle ignores them; here they are an error,
/// or a note in lenient mode.
fn trailing_bytes(cursor: &Cursor, options: &OpenOptions) -> Result<Option<Note>> {
    let rest = cursor.remaining();
    if rest == 0 {
        return Ok(None);
    }
    if options.lenient {
        let text = format!("{rest} bytes after the tensor were ignored, as in Paddle");
        return Ok(Some(Note::omission("trailing-bytes", text)));
    }
    Err(Error::corrupt("trailing-bytes", "the file has trailing bytes after its tensor")
        .in_file(cursor.source().label())
        .at(cursor.position())
        .expected("the end of the file")
        .found(format_args!("{rest} more bytes"))
        .hint(phrase!["use ", Opt::Lenient, " to ignore them, as Paddle does"]))
}

fn single(source: &SourceRef, kind: &'static str, entry: TensorEntry) -> Checkpoint {
    let mut checkpoint = checkpoint(kind, source.label());
    checkpoint.tensors.push(entry);
    checkpoint
}

/// Returns the path of a single tensor: the name of its file.
fn file_path(source: &SourceRef) -> TensorPath {
    path_of(&base_name(source.label()))
}

fn unknown(source: &SourceRef) -> Error {
    Error::unsupported("not-a-stream", "the file is not a Paddle tensor stream")
        .in_file(source.label())
        .at(0)
        .hint(
            "the file may be encrypted: Paddle can encrypt whole files with AES and leaves no marker; decrypt it with Paddle first",
        )
}
