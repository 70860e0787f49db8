//! Common rules of all table formats: round trips, damage, file names.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use crate::opening::{by_id, detect, open_source};
use std::sync::Arc;
use weighbridge::formats::ALL;
use weighbridge_core::checkpoint::{
    Checkpoint, MemoryRowNames, Name, Role, RowNameList, TensorEntry, TensorPath, Value,
};
use weighbridge_core::error::Result;
use weighbridge_core::plan::WritePlan;
use weighbridge_core::tensor::{DType, Encoding, Order, Region, Shape};
use weighbridge_format::{OpenOptions, PlanOptions};
use weighbridge_io::source::{MemorySource, SourceRef};
use weighbridge_io::testing::materialise;

const IDS: [&str; 4] = ["tsv", "word2vec", "arrow", "parquet"];

fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut x = seed | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        bytes.extend_from_slice(&x.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// A table of floats of any size and sign, without NaN payloads.
fn table(dtype: DType, rows: u64, columns: u64, encoding: Encoding) -> TensorEntry {
    let size = dtype.size().unwrap();
    let len = usize::try_from(rows * columns).unwrap() * size;
    let mut bytes = noise(len, rows * 77 + columns);
    for element in bytes.chunks_exact_mut(size) {
        // No infinite exponent: the top bit of it is cleared.
        if dtype.is_float() {
            element[size - 1] &= 0xbf;
        }
    }
    let source: SourceRef = Arc::new(MemorySource::new("m", bytes));
    TensorEntry::dense(TensorPath::value(), dtype, Shape::new([rows, columns]), &source, 0, encoding).unwrap()
}

fn reshaped(entry: &TensorEntry, dims: &[u64]) -> TensorEntry {
    let (path, source) = (entry.path.clone(), &entry.extents[0].source);
    TensorEntry::dense(path, entry.stored, Shape::new(dims), source, 0, Encoding::ROW).unwrap()
}

fn named(mut entry: TensorEntry, names: impl Fn(u64) -> String) -> TensorEntry {
    let mut list = RowNameList::new();
    (0..entry.shape.dims()[0]).for_each(|row| list.push(&names(row)));
    entry.row_names = Some(MemoryRowNames::shared("names", list));
    entry
}

fn checkpoint(tensors: Vec<TensorEntry>) -> Checkpoint {
    Checkpoint { tensors, ..Checkpoint::new("test", "test", "test") }
}

fn plan(id: &str, tensors: Vec<TensorEntry>, settings: &[(&str, &str)]) -> Result<WritePlan> {
    let settings = settings.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    by_id(id).unwrap().plan(&checkpoint(tensors), &PlanOptions { settings, ..PlanOptions::default() })
}

fn open(bytes: &[u8]) -> Result<Checkpoint> {
    open_source(Arc::new(MemorySource::new("table", bytes.to_vec())), &OpenOptions::default())
}

fn names(entry: &TensorEntry) -> Option<Vec<String>> {
    entry.row_names.as_ref().map(|row_names| row_names.read().unwrap().iter().map(str::to_owned).collect())
}

#[test]
fn every_type_and_size_comes_back() {
    for id in IDS {
        for (rows, columns) in [(1, 1), (1, 7), (3, 2), (500, 12), (4000, 100)] {
            for encoding in [Encoding::ROW, Encoding::COLUMN] {
                for named_rows in [false, true] {
                    let mut entry = table(DType::F32, rows, columns, encoding);
                    if named_rows {
                        entry = named(entry, |row| format!("n\u{e4}me{row}"));
                    }
                    let plan = plan(id, vec![entry.clone()], &[]).unwrap();
                    let bytes = materialise(&plan).remove(0);
                    let what = format!("{id} {rows} {columns} {encoding:?} {named_rows}");
                    // One number per line, without names, is ambiguous.
                    if columns > 1 || named_rows || id != "tsv" {
                        let source: SourceRef = Arc::new(MemorySource::new("t", bytes.clone()));
                        assert_eq!(detect(&source).unwrap().info().id, id, "{what}");
                    }
                    let options = OpenOptions { format: Some(id.to_owned()), ..OpenOptions::default() };
                    let source: SourceRef = Arc::new(MemorySource::new("t", bytes));
                    let back = open_source(source, &options).unwrap();
                    let [tensor] = back.tensors.as_slice() else { panic!("{what}") };
                    assert_eq!((tensor.dtype(), &tensor.shape), (DType::F32, &entry.shape), "{what}");
                    let same =
                        tensor.read_tensor(Order::Row).unwrap() == entry.read_tensor(Order::Row).unwrap();
                    assert!(same, "{what}");
                    let expected = match id {
                        "word2vec" => {
                            names(&entry).or_else(|| Some((0..rows).map(|r| r.to_string()).collect()))
                        }
                        _ => names(&entry),
                    };
                    assert_eq!(names(tensor), expected, "{what}");
                }
            }
        }
    }
}

#[test]
fn columnar_files_keep_all_their_types_and_bits() {
    for id in ["arrow", "parquet"] {
        for dtype in super::columns::DTYPES {
            let entry = table(*dtype, 700, 3, Encoding::ROW);
            for setting in [&[][..], &[("compression", "zstd")], &[("compression", "snappy")]] {
                if id == "arrow" && !setting.is_empty() {
                    continue;
                }
                let bytes = materialise(&plan(id, vec![entry.clone()], setting).unwrap()).remove(0);
                let back = open(&bytes).unwrap();
                assert_eq!((back.tensors[0].stored, &back.tensors[0].shape), (*dtype, &entry.shape));
                let read = |e: &TensorEntry| e.read_tensor(Order::Row).unwrap();
                assert!(read(&back.tensors[0]) == read(&entry), "{id} {dtype}");
            }
        }
        let nan: Vec<u8> =
            [0x7fc0_0001u32, 0xff80_0001, 0x8000_0000, 1].iter().flat_map(|b| b.to_le_bytes()).collect();
        let source: SourceRef = Arc::new(MemorySource::new("m", nan.clone()));
        let entry = TensorEntry::dense(
            TensorPath::value(),
            DType::F32,
            Shape::new([2, 2]),
            &source,
            0,
            Encoding::ROW,
        )
        .unwrap();
        let bytes = materialise(&plan(id, vec![entry], &[]).unwrap()).remove(0);
        assert_eq!(open(&bytes).unwrap().tensors[0].read_tensor(Order::Row).unwrap(), nan);
    }
}

#[test]
fn any_rows_are_read_alone() {
    for id in IDS {
        let entry = named(table(DType::F32, 30_000, 20, Encoding::ROW), |row| format!("r{row}"));
        let bytes = materialise(&plan(id, vec![entry.clone()], &[]).unwrap()).remove(0);
        let back = open(&bytes).unwrap();
        for start in [29_990, 0, 13_107, 13_106, 6_000, 6_010, 29_000] {
            let region = Region { start: vec![start, 3], shape: vec![10, 5] };
            let read = |e: &TensorEntry| e.read_region(&region, Order::Row).unwrap();
            assert_eq!(read(&back.tensors[0]), read(&entry), "{id} {start}");
        }
    }
}

#[test]
fn columnar_files_keep_name_role_and_metadata() {
    for id in ["arrow", "parquet"] {
        let mut entry = table(DType::F64, 4, 3, Encoding::ROW);
        entry.path = TensorPath::new(vec![Name::from("a.b"), Name::new(*b"\xff")]);
        entry.role = Role::Embedding;
        let mut all = checkpoint(vec![entry.clone()]);
        all.metadata.set("author", Value::Text("somebody".into()));
        all.metadata.set("version", Value::U64(7));
        let plan = by_id(id).unwrap().plan(&all, &PlanOptions::default()).unwrap();
        assert_eq!(plan.losses, []);
        let back = open(&materialise(&plan).remove(0)).unwrap();
        assert_eq!((&back.tensors[0].path, &back.tensors[0].role), (&entry.path, &entry.role), "{id}");
        assert_eq!(back.metadata.get("author"), Some(&Value::Text("somebody".into())));
        assert_eq!(back.metadata.get("version"), Some(&Value::U64(7)));
    }
}

#[test]
fn several_tables_become_a_folder_and_other_tensors_are_losses() {
    for id in IDS {
        let mut tensors = Vec::new();
        for (place, name) in ["a", "a", "b/../c", ".x", "ä y"].into_iter().enumerate() {
            let mut entry = table(DType::F32, 3 + place as u64, 2, Encoding::ROW);
            entry.path = TensorPath::new(vec![Name::from(name)]);
            tensors.push(named(entry, |row| row.to_string()));
        }
        let mut cube = table(DType::F32, 2, 2, Encoding::ROW);
        cube = reshaped(&cube, &[1, 2, 2]);
        cube.path = TensorPath::from_dotted("cube");
        tensors.push(cube.clone());
        let mut state = tensors[0].clone();
        state.role = Role::OptimizerState { slot: Name::from("sum") };
        tensors.push(state);
        let mut part = tensors[0].clone();
        part.path = TensorPath::from_dotted("optimizer.state.0.exp_avg");
        part.role = Role::OptimizerPart { of: None };
        tensors.push(part);
        let mut column = table(DType::F32, 5, 1, Encoding::ROW);
        column = reshaped(&column, &[5]);
        column.path = TensorPath::from_dotted("column");
        tensors.push(named(column, |row| row.to_string()));
        let written = plan(id, tensors, &[]).unwrap();
        assert!(!written.is_one_file());
        let extension = by_id(id).unwrap().info().extensions[0].0;
        let files: Vec<_> = written.files.iter().map(|f| f.name.clone()).collect();
        let expected = ["a", "a~2", "b%2F..%2Fc", "%2Ex", "ä%20y", "column"];
        // The suffix of a duplicate name uses a character that needs no escape.
        assert_eq!(files, expected.map(|name| format!("{name}.{extension}")), "{id}");
        let codes: Vec<_> = written.losses.iter().map(|l| (l.code.as_str(), l.subject.as_str())).collect();
        assert!(
            codes.contains(&("not-a-table", "cube")) && codes.contains(&("state-dropped", "a/sum")),
            "{codes:?}"
        );
        assert!(codes.contains(&("state-dropped", "optimizer.state.0.exp_avg")), "{codes:?}");
        assert!(codes.contains(&("shape", "column")), "{codes:?}");
        for (rows, bytes) in [3, 4, 5, 6, 7, 5].into_iter().zip(materialise(&written)) {
            assert_eq!(open(&bytes).unwrap().tensors[0].shape.dims()[0], rows);
        }
        assert_eq!(plan(id, vec![cube], &[]).unwrap_err().code().as_str(), "not-a-table");
        let complex = table(DType::C64, 2, 2, Encoding::ROW);
        assert_eq!(plan(id, vec![complex], &[]).unwrap_err().code().as_str(), "table-dtype");
    }
}

/// Reads the whole content of a file, unless damage made its declared size absurd.
fn read_all(bytes: &[u8], id: &str) -> Result<()> {
    let source: SourceRef = Arc::new(MemorySource::new("damaged", bytes.to_vec()));
    let options = OpenOptions { format: Some(id.to_owned()), ..OpenOptions::default() };
    let back = open_source(source, &options)?;
    for tensor in &back.tensors {
        if tensor.bytes() <= 16 << 20 {
            tensor.read_tensor(Order::Row)?;
        } else {
            let mut region = Region::whole(&tensor.shape);
            region.shape[0] = 1;
            if region.shape().bytes(tensor.stored).is_some_and(|len| len <= 16 << 20) {
                let _ = tensor.read_region(&region, Order::Row);
            }
        }
        if let Some(row_names) = &tensor.row_names {
            row_names.read()?;
        }
    }
    Ok(())
}

fn small(id: &str) -> Vec<Vec<u8>> {
    let bytes: Vec<u8> = (0..120u8).flat_map(|k| (f32::from(k) * 0.37 - 2.0).to_le_bytes()).collect();
    let source: SourceRef = Arc::new(MemorySource::new("m", bytes));
    let shape = Shape::new([40, 3]);
    let entry =
        TensorEntry::dense(TensorPath::value(), DType::F32, shape, &source, 0, Encoding::ROW).unwrap();
    let entry = named(entry, |row| format!("name_{row}"));
    let settings: &[&[(&str, &str)]] = match id {
        "word2vec" => &[&[], &[("form", "binary")]],
        "parquet" => &[&[], &[("compression", "zstd")], &[("compression", "snappy")]],
        _ => &[&[]],
    };
    settings.iter().map(|s| materialise(&plan(id, vec![entry.clone()], s).unwrap()).remove(0)).collect()
}

#[test]
fn every_prefix_is_an_error_or_a_shorter_table() {
    for id in IDS {
        for bytes in small(id) {
            for len in 0..bytes.len() {
                let result = read_all(&bytes[..len], id);
                // A number at the end of a text may lose digits unseen.
                if id != "tsv" && len + 60 < bytes.len() {
                    assert!(result.is_err(), "{id} {len} of {}", bytes.len());
                }
            }
            read_all(&bytes, id).unwrap();
        }
    }
}

#[test]
fn damage_never_panics_or_hangs() {
    // Printing panics would dominate the run time.
    weighbridge_io::quiet_panics();
    let mut state = 0x2545_f491_4f6c_dd1du64;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state >> 33).unwrap() % below
    };
    for id in IDS {
        let files = small(id);
        let rounds = 60_000 / IDS.len();
        let (mut good, mut bad) = (0, 0);
        for round in 0..rounds {
            let mut bytes = files[round % files.len()].clone();
            for _ in 0..=random(3) {
                // Damage headers and footers more often than elements.
                let at = match random(3) {
                    0 => random(bytes.len().min(64)),
                    1 => bytes.len() - 1 - random(bytes.len().min(700)),
                    _ => random(bytes.len()),
                };
                match random(5) {
                    0 => bytes[at] = 0xff,
                    1 => bytes[at] = 0,
                    2 => bytes[at] ^= 1 << random(8),
                    3 => {
                        bytes.remove(at);
                    }
                    _ => bytes[at] = u8::try_from(random(256)).unwrap(),
                }
            }
            let began = std::time::Instant::now();
            if read_all(&bytes, id).is_ok() {
                good += 1
            } else {
                bad += 1
            }
            assert!(began.elapsed().as_secs() < 5, "{id} took too long");
        }
        assert!(good > 100 && bad > 100, "{id}: {good} {bad}");
    }
}

