//! Models of Keras 3 and tf-keras (`judges/make_keras_models.py`): read, written, damaged.
#![allow(clippy::disallowed_methods)]

use super::*;
use crate::opening::open_source;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use weighbridge_core::checkpoint::{Attributes, Role, TensorEntry};
use weighbridge_io::testing::materialise;
use weighbridge_testkit::{golden, memory};
use weighbridge_zip as zip;

/// By dataset: dtype, shape and hash of the elements.
type Datasets = BTreeMap<String, (String, Vec<u64>, String)>;

/// Datasets of each file, as h5py reads them.
fn expected() -> BTreeMap<String, Datasets> {
    serde_json::from_slice(&golden("hdf5/models/expected.json")).unwrap()
}

fn bytes(name: &str) -> Vec<u8> {
    golden(format!("hdf5/models/{name}"))
}

fn open_bytes(bytes: &[u8]) -> Result<Checkpoint> {
    open_source(memory(bytes), &OpenOptions::default())
}

fn opened(name: &str) -> Checkpoint {
    open_bytes(&bytes(name)).unwrap()
}

fn kind_of(name: &str) -> &'static str {
    if name.ends_with(".keras") { ARCHIVE } else { KIND }
}

fn written(checkpoint: &Checkpoint, kind: &str) -> Vec<u8> {
    let plan = Hdf5.plan(checkpoint, &PlanOptions::of_kind(kind)).unwrap();
    assert!(plan.losses.is_empty(), "{:?}", plan.losses);
    materialise(&plan).remove(0)
}

fn texts(checkpoint: &Checkpoint) -> Vec<String> {
    checkpoint.tensors.iter().map(TensorEntry::text).collect()
}

fn described(checkpoint: &Checkpoint) -> Vec<(String, Role, Attributes)> {
    let one = |tensor: &TensorEntry| (tensor.text(), tensor.role.clone(), tensor.attributes.clone());
    checkpoint.tensors.iter().map(one).collect()
}

fn same(a: &Checkpoint, b: &Checkpoint) {
    let key = |(name, role, attributes): &(String, Role, Attributes)| {
        (
            name.clone(),
            role.clone(),
            attributes.iter().map(|(k, v)| (k.clone(), v.clone())).collect::<Vec<_>>(),
        )
    };
    let keys = |checkpoint| described(checkpoint).iter().map(key).collect::<Vec<_>>();
    assert_eq!(keys(a), keys(b));
    let sorted = |checkpoint: &Checkpoint| {
        let mut pairs: Vec<_> = checkpoint.metadata.iter().map(|(k, v)| (k.to_owned(), v.clone())).collect();
        pairs.sort_by(|(a, _), (b, _)| a.cmp(b));
        pairs
    };
    assert_eq!(sorted(a), sorted(b));
    for (a, b) in a.tensors.iter().zip(&b.tensors) {
        assert_eq!(a.read_tensor(Order::Row).unwrap(), b.read_tensor(Order::Row).unwrap());
    }
}

#[test]
fn models_read_as_h5py_reads_them() {
    let expected = expected();
    assert!(expected.len() >= 20);
    for (name, datasets) in expected {
        let checkpoint = opened(&name);
        assert_eq!((checkpoint.kind, &checkpoint.notes[..]), (kind_of(&name), &[][..]), "{name}");
        assert_eq!(checkpoint.tensors.len(), datasets.len(), "{name}");
        for tensor in &checkpoint.tensors {
            let (dtype, shape, sha256) = &datasets[&read::parts(tensor).join("/")];
            let short = dtype.replace("float", "f").replace("uint", "u").replace("int", "i");
            assert_eq!((tensor.dtype().name(), tensor.shape.dims()), (short.as_str(), shape.as_slice()));
            let bytes = tensor.read_tensor(Order::Row).unwrap();
            let hex: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(&hex, sha256, "{name}: {}", tensor.name());
        }
    }
}

#[test]
fn copies_have_the_same_tensors_and_no_entry_of_weighbridge() {
    for name in expected().keys() {
        let checkpoint = opened(name);
        let copy = written(&checkpoint, kind_of(name));
        assert!(!copy.windows(11).any(|part| part == b"weighbridge"), "{name}");
        let again = open_bytes(&copy).unwrap();
        assert_eq!(again.notes, [], "{name}");
        same(&checkpoint, &again);
        assert_eq!(written(&again, kind_of(name)), copy, "{name}");
    }
}

