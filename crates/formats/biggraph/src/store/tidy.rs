//! Rollback to another version, and removal of unneeded files.

use super::CheckpointStore;
use super::report::files_json;
use super::state::{OrphanKind, StoredFile};
use serde_json::{Value as Json, json};
use weighbridge_core::error::{Error, Result};
use weighbridge_io::engine::ItemKind;

/// Report of pruning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PruneReport {
    /// Kept versions: the newest ones, those of snapshots, and version 0.
    pub kept: Vec<u64>,
    /// Deleted files.
    pub deleted: Vec<StoredFile>,
}

impl PruneReport {
    /// Returns the report as JSON.
    pub fn to_json(&self) -> Json {
        json!({"kept": self.kept, "deleted": files_json(&self.deleted)})
    }
}

/// Options of a rollback.
#[derive(Debug, Clone, Copy, Default)]
pub struct RollbackOptions {
    /// Delete the files of the versions above. Otherwise they stay, and the next commits replace them one
    /// version after the other.
    pub delete_newer: bool,
}

/// Report of a rollback.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RollbackReport {
    /// Version in the version file before, if any.
    pub from: Option<u64>,
    /// Current version.
    pub to: u64,
    /// Remaining versions above. They are not current any more.
    pub left: Vec<u64>,
    /// Deleted files.
    pub deleted: Vec<StoredFile>,
}

impl RollbackReport {
    /// Returns the report as JSON.
    pub fn to_json(&self) -> Json {
        json!({"from": self.from, "to": self.to, "left": self.left, "deleted": files_json(&self.deleted)})
    }
}

/// Options of sweeping.
#[derive(Debug, Clone, Copy, Default)]
pub struct SweepOptions {
    /// Files of versions above the current one.
    pub newer: bool,
    /// Files of all versions below the current one, except version 0. Includes complete
    /// versions, which may have been kept on purpose.
    pub older: bool,
    /// Files of those lower versions that lack their model, or partitions required by the configuration in
    /// their own files.
    pub remnants: bool,
    /// Files with the suffix `.tmp`.
    pub temporary: bool,
}

/// Report of sweeping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SweepReport {
    /// Removed files.
    pub removed: Vec<StoredFile>,
    /// Remaining unneeded files, excluded by the options.
    pub left: Vec<StoredFile>,
}

impl SweepReport {
    /// Returns the report as JSON.
    pub fn to_json(&self) -> Json {
        json!({"removed": files_json(&self.removed), "left": files_json(&self.left)})
    }
}

impl CheckpointStore {
    /// Deletes versions below the current one except the `keep` newest complete ones (including the current
    /// one), those that a snapshot links to, and version 0. The configuration in a version's own files decides
    /// whether an older version is complete.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Usage`], `locked`, and `keep-none` for 0; like [`version`](Self::version) of the
    /// current one: while it is damaged, nothing is deleted; [`weighbridge_core::Kind::Io`].
    pub fn prune(&self, keep: usize) -> Result<PruneReport> {
        if keep == 0 {
            return Err(
                Error::usage("keep-none", "the number of versions to keep is 0").expected("1 or more")
            );
        }
        let _lock = self.lock()?;
        let state = self.state()?;
        let current = state.current().map_err(|e| self.here(e))?;
        if current == 0 {
            return Ok(PruneReport { kept: state.versions.keys().copied().collect(), deleted: Vec::new() });
        }
        state.complete(current).map_err(|e| self.here(e))?;
        let older = state.versions.range(..=current).rev().map(|(_, version)| version);
        let mut report = PruneReport { kept: Vec::new(), deleted: Vec::new() };
        let mut newest = 0;
        for version in older {
            let among = newest < keep && !version.is_broken(&*self.disk, &self.folder);
            newest += usize::from(among);
            if among || version.version == 0 || !version.snapshots.is_empty() {
                report.kept.push(version.version);
            } else {
                report.deleted.extend(self.remove(&version.files)?);
            }
        }
        report.kept.reverse();
        Ok(report)
    }

    /// Makes the complete version `to` current: an older one, or a newer one of a run that
    /// crashed just before its commit. The configuration is unchanged.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Usage`], `locked`; like [`version`](Self::version); [`weighbridge_core::Kind::Io`].
    pub fn rollback(&self, to: u64, options: RollbackOptions) -> Result<RollbackReport> {
        let _lock = self.lock()?;
        let state = self.state()?;
        state.complete(to).map_err(|e| self.here(e))?;
        let from = state.marker.version();
        if from != Some(to) {
            self.write_marker(to)?;
        }
        let mut report = RollbackReport { from, to, left: Vec::new(), deleted: Vec::new() };
        for version in state.versions.values().filter(|version| version.version > to) {
            // A snapshot guarantees its version.
            if options.delete_newer && version.snapshots.is_empty() {
                report.deleted.extend(self.remove(&version.files)?);
            } else {
                report.left.push(version.version);
            }
        }
        Ok(report)
    }

    /// Removes leftovers of crashed Weighbridge writers, and further files by option. Never removes files of
    /// the current version, or of a version that a snapshot links to.
    ///
    /// [`weighbridge_core::Kind::Usage`], `locked`: leftovers may then be in use; like [`version`](Self::version) of
    /// the current one, if files of versions are to be removed; [`weighbridge_core::Kind::Io`].
    pub fn sweep(&self, options: SweepOptions) -> Result<SweepReport> {
        let _lock = self.lock()?;
        let state = self.state()?;
        if options.newer || options.older || options.remnants {
            let current = state.current().map_err(|e| self.here(e))?;
            if current > 0 {
                state.complete(current).map_err(|e| self.here(e))?;
            }
        }
        let mut report = SweepReport { removed: Vec::new(), left: Vec::new() };
        for orphan in &state.orphans {
            let file = StoredFile { name: orphan.name.clone(), len: orphan.len };
            let wanted = match orphan.kind {
                OrphanKind::Newer => options.newer,
                OrphanKind::Older => options.older,
                OrphanKind::Remnant => options.older || options.remnants,
                OrphanKind::Temporary => options.temporary,
                OrphanKind::Staged => true,
            };
            if !wanted {
                report.left.push(file);
            } else if orphan.kind == OrphanKind::Staged {
                self.remove_staged(&orphan.name)?;
                report.removed.push(file);
            } else {
                report.removed.extend(self.remove(&[file])?);
            }
        }
        Ok(report)
    }

    /// Removes a hidden leftover: a file, or the folder of a snapshot.
    pub(super) fn remove_staged(&self, name: &str) -> Result<()> {
        let path = self.folder.join(name);
        let found = self.disk.list(&self.folder)?.into_iter().find(|item| item.name == *name);
        match found.map(|item| item.kind) {
            None => Ok(()),
            Some(ItemKind::Folder) => self.remove_staged_folder(&path),
            Some(_) => self.disk.remove(&path),
        }
    }
}
