//! The command `weighbridge`: arguments in, the library's reports out.
//!
//! [`command`] is the whole of it, as a program runs it.

mod args;
mod flags;
mod numpy;
mod output;
mod progress;
mod salvage;
mod several;
mod streams;
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

/// Where a file would be longer than the system allows, writing it fails: an error that says so. Unheard, the signal for
/// it would end the process.
#[cfg(unix)]
fn outlive_limits_of_files() {
    use signal_hook::consts::SIGXFSZ;
    let _ = signal_hook::flag::register(SIGXFSZ, std::sync::Arc::default());
}

#[cfg(not(unix))]
fn outlive_limits_of_files() {}

/// Runs the command with these arguments, of which the first is its own name, on the process's standard streams. Returns
/// the exit code.
pub fn command(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    allow_many_files();
    outlive_limits_of_files();
    weighbridge::guard_maps();
    weighbridge::quiet_panics();
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let mut args = match Args::try_parse_from(&arguments) {
        Ok(args) => args,
        Err(error) => return usage(&error, &arguments),
    };
    timeout::start(&args.common);
    let mut output = Output::new(args.common.json, args.common.color);
    let result = run(&mut args, &mut output).and_then(|outcome| {
        output.flush()?;
        Ok(outcome)
    });
    match result {
        Ok(outcome) => code(outcome),
        // Whoever read our output has seen enough; what is known by then still counts.
        Err(Failure::Output(e)) if e.kind() == std::io::ErrorKind::BrokenPipe => code(output.outcome),
        Err(Failure::Output(e)) => {
            eprintln!("error: cannot write the output: {e}");
            2
        }
        Err(Failure::Error(error)) => {
            let error = timeout::explain(error, &args.common).worded(&flags);
            output.error(&error);
            if error.kind() == Kind::Cancelled { 130 } else { 2 }
        }
    }
}

/// The cache of unpacked blocks that all files of this process share: one bound, however many files are open.
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
fn usage(error: &clap::Error, arguments: &[OsString]) -> u8 {
    if !error.use_stderr() {
        let _ = error.print();
        return 0;
    }
    if arguments.iter().any(|a| a == "--json") {
        Output::new(true, args::Color::Never).error(&bad_arguments(error));
    } else {
        // Its code stands where it stands in every error.
        let text = error.render().ansi().to_string().replacen("error:", "error[bad-arguments]:", 1);
        anstream::eprint!("{text}");
    }
    2
}

/// A slip in the arguments, as the library tells errors.
fn bad_arguments(error: &clap::Error) -> Error {
    let text = error.to_string();
    let mut lines = text.lines().map(str::trim).filter(|l| !l.is_empty());
    let mut message = lines.next().unwrap_or("bad arguments").trim_start_matches("error: ").to_owned();
    let mut lines = lines.peekable();
    // What is missing stands on the lines below.
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
