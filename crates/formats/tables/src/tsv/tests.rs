//! The exporter's own files, and malformed lines.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use super::*;
use crate::opening::open_source;
use weighbridge_core::checkpoint::{MemoryRowNames, RowNameList, TensorEntry, TensorPath};
use weighbridge_core::tensor::{DType, Encoding, Shape};
use weighbridge_io::source::MemorySource;
use weighbridge_io::testing::materialise;

fn open(text: &[u8]) -> Result<Checkpoint> {
    let options = OpenOptions { format: Some("tsv".into()), ..OpenOptions::default() };
    open_source(Arc::new(MemorySource::new("t.tsv", text.to_vec())), &options)
}

fn upstream() -> PlanOptions {
    PlanOptions { settings: vec![("floats".into(), "upstream".into())], ..PlanOptions::default() }
}

#[test]
fn exporter_files_round_trip_byte_for_byte() {
    for name in ["export_std.tsv", "export_dyn_affine.tsv"] {
        let path = weighbridge_testkit::testdata("tables").join(name);
        let text = std::fs::read(path).unwrap();
        let source: SourceRef = Arc::new(MemorySource::new("t", text.clone()));
        let checkpoint = open_source(source, &OpenOptions::default()).unwrap();
        assert_eq!(checkpoint.format, "tsv");
        assert!(checkpoint.tensors[0].shape.dims()[0] > 30);
        let plan = Tsv.plan(&checkpoint, &upstream()).unwrap();
        assert!(materialise(&plan).remove(0) == text, "{name}");
        // And through the shortest decimal form.
        let short = materialise(&Tsv.plan(&checkpoint, &PlanOptions::default()).unwrap()).remove(0);
        assert!(short != text);
        let again = open(&short).unwrap();
        assert!(materialise(&Tsv.plan(&again, &upstream()).unwrap()).remove(0) == text);
    }
}

#[test]
fn errors_name_the_malformed_line() {
    for (text, code, line) in [
        ("a\t1.5\t2\nb\t3.5\n", "ragged-line", "line 2"),
        ("a\t1.5\n\nb\t3.5\n", "ragged-line", "line 2"),
        ("a\t1.5\nb\t3.5\nc\t1.5x\n", "bad-number", "line 3"),
        ("a\t1.5\nb\t\n", "bad-number", "line 2"),
    ] {
        let result = open(text.as_bytes()).and_then(|c| c.tensors[0].read_tensor(Order::Row));
        let error = result.unwrap_err();
        assert_eq!(error.code().as_str(), code, "{text:?}");
        assert!(error.message().starts_with(line), "{error}");
    }
    assert_eq!(open(b"").unwrap_err().code().as_str(), "empty-file");
}

#[test]
fn reads_line_endings_and_special_values() {
    let read = |text: &[u8]| {
        let checkpoint = open(text).unwrap();
        let tensor = &checkpoint.tensors[0];
        let names = tensor.row_names.as_ref().map(|l| l.read().unwrap().iter().collect::<Vec<_>>().join(","));
        (tensor.read_tensor(Order::Row).unwrap(), names, tensor.shape.dims().to_vec())
    };
    let bytes = |x: &[f32]| x.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    let both = (bytes(&[1.5, -2.0]), Some("a,b".to_owned()), vec![2, 1]);
    assert_eq!(read(b"a\t1.5\nb\t-2.0\n"), both);
    assert_eq!(read(b"a\t1.5\r\nb\t-2.0\r\n"), both);
    assert_eq!(read(b"a\t1.5\nb\t-2"), both);
    let special = bytes(&[f32::INFINITY, f32::NEG_INFINITY]);
    assert_eq!(read(b"inf\t-inf\n"), (special, None, vec![1, 2]));
    assert_eq!(read(b"only\nnames\n"), (vec![], Some("only,names".into()), vec![2, 0]));
}

