//! Types of files, and the checkpoint or SavedModel of a folder.

use crate::program;
use crate::read::{self, Around, INDEX};
use crate::saved::{self, SAVED};
use crate::table::{Table, ends_as_table};
use std::path::{Path, PathBuf};
use weighbridge_core::budget::Budget;
use weighbridge_core::checkpoint::{Checkpoint, Note, escape_text};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::text::{first_and_more, path_text};
use weighbridge_format::OpenOptions;
use weighbridge_io::source::{FolderRef, SourceRef, check_relative, read_vec};

/// Name of the text file with the name of the latest checkpoint.
pub(crate) const STATE: &str = "checkpoint";
/// First key of that file.
const LATEST: &str = "model_checkpoint_path:";
/// Key of all checkpoints.
const ALL: &str = "all_model_checkpoint_paths:";
/// Maximum bytes of that file that are read.
const MAX_STATE: u64 = 1 << 20;
/// Maximum number of names listed in a message.
const MAX_NAMED: usize = 5;

/// Type of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileType {
    /// Index of a checkpoint.
    Index,
    /// Text with the name of the latest checkpoint.
    State,
    /// Graphs of a SavedModel.
    Saved,
    /// The same as text.
    SavedText,
    /// Frozen graph.
    Graph,
    /// Configuration of a model of tf-keras.
    Keras,
}

impl FileType {
    /// Returns the type of a file with this beginning.
    pub(crate) fn of(head: &[u8], source: &SourceRef) -> Option<Self> {
        if head.starts_with(LATEST.as_bytes()) {
            return Some(Self::State);
        }
        if ends_as_table(source) {
            return is_index(source).then_some(Self::Index);
        }
        if program::is_saved_model(head) {
            return Some(Self::Saved);
        }
        if head.starts_with(b"saved_model_schema_version:") {
            return Some(Self::SavedText);
        }
        if is_keras(head) {
            return Some(Self::Keras);
        }
        program::is_graph(head, source).then_some(Self::Graph)
    }
}

/// Returns true for a table whose first key is empty, as in an index. Other programs write tables of LevelDB, too.
fn is_index(source: &SourceRef) -> bool {
    let mut head = [0; 3];
    if source.read_at(0, &mut head).is_err() {
        return false;
    }
    if head.starts_with(&[0, 0]) {
        return true;
    }
    // The first block is compressed.
    let budget = Budget::new(source.len(), &Limits::default());
    let mut first = None;
    let stop = || Error::usage("not-a-model", "the first key is enough");
    let _stopped = Table::new(source, &budget).read(&mut |key, _, _| {
        first.get_or_insert(key.is_empty());
        Err(stop())
    });
    first == Some(true)
}

/// Returns true for the configurations of tf-keras: the first one is that of an object with a path and an identifier.
fn is_keras(head: &[u8]) -> bool {
    let start = head.get(..head.len().min(64)).unwrap_or_default();
    head.first() == Some(&0x0a) && start.windows(10).any(|part| part == b"_tf_keras_")
}

/// Returns true for the beginning of an index without compression: an entry with an empty key, and the header.
pub(crate) fn begins_as_index(head: &[u8]) -> bool {
    matches!(head, [0, 0, len @ 4..=40, 0x08, ..] if head.get(3..3 + usize::from(*len)).is_some_and(|header| {
        crate::wire::Fields::of(header).all(|field| field.is_ok_and(|field| field.number <= 3))
    }))
}

