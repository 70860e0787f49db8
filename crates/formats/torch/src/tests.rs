#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod composite;
mod sharded;
mod structure;
mod values;
mod versions;

use super::*;
use serde_json::{Value as Json, json};
use std::path::PathBuf;
use weighbridge::formats::registry;
use weighbridge::ops::{ConvertOptions, plan_checkpoint};
use weighbridge_core::checkpoint::{Attributes, Name, Role, StateOf, TensorEntry, Value};
use weighbridge_core::finding::{Severity, Verdict, verdict};
use weighbridge_io::testing::materialise;
use weighbridge_testkit::memory;

fn folder(name: &str) -> PathBuf {
    weighbridge_testkit::testdata("torch").join(name)
}

fn files(name: &str) -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    for item in std::fs::read_dir(folder(name)).unwrap() {
        let path = item.unwrap().path();
        if path.extension().is_some_and(|e| e == "pt") {
            all.push((path.file_name().unwrap().to_str().unwrap().to_owned(), std::fs::read(&path).unwrap()));
        }
    }
    all.sort();
    assert!(!all.is_empty());
    all
}

fn open_bytes(bytes: &[u8]) -> Result<Checkpoint> {
    registry().open_source(memory(bytes), &OpenOptions::default())
}

fn good(name: &str) -> Checkpoint {
    open_bytes(&std::fs::read(folder("good").join(name)).unwrap()).unwrap()
}

fn scanned(bytes: &[u8]) -> Scan {
    Torch.scan(&memory(bytes), &OpenOptions::default()).unwrap()
}

fn tensor_as_json(tensor: &TensorEntry) -> Json {
    let bytes = tensor.read_tensor(Order::Row).unwrap();
    let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
    json!({ "name": tensor.text(), "dtype": tensor.dtype().name(), "shape": tensor.shape.dims(), "hex": hex })
}

fn tensors_as_json(checkpoint: &Checkpoint) -> Json {
    checkpoint.tensors.iter().map(tensor_as_json).collect()
}

#[test]
fn golden_files_round_trip_bit_for_bit() {
    let expected: Json =
        serde_json::from_slice(&std::fs::read(folder("good").join("expected.json")).unwrap()).unwrap();
    let files = files("good");
    assert_eq!(files.len(), expected.as_object().unwrap().len());
    for (name, bytes) in files {
        let checkpoint = open_bytes(&bytes).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(checkpoint.format, "torch");
        assert_eq!(tensors_as_json(&checkpoint), expected[&name]["tensors"], "{name}");
        assert_eq!(checkpoint.kind, expected[&name]["kind"], "{name}");
        let plan = Torch.plan(&checkpoint, &PlanOptions::default()).unwrap();
        let again = open_bytes(&materialise(&plan).remove(0)).unwrap();
        assert_eq!(tensors_as_json(&again), expected[&name]["tensors"], "{name}");
        assert_eq!(again.metadata, checkpoint.metadata, "{name}");
        // Notes on composite tensors.
        let expected_codes = ["quantized-as-integers", "sparse-as-parts"];
        assert!(
            again.notes.iter().all(|note| expected_codes.contains(&note.code.as_str())),
            "{name}: {:?}",
            again.notes
        );
        assert_eq!(
            again.notes,
            checkpoint
                .notes
                .iter()
                .filter(|n| expected_codes.contains(&n.code.as_str()))
                .cloned()
                .collect::<Vec<_>>()
        );
        for (a, b) in again.tensors.iter().zip(&checkpoint.tensors) {
            // Views are written as separate storages.
            let mut attributes = b.attributes.clone();
            attributes.remove(Attributes::STORAGE);
            assert_eq!((&a.path, &a.role, &a.attributes), (&b.path, &b.role, &attributes), "{name}");
        }
    }
}

