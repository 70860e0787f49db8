//! The traits of a format, and how to open and lay out.

use crate::RowNameSupport;
use std::any::Any;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weighbridge_core::check::Outline;
use weighbridge_core::checkpoint::{
    Checkpoint, Loss, Lost, Metadata, RowNameList, TensorEntry, Value, escape_text,
};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::finding::Finding;
use weighbridge_core::limits::Limits;
use weighbridge_core::plan::{PlannedFile, WritePlan};

use weighbridge_core::source::{FolderRef, SourceRef};
use weighbridge_core::tensor::{DType, Order};
use weighbridge_core::text::first_and_more;
#[cfg(feature = "scan")]
use weighbridge_scan::Scan;

/// Keys of metadata that a loss names one by one before it counts them.
const NAMED_KEYS: usize = 20;

/// Bytes of the beginning of a file that [`Detect::recognises`] may look at.
pub const HEAD: usize = 4096;

/// A file format, as a [`Registry`](crate::Registry) holds it.
///
/// Every format recognises its files ([`Detect`]) and reads them ([`ReadFormat`]). What else it can do it says here.
pub trait Format: Detect + ReadFormat + Sync {
    /// The name of the format, and what it can hold.
    fn info(&self) -> &'static FormatInfo;

    /// The layouter, where the format can be written.
    fn writer(&self) -> Option<&dyn WriteFormat> {
        None
    }

    /// The reader of damaged files, where the format saves more than a lenient reading gives.
    fn salvager(&self) -> Option<&dyn Salvage> {
        None
    }

    /// The check of rules that only this format knows.
    fn checker(&self) -> Option<&dyn DeepCheck> {
        None
    }

    /// The search for code, where files of the format can hold any.
    #[cfg(feature = "scan")]
    fn scanner(&self) -> Option<&dyn ScanCode> {
        None
    }
}

impl dyn Format + '_ {
    /// The layouter of a format that is to be written.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Usage`], `not-written`, where it can only be read.
    pub fn required_writer(&self) -> Result<&dyn WriteFormat> {
        let missing =
            || Error::usage("not-written", "files of this format are read only").found(self.info().id);
        self.writer().ok_or_else(missing)
    }

    /// Lays out a file that holds `checkpoint`; pure.
    ///
    /// # Errors
    /// As `required_writer` and [`WriteFormat::plan`].
    pub fn plan(&self, checkpoint: &Checkpoint, options: &PlanOptions) -> Result<WritePlan> {
        self.required_writer()?.plan(checkpoint, options)
    }
}

/// Recognises the files of a format.
pub trait Detect {
    /// True where a file of this beginning (at most [`HEAD`] bytes) is of this format, by content
    /// alone. Formats are asked in the order of the
    /// registry, and the first that says yes reads the file. Archives may look further into `source`.
    fn recognises(&self, head: &[u8], source: &SourceRef) -> bool;

    /// True where the folder is a checkpoint of this format, by what stands in it.
    fn recognises_folder(&self, folder: &FolderRef) -> bool {
        let _ = folder;
        false
    }

    /// True where several files, which are all the model files of a folder that no format calls its own, are one
    /// checkpoint of this format: what else stands there does not keep them from being that.
    fn recognises_file_set(&self, files: &[PathBuf]) -> bool {
        let _ = files;
        false
    }

    /// True for a name that the format gives to files of its folders, and of which its reader tells in its own words
    /// where they are not part of what is opened, such as an older version.
    fn owns_sibling(&self, name: &Path) -> bool {
        let _ = name;
        false
    }

    /// True for text whose content does not tell the format: the extension of the file's name decides, with a note.
    fn is_detected_by_extension(&self) -> bool {
        false
    }

    /// True where text of any kind would be recognised, such as a vocabulary of numbers: without the extension of the
    /// format such a file is no model.
    fn needs_extension(&self) -> bool {
        false
    }

    /// True where other programs use its extensions as well, as in `tokenizer.model` and `metadata.tsv`.
    fn shares_extensions(&self) -> bool {
        false
    }
}

/// Reads the index of a file: headers and length prefixes, never tensor data.
pub trait ReadFormat {
    /// Reads the index of a file that stands alone.
    ///
    /// # Errors
    /// Bad input gives [`weighbridge_core::Kind::Corrupt`], [`weighbridge_core::Kind::Unsupported`] or
    /// [`weighbridge_core::Kind::Limit`] with the place.
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

