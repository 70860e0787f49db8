//! Differences of two checkpoints of any two formats: tensors on one side only, and distances between values.
//!
//! Tensors are paired by name, and otherwise by content: a rename is one difference, not two. Formats, files and the order of
//! tensors are not differences; types, shapes, roles, values, row names, metadata and programs are. Both sides are read in
//! blocks, in the order of the left one. Memory is bounded for tensors of any size, and the result does not depend on the number
//! of threads.

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
use super::edit::{Rule, apply, suggest};
use crate::checkpoint::{
    Attributes, Checkpoint, Lost, Metadata, Note, Rename, Selection, TensorEntry, TransformReport,
};
use crate::engine::{RunOptions, check_memory};
use crate::error::{Error, Result};
use crate::finding::Finding;
use crate::formats::{OpenOptions, open_with, registry};
use crate::json::{Rows, rows, tree};
use crate::phrase::{Opt, Phrase};
use crate::text::first_and_more;
use serde::Serialize;
use serde_json::{Value as Json, json};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use weighbridge_core::{ErrorCode, NoteCode, phrase};

/// Options of [`diff`].
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct DiffOptions {
    /// How to open the left side.
    pub left: OpenOptions,
    /// How to open the right side.
    pub right: OpenOptions,
    /// Patterns of tensors to compare; all if empty. They are matched after renames; of a pair, either name may match.
    pub select: Vec<String>,
    /// Patterns of tensors to ignore; as for `select`.
    pub drop: Vec<String>,
    /// Ignore optimizer state.
    pub no_state: bool,
    /// Rules of the [edit grammar](super::edit) for the left side, applied before renames and pairing.
    pub rules: Vec<Rule>,
    /// Note a rule of `rules`, `rename` or `rename_regex` that matches nothing, instead of failing.
    pub lenient_rules: bool,
    /// Rules `OLD=NEW` for names on the left, applied before pairing.
    pub rename: Vec<String>,
    /// Rules `REGEX=NEW` for names on the left, as of an [edit](super::edit), applied after `rename`.
    pub rename_regex: Vec<String>,
    /// Ignore different element types; values are compared as numbers in any case.
    pub ignore_dtype: bool,
    /// Tolerance of equal values. Without one, every bit counts.
    pub tolerance: Option<Tolerance>,
    /// Compare only names, types and shapes; no tensor is read.
    pub names_only: bool,
    /// Ignore metadata.
    pub no_metadata: bool,
    /// Also compare metadata that few formats store: module versions of PyTorch, where one side cannot store them;
    /// `stop_gradient` and `trainable` of Paddle.
    pub metadata: bool,
    /// Number of threads; 0 for one per processor. Fewer run where `memory` is too small for all of them.
    pub threads: usize,
    /// Memory for buffers, in bytes, at least [`MIN_MEMORY`](crate::engine::MIN_MEMORY); 256 MiB where `None`.
    pub memory: Option<u64>,
}

/// One difference of a tensor or of the metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Subject: `dtype`, `shape`, `role`, `row-names`, `attribute NAME`, or a metadata key with nested keys:
    /// `attributes/iteration/epoch_idx`. For containers `structure NAME`, and `structure` for the root: list, tuple or dict.
    pub what: String,
    /// Value on the left; `None` where it is absent.
    pub left: Option<String>,
    /// Value on the right; `None` where it is absent.
    pub right: Option<String>,
}

impl Change {
    fn to_json(&self) -> Json {
        json!({ "what": self.what, "left": self.left, "right": self.right })
    }
}

/// Severity of a difference, the most severe first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Status {
    /// Shapes are equal, but one tensor cannot be read because of damage or a limit: values are unknown.
    Unread,
    /// Shapes differ, so values cannot be compared.
    Shape,
    /// Values differ by more than the tolerance.
    Values,
    /// Values are within the tolerance; type, role or row names differ.
    Form,
    /// Only the name differs.
    Renamed,
    /// Bits differ, but every value is within the tolerance.
    Close,
    /// No difference, as far as compared.
    Same,
}

