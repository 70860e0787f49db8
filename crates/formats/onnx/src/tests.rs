//! Models of the library `onnx` (`judges/make_onnx.py`): read, rewritten, damaged.
#![allow(clippy::disallowed_methods)]

use crate::Onnx;
use serde_json::Value as Json;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weighbridge_core::checkpoint::{Checkpoint, Name, Rename, TensorEntry, Value};
use weighbridge_core::error::Result;
use weighbridge_core::plan::{FileBuilder, WritePlan};
use weighbridge_core::tensor::{DType, Order};
use weighbridge_format::{DeepCheck, Detect, OpenOptions, PlanOptions, Registry, WriteFormat};
use weighbridge_io::source::{CountingSource, FolderRef, MemoryFolder, SourceRef};
use weighbridge_io::testing::materialise;
use weighbridge_testkit::memory;

fn registry() -> Registry {
    Registry::new([&Onnx as _])
}

fn golden(name: &str) -> PathBuf {
    weighbridge_testkit::testdata("onnx").join(name)
}

fn open(bytes: &[u8]) -> Result<Checkpoint> {
    registry().open_source(memory(bytes), &OpenOptions::default())
}

fn opened(name: &str) -> Checkpoint {
    registry().open_with(golden("good").join(name), &OpenOptions::default()).unwrap()
}

fn bytes_of(name: &str) -> Vec<u8> {
    std::fs::read(golden(name)).unwrap()
}

/// Files of the plan of a checkpoint, by name.
fn written(checkpoint: &Checkpoint, settings: &[(&str, &str)]) -> BTreeMap<String, Vec<u8>> {
    let settings = settings.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    let plan = Onnx.plan(checkpoint, &PlanOptions { settings, ..PlanOptions::default() }).unwrap();
    let names: Vec<String> = plan.files.iter().map(|file| file.name.clone()).collect();
    names.into_iter().zip(materialise(&plan)).collect()
}

fn one_file(checkpoint: &Checkpoint) -> Vec<u8> {
    let mut files = written(checkpoint, &[]);
    assert_eq!(files.len(), 1);
    files.remove("").unwrap()
}

/// Opens the files of a plan in memory.
fn reopened(files: &BTreeMap<String, Vec<u8>>) -> Checkpoint {
    if let Some(bytes) = files.get("") {
        return open(bytes).unwrap();
    }
    let folder =
        files.iter().fold(MemoryFolder::new("m"), |folder, (name, bytes)| folder.with(name, bytes.clone()));
    let folder: FolderRef = Arc::new(folder);
    let source = folder.open(Path::new("model.onnx")).unwrap().unwrap();
    registry().open_in_folder(source, &folder, Path::new("model.onnx"), &OpenOptions::default()).unwrap()
}

fn names(checkpoint: &Checkpoint) -> Vec<String> {
    checkpoint.tensors.iter().map(|t| t.path.to_text()).collect()
}

fn elements(checkpoint: &Checkpoint, name: &str) -> Vec<u8> {
    checkpoint.tensor(name).unwrap().read_tensor(Order::Row).unwrap()
}

fn expected() -> BTreeMap<String, BTreeMap<String, Json>> {
    serde_json::from_slice(&bytes_of("expected.json")).unwrap()
}

#[test]
fn golden_files_have_the_tensors_of_the_library() {
    for (file, tensors) in expected() {
        let checkpoint = opened(&file);
        let mut found = names(&checkpoint);
        found.sort();
        assert_eq!(found, tensors.keys().cloned().collect::<Vec<_>>(), "{file}");
        for (name, wanted) in tensors {
            let tensor = checkpoint.tensors.iter().find(|t| t.path.to_text() == name).unwrap();
            let shape: Vec<u64> = serde_json::from_value(wanted["shape"].clone()).unwrap();
            assert_eq!(
                (tensor.stored.name(), tensor.shape.dims()),
                (wanted["dtype"].as_str().unwrap(), &*shape),
                "{file} {name}"
            );
            if let Some(hash) = wanted["sha256"].as_str() {
                let data = tensor.read_tensor(Order::Row).unwrap();
                assert_eq!(Name::hex(&Sha256::digest(data)), hash, "{file} {name}");
            }
        }
    }
}

