//! Containers around tensors and values.

use super::*;
use crate::checkpoint::{Container, Containers};

/// A side with these tensors and containers around them.
fn side(tensors: &[&str], containers: &[(&str, Container)]) -> Checkpoint {
    let mut known = Containers::default();
    for (name, kind) in containers {
        known.add(|| (*name).to_owned(), kind.clone());
    }
    let tensors = tensors.iter().map(|name| f32s(name, &[1.0])).collect();
    Checkpoint { containers: Some(Box::new(known)), ..of(tensors) }
}

fn changes_of(left: Checkpoint, right: Checkpoint, options: &DiffOptions) -> Vec<String> {
    let report = diff_checkpoints(left, right, options).unwrap();
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let change =
        |change: &Change| format!("{}: {} -> {}", change.what, text(&change.left), text(&change.right));
    let changes: Vec<String> = report.metadata.iter().map(change).collect();
    assert_eq!(report.is_different(), !changes.is_empty());
    changes
}

#[test]
fn container_kinds_differ_where_both_sides_store_them() {
    let options = DiffOptions::default();
    let plain = || side(&["0", "1"], &[]);
    let list = || side(&["0", "1"], &[("", Container::List)]);
    let tuple = || side(&["0", "1"], &[("", Container::Tuple)]);
    let numbers = || side(&["0", "1"], &[("", Container::Numbers)]);
    assert_eq!(changes_of(list(), tuple(), &options), ["structure: list -> tuple"]);
    assert_eq!(changes_of(numbers(), plain(), &options), ["structure: dict with numeric keys -> dict"]);
    assert_eq!(changes_of(plain(), list(), &options), ["structure: dict -> list"]);
    assert!(changes_of(list(), list(), &options).is_empty());
    // Other kinds of files have no containers, of any format.
    assert!(changes_of(list(), Checkpoint { containers: None, ..plain() }, &options).is_empty());
    assert!(changes_of(list(), Checkpoint { format: "other", ..plain() }, &options).is_empty());
    // They are ignored with the metadata.
    assert!(
        changes_of(list(), tuple(), &DiffOptions { no_metadata: true, ..DiffOptions::default() }).is_empty()
    );
}

#[test]
fn containers_count_only_around_compared_tensors() {
    let options = DiffOptions::default();
    let left = || side(&["a.0", "b.0"], &[("a", Container::List), ("b", Container::List)]);
    let right = || side(&["a.0", "b.0"], &[("a", Container::Tuple), ("b", Container::Tuple)]);
    assert_eq!(changes_of(left(), right(), &options).len(), 2);
    let only = DiffOptions { select: vec!["b*".to_owned()], ..DiffOptions::default() };
    assert_eq!(changes_of(left(), right(), &only), ["structure b: list -> tuple"]);
    // Below a key with dots the parts of a name are ambiguous: a flat state dict does not differ.
    let mut flat = side(&["a.0", "b.0"], &[]);
    flat.containers.as_mut().unwrap().add_dotted(String::new);
    assert!(changes_of(left(), flat.clone(), &options).is_empty());
    // The root is unambiguous.
    let list = side(&["a.0", "b.0"], &[("", Container::List)]);
    assert_eq!(changes_of(list, flat, &options), ["structure: list -> dict"]);
    // Names that were changed lead elsewhere: a note says that this was not compared.
    let renamed = DiffOptions { rename: vec!["a=b".to_owned()], ..DiffOptions::default() };
    let (one, other) =
        (side(&["a.0"], &[("a", Container::List)]), side(&["b.0"], &[("b", Container::Tuple)]));
    let report = diff_checkpoints(one, other, &renamed).unwrap();
    assert!(!report.is_different());
    assert!(report.notes[0].contains("but not whether lists"), "{:?}", report.notes);
}

#[test]
fn containers_of_equal_values_are_compared() {
    let options = DiffOptions::default();
    let side = |kind: Container, number: i64| {
        let mut checkpoint = side(&["w"], &[]);
        checkpoint.metadata.set("m", Value::List(vec![Value::I64(number)]));
        let known = checkpoint.containers.as_mut().unwrap();
        known.add_value(String::new, kind);
        known.name_values(0, "m");
        checkpoint
    };
    let (list, tuple) = (|| side(Container::List, 1), || side(Container::Tuple, 1));
    assert_eq!(changes_of(list(), tuple(), &options), ["structure m: list -> tuple"]);
    assert!(changes_of(list(), list(), &options).is_empty());
    assert_eq!(changes_of(list(), side(Container::Tuple, 2), &options), ["m: [1] -> [2]"]);
    // What is said beside the pickle has none there.
    let mut elsewhere = tuple();
    elsewhere.containers.as_mut().unwrap().set_elsewhere();
    assert!(changes_of(list(), elsewhere, &options).is_empty());
    // Beyond the maximum number of containers, one may exist without being listed; a note reports it.
    let mut more = Checkpoint { containers: Some(Box::default()), ..list() };
    more.containers.as_mut().unwrap().set_more();
    let report = diff_checkpoints(list(), more, &options).unwrap();
    assert!(!report.is_different() && report.notes[0].contains("too many lists"), "{:?}", report.notes);
}
