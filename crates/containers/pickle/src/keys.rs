//! What hashing the keys of a pickle takes.
//!
//! A tuple is hashed with all that is in it, each time that it is met: one that holds the one before twice, and that again, takes
//! twice as long at each step. A chain of them without an end takes all of the stack.
//!
//! What is looked at here is bounded in the same way: one list may be given to very many calls, one tuple be the key of very many
//! dicts. Python goes through it each time, too.

use super::graph::{Graph, Object, ObjectId, Reduced};
use weighbridge_core::Budget;

/// Work for an object that is hashed, or looked at to find such: a reference to it is followed.
const OBJECT: u64 = 8;
/// Objects of one key; as many may be within each other. Python calls itself for each.
const LARGEST: u16 = 20_000;
/// Items of a list that stands for a pair.
const PAIR: usize = 2;

/// True where hashing the keys of dicts and the items of sets takes far longer than reading the pickle, or goes down too far.
/// `new` gives what Python may take.
pub(super) fn are_too_large(graph: &Graph, new: &dyn Fn() -> Budget) -> bool {
    weigh(graph, new).is_none()
}

/// `None` where that is too much.
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
        (size <= LARGEST).then_some(())
    })
}

/// Takes the work for so many objects; `None` where there is none.
fn take(budget: &Budget, count: usize) -> Option<()> {
    budget.take_work(OBJECT.saturating_mul(count as u64)).ok()
}

/// True for what is hashed with what is in it, where that is not plain.
fn holds(graph: &Graph, key: ObjectId) -> bool {
    let is_nested = |&id: &ObjectId| matches!(graph.object(id), Object::Tuple(_) | Object::Reduced(_));
    match graph.object(key) {
        Object::Tuple(items) => items.iter().any(is_nested),
        Object::Reduced(made) => graph.tuple(made.args).is_some_and(|args| !args.is_empty()),
        _ => false,
    }
}

/// Is given an object; `None` ends it.
type Each<'e> = &'e mut dyn FnMut(ObjectId) -> Option<()>;

/// Gives `each` what is hashed to put all objects together.
fn each_of_all(graph: &Graph, budget: &Budget, each: Each<'_>) -> Option<()> {
    graph.iter().try_for_each(|(_, object)| each_key(graph, object, budget, each))
}

/// Gives `each` what is hashed to put the object together.
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

/// True for what hashes the items that it is given, once.
fn hashes(graph: &Graph, made: &Reduced) -> bool {
    let name = graph.global(made.callable).map_or("", |(_, name)| name);
    matches!(name, "set" | "frozenset" | "dict" | "Counter" | "OrderedDict" | "defaultdict")
}

/// Gives `each` the items that a call is given: of lists and tuples, and of the pairs in these. They count each time: other calls
/// may be given the same ones.
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

/// How many objects are hashed with each object; no more than can be counted.
struct Sizes(Vec<u16>);

impl Sizes {
    /// In the order in which they were made: what is in a tuple was there before it. `None` where the budget is spent.
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
                // What is a tuple then, or has one.
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
