#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use super::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weighbridge_core::checkpoint::{Name, TensorEntry, TensorPath, Value};
use weighbridge_core::error::Result;
use weighbridge_core::limits::Limits;
use weighbridge_core::plan::WritePlan;
use weighbridge_core::tensor::{DType, Encoding, Order, Shape};
use weighbridge_io::source::{RangeSource, Source, SourceRef};
use weighbridge_io::testing::materialise;
use weighbridge_pickle::ObjectId;
use weighbridge_testkit::memory;

/// Elements of `view` taken one by one, by the definition of strides.
fn one_by_one(all: &[u8], start: u64, size: u64, extents: &[u64], strides: &[u64]) -> Vec<u8> {
    let mut truth = Vec::new();
    for index in 0..extents.iter().product::<u64>() {
        let (mut rest, mut at) = (index, 0);
        for (extent, stride) in extents.iter().zip(strides).rev() {
            at += rest % extent * stride;
            rest /= extent;
        }
        let at = usize::try_from(start + at * size).unwrap();
        truth.extend_from_slice(&all[at..at + usize::try_from(size).unwrap()]);
    }
    truth
}

#[test]
fn strided_views_match_the_definition_of_strides() -> Result<()> {
    let all: Vec<u8> = (0..240).collect();
    let outer = memory(all.clone());
    let cases: [(&[u64], &[u64]); 12] = [
        (&[3, 4], &[8, 2]),
        (&[4, 3], &[1, 7]),
        (&[2, 3, 4], &[3, 1, 6]),
        (&[5, 3], &[1, 1]),
        (&[4, 5], &[0, 1]),
        (&[7], &[16]),
        (&[0, 3], &[3, 1]),
        (&[], &[]),
        (&[40], &[0]),
        (&[2, 1, 3, 1, 4], &[12, 99, 1, 0, 3]),
        (&[3, 2, 2, 3], &[1, 0, 30, 9]),
        (&[6, 6], &[0, 0]),
    ];
    for size in [1u64, 2, 4] {
        for (extents, strides) in cases {
            let far: u64 = extents.iter().zip(strides).map(|(e, s)| e.saturating_sub(1) * s).sum();
            if 4 + (far + 1) * size > 240 {
                continue;
            }
            let view = StridedSource::new(outer.clone(), 4, size, extents, strides)?;
            let truth = one_by_one(&all, 4, size, extents, strides);
            assert_eq!(view.len(), truth.len() as u64);
            for start in 0..truth.len() {
                for end in start..=truth.len() {
                    let mut part = vec![0; end - start];
                    view.read_at(start as u64, &mut part)?;
                    assert_eq!(part, truth[start..end], "{extents:?} {strides:?} {size} {start}");
                }
            }
        }
    }
    assert_eq!(StridedSource::new(outer, 0, 1, &[3], &[120]).unwrap_err().code().as_str(), "past-the-end");
    Ok(())
}

#[test]
fn distant_dimensions_are_read_in_several_steps() -> Result<()> {
    let all: Vec<u8> = (0u32..3 << 20).map(|i| i.to_le_bytes()[0] ^ i.to_le_bytes()[2]).collect();
    let cases: [(&[u64], &[u64]); 5] = [
        (&[3, 2, 100], &[1, 1 << 20, 1000]),
        // Longer than one span, in steps that include the gaps.
        (&[3000], &[1000]),
        (&[2, 1500], &[1 << 20, 1001]),
        (&[50, 60], &[1, 50_000]),
        (&[1500, 2, 3], &[2000, 3, 0]),
    ];
    for (extents, strides) in cases {
        let view = StridedSource::new(memory(all.clone()), 0, 1, extents, strides)?;
        let truth = one_by_one(&all, 0, 1, extents, strides);
        for (from, to) in [(0, truth.len()), (1, truth.len() - 1), (7, 8), (101, 190)] {
            let mut read = vec![0; to - from];
            view.read_at(from as u64, &mut read)?;
            assert_eq!(read, truth[from..to], "{extents:?} {strides:?}");
        }
    }
    Ok(())
}

/// Source that counts reads and bytes.
#[derive(Debug)]
struct Counted(SourceRef, AtomicU64, AtomicU64);

impl Source for Counted {
    fn len(&self) -> u64 {
        self.0.len()
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.2.fetch_add(buffer.len() as u64, Ordering::Relaxed);
        self.0.read_at(offset, buffer)
    }
    fn label(&self) -> &str {
        self.0.label()
    }
}

#[test]
fn near_elements_share_a_read_and_distant_ones_do_not() -> Result<()> {
    // Shape, strides, calls, bytes.
    type Case = (&'static [u64], &'static [u64], u64, u64);
    let cases: [Case; 5] = [
        (&[1 << 18], &[0], 1, 4),
        (&[1 << 10, 1 << 8], &[0, 1], 1, 4 << 8),
        // A transposed matrix in a stack of matrices: runs of its columns.
        (&[64, 4096], &[1, 4096], 4096, 4 << 18),
        (&[1 << 18], &[2], 2, (8 << 18) - 2 * 4),
        (&[256], &[1 << 16], 256, 4 << 8),
    ];
    for (extents, strides, calls, bytes) in cases {
        let outer = Arc::new(Counted(memory(vec![0; 64 << 20]), AtomicU64::new(0), AtomicU64::new(0)));
        let view = StridedSource::new(outer.clone(), 0, 4, extents, strides)?;
        view.read_at(0, &mut vec![0; usize::try_from(view.len()).unwrap()])?;
        let seen = (outer.1.load(Ordering::Relaxed), outer.2.load(Ordering::Relaxed));
        assert_eq!(seen, (calls, bytes), "{extents:?} {strides:?}");
    }
    Ok(())
}

