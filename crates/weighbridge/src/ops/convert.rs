//! Moving a checkpoint from one form to another.

mod others;
mod ties;
#[cfg(feature = "biggraph")]
mod versions;
#[cfg(not(feature = "biggraph"))]
#[path = "convert/no_versions.rs"]
mod versions;

use crate::checkpoint::{Checkpoint, LabelList, Loss, Modules, Note, Rename, Selection, Value};
use crate::engine::{LocalSink, RunOptions, RunReport, run};
use crate::error::{Error, Result};
use crate::formats::{self, Format, LabelsIn, OpenOptions, PlanOptions, biggraph};
use crate::limits::Limits;
use crate::ops::inputs::Inputs;
use crate::plan::WritePlan;
use crate::source::{FileSource, PathKind, SourceRef, kind_of_path, read_vec, real_path};
use crate::tensor::{Cast, DType, Order, Rounding};
use crate::text::counted;
use others::Others;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use ties::Ties;

/// Losses that do not take anything away that the source has: what was asked for, and what holds of the
/// source too.
const HARMLESS: [&str; 3] = ["rounding", "recent-dtype", "renamed"];
/// Bytes of a list of names that tell which form it has.
const HEAD: u64 = 64;

/// What to write, and what to change on the way.
#[derive(Debug, Clone, Default)]
pub struct ConvertOptions {
    /// How to open the source.
    pub open: OpenOptions,
    /// The id of the target's format; told from the extension of its name where `None`.
    pub to: Option<String>,
    /// The kind within the format; told from the extension, or chosen by the format.
    pub kind: Option<String>,
    /// Values of the target format's [settings](crate::formats::Facts::settings), by name.
    pub settings: Vec<(String, String)>,
    /// Write no entries of Weighbridge's own; see [`PlanOptions::plain`].
    pub plain: bool,
    /// Copy the other files of the source, a folder, into the target, a folder too: configuration, tokenizer.
    pub copy_others: bool,
    /// What to change before it is written.
    pub changes: Changes,
    /// What decides values that must be drawn: rows of entities that a table from elsewhere does not have.
    pub seed: u64,
    /// Refuse when the target cannot hold everything.
    pub deny_loss: bool,
    /// Replace the target if it exists.
    pub force: bool,
    /// Of a PyTorch-BigGraph checkpoint that is written as one, take along the other versions and the
    /// snapshots; they are losses otherwise.
    pub all_versions: bool,
    /// How to run the plan.
    pub run: RunOptions,
}

/// Changes of the index, in the order in which they are applied.
#[derive(Debug, Clone, Default)]
pub struct Changes {
    /// Patterns of tensors to keep; all if empty.
    pub select: Vec<String>,
    /// Patterns of tensors to leave out.
    pub drop: Vec<String>,
    /// Leave out optimizer state.
    pub no_state: bool,
    /// Rules of the [grammar of edits](super::edit); they come before all that follows.
    pub rules: Vec<super::edit::Rule>,
    /// Go on where one of these rules or one of `rename` fits nothing, and note it.
    pub lenient_rules: bool,
    /// Rules `OLD=NEW`.
    pub rename: Vec<String>,
    /// Cast floating-point tensors to this type.
    pub cast: Option<DType>,
    /// How that cast rounds.
    pub rounding: Rounding,
    /// Draw initial embeddings for the entities of a PyTorch-BigGraph folder.
    pub draw: Option<biggraph::Draw>,
    /// Add rows for these new entities to the tables of these types.
    pub grow: Vec<Grow>,
    /// Add the global embedding of each type to the rows of its table.
    pub with_global: bool,
    /// Keep the bytes of column-major tensors as they are and reverse their dimensions.
    pub reverse_dims: bool,
}

/// New entities for a table of a PyTorch-BigGraph checkpoint.
#[derive(Debug, Clone)]
pub struct Grow {
    /// The type of the entities.
    pub entity: String,
    /// Their names.
    pub names: LabelList,
    /// What decides the values of the new rows.
    pub seed: u64,
}