impl Status {
    /// Returns the word in JSON.
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

/// Two paired tensors.
#[derive(Debug, Clone, PartialEq)]
pub struct Pair {
    /// The displayed name on the left, not escaped.
    pub left: Arc<str>,
    /// The displayed name on the right, not escaped.
    pub right: Arc<str>,
    /// How they were paired.
    pub found: Found,
    /// Result of the comparison.
    pub status: Status,
    /// Differences besides the values.
    pub changes: Vec<Change>,
    /// Distance of the values; `None` where shapes differ or values were not compared.
    pub values: Option<Arc<Values>>,
    /// Reason why they could not be compared, with file and offset; `None` where they were.
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

/// Tensor on one side only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alone {
    /// The displayed name, not escaped.
    pub name: String,
    /// Its element type.
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

/// Result of [`diff`].
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct DiffReport {
    /// The path, format and kind of the left side.
    pub left: [String; 3],
    /// The path, format and kind of the right side.
    pub right: [String; 3],
    /// Tensors on both sides: the most severe difference first, among values the largest relative error first.
    pub pairs: Vec<Pair>,
    /// Tensors only on the left.
    pub left_alone: Vec<Alone>,
    /// Tensors only on the right.
    pub right_alone: Vec<Alone>,
    /// Differences of metadata and containers.
    pub metadata: Vec<Change>,
    /// Differences of the programs.
    pub program: ProgramDiff,
    /// Notes: data that was not compared, or that differs without being a difference.
    pub notes: Vec<Phrase>,
    /// Number of parts of either side that were not read, damage included, and may differ.
    pub left_out: usize,
    /// False where only names, types and shapes were compared.
    pub values_compared: bool,
}

/// Document of a report.
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

/// Document of a report, with its Markdown.
#[derive(Serialize)]
struct WithMarkdown<Report: Serialize> {
    #[serde(flatten)]
    report: Report,
    #[serde(skip_serializing_if = "Option::is_none")]
    markdown: Option<String>,
}

impl DiffReport {
    /// True where everything could be read, and nothing differs by more than the tolerance.
    pub fn is_same(&self) -> bool {
        !self.is_different() && self.count(Status::Unread) == 0 && self.left_out == 0
    }

    /// True where something differs, whether or not everything could be read.
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

    /// Returns the verdict in words: `equal` only if values were compared and are equal.
    pub fn verdict(&self) -> &'static str {
        match (self.is_different(), self.is_same(), self.values_compared) {
            (true, ..) => "different",
            (_, false, _) => "could not tell",
            (_, _, true) if self.count(Status::Close) > 0 => "equal within the tolerance",
            (_, _, true) => "equal",
            (_, _, false) => "equal names, dtypes and shapes; values were not compared",
        }
    }

    /// Returns the number of pairs with this status.
    pub fn count(&self, status: Status) -> usize {
        self.pairs.iter().filter(|pair| pair.status == status).count()
    }

    /// Returns the report as JSON, without equal pairs unless `all` is true. As a tree; [`DiffReport::as_json`] streams it.
    pub fn to_json(&self, all: bool) -> Json {
        tree(&self.as_json(all))
    }

    /// As [`DiffReport::to_json`], serialized without an intermediate tree.
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

    /// As [`DiffReport::as_json`], with `markdown` on request.
    pub fn as_json_with(&self, all: bool, markdown: bool) -> impl Serialize + '_ {
        WithMarkdown { report: self.as_json(all), markdown: markdown.then(|| self.to_markdown()) }
    }

    /// Returns the report as GitHub-flavored Markdown, for a pull request.
    pub fn to_markdown(&self) -> String {
        markdown::markdown(self)
    }
}

/// Opens both sides and compares them.
///
/// ```
/// # fn main() -> weighbridge::Result<()> {
/// # let path = weighbridge_testkit::testdata("primitiv/good/trained/trained_xor_a.model");
/// # let folder = tempfile::tempdir().unwrap();
/// # let target = folder.path().join("xor.safetensors");
/// use weighbridge::ops::diff::{DiffOptions, Status, diff};
/// use weighbridge::tensor::DType;
///
/// weighbridge::open(&path)?.convert(&target).cast(DType::F16).run()?;
/// let report = diff(&path, &target, &DiffOptions::default())?;
/// assert_eq!(report.verdict(), "different");
/// for pair in report.pairs.iter().filter(|pair| pair.status == Status::Values) {
///     println!("{}: relative error {:?}", pair.left, pair.values.as_ref().map(|values| values.max_relative));
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Errors of opening, and of reading where they are not about the files: tensors that are damaged or beyond a limit are
/// [`Status::Unread`]. [`crate::Kind::Mismatch`] for patterns and rules that match nothing.
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
        report.notes.push("the files are identical byte for byte, so unread parts are equal, too".into());
    }
    Ok(report)
}

/// Returns the names on the right of tensors whose names in the left file differ.
fn new_names(left: &Checkpoint, right: &Checkpoint, pairs: &[(usize, usize)]) -> HashMap<String, String> {
    let name = |entry: &TensorEntry| {
        entry.text_attribute(Attributes::RENAMED_FROM).map_or_else(|| entry.path.to_text(), str::to_owned)
    };
    let both = pairs.iter().filter_map(|&(l, r)| Some((left.tensors.get(l)?, right.tensors.get(r)?)));
    both.map(|(a, b)| (name(a), name(b))).filter(|(a, b)| a != b).collect()
}

