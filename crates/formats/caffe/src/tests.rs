//! Files of Caffe (`judges/make_caffe.py`): read and damaged.
#![allow(clippy::disallowed_methods)]

use crate::Caffe;
use serde_json::Value as Json;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weighbridge_core::checkpoint::{Checkpoint, Name, Role, Value};
use weighbridge_core::error::Result;
use weighbridge_core::tensor::Order;
use weighbridge_core::topology::AttributeValue;
use weighbridge_format::{DeepCheck, Detect, OpenOptions, Registry, ScanCode};
use weighbridge_io::source::{CountingSource, FolderRef, MemoryFolder, SourceRef};
use weighbridge_testkit::memory;

fn registry() -> Registry {
    Registry::new([&Caffe as _])
}

fn golden(name: &str) -> PathBuf {
    weighbridge_testkit::testdata("caffe").join(name)
}

fn bytes_of(name: &str) -> Vec<u8> {
    std::fs::read(golden(name)).unwrap()
}

fn opened(name: &str) -> Checkpoint {
    registry().open_with(golden("good").join(name), &OpenOptions::default()).unwrap()
}

fn forced() -> OpenOptions {
    OpenOptions { format: Some("caffe".to_owned()), ..OpenOptions::default() }
}

fn open(bytes: &[u8]) -> Result<Checkpoint> {
    registry().open_source(memory(bytes), &forced())
}

fn names(checkpoint: &Checkpoint) -> Vec<String> {
    checkpoint.tensors.iter().map(|t| t.path.to_text()).collect()
}

fn expected() -> BTreeMap<String, BTreeMap<String, Json>> {
    serde_json::from_slice(&bytes_of("expected.json")).unwrap()
}

#[test]
fn golden_files_have_the_blobs_of_caffe() {
    assert!(expected().len() > 20);
    for (file, tensors) in expected() {
        // Found by content, not by the name.
        let source = memory(bytes_of(&format!("good/{file}")));
        let checkpoint = registry().open_source(source, &OpenOptions::default()).unwrap();
        let mut found = names(&checkpoint);
        found.sort();
        assert_eq!(found, tensors.keys().cloned().collect::<Vec<_>>(), "{file}");
        for (name, wanted) in tensors {
            let tensor = checkpoint.tensors.iter().find(|t| t.path.to_text() == name).unwrap();
            let shape: Vec<u64> = serde_json::from_value(wanted["shape"].clone()).unwrap();
            let dtype = wanted["dtype"].as_str().unwrap();
            assert_eq!((tensor.stored.name(), tensor.shape.dims()), (dtype, &*shape), "{file} {name}");
            let data = tensor.read_tensor(Order::Row).unwrap();
            assert_eq!(Name::hex(&Sha256::digest(data)), wanted["sha256"].as_str().unwrap(), "{file} {name}");
        }
    }
}

#[test]
fn blobs_have_their_meaning_and_role() {
    let checkpoint = opened("lenet.caffemodel");
    let described = |name: &str| {
        let tensor = checkpoint.tensor(name).unwrap();
        (tensor.text_attribute("blob").unwrap().to_owned(), tensor.role.clone())
    };
    assert_eq!(described("conv1.1"), ("bias".to_owned(), Role::Parameter));
    assert_eq!(described("bn1.2"), ("scale_factor".to_owned(), Role::Buffer));
    assert_eq!(described("scale1.0"), ("scale".to_owned(), Role::Parameter));
    assert_eq!(opened("embed.caffemodel").tensors[0].role, Role::Embedding);
    assert_eq!(opened("unknown_type.caffemodel").tensor("mylayer1.0").unwrap().text_attribute("blob"), None);
    let state = opened("adam.solverstate");
    assert_eq!(state.metadata.get("iter"), Some(&Value::I64(1000)));
    assert_eq!(
        state.metadata.get("learned_net"),
        Some(&Value::Text("lenet_iter_1000.caffemodel".to_owned()))
    );
    assert!(state.tensors.iter().all(|tensor| tensor.role.is_state()));
}

