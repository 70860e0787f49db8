//! Files of MXNet (`judges/make_mxnet.py`): read, rewritten, damaged.
#![allow(clippy::disallowed_methods)]

use crate::MxNet;
use serde_json::Value as Json;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use weighbridge_core::checkpoint::{Checkpoint, Name, Rename, Role, Value};
use weighbridge_core::error::Result;
use weighbridge_core::tensor::{DType, Order};
use weighbridge_format::{DeepCheck, OpenOptions, PlanOptions, Registry, ScanCode, WriteFormat};
use weighbridge_io::source::{CountingSource, SourceRef};
use weighbridge_io::testing::materialise;
use weighbridge_testkit::memory;

fn registry() -> Registry {
    Registry::new([&MxNet as _])
}

fn golden(name: &str) -> PathBuf {
    weighbridge_testkit::testdata("mxnet").join(name)
}

fn opened(name: &str) -> Checkpoint {
    registry().open_with(golden("good").join(name), &OpenOptions::default()).unwrap()
}

fn open(bytes: &[u8]) -> Result<Checkpoint> {
    registry().open_source(memory(bytes), &forced())
}

fn forced() -> OpenOptions {
    OpenOptions { format: Some("mxnet".to_owned()), ..OpenOptions::default() }
}

fn bytes_of(name: &str) -> Vec<u8> {
    std::fs::read(golden(name)).unwrap()
}

fn names(checkpoint: &Checkpoint) -> Vec<String> {
    checkpoint.tensors.iter().map(|t| t.path.to_text()).collect()
}

fn written(checkpoint: &Checkpoint) -> Vec<u8> {
    let plan = MxNet.plan(checkpoint, &PlanOptions::default()).unwrap();
    assert!(plan.is_one_file());
    materialise(&plan).remove(0)
}

fn expected() -> BTreeMap<String, BTreeMap<String, Json>> {
    serde_json::from_slice(&bytes_of("expected.json")).unwrap()
}

#[test]
fn golden_files_have_the_arrays_of_mxnet() {
    assert!(expected().len() > 25);
    for (file, tensors) in expected() {
        let checkpoint = opened(&file);
        let mut found = names(&checkpoint);
        found.sort();
        assert_eq!(found, tensors.keys().cloned().collect::<Vec<_>>(), "{file}");
        for (name, wanted) in tensors {
            let tensor = checkpoint.tensors.iter().find(|t| t.path.to_text() == name).unwrap();
            let shape: Vec<u64> = serde_json::from_value(wanted["shape"].clone()).unwrap();
            let dtype = wanted["dtype"].as_str().unwrap();
            assert_eq!((tensor.stored.name(), tensor.shape.dims()), (dtype, &*shape), "{file} {name}");
            let data = tensor.read_tensor(Order::Row).unwrap();
            let hash = wanted["sha256"].as_str().unwrap();
            assert_eq!(Name::hex(&Sha256::digest(data)), hash, "{file} {name}");
        }
    }
}

#[test]
fn unchanged_files_are_written_byte_for_byte() {
    for file in expected().keys().map(String::as_str).chain(["module-symbol.json"]) {
        // An array without elements is not in the index.
        if !["none.params", "sparse_unstated.params"].contains(&file) {
            assert!(written(&opened(file)) == bytes_of(&format!("good/{file}")), "{file}");
        }
    }
    assert!(written(&opened("sparse_unstated.params")) == bytes_of("good/sparse.params"));
    let plan = MxNet.plan(&opened("none.params"), &PlanOptions::default()).unwrap();
    assert_eq!(plan.losses.iter().map(|loss| loss.code.as_str()).collect::<Vec<_>>(), ["tensor-skipped"]);
}

#[test]
fn prefixes_are_roles() {
    let module = opened("module-0003.params");
    assert_eq!(module.kind, "module");
    let role = |checkpoint: &Checkpoint, name: &str| checkpoint.tensor(name).unwrap().role.clone();
    assert_eq!(role(&module, "bn1_moving_mean"), Role::Buffer);
    assert_eq!(role(&module, "fc1_weight"), Role::Parameter);
    let gluon = opened("gluon.params");
    assert_eq!(gluon.kind, "gluon");
    assert_eq!(role(&gluon, "1.running_var"), Role::Buffer);
    assert_eq!(role(&gluon, "0.weight"), Role::Parameter);
    assert_eq!(opened("list.params").kind, "list");
}

