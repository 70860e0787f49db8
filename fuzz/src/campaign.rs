//! Campaigns: many cases of one target, run by workers, with a watchdog for hangs and counts of outcomes.

use crate::counting;
use crate::mutate::mutate;
use crate::random::Random;
use crate::seeds::Seed;
use crate::targets::{Outcome, Target};
use std::any::Any;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Largest growth of memory during a case, in bytes.
const MAX_PEAK: i64 = 64 << 20;
/// Time after which a case counts as a hang.
const HANG_TIMEOUT: Duration = Duration::from_secs(60);
/// Number of failures that ends a campaign.
const MAX_FAILURES: usize = 20;

/// Input of a case, with its origin.
#[derive(Debug)]
pub struct Case<'a> {
    /// Path of the mutated seed.
    pub seed: &'a Path,
    /// Input bytes.
    pub bytes: Vec<u8>,
    /// Mutations applied.
    pub steps: Vec<&'static str>,
}

/// Number of inputs by outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcomes {
    /// See [`Outcome::Opened`].
    pub opened: u64,
    /// See [`Outcome::OpenedLeniently`].
    pub leniently: u64,
    /// See [`Outcome::Refused`].
    pub refused: u64,
}

/// Returns case `number`. It depends only on the seeds and the number.
pub fn case<'a>(target: &Target, seeds: &'a [Seed], number: u64) -> Case<'a> {
    let mut random = Random::new(number);
    let seed = &seeds[random.below(seeds.len())];
    let other = &seeds[random.below(seeds.len())];
    let mut bytes = seed.bytes.clone();
    let count = random.pick(&[1, 1, 1, 1, 2, 2, 3, 5]);
    let mut steps: Vec<_> = (0..count).map(|_| mutate(&mut bytes, &other.bytes, &mut random)).collect();
    // After a change of size, the header length of a safetensors file is wrong and the parser stops there. Correct it in
    // half of the cases, so that the rest is parsed.
    let grown = (bytes.len() as u64).wrapping_sub(seed.bytes.len() as u64);
    if grown != 0
        && target.name == "safetensors"
        && random.below(2) == 0
        && let Some(length) = bytes.first_chunk_mut::<8>()
    {
        *length = u64::from_le_bytes(*length).wrapping_add(grown).to_le_bytes();
        steps.push("correct the header's length");
    }
    Case { seed: &seed.path, bytes, steps }
}

/// Feeds `bytes` to a target.
///
/// # Errors
/// A text if the target panicked or used too much memory.
pub fn run_case(target: &Target, bytes: &[u8]) -> Result<Outcome, String> {
    // The library catches many panics and returns them as errors: not printed.
    weighbridge::quiet_panics();
    let (result, peak) = counting::peak_of(|| catch_unwind(AssertUnwindSafe(|| target.feed(bytes))));
    match result {
        Err(panic) => Err(format!("panic: {}", text_of(&*panic))),
        Ok(_) if peak >= MAX_PEAK => Err(format!("peak memory of {peak} bytes")),
        Ok(outcome) => Ok(outcome),
    }
}

fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("?")
}

/// Runs the cases `first .. first + inputs` of a target, with one thread per processor. If `WEIGHBRIDGE_FUZZ_LOG` is set,
/// each worker writes the number of its current case to a file of this name, to find the case after an abort.
///
/// # Errors
/// The failed cases with their reasons.
pub fn run(target: &Target, first: u64, inputs: u64) -> Result<Outcomes, Vec<String>> {
    let seeds = target.seeds();
    assert!(!seeds.is_empty(), "{} has no seeds", target.name);
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let (next, done) = (AtomicU64::new(first), AtomicBool::new(false));
    let current: Vec<AtomicU64> = (0..threads).map(|_| AtomicU64::new(u64::MAX)).collect();
    let failures: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let outcomes = [const { AtomicU64::new(0) }; 3];
    let log = std::env::var_os("WEIGHBRIDGE_FUZZ_LOG");
    let work = |worker: usize, current: &AtomicU64| {
        let log = log.as_ref().map(|path| {
            let path = PathBuf::from(path).with_extension(worker.to_string());
            std::fs::File::create(path).unwrap()
        });
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= first + inputs || failures.lock().unwrap().len() >= MAX_FAILURES {
                break;
            }
            current.store(number, Ordering::Relaxed);
            if let Some(log) = &log {
                log.write_all_at(format!("{} {number:>20}\n", target.name).as_bytes(), 0).unwrap();
            }
            let case = case(target, &seeds, number);
            match run_case(target, &case.bytes) {
                Ok(Outcome::Opened) => outcomes[0].fetch_add(1, Ordering::Relaxed),
                Ok(Outcome::OpenedLeniently) => outcomes[1].fetch_add(1, Ordering::Relaxed),
                Ok(Outcome::Refused) => outcomes[2].fetch_add(1, Ordering::Relaxed),
                Err(what) => {
                    let name = target.name;
                    failures.lock().unwrap().push(format!("{name} --case {number}: {what}"));
                    continue;
                }
            };
        }
        current.store(u64::MAX, Ordering::Relaxed);
    };
    std::thread::scope(|scope| {
        scope.spawn(|| watch_for_hangs(target, &current, &done));
        let work = &work;
        let workers = current.iter().enumerate();
        let workers: Vec<_> =
            workers.map(|(worker, current)| scope.spawn(move || work(worker, current))).collect();
        for worker in workers {
            worker.join().unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
    let failures = failures.into_inner().unwrap();
    if !failures.is_empty() {
        return Err(failures);
    }
    let [opened, leniently, refused] = outcomes.map(AtomicU64::into_inner);
    assert_eq!(opened + leniently + refused, inputs);
    Ok(Outcomes { opened, leniently, refused })
}

/// Watches the workers. Aborts the process if one hangs: a thread cannot be stopped.
fn watch_for_hangs(target: &Target, cases: &[AtomicU64], done: &AtomicBool) {
    let mut seen: Vec<(u64, Instant)> = cases.iter().map(|_| (u64::MAX, Instant::now())).collect();
    while !done.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(50));
        for (case, (last, since)) in cases.iter().zip(&mut seen) {
            let case = case.load(Ordering::Relaxed);
            if case != *last {
                (*last, *since) = (case, Instant::now());
            } else if case != u64::MAX && since.elapsed() > HANG_TIMEOUT {
                // Not by eprintln!, which the test harness captures.
                let text = format!("\nhangs: {} --case {case}\n", target.name);
                let _ = std::io::stderr().write_all(text.as_bytes());
                std::process::abort();
            }
        }
    }
}
