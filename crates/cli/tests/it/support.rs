//! What the tests of the command have in common: how it is run, and what is asked of its answers.

use serde_json::Value as Json;
use std::fs;
use std::path::Path;
#[cfg(target_os = "linux")]
use std::process::Child;
use std::process::{Command, Output, Stdio};

/// A small trained network.
pub(crate) const MODEL: &str = "primitiv/good/trained/trained_xor_a.model";

/// The path of a golden file or folder.
pub(crate) use weighbridge_testkit::testdata;

/// As [`testdata`], as a word of the command.
pub(crate) fn golden(name: &str) -> String {
    text_of(&testdata(name)).to_owned()
}

/// A path as a word of the command.
pub(crate) fn text_of(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// The command with these words, not yet started. Nothing comes in, and the environment says nothing of colours.
pub(crate) fn command(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weighbridge"));
    command.args(words).env_remove("NO_COLOR").stdin(Stdio::null());
    command
}

/// Runs it to its end.
pub(crate) fn weighbridge(words: &[&str]) -> Output {
    command(words).output().unwrap()
}

/// What stands on standard output.
pub(crate) fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// What stands on standard error.
pub(crate) fn complaint(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// The exit code.
pub(crate) fn code(words: &[&str]) -> i32 {
    weighbridge(words).status.code().unwrap()
}

/// What it prints where all goes well.
pub(crate) fn ok(words: &[&str]) -> String {
    let output = weighbridge(words);
    assert!(output.status.success(), "{words:?}: {}{}", text(&output), complaint(&output));
    text(&output)
}

/// The document that it prints, however it ends; `--json` need not be among the words.
pub(crate) fn json(words: &[&str]) -> Json {
    coded_json(words).1
}

/// As [`json`], with the exit code.
pub(crate) fn coded_json(words: &[&str]) -> (i32, Json) {
    let is_asked = words.iter().any(|word| matches!(*word, "--json" | "--sarif"));
    let asked: &[&str] = if is_asked { &[] } else { &["--json"] };
    let output = weighbridge(&[words, asked].concat());
    let document = serde_json::from_slice(&output.stdout);
    (output.status.code().unwrap(), document.unwrap_or_else(|error| panic!("{words:?}: {error}: {output:?}")))
}

/// The error with which it must end.
pub(crate) fn error(words: &[&str]) -> Json {
    let (code, document) = coded_json(words);
    assert_eq!(code, 2, "{words:?}: {document}");
    document["error"].clone()
}

/// The code of the error with which it must end.
pub(crate) fn refused(words: &[&str]) -> String {
    error(words)["code"].as_str().unwrap().to_owned()
}

/// The names of the tensors, in order.
pub(crate) fn names(path: &str) -> Vec<String> {
    of_tensors(&json(&["ls", path]), "name")
}

/// The hashes of the elements, in order.
pub(crate) fn hashes(path: &str) -> Vec<String> {
    of_tensors(&json(&["ls", path, "--hash"]), "sha256")
}

/// That text of every tensor that `ls` lists.
pub(crate) fn of_tensors(document: &Json, key: &str) -> Vec<String> {
    let tensors = document["tensors"].as_array().unwrap_or_else(|| panic!("{document}"));
    tensors.iter().map(|t| t[key].as_str().unwrap().to_owned()).collect()
}

/// An empty folder that goes away with this.
pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }
    /// The path of a file in it, as a word.
    pub(crate) fn path(&self, name: &str) -> String {
        text_of(&self.0.path().join(name)).to_owned()
    }
    /// A file of these bytes in it.
    pub(crate) fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        fs::write(&path, bytes).unwrap();
        path
    }
    /// A model of a few tensors with optimizer state, in the format of that extension.
    pub(crate) fn model(&self, name: &str) -> String {
        let path = self.path(name);
        ok(&["convert", &golden(MODEL), &path, "-q", "--force"]);
        path
    }
    /// How many files and folders stand in it.
    pub(crate) fn count(&self) -> usize {
        fs::read_dir(self.0.path()).unwrap().count()
    }
}

/// Sends a process that signal, such as `TERM`.
#[cfg(target_os = "linux")]
pub(crate) fn signal(child: &Child, name: &str) {
    let kill = format!("kill -{name} {}", child.id());
    assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
}
