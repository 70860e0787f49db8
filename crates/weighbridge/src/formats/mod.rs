//! The formats. Each is a reader from bytes to an index and a layouter from an index to a plan.
//!
//! A format never opens, writes, syncs or renames a file; it knows nothing of threads or progress
//! bars, nor of other formats. To add one: a folder here with `mod.rs` (facts, a picture of the
//! bytes), `read.rs`, `write.rs` and `tests.rs`, and one line in [`ALL`].

mod again;
pub mod arrow;
pub mod biggraph;
mod folders;
pub mod hdf5;
mod labels;
pub mod npy;
pub mod npz;
mod outline;
pub mod paddle;
pub mod parquet;
pub mod primitiv;
pub mod safetensors;
mod salvage;
mod shards;
mod table;
mod told;
pub mod torch;
pub mod tsv;
mod unknown;
pub mod word2vec;

pub use crate::scan::Scan;
pub(crate) use biggraph::entity_files;
pub use folders::OtherFile;
pub(crate) use folders::{
    FolderModel, OTHER_MODELS, files_beside, files_of, others, own_files, told as told_others,
};
pub use labels::LabelsIn;
pub(crate) use labels::{drop as drop_labels, spread as spread_labels};
pub use salvage::{Place, offer_salvage};

use crate::check::Outline;
use crate::checkpoint::{
    Checkpoint, Loss, Note, STRUCTURED_NAME, VARIABLE_NAME, Value, carried_keys, escape_text,
};
use crate::engine::read_tensor;
use crate::error::{Error, Result};
use crate::finding::Finding;
use crate::limits::Limits;
use crate::plan::WritePlan;
use crate::source::{FileSource, Folder, FolderRef, LocalFolder, PathKind, SourceRef, kind_of_path};
use crate::tensor::{DType, Order};
use crate::text::first_and_more;
use salvage::or_salvage;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use told::format_of;

/// Every format, in the order in which they are asked whether a file is theirs.
pub static ALL: &[&dyn Format] = &[
    &primitiv::Primitiv,
    &safetensors::Safetensors,
    &npy::Npy,
    &npz::Npz,
    &torch::Torch,
    &biggraph::BigGraph,
    &paddle::Paddle,
    &tsv::Tsv,
    &word2vec::Word2Vec,
    &arrow::Arrow,
    &parquet::Parquet,
    &hdf5::Hdf5,
];

/// Keys of metadata that a loss names one by one before it counts them.
const NAMED_KEYS: usize = 20;

/// Bytes of the beginning of a file that [`Format::recognises`] may look at.
pub const HEAD: usize = 4096;

/// A file format: what it is, how it is read, how it is laid out.
pub trait Format: Sync {
    /// What the format is and can hold.
    fn facts(&self) -> &'static Facts;

    /// True where a file of this beginning (at most [`HEAD`] bytes) is of this format, by content
    /// alone. Two formats never both say yes. Archives may look further into `source`.
    fn recognises(&self, head: &[u8], source: &SourceRef) -> bool;

    /// Reads the index. Headers and length prefixes only, never tensor data.
    ///
    /// # Errors
    /// Bad input gives [`crate::Kind::Corrupt`], [`crate::Kind::Unsupported`] or
    /// [`crate::Kind::Limit`] with the place.
    fn open(&self, source: SourceRef, options: &OpenOptions) -> Result<Checkpoint>;

