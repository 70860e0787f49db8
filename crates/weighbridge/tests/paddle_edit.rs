//! Programs that are changed take their parameters along.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, clippy::unwrap_used, clippy::panic)]

#[path = "common/paddle.rs"]
mod paddle;

use paddle::{good, open};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use weighbridge::engine::RunOptions;
use weighbridge::finding::Verdict;
use weighbridge::formats::paddle::{Paddle, Strip, rename, strip};
use weighbridge::formats::{Format, Names, PlanOptions};
use weighbridge::ops::hash::sha256;
use weighbridge::ops::save;
use weighbridge::ops::verify::{VerifyOptions, verify};
use weighbridge::{Checkpoint, OpenOptions, TensorEntry};

fn names(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|&(old, new)| (old.to_owned(), new.to_owned())).collect()
}

fn write(checkpoint: &Checkpoint, target: &Path, kind: Option<&str>) {
    let options = PlanOptions { kind: kind.map(str::to_owned), ..PlanOptions::default() };
    let plan = Paddle.plan(checkpoint, &options).unwrap();
    assert!(plan.losses.iter().all(|l| l.code != "not-in-program"), "{:?}", plan.losses);
    save(&plan, target, false, &RunOptions::default()).unwrap();
}

/// Names as variables, with the hashes of the elements.
fn content(checkpoint: &Checkpoint) -> BTreeMap<String, String> {
    checkpoint.tensors.iter().map(|t| (t.name(), sha256(t).unwrap())).collect()
}

fn ends(checkpoint: &Checkpoint) -> (Vec<String>, Vec<String>) {
    let topology = checkpoint.topology.as_ref().unwrap();
    let names = |ends: &[weighbridge::topology::Endpoint]| ends.iter().map(|e| e.name.clone()).collect();
    (names(&topology.feeds), names(&topology.fetches))
}

fn paths(checkpoint: &Checkpoint) -> Vec<String> {
    checkpoint.tensors.iter().map(TensorEntry::text).collect()
}

#[test]
fn renamed_parameters_stand_where_their_new_names_belong() {
    let temp = tempfile::tempdir().unwrap();
    for (number, name) in
        ["p262/cnn_static_infer", "p262/cnn_legacy_separate", "p331/cnn_pir", "p262/cnn_jit"]
            .into_iter()
            .enumerate()
    {
        let before = open(good(name));
        let mut changed = before.clone();
        // The first becomes the last, and two swap their names.
        let pairs = [
            ("batch_norm2d_0.b_0", "zz.last"),
            ("conv2d_0.w_0", "conv2d_1.w_0"),
            ("conv2d_1.w_0", "conv2d_0.w_0"),
        ];
        rename(&mut changed, &names(&pairs)).unwrap();
        let target = temp.path().join(number.to_string());
        write(&changed, &target, Some("inference"));
        let after = open(&target);
        assert_eq!(ends(&after), ends(&before), "{name}");
        let mut wanted = content(&before);
        for (old, _) in pairs {
            wanted.remove(old);
        }
        for (old, new) in pairs {
            wanted.insert(new.to_owned(), content(&before)[old].clone());
        }
        assert_eq!(content(&after), wanted, "{name}");
        let mut sorted = paths(&after);
        sorted.sort_unstable();
        assert_eq!(paths(&after), sorted);
        assert_eq!(paths(&after).last().unwrap(), "zz.last");
        assert_eq!(verify(&target, &VerifyOptions::default()).unwrap().verdict, Verdict::Sound, "{name}");
        // And back, to the byte.
        rename(&mut changed, &pairs.iter().map(|&(old, new)| (new.to_owned(), old.to_owned())).collect())
            .unwrap();
        let home = temp.path().join(format!("{number}.home"));
        write(&changed, &home, None);
        if name == "p262/cnn_static_infer" || name == "p331/cnn_pir" {
            paddle::same_files(&home, &good(name));
        }
    }
}

#[test]
fn inputs_can_be_renamed_and_what_is_refused_changes_nothing() {
    let mut model = open(good("p262/cnn_static_infer"));
    rename(&mut model, &names(&[("image", "picture")])).unwrap();
    assert_eq!(ends(&model).0, ["picture"]);
    let before = (paths(&model), model.topology.clone());
    for (old, new, code) in
        [("nobody", "x", "no-such-variable"), ("linear_0.w_0", "linear_0.b_0", "name-collision")]
    {
        assert_eq!(rename(&mut model, &names(&[(old, new)])).unwrap_err().code(), code);
        assert_eq!((paths(&model), model.topology.clone()), before);
    }
    let mut state = open(good("p262/cnn_state_dict/m_p4.pdparams"));
    assert_eq!(rename(&mut state, &names(&[("a", "b")])).unwrap_err().code(), "no-program");
    assert_eq!(strip(&mut state, &Strip::all()).unwrap_err().code(), "no-program");
}