/// One flipped bit in an element: only the checksum of its page detects it.
#[test]
fn verifies_checksums_of_parquet_pages() {
    let path = weighbridge_testkit::testdata("tables/fixed.checksums.parquet");
    let good = std::fs::read(path).unwrap();
    let data = open(&good).unwrap().tensors[0].read_tensor(Order::Row).unwrap();
    let at = good.windows(16).position(|bytes| bytes == &data[16..32]).unwrap();
    let mut bad = good;
    bad[at] ^= 1;
    let error = open(&bad).unwrap().tensors[0].read_tensor(Order::Row).unwrap_err();
    assert_eq!(error.code().as_str(), "page-crc", "{error}");
    // The page begins a few bytes before, with its header.
    let offset = error.offset().unwrap();
    assert!((4..100).contains(&(at as u64 - offset)), "{offset} {at}");
}

#[test]
fn golden_files_of_other_writers() {
    let folder = weighbridge_testkit::testdata("tables");
    let golden: serde_json::Value =
        serde_json::from_slice(&std::fs::read(folder.join("expected.json")).unwrap()).unwrap();
    let files = golden.as_object().unwrap();
    assert!(files.len() >= 12);
    for (name, expected) in files {
        let bytes = std::fs::read(folder.join(name)).unwrap();
        let result = open(&bytes).and_then(|back| {
            let data = back.tensors[0].read_tensor(Order::Row)?;
            Ok((back, data))
        });
        if let Some(code) = expected["error"].as_str() {
            assert_eq!(result.unwrap_err().code().as_str(), code, "{name}");
            continue;
        }
        let (back, data) = result.unwrap_or_else(|e| panic!("{name}: {e}"));
        let tensor = &back.tensors[0];
        assert_eq!(back.format, expected["format"].as_str().unwrap(), "{name}");
        assert_eq!(tensor.stored.name(), expected["dtype"], "{name}");
        assert_eq!(serde_json::json!(tensor.shape.dims()), expected["shape"], "{name}");
        let hex: String = data.iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(hex, expected["hex"].as_str().unwrap(), "{name}");
        assert_eq!(serde_json::json!(names(tensor)), expected["names"], "{name}");
        assert_eq!(tensor.guessed, expected["guessed"].as_bool().unwrap_or(false), "{name}");
    }
}