#[test]
fn unchanged_models_are_written_byte_for_byte() {
    for file in expected().keys() {
        let checkpoint = opened(file);
        let files = written(&checkpoint, &[]);
        let original = bytes_of(&format!("good/{file}"));
        if let Some(bytes) = files.get("") {
            assert!(*bytes == original, "{file}");
            continue;
        }
        assert_eq!(files["model.onnx"], original, "{file}");
        let data = golden("good").join(file).with_extension("onnx.data");
        assert_eq!(files["net.onnx.data"], std::fs::read(data).unwrap(), "{file}");
        let again = reopened(&files);
        assert_eq!(names(&again), names(&checkpoint));
        assert_eq!(elements(&again, "fc2.bias"), elements(&checkpoint, "fc2.bias"));
    }
}

#[test]
fn lengths_longer_than_necessary_are_kept() {
    let original = bytes_of("good/mlp.onnx");
    // The length of the graph with two more bytes.
    let at = original
        .windows(2)
        .position(|w| w == [0x3a, 0xda])
        .unwrap_or_else(|| original.iter().position(|&byte| byte == 0x3a).unwrap());
    let (len, rest) = crate::wire::varint(&original[at + 1..]).unwrap();
    let mut bytes = original[..=at].to_vec();
    crate::wire::push_length(&mut bytes, len, 2);
    bytes.extend_from_slice(rest);
    assert!(one_file(&open(&bytes).unwrap()) == bytes);
}

#[test]
fn opening_reads_no_elements() {
    let mut whole = bytes_of("good/mlp.onnx");
    // A property of the model after a tensor of 1 MiB.
    let mut tensor = vec![0x08, 0x80, 0x80, 0x40, 0x10, 0x02, 0x42, 1, b'w', 0x4a];
    crate::wire::push_length(&mut tensor, 1 << 20, 0);
    tensor.resize(tensor.len() + (1 << 20), 7);
    let mut graph = vec![0x2a];
    crate::wire::push_length(&mut graph, tensor.len() as u64, 0);
    graph.extend(tensor);
    whole.push(0x3a);
    crate::wire::push_length(&mut whole, graph.len() as u64, 0);
    whole.extend(graph);
    let counted = Arc::new(CountingSource::new(memory(&whole)));
    let source: SourceRef = counted.clone();
    let checkpoint = registry().open_source(source, &OpenOptions::default()).unwrap();
    assert_eq!(checkpoint.tensor("w").unwrap().bytes(), 1 << 20);
    assert!(counted.bytes_read() < 64 << 10, "{}", counted.bytes_read());
    assert!(one_file(&checkpoint) == whole);
}

#[test]
fn damaged_files_have_their_own_errors() {
    let wanted = [
        ("dims-differ", "length-mismatch"),
        ("dims-negative", "negative-dimension"),
        ("dims-overflow", "shape-overflow"),
        ("elements-twice", "wrong-type"),
        ("external-absolute", "unsafe-name"),
        ("external-missing", "external-missing"),
        ("external-offset", "external-data"),
        ("external-parent", "unsafe-name"),
        ("field-of-another-dtype", "wrong-type"),
        ("group", "wrong-wire-type"),
        ("length-past-end", "past-the-end"),
        ("nested", "limit"),
        ("truncated", "truncated"),
    ];
    for (file, code) in wanted {
        let path = golden("bad").join(file).with_extension("onnx");
        let error = registry().open_with(&path, &OpenOptions::default()).unwrap_err();
        assert_eq!(error.code().as_str(), code, "{file}: {error}");
        assert!(error.file().is_some(), "{file}: {error}");
    }
}

#[test]
fn every_prefix_is_an_error() {
    for file in ["mlp", "typed_fields", "control_flow", "sparse", "unpacked", "functions"] {
        let bytes = bytes_of(&format!("good/{file}.onnx"));
        for end in 0..bytes.len() {
            let options = OpenOptions { format: Some("onnx".to_owned()), ..OpenOptions::default() };
            let opened = registry().open_source(memory(&bytes[..end]), &options);
            // Functions, properties and versions behind the graph are optional, as all fields of protobuf are.
            if let Ok(checkpoint) = &opened {
                let all = names(&open(&bytes).unwrap());
                assert!(all.starts_with(&names(checkpoint)), "{file} {end}");
                assert!(file == "functions" || checkpoint.tensors.len() == all.len(), "{file} {end}");
                continue;
            }
            let error = opened.unwrap_err();
            assert!(
                error.offset().is_some() || error.code().as_str() == "empty-file",
                "{file} {end}: {error}"
            );
            let salvage = OpenOptions { salvage: true, ..options };
            if let Ok(saved) = registry().open_source(memory(&bytes[..end]), &salvage) {
                saved.tensors.iter().for_each(|tensor| drop(tensor.read_tensor(Order::Row).unwrap()));
            }
        }
    }
}

