//! Version under construction.

use super::hold::Lock;
use super::state::OrphanKind;
use super::{CheckpointStore, Marker};
use crate::layout::FileName;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::plan::PlannedFile;
use weighbridge_io::engine::{RunReport, StagingArea};
use weighbridge_io::source::SourceRef;

/// Version after the current one, under construction. Several threads may write files in parallel.
/// If dropped without a commit, all its files are removed, and the folder stays unchanged.
#[derive(Debug)]
pub struct Staging {
    pub(super) store: CheckpointStore,
    pub(super) version: u64,
    pub(super) files: StagingArea,
    // Dropped after the files, so that no other process writes while they are removed.
    pub(super) _lock: Lock,
}

impl Staging {
    pub(super) fn begin(store: &CheckpointStore) -> Result<Self> {
        let lock = store.lock()?;
        let state = store.state()?;
        let current = state.current().map_err(|e| store.here(e))?;
        if current > 0 {
            state.complete(current).map_err(|e| store.here(e))?;
        }
        let Some(version) = current.checked_add(1) else {
            return Err(store
                .here(Error::usage("last-version", "the current version has the highest possible number")));
        };
        state.check_free(version).map_err(|e| store.here(e))?;
        // Their writer held the lock that is held now.
        for orphan in state.orphans.iter().filter(|orphan| orphan.kind == OrphanKind::Staged) {
            store.remove_staged(&orphan.name)?;
        }
        if !matches!(state.marker, Marker::Version(_)) {
            // Otherwise a crash in the first commit would leave versions without a version file.
            store.write_marker(current)?;
        }
        let files = StagingArea::new(store.disk.clone(), &store.folder);
        Ok(Self { store: store.clone(), version, files, _lock: lock })
    }

    /// Returns the number of the new version.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Returns the name of a partition file of this version.
    pub fn embeddings(&self, entity: &str, part: u64) -> String {
        FileName::Embeddings { entity: entity.to_owned(), part, version: self.version }.to_string()
    }

    /// Returns the name of the model file of this version.
    pub fn model(&self) -> String {
        FileName::Model { version: self.version }.to_string()
    }

    /// Writes a file of this version under a hidden name. Replaces one written before.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Usage`], `not-of-this-version`, if the name does not belong to this
    /// version; like [`run`](weighbridge_io::engine::run).
    pub fn put(&self, file: PlannedFile) -> Result<RunReport> {
        let of_version = FileName::parse(&file.name).and_then(|name| name.version());
        if of_version != Some(self.version) {
            return Err(Error::usage(
                "not-of-this-version",
                "the file name does not belong to the new version",
            )
            .expected(format_args!("{} or {}", self.model(), self.embeddings("TYPE", 0)))
            .found(&file.name));
        }
        self.files.put(file, &self.store.options.run)
    }

    /// Returns the names of the files written so far.
    pub fn names(&self) -> Vec<String> {
        self.files.names()
    }

    /// Returns the content of a written file; `None` if it was not written.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`].
    pub fn open(&self, name: &str) -> Result<Option<SourceRef>> {
        self.files.open(name)
    }
}
