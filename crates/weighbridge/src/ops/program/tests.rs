use super::*;
use crate::check::testing::{endpoint, linear, operator, program, variable};
use crate::topology::{Attribute, AttributeValue, Operator, VariableKind};

fn setting(name: &str, kind: &str, value: AttributeValue) -> Attribute {
    Attribute { name: name.to_owned(), kind: kind.to_owned(), value }
}

fn ints(values: &[i64]) -> AttributeValue {
    AttributeValue::List(values.iter().map(|&n| AttributeValue::Int(n)).collect())
}

/// A convolution, its normalisation and a pooling, as an inference program has them.
fn conv_net() -> Topology {
    let mut feed = variable("feed", &[], true);
    feed.kind = VariableKind::Feed;
    (feed.dtype, feed.dtype_name, feed.shape) = (None, None, None);
    let mut filter = variable("conv2d_0.w_0", &[8, 3, 3, 3], true);
    filter.parameter = true;
    let mut image = variable("image", &[-1, 3, 32, 32], false);
    image.stop_gradient = true;
    let mut conv = operator(
        "conv2d",
        &[("Bias", &[]), ("Filter", &["conv2d_0.w_0"]), ("Input", &["image"])],
        &[("Output", &["conv2d_0.tmp_0"])],
    );
    conv.attributes = vec![
        setting("strides", "INTS", ints(&[1, 1])),
        setting("data_format", "STRING", AttributeValue::Text("NCHW".into())),
        setting("Scale_in", "FLOAT", AttributeValue::Float(0.1)),
        setting("use_cudnn", "BOOLEAN", AttributeValue::Bool(true)),
        setting(
            "op_callstack",
            "STRINGS",
            AttributeValue::List(vec![AttributeValue::Text("  File \"a.py\"".into()); 11]),
        ),
    ];
    let norm = operator(
        "batch_norm",
        &[("X", &["conv2d_0.tmp_0"]), ("Scale", &["bn.w_0"]), ("MomentumTensor", &["@EMPTY@"])],
        &[("Y", &["y"]), ("MeanOut", &["bn.w_1"]), ("ReserveSpace", &[])],
    );
    let main = Block {
        variables: vec![
            feed,
            image,
            filter,
            variable("conv2d_0.tmp_0", &[-1, 8, 32, 32], false),
            variable("bn.w_0", &[8], true),
            variable("bn.w_1", &[8], true),
            variable("y", &[-1, 8, 32, 32], false),
        ],
        operators: vec![conv, norm],
        ..Block::default()
    };
    program(vec![main], vec![endpoint("image", &[-1, 3, 32, 32])], vec![endpoint("y", &[-1, 8, 32, 32])])
}

/// A loop with a condition in its body.
fn nested() -> Topology {
    let with_body = |kind: &str, body: usize| Operator {
        attributes: vec![setting("sub_block", "BLOCK", AttributeValue::Block(body))],
        blocks: vec![body],
        ..operator(kind, &[("X", &["i"]), ("Condition", &["go"])], &[("Out", &["i"])])
    };
    let mut flag = variable("go", &[1], false);
    flag.dtype = Some(crate::tensor::DType::Bool);
    let main = Block {
        variables: vec![variable("i", &[1], false), flag],
        operators: vec![
            operator("fill_constant", &[], &[("Out", &["i"])]),
            operator("less_than", &[("X", &["i"])], &[("Out", &["go"])]),
            with_body("while", 1),
        ],
        ..Block::default()
    };
    let body = Block {
        parent: Some(0),
        variables: vec![variable("t", &[1], false)],
        operators: vec![
            operator("increment", &[("X", &["i"])], &[("Out", &["t"])]),
            with_body("conditional_block", 2),
        ],
        ..Block::default()
    };
    let inner = Block {
        parent: Some(1),
        arguments: vec!["a0".to_owned()],
        operators: vec![operator("assign", &[("X", &["t"])], &[("Out", &["i"])])],
        ..Block::default()
    };
    program(vec![main, body, inner], vec![], vec![endpoint("i", &[1])])
}

/// Names that try to leave their place.
fn odd() -> Topology {
    let evil = "a\"];\n\u{1b}[2J\\";
    let main = Block {
        variables: vec![variable(evil, &[1], true)],
        operators: vec![operator("op } \"\\N", &[("", &[evil])], &[("", &["權重 x", "b,c"])])],
        ..Block::default()
    };
    program(vec![main], vec![], vec![])
}

const CONV: &str = r#"program-desc, written by 2.6.2
input image: f32 [-1, 3, 32, 32]
output y: f32 [-1, 8, 32, 32]
block 0:
  var feed: feed, persistable
  var image: f32 [-1, 3, 32, 32], no gradient
  var conv2d_0.w_0: f32 [8, 3, 3, 3], parameter, persistable
  var conv2d_0.tmp_0: f32 [-1, 8, 32, 32]
  var bn.w_0: f32 [8], persistable
  var bn.w_1: f32 [8], persistable
  var y: f32 [-1, 8, 32, 32]
  conv2d_0.tmp_0 = conv2d(Bias=[], Filter=[conv2d_0.w_0], Input=[image], strides=[1, 1], data_format="NCHW", Scale_in=0.1, use_cudnn=true, op_callstack=["  File \"a.py\"", "  File \"a.py\"", "  File \"a.py\"", "  File \"a.py\"", "  File \"a.py\"", "  File \"a.py\"", "  File \"a.py\"", "  File \"a.py\"", ... 3 more])
  Y=[y], MeanOut=[bn.w_1] = batch_norm(X=[conv2d_0.tmp_0], Scale=[bn.w_0], MomentumTensor=[@EMPTY@])
