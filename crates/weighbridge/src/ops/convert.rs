//! Moving a checkpoint from one form to another.

mod changes;
mod others;
mod ties;
mod versions;
mod written;

pub use changes::Changes;

use crate::checkpoint::{Checkpoint, Loss, Note, TransformReport};
use crate::engine::{LocalSink, RunOptions, RunReport, run};
use crate::error::{Error, Result};
use crate::formats::{self, Format, OpenOptions, PlanOptions, RowNameSupport};
use crate::ops::inputs::Inputs;
use crate::plan::WritePlan;
use crate::source::{PathKind, real_path};
use crate::tensor::Order;
use crate::text::counted;
use others::Others;
use std::path::{Path, PathBuf};
use ties::Ties;
use weighbridge_core::phrase::{Opt, Phrase};
use weighbridge_core::{LossCode, NoteCode, phrase};
pub use written::Written;

/// Losses that do not take anything away that the source has: what was asked for, and what holds of the
/// source too.
const HARMLESS: [LossCode; 3] = [LossCode::Rounding, LossCode::RecentDtype, LossCode::Renamed];

/// What to write, and what to change on the way.
#[derive(Debug, Clone, Default)]
pub struct ConvertOptions {
    /// How to open the source.
    pub open: OpenOptions,
    /// The id of the target's format; told from the extension of its name where `None`.
    pub to: Option<String>,
    /// The kind within the format; told from the extension, or chosen by the format.
    pub kind: Option<String>,
    /// Values of the target format's [settings](crate::formats::FormatInfo::settings), by name.
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
    /// Take along the other checkpoints in the folder of the opened one, such as its earlier versions, where the format
    /// has such; they are losses otherwise.
    pub all_versions: bool,
    /// How to run the plan.
    pub run: RunOptions,
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
    let form = check_target(Some(source), target, options)?;
    let checkpoint = formats::open_with(source, &options.open)?;
    plan_opened(checkpoint, Some(source), target, form, own, options)
}

/// As [`prepare`], of what is open already: `source` is its path, where it has one.
///
/// # Errors
/// As [`plan`].
pub(crate) fn prepare_opened(
    checkpoint: Checkpoint,
    source: Option<&Path>,
    target: &Path,
    options: &ConvertOptions,
) -> Result<(WritePlan, Vec<Note>)> {
    let form = check_target(source, target, options)?;
    let (plan, notes, _) = plan_opened(checkpoint, source, target, form, false, options)?;
    Ok((plan, notes))
}

