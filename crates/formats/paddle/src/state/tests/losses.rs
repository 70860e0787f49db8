//! Positions of renamed and dropped tensors, and reported losses.

use super::odd::floats;
use super::*;
use weighbridge_core::checkpoint::{Rename, Selection};
use weighbridge_core::tensor::{DType, Encoding, Shape};
use weighbridge_pickle::ObjectId;

fn losses(checkpoint: &Checkpoint) -> Vec<(&'static str, String, String)> {
    let losses = plan(checkpoint, &PlanOptions::default()).unwrap().losses;
    losses.into_iter().map(|loss| (loss.code.as_str(), loss.subject, loss.detail.to_string())).collect()
}

fn renamed(bytes: &[u8], rules: &[&str]) -> Checkpoint {
    let mut checkpoint = open(bytes).unwrap();
    let rules: Vec<_> = rules.iter().map(|rule| Rename::parse(rule).unwrap()).collect();
    checkpoint.rename(&rules).unwrap();
    checkpoint
}

fn dropped(bytes: &[u8], pattern: &str) -> Checkpoint {
    let mut checkpoint = open(bytes).unwrap();
    checkpoint.select(&Selection::new(&[], &[pattern.into()]).unwrap()).unwrap();
    checkpoint
}

#[test]
fn renames_many_tensors_at_once() {
    let count = 20_000;
    let bytes = pickled(
        |b| {
            let mut model = Vec::new();
            for n in 0..count {
                model.push((b.text(&format!("layer.{n}"))?, floats(b, 1)?));
            }
            let (head_key, head) = (b.text("weight")?, floats(b, 2)?);
            let (head_name, head) = (b.text("head")?, b.dict(vec![(head_key, head)])?);
            model.push((head_name, head));
            let (model_key, model) = (b.text("model")?, b.dict(model)?);
            let (one, two, epoch, t) = (b.int(1)?, b.int(2)?, b.text("epoch")?, b.text("t")?);
            let t_value = b.tuple(&[one, two])?;
            b.dict(vec![(model_key, model), (epoch, two), (t, t_value)])
        },
        4,
    );
    for (rules, name, key) in
        [(["model=net"], "net.layer.0", "net.layer.0"), (["model.layer=model.head"], "model.head.0", "0")]
    {
        let checkpoint = renamed(&bytes, &rules);
        let again = open(&rewrite(&checkpoint, &[])).unwrap();
        assert_eq!(again.tensors.len(), count + 1);
        assert!(again.tensor(name).is_ok());
        let names = |checkpoint: &Checkpoint| {
            let mut names: Vec<_> = checkpoint.tensors.iter().map(TensorEntry::text).collect();
            names.sort_unstable();
            names
        };
        assert_eq!(names(&again), names(&checkpoint));
        assert_eq!(again.metadata.get("epoch"), Some(&Value::I64(2)));
        // The key in the dict that the new name leads to.
        let structure = format!("{:?}", again.metadata.get(STRUCTURE).unwrap());
        assert!(structure.contains(&format!("(\"{key}\", Map")), "{key}");
    }
}

/// `{"hist": [a, (b, c, 7)], "n": 1}`
fn lists() -> Vec<u8> {
    pickled(
        |b| {
            let (first, second, third, seven) = (floats(b, 1)?, floats(b, 2)?, floats(b, 3)?, b.int(7)?);
            let inner = b.tuple(&[second, third, seven])?;
            let outer = b.list(vec![first, inner])?;
            let (hist, n, one) = (b.text("hist")?, b.text("n")?, b.int(1)?);
            b.dict(vec![(hist, outer), (n, one)])
        },
        4,
    )
}

#[test]
fn reports_holes_in_lists() {
    let bytes = lists();
    assert_eq!(losses(&open(&bytes).unwrap()), []);
    for (checkpoint, list, place) in [
        (dropped(&bytes, "hist.0"), "hist", 0),
        (dropped(&bytes, "hist.1.1"), "hist.1", 1),
        (renamed(&bytes, &["hist.0=first"]), "hist", 0),
        (renamed(&bytes, &["hist.1.0=n.b"]), "hist.1", 0),
    ] {
        let [(code, subject, detail)] = losses(&checkpoint).try_into().unwrap();
        assert_eq!((code, subject.as_str()), ("list-hole", list));
        assert!(detail.contains(&format!("element {place} dropped")), "{detail}");
    }
    assert_eq!(losses(&dropped(&bytes, "hist.1.*")).len(), 2);
    let root = pickled(
        |b| {
            let items = vec![floats(b, 1)?, floats(b, 2)?];
            b.list(items)
        },
        4,
    );
    // The other tensor is still there: a list of one.
    let checkpoint = dropped(&root, "0");
    let [(code, subject, _)] = losses(&checkpoint).try_into().unwrap();
    assert_eq!((code, subject.as_str()), ("list-hole", "the outermost list"));
    assert_eq!(open(&rewrite(&checkpoint, &[])).unwrap().tensors[0].text(), "0");
}

/// Returns a checkpoint of parameters from another format.
fn parameters(names: &[&str]) -> Checkpoint {
    let mut checkpoint = Checkpoint::new("safetensors", "tensors", "x");
    let source = memory([0; 4]);
    for name in names {
        let path = weighbridge_core::checkpoint::TensorPath::from_dotted(name);
        let entry = TensorEntry::dense(path, DType::F32, Shape::from([1]), &source, 0, Encoding::ROW);
        checkpoint.tensors.push(entry.unwrap());
    }
    checkpoint
}

