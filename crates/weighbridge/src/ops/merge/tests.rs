#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use super::*;
use crate::checkpoint::{Attributes, Role, StateOf, Value};
use crate::source::{MemorySource, SourceRef};
use crate::tensor::{DType, Encoding, Shape};
use std::sync::Arc;

fn checkpoint(label: &str, names: &[(&str, Option<&str>)]) -> Checkpoint {
    let source: SourceRef = Arc::new(MemorySource::new(label, vec![0; 4]));
    let entry = |(name, slot): &(&str, Option<&str>)| {
        let path = TensorPath::from_dotted(name);
        let mut entry =
            TensorEntry::dense(path, DType::F32, Shape::from([1]), &source, 0, Encoding::ROW).unwrap();
        if let Some(slot) = slot {
            entry.role = Role::OptimizerState { slot: Name::from(*slot) };
        }
        entry
    };
    let mut checkpoint = Checkpoint::new("safetensors", "single", label);
    checkpoint.tensors = names.iter().map(entry).collect();
    checkpoint
}

/// Each tensor with the file that it comes from.
fn origins(checkpoint: &Checkpoint) -> Vec<String> {
    let one = |t: &TensorEntry| format!("{} {}", t.text(), t.extents[0].source.label());
    checkpoint.tensors.iter().map(one).collect()
}

fn two() -> Vec<Checkpoint> {
    vec![
        checkpoint("a.safetensors", &[("w", None), ("w", Some("m")), ("x", None)]),
        checkpoint("b.safetensors", &[("w", None), ("w", Some("m")), ("w", Some("v")), ("y", None)]),
    ]
}

#[test]
fn collisions_name_both_files() {
    let error = join(two(), Same::Refuse).unwrap_err();
    assert_eq!((error.code().as_str(), error.tensor()), ("name-collision", Some("w")));
    assert_eq!(error.found_text(), Some("in a.safetensors and in b.safetensors"));
    assert_eq!(join(Vec::new(), Same::Refuse).unwrap_err().code().as_str(), "nothing-to-merge");
}

#[test]
fn state_stays_with_the_parameter_it_was_trained_with() {
    let (joined, _) = join(two(), Same::First).unwrap();
    assert_eq!(
        origins(&joined),
        ["w a.safetensors", "w/m a.safetensors", "x a.safetensors", "y b.safetensors"]
    );
    let text = "b.safetensors: 1 tensor (w) not taken, as a.safetensors has a tensor of the same name; \
                2 tensors of optimizer state not taken, as a.safetensors has the parameters";
    assert!(joined.notes.iter().any(|n| n.code == "gave-way" && n.text == text), "{:?}", joined.notes);
    let (joined, _) = join(two(), Same::Last).unwrap();
    assert_eq!(
        origins(&joined),
        ["x a.safetensors", "w b.safetensors", "w/m b.safetensors", "w/v b.safetensors", "y b.safetensors"]
    );
    // Parameters in one file and their state in another do not collide.
    let apart = vec![checkpoint("p", &[("w", None)]), checkpoint("o", &[("w", Some("m"))])];
    assert_eq!(origins(&join(apart, Same::Refuse).unwrap().0), ["w p", "w/m o"]);
}

/// A parameter of that path, and its name as a variable.
fn with_variable(label: &str, path: &str, variable: &str) -> Checkpoint {
    let mut one = checkpoint(label, &[(path, None)]);
    one.tensors[0].attributes.insert(Attributes::VARIABLE_NAME.into(), Value::Text(variable.into()));
    one
}

