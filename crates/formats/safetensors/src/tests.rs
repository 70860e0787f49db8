//! Comparison with the safetensors library: its crate here, its Python package for the files in `testdata`.
#![allow(clippy::disallowed_methods)]

use super::Safetensors;
use crate::opening::{detect, open_source};
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView, serialize};
use serde_json::Value as Json;
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use weighbridge_core::checkpoint::{Checkpoint, Name, Note, Origin, Role, TensorEntry, TensorPath, Value};
use weighbridge_core::error::{Kind, Result};
use weighbridge_core::tensor::{DType, Encoding, Order, Shape};
use weighbridge_format::{Detect, OpenOptions, PlanOptions, WriteFormat};
use weighbridge_io::source::{CountingSource, Source};
use weighbridge_io::testing::materialise;
use weighbridge_testkit::memory;

fn folder(name: &str) -> PathBuf {
    weighbridge_testkit::testdata("safetensors").join(name)
}

/// Name and bytes of every file of one of the folders.
fn files(name: &str) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for file in std::fs::read_dir(folder(name)).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|e| e == "safetensors") {
            let stem = path.file_stem().unwrap().to_str().unwrap().to_owned();
            files.insert(stem, std::fs::read(path).unwrap());
        }
    }
    files
}

fn options(lenient: bool) -> OpenOptions {
    OpenOptions { format: Some("safetensors".into()), lenient, ..OpenOptions::default() }
}

fn open(bytes: &[u8]) -> Result<Checkpoint> {
    open_source(memory(bytes), &options(false))
}

fn write(checkpoint: &Checkpoint) -> Vec<u8> {
    let plan = Safetensors.plan(checkpoint, &PlanOptions::default()).unwrap();
    assert!(plan.losses.iter().all(|loss| loss.code == "renamed"), "{:?}", plan.losses);
    let mut files = materialise(&plan);
    assert_eq!(files.len(), 1);
    files.remove(0)
}

fn entry(path: &[&str], dtype: DType, shape: &[u64], bytes: &[u8], encoding: Encoding) -> TensorEntry {
    let path = TensorPath::new(path.iter().map(|&p| Name::from(p)).collect::<Vec<_>>());
    TensorEntry::dense(path, dtype, Shape::new(shape), &memory(bytes), 0, encoding).unwrap()
}

