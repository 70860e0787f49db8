//! Folders that no format calls its own, such as one `model.safetensors` beside its `config.json`; and what stands
//! in a folder beside the model that was opened.

use super::Registry;
use crate::{Format, OpenOptions};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weighbridge_core::checkpoint::{Checkpoint, Note};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::text::{escape, first_and_more, path_text};
use weighbridge_core::{ErrorCode, NoteCode};
use weighbridge_io::source::{FolderItem, FolderRef, LocalFolder, SourceRef};

/// What the loaders of transformers, diffusers and PEFT take from a folder, whatever else stands in it, in the order in
/// which they look.
const LOADED: [&str; 6] = [
    "model.safetensors",
    "diffusion_pytorch_model.safetensors",
    "adapter_model.safetensors",
    "pytorch_model.bin",
    "diffusion_pytorch_model.bin",
    "adapter_model.bin",
];
/// Endings of texts that stand beside a model: settings, vocabularies, descriptions, programs. Numbers in them make no
/// model of them.
const TEXTS: [&str; 9] = ["json", "txt", "md", "csv", "py", "yaml", "yml", "html", "log"];
/// Files whose content is looked at to tell whether they are models; of others the names tell.
const MOST_LOOKED_AT: usize = 64;
/// Names that are told one by one.
const NAMED: usize = 5;
/// The codes of errors of formats that are asked for a folder and have none of this kind.
const FILES_ONLY: [ErrorCode; 2] = [ErrorCode::NotAFile, ErrorCode::NoShards];

/// A file of a folder that is not part of the model that was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherFile {
    /// Its path: that of the folder with its name in it.
    pub path: String,
    /// Its length in bytes.
    pub bytes: u64,
    /// True where it is a model file itself.
    pub is_model: bool,
}

/// Tells model files from others in one folder.
struct FolderProbe<'a> {
    registry: &'a Registry,
    folder: &'a FolderRef,
    left: usize,
}

impl<'a> FolderProbe<'a> {
    fn new(registry: &'a Registry, folder: &'a FolderRef) -> Self {
        Self { registry, folder, left: MOST_LOOKED_AT }
    }

    /// True for what a format recognises, and for what has the extension of one: it may be damaged. Not for hidden
    /// files and for texts.
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
}

/// What is opened of a folder.
#[derive(Clone)]
pub enum FolderModel {
    /// All of it: this format calls it its own, or was named for it.
    Whole(&'static dyn Format),
    /// The one model file in it.
    File(ModelFile),
}

/// The one model file of a folder.
#[derive(Clone)]
pub struct ModelFile {
    /// Its name in the folder.
    name: PathBuf,
    /// The file, opened.
    pub source: SourceRef,
    /// True where every other file was looked at, and is no model.
    is_sole: bool,
}

impl ModelFile {
    /// True where every other file was looked at, and is no model.
    pub fn is_sole(&self) -> bool {
        self.is_sole
    }

    /// Its path, as the folder itself calls it.
    pub fn path(&self, folder: &FolderRef) -> PathBuf {
        path_of(folder, &self.name)
    }
}

impl FolderModel {
    /// What is opened of `folder`; for those who open it several times, as files are looked into to tell.
    ///
    /// # Errors
    /// As [`Registry::open_folder`], of what is known before anything is opened.
    pub fn of(registry: &Registry, folder: &FolderRef, options: &OpenOptions) -> Result<Self> {
        if let Some(id) = &options.format {
            return registry.by_id(id).map(Self::Whole);
        }
        match own(registry, folder) {
            Some(format) => Ok(Self::Whole(format)),
            None => match find(registry, folder)? {
                Models::None => Err(no_model(folder)),
                Models::One(file) => Ok(Self::File(file)),
                Models::Several(names) => recognised_file_set(registry, &names)
                    .map(Self::Whole)
                    .ok_or_else(|| several(folder, &names)),
            },
        }
    }

