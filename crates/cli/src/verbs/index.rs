//! `index`: an approximate index of a table.

use crate::args::{Common, Index};
use crate::output::{Output, human_bytes, human_count};
use crate::{Failure, Outcome};
use std::io::Write;
use weighbridge::ops::index::{IndexOptions, index};
use weighbridge::text::{escape, path_text};

pub(crate) fn run(args: &Index, common: &Common, output: &mut Output) -> Result<Outcome, Failure> {
    let options = IndexOptions {
        open: args.input.options()?,
        comparator: args.by,
        dtype: args.dtype,
        replace: args.force,
        threads: args.threads,
        memory: args.memory,
        progress: common.progress(),
    };
    let report = index(&args.path, args.table.as_deref(), &args.output, &options)?;
    if output.json {
        output.document(&report.to_json())?;
        return Ok(Outcome::Done);
    }
    let (rows, columns) = (human_count(report.rows), human_count(report.columns));
    let (by, dtype) = (report.comparator.name(), report.dtype);
    let (table, bytes) = (escape(&report.table), human_bytes(report.bytes));
    writeln!(output, "indexed {table}: {rows} × {columns} {dtype} by {by}, {bytes}")?;
    let names = if report.names { ", row names in names.json" } else { ", without row names" };
    writeln!(output, "wrote {}{names}", escape(&path_text(&args.output)))?;
    output.notes(&report.notes)?;
    Ok(Outcome::Done)
}
