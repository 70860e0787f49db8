#![allow(clippy::disallowed_methods)]

use super::*;
use crate::check::Use;
use crate::check::testing::{linear, tensor};
use crate::error::Kind;
use crate::source::{MemorySource, Source};
use crate::tensor::DType;
use std::path::PathBuf;

fn codes(report: &VerifyReport) -> Vec<&'static str> {
    report.findings.iter().map(|f| f.code.as_str()).collect()
}

/// A checkpoint over `values`, of no format that is known here.
fn over(values: &[f32], shapes: &[(&str, &[u64])]) -> Checkpoint {
    let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
    let source: SourceRef = Arc::new(MemorySource::new("m", bytes));
    let mut checkpoint = Checkpoint::new("none", "none", "m");
    let mut at = 0;
    for (name, dims) in shapes {
        let entry = tensor(name, DType::F32, dims, &source, at);
        at += entry.bytes();
        checkpoint.tensors.push(entry);
    }
    checkpoint
}

#[test]
fn odd_values_are_warnings() {
    let mut values = vec![1.0f32, -2.0, f32::NAN, f32::INFINITY];
    values.extend([0.0; 4]);
    values.extend([0.5; 4]);
    values.extend([1e11, 1.0, 1e-42, 0.0]);
    values.extend([0.0; 2]);
    let shapes: [(&str, &[u64]); 5] =
        [("odd", &[2, 2]), ("zero", &[2, 2]), ("same", &[4, 1]), ("range", &[4]), ("bias", &[2])];
    let checkpoint = over(&values, &shapes);
    let options = VerifyOptions { values: true, ..VerifyOptions::default() };
    let report = verify_checkpoint(&checkpoint, &options).unwrap();
    let found: Vec<_> = report
        .findings
        .iter()
        .map(|f| (f.severity.as_str(), f.code.as_str(), f.tensor.as_deref().unwrap_or("")))
        .collect();
    assert_eq!(
        found,
        [
            ("warning", "nan", "odd"),
            ("warning", "infinite", "odd"),
            ("warning", "all-zero", "zero"),
            ("warning", "constant", "same"),
            ("warning", "huge-values", "range"),
            ("warning", "subnormal-values", "range"),
            ("note", "nan-rows", "odd"),
            ("note", "all-zero", "bias"),
        ]
    );
    assert_eq!(report.verdict, Verdict::Sound);
    assert!(report.checked.contains(&"values"));
    let quiet = verify_checkpoint(&checkpoint, &VerifyOptions::default()).unwrap();
    assert_eq!(quiet.findings, []);
    assert!(!quiet.checked.contains(&"values"));
}

