//! Files beside a model in its folder: configuration, tokenizer.

use crate::checkpoint::{Checkpoint, Loss, Note};
use crate::error::{Error, Result};
use crate::formats::{Format, registry};
use crate::plan::{FileBuilder, WritePlan};
use crate::source::{FolderRef, LocalFolder, PathKind};
use crate::text::{escape, first_and_more, path_text};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weighbridge_core::phrase;
use weighbridge_core::phrase::Opt;

/// Number of names that a note lists before it counts the rest.
const NAMED: usize = 8;
/// Stem of a model in the formats without a name of their own: `pytorch_model.bin` is `model.safetensors`.
const MODEL: &str = "model";

/// Other files of a folder.
pub(super) struct Others {
    folder: FolderRef,
    names: Vec<PathBuf>,
}

impl Others {
    /// Returns the files beside the model `checkpoint` opened from the folder `source`; `None` where `source` is a file.
    ///
    /// # Errors
    /// Errors of listing.
    pub(super) fn of(source: &Path, checkpoint: &Checkpoint) -> Result<Option<Self>> {
        if PathKind::of(source)? != PathKind::Folder {
            return Ok(None);
        }
        let folder: FolderRef = Arc::new(LocalFolder::open(source)?);
        let names = registry().files_beside(&folder, checkpoint)?;
        Ok(Some(Self { folder, names }))
    }

    /// Returns the note that these files are not copied.
    pub(super) fn note(&self) -> Option<Note> {
        let names = self.names.iter().map(|name| escape(&name.display().to_string()));
        let text = phrase![
            format_args!("not copied: {}; ", first_and_more(names, NAMED)),
            Opt::CopyOthers,
            " copies them"
        ];
        (!self.names.is_empty()).then(|| Note::new("other-files", text))
    }

    /// Adds the files to `plan`, which then writes a folder. Files that the plan writes itself are not copied.
    ///
    /// # Errors
    /// [`crate::Kind::Io`] where one cannot be opened.
    pub(super) fn add_to(&self, plan: &mut WritePlan, format: &dyn Format, label: &str) -> Result<()> {
        if plan.is_one_file() {
            for file in &mut plan.files {
                file.name = model_name(format, label);
            }
        }
        let written: HashSet<String> = plan.files.iter().map(|file| file.name.clone()).collect();
        for name in &self.names {
            let source = self.folder.open(name)?;
            match (name.to_str(), source) {
                (Some(text), _) if written.contains(text) => {}
                (Some(text), Some(source)) => plan.files.push(FileBuilder::copy_of(text, &source)),
                (None, _) => plan.losses.push(not_copied(name, "its name is not UTF-8")),
                (_, None) => plan.losses.push(not_copied(name, "it is no longer there")),
            }
        }
        Ok(())
    }
}

fn not_copied(name: &Path, reason: &str) -> Loss {
    Loss::new("companion", escape(&path_text(name)), format!("not copied: {reason}"))
}

/// Returns the name that loaders expect for the single file of a model opened from the file or folder `label`.
fn model_name(format: &dyn Format, label: &str) -> String {
    let facts = format.info();
    let path = Path::new(label);
    let own =
        registry().by_extension(path).is_ok() || path.extension().is_some_and(|extension| extension == "bin");
    let stem = path.file_stem().and_then(|stem| stem.to_str()).filter(|_| own).unwrap_or(MODEL);
    let loaded_as = |format: &dyn Format| format.writer().and_then(|writer| writer.loaded_as());
    let is_usual = |stem| registry().iter().any(|other| loaded_as(other).is_some_and(|(own, _)| own == stem));
    let stem = if is_usual(stem) { MODEL } else { stem };
    match (loaded_as(format), stem) {
        (Some((stem, extension)), MODEL) => format!("{stem}.{extension}"),
        _ => match facts.extensions.first() {
            Some((extension, _)) => format!("{stem}.{extension}"),
            None => stem.to_owned(),
        },
    }
}

/// Fails unless `source` and `target` are folders, as copying other files requires.
///
/// # Errors
/// [`crate::Kind::Usage`], `copy-others`.
pub(super) fn check_folders(source: &Path, target: &Path) -> Result<()> {
    let fail = |path: &Path, expected: &str| {
        Err(Error::usage("copy-others", "other files can be copied only from one folder to another")
            .in_file(path.display())
            .expected(expected)
            .hint(phrase!["use two folders, or remove ", Opt::CopyOthers]))
    };
    if PathKind::of(source)? != PathKind::Folder {
        return fail(source, "a folder to read");
    }
    let is_folder = PathKind::of(target).is_ok_and(|kind| kind == PathKind::Folder);
    if registry().by_extension(target).is_ok() && !is_folder {
        return fail(target, "the name of a folder to write, without a file extension");
    }
    Ok(())
}