#[test]
fn a_truncated_file_keeps_its_intact_tensors() {
    let bytes = bytes_of("bad/truncated.onnx");
    let options = OpenOptions { salvage: true, ..OpenOptions::default() };
    let saved = registry().open_source(memory(&bytes), &options).unwrap();
    let whole = opened("mlp.onnx");
    assert!(!saved.tensors.is_empty());
    for tensor in &saved.tensors {
        assert_eq!(tensor.read_tensor(Order::Row).unwrap(), elements(&whole, &tensor.text()));
    }
    let cut = &bytes_of("good/mlp.onnx")[..450];
    let saved = registry().open_source(memory(cut), &options).unwrap();
    let lost: Vec<_> = saved.damage.unwrap().lost.into_iter().map(|lost| lost.name).collect();
    assert_eq!(lost, ["fc2.weight"]);
    assert_eq!(saved.tensors.len(), 2);
}

/// Changed bytes cause errors, never panics; a file that opens can be written, and its bytes are accounted for.
#[test]
fn mutations_never_panic() {
    for file in
        ["typed_fields", "control_flow", "sparse", "attributes", "packed", "old_ir", "every_dtype_raw"]
    {
        let bytes = bytes_of(&format!("good/{file}.onnx"));
        for place in 0..bytes.len() {
            {
                let change = [1u8, 2, 7, 0x80][place % 4];
                let mut changed = bytes.clone();
                changed[place] ^= change;
                let options = OpenOptions { format: Some("onnx".to_owned()), ..OpenOptions::default() };
                let source = memory(&changed);
                if Onnx.recognises(&changed, &source) {
                    _ = Onnx.outline(&source, &options.limits);
                }
                let Ok(checkpoint) = registry().open_source(source, &options) else {
                    let salvage = OpenOptions { salvage: true, ..options };
                    _ = registry().open_source(memory(&changed), &salvage);
                    continue;
                };
                _ = Onnx.check(&checkpoint).unwrap();
                if let Ok(plan) = Onnx.plan(&checkpoint, &PlanOptions::default())
                    && plan.is_one_file()
                {
                    assert!(materialise(&plan)[0] == changed, "{file} {place} {change}");
                }
            }
        }
    }
}

#[test]
fn renames_reach_every_use() {
    let mut checkpoint = opened("old_ir.onnx");
    checkpoint.rename(&[Rename::parse("fc1=encoder.first").unwrap()]).unwrap();
    let bytes = one_file(&checkpoint);
    let again = open(&bytes).unwrap();
    assert_eq!(names(&again), ["encoder.first.weight", "encoder.first.bias", "fc2.weight", "fc2.bias"]);
    let topology = again.topology.as_deref().unwrap();
    assert_eq!(topology.blocks[0].operators[0].inputs[0].arguments, ["x", "encoder.first.weight"]);
    assert_eq!(topology.feeds.len(), 1);
    assert!(!bytes.windows(4).any(|w| w == b"fc1."));
    let mut checkpoint = opened("control_flow.onnx");
    let rules = [
        "shift=offset",
        "chosen.then_branch.w=chosen.then_branch.factor",
        "three=trips",
        "chosen.else_branch.k=chosen.else_branch.eye",
    ];
    checkpoint.rename(&rules.map(|rule| Rename::parse(rule).unwrap())).unwrap();
    let again = open(&one_file(&checkpoint)).unwrap();
    let topology = again.topology.as_deref().unwrap();
    let inputs =
        |block: usize, node: usize| topology.blocks[block].operators[node].inputs[0].arguments.clone();
    assert_eq!(inputs(2, 0), ["x", "factor"]);
    assert_eq!(inputs(1, 1), ["eye", "offset"]);
    assert_eq!(inputs(0, 4), ["trips", "yes", "chosen"]);
    assert_eq!(elements(&again, "chosen.else_branch.w"), elements(&checkpoint, "chosen.else_branch.w"));
    // Other graphs have values of that name.
    let mut taken = opened("control_flow.onnx");
    taken.rename(&[Rename::parse("shift=looped").unwrap()]).unwrap();
    let refused = |checkpoint: &Checkpoint| {
        let error = Onnx.plan(checkpoint, &PlanOptions::default()).unwrap_err();
        error.code().as_str()
    };
    assert_eq!(refused(&taken), "name-collision");
    // A declaration in a body is not a value of the body, and new names of two graphs do not meet.
    let mut outer = opened("outer_values.onnx");
    outer.rename(&[Rename::parse("w=z").unwrap()]).unwrap();
    let topology = open(&one_file(&outer)).unwrap().topology.unwrap();
    let add = topology.operators().find(|operator| operator.kind == "Add").unwrap();
    assert_eq!(add.inputs[0].arguments, ["z", "v"]);
    let mut met = opened("outer_values.onnx");
    let rules = ["w=z", "y.then_branch.v=y.then_branch.z"];
    met.rename(&rules.map(|rule| Rename::parse(rule).unwrap())).unwrap();
    assert_eq!(refused(&met), "name-collision");
    let mut moved = opened("control_flow.onnx");
    moved.rename(&[Rename::parse("chosen.then_branch.w=w").unwrap()]).unwrap();
    assert_eq!(refused(&moved), "belongs-to-a-program");
}

