//! Subject of a seal: the files that belong to a path, and their tensors.

use super::pass::From;
use crate::checkpoint::{Checkpoint, Note, TensorEntry};
use crate::error::{Error, Result};
use crate::formats::{self, Names, OpenOptions, WrapFiles};
use crate::source::{
    FileSource, Folder, FolderItem, FolderRef, LocalFolder, PathKind, ReadTracker, SkipReason, SkippedItem,
    SourceRef, Stamp, name_below, own_name,
};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use weighbridge_core::phrase::Opt;
use weighbridge_core::{ErrorCode, phrase};

/// Maximum depth of sources within sources.
const MAX_DEPTH: usize = 16;
/// Name of a file that is sealed alone: the relative path to itself.
pub(super) const ALONE: &str = ".";

/// Code of the note on a file that was read but is outside the folder.
pub(super) const OUTSIDE: &str = "outside-the-folder";

/// Extent of a seal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// One file.
    File,
    /// A file, and the files below its folder that it takes bytes from.
    Files,
    /// All files of a folder.
    Folder,
}

impl Scope {
    /// Returns the word in a manifest.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Files => "files",
            Self::Folder => "folder",
        }
    }

    /// Returns the scope of that word.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::File, Self::Files, Self::Folder].into_iter().find(|scope| scope.as_str() == name)
    }
}

/// Sealed file.
#[derive(Debug, Clone)]
pub(super) struct SealedFile {
    /// Its name relative to the root, with `/` between its parts.
    pub(super) name: String,
    /// Its path.
    pub(super) path: PathBuf,
    /// The source of its bytes.
    pub(super) from: From,
    /// Its file-system state before it was read.
    pub(super) stamp: Stamp,
}

/// Files and tensors of a path.
#[derive(Debug)]
pub(super) struct Subject {
    pub(super) scope: Scope,
    /// The name of the file or folder.
    pub(super) name: String,
    /// The files, in the order of a manifest.
    pub(super) files: Vec<SealedFile>,
    /// Excluded names relative to the root, present or not.
    pub(super) ignored: Vec<String>,
    /// The excluded names that are present.
    pub(super) left_out: Vec<String>,
    /// The opened model; `None` for a seal of files only.
    pub(super) checkpoint: Option<Checkpoint>,
    /// Indices of the files that opening reads.
    pub(super) opened: Vec<usize>,
    /// Paths of files that opening reads and that are not sealed, because they are elsewhere.
    pub(super) outside: Vec<PathBuf>,
    /// The options of opening, one word each.
    pub(super) options: Vec<String>,
    pub(super) notes: Vec<Note>,
    /// Entries of the folder that are not files, where that is not an error.
    pub(super) odd: Vec<Odd>,
    /// The reason why there is no checkpoint, where that is not an error.
    pub(super) unopened: Option<Error>,
    /// The index of the file of each source, by address.
    places: HashMap<usize, usize>,
}

/// Options of the search for files.
pub(super) struct Search<'a> {
    pub(super) open: &'a OpenOptions,
    /// Do not open the files as a model.
    pub(super) files_only: bool,
    /// Read the targets of symbolic links.
    pub(super) symlinks: bool,
    /// Excluded paths, at any location.
    pub(super) without: Vec<PathBuf>,
    /// Additional excluded names in a folder.
    pub(super) ignored: Vec<PathBuf>,
    /// Record entries that cannot be sealed or opened instead of failing.
    pub(super) lenient: bool,
}

/// Entry of a folder that is not a file.
#[derive(Debug, Clone)]
pub(super) struct Odd {
    /// Its displayed name.
    pub(super) name: String,
    /// Its kind.
    pub(super) what: &'static str,
    /// True where it may hide files that were not listed.
    pub(super) hides_files: bool,
}

impl Subject {
    /// Finds the files and tensors of the file or folder at `path`.
    pub(super) fn find(path: &Path, search: &Search) -> Result<Self> {
        let tracker = ReadTracker::default();
        let open = watched(search.open, &tracker);
        let name = text_name(&own_name(path)?).map_err(|e| e.in_file(path.display()))?;
        match PathKind::of(path)? {
            PathKind::Folder => folder(path, name, search, &open, &tracker),
            _ => file(path, name, search, &open, &tracker),
        }
    }

