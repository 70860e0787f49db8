//! `diff`: differences between two checkpoints.

use crate::args::{Common, Diff};
use crate::flags::flags;
use crate::output::{HEADING, MAX_ROWS, Output, human_count, human_counted};
use crate::table::{Align, Table};
use crate::{Failure, Outcome};
use std::io::{self, Write};
use std::path::Path;
use weighbridge::Error;
use weighbridge::ops::diff::{Alone, Change, DiffOptions, DiffReport, Pair, Status, Tolerance, diff};
use weighbridge::ops::edit::read_rules;
use weighbridge::phrase::Worded;
use weighbridge::text::escape;

pub(crate) fn run(args: &Diff, _: &Common, output: &mut Output) -> Result<Outcome, Failure> {
    let mut options = DiffOptions::default();
    options.left = args.input.options()?;
    options.right = args.right_input().options()?;
    options.select.clone_from(&args.select);
    options.drop.clone_from(&args.drop);
    for file in &args.rules {
        options.rules.extend(read_rules(file)?);
    }
    options.lenient_rules = args.lenient_rules;
    options.rename.clone_from(&args.rename);
    options.rename_regex.clone_from(&args.rename_regex);
    options.ignore_dtype = args.ignore_dtype;
    options.no_state = args.no_state;
    options.no_metadata = args.no_metadata;
    options.metadata = args.metadata;
    options.names_only = args.names_only;
    options.threads = args.threads;
    options.memory = Some(args.memory);
    options.tolerance = tolerance(args)?;
    let report = diff(&args.left, &args.right, &options)?.worded(&flags);
    output.outcome = match (report.is_different(), report.is_same()) {
        (true, _) => Outcome::Finding,
        (_, false) => Outcome::CouldNotTell,
        _ => Outcome::Done,
    };
    if output.json {
        output.document(&report.as_json(args.all))?;
    } else if args.markdown {
        output.write_all(report.to_markdown().as_bytes())?;
    } else {
        text(&report, args, output)?;
    }
    Ok(output.outcome)
}

fn tolerance(args: &Diff) -> Result<Option<Tolerance>, Error> {
    let given = [("--atol", args.atol), ("--rtol", args.rtol)];
    if let Some((name, Some(bad))) = given.iter().find(|(_, x)| x.is_some_and(|x| x.is_nan() || x < 0.0)) {
        return Err(Error::usage("bad-tolerance", format!("{name} must be 0 or more")).found(bad));
    }
    let one = |x: Option<f64>| x.unwrap_or(0.0);
    let asked = args.atol.is_some() || args.rtol.is_some();
    Ok(asked.then(|| Tolerance { absolute: one(args.atol), relative: one(args.rtol) }))
}

fn text(report: &DiffReport, args: &Diff, output: &mut Output) -> io::Result<()> {
    // For a folder, shows the model file inside.
    for (side, given, [opened, ..]) in
        [("left", &args.left, &report.left), ("right", &args.right, &report.right)]
    {
        if given != Path::new(opened) {
            writeln!(output, "{HEADING}{side}{HEADING:#} {}", escape(opened))?;
        }
    }
    pairs(report, args.all, output)?;
    for (title, list) in
        [("only on the left", &report.left_alone), ("only on the right", &report.right_alone)]
    {
        alone(title, list, output)?;
    }
    if !report.metadata.is_empty() {
        heading("metadata", output)?;
        output
            .first_rows(&report.metadata, |output, change| writeln!(output, "  {}", change_text(change)))?;
    }
    if report.program.count() > 0 {
        heading("program", output)?;
        let changes = &report.program.changes;
        for change in changes.iter().take(MAX_ROWS) {
            let block = if change.block == 0 { String::new() } else { format!("block {}: ", change.block) };
            let part = change.part.as_ref().map_or_else(String::new, |part| format!(", {}", escape(part)));
            let sides = sides(change.left.as_deref(), change.right.as_deref());
            writeln!(output, "  {block}{}{part}: {sides}", escape(&change.subject))?;
        }
        output.more_rows(report.program.count().saturating_sub(MAX_ROWS), "")?;
    }
    output.first_rows(&report.notes, |output, note| output.warning("note", note))?;
    summary(report, output)
}

