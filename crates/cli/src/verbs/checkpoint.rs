//! `checkpoint`: a folder of versions of a PyTorch-BigGraph checkpoint: what is there, what counts,
//! and keeping it in order.

use crate::args::{Common, Store};
use crate::flags::flags;
use crate::output::{DIM, MOST_ROWS, Output, human_bytes};
use crate::table::{Align, Cell, Table};
use crate::{Failure, Outcome};
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::io::{self, Write};
use weighbridge::finding::Severity;
use weighbridge::ops::verify::{VerifyOptions, verify_checkpoint};
use weighbridge::phrase::Worded;
use weighbridge::store::{
    CheckpointStore, LinkForm, RecoverOptions, RollbackOptions, SnapshotState, StoreOptions, StoreState,
    StoredFile, SweepOptions, VersionState,
};
use weighbridge::text::{counted, escape, first_and_more, path_text};
use weighbridge::{Checkpoint, Error, OpenOptions};

/// Files that a report names.
const NAMED: usize = 8;

pub(crate) fn run(args: &Store, _: &Common, output: &mut Output) -> Result<Outcome, Failure> {
    let store = CheckpointStore::open(&args.path, StoreOptions::default())?;
    let mut done = Vec::new();
    if args.recover {
        let verify = args.input.options()?;
        let report = store.recover(&RecoverOptions { verify: Some(verify), start_over: args.start_over })?;
        let text = if report.changed {
            format!("the version file says {} now", report.version)
        } else {
            format!("nothing to recover: version {} counts", report.version)
        };
        done.push(Done::new("recover", report.to_json(), text));
    }
    if let Some(to) = args.rollback {
        whole(&store, to, args)?;
        let report = store.rollback(to, RollbackOptions { delete_newer: args.delete_newer })?;
        let left = report.left.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
        let mut text = format!("version {} counts now", report.to);
        if !left.is_empty() {
            text.push_str(&format!("; the files of {left} are left, --sweep newer removes them"));
        }
        done.push(Done::new("rollback", report.to_json(), text).and_files("removed", &report.deleted));
    }
    if let Some(epoch) = args.preserve {
        whole(&store, store.current()?, args)?;
        let form = if args.copies { LinkForm::Copies } else { LinkForm::Relative };
        let report = store.preserve(epoch, form)?;
        let made = if report.made { "made" } else { "was there" };
        let text = format!("snapshot epoch_{} of version {} {made}", report.epoch, report.version);
        done.push(Done::new("preserve", report.to_json(), text));
    }
    let sweeps_versions = args.sweep.iter().any(|what| what != "temporary");
    if args.prune || sweeps_versions {
        // Nothing is deleted while what stays could not be read.
        whole(&store, store.current()?, args)?;
    }
    if let Some(keep) = args.keep.filter(|_| args.prune) {
        let report = store.prune(keep)?;
        let kept = report.kept.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
        let text = format!("kept versions: {kept}");
        done.push(Done::new("prune", report.to_json(), text).and_files("removed", &report.deleted));
    }
    if !args.sweep.is_empty() {
        let has = |what: &str| args.sweep.iter().any(|own| own == what);
        // Complete older versions may have been kept on purpose: they go only where they are named.
        let all = has("all");
        let options = SweepOptions {
            newer: all || has("newer"),
            older: has("older"),
            remnants: all,
            temporary: all || has("temporary"),
        };
        let report = store.sweep(options)?;
        let text = format!("swept; {} left", counted(report.left.len(), "orphan is", "orphans are"));
        done.push(Done::new("sweep", report.to_json(), text).and_files("removed", &report.removed));
    }
    let state = store.state()?;
    let current = state.current();
    let mut damaged: BTreeMap<u64, String> = BTreeMap::new();
    for version in state.versions.values().filter(|version| version.is_complete()) {
        let number = version.version;
        let fault = match whole(&store, number, args) {
            Ok(Some(opened)) if current.as_ref().ok() == Some(&number) => fault(opened)?,
            Ok(_) => None,
            Err(error) => Some(error.message().to_owned()),
        };
        damaged.extend(fault.map(|fault| (number, fault)));
    }
    let whole = match &current {
        // Nothing was committed yet.
        Ok(0) => state.highest_complete().is_none_or(|highest| highest == 0),
        Ok(version) => state.complete(*version).is_ok() && !damaged.contains_key(version),
        Err(_) => false,
    };
    let snapshots = state.snapshots.values().all(SnapshotState::is_complete);
    let nothing = state.versions.is_empty() && state.snapshots.is_empty() && matches!(current, Ok(0));
    output.outcome = match (nothing && done.is_empty(), whole && snapshots) {
        (true, _) => Outcome::CouldNotTell,
        (_, true) => Outcome::Done,
        _ => Outcome::Finding,
    };
    if output.json {
        let mut document = state.to_json();
        document["damaged"] = json!(damaged);
        document["path"] = json!(path_text(&args.path));
        document["done"] = done.iter().map(|d| json!({ "what": d.what, "report": d.json })).collect();
        output.document(&document)?;
    } else {
        for line in &done {
            writeln!(output, "{}", line.text)?;
        }
        show(&state, &damaged, output)?;
        if nothing {
            output.warning("nothing", "no version of a checkpoint is in this folder")?;
        }
        if let Err(error) = &current {
            let hint = error
                .hint_phrase()
                .map(|hint| format!("; {}", hint.clone().worded(&flags)))
                .unwrap_or_default();
            output.warning("current", &format!("{}{hint}", error.message()))?;
        }
    }
    Ok(output.outcome)
}

