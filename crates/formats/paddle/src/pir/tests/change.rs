//! Renaming and stripping. A separate judge checks that Paddle loads the results.

use super::{GOLDEN, PirProgram, bytes, fetch, golden, named, of, op, p};
use crate::Strip;
use crate::flow::{Flow, Phase};
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use weighbridge_core::topology::{AttributeValue, Topology};

const TRAINING: Strip = Strip {
    source: false,
    training: true,
    gradients: false,
    state: false,
    unused: false,
    outputs: Vec::new(),
};

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|&(old, new)| (old.to_owned(), new.to_owned())).collect()
}

/// Kinds of the operators of the main block.
fn kinds(program: &PirProgram) -> Vec<String> {
    program.topology().blocks[0].operators.iter().map(|op| op.kind.clone()).collect()
}

fn read(program: &PirProgram) -> Json {
    serde_json::from_slice(&program.to_bytes()).unwrap()
}

/// Asserts that every operand is produced by a remaining operator.
fn assert_whole(program: &PirProgram) {
    assert!(program.notes().iter().all(|n| n.code != "undefined-value"));
}

#[test]
fn renames_all_occurrences() {
    let set = named("0.set_parameter", "parameter_name", "w", &[4], 0)
        .replace(",\"O\":[{\"%\":0", ",\"O\":[{\"%\":5");
    let points =
        r##"{"AT":{"#":"0.a_array","D":[{"#":"0.a_tensorname","D":"w"},{"#":"0.a_str","D":"w"}]},"N":"of"}"##;
    let ops = [
        p(1, "w"),
        p(2, "v"),
        named("1.data", "name", "x", &[], 3),
        op("1.mul", points, &[1, 3], 4),
        set,
        fetch(0, 4, 6),
    ];
    let mut program = of(&ops.join(",")).unwrap();
    let renamed = program.rename(&map(&[("w", "v"), ("v", "w"), ("x", "权\"\n"), ("none", "y")])).unwrap();
    assert_eq!(renamed, ["v", "w", "x"].map(String::from).into());
    let topology = program.topology();
    let outputs: Vec<_> = topology.blocks[0].operators.iter().map(|op| op.output("")[0].as_str()).collect();
    assert_eq!(outputs, ["v", "w", "权\"\n", "%4", "%5", "fetch_name_0"]);
    assert_eq!(topology.feeds[0].name, "权\"\n");
    let json = read(&program);
    let ops = &json["program"]["regions"][0]["blocks"][0]["ops"];
    assert_eq!(ops[4]["A"][0]["AT"]["D"], "v");
    // Plain text attributes are kept.
    assert_eq!(
        ops[3]["A"][0]["AT"]["D"],
        json!([{"#": "0.a_tensorname", "D": "v"}, {"#": "0.a_str", "D": "w"}])
    );
    assert_eq!(program.rename(&map(&[("权\"\n", "x"), ("v", "w"), ("w", "v")])).unwrap().len(), 3);
    assert_eq!(
        String::from_utf8(program.to_bytes()).unwrap(),
        super::program(super::BASE, &self::joined(&program))
    );
}

/// The operators as they stand in the text.
fn joined(program: &PirProgram) -> String {
    let operators = program.model.blocks[0].operators.iter();
    let text = operators.map(|op| String::from_utf8(program.bytes[op.span.clone()].to_vec()).unwrap());
    text.collect::<Vec<_>>().join(",")
}

#[test]
fn renaming_back_restores_the_file() {
    for (folder, name) in GOLDEN {
        let mut program = golden(folder);
        let there: BTreeMap<_, _> = program
            .topology()
            .parameters()
            .iter()
            .map(|v| (v.name.clone(), format!("é\"{}", v.name)))
            .collect();
        let back = there.iter().map(|(old, new)| (new.clone(), old.clone())).collect();
        assert_eq!(program.rename(&there).unwrap().len(), there.len());
        let names: Vec<_> = program.topology().parameters().iter().map(|v| v.name.clone()).collect();
        assert_eq!(names, there.values().cloned().collect::<Vec<_>>());
        program.rename(&back).unwrap();
        assert_eq!(program.to_bytes(), bytes(folder, name), "{folder}");
    }
}

