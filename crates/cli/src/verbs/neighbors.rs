//! `neighbors`: nearest rows of a table.

use crate::args::{Common, Neighbors};
use crate::output::{DIM, Output, human_counted};
use crate::table::{Align, Table};
use crate::{Failure, Outcome};
use std::io::Write;
use weighbridge::formats::biggraph::NeighborOptions as Settings;
use weighbridge::ops::neighbors::{NeighborsOptions, Query, neighbors};
use weighbridge::text::escape;

pub(crate) fn run(args: &Neighbors, common: &Common, output: &mut Output) -> Result<Outcome, Failure> {
    let options = NeighborsOptions {
        open: args.input.options()?,
        queries: args.queries.clone(),
        settings: Settings {
            count: args.count,
            comparator: args.by,
            relation: args.relation.clone(),
            reverse: args.reverse,
            threads: args.threads,
            memory: args.memory,
            progress: common.progress(),
        },
    };
    let report = neighbors(&args.path, &Query::Rows(args.rows.clone()), &options)?;
    if output.json {
        output.document(&report.to_json())?;
        return Ok(Outcome::Done);
    }
    let mut table = Table::new(&[
        ("query", Align::Left),
        ("neighbor", Align::Left),
        ("row", Align::Right),
        ("score", Align::Right),
    ]);
    for ((row, name), list) in report.queries.iter().zip(&report.found.lists) {
        let query = name.as_deref().map_or_else(|| row.to_string(), escape);
        for neighbor in list {
            let name = report.name(neighbor.row).map(escape).unwrap_or_default();
            table.row([query.clone(), name, neighbor.row.to_string(), format!("{:.6}", neighbor.score)]);
        }
    }
    table.print(output)?;
    let relation =
        report.relation.as_deref().map_or_else(String::new, |name| format!(", relation {}", escape(name)));
    let (queries, of) = (human_counted(report.queries.len(), "row"), escape(&report.queried));
    let (found, by) = (escape(&report.found.table.name()), report.found.comparator.name());
    writeln!(output, "{DIM}{queries} of {of}, nearest in {found} by {by}{relation}{DIM:#}")?;
    Ok(Outcome::Done)
}
