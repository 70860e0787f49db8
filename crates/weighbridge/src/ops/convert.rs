//! Conversion of a checkpoint to another format.

mod changes;
#[cfg(feature = "onnx")]
mod graph_check;
mod like;
mod others;
mod ties;
mod versions;
mod written;

pub use changes::Changes;
#[cfg(feature = "onnx")]
pub use graph_check::GraphCheck;

use crate::checkpoint::{Checkpoint, Loss, Note, TransformReport};
use crate::engine::{LocalSink, RunOptions, RunReport, run};
use crate::error::{Error, Result};
use crate::formats::{self, Format, OpenOptions, PlanOptions, RowNameSupport};
use crate::ops::inputs::Inputs;
use crate::plan::WritePlan;
use crate::source::{PathKind, real_path};
use crate::tensor::Order;
use crate::text::{counted, first_and_more};
use others::Others;
use std::path::{Path, PathBuf};
use ties::Ties;
use weighbridge_core::phrase::{Opt, Phrase};
use weighbridge_core::{LossCode, NoteCode, phrase};
pub use written::Written;

/// Losses without loss of data: requested rounding, and restrictions that already apply to the source.
const HARMLESS: [LossCode; 3] = [LossCode::Rounding, LossCode::RecentDtype, LossCode::Renamed];

/// Options of a conversion: format, changes, limits on losses.
///
/// ```
/// # fn main() -> weighbridge::Result<()> {
/// # let path = weighbridge_testkit::testdata("primitiv/good/trained/trained_xor_a.model");
/// # let folder = tempfile::tempdir().unwrap();
/// # let target = folder.path().join("xor.safetensors");
/// use weighbridge::ops::{Changes, ConvertOptions, convert};
/// use weighbridge::tensor::DType;
///
/// let changes = Changes { cast: Some(DType::BF16), ..Changes::default() };
/// let options = ConvertOptions { changes, ..ConvertOptions::default() };
/// let (plan, report) = convert(&path, &target, &options)?;
/// println!("{} bytes written, {} losses", report.bytes, plan.losses.len());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct ConvertOptions {
    /// How to open the source.
    pub open: OpenOptions,
    /// The id of the target's format; by the extension of the target where `None`.
    pub to: Option<String>,
    /// The kind within the format; by the extension, or chosen by the format, where `None`.
    pub kind: Option<String>,
    /// Values of the target format's [settings](crate::formats::FormatInfo::settings), by name.
    pub settings: Vec<(String, String)>,
    /// Omit Weighbridge's own entries; see [`PlanOptions::plain`].
    pub plain: bool,
    /// Model whose layout, names and metadata the target has, with the tensors of the source.
    pub like: Option<PathBuf>,
    /// Copy the other files of the source folder into the target folder: configuration, tokenizer.
    pub copy_others: bool,
    /// Changes to the index before it is written.
    pub changes: Changes,
    /// Seed of generated values: rows of entities that an imported table does not have.
    pub seed: u64,
    /// Fail where the target cannot represent everything.
    pub deny_loss: bool,
    /// Replace the target if it exists.
    pub force: bool,
    /// Include the other checkpoints in the folder of the source, such as earlier versions, where the format supports that. They
    /// are losses otherwise.
    pub all_versions: bool,
    /// How to run the plan.
    pub run: RunOptions,
}

/// Opens `source` and plans its conversion to `target`. Nothing is written; the target is checked as far as possible.
///
/// # Errors
/// Errors of opening, changing and planning; `loss-denied` where something would be lost and losses are denied; for the
/// target, as [`LocalSink::check_plan`]; `output-is-input` where the target is one of several input files.
pub fn plan(
    source: impl AsRef<Path>,
    target: impl AsRef<Path>,
    options: &ConvertOptions,
) -> Result<WritePlan> {
    prepare(source, target, options).map(|(plan, _)| plan)
}

/// As [`plan`], with the notes of the reader.
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

/// As [`prepare`], with the names of the replaced files where the target is the folder `source` itself; none unless `own`.
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

/// As [`prepare`], for an opened checkpoint; `source` is its path, if it has one.
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