/// Opens a file.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`], [`weighbridge_core::Kind::Unsupported`] or [`weighbridge_core::Kind::Limit`], with the place.
pub(crate) fn open(
    source: &SourceRef,
    around: Around<'_>,
    options: &OpenOptions,
    salvaged: Option<&Error>,
) -> Result<Checkpoint> {
    let head = read_vec(&**source, 0, source.len().min(weighbridge_format::HEAD as u64))?;
    let found = FileType::of(&head, source).or_else(|| {
        let name = Path::new(source.label()).extension();
        // A damaged file.
        match () {
            () if begins_as_index(&head) || name.is_some_and(|end| end == "index") => Some(FileType::Index),
            () if name.is_some_and(|end| end == "pb") => Some(FileType::Graph),
            () => None,
        }
    });
    match found {
        Some(FileType::Index) => read::open(source, around, options, salvaged),
        Some(FileType::State) => {
            let Some((folder, name)) = around else {
                return Err(Error::usage(
                    "list-alone",
                    "the file names checkpoints, and was opened without its folder",
                )
                .in_file(source.label())
                .hint("open it by its path"));
            };
            open_latest(source, folder, name.parent().unwrap_or(Path::new("")), options, salvaged)
        }
        Some(FileType::Saved | FileType::SavedText) => saved::open_saved(source, around, options, salvaged),
        Some(FileType::Graph) => saved::open_graph(source, options, salvaged),
        Some(FileType::Keras) => Err(Error::usage(
            "part-of-model",
            "the file has the configuration of a SavedModel, and no tensors",
        )
        .in_file(source.label())
        .hint("open the folder of the SavedModel")),
        None => Err(Error::corrupt(
            "not-a-model",
            "the file is not an index of a checkpoint, a SavedModel or a graph of TensorFlow",
        )
        .in_file(source.label())
        .hint("give the path of the .index file, of saved_model.pb, or of a folder with them")),
    }
}

/// Returns true for a folder that is a checkpoint or a SavedModel.
pub(crate) fn recognises_folder(folder: &FolderRef) -> bool {
    if let Ok(Some(source)) = folder.open(Path::new(STATE))
        && read_vec(&*source, 0, source.len().min(LATEST.len() as u64))
            .is_ok_and(|head| head == LATEST.as_bytes())
    {
        return true;
    }
    let is_there = |name: &str| folder.open(Path::new(name)).is_ok_and(|source| source.is_some());
    SAVED.iter().any(|name| is_there(name)) || indexes(folder).is_ok_and(|found| !found.is_empty())
}

/// Returns the names of the indexes in a folder that have a data file.
fn indexes(folder: &FolderRef) -> Result<Vec<String>> {
    let items = folder.list(1)?;
    let names: Vec<&str> = items.iter().filter_map(|item| item.name.to_str()).collect();
    let has_data = |prefix: &str| {
        names.iter().any(|name| name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(".data-")))
    };
    let own = |name: &&str| name.strip_suffix(INDEX).filter(|prefix| has_data(prefix)).map(str::to_owned);
    Ok(names.iter().filter_map(own).collect())
}

/// Returns true for the name of a file of a folder of this format.
pub(crate) fn owns_sibling(name: &Path) -> bool {
    let Some(name) = name.to_str() else { return false };
    let is_data = name.rsplit_once(".data-").is_some_and(|(_, rest)| rest.contains("-of-"));
    let others = ["fingerprint.pb", saved::KERAS];
    name == STATE || name.ends_with(INDEX) || is_data || SAVED.contains(&name) || others.contains(&name)
}

/// Opens a folder: a SavedModel, the latest checkpoint, or the only one.
///
/// # Errors
/// As [`open`]; [`weighbridge_core::Kind::Usage`] for several checkpoints, or none.
pub(crate) fn open_folder(
    folder: &FolderRef,
    options: &OpenOptions,
    salvaged: Option<&Error>,
) -> Result<Checkpoint> {
    for name in SAVED.map(Path::new) {
        if let Some(source) = folder.open(name)? {
            return saved::open_saved(&source, Some((folder, name)), options, salvaged);
        }
    }
    if let Some(source) = folder.open(Path::new(STATE))? {
        return open_latest(&source, folder, Path::new(""), options, salvaged);
    }
    match indexes(folder)?.as_slice() {
        [] => Err(Error::usage("not-a-file", "no checkpoint or SavedModel of TensorFlow in the folder")
            .in_file(folder.label())
            .hint("give the path of one model file")),
        [prefix] => {
            let name = PathBuf::from(format!("{prefix}{INDEX}"));
            let source = folder.open(&name)?.ok_or_else(|| gone(&name))?;
            read::open(&source, Some((folder, &name)), options, salvaged)
        }
        several => {
            let first = several.first().map(|prefix| format!("{prefix}{INDEX}")).unwrap_or_default();
            let all = several.iter().map(|prefix| escape_text(prefix));
            Err(Error::usage(
                "several-models",
                "the folder contains several checkpoints, and no file names the latest one",
            )
            .in_file(folder.label())
            .found(first_and_more(all, MAX_NAMED))
            .hint(format!(
                "give the path of one of them: {}/{}",
                folder.label(),
                escape_text(&first)
            )))
        }
    }
}

