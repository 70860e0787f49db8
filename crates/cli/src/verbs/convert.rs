//! `convert`: conversion to another format, all or nothing.

use crate::args::{Common, Convert, Versions};
use crate::flags::flags;
use crate::output::{Output, human_bytes, human_count, human_counted};
use crate::streams::{check_plan, shown};
use crate::{Failure, Outcome};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use weighbridge::Error;
use weighbridge::checkpoint::{IndexTransform, Note};
use weighbridge::engine::RunReport;
use weighbridge::formats::biggraph::{AddEntities, InitEmbeddings, WithGlobal};
use weighbridge::ops::edit::{Rule, read_rules};
use weighbridge::ops::{self, Changes, ConvertOptions, GraphCheck, Written};
use weighbridge::phrase::Worded;
use weighbridge::plan::WritePlan;
use weighbridge::tensor::CastReport;
use weighbridge::text::escape;
use weighbridge::topology::Topology;

/// Maximum tensors with lost values in text.
const SHOWN_CASTS: usize = 10;

pub(crate) fn run(args: &Convert, common: &Common, output: &mut Output) -> Result<Outcome, Failure> {
    let writing = &args.writing;
    let open = args.input.options()?;
    let mut first: Vec<Arc<dyn IndexTransform>> = Vec::new();
    if args.draw {
        first.push(Arc::new(InitEmbeddings { seed: args.seed, repeat: args.repeat }));
    }
    for (entity, file) in &args.grow {
        first.push(Arc::new(AddEntities::read(entity, Path::new(file), args.seed, &open.limits)?));
    }
    if args.with_global {
        first.push(Arc::new(WithGlobal));
    }
    let rules = args.rules.iter().map(|file| read_rules(file)).collect::<weighbridge::Result<Vec<_>>>()?;
    let mut rules: Vec<Rule> = rules.into_iter().flatten().collect();
    if !args.set_metadata.is_empty() {
        rules.extend(Rule::parse("set-metadata", &args.set_metadata)?);
    }
    let options = ConvertOptions {
        open,
        to: writing.to.clone(),
        kind: writing.kind.clone(),
        settings: writing.set.clone(),
        plain: args.plain,
        like: args.like.clone(),
        copy_others: args.copy_others,
        changes: Changes {
            first,
            select: args.select.clone(),
            drop: args.drop.clone(),
            no_state: args.no_state,
            rules,
            lenient_rules: args.lenient_rules,
            rename: args.rename.clone(),
            cast: args.cast,
            rounding: args.rounding,
            reverse_dims: args.reverse_dims,
        },
        seed: args.seed,
        deny_loss: writing.deny_loss,
        force: writing.force,
        all_versions: args.versions == Versions::All,
        run: writing.run_options(common),
    };
    if writing.plan {
        let (plan, notes) = prepare(args, &options)?;
        if output.json {
            let target = shown(&args.target);
            output.document(&Written { target, plan, notes, report: None })?;
        } else {
            output.warn_of(&notes)?;
            write!(output, "{plan}")?;
        }
        return Ok(Outcome::Done);
    }
    let begun = Instant::now();
    let (plan, notes) = prepare(args, &options)?;
    output.warn_before(&notes, &plan.losses)?;
    let program = if args.check { Some(program_of(args, &options, &plan)?) } else { None };
    let report = ops::save(&plan, &args.target, writing.force, &options.run)?;
    drop(options);
    let check = program.map(|program| GraphCheck::of(&program, &args.target)).transpose()?;
    let mut outcome = writing.outcome(&plan.losses);
    if check.as_ref().is_some_and(|check| !check.agrees()) {
        outcome = Outcome::Finding;
    }
    output.outcome = outcome;
    let target = shown(&args.target);
    if output.json {
        let written = Written { target, plan, notes, report: Some(report) };
        output.document(&Checked { written, check })?;
    } else {
        text(&target, &plan, &report, begun, output)?;
        if let Some(check) = check {
            write!(output, "{check}")?;
        }
    }
    Ok(outcome)
}

/// Document of a conversion with the check of its graph.
#[derive(Serialize)]
struct Checked {
    #[serde(flatten)]
    written: Written,
    #[serde(skip_serializing_if = "Option::is_none")]
    check: Option<GraphCheck>,
}