#[test]
fn archives_keep_their_other_members() {
    for name in ["dense.keras", "vocabulary.keras"] {
        let members = |bytes: &[u8]| {
            let source = memory(bytes);
            let members = zip::read_directory(&source, &Limits::default()).unwrap();
            let data = |member: &zip::Member| {
                let file = member.open(&source).unwrap();
                read_vec(&*file, 0, file.len()).unwrap()
            };
            let others = members.iter().filter(|member| member.name != "model.weights.h5");
            others.map(|member| (member.name.clone(), data(member))).collect::<Vec<_>>()
        };
        let original = bytes(name);
        let copy = written(&opened(name), ARCHIVE);
        assert_eq!(members(&copy), members(&original), "{name}");
    }
    let others = opened("vocabulary.keras").companions;
    assert_eq!(others[0].0, "assets/layers/string_lookup/vocabulary.txt");
    // Another format has no place for them.
    let plan = Hdf5.plan(&opened("vocabulary.keras"), &PlanOptions::of_kind(KIND)).unwrap();
    assert_eq!(plan.losses[0].code, "companion");
}

#[test]
fn a_damaged_vocabulary_is_skipped() {
    let mut bytes = bytes("vocabulary.keras");
    let at = bytes.windows(5).position(|part| part == b"green").unwrap();
    bytes[at] ^= 1;
    let checkpoint = open_bytes(&bytes).unwrap();
    assert_eq!((checkpoint.notes[0].code.as_str(), checkpoint.companions.len()), ("unread-member", 0));
}

#[test]
fn archives_need_layers() {
    let weights = opened("dense.weights.h5");
    let error = Hdf5.plan(&weights, &PlanOptions::of_kind(ARCHIVE)).unwrap_err();
    assert_eq!(error.code().as_str(), "config-missing");
    let mut checkpoint = opened("dense.keras");
    checkpoint.metadata.remove("metadata.json");
    let error = Hdf5.plan(&checkpoint, &PlanOptions::of_kind(ARCHIVE)).unwrap_err();
    assert!(error.message().contains("metadata.json"), "{error}");
    let error = Hdf5.plan(&checkpoint, &PlanOptions::of_kind("model")).unwrap_err();
    assert_eq!((error.code().as_str(), error.expected_text()), ("unknown-kind", Some("file or keras")));
}

#[test]
fn layers_have_the_names_and_the_order_of_keras() {
    let names = |name: &str| -> Vec<String> {
        let name_of =
            |tensor: &TensorEntry| tensor.text_attribute(Attributes::VARIABLE_NAME).map(str::to_owned);
        opened(name).tensors.iter().filter_map(name_of).collect()
    };
    let dense =
        ["hidden/kernel", "hidden/bias", "bn/gamma", "bn/beta", "bn/moving_mean", "bn/moving_variance"];
    let keras_2: Vec<String> = dense.iter().map(|name| format!("{name}:0")).collect();
    // Lists that are split in parts read alike.
    for name in ["k2_dense.h5", "k2_legacy.h5", "k2_split.h5"] {
        assert_eq!(names(name)[..6], keras_2, "{name}");
    }
    let keras_3: Vec<String> = dense.iter().map(|name| format!("dense/{name}")).collect();
    assert_eq!(names("dense.h5")[..6], keras_3);
    let keras_1 = ["hidden_W", "hidden_b", "bn_gamma", "bn_beta", "bn_running_mean", "bn_running_std"];
    assert_eq!(names("k1_weights.h5")[..6], keras_1);
    assert_eq!(texts(&opened("k1_weights.h5"))[0], "hidden.hidden_W");
    assert_eq!(names("dense.weights.h5"), [""; 0]);
}

#[test]
fn statistics_are_buffers() {
    let buffers = |name: &str| -> Vec<String> {
        let checkpoint = opened(name);
        let buffers = checkpoint.tensors.iter().filter(|tensor| tensor.role == Role::Buffer);
        buffers.map(TensorEntry::text).collect()
    };
    let moving = ["model_weights.bn.bn.moving_mean:0", "model_weights.bn.bn.moving_variance:0"];
    assert_eq!(buffers("k2_dense.h5"), moving);
    assert_eq!(buffers("k1_weights.h5"), ["bn.bn_running_mean", "bn.bn_running_std"]);
    // Without scale, and in a model within the model.
    let normalization = "layers.batch_normalization.vars";
    assert_eq!(buffers("conv.keras"), [format!("{normalization}.1"), format!("{normalization}.2")]);
    let inner = format!("layers.sequential.{normalization}");
    assert_eq!(buffers("nested.keras"), [format!("{inner}.2"), format!("{inner}.3")]);
    // tf-keras does not state the names of layers, and saves the state of metrics.
    assert_eq!(
        buffers("k2_dense.keras"),
        [
            &*format!("{normalization}.2"),
            &format!("{normalization}.3"),
            "metrics.mean.vars.0",
            "metrics.mean.vars.1"
        ]
    );
    assert_eq!(buffers("dense.weights.h5"), [""; 0]);
}

