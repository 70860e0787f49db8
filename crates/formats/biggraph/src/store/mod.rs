//! Crash-safe folder of PyTorch-BigGraph checkpoint versions.
//!
//! ```text
//! checkpoint_version.txt              current version: replaced atomically, last of all
//! model.v6.h5                         files of that version: written under hidden names,
//! embeddings_user_0.v6.h5             synced and renamed before the version file is written
//! epoch_2/                            a snapshot: links to the files of version 4, which are kept
//! .weighbridge.lock                   lock file of writers; readers ignore it
//! .model.v7.h5.weighbridge-….part     staged file; ignored by all readers
//! ```
//!
//! BigGraph itself writes the files in place and truncates the version file: after a crash there, the
//! next run silently starts from scratch. Here a version becomes current only when all of it is on
//! disk, an unreadable version file is an error instead of version 0, and the previous version is deleted only
//! post_commit. BigGraph reads and resumes folders written here, and the other way round.
//!
//! ```
//! # fn main() -> weighbridge_core::Result<()> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let folder = dir.path();
//! # let file = |name: &str| {
//! #     let mut file = weighbridge_core::plan::FileBuilder::new(name);
//! #     file.literal(b"an HDF5 file");
//! #     file.finish()
//! # };
//! use weighbridge_biggraph::store::{CheckpointStore, CommitOptions, StoreOptions};
//!
//! let store = CheckpointStore::open(folder, StoreOptions::default())?;
//! let staging = store.begin()?;
//! assert_eq!(staging.version(), 1);
//! staging.put(file("embeddings_user_0.v1.h5"))?;
//! staging.put(file("model.v1.h5"))?;
//! staging.commit(&CommitOptions::default())?;
//! assert_eq!(store.current()?, 1);
//! # Ok(())
//! # }
//! ```

mod commit;
mod companions;
mod expected;
mod hold;
mod marker;
mod recover;
mod report;
mod snapshot;
mod staging;
mod state;
mod tidy;

use crate::ReadOptions;
pub use commit::{Carry, CommitOptions, Previous};
pub use companions::StatsReport;
pub use expected::{Basis, Expected};
pub use marker::Marker;
pub use recover::{RecoverOptions, RecoverReport};
pub use report::CommitReport;
pub use snapshot::{LinkForm, SnapshotReport};
pub use staging::Staging;
pub use state::{Orphan, OrphanKind, SnapshotState, StoreState, StoredFile, VersionState};
pub use tidy::{PruneReport, RollbackOptions, RollbackReport, SweepOptions, SweepReport};
use weighbridge_core::ErrorCode;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use weighbridge_core::checkpoint::Checkpoint;
use weighbridge_core::error::{Error, Kind, Result};
use weighbridge_format::{Format, OpenOptions, Registry};
use weighbridge_io::engine::{Disk, LocalDisk, RunOptions};
use weighbridge_io::source::SourceRef;

/// Formats of a store's files.
fn registry() -> Registry {
    Registry::new([&crate::BigGraph as &dyn Format])
}

/// Name of the version file.
pub(crate) const MARKER: &str = "checkpoint_version.txt";
/// Name of the configuration.
pub(crate) const CONFIG: &str = "config.json";
/// Name of the training statistics.
pub(crate) const STATS: &str = "training_stats.json";

/// Options of a store.
#[derive(Debug, Clone, Default)]
pub struct StoreOptions {
    /// Options for writing files. `memory` applies to each file that is written, so parallel writers
    /// use it once each. Without `sync`, versions survive a crash of the program, but not a power
    /// failure.
    pub run: RunOptions,
    /// Partitions of each type, if the caller overrides the information in the folder.
    pub expected: Option<Expected>,
    /// Method of writing the version file.
    pub version_write: VersionWrite,
}

/// Method of writing the version file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum VersionWrite {
    /// Atomic replacement by a new file.
    #[default]
    Replace,
    /// Like BigGraph: truncated, written, synced. For network disks where a renamed file is not
    /// visible to all clients at once. A crash in between leaves it empty, which
    /// [`CheckpointStore::recover`] repairs.
    InPlace,
}