"#;

const NESTED: &str = "program-desc, written by 2.6.2
output i: f32 [1]
block 0:
  var i: f32 [1]
  var go: bool [1]
  i = fill_constant()
  go = less_than(X=[i])
  i = while(X=[i], Condition=[go], sub_block=block 1)
    block 1 in block 0:
      var t: f32 [1]
      t = increment(X=[i])
      i = conditional_block(X=[i], Condition=[go], sub_block=block 2)
        block 2(a0) in block 1:
          i = assign(X=[t])
";

const ODD: &str = r#"program-desc, written by 2.6.2
block 0:
  var "a\"];\n\u{1b}[2J\\": f32 [1], persistable
  "權重 x", "b,c" = "op } \"\\N"("a\"];\n\u{1b}[2J\\")
"#;

#[test]
fn listings() {
    assert_eq!(listing(&conv_net()), CONV);
    assert_eq!(listing(&nested()), NESTED);
    assert_eq!(listing(&odd()), ODD);
}

#[test]
fn values_are_shortened() {
    let mut program = linear();
    program.blocks[0].operators.truncate(1);
    let mut deep = AttributeValue::Int(1);
    for _ in 0..9 {
        deep = AttributeValue::List(vec![deep]);
    }
    program.blocks[0].operators[0].attributes = vec![
        setting("text", "STRING", AttributeValue::Text("x".repeat(61))),
        setting("deep", "LIST", deep),
        setting("bytes", "STRING", AttributeValue::Bytes(b"\xffa".to_vec())),
        setting("nan", "FLOAT", AttributeValue::Float(f32::NAN)),
        setting("wide", "FLOAT64", AttributeValue::Double(1e300)),
        setting("complex", "SCALAR", AttributeValue::Complex(1.0, -0.5)),
        setting("var", "VAR", AttributeValue::Variable("x".into())),
        setting("place", "a_place", AttributeValue::Word("gpu:0".into())),
        setting("none", "STRINGS", AttributeValue::None),
    ];
    let text = listing(&program);
    let step = text.lines().last().unwrap();
    let expected = format!(
        r#"  t = matmul_v2(X=[x], Y=[fc.w], text="{}"..., deep=[[[[[...]]]]], bytes="\\xffa", nan=NaN, wide=1e300, complex=(1.0, -0.5), var=var x, place=gpu:0, none=none)"#,
        "x".repeat(60)
    );
    assert_eq!(step, expected);
}

#[test]
fn the_summary_counts() {
    let sums = summary(&conv_net());
    assert_eq!((sums.blocks, sums.variables, sums.operators, sums.parameters), (1, 7, 2, 3));
    assert_eq!((sums.parameter_elements, sums.parameter_bytes), (216 + 16, 4 * 232));
    assert_eq!(
        sums.to_string(),
        "form         program-desc, 0 bytes without tensors
written by   2.6.2
inputs       image: f32 [-1, 3, 32, 32]
outputs      y: f32 [-1, 8, 32, 32]
blocks       1
variables    7
parameters   3 with 232 elements (928 bytes), including buffers
operators    2
             1 batch_norm
             1 conv2d
"
    );
    let json = sums.to_json();
    assert_eq!(json["inputs"][0], json!({"name": "image", "dtype": "f32", "shape": [-1, 3, 32, 32]}));
    assert_eq!(json["operator_types"][0], json!({"type": "batch_norm", "count": 1}));
    assert_eq!(json["parameters"], json!({"count": 3, "elements": 232, "bytes": 928}));
}

#[test]
fn json_has_everything() {
    let json = to_json(&conv_net());
    let keys: Vec<_> = json.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, ["form", "writer", "inputs", "outputs", "operator_versions", "blocks"]);
    assert_eq!(json["operator_versions"], json!([{"operator": "conv2d", "version": 1}]));
    let conv = &json["blocks"][0]["operators"][0];
    assert_eq!(conv["inputs"][1], json!({"slot": "Filter", "arguments": ["conv2d_0.w_0"]}));
    assert_eq!(conv["attributes"][0], json!({"name": "strides", "type": "INTS", "value": [1, 1]}));
    assert_eq!(conv["attributes"][2]["value"].to_string(), "0.1");
    assert_eq!(conv["attributes"][4]["value"].as_array().unwrap().len(), 11);
    let expected = json!({
        "name": "conv2d_0.w_0", "kind": "tensor", "dtype": "f32", "type": "FP32", "shape": [8, 3, 3, 3],
        "lod_level": 0, "persistable": true, "parameter": true, "stop_gradient": false,
    });
    assert_eq!(json["blocks"][0]["variables"][2], expected);
    let json = to_json(&nested());
    assert_eq!(json["blocks"][1]["parent"], 0);
    assert_eq!(json["blocks"][0]["parent"], Json::Null);
    assert_eq!(json["blocks"][0]["operators"][2]["blocks"], json!([1]));
    assert_eq!(json["blocks"][0]["operators"][2]["attributes"][0]["value"], json!({"block": 1}));
    assert_eq!(json["blocks"][2]["arguments"], json!(["a0"]));
}