#[test]
fn casts_change_declarations_too() {
    let mut checkpoint = opened("old_ir.onnx");
    checkpoint.cast_floats(DType::F16).unwrap();
    let again = open(&one_file(&checkpoint)).unwrap();
    assert!(again.tensors.iter().all(|tensor| tensor.stored == DType::F16));
    let topology = again.topology.as_deref().unwrap();
    let weight = topology.variable(0, "fc1.weight").unwrap();
    assert_eq!((weight.dtype, weight.shape.as_deref()), (Some(DType::F16), Some(&[4, 8][..])));
    // Operators read the former dtype.
    let operators = &topology.blocks[0].operators;
    let cast = operators.iter().find(|o| o.inputs[0].arguments == ["fc1.weight"]).unwrap();
    assert_eq!((cast.kind.as_str(), cast.outputs[0].arguments[0].as_str()), ("Cast", "fc1.weight.f32"));
    let reads =
        operators.iter().filter(|o| o.inputs[0].arguments.iter().any(|name| name == "fc1.weight.f32"));
    assert_eq!(reads.count(), 1);
    let mut typed = opened("typed_fields.onnx");
    // Operators of this model cannot cast back to floats of 8 bits.
    for tensor in
        typed.tensors.iter_mut().filter(|tensor| ["double", "bfloat16"].contains(&tensor.text().as_str()))
    {
        tensor.cast = Some(DType::F32.into());
    }
    let again = open(&one_file(&typed)).unwrap();
    assert_eq!(elements(&again, "double"), [1.5f32, -2.25].map(f32::to_le_bytes).concat());
    assert_eq!(elements(&again, "bfloat16"), [1f32, -2.0].map(f32::to_le_bytes).concat());
    assert_eq!(elements(&again, "int64"), elements(&typed, "int64"));
}

#[test]
fn only_unused_tensors_can_be_dropped() {
    let mut checkpoint = opened("typed_fields.onnx");
    checkpoint.tensors.retain(|tensor| ["float", "int64"].contains(&tensor.text().as_str()));
    assert_eq!(names(&open(&one_file(&checkpoint)).unwrap()), ["float", "int64"]);
    checkpoint.tensors.retain(|tensor| tensor.text() == "int64");
    let error = Onnx.plan(&checkpoint, &PlanOptions::default()).unwrap_err();
    assert_eq!((error.code().as_str(), error.tensor()), ("missing-tensors", Some("float")));
}

/// Bytes of a model with two tensors of one name.
fn with_two_of_one_name() -> Vec<u8> {
    use crate::encode::Message;
    let (mut graph, mut opset, mut model) = (Message::default(), Message::default(), Message::default());
    graph.text(2, "main");
    for bytes in [[1u8; 4], [2; 4]] {
        let mut tensor = Message::default();
        tensor.int(1, 1);
        tensor.int(2, 1);
        tensor.text(8, "w");
        tensor.blob(9, &bytes);
        graph.message(5, tensor);
    }
    opset.int(2, 17);
    model.int(1, 8);
    model.message(7, graph);
    model.message(8, opset);
    let mut file = FileBuilder::new("");
    model.write(&mut file).unwrap();
    let plan = WritePlan { format: "onnx", kind: "model", files: vec![file.finish()], losses: Vec::new() };
    materialise(&plan).remove(0)
}

#[test]
fn one_of_two_tensors_of_one_name_can_be_dropped() {
    let mut checkpoint = open(&with_two_of_one_name()).unwrap();
    assert_eq!(names(&checkpoint), ["w", "w~1"]);
    checkpoint.tensors.retain(|tensor| tensor.text() == "w");
    let again = open(&one_file(&checkpoint)).unwrap();
    assert_eq!(names(&again), ["w"]);
    assert_eq!(elements(&again, "w"), [1; 4]);
}