#[test]
fn a_built_archive_is_read_back_also_inside_another_file() -> Result<()> {
    let source = memory((0..48).collect::<Vec<u8>>());
    let path = || TensorPath::from_dotted("a");
    let column = TensorEntry::dense(path(), DType::F32, Shape::from([2, 3]), &source, 0, Encoding::COLUMN)?;
    let recent = TensorEntry::dense(path(), DType::U16, Shape::from([3]), &source, 8, Encoding::ROW)?;
    let groups = Value::Map(vec![
        (Name::from("lr"), Value::F64(0.1f64.to_bits())),
        (Name::from("params"), Value::List(vec![Value::I64(0), Value::Null, Value::Bool(true)])),
    ]);
    let mut builder = SavedBuilder::new();
    let (first, second) = (builder.tensor(&column)?, builder.tensor(&recent)?);
    let third = builder.alias(&column, first)?;
    assert_eq!(builder.alias(&recent, first).unwrap_err().code().as_str(), "torch-alias");
    let value = builder.value(&groups)?;
    let root = builder.builder_mut().list(vec![first, second, third, value])?;
    let files = vec![builder.finish(root, "")?];
    let plan = WritePlan { format: "torch", kind: "object", files, losses: Vec::new() };
    let bytes = materialise(&plan).remove(0);

    let mut around = vec![7; 100];
    around.extend_from_slice(&bytes);
    around.push(9);
    let range: SourceRef = Arc::new(RangeSource::new(memory(around), 100, bytes.len() as u64)?);
    let saved = read(&range, &Limits::default())?;
    assert_eq!((saved.form(), saved.folder()), (Form::Zip, "archive/"));
    let ids = saved.graph().sequence(saved.root()).unwrap().to_vec();
    for (place, entry) in [(0, &column), (1, &recent), (2, &column)] {
        let found = saved.tensor(ids[place], path())?.unwrap();
        assert_eq!((found.stored, &found.shape), (entry.stored, &entry.shape));
        assert_eq!(found.read_tensor(Order::Row)?, entry.read_tensor(Order::Row)?);
        // Mapped tensors are aligned.
        assert_eq!(found.extents[0].offset % 64, 0);
    }
    assert_eq!(saved.storage_key(ids[0]), saved.storage_key(ids[2]));
    assert_eq!(saved.plain(ids[3])?, Some(groups));
    assert!(saved.tensor(ids[3], path())?.is_none());
    assert_eq!(saved.imports()[0], ("torch._utils", "_rebuild_tensor_v2"));

    let packed = TensorEntry::dense(path(), DType::F4, Shape::from([2]), &source, 0, Encoding::ROW)?;
    assert_eq!(SavedBuilder::new().tensor(&packed).unwrap_err().code().as_str(), "no-such-dtype");
    Ok(())
}

/// torch cannot load a tensor of `_rebuild_tensor_v3` that requires a gradient, nor an integer tensor with one.
#[test]
fn gradients_are_written_as_torch_writes_them() -> Result<()> {
    let source = memory(vec![1; 64]);
    let mut builder = SavedBuilder::new();
    let mut pairs = Vec::new();
    let types = [DType::F32, DType::C64, DType::F8E4M3, DType::U16, DType::I32];
    for dtype in types {
        let path = TensorPath::new(vec![Name::from(dtype.name())]);
        let mut entry = TensorEntry::dense(path, dtype, Shape::from([2]), &source, 0, Encoding::ROW)?;
        entry.attributes.insert(REQUIRES_GRAD.to_owned(), Value::Bool(true));
        let id = builder.tensor(&entry)?;
        let key = builder.builder_mut().text(dtype.name())?;
        pairs.push((key, id));
        if dtype == DType::F8E4M3 {
            let tied = builder.alias(&entry, id)?;
            pairs.push((builder.builder_mut().text("tied")?, tied));
        }
    }
    let root = builder.builder_mut().dict(pairs)?;
    let plan =
        WritePlan { format: "torch", kind: "any", files: vec![builder.finish(root, "")?], losses: vec![] };
    let bytes = materialise(&plan).remove(0);
    let parameters = b"_rebuild_parameter".as_slice();
    assert!(bytes.windows(parameters.len()).any(|window| window == parameters));
    let saved = read(&memory(bytes), &Limits::default())?;
    let graph = saved.graph();
    for &(key, id) in graph.pairs(saved.root()).unwrap_or_default() {
        let name = graph.text(key).unwrap_or_default();
        let (function, args) = graph.call(id).unwrap();
        let is_parameter = function == ("torch._utils", "_rebuild_parameter");
        assert_eq!(is_parameter, ["f8_e4m3", "tied"].contains(&name), "{name}");
        let (function, args) = if is_parameter { graph.call(args[0]).unwrap() } else { (function, args) };
        let own = args[4] == ObjectId::TRUE;
        assert_eq!(own, ["f32", "c64"].contains(&name), "{name} {function:?}");
        let entry = saved.tensor(id, TensorPath::from_dotted("x"))?.unwrap();
        let wants = entry.attributes.contains_key(REQUIRES_GRAD);
        assert_eq!(wants, !["u16", "i32"].contains(&name), "{name}");
    }
    Ok(())
}
