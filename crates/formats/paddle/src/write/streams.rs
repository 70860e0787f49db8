//! Tensor stream files.

use super::super::stream::combined::{Item, layout_with};
use super::super::stream::unshipped::{design_note, size_prefixed};
use super::super::stream::{combined, dense, selected_rows};
use super::super::{VOCAB, stream};
use super::variables::{self, Stored};
use std::collections::HashSet;
use weighbridge_core::checkpoint::{Checkpoint, Loss, Name, TensorEntry, Value};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::phrase;
use weighbridge_core::phrase::Opt;
use weighbridge_core::plan::{FileBuilder, PlannedFile};
use weighbridge_core::topology::{Topology, VariableKind};
use weighbridge_format::PlanOptions;

/// Stream form to write.
enum Form {
    Real,
    DesignNote,
    SizePrefixed,
}

impl Form {
    fn of(options: &PlanOptions, losses: &mut Vec<Loss>) -> Result<Self> {
        let form = match options.setting("stream") {
            None | Some("paddle") => return Ok(Self::Real),
            Some("design-note") => Self::DesignNote,
            Some("size-prefixed") => Self::SizePrefixed,
            Some(other) => {
                return Err(Error::usage("unknown-stream", "unknown stream form")
                    .expected("paddle, design-note or size-prefixed")
                    .found(other));
            }
        };
        losses.push(Loss::new(
            "paddle-cannot-read",
            "the file",
            "the stream forms of the design notes are not readable by any released Paddle",
        ));
        Ok(form)
    }
}

/// Plans one dense tensor.
pub(super) fn one(
    checkpoint: &Checkpoint,
    options: &PlanOptions,
    losses: &mut Vec<Loss>,
) -> Result<PlannedFile> {
    let entry = lone(checkpoint)?;
    rows_are_lost(entry, losses);
    let mut file = FileBuilder::new("");
    match Form::of(options, losses)? {
        Form::Real => dense::write(&mut file, entry)?,
        Form::DesignNote => design_note::write(&mut file, entry)?,
        Form::SizePrefixed => size_prefixed::write(&mut file, [entry])?,
    }
    Ok(file.finish())
}

/// Plans one tensor of selected rows.
pub(super) fn rows(checkpoint: &Checkpoint, losses: &mut Vec<Loss>) -> Result<PlannedFile> {
    let entry = lone(checkpoint)?;
    if entry.attributes.contains_key(stream::lod::LOD) {
        losses.push(Loss::new("lod", entry.name(), "LoD dropped: selected rows have none"));
    }
    let mut file = FileBuilder::new("");
    selected_rows::write(&mut file, entry)?;
    Ok(file.finish())
}

fn lone(checkpoint: &Checkpoint) -> Result<&TensorEntry> {
    match checkpoint.tensors.as_slice() {
        [entry] => Ok(entry),
        all => Err(Error::mismatch("not-one-tensor", "this kind of file holds one tensor")
            .found(format_args!("{} tensors", all.len()))
            .hint(phrase![
                "use ",
                Opt::Select,
                " to pick one, or write many with ",
                Opt::Kind.with("combined"),
                " or ",
                Opt::Kind.with("state")
            ])),
    }
}

/// Plans a file of vocabularies only.
pub(super) fn words(checkpoint: &Checkpoint, topology: Option<&Topology>) -> Result<PlannedFile> {
    if let Some(entry) = checkpoint.tensors.first() {
        return Err(
            Error::mismatch("not-words", "a vocabulary file cannot contain tensors").on_tensor(entry.name())
        );
    }
    let vocabularies = vocabularies(checkpoint)?;
    if vocabularies.is_empty() {
        return Err(Error::mismatch("no-words", "the model has no vocabulary to write")
            .expected(format_args!("the metadata `{VOCAB}`: named maps from words to numbers")));
    }
    let mut file = FileBuilder::new("");
    let sorted = sorted_vocabularies(&vocabularies, topology);
    layout_with(&mut file, sorted.iter().map(|words| Item::Vocab(words)))?;
    Ok(file.finish())
}

