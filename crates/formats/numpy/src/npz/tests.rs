//! Golden files of numpy, damaged files, and written files.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use super::*;
use crate::opening::open_source;
use serde_json::{Value as Json, json};
use std::path::PathBuf;
use std::sync::Arc;
use weighbridge_core::checkpoint::{Metadata, Name, Note, Origin, Role, TensorEntry, TensorPath, Value};
use weighbridge_core::plan::Content;
use weighbridge_core::tensor::{DType, Encoding, Order, Shape};
use weighbridge_io::source::{MemorySource, Source, check_range};
use weighbridge_io::testing::materialise;
use weighbridge_testkit::memory;

/// Files of a folder, each with its JSON file.
fn files(folder: &str) -> Vec<(PathBuf, Vec<u8>, Json)> {
    let folder = weighbridge_testkit::testdata("npz").join(folder);
    let mut files = Vec::new();
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|e| e == "npz") {
            let expected = std::fs::read(path.with_extension("npz.json")).unwrap();
            files.push((
                path.clone(),
                std::fs::read(&path).unwrap(),
                serde_json::from_slice(&expected).unwrap(),
            ));
        }
    }
    files
}

fn open_bytes(bytes: &[u8]) -> Result<Checkpoint> {
    open_source(memory(bytes), &OpenOptions::default())
}

fn planned(checkpoint: &Checkpoint) -> WritePlan {
    Npz.plan(checkpoint, &PlanOptions::default()).unwrap()
}

fn written(checkpoint: &Checkpoint) -> Vec<u8> {
    materialise(&planned(checkpoint)).remove(0)
}

/// A tensor in the form of the JSON files.
fn tensor_json(tensor: &TensorEntry) -> Json {
    let bytes = tensor.read_tensor(Order::Row).unwrap();
    json!({
        "name": tensor.text(),
        "dtype": tensor.dtype().name(),
        "shape": tensor.shape.dims(),
        "order": if tensor.shape.is_order_free() { "row" } else { tensor.order().as_str() },
        "hex": bytes.iter().map(|b| format!("{b:02x}")).collect::<String>(),
    })
}

fn all_tensors_json(checkpoint: &Checkpoint) -> Json {
    checkpoint.tensors.iter().map(tensor_json).collect()
}

#[test]
fn golden_files_read_bit_for_bit() {
    let files = files("good");
    assert!(files.len() > 12);
    for (path, bytes, expected) in files {
        let checkpoint = open_bytes(&bytes).unwrap();
        assert_eq!((checkpoint.format, checkpoint.kind), ("npz", "archive"));
        assert_eq!(all_tensors_json(&checkpoint), expected["tensors"], "{}", path.display());
        let unread = expected["unread"].as_array().unwrap();
        assert_eq!(checkpoint.notes.len(), unread.len(), "{}", path.display());
        for (note, name) in checkpoint.notes.iter().zip(unread) {
            // A member that is not an array is not a tensor.
            let code = if note.skipped.is_some() { "tensor-skipped" } else { "unread-member" };
            assert_eq!((note.code.as_str(), note.omission), (code, true));
            assert_eq!(note.skipped.is_none(), path.ends_with("other_members.npz"), "{}", path.display());
            assert!(note.text.starts_with(name.as_str().unwrap()), "{}", note.text);
        }
    }
}

#[test]
fn bad_files_fail_with_the_expected_code() {
    let files = files("bad");
    assert!(files.len() > 30);
    for (path, bytes, expected) in files {
        // The format is named: a file with a damaged beginning is not detected.
        let open = || {
            let options = OpenOptions { format: Some("npz".into()), ..OpenOptions::default() };
            let checkpoint = open_source(memory(&bytes), &options)?;
            checkpoint.tensors.iter().try_for_each(|t| t.read_tensor(Order::Row).map(drop))
        };
        let error = open().unwrap_err();
        assert_eq!(error.code().as_str(), expected["code"], "{} {error:?}", path.display());
        assert_eq!(error.file(), Some("m"), "{}", path.display());
    }
}

