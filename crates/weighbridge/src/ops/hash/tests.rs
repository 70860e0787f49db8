use super::*;
use crate::checkpoint::{Extent, TensorPath};
use crate::source::{MemorySource, SourceRef};
use crate::tensor::{DType, Encoding, Endian, Region, Shape, relayout};
use std::sync::Arc;

fn entry(dtype: DType, dims: &[u64], bytes: Vec<u8>, encoding: Encoding) -> TensorEntry {
    let source: SourceRef = Arc::new(MemorySource::new("m", bytes));
    TensorEntry::dense(TensorPath::value(), dtype, Shape::new(dims), &source, 0, encoding).unwrap()
}

/// The row-major elements, stored in every way; each must hash alike.
fn check(dtype: DType, dims: &[u64], row: &[u8], expected: &str) {
    let size = dtype.size().unwrap();
    let extents: Vec<usize> = dims.iter().map(|&d| usize::try_from(d).unwrap()).collect();
    for order in [Order::Row, Order::Column] {
        for endian in [Endian::Little, Endian::Big] {
            let mut bytes = vec![0; row.len()];
            relayout(row, Order::Row, &mut bytes, order, &extents, size);
            if endian == Endian::Big {
                Endian::swap_bytes(&mut bytes, dtype.swap_unit());
            }
            let entry = entry(dtype, dims, bytes, Encoding { order, endian });
            assert_eq!(sha256(&entry).unwrap(), expected, "{dtype} {dims:?} {order:?} {endian:?}");
        }
    }
}

fn f32_grid() -> Vec<u8> {
    (0..12u8).flat_map(|i| f32::from(i).to_le_bytes()).collect()
}

/// `hashlib.sha256(array.tobytes()).hexdigest()` of numpy arrays.
#[test]
fn hashes_equal_those_of_python() {
    let grid = "29e1889124dc651e7bb488251123910767d042ae6dc47c280ec364655e24ab49";
    check(DType::F32, &[3, 4], &f32_grid(), grid);
    let shorts: Vec<u8> = (0..24i16).flat_map(|i| (i * 3 - 7).to_le_bytes()).collect();
    let hash = "f4212f0a7df38aa08e89053e4237e3f915e52d4443662876366b8cda170ea759";
    check(DType::I16, &[2, 3, 4], &shorts, hash);
    let hash = "e163f8cb0f7067a7fc78ca859a77f849aea3214f38fb75b884e4a16be725c905";
    check(DType::F64, &[], &1.5f64.to_le_bytes(), hash);
    let hash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    check(DType::F32, &[0, 3], &[], hash);
    let complex: Vec<u8> = [1f32, 2.0, 3.0, -4.0].iter().flat_map(|x| x.to_le_bytes()).collect();
    let hash = "f1141b2026b44c26bcaff895e51de48b141037b4a2eebbff199c59b4a57e9124";
    check(DType::C64, &[1, 2], &complex, hash);
    // More than one block.
    let wide: Vec<u8> = (0..1u64 << 20).flat_map(u64::to_le_bytes).collect();
    let hash = "a78cee677876b925402c15818acd3fc020a47754d9d1c26688914ea09070f8d0";
    check(DType::U64, &[1024, 1024], &wide, hash);
}

#[test]
fn a_cast_tensor_is_hashed_after_the_cast() {
    let mut entry = entry(DType::F32, &[3, 4], f32_grid(), Encoding::ROW);
    entry.cast = Some(DType::F64.into());
    let hash = "3cdb84857b942fe6dfa5d5b90444935652a4a319bab777539926f4b43fe579fa";
    assert_eq!(sha256(&entry).unwrap(), hash);
}

#[test]
fn packed_types_are_hashed_as_stored() {
    let bytes: Vec<u8> = (0..100).collect();
    let hash = "bce0aff19cf5aa6a7469a30d61d04e4376e4bbf6381052ee9e7f33925c954d52";
    assert_eq!(sha256(&entry(DType::F4, &[20, 10], bytes.clone(), Encoding::ROW)).unwrap(), hash);
    assert_eq!(sha256(&entry(DType::F4, &[200], bytes.clone(), Encoding::COLUMN)).unwrap(), hash);
    let error = sha256(&entry(DType::F4, &[20, 10], bytes, Encoding::COLUMN)).unwrap_err();
    assert_eq!((error.code().as_str(), error.tensor()), ("packed-reorder", Some("value")));
}

#[test]
fn extents_do_not_change_the_hash() {
    let whole = entry(DType::F32, &[3, 4], f32_grid(), Encoding::ROW);
    let mut split = whole.clone();
    split.extents.clear();
    for (from, to) in [(0, 1), (1, 4)] {
        let region = Region { start: vec![0, from], shape: vec![3, to - from] };
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
    assert_eq!(sha256(&split).unwrap(), sha256(&whole).unwrap());
}

/// A source that counts how many threads are in it at once, and says that it is sequential.
#[derive(Debug)]
struct Alone {
    inner: MemorySource,
    last: std::sync::Mutex<u64>,
}

impl crate::source::Source for Alone {
    fn len(&self) -> u64 {
        self.inner.len()
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let mut last = self.last.lock().unwrap();
        assert!(offset >= *last, "read backwards");
        *last = offset;
        self.inner.read_at(offset, buffer)
    }
    fn label(&self) -> &str {
        "alone"
    }
    fn is_sequential(&self) -> bool {
        true
    }
}

#[test]
fn order_does_not_depend_on_the_number_of_threads() {
    let bytes: Vec<u8> = (0..40_000u32).flat_map(|i| (i * 7).to_le_bytes()).collect();
    for threads in [0, 1, 2, 5] {
        let inner = MemorySource::new("m", bytes.clone());
        let stream: SourceRef = Arc::new(Alone { inner, last: 0.into() });
        let plain: SourceRef = Arc::new(MemorySource::new("m", bytes.clone()));
        let mut checkpoint = Checkpoint::new("test", "test", "m");
        for i in 0..40u64 {
            let source = if i % 2 == 0 { &stream } else { &plain };
            let shape = Shape::from([10, 100]);
            let path = TensorPath::from_dotted(&format!("t{i}"));
            checkpoint
                .tensors
                .push(TensorEntry::dense(path, DType::U32, shape, source, i * 4000, Encoding::ROW).unwrap());
        }
        let hashes = sha256_all(&checkpoint, threads).unwrap();
        let expected: Vec<String> = bytes.chunks(4000).map(|chunk| hex(&Sha256::digest(chunk))).collect();
        assert_eq!(hashes, expected);
    }
    assert!(sha256_all(&Checkpoint::default(), 0).unwrap().is_empty());
}

#[test]
fn errors_name_the_tensor() {
    let mut checkpoint = Checkpoint::new("test", "test", "m");
    checkpoint.tensors.push(entry(DType::F32, &[3, 4], f32_grid(), Encoding::ROW));
    let mut broken = entry(DType::F32, &[3, 4], f32_grid(), Encoding::ROW);
    broken.extents[0].offset = 1 << 40;
    checkpoint.tensors.push(broken);
    let error = sha256_all(&checkpoint, 2).unwrap_err();
    assert_eq!((error.code().as_str(), error.tensor()), ("past-the-end", Some("value")));
}
