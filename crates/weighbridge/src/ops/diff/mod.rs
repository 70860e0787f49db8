//! Two checkpoints of any two formats: what one has and the other has not, and how far the values that both
//! have are apart.
//!
//! Tensors are paired by name, and where names say nothing, by content: a rename is one difference and
//! not two. Forms, files and the order of tensors are no difference; types, shapes, roles, values, names of
//! rows, metadata and programs are. Both sides are read in blocks, in the order of the left one, so memory is
//! bounded whatever the size of the tensors, and the result does not depend on the number of threads.

mod brief;
mod containers;
mod left_out;
mod loops;
mod markdown;
mod pairs;
mod program;
mod ties;
mod values;

pub use pairs::Found;
pub use program::{ProgramChange, ProgramDiff, program};
pub use values::{Tolerance, Values};

use super::Changes;
use super::edit::{Rule, apply};
use crate::checkpoint::{Checkpoint, Lost, Metadata, Note, Selection, TensorEntry, TransformReport};
use crate::engine::{RunOptions, check_memory};
use crate::error::{Error, Result};
use crate::finding::Finding;
use crate::formats::{OpenOptions, open_with, registry};
use crate::json::{Rows, rows, tree};
use crate::phrase::Phrase;
use crate::text::first_and_more;
use serde::Serialize;
use serde_json::{Value as Json, json};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use weighbridge_core::{NoteCode, phrase};

/// What [`diff`] shall do.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct DiffOptions {
    /// How to open the left side.
    pub left: OpenOptions,
    /// How to open the right side.
    pub right: OpenOptions,
    /// Patterns of tensors to look at; all if empty. They are held against names after any rename; of a pair
    /// either name may match.
    pub select: Vec<String>,
    /// Patterns of tensors to leave out; as for `select`.
    pub drop: Vec<String>,
    /// Leave out optimizer state.
    pub no_state: bool,
    /// Rules of the [grammar of edits](super::edit) for the left side, before all renames and before tensors are
    /// paired.
    pub rules: Vec<Rule>,
    /// Go on where one of `rules`, `rename` or `rename_regex` fits nothing, and note it.
    pub lenient_rules: bool,
    /// Rules `OLD=NEW` for names on the left, before tensors are paired.
    pub rename: Vec<String>,
    /// Rules `REGEX=NEW` for names on the left, as of an [edit](super::edit), after those of `rename`.
    pub rename_regex: Vec<String>,
    /// Take a type that differs for no difference: values count, and are compared as numbers anyway.
    pub ignore_dtype: bool,
    /// What counts as the same value. Without one, every bit counts.
    pub tolerance: Option<Tolerance>,
    /// Compare names, types and shapes only; no tensor is read.
    pub names_only: bool,
    /// Leave out metadata.
    pub no_metadata: bool,
    /// Compare metadata that few files have a place for, too: the versions of modules of PyTorch, where the form of one
    /// side has none; `stop_gradient` and `trainable` of Paddle.
    pub metadata: bool,
    /// Threads; 0 for one a processor. Fewer run where `memory` is not enough for all of them.
    pub threads: usize,
    /// Memory for buffers, in bytes, at least [`MIN_MEMORY`](crate::engine::MIN_MEMORY); 256 MiB where `None`.
    pub memory: Option<u64>,
}

/// Something of a tensor, or of the metadata, that is not the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// What it is: `dtype`, `shape`, `role`, `row-names`, `attribute NAME`, or a key of the metadata with those
    /// below it: `attributes/iteration/epoch_idx`. Among the metadata also `structure NAME`, and `structure` of the whole:
    /// what tensors and values stand in there, a list, a tuple or a dict.
    pub what: String,
    /// On the left; `None` where it is not there.
    pub left: Option<String>,
    /// On the right; `None` where it is not there.
    pub right: Option<String>,
}

impl Change {
    fn to_json(&self) -> Json {
        json!({ "what": self.what, "left": self.left, "right": self.right })
    }
}

