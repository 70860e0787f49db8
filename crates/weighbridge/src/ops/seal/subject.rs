//! What is sealed: which files belong to a path, and what is in them.

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

/// Sources within sources are followed so far.
const MOST_LEVELS: usize = 16;
/// The name of a file that is sealed alone: the path from itself to itself.
pub(super) const ALONE: &str = ".";

/// The code of the note on a file that was read and does not lie below the folder.
pub(super) const OUTSIDE: &str = "outside-the-folder";

/// How much a seal covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// One file.
    File,
    /// A file, and those below its folder that it takes bytes from.
    Files,
    /// All files of a folder.
    Folder,
}

impl Scope {
    /// The word in a manifest.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Files => "files",
            Self::Folder => "folder",
        }
    }

    /// The scope of that word.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::File, Self::Files, Self::Folder].into_iter().find(|scope| scope.as_str() == name)
    }
}

/// A file that is sealed.
#[derive(Debug, Clone)]
pub(super) struct SealedFile {
    /// Its name relative to the root, with `/` between its parts.
    pub(super) name: String,
    /// Where it stands.
    pub(super) path: PathBuf,
    /// Where its bytes come from.
    pub(super) from: From,
    /// What the file system said of it before it was read.
    pub(super) stamp: Stamp,
}

/// What a path means.
#[derive(Debug)]
pub(super) struct Subject {
    pub(super) scope: Scope,
    /// The name of the file or folder.
    pub(super) name: String,
    /// The files, in the order of a manifest.
    pub(super) files: Vec<SealedFile>,
    /// Names that are left out, relative to the root, be they there or not.
    pub(super) ignored: Vec<String>,
    /// Those of them that are there.
    pub(super) left_out: Vec<String>,
    /// What is in the files, unless nobody asked.
    pub(super) checkpoint: Option<Checkpoint>,
    /// The files of which something was read when it was opened.
    pub(super) opened: Vec<usize>,
    /// The files of which something was read and which are not sealed, as they lie elsewhere.
    pub(super) outside: Vec<PathBuf>,
    /// What was asked for when it was opened, one word each.
    pub(super) options: Vec<String>,
    pub(super) notes: Vec<Note>,
    /// What stands in the folder and is no file, where that is no error.
    pub(super) odd: Vec<Odd>,
    /// Why there is no checkpoint, where that is no error.
    pub(super) unopened: Option<Error>,
    /// The file of each source that is one.
    places: HashMap<usize, usize>,
}

/// How to find out.
pub(super) struct Search<'a> {
    pub(super) open: &'a OpenOptions,
    /// Do not look into the files.
    pub(super) files_only: bool,
    /// Take the bytes behind symbolic links.
    pub(super) symlinks: bool,
    /// Paths that do not belong to it, wherever they are.
    pub(super) without: Vec<PathBuf>,
    /// Names in a folder that are left out besides.
    pub(super) ignored: Vec<PathBuf>,
    /// Go on where something could not be sealed or opened, and remember it.
    pub(super) lenient: bool,
}

/// Something in a folder that is no file.
#[derive(Debug, Clone)]
pub(super) struct Odd {
    /// Its name, for people.
    pub(super) name: String,
    /// What it is.
    pub(super) what: &'static str,
    /// True where files may be behind it that nobody looked at.
    pub(super) hides_files: bool,
}

impl Subject {
    /// The file or folder at `path`.
    pub(super) fn find(path: &Path, search: &Search) -> Result<Self> {
        let tracker = ReadTracker::default();
        let open = watched(search.open, &tracker);
        let name = text_name(&own_name(path)?).map_err(|e| e.in_file(path.display()))?;
        match PathKind::of(path)? {
            PathKind::Folder => folder(path, name, search, &open, &tracker),
            _ => file(path, name, search, &open, &tracker),
        }
    }

    /// The file that `source` is made of, and where `offset` is in it; `None` where its bytes do not
    /// stand there as they are.
    pub(super) fn place(&self, source: &SourceRef, offset: u64) -> Option<(usize, u64)> {
        let (source, offset) = base(source, offset, false)?;
        Some((*self.places.get(&address(source))?, offset))
    }