#[test]
fn reports_names_that_look_like_numbers() {
    let source: SourceRef = Arc::new(MemorySource::new("m", vec![0; 8]));
    let cases = [
        (1, ["1.5", "-inf"], true),
        (1, ["nan", "1e5"], true),
        (1, ["1.5", "a"], false),
        (1, ["1", "2"], false),
        // Names alone: one float makes the others numeric.
        (0, ["1", "2.5"], true),
        (0, ["1", "2"], false),
        (0, ["2.5", "a"], false),
    ];
    for (columns, names, reported) in cases {
        let shape = Shape::new([2, columns]);
        let mut entry =
            TensorEntry::dense(TensorPath::value(), DType::F32, shape, &source, 0, Encoding::ROW).unwrap();
        entry.row_names = Some(MemoryRowNames::shared("l", names.into_iter().collect::<RowNameList>()));
        let checkpoint = Checkpoint { tensors: vec![entry], ..Checkpoint::default() };
        let plan = Tsv.plan(&checkpoint, &PlanOptions::default()).unwrap();
        assert_eq!(plan.losses.iter().any(|loss| loss.code == "names-like-numbers"), reported, "{names:?}");
        // The loss matches the actual result.
        let again = open(&materialise(&plan).remove(0)).unwrap();
        assert_eq!(again.tensors[0].row_names.is_none(), reported, "{names:?}");
    }
}