#[test]
fn metadata_roles_aliases_and_classes_are_read() {
    for name in ["nested.pt", "nested_legacy.pt"] {
        let checkpoint = good(name);
        assert_eq!(checkpoint.metadata.get("epoch"), Some(&Value::I64(3)));
        assert_eq!(checkpoint.metadata.get("note"), Some(&Value::Text("text".repeat(100))));
        assert!(checkpoint.metadata.get("optimizer.param_groups").is_some());
        assert!(checkpoint.metadata.get("model._metadata").is_some());
        let state = checkpoint.tensor("optimizer.state.0.exp_avg").unwrap();
        let of = StateOf { name: "model.0.weight".into(), guessed: true };
        let role = Role::OptimizerPart { of: Some(Box::new(of)) };
        assert_eq!((&state.role, state.path.parts().len()), (&role, 4));
        assert!(checkpoint.notes.is_empty(), "{:?}", checkpoint.notes);
    }
    for name in ["tied.pt", "tied_legacy.pt"] {
        let tensors = good(name).tensors;
        let alias: Vec<_> = tensors.iter().map(|t| t.text_attribute(Attributes::ALIAS_OF)).collect();
        assert_eq!(alias, [None, Some("a"), Some("a")]);
    }
    let module = good("module.pt");
    assert!(module.notes.iter().any(|n| n.code == "unknown-class" && n.text.contains("Linear")));
    assert_eq!(module.tensors[0].attributes.get("requires_grad"), Some(&Value::Bool(true)));
    let script = good("script.pt");
    assert!(script.notes.iter().any(|n| n.code == "torchscript-code" && n.omission));
    assert!(good("module_state.pt").metadata.get(VERSIONS).is_some());
    assert_eq!(good("parameter.pt").tensors[1].text_attribute("class"), Some("__main__.Sub"));
}

/// Attributes that Python code set on tensors come last, and never take the name of a key.
#[test]
fn attributes_of_tensors_are_read() {
    for name in ["attributes.pt", "attributes_legacy.pt"] {
        let checkpoint = good(name);
        assert_eq!(checkpoint.metadata.get("p.tag"), Some(&Value::I64(5)), "{name}");
        assert_eq!(checkpoint.metadata.get("t.scale.of"), Some(&Value::Text("rows".into())), "{name}");
        let roles: Vec<_> = checkpoint.tensors.iter().map(|t| t.role.as_str()).collect();
        let own = ["parameter"; 4];
        assert_eq!(roles, [&own[..], &["other"; 2]].concat(), "{name}");
        assert_eq!(
            checkpoint.tensor("tied").unwrap().text_attribute(Attributes::ALIAS_OF),
            Some("p"),
            "{name}"
        );
        let codes: Vec<_> = checkpoint.notes.iter().map(|note| note.code.as_str()).collect();
        assert_eq!(codes, [""; 0], "{name}");
        let losses = Torch.plan(&checkpoint, &PlanOptions::default()).unwrap().losses;
        assert!(losses.iter().any(|loss| loss.code == "structure-dropped"), "{losses:?}");
    }
    let mut bytes = std::fs::read(folder("good").join("attributes_legacy.pt")).unwrap();
    let at = bytes.windows(11).position(|window| window == b"p.main_grab").unwrap();
    bytes[at + 10] = b'd';
    let colliding = open_bytes(&bytes).unwrap();
    let names: Vec<_> = colliding.tensors.iter().map(TensorEntry::text).collect();
    assert_eq!(names, ["p", "t", "p.main_grad", "tied", "p.main_grad~4", "t.scale"]);
    assert_eq!(colliding.notes[0].code.as_str(), "name-collision");
}

#[test]
fn views_of_one_storage_are_not_reported_as_damage() {
    for name in ["views.pt", "views_legacy.pt"] {
        let checkpoint = good(name);
        assert_eq!(checkpoint.tensor("turned").unwrap().order(), Order::Column);
        assert!(checkpoint.tensor("turned").unwrap().attributes.contains_key(Attributes::STORAGE));
        let losses = |c: &Checkpoint, to: &dyn Format| {
            let plan = plan_checkpoint(c.clone(), to, None, &ConvertOptions::default()).unwrap();
            plan.losses
                .iter()
                .map(|loss| format!("{} {}", loss.code.as_str(), loss.subject))
                .collect::<Vec<_>>()
        };
        for to in [&Torch as &dyn Format, &weighbridge::formats::safetensors::Safetensors] {
            let expected = ["tie-not-held rows and 2 other tensors"];
            assert_eq!(losses(&checkpoint, to), expected, "{name}");
        }
        let mut alone = checkpoint.clone();
        alone.tensors.retain(|tensor| tensor.text() == "turned");
        assert_eq!(losses(&alone, &Torch), [""; 0], "{name}");
        let report = weighbridge::ops::verify::verify_checkpoint(&checkpoint, &Default::default()).unwrap();
        let wrong: Vec<_> = report.findings.iter().filter(|f| f.severity == Severity::Error).collect();
        assert!(wrong.is_empty(), "{name}: {wrong:?}");
    }
}

