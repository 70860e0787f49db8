//! Files of Core ML (`judges/make_coreml.py`): read and damaged.
#![allow(clippy::disallowed_methods)]

use crate::CoreMl;
use serde_json::{Value as Json, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use weighbridge_core::checkpoint::{Checkpoint, Name, Role, Value};
use weighbridge_core::error::Result;
use weighbridge_core::tensor::Order;
use weighbridge_core::topology::AttributeValue;
use weighbridge_format::{DeepCheck, Detect, Input, OpenOptions, ReadFormat, Registry, Salvage, ScanCode};
use weighbridge_io::source::{FolderRef, MemoryFolder};
use weighbridge_protobuf as wire;
use weighbridge_testkit::memory;

const MODEL: &str = "Data/com.apple.CoreML/model.mlmodel";
const WEIGHTS: &str = "Data/com.apple.CoreML/weights/weight.bin";

fn registry() -> Registry {
    Registry::new([&CoreMl as _])
}

fn golden(name: &str) -> PathBuf {
    weighbridge_testkit::testdata("coreml").join(name)
}

fn bytes_of(name: &str) -> Vec<u8> {
    std::fs::read(golden(name)).unwrap()
}

fn opened(name: &str) -> Checkpoint {
    registry().open_with(golden("good").join(name), &OpenOptions::default()).unwrap()
}

fn open(bytes: &[u8]) -> Result<Checkpoint> {
    CoreMl.open(memory(bytes), &OpenOptions::default())
}

fn salvaged(bytes: &[u8]) -> Option<Checkpoint> {
    let error = open(bytes).unwrap_err();
    CoreMl.salvage(&Input::Alone(&memory(bytes)), &error, &OpenOptions::default()).ok().flatten()
}

/// Opens a package in memory.
fn package(model: &[u8], weights: Option<&[u8]>) -> Result<Checkpoint> {
    CoreMl.open_folder(&folder(model, weights), &OpenOptions::default())
}

fn folder(model: &[u8], weights: Option<&[u8]>) -> FolderRef {
    let mut folder = MemoryFolder::new("m.mlpackage")
        .with("Manifest.json", bytes_of("good/mlp.mlpackage/Manifest.json"))
        .with(MODEL, model.to_vec());
    if let Some(weights) = weights {
        folder = folder.with(WEIGHTS, weights.to_vec());
    }
    Arc::new(folder)
}

fn names(checkpoint: &Checkpoint) -> Vec<String> {
    checkpoint.tensors.iter().map(|t| t.path.to_text()).collect()
}

fn text<'a>(checkpoint: &'a Checkpoint, key: &str) -> &'a str {
    match checkpoint.metadata.get(key) {
        Some(Value::Text(text)) => text,
        other => panic!("{key}: {other:?}"),
    }
}

fn expected() -> BTreeMap<String, Json> {
    serde_json::from_slice(&bytes_of("expected.json")).unwrap()
}

#[test]
fn golden_files_have_the_tensors_of_coremltools() {
    assert!(expected().len() > 30);
    for (file, wanted) in expected() {
        let checkpoint = opened(&file);
        let tensors = wanted["tensors"].as_object().unwrap();
        let mut found = names(&checkpoint);
        found.sort();
        let mut all: Vec<_> = tensors.keys().cloned().collect();
        all.sort();
        assert_eq!(found, all, "{file}");
        for tensor in &checkpoint.tensors {
            let name = tensor.path.to_text();
            let wanted = &tensors[&name];
            assert_eq!(tensor.stored.name(), wanted["dtype"].as_str().unwrap(), "{file} {name}");
            assert_eq!(json!(tensor.shape.dims()), wanted["shape"], "{file} {name}");
            let hash = Name::hex(&Sha256::digest(tensor.read_tensor(Order::Row).unwrap()));
            assert_eq!(hash, wanted["sha256"].as_str().unwrap(), "{file} {name}");
            for key in ["packed_dtype", "packed_shape"] {
                let own = tensor.attributes.get(key).map(Value::to_json);
                assert_eq!(own.as_ref(), wanted.get(key), "{file} {name} {key}");
            }
        }
        let topology = checkpoint.topology.unwrap();
        let mut kinds: Vec<&str> = topology.operators().map(|operator| operator.kind.as_str()).collect();
        kinds.sort_unstable();
        assert_eq!(json!(kinds), wanted["operators"], "{file}");
        let findings = weighbridge_core::check::program(&topology, &checkpoint.tensors);
        assert!(findings.is_empty(), "{file} {findings:?}");
    }
}

