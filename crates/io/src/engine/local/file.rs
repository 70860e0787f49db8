//! Target that is one file, committed by renaming a staged file over it.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use super::super::{Sink, StagedFile, staging};
use super::destination::Destination;
use super::staged::LocalFile;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::plan::PlannedFile;

/// Target file. The new content is staged beside it, synced, and renamed over it.
#[derive(Debug)]
pub(super) struct FileTarget {
    destination: Destination,
    replace: bool,
    /// Number of removed leftovers.
    pub swept: usize,
    staged: Mutex<Option<(Arc<File>, PathBuf)>>,
}

impl FileTarget {
    pub(super) fn new(target: &Path, replace: bool) -> Result<Self> {
        let destination = Destination::find(target)?;
        destination.check_file(replace)?;
        let swept = staging::sweep(&destination.folder, &destination.name);
        // The sweep may have restored a set-aside folder.
        destination.check_file(replace)?;
        Ok(Self { destination, replace, swept, staged: Mutex::new(None) })
    }

    fn staged(&self) -> MutexGuard<'_, Option<(Arc<File>, PathBuf)>> {
        self.staged.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sink for FileTarget {
    fn begin(&self, files: &[PlannedFile]) -> Result<()> {
        match files {
            [_] => Ok(()),
            _ => Err(Error::usage(
                "one-file",
                "the target is one file, but the plan has a different number of files",
            )
            .expected(1)
            .found(files.len())),
        }
    }

    fn stage(&self, file: &PlannedFile) -> Result<Box<dyn StagedFile>> {
        let mut staged = self.staged();
        if staged.is_some() {
            return Err(Error::usage("one-file", "the target is one file, but the plan has more files"));
        }
        let (handle, path) = staging::create(&self.destination.folder, &self.destination.name)
            .map_err(|e| self.destination.io("cannot create a file beside the target", e))?;
        let handle = Arc::new(handle);
        *staged = Some((handle.clone(), path));
        let label = self.destination.target.display().to_string();
        Ok(Box::new(LocalFile::new(handle, file.staged_len(), &self.destination.target, label)?))
    }

    fn sync(&self) -> Result<()> {
        let Some((handle, _)) = &*self.staged() else { return Ok(()) };
        handle.sync_all().map_err(|e| self.destination.io("cannot sync the new file", e))
    }

    fn publish(&self) -> Result<()> {
        let mut staged = self.staged();
        let Some((_, path)) = staged.as_ref() else { return Ok(()) };
        let target = &self.destination.target;
        let moved = if self.replace { fs::rename(path, target) } else { rename_new(path, target) };
        match moved {
            Ok(()) => {
                *staged = None;
                Ok(())
            }
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Err(self.destination.exists()),
            Err(e) => Err(self.destination.io("cannot rename the finished file to its final name", e)),
        }
    }

    fn settle(&self) -> Result<()> {
        self.destination.sync_around()
    }

    fn discard(&self) {
        if let Some((_, path)) = self.staged().take() {
            let _ = fs::remove_file(path);
        }
    }
}

/// Renames unless the target exists.
fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS | rustix::io::Errno::NOTSUP) => {}
            other => return other.map_err(io::Error::from),
        }
    }
    // Without this call of the file system, check first. Another program could create the target in between;
    // this cannot be prevented there.
    if fs::symlink_metadata(to).is_ok() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    fs::rename(from, to)
}
