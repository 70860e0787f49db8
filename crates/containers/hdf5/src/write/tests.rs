use super::*;
use std::sync::Arc;
use weighbridge_core::checkpoint::TensorPath;
use weighbridge_core::plan::{FileBuilder, WritePlan};
use weighbridge_core::tensor::{Encoding, Shape};
use weighbridge_io::source::{MemorySource, SourceRef};
use weighbridge_io::testing::materialise;

fn tensor(dtype: DType, dims: &[u64]) -> Data {
    let shape = Shape::new(dims);
    let bytes = vec![1; usize::try_from(shape.bytes(dtype).unwrap()).unwrap()];
    let source: SourceRef = Arc::new(MemorySource::new("m", bytes));
    Data::Tensor(TensorEntry::dense(TensorPath::value(), dtype, shape, &source, 0, Encoding::ROW).unwrap())
}

fn bytes(builder: Hdf5Builder) -> Vec<u8> {
    let files = vec![builder.finish().unwrap()];
    materialise(&WritePlan { format: "hdf5", kind: "file", files, losses: Vec::new() }).remove(0)
}

fn number(bytes: &[u8], at: usize) -> usize {
    usize::try_from(u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())).unwrap()
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: String = text.split_whitespace().collect();
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}

fn holds(file: &[u8], hex: &str) -> bool {
    let wanted = unhex(hex);
    file.windows(wanted.len()).any(|window| window == wanted)
}

/// Messages as h5py 3.16 wrote them for the same content.
#[test]
fn messages_are_those_of_h5py() {
    let mut builder = Hdf5Builder::new("");
    builder.dataset(&["d"], tensor(DType::F32, &[2, 3])).unwrap();
    builder.dataset(&["bo"], tensor(DType::Bool, &[2])).unwrap();
    builder.dataset(&["c"], tensor(DType::C64, &[1])).unwrap();
    builder.dataset(&["h"], tensor(DType::F16, &[1])).unwrap();
    builder.dataset(&["e"], tensor(DType::I32, &[0, 3])).unwrap();
    for (name, value) in [
        ("i", Value::I64(5)),
        ("b", Value::Bool(true)),
        ("arr", Value::List([0.0f64, 1.0, 2.0].map(|x| Value::F64(x.to_bits())).into())),
        ("v", Value::Bytes(b"abc".into())),
        ("s", Value::Text("héllo".into())),
    ] {
        builder.attribute(&[], name, &value).unwrap();
    }
    let file = bytes(builder);
    for message in [
        // The dataspace of (2, 3), the datatype f32, the fill value.
        "0100 2800 0000 0000 0102 0100 0000 0000 0200 0000 0000 0000 0300 0000 0000 0000
         0200 0000 0000 0000 0300 0000 0000 0000 0300 1800 0100 0000 1120 1f00 0400 0000
         0000 2000 1708 0017 7f00 0000 0000 0000 0500 0800 0100 0000 0202 0201 0000 0000",
        // Booleans.
        "0300 2800 0100 0000 1802 0000 0100 0000 1008 0000 0100 0000 0000 0800 4641 4c53
         4500 0000 5452 5545 0000 0000 0001 0000",
        // Complex numbers.
        "0300 8000 0100 0000 1602 0000 0800 0000 7200 0000 0000 0000 0000 0000 0000 0000
         0000 0000 0000 0000 0000 0000 0000 0000 0000 0000 0000 0000 1120 1f00 0400 0000
         0000 2000 1708 0017 7f00 0000 6900 0000 0000 0000 0400 0000 0000 0000 0000 0000
         0000 0000 0000 0000 0000 0000 0000 0000 0000 0000 1120 1f00 0400 0000",
        // f16, and the layout of a dataset without elements.
        "0300 1800 0100 0000 1120 0f00 0200 0000 0000 1000 0a05 000a 0f00 0000",
        "0800 1800 0000 0000 0301 ffff ffff ffff ffff 0000 0000 0000 0000 0000",
        // Attributes.
        "0c00 3000 0000 0000 0100 0200 0c00 0800 6900 0000 0000 0000 1008 0000 0800 0000
         0000 4000 0000 0000 0100 0000 0000 0000 0500 0000 0000 0000",
        "0c00 4800 0000 0000 0100 0200 2600 0800 6200 0000 0000 0000 1802 0000 0100 0000",
        "0c00 5800 0000 0000 0100 0400 1400 1800 6172 7200 0000 0000 1120 3f00 0800 0000",
        "0c00 2800 0000 0000 0100 0200 0800 0800 7600 0000 0000 0000 1500 0000 0300 0000
         0100 0000 0000 0000 6162 6300 0000 0000",
        "0c00 4000 0000 0000 0100 0200 1400 0800 7300 0000 0000 0000 1901 0100 1000 0000
         1000 0000 0100 0000 0000 0800 0000 0000 0100 0000 0000 0000 0600 0000",
        // The heap of texts.
        "4743 4f4c 0100 0000 0010 0000 0000 0000 0100 0000 0000 0000 0600 0000 0000 0000
         68c3 a96c 6c6f 0000 0000 0000 0000 0000 d80f 0000 0000 0000",
    ] {
        assert!(holds(&file, message), "{message}");
    }
}

