//! Registry of formats: detection, and opening of files and folders.

mod detect;
mod folders;
mod salvage;

pub use folders::{FolderModel, ModelFile, OtherFile, backing_files, files_of, other_models_text};

use crate::open::{choose_names, settle};
use crate::{Format, HEAD, Input, OpenOptions, unknown};
use detect::format_of;
use salvage::or_salvage;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weighbridge_core::checkpoint::Checkpoint;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::phrase;
use weighbridge_core::phrase::Opt;
use weighbridge_core::text::{near, quoted};
use weighbridge_io::source::{FileSource, FolderItem, FolderRef, LocalFolder, PathKind, SourceRef};

/// Registered formats, in the order of detection.
///
/// A program adds a format of its own with [`with`](Self::with).
#[derive(Clone, Default)]
pub struct Registry {
    formats: Vec<&'static dyn Format>,
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter().map(|format| format.info().id)).finish()
    }
}

impl Registry {
    /// Creates a registry of these formats.
    pub fn new(formats: impl IntoIterator<Item = &'static dyn Format>) -> Self {
        Self { formats: formats.into_iter().collect() }
    }

    /// Adds a format with precedence over all others. It replaces one of the same id.
    #[must_use]
    pub fn with(mut self, format: &'static dyn Format) -> Self {
        self.formats.retain(|other| other.info().id != format.info().id);
        self.formats.insert(0, format);
        self
    }

