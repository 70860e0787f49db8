#![allow(clippy::disallowed_methods)]

use super::*;
use crate::opening::open_source;
use std::sync::Arc;
use weighbridge_core::checkpoint::{Attributes, Metadata, Name, Origin, Role, TensorEntry, TensorPath};
use weighbridge_core::tensor::{Encoding, Shape};
use weighbridge_hdf5::write::Hdf5Builder;
use weighbridge_io::source::MemorySource;
use weighbridge_io::testing::materialise;

fn memory(bytes: Vec<u8>) -> SourceRef {
    Arc::new(MemorySource::new("m", bytes))
}

fn tensor(path: &[&str], dtype: DType, slot: Option<&str>) -> TensorEntry {
    let path = TensorPath::new(path.iter().map(|&part| Name::from(part)).collect::<Vec<_>>());
    let source = memory((0..96).collect());
    let mut entry =
        TensorEntry::dense(path, dtype, Shape::from([2, 3]), &source, 0, Encoding::COLUMN).unwrap();
    if let Some(slot) = slot {
        entry.role = Role::OptimizerState { slot: slot.into() };
    }
    entry
}

fn checkpoint(tensors: Vec<TensorEntry>) -> Checkpoint {
    let mut checkpoint = Checkpoint::new("primitiv", "model", "c");
    checkpoint.tensors = tensors;
    checkpoint
}

fn written(checkpoint: &Checkpoint) -> Vec<u8> {
    let plan = Hdf5.plan(checkpoint, &PlanOptions::default()).unwrap();
    let others: Vec<_> = plan.losses.iter().filter(|loss| loss.code != "renamed").collect();
    assert!(others.is_empty(), "{others:?}");
    materialise(&plan).remove(0)
}

fn opened(bytes: Vec<u8>) -> Checkpoint {
    open_source(memory(bytes), &OpenOptions::default()).unwrap()
}

fn same(a: &Checkpoint, b: &Checkpoint) {
    assert_eq!(a.tensors.len(), b.tensors.len());
    for a in &a.tensors {
        let same_name = |b: &&TensorEntry| (&a.path, &a.role) == (&b.path, &b.role);
        let b = b.tensors.iter().find(same_name).unwrap();
        assert_eq!((a.dtype(), &a.shape, &a.attributes), (b.dtype(), &b.shape, &b.attributes));
        assert_eq!(a.read_tensor(Order::Row).unwrap(), b.read_tensor(Order::Row).unwrap());
    }
}

#[test]
fn dtypes_match_those_of_the_container() {
    for dtype in DType::ALL {
        assert_eq!(INFO.dtypes.contains(&dtype), Hdf5Builder::has_type(dtype), "{dtype}");
    }
}

#[test]
fn every_type_is_written_without_bridge_metadata() {
    let tensors = INFO.dtypes.iter().filter(|&&d| d != DType::Bool);
    let plain = checkpoint(tensors.map(|&d| tensor(&["t", d.name()], d, None)).collect());
    let bytes = written(&plain);
    assert!(!bytes.windows(11).any(|w| w == b"weighbridge"));
    let back = opened(bytes);
    assert_eq!(back.notes, []);
    same(&plain, &back);
}

#[test]
fn variables_of_keras_have_the_names_of_their_layers() {
    for file in ["numbered.weights.h5", "model.keras"] {
        let mut model = opened(weighbridge_testkit::golden(format!("hdf5/keras/{file}")));
        model.use_names(Attributes::STRUCTURED_NAME, Attributes::VARIABLE_NAME).unwrap();
        let layers = model.tensors.iter().filter(|tensor| !tensor.role.is_state());
        let names: Vec<String> = layers.map(TensorEntry::text).collect();
        let of = |name: &str, count: usize| -> Vec<String> {
            (0..count).map(|number| format!("layers.{name}.vars.{number}")).collect()
        };
        assert_eq!(names, [of("bn", 4), of("dense", 2), of("head", 2)].concat(), "{file}");
    }
    let model = opened(weighbridge_testkit::golden("hdf5/keras/numbered.weights.h5"));
    let copy = written(&model);
    // The groups have the names, so the copy does not store them again.
    assert!(!copy.windows(15).any(|window| window == b"structured_name"));
    same(&model, &opened(copy));
}

