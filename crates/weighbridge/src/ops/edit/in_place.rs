//! Edits of an existing file.

use super::report::EditMode;
use super::to_file::{Kind, Prepared, check_asked, convert_options, plan_edit, plan_form};
use super::{EditOptions, overlay};
use crate::checkpoint::{Checkpoint, escape_text};
use crate::engine::LocalSink;
use crate::engine::patch::{Fingerprint, LocalPatchDisk, Patch};
use crate::error::{Error, Result};
use crate::formats::{self, FolderModel};
use crate::ops::convert::{backing_files, check_nothing_lost, save_replacing};
use crate::source::{FileSource, FolderRef, LocalFolder, PathKind, SourceRef, real_path};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weighbridge_core::phrase::{Job, Opt};
use weighbridge_core::{ErrorCode, phrase};

/// Extent of an edit in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum InPlace {
    /// Only bytes around the tensors are written; an undo record remains.
    #[default]
    Header,
    /// A new file or folder replaces the old one when it is complete.
    Rewrite,
}

/// Planned edit in place.
#[derive(Debug)]
pub struct PreparedInPlace {
    /// The planned edit.
    pub edit: Prepared,
    /// The bytes to change; `None` where a new file is written.
    pub patch: Option<Patch>,
    /// Files of a folder that the new ones replace.
    replaced: Vec<PathBuf>,
    /// Fingerprint of the file when it was opened.
    seen: Option<Fingerprint>,
}

/// Opens the file, applies the rules, and plans the changes. Nothing is written.
///
/// # Errors
/// Errors of opening and [`apply`](super::apply()); [`crate::Kind::Mismatch`]: `data-would-move` where the tensors would
/// move, `no-room` where the header cannot grow, `loss-denied` where the rewrite would lose something, `not-held` where the
/// format cannot store the result, `belongs-to-a-program`; [`crate::Kind::Usage`]: `link`, `several-names`, `read-only`,
/// `undo-exists`, `belongs-to-a-model`.
pub fn prepare_in_place(path: &Path, how: InPlace, options: &EditOptions) -> Result<PreparedInPlace> {
    check_asked(options)?;
    let folder = model_of_folder(path, options)?;
    let seen = match how {
        InPlace::Header => Some(Fingerprint::of(path)?),
        InPlace::Rewrite => None,
    };
    check_alone(path, options)?;
    // An edit in place must not lose anything, so the intact rest of a damaged file can only go to another file.
    let elsewhere = |error: Error| match error.kind() {
        crate::Kind::Corrupt => error.hint_too(phrase![
            Job::Convert.brief().with(Opt::Salvage),
            " writes the intact tensors to a new file"
        ]),
        _ => error,
    };
    let checkpoint = match &folder {
        None => formats::open_with(path, &options.open).map_err(elsewhere)?,
        Some((folder, model)) => {
            let (checkpoint, opened) =
                model.open(formats::registry(), folder, &options.open).map_err(elsewhere)?;
            check_whole(folder, &opened)?;
            checkpoint
        }
    };
    if checkpoint.topology.as_ref().is_some_and(|program| !program.has_tensors()) {
        return Err(Error::mismatch(
            "belongs-to-a-program",
            "the tensors belong to a program, which an edit in place does not change",
        )
        .in_file(path.display())
        .hint(phrase![
            "write both to a new target: ",
            Job::Edit.call().of(&["SRC", "DST"]),
            ", or ",
            Job::Program.call().with(Opt::Rename)
        ]));
    }
    let format = formats::registry().by_id(checkpoint.format)?;
    let kind = Kind::AsIs(checkpoint.kind.to_owned());
    let mut settings = options.settings.clone();
    if how == InPlace::Header {
        settings.extend(format.required_writer()?.settings_in_place(&checkpoint));
    } else {
        let mut own = format.required_writer()?.sharding_settings(&checkpoint);
        own.retain(|(name, _)| options.settings.iter().all(|(given, _)| given != name));
        settings.extend(own);
    }
    let replaced = match how {
        InPlace::Header => Vec::new(),
        InPlace::Rewrite => backing_files(path, path, &checkpoint)?,
    };
    let word = if how == InPlace::Header { EditMode::Header } else { EditMode::Rewrite };
    let label = path.display().to_string();
    let planned = plan_edit(checkpoint, options, word, &label, |edited| {
        if how == InPlace::Header {
            check_uncast(&edited)?;
        }
        plan_form(edited, format, kind, &convert_options(options, settings))
    });
    let mut edit = planned.map_err(|error| advise(error, how))?;
    check_nothing_lost(&edit.plan.losses).map_err(|error| {
        error.in_file(&label).hint(match options.open.salvage {
            true => phrase![
                "write the intact tensors to a new file: ",
                Job::Edit.brief().of(&["SRC", "DST"]).with(Opt::Salvage)
            ],
            false => "write a new file to see every loss".into(),
        })
    })?;
    let patch = match how {
        InPlace::Rewrite => None,
        InPlace::Header => {
            let old: SourceRef = Arc::new(FileSource::open(path)?);
            let patch =
                Patch::find(&edit.plan, &old, &options.run).map_err(|e| advise(e.in_file(&label), how))?;
            overlay::check(&edit, &patch, &old, path, &options.open)?;
            edit.report.bytes = patch.bytes();
            Some(patch)
        }
    };
    if how == InPlace::Rewrite {
        LocalSink::check_plan_replacing(&edit.plan, path, true, &replaced)?;
    }
    Ok(PreparedInPlace { edit, patch, replaced, seen })
}

