//! Files of Darknet (`judges/make_darknet.py`): read and damaged.
#![allow(clippy::disallowed_methods)]

use crate::Darknet;
use serde_json::Value as Json;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use weighbridge_core::checkpoint::{Checkpoint, Name, Role, Value};
use weighbridge_core::error::Result;
use weighbridge_core::tensor::Order;
use weighbridge_core::topology::AttributeValue;
use weighbridge_format::{DeepCheck, Detect, OpenOptions, Registry, ScanCode};
use weighbridge_io::source::{FolderRef, MemoryFolder};
use weighbridge_testkit::memory;

fn registry() -> Registry {
    Registry::new([&Darknet as _])
}

fn golden(name: &str) -> PathBuf {
    weighbridge_testkit::testdata("darknet").join(name)
}

fn bytes_of(name: &str) -> Vec<u8> {
    std::fs::read(golden(name)).unwrap()
}

fn opened(name: &str) -> Checkpoint {
    registry().open_with(golden("good").join(format!("{name}.weights")), &OpenOptions::default()).unwrap()
}

/// Opens weights and a network in memory.
fn open(weights: &[u8], network: &[u8], salvage: bool) -> Result<Checkpoint> {
    let folder = MemoryFolder::new("m").with("a.weights", weights.to_vec()).with("a.cfg", network.to_vec());
    let folder: FolderRef = Arc::new(folder);
    registry().open_folder(&folder, &OpenOptions { salvage, ..OpenOptions::default() })
}

fn names(checkpoint: &Checkpoint) -> Vec<String> {
    checkpoint.tensors.iter().map(|t| t.path.to_text()).collect()
}

fn expected() -> BTreeMap<String, BTreeMap<String, Json>> {
    serde_json::from_slice(&bytes_of("expected.json")).unwrap()
}

#[test]
fn golden_files_have_the_parameters_of_darknet() {
    assert!(expected().len() > 7);
    for (file, tensors) in expected() {
        let checkpoint = opened(&file);
        let mut found = names(&checkpoint);
        found.sort();
        assert_eq!(found, tensors.keys().cloned().collect::<Vec<_>>(), "{file}");
        for (name, wanted) in tensors {
            let tensor = checkpoint.tensors.iter().find(|t| t.path.to_text() == name).unwrap();
            let shape: Vec<u64> = serde_json::from_value(wanted["shape"].clone()).unwrap();
            assert_eq!(tensor.shape.dims(), &*shape, "{file} {name}");
            let data = tensor.read_tensor(Order::Row).unwrap();
            assert_eq!(Name::hex(&Sha256::digest(data)), wanted["sha256"].as_str().unwrap(), "{file} {name}");
        }
        let topology = checkpoint.topology.as_deref().unwrap();
        assert!(weighbridge_core::check::program(topology, &checkpoint.tensors).is_empty(), "{file}");
        let source = memory(bytes_of(&format!("good/{file}.weights")));
        let outline = Darknet.outline(&source, &OpenOptions::default().limits).unwrap();
        assert_eq!(outline.parts.len(), 1);
        assert_eq!(outline.parts[0].len, if file == "old" { 16 } else { 20 });
    }
}

#[test]
fn roles_and_metadata_are_set() {
    let checkpoint = opened("tiny");
    assert_eq!(checkpoint.tensor("conv_0.mean").unwrap().role, Role::Buffer);
    assert_eq!(checkpoint.tensor("conv_0.scale").unwrap().role, Role::Parameter);
    assert_eq!(checkpoint.metadata.get("version"), Some(&Value::Text("0.2.5".to_owned())));
    assert_eq!(checkpoint.metadata.get("seen"), Some(&Value::U64(32_013_312)));
}

