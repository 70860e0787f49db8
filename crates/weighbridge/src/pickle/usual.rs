//! Calls of harmless things as honest writers make them, and no others: an argument may ask for all the memory there is, and
//! an attribute may be called by loading itself.

use super::graph::{Graph, How, Object, ObjectId};
use std::collections::HashSet;

/// Arguments that a type which takes one or two is given at most: the same tuple of very many may stand in many calls.
const MOST_ARGS: usize = 8;
/// Elements of an array that numpy makes before it is given its state; honest pickles ask for none.
const MOST_ELEMENTS: i64 = 1 << 10;
/// What loading looks up in an object, and calls.
const CALLED: &[&str] = &["__setstate__", "append", "extend", "add"];

/// True where an allowed function is called as honest writers do.
pub(super) fn usual(graph: &Graph, id: ObjectId, name: &str) -> bool {
    let Some(made) = graph.made(id) else { return false };
    // Arguments that are computed may be anything.
    let Some(args) = graph.tuple(made.args) else { return false };
    let named = made
        .kwargs
        .is_some_and(|named| !matches!(graph.object(named), Object::Dict(pairs) if pairs.is_empty()));
    if named || args.iter().any(|&id| is_range(graph, id)) {
        return false;
    }
    match name {
        // A number among the arguments would be a number of zeros, and so would what is computed.
        "bytes" | "bytearray" => match *args {
            [] => true,
            [bytes] => is_bytes(graph, bytes),
            [text, codec] => is_text(graph, text) && is_latin1(graph, codec),
            _ => false,
        },
        // They call the first argument, which must be what makes a tensor, and calls nothing else.
        "_rebuild_from_type" | "_rebuild_from_type_v2" => args
            .first()
            .and_then(|&id| graph.global(id))
            .is_some_and(|(module, name)| module == "torch._utils" && name.starts_with("_rebuild_")),
        "list" | "tuple" | "set" | "frozenset" | "dict" | "OrderedDict" | "Counter" | "deque" => {
            args.len() <= MOST_ARGS
        }
        "encode" => made.how == How::Reduce && matches!(*args, [_, codec] if is_latin1(graph, codec)),
        // The array gets its extents from its state.
        "_reconstruct" => matches!(*args, [_, shape, _] if is_small(graph, shape)),
        // Without the bytes, numpy makes as many zeros as the type says.
        "scalar" => args.len() == 2,
        // Rebuilt by functions of their own; called by themselves they take a size.
        "ndarray" | "Tensor" => false,
        name if name.ends_with("Storage") => false,
        _ => true,
    }
}

/// True for a range: a few bytes that become any number of items.
fn is_range(graph: &Graph, id: ObjectId) -> bool {
    let callable = graph.made(id).and_then(|made| graph.global(made.callable));
    callable.is_some_and(|(_, name)| matches!(name, "range" | "xrange"))
}

fn is_text(graph: &Graph, id: ObjectId) -> bool {
    matches!(graph.object(id), Object::Text(_) | Object::ByteString(_))
}

/// True for bytes, as they are or as protocol 2 spells them.
fn is_bytes(graph: &Graph, id: ObjectId) -> bool {
    match graph.object(id) {
        Object::Bytes(_) | Object::ByteArray(_) | Object::ByteString(_) | Object::Text(_) => true,
        Object::Made(made) => matches!(graph.global(made.callable), Some(("_codecs", "encode"))),
        _ => false,
    }
}

fn is_latin1(graph: &Graph, codec: ObjectId) -> bool {
    matches!(graph.text(codec), Some("latin1" | "latin-1" | "iso-8859-1"))
}

/// True for extents that are written as numbers and come to a few elements.
fn is_small(graph: &Graph, shape: ObjectId) -> bool {
    let Some(extents) = graph.tuple(shape) else { return false };
    let count = extents.iter().try_fold(1i64, |count, &id| {
        graph.int(id).filter(|extent| *extent >= 0).and_then(|extent| count.checked_mul(extent))
    });
    count.is_some_and(|count| count <= MOST_ELEMENTS)
}

/// Where the pickle gives an object an attribute that loading looks up and calls (`append`), or a state that replaces what
/// the object is (`__class__`): the offset of what makes the first such object. No honest writer does either.
pub(super) fn sets_what_is_called(graph: &Graph) -> Option<u64> {
    // A state that is computed may be any of the dicts, or come from any of the pairs.
    let mut anywhere = None;
    // The same dict may be the state of very many objects.
    let mut seen = HashSet::new();
    let mut odd = |state: ObjectId| match graph.object(state) {
        _ if !seen.insert(state) => false,
        Object::Dict(pairs) => any_called(graph, pairs) || pairs.iter().any(|&(key, _)| replaces(graph, key)),
        Object::Made(_) | Object::Global { .. } | Object::Extension(_) | Object::PersistentId(_) => {
            graph.pairs(state).is_some_and(|pairs| pairs.iter().any(|&(key, _)| replaces(graph, key)))
                || *anywhere
                    .get_or_insert_with(|| graph.iter().any(|(_, object)| holds_called(graph, object)))
        }
        _ => false,
    };
    graph
        .iter()
        .filter_map(|(_, object)| if let Object::Made(made) = object { Some(made) } else { None })
        .find(|made| {
            made.states.iter().any(|&state| match graph.tuple(state) {
                // Attributes, and those of slots.
                Some(&[state, slots]) => odd(state) || odd(slots),
                _ => odd(state),
            })
        })
        .map(|made| made.offset)
}

/// True for a dict with such an attribute, or pairs from which one may be made.
fn holds_called(graph: &Graph, object: &Object) -> bool {
    match object {
        Object::Dict(pairs) => any_called(graph, pairs),
        Object::Tuple(items) => is_called(graph, items),
        Object::List(items) => is_called(graph, items),
        Object::Made(made) => any_called(graph, &made.pairs),
        _ => false,
    }
}

fn any_called(graph: &Graph, pairs: &[(ObjectId, ObjectId)]) -> bool {
    pairs.iter().any(|&(key, value)| is_called(graph, &[key, value]))
}

/// True for the name of what loading calls, and something that can be called under it.
fn is_called(graph: &Graph, pair: &[ObjectId]) -> bool {
    let [key, value] = *pair else { return false };
    let callable =
        matches!(graph.object(value), Object::Global { .. } | Object::Extension(_) | Object::PersistentId(_));
    callable
        && match graph.object(key) {
            Object::Text(_) | Object::ByteString(_) => {
                graph.text(key).is_some_and(|key| CALLED.contains(&key))
            }
            // A name that is computed may be any.
            Object::Made(made) => graph
                .global(made.callable)
                .is_none_or(|(_, name)| matches!(name, "str" | "unicode" | "encode")),
            _ => false,
        }
}

/// True for the name of an attribute of Python's own machinery.
fn replaces(graph: &Graph, key: ObjectId) -> bool {
    graph.text(key).is_some_and(|key| matches!(key, "__class__" | "__dict__" | "__setstate__"))
}
