//! A target folder, committed as a whole.
//!
//! The new folder is filled beside the target under a hidden name, synced, and renamed to its
//! place. Where a folder stands there already, the two are exchanged in one step and the old one is
//! removed afterwards; see [`swap`] for systems that cannot exchange.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use super::super::{Sink, StagedFile, default_threads, staging};
use super::destination::{Destination, sync_folder};
use super::staged::LocalFile;
use super::{names, swap};
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::plan::PlannedFile;

/// Other files of a folder that are named before the list ends.
const NAMED: usize = 5;

/// Workers that sync files. They only wait, so they may be more than there are processors: a disk
/// makes one thing of what waits at the same time, and 16 sync small files twenty times as fast as
/// one does, which is as fast as syncing the whole file system.
const SYNCERS: usize = 16;

/// A folder of files.
#[derive(Debug)]
pub(super) struct FolderTarget {
    destination: Destination,
    replace: bool,
    /// Names of files that are replaced though no file of theirs is written.
    pub replaced: Vec<PathBuf>,
    /// How many leftovers were removed.
    pub swept: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The names of all files that are written or replaced, sorted.
    names: Vec<PathBuf>,
    /// The staged folder, and what locks it.
    staged: Option<(PathBuf, Option<File>)>,
    /// Folders made below the staged one, by relative name.
    folders: BTreeSet<PathBuf>,
    /// Files made below the staged one, by relative name.
    files: Vec<PathBuf>,
    /// The folder that was replaced, and what locks it.
    old: Option<(PathBuf, Option<File>)>,
}

impl FolderTarget {
    pub(super) fn new(target: &Path, replace: bool) -> Result<Self> {
        let destination = Destination::find(target)?;
        destination.check_folder(replace)?;
        let swept = staging::sweep(&destination.folder, &destination.name);
        // A set-aside folder may have been brought back.
        destination.check_folder(replace)?;
        Ok(Self { destination, replace, replaced: Vec::new(), swept, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn staged(&self) -> Result<PathBuf> {
        let state = self.state();
        let staged = state.staged.as_ref().map(|(path, _)| path.clone());
        staged.ok_or_else(|| {
            Error::usage("not-begun", "nothing is staged").in_file(self.destination.target.display())
        })
    }

    /// Makes the folders in which the file `name` stands.
    fn make_folders(&self, staged: &Path, name: &Path) -> Result<()> {
        let mut above: Vec<&Path> = name.ancestors().skip(1).filter(|p| !p.as_os_str().is_empty()).collect();
        above.reverse();
        let mut state = self.state();
        for folder in above {
            if !state.folders.contains(folder) {
                make_folder(&staged.join(folder), &self.destination.target.join(folder))
                    .map_err(|e| self.destination.io("cannot make a folder for the output", e))?;
                state.folders.insert(folder.to_path_buf());
            }
        }
        state.files.push(name.to_path_buf());
        Ok(())
    }
}

impl Sink for FolderTarget {
    fn begin(&self, files: &[PlannedFile]) -> Result<()> {
        self.discard();
        let names = check_files(&self.destination, files, &self.replaced)?;
        let (path, lock) = staging::create_folder(&self.destination.folder, &self.destination.name)
            .map_err(|e| self.destination.io("cannot make a folder beside the target", e))?;
        keep_rights(&path, &self.destination.target);
        *self.state() = State { names, staged: Some((path, lock)), ..State::default() };
        Ok(())
    }

    fn stage(&self, file: &PlannedFile) -> Result<Box<dyn StagedFile>> {
        let name = names::relative(file)?;
        let staged = self.staged()?;
        self.make_folders(&staged, &name)?;
        let handle = OpenOptions::new().read(true).write(true).create_new(true).open(staged.join(&name));
        let label = self.destination.target.join(&name).display().to_string();
        let handle =
            handle.map_err(|e| Error::io("cannot make a file beside the target", e).in_file(&label))?;
        Ok(Box::new(LocalFile::new(
            Arc::new(handle),
            file.staged_len(),
            &self.destination.target.join(&name),
            label,
        )?))
    }

    fn sync(&self) -> Result<()> {
        let staged = self.staged()?;
        let state = self.state();
        let fail = |e| self.destination.io("cannot sync the new folder", e);
        sync_files(&staged, &state.files).map_err(fail)?;
        for folder in state.folders.iter().rev() {
            sync_folder(&staged.join(folder)).map_err(fail)?;
        }
        sync_folder(&staged).map_err(fail)
    }

    fn publish(&self) -> Result<()> {
        let mut state = self.state();
        let Some((path, _)) = &state.staged else { return Ok(()) };
        // A folder takes the place of nothing or of an empty folder, in one step. Everything else
        // that stands there is refused by the system itself.
        match fs::rename(path, &self.destination.target) {
            Ok(()) => {
                state.staged = None;
                return Ok(());
            }
            Err(_) if self.replace && self.destination.is_folder() => {}
            Err(e) if in_the_way(&e) => return Err(self.destination.exists()),
            Err(e) => return Err(self.destination.io("cannot rename the finished folder to its name", e)),
        }
        let lock = swap::lock(&self.destination.target);
        let aside = swap::replace(path, &self.destination.target, || {
            staging::aside(&self.destination.folder, &self.destination.name)
        })
        .map_err(|e| self.destination.io("cannot put the finished folder in the place of the old one", e))?;
        // Nobody finds the old folder under its name any more: what it holds now is what would go.
        if let Err(error) = refuse_strangers(&self.destination, &aside, &state.names) {
            return match swap::replace(&aside, &self.destination.target, || Ok(path.clone())) {
                Ok(back) => {
                    state.staged = Some((back, None));
                    Err(error)
                }
                Err(e) => {
                    state.staged = None;
                    let shown = aside.display();
                    Err(self
                        .destination
                        .io("the old folder could not be put back", e)
                        .hint(format_args!("it is {shown}")))
                }
            };
        }
        state.staged = None;
        state.old = Some((aside, lock));
        Ok(())
    }

    fn settle(&self) -> Result<()> {
        self.destination.sync_around()
    }

    fn discard(&self) {
        let mut state = self.state();
        let (staged, old) = (state.staged.take(), state.old.take());
        for (path, _lock) in staged.into_iter().chain(old) {
            remove(&path);
        }
    }
}

/// Holds the names of `files` against each other and against what stands at the target. Returns
/// those that may stand there, sorted: of `files` and `replaced`.
pub(super) fn check_files(
    destination: &Destination,
    files: &[PlannedFile],
    replaced: &[PathBuf],
) -> Result<Vec<PathBuf>> {
    let mut names = names::all(files).map_err(|e| e.in_file(destination.target.display()))?;
    names.extend_from_slice(replaced);
    names.sort();
    names.dedup();
    if destination.is_folder() {
        refuse_strangers(destination, &destination.target, &names)?;
    }
    Ok(names)
}

/// Fails where the folder `old` holds a file that is not among `names`, which are sorted. Links are
/// files here. Folders in which there is no file do not count.
fn refuse_strangers(destination: &Destination, old: &Path, names: &[PathBuf]) -> Result<()> {
    let fail = |e| destination.io("cannot list the folder that is to be replaced", e);
    // The first by name: a disk has them in any order.
    let (mut others, mut more) = (BTreeSet::new(), false);
    let mut shards = true;
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(old.join(&folder)).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            let name = folder.join(entry.file_name());
            if entry.file_type().map_err(fail)?.is_dir() {
                folders.push(name);
            } else if names.binary_search(&name).is_err() {
                shards &= is_shard(&name);
                others.insert(name);
                if others.len() > NAMED {
                    others.pop_last();
                    more = true;
                }
            }
        }
    }
    if others.is_empty() {
        return Ok(());
    }
    let shown = others.iter().map(|name| name.display().to_string());
    let shown: Vec<String> = shown.chain(more.then(|| "and more".to_owned())).collect();
    let hint = match shards {
        true => {
            "they look like shards of the model that is in the folder now: write to another folder, and take the old one away when it is not needed any more"
        }
        false => {
            "write to another folder: what is done with these files must be decided by somebody who knows them"
        }
    };
    Err(Error::usage(
        "folder-has-other-files",
        "the folder holds files that are not replaced, and would be lost",
    )
    .in_file(destination.target.display())
    .found(shown.join(", "))
    .hint(hint))
}

/// True for the name of one of several files of a model: `NAME-00001-of-00003.safetensors`.
fn is_shard(name: &Path) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let stem = name.file_stem().and_then(|stem| stem.to_str());
    let parts = stem.and_then(|stem| stem.rsplit_once("-of-"));
    parts.is_some_and(|(before, of)| {
        is_number(of) && before.rsplit_once('-').is_some_and(|(_, number)| is_number(number))
    })
}

