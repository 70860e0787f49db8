use super::*;
use serde_json::Value as Json;
use std::sync::Arc;
use weighbridge::checkpoint::TensorPath;
use weighbridge::source::{CountingSource, MemorySource, Source, SourceRef};
use weighbridge::tensor::Encoding;
use weighbridge_testkit::dense;

/// Formats an array with the little-endian, row-major elements `bytes`.
fn format_array(dtype: DType, shape: &[u64], bytes: &[u8]) -> Result<String> {
    let (entry, _) = dense(dtype, shape, bytes, Order::Row);
    show(&entry, &Slice::all(), false).map(|shown| shown.text)
}

fn show_text(entry: &TensorEntry, slice: &str) -> String {
    show(entry, &Slice::parse(slice).unwrap(), false).unwrap().text
}

/// Compares every array of `testdata/show` with the output of numpy.
#[test]
#[allow(clippy::disallowed_methods)]
fn as_numpy_prints_it() {
    let path = weighbridge_testkit::testdata("show/cases.json");
    let cases: Json = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let cases = cases.as_array().unwrap();
    assert!(cases.len() > 500);
    for case in cases {
        let dtype = DType::from_name(case["dtype"].as_str().unwrap()).unwrap();
        let dims: Vec<u64> = case["shape"].as_array().unwrap().iter().map(|d| d.as_u64().unwrap()).collect();
        let hex = case["hex"].as_str().unwrap();
        let pattern: Vec<u8> =
            (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect();
        let len = usize::try_from(Shape::new(&dims[..]).bytes(dtype).unwrap()).unwrap();
        let bytes: Vec<u8> = pattern.iter().copied().cycle().take(len).collect();
        let expected = case["str"].as_str().unwrap();
        for order in [Order::Column, Order::Row] {
            let (entry, _) = dense(dtype, &dims, &bytes, order);
            let text = show(&entry, &Slice::all(), false).unwrap().text;
            assert_eq!(text, expected, "\n{dtype} {dims:?} {hex}\nours:\n{text}\nnumpy:\n{expected}");
        }
    }
}

/// Source of elements whose value is their row-major position.
fn counting(dims: &[u64], order: Order) -> (TensorEntry, Arc<CountingSource>) {
    let n = u32::try_from(dims.iter().product::<u64>()).unwrap();
    let bytes: Vec<u8> = (0..n).flat_map(u32::to_le_bytes).collect();
    dense(DType::U32, dims, &bytes, order)
}

#[test]
fn a_summary_reads_the_ends_only() {
    // 24 MB: beyond what is read as one box.
    for order in [Order::Row, Order::Column] {
        let (entry, counted) = counting(&[100, 200, 300], order);
        let shown = show(&entry, &Slice::all(), false).unwrap();
        assert!(counted.bytes_read() < 2000, "{}", counted.bytes_read());
        assert!(shown.summarised);
        assert_eq!(shown.shape, Shape::from([100, 200, 300]));
        let expected = "[[[      0       1       2 ...     297     298     299]\n";
        assert!(shown.text.starts_with(expected), "{}", shown.text);
        assert!(shown.text.ends_with("[5999700 5999701 5999702 ... 5999997 5999998 5999999]]]"));
    }
}

#[test]
fn slices_drop_dimensions_and_take_steps() {
    for order in [Order::Row, Order::Column] {
        let (entry, _) = counting(&[4, 5], order);
        assert_eq!(show_text(&entry, "[1]"), "[5 6 7 8 9]");
        assert_eq!(show_text(&entry, "[:, -1]"), "[ 4  9 14 19]");
        assert_eq!(show_text(&entry, "[1, 2]"), "7");
        assert_eq!(show_text(&entry, "[1:2, 2]"), "[7]");
        assert_eq!(show_text(&entry, "[::3, 1::2]"), "[[ 1  3]\n [16 18]]");
        assert_eq!(show_text(&entry, "[4:]"), "[]");
    }
}

#[test]
fn full_leaves_nothing_out() {
    let (entry, _) = counting(&[3000], Order::Row);
    let text = show(&entry, &Slice::all(), true).unwrap().text;
    let words: Vec<u32> =
        text.trim_matches(['[', ']']).split_whitespace().map(|w| w.parse().unwrap()).collect();
    assert_eq!(words, (0..3000).collect::<Vec<_>>());
    assert!(text.lines().all(|line| line.len() <= 75));
}

#[test]
fn types_that_numpy_lacks_look_like_f32() {
    let bf16: Vec<u8> = [0.1f32, 1.0, -2.5, f32::NAN, 100.0, 0.3]
        .iter()
        .flat_map(|&x| weighbridge::tensor::bf16::from_f32(x).to_le_bytes())
        .collect();
    let text = format_array(DType::BF16, &[2, 3], &bf16).unwrap();
    assert_eq!(text, "[[  0.1   1.   -2.5]\n [  nan 100.    0.3]]");
}

#[test]
fn refusals() {
    let code = |result: Result<String>| result.unwrap_err().code().as_str();
    assert_eq!(code(format_array(DType::F4, &[2], &[0])), "packed-values");
    assert_eq!(code(format_array(DType::U8, &[1; 65], &[0])), "too-many-dimensions");
    // 4^12 elements would all be "ends".
    let memory: SourceRef = Arc::new(MemorySource::new("m", vec![0; 1 << 24]));
    let entry = |dims: &[u64]| {
        TensorEntry::dense(TensorPath::value(), DType::U8, Shape::new(dims), &memory, 0, Encoding::ROW)
            .unwrap()
    };
    assert_eq!(show(&entry(&[4; 12]), &Slice::all(), false).unwrap_err().code().as_str(), "too-many-values");
    assert_eq!(show(&entry(&[1 << 24]), &Slice::all(), true).unwrap_err().code().as_str(), "too-many-values");
    assert!(show(&entry(&[1 << 24]), &Slice::all(), false).is_ok());
    assert_eq!(show(&entry(&[1 << 60, 0]), &Slice::all(), true).unwrap().text, "[]");
    let error = show(&entry(&[4]), &Slice::parse("[9]").unwrap(), false).unwrap_err();
    assert_eq!((error.code().as_str(), error.tensor()), ("index-out-of-range", Some("value")));
}

/// Reads only the shown elements.
#[test]
fn one_value_is_one_small_read() {
    let (entry, counted) = counting(&[1000, 1000], Order::Column);
    assert_eq!(show_text(&entry, "[999, 999]"), "999999");
    assert_eq!((counted.bytes_read(), counted.calls()), (4, 1));
    assert_eq!(counted.len(), 4_000_000);
}