/// Fails where elements are cast. Checked before planning: more header space, which a plan may request, would not help.
fn check_uncast(edited: &Checkpoint) -> Result<()> {
    match edited.tensors.iter().find(|tensor| tensor.cast.is_some() && tensor.elements() > 0) {
        None => Ok(()),
        Some(tensor) => Err(Error::mismatch(
            "data-would-move",
            format!(
                "cannot edit in place: a cast from {} to {} rewrites the data",
                tensor.stored,
                tensor.dtype()
            ),
        )
        .in_file(&edited.label)
        .on_tensor(tensor.name())),
    }
}

/// Returns the folder at `path` and its model; `None` for a file.
///
/// # Errors
/// As [`check_whole`], and errors of [`Registry::open_folder`](crate::formats::Registry::open_folder).
fn model_of_folder(path: &Path, options: &EditOptions) -> Result<Option<(FolderRef, FolderModel)>> {
    if PathKind::of(path)? != PathKind::Folder {
        return Ok(None);
    }
    let folder: FolderRef = Arc::new(LocalFolder::open(path)?);
    let model = FolderModel::of(formats::registry(), &folder, &options.open)?;
    check_whole(&folder, &model)?;
    Ok(Some((folder, model)))
}

/// Fails where the model is a single file of a folder: that file must be edited instead.
fn check_whole(folder: &FolderRef, model: &FolderModel) -> Result<()> {
    match model {
        FolderModel::Whole(_) => Ok(()),
        FolderModel::File(file) => {
            Err(Error::usage("not-a-file", "the model is a single file in this folder")
                .in_file(folder.label())
                .hint(format_args!("use the path of that file: {}", file.path(folder).display())))
        }
    }
}

/// Fails where the file must not be replaced: while an undo record exists for it, and where it is part of a larger model.
fn check_alone(path: &Path, options: &EditOptions) -> Result<()> {
    let real = real_path(path);
    for path in std::iter::once(path).chain(real.as_deref()) {
        Patch::check_free(&LocalPatchDisk, path)?;
        let Some((folder, name)) = LocalFolder::around(path) else { continue };
        if PathKind::of(path)? == PathKind::Folder {
            continue;
        }
        let folder: FolderRef = Arc::new(folder);
        let Some(name) = name.to_str() else { continue };
        if let Some(list) = weighbridge_format::shards::IndexFiles::with(&folder, name, &options.open.limits)?
        {
            return Err(Error::usage(
                "belongs-to-a-model",
                "the file is one shard of a model, and its index would not follow",
            )
            .in_file(path.display())
            .found(format_args!("listed in {}", escape_text(&list)))
            .hint(phrase![
                "edit the whole folder: ",
                Opt::InPlace.with("rewrite"),
                ", or ",
                Job::Edit.brief().of(&["FOLDER", "DST"])
            ]));
        }
    }
    Ok(())
}

/// Adds a hint about a full rewrite where tensors cannot stay in place.
fn advise(error: Error, how: InPlace) -> Error {
    match error.code() {
        // The hint of `no-room` names the rewrite.
        ErrorCode::DataWouldMove | ErrorCode::PatchTooLarge | ErrorCode::OneFile
            if how == InPlace::Header =>
        {
            error.hint_too(phrase![
                Opt::InPlace.with("rewrite"),
                " writes a new file and replaces the old one when complete"
            ])
        }
        _ => error,
    }
}

/// Writes a planned edit to `path`.
///
/// # Errors
/// As [`Patch::write`], or as [`save`](crate::ops::save).
pub fn write_in_place(prepared: &mut PreparedInPlace, path: &Path, options: &EditOptions) -> Result<()> {
    if let (Some(patch), Some(seen)) = (&prepared.patch, &prepared.seen) {
        return Patch::write(&LocalPatchDisk, path, seen, patch);
    }
    let report = save_replacing(&prepared.edit.plan, path, &prepared.replaced, &options.run)?;
    prepared.edit.report.casts = report.casts;
    prepared.edit.report.bytes = report.bytes;
    Ok(())
}