    /// Reads the index of the file `name`, and of those that belong to it and stand beside it in
    /// `folder`. A format whose files stand alone need not care.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    fn open_beside(
        &self,
        source: SourceRef,
        folder: &FolderRef,
        name: &Path,
        options: &OpenOptions,
    ) -> Result<Checkpoint> {
        let _ = (folder, name);
        self.open(source, options)
    }

    /// True where the folder is a checkpoint of this format, by what stands in it.
    fn recognises_folder(&self, folder: &FolderRef) -> bool {
        let _ = folder;
        false
    }

    /// True where several files, which are all the model files of a folder that no format calls its own, are one
    /// checkpoint of this format: what else stands there does not keep them from being that.
    fn gathers(&self, files: &[PathBuf]) -> bool {
        let _ = files;
        false
    }

    /// True for a name that the format gives to files of its folders, and of which its reader tells in its own words
    /// where they are not part of what is opened, such as an older version.
    fn tells_of(&self, name: &Path) -> bool {
        let _ = name;
        false
    }

    /// Reads the index of a folder.
    ///
    /// # Errors
    /// As [`open`](Self::open); [`crate::Kind::Usage`] where the format knows no folders.
    fn open_folder(&self, folder: &FolderRef, options: &OpenOptions) -> Result<Checkpoint> {
        let _ = options;
        Err(Error::usage("not-a-file", format!("{} has no form that is a folder", self.facts().id))
            .in_file(folder.label())
            .hint("give the path of one model file"))
    }

    /// True where a file of this beginning could be a damaged one of this format, which
    /// [`recognises`](Self::recognises) does not know any more.
    fn recognises_damaged(&self, head: &[u8], source: &SourceRef) -> bool {
        let _ = (head, source);
        false
    }

    /// What is wrong with a file that opens, where only reading all of it tells, and reading it as
    /// tensors would not: asked before anything is called intact.
    ///
    /// # Errors
    /// What the source says.
    fn doubts(&self, source: &SourceRef, options: &OpenOptions) -> Result<Option<Error>> {
        let _ = (source, options);
        Ok(None)
    }

    /// Takes what is intact out of a damaged file or folder. `error` is what opening it said. Tensors
    /// that are lost are told by [`Checkpoint::lose`]; the caller marks what comes back. `None` where
    /// the format can save no more than a lenient reading gives.
    ///
    /// # Errors
    /// As [`open`](Self::open); an error that is about the file is one of nothing saved.
    fn salvage(&self, place: &Place<'_>, error: &Error, options: &OpenOptions) -> Result<Option<Checkpoint>> {
        let _ = (place, error, options);
        Ok(None)
    }

    /// Checks what only this format knows of an opened `checkpoint`: its program against its
    /// parameters, its own rules. What opening refuses was found by opening already.
    ///
    /// # Errors
    /// [`crate::Kind::Io`] when bytes that must be looked at cannot be read.
    fn check(&self, checkpoint: &Checkpoint) -> Result<Vec<Finding>> {
        let _ = checkpoint;
        Ok(Vec::new())
    }

    /// Says which ranges of a file of this format hold no elements, and what they are, from headers
    /// alone. Asked for each file of a checkpoint when its bytes are accounted for; `source` may be any
    /// file that belongs to one of this format.
    ///
    /// # Errors
    /// What keeps the file from being read.
    fn outline(&self, source: &SourceRef, limits: &Limits) -> Result<Outline>;

    /// Looks for what could happen if the original framework opened a file of this format: code
    /// that would run, source code that would be given away. Nothing is executed here.
    ///
    /// The formats that hold no code need not care: a file that opens is clean, one that does not
    /// could not be looked through.
    ///
    /// # Errors
    /// [`crate::Kind::Io`] when the file cannot be read.
    fn scan(&self, source: &SourceRef, options: &OpenOptions) -> Result<Scan> {
        match self.open(source.clone(), options) {
            Ok(checkpoint) => Ok(Scan::of_notes(&checkpoint)),
            Err(error) => Scan::of_error(error),
        }
    }

    /// True for a file of this beginning that is scanned as any zip archive: each member by itself.
    fn is_plain_archive(&self, head: &[u8]) -> bool {
        let _ = head;
        false
    }

    /// Where it keeps the names of the rows of tables.
    fn labels_in(&self) -> LabelsIn {
        LabelsIn::Nowhere
    }

    /// True where tensors of the same elements can share their bytes, and know of it.
    fn holds_ties(&self) -> bool {
        false
    }

    /// The settings with which a file that is laid out anew keeps the tensors of the opened `checkpoint` where
    /// they stand, if the format has such settings.
    fn settings_in_place(&self, checkpoint: &Checkpoint) -> Vec<(String, String)> {
        let _ = checkpoint;
        Vec::new()
    }

    /// The settings with which the opened `checkpoint`, laid out anew, is cut into files as it is now, if the format
    /// has such settings.
    fn settings_as_cut(&self, checkpoint: &Checkpoint) -> Vec<(String, String)> {
        let _ = checkpoint;
        Vec::new()
    }

    /// Changes a checkpoint of any format into one that this format lays out: what the files that `open` names say of it is
    /// added, and `seed` decides values that must be drawn. Returns what is lost.
    ///
    /// # Errors
    /// What reading these files says, and [`crate::Kind::Mismatch`] where they are of another model.
    fn adapt(
        &self,
        checkpoint: &mut Checkpoint,
        settings: &PlanOptions,
        open: &OpenOptions,
        seed: u64,
    ) -> Result<Vec<Loss>> {
        let _ = (checkpoint, settings, open, seed);
        Ok(Vec::new())
    }

    /// The stem of the one file of a model and its extension, as loaders of transformers look for it, where it is not
    /// `model` and the first extension of the format.
    fn loaded_as(&self) -> Option<(&'static str, &'static str)> {
        None
    }

    /// True for metadata that says how a file of this format was written, and nothing of the model: names of its files,
    /// versions of its form. The same model in another form has other ones, or none. Keys within maps are joined by `/`.
    fn is_of_form(&self, key: &str, value: &Value) -> bool {
        let _ = (key, value);
        false
    }

    /// Lays out a file that holds `checkpoint`; pure.
    ///
    /// # Errors
    /// [`crate::Kind::Mismatch`] where the format cannot hold it at all.
    fn plan(&self, checkpoint: &Checkpoint, options: &PlanOptions) -> Result<WritePlan>;
}

