//! `rank`: score and rank of one edge.

use crate::args::{Common, Rank};
use crate::output::{DIM, Output, human_count};
use crate::table::{Align, Table};
use crate::{Failure, Outcome};
use std::io::Write;
use weighbridge::formats::biggraph::EvaluateOptions;
use weighbridge::ops::evaluate::rank;
use weighbridge::text::escape;

pub(crate) fn run(args: &Rank, common: &Common, output: &mut Output) -> Result<Outcome, Failure> {
    let open = args.input.options()?;
    let settings = EvaluateOptions { progress: common.progress(), ..EvaluateOptions::default() };
    let report = rank(&args.path, &args.relation, [&args.lhs, &args.rhs], &open, &settings)?;
    if output.json {
        output.document(&report.to_json())?;
        return Ok(Outcome::Done);
    }
    let mut table = Table::new(&[
        ("side", Align::Left),
        ("table", Align::Left),
        ("row", Align::Right),
        ("name", Align::Left),
        ("score", Align::Right),
        ("rank", Align::Right),
        ("negatives", Align::Right),
    ]);
    for (word, side) in ["left", "right"].into_iter().zip(&report.sides) {
        table.row([
            word.to_owned(),
            escape(&side.table),
            side.row.to_string(),
            side.name.as_deref().map(escape).unwrap_or_default(),
            format!("{:.6}", side.rank.score),
            human_count(side.rank.rank),
            human_count(side.rank.negatives),
        ]);
    }
    table.print(output)?;
    let name = report.relation_name.as_deref().map_or_else(|| report.relation.to_string(), escape);
    writeln!(output, "{DIM}relation {name}{DIM:#}")?;
    Ok(Outcome::Done)
}
