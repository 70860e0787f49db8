//! Exports of the golden programs of Paddle. That runtimes compute the same is judged in `judges/onnx`.

use crate::support::paddle::good;
use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use weighbridge::checkpoint::{Checkpoint, TensorEntry, TensorPath, Value};
use weighbridge::ops::hash::sha256;
use weighbridge::ops::{ConvertOptions, GraphCheck, convert, plan_checkpoint};
use weighbridge::tensor::DType;
use weighbridge::topology::{Block, Endpoint, Operator, Slot, Topology};

/// Inference models, in all forms.
const MODELS: [&str; 11] = [
    "p262/cnn_jit",
    "p262/cnn_legacy_combined",
    "p262/cnn_legacy_separate",
    "p262/cnn_static_infer",
    "p262/control_flow",
    "p262/seq_static_infer",
    "p331/cnn_jit",
    "p331/cnn_pir",
    "p331/control_flow_pir",
    "p331/seq_pir",
    "p331_oldir/cnn_jit",
];

#[test]
fn golden_models_are_exported_with_their_parameters() {
    let temp = tempfile::tempdir().unwrap();
    for name in MODELS {
        let target = temp.path().join("m.onnx");
        let options = ConvertOptions { force: true, ..ConvertOptions::default() };
        convert(good(name), &target, &options).unwrap_or_else(|e| panic!("{name}: {e}"));
        let source = weighbridge::formats::open(good(name)).unwrap();
        let graph = weighbridge::formats::open(&target).unwrap();
        let check = GraphCheck::of(source.topology.as_ref().unwrap(), &target).unwrap();
        assert!(check.agrees(), "{name}: {:?}", check.differences);
        let hashes: BTreeMap<String, String> =
            graph.tensors.iter().map(|t| (t.name(), sha256(t).unwrap().to_string())).collect();
        let mut shared = 0;
        for tensor in &source.tensors {
            if let Some(hash) = hashes.get(&tensor.name()) {
                assert_eq!(*hash, sha256(tensor).unwrap().to_string(), "{name} {}", tensor.name());
                shared += 1;
            }
        }
        assert!(shared > 0 || source.tensors.is_empty(), "{name}");
    }
}

/// A program of one operator that reads `x` and writes `y`.
fn program(kind: &str) -> Topology {
    let slot = |name: &str, argument: &str| Slot { name: name.into(), arguments: vec![argument.into()] };
    let end = |name: &str| Endpoint { name: name.into(), dtype: Some(DType::F32), shape: Some(vec![-1, 4]) };
    let operator = |kind: &str, from: &str, to: &str| Operator {
        kind: kind.into(),
        inputs: vec![slot("X", from)],
        outputs: vec![slot("Out", to)],
        ..Operator::default()
    };
    let operators = vec![operator("relu", "x", "h"), operator(kind, "h", "i"), operator(kind, "i", "y")];
    let fetch = operator("fetch", "y", "fetch");
    Topology {
        form: "program-desc",
        writer: None,
        bytes: Arc::new([]),
        blocks: vec![Block { operators: operators.into_iter().chain([fetch]).collect(), ..Block::default() }],
        feeds: vec![end("x")],
        fetches: vec![end("y")],
        operator_versions: Vec::new(),
    }
}

fn export(kind: &str) -> Result<Vec<u8>, weighbridge::Error> {
    let mut checkpoint = Checkpoint::new("paddle", "program", "m");
    checkpoint.topology = Some(Arc::new(program(kind)));
    let onnx = weighbridge::formats::registry().by_id("onnx").unwrap();
    let plan = plan_checkpoint(checkpoint, onnx, None, &ConvertOptions::default())?;
    assert!(plan.is_one_file());
    Ok(weighbridge_io::testing::materialise(&plan).remove(0))
}

/// Casts store the parameters with another dtype, and the graph casts them back.
#[test]
fn casts_metadata_and_unused_tensors_of_exports() {
    let mut source = weighbridge::formats::open(good("p262/cnn_jit")).unwrap();
    let unused = TensorEntry { path: TensorPath::new(["lonely".into()]), ..source.tensors[0].clone() };
    source.tensors.push(unused);
    source.metadata.set("author", Value::Text("me".into()));
    source.metadata.set("count", Value::U64(1));
    source.cast_floats(DType::F16).unwrap();
    let onnx = weighbridge::formats::registry().by_id("onnx").unwrap();
    let plan = plan_checkpoint(source, onnx, None, &ConvertOptions::default()).unwrap();
    let losses: Vec<(&str, &str)> =
        plan.losses.iter().map(|loss| (loss.code.as_str(), loss.subject.as_str())).collect();
    assert!(
        losses.contains(&("unused", "lonely")) && losses.contains(&("metadata-dropped", "count")),
        "{losses:?}"
    );
    assert!(plan.losses.iter().filter(|loss| loss.code == "unused").all(|loss| !loss.is_tensor()));
    let temp = tempfile::tempdir().unwrap();
    let target = temp.path().join("m.onnx");
    fs::write(&target, weighbridge_io::testing::materialise(&plan).remove(0)).unwrap();
    let graph = weighbridge::formats::open(&target).unwrap();
    assert_eq!(graph.metadata.get("author"), Some(&Value::Text("me".into())));
    let halves: Vec<String> =
        graph.tensors.iter().filter(|t| t.stored == DType::F16).map(|t| t.name()).collect();
    assert!(!halves.is_empty());
    let operators = &graph.topology.as_ref().unwrap().blocks[0].operators;
    for name in halves {
        let mut readers =
            operators.iter().filter(|o| o.inputs.iter().flat_map(|slot| &slot.arguments).any(|a| *a == name));
        assert!(readers.all(|operator| operator.kind == "Cast"), "{name}");
    }
}

#[test]
fn an_operator_without_translation_is_named_with_its_count_and_first_result() {
    assert!(!export("sigmoid").unwrap().is_empty());
    let error = export("py_func").unwrap_err();
    assert_eq!(error.code().as_str(), "unsupported-operators");
    assert_eq!(error.found_text(), Some("py_func (2 times, first result i)"));
}

#[test]
fn a_program_without_its_parameters_is_refused() {
    let temp = tempfile::tempdir().unwrap();
    let alone = temp.path().join("net.pdmodel");
    fs::copy(good("p262/cnn_jit").join("model.pdmodel"), &alone).unwrap();
    let target = temp.path().join("m.onnx");
    let error = convert(&alone, &target, &ConvertOptions::default()).unwrap_err();
    assert_eq!(error.code().as_str(), "parameters-missing", "{error}");
    assert!(!target.exists());
}