    /// The files that hold the bytes of a tensor, in whatever form, in order; `None` where that is not
    /// known.
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

/// The outermost source that holds the bytes of `source`.
fn base(source: &SourceRef, offset: u64, through_encodings: bool) -> Option<(&SourceRef, u64)> {
    let (mut source, mut offset) = (source, offset);
    for _ in 0..MOST_LEVELS {
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

/// The options, with everything in them watched.
fn watched(options: &OpenOptions, tracker: &ReadTracker) -> OpenOptions {
    options.wrapped(&Watched(tracker))
}

/// Files that are read through witnesses.
struct Watched<'a>(&'a ReadTracker);

impl WrapFiles for Watched<'_> {
    fn source(&self, source: SourceRef) -> SourceRef {
        self.0.watch(PathBuf::from(source.label()), source)
    }

    fn folder(&self, folder: FolderRef) -> FolderRef {
        self.0.watch_folder(folder)
    }
}

/// What of the options changes what is seen in the same files.
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
        return Err(Error::usage("not-a-file", "this is no file").in_file(path.display()));
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
    // A file that was reached on two ways has two sources.
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
    // A manifest may name as many paths as the folder has files.
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
    // In the order of the parts of the names: so signers of models sort them.
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
        return Err(Error::usage("no-files", "there is no file to seal").in_file(path.display()));
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

/// What `open` opens, unless nobody wants to look; and why that is not possible, where this is no error.
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
            let hint = phrase![Opt::FilesOnly, " seals files without looking into them"];
            if error.code() == ErrorCode::NotAFile {
                // The hint of the error itself would be to give a file.
                let file = error.file().unwrap_or_default();
                return Err(Error::usage("not-a-file", error.message()).in_file(file).hint(hint));
            }
            Err(formats::registry().offer_salvage(error, path, search.open).hint_too(hint))
        }
    }
}

/// The files of which something was read, or whose bytes belong to what was opened.
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
        entry.row_names.iter().flat_map(|labels| labels.sources()).for_each(|source| need(&source));
    }
    checkpoint.companions.iter().for_each(|(_, source)| need(source));
    let read: std::collections::HashSet<usize> =
        tracker.read().iter().map(|(_, source)| address(source)).collect();
    let used = |source: &SourceRef| read.contains(&address(source)) || needed.contains(&address(source));
    tracker.opened().into_iter().filter(|(_, source)| used(source)).collect()
}

/// A relative name as text, with `/` between its parts.
fn text_name(name: &Path) -> Result<String> {
    let mut parts = Vec::new();
    for part in name.components() {
        let Component::Normal(part) = part else { continue };
        parts.push(part.to_str().ok_or_else(|| {
            Error::unsupported("name-not-utf8", "a manifest cannot hold a name that is not UTF-8")
                .found(name.display())
                .hint("rename the file")
        })?);
    }
    Ok(parts.join("/"))
}

fn unsealable(item: &SkippedItem, root: &Path, symlinks: bool) -> Error {
    let path = root.join(&item.name);
    match item.reason {
        SkipReason::TooDeep => Error::limit("too-deep", "the folder holds folders deeper than a model would")
            .expected(format_args!("at most {} levels", FolderItem::DEPTH)),
        SkipReason::LinkToFolder if !symlinks => link(&path),
        reason => Error::unsupported("cannot-be-sealed", format!("this is {}", reason.as_str()))
            .hint("a seal is of files: take it out of the folder"),
    }
    .in_file(path.display())
}

fn link(path: &Path) -> Error {
    Error::unsupported("symbolic-link", "a symbolic link may lead elsewhere tomorrow")
        .in_file(path.display())
        .hint(phrase!["put the file itself in its place, or take what it leads to with ", Opt::AllowSymlinks])
}

fn outside(path: &Path) -> Note {
    Note::new(
        OUTSIDE,
        format!("{} was read too; it does not lie below the folder and is not sealed", path.display()),
    )
}
