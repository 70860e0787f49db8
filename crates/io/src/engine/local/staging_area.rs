//! Staging area for files of one folder, which are staged one by one and renamed later.

use super::super::files::fill_all;
use super::super::run::{RunOptions, RunReport};
use super::super::{Sink, StagedFile, default_threads, staging};
use super::Disk;
use super::names;
use crate::source::SourceRef;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::plan::{PlannedFile, WritePlan};

/// Threads that sync files. They only wait, so there may be more than processors.
const SYNC_THREADS: usize = 16;

/// Files staged in their final folder under hidden names. Many threads may add files at once. Files that are not
/// published when this is dropped are removed.
#[derive(Debug)]
pub struct StagingArea {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    staged: Mutex<BTreeMap<String, PathBuf>>,
    /// Owner process: a process forked in the meantime removes none of the files.
    process: u32,
}

impl StagingArea {
    /// Creates an empty staging area for the existing `folder`.
    pub fn new(disk: Arc<dyn Disk>, folder: impl Into<PathBuf>) -> Self {
        Self { disk, folder: folder.into(), staged: Mutex::default(), process: std::process::id() }
    }

    fn staged(&self) -> MutexGuard<'_, BTreeMap<String, PathBuf>> {
        self.staged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the names of the staged files, in byte order.
    pub fn names(&self) -> Vec<String> {
        self.staged().keys().cloned().collect()
    }

    /// Writes a file under a hidden name. A staged file with the same name is replaced. Nothing is synced.
    ///
    /// # Errors
    /// As [`run`](crate::engine::run); nothing of this file remains then, and earlier staged files stay.
    pub fn put(&self, file: PlannedFile, options: &RunOptions) -> Result<RunReport> {
        check_name(&file)?;
        let name = file.name.clone();
        let plan = WritePlan { format: "", kind: "", files: vec![file], losses: Vec::new() };
        let sink = One { area: self, path: staging::loose_name(&self.folder, &name) };
        match fill_all(&plan, &sink, options) {
            Ok(report) => {
                self.adopt(name, sink.path);
                Ok(report)
            }
            Err(error) => {
                let _ = self.disk.remove(&sink.path);
                Err(error)
            }
        }
    }

    /// Stages a hard link to the file `from`: no bytes are copied, and in-place writes to one name change both.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`] where the file system does not support hard links.
    pub fn put_link(&self, name: &str, from: &Path) -> Result<()> {
        let path = staging::loose_name(&self.folder, name);
        self.disk.link(from, &path)?;
        self.adopt(name.to_owned(), path);
        Ok(())
    }

    /// Opens a staged file.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`].
    pub fn open(&self, name: &str) -> Result<Option<SourceRef>> {
        let path = self.staged().get(name).cloned();
        path.map_or(Ok(None), |path| self.disk.open(&path))
    }

    fn adopt(&self, name: String, path: PathBuf) {
        let before = self.staged().insert(name, path);
        if let Some(before) = before {
            let _ = self.disk.remove(&before);
        }
    }

    /// Waits until the content of all files survives a power failure. Their final names survive only after a sync of the
    /// folder. `threads` of 1 syncs them in the order of their names; otherwise many are synced at once.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`].
    pub fn sync(&self, threads: usize) -> Result<()> {
        let paths: Vec<PathBuf> = self.staged().values().cloned().collect();
        let next = AtomicUsize::new(0);
        let failure = Mutex::new(None);
        let work = || {
            while let Some(path) = paths.get(next.fetch_add(1, Ordering::Relaxed)) {
                if let Err(error) = self.disk.sync_file(path) {
                    failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                    return;
                }
            }
        };
        let workers = if threads == 1 { 1 } else { SYNC_THREADS.max(default_threads()) };
        std::thread::scope(|scope| {
            for _ in 1..paths.len().min(workers) {
                scope.spawn(work);
            }
            work();
        });
        failure.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }

    /// Renames one staged file to its final name, replacing an existing file.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`]; [`weighbridge_core::Kind::Usage`], `not-staged`, where no file with this name is staged.
    pub fn publish(&self, name: &str) -> Result<()> {
        let Some(path) = self.staged().get(name).cloned() else {
            return Err(Error::usage("not-staged", "no file with this name is staged").found(name));
        };
        self.disk.rename(&path, &self.folder.join(name))?;
        self.staged().remove(name);
        Ok(())
    }

    /// Removes all staged files, ignoring errors.
    pub fn discard(&self) {
        let staged = std::mem::take(&mut *self.staged());
        for path in staged.into_values() {
            let _ = self.disk.remove(&path);
        }
    }
}

impl Drop for StagingArea {
    fn drop(&mut self) {
        if self.process == std::process::id() {
            self.discard();
        }
    }
}

fn check_name(file: &PlannedFile) -> Result<()> {
    let name = names::relative(file)?;
    if name.components().count() == 1 && name.as_os_str().len() == file.name.len() {
        return Ok(());
    }
    Err(Error::usage("unsafe-name", "the name must be a plain file name without folders").found(&file.name))
}

/// Sink for one staged file.
#[derive(Debug)]
struct One<'a> {
    area: &'a StagingArea,
    path: PathBuf,
}

impl Sink for One<'_> {
    fn stage(&self, file: &PlannedFile) -> Result<Box<dyn StagedFile>> {
        let target = self.area.folder.join(&file.name);
        self.area.disk.create(&self.path, file.staged_len(), &target)
    }
    fn sync(&self) -> Result<()> {
        Ok(())
    }
    fn publish(&self) -> Result<()> {
        Ok(())
    }
    fn settle(&self) -> Result<()> {
        Ok(())
    }
    fn discard(&self) {}
}

/// Replaces or creates the small file `name` of `folder` atomically: staged, synced, renamed.
///
/// # Errors
/// [`weighbridge_core::Kind::Io`]. The file is then unchanged or, if only the last sync failed, new.
pub fn replace_small(disk: &dyn Disk, folder: &Path, name: &str, bytes: &[u8], sync: bool) -> Result<()> {
    let (staged, target) = (staging::loose_name(folder, name), folder.join(name));
    let written = disk.create(&staged, bytes.len() as u64, &target).and_then(|file| {
        file.write_at(0, bytes)?;
        drop(file);
        if sync {
            disk.sync_file(&staged)?;
        }
        disk.rename(&staged, &target)
    });
    if let Err(error) = written {
        let _ = disk.remove(&staged);
        return Err(error);
    }
    if sync { disk.sync_folder(folder) } else { Ok(()) }
}
