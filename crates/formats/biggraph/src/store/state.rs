//! What stands in the folder of a store.

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

/// What stands in the folder of a store, by names and lengths.
#[derive(Debug, Clone)]
pub struct StoreState {
    /// What the version file says.
    pub marker: Marker,
    /// Every version of which there is a file, by number.
    pub versions: BTreeMap<u64, VersionState>,
    /// Snapshots, by epoch.
    pub snapshots: BTreeMap<u64, SnapshotState>,
    /// What no version and no snapshot needs.
    pub orphans: Vec<Orphan>,
    /// Which files a version must have.
    pub expected: Expected,
    /// How that is known.
    pub basis: Basis,
    /// Why the configuration in the folder could not be used, where that is so.
    pub config_trouble: Option<String>,
}

/// A file of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredFile {
    /// Its name in the folder.
    pub name: String,
    /// Its length in bytes.
    pub len: u64,
}

/// The files of one version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionState {
    /// Its number.
    pub version: u64,
    /// Its files: the model first, then the partitions by type and number. Empty ones do not count:
    /// no HDF5 file is empty, and a loss of power leaves such.
    pub files: Vec<StoredFile>,
    /// The names of files that it should have today, and has not or has empty: the first 100.
    pub missing: Vec<String>,
    /// The snapshots that hold its files by links.
    pub snapshots: Vec<u64>,
}

impl VersionState {
    /// True where every file is there.
    pub fn is_complete(&self) -> bool {
        self.missing.is_empty() && !self.files.is_empty()
    }

    /// The length of all files together, in bytes.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.len).sum()
    }

    /// True where there is a file of that name.
    pub fn has(&self, name: &str) -> bool {
        self.files.iter().any(|file| file.name == name)
    }

    /// The names of its files that are not empty.
    fn present(&self) -> BTreeSet<&str> {
        self.files.iter().filter(|file| file.len > 0).map(|file| file.name.as_str()).collect()
    }

    /// True where it is known that files are missing that it once had. The configuration in the folder
    /// does not tell: a run that adds a type rewrites it, and older versions never had that type.
    fn is_remnant(&self, disk: &dyn Disk, folder: &Path) -> bool {
        let present = self.present();
        let model = FileName::Model { version: self.version }.to_string();
        if !present.contains(model.as_str()) {
            return true;
        }
        let own = Expected::of_own_files(disk, folder, self);
        own.is_some_and(|own| !own.missing(self.version, &present).is_empty())
    }

    /// True where it is not complete, neither by the configuration in the folder nor by its own.
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

/// A snapshot: the folder `epoch_{E}`, or a link to one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotState {
    /// The number of the epoch that came next when it was made.
    pub epoch: u64,
    /// What its version file says.
    pub marker: Marker,
    /// Its files that can be read, by the names in it.
    pub files: Vec<String>,
    /// Its links that lead nowhere; its own name where it is a link that cannot be followed.
    pub broken: Vec<String>,
    /// Links whose targets are absolute: they break when the folder is moved.
    pub absolute: Vec<String>,
    /// True where it holds files of its own, without links.
    pub copies: bool,
    /// The names of files that it should have and has not.
    pub missing: Vec<String>,
    /// The versions to whose files it has links.
    pub holds: BTreeSet<u64>,
    /// True where it is a link to a folder that cannot be looked into now, as on a disk that is not
    /// mounted. It may hold any version, and is taken to hold all that are there.
    pub out_of_sight: bool,
}

impl SnapshotState {
    /// True where it can be read as a checkpoint of its own.
    pub fn is_complete(&self) -> bool {
        self.marker.version().is_some() && self.missing.is_empty() && self.broken.is_empty()
    }

    /// What is known of a snapshot that cannot be looked into.
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

/// Something that no version and no snapshot needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Orphan {
    /// Its name in the folder.
    pub name: String,
    /// Its length in bytes; 0 for a folder.
    pub len: u64,
    /// What it is.
    pub kind: OrphanKind,
}

