//! Tests of the planner: refusals and losses.

use super::*;
use weighbridge_core::Kind;
use weighbridge_core::checkpoint::{Loss, Note, Origin, Role, TensorEntry};
use weighbridge_core::tensor::{DType, Encoding, Shape};
use weighbridge_format::{Detect, WriteFormat};

/// A row-major f32 tensor with the values 0, 1, 2, ...
fn entry(path: &str, dims: &[u64]) -> TensorEntry {
    typed_entry(path, dims, DType::F32)
}

fn typed_entry(path: &str, dims: &[u64], dtype: DType) -> TensorEntry {
    let n = u16::try_from(dims.iter().product::<u64>()).unwrap();
    let mut bytes: Vec<u8> = (0..n).flat_map(|i| f32::from(i).to_le_bytes()).collect();
    bytes.resize(usize::from(n) * 16, 0);
    let path = TensorPath::parse(path);
    TensorEntry::dense(path, dtype, Shape::new(dims), &memory(&bytes), 0, Encoding::ROW).unwrap()
}

fn state(path: &str, dims: &[u64], slot: &str) -> TensorEntry {
    TensorEntry { role: Role::OptimizerState { slot: slot.into() }, ..entry(path, dims) }
}

fn batched(mut entry: TensorEntry, batch: Value) -> TensorEntry {
    entry.attributes.insert("batch".into(), batch);
    entry
}

fn checkpoint(tensors: Vec<TensorEntry>) -> Checkpoint {
    Checkpoint { tensors, ..Checkpoint::new("other", "any", "m") }
}

fn plan(checkpoint: &Checkpoint, kind: &str) -> weighbridge_core::Result<weighbridge_core::plan::WritePlan> {
    Primitiv.plan(checkpoint, &PlanOptions::of_kind(kind))
}

fn codes(losses: &[Loss]) -> Vec<(&str, &str)> {
    losses.iter().map(|loss| (loss.code.as_str(), loss.subject.as_str())).collect()
}