    /// Opens it, without a word on other models in the folder. Returns what was opened: a file, where the format has no
    /// such folders.
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
                // A format of files: the caller says of which one the file in the folder is.
                Err(error) if FILES_ONLY.contains(&error.code()) => lone(registry, folder)?.ok_or(error)?,
                opened => return Ok((opened?, self.clone())),
            },
        };
        let mut opened = registry.open_in_folder(file.source.clone(), folder, &file.name, options)?;
        opened.files.push(file.source.clone());
        Ok((opened, Self::File(file)))
    }
}

/// The error for a folder without a model.
pub(super) fn no_model(folder: &FolderRef) -> Error {
    Error::usage("not-a-file", "this is a folder, and not a model that is kept in one")
        .in_file(folder.label())
        .hint("give the path of one model file")
}

/// True where a format calls the folder its own.
pub(super) fn own(registry: &Registry, folder: &FolderRef) -> Option<&'static dyn Format> {
    registry.iter().find(|format| format.recognises_folder(folder))
}

/// The format to which all model files of a folder that no format calls its own belong together.
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
    let error = Error::usage("several-models", "several model files stand in this folder")
        .in_file(folder.label())
        .found(some(names.iter().map(|name| path_text(name))));
    match names.first() {
        Some(first) => {
            error.hint(format_args!("give the path of one of them: {}", path_text(&path_of(folder, first))))
        }
        None => error,
    }
}

/// The model files of a folder that no format calls its own.
enum Models {
    None,
    /// The one that the loaders of such folders take, or else the only one.
    One(ModelFile),
    /// Their names.
    Several(Vec<PathBuf>),
}

/// As [`find`], for those who want one file.
///
/// # Errors
/// As [`find`]; [`weighbridge_core::Kind::Usage`]: `several-models`, where it is not clear which one is meant.
fn lone(registry: &Registry, folder: &FolderRef) -> Result<Option<ModelFile>> {
    match find(registry, folder)? {
        Models::None => Ok(None),
        Models::One(file) => Ok(Some(file)),
        Models::Several(names) => Err(several(folder, &names)),
    }
}

/// The model files of a folder that no format calls its own.
///
/// # Errors
/// [`weighbridge_core::Kind::Usage`]: `part-of-model`, where the only one is a part alone; what listing says.
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
    let models: Vec<&Path> =
        items.iter().map(|item| item.name.as_path()).filter(|name| probe.is_model(name)).collect();
    match models.as_slice() {
        [] => Ok(Models::None),
        [name] if is_part(name) => Err(Error::usage(
            "part-of-model",
            "the only model file in this folder is one part of a model of several",
        )
        .in_file(folder.label())
        .found(escape(&path_text(name)))
        .hint("the other parts are missing; give its own path to look at it alone")),
        [name] => opened(name, true),
        several => Ok(Models::Several(several.iter().map(|name| (*name).to_owned()).collect())),
    }
}

/// True for the name of one of several files, as Hugging Face's libraries cut models: `NAME-00001-of-00003.bin`.
fn is_part(name: &Path) -> bool {
    let parts = name.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.rsplit_once("-of-"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    parts.is_some_and(|(before, of)| {
        let number = before.rsplit_once('-').map(|(_, number)| number);
        number.is_some_and(is_number) && is_number(of) && of.trim_start_matches('0') != "1"
    })
}

/// The path of a file, as the folder itself calls it: what stands in the current folder goes by its name alone.
fn path_of(folder: &FolderRef, name: &Path) -> PathBuf {
    let around = Path::new(folder.label());
    if around == Path::new(".") { name.to_owned() } else { around.join(name) }
}

/// The label of a file of `folder`.
fn label_of(folder: &FolderRef, name: &Path) -> String {
    path_text(&path_of(folder, name))
}

/// The files among `items` of `folder` whose labels are not in `used`. Where `format` calls the folder its own, a model file
/// of which it tells in its own words, such as an older version, is none of the other models.
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
        let told = format.is_some_and(|format| format.owns_sibling(&item.name));
        others.push(OtherFile { path, bytes: item.len, is_model: !told && probe.is_model(&item.name) });
    }
    others
}

