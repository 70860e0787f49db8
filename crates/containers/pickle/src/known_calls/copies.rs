//! Memory of the argument copies that calls make: a few bytes of a pickle can ask for any number of copies.

use super::MAX_INNER_ITEMS;
use super::numpy::object_bytes;
use super::snapshot::Snapshot;
use crate::graph::{Graph, Location, Object, ObjectId, Reduced, Text};
use weighbridge_core::Budget;

/// Bytes per item in Python: of a set or dict, of an ordered dict, of a list.
const HASHED: u64 = 100;
const ORDERED: u64 = 160;
const LISTED: u64 = 8;
/// Bytes of the largest element type: one byte can become one element.
const LARGEST_ELEMENT: u64 = 16;

/// Budget for the copies that the calls of a pickle make: bytes and container slots. Calls can share arguments: from the second
/// call on, an argument counts as the memory of its copy.
pub(crate) struct CopyBudget<'a> {
    /// Budget for the memory and work of Python.
    python: &'a Budget,
    /// One bit per object: set if it was an argument of a call.
    seen: Vec<u64>,
}

impl<'a> CopyBudget<'a> {
    /// Creates an empty count.
    pub(crate) fn new(python: &'a Budget) -> Self {
        Self { python, seen: Vec::new() }
    }

    /// Counts a call; returns false if the budget is exceeded.
    pub(crate) fn take(&mut self, graph: &Graph, made: &Reduced) -> bool {
        let seen = Snapshot::at(graph, u64::MAX);
        let name = graph.global(made.callable).unwrap_or_default();
        let args = graph.tuple(made.args).unwrap_or_default();
        let mut all = args.len() as u64;
        for &id in args {
            all = all.saturating_add(self.argument_cost(seen, name, id));
        }
        for &state in &made.states {
            all = all.saturating_add(self.argument_cost(seen, name, state));
            for &id in graph.tuple(state).unwrap_or_default() {
                all = all.saturating_add(self.argument_cost(seen, name, id));
            }
            all = all.saturating_add(object_bytes(seen, name, state));
        }
        self.python.take_memory(all).is_ok()
    }

    /// Cost of an argument for a call of that name.
    fn argument_cost(&mut self, graph: Snapshot<'_>, (module, name): (&str, &str), id: ObjectId) -> u64 {
        let once = size_with_items(graph, id);
        if once == 0 || !self.mark_seen(id) {
            return once;
        }
        let each = match (graph.object(id), name) {
            (Object::Reduced(_), "_rebuild_device_tensor_from_numpy") => LARGEST_ELEMENT,
            (Object::Reduced(_), _) => 1,
            (Object::Text(_) | Object::ByteString(_), _) if module.starts_with("pathlib") => LISTED,
            (Object::Text(_) | Object::ByteString(_) | Object::Bytes(_) | Object::ByteArray(_), _) => 1,
            (_, "OrderedDict") => ORDERED,
            (_, "Counter" | "defaultdict" | "dict" | "set" | "frozenset") | (Object::Dict(_), _) => HASHED,
            _ => LISTED,
        };
        once.saturating_mul(each)
    }

    /// Marks the object as seen; returns true if it was seen before.
    fn mark_seen(&mut self, id: ObjectId) -> bool {
        let (word, bit) = (id.index() / 64, 1 << (id.index() % 64));
        if word >= self.seen.len() {
            self.seen.resize(word + 1, 0);
        }
        self.seen.get_mut(word).is_some_and(|bits| std::mem::replace(bits, *bits | bit) & bit != 0)
    }
}

/// Size of an argument with its inner items.
fn size_with_items(graph: Snapshot<'_>, id: ObjectId) -> u64 {
    match graph.object(id) {
        // Bytes that are encoded as text; the fields of a dtype.
        Object::Reduced(made) => {
            let args = graph.tuple(made.args).unwrap_or_default().iter().take(MAX_INNER_ITEMS);
            let states = made.states.iter().take(1).flat_map(|&state| graph.tuple(state).unwrap_or_default());
            args.chain(states.take(MAX_INNER_ITEMS))
                .map(|&id| written(graph, id))
                .fold(0, u64::saturating_add)
        }
        Object::Tuple(items) => {
            let inner = items.iter().take(MAX_INNER_ITEMS).map(|&id| written(graph, id));
            inner.fold(items.len() as u64, u64::saturating_add)
        }
        _ => written(graph, id),
    }
}

/// Number of bytes, or of slots of a container.
fn written(graph: Snapshot<'_>, id: ObjectId) -> u64 {
    let text = |text: &Text| match text.place {
        Location::Source(span) => span.len,
        _ => text.short.as_ref().map_or(0, |short| short.len() as u64),
    };
    match graph.object(id) {
        Object::Bytes(blob) | Object::ByteArray(blob) => blob.len().unwrap_or(0),
        Object::Text(t) => text(t),
        Object::ByteString(t) => text(t),
        Object::List(items) | Object::Set(items) => items.len() as u64,
        Object::Tuple(items) | Object::FrozenSet(items) => items.len() as u64,
        Object::Dict(pairs) => pairs.len() as u64 * 2,
        _ => 0,
    }
}
