//! Snapshots: folders `epoch_{E}` that keep a version while training goes on.

use super::state::{SnapshotState, StoredFile};
use super::{CheckpointStore, Expected, MARKER, Marker};
use crate::layout::FileName;
use serde_json::{Value as Json, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::plan::FileBuilder;
use weighbridge_io::engine::{Disk, ItemKind, StagingArea, hidden_path, replace_small};

/// What a snapshot is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LinkForm {
    /// Symbolic links that go with the folder when it is moved.
    #[default]
    Relative,
    /// Symbolic links with absolute targets, as BigGraph makes them.
    Absolute,
    /// Files of its own. Where the file system shares blocks between copies, they take no place.
    Copies,
}

/// What was done to make a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotReport {
    /// Its number.
    pub epoch: u64,
    /// The version that it keeps.
    pub version: u64,
    /// How many files it has.
    pub files: usize,
    /// False where it was there already, of this version and complete.
    pub made: bool,
}

impl SnapshotReport {
    /// The report as JSON.
    pub fn to_json(&self) -> Json {
        json!({"epoch": self.epoch, "version": self.version, "files": self.files, "made": self.made})
    }
}

/// Looks at the snapshot of that number in `folder`.
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
            // What the link says counts, also where it is broken because the folder was moved.
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
    /// Makes the current version a snapshot of that number, which keeps its files from being
    /// deleted. It comes into being as a whole, or not at all.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Usage`], `locked`, and `snapshot-exists` where there is another one of this
    /// number, or a damaged one; as [`version`](Self::version); [`weighbridge_core::Kind::Io`].
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
            return Err(Error::usage("snapshot-exists", "there is another snapshot of this number")
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
        // The version file brings the names of the others to the disk with its own.
        replace_small(&*self.disk, at, MARKER, format!("{version}\n").as_bytes(), self.sync())
    }

    /// Stages a copy of a file of the store.
    pub(super) fn put_copy(&self, into: &StagingArea, from: &str, name: &str) -> Result<()> {
        let Some(source) = self.source(from)? else {
            return Err(Error::mismatch("no-version", "the file is not there any more").in_file(from));
        };
        into.put(FileBuilder::copy_of(name, &source), &self.options.run).map(|_| ())
    }

    fn absolute(&self, name: &str) -> Result<PathBuf> {
        std::path::absolute(self.folder.join(name))
            .map_err(|e| Error::io("cannot tell where the folder is", e).in_file(self.folder.display()))
    }

    /// Removes a staged snapshot.
    pub(super) fn remove_staged_folder(&self, path: &Path) -> Result<()> {
        for item in self.disk.list(path)? {
            self.disk.remove(&path.join(item.name))?;
        }
        self.disk.remove_folder(path)
    }
}