/// pyarrow writes metadata of any bytes, and reads it.
#[test]
fn keeps_metadata_that_is_not_utf8() {
    let folder = weighbridge_testkit::testdata("tables");
    for (name, id) in [("odd_metadata.parquet", "parquet"), ("odd_metadata.uncompressed.arrow", "arrow")] {
        let golden = open(&std::fs::read(folder.join(name)).unwrap()).unwrap();
        assert_eq!(
            golden.notes.iter().map(|note| note.code.as_str()).collect::<Vec<_>>(),
            ["column-names", "metadata-bytes"],
            "{name}"
        );
        let again = plan(id, golden.tensors.clone(), &[]).unwrap();
        assert!(again.losses.is_empty(), "{name}");
        for (key, value) in [
            ("ok", Value::Text("é".into())),
            ("k\\xff", Value::Text("v".into())),
            ("bin", Value::Bytes(vec![0xff, 0, 1])),
        ] {
            assert_eq!(golden.metadata.get(key), Some(&value), "{name}");
        }
        assert_eq!(golden.metadata.iter().count(), 3, "{name}");
    }
}

/// An escaped key that is not UTF-8 may equal another key, and some keys are reserved: each drop is reported.
#[test]
fn reports_dropped_metadata_keys() {
    let folder = weighbridge_testkit::testdata("tables");
    for name in ["odd_keys.parquet", "odd_keys.uncompressed.arrow"] {
        let golden = open(&std::fs::read(folder.join(name)).unwrap()).unwrap();
        let text = |text: &str| Value::Text(text.into());
        let kept: Vec<_> = golden.metadata.iter().map(|(key, value)| (key, value.clone())).collect();
        let wanted =
            [("\\xff", text("text")), ("k\u{1a}", text("own")), ("k\\xff", text("1")), ("k\\xfe", text("2"))];
        assert_eq!(kept, wanted, "{name}");
        let notes: Vec<_> =
            golden.notes.iter().map(|n| (n.code.as_str(), n.omission, n.text.as_str())).collect();
        let [(bytes, false, kept), (taken, true, left)] = notes[..] else { panic!("{name}: {notes:?}") };
        assert_eq!((bytes, taken), ("metadata-bytes", "metadata-key-taken"));
        assert!(kept.starts_with("2 metadata pairs are not UTF-8"), "{kept}");
        assert!(left.starts_with("3 metadata pairs dropped, first weighbridge.own:"), "{left}");
    }
}