#[test]
fn degenerate_rows_and_equal_tensors_are_reported() {
    let rows: [f32; 12] = [1.0, 2.0, 0.0, -0.0, 3.0, f32::NAN, 0.0, 0.0, 4.0, 0.0, 0.0, 0.0];
    let same = [0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0];
    let values = [&rows[..], &same, &same, &[7.0; 8], &[7.0; 8]].concat();
    let shapes: [(&str, &[u64]); 5] =
        [("table", &[6, 2]), ("a", &[8]), ("b", &[8]), ("c", &[8]), ("d", &[8])];
    let mut checkpoint = over(&values, &shapes);
    checkpoint.tensors[0].role = crate::checkpoint::Role::Embedding;
    let options = VerifyOptions { values: true, ..VerifyOptions::default() };
    let report = verify_checkpoint(&checkpoint, &options).unwrap();
    let text = |code: &str| {
        let mut found = report.findings.iter().filter(|f| f.code == code);
        let first = found.next().unwrap_or_else(|| panic!("{code}"));
        assert!(found.next().is_none(), "{code}");
        (first.severity, first.text.as_str())
    };
    assert_eq!(text("zero-rows"), (Severity::Warning, "3 of 6 rows all 0: rows 1, 3, 5"));
    assert_eq!(text("nan-rows"), (Severity::Warning, "1 of 6 rows with NaN: row 2"));
    // Where no model may have them, they are errors, and the rest is odd as before.
    let before = text("nan");
    let denied = VerifyOptions { deny_nonfinite: true, ..VerifyOptions::default() };
    let denied = verify_checkpoint(&checkpoint, &denied).unwrap();
    let errors: Vec<_> = denied.findings.iter().filter(|f| f.severity == Severity::Error).collect();
    assert_eq!((before.0, report.verdict), (Severity::Warning, Verdict::Sound));
    assert_eq!((errors.len(), errors[0].code.as_str(), denied.verdict), (1, "nan", Verdict::Unsound));
    assert_eq!(denied.findings.len(), report.findings.len());
    // Constant tensors have findings of their own.
    let equal = "1 tensor has the same elements as another one: b equals a";
    assert_eq!(text("equal-tensors"), (Severity::Note, equal));
    // Tensors with shared bytes are reported without reading them.
    let mut alias = over(&same, &[("a", &[8])]);
    let mut second = alias.tensors[0].clone();
    second.path = crate::checkpoint::TensorPath::from_dotted("b");
    alias.tensors.push(second);
    let report = verify_checkpoint(&alias, &options).unwrap();
    assert_eq!(codes(&report), ["shared-bytes"]);
}

#[test]
fn the_verdict_follows_from_everything() {
    let good = over(&[1.0; 16], &[("fc.b", &[4]), ("fc.w", &[3, 4])]);
    let check = |checkpoint: &Checkpoint| verify_checkpoint(checkpoint, &VerifyOptions::default()).unwrap();
    assert_eq!(check(&good).verdict, Verdict::Sound);

    let mut with_program = good.clone();
    with_program.topology = Some(Arc::new(linear()));
    let report = check(&with_program);
    assert_eq!((report.verdict, codes(&report)), (Verdict::Sound, vec![]));
    assert!(report.checked.contains(&"program"));
    with_program.tensors.remove(0);
    let report = check(&with_program);
    assert_eq!(
        (report.verdict, codes(&report)),
        (Verdict::Unsound, vec!["missing-parameter", "hidden-bytes"])
    );

    let mut noted = good.clone();
    noted.notes.push(Note::new("odd", "odd"));
    assert_eq!(check(&noted).verdict, Verdict::Sound);
    noted.notes.push(Note::omission("left-out", "x"));
    assert_eq!(
        (check(&noted).verdict, codes(&check(&noted))),
        (Verdict::CouldNotTell, vec!["left-out", "odd"])
    );

    let mut twice = good.clone();
    twice.tensors.push(twice.tensors[0].clone());
    assert_eq!(codes(&check(&twice)), ["duplicate-name", "shared-bytes"]);

    // A piece that leaves its source is found, and its values are not asked for.
    let mut broken = good.clone();
    broken.tensors[1].extents[0].offset += 4;
    let report =
        verify_checkpoint(&broken, &VerifyOptions { values: true, ..VerifyOptions::default() }).unwrap();
    assert!(codes(&report).contains(&"past-the-end"));
    assert!(report.findings.iter().all(|f| f.code != "constant" || f.tensor.as_deref() == Some("fc.b")));
}

#[test]
fn lod_is_checked_if_present() {
    use crate::checkpoint::Value;
    let mut checkpoint = over(&[1.0; 4], &[("x", &[4])]);
    let level = Value::List(vec![Value::U64(0), Value::U64(9)]);
    checkpoint.tensors[0].attributes.insert("lod".to_owned(), Value::List(vec![level]));
    let report = verify_checkpoint(&checkpoint, &VerifyOptions::default()).unwrap();
    assert_eq!((report.verdict, codes(&report)), (Verdict::Sound, vec!["lod-end"]));
}