#[test]
fn rejects_name_collisions_without_changes() {
    let mut program = of(&[p(1, "a"), p(2, "b")].join(",")).unwrap();
    let before = program.to_bytes();
    for (pairs, code) in [
        (map(&[("a", "b")]), "name-taken"),
        (map(&[("a", "c"), ("b", "c")]), "name-taken"),
        (map(&[("a", "")]), "bad-name"),
        (map(&[("a", &"x".repeat(2 << 20))]), "limit"),
    ] {
        assert_eq!(program.rename(&pairs).unwrap_err().code().as_str(), code);
        assert_eq!(program.to_bytes(), before);
    }
}

/// Returns the JSON without the attributes that contain source information.
fn without_source(json: &mut Json) {
    match json {
        Json::Array(list) => {
            list.retain(|e| !["op_callstack", "struct_name"].iter().any(|n| e["N"] == *n));
            list.iter_mut().for_each(without_source);
        }
        Json::Object(map) => map.values_mut().for_each(without_source),
        _ => {}
    }
}

#[test]
fn strips_source_only() {
    for (folder, _) in GOLDEN {
        let mut program = golden(folder);
        let leaks = program.source_leaks();
        assert!(
            leaks.iter().all(|leak| leak.attribute == "struct_name" && leak.text.starts_with('/')),
            "{folder}"
        );
        let mut expected = read(&program);
        without_source(&mut expected);
        let report = program.strip(&Strip { source: true, ..Strip::default() }).unwrap();
        assert!(report.attributes > 0);
        assert_eq!(report.attributes, leaks.len() as u64);
        assert_eq!(report.attribute_bytes, leaks.iter().map(|l| l.text.len() as u64).sum::<u64>());
        assert_eq!((report.operators, report.variables.len()), (0, 0));
        assert_eq!(read(&program), expected, "{folder}");
        assert_eq!(program.source_leaks(), []);
        // The layout is still that of Paddle's writer.
        let text = String::from_utf8(program.to_bytes()).unwrap();
        let readable = *folder == "cnn_pir_readable_nontrainable";
        assert_eq!(text.contains('\n'), readable);
        if readable {
            let mut tidy = Vec::new();
            let format = serde_json::ser::PrettyFormatter::with_indent(b"    ");
            serde::Serialize::serialize(
                &expected,
                &mut serde_json::Serializer::with_formatter(&mut tidy, format),
            )
            .unwrap();
            // Only the exponents of floats are formatted differently.
            assert_eq!(text.replace("e-06", "e-6"), String::from_utf8(tidy).unwrap());
        }
    }
}

#[test]
fn finds_call_stacks_in_any_attribute() {
    let stack = r##"{"AT":{"#":"0.a_array","D":[{"#":"0.a_str","D":"File \"/home/me/a.py\", line 7, in f"}]},"N":"where"}"##;
    let text = of(&op("1.x", stack, &[], 1)).unwrap();
    let leaks = text.source_leaks();
    assert_eq!((leaks[0].operator.as_str(), leaks[0].attribute.as_str()), ("pd_op.x", "where"));
    assert!(leaks[0].text.contains("/home/me/a.py"));
    assert!(text.to_bytes()[usize::try_from(leaks[0].offset).unwrap()..].starts_with(stack.as_bytes()));
}

/// The result of the first operator of that kind.
fn result(program: &PirProgram, kind: &str) -> String {
    let topology = program.topology();
    let op = topology.blocks[0].operators.iter().find(|op| op.kind == kind).unwrap();
    op.output("")[0].clone()
}

#[test]
fn strips_training_to_inference() {
    let mut program = golden("cnn_pir_train");
    let before: Topology = program.topology();
    let named = Strip { outputs: vec![result(&program, "pd_op.softmax")], ..TRAINING };
    let report = program.strip(&named).unwrap();
    assert_whole(&program);
    let left = kinds(&program);
    assert!(
        !left.iter().any(|k| k.ends_with("_grad") || k.ends_with("adam_") || k.contains("full_like")),
        "{left:?}"
    );
    let forward = ["pd_op.conv2d", "pd_op.batch_norm_", "pd_op.pool2d", "pd_op.softmax"];
    for kind in forward {
        let count = |topology: &Topology| topology.operators().filter(|op| op.kind == kind).count();
        assert_eq!(count(&program.topology()), count(&before), "{kind}");
    }
    // The loss and its label are removed; one fetch is added.
    assert!(!left.iter().any(|k| k == "pd_op.mean"));
    assert_eq!(report.operators, (before.operators().count() - left.len() + 1) as u64);
    let topology = program.topology();
    assert_eq!(topology.feeds.len(), 1);
    assert_eq!(topology.fetches.len(), 1);
    assert_eq!(topology.fetches[0].shape, Some(vec![-1, 10]));
    for test in topology.operators().filter_map(|op| op.attribute("is_test")) {
        assert_eq!(*test, AttributeValue::Bool(true));
    }
    // Tensors that inference does not read are removed: moments, powers, the learning rate.
    assert!(
        report.variables.contains("conv2d_0.w_0_moment1_0") && report.variables.contains("learning_rate_0")
    );
    assert_eq!(topology.parameters().len(), 13);
    let mut again = program.clone();
    assert_eq!(again.strip(&TRAINING).unwrap(), crate::StripReport::default());
    assert_eq!(again.to_bytes(), program.to_bytes());
}

