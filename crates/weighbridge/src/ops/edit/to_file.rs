//! Edits into a new file.

use super::apply::apply_watched;
use super::report::{EditMode, EditReport, metadata_changes, tensor_changes};
use super::{Rule, cast_reports};
use crate::checkpoint::Checkpoint;
use crate::engine::{LocalSink, RunOptions};
use crate::error::{Error, Result};
use crate::formats::{self, Format, OpenOptions};
use crate::ops::{ConvertOptions, Inputs, plan_checkpoint, save};
use crate::plan::WritePlan;
use crate::source::PathKind;
use std::path::Path;
use weighbridge_core::ErrorCode;

/// What to change, and how to write it.
#[derive(Debug, Clone, Default)]
pub struct EditOptions {
    /// How to open the source.
    pub open: OpenOptions,
    /// The rules, in order.
    pub rules: Vec<Rule>,
    /// Go on where a rule fits nothing, and note it.
    pub lenient: bool,
    /// The id of the target's format; told from the target's extension, or else the source's own.
    pub to: Option<String>,
    /// The kind within the format.
    pub kind: Option<String>,
    /// Values of the format's settings, by name.
    pub settings: Vec<(String, String)>,
    /// Refuse when something would be lost.
    pub deny_loss: bool,
    /// Replace the target if it exists.
    pub force: bool,
    /// How to run the plan.
    pub run: RunOptions,
}

/// An edit that was planned.
#[derive(Debug)]
pub struct Prepared {
    /// What it changes.
    pub report: EditReport,
    /// What it writes.
    pub plan: WritePlan,
    /// The index after the edit; of what is written anew, with those tensors alone that are cast.
    pub checkpoint: Checkpoint,
}

/// Opens `source`, applies the rules, and plans `target`. Nothing is written.
///
/// # Errors
/// What opening, [`apply`](super::apply()) and planning say; [`crate::Kind::Usage`], `unknown-extension`, where neither the target's
/// name nor the options say which form it shall have; for the target as [`LocalSink::check_plan`], and
/// `output-is-input` where it is one of several files that are read.
pub fn prepare(source: &Path, target: &Path, options: &EditOptions) -> Result<Prepared> {
    LocalSink::check(target, options.force)?;
    let checkpoint = formats::open_with(source, &options.open)
        .map_err(|error| formats::registry().offer_salvage(error, source, &options.open))?;
    let inputs = Inputs::of(&checkpoint, target).and_named(&options.open)?;
    let (format, kind) = target_form(source, target, &checkpoint, options)?;
    let prepared =
        plan_edit(checkpoint, options, EditMode::NewFile, &target.display().to_string(), |edited| {
            let options = convert_options(options, options.settings.clone());
            plan_form(edited, format, kind, &options)
        })?;
    inputs.check(source, target, &prepared.plan)?;
    LocalSink::check_plan(&prepared.plan, target, options.force)?;
    Ok(prepared)
}

/// Writes what was prepared, all or nothing, and completes its report with what the casts did.
///
/// # Errors
/// As [`save`].
pub fn write(prepared: &mut Prepared, target: &Path, options: &EditOptions) -> Result<()> {
    let report = save(&prepared.plan, target, options.force, &options.run)?;
    prepared.report.casts = report.casts;
    prepared.report.bytes = report.bytes;
    Ok(())
}

/// Edits `source` into the new file or folder `target`.
///
/// # Errors
/// As [`prepare`] and [`write()`].
pub fn edit(source: &Path, target: &Path, options: &EditOptions) -> Result<EditReport> {
    let mut prepared = prepare(source, target, options)?;
    write(&mut prepared, target, options)?;
    Ok(prepared.report)
}

impl Prepared {
    /// Reads what is to be cast, and puts what that would do into the report: for those who do not write.
    ///
    /// # Errors
    /// What reading the tensors says.
    pub fn measure_casts(&mut self, threads: usize) -> Result<()> {
        self.report.casts = cast_reports(&self.checkpoint, threads)?;
        Ok(())
    }
}