#[test]
fn state_in_its_own_file_needs_an_unambiguous_parameter() {
    let base = || with_variable("p", "weight", "linear_0.w_0");
    let state = || checkpoint("o", &[("linear_0.w_0", Some("m"))]);
    let tuned = || with_variable("t", "weight", "linear_0.w_0");
    // One parameter of that name: no question.
    assert_eq!(origins(&join(vec![base(), state()], Same::Last).unwrap().0), ["weight p", "weight/m o"]);
    // The same state a second time, by the name of its parameter.
    let mut whole = checkpoint("w", &[("weight", Some("m"))]);
    whole.tensors.extend(base().tensors);
    let error = join(vec![whole, state()], Same::Refuse).unwrap_err();
    assert_eq!((error.code().as_str(), error.tensor()), ("name-collision", Some("weight/m")));
    for same in [Same::First, Same::Last] {
        for sources in [
            vec![base(), state(), tuned()],
            // Also by paths alone, and where only one knows the variable.
            vec![
                checkpoint("p", &[("linear_0.w_0", None)]),
                state(),
                checkpoint("t", &[("linear_0.w_0", None)]),
            ],
            vec![base(), state(), checkpoint("t", &[("weight", None)])],
        ] {
            let error = join(sources, same).unwrap_err();
            assert_eq!((error.code().as_str(), error.file()), ("state-of-which", Some("o")));
        }
    }
    // In the file of its parameter it is known by the variable.
    let mut whole = base();
    whole.tensors.extend(state().tensors);
    let (joined, _) = join(vec![whole.clone(), tuned()], Same::Last).unwrap();
    assert_eq!(origins(&joined), ["weight t"]);
    let (joined, _) = join(vec![whole, tuned()], Same::First).unwrap();
    assert_eq!(origins(&joined), ["weight p", "weight/m o"]);
}

/// State under paths of its own, each about a parameter, or about none that is known.
fn with_parts(label: &str, parameters: &[&str], parts: &[(&str, Option<&str>)]) -> Checkpoint {
    let plain: Vec<_> =
        parameters.iter().chain(parts.iter().map(|(name, _)| name)).map(|n| (*n, None)).collect();
    let mut one = checkpoint(label, &plain);
    for (tensor, (_, of)) in one.tensors[parameters.len()..].iter_mut().zip(parts) {
        let of = of.map(|name| Box::new(StateOf { name: name.to_owned(), guessed: true }));
        tensor.role = Role::OptimizerPart { of };
    }
    one
}

#[test]
fn state_of_pytorch_follows_its_parameter() {
    let plain = || checkpoint("a", &[("w", None), ("x", None)]);
    let known =
        |label| with_parts(label, &["w", "x"], &[("o.state.0.m", Some("w")), ("o.state.1.m", Some("x"))]);
    let whole = ["w b", "x b", "o.state.0.m b", "o.state.1.m b"];
    assert_eq!(origins(&join(vec![plain(), known("b")], Same::First).unwrap().0), ["w a", "x a"]);
    let (joined, _) = join(vec![plain(), known("b")], Same::Last).unwrap();
    assert_eq!(origins(&joined), whole);
    assert_eq!(joined.tensors[3].role.state_of().map(|of| of.name.as_str()), Some("x"));
    assert_eq!(origins(&join(vec![known("a"), known("b")], Same::Last).unwrap().0), whole);
    // Of each parameter its own.
    let (joined, _) = join(vec![checkpoint("a", &[("w", None)]), known("b")], Same::First).unwrap();
    assert_eq!(origins(&joined), ["w a", "x b", "o.state.1.m b"]);
    // One number is one parameter: all tensors under it come from one file.
    let other = || with_parts("c", &["y"], &[("o.state.1.m", Some("y")), ("o.state.1.v", Some("y"))]);
    let (joined, _) = join(vec![known("b"), other()], Same::First).unwrap();
    assert_eq!(origins(&joined), ["w b", "x b", "o.state.0.m b", "o.state.1.m b", "y c"]);
    let (joined, _) = join(vec![known("b"), other()], Same::Last).unwrap();
    assert_eq!(origins(&joined), ["w b", "x b", "o.state.0.m b", "y c", "o.state.1.m c", "o.state.1.v c"]);
}

#[test]
fn state_without_a_known_parameter_follows_its_file() {
    let unknown = || with_parts("b", &["w", "x"], &[("o.m", None)]);
    let all = || checkpoint("a", &[("w", None), ("x", None)]);
    let some = || checkpoint("a", &[("w", None)]);
    assert_eq!(origins(&join(vec![all(), unknown()], Same::First).unwrap().0), ["w a", "x a"]);
    assert_eq!(origins(&join(vec![all(), unknown()], Same::Last).unwrap().0), ["w b", "x b", "o.m b"]);
    assert_eq!(origins(&join(vec![some(), unknown()], Same::Last).unwrap().0), ["w b", "x b", "o.m b"]);
    let error = join(vec![some(), unknown()], Same::First).unwrap_err();
    assert_eq!(
        (error.code().as_str(), error.file(), error.tensor()),
        ("state-of-which", Some("b"), Some("o.m"))
    );
    // In a file of its own: about the one model that there is.
    let alone = || with_parts("o", &[], &[("o.m", None)]);
    assert_eq!(origins(&join(vec![some(), alone()], Same::First).unwrap().0), ["w a", "o.m o"]);
    let error = join(vec![some(), alone(), checkpoint("t", &[("w", None)])], Same::First).unwrap_err();
    assert_eq!((error.code().as_str(), error.file()), ("state-of-which", Some("o")));
}