/// What a format is, as data.
#[derive(Debug)]
pub struct Facts {
    /// The name on the command line and in JSON.
    pub id: &'static str,
    /// One line for people.
    pub title: &'static str,
    /// File name extensions, without dot, and the kind that each one means.
    pub extensions: &'static [(&'static str, &'static str)],
    /// The element types that it can hold.
    pub dtypes: &'static [DType],
    /// The order of bytes that it can hold; `None` where it can hold both.
    pub order: Option<Order>,
    /// What can be chosen when it is written, beside the kind.
    pub settings: &'static [Setting],
}

/// Something that can be chosen when a format is written: `--set NAME=VALUE`.
#[derive(Debug)]
pub struct Setting {
    /// Its name.
    pub name: &'static str,
    /// The values it takes, for people: `2, 3 or 4`.
    pub values: &'static str,
    /// What it does, in one line, with the default.
    pub what: &'static str,
}

/// How to open.
#[derive(Debug, Clone, Default)]
pub struct OpenOptions {
    /// The id of the format, where the caller knows better than the content tells.
    pub format: Option<String>,
    /// Read what can be read unambiguously though the file breaks a rule, and note it.
    pub lenient: bool,
    /// Where the file is damaged, give the tensors that are intact, and say which are lost in
    /// [`Checkpoint::damage`]. Bytes that have checksums are read and held against them.
    pub salvage: bool,
    /// Read virtual datasets of HDF5 from the files in the same folder that they are made of.
    pub follow_virtual: bool,
    /// Bounds on what the file may ask for.
    pub limits: Limits,
    /// The program that the parameters belong to, where it does not stand beside them.
    pub program: Option<SourceRef>,
    /// The list of structured names that belongs to that program.
    pub program_info: Option<SourceRef>,
    /// Which names the tensors get, where the file or those beside it know several.
    pub names: Names,
    /// The folder of entity counts and names that belongs to tables, where it is not found by
    /// itself.
    pub entities: Option<FolderRef>,
    /// The configuration that says what edges and entities mean, where none stands beside them.
    pub config: Option<SourceRef>,
    /// Which version of a folder that holds several; the newest one where `None`.
    pub version: Option<u64>,
}

impl OpenOptions {
    /// Names the program at `path`; the list of structured names beside it is found.
    ///
    /// # Errors
    /// [`crate::Kind::Io`] and [`crate::Kind::Usage`] where it is no file that can be read.
    pub fn set_program(&mut self, path: &Path) -> Result<()> {
        self.program = Some(Arc::new(FileSource::open(path)?));
        if let Some((folder, name)) = LocalFolder::around(path) {
            self.program_info = Folder::open(&folder, &name.with_extension("pdiparams.info"))?;
        }
        Ok(())
    }
}

/// Which of its names a tensor goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Names {
    /// Those that the opened file itself uses.
    #[default]
    AsStored,
    /// Those of the source code's structure: `conv1.weight`. The attribute `structured_name`.
    Structured,
    /// Those of the program's variables: `conv2d_0.w_0`. The attribute `variable_name`.
    Variable,
}

