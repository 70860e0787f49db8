//! State of a store's folder.

use super::expected::{Basis, Expected};
use super::marker::{Marker, lost};
use super::snapshot;
use crate::layout::FileName;
use serde_json::{Value as Json, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::text::first_and_more;
use weighbridge_io::engine::{Disk, DiskItem, ItemKind, staged_for};

/// State of a store's folder, by names and lengths.
#[derive(Debug, Clone)]
pub struct StoreState {
    /// Content of the version file.
    pub marker: Marker,
    /// Every version with at least one file, by number.
    pub versions: BTreeMap<u64, VersionState>,
    /// Snapshots, by epoch.
    pub snapshots: BTreeMap<u64, SnapshotState>,
    /// Files that no version and no snapshot needs.
    pub orphans: Vec<Orphan>,
    /// Required files of a version.
    pub expected: Expected,
    /// Source of that list.
    pub basis: Basis,
    /// Reason why the configuration in the folder is unusable, if so.
    pub config_trouble: Option<String>,
}

/// File of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredFile {
    /// Name in the folder.
    pub name: String,
    /// Length in bytes.
    pub len: u64,
}

/// Files of one version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionState {
    /// Version number.
    pub version: u64,
    /// Files: the model first, then the partitions by type and number. Empty files are excluded:
    /// HDF5 files are never empty, and a power failure leaves empty files.
    pub files: Vec<StoredFile>,
    /// Required files that are missing or empty: the first 100.
    pub missing: Vec<String>,
    /// Snapshots that link to its files.
    pub snapshots: Vec<u64>,
}

impl VersionState {
    /// Returns true if every required file exists.
    pub fn is_complete(&self) -> bool {
        self.missing.is_empty() && !self.files.is_empty()
    }

    /// Returns the total length of its files in bytes.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.len).sum()
    }

    /// Returns true if it has a file of this name.
    pub fn has(&self, name: &str) -> bool {
        self.files.iter().any(|file| file.name == name)
    }

    /// Names of its files that are not empty.
    fn present(&self) -> BTreeSet<&str> {
        self.files.iter().filter(|file| file.len > 0).map(|file| file.name.as_str()).collect()
    }

    /// True if it certainly lost files. The configuration in the folder
    /// does not prove that: a run that adds a type rewrites it, and older versions never had that type.
    fn is_remnant(&self, disk: &dyn Disk, folder: &Path) -> bool {
        let present = self.present();
        let model = FileName::Model { version: self.version }.to_string();
        if !present.contains(model.as_str()) {
            return true;
        }
        let own = Expected::of_own_files(disk, folder, self);
        own.is_some_and(|own| !own.missing(self.version, &present).is_empty())
    }

    /// True if it is incomplete by both the configuration in the folder and its own.
    pub(super) fn is_broken(&self, disk: &dyn Disk, folder: &Path) -> bool {
        !self.is_complete() && self.is_remnant(disk, folder)
    }

    fn to_json(&self) -> Json {
        json!({
            "version": self.version,
            "complete": self.is_complete(),
            "bytes": self.bytes(),
            "files": self.files.iter().map(|f| &f.name).collect::<Vec<_>>(),
            "missing": self.missing,
            "snapshots": self.snapshots,
        })
    }
}

/// Snapshot: the folder `epoch_{E}`, or a link to one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotState {
    /// Epoch that followed the snapshot.
    pub epoch: u64,
    /// Content of its version file.
    pub marker: Marker,
    /// Names of its readable files.
    pub files: Vec<String>,
    /// Its broken links; its own name if it is a broken link.
    pub broken: Vec<String>,
    /// Links with absolute targets: they break when the folder is moved.
    pub absolute: Vec<String>,
    /// True if it consists of copies, without links.
    pub copies: bool,
    /// Names of missing files.
    pub missing: Vec<String>,
    /// Versions that it links to.
    pub holds: BTreeSet<u64>,
    /// True if it is a link to a folder that is not accessible now, such as on an unmounted
    /// disk. It is assumed to hold every existing version.
    pub out_of_sight: bool,
}

impl SnapshotState {
    /// Returns true if it can be opened as a checkpoint.
    pub fn is_complete(&self) -> bool {
        self.marker.version().is_some() && self.missing.is_empty() && self.broken.is_empty()
    }

    /// State of an inaccessible snapshot.
    fn out_of_sight(epoch: u64) -> Self {
        Self {
            epoch,
            marker: Marker::Missing,
            files: Vec::new(),
            broken: vec![FileName::Snapshot { epoch }.to_string()],
            absolute: Vec::new(),
            copies: false,
            missing: Vec::new(),
            holds: BTreeSet::new(),
            out_of_sight: true,
        }
    }

