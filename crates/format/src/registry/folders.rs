//! Folders that no format recognizes as a whole, such as `model.safetensors` with its `config.json`, and other files in the folder
//! of an opened model.

use super::Registry;
use super::detect::is_table_by_extension;
use crate::{Format, OpenOptions};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weighbridge_core::checkpoint::{Checkpoint, Note};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::phrase;
use weighbridge_core::phrase::Opt;
use weighbridge_core::text::{escape, first_and_more, path_text};
use weighbridge_core::{ErrorCode, NoteCode};
use weighbridge_io::source::{FolderItem, FolderRef, LocalFolder, SourceRef};

/// Files that the loaders of transformers, diffusers and PEFT open in any folder, in order of precedence.
const LOADED: [&str; 6] = [
    "model.safetensors",
    "diffusion_pytorch_model.safetensors",
    "adapter_model.safetensors",
    "pytorch_model.bin",
    "diffusion_pytorch_model.bin",
    "adapter_model.bin",
];
/// Extensions of text files of a model: settings, vocabularies, descriptions, scripts. They are never models, even with numbers.
const TEXTS: [&str; 9] = ["json", "txt", "md", "csv", "py", "yaml", "yml", "html", "log"];
/// Maximum number of files probed by content; further ones are classified by name.
const MAX_PROBED: usize = 64;
/// Maximum number of names listed in a message.
const MAX_NAMED: usize = 5;
/// Codes of errors of formats that do not support the folder.
const FILES_ONLY: [ErrorCode; 2] = [ErrorCode::NotAFile, ErrorCode::NoShards];

/// File of a folder that is not part of the opened model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherFile {
    /// Path: that of the folder joined with the name.
    pub path: String,
    /// Length in bytes.
    pub bytes: u64,
    /// True if it is a model file itself.
    pub is_model: bool,
}

/// Classifier of the files of a folder as models or others.
struct FolderProbe<'a> {
    registry: &'a Registry,
    folder: &'a FolderRef,
    left: usize,
}

impl<'a> FolderProbe<'a> {
    fn new(registry: &'a Registry, folder: &'a FolderRef) -> Self {
        Self { registry, folder, left: MAX_PROBED }
    }

    /// Returns true for a file that a format recognizes, or with the extension of a format: it may be damaged. False for hidden
    /// files and text files.
    fn is_model(&mut self, name: &Path) -> bool {
        let hidden = name.iter().any(|part| part.as_encoded_bytes().starts_with(b"."));
        let ending = name.extension().and_then(|e| e.to_str()).unwrap_or_default().to_ascii_lowercase();
        if hidden || TEXTS.contains(&ending.as_str()) {
            return false;
        }
        let named = self.registry.by_extension(name).ok().map(|(format, _)| format);
        if named.is_some_and(|named| !named.shares_extensions()) {
            return true;
        }
        let Some(left) = self.left.checked_sub(1) else { return false };
        self.left = left;
        let Ok(Some(source)) = self.folder.open(name) else { return false };
        let is_named = |format: &dyn Format| named.is_some_and(|named| named.info().id == format.info().id);
        self.registry.detect(&source).is_ok_and(|format| !format.needs_extension() || is_named(format))
    }

    /// Returns true for the extension of a format of text tables, such as `.tsv`.
    fn is_named_as_table(&self, name: &Path) -> bool {
        let hidden = name.iter().any(|part| part.as_encoded_bytes().starts_with(b"."));
        !hidden && self.registry.by_extension(name).is_ok_and(|(format, _)| format.is_detected_by_extension())
    }

    /// Returns true for a table of text that only its extension reveals.
    fn is_table(&mut self, name: &Path) -> bool {
        if !self.is_named_as_table(name) {
            return false;
        }
        let Some(left) = self.left.checked_sub(1) else { return false };
        self.left = left;
        let Ok(Some(source)) = self.folder.open(name) else { return false };
        is_table_by_extension(self.registry, &source, name)
    }
}

/// Model in a folder.
#[derive(Clone)]
pub enum FolderModel {
    /// Whole folder: this format recognizes it, or was requested.
    Whole(&'static dyn Format),
    /// Single model file.
    File(ModelFile),
}

/// Single model file of a folder.
#[derive(Clone)]
pub struct ModelFile {
    /// Name in the folder.
    name: PathBuf,
    /// Opened file.
    pub source: SourceRef,
    /// True if every other file was probed and is not a model.
    is_sole: bool,
}

impl ModelFile {
    /// Returns true if every other file was probed and is not a model.
    pub fn is_sole(&self) -> bool {
        self.is_sole
    }

