//! Files of OpenVINO (`judges/make_openvino.py`): read and damaged.
#![allow(clippy::disallowed_methods)]

use crate::OpenVino;
use serde_json::{Value as Json, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weighbridge_core::checkpoint::{Checkpoint, Name, Value};
use weighbridge_core::error::Result;
use weighbridge_core::tensor::Order;
use weighbridge_core::topology::AttributeValue;
use weighbridge_format::{Detect, Input, OpenOptions, ReadFormat, Registry, Salvage, ScanCode};
use weighbridge_io::source::{FolderRef, MemoryFolder};
use weighbridge_testkit::memory;

fn registry() -> Registry {
    Registry::new([&OpenVino as _])
}

fn golden(name: &str) -> PathBuf {
    weighbridge_testkit::testdata("openvino").join(name)
}

fn bytes_of(name: &str) -> Vec<u8> {
    std::fs::read(golden(name)).unwrap()
}

fn opened(name: &str) -> Checkpoint {
    registry().open_with(golden("good").join(format!("{name}.xml")), &OpenOptions::default()).unwrap()
}

/// Opens a network and constants in memory.
fn open(network: &[u8], constants: &[u8]) -> Result<Checkpoint> {
    let folder: FolderRef = Arc::new(MemoryFolder::new("m").with("a.bin", constants.to_vec()));
    OpenVino.open_beside(memory(network), &folder, Path::new("a.xml"), &OpenOptions::default())
}

fn salvaged(network: &[u8], constants: &[u8]) -> Option<Checkpoint> {
    let error = open(network, constants).unwrap_err();
    let folder: FolderRef = Arc::new(MemoryFolder::new("m").with("a.bin", constants.to_vec()));
    let source = memory(network);
    let place = Input::Beside(&source, &folder, Path::new("a.xml"));
    OpenVino.salvage(&place, &error, &OpenOptions::default()).ok().flatten()
}

fn names(checkpoint: &Checkpoint) -> Vec<String> {
    checkpoint.tensors.iter().map(|t| t.path.to_text()).collect()
}

fn expected() -> BTreeMap<String, Json> {
    serde_json::from_slice(&bytes_of("expected.json")).unwrap()
}

#[test]
fn golden_files_have_the_constants_of_openvino() {
    assert!(expected().len() > 12);
    for (file, wanted) in expected() {
        let checkpoint = opened(&file);
        let tensors = wanted["tensors"].as_object().unwrap();
        // The library lists the layers in an order of its own.
        if file != "names" {
            let mut found = names(&checkpoint);
            found.sort();
            let mut all: Vec<_> = tensors.keys().cloned().collect();
            all.sort();
            assert_eq!(found, all, "{file}");
        }
        let mut hashes = Vec::new();
        for tensor in &checkpoint.tensors {
            let name = tensor.path.to_text();
            let hash = Name::hex(&Sha256::digest(tensor.read_tensor(Order::Row).unwrap()));
            if file != "names" {
                let wanted = &tensors[&name];
                assert_eq!(tensor.stored.name(), wanted["dtype"].as_str().unwrap(), "{file} {name}");
                assert_eq!(json!(tensor.shape.dims()), wanted["shape"], "{file} {name}");
                assert_eq!(hash, wanted["sha256"].as_str().unwrap(), "{file} {name}");
                for key in ["packed_dtype", "packed_shape"] {
                    let own = tensor.attributes.get(key).map(Value::to_json);
                    assert_eq!(own.as_ref(), wanted.get(key), "{file} {name} {key}");
                }
            }
            hashes.push(hash);
        }
        let mut all: Vec<&str> = tensors.values().map(|one| one["sha256"].as_str().unwrap()).collect();
        all.sort_unstable();
        hashes.sort();
        assert_eq!(hashes, all, "{file}");
        let topology = checkpoint.topology.unwrap();
        let mut kinds: Vec<&str> = topology.operators().map(|operator| operator.kind.as_str()).collect();
        kinds.sort_unstable();
        assert_eq!(json!(kinds), wanted["layers"], "{file}");
        let findings = weighbridge_core::check::program(&topology, &checkpoint.tensors);
        assert!(findings.is_empty(), "{file} {findings:?}");
    }
}

#[test]
fn networks_are_programs() {
    let split = opened("split");
    let topology = split.topology.as_deref().unwrap();
    let add = topology.operators().find(|operator| operator.kind == "Add").unwrap();
    assert_eq!(add.inputs[0].arguments.len(), 2);
    assert!(add.inputs[0].arguments[1].ends_with(":2"), "{:?}", add.inputs);
    assert!(names(&split).contains(&"w & \"quoted\" <name>".to_owned()));
    assert!(topology.writer.as_deref().unwrap().starts_with("OpenVINO 20"));
    assert_eq!(topology.feeds[0].shape.as_deref(), Some(&[1, 4][..]));
    let conv = opened("conv");
    let topology = conv.topology.as_deref().unwrap();
    let operator = topology.operators().find(|operator| operator.kind == "Convolution").unwrap();
    assert_eq!(operator.attribute("strides"), Some(&AttributeValue::Text("2, 2".to_owned())));
    assert_eq!(conv.metadata.get("name"), Some(&Value::Text("conv".to_owned())));
    let control = opened("control");
    let topology = control.topology.as_deref().unwrap();
    let bodies = |kind: &str| topology.operators().find(|o| o.kind == kind).unwrap().blocks.len();
    assert_eq!((topology.blocks.len(), bodies("Loop"), bodies("If")), (4, 1, 2));
    assert!(control.tensors.iter().any(|tensor| tensor.path.parts().len() == 3));
}

#[test]
fn constants_of_one_place_are_tied() {
    assert!(!opened("shared").tied().is_empty());
    assert!(opened("names").notes.iter().any(|note| note.code.as_str() == "name-collision"));
}

#[test]
fn damaged_files_have_their_own_errors() {
    let wanted = [
        ("deep", "limit"),
        ("doctype", "bad-text"),
        ("edge", "index-out-of-range"),
        ("no-constants", "file-missing"),
        ("offset", "past-the-end"),
        ("overflow", "shape-overflow"),
        ("root", "bad-header"),
        ("shape", "bad-number"),
        ("size", "length-mismatch"),
        ("truncated", "past-the-end"),
        ("unclosed", "bad-text"),
        ("version", "format-version"),
        ("wrong-end", "bad-text"),
    ];
    for (file, code) in wanted {
        let options = OpenOptions { format: Some("openvino".to_owned()), ..OpenOptions::default() };
        let error = registry().open_with(golden("bad").join(format!("{file}.xml")), &options).unwrap_err();
        assert_eq!(error.code().as_str(), code, "{file}: {error}");
        assert!(error.file().is_some() && error.offset().is_some(), "{file}: {error}");
    }
}

#[test]
fn every_prefix_is_an_error() {
    for file in ["mlp", "control"] {
        let (network, constants) =
            (bytes_of(&format!("good/{file}.xml")), bytes_of(&format!("good/{file}.bin")));
        let whole = open(&network, &constants).unwrap();
        let end = network.iter().rposition(|&byte| byte == b'>').unwrap();
        for len in 0..=end {
            assert!(open(&network[..len], &constants).is_err(), "{file} {len}");
        }
        for len in 0..constants.len() {
            assert!(open(&network, &constants[..len]).is_err(), "{file} {len}");
            let saved = salvaged(&network, &constants[..len]).unwrap();
            assert!(!saved.damage.unwrap().lost.is_empty());
            for tensor in &saved.tensors {
                let wanted = whole.tensors.iter().find(|other| other.path == tensor.path).unwrap();
                let [found, wanted] = [tensor, wanted].map(|tensor| tensor.read_tensor(Order::Row).unwrap());
                assert_eq!(found, wanted, "{file} {len}");
            }
        }
    }
}

/// Changed bytes cause errors, never panics.
#[test]
fn mutations_never_panic() {
    for file in ["split", "relu", "empty"] {
        let (network, constants) =
            (bytes_of(&format!("good/{file}.xml")), bytes_of(&format!("good/{file}.bin")));
        for place in 0..network.len() {
            for change in [1u8, 4, 0x80] {
                let mut changed = network.clone();
                changed[place] ^= change;
                _ = OpenVino.scan(&memory(&changed), &OpenOptions::default());
                if open(&changed, &constants).is_err() {
                    _ = salvaged(&changed, &constants);
                }
            }
        }
    }
}

#[test]
fn layers_of_other_libraries_are_found() {
    let codes = |bytes: &[u8]| {
        let scan = OpenVino.scan(&memory(bytes), &OpenOptions::default()).unwrap();
        scan.findings.iter().map(|finding| finding.code.as_str()).collect::<Vec<_>>()
    };
    let network = bytes_of("good/mlp.xml");
    assert!(codes(&network).is_empty());
    let text = String::from_utf8(network).unwrap();
    let other = text.replace("type=\"ReLU\" version=\"opset1\"", "type=\"Mine\" version=\"extension\"");
    assert_eq!(codes(other.as_bytes()), ["custom-operators"]);
    assert_eq!(codes(&text.as_bytes()[..200]), ["unreadable"]);
}

#[test]
fn other_documents_are_not_recognized() {
    for text in [
        "<?xml version=\"1.0\"?><html>",
        "<net",
        "<!-- <net version=\"1\"> -->",
        "<network version=\"1\">",
        "<net name=\"x\">",
    ] {
        assert!(!OpenVino.recognises(text.as_bytes(), &memory(text.as_bytes())), "{text}");
    }
    let text = "\u{feff}<?xml version=\"1.0\"?>\n<!-- made by hand -->\n<net name=\"x\" version=\"10\">";
    assert!(OpenVino.recognises(text.as_bytes(), &memory(text.as_bytes())));
}

#[test]
fn entities_are_characters() {
    let budget = weighbridge_core::budget::Budget::new(0, &OpenOptions::default().limits);
    let text =
        |text: &str| crate::xml::parse(&format!("<a b='{text}'/>"), &budget).unwrap().attributes[0].1.clone();
    assert_eq!(text("&lt;&gt;&amp;&quot;&apos;&#65;&#x42;"), "<>&\"'AB");
    assert_eq!(text("&unknown; & &#xd800;"), "&unknown; & &#xd800;");
    // Each of these could search the rest of the text.
    assert_eq!(text(&"&".repeat(1_000_000)).len(), 1_000_000);
}
