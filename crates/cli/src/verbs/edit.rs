//! `edit`: changes of names, dtypes, shapes and metadata by rules, in a new file or in place.

use crate::args::{Common, Edit, InPlaceMode};
use crate::flags::flags;
use crate::output::{HEADING, MAX_ROWS, Output, human_bytes, human_count, human_counted};
use crate::table::{Align, Table};
use crate::{Failure, Outcome};
use std::io::{self, Write};
use std::time::Instant;
use weighbridge::Error;
use weighbridge::engine::patch::{LocalPatchDisk, Patch};
use weighbridge::ops::edit::{
    EditMode, EditOptions, EditReport, InPlace, MetadataChange, Rule, RuleOptions, TensorChange,
    TensorSummary, prepare, prepare_in_place, undone_document, write, write_in_place,
};
use weighbridge::phrase::Worded;
use weighbridge::text::{escape, path_text};

pub(crate) fn run(args: &Edit, common: &Common, output: &mut Output) -> Result<Outcome, Failure> {
    if args.undo || args.forget_undo {
        return undo(args, output);
    }
    let writing = &args.writing;
    let options = EditOptions {
        open: args.input.options()?,
        rules: rules(args)?,
        lenient: args.lenient_rules,
        to: writing.to.clone(),
        kind: writing.kind.clone(),
        settings: writing.set.clone(),
        deny_loss: writing.deny_loss,
        force: writing.force,
        run: writing.run_options(common),
    };
    let begun = Instant::now();
    match (&args.target, args.in_place) {
        (Some(target), None) => {
            let mut prepared = prepare(&args.source, target, &options)?.worded(&flags);
            before(&prepared.report, output)?;
            if writing.plan {
                prepared.measure_casts(writing.threads)?;
            } else {
                write(&mut prepared, target, &options)?;
            }
            drop(options);
            output.outcome = writing.outcome(&prepared.report.losses);
            show(&prepared.report, None, writing.plan, begun, output)?;
        }
        (_, place) => {
            let how = if place == Some(InPlaceMode::Rewrite) { InPlace::Rewrite } else { InPlace::Header };
            let mut prepared = prepare_in_place(&args.source, how, &options)?.worded(&flags);
            before(&prepared.edit.report, output)?;
            if writing.plan {
                prepared.edit.measure_casts(writing.threads)?;
            } else {
                write_in_place(&mut prepared, &args.source, &options)?;
            }
            drop(options);
            output.outcome = writing.outcome(&prepared.edit.report.losses);
            show(&prepared.edit.report, prepared.patch.as_ref(), writing.plan, begun, output)?;
        }
    }
    Ok(output.outcome)
}

/// Prints notes, changes and losses before anything is written.
fn before(report: &EditReport, output: &mut Output) -> io::Result<()> {
    if output.json {
        return Ok(());
    }
    output.warn_of(&report.notes)?;
    changes(report, output)?;
    output.losses(&report.losses)?;
    output.flush()
}

/// Returns the rules of the arguments.
fn rules(args: &Edit) -> Result<Vec<Rule>, Error> {
    let rules = RuleOptions {
        files: args.rules.clone(),
        keep: args.keep.clone(),
        drop: args.drop.clone(),
        no_state: args.no_state,
        strip_prefix: args.strip_prefix.clone(),
        rename: args.rename.clone(),
        rename_glob: args.rename_glob.clone(),
        rename_regex: args.rename_regex.clone(),
        prefix: args.prefix.clone(),
        transpose: args.transpose.clone(),
        cast: args.cast.clone(),
        tie: args.tie.clone(),
        untie: args.untie.clone(),
        set_metadata: args.set_metadata.clone(),
        remove_metadata: args.remove_metadata.clone(),
    };
    rules.rules()
}

fn undo(args: &Edit, output: &mut Output) -> Result<Outcome, Failure> {
    let path = escape(&path_text(&args.source));
    let (done, bytes, text) = if args.undo {
        let bytes = Patch::undo(&LocalPatchDisk, &args.source)?;
        ("undo", bytes, format!("restored {} of {path}", human_bytes(bytes)))
    } else {
        Patch::forget(&LocalPatchDisk, &args.source)?;
        ("forget-undo", 0, format!("removed the undo record of {path}"))
    };
    if output.json {
        output.document(&undone_document(&args.source, done, bytes))?;
    } else {
        writeln!(output, "{text}")?;
    }
    Ok(Outcome::Done)
}

