//! `merge`: several files, or the shards of a model, into one.

use crate::args::{Common, Merge, Prefer};
use crate::flags::flags;
use crate::output::{Output, human_bytes, human_counted};
use crate::{Failure, Outcome};
use std::io::Write;
use weighbridge::ops::merge::{Same, merge};
use weighbridge::ops::{ConvertOptions, save};
use weighbridge::phrase::Worded;
use weighbridge::text::{escape, path_text};

pub(crate) fn run(args: &Merge, common: &Common, output: &mut Output) -> Result<Outcome, Failure> {
    let writing = &args.writing;
    let options = ConvertOptions {
        open: args.input.options()?,
        to: writing.to.clone(),
        kind: writing.kind.clone(),
        settings: writing.set.clone(),
        deny_loss: writing.deny_loss,
        force: writing.force,
        run: writing.run_options(common),
        ..ConvertOptions::default()
    };
    let same = match (args.prefer, args.prefix_each) {
        (Some(Prefer::First), _) => Same::First,
        (Some(Prefer::Last), _) => Same::Last,
        (None, true) => Same::Prefix,
        (None, false) => Same::Refuse,
    };
    let prepared = merge(&args.sources, &args.output, same, &options)?.worded(&flags);
    let mut bytes = prepared.plan.bytes();
    output.warn_before(&prepared.notes, &prepared.plan.losses)?;
    if !writing.plan {
        bytes = save(&prepared.plan, &args.output, writing.force, &options.run)?.bytes;
    }
    drop(options);
    let outcome = writing.outcome(&prepared.plan.losses);
    output.outcome = outcome;
    let target = path_text(&args.output);
    let tensors = prepared.names.len();
    if output.json {
        output.document(&prepared.to_json(&args.sources, &args.output, !writing.plan, bytes))?;
        return Ok(outcome);
    }
    let word = if writing.plan { "would write" } else { "wrote" };
    let (form, count) =
        (format!("{} {}", prepared.plan.format, prepared.plan.kind), human_counted(tensors, "tensor"));
    writeln!(output, "{word} {} ({form}, {count}, {})", escape(&target), human_bytes(bytes))?;
    Ok(outcome)
}