/// Returns the tensors reported as read back as optimizer state, and those that are.
fn mistaken(checkpoint: &Checkpoint) -> (Vec<String>, Vec<String>) {
    let recorded = losses(checkpoint).into_iter().filter(|loss| loss.0 == "read-as-state");
    let again = open(&rewrite(checkpoint, &[])).unwrap();
    let was = |entry: &TensorEntry| checkpoint.tensors.iter().any(|old| old.text() == entry.text());
    let new = again.tensors.iter().filter(|entry| entry.role.slot().is_some() && !was(entry));
    (recorded.map(|loss| loss.1).collect(), new.map(key_of).collect())
}

#[test]
fn reports_parameters_read_as_state() {
    for (names, wanted) in [
        (&["w", "w_moment1_0"][..], &["w_moment1_0"][..]),
        (&["w_moment1_0"], &["w_moment1_0"]),
        (&["b", "w_moment1_0"], &[]),
        (&["fc", "fc_linear_0", "fc_d_0"], &[]),
        (&["fc", "fc_linear_0", "fc_squared_0"], &["fc_linear_0", "fc_squared_0"]),
    ] {
        let (recorded, read) = mistaken(&parameters(names));
        assert_eq!(recorded, wanted);
        assert_eq!(read, wanted);
    }
    // With another name in the table of names it is not optimizer state.
    let mut named = parameters(&["w", "w_moment1_0"]);
    named.tensors[1].attributes.insert(Attributes::VARIABLE_NAME.into(), Value::Text("linear_0.w_0".into()));
    assert_eq!(mistaken(&named), (vec![], vec![]));
    named.tensors[1].attributes.insert(Attributes::VARIABLE_NAME.into(), Value::Text("w_moment1_0".into()));
    assert_eq!(mistaken(&named), (vec!["w_moment1_0".into()], vec!["w_moment1_0".into()]));
    // Real state is not reported.
    assert_eq!(losses(&open(&golden("p262/cnn_state_dict/m_p4.pdopt")).unwrap()), []);
}

#[test]
fn reports_renames_into_state_keys() {
    let nested = pickled(
        |b| {
            let mut pairs = Vec::new();
            for key in ["w", "v"] {
                pairs.push((b.text(key)?, floats(b, 1)?));
            }
            let (model, pairs) = (b.text("model")?, b.dict(pairs)?);
            let (epoch, none) = (b.text("epoch")?, ObjectId::TRUE);
            b.dict(vec![(model, pairs), (epoch, none)])
        },
        4,
    );
    let checkpoint = renamed(&nested, &["model.v=model.w_moment1_0"]);
    assert_eq!(mistaken(&checkpoint), (vec!["model.w_moment1_0".into()], vec!["model.w_moment1_0".into()]));

    // A parameter among the full-precision copies.
    let bytes = golden("p262/master_weights/lin_p4.pdopt");
    let mut checkpoint = open(&bytes).unwrap();
    checkpoint.metadata.set(STRUCTURE, canonical(&checkpoint));
    let mut stranger = parameters(&["master_weights.x"]);
    checkpoint.tensors.append(&mut stranger.tensors);
    let (recorded, read) = mistaken(&checkpoint);
    assert_eq!((recorded, read), (vec!["master_weights.x".into()], vec!["x".into()]));
}

/// A dict keeps the last of two values with one key; the other would be lost silently.
#[test]
fn rejects_duplicate_keys() {
    let state = |path: &str, slot: &str| {
        let mut one = parameters(&[path]).tensors;
        one[0].role = weighbridge_core::checkpoint::Role::OptimizerState { slot: slot.into() };
        one
    };
    for (name, path, slot) in [("w_moment1_0", "w", "moment1_0"), ("master_weights", "w", "master_weights")] {
        let mut checkpoint = parameters(&["w", name]);
        assert!(plan(&checkpoint, &PlanOptions::default()).is_ok(), "{name}");
        checkpoint.tensors.extend(state(path, slot));
        let error = plan(&checkpoint, &PlanOptions::default()).unwrap_err();
        assert_eq!((error.code().as_str(), error.found_text()), ("name-collision", Some(name)));
    }
}

/// Former states have the same losses as other checkpoints.
#[test]
fn reports_names_and_roles_of_former_states() {
    let codes = |checkpoint: &Checkpoint| losses(checkpoint).into_iter().map(|l| l.0).collect::<Vec<_>>();
    let bytes = golden("p262/cnn_state_dict/m_p4.pdparams");
    let mut state = open(&bytes).unwrap();
    assert_eq!(codes(&state), Vec::<&str>::new());
    state.tensors[0].path = weighbridge_core::checkpoint::TensorPath::new(vec!["a.b".into(), "w".into()]);
    state.metadata.remove(STRUCTURE);
    assert_eq!(codes(&state), ["name-changed"]);
    let mut state = open(&bytes).unwrap();
    state.tensors[0].role = weighbridge_core::checkpoint::Role::Other;
    assert_eq!(codes(&state), ["role-dropped"]);
    // A key that determines the role: among optimizer tensors only, and among parameters.
    let rate = |names: &[&str]| {
        let mut state = parameters(names);
        state.tensors.last_mut().unwrap().role = weighbridge_core::checkpoint::Role::Other;
        state
    };
    assert_eq!(codes(&rate(&["w_moment1_0", "learning_rate_0"])), ["read-as-state"]);
    assert_eq!(codes(&rate(&["w", "learning_rate_0"])), ["role-dropped"]);
}
