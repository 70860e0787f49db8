//! Manifests from untrusted sources.

use crate::error::{Kind, Result};
use crate::limits::Limits;
use crate::ops::seal::{CheckOptions, Read, SealOptions, check, read, seal};
use crate::source::MemorySource;
use base64::Engine as _;
use serde_json::{Value as Json, json};
use std::fs;

fn parsed(text: impl Into<Vec<u8>>) -> Result<Read> {
    read(&MemorySource::new("m", text.into()), &Limits::default())
}

fn model() -> std::path::PathBuf {
    super::testdata("primitiv/good/trained/trained_xor_a.model")
}

fn good() -> Json {
    serde_json::from_slice(&seal(model(), &SealOptions::default()).unwrap().manifest.to_bytes()).unwrap()
}

/// The good manifest with one place changed.
fn with(pointer: &str, value: Json) -> Json {
    let mut json = good();
    *json.pointer_mut(pointer).unwrap() = value;
    json
}

#[test]
fn every_manifest_fault_has_its_error() {
    let (p, w) = ("/predicate", "/predicate/weighbridge");
    let at = |top: &str, rest: &str| format!("{top}{rest}");
    let hash = "0".repeat(64);
    let cases = [
        ("/_type".to_owned(), json!("https://in-toto.io/Statement/v0.1"), Kind::Usage, "not-a-manifest"),
        (
            "/predicateType".to_owned(),
            json!("https://slsa.dev/provenance/v1"),
            Kind::Unsupported,
            "unknown-predicate",
        ),
        ("/subject".to_owned(), json!([]), Kind::Corrupt, "bad-manifest"),
        ("/subject/0/digest/sha256".to_owned(), json!(hash), Kind::Corrupt, "subject-digest"),
        (at(p, "/serialization/method"), json!("shards"), Kind::Unsupported, "unknown-method"),
        (at(p, "/serialization/hash_type"), json!("blake2b"), Kind::Unsupported, "unknown-algorithm"),
        (at(p, "/serialization/allow_symlinks"), json!("no"), Kind::Corrupt, "bad-manifest"),
        (at(p, "/serialization/ignore_paths"), json!(["../x"]), Kind::Corrupt, "unsafe-name"),
        (at(p, "/resources/0/name"), json!("/etc/passwd"), Kind::Corrupt, "unsafe-name"),
        (at(p, "/resources/0/name"), json!("a/../../b"), Kind::Corrupt, "unsafe-name"),
        (at(p, "/resources/0/name"), json!("a//b"), Kind::Corrupt, "unsafe-name"),
        (at(p, "/resources/0/name"), json!(""), Kind::Corrupt, "unsafe-name"),
        (at(p, "/resources/0/name"), json!("other"), Kind::Corrupt, "manifest-contradiction"),
        (at(p, "/resources/0/algorithm"), json!("md5"), Kind::Unsupported, "unknown-algorithm"),
        (at(p, "/resources/0/algorithm"), json!("blake3"), Kind::Corrupt, "bad-manifest"),
        (at(p, "/resources/0/digest"), json!("abc"), Kind::Corrupt, "bad-digest"),
        (at(p, "/resources/0/digest"), json!("g".repeat(64)), Kind::Corrupt, "bad-digest"),
        (
            at(p, "/resources"),
            json!([{"name": "a", "algorithm": "sha256", "digest": hash}, {"name": "a", "algorithm": "sha256", "digest": hash}]),
            Kind::Corrupt,
            "duplicate-name",
        ),
        (at(w, "/version"), json!(2), Kind::Unsupported, "unknown-version"),
        (at(w, "/version"), json!(1.5), Kind::Corrupt, "bad-manifest"),
        (at(w, "/scope"), json!("world"), Kind::Unsupported, "unknown-version"),
        (at(w, "/scope"), json!("folder"), Kind::Corrupt, "manifest-contradiction"),
        (at(w, "/files/0/sha256"), json!(hash), Kind::Corrupt, "manifest-contradiction"),
        (at(w, "/files"), json!([]), Kind::Corrupt, "manifest-contradiction"),
        (at(w, "/tensors/0/path"), json!("w"), Kind::Corrupt, "bad-manifest"),
        (at(w, "/tensors/0/path"), json!(vec!["a"; 5000]), Kind::Limit, "limit"),
        (at(w, "/tensors/0/shape"), json!(vec![1; 65]), Kind::Limit, "limit"),
        (at(w, "/tensors/0/shape"), json!([-1]), Kind::Corrupt, "bad-manifest"),
        (at(w, "/tensors/0/sha256"), json!("00"), Kind::Corrupt, "bad-digest"),
    ];
    for (pointer, value, kind, code) in cases {
        let text = with(&pointer, value.clone()).to_string();
        let error = parsed(text).unwrap_err();
        assert_eq!((error.kind(), error.code().as_str()), (kind, code), "{pointer} {value}: {error}");
    }
    for text in ["", "{}", "[]", "null", "{\"payload\": \"e30=\"}", "\u{feff}{}", "{\"_type\": 3}", "GGUF"] {
        assert_eq!(parsed(text).unwrap_err().code().as_str(), "not-a-manifest", "{text}");
    }
    let deep = format!("{{\"predicate\": {}", "[".repeat(1_000_000));
    assert_eq!(parsed(deep).unwrap_err().code().as_str(), "not-a-manifest");
    let tight = Limits { header_bytes: 100, ..Limits::default() };
    let text = good().to_string().into_bytes();
    assert_eq!(read(&MemorySource::new("m", text.clone()), &tight).unwrap_err().kind(), Kind::Limit);
    // Every cut of it is an error, and none is a panic.
    for len in 0..text.len() {
        assert!(parsed(&text[..len]).is_err());
    }
    // A duplicate key.
    let twice = good().to_string().replacen("\"method\"", "\"method\":\"files\",\"method\"", 1);
    assert_eq!(parsed(twice).unwrap_err().code().as_str(), "bad-manifest");
}