impl Grow {
    /// Reads the names from a file: a JSON array of strings, or one name a line.
    ///
    /// # Errors
    /// [`crate::Kind::Io`]; [`crate::Kind::Corrupt`] where it is no such list, `empty-name` where a name
    /// in it is empty;
    /// [`crate::Kind::Limit`] where it is larger than the limits allow.
    pub fn read(entity: impl Into<String>, path: &Path, seed: u64, limits: &Limits) -> Result<Self> {
        let source: SourceRef = Arc::new(FileSource::open(path)?);
        let mut names = LabelList::new();
        let head = read_vec(&*source, 0, source.len().min(HEAD))?;
        if head.trim_ascii_start().starts_with(b"[") {
            weighbridge_format::names_json::read_names(&source, limits, None, &mut names)?;
        } else {
            Limits::check("bytes of names", "header_bytes", source.len(), limits.header_bytes)?;
            let text = String::from_utf8(read_vec(&*source, 0, source.len())?).map_err(|_| {
                Error::corrupt("not-utf8", "the names are not text in UTF-8").in_file(source.label())
            })?;
            text.lines().for_each(|name| names.push(name));
        }
        if let Some(row) = names.iter().position(str::is_empty) {
            return Err(Error::corrupt("empty-name", "an entity has no name")
                .in_file(source.label())
                .found(format_args!("name {} of {}", row + 1, names.len()))
                .hint("one name a line, without empty lines; or a JSON array of names"));
        }
        Ok(Self { entity: entity.into(), names, seed })
    }
}

impl Changes {
    /// Applies the changes; returns what they lose.
    ///
    /// # Errors
    /// As the methods of [`Checkpoint`] that it calls.
    pub fn apply(&self, checkpoint: &mut Checkpoint) -> Result<Vec<Loss>> {
        self.apply_noting(checkpoint, &mut Vec::new())
    }

    /// As [`apply`](Self::apply). Rules that did nothing, where that is allowed, go to the `notes`, and so does state whose
    /// parameter is gone.
    ///
    /// # Errors
    /// As [`apply`](Self::apply).
    pub(super) fn apply_noting(
        &self,
        checkpoint: &mut Checkpoint,
        notes: &mut Vec<Note>,
    ) -> Result<Vec<Loss>> {
        if let Some(draw) = self.draw {
            biggraph::draw(checkpoint, draw)?;
        }
        for grow in &self.grow {
            biggraph::grow(checkpoint, &grow.entity, &grow.names, grow.seed)?;
        }
        if self.with_global && biggraph::rows::add_global_embeddings(checkpoint)? == 0 {
            let text = "no type has a global embedding: the rows are written as they are stored";
            notes.push(Note::new("no-global-embedding", text));
        }
        let modules = Modules::of(checkpoint);
        checkpoint.select(&Selection::new(&self.select, &self.drop)?)?;
        if self.no_state {
            checkpoint.drop_state();
        }
        let mut losses = modules.map_or_else(Vec::new, |modules| modules.follow_left_out(checkpoint));
        notes.extend(checkpoint.settle_aliases());
        let applied = super::edit::apply(checkpoint, &self.rules, self.lenient_rules)?;
        notes.extend(applied.notes);
        losses.extend(applied.losses);
        let rules = self.rename.iter().map(|r| Rename::parse(r)).collect::<Result<Vec<_>>>()?;
        let (unused, unfollowed) = checkpoint.rename_found(&rules, self.lenient_rules)?;
        losses.extend(unfollowed);
        for unused in unused {
            let rule = self.rename.get(unused).map(String::as_str).unwrap_or_default();
            notes.push(Note::new("rule-unused", format!("rename {rule}: it fits no tensor")));
        }
        match self.cast {
            // All that was cast by rules is cast anew.
            Some(to) => {
                losses.retain(|loss| loss.code != "rounding");
                losses.extend(checkpoint.cast_floats(Cast { to, rounding: self.rounding })?);
            }
            None if self.rounding != Rounding::default() => {
                return Err(Error::usage("rounding-without-cast", "nothing is cast, so nothing is rounded")
                    .hint("add --cast f16 or --cast bf16"));
            }
            None => {}
        }
        if self.cast.is_some() {
            notes.extend(checkpoint.settle_aliases());
        }
        if self.reverse_dims {
            losses.extend(checkpoint.reverse_dims()?);
        }
        Ok(losses)
    }
}