/// True where the error says that something stands at the target.
fn in_the_way(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::AlreadyExists | io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::NotADirectory
    )
}

/// Makes a folder that is as open or closed as `old`, if that is there.
fn make_folder(path: &Path, old: &Path) -> io::Result<()> {
    fs::create_dir(path)?;
    keep_rights(path, old);
    Ok(())
}

/// Gives a staged folder the rights of the one whose place it takes; its owner may write. Where
/// that is refused, it keeps the default.
fn keep_rights(path: &Path, old: &Path) {
    let Ok(old) = fs::symlink_metadata(old) else { return };
    if old.is_dir() {
        let _ = fs::set_permissions(path, writable(old.permissions()));
    }
}

#[cfg(unix)]
fn writable(mut rights: fs::Permissions) -> fs::Permissions {
    use std::os::unix::fs::PermissionsExt;
    rights.set_mode(rights.mode() | 0o700);
    rights
}

#[cfg(not(unix))]
fn writable(rights: fs::Permissions) -> fs::Permissions {
    rights
}

/// Removes a folder, also where folders in it may not be written. What cannot be removed stays
/// under its hidden name; the next run with the same target tries again.
fn remove(path: &Path) {
    if fs::remove_dir_all(path).is_ok() {
        return;
    }
    let mut folders = vec![path.to_path_buf()];
    while let Some(folder) = folders.pop() {
        if let Ok(metadata) = fs::symlink_metadata(&folder) {
            let _ = fs::set_permissions(&folder, writable(metadata.permissions()));
        }
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        folders
            .extend(entries.flatten().filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path()));
    }
    let _ = fs::remove_dir_all(path);
}

/// Syncs each file.
fn sync_files(staged: &Path, files: &[PathBuf]) -> io::Result<()> {
    let next = AtomicUsize::new(0);
    let failure = Mutex::new(None);
    let work = || {
        while let Some(name) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
            // Opened anew, for writing, as some systems want it.
            let synced = OpenOptions::new().write(true).open(staged.join(name)).and_then(|f| f.sync_all());
            if let Err(error) = synced {
                failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                return;
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..files.len().min(SYNCERS.max(default_threads())) {
            scope.spawn(work);
        }
        work();
    });
    failure.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}