    /// Returns the path, relative to the label of the folder.
    pub fn path(&self, folder: &FolderRef) -> PathBuf {
        path_of(folder, &self.name)
    }
}

impl FolderModel {
    /// Detects the model in `folder`. Reuse the result to open the folder several times: detection reads files.
    ///
    /// # Errors
    /// As [`Registry::open_folder`], for faults found before opening the model.
    pub fn of(registry: &Registry, folder: &FolderRef, options: &OpenOptions) -> Result<Self> {
        if let Some(id) = &options.format {
            return registry.by_id(id).map(Self::Whole);
        }
        match own(registry, folder) {
            Some(format) => Ok(Self::Whole(format)),
            None => match find(registry, folder)? {
                Models::None => Err(no_model(registry, folder)),
                Models::One(file) => Ok(Self::File(file)),
                Models::Several(names) => recognised_file_set(registry, &names)
                    .map(Self::Whole)
                    .ok_or_else(|| several(folder, &names)),
            },
        }
    }

    /// Opens the model, without a note on other models in the folder. Returns the checkpoint and the opened part: a file, if the
    /// format does not support the folder.
    ///
    /// # Errors
    /// As [`Registry::open_folder`].
    pub fn open(
        &self,
        registry: &Registry,
        folder: &FolderRef,
        options: &OpenOptions,
    ) -> Result<(Checkpoint, Self)> {
        let file = match self {
            Self::File(file) => file.clone(),
            Self::Whole(format) => match registry.as_folder(*format, folder, options) {
                // The requested format is that of the single file in the folder.
                Err(error) if FILES_ONLY.contains(&error.code()) => lone(registry, folder)
                    .map_err(|several| otherwise(registry, folder, several))?
                    .ok_or(error)?,
                opened => return Ok((opened?, self.clone())),
            },
        };
        let mut opened = registry.open_in_folder(file.source.clone(), folder, &file.name, options)?;
        opened.files.push(file.source.clone());
        Ok((opened, Self::File(file)))
    }
}

/// Returns the error for a folder without a model.
pub(super) fn no_model(registry: &Registry, folder: &FolderRef) -> Error {
    let mut probe = FolderProbe::new(registry, folder);
    let mut subfolders: Vec<String> = Vec::new();
    for item in folder.list(2).unwrap_or_default() {
        if subfolders.len() > MAX_NAMED {
            break;
        }
        let Some(parent) = item.name.parent().filter(|parent| !parent.as_os_str().is_empty()) else {
            continue;
        };
        let path = label_of(folder, parent);
        if !subfolders.contains(&path) && probe.is_model(&item.name) {
            subfolders.push(path);
        }
    }
    let error = Error::usage("not-a-file", "no model file in the folder; subfolders are not searched")
        .in_file(folder.label());
    match subfolders.as_slice() {
        [] => error.hint("give the path of one model file"),
        all => error.hint(format_args!("subfolders with model files: {}", some(all.iter().cloned()))),
    }
}

/// Returns the format that recognizes the folder as a whole.
pub(super) fn own(registry: &Registry, folder: &FolderRef) -> Option<&'static dyn Format> {
    registry.iter().find(|format| format.recognises_folder(folder))
}

/// Returns the format that recognizes all model files of the folder as one checkpoint.
pub(super) fn gathered(registry: &Registry, folder: &FolderRef) -> Option<&'static dyn Format> {
    match find(registry, folder) {
        Ok(Models::Several(names)) => recognised_file_set(registry, &names),
        _ => None,
    }
}

fn recognised_file_set(registry: &Registry, names: &[PathBuf]) -> Option<&'static dyn Format> {
    registry.iter().find(|format| format.recognises_file_set(names))
}

fn several(folder: &FolderRef, names: &[PathBuf]) -> Error {
    let error = Error::usage("several-models", "the folder contains several model files")
        .in_file(folder.label())
        .found(some(names.iter().map(|name| path_text(name))));
    match names.first() {
        Some(first) => {
            error.hint(format_args!("give the path of one of them: {}", path_text(&path_of(folder, first))))
        }
        None => error,
    }
}

/// Model files of a folder that no format recognizes as a whole.
enum Models {
    None,
    /// File that common loaders open, or else the only one.
    One(ModelFile),
    /// Names of several.
    Several(Vec<PathBuf>),
}

/// Adds a hint to the error for a folder that was opened in a given format, where it is of another one.
fn otherwise(registry: &Registry, folder: &FolderRef, error: Error) -> Error {
    match own(registry, folder).or_else(|| gathered(registry, folder)) {
        Some(format) => {
            let of = format_args!(" the folder opens as {}", format.info().id);
            error.hint_too(phrase!["without ", Opt::From, of])
        }
        None => error,
    }
}

