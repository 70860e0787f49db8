use super::*;
use crate::checkpoint::{Extent, TensorPath};
use crate::source::{FileRange, MemorySource, Source, SourceRef};
use crate::tensor::{Element, Encoding, Order, Region, Shape};
use std::sync::Arc;

fn entry(dtype: DType, dims: &[u64], bytes: Vec<u8>, encoding: Encoding) -> TensorEntry {
    let source: SourceRef = Arc::new(MemorySource::new("m", bytes));
    TensorEntry::dense(TensorPath::value(), dtype, Shape::new(dims), &source, 0, encoding).unwrap()
}

fn one<const N: usize>(dtype: DType, elements: &[[u8; N]]) -> Stats {
    let entry = entry(dtype, &[elements.len() as u64], elements.concat(), Encoding::ROW);
    stats(&entry, &StatsOptions::default()).unwrap()
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-12 * a.abs().max(b.abs()).max(1e-300)
}

/// Bytes by a fixed sequence.
fn noise(len: usize, mut state: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        bytes.extend_from_slice(&(state >> 16).to_le_bytes()[..4]);
    }
    bytes.truncate(len);
    bytes
}

/// The definition, value by value.
#[allow(clippy::cast_precision_loss)]
fn naive(dtype: DType, bytes: &[u8], bins: usize) -> Stats {
    let size = dtype.size().unwrap();
    let elements: Vec<Element> =
        (0..bytes.len() / size).map(|i| dtype.element_at(bytes, i).unwrap()).collect();
    let values: Vec<f64> = elements.iter().map(|e| e.to_f64()).collect();
    let finite: Vec<f64> = values.iter().copied().filter(|x| x.is_finite()).collect();
    let n = finite.len() as f64;
    let exact = |e: &Element| match e {
        Element::Int(i) => Number::Int(*i),
        Element::Bool(b) => Number::Int(i128::from(*b)),
        other => Number::Float(other.to_f64()),
    };
    let mut ordered: Vec<&Element> = elements.iter().filter(|e| e.to_f64().is_finite()).collect();
    ordered.sort_by(|a, b| match (exact(a), exact(b)) {
        (Number::Int(a), Number::Int(b)) => a.cmp(&b),
        (a, b) => a.to_f64().total_cmp(&b.to_f64()),
    });
    let (min, max) = (ordered.first().map(|e| exact(e)), ordered.last().map(|e| exact(e)));
    // Divided first, so that the sum of large values stays in range.
    let mean = finite.iter().map(|x| x / n).sum::<f64>();
    let std = (finite.iter().map(|x| (x - mean).powi(2) / n).sum::<f64>()).sqrt();
    let below = match dtype {
        DType::F16 => 2f64.powi(-14),
        DType::F32 | DType::BF16 | DType::C64 => 2f64.powi(-126),
        DType::F64 | DType::C128 => 2f64.powi(-1022),
        DType::F8E4M3 => 2f64.powi(-6),
        DType::F8E5M2 => 2f64.powi(-14),
        DType::F8E4M3Fnuz => 2f64.powi(-7),
        DType::F8E5M2Fnuz => 2f64.powi(-15),
        _ => 0.0,
    };
    let count = |f: &dyn Fn(f64) -> bool| values.iter().filter(|x| f(**x)).count() as u64;
    let histogram = min.zip(max).filter(|_| bins > 0).map(|(min, max)| {
        let mut histogram = Histogram::new(min.to_f64(), max.to_f64(), bins);
        let edges = histogram.edges().to_vec();
        for x in &finite {
            let last = edges.len() - 2;
            let bin = (0..last).find(|&i| *x < edges[i + 1]).unwrap_or(last);
            histogram.counts[bin] += 1;
        }
        histogram
    });
    Stats {
        dtype,
        count: values.len() as u64,
        finite: finite.len() as u64,
        min,
        max,
        mean: (!finite.is_empty()).then_some(mean),
        std: (!finite.is_empty()).then_some(std),
        zeros: count(&|x| x == 0.0),
        nan: count(&f64::is_nan),
        pos_inf: count(&|x| x == f64::INFINITY),
        neg_inf: count(&|x| x == f64::NEG_INFINITY),
        subnormal: count(&|x| x != 0.0 && x.abs() < below),
        all_equal: !values.is_empty() && bytes.chunks(size).all(|e| e == &bytes[..size]),
        histogram,
    }
}

