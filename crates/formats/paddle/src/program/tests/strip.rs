//! Tests of stripping.

use super::{all, golden, parse, read};
use crate::{Strip, StripReport};
use std::collections::BTreeSet;
use weighbridge_core::topology::{AttributeValue, Topology};

fn kinds(topology: &Topology) -> Vec<String> {
    topology.operators().map(|op| op.kind.clone()).collect()
}

fn declared(topology: &Topology) -> BTreeSet<String> {
    topology.blocks.iter().flat_map(|b| &b.variables).map(|v| v.name.clone()).collect()
}

#[test]
fn empty_strip_changes_nothing() {
    for (path, _) in all() {
        let bytes = read(&path);
        let mut program = parse(&bytes);
        assert_eq!(program.strip(&Strip::default()).unwrap(), StripReport::default());
        assert_eq!(program.to_bytes(), bytes);
    }
}

#[test]
fn strips_source_lines_only() {
    let before = golden("p262/cnn_static_train/train.pdmodel");
    assert!(!before.source_leaks().is_empty());
    let leak = &before.source_leaks()[0];
    assert_eq!(leak.attribute, "op_callstack");
    assert!(leak.sample[0].contains(".py"), "{leak:?}");
    let mut after = before.clone();
    let report = after.strip(&Strip { source: true, ..Strip::default() }).unwrap();
    assert_eq!(after.source_leaks(), []);
    assert!(report.attributes > 0 && report.attribute_bytes > 1000);
    assert_eq!((report.operators, report.variables.len()), (0, 0));
    let mut expected = before.topology();
    for op in expected.blocks.iter_mut().flat_map(|b| &mut b.operators) {
        op.attributes.retain(|a| a.name != "op_callstack");
    }
    assert_eq!(after.topology().blocks, expected.blocks);
    assert!(after.bytes().len() < before.bytes().len());
    // A second strip changes nothing.
    assert_eq!(after.strip(&Strip { source: true, ..Strip::default() }).unwrap(), StripReport::default());
}

/// Training programs and what they compute.
const TRAINED: [(&str, &str); 2] = [
    ("p262/cnn_static_train/train.pdmodel", "softmax_0.tmp_0"),
    ("p262/seq_static_train/train.pdmodel", "linear_25.tmp_1"),
];

fn to(output: &str) -> Strip {
    Strip { outputs: vec![output.to_owned()], ..Strip::all() }
}

#[test]
fn strips_training_to_inference() {
    for (path, output) in TRAINED {
        let before = golden(path).topology();
        let mut program = golden(path);
        let report = program.strip(&to(output)).unwrap();
        let after = program.topology();
        for kind in kinds(&after) {
            assert!(!kind.ends_with("_grad") && kind != "adam" && kind != "cross_entropy", "{path} {kind}");
        }
        let ends = after.feeds.len() + after.fetches.len();
        assert_eq!(report.operators, (kinds(&before).len() + ends - kinds(&after).len()) as u64);
        let gone: BTreeSet<String> = declared(&before).difference(&declared(&after)).cloned().collect();
        assert_eq!(report.variables, gone);
        assert!(gone.iter().any(|n| n.ends_with("@GRAD")));
        for part in ["_moment1_0", "_beta1_pow_acc_0", "learning_rate_0"] {
            assert!(gone.iter().any(|n| n.contains(part)), "{path} {part}");
        }
        // Exactly the variables used by operators are still declared.
        let left = declared(&after);
        let used: BTreeSet<String> = after
            .operators()
            .flat_map(|op| op.inputs.iter().chain(&op.outputs).flat_map(|s| s.arguments.clone()))
            .collect();
        assert_eq!(left, used, "{path}");
        assert_eq!(after.fetches[0].name, output);
        assert_eq!(after.feeds.len(), 1, "{path}: the label is no input any more");
        for test in after.operators().filter_map(|op| op.attribute("is_test")) {
            assert_eq!(*test, AttributeValue::Bool(true), "{path}");
        }
        let mut again = program.clone();
        again.strip(&Strip::all()).unwrap();
        assert_eq!(again, program);
    }
}

