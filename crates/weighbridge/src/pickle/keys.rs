//! What hashing the keys of a pickle takes.
//!
//! A tuple is hashed with all that is in it, each time that it is met: one that holds the one before twice, and that again, takes
//! twice as long at each step. A chain of them without an end takes all of the stack.

use super::graph::{Graph, Made, Object, ObjectId};

/// Objects that are hashed may be so many times the bytes of the pickle, and so many more.
const TIMES: u64 = 8;
const FREE: u64 = 16 << 20;
/// Objects of one key; as many may be within each other.
const LARGEST: u16 = 20_000;
/// Items of a list that stands for a pair.
const PAIR: usize = 2;

/// True where hashing the keys of dicts and the items of sets takes far longer than reading the pickle of `len` bytes, or goes down
/// too far.
pub(super) fn are_too_large(graph: &Graph, len: u64) -> bool {
    let mut nested = false;
    graph.iter().for_each(|(_, object)| each_key(graph, object, &mut |key| nested |= holds(graph, key)));
    if !nested {
        return false;
    }
    let sizes = Sizes::of(graph);
    let (mut all, mut largest) = (0u64, 0);
    let mut count = |key| {
        let size = sizes.get(key);
        all = all.saturating_add(u64::from(size));
        largest = largest.max(size);
    };
    graph.iter().for_each(|(_, object)| each_key(graph, object, &mut count));
    all > len.saturating_mul(TIMES).saturating_add(FREE) || largest > LARGEST
}

/// True for what is hashed with what is in it, where that is not plain.
fn holds(graph: &Graph, key: ObjectId) -> bool {
    let is_nested = |&id: &ObjectId| matches!(graph.object(id), Object::Tuple(_) | Object::Made(_));
    match graph.object(key) {
        Object::Tuple(items) => items.iter().any(is_nested),
        Object::Made(made) => graph.tuple(made.args).is_some_and(|args| !args.is_empty()),
        _ => false,
    }
}

/// Gives `each` what is hashed to put the object together.
fn each_key(graph: &Graph, object: &Object, each: &mut dyn FnMut(ObjectId)) {
    match object {
        Object::Dict(pairs) => pairs.iter().for_each(|&(key, _)| each(key)),
        Object::Set(items) => items.iter().copied().for_each(each),
        Object::FrozenSet(items) => items.iter().copied().for_each(each),
        Object::Made(made) => {
            made.pairs.iter().for_each(|&(key, _)| each(key));
            if hashes(graph, made) {
                each_given(graph, made, each);
            }
        }
        _ => {}
    }
}

/// True for what hashes the items that it is given, once.
fn hashes(graph: &Graph, made: &Made) -> bool {
    let name = graph.global(made.callable).map_or("", |(_, name)| name);
    matches!(name, "set" | "frozenset" | "dict" | "Counter" | "OrderedDict" | "defaultdict")
}

/// Gives `each` the items that a call is given: of lists and tuples, and of the pairs in these.
fn each_given(graph: &Graph, made: &Made, each: &mut dyn FnMut(ObjectId)) {
    for &arg in graph.tuple(made.args).unwrap_or_default() {
        for &item in graph.sequence(arg).unwrap_or_default() {
            match graph.object(item) {
                Object::List(pair) => pair.iter().take(PAIR).for_each(|&id| each(id)),
                _ => each(item),
            }
        }
    }
}

/// How many objects are hashed with each object; no more than can be counted.
struct Sizes(Vec<u16>);

impl Sizes {
    /// In the order in which they were made: what is in a tuple was there before it.
    fn of(graph: &Graph) -> Self {
        let mut sizes = Self(vec![1; graph.len()]);
        for (id, object) in graph.iter() {
            let mut size = 1u16;
            let mut add = |item| size = size.saturating_add(sizes.get(item));
            match object {
                Object::Tuple(items) => items.iter().copied().for_each(add),
                // What is a tuple then, or has one.
                Object::Made(made) if !hashes(graph, made) => {
                    add(made.args);
                    each_given(graph, made, &mut add);
                }
                _ => continue,
            }
            if let Some(known) = sizes.0.get_mut(id.index()) {
                *known = size;
            }
        }
        sizes
    }

    fn get(&self, id: ObjectId) -> u16 {
        self.0.get(id.index()).copied().unwrap_or(1)
    }
}
