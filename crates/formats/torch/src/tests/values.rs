//! Values next to tensors: numpy scalars, objects of classes, lists and tuples.

use super::*;
use weighbridge::ops::verify::verify_checkpoint;
use weighbridge_core::checkpoint::{Container, Containers};
use weighbridge_core::plan::WritePlan;
use weighbridge_core::tensor::{Encoding, Shape};
use weighbridge_pickle::{NumpyModules, ObjectId};
use weighbridge_torch_archive::SavedBuilder;

/// A file with the object from `make`, which gets a tensor.
fn saved(make: impl FnOnce(&mut SavedBuilder, ObjectId) -> Result<ObjectId>) -> Vec<u8> {
    of_floats(2, make)
}

fn of_floats(count: u32, make: impl FnOnce(&mut SavedBuilder, ObjectId) -> Result<ObjectId>) -> Vec<u8> {
    let path = weighbridge_core::checkpoint::TensorPath::from_dotted("w");
    let bytes = memory(vec![0; 4 * usize::try_from(count).unwrap()]);
    let shape = Shape::from([u64::from(count)]);
    let entry = TensorEntry::dense(path, DType::F32, shape, &bytes, 0, Encoding::ROW).unwrap();
    let mut builder = SavedBuilder::new();
    let tensor = builder.tensor(&entry).unwrap();
    let root = make(&mut builder, tensor).unwrap();
    let files = vec![builder.finish(root, "").unwrap()];
    materialise(&WritePlan { format: "torch", kind: OBJECT, files, losses: Vec::new() }).remove(0)
}