    /// Returns the file that `source` is made of, and the position of `offset` in it; `None` where its bytes are encoded.
    pub(super) fn place(&self, source: &SourceRef, offset: u64) -> Option<(usize, u64)> {
        let (source, offset) = base(source, offset, false)?;
        Some((*self.places.get(&address(source))?, offset))
    }

    /// Returns the files that contain the bytes of a tensor, encoded or not, in order; `None` where that is unknown.
    pub(super) fn files_of(&self, entry: &TensorEntry) -> Option<Vec<usize>> {
        let file = |source: &SourceRef| {
            let (source, _) = base(source, 0, true)?;
            self.places.get(&address(source)).copied()
        };
        let mut files =
            entry.extents.iter().map(|extent| file(&extent.source)).collect::<Option<Vec<_>>>()?;
        files.sort_unstable();
        files.dedup();
        Some(files)
    }
}

fn address(source: &SourceRef) -> usize {
    Arc::as_ptr(source).cast::<()>().addr()
}

/// Returns the outermost source that contains the bytes of `source`.
fn base(source: &SourceRef, offset: u64, through_encodings: bool) -> Option<(&SourceRef, u64)> {
    let (mut source, mut offset) = (source, offset);
    for _ in 0..MAX_DEPTH {
        match source.within() {
            Some(within) if !within.encoded || through_encodings => {
                (source, offset) = (within.source, within.offset.checked_add(offset)?);
            }
            Some(_) => return None,
            None => return Some((source, offset)),
        }
    }
    None
}

/// Returns the options with all of their files tracked.
fn watched(options: &OpenOptions, tracker: &ReadTracker) -> OpenOptions {
    options.wrapped(&Watched(tracker))
}

/// Wraps files in a read tracker.
struct Watched<'a>(&'a ReadTracker);

impl WrapFiles for Watched<'_> {
    fn source(&self, source: SourceRef) -> SourceRef {
        self.0.watch(PathBuf::from(source.label()), source)
    }

    fn folder(&self, folder: FolderRef) -> FolderRef {
        self.0.watch_folder(folder)
    }
}

/// Returns the options that change the index of the same files, as words.
fn words(options: &OpenOptions) -> Vec<String> {
    let mut words = Vec::new();
    if let Some(format) = &options.format {
        words.push(format!("from={format}"));
    }
    if options.lenient {
        words.push("lenient".to_owned());
    }
    match options.names {
        Names::AsStored => {}
        Names::Structured => words.push("names=structured".to_owned()),
        Names::Variable => words.push("names=variable".to_owned()),
    }
    words.extend(options.all_own().flat_map(|own| own.words()));
    words
}

fn file(
    path: &Path,
    name: String,
    search: &Search,
    open: &OpenOptions,
    tracker: &ReadTracker,
) -> Result<Subject> {
    let Some((around, own)) = LocalFolder::around(path) else {
        return Err(Error::usage("not-a-file", "the path is not a file").in_file(path.display()));
    };
    let root = PathBuf::from(around.label());
    if around.is_link(&own) && !search.symlinks && !search.lenient {
        return Err(link(path));
    }
    let source = tracker.watch(path.to_owned(), Arc::new(FileSource::open(path)?));
    let around: FolderRef = Arc::new(around);
    let (checkpoint, unopened) = opened(search, path, || {
        formats::registry().open_in_folder(source.clone(), &tracker.watch_folder(around), &own, open)
    })?;
    let mut used: Vec<(PathBuf, SourceRef)> = vec![(path.to_owned(), source)];
    used.extend(used_files(tracker, checkpoint.as_ref()));
    let mut elsewhere = Vec::new();
    // A file that was reached in two ways has two sources.
    let mut found: BTreeMap<PathBuf, Vec<(PathBuf, SourceRef)>> = BTreeMap::new();
    for (path, source) in used {
        match name_below(&root, &path)? {
            Some(name) => found.entry(name).or_default().push((path, source)),
            None => elsewhere.push(path),
        }
    }
    let scope = if found.len() == 1 { Scope::File } else { Scope::Files };
    let mut subject = empty(scope, name, (checkpoint, unopened), search, elsewhere);
    for (name, sources) in found {
        let Some((path, source)) = sources.first() else { continue };
        let name = if scope == Scope::File { ALONE.to_owned() } else { text_name(&name)? };
        if !search.symlinks && !search.lenient && scope == Scope::Files {
            crate::source::check_no_links(&root, Path::new(&name))?;
        }
        let number = subject.files.len();
        for (_, source) in &sources {
            subject.places.insert(address(source), number);
        }
        let stamp = Stamp::of_path(path)?;
        let from = From::Source(source.clone());
        subject.files.push(SealedFile { name, path: path.clone(), from, stamp });
    }
    subject.opened = (0..subject.files.len()).collect();
    Ok(subject)
}

