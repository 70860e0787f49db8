//! From which objects tensors can be reached.

use crate::containers::torch::Saved;
use crate::pickle::{Object, ObjectId};
use std::collections::HashMap;

/// The objects that are tensors or lead to some.
pub(super) struct Reach {
    holds: Vec<bool>,
    places: HashMap<ObjectId, usize>,
    size: u64,
}

/// The objects that an object points at.
fn edges(object: &Object) -> Vec<ObjectId> {
    match object {
        Object::List(items) | Object::Set(items) => items.clone(),
        Object::Tuple(items) | Object::FrozenSet(items) => items.to_vec(),
        Object::Dict(pairs) => pairs.iter().map(|&(_, value)| value).collect(),
        Object::Made(made) => {
            let values = made.pairs.iter().map(|&(_, value)| value);
            values.chain(made.items.iter().copied()).chain(made.states.iter().copied()).collect()
        }
        _ => Vec::new(),
    }
}

impl Reach {
    /// Goes backwards from the tensors, once over every edge.
    pub(super) fn of(saved: &Saved) -> Self {
        let graph = saved.graph();
        let places: HashMap<ObjectId, usize> =
            graph.iter().enumerate().map(|(place, (id, _))| (id, place)).collect();
        let mut size = graph.len() as u64;
        let mut holds = vec![false; graph.len()];
        let mut pointed: Vec<Vec<usize>> = vec![Vec::new(); graph.len()];
        let mut open = Vec::new();
        for (place, (id, object)) in graph.iter().enumerate() {
            if saved.is_tensor(id) {
                holds[place] = true;
                open.push(place);
                continue;
            }
            for target in edges(object) {
                size += 2;
                if let Some(&target) = places.get(&target) {
                    pointed[target].push(place);
                }
            }
        }
        while let Some(place) = open.pop() {
            for from in std::mem::take(&mut pointed[place]) {
                if !std::mem::replace(&mut holds[from], true) {
                    open.push(from);
                }
            }
        }
        Self { holds, places, size }
    }

    /// Objects and edges together.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// True for a tensor, and for what leads to one.
    pub(super) fn holds_tensor(&self, id: ObjectId) -> bool {
        self.places.get(&id).and_then(|&place| self.holds.get(place)).copied().unwrap_or(false)
    }
}