#[test]
fn a_dataset_with_two_names_is_tied() {
    let model = opened(weighbridge_testkit::golden("hdf5/good/groups_default.h5"));
    let of = |name: &str| {
        let tensor = model.tensors.iter().find(|tensor| tensor.text() == name).unwrap();
        tensor.text_attribute(Attributes::ALIAS_OF).map(str::to_owned)
    };
    let translation = "again.relations.0.operator.rhs.translation";
    assert_eq!((of(translation), of("hard")), (None, Some(translation.to_owned())));
    assert_eq!((of("twelve.d01"), of("soft")), (None, Some("twelve.d01".to_owned())));
}

#[test]
fn names_that_are_invalid_in_hdf5_are_restored() {
    let mut odd = checkpoint(vec![
        tensor(&["a"], DType::F32, None),
        tensor(&["a", "b"], DType::F32, None),
        tensor(&["a", "b", "c"], DType::F32, None),
        tensor(&["a~", "b"], DType::F32, None),
        tensor(&["a"], DType::F32, Some("Adam.m1")),
        tensor(&["a"], DType::F32, Some("Adam/m2")),
        tensor(&["a.b"], DType::F32, None),
        tensor(&["a", "", ".", "..", "x/y", "x_y", "z\0"], DType::F32, None),
        tensor(&["a", "", ".", "..", "x_y", "x_y", "z_"], DType::F32, None),
        tensor(&[""], DType::F32, None),
        tensor(&["größe"], DType::F32, None),
    ]);
    odd.tensors[10].path = TensorPath::new(vec![Name::new(*b"\xff")]);
    odd.tensors[0].attributes.insert("batch".into(), Value::U64(2));
    odd.tensors[0].attributes.insert("narrow".into(), Value::U32(2));
    odd.origin = Some(Origin { format: "primitiv".into(), kind: "model".into() });
    let back = opened(written(&odd));
    assert_eq!(back.notes, []);
    let order = |c: &Checkpoint| c.tensors.iter().map(TensorEntry::name).collect::<Vec<_>>();
    assert_eq!(order(&back), order(&odd));
    assert_eq!(back.origin, odd.origin);
    same(&odd, &back);
    let names = names::dataset_paths(&odd.tensors);
    assert_eq!(names[0], ["a"]);
    // Tensors below a tensor share a group with those of that name.
    assert_eq!(names[1], ["a~", "b"]);
    assert_eq!(names[3], ["a~", "b~2"]);
    assert_eq!(names[4].last().unwrap(), "Adam.m1");
    let unique: std::collections::HashSet<_> = names.iter().collect();
    assert_eq!(unique.len(), names.len());
}