    /// Returns the formats, in order.
    pub fn iter(&self) -> impl Iterator<Item = &'static dyn Format> {
        self.formats.iter().copied()
    }

    /// Returns the format of that id.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Usage`], with the valid ids.
    pub fn by_id(&self, id: &str) -> Result<&'static dyn Format> {
        self.iter().find(|f| f.info().id == id).ok_or_else(|| {
            let ids: Vec<_> = self.iter().map(|f| f.info().id).collect();
            let meant = match near(|| ids.iter().copied(), id, 1).first() {
                Some(meant) if !id.is_empty() => format!("did you mean `{meant}`? "),
                _ => String::new(),
            };
            Error::usage("unknown-format", "unknown format")
                .found(id)
                .hint(format_args!("{meant}the formats are {}", ids.join(", ")))
        })
    }

    /// Returns the format and kind for the extension of `path`.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Usage`], with the valid extensions.
    pub fn by_extension(&self, path: &Path) -> Result<(&'static dyn Format, &'static str)> {
        let extension = path.extension().and_then(|e| e.to_str()).unwrap_or("").to_ascii_lowercase();
        for format in self.iter() {
            for &(ours, kind) in format.info().extensions {
                if ours == extension {
                    return Ok((format, kind));
                }
            }
        }
        let fail = |message: String| Error::usage("unknown-extension", message).in_file(path.display());
        match extension.as_str() {
            "bin" if self.by_id("torch").is_ok() => {
                return Err(fail("`.bin` selects no output format".to_owned())
                    .hint(phrase!["use ", Opt::To.with("torch")]));
            }
            _ => {}
        }
        let written = self.iter().filter(|format| format.writer().is_some());
        let known: Vec<_> = written.flat_map(|f| f.info().extensions).map(|(e, _)| format!(".{e}")).collect();
        let message = match extension.as_str() {
            "" => "the path has no extension".to_owned(),
            other => format!("no format has the extension `.{}`", quoted(other)),
        };
        // Short extensions are similar by chance.
        let meant = near(|| known.iter().map(String::as_str), &extension, 1);
        let meant = match meant.first().filter(|_| extension.len() > 3) {
            Some(meant) => format!("did you mean `{meant}`? "),
            None => String::new(),
        };
        Err(fail(message).hint(phrase![
            meant,
            format_args!("use one of {}, or select a format with ", known.join(" ")),
            Opt::To.any("FORMAT"),
        ]))
    }

    /// Opens the file or folder at `path`. The format is detected by content; for tables of text by extension, with a note. Related
    /// files are found in the same folder.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`] if it cannot be read, and errors of the reader of the format.
    pub fn open_with(&self, path: impl AsRef<Path>, options: &OpenOptions) -> Result<Checkpoint> {
        let path = path.as_ref();
        if PathKind::of(path)? == PathKind::Folder {
            return self.open_folder(&(Arc::new(LocalFolder::open(path)?) as FolderRef), options);
        }
        let source: SourceRef = Arc::new(FileSource::open(path)?);
        match LocalFolder::around(path) {
            Some((folder, name)) => {
                self.open_in_folder(source, &(Arc::new(folder) as FolderRef), &name, options)
            }
            None => self.open_source(source, options),
        }
    }

    /// Opens a single source, without related files.
    ///
    /// # Errors
    /// As [`open_with`](Self::open_with).
    pub fn open_source(&self, source: SourceRef, options: &OpenOptions) -> Result<Checkpoint> {
        let label = source.label().to_owned();
        let open = |options: &OpenOptions| {
            let (format, _) = format_of(self, &source, None, options)?;
            format.open(source.clone(), options).map_err(|error| unknown::or_empty(error, &source))
        };
        self.finish(or_salvage(self, Input::Alone(&source), open, options), &label, options)
    }

    /// Opens the source of file `name` in `folder`, with related files of the folder.
    ///
    /// # Errors
    /// As [`open_with`](Self::open_with).
    pub fn open_in_folder(
        &self,
        source: SourceRef,
        folder: &FolderRef,
        name: &Path,
        options: &OpenOptions,
    ) -> Result<Checkpoint> {
        let label = source.label().to_owned();
        let open = |options: &OpenOptions| {
            let (format, note) = format_of(self, &source, Some((folder, name)), options)?;
            let mut opened = format
                .open_beside(source.clone(), folder, name, options)
                .map_err(|error| unknown::or_empty(error, &source))?;
            opened.notes.extend(note);
            Ok(opened)
        };
        self.finish(or_salvage(self, Input::Beside(&source, folder, name), open, options), &label, options)
    }

    /// Opens a folder: as a whole if a format recognizes it, else its single model file. The note `other-models` lists other model
    /// files in it.
    ///
    /// # Errors
    /// As [`open_with`](Self::open_with); [`weighbridge_core::Kind::Usage`]: `not-a-file` without a model, `several-models` if
    /// the choice is ambiguous.
    pub fn open_folder(&self, folder: &FolderRef, options: &OpenOptions) -> Result<Checkpoint> {
        let (mut opened, model) = FolderModel::of(self, folder, options)?.open(self, folder, options)?;
        folders::note(self, folder, &mut opened, &model);
        Ok(opened)
    }

    /// Opens a folder as that format.
    pub(crate) fn as_folder(
        &self,
        format: &dyn Format,
        folder: &FolderRef,
        options: &OpenOptions,
    ) -> Result<Checkpoint> {
        let open = |options: &OpenOptions| format.open_folder(folder, options);
        self.finish(or_salvage(self, Input::Folder(folder), open, options), folder.label(), options)
    }

    /// Detects the format of a folder by its files.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Usage`] if no format recognizes it.
    pub fn detect_folder(&self, folder: &FolderRef) -> Result<&'static dyn Format> {
        let gathered = || folders::gathered(self, folder);
        folders::own(self, folder).or_else(gathered).ok_or_else(|| folders::no_model(self, folder))
    }

    /// Detects the format of a source by its content.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Unsupported`], with the likely file type as hint.
    pub fn detect(&self, source: &SourceRef) -> Result<&'static dyn Format> {
        let head = head_of(source)?;
        match self.iter().find(|f| f.recognises(&head, source)) {
            Some(format) => Ok(format),
            None => Err(unknown::explain(&head, source)),
        }
    }

    /// Returns the files among `items` of `folder` whose labels are not in `used`. Files that `format` owns as siblings, such as an
    /// older version, are not marked as other models.
    pub fn other_files(
        &self,
        folder: &FolderRef,
        items: &[FolderItem],
        used: &HashSet<String>,
        format: Option<&dyn Format>,
    ) -> Vec<OtherFile> {
        folders::others(self, folder, items, used, format)
    }

    /// Returns the names of the files of `folder` that accompany the model `checkpoint` in it, such as its configuration and its
    /// tokenizer. Hidden files, other models and indexes of shards are not among them.
    ///
    /// # Errors
    /// Errors of listing the folder.
    pub fn files_beside(&self, folder: &FolderRef, checkpoint: &Checkpoint) -> Result<Vec<PathBuf>> {
        folders::files_beside(self, folder, checkpoint)
    }

    /// Appends the result of a salvage to the hint of an error about a damaged file. Other errors stay unchanged.
    #[must_use]
    pub fn offer_salvage(&self, error: Error, path: &Path, options: &OpenOptions) -> Error {
        salvage::offer_salvage(self, error, path, options)
    }

    /// Runs the steps common to all formats after opening.
    fn finish(&self, opened: Result<Checkpoint>, label: &str, options: &OpenOptions) -> Result<Checkpoint> {
        let mut checkpoint = settle(opened, label, options)?;
        for format in self.iter() {
            format.attach(&mut checkpoint, options)?;
        }
        choose_names(&mut checkpoint, options)?;
        Ok(checkpoint)
    }
}

/// Returns the first bytes, at most [`HEAD`].
fn head_of(source: &SourceRef) -> Result<Vec<u8>> {
    let mut head = vec![0; HEAD.min(usize::try_from(source.len()).unwrap_or(HEAD))];
    source.read_at(0, &mut head)?;
    Ok(head)
}