/// How much a difference weighs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Status {
    /// Shapes are the same, but one of the two cannot be read, because of damage or a limit: nobody knows the values.
    Unread,
    /// Shapes are different, so that values cannot be compared.
    Shape,
    /// Values are different, further than the tolerance.
    Values,
    /// Values are near enough; their type, role or names of rows is different.
    Form,
    /// All is the same but the name.
    Renamed,
    /// Bits are different, but no value is further than the tolerance.
    Close,
    /// The same, or not different as far as was looked.
    Same,
}

impl Status {
    /// The word in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unread => "unread",
            Self::Shape => "shape",
            Self::Values => "values",
            Self::Form => "form",
            Self::Renamed => "renamed",
            Self::Close => "close",
            Self::Same => "same",
        }
    }
}

/// Two tensors that belong together.
#[derive(Debug, Clone, PartialEq)]
pub struct Pair {
    /// The displayed name on the left, not escaped.
    pub left: Arc<str>,
    /// The displayed name on the right, not escaped.
    pub right: Arc<str>,
    /// How they found each other.
    pub found: Found,
    /// What it comes to.
    pub status: Status,
    /// What is different besides the values.
    pub changes: Vec<Change>,
    /// How far the values are apart; `None` where shapes differ or values were not looked at.
    pub values: Option<Arc<Values>>,
    /// Why they could not be compared, with the side's file and the place; `None` where they were.
    pub unread: Option<Box<Finding>>,
}

impl Pair {
    fn to_json(&self) -> Json {
        json!({
            "left": &*self.left, "right": &*self.right, "found": self.found.as_str(), "status": self.status.as_str(),
            "changes": self.changes.iter().map(Change::to_json).collect::<Json>(),
            "values": self.values.as_deref().map(Values::to_json),
            "unread": self.unread.as_deref().map(Finding::to_json),
        })
    }
}

/// A tensor that one side has alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alone {
    /// The displayed name, not escaped.
    pub name: String,
    /// Its type.
    pub dtype: String,
    /// Its shape.
    pub shape: Vec<u64>,
}

impl Alone {
    fn new(entry: &TensorEntry) -> Self {
        Self { name: entry.text(), dtype: entry.dtype().to_string(), shape: entry.shape.dims().to_vec() }
    }
    fn to_json(&self) -> Json {
        json!({ "name": self.name, "dtype": self.dtype, "shape": self.shape })
    }
}

/// What [`diff`] found.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct DiffReport {
    /// The path, format and kind of the left side.
    pub left: [String; 3],
    /// The path, format and kind of the right side.
    pub right: [String; 3],
    /// Tensors that both have: what weighs most first, of values the largest share of distance first.
    pub pairs: Vec<Pair>,
    /// Tensors that the left side has alone.
    pub left_alone: Vec<Alone>,
    /// Tensors that the right side has alone.
    pub right_alone: Vec<Alone>,
    /// Differences of the metadata, and of what tensors and values stand in.
    pub metadata: Vec<Change>,
    /// Differences of the programs.
    pub program: ProgramDiff,
    /// What was not compared, or is no difference and good to know, as a sentence each.
    pub notes: Vec<Phrase>,
    /// Parts of either side, damage among them, that were not read, and where something could differ all the same.
    pub left_out: usize,
    /// False where names, types and shapes alone were compared.
    pub values_compared: bool,
}

/// The document of a report.
#[derive(Serialize)]
struct Document<'a, Pairs, Left, Right, Metadata, Program> {
    left: Json,
    right: Json,
    same: bool,
    different: bool,
    unread: usize,
    left_out: usize,
    values_compared: bool,
    equal: usize,
    pairs: Pairs,
    left_alone: Left,
    right_alone: Right,
    metadata: Metadata,
    program: Program,
    program_more: usize,
    notes: &'a [Phrase],
}

/// The document of a report, and its Markdown.
#[derive(Serialize)]
struct WithMarkdown<Report: Serialize> {
    #[serde(flatten)]
    report: Report,
    #[serde(skip_serializing_if = "Option::is_none")]
    markdown: Option<String>,
}