#[test]
fn aligns_elements_and_states_the_end_of_the_file() {
    let build = || {
        let mut builder = Hdf5Builder::new("");
        for (name, dtype) in [("a", DType::U8), ("b", DType::F64), ("c", DType::I16)] {
            builder.dataset(&["g", name], tensor(dtype, &[3])).unwrap();
        }
        builder.attribute(&["g", "c"], "text", &Value::Text("x".into())).unwrap();
        builder
    };
    let plan = build().finish().unwrap();
    let copies: Vec<_> = plan
        .segments
        .iter()
        .filter(|s| matches!(s.content, weighbridge_core::plan::Content::Copy { .. }))
        .collect();
    assert_eq!(copies.iter().map(|s| s.len).collect::<Vec<_>>(), [3, 24, 6], "in the order given");
    assert!(copies.iter().all(|s| s.offset % 64 == 0));
    let file = bytes(build());
    assert_eq!(number(&file, 40), file.len());
    assert_eq!(file, bytes(build()), "the same content gives the same bytes");
    for copy in copies {
        let address = copy.offset.to_le_bytes();
        assert!(file.windows(10).any(|w| w[..2] == [3, 1] && w[2..] == address), "{}", copy.offset);
    }
}

/// Collects all names below a B-tree node; checks them against the keys around them.
fn names(file: &[u8], tree: usize, names_at: usize, found: &mut Vec<Vec<u8>>) -> u8 {
    let name = |offset: usize| {
        let at = names_at + offset;
        file[at..].split(|&b| b == 0).next().unwrap().to_vec()
    };
    assert_eq!(&file[tree..tree + 5], b"TREE\0");
    let (level, count) = (file[tree + 5], usize::from(file[tree + 6]));
    for child in 0..count {
        let key = |at: usize| name(number(file, tree + 24 + at * 16));
        let at = number(file, tree + 32 + child * 16);
        let before = found.len();
        if level > 0 {
            assert_eq!(names(file, at, names_at, found) + 1, level);
        } else {
            assert_eq!(&file[at..at + 6], b"SNOD\x01\0");
            let entries = (0..usize::from(file[at + 6])).map(|i| name(number(file, at + 8 + i * 40)));
            found.extend(entries);
        }
        assert!(found[before] > key(child) && found[found.len() - 1] == key(child + 1));
    }
    level
}

#[test]
fn groups_of_any_size_are_sorted_trees() {
    for (count, levels) in [(0usize, 0), (1, 0), (8, 0), (9, 0), (256, 0), (257, 1), (8192, 1), (8193, 2)] {
        let mut builder = Hdf5Builder::new("");
        for number in (0..count).rev() {
            builder.group(&[&format!("member {number}")]).unwrap();
        }
        let file = bytes(builder);
        let (tree, heap) = (number(&file, 80), number(&file, 88));
        let mut found = Vec::new();
        assert_eq!(names(&file, tree, number(&file, heap + 24), &mut found), levels, "{count}");
        assert_eq!(found.len(), count);
        assert!(found.is_sorted());
    }
}

