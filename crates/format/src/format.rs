//! Traits of a format, and the options of opening and writing.

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
use weighbridge_core::text::{counted, first_and_more, near};
#[cfg(feature = "scan")]
use weighbridge_scan::Scan;

/// Maximum number of metadata keys named in a loss; further ones are counted.
const MAX_NAMED_KEYS: usize = 3;

/// Maximum bytes at the start of a file passed to [`Detect::recognises`].
pub const HEAD: usize = 4096;

/// File format, as registered in a [`Registry`](crate::Registry).
///
/// Every format detects its files ([`Detect`]) and reads them ([`ReadFormat`]). Other capabilities are optional.
pub trait Format: Detect + ReadFormat + Sync {
    /// Returns the name of the format and the data it supports.
    fn info(&self) -> &'static FormatInfo;

    /// Returns the writer, if the format can be written.
    fn writer(&self) -> Option<&dyn WriteFormat> {
        None
    }

    /// Returns the salvage reader, if it recovers more than a lenient open.
    fn salvager(&self) -> Option<&dyn Salvage> {
        None
    }

    /// Returns the check of format-specific rules.
    fn checker(&self) -> Option<&dyn DeepCheck> {
        None
    }

    /// Returns the scanner, if files of the format can contain code.
    #[cfg(feature = "scan")]
    fn scanner(&self) -> Option<&dyn ScanCode> {
        None
    }
}

impl dyn Format + '_ {
    /// Returns the writer, or an error.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Usage`], `not-written`, if the format is read-only.
    pub fn required_writer(&self) -> Result<&dyn WriteFormat> {
        let name = self.info().coverage.name;
        let missing = || {
            Error::usage("not-written", format!("Weighbridge reads {name} files, but does not write them"))
                .found(self.info().id)
        };
        self.writer().ok_or_else(missing)
    }

    /// Plans a file with the content of `checkpoint`; pure.
    ///
    /// # Errors
    /// As `required_writer` and [`WriteFormat::plan`].
    pub fn plan(&self, checkpoint: &Checkpoint, options: &PlanOptions) -> Result<WritePlan> {
        self.required_writer()?.plan(checkpoint, options)
    }
}

/// Detection of the files of a format.
pub trait Detect {
    /// Returns true if a file with this beginning (at most [`HEAD`] bytes) is of this format, by content alone. Formats are tried in
    /// the order of the registry; the first match reads the file. Archives may read more of `source`.
    fn recognises(&self, head: &[u8], source: &SourceRef) -> bool;

    /// Returns true if the folder is a checkpoint of this format, by its files.
    fn recognises_folder(&self, folder: &FolderRef) -> bool {
        let _ = folder;
        false
    }

    /// Returns true if `files`, all model files of a folder that no format recognizes, are one checkpoint of this format. Other files
    /// in the folder do not matter.
    fn recognises_file_set(&self, files: &[PathBuf]) -> bool {
        let _ = files;
        false
    }

    /// Returns true for the name of a file that belongs to folders of this format and that its reader reports itself, such as an older
    /// version.
    fn owns_sibling(&self, name: &Path) -> bool {
        let _ = name;
        false
    }

    /// Returns true if the file `name` of `folder` has no distinctive content, and a file beside it describes it, as a network does for
    /// weights without names. Called for files that no format recognizes by content.
    fn recognises_beside(&self, folder: &FolderRef, name: &Path) -> bool {
        let _ = (folder, name);
        false
    }

    /// Returns true if the content of a text file is not distinctive: the file extension decides, with a note.
    fn is_detected_by_extension(&self) -> bool {
        false
    }

    /// Returns true if almost any text is recognized, such as a vocabulary of numbers: without the extension of the format, a file in
    /// a folder does not count as a model.
    fn needs_extension(&self) -> bool {
        false
    }

    /// Returns true if other programs use its extensions as well, as in `tokenizer.model` and `metadata.tsv`.
    fn shares_extensions(&self) -> bool {
        false
    }
}

/// Reader of the index of a file: headers and length prefixes, never tensor data.
pub trait ReadFormat {
    /// Reads the index of a single file.
    ///
    /// # Errors
    /// Malformed input is [`weighbridge_core::Kind::Corrupt`], [`weighbridge_core::Kind::Unsupported`] or
    /// [`weighbridge_core::Kind::Limit`], with the offset.
    fn open(&self, source: SourceRef, options: &OpenOptions) -> Result<Checkpoint>;