/// pyarrow uses the first value of a duplicate key.
#[test]
fn reports_duplicate_metadata_keys() {
    let pairs = |all: &[(&str, &str)]| -> Vec<super::pipe::RawPair> {
        all.iter().map(|(key, value)| (key.as_bytes().to_vec(), value.as_bytes().to_vec())).collect()
    };
    let mut one = checkpoint(vec![table(DType::F32, 2, 2, Encoding::ROW)]);
    super::pipe::restore(
        &mut one,
        pairs(&[("b", "2"), ("a", "1"), ("b", "1"), ("a", "1"), ("ARROW:schema", "")]),
    );
    let kept: Vec<_> = one.metadata.iter().map(|(key, value)| (key, value.clone())).collect();
    assert_eq!(kept, [("a", Value::Text("1".into())), ("b", Value::Text("2".into()))]);
    let [note] = &one.notes[..] else { panic!("{:?}", one.notes) };
    assert!(note.omission && note.text.starts_with("1 metadata pair dropped, first b:"), "{note:?}");
}

/// A dtype that the format cannot store is a loss.
#[test]
fn reports_dropped_dtypes_as_losses() {
    let codes = |id: &str, entry: TensorEntry| {
        plan(id, vec![entry], &[]).unwrap().losses.iter().map(|loss| loss.code.as_str()).collect::<Vec<_>>()
    };
    let rows = |dtype, rows, columns| TensorEntry {
        path: TensorPath::value(),
        ..table(dtype, rows, columns, Encoding::ROW)
    };
    for id in ["tsv", "word2vec"] {
        assert!(!codes(id, rows(DType::F32, 3, 2)).contains(&"dtype-lost"), "{id}");
        for dtype in [DType::F16, DType::F64, DType::I8, DType::I64] {
            assert!(codes(id, rows(dtype, 3, 2)).contains(&"dtype-lost"), "{id} {dtype}");
        }
    }
    for id in ["parquet", "arrow"] {
        let bare = |dtype| named(rows(dtype, 3, 0), |row| row.to_string());
        assert_eq!(codes(id, bare(DType::U8)), Vec::<&str>::new());
        assert_eq!(codes(id, bare(DType::F32)), ["dtype-lost"]);
        assert_eq!(codes(id, rows(DType::F16, 3, 2)), Vec::<&str>::new());
    }
    let none = named(rows(DType::F32, 0, 0), |row| row.to_string());
    assert!(codes("tsv", none).contains(&"no-rows"));
}

