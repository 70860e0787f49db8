#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use super::*;
use arrow_array::builder::{BinaryDictionaryBuilder, StringDictionaryBuilder};
use arrow_array::{
    ArrayRef, BinaryArray, BinaryViewArray, BooleanArray, DictionaryArray, Float16Array, Float32Array,
    Float64Array, Int8Array, Int16Array, Int32Array, Int64Array, LargeBinaryArray, LargeStringArray,
    StringArray, StringViewArray, UInt8Array, UInt16Array, UInt32Array, UInt64Array,
};
use arrow_ipc::CompressionType;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::{WriterProperties, WriterVersion};
use std::path::Path;
use weighbridge::ops::import::{ImportOptions, import};
use weighbridge_core::Kind;
use weighbridge_io::source::MemorySource;

/// Ways to write a table.
fn files(batches: &[RecordBatch]) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    for compression in [Compression::UNCOMPRESSED, Compression::SNAPPY, Compression::ZSTD(Default::default())]
    {
        for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
            for dictionary in [false, true] {
                let properties = WriterProperties::builder()
                    .set_writer_version(version)
                    .set_compression(compression)
                    .set_dictionary_enabled(dictionary)
                    .set_data_page_row_count_limit(100)
                    .set_write_batch_size(64)
                    .set_max_row_group_row_count(Some(333));
                files.push((
                    format!("{compression} {version:?} {dictionary}"),
                    parquet(batches, properties.build()),
                ));
            }
        }
    }
    for compression in [None, Some(CompressionType::LZ4_FRAME), Some(CompressionType::ZSTD)] {
        files.push((format!("{compression:?}"), arrow(batches, compression)));
    }
    files
}

fn parquet(batches: &[RecordBatch], properties: WriterProperties) -> Vec<u8> {
    let mut file = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut file, batches[0].schema(), Some(properties)).unwrap();
    batches.iter().for_each(|batch| writer.write(batch).unwrap());
    writer.close().unwrap();
    file
}

fn arrow(batches: &[RecordBatch], compression: Option<CompressionType>) -> Vec<u8> {
    let mut file = Vec::new();
    let options = IpcWriteOptions::default().try_with_compression(compression).unwrap();
    let mut writer = FileWriter::try_new_with_options(&mut file, &batches[0].schema(), options).unwrap();
    batches.iter().for_each(|batch| writer.write(batch).unwrap());
    writer.finish().unwrap();
    drop(writer);
    file
}

fn batch(columns: &[(&str, ArrayRef)]) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(columns.iter().map(|(name, own)| (*name, own.clone(), true)))
        .unwrap()
}

fn source(bytes: &[u8]) -> SourceRef {
    Arc::new(MemorySource::new("edges", bytes.to_vec()))
}

fn pick(place: usize, kind: CellKind) -> Pick {
    Pick { place, name: format!("c{place}"), kind }
}

struct NoElements;

impl Elements for NoElements {
    fn read(
        &mut self,
        _: &TensorEntry,
        _: &weighbridge_core::tensor::Region,
        _: weighbridge_core::tensor::Order,
        _: &mut Vec<u8>,
    ) -> Result<()> {
        panic!("no tensors")
    }
}

/// All cells of these columns, read in pieces of `step` rows.
fn read(bytes: &[u8], picks: &[Pick], step: u64) -> Result<(Vec<Cells>, Vec<u64>)> {
    let records = TableFile::open(&source(bytes), &Limits::default())?.records(picks)?;
    let mut cells = Cells::of(records.columns());
    for (number, rows) in records.sections().into_iter().enumerate() {
        let section = records.open(number)?;
        let mut row = 0;
        while row < rows {
            let end = rows.min(row + step);
            section.read(row..end, &mut NoElements, &mut cells)?;
            row = end;
        }
    }
    Ok((cells, records.sections()))
}

fn texts(cells: &Cells) -> Vec<&str> {
    match cells {
        Cells::Text(list) => list.iter().collect(),
        Cells::Numbers(_) => panic!("numbers"),
    }
}