#[test]
fn ties_are_reported_as_losses_for_formats_without_shared_storage() {
    let checkpoint = good("attributes.pt");
    let codes = |to: &dyn Format| {
        let plan = plan_checkpoint(checkpoint.clone(), to, None, &ConvertOptions::default()).unwrap();
        plan.losses.iter().filter(|l| l.code == "tie-not-held").map(|l| l.subject.clone()).collect::<Vec<_>>()
    };
    assert_eq!(codes(&Torch), [""; 0]);
    assert_eq!(codes(&weighbridge::formats::safetensors::Safetensors), ["p and tied"]);
    assert_eq!(codes(&weighbridge::formats::npz::Npz), ["p and tied"]);
    assert_eq!(codes(&weighbridge::formats::hdf5::Hdf5), ["p and tied"]);
}

#[test]
fn bad_files_are_rejected_with_their_code() {
    let code = |name: &str| {
        let bytes = std::fs::read(folder("bad").join(name)).unwrap();
        open_bytes(&bytes).err().map(|e| e.code().as_str())
    };
    assert_eq!(code("no_storage.pt"), Some("torch-storage-missing"));
    assert_eq!(code("short_storage.pt"), Some("torch-storage-length"));
    assert_eq!(code("outside.pt"), Some("torch-outside-storage"));
    assert_eq!(code("crc.pt"), Some("crc-mismatch"));
    assert_eq!(code("cut_legacy.pt"), Some("truncated"));
    assert_eq!(code("hdf5_too.pt"), Some("zip-bad-zip64"));
    for name in ["conjugated.pt", "objects.pt", "nested.pt"] {
        let checkpoint = open_bytes(&std::fs::read(folder("bad").join(name)).unwrap()).unwrap();
        assert!(checkpoint.tensors.iter().all(|tensor| tensor.text() == "w"), "{name}");
        assert!(checkpoint.notes.iter().any(|n| n.skipped.as_ref().is_some_and(|t| t.name == "x")), "{name}");
    }
}

#[test]
fn scan_finds_code_that_would_run() {
    for name in ["evil.pt", "evil_legacy.pt"] {
        let scan = scanned(&std::fs::read(folder("bad").join(name)).unwrap());
        assert!(scan.findings.iter().any(|f| f.code == "dangerous-import"), "{name}: {:?}", scan.findings);
        assert_eq!(verdict(&scan.findings), Verdict::Unsound);
    }
    for name in ["plain.pt", "plain_legacy.pt", "nested_legacy.pt", "deflated.pt", "types.pt"] {
        let scan = scanned(&std::fs::read(folder("good").join(name)).unwrap());
        assert_eq!(verdict(&scan.findings), Verdict::Sound, "{name}: {:?}", scan.findings);
        assert!(!scan.imports.is_empty());
    }
    let script = scanned(&std::fs::read(folder("good").join("script.pt")).unwrap());
    assert!(script.findings.iter().any(|f| f.code == "torchscript-code"));
}

#[test]
fn old_tar_archives_are_recognized() {
    let mut tar = vec![0; 1024];
    tar[..8].copy_from_slice(b"sys_info");
    tar[257..262].copy_from_slice(b"ustar");
    assert_eq!(open_bytes(&tar).unwrap_err().code().as_str(), "torch-tar");
    tar[..8].copy_from_slice(b"somefile");
    assert_eq!(open_bytes(&tar).unwrap_err().code().as_str(), "unknown-format");
}

/// Opens and reads a file; returns true if it opens. A failure must have a message.
fn opens(bytes: Vec<u8>) -> bool {
    match Torch.open(memory(&bytes), &OpenOptions::default()) {
        Ok(checkpoint) => {
            for tensor in checkpoint.tensors.iter().filter(|t| t.bytes() < 1 << 16) {
                if let Ok(read) = tensor.read_tensor(Order::Row) {
                    assert_eq!(read.len() as u64, tensor.bytes());
                }
            }
            true
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            false
        }
    }
}

#[test]
fn rejects_every_prefix() {
    for name in ["plain.pt", "plain_legacy.pt", "deflated.pt"] {
        let bytes = std::fs::read(folder("good").join(name)).unwrap();
        assert!(opens(bytes.clone()));
        for len in 0..bytes.len() {
            assert!(!opens(bytes[..len].to_vec()), "{name} cut to {len}");
        }
    }
}

