//! Files of the original libraries.

use super::{content, expected, files, open, open_path, registry};
use crate::keys::{ARRAYS, LEAVES};
use crate::{Flax, Orbax};
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::sync::Arc;
use weighbridge_core::check::{Use, account, held};
use weighbridge_core::checkpoint::{Checkpoint, Role};
use weighbridge_core::limits::Limits;
use weighbridge_format::{DeepCheck, Detect, HEAD, OpenOptions};
use weighbridge_io::source::{CountingSource, MemorySource, Source, SourceRef};
use weighbridge_testkit::{memory, testdata};

fn is_expected(checkpoint: &Checkpoint, json: &Json, name: &str) {
    let tensors: BTreeMap<String, Json> = serde_json::from_value(json["tensors"].clone()).unwrap();
    assert_eq!(content(checkpoint), tensors, "{name}");
    let skipped: Vec<&str> =
        checkpoint.notes.iter().filter_map(|note| Some(note.skipped.as_ref()?.name.as_str())).collect();
    assert_eq!(serde_json::to_value(skipped).unwrap(), json["skipped"], "{name}");
    let mut values = checkpoint.metadata.to_json();
    [LEAVES, ARRAYS].iter().for_each(|own| _ = values.as_object_mut().unwrap().remove(*own));
    let mut wanted = json["values"].clone();
    for (key, value) in wanted.as_object_mut().unwrap() {
        // JSON has no infinity.
        if key == "nan" {
            *value = values[key].clone();
        }
    }
    assert_eq!(values, wanted, "{name}");
}

#[test]
fn reads_what_flax_reads() {
    for (path, json) in expected("flax") {
        let checkpoint = open_path(&path).unwrap();
        assert_eq!(checkpoint.format, "flax");
        is_expected(&checkpoint, &json, &path.display().to_string());
    }
}

#[test]
fn reads_what_orbax_reads() {
    for (path, json) in expected("orbax") {
        let checkpoint = open_path(&path).unwrap();
        assert_eq!(checkpoint.format, "orbax");
        is_expected(&checkpoint, &json, &path.display().to_string());
    }
}

#[test]
fn opening_reads_headers_only() {
    for (name, bytes) in files() {
        let size = bytes.len() as u64;
        let source = Arc::new(CountingSource::new(memory(bytes)));
        let checkpoint = open(source.clone()).unwrap();
        assert!(source.bytes_read() <= 4 * size, "{name}");
        let elements: u64 = checkpoint.tensors.iter().map(|tensor| tensor.bytes()).sum();
        assert!(elements <= size, "{name}");
    }
    // One array of 1 GiB: only its header is read.
    #[derive(Debug)]
    struct Large(Vec<u8>);
    impl Source for Large {
        fn len(&self) -> u64 {
            self.0.len() as u64 + (1 << 30)
        }
        fn read_at(&self, offset: u64, buffer: &mut [u8]) -> weighbridge_core::Result<()> {
            for (place, byte) in (offset..).zip(buffer) {
                *byte = usize::try_from(place).ok().and_then(|place| self.0.get(place)).copied().unwrap_or(0);
            }
            Ok(())
        }
        fn label(&self) -> &str {
            "large"
        }
    }
    let mut head = vec![0x81, 0xa1, b'w', 0xc9];
    let inner = [&[0x93, 0x91, 0xce, 0x10, 0, 0, 0, 0xa7][..], b"float32", &[0xc6, 0x40, 0, 0, 0]].concat();
    head.extend_from_slice(&u32::try_from((1 << 30) + inner.len()).unwrap().to_be_bytes());
    head.push(1);
    head.extend_from_slice(&inner);
    let source = Arc::new(CountingSource::new(Arc::new(Large(head))));
    let checkpoint = registry().open_source(source.clone(), &OpenOptions::default()).unwrap();
    assert_eq!(checkpoint.tensors[0].shape.dims(), [1 << 28]);
    assert!(source.bytes_read() < 80 << 10, "{}", source.bytes_read());
}

/// Roles by name, with the parameter of state.
fn roles(name: &str) -> BTreeMap<String, String> {
    let checkpoint = open_path(&testdata(name)).unwrap();
    let role = |role: &Role| match role.state_of() {
        Some(of) => format!("optimizer of {}", of.name),
        None => role.as_str().to_owned(),
    };
    checkpoint.tensors.iter().map(|tensor| (tensor.text(), role(&tensor.role))).collect()
}