#[test]
fn the_symbol_beside_is_the_program() {
    let checkpoint = opened("module-0003.params");
    let symbol = checkpoint.topology.as_deref().unwrap();
    assert_eq!(symbol.writer.as_deref(), Some("1.9.1"));
    let feeds: Vec<_> = symbol.feeds.iter().map(|feed| feed.name.as_str()).collect();
    assert_eq!(feeds, ["data", "softmax_label"]);
    assert_eq!(symbol.fetches[0].name, "softmax_output");
    let kinds: Vec<_> = symbol.operators().map(|operator| operator.kind.as_str()).collect();
    assert_eq!(kinds, ["FullyConnected", "BatchNorm", "Activation", "FullyConnected", "SoftmaxOutput"]);
    let parameters: Vec<_> = symbol.parameters().iter().map(|v| v.name.clone()).collect();
    let mut stored = names(&checkpoint);
    stored.sort();
    assert_eq!(parameters, stored);
    for file in ["module-0003", "exported-0000", "loop-0012", "old-0010"] {
        let checkpoint = opened(&format!("{file}.params"));
        let findings =
            weighbridge_core::check::program(checkpoint.topology.as_deref().unwrap(), &checkpoint.tensors);
        assert!(findings.is_empty(), "{file}: {findings:?}");
    }
    // A parameter without an array is missing.
    let mut less = opened("module-0003.params");
    less.tensors.remove(0);
    let findings = weighbridge_core::check::program(less.topology.as_deref().unwrap(), &less.tensors);
    assert_eq!(findings.iter().map(|f| f.code.as_str()).collect::<Vec<_>>(), ["missing-parameter"]);
    let looped = opened("loop-0012.params").topology.unwrap();
    assert_eq!(looped.blocks.len(), 2);
    assert!(looped.operators().any(|operator| operator.kind == "_foreach" && operator.blocks == [1]));
    let alone = opened("exported-symbol.json");
    assert_eq!((alone.kind, alone.tensors.len()), ("symbol", 0));
    assert!(alone.topology.unwrap().parameters().iter().any(|v| v.name.ends_with("conv0_weight")));
}

#[test]
fn a_model_is_written_with_its_symbol() {
    let mut checkpoint = opened("exported-0000.params");
    let options = PlanOptions::of_kind("model");
    let plan = MxNet.plan(&checkpoint, &options).unwrap();
    assert!(plan.losses.is_empty(), "{:?}", plan.losses);
    let files: Vec<_> = plan.files.iter().map(|file| file.name.as_str()).collect();
    assert_eq!(files, ["model-symbol.json", "model-0000.params"]);
    let made = materialise(&plan);
    assert!(
        made[0] == bytes_of("good/exported-symbol.json") && made[1] == bytes_of("good/exported-0000.params")
    );
    let plain = MxNet.plan(&checkpoint, &PlanOptions::default()).unwrap();
    assert_eq!(plain.losses.iter().map(|loss| loss.code.as_str()).collect::<Vec<_>>(), ["program"]);
    let name = names(&checkpoint).remove(0);
    checkpoint.rename(&[Rename::parse(&format!("{name}=renamed")).unwrap()]).unwrap();
    let error = MxNet.plan(&checkpoint, &options).unwrap_err();
    assert_eq!(error.code().as_str(), "belongs-to-a-program");
    assert_eq!(MxNet.plan(&opened("list.params"), &options).unwrap_err().code().as_str(), "no-program");
}

#[test]
fn roles_come_back_or_are_losses() {
    let mut checkpoint = opened("exported-0000.params");
    checkpoint.rename(&[Rename::parse("batchnorm0_running_mean=average").unwrap()]).unwrap();
    checkpoint.tensors[0].role = Role::Embedding;
    let first = checkpoint.tensors[0].name();
    for (kind, expected) in [("module", vec![&*first]), ("gluon", vec!["average", &*first])] {
        let plan = MxNet.plan(&checkpoint, &PlanOptions::of_kind(kind)).unwrap();
        let lost = plan.losses.iter().filter(|loss| loss.code == "role");
        let lost: BTreeSet<&str> = lost.map(|loss| loss.subject.as_str()).collect();
        assert_eq!(lost, BTreeSet::from_iter(expected), "{kind}");
        let again = open(&materialise(&plan)[0]).unwrap();
        for tensor in checkpoint.tensors.iter().filter(|tensor| !lost.contains(&*tensor.name())) {
            assert_eq!(again.tensor(&tensor.name()).unwrap().role, tensor.role, "{kind} {}", tensor.name());
        }
    }
}