/// Everything but mean and std, which are close only; a zero may have either sign.
fn assert_same(found: &Stats, expected: &Stats, what: &str) {
    for (a, b) in [(found.mean, expected.mean), (found.std, expected.std)] {
        match (a, b) {
            (Some(a), Some(b)) => assert!(close(a, b), "{what}: {a} {b}"),
            (a, b) => assert_eq!(a, b, "{what}"),
        }
    }
    let rest = |s: &Stats| Stats { mean: None, std: None, ..s.clone() };
    assert_eq!(rest(found), rest(expected), "{what}");
}

#[test]
fn every_dtype_matches_the_definition_for_every_block_size() {
    for dtype in DType::ALL {
        let Some(size) = dtype.size() else { continue };
        let mut bytes = noise(5 * 7 * 31 * size, 7);
        if dtype == DType::F64 || dtype == DType::C128 {
            // Keep the squares within range: no exponent above 2^400.
            bytes.as_chunks_mut::<8>().0.iter_mut().for_each(|b| {
                let x = f64::from_le_bytes(*b);
                if x.abs() > 1e120 && x.is_finite() {
                    *b = (x % 1e3).to_le_bytes();
                }
            });
        }
        let expected = naive(dtype, &bytes, 20);
        for (encoding, dims) in
            [(Encoding::ROW, &[5, 7, 31][..]), (Encoding::COLUMN, &[31, 7, 5]), (Encoding::ROW, &[1085])]
        {
            let entry = entry(dtype, dims, bytes.clone(), encoding);
            for block in [1, 100, 1000, 1 << 20] {
                let found = stats_by(&entry, &StatsOptions::default(), block).unwrap();
                assert_same(&found, &expected, &format!("{dtype} {dims:?} {block}"));
            }
        }
    }
}

#[test]
fn results_are_bit_identical_for_any_number_of_threads() {
    let entry = entry(DType::F32, &[300, 1000], noise(1_200_000, 3), Encoding::COLUMN);
    let with = |threads| stats_by(&entry, &StatsOptions { threads, bins: 7 }, 10_000).unwrap();
    let first = with(1);
    for threads in [2, 3, 8, 0] {
        assert_eq!(with(threads), first);
        assert_eq!(with(threads).mean.map(f64::to_bits), first.mean.map(f64::to_bits));
        assert_eq!(with(threads).std.map(f64::to_bits), first.std.map(f64::to_bits));
    }
}

/// Numbers that numpy gave for the same values as f64.
#[test]
fn statistics_equal_those_of_numpy() {
    let values = (0..10007u16).map(|i| f32::from(i.wrapping_mul(37) % 1000) - 300.0);
    let expected_values = (0..10007u32).map(|i| f32::from(u16::try_from(i * 37 % 1000).unwrap()) - 300.0);
    assert!(values.count() == 10007);
    let bytes: Vec<[u8; 4]> = expected_values.map(|x| (x / 8.0).to_le_bytes()).collect();
    let stats = one(DType::F32, &bytes);
    assert!(close(stats.mean.unwrap(), 24.903530028979713));
    assert!(close(stats.std.unwrap(), 36.09542320037905));
    assert_eq!((stats.min, stats.max), (Some(Number::Float(-37.5)), Some(Number::Float(87.375))));
    assert_eq!(stats.zeros, 10);
    let mut counts = vec![502, 501, 502, 501, 501];
    counts.resize(20, 500);
    assert_eq!(stats.histogram.unwrap().counts, counts);

    let complex: Vec<[u8; 16]> = (0..50)
        .map(|i| [f64::from(i - 20).to_le_bytes(), f64::from(i).to_le_bytes()].concat().try_into().unwrap())
        .collect();
    let stats = one(DType::C128, &complex);
    assert!(close(stats.mean.unwrap(), 29.153487290481344));
    assert!(close(stats.std.unwrap(), 13.677506307940147));
    assert_eq!(stats.min, Some(Number::Float(14.142135623730951)));
}

#[test]
fn integers_are_exact() {
    let wide = [i64::MIN, i64::MAX, 5, 0].map(i64::to_le_bytes);
    let stats = one(DType::I64, &wide);
    assert_eq!(
        (stats.min, stats.max),
        (Some(Number::Int(i64::MIN.into())), Some(Number::Int(i64::MAX.into())))
    );
    assert!(close(stats.std.unwrap(), 6.521908912666392e18));
    let json = stats.to_json();
    assert_eq!((&json["min"], &json["zeros"]), (&json!(i64::MIN), &json!(1)));
    let stats = one(DType::U64, &[u64::MAX.to_le_bytes(); 3]);
    assert_eq!(stats.to_json()["max"], json!(u64::MAX));
    assert!(stats.all_equal);
    let stats = one(DType::Bool, &[[0], [1], [1], [7]]);
    assert_eq!((stats.max, stats.mean, stats.zeros), (Some(Number::Int(1)), Some(0.75), 1));
}