#[test]
fn rejects_objects_that_hdf5_cannot_hold() {
    let mut file = Hdf5Builder::new("");
    file.dataset(&["a", "b"], tensor(DType::F32, &[1])).unwrap();
    let mut code = |path: &[&str], data| file.dataset(path, data).unwrap_err().code().as_str();
    assert_eq!(code(&["a", "b"], tensor(DType::F32, &[1])), "name-collision");
    assert_eq!(code(&["a"], tensor(DType::F32, &[1])), "name-collision");
    assert_eq!(code(&["a", "b", "c"], tensor(DType::F32, &[1])), "name-collision");
    assert_eq!(code(&[], tensor(DType::F32, &[1])), "name-collision");
    for name in ["", ".", "x/y", "x\0"] {
        assert_eq!(code(&[name], tensor(DType::F32, &[1])), "bad-name", "{name:?}");
        assert_eq!(code(&[name, "x"], tensor(DType::F32, &[1])), "bad-name", "{name:?}");
    }
    assert_eq!(code(&["c"], tensor(DType::F8E4M3, &[1])), "no-such-dtype");
    assert_eq!(code(&["c"], tensor(DType::U8, &[1; 33])), "too-many-dimensions");
    file.group(&["a"]).unwrap();
    assert_eq!(file.group(&["a", "b"]).unwrap_err().code().as_str(), "name-collision");

    let mut code = |path: &[&str], name: &str, value: Value| {
        file.attribute(path, name, &value).map_err(|e| e.code().as_str()).err().unwrap_or("fine")
    };
    assert_eq!(code(&["a", "b"], "config/json", Value::I64(1)), "fine");
    assert_eq!(code(&["a", "b"], "config/json", Value::I64(1)), "attribute-twice");
    assert_eq!(code(&["a", "x"], "n", Value::I64(1)), "no-such-object");
    assert_eq!(code(&["a", "b", "x"], "n", Value::I64(1)), "no-such-object");
    for (name, value) in [
        ("", Value::I64(1)),
        ("a\0", Value::I64(1)),
        ("n", Value::Null),
        ("n", Value::Map(Vec::new())),
        ("n", Value::Bytes(Vec::new())),
        ("n", Value::Text("a\0".into())),
        ("n", Value::List(vec![Value::I64(1), Value::U64(1)])),
        ("n", Value::List(vec![Value::List(Vec::new())])),
    ] {
        assert!(!Hdf5Builder::is_attribute(name, &value));
        assert_eq!(code(&[], name, value.clone()), "no-such-attribute", "{name:?} {value:?}");
    }
    let long = Value::List((0..9000).map(Value::I64).collect());
    assert_eq!(code(&["a"], "long", long), "fine");
    assert_eq!(file.finish().unwrap_err().code().as_str(), "hdf5-attribute-too-long");
}

#[test]
fn rejects_headers_with_too_many_messages() {
    let mut file = Hdf5Builder::new("");
    for number in 0..70_000 {
        file.attribute(&[], &number.to_string(), &Value::I64(number)).unwrap();
    }
    assert_eq!(file.finish().unwrap_err().code().as_str(), "hdf5-header");
}

#[test]
fn a_planned_file_becomes_opaque_bytes() {
    let mut inner = FileBuilder::new("ignored");
    inner.literal(b"inner");
    inner.crc32(0..5);
    let crc = crc32fast::hash(b"inner").to_le_bytes();
    let mut file = Hdf5Builder::new("outer");
    file.dataset(&["optimizer", "state_dict"], Data::Opaque(inner.finish())).unwrap();
    file.dataset(&["none"], Data::Opaque(FileBuilder::new("").finish())).unwrap();
    let file = bytes(file);
    assert!(file.ends_with(&[&b"inner"[..], &crc].concat()));
    assert!(holds(&file, "0300 0800 0100 0000 1500 0000 0100 0000"));
}
