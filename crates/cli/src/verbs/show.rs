//! `show`: values as numpy prints them.

use crate::args::{Common, Show};
use crate::output::{DIM, Output};
use crate::{Failure, Outcome};
use std::io::Write;
use weighbridge::ops::show::{document, show};
use weighbridge::ops::slice::{Slice, only, resolve};

pub(crate) fn run(args: &Show, _: &Common, output: &mut Output) -> Result<Outcome, Failure> {
    let checkpoint = crate::salvage::open(&args.path, &args.input)?;
    if output.json {
        output.document(&document(&checkpoint, args.name.as_deref())?)?;
        return Ok(Outcome::Done);
    }
    let (entry, slice) = match &args.name {
        Some(name) => resolve(&checkpoint, name)?,
        None => (only(&checkpoint)?, Slice::all()),
    };
    let named = |error: weighbridge::Error| error.in_file(&checkpoint.label);
    let shown = show(entry, &slice, args.full).map_err(named)?;
    writeln!(output, "{}", shown.text)?;
    let middle = if shown.summarised { ", --full shows all" } else { "" };
    writeln!(output, "{DIM}{} {}{middle}{DIM:#}", shown.dtype, shown.shape)?;
    crate::salvage::say(&checkpoint, output)?;
    Ok(Outcome::Done)
}