/// How to lay out.
#[derive(Debug, Clone, Default)]
pub struct PlanOptions {
    /// The kind within the format, such as `parameter`; chosen from the content where `None`.
    pub kind: Option<String>,
    /// Values of the format's [settings](Facts::settings), by name.
    pub settings: Vec<(String, String)>,
    /// Bytes that planning may take for what it keeps until the plan was run; 256 MiB where `None`. The
    /// index and the plan itself are not counted.
    pub memory: Option<u64>,
    /// Write no entries of Weighbridge's own (`weighbridge.*`): what only they could hold is a loss, `index-dropped`.
    pub plain: bool,
}

impl PlanOptions {
    /// Options for a file of that kind.
    pub fn of_kind(kind: impl Into<String>) -> Self {
        Self { kind: Some(kind.into()), ..Self::default() }
    }

    /// The entry of Weighbridge's own that is written for `subject`: none in a plain file.
    pub(crate) fn own_entry(
        &self,
        entry: Option<String>,
        subject: &str,
        losses: &mut Vec<Loss>,
    ) -> Option<String> {
        if entry.is_some() && self.plain {
            let rest = "the roles, attributes and exact paths that its format has no place for";
            let keys = entry.as_deref().map(carried_keys).unwrap_or_default();
            let detail = match keys.is_empty() {
                true => format!("a plain file omits {rest}"),
                false => {
                    let keys = keys.iter().map(|key| escape_text(key));
                    format!(
                        "a plain file omits the metadata {}, and {rest}",
                        first_and_more(keys, NAMED_KEYS)
                    )
                }
            };
            losses.push(Loss::new("index-dropped", escape_text(subject), detail));
            return None;
        }
        entry
    }

    /// The value of a setting; the last one given counts.
    pub fn setting(&self, name: &str) -> Option<&str> {
        self.settings.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Fails where a setting is given that the format does not have.
    ///
    /// # Errors
    /// [`crate::Kind::Usage`], with the settings there are.
    pub fn check(&self, facts: &Facts) -> Result<()> {
        let known = |name: &str| facts.settings.iter().any(|s| s.name == name);
        let Some((name, _)) = self.settings.iter().find(|(name, _)| !known(name)) else { return Ok(()) };
        let all: Vec<_> = facts.settings.iter().map(|s| format!("{}={}", s.name, s.values)).collect();
        let error = Error::usage("unknown-setting", format!("{} has no such setting", facts.id)).found(name);
        let there = format!("there is {}", all.join("; "));
        Err(error.hint(if all.is_empty() { "it has none".to_owned() } else { there }))
    }
}

/// The format of that id.
///
/// # Errors
/// [`crate::Kind::Usage`], with the ids there are.
pub fn by_id(id: &str) -> Result<&'static dyn Format> {
    ALL.iter().copied().find(|f| f.facts().id == id).ok_or_else(|| {
        let ids: Vec<_> = ALL.iter().map(|f| f.facts().id).collect();
        Error::usage("unknown-format", "there is no such format")
            .found(id)
            .hint(format_args!("the formats are {}", ids.join(", ")))
    })
}

/// The format and kind that the extension of `path` means.
///
/// # Errors
/// [`crate::Kind::Usage`], with the extensions there are.
pub fn by_extension(path: &Path) -> Result<(&'static dyn Format, &'static str)> {
    let extension = path.extension().and_then(|e| e.to_str()).unwrap_or("").to_ascii_lowercase();
    for &format in ALL {
        for &(ours, kind) in format.facts().extensions {
            if ours == extension {
                return Ok((format, kind));
            }
        }
    }
    let known: Vec<_> = ALL.iter().flat_map(|f| f.facts().extensions).map(|(e, _)| format!(".{e}")).collect();
    Err(Error::usage("unknown-extension", "the name does not say which format to write")
        .in_file(path.display())
        .hint(format_args!("use --to FORMAT, or one of {}", known.join(" "))))
}

/// Opens the file at `path` with default options.
///
/// # Errors
/// As [`open_with`].
pub fn open(path: impl AsRef<Path>) -> Result<Checkpoint> {
    open_with(path, &OpenOptions::default())
}