    /// Reads the index of the file `name` and of its related files in `folder`. Formats of single files use the default.
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
    /// As [`open`](Self::open); [`weighbridge_core::Kind::Usage`] if the format does not support folders.
    fn open_folder(&self, folder: &FolderRef, options: &OpenOptions) -> Result<Checkpoint> {
        let _ = options;
        Err(Error::usage("not-a-file", "the format does not support folders")
            .in_file(folder.label())
            .hint("give the path of one model file"))
    }

    /// Adds data named by the options to an opened checkpoint of any format, such as the program of its tensors.
    ///
    /// # Errors
    /// Errors of reading that data.
    fn attach(&self, checkpoint: &mut Checkpoint, options: &OpenOptions) -> Result<()> {
        let _ = (checkpoint, options);
        Ok(())
    }

    /// Returns the row names of a tensor stored in metadata of this format. Called for checkpoints of any format, since conversions
    /// keep metadata.
    fn row_names(&self, checkpoint: &Checkpoint, tensor: &TensorEntry) -> Option<RowNameList> {
        let _ = (checkpoint, tensor);
        None
    }

    /// Returns true for metadata about the file rather than the model: file names, format versions. They differ or are missing for the
    /// same model in another format. Keys within maps are joined by `/`.
    fn is_format_metadata(&self, key: &str, value: &Value) -> bool {
        let _ = (key, value);
        false
    }
}

/// Writer of a format: plans its files.
pub trait WriteFormat {
    /// Plans a file with the content of `checkpoint`; pure.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Mismatch`] if the format cannot represent it.
    fn plan(&self, checkpoint: &Checkpoint, options: &PlanOptions) -> Result<WritePlan>;

    /// Adapts a checkpoint of any format to this one: adds data of the files named by `open`, and initializes missing values from
    /// `seed`. Returns the losses.
    ///
    /// # Errors
    /// Errors of reading these files, and [`weighbridge_core::Kind::Mismatch`] if they belong to another model.
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

    /// Returns the other checkpoints in the `folder` of the opened one, such as earlier versions, that a plan with these settings could
    /// include; `all` if it will. `None` if the format has no such folders, or the opened one is not of this kind.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`] if the folder cannot be listed; [`weighbridge_core::Kind::Usage`] if the settings do not allow
    /// companions.
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

    /// Adds the plan of a companion, made with the same options, to the plan of the opened checkpoint.
    fn add_companion(&self, plan: &mut WritePlan, companion: &Companion, files: Vec<PlannedFile>) {
        let _ = companion;
        plan.files.extend(files);
    }

    /// Returns the kind of support for row names of tables.
    fn labels_in(&self) -> RowNameSupport {
        RowNameSupport::Nowhere
    }

    /// Returns true if the format can store tied tensors once.
    fn supports_shared_storage(&self) -> bool {
        false
    }

    /// Returns the settings with which a rewritten file keeps the tensors of the opened `checkpoint` at their offsets, if the format has
    /// any.
    fn settings_in_place(&self, checkpoint: &Checkpoint) -> Vec<(String, String)> {
        let _ = checkpoint;
        Vec::new()
    }

    /// Returns the settings with which the opened `checkpoint` is split into the same shards when rewritten, if the format has any.
    fn sharding_settings(&self, checkpoint: &Checkpoint) -> Vec<(String, String)> {
        let _ = checkpoint;
        Vec::new()
    }

    /// Returns stem and extension of the file that loaders of transformers open, if it is not `model` and the first extension of the
    /// format.
    fn loaded_as(&self) -> Option<(&'static str, &'static str)> {
        None
    }
}

/// Another checkpoint in the folder of the opened one: an earlier version, a snapshot.
#[derive(Debug, Clone)]
pub struct Companion {
    /// Name in reports.
    pub name: String,
    /// Path.
    pub path: PathBuf,
    /// Options to open it.
    pub options: OpenOptions,
    /// Folder for its files within the target; `None` for the target itself.
    pub folder: Option<String>,
}