#[test]
fn oddities_are_counted_and_excluded() {
    let values =
        [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::NEG_INFINITY, 0.0, -0.0, 1e-45, -1e-39, 2.0, 4.0];
    let stats = one(DType::F32, &values.map(f32::to_le_bytes));
    assert_eq!((stats.count, stats.finite), (10, 6));
    assert_eq!((stats.nan, stats.pos_inf, stats.neg_inf), (1, 1, 2));
    assert_eq!((stats.zeros, stats.subnormal), (2, 2));
    assert!(close(stats.mean.unwrap(), 1.0));
    assert_eq!(stats.histogram.as_ref().unwrap().counts.iter().sum::<u64>(), 6);
    assert!(!stats.all_equal);

    let stats = one(DType::F32, &[f32::NAN.to_le_bytes(); 5]);
    assert_eq!((stats.nan, stats.finite, stats.min, stats.mean, stats.std), (5, 0, None, None, None));
    assert_eq!((stats.histogram, stats.all_equal), (None, true));
}

#[test]
fn equal_values_have_no_deviation() {
    let stats = one(DType::F32, &[0.1f32.to_le_bytes(); 10_000]);
    assert_eq!((stats.mean, stats.std), (Some(f64::from(0.1f32)), Some(0.0)));
    assert!(stats.all_equal);
    assert_eq!(stats.histogram.unwrap().counts, [10_000]);
    // Equal, but not in every bit.
    let stats = one(DType::F32, &[0.0f32.to_le_bytes(), (-0.0f32).to_le_bytes()]);
    assert!(!stats.all_equal);
    // Equal within each block, but not between them.
    let halves = [vec![1u8; 100], vec![2; 100]].concat();
    let entry = entry(DType::U8, &[200], halves, Encoding::ROW);
    assert!(!stats_by(&entry, &StatsOptions::default(), 100).unwrap().all_equal);
}

#[test]
fn values_near_the_end_of_the_range() {
    let stats = one(DType::F64, &[f64::MAX, f64::MAX, -f64::MAX, 1.0].map(f64::to_le_bytes));
    assert_eq!((stats.min, stats.max), (Some(Number::Float(-f64::MAX)), Some(Number::Float(f64::MAX))));
    assert!(close(stats.mean.unwrap(), f64::MAX / 4.0));
    assert!(close(stats.std.unwrap(), f64::MAX * 0.6875f64.sqrt()));
    assert_eq!(stats.histogram.as_ref().unwrap().counts.iter().sum::<u64>(), 4);
}

/// Exact by thought; in one block and in many, whose moments are joined.
#[test]
fn deviation_of_extreme_and_nearly_equal_values() {
    let alternating = |low: f64, high: f64| (0..999).flat_map(|_| [low, high]).collect::<Vec<f64>>();
    let mut growing = alternating(1e-200, 3e-200);
    growing.extend(alternating(-1.0, 1.0));
    let mut exploding = alternating(-1.0, 1.0);
    exploding.extend(alternating(-f64::MAX, f64::MAX));
    // A chunk of one value, whose sum is beyond `f64`, beside another.
    let masked = [vec![f64::MAX; 5000], vec![-f64::MAX; 5000]].concat();
    let cases = [
        (masked, 0.0, f64::MAX),
        (vec![f64::MAX; 3], f64::MAX, 0.0),
        (alternating(1e-170, 3e-170), 2e-170, 1e-170),
        (alternating(0.0, f64::from_bits(2)), f64::from_bits(1), f64::from_bits(1)),
        (alternating(-f64::MAX, f64::MAX), 0.0, f64::MAX),
        (alternating(1e15, 1e15 + 1.0), 1e15 + 0.5, 0.5),
        (alternating(1e15 + 0.125, 1e15 + 0.25), 1e15 + 0.1875, 0.0625),
        (growing, 1e-200, 0.5f64.sqrt()),
        (exploding, 0.0, f64::MAX * 0.5f64.sqrt()),
    ];
    for (values, mean, std) in cases {
        let bytes = values.iter().flat_map(|x| x.to_le_bytes()).collect();
        let entry = entry(DType::F64, &[values.len() as u64], bytes, Encoding::ROW);
        for block in [8, 24, 1000, 1 << 20] {
            let stats = stats_by(&entry, &StatsOptions { bins: 0, threads: 1 }, block).unwrap();
            let of = format!("{:e}, {:e}, ... in blocks of {block}", values[0], values[1]);
            let scale = values.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
            assert!((stats.mean.unwrap() - mean).abs() <= scale * 1e-15, "{of}: {:?} {mean:e}", stats.mean);
            assert!(close(stats.std.unwrap(), std), "{of}: {:?} {std:e}", stats.std);
        }
    }
}