/// Opens the file or folder at `path`. The content tells the format; where it is text that could be
/// anybody's, the extension of a table of text does, with a note. Files that belong to it are found
/// beside it.
///
/// # Errors
/// [`crate::Kind::Io`] when it cannot be read, and what the format's reader says.
pub fn open_with(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Checkpoint> {
    let path = path.as_ref();
    if kind_of_path(path)? == PathKind::Folder {
        return open_folder(&(Arc::new(LocalFolder::open(path)?) as FolderRef), options);
    }
    let source: SourceRef = Arc::new(FileSource::open(path)?);
    match LocalFolder::around(path) {
        Some((folder, name)) => open_in_folder(source, &(Arc::new(folder) as FolderRef), &name, options),
        None => open_source(source, options),
    }
}

/// Opens any source, alone.
///
/// # Errors
/// As [`open_with`].
pub fn open_source(source: SourceRef, options: &OpenOptions) -> Result<Checkpoint> {
    let label = source.label().to_owned();
    let open = |options: &OpenOptions| {
        let (format, _) = format_of(&source, None, options)?;
        format.open(source.clone(), options).map_err(|error| unknown::or_empty(error, &source))
    };
    finish(or_salvage(Place::Alone(&source), open, options), &label, options)
}

/// Opens a source that stands in `folder` under `name`, with what belongs to it there.
///
/// # Errors
/// As [`open_with`].
pub fn open_in_folder(
    source: SourceRef,
    folder: &FolderRef,
    name: &Path,
    options: &OpenOptions,
) -> Result<Checkpoint> {
    let label = source.label().to_owned();
    let open = |options: &OpenOptions| {
        let (format, note) = format_of(&source, Some(name), options)?;
        let mut opened = format
            .open_beside(source.clone(), folder, name, options)
            .map_err(|error| unknown::or_empty(error, &source))?;
        opened.notes.extend(note);
        Ok(opened)
    };
    finish(or_salvage(Place::Beside(&source, folder, name), open, options), &label, options)
}

/// Opens a folder: one that a format calls its own, or else the one model file that stands in it. Other model files there
/// are told in a note, `other-models`.
///
/// # Errors
/// As [`open_with`]; [`crate::Kind::Usage`]: `not-a-file` where there is no model, `several-models` where it is not clear
/// which one is meant.
pub fn open_folder(folder: &FolderRef, options: &OpenOptions) -> Result<Checkpoint> {
    let (mut opened, model) = FolderModel::of(folder, options)?.open(folder, options)?;
    folders::note(folder, &mut opened, &model);
    Ok(opened)
}

/// Opens a folder as one of that format.
fn as_folder(format: &dyn Format, folder: &FolderRef, options: &OpenOptions) -> Result<Checkpoint> {
    let open = |options: &OpenOptions| format.open_folder(folder, options);
    finish(or_salvage(Place::Folder(folder), open, options), folder.label(), options)
}

/// The first bytes, [`HEAD`] of them at most.
fn head_of(source: &SourceRef) -> Result<Vec<u8>> {
    let mut head = vec![0; HEAD.min(usize::try_from(source.len()).unwrap_or(HEAD))];
    source.read_at(0, &mut head)?;
    Ok(head)
}

fn finish(opened: Result<Checkpoint>, label: &str, options: &OpenOptions) -> Result<Checkpoint> {
    let mut checkpoint =
        opened.map_err(|e| if matches!(e.kind(), crate::Kind::Usage) { e } else { e.in_file(label) })?;
    checkpoint.check_parts(&options.limits)?;
    labels::gather(&mut checkpoint);
    if checkpoint.topology.is_none()
        && let Some(program) = &options.program
    {
        // Tensors that come back from a bridge to the program that they belong to.
        paddle::attach(&mut checkpoint, program, options)?;
    }
    match options.names {
        Names::AsStored => {}
        Names::Structured => checkpoint.use_names(STRUCTURED_NAME, VARIABLE_NAME)?,
        Names::Variable => {
            one_of_each(&mut checkpoint)?;
            checkpoint.use_names(VARIABLE_NAME, STRUCTURED_NAME)?;
        }
    }
    Ok(checkpoint)
}

/// Several structured names may be one variable: a tensor that is the same as another one under the
/// name that is asked for goes by that one.
fn one_of_each(checkpoint: &mut Checkpoint) -> Result<()> {
    let mut first = std::collections::HashMap::<String, usize>::new();
    let mut twice = Vec::new();
    for (place, tensor) in checkpoint.tensors.iter().enumerate().filter(|(_, t)| t.role.slot().is_none()) {
        let Some(name) = tensor.text_attribute(VARIABLE_NAME) else { continue };
        let Some(&other) = first.get(name) else {
            first.insert(name.to_owned(), place);
            continue;
        };
        let other = &checkpoint.tensors[other];
        let alike = (tensor.dtype(), &tensor.shape) == (other.dtype(), &other.shape);
        if alike && read_tensor(tensor, Order::Row)? == read_tensor(other, Order::Row)? {
            twice.push((place, format!("{} is {}", tensor.name(), other.name())));
        }
    }
    for (place, text) in twice.into_iter().rev() {
        checkpoint.tensors.remove(place);
        checkpoint.notes.push(Note::new("one-variable", format!("{text}: one variable, the same elements")));
    }
    Ok(())
}

/// The format of a folder, by what stands in it.
///
/// # Errors
/// [`crate::Kind::Usage`] where it is none that is known here.
pub fn detect_folder(folder: &FolderRef) -> Result<&'static dyn Format> {
    let gathered = || folders::gathered(folder);
    folders::own(folder).or_else(gathered).ok_or_else(|| folders::no_model(folder))
}