/// Texts with missing, empty and long ones.
fn words(count: usize) -> Vec<Option<String>> {
    let long = "ü".repeat(300);
    let word = |n: usize| match n % 50 {
        7 => None,
        8 => Some(String::new()),
        9 => Some(format!("{long}{n}")),
        _ => Some(format!("n{}", n % 90)),
    };
    (0..count).map(word).collect()
}

#[test]
fn text_of_every_type_is_read() {
    let words = words(1000);
    let bytes = || words.iter().map(|word| word.as_deref().map(str::as_bytes));
    let mut small = StringDictionaryBuilder::<Int8Type>::new();
    (0..1000).for_each(|n| small.append_option((n % 3 > 0).then_some(["a", "b"][n % 2])));
    let mut unsigned = BinaryDictionaryBuilder::<UInt32Type>::new();
    bytes().for_each(|word| unsigned.append_option(word));
    let dictionary: DictionaryArray<Int32Type> = words.iter().map(Option::as_deref).collect();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from(words.clone())),
        Arc::new(LargeStringArray::from(words.clone())),
        Arc::new(StringViewArray::from_iter(words.iter().map(Option::as_deref))),
        Arc::new(BinaryArray::from_iter(bytes())),
        Arc::new(LargeBinaryArray::from_iter(bytes())),
        Arc::new(BinaryViewArray::from_iter(bytes())),
        Arc::new(dictionary),
        Arc::new(unsigned.finish()),
        Arc::new(small.finish()),
        Arc::new(BooleanArray::from(vec![true; 1000])),
    ];
    let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "other"];
    let whole = batch(&names.into_iter().zip(columns).collect::<Vec<_>>());
    let expected: Vec<&str> = words.iter().map(|word| word.as_deref().unwrap_or_default()).collect();
    for (what, bytes) in files(&[whole.slice(0, 1), whole.slice(1, 700), whole.slice(701, 299)]) {
        let picks: Vec<Pick> = (0..9).rev().map(|place| pick(place, CellKind::Text)).collect();
        for step in [1, 10, 123, 5000] {
            let (cells, sections) = read(&bytes, &picks, step).unwrap();
            assert!(sections.len() > 2 && sections.iter().sum::<u64>() == 1000, "{what}");
            for (pick, cells) in picks.iter().zip(&cells).skip(1) {
                assert!(texts(cells) == expected, "{what} {step} {}", pick.place);
            }
            let small: Vec<&str> =
                (0..1000).map(|n| if n % 3 > 0 { ["a", "b"][n % 2] } else { "" }).collect();
            assert!(texts(&cells[0]) == small, "{what}");
        }
    }
}

#[test]
fn numbers_of_every_type_are_read() {
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("a", Arc::new(Int8Array::from(vec![Some(-128), None, Some(7)]))),
        ("b", Arc::new(Int16Array::from(vec![Some(-32768), None, Some(7)]))),
        ("c", Arc::new(Int32Array::from(vec![Some(i32::MIN), None, Some(7)]))),
        ("d", Arc::new(Int64Array::from(vec![Some(i64::MIN), None, Some(7)]))),
        ("e", Arc::new(UInt8Array::from(vec![Some(u8::MAX), None, Some(7)]))),
        ("f", Arc::new(UInt16Array::from(vec![Some(u16::MAX), None, Some(7)]))),
        ("g", Arc::new(UInt32Array::from(vec![Some(u32::MAX), None, Some(7)]))),
        ("h", Arc::new(UInt64Array::from(vec![Some(u64::MAX), None, Some(7)]))),
        (
            "i",
            Arc::new(Float16Array::from(
                vec![Some(0.5f32), None, Some(7.0)].into_iter().map(|n| n.map(half)).collect::<Vec<_>>(),
            )),
        ),
        ("j", Arc::new(Float32Array::from(vec![Some(0.1), None, Some(7.0)]))),
        ("k", Arc::new(Float64Array::from(vec![Some(0.1), None, Some(7.0)]))),
    ];
    let first = [
        "-128",
        "-32768",
        "-2147483648",
        "-9223372036854775808",
        "255",
        "65535",
        "4294967295",
        "18446744073709551615",
    ];
    for (what, bytes) in files(&[batch(&columns)]) {
        let picks: Vec<Pick> = (0..8).map(|place| pick(place, CellKind::Text)).collect();
        let (cells, _) = read(&bytes, &picks, 2).unwrap();
        for (cells, first) in cells.iter().zip(first) {
            assert_eq!(texts(cells), [first, "", "7"], "{what}");
        }
        let picks: Vec<Pick> = (0..11).map(|place| pick(place, CellKind::Number)).collect();
        let (cells, _) = read(&bytes, &picks, 2).unwrap();
        let floats = [0.5, f64::from(0.1f32), 0.1];
        let first = first.iter().map(|text| text.parse().unwrap()).chain(floats);
        for (cells, first) in cells.iter().zip(first) {
            let Cells::Numbers(bytes) = cells else { panic!("text") };
            let numbers: Vec<f64> = bytes.as_chunks().0.iter().map(|b| f64::from_le_bytes(*b)).collect();
            assert_eq!((numbers[0], numbers[2]), (first, 7.0), "{what}");
            assert!(numbers[1].is_nan() && numbers.len() == 3, "{what}");
        }
    }
}