/// Returns the program whose exported graph is to be checked.
fn program_of(args: &Convert, options: &ConvertOptions, plan: &WritePlan) -> Result<Arc<Topology>, Error> {
    let source = weighbridge::formats::open_with(&args.source, &options.open)?;
    match source.topology.filter(|_| plan.format == "onnx") {
        Some(program) => Ok(program),
        None => Err(Error::usage("not-an-export", "only a program that is exported to ONNX can be checked")
            .found(format_args!("{} to {}", source.format, plan.format))
            .hint("remove --check, or use `weighbridge verify` on the written file")),
    }
}

fn prepare(args: &Convert, options: &ConvertOptions) -> Result<(WritePlan, Vec<Note>), Error> {
    let (plan, notes) = ops::prepare(&args.source, &args.target, options).map_err(|error| {
        weighbridge::formats::registry().offer_salvage(error, &args.source, &options.open)
    })?;
    check_plan(&args.target, &plan)?;
    Ok((plan.worded(&flags), notes.worded(&flags)))
}

fn text(
    target: &str,
    plan: &WritePlan,
    report: &RunReport,
    begun: Instant,
    output: &mut Output,
) -> std::io::Result<()> {
    casts(&report.casts, output)?;
    let seconds = begun.elapsed().as_secs_f64();
    writeln!(output, "{} in {seconds:.2} s", wrote(target, plan, report.bytes))
}

/// Prints the effect of casts: totals, and the tensors with values that overflowed or became zero.
pub(super) fn casts(casts: &BTreeMap<String, CastReport>, output: &mut Output) -> std::io::Result<()> {
    let mut all = CastReport::default();
    casts.values().for_each(|cast| all.add(cast));
    let lost = |cast: &CastReport| {
        let (over, under) = (human_count(cast.overflowed), human_count(cast.underflowed));
        format!("{over} overflowed and {under} became zero")
    };
    if all.changed > 0 {
        let (changed, elements) = (human_count(all.changed), human_count(all.elements));
        // Infinite values have no error.
        let of = if all.overflowed > 0 { " of finite values" } else { "" };
        let error = format!(
            "largest error{of}: {:.3e} absolute, {:.3e} relative",
            all.worst_error, all.worst_relative
        );
        output
            .warning("cast", &format!("{changed} of {elements} values changed; {}; {error}", lost(&all)))?;
    }
    let worst = casts.iter().filter(|(_, cast)| cast.overflowed + cast.underflowed > 0);
    for (name, cast) in worst.clone().take(SHOWN_CASTS) {
        output
            .warning("cast", &format!("{name}: of {} values, {}", human_count(cast.elements), lost(cast)))?;
    }
    let more = worst.count().saturating_sub(SHOWN_CASTS);
    if more > 0 {
        let more = human_counted(more, "more tensor");
        output.warning(
            "cast",
            &format!("also {more} with values that overflowed or became zero; --json lists all"),
        )?;
    }
    Ok(())
}

/// Describes the output: a file by its name, a folder with a slash and the number of its files.
fn wrote(target: &str, plan: &WritePlan, bytes: u64) -> String {
    let (target, size) = (escape(target), human_bytes(bytes));
    let what = format!("{} {}", plan.format, plan.kind);
    if plan.is_one_file() {
        // A target without an extension looks like a folder.
        let is_bare = target != "-" && Path::new(&target).extension().is_none();
        let word = if is_bare { "the file " } else { "" };
        return format!("wrote {word}{target} ({what}, {size})");
    }
    let count = plan.files.len();
    let files = human_counted(count, "file");
    format!("wrote {}/ ({what}, {files}, {size})", target.trim_end_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weighbridge::plan::FileBuilder;

    fn plan(names: &[&str]) -> WritePlan {
        let files = names.iter().map(|&name| FileBuilder::new(name).finish()).collect();
        WritePlan { format: "paddle", kind: "inference", files, losses: Vec::new() }
    }

    #[test]
    fn folders_have_a_slash_and_a_file_count() {
        let shown = |target: &str, names: &[&str]| wrote(target, &plan(names), 10 << 20);
        assert_eq!(shown("a.npz", &[""]), "wrote a.npz (paddle inference, 10.0 MiB)");
        assert_eq!(shown("out", &["a", "b"]), "wrote out/ (paddle inference, 2 files, 10.0 MiB)");
        assert_eq!(shown("out/", &["a"]), "wrote out/ (paddle inference, 1 file, 10.0 MiB)");
    }
}