impl DiffReport {
    /// True where nothing is different, or near enough, and everything could be read.
    pub fn is_same(&self) -> bool {
        !self.is_different() && self.count(Status::Unread) == 0 && self.left_out == 0
    }

    /// True where something is different, whatever could not be read.
    pub fn is_different(&self) -> bool {
        let same = |pair: &Pair| match pair.status {
            Status::Same | Status::Close => true,
            Status::Unread => pair.changes.is_empty(),
            Status::Shape | Status::Values | Status::Form | Status::Renamed => false,
        };
        !(self.left_alone.is_empty()
            && self.right_alone.is_empty()
            && self.metadata.is_empty()
            && self.program.count() == 0
            && self.pairs.iter().all(same))
    }

    /// The verdict in words: `the same` is said of values only where they were compared, and are.
    pub fn verdict(&self) -> &'static str {
        match (self.is_different(), self.is_same(), self.values_compared) {
            (true, ..) => "different",
            (_, false, _) => "could not tell",
            (_, _, true) if self.count(Status::Close) > 0 => "near enough",
            (_, _, true) => "the same",
            (_, _, false) => "the same names, types and shapes; values were not compared",
        }
    }

    /// How many pairs have this status.
    pub fn count(&self, status: Status) -> usize {
        self.pairs.iter().filter(|pair| pair.status == status).count()
    }

    /// The report, without the pairs that are the same unless `all` is asked for. As a tree;
    /// [`DiffReport::as_json`] takes no memory.
    pub fn to_json(&self, all: bool) -> Json {
        tree(&self.as_json(all))
    }

    /// As [`DiffReport::to_json`], made as it is written.
    pub fn as_json(&self, all: bool) -> impl Serialize + '_ {
        let side =
            |[path, format, kind]: &[String; 3]| json!({ "path": path, "format": format, "kind": kind });
        let shown = self.pairs.iter().filter(move |pair| all || pair.status != Status::Same);
        Document {
            left: side(&self.left),
            right: side(&self.right),
            same: self.is_same(),
            different: self.is_different(),
            unread: self.pairs.iter().filter(|pair| pair.unread.is_some()).count(),
            left_out: self.left_out,
            values_compared: self.values_compared,
            equal: self.count(Status::Same),
            pairs: Rows(shown.map(Pair::to_json)),
            left_alone: rows(&self.left_alone, Alone::to_json),
            right_alone: rows(&self.right_alone, Alone::to_json),
            metadata: rows(&self.metadata, Change::to_json),
            program: rows(&self.program.changes, ProgramChange::to_json),
            program_more: self.program.more,
            notes: &self.notes,
        }
    }

    /// As [`DiffReport::as_json`], with `markdown` where that is asked for.
    pub fn as_json_with(&self, all: bool, markdown: bool) -> impl Serialize + '_ {
        WithMarkdown { report: self.as_json(all), markdown: markdown.then(|| self.to_markdown()) }
    }

    /// The report as GitHub's Markdown, for a pull request.
    pub fn to_markdown(&self) -> String {
        markdown::markdown(self)
    }
}

/// Opens both sides and compares them.
///
/// # Errors
/// What opening says, and reading where it is not about the files: tensors that are damaged or beyond a limit are
/// [`Status::Unread`]. [`crate::Kind::Mismatch`] for patterns and rules that fit nothing.
pub fn diff(left: impl AsRef<Path>, right: impl AsRef<Path>, options: &DiffOptions) -> Result<DiffReport> {
    let (left, right) = (left.as_ref(), right.as_ref());
    let open = |path: &Path, options: &OpenOptions| {
        open_with(path, options).map_err(|error| registry().offer_salvage(error, path, options))
    };
    let sides = [open(left, &options.left)?, open(right, &options.right)?];
    let lone = sides.iter().all(left_out::stands_alone);
    let [one, other] = sides;
    let mut report = diff_checkpoints(one, other, options)?;
    if report.left_out > 0 && lone && !report.is_different() && left_out::same_bytes(left, right)? {
        report.left_out = 0;
        report.notes.push("the files are the same to the byte, so that what was left out is the same".into());
    }
    Ok(report)
}

