//! Differences of lists, tuples and dicts around tensors and values, where both sides store them: a program that expects a list
//! fails with a dict, even if names and values are equal.

use super::Change;
use super::brief::change;
use crate::checkpoint::{Checkpoint, Container, Containers};
use std::collections::HashMap;

/// Result of the comparison.
#[derive(Debug, Default)]
pub(super) struct Compared {
    /// Different containers.
    pub(super) changes: Vec<Change>,
    /// Notes on containers that could not be compared.
    pub(super) notes: Vec<String>,
}

/// Compares the containers of two checkpoints of one format. `pairs` are the indices of paired tensors; `renamed` is true
/// where tensors on the left have other names than in the file.
pub(super) fn compare(
    left: &Checkpoint,
    right: &Checkpoint,
    pairs: &[(usize, usize)],
    renamed: bool,
) -> Compared {
    let mut compared = Compared::default();
    let (Some(a), Some(b), true) = (&left.containers, &right.containers, left.format == right.format) else {
        return compared;
    };
    for (checkpoint, containers) in [(left, a), (right, b)] {
        if containers.has_more() {
            let text = "it has too many lists, tuples and dicts; some were not compared";
            compared.notes.push(format!("{}: {text}", checkpoint.label));
        }
    }
    if !renamed {
        of_tensors([left, right], [a, b], pairs, &mut compared.changes);
    } else if a.of_tensors().chain(b.of_tensors()).any(|(_, kind)| !is_dict(kind)) {
        let text =
            "all tensors were compared, but not whether lists or tuples hold them, as names were changed";
        compared.notes.push(text.to_owned());
    }
    if !a.values_are_elsewhere() && !b.values_are_elsewhere() {
        of_values([left, right], [a, b], &mut compared.changes);
    }
    compared
}

/// True for a dict, whatever its keys.
fn is_dict(kind: &Container) -> bool {
    matches!(kind, Container::Numbers | Container::Mixed)
}

/// Kinds of containers by name. Several may share a name: a key with a dot looks like two keys.
struct Kinds<K>(HashMap<K, String>);

impl<K: std::hash::Hash + Eq> Kinds<K> {
    fn of<'a>(all: impl Iterator<Item = (K, &'a Container)>) -> Self {
        let mut kinds: HashMap<K, String> = HashMap::new();
        for (name, kind) in all {
            kinds
                .entry(name)
                .and_modify(|kinds| {
                    kinds.push_str(", ");
                    kinds.push_str(&kind.to_string());
                })
                .or_insert_with(|| kind.to_string());
        }
        Self(kinds)
    }
}

/// Returns the kinds on both sides, where they differ. A side without a kind has the `usual` one, unless it is `unknown`.
fn differ(known: [Option<&String>; 2], unknown: [bool; 2], usual: &str) -> Option<[String; 2]> {
    if known[0] == known[1] || (0..2).any(|side| known[side].is_none() && unknown[side]) {
        return None;
    }
    Some(known.map(|kind| kind.cloned().unwrap_or_else(|| usual.to_owned())))
}

/// Compares containers around paired tensors of equal names.
fn of_tensors(
    sides: [&Checkpoint; 2],
    containers: [&Containers; 2],
    pairs: &[(usize, usize)],
    changes: &mut Vec<Change>,
) {
    let kinds = containers.map(|side| Kinds::of(side.of_tensors()));
    let dotted = containers.map(|side| side.dotted().collect::<std::collections::HashSet<_>>());
    let mut names: Option<Vec<String>> = None;
    let both = containers[0].of_tensors().chain(containers[1].of_tensors());
    let mut seen = std::collections::HashSet::new();
    for (name, kind) in both {
        if !seen.insert(name) {
            continue;
        }
        // Below a dict whose keys contain dots, the container of a name is unknown.
        let unknown = [0, 1].map(|side| {
            containers[side].has_more()
                || dotted[side].iter().any(|&above| {
                    above.len() < name.len()
                        && name
                            .strip_prefix(above)
                            .is_some_and(|rest| above.is_empty() || rest.starts_with('.'))
                })
        });
        let known = [0, 1].map(|side| kinds[side].0.get(name));
        let Some([a, b]) = differ(known, unknown, kind.usual()) else { continue };
        let names = names.get_or_insert_with(|| {
            let pairs = pairs.iter().filter_map(|&(l, r)| {
                let (l, r) = (sides[0].tensors.get(l)?.text(), sides[1].tensors.get(r)?.text());
                (l == r).then_some(l)
            });
            let mut names: Vec<String> = pairs.collect();
            names.sort_unstable();
            names
        });
        let above = if name.is_empty() { String::new() } else { format!("{name}.") };
        let first = names.partition_point(|name| *name < above);
        if names.get(first).is_some_and(|name| name.starts_with(&above)) {
            let what = if name.is_empty() { "structure".to_owned() } else { format!("structure {name}") };
            changes.push(change(what, Some(a), Some(b)));
        }
    }
}

/// Compares containers around equal values.
fn of_values(sides: [&Checkpoint; 2], containers: [&Containers; 2], changes: &mut Vec<Change>) {
    let kinds = containers.map(|side| Kinds::of(side.of_values().map(|(key, way, kind)| ((key, way), kind))));
    let unknown = containers.map(Containers::has_more);
    let mut same: HashMap<&str, bool> = HashMap::new();
    let mut seen = std::collections::HashSet::new();
    for (key, way, kind) in containers[0].of_values().chain(containers[1].of_values()) {
        let known = [0, 1].map(|side| kinds[side].0.get(&(key, way)));
        let Some([a, b]) = differ(known, unknown, kind.usual()).filter(|_| seen.insert((key, way))) else {
            continue;
        };
        // Different values are reported separately.
        let same = same.entry(key).or_insert_with(|| {
            let [a, b] = sides.map(|side| side.metadata.get(key));
            a.is_some() && a == b
        });
        if *same {
            let what =
                if way.is_empty() { format!("structure {key}") } else { format!("structure {key}/{way}") };
            changes.push(change(what, Some(a), Some(b)));
        }
    }
}
