//! `checkpoint`: versions in a PyTorch-BigGraph checkpoint folder: list, recover, roll back, prune.

use crate::args::{Common, Store};
use crate::flags::flags;
use crate::output::{DIM, MAX_ROWS, Output, human_bytes, human_counted};
use crate::table::{Align, Cell, Table};
use crate::{Failure, Outcome};
use std::collections::BTreeMap;
use std::io::{self, Write};
use weighbridge::ops::versions::{Remnants, Step, VersionsOptions, versions};
use weighbridge::phrase::{Phrase, Worded};
use weighbridge::store::{Orphan, OrphanKind, StoreState, StoredFile, VersionState};
use weighbridge::text::{counted, escape, first_and_more, path_text};
use weighbridge::{Error, Kind};

/// Maximum file names in a report.
const MAX_NAMES: usize = 8;

pub(crate) fn run(args: &Store, _: &Common, output: &mut Output) -> Result<Outcome, Failure> {
    let options = VersionsOptions {
        open: args.input.options()?,
        recover: args.recover,
        start_over: args.start_over,
        rollback: args.rollback,
        delete_newer: args.delete_newer,
        preserve: args.preserve,
        copies: args.copies,
        prune: args.keep.filter(|_| args.prune),
        sweep: args.sweep.iter().filter_map(|what| Remnants::from_name(what)).collect(),
    };
    let not_a_folder = |error: Error| match error.kind() == Kind::Io && args.path.is_file() {
        true => Error::new(Kind::Io, error.code(), "the path is a file; a checkpoint folder is expected")
            .in_file(path_text(&args.path)),
        false => error,
    };
    let report = versions(&args.path, &options).map_err(not_a_folder)?.worded(&flags);
    output.outcome = report.verdict.into();
    if output.json {
        output.document(&report.to_json())?;
        return Ok(output.outcome);
    }
    for step in &report.done {
        writeln!(output, "{}", describe(step))?;
    }
    if report.is_nothing() {
        let folder = path_text(&args.path);
        let text =
            format!("{folder} has no version of a checkpoint: give the folder with checkpoint_version.txt");
        output.warning("warning:", &text)?;
    } else {
        show(&report.state, &report.damaged, output)?;
    }
    if let Err(error) = report.state.current() {
        output.warning("error:", error.message())?;
        if let Some(hint) = error.hint_phrase() {
            output.warning("hint:", &hint.clone().worded(&flags))?;
        }
    }
    Ok(output.outcome)
}

/// Describes a completed step.
fn describe(step: &Step) -> String {
    let numbers = |all: &[u64]| all.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
    match step {
        Step::Recover(report) if report.changed => format!("version {} is current now", report.version),
        Step::Recover(report) => format!("nothing to recover: version {} is current", report.version),
        Step::Rollback(report) => {
            let mut text = format!("version {} is current now", report.to);
            if !report.left.is_empty() {
                let left = numbers(&report.left);
                text.push_str(&format!(
                    "; the files of newer versions remain ({left}); --sweep newer removes them"
                ));
            }
            text + &and_removed(&report.deleted)
        }
        Step::Preserve(report) => {
            let made = if report.made { "created" } else { "exists already" };
            format!("snapshot epoch_{} of version {} {made}", report.epoch, report.version)
        }
        Step::Prune(report) => {
            format!("kept versions: {}{}", numbers(&report.kept), and_removed(&report.deleted))
        }
        Step::Sweep(report) => {
            let left = counted(report.left.len(), "orphan remains", "orphans remain");
            format!("{}; {left}", removed(&report.removed))
        }
    }
}

fn and_removed(files: &[StoredFile]) -> String {
    if files.is_empty() { String::new() } else { format!("; {}", removed(files)) }
}

/// Formats `removed 1 file, 4 B (a.h5)`.
fn removed(files: &[StoredFile]) -> String {
    if files.is_empty() {
        return "removed 0 files".to_owned();
    }
    let count = human_counted(files.len(), "file");
    let bytes = files.iter().map(|file| file.len).sum();
    let names = first_and_more(files.iter().map(|file| escape(&file.name)), MAX_NAMES);
    format!("removed {count}, {} ({names})", human_bytes(bytes))
}

fn show(state: &StoreState, damaged: &BTreeMap<u64, Phrase>, output: &mut Output) -> io::Result<()> {
    let current = state.current().ok();
    let mut table = Table::new(&[
        ("version", Align::Right),
        ("files", Align::Right),
        ("bytes", Align::Right),
        ("state", Align::Left),
        ("snapshots", Align::Left),
    ]);
    let earlier = state.versions.len().saturating_sub(MAX_ROWS);
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
    let absent = current.filter(|&version| version > 0 && !state.versions.contains_key(&version));
    if let Some(version) = absent {
        writeln!(output, "current   version {version} is current but has no files")?;
    }
    if current == Some(0) && state.highest_complete().is_some_and(|highest| highest > 0) {
        let text = "the version file contains 0 although there are complete versions; BigGraph would start over; \
                    use --rollback N to make one current";
        output.warning("warning:", text)?;
    }
    let listed: Vec<u64> = state.versions.values().flat_map(|version| version.snapshots.clone()).collect();
    for snapshot in state.snapshots.values().filter(|s| s.is_complete() && !listed.contains(&s.epoch)) {
        writeln!(output, "snapshot  epoch_{} has files of its own", snapshot.epoch)?;
    }
    for snapshot in state.snapshots.values().filter(|s| !s.is_complete()) {
        let mut parts: Vec<_> = snapshot.broken.iter().chain(&snapshot.missing).collect();
        parts.sort_unstable();
        parts.dedup();
        let parts = first_and_more(parts.into_iter().map(|name| escape(name)), MAX_NAMES);
        let text = format!("epoch_{} is incomplete: {parts}", snapshot.epoch);
        output.warning("snapshot", &text)?;
    }
    // Without files of the current version, the newest complete one is needed for a rollback.
    let needed = absent.and_then(|_| state.versions.get(&state.highest_complete()?));
    let is_needed = |orphan: &&Orphan| {
        orphan.kind == OrphanKind::Older && needed.is_some_and(|version| version.has(&orphan.name))
    };
    let orphans: Vec<&Orphan> = state.orphans.iter().filter(|orphan| !is_needed(orphan)).collect();
    for orphan in orphans.iter().take(MAX_NAMES) {
        let (name, size) = (escape(&orphan.name), human_bytes(orphan.len));
        writeln!(output, "{DIM}orphan: {name} ({size}): {}{DIM:#}", orphan.kind.as_str())?;
    }
    output.more_rows(orphans.len().saturating_sub(MAX_NAMES), "orphans")?;
    if let Some(trouble) = &state.config_trouble {
        output.warning("error:", &format!("config.json: {trouble}"))?;
    }
    Ok(())
}

/// Returns the state of a version: current, complete, damaged or incomplete with missing files.
fn condition(version: &VersionState, current: Option<u64>, damaged: &BTreeMap<u64, Phrase>) -> String {
    let prefix = if current == Some(version.version) { "current, " } else { "" };
    if let Some(why) = damaged.get(&version.version) {
        return format!("{prefix}damaged: {}", escape(why));
    }
    if version.is_complete() {
        return format!("{prefix}complete");
    }
    let missing = first_and_more(version.missing.iter().map(|name| escape(name)), 3);
    format!("{prefix}incomplete: missing {missing}")
}
