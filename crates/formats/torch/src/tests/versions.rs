//! Module versions in the pickle, the only ones that torch reads.

use super::*;
use weighbridge_core::checkpoint::Rename;
use weighbridge_torch_archive::read;

/// Reads the pickle only, without the metadata of this library.
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
fn versions_survive_a_conversion_through_other_formats() {
    for name in ["module_state.pt", "module_state_legacy.pt"] {
        let mut checkpoint = good(name);
        let versions = checkpoint.metadata.get(VERSIONS).cloned();
        assert!(versions.is_some());
        for (format, kind) in [("torch", STATE_DICT), ("npz", "archive"), ("safetensors", "single")] {
            (checkpoint.format, checkpoint.kind) = (format, kind);
            assert_eq!(pickled(&checkpoint).metadata.get(VERSIONS), versions.as_ref(), "{format}");
        }
        // Other data under this key is not a version.
        checkpoint.metadata.set(VERSIONS, Value::Map(vec![("a".into(), Value::I64(1))]));
        assert_eq!(pickled(&checkpoint).metadata.get(VERSIONS), None);
    }
}

#[test]
fn versions_follow_renamed_tensors() {
    let mut checkpoint = good("module_state.pt");
    let before = modules(&checkpoint, VERSIONS);
    checkpoint.rename(&[Rename::parse("=net").unwrap()]).unwrap();
    let below = |name: &String| if name.is_empty() { "net".to_owned() } else { format!("net.{name}") };
    assert_eq!(modules(&pickled(&checkpoint), VERSIONS), before.iter().map(below).collect::<Vec<_>>());
}

#[test]
fn versions_of_nested_state_dicts_get_their_prefix() {
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
