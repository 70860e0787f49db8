//! Checkpoints of torch.distributed.checkpoint (`judges/make_dcp.py`): read, written, damaged.
#![allow(clippy::disallowed_methods)]

use super::{Dcp, metadata};
use serde_json::Value as Json;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weighbridge_core::checkpoint::{Checkpoint, Name, TensorEntry};
use weighbridge_core::error::{Kind, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::tensor::Order;
use weighbridge_format::{Detect, OpenOptions, PlanOptions, ReadFormat, WriteFormat};
use weighbridge_io::source::{FolderRef, MemoryFolder, SourceRef};
use weighbridge_io::testing::materialise;

/// Files of a folder by name.
type Files = BTreeMap<String, Vec<u8>>;

fn golden(name: &str) -> PathBuf {
    weighbridge_testkit::testdata("dcp").join(name)
}

fn files_of(name: &str) -> Files {
    let entries = std::fs::read_dir(golden("good").join(name)).unwrap();
    let file = |entry: std::io::Result<std::fs::DirEntry>| {
        let entry = entry.unwrap();
        (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap())
    };
    entries.map(file).collect()
}

fn folder(files: &Files) -> FolderRef {
    Arc::new(files.iter().fold(MemoryFolder::new("m"), |all, (name, bytes)| all.with(name, bytes.clone())))
}

fn open(files: &Files) -> Result<Checkpoint> {
    Dcp.open_folder(&folder(files), &OpenOptions::default())
}

fn salvage(files: &Files) -> Result<Checkpoint> {
    Dcp.open_folder(&folder(files), &OpenOptions { salvage: true, ..OpenOptions::default() })
}

fn written(checkpoint: &Checkpoint) -> Files {
    let plan = Dcp.plan(checkpoint, &PlanOptions::default()).unwrap();
    let names: Vec<String> = plan.files.iter().map(|file| file.name.clone()).collect();
    names.into_iter().zip(materialise(&plan)).collect()
}

fn expected() -> BTreeMap<String, Json> {
    serde_json::from_slice(&std::fs::read(golden("expected.json")).unwrap()).unwrap()
}

/// Compares the tensors of a checkpoint with those that torch read.
fn compare(name: &str, checkpoint: &Checkpoint, expected: &Json) {
    for (tensor, wanted) in expected["tensors"].as_object().unwrap() {
        let entry = checkpoint.tensor(tensor).unwrap_or_else(|error| panic!("{name}: {error:?}"));
        let shape: Vec<u64> = serde_json::from_value(wanted["shape"].clone()).unwrap();
        assert_eq!((entry.stored.name(), entry.shape.dims()), (wanted["dtype"].as_str().unwrap(), &*shape));
        let hash = Name::hex(&Sha256::digest(entry.read_tensor(Order::Row).unwrap()));
        assert_eq!(hash, wanted["sha256"].as_str().unwrap(), "{name}: {tensor}");
    }
    let tensors = expected["tensors"].as_object().unwrap();
    // Other tensors are inside of values.
    for entry in checkpoint.tensors.iter().filter(|entry| !tensors.contains_key(&entry.text())) {
        let text = entry.text();
        let values = expected["values"].as_object().unwrap();
        assert!(values.keys().any(|key| text.starts_with(&format!("{key}."))), "{name}: {text}");
    }
    for (key, value) in expected["values"].as_object().unwrap() {
        let is_object = value.as_str().is_some_and(|text| text.starts_with("object of"));
        if is_object || value.to_string().contains("object of") {
            continue;
        }
        let found = checkpoint.metadata.get(key).unwrap_or_else(|| panic!("{name}: no value {key}"));
        assert_eq!(&found.to_json(), value, "{name}: {key}");
    }
}

#[test]
fn golden_checkpoints_have_the_tensors_and_values_of_torch() {
    let all = expected();
    assert!(all.len() >= 20);
    for (name, expected) in all {
        let files = files_of(&name);
        assert!(Dcp.recognises_folder(&folder(&files)));
        let checkpoint = open(&files).unwrap_or_else(|error| panic!("{name}: {error:?}"));
        compare(&name, &checkpoint, &expected);
    }
}

#[test]
fn written_checkpoints_are_read_with_the_same_content() {
    for (name, expected) in expected() {
        let checkpoint = open(&files_of(&name)).unwrap();
        let files = written(&checkpoint);
        let again = open(&files).unwrap();
        compare(&name, &again, &expected);
        let tensors = |checkpoint: &Checkpoint| -> Vec<_> {
            let one = |entry: &TensorEntry| {
                (entry.path.clone(), entry.role.clone(), entry.stored, entry.shape.clone())
            };
            checkpoint.tensors.iter().map(one).collect()
        };
        assert_eq!(tensors(&again), tensors(&checkpoint), "{name}");
        assert_eq!(again.metadata, checkpoint.metadata, "{name}");
        // A second rewrite changes nothing.
        assert_eq!(written(&again), files, "{name}");
    }
}

#[test]
fn a_sharded_tensor_is_one_entry_with_an_extent_for_each_chunk() {
    let checkpoint = open(&files_of("t215_grid")).unwrap();
    let entry = checkpoint.tensor("w").unwrap();
    assert_eq!((entry.shape.dims(), entry.extents.len()), (&[4, 6][..], 4));
    let files: std::collections::BTreeSet<&str> =
        entry.extents.iter().map(|extent| extent.source.label()).collect();
    assert_eq!(files.len(), 4);
    // Ranks without rows write empty chunks, which are not extents.
    let rows = open(&files_of("t215_rows")).unwrap();
    assert_eq!(rows.tensor("few").unwrap().extents.len(), 2);
}

#[test]
fn optimizer_state_names_its_parameter() {
    for (name, state, parameter) in [
        ("t215_training", "optim.state.0.weight.exp_avg", "model.0.weight"),
        ("t215_flat_optimizer", "optim.state.0.bias.step", "model.0.bias"),
        ("t22_training", "optim.state.2.weight.exp_avg_sq", "model.2.weight"),
        ("t215_fsdp", "optim.state.2.weight.exp_avg", "model.2.weight"),
    ] {
        let checkpoint = open(&files_of(name)).unwrap();
        let entry = checkpoint.tensor(state).unwrap();
        let of = entry.role.state_of().unwrap_or_else(|| panic!("{name}: {state}"));
        assert_eq!((of.name.as_str(), of.guessed), (parameter, false));
        assert_eq!(checkpoint.tensor(parameter).unwrap().role.as_str(), "parameter");
    }
    // Numbers do not name a parameter.
    let checkpoint = open(&files_of("t215_numbered")).unwrap();
    let entry = checkpoint.tensor("optimizer.state.0.exp_avg").unwrap();
    assert!(entry.role.is_state() && entry.role.state_of().is_none());
}

#[test]
fn the_nesting_of_names_is_kept() {
    let checkpoint = open(&files_of("t215_training")).unwrap();
    let source = |files: &Files| -> SourceRef { weighbridge_testkit::memory(&files[".metadata"]) };
    let before = metadata::read(&source(&files_of("t215_training")), &Limits::default()).unwrap();
    let after = metadata::read(&source(&written(&checkpoint)), &Limits::default()).unwrap();
    assert_eq!(after.paths["optim.state.0.weight.exp_avg"].len(), 4);
    for (name, path) in &after.paths {
        assert_eq!(Some(path), before.paths.get(name), "{name}");
    }
    assert_eq!(after.paths.len(), before.paths.len());
}

#[test]
fn single_files_name_the_folder() {
    let files = files_of("t215_columns");
    let folder = folder(&files);
    let source = |name: &str| folder.open(Path::new(name)).unwrap().unwrap();
    let data = Dcp.open(source("__0_0.distcp"), &OpenOptions::default()).unwrap_err();
    assert_eq!((data.code().as_str(), data.kind()), ("torch-distributed", Kind::Usage));
    let name = Path::new(".metadata");
    let opened = Dcp.open_beside(source(".metadata"), &folder, name, &OpenOptions::default()).unwrap();
    assert_eq!(opened.tensors.len(), 3);
}

/// Every prefix of every file is rejected, or lists the same tensors.
#[test]
fn every_prefix_is_an_error() {
    let whole = files_of("t22_columns");
    for name in whole.keys() {
        for len in 0..whole[name].len() {
            let mut files = whole.clone();
            files.get_mut(name).unwrap().truncate(len);
            let error = open(&files).unwrap_err();
            assert!(matches!(error.kind(), Kind::Corrupt | Kind::Unsupported), "{name} {len}: {error:?}");
        }
    }
}

#[test]
fn every_changed_byte_of_the_metadata_is_an_error_or_readable() {
    let whole = files_of("t22_columns");
    for place in 0..whole[".metadata"].len() {
        for change in [1, 0x80] {
            let mut files = whole.clone();
            files.get_mut(".metadata").unwrap()[place] ^= change;
            if let Ok(checkpoint) = open(&files) {
                for entry in &checkpoint.tensors {
                    entry.read_tensor(Order::Row).unwrap();
                }
            }
        }
    }
}

#[test]
fn salvage_returns_the_tensors_of_intact_archives() {
    let mut files = files_of("t215_training");
    let data = files.get_mut("__0_0.distcp").unwrap();
    data.truncate(data.len() / 2);
    assert_eq!(open(&files).unwrap_err().kind(), Kind::Corrupt);
    let salvaged = salvage(&files).unwrap();
    let damage = salvaged.damage.as_ref().unwrap();
    let all = expected()["t215_training"]["tensors"].as_object().unwrap().len();
    assert!(!salvaged.tensors.is_empty() && !damage.lost.is_empty());
    assert_eq!(damage.expected, Some(all as u64));
    // A missing file loses the tensors with chunks in it.
    let mut files = files_of("t215_columns");
    files.remove("__1_0.distcp");
    assert_eq!(open(&files).unwrap_err().code().as_str(), "dcp-data");
    assert_eq!(salvage(&files).unwrap().damage.unwrap().lost.len(), 3);
}

/// Replaces the first occurrence of `from` in the metadata.
fn changed(name: &str, from: &[u8], to: &[u8]) -> Files {
    let mut files = files_of(name);
    let bytes = files.get_mut(".metadata").unwrap();
    let at = bytes.windows(from.len()).position(|window| window == from).unwrap();
    bytes.splice(at..at + from.len(), to.iter().copied());
    files
}

#[test]
fn contradicting_metadata_is_an_error() {
    let code = |files: &Files| open(files).unwrap_err().code().as_str();
    let dtype = changed("t22_linear", b"float32", b"float64");
    assert_eq!(code(&dtype), "dcp-chunk");
    let class = changed("t22_linear", b"ChunkStorageMetadata", b"ChunkStorageMetadat_");
    assert_eq!(code(&class), "dcp-metadata");
    let outside = changed("t22_linear", b"__0_0.distcp", b"../0_.distcp");
    assert_eq!(code(&outside), "unsafe-name");
    let missing = changed("t22_linear", b"__0_0.distcp", b"__9_0.distcp");
    assert_eq!(code(&missing), "dcp-data");
    // Two byte ranges of one chunk of 2 rows become one range.
    let mut files = files_of("t22_columns");
    let second = files["__0_0.distcp"].clone();
    files.insert("__1_0.distcp".into(), second);
    assert!(open(&files).is_err());
}

#[cfg(feature = "scan")]
#[test]
fn scans_find_code_in_the_metadata_and_in_values() {
    use weighbridge_core::finding::{Verdict, verdict};
    use weighbridge_format::ScanCode;
    let scanned = |name: &str, bytes: &[u8]| {
        let folder = folder(&[(name.to_owned(), bytes.to_vec())].into());
        let source = folder.open(Path::new(name)).unwrap().unwrap();
        Dcp.scan(&source, &OpenOptions::default()).unwrap()
    };
    for name in ["t215_training", "t22_training", "t215_values", "t215_grid", "t22_file_each"] {
        for (file, bytes) in files_of(name) {
            let scan = scanned(&file, &bytes);
            assert_eq!(verdict(&scan.findings), Verdict::Sound, "{name} {file}: {:?}", scan.findings);
            // A number imports nothing.
            assert!(file != ".metadata" || !scan.imports.is_empty(), "{name} {file}");
        }
    }
    let evil = changed("t22_linear", b"\x8c\x05torch\x94\x8c\x07float32", b"\x8c\x05posix\x94\x8c\x06system");
    assert_eq!(verdict(&scanned(".metadata", &evil[".metadata"]).findings), Verdict::Unsound);
}

#[test]
fn every_byte_has_a_use() {
    use weighbridge_core::check::{Use, account};
    use weighbridge_format::DeepCheck;
    for name in ["t215_training", "t22_grid", "t215_values"] {
        let checkpoint = open(&files_of(name)).unwrap();
        for file in weighbridge_core::check::held(&checkpoint.tensors, &checkpoint.files) {
            let outline = Dcp.outline(&file.source, &Limits::default()).unwrap();
            let (account, findings) = account(&file, &outline).unwrap();
            assert_eq!(findings, [], "{name}");
            let unknown = account.spans.iter().filter(|span| span.used == Use::Unknown).count();
            assert_eq!(unknown, 0, "{name}: {}", file.source.label());
        }
    }
}
