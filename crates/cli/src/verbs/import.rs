//! `import`: edge lists into BigGraph's input folders.

use crate::args::{Common, Import};
use crate::output::{Output, human_bytes, human_count, human_counted};
use crate::table::{Align, Cell, Table};
use crate::{Failure, Outcome};
use std::io::Write;
use std::time::Instant;
use weighbridge::engine::RunOptions;
use weighbridge::ops::import::{ImportOptions, import};
use weighbridge::text::escape;

pub(crate) fn run(args: &Import, common: &Common, output: &mut Output) -> Result<Outcome, Failure> {
    let options = ImportOptions {
        form: args.from,
        columns: args.columns.clone(),
        header: args.header,
        order: args.order,
        seed: args.seed,
        like_upstream: args.like_upstream,
        entity_min_count: args.entity_min_count,
        relation_min_count: args.relation_min_count,
        skip_bad: args.skip_bad,
        force: args.force,
        run: RunOptions {
            threads: args.threads,
            memory: args.memory,
            sync: !args.no_sync,
            progress: common.progress(),
        },
        ..ImportOptions::new(&args.config)
    };
    let begun = Instant::now();
    let imported = import(&args.inputs, &args.output, &options)?;
    drop(options);
    if output.json {
        output.document(&imported.to_json())?;
        return Ok(Outcome::Done);
    }
    let report = &imported.report;
    if report.resumed {
        output.warning("note", "continued an import that was interrupted")?;
    }
    for finding in &imported.findings {
        output.warning("note", &finding.text)?;
    }
    let left = |title| (title, Align::Left);
    let right = |title| (title, Align::Right);
    let mut edges =
        Table::new(&[left("folder"), right("edges"), right("dropped"), right("bad lines"), left("buckets")]);
    for set in &report.edges {
        let folder = if set.folder.is_empty() { ".".to_owned() } else { escape(&set.folder) };
        let cells: [Cell; 5] = [
            folder.into(),
            human_count(set.edges).into(),
            human_count(set.dropped).into(),
            human_count(set.bad_lines).into(),
            format!("{} x {}", set.buckets[0], set.buckets[1]).into(),
        ];
        edges.row(cells);
    }
    edges.print(output)?;
    let mut names = Table::new(&[left("names of"), right("number"), right("dropped"), right("partitions")]);
    for own in report.entities.iter().chain([&report.relations]) {
        let cells: [Cell; 4] = [
            escape(&own.name).into(),
            human_count(own.kept).into(),
            human_count(own.found - own.kept).into(),
            own.partitions.to_string().into(),
        ];
        names.row(cells);
    }
    names.print(output)?;
    let seconds = begun.elapsed().as_secs_f64();
    let target = imported.target.trim_end_matches('/');
    let (files, size) = (human_counted(report.files, "file"), human_bytes(report.bytes));
    writeln!(output, "wrote {}/ ({files}, {size}) in {seconds:.2} s", escape(target))?;
    Ok(Outcome::Done)
}
