//! Comparison of every golden program with the output of Paddle's own reader.

use super::{Json, all, golden, parse, read};
use crate::program::{encode, looks_like, looks_like_text};
use serde_json::json;
use std::collections::BTreeSet;
use weighbridge_core::topology::{
    Attribute, AttributeValue, Block, Operator, Slot, Topology, Variable, VariableKind,
};

#[test]
fn reads_golden_programs() {
    let mut checked = 0;
    for (path, expected) in all() {
        let Some(expected) = expected else { continue };
        let topology = parse(&read(&path)).topology();
        let what = path.display();
        let version = expected["version"].as_i64().unwrap();
        assert_eq!(parse(&read(&path)).version(), Some(version), "{what}");
        assert!(topology.operator_versions.iter().map(|(op, v)| (op.as_str(), json!(v))).eq(
            expected["op_version_map"].as_object().unwrap().iter().map(|(op, v)| (op.as_str(), v.clone()))
        ));
        for key in ["feeds", "fetches"] {
            let found = if key == "feeds" { &topology.feeds } else { &topology.fetches };
            assert_eq!(
                json!(found.iter().map(|e| &e.name).collect::<Vec<_>>()),
                expected[key],
                "{what} {key}"
            );
        }
        let names: Vec<&str> = topology.parameters().iter().map(|v| v.name.as_str()).collect();
        assert_eq!(json!(names), expected["persistable_names_sorted"], "{what}");
        let same: Vec<String> = parse(&read(&path)).parameters().into_iter().map(|v| v.name).collect();
        assert_eq!(names, same, "{what}");
        let counts: serde_json::Map<String, Json> =
            topology.histogram().into_iter().map(|(op, n)| (op.to_owned(), json!(n))).collect();
        assert_eq!(Json::Object(counts), expected["op_counts"], "{what}");
        let blocks = expected["blocks"].as_array().unwrap();
        assert_eq!(topology.blocks.len(), blocks.len(), "{what}");
        for (found, expected) in topology.blocks.iter().zip(blocks) {
            block(found, expected, &what.to_string());
        }
        checked += 1;
    }
    assert!(checked >= 15);
}

fn block(found: &Block, expected: &Json, what: &str) {
    let parent = expected["parent_idx"].as_i64().unwrap();
    assert_eq!(found.parent, usize::try_from(parent).ok(), "{what}");
    let vars = expected["vars"].as_array().unwrap();
    assert_eq!(found.variables.len(), vars.len(), "{what}");
    for (found, expected) in found.variables.iter().zip(vars) {
        variable(found, expected, what);
    }
    let ops = expected["ops"].as_array().unwrap();
    assert_eq!(found.operators.len(), ops.len(), "{what}");
    for (found, expected) in found.operators.iter().zip(ops) {
        operator(found, expected, what);
    }
}

fn variable(found: &Variable, expected: &Json, what: &str) {
    let kind = match &found.kind {
        VariableKind::Tensor => "LOD_TENSOR",
        VariableKind::SelectedRows => "SELECTED_ROWS",
        VariableKind::TensorArray => "LOD_TENSOR_ARRAY",
        VariableKind::Feed => "FEED_MINIBATCH",
        VariableKind::Fetch => "FETCH_LIST",
        VariableKind::Raw => "RAW",
        other => other.as_str(),
    };
    let what = format!("{what}: {}", found.name);
    assert_eq!(json!(found.name), expected["name"], "{what}");
    // Paddle 3 has another word for the same number.
    let word = expected["type"].as_str().unwrap().replace("DENSE_TENSOR", "LOD_TENSOR");
    assert_eq!(kind, word, "{what}");
    assert_eq!(json!(found.persistable), expected["persistable"], "{what}");
    assert_eq!(json!(found.dtype_name), expected["dtype"], "{what}");
    assert_eq!(json!(found.shape), expected["dims"], "{what}");
    assert_eq!(u64::from(found.lod_level), expected["lod_level"].as_u64().unwrap_or(0), "{what}");
    for (key, value) in [("is_parameter", found.parameter), ("stop_gradient", found.stop_gradient)] {
        assert_eq!(value, expected.get(key).is_some_and(|v| v == &json!(true)), "{what} {key}");
    }
}

fn operator(found: &Operator, expected: &Json, what: &str) {
    let what = format!("{what}: {}", found.kind);
    assert_eq!(json!(found.kind), expected["type"], "{what}");
    let slots = |slots: &[Slot]| -> Json {
        slots.iter().map(|s| (s.name.clone(), json!(s.arguments))).collect::<serde_json::Map<_, _>>().into()
    };
    assert_eq!(slots(&found.inputs), expected["inputs"], "{what}");
    assert_eq!(slots(&found.outputs), expected["outputs"], "{what}");
    let attrs = expected["attrs"].as_object().unwrap();
    // Paddle itself writes some attributes twice (reshape2); a list by name has them once.
    let names: BTreeSet<&str> = found.attributes.iter().map(|a| a.name.as_str()).collect();
    assert!(names.into_iter().eq(attrs.keys().map(String::as_str).collect::<BTreeSet<_>>()), "{what}");
    for Attribute { name, kind, value } in &found.attributes {
        let expected = &attrs[name];
        assert_eq!(json!(kind), expected["type"], "{what} {name}");
        // Paths of the machine that made the files are not in the list.
        if let Some(expected) = expected.get("value") {
            assert_eq!(&attribute(value, kind), expected, "{what} {name}");
        }
    }
}

