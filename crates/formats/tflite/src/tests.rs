//! Files of TensorFlow Lite (`judges/make_tflite.py`): read and damaged.
#![allow(clippy::disallowed_methods)]

use crate::Tflite;
use serde_json::{Value as Json, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use weighbridge_core::check::Use;
use weighbridge_core::checkpoint::{Attributes, Checkpoint, Name, Role, Value};
use weighbridge_core::error::Result;
use weighbridge_core::tensor::Order;
use weighbridge_core::topology::{AttributeValue, Operator};
use weighbridge_format::{DeepCheck, Detect, OpenOptions, Registry, ScanCode};
use weighbridge_io::source::{CountingSource, SourceRef};
use weighbridge_testkit::memory;

fn registry() -> Registry {
    Registry::new([&Tflite as _])
}

fn golden(name: &str) -> PathBuf {
    weighbridge_testkit::testdata("tflite").join(name)
}

fn bytes_of(name: &str) -> Vec<u8> {
    std::fs::read(golden(name)).unwrap()
}

fn opened(name: &str) -> Checkpoint {
    registry().open_with(golden("good").join(format!("{name}.tflite")), &OpenOptions::default()).unwrap()
}

fn forced() -> OpenOptions {
    OpenOptions { format: Some("tflite".to_owned()), ..OpenOptions::default() }
}

fn open(bytes: &[u8]) -> Result<Checkpoint> {
    registry().open_source(memory(bytes), &forced())
}

fn names(checkpoint: &Checkpoint) -> Vec<String> {
    checkpoint.tensors.iter().map(|t| t.path.to_text()).collect()
}

fn expected() -> BTreeMap<String, Json> {
    serde_json::from_slice(&bytes_of("expected.json")).unwrap()
}

#[test]
fn golden_files_have_the_constants_of_tensorflow() {
    assert!(expected().len() > 20);
    for (file, wanted) in expected() {
        // Found by content, not by the name.
        let source = memory(bytes_of(&format!("good/{file}")));
        let checkpoint = registry().open_source(source, &OpenOptions::default()).unwrap();
        let tensors = wanted["tensors"].as_object().unwrap();
        let mut found = names(&checkpoint);
        found.sort();
        let mut all: Vec<_> = tensors.keys().cloned().collect();
        all.sort();
        assert_eq!(found, all, "{file}");
        for (name, wanted) in tensors {
            let tensor = checkpoint.tensors.iter().find(|t| t.path.to_text() == *name).unwrap();
            assert_eq!(tensor.stored.name(), wanted["dtype"].as_str().unwrap(), "{file} {name}");
            assert_eq!(json!(tensor.shape.dims()), wanted["shape"], "{file} {name}");
            let data = tensor.read_tensor(Order::Row).unwrap();
            assert_eq!(Name::hex(&Sha256::digest(data)), wanted["sha256"].as_str().unwrap(), "{file} {name}");
            // TensorFlow does not list ties.
            let attributes: BTreeMap<&String, Json> = tensor
                .attributes
                .iter()
                .filter(|(key, _)| *key != Attributes::ALIAS_OF)
                .map(|(key, value)| (key, value.to_json()))
                .collect();
            let more = wanted.as_object().unwrap().iter();
            let more = more.filter(|(key, _)| !["dtype", "shape", "sha256"].contains(&key.as_str()));
            let more: BTreeMap<&String, Json> = more.map(|(key, value)| (key, value.clone())).collect();
            assert_eq!(attributes, more, "{file} {name}");
        }
        let skipped: Vec<_> = checkpoint
            .notes
            .iter()
            .filter_map(|note| note.skipped.as_ref().map(|s| s.name.clone()))
            .collect();
        assert_eq!(json!(skipped), wanted["skipped"], "{file}");
        let topology = checkpoint.topology.unwrap();
        let blocks = topology.blocks.iter();
        let kinds: Vec<Vec<&str>> =
            blocks.map(|block| block.operators.iter().map(|o| o.kind.as_str()).collect()).collect();
        assert_eq!(json!(kinds), wanted["operators"], "{file}");
        let mut findings = weighbridge_core::check::program(&topology, &checkpoint.tensors);
        // The converter leaves constants behind that it folded into others.
        findings.retain(|finding| finding.code.as_str() != "unused-parameters");
        assert!(findings.is_empty(), "{file} {findings:?}");
    }
}

#[test]
fn every_byte_of_golden_files_has_a_use() {
    for file in expected().keys() {
        let source = memory(bytes_of(&format!("good/{file}")));
        let checkpoint = registry().open_source(source.clone(), &OpenOptions::default()).unwrap();
        let outline = Tflite.outline(&source, &OpenOptions::default().limits).unwrap();
        let held = weighbridge_core::check::held(&checkpoint.tensors, &checkpoint.files);
        let [held] = held.as_slice() else { panic!("{file}: {}", held.len()) };
        let (_, findings) = weighbridge_core::check::account(held, &outline).unwrap();
        assert!(findings.is_empty(), "{file}: {findings:?}");
    }
}

#[test]
fn bytes_that_nothing_refers_to_are_reported() {
    let mut bytes = bytes_of("good/float_mlp.tflite");
    bytes.extend(b"hidden payload");
    let source = memory(&bytes);
    let checkpoint = open(&bytes).unwrap();
    let outline = Tflite.outline(&source, &OpenOptions::default().limits).unwrap();
    let held = weighbridge_core::check::held(&checkpoint.tensors, &checkpoint.files);
    let (_, findings) = weighbridge_core::check::account(&held[0], &outline).unwrap();
    assert_eq!(findings.len(), 1, "{findings:?}");
    // A zip archive of labels, as the library for metadata appends it.
    let mut bytes = bytes_of("good/float_mlp.tflite");
    bytes.extend(b"PK\x03\x04 and more");
    let outline = Tflite.outline(&memory(&bytes), &OpenOptions::default().limits).unwrap();
    assert!(outline.parts.iter().any(|part| part.what.contains("zip archive")));
}

fn operator<'a>(checkpoint: &'a Checkpoint, kind: &str) -> &'a Operator {
    let topology = checkpoint.topology.as_deref().unwrap();
    topology.operators().find(|operator| operator.kind == kind).unwrap()
}

