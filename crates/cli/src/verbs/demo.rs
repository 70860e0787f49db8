//! `demo`: the main verbs on small models that ship with the command.

use crate::args::{Args, Common, Demo};
use crate::output::{DIM, HEADING, Output};
use crate::{Failure, Outcome};
use clap::Parser;
use serde_json::{Value as Json, json};
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::Path;
use weighbridge::engine::{LocalSink, RunOptions, run as run_plan};
use weighbridge::plan::{FileBuilder, WritePlan};
use weighbridge::source::{FileSource, PathKind, Source, read_vec};
use weighbridge::text::{escape, path_text};
use weighbridge::{Error, Result};

/// Files of the demo, by their path in its folder.
const FILES: [(&str, &[u8]); 10] = [
    ("model.pt", include_bytes!("../../data/model.pt")),
    ("mlp.model", include_bytes!("../../data/mlp.model")),
    ("paddle/model.pdmodel", include_bytes!("../../data/paddle/model.pdmodel")),
    ("paddle/model.pdiparams", include_bytes!("../../data/paddle/model.pdiparams")),
    ("graph/model/checkpoint_version.txt", include_bytes!("../../data/graph/model/checkpoint_version.txt")),
    ("graph/model/config.json", include_bytes!("../../data/graph/model/config.json")),
    ("graph/model/embeddings_n_0.v1.h5", include_bytes!("../../data/graph/model/embeddings_n_0.v1.h5")),
    ("graph/model/model.v1.h5", include_bytes!("../../data/graph/model/model.v1.h5")),
    (
        "graph/weighted/entities/entity_count_n_0.txt",
        include_bytes!("../../data/graph/weighted/entities/entity_count_n_0.txt"),
    ),
    (
        "graph/weighted/entities/entity_names_n_0.json",
        include_bytes!("../../data/graph/weighted/entities/entity_names_n_0.json"),
    ),
];

/// File that the demo converts to.
const CONVERTED: &str = "model.safetensors";

/// Commands of the demo: a title, a verb, arguments that are paths in the folder, and other arguments.
const STEPS: [(&str, &[Word]); 9] = [
    ("A PyTorch file: format, size and parameters.", &[Verb("info"), File("model.pt")]),
    ("Its tensors.", &[Verb("ls"), File("model.pt")]),
    ("A slice of one tensor.", &[Verb("show"), File("model.pt"), Verb("fc.weight[0:3,0:6]")]),
    ("Would loading it in Python run code?", &[Verb("scan"), File("model.pt")]),
    ("Convert it to safetensors ...", &[Verb("convert"), File("model.pt"), File(CONVERTED), Verb("--force")]),
    ("... and compare both files.", &[Verb("diff"), File("model.pt"), File(CONVERTED)]),
    ("A primitiv model with the state of its optimizer.", &[Verb("ls"), File("mlp.model")]),
    ("A PaddlePaddle model: program and parameters, with names.", &[Verb("ls"), File("paddle")]),
    (
        "A row of a PyTorch-BigGraph embedding table, by the name of its entity.",
        &[Verb("show"), File("graph/model"), Verb("embeddings.n['n3']")],
    ),
];

/// Argument of a command.
enum Word {
    /// A path in the folder of the demo.
    File(&'static str),
    /// A verb, an option or a tensor name.
    Verb(&'static str),
}
use Word::{File, Verb};

pub(crate) fn run(args: &Demo, common: &Common, output: &mut Output) -> Result<Outcome, Failure> {
    make_folder(&args.folder)?;
    refuse_foreign_files(&args.folder)?;
    for (name, bytes) in FILES {
        let path = args.folder.join(name);
        path.parent().map_or(Ok(()), make_folder)?;
        write(&path, bytes)?;
    }
    let steps = STEPS.map(|(title, words)| {
        let words = words.iter().map(|word| match word {
            File(name) => args.folder.join(name).into_os_string(),
            Verb(word) => OsString::from(word),
        });
        (title, words.collect::<Vec<_>>())
    });
    if common.json {
        return document(args, &steps, output);
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

/// Returns an argument as text.
fn text(word: &OsStr) -> String {
    path_text(Path::new(word))
}

/// Runs a command line.
fn run_words(words: &[OsString], output: &mut Output) -> Result<Outcome, Failure> {
    let mut args = Args::try_parse_from([&["weighbridge".into()], words].concat())
        .map_err(|e| Error::usage("bad-arguments", e.to_string()))?;
    crate::run(&mut args, output)
}

/// Prints the commands and files as JSON, and runs the conversion.
fn document(args: &Demo, steps: &[(&str, Vec<OsString>)], output: &mut Output) -> Result<Outcome, Failure> {
    for (_, words) in steps.iter().filter(|(_, words)| words[0] == "convert") {
        run_words(words, &mut Output::discard())?;
    }
    let commands: Json = steps
        .iter()
        .map(|(_, words)| {
            let words = words.iter().map(|word| text(word));
            json!(std::iter::once("weighbridge".to_owned()).chain(words).collect::<Vec<_>>())
        })
        .collect();
    let names = FILES.iter().map(|(name, _)| *name).chain([CONVERTED]);
    let files: Json = names.map(|name| json!(path_text(&args.folder.join(name)))).collect();
    output.document(&json!({ "commands": commands, "files": files }))?;
    Ok(Outcome::Done)
}

/// Quotes an argument for a shell.
fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-/=".contains(c);
    if word.chars().all(plain) {
        word.to_owned()
    } else if word.contains('\'') && !word.contains(['"', '$', '`', '\\', '!']) {
        format!("\"{word}\"")
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// Creates the folder if it does not exist.
#[allow(clippy::disallowed_methods, reason = "the folder of the demo does not belong to a format")]
fn make_folder(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder)
        .map_err(|e| Error::io("cannot create the folder", e).in_file(path_text(folder)))
}

/// Refuses a folder with files of the same names that are not from the demo.
fn refuse_foreign_files(folder: &Path) -> Result<()> {
    let exists = |path: &Path| PathKind::of(path).is_ok();
    let is_own = |(name, bytes): &(&str, &[u8])| {
        FileSource::open(folder.join(name))
            .and_then(|file| read_vec(&file, 0, file.len()))
            .is_ok_and(|found| found == *bytes)
    };
    let is_foreign = |file: &&(&str, &[u8])| exists(&folder.join(file.0)) && !is_own(file);
    let foreign = FILES.iter().find(is_foreign).map(|(name, _)| *name);
    // The converted file is from a demo if the other files are there.
    let converted = || exists(&folder.join(CONVERTED)) && !FILES.iter().all(is_own);
    match foreign.or_else(|| converted().then_some(CONVERTED)) {
        None => Ok(()),
        Some(name) => Err(Error::usage("exists", "the demo would replace a file that it did not write")
            .in_file(path_text(&folder.join(name)))
            .hint("pass another folder: weighbridge demo FOLDER")),
    }
}

/// Writes a file through the engine: staged, then renamed.
fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut builder = FileBuilder::new("");
    builder.literal(bytes);
    let plan =
        WritePlan { format: "primitiv", kind: "demo", files: vec![builder.finish()], losses: Vec::new() };
    run_plan(&plan, &LocalSink::file(path, true)?, &RunOptions::default()).map(|_| ())
}