/// As [`diff`], of what is open.
///
/// # Errors
/// As [`diff`].
pub(crate) fn diff_checkpoints(
    mut left: Checkpoint,
    mut right: Checkpoint,
    options: &DiffOptions,
) -> Result<DiffReport> {
    memory(options)?;
    if options.no_state {
        left.drop_state();
        right.drop_state();
    }
    let unused = rename_left(&mut left, options)?;
    let selection = Selection::new(&options.select, &options.drop)?;
    selection.check_matched(&[&left, &right])?;
    let kept = |tensors: &[&TensorEntry]| {
        let any = |check: &dyn Fn(&TensorEntry) -> bool| tensors.iter().any(|tensor| check(tensor));
        any(&|t| selection.selects(t)) && !any(&|t| selection.drops(t))
    };
    let mut pairs = pairs::pair(&left, &right, &kept, !options.names_only)?;
    let with_attributes = left.format == right.format;
    let mut found = Vec::with_capacity(pairs.pairs.len());
    let mut unnamed = [Vec::new(), Vec::new()];
    let places: Vec<(usize, usize)> = pairs.pairs.iter().map(|&(l, r, _)| (l, r)).collect();
    for (l, r, how) in pairs.pairs {
        let (Some(a), Some(b)) = (left.tensors.get(l), right.tensors.get(r)) else { continue };
        match (&a.row_names, &b.row_names) {
            (None, Some(_)) => unnamed[0].push(a.name()),
            (Some(_), None) => unnamed[1].push(b.name()),
            _ => {}
        }
        let mut pair = one([(a, &left.label), (b, &right.label)], how, with_attributes, options)?;
        // Of millions of pairs nearly all are the same in the same way.
        if let Some(before) = found.last().and_then(|last: &Pair| last.values.as_ref())
            && pair.values.as_ref() == Some(before)
        {
            pair.values = Some(before.clone());
        }
        found.push(pair);
    }
    // A tensor that the other side had, and lost, is on both.
    found.extend(lost(&left, &mut pairs.left, &right));
    found.extend(lost(&right, &mut pairs.right, &left));
    found.sort_by(|a, b| a.status.cmp(&b.status).then(weight(b).total_cmp(&weight(a))));
    let alone = |checkpoint: &Checkpoint, places: &[usize]| {
        places.iter().filter_map(|&at| checkpoint.tensors.get(at)).map(Alone::new).collect()
    };
    let mut notes: Vec<Phrase> = pairs
        .unread
        .iter()
        .map(|finding| {
            let tensor = finding.tensor.as_deref().unwrap_or_default();
            format!("{tensor} cannot be read, and was not looked for under another name: {}", finding.told())
                .into()
        })
        .collect();
    let programs = match (&left.topology, &right.topology) {
        (Some(a), Some(b)) => program::compare(a, b, options.metadata),
        (None, None) => ProgramDiff::default(),
        (a, _) => {
            let side = if a.is_some() { "left" } else { "right" };
            notes.push(format!("only the {side} side has a program: programs were not compared").into());
            ProgramDiff::default()
        }
    };
    notes.extend(without_names("left", &unnamed[0]).into_iter().map(Phrase::from));
    notes.extend(without_names("right", &unnamed[1]).into_iter().map(Phrase::from));
    let renamed = !(options.rules.is_empty() && options.rename.is_empty() && options.rename_regex.is_empty());
    let structure = match options.no_metadata {
        true => containers::Compared::default(),
        false => containers::compare(&left, &right, &places, renamed),
    };
    notes.extend(structure.notes.into_iter().map(Phrase::from));
    let left_out = left_out::count([&left, &right], &found, options);
    notes.extend(ties::notes(&left, &right, &places).into_iter().map(Phrase::from));
    notes.extend(unused.iter().map(|note| phrase![note.code, ": ", &note.text]));
    for checkpoint in [&left, &right] {
        let left_out =
            checkpoint.notes.iter().filter(|note| note.omission || note.code == NoteCode::OtherModels);
        notes.extend(left_out.map(|note| phrase![&checkpoint.label, ": ", &note.text]));
    }
    for checkpoint in [&mut left, &mut right] {
        if checkpoint.damage.is_some() {
            // Said by who read it, and not by the file.
            checkpoint.metadata.remove(Metadata::SALVAGED_KEY);
        }
    }
    let mut metadata = Vec::new();
    if !options.no_metadata {
        if !options.metadata {
            notes.extend(leave_out_versions(&mut left, &mut right).into_iter().map(Phrase::from));
        }
        brief::metadata(&left, &right, &mut metadata);
    }
    metadata.extend(structure.changes);
    Ok(DiffReport {
        left: [left.label.clone(), left.format.to_owned(), left.kind.to_owned()],
        right: [right.label.clone(), right.format.to_owned(), right.kind.to_owned()],
        pairs: found,
        left_alone: alone(&left, &pairs.left),
        right_alone: alone(&right, &pairs.right),
        metadata,
        program: programs,
        notes,
        left_out,
        values_compared: !options.names_only,
    })
}