#[test]
fn operators_have_their_options() {
    let checkpoint = opened("float_conv");
    let conv = operator(&checkpoint, "CONV_2D");
    let word = |word: &str| Some(AttributeValue::Word(word.to_owned()));
    assert_eq!(conv.attribute("padding").cloned(), word("SAME"));
    assert_eq!(conv.attribute("fused_activation_function").cloned(), word("RELU6"));
    assert_eq!(conv.attribute("stride_w"), Some(&AttributeValue::Int(2)));
    // Not stored: the default of the schema.
    assert_eq!(conv.attribute("dilation_w_factor"), Some(&AttributeValue::Int(1)));
    let softmax = operator(&checkpoint, "SOFTMAX");
    assert_eq!(softmax.attribute("beta"), Some(&AttributeValue::Float(1.0)));
    let flex = opened("flex");
    let inverse = operator(&flex, "FlexMatrixInverse");
    assert!(
        matches!(inverse.attribute("custom_options"), Some(AttributeValue::Bytes(bytes)) if !bytes.is_empty())
    );
}

#[test]
fn control_flow_has_blocks() {
    let checkpoint = opened("control");
    let topology = checkpoint.topology.as_deref().unwrap();
    assert!(topology.blocks.len() > 3);
    let whole = operator(&checkpoint, "WHILE");
    assert_eq!(whole.blocks.len(), 2);
    assert!(whole.blocks.iter().all(|&block| !topology.blocks[block].arguments.is_empty()));
    assert_eq!(topology.feeds.len(), 1);
    assert_eq!(topology.feeds[0].shape.as_deref(), Some(&[1, 3][..]));
    assert_eq!(topology.writer.as_deref(), Some("TensorFlow 2.21.0"));
    // Tensors of subgraphs have the name of the subgraph in their path.
    assert!(checkpoint.tensors.iter().any(|tensor| tensor.path.parts().len() == 2));
}