/// Reader of the intact tensors of damaged files.
pub trait Salvage {
    /// Returns true if a file with this beginning may be a damaged file of this format that [`Detect::recognises`] rejects.
    fn recognises_damaged(&self, head: &[u8], source: &SourceRef) -> bool {
        let _ = (head, source);
        false
    }

    /// Returns damage of a file that opens, if only reading the whole file detects it, not reading its tensors. Called before tensors
    /// are reported as intact.
    ///
    /// # Errors
    /// Errors of the source.
    fn hidden_damage(&self, source: &SourceRef, options: &OpenOptions) -> Result<Option<Error>> {
        let _ = (source, options);
        Ok(None)
    }

    /// Reads the intact tensors of a damaged file or folder. `error` is the error of opening it. Record lost tensors with
    /// [`Checkpoint::lose`]; the caller marks the result as damaged. `None` if a lenient open recovers as much.
    ///
    /// # Errors
    /// As [`ReadFormat::open`]; an error about the content means that nothing was recovered.
    fn salvage(&self, place: &Input<'_>, error: &Error, options: &OpenOptions) -> Result<Option<Checkpoint>> {
        let _ = (place, error, options);
        Ok(None)
    }

    /// Returns the rows of a damaged table before the first unreadable one, and the loss. `None` if the format does not recover parts
    /// of a tensor, or no row is intact.
    ///
    /// # Errors
    /// Errors unrelated to the content.
    fn intact_rows(&self, tensor: &TensorEntry, error: &Error) -> Result<Option<(TensorEntry, Lost)>> {
        let _ = (tensor, error);
        Ok(None)
    }

    /// Returns true if decoding does not verify the elements: text, and plain bytes.
    fn is_unproved(&self) -> bool {
        false
    }
}

/// Check of format-specific rules.
pub trait DeepCheck {
    /// Checks format-specific rules of an opened `checkpoint`, such as its program against its parameters. Opening has already enforced
    /// some of them.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`] if required bytes cannot be read.
    fn check(&self, checkpoint: &Checkpoint) -> Result<Vec<Finding>> {
        let _ = checkpoint;
        Ok(Vec::new())
    }

    /// Returns the ranges of a file without elements, from headers alone. Called for each file of a checkpoint by checks that account
    /// for all bytes; `source` may be any file of a checkpoint of this format.
    ///
    /// # Errors
    /// Errors of reading the file.
    fn outline(&self, source: &SourceRef, limits: &Limits) -> Result<Outline>;

    /// Returns the outline of a file of `checkpoint`. For formats whose files do not describe themselves; others use the default.
    ///
    /// # Errors
    /// As [`outline`](Self::outline).
    fn outline_within(
        &self,
        checkpoint: &Checkpoint,
        source: &SourceRef,
        limits: &Limits,
    ) -> Result<Outline> {
        let _ = checkpoint;
        self.outline(source, limits)
    }
}

/// Scanner for code in files. Nothing is executed.
#[cfg(feature = "scan")]
pub trait ScanCode {
    /// Reports the risks of loading a file of this format in its original framework: code that would run, and source code in the file.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`] if the file cannot be read.
    fn scan(&self, source: &SourceRef, options: &OpenOptions) -> Result<Scan>;

    /// Returns true for a file that is scanned as a plain zip archive, member by member.
    fn is_plain_archive(&self, head: &[u8]) -> bool {
        let _ = head;
        false
    }

    /// Returns the container of a file, `pickle`, if neither content, name nor findings show that it is of this format.
    fn plain_container(&self, head: &[u8], name: &Path, scan: &Scan) -> Option<&'static str> {
        let _ = (head, name, scan);
        None
    }

    /// Returns true for a text file of this name that belongs to folders of this format and contains no code.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`] if the file cannot be read.
    fn is_text(&self, name: &Path, source: &SourceRef, limits: &Limits) -> Result<bool> {
        let _ = (name, source, limits);
        Ok(false)
    }
}

/// Name of a format and the data it supports.
#[derive(Debug)]
pub struct FormatInfo {
    /// Name on the command line and in JSON.
    pub id: &'static str,
    /// Title in one line.
    pub title: &'static str,
    /// Row in the tables of formats of the README and the book.
    pub coverage: Coverage,
    /// File extensions, without dot, with the kind of each.
    pub extensions: &'static [(&'static str, &'static str)],
    /// Supported dtypes.
    pub dtypes: &'static [DType],
    /// Supported storage order; `None` for both.
    pub order: Option<Order>,
    /// Settings for writing, besides the kind.
    pub settings: &'static [Setting],
}