/// As [`diff`], for opened checkpoints.
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
    let unused = rename_left(&mut left, &right, options)?;
    let selection = Selection::new(&options.select, &options.drop)?;
    let sides = [&left, &right];
    selection.check_matched(&sides).map_err(|error| suggest(error, &sides, false))?;
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
        // Nearly all pairs have the same result: it is shared.
        if let Some(before) = found.last().and_then(|last: &Pair| last.values.as_ref())
            && pair.values.as_ref() == Some(before)
        {
            pair.values = Some(before.clone());
        }
        found.push(pair);
    }
    // A tensor that the other side lost to damage is on both sides.
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
            format!("{tensor} cannot be read and was not matched by content: {}", finding.told()).into()
        })
        .collect();
    let programs = match (&left.topology, &right.topology) {
        (Some(a), Some(b)) => {
            let names = new_names(&left, &right, &places);
            match names.is_empty() {
                true => program::compare(a, b, options.metadata),
                false => program::compare(&program::renamed(a, &names), b, options.metadata),
            }
        }
        (None, None) => ProgramDiff::default(),
        (a, _) => {
            let side = if a.is_some() { "left" } else { "right" };
            notes.push(format!("only the {side} side has a program; programs were not compared").into());
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
            // Written by the reader, not stored in the file.
            checkpoint.metadata.remove(Metadata::SALVAGED_KEY);
        }
    }
    let mut metadata = Vec::new();
    if !options.no_metadata {
        if !options.metadata {
            notes.extend(leave_out_versions(&mut left, &mut right).into_iter().map(Phrase::from));
        }
        // Tensors that are renamed into or out of a nested dict leave its versions where they were.
        for checkpoint in [&mut left, &mut right].into_iter().filter(|_| renamed) {
            let mut conflicts = Vec::new();
            if let Some(joined) = checkpoint.metadata.joined_versions(&mut conflicts)
                && conflicts.is_empty()
            {
                checkpoint.metadata.take_versions();
                checkpoint.metadata.set(Metadata::MODULE_VERSIONS, joined);
            }
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

/// Removes module versions from one side where the other side has another format without them. Returns a note.
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

/// Renames the tensors of the left side by the options. Returns the notes on rules without effect.
fn rename_left(left: &mut Checkpoint, right: &Checkpoint, options: &DiffOptions) -> Result<Vec<Note>> {
    let renames = Changes {
        rules: options.rules.clone(),
        lenient_rules: options.lenient_rules,
        rename: options.rename.clone(),
        ..Changes::default()
    };
    let mut report = TransformReport::default();
    renames.apply(left, &mut report).map_err(|error| rename_advice(error, [&*left, right]))?;
    let mut unused = report.notes;
    if !options.rename_regex.is_empty() {
        let rules = Rule::parse("rename-regex", &options.rename_regex)?;
        unused.extend(apply(left, &rules, options.lenient_rules)?.notes);
    }
    Ok(unused)
}

/// Replaces the hint of an error about a rename that matches nothing on the left.
fn rename_advice(error: Error, [left, right]: [&Checkpoint; 2]) -> Error {
    let rename = error.found_text().and_then(|found| Rename::parse(found).ok());
    let Some(Rename { from, to }) = rename.filter(|_| error.code() == ErrorCode::NoMatch) else {
        return error;
    };
    if !right.tensors.iter().any(|tensor| tensor.path.starts_with(&from)) {
        let text = "a rename takes a whole name or its leading parts; ";
        return suggest(
            error.hint_instead(phrase![text, Opt::RenameRegex, " takes patterns"]),
            &[left],
            true,
        );
    }
    error.hint_instead(phrase![
        Opt::Rename,
        format_args!(" changes names of the left side; {from} is on the right: try "),
        Opt::Rename.with(format!("{to}={from}"))
    ])
}

/// Returns the memory budget of the options.
fn memory(options: &DiffOptions) -> Result<u64> {
    let memory = options.memory.unwrap_or_else(|| RunOptions::default().memory);
    check_memory(memory).map(|()| memory)
}

/// Returns the sort weight of a difference. A value that became NaN or infinite weighs more than any distance.
fn weight(pair: &Pair) -> f64 {
    pair.values.as_ref().map_or(0.0, |values| match values.nan_moved + values.infinite_apart {
        0 => values.max_relative,
        _ => f64::INFINITY,
    })
}

/// Returns the note on tensors whose rows have names only on the other side.
fn without_names(side: &str, tensors: &[String]) -> Option<String> {
    tensors.first()?;
    let named = first_and_more(tensors, 1);
    Some(format!("no row names on the {side} side, so row names were not compared: {named}"))
}

/// Compares a pair; attributes only where both sides have one format.
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
    // Few files store the role of a tensor, so it is often guessed.
    if options.metadata {
        change("role", left.role.as_str().to_owned(), right.role.as_str().to_owned());
    }
    if attributes {
        brief::attributes(&left.attributes, &right.attributes, options.metadata, &mut changes);
    }
    let same_shape = left.shape == right.shape;
    let (mut values, mut unread) = (None, None);
    if !options.names_only {
        // Unreadable row names do not prevent a comparison of the values.
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
                    // Different packed elements have no measures.
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

/// Removes from `alone` the tensors of `checkpoint` that `other` lost to damage, and returns them as pairs.
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

/// Tensor with the path of its file, for errors.
type Side<'a> = (&'a TensorEntry, &'a str);

/// Adds tensor and file of a side to an error.
fn blame((entry, file): Side<'_>) -> impl FnOnce(Error) -> Error {
    move |error| error.on_tensor(entry.name()).in_file(file)
}

/// Returns the first row with a different name, where both sides have row names.
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