/// Detection would not accept a file with such a name as text.
#[test]
fn rejects_control_characters_in_names_of_text_tables() {
    let entry = |name: &'static str| named(table(DType::F32, 2, 2, Encoding::ROW), move |_| name.to_owned());
    let dir = tempfile::tempdir().unwrap();
    let written = |id: &str, name, settings: &[(&str, &str)]| {
        let (plan, target) = (plan(id, vec![entry(name)], settings).unwrap(), dir.path().join("t"));
        let saved =
            weighbridge::ops::save(&plan, &target, true, &weighbridge_io::engine::RunOptions::default());
        saved.map(|_| std::fs::read(&target).unwrap())
    };
    for name in ["\0", "a\u{1}b", "\u{7f}"] {
        for (id, settings) in [("tsv", &[][..]), ("word2vec", &[]), ("word2vec", &[("form", "binary")])] {
            assert_eq!(
                written(id, name, settings).unwrap_err().code().as_str(),
                "name-control",
                "{id} {name:?}"
            );
        }
        for id in ["arrow", "parquet"] {
            open(&written(id, name, &[]).unwrap()).unwrap();
        }
    }
    assert_eq!(written("word2vec", "a\u{81}", &[]).unwrap_err().code().as_str(), "name-control");
    open(&written("tsv", "a\u{81}", &[]).unwrap()).unwrap();
}