/// Folder of checkpoint versions. Cheap to clone; holds no open files, except for the lock taken by
/// [`hold`](Self::hold).
#[derive(Debug, Clone)]
pub struct CheckpointStore {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    options: Arc<StoreOptions>,
    held: Option<Arc<hold::SharedLock>>,
}

impl CheckpointStore {
    /// Opens the store in the folder at `path`. Changes nothing; the folder may be empty.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`] if the folder cannot be listed.
    pub fn open(path: impl AsRef<Path>, options: StoreOptions) -> Result<Self> {
        Self::on(Arc::new(LocalDisk), path, options)
    }

    /// Opens a store on another disk.
    ///
    /// # Errors
    /// Like [`open`](Self::open).
    pub fn on(disk: Arc<dyn Disk>, path: impl AsRef<Path>, options: StoreOptions) -> Result<Self> {
        let store = Self { disk, folder: path.as_ref().to_owned(), options: Arc::new(options), held: None };
        store.disk.list(&store.folder)?;
        Ok(store)
    }

    /// Returns the folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Current content of the folder. Reads only the version files, the
    /// configuration, and the one in the files of older versions that seem to be incomplete.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`].
    pub fn state(&self) -> Result<StoreState> {
        StoreState::look(&*self.disk, &self.folder, self.options.expected.as_ref())
    }

    /// Current version; 0 if there is none yet.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`], `version-lost`, if the folder has versions but no valid version
    /// file: BigGraph would start from scratch.
    pub fn current(&self) -> Result<u64> {
        self.state()?.current()
    }

    /// Files of a complete version: the model first, then the partitions by type and number.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Mismatch`], `no-version` if it has no file, and `incomplete-version`
    /// with the names of missing files.
    pub fn version(&self, version: u64) -> Result<Vec<StoredFile>> {
        let state = self.state()?;
        Ok(state.complete(version).map_err(|e| self.here(e))?.files.clone())
    }

    /// Content of a file of the folder; `None` if missing.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`]; [`weighbridge_core::Kind::Corrupt`], `unsafe-name`.
    pub fn source(&self, name: &str) -> Result<Option<SourceRef>> {
        weighbridge_io::source::check_relative(Path::new(name)).map_err(|e| self.here(e))?;
        self.disk.open(&self.folder.join(name))
    }

    /// Opens a complete version as one checkpoint.
    ///
    /// # Errors
    /// Like [`version`](Self::version), and like [`Registry::open_with`].
    pub fn checkpoint(&self, version: u64, options: &OpenOptions) -> Result<Checkpoint> {
        self.version(version)?;
        let own = ReadOptions { version: Some(version), ..options.own() };
        registry().open_with(&self.folder, &options.clone().with_own(own))
    }

    /// Starts the version after the current one. The folder is locked until the returned value is
    /// dropped or committed; leftovers of crashed writers are removed. In a new folder the version
    /// file is created, with 0.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Usage`], `locked`, if the folder is being written, and
    /// `snapshot-holds` if a snapshot links to files of the version to be written, possible
    /// after a rollback: its links would then lead to other content; like [`current`](Self::current) and
    /// [`version`](Self::version) of the current version; [`weighbridge_core::Kind::Io`].
    pub fn begin(&self) -> Result<Staging> {
        Staging::begin(self)
    }

    fn here(&self, error: Error) -> Error {
        error.in_file(self.folder.display())
    }

    fn sync(&self) -> bool {
        self.options.run.sync
    }

    fn sync_folder(&self) -> Result<()> {
        if self.sync() { self.disk.sync_folder(&self.folder) } else { Ok(()) }
    }

    fn write_marker(&self, version: u64) -> Result<()> {
        marker::write(&*self.disk, &self.folder, version, self.options.version_write, self.sync())
    }

    /// Removes files by name. Files that no longer exist count as removed.
    fn remove(&self, files: &[StoredFile]) -> Result<Vec<StoredFile>> {
        let mut removed = Vec::new();
        for file in files {
            match self.disk.remove(&self.folder.join(&file.name)) {
                Ok(()) => removed.push(file.clone()),
                Err(error) if error.kind() == Kind::Io && error.code() == ErrorCode::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(removed)
    }
}