#[test]
fn rejects_names_with_separators() {
    let source: SourceRef = Arc::new(MemorySource::new("m", vec![0; 8]));
    let shape = Shape::new([2, 1]);
    let mut entry =
        TensorEntry::dense(TensorPath::value(), DType::F32, shape, &source, 0, Encoding::ROW).unwrap();
    for (name, fine) in [("a b", true), ("a\tb", false), ("a\nb", false), ("", true)] {
        entry.row_names = Some(MemoryRowNames::shared("l", ["x", name].into_iter().collect::<RowNameList>()));
        let checkpoint = Checkpoint { tensors: vec![entry.clone()], ..Checkpoint::default() };
        let plan = Tsv.plan(&checkpoint, &PlanOptions::default()).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("t");
        let result =
            weighbridge::ops::save(&plan, &target, false, &weighbridge_io::engine::RunOptions::default());
        assert_eq!(result.is_ok(), fine);
        assert_eq!(target.exists(), fine);
        if let Err(error) = result {
            assert_eq!(error.code().as_str(), "name-separates");
        }
    }
    entry.row_names = Some(MemoryRowNames::shared("l", ["x"].into_iter().collect::<RowNameList>()));
    let checkpoint = Checkpoint { tensors: vec![entry], ..Checkpoint::default() };
    let plan = Tsv.plan(&checkpoint, &PlanOptions::default()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let options = weighbridge_io::engine::RunOptions::default();
    let result = weighbridge::ops::save(&plan, dir.path().join("t"), false, &options);
    assert_eq!(result.unwrap_err().code().as_str(), "names-differ");
}

#[test]
fn detects_by_extension_where_content_is_ambiguous() {
    let dir = tempfile::tempdir().unwrap();
    let open_file = |name: &str, text: &[u8]| {
        std::fs::write(dir.path().join(name), text).unwrap();
        weighbridge::formats::open(dir.path().join(name))
    };
    for (text, dims, named) in [
        (&b"a\t1\t2\nb\t3\t4\n"[..], [2, 2], true),
        (b"1.5\n2\n-3e8\n", [3, 1], false),
        (b"1.5\r\n2\r\n", [2, 1], false),
        (b"7\n8\n", [2, 0], true),
    ] {
        let found = open_file("t.tsv", text).unwrap();
        assert_eq!((found.format, found.tensors[0].shape.dims()), ("tsv", &dims[..]), "{text:?}");
        assert_eq!(found.tensors[0].row_names.is_some(), named, "{text:?}");
        assert!(found.notes.iter().any(|note| note.code == "told-by-extension"));
        assert_eq!(open_file("t.txt", text).unwrap_err().code().as_str(), "unknown-format");
        assert_eq!(open_file("t.parquet", text).unwrap_err().code().as_str(), "unknown-format");
    }
    let error = open_file("ragged.TSV", b"a\t1\nb\n").unwrap_err();
    assert_eq!(error.code().as_str(), "ragged-line");
    // Other formats and formats that need no extension are still detected by content.
    for text in [&b"a\0\t1\n"[..], b"\xff\t1\n", b"version https://git-lfs.github.com/spec/v1\n", b"<html>\n"]
    {
        assert_eq!(open_file("t.tsv", text).unwrap_err().code().as_str(), "unknown-format", "{text:?}");
    }
    // The extension does not hide a pickle: a pickle that runs code can be plain text.
    std::fs::write(dir.path().join("evil.tsv"), b"cposix\nsystem\n(S'true'\ntR.").unwrap();
    let scanned = weighbridge::ops::scan::scan(dir.path().join("evil.tsv"), &OpenOptions::default()).unwrap();
    assert_eq!(scanned.verdict, weighbridge_core::finding::Verdict::Unsound, "{:?}", scanned.files);
    let found = open_file("t.vec", b"a\t1.5\nb\t2\n").unwrap();
    assert!(found.format == "tsv" && found.notes.iter().all(|note| note.code != "told-by-extension"));
    assert_eq!(open_file("u.vec", b"a 1 2\n").unwrap_err().code().as_str(), "word2vec-header");
}

#[test]
fn published_embeddings_are_entities_and_relations() {
    let read = |entry: &TensorEntry| {
        let bytes = entry.read_tensor(Order::Row).unwrap();
        let values: Vec<f32> = bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
        let names = entry.row_names.as_ref().unwrap().read().unwrap().iter().collect::<Vec<_>>().join(",");
        (entry.text(), names, entry.shape.dims().to_vec(), values)
    };
    let text = "3\t1\t4\n<Q1>\t0.5\t-1\t2\t3e1\n\"Foo\"@fr\t1\t2\t3\t4\nQ 3\t0\t0\t0\t0\n<P1>\t9\t8\t7\t6\n<P1>_r\t1\t1\t1\t1\n";
    for text in [text.to_owned(), text.replace('\n', "\r\n"), text.trim_end().to_owned()] {
        let source: SourceRef = Arc::new(MemorySource::new("wikidata.tsv", text.into_bytes()));
        let found = open_source(source, &OpenOptions::default()).unwrap();
        assert_eq!((found.format, found.tensors.len()), ("tsv", 2));
        let entities = vec![0.5, -1.0, 2.0, 30.0, 1.0, 2.0, 3.0, 4.0, 0.0, 0.0, 0.0, 0.0];
        let expected = ("entities".to_owned(), "<Q1>,\"Foo\"@fr,Q 3".to_owned(), vec![3, 4], entities);
        assert_eq!(read(&found.tensors[0]), expected);
        let relations = vec![9.0, 8.0, 7.0, 6.0, 1.0, 1.0, 1.0, 1.0];
        assert_eq!(
            read(&found.tensors[1]),
            ("relations".to_owned(), "<P1>,<P1>_r".to_owned(), vec![2, 4], relations)
        );
    }
    // Without relations, and with relations of other widths.
    assert_eq!(open(b"1\t0\t3\na\t1\t2\t3\n").unwrap().tensors.len(), 1);
    let ragged = open(b"1\t2\t3\na\t1\t2\t3\nr\t1\nq\t1\t2\n").unwrap();
    assert!(ragged.tensors.len() == 1 && ragged.notes.iter().any(|note| note.text.starts_with("relations")));
    assert_eq!(open(b"2\t0\t3\na\t1\t2\t3\n").unwrap_err().code().as_str(), "row-count");
    // A table of two columns with a number as its first name.
    assert_eq!(open(b"5\t1\t2\nb\t1.5\t2\n").unwrap().tensors[0].shape.dims(), [2, 2]);
}

#[test]
fn lists_of_edges_are_refused_and_long_lines_are_not() {
    for text in ["a\tlikes\tb\n", "a\tlikes\tb\nb\tlikes\tc", "a\t1\tb\n"] {
        assert_eq!(open(text.as_bytes()).unwrap_err().code().as_str(), "not-numbers", "{text}");
    }
    // The head of the file may end in any byte of a number.
    for len in 4080..4100 {
        let text = format!("{}\t-1e-3\t-2e-3\n", "n".repeat(len));
        assert_eq!(open(text.as_bytes()).unwrap().tensors[0].shape.dims(), [1, 2], "{len}");
    }
}