#[test]
fn prefixes_and_changed_bytes_never_panic() {
    for (path, bytes, _) in files("good").into_iter().chain(files("bad")).filter(|f| f.1.len() < 2000) {
        if path.parent().unwrap().ends_with("good") {
            for len in 0..bytes.len() {
                assert!(open_bytes(&bytes[..len]).is_err(), "{} cut to {len}", path.display());
            }
        }
        for at in 0..bytes.len() {
            for value in [0, 0xff, bytes[at] ^ 1, bytes[at] ^ 0x80] {
                let mut changed = bytes.clone();
                changed[at] = value;
                if let Ok(checkpoint) = Npz.open(memory(&changed), &OpenOptions::default()) {
                    for tensor in &checkpoint.tensors {
                        // Damage of deflated data may be found only on reading.
                        let _ = tensor.read_tensor(Order::Row);
                    }
                }
            }
        }
    }
}

#[test]
fn written_archives_read_back() {
    for (path, bytes, expected) in files("good") {
        let checkpoint = open_bytes(&bytes).unwrap();
        let plan = planned(&checkpoint);
        assert_eq!(plan.losses.len(), expected["unread"].as_array().unwrap().len());
        for (loss, note) in plan.losses.iter().zip(&checkpoint.notes) {
            assert_eq!(loss.is_tensor(), note.skipped.is_some());
            assert_eq!(loss.code.as_str(), if loss.is_tensor() { "tensor-skipped" } else { "omitted" });
        }
        let bytes = materialise(&plan).remove(0);
        let again = open_bytes(&bytes).unwrap();
        let mut sorted = expected["tensors"].as_array().unwrap().clone();
        sorted.sort_by_key(|t| t["name"].as_str().unwrap().as_bytes().to_vec());
        assert_eq!(all_tensors_json(&again), Json::from(sorted), "{}", path.display());
        assert_eq!(again.notes, []);
        assert_eq!(written(&again), bytes, "{}", path.display());
        for tensor in &again.tensors {
            assert!(tensor.extents[0].offset.is_multiple_of(64));
        }
        // The zip crate checks the CRCs on reading.
        let mut judge = ::zip::ZipArchive::new(std::io::Cursor::new(&bytes)).unwrap();
        for i in 0..judge.len() {
            let mut member = judge.by_index(i).unwrap();
            assert!(member.data_start().unwrap().is_multiple_of(64));
            std::io::copy(&mut member, &mut std::io::sink()).unwrap();
        }
    }
}

#[test]
fn torch_archives_are_not_detected_as_npz() {
    let bytes = materialise(&WritePlan {
        format: "zip",
        kind: "zip",
        losses: vec![],
        files: vec![{
            let mut zip = zip::ZipBuilder::new(weighbridge_core::plan::FileBuilder::new(""));
            for (name, content) in [("x.npy", &b"\x93NUMPY"[..]), ("archive/data.pkl", b"")] {
                zip.member(name, content.len() as u64, |file| {
                    file.literal(content);
                    Ok(())
                })
                .unwrap();
            }
            zip.finish()
        }],
    })
    .remove(0);
    assert!(!Npz.recognises(&bytes, &memory(&bytes)));
}

/// A tensor with distinct bytes, in the given order.
fn tensor(path: TensorPath, encoding: Encoding) -> TensorEntry {
    let source: SourceRef = Arc::new(MemorySource::new("s", (0..24).collect()));
    TensorEntry::dense(path, DType::F32, Shape::from([2, 3]), &source, 0, encoding).unwrap()
}

fn with(paths: &[&str]) -> Checkpoint {
    let tensors = paths.iter().map(|p| tensor(TensorPath::from_dotted(p), Encoding::ROW)).collect();
    Checkpoint { tensors, ..Checkpoint::new("test", "test", "t") }
}