/// Opens `source` and plans its conversion to `target`. Nothing is written; that the target could
/// be written is checked, as far as that goes.
///
/// # Errors
/// What opening, changing and planning say; `loss-denied` where something would be lost and that
/// is denied; for the target, as [`LocalSink::check_plan`]; `output-is-input` where it is one of several files that are read.
pub fn plan(
    source: impl AsRef<Path>,
    target: impl AsRef<Path>,
    options: &ConvertOptions,
) -> Result<WritePlan> {
    prepare(source, target, options).map(|(plan, _)| plan)
}

/// As [`plan`], with what was odd about the source when it was opened.
///
/// # Errors
/// As [`plan`].
pub fn prepare(
    source: impl AsRef<Path>,
    target: impl AsRef<Path>,
    options: &ConvertOptions,
) -> Result<(WritePlan, Vec<Note>)> {
    let (plan, notes, _) = prepare_replacing(source.as_ref(), target.as_ref(), false, options)?;
    Ok((plan, notes))
}

/// As [`prepare`], with the names of the files that are replaced where the target is the folder `source` itself; none
/// of them unless `own`.
pub(super) fn prepare_replacing(
    source: &Path,
    target: &Path,
    own: bool,
    options: &ConvertOptions,
) -> Result<(WritePlan, Vec<Note>, Vec<PathBuf>)> {
    // First of all, so that a target which cannot be written is known before work begins.
    LocalSink::check(target, options.force)?;
    let (format, kind) = if options.copy_others {
        others::check_folders(source, target)?;
        // The folder of a model for transformers has no extension that could say it.
        let to = options.to.as_deref().unwrap_or("safetensors");
        (formats::by_id(to)?, options.kind.clone())
    } else {
        target_form(target, options)?
    };
    let checkpoint = formats::open_with(source, &options.open)?;
    let replaced = if own { own_files(source, target, &checkpoint)? } else { Vec::new() };
    let inputs = Inputs::of(&checkpoint, target).and_named(&options.open)?;
    let mut notes = checkpoint.notes.clone();
    let has_state =
        checkpoint.tensors.iter().any(|t| t.role.is_state()) || notes.iter().any(Note::is_of_state);
    if options.changes.no_state && !has_state {
        let text = "no tensor is known to be optimizer state, so none was left out: --drop takes patterns";
        notes.push(Note::new("no-state-known", text));
    }
    let versions = (checkpoint.format == "biggraph" && checkpoint.kind == "checkpoint").then(|| {
        match checkpoint.metadata.get("version") {
            Some(Value::U64(version)) => Some(*version),
            _ => None,
        }
    });
    let others = match Others::of(source, &checkpoint) {
        _ if own => None,
        // Without copying, the list is for a note alone.
        Err(_) if !options.copy_others => None,
        others => others?,
    };
    let label = checkpoint.label.clone();
    let mut plan = plan_noting(checkpoint, format, kind, options, &mut notes)?;
    if let Some(opened) = versions
        && (plan.format, plan.kind) == ("biggraph", "checkpoint")
        && real_path(source) != real_path(target)
    {
        versions::add(&mut plan, source, opened, format, options)?;
        if options.deny_loss && !plan.losses.is_empty() {
            return Err(denied(&plan.losses));
        }
    } else if options.all_versions {
        return Err(Error::usage(
            "no-versions",
            "all versions are written only from one PyTorch-BigGraph checkpoint folder to another",
        )
        .in_file(source.display())
        .hint("leave out --versions all, or add --to biggraph"));
    }
    match others {
        Some(others) if options.copy_others => others.add_to(&mut plan, format, &label)?,
        Some(others) => notes.extend(others.note()),
        None => {}
    }
    inputs.check(source, target, &plan)?;
    LocalSink::check_plan_replacing(&plan, target, options.force, &replaced)?;
    Ok((plan, notes, replaced))
}