fn half(n: f32) -> <Float16Type as arrow_array::types::ArrowPrimitiveType>::Native {
    <Float16Type as arrow_array::types::ArrowPrimitiveType>::Native::from_f32(n)
}

#[test]
fn columns_of_other_types_are_refused_by_name() {
    let whole = batch(&[
        ("flag", Arc::new(BooleanArray::from(vec![true]))),
        ("name", Arc::new(StringArray::from(vec!["a"]))),
        ("ratio", Arc::new(Float64Array::from(vec![1.0]))),
    ]);
    for (what, bytes) in files(&[whole]) {
        for (place, kind, expected, found) in [
            (0, CellKind::Text, "text or integers", "Boolean"),
            (0, CellKind::Number, "integers or floats", "Boolean"),
            (1, CellKind::Number, "integers or floats", "Utf8"),
            (2, CellKind::Text, "text or integers", "Float64"),
        ] {
            let error = read(&bytes, &[pick(place, kind)], 1).unwrap_err();
            assert_eq!((error.kind(), error.code().as_str()), (Kind::Unsupported, "column-type"), "{what}");
            let expected = format!("{expected} for c{place}");
            assert_eq!((error.expected_text(), error.found_text()), (Some(&*expected), Some(found)));
            assert_eq!(error.file(), Some("edges"));
        }
        assert_eq!(read(&bytes, &[pick(3, CellKind::Text)], 1).unwrap_err().kind(), Kind::Usage);
    }
}

#[test]
fn text_that_is_not_utf8_has_its_row() {
    let whole =
        batch(&[("name", Arc::new(BinaryArray::from_iter([Some(&b"a"[..]), None, Some(b"caf\xe9")])))]);
    for (what, bytes) in files(&[whole.slice(0, 1), whole.slice(1, 2)]) {
        let error = read(&bytes, &[pick(0, CellKind::Text)], 5).unwrap_err();
        assert_eq!(
            (error.code().as_str(), error.message()),
            ("not-utf8", "row 3: the text is not UTF-8"),
            "{what}"
        );
    }
}

#[test]
fn tables_are_recognized_by_their_bytes() {
    let whole = batch(&[("name", Arc::new(StringArray::from(vec!["a"])))]);
    for (what, bytes) in
        files(&[whole.clone(), whole.slice(0, 0)]).into_iter().chain(files(&[whole.slice(0, 0)]))
    {
        assert!(TableFile::is_table(&source(&bytes)).unwrap(), "{what}");
        // A download that is not complete.
        assert!(TableFile::is_table(&source(&bytes[..bytes.len() - 9])).unwrap(), "{what}");
        assert!(TableFile::open(&source(&bytes[..bytes.len() - 9]), &Limits::default()).is_err());
    }
    for text in [
        "",
        "PAR1",
        "PAR1\tr\tb\n",
        "PAR12\tr\tb",
        "PARE r b",
        "ARROW1\tr\tx\n",
        "ARROW1,a,b\r\n",
        "PARé\ta\tb",
    ] {
        assert!(!TableFile::is_table(&source(text.as_bytes())).unwrap(), "{text}");
    }
}

