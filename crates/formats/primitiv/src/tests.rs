//! Tests of golden files against the objects of the original, bit for bit, and of damaged files.

#![allow(clippy::disallowed_methods)]

use weighbridge_format::{OpenOptions, PlanOptions, ReadFormat, WriteFormat};
mod layout;
mod typed;

use super::{Model, Optimizer, OptimizerClass, Parameter, Primitiv, Tensor};
use crate::opening::open_source;
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::sync::Arc;
use weighbridge_core::checkpoint::{Checkpoint, Name, TensorPath, Value};
use weighbridge_core::tensor::Order;
use weighbridge_io::source::CountingSource;
use weighbridge_io::testing::materialise;
use weighbridge_testkit::memory;

/// Golden file with its JSON.
struct Golden {
    name: String,
    bytes: Vec<u8>,
    json: Json,
}

/// All golden files, 131 of them.
fn golden() -> Vec<Golden> {
    let root = weighbridge_testkit::testdata("primitiv/good");
    let mut all = Vec::new();
    for kind in ["shape", "tensor", "parameter", "model", "optimizer", "trained"] {
        for file in std::fs::read_dir(root.join(kind)).unwrap() {
            let path = file.unwrap().path();
            if path.extension().is_some_and(|e| e == "json") {
                let json = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
                let path = path.with_extension("");
                let name = path.file_name().unwrap().to_str().unwrap().to_owned();
                all.push(Golden { name, bytes: std::fs::read(path).unwrap(), json });
            }
        }
    }
    all.sort_by(|a, b| a.name.cmp(&b.name));
    assert_eq!(all.len(), 131);
    all
}

fn open(bytes: &[u8]) -> weighbridge_core::Result<Checkpoint> {
    Primitiv.open(memory(bytes), &OpenOptions::default())
}

fn lenient() -> OpenOptions {
    OpenOptions { lenient: true, ..OpenOptions::default() }
}

fn bits(json: &Json) -> Vec<u32> {
    json.as_str().unwrap().split_whitespace().map(|t| u32::from_str_radix(t, 16).unwrap()).collect()
}

/// Dimensions, batch and bits.
type Content = (Vec<u64>, u64, Vec<u32>);

fn content(json: &Json) -> Content {
    let dims = json["dims"].as_array().unwrap().iter().map(|d| d.as_u64().unwrap()).collect();
    (dims, json["batch"].as_u64().unwrap(), bits(&json["bits"]))
}

fn name(text: &Json, hex: &Json) -> Name {
    match text.as_str() {
        Some(text) => Name::from(text),
        None => Name::from_json(&serde_json::json!({ "hex": hex })).unwrap(),
    }
}

/// Expected content: for each path the value and the stats by name.
type Parameters = Vec<(TensorPath, Content, BTreeMap<Name, Content>)>;

fn parameter(path: TensorPath, json: &Json) -> (TensorPath, Content, BTreeMap<Name, Content>) {
    let stats = json["stats"].as_array().unwrap().iter();
    let stats = stats.map(|s| (name(&s["name"], &s["name_hex"]), content(&s["tensor"]))).collect();
    (path, content(&json["value"]), stats)
}

fn expected(json: &Json) -> Parameters {
    match json["data_type"].as_str().unwrap() {
        "Tensor" => vec![(TensorPath::value(), content(&json["tensor"]), BTreeMap::new())],
        "Parameter" => vec![parameter(TensorPath::value(), &json["parameter"])],
        "Model" => {
            let path = |p: &Json| {
                let parts = p["key"].as_array().unwrap().iter().enumerate();
                TensorPath::new(parts.map(|(i, part)| name(part, &p["key_hex"][i])).collect::<Vec<_>>())
            };
            let list = json["parameters"].as_array().unwrap();
            list.iter().map(|p| parameter(path(p), &p["parameter"])).collect()
        }
        _ => Vec::new(),
    }
}

