//! Whole jobs compared with raw machine speed and with another library, as ratios of medians in one run.
//!
//! `cargo build --profile dist && cargo bench --profile dist -p weighbridge-benches --bench ratios`; the environment
//! variable `WEIGHBRIDGE_BENCH_MIB` sets the size of the model in MiB (default 1024), `TMPDIR` its folder.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, clippy::unwrap_used, missing_docs)]

use std::fs;
use std::path::Path;
use std::process::Command;
use weighbridge::engine::{RunOptions, load};
use weighbridge::ops::{ConvertOptions, convert};
use weighbridge_benches::{Pair, median, write_primitiv_model};

const RUNS: usize = 7;

fn main() {
    let mib: u32 = std::env::var("WEIGHBRIDGE_BENCH_MIB").ok().and_then(|v| v.parse().ok()).unwrap_or(1024);
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let model = file("bench.model");
    // 64 MiB per tensor.
    write_primitiv_model(&model, (mib / 64).max(1), 4096, 4096).unwrap();
    let rows = file("bench.safetensors");
    to(&model, &rows, false);

    println!("model of {mib} MiB, medians of {RUNS} pairs, everything in the page cache\n");
    println!("{:<58} {:>8} {:>8} {:>6}  {:>6}", "job / compared with", "ours s", "other s", "ratio", "goal");
    for sync in [false, true] {
        let baseline = if sync { "cp and fsync" } else { "cp" };
        let copy = || cp(&rows, &file("copy"), sync);
        let pair = Pair::time(RUNS, || to(&rows, &file("out.safetensors"), sync), copy);
        row(&format!("safetensors to safetensors / {baseline}"), &pair, "1.15");
        let copy = || cp(&model, &file("copy"), sync);
        let pair = Pair::time(RUNS, || to(&model, &file("out.model"), sync), copy);
        row(&format!("primitiv to primitiv / {baseline}"), &pair, "1.15");
        let pair = Pair::time(RUNS, || to(&model, &file("out.npz"), sync), copy);
        row(&format!("primitiv to npz, order kept, with checksums / {baseline}"), &pair, "");
        let pair = Pair::time(RUNS, || to(&model, &file("out.safetensors"), sync), copy);
        row(&format!("primitiv to safetensors, transposed / {baseline}"), &pair, "2");
    }
    let pair = Pair::time(
        RUNS,
        || drop(load(&weighbridge::formats::open(&model).unwrap().tensors, None, 0).unwrap()),
        || drop(fs::read(&model).unwrap()),
    );
    row("load all tensors / read the file", &pair, "1.1");
    let npy = file("table.npy");
    to_wide(&npy, mib);
    let pair =
        Pair::time(RUNS, || to(&npy, &file("out.safetensors"), false), || cp(&npy, &file("copy"), false));
    row("one table of 512 rows, transposed / cp", &pair, "");
    let pair = Pair::time(RUNS, || to(&rows, &file("out.safetensors"), false), || peer(&rows, &file("copy")));
    row("safetensors to safetensors / crate safetensors, read and save", &pair, "");

    let many = file("many.model");
    write_primitiv_model(&many, 100_000, 4, 4).unwrap();
    let open = median_of(|| assert_eq!(weighbridge::formats::open(&many).unwrap().tensors.len(), 100_000));
    println!("\nopen a model of 100,000 tensors: {open:.3} s");
    // The command is in the parent folder of the benchmark, if built with the same profile.
    let command = std::env::current_exe().unwrap().with_file_name("../weighbridge");
    if command.exists() {
        let ls = || assert!(Command::new(&command).arg("ls").arg(&many).output().unwrap().status.success());
        println!("weighbridge ls of it: {:.3} s (goal: under 0.2 s)", median_of(ls));
    }
}

/// Writes a column-major table with few rows and very many columns: the slowest shape to transpose.
fn to_wide(path: &Path, mib: u32) {
    let model = path.with_extension("model");
    write_primitiv_model(&model, 1, 512, mib.min(1023) * 512).unwrap();
    to(&model, path, false);
    fs::remove_file(&model).unwrap();
}

/// Converts to a new file, as `cp` below does: some file systems sync on a rename over an existing file.
fn to(source: &Path, target: &Path, sync: bool) {
    let _ = fs::remove_file(target);
    let run = RunOptions { sync, ..RunOptions::default() };
    convert(source, target, &ConvertOptions { force: true, run, ..ConvertOptions::default() }).unwrap();
}

/// Returns the median time of several runs, in seconds.
fn median_of(work: impl Fn()) -> f64 {
    let clock = |_| {
        let begun = std::time::Instant::now();
        work();
        begun.elapsed().as_secs_f64()
    };
    median((0..RUNS).map(clock).collect())
}

fn cp(source: &Path, target: &Path, sync: bool) {
    let _ = fs::remove_file(target);
    assert!(Command::new("cp").arg(source).arg(target).status().unwrap().success());
    if sync {
        fs::File::open(target).unwrap().sync_all().unwrap();
    }
}

fn peer(source: &Path, target: &Path) {
    let bytes = fs::read(source).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    safetensors::serialize_to_file(tensors.tensors(), None, target).unwrap();
}

fn row(job: &str, pair: &Pair, goal: &str) {
    let (ours, other) = pair.medians();
    println!("{job:<58} {ours:>8.3} {other:>8.3} {:>6.2}  {goal:>6}", pair.ratio());
}
