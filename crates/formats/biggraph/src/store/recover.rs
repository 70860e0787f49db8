//! A folder whose version file does not say which version counts.

use super::{CheckpointStore, Marker};
use serde_json::{Value as Json, json};
use weighbridge_core::error::{Error, Result};
use weighbridge_format::OpenOptions;

/// How to recover.
#[derive(Debug, Clone, Default)]
pub struct RecoverOptions {
    /// Open every file of a version before it is made to count: BigGraph writes in place, so a file
    /// that is there need not be whole.
    pub verify: Option<OpenOptions>,
    /// Where no version is complete, make version 0 count: training starts over.
    pub start_over: bool,
}

/// What recovering did.
#[derive(Debug)]
pub struct RecoverReport {
    /// What the version file said.
    pub found: Marker,
    /// The version that counts now.
    pub version: u64,
    /// True where the version file was written.
    pub changed: bool,
    /// Higher versions that do not count, each with the files that are missing or damaged.
    pub passed_over: Vec<(u64, Vec<String>)>,
    /// True where the files of the version were opened.
    pub verified: bool,
}

impl RecoverReport {
    /// The report as JSON.
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
    /// Where the version file is missing, empty or no number, makes the highest complete version
    /// count. Where it says a version, nothing is changed.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Usage`], `locked`; [`weighbridge_core::Kind::Mismatch`], `no-complete-version`, where there
    /// is none and `start_over` is not asked for, and `incomplete-version` where the version file is
    /// sound and its version is not: that is not guessed away, see
    /// [`rollback`](Self::rollback); [`weighbridge_core::Kind::Io`].
    pub fn recover(&self, options: &RecoverOptions) -> Result<RecoverReport> {
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
                        Error::mismatch("incomplete-version", "files of the current version cannot be read")
                            .found(super::state::few(&damaged))
                            .hint("go back to a version that is whole"),
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
                    .found(format_args!("{} that are not", report.passed_over.len()))
                    .hint("bring missing files back, or ask to start over from version 0"),
            ));
        };
        self.write_marker(version)?;
        Ok(RecoverReport { version, changed: true, ..report })
    }

    /// The names of the files that do not open, where that is asked.
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
