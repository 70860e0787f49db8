//! Calls of allowed things as honest writers make them, and no others. Every name has a form of its own: what arguments it is
//! given, what state, what is put into it. A name without a form is not called.
//!
//! The forms are closed because harmless things add up: a state given to a function, a class that is an object with a method
//! of its own, a type whose flags say that numbers are objects, a size instead of bytes. Whatever is passed on is written out in
//! the pickle, or made by a call that has a form itself.

mod copied;
mod libraries;
mod lod;
mod numpy;
mod seen;
mod torch;

pub(super) use copied::Copied;
pub(super) use lod::Evaluated;
pub(super) use numpy::element_size;
pub(super) use torch::Storages;

use super::graph::{Graph, Object, ObjectId, ReduceKind, Reduced};
use super::numpy::bytes_of;
use seen::Seen;

/// Items of a container within another that a form looks at.
const FEW: usize = 16;

/// True where an allowed function or class is called, and what comes of it is used, as honest writers do.
pub(super) fn is_known_call(graph: &Graph, made: &Reduced, module: &str, name: &str) -> bool {
    // Arguments that are computed may be anything.
    let Some(args) = graph.tuple(made.args) else { return false };
    let named = made
        .kwargs
        .is_some_and(|named| !matches!(graph.object(named), Object::Dict(pairs) if pairs.is_empty()));
    let ([] | [_]) = made.states.as_slice() else { return false };
    if let Some(known) = super::libraries::known(module, name) {
        return !named
            && made.items.is_empty()
            && libraries::is_known_call(Seen::at(graph, made.offset), made, known, args);
    }
    let grows = matches!((module, name), ("collections", "deque") | ("builtins" | "__builtin__", "list"));
    let maps = matches!(
        (module, name),
        ("collections", "OrderedDict" | "Counter" | "defaultdict") | ("builtins" | "__builtin__", "dict")
    );
    !named
        && (grows || made.items.is_empty())
        && (maps || made.pairs.is_empty())
        && given(Seen::at(graph, made.offset), made.how, module, name, args)
        && match (module, name) {
            // Of a type, arguments and state say one thing together.
            ("numpy", "dtype") => numpy::is_type(Seen::at(graph, made.offset.max(made.built)), made),
            ("copyreg" | "copy_reg", _) => {
                let seen = Seen::at(graph, made.built);
                let class = args.first().and_then(|&class| graph.global(class));
                made.states.iter().all(|&state| match class {
                    Some((module, name)) if super::libraries::known(module, name).is_some() => {
                        let states = libraries::states_of(module, name);
                        states.chars().any(|kind| libraries::stated(seen, kind, state))
                    }
                    _ => attributes(seen, state),
                })
            }
            _ => {
                let seen = Seen::at(graph, made.built);
                made.states.iter().all(|&state| stated(seen, module, name, state))
            }
        }
}

/// True where something that is harmless in one pattern only is called in this.
pub(super) fn in_pattern(graph: &Graph, made: &Reduced, module: &str, name: &str) -> bool {
    let seen = Seen::at(graph, made.offset);
    let alone = made.kwargs.is_none() && made.items.is_empty() && made.pairs.is_empty();
    alone
        && match (module, name) {
            ("builtins" | "__builtin__", "getattr") => libraries::is_known_method(seen, made),
            ("builtins" | "__builtin__", "type") => libraries::is_type_of_constant(seen, made),
            ("functools", "partial") => libraries::is_partial(seen, made),
            _ => false,
        }
}

/// True for a call of what `getattr` gave, as Python writes time zones.
pub(super) fn is_zone(graph: &Graph, id: ObjectId) -> bool {
    graph.made(id).is_some_and(|made| libraries::is_zone_call(Seen::at(graph, made.offset), id))
}

