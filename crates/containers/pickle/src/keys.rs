//! Cost of hashing the keys of a pickle in Python.
//!
//! Hashing a tuple hashes all of its content, every time. If each tuple holds the previous one twice, the time doubles at each
//! step. A long chain of nested tuples exhausts the stack.
//!
//! The check itself has the same bound: many calls may get one list, and one tuple may be the key of many dicts. Python also
//! walks it each time.

use super::graph::{Graph, Object, ObjectId, Reduced};
use weighbridge_core::Budget;

/// Work per object that is hashed or visited.
const OBJECT: u64 = 8;
/// Maximum number of objects in one key, also of nested ones: Python recurses for each.
const MAX_KEY_OBJECTS: u16 = 20_000;
/// Items of a list that represents a pair.
const PAIR: usize = 2;

/// Returns true if hashing the keys of dicts and the items of sets takes far longer than reading the pickle, or recurses too
/// deeply. `new` creates the budget of Python.
pub(super) fn are_too_large(graph: &Graph, new: &dyn Fn() -> Budget) -> bool {
    weigh(graph, new).is_none()
}

/// Returns `None` if hashing exceeds the budget.
fn weigh(graph: &Graph, new: &dyn Fn() -> Budget) -> Option<()> {
    let (hashed, mut nested) = (new(), false);
    each_of_all(graph, &new(), &mut |key| {
        take(&hashed, graph.tuple(key).map_or(1, <[_]>::len))?;
        nested = nested || holds(graph, key);
        Some(())
    })?;
    if !nested {
        return Some(());
    }
    let (sizes, hashed) = (Sizes::of(graph, &new())?, new());
    each_of_all(graph, &new(), &mut |key| {
        let size = sizes.get(key);
        take(&hashed, usize::from(size))?;
        (size <= MAX_KEY_OBJECTS).then_some(())
    })
}

/// Takes the work for `count` objects; `None` if the budget is spent.
fn take(budget: &Budget, count: usize) -> Option<()> {
    budget.take_work(OBJECT.saturating_mul(count as u64)).ok()
}

/// Returns true for a key whose hash includes nested tuples or calls.
fn holds(graph: &Graph, key: ObjectId) -> bool {
    let is_nested = |&id: &ObjectId| matches!(graph.object(id), Object::Tuple(_) | Object::Reduced(_));
    match graph.object(key) {
        Object::Tuple(items) => items.iter().any(is_nested),
        Object::Reduced(made) => graph.tuple(made.args).is_some_and(|args| !args.is_empty()),
        _ => false,
    }
}

/// Callback for an object; `None` ends the iteration.
type Each<'e> = &'e mut dyn FnMut(ObjectId) -> Option<()>;

/// Calls `each` with every key that building all objects hashes.
fn each_of_all(graph: &Graph, budget: &Budget, each: Each<'_>) -> Option<()> {
    graph.iter().try_for_each(|(_, object)| each_key(graph, object, budget, each))
}

/// Calls `each` with every key that building the object hashes.
fn each_key(graph: &Graph, object: &Object, budget: &Budget, each: Each<'_>) -> Option<()> {
    match object {
        Object::Dict(pairs) => pairs.iter().try_for_each(|&(key, _)| each(key)),
        Object::Set(items) => items.iter().copied().try_for_each(each),
        Object::FrozenSet(items) => items.iter().copied().try_for_each(each),
        Object::Reduced(made) => {
            made.pairs.iter().try_for_each(|&(key, _)| each(key))?;
            if hashes(graph, made) { each_given(graph, made, budget, each) } else { Some(()) }
        }
        _ => Some(()),
    }
}

/// Returns true for a type that hashes its items once.
fn hashes(graph: &Graph, made: &Reduced) -> bool {
    let name = graph.global(made.callable).map_or("", |(_, name)| name);
    matches!(name, "set" | "frozenset" | "dict" | "Counter" | "OrderedDict" | "defaultdict")
}

/// Calls `each` with the items of the list and tuple arguments of a call, and of pairs in them. They count for each call, since
/// calls can share arguments.
fn each_given(graph: &Graph, made: &Reduced, budget: &Budget, each: Each<'_>) -> Option<()> {
    let args = graph.tuple(made.args).unwrap_or_default();
    take(budget, args.len())?;
    for &arg in args {
        let items = graph.sequence(arg).unwrap_or_default();
        take(budget, items.len())?;
        for &item in items {
            match graph.object(item) {
                Object::List(pair) => pair.iter().take(PAIR).try_for_each(|&id| each(id))?,
                _ => each(item)?,
            }
        }
    }
    Some(())
}

/// Number of objects that hashing each object visits, saturating.
struct Sizes(Vec<u16>);

impl Sizes {
    /// Computes the sizes in order of creation: the items of a tuple precede it. `None` if the budget is spent.
    fn of(graph: &Graph, budget: &Budget) -> Option<Self> {
        let mut sizes = Self(vec![1; graph.len()]);
        for (id, object) in graph.iter() {
            let mut size = 1u16;
            let mut add = |item| {
                size = size.saturating_add(sizes.get(item));
                Some(())
            };
            match object {
                Object::Tuple(items) => items.iter().copied().try_for_each(add)?,
                // The result may be a tuple, or hold one.
                Object::Reduced(made) if !hashes(graph, made) => {
                    add(made.args)?;
                    each_given(graph, made, budget, &mut add)?;
                }
                _ => continue,
            }
            if let Some(known) = sizes.0.get_mut(id.index()) {
                *known = size;
            }
        }
        Some(sizes)
    }

    fn get(&self, id: ObjectId) -> u16 {
        self.0.get(id.index()).copied().unwrap_or(1)
    }
}