/// A changed byte gives an error or other cells; never a panic, which a test would see.
#[test]
fn damaged_tables_are_errors() {
    let dictionary: DictionaryArray<Int32Type> = ["x", "y", "x"].into_iter().collect();
    let whole = batch(&[
        ("a", Arc::new(StringArray::from(vec![Some("a"), None, Some("c")]))),
        ("b", Arc::new(dictionary)),
        ("c", Arc::new(StringViewArray::from(vec!["a longer text than twelve", "b", "c"]))),
        ("d", Arc::new(Int64Array::from(vec![1, 2, 3]))),
    ]);
    let picks: Vec<Pick> = (0..4).map(|place| pick(place, CellKind::Text)).collect();
    for (number, (_, bytes)) in files(&[whole]).into_iter().enumerate() {
        for at in (number % 4..bytes.len()).step_by(4) {
            for flip in [0x01, 0x80] {
                let mut bytes = bytes.clone();
                bytes[at] ^= flip;
                if let Err(error) = read(&bytes, &picks, 2) {
                    assert!(
                        matches!(error.kind(), Kind::Corrupt | Kind::Unsupported | Kind::Limit | Kind::Usage),
                        "{error}"
                    );
                }
            }
            assert!(read(&bytes[..at], &picks, 2).is_err());
        }
    }
}

/// Few bytes may encode many rows of long text: they are decoded a few at a time.
#[test]
fn long_text_of_few_bytes_is_read_in_parts() {
    let long = "x".repeat(200_000);
    let dictionary: DictionaryArray<Int32Type> = std::iter::repeat_n(long.as_str(), 1000).collect();
    let whole = batch(&[("name", Arc::new(dictionary))]);
    let properties = WriterProperties::builder().build();
    for bytes in
        [parquet(std::slice::from_ref(&whole), properties), arrow(&[whole], Some(CompressionType::ZSTD))]
    {
        let records = TableFile::open(&source(&bytes), &Limits::default()).unwrap();
        let records = records.records(&[pick(0, CellKind::Text)]).unwrap();
        let section = records.open(0).unwrap();
        assert!((200_000..300_000).contains(&section.row_bytes()));
        let mut cells = Cells::of(records.columns());
        section.read(0..3, &mut NoElements, &mut cells).unwrap();
        section.read(990..1000, &mut NoElements, &mut cells).unwrap();
        assert_eq!(texts(&cells[0]), vec![long.as_str(); 13]);
    }
}

#[test]
fn dictionaries_that_claim_too_much_are_refused() {
    let dictionary: DictionaryArray<Int32Type> = ["x".repeat(100).as_str(), "y"].into_iter().collect();
    let bytes = arrow(&[batch(&[("name", Arc::new(dictionary))])], Some(CompressionType::ZSTD));
    // The unpacked length before the compressed characters of the dictionary.
    let claim = [&101u64.to_le_bytes()[..], &[0x28, 0xb5, 0x2f, 0xfd]].concat();
    let at = bytes.windows(12).position(|own| own == claim).unwrap();
    for len in [1u64 << 40, 1 << 33] {
        let mut bytes = bytes.clone();
        bytes[at..at + 8].copy_from_slice(&len.to_le_bytes());
        assert_eq!(read(&bytes, &[pick(0, CellKind::Text)], 1).unwrap_err().kind(), Kind::Limit, "{len}");
    }
}

#[test]
fn tables_of_many_rows_in_few_bytes_are_refused() {
    let names = StringArray::from_iter_values(std::iter::repeat_n("a", 3_000_000));
    let whole = batch(&[("name", Arc::new(names))]);
    let bytes = parquet(&[whole], WriterProperties::builder().build());
    assert!(bytes.len() < 10_000);
    let limits = Limits { repeated_bytes: 1 << 20, ..Limits::default() };
    let open = |limits: &Limits| {
        TableFile::open(&source(&bytes), limits).unwrap().records(&[pick(0, CellKind::Text)])
    };
    assert_eq!(open(&limits).unwrap_err().code().as_str(), "inflated");
    assert_eq!(open(&Limits::default()).unwrap().sections().iter().sum::<u64>(), 3_000_000);
}

