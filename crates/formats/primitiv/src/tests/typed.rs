//! Tests of the objects in memory: invariants and loading.

use super::*;
use crate::{LoadMode, LoadReport, Shape};
use weighbridge_core::Kind;

fn tensor(dims: &[u32], first: f32) -> Tensor {
    let n: u32 = dims.iter().product();
    let values = (0..u16::try_from(n).unwrap()).map(|i| first + f32::from(i)).collect();
    Tensor::new(dims, values).unwrap()
}

fn parameter(first: f32) -> Parameter {
    Parameter::new(tensor(&[2], first)).unwrap()
}

fn path(text: &str) -> TensorPath {
    TensorPath::parse(text)
}

/// `b`, `enc.fc.w`, `enc.fc.b`, `enc.g`.
fn model() -> Model {
    let mut model = Model::new();
    for (i, address) in (0u16..).zip(["b", "enc.fc.w", "enc.fc.b", "enc.g"]) {
        model.insert(path(address), parameter(f32::from(i))).unwrap();
    }
    model
}

fn names(model: &Model) -> Vec<String> {
    model.walk().map(|(path, _)| path.to_text()).collect()
}

#[test]
fn tensors_are_column_major() {
    let t = Tensor::with_batch(&[2, 3, 1], 2, (0u8..12).map(f32::from).collect()).unwrap();
    assert_eq!((t.dims(), t.batch()), (&[2, 3][..], 2));
    assert_eq!(t.get(&[1, 2]), Some(5.0));
    assert_eq!(t.get_in(1, &[0, 1, 0, 0]), Some(8.0));
    assert_eq!([t.get(&[2, 0]), t.get(&[0]), t.get(&[0, 0, 1]), t.get_in(2, &[0, 0])], [None; 4]);
    assert_eq!(tensor(&[], 7.0).get(&[]), Some(7.0));
    assert_eq!(tensor(&[1], 7.0), tensor(&[], 7.0));
    let nan = |bits| Tensor::new(&[], vec![f32::from_bits(bits)]).unwrap();
    assert_eq!(nan(0x7fc0_0001), nan(0x7fc0_0001));
    assert_ne!(nan(0x7fc0_0001), nan(0x7fc0_0002));
    assert_ne!(nan(0), nan(0x8000_0000));
}

#[test]
fn rejects_invalid_tensors() {
    let code = |dims: &[u32], n: usize| Tensor::new(dims, vec![0.0; n]).unwrap_err().code().as_str();
    assert_eq!(code(&[2, 2], 3), "length-mismatch");
    assert_eq!(code(&[0], 0), "zero-dim");
    assert_eq!(code(&[1; 9], 1), "too-many-dims");
    assert_eq!(code(&[65536, 65536], 0), "shape-overflow");
    assert_eq!(code(&[641, 6_700_417], 1), "shape-overflow");
    assert_eq!(Tensor::with_batch(&[2], 0, vec![]).unwrap_err().code().as_str(), "zero-batch");
    let batched = Tensor::with_batch(&[], 2, vec![0.0; 2]).unwrap();
    assert_eq!(Parameter::new(batched.clone()).unwrap_err().code().as_str(), "batched-parameter");
    assert_eq!(parameter(0.0).set_value(batched).unwrap_err().code().as_str(), "batched-parameter");
    assert_eq!(Shape::new(&[u32::MAX], 1).unwrap().values(), u32::MAX);
    let error = Tensor::new(&[2], vec![]).unwrap_err();
    assert_eq!(error.kind(), Kind::Mismatch);
}