const GRAPH: &str = r#"digraph program {
  rankdir=TB;
  compound=true;
  node [fontname="sans-serif"];
    o0_0 [shape=box, label="fill_constant"];
    v0 [shape=ellipse, label="i\nf32 [1]", penwidth=3];
    o0_1 [shape=box, label="less_than"];
    v1 [shape=ellipse, label="go\nbool [1]"];
    o0_2 [shape=box, label="while"];
    subgraph cluster_1 {
      label="block 1"; style=rounded;
      o1_0 [shape=box, label="increment"];
      v2 [shape=ellipse, label="t\nf32 [1]"];
      o1_1 [shape=box, label="conditional_block"];
      subgraph cluster_2 {
        label="block 2"; style=rounded;
        o2_0 [shape=box, label="assign"];
      }
    }
  o0_0 -> v0;
  v0 -> o0_1;
  o0_1 -> v1;
  v0 -> o0_2;
  v1 -> o0_2;
  o0_2 -> v0;
  o0_2 -> o1_0 [style=dashed, lhead=cluster_1];
  v0 -> o1_0;
  o1_0 -> v2;
  v0 -> o1_1;
  v1 -> o1_1;
  o1_1 -> v0;
  o1_1 -> o2_0 [style=dashed, lhead=cluster_2];
  v2 -> o2_0;
  o2_0 -> v0;
}
"#;

#[test]
fn graphs() {
    assert_eq!(to_dot(&nested()), GRAPH);
    let conv = to_dot(&conv_net());
    assert!(conv.contains(
        r#"[shape=ellipse, label="conv2d_0.w_0\nf32 [8, 3, 3, 3]", style=filled, fillcolor=lightgrey]"#
    ));
    assert!(!conv.contains(EMPTY));
}

/// Outside of quotes there is nothing but what the writer put there.
#[test]
fn names_cannot_leave_their_quotes() {
    let graph = to_dot(&odd());
    assert!(graph.contains(r#"label="a\"];\\n\\u{1b}[2J\\\nf32 [1]""#), "{graph}");
    assert!(graph.contains(r#"label="op } \"\\N""#), "{graph}");
    let (mut outside, mut inside, mut escaped) = (String::new(), false, false);
    for c in graph.chars() {
        match c {
            _ if escaped => escaped = false,
            '\\' if inside => escaped = true,
            '"' => inside = !inside,
            c if !inside => outside.push(c),
            _ => {}
        }
    }
    assert!(!inside);
    assert_eq!(outside.matches('{').count(), 1);
    assert!(!outside.contains("2J"));
    assert!(graph.chars().all(|c| c == '\n' || !c.is_control()));
}

/// Blocks that run each other, contain each other, or are nested very deeply, are printed in bounded time.
#[test]
fn malformed_blocks_are_shown_once() {
    let runs = |blocks: Vec<usize>| Operator { blocks, ..operator("while", &[("X", &["x"])], &[]) };
    let body = |parent, operators| Block { parent: Some(parent), operators, ..Block::default() };
    // Every block runs all others, twice.
    let all: Vec<usize> = (0..40).chain(0..40).chain([99]).collect();
    let many =
        program((0..40).map(|i| body((i + 1) % 40, vec![runs(all.clone())])).collect(), vec![], vec![]);
    let text = listing(&many);
    for number in 0..40 {
        assert_eq!(text.matches(&format!("block {number} in block")).count(), 1);
    }
    assert!(text.contains("block 99 is missing"));
    assert_eq!(to_dot(&many).matches("shape=box").count(), 40);
    // A chain of 5000.
    let chain = |i: usize| body(i.saturating_sub(1), vec![runs(vec![i + 1])]);
    let deep = program((0..5000).map(chain).collect(), vec![], vec![]);
    let text = listing(&deep);
    assert_eq!(text.matches("while(").count(), 5000);
    assert!(text.contains("shown below") && text.lines().all(|line| line.len() < 200));
    assert_eq!(to_dot(&deep).matches("shape=box").count(), 5000);
}

#[test]
fn a_file_without_a_program_says_so() {
    let error = of(&Checkpoint::new("npz", "archive", "x.npz")).unwrap_err();
    assert_eq!(
        (error.code().as_str(), error.file(), error.found_text()),
        ("no-program", Some("x.npz"), Some("npz archive"))
    );
    let mut checkpoint = Checkpoint::new("paddle", "inference", "x");
    checkpoint.topology = Some(Arc::new(linear()));
    assert_eq!(summary(of(&checkpoint).unwrap()).operators, 3);
}
