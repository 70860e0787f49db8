//! Tensors that share storage on one side only. Most formats cannot store that, so it is not a difference. Between two formats
//! that can, it shows that tensors were tied or untied, which changes training.

use crate::checkpoint::{Attributes, Checkpoint, TensorEntry};
use crate::text::first_and_more;
use std::collections::HashMap;

/// Returns a note for each side with ties that the other side lacks. `pairs` are the indices of paired tensors.
pub(super) fn notes(left: &Checkpoint, right: &Checkpoint, pairs: &[(usize, usize)]) -> Vec<String> {
    let tied =
        |of: &Checkpoint| of.tensors.iter().any(|entry| entry.attributes.contains_key(Attributes::ALIAS_OF));
    if !tied(left) && !tied(right) {
        return Vec::new();
    }
    let pairs = pairs.iter().filter_map(|&(l, r)| Some((left.tensors.get(l)?, right.tensors.get(r)?)));
    let (left, right): (Vec<&TensorEntry>, Vec<&TensorEntry>) = pairs.unzip();
    let (lefts, rights) = (heads(&left), heads(&right));
    let mut notes = Vec::new();
    for (side, names, own, other) in [("left", left, &lefts, &rights), ("right", right, &rights, &lefts)] {
        // Tensors that share bytes here, but not with the same tensor there.
        let apart = (0..own.len()).filter(|&at| other[at] != other[own[at]]);
        let apart = apart.map(|at| format!("{} with {}", names[at].name(), names[own[at]].name()));
        let text = first_and_more(apart, 1);
        if !text.is_empty() {
            notes.push(format!("storage is shared on the {side} side only: {text}"));
        }
    }
    notes
}

/// Returns for each tensor the index of the first one that shares its bytes.
fn heads(all: &[&TensorEntry]) -> Vec<usize> {
    let group = |entry: &TensorEntry| {
        entry.text_attribute(Attributes::ALIAS_OF).map_or_else(|| entry.text(), str::to_owned)
    };
    let mut first: HashMap<String, usize> = HashMap::with_capacity(all.len());
    all.iter().enumerate().map(|(at, entry)| *first.entry(group(entry)).or_insert(at)).collect()
}