#[test]
fn of_many_metadata_the_last_value_of_a_key_counts() {
    use crate::encode::Message;
    let mut added = Message::default();
    for number in 0..60_000 {
        let mut pair = Message::default();
        pair.text(1, &format!("key{}", number % 50_000));
        pair.text(2, &number.to_string());
        added.message(14, pair);
    }
    let mut file = FileBuilder::new("");
    added.write(&mut file).unwrap();
    let plan = WritePlan { format: "onnx", kind: "model", files: vec![file.finish()], losses: Vec::new() };
    let bytes = [bytes_of("good/mlp.onnx"), materialise(&plan).remove(0)].concat();
    let checkpoint = open(&bytes).unwrap();
    assert_eq!(checkpoint.metadata.get("key7"), Some(&Value::Text("50007".to_owned())));
    assert_eq!(one_file(&checkpoint), bytes);
}

#[test]
fn external_data_moves_on_request() {
    let checkpoint = opened("external/net.onnx");
    let inside = written(&checkpoint, &[("external_data", "no")]);
    let again = reopened(&inside);
    assert_eq!(inside.len(), 1);
    assert_eq!(elements(&again, "fc1.weight"), elements(&checkpoint, "fc1.weight"));
    let outside = written(&opened("partly_external/net.onnx"), &[("external_data", "yes")]);
    // All tensors are below the size from which tensors are moved.
    assert_eq!(outside.len(), 1);
    let mut cast = opened("external/net.onnx");
    cast.cast_floats(DType::F64).unwrap();
    let files = written(&cast, &[]);
    assert_eq!(files.keys().map(String::as_str).collect::<Vec<_>>(), ["model.onnx", "net.onnx.data"]);
    let again = reopened(&files);
    assert_eq!(again.tensor("fc2.bias").unwrap().stored, DType::F64);
    assert_eq!(elements(&again, "fc1.weight"), elements(&cast, "fc1.weight"));
    let error = Onnx
        .plan(
            &cast,
            &PlanOptions {
                settings: vec![("external_data".into(), "maybe".into())],
                ..PlanOptions::default()
            },
        )
        .unwrap_err();
    assert_eq!(error.code().as_str(), "bad-setting");
}

#[test]
fn properties_can_be_changed() {
    let mut checkpoint = opened("mlp.onnx");
    checkpoint.metadata.set("task", Value::Text("regress".into()));
    checkpoint.metadata.set("author", Value::Text("me".into()));
    checkpoint.metadata.set("doc_string", Value::Text("Changed".into()));
    let again = open(&one_file(&checkpoint)).unwrap();
    for key in ["task", "author", "doc_string", "producer_name", "ir_version", "opset"] {
        assert_eq!(again.metadata.get(key), checkpoint.metadata.get(key), "{key}");
    }
    checkpoint.metadata.remove("task");
    assert_eq!(open(&one_file(&checkpoint)).unwrap().metadata.get("task"), None);
}

#[test]
fn programs_have_blocks_and_operators() {
    let checkpoint = opened("control_flow.onnx");
    let topology = checkpoint.topology.as_deref().unwrap();
    assert_eq!((topology.form, topology.writer.as_deref()), ("onnx", Some("make_onnx 1")));
    let kinds: Vec<_> = topology.blocks[0].operators.iter().map(|o| o.kind.as_str()).collect();
    assert_eq!(kinds, ["Constant", "Constant", "ConstantOfShape", "If", "Loop", "Add"]);
    assert_eq!(topology.blocks[0].operators[3].blocks, [1, 2]);
    assert_eq!(topology.blocks[3].arguments, ["i", "go", "acc"]);
    assert_eq!(topology.feeds.iter().map(|f| f.name.as_str()).collect::<Vec<_>>(), ["x", "cond"]);
    assert_eq!(topology.operator_versions, [("ai.onnx".to_owned(), 17)]);
    for file in expected().keys() {
        let checkpoint = opened(file);
        let mut findings =
            weighbridge_core::check::program(checkpoint.topology.as_deref().unwrap(), &checkpoint.tensors);
        findings.extend(Onnx.check(&checkpoint).unwrap());
        findings.retain(|finding| finding.code != "unused-parameters");
        // A sparse tensor is not declared elsewhere.
        assert!(findings.is_empty(), "{file}: {findings:?}");
    }
}