#[test]
fn train_states_have_roles() {
    for (name, prefix) in [("flax/good/adam.msgpack", "0"), ("orbax/good/state", "0")] {
        let roles = roles(name);
        assert_eq!(roles["params.Dense_0.kernel"], "parameter");
        assert_eq!(roles["batch_stats.BatchNorm_0.mean"], "buffer");
        for slot in ["mu", "nu"] {
            let state = format!("opt_state.{prefix}.{slot}.Dense_0.kernel");
            assert_eq!(roles[&state], "optimizer of params.Dense_0.kernel");
        }
        assert_eq!(roles[&format!("opt_state.{prefix}.count")], "optimizer");
    }
    assert_eq!(roles("orbax/good/state")["step"], "other");
    let factored = roles("flax/good/adafactor.msgpack");
    assert!(
        factored
            .iter()
            .any(|(name, role)| name.contains("v_row") && role == "optimizer of params.Dense_0.kernel")
    );
    let masked = roles("flax/good/multi_transform.msgpack");
    assert!(masked.iter().any(|(name, role)| name.contains("inner_state.0.mu") && role.starts_with("optimizer of params.")));
}

#[test]
fn detection_claims_only_trees_with_arrays() {
    let detected = |bytes: &[u8]| Flax.recognises(&bytes[..bytes.len().min(HEAD)], &memory(bytes));
    for (name, bytes) in files() {
        assert!(detected(&bytes), "{name}");
    }
    let others: [&[u8]; 8] = [
        b"",
        b"\x80",
        // The header of primitiv, a pickle, JSON, text.
        b"\xce\0\0\0\0\xce\0\0\0\x01\xce\0\0\x03\0",
        b"\x80\x04\x95\0\0\0\0\0\0\0\0}.",
        b"{\"a\": 1}",
        b"plain text",
        // Maps without arrays: any MessagePack.
        b"\x81\xa1a\x01",
        b"\x82\xa1a\xc4\x02ab\xa1b\x92\x01\x02",
    ];
    for bytes in others {
        assert!(!detected(bytes), "{bytes:?}");
    }
    for folder in ["primitiv/good/trained", "torch/good", "npy/good", "npz/good"] {
        for file in std::fs::read_dir(testdata(folder)).unwrap().map(|file| file.unwrap().path()) {
            if file.is_file() {
                assert!(!detected(&std::fs::read(&file).unwrap()), "{}", file.display());
            }
        }
    }
}

/// Every byte of a checkpoint has a use.
fn accounts_fully(checkpoint: &Checkpoint, outline: impl Fn(&SourceRef) -> weighbridge_core::check::Outline) {
    for file in held(&checkpoint.tensors, &checkpoint.files) {
        let source = &file.source;
        let (account, findings) = account(&file, &outline(source)).unwrap();
        assert_eq!(account.bytes_of(Use::Unknown), 0, "{} {findings:?} {:?}", account.file, account.spans);
    }
}

#[test]
fn every_byte_has_a_use() {
    let limits = Limits::default();
    for (name, bytes) in files() {
        if name != "unsupported_dtypes.msgpack" {
            accounts_fully(&open(memory(bytes)).unwrap(), |source| Flax.outline(source, &limits).unwrap());
        }
    }
    for (path, _) in expected("orbax") {
        if path.ends_with("zarr3_codecs") {
            continue;
        }
        accounts_fully(&open_path(&path).unwrap(), |source| Orbax.outline(source, &limits).unwrap());
    }
}

#[test]
fn folders_of_steps_open_one_step() {
    let error = open_path(&testdata("orbax/good/two_steps")).unwrap_err();
    assert_eq!((error.code().as_str(), error.found_text()), ("several-models", Some("1, 20")));
    assert!(error.hint_text().unwrap().ends_with("two_steps/20"), "{error:?}");
    for name in ["orbax/good/two_steps/20", "orbax/good/two_steps/20/default"] {
        let checkpoint = open_path(&testdata(name)).unwrap();
        let names: Vec<String> = checkpoint.tensors.iter().map(|tensor| tensor.text()).collect();
        assert_eq!(names, ["b.c", "w"]);
    }
    let alone: SourceRef = Arc::new(MemorySource::new("m", vec![0x0c, 0xdb, 0x3a, 0x2a]));
    let error = registry().open_source(alone, &OpenOptions::default()).unwrap_err();
    assert_eq!(error.code(), "list-alone");
    let inside = open_path(&testdata("orbax/good/small/manifest.ocdbt")).unwrap();
    assert_eq!(inside.tensors.len(), 6);
}

#[test]
fn plain_chunks_are_ranges_of_files() {
    let checkpoint = open_path(&testdata("orbax/good/uncompressed_nodes")).unwrap();
    let tensor = checkpoint.tensor("a.w").unwrap();
    // Chunks of 3 x 2 in 7 x 5: those within the array are stored as they are.
    let plain = tensor.extents.iter().filter(|extent| extent.source.made_of().is_none()).count();
    assert_eq!((tensor.extents.len(), plain), (9, 4));
    assert_eq!(checkpoint.tensor("a.b").unwrap().single_extent().unwrap().len, 20);
}
