//! What goes, and what must stay.

use super::{all, golden, parse, read};
use crate::formats::paddle::{Strip, StripReport};
use crate::topology::Topology;
use std::collections::BTreeSet;

fn kinds(topology: &Topology) -> Vec<String> {
    topology.operators().map(|op| op.kind.clone()).collect()
}

fn declared(topology: &Topology) -> BTreeSet<String> {
    topology.blocks.iter().flat_map(|b| &b.variables).map(|v| v.name.clone()).collect()
}

#[test]
fn nothing_asked_nothing_done() {
    for (path, _) in all() {
        let bytes = read(&path);
        let mut program = parse(&bytes);
        assert_eq!(program.strip(&Strip::default()).unwrap(), StripReport::default());
        assert_eq!(program.to_bytes(), bytes);
    }
}

#[test]
fn source_lines_go_and_nothing_else() {
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
    // A second time there is nothing left to do.
    assert_eq!(after.strip(&Strip { source: true, ..Strip::default() }).unwrap(), StripReport::default());
}

#[test]
fn a_training_program_becomes_its_forward_pass() {
    for path in ["p262/cnn_static_train/train.pdmodel", "p262/seq_static_train/train.pdmodel"] {
        let before = golden(path).topology();
        let mut program = golden(path);
        let report = program.strip(&Strip::all()).unwrap();
        let after = program.topology();
        for kind in kinds(&after) {
            assert!(!kind.ends_with("_grad") && kind != "adam", "{path} {kind}");
        }
        assert_eq!(report.operators, (kinds(&before).len() - kinds(&after).len()) as u64);
        let gone: BTreeSet<String> = declared(&before).difference(&declared(&after)).cloned().collect();
        assert_eq!(report.variables, gone);
        assert!(gone.iter().any(|n| n.ends_with("@GRAD")));
        for part in ["_moment1_0", "_beta1_pow_acc_0", "learning_rate_0"] {
            assert!(gone.iter().any(|n| n.contains(part)), "{path} {part}");
        }
        // What the forward pass uses is declared still; so are all its parameters.
        let left = declared(&after);
        for op in after.operators() {
            for name in op.inputs.iter().chain(&op.outputs).flat_map(|s| &s.arguments) {
                assert!(left.contains(name), "{path} {name}");
            }
        }
        // One weight of the recurrent net is kept for its layout only: no operator uses it.
        let weights = |t: &Topology| -> BTreeSet<String> {
            let all = t.blocks[0].variables.iter().filter(|v| v.parameter).map(|v| v.name.clone());
            all.filter(|n| n != "lstm_0.w_0").collect()
        };
        assert_eq!(weights(&after), weights(&before), "{path}");
        assert!(!left.contains("lstm_0.w_0"));
        assert!(!weights(&after).is_empty());
    }
}

#[test]
fn what_is_used_stays() {
    // Without taking the operators out, gradients and state are in use.
    let path = "p262/cnn_static_train/train.pdmodel";
    let mut program = golden(path);
    let report = program.strip(&Strip { gradients: true, state: true, ..Strip::default() }).unwrap();
    assert_eq!(report, StripReport::default());
    assert_eq!(program.to_bytes(), read(path));
    // Taking the operators out alone leaves all variables.
    let report = program.strip(&Strip { training: true, ..Strip::default() }).unwrap();
    assert!(report.operators > 0 && report.variables.is_empty());
    // Moments are known as such while the operators are there, and by nothing afterwards.
    let mut both = golden(path);
    let report = both.strip(&Strip { training: true, state: true, ..Strip::default() }).unwrap();
    let stored: BTreeSet<String> = both.topology().parameters().iter().map(|v| v.name.clone()).collect();
    let before: BTreeSet<String> =
        golden(path).topology().parameters().iter().map(|v| v.name.clone()).collect();
    assert_eq!(report.variables, before.difference(&stored).cloned().collect());
    let state =
        before.iter().filter(|n| n.contains("_moment") || n.contains("_pow_acc") || *n == "learning_rate_0");
    assert_eq!(report.variables, state.cloned().collect());
}

#[test]
fn a_gradient_that_is_fetched_keeps_what_makes_it() {
    // The same program, with a fetch of a gradient of the forward role.
    let program = golden("p262/op_attrs/main.pdmodel");
    let text = program.to_text();
    let fetch = "ops { type: \"fetch\" inputs { parameter: \"X\" arguments: \"embedding_0.w_0@GRAD\" } }";
    // The block is what the text ends with.
    let close = text.rfind('}').unwrap();
    let with = format!("{}{fetch}{}", &text[..close], &text[close..]);
    let limits = crate::Limits::default();
    let mut with = super::ProgramDesc::from_text(&with, &limits).unwrap();
    let mut without = program;
    let strip = Strip { training: true, ..Strip::default() };
    with.strip(&strip).unwrap();
    without.strip(&strip).unwrap();
    let with = kinds(&with.topology());
    let without = kinds(&without.topology());
    for kind in ["lookup_table_v2_grad", "reduce_mean_grad"] {
        assert!(with.iter().any(|k| k == kind) && !without.iter().any(|k| k == kind), "{kind}");
    }
    assert!(!with.iter().any(|k| k == "sgd"));
}

#[test]
fn inference_programs_keep_all_but_the_unused() {
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
    // A list of variables without operators stays a list of variables.
    let mut list = golden("p262/combined_mixed/program.pb");
    assert_eq!(list.strip(&Strip::all()).unwrap(), StripReport::default());
}