#[test]
fn stats_are_ordered_and_unique() {
    let mut p = parameter(0.0);
    p.add_stat("m2", tensor(&[2], 1.0)).unwrap();
    p.add_stat("m1", Tensor::with_batch(&[], 3, vec![0.0; 3]).unwrap()).unwrap();
    assert_eq!(p.add_stat("m2", tensor(&[], 0.0)).unwrap_err().code().as_str(), "name-taken");
    let back = Parameter::from_bytes(p.to_bytes(true).unwrap(), true).unwrap();
    assert_eq!(back, p);
    assert_eq!(back.stats().map(|(name, _)| name.to_text()).collect::<Vec<_>>(), ["m2", "m1"]);
    assert_eq!(materialise(&p.plan(true).unwrap()), [p.to_bytes(true).unwrap()]);
    assert_eq!(Parameter::from_checkpoint(&p.to_checkpoint(true).unwrap(), true).unwrap(), p);
    assert_eq!(Parameter::from_checkpoint(&p.to_checkpoint(true).unwrap(), false).unwrap().stats().len(), 0);
    p.stat_mut("m2").unwrap().data_mut()[0] = 9.0;
    assert_eq!(p.stat("m2").unwrap().data(), [9.0, 2.0]);
    assert!(p.remove_stat("m2").is_some() && p.remove_stat("m2").is_none());
    p.clear_stats();
    assert_eq!(p, parameter(0.0));
}

