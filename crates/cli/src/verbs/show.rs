//! `show`: values as numpy prints them.

use crate::args::{Common, Show};
use crate::output::{DIM, Output};
use crate::{Failure, Outcome};
use serde_json::json;
use std::io::Write;
use weighbridge::ops::show::{show, values_json};
use weighbridge::ops::slice::{Slice, only, resolve};

pub(crate) fn run(args: &Show, _: &Common, output: &mut Output) -> Result<Outcome, Failure> {
    let checkpoint = crate::salvage::open(&args.path, &args.input)?;
    let (entry, slice) = match &args.name {
        Some(name) => resolve(&checkpoint, name)?,
        None => (only(&checkpoint)?, Slice::all()),
    };
    let named = |error: weighbridge::Error| error.in_file(&checkpoint.label);
    if output.json {
        let selection = slice.select(&entry.shape).map_err(|e| named(e.on_tensor(entry.name())))?;
        let mut document = json!({
            "path": checkpoint.label,
            "name": entry.text(),
            "dtype": entry.dtype().name(),
            "shape": selection.shape().dims(),
            "values": values_json(entry, &slice).map_err(named)?,
        });
        if let Some(damage) = crate::salvage::damage(&checkpoint) {
            document["damage"] = damage;
        }
        output.document(&document)?;
        return Ok(Outcome::Done);
    }
    let shown = show(entry, &slice, args.full).map_err(named)?;
    writeln!(output, "{}", shown.text)?;
    let middle = if shown.summarised { ", --full shows all" } else { "" };
    writeln!(output, "{DIM}{} {}{middle}{DIM:#}", shown.dtype, shown.shape)?;
    crate::salvage::say(&checkpoint, output)?;
    Ok(Outcome::Done)
}