#[test]
fn bridge_metadata_restores_everything() {
    let mut checkpoint = with(&[
        "z",
        "a.b",
        "../../etc/passwd",
        "/root",
        "a\\b",
        "new\nline\0",
        "weighbridge.metadata",
        "weighbridge.x",
    ]);
    let long = "x".repeat(70_000);
    checkpoint.tensors.push(tensor(TensorPath::from_dotted(&long), Encoding::COLUMN));
    checkpoint.tensors.push(tensor(TensorPath::from_dotted(&format!("{long}y")), Encoding::COLUMN));
    checkpoint.tensors.push(tensor(TensorPath::new([Name::from("a.b")]), Encoding::COLUMN));
    checkpoint.tensors.push(tensor(TensorPath::new([Name::new(*b"\xff\xfe")]), Encoding::ROW));
    checkpoint
        .tensors
        .push(tensor(TensorPath::new([Name::from("größe"), Name::from("重み")]), Encoding::ROW));
    let mut state = tensor(TensorPath::from_dotted("a.b"), Encoding::COLUMN);
    state.role = Role::OptimizerState { slot: "Adam.m1".into() };
    checkpoint.tensors.push(state);
    checkpoint.origin = Some(Origin { format: "primitiv".into(), kind: "model".into() });
    checkpoint.metadata.set("typed", Value::F32(0x7fc0_0001));
    checkpoint.metadata.set("text", Value::Text("größe".into()));
    let plan = planned(&checkpoint);
    // Readers without bridge metadata see none of these.
    assert_eq!(plan.losses.len(), 9, "{:?}", plan.losses);
    assert!(plan.losses.iter().all(|loss| loss.code == "renamed" && loss.subject != "weighbridge.x"));
    let bytes = materialise(&plan).remove(0);
    let again = open_bytes(&bytes).unwrap();
    assert_eq!(again.notes, []);
    assert_eq!((&again.origin, &again.metadata), (&checkpoint.origin, &checkpoint.metadata));
    assert_eq!(again.tensors.len(), checkpoint.tensors.len());
    for (a, b) in again.tensors.iter().zip(&checkpoint.tensors) {
        assert_eq!((&a.path, &a.role, a.order()), (&b.path, &b.role, b.order()));
        assert_eq!(a.read_tensor(Order::Row).unwrap(), b.read_tensor(Order::Row).unwrap());
    }
    assert_eq!(written(&again), bytes);

    // Every name is a valid file name within the folder of extraction.
    let members = zip::read_directory(&memory(&bytes), &Limits::default()).unwrap();
    for member in &members {
        let name = &member.name;
        assert!(!name.starts_with('/') && !name.split('/').any(|part| part == ".."), "{name}");
        assert!(!name.contains(|c: char| c.is_control() || c == '\\') && name.len() <= 65_535);
    }
    let mut names: Vec<_> = members.iter().map(|m| m.name.as_bytes()).collect();
    let metadata = names.pop().unwrap();
    assert_eq!(metadata, b"weighbridge.metadata.npy");
    assert!(names.contains(&b"weighbridge.x.npy".as_slice()));
    assert!(names.is_sorted());
    // Tensors are not transposed.
    let transforms = plan.files[0].segments.iter().filter(|s| matches!(s.content, Content::Tensor { .. }));
    assert_eq!(transforms.count(), 0);
}

#[test]
fn plain_tensors_need_no_metadata_member() {
    let bytes = written(&with(&["b", "a.b"]));
    let members = zip::read_directory(&memory(&bytes), &Limits::default()).unwrap();
    let names: Vec<_> = members.iter().map(|m| m.name.as_str()).collect();
    assert_eq!(names, ["a.b.npy", "b.npy"]);
    assert_eq!(written(&with(&["a.b", "b"])), bytes);
}

#[test]
fn an_empty_archive_is_an_npz() {
    let bytes = written(&with(&[]));
    assert_eq!(bytes.len(), 22);
    assert_eq!(open_bytes(&bytes).unwrap().tensors.len(), 0);
}

/// An npz with `text` as its metadata.
fn with_metadata(text: &str) -> Vec<u8> {
    let mut zip = zip::ZipBuilder::new(weighbridge_core::plan::FileBuilder::new(""));
    let shape = Shape::from([text.len() as u64]);
    let mut array = crate::npy::header::encode(DType::U8, Order::Row, &shape).unwrap();
    array.extend_from_slice(text.as_bytes());
    zip.member("weighbridge.metadata.npy", array.len() as u64, |file| {
        file.literal(&array);
        Ok(())
    })
    .unwrap();
    materialise(&WritePlan { format: "npz", kind: "archive", losses: vec![], files: vec![zip.finish()] })
        .remove(0)
}

