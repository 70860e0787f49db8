//! `stats`: what the values are like.

use crate::args::{Common, Stats};
use crate::output::{DIM, HEADING, Output, human_count};
use crate::table::{Align, Table};
use crate::{Failure, Outcome};
use serde::Serialize;
use serde_json::{Value as Json, json};
use std::io::{self, Write};
use weighbridge::Error;
use weighbridge::checkpoint::TensorEntry;
use weighbridge::json::rows;
use weighbridge::ops::stats::{Number, Stats as Values, StatsOptions, stats};

/// Width of the histogram's bars in characters.
const BARS: usize = 50;

pub(crate) fn run(args: &Stats, _: &Common, output: &mut Output) -> Result<Outcome, Failure> {
    let checkpoint = crate::salvage::open(&args.path, &args.input)?;
    let tensors: Vec<&TensorEntry> = match &args.name {
        Some(name) => checkpoint.tensors_like(name)?,
        None => checkpoint.tensors.iter().collect(),
    };
    let mut options = StatsOptions::default();
    // The histogram takes a second pass; a table has no room for it.
    let drawn = (args.name.is_some() && tensors.len() == 1) || output.json;
    options.bins = if drawn { args.bins.into() } else { 0 };
    let values = |tensor: &TensorEntry| stats(tensor, &options).map_err(|e| e.in_file(&checkpoint.label));
    if !output.json && !drawn {
        all(&tensors, values, output)?;
        crate::salvage::say(&checkpoint, output)?;
        return Ok(Outcome::Done);
    }
    let mut found = Vec::with_capacity(tensors.len());
    for tensor in tensors {
        found.push((tensor, values(tensor)?));
    }
    if output.json {
        let one = |(tensor, values): &(&TensorEntry, Values)| {
            let mut json = values.to_json();
            json["name"] = json!(tensor.text());
            json["path"] = tensor.path.to_json();
            if let Some(slot) = tensor.role.slot() {
                json["slot"] = slot.to_json();
            }
            json
        };
        output.document(&Document {
            path: &checkpoint.label,
            tensors: rows(&found, one),
            damage: crate::salvage::damage(&checkpoint),
        })?;
    } else {
        for (tensor, values) in &found {
            one(tensor, values, output)?;
        }
        crate::salvage::say(&checkpoint, output)?;
    }
    Ok(Outcome::Done)
}

#[derive(Serialize)]
struct Document<'a, Tensors: Serialize> {
    path: &'a str,
    tensors: Tensors,
    #[serde(skip_serializing_if = "Option::is_none")]
    damage: Option<Json>,
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

fn all(
    tensors: &[&TensorEntry],
    values: impl Fn(&TensorEntry) -> Result<Values, Error>,
    output: &mut Output,
) -> Result<(), Failure> {
    let mut table = Table::new(&[
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
    ]);
    for tensor in tensors {
        let values = values(tensor)?;
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
    Ok(table.print(output)?)
}

fn number(value: Option<Number>) -> String {
    match value {
        Some(Number::Int(i)) => i.to_string(),
        Some(Number::Float(x)) => float(Some(x)),
        None => "-".to_owned(),
    }
}

/// Six digits, with an exponent where that is shorter.
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