/// Files of a format that are read and written, in words for users.
#[derive(Debug)]
pub struct Coverage {
    /// Name as users of the format write it: `PyTorch`.
    pub name: &'static str,
    /// Files and values that are read.
    pub read: &'static str,
    /// Files that are written: `yes`, or a part of the format; empty if none are.
    pub written: &'static str,
    /// Files and values of the format that are not read; may be empty.
    pub not_read: &'static str,
}

/// Setting for writing a format: `--set NAME=VALUE`.
#[derive(Debug)]
pub struct Setting {
    /// Name.
    pub name: &'static str,
    /// Valid values, for users: `2, 3 or 4`.
    pub values: &'static str,
    /// Effect in one line, with the default.
    pub what: &'static str,
}

/// Options of opening.
///
/// Options of a single format are values of their own type: `options.with_own(paddle::ReadOptions { .. })`.
#[derive(Debug, Clone, Default)]
pub struct OpenOptions {
    /// Id of the format; `None` detects it.
    pub format: Option<String>,
    /// Accepts files that break a rule but can be read unambiguously, with a note.
    pub lenient: bool,
    /// Returns the intact tensors of a damaged file, and lists the lost ones in [`Checkpoint::damage`]. Checksums are verified.
    pub salvage: bool,
    /// Limits for untrusted files.
    pub limits: Limits,
    /// Names of tensors, if the file or its related files have several.
    pub names: Names,
    /// Options of single formats.
    pub by_format: FormatOptionSet,
}

/// Options of single formats, at most one value per type.
#[derive(Debug, Clone, Default)]
pub struct FormatOptionSet(Vec<Arc<dyn FormatOptions>>);

impl OpenOptions {
    /// Adds options of one format, and replaces earlier ones of the same type.
    #[must_use]
    pub fn with_own<T: FormatOptions>(mut self, own: T) -> Self {
        self.set_own(own);
        self
    }

    /// Sets options of one format, as [`with_own`](Self::with_own), in place.
    pub fn set_own<T: FormatOptions>(&mut self, own: T) {
        self.by_format.0.retain(|other| (&**other as &dyn Any).downcast_ref::<T>().is_none());
        self.by_format.0.push(Arc::new(own));
    }

    /// Returns the options of one format, or their default.
    pub fn own<T: FormatOptions + Clone + Default>(&self) -> T {
        let mut all = self.by_format.0.iter().filter_map(|own| (&**own as &dyn Any).downcast_ref::<T>());
        all.next().cloned().unwrap_or_default()
    }

    /// Returns all options of single formats.
    pub fn all_own(&self) -> impl Iterator<Item = &dyn FormatOptions> {
        self.by_format.0.iter().map(|own| &**own)
    }

    /// Returns the options with all named files wrapped by `wrap`.
    #[must_use]
    pub fn wrapped(&self, wrap: &dyn WrapFiles) -> Self {
        let by_format = self.by_format.0.iter().map(|own| own.wrapped(wrap)).collect();
        Self { by_format: FormatOptionSet(by_format), ..self.clone() }
    }
}

/// Options of opening for a single format, such as the program of Paddle parameters.
pub trait FormatOptions: Any + Debug + Send + Sync {
    /// Returns the options with all named files wrapped by `wrap`.
    fn wrapped(&self, wrap: &dyn WrapFiles) -> Arc<dyn FormatOptions>;

    /// Returns the named files that are open.
    fn sources(&self) -> Vec<SourceRef> {
        Vec::new()
    }

    /// Returns the paths of the files in named folders.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`] if a folder cannot be listed.
    fn files(&self) -> Result<Vec<PathBuf>> {
        Ok(Vec::new())
    }