fn folder(
    path: &Path,
    name: String,
    search: &Search,
    open: &OpenOptions,
    tracker: &ReadTracker,
) -> Result<Subject> {
    let local: FolderRef = Arc::new(LocalFolder::open(path)?);
    let mut ignored: Vec<PathBuf> = FolderItem::IGNORED_NAMES.iter().map(PathBuf::from).collect();
    for other in &search.without {
        ignored.extend(name_below(path, other)?);
    }
    ignored.extend(search.ignored.iter().cloned());
    ignored.sort();
    ignored.dedup();
    // A manifest may exclude as many paths as the folder has files.
    let known: HashSet<&Path> = ignored.iter().map(PathBuf::as_path).collect();
    let mut found: BTreeSet<&Path> = BTreeSet::new();
    let mut left_out = |name: &Path| {
        let above = name.ancestors().find_map(|above| known.get(above).copied());
        found.extend(above);
        above.is_some()
    };
    let mut odd = Vec::new();
    let mut skipped = local.skipped(FolderItem::DEPTH)?;
    skipped.retain(|item| !left_out(&item.name));
    for item in skipped {
        if search.lenient {
            let (name, what) = (item.name.display().to_string(), item.reason.as_str());
            odd.push(Odd { name, what, hides_files: item.reason == SkipReason::TooDeep });
            continue;
        }
        return Err(unsealable(&item, path, search.symlinks));
    }
    let (checkpoint, unopened) =
        opened(search, path, || formats::registry().open_folder(&tracker.watch_folder(local.clone()), open))?;
    let mut elsewhere = Vec::new();
    let mut read: HashMap<PathBuf, Vec<SourceRef>> = HashMap::new();
    for (used, source) in used_files(tracker, checkpoint.as_ref()) {
        match name_below(path, &used)? {
            Some(name) => read.entry(name).or_default().push(source),
            None => elsewhere.push(used),
        }
    }
    let mut subject = empty(Scope::Folder, name, (checkpoint, unopened), search, elsewhere);
    subject.odd = odd;
    let mut items = local.list(FolderItem::DEPTH)?;
    items.retain(|item| !left_out(&item.name));
    subject.left_out = found.into_iter().map(text_name).collect::<Result<Vec<_>>>()?;
    // In the order of the parts of the names, as signers of models sort them.
    items.sort_by(|a, b| a.name.cmp(&b.name));
    for item in items {
        let path = path.join(&item.name);
        if !search.symlinks && local.is_link(&item.name) {
            if search.lenient {
                let name = item.name.display().to_string();
                subject.odd.push(Odd { name, what: "a symbolic link", hides_files: false });
                continue;
            }
            return Err(link(&path));
        }
        if search.lenient && text_name(&item.name).is_err() {
            let name = item.name.display().to_string();
            subject.odd.push(Odd { name, what: "a file whose name is not UTF-8", hides_files: false });
            continue;
        }
        let number = subject.files.len();
        let sources = read.remove(&item.name).unwrap_or_default();
        for source in &sources {
            subject.places.insert(address(source), number);
        }
        if !sources.is_empty() {
            subject.opened.push(number);
        }
        let from = sources.into_iter().next().map_or_else(|| From::Path(path.clone()), From::Source);
        let name = text_name(&item.name).map_err(|e| e.in_file(path.display()))?;
        subject.files.push(SealedFile { name, stamp: Stamp::of_path(&path)?, path, from });
    }
    subject.ignored = ignored.iter().map(|name| text_name(name)).collect::<Result<Vec<_>>>()?;
    if subject.files.is_empty() && !search.lenient {
        return Err(Error::usage("no-files", "there are no files to seal").in_file(path.display()));
    }
    Ok(subject)
}