#[test]
fn changed_files_are_read_again() {
    let mut checkpoint = opened("sparse.params");
    checkpoint.rename(&[Rename::parse("embed=table").unwrap()]).unwrap();
    checkpoint.cast_floats(DType::F16).unwrap();
    let again = open(&written(&checkpoint)).unwrap();
    assert_eq!(names(&again), names(&checkpoint));
    let part = again.tensor("table.rows.data").unwrap();
    assert_eq!(part.stored, DType::F16);
    assert_eq!(part.text_attribute("sparse_layout"), Some("row_sparse"));
    // Without its indices, data is a dense array.
    checkpoint.tensors.retain(|tensor| tensor.path.to_text() != "table.rows.indices");
    let plan = MxNet.plan(&checkpoint, &PlanOptions::default()).unwrap();
    assert_eq!(plan.losses.iter().map(|loss| loss.code.as_str()).collect::<Vec<_>>(), ["parts-missing"]);
    let again = open(&materialise(&plan)[0]).unwrap();
    assert_eq!(names(&again), names(&checkpoint));
    // A scalar needs version 3.
    let mut scalar = opened("numpy_shapes.params");
    scalar.metadata.remove("ndarray_version");
    let again = open(&written(&scalar)).unwrap();
    assert_eq!(again.metadata.get("ndarray_version"), Some(&Value::U64(3)));
    // Names of a list are written once they differ from its numbers.
    let mut list = opened("list.params");
    list.rename(&[Rename::parse("0=w").unwrap()]).unwrap();
    assert_eq!(names(&open(&written(&list)).unwrap()), ["w", "1"]);
}

#[test]
fn opening_reads_no_elements() {
    let mut bytes = bytes_of("good/version_1.params");
    bytes.truncate(24);
    bytes[16] = 1;
    bytes.extend(0xf993_fac8_u32.to_le_bytes());
    bytes.extend(1_i32.to_le_bytes());
    bytes.extend((1_u64 << 20).to_le_bytes());
    for number in [1_i32, 0, 3] {
        bytes.extend(number.to_le_bytes());
    }
    bytes.resize(bytes.len() + (1 << 20), 7);
    bytes.extend(1_u64.to_le_bytes());
    bytes.extend(1_u64.to_le_bytes());
    bytes.push(b'w');
    let counted = Arc::new(CountingSource::new(memory(&bytes)));
    let source: SourceRef = counted.clone();
    let checkpoint = registry().open_source(source, &OpenOptions::default()).unwrap();
    assert_eq!(checkpoint.tensor("w").unwrap().bytes(), 1 << 20);
    assert!(counted.bytes_read() < 16 << 10, "{}", counted.bytes_read());
    assert!(written(&checkpoint) == bytes);
}

#[test]
fn damaged_files_have_their_own_errors() {
    let wanted = [
        ("count-larger.params", "names-differ"),
        ("count-too-large.params", "limit"),
        ("cut-symbol.json", "bad-json"),
        ("cycle-symbol.json", "bad-program"),
        ("deep-symbol.json", "bad-json"),
        ("dimensions.params", "limit"),
        ("dimensions-negative.params", "negative-dimension"),
        ("dtype-unknown.params", "unknown-dtype"),
        ("name-too-long.params", "limit"),
        ("names-fewer.params", "names-differ"),
        ("reserved.params", "unknown-version"),
        ("shape-overflow.params", "shape-overflow"),
        ("size-negative.params", "negative-dimension"),
        ("size-too-large.params", "truncated"),
        ("storage-unknown.params", "unknown-type"),
        ("trailing.params", "trailing-bytes"),
        ("truncated.params", "truncated"),
        ("version-unknown.params", "unknown-version"),
    ];
    for (file, code) in wanted {
        let error = registry().open_with(golden("bad").join(file), &forced()).unwrap_err();
        assert_eq!(error.code().as_str(), code, "{file}: {error}");
        assert!(error.file().is_some(), "{file}: {error}");
    }
    let lenient = OpenOptions { lenient: true, ..OpenOptions::default() };
    let checkpoint = registry().open_with(golden("bad/trailing.params"), &lenient).unwrap();
    assert_eq!(checkpoint.notes[0].code, "trailing-bytes");
}