    /// Returns the options that change the content read from the same files, as recorded in a manifest: `at=3`, `program`.
    fn words(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Wrapper for the files named by options, such as a tracker of reads.
pub trait WrapFiles {
    /// Returns the source to read instead.
    fn source(&self, source: SourceRef) -> SourceRef;

    /// Returns the folder to read instead.
    fn folder(&self, folder: FolderRef) -> FolderRef;
}

/// Choice of tensor names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Names {
    /// Names stored in the opened file.
    #[default]
    AsStored,
    /// Names in the structure of the source code: `conv1.weight`. The attribute `structured_name`.
    Structured,
    /// Names of the variables of the program: `conv2d_0.w_0`. The attribute `variable_name`.
    Variable,
}

/// Options of planning a file.
#[derive(Debug, Clone, Default)]
pub struct PlanOptions {
    /// Kind within the format, such as `parameter`; `None` chooses it by content.
    pub kind: Option<String>,
    /// Values of the [settings](FormatInfo::settings) of the format, by name.
    pub settings: Vec<(String, String)>,
    /// Maximum bytes that planning may hold until the plan was run, without the index and the plan itself; `None` for 256 MiB.
    pub memory: Option<u64>,
    /// Writes no entries of Weighbridge (`weighbridge.*`). Data that only they can represent is a loss, `index-dropped`.
    pub plain: bool,
}

impl PlanOptions {
    /// Creates options for a file of that kind.
    pub fn of_kind(kind: impl Into<String>) -> Self {
        Self { kind: Some(kind.into()), ..Self::default() }
    }

    /// Returns the entry of Weighbridge to write for `subject`; `None`, with a loss, for a plain file.
    pub fn own_entry(&self, entry: Option<String>, subject: &str, losses: &mut Vec<Loss>) -> Option<String> {
        if entry.is_some() && self.plain {
            let rest = "what only Weighbridge reads: roles, attributes, exact paths";
            let keys = entry.as_deref().map(Metadata::carried_keys).unwrap_or_default();
            let detail = match keys.is_empty() {
                true => format!("without {rest}"),
                false => {
                    let names = keys.iter().map(|key| escape_text(key));
                    format!(
                        "without {} of its metadata ({}), and without {rest}",
                        counted(keys.len(), "entry", "entries"),
                        first_and_more(names, MAX_NAMED_KEYS)
                    )
                }
            };
            losses.push(Loss::new(
                "index-dropped",
                escape_text(subject),
                format!("a plain file has the tensors, {detail}"),
            ));
            return None;
        }
        entry
    }

    /// Returns the value of a setting. The last one counts.
    pub fn setting(&self, name: &str) -> Option<&str> {
        self.settings.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Rejects settings that the format does not have.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Usage`], with the valid settings.
    pub fn check(&self, info: &FormatInfo) -> Result<()> {
        let known = |name: &str| info.settings.iter().any(|s| s.name == name);
        let Some((name, _)) = self.settings.iter().find(|(name, _)| !known(name)) else { return Ok(()) };
        let all: Vec<_> = info.settings.iter().map(|s| format!("{} ({})", s.name, s.values)).collect();
        let meant = match near(|| info.settings.iter().map(|s| s.name), name, 1).first() {
            Some(meant) if !name.is_empty() => format!("did you mean `{meant}`? "),
            _ => String::new(),
        };
        let error = Error::usage("unknown-setting", format!("unknown setting for {}", info.id)).found(name);
        let valid = format!("{meant}settings of {}: {}", info.id, all.join(", "));
        Err(error.hint(if all.is_empty() { "the format has no settings".to_owned() } else { valid }))
    }
}

/// Input of an open: a file or a folder.
#[derive(Debug, Clone, Copy)]
pub enum Input<'a> {
    /// Single source.
    Alone(&'a SourceRef),
    /// Source with its folder and its name in it.
    Beside(&'a SourceRef, &'a FolderRef, &'a Path),
    /// Folder.
    Folder(&'a FolderRef),
}

impl<'a> Input<'a> {
    /// Returns the source, unless it is a folder.
    pub fn source(&self) -> Option<&'a SourceRef> {
        match *self {
            Self::Alone(source) | Self::Beside(source, ..) => Some(source),
            Self::Folder(_) => None,
        }
    }

    /// Returns the folder, if it is one.
    pub fn folder(&self) -> Option<&'a FolderRef> {
        match *self {
            Self::Folder(folder) => Some(folder),
            _ => None,
        }
    }

    /// Returns the display name: the path.
    pub fn label(&self) -> &'a str {
        match *self {
            Self::Alone(source) | Self::Beside(source, ..) => source.label(),
            Self::Folder(folder) => folder.label(),
        }
    }
}