    /// Reads the index of a folder.
    ///
    /// # Errors
    /// As [`open`](Self::open); [`weighbridge_core::Kind::Usage`] where the format knows no folders.
    fn open_folder(&self, folder: &FolderRef, options: &OpenOptions) -> Result<Checkpoint> {
        let _ = options;
        Err(Error::usage("not-a-file", "the format has no form that is a folder")
            .in_file(folder.label())
            .hint("give the path of one model file"))
    }

    /// Adds to an opened checkpoint of any format what the options name for it, such as the program that its tensors
    /// belong to.
    ///
    /// # Errors
    /// What reading that says.
    fn attach(&self, checkpoint: &mut Checkpoint, options: &OpenOptions) -> Result<()> {
        let _ = (checkpoint, options);
        Ok(())
    }

    /// The names of the rows of a tensor, where metadata of this format say them; asked of tensors of any format, as
    /// metadata are carried along.
    fn row_names(&self, checkpoint: &Checkpoint, tensor: &TensorEntry) -> Option<RowNameList> {
        let _ = (checkpoint, tensor);
        None
    }

    /// True for metadata that says how a file of this format was written, and nothing of the model: names of its files,
    /// versions of its form. The same model in another form has other ones, or none. Keys within maps are joined by `/`.
    fn is_format_metadata(&self, key: &str, value: &Value) -> bool {
        let _ = (key, value);
        false
    }
}

/// Lays out files of a format.
pub trait WriteFormat {
    /// Lays out a file that holds `checkpoint`; pure.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Mismatch`] where the format cannot hold it at all.
    fn plan(&self, checkpoint: &Checkpoint, options: &PlanOptions) -> Result<WritePlan>;

    /// Changes a checkpoint of any format into one that this format lays out: what the files that `open` names say of it is
    /// added, and `seed` decides values that must be drawn. Returns what is lost.
    ///
    /// # Errors
    /// What reading these files says, and [`weighbridge_core::Kind::Mismatch`] where they are of another model.
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

    /// The other checkpoints in the `folder` of the opened one, such as its earlier versions, which a plan with these
    /// settings could take along; `all` where it will. `None` where the format has no such folders, or the opened one is
    /// none.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`] where the folder cannot be listed; [`weighbridge_core::Kind::Usage`] for settings
    /// with which they cannot be taken along.
    fn companions(
        &self,
        checkpoint: &Checkpoint,
        folder: &Path,
        open: &OpenOptions,
        settings: &PlanOptions,
        all: bool,
    ) -> Result<Option<Vec<Companion>>> {
        let _ = (checkpoint, folder, open, settings, all);
        Ok(None)
    }

    /// Adds the plan of a companion, laid out with the same options, to that of the opened checkpoint.
    fn add_companion(&self, plan: &mut WritePlan, companion: &Companion, files: Vec<PlannedFile>) {
        let _ = companion;
        plan.files.extend(files);
    }

    /// Where it keeps the names of the rows of tables.
    fn labels_in(&self) -> RowNameSupport {
        RowNameSupport::Nowhere
    }

    /// True where tensors of the same elements can share their bytes, and know of it.
    fn supports_shared_storage(&self) -> bool {
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
    fn sharding_settings(&self, checkpoint: &Checkpoint) -> Vec<(String, String)> {
        let _ = checkpoint;
        Vec::new()
    }

    /// The stem of the one file of a model and its extension, as loaders of transformers look for it, where it is not
    /// `model` and the first extension of the format.
    fn loaded_as(&self) -> Option<(&'static str, &'static str)> {
        None
    }
}

/// Another checkpoint that stands in the folder of the opened one: an earlier version, a snapshot.
#[derive(Debug, Clone)]
pub struct Companion {
    /// Its name in reports.
    pub name: String,
    /// Its path.
    pub path: PathBuf,
    /// The options that open it.
    pub options: OpenOptions,
    /// The folder within the target that its files go to; the target itself where `None`.
    pub folder: Option<String>,
}

/// Reads the intact tensors of damaged files.
pub trait Salvage {
    /// True where a file of this beginning could be a damaged one of this format, which
    /// [`Detect::recognises`] does not know any more.
    fn recognises_damaged(&self, head: &[u8], source: &SourceRef) -> bool {
        let _ = (head, source);
        false
    }

