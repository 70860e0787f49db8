//! Versions in a folder of PyTorch-BigGraph checkpoints: listing and maintenance.

use crate::checkpoint::Checkpoint;
use crate::error::Result;
use crate::finding::{Severity, Verdict};
use crate::formats::OpenOptions;
use crate::formats::biggraph;
use crate::ops::verify::{VerifyOptions, verify_checkpoint};
use crate::phrase::{Face, Phrase, Worded};
use crate::store::{
    CheckpointStore, LinkForm, PruneReport, RecoverOptions, RecoverReport, RollbackOptions, RollbackReport,
    SnapshotReport, SnapshotState, StoreOptions, StoreState, SweepOptions, SweepReport,
};
use crate::text::path_text;
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::path::Path;

/// Options of [`versions`]: maintenance steps, carried out in this order before the versions are listed.
#[derive(Debug, Clone, Default)]
pub struct VersionsOptions {
    /// The options for opening versions.
    pub open: OpenOptions,
    /// Make the highest complete version current, where the version file is missing, empty or not a number.
    pub recover: bool,
    /// With `recover`: start again at version 0 where no version is complete.
    pub start_over: bool,
    /// Make this version current.
    pub rollback: Option<u64>,
    /// With `rollback`: remove the files of the versions after it.
    pub delete_newer: bool,
    /// Make the snapshot of this epoch of the current version.
    pub preserve: Option<u64>,
    /// With `preserve`: copy the files instead of linking them.
    pub copies: bool,
    /// Remove old versions, except this number of the newest and the versions that snapshots need.
    pub prune: Option<usize>,
    /// Remove remnants of crashed runs.
    pub sweep: Vec<Remnants>,
}

/// Kind of remnants of crashed runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remnants {
    /// Files of versions after the current one.
    Newer,
    /// Files of versions before the current one.
    Older,
    /// Temporary files.
    Temporary,
    /// All of these, except complete older versions: they may have been kept on purpose.
    All,
}

impl Remnants {
    /// All kinds.
    pub const EACH: [Self; 4] = [Self::Newer, Self::Older, Self::Temporary, Self::All];

    /// Returns the word of this kind.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Newer => "newer",
            Self::Older => "older",
            Self::Temporary => "temporary",
            Self::All => "all",
        }
    }

    /// Returns the kind of that word.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::EACH.into_iter().find(|own| own.as_str() == name)
    }
}

/// Maintenance step that was carried out.
#[derive(Debug)]
pub enum Step {
    /// A version was made current again.
    Recover(RecoverReport),
    /// Another version was made current.
    Rollback(RollbackReport),
    /// A snapshot was made.
    Preserve(SnapshotReport),
    /// Old versions were removed.
    Prune(PruneReport),
    /// Remnants of crashed runs were removed.
    Sweep(SweepReport),
}

impl Step {
    /// Returns `{"what", "report"}`.
    pub fn to_json(&self) -> Json {
        let (what, report) = match self {
            Self::Recover(report) => ("recover", report.to_json()),
            Self::Rollback(report) => ("rollback", report.to_json()),
            Self::Preserve(report) => ("preserve", report.to_json()),
            Self::Prune(report) => ("prune", report.to_json()),
            Self::Sweep(report) => ("sweep", report.to_json()),
        };
        json!({ "what": what, "report": report })
    }
}

/// Versions in a folder, after the requested steps.
#[derive(Debug)]
pub struct VersionsReport {
    /// The folder.
    pub path: String,
    /// The steps that were carried out.
    pub done: Vec<Step>,
    /// The versions, snapshots and orphans.
    pub state: StoreState,
    /// Versions that cannot be read although all of their files exist, with the reason.
    pub damaged: BTreeMap<u64, Phrase>,
    /// Sound where the current version and all snapshots are complete; could not tell where the folder is empty.
    pub verdict: Verdict,
}

impl VersionsReport {
    /// True where the folder is empty and no step was carried out.
    pub fn is_nothing(&self) -> bool {
        self.verdict == Verdict::CouldNotTell
    }

    /// Returns the state of the folder, with `path`, `damaged` and `done`.
    pub fn to_json(&self) -> Json {
        let mut document = self.state.to_json();
        document["damaged"] = json!(self.damaged);
        document["path"] = json!(self.path);
        document["done"] = self.done.iter().map(Step::to_json).collect();
        document
    }
}