/// Applies the rules and plans with `plan`.
pub(super) fn plan_edit(
    before: Checkpoint,
    options: &EditOptions,
    how: EditMode,
    target: &str,
    plan: impl FnOnce(Checkpoint) -> Result<WritePlan>,
) -> Result<Prepared> {
    let mut after = before.clone();
    let applied = apply_watched(&mut after, &options.rules, options.lenient, &*options.run.progress)?;
    // Before planning, so that what was before need not be in memory any more.
    let changes = tensor_changes(&before, &after, &applied);
    let metadata = metadata_changes(&before, &after);
    let (source, mut notes) = (before.label, before.notes);
    drop(before.tensors);
    let count = after.tensors.len();
    // In place, what was written is compared with all of it; otherwise only what is cast is looked at again.
    let kept = match how {
        EditMode::Header => after.clone(),
        EditMode::NewFile | EditMode::Rewrite => {
            let tensors = std::mem::take(&mut after.tensors);
            let casts = tensors.iter().filter(|tensor| tensor.cast.is_some()).cloned().collect();
            let kept = Checkpoint { tensors: casts, ..after.clone() };
            after.tensors = tensors;
            kept
        }
    };
    let mut plan = plan(after)?;
    plan.losses.extend(applied.losses.iter().cloned());
    if options.deny_loss && !plan.losses.is_empty() {
        return Err(crate::ops::convert::denied(&plan.losses));
    }
    notes.extend(applied.notes.iter().cloned());
    let report = EditReport {
        source,
        target: target.to_owned(),
        how,
        format: plan.format,
        kind: plan.kind,
        tensors: count,
        changes,
        metadata,
        casts: std::collections::BTreeMap::new(),
        losses: plan.losses.clone(),
        notes,
        bytes: plan.bytes(),
    };
    Ok(Prepared { report, plan, checkpoint: kept })
}

/// How [`plan_checkpoint`] plans an edit: the rules were applied already.
pub(super) fn convert_options(options: &EditOptions, settings: Vec<(String, String)>) -> ConvertOptions {
    ConvertOptions { open: options.open.clone(), settings, ..ConvertOptions::default() }
}

/// Plans in that form; a kind that is read and not written is left to the format to choose.
pub(super) fn plan_form(
    checkpoint: Checkpoint,
    format: &'static dyn Format,
    kind: Kind,
    options: &ConvertOptions,
) -> Result<WritePlan> {
    match kind {
        Kind::Asked(kind) => plan_checkpoint(checkpoint, format, kind, options),
        Kind::AsIs(kind) => match plan_checkpoint(checkpoint.clone(), format, Some(kind), options) {
            Err(error) if error.code() == ErrorCode::UnknownKind => {
                plan_checkpoint(checkpoint, format, None, options)
            }
            planned => planned,
        },
    }
}

/// The kind of file to write.
#[derive(Debug, Clone)]
pub(super) enum Kind {
    /// What the caller or the name of the target says.
    Asked(Option<String>),
    /// That of the source.
    AsIs(String),
}

/// Format and kind of the target: what its extension says, or without one those of the source. An extension that
/// means nothing is no wish for the source's form, unless the source has the same one, or is a folder.
fn target_form(
    source: &Path,
    target: &Path,
    checkpoint: &Checkpoint,
    options: &EditOptions,
) -> Result<(&'static dyn Format, Kind)> {
    let is_own = target.extension().is_none_or(|extension| source.extension() == Some(extension))
        || PathKind::of(source)? == PathKind::Folder;
    let (format, by_name) = match (&options.to, formats::registry().by_extension(target)) {
        (Some(id), by_name) => (formats::registry().by_id(id)?, by_name.ok()),
        (None, Ok(by_name)) => (by_name.0, Some(by_name)),
        (None, Err(_)) if is_own => (formats::registry().by_id(checkpoint.format)?, None),
        (None, Err(error)) => return Err(error),
    };
    let named = by_name.filter(|(other, _)| other.info().id == format.info().id).map(|(_, kind)| kind);
    let kind = match (&options.kind, named) {
        (Some(kind), _) => Kind::Asked(Some(kind.clone())),
        (None, Some(kind)) => Kind::Asked(Some(kind.to_owned())),
        (None, None) if format.info().id == checkpoint.format => Kind::AsIs(checkpoint.kind.to_owned()),
        (None, None) => Kind::Asked(None),
    };
    Ok((format, kind))
}

/// The error of an edit without rules.
pub(super) fn check_asked(options: &EditOptions) -> Result<()> {
    if options.rules.is_empty() && options.settings.is_empty() {
        return Err(Error::usage("nothing-to-edit", "no rule says what to change"));
    }
    Ok(())
}