    /// The damage of a file that opens, where only reading all of it tells, and reading it as
    /// tensors would not: asked before anything is called intact.
    ///
    /// # Errors
    /// What the source says.
    fn hidden_damage(&self, source: &SourceRef, options: &OpenOptions) -> Result<Option<Error>> {
        let _ = (source, options);
        Ok(None)
    }

    /// Takes what is intact out of a damaged file or folder. `error` is what opening it said. Tensors
    /// that are lost are told by [`Checkpoint::lose`]; the caller marks what comes back. `None` where
    /// the format can save no more than a lenient reading gives.
    ///
    /// # Errors
    /// As [`ReadFormat::open`]; an error that is about the file is one of nothing saved.
    fn salvage(&self, place: &Input<'_>, error: &Error, options: &OpenOptions) -> Result<Option<Checkpoint>> {
        let _ = (place, error, options);
        Ok(None)
    }

    /// The rows of a damaged table before the first one that cannot be read, and what is lost; `None` where the format
    /// saves no part of a tensor, or not one row is intact.
    ///
    /// # Errors
    /// What is not about the file.
    fn intact_rows(&self, tensor: &TensorEntry, error: &Error) -> Result<Option<(TensorEntry, Lost)>> {
        let _ = (tensor, error);
        Ok(None)
    }

    /// True where decoding proves nothing of the elements: text, and bytes as they are.
    fn is_unproved(&self) -> bool {
        false
    }
}

/// Checks rules that only a format knows.
pub trait DeepCheck {
    /// Checks what only this format knows of an opened `checkpoint`: its program against its
    /// parameters, its own rules. What opening refuses was found by opening already.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`] when bytes that must be looked at cannot be read.
    fn check(&self, checkpoint: &Checkpoint) -> Result<Vec<Finding>> {
        let _ = checkpoint;
        Ok(Vec::new())
    }

    /// The ranges of a file of this format that hold no elements, and what they are, from headers
    /// alone. Asked for each file of a checkpoint when its bytes are accounted for; `source` may be any
    /// file that belongs to one of this format.
    ///
    /// # Errors
    /// What keeps the file from being read.
    fn outline(&self, source: &SourceRef, limits: &Limits) -> Result<Outline>;
}

/// Finds code in files, without executing any.
#[cfg(feature = "scan")]
pub trait ScanCode {
    /// Looks for what could happen if the original framework opened a file of this format: code
    /// that would run, source code that would be given away.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`] when the file cannot be read.
    fn scan(&self, source: &SourceRef, options: &OpenOptions) -> Result<Scan>;

    /// True for a file of this beginning that is scanned as any zip archive: each member by itself.
    fn is_plain_archive(&self, head: &[u8]) -> bool {
        let _ = head;
        false
    }

    /// The container that a file is, where its content alone does not say that it is of this format and neither does its
    /// name nor what was found: `pickle`.
    fn plain_container(&self, head: &[u8], name: &Path, scan: &Scan) -> Option<&'static str> {
        let _ = (head, name, scan);
        None
    }

    /// True for a text of this name that belongs to folders of this format and holds no code.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`] when the file cannot be read.
    fn is_text(&self, name: &Path, source: &SourceRef, limits: &Limits) -> Result<bool> {
        let _ = (name, source, limits);
        Ok(false)
    }
}

/// The name of a format, and what it can hold.
#[derive(Debug)]
pub struct FormatInfo {
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
///
/// Options that one format alone understands are values of their own: `options.with_own(paddle::ReadOptions { .. })`.
#[derive(Debug, Clone, Default)]
pub struct OpenOptions {
    /// The id of the format, where the caller knows better than the content tells.
    pub format: Option<String>,
    /// Read what can be read unambiguously though the file breaks a rule, and note it.
    pub lenient: bool,
    /// Where the file is damaged, give the tensors that are intact, and say which are lost in
    /// [`Checkpoint::damage`]. Bytes that have checksums are read and held against them.
    pub salvage: bool,
    /// Bounds on what the file may ask for.
    pub limits: Limits,
    /// Which names the tensors get, where the file or those beside it know several.
    pub names: Names,
    /// Options of single formats.
    pub by_format: FormatOptionSet,
}

/// Options of single formats, at most one value of each type.
#[derive(Debug, Clone, Default)]
pub struct FormatOptionSet(Vec<Arc<dyn FormatOptions>>);

impl OpenOptions {
    /// Adds options of one format; they replace earlier ones of their type.
    #[must_use]
    pub fn with_own<T: FormatOptions>(mut self, own: T) -> Self {
        self.set_own(own);
        self
    }