#[test]
fn state_belongs_to_the_variable_in_its_name() {
    for (name, slots, counters) in [
        ("k2_dense.h5", 12, 1),
        ("k2_legacy.h5", 12, 1),
        ("k2_functional.h5", 5, 1),
        ("dense.h5", 12, 2),
        // Numbers only.
        ("dense.keras", 0, 14),
    ] {
        let checkpoint = opened(name);
        let state: Vec<&TensorEntry> =
            checkpoint.tensors.iter().filter(|tensor| tensor.role.is_state()).collect();
        let linked = state.iter().filter(|tensor| tensor.role.state_of().is_some()).count();
        assert_eq!((linked, state.len() - linked), (slots, counters), "{name}");
        for tensor in state {
            let Some(of) = tensor.role.state_of() else { continue };
            let variable = checkpoint.tensors.iter().find(|other| other.text() == of.name).unwrap();
            assert_eq!((&variable.shape, of.guessed), (&tensor.shape, false));
            let layer = &read::parts(variable)[1];
            assert!(tensor.text().contains(layer), "{name}: {} {}", tensor.text(), of.name);
        }
    }
}

#[test]
fn very_long_names_of_state_are_not_searched() {
    let mut checkpoint = opened("k2_dense.h5");
    let long = format!("Adam/{}", "_".repeat(60_000));
    let Some(Value::Map(pairs)) = checkpoint.metadata.get("/optimizer_weights").cloned() else {
        panic!("the group has attributes")
    };
    let count = 2000;
    let names = Value::List(vec![Value::Text(long.clone()); count]);
    let pairs = pairs.into_iter().map(|(key, value)| match key.as_str() {
        Some("weight_names") => (key, names.clone()),
        _ => (key, value),
    });
    checkpoint.metadata.set("/optimizer_weights", Value::Map(pairs.collect()));
    let mut paths: Vec<Vec<&str>> = checkpoint.tensors.iter().map(read::parts).collect();
    let state = checkpoint.tensors.iter().position(|tensor| tensor.role.is_state()).unwrap();
    paths[state] = vec!["optimizer_weights"];
    paths[state].extend(long.split('/'));
    let begun = std::time::Instant::now();
    let implied = keras::implied(&paths, &checkpoint.tensors, &checkpoint.metadata, None);
    assert_eq!(
        (implied[state].name.as_deref(), &implied[state].role),
        (Some(&*long), &Role::OptimizerPart { of: None })
    );
    assert!(begun.elapsed().as_secs() < 10);
}

#[test]
fn variables_of_a_dropped_optimizer_are_not_listed() {
    for name in ["k2_dense.h5", "dense.h5"] {
        let mut checkpoint = opened(name);
        checkpoint.drop_state();
        let again = open_bytes(&written(&checkpoint, KIND)).unwrap();
        assert!(again.metadata.get("/optimizer_weights").is_none(), "{name}");
        assert_eq!(texts(&again), texts(&checkpoint));
    }
}

#[test]
fn malformed_lists_of_layers_are_ignored() {
    let mut checkpoint = opened("k2_dense.h5");
    let rest = texts(&checkpoint);
    for odd in [
        Value::Text("hidden".into()),
        Value::List(vec![Value::U64(3), Value::Text("no such layer".into())]),
        Value::List(Vec::new()),
    ] {
        let group = Value::Map(vec![("layer_names".into(), odd)]);
        checkpoint.metadata.set("/model_weights", group);
        let again = open_bytes(&written(&checkpoint, KIND)).unwrap();
        let (mut found, mut wanted) = (texts(&again), rest.clone());
        found.sort();
        wanted.sort();
        assert_eq!(found, wanted);
    }
}

#[test]
fn damaged_models_never_panic() {
    for name in ["vocabulary.keras", "statistics.keras", "k1_weights.h5"] {
        let whole = bytes(name);
        for end in (0..whole.len()).step_by(31) {
            let _ = open_bytes(&whole[..end]);
        }
        for at in (0..whole.len()).step_by(17) {
            let mut changed = whole.clone();
            changed[at] ^= 0xa5;
            if let Ok(checkpoint) = open_bytes(&changed) {
                let plan = Hdf5.plan(&checkpoint, &PlanOptions::of_kind(kind_of(name)));
                let _ = plan.map(|plan| materialise(&plan));
            }
        }
    }
}

#[test]
fn archives_without_valid_json_have_no_buffers() {
    let mut checkpoint = opened("conv.keras");
    checkpoint.metadata.set("config.json", Value::Text("{\"layers\": [".into()));
    let again = open_bytes(&written(&checkpoint, ARCHIVE)).unwrap();
    assert!(
        matches!(again.metadata.get("config.json"), Some(Value::Text(text)) if text.starts_with("{\"layers"))
    );
    // The roles of the source are kept as bridge metadata.
    assert_eq!(again.tensors.iter().filter(|tensor| tensor.role == Role::Buffer).count(), 2);
}