#[test]
fn strips_training_without_outputs_to_the_forward_pass() {
    let mut program = golden("cnn_pir_train");
    let before: Topology = program.topology();
    let report = program.strip(&TRAINING).unwrap();
    assert_whole(&program);
    let left = kinds(&program);
    assert!(
        !left.iter().any(|k| k.ends_with("_grad") || k.ends_with("adam_") || k.contains("full_like")),
        "{left:?}"
    );
    let forward = ["pd_op.conv2d", "pd_op.batch_norm_", "pd_op.pool2d", "pd_op.softmax", "pd_op.mean"];
    for kind in forward {
        let count = |topology: &Topology| topology.operators().filter(|op| op.kind == kind).count();
        assert_eq!(count(&program.topology()), count(&before), "{kind}");
    }
    // The mean of the loss.
    assert_eq!(report.ends, [result(&program, "pd_op.mean")]);
    assert_eq!(report.operators, (before.operators().count() - left.len()) as u64);
    for test in program.topology().operators().filter_map(|op| op.attribute("is_test")) {
        assert_eq!(*test, AttributeValue::Bool(true));
    }
    // Parameters and state are stored tensors: they are kept unless removal is requested.
    assert_eq!(program.topology().parameters().len(), before.parameters().len());
    let gone = program.strip(&Strip { state: true, ..Strip::default() }).unwrap().variables;
    assert_eq!(gone.len(), before.parameters().len() - 13);
    assert!(gone.contains("conv2d_0.w_0_moment1_0") && gone.contains("learning_rate_0"), "{gone:?}");
    assert_eq!(program.topology().parameters().len(), 13);
    assert_whole(&program);
    let mut at_once = golden("cnn_pir_train");
    at_once.strip(&Strip { state: true, ..TRAINING }).unwrap();
    assert_eq!(at_once.to_bytes(), program.to_bytes());
}

#[test]
fn rejects_unknown_outputs_and_outputs_without_training() {
    let mut program = golden("cnn_pir_train");
    let before = program.to_bytes();
    let named = |name: &str, training| Strip { training, outputs: vec![name.to_owned()], ..TRAINING };
    assert_eq!(program.strip(&named("%999999", true)).unwrap_err().code().as_str(), "no-such-output");
    assert_eq!(program.strip(&named("%20", false)).unwrap_err().code().as_str(), "outputs-without-training");
    assert_eq!(program.to_bytes(), before);
}

#[test]
fn reduces_a_program_to_an_existing_output() {
    let ops = [
        p(1, "w"),
        p(2, "v"),
        named("1.data", "name", "x", &[], 3),
        named("1.data", "name", "y", &[], 4),
        op("1.add", "", &[1, 3], 5),
        op("1.add", "", &[2, 4], 6),
        op("1.print", "", &[6], 7),
        fetch(0, 5, 8),
        fetch(1, 6, 9),
    ];
    let mut program = of(&ops.join(",")).unwrap();
    let report = program.strip(&Strip { outputs: vec!["fetch_name_0".to_owned()], ..TRAINING }).unwrap();
    assert_eq!(kinds(&program), ["builtin.parameter", "pd_op.data", "pd_op.add", "pd_op.fetch"]);
    assert_eq!(report.variables, ["%6", "%7", "fetch_name_1", "v", "y"].map(String::from).into());
    assert_eq!(program.topology().fetches[0].name, "fetch_name_0");
}

