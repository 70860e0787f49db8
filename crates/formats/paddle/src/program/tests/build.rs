//! Construction of new programs.

use super::parse;
use crate::program::build::{Builder, dense};
use weighbridge_core::error::Kind;
use weighbridge_core::tensor::DType;
use weighbridge_core::topology::{Attribute, AttributeValue, Operator, Slot, Variable, VariableKind};

fn builder(names: &[&str]) -> Builder {
    let mut builder = Builder::new(2_006_002);
    for name in names {
        builder.variable(&dense(name, DType::F32, &[2, 3])).unwrap();
    }
    builder
}

#[test]
fn builds_programs_that_save_and_load() {
    let mut builder = builder(&["b", "a"]);
    builder.load("a", "dir/a").unwrap().save("b", "dir/b").unwrap();
    builder.load_combine(&["a", "b"], "in").unwrap().save_combine(&["a", "b"], "out").unwrap();
    let program = builder.finish().unwrap();
    let topology = parse(&program.to_bytes()).topology();
    assert_eq!(topology, program.topology());
    let ops = &topology.blocks[0].operators;
    let kinds: Vec<&str> = ops.iter().map(|op| op.kind.as_str()).collect();
    assert_eq!(kinds, ["load", "save", "load_combine", "save_combine"]);
    assert_eq!(ops[0].attribute("file_path"), Some(&AttributeValue::Text("dir/a".into())));
    assert_eq!(ops[2].output("Out"), ["a", "b"]);
    // The output that Paddle 2.6 requires is not a parameter.
    let [sink] = ops[3].output("Y") else { panic!() };
    assert_eq!(topology.variable(0, sink).unwrap().kind, VariableKind::Raw);
    let parameters: Vec<&str> = topology.parameters().iter().map(|v| v.name.as_str()).collect();
    assert_eq!(parameters, ["a", "b"]);
}

#[test]
fn places_feeds_first_and_fetches_last() {
    let mut builder = builder(&["x", "y", "z"]);
    builder.fetch("z").unwrap().feed("y").unwrap().feed("x").unwrap();
    let slot = |name: &str, argument: &str| Slot { name: name.into(), arguments: vec![argument.into()] };
    let add = Operator {
        kind: "elementwise_add".into(),
        inputs: vec![slot("X", "x"), slot("Y", "y")],
        outputs: vec![slot("Out", "z")],
        ..Operator::default()
    };
    builder.operator(&add).unwrap();
    let topology = builder.finish().unwrap().topology();
    let kinds: Vec<&str> = topology.operators().map(|op| op.kind.as_str()).collect();
    assert_eq!(kinds, ["feed", "feed", "elementwise_add", "fetch"]);
    let names: Vec<&str> = topology.feeds.iter().chain(&topology.fetches).map(|e| e.name.as_str()).collect();
    assert_eq!(names, ["y", "x", "z"]);
}

#[test]
fn round_trips_attributes_of_every_kind() {
    use AttributeValue::{Block, Bool, Complex, Double, Float, Int, List, Text};
    let word = |text: &str| Text(text.to_owned());
    let named = |name: &str| AttributeValue::Variable(name.to_owned());
    let values = [
        ("INT", Int(-3)),
        ("FLOAT", Float(0.5)),
        ("STRING", word("权")),
        ("STRING", AttributeValue::Bytes(vec![0xff])),
        ("INTS", List(vec![Int(1), Int(-1)])),
        ("FLOATS", List(vec![Float(f32::INFINITY)])),
        ("STRINGS", List(vec![word("a"), word("")])),
        ("BOOLEAN", Bool(true)),
        ("BOOLEANS", List(vec![Bool(false), Bool(true)])),
        ("BLOCK", Block(0)),
        ("LONG", Int(i64::MIN)),
        ("BLOCKS", List(vec![Block(0)])),
        ("LONGS", List(vec![])),
        ("FLOAT64S", List(vec![Double(-0.0)])),
        ("VAR", named("x")),
        ("VARS", List(vec![named("x"), named("y")])),
        ("FLOAT64", Double(1e300)),
        ("SCALAR", Complex(1.0, -1.0)),
        ("SCALARS", List(vec![Bool(true), Int(7), Double(0.1)])),
    ];
    let attributes: Vec<Attribute> = values
        .into_iter()
        .map(|(kind, value)| Attribute { name: kind.to_lowercase(), kind: kind.to_owned(), value })
        .collect();
    let op = Operator { kind: "all".into(), attributes: attributes.clone(), ..Operator::default() };
    let mut builder = builder(&[]);
    builder.operator(&op).unwrap();
    let program = builder.finish().unwrap();
    assert_eq!(parse(&program.to_bytes()).topology().blocks[0].operators[0].attributes, attributes);
    let text =
        super::ProgramDesc::from_text(&program.to_text(), &weighbridge_core::Limits::default()).unwrap();
    assert_eq!(text.to_bytes(), program.to_bytes());
}

