//! Files that are written.

use super::{content, expected, files, open, open_path};
use crate::Flax;
use crate::tree::{CHUNK, IS_SCALAR};
use weighbridge_core::checkpoint::{Checkpoint, Name, Origin, Role, TensorEntry, TensorPath, Value};
use weighbridge_core::tensor::{Cast, DType, Encoding, Order, Shape};
use weighbridge_format::{PlanOptions, WriteFormat};
use weighbridge_io::testing::materialise;
use weighbridge_testkit::memory;

fn write(checkpoint: &Checkpoint) -> Vec<u8> {
    let plan = Flax.plan(checkpoint, &PlanOptions::default()).unwrap();
    materialise(&plan).remove(0)
}

fn entry(name: &str, dtype: DType, shape: &[u64], bytes: &[u8], encoding: Encoding) -> TensorEntry {
    let path = TensorPath::from_dotted(name);
    TensorEntry::dense(path, dtype, Shape::new(shape), &memory(bytes), 0, encoding).unwrap()
}

fn of(tensors: Vec<TensorEntry>) -> Checkpoint {
    Checkpoint { tensors, ..Checkpoint::new("test", "test", "test") }
}

#[test]
fn unchanged_files_have_the_same_bytes() {
    let mut count = 0;
    for (name, bytes) in files() {
        let checkpoint = open(memory(&bytes)).unwrap();
        let plan = Flax.plan(&checkpoint, &PlanOptions::default()).unwrap();
        if name == "unsupported_dtypes.msgpack" {
            assert_eq!(plan.losses.len(), 7, "one for each skipped tensor");
            continue;
        }
        assert_eq!(plan.losses, [], "{name}");
        assert_eq!(materialise(&plan).remove(0), bytes, "{name}");
        count += 1;
    }
    assert!(count >= 20);
}

#[test]
fn checkpoints_of_orbax_keep_their_content() {
    for path in expected("orbax").into_keys() {
        let checkpoint = open_path(&path).unwrap();
        let back = open(memory(write(&checkpoint))).unwrap();
        assert_eq!(content(&back), content(&checkpoint), "{}", path.display());
        let roles = |checkpoint: &Checkpoint| {
            checkpoint.tensors.iter().map(|one| one.role.clone()).collect::<Vec<_>>()
        };
        assert_eq!(roles(&back), roles(&checkpoint));
        assert_eq!(back.metadata.to_json(), checkpoint.metadata.to_json(), "{}", path.display());
    }
}

#[test]
fn changed_trees_keep_the_rest() {
    let mut checkpoint = open(memory(&files()["order.msgpack"])).unwrap();
    checkpoint.tensors.retain(|tensor| tensor.text() != "a");
    checkpoint.tensors[1].path = TensorPath::from_dotted("c.new.x");
    checkpoint.metadata.remove("b");
    let back = open(memory(write(&checkpoint))).unwrap();
    let names: Vec<String> = back.tensors.iter().map(TensorEntry::text).collect();
    assert_eq!(names, ["z", "c.new.x"]);
    let mut values = back.metadata.to_json();
    values.as_object_mut().unwrap().remove(crate::keys::LEAVES);
    assert_eq!(values, serde_json::json!({ "m": {}, "c.y": 2, "c.w": {}, "last": "text" }));
}

