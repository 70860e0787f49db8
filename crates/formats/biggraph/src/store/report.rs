//! What a commit did.

use super::snapshot::SnapshotReport;
use super::state::StoredFile;
use serde_json::{Value as Json, json};
use weighbridge_core::error::Error;

/// What a commit did. The version counts.
#[derive(Debug)]
#[non_exhaustive]
pub struct CommitReport {
    /// The version that counts now.
    pub version: u64,
    /// How many files it has.
    pub files: usize,
    /// Of these, how many were carried over from the version before.
    pub carried: usize,
    /// How many files of a run that died, or that was rolled back, had their names and were removed.
    pub replaced: usize,
    /// True where it would survive a loss of power.
    pub synced: bool,
    /// The snapshot that was made.
    pub snapshot: Option<SnapshotReport>,
    /// The files of the version before that were deleted.
    pub deleted: Vec<StoredFile>,
    /// The version before, where it stays.
    pub kept: Option<u64>,
    /// What failed after the commit: the snapshot, or deleting.
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

    /// The report as JSON.
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

/// Names and lengths.
pub(super) fn files_json(files: &[StoredFile]) -> Json {
    files.iter().map(|file| json!({"name": file.name, "bytes": file.len})).collect()
}