#[test]
fn invalid_metadata_is_ignored_with_a_note() {
    for text in ["", "[]", "{", "\"x\"", &"[".repeat(100_000)] {
        let checkpoint = open_bytes(&with_metadata(text)).unwrap();
        assert_eq!(checkpoint.notes[0].code.as_str(), "metadata-unreadable");
        assert!(checkpoint.metadata.is_empty() && checkpoint.tensors.is_empty());
    }
    let checkpoint =
        open_bytes(&with_metadata(r#"{"a": 1, "b": "text", "weighbridge.index": "{}"}"#)).unwrap();
    let codes: Vec<_> = checkpoint.notes.iter().map(|n| n.code.as_str()).collect();
    assert_eq!(codes, ["metadata-unreadable", "carried-index-unreadable"]);
    assert_eq!(checkpoint.metadata.get("b"), Some(&Value::Text("text".into())));
    assert_eq!(checkpoint.metadata.iter().count(), 1);
    let options =
        OpenOptions { limits: Limits { header_bytes: 200, ..Limits::default() }, ..OpenOptions::default() };
    let large = with_metadata(&format!("{{\"a\": \"{}\"}}", "x".repeat(300)));
    assert_eq!(open_source(memory(&large), &options).unwrap_err().code().as_str(), "limit");
}

#[test]
fn does_not_inflate_metadata_bombs() {
    let text = format!("{{\"a\": \"{}\"}}", " ".repeat(20 << 20));
    let mut array =
        crate::npy::header::encode(DType::U8, Order::Row, &Shape::from([text.len() as u64])).unwrap();
    array.extend_from_slice(text.as_bytes());
    let out = std::io::Cursor::new(Vec::new());
    let mut packer = flate2::write::DeflateEncoder::new(out, flate2::Compression::best());
    std::io::Write::write_all(&mut packer, &array).unwrap();
    let packed = packer.finish().unwrap().into_inner();
    // A stored member, changed to a deflated one in both headers.
    let mut zip = zip::ZipBuilder::new(weighbridge_core::plan::FileBuilder::new(""));
    let fill = |file: &mut weighbridge_core::plan::FileBuilder| {
        file.literal(&packed);
        Ok(())
    };
    zip.member("weighbridge.metadata.npy", packed.len() as u64, fill).unwrap();
    let plan = WritePlan { format: "npz", kind: "archive", losses: vec![], files: vec![zip.finish()] };
    let mut bytes = materialise(&plan).remove(0);
    let central = bytes.windows(4).rposition(|w| w == b"PK\x01\x02").unwrap();
    for (at, crc_at) in [(8, 14), (central + 10, central + 16)] {
        bytes[at] = 8;
        bytes[crc_at..crc_at + 4].copy_from_slice(&crc32fast::hash(&array).to_le_bytes());
        bytes[crc_at + 8..crc_at + 12].copy_from_slice(&u32::try_from(array.len()).unwrap().to_le_bytes());
    }
    let checkpoint = open_bytes(&bytes).unwrap();
    assert_eq!(checkpoint.notes[0].code.as_str(), "metadata-unreadable");
    assert!(checkpoint.metadata.is_empty());
}

#[test]
fn names_losses_and_rejects_unsupported_tensors() {
    let mut checkpoint = with(&["a"]);
    checkpoint.notes = vec![Note::omission("x", "y"), Note::new("z", "z")];
    checkpoint.metadata.set(Metadata::INDEX_KEY, Value::Text("foreign".into()));
    checkpoint.metadata.set(format!("{}typed", Metadata::RESERVED_PREFIX), Value::U32(1));
    let plan = planned(&checkpoint);
    let codes: Vec<_> = plan.losses.iter().map(|loss| loss.code.as_str()).collect();
    assert_eq!(codes, ["metadata-dropped", "omitted"]);
    let again = open_bytes(&materialise(&plan).remove(0)).unwrap();
    assert_eq!(again.metadata.get("weighbridge.typed"), Some(&Value::U32(1)));

    checkpoint.tensors[0].stored = DType::F8E4M3;
    let error = Npz.plan(&checkpoint, &PlanOptions::default()).unwrap_err();
    assert_eq!((error.code().as_str(), error.hint_text()), ("numpy-dtype", Some("use `cast f32`")));
    let options = PlanOptions::of_kind("array");
    assert_eq!(Npz.plan(&with(&[]), &options).unwrap_err().code().as_str(), "unknown-kind");
}

#[test]
fn lenient_reading_keeps_the_rest() {
    let options = OpenOptions { lenient: true, ..OpenOptions::default() };
    for (file, code, tensors) in [
        ("array_magic.npz", "tensor-skipped", 1),
        ("array_long.npz", "trailing-bytes", 1),
        ("/behind.npz", "trailing-bytes", 2),
        ("behind64.npz", "trailing-bytes", 2),
        ("comment_behind.npz", "trailing-bytes", 2),
        ("comment_cut.npz", "zip-comment-cut", 2),
    ] {
        let (_, bytes, _) = files("bad").into_iter().find(|f| f.0.to_str().unwrap().ends_with(file)).unwrap();
        let checkpoint = open_source(memory(&bytes), &options).unwrap();
        assert_eq!((checkpoint.notes[0].code.as_str(), checkpoint.notes[0].omission), (code, true));
        assert_eq!(checkpoint.tensors.len(), tensors);
    }
    // Programs interpret these differently.
    for file in ["two_ends.npz", "mark_in_comment.npz", "mark_behind.npz", "mark_behind_cut.npz"] {
        let (_, bytes, _) = files("bad").into_iter().find(|f| f.0.ends_with(file)).unwrap();
        assert_eq!(
            open_source(memory(&bytes), &options).unwrap_err().code().as_str(),
            "zip-two-ends",
            "{file}"
        );
    }
}

#[test]
fn notes_about_many_skipped_members_are_counted() {
    let mut zip = zip::ZipBuilder::new(weighbridge_core::plan::FileBuilder::new(""));
    for i in 0..1000 {
        zip.member(&format!("{i}.txt"), 0, |_| Ok(())).unwrap();
    }
    let plan = WritePlan { format: "npz", kind: "archive", losses: vec![], files: vec![zip.finish()] };
    let source = memory(&materialise(&plan)[0]);
    let checkpoint = Npz.open(source, &OpenOptions::default()).unwrap();
    assert_eq!(checkpoint.notes.len(), 101);
    assert!(checkpoint.notes[100].text.contains("900"));
}

/// A source of zeros of any length.
#[derive(Debug)]
struct Zeros(u64);

impl Source for Zeros {
    fn len(&self) -> u64 {
        self.0
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        check_range(self, offset, buffer.len() as u64)?;
        buffer.fill(0);
        Ok(())
    }
    fn label(&self) -> &str {
        "zeros"
    }
}

#[test]
fn writes_archives_above_four_gigabytes() {
    let zeros: SourceRef = Arc::new(Zeros(5 << 30));
    let shape = Shape::from([5 << 10, 1 << 20]);
    let huge = |name: &str| {
        let path = TensorPath::from_dotted(name);
        TensorEntry::dense(path, DType::U8, shape.clone(), &zeros, 0, Encoding::COLUMN).unwrap()
    };
    let mut checkpoint = with(&["b"]);
    checkpoint.tensors.insert(0, huge("a"));
    checkpoint.tensors.push(huge("c"));
    let file = planned(&checkpoint).files.remove(0);
    assert!(file.len > 10 << 30);
    let source: SourceRef = Arc::new(weighbridge_io::testing::PlanSource::new(file));
    let again = open_source(source, &OpenOptions::default()).unwrap();
    let names: Vec<_> = again.tensors.iter().map(TensorEntry::text).collect();
    assert_eq!(names, ["a", "b", "c"]);
    assert_eq!(again.tensors[2].shape, shape);
    assert!(again.tensors.iter().all(|t| t.extents[0].offset.is_multiple_of(64)));
}
