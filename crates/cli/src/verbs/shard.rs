//! `shard`: a model split into safetensors shards with an index.

use crate::args::{Common, Shard};
use crate::flags::flags;
use crate::output::{MAX_ROWS, Output, human_bytes, human_count, human_counted};
use crate::table::{Align, Table};
use crate::{Failure, Outcome};
use std::io::Write;
use weighbridge::Error;
use weighbridge::ops::ConvertOptions;
use weighbridge::ops::shard::shard;
use weighbridge::phrase::Worded;
use weighbridge::text::{escape, path_text};

pub(crate) fn run(args: &Shard, common: &Common, output: &mut Output) -> Result<Outcome, Failure> {
    let writing = &args.writing;
    if writing.to.as_deref().is_some_and(|to| to != "safetensors") || writing.kind.is_some() {
        return Err(Error::usage("bad-arguments", "shards are safetensors files")
            .hint("omit --to and --kind; `convert` writes other formats")
            .into());
    }
    let options = ConvertOptions {
        open: args.input.options()?,
        settings: writing.set.clone(),
        deny_loss: writing.deny_loss,
        force: writing.force,
        run: writing.run_options(common),
        ..ConvertOptions::default()
    };
    let prepared = shard(&args.source, &args.target, &args.max_shard_size, &options)?.worded(&flags);
    let mut bytes = prepared.plan.bytes();
    output.warn_before(&prepared.notes, &prepared.plan.losses)?;
    if !writing.plan {
        bytes = prepared.write(&args.target, &options)?;
    }
    drop(options);
    let outcome = writing.outcome(&prepared.plan.losses);
    output.outcome = outcome;
    let target = path_text(&args.target);
    if output.json {
        output.document(&prepared.to_json(&args.target, !writing.plan, bytes))?;
        return Ok(outcome);
    }
    let mut table = Table::new(&[
        ("file", Align::Left),
        ("tensors", Align::Right),
        ("bytes", Align::Right),
        ("", Align::Left),
    ]);
    for shard in prepared.shards.iter().take(MAX_ROWS) {
        let odd = match (shard.oversized, shard.tensors) {
            (false, _) => String::new(),
            (true, 1) => format!("larger than the shard size {}", escape(&args.max_shard_size)),
            (true, _) => format!(
                "tied tensors, kept together; larger than the shard size {}",
                escape(&args.max_shard_size)
            ),
        };
        table.row([
            escape(&shard.name),
            human_count(shard.tensors as u64),
            human_count(shard.tensor_bytes),
            odd,
        ]);
    }
    table.print(output)?;
    output.more_rows(prepared.shards.len().saturating_sub(MAX_ROWS), "")?;
    let word = if writing.plan { "would write" } else { "wrote" };
    let files = human_counted(prepared.plan.files.len(), "file");
    writeln!(output, "{word} {}/ ({files}, {})", escape(target.trim_end_matches('/')), human_bytes(bytes))?;
    Ok(outcome)
}
