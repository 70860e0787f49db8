//! Objects from which tensors can be reached.

use super::graph::{Graph, Object, ObjectId};

/// Set of the objects that are tensors or contain some.
#[derive(Debug)]
pub struct Reach {
    holds: Vec<bool>,
    size: u64,
}

/// Calls `meet` with the index of each object that an object refers to.
fn edges(object: &Object, mut meet: impl FnMut(usize)) {
    match object {
        Object::List(items) | Object::Set(items) => items.iter().for_each(|item| meet(item.index())),
        Object::Tuple(items) | Object::FrozenSet(items) => items.iter().for_each(|item| meet(item.index())),
        Object::Dict(pairs) => pairs.iter().for_each(|(_, value)| meet(value.index())),
        Object::Reduced(made) => {
            made.pairs.iter().for_each(|(_, value)| meet(value.index()));
            made.items.iter().chain(&made.states).for_each(|item| meet(item.index()));
            // Arguments hold the items of named tuples and of objects with their own `__reduce__`.
            std::iter::once(made.args).chain(made.kwargs).for_each(|item| meet(item.index()));
        }
        _ => {}
    }
}

impl Reach {
    /// Walks backwards from the tensors, visiting every edge once. Two vectors hold the edges: the start of the incoming edges
    /// of each object, and their origins. A vector per object would take more memory than the objects.
    pub fn of(graph: &Graph, is_tensor: impl Fn(ObjectId) -> bool) -> Self {
        let mut holds = vec![false; graph.len()];
        let mut open = Vec::new();
        let mut starts = vec![0u32; graph.len() + 1];
        let mut count = 0u64;
        for (id, object) in graph.iter() {
            if is_tensor(id) {
                if let Some(holds) = holds.get_mut(id.index()) {
                    *holds = true;
                }
                open.push(id.index());
                continue;
            }
            edges(object, |target| {
                count += 1;
                if let Some(edges) = starts.get_mut(target + 1) {
                    *edges = edges.saturating_add(1);
                }
            });
        }
        for place in 1..starts.len() {
            starts[place] = starts[place].saturating_add(starts[place - 1]);
        }
        let mut from = vec![ObjectId::NONE; starts.last().map_or(0, |&all| all as usize)];
        let mut next = starts.clone();
        for (id, object) in
            graph.iter().filter(|(id, _)| !holds.get(id.index()).is_some_and(|&tensor| tensor))
        {
            edges(object, |target| {
                if let Some(place) = next.get_mut(target) {
                    if let Some(edge) = from.get_mut(*place as usize) {
                        *edge = id;
                    }
                    *place = place.saturating_add(1);
                }
            });
        }
        while let Some(place) = open.pop() {
            let end = starts.get(place + 1).map_or(0, |&end| end as usize);
            let start = starts.get(place).map_or(end, |&start| start as usize);
            for from in from.get(start..end).unwrap_or_default() {
                if let Some(holds) = holds.get_mut(from.index())
                    && !std::mem::replace(holds, true)
                {
                    open.push(from.index());
                }
            }
        }
        Self { holds, size: (graph.len() as u64).saturating_add(2 * count) }
    }

    /// Number of objects and edges.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns true for a tensor, and for an object that contains one.
    pub fn holds_tensor(&self, id: ObjectId) -> bool {
        self.holds.get(id.index()).is_some_and(|&holds| holds)
    }
}