/// Takes the versions of modules off a side where the other one is of another form and has none: that form has no place for
/// them. Gives a note.
fn leave_out_versions(left: &mut Checkpoint, right: &mut Checkpoint) -> Option<String> {
    if left.format == right.format {
        return None;
    }
    let (name, side) = match [&*left, &*right].map(|side| side.metadata.has_versions()) {
        [true, false] => ("left", left),
        [false, true] => ("right", right),
        _ => return None,
    };
    side.metadata.take_versions();
    Some(format!("only the {name} side has versions of modules (_metadata), which are not compared"))
}

/// Renames the tensors of the left side as the options say. Gives the notes on rules that were of no use.
fn rename_left(left: &mut Checkpoint, options: &DiffOptions) -> Result<Vec<Note>> {
    let renames = Changes {
        rules: options.rules.clone(),
        lenient_rules: options.lenient_rules,
        rename: options.rename.clone(),
        ..Changes::default()
    };
    let mut report = TransformReport::default();
    renames.apply(left, &mut report)?;
    let mut unused = report.notes;
    if !options.rename_regex.is_empty() {
        let rules = Rule::parse("rename-regex", &options.rename_regex)?;
        unused.extend(apply(left, &rules, options.lenient_rules)?.notes);
    }
    Ok(unused)
}

/// The memory that the options grant.
fn memory(options: &DiffOptions) -> Result<u64> {
    let memory = options.memory.unwrap_or_else(|| RunOptions::default().memory);
    check_memory(memory).map(|()| memory)
}

/// How much a difference weighs. What became no number, or infinite, has no distance and weighs more than any.
fn weight(pair: &Pair) -> f64 {
    pair.values.as_ref().map_or(0.0, |values| match values.nan_moved + values.infinite_apart {
        0 => values.max_relative,
        _ => f64::INFINITY,
    })
}

/// The note on tensors whose rows have names on the other side only.
fn without_names(side: &str, tensors: &[String]) -> Option<String> {
    tensors.first()?;
    let named = first_and_more(tensors, 1);
    Some(format!("rows have no names on the {side} side, so names were not compared: {named}"))
}