#[test]
fn rejects_duplicate_names() {
    let mut m = model();
    let code = |m: &mut Model, address: &str| {
        let as_parameter = m.insert(path(address), parameter(0.0)).unwrap_err().code().as_str();
        let as_model = m.graft(path(address), Model::new()).unwrap_err().code().as_str();
        assert_eq!(as_parameter, as_model);
        as_parameter
    };
    for taken in ["b", "enc", "enc.fc", "enc.fc.w", "b.x", "enc.g.x.y"] {
        assert_eq!(code(&mut m, taken), "name-taken", "{taken}");
    }
    assert_eq!(code(&mut m, "[]"), "empty-path");
    assert_eq!(m, model());
    // An empty submodel occupies its name, but is not stored in a file.
    m.add_submodel("empty", Model::new()).unwrap();
    assert!(m.has_submodel(&path("empty")) && !m.has_submodel(&path("b")));
    assert_eq!(m.add_parameter("empty", parameter(0.0)).unwrap_err().code().as_str(), "name-taken");
    assert_eq!(m.to_bytes(true).unwrap(), model().to_bytes(true).unwrap());
    // Names are bytes; a dot in a name is not a separator.
    m.add_parameter("enc.fc", parameter(0.0)).unwrap();
    m.add_parameter("", parameter(0.0)).unwrap();
    m.add_parameter(Name::new(*b"\xff"), parameter(0.0)).unwrap();
    assert_eq!(names(&m), ["", "b", "enc.fc.b", "enc.fc.w", "enc.g", "enc.fc", "\\xff"]);
    assert_eq!(m.parameter(r#"["enc.fc"]"#).unwrap(), &parameter(0.0));
    assert_eq!(m.parameter("enc.fc").unwrap_err().code().as_str(), "unknown-address");
    assert_eq!(Model::from_bytes(m.to_bytes(true).unwrap(), true).unwrap().len(), 7);
}

#[test]
fn submodels_are_extracted_and_merged() {
    let m = model();
    let enc = m.extract(&path("enc")).unwrap();
    assert_eq!(names(&enc), ["fc.b", "fc.w", "g"]);
    assert_eq!(m.extract(&TensorPath::default()).unwrap(), m);
    for missing in ["en", "enc.g", "b", "enc.fc.w.x"] {
        assert_eq!(m.extract(&path(missing)).unwrap_err().code().as_str(), "unknown-address", "{missing}");
        assert_eq!(m.clone().remove_submodel(&path(missing)).unwrap_err().code().as_str(), "unknown-address");
    }
    let mut cut = m.clone();
    assert_eq!(cut.remove_submodel(&path("enc")).unwrap(), enc);
    assert_eq!(names(&cut), ["b"]);
    assert!(!cut.has_submodel(&path("enc")));
    cut.graft(path("deep.er"), enc.clone()).unwrap();
    assert_eq!(names(&cut), ["b", "deep.er.fc.b", "deep.er.fc.w", "deep.er.g"]);
    assert_eq!(cut.extract(&path("deep.er")).unwrap(), enc);
    assert_eq!(cut.remove_parameter(&path("b")).unwrap(), parameter(0.0));
    assert_eq!(cut.remove_parameter(&path("deep")).unwrap_err().code().as_str(), "unknown-address");

    let mut renamed = m.clone();
    renamed.rename(&path("enc.fc"), path("dec")).unwrap();
    assert_eq!(names(&renamed), ["b", "dec.b", "dec.w", "enc.g"]);
    renamed.rename(&path("b"), path("enc.b")).unwrap();
    assert_eq!(names(&renamed), ["dec.b", "dec.w", "enc.b", "enc.g"]);
    for (from, to, code) in [
        ("dec", "enc", "name-taken"),
        ("dec", "enc.b.x", "name-taken"),
        ("dec.b", "enc", "name-taken"),
        ("dec", "[]", "empty-path"),
        ("[]", "x", "empty-path"),
        ("none", "x", "unknown-address"),
    ] {
        let before = renamed.clone();
        assert_eq!(renamed.rename(&path(from), path(to)).unwrap_err().code().as_str(), code, "{from} {to}");
        assert_eq!(names(&renamed), names(&before));
    }

    let mut merged = m.clone();
    let mut other = Model::new();
    other.insert(path("enc.fc.c"), parameter(8.0)).unwrap();
    merged.merge(other.clone()).unwrap();
    assert_eq!(names(&merged), ["b", "enc.fc.b", "enc.fc.c", "enc.fc.w", "enc.g"]);
    for clash in ["enc.fc", "b.x", "enc.g"] {
        let mut bad = Model::new();
        bad.insert(path("aaa"), parameter(0.0)).unwrap();
        bad.insert(path(clash), parameter(0.0)).unwrap();
        assert_eq!(merged.merge(bad).unwrap_err().code().as_str(), "name-taken", "{clash}");
    }
    let mut bad = Model::new();
    bad.graft(path("b"), Model::new()).unwrap();
    assert_eq!(merged.merge(bad).unwrap_err().code().as_str(), "name-taken");
    assert_eq!(merged.len(), 5);
}

#[test]
fn models_round_trip() {
    let mut m = model();
    m.get_mut(&path("b")).unwrap().add_stat("s", tensor(&[3], 4.0)).unwrap();
    for with_stats in [true, false] {
        let bytes = m.to_bytes(with_stats).unwrap();
        assert_eq!(materialise(&m.plan(with_stats).unwrap())[0], bytes);
        let back = Model::from_bytes(bytes, true).unwrap();
        assert_eq!(back == m, with_stats);
        assert_eq!(Model::from_checkpoint(&m.to_checkpoint(with_stats).unwrap(), true).unwrap(), back);
    }
    let t = Tensor::with_batch(&[2], 3, vec![1.0; 6]).unwrap();
    assert_eq!(Tensor::from_bytes(t.to_bytes()).unwrap(), t);
    assert_eq!(materialise(&t.plan().unwrap()), [t.to_bytes()]);
    assert_eq!(Tensor::from_checkpoint(&t.to_checkpoint().unwrap()).unwrap(), t);
    let error = Model::from_bytes(t.to_bytes(), true).unwrap_err();
    assert_eq!(
        (error.code().as_str(), error.offset(), error.file()),
        ("wrong-kind", Some(10), Some("memory"))
    );
}

#[test]
fn strict_loading_is_all_or_nothing() {
    let mut source = Model::new();
    source.insert(path("b"), parameter(100.0)).unwrap();
    source.insert(path("enc.g"), parameter(200.0)).unwrap();
    source.get_mut(&path("b")).unwrap().add_stat("s", tensor(&[], 1.0)).unwrap();
    let mut m = model();
    m.get_mut(&path("enc.g")).unwrap().add_stat("old", tensor(&[], 1.0)).unwrap();
    let report = m.load_into(&source, true, LoadMode::Strict).unwrap();
    assert_eq!(report.replaced, 2);
    assert_eq!(report.missing, [path("enc.fc.b"), path("enc.fc.w")]);
    assert_eq!(m.parameter("b").unwrap(), source.parameter("b").unwrap());
    assert_eq!(m.parameter("enc.g").unwrap().stats().len(), 0);
    assert_eq!(names(&m), names(&model()));
    let mut from_file = model();
    let file = memory(source.to_bytes(true).unwrap());
    assert_eq!(from_file.load_into(file.clone(), true, LoadMode::Strict).unwrap(), report);
    assert_eq!(from_file, m);
    from_file.load_into(file, false, LoadMode::Strict).unwrap();
    assert_eq!(from_file.parameter("b").unwrap().stats().len(), 0);

    for (address, dims, code) in [
        ("zz", &[2][..], "unknown-address"),
        ("enc.fc.w", &[3], "shape-differs"),
        ("enc.fc", &[2], "unknown-address"),
    ] {
        let mut bad = Model::new();
        bad.insert(path("b"), parameter(300.0)).unwrap();
        bad.insert(path(address), Parameter::new(tensor(dims, 0.0)).unwrap()).unwrap();
        let before = m.clone();
        assert_eq!(m.load_into(&bad, true, LoadMode::Strict).unwrap_err().code().as_str(), code);
        let bad = memory(bad.to_bytes(true).unwrap());
        let error = m.load_into(bad, true, LoadMode::Strict).unwrap_err();
        assert_eq!((error.code().as_str(), error.file()), (code, Some("m")));
        assert!(error.tensor().is_some());
        assert_eq!(m, before);
    }
}

#[test]
fn loading_as_the_original_replaces_one_by_one() {
    for from_memory in [true, false] {
        let mut m = model();
        let mut other = Model::new();
        other.insert(path("b"), Parameter::new(tensor(&[3], 300.0)).unwrap()).unwrap();
        other.insert(path("zz"), parameter(0.0)).unwrap();
        let result = if from_memory {
            m.load_into(&other, true, LoadMode::AsOriginal)
        } else {
            m.load_into(memory(other.to_bytes(true).unwrap()), true, LoadMode::AsOriginal)
        };
        assert_eq!(result.unwrap_err().code().as_str(), "unknown-address");
        assert_eq!(m.parameter("b").unwrap().value(), &tensor(&[3], 300.0));
    }
}

#[test]
fn parameters_are_replaced_whole() {
    let mut new = Parameter::new(tensor(&[3], 5.0)).unwrap();
    new.add_stat("s", tensor(&[], 1.0)).unwrap();
    let file = memory(new.to_bytes(true).unwrap());
    let mut p = parameter(0.0);
    p.add_stat("old", tensor(&[], 0.0)).unwrap();
    let before = p.clone();
    assert_eq!(
        p.load_into(file.clone(), true, LoadMode::Strict).unwrap_err().code().as_str(),
        "shape-differs"
    );
    assert_eq!(p, before);
    let report = p.load_into(file.clone(), false, LoadMode::AsOriginal).unwrap();
    assert_eq!(report, LoadReport { replaced: 1, ..LoadReport::default() });
    assert_eq!(p, Parameter::new(tensor(&[3], 5.0)).unwrap());
    p.load_into(file, true, LoadMode::Strict).unwrap();
    assert_eq!(p, new);
}

#[test]
fn optimizers_keep_settings_missing_from_the_file() {
    let mut adam = Optimizer::new(&OptimizerClass::Adam);
    adam.set_epoch(7);
    adam.set_float("Adam.alpha", 0.5);
    assert_eq!((adam.epoch(), adam.float("Adam.alpha"), adam.uint("x")), (Some(7), Some(0.5), None));
    let mut sgd = Optimizer::new(&OptimizerClass::Sgd);
    let before = sgd.clone();
    assert_eq!(sgd.load_into(&adam, LoadMode::Strict).unwrap_err().code().as_str(), "unknown-key");
    assert_eq!(sgd, before);
    let report = sgd.load_into(&adam, LoadMode::AsOriginal).unwrap();
    assert_eq!(report.replaced, 4);
    assert_eq!(report.missing, [path(r#"["SGD.eta"]"#)]);
    assert_eq!(report.ignored.len(), 4);
    assert_eq!((sgd.epoch(), sgd.float("SGD.eta")), (Some(7), Some(0.1)));
    let mut fresh = Optimizer::new(&OptimizerClass::Adam);
    let file = memory(adam.to_bytes().unwrap());
    let report = fresh.load_into(file, LoadMode::Strict).unwrap();
    assert_eq!((report.replaced, fresh), (8, adam.clone()));
    assert_eq!(materialise(&adam.plan().unwrap()), [adam.to_bytes().unwrap()]);
    assert_eq!(Optimizer::from_checkpoint(&adam.to_checkpoint()).unwrap(), adam);
}

#[test]
fn the_class_follows_from_the_keys() {
    let common = OptimizerClass::Other(Name::from("Mine"));
    let mut o = Optimizer::new(&common);
    assert_eq!(o.class(), None);
    assert_eq!(o.missing_keys(), Vec::<&str>::new());
    o.set_float("Mine.x", -1.0);
    assert_eq!(o.class(), Some(common));
    o.set_uint("Adam.t", 1);
    assert_eq!(o.class(), None);
    let adam = Optimizer { uints: vec![], floats: vec![("Adam.eps".into(), 0x322b_cc77)] };
    assert_eq!(adam.class(), Some(OptimizerClass::Adam));
    assert_eq!(adam.missing_keys().len(), 7);
    assert_eq!(OptimizerClass::AdaDelta.stats(), ["AdaDelta.m1", "AdaDelta.m2"]);
    let text = |o: &Optimizer| open(&o.to_bytes().unwrap()).unwrap().notes;
    assert_eq!(
        text(&adam).iter().map(|n| n.code.as_str()).collect::<Vec<_>>(),
        ["optimizer-class", "optimizer-keys-missing"]
    );
    let mut odd = Optimizer::new(&OptimizerClass::Sgd);
    odd.set_float("SGD.eta", -1.5);
    odd.set_float("Optimizer.l2_strength", f32::NAN);
    odd.set_float("Optimizer.clip_threshold", -0.0);
    let notes = text(&odd);
    assert_eq!(notes.len(), 3);
    assert!(notes[1].code == "optimizer-value" && notes[1].text.starts_with("SGD.eta is -1.5"));
    assert!(notes[2].code == "optimizer-value" && notes[2].text.contains("l2_strength is NaN"));
    // The meaning of a negative value is unknown for an unknown class.
    assert_eq!(text(&o).iter().map(|n| n.code.as_str()).collect::<Vec<_>>(), ["optimizer-class"]);
}

#[test]
fn optimizers_are_built_from_settings() {
    let made = Optimizer::from_settings(
        [("mine".into(), 7), ("Optimizer.epoch".into(), 3)],
        [("a".into(), 1.0), ("b".into(), 2.0), ("a".into(), 4.0)],
    );
    let keys: Vec<String> = made.uints().map(|(key, _)| key.to_text()).collect();
    assert_eq!(keys, ["mine", "Optimizer.epoch"]);
    let floats: Vec<_> = made.floats().map(|(key, value)| (key.to_text(), value)).collect();
    assert_eq!(floats, [("a".to_owned(), 4.0), ("b".to_owned(), 2.0)]);
    assert_eq!(Optimizer::from_bytes(made.to_bytes().unwrap()).unwrap(), made);
}