/// Target format, and its kind where the target's name or the options determine it.
type Form = (&'static dyn Format, Option<String>);

/// Determines the form of the target. An unwritable target is reported before any work.
fn check_target(source: Option<&Path>, target: &Path, options: &ConvertOptions) -> Result<Form> {
    LocalSink::check(target, options.force)?;
    match source {
        None if options.copy_others => {
            Err(Error::usage("copy-others", "other files can be copied only from an opened folder")
                .hint("remove that option"))
        }
        Some(source) if options.copy_others => {
            others::check_folders(source, target)?;
            // The folder of a transformers model has no extension to detect the format by.
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
    if let Some(like) = &options.like {
        like::check_apart(like, target)?;
    }
    let mut notes = checkpoint.notes.clone();
    notes.extend(other_extension(target, format));
    let has_state =
        checkpoint.tensors.iter().any(|t| t.role.is_state()) || notes.iter().any(Note::is_of_state);
    // The model to fill may recognize more.
    if options.changes.no_state && !has_state && options.like.is_none() {
        let text = phrase![
            "no tensor is recognized as optimizer state, so none was dropped: ",
            Opt::Drop,
            " takes patterns"
        ];
        notes.push(Note::new("no-state-known", text));
    }
    let others = match source.map(|source| Others::of(source, &checkpoint)).transpose() {
        _ if own => None,
        // Without copying, the list is only for a note.
        Err(_) if !options.copy_others => None,
        others => others?.flatten(),
    };
    // The opened checkpoint without its tensors: there may be millions.
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

/// Opens `source` and writes it to `target`: to a file, or to a folder where the format has several files.
///
/// # Errors
/// As [`plan`], and errors of the engine. The target is then unchanged.
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

/// Writes a plan to the file or folder `target`, all or nothing. This saves a model that was made or changed in memory.
///
/// # Errors
/// As [`LocalSink::for_plan`], and errors of the engine.
pub fn save(
    plan: &WritePlan,
    target: impl AsRef<Path>,
    replace: bool,
    options: &RunOptions,
) -> Result<RunReport> {
    run(plan, &LocalSink::for_plan(plan, target, replace)?, options)
}

/// As [`save`], in place of a folder whose files `names` hold the data being written.
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

/// Returns the names of the files in the folder `source` that back `checkpoint`, where `target` is the same folder; none for
/// another target.
///
/// # Errors
/// Errors of listing.
pub(super) fn backing_files(source: &Path, target: &Path, checkpoint: &Checkpoint) -> Result<Vec<PathBuf>> {
    match (real_path(source), real_path(target)) {
        (Some(one), Some(other)) if one == other && PathKind::of(source)? == PathKind::Folder => {
            formats::backing_files(source, checkpoint)
        }
        _ => Ok(Vec::new()),
    }
}

/// Plans an opened checkpoint; the second half of [`plan`].
///
/// For a salvaged checkpoint, each missing tensor is a loss, `missing-damaged`; these come first.
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

/// As [`plan_checkpoint`]. Notes on the changes are appended to `notes`.
fn plan_noting(
    mut checkpoint: Checkpoint,
    format: &dyn Format,
    kind: Option<String>,
    options: &ConvertOptions,
    notes: &mut Vec<Note>,
) -> Result<WritePlan> {
    let label = checkpoint.label.clone();
    if checkpoint.damage.is_some() && checkpoint.tensors.is_empty() {
        return Err(
            Error::mismatch("nothing-intact", "no tensor of the damaged file is intact").in_file(label)
        );
    }
    let build = || {
        if options.changes.reverse_dims && format.info().order == Some(Order::Column) {
            return Err(Error::usage(
                "reverse-dims",
                "the target is column-major, so no dimensions are reversed",
            )
            .hint(phrase!["remove ", Opt::ReverseDims]));
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
        let missing = checkpoint.damage.as_ref().map(|damage| damage.losses(checkpoint.tensors.len()));
        let missing = missing.unwrap_or_default();
        notes.extend(report.notes);
        let mut losses = report.losses;
        let is_restored = !options.changes.reverse_dims && format.info().order == Some(Order::Column);
        if let Some(like) = &options.like {
            if is_restored {
                checkpoint.restore_dims();
            }
            checkpoint = like::fill(checkpoint, like, &options.open, options.changes.no_state)?;
        }
        losses.extend(writer.adapt(&mut checkpoint, &settings, &options.open, options.seed)?);
        match writer.labels_in() {
            RowNameSupport::Column => {}
            RowNameSupport::Tensors => formats::spread_labels(&mut checkpoint)?,
            RowNameSupport::Nowhere => losses.extend(formats::drop_labels(&mut checkpoint)),
        }
        if is_restored {
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

/// Returns the loss for guessed tensors: another format cannot mark them as guesses.
fn guesses(checkpoint: &Checkpoint, plan: &WritePlan) -> Option<Loss> {
    let dtypes = checkpoint.tensors.iter().filter(|t| t.guessed).map(|t| t.stored);
    let guessed = dtypes.clone().count();
    let same_form = plan.format == checkpoint.format && plan.kind == checkpoint.kind;
    (guessed > 0 && !same_form).then(|| {
        let subject = counted(guessed, "tensor", "tensors");
        if checkpoint.notes.iter().any(|note| note.code == NoteCode::DtypeGuessed) {
            let mut others = dtypes;
            let detail = match others.next().filter(|first| others.all(|other| other == *first)) {
                Some(dtype) => format!("{dtype} was guessed from text; other programs cannot tell that it is a guess"),
                None => "dtypes were guessed from text; other programs cannot tell that these are guesses".to_owned(),
            };
            return Loss::new("guessed-dtype", subject, detail);
        }
        let detail = match checkpoint.notes.iter().any(|note| note.code == NoteCode::NoNames) {
            true => "numbered, since the source has no names; other programs cannot tell that these are not the real names",
            false => "marked as guessed in the source: names, dtypes or layouts; other programs cannot tell that these are guesses",
        };
        Loss::new("guessed-names", subject, detail)
    })
}

/// Returns the format of `target`, and its kind where its name or the options determine it.
///
/// # Errors
/// [`crate::Kind::Usage`] where neither the name nor the options determine the format.
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

/// Returns a note if the extension of `target` is that of another format.
fn other_extension(target: &Path, format: &dyn Format) -> Option<Note> {
    let extension = target.extension()?.to_str()?.to_ascii_lowercase();
    let (other, _) = formats::registry().by_extension(target).ok()?;
    if format.info().extensions.iter().any(|(own, _)| *own == extension) {
        return None;
    }
    let text = format!(
        "the output has the extension of {}, but its format is {}",
        other.info().id,
        format.info().id
    );
    Some(Note::new(NoteCode::OtherExtension, text))
}

/// Returns the error for denied losses.
pub(super) fn denied(losses: &[Loss]) -> Error {
    lost(losses, "the conversion would lose data, and losses are denied").hint(phrase![
        "remove ",
        Opt::DenyLoss,
        " to continue and report these losses"
    ])
}

/// Fails where an in-place rewrite would lose data of the source.
pub(super) fn check_nothing_lost(losses: &[Loss]) -> Result<()> {
    let taken: Vec<_> = losses.iter().filter(|loss| !HARMLESS.contains(&loss.code)).cloned().collect();
    if taken.is_empty() {
        return Ok(());
    }
    Err(lost(
        &taken,
        match taken.iter().any(Loss::is_tensor) {
            true => "an edit in place must keep every tensor",
            false => "an edit in place must keep all data",
        },
    ))
}

/// As [`denied`], with another message and without a hint.
fn lost(losses: &[Loss], message: &str) -> Error {
    // Losses of one code and detail are a group.
    let mut groups: Vec<(&Loss, Vec<&str>)> = Vec::new();
    let mut more = 0;
    for loss in losses {
        let same = |first: &Loss| first.code == loss.code && first.detail == loss.detail;
        match groups.iter().position(|(first, _)| same(first)) {
            Some(place) => groups[place].1.push(&loss.subject),
            None if groups.len() < 5 => groups.push((loss, vec![&loss.subject])),
            None => more += 1,
        }
    }
    let mut found = Phrase::default();
    for (place, (loss, subjects)) in groups.iter().enumerate() {
        let gap = if place > 0 { "; " } else { "" };
        let subjects = first_and_more(subjects, 5);
        found = found.and(format_args!("{gap}{}: {subjects}: ", loss.code)).and(&loss.detail);
    }
    if more > 0 {
        found = found.and(format_args!("; and {more} more"));
    }
    Error::mismatch("loss-denied", message).found_phrase(found)
}
