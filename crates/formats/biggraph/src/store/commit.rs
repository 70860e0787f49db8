//! Making what is staged the version that counts.

use super::report::CommitReport;
use super::snapshot::LinkForm;
use super::state::{StoreState, VersionState, few};
use super::{Basis, Expected, Staging};
use crate::layout::FileName;
use std::collections::BTreeSet;
use weighbridge_core::error::{Error, Result};

/// How to commit.
#[derive(Debug, Clone, Default)]
pub struct CommitOptions {
    /// What becomes of files of the version before that were not put anew.
    pub carry: Carry,
    /// Make the new version a snapshot of this number.
    /// BigGraph does so where an epoch begins whose number is a multiple of `checkpoint_preservation_interval`.
    pub preserve: Option<u64>,
    /// What that snapshot is made of.
    pub form: LinkForm,
    /// What becomes of the version before.
    pub previous: Previous,
}

/// What becomes of files of the version before that were not put anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Carry {
    /// They are missing, and that is an error.
    #[default]
    No,
    /// They are copied. Where the file system shares blocks between copies, that costs nothing.
    Copy,
    /// They get a second name. BigGraph writes in place: should this commit be cut short, and
    /// BigGraph then go on from the version before, it would destroy that one too. Only for folders
    /// that BigGraph does not write to.
    Link,
}

/// What becomes of the version before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Previous {
    /// It is deleted, by BigGraph's rule: not version 0, and none that a snapshot holds by links.
    #[default]
    Delete,
    /// It stays; [`prune`](super::CheckpointStore::prune) deletes it later.
    Keep,
}

impl Staging {
    /// Makes what was put the version that counts: checks that it is whole, syncs the files, gives
    /// them their names, and then writes the version file. After that it makes the snapshot and
    /// deletes the version before; what fails there is told in the report, and the commit stands.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Mismatch`], `incomplete-version`, where files are missing; `version-moved` where
    /// somebody wrote the version file meanwhile without the lock; [`weighbridge_core::Kind::Usage`],
    /// `snapshot-holds`, as [`begin`](super::CheckpointStore::begin); [`weighbridge_core::Kind::Io`]. The version
    /// before stays and counts, unless the very last sync failed: then the new one may count, which
    /// is whole too.
    pub fn commit(self, options: &CommitOptions) -> Result<CommitReport> {
        let state = self.store.state()?;
        let here = |error: Error| self.store.here(error);
        if state.marker.version() != self.version.checked_sub(1) {
            return Err(here(
                Error::mismatch("version-moved", "the version file was changed while this was written")
                    .expected(self.version.saturating_sub(1))
                    .found(state.marker.to_json()),
            ));
        }
        // Somebody may have made a snapshot since, without the lock.
        state.check_free(self.version).map_err(here)?;
        let before = state.versions.get(&self.version.saturating_sub(1));
        let carried = self.carry(before, options.carry)?;
        self.check_whole(&state).map_err(here)?;
        let names = self.files.names();
        let sync = self.store.sync();
        if sync {
            self.files.sync(self.store.options.run.threads)?;
        }
        let replaced = self.clear_the_way(&state)?;
        self.give_names(&names)?;
        self.store.sync_folder()?;
        // From here on nothing is taken back: the version file may say the new number even where
        // the system says that writing it failed.
        self.store.write_marker(self.version)?;
        let mut report = CommitReport::new(self.version, names.len(), sync);
        report.carried = carried;
        report.replaced = replaced;
        self.afterwards(before, options, &mut report);
        Ok(report)
    }

    /// Stages the files of the version before that were not put. Returns how many.
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

    /// Fails where a file is not staged that a version must have.
    fn check_whole(&self, state: &StoreState) -> Result<()> {
        let staged = self.files.names();
        let mut present: BTreeSet<&str> = staged.iter().map(String::as_str).collect();
        // Where nothing else is known, at least the partitions below the highest one must be there.
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
        Err(Error::mismatch("incomplete-version", "files of the new version are missing")
            .expected(format_args!(
                "what the {} say",
                match state.basis {
                    Basis::Given => "caller's own words",
                    Basis::Config => "configuration's relations",
                    Basis::Versions | Basis::Nothing => "other partitions",
                }
            ))
            .found(format_args!("without {}", few(&missing)))
            .hint("put them, or carry them over from the version before"))
    }

    /// Removes what has the names of this version: of a run that died, or that was rolled back. So
    /// never do files of two runs stand together as one version. No snapshot holds them, which was
    /// looked at before. Returns how many there were.
    fn clear_the_way(&self, state: &StoreState) -> Result<usize> {
        let Some(there) = state.versions.get(&self.version) else { return Ok(0) };
        let removed = self.store.remove(&there.files)?.len();
        self.store.sync_folder()?;
        Ok(removed)
    }

    /// Gives the files their names. On failure those that have theirs are removed.
    fn give_names(&self, names: &[String]) -> Result<()> {
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

    /// What follows once the new version counts.
    fn afterwards(&self, before: Option<&VersionState>, options: &CommitOptions, report: &mut CommitReport) {
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