#[test]
fn long_lists_of_names_are_refused() {
    let path = with("/predicate/weighbridge/tensors/0/path", json!(vec![""; 70_000]));
    assert_eq!(parsed(path.to_string()).unwrap_err().code().as_str(), "bad-manifest");
    let ignored = json!((0..100_001).map(|n| format!("{n}")).collect::<Vec<_>>());
    let ignored = with("/predicate/serialization/ignore_paths", ignored);
    assert_eq!(parsed(ignored.to_string()).unwrap_err().code().as_str(), "limit");
}

#[test]
fn one_byte_anywhere_is_no_panic() {
    let text = good().to_string().into_bytes();
    for place in 0..text.len() {
        for byte in [b'"', b'0', b'/', 0xFF] {
            let mut damaged = text.clone();
            damaged[place] = byte;
            let _ = parsed(damaged);
        }
    }
}

#[test]
fn envelopes_are_opened_and_numbers_may_be_floats() {
    let plain = parsed(good().to_string()).unwrap();
    let floats =
        good().to_string().replace("\"version\":1,", "\"version\":1.0,").replace("[8,2]", "[8.0,2e0]");
    assert_eq!(parsed(floats.clone()).unwrap(), plain);
    let payload = base64::engine::general_purpose::STANDARD.encode(floats);
    let envelope = json!({"payload": payload, "payloadType": "application/vnd.in-toto+json", "signatures": [{"sig": ""}]});
    for text in [envelope.to_string(), json!({"mediaType": "x", "dsseEnvelope": envelope}).to_string()] {
        let read = parsed(text).unwrap();
        assert!(read.signed);
        assert_eq!(read.manifest, plain.manifest);
    }
    let mut other = envelope.clone();
    other["payloadType"] = json!("text/plain");
    assert_eq!(parsed(other.to_string()).unwrap_err().code().as_str(), "not-a-manifest");
    other = envelope;
    other["payload"] = json!("%%%");
    assert_eq!(parsed(other.to_string()).unwrap_err().code().as_str(), "bad-manifest");
}

#[test]
fn manifest_faults_are_findings() {
    let dir = tempfile::tempdir().unwrap();
    let manifest = dir.path().join("m.json");
    let codes = |json: Json| {
        fs::write(&manifest, json.to_string()).unwrap();
        super::codes(&check(model(), &manifest, &CheckOptions::default()).unwrap())
    };
    assert_eq!(codes(good()), [""; 0]);
    assert_eq!(codes(with("/subject/0/digest/sha256", json!("0".repeat(64)))), ["subject-digest"]);
    assert_eq!(codes(with("/predicate/serialization/method", json!("shards"))), ["unknown-method"]);
    // A file listed by another program, without tensors.
    let mut foreign = good();
    foreign["predicate"].as_object_mut().unwrap().remove("weighbridge");
    assert_eq!(codes(foreign.clone()), [""; 0]);
    fs::write(&manifest, "{}").unwrap();
    assert_eq!(
        check(model(), &manifest, &CheckOptions::default()).unwrap_err().code().as_str(),
        "not-a-manifest"
    );
    // Another form of the model: there is nothing to compare.
    let converted = dir.path().join("a.npz");
    crate::ops::convert(model(), &converted, &crate::ops::ConvertOptions::default()).unwrap();
    fs::write(&manifest, foreign.to_string()).unwrap();
    let found = check(&converted, &manifest, &CheckOptions::default()).unwrap();
    assert_eq!(super::codes(&found), ["file-changed"]);
    seal(model(), &SealOptions::default()).unwrap().save(&manifest, true).unwrap();
    let found = check(dir.path(), &manifest, &CheckOptions::default()).unwrap();
    assert_eq!(super::codes(&found), ["files-not-compared"], "the one model in the folder");
    let empty = dir.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let found = check(&empty, &manifest, &CheckOptions::default()).unwrap();
    assert_eq!(super::codes(&found), ["files-not-compared", "not-opened"]);
}
