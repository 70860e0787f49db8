//! Standard input and output as model files: `-` in place of a path.
//!
//! Formats need places to read and write at, and streams have none: what comes in is spooled to a temporary file, and what
//! goes out is made in one, as a whole or not at all. Memory does not grow with either.
#![allow(clippy::disallowed_types, reason = "the temporary files of streams are no part of any format")]

use crate::args::{Args, Convert, Verb};
use crate::output::Output;
use crate::{Failure, Outcome, progress};
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tempfile::TempDir;
use weighbridge::Error;
use weighbridge::text::path_text;

/// The path that names a standard stream.
const STREAM: &str = "-";
/// The beginning of the name of a temporary folder.
const FOLDER: &str = "weighbridge-stream-";
/// The name of the file in it.
const FILE: &str = "stream";
/// The temporary folders of this process.
static SPOOLS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Puts the path of a temporary file with what standard input holds in place of `-`. The file is removed with the folder
/// that is returned.
///
/// # Errors
/// [`weighbridge::Kind::Usage`], `standard-input`, for a verb that does not read it, and where it is named twice;
/// [`weighbridge::Kind::Io`].
pub(crate) fn spool_input(args: &mut Args) -> Result<Option<TempDir>, Error> {
    let (read, unread) = inputs(&mut args.verb);
    if unread.into_iter().any(|path| path == Path::new(STREAM)) {
        return Err(Error::usage("standard-input", "this verb does not read standard input")
            .hint("give the path of a file"));
    }
    let mut named = read.into_iter().filter(|path| path.as_os_str() == STREAM);
    let Some(path) = named.next() else { return check_target(&args.verb).map(|()| None) };
    if named.next().is_some() {
        return Err(Error::usage("standard-input", "standard input can be read once, and is named twice"));
    }
    let stdin = io::stdin();
    if stdin.is_terminal() {
        return Err(Error::usage("standard-input", "standard input is a terminal")
            .hint("send a file to it: weighbridge info - < net.pt"));
    }
    let folder = folder()?;
    let spool = folder.path().join(FILE);
    let copy = || io::copy(&mut stdin.lock(), &mut File::create(&spool)?);
    copy().map_err(|cause| {
        Error::io("cannot spool standard input", cause)
            .in_file(spool.display())
            .hint("the spool takes as much of the disk as the input is long; TMPDIR names another folder")
    })?;
    *path = spool;
    Ok(Some(folder))
}

/// Fails where a verb that writes files would write one with the name of the stream.
fn check_target(verb: &Verb) -> Result<(), Error> {
    let target = match verb {
        Verb::Edit(a) => a.target.as_deref(),
        Verb::Shard(a) => Some(a.target.as_path()),
        Verb::Merge(a) => Some(a.output.as_path()),
        Verb::Program(a) => a.output.as_deref(),
        _ => None,
    };
    match target {
        Some(target) if target.as_os_str() == STREAM => {
            Err(Error::usage("standard-output", "this verb does not write to standard output")
                .hint("give a path, or convert the result to standard output"))
        }
        _ => Ok(()),
    }
}

/// The paths of a verb that may be standard input, and those that may not.
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
        Verb::Demo(_) | Verb::Completions(_) | Verb::Man(_) => (Vec::new(), Vec::new()),
    }
}

/// True where `path` is that of a temporary file of a stream.
pub(crate) fn is_spool(path: &Path) -> bool {
    let folder = path.parent().and_then(Path::file_name).and_then(|name| name.to_str());
    path.file_name().is_some_and(|name| name == FILE) && folder.is_some_and(|name| name.starts_with(FOLDER))
}

/// The text of a path, and `-` for a stream.
pub(crate) fn shown(path: &Path) -> String {
    if is_spool(path) { STREAM.to_owned() } else { path_text(path) }
}

/// The label of what was read from `path`: `-` for a stream.
pub(crate) fn shown_of(path: &Path, label: String) -> String {
    if is_spool(path) { STREAM.to_owned() } else { label }
}

/// Converts to standard output, where that is the target: in a temporary file first. The report goes to standard error.
/// `None` for any other target.
///
/// # Errors
/// [`weighbridge::Kind::Usage`], `standard-output`, where it is a terminal, not this process's own, or not one file is
/// written; what converting says.
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
        return refuse("standard output has no extension that names a format", "name it with --to");
    }
    if convert.copy_others {
        return refuse("--copy-others writes a folder, which is no stream", "give the name of a folder");
    }
    if !convert.writing.plan && io::stdout().is_terminal() {
        return refuse("standard output is a terminal", "send it to a file or a pipe");
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

/// Runs what writes `file`, and sends the file to standard output.
fn written(
    file: &Path,
    output: &mut Output,
    run: impl FnOnce(&mut Output) -> Result<Outcome, Failure>,
) -> Result<Outcome, Failure> {
    output.use_stderr();
    let outcome = run(output)?;
    if file.is_dir() {
        return Err(Error::usage("standard-output", "this format writes several files, which are no stream")
            .hint("give the name of a folder, or a format of one file")
            .into());
    }
    let open = File::open(file).map_err(|cause| Error::io("cannot read what was written", cause))?;
    let mut stdout = io::stdout().lock();
    io::copy(&mut io::BufReader::new(open), &mut stdout)?;
    stdout.flush()?;
    Ok(outcome)
}

/// A temporary folder. An interruption and the end of the time remove it, too.
fn folder() -> Result<TempDir, Error> {
    progress::handle_interruption();
    let mut spools = spools();
    let folder = tempfile::Builder::new().prefix(FOLDER).tempdir().map_err(|cause| {
        Error::io("cannot make a temporary folder", cause).hint("TMPDIR names the folder for it")
    })?;
    spools.push(folder.path().to_owned());
    Ok(folder)
}

fn spools() -> MutexGuard<'static, Vec<PathBuf>> {
    SPOOLS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// True where a temporary folder was made.
pub(crate) fn has_spools() -> bool {
    !spools().is_empty()
}

/// Removes all temporary folders, before the process ends.
#[allow(clippy::disallowed_methods, reason = "the temporary files of streams are no part of any format")]
pub(crate) fn remove_spools() {
    for folder in spools().drain(..) {
        // What is removed already needs no more.
        let _ = std::fs::remove_dir_all(folder);
    }
}