/// A number as the reader of the expected JSON has it: that reader is off by one bit at times, so
/// both go through it.
fn number(x: f64) -> Json {
    if x.is_finite() {
        serde_json::from_str(&format!("{x:?}")).unwrap()
    } else {
        json!(x.to_string().to_lowercase())
    }
}

fn attribute(value: &AttributeValue, kind: &str) -> Json {
    if kind.starts_with("SCALAR") {
        let one = |value: &AttributeValue| {
            let kind = match value {
                AttributeValue::Bool(_) => "BOOLEAN",
                AttributeValue::Int(_) => "LONG",
                AttributeValue::Double(_) => "FLOAT64",
                other => panic!("{other:?}"),
            };
            json!({"type": kind, "value": attribute(value, "")})
        };
        return match value {
            AttributeValue::List(values) => values.iter().map(one).collect(),
            value => one(value),
        };
    }
    match value {
        AttributeValue::Bool(b) => json!(b),
        AttributeValue::Int(i) => json!(i),
        AttributeValue::Float(f) => number(f64::from(*f)),
        AttributeValue::Double(d) => number(*d),
        AttributeValue::Text(text) | AttributeValue::Variable(text) => json!(text),
        AttributeValue::Block(place) => json!(place),
        AttributeValue::List(values) => values.iter().map(|v| attribute(v, "")).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn writes_golden_programs_unchanged() {
    for (path, _) in all() {
        let bytes = read(&path);
        let program = parse(&bytes);
        assert_eq!(program.to_bytes(), bytes, "{}", path.display());
        assert_eq!(program.topology().bytes[..], bytes, "{}", path.display());
        assert_eq!(encode(&program.message).unwrap(), bytes, "{}", path.display());
    }
}

#[test]
fn detects_programs_by_first_bytes() {
    for (path, _) in all() {
        let bytes = read(&path);
        for head in [64, 512, 4096] {
            let head = &bytes[..head.min(bytes.len())];
            assert!(looks_like(head, bytes.len() as u64), "{}", path.display());
        }
        assert!(!looks_like_text(&bytes));
        let text = parse(&bytes).to_text();
        assert!(looks_like_text(&text.as_bytes()[..512.min(text.len())]));
        assert!(!looks_like(text.as_bytes(), text.len() as u64));
    }
    let others: [&[u8]; 9] = [
        b"",
        b"\x0a",
        b"\x0a\x00",
        b"\n\nblocks of text",
        b"\n(a) text that begins with a line feed\n",
        b"\n\"quoted\"\n",
        b"\x00\x00\x00\x00\x00\x00\x00\x00",
        b"\x08\x07\x12\x07pytorch",
        b"PK\x03\x04",
    ];
    for other in others {
        assert!(!looks_like(other, 10_000), "{other:?}");
        assert!(!looks_like(other, other.len() as u64), "{other:?}");
        assert!(!looks_like_text(other), "{other:?}");
    }
    assert!(looks_like_text(b"# a comment\n\n  blocks\n{ idx: 0 }"));
    assert!(!looks_like_text(b"blocks_of_text {"));
    assert!(!looks_like_text(b"# only a comment"));
}

#[test]
fn reads_old_programs_and_variable_lists() {
    let order = |folder: &str, file: &str| -> (Vec<String>, Json) {
        let names = golden(&format!("{folder}/{file}")).parameters().into_iter().map(|v| v.name).collect();
        let expected = serde_json::from_slice(&read(format!("{folder}/expected.json"))).unwrap();
        (names, expected)
    };
    for folder in ["p262/combined_mixed", "p262/vocab"] {
        let (names, expected) = order(folder, "program.pb");
        assert_eq!(json!(names), expected["file_order"], "{folder}");
    }
    let (names, expected) = order("p262/cnn_legacy_combined", "__model__");
    assert_eq!(names.len(), expected["tensors"].as_array().unwrap().len());
    let topology = golden("p262/cnn_legacy_combined/__model__").topology();
    let kinds: Vec<&str> = topology.operators().map(|op| op.kind.as_str()).collect();
    assert_eq!(json!(kinds), expected["program_op_types"]);
}

#[test]
fn links_control_flow_to_its_bodies() {
    let topology: Topology = golden("p262/control_flow/model.pdmodel").topology();
    let bodies: Vec<(&str, &[usize])> = topology
        .operators()
        .filter(|op| !op.blocks.is_empty())
        .map(|op| (op.kind.as_str(), op.blocks.as_slice()))
        .collect();
    let expected: [(&str, &[usize]); 3] =
        [("while", &[1]), ("conditional_block", &[2]), ("conditional_block", &[3])];
    assert_eq!(bodies, expected);
    assert_eq!(topology.writer.as_deref(), Some("2.6.2"));
    // The fed variables in the order of `col`, not of the operators.
    let feeds: Vec<&str> = topology.feeds.iter().map(|f| f.name.as_str()).collect();
    assert_eq!(feeds, ["x", "n"]);
    assert_eq!(topology.feeds[0].shape, Some(vec![-1, 4]));
}
