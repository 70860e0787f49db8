//! Dumps of joblib, numpy and scikit-learn (`judges/make_joblib.py`): read, truncated, changed.
#![allow(clippy::disallowed_methods)]

use crate::Joblib;
use serde_json::Value as Json;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use weighbridge_core::checkpoint::{Checkpoint, Name, Value};
use weighbridge_core::error::{Kind, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::tensor::Order;
use weighbridge_format::{DeepCheck, Detect, HEAD, OpenOptions, ReadFormat};
use weighbridge_io::source::{MemorySource, SourceRef};

fn golden(name: &str) -> PathBuf {
    weighbridge_testkit::testdata("joblib").join(name)
}

fn bytes_of(name: &str) -> Vec<u8> {
    std::fs::read(golden("good").join(name)).unwrap()
}

fn source(bytes: &[u8]) -> SourceRef {
    Arc::new(MemorySource::new("m", bytes.to_vec()))
}

fn open(bytes: &[u8]) -> Result<Checkpoint> {
    Joblib.open(source(bytes), &OpenOptions::default())
}

fn opened(name: &str) -> Checkpoint {
    open(&bytes_of(name)).unwrap_or_else(|error| panic!("{name}: {error:?}"))
}

fn expected() -> BTreeMap<String, BTreeMap<String, Json>> {
    serde_json::from_slice(&std::fs::read(golden("expected.json")).unwrap()).unwrap()
}

#[test]
fn golden_files_have_the_arrays_of_the_libraries() {
    let all = expected();
    assert!(all.len() >= 20);
    for (file, arrays) in all {
        let bytes = bytes_of(&file);
        assert!(Joblib.recognises(&bytes[..bytes.len().min(HEAD)], &source(&bytes)), "{file}");
        let checkpoint = opened(&file);
        let mut found: Vec<String> = checkpoint.tensors.iter().map(|entry| entry.text()).collect();
        found.sort();
        assert_eq!(found, arrays.keys().cloned().collect::<Vec<_>>(), "{file}: {:?}", checkpoint.notes);
        for entry in &checkpoint.tensors {
            let wanted = &arrays[&entry.text()];
            let shape: Vec<u64> = serde_json::from_value(wanted["shape"].clone()).unwrap();
            assert_eq!(
                (entry.stored.name(), entry.shape.dims()),
                (wanted["dtype"].as_str().unwrap(), &*shape)
            );
            let hash = Name::hex(&Sha256::digest(entry.read_tensor(Order::Row).unwrap()));
            assert_eq!(hash, wanted["sha256"].as_str().unwrap(), "{file}: {}", entry.text());
        }
    }
}

#[test]
fn values_and_classes_are_metadata() {
    let linear = opened("linear.joblib");
    let get = |key: &str| linear.metadata.get(key).cloned();
    assert_eq!(get("@class"), Some(Value::Text("sklearn.linear_model._base.LinearRegression".into())));
    assert_eq!((get("fit_intercept"), get("n_jobs")), (Some(Value::Bool(true)), Some(Value::Null)));
    assert_eq!(linear.notes, []);
    let plain = opened("plain_p4.joblib");
    let get = |key: &str| plain.metadata.get(key).map(Value::to_json);
    assert_eq!(
        (get("step"), get("rate"), get("name")),
        (Some(7.into()), Some(0.5.into()), Some("run".into()))
    );
    assert_eq!((get("pair"), get("dtype")), (Some(serde_json::json!([1, 2.5])), Some("f4".into())));
    let pipeline = opened("pipeline.joblib");
    assert_eq!(pipeline.metadata.get("steps.1.0"), Some(&Value::Text("pca".into())));
}

#[test]
fn an_array_with_two_names_is_an_alias() {
    use weighbridge_core::tensor::{DType, Endian, Shape};
    use weighbridge_pickle::{Builder, Content, NumpyModules, Part, write};
    let mut builder = Builder::new();
    let content = Content::Bytes((0..8).collect());
    let kind = (DType::F32, Endian::Little);
    let array = builder.ndarray(kind, &Shape::from([2]), false, content, NumpyModules::Core).unwrap();
    let (a, b) = (builder.text("a").unwrap(), builder.text("b").unwrap());
    let root = builder.dict(vec![(a, array), (b, array)]).unwrap();
    let parts = write(&builder.finish(), root, 4, &mut |_| unreachable!()).unwrap();
    let literal = |part: &Part| match part {
        Part::Literal(bytes) => bytes.clone(),
        _ => unreachable!(),
    };
    let checkpoint = open(&parts.iter().flat_map(literal).collect::<Vec<_>>()).unwrap();
    assert_eq!(checkpoint.tensors.len(), 2);
    assert_eq!(checkpoint.tensor("a").unwrap().text_attribute("alias_of"), None);
    assert_eq!(checkpoint.tensor("b").unwrap().text_attribute("alias_of"), Some("a"));
    // joblib itself writes the array twice.
    assert_eq!(opened("shared.joblib").tensor("b").unwrap().text_attribute("alias_of"), None);
}

#[test]
fn arrays_of_records_are_noted() {
    let shared = opened("shared.joblib");
    let notes: Vec<String> = shared.notes.iter().map(|note| note.text.to_string()).collect();
    assert_eq!(notes, ["records: numpy array of dtype V8"]);
}

#[test]
fn compressed_files_have_the_content_of_plain_ones() {
    let plain = opened("plain_p3.joblib");
    for kind in ["zlib", "gzip", "bz2", "xz", "lzma", "lz4"] {
        let packed = opened(&format!("plain_{kind}.joblib"));
        assert_eq!(packed.metadata.get("compression"), Some(&Value::Text(kind.into())));
        for entry in &plain.tensors {
            let other = packed.tensor(&entry.text()).unwrap();
            assert_eq!(other.read_tensor(Order::Row).unwrap(), entry.read_tensor(Order::Row).unwrap());
        }
        // In the order of the stream, and backwards.
        for entry in packed.tensors.iter().rev() {
            entry.read_tensor(Order::Row).unwrap();
        }
    }
}

#[test]
fn every_prefix_is_an_error() {
    for name in ["plain_p4.joblib", "plain_p2.joblib", "forest.joblib", "linear_p2.pkl", "boosting.joblib"] {
        let bytes = bytes_of(name);
        for len in 0..bytes.len() {
            let error = open(&bytes[..len]).unwrap_err();
            assert_eq!(error.kind(), Kind::Corrupt, "{name} {len}: {error:?}");
        }
    }
    // The last bytes of some streams are checksums and ends that decoders need not read.
    for kind in ["zlib", "gzip", "bz2", "xz", "lz4"] {
        let bytes = bytes_of(&format!("plain_{kind}.joblib"));
        for len in 0..bytes.len() {
            if let Ok(checkpoint) = open(&bytes[..len]) {
                assert!(len + 24 > bytes.len() && checkpoint.tensors.len() == 22, "{kind} {len}");
            }
        }
    }
}

#[test]
fn every_changed_byte_is_an_error_or_readable() {
    for name in [
        "plain_p4.joblib",
        "shared.joblib",
        "plain_xz.joblib",
        "plain_lz4.joblib",
        "plain_lzma.joblib",
        "linear.joblib",
    ] {
        let bytes = bytes_of(name);
        for place in 0..bytes.len() {
            for change in [1, 0x80] {
                let mut changed = bytes.clone();
                changed[place] ^= change;
                if let Ok(checkpoint) = open(&changed) {
                    for entry in &checkpoint.tensors {
                        entry.read_tensor(Order::Row).unwrap();
                    }
                }
            }
        }
    }
}

#[test]
fn an_object_that_contains_itself_ends() {
    // A list in a class of scikit-learn: l = []; l.append(l).
    let bytes = b"\x80\x04\x8c\x07sklearn0]\x94h\x00a.";
    let checkpoint = open(bytes).unwrap();
    assert!(checkpoint.tensors.is_empty());
    assert_eq!(checkpoint.notes.len(), 1, "{:?}", checkpoint.notes);
}

#[test]
fn bytes_that_unpack_to_too_many_are_refused() {
    use std::io::Write;
    let mut packer = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
    packer.write_all(b"\x80\x04").unwrap();
    let zeros = vec![0; 1 << 20];
    for _ in 0..600 {
        packer.write_all(&zeros).unwrap();
    }
    let bytes = packer.finish().unwrap();
    assert!(bytes.len() < 1 << 20);
    assert_eq!(open(&bytes).unwrap_err().kind(), Kind::Limit);
}

#[test]
fn every_byte_has_a_use() {
    use weighbridge_core::check::{Use, account, held};
    for name in ["plain_p4.joblib", "forest.joblib", "plain_xz.joblib", "values.joblib.gz"] {
        let checkpoint = opened(name);
        for file in held(&checkpoint.tensors, &checkpoint.files) {
            let outline = Joblib.outline(&file.source, &Limits::default()).unwrap();
            let (account, findings) = account(&file, &outline).unwrap();
            assert_eq!(findings, [], "{name}");
            assert!(account.spans.iter().all(|span| span.used != Use::Unknown), "{name}");
        }
    }
}

#[cfg(feature = "scan")]
#[test]
fn scans_read_compressed_files() {
    use std::io::Write;
    use weighbridge_core::finding::{Verdict, verdict};
    use weighbridge_format::ScanCode;
    let scanned = |bytes: &[u8]| Joblib.scan(&source(bytes), &OpenOptions::default()).unwrap();
    for name in expected().keys() {
        let scan = scanned(&bytes_of(name));
        assert_eq!(verdict(&scan.findings), Verdict::Sound, "{name}: {:?}", scan.findings);
    }
    let evil = b"\x80\x04cposix\nsystem\n\x8c\x04true\x85R.";
    let mut packer = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
    packer.write_all(evil).unwrap();
    let packed = packer.finish().unwrap();
    assert!(Joblib.recognises(&packed, &source(&packed)));
    assert_eq!(verdict(&scanned(&packed).findings), Verdict::Unsound);
    assert_eq!(open(&packed).unwrap().notes[0].code.as_str(), "runs-code");
}