#[test]
fn tensors_outside_the_index_are_named() {
    let notes: Vec<_> =
        opened("packed.onnx").notes.iter().map(|note| (note.code.as_str(), note.omission)).collect();
    assert_eq!(notes, [("tensor-skipped", true), ("packed-as-bytes", false)]);
    let packed = opened("packed.onnx");
    assert_eq!(elements(&packed, "int4"), [0x21, 0x43, 0x65, 0x87, 0x09]);
    assert_eq!(elements(&packed, "uint4"), [0x21, 0x03]);
    assert_eq!(packed.tensor("uint4").unwrap().text_attribute("packed_dtype"), Some("uint4"));
}

#[cfg(feature = "scan")]
#[test]
fn scans_report_paths_and_custom_operators() {
    use weighbridge_format::ScanCode;
    let codes = |bytes: Vec<u8>| -> Vec<String> {
        let scan = Onnx.scan(&memory(&bytes), &OpenOptions::default()).unwrap();
        scan.findings.iter().map(|finding| finding.code.as_str().to_owned()).collect()
    };
    assert_eq!(codes(bytes_of("bad/external-parent.onnx")), ["name-leads-out"]);
    assert_eq!(codes(bytes_of("../scan/bad/custom.onnx")), ["custom-operators"]);
    assert_eq!(codes(bytes_of("good/attributes.onnx")), [""; 0]);
    assert_eq!(codes(bytes_of("good/functions.onnx")), [""; 0]);
    assert_eq!(codes(bytes_of("bad/truncated.onnx")), ["unreadable"]);
}

#[test]
fn other_protobuf_files_are_not_recognized() {
    let is = |bytes: &[u8]| Onnx.recognises(bytes, &memory(bytes));
    assert!(!is(b""));
    // Core ML, TensorFlow SavedModel and GraphDef, a Paddle program.
    assert!(!is(b"\x08\x04\x12\x09\x0a\x07\x0a\x01x\x22\x02\x08\x01"));
    assert!(!is(b"\x08\x01\x12\x05\x0a\x03abc"));
    assert!(!is(b"\x0a\x05\x0a\x03abc"));
    assert!(!is(b"\x0a\x0b\x08\x00\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"));
    assert!(is(b"\x08\x08\x3a\x00"));
    assert!(is(&bytes_of("good/mlp.onnx")));
    assert!(is(&bytes_of("bad/truncated.onnx")));
}

/// Tensors salvaged from a damaged file are those of the intact file, and a longer beginning gives no fewer.
#[test]
fn salvaged_tensors_are_those_of_the_intact_file() {
    let options = OpenOptions { salvage: true, format: Some("onnx".to_owned()), ..OpenOptions::default() };
    for file in expected().keys().filter(|file| !file.contains('/')) {
        let bytes = bytes_of(&format!("good/{file}"));
        let whole = open(&bytes).unwrap();
        let hold = |saved: &Checkpoint, what: &str| -> u64 {
            for tensor in &saved.tensors {
                let name = tensor.path.to_text();
                // The length of a damaged node may lead into its body: then the tensors there lack the name of the node.
                let ends = |own: &&TensorEntry| own.path.to_text().ends_with(&format!(".{name}"));
                let own = whole.tensors.iter().find(|own| own.path.to_text() == name);
                let own = own.or_else(|| whole.tensors.iter().find(ends));
                let own = own.unwrap_or_else(|| panic!("{file} {what}: {name}"));
                assert_eq!((tensor.stored, &tensor.shape), (own.stored, &own.shape), "{file} {what}: {name}");
                let elements = |tensor: &TensorEntry| tensor.read_tensor(Order::Row).unwrap();
                assert!(elements(tensor) == elements(own), "{file} {what}: {name}");
            }
            saved.tensors.iter().map(TensorEntry::bytes).sum()
        };
        let mut before = 0;
        for end in 0..bytes.len() {
            let saved = registry().open_source(memory(&bytes[..end]), &options);
            let now = saved.as_ref().map_or(0, |saved| hold(saved, &format!("cut at {end}")));
            assert!(now >= before, "{file} cut at {end}: {now} after {before}");
            before = now;
        }
        for place in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[place] ^= [0xff, 1, 0x10, 0x41][place % 4];
            let plain = OpenOptions { format: Some("onnx".to_owned()), ..OpenOptions::default() };
            if registry().open_source(memory(&changed), &plain).is_err()
                && let Ok(saved) = registry().open_source(memory(&changed), &options)
            {
                hold(&saved, &format!("with byte {place} changed"));
            }
        }
    }
}