/// Opens `source` and writes it to `target` in the format that is asked for: to a file, or to a
/// folder where the format has several files.
///
/// # Errors
/// As [`plan`], and what the engine says. The target is then as it was.
pub fn convert(
    source: impl AsRef<Path>,
    target: impl AsRef<Path>,
    options: &ConvertOptions,
) -> Result<(WritePlan, RunReport)> {
    let target = target.as_ref();
    let plan = plan(source, target, options)?;
    let sink = LocalSink::for_plan(&plan, target, options.force)?;
    let report = run(&plan, &sink, &options.run)?;
    Ok((plan, report))
}

/// Writes what was planned to the file or folder `target`, all or nothing: how a model that was
/// built or changed in memory is saved.
///
/// # Errors
/// As [`LocalSink::for_plan`], and what the engine says.
pub fn save(
    plan: &WritePlan,
    target: impl AsRef<Path>,
    replace: bool,
    options: &RunOptions,
) -> Result<RunReport> {
    run(plan, &LocalSink::for_plan(plan, target, replace)?, options)
}

/// As [`save`], in the place of a folder whose files of these names hold what is written.
///
/// # Errors
/// As [`save`].
pub fn save_replacing(
    plan: &WritePlan,
    target: impl AsRef<Path>,
    names: &[PathBuf],
    options: &RunOptions,
) -> Result<RunReport> {
    run(plan, &LocalSink::for_plan(plan, target, true)?.replacing(names), options)
}

/// The names of the files of the folder `source` that hold what `checkpoint` was opened with, where that is the folder
/// `target` itself; none where it is another one.
///
/// # Errors
/// What listing says.
pub(super) fn own_files(source: &Path, target: &Path, checkpoint: &Checkpoint) -> Result<Vec<PathBuf>> {
    match (real_path(source), real_path(target)) {
        (Some(one), Some(other)) if one == other && kind_of_path(source)? == PathKind::Folder => {
            formats::own_files(source, checkpoint)
        }
        _ => Ok(Vec::new()),
    }
}

/// Plans an opened checkpoint; the rest of [`plan`].
/// Of what was salvaged from a damaged file each tensor that is missing is a loss, `missing-damaged`,
/// the first of them all.
///
/// # Errors
/// As [`plan`].
pub fn plan_checkpoint(
    checkpoint: Checkpoint,
    format: &dyn Format,
    kind: Option<String>,
    options: &ConvertOptions,
) -> Result<WritePlan> {
    plan_noting(checkpoint, format, kind, options, &mut Vec::new())
}