#[test]
fn a_hundred_thousand_damaged_files_do_not_panic() {
    let seeds: Vec<_> = files("good").into_iter().map(|(_, bytes)| bytes).collect();
    let mut state = 1u64;
    let mut random = |end: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % end
    };
    let mut opened = 0;
    for case in 0..100_000 {
        let mut bytes = seeds[case % seeds.len()].clone();
        // The checksum of a stored pickle is corrected, so that the damage passes it.
        let pickle = weighbridge_zip::read_directory(&memory(&bytes), &Limits::default())
            .ok()
            .and_then(|all| all.into_iter().find(|m| m.name.ends_with("data.pkl")))
            .filter(|m| m.compressed_len == m.len);
        let within = match &pickle {
            Some(m) => {
                usize::try_from(m.data_offset).unwrap()..usize::try_from(m.data_offset + m.len).unwrap()
            }
            None => 0..bytes.len(),
        };
        for _ in 0..=random(3) {
            let at = within.start + random(within.len());
            let values = [0, 1, 0x7f, 0x80, 0xff, b'K', b'q', b'h', b'.', b'(', b't', b'R'];
            bytes[at] =
                if random(2) == 0 { values[random(values.len())] } else { bytes[at] ^ (1 << random(8)) };
        }
        if let Some(m) = &pickle {
            let crc = crc32fast::hash(&bytes[within]).to_le_bytes();
            for at in 0..bytes.len() - 4 {
                if bytes[at..at + 4] == m.crc32.to_le_bytes() {
                    bytes[at..at + 4].copy_from_slice(&crc);
                }
            }
        }
        opened += u32::from(opens(bytes));
    }
    assert!(opened > 1000, "{opened} were opened: the damage does not reach far");
}

#[test]
fn truncated_archives_are_rejected_as_corrupt() {
    let (_, bytes) = files("good").into_iter().find(|(name, _)| name == "nested.pt").unwrap();
    for end in [bytes.len() - 1, bytes.len() / 2] {
        let error = open_bytes(&bytes[..end]).unwrap_err();
        assert_eq!(error.kind(), weighbridge_core::Kind::Corrupt, "{error}");
        assert_ne!(error.code().as_str(), "unknown-format");
    }
    // Also one that begins differently.
    let error = open_bytes(b"PK\x03\x04and no more").unwrap_err();
    assert_eq!(error.code().as_str(), "truncated");
}

/// PyTorch loads a file with bytes after its archive: they are reported as trailing bytes, not as truncation.
#[test]
fn bytes_after_an_archive_are_reported() {
    let lenient = OpenOptions { lenient: true, ..OpenOptions::default() };
    for name in ["plain.pt", "deflated.pt", "nested.pt", "module.pt"] {
        let whole = std::fs::read(folder("good").join(name)).unwrap();
        let longer = [&whole[..], &[7; 100]].concat();
        let error = open_bytes(&longer).unwrap_err();
        assert_eq!(
            (error.code().as_str(), error.offset()),
            ("trailing-bytes", Some(whole.len() as u64)),
            "{name}"
        );
        assert_eq!(error.found_text(), Some("100 bytes more"));
        let opened = registry().open_source(memory(&longer), &lenient).unwrap();
        assert_eq!(tensors_as_json(&opened), tensors_as_json(&good(name)));
        assert!(opened.notes.iter().any(|n| n.code == "trailing-bytes" && n.omission), "{:?}", opened.notes);
        let outline = Torch.outline(&memory(&longer), &Limits::default()).unwrap();
        let end = |parts: &[weighbridge_core::check::Part]| parts.iter().map(|p| p.offset + p.len).max();
        assert_eq!(end(&outline.parts), Some(whole.len() as u64), "{name}: nothing claims them");
        let codes: Vec<_> = scanned(&longer).findings.iter().map(|f| f.code.as_str()).collect();
        assert!(codes.contains(&"zip-appended") && !codes.contains(&"unreadable"), "{name}: {codes:?}");
    }
}

/// A bridge loses the structure: writing torch's form again reports the loss, as from torch to torch.
#[test]
fn a_structure_lost_in_a_bridge_is_reported() {
    use weighbridge::formats::safetensors::Safetensors;
    let source = good("nested.pt");
    assert_eq!(source.kind, OBJECT);
    let bridge = Safetensors.plan(&source, &PlanOptions::default()).unwrap();
    let back = open_bytes(&materialise(&bridge).remove(0)).unwrap();
    for checkpoint in [&source, &back] {
        let losses = Torch.plan(checkpoint, &PlanOptions::default()).unwrap().losses;
        assert!(losses.iter().any(|loss| loss.code == "structure-dropped"), "{losses:?}");
    }
}