#[test]
fn metadata_is_restored() {
    let mut source = checkpoint(vec![tensor(&["g", "a"], DType::F32, None)]);
    source.metadata = [
        ("text", Value::Text("größe".into())),
        ("nul", Value::Text("a\0b".into())),
        ("", Value::Text("no name".into())),
        ("list", Value::List(vec![Value::I64(-1), Value::I64(1)])),
        ("mixed", Value::List(vec![Value::I64(-1), Value::Text("x".into())])),
        ("long", Value::List((0..20_000).map(Value::U64).collect())),
        ("narrow", Value::F32(0x7fc0_0001)),
        ("wide", Value::F64(0xfff8_0000_0000_0001)),
        ("truth", Value::Bool(true)),
        ("bytes", Value::Bytes(vec![0, 255, 0])),
        ("nothing", Value::Null),
        ("/g", Value::Map(vec![("names".into(), Value::List(vec![Value::Text("a".into())]))])),
        ("/g/a", Value::Map(vec![("in the way".into(), Value::I64(1))])),
        ("/new/group", Value::Map(vec![("x".into(), Value::I64(1))])),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into_iter()
    .collect::<Metadata>();
    let back = opened(written(&source));
    assert_eq!(back.notes, []);
    assert_eq!(back.metadata.iter().count(), source.metadata.iter().count());
    for (key, value) in source.metadata.iter() {
        assert_eq!(back.metadata.get(key), Some(value), "{key}");
    }
}

#[test]
fn rejects_every_prefix_of_a_file() {
    let bytes = written(&checkpoint(vec![tensor(&["a"], DType::F32, None)]));
    for len in 0..bytes.len() {
        let source = memory(bytes[..len].to_vec());
        let options = OpenOptions { format: Some("hdf5".into()), ..OpenOptions::default() };
        assert!(open_source(source, &options).is_err(), "{len}");
    }
}

#[test]
fn a_user_block_is_found() {
    let bytes = written(&checkpoint(vec![tensor(&["a"], DType::F32, None)]));
    for block in [512, 1024, 8192] {
        let moved = [vec![b'u'; block], bytes.clone()].concat();
        assert!(Hdf5.recognises(&moved[..100], &memory(moved.clone())), "{block}");
    }
    let wrong = [vec![b'u'; 600], bytes].concat();
    assert!(!Hdf5.recognises(&wrong[..100], &memory(wrong.clone())));
}

/// A file of another format with HDF5 behind a user block is read as the other format.
#[test]
fn a_user_block_of_another_format_is_detected_as_that_format() {
    let testdata = weighbridge_testkit::testdata("");
    for (name, id) in [("npz/bad/hdf5_too.npz", "npz"), ("torch/bad/hdf5_too.pt", "torch")] {
        let bytes = std::fs::read(testdata.join(name)).unwrap();
        let source = memory(bytes);
        assert!(has_user_block(&source), "{name}");
        assert_eq!(weighbridge::formats::registry().detect(&source).unwrap().info().id, id);
    }
}

/// Readers ignore null messages, messages of unknown types or of types that do not apply to a dataset, and repeated ones.
#[test]
fn ignored_messages_are_hidden_bytes() {
    let mut source = checkpoint(vec![tensor(&["a"], DType::F32, None)]);
    source.metadata = [("secret".to_owned(), Value::Text("here it is".into()))].into_iter().collect();
    let bytes = written(&source);
    let codes = |bytes: Vec<u8>| {
        let options = weighbridge::ops::verify::VerifyOptions::default();
        let report = weighbridge::ops::verify::verify_checkpoint(&opened(bytes), &options).unwrap();
        report.findings.into_iter().map(|f| (f.code.as_str(), f.offset)).collect::<Vec<_>>()
    };
    assert_eq!(codes(bytes.clone()), []);
    let name = bytes.windows(7).position(|window| window == b"secret\0").unwrap();
    // A message prefix has 8 bytes and begins with the type; an attribute has 8 more before its name.
    for kind in [0, 0x09, 0x0f, 0x13, 0x14, 0x17, 0x18, 0x19, 0xff].map(|kind| [kind, 0]) {
        let mut hiding = bytes.clone();
        assert_eq!(hiding[name - 16..][..2], [0x0c, 0]);
        hiding[name - 16..][..2].copy_from_slice(&kind);
        assert_eq!(opened(hiding.clone()).metadata.get("secret"), None);
        // The heap with the text is unreferenced, too.
        assert_eq!(codes(hiding).last(), Some(&("hidden-bytes", Some(name as u64 - 8))));
    }
}

/// BigGraph unpickles the optimizer state even in files without parameters, which are not detected as BigGraph.
#[test]
#[allow(clippy::disallowed_methods)]
fn scans_the_biggraph_optimizer_state_in_any_file() {
    let mut bytes = weighbridge_testkit::golden("scan/bad/optimizer_state.h5");
    let name = bytes.windows(6).position(|window| window == b"model\0").unwrap();
    bytes[name..name + 5].copy_from_slice(b"mudel");
    let source = memory(bytes);
    assert!(Hdf5.recognises(b"\x89HDF\r\n\x1a\n", &source));
    let scan = Hdf5.scan(&source, &OpenOptions::default()).unwrap();
    let inner = scan.inner.iter().find(|inner| inner.name.ends_with("optimizer/state_dict")).unwrap();
    assert_eq!(inner.assumed_type, weighbridge_scan::AssumedType::File);
}

/// Types and dimensions of attributes, null attributes, null datasets and empty groups: as h5py wrote them, and as they are
/// written again.
#[test]
fn attributes_keep_their_types() {
    let file = weighbridge_testkit::testdata("hdf5/forms/attributes.h5");
    let source = opened(std::fs::read(file).unwrap());
    assert_eq!(source.notes, []);
    let types = |checkpoint: &Checkpoint| {
        let Some(Value::Map(types)) = checkpoint.tensors[0].attributes.get(types::KEY) else { panic!() };
        types.iter().map(|(name, _)| name.to_text()).collect::<Vec<_>>()
    };
    assert_eq!(types(&source).len(), 13, "{:?}", types(&source));
    let again = opened(written(&source));
    assert_eq!(again.notes, []);
    assert_eq!(again.metadata, source.metadata);
    assert_eq!(again.metadata.get("/hollow"), Some(&Value::Map(Vec::new())));
    same(&source, &again);
    // Through another format too, and no further where the value is another one by then.
    let mut changed = source.clone();
    changed.tensors[0].attributes.insert("i8".into(), Value::I64(300));
    let plan = Hdf5.plan(&changed, &PlanOptions::default()).unwrap();
    assert_eq!(plan.losses.iter().map(|loss| loss.code.as_str()).collect::<Vec<_>>(), ["attribute-form"]);
    assert!(plan.losses[0].detail.ends_with(": i8"), "{:?}", plan.losses);
}

/// Stored types may come from untrusted bridge metadata.
#[test]
fn invalid_stored_types_are_not_written() {
    let mut source = checkpoint(vec![tensor(&["a"], DType::F32, None)]);
    let text = |size: u32| [&[0x13, 0, 0, 0][..], &size.to_le_bytes()].concat();
    for (datatype, value) in [
        (text(u32::MAX), Value::Text("x".into())),
        (text(1), Value::Text("xy".into())),
        (text(60_001), Value::Text("x".into())),
        (vec![0x10], Value::I64(1)),
        (text(8), Value::List(vec![Value::List(vec![Value::Text("x".into())]), Value::List(Vec::new())])),
    ] {
        let types = Value::Map(vec![("n".into(), Value::Bytes(datatype))]);
        source.tensors[0].attributes = [("n".to_owned(), value), (types::KEY.to_owned(), types)].into();
        let plan = Hdf5.plan(&source, &PlanOptions::default()).unwrap();
        assert_eq!(plan.losses.iter().map(|loss| loss.code.as_str()).collect::<Vec<_>>(), ["attribute-form"]);
        same(&source, &opened(materialise(&plan).remove(0)));
    }
}

/// See `make_named_types` in judges/make_hdf5.py: a named datatype is noted as skipped, and its bytes are accounted for.
#[test]
fn named_types_are_noted_as_skipped() {
    let file = weighbridge_testkit::testdata("hdf5/forms/named_types.h5");
    let checkpoint = weighbridge::formats::open(&file).unwrap();
    let notes: Vec<_> = checkpoint.left_out().map(|note| (note.code.as_str(), note.text.as_str())).collect();
    let below = "/below/noted: named datatype with 1 attribute skipped; datasets of this type are read";
    let kind = "/kind: named datatype skipped; datasets of this type are read";
    assert_eq!(notes, [("named-type", below), ("named-type", kind)]);
    let losses = Hdf5.plan(&checkpoint, &PlanOptions::default()).unwrap().losses;
    assert_eq!(losses.iter().filter(|loss| loss.code == "omitted").count(), 2, "{losses:?}");
    let report = weighbridge::ops::verify::verify(&file, &Default::default()).unwrap();
    assert_eq!(report.verdict, weighbridge_core::finding::Verdict::Sound, "{:?}", report.findings);
    let without = materialise(&Hdf5.plan(&checkpoint, &PlanOptions::default()).unwrap()).remove(0);
    let dir = tempfile::tempdir().unwrap();
    let other = dir.path().join("o.h5");
    std::fs::write(&other, without).unwrap();
    for (no_metadata, expected) in [(false, "could not tell"), (true, "equal")] {
        let mut options = weighbridge::ops::diff::DiffOptions::default();
        options.no_metadata = no_metadata;
        let report = weighbridge::ops::diff::diff(&file, &other, &options).unwrap();
        assert_eq!(report.verdict().to_string(), expected);
    }
}

#[test]
fn many_named_types_are_counted() {
    let mut named = Vec::new();
    for number in 0..250 {
        named.push(weighbridge_hdf5::NamedType { path: vec![format!("t{number}")], attributes: 0 });
    }
    let mut checkpoint = checkpoint(Vec::new());
    read::note_named_types(&named, &mut checkpoint);
    assert_eq!(checkpoint.notes.len(), 101);
    assert_eq!(checkpoint.notes[100].text, "150 more named datatypes skipped");
}