#[test]
fn every_prefix_is_an_error() {
    for file in ["version_0", "version_1", "sparse", "numpy_shapes", "list", "mixed", "none"] {
        let bytes = bytes_of(&format!("good/{file}.params"));
        let whole = open(&bytes).unwrap();
        for end in 0..bytes.len() {
            let error = open(&bytes[..end]).unwrap_err();
            assert!(error.offset().is_some() || error.code() == "empty-file", "{file} {end}: {error}");
            let salvage = OpenOptions { salvage: true, ..forced() };
            let Ok(saved) = registry().open_source(memory(&bytes[..end]), &salvage) else { continue };
            assert!(saved.damage.is_some());
            for (tensor, wanted) in saved.tensors.iter().zip(&whole.tensors) {
                assert!(tensor.guessed);
                assert_eq!(tensor.read_tensor(Order::Row).unwrap(), wanted.read_tensor(Order::Row).unwrap());
            }
        }
    }
}

#[test]
fn a_truncated_file_keeps_its_intact_arrays() {
    let options = OpenOptions { salvage: true, ..OpenOptions::default() };
    let saved = registry().open_source(memory(bytes_of("bad/truncated.params")), &options).unwrap();
    assert_eq!(names(&saved), ["0", "1"]);
    let damage = saved.damage.as_ref().unwrap();
    assert_eq!(damage.expected, Some(3));
    // The third array has no name, and is lost nevertheless.
    assert_eq!(damage.losses(saved.tensors.len())[0].code.as_str(), "missing-damaged");
    assert!(saved.notes.iter().any(|note| note.code == "names-missing"));
    let whole = opened("version_1.params");
    for (tensor, wanted) in saved.tensors.iter().zip(&whole.tensors) {
        assert_eq!(tensor.read_tensor(Order::Row).unwrap(), wanted.read_tensor(Order::Row).unwrap());
    }
}

#[test]
fn a_damaged_number_of_arrays_keeps_the_names() {
    let mut bytes = bytes_of("good/gluon.params");
    bytes[16] ^= 0x41;
    assert!(open(&bytes).is_err());
    let saved = registry().open_source(memory(&bytes), &OpenOptions { salvage: true, ..forced() }).unwrap();
    assert_eq!(names(&saved), names(&opened("gluon.params")));
    // Some names are cut: the arrays have their numbers.
    let whole = bytes_of("good/module-0003.params");
    let cut = memory(&whole[..whole.len() - 3]);
    let saved = registry().open_source(cut, &OpenOptions { salvage: true, ..forced() }).unwrap();
    assert_eq!(names(&saved), ["0", "1", "2", "3", "4", "5", "6", "7"]);
}

/// Changed bytes cause errors, never panics; a file that opens can be written, and its bytes are accounted for.
#[test]
fn mutations_never_panic() {
    for file in
        ["version_0.params", "sparse.params", "numpy_shapes.params", "loop-symbol.json", "old-symbol.json"]
    {
        let bytes = bytes_of(&format!("good/{file}"));
        for place in 0..bytes.len() {
            for change in [1u8, 0x80] {
                let mut changed = bytes.clone();
                changed[place] ^= change;
                let source = memory(&changed);
                _ = MxNet.outline(&source, &OpenOptions::default().limits);
                _ = MxNet.scan(&source, &OpenOptions::default());
                match registry().open_source(source, &forced()) {
                    Ok(checkpoint) => {
                        _ = MxNet.plan(&checkpoint, &PlanOptions::default()).map(|plan| materialise(&plan))
                    }
                    Err(_) => {
                        let salvage = OpenOptions { salvage: true, ..forced() };
                        _ = registry().open_source(memory(&changed), &salvage);
                    }
                }
            }
        }
    }
}

#[test]
fn custom_operators_are_found() {
    let text = br#"{"nodes": [{"op": "null", "name": "x", "inputs": []},
        {"op": "Custom", "name": "c", "attrs": {"op_type": "my_softmax"}, "inputs": [[0, 0, 0]]}], "heads": [[1, 0, 0]]}"#;
    let codes = |bytes: &[u8]| {
        let scan = MxNet.scan(&memory(bytes), &OpenOptions::default()).unwrap();
        scan.findings.iter().map(|finding| finding.code.as_str()).collect::<Vec<_>>()
    };
    assert_eq!(codes(text), ["custom-operators"]);
    assert!(codes(&bytes_of("good/exported-symbol.json")).is_empty());
    assert!(codes(&bytes_of("good/module-0003.params")).is_empty());
    assert_eq!(codes(&bytes_of("bad/truncated.params")), ["unreadable"]);
}
