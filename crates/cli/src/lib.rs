//! The command `weighbridge`: parses arguments, calls the library and prints its reports.
//!
//! [`command`] is the entry point.

mod args;
mod flags;
mod numpy;
mod output;
mod progress;
mod salvage;
mod several;
mod streams;
mod suggest;
mod table;
mod timeout;
mod verbs;

use args::{Args, Verb};
use clap::Parser;
use flags::flags;
use output::Output;
use std::ffi::OsString;
use std::io::Write;
use std::sync::LazyLock;
use weighbridge::finding::Verdict;
use weighbridge::ops::several::Worst;
use weighbridge::phrase::Worded;
use weighbridge::source::BlockCache;
use weighbridge::{Error, Kind};

/// Outcome of the command, from which the exit code follows. See `weighbridge --help`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Success.
    Done,
    /// A difference, a finding or a lost tensor.
    Finding,
    /// No problem was found, but a part could not be checked.
    CouldNotTell,
    /// No problem was found, but one of several paths could not be read and was reported.
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

impl From<Worst> for Outcome {
    fn from(worst: Worst) -> Self {
        match worst {
            Worst::Sound => Self::Done,
            Worst::Unsound => Self::Finding,
            Worst::CouldNotTell => Self::CouldNotTell,
            Worst::Failed => Self::Failed,
        }
    }
}

/// Failure of a verb.
pub(crate) enum Failure {
    /// An error of the library.
    Error(Error),
    /// Standard output is closed or full.
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

/// Raises the limit of open files to the maximum that the system allows.
///
/// A model of thousands of files keeps a handle of each, and shells allow 1024 or fewer by default.
#[cfg(unix)]
fn allow_many_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

#[cfg(not(unix))]
fn allow_many_files() {}

/// Ignores the signal for files above the size limit of the system, so that writing returns an error instead.
#[cfg(unix)]
fn outlive_limits_of_files() {
    use signal_hook::consts::SIGXFSZ;
    let _ = signal_hook::flag::register(SIGXFSZ, std::sync::Arc::default());
}

#[cfg(not(unix))]
fn outlive_limits_of_files() {}

/// Runs the command and returns the exit code. The first argument is the name of the program.
pub fn command(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    allow_many_files();
    outlive_limits_of_files();
    weighbridge::guard_maps();
    weighbridge::quiet_panics();
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let mut args = match Args::try_parse_from(&arguments) {
        Ok(args) => args,
        Err(error) => return usage(error, &arguments),
    };
    timeout::start(&args.common);
    let mut output = Output::new(args.common.json, args.common.color);
    let result = run(&mut args, &mut output).and_then(|outcome| {
        output.flush()?;
        Ok(outcome)
    });
    match result {
        Ok(outcome) => code(outcome),
        // A closed pipe is not an error: the outcome so far counts.
        Err(Failure::Output(e)) if e.kind() == std::io::ErrorKind::BrokenPipe => code(output.outcome),
        Err(Failure::Output(e)) => {
            eprintln!("error: cannot write the output: {e}");
            2
        }
        Err(Failure::Error(error)) => {
            let error = suggest::with_similar_files(timeout::explain(error, &args.common)).worded(&flags);
            output.error(&error);
            if error.kind() == Kind::Cancelled { 130 } else { 2 }
        }
    }
}

/// Returns the block cache that all files of this process share.
pub fn block_cache() -> BlockCache {
    static CACHE: LazyLock<BlockCache> = LazyLock::new(BlockCache::new);
    CACHE.clone()
}

fn code(outcome: Outcome) -> u8 {
    match outcome {
        Outcome::Done => 0,
        Outcome::Finding => 1,
        Outcome::CouldNotTell => 3,
        Outcome::Failed => 2,
    }
}

fn run(args: &mut Args, output: &mut Output) -> Result<Outcome, Failure> {
    let _spool = streams::spool_input(args)?;
    let convert = |convert: &args::Convert, args: &Args, output: &mut Output| {
        verbs::convert::run(convert, &args.common, output)
    };
    if let Some(outcome) = streams::convert(args, output, convert) {
        return outcome;
    }
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
        Verb::Import(a) => verbs::import::run(a, common, output),
        Verb::Checkpoint(a) => verbs::checkpoint::run(a, common, output),
        Verb::Program(a) => verbs::program::run(a, common, output),
        Verb::Run(a) => verbs::run::run(a, common, output),
        Verb::Evaluate(a) => verbs::evaluate::run(a, common, output),
        Verb::Neighbors(a) => verbs::neighbors::run(a, common, output),
        #[cfg(feature = "usearch")]
        Verb::Index(a) => verbs::index::run(a, common, output),
        Verb::Rank(a) => verbs::rank::run(a, common, output),
        Verb::Demo(a) => verbs::demo::run(a, common, output),
        Verb::Completions(a) => verbs::generate::completions(a, output),
        Verb::Man(a) => verbs::generate::man(a, output),
    }
}

/// Prints help, version or an argument error; returns the exit code. With `--json`, errors are JSON.
fn usage(error: clap::Error, arguments: &[OsString]) -> u8 {
    if !error.use_stderr() {
        let _ = error.print();
        return 0;
    }
    let error = suggest::with_tip(error, arguments);
    let is_json = arguments.iter().any(|a| a == "--json");
    if let Some(error) = suggest::missing_verb(&error) {
        Output::new(is_json, args::Color::Auto).error(&error);
    } else if is_json {
        Output::new(true, args::Color::Never).error(&bad_arguments(&error));
    } else {
        // Shows the code as in every other error.
        let text = error.render().ansi().to_string().replacen("error:", "error[bad-arguments]:", 1);
        anstream::eprint!("{text}");
    }
    2
}

/// Converts an argument error of the parser to an error of the library.
fn bad_arguments(error: &clap::Error) -> Error {
    let text = error.to_string();
    let mut lines = text.lines().map(str::trim).filter(|l| !l.is_empty());
    let mut message = lines.next().unwrap_or("bad arguments").trim_start_matches("error: ").to_owned();
    let mut lines = lines.peekable();
    // Names of missing arguments are on the following lines.
    while message.ends_with([':', ',']) {
        let Some(line) = lines.next_if(|line| !line.starts_with("Usage:")) else { break };
        message = format!("{message} {line}");
        if lines.peek().is_some_and(|next| next.starts_with(['-', '<'])) {
            message.push(',');
        }
    }
    let hint = lines.collect::<Vec<_>>().join(" ");
    Error::usage("bad-arguments", message).hint(hint)
}