/// The format of a source, by its content.
///
/// # Errors
/// [`crate::Kind::Unsupported`], with a guess at what the file is instead.
pub fn detect(source: &SourceRef) -> Result<&'static dyn Format> {
    let head = head_of(source)?;
    match ALL.iter().find(|f| f.recognises(&head, source)) {
        Some(&format) => Ok(format),
        None => Err(unknown::explain(&head, source)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_formats_claim_an_extension_or_id() {
        let mut extensions: Vec<_> = ALL.iter().flat_map(|f| f.facts().extensions).map(|e| e.0).collect();
        let mut ids: Vec<_> = ALL.iter().map(|f| f.facts().id).collect();
        for list in [&mut extensions, &mut ids] {
            list.sort_unstable();
            let count = list.len();
            list.dedup();
            assert_eq!(list.len(), count);
        }
    }

    /// What several formats claimed.
    #[test]
    fn no_two_formats_claim_a_file() {
        let long = format!("ARROW1\t22543e-{}\n", "8".repeat(100));
        for (bytes, id) in [(&b"]q)))).035224949\t-44."[..], "paddle"), (long.as_bytes(), "tsv")] {
            let source: SourceRef =
                std::sync::Arc::new(crate::source::MemorySource::new("m", bytes.to_vec()));
            let claims: Vec<_> = ALL.iter().filter(|f| f.recognises(bytes, &source)).collect();
            assert_eq!(claims.iter().map(|f| f.facts().id).collect::<Vec<_>>(), [id]);
        }
    }

    #[test]
    fn a_plain_file_names_the_metadata_that_it_omits() {
        let mut checkpoint = Checkpoint::new("test", "test", "m");
        checkpoint.metadata.set("epoch", Value::U64(3));
        checkpoint.metadata.set("note", Value::Text("kept by some".to_owned()));
        let options = PlanOptions { plain: true, ..PlanOptions::default() };
        let found = |format: &dyn Format| {
            let losses = format.plan(&checkpoint, &options).unwrap().losses;
            let dropped: Vec<_> = losses.into_iter().filter(|loss| loss.code == "index-dropped").collect();
            assert_eq!(dropped.len(), 1);
            dropped[0].detail.clone()
        };
        let of = |keys: &str| {
            format!(
                "a plain file omits the metadata {keys}, and the roles, attributes and exact paths that its format has no place for"
            )
        };
        assert_eq!(found(&safetensors::Safetensors), of("epoch"));
        for format in [&npz::Npz as &dyn Format, &torch::Torch] {
            let detail = found(format);
            assert!([of("epoch, note"), of("note, epoch")].contains(&detail), "{detail}");
        }
    }

    #[test]
    fn unknown_names_say_what_there_is() {
        let settings =
            PlanOptions { settings: vec![("colour".to_owned(), "red".to_owned())], ..PlanOptions::default() };
        let hint = |format: &dyn Format| {
            settings.check(format.facts()).unwrap_err().hint_text().map(str::to_owned).unwrap()
        };
        assert_eq!(hint(&npz::Npz), "it has none");
        assert!(hint(&tsv::Tsv).starts_with("there is floats="), "{}", hint(&tsv::Tsv));
        assert!(by_id("nope").err().unwrap().hint_text().unwrap().contains("primitiv"));
        assert!(by_extension(Path::new("x")).err().unwrap().hint_text().unwrap().contains(".model"));
    }
}