/// Files of a folder by relative path.
fn tree(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let (mut all, mut open) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(next) = open.pop() {
        for entry in std::fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                let name = path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned();
                all.push((name, std::fs::read(&path).unwrap()));
            }
        }
    }
    all.sort();
    all
}

#[test]
fn imports_of_tables_and_text_give_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("config.json");
    let json = r#"{"entities": {"n": {"num_partitions": 3}}, "relations": [{"name": "all", "lhs": "n", "rhs": "n"}],
        "dynamic_relations": true, "dimension": 4, "entity_path": "g/e", "edge_paths": ["g/train"], "checkpoint_path": "m"}"#;
    std::fs::write(&config, json).unwrap();
    let edges: Vec<[i64; 3]> = (0..12_000i64).map(|n| [n * n % 701, n % 7, n * 31 % 997 - 40]).collect();
    let weights: Vec<f32> = (0..12_000u16).map(|n| f32::from(n) / 64.0).collect();
    let lines = edges.iter().zip(&weights).map(|([a, b, c], w)| format!("{a}\trel {b}\t{c}\t{w}\n"));
    std::fs::write(dir.path().join("edges.tsv"), lines.collect::<String>()).unwrap();
    let ids = |place: usize| Int64Array::from_iter_values(edges.iter().map(|edge| edge[place]));
    let relations: DictionaryArray<Int16Type> = edges
        .iter()
        .map(|edge| {
            ["rel 0", "rel 1", "rel 2", "rel 3", "rel 4", "rel 5", "rel 6"][usize::try_from(edge[1]).unwrap()]
        })
        .collect();
    let names = StringViewArray::from_iter_values(edges.iter().map(|edge| edge[2].to_string()));
    let named = batch(&[
        ("time", Arc::new(BooleanArray::from(vec![false; 12_000]))),
        ("rhs", Arc::new(names.clone())),
        ("weight", Arc::new(Float32Array::from(weights.clone()))),
        ("lhs", Arc::new(ids(0))),
        ("rel", Arc::new(relations.clone())),
    ]);
    let ordered = batch(&[
        ("source", Arc::new(ids(0))),
        ("kind", Arc::new(relations)),
        ("target", Arc::new(names)),
        ("score", Arc::new(Float64Array::from_iter_values(weights.iter().map(|w| f64::from(*w))))),
    ]);
    for order in ["sorted", "random"] {
        let run = |inputs: &[String], columns: Option<&str>, name: &str| {
            let mut options = ImportOptions::new(&config);
            options.order = weighbridge::formats::biggraph::import::EntityOrder::parse(order).unwrap();
            options.columns =
                columns.map(|text| weighbridge::formats::biggraph::import::Columns::parse(text).unwrap());
            (options.run.threads, options.run.memory, options.run.sync) = (2, 8 << 20, false);
            options.force = true;
            import(inputs, &dir.path().join(name), &options).map(|_| tree(&dir.path().join(name)))
        };
        let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
        let columns = Some("lhs,rel,rhs,weight");
        let expected = run(&[path("edges.tsv")], columns, "text").unwrap();
        let cut = [named.slice(0, 2000), named.slice(2000, 10_000)];
        let ways = files(&cut).into_iter().map(|way| (way, None));
        for ((what, bytes), columns) in
            ways.chain(files(std::slice::from_ref(&ordered)).into_iter().map(|way| (way, columns)))
        {
            // The name does not matter.
            std::fs::write(dir.path().join("edges.csv"), bytes).unwrap();
            assert!(run(&[path("edges.csv")], columns, "table").unwrap() == expected, "{order} {what}");
        }
        // Tables and text together, in a folder.
        let folder = dir.path().join("parts");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(
            folder.join("part-0.parquet"),
            parquet(&cut[..1], WriterProperties::builder().build()),
        )
        .unwrap();
        std::fs::write(folder.join("part-1.arrow"), arrow(&cut[1..], None)).unwrap();
        std::fs::write(folder.join("_SUCCESS"), "").unwrap();
        assert!(run(&[path("parts")], None, "table").unwrap() == expected, "{order}");
    }
}
