//! Target that is a folder, committed as a whole.
//!
//! The new folder is filled beside the target under a hidden name, synced, and renamed to its final name. If the
//! target exists, the two folders are exchanged atomically and the old one is removed afterwards; see [`swap`] for
//! systems that cannot exchange.
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

/// Number of other files of a folder that an error lists.
const MAX_LISTED: usize = 5;

/// Threads that sync files. They only wait, so there may be more than processors: the disk combines concurrent
/// requests, and 16 threads sync small files twenty times as fast as one, as fast as syncing the whole file
/// system.
const SYNC_THREADS: usize = 16;

/// Target folder.
#[derive(Debug)]
pub(super) struct FolderTarget {
    destination: Destination,
    replace: bool,
    /// Names of existing files that are removed although the plan does not write them.
    pub replaced: Vec<PathBuf>,
    /// Number of removed leftovers.
    pub swept: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Names of all files that are written or replaced, sorted.
    names: Vec<PathBuf>,
    /// Staged folder with its lock.
    staged: Option<(PathBuf, Option<File>)>,
    /// Created subfolders of the staged folder, by relative name.
    folders: BTreeSet<PathBuf>,
    /// Created files of the staged folder, by relative name.
    files: Vec<PathBuf>,
    /// Replaced folder with its lock.
    old: Option<(PathBuf, Option<File>)>,
}

impl FolderTarget {
    pub(super) fn new(target: &Path, replace: bool) -> Result<Self> {
        let destination = Destination::find(target)?;
        destination.check_folder(replace)?;
        let swept = staging::sweep(&destination.folder, &destination.name);
        // The sweep may have restored a set-aside folder.
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

    /// Creates the parent folders of the file `name`.
    fn make_folders(&self, staged: &Path, name: &Path) -> Result<()> {
        let mut above: Vec<&Path> = name.ancestors().skip(1).filter(|p| !p.as_os_str().is_empty()).collect();
        above.reverse();
        let mut state = self.state();
        for folder in above {
            if !state.folders.contains(folder) {
                make_folder(&staged.join(folder), &self.destination.target.join(folder))
                    .map_err(|e| self.destination.io("cannot create a folder for the output", e))?;
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
            .map_err(|e| self.destination.io("cannot create a folder beside the target", e))?;
        copy_permissions(&path, &self.destination.target);
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
            handle.map_err(|e| Error::io("cannot create a file beside the target", e).in_file(&label))?;
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
        // The rename succeeds atomically if the target is absent or an empty folder. The system refuses
        // everything else.
        match fs::rename(path, &self.destination.target) {
            Ok(()) => {
                state.staged = None;
                return Ok(());
            }
            Err(_) if self.replace && self.destination.is_folder() => {}
            Err(e) if in_the_way(&e) => return Err(self.destination.exists()),
            Err(e) => {
                return Err(self.destination.io("cannot rename the finished folder to its final name", e));
            }
        }
        let lock = swap::lock(&self.destination.target);
        let aside = swap::replace(path, &self.destination.target, || {
            staging::aside(&self.destination.folder, &self.destination.name)
        })
        .map_err(|e| self.destination.io("cannot replace the old folder with the finished one", e))?;
        // No program finds the old folder under its name now: its content is final and would be removed.
        if let Err(error) = refuse_other_files(&self.destination, &aside, &state.names) {
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
                        .io("the old folder could not be restored", e)
                        .hint(format_args!("restore it by hand: it is {shown}")))
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

/// Checks the names of `files` for conflicts with each other and with existing files of the target. Returns the
/// allowed names, sorted: those of `files` and `replaced`.
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
        refuse_other_files(destination, &destination.target, &names)?;
    }
    Ok(names)
}

/// Fails where the folder `old` has a file that is not in the sorted `names`. Links count as files. Folders without
/// files do not count.
fn refuse_other_files(destination: &Destination, old: &Path, names: &[PathBuf]) -> Result<()> {
    let fail = |e| destination.io("cannot list the folder to replace", e);
    // The first ones by name: a disk lists them in any order.
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
                if others.len() > MAX_LISTED {
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
            "these look like the shards of an earlier split: remove them first, or write to another folder"
        }
        false => "write to another folder, or move these files first",
    };
    Err(Error::usage(
        "folder-has-other-files",
        "replacing the folder would remove files that the output does not contain",
    )
    .in_file(destination.target.display())
    .found(shown.join(", "))
    .hint(hint))
}

/// True for the name of a shard: `NAME-00001-of-00003.safetensors`.
fn is_shard(name: &Path) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let stem = name.file_stem().and_then(|stem| stem.to_str());
    let parts = stem.and_then(|stem| stem.rsplit_once("-of-"));
    parts.is_some_and(|(before, of)| {
        is_number(of) && before.rsplit_once('-').is_some_and(|(_, number)| is_number(number))
    })
}

/// True where the error means that the target exists.
fn in_the_way(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::AlreadyExists | io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::NotADirectory
    )
}

/// Creates a folder with the permissions of `old`, if it exists.
fn make_folder(path: &Path, old: &Path) -> io::Result<()> {
    fs::create_dir(path)?;
    copy_permissions(path, old);
    Ok(())
}

/// Copies the permissions of the replaced folder to a staged one, which stays writable for its owner. If the system
/// refuses this, the default remains.
fn copy_permissions(path: &Path, old: &Path) {
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

/// Removes a folder, also if subfolders are read-only. A folder that cannot be removed keeps its hidden name; the next
/// run with the same target tries again.
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
            // Reopened for writing, as some systems require it.
            let synced = OpenOptions::new().write(true).open(staged.join(name)).and_then(|f| f.sync_all());
            if let Err(error) = synced {
                failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                return;
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..files.len().min(SYNC_THREADS.max(default_threads())) {
            scope.spawn(work);
        }
        work();
    });
    failure.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}
