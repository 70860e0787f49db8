use super::*;
use crate::checkpoint::TensorPath;
use crate::source::{CountingSource, MemorySource, SourceRef};
use crate::tensor::{Encoding, Shape};
use std::sync::Arc;
use weighbridge_testkit::dense;

/// Elements whose value is their row-major position.
fn counting(dims: &[u64], order: Order) -> (TensorEntry, Arc<CountingSource>) {
    let n = u32::try_from(dims.iter().product::<u64>()).unwrap();
    let bytes: Vec<u8> = (0..n).flat_map(u32::to_le_bytes).collect();
    dense(DType::U32, dims, &bytes, order)
}

#[test]
fn slices_are_lists_without_the_dropped_dimensions() {
    for order in [Order::Row, Order::Column] {
        let (entry, _) = counting(&[4, 5], order);
        let json = |slice: &str| values_json(&entry, &Slice::parse(slice).unwrap()).unwrap().to_string();
        assert_eq!(json("[1, 2]"), "7");
        assert_eq!(json("[::3, 1::2]"), "[[1,3],[16,18]]");
        assert_eq!(json("[:2, 4:]"), "[[4],[9]]");
        assert_eq!(json("[:2, 5:]"), "[[],[]]");
    }
}

/// Steps through a tensor that is too large for one box: element by element.
#[test]
fn scattered_elements() {
    for order in [Order::Row, Order::Column] {
        let (entry, counted) = counting(&[50, 300, 400], order);
        let slice = Slice::parse("[::20, 7::150, 1:400:133]").unwrap();
        let expected: Vec<Vec<Vec<u64>>> = (0..50u64)
            .step_by(20)
            .map(|i| {
                (7..300)
                    .step_by(150)
                    .map(|j| (1..400).step_by(133).map(|k| (i * 300 + j) * 400 + k).collect())
                    .collect()
            })
            .collect();
        assert_eq!(values_json(&entry, &slice).unwrap(), json!(expected));
        assert!(counted.bytes_read() < 1000);
    }
}

#[test]
fn json_of_odd_values() {
    let floats = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0, 0.1, 1e-45, f32::MAX];
    let bytes: Vec<u8> = floats.iter().flat_map(|x| x.to_le_bytes()).collect();
    let (entry, _) = dense(DType::F32, &[7], &bytes, Order::Row);
    let json = values_json(&entry, &Slice::all()).unwrap();
    assert_eq!(json.to_string(), r#"["NaN","Infinity","-Infinity",-0.0,0.1,1e-45,3.4028235e+38]"#);
    let (entry, _) = dense(DType::C64, &[1], &[0, 0, 0, 0, 0, 0, 0x80, 0x3f], Order::Row);
    assert_eq!(values_json(&entry, &Slice::all()).unwrap().to_string(), "[[0.0,1.0]]");
    let (entry, _) = dense(DType::U64, &[], &[0xff; 8], Order::Row);
    assert_eq!(values_json(&entry, &Slice::all()).unwrap(), json!(u64::MAX));
    let (entry, _) = dense(DType::Bool, &[2], &[0, 1], Order::Row);
    assert_eq!(values_json(&entry, &Slice::all()).unwrap(), json!([false, true]));
}

#[test]
fn refusals() {
    let memory: SourceRef = Arc::new(MemorySource::new("m", vec![0; 1 << 24]));
    for dims in [&[1 << 24][..], &[1 << 60, 0], &[1 << 40, 1 << 40, 0]] {
        let entry =
            TensorEntry::dense(TensorPath::value(), DType::U8, Shape::new(dims), &memory, 0, Encoding::ROW);
        let error = values_json(&entry.unwrap(), &Slice::all()).unwrap_err();
        assert_eq!((error.code().as_str(), error.tensor()), ("too-many-values", Some("value")));
        assert!(error.hint_text().unwrap().contains("slice"));
    }
}