fn show(
    report: &EditReport,
    patch: Option<&Patch>,
    planned: bool,
    begun: Instant,
    output: &mut Output,
) -> io::Result<()> {
    if output.json {
        return output.document(&report.document(patch, !planned));
    }
    if planned {
        casts(report, output)?;
    }
    super::convert::casts(&report.casts, output)?;
    let (target, size) = (escape(&report.target), human_bytes(report.bytes));
    let form = format!("{} {}", report.format, report.kind);
    let seconds = begun.elapsed().as_secs_f64();
    match (report.how, planned) {
        (EditMode::NewFile, true) => writeln!(output, "would write {target} ({form}, {size})"),
        (EditMode::NewFile, false) => writeln!(output, "wrote {target} ({form}, {size}) in {seconds:.2} s"),
        (EditMode::Rewrite, true) => writeln!(output, "would replace {target} ({form}, {size})"),
        (EditMode::Rewrite, false) => {
            writeln!(output, "replaced {target} ({form}, {size}) in {seconds:.2} s")
        }
        (EditMode::Header, _) if patch.is_none_or(Patch::is_empty) => {
            writeln!(output, "{target}: no changes to write")
        }
        (EditMode::Header, true) => writeln!(output, "would write {size} into {target}; tensor data stays"),
        (EditMode::Header, false) => {
            let record = Patch::record_path(std::path::Path::new(&report.target)).display().to_string();
            writeln!(output, "wrote {size} into {target}; undo record: {}", escape(&record))
        }
    }
}

/// Prints the changes: before and after.
fn changes(report: &EditReport, output: &mut Output) -> io::Result<()> {
    if !report.changes.is_empty() {
        writeln!(output, "{HEADING}{}{HEADING:#}", counts(report))?;
    }
    output.first_rows(&report.changes, |output, change| writeln!(output, "  {}", change_text(change)))?;
    if !report.metadata.is_empty() {
        writeln!(output, "{HEADING}metadata{HEADING:#}")?;
    }
    output.first_rows(&report.metadata, |output, MetadataChange { key, before, after }| {
        let side = |value: &Option<serde_json::Value>| match value {
            Some(serde_json::Value::String(text)) => escape(text),
            Some(value) => escape(&value.to_string()),
            None => "(none)".to_owned(),
        };
        writeln!(output, "  {}: {} -> {}", escape(key), side(before), side(after))
    })
}

/// Prints the effect of casts on each tensor.
fn casts(report: &EditReport, output: &mut Output) -> io::Result<()> {
    if report.casts.is_empty() {
        return Ok(());
    }
    let titles = ["values", "changed", "to infinity", "to zero", "max abs error", "max rel error"];
    let columns = std::iter::once(("cast", Align::Left)).chain(titles.map(|title| (title, Align::Right)));
    let mut table = Table::new(&columns.collect::<Vec<_>>());
    for (name, cast) in report.casts.iter().take(MAX_ROWS) {
        let counts = [cast.elements, cast.changed, cast.overflowed, cast.underflowed].map(human_count);
        let worst = [cast.worst_error, cast.worst_relative].map(|x| format!("{x:.3e}"));
        table.row(std::iter::once(name.clone()).chain(counts).chain(worst).collect::<Vec<_>>());
    }
    table.print(output)?;
    output.more_rows(report.casts.len().saturating_sub(MAX_ROWS), "")
}

/// Formats the counts of changes: `2 of 4 tensors renamed, 1 dropped`.
fn counts(report: &EditReport) -> String {
    let count =
        |is: &dyn Fn(&TensorChange) -> bool| report.changes.iter().filter(|change| is(change)).count();
    let after = |is: &'static dyn Fn(&TensorSummary, &TensorSummary) -> bool| {
        count(&|change| change.after.as_ref().is_some_and(|after| is(&change.before, after)))
    };
    let dropped = count(&|change| change.after.is_none());
    let all = human_counted(report.tensors + dropped, "tensor");
    let counts = [
        (after(&|a, b| a.name != b.name), "renamed"),
        (dropped, "dropped"),
        (count(&|change| change.transposed), "transposed"),
        (after(&|a, b| a.dtype != b.dtype), "cast"),
        (after(&|a, b| a.alias_of.is_none() && b.alias_of.is_some()), "tied"),
        (after(&|a, b| a.alias_of.is_some() && b.alias_of.is_none()), "untied"),
    ];
    let mut parts = counts.iter().filter(|(n, _)| *n > 0);
    let Some((n, what)) = parts.next() else { return format!("{} of {all} changed", report.changes.len()) };
    let first = format!("{} of {all} {what}", human_count(*n as u64));
    parts.fold(first, |text, (n, what)| format!("{text}, {} {what}", human_count(*n as u64)))
}

fn change_text(change: &TensorChange) -> String {
    let before = &change.before;
    let name = escape(&before.name);
    let Some(after) = &change.after else { return format!("{name}  dropped") };
    let mut text = name;
    if after.name != before.name {
        text.push_str(&format!(" -> {}", escape(&after.name)));
    }
    if after.dtype != before.dtype {
        text.push_str(&format!("  {} -> {}", before.dtype, after.dtype));
    }
    if change.transposed {
        text.push_str(&format!("  {:?} -> {:?}, transposed", before.shape, after.shape));
    }
    let alias = |tensor: &TensorSummary| tensor.alias_of.as_deref().map(escape);
    match (alias(before), alias(after)) {
        (None, Some(of)) => text.push_str(&format!("  now shares storage with {of}")),
        (Some(of), None) => text.push_str(&format!("  no longer shares storage with {of}")),
        (Some(before), Some(of)) if of != before => {
            text.push_str(&format!("  now shares storage with {of} instead of {before}"));
        }
        _ => {}
    }
    text
}
