//! The version that is being written.

use super::hold::Lock;
use super::state::OrphanKind;
use super::{CheckpointStore, Marker};
use crate::layout::FileName;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::plan::PlannedFile;
use weighbridge_io::engine::{RunReport, StagingArea};
use weighbridge_io::source::SourceRef;

/// The version after the current one, while it is written. Many threads may put files at once.
/// Where it is dropped without a commit, nothing of it stays, and the folder is as before.
#[derive(Debug)]
pub struct Staging {
    pub(super) store: CheckpointStore,
    pub(super) version: u64,
    pub(super) files: StagingArea,
    // Dropped after the files, so that nobody else writes while they are removed.
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
            return Err(store.here(Error::usage("last-version", "there is no version after this one")));
        };
        state.check_free(version).map_err(|e| store.here(e))?;
        // Whoever staged these held the lock that we hold now.
        for orphan in state.orphans.iter().filter(|orphan| orphan.kind == OrphanKind::Staged) {
            store.remove_staged(&orphan.name)?;
        }
        if !matches!(state.marker, Marker::Version(_)) {
            // Else a crash in the first commit would leave versions without a version file.
            store.write_marker(current)?;
        }
        let files = StagingArea::new(store.disk.clone(), &store.folder);
        Ok(Self { store: store.clone(), version, files, _lock: lock })
    }

    /// The number of the version that is written.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The name of a partition's file in this version.
    pub fn embeddings(&self, entity: &str, part: u64) -> String {
        FileName::Embeddings { entity: entity.to_owned(), part, version: self.version }.to_string()
    }

    /// The name of the file of parameters in this version.
    pub fn model(&self) -> String {
        FileName::Model { version: self.version }.to_string()
    }

    /// Writes a file of this version, under a hidden name. One that was put before is replaced.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Usage`], `not-of-this-version`, where the name is not that of a file of this
    /// version; as [`run`](weighbridge_io::engine::run).
    pub fn put(&self, file: PlannedFile) -> Result<RunReport> {
        let of_version = FileName::parse(&file.name).and_then(|name| name.version());
        if of_version != Some(self.version) {
            return Err(Error::usage(
                "not-of-this-version",
                "this is no file of the version that is written",
            )
            .expected(format_args!("{} or {}", self.model(), self.embeddings("TYPE", 0)))
            .found(&file.name));
        }
        self.files.put(file, &self.store.options.run)
    }

    /// The names of the files that were put.
    pub fn names(&self) -> Vec<String> {
        self.files.names()
    }

    /// The content of a file that was put; `None` where it was not.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`].
    pub fn open(&self, name: &str) -> Result<Option<SourceRef>> {
        self.files.open(name)
    }
}