/// Files below a folder of testdata that are models by their extension, with their paths in it.
fn files(folder: &str, extensions: &[&str]) -> Vec<(String, PathBuf)> {
    let root = weighbridge_testkit::testdata(folder);
    let mut open = vec![root.clone()];
    let mut files = Vec::new();
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|e| extensions.iter().any(|x| e == *x)) {
                files.push((path.strip_prefix(&root).unwrap().display().to_string(), path));
            }
        }
    }
    files.sort();
    files
}

const ALL: [&str; 8] = ["safetensors", "npy", "npz", "model", "param", "tensor", "shape", "optimizer"];

/// Good files with parts that cannot be checked, and the reason: members that are not arrays of numbers, a comment.
const UNTOLD: [(&str, &str); 4] = [
    ("npz/bzip2.npz", "tensor-skipped"),
    ("npz/comment.npz", "hidden-bytes"),
    ("npz/object.npz", "tensor-skipped"),
    ("npz/other_members.npz", "unread-member"),
];

#[test]
fn good_files_are_sound_to_the_last_byte() {
    let mut seen = 0;
    for format in ["primitiv", "safetensors", "npy", "npz"] {
        for (name, path) in files(&format!("{format}/good"), &ALL) {
            let name = format!("{format}/{name}");
            let report = verify(&path, &VerifyOptions::default()).unwrap();
            let untold = UNTOLD.iter().find(|(file, _)| *file == name).map(|(_, code)| *code);
            let expected = if untold.is_some() { Verdict::CouldNotTell } else { Verdict::Sound };
            assert_eq!(report.verdict, expected, "{name}: {:?}", report.findings);
            assert_eq!(
                report.findings.iter().find(|f| f.severity > Severity::Warning).map(|f| f.code.as_str()),
                untold
            );

            let file = &report.files[0];
            assert_eq!((report.files.len(), file.bytes), (1, path.metadata().unwrap().len()), "{name}");
            let mut at = 0;
            for span in &file.spans {
                assert_eq!(span.offset, at, "{name}");
                at += span.len;
            }
            assert_eq!(at, file.bytes, "{name}");
            assert_eq!(file.bytes_of(Use::Unknown) > 0, untold.is_some(), "{name}");

            // Values can be odd, or of a type that has none, but not wrong.
            let values = VerifyOptions { values: true, ..VerifyOptions::default() };
            let report = verify(&path, &values).unwrap();
            let heavy = report.findings.iter().filter(|f| f.severity > Severity::Warning);
            let reported = |f: &Finding| {
                ["packed-values", "unread-member", "tensor-skipped", "hidden-bytes"]
                    .contains(&f.code.as_str())
            };
            assert!(heavy.clone().all(reported), "{name}: {:?}", report.findings);
            seen += 1;
        }
    }
    assert!(seen > 150, "{seen}");
}

/// Bad files that may be good for all that is known here: of another format or a newer version, of
/// a type that has no place here, or beyond a limit. All others are unsound.
const COULD_BE_GOOD: [(&str, &str); 24] = [
    ("safetensors/byte-order-mark.safetensors", "unknown-format"),
    ("safetensors/dtype-lower-case.safetensors", "unknown-dtype"),
    ("safetensors/dtype-unknown.safetensors", "unknown-dtype"),
    ("safetensors/half-a-length.safetensors", "unknown-format"),
    ("safetensors/header-length-max.safetensors", "unknown-format"),
    ("safetensors/header-too-long.safetensors", "unknown-format"),
    ("safetensors/json-array.safetensors", "unknown-format"),
    ("safetensors/leading-space.safetensors", "unknown-format"),
    ("safetensors/no-header.safetensors", "unknown-format"),
    ("safetensors/shape-65-dimensions.safetensors", "limit"),
    ("npy/bytes.npy", "npy-dtype"),
    ("npy/date.npy", "npy-dtype"),
    ("npy/header_huge.npy", "npy-header-length"),
    ("npy/longdouble.npy", "npy-dtype"),
    ("npy/many_items.npy", "limit"),
    ("npy/object.npy", "npy-dtype"),
    ("npy/record.npy", "npy-dtype"),
    ("npy/shape_65_dims.npy", "limit"),
    ("npy/text.npy", "npy-dtype"),
    ("npy/version_4.npy", "npy-version"),
    ("npy/void.npy", "npy-dtype"),
    ("npz/encrypted.npz", "zip-encrypted"),
    ("npz/encrypted_local.npz", "zip-encrypted"),
    ("npz/volumes.npz", "zip-volumes"),
];