#[test]
fn rows_become_columns_and_elements_keep_their_index() {
    let c = checkpoint(vec![entry("w", &[2, 3]), batched(state("w", &[2, 1, 2], "s"), Value::U64(2))]);
    let plan = plan(&c, "model").unwrap();
    let bytes = materialise(&plan).remove(0);
    let model = Model::from_bytes(bytes.clone(), true).unwrap();
    let w = model.parameter("w").unwrap();
    assert_eq!(w.value().data(), [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
    assert_eq!(w.value().get(&[1, 2]), Some(5.0));
    let stat = w.stat("s").unwrap();
    assert_eq!((stat.dims(), stat.batch()), (&[2][..], 2));
    // Row-major [2, 1, 2]: element (i, 0, b) is 2 i + b.
    assert_eq!(stat.get_in(1, &[0]), Some(1.0));
    assert_eq!(stat.data(), [0.0, 2.0, 1.0, 3.0]);
    assert_eq!(codes(&plan.losses), [("shape-normalised", "w/s")]);
    assert_eq!(Model::from_checkpoint(&c, true).unwrap(), model);
    assert_eq!(Model::from_checkpoint(&open(&bytes).unwrap(), true).unwrap(), model);
}

#[test]
fn entries_are_sorted_and_state_follows_its_parameter() {
    let c = checkpoint(vec![
        state("b", &[1], "z"),
        entry("b", &[1]),
        entry(r#"["a.b"]"#, &[]),
        state("b", &[2], "a"),
        entry("a.b", &[2]),
    ]);
    let plan = plan(&c, "model").unwrap();
    let again = open(&materialise(&plan)[0]).unwrap();
    let names: Vec<_> = again.tensors.iter().map(|t| (t.path.to_json_text(), t.text())).collect();
    let expected = [
        (r#"["a","b"]"#, "a.b"),
        (r#"["a.b"]"#, "a.b"),
        (r#"["b"]"#, "b"),
        (r#"["b"]"#, "b/z"),
        (r#"["b"]"#, "b/a"),
    ];
    assert_eq!(names, expected.map(|(path, text)| (path.to_owned(), text.to_owned())));
    assert_eq!(again.notes, []);
}

#[test]
fn rejects_tensors_that_primitiv_cannot_store() {
    let mut empty = entry("w", &[2]);
    empty.path = TensorPath::default();
    let mut huge = entry("w", &[2]);
    huge.shape = Shape::from([1 << 15, 1 << 15]);
    let ints = typed_entry("w", &[2], DType::I64);
    let doubles = typed_entry("w", &[2], DType::F64);
    let u32_batch = batched(entry("w", &[2, 2]), Value::U32(2));
    let cases: Vec<(&str, Vec<TensorEntry>, &str, Option<&str>)> = vec![
        ("model", vec![doubles], "dtype", Some("`cast f32`")),
        ("model", vec![ints], "dtype", Some("exclude it with")),
        ("model", vec![entry("w", &[2, 0])], "zero-size", Some("exclude")),
        ("model", vec![huge], "too-large", Some("split")),
        ("model", vec![entry("w", &[2; 9])], "too-many-dims", Some("reshape")),
        ("model", vec![state("w", &[2], "s")], "state-without-parameter", Some("drop the state")),
        ("model", vec![entry("w", &[]), state("v", &[2], "s")], "state-without-parameter", None),
        ("model", vec![entry("a.b", &[]), entry("a", &[])], "name-clash", Some("rename")),
        ("model", vec![entry("a", &[]), entry("a", &[])], "name-collision", None),
        ("model", vec![entry("a", &[]), state("a", &[], "s"), state("a", &[], "s")], "name-collision", None),
        ("model", vec![batched(entry("w", &[3, 2]), Value::U64(2))], "batched-parameter", None),
        ("parameter", vec![batched(entry("w", &[3, 2]), Value::U64(2))], "batched-parameter", None),
        ("tensor", vec![batched(entry("w", &[3, 2]), Value::U64(3))], "batch", None),
        ("tensor", vec![u32_batch], "batch", None),
        ("model", vec![empty], "empty-path", None),
        ("tensor", vec![], "not-one-tensor", Some("`select`")),
        ("tensor", vec![entry("a", &[]), entry("b", &[])], "not-one-tensor", None),
        ("parameter", vec![entry("a", &[]), entry("b", &[])], "not-one-tensor", None),
        ("parameter", vec![], "not-one-tensor", None),
        ("shape", vec![], "no-shape", None),
        ("optimizer", vec![entry("a", &[])], "no-settings", None),
    ];
    for (kind, tensors, code, hint) in cases {
        let error = plan(&checkpoint(tensors.clone()), kind).expect_err(code);
        assert_eq!((error.kind(), error.code().as_str()), (Kind::Mismatch, code), "{error}");
        if let Some(hint) = hint {
            assert!(error.hint_text().unwrap().contains(hint), "{error}");
        }
        if !tensors.is_empty() && !["not-one-tensor", "no-settings", "empty-path"].contains(&code) {
            assert!(error.tensor().is_some(), "{error}");
        }
    }
    assert_eq!(plan(&checkpoint(vec![]), "pickle").unwrap_err().kind(), Kind::Usage);
}

#[test]
fn a_cast_makes_doubles_fit() {
    let mut c = checkpoint(vec![typed_entry("w", &[2], DType::F64)]);
    c.cast_floats(DType::F32).unwrap();
    let bytes = materialise(&plan(&c, "model").unwrap()).remove(0);
    assert_eq!(open(&bytes).unwrap().tensors[0].bytes(), 8);
}

#[test]
fn losses_are_named() {
    let mut odd = entry("w", &[3, 1, 1]);
    odd.role = Role::Buffer;
    odd.attributes.insert("lod".into(), Value::Bool(true));
    let mut c = checkpoint(vec![odd, batched(entry("v", &[3, 1]), Value::U64(1)), entry("u", &[1])]);
    c.metadata.set("epoch", Value::U64(3));
    c.metadata.set("best\n", Value::Text("yes".into()));
    c.notes = vec![Note::new("remark", "fine"), Note::omission("program", "the program is left out")];
    let expected = [
        ("shape-normalised", "u"),
        ("shape-normalised", "w"),
        ("attribute-dropped", "w"),
        ("role", "w"),
        ("metadata-dropped", "epoch"),
        ("metadata-dropped", "best\\n"),
        ("omitted", "program"),
    ];
    assert_eq!(codes(&plan(&c, "model").unwrap().losses), expected);
    let one = checkpoint(vec![entry("w", &[2]), state("w", &[2], "s")]);
    assert_eq!(codes(&plan(&one, "parameter").unwrap().losses), [("name-dropped", "w")]);
    let one = checkpoint(vec![entry("value", &[2]), state("value", &[2], "s")]);
    assert_eq!(codes(&plan(&one, "parameter").unwrap().losses), []);
    let stat = checkpoint(vec![state("value", &[2], "s")]);
    assert_eq!(codes(&plan(&stat, "tensor").unwrap().losses), [("role", "value/s")]);
}

#[test]
fn the_kind_follows_request_then_origin() {
    let mut c = checkpoint(vec![entry("value", &[2])]);
    let kind = |c: &Checkpoint, kind: Option<&str>| {
        Primitiv
            .plan(c, &PlanOptions { kind: kind.map(str::to_owned), ..PlanOptions::default() })
            .unwrap()
            .kind
    };
    assert_eq!(kind(&c, None), "model");
    c.origin = Some(Origin { format: "primitiv".into(), kind: "parameter".into() });
    assert_eq!(kind(&c, None), "parameter");
    assert_eq!(kind(&c, Some("tensor")), "tensor");
    c.origin = Some(Origin { format: "paddle".into(), kind: "combined".into() });
    assert_eq!(kind(&c, None), "model");
}

#[test]
fn settings_and_shapes_come_from_metadata() {
    let adam = Optimizer::new(&OptimizerClass::Adam);
    let mut c = adam.to_checkpoint();
    c.metadata.set("other", Value::Bool(true));
    let planned = plan(&c, "optimizer").unwrap();
    assert_eq!(codes(&planned.losses), [("metadata-dropped", "other")]);
    assert_eq!(materialise(&planned), [adam.to_bytes().unwrap()]);
    c.tensors.push(entry("w", &[2]));
    assert_eq!(plan(&c, "optimizer").unwrap_err().code().as_str(), "no-room-for-tensors");
    c.tensors.clear();
    c.metadata.set("float_configs", Value::Map(vec![("x".into(), Value::U32(1))]));
    assert_eq!(plan(&c, "optimizer").unwrap_err().code().as_str(), "setting-type");
    let twice = vec![("x".into(), Value::F32(1)), ("x".into(), Value::F32(1))];
    c.metadata.set("float_configs", Value::Map(twice));
    assert_eq!(plan(&c, "optimizer").unwrap_err().code().as_str(), "duplicate-key");

    let mut c = checkpoint(vec![]);
    c.metadata.set("dims", Value::List(vec![Value::U32(3), Value::U32(1)]));
    c.metadata.set("batch", Value::U32(7));
    let planned = plan(&c, "shape").unwrap();
    assert_eq!(codes(&planned.losses), [("shape-normalised", "dims")]);
    assert_eq!(
        materialise(&planned)[0],
        b"\xce\0\0\0\0\xce\0\0\0\x01\xce\0\0\0\0\x91\xce\0\0\0\x03\xce\0\0\0\x07"
    );
    c.metadata.set("batch", Value::U32(0));
    assert_eq!(plan(&c, "shape").unwrap_err().code().as_str(), "zero-batch");
    c.metadata.set("batch", Value::U32(u32::MAX));
    assert_eq!(plan(&c, "shape").unwrap_err().code().as_str(), "shape-overflow");
}

#[test]
fn errors_have_offset_expected_and_found() {
    let file =
        |kind: u8, body: &[u8]| [b"\xce\0\0\0\0\xce\0\0\0\x01\xce\0\0".as_slice(), &[kind, 0], body].concat();
    let error = open(&file(1, b"\x01")).unwrap_err();
    assert_eq!((error.code().as_str(), error.offset()), ("primitiv-marker", Some(15)));
    assert_eq!(error.expected_text(), Some("an array"));
    assert_eq!(error.found_text(), Some("a small integer (01)"));
    let error = open(&file(3, b"\xcd\0\x01")).unwrap_err();
    assert_eq!((error.code().as_str(), error.expected_text()), ("primitiv-marker", Some("a uint32 (ce)")));
    assert!(error.hint_text().unwrap().contains("only ce"));
    // An entry of a model names its parameter.
    let bad = b"\xce\0\0\0\x01\x91\xa2fc\x91\xce\0\0\0\x02\xce\0\0\0\x01\xc4\x04\0\0\0\0\xce\0\0\0\0";
    let error = open(&file(3, bad)).unwrap_err();
    assert_eq!(
        (error.code().as_str(), error.offset(), error.tensor()),
        ("length-mismatch", Some(35), Some("fc"))
    );
    assert_eq!(error.expected_text(), Some("8 bytes for [2]"));
    assert_eq!(error.found_text(), Some("4 bytes"));
    let error = open(b"\xce\0\0\0\x01\xce\0\0\0\x01\xce\0\0\0\0").unwrap_err();
    assert_eq!((error.kind(), error.code().as_str()), (Kind::Unsupported, "wrong-version"));
    assert_eq!(error.found_text(), Some("1.1"));
}

#[test]
fn format_is_detected_by_content() {
    let recognises = |head: &[u8]| Primitiv.recognises(head, &memory(head));
    assert!(recognises(b"\xce\0\0\0\0\xce\0\0\0\x01"));
    assert!(recognises(b"\xce\0\0\0\x07\xce\0\0\0\x01\xce"));
    assert!(!recognises(b"\xce\0\0\0\x07\xce\0\0\0\x01"));
    assert!(!recognises(b""));
}