/// Finds the single model file of a folder.
///
/// # Errors
/// As [`find`]; [`weighbridge_core::Kind::Usage`]: `several-models`, if the choice is ambiguous.
fn lone(registry: &Registry, folder: &FolderRef) -> Result<Option<ModelFile>> {
    match find(registry, folder)? {
        Models::None => Ok(None),
        Models::One(file) => Ok(Some(file)),
        Models::Several(names) => Err(several(folder, &names)),
    }
}

/// Finds the model files of a folder that no format recognizes as a whole.
///
/// # Errors
/// [`weighbridge_core::Kind::Usage`]: `part-of-model`, if the only model file is one shard of several; errors of listing the
/// folder.
fn find(registry: &Registry, folder: &FolderRef) -> Result<Models> {
    let items = folder.list(1)?;
    let opened = |name: &Path, is_sole: bool| {
        let source = folder.open(name)?;
        let file = source.map(|source| ModelFile { name: name.to_owned(), source, is_sole });
        Ok(file.map_or(Models::None, Models::One))
    };
    for name in LOADED.map(Path::new) {
        if items.iter().any(|item| item.name == name) {
            return opened(name, false);
        }
    }
    let mut probe = FolderProbe::new(registry, folder);
    let mut models: Vec<&Path> =
        items.iter().map(|item| item.name.as_path()).filter(|name| probe.is_model(name)).collect();
    // Other models have precedence over tables that only their extension reveals.
    if models.iter().all(|name| probe.is_named_as_table(name)) {
        let found = std::mem::take(&mut models);
        let names = items.iter().map(|item| item.name.as_path());
        models.extend(names.filter(|name| found.contains(name) || probe.is_table(name)));
    }
    match models.as_slice() {
        [] => Ok(Models::None),
        [name] if is_part(name) => {
            Err(Error::usage("part-of-model", "the only model file in the folder is one shard of several")
                .in_file(folder.label())
                .found(escape(&path_text(name)))
                .hint("the other shards are missing; give the path of the file to open it alone"))
        }
        [name] => opened(name, true),
        several => Ok(Models::Several(several.iter().map(|name| (*name).to_owned()).collect())),
    }
}

