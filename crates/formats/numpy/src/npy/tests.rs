//! Golden files of numpy, damaged files, and written files.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use super::header::{self, Header};
use super::*;
use crate::opening::open_source;
use serde_json::{Value as Json, json};
use std::path::PathBuf;
use std::sync::Arc;
use weighbridge_core::checkpoint::{Note, Origin, Role, TensorEntry, TensorPath, Value};
use weighbridge_core::error::Error;
use weighbridge_core::limits::Limits;
use weighbridge_core::tensor::{Encoding, Endian, Order, Shape};
use weighbridge_io::source::{CountingSource, Cursor, MemorySource};
use weighbridge_io::testing::materialise;

/// Files of a folder, each with its JSON file.
fn files(folder: &str) -> Vec<(PathBuf, Vec<u8>, Json)> {
    let folder = weighbridge_testkit::testdata("npy").join(folder);
    let mut files = Vec::new();
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|e| e == "npy") {
            let expected = std::fs::read(path.with_extension("npy.json")).unwrap();
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
    open_source(Arc::new(MemorySource::new("m.npy", bytes.to_vec())), &OpenOptions::default())
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

#[test]
fn golden_files_read_bit_for_bit() {
    let files = files("good");
    assert!(files.len() > 40);
    for (path, bytes, expected) in files {
        let checkpoint = open_bytes(&bytes).unwrap();
        assert_eq!((checkpoint.format, checkpoint.kind), ("npy", "array"));
        let tensors: Json = checkpoint.tensors.iter().map(tensor_json).collect();
        assert_eq!(tensors, expected["tensors"], "{}", path.display());
    }
}

#[test]
fn files_of_numpy_are_rewritten_byte_for_byte() {
    let mut same = 0;
    for (path, bytes, _) in files("good") {
        let checkpoint = open_bytes(&bytes).unwrap();
        let entry = &checkpoint.tensors[0];
        let plan = Npy.plan(&checkpoint, &PlanOptions::default()).unwrap();
        // The rewritten file states the assumed byte order.
        let codes: Vec<_> = plan.losses.iter().map(|loss| loss.code.as_str()).collect();
        assert_eq!(codes, if entry.guessed { &["index-dropped"][..] } else { &[] });
        let written = materialise(&plan).remove(0);
        let again = open_bytes(&written).unwrap();
        assert_eq!(tensor_json(&again.tensors[0]), tensor_json(entry), "{}", path.display());
        // Other versions, byte orders and handmade headers are normalized as numpy writes them.
        let name = path.file_stem().unwrap().to_str().unwrap();
        let by_hand =
            ["python2_long", "other_order", "blanks", "unaligned", "unicode_texts", "escape", "native"];
        let by_hand = by_hand.contains(&name) || ["no_order", "bar", "big_byte", "v2", "v3"].contains(&name);
        if !name.ends_with("_big") && !by_hand {
            assert_eq!(written, bytes, "{name}");
            same += 1;
        }
    }
    assert!(same > 20);
}

#[test]
fn a_column_major_array_is_copied_not_transposed() {
    let (_, bytes, _) = files("good").into_iter().find(|f| f.0.ends_with("fortran.npy")).unwrap();
    let plan = Npy.plan(&open_bytes(&bytes).unwrap(), &PlanOptions::default()).unwrap();
    let actions: Vec<_> =
        plan.files[0].segments.iter().map(weighbridge_core::plan::Segment::action).collect();
    assert_eq!(actions, ["literal", "copy"]);
}

#[test]
fn bad_files_fail_with_the_expected_code() {
    let files = files("bad");
    assert!(files.len() > 30);
    for (path, bytes, expected) in files {
        let error = open_bytes(&bytes).unwrap_err();
        assert_eq!(error.code().as_str(), expected["code"], "{} {error:?}", path.display());
        assert_eq!(error.file(), Some("m.npy"));
    }
}

#[test]
fn errors_name_unsupported_types() {
    for (name, words) in [
        ("object.npy", ["|O", "pickle"]),
        ("text.npy", ["<U2", "strings"]),
        ("record.npy", ["[('x', '<f4')", "fields"]),
        ("date.npy", ["<M8[D]", "dates"]),
        ("void.npy", ["|V2", "bfloat16"]),
    ] {
        let (_, bytes, _) = files("bad").into_iter().find(|f| f.0.ends_with(name)).unwrap();
        let text = open_bytes(&bytes).unwrap_err().to_string();
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
    }
}

#[test]
fn prefixes_and_changed_bytes_never_panic() {
    for (path, bytes, _) in files("good").into_iter().chain(files("bad")).filter(|f| f.1.len() < 1000) {
        if path.parent().unwrap().ends_with("good") {
            for len in 0..bytes.len() {
                assert!(open_bytes(&bytes[..len]).is_err(), "{} cut to {len}", path.display());
            }
        }
        for at in 0..bytes.len().min(200) {
            for value in [0, 0xff, b'(', b'\'', b'9', bytes[at] ^ 1, bytes[at] ^ 0x80] {
                let mut changed = bytes.clone();
                changed[at] = value;
                if let Ok(checkpoint) = open_bytes(&changed) {
                    checkpoint.tensors[0].read_tensor(Order::Row).unwrap();
                }
            }
        }
    }
}

#[test]
fn lenient_reading_notes_trailing_bytes() {
    let (_, bytes, _) = files("bad").into_iter().find(|f| f.0.ends_with("trailing.npy")).unwrap();
    let options = OpenOptions { lenient: true, ..OpenOptions::default() };
    let checkpoint = open_source(Arc::new(MemorySource::new("m", bytes)), &options).unwrap();
    assert_eq!(checkpoint.notes[0].code.as_str(), "trailing-bytes");
    let losses = Npy.plan(&checkpoint, &PlanOptions::default()).unwrap().losses;
    assert_eq!(losses[0].code.as_str(), "omitted");
}

#[test]
fn a_native_byte_order_is_marked_as_a_guess() {
    let (_, bytes, _) = files("good").into_iter().find(|f| f.0.ends_with("native.npy")).unwrap();
    let checkpoint = open_bytes(&bytes).unwrap();
    assert!(checkpoint.tensors[0].guessed);
    assert_eq!(checkpoint.notes[0].code.as_str(), "native-byte-order");
}

#[test]
fn opening_reads_the_header_only() {
    let shape = Shape::from([1 << 20]);
    let mut bytes = header::encode(DType::F64, Order::Row, &shape).unwrap();
    bytes.resize(bytes.len() + (8 << 20), 1);
    let counted = Arc::new(CountingSource::new(Arc::new(MemorySource::new("m", bytes))));
    let checkpoint = open_source(counted.clone(), &OpenOptions::default()).unwrap();
    assert_eq!(checkpoint.tensors[0].shape, shape);
    assert!(counted.bytes_read() < 8192, "{}", counted.bytes_read());
}

/// A tensor of zeros.
fn tensor(dtype: DType, dims: &[u64], encoding: Encoding) -> TensorEntry {
    let shape = Shape::new(dims);
    let len = usize::try_from(shape.bytes(dtype).unwrap()).unwrap();
    let source: SourceRef = Arc::new(MemorySource::new("s", vec![0; len]));
    TensorEntry::dense(TensorPath::value(), dtype, shape, &source, 0, encoding).unwrap()
}

fn with(tensors: Vec<TensorEntry>) -> Checkpoint {
    Checkpoint { tensors, ..Checkpoint::new("test", "test", "t") }
}

fn refusal(checkpoint: &Checkpoint) -> Error {
    Npy.plan(checkpoint, &PlanOptions::of_kind("array")).unwrap_err()
}

#[test]
fn rejects_tensors_that_npy_cannot_hold() {
    let fine = || tensor(DType::F32, &[2], Encoding::ROW);
    assert_eq!(refusal(&with(vec![])).code().as_str(), "one-tensor");
    assert!(refusal(&with(vec![fine(), fine()])).hint_text().unwrap().contains("npz"));
    for dtype in DType::ALL.into_iter().filter(|d| !DTYPES.contains(d)) {
        let error = refusal(&with(vec![tensor(dtype, &[4], Encoding::ROW)]));
        assert_eq!((error.code().as_str(), error.hint_text()), ("numpy-dtype", Some("use `cast f32`")));
    }
    let mut cast = tensor(DType::BF16, &[4], Encoding::ROW);
    cast.cast = Some(DType::F32.into());
    assert!(Npy.plan(&with(vec![cast]), &PlanOptions::default()).is_ok());
    assert_eq!(
        refusal(&with(vec![tensor(DType::U8, &[1; 65], Encoding::ROW)])).code().as_str(),
        "numpy-shape"
    );
    assert_eq!(
        refusal(&with(vec![tensor(DType::U8, &[0, 1 << 63], Encoding::ROW)])).code().as_str(),
        "numpy-shape"
    );
    let options = PlanOptions::of_kind("archive");
    assert_eq!(Npy.plan(&with(vec![fine()]), &options).unwrap_err().code().as_str(), "unknown-kind");
}

#[test]
fn names_every_loss() {
    let codes = |checkpoint: &Checkpoint| -> Vec<_> {
        let plan = Npy.plan(checkpoint, &PlanOptions::default()).unwrap();
        plan.losses.iter().map(|loss| loss.code.as_str()).collect()
    };
    let mut checkpoint = with(vec![tensor(DType::F32, &[2], Encoding::ROW)]);
    assert_eq!(codes(&checkpoint), [""; 0]);
    checkpoint.metadata.set("a", Value::Text("b".into()));
    checkpoint.metadata.set("typed", Value::U32(1));
    assert_eq!(codes(&checkpoint), ["metadata-dropped"; 2]);
    checkpoint.metadata = Default::default();
    checkpoint.tensors[0].path = TensorPath::from_dotted("fc1.w");
    assert_eq!(codes(&checkpoint), ["name-dropped"]);
    checkpoint.tensors[0].role = Role::Buffer;
    assert_eq!(codes(&checkpoint), ["name-dropped", "index-dropped"]);
    checkpoint.tensors[0].role = Role::Parameter;
    let names = ["a", "b"].into_iter().collect();
    checkpoint.tensors[0].row_names =
        Some(weighbridge_core::checkpoint::MemoryRowNames::shared("names", names));
    assert_eq!(codes(&checkpoint), ["name-dropped", "names-left-out"]);
    checkpoint.tensors[0].row_names = None;
    checkpoint.origin = Some(Origin { format: "primitiv".into(), kind: "tensor".into() });
    checkpoint.notes = vec![Note::omission("x", "y"), Note::new("z", "z")];
    assert_eq!(codes(&checkpoint), ["name-dropped", "omitted"]);
}

#[test]
fn a_header_that_is_too_long_is_version_2() {
    let shape = Shape::new([1; 30_000]);
    let bytes = header::encode(DType::F32, Order::Row, &shape).unwrap();
    assert_eq!(bytes[6..8], [2, 0]);
    assert_eq!(bytes.len() % 64, 0);
    assert_eq!(bytes.last(), Some(&b'\n'));
    let limits = Limits { dimensions: 30_000, ..Limits::default() };
    let len = bytes.len() as u64;
    let mut cursor = Cursor::new(Arc::new(MemorySource::new("m", bytes)), 0);
    let header = Header::read(&mut cursor, len, &limits).unwrap();
    assert_eq!((header.shape, header.len, cursor.position()), (shape, len, len));
}

#[test]
fn encoded_headers_parse_back() {
    for &dtype in DTYPES {
        for dims in [&[][..], &[0], &[7], &[1 << 40, 3], &[u64::MAX, 0, 1], &[9; 64]] {
            for order in [Order::Row, Order::Column] {
                let shape = Shape::new(dims);
                let bytes = header::encode(dtype, order, &shape).unwrap();
                assert_eq!(bytes.len() % 64, 0);
                let len = bytes.len() as u64;
                let mut cursor = Cursor::new(Arc::new(MemorySource::new("m", bytes)), 0);
                let header = Header::read(&mut cursor, len, &Limits::default()).unwrap();
                let encoding = Encoding { order, endian: Endian::Little };
                assert_eq!(header, Header { dtype, encoding, shape, native: false, len });
            }
        }
    }
}