/// True where the thing of that name is given such arguments.
fn given(graph: Seen<'_>, how: ReduceKind, module: &str, name: &str, args: &[ObjectId]) -> bool {
    match module {
        "numpy.core._internal"
        | "numpy.core.multiarray"
        | "numpy._core.multiarray"
        | "numpy.core.numeric"
        | "numpy._core.numeric"
        | "numpy"
        | "ml_dtypes" => numpy::given(graph, name, args),
        "torch" | "torch._utils" | "torch._tensor" | "torch.nn.parameter" | "torch.serialization" => {
            torch::given(graph, module, name, args)
        }
        // Python 2 makes a string of the text, in whatever codec it is told.
        "_codecs" => {
            how == ReduceKind::Reduce
                && matches!(*args, [text, codec] if is_text(graph, text) && is_latin1(graph, codec))
        }
        "collections" => collected(graph, name, args),
        "datetime" => args.iter().all(|&id| {
            is_atom(graph, id)
                || is_bytes(graph, id)
                || called(graph, id).is_some_and(|(module, _)| module == "datetime")
        }),
        "pathlib" | "pathlib._local" => args.iter().all(|&id| is_text(graph, id)),
        "builtins" | "__builtin__" => plain(graph, name, args),
        "copyreg" | "copy_reg" => reconstructed(graph, args),
        "argparse" | "uuid" => args.is_empty(),
        module if module.starts_with("paddle.distributed.") => args.is_empty(),
        _ => false,
    }
}

/// True where what the thing of that name made is given such a state.
fn stated(graph: Seen<'_>, module: &str, name: &str, state: ObjectId) -> bool {
    match (module, name) {
        (module, "_reconstruct") if module.starts_with("numpy") => numpy::array_state(graph, state),
        ("collections", "OrderedDict") | ("argparse" | "uuid", _) => attributes(graph, state),
        (module, _) if module.starts_with("paddle.distributed.") => attributes(graph, state),
        ("torch.nn.parameter", "Parameter") => torch::old_state(graph, state),
        _ => false,
    }
}

fn collected(graph: Seen<'_>, name: &str, args: &[ObjectId]) -> bool {
    let filled = |id: ObjectId| is_container(graph, id);
    match (name, args) {
        (_, []) => true,
        ("OrderedDict" | "Counter", &[items]) => filled(items),
        // It is called where a key is missing.
        ("defaultdict", &[factory, ref rest @ ..]) => {
            let known = match graph.global(factory) {
                Some(("builtins" | "__builtin__", name)) => {
                    matches!(
                        name,
                        "list"
                            | "dict"
                            | "set"
                            | "tuple"
                            | "int"
                            | "long"
                            | "float"
                            | "bool"
                            | "str"
                            | "unicode"
                    )
                }
                Some(("collections", _)) => true,
                _ => factory == ObjectId::NONE,
            };
            known && matches!(*rest, [] | [_]) && rest.iter().all(|&id| filled(id))
        }
        ("deque", &[items, ref most @ ..]) => {
            let known = matches!(graph.object(items), Object::List(_) | Object::Tuple(_));
            known
                && matches!(*most, [] | [_])
                && most.iter().all(|&id| id == ObjectId::NONE || is_int(graph, id))
        }
        _ => false,
    }
}

/// The plain types of Python.
fn plain(graph: Seen<'_>, name: &str, args: &[ObjectId]) -> bool {
    let all = |most: usize, fits: fn(Seen<'_>, ObjectId) -> bool| {
        args.len() <= most && args.iter().all(|&id| fits(graph, id))
    };
    match name {
        // A number would be a number of zeros, and so would what is computed.
        "bytes" | "bytearray" => match *args {
            [] => true,
            [bytes] => is_bytes(graph, bytes),
            [text, codec] => is_text(graph, text) && is_latin1(graph, codec),
            _ => false,
        },
        // A few bytes become any number of items of what is computed, such as a range.
        "tuple" | "list" | "dict" | "set" | "frozenset" => all(1, is_container),
        "int" | "long" | "float" | "bool" => all(1, is_number),
        "complex" => all(2, is_number),
        "str" | "unicode" => all(1, is_text),
        "slice" => all(3, is_atom),
        "range" | "xrange" => all(3, is_int),
        "object" => args.is_empty(),
        _ => false,
    }
}

