//! Changes to programs include their parameters.

use crate::support::paddle::{copy_folder, good, made, open, same_files};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use weighbridge::engine::RunOptions;
use weighbridge::finding::Verdict;
use weighbridge::formats::paddle::{Paddle, Strip, rename, strip};
use weighbridge::formats::{Names, PlanOptions, WriteFormat};
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
fn renamed_parameters_are_sorted_by_their_new_names() {
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
            same_files(&home, &good(name));
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
        assert_eq!(rename(&mut model, &names(&[(old, new)])).unwrap_err().code().as_str(), code);
        assert_eq!((paths(&model), model.topology.clone()), before);
    }
    let mut state = open(good("p262/cnn_state_dict/m_p4.pdparams"));
    assert_eq!(rename(&mut state, &names(&[("a", "b")])).unwrap_err().code().as_str(), "no-program");
    assert_eq!(strip(&mut state, &Strip::all()).unwrap_err().code().as_str(), "no-program");
}

#[test]
fn structured_names_stay_where_variables_are_renamed() {
    let options = OpenOptions { names: Names::Structured, ..OpenOptions::default() };
    let mut model = weighbridge::formats::open_with(good("p262/cnn_jit"), &options).unwrap();
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
    let what = Strip { unused: false, outputs: vec!["softmax_0.tmp_0".to_owned()], ..Strip::all() };
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

#[test]
fn the_scale_of_a_weight_is_renamed_with_it() {
    let temp = tempfile::tempdir().unwrap();
    let before = open(made("ptq"));
    let mut changed = before.clone();
    rename(&mut changed, &names(&[("conv2d_0.w_0", "zz")])).unwrap();
    let target = temp.path().join("renamed");
    write(&changed, &target, None);
    let after = open(&target);
    assert!(
        ["zz", "zz@scale"].iter().all(|name| paths(&after).contains(&(*name).to_owned())),
        "{:?}",
        paths(&after)
    );
    let (old, new) = (content(&before), content(&after));
    assert_eq!((&old["conv2d_0.w_0"], &old["conv2d_0.w_0@scale"]), (&new["zz"], &new["zz@scale"]));
    assert_eq!(verify(&target, &VerifyOptions::default()).unwrap().verdict, Verdict::Sound);
    // A scale whose tensor is renamed by itself, and one that keeps its name beside its renamed weight.
    for (old, new) in [("conv2d_0.w_0@scale", "s"), ("conv2d_0.w_0", "w")] {
        let mut changed = before.clone();
        let entry = changed.tensors.iter_mut().find(|t| t.text() == old).unwrap();
        entry
            .attributes
            .insert("renamed_from".to_owned(), weighbridge::checkpoint::Value::Text(old.to_owned()));
        entry.path = weighbridge::checkpoint::TensorPath::from_dotted(new);
        let target = temp.path().join(new);
        write(&changed, &target, None);
        assert!(paths(&open(&target)).contains(&new.to_owned()));
        assert_eq!(verify(&target, &VerifyOptions::default()).unwrap().verdict, Verdict::Sound);
    }
}

#[test]
fn the_scale_in_an_attribute_is_renamed_with_its_weight() {
    let temp = tempfile::tempdir().unwrap();
    let mut changed = open(made("lite"));
    rename(&mut changed, &names(&[("fc_0.w_0", "w")])).unwrap();
    let target = temp.path().join("renamed");
    write(&changed, &target, None);
    let after = open(&target);
    let topology = after.topology.as_ref().unwrap();
    assert!(topology.operators().any(|op| op.attribute("w_quant_scale").is_some()));
    assert!(topology.operators().all(|op| op.attribute("fc_0.w_0_quant_scale").is_none()));
    assert_eq!(verify(&target, &VerifyOptions::default()).unwrap().verdict, Verdict::Sound);
}

#[test]
fn quantized_models_are_stripped_and_written_again() {
    let temp = tempfile::tempdir().unwrap();
    for name in ["ptq", "lite"] {
        let mut model = open(made(name));
        let plan = Paddle.plan(&model, &PlanOptions::default()).unwrap();
        assert_eq!(plan.losses, [], "{name}");
        write(&model, &temp.path().join(name), None);
        same_files(&temp.path().join(name), &made(name));
        let all = content(&model);
        strip(&mut model, &Strip::all()).unwrap();
        let target = temp.path().join(format!("{name}-stripped"));
        write(&model, &target, None);
        assert_eq!(content(&open(&target)), all, "{name}");
    }
}

#[test]
fn hidden_files_of_macos_are_no_models() {
    let temp = tempfile::tempdir().unwrap();
    for name in ["p262/cnn_jit", "p262/cnn_state_dict", "p331/cnn_pir", "p262/cnn_legacy_combined"] {
        let folder = temp.path().join(name);
        copy_folder(&good(name), &folder);
        if name == "p262/cnn_state_dict" {
            let kept = ["m_p4.pdparams", "m_p4.pdopt"];
            for item in fs::read_dir(&folder).unwrap().map(|item| item.unwrap()) {
                if !kept.iter().any(|name| item.file_name() == *name) {
                    fs::remove_file(item.path()).unwrap();
                }
            }
        }
        let before = open(&folder);
        for item in fs::read_dir(&folder).unwrap().map(|item| item.unwrap()).collect::<Vec<_>>() {
            let name = item.file_name().into_string().unwrap();
            fs::write(folder.join(format!("._{name}")), b"\0\x05\x16\x07\0\x02\0\0Mac OS X        ").unwrap();
        }
        let after = open(&folder);
        assert_eq!(content(&after), content(&before), "{name}");
        assert_eq!(after.kind, before.kind);
        let report = verify(&folder, &VerifyOptions::default()).unwrap();
        assert_eq!(report.verdict, Verdict::Sound, "{name}: {:?}", report.findings);
    }
}

#[test]
fn a_model_of_3_x_has_the_names_of_the_state_beside_it() {
    let model = open(made("names"));
    let name = |variable: &str| {
        let entry = model.tensors.iter().find(|t| t.text() == variable).unwrap();
        entry.text_attribute("structured_name").map(str::to_owned)
    };
    for (variable, structured) in [
        ("linear_5.w_0", "first.weight"),
        ("linear_6.w_0", "second.weight"),
        ("linear_5.b_0", "first.bias"),
        ("linear_7.w_0", "out.weight"),
        ("linear_7.b_0", "out.bias"),
        ("batch_norm1d_1.w_2", "norm._variance"),
    ] {
        assert_eq!(name(variable).as_deref(), Some(structured), "{variable}");
    }
    // Both are zeros, and the table of names is that of another program.
    assert_eq!((name("batch_norm1d_1.b_0"), name("batch_norm1d_1.w_1")), (None, None));
    assert!(model.notes.iter().any(|n| n.code == "names-of-state" && n.text.starts_with("8 of 10 tensors")));
    // Given as a file it has them too; a state of another model gives none.
    assert_eq!(open(made("names/inference.pdiparams")).tensors[0].attributes, model.tensors[0].attributes);
    let temp = tempfile::tempdir().unwrap();
    copy_folder(&made("names"), temp.path());
    fs::copy(good("p262/cnn_state_dict/m_p4.pdparams"), temp.path().join("inference.pdparams")).unwrap();
    let other = open(temp.path());
    assert!(other.tensors.iter().all(|t| t.text_attribute("structured_name").is_none()));
    assert!(other.notes.iter().any(|n| n.code == "state-ignored"), "{:?}", other.notes);
}
