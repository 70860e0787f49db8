//! Tensors that are not in the target, as a user meets them.

use crate::support::{code, coded_json, complaint, golden, json, ok, testdata, text, text_of, weighbridge};
use std::fs;
use std::path::Path;
use std::process::Output;

/// Files with a tensor that has no place in the index: the file, the name of the tensor, and the reason.
const SKIPPED: [(&str, &str, &str); 6] = [
    ("torch/bad/nested.pt", "x", "nested"),
    ("torch/bad/objects.pt", "x", "numpy array of dtype O8"),
    ("npz/good/object.npz", "objects", "O"),
    ("tables/half.parquet", "other", "a column of type"),
    ("tables/half.lz4.arrow", "other", "a column of type"),
    ("hdf5/good/types_latest.h5", "record", ""),
];

fn said(output: &Output) -> String {
    text(output) + &complaint(output)
}

#[test]
fn skipped_tensors_are_named_and_end_with_a_finding() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("t.pt").display().to_string();
    for (source, name, reason) in SKIPPED {
        let source = golden(source);
        let words = ["convert", &source, &target, "--force"];
        let output = weighbridge(&words);
        let shown = said(&output);
        assert_eq!(output.status.code(), Some(1), "{source}: {shown}");
        assert!(Path::new(&target).exists(), "{source}: what can be written is written");
        let line = shown
            .lines()
            .find(|line| line.contains("skipped: "))
            .unwrap_or_else(|| panic!("{source}: {shown}"));
        assert!(line.contains(&format!("`{name}`")) && line.contains(reason), "{source}: {line}");

        let (exit, document) = coded_json(&words);
        assert_eq!(exit, 1, "{source}");
        let losses = document["losses"].as_array().unwrap();
        let loss = losses.iter().find(|loss| loss["subject"] == name).unwrap();
        assert!(
            loss["tensor"] == true && loss["left_out"] == true && loss["code"] == "tensor-skipped",
            "{loss}"
        );
        let listed = json(&["ls", &source]);
        let notes = listed["notes"].as_array().unwrap();
        assert!(
            notes.iter().any(|note| note["tensor"] == name && note["code"] == "tensor-skipped"),
            "{notes:?}"
        );

        assert_eq!(code(&[&words[..], &["--allow-loss"]].concat()), 0, "{source}");
        assert_eq!(code(&[&words[..], &["--deny-loss"]].concat()), 2, "{source}");
        assert_eq!(code(&[&words[..], &["--deny-loss", "--allow-loss"]].concat()), 2, "{source}");
        assert_eq!(code(&[&words[..], &["--plan"]].concat()), 0, "{source}: nothing is lost yet");
    }
}

#[test]
fn skipped_tensors_that_a_pattern_leaves_out_are_no_loss() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("t.npz").display().to_string();
    let source = golden("npz/good/object.npz");
    let words = |verb, rule| [verb, source.as_str(), &target, "--force", rule];
    for verb in ["convert", "edit"] {
        for rule in [&["--drop", "objects", "--drop", "texts"][..], &["--keep", "a"], &["--drop", "*t*s"]] {
            let output = weighbridge(&[&words(verb, "-q")[..], rule].concat());
            assert_eq!(output.status.code(), Some(0), "{verb} {rule:?}: {}", said(&output));
            assert!(!said(&output).contains("skipped"), "{verb} {rule:?}: {}", said(&output));
        }
        // One of two.
        let output = weighbridge(&[&words(verb, "-q")[..], &["--drop", "texts"]].concat());
        assert_eq!(output.status.code(), Some(1), "{verb}");
        assert!(said(&output).contains("1 tensor skipped: `objects`"), "{verb}: {}", said(&output));
    }
}

#[test]
fn every_verb_that_writes_ends_with_a_finding() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).display().to_string();
    let source = golden("npz/good/object.npz");
    let (new, edited, shards, one) = (at("new.npz"), at("edited.npz"), at("shards"), at("one.npz"));
    for words in [
        &["convert", &source, &new][..],
        &["edit", &source, &edited],
        &["shard", &source, &shards],
        &["merge", &source, "-o", &one],
    ] {
        let output = weighbridge(words);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {}", said(&output));
        assert!(said(&output).contains("2 tensors skipped: `objects`"), "{words:?}: {}", said(&output));
        assert_eq!(code(&[words, &["--force", "--allow-loss"]].concat()), 0, "{words:?}");
    }
}

/// What the target has no place for is named as well: a table holds no vectors beside it, and no optimizer state.
#[test]
fn tensors_without_a_place_in_the_target_end_with_a_finding() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("t.parquet").display().to_string();
    let source = golden("torch/good/nested.pt");
    let words =
        ["convert", &source, &target, "--to", "parquet", "--select", "*0.weight", "--select", "*0.exp_avg"];
    let output = weighbridge(&words);
    let shown = said(&output);
    assert_eq!(output.status.code(), Some(1), "{shown}");
    assert!(shown.contains("`optimizer.state.0.exp_avg`"), "{shown}");
    assert_eq!(code(&[&words[..], &["--force", "--no-state"]].concat()), 0);
}

#[test]
fn values_that_are_no_tensors_end_with_success() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("t.npy").display().to_string();
    let source = golden("torch/good/lone.pt");
    ok(&["convert", &source, &target]);
    // An epoch and a note have no place in it.
    let source = golden("torch/good/nested.pt");
    let output = weighbridge(&["convert", &source, &target, "--force", "--select", "model.0.weight"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(said(&output).contains("metadata-dropped"), "{}", said(&output));
}

/// A source that fails while its elements are copied: what would be lost was printed by then.
#[test]
fn losses_are_printed_before_the_copying_starts() {
    let dir = tempfile::tempdir().unwrap();
    let (source, target) = (dir.path().join("s.npz"), dir.path().join("t.safetensors"));
    let mut bytes = fs::read(testdata("npz/good/object.npz")).unwrap();
    let header = bytes.windows(6).position(|window| window == b"\x93NUMPY").unwrap();
    // The last byte of the first array, which its checksum finds when it is copied.
    let data = header + 128;
    bytes[data] ^= 1;
    fs::write(&source, &bytes).unwrap();
    let output = weighbridge(&["convert", text_of(&source), text_of(&target)]);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(complaint(&output).contains("crc"), "{}", complaint(&output));
    assert!(text(&output).contains("2 tensors skipped: `objects`"), "{}", said(&output));
    assert!(!target.exists());
}