fn empty(
    scope: Scope,
    name: String,
    (checkpoint, unopened): (Option<Checkpoint>, Option<Error>),
    search: &Search,
    elsewhere: Vec<PathBuf>,
) -> Subject {
    Subject {
        scope,
        name,
        files: Vec::new(),
        ignored: Vec::new(),
        left_out: Vec::new(),
        options: if checkpoint.is_some() { words(search.open) } else { Vec::new() },
        checkpoint,
        opened: Vec::new(),
        notes: elsewhere.iter().map(|path| outside(path)).collect(),
        outside: elsewhere,
        odd: Vec::new(),
        unopened,
        places: HashMap::new(),
    }
}

/// Opens the model, unless only files are sealed; returns the reason of a failure that is not an error.
fn opened(
    search: &Search,
    path: &Path,
    open: impl FnOnce() -> Result<Checkpoint>,
) -> Result<(Option<Checkpoint>, Option<Error>)> {
    if search.files_only {
        return Ok((None, None));
    }
    match open() {
        Ok(checkpoint) => Ok((Some(checkpoint), None)),
        Err(error) if search.lenient => Ok((None, Some(error))),
        Err(error) => {
            let hint = phrase![Opt::FilesOnly, " seals files without opening them"];
            if error.code() == ErrorCode::NotAFile {
                // The hint of the error itself suggests the path of a file.
                let file = error.file().unwrap_or_default();
                return Err(Error::usage("not-a-file", error.message()).in_file(file).hint(hint));
            }
            Err(formats::registry().offer_salvage(error, path, search.open).hint_too(hint))
        }
    }
}

/// Returns the files that were read, or whose bytes belong to the opened model.
fn used_files(tracker: &ReadTracker, checkpoint: Option<&Checkpoint>) -> Vec<(PathBuf, SourceRef)> {
    let Some(checkpoint) = checkpoint else { return Vec::new() };
    let mut needed = std::collections::HashSet::new();
    let mut need = |source: &SourceRef| {
        if let Some((source, _)) = base(source, 0, true) {
            needed.insert(address(source));
        }
    };
    for entry in &checkpoint.tensors {
        entry.extents.iter().for_each(|extent| need(&extent.source));
        entry.row_names.iter().flat_map(|names| names.sources()).for_each(|source| need(&source));
    }
    checkpoint.companions.iter().for_each(|(_, source)| need(source));
    let read: std::collections::HashSet<usize> =
        tracker.read().iter().map(|(_, source)| address(source)).collect();
    let used = |source: &SourceRef| read.contains(&address(source)) || needed.contains(&address(source));
    tracker.opened().into_iter().filter(|(_, source)| used(source)).collect()
}

/// Returns a relative name as text, with `/` between its parts.
fn text_name(name: &Path) -> Result<String> {
    let mut parts = Vec::new();
    for part in name.components() {
        let Component::Normal(part) = part else { continue };
        parts.push(part.to_str().ok_or_else(|| {
            Error::unsupported("name-not-utf8", "a manifest cannot contain a name that is not UTF-8")
                .found(name.display())
                .hint("rename the file")
        })?);
    }
    Ok(parts.join("/"))
}

fn unsealable(item: &SkippedItem, root: &Path, symlinks: bool) -> Error {
    let path = root.join(&item.name);
    match item.reason {
        SkipReason::TooDeep => Error::limit("too-deep", "folders are nested too deeply")
            .expected(format_args!("at most {} levels", FolderItem::DEPTH)),
        SkipReason::LinkToFolder if !symlinks => link(&path),
        reason => Error::unsupported("cannot-be-sealed", format!("cannot seal {}", reason.as_str()))
            .hint("only files can be sealed; remove the entry from the folder"),
    }
    .in_file(path.display())
}

fn link(path: &Path) -> Error {
    Error::unsupported("symbolic-link", "cannot seal a symbolic link, because its target may change")
        .in_file(path.display())
        .hint(phrase!["replace the link by the file, or seal its target with ", Opt::AllowSymlinks])
}

fn outside(path: &Path) -> Note {
    Note::new(OUTSIDE, format!("{} was read, but is outside the folder and is not sealed", path.display()))
}
