//! `--timeout` ends what takes too long, and leaves nothing behind.

use crate::support::signal;
use serde_json::{Value as Json, json};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// A safetensors file of these tensors of f32, whose data is a hole.
fn sparse(path: &Path, names: &[String], elements: u64) {
    let mut header = serde_json::Map::new();
    let mut end = 0;
    for name in names {
        let begin = end;
        end += 4 * elements;
        header.insert(
            name.clone(),
            json!({ "dtype": "F32", "shape": [elements], "data_offsets": [begin, end] }),
        );
    }
    let header = Json::Object(header).to_string();
    let mut file = File::create(path).unwrap();
    file.write_all(&(header.len() as u64).to_le_bytes()).unwrap();
    file.write_all(header.as_bytes()).unwrap();
    file.set_len(8 + header.len() as u64 + end).unwrap();
}

fn weighbridge(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weighbridge"));
    command.args(words);
    command
}

#[test]
fn work_that_takes_too_long_is_taken_back() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (source, target) = (dir.path().join("large.safetensors"), dir.path().join("cast.safetensors"));
    sparse(&source, &["w".to_owned()], 16 << 30);
    fs::write(&target, b"old").unwrap();
    let words = ["edit", source.to_str().unwrap(), target.to_str().unwrap(), "--cast", "*=f16", "--force"];
    let output = weighbridge(&words).args(["--timeout", "1", "--json"]).output().unwrap();
    let report: Json = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["error"]["code"], output.status.code()), (&json!("took-too-long"), Some(2)));
    assert_eq!(fs::read(&target).unwrap(), b"old");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
}

/// A reader who does not read holds up whoever writes to him for ever.
#[test]
fn what_cannot_stop_ends_all_the_same() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let source = dir.path().join("many.safetensors");
    let names: Vec<String> = (0..10_000).map(|number| format!("a.long.name.of.a.tensor.{number}")).collect();
    sparse(&source, &names, 1);
    let words = ["ls", source.to_str().unwrap(), "--timeout", "1"];
    let mut child = weighbridge(&words).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(2));
    // Nothing follows a document that was begun.
    let (file, mut out) = (words[1], String::new());
    let mut command = weighbridge(&["ls", file, "--json", "--timeout", "1"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut errors = String::new();
    child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(2));
    assert!(errors.contains("took-too-long") && !out.contains("took-too-long"), "{errors}");
    // In time it is no matter.
    let words = ["ls", file, "--timeout", "600"];
    assert!(weighbridge(&words).stdout(Stdio::null()).status().unwrap().success());
    let refused = weighbridge(&["ls", "x", "--timeout", "0"]).output().unwrap();
    assert!(String::from_utf8_lossy(&refused.stderr).contains("bad-arguments"));
}

/// Runs `info -` without an end of its input, until a temporary file is there.
fn spooling(dir: &Path, words: &[&str]) -> std::process::Child {
    let mut child = weighbridge(&[&["info", "-"], words].concat())
        .env("TMPDIR", dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    child.stdin.as_mut().unwrap().write_all(b"some bytes").unwrap();
    let begun = std::time::Instant::now();
    while fs::read_dir(dir).unwrap().next().is_none() {
        assert!(begun.elapsed().as_secs() < 30 && child.try_wait().unwrap().is_none(), "nothing is spooled");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    child
}

#[test]
fn spools_of_standard_input_are_removed() {
    for name in ["INT", "TERM"] {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let mut child = spooling(dir.path(), &[]);
        // Held: its end would let the command go on.
        let _input = child.stdin.take();
        signal(&child, name);
        assert_eq!(child.wait().unwrap().code(), Some(130), "{name}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "{name}");
    }
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut child = spooling(dir.path(), &["--timeout", "5"]);
    // The child has its input until it ends.
    let input = child.stdin.take();
    assert_eq!(child.wait().unwrap().code(), Some(2));
    drop(input);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}
