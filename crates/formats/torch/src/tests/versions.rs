//! Versions of modules, as the pickle alone has them: torch looks at nothing else.

use super::*;
use weighbridge_core::checkpoint::Rename;
use weighbridge_torch_archive::read;

/// What the pickle says, whatever this library keeps beside it.
fn pickled(checkpoint: &Checkpoint) -> Checkpoint {
    let bytes = materialise(&Torch.plan(checkpoint, &PlanOptions::default()).unwrap()).remove(0);
    let saved = read(&memory(&bytes), &Limits::default()).unwrap();
    walk::Walk::new(&saved, &OpenOptions::default()).run().unwrap().0
}

fn modules(checkpoint: &Checkpoint, key: &str) -> Vec<String> {
    match checkpoint.metadata.get(key) {
        Some(Value::Map(pairs)) => pairs.iter().map(|(name, _)| name.to_text()).collect(),
        _ => Vec::new(),
    }
}

#[test]
fn versions_are_written_whatever_form_was_in_between() {
    for name in ["module_state.pt", "module_state_legacy.pt"] {
        let mut checkpoint = good(name);
        let versions = checkpoint.metadata.get(VERSIONS).cloned();
        assert!(versions.is_some());
        for (format, kind) in [("torch", STATE_DICT), ("npz", "archive"), ("safetensors", "single")] {
            (checkpoint.format, checkpoint.kind) = (format, kind);
            assert_eq!(pickled(&checkpoint).metadata.get(VERSIONS), versions.as_ref(), "{format}");
        }
        // What somebody else keeps under this key is no version.
        checkpoint.metadata.set(VERSIONS, Value::Map(vec![("a".into(), Value::I64(1))]));
        assert_eq!(pickled(&checkpoint).metadata.get(VERSIONS), None);
    }
}

#[test]
fn versions_go_along_with_names() {
    let mut checkpoint = good("module_state.pt");
    let before = modules(&checkpoint, VERSIONS);
    checkpoint.rename(&[Rename::parse("=net").unwrap()]).unwrap();
    let below = |name: &String| if name.is_empty() { "net".to_owned() } else { format!("net.{name}") };
    assert_eq!(modules(&pickled(&checkpoint), VERSIONS), before.iter().map(below).collect::<Vec<_>>());
}

#[test]
fn versions_of_a_state_dict_within_are_those_of_the_flat_one() {
    for name in ["nested.pt", "nested_legacy.pt"] {
        let mut checkpoint = good(name);
        let before = modules(&checkpoint, "model._metadata");
        let below =
            |name: &String| if name.is_empty() { "model".to_owned() } else { format!("model.{name}") };
        assert_eq!(modules(&pickled(&checkpoint), VERSIONS), before.iter().map(below).collect::<Vec<_>>());
        checkpoint.tensors.retain(|tensor| tensor.text().starts_with("model."));
        checkpoint.rename(&[Rename::parse("model=").unwrap()]).unwrap();
        assert_eq!(modules(&pickled(&checkpoint), VERSIONS), before, "{name}");
    }
}