/// A dict of these values and of the tensor `w`.
fn beside(
    make: impl FnOnce(&mut SavedBuilder, ObjectId) -> Result<Vec<(&'static str, ObjectId)>>,
) -> Checkpoint {
    let bytes = saved(|builder, tensor| {
        let values = make(builder, tensor)?;
        let mut pairs = vec![(builder.builder_mut().interned("w")?, tensor)];
        for (key, value) in values {
            pairs.push((builder.builder_mut().interned(key)?, value));
        }
        builder.builder_mut().dict(pairs)
    });
    open_bytes(&bytes).unwrap()
}

fn metadata_json(checkpoint: &Checkpoint) -> Json {
    checkpoint.metadata.to_json()
}

#[test]
fn numpy_scalars_become_exact_numbers() {
    let nan = 0x7ff8_0000_dead_beefu64;
    let checkpoint = beside(|builder, _| {
        let b = builder.builder_mut();
        let mut scalar = |dtype, bytes: &[u8]| b.scalar(dtype, bytes.to_vec(), NumpyModules::Core);
        Ok(vec![
            ("f64", scalar(DType::F64, &nan.to_le_bytes())?),
            ("f32", scalar(DType::F32, &1.5f32.to_le_bytes())?),
            ("f16", scalar(DType::F16, &[0, 0x3e])?),
            ("i64", scalar(DType::I64, &(-7i64).to_le_bytes())?),
            ("u64", scalar(DType::U64, &u64::MAX.to_le_bytes())?),
            ("u8", scalar(DType::U8, &[200])?),
            ("bool", scalar(DType::Bool, &[1])?),
        ])
    });
    let value = |key: &str| checkpoint.metadata.get(key).unwrap().clone();
    assert_eq!(value("f64"), Value::F64(nan));
    assert_eq!(value("f32"), Value::F32(1.5f32.to_bits()));
    assert_eq!(value("f16"), Value::F32(1.5f32.to_bits()));
    assert_eq!((value("i64"), value("u64")), (Value::I64(-7), Value::U64(u64::MAX)));
    assert_eq!((value("u8"), value("bool")), (Value::I64(200), Value::Bool(true)));
    assert!(checkpoint.notes.is_empty(), "{:?}", checkpoint.notes);
    assert_eq!(verify_checkpoint(&checkpoint, &Default::default()).unwrap().verdict, Verdict::Sound);
    // Complex numbers have no value type: a note says so, and no other number is read.
    let complex = beside(|builder, _| {
        let scalar = builder.builder_mut().scalar(DType::C64, vec![0; 8], NumpyModules::Core)?;
        Ok(vec![("c64", scalar)])
    });
    assert!(complex.notes.iter().any(|n| n.omission && n.text.contains("scalar")), "{:?}", complex.notes);
}

/// An object of a class with a state.
fn object(builder: &mut SavedBuilder, class: (&str, &str), state: ObjectId) -> Result<ObjectId> {
    let b = builder.builder_mut();
    let (class, args) = (b.global(class.0, class.1)?, b.tuple(&[])?);
    let object = b.new_object(class, args)?;
    b.build(object, state)?;
    Ok(object)
}

#[test]
fn objects_of_plain_values_become_maps() {
    let checkpoint = beside(|builder, _| {
        let state = builder.value(&Value::Map(vec![(Name::from("lr"), Value::F64(0.5f64.to_bits()))]))?;
        let options = object(builder, ("argparse", "Namespace"), state)?;
        let own = object(builder, ("__main__", "Config"), options)?;
        let b = builder.builder_mut();
        let (path, args) = (b.global("pathlib", "PosixPath")?, [b.interned("a")?, b.interned("b")?]);
        let args = b.tuple(&args)?;
        let path = b.reduce(path, args)?;
        let (of, int) = (b.global("collections", "defaultdict")?, b.global("builtins", "int")?);
        let args = b.tuple(&[int])?;
        let counts = b.reduce(of, args)?;
        let pair = (b.interned("x")?, b.int(1)?);
        b.set_items(counts, &[pair])?;
        Ok(vec![("own", own), ("path", path), ("counts", counts)])
    });
    let expected = json!({
        "own": { "@class": "__main__.Config",
            "state": { "@class": "argparse.Namespace", "state": { "lr": 0.5 } } },
        "path": { "@class": "pathlib.PosixPath", "args": ["a", "b"] },
        "counts": { "@class": "collections.defaultdict",
            "args": [{ "@global": "__builtin__.long" }], "pairs": { "x": 1 } },
    });
    assert_eq!(metadata_json(&checkpoint), expected);
    assert!(checkpoint.notes.is_empty(), "{:?}", checkpoint.notes);
    assert_eq!(verify_checkpoint(&checkpoint, &Default::default()).unwrap().verdict, Verdict::Sound);
}

/// Results of functions, and objects of packages with data of their own, are skipped with a note.
#[test]
fn opaque_objects_are_skipped_with_a_note() {
    for (module, name, by_class) in [
        ("os", "system", false),
        ("__main__", "make", false),
        ("torch", "zeros", false),
        ("torch", "Tensor", true),
        ("numpy", "ndarray", true),
        ("shutil", "rmtree", true),
    ] {
        let checkpoint = beside(|builder, _| {
            let b = builder.builder_mut();
            let (callable, arg) = (b.global(module, name)?, b.int(3)?);
            let args = b.tuple(&[arg])?;
            let made = if by_class { b.new_object(callable, args)? } else { b.reduce(callable, args)? };
            Ok(vec![("x", made)])
        });
        let what = format!("{module}.{name}");
        assert!(checkpoint.notes.iter().any(|n| n.omission && n.text.contains(&what)), "{what}");
        let report = verify_checkpoint(&checkpoint, &Default::default()).unwrap();
        assert_eq!(report.verdict, Verdict::CouldNotTell, "{what}");
    }
    // An object with a tensor: the tensor is read, the other content is skipped with a note.
    let checkpoint = beside(|builder, tensor| {
        let b = builder.builder_mut();
        let pairs = vec![(b.interned("t")?, tensor), (b.interned("lr")?, b.float(0.5)?)];
        let state = b.dict(pairs)?;
        Ok(vec![("args", object(builder, ("argparse", "Namespace"), state)?)])
    });
    assert_eq!(checkpoint.tensors.len(), 2);
    assert_eq!(checkpoint.tensors[1].text(), "args.t");
    assert!(checkpoint.notes.iter().any(|n| n.omission && n.text.contains("argparse.Namespace")));
}

fn containers(checkpoint: &Checkpoint) -> &Containers {
    checkpoint.containers.as_deref().unwrap()
}

#[test]
fn lists_tuples_and_number_keys_are_recorded() {
    let of = |make: fn(&mut SavedBuilder, ObjectId) -> Result<ObjectId>| open_bytes(&saved(make)).unwrap();
    let list = of(|builder, tensor| builder.builder_mut().list(vec![tensor]));
    let tuple = of(|builder, tensor| builder.builder_mut().tuple(&[tensor]));
    let numbers = of(|builder, tensor| {
        let b = builder.builder_mut();
        let key = b.int(0)?;
        b.dict(vec![(key, tensor)])
    });
    let texts = of(|builder, tensor| {
        let b = builder.builder_mut();
        let key = b.text("0")?;
        b.ordered_dict(&[(key, tensor)])
    });
    for (checkpoint, kind) in
        [(&list, Container::List), (&tuple, Container::Tuple), (&numbers, Container::Numbers)]
    {
        assert_eq!(checkpoint.tensors[0].text(), "0");
        assert_eq!(containers(checkpoint).of_tensors().collect::<Vec<_>>(), [("", &kind)]);
    }
    assert_eq!(containers(&texts).of_tensors().count(), 0);
    // Containers of values, under their key.
    let values = beside(|builder, _| {
        let b = builder.builder_mut();
        let (one, two) = (b.int(1)?, b.int(2)?);
        let inner = b.tuple(&[one, two])?;
        let pairs = vec![(one, inner)];
        let map = b.dict(pairs)?;
        Ok(vec![("groups", b.list(vec![map])?)])
    });
    assert_eq!(
        containers(&values).of_values().collect::<Vec<_>>(),
        [
            ("groups", "", &Container::List),
            ("groups", "0", &Container::Numbers),
            ("groups", "0/1", &Container::Tuple)
        ]
    );
    // Metadata outside of the pickle has no containers.
    let mut plan = Torch.plan(&values, &PlanOptions::default()).unwrap();
    plan.losses.clear();
    let again = open_bytes(&materialise(&plan).remove(0)).unwrap();
    assert_eq!(again.metadata, values.metadata);
    assert!(containers(&again).values_are_elsewhere());
}

/// `list(big.unbind())`: a small file with very many tensors, each with the few bytes that torch writes.
#[test]
fn many_small_views_of_one_storage_are_read() {
    const VIEWS: u32 = 40_000;
    let bytes = of_floats(VIEWS, |builder, _| {
        let b = builder.builder_mut();
        let (function, class) =
            (b.global("torch._utils", "_rebuild_tensor_v2")?, b.global("torch", "FloatStorage")?);
        let (tag, key, place, count) =
            (b.interned("storage")?, b.text("0")?, b.interned("cpu")?, b.int(VIEWS.into())?);
        let (one, no) = (b.int(1)?, b.bool(false));
        let mut pairs = Vec::new();
        for i in 0..VIEWS {
            // Same as torch: only texts and classes are shared.
            let reference = b.tuple(&[tag, class, key, place, count])?;
            let storage = b.persistent(reference)?;
            let (first, size, stride) = (b.int(i.into())?, b.tuple(&[one])?, b.tuple(&[one])?);
            let hooks = b.ordered_dict(&[])?;
            let args = b.tuple(&[storage, first, size, stride, no, hooks])?;
            pairs.push((b.text(&format!("layer.{i}.w"))?, b.reduce(function, args)?));
        }
        b.dict(pairs)
    });
    assert!(bytes.len() < 4_000_000, "{}", bytes.len());
    let checkpoint = open_bytes(&bytes).unwrap();
    assert_eq!(checkpoint.tensors.len(), 40_000);
    let last = checkpoint.tensors.last().unwrap();
    assert_eq!(last.text(), "layer.39999.w");
    // The views are distinct tensors.
    assert_eq!(last.text_attribute(Attributes::ALIAS_OF), None);
}