#[test]
fn skipped_blobs_are_noted() {
    let notes = |file: &str| {
        opened(file)
            .notes
            .iter()
            .filter_map(|note| note.skipped.as_ref().map(|s| s.name.clone()))
            .collect::<Vec<_>>()
    };
    assert_eq!(notes("chunks.caffemodel"), ["l.1"]);
    assert_eq!(notes("odd_blobs.caffemodel"), ["l.3"]);
    assert!(opened("names.caffemodel").notes.iter().any(|note| note.code == "name-collision"));
}

/// Layers as (type, inputs, outputs).
fn layers(checkpoint: &Checkpoint) -> Vec<(String, Vec<String>, Vec<String>)> {
    let topology = checkpoint.topology.as_deref().unwrap();
    let slot = |slots: &[weighbridge_core::topology::Slot]| slots[0].arguments.clone();
    topology.operators().map(|o| (o.kind.clone(), slot(&o.inputs), slot(&o.outputs))).collect()
}

#[test]
fn networks_of_all_versions_are_programs() {
    for version in ["v0", "v1", "lenet"] {
        let text = opened(&format!("{version}.prototxt"));
        assert_eq!((text.kind, text.tensors.len()), ("network", 0));
        let binary = open(&bytes_of(&format!("good/{version}.caffemodel"))).unwrap();
        assert_eq!(layers(&text), layers(&binary), "{version}");
        let topologies = [&text, &binary].map(|c| c.topology.clone().unwrap());
        assert_eq!(topologies[0].feeds, topologies[1].feeds);
        assert_eq!(topologies[0].fetches, topologies[1].fetches);
        for topology in topologies {
            assert!(weighbridge_core::check::program(&topology, &binary.tensors).is_empty(), "{version}");
            let sized = topology.operators().find(|o| matches!(o.kind.as_str(), "Convolution")).unwrap();
            let key = if version == "v0" { "num_output" } else { "convolution_param.num_output" };
            assert!(matches!(sized.attribute(key), Some(AttributeValue::Int(2 | 3))), "{version}");
        }
    }
    let lenet = opened("lenet.caffemodel").topology.unwrap();
    assert_eq!(
        (lenet.feeds[0].name.as_str(), lenet.feeds[0].shape.as_deref()),
        ("data", Some(&[1, 1, 8, 8][..]))
    );
    let v1 = opened("v1.caffemodel").topology.unwrap();
    assert_eq!(v1.feeds[0].shape.as_deref(), Some(&[1, 1, 4, 4][..]));
    assert_eq!(v1.fetches[0].name, "fc");
    let kinds: Vec<_> = v1.operators().map(|o| o.kind.clone()).collect();
    assert_eq!(kinds, ["Convolution", "ReLU", "InnerProduct"]);
}

#[test]
fn the_network_beside_is_the_program() {
    let folder = MemoryFolder::new("m")
        .with("net_iter_10.caffemodel", bytes_of("good/lenet.caffemodel"))
        .with("net.prototxt", bytes_of("good/lenet.prototxt"));
    let folder: FolderRef = Arc::new(folder);
    let checkpoint = registry().open_folder(&folder, &OpenOptions::default()).unwrap();
    assert_eq!(checkpoint.tensors.len(), 9);
    assert!(*checkpoint.topology.as_ref().unwrap().bytes == bytes_of("good/lenet.prototxt"));
    assert!(Caffe.check(&checkpoint).unwrap().is_empty());
    // A layer without blobs.
    let more =
        String::from_utf8(bytes_of("good/lenet.prototxt")).unwrap().replace("\"ip1\" type", "\"ip2\" type");
    let folder = MemoryFolder::new("m")
        .with("a.caffemodel", bytes_of("good/lenet.caffemodel"))
        .with("deploy.prototxt", more.into_bytes());
    let folder: FolderRef = Arc::new(folder);
    let checkpoint = registry().open_folder(&folder, &OpenOptions::default()).unwrap();
    let findings = Caffe.check(&checkpoint).unwrap();
    assert_eq!(findings.iter().map(|f| f.code.as_str()).collect::<Vec<_>>(), ["missing-parameter"]);
}

