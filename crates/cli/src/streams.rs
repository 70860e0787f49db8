//! Standard input and output as model files: `-` instead of a path.
//!
//! Formats read and write at offsets, which streams do not support. Input is spooled to a temporary file, and output is
//! written to a temporary file first. Memory does not grow with either.
#![allow(clippy::disallowed_types, reason = "temporary files of streams do not belong to a format")]

use crate::args::{Args, Convert, Verb};
use crate::output::Output;
use crate::{Failure, Outcome, progress};
use serde_json::Value as Json;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tempfile::TempDir;
use weighbridge::Error;
use weighbridge::plan::WritePlan;
use weighbridge::text::path_text;

/// The path that names a standard stream.
const STREAM: &str = "-";
/// Prefix of the names of temporary folders.
const FOLDER: &str = "weighbridge-stream-";
/// Name of the file in a temporary folder.
const FILE: &str = "stream";
/// Temporary folders of this process.
static SPOOLS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Spools standard input to a temporary file and replaces `-` by its path. Dropping the returned folder removes the file.
///
/// # Errors
/// [`weighbridge::Kind::Usage`], `standard-input`, for a verb that does not read it, and for a second `-`;
/// [`weighbridge::Kind::Io`].
pub(crate) fn spool_input(args: &mut Args) -> Result<Option<TempDir>, Error> {
    let verb = name(&args.verb);
    let (read, unread) = inputs(&mut args.verb);
    if unread.into_iter().any(|path| path == Path::new(STREAM)) {
        return Err(Error::usage("standard-input", format!("`{verb}` cannot read standard input"))
            .hint("pass the path of a file"));
    }
    let mut named = read.into_iter().filter(|path| path.as_os_str() == STREAM);
    let Some(path) = named.next() else { return check_target(&args.verb).map(|()| None) };
    if named.next().is_some() {
        return Err(Error::usage("standard-input", "standard input is given more than once"));
    }
    let stdin = io::stdin();
    if stdin.is_terminal() {
        return Err(Error::usage("standard-input", "standard input is a terminal")
            .hint("redirect a file to it: weighbridge info - < model.pt"));
    }
    let folder = folder()?;
    let spool = folder.path().join(FILE);
    let copy = || io::copy(&mut stdin.lock(), &mut File::create(&spool)?);
    copy().map_err(|cause| {
        Error::io("cannot write standard input to a temporary file", cause)
            .in_file(folder.path().display())
            .hint("the temporary file is as large as the input; TMPDIR selects another folder for it")
    })?;
    *path = spool;
    Ok(Some(folder))
}

/// Refuses `-` as the target of a verb other than `convert`.
fn check_target(verb: &Verb) -> Result<(), Error> {
    let target = match verb {
        Verb::Edit(a) => a.target.as_deref(),
        Verb::Shard(a) => Some(a.target.as_path()),
        Verb::Merge(a) => Some(a.output.as_path()),
        Verb::Program(a) => a.output.as_deref(),
        #[cfg(feature = "usearch")]
        Verb::Index(a) => Some(a.output.as_path()),
        _ => None,
    };
    match target {
        Some(target) if target.as_os_str() == STREAM => {
            let text = format!("`{}` cannot write to standard output", name(verb));
            Err(Error::usage("standard-output", text)
                .hint("pass a path, or use `convert` to write to standard output"))
        }
        _ => Ok(()),
    }
}

/// Returns the name of a verb that does not read or write a standard stream.
fn name(verb: &Verb) -> &'static str {
    match verb {
        Verb::Seal(_) => "seal",
        Verb::Edit(_) => "edit",
        Verb::Shard(_) => "shard",
        Verb::Merge(_) => "merge",
        Verb::Program(_) => "program",
        Verb::Checkpoint(_) => "checkpoint",
        Verb::Run(_) => "run",
        Verb::Import(_) => "import",
        Verb::Evaluate(_) => "evaluate",
        Verb::Rank(_) => "rank",
        #[cfg(feature = "usearch")]
        Verb::Index(_) => "index",
        _ => "this verb",
    }
}

/// Returns the paths of a verb that may be standard input, and the paths that may not.
fn inputs(verb: &mut Verb) -> (Vec<&mut PathBuf>, Vec<&Path>) {
    match verb {
        Verb::Info(a) => (a.paths.iter_mut().collect(), Vec::new()),
        Verb::Ls(a) => (a.paths.iter_mut().collect(), Vec::new()),
        Verb::Stats(a) => (a.paths.iter_mut().collect(), Vec::new()),
        Verb::Show(a) => (vec![&mut a.path], Vec::new()),
        Verb::Convert(a) => (vec![&mut a.source], Vec::new()),
        Verb::Diff(a) => (vec![&mut a.left, &mut a.right], Vec::new()),
        Verb::Verify(a) => (a.paths.iter_mut().collect(), Vec::new()),
        Verb::Scan(a) => (a.paths.iter_mut().collect(), Vec::new()),
        Verb::Seal(a) => (Vec::new(), vec![a.path.as_path()]),
        Verb::Edit(a) => (Vec::new(), vec![a.source.as_path()]),
        Verb::Shard(a) => (Vec::new(), vec![a.source.as_path()]),
        Verb::Merge(a) => (Vec::new(), a.sources.iter().map(PathBuf::as_path).collect()),
        Verb::Program(a) => (Vec::new(), vec![a.path.as_path()]),
        Verb::Checkpoint(a) => (Vec::new(), vec![a.path.as_path()]),
        Verb::Run(a) => (Vec::new(), vec![a.path.as_path()]),
        Verb::Import(a) => (Vec::new(), a.inputs.iter().map(Path::new).collect()),
        Verb::Evaluate(a) => {
            let lists = a.candidates.iter().map(|(_, file)| file);
            let others = a.filter.iter().chain([&a.edges]).chain(lists).map(PathBuf::as_path);
            (Vec::new(), others.chain([a.path.as_path()]).collect())
        }
        Verb::Neighbors(a) => (std::iter::once(&mut a.path).chain(&mut a.queries).collect(), Vec::new()),
        Verb::Rank(a) => (Vec::new(), vec![a.path.as_path()]),
        #[cfg(feature = "usearch")]
        Verb::Index(a) => (vec![&mut a.path], Vec::new()),
        Verb::Demo(_) | Verb::Completions(_) | Verb::Man(_) => (Vec::new(), Vec::new()),
    }
}