#[test]
fn signatures_and_metadata_are_listed() {
    let checkpoint = opened("signatures");
    let signatures = checkpoint.metadata.get("signatures").unwrap().to_json();
    assert_eq!(signatures["encode"]["inputs"]["x"], json!("encode_x:0 FLOAT32 [-1, 4]"));
    assert!(
        signatures["decode"]["outputs"]["x"].as_str().unwrap().ends_with("FLOAT32 [-1, 4]"),
        "{signatures}"
    );
    assert_eq!(signatures["encode"]["subgraph"], json!(1));
    let metadata = checkpoint.metadata.get("metadata").unwrap().to_json();
    assert!(metadata["min_runtime_version"].as_str().unwrap().starts_with(|c: char| c.is_ascii_digit()));
    assert_eq!(
        opened("names").metadata.get("description"),
        Some(&Value::Text("A model with odd names".into()))
    );
}

#[test]
fn constants_of_one_buffer_are_tied() {
    let checkpoint = opened("shared");
    assert!(!checkpoint.tied().is_empty(), "{:?}", names(&checkpoint));
}

#[test]
fn roles_and_notes_describe_quantized_tensors() {
    let checkpoint = opened("int8_conv");
    let codes: Vec<_> = checkpoint.notes.iter().map(|note| note.code.as_str()).collect();
    assert_eq!(codes, ["quantized-as-integers"]);
    assert!(
        checkpoint
            .tensors
            .iter()
            .any(|tensor| tensor.stored.name() == "i32" && tensor.role == Role::Parameter)
    );
    let codes: Vec<_> = opened("int4").notes.iter().map(|note| note.code.as_str().to_owned()).collect();
    assert_eq!(codes, ["quantized-as-integers", "packed-as-bytes"]);
}

#[test]
fn opening_reads_no_elements() {
    // A constant of 1 MiB, made from a small file whose buffers are outside of the tables.
    let small = bytes_of("good/buffers_outside.tflite");
    let counted = Arc::new(CountingSource::new(memory(&small)));
    let source: SourceRef = counted.clone();
    let checkpoint = registry().open_source(source, &OpenOptions::default()).unwrap();
    let extent = checkpoint.tensors[0].extents[0].clone();
    assert!(extent.offset + extent.len > small.len() as u64 - 200);
    assert!(counted.bytes_read() < 16 << 10, "{}", counted.bytes_read());
}

#[test]
fn damaged_files_have_their_own_errors() {
    let wanted = [
        ("buffer", "index-out-of-range"),
        ("far-root", "past-the-end"),
        ("magic", "bad-magic"),
        ("many-dimensions", "limit"),
        ("negative", "negative-dimension"),
        ("operand", "index-out-of-range"),
        ("operator-code", "index-out-of-range"),
        ("overflow", "shape-overflow"),
        ("root", "past-the-end"),
        ("shape-differs", "length-mismatch"),
        ("short", "past-the-end"),
        ("signature", "index-out-of-range"),
        ("truncated", "past-the-end"),
        ("version", "format-version"),
        ("vtable", "bad-offsets"),
    ];
    for (file, code) in wanted {
        let error =
            registry().open_with(golden("bad").join(format!("{file}.tflite")), &forced()).unwrap_err();
        assert_eq!(error.code().as_str(), code, "{file}: {error}");
        assert!(error.file().is_some() && error.offset().is_some(), "{file}: {error}");
    }
}

#[test]
fn every_prefix_is_an_error() {
    for file in ["control", "int8_mlp", "buffers_outside"] {
        let bytes = bytes_of(&format!("good/{file}.tflite"));
        let whole = open(&bytes).unwrap();
        let outline = Tflite.outline(&memory(&bytes), &OpenOptions::default().limits).unwrap();
        let tables = outline.parts.iter().filter(|part| part.used == Use::Header);
        let tables = tables.map(|part| part.offset + part.len);
        let elements = whole.tensors.iter().flat_map(|t| &t.extents).map(|e| e.offset + e.len);
        let end = tables.chain(elements).max().unwrap();
        let mut saved_tensors = 0;
        for len in 0..usize::try_from(end).unwrap() {
            let outlined = Tflite.outline(&memory(&bytes[..len]), &OpenOptions::default().limits);
            let error = match open(&bytes[..len]) {
                Err(error) => error,
                // Fields that only checks read.
                Ok(_) => outlined.unwrap_err(),
            };
            assert!(error.offset().is_some() || len < 8, "{file} {len}: {error}");
            let options = OpenOptions { salvage: true, ..forced() };
            let Ok(saved) = registry().open_source(memory(&bytes[..len]), &options) else { continue };
            saved_tensors += saved.tensors.len();
            for tensor in &saved.tensors {
                let wanted = whole.tensors.iter().find(|other| other.path == tensor.path).unwrap();
                let [found, wanted] = [tensor, wanted].map(|tensor| tensor.read_tensor(Order::Row).unwrap());
                assert_eq!(found, wanted, "{file} {len}");
            }
        }
        // Tables of the others follow their buffers, and go first.
        assert!(saved_tensors > 0 || file != "buffers_outside");
    }
}