/// Content read through the index.
fn found(checkpoint: &Checkpoint) -> Parameters {
    let mut all: Parameters = Vec::new();
    for entry in &checkpoint.tensors {
        let mut dims = entry.shape.dims().to_vec();
        let batch = match entry.attributes.get("batch") {
            Some(Value::U64(batch)) => {
                assert_eq!(dims.pop(), Some(*batch));
                assert!(*batch > 1);
                *batch
            }
            Some(other) => panic!("{other:?}"),
            None => 1,
        };
        let bytes = entry.read_tensor(Order::Column).unwrap();
        let bits = bytes.as_chunks::<4>().0.iter().map(|&b| u32::from_le_bytes(b)).collect();
        let content = (dims, batch, bits);
        match entry.role.slot() {
            None => all.push((entry.path.clone(), content, BTreeMap::new())),
            Some(slot) => {
                let (path, _, stats) = all.last_mut().unwrap();
                assert_eq!(*path, entry.path);
                assert_eq!(stats.insert(slot.clone(), content), None);
            }
        }
    }
    all
}

fn configs(value: Option<&Value>) -> BTreeMap<String, u32> {
    let Some(Value::Map(pairs)) = value else { panic!("no settings") };
    let number = |value: &Value| match value {
        Value::U32(n) | Value::F32(n) => *n,
        other => panic!("{other:?}"),
    };
    pairs.iter().map(|(key, value)| (key.to_text(), number(value))).collect()
}

#[test]
fn golden_files_match_the_original() {
    for Golden { name, bytes, json } in golden() {
        let checkpoint = open_source(memory(&bytes), &OpenOptions::default()).unwrap();
        assert_eq!(checkpoint.format, "primitiv");
        assert_eq!(checkpoint.kind, json["data_type"].as_str().unwrap().to_lowercase(), "{name}");
        let origin = checkpoint.origin.clone().unwrap();
        assert_eq!((origin.format.as_str(), origin.kind.as_str()), ("primitiv", checkpoint.kind));
        assert_eq!(found(&checkpoint), expected(&json), "{name}");
        let codes: Vec<_> = checkpoint.notes.iter().map(|n| n.code.as_str()).collect();
        match checkpoint.kind {
            "shape" => {
                let dims = json["shape"]["dims"].as_array().unwrap().iter();
                let dims = dims.map(|d| Value::U32(u32::try_from(d.as_u64().unwrap()).unwrap())).collect();
                assert_eq!(checkpoint.metadata.get("dims"), Some(&Value::List(dims)), "{name}");
                let batch = u32::try_from(json["shape"]["batch"].as_u64().unwrap()).unwrap();
                assert_eq!(checkpoint.metadata.get("batch"), Some(&Value::U32(batch)), "{name}");
            }
            "optimizer" => {
                let rows = |key: &str| json[key].as_array().unwrap().clone();
                let text = |row: &Json| row["key"].as_str().unwrap().to_owned();
                let uints: BTreeMap<_, _> = rows("uint_configs")
                    .iter()
                    .map(|row| (text(row), u32::try_from(row["value"].as_u64().unwrap()).unwrap()))
                    .collect();
                let floats: BTreeMap<_, _> =
                    rows("float_configs").iter().map(|row| (text(row), bits(&row["bits"])[0])).collect();
                assert_eq!(configs(checkpoint.metadata.get("uint_configs")), uints, "{name}");
                assert_eq!(configs(checkpoint.metadata.get("float_configs")), floats, "{name}");
                let class = json["optimizer_class"].as_str().unwrap();
                let class = if class == "user-defined subclass" { "Custom" } else { class };
                assert_eq!(
                    checkpoint.notes[0].text,
                    format!("optimizer class {class}, from the prefix of its keys"),
                    "{name}"
                );
                let nan = floats.values().any(|&bits| f32::from_bits(bits).is_nan());
                assert_eq!(codes[1..].contains(&"optimizer-value"), nan, "{name}");
                assert!(!codes.contains(&"optimizer-keys-missing"), "{name}");
            }
            _ => {}
        }
        if checkpoint.kind != "optimizer" {
            assert!(codes.is_empty(), "{name}: {codes:?}");
        }
    }
}

