//! Comparison of every golden program with its recorded description.

use super::super::looks_like;
use super::{GOLDEN, bytes, golden, parse};
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use weighbridge_core::topology::{AttributeValue, Operator, Topology, Variable, VariableKind};

fn expected(folder: &str) -> Json {
    serde_json::from_slice(&bytes(folder, "expected.json")).unwrap()
}

fn json_of(value: &AttributeValue) -> Json {
    match value {
        AttributeValue::None => Json::Null,
        AttributeValue::Bool(b) => json!(b),
        AttributeValue::Int(n) => json!(n),
        AttributeValue::Float(x) => json!(f64::from(*x)),
        AttributeValue::Double(x) => json!(x),
        AttributeValue::Text(text) | AttributeValue::Word(text) => json!(text),
        AttributeValue::List(list) => list.iter().map(json_of).collect(),
        other => panic!("{other:?}"),
    }
}

/// The numbers of values, of names that the golden data do not use.
struct Ids<'t>(BTreeMap<&'t str, i64>);

fn check_variable(found: &Variable, recorded: &Json, place: &str) {
    if recorded["kind"] == "dense" {
        assert_eq!(found.kind, VariableKind::Tensor, "{place}");
        assert_eq!(json!(found.dtype_name), recorded["dtype"], "{place}");
        assert!(found.dtype.is_some(), "{place}");
        assert_eq!(json!(found.shape), recorded["dims"], "{place}");
        assert_eq!(found.lod_level, 0, "{place}");
    } else {
        let word = recorded.get("kind").unwrap_or(recorded);
        assert_eq!(json!(found.kind.as_str()), *word, "{place}");
        assert_eq!(found.shape, None, "{place}");
    }
}

fn check_block<'t>(topology: &'t Topology, place: usize, recorded: &Json, ids: &mut Ids<'t>) -> u64 {
    let block = &topology.blocks[place];
    let arguments = recorded["args"].as_array().unwrap();
    assert_eq!(block.arguments.len(), arguments.len());
    for (name, argument) in block.arguments.iter().zip(arguments) {
        assert_eq!(*name, format!("%{}", argument["id"]));
        ids.0.insert(name, argument["id"].as_i64().unwrap());
        check_variable(topology.variable(place, name).unwrap(), &argument["type"], name);
    }
    let ops = recorded["ops"].as_array().unwrap();
    assert_eq!(block.operators.len(), ops.len());
    let mut checked = 0;
    for (found, recorded) in block.operators.iter().zip(ops) {
        assert_eq!(json!(found.kind), recorded["op"]);
        checked += 1 + check_op(topology, place, found, recorded, ids);
    }
    checked
}

fn check_op<'t>(
    topology: &'t Topology,
    place: usize,
    found: &'t Operator,
    recorded: &Json,
    ids: &mut Ids<'t>,
) -> u64 {
    let outputs = found.output("");
    if found.kind == "builtin.parameter" {
        let variable = topology.variable(place, &outputs[0]).unwrap();
        assert_eq!(json!(outputs[0]), recorded["name"]);
        assert_eq!(found.attribute("parameter_name"), Some(&AttributeValue::Text(outputs[0].clone())));
        ids.0.insert(&outputs[0], recorded["result"].as_i64().unwrap());
        check_variable(variable, &recorded["type"], &outputs[0]);
        assert_eq!(variable.persistable, recorded["persistable"] != 0);
        assert_eq!(variable.parameter, recorded["is_parameter"] == 1);
        assert_eq!(variable.stop_gradient, recorded["stop_gradient"] == 1);
        for flag in
            ["is_distributed", "is_parameter", "need_clip", "persistable", "stop_gradient", "trainable"]
        {
            let expected = recorded[flag].as_u64().map(|n| AttributeValue::Bool(n == 1));
            assert_eq!(found.attribute(flag), expected.as_ref(), "{flag}");
        }
        return 0;
    }
    let operands: Vec<_> =
        found.input("").iter().map(|n| if n == "@EMPTY@" { 0 } else { ids.0[n.as_str()] }).collect();
    assert_eq!(json!(operands), recorded["operands"], "{}", found.kind);
    let results = recorded["results"].as_array().unwrap();
    assert_eq!(outputs.len(), results.len());
    for ((name, id), kind) in outputs.iter().zip(results).zip(recorded["result_types"].as_array().unwrap()) {
        assert!(ids.0.insert(name, id.as_i64().unwrap()).is_none(), "{name}");
        check_variable(topology.variable(place, name).unwrap(), kind, name);
    }
    let attributes: serde_json::Map<_, _> =
        found.attributes.iter().map(|a| (a.name.clone(), json_of(&a.value))).collect();
    assert_eq!(Json::Object(attributes), recorded["attrs"], "{}", found.kind);
    let Some(regions) = recorded.get("regions") else {
        assert_eq!(found.blocks, [] as [usize; 0]);
        return 0;
    };
    let blocks: Vec<_> = regions.as_array().unwrap().iter().flat_map(|r| r.as_array().unwrap()).collect();
    assert_eq!(found.blocks.len(), blocks.len());
    let each = found.blocks.iter().zip(blocks).map(|(&inner, recorded)| {
        assert_eq!(topology.blocks[inner].parent, Some(place));
        check_block(topology, inner, recorded, ids)
    });
    each.sum()
}