#[test]
fn other_checkpoints_come_back_whole() {
    let values: Vec<u8> = (0..24).collect();
    let mut weight = entry("fc1.w", DType::F32, &[3, 2], &values, Encoding::COLUMN);
    let mut state = entry("fc1.w", DType::F32, &[3, 2], &values, Encoding::ROW);
    state.role = Role::OptimizerState { slot: Name::from("Adam.m1") };
    let mut buffer = entry("bn.mean", DType::F64, &[3], &values, Encoding::ROW);
    buffer.role = Role::Buffer;
    buffer.attributes.insert("batch".into(), Value::U64(3));
    weight.guessed = true;
    let mut checkpoint = of(vec![weight, state, buffer]);
    checkpoint.origin = Some(Origin { format: "primitiv".into(), kind: "model".into() });
    checkpoint.metadata.set("epochs", Value::U32(3));
    checkpoint.metadata.set("note", Value::Text("a".into()));
    let plan = Flax.plan(&checkpoint, &PlanOptions::default()).unwrap();
    let losses: Vec<(&str, &str)> =
        plan.losses.iter().map(|loss| (loss.code.as_str(), &*loss.subject)).collect();
    assert_eq!(losses, [("renamed", "fc1.w/Adam.m1")]);
    let back = open(memory(materialise(&plan).remove(0))).unwrap();
    let texts =
        |checkpoint: &Checkpoint| checkpoint.tensors.iter().map(TensorEntry::text).collect::<Vec<_>>();
    assert_eq!(texts(&back), texts(&checkpoint));
    for (a, b) in back.tensors.iter().zip(&checkpoint.tensors) {
        assert_eq!((&a.role, &a.attributes, a.guessed), (&b.role, &b.attributes, b.guessed));
        assert_eq!(a.read_tensor(Order::Row).unwrap(), b.read_tensor(Order::Row).unwrap());
    }
    assert_eq!((back.origin, back.metadata), (checkpoint.origin, checkpoint.metadata));
}

#[test]
fn large_arrays_are_split_at_the_stated_length() {
    let values: Vec<u8> = (0..=255).collect();
    for encoding in [Encoding::ROW, Encoding::COLUMN] {
        for cast in [None, Some(Cast::from(DType::F64))] {
            let mut tensor = entry("a.w", DType::F16, &[16, 8], &values, encoding);
            tensor.cast = cast;
            tensor.attributes.insert(CHUNK.into(), Value::U64(20));
            let bytes = write(&of(vec![tensor.clone()]));
            let back = open(memory(&bytes)).unwrap();
            let found = &back.tensors[0];
            assert_eq!(found.read_tensor(Order::Row).unwrap(), tensor.read_tensor(Order::Row).unwrap());
            // Rows stay whole if elements are reordered or cast.
            let is_plain = cast.is_none() && encoding == Encoding::ROW;
            assert_eq!(found.attributes.get(CHUNK), Some(&Value::U64(if is_plain { 20 } else { 16 })));
        }
    }
}

#[test]
fn scalars_of_numpy_stay_scalars() {
    let bytes = &files()["scalars.msgpack"];
    let checkpoint = open(memory(bytes)).unwrap();
    let scalars: Vec<String> = checkpoint
        .tensors
        .iter()
        .filter(|tensor| tensor.attributes.get(IS_SCALAR) == Some(&Value::Bool(true)))
        .map(TensorEntry::text)
        .collect();
    assert_eq!(scalars, ["numpy", "bf16", "numpy_bool", "i"]);
}

#[test]
fn rejects_names_that_are_also_paths() {
    let plan = |names: [&str; 2]| {
        let tensors = names.map(|name| entry(name, DType::U8, &[1], &[1], Encoding::ROW)).to_vec();
        Flax.plan(&of(tensors), &PlanOptions::default())
    };
    for names in [["a", "a.b"], ["a.b", "a"], ["a.b.c", "a.b"], ["x", "x"]] {
        assert_eq!(plan(names).unwrap_err().code(), "name-collision", "{names:?}");
    }
    plan(["a.b", "a.c"]).unwrap();
}

#[test]
fn rejects_kinds_and_dtypes_that_flax_does_not_have() {
    let one = of(vec![entry("a", DType::F4, &[2], &[1], Encoding::ROW)]);
    assert_eq!(Flax.plan(&one, &PlanOptions::default()).unwrap_err().code(), "no-such-dtype");
    assert_eq!(Flax.plan(&one, &PlanOptions::of_kind("other")).unwrap_err().code(), "unknown-kind");
    assert_eq!(Flax.plan(&one, &PlanOptions::of_kind("sharded")).unwrap_err().code(), "unknown-kind");
    let two = of(["a", "b"].map(|name| entry(name, DType::U8, &[1], &[1], Encoding::ROW)).to_vec());
    assert_eq!(Flax.plan(&two, &PlanOptions::of_kind("array")).unwrap_err().code(), "not-one-tensor");
    let deep = "a.".repeat(200) + "b";
    let deep = of(vec![entry(&deep, DType::U8, &[1], &[1], Encoding::ROW)]);
    assert_eq!(Flax.plan(&deep, &PlanOptions::default()).unwrap_err().code(), "limit");
}
