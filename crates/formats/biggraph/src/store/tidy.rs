//! Going back to another version, and removing what is not needed.

use super::CheckpointStore;
use super::report::files_json;
use super::state::{OrphanKind, StoredFile};
use serde_json::{Value as Json, json};
use weighbridge_core::error::{Error, Result};
use weighbridge_io::engine::ItemKind;

/// What pruning did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PruneReport {
    /// The versions that stay: the newest ones, those of snapshots, and version 0.
    pub kept: Vec<u64>,
    /// The files that were deleted.
    pub deleted: Vec<StoredFile>,
}

impl PruneReport {
    /// The report as JSON.
    pub fn to_json(&self) -> Json {
        json!({"kept": self.kept, "deleted": files_json(&self.deleted)})
    }
}

/// How to go back.
#[derive(Debug, Clone, Copy, Default)]
pub struct RollbackOptions {
    /// Delete the files of the versions above. Else they stay, and the next commits replace them one
    /// version after the other.
    pub delete_newer: bool,
}

/// What going back did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RollbackReport {
    /// What the version file said before, where it said a version.
    pub from: Option<u64>,
    /// The version that counts now.
    pub to: u64,
    /// Versions above that are there still. They do not count any more.
    pub left: Vec<u64>,
    /// The files that were deleted.
    pub deleted: Vec<StoredFile>,
}

impl RollbackReport {
    /// The report as JSON.
    pub fn to_json(&self) -> Json {
        json!({"from": self.from, "to": self.to, "left": self.left, "deleted": files_json(&self.deleted)})
    }
}

/// What to sweep.
#[derive(Debug, Clone, Copy, Default)]
pub struct SweepOptions {
    /// Files of versions above the current one.
    pub newer: bool,
    /// Files of versions below the current one, however many, except version 0. Also of complete
    /// ones, which may have been kept on purpose.
    pub older: bool,
    /// Of these, the files of versions that lack their model, or partitions that the configuration in
    /// their own files asks for.
    pub remnants: bool,
    /// Files with the ending `.tmp`.
    pub temporary: bool,
}

/// What sweeping did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SweepReport {
    /// What was removed.
    pub removed: Vec<StoredFile>,
    /// What nobody needs and stays, as it was not asked for.
    pub left: Vec<StoredFile>,
}

impl SweepReport {
    /// The report as JSON.
    pub fn to_json(&self) -> Json {
        json!({"removed": files_json(&self.removed), "left": files_json(&self.left)})
    }
}

impl CheckpointStore {
    /// Deletes versions below the current one except the `keep` newest complete ones (the current
    /// one counts as one of them), those that a snapshot holds by links, and version 0. What an older
    /// version must have for that, the configuration in its own files tells.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Usage`], `locked`, and `keep-none` for 0; as [`version`](Self::version) of the
    /// current one: while that is damaged, nothing is deleted; [`weighbridge_core::Kind::Io`].
    pub fn prune(&self, keep: usize) -> Result<PruneReport> {
        if keep == 0 {
            return Err(Error::usage("keep-none", "the current version always stays").expected("1 or more"));
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

    /// Makes version `to` count, which must be complete: an older one, or a newer one of a run that
    /// died just before it counted. The configuration stays as it is.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Usage`], `locked`; as [`version`](Self::version); [`weighbridge_core::Kind::Io`].
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
            // A snapshot of it is a promise.
            if options.delete_newer && version.snapshots.is_empty() {
                report.deleted.extend(self.remove(&version.files)?);
            } else {
                report.left.push(version.version);
            }
        }
        Ok(report)
    }

    /// Removes leftovers of our own writers that died, and what else is asked for. Never anything of
    /// the current version, or of one that a snapshot holds by links.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Usage`], `locked`: then a leftover is not one; as [`version`](Self::version) of
    /// the current one, where files of versions are asked for; [`weighbridge_core::Kind::Io`].
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

    /// Removes a leftover with a hidden name: a file, or the folder of a snapshot.
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
