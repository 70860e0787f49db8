//! Written files are complete and sound by our own checks: every byte is accounted for, row names included.

use crate::support::testdata;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use weighbridge::finding::{Severity, Verdict};
use weighbridge::ops::verify::{VerifyOptions, VerifyReport, verify};
use weighbridge::ops::{ConvertOptions, convert};
use weighbridge::{OpenOptions, formats};

/// Folders of golden files: every file in them that can be opened, and folders that are models.
const GOLDEN: [&str; 25] = [
    "tables",
    "npy/good",
    "npz/good",
    "hdf5/good",
    "hdf5/small",
    "safetensors/good",
    "onnx/good",
    "gguf/good",
    "mxnet/good",
    "caffe/good",
    "darknet/good",
    "tensorflow/good",
    "tflite/good",
    "openvino/good",
    "coreml/good",
    "ncnn/good",
    "flax/good",
    "orbax/good",
    "torch/good",
    "dcp/good",
    "joblib/good",
    "primitiv/good/optimizer",
    "primitiv/good/trained",
    "biggraph/set1",
    "biggraph/set2",
];

/// The name of a target, the format and settings.
type Target = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

const TARGETS: [Target; 22] = [
    ("a.safetensors", "safetensors", &[]),
    ("a.npz", "npz", &[]),
    ("a.h5", "hdf5", &[]),
    ("a.pt", "torch", &[]),
    ("dcp", "dcp", &[]),
    ("a.npy", "npy", &[]),
    ("a.arrow", "arrow", &[]),
    ("a.parquet", "parquet", &[]),
    ("b.parquet", "parquet", &[("compression", "zstd")]),
    ("a.tsv", "tsv", &[]),
    ("a.vec", "word2vec", &[]),
    ("a.w2v", "word2vec", &[("form", "binary")]),
    ("a.onnx", "onnx", &[]),
    ("a.gguf", "gguf", &[]),
    ("a.params", "mxnet", &[]),
    ("checkpoint", "tensorflow", &[]),
    ("a.msgpack", "flax", &[]),
    ("biggraph", "biggraph", &[]),
    ("a.pdparams", "paddle", &[]),
    ("__params__", "paddle", &[]),
    ("a.model", "primitiv", &[]),
    ("a.optimizer", "primitiv", &[]),
];

/// Findings that prevent the verdict sound, with the format and the reason.
const EXPECTED: &[(&str, &str, &str)] = &[
    ("empty-file", "tsv", "a table without rows is a text without lines, which is a loss that is reported"),
    ("packed-values", "safetensors", "elements that share bytes have no statistics"),
    ("packed-values", "onnx", "elements that share bytes have no statistics"),
    ("tensor-skipped", "onnx", "text stays in the model, and is not listed"),
    ("tensor-skipped", "tensorflow", "text is written, and is not listed"),
    ("no-program", "tensorflow", "a graph in text form is copied, and not read"),
    ("too-many-dimensions", "gguf", "the package gguf reads more dimensions than llama.cpp does"),
    ("name-too-long", "gguf", "the package gguf reads longer names than llama.cpp does"),
    ("no-config", "biggraph", "an `init_path` has no configuration of its own"),
];

fn models() -> Vec<PathBuf> {
    let mut found = Vec::new();
    for folder in GOLDEN {
        let items = std::fs::read_dir(testdata(folder)).unwrap().map(|item| item.unwrap().path());
        let mut items: Vec<PathBuf> = items.collect();
        items.sort();
        found.extend(items.into_iter().filter(|path| formats::open(path).is_ok()));
    }
    below(&testdata("paddle/good"), &mut found);
    assert!(found.len() > 150, "{}", found.len());
    found
}

/// States of Paddle anywhere below a folder.
fn below(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(items) = std::fs::read_dir(folder) else { return };
    let mut items: Vec<PathBuf> = items.map(|item| item.unwrap().path()).collect();
    items.sort();
    for path in items {
        if path.is_dir() {
            below(&path, found);
        } else if path.extension().is_some_and(|e| e == "pdparams" || e == "pdopt") {
            found.push(path);
        }
    }
}

/// The files of a folder that are one model each.
fn each_file(folder: &Path) -> Vec<PathBuf> {
    let items = std::fs::read_dir(folder).unwrap().map(|item| item.unwrap().path());
    items.filter(|path| path.is_file()).collect()
}

/// Unexpected findings that prevent the verdict sound.
fn wrong_of(report: &VerifyReport, format: &str) -> Option<String> {
    let expected = |code: &str| EXPECTED.iter().any(|(c, f, _)| (*c, *f) == (code, format));
    let mut wrong = report.findings.iter().filter(|f| f.severity >= Severity::Unchecked);
    let found = wrong.find(|finding| !expected(finding.code.as_str())).map(|finding| finding.told());
    found.or_else(|| (report.verdict != Verdict::Sound && report.findings.is_empty()).then(String::new))
}

#[test]
fn every_written_file_is_sound() {
    let dir = tempfile::tempdir().unwrap();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut wrong = Vec::new();
    for model in models() {
        for (number, (name, to, settings)) in TARGETS.into_iter().enumerate() {
            let own = dir.path().join(number.to_string());
            std::fs::create_dir(&own).unwrap();
            let target = own.join(name);
            let settings = settings.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
            let options = ConvertOptions { to: Some(to.to_owned()), settings, ..ConvertOptions::default() };
            // What a format cannot hold is refused, which others test.
            if convert(&model, &target, &options).is_ok() {
                *counts.entry(to).or_default() += 1;
                let open = OpenOptions { format: Some(to.to_owned()), ..OpenOptions::default() };
                let options = VerifyOptions { values: true, open, threads: 1, ..VerifyOptions::default() };
                let judged = |path: &Path| match verify(path, &options) {
                    Ok(report) => wrong_of(&report, to),
                    Err(error) => Some(error.to_string()),
                };
                let mut reported = judged(&target);
                if reported.is_some() && target.is_dir() {
                    // One file per tensor; no file is the model.
                    reported = each_file(&target).iter().find_map(|file| judged(file));
                }
                if let Some(reported) = reported {
                    let model = model.strip_prefix(testdata("")).unwrap().display();
                    wrong.push(format!("{model} as {name}: {reported}"));
                }
            }
            std::fs::remove_dir_all(&own).unwrap();
        }
    }
    assert!(wrong.is_empty(), "{} are not sound:\n{}", wrong.len(), wrong.join("\n"));
    assert!(counts.len() > 9 && counts.values().all(|&count| count > 3), "{counts:?}");
}