#[test]
fn bad_files_are_never_sound() {
    let mut could_be_good = Vec::new();
    for format in ["safetensors", "npy", "npz"] {
        let files = files(&format!("{format}/bad"), &ALL);
        assert!(files.len() > 25, "{format}");
        for (name, path) in files {
            let report = verify(&path, &VerifyOptions::default()).unwrap();
            let name = format!("{format}/{name}");
            assert_ne!(report.verdict, Verdict::Sound, "{name}");
            assert!(!report.files.is_empty() && report.format.is_none_or(|f| f == format), "{name}");
            if report.verdict == Verdict::CouldNotTell {
                could_be_good.push((name, report.findings[0].code.as_str()));
            }
        }
    }
    let mut expected = COULD_BE_GOOD.map(|(name, code)| (name.to_owned(), code));
    expected.sort();
    could_be_good.sort();
    assert_eq!(could_be_good, expected);
}

/// A file that strict reading rejects is never sound; a file that it accepts is never unsound.
#[test]
fn edge_cases_have_the_verdict_of_reading() {
    let mut counts = [0; 3];
    for (name, path) in files("primitiv/edge", &["bin"]) {
        let report = verify(&path, &VerifyOptions::default()).unwrap();
        let expected = match formats::open(&path).map_err(|e| e.kind()) {
            Ok(_) => Verdict::Sound,
            Err(Kind::Unsupported | Kind::Limit) => Verdict::CouldNotTell,
            Err(_) => Verdict::Unsound,
        };
        assert_eq!(report.verdict, expected, "{name}");
        counts[expected as usize] += 1;
    }
    assert!(counts.iter().all(|&n| n > 10), "{counts:?}");
}

#[test]
fn readable_parts_of_a_damaged_file_are_checked() {
    let dir = tempfile::tempdir().unwrap();
    let golden = weighbridge_testkit::testdata("primitiv/good/trained/trained_xor_a.model");
    let mut bytes = std::fs::read(&golden).unwrap();
    bytes.extend([1, 2, 3]);
    let path = dir.path().join("longer.model");
    std::fs::write(&path, &bytes).unwrap();
    let report = verify(&path, &VerifyOptions { values: true, ..VerifyOptions::default() }).unwrap();
    assert_eq!((report.verdict, codes(&report)[0]), (Verdict::Unsound, "trailing-bytes"));
    assert_eq!(codes(&report).iter().filter(|c| **c == "trailing-bytes").count(), 1);
    assert_eq!((report.format, report.kind), (Some("primitiv"), Some("model")));
    assert!(report.checked.contains(&"values") && report.files[0].bytes_of(Use::Tensor) > 0);

    bytes.truncate(bytes.len() / 2);
    std::fs::write(&path, &bytes).unwrap();
    let report = verify(&path, &VerifyOptions::default()).unwrap();
    assert_eq!(report.verdict, Verdict::Unsound);
    let (damage, intact) = report.damage.as_ref().unwrap();
    assert!(*intact > 0 && !damage.lost.is_empty(), "what stands before the break is checked");
    assert!(report.checked.contains(&"pieces") && report.files[0].bytes_of(Use::Tensor) > 0);
    assert_eq!(report.findings[0].severity, Severity::Error);

    // Of a beginning that holds no tensor nothing can be.
    bytes.truncate(16);
    std::fs::write(&path, &bytes).unwrap();
    let report = verify(&path, &VerifyOptions::default()).unwrap();
    assert_eq!((report.verdict, report.checked.as_slice()), (Verdict::Unsound, &["opening"][..]));
    assert_eq!(report.files[0].bytes_of(Use::Unknown), bytes.len() as u64);
    assert!(report.findings[0].offset.is_some());

    let missing = verify(dir.path().join("none"), &VerifyOptions::default()).unwrap_err();
    assert_eq!(missing.kind(), Kind::Io);
    let empty = tempfile::tempdir().unwrap();
    assert_eq!(verify(empty.path(), &VerifyOptions::default()).unwrap_err().kind(), Kind::Usage);
}

