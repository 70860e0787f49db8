//! Every rule of `scan` has a crafted file that triggers it, and no good file has a false alarm.

use crate::support::{testdata, walk};
use serde_json::Value as Json;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use weighbridge::OpenOptions;
use weighbridge::finding::Severity;
use weighbridge::ops::scan::{Rule, ScanReport, scan, scan_word};

fn look(path: impl AsRef<Path>) -> ScanReport {
    scan(path, &OpenOptions::default()).unwrap()
}

fn codes(report: &ScanReport) -> BTreeSet<&'static str> {
    report.files.iter().flat_map(|file| &file.scan.findings).map(|finding| finding.code.as_str()).collect()
}

/// What is expected of each crafted file.
fn expected() -> BTreeMap<String, Json> {
    serde_json::from_slice(&fs::read(testdata("scan/expected.json")).unwrap()).unwrap()
}

#[test]
fn crafted_files_have_their_codes() {
    let expected = expected();
    let folder = testdata("scan/bad");
    let mut files = Vec::new();
    walk(&folder, &mut files);
    let names: BTreeSet<_> =
        files.iter().map(|file| file.strip_prefix(&folder).unwrap().to_str().unwrap()).collect();
    assert_eq!(names, expected.keys().map(String::as_str).collect());
    for (name, wanted) in &expected {
        let report = look(folder.join(name));
        let found = codes(&report);
        for code in wanted["codes"].as_array().unwrap() {
            assert!(found.contains(code.as_str().unwrap()), "{name}: {code} is not among {found:?}");
        }
        assert_eq!(scan_word(report.verdict), wanted["verdict"], "{name}: {report:?}");
        for finding in report.files.iter().flat_map(|file| &file.scan.findings) {
            let rule = Rule::ALL.iter().find(|rule| rule.code == finding.code.as_str());
            let rule = rule.unwrap_or_else(|| panic!("{name}: {} is no rule", finding.code.as_str()));
            // The rule for unlisted content has the severity of its worst finding.
            assert!(finding.severity >= rule.severity, "{name}: {finding:?}");
            assert!(finding.severity == rule.severity || rule.code == "more-findings", "{name}: {finding:?}");
        }
    }
}

#[test]
fn every_rule_has_a_file_that_proves_it() {
    let expected = expected();
    for rule in Rule::ALL.iter().filter(|rule| !rule.proof.starts_with("folder:")) {
        let wanted =
            expected.get(rule.proof).unwrap_or_else(|| panic!("{}: no file {}", rule.code, rule.proof));
        let proved = wanted["codes"].as_array().unwrap().iter().any(|code| code == rule.code);
        assert!(proved, "{} does not prove {}", rule.proof, rule.code);
        // What a rule says of the verdict holds where nothing else is found.
        let least = match rule.severity {
            Severity::Error => "found",
            Severity::Unchecked => "could-not-tell",
            _ => "clean",
        };
        assert_eq!(wanted["verdict"], least, "{}", rule.proof);
    }
}

/// Rules about folders, which no file can prove.
#[cfg(unix)]
#[test]
fn folders_prove_the_rules_of_folders() {
    use std::os::unix::{fs::symlink, net::UnixListener};
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("note.txt"), "words").unwrap();
    type Make<'a> = &'a dyn Fn(&Path);
    let make: [(&str, Make); 6] = [
        ("folder:too_deep", &|f| fs::create_dir_all(f.join("a/".repeat(17))).unwrap()),
        ("folder:link_to_folder", &|f| symlink(outside.path(), f.join("link")).unwrap()),
        ("folder:dead_link", &|f| symlink("nowhere", f.join("link")).unwrap()),
        ("folder:not_a_file", &|f| drop(UnixListener::bind(f.join("socket")).unwrap())),
        ("folder:empty", &|_| {}),
        ("folder:link_out", &|f| symlink(outside.path().join("note.txt"), f.join("note.txt")).unwrap()),
    ];
    for rule in Rule::ALL.iter().filter(|rule| rule.proof.starts_with("folder:")) {
        let (_, make) =
            make.iter().find(|(name, _)| *name == rule.proof).unwrap_or_else(|| panic!("{}", rule.proof));
        let folder = tempfile::tempdir().unwrap();
        make(folder.path());
        assert_eq!(codes(&look(folder.path())), BTreeSet::from([rule.code]));
    }
    // A link that stays within is looked through like any other file.
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join(".hidden.txt"), "words").unwrap();
    symlink(".hidden.txt", folder.path().join("note.txt")).unwrap();
    let report = look(folder.path());
    assert_eq!((scan_word(report.verdict), report.files.len()), ("clean", 2));
}

/// Good files in which something is found, and what.
const FOUND: &[(&str, &[&str])] = &[
    // Code, and a function of Python that prints.
    ("torch/good/script.pt", &["torchscript-code"]),
    ("torch/good/arguments.pt", &["dangerous-import"]),
    ("caffe/good/python.caffemodel", &["runs-python"]),
    // An operator that reads a file.
    ("tflite/good/flex_files.tflite", &["reads-files"]),
    // Made to reach out.
    ("hdf5/good/groups_", &["hdf5-external-link"]),
    ("hdf5/good/layouts_", &["hdf5-external-storage", "hdf5-virtual"]),
];

