//! `program`: the program (graph) of a Paddle model: show, strip, rename.

use crate::args::{Common, Program, StripPart};
use crate::flags::flags;
use crate::output::{Output, human_bytes, human_counted};
use crate::{Failure, Outcome};
use std::io::Write;
use std::path::Path;
use weighbridge::checkpoint::Checkpoint;
use weighbridge::engine::RunOptions;
use weighbridge::formats::paddle::Strip;
use weighbridge::ops::program::{self, Form, Removed, RewriteOptions, document, summary};
use weighbridge::phrase::Worded;
use weighbridge::text::escape;

pub(crate) fn run(args: &Program, common: &Common, output: &mut Output) -> Result<Outcome, Failure> {
    let mut checkpoint = weighbridge::formats::open_with(&args.path, &args.input.options()?)?;
    if let Some(target) = &args.output {
        return rewrite(&mut checkpoint, target, args, common, output);
    }
    let form = form(args);
    if output.json {
        output.document(&document(&checkpoint, form)?)?;
    } else {
        let topology = program::of(&checkpoint)?;
        let text = match form {
            Some(form) => form.of(topology)?,
            None => summary(topology).to_string(),
        };
        write!(output, "{text}")?;
    }
    Ok(Outcome::Done)
}

/// Returns the form to print; `None` for the summary.
fn form(args: &Program) -> Option<Form> {
    let forms = [
        (args.list, Form::List),
        (args.dot, Form::Dot),
        (args.text, Form::Text),
        (args.ops, Form::Operators),
    ];
    forms.into_iter().find(|(is_asked, _)| *is_asked).map(|(_, form)| form)
}

/// Changes the program and writes it with the parameters.
fn rewrite(
    checkpoint: &mut Checkpoint,
    target: &Path,
    args: &Program,
    common: &Common,
    output: &mut Output,
) -> Result<Outcome, Failure> {
    let options = RewriteOptions {
        names: args.rename.iter().cloned().collect(),
        strip: parts(args),
        form: form(args),
        settings: args.set.clone(),
        force: args.force,
        open: args.input.options()?,
        run: RunOptions { progress: common.progress(), ..RunOptions::default() },
    };
    let written = program::rewrite(checkpoint, &args.path, target, &options)?.worded(&flags);
    let strips = !options.strip.is_nothing();
    drop(options);
    if output.json {
        output.document(&written.to_json())?;
        return Ok(Outcome::Done);
    }
    let (shown, size) = (escape(&written.target), human_bytes(written.bytes));
    let Some(Removed { program, tensors }) = &written.removed else {
        writeln!(output, "wrote {shown} ({size})")?;
        return Ok(Outcome::Done);
    };
    checkpoint.word(&flags);
    output.warn_of(&checkpoint.notes)?;
    output.losses(&written.plan.losses)?;
    if strips {
        writeln!(
            output,
            "removed {} ({}), {}, {}, {}",
            human_counted(program.attributes, "attribute"),
            human_bytes(program.attribute_bytes),
            human_counted(program.operators, "operator"),
            human_counted(program.variables.len(), "variable"),
            human_counted(*tensors, "tensor")
        )?;
    }
    writeln!(output, "wrote {shown} ({} {}, {size})", written.plan.format, written.plan.kind)?;
    Ok(Outcome::Done)
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