    fn to_json(&self) -> Json {
        json!({
            "epoch": self.epoch,
            "version": self.marker.version(),
            "complete": self.is_complete(),
            "files": self.files,
            "broken": self.broken,
            "absolute": self.absolute,
            "copies": self.copies,
            "missing": self.missing,
            "out_of_sight": self.out_of_sight,
        })
    }
}

/// Item that no version and no snapshot needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Orphan {
    /// Name in the folder.
    pub name: String,
    /// Length in bytes; 0 for a folder.
    pub len: u64,
    /// Type.
    pub kind: OrphanKind,
}

/// Type of an orphan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OrphanKind {
    /// File of a version above the current one: from a crashed run, or after a rollback.
    Newer,
    /// File of a version below the current one without a snapshot: kept on purpose, or by a run
    /// that crashed before deleting it. `prune` removes these. The version is complete by the folder's
    /// configuration or by its own, or its completeness is unknown.
    Older,
    /// Like `Older`, of a version that lacks its model or partitions required by the configuration in its own
    /// files: from a run that crashed while deleting it.
    Remnant,
    /// Hidden staged file: of a crashed or active writer.
    Staged,
    /// File with the suffix `.tmp`, from any program.
    Temporary,
}

impl OrphanKind {
    /// Returns the word used in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Newer => "newer",
            Self::Older => "older",
            Self::Remnant => "remnant",
            Self::Staged => "staged",
            Self::Temporary => "temporary",
        }
    }
}

impl StoreState {
    pub(super) fn look(disk: &dyn Disk, folder: &Path, given: Option<&Expected>) -> Result<Self> {
        let items = disk.list(folder)?;
        let mut state = Self {
            marker: Marker::read(disk, folder)?,
            versions: BTreeMap::new(),
            snapshots: BTreeMap::new(),
            orphans: Vec::new(),
            expected: Expected::default(),
            basis: Basis::Nothing,
            config_trouble: None,
        };
        let mut epochs = Vec::new();
        for item in &items {
            if let Some(FileName::Snapshot { epoch }) = state.sort(item) {
                epochs.push((epoch, matches!(item.kind, ItemKind::Link { .. })));
            }
        }
        for version in state.versions.values_mut() {
            version.files.sort_by_key(|file| {
                FileName::parse(&file.name).map(|name| (!matches!(name, FileName::Model { .. }), name))
            });
        }
        state.expect(disk, folder, given)?;
        for version in state.versions.values_mut() {
            version.missing = state.expected.missing(version.version, &version.present());
        }
        for (epoch, link) in epochs {
            let mut snapshot = match snapshot::look(disk, folder, epoch, &state.expected) {
                // Its folder is inaccessible now: its links may lead here.
                Err(_) if link => SnapshotState::out_of_sight(epoch),
                looked => looked?,
            };
            if snapshot.out_of_sight {
                snapshot.holds = state.versions.keys().copied().collect();
            }
            for held in &snapshot.holds {
                if let Some(version) = state.versions.get_mut(held) {
                    version.snapshots.push(epoch);
                }
            }
            state.snapshots.insert(epoch, snapshot);
        }
        state.find_orphans(disk, folder);
        Ok(state)
    }

    /// Classifies a file. Returns its parsed name.
    fn sort(&mut self, item: &DiskItem) -> Option<FileName> {
        let len = item.kind.len();
        if let (Some(_), Some(name)) = (staged_for(&item.name), item.name.to_str()) {
            self.orphan(name, len.unwrap_or(0), OrphanKind::Staged);
            return None;
        }
        let text = item.name.to_str()?;
        if text.ends_with(".tmp") {
            self.orphan(text, len?, OrphanKind::Temporary);
            return None;
        }
        let name = FileName::parse(text)?;
        if let Some(version) = name.version() {
            let blank = VersionState { version, files: vec![], missing: vec![], snapshots: vec![] };
            let state = self.versions.entry(version).or_insert(blank);
            state.files.push(StoredFile { name: text.to_owned(), len: len? });
        }
        // A snapshot may have been moved to another disk and replaced by a link.
        let folder = matches!(item.kind, ItemKind::Folder | ItemKind::Link { len: None, .. });
        if matches!(name, FileName::Snapshot { .. }) && !folder {
            return None;
        }
        Some(name)
    }

    fn orphan(&mut self, name: &str, len: u64, kind: OrphanKind) {
        self.orphans.push(Orphan { name: name.to_owned(), len, kind });
    }

    /// Determines the required files of a version.
    fn expect(&mut self, disk: &dyn Disk, folder: &Path, given: Option<&Expected>) -> Result<()> {
        if let Some(given) = given {
            given.check()?;
            (self.expected, self.basis) = (given.clone(), Basis::Given);
            return Ok(());
        }
        match Expected::of_folder(disk, folder) {
            Ok(Some(expected)) => {
                (self.expected, self.basis) = (expected, Basis::Config);
                return Ok(());
            }
            Ok(None) => {}
            // A damaged configuration does not make the versions unreadable.
            Err(error) if error.kind() != weighbridge_core::Kind::Io => {
                self.config_trouble = Some(error.message().to_owned());
            }
            Err(error) => return Err(error),
        }
        let found = Expected::of_versions(&self.versions);
        found.check()?;
        if !self.versions.is_empty() {
            (self.expected, self.basis) = (found, Basis::Versions);
        }
        Ok(())
    }

