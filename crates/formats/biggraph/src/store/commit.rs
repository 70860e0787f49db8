//! Commit: staged files become the current version.

use super::report::CommitReport;
use super::snapshot::LinkForm;
use super::state::{StoreState, VersionState, list_some};
use super::{Basis, Expected, Staging};
use crate::layout::FileName;
use std::collections::BTreeSet;
use weighbridge_core::error::{Error, Result};

/// Options of a commit.
#[derive(Debug, Clone, Default)]
pub struct CommitOptions {
    /// Treatment of files of the previous version that were not staged.
    pub carry: Carry,
    /// Make the new version a snapshot of this epoch.
    /// BigGraph does so at the start of an epoch that is a multiple of `checkpoint_preservation_interval`.
    pub preserve: Option<u64>,
    /// Form of the files in that snapshot.
    pub form: LinkForm,
    /// Treatment of the previous version.
    pub previous: Previous,
}

/// Treatment of files of the previous version that were not staged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Carry {
    /// Report them as missing files.
    #[default]
    No,
    /// Copy them. Free on file systems that share blocks between copies.
    Copy,
    /// Hard-link them. BigGraph writes in place: if this commit is interrupted, and
    /// BigGraph then resumes from the previous version, it would overwrite that version too. Only for folders
    /// that BigGraph does not write to.
    Link,
}

/// Treatment of the previous version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Previous {
    /// Delete it by BigGraph's rule: not version 0, and not a version that a snapshot links to.
    #[default]
    Delete,
    /// Keep it; [`prune`](super::CheckpointStore::prune) deletes it later.
    Keep,
}

impl Staging {
    /// Makes the staged files the current version: checks that they are complete, syncs and
    /// renames them, and then writes the version file. Afterwards it makes the snapshot and
    /// deletes the previous version; failures there are in the report, and the commit is valid.
    ///
    /// [`weighbridge_core::Kind::Mismatch`], `incomplete-version`, if files are missing; `version-moved` if
    /// the version file was changed meanwhile without the lock; [`weighbridge_core::Kind::Usage`],
    /// `snapshot-holds`, as in [`begin`](super::CheckpointStore::begin); [`weighbridge_core::Kind::Io`]. On error the previous version
    /// stays current, unless the very last sync failed: then the new one may be current, which
    /// is complete too.
    pub fn commit(self, options: &CommitOptions) -> Result<CommitReport> {
        let state = self.store.state()?;
        let here = |error: Error| self.store.here(error);
        if state.marker.version() != self.version.checked_sub(1) {
            return Err(here(
                Error::mismatch("version-moved", "the version file has changed during the write")
                    .expected(self.version.saturating_sub(1))
                    .found(state.marker.to_json()),
            ));
        }
        // A snapshot may have been made meanwhile without the lock.
        state.check_free(self.version).map_err(here)?;
        let before = state.versions.get(&self.version.saturating_sub(1));
        let carried = self.carry(before, options.carry)?;
        self.check_whole(&state).map_err(here)?;
        let names = self.files.names();
        let sync = self.store.sync();
        if sync {
            self.files.sync(self.store.options.run.threads)?;
        }
        let replaced = self.remove_stale_files(&state)?;
        self.rename_staged(&names)?;
        self.store.sync_folder()?;
        // No rollback from here on: the version file may contain the new number even if
        // the write reported an error.
        self.store.write_marker(self.version)?;
        let mut report = CommitReport::new(self.version, names.len(), sync);
        report.carried = carried;
        report.replaced = replaced;
        self.post_commit(before, options, &mut report);
        Ok(report)
    }

    /// Stages the files of the previous version that were not staged. Returns their number.
    fn carry(&self, before: Option<&VersionState>, how: Carry) -> Result<usize> {
        let (Some(before), true) = (before, how != Carry::No) else { return Ok(0) };
        let staged: BTreeSet<String> = self.files.names().into_iter().collect();
        let mut carried = 0;
        for file in &before.files {
            let name = match FileName::parse(&file.name) {
                Some(FileName::Embeddings { entity, part, .. }) => self.embeddings(&entity, part),
                Some(FileName::Model { .. }) => self.model(),
                _ => continue,
            };
            if staged.contains(&name) {
                continue;
            }
            match how {
                Carry::Link => self.files.put_link(&name, &self.store.folder.join(&file.name))?,
                _ => self.store.put_copy(&self.files, &file.name, &name)?,
            }
            carried += 1;
        }
        Ok(carried)
    }

    /// Fails if a required file of the version is not staged.
    fn check_whole(&self, state: &StoreState) -> Result<()> {
        let staged = self.files.names();
        let mut present: BTreeSet<&str> = staged.iter().map(String::as_str).collect();
        // Without other information, at least all partitions below the highest one are required.
        let ours = match state.basis {
            Basis::Given | Basis::Config => Expected::default(),
            Basis::Versions | Basis::Nothing => Expected::of_names(&staged),
        };
        ours.check()?;
        let mut missing = state.expected.missing(self.version, &present);
        present.extend(missing.iter().map(String::as_str));
        let more = ours.missing(self.version, &present);
        missing.extend(more);
        if missing.is_empty() {
            return Ok(());
        }
        Err(Error::mismatch("incomplete-version", "the new version is incomplete")
            .expected(format_args!(
                "all files required by the {}",
                match state.basis {
                    Basis::Given => "caller",
                    Basis::Config => "relations of the configuration",
                    Basis::Versions | Basis::Nothing => "other partitions",
                }
            ))
            .found(format_args!("without {}", list_some(&missing)))
            .hint("write the missing files, or carry them over from the previous version"))
    }

    /// Removes files with the names of this version, from a crashed run or after a rollback. So
    /// files of two runs never mix in one version. No snapshot links to them, which was
    /// checked before. Returns their number.
    fn remove_stale_files(&self, state: &StoreState) -> Result<usize> {
        let Some(there) = state.versions.get(&self.version) else { return Ok(0) };
        let removed = self.store.remove(&there.files)?.len();
        self.store.sync_folder()?;
        Ok(removed)
    }

    /// Renames the staged files. On failure removes those already renamed.
    fn rename_staged(&self, names: &[String]) -> Result<()> {
        for name in names {
            if let Err(error) = self.files.publish(name) {
                for name in names {
                    let _ = self.store.disk.remove(&self.store.folder.join(name));
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// Steps after the new version is current.
    fn post_commit(&self, before: Option<&VersionState>, options: &CommitOptions, report: &mut CommitReport) {
        if let Some(epoch) = options.preserve {
            match self.store.preserve_locked(epoch, options.form) {
                Ok(snapshot) => report.snapshot = Some(snapshot),
                Err(error) => report.troubles.push(error),
            }
        }
        let Some(before) = before else { return };
        if options.previous == Previous::Keep || before.version == 0 || !before.snapshots.is_empty() {
            report.kept = Some(before.version);
            return;
        }
        match self.store.remove(&before.files) {
            Ok(deleted) => report.deleted = deleted,
            Err(error) => report.troubles.push(error),
        }
    }
}