fn pairs(report: &DiffReport, all: bool, output: &mut Output) -> io::Result<()> {
    let shown: Vec<&Pair> = report.pairs.iter().filter(|pair| all || pair.status != Status::Same).collect();
    if shown.is_empty() {
        return Ok(());
    }
    const MEASURES: [&str; 6] = ["differ", "max abs", "max rel", "mean abs", "cosine", "ULP"];
    // Renamed tensors, for example, have no differences to measure.
    let is_measured = |pair: &&Pair| pair.values.as_ref().is_some_and(|values| !values.same_bits);
    let measures = if shown.iter().any(is_measured) { &MEASURES[..] } else { &[] };
    let mut columns = vec![("status", Align::Left), ("name", Align::Left)];
    columns.extend(measures.iter().map(|name| (*name, Align::Right)));
    columns.push(("", Align::Left));
    let mut table = Table::new(&columns);
    let most = if all { shown.len() } else { MAX_ROWS };
    for pair in shown.iter().take(most) {
        let name = match pair.left == pair.right {
            true => escape(&pair.left),
            false => format!("{} (left), {} (right)", escape(&pair.left), escape(&pair.right)),
        };
        let mut row = vec![pair.status.as_str().to_owned(), name];
        let mut rest: Vec<String> = pair.changes.iter().map(change_text).collect();
        rest.extend(pair.unread.iter().map(|finding| escape(&finding.told())));
        match &pair.values {
            Some(values) if !values.same_bits => {
                row.push(share(values.beyond, values.elements));
                row.extend([values.max_abs, values.max_relative, values.mean_abs].map(short));
                row.push(values.cosine.map_or_else(|| "-".to_owned(), |x| format!("{x:.6}")));
                row.push(values.max_ulp.map_or_else(|| "-".to_owned(), human_count));
                if let Some(at) = &values.at {
                    rest.push(format!("largest at {at:?}"));
                }
                rest.extend(values.oddities());
            }
            _ => row.extend(std::iter::repeat_n("-".to_owned(), measures.len())),
        }
        row.push(rest.join("; "));
        table.row(row);
    }
    table.print(output)?;
    output.more_rows(shown.len().saturating_sub(most), "")
}

fn alone(title: &str, list: &[Alone], output: &mut Output) -> io::Result<()> {
    if list.is_empty() {
        return Ok(());
    }
    heading(title, output)?;
    output.first_rows(list, |output, tensor| {
        writeln!(output, "  {}  {} {:?}", escape(&tensor.name), tensor.dtype, tensor.shape)
    })
}

fn heading(text: &str, output: &mut Output) -> io::Result<()> {
    writeln!(output, "{HEADING}{text}{HEADING:#}")
}

fn change_text(change: &Change) -> String {
    let what = if change.what == "row-names" { "row names differ:" } else { change.what.as_str() };
    format!("{} {}", escape(what), sides(change.left.as_deref(), change.right.as_deref()))
}

fn sides(left: Option<&str>, right: Option<&str>) -> String {
    let side = |text: Option<&str>| text.map_or_else(|| "(none)".to_owned(), escape);
    format!("{} -> {}", side(left), side(right))
}

fn share(part: u64, whole: u64) -> String {
    format!("{} of {}", human_count(part), human_count(whole))
}

fn short(x: f64) -> String {
    if x == 0.0 { "0".to_owned() } else { format!("{x:.3e}") }
}

fn summary(report: &DiffReport, output: &mut Output) -> io::Result<()> {
    let mut parts = vec![format!("{} equal", human_count(report.count(Status::Same) as u64))];
    let skipped = if report.left_out == 1 { "object omitted" } else { "objects omitted" };
    let counts = [
        (report.count(Status::Unread), "unreadable"),
        (report.count(Status::Values), "with different values"),
        (report.count(Status::Shape), "with different shapes"),
        (report.count(Status::Form), "stored differently"),
        (report.count(Status::Renamed), "renamed with equal values"),
        (report.count(Status::Close), "within the tolerance"),
        (report.left_alone.len(), "only on the left"),
        (report.right_alone.len(), "only on the right"),
        (report.left_out, skipped),
    ];
    parts.extend(
        counts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{} {what}", human_count(*n as u64))),
    );
    let mut line = format!("tensors: {}", parts.join(", "));
    if !report.values_compared && report.is_different() {
        line.push_str("; values were not compared");
    }
    for (what, count) in [("metadata", report.metadata.len()), ("program", report.program.count())] {
        if count > 0 {
            line.push_str(&format!("; {what}: {}", human_counted(count, "difference")));
        }
    }
    writeln!(output, "{HEADING}{}{HEADING:#}  {line}", report.verdict())
}