#[test]
fn structured_names_stay_where_variables_are_renamed() {
    let options = OpenOptions { names: Names::Structured, ..OpenOptions::default() };
    let mut model = weighbridge::open_with(good("p262/cnn_jit"), &options).unwrap();
    let before = paths(&model);
    rename(&mut model, &names(&[("conv2d_0.w_0", "first")])).unwrap();
    assert_eq!(paths(&model), before);
    assert_eq!(model.tensor("conv1.weight").unwrap().text_attribute("variable_name"), Some("first"));
    let temp = tempfile::tempdir().unwrap();
    write(&model, &temp.path().join("x"), None);
    let after = open(temp.path().join("x"));
    assert_eq!(after.tensor("first").unwrap().text_attribute("structured_name"), Some("conv1.weight"));
}

#[test]
fn state_goes_with_its_parameter() {
    let mut model = open(good("p262/cnn_static_train"));
    let old: Vec<_> =
        model.tensors.iter().filter(|t| t.text().starts_with("linear_0.w_0")).cloned().collect();
    assert!(old.len() > 3, "{old:?}");
    rename(&mut model, &names(&[("linear_0.w_0", "head.w")])).unwrap();
    assert!(paths(&model).iter().all(|p| !p.starts_with("linear_0.w_0")));
    for entry in old {
        let new = entry.text().replacen("linear_0.w_0", "head.w", 1);
        assert_eq!(sha256(model.tensor(&new).unwrap()).unwrap(), sha256(&entry).unwrap());
    }
    // The program has the new names too: all is still there, and nothing else.
    let topology = model.topology.clone().unwrap();
    let declared = |name: &str| topology.parameters().iter().any(|v| v.name == name);
    assert!(declared("head.w") && declared("head.w_moment1_0") && !declared("linear_0.w_0_moment1_0"));
    let report = weighbridge::ops::verify::verify_checkpoint(&model, &VerifyOptions::default()).unwrap();
    assert_eq!(report.verdict, Verdict::Sound, "{:#?}", report.findings);
    let temp = tempfile::tempdir().unwrap();
    write(&model, &temp.path().join("x.pdparams"), Some("state"));
    let again = open(temp.path().join("x.pdparams"));
    assert_eq!(content(&again), content(&model));
}

#[test]
fn a_training_program_becomes_one_for_inference() {
    let mut model = open(good("p262/cnn_static_train"));
    let before = model.clone();
    let what = Strip { source: true, training: true, gradients: true, state: true, unused: false };
    let report = strip(&mut model, &what).unwrap();
    assert!(report.operators > 10 && report.attributes > 10, "{report:?}");
    // Moments and powers go; the parameters, running means among them, stay.
    assert!(model.tensors.iter().all(|t| t.role.slot().is_none()));
    let parameters = open(good("p262/cnn_static_train/train.pdparams"));
    assert_eq!(content(&model), content(&parameters));
    for name in &report.variables {
        assert!(model.topology.as_ref().unwrap().parameters().iter().all(|v| v.name != *name));
    }
    assert!(before.tensors.len() > model.tensors.len() + 20);
    let temp = tempfile::tempdir().unwrap();
    let target = temp.path().join("x");
    write(&model, &target, Some("inference"));
    assert_eq!(verify(&target, &VerifyOptions::default()).unwrap().verdict, Verdict::Sound);
    // The same parameters as those that Paddle itself wrote for inference.
    let golden = fs::read(good("p262/cnn_static_infer/model.pdiparams")).unwrap();
    let written = fs::read_dir(&target).unwrap().map(|f| f.unwrap().path());
    let written = written.into_iter().find(|p| p.extension().is_some_and(|e| e == "pdiparams")).unwrap();
    assert!(fs::read(written).unwrap() == golden);
}

#[test]
fn stripping_source_keeps_all_tensors() {
    for name in ["p262/cnn_legacy_combined", "p331/cnn_pir", "p262/seq_jit"] {
        let before = open(good(name));
        let mut model = before.clone();
        strip(&mut model, &Strip { source: true, ..Strip::default() }).unwrap();
        assert_eq!((content(&model), ends(&model)), (content(&before), ends(&before)));
        let topology = model.topology.unwrap();
        assert_eq!(topology.histogram(), before.topology.unwrap().histogram());
        assert!(weighbridge::formats::paddle::Program::of(&topology).unwrap().source_leaks().is_empty());
    }
}
