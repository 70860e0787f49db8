//! `weighbridge run`: a program of Paddle 2.6.2 that feeds, scales, saves and fetches; and `program --strip` of models.

use crate::support::{command, error, golden, json, ok, testdata, text_of, weighbridge};
use serde_json::Value as Json;
use std::path::{Path, PathBuf};
use std::process::Output;

fn program() -> PathBuf {
    testdata("paddle/exec/save.pdmodel")
}

fn run(folder: &Path, words: &[&str]) -> Output {
    command(&["run"]).arg(program()).arg("--folder").arg(folder).args(words).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// The stream of two f32, as Paddle writes it.
fn stream(values: [f32; 2]) -> Vec<u8> {
    let mut bytes = vec![0; 16];
    bytes.extend([4, 0, 0, 0, 8, 5, 16, 2]);
    bytes.extend(values.iter().flat_map(|x| x.to_le_bytes()));
    bytes
}

fn fed(folder: &Path) -> String {
    let path = folder.join("given");
    std::fs::write(&path, stream([1.0, -3.0])).unwrap();
    format!("x={}", path.display())
}

#[test]
fn a_program_saves_and_fetches() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("model");
    let feed = fed(dir.path());
    let fetch = dir.path().join("out.npz");
    let output = run(&folder, &["--feed", &feed, "--fetch", fetch.to_str().unwrap()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    assert!(shown.contains("3 save w, writes deep/w"), "{shown}");
    assert!(shown.contains("fetched y f32 [2]"), "{shown}");
    assert_eq!(std::fs::read(folder.join("deep/w")).unwrap(), stream([0.5, 0.5]));
    let both = [stream([0.5, 0.5]), stream([3.0, -5.0])].concat();
    assert_eq!(std::fs::read(folder.join("all.pdiparams")).unwrap(), both);
    let fetched = weighbridge::formats::open(&fetch).unwrap();
    let bytes = fetched.tensor("y").unwrap().read_tensor(weighbridge::tensor::Order::Row);
    assert_eq!(bytes.unwrap(), stream([3.0, -5.0])[24..]);

    // A tensor in a file of several is named; JSON tells the same.
    let feed = format!("x={}:y", fetch.display());
    let output = run(&folder, &["--feed", &feed, "--json"]);
    let json: Json = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&json["steps"][3]["writes"], &json["steps"][3]["bytes"]), (&"deep/w".into(), &32.into()));
    assert_eq!(json["fetched"][0]["name"], "y");

    // What is fed is not written over.
    let before = std::fs::read(&fetch).unwrap();
    let output = run(&folder, &["--feed", &feed, "--fetch", fetch.to_str().unwrap(), "--json"]);
    let json: Json = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["error"]["code"], "output-is-input");
    assert_eq!(std::fs::read(&fetch).unwrap(), before);
}

#[test]
fn a_plan_touches_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let output = run(dir.path(), &["--plan"]);
    assert!(output.status.success());
    let shown = text(&output.stdout);
    assert_eq!(shown.lines().count(), 6);
    assert!(shown.contains("4 save_combine w, y, writes all.pdiparams"), "{shown}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn what_is_wrong_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let feed = fed(dir.path());
    let complaint = |words: &[&str]| {
        let output = run(dir.path(), words);
        assert_eq!(output.status.code(), Some(2));
        text(&output.stderr).to_owned()
    };
    assert!(complaint(&[]).contains("needs more fed values"));
    assert!(complaint(&["--feed", "nonsense"]).contains("NAME=FILE"));
    assert!(complaint(&["--feed", &feed, "--feed", &feed.replacen('x', "q", 1)]).contains("does not read"));
    assert!(!dir.path().join("deep").exists());
    assert!(run(dir.path(), &["--feed", &feed]).status.success());
    let again = complaint(&["--feed", &feed, "--no-replace"]);
    assert!(again.contains("operator 3 (save)") && again.contains("exists"), "{again}");
}

#[test]
fn a_stripped_training_program_is_written_for_inference() {
    let temp = tempfile::tempdir().unwrap();
    for (number, (model, output, files)) in [
        ("paddle/strip/training", "softmax_0.tmp_0", ["model.pdmodel", "model.pdiparams"]),
        ("paddle/good/p331/cnn_pir_train", "%78", ["model.json", "model.pdiparams"]),
    ]
    .into_iter()
    .enumerate()
    {
        let (source, target) = (golden(model), temp.path().join(format!("{number}")));
        let to = text_of(&target);
        let unknown = error(&["program", &source, "--strip", "training", "--outputs", "none", "-o", to]);
        assert_eq!(unknown["code"], "no-such-output");
        assert!(!target.exists());
        let whole = weighbridge(&[
            "program",
            &source,
            "--strip",
            "all",
            "-o",
            text_of(&temp.path().join(format!("whole{number}"))),
        ]);
        assert!(whole.status.success() && text(&whole.stdout).contains("no-outputs"), "{whole:?}");
        ok(&["program", &source, "--strip", "all", "--outputs", output, "-o", to]);
        assert!(files.iter().all(|name| target.join(name).is_file()), "{model}");
        assert_eq!(std::fs::read_dir(&target).unwrap().count(), 2, "{model}");
        ok(&["verify", to]);
        let shown = json(&["program", to]);
        assert_eq!(shown["summary"]["outputs"].as_array().unwrap().len(), 1);
    }
}
