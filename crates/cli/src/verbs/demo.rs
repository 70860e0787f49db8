//! `demo`: the main job on a model that primitiv trained and that ships inside the command.

use crate::args::{Args, Common, Demo};
use crate::output::{DIM, HEADING, Output};
use crate::{Failure, Outcome};
use clap::Parser;
use serde_json::{Value as Json, json};
use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use weighbridge::engine::{LocalSink, RunOptions, run as run_plan};
use weighbridge::plan::{FileBuilder, WritePlan};
use weighbridge::source::{FileSource, PathKind, Source, read_vec};
use weighbridge::text::{escape, path_text};
use weighbridge::{Error, Result};

/// A network of 2 inputs, 12 and 8 hidden units and 3 outputs, with the state of Adam.
const MODEL: &[u8] = include_bytes!("../../data/trained_mlp_a.model");
/// The optimizer that trained it.
const OPTIMIZER: &[u8] = include_bytes!("../../data/trained_mlp_a.optimizer");

pub(crate) fn run(args: &Demo, common: &Common, output: &mut Output) -> Result<Outcome, Failure> {
    make_folder(&args.folder)?;
    let path = |name: &str| args.folder.join(name);
    let (model, optimizer) = (path("mlp.model"), path("mlp.optimizer"));
    let (safetensors, npz) = (path("mlp.safetensors"), path("mlp.npz"));
    refuse_strangers(&[(&model, MODEL), (&optimizer, OPTIMIZER)], &[&safetensors, &npz])?;
    write(&model, MODEL)?;
    write(&optimizer, OPTIMIZER)?;
    let [model, optimizer, safetensors, npz] =
        [&model, &optimizer, &safetensors, &npz].map(|path| path.as_os_str());
    let word = |word: &'static str| OsStr::new(word);

    let steps: [(&str, Vec<&OsStr>); 7] = [
        ("What is this file?", vec![word("info"), model]),
        ("Its tensors. State of the optimizer stands with its parameter.", vec![word("ls"), model]),
        ("The values of a slice, as numpy prints them.", vec![word("show"), model, word("fc1.w[0:3,:]")]),
        ("How the optimizer was set.", vec![word("info"), optimizer]),
        ("The same network as safetensors ...", vec![word("convert"), model, safetensors, word("--force")]),
        ("... and as numpy's npz.", vec![word("convert"), model, npz, word("--force")]),
        ("Element (i, j) stayed element (i, j):", vec![word("show"), safetensors, word("fc1.w[0:3,:]")]),
    ];
    if common.json {
        return document(&steps, &[model, optimizer, safetensors, npz], output);
    }
    for (title, words) in &steps {
        let shown: Vec<String> = words.iter().map(|word| quote(&text(word))).collect();
        writeln!(output, "{DIM}# {title}{DIM:#}\n{HEADING}$ weighbridge {}{HEADING:#}", shown.join(" "))?;
        run_words(words, output)?;
        writeln!(output)?;
    }
    writeln!(output, "The files are in {}.", escape(&path_text(&args.folder)))?;
    Ok(Outcome::Done)
}

/// The text of a word.
fn text(word: &OsStr) -> String {
    path_text(Path::new(word))
}

/// Runs another verb as if it had been typed.
fn run_words(words: &[&OsStr], output: &mut Output) -> Result<Outcome, Failure> {
    let mut args = Args::try_parse_from([&[OsStr::new("weighbridge")], words].concat())
        .map_err(|e| Error::usage("bad-arguments", e.to_string()))?;
    crate::run(&mut args, output)
}

/// With `--json`: the commands and the files, not what the commands print.
fn document(
    steps: &[(&str, Vec<&OsStr>)],
    files: &[&OsStr],
    output: &mut Output,
) -> Result<Outcome, Failure> {
    for (_, words) in steps.iter().filter(|(_, words)| words[0] == "convert") {
        let mut quiet = Output::discard();
        run_words(words, &mut quiet)?;
    }
    let texts = |words: &[&OsStr]| words.iter().map(|word| text(word)).collect::<Vec<_>>();
    let commands: Json = steps
        .iter()
        .map(|(_, words)| json!([vec!["weighbridge".to_owned()], texts(words)].concat()))
        .collect();
    output.document(&json!({ "commands": commands, "files": texts(files) }))?;
    Ok(Outcome::Done)
}

/// `word` as a shell wants it.
fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-/=".contains(c);
    if word.chars().all(plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', "'\\''")) }
}

/// The folder, made if need be.
#[allow(clippy::disallowed_methods, reason = "the demo's folder is no part of any format")]
fn make_folder(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder)
        .map_err(|e| Error::io("cannot make the folder", e).in_file(path_text(folder)))
}

/// Fails where the folder holds files of these names that no demo wrote: those that it copies must
/// be the same, and those that it converts stand beside them only.
fn refuse_strangers(copied: &[(&PathBuf, &[u8])], converted: &[&PathBuf]) -> Result<()> {
    let exists = |path: &Path| PathKind::of(path).is_ok();
    let is_ours = |path: &Path, bytes: &[u8]| {
        FileSource::open(path).and_then(|f| read_vec(&f, 0, f.len())).is_ok_and(|found| found == bytes)
    };
    let complete = copied.iter().all(|(path, bytes)| is_ours(path, bytes));
    let foreign =
        copied.iter().find(|(path, bytes)| exists(path) && !is_ours(path, bytes)).map(|(path, _)| *path);
    let foreign = foreign.or(converted.iter().copied().find(|path| exists(path) && !complete));
    match foreign {
        None => Ok(()),
        Some(path) => Err(Error::usage("exists", "the demo would replace a file that it did not write")
            .in_file(path_text(path))
            .hint("give a new folder: weighbridge demo FOLDER")),
    }
}

/// Writes bytes as every output is written: staged, then renamed.
fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut builder = FileBuilder::new("");
    builder.literal(bytes);
    let plan =
        WritePlan { format: "primitiv", kind: "demo", files: vec![builder.finish()], losses: Vec::new() };
    run_plan(&plan, &LocalSink::file(path, true)?, &RunOptions::default()).map(|_| ())
}