#[test]
fn layers_and_operations_are_programs() {
    let conv = opened("conv.mlmodel");
    let topology = conv.topology.as_deref().unwrap();
    let operator = topology.operators().find(|operator| operator.kind == "convolution").unwrap();
    assert_eq!(operator.attribute("name"), Some(&AttributeValue::Text("conv1".to_owned())));
    let sizes = vec![AttributeValue::Int(3), AttributeValue::Int(3)];
    assert_eq!(operator.attribute("kernelSize"), Some(&AttributeValue::List(sizes)));
    assert_eq!(operator.inputs[0].arguments, ["image"]);
    assert_eq!(topology.feeds[0].shape.as_deref(), Some(&[1, 3, 8, 8][..]));
    let loops = opened("loops.mlmodel");
    let topology = loops.topology.as_deref().unwrap();
    let bodies = |kind: &str| topology.operators().find(|o| o.kind == kind).unwrap().blocks.len();
    assert_eq!((topology.blocks.len(), bodies("loop"), bodies("branch")), (5, 2, 2));
    let control = opened("control.mlpackage");
    let topology = control.topology.as_deref().unwrap();
    let bodies = |kind: &str| topology.operators().find(|o| o.kind == kind).unwrap().blocks.len();
    assert_eq!((topology.blocks.len(), bodies("cond"), bodies("while_loop")), (5, 2, 2));
    let functions = opened("functions.mlpackage");
    let topology = functions.topology.as_deref().unwrap();
    assert_eq!((topology.blocks.len(), topology.feeds.len(), topology.fetches.len()), (2, 1, 1));
    assert!(!functions.tied().is_empty());
    let steps = opened("steps.mlmodel");
    let topology = steps.topology.as_deref().unwrap();
    assert_eq!(topology.blocks[0].operators.len() + 1, topology.blocks.len());
    let half = opened("mlp_half.mlpackage");
    let topology = half.topology.as_deref().unwrap();
    assert!(topology.writer.as_deref().unwrap().starts_with("coremltools "), "{:?}", topology.writer);
    let cast = topology.operators().find(|operator| operator.kind == "const").unwrap();
    assert_eq!(cast.attribute("val"), Some(&AttributeValue::Text("fp16".to_owned())));
}

#[test]
fn descriptions_are_metadata() {
    let plain = opened("plain.mlmodel");
    assert_eq!(text(&plain, "description"), "two layers");
    assert_eq!((text(&plain, "author"), text(&plain, "version")), ("Weighbridge", "1.2"));
    assert_eq!(text(&plain, "license"), "MIT");
    let Some(Value::Map(input)) = plain.metadata.get("input") else { panic!() };
    assert_eq!(input[0].1, Value::Text("multiArray DOUBLE [12]".to_owned()));
    let classifier = opened("classifier.mlmodel");
    let labels = classifier.metadata.get("class_labels").map(Value::to_json);
    assert_eq!(labels, Some(json!(["cat", "dog"])));
    let Some(Value::Map(input)) = classifier.metadata.get("input") else { panic!() };
    assert!(matches!(&input[0].1, Value::Text(text) if text.starts_with("image ")), "{input:?}");
    assert_eq!(text(&classifier, "predictedFeatureName"), "label");
}

#[test]
fn compressed_weights_have_their_scheme() {
    for (file, name, scheme, axis) in [
        ("affine8.mlpackage", "fc1_weight_quantized", "per_channel_affine", Some(0)),
        ("affine8_tensor.mlpackage", "fc1_weight_quantized", "per_tensor_affine", None),
        ("palette4.mlpackage", "fc1_weight_palettized", "lookup_table", None),
        ("block4.mlpackage", "fc1_weight_quantized", "blockwise_affine", None),
        ("linear8.mlmodel", "fc1.weights", "linear", None),
        ("lut4.mlmodel", "fc1.weights", "lookup_table", None),
    ] {
        let checkpoint = opened(file);
        let tensor = checkpoint.tensors.iter().find(|tensor| tensor.path.to_text() == name).unwrap();
        assert_eq!(tensor.text_attribute("quantized"), Some(scheme), "{file}");
        assert_eq!(tensor.attributes.get("quantized_axis"), axis.map(Value::I64).as_ref(), "{file}");
        assert_eq!(tensor.role, Role::Parameter, "{file}");
        assert!(checkpoint.notes.iter().any(|note| note.code.as_str() == "quantized-as-integers"), "{file}");
    }
    let sparse = opened("sparse.mlpackage");
    assert!(sparse.notes.iter().any(|note| note.code.as_str() == "sparse-as-parts"));
}