fn gone(name: &Path) -> Error {
    Error::corrupt("model-missing", "the index of the checkpoint is missing")
        .expected(format_args!("the file {}", path_text(name)))
}

/// Names in the text file of a folder.
#[derive(Debug, Default, PartialEq, Eq)]
struct State {
    latest: String,
    all: Vec<String>,
}

impl State {
    fn parse(text: &str) -> Self {
        let mut state = Self::default();
        for line in text.lines() {
            let value = |key| line.trim_start().strip_prefix(key).map(unquoted);
            if let Some(path) = value(LATEST) {
                state.latest = path;
            }
            state.all.extend(value(ALL));
        }
        state
    }
}

/// Returns the text of a quoted value of protobuf, with its escapes of quotes and backslashes.
fn unquoted(value: &str) -> String {
    let inner = value.trim().trim_matches(|quote| quote == '"' || quote == '\'');
    let mut out = String::with_capacity(inner.len());
    let mut rest = inner.chars();
    while let Some(letter) = rest.next() {
        out.extend(if letter == '\\' { rest.next() } else { Some(letter) });
    }
    out
}

/// Opens the latest checkpoint of a folder.
fn open_latest(
    state: &SourceRef,
    folder: &FolderRef,
    around: &Path,
    options: &OpenOptions,
    salvaged: Option<&Error>,
) -> Result<Checkpoint> {
    Limits::check("bytes of the list of checkpoints", "state", state.len(), MAX_STATE)?;
    let text = read_vec(&**state, 0, state.len())?;
    let State { latest, all } = State::parse(&String::from_utf8_lossy(&text));
    if latest.is_empty() {
        return Err(Error::corrupt("no-name", "the file does not name the latest checkpoint")
            .in_file(state.label())
            .expected(format_args!("{LATEST} \"NAME\"")));
    }
    // The folder may have been moved since: an absolute path ends with the name of the file in it.
    let path = Path::new(&latest);
    let path = match path.is_absolute() {
        true => path.file_name().map(PathBuf::from).unwrap_or_default(),
        false => path.to_owned(),
    };
    let mut name = path.into_os_string();
    name.push(INDEX);
    let name = around.join(name);
    check_relative(&name)?;
    let source = folder.open(&name)?.ok_or_else(|| {
        gone(&name).in_file(state.label()).hint("give the path of another index of the folder")
    })?;
    let mut checkpoint = read::open(&source, Some((folder, &name)), options, salvaged)?;
    let others: Vec<&String> = all.iter().filter(|other| **other != latest).collect();
    if !others.is_empty() {
        let names = first_and_more(others.iter().map(|other| escape_text(other)), MAX_NAMED);
        let text = format!("the latest checkpoint is opened; others in the folder: {names}");
        checkpoint.notes.push(Note::new("also-here", text));
    }
    checkpoint.files.push(state.clone());
    Ok(checkpoint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_checkpoints_are_unquoted() {
        let text = "model_checkpoint_path: \"a\\\"b\\\\c\"\nall_model_checkpoint_paths: \"x\"\nall_model_checkpoint_paths: \"a\"\nlast_preserved_timestamp: 1.5\n";
        let state = State::parse(text);
        assert_eq!(state.latest, "a\"b\\c");
        assert_eq!(state.all, ["x", "a"]);
    }

    #[test]
    fn files_of_folders_are_owned() {
        for name in ["checkpoint", "ckpt-1.index", "ckpt-1.data-00000-of-00001", "saved_model.pb"] {
            assert!(owns_sibling(Path::new(name)), "{name}");
        }
        assert!(!owns_sibling(Path::new("model.safetensors")));
    }
}