impl Worded for VersionsReport {
    fn word(&mut self, face: Face<'_>) {
        self.damaged.values_mut().for_each(|fault| fault.word(face));
    }
}

/// Carries out the steps of `options` in the folder at `path`, and lists its versions.
///
/// # Errors
/// Errors of the steps. Nothing is deleted while the remaining versions cannot be read.
pub fn versions(path: &Path, options: &VersionsOptions) -> Result<VersionsReport> {
    let store = CheckpointStore::open(path, StoreOptions::default())?;
    let whole = |version: u64| whole(&store, version, &options.open);
    let mut done = Vec::new();
    if options.recover {
        let verify = Some(options.open.clone());
        let report = store.recover(&RecoverOptions { verify, start_over: options.start_over })?;
        done.push(Step::Recover(report));
    }
    if let Some(to) = options.rollback {
        whole(to)?;
        let how = RollbackOptions { delete_newer: options.delete_newer };
        done.push(Step::Rollback(store.rollback(to, how)?));
    }
    if let Some(epoch) = options.preserve {
        whole(store.current()?)?;
        let form = if options.copies { LinkForm::Copies } else { LinkForm::Relative };
        done.push(Step::Preserve(store.preserve(epoch, form)?));
    }
    if options.prune.is_some() || options.sweep.iter().any(|what| *what != Remnants::Temporary) {
        whole(store.current()?)?;
    }
    if let Some(keep) = options.prune {
        done.push(Step::Prune(store.prune(keep)?));
    }
    if !options.sweep.is_empty() {
        let has = |what: Remnants| options.sweep.contains(&what);
        // Complete older versions may have been kept on purpose: they are removed only where they are named.
        let all = has(Remnants::All);
        done.push(Step::Sweep(store.sweep(SweepOptions {
            newer: all || has(Remnants::Newer),
            older: has(Remnants::Older),
            remnants: all,
            temporary: all || has(Remnants::Temporary),
        })?));
    }
    let state = store.state()?;
    let current = state.current();
    let mut damaged: BTreeMap<u64, Phrase> = BTreeMap::new();
    for version in state.versions.values().filter(|version| version.is_complete()) {
        let number = version.version;
        let fault = match whole(number) {
            Ok(Some(opened)) if current.as_ref().ok() == Some(&number) => fault(opened)?,
            Ok(_) => None,
            Err(error) => Some(error.message().into()),
        };
        damaged.extend(fault.map(|fault| (number, fault)));
    }
    let is_whole = match &current {
        // Nothing was committed yet.
        Ok(0) => state.highest_complete().is_none_or(|highest| highest == 0),
        Ok(version) => state.complete(*version).is_ok() && !damaged.contains_key(version),
        Err(_) => false,
    };
    let snapshots = state.snapshots.values().all(SnapshotState::is_complete);
    let nothing = state.versions.is_empty() && state.snapshots.is_empty() && matches!(current, Ok(0));
    let verdict = match (nothing && done.is_empty(), is_whole && snapshots) {
        (true, _) => Verdict::CouldNotTell,
        (_, true) => Verdict::Sound,
        _ => Verdict::Unsound,
    };
    Ok(VersionsReport { path: path_text(path), done, state, damaged, verdict })
}

/// Opens a version; `None` for version 0, which has no files.
///
/// # Errors
/// As [`CheckpointStore::checkpoint`], where its files exist and some are damaged.
fn whole(store: &CheckpointStore, version: u64, open: &OpenOptions) -> Result<Option<Checkpoint>> {
    if version == 0 {
        return Ok(None);
    }
    let own = biggraph::ReadOptions { version: Some(version), ..open.own() };
    let options = open.clone().with_own(own);
    store.checkpoint(version, &options).map(Some)
}

/// Returns the first error that `verify` finds in the current version. Row names are in another folder and are not read.
fn fault(mut opened: Checkpoint) -> Result<Option<Phrase>> {
    opened.tensors.iter_mut().for_each(|tensor| tensor.row_names = None);
    let report = verify_checkpoint(&opened, &VerifyOptions::default())?;
    let error = report.findings.into_iter().find(|finding| finding.severity == Severity::Error);
    Ok(error.map(|finding| finding.text))
}