#[test]
fn other_protobuf_files_are_not_recognized() {
    for file in ["onnx/good/mlp.onnx", "paddle/good/p262/cnn_static_infer/model.pdmodel"] {
        let path = weighbridge_testkit::testdata(file);
        let Ok(bytes) = std::fs::read(path) else { continue };
        assert!(!Caffe.recognises(&bytes[..bytes.len().min(4096)], &memory(&bytes)), "{file}");
    }
    // A graph of TensorFlow: nodes, and a library of functions.
    let graph =
        [&b"\x0a\x0a\x0a\x01x\x12\x05Const"[..], b"\x0a\x0a\x0a\x01y\x12\x05Const", b"\x12\x02\x0a\x00"]
            .concat();
    assert!(!Caffe.recognises(&graph, &memory(&graph)));
    // A solver, not a network.
    let solver = b"net: \"train.prototxt\"\ntype: \"SGD\"\nbase_lr: 0.1\n";
    assert!(!Caffe.recognises(solver, &memory(solver)));
}

#[test]
fn opening_reads_no_elements() {
    let mut layer = b"\x0a\x01l\x12\x04Bias".to_vec();
    let elements = 1u32 << 20;
    let mut blob = vec![0x3a, 0x06, 0x0a, 0x04];
    // 2^18 elements.
    blob.extend([0x80, 0x80, 0x10 | 0x80, 0x00]);
    blob.push(0x2a);
    buffa::encoding::encode_varint(elements.into(), &mut blob);
    blob.resize(blob.len() + elements as usize, 7);
    layer.push(0x3a);
    buffa::encoding::encode_varint(blob.len() as u64, &mut layer);
    layer.extend(blob);
    let mut file = b"\x0a\x01n\xa2\x06".to_vec();
    buffa::encoding::encode_varint(layer.len() as u64, &mut file);
    file.extend(layer);
    let counted = Arc::new(CountingSource::new(memory(&file)));
    let source: SourceRef = counted.clone();
    let checkpoint = registry().open_source(source, &OpenOptions::default()).unwrap();
    assert_eq!(checkpoint.tensor("l.0").unwrap().bytes(), 1 << 20);
    assert!(counted.bytes_read() < 16 << 10, "{}", counted.bytes_read());
}

#[test]
fn damaged_files_have_their_own_errors() {
    let wanted = [
        ("deep.prototxt", "limit"),
        ("group.caffemodel", "wrong-wire-type"),
        ("long-number.caffemodel", "bad-varint"),
        ("many-dimensions.caffemodel", "limit"),
        ("negative.caffemodel", "negative-dimension"),
        ("overflow.caffemodel", "length-mismatch"),
        ("past-the-end.caffemodel", "past-the-end"),
        ("raw-type.caffemodel", "unknown-dtype"),
        ("shape-differs.caffemodel", "length-mismatch"),
        ("truncated.caffemodel", "truncated"),
        ("truncated.solverstate", "truncated"),
        ("two-fields.caffemodel", "wrong-type"),
        ("unclosed.prototxt", "bad-text"),
    ];
    for (file, code) in wanted {
        let error = registry().open_with(golden("bad").join(file), &forced()).unwrap_err();
        assert_eq!(error.code().as_str(), code, "{file}: {error}");
        assert!(error.file().is_some() && error.offset().is_some(), "{file}: {error}");
    }
}

