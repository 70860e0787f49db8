//! Names that share their bytes on one side and not on the other. Most forms cannot say so, so it is no difference; of two
//! that can it tells that a model was tied or untied, which trains differently from then on.

use crate::checkpoint::{Attributes, Checkpoint, TensorEntry};
use crate::text::first_and_more;
use std::collections::HashMap;

/// A note for each side that has ties which the other one lacks. `pairs` are the places of tensors that belong together.
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
        // Of those that share bytes here, the ones that do not share them with the same one there.
        let apart = (0..own.len()).filter(|&at| other[at] != other[own[at]]);
        let told = apart.map(|at| format!("{} with {}", names[at].name(), names[own[at]].name()));
        let told = first_and_more(told, 1);
        if !told.is_empty() {
            notes.push(format!("bytes are shared on the {side} side only: {told}"));
        }
    }
    notes
}

/// For each tensor the place of the first of those that share its bytes.
fn heads(all: &[&TensorEntry]) -> Vec<usize> {
    let group = |entry: &TensorEntry| {
        entry.text_attribute(Attributes::ALIAS_OF).map_or_else(|| entry.text(), str::to_owned)
    };
    let mut first: HashMap<String, usize> = HashMap::with_capacity(all.len());
    all.iter().enumerate().map(|(at, entry)| *first.entry(group(entry)).or_insert(at)).collect()
}