/// The names of the files of `folder` that go along with the model `checkpoint` in it, such as its configuration and its
/// tokenizer. Hidden files, other models and the indexes of their shards are none of them.
///
/// # Errors
/// What listing says.
pub(super) fn files_beside(
    registry: &Registry,
    folder: &FolderRef,
    checkpoint: &Checkpoint,
) -> Result<Vec<PathBuf>> {
    let used = labels(checkpoint);
    let format = registry.by_id(checkpoint.format).ok();
    let mut probe = FolderProbe::new(registry, folder);
    let mut goes_along = |name: &Path| {
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
        .filter(|name| goes_along(name))
        .collect())
}

/// What a note or a finding says of other model files; `None` where there is none.
pub fn other_models_text(others: &[OtherFile]) -> Option<String> {
    let models: Vec<&OtherFile> = others.iter().filter(|other| other.is_model).collect();
    let names = some(models.iter().map(|other| other.path.clone()));
    (!models.is_empty())
        .then(|| format!("model files that stand beside this one were not looked at: {names}"))
}

/// Adds the note on other model files to what was opened in a folder. What cannot be listed is not told.
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

/// The names, in the local folder at `path`, of the files from which `checkpoint` was opened there: those that its
/// tensors, the names of their rows and its metadata were read from. Whoever writes these elsewhere may let the files go.
/// Not what was only looked at; nor what belongs to the model and need not be written again: companions, and the files
/// around a program.
///
/// # Errors
/// What listing says.
pub fn backing_files(path: &Path, checkpoint: &Checkpoint) -> Result<Vec<PathBuf>> {
    let folder: FolderRef = Arc::new(LocalFolder::open(path)?);
    let beside = if checkpoint.topology.is_some() { Vec::new() } else { checkpoint.files.clone() };
    let own = labels_of(beside, checkpoint);
    // A label shows two names alike that are not UTF-8.
    let is_own = |name: &Path| name.to_str().is_some() && own.contains(&label_of(&folder, name));
    Ok(folder
        .list(FolderItem::DEPTH)?
        .into_iter()
        .map(|item| item.name)
        .filter(|name| is_own(name))
        .collect())
}

/// The labels of all files that a checkpoint is made of.
fn labels(checkpoint: &Checkpoint) -> HashSet<String> {
    let mut beside: Vec<SourceRef> = checkpoint.files.clone();
    beside.extend(checkpoint.companions.iter().map(|(_, source)| source.clone()));
    labels_of(beside, checkpoint)
}

/// The labels of the files that `beside` and the tensors of a checkpoint are made of.
fn labels_of(beside: Vec<SourceRef>, checkpoint: &Checkpoint) -> HashSet<String> {
    let (mut seen, mut labels) = (HashSet::new(), HashSet::new());
    let mut found = |source: &SourceRef| _ = labels.insert(source.label().to_owned());
    follow(beside, &mut seen, &mut found);
    tensor_files(checkpoint, &mut seen, &mut found);
    labels
}

/// Tells `found` each file that a checkpoint was opened from, once by each source that it is: those of its tensors and of
/// the names of their rows, with true, and then those beside them, with false.
pub fn files_of(checkpoint: &Checkpoint, found: &mut dyn FnMut(&SourceRef, bool)) {
    let mut seen = HashSet::new();
    tensor_files(checkpoint, &mut seen, &mut |source| found(source, true));
    let mut beside: Vec<SourceRef> = checkpoint.files.clone();
    beside.extend(checkpoint.companions.iter().map(|(_, source)| source.clone()));
    follow(beside, &mut seen, &mut |source| found(source, false));
}

/// Tells `found` each file that the tensors, and the names of their rows, are made of.
fn tensor_files(checkpoint: &Checkpoint, seen: &mut HashSet<usize>, found: &mut dyn FnMut(&SourceRef)) {
    for tensor in &checkpoint.tensors {
        for extent in &tensor.extents {
            follow(vec![extent.source.clone()], seen, found);
        }
        follow(tensor.row_names.iter().flat_map(|labels| labels.sources()).collect(), seen, found);
    }
}

/// Tells `found` each source that stands by itself among those that the `open` ones are made of. What was `seen` is not
/// followed again.
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

/// Some of `names`, and how many more there are.
fn some(names: impl ExactSizeIterator<Item = String>) -> String {
    first_and_more(names.map(|name| escape(&name)), NAMED)
}
