//! From which objects tensors can be reached.

use super::graph::{Graph, Object, ObjectId};

/// The objects that are tensors or lead to some.
#[derive(Debug)]
pub struct Reach {
    holds: Vec<bool>,
    size: u64,
}

/// Calls `meet` with each object that an object points at.
fn edges(object: &Object, mut meet: impl FnMut(usize)) {
    match object {
        Object::List(items) | Object::Set(items) => items.iter().for_each(|item| meet(item.index())),
        Object::Tuple(items) | Object::FrozenSet(items) => items.iter().for_each(|item| meet(item.index())),
        Object::Dict(pairs) => pairs.iter().for_each(|(_, value)| meet(value.index())),
        Object::Reduced(made) => {
            made.pairs.iter().for_each(|(_, value)| meet(value.index()));
            made.items.iter().chain(&made.states).for_each(|item| meet(item.index()));
            // Of a named tuple, and of what says by itself how it is made.
            std::iter::once(made.args).chain(made.kwargs).for_each(|item| meet(item.index()));
        }
        _ => {}
    }
}

impl Reach {
    /// Goes backwards from the tensors, once over every edge. The edges stand in two vectors: where those that lead to
    /// an object begin, and where they come from. A vector for each object would take more than the objects.
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

    /// Objects and edges together.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// True for a tensor, and for what leads to one.
    pub fn holds_tensor(&self, id: ObjectId) -> bool {
        self.holds.get(id.index()).is_some_and(|&holds| holds)
    }
}