#[test]
fn formats_of_tables_do_not_claim_each_others_files() {
    for id in IDS {
        for bytes in small(id) {
            let source: SourceRef = Arc::new(MemorySource::new("m", bytes.clone()));
            assert_eq!(weighbridge::formats::registry().detect(&source).unwrap().info().id, id);
        }
    }
    for text in [
        "",
        "a\n",
        "a\tb\n",
        "1\t2\t3\n",
        "a\t1.5\nb\t2\t3.5\n",
        "a\t1.5x\n",
        "{\"a\":\t1.5}\n",
        "2 3\n",
        "5\n",
    ] {
        let source: SourceRef = Arc::new(MemorySource::new("m", text.as_bytes().to_vec()));
        assert!(!ALL.iter().any(|f| f.recognises(text.as_bytes(), &source)), "{text:?}");
    }
}

#[test]
fn rejects_footers_that_repeat_a_batch() {
    let plan = plan("arrow", vec![table(DType::F32, 12_000, 100, Encoding::ROW)], &[]).unwrap();
    let mut bytes = materialise(&plan).remove(0);
    assert!(open(&bytes).is_ok());
    // A batch in the footer: its offset, the length of its header, four bytes, the length of its body.
    let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let end = |at: usize| number(at).wrapping_add(number(at + 8) & 0xffff_ffff).wrapping_add(number(at + 16));
    let follows = |at: usize| end(at) == number(at + 24) && end(at + 24) == number(at + 48);
    let tail = bytes.len() - 2000..bytes.len() - 80;
    let blocks = tail.into_iter().find(|&at| number(at) > 0 && follows(at)).unwrap();
    bytes.copy_within(blocks..blocks + 24, blocks + 48);
    assert_eq!(open(&bytes).unwrap_err().code().as_str(), "overlapping-batches");
}

