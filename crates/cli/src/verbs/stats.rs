//! `stats`: minimum, maximum, mean, zeros, NaN and a histogram.

use crate::args::{Common, Stats};
use crate::output::{DIM, HEADING, Output, human_count};
use crate::several::{self, Report};
use crate::table::{Align, Table};
use crate::{Failure, Outcome};
use serde::Serialize;
use std::io::{self, Write};
use std::path::Path;
use weighbridge::checkpoint::{Checkpoint, TensorEntry};
use weighbridge::finding::Verdict;
use weighbridge::ops::stats::{Measured, Number, Stats as Values, StatsOptions, measure, places, stats};
use weighbridge::phrase::{Face, Worded};
use weighbridge::source::{PathKind, check_local};

/// Width of the histogram's bars in characters.
const BARS: usize = 50;

pub(crate) fn run(args: &Stats, _: &Common, output: &mut Output) -> Result<Outcome, Failure> {
    // The last argument may be the name of a tensor.
    let (paths, name) = match args.paths.as_slice() {
        [first, .., last] if is_name(last, first, args) => {
            check_local(last)?;
            (&args.paths[..args.paths.len() - 1], Some(last.to_string_lossy()))
        }
        paths => (paths, None),
    };
    let json = output.json;
    several::run(paths, output, |path| {
        let checkpoint = crate::salvage::open(path, &args.input)?;
        let places = places(&checkpoint, name.as_deref())?;
        let mut options = StatsOptions::default();
        // The histogram needs a second pass, and a table does not show it.
        let drawn = (name.is_some() && places.len() == 1) || json;
        options.bins = if drawn { args.bins.into() } else { 0 };
        if drawn {
            let measured = measure(checkpoint, name.as_deref(), &options)?;
            return Ok(Shown { measured, table: None });
        }
        // Rows of text take less memory than the statistics of a million tensors.
        let mut table = columns();
        for place in places {
            let tensor = &checkpoint.tensors[place];
            row(&mut table, tensor, &stats(tensor, &options).map_err(|e| e.in_file(&checkpoint.label))?);
        }
        Ok(Shown { measured: Measured { checkpoint, found: Vec::new() }, table: Some(table) })
    })
}

/// Returns true if the last argument is a tensor name: no file has this name, or the first file has such a tensor.
fn is_name(last: &Path, first: &Path, args: &Stats) -> bool {
    let has = |checkpoint: Checkpoint| last.to_str().is_some_and(|name| checkpoint.tensor(name).is_ok());
    PathKind::of(last).is_err() || crate::salvage::open(first, &args.input).is_ok_and(has)
}

/// Statistics of the values of tensors.
struct Shown {
    /// Statistics; empty with a table.
    measured: Measured,
    /// Table with one row per tensor.
    table: Option<Table>,
}

impl Worded for Shown {
    fn word(&mut self, face: Face<'_>) {
        self.measured.word(face);
    }
}

impl Report for Shown {
    fn verdict(&self) -> Verdict {
        Verdict::Sound
    }

    fn json(&self) -> impl Serialize {
        &self.measured
    }

    fn text(&self, output: &mut Output) -> io::Result<()> {
        for (place, values) in &self.measured.found {
            one(&self.measured.checkpoint.tensors[*place], values, output)?;
        }
        if let Some(table) = &self.table {
            table.print(output)?;
        }
        crate::salvage::say(&self.measured.checkpoint, output)
    }

    fn begins_with_path(&self) -> bool {
        false
    }

    fn word(_: Verdict) -> String {
        "opened".to_owned()
    }
}

fn one(tensor: &TensorEntry, values: &Values, output: &mut Output) -> io::Result<()> {
    writeln!(output, "{HEADING}{}{HEADING:#}  {} {}", tensor.name(), tensor.dtype(), tensor.shape)?;
    let mut line = |label: &str, text: String| writeln!(output, "{label:<10} {text}");
    line("count", human_count(values.count))?;
    line("min", number(values.min))?;
    line("max", number(values.max))?;
    line("mean", float(values.mean))?;
    line("std", float(values.std))?;
    for (label, count) in oddities(values) {
        line(label, human_count(count))?;
    }
    if values.all_equal {
        line("", "all elements are equal".to_owned())?;
    }
    for bar in values.histogram_lines(BARS) {
        writeln!(output, "{DIM}{bar}{DIM:#}")?;
    }
    Ok(())
}

fn oddities(values: &Values) -> [(&'static str, u64); 5] {
    [
        ("zeros", values.zeros),
        ("NaN", values.nan),
        ("+Inf", values.pos_inf),
        ("-Inf", values.neg_inf),
        ("subnormal", values.subnormal),
    ]
}

fn columns() -> Table {
    Table::new(&[
        ("name", Align::Left),
        ("dtype", Align::Left),
        ("count", Align::Right),
        ("min", Align::Right),
        ("max", Align::Right),
        ("mean", Align::Right),
        ("std", Align::Right),
        ("zeros", Align::Right),
        ("NaN", Align::Right),
        ("Inf", Align::Right),
    ])
}

fn row(table: &mut Table, tensor: &TensorEntry, values: &Values) {
    table.row([
        tensor.name(),
        tensor.dtype().to_string(),
        human_count(values.count),
        number(values.min),
        number(values.max),
        float(values.mean),
        float(values.std),
        human_count(values.zeros),
        human_count(values.nan),
        human_count(values.pos_inf + values.neg_inf),
    ]);
}

fn number(value: Option<Number>) -> String {
    match value {
        Some(Number::Int(i)) => i.to_string(),
        Some(Number::Float(x)) => float(Some(x)),
        None => "-".to_owned(),
    }
}

/// Formats six digits, with an exponent if that is shorter.
fn float(value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(0.0) => "0".to_owned(),
        Some(x) if (1e-4..1e6).contains(&x.abs()) => {
            let text = format!("{x:.6}");
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
        Some(x) => format!("{x:.5e}"),
    }
}