#[test]
fn state_is_not_mixed() {
    let both = || {
        vec![
            checkpoint("a", &[("w", Some("m")), ("w", Some("v")), ("x", Some("v"))]),
            checkpoint("b", &[("w", Some("m")), ("x", Some("m"))]),
        ]
    };
    assert_eq!(origins(&join(both(), Same::Last).unwrap().0), ["x/v a", "w/m b", "x/m b"]);
    assert_eq!(origins(&join(both(), Same::First).unwrap().0), ["w/m a", "w/v a", "x/v a", "x/m b"]);
}

#[test]
fn duplicate_variable_names_are_dropped() {
    let two = || vec![with_variable("x", "a", "w_0"), with_variable("y", "b", "w_0")];
    let variables = |joined: &Checkpoint| -> Vec<Option<String>> {
        joined
            .tensors
            .iter()
            .map(|t| t.text_attribute(Attributes::VARIABLE_NAME).map(str::to_owned))
            .collect()
    };
    let (joined, losses) = join(two(), Same::Prefix).unwrap();
    assert_eq!(variables(&joined), [Some("x.w_0".to_owned()), Some("y.w_0".to_owned())]);
    assert!(losses.is_empty());
    let (joined, losses) = join(two(), Same::Refuse).unwrap();
    assert_eq!(variables(&joined), [Some("w_0".to_owned()), None]);
    assert_eq!((losses[0].code.as_str(), losses[0].subject.as_str()), ("variable-name", "w_0"));
    let mut with_state = two();
    with_state[1].tensors.extend(checkpoint("y", &[("w_0", Some("m"))]).tensors);
    assert_eq!(join(with_state, Same::Refuse).unwrap_err().code().as_str(), "state-of-which");
}

#[test]
fn storage_is_shared_only_within_a_file() {
    let tied = |label: &str| {
        let mut one = checkpoint(label, &[("emb", None), ("head", None)]);
        one.tensors[1].attributes.insert(Attributes::ALIAS_OF.into(), Value::Text("emb".into()));
        one
    };
    let aliases = |joined: &Checkpoint| -> Vec<Option<String>> {
        joined.tensors.iter().map(|t| t.text_attribute(Attributes::ALIAS_OF).map(str::to_owned)).collect()
    };
    let (joined, _) = join(vec![tied("a"), checkpoint("b", &[("emb", None)])], Same::Last).unwrap();
    assert_eq!(
        (origins(&joined), aliases(&joined)),
        (vec!["head a".into(), "emb b".into()], vec![None, None])
    );
    let (joined, _) = join(vec![tied("a"), checkpoint("b", &[("emb", None)])], Same::First).unwrap();
    assert_eq!(aliases(&joined), [None, Some("emb".to_owned())]);
}

#[test]
fn each_source_gets_its_name_as_prefix() {
    let (joined, _) = join(two(), Same::Prefix).unwrap();
    let names: Vec<String> = joined.tensors.iter().map(TensorEntry::text).collect();
    assert_eq!(names, ["a.w", "a.w/m", "a.x", "b.w", "b.w/m", "b.w/v", "b.y"]);
    let twins = vec![checkpoint("x/a.npz", &[]), checkpoint("y/a.safetensors", &[])];
    assert_eq!(join(twins, Same::Prefix).unwrap_err().code().as_str(), "same-prefix");
}

#[test]
fn conflicting_metadata_are_a_loss() {
    let mut sources = vec![checkpoint("a", &[("x", None)]), checkpoint("b", &[("y", None)])];
    for (source, step) in sources.iter_mut().zip(["1", "2"]) {
        source.metadata.set("format", Value::Text("pt".into()));
        source.metadata.set("step", Value::Text(step.into()));
    }
    for (same, kept) in [(Same::Refuse, "1"), (Same::Last, "2")] {
        let (joined, losses) = join(sources.clone(), same).unwrap();
        assert_eq!(losses.len(), 1);
        assert_eq!((losses[0].code.as_str(), losses[0].subject.as_str()), ("metadata-conflict", "step"));
        assert!(losses[0].detail.contains("a and b"), "{}", losses[0].detail);
        assert_eq!(joined.metadata.get("step"), Some(&Value::Text(kept.into())));
    }
}