/// Plans all tensors in one file `name`.
pub(super) fn combined(
    name: &str,
    checkpoint: &Checkpoint,
    topology: Option<&Topology>,
    options: &PlanOptions,
    losses: &mut Vec<Loss>,
) -> Result<PlannedFile> {
    let stored = variables::in_file_order(checkpoint, topology, false, losses)?;
    if topology.is_none() && !stored.iter().all(|s| s.entry.guessed) && name.is_empty() {
        losses.push(Loss::new(
            "names",
            "all tensors",
            "names dropped: a .pdiparams file (kind combined) stores tensors without names, in the order of a program",
        ));
    }
    for Stored { entry, .. } in &stored {
        rows_are_lost(entry, losses);
    }
    let mut file = FileBuilder::new(name);
    let entries = || stored.iter().map(|s| s.entry);
    let vocabularies = vocabularies(checkpoint)?;
    match Form::of(options, losses)? {
        Form::SizePrefixed => size_prefixed::write(&mut file, entries())?,
        Form::DesignNote => {
            return Err(Error::mismatch(
                "one-stream",
                "the stream form `design-note` allows one tensor per file",
            )
            .hint(phrase![
                "use ",
                Opt::Kind.with("tensor"),
                ", or ",
                Opt::Set.pair("stream", "size-prefixed"),
                " for several tensors in one file"
            ]));
        }
        Form::Real if vocabularies.is_empty() => combined::layout(&mut file, entries())?,
        Form::Real => {
            layout_with(&mut file, interleaved(&stored, &vocabularies, topology))?;
        }
    }
    Ok(file.finish())
}

/// Words with their numbers.
type Words = Vec<(Name, i32)>;

/// Returns the vocabularies of a checkpoint by name.
pub(super) fn vocabularies(checkpoint: &Checkpoint) -> Result<Vec<(String, Words)>> {
    let bad = || {
        Error::mismatch(
            "not-words",
            "the vocabularies in the metadata are not maps from words to 32-bit numbers",
        )
    };
    let Some(value) = checkpoint.metadata.get(VOCAB) else { return Ok(Vec::new()) };
    let Value::Map(all) = value else { return Err(bad()) };
    let words = |value: &Value| {
        let Value::Map(pairs) = value else { return None };
        let pair = |(word, number): &(Name, Value)| match number {
            Value::I64(n) => Some((word.clone(), i32::try_from(*n).ok()?)),
            _ => None,
        };
        pairs.iter().map(pair).collect::<Option<Words>>()
    };
    all.iter().map(|(name, value)| Ok((name.to_text(), words(value).ok_or_else(bad)?))).collect()
}

fn sorted_vocabularies<'a>(all: &'a [(String, Words)], topology: Option<&Topology>) -> Vec<&'a Words> {
    let mut all: Vec<_> = all.iter().collect();
    // Numbered vocabularies keep their file order.
    if topology.is_some() || !all.iter().all(|(name, _)| name.starts_with('#')) {
        all.sort_by(|a, b| a.0.as_bytes().cmp(b.0.as_bytes()));
    }
    all.into_iter().map(|(_, words)| words).collect()
}

/// Merges tensors and vocabularies in the order of their names.
fn interleaved<'a>(
    stored: &'a [Stored<'a>],
    vocabularies: &'a [(String, Words)],
    topology: Option<&Topology>,
) -> Vec<Item<'a>> {
    let declared: Option<HashSet<&str>> = topology.map(|t| {
        let vocabs = t.parameters().into_iter().filter(|v| v.kind == VariableKind::Vocab);
        vocabs.map(|v| v.name.as_str()).collect()
    });
    let known = |name: &str| declared.as_ref().is_none_or(|all| all.contains(name));
    let mut items: Vec<(&str, Item<'_>)> =
        stored.iter().map(|s| (s.name.as_str(), Item::Dense(s.entry))).collect();
    let words = vocabularies.iter().filter(|(name, _)| known(name));
    items.extend(words.map(|(name, words)| (name.as_str(), Item::Vocab(words))));
    items.sort_by(|a, b| a.0.as_bytes().cmp(b.0.as_bytes()));
    items.into_iter().map(|(_, item)| item).collect()
}

/// Reports the loss of row indices: a dense stream does not store them.
pub(super) fn rows_are_lost(entry: &TensorEntry, losses: &mut Vec<Loss>) {
    if entry.attributes.contains_key(selected_rows::ROWS) {
        losses.push(Loss::new(
            "rows",
            entry.name(),
            "row indices dropped: a dense tensor does not store them",
        ));
    }
}