#[test]
fn damaged_files_have_their_own_errors() {
    let wanted = [
        ("absolute.mlpackage", "unsafe-name"),
        ("bits.mlmodel", "bad-number"),
        ("blob_dtype.mlpackage", "dtype-differs"),
        ("blob_length.mlpackage", "length-mismatch"),
        ("blob_offset.mlpackage", "past-the-end"),
        ("blob_unknown.mlpackage", "dtype"),
        ("cut_weights.mlpackage", "past-the-end"),
        ("deep.mlmodel", "limit"),
        ("length.mlmodel", "length-mismatch"),
        ("manifest_path.mlpackage", "unsafe-name"),
        ("manifest_root.mlpackage", "bad-manifest"),
        ("no_content.mlmodel", "truncated"),
        ("no_model.mlpackage", "model-missing"),
        ("no_weights.mlpackage", "file-missing"),
        ("outside.mlpackage", "unsafe-name"),
        ("overflow.mlmodel", "shape-overflow"),
        ("sentinel.mlpackage", "bad-magic"),
        ("shape.mlpackage", "shape-overflow"),
        ("truncated.mlmodel", "truncated"),
        ("version.mlpackage", "format-version"),
    ];
    let mut all: Vec<_> =
        std::fs::read_dir(golden("bad")).unwrap().map(|file| file.unwrap().file_name()).collect();
    all.sort();
    assert_eq!(all, wanted.map(|(name, _)| name));
    for (file, code) in wanted {
        let options = OpenOptions { format: Some("coreml".to_owned()), ..OpenOptions::default() };
        let error = registry().open_with(golden("bad").join(file), &options).unwrap_err();
        assert_eq!(error.code().as_str(), code, "{file}: {error}");
        assert!(error.file().is_some(), "{file}: {error}");
        assert!(error.offset().is_some() || code == "model-missing", "{file}: {error}");
    }
}

#[test]
fn every_prefix_is_an_error() {
    let mut with_tensors = 0;
    for file in ["good/plain.mlmodel", "good/lut1.mlmodel"] {
        let bytes = bytes_of(file);
        let whole = open(&bytes).unwrap();
        for len in 0..bytes.len() {
            assert!(open(&bytes[..len]).is_err(), "{file} {len}");
            let Some(saved) = salvaged(&bytes[..len]) else { continue };
            with_tensors += usize::from(!saved.tensors.is_empty());
            for tensor in &saved.tensors {
                let wanted = whole.tensors.iter().find(|other| other.path == tensor.path).unwrap();
                let [found, wanted] = [tensor, wanted].map(|tensor| tensor.read_tensor(Order::Row).unwrap());
                assert_eq!(found, wanted, "{file} {len}");
            }
        }
    }
    assert!(with_tensors > 400, "{with_tensors}");
}

#[test]
fn intact_blobs_of_a_damaged_package_come_back() {
    let [model, weights] = [MODEL, WEIGHTS].map(|name| bytes_of(&format!("good/affine8.mlpackage/{name}")));
    let whole = package(&model, Some(&weights)).unwrap();
    for len in 0..weights.len() {
        let error = package(&model, Some(&weights[..len])).unwrap_err();
        let folder = folder(&model, Some(&weights[..len]));
        let saved =
            CoreMl.salvage(&Input::Folder(&folder), &error, &OpenOptions::default()).unwrap().unwrap();
        let lost = saved.damage.as_ref().unwrap().lost.len();
        assert!(lost > 0 && lost + saved.tensors.len() == whole.tensors.len(), "{len}");
        for tensor in &saved.tensors {
            let wanted = whole.tensors.iter().find(|other| other.path == tensor.path).unwrap();
            let [found, wanted] = [tensor, wanted].map(|tensor| tensor.read_tensor(Order::Row).unwrap());
            assert_eq!(found, wanted, "{len}");
        }
    }
    for len in 0..model.len() {
        assert!(package(&model[..len], Some(&weights)).is_err(), "{len}");
    }
}

/// Changed bytes cause errors, never panics.
#[test]
fn mutations_never_panic() {
    for file in ["glm.mlmodel", "custom.mlmodel", "lut1.mlmodel", "neighbours.mlmodel"] {
        let bytes = bytes_of(&format!("good/{file}"));
        for place in 0..bytes.len() {
            for change in [1u8, 4, 0x80] {
                let mut changed = bytes.clone();
                changed[place] ^= change;
                let source = memory(&changed);
                _ = CoreMl.scan(&source, &OpenOptions::default());
                _ = CoreMl.outline(&source, &OpenOptions::default().limits);
                if open(&changed).is_err() {
                    _ = salvaged(&changed);
                }
            }
        }
    }
    let [model, weights] = [MODEL, WEIGHTS].map(|name| bytes_of(&format!("good/palette4.mlpackage/{name}")));
    for place in 0..model.len() {
        let mut changed = model.clone();
        changed[place] ^= 5;
        _ = package(&changed, Some(&weights));
    }
    for place in 0..weights.len().min(300) {
        let mut changed = weights.clone();
        changed[place] ^= 5;
        _ = package(&model, Some(&changed));
        _ = CoreMl.outline(&memory(&changed), &OpenOptions::default().limits);
    }
}