/// Good files with unscanned content, and that content.
const UNTOLD: &[(&str, &[&str])] = &[
    // Edge lists: text whose columns have no numbers.
    ("biggraph/set1/input/", &["unknown-content"]),
    ("samples/shop/edges.tsv", &["unknown-content"]),
    ("hdf5/good/attributes_", &["left-out", "opaque-bytes"]),
    ("hdf5/good/types_", &["left-out", "opaque-bytes", "zip-damaged"]),
    ("hdf5/small/attributes_", &["opaque-bytes"]),
    // Tensors of classes of the author's own.
    ("torch/good/parameter.pt", &["unknown-import"]),
    ("torch/good/parameter_legacy.pt", &["unknown-import"]),
    // A module of torch, saved as a whole.
    ("dcp/good/t22_objects/__0_0.distcp", &["unknown-import"]),
    // Blobs and arrays without elements, or with elements in a form that no program writes.
    ("mxnet/good/none.params", &["left-out"]),
    ("caffe/good/chunks.caffemodel", &["left-out"]),
    ("caffe/good/odd_blobs.caffemodel", &["left-out"]),
    // Text and sparse constants, and an operator of another library.
    ("tflite/good/strings.tflite", &["left-out"]),
    ("tflite/good/sparse.tflite", &["left-out"]),
    ("tflite/good/custom.tflite", &["custom-operators"]),
    // Exceptions.
    ("pickle/good/python/types_p", &["unknown-import"]),
    // Compressed in a way that is not read.
    ("npz/good/bzip2.npz", &["unreadable"]),
    ("tables/fixed.brotli.parquet", &["unreadable"]),
    // Values and nodes of stores, and packed chunks, are only read as a whole checkpoint.
    ("orbax/good/", &["unknown-content", "archive-not-entered"]),
    // Constants, which only the network describes.
    ("openvino/good/", &["unknown-content"]),
    // Layers, models and operations of the application, and trees.
    ("coreml/good/custom.mlmodel", &["custom-operators"]),
    ("coreml/good/opaque.mlmodel", &["custom-operators", "left-out"]),
    ("coreml/good/blobs.mlpackage/", &["custom-operators"]),
    ("coreml/good/forest.mlmodel", &["left-out"]),
    // Weights, which only the network describes, and a layer of the application.
    ("ncnn/good/custom.param", &["custom-operators"]),
    ("ncnn/good/", &["unknown-content"]),
    // Arrays of dtypes that are not read.
    ("flax/good/unsupported_dtypes.msgpack", &["left-out"]),
    // A graph in text form.
    ("tensorflow/good/saved_text/saved_model.pbtxt", &["left-out"]),
    // Edges that lack a list, or have lists of different lengths.
    ("biggraph/alt/lhs_shorter/", &["unreadable"]),
    ("biggraph/alt/missing_lhs/", &["unreadable"]),
];

#[test]
fn good_files_give_no_false_alarm() {
    let mut counts = BTreeMap::new();
    for folder in [
        "biggraph",
        "cast",
        "gguf/good",
        "flax/good",
        "dcp/good",
        "deepspeed/good",
        "hdf5/good",
        "hdf5/small",
        "joblib/good",
        "npy/good",
        "npz/good",
        "onnx/good",
        "mxnet/good",
        "caffe/good",
        "darknet/good",
        "orbax/good",
        "paddle/good",
        "pickle/good",
        "primitiv/good",
        "safetensors/good",
        "safetensors/shards",
        "tables",
        "tensorflow/good",
        "tflite/good",
        "openvino/good",
        "coreml/good",
        "ncnn/good",
        "torch/good",
    ] {
        let report = look(testdata(folder));
        for file in &report.files {
            let name = Path::new(&file.label).strip_prefix(testdata("")).unwrap().to_str().unwrap();
            if name.ends_with(".py") {
                continue;
            }
            let weighs = |severity| {
                let findings = file.scan.findings.iter().filter(move |finding| finding.severity == severity);
                findings.map(|finding| finding.code.as_str()).collect::<BTreeSet<_>>()
            };
            let allowed = |list: &[(&str, &[&'static str])]| {
                let known = list.iter().find(|(start, _)| name.starts_with(start));
                known.map(|(_, codes)| codes.iter().copied().collect::<BTreeSet<_>>()).unwrap_or_default()
            };
            let (found, untold) = (weighs(Severity::Error), weighs(Severity::Unchecked));
            assert!(found.is_subset(&allowed(FOUND)), "{name}: {:?}", file.scan.findings);
            assert!(
                untold.is_subset(&allowed(UNTOLD)) || !found.is_empty(),
                "{name}: {:?}",
                file.scan.findings
            );
            *counts.entry(scan_word(file.verdict())).or_insert(0) += 1;
        }
    }
    println!("{counts:?}");
    assert!(counts["clean"] >= 1_000, "{counts:?}");
    // What is listed above is there.
    assert!(counts["found"] >= FOUND.len() && counts["could-not-tell"] >= UNTOLD.len(), "{counts:?}");
}