/// An object of a class, as protocols 0 and 1 make one: class, base, and what the base is given.
fn reconstructed(graph: Seen<'_>, args: &[ObjectId]) -> bool {
    let &[class, base, state] = args else { return false };
    let Some((module, name)) = graph.global(class) else { return false };
    let Some(("builtins" | "__builtin__", base)) = graph.global(base) else { return false };
    let known = libraries::is_object_class(module, name, base)
        || match module {
            "argparse" | "uuid" | "collections" => super::libraries::known(module, name).is_none(),
            _ => module.starts_with("paddle.distributed."),
        };
    let fits = match (base, graph.object(state)) {
        ("object", _) => state == ObjectId::NONE,
        ("dict", Object::Dict(pairs)) => {
            !libraries::is_object_class(module, name, "dict") || libraries::are_plain_keys(graph, pairs)
        }
        ("list", Object::List(_)) | ("tuple", Object::Tuple(_)) => true,
        ("int" | "long" | "float", _) => is_number(graph, state),
        ("str" | "unicode", _) => is_text(graph, state),
        _ => false,
    };
    // Of a class that is not allowed the import was found already.
    fits && (known || !matches!(super::allowed(module, name), super::ImportVerdict::Allowed(_)))
}

/// True for a state that sets attributes, none of them of Python's own machinery. Those that come later count too: the dict of
/// an object that is in it is changed behind the call, and has no fewer by that.
fn attributes(graph: Seen<'_>, state: ObjectId) -> bool {
    let graph = graph.graph;
    let set = |state: ObjectId| match graph.object(state) {
        Object::Dict(pairs) => pairs.iter().all(|&(key, _)| {
            graph.text(key).is_some_and(|key| !key.starts_with("__") || matches!(key, "__doc__" | "__name__"))
        }),
        Object::None => true,
        _ => false,
    };
    match graph.tuple(state) {
        // Those of the object, and those of slots.
        Some(&[state, slots]) => set(state) && set(slots),
        _ => set(state),
    }
}

/// What the object would be made by, where that is imported.
fn called<'a>(graph: Seen<'a>, id: ObjectId) -> Option<(&'a str, &'a str)> {
    graph.made(id).and_then(|made| graph.global(made.callable))
}

fn is_text(graph: Seen<'_>, id: ObjectId) -> bool {
    matches!(graph.object(id), Object::Text(_) | Object::ByteString(_))
}

/// True for bytes, as they are or as protocol 2 spells them.
fn is_bytes(graph: Seen<'_>, id: ObjectId) -> bool {
    match graph.object(id) {
        Object::Bytes(_) | Object::ByteArray(_) => true,
        Object::Reduced(_) => {
            called(graph, id) == Some(("_codecs", "encode"))
                || matches!(bytes_of(graph.graph, id, None), Ok(Some(_)))
        }
        _ => is_text(graph, id),
    }
}

fn is_latin1(graph: Seen<'_>, codec: ObjectId) -> bool {
    matches!(graph.text(codec), Some("latin1" | "latin-1" | "iso-8859-1"))
}

fn is_int(graph: Seen<'_>, id: ObjectId) -> bool {
    matches!(graph.object(id), Object::Int(_) | Object::Bool(_))
}

fn is_number(graph: Seen<'_>, id: ObjectId) -> bool {
    matches!(graph.object(id), Object::Int(_) | Object::Bool(_) | Object::BigInt(_) | Object::Float(_))
}

/// True for a value that holds no other.
fn is_atom(graph: Seen<'_>, id: ObjectId) -> bool {
    id == ObjectId::NONE || is_number(graph, id) || is_text(graph, id)
}

/// True for items that are written out.
fn is_container(graph: Seen<'_>, id: ObjectId) -> bool {
    matches!(
        graph.object(id),
        Object::List(_) | Object::Tuple(_) | Object::Set(_) | Object::FrozenSet(_) | Object::Dict(_)
    )
}

/// The numbers of a shape that is written out.
fn ints(graph: Seen<'_>, shape: ObjectId) -> Option<Vec<i64>> {
    graph.sequence(shape)?.iter().map(|&id| graph.int(id)).collect()
}

/// How many elements a shape has; `None` where it is no shape.
fn count(shape: &[i64]) -> Option<u64> {
    shape.iter().try_fold(1u64, |count, &extent| count.checked_mul(u64::try_from(extent).ok()?))
}
