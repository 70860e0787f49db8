//! What the command asks of the system: open files, and requests to stop.

use crate::support::signal;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// A safetensors file of `count` tensors, each of no elements.
fn many_tensors(path: &Path, count: usize) {
    let tensor = |i| format!(r#""t{i:07}":{{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}"#);
    let header = format!("{{{}}}", (0..count).map(tensor).collect::<Vec<_>>().join(","));
    fs::write(path, [&(header.len() as u64).to_le_bytes(), header.as_bytes()].concat()).unwrap();
}

/// Runs the command where no more than 64 files may be open, unless it asks for more.
fn with_few_files(words: &[&str]) -> Output {
    Command::new("sh")
        .args(["-c", r#"ulimit -S -n 64; exec "$0" "$@""#, env!("CARGO_BIN_EXE_weighbridge")])
        .args(words)
        .output()
        .unwrap()
}

#[test]
fn a_model_of_many_files_is_opened() {
    let dir = tempfile::tempdir().unwrap();
    let (model, folder) = (dir.path().join("m.safetensors"), dir.path().join("separate"));
    many_tensors(&model, 300);
    let back = dir.path().join("back.safetensors");
    let [model, folder, back] = [&model, &folder, &back].map(|p| p.to_str().unwrap());
    for words in [
        &["convert", model, folder, "--to", "paddle", "--kind", "separate", "--no-sync"][..],
        &["convert", folder, back, "--no-sync"],
    ] {
        let output = with_few_files(words);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert_eq!(fs::read_dir(folder).unwrap().count(), 300);
    assert_eq!(weighbridge::formats::open(back).unwrap().tensors.len(), 300);
}

/// True where the process handles a request to terminate itself.
fn hears(child: &Child) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0);
    // SIGTERM is 15; the lowest bit is signal 1.
    caught & (1 << 14) != 0
}

/// A plan is not interrupted by the first request; the second ends the process at once. Where
/// nothing is written, nothing else ends it with 130.
#[test]
fn a_second_request_ends_a_plan() {
    let dir = tempfile::tempdir().unwrap();
    let model = dir.path().join("m.safetensors");
    many_tensors(&model, 1_000_000);
    let target = dir.path().join("m.npz");
    let mut child = Command::new(env!("CARGO_BIN_EXE_weighbridge"))
        .args(["convert", model.to_str().unwrap(), target.to_str().unwrap(), "--plan"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    while !hears(&child) {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it was interrupted");
        std::thread::sleep(Duration::from_millis(1));
    }
    // Two at once are one request.
    signal(&child, "TERM");
    signal(&child, "TERM");
    std::thread::sleep(Duration::from_millis(700));
    assert!(child.try_wait().unwrap().is_none(), "the first request ended it, or the plan is too quick");
    signal(&child, "TERM");
    assert_eq!(child.wait().unwrap().code(), Some(130));
}
