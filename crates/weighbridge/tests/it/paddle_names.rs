//! Variables with names that are unsafe paths: nothing outside of the folder is read or written.

use crate::support::paddle::{files_below, good, open, same_files};
use std::fs;
use std::path::Path;
use weighbridge::finding::Verdict;
use weighbridge::formats::paddle::program::build::{Builder, dense};
use weighbridge::ops::verify::{VerifyOptions, verify};
use weighbridge::ops::{ConvertOptions, convert};
use weighbridge::tensor::DType;

/// A tensor as Paddle wrote it, and its shape.
fn tensor() -> (Vec<u8>, Vec<i64>) {
    let file = good("p262/cnn_legacy_separate/linear_0.b_0");
    let shape = open(&file).tensors[0].shape.dims().iter().map(|&d| i64::try_from(d).unwrap()).collect();
    (fs::read(file).unwrap(), shape)
}

/// A program of these parameters and nothing else.
fn program(names: &[&str]) -> Vec<u8> {
    let mut builder = Builder::new(2_006_002);
    for name in names {
        builder.variable(&dense(name, DType::F32, &tensor().1)).unwrap();
    }
    builder.finish().unwrap().to_bytes()
}

fn to(kind: &str) -> ConvertOptions {
    ConvertOptions { to: Some("paddle".into()), kind: Some(kind.into()), ..ConvertOptions::default() }
}

/// Names that are not plain files of the folder. `ROOT` means the folder around it.
fn hostile(root: &Path) -> Vec<String> {
    let mut names =
        ["../bait", "a/../../bait", ".", "..", "./a", "bait\0", "/", "//bait", "../model/../bait"]
            .map(str::to_owned)
            .to_vec();
    names.push(root.join("bait").display().to_string());
    names.push("x".repeat(300));
    names.push("x/".repeat(3000));
    names
}

#[test]
fn reading_stays_in_the_folder() {
    let temp = tempfile::tempdir().unwrap();
    let (bytes, _) = tensor();
    let folder = temp.path().join("model");
    fs::create_dir(&folder).unwrap();
    fs::write(temp.path().join("bait"), &bytes).unwrap();
    fs::write(folder.join("own"), &bytes).unwrap();
    for name in hostile(temp.path()) {
        fs::write(folder.join("__model__"), program(&[&name, "own"])).unwrap();
        for path in [folder.clone(), folder.join("__model__")] {
            let checkpoint = open(&path);
            let found: Vec<_> = checkpoint.tensors.iter().map(|t| t.path.to_text()).collect();
            assert_eq!(found, ["own"], "{name:?}");
            assert!(
                checkpoint.notes.iter().any(|n| n.omission && n.code == "parameters-missing"),
                "{name:?}"
            );
            assert_eq!(
                verify(&path, &VerifyOptions::default()).unwrap().verdict,
                Verdict::Unsound,
                "{name:?}"
            );
        }
    }
    // A plain name of the same folder is read, of course.
    fs::write(folder.join("bait"), &bytes).unwrap();
    fs::write(folder.join("__model__"), program(&["bait", "own"])).unwrap();
    assert_eq!(open(&folder).tensors.len(), 2);
}

#[test]
fn writing_stays_in_the_folder() {
    let temp = tempfile::tempdir().unwrap();
    let (bytes, _) = tensor();
    let folder = temp.path().join("model");
    fs::create_dir(&folder).unwrap();
    for name in hostile(temp.path()) {
        // In one file such names do no harm: they are names of tensors, and no more.
        fs::write(folder.join("model.pdmodel"), program(&[&name])).unwrap();
        fs::write(folder.join("model.pdiparams"), &bytes).unwrap();
        let checkpoint = open(&folder);
        assert_eq!(checkpoint.tensors[0].path.to_text(), name);
        let before = files_below(temp.path());
        let target = temp.path().join("target");
        let error = convert(&folder, &target, &to("separate")).unwrap_err();
        let clear = ["unsafe-name", "name-too-long", "io"].contains(&error.code().as_str());
        assert!(clear, "{name:?}: {error:?}");
        assert_eq!(files_below(temp.path()), before, "{name:?}");
        assert!(!target.exists(), "{name:?}");
        // The combined form can be written again, and is the same.
        convert(&folder, &target, &to("inference")).unwrap();
        same_files(&target, &folder);
        fs::remove_dir_all(&target).unwrap();
    }
}

#[test]
fn names_that_collide_with_other_files_are_refused() {
    let temp = tempfile::tempdir().unwrap();
    let (bytes, _) = tensor();
    let folder = temp.path().join("model");
    fs::create_dir(&folder).unwrap();
    for names in [&["__model__", "a"][..], &["a", "a/b"], &["a/b", "a//b"]] {
        fs::write(folder.join("model.pdmodel"), program(names)).unwrap();
        fs::write(folder.join("model.pdiparams"), bytes.repeat(names.len())).unwrap();
        let error = convert(&folder, temp.path().join("target"), &to("separate")).unwrap_err();
        assert_eq!(error.code().as_str(), "name-collision", "{names:?}: {error}");
        assert!(!temp.path().join("target").exists());
    }
}

#[test]
fn names_that_are_empty() {
    let mut program = program(&["own"]);
    // The name is field 1, of 3 bytes. In its place: an empty one, and an unknown field of 3 bytes.
    let at = program.windows(5).position(|w| w == b"\x0a\x03own").unwrap();
    program.splice(at..at + 5, *b"\x0a\x00\x80\x01\x00");
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path().join("model");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("__model__"), &program).unwrap();
    fs::write(folder.join("own"), tensor().0).unwrap();
    let report = verify(&folder, &VerifyOptions::default()).unwrap();
    assert_ne!(report.verdict, Verdict::Sound, "{:#?}", report.findings);
    assert_eq!(open(&folder).tensors.len(), 0);

    let folder = temp.path().join("combined");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("model.pdmodel"), &program).unwrap();
    fs::write(folder.join("model.pdiparams"), tensor().0).unwrap();
    assert_eq!(open(&folder).tensors.len(), 1);
    let target = temp.path().join("target");
    assert_eq!(convert(&folder, &target, &to("separate")).unwrap_err().code().as_str(), "unsafe-name");
    assert!(!target.exists());
    convert(&folder, &target, &to("inference")).unwrap();
    same_files(&target, &folder);
}