/// Compares a pair; `attributes` where both have one format: others need not know them.
fn one(sides: [Side<'_>; 2], found: Found, attributes: bool, options: &DiffOptions) -> Result<Pair> {
    let [left, right] = sides.map(|(entry, _)| entry);
    let mut changes = Vec::new();
    let mut change = |what: &str, a: String, b: String| {
        if a != b {
            changes.push(brief::change(what.to_owned(), Some(a), Some(b)));
        }
    };
    if !options.ignore_dtype {
        change("dtype", left.dtype().to_string(), right.dtype().to_string());
    }
    change("shape", left.shape.to_string(), right.shape.to_string());
    // Few files say what a tensor is for, so it is often guessed.
    if options.metadata {
        change("role", left.role.as_str().to_owned(), right.role.as_str().to_owned());
    }
    if attributes {
        brief::attributes(&left.attributes, &right.attributes, options.metadata, &mut changes);
    }
    let same_shape = left.shape == right.shape;
    let (mut values, mut unread) = (None, None);
    if !options.names_only {
        // Names that cannot be read do not keep the values from being compared.
        match row_names(sides) {
            Ok(change) => changes.extend(change),
            Err(error) => unread = Some(Box::new(Finding::from_error(&error).ok_or(error)?)),
        }
        if same_shape {
            match values::compare(
                sides,
                options.tolerance.unwrap_or_default(),
                options.threads,
                memory(options)?,
            ) {
                Ok(compared) => {
                    // Elements that share bytes, and differ, have no measures.
                    values = Some(compared);
                }
                Err(error) => unread = Some(Box::new(Finding::from_error(&error).ok_or(error)?)),
            }
        }
    }
    let apart = match &values {
        None => false,
        Some(None) => true,
        Some(Some(values)) if options.tolerance.is_some() => values.beyond > 0,
        Some(Some(values)) => values.beyond > 0 || (!values.same_bits && left.dtype() == right.dtype()),
    };
    let values = values.flatten();
    let status = match (same_shape, apart, changes.is_empty(), found, &values) {
        (false, ..) => Status::Shape,
        (_, true, ..) => Status::Values,
        _ if unread.is_some() => Status::Unread,
        (_, _, false, ..) => Status::Form,
        (_, _, _, Found::Content, _) => Status::Renamed,
        (_, _, _, _, Some(values)) if !values.same_bits => Status::Close,
        _ => Status::Same,
    };
    let name: Arc<str> = left.text().into();
    let other = if left.path == right.path && left.role.slot() == right.role.slot() {
        name.clone()
    } else {
        right.text().into()
    };
    Ok(Pair { left: name, right: other, found, status, changes, values: values.map(Arc::new), unread })
}

/// Takes those of the places `alone` in `checkpoint` out of which `other` says that it lost them to damage.
fn lost(checkpoint: &Checkpoint, alone: &mut Vec<usize>, other: &Checkpoint) -> Vec<Pair> {
    let Some(damage) = &other.damage else { return Vec::new() };
    let why: HashMap<&str, &Lost> = damage.lost.iter().map(|lost| (lost.name.as_str(), lost)).collect();
    let mut pairs = Vec::new();
    alone.retain(|&place| {
        let Some(entry) = checkpoint.tensors.get(place) else { return true };
        let Some(lost) = why.get(entry.name().as_str()) else { return true };
        let mut finding = Finding::error(lost.code, lost.text.as_str()).on_tensor(entry.name());
        finding.file = Some(lost.file.clone().unwrap_or_else(|| other.label.clone()));
        finding.offset = lost.offset;
        let name: Arc<str> = entry.text().into();
        pairs.push(Pair {
            left: name.clone(),
            right: name,
            found: Found::Name,
            status: Status::Unread,
            changes: Vec::new(),
            values: None,
            unread: Some(Box::new(finding)),
        });
        false
    });
    pairs
}

/// A tensor, and the path of its file, for errors.
type Side<'a> = (&'a TensorEntry, &'a str);

/// What an error on a side is about.
fn blame((entry, file): Side<'_>) -> impl FnOnce(Error) -> Error {
    move |error| error.on_tensor(entry.name()).in_file(file)
}

/// The first row whose name is another one, where both have names.
fn row_names(sides: [Side<'_>; 2]) -> Result<Option<Change>> {
    let [(Some(a), l), (Some(b), r)] = sides.map(|side| (side.0.row_names.as_ref(), side)) else {
        return Ok(None);
    };
    let (a, b) = (a.read().map_err(blame(l))?, b.read().map_err(blame(r))?);
    let other = (0..a.len().max(b.len())).find(|&row| a.get(row) != b.get(row));
    Ok(other.map(|row| {
        let name = |name: Option<&str>| name.map(|name| format!("row {row}: {name}"));
        brief::change("row-names".to_owned(), name(a.get(row)), name(b.get(row)))
    }))
}

#[cfg(test)]
mod tests;