/// The models with tensor arrays.
fn arrays() -> Vec<PirProgram> {
    let read = |name| weighbridge_testkit::golden(format!("paddle/strip/{name}/model.json"));
    ["tensor_array_pir", "loop_gru_pir"].map(|name| super::parse(&read(name)).unwrap()).into()
}

#[test]
fn keeps_in_place_writes_that_outputs_read() {
    for mut program in arrays() {
        let mut expected = program.clone();
        expected.strip(&Strip { source: true, ..Strip::default() }).unwrap();
        assert!(program.topology().operators().any(|op| op.kind == "pd_op.array_write_"));
        let report = program.strip(&Strip::all()).unwrap();
        assert_eq!((report.operators, report.variables.len()), (0, 0));
        assert_eq!(program.to_bytes(), expected.to_bytes());
    }
}

#[test]
fn rejects_a_program_that_lost_a_writer() {
    for program in arrays() {
        let before = program.topology();
        let flow = Flow::of(&before, |_, _| Phase::Forward);
        let main = &before.blocks[0].operators;
        flow.check(&vec![true; main.len()], None, &before).unwrap();
        // No operator reads the results of the loop, but one reads the array that it writes.
        let text = String::from_utf8(program.to_bytes()).unwrap();
        let place = main.iter().position(|op| op.kind == "pd_op.while").unwrap();
        let span = program.model.blocks[0].operators[place].span.clone();
        let after =
            super::parse(format!("{}{}", &text[..span.start], &text[span.end + 1..]).as_bytes()).unwrap();
        let kept: Vec<bool> = (0..main.len()).map(|step| step != place).collect();
        assert_eq!(
            flow.check(&kept, None, &after.topology()).unwrap_err().code().as_str(),
            "outputs-changed"
        );
        // The slice of the array's loop, from the outputs back.
        assert!(flow.live(None)[place]);
    }
}

/// Returns the operator kinds that remain after `--strip training`.
fn left(ops: &[String]) -> Vec<String> {
    let mut program = of(&ops.join(",")).unwrap();
    program.strip(&TRAINING).unwrap();
    assert_whole(&program);
    kinds(&program).iter().map(|k| k.split_once('.').unwrap().1.to_owned()).collect()
}

