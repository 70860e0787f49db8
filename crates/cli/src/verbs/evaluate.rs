//! `evaluate`: ranks of edges by a trained BigGraph checkpoint.

use crate::args::{Common, Evaluate};
use crate::flags::flags;
use crate::output::{Output, human_count};
use crate::table::{Align, Table};
use crate::{Failure, Outcome};
use std::path::PathBuf;
use weighbridge::formats::biggraph::{EvaluateOptions as Settings, HITS, Metrics};
use weighbridge::ops::evaluate::{CandidateNames, EvaluateOptions, evaluate};
use weighbridge::phrase::Worded;
use weighbridge::text::escape;

pub(crate) fn run(args: &Evaluate, common: &Common, output: &mut Output) -> Result<Outcome, Failure> {
    let open = args.input.options()?;
    let read =
        |(entity, file): &(Option<String>, PathBuf)| CandidateNames::read(entity.clone(), file, &open.limits);
    let candidates = args.candidates.iter().map(read).collect::<weighbridge::Result<Vec<_>>>()?;
    let options = EvaluateOptions {
        filter: args.filter.clone(),
        candidates,
        settings: Settings {
            negatives: args.negatives,
            seed: args.seed,
            threads: args.threads,
            memory: args.memory,
            progress: common.progress(),
            ..Settings::default()
        },
        open,
    };
    let report = evaluate(&args.path, &args.edges, &options)?.worded(&flags);
    if output.json {
        output.document(&report.to_json())?;
        return Ok(Outcome::Done);
    }
    let mut table = Table::new(&[
        ("relation", Align::Left),
        ("edges", Align::Right),
        ("MRR", Align::Right),
        ("Hits@1", Align::Right),
        ("Hits@10", Align::Right),
        ("Hits@50", Align::Right),
        ("mean rank", Align::Right),
        ("AUC", Align::Right),
    ]);
    let relations = &report.evaluation.relations;
    for relation in relations.iter().filter(|_| relations.len() > 1) {
        let name = relation.name.as_deref().map_or_else(|| relation.number.to_string(), escape);
        table.row(cells(name, &relation.metrics));
    }
    let all = match relations.as_slice() {
        [only] => only.name.as_deref().map_or_else(|| only.number.to_string(), escape),
        _ => "all".to_owned(),
    };
    table.row(cells(all, &report.evaluation.all));
    table.print(output)?;
    output.notes(&report.evaluation.notes)?;
    Ok(Outcome::Done)
}

fn cells(name: String, metrics: &Metrics) -> Vec<String> {
    let number = |value: f64, digits: usize| {
        if value.is_nan() { "-".to_owned() } else { format!("{value:.digits$}") }
    };
    let mut cells = vec![name, human_count(metrics.edges), number(metrics.mrr, 4)];
    cells.extend(HITS.iter().zip(metrics.hits).map(|(_, hits)| number(hits, 4)));
    cells.extend([number(metrics.mean_rank, 2), number(metrics.auc, 4)]);
    cells
}
