//! The `eval` call that Paddle writes for a tensor with LoD: `eval("data", {"data": array})`.

use super::called;
use super::snapshot::Snapshot;
use crate::graph::{Graph, Object, ObjectId, Reduced};
use crate::numpy::lod_tensor;
use std::collections::HashMap;

/// Reference counts of the dicts passed to `eval` and of the argument tuples around them. `eval` adds all built-in functions to
/// the dict, so nothing else may refer to it.
pub(crate) struct EvalArguments(HashMap<ObjectId, u64>);

impl EvalArguments {
    /// Counts the references; `root` is the result of the pickle.
    pub(crate) fn of(graph: &Graph, root: ObjectId) -> Self {
        let mut counts = HashMap::new();
        for (id, object) in graph.iter() {
            if let Object::Reduced(made) = object
                && lod_tensor(graph, id).is_some()
                && let Some(&[_, names]) = graph.tuple(made.args)
            {
                counts.extend([(names, 0), (made.args, 0)]);
            }
        }
        let mut counted = Self(counts);
        if !counted.0.is_empty() {
            counted.count(root);
            graph.iter().for_each(|(_, object)| parts(object, &mut |id| counted.count(id)));
        }
        counted
    }

    fn count(&mut self, id: ObjectId) {
        if let Some(count) = self.0.get_mut(&id) {
            *count += 1;
        }
    }

    /// Returns true if the call gets an array in a dict that nothing else refers to.
    pub(crate) fn is_alone(&self, graph: &Graph, made: &Reduced) -> bool {
        let Some(&[_, names]) = graph.tuple(made.args) else { return false };
        let Some(&[(_, array)]) = graph.pairs(names) else { return false };
        let rebuilt = called(Snapshot::at(graph, made.offset), array).is_some_and(|(module, name)| {
            module.starts_with("numpy") && matches!(name, "_reconstruct" | "_frombuffer")
        });
        rebuilt && self.0.get(&names) == Some(&1) && self.0.get(&made.args) == Some(&1)
    }
}

/// Calls `each` with every object that the object refers to.
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
