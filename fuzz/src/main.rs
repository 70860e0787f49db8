//! Command-line driver of the campaign; see the crate documentation.
#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

use std::process::ExitCode;
use weighbridge_fuzz::{TARGETS, Target, case, run, run_case, target};

const USAGE: &str = "weighbridge-fuzz [TARGET]... [--inputs N] [--first N] | TARGET --case N | TARGET --file PATH | TARGET --seeds FOLDER | --list";

fn main() -> ExitCode {
    match parse(std::env::args().skip(1)) {
        Ok(job) => execute(&job),
        Err(what) => {
            eprintln!("{what}\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

#[derive(Default)]
struct Job {
    targets: Vec<&'static Target>,
    inputs: u64,
    first: u64,
    case: Option<u64>,
    file: Option<String>,
    seeds: Option<String>,
    list: bool,
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Job, String> {
    let mut job = Job { inputs: 1_000_000, ..Job::default() };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        let number = |text: String| text.parse::<u64>().map_err(|_| format!("not a number: {text}"));
        match word.as_str() {
            "--inputs" => job.inputs = number(value()?)?,
            "--first" => job.first = number(value()?)?,
            "--case" => job.case = Some(number(value()?)?),
            "--file" => job.file = Some(value()?),
            "--seeds" => job.seeds = Some(value()?),
            "--list" => job.list = true,
            name => job.targets.push(target(name).ok_or_else(|| format!("unknown target: {name}"))?),
        }
    }
    if job.targets.is_empty() {
        job.targets = TARGETS.iter().collect();
    }
    if (job.case.is_some() || job.file.is_some() || job.seeds.is_some()) && job.targets.len() != 1 {
        return Err("--case, --file and --seeds need exactly one target".to_owned());
    }
    Ok(job)
}

fn execute(job: &Job) -> ExitCode {
    if job.list {
        TARGETS.iter().for_each(|target| println!("{}", target.name));
        return ExitCode::SUCCESS;
    }
    let target = job.targets[0];
    if let Some(number) = job.case {
        let seeds = target.seeds();
        let case = case(target, &seeds, number);
        println!("{} {:?}\n{}", case.seed.display(), case.steps, case.bytes.escape_ascii());
        return run_one(target, &case.bytes);
    }
    if let Some(path) = &job.file {
        return run_one(target, &std::fs::read(path).unwrap());
    }
    if let Some(folder) = &job.seeds {
        for (number, seed) in target.seeds().iter().enumerate() {
            std::fs::write(std::path::Path::new(folder).join(format!("seed-{number:04}")), &seed.bytes)
                .unwrap();
        }
        return ExitCode::SUCCESS;
    }
    let shares: u64 = job.targets.iter().map(|target| target.share).sum();
    let mut failed = false;
    for target in &job.targets {
        let inputs = (job.inputs * target.share).div_ceil(shares);
        match run(target, job.first, inputs) {
            Ok(outcomes) => println!("{:<12} {outcomes:?}", target.name),
            Err(failures) => {
                failed = true;
                failures.iter().for_each(|failure| println!("FAILED {failure}"));
            }
        }
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn run_one(target: &Target, bytes: &[u8]) -> ExitCode {
    match run_case(target, bytes) {
        Ok(outcome) => {
            println!("{outcome:?}");
            ExitCode::SUCCESS
        }
        Err(what) => {
            println!("FAILED {what}");
            ExitCode::FAILURE
        }
    }
}