/// Opens a version; version 0 has nothing to open.
///
/// # Errors
/// As [`CheckpointStore::checkpoint`] where its files are there, and some are damaged.
fn whole(store: &CheckpointStore, version: u64, args: &Store) -> Result<Option<Checkpoint>, Error> {
    if version == 0 {
        return Ok(None);
    }
    let options = OpenOptions { version: Some(version), ..args.input.options()? };
    store.checkpoint(version, &options).map(Some)
}

/// The first error that `verify` finds in the current version. Names of rows stand in another folder and
/// are not read.
fn fault(mut opened: Checkpoint) -> Result<Option<String>, Error> {
    opened.tensors.iter_mut().for_each(|tensor| tensor.labels = None);
    let report = verify_checkpoint(&opened, &VerifyOptions::default())?;
    let error = report.findings.into_iter().find(|finding| finding.severity == Severity::Error);
    Ok(error.map(|finding| finding.text.worded(&flags).to_string()))
}

/// What was asked for and done.
struct Done {
    what: &'static str,
    json: Json,
    text: String,
}

impl Done {
    fn new(what: &'static str, json: Json, text: String) -> Self {
        Self { what, json, text }
    }

    fn and_files(mut self, verb: &str, files: &[StoredFile]) -> Self {
        if !files.is_empty() {
            let bytes = files.iter().map(|file| file.len).sum();
            let names = first_and_more(files.iter().map(|file| escape(&file.name)), NAMED);
            self.text.push_str(&format!("; {verb} {} ({names})", human_bytes(bytes)));
        }
        self
    }
}

fn show(state: &StoreState, damaged: &BTreeMap<u64, String>, output: &mut Output) -> io::Result<()> {
    let current = state.current().ok();
    let mut table = Table::new(&[
        ("version", Align::Right),
        ("files", Align::Right),
        ("bytes", Align::Right),
        ("state", Align::Left),
        ("snapshots", Align::Left),
    ]);
    let earlier = state.versions.len().saturating_sub(MOST_ROWS);
    for version in state.versions.values().skip(earlier) {
        let cells: [Cell; 5] = [
            version.version.to_string().into(),
            version.files.len().to_string().into(),
            human_bytes(version.bytes()).into(),
            condition(version, current, damaged).into(),
            version.snapshots.iter().map(|e| format!("epoch_{e}")).collect::<Vec<_>>().join(", ").into(),
        ];
        table.row(cells);
    }
    table.print(output)?;
    output.more_rows(earlier, "versions before these")?;
    if current == Some(0) && state.highest_complete().is_some_and(|highest| highest > 0) {
        let text = "the version file says 0, and there are complete versions: BigGraph would start over; \
                    --rollback N lets one count";
        output.warning("current", text)?;
    }
    for snapshot in state.snapshots.values().filter(|s| !s.is_complete()) {
        let mut parts: Vec<_> = snapshot.broken.iter().chain(&snapshot.missing).collect();
        parts.sort_unstable();
        parts.dedup();
        let parts = first_and_more(parts.into_iter().map(|name| escape(name)), NAMED);
        let text = format!("epoch_{} is not whole: {parts}", snapshot.epoch);
        output.warning("snapshot", &text)?;
    }
    for orphan in state.orphans.iter().take(NAMED) {
        let (name, size) = (escape(&orphan.name), human_bytes(orphan.len));
        writeln!(output, "{DIM}orphan: {name} ({size}): {}{DIM:#}", orphan.kind.as_str())?;
    }
    output.more_rows(state.orphans.len().saturating_sub(NAMED), "orphans")?;
    if let Some(trouble) = &state.config_trouble {
        output.warning("config.json", trouble)?;
    }
    Ok(())
}

/// `current`, and what is missing of a version.
fn condition(version: &VersionState, current: Option<u64>, damaged: &BTreeMap<u64, String>) -> String {
    let counts = if current == Some(version.version) { "current, " } else { "" };
    if let Some(why) = damaged.get(&version.version) {
        return format!("{counts}damaged: {}", escape(why));
    }
    if version.is_complete() {
        return format!("{counts}complete");
    }
    let missing = first_and_more(version.missing.iter().map(|name| escape(name)), 3);
    format!("{counts}incomplete: no {missing}")
}