/// As [`plan_checkpoint`]. What is worth knowing of the changes goes to the `notes`.
fn plan_noting(
    mut checkpoint: Checkpoint,
    format: &dyn Format,
    kind: Option<String>,
    options: &ConvertOptions,
    notes: &mut Vec<Note>,
) -> Result<WritePlan> {
    let label = checkpoint.label.clone();
    let missing = checkpoint.damage.as_ref().map(|damage| damage.losses()).unwrap_or_default();
    if checkpoint.damage.is_some() && checkpoint.tensors.is_empty() {
        return Err(
            Error::mismatch("nothing-intact", "no tensor of the damaged file is intact").in_file(label)
        );
    }
    let build = || {
        if options.changes.reverse_dims && format.facts().order == Some(Order::Column) {
            return Err(Error::usage(
                "reverse-dims",
                "this target is column-major itself: no dimension is reversed",
            )
            .hint("leave --reverse-dims out"));
        }
        let settings = PlanOptions {
            kind,
            settings: options.settings.clone(),
            memory: Some(options.run.memory),
            plain: options.plain,
        };
        settings.check(format.facts())?;
        let mut losses = options.changes.apply_noting(&mut checkpoint, notes)?;
        losses.extend(format.adapt(&mut checkpoint, &settings, &options.open, options.seed)?);
        match format.labels_in() {
            LabelsIn::Column => {}
            LabelsIn::Tensors => formats::spread_labels(&mut checkpoint)?,
            LabelsIn::Nowhere => losses.extend(formats::drop_labels(&mut checkpoint)),
        }
        if !options.changes.reverse_dims && format.facts().order == Some(Order::Column) {
            checkpoint.restore_dims();
        }
        let ties = Ties::take(&mut checkpoint, format.holds_ties());
        let mut plan = format.plan(&checkpoint, &settings)?;
        plan.losses.splice(0..0, missing);
        plan.losses.extend(losses);
        plan.losses.extend(ties.not_held(&plan));
        plan.losses.extend(guesses(&checkpoint, &plan));
        Ok(plan)
    };
    let plan: WritePlan = build().map_err(|e: Error| e.in_file(label))?;
    if options.deny_loss && !plan.losses.is_empty() {
        return Err(denied(&plan.losses));
    }
    Ok(plan)
}

/// What was guessed is like anything else in a form that does not say so.
fn guesses(checkpoint: &Checkpoint, plan: &WritePlan) -> Option<Loss> {
    let guessed = checkpoint.tensors.iter().filter(|t| t.guessed).count();
    let same_form = plan.format == checkpoint.format && plan.kind == checkpoint.kind;
    (guessed > 0 && !same_form).then(|| {
        let subject = counted(guessed, "tensor", "tensors");
        if checkpoint.notes.iter().any(|note| note.code == "dtype-guessed") {
            let detail = "the type of the elements is a guess, and the target does not say so";
            return Loss::new("guessed-dtype", subject, detail);
        }
        let detail = "names, types or layouts are guesses, and the target does not say so";
        Loss::new("guessed-names", subject, detail)
    })
}

/// The format of `target`, and its kind where its name or the options say it.
///
/// # Errors
/// [`crate::Kind::Usage`] where neither the name nor the options say which format.
pub fn target_form(target: &Path, options: &ConvertOptions) -> Result<(&'static dyn Format, Option<String>)> {
    let by_name = formats::by_extension(target);
    let (format, kind) = match &options.to {
        None => by_name.map(|(format, kind)| (format, Some(kind)))?,
        Some(id) => {
            let format = formats::by_id(id)?;
            let kind = by_name.ok().filter(|(f, _)| f.facts().id == format.facts().id).map(|(_, kind)| kind);
            (format, kind)
        }
    };
    Ok((format, options.kind.clone().or(kind.map(str::to_owned))))
}

/// The error for losses that nobody wants.
pub(super) fn denied(losses: &[Loss]) -> Error {
    lost(losses, "the target cannot hold everything, and losses are denied")
        .hint("without --deny-loss the conversion goes on and reports these")
}

/// Fails where something would be lost that the source has, and that is gone then: in its own place.
pub(super) fn check_nothing_lost(losses: &[Loss]) -> Result<()> {
    let taken: Vec<_> = losses.iter().filter(|loss| !HARMLESS.contains(&loss.code)).cloned().collect();
    if taken.is_empty() {
        return Ok(());
    }
    Err(lost(&taken, "in place nothing may be lost, and this would be"))
}

/// As [`denied`], with other words and without a hint.
fn lost(losses: &[Loss], message: &str) -> Error {
    let shown = losses.iter().take(5).map(|l| format!("{}: {}: {}", l.code, l.subject, l.detail));
    let mut text = shown.collect::<Vec<_>>().join("; ");
    if losses.len() > 5 {
        text.push_str(&format!("; and {} more", losses.len() - 5));
    }
    Error::mismatch("loss-denied", message).found(text)
}
