//! Streams that no golden file has: odd LoD, changed tensors, limits, long files.

use super::*;
use crate::stream::{Kind, Wanted, lod};
use weighbridge_core::checkpoint::Value;
use weighbridge_core::tensor::{DType, Encoding, Shape};
use weighbridge_io::source::CountingSource;

fn entry(dtype: DType, dims: &[u64]) -> TensorEntry {
    let source = memory([7; 4096]);
    TensorEntry::dense(TensorPath::value(), dtype, Shape::new(dims), &source, 0, Encoding::ROW).unwrap()
}

fn code(entry: &TensorEntry) -> &'static str {
    dense::write(&mut FileBuilder::new(""), entry).unwrap_err().code().as_str()
}

/// A stream of one byte with these levels, each as bytes.
fn with_levels(levels: &[&[u8]]) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    bytes.extend((levels.len() as u64).to_le_bytes());
    for level in levels {
        bytes.extend((level.len() as u64).to_le_bytes());
        bytes.extend_from_slice(level);
    }
    bytes.extend([0, 0, 0, 0, 4, 0, 0, 0, 0x08, 0x14, 0x10, 0x01, 0xAA]);
    bytes
}

#[test]
fn round_trips_levels_of_odd_length() {
    let one = [0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
    /// Levels as bytes and as offsets, a flag for leftover bytes, and the expected fault.
    type Case<'a> = (&'a [&'a [u8]], &'a [&'a [u64]], bool, Option<&'a str>);
    let cases: [Case<'_>; 7] = [
        (&[], &[], false, None),
        (&[&one], &[&[0, 1]], false, None),
        (&[&one, &one], &[&[0, 1], &[0, 1]], false, None),
        (&[&one[..15]], &[&[0]], true, Some("level")),
        (&[&one, &one[..3]], &[&[0, 1], &[]], true, Some("level")),
        (&[&[]], &[&[]], false, Some("has no offsets")),
        (&[&one[8..]], &[&[1]], false, Some("begins with 1")),
    ];
    for (levels, offsets, odd, problem) in cases {
        let bytes = with_levels(levels);
        let read = read_all(&bytes).unwrap();
        let entry = &read[0].entry;
        assert_eq!(lod::levels(entry).unwrap(), offsets);
        assert_eq!(entry.attributes.contains_key(lod::LOD_ODD), odd);
        let found = lod_problem(entry);
        assert_eq!(found.is_some(), problem.is_some(), "{found:?}");
        assert!(found.unwrap_or_default().contains(problem.unwrap_or("")));
        assert_eq!(rewritten(&read), bytes);
    }
    let mut falls = entry(DType::U8, &[1]);
    let level = |offsets: &[u64]| Value::List(offsets.iter().map(|&n| Value::U64(n)).collect());
    falls.attributes.insert(lod::LOD.into(), Value::List(vec![level(&[0, 2, 1])]));
    assert!(lod_problem(&falls).unwrap().contains("descends from 2 to 1"));
    falls.attributes.insert(lod::LOD.into(), Value::List(vec![level(&[0, 2]), level(&[0, 1])]));
    assert!(lod_problem(&falls).unwrap().contains("sequences of the next level"));
}

#[test]
fn rewrites_desc_of_changed_tensor() {
    // Reversed fields and an unknown one.
    let desc = [0x7a, 0x02, b'h', b'i', 0x10, 0x02, 0x08, 0x05];
    let read = read_all(&stream(&desc, &[0; 8])).unwrap().remove(0).entry;
    assert_eq!(read.attributes["desc"], Value::Bytes(desc.to_vec()));
    let mut cast = read.clone();
    cast.cast = Some(DType::F16.into());
    let bytes = written(|file| dense::write(file, &cast));
    assert_eq!(bytes, stream(&[0x08, 0x04, 0x10, 0x02, 0x7a, 0x02, b'h', b'i'], &[0; 4]));
    assert_eq!(dense::stream_bytes(&cast).unwrap(), bytes.len() as u64);
    let mut reshaped = read.clone();
    reshaped.shape = Shape::from([1, 2]);
    let bytes = written(|file| dense::write(file, &reshaped));
    assert_eq!(bytes[20..28], [0x08, 0x05, 0x10, 0x01, 0x10, 0x02, 0x7a, 0x02]);
}

#[test]
fn rejects_unwritable_tensors() {
    assert_eq!(code(&entry(DType::F8E8M0, &[2])), "dtype");
    let mut odd = entry(DType::F32, &[2]);
    odd.shape = Shape::from([1 << 63, 0]);
    assert_eq!(code(&odd), "too-large");
    let attribute = |key: &str, value: Value| {
        let mut entry = entry(DType::F32, &[2]);
        entry.attributes.insert(key.into(), value);
        entry
    };
    for (key, value, expected) in [
        ("desc", Value::U64(1), "desc"),
        ("desc", Value::Bytes(vec![1]), "desc"),
        ("lod", Value::U64(1), "lod"),
        ("lod", Value::List(vec![Value::U64(1)]), "lod"),
        ("lod", Value::List(vec![Value::List(vec![Value::I64(1)])]), "lod"),
        ("lod_odd_bytes", Value::List(vec![Value::Bytes(vec![1])]), "lod"),
    ] {
        assert_eq!(code(&attribute(key, value.clone())), expected, "{key} {value:?}");
    }
    let rows = |entry: &TensorEntry| {
        super::selected_rows::write(&mut FileBuilder::new(""), entry).unwrap_err().code().as_str()
    };
    assert_eq!(rows(&entry(DType::F32, &[2])), "selected-rows");
    let mut half = attribute("rows", Value::List(vec![Value::U64(1)]));
    assert_eq!(rows(&half), "selected-rows");
    half.attributes.insert("height".into(), Value::I64(3));
    assert_eq!(rows(&half), "selected-rows");
}

#[test]
fn rejects_claims_beyond_file_and_limits() {
    let mut levels = with_levels(&[]);
    levels[4..12].fill(0xff);
    assert_eq!(read_all(&levels).unwrap_err().code().as_str(), "lod-too-long");
    let mut level = with_levels(&[&[0; 8]]);
    level[12..20].fill(0xff);
    assert_eq!(read_all(&level).unwrap_err().code().as_str(), "lod-too-long");
    let mut rows = good("p262/selected_rows/f32_3rows.bin");
    rows[4..12].fill(0xff);
    assert_eq!(read_rows(&rows).unwrap_err().code().as_str(), "rows-too-long");
    let mut words = good("p262/vocab/vocab.pdiparams");
    words[0..8].fill(0xff);
    assert_eq!(read_vocab(&words).unwrap_err().code().as_str(), "vocab-too-long");
    words[0..16].copy_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0, 0xff, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(read_vocab(&words).unwrap_err().code().as_str(), "vocab-too-long");

    let limits = |header_bytes, tensors, dimensions, name_bytes| Limits {
        header_bytes,
        tensors,
        dimensions,
        name_bytes,
        ..Limits::default()
    };
    let refused = |bytes: &[u8], limits: &Limits| {
        combined::read_all(&memory(bytes), limits).unwrap_err().hint_text().unwrap().to_owned()
    };
    let leveled = with_levels(&[&[0; 80]]);
    assert!(refused(&leveled, &limits(80, 9, 9, 9)).contains("header_bytes"));
    // The memory of all headers is added up.
    assert!(combined::read_all(&memory(&leveled), &limits(150, 9, 9, 9)).is_ok());
    assert!(refused(&leveled.repeat(2), &limits(150, 9, 9, 9)).contains("header_bytes"));
    assert!(refused(&floats(1), &limits(2, 9, 9, 9)).contains("header_bytes"));
    assert!(refused(&floats(1).repeat(3), &limits(80, 2, 9, 9)).contains("tensors"));
    assert!(refused(&floats(1), &limits(80, 2, 0, 9)).contains("dimensions"));
    let read = |limits: &Limits| {
        let bytes = good("p262/vocab/vocab.pdiparams");
        vocab::read(&mut Cursor::new(memory(&bytes), 0), limits).map(|v| v.words.len())
    };
    assert_eq!(read(&limits(80, 9, 9, 2)).unwrap(), 2);
    assert_eq!(read(&limits(80, 9, 9, 1)).unwrap_err().code().as_str(), "limit");
    assert_eq!(read(&limits(30, 9, 9, 2)).unwrap_err().code().as_str(), "limit");
    let rows = good("p262/selected_rows/f32_3rows.bin");
    let mut cursor = Cursor::new(memory(&rows), 0);
    let error =
        super::selected_rows::read(&mut cursor, &TensorPath::value(), &limits(23, 9, 9, 9)).unwrap_err();
    assert_eq!(error.code().as_str(), "limit");
}

#[test]
fn skips_large_tensors_and_reads_small_ones_in_large_blocks() {
    // 64 tensors of 1 MiB.
    let large = stream(&[0x08, 0x14, 0x10, 0x80, 0x80, 0x40], &vec![0; 1 << 20]).repeat(64);
    // 20,000 of 64 bytes.
    let small = floats(16).repeat(20_000);
    for (bytes, tensors, most_bytes, most_calls) in
        [(&large, 64, 64 * 512, 64), (&small, 20_000, small.len() as u64, 40)]
    {
        let counted = Arc::new(CountingSource::new(memory(bytes)));
        let source: SourceRef = counted.clone();
        assert_eq!(combined::read_all(&source, &Limits::default()).unwrap().len(), tensors);
        assert!(counted.bytes_read() <= most_bytes, "{}", counted.bytes_read());
        assert!(counted.calls() <= most_calls, "{}", counted.calls());
    }
}

#[test]
fn vocabularies_among_tensors_require_the_program() {
    let words = vec![("a".into(), 3), ("".into(), -1)];
    let entry = entry(DType::U8, &[3]);
    let items = [combined::Item::Dense(&entry), combined::Item::Vocab(&words), combined::Item::Dense(&entry)];
    let bytes = written(|file| combined::layout_with(file, items));
    let wanted = |kinds: &[Kind]| -> Vec<_> {
        kinds.iter().map(|&kind| Wanted { path: TensorPath::value(), kind }).collect()
    };
    let read = |kinds: &[Kind]| combined::read_with(&memory(&bytes), &wanted(kinds), &Limits::default());
    let streams = read(&[Kind::Dense, Kind::Vocab, Kind::Dense]).unwrap();
    match streams.as_slice() {
        [combined::Stream::Dense(_), combined::Stream::Vocab(vocab), combined::Stream::Dense(last)] => {
            assert_eq!((&vocab.words, vocab.stream_offset), (&words, 27));
            assert_eq!(last.header.stream_offset, 27 + vocab.stream_bytes);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(read(&[Kind::Dense; 3]).unwrap_err().code().as_str(), "stream-version");
    assert_eq!(read(&[Kind::Dense]).unwrap_err().code().as_str(), "trailing-bytes");
    assert!(read(&[Kind::Vocab; 3]).is_err());
}
