//! Where tensors stand in a file: every one at a path of its own, and none at that of a group.

use std::collections::{HashMap, HashSet};
use weighbridge_core::checkpoint::{Name, TensorEntry};

/// The name in the carried index of the dataset at a path: dotted like the path of a tensor where
/// that is not ambiguous.
pub(super) fn index_name(path: &[impl AsRef<str>]) -> String {
    let parts: Vec<&str> = path.iter().map(AsRef::as_ref).collect();
    if parts.iter().any(|part| part.contains('.')) {
        format!("/{}", parts.join("/"))
    } else {
        // No part of a path in HDF5 holds a slash.
        parts.join(".")
    }
}

/// A tree of names: the places of members, by the place of what they are in.
#[derive(Default)]
struct Tree {
    places: HashMap<(usize, String), usize>,
    /// For each place but the first, the root: what it is in, and its name.
    parents: Vec<(usize, String)>,
}

impl Tree {
    fn find(&self, parent: usize, name: &str) -> Option<usize> {
        self.places.get(&(parent, name.to_owned())).copied()
    }

    fn enter(&mut self, parent: usize, name: &str) -> usize {
        let next = self.parents.len() + 1;
        let place = *self.places.entry((parent, name.to_owned())).or_insert(next);
        if place == next {
            self.parents.push((parent, name.to_owned()));
        }
        place
    }

    /// The names from the root to a place.
    fn path(&self, mut place: usize) -> Vec<String> {
        let mut path = Vec::new();
        while let Some((parent, name)) = place.checked_sub(1).and_then(|at| self.parents.get(at)) {
            path.push(name.clone());
            place = *parent;
        }
        path.reverse();
        path
    }
}

/// The path of every tensor's dataset, in order.
pub(super) fn dataset_paths(tensors: &[TensorEntry]) -> Vec<Vec<String>> {
    let wanted: Vec<Vec<String>> = tensors.iter().map(wanted).collect();
    let mut tree = Tree::default();
    // For each tensor the group it is to be in, and its name there.
    let mut leaves = Vec::with_capacity(wanted.len());
    for path in wanted {
        let mut path = path.into_iter();
        let name = path.next_back().unwrap_or_else(|| "_".to_owned());
        let group = path.fold(0, |group, part| tree.enter(group, &part));
        leaves.push((group, name));
    }
    let tensors_at: HashSet<(usize, &str)> = leaves.iter().map(|(g, name)| (*g, name.as_str())).collect();
    // A group of a tensor's name gets another one. Groups stand behind those that they are in.
    let mut groups = Tree::default();
    let mut moved = vec![0; tree.parents.len() + 1];
    for (at, (parent, name)) in tree.parents.iter().enumerate() {
        let mut own = name.clone();
        while tensors_at.contains(&(*parent, own.as_str())) {
            own.push('~');
        }
        moved[at + 1] = groups.enter(moved[*parent], &own);
    }
    let mut taken: HashSet<(usize, String)> = HashSet::with_capacity(leaves.len());
    // Where each name stands: many may be alike, and none shall begin at 2 again.
    let mut counts: HashMap<(usize, String), u64> = HashMap::new();
    let mut paths = Vec::with_capacity(leaves.len());
    for (group, base) in leaves {
        let group = moved[group];
        let mut name = base.clone();
        while groups.find(group, &name).is_some() || !taken.insert((group, name.clone())) {
            let count = counts.entry((group, base.clone())).or_insert(1);
            *count += 1;
            name = format!("{base}~{count}");
        }
        let mut path = groups.path(group);
        path.push(name);
        paths.push(path);
    }
    paths
}

/// True where a tensor does not stand under its own name, as HDF5 cannot have it or another one has it.
pub(super) fn is_renamed(tensor: &TensorEntry, path: &[String]) -> bool {
    place(tensor, Name::to_text) != path
}

/// Where a tensor would stand if it were alone.
fn wanted(tensor: &TensorEntry) -> Vec<String> {
    place(tensor, tidy)
}

/// The names of a tensor as `spelled`: state stands beside its parameter.
fn place(tensor: &TensorEntry, spelled: impl Fn(&Name) -> String) -> Vec<String> {
    let mut path: Vec<String> = tensor.path.parts().iter().map(&spelled).collect();
    if let Some(slot) = tensor.role.slot() {
        if let Some(last) = path.last_mut() {
            last.push('~');
        }
        path.push(spelled(slot));
    }
    path
}

/// A name that HDF5 can have.
fn tidy(name: &Name) -> String {
    let text = name.to_text().replace(['/', '\0'], "_");
    match text.as_str() {
        "" | "." => "_".to_owned(),
        _ => text,
    }
}
