//! `seal`, `verify`, `diff` and `stats` of a large file, compared with tools that hash and compare files, and with the read
//! speed of memory. Whole processes, in turn, everything in the page cache.
//!
//! `cargo build --profile dist && cargo bench --profile dist -p weighbridge-benches --bench trust`; the environment
//! variable `WEIGHBRIDGE_BENCH_MIB` sets the size in MiB (default 4096), `TMPDIR` the folder. `b3sum` must be on the `PATH`.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, clippy::unwrap_used, missing_docs)]

use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use weighbridge::ops::{ConvertOptions, convert};
use weighbridge::source::MapSource;
use weighbridge_benches::{Pair, write_primitiv_model};

const RUNS: usize = 5;

fn main() {
    let mib: u32 = std::env::var("WEIGHBRIDGE_BENCH_MIB").ok().and_then(|v| v.parse().ok()).unwrap_or(4096);
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name).display().to_string();
    let [model, a, same, other, seal] =
        ["m.model", "a.safetensors", "b.safetensors", "c.safetensors", "seal.json"].map(file);
    write_primitiv_model(Path::new(&model), (mib / 64).max(1), 4096, 4096).unwrap();
    convert(Path::new(&model), Path::new(&a), &ConvertOptions::default()).unwrap();
    fs::remove_file(&model).unwrap();
    fs::copy(&a, &same).unwrap();
    fs::copy(&a, &other).unwrap();
    touch_every_tensor(Path::new(&other));
    run("weighbridge", &["seal", &a, "-o", &seal]);

    println!("file of {mib} MiB, medians of {RUNS} pairs, everything in the page cache\n");
    println!("{:<64} {:>8} {:>8} {:>6}  {:>6}", "job / compared with", "ours s", "other s", "ratio", "goal");
    let row = |name: &str, ours: &[&str], other: &[&str], goal: &str| {
        let Some((program, arguments)) = other.split_first() else { return };
        if !exists(program) {
            println!("{name:<64} {program} is not installed");
            return;
        }
        let pair = Pair::time(RUNS, || run("weighbridge", ours), || run(program, arguments));
        report(name, &pair, goal);
    };
    let files_only = ["seal", "--files-only", "--force", "-o", &seal, "--algorithms"];
    let sealed = |algorithms| [&files_only[..], &[algorithms, &a]].concat();
    row("seal --files-only, blake3 / b3sum", &sealed("blake3"), &["b3sum", &a], "1.2");
    row("seal --files-only, sha256 / sha256sum", &sealed("sha256"), &["sha256sum", &a], "");
    let whole = ["seal", "--force", "-o", &seal, "--algorithms", "blake3", &a];
    row("seal --algorithms blake3: file and tensors / b3sum", &whole, &["b3sum", &a], "");
    run("weighbridge", &whole);
    row("verify --manifest of that / b3sum", &["verify", "--manifest", &seal, &a], &["b3sum", &a], "");
    let whole = ["seal", "--force", "-o", &seal, &a];
    row("seal: file and tensors, both hashes / cat", &whole, &["cat", &a], "");
    row("seal: file and tensors, both hashes / sha256sum", &whole, &["sha256sum", &a], "");
    row("verify --manifest / sha256sum", &["verify", "--manifest", &seal, &a], &["sha256sum", &a], "");
    row("verify: every byte accounted for / cat", &["verify", &a], &["cat", &a], "");
    row("verify --values / cat", &["verify", "--values", &a], &["cat", &a], "");
    row("diff of equal files / cmp", &["diff", &a, &same], &["cmp", &a, &same], "");
    row("diff, every tensor different / cat of both", &["diff", &a, &other], &["cat", &a, &other], "");
    row("stats of every tensor / cat", &["stats", &a], &["cat", &a], "");
    row("stats --json: with histograms / cat", &["stats", "--json", &a], &["cat", &a], "");
    assert!(weighbridge::guard_maps());
    let map = MapSource::open(&a).unwrap();
    let memory = || assert_ne!(sum(map.bytes()), 1);
    let pair = Pair::time(RUNS, || run("weighbridge", &["stats", &a]), memory);
    report("stats of every tensor / memory read with as many threads", &pair, "2");
}

/// Changes one value in each tensor, so that no two are equal.
fn touch_every_tensor(path: &Path) {
    let places: Vec<u64> = weighbridge::formats::open(path)
        .unwrap()
        .tensors
        .iter()
        .map(|t| t.extents[0].offset + 4096)
        .collect();
    let mut file = fs::File::options().write(true).open(path).unwrap();
    for place in places {
        file.seek(SeekFrom::Start(place)).unwrap();
        file.write_all(&1.5f32.to_le_bytes()).unwrap();
    }
}

/// Sums all words with one thread per processor: the cost of reading memory.
fn sum(bytes: &[u8]) -> u64 {
    let threads = weighbridge::engine::default_threads();
    let words = |bytes: &[u8]| {
        bytes.as_chunks::<8>().0.iter().fold(0u64, |sum, w| sum.wrapping_add(u64::from_le_bytes(*w)))
    };
    std::thread::scope(|scope| {
        let parts = bytes.chunks(bytes.len().div_ceil(threads).next_multiple_of(8));
        let handles: Vec<_> = parts.map(|part| scope.spawn(move || words(part))).collect();
        handles.into_iter().map(|handle| handle.join().unwrap()).fold(0, u64::wrapping_add)
    })
}

fn exists(program: &str) -> bool {
    Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

/// Runs a program; `weighbridge` is the command built with the same profile.
fn run(program: &str, arguments: &[&str]) {
    let program = match program {
        "weighbridge" => std::env::current_exe().unwrap().with_file_name("../weighbridge"),
        other => PathBuf::from(other),
    };
    let status = Command::new(&program).args(arguments).stdout(Stdio::null()).status().unwrap();
    // Exit code 1 means different, which is expected.
    assert!(status.code().is_some_and(|code| code < 2), "{} {arguments:?}: {status}", program.display());
}

fn report(job: &str, pair: &Pair, goal: &str) {
    let (ours, other) = pair.medians();
    println!("{job:<64} {ours:>8.3} {other:>8.3} {:>6.2}  {goal:>6}", pair.ratio());
}