#[test]
fn code_of_the_application_is_found() {
    let codes = |bytes: &[u8]| {
        let scan = CoreMl.scan(&memory(bytes), &OpenOptions::default()).unwrap();
        scan.findings.iter().map(|finding| finding.code.as_str()).collect::<Vec<_>>()
    };
    assert!(codes(&bytes_of("good/plain.mlmodel")).is_empty());
    assert!(codes(&bytes_of(&format!("good/mlp.mlpackage/{MODEL}"))).is_empty());
    assert_eq!(codes(&bytes_of("good/custom.mlmodel")), ["custom-operators"]);
    assert_eq!(codes(&bytes_of("good/linked.mlmodel")), ["reads-files"]);
    assert_eq!(codes(&bytes_of("good/forest.mlmodel")), ["left-out"]);
    assert!(codes(&bytes_of("good/opaque.mlmodel")).contains(&"custom-operators"));
    assert_eq!(codes(&bytes_of(&format!("good/blobs.mlpackage/{MODEL}"))), ["custom-operators"]);
    assert_eq!(codes(&bytes_of("good/plain.mlmodel")[..400]), ["unreadable"]);
    let scan = CoreMl.scan(&memory(bytes_of("good/custom.mlmodel")), &OpenOptions::default()).unwrap();
    assert!(scan.findings[0].text.to_string().contains("MyLayer"));
}

#[test]
fn other_messages_are_not_recognized() {
    let recognises = |bytes: &[u8]| CoreMl.recognises(bytes, &memory(bytes));
    for bytes in [
        &b""[..],
        b"\x08\x01",
        b"\x08\x01\x12\x02\x0a\x00",
        // A model of ONNX: a producer, and a graph.
        b"\x08\x07\x12\x07pytorch\x3a\x02\x0a\x00",
        // A model without a version.
        b"\x12\x00\xa2\x1f\x00",
        b"\x08\x01\x12\x00\x12\x00\xa2\x1f\x00",
    ] {
        assert!(!recognises(bytes), "{bytes:?}");
    }
    assert!(recognises(b"\x08\x01\x12\x00\xa2\x1f\x00"));
    // Truncated within its content.
    assert!(recognises(b"\x08\x01\x12\x00\xa2\x1f\x7f\x0a"));
    assert!(recognises(b"\x08\x01\xa2\x1f\x00"));
}

/// Returns a message with fields of a number and of bytes.
fn message(numbers: &[(u32, u64)], fields: &[(u32, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    numbers.iter().for_each(|&(number, value)| wire::put_int(&mut out, number, value));
    fields.iter().for_each(|(number, bytes)| wire::put_bytes(&mut out, *number, bytes));
    out
}

/// Files of less than 1 MB with many small messages, long repeated names and huge shapes stay within the budget.
#[test]
fn crafted_files_are_limited() {
    let long = vec![b'n'; 400_000];
    let empty_layers: Vec<u8> = [0x0a, 0x00].repeat(400_000);
    let weights = message(&[], &[(1, &[0; 4])]);
    let params: Vec<u8> = std::iter::repeat_n(message(&[], &[(20, &weights)]), 50_000).flatten().collect();
    let custom = message(&[], &[(500, &params)]);
    let named = message(&[], &[(1, &long), (500, &params)]);
    let alternating: Vec<u8> = [0x28, 0x00, 0x12, 0x00].repeat(200_000);
    let metadata = message(&[], &[(4, &long)]);
    for network in [message(&[], &[(1, &custom)]), message(&[], &[(1, &named)]), empty_layers] {
        let bytes = message(&[(1, 4)], &[(500, &network)]);
        assert!(bytes.len() < 1 << 20, "{}", bytes.len());
        let started = std::time::Instant::now();
        _ = open(&bytes);
        _ = CoreMl.scan(&memory(&bytes), &OpenOptions::default());
        assert!(started.elapsed().as_secs() < 20);
    }
    for fields in [&alternating, &metadata] {
        let started = std::time::Instant::now();
        _ = open(&[&[0x08, 0x04][..], fields].concat());
        assert!(started.elapsed().as_secs() < 20);
    }
}
