//! Edits into a new file.

use super::apply::apply_with_progress;
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

/// Options of an edit: rules, and how to write the result.
#[derive(Debug, Clone, Default)]
pub struct EditOptions {
    /// How to open the source.
    pub open: OpenOptions,
    /// The rules, in order.
    pub rules: Vec<Rule>,
    /// Note a rule that matches nothing, instead of failing.
    pub lenient: bool,
    /// The id of the target's format; by default that of the target's extension, or else of the source.
    pub to: Option<String>,
    /// The kind within the format.
    pub kind: Option<String>,
    /// Values of the format's settings, by name.
    pub settings: Vec<(String, String)>,
    /// Fail where something would be lost.
    pub deny_loss: bool,
    /// Replace the target if it exists.
    pub force: bool,
    /// How to run the plan.
    pub run: RunOptions,
}

/// Planned edit.
#[derive(Debug)]
pub struct Prepared {
    /// Changes of the edit.
    pub report: EditReport,
    /// The write plan.
    pub plan: WritePlan,
    /// The index after the edit; for a new file only with the tensors that have a pending cast.
    pub checkpoint: Checkpoint,
}

/// Opens `source`, applies the rules, and plans `target`. Nothing is written.
///
/// # Errors
/// Errors of opening, [`apply`](super::apply()) and planning; [`crate::Kind::Usage`], `unknown-extension`, where neither the
/// target's name nor the options determine its format; for the target as [`LocalSink::check_plan`], and `output-is-input`
/// where it is one of several input files.
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

/// Writes a planned edit, all or nothing, and adds the effects of casts to its report.
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
    /// Reads the tensors with a pending cast and adds its effects to the report, for a dry run.
    ///
    /// # Errors
    /// Errors of reading the tensors.
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
    let applied = apply_with_progress(&mut after, &options.rules, options.lenient, &*options.run.progress)?;
    // Before planning, so that the memory of the old index can be freed.
    let changes = tensor_changes(&before, &after, &applied);
    let metadata = metadata_changes(&before, &after);
    let (source, mut notes) = (before.label, before.notes);
    drop(before.tensors);
    let count = after.tensors.len();
    // In place, all tensors are compared after writing; otherwise only casts are read again.
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

/// Returns the options with which [`plan_checkpoint`] plans an edit: the rules are already applied.
pub(super) fn convert_options(options: &EditOptions, settings: Vec<(String, String)>) -> ConvertOptions {
    ConvertOptions { open: options.open.clone(), settings, ..ConvertOptions::default() }
}

/// Plans in that form. Where the kind of the source can only be read, the format chooses another kind.
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

/// File kind to write.
#[derive(Debug, Clone)]
pub(super) enum Kind {
    /// The kind that the caller or the name of the target requests.
    Asked(Option<String>),
    /// The kind of the source.
    AsIs(String),
}

/// Returns format and kind of the target: those of its extension, or without an extension those of the source. An unknown
/// extension is an error, unless the source has the same one or is a folder.
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

/// Fails for an edit without rules.
pub(super) fn check_asked(options: &EditOptions) -> Result<()> {
    if options.rules.is_empty() && options.settings.is_empty() {
        return Err(Error::usage("nothing-to-edit", "no rules and no settings to apply"));
    }
    Ok(())
}
