//! `run`: runs a Paddle program that saves and loads tensors.

use crate::args::{Common, Run};
use crate::output::{DIM, Output, human_bytes};
use crate::{Failure, Outcome};
use serde_json::{Value as Json, json};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weighbridge::checkpoint::{Checkpoint, TensorEntry, TensorPath};
use weighbridge::engine::{LocalSink, RunOptions};
use weighbridge::formats::paddle::Program;
use weighbridge::formats::paddle::exec::{Done, Executor, Scope, Step};
use weighbridge::formats::registry;
use weighbridge::ops::{ConvertOptions, Inputs, plan_checkpoint, save};
use weighbridge::source::{FileSource, PathKind, SourceRef};
use weighbridge::text::{escape, path_text};
use weighbridge::topology::Topology;
use weighbridge::{Error, OpenOptions, Result};

pub(crate) fn run(args: &Run, common: &Common, output: &mut Output) -> Result<Outcome, Failure> {
    let open = args.input.options()?;
    let (topology, own_folder) = program(&args.path, &open)?;
    let mut executor = Executor::new(args.folder.clone().unwrap_or(own_folder));
    executor.replace = !args.no_replace;
    executor.limits = open.limits.clone();
    executor.rounding = args.rounding;
    executor.memory = args.memory;
    if args.plan {
        return planned(args, &executor, &topology, output);
    }
    if let Some(target) = &args.fetch {
        // Checked before anything runs.
        LocalSink::check(target, executor.replace)?;
        registry().by_extension(target)?;
        inputs(args, &open, &executor, &topology)?.check_apart(target)?;
    }
    let feeds = args.feed.iter().map(|(name, from)| Ok((name.clone(), given(from, &open)?)));
    let feeds = feeds.collect::<Result<Vec<_>>>()?;
    executor.run = RunOptions { progress: common.progress(), ..RunOptions::default() };

    let mut steps = Vec::new();
    let mut written = Ok(());
    let fetched = executor.run_and_tell(&topology, &mut Scope::new(), &feeds, &mut |step, done| {
        if output.json {
            steps.push(step_json(step, done));
        } else if written.is_ok() {
            written = line(step, done, output);
        }
    });
    // Completed steps are printed even if a later one fails.
    written?;
    let fetched = fetched?;
    if let Some(target) = &args.fetch {
        store(&fetched, target, &executor)?;
    }
    if output.json {
        output.document(&json!({
            "path": path_text(&args.path),
            "folder": path_text(&executor.folder),
            "steps": steps,
            "fetched": fetched.iter().map(tensor_json).collect::<Json>(),
            "wrote": args.fetch.as_ref().map(|target| path_text(target)),
        }))?;
        return Ok(Outcome::Done);
    }
    for (name, entry) in &fetched {
        writeln!(output, "fetched {} {} {}", escape(name), entry.dtype(), entry.shape)?;
    }
    if let Some(target) = &args.fetch {
        writeln!(output, "wrote {}", escape(&path_text(target)))?;
    }
    Ok(Outcome::Done)
}

/// Reads the program, and returns it with its folder. For a program file, other files of the folder are not read.
fn program(path: &Path, open: &OpenOptions) -> Result<(Topology, PathBuf)> {
    if PathKind::of(path)? == PathKind::Folder {
        let checkpoint = weighbridge::formats::open_with(path, open)?;
        let topology = weighbridge::ops::program::of(&checkpoint)?;
        return Ok((Topology::clone(topology), path.to_owned()));
    }
    let source: SourceRef = Arc::new(FileSource::open(path)?);
    let topology = Program::read(&source, &open.limits)?.topology();
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    Ok((topology, folder.unwrap_or(Path::new(".")).to_owned()))
}

/// Returns the files to read: the program, the files it loads, and the fed files.
fn inputs(args: &Run, open: &OpenOptions, executor: &Executor, topology: &Topology) -> Result<Inputs> {
    let mut inputs = match (&args.fetch, PathKind::of(&args.path)?) {
        (Some(target), PathKind::Folder) => {
            Inputs::of(&weighbridge::formats::open_with(&args.path, open)?, target).and_named(open)?
        }
        _ => Inputs::default(),
    };
    inputs.add(args.path.clone());
    for read in executor.plan(topology)?.into_iter().filter_map(|step| step.reads) {
        inputs.add(executor.folder.join(read));
    }
    for (_, from) in &args.feed {
        inputs.add(PathBuf::from(from));
        inputs.add(PathBuf::from(from.rsplit_once(':').map_or(from.as_str(), |(file, _)| file)));
    }
    Ok(inputs)
}

fn planned(
    args: &Run,
    executor: &Executor,
    topology: &Topology,
    output: &mut Output,
) -> Result<Outcome, Failure> {
    let steps = executor.plan(topology)?;
    if output.json {
        output.document(&json!({
            "path": path_text(&args.path),
            "folder": path_text(&executor.folder),
            "steps": steps.iter().map(Step::to_json).collect::<Json>(),
        }))?;
    } else {
        for step in &steps {
            writeln!(output, "{step}")?;
        }
    }
    Ok(Outcome::Done)
}

/// Returns the tensor of `FILE` or `FILE:NAME`.
fn given(from: &str, open: &OpenOptions) -> Result<TensorEntry> {
    let (file, name) = match from.rsplit_once(':') {
        Some((file, name)) if PathKind::of(Path::new(from)).is_err() => (file, Some(name)),
        _ => (from, None),
    };
    let checkpoint = weighbridge::formats::open_with(file, open)?;
    match (name, checkpoint.tensors.as_slice()) {
        (Some(name), _) => checkpoint.tensor(name).cloned(),
        (None, [one]) => Ok(one.clone()),
        (None, all) => Err(Error::usage("which-tensor", "the file has more than one tensor")
            .in_file(file)
            .found(format_args!("{} tensors", all.len()))
            .hint("select one: --feed NAME=FILE:TENSOR")),
    }
}

/// Writes the fetched tensors.
fn store(fetched: &[(String, TensorEntry)], target: &Path, executor: &Executor) -> Result<()> {
    let (format, kind) = registry().by_extension(target)?;
    let mut checkpoint = Checkpoint::new("paddle", "combined", path_text(target));
    // Names of variables are written unchanged, so splitting at dots loses nothing.
    let plain = |(name, entry): &(String, TensorEntry)| TensorEntry {
        path: TensorPath::from_dotted(name),
        ..entry.clone()
    };
    checkpoint.tensors = fetched.iter().map(plain).collect();
    let plan = plan_checkpoint(checkpoint, format, Some(kind.to_owned()), &ConvertOptions::default())?;
    save(&plan, target, executor.replace, &executor.run).map(|_| ())
}

fn line(step: &Step, done: Done, output: &mut Output) -> std::io::Result<()> {
    if step.reads.is_none() && step.writes.is_none() {
        return writeln!(output, "{step}");
    }
    writeln!(output, "{step} {DIM}{}{DIM:#}", human_bytes(done.bytes))
}

fn step_json(step: &Step, done: Done) -> Json {
    let mut json = step.to_json();
    if step.reads.is_some() || step.writes.is_some() {
        json["bytes"] = json!(done.bytes);
    }
    json
}

fn tensor_json((name, entry): &(String, TensorEntry)) -> Json {
    json!({ "name": name, "dtype": entry.dtype().name(), "shape": entry.shape.dims() })
}
