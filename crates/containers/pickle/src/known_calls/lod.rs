//! `eval`, as Paddle writes a tensor with LoD: `eval("data", {"data": array})`.

use super::called;
use super::seen::Seen;
use crate::graph::{Graph, Object, ObjectId, Reduced};
use crate::numpy::lod_tensor;
use std::collections::HashMap;

/// How often each dict that `eval` is given, and each tuple around one, is referred to. Evaluating puts all of Python's own
/// functions into the dict: who has it in hand has those.
pub(crate) struct Evaluated(HashMap<ObjectId, u64>);

impl Evaluated {
    /// Counts them; `root` is what the pickle comes to.
    pub(crate) fn of(graph: &Graph, root: ObjectId) -> Self {
        let mut times = HashMap::new();
        for (id, object) in graph.iter() {
            if let Object::Reduced(made) = object
                && lod_tensor(graph, id).is_some()
                && let Some(&[_, names]) = graph.tuple(made.args)
            {
                times.extend([(names, 0), (made.args, 0)]);
            }
        }
        let mut counted = Self(times);
        if !counted.0.is_empty() {
            counted.count(root);
            graph.iter().for_each(|(_, object)| parts(object, &mut |id| counted.count(id)));
        }
        counted
    }

    fn count(&mut self, id: ObjectId) {
        if let Some(times) = self.0.get_mut(&id) {
            *times += 1;
        }
    }

    /// True where the call is given an array, in a dict that nothing else is given.
    pub(crate) fn is_alone(&self, graph: &Graph, made: &Reduced) -> bool {
        let Some(&[_, names]) = graph.tuple(made.args) else { return false };
        let Some(&[(_, array)]) = graph.pairs(names) else { return false };
        let rebuilt = called(Seen::at(graph, made.offset), array).is_some_and(|(module, name)| {
            module.starts_with("numpy") && matches!(name, "_reconstruct" | "_frombuffer")
        });
        rebuilt && self.0.get(&names) == Some(&1) && self.0.get(&made.args) == Some(&1)
    }
}

/// Gives `each` whatever the object refers to.
fn parts(object: &Object, each: &mut dyn FnMut(ObjectId)) {
    match object {
        Object::List(items) | Object::Set(items) => items.iter().copied().for_each(each),
        Object::Tuple(items) | Object::FrozenSet(items) => items.iter().copied().for_each(each),
        Object::Dict(pairs) => pairs.iter().flat_map(|&(key, value)| [key, value]).for_each(each),
        Object::Global { module, name } => [*module, *name].into_iter().for_each(each),
        Object::PersistentId(id) => each(*id),
        Object::Reduced(made) => {
            let pairs = made.pairs.iter().flat_map(|&(key, value)| [key, value]);
            let items = made.items.iter().chain(&made.states).copied();
            [made.callable, made.args]
                .into_iter()
                .chain(made.kwargs)
                .chain(items)
                .chain(pairs)
                .for_each(each);
        }
        _ => {}
    }
}