#[test]
fn networks_are_programs() {
    let network = registry().open_with(golden("good/residual.cfg"), &OpenOptions::default()).unwrap();
    assert_eq!((network.kind, network.tensors.len()), ("network", 0));
    let topology = network.topology.unwrap();
    let of = |place: usize| {
        let operator = topology.operators().nth(place).unwrap();
        (operator.kind.as_str(), operator.inputs[0].arguments.join(" "))
    };
    assert_eq!(of(0), ("convolutional", "data".to_owned()));
    assert_eq!(of(3), ("shortcut", "conv_2 conv_0".to_owned()));
    assert_eq!(of(4), ("route", "shortcut_3 conv_1".to_owned()));
    assert_eq!(topology.feeds[0].shape.as_deref(), Some(&[-1, 3, 16, 16][..]));
    let ends: Vec<&str> = topology.fetches.iter().map(|fetch| fetch.name.as_str()).collect();
    assert_eq!(ends, ["upsample_6", "yolo_10"]);
    let first = topology.operators().next().unwrap();
    assert_eq!(first.attribute("filters"), Some(&AttributeValue::Int(4)));
    assert_eq!(first.attribute("activation"), Some(&AttributeValue::Text("leaky".to_owned())));
}

#[test]
fn options_leave_parameters_out() {
    let tiny = String::from_utf8(bytes_of("good/tiny.cfg")).unwrap();
    let whole = bytes_of("good/tiny.weights");
    let scales = tiny.replacen("filters=4", "dontloadscales=1\nfilters=4", 1);
    let less = [&whole[..20 + 16], &whole[20 + 16 * 4..]].concat();
    let found = open(&less, scales.as_bytes(), false).unwrap();
    assert_eq!(names(&found)[..2], ["conv_0.bias", "conv_0.weight"]);
    let none = tiny.replacen("filters=4", "dontload=1\nfilters=4", 1);
    let less = [&whole[..20], &whole[20 + 16 * 4 + 4 * 3 * 9 * 4..]].concat();
    let found = open(&less, none.as_bytes(), false).unwrap();
    assert_eq!(names(&found)[0], "conv_2.bias");
}

#[test]
fn the_network_may_lack_the_suffix_of_training() {
    for name in ["tiny_final.weights", "tiny_10000.weights", "tiny.weights"] {
        let folder = MemoryFolder::new("m")
            .with(name, bytes_of("good/tiny.weights"))
            .with("tiny.cfg", bytes_of("good/tiny.cfg"));
        let folder: FolderRef = Arc::new(folder);
        assert_eq!(
            registry().open_folder(&folder, &OpenOptions::default()).unwrap().tensors.len(),
            12,
            "{name}"
        );
    }
    let folder = MemoryFolder::new("m")
        .with("a.weights", bytes_of("good/tiny.weights"))
        .with("b.weights", bytes_of("good/tiny.weights"))
        .with("a.cfg", bytes_of("good/tiny.cfg"));
    let folder: FolderRef = Arc::new(folder);
    assert!(!Darknet.recognises_folder(&folder));
}

#[test]
fn damaged_files_have_their_own_errors() {
    let wanted = [
        ("alone", "config-missing"),
        ("bad-option", "bad-number"),
        ("far-route", "index-out-of-range"),
        ("longer", "length-mismatch"),
        ("negative", "bad-number"),
        ("newer", "format-version"),
        ("no-network", "bad-header"),
        ("no-stride", "bad-number"),
        ("truncated", "past-the-end"),
        ("unclosed", "bad-line"),
        ("unknown-layer", "not-understood"),
    ];
    for (file, code) in wanted {
        let options = OpenOptions { format: Some("darknet".to_owned()), ..OpenOptions::default() };
        let error =
            registry().open_with(golden("bad").join(format!("{file}.weights")), &options).unwrap_err();
        assert_eq!(error.code().as_str(), code, "{file}: {error}");
        assert!(error.file().is_some() && error.offset().is_some(), "{file}: {error}");
    }
    let alone = registry().open_source(memory(bytes_of("good/tiny.weights")), &OpenOptions::default());
    assert_eq!(alone.unwrap_err().code().as_str(), "config-missing");
}