#[test]
fn empty_tensors_have_no_statistics() {
    let stats = one::<4>(DType::F32, &[]);
    assert_eq!((stats.count, stats.min, stats.mean, stats.all_equal), (0, None, None, false));
    assert!(stats.histogram_lines(40).is_empty());
    let empty = entry(DType::F32, &[1 << 60, 0], vec![], Encoding::ROW);
    assert_eq!(super::stats(&empty, &StatsOptions::default()).unwrap().count, 0);
}

#[test]
fn refusals() {
    let packed = entry(DType::F4, &[4], vec![0; 2], Encoding::ROW);
    assert_eq!(stats(&packed, &StatsOptions::default()).unwrap_err().code().as_str(), "packed-values");
    let plain = entry(DType::U8, &[4], vec![0; 4], Encoding::ROW);
    let options = StatsOptions { bins: MAX_BINS + 1, ..StatsOptions::default() };
    assert_eq!(stats(&plain, &options).unwrap_err().code().as_str(), "too-many-bins");
}

/// A source that fails when it is read backwards.
#[derive(Debug)]
struct Forwards {
    inner: MemorySource,
    position: std::sync::Mutex<u64>,
}

impl Source for Forwards {
    fn len(&self) -> u64 {
        self.inner.len()
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let mut position = self.position.lock().unwrap();
        assert!(offset == 0 || offset >= *position, "read backwards");
        *position = offset + buffer.len() as u64;
        self.inner.read_at(offset, buffer)
    }
    fn label(&self) -> &str {
        "forwards"
    }
    fn file(&self) -> Option<FileRange<'_>> {
        None
    }
    fn is_sequential(&self) -> bool {
        true
    }
}

#[test]
fn a_sequential_source_is_read_forwards() {
    let bytes = noise(60_000, 5);
    let inner = MemorySource::new("m", bytes.clone());
    let source: SourceRef = Arc::new(Forwards { inner, position: 0.into() });
    for encoding in [Encoding::ROW, Encoding::COLUMN] {
        let shape = Shape::from([100, 150]);
        let entry = TensorEntry::dense(TensorPath::value(), DType::F32, shape, &source, 0, encoding).unwrap();
        let found = stats_by(&entry, &StatsOptions { threads: 8, bins: 5 }, 999).unwrap();
        assert_same(&found, &naive(DType::F32, &bytes, 5), "forwards");
    }
}

/// Extents, and a cast: statistics cover the values that a reader would get.
#[test]
fn pieces_and_casts() {
    let whole = entry(DType::I16, &[9, 4], noise(72, 11), Encoding::ROW);
    let mut split = whole.clone();
    split.extents.clear();
    for (from, to) in [(0, 5), (5, 9)] {
        let region = Region { start: vec![from, 0], shape: vec![to - from, 4] };
        let bytes = whole.read_region(&region, Order::Column).unwrap();
        let len = bytes.len() as u64;
        let source: SourceRef = Arc::new(MemorySource::new("part", bytes));
        split.extents.push(Extent {
            source,
            offset: 0,
            len,
            encoding: Encoding::COLUMN,
            part: Some(Box::new(region)),
            check: None,
        });
    }
    let options = StatsOptions::default();
    let expected = stats(&whole, &options).unwrap();
    assert_same(&stats(&split, &options).unwrap(), &expected, "pieces");
    split.cast = Some(DType::F32.into());
    let cast = stats(&split, &options).unwrap();
    assert_eq!(cast.dtype, DType::F32);
    assert_eq!(cast.min.map(Number::to_f64), expected.min.map(Number::to_f64));
    assert_eq!(cast.histogram, expected.histogram);
}