/// What torch would have around its tensors is lost whichever source had it, and where formats differ.
#[test]
fn a_lost_structure_is_reported_for_any_source() {
    let folder = weighbridge_testkit::testdata("");
    let object = folder.join("torch/good/nested.pt");
    let dir = tempfile::tempdir().unwrap();
    let options = |to: &str| ConvertOptions { to: Some(to.into()), ..ConvertOptions::default() };
    let origins = |sources: &[PathBuf]| -> Vec<String> {
        let merged = merge(sources, &dir.path().join("c.pt"), Same::Prefix, &options("torch")).unwrap();
        let dropped = merged.plan.losses.into_iter().filter(|loss| loss.code == "structure-dropped");
        dropped.map(|loss| loss.subject).collect()
    };
    let label = object.display().to_string();
    for other in ["torch/good/plain.pt", "safetensors/good/bits.safetensors"].map(|name| folder.join(name)) {
        assert_eq!(origins(&[other.clone(), object.clone()]), [label.as_str()]);
        assert_eq!(origins(&[object.clone(), other]), [label.as_str()]);
    }
    let legacy = folder.join("torch/good/nested_legacy.pt");
    assert_eq!(origins(&[object.clone(), legacy.clone()]), [label, legacy.display().to_string()]);
    assert_eq!(origins(&[folder.join("torch/good/plain.pt"), folder.join("torch/good/types.pt")]), [""; 0]);
    // Also by way of another form.
    let bridge = dir.path().join("b.safetensors");
    let sources = [folder.join("torch/good/plain.pt"), object];
    let merged = merge(&sources, &bridge, Same::Prefix, &options("safetensors")).unwrap();
    super::super::save(&merged.plan, &bridge, false, &Default::default()).unwrap();
    assert_eq!(origins(std::slice::from_ref(&bridge)), [bridge.display().to_string()]);
}

#[test]
fn versions_of_modules_are_joined_module_by_module() {
    let versions = |pairs: &[(&str, i64)]| {
        let version = |n: i64| Value::Map(vec![("version".into(), Value::I64(n))]);
        Value::Map(pairs.iter().map(|(name, n)| (Name::from(*name), version(*n))).collect())
    };
    let two = || {
        let mut two = vec![checkpoint("a", &[("x.w", None)]), checkpoint("b", &[("y.w", None)])];
        two[0].metadata.set("_metadata", versions(&[("", 1), ("x", 2)]));
        two[1].metadata.set("_metadata", versions(&[("", 3), ("y", 4)]));
        two
    };
    for (same, wanted) in [
        (Same::Refuse, versions(&[("", 1), ("x", 2), ("y", 4)])),
        (Same::Last, versions(&[("", 3), ("y", 4), ("x", 2)])),
    ] {
        let (joined, losses) = join(two(), same).unwrap();
        assert_eq!(joined.metadata.get("_metadata"), Some(&wanted));
        let origins: Vec<_> = losses.iter().map(|loss| (loss.code.as_str(), loss.subject.as_str())).collect();
        assert_eq!(origins, [("metadata-conflict", "_metadata: the module at the root")]);
    }
    let (joined, losses) = join(two(), Same::Prefix).unwrap();
    let wanted = versions(&[("a", 1), ("a.x", 2), ("b", 3), ("b.y", 4)]);
    assert_eq!((joined.metadata.get("_metadata"), losses.len()), (Some(&wanted), 0));
    // The versions of a module whose tensors are dropped are dropped with them.
    let mut twice = two();
    twice[1].tensors[0].path = TensorPath::from_dotted("x.w");
    twice[1].metadata.set("_metadata", versions(&[("", 1), ("x", 5)]));
    let (joined, losses) = join(twice, Same::Last).unwrap();
    assert_eq!((joined.metadata.get("_metadata"), losses.len()), (Some(&versions(&[("", 1), ("x", 5)])), 0));
}