/// The model of a folder is verified, and its other files are reported.
#[test]
fn other_files_of_a_folder_are_reported() {
    let dir = tempfile::tempdir().unwrap();
    let golden = weighbridge_testkit::testdata("");
    let put = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    };
    for file in std::fs::read_dir(golden.join("safetensors/shards")).unwrap() {
        let file = file.unwrap();
        put(file.file_name().to_str().unwrap(), &std::fs::read(file.path()).unwrap());
    }
    let seen = || {
        let report = verify(dir.path(), &VerifyOptions::default()).unwrap();
        let name = |path: &str| Path::new(path).strip_prefix(dir.path()).unwrap().display().to_string();
        let others: Vec<_> =
            report.other_files.iter().map(|f| (name(&f.path), f.bytes, f.is_model)).collect();
        let files: Vec<_> = report.files.iter().map(|f| name(&f.file)).collect();
        (report, files, others)
    };
    let (report, files, others) = seen();
    assert_eq!((report.verdict, report.other_models(), others), (Verdict::Sound, 0, Vec::new()));
    assert!(files.contains(&"model.safetensors.index.json".to_owned()), "{files:?}");
    assert!(report.to_json(false).get("other_files").is_none());

    let noise: Vec<u8> = (0..9000u32).map(|i| (i.wrapping_mul(i) >> 5).to_le_bytes()[0]).collect();
    put("README.md", b"read");
    put("hidden.bin", &noise);
    put(".git/HEAD", b"ref");
    let (report, _, others) = seen();
    assert_eq!((report.verdict, codes(&report)), (Verdict::Sound, Vec::new()));
    let expected = [("README.md".to_owned(), 4, false), ("hidden.bin".to_owned(), 9000, false)];
    assert_eq!(others, expected);

    // A vocabulary is not a tensor, but its file is part of the model.
    let vocab = verify(golden.join("paddle/good/p262/vocab"), &VerifyOptions::default()).unwrap();
    assert_eq!((vocab.verdict, vocab.files.len(), vocab.other_models()), (Verdict::Sound, 2, 0));

    // An entry that is not a file, and may hide some.
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("/", dir.path().join("link")).unwrap();
        assert_eq!((seen().0.verdict, codes(&seen().0)), (Verdict::Sound, vec!["not-looked-at"]));
        std::fs::remove_file(dir.path().join("link")).unwrap();
    }

    // An unchecked model, under any name, at any depth.
    let array = std::fs::read(golden.join("npy/good/float64.npy")).unwrap();
    put("old/weights", &array);
    let (report, _, others) = seen();
    assert_eq!((report.verdict, codes(&report)), (Verdict::Sound, vec!["other-models"]));
    assert_eq!((report.other_models(), &others[2].0[..]), (1, "old/weights"));
    let json = report.to_json(false);
    assert_eq!(json["other_files"][2]["model"], true, "{json}");
}