/// The format of a target and its kind, where its name or the options say it.
type Form = (&'static dyn Format, Option<String>);

/// The form of the target. A target that cannot be written is known before work begins.
fn check_target(source: Option<&Path>, target: &Path, options: &ConvertOptions) -> Result<Form> {
    LocalSink::check(target, options.force)?;
    match source {
        None if options.copy_others => {
            Err(Error::usage("copy-others", "only the files of a folder that was opened can be copied along")
                .hint("leave that option out"))
        }
        Some(source) if options.copy_others => {
            others::check_folders(source, target)?;
            // The folder of a model for transformers has no extension that could say it.
            let to = options.to.as_deref().unwrap_or("safetensors");
            Ok((formats::registry().by_id(to)?, options.kind.clone()))
        }
        _ => target_form(target, options),
    }
}

fn plan_opened(
    mut checkpoint: Checkpoint,
    source: Option<&Path>,
    target: &Path,
    (format, kind): Form,
    own: bool,
    options: &ConvertOptions,
) -> Result<(WritePlan, Vec<Note>, Vec<PathBuf>)> {
    let replaced = match source {
        Some(source) if own => backing_files(source, target, &checkpoint)?,
        _ => Vec::new(),
    };
    let inputs = Inputs::of(&checkpoint, target).and_named(&options.open)?;
    let mut notes = checkpoint.notes.clone();
    let has_state =
        checkpoint.tensors.iter().any(|t| t.role.is_state()) || notes.iter().any(Note::is_of_state);
    if options.changes.no_state && !has_state {
        let text = phrase![
            "no tensor is known to be optimizer state, so none was left out: ",
            Opt::Drop,
            " takes patterns"
        ];
        notes.push(Note::new("no-state-known", text));
    }
    let others = match source.map(|source| Others::of(source, &checkpoint)).transpose() {
        _ if own => None,
        // Without copying, the list is for a note alone.
        Err(_) if !options.copy_others => None,
        others => others?.flatten(),
    };
    // Of the opened checkpoint all but the tensors: there may be millions.
    let tensors = std::mem::take(&mut checkpoint.tensors);
    let opened = checkpoint.clone();
    checkpoint.tensors = tensors;
    let mut plan = plan_noting(checkpoint, format, kind, options, &mut notes)?;
    let companions = versions::companions(&opened, source, target, format, plan.kind, options)?;
    versions::add(&mut plan, companions, format, options)?;
    match others {
        Some(others) if options.copy_others => others.add_to(&mut plan, format, &opened.label)?,
        Some(others) => notes.extend(others.note()),
        None => {}
    }
    if let Some(source) = source {
        inputs.check(source, target, &plan)?;
    } else {
        inputs.check_apart(target)?;
    }
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
pub(crate) fn save_replacing(
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
pub(super) fn backing_files(source: &Path, target: &Path, checkpoint: &Checkpoint) -> Result<Vec<PathBuf>> {
    match (real_path(source), real_path(target)) {
        (Some(one), Some(other)) if one == other && PathKind::of(source)? == PathKind::Folder => {
            formats::backing_files(source, checkpoint)
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
        if options.changes.reverse_dims && format.info().order == Some(Order::Column) {
            return Err(Error::usage(
                "reverse-dims",
                "this target is column-major itself: no dimension is reversed",
            )
            .hint(phrase!["leave ", Opt::ReverseDims, " out"]));
        }
        let settings = PlanOptions {
            kind,
            settings: options.settings.clone(),
            memory: Some(options.run.memory),
            plain: options.plain,
        };
        settings.check(format.info())?;
        let writer = format.required_writer()?;
        let mut report = TransformReport::default();
        options.changes.apply(&mut checkpoint, &mut report)?;
        notes.extend(report.notes);
        let mut losses = report.losses;
        losses.extend(writer.adapt(&mut checkpoint, &settings, &options.open, options.seed)?);
        match writer.labels_in() {
            RowNameSupport::Column => {}
            RowNameSupport::Tensors => formats::spread_labels(&mut checkpoint)?,
            RowNameSupport::Nowhere => losses.extend(formats::drop_labels(&mut checkpoint)),
        }
        if !options.changes.reverse_dims && format.info().order == Some(Order::Column) {
            checkpoint.restore_dims();
        }
        let ties = Ties::take(&mut checkpoint, writer.supports_shared_storage());
        let mut plan = writer.plan(&checkpoint, &settings)?;
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
        if checkpoint.notes.iter().any(|note| note.code == NoteCode::DtypeGuessed) {
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
    let by_name = formats::registry().by_extension(target);
    let (format, kind) = match &options.to {
        None => by_name.map(|(format, kind)| (format, Some(kind)))?,
        Some(id) => {
            let format = formats::registry().by_id(id)?;
            let kind = by_name.ok().filter(|(f, _)| f.info().id == format.info().id).map(|(_, kind)| kind);
            (format, kind)
        }
    };
    Ok((format, options.kind.clone().or(kind.map(str::to_owned))))
}

/// The error for losses that nobody wants.
pub(super) fn denied(losses: &[Loss]) -> Error {
    lost(losses, "the target cannot hold everything, and losses are denied").hint(phrase![
        "without ",
        Opt::DenyLoss,
        " the conversion goes on and reports these"
    ])
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
    let mut found = Phrase::default();
    for (place, loss) in losses.iter().take(5).enumerate() {
        let gap = if place > 0 { "; " } else { "" };
        found = found.and(format_args!("{gap}{}: {}: ", loss.code, loss.subject)).and(&loss.detail);
    }
    if losses.len() > 5 {
        found = found.and(format_args!("; and {} more", losses.len() - 5));
    }
    Error::mismatch("loss-denied", message).found_phrase(found)
}