#[test]
fn golden_files_round_trip_byte_for_byte() {
    for Golden { name, bytes, .. } in golden() {
        let checkpoint = open(&bytes).unwrap();
        let plan = Primitiv.plan(&checkpoint, &PlanOptions::default()).unwrap();
        assert_eq!(plan.kind, checkpoint.kind);
        assert_eq!(plan.losses, [], "{name}");
        assert!(materialise(&plan)[0] == bytes, "{name}: the plan differs");
        let typed = match checkpoint.kind {
            "tensor" => Tensor::from_bytes(bytes.clone()).unwrap().to_bytes(),
            "parameter" => Parameter::from_bytes(bytes.clone(), true).unwrap().to_bytes(true).unwrap(),
            "model" => Model::from_bytes(bytes.clone(), true).unwrap().to_bytes(true).unwrap(),
            "optimizer" => Optimizer::from_bytes(bytes.clone()).unwrap().to_bytes().unwrap(),
            _ => continue,
        };
        assert!(typed == bytes, "{name}: the typed face differs");
    }
}

#[test]
fn saving_without_stats_matches_the_original() {
    let all = golden();
    let bytes = |name: &str| all.iter().find(|g| g.name == name).unwrap().bytes.clone();
    for v in ["a", "b"] {
        let model = Model::from_bytes(bytes(&format!("model_nested_adam_{v}.model")), true).unwrap();
        let dropped = bytes(&format!("model_nested_adam_stats_dropped_{v}.model"));
        assert_eq!(model.to_bytes(false).unwrap(), dropped);
        assert_eq!(materialise(&model.plan(false).unwrap()), [dropped]);
        let parameter = Parameter::from_bytes(bytes(&format!("param_adam_{v}.param")), true).unwrap();
        let dropped = bytes(&format!("param_adam_stats_dropped_{v}.param"));
        assert_eq!(parameter.to_bytes(false).unwrap(), dropped);
    }
}

#[test]
fn new_optimizers_match_the_original() {
    let classes = [
        ("sgd", OptimizerClass::Sgd),
        ("momentumsgd", OptimizerClass::MomentumSgd),
        ("adagrad", OptimizerClass::AdaGrad),
        ("rmsprop", OptimizerClass::RmsProp),
        ("adadelta", OptimizerClass::AdaDelta),
        ("adam", OptimizerClass::Adam),
    ];
    let all = golden();
    for (name, class) in classes {
        let file = all.iter().find(|g| g.name == format!("optimizer_{name}_a.optimizer")).unwrap();
        let optimizer = Optimizer::new(&class);
        assert_eq!(optimizer.to_bytes().unwrap(), file.bytes, "{name}");
        assert_eq!(optimizer.class(), Some(class.clone()));
        assert_eq!(file.json["optimizer_class"].as_str(), class.name().as_str());
        assert_eq!(optimizer.missing_keys(), Vec::<&str>::new());
    }
}

#[test]
fn listing_reads_no_values() {
    let mut model = Model::new();
    for i in 0u16..40 {
        let value = Tensor::new(&[256, 256], vec![0.5; 65536]).unwrap();
        let mut parameter = Parameter::new(value.clone()).unwrap();
        parameter.add_stat("Adam.m1", value).unwrap();
        model.add_parameter(format!("layer{i}").as_str(), parameter).unwrap();
    }
    let bytes = model.to_bytes(true).unwrap();
    let counted = Arc::new(CountingSource::new(memory(&bytes)));
    let checkpoint = Primitiv.open(counted.clone(), &OpenOptions::default()).unwrap();
    assert_eq!(checkpoint.tensors.len(), 80);
    assert!(counted.bytes_read() <= 80 * 1024, "{} bytes", counted.bytes_read());
    assert!(counted.bytes_read() * 100 < bytes.len() as u64);
    // The typed API without stats reads the values, not the stats.
    let counted = Arc::new(CountingSource::new(memory(&bytes)));
    Model::read(counted.clone(), &OpenOptions::default(), false).unwrap();
    assert!(counted.bytes_read() < bytes.len() as u64 * 6 / 10);
}

#[test]
fn rejects_truncated_files() {
    for Golden { name, bytes, .. } in golden() {
        let step = if bytes.len() < 4096 { 1 } else { bytes.len() / 500 };
        for len in (0..bytes.len()).step_by(step).chain([bytes.len() - 1]) {
            for options in [OpenOptions::default(), lenient()] {
                let error = Primitiv.open(memory(&bytes[..len]), &options).expect_err(&name);
                assert!(
                    ["truncated", "impossible-count"].contains(&error.code().as_str()),
                    "{name} {len} {error:?}"
                );
                assert!(error.offset().unwrap() <= len as u64);
                assert_eq!(error.file(), Some("m"));
            }
        }
    }
}

