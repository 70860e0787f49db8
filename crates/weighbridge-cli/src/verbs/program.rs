//! `program`: the program that a model brings along.

use crate::args::{Common, Program};
use crate::output::Output;
use crate::{Failure, Outcome};
use serde_json::json;
use std::io::Write;
use weighbridge::ops::program::{self, listing, summary, to_dot};

pub(crate) fn run(args: &Program, _: &Common, output: &mut Output) -> Result<Outcome, Failure> {
    let checkpoint = weighbridge::open_with(&args.path, &args.input.options()?)?;
    let topology = program::of(&checkpoint)?;
    if output.json {
        output.document(&json!({
            "path": checkpoint.label,
            "format": checkpoint.format,
            "kind": checkpoint.kind,
            "summary": summary(topology).to_json(),
            "program": program::to_json(topology),
        }))?;
    } else if args.list {
        write!(output, "{}", listing(topology))?;
    } else if args.dot {
        write!(output, "{}", to_dot(topology))?;
    } else {
        write!(output, "{}", summary(topology))?;
    }
    Ok(Outcome::Done)
}
