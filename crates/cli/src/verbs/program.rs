//! `program`: the program that a model brings along: shown, stripped, renamed.

use crate::args::{Common, Program, StripPart};
use crate::flags::flags;
use crate::output::{Output, human_bytes, human_counted};
use crate::{Failure, Outcome};
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use weighbridge::checkpoint::Checkpoint;
use weighbridge::engine::{LocalSink, RunOptions};
use weighbridge::formats::paddle::{self, Strip, StripReport};
use weighbridge::formats::{by_extension, by_id};
use weighbridge::ops::program::{self, listing, summary, to_dot};
use weighbridge::ops::{ConvertOptions, Inputs, plan_checkpoint, save};
use weighbridge::phrase::Worded;
use weighbridge::plan::{FileBuilder, WritePlan};
use weighbridge::source::real_path;
use weighbridge::text::{escape, path_text};
use weighbridge::topology::Topology;

pub(crate) fn run(args: &Program, common: &Common, output: &mut Output) -> Result<Outcome, Failure> {
    let mut checkpoint = weighbridge::open_with(&args.path, &args.input.options()?)?;
    if let Some(target) = &args.output {
        return rewrite(&mut checkpoint, target, args, common, output);
    }
    let form = written_form(args);
    let topology = program::of(&checkpoint)?;
    if output.json {
        let mut document = json!({
            "path": checkpoint.label,
            "format": checkpoint.format,
            "kind": checkpoint.kind,
            "summary": summary(topology).to_json(),
            "program": program::to_json(topology),
        });
        if let Some(form) = form {
            document["text"] = json!(form(topology)?);
        }
        output.document(&document)?;
    } else {
        let text = match form {
            Some(form) => form(topology)?,
            None => summary(topology).to_string(),
        };
        write!(output, "{text}")?;
    }
    Ok(Outcome::Done)
}

/// How the program is to be shown, where more than its summary is asked for.
fn written_form(args: &Program) -> Option<fn(&Topology) -> weighbridge::Result<String>> {
    if args.list {
        Some(|topology| Ok(listing(topology).to_string()))
    } else if args.dot {
        Some(|topology| Ok(to_dot(topology).to_string()))
    } else if args.text {
        Some(|topology| paddle::Program::of(topology)?.to_text())
    } else {
        None
    }
}

/// Changes the program and writes it with its parameters.
fn rewrite(
    checkpoint: &mut Checkpoint,
    target: &Path,
    args: &Program,
    common: &Common,
    output: &mut Output,
) -> Result<Outcome, Failure> {
    LocalSink::check(target, args.force)?;
    program::of(checkpoint)?;
    let inputs = Inputs::of(checkpoint, target).and_named(&args.input.options()?)?;
    let tensors = checkpoint.tensors.len();
    let names: BTreeMap<String, String> = args.rename.iter().cloned().collect();
    if !names.is_empty() {
        paddle::rename(checkpoint, &names)?;
    }
    let what = parts(args);
    let report = if what.is_nothing() { StripReport::default() } else { paddle::strip(checkpoint, &what)? };
    let removed = tensors - checkpoint.tensors.len();
    if let Some(form) = written_form(args) {
        // The changed program as text, not the model.
        let mut file = FileBuilder::new("");
        file.literal(form(program::of(checkpoint)?)?);
        let plan =
            WritePlan { format: "text", kind: "program", files: vec![file.finish()], losses: Vec::new() };
        inputs.check_apart(target)?;
        let written = save(&plan, target, args.force, &RunOptions::default())?;
        let shown = escape(&path_text(target));
        if output.json {
            output.document(
                &json!({ "path": path_text(target), "format": "text", "kind": "program", "bytes": written.bytes }),
            )?;
        } else {
            writeln!(output, "wrote {shown} ({})", human_bytes(written.bytes))?;
        }
        return Ok(Outcome::Done);
    }
    // The name says whether the program alone is wanted.
    let kind =
        by_extension(target).ok().map(|(_, kind)| kind.to_owned()).or_else(|| alone(checkpoint, target));
    let kind = kind.or_else(|| for_inference(checkpoint, &what));
    let options = ConvertOptions {
        settings: args.set.clone(),
        force: args.force,
        run: RunOptions { watch: common.watch(), ..RunOptions::default() },
        ..ConvertOptions::default()
    };
    let plan = plan_checkpoint(checkpoint.clone(), by_id("paddle")?, kind, &options)?.worded(&flags);
    // A program in its own place, where what stands beside it fits it as before.
    let fits = names.is_empty() && removed == 0 && report.variables.is_empty();
    if !fits || real_path(&args.path) != real_path(target) {
        inputs.check(&args.path, target, &plan)?;
    }
    let written = save(&plan, target, args.force, &options.run)?;
    drop(options);
    if output.json {
        output.document(&json!({
            "path": path_text(target),
            "format": plan.format,
            "kind": plan.kind,
            "bytes": written.bytes,
            "files": plan.files.iter().map(|f| json!({ "name": f.name, "bytes": f.len })).collect::<Json>(),
            "removed": {
                "attributes": report.attributes,
                "attribute_bytes": report.attribute_bytes,
                "operators": report.operators,
                "variables": report.variables,
                "tensors": removed,
            },
            "losses": plan.losses.iter().map(weighbridge::checkpoint::Loss::to_json).collect::<Json>(),
        }))?;
        return Ok(Outcome::Done);
    }
    checkpoint.word(&flags);
    output.warn_of(&checkpoint.notes)?;
    output.losses(&plan.losses)?;
    if !what.is_nothing() {
        writeln!(
            output,
            "took out {} ({}), {}, {}, {}",
            human_counted(report.attributes, "attribute"),
            human_bytes(report.attribute_bytes),
            human_counted(report.operators, "operator"),
            human_counted(report.variables.len(), "variable"),
            human_counted(removed, "tensor")
        )?;
    }
    let shown = escape(&path_text(target));
    writeln!(output, "wrote {shown} ({} {}, {})", plan.format, plan.kind, human_bytes(written.bytes))?;
    Ok(Outcome::Done)
}

/// A program without tensors is a file; and a target that ends in `.json` is one too.
fn alone(checkpoint: &Checkpoint, target: &Path) -> Option<String> {
    let json = target.extension().is_some_and(|e| e == "json");
    let lone = matches!(checkpoint.kind, "program" | "pir");
    let pir = checkpoint.topology.as_ref().is_some_and(|t| t.form == paddle::FORM_PIR);
    (lone || json).then(|| if pir { "pir" } else { "program" }.to_owned())
}

/// A model that was stripped of its training and has outputs is one for inference.
fn for_inference(checkpoint: &Checkpoint, what: &Strip) -> Option<String> {
    let outputs = checkpoint.topology.as_ref().is_some_and(|t| !t.fetches.is_empty());
    (what.training && outputs && checkpoint.kind == "training").then(|| "inference".to_owned())
}

fn parts(args: &Program) -> Strip {
    let has = |part: StripPart| args.strip.contains(&part) || args.strip.contains(&StripPart::All);
    Strip {
        source: has(StripPart::Source),
        training: has(StripPart::Training),
        gradients: has(StripPart::Gradients),
        state: has(StripPart::State),
        unused: has(StripPart::Unused),
        outputs: args.outputs.clone(),
    }
}