/// Runs every reader on one file. Returns whether the strict reader accepted it.
fn read_every_way(bytes: &[u8]) -> bool {
    for options in [OpenOptions::default(), lenient()] {
        if let Ok(checkpoint) = Primitiv.open(memory(bytes), &options) {
            // All ranges of the index are within the file, and its plan can be written.
            found(&checkpoint);
            if let Ok(plan) = Primitiv.plan(&checkpoint, &PlanOptions::default()) {
                let again = materialise(&plan);
                assert!(open(&again[0]).is_ok(), "the written file cannot be read");
            }
        }
        let _ = Tensor::read(memory(bytes), &options);
        let _ = Parameter::read(memory(bytes), &options, true);
        let _ = Model::read(memory(bytes), &options, true);
        let _ = Optimizer::read(memory(bytes), &options);
    }
    open(bytes).is_ok()
}

#[test]
fn damaged_files_do_not_panic() {
    let (mut read, mut refused) = (0, 0);
    for Golden { bytes, .. } in golden().iter().filter(|g| g.bytes.len() < 600).step_by(3) {
        for place in 0..bytes.len() {
            for change in [0x00, 0x01, 0x7f, 0xff, bytes[place] ^ 1, bytes[place] ^ 0x80] {
                let mut damaged = bytes.clone();
                damaged[place] = change;
                let ok = read_every_way(&damaged);
                if ok { read += 1 } else { refused += 1 }
            }
        }
    }
    // A changed value or name is still a valid file; a changed marker, count or shape is not.
    assert!(read > 1000 && refused > 1000, "{read} {refused}");
}

#[test]
fn many_tensors_are_listed_in_one_pass() {
    let mut model = Model::new();
    for i in 0..50_000u32 {
        let mut parameter = Parameter::new(Tensor::new(&[1, 2], vec![1.0, 2.0]).unwrap()).unwrap();
        parameter.add_stat("s", Tensor::new(&[], vec![0.0]).unwrap()).unwrap();
        let path = TensorPath::from_dotted(&format!("block{}.layer{i}.w", i / 100));
        model.insert(path, parameter).unwrap();
    }
    let bytes = model.to_bytes(true).unwrap();
    let counted = Arc::new(CountingSource::new(memory(&bytes)));
    let checkpoint = Primitiv.open(counted.clone(), &OpenOptions::default()).unwrap();
    assert_eq!(checkpoint.tensors.len(), 100_000);
    assert!(counted.bytes_read() < bytes.len() as u64 * 11 / 10, "the file is read more than once");
    assert!(materialise(&Primitiv.plan(&checkpoint, &PlanOptions::default()).unwrap()) == [bytes]);
}

#[test]
fn limits_are_enforced() {
    let mut model = Model::new();
    for name in ["a", "b", "long-name"] {
        model.add_parameter(name, Parameter::new(Tensor::new(&[], vec![0.0]).unwrap()).unwrap()).unwrap();
    }
    let path = TensorPath::from_dotted("x.y.z");
    model.insert(path, Parameter::new(Tensor::new(&[2, 2], vec![0.0; 4]).unwrap()).unwrap()).unwrap();
    let bytes = model.to_bytes(true).unwrap();
    type Change = fn(&mut weighbridge_core::Limits);
    let change: [(&str, Change); 4] = [
        ("tensors", |l| l.tensors = 3),
        ("name_bytes", |l| l.name_bytes = 8),
        ("path_parts", |l| l.path_parts = 2),
        ("dimensions", |l| l.dimensions = 1),
    ];
    for (field, change) in change {
        let mut options = OpenOptions::default();
        change(&mut options.limits);
        let error = Primitiv.open(memory(&bytes), &options).unwrap_err();
        assert_eq!(error.kind(), weighbridge_core::Kind::Limit);
        assert!(error.hint_text().unwrap().contains(field), "{error}");
    }
}