    /// As [`with_own`](Self::with_own), in place.
    pub fn set_own<T: FormatOptions>(&mut self, own: T) {
        self.by_format.0.retain(|other| (&**other as &dyn Any).downcast_ref::<T>().is_none());
        self.by_format.0.push(Arc::new(own));
    }

    /// The options of one format, as they were given or by default.
    pub fn own<T: FormatOptions + Clone + Default>(&self) -> T {
        let mut all = self.by_format.0.iter().filter_map(|own| (&**own as &dyn Any).downcast_ref::<T>());
        all.next().cloned().unwrap_or_default()
    }

    /// The options of all formats that were given any.
    pub fn all_own(&self) -> impl Iterator<Item = &dyn FormatOptions> {
        self.by_format.0.iter().map(|own| &**own)
    }

    /// The same options, with all files that they name read through `wrap`.
    #[must_use]
    pub fn wrapped(&self, wrap: &dyn WrapFiles) -> Self {
        let by_format = self.by_format.0.iter().map(|own| own.wrapped(wrap)).collect();
        Self { by_format: FormatOptionSet(by_format), ..self.clone() }
    }
}

/// Options of opening that one format alone understands, such as the program of Paddle's parameters.
pub trait FormatOptions: Any + Debug + Send + Sync {
    /// The same options, with all files that they name read through `wrap`.
    fn wrapped(&self, wrap: &dyn WrapFiles) -> Arc<dyn FormatOptions>;

    /// The files that are named and open.
    fn sources(&self) -> Vec<SourceRef> {
        Vec::new()
    }

    /// The paths of the files in folders that are named.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`] where a folder cannot be listed.
    fn files(&self) -> Result<Vec<PathBuf>> {
        Ok(Vec::new())
    }

    /// The options that change what is read from the same files, as a manifest records them: `at=3`, `program`.
    fn words(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Puts something between a reader and the files that options name.
pub trait WrapFiles {
    /// The source to read instead.
    fn source(&self, source: SourceRef) -> SourceRef;

    /// The folder to read instead.
    fn folder(&self, folder: FolderRef) -> FolderRef;
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
    /// Values of the format's [settings](FormatInfo::settings), by name.
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
    pub fn own_entry(&self, entry: Option<String>, subject: &str, losses: &mut Vec<Loss>) -> Option<String> {
        if entry.is_some() && self.plain {
            let rest = "the roles, attributes and exact paths that its format has no place for";
            let keys = entry.as_deref().map(Metadata::carried_keys).unwrap_or_default();
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
    /// [`weighbridge_core::Kind::Usage`], with the settings there are.
    pub fn check(&self, info: &FormatInfo) -> Result<()> {
        let known = |name: &str| info.settings.iter().any(|s| s.name == name);
        let Some((name, _)) = self.settings.iter().find(|(name, _)| !known(name)) else { return Ok(()) };
        let all: Vec<_> = info.settings.iter().map(|s| format!("{}={}", s.name, s.values)).collect();
        let error = Error::usage("unknown-setting", format!("{} has no such setting", info.id)).found(name);
        let there = format!("there is {}", all.join("; "));
        Err(error.hint(if all.is_empty() { "it has none".to_owned() } else { there }))
    }
}

/// What is opened.
#[derive(Debug, Clone, Copy)]
pub enum Input<'a> {
    /// A source alone.
    Alone(&'a SourceRef),
    /// A source that stands in a folder under a name.
    Beside(&'a SourceRef, &'a FolderRef, &'a Path),
    /// A folder.
    Folder(&'a FolderRef),
}

impl<'a> Input<'a> {
    /// The source, where it is not a folder.
    pub fn source(&self) -> Option<&'a SourceRef> {
        match *self {
            Self::Alone(source) | Self::Beside(source, ..) => Some(source),
            Self::Folder(_) => None,
        }
    }

    /// The folder, where it is one.
    pub fn folder(&self) -> Option<&'a FolderRef> {
        match *self {
            Self::Folder(folder) => Some(folder),
            _ => None,
        }
    }

    /// The path, or what else people call it.
    pub fn label(&self) -> &'a str {
        match *self {
            Self::Alone(source) | Self::Beside(source, ..) => source.label(),
            Self::Folder(folder) => folder.label(),
        }
    }
}
