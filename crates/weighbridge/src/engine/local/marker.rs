//! Files that join those of a folder, committed by one of them, which is written last.
//!
//! The others get their names first, which nobody looks at before the marker says so; then the
//! marker takes the place of the old one in one step. A folder is therefore never without a marker
//! that is true.

use super::super::{Sink, StagedFile, staging};
use super::names;
use super::{Disk, DiskLock, LocalDisk};
use crate::error::{Error, Result};
use crate::plan::PlannedFile;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The file that is locked while a folder is written to. Hidden, empty, and left where it is.
pub const LOCK_NAME: &str = ".weighbridge.lock";

#[derive(Debug)]
pub(super) struct MarkerTarget {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    marker: String,
    replace: bool,
    state: Mutex<State>,
    _lock: DiskLock,
}

#[derive(Debug, Default)]
struct State {
    /// Files by name, with the hidden names under which they are staged.
    staged: BTreeMap<String, PathBuf>,
    /// Of the names that the plan has, those that stood in the folder before.
    there: BTreeSet<String>,
    /// New files that have their names while the marker is old.
    named: Vec<PathBuf>,
    /// True where the caller waits until what is written would survive a loss of power.
    durable: bool,
}

impl MarkerTarget {
    pub(super) fn new(folder: &Path, marker: &str, replace: bool) -> Result<Self> {
        Self::on(Arc::new(LocalDisk), folder, marker, replace)
    }

    fn on(disk: Arc<dyn Disk>, folder: &Path, marker: &str, replace: bool) -> Result<Self> {
        let lock = disk.lock(&folder.join(LOCK_NAME))?;
        Ok(Self {
            disk,
            folder: folder.to_owned(),
            marker: marker.to_owned(),
            replace,
            state: Mutex::default(),
            _lock: lock,
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn rename(&self, staged: &Path, name: &str) -> Result<()> {
        self.disk.rename(staged, &self.folder.join(name))
    }
}

impl Sink for MarkerTarget {
    fn begin(&self, files: &[PlannedFile]) -> Result<()> {
        self.discard();
        let names = names::all(files).map_err(|e| e.in_file(self.folder.display()))?;
        if let Some(deep) = names.iter().find(|name| name.components().count() > 1) {
            return Err(Error::unsupported("marker-folders", "files below the folder are not written so")
                .in_file(self.folder.display())
                .found(deep.display()));
        }
        if !files.iter().any(|file| file.name == self.marker) {
            return Err(Error::usage("no-marker", "the plan does not write the file that commits it")
                .in_file(self.folder.display())
                .expected(&self.marker));
        }
        let mut there = BTreeSet::new();
        for item in self.disk.list(&self.folder)? {
            let Some(file) = files.iter().find(|file| item.name == *file.name) else { continue };
            if file.name != self.marker && !self.replace {
                return Err(Error::usage("exists", "a file of this name stands in the folder already")
                    .in_file(self.folder.join(&file.name).display())
                    .hint("use --force to replace it"));
            }
            there.insert(file.name.clone());
        }
        self.state().there = there;
        Ok(())
    }

    fn stage(&self, file: &PlannedFile) -> Result<Box<dyn StagedFile>> {
        let path = staging::loose_name(&self.folder, &file.name);
        let staged = self.disk.create(&path, file.staged_len(), &self.folder.join(&file.name))?;
        self.state().staged.insert(file.name.clone(), path);
        Ok(staged)
    }

    fn sync(&self) -> Result<()> {
        let mut state = self.state();
        state.durable = true;
        state.staged.values().try_for_each(|path| self.disk.sync_file(path))
    }

    fn publish(&self) -> Result<()> {
        let mut state = self.state();
        let names: Vec<_> = state.staged.keys().filter(|&name| *name != self.marker).cloned().collect();
        // New names first: while the marker is old, nobody asks for them.
        let (new, old): (Vec<_>, Vec<_>) = names.into_iter().partition(|name| !state.there.contains(name));
        for name in new.iter().chain(&old) {
            let Some(path) = state.staged.get(name) else { continue };
            self.rename(path, name)?;
            state.staged.remove(name);
            if new.contains(name) {
                state.named.push(self.folder.join(name));
            }
        }
        // They must be on the disk before the marker speaks of them.
        if state.durable {
            self.disk.sync_folder(&self.folder)?;
        }
        let Some(path) = state.staged.remove(&self.marker) else { return Ok(()) };
        // From here on the new files may be those that the marker means: they stay, also where the
        // system says that this failed.
        state.named.clear();
        self.rename(&path, &self.marker)
    }

    fn settle(&self) -> Result<()> {
        self.disk.sync_folder(&self.folder)
    }

    fn discard(&self) {
        let state = std::mem::take(&mut *self.state());
        for path in state.staged.into_values().chain(state.named) {
            let _ = self.disk.remove(&path);
        }
    }
}
