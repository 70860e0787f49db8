//! Report of a commit.

use super::snapshot::SnapshotReport;
use super::state::StoredFile;
use serde_json::{Value as Json, json};
use weighbridge_core::error::Error;

/// Report of a commit. The new version is current.
#[derive(Debug)]
#[non_exhaustive]
pub struct CommitReport {
    /// Current version.
    pub version: u64,
    /// Number of its files.
    pub files: usize,
    /// Number of files carried over from the previous version.
    pub carried: usize,
    /// Number of removed files with the names of the new version, from a crashed run or after a rollback.
    pub replaced: usize,
    /// True if the version survives a power failure.
    pub synced: bool,
    /// Snapshot made by the commit.
    pub snapshot: Option<SnapshotReport>,
    /// Deleted files of the previous version.
    pub deleted: Vec<StoredFile>,
    /// Previous version, if it was kept.
    pub kept: Option<u64>,
    /// Failures after the commit: making the snapshot, or deleting files.
    pub troubles: Vec<Error>,
}

impl CommitReport {
    pub(super) fn new(version: u64, files: usize, synced: bool) -> Self {
        Self {
            version,
            files,
            carried: 0,
            replaced: 0,
            synced,
            snapshot: None,
            deleted: Vec::new(),
            kept: None,
            troubles: Vec::new(),
        }
    }

    /// Returns the report as JSON.
    pub fn to_json(&self) -> Json {
        json!({
            "version": self.version,
            "files": self.files,
            "carried": self.carried,
            "replaced": self.replaced,
            "synced": self.synced,
            "snapshot": self.snapshot.as_ref().map(SnapshotReport::to_json),
            "deleted": files_json(&self.deleted),
            "kept": self.kept,
            "troubles": self.troubles.iter().map(Error::to_json).collect::<Json>(),
        })
    }
}

/// Names and lengths as JSON.
pub(super) fn files_json(files: &[StoredFile]) -> Json {
    files.iter().map(|file| json!({"name": file.name, "bytes": file.len})).collect()
}
