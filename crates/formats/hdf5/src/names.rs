//! Paths of tensors in a file: unique, and distinct from those of groups.

use std::collections::{HashMap, HashSet};
use weighbridge_core::checkpoint::{Name, TensorEntry};

/// Name of a dataset in the bridge metadata: dotted like the path of a tensor where
/// that is unambiguous.
pub(super) fn index_name(path: &[impl AsRef<str>]) -> String {
    let parts: Vec<&str> = path.iter().map(AsRef::as_ref).collect();
    if parts.iter().any(|part| part.contains('.')) {
        format!("/{}", parts.join("/"))
    } else {
        // HDF5 names cannot contain slashes.
        parts.join(".")
    }
}

/// A tree of names: node numbers by parent and name.
#[derive(Default)]
struct Tree {
    places: HashMap<(usize, String), usize>,
    /// Parent and name of each node, except for the root.
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

    /// Returns the names from the root to a node.
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

/// Returns the path of the dataset of every tensor, in order.
pub(super) fn dataset_paths(tensors: &[TensorEntry]) -> Vec<Vec<String>> {
    let wanted: Vec<Vec<String>> = tensors.iter().map(preferred_path).collect();
    let mut tree = Tree::default();
    // The intended group of each tensor, and its name there.
    let mut leaves = Vec::with_capacity(wanted.len());
    for path in wanted {
        let mut path = path.into_iter();
        let name = path.next_back().unwrap_or_else(|| "_".to_owned());
        let group = path.fold(0, |group, part| tree.enter(group, &part));
        leaves.push((group, name));
    }
    let tensors_at: HashSet<(usize, &str)> = leaves.iter().map(|(g, name)| (*g, name.as_str())).collect();
    // Groups with the path of a tensor are renamed. Parents precede their members.
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
    // The last suffix of each name, so that many equal names do not search from 2 again.
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

/// True where a tensor is renamed: its name is invalid in HDF5, or taken.
pub(super) fn is_renamed(tensor: &TensorEntry, path: &[String]) -> bool {
    path_of(tensor, Name::to_text) != path
}

/// Path of a tensor without regard to the others.
fn preferred_path(tensor: &TensorEntry) -> Vec<String> {
    path_of(tensor, tidy)
}

/// Path of a tensor with its parts as `spelled`; state is grouped below its parameter.
fn path_of(tensor: &TensorEntry, spelled: impl Fn(&Name) -> String) -> Vec<String> {
    let mut path: Vec<String> = tensor.path.parts().iter().map(&spelled).collect();
    if let Some(slot) = tensor.role.slot() {
        if let Some(last) = path.last_mut() {
            last.push('~');
        }
        path.push(spelled(slot));
    }
    path
}

/// Replaces characters that are invalid in HDF5 names.
fn tidy(name: &Name) -> String {
    let text = name.to_text().replace(['/', '\0'], "_");
    match text.as_str() {
        "" | "." => "_".to_owned(),
        _ => text,
    }
}