fn of(tensors: Vec<TensorEntry>) -> Checkpoint {
    Checkpoint { tensors, ..Checkpoint::new("test", "test", "test") }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Verdict of the safetensors library: `Ok`, or the variant of its error.
fn verdict(bytes: &[u8]) -> String {
    match SafeTensors::deserialize(bytes) {
        Ok(_) => "Ok".into(),
        Err(error) => format!("{error:?}").chars().take_while(|c| c.is_alphanumeric()).collect(),
    }
}

/// Reads a written file with the safetensors library, and compares it with the checkpoint.
fn agrees(bytes: &[u8], ours: &Checkpoint) {
    let theirs = SafeTensors::deserialize(bytes).unwrap();
    let names: Vec<String> = ours.tensors.iter().map(|t| t.path.to_text()).collect();
    assert_eq!(theirs.len(), names.len());
    for (tensor, name) in ours.tensors.iter().zip(&names) {
        let view = theirs.tensor(name).unwrap();
        let dims: Vec<u64> = view.shape().iter().map(|&d| d as u64).collect();
        assert_eq!(tensor.shape.dims(), dims);
        let named = super::DTYPE_NAMES.iter().find(|(dtype, _)| *dtype == tensor.dtype()).unwrap().1;
        assert_eq!(view.dtype().to_string(), named);
        assert_eq!(view.data(), tensor.read_tensor(Order::Row).unwrap(), "{name}");
    }
    let (_, header) = SafeTensors::read_metadata(bytes).unwrap();
    let metadata = header.metadata().clone().unwrap_or_default();
    assert_eq!(metadata.len(), ours.metadata.iter().count());
    for (key, value) in ours.metadata.iter() {
        assert_eq!(&Value::Text(metadata[key].clone()), value);
    }
}

/// Checks that the data is aligned to 64 bytes, and every tensor to its element size.
fn assert_aligned(bytes: &[u8]) {
    let (length, header) = SafeTensors::read_metadata(bytes).unwrap();
    assert!((8 + length).is_multiple_of(64), "{length}");
    for info in header.tensors().values() {
        let size = info.dtype.bitsize().div_ceil(8);
        assert!(info.data_offsets.0.is_multiple_of(size), "{info:?}");
    }
}

#[test]
fn golden_files_read_as_the_library_reads_them() {
    let files = files("good");
    assert!(files.len() >= 9);
    for (name, bytes) in files {
        let truth = std::fs::read(folder("good").join(format!("{name}.json"))).unwrap();
        let truth: Json = serde_json::from_slice(&truth).unwrap();
        let checkpoint = open_source(memory(&bytes), &OpenOptions::default()).unwrap();
        assert_eq!((checkpoint.format, checkpoint.kind), ("safetensors", "single"));
        assert_eq!((&checkpoint.origin, &checkpoint.notes[..]), (&None, &[][..]));
        assert_eq!(checkpoint.metadata.to_json(), truth["metadata"], "{name}");
        let tensors = truth["tensors"].as_array().unwrap();
        assert_eq!(checkpoint.tensors.len(), tensors.len(), "{name}");
        for (ours, theirs) in checkpoint.tensors.iter().zip(tensors) {
            let dtype = super::DTYPE_NAMES.iter().find(|(_, named)| theirs["dtype"] == *named).unwrap().0;
            assert_eq!(ours.path, TensorPath::from_dotted(theirs["name"].as_str().unwrap()));
            assert_eq!(ours.stored, dtype);
            assert_eq!(Json::from(ours.shape.dims()), theirs["shape"]);
            assert_eq!(Json::from(hex(&ours.read_tensor(Order::Row).unwrap())), theirs["hex"]);
        }
        agrees(&bytes, &checkpoint);
    }
}

#[test]
fn the_library_reads_written_files() {
    for (name, bytes) in files("good") {
        let checkpoint = open(&bytes).unwrap();
        let written = write(&checkpoint);
        agrees(&written, &checkpoint);
        assert_aligned(&written);
        assert_eq!(written, write(&open(&bytes).unwrap()), "{name}: the same index gives the same bytes");
        // In the written order, so the engine only copies.
        let again = open(&written).unwrap();
        assert_eq!(again.to_json(), checkpoint.to_json(), "{name}: the order of the library is kept");
        assert_eq!(written, write(&again), "{name}");
        let plan = Safetensors.plan(&again, &PlanOptions::default()).unwrap();
        assert!(plan.files[0].segments.iter().all(|s| ["literal", "copy"].contains(&s.action())));
    }
}

const THEIRS: [Dtype; 22] = [
    Dtype::BOOL,
    Dtype::F4,
    Dtype::F6_E2M3,
    Dtype::F6_E3M2,
    Dtype::U8,
    Dtype::I8,
    Dtype::F8_E5M2,
    Dtype::F8_E4M3,
    Dtype::F8_E8M0,
    Dtype::F8_E4M3FNUZ,
    Dtype::F8_E5M2FNUZ,
    Dtype::I16,
    Dtype::U16,
    Dtype::F16,
    Dtype::BF16,
    Dtype::I32,
    Dtype::U32,
    Dtype::F32,
    Dtype::C64,
    Dtype::F64,
    Dtype::I64,
    Dtype::U64,
];

/// The order of the table is that of the library; it determines the order of the data.
#[test]
fn supports_every_dtype_of_the_library() {
    assert!(THEIRS.is_sorted());
    assert_eq!(THEIRS.map(|d| d.to_string()), super::DTYPE_NAMES.map(|(_, name)| name));
    let data: Vec<u8> = (0..=255).cycle().take(640).collect();
    let mut views = Vec::new();
    for (dtype, (ours, name)) in THEIRS.into_iter().zip(super::DTYPE_NAMES) {
        assert_eq!(u64::from(ours.bits()), dtype.bitsize() as u64);
        for shape in [vec![], vec![0], vec![4], vec![3, 0, 2], vec![2, 4, 3], vec![8, 1, 8]] {
            let bits = shape.iter().product::<usize>() * dtype.bitsize();
            if bits % 8 == 0 {
                let label = format!("{name}.{shape:?}\u{7}\u{1f980}");
                views.push((label, TensorView::new(dtype, shape, &data[..bits / 8]).unwrap()));
            }
        }
    }
    let metadata: HashMap<String, String> =
        [("größe\u{1}", "\"\\\n"), ("", ""), ("__metadata__", "x")].map(|(k, v)| (k.into(), v.into())).into();
    let bytes = serialize(views, Some(metadata)).unwrap();
    let checkpoint = open(&bytes).unwrap();
    assert_eq!(checkpoint.tensors.len(), 22 * 6 - 3);
    agrees(&bytes, &checkpoint);
    let written = write(&checkpoint);
    agrees(&written, &checkpoint);
    assert_aligned(&written);
}

#[test]
fn orders_names_slots_and_types_are_restored() {
    let column: Vec<u8> = [0f32, 3.0, 1.0, 4.0, 2.0, 5.0].iter().flat_map(|x| x.to_le_bytes()).collect();
    let row: Vec<u8> = (0..6u8).flat_map(|x| f32::from(x).to_le_bytes()).collect();
    let mut checkpoint = of(vec![
        entry(&["fc1", "w"], DType::F32, &[2, 3], &column, Encoding::COLUMN),
        entry(&["fc1", "w"], DType::F32, &[2, 3], &row, Encoding::ROW),
        entry(&["a.b"], DType::U8, &[], &[7], Encoding::ROW),
        entry(&["a", "b"], DType::I64, &[1], &[8; 8], Encoding::ROW),
        entry(&["__metadata__"], DType::U8, &[1], &[9], Encoding::ROW),
        entry(&["weighbridge.index"], DType::U8, &[1], &[10], Encoding::ROW),
    ]);
    checkpoint.tensors[1].role = Role::OptimizerState { slot: "Adam.m1".into() };
    checkpoint.tensors[2].path = TensorPath::new([Name::new(*b"\xff."), Name::from("x")]);
    checkpoint.tensors[3].attributes.insert("batch".into(), Value::U32(1));
    checkpoint.origin = Some(Origin { format: "primitiv".into(), kind: "model".into() });
    checkpoint.metadata.set("z", Value::Text("last".into()));
    checkpoint.metadata.set("a", Value::Text("first".into()));
    checkpoint.metadata.set("lr", Value::F32(0x7fc0_0001));

    let written = write(&checkpoint);
    assert_aligned(&written);
    let header = std::str::from_utf8(&written[8..200]).unwrap();
    assert!(header.starts_with(r#"{"__metadata__":{"a":"first","weighbridge.index":"{"#), "{header}");
    let theirs = SafeTensors::deserialize(&written).unwrap();
    assert_eq!(theirs.tensor("fc1.w").unwrap().data(), row, "element (i, j) stays element (i, j)");
    assert_eq!(theirs.tensor("fc1.w/Adam.m1").unwrap().data(), row);
    assert_eq!(theirs.tensor("\\xff..x").unwrap().data(), [7]);
    // Only a reserved name is changed, which is a loss.
    assert_eq!(theirs.tensor("weighbridge.index").unwrap().data(), [10]);
    let losses = Safetensors.plan(&checkpoint, &PlanOptions::default()).unwrap().losses;
    let losses: Vec<_> = losses.iter().map(|loss| (loss.code.as_str(), loss.subject.as_str())).collect();
    assert_eq!(losses, [("renamed", "__metadata__")]);

    let back = open(&written).unwrap();
    assert_eq!(back.notes, []);
    assert_eq!(back.origin, checkpoint.origin);
    for key in ["z", "a", "lr"] {
        assert_eq!(back.metadata.get(key), checkpoint.metadata.get(key));
    }
    assert_eq!(back.metadata.iter().count(), 3);
    assert_eq!(back.tensors.len(), 6);
    for (a, b) in back.tensors.iter().zip(&checkpoint.tensors) {
        assert_eq!((&a.path, &a.role, &a.attributes), (&b.path, &b.role, &b.attributes));
        assert_eq!(a.read_tensor(Order::Column).unwrap(), b.read_tensor(Order::Column).unwrap());
    }
    assert_eq!(write(&back), written);
}

#[test]
fn casts_are_written_in_the_new_type() {
    let mut checkpoint = of(vec![entry(&["x"], DType::F16, &[2], &[0, 0x3c, 0, 0xc0], Encoding::ROW)]);
    checkpoint.cast_floats(DType::F32).unwrap();
    let written = write(&checkpoint);
    let theirs = SafeTensors::deserialize(&written).unwrap();
    assert_eq!(theirs.tensor("x").unwrap().dtype(), Dtype::F32);
    assert_eq!(theirs.tensor("x").unwrap().data(), [0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0]);
}

#[test]
fn rejects_tensors_that_the_format_cannot_hold() {
    let refused = |tensors: Vec<TensorEntry>| {
        let error = Safetensors.plan(&of(tensors), &PlanOptions::default()).unwrap_err();
        assert_eq!(error.kind(), Kind::Mismatch, "{error}");
        error
    };
    let tensor = |dtype, shape: &[u64]| entry(&["x"], dtype, shape, &[0; 16], Encoding::ROW);
    let error = refused(vec![tensor(DType::C128, &[1])]);
    assert_eq!((error.code().as_str(), error.tensor()), ("no-such-dtype", Some("x")));
    assert!(error.hint_text().unwrap().contains("npz"));
    let twice = vec![tensor(DType::U8, &[1]), tensor(DType::U8, &[2])];
    assert_eq!(refused(twice).code().as_str(), "name-collision");
    assert_eq!(refused(vec![tensor(DType::F64, &[1 << 32, 1 << 32, 0])]).code().as_str(), "shape-overflow");
    let mut packed = tensor(DType::F4, &[2]);
    packed.shape = Shape::from([3]);
    assert_eq!(refused(vec![packed]).code().as_str(), "part-of-a-byte");
    let large = |i: u64| {
        let mut tensor = entry(&["x"], DType::U8, &[0], &[], Encoding::ROW);
        tensor.path = TensorPath::from_dotted(&i.to_string());
        tensor.shape = Shape::from([(1 << 61) - 1]);
        tensor
    };
    assert_eq!(refused((0..9).map(large).collect()).code().as_str(), "too-long");

    let options = PlanOptions::of_kind("model");
    let error = Safetensors.plan(&of(vec![]), &options).unwrap_err();
    assert_eq!((error.kind(), error.code().as_str()), (Kind::Usage, "unknown-kind"));
    let options = PlanOptions::of_kind("single");
    assert!(Safetensors.plan(&of(vec![]), &options).is_ok());
}

/// The library would write such a file, but not read it.
#[test]
fn rejects_headers_above_the_limit_of_the_library() {
    let mut checkpoint = of(vec![]);
    checkpoint.metadata.set("k", Value::Text("\u{1}".repeat(16_666_660)));
    assert!(Safetensors.plan(&checkpoint, &PlanOptions::default()).is_ok());
    checkpoint.metadata.set("k", Value::Text("\u{1}".repeat(16_666_670)));
    let error = Safetensors.plan(&checkpoint, &PlanOptions::default()).unwrap_err();
    assert_eq!((error.kind(), error.code().as_str()), (Kind::Mismatch, "header-too-long"));
}

#[test]
fn names_every_loss() {
    let mut checkpoint = of(vec![]);
    checkpoint.notes = vec![Note::omission("hole", "3 bytes"), Note::new("odd", "but whole")];
    checkpoint.metadata.set("weighbridge.index", Value::Text("not ours".into()));
    let plan = Safetensors.plan(&checkpoint, &PlanOptions::default()).unwrap();
    let losses: Vec<_> = plan.losses.iter().map(|l| (l.code.as_str(), l.subject.as_str())).collect();
    assert_eq!(losses, [("omitted", "hole"), ("reserved-key", "weighbridge.index")]);
    assert_eq!(open(&materialise(&plan)[0]).unwrap().metadata.iter().count(), 0);
}

/// Error texts of the library for a header that it cannot parse, and for uncovered data.
const JSON: &str = "InvalidHeaderDeserialization";
const COVER: &str = "MetadataIncompleteBuffer";

/// File, our code, offset, tensor, and the verdict of the library. Where that is `Ok`, the rejection is
/// deliberate: duplicate keys, a header that does not begin with a brace (forbidden by the
/// specification), entries with another JSON structure than in the specification, and more
/// dimensions than the limit, which can be raised.
const BAD: [(&str, &str, u64, &str, &str); 62] = [
    ("bad-json", "bad-json", 62, "", JSON),
    ("byte-order-mark", "bad-header", 8, "", JSON),
    ("control-character", "bad-json", 12, "", JSON),
    ("deep", "bad-header", 12, "a", JSON),
    ("dtype-lower-case", "unknown-dtype", 26, "a", JSON),
    ("dtype-number", "bad-header", 22, "a", JSON),
    ("dtype-object", "bad-header", 21, "a", "Ok"),
    ("dtype-unknown", "unknown-dtype", 27, "a", JSON),
    ("duplicate-field", "duplicate-key", 74, "a", JSON),
    ("duplicate-metadata", "duplicate-key", 47, "", JSON),
    ("duplicate-metadata-key", "duplicate-key", 35, "", "Ok"),
    ("duplicate-name", "duplicate-key", 64, "a", "Ok"),
    ("duplicate-name-escaped", "duplicate-key", 69, "a", "Ok"),
    ("empty", "empty-file", 0, "", "HeaderTooSmall"),
    ("end-before-begin", "bad-offsets", 123, "b", "InvalidOffset"),
    ("half-a-length", "truncated", 0, "", "HeaderTooSmall"),
    ("header-length-max", "limit", 0, "", "HeaderTooLarge"),
    ("header-past-end", "truncated", 8, "", "InvalidHeaderLength"),
    ("header-too-long", "limit", 0, "", "HeaderTooLarge"),
    ("hole", "hole", 133, "b", "InvalidOffset"),
    ("hole-first", "hole", 71, "a", "InvalidOffset"),
    ("json-array", "bad-header", 8, "", JSON),
    ("json-cut", "bad-json", 60, "", JSON),
    ("leading-space", "bad-header", 8, "", "Ok"),
    ("length-mismatch", "length-mismatch", 62, "a", "TensorInvalidInfo"),
    ("length-mismatch-zero", "length-mismatch", 62, "a", "TensorInvalidInfo"),
    ("lone-surrogate", "bad-json", 16, "", JSON),
    ("metadata-list", "bad-header", 25, "", JSON),
    ("metadata-null", "bad-header", 32, "", JSON),
    ("metadata-number", "bad-header", 29, "", JSON),
    ("metadata-tensor", "bad-header", 46, "", JSON),
    ("missing-dtype", "missing-field", 46, "a", JSON),
    ("missing-offsets", "missing-field", 39, "a", JSON),
    ("missing-shape", "missing-field", 48, "a", JSON),
    ("no-header", "bad-header", 8, "", JSON),
    ("not-utf8", "not-utf8", 10, "", "InvalidHeader"),
    ("offset-negative", "bad-header", 57, "a", JSON),
    ("offset-past-u64", "bad-header", 77, "a", JSON),
    ("offsets-max", "hole", u64::MAX, "a", "InvalidOffset"),
    ("offsets-one", "bad-header", 58, "a", JSON),
    ("offsets-swapped", "bad-offsets", 70, "a", "InvalidOffset"),
    ("offsets-three", "bad-header", 63, "a", JSON),
    ("overlap", "overlap", 120, "b", "InvalidOffset"),
    ("overlap-empty", "overlap", 119, "b", "InvalidOffset"),
    ("overlap-same", "overlap", 115, "b", "InvalidOffset"),
    ("padded-with-nul", "bad-json", 62, "", JSON),
    ("part-of-a-byte", "part-of-a-byte", 61, "a", "MisalignedSlice"),
    ("shape-65-dimensions", "limit", 166, "a", "Ok"),
    ("shape-fraction", "bad-header", 39, "a", JSON),
    ("shape-negative", "bad-header", 38, "a", JSON),
    ("shape-overflow", "shape-overflow", 82, "a", "ValidationOverflow"),
    ("shape-overflow-and-zero", "shape-overflow", 84, "a", "ValidationOverflow"),
    ("shape-overflow-in-bits", "shape-overflow", 79, "a", "ValidationOverflow"),
    ("shape-past-u64", "bad-header", 56, "a", JSON),
    ("shape-text", "bad-header", 39, "a", JSON),
    ("tensor-list", "bad-header", 12, "a", "Ok"),
    ("tensor-null", "bad-header", 16, "a", JSON),
    ("text-after-object", "bad-json", 63, "", JSON),
    ("trailing-bytes", "trailing-bytes", 70, "", COVER),
    ("trailing-bytes-no-tensor", "trailing-bytes", 10, "", COVER),
    ("truncated", "truncated", 62, "a", COVER),
    ("truncated-second", "truncated", 124, "b", COVER),
];

#[test]
fn rejects_damaged_files_with_reason_and_offset() {
    let files = files("bad");
    assert_eq!(files.keys().collect::<Vec<_>>(), BAD.iter().map(|row| row.0).collect::<Vec<_>>());
    for (name, code, offset, tensor, original) in BAD {
        let bytes = &files[name];
        let error = open(bytes).unwrap_err();
        assert_eq!((error.code().as_str(), error.offset()), (code, Some(offset)), "{name}: {error}");
        assert_eq!(error.tensor().unwrap_or(""), tensor, "{name}");
        assert_eq!(error.file(), Some("m"));
        let kind = match code {
            "limit" => Kind::Limit,
            "unknown-dtype" => Kind::Unsupported,
            _ => Kind::Corrupt,
        };
        assert_eq!(error.kind(), kind, "{name}");
        assert_eq!(verdict(bytes), original, "{name}");
        // Lenient reading accepts bytes without a tensor, and nothing else.
        let lenient = open_source(memory(bytes), &options(true));
        if matches!(code, "hole" | "trailing-bytes") && name != "offsets-max" {
            let lenient = lenient.unwrap();
            assert_eq!(lenient.notes[0].code.as_str(), code);
            assert!(lenient.notes[0].omission);
            let plan = Safetensors.plan(&lenient, &PlanOptions::default()).unwrap();
            assert_eq!(plan.losses[0].code.as_str(), "omitted");
            assert_eq!(verdict(&materialise(&plan)[0]), "Ok");
        } else {
            let code = if name == "offsets-max" { "truncated" } else { code };
            assert_eq!(lenient.unwrap_err().code().as_str(), code, "{name}");
        }
    }
}

#[test]
fn rejects_every_prefix_of_a_file() {
    for (name, bytes) in files("good") {
        for bytes in [write(&open(&bytes).unwrap()), bytes] {
            for end in 0..bytes.len() {
                for lenient in [false, true] {
                    let error = open_source(memory(&bytes[..end]), &options(lenient)).unwrap_err();
                    let code = if end == 0 { "empty-file" } else { "truncated" };
                    assert_eq!((error.kind(), error.code().as_str()), (Kind::Corrupt, code), "{name} {end}");
                }
                assert!(open_source(memory(&bytes[..end]), &OpenOptions::default()).is_err());
            }
        }
    }
}

#[test]
fn a_cut_file_names_the_first_incomplete_tensor() {
    let file = &files("good")["mlp"];
    let error = open(&file[..file.len() - 1]).unwrap_err();
    assert_eq!(error.tensor(), Some("fc2.weight"));
    assert!(error.hint_text().unwrap().contains("3 of 4 tensors are complete"));
    let error = open(&file[..file.len() - 33]).unwrap_err();
    assert_eq!(error.tensor(), Some("fc1.weight"));
    assert!(error.hint_text().unwrap().contains("2 of 4 tensors are complete"));
}

/// A file with the header `json` and `data` zero bytes.
fn with_header(json: &str, data: usize) -> Vec<u8> {
    [&(json.len() as u64).to_le_bytes(), json.as_bytes(), &vec![0; data]].concat()
}

#[test]
fn accepts_what_the_library_accepts() {
    let a = r#"{"data_offsets":[0,1],"shape":[1],"dtype":"U8","extra":{"deep":[1,2]}}"#;
    let b = r#"{"dtype":"U8","shape":[],"data_offsets":[1,2],"extra":null}"#;
    let file = with_header(&format!("{{\n\t\"b\":{b},\"__metadata__\":null,\"a\":{a} }} \n"), 2);
    assert_eq!(verdict(&file), "Ok");
    let checkpoint = open_source(memory(&file), &OpenOptions::default()).unwrap();
    agrees(&file, &checkpoint);
    let names: Vec<String> = checkpoint.tensors.iter().map(TensorEntry::name).collect();
    assert_eq!(names, ["a", "b"], "the order of the data, not of the header");
    let [note] = &checkpoint.notes[..] else { panic!("{:?}", checkpoint.notes) };
    assert_eq!((note.code.as_str(), note.omission), ("unknown-field", true));
    assert!(note.text.starts_with("2 unknown header fields"), "{}", note.text);
    assert!(note.text.ends_with("extra of b"), "{}", note.text);
}

#[test]
fn error_offsets_count_lines_and_bytes() {
    let text = "{\n\"größe\":{\"dtype\":\"U8\",\n\"shape\":[x]}}";
    let error = open(&with_header(text, 0)).unwrap_err();
    assert_eq!(error.code().as_str(), "bad-json");
    assert_eq!(error.offset(), Some(8 + text.find('x').unwrap() as u64));
    let error = open(&with_header("{\"a\": 1, \"a\": 2}", 0)).unwrap_err();
    assert_eq!((error.code().as_str(), error.offset()), ("bad-header", Some(8 + 6)));
}

#[test]
fn limits_are_enforced() {
    let file = with_header(
        r#"{"a.b.c":{"dtype":"U8","shape":[1,1,1],"data_offsets":[0,1]},"d":{"dtype":"U8","shape":[],"data_offsets":[1,2]}}"#,
        2,
    );
    let length = file.len() as u64 - 10;
    type Field = fn(&mut weighbridge_core::Limits) -> &mut u64;
    let fields: [(Field, u64); 5] = [
        (|l| &mut l.header_bytes, length),
        (|l| &mut l.tensors, 2),
        (|l| &mut l.name_bytes, 5),
        (|l| &mut l.dimensions, 3),
        (|l| &mut l.path_parts, 3),
    ];
    for (field, enough) in fields {
        let mut options = options(true);
        *field(&mut options.limits) = enough;
        assert_eq!(open_source(memory(&file), &options).unwrap().tensors.len(), 2);
        *field(&mut options.limits) = enough - 1;
        assert_eq!(open_source(memory(&file), &options).unwrap_err().kind(), Kind::Limit, "{enough}");
    }
}

#[test]
fn detects_only_safetensors_files() {
    let claims = |bytes: &[u8]| {
        let head = &bytes[..bytes.len().min(weighbridge_format::HEAD)];
        Safetensors.recognises(head, &memory(bytes))
    };
    for (name, bytes) in files("good") {
        assert!(claims(&bytes), "{name}");
        assert_eq!(detect(&memory(&bytes)).unwrap().info().id, "safetensors");
        assert!(claims(&bytes[..10]), "a file cut short is still detected: {name}");
    }
    assert!(claims(&with_header("{\n}", 0)));
    assert!(claims(&with_header("{ \"a\"", 0)));
    let strangers: [&[u8]; 12] = [
        b"",
        b"\x02\0\0\0\0\0\0\0{",
        b"\x01\0\0\0\0\0\0\0{\"",
        b"\x02\0\0\0\0\0\0\0[]",
        b"\x02\0\0\0\0\0\0\0{x",
        b"\x02\0\0\0\0\0\0\x01{}",
        b"{\"abcde{\": {\"a\": 1}}",
        b"        {\"a\": 1}",
        b"[[1, 2],{\"a\": 1}]",
        b"\xce\0\0\0\0\xce\0\0{\"\x01",
        b"PK\x03\x04\x14\0\0\0{\"",
        b"\x93NUMPY\x01\0{\"descr\"",
    ];
    for stranger in strangers {
        assert!(!claims(stranger), "{}", hex(stranger));
    }
}

#[test]
fn a_hundred_thousand_tensors_are_listed_from_the_header_alone() {
    let mut json = String::from("{");
    for i in 0..100_000u64 {
        let (begin, end) = (i * 8, i * 8 + 8);
        json.push_str(&format!(
            "\"model.layers.{i}.w\":{{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[{begin},{end}]}},"
        ));
    }
    json.pop();
    json.push('}');
    let file = with_header(&json, 800_000);
    let counting = Arc::new(CountingSource::new(memory(&file)));
    let start = std::time::Instant::now();
    let checkpoint = open_source(counting.clone(), &OpenOptions::default()).unwrap();
    println!("{:?} for {} tensors", start.elapsed(), checkpoint.tensors.len());
    assert_eq!(checkpoint.tensors.len(), 100_000);
    let header = 8 + json.len() as u64;
    assert!(counting.bytes_read() <= header + weighbridge_format::HEAD as u64);
    assert!(counting.calls() <= 3);
    assert_eq!(counting.len(), file.len() as u64);
    let written = write(&checkpoint);
    assert_eq!(SafeTensors::deserialize(&written).unwrap().len(), 100_000);
}
