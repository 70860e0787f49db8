//! What calls make of what they are given: copies, of which a few bytes could ask for any number.

use super::FEW;
use super::numpy::object_bytes;
use super::seen::Seen;
use crate::graph::{Graph, Location, Object, ObjectId, Reduced, Text};
use weighbridge_core::Budget;

/// Bytes that Python takes for an item: of a set or a dict, of one that keeps its order in a list beside it, of a list.
const HASHED: u64 = 100;
const ORDERED: u64 = 160;
const LISTED: u64 = 8;
/// Bytes of the largest element that a byte becomes.
const LARGEST_ELEMENT: u64 = 16;

/// What the calls of a pickle copy, and what of it there is to look at: bytes, and places of containers. The same ones may be given
/// to very many calls: from the second on, they count as what the call makes of them takes.
pub(crate) struct Copied<'a> {
    /// Budget of the memory and work that Python may take.
    python: &'a Budget,
    /// A bit for each object that was given to a call.
    met: Vec<u64>,
}

impl<'a> Copied<'a> {
    /// Nothing yet.
    pub(crate) fn new(python: &'a Budget) -> Self {
        Self { python, met: Vec::new() }
    }

    /// Counts a call; false where it is too much.
    pub(crate) fn take(&mut self, graph: &Graph, made: &Reduced) -> bool {
        let seen = Seen::at(graph, u64::MAX);
        let name = graph.global(made.callable).unwrap_or_default();
        let args = graph.tuple(made.args).unwrap_or_default();
        let mut all = args.len() as u64;
        for &id in args {
            all = all.saturating_add(self.given(seen, name, id));
        }
        for &state in &made.states {
            all = all.saturating_add(self.given(seen, name, state));
            for &id in graph.tuple(state).unwrap_or_default() {
                all = all.saturating_add(self.given(seen, name, id));
            }
            all = all.saturating_add(object_bytes(seen, name, state));
        }
        self.python.take_memory(all).is_ok()
    }

    /// What an object counts for a call of that name.
    fn given(&mut self, graph: Seen<'_>, (module, name): (&str, &str), id: ObjectId) -> u64 {
        let once = looked_at(graph, id);
        if once == 0 || !self.again(id) {
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

    /// True where the object was met before.
    fn again(&mut self, id: ObjectId) -> bool {
        let (word, bit) = (id.index() / 64, 1 << (id.index() % 64));
        if word >= self.met.len() {
            self.met.resize(word + 1, 0);
        }
        self.met.get_mut(word).is_some_and(|bits| std::mem::replace(bits, *bits | bit) & bit != 0)
    }
}

fn looked_at(graph: Seen<'_>, id: ObjectId) -> u64 {
    match graph.object(id) {
        // Bytes that are spelled as text, the fields of a type.
        Object::Reduced(made) => {
            let args = graph.tuple(made.args).unwrap_or_default().iter().take(FEW);
            let states = made.states.iter().take(1).flat_map(|&state| graph.tuple(state).unwrap_or_default());
            args.chain(states.take(FEW)).map(|&id| written(graph, id)).fold(0, u64::saturating_add)
        }
        Object::Tuple(items) => {
            let inner = items.iter().take(FEW).map(|&id| written(graph, id));
            inner.fold(items.len() as u64, u64::saturating_add)
        }
        _ => written(graph, id),
    }
}

/// Bytes, or places of a container.
fn written(graph: Seen<'_>, id: ObjectId) -> u64 {
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
