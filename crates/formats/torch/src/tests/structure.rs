//! Containers of tensors.

use super::*;
use weighbridge_core::checkpoint::Container;

/// Both forms of a pickled module have the same classes.
#[test]
fn both_forms_name_the_classes_of_modules() {
    let classes_and_notes = |name: &str| {
        let checkpoint = good(name);
        let classes = checkpoint.containers.unwrap();
        let kinds: Vec<(String, Container)> =
            classes.of_tensors().map(|(name, kind)| (name.to_owned(), kind.clone())).collect();
        (kinds, checkpoint.notes)
    };
    let zip = classes_and_notes("module.pt");
    assert!(zip.0.iter().any(|(_, kind)| matches!(kind, Container::Class(name) if name.contains("Linear"))));
    assert_eq!(zip, classes_and_notes("module_legacy.pt"));
}

#[test]
fn a_lone_tensor_differs_from_one_in_a_dict() {
    for name in ["lone.pt", "lone_legacy.pt"] {
        let checkpoint = good(name);
        let containers = checkpoint.containers.as_ref().unwrap();
        assert_eq!(containers.of_tensors().collect::<Vec<_>>(), [("", &Container::Bare)], "{name}");
        let written = materialise(&Torch.plan(&checkpoint, &PlanOptions::default()).unwrap()).remove(0);
        assert_eq!(open_bytes(&written).unwrap().containers.unwrap().of_tensors().count(), 0);
    }
}
