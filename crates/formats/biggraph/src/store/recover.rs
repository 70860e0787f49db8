//! Recovery of a folder without a valid version file.

use super::{CheckpointStore, Marker};
use serde_json::{Value as Json, json};
use weighbridge_core::error::{Error, Result};
use weighbridge_format::OpenOptions;

/// Options of a recovery.
#[derive(Debug, Clone, Default)]
pub struct RecoverOptions {
    /// Open every file of a version before making it current: BigGraph writes in place, so an
    /// existing file may be incomplete.
    pub verify: Option<OpenOptions>,
    /// If no version is complete, make version 0 current: training starts over.
    pub start_over: bool,
}

/// Report of a recovery.
#[derive(Debug)]
pub struct RecoverReport {
    /// Version file before the recovery.
    pub found: Marker,
    /// Current version.
    pub version: u64,
    /// True if the version file was written.
    pub changed: bool,
    /// Skipped higher versions, each with its missing or damaged files.
    pub passed_over: Vec<(u64, Vec<String>)>,
    /// True if the files of the version were opened.
    pub verified: bool,
}

impl RecoverReport {
    /// Returns the report as JSON.
    pub fn to_json(&self) -> Json {
        let passed = self.passed_over.iter();
        json!({
            "found": self.found.to_json(),
            "version": self.version,
            "changed": self.changed,
            "passed_over": passed.map(|(v, files)| json!({"version": v, "files": files})).collect::<Json>(),
            "verified": self.verified,
        })
    }
}

impl CheckpointStore {
    /// Makes the highest complete version current if the version file is missing, empty or not a number.
    /// A valid version file is left unchanged.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Usage`], `locked`; [`weighbridge_core::Kind::Mismatch`], `no-complete-version`, if there
    /// is none and `start_over` is not set, and `incomplete-version` if the version file is
    /// valid and its version is incomplete: for that case see
    /// [`rollback`](Self::rollback); [`weighbridge_core::Kind::Io`].
    pub fn recover(&self, options: &RecoverOptions) -> Result<RecoverReport> {
        // Before the lock, whose file would stay in a folder that was named by mistake.
        if !options.start_over {
            let state = self.state()?;
            if state.versions.is_empty() && state.marker == Marker::Missing {
                return Err(self.here(
                    Error::mismatch("no-complete-version", "no version of a checkpoint in the folder").hint(
                        "give the folder with the files of the checkpoint, or start over from version 0",
                    ),
                ));
            }
        }
        let _lock = self.lock()?;
        let state = self.state()?;
        let mut report = RecoverReport {
            found: state.marker.clone(),
            version: 0,
            changed: false,
            passed_over: Vec::new(),
            verified: options.verify.is_some(),
        };
        if let Some(version) = state.marker.version() {
            if version > 0 {
                let damaged =
                    self.damaged(&state.complete(version).map_err(|e| self.here(e))?.files, options)?;
                if !damaged.is_empty() {
                    return Err(self.here(
                        Error::mismatch("incomplete-version", "files of the current version are unreadable")
                            .found(super::state::list_some(&damaged))
                            .hint("roll back to a complete version"),
                    ));
                }
            }
            report.version = version;
            return Ok(report);
        }
        let mut whole = None;
        for version in state.versions.values().rev() {
            let mut missing = version.missing.clone();
            if version.is_complete() {
                missing = self.damaged(&version.files, options)?;
                if missing.is_empty() {
                    whole = Some(version.version);
                    break;
                }
            }
            report.passed_over.push((version.version, missing));
        }
        let nothing = state.versions.is_empty();
        let Some(version) = whole.or_else(|| (nothing || options.start_over).then_some(0)) else {
            return Err(self.here(
                Error::mismatch("no-complete-version", "no version in the folder is complete")
                    .found(format_args!("{} incomplete versions", report.passed_over.len()))
                    .hint("restore missing files, or start over from version 0"),
            ));
        };
        self.write_marker(version)?;
        Ok(RecoverReport { version, changed: true, ..report })
    }

    /// Names of the files that cannot be opened, if verification is requested.
    fn damaged(&self, files: &[super::StoredFile], options: &RecoverOptions) -> Result<Vec<String>> {
        let Some(open) = &options.verify else { return Ok(Vec::new()) };
        let mut damaged = Vec::new();
        for file in files {
            let whole = match self.source(&file.name)? {
                Some(source) => super::registry().open_source(source, open).is_ok(),
                None => false,
            };
            if !whole {
                damaged.push(file.name.clone());
            }
        }
        Ok(damaged)
    }
}
