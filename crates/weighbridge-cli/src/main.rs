//! The command `weighbridge`. Glue only: arguments in, the library's reports out.

mod args;
mod output;
mod progress;
mod salvage;
mod several;
mod table;
mod verbs;

use args::{Args, Verb};
use clap::Parser;
use output::Output;
use std::io::Write;
use std::process::ExitCode;
use weighbridge::finding::Verdict;
use weighbridge::{Error, Kind};

/// How the command ended. See `weighbridge --help`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// All went well.
    Done,
    /// Something was found to be wrong.
    Finding,
    /// Nothing wrong was found, but not everything could be looked at.
    CouldNotTell,
    /// Nothing wrong was found, but one of several paths could not be read at all; which was told.
    Failed,
}

impl From<Verdict> for Outcome {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Sound => Self::Done,
            Verdict::Unsound => Self::Finding,
            Verdict::CouldNotTell => Self::CouldNotTell,
        }
    }
}

/// What a verb may end with.
pub(crate) enum Failure {
    /// The library says why.
    Error(Error),
    /// Standard output is gone or full.
    Output(std::io::Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::Output(error)
    }
}

/// A model of thousands of separate files keeps a handle of each, and shells allow 1024 or fewer by
/// default. Where more cannot be had, the first file that is too many says so.
#[cfg(unix)]
fn allow_many_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

#[cfg(not(unix))]
fn allow_many_files() {}

fn main() -> ExitCode {
    allow_many_files();
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => return usage(&error),
    };
    let mut output = Output::new(args.common.json, args.common.color);
    let result = run(&args, &mut output).and_then(|outcome| {
        output.flush()?;
        Ok(outcome)
    });
    match result {
        Ok(outcome) => code(outcome),
        // Whoever read our output has seen enough; what is known by then still counts.
        Err(Failure::Output(e)) if e.kind() == std::io::ErrorKind::BrokenPipe => code(output.outcome),
        Err(Failure::Output(e)) => {
            eprintln!("error[io]: cannot write the output: {e}");
            ExitCode::from(2)
        }
        Err(Failure::Error(error)) => {
            output.error(&error);
            ExitCode::from(if error.kind() == Kind::Cancelled { 130 } else { 2 })
        }
    }
}

fn code(outcome: Outcome) -> ExitCode {
    match outcome {
        Outcome::Done => ExitCode::SUCCESS,
        Outcome::Finding => ExitCode::from(1),
        Outcome::CouldNotTell => ExitCode::from(3),
        Outcome::Failed => ExitCode::from(2),
    }
}

fn run(args: &Args, output: &mut Output) -> Result<Outcome, Failure> {
    let common = &args.common;
    match &args.verb {
        Verb::Info(a) => verbs::info::run(a, common, output),
        Verb::Ls(a) => verbs::ls::run(a, common, output),
        Verb::Show(a) => verbs::show::run(a, common, output),
        Verb::Stats(a) => verbs::stats::run(a, common, output),
        Verb::Convert(a) => verbs::convert::run(a, common, output),
        Verb::Scan(a) => verbs::scan::run(a, common, output),
        Verb::Seal(a) => verbs::seal::run(a, common, output),
        Verb::Diff(a) => verbs::diff::run(a, common, output),
        Verb::Edit(a) => verbs::edit::run(a, common, output),
        Verb::Shard(a) => verbs::shard::run(a, common, output),
        Verb::Merge(a) => verbs::merge::run(a, common, output),
        Verb::Verify(a) => verbs::verify::run(a, common, output),
        Verb::Checkpoint(a) => verbs::checkpoint::run(a, common, output),
        Verb::Program(a) => verbs::program::run(a, common, output),
        Verb::Run(a) => verbs::run::run(a, common, output),
        Verb::Demo(a) => verbs::demo::run(a, common, output),
        Verb::Completions(a) => verbs::generate::completions(a, output),
        Verb::Man(a) => verbs::generate::man(a, output),
    }
}

/// Help and version go to standard output and end well; a slip in the arguments ends with 2, and
/// is JSON where `--json` stands among them.
fn usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    if std::env::args_os().any(|a| a == "--json") {
        let text = error.to_string();
        let mut lines = text.lines().map(str::trim).filter(|l| !l.is_empty());
        let message = lines.next().unwrap_or("bad arguments").trim_start_matches("error: ").to_owned();
        let hint = lines.collect::<Vec<_>>().join(" ");
        let error = Error::usage("bad-arguments", message).hint(hint);
        Output::new(true, args::Color::Never).error(&error);
    } else {
        // Its code stands where it stands in every error.
        let text = error.render().ansi().to_string().replacen("error:", "error[bad-arguments]:", 1);
        anstream::eprint!("{text}");
    }
    ExitCode::from(2)
}