/// What an orphan is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OrphanKind {
    /// A file of a version above the current one: of a run that died, or that was rolled back.
    Newer,
    /// A file of a version below the current one that no snapshot holds: kept on purpose, or of a run
    /// that died before it was deleted. `prune` is for these. It has every file that the folder's
    /// configuration asks for today, or that the one in its own files asks for, or it cannot be told.
    Older,
    /// The same of a version that lacks its model, or partitions that the configuration in its own
    /// files asks for: of a run that died while it was deleted.
    Remnant,
    /// Under a hidden name: of a writer of ours that died, or that is at work.
    Staged,
    /// With the ending `.tmp`, of whoever.
    Temporary,
}

impl OrphanKind {
    /// The word used in JSON.
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
                // Its folder is elsewhere, and cannot be looked into now: its links may lead here.
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

    /// Puts a file where it belongs. Returns what its name says.
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
        // A snapshot may have been moved to another disk, with a link in its place.
        let folder = matches!(item.kind, ItemKind::Folder | ItemKind::Link { len: None, .. });
        if matches!(name, FileName::Snapshot { .. }) && !folder {
            return None;
        }
        Some(name)
    }

    fn orphan(&mut self, name: &str, len: u64, kind: OrphanKind) {
        self.orphans.push(Orphan { name: name.to_owned(), len, kind });
    }

    /// Finds out which files a version must have.
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

    /// The version that counts; 0 where there is none yet.
    ///
    /// # Errors
    /// As [`CheckpointStore::current`](super::CheckpointStore::current).
    pub fn current(&self) -> Result<u64> {
        let begun = self.versions.keys().any(|&version| version > 0);
        match &self.marker {
            Marker::Version(version) => Ok(*version),
            Marker::Missing | Marker::Blank if !begun => Ok(0),
            marker => Err(lost(marker, self.highest_complete())),
        }
    }

    /// The highest version of which every file is there.
    pub fn highest_complete(&self) -> Option<u64> {
        self.versions.values().rev().find(|v| v.is_complete()).map(|v| v.version)
    }

    /// A complete version.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Mismatch`], `no-version` and `incomplete-version`.
    pub fn complete(&self, version: u64) -> Result<&VersionState> {
        let Some(found) = self.versions.get(&version) else {
            let there: Vec<_> = self.versions.keys().map(u64::to_string).collect();
            return Err(Error::mismatch("no-version", "the folder has no such version")
                .expected(format_args!("version {version}"))
                .found(if there.is_empty() { "none".to_owned() } else { there.join(", ") }));
        };
        if found.is_complete() {
            return Ok(found);
        }
        let error = Error::mismatch("incomplete-version", format!("files of version {version} are missing"))
            .found(format_args!("without {}", few(&found.missing)));
        Err(match self.highest_complete() {
            Some(other) => error.hint(format_args!(
                "BigGraph would replace them by random values; version {other} is complete"
            )),
            None => error.hint("BigGraph would replace them by random values"),
        })
    }

    /// Fails where a snapshot has links to files of `version`: whoever writes that version would
    /// change what the snapshot keeps. Links that lead nowhere count, too: they would lead there.
    pub(super) fn check_free(&self, version: u64) -> Result<()> {
        let holders = self.snapshots.values().filter(|s| s.holds.contains(&version));
        let names: Vec<_> = holders.map(|s| FileName::Snapshot { epoch: s.epoch }.to_string()).collect();
        if names.is_empty() {
            return Ok(());
        }
        let names = few(&names);
        Err(Error::usage("snapshot-holds", "a snapshot has links to files of the version to be written")
            .expected(format_args!("no links to files of version {version}"))
            .found(format_args!("those of {names}"))
            .hint(format_args!(
                "put copies in place of the links of {names} (cp -rL), or remove or move it away"
            )))
    }

    /// The state as JSON.
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

/// The first few of `names`, for people.
pub(super) fn few(names: &[String]) -> String {
    first_and_more(names, 5)
}