    fn find_orphans(&mut self, disk: &dyn Disk, folder: &Path) {
        let Some(current) = self.marker.version() else { return };
        let others = self.versions.values().filter(|v| v.version != current && v.version != 0);
        let mut found = Vec::new();
        for version in others.filter(|v| v.snapshots.is_empty()) {
            let kind = match version.version > current {
                true => OrphanKind::Newer,
                false if version.is_broken(disk, folder) => OrphanKind::Remnant,
                false => OrphanKind::Older,
            };
            let orphan = |f: &StoredFile| Orphan { name: f.name.clone(), len: f.len, kind };
            found.extend(version.files.iter().map(orphan));
        }
        self.orphans.extend(found);
    }

    /// Returns the current version; 0 if there is none yet.
    ///
    /// # Errors
    /// Like [`CheckpointStore::current`](super::CheckpointStore::current).
    pub fn current(&self) -> Result<u64> {
        let begun = self.versions.keys().any(|&version| version > 0);
        match &self.marker {
            Marker::Version(version) => Ok(*version),
            Marker::Missing | Marker::Blank if !begun => Ok(0),
            marker => Err(lost(marker, self.highest_complete())),
        }
    }

    /// Returns the highest version with all its files.
    pub fn highest_complete(&self) -> Option<u64> {
        self.versions.values().rev().find(|v| v.is_complete()).map(|v| v.version)
    }

    /// Returns a complete version.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Mismatch`], `no-version` and `incomplete-version`.
    pub fn complete(&self, version: u64) -> Result<&VersionState> {
        let Some(found) = self.versions.get(&version) else {
            if self.marker == Marker::Version(version) {
                let text = format!("the version file names version {version}, which has no files");
                let error = Error::mismatch("no-version", text);
                return Err(match self.highest_complete() {
                    Some(other) => {
                        error.hint(format_args!("roll back to version {other}, which is complete"))
                    }
                    None => error.hint("restore the files of the version"),
                });
            }
            let there: Vec<_> = self.versions.keys().map(u64::to_string).collect();
            return Err(Error::mismatch("no-version", "the version does not exist")
                .expected(format_args!("version {version}"))
                .found(match there.as_slice() {
                    [] => "none".to_owned(),
                    [one] => format!("version {one}"),
                    _ => format!("versions {}", there.join(", ")),
                }));
        };
        if found.is_complete() {
            return Ok(found);
        }
        let error = Error::mismatch("incomplete-version", format!("version {version} is incomplete"))
            .found(format_args!("without {}", list_some(&found.missing)));
        Err(match self.highest_complete() {
            Some(other) => error.hint(format_args!(
                "use version {other}, which is complete; BigGraph would replace missing files by random values"
            )),
            None => error.hint("restore the files; BigGraph would replace them by random values"),
        })
    }

    /// Fails if a snapshot links to files of `version`: writing that version would
    /// change the snapshot. Broken links count too: they would then lead to the new files.
    pub(super) fn check_free(&self, version: u64) -> Result<()> {
        let holders = self.snapshots.values().filter(|s| s.holds.contains(&version));
        let names: Vec<_> = holders.map(|s| FileName::Snapshot { epoch: s.epoch }.to_string()).collect();
        if names.is_empty() {
            return Ok(());
        }
        let names = list_some(&names);
        Err(Error::usage("snapshot-holds", "a snapshot links to files of the version to be written")
            .expected(format_args!("no links to files of version {version}"))
            .found(format_args!("links in {names}"))
            .hint(format_args!(
                "replace the links in {names} by copies (cp -rL), or move or remove the snapshot"
            )))
    }

    /// Returns the state as JSON.
    pub fn to_json(&self) -> Json {
        json!({
            "marker": self.marker.to_json(),
            "current": self.current().ok(),
            "versions": self.versions.values().map(VersionState::to_json).collect::<Json>(),
            "snapshots": self.snapshots.values().map(SnapshotState::to_json).collect::<Json>(),
            "orphans": self.orphans.iter().map(|o| {
                json!({"name": o.name, "bytes": o.len, "kind": o.kind.as_str()})
            }).collect::<Json>(),
            "expected": self.expected.0,
            "basis": self.basis.as_str(),
            "config_trouble": self.config_trouble,
        })
    }
}

/// The first list_some of `names`, for messages.
pub(super) fn list_some(names: &[String]) -> String {
    first_and_more(names, 5)
}