#[test]
fn every_prefix_is_an_error_or_has_fewer_layers() {
    for file in [
        "lenet.caffemodel",
        "v1.caffemodel",
        "v0.caffemodel",
        "half.caffemodel",
        "sgd.solverstate",
        "chunks.caffemodel",
    ] {
        let bytes = bytes_of(&format!("good/{file}"));
        let whole = open(&bytes).unwrap();
        let all = names(&whole);
        for end in 1..bytes.len() {
            let options = OpenOptions { salvage: true, ..forced() };
            match open(&bytes[..end]) {
                // Layers follow each other without a count.
                Ok(found) => assert!(all.starts_with(&names(&found)), "{file} {end}"),
                Err(error) => {
                    assert!(error.offset().is_some(), "{file} {end}: {error}");
                    let Ok(saved) = registry().open_source(memory(&bytes[..end]), &options) else { continue };
                    assert!(saved.damage.is_some());
                    for tensor in &saved.tensors {
                        let wanted = whole.tensors.iter().find(|other| other.path == tensor.path).unwrap();
                        let read = |tensor: &weighbridge_core::checkpoint::TensorEntry| {
                            tensor.read_tensor(Order::Row)
                        };
                        assert_eq!(read(tensor).unwrap(), read(wanted).unwrap(), "{file} {end}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_truncated_file_keeps_its_intact_blobs() {
    let options = OpenOptions { salvage: true, ..OpenOptions::default() };
    let saved = registry().open_with(golden("bad/truncated.caffemodel"), &options).unwrap();
    assert_eq!(saved.tensors.len(), 7);
    let lost: Vec<_> = saved.damage.unwrap().lost.into_iter().map(|lost| lost.name).collect();
    assert_eq!(lost, ["ip1.0"]);
    let saved = registry().open_with(golden("bad/truncated.solverstate"), &options).unwrap();
    assert_eq!(names(&saved).last().unwrap(), "history.6");
    assert_eq!(saved.damage.unwrap().lost[0].name, "history.7");
}

/// Changed bytes cause errors, never panics.
#[test]
fn mutations_never_panic() {
    for file in [
        "lenet.caffemodel",
        "v0.caffemodel",
        "gradients.caffemodel",
        "legacy.solverstate",
        "lenet.prototxt",
        "v0.prototxt",
    ] {
        let bytes = bytes_of(&format!("good/{file}"));
        for place in 0..bytes.len() {
            for change in [1u8, 0x80] {
                let mut changed = bytes.clone();
                changed[place] ^= change;
                let source = memory(&changed);
                _ = Caffe.outline(&source, &OpenOptions::default().limits);
                _ = Caffe.scan(&source, &OpenOptions::default());
                match registry().open_source(source, &forced()) {
                    Ok(checkpoint) => _ = Caffe.check(&checkpoint).unwrap(),
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
fn python_layers_are_found() {
    let codes = |name: &str| {
        let scan = Caffe.scan(&memory(bytes_of(name)), &OpenOptions::default()).unwrap();
        scan.findings.iter().map(|finding| finding.code.as_str()).collect::<Vec<_>>()
    };
    assert_eq!(codes("good/python.caffemodel"), ["runs-python"]);
    assert!(codes("good/lenet.caffemodel").is_empty());
    assert!(codes("good/lenet.prototxt").is_empty());
    assert_eq!(codes("bad/truncated.caffemodel"), ["unreadable"]);
    let text = b"layer { name: 'p' type: 'Python' python_param { module: 'm' layer: 'L' } }";
    let scan = Caffe.scan(&memory(text), &OpenOptions::default()).unwrap();
    assert!(scan.findings[0].text.to_string().contains("m.L"));
}

#[test]
fn folders_with_several_models_are_not_one() {
    assert!(!Caffe.recognises_folder(&registry_folder()));
    fn registry_folder() -> FolderRef {
        let file = || bytes_of("good/prelu.caffemodel");
        Arc::new(
            MemoryFolder::new("m")
                .with("a.caffemodel", file())
                .with("b.caffemodel", file())
                .with("a.prototxt", bytes_of("good/v1.prototxt")),
        )
    }
    assert_eq!(crate::read::weights_in(&registry_folder()), None::<&Path>.map(PathBuf::from));
}
