//! What hashing the keys of a pickle takes.
//!
//! A tuple is hashed with all that is in it, each time that it is met: one that holds the one before twice, and that again, takes
//! twice as long at each step. A chain of them without an end takes all of the stack.
//!
//! What is looked at here is bounded in the same way: one list may be given to very many calls, one tuple be the key of very many
//! dicts. Python goes through it each time, too.

use super::graph::{Graph, Made, Object, ObjectId};

/// Objects that are hashed may be so many times the bytes of the pickle, and so many more; also what is looked at to find them.
const TIMES: u64 = 8;
const FREE: u64 = 16 << 20;
/// Objects of one key; as many may be within each other.
const LARGEST: u16 = 20_000;
/// Items of a list that stands for a pair.
const PAIR: usize = 2;

/// True where hashing the keys of dicts and the items of sets takes far longer than reading the pickle of `len` bytes, or goes down
/// too far.
pub(super) fn are_too_large(graph: &Graph, len: u64) -> bool {
    weigh(graph, len.saturating_mul(TIMES).saturating_add(FREE)).is_none()
}

/// `None` where that is more than `most`.
fn weigh(graph: &Graph, most: u64) -> Option<()> {
    let (mut items, mut hashed, mut nested) = (Budget(most), Budget(most), false);
    each_of_all(graph, &mut items, &mut |key| {
        hashed.take(graph.tuple(key).map_or(1, <[_]>::len))?;
        nested = nested || holds(graph, key);
        Some(())
    })?;
    if !nested {
        return Some(());
    }
    let sizes = Sizes::of(graph, Budget(most))?;
    let (mut items, mut hashed) = (Budget(most), Budget(most));
    each_of_all(graph, &mut items, &mut |key| {
        let size = sizes.get(key);
        hashed.take(usize::from(size))?;
        (size <= LARGEST).then_some(())
    })
}

/// What may still be looked at.
struct Budget(u64);

impl Budget {
    /// `None` where it is spent.
    fn take(&mut self, count: usize) -> Option<()> {
        self.0 = self.0.checked_sub(u64::try_from(count).ok()?)?;
        Some(())
    }
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

/// Is given an object; `None` ends it.
type Each<'e> = &'e mut dyn FnMut(ObjectId) -> Option<()>;

/// Gives `each` what is hashed to put all objects together.
fn each_of_all(graph: &Graph, budget: &mut Budget, each: Each<'_>) -> Option<()> {
    graph.iter().try_for_each(|(_, object)| each_key(graph, object, budget, each))
}

/// Gives `each` what is hashed to put the object together.
fn each_key(graph: &Graph, object: &Object, budget: &mut Budget, each: Each<'_>) -> Option<()> {
    match object {
        Object::Dict(pairs) => pairs.iter().try_for_each(|&(key, _)| each(key)),
        Object::Set(items) => items.iter().copied().try_for_each(each),
        Object::FrozenSet(items) => items.iter().copied().try_for_each(each),
        Object::Made(made) => {
            made.pairs.iter().try_for_each(|&(key, _)| each(key))?;
            if hashes(graph, made) { each_given(graph, made, budget, each) } else { Some(()) }
        }
        _ => Some(()),
    }
}

/// True for what hashes the items that it is given, once.
fn hashes(graph: &Graph, made: &Made) -> bool {
    let name = graph.global(made.callable).map_or("", |(_, name)| name);
    matches!(name, "set" | "frozenset" | "dict" | "Counter" | "OrderedDict" | "defaultdict")
}

/// Gives `each` the items that a call is given: of lists and tuples, and of the pairs in these. They count each time: other calls
/// may be given the same ones.
fn each_given(graph: &Graph, made: &Made, budget: &mut Budget, each: Each<'_>) -> Option<()> {
    let args = graph.tuple(made.args).unwrap_or_default();
    budget.take(args.len())?;
    for &arg in args {
        let items = graph.sequence(arg).unwrap_or_default();
        budget.take(items.len())?;
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
    fn of(graph: &Graph, mut budget: Budget) -> Option<Self> {
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
                Object::Made(made) if !hashes(graph, made) => {
                    add(made.args)?;
                    each_given(graph, made, &mut budget, &mut add)?;
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