#[test]
fn reads_golden_programs() {
    for (folder, _) in GOLDEN {
        let (program, recorded) = (golden(folder), expected(folder));
        let topology = program.topology();
        assert_eq!((topology.form, topology.writer.as_deref()), ("pir", Some("4")));
        // The two made from dynamic code are described by their tensors alone.
        assert_eq!(recorded.get("program").is_none(), folder.ends_with("_jit"));
        if let Some(recorded) = recorded.get("program") {
            let base = (json!(program.version()), json!(program.trainable()));
            assert_eq!(
                base,
                (recorded["base_code"]["version"].clone(), recorded["base_code"]["trainable"].clone())
            );
            let blocks = recorded["blocks"].as_array().unwrap();
            assert_eq!(blocks.len(), 1);
            let checked = check_block(&topology, 0, &blocks[0], &mut Ids(BTreeMap::new()));
            assert_eq!(checked, topology.operators().count() as u64);
            let counts: BTreeMap<_, _> = topology.histogram().into_iter().collect();
            assert_eq!(json!(counts), recorded["op_counts"], "{folder}");
        }
        if let Some(names) = recorded.get("param_names_in_program_order") {
            let stored: Vec<_> = topology.parameters().iter().map(|v| v.name.clone()).collect();
            let names_found: Vec<_> = program.parameter_names();
            let known: Vec<_> = names_found.into_iter().filter(|n| stored.iter().any(|s| s == n)).collect();
            assert_eq!(json!(known), *names, "{folder}");
        }
    }
}

#[test]
fn lists_parameters_in_file_order() {
    let mut compared = 0;
    for (folder, _) in GOLDEN {
        let (topology, recorded) = (golden(folder).topology(), expected(folder));
        let mut tensors: Vec<Json> =
            match (recorded.get("tensors"), recorded.get("pdparams"), recorded.get("pdopt")) {
                (Some(tensors), _, _) => tensors.as_array().unwrap().clone(),
                (None, Some(parameters), Some(state)) => {
                    [parameters, state].into_iter().flat_map(|t| t.as_array().unwrap().clone()).collect()
                }
                _ => panic!("{folder}"),
            };
        if recorded.get("tensors").is_none() || *folder == "cnn_pir_separate" {
            tensors.sort_by_key(|t| t["name"].as_str().unwrap().to_owned());
        }
        let found: Vec<_> = topology.parameters().iter().map(|v| (json!(v.name), json!(v.shape))).collect();
        let expected: Vec<_> = tensors.iter().map(|t| (t["name"].clone(), t["shape"].clone())).collect();
        assert_eq!(found, expected, "{folder}");
        compared += found.len();
    }
    // Four times 13, 13 with 37 of state, 2, 46, 47.
    assert_eq!(compared, 197);
}

#[test]
fn unstored_tensors_are_not_persistable() {
    let topology = golden("seq_jit").topology();
    let state = topology.variable(0, "lstm_0.dropout_state__non_persistable");
    let state = state
        .or_else(|| topology.blocks[0].variables.iter().find(|v| v.name.contains("dropout_state")))
        .unwrap();
    assert!(!state.persistable && state.parameter);
}

#[test]
fn lists_inputs_and_outputs_in_order() {
    let topology = golden("control_flow_pir").topology();
    let names = |list: &[weighbridge_core::topology::Endpoint]| {
        list.iter().map(|e| e.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(&topology.feeds), ["x", "n"]);
    assert_eq!(topology.feeds[0].shape, Some(vec![-1, 4]));
    assert_eq!(names(&topology.fetches), ["fetch_name_0", "fetch_name_1"]);
    assert_eq!(topology.fetches[0].shape, Some(vec![-1, 3]));
    assert_eq!(topology.blocks.len(), 4);
    let body = topology.operators().find(|op| op.kind == "pd_op.while").unwrap().blocks[0];
    assert_eq!(topology.blocks[body].arguments, ["%-1", "%-2"]);
    // A body has access to the values outside it.
    assert!(topology.variable(body, "n").is_some());
    let train = golden("cnn_pir_train").topology();
    assert_eq!(names(&train.feeds), ["image"]);
    assert_eq!(names(&train.fetches), [] as [String; 0]);
}

#[test]
fn unchanged_programs_keep_every_byte() {
    for (folder, name) in GOLDEN {
        let original = bytes(folder, name);
        let mut program = parse(&original).unwrap();
        assert!(looks_like(&original[..original.len().min(200)]), "{folder}");
        assert_eq!(program.to_bytes(), original);
        assert_eq!(program.topology().bytes[..], original);
        // Changes without effect.
        program.rename(&BTreeMap::from([("nobody".into(), "x".into())])).unwrap();
        program.strip(&crate::Strip::default()).unwrap();
        assert_eq!(program.to_bytes(), original);
    }
}

#[test]
fn notes_missing_persistable_flags() {
    let noted: Vec<_> = GOLDEN
        .iter()
        .flat_map(|(folder, _)| golden(folder).notes().into_iter().map(move |n| (*folder, n.code.as_str())))
        .collect();
    assert_eq!(noted, [("cnn_pir_readable_nontrainable", "parameters-guessed")]);
}