/// Returns true for the name of one shard of several, as in libraries of Hugging Face: `NAME-00001-of-00003.bin`.
fn is_part(name: &Path) -> bool {
    let parts = name.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.rsplit_once("-of-"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    parts.is_some_and(|(before, of)| {
        let number = before.rsplit_once('-').map(|(_, number)| number);
        number.is_some_and(is_number) && is_number(of) && of.trim_start_matches('0') != "1"
    })
}

/// Returns the path of a file, relative to the label of the folder. In the current folder, this is its name.
fn path_of(folder: &FolderRef, name: &Path) -> PathBuf {
    let around = Path::new(folder.label());
    if around == Path::new(".") { name.to_owned() } else { around.join(name) }
}

/// Returns the label of a file of `folder`.
fn label_of(folder: &FolderRef, name: &Path) -> String {
    path_text(&path_of(folder, name))
}

/// Implements [`Registry::other_files`].
pub(super) fn others(
    registry: &Registry,
    folder: &FolderRef,
    items: &[FolderItem],
    used: &HashSet<String>,
    format: Option<&dyn Format>,
) -> Vec<OtherFile> {
    let mut probe = FolderProbe::new(registry, folder);
    let mut others = Vec::new();
    for item in items {
        let path = label_of(folder, &item.name);
        if used.contains(&path) {
            continue;
        }
        let owned = format.is_some_and(|format| format.owns_sibling(&item.name));
        others.push(OtherFile { path, bytes: item.len, is_model: !owned && probe.is_model(&item.name) });
    }
    others
}

/// Implements [`Registry::files_beside`].
pub(super) fn files_beside(
    registry: &Registry,
    folder: &FolderRef,
    checkpoint: &Checkpoint,
) -> Result<Vec<PathBuf>> {
    let used = labels(checkpoint);
    let format = registry.by_id(checkpoint.format).ok();
    let mut probe = FolderProbe::new(registry, folder);
    let mut accompanies = |name: &Path| {
        let is_index = name.to_str().is_none_or(|name| name.ends_with(".index.json"));
        let hidden = name.iter().any(|part| part.as_encoded_bytes().starts_with(b"."));
        !is_index
            && !hidden
            && !used.contains(&label_of(folder, name))
            && !format.is_some_and(|format| format.owns_sibling(name))
            && !probe.is_model(name)
    };
    Ok(folder
        .list(FolderItem::DEPTH)?
        .into_iter()
        .map(|item| item.name)
        .filter(|name| accompanies(name))
        .collect())
}

/// Returns the text of a note or a finding on other model files; `None` if there are none.
pub fn other_models_text(others: &[OtherFile]) -> Option<String> {
    let models: Vec<&OtherFile> = others.iter().filter(|other| other.is_model).collect();
    let names = some(models.iter().map(|other| other.path.clone()));
    (!models.is_empty()).then(|| format!("other model files in the folder not opened: {names}"))
}

/// Adds the note on other model files to a checkpoint opened in a folder, if the folder can be listed.
pub(super) fn note(
    registry: &Registry,
    folder: &FolderRef,
    checkpoint: &mut Checkpoint,
    model: &FolderModel,
) {
    let format = match model {
        FolderModel::Whole(format) => Some(*format),
        FolderModel::File(file) if file.is_sole => return,
        FolderModel::File(_) => None,
    };
    let Ok(items) = folder.list(1) else { return };
    let others = others(registry, folder, &items, &labels(checkpoint), format);
    checkpoint.notes.extend(other_models_text(&others).map(|text| Note::new(NoteCode::OtherModels, text)));
}

/// Returns the names of the backing files of `checkpoint` in the local folder at `path`: the files with its tensors, row names and
/// metadata. After these were written elsewhere, the files may be removed. Companions, files of a program, and files that were only
/// probed are not among them.
///
/// # Errors
/// Errors of listing the folder.
pub fn backing_files(path: &Path, checkpoint: &Checkpoint) -> Result<Vec<PathBuf>> {
    let folder: FolderRef = Arc::new(LocalFolder::open(path)?);
    let beside = if checkpoint.topology.is_some() { Vec::new() } else { checkpoint.files.clone() };
    let own = labels_of(beside, checkpoint);
    // Two names that are not UTF-8 may have the same label.
    let is_own = |name: &Path| name.to_str().is_some() && own.contains(&label_of(&folder, name));
    Ok(folder
        .list(FolderItem::DEPTH)?
        .into_iter()
        .map(|item| item.name)
        .filter(|name| is_own(name))
        .collect())
}

/// Returns the labels of all files of a checkpoint.
fn labels(checkpoint: &Checkpoint) -> HashSet<String> {
    let mut beside: Vec<SourceRef> = checkpoint.files.clone();
    beside.extend(checkpoint.companions.iter().map(|(_, source)| source.clone()));
    labels_of(beside, checkpoint)
}

/// Returns the labels of the files of `beside` and of the tensors of a checkpoint.
fn labels_of(beside: Vec<SourceRef>, checkpoint: &Checkpoint) -> HashSet<String> {
    let (mut seen, mut labels) = (HashSet::new(), HashSet::new());
    let mut found = |source: &SourceRef| _ = labels.insert(source.label().to_owned());
    follow(beside, &mut seen, &mut found);
    tensor_files(checkpoint, &mut seen, &mut found);
    labels
}

/// Calls `found` for each file of a checkpoint, once per source: first those of tensors and row names, with true, then all others,
/// with false.
pub fn files_of(checkpoint: &Checkpoint, found: &mut dyn FnMut(&SourceRef, bool)) {
    let mut seen = HashSet::new();
    tensor_files(checkpoint, &mut seen, &mut |source| found(source, true));
    let mut beside: Vec<SourceRef> = checkpoint.files.clone();
    beside.extend(checkpoint.companions.iter().map(|(_, source)| source.clone()));
    follow(beside, &mut seen, &mut |source| found(source, false));
}

/// Calls `found` for each file of the tensors and their row names.
fn tensor_files(checkpoint: &Checkpoint, seen: &mut HashSet<usize>, found: &mut dyn FnMut(&SourceRef)) {
    for tensor in &checkpoint.tensors {
        for extent in &tensor.extents {
            follow(vec![extent.source.clone()], seen, found);
        }
        follow(tensor.row_names.iter().flat_map(|names| names.sources()).collect(), seen, found);
    }
}

/// Calls `found` for each outermost source of the `open` ones. Sources in `seen` are skipped.
fn follow(mut open: Vec<SourceRef>, seen: &mut HashSet<usize>, found: &mut dyn FnMut(&SourceRef)) {
    while let Some(source) = open.pop() {
        if !seen.insert(Arc::as_ptr(&source).cast::<()>().addr()) {
            continue;
        }
        match source.made_of() {
            Some(parts) => open.extend(parts.iter().map(|part| part.source.clone())),
            None => found(&source),
        }
    }
}

/// Formats the first few names, and the count of the others.
fn some(names: impl ExactSizeIterator<Item = String>) -> String {
    first_and_more(names.map(|name| escape(&name)), MAX_NAMED)
}