#[test]
fn switches_batch_norm_and_dropout_to_inference() {
    let mut program = parse(&read("../strip/training/net.pdmodel"));
    let tests = |program: &super::ProgramDesc| -> Vec<(String, bool)> {
        let topology = program.topology();
        let tests = topology.operators().filter_map(|op| {
            Some((op.kind.clone(), *op.attribute("is_test")? == AttributeValue::Bool(true)))
        });
        tests.collect()
    };
    assert!(tests(&program).iter().any(|(kind, test)| kind == "batch_norm" && !test));
    let topology = program.topology();
    // Without outputs the whole forward pass is kept, including the loss.
    let mut whole = program.clone();
    let report = whole.strip(&Strip::all()).unwrap();
    assert_eq!(report.ends.last().unwrap(), "mean_0.tmp_0");
    assert!(tests(&whole).iter().all(|(_, test)| *test), "{:?}", tests(&whole));
    assert!(!kinds(&whole.topology()).iter().any(|kind| kind.ends_with("_grad") || kind == "adam"));
    assert!(whole.topology().feeds.is_empty() && whole.topology().fetches.is_empty());
    let last = topology.blocks[0].operators.iter().rfind(|op| op.kind == "elementwise_add").unwrap();
    program.strip(&to(&last.output("Out")[0])).unwrap();
    assert!(tests(&program).iter().all(|(_, test)| *test), "{:?}", tests(&program));
    let topology = program.topology();
    let norm = topology.operators().find(|op| op.kind == "batch_norm").unwrap();
    assert!(norm.output("ReserveSpace").is_empty() && !norm.output("MeanOut").is_empty());
}

#[test]
fn keeps_used_variables() {
    // Without removing the operators, gradients and state are in use.
    let (path, output) = TRAINED[0];
    let mut program = golden(path);
    let report = program.strip(&Strip { gradients: true, state: true, ..Strip::default() }).unwrap();
    assert_eq!(report, StripReport::default());
    assert_eq!(program.to_bytes(), read(path));
    // Outputs require the removal of operators, and must exist.
    let alone = Strip { outputs: vec![output.to_owned()], ..Strip::default() };
    assert_eq!(program.strip(&alone).unwrap_err().code().as_str(), "outputs-without-training");
    assert_eq!(program.strip(&to("no.such")).unwrap_err().code().as_str(), "no-such-output");
    assert_eq!(program.to_bytes(), read(path));
}

#[test]
fn keeps_the_operators_of_a_fetched_gradient() {
    // The same program, with a fetch of a gradient of the forward role.
    let program = golden("p262/op_attrs/main.pdmodel");
    let text = program.to_text();
    let fetch = "ops { type: \"fetch\" inputs { parameter: \"X\" arguments: \"embedding_0.w_0@GRAD\" } }";
    // The text ends with the block.
    let close = text.rfind('}').unwrap();
    let with = format!("{}{fetch}{}", &text[..close], &text[close..]);
    let limits = weighbridge_core::Limits::default();
    let mut with = super::ProgramDesc::from_text(&with, &limits).unwrap();
    let mut without = program;
    with.strip(&Strip { training: true, ..Strip::default() }).unwrap();
    without.strip(&to("embedding_0.w_0")).unwrap();
    let with = kinds(&with.topology());
    let without = kinds(&without.topology());
    for kind in ["lookup_table_v2_grad", "reduce_mean_grad"] {
        assert!(with.iter().any(|k| k == kind) && !without.iter().any(|k| k == kind), "{kind}");
    }
    assert!(!with.iter().any(|k| k == "sgd"));
}

#[test]
fn strips_only_unused_variables_of_inference_programs() {
    let path = "p262/control_flow/model.pdmodel";
    let before = golden(path).topology();
    let mut program = golden(path);
    let report = program.strip(&Strip::all()).unwrap();
    let after = program.topology();
    assert_eq!(report.operators, 0);
    assert_eq!(kinds(&before), kinds(&after));
    assert_eq!(before.blocks.len(), after.blocks.len());
    assert_eq!(before.feeds, after.feeds);
    assert_eq!(before.fetches, after.fetches);
    assert!(declared(&after).contains("feed") && declared(&after).contains("fetch"));
    // A list of variables without operators is unchanged.
    let mut list = golden("p262/combined_mixed/program.pb");
    assert_eq!(list.strip(&Strip::all()).unwrap(), StripReport::default());
}