/// Damage behind the header of an array, which opening does not look at.
#[test]
fn checksums_are_verified() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.npz");
    let golden = weighbridge_testkit::testdata("npz/good/stored.npz");
    let opened = formats::open(&golden).unwrap();
    let large = opened.tensors.iter().max_by_key(|t| t.bytes()).unwrap();
    let mut bytes = std::fs::read(&golden).unwrap();
    bytes[usize::try_from(large.extents[0].offset).unwrap()] ^= 0x40;
    std::fs::write(&path, bytes).unwrap();
    assert!(formats::open(&path).is_ok());
    for values in [false, true] {
        let options = VerifyOptions { threads: 2, values, ..VerifyOptions::default() };
        let report = verify(&path, &options).unwrap();
        assert!(report.checked.contains(&"checksums"));
        let wrong: Vec<_> = report.findings.iter().filter(|f| f.severity == Severity::Error).collect();
        let reported: Vec<_> = wrong.iter().map(|f| (f.code.as_str(), f.tensor.clone())).collect();
        assert_eq!(reported, [("crc-mismatch", Some(large.name()))]);
    }
}

/// Eight bytes that are packed into three of another source, and break at their end.
#[derive(Debug)]
struct Packed(SourceRef);

impl Source for Packed {
    fn len(&self) -> u64 {
        8
    }
    fn label(&self) -> &str {
        "packed"
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        match offset + buffer.len() as u64 {
            8.. => Err(Error::corrupt("bad-deflate", "broken")),
            _ => Ok(()),
        }
    }
    fn within(&self) -> Option<crate::source::Within<'_>> {
        Some(crate::source::Within { source: &self.0, offset: 2, len: 3, encoded: true })
    }
}

#[test]
fn encoded_bytes_are_read_to_their_end() {
    let outer: SourceRef = Arc::new(MemorySource::new("outer", vec![1; 10]));
    let source: SourceRef = Arc::new(Packed(outer));
    let mut checkpoint = Checkpoint::new("none", "none", "m");
    checkpoint.tensors.push(tensor("x", DType::F32, &[1], &source, 0));
    let report = verify_checkpoint(&checkpoint, &VerifyOptions::default()).unwrap();
    assert_eq!(
        (report.verdict, codes(&report)),
        (Verdict::Unsound, vec!["bad-deflate", "hidden-bytes", "trailing-bytes"])
    );
    let sums = (report.files[0].bytes, report.files[0].bytes_of(Use::Tensor));
    assert_eq!((report.files[0].file.as_str(), sums), ("outer", (10, 3)));
}

/// A file of testdata/hdf5/rules with one byte changed.
fn hdf5(name: &str, change: impl Fn(&mut Vec<u8>)) -> VerifyReport {
    let mut bytes = weighbridge_testkit::golden(std::path::Path::new("hdf5/rules").join(name));
    change(&mut bytes);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    verify(&path, &VerifyOptions::default()).unwrap()
}

#[test]
fn chunks_are_unpacked_to_find_damage() {
    let report = hdf5("oldest.h5", |_| ());
    assert_eq!(report.verdict, Verdict::Sound, "{:?}", report.findings);
    assert!(report.checked.contains(&"checksums"));
    let report = hdf5("oldest.h5", |bytes| {
        let packed = bytes.windows(2).position(|two| two == [0x78, 0x5e]).unwrap();
        bytes[packed + 6] ^= 0x10;
    });
    assert_eq!((report.verdict, codes(&report)[0]), (Verdict::Unsound, "hdf5-chunk"));
}

#[test]
fn a_file_still_open_for_writing_has_no_verdict() {
    let report = hdf5("killed.h5", |_| ());
    assert_eq!((report.verdict, codes(&report)[0]), (Verdict::CouldNotTell, "hdf5-open"));
    assert!(report.findings[0].hint.as_ref().unwrap().contains("h5clear"));
    for sound in ["old_shared.h5", "cache_image.h5", "free_room.h5", "soft.h5"] {
        let report = hdf5(sound, |_| ());
        assert_ne!(report.verdict, Verdict::Unsound, "{sound}: {:?}", report.findings);
    }
}