/// An Arrow file of names and lists of two numbers, in a column of that name with that metadata.
fn written_by_arrow(metadata: &[(&str, &str)], name: &str) -> Vec<u8> {
    use arrow_schema::{DataType, Field, Schema};
    let pairs: std::collections::HashMap<_, _> =
        metadata.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let item = Arc::new(Field::new("item", DataType::Float32, false));
    let list = Field::new(name, DataType::FixedSizeList(item.clone(), 2), false).with_metadata(pairs);
    let schema = Arc::new(Schema::new(vec![Field::new("name", DataType::Utf8, false), list]));
    let elements = Arc::new(arrow_array::Float32Array::from(vec![1.0, 2.0, 3.0, 4.0]));
    let columns: Vec<arrow_array::ArrayRef> = vec![
        Arc::new(arrow_array::StringArray::from(vec!["a", "b"])),
        Arc::new(arrow_array::FixedSizeListArray::try_new(item, 2, elements, None).unwrap()),
    ];
    let batch = arrow_array::RecordBatch::try_new(schema.clone(), columns).unwrap();
    let mut writer = arrow_ipc::writer::FileWriter::try_new(Vec::new(), &schema).unwrap();
    writer.write(&batch).unwrap();
    writer.into_inner().unwrap()
}

#[test]
fn reports_column_metadata_as_omissions() {
    let shaped = [
        ("ARROW:extension:name", "arrow.fixed_shape_tensor"),
        ("ARROW:extension:metadata", "{\"shape\":[2,1]}"),
    ];
    for (metadata, column, codes, lost) in [
        (&[][..], "vector", &[][..], &[][..]),
        (&[("PARQUET:field_id", "1")], "vector", &[], &[]),
        (&[("unit", "m")], "vector", &["column-metadata"], &["omitted"]),
        (&shaped, "vector", &["column-type"], &["omitted"]),
        (&[], "v", &["column-names"], &["columns-renamed"]),
    ] {
        let back = open(&written_by_arrow(metadata, column)).unwrap();
        assert_eq!(back.notes.iter().map(|note| note.code.as_str()).collect::<Vec<_>>(), codes);
        for id in ["arrow", "parquet"] {
            let plan = by_id(id).unwrap().plan(&back, &PlanOptions::default()).unwrap();
            assert_eq!(plan.losses.iter().map(|loss| loss.code.as_str()).collect::<Vec<_>>(), lost, "{id}");
            let again = open(&materialise(&plan).remove(0)).unwrap();
            assert_eq!(again.notes, [], "{id}");
        }
    }
    // Columns side by side are distinguished by their names alone.
    let folder = weighbridge_testkit::testdata("tables");
    for name in ["plain.parquet", "plain.uncompressed.arrow"] {
        let plain = open(&std::fs::read(folder.join(name)).unwrap()).unwrap();
        let Some(Value::List(columns)) = plain.tensors[0].attributes.get("columns") else { panic!("{name}") };
        assert_eq!(columns.len(), 3, "{name}");
    }
}