#[test]
fn keeps_effects_and_removes_unused_operators() {
    let silent = r##"{"#":"1.assert","A":[],"I":[{"%":10}],"O":[],"OA":[]}"##.to_owned();
    let ops = [
        p(1, "w"),
        op("1.tanh", "", &[1], 2),
        op("1.exp", "", &[1], 3),
        op("1.print", "", &[3], 4),
        op("1.uniform", "", &[], 5),
        op("1.randint", "", &[], 6),
        op("1.dropout", r##"{"AT":{"#":"0.a_bool","D":false},"N":"is_test"}"##, &[2], 7),
        op("1.increment_", "", &[1], 8),
        op("1.increment_", "", &[3], 9),
        op("1.shape", "", &[2], 10),
        silent,
        fetch(0, 2, 11),
    ];
    let stays =
        ["parameter", "tanh", "exp", "print", "uniform", "randint", "increment_", "shape", "assert", "fetch"];
    assert_eq!(left(&ops), stays);
}

#[test]
fn keeps_in_place_operators_that_outputs_depend_on() {
    // y = relu_(x) writes to x; z = exp_(y) writes to both, after x was read for the last time.
    let ops = |fetched| {
        [
            named("1.data", "name", "x", &[], 1),
            op("1.relu_", "", &[1], 2),
            op("1.scale", "", &[1], 3),
            op("1.exp_", "", &[2], 4),
            fetch(0, fetched, 5),
        ]
    };
    assert_eq!(left(&ops(3)), ["data", "relu_", "scale", "fetch"]);
    assert_eq!(left(&ops(2)), ["data", "relu_", "exp_", "fetch"]);
    // The assigned variable is the second operand.
    let assigned = [
        named("1.data", "name", "x", &[], 1),
        op("1.full", "", &[], 2),
        op("1.assign_out_", "", &[1, 2], 3),
        fetch(0, 2, 4),
    ];
    assert_eq!(left(&assigned), ["data", "full", "assign_out_", "fetch"]);
    let mut other = assigned.clone();
    other[3] = fetch(0, 1, 4);
    assert_eq!(left(&other), ["data", "fetch"]);
}

#[test]
fn keeps_state_that_is_read() {
    let mut program = golden("cnn_pir_train");
    let before = program.to_bytes();
    let report =
        program.strip(&Strip { state: true, gradients: true, unused: true, ..Strip::default() }).unwrap();
    assert_eq!((report, program.to_bytes()), (crate::StripReport::default(), before));
}

#[test]
fn strips_only_source_of_inference_programs() {
    for (folder, _) in GOLDEN.iter().filter(|(f, _)| *f != "cnn_pir_train") {
        let mut program = golden(folder);
        let mut expected = program.clone();
        expected.strip(&Strip { source: true, ..Strip::default() }).unwrap();
        let report = program.strip(&Strip::all()).unwrap();
        // This program has a state tensor that no operator reads and no file contains.
        let unused = report.variables.iter().all(|v| v.contains("non_persistable"));
        assert!(unused, "{folder} {:?}", report.variables);
        if report.variables.is_empty() {
            assert_eq!(program.to_bytes(), expected.to_bytes(), "{folder}");
        }
        assert_eq!(program.topology().parameters().len(), expected.topology().parameters().len());
        assert_whole(&program);
    }
}

#[test]
fn keeps_gradients_that_outputs_need() {
    let feed = named("1.data", "name", "label", &[], 3);
    let persistent = r##""OA":[{"AT":{"#":"0.a_array","D":[{"#":"0.a_bool","D":true}]},"N":"persistable"}]"##;
    let state = named("1.data", "name", "w_moment_0", &[], 4).replace("\"OA\":[]", persistent);
    let effect = r##"{"#":"1.assert","A":[],"I":[{"%":10}],"O":[],"OA":[]}"##.to_owned();
    let ops = [
        p(1, "w"),
        p(2, "idle"),
        feed,
        state,
        op("1.tanh", "", &[1], 5),
        op("1.tanh_grad", "", &[5], 6),
        op("1.scale", "", &[6], 7),
        op("1.cross", "", &[5, 3], 8),
        op("1.cross_grad", "", &[8], 9),
        op("1.momentum_", "", &[1, 9, 4], 11),
        op("1.shape", "", &[5], 10),
        effect,
        op("1.print", "", &[9], 12),
        fetch(0, 7, 13),
    ];
    let all = ops.join(",");
    let mut program = of(&all).unwrap();
    let report = program.strip(&TRAINING).unwrap();
    let left: Vec<_> = kinds(&program).iter().map(|k| k.split_once('.').unwrap().1.to_owned()).collect();
    let stays = ["parameter", "parameter", "data", "tanh", "tanh_grad", "scale", "shape", "assert", "fetch"];
    assert_eq!(left, stays);
    assert_eq!(report.operators, 5);
    assert_eq!(report.variables, ["%11", "%12", "%8", "%9", "label"].map(String::from).into());
    assert_whole(&program);
    let report = program.strip(&Strip { unused: true, ..Strip::default() }).unwrap();
    assert_eq!(report.variables, ["idle", "w_moment_0"].map(String::from).into());
}

#[test]
fn treats_bodies_as_part_of_their_operator() {
    let inside = op("1.relu_grad", "", &[2], 4);
    let body =
        |ops: &str| format!(r##","regions":[{{"#":"r","blocks":[{{"#":"b","args":[],"ops":[{ops}]}}]}}]}}"##);
    let with = |op: String, ops: &str| format!("{}{}", op.strip_suffix('}').unwrap(), body(ops));
    let ops = [
        p(1, "w"),
        p(2, "v"),
        with(op("1.if", "", &[1], 3), &inside),
        with(op("1.if", "", &[1], 5), &op("1.relu", "", &[2], 6)),
        fetch(0, 5, 7),
    ];
    let mut program = of(&ops.join(",")).unwrap();
    let report = program.strip(&Strip::all()).unwrap();
    assert_eq!(report.operators, 2);
    assert_eq!(kinds(&program), ["builtin.parameter", "builtin.parameter", "pd_op.if", "pd_op.fetch"]);
    assert_eq!(program.topology().blocks.len(), 2);
}

#[test]
fn strips_all_operators() {
    let mut program = of(&p(1, "w")).unwrap();
    program.strip(&Strip::all()).unwrap();
    assert_eq!(String::from_utf8(program.to_bytes()).unwrap(), super::program(super::BASE, ""));
}