/// Returns true if `path` is a temporary file of a stream.
pub(crate) fn is_spool(path: &Path) -> bool {
    let folder = path.parent().and_then(Path::file_name).and_then(|name| name.to_str());
    path.file_name().is_some_and(|name| name == FILE) && folder.is_some_and(|name| name.starts_with(FOLDER))
}

/// Returns the text of a path, `-` for a stream.
pub(crate) fn shown(path: &Path) -> String {
    if is_spool(path) { STREAM.to_owned() } else { path_text(path) }
}

/// Returns the label of a source at `path`, `-` for a stream.
pub(crate) fn shown_of(path: &Path, label: String) -> String {
    if is_spool(path) { STREAM.to_owned() } else { label }
}

/// Replaces the paths of temporary files in a text by `-`.
pub(crate) fn without_spools(text: &str) -> String {
    let replace = |text: String, folder: &PathBuf| text.replace(&path_text(&folder.join(FILE)), STREAM);
    spools().iter().fold(text.to_owned(), replace)
}

/// Replaces the paths of temporary files in a JSON object by `-`.
pub(crate) fn hide_spools(json: &mut Json) {
    match json {
        Json::String(text) => *text = without_spools(text),
        Json::Object(fields) => fields.values_mut().for_each(hide_spools),
        _ => {}
    }
}

/// Fails if a plan for standard output has several files.
///
/// # Errors
/// [`weighbridge::Kind::Usage`], `standard-output`.
pub(crate) fn check_plan(target: &Path, plan: &WritePlan) -> Result<(), Error> {
    if !is_spool(target) || plan.is_one_file() {
        return Ok(());
    }
    let text = format!("{} {} has several files; standard output holds one", plan.format, plan.kind);
    Err(Error::usage("standard-output", text)
        .hint("pass the path of a folder, or select a format of one file"))
}

/// Converts to standard output through a temporary file, with the report on standard error. Returns `None` for any other
/// target.
///
/// # Errors
/// [`weighbridge::Kind::Usage`], `standard-output`, for a terminal and for formats of several files; errors of the conversion.
pub(crate) fn convert(
    args: &mut Args,
    output: &mut Output,
    run: impl Fn(&Convert, &Args, &mut Output) -> Result<Outcome, Failure>,
) -> Option<Result<Outcome, Failure>> {
    let Verb::Convert(convert) = &mut args.verb else { return None };
    if convert.target.as_os_str() != STREAM {
        return None;
    }
    let refuse = |text: &str, hint: &str| {
        Some(Err(Error::usage("standard-output", text).hint(hint.to_owned()).into()))
    };
    if convert.writing.to.is_none() {
        return refuse("the format of standard output is missing", "select it with --to FORMAT");
    }
    if convert.copy_others {
        return refuse("--copy-others needs a folder as the target", "pass the path of a folder");
    }
    if !convert.writing.plan && io::stdout().is_terminal() {
        return refuse("standard output is a terminal", "redirect it to a file or a pipe");
    }
    let folder = match folder() {
        Ok(folder) => folder,
        Err(error) => return Some(Err(error.into())),
    };
    let file = folder.path().join(FILE);
    convert.target.clone_from(&file);
    let args = &*args;
    let Verb::Convert(convert) = &args.verb else { return None };
    if convert.writing.plan {
        return Some(run(convert, args, output));
    }
    Some(written(&file, output, |output| run(convert, args, output)))
}

/// Runs a conversion that writes `file`, and copies the file to standard output.
fn written(
    file: &Path,
    output: &mut Output,
    run: impl FnOnce(&mut Output) -> Result<Outcome, Failure>,
) -> Result<Outcome, Failure> {
    output.use_stderr();
    let outcome = run(output)?;
    let open = File::open(file).map_err(|cause| Error::io("cannot read the temporary file", cause))?;
    let mut stdout = io::stdout().lock();
    let copy = || {
        io::copy(&mut io::BufReader::new(open), &mut stdout)?;
        stdout.flush()
    };
    // The report is of a written output.
    copy().inspect_err(|_| output.clear())?;
    Ok(outcome)
}

/// Creates a temporary folder, which cancellation and timeout remove too.
fn folder() -> Result<TempDir, Error> {
    progress::handle_interruption();
    let mut spools = spools();
    let folder = tempfile::Builder::new().prefix(FOLDER).tempdir().map_err(|cause| {
        Error::io("cannot create a temporary folder", cause).hint("TMPDIR selects the folder for it")
    })?;
    spools.push(folder.path().to_owned());
    Ok(folder)
}

fn spools() -> MutexGuard<'static, Vec<PathBuf>> {
    SPOOLS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns true if there are temporary folders.
pub(crate) fn has_spools() -> bool {
    !spools().is_empty()
}

/// Removes all temporary folders before the process ends.
#[allow(clippy::disallowed_methods, reason = "temporary files of streams do not belong to a format")]
pub(crate) fn remove_spools() {
    for folder in spools().drain(..) {
        // The folder may be gone already.
        let _ = std::fs::remove_dir_all(folder);
    }
}