#[test]
fn a_truncated_file_keeps_its_intact_tensors() {
    let options = OpenOptions { salvage: true, ..OpenOptions::default() };
    let saved = registry().open_with(golden("bad/truncated.tflite"), &options).unwrap();
    assert!(!saved.tensors.is_empty());
    assert!(!saved.damage.unwrap().lost.is_empty());
}

/// Changed bytes cause errors, never panics.
#[test]
fn mutations_never_panic() {
    for file in ["control", "int8_mlp", "sparse", "signatures"] {
        let bytes = bytes_of(&format!("good/{file}.tflite"));
        for place in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[place] ^= if place % 2 == 0 { 1 } else { 0x80 };
            let source = memory(&changed);
            _ = Tflite.outline(&source, &OpenOptions::default().limits);
            _ = Tflite.scan(&source, &OpenOptions::default());
            if registry().open_source(source, &forced()).is_err() {
                let salvage = OpenOptions { salvage: true, ..forced() };
                _ = registry().open_source(memory(&changed), &salvage);
            }
        }
    }
}

/// Subgraphs that are one table, with tensors that are one table: 10 billion tensors in less than 1 MB.
#[test]
fn shared_tables_cost_memory_for_each_use() {
    let count = 100_000u32;
    let mut bytes = Vec::new();
    let short =
        |bytes: &mut Vec<u8>, values: &[u16]| bytes.extend(values.iter().flat_map(|v| v.to_le_bytes()));
    let long =
        |bytes: &mut Vec<u8>, values: &[u32]| bytes.extend(values.iter().flat_map(|v| v.to_le_bytes()));
    long(&mut bytes, &[20]);
    bytes.extend(b"TFL3");
    // Vtable and root: version and subgraphs.
    short(&mut bytes, &[10, 12, 4, 0, 8, 0]);
    long(&mut bytes, &[12, 3, 4]);
    let list = |bytes: &mut Vec<u8>| {
        bytes.extend(count.to_le_bytes());
        // Each leads to the table after the list and the vtable.
        bytes.extend((0..count).flat_map(|place| (4 * (count - place) + 8).to_le_bytes()));
    };
    list(&mut bytes);
    short(&mut bytes, &[6, 8, 4, 0]);
    long(&mut bytes, &[8, 4]);
    list(&mut bytes);
    short(&mut bytes, &[4, 4, 0, 0]);
    long(&mut bytes, &[8]);
    let error = open(&bytes).unwrap_err();
    assert_eq!(error.code().as_str(), "limit", "{error}");
    let error = Tflite.outline(&memory(&bytes), &OpenOptions::default().limits);
    assert!(error.is_err() || error.unwrap().parts.len() < 100);
}

#[test]
fn operators_of_other_libraries_are_found() {
    let codes = |name: &str| {
        let scan = Tflite.scan(&memory(bytes_of(name)), &OpenOptions::default()).unwrap();
        scan.findings.iter().map(|finding| finding.code.as_str()).collect::<Vec<_>>()
    };
    assert_eq!(codes("good/custom.tflite"), ["custom-operators"]);
    assert_eq!(codes("good/flex_files.tflite"), ["reads-files"]);
    assert!(codes("good/flex.tflite").is_empty());
    assert!(codes("good/control.tflite").is_empty());
    assert_eq!(codes("bad/truncated.tflite"), ["unreadable"]);
}

#[test]
fn other_files_are_not_recognized() {
    for head in [&b"TFL3"[..], b"\x1c\0\0\0TFL2\0\0\0\0", b"", b"\x1c\0\0\0TFL"] {
        assert!(!Tflite.recognises(head, &memory(head)));
    }
}
