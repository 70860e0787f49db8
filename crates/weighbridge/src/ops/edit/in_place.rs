//! Edits of the file that is there.

use super::report::{EditReport, How};
use super::to_file::{Kind, Prepared, check_asked, convert_options, plan_edit, plan_form};
use super::{EditOptions, overlay};
use crate::engine::patch::{Fingerprint, LocalPatchDisk, Patch, PatchDisk, find, record_path, write_patch};
use crate::error::{Error, Result};
use crate::formats;
use crate::ops::save;
use crate::source::{FileSource, SourceRef};
use std::path::Path;
use std::sync::Arc;

/// What may be done to the file that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum InPlace {
    /// Only what stands around the tensors is written; an undo record stays.
    #[default]
    Header,
    /// A new file, or folder, takes the place of the old one when it is whole.
    Rewrite,
}

/// Losses that do not take anything away that the source has: what was asked for, and what holds of the
/// source too.
const HARMLESS: [&str; 2] = ["rounding", "recent-dtype"];

/// An edit in place that was planned.
#[derive(Debug)]
pub struct PreparedInPlace {
    /// What it changes and writes.
    pub edit: Prepared,
    /// What is written where only that is; `None` for a new file.
    pub patch: Option<Patch>,
    /// How the file was when it was opened.
    seen: Option<Fingerprint>,
}

/// Opens the file, applies the rules, and finds what must be written. Nothing is written.
///
/// # Errors
/// What opening and [`apply`](super::apply()) say; [`crate::Kind::Mismatch`]: `data-would-move` where the tensors
/// cannot stay, `no-room` where the header cannot grow, `loss-denied` where the file holds what would not be
/// written again, `not-held` where the form has no place for what the rules say, `belongs-to-a-program`; [`crate::Kind::Usage`]: `link`, `several-names`, `read-only`,
/// `undo-exists`.
pub fn prepare_in_place(path: &Path, how: InPlace, options: &EditOptions) -> Result<PreparedInPlace> {
    check_asked(options)?;
    let seen = match how {
        InPlace::Header => Some(look(path)?),
        InPlace::Rewrite => None,
    };
    let checkpoint = formats::open_with(path, &options.open)?;
    if checkpoint.topology.is_some() {
        return Err(Error::mismatch(
            "belongs-to-a-program",
            "these tensors belong to a program, which would not follow",
        )
        .in_file(path.display())
        .hint("write both anew: weighbridge edit SRC DST, or weighbridge program --rename"));
    }
    let format = formats::by_id(checkpoint.format)?;
    let kind = Kind::AsIs(checkpoint.kind.to_owned());
    let mut settings = options.settings.clone();
    if how == InPlace::Header {
        settings.extend(format.settings_in_place(&checkpoint));
    }
    let word = if how == InPlace::Header { How::Header } else { How::Rewrite };
    let label = path.display().to_string();
    let planned = plan_edit(checkpoint, options, word, &label, |edited| {
        plan_form(edited, format, kind, &convert_options(options, settings))
    });
    let mut edit = planned.map_err(|error| advise(error, how))?;
    let taken: Vec<_> =
        edit.plan.losses.iter().filter(|loss| !HARMLESS.contains(&loss.code)).cloned().collect();
    if !taken.is_empty() {
        let error = crate::ops::convert::denied(&taken);
        return Err(error.in_file(label).hint("in place nothing may be lost: write a new file instead"));
    }
    let patch = match how {
        InPlace::Rewrite => None,
        InPlace::Header => {
            let old: SourceRef = Arc::new(FileSource::open(path)?);
            let patch = find(&edit.plan, &old, &options.run).map_err(|e| advise(e.in_file(&label), how))?;
            overlay::check(&edit, &patch, &old, path, &options.open)?;
            edit.report.bytes = patch.bytes();
            Some(patch)
        }
    };
    Ok(PreparedInPlace { edit, patch, seen })
}

/// Looks whether the file may be written into, and that no undo record is in the way.
fn look(path: &Path) -> Result<Fingerprint> {
    let seen = Fingerprint::of(path)?;
    let record = record_path(path);
    if LocalPatchDisk.exists(&record) {
        return Err(Error::usage("undo-exists", "the undo record of an earlier edit is still there")
            .in_file(record.display())
            .hint("take that edit back with --undo, or keep it for good with --forget-undo"));
    }
    Ok(seen)
}

/// Says what else can be done where tensors cannot stay.
fn advise(error: Error, how: InPlace) -> Error {
    match error.code() {
        "data-would-move" | "patch-too-large" | "one-file" | "no-room" if how == InPlace::Header => {
            error.hint("--in-place=rewrite puts a new file in the place of the old one when it is whole")
        }
        _ => error,
    }
}

/// Writes what was prepared for `path`.
///
/// # Errors
/// As [`write_patch`], or as [`save`].
pub fn write_in_place(prepared: &mut PreparedInPlace, path: &Path, options: &EditOptions) -> Result<()> {
    if let (Some(patch), Some(seen)) = (&prepared.patch, &prepared.seen) {
        return write_patch(&LocalPatchDisk, path, seen, patch);
    }
    let report = save(&prepared.edit.plan, path, true, &options.run)?;
    prepared.edit.report.casts = report.casts;
    prepared.edit.report.bytes = report.bytes;
    Ok(())
}

/// Edits the file that is there.
///
/// # Errors
/// As [`prepare_in_place`] and [`write_in_place`].
pub fn edit_in_place(path: &Path, how: InPlace, options: &EditOptions) -> Result<EditReport> {
    let mut prepared = prepare_in_place(path, how, options)?;
    write_in_place(&mut prepared, path, options)?;
    Ok(prepared.edit.report)
}
