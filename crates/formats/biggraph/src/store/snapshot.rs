//! Snapshots: folders `epoch_{E}` that keep a version while training continues.

use super::state::{SnapshotState, StoredFile};
use super::{CheckpointStore, Expected, MARKER, Marker};
use crate::layout::FileName;
use serde_json::{Value as Json, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::plan::FileBuilder;
use weighbridge_io::engine::{Disk, ItemKind, StagingArea, hidden_path, replace_small};

/// Form of the files in a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LinkForm {
    /// Symbolic links with relative targets, valid after the folder is moved.
    #[default]
    Relative,
    /// Symbolic links with absolute targets, like BigGraph's.
    Absolute,
    /// Copies. They need no space on file systems that share blocks between copies.
    Copies,
}

/// Report of making a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotReport {
    /// Epoch.
    pub epoch: u64,
    /// Version it keeps.
    pub version: u64,
    /// Number of its files.
    pub files: usize,
    /// False if it existed already, complete and with this version.
    pub made: bool,
}

impl SnapshotReport {
    /// Returns the report as JSON.
    pub fn to_json(&self) -> Json {
        json!({"epoch": self.epoch, "version": self.version, "files": self.files, "made": self.made})
    }
}

/// Reads the state of the snapshot of this epoch in `folder`.
pub(super) fn look(disk: &dyn Disk, folder: &Path, epoch: u64, expected: &Expected) -> Result<SnapshotState> {
    let path = folder.join(FileName::Snapshot { epoch }.to_string());
    let marker = Marker::read(disk, &path)?;
    let (mut files, mut broken, mut absolute) = (Vec::new(), Vec::new(), Vec::new());
    let (mut copies, mut holds) = (true, BTreeSet::new());
    for item in disk.list(&path)? {
        let Some(name) = item.name.to_str() else { continue };
        let Some(version) = FileName::parse(name).and_then(|name| name.version()) else { continue };
        if let ItemKind::Link { target, .. } = &item.kind {
            copies = false;
            // The link target counts, even if the link is broken because the folder was moved.
            let held = target.file_name().and_then(|t| FileName::parse(t.to_str()?)?.version());
            holds.insert(held.unwrap_or(version));
            if target.is_absolute() {
                absolute.push(name.to_owned());
            }
        }
        match item.kind.len() {
            Some(len) if len > 0 => files.push(name.to_owned()),
            _ => broken.push(name.to_owned()),
        }
    }
    let present: BTreeSet<&str> = files.iter().map(String::as_str).collect();
    let missing = marker.version().map_or_else(Vec::new, |version| expected.missing(version, &present));
    Ok(SnapshotState { epoch, marker, broken, absolute, copies, missing, holds, files, out_of_sight: false })
}

impl CheckpointStore {
    /// Makes the current version a snapshot of this epoch, which protects its files from
    /// deletion. The snapshot is created atomically.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Usage`], `locked`, and `snapshot-exists` if there is a different or damaged snapshot of this
    /// epoch; like [`version`](Self::version); [`weighbridge_core::Kind::Io`].
    pub fn preserve(&self, epoch: u64, form: LinkForm) -> Result<SnapshotReport> {
        let _lock = self.lock()?;
        self.preserve_locked(epoch, form)
    }

    pub(super) fn preserve_locked(&self, epoch: u64, form: LinkForm) -> Result<SnapshotReport> {
        let state = self.state()?;
        let current = state.current().map_err(|e| self.here(e))?;
        let version = state.complete(current).map_err(|e| self.here(e))?;
        let name = FileName::Snapshot { epoch }.to_string();
        let report = SnapshotReport { epoch, version: current, files: version.files.len(), made: true };
        if let Some(there) = state.snapshots.get(&epoch) {
            if there.is_complete() && there.marker == Marker::Version(current) {
                return Ok(SnapshotReport { made: false, ..report });
            }
            return Err(Error::usage("snapshot-exists", "a different snapshot of this epoch exists")
                .in_file(self.folder.join(&name).display())
                .expected(format_args!("none, or a complete one of version {current}"))
                .hint("move it away first"));
        }
        let staged = hidden_path(&self.folder, &name);
        let made = self.fill_snapshot(&staged, &version.files, current, form).and_then(|()| {
            self.disk.rename(&staged, &self.folder.join(&name))?;
            self.sync_folder()
        });
        match made {
            Ok(()) => Ok(report),
            Err(error) => {
                let _ = self.remove_staged_folder(&staged);
                Err(error)
            }
        }
    }

    fn fill_snapshot(&self, at: &Path, files: &[StoredFile], version: u64, form: LinkForm) -> Result<()> {
        self.disk.make_folder(at)?;
        let copied = StagingArea::new(self.disk.clone(), at);
        for file in files {
            let target = match form {
                LinkForm::Relative => Path::new("..").join(&file.name),
                LinkForm::Absolute => self.absolute(&file.name)?,
                LinkForm::Copies => {
                    self.put_copy(&copied, &file.name, &file.name)?;
                    continue;
                }
            };
            self.disk.symlink(&target, &at.join(&file.name))?;
        }
        if self.sync() {
            copied.sync(self.options.run.threads)?;
        }
        for name in copied.names() {
            copied.publish(&name)?;
        }
        // Syncing the version file also syncs the names of the others.
        replace_small(&*self.disk, at, MARKER, format!("{version}\n").as_bytes(), self.sync())
    }

    /// Stages a copy of a file of the store.
    pub(super) fn put_copy(&self, into: &StagingArea, from: &str, name: &str) -> Result<()> {
        let Some(source) = self.source(from)? else {
            return Err(Error::mismatch("no-version", "the file no longer exists").in_file(from));
        };
        into.put(FileBuilder::copy_of(name, &source), &self.options.run).map(|_| ())
    }

    fn absolute(&self, name: &str) -> Result<PathBuf> {
        std::path::absolute(self.folder.join(name)).map_err(|e| {
            Error::io("cannot determine the absolute path of the folder", e).in_file(self.folder.display())
        })
    }

    /// Removes a staged snapshot.
    pub(super) fn remove_staged_folder(&self, path: &Path) -> Result<()> {
        for item in self.disk.list(path)? {
            self.disk.remove(&path.join(item.name))?;
        }
        self.disk.remove_folder(path)
    }
}