#[test]
fn round_trips_variables_of_every_kind() {
    let tensor = dense("t", DType::BF16, &[-1, 3]);
    let none = Variable { dtype: None, shape: None, ..dense("n", DType::F32, &[]) };
    let variables = [
        Variable { lod_level: 2, parameter: true, stop_gradient: true, ..tensor.clone() },
        Variable { name: "0d".into(), shape: Some(vec![]), persistable: false, ..tensor.clone() },
        Variable { name: "rows".into(), kind: VariableKind::SelectedRows, ..tensor.clone() },
        Variable { name: "array".into(), kind: VariableKind::TensorArray, ..tensor },
        Variable { name: "raw".into(), kind: VariableKind::Raw, ..none.clone() },
        Variable { name: "vocab".into(), kind: VariableKind::Vocab, ..none.clone() },
        Variable { name: "reader".into(), kind: VariableKind::Reader, ..none.clone() },
        Variable { name: "scopes".into(), kind: VariableKind::Other("STEP_SCOPES".into()), ..none },
    ];
    let mut builder = builder(&[]);
    for variable in &variables {
        builder.variable(variable).unwrap();
    }
    let found = parse(&builder.finish().unwrap().to_bytes()).topology().blocks.remove(0).variables;
    for (found, expected) in found.iter().zip(&variables) {
        let word = expected.dtype.map(|_| "BF16".to_owned());
        assert_eq!(found, &Variable { dtype_name: word, ..expected.clone() });
    }
    assert_eq!(found.len(), variables.len());
}

#[test]
fn rejects_invalid_variables_and_operators() {
    let mut builder = builder(&["x"]);
    let cases = [
        (builder.variable(&dense("x", DType::F32, &[])).unwrap_err(), "name-collision"),
        (builder.variable(&dense("", DType::F32, &[])).unwrap_err(), "empty-name"),
        (builder.variable(&dense("y", DType::F4, &[])).unwrap_err(), "dtype"),
        (builder.feed("y").unwrap_err(), "no-such-variable"),
        (builder.save("y", "p").unwrap_err(), "no-such-variable"),
    ];
    for (error, code) in cases {
        assert_eq!(error.code().as_str(), code);
    }
    let bare = Variable { shape: None, ..dense("z", DType::F32, &[]) };
    assert_eq!(builder.variable(&bare).unwrap_err().kind(), Kind::Usage);
    let wrong = Attribute { name: "a".into(), kind: "INT".into(), value: AttributeValue::Int(1 << 40) };
    let op = Operator { kind: "op".into(), attributes: vec![wrong], ..Operator::default() };
    assert_eq!(builder.operator(&op).unwrap_err().code().as_str(), "wrong-value");
    builder.feed("x").unwrap().variable(&dense("feed", DType::F32, &[])).unwrap();
    assert_eq!(builder.finish().unwrap_err().code().as_str(), "name-collision");
}