#[test]
fn every_prefix_is_an_error_and_keeps_whole_tensors() {
    let (weights, network) = (bytes_of("good/tiny.weights"), bytes_of("good/tiny.cfg"));
    let whole = open(&weights, &network, false).unwrap();
    for end in 0..weights.len() {
        assert!(open(&weights[..end], &network, false).is_err(), "{end}");
        let Ok(saved) = open(&weights[..end], &network, true) else { continue };
        assert!(saved.damage.is_some());
        for tensor in &saved.tensors {
            let wanted = whole.tensors.iter().find(|other| other.path == tensor.path).unwrap();
            let [found, wanted] = [tensor, wanted].map(|tensor| tensor.read_tensor(Order::Row).unwrap());
            assert_eq!(found, wanted, "{end}");
        }
    }
    let saved = open(&weights[..weights.len() - 8], &network, true).unwrap();
    assert_eq!(saved.tensors.len(), whole.tensors.len() - 1);
    assert_eq!(saved.damage.unwrap().lost[0].name, "conv_4.weight");
}

/// Changed bytes cause errors, never panics.
#[test]
fn mutations_never_panic() {
    for file in ["tiny", "residual", "reorg", "local", "classifier"] {
        let weights = bytes_of(&format!("good/{file}.weights"));
        let network = bytes_of(&format!("good/{file}.cfg"));
        for place in 0..network.len() {
            for change in [1u8, 8, 0x80] {
                let mut changed = network.clone();
                changed[place] ^= change;
                for salvage in [false, true] {
                    _ = open(&weights, &changed, salvage);
                }
            }
        }
        for place in 0..24 {
            let mut changed = weights.clone();
            changed[place] ^= 0x81;
            _ = Darknet.outline(&memory(&changed), &OpenOptions::default().limits);
            _ = open(&changed, &network, false);
        }
    }
}

#[test]
fn large_sizes_are_errors() {
    let tiny = String::from_utf8(bytes_of("good/tiny.cfg")).unwrap();
    for (from, to) in [
        ("filters=4", "filters=4294967295"),
        ("size=3", "size=4294967295"),
        ("width=16", "width=4294967295"),
        ("channels=3", "channels=4294967295"),
    ] {
        let error = open(&bytes_of("good/tiny.weights"), tiny.replacen(from, to, 1).as_bytes(), false);
        assert!(error.is_err() || from == "width=16", "{to}");
    }
    // Sizes that exceed 64 bits.
    let steps = "[upsample]\nstride=4000000000\n".repeat(5);
    let text = format!(
        "{tiny}{steps}[maxpool]\nsize=2\nstride=1\n[convolutional]\nfilters=1\npad=1\n[reorg]\nstride=4000000000\n[connected]\n"
    );
    assert!(open(&bytes_of("good/tiny.weights"), text.as_bytes(), false).is_err());
}

#[test]
fn other_files_are_not_recognized() {
    for head in [
        &b"\0\0\0\0\x02\0\0\0\x05\0\0\0\0\0\0\0\0\0\0\0"[..],
        b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
        b"[net]\nname=x\n",
        b"[tool]\n[convolutional]\n",
        b"[core]\n\trepositoryformatversion = 0\n",
    ] {
        assert!(!Darknet.recognises(head, &memory(head)));
    }
}

#[test]
fn weights_are_scanned_without_their_network() {
    let codes = |name: &str| {
        let scan = Darknet.scan(&memory(bytes_of(name)), &OpenOptions::default()).unwrap();
        scan.findings.iter().map(|finding| finding.code.as_str()).collect::<Vec<_>>()
    };
    assert!(codes("good/tiny.weights").is_empty() && codes("good/tiny.cfg").is_empty());
    assert_eq!(codes("bad/unclosed.cfg"), ["unreadable"]);
    assert_eq!(codes("bad/newer.weights"), ["unreadable"]);
}
