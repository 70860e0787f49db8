//! `checkpoint`: a folder of versions of a PyTorch-BigGraph checkpoint: what is there, what counts,
//! and keeping it in order.

use crate::args::{Common, Store};
use crate::flags::flags;
use crate::output::{DIM, MOST_ROWS, Output, human_bytes};
use crate::table::{Align, Cell, Table};
use crate::{Failure, Outcome};
use std::collections::BTreeMap;
use std::io::{self, Write};
use weighbridge::ops::versions::{Remnants, Step, VersionsOptions, versions};
use weighbridge::phrase::{Phrase, Worded};
use weighbridge::store::{StoreState, StoredFile, VersionState};
use weighbridge::text::{counted, escape, first_and_more};

/// Files that a report names.
const NAMED: usize = 8;

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
    let report = versions(&args.path, &options)?.worded(&flags);
    output.outcome = report.verdict.into();
    if output.json {
        output.document(&report.to_json())?;
        return Ok(output.outcome);
    }
    for step in &report.done {
        writeln!(output, "{}", told(step))?;
    }
    show(&report.state, &report.damaged, output)?;
    if report.is_nothing() {
        output.warning("nothing", "no version of a checkpoint is in this folder")?;
    }
    if let Err(error) = report.state.current() {
        let hint = error.hint_phrase().map(|hint| format!("; {}", hint.clone().worded(&flags)));
        output.warning("current", &format!("{}{}", error.message(), hint.unwrap_or_default()))?;
    }
    Ok(output.outcome)
}

/// A step that was done.
fn told(step: &Step) -> String {
    let numbers = |all: &[u64]| all.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
    match step {
        Step::Recover(report) if report.changed => format!("the version file says {} now", report.version),
        Step::Recover(report) => format!("nothing to recover: version {} counts", report.version),
        Step::Rollback(report) => {
            let mut text = format!("version {} counts now", report.to);
            if !report.left.is_empty() {
                let left = numbers(&report.left);
                text.push_str(&format!("; the files of {left} are left, --sweep newer removes them"));
            }
            text + &removed(&report.deleted)
        }
        Step::Preserve(report) => {
            let made = if report.made { "made" } else { "was there" };
            format!("snapshot epoch_{} of version {} {made}", report.epoch, report.version)
        }
        Step::Prune(report) => {
            format!("kept versions: {}{}", numbers(&report.kept), removed(&report.deleted))
        }
        Step::Sweep(report) => {
            let left = counted(report.left.len(), "orphan is", "orphans are");
            format!("swept; {left} left{}", removed(&report.removed))
        }
    }
}

fn removed(files: &[StoredFile]) -> String {
    if files.is_empty() {
        return String::new();
    }
    let bytes = files.iter().map(|file| file.len).sum();
    let names = first_and_more(files.iter().map(|file| escape(&file.name)), NAMED);
    format!("; removed {} ({names})", human_bytes(bytes))
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
fn condition(version: &VersionState, current: Option<u64>, damaged: &BTreeMap<u64, Phrase>) -> String {
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
