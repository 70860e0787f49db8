//! A folder of checkpoints in PyTorch-BigGraph's form that cannot lose a complete version.
//!
//! ```text
//! checkpoint_version.txt              which version counts: replaced in one step, last of all
//! model.v6.h5                         the files of that version: written under hidden names,
//! embeddings_user_0.v6.h5             synced, renamed, before the version file speaks of them
//! epoch_2/                            a snapshot: links to the files of version 4, which stay
//! .weighbridge.lock                   who writes holds a lock on it; who reads does not care
//! .model.v7.h5.weighbridge-….part     being written; ignored by everybody
//! ```
//!
//! BigGraph itself writes the files in place and truncates the version file: a crash there makes the
//! next run begin from nothing, without a word. Here a version is found only when all of it is on the
//! disk, what cannot be told is an error and not version 0, and the version before is deleted only
//! afterwards. BigGraph reads and continues what is written here, and the other way round.
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

/// The formats of a store's files.
fn registry() -> Registry {
    Registry::new([&crate::BigGraph as &dyn Format])
}

/// The name of the version file.
pub(crate) const MARKER: &str = "checkpoint_version.txt";
/// The name of the configuration.
pub(crate) const CONFIG: &str = "config.json";
/// The name of the training statistics.
pub(crate) const STATS: &str = "training_stats.json";

/// How a store works.
#[derive(Debug, Clone, Default)]
pub struct StoreOptions {
    /// How files are written. `memory` is for each file that is put, so threads that put at the same
    /// time take it once each. Without `sync`, versions survive a crash of the program and not a loss
    /// of power.
    pub run: RunOptions,
    /// The partitions of each type, where the caller knows better than the folder tells.
    pub expected: Option<Expected>,
    /// How the version file is written.
    pub version_write: VersionWrite,
}

/// How the version file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum VersionWrite {
    /// A new file takes the place of the old one in one step.
    #[default]
    Replace,
    /// As BigGraph does: truncated, written, synced. For network disks on which a renamed file is not
    /// seen by everybody at once. A crash in between leaves it empty, which
    /// [`CheckpointStore::recover`] puts right.
    InPlace,
}

/// A folder of versions of a checkpoint. Cheap to clone; holds nothing open, but for the lock where
/// [`hold`](Self::hold) took it.
#[derive(Debug, Clone)]
pub struct CheckpointStore {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    options: Arc<StoreOptions>,
    held: Option<Arc<hold::Held>>,
}

impl CheckpointStore {
    /// The store in the folder at `path`. Nothing is changed, and nothing need be in it.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`] where it cannot be listed.
    pub fn open(path: impl AsRef<Path>, options: StoreOptions) -> Result<Self> {
        Self::on(Arc::new(LocalDisk), path, options)
    }

    /// The same on another disk.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn on(disk: Arc<dyn Disk>, path: impl AsRef<Path>, options: StoreOptions) -> Result<Self> {
        let store = Self { disk, folder: path.as_ref().to_owned(), options: Arc::new(options), held: None };
        store.disk.list(&store.folder)?;
        Ok(store)
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What stands in the folder now. Content is not looked at, except that of the version files, the
    /// configuration, and the one in the files of older versions that seem to lack some.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`].
    pub fn state(&self) -> Result<StoreState> {
        StoreState::look(&*self.disk, &self.folder, self.options.expected.as_ref())
    }

    /// The version that counts; 0 where there is none yet.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`], `version-lost`, where the version file does not say which, though
    /// versions are there: BigGraph would begin from nothing.
    pub fn current(&self) -> Result<u64> {
        self.state()?.current()
    }

    /// The files of a complete version: the model first, then the partitions by type and number.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Mismatch`], `no-version` where there is no file of it, and `incomplete-version`
    /// where some are missing, with their names.
    pub fn version(&self, version: u64) -> Result<Vec<StoredFile>> {
        let state = self.state()?;
        Ok(state.complete(version).map_err(|e| self.here(e))?.files.clone())
    }

    /// The content of a file of the folder; `None` where there is none.
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
    /// As [`version`](Self::version), and as [`Registry::open_with`].
    pub fn checkpoint(&self, version: u64, options: &OpenOptions) -> Result<Checkpoint> {
        self.version(version)?;
        let own = ReadOptions { version: Some(version), ..options.own() };
        registry().open_with(&self.folder, &options.clone().with_own(own))
    }

    /// Begins the version after the current one. The folder is locked until what this gives is
    /// dropped or committed; leftovers of writers that died are removed. In a new folder the version
    /// file is written, with 0.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Usage`], `locked`, where somebody else writes to the folder, and
    /// `snapshot-holds` where a snapshot has links to files of the version that would be written, as
    /// after going back: they would lead to other bytes then; as [`current`](Self::current) and
    /// [`version`](Self::version) of it; [`weighbridge_core::Kind::Io`].
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

    /// Removes files by their names. Those that are not there any more are as good as removed.
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
