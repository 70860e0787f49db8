//! Call forms of allowed imports. Each name has one form: its arguments, its state, its items. Calls in any other form are
//! rejected, as are calls of a name without a form.
//!
//! The forms are closed because harmless parts combine to harmful ones: a state set on a function, a class whose object has a
//! method of its own, a dtype whose flags declare numbers as objects, a size instead of bytes. Every argument is a literal in
//! the pickle, or the result of a call that has a form itself.

mod copies;
mod libraries;
mod lod;
mod numpy;
mod snapshot;
mod torch;

pub(super) use copies::CopyBudget;
pub(super) use lod::EvalArguments;
pub(super) use numpy::element_size;
pub(super) use torch::Storages;

use super::graph::{Graph, Object, ObjectId, ReduceKind, Reduced};
use super::numpy::bytes_of;
use snapshot::Snapshot;

/// Maximum number of items checked in a nested container.
const MAX_INNER_ITEMS: usize = 16;

/// Returns true if the call of an allowed import, and the use of its result, have the known form.
pub(super) fn is_known_call(graph: &Graph, made: &Reduced, module: &str, name: &str) -> bool {
    // Computed arguments can be any object.
    let Some(args) = graph.tuple(made.args) else { return false };
    let named = made
        .kwargs
        .is_some_and(|named| !matches!(graph.object(named), Object::Dict(pairs) if pairs.is_empty()));
    let ([] | [_]) = made.states.as_slice() else { return false };
    if let Some(known) = super::libraries::known(module, name) {
        return !named
            && made.items.is_empty()
            && libraries::is_known_call(Snapshot::at(graph, made.offset), made, known, args);
    }
    let grows = matches!((module, name), ("collections", "deque") | ("builtins" | "__builtin__", "list"));
    let maps = matches!(
        (module, name),
        ("collections", "OrderedDict" | "Counter" | "defaultdict") | ("builtins" | "__builtin__", "dict")
    );
    !named
        && (grows || made.items.is_empty())
        && (maps || made.pairs.is_empty())
        && args_match(Snapshot::at(graph, made.offset), made.how, module, name, args)
        && match (module, name) {
            // Arguments and state of a dtype are checked together.
            ("numpy", "dtype") => numpy::is_type(Snapshot::at(graph, made.offset.max(made.built)), made),
            ("copyreg" | "copy_reg", _) => {
                let seen = Snapshot::at(graph, made.built);
                let class = args.first().and_then(|&class| graph.global(class));
                made.states.iter().all(|&state| match class {
                    Some((module, name)) if super::libraries::known(module, name).is_some() => {
                        let states = libraries::states_of(module, name);
                        states.chars().any(|kind| libraries::state_matches(seen, kind, state))
                    }
                    _ => attributes(seen, state),
                })
            }
            _ => {
                let seen = Snapshot::at(graph, made.built);
                made.states.iter().all(|&state| state_matches(seen, module, name, state))
            }
        }
}

/// Returns true if an import that is harmless in one pattern only is called in that pattern.
pub(super) fn in_pattern(graph: &Graph, made: &Reduced, module: &str, name: &str) -> bool {
    let seen = Snapshot::at(graph, made.offset);
    let alone = made.kwargs.is_none() && made.items.is_empty() && made.pairs.is_empty();
    alone
        && match (module, name) {
            ("builtins" | "__builtin__", "getattr") => libraries::is_known_method(seen, made),
            ("builtins" | "__builtin__", "type") => libraries::is_type_of_constant(seen, made),
            ("functools", "partial") => libraries::is_partial(seen, made),
            _ => false,
        }
}

/// Returns true for a call of the result of `getattr` in the form of time zones.
pub(super) fn is_zone(graph: &Graph, id: ObjectId) -> bool {
    graph.made(id).is_some_and(|made| libraries::is_zone_call(Snapshot::at(graph, made.offset), id))
}

/// Returns true if the arguments have the form for that name.
fn args_match(graph: Snapshot<'_>, how: ReduceKind, module: &str, name: &str, args: &[ObjectId]) -> bool {
    match module {
        "numpy.core._internal"
        | "numpy.core.multiarray"
        | "numpy._core.multiarray"
        | "numpy.core.numeric"
        | "numpy._core.numeric"
        | "numpy"
        | "ml_dtypes" => numpy::args_match(graph, name, args),
        "torch" | "torch._utils" | "torch._tensor" | "torch.nn.parameter" | "torch.serialization" => {
            torch::args_match(graph, module, name, args)
        }
        // Python 2 encodes the text with any codec, so the codec is checked.
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

/// Returns true if the state of the result of a call has the form for that name.
fn state_matches(graph: Snapshot<'_>, module: &str, name: &str, state: ObjectId) -> bool {
    match (module, name) {
        (module, "_reconstruct") if module.starts_with("numpy") => numpy::array_state(graph, state),
        ("collections", "OrderedDict") | ("argparse" | "uuid", _) => attributes(graph, state),
        (module, _) if module.starts_with("paddle.distributed.") => attributes(graph, state),
        ("torch.nn.parameter", "Parameter") => torch::old_state(graph, state),
        _ => false,
    }
}

fn collected(graph: Snapshot<'_>, name: &str, args: &[ObjectId]) -> bool {
    let filled = |id: ObjectId| is_container(graph, id);
    match (name, args) {
        (_, []) => true,
        ("OrderedDict" | "Counter", &[items]) => filled(items),
        // The factory is called for a missing key.
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

/// Built-in types of Python.
fn plain(graph: Snapshot<'_>, name: &str, args: &[ObjectId]) -> bool {
    let all = |most: usize, fits: fn(Snapshot<'_>, ObjectId) -> bool| {
        args.len() <= most && args.iter().all(|&id| fits(graph, id))
    };
    match name {
        // An integer argument asks for that many zero bytes, and a computed one can be an integer.
        "bytes" | "bytearray" => match *args {
            [] => true,
            [bytes] => is_bytes(graph, bytes),
            [text, codec] => is_text(graph, text) && is_latin1(graph, codec),
            _ => false,
        },
        // A computed iterable such as a range can yield any number of items.
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

/// Arguments of `_reconstructor` in protocols 0 and 1: class, base, and state of the base.
fn reconstructed(graph: Snapshot<'_>, args: &[ObjectId]) -> bool {
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
    // The import of a class that is not allowed is reported already.
    fits && (known || !matches!(super::allowed(module, name), super::ImportVerdict::Allowed(_)))
}

/// Returns true for a state that sets attributes without dunder names. Attributes that are added after the call count too, as
/// for the dict of an object that contains itself.
fn attributes(graph: Snapshot<'_>, state: ObjectId) -> bool {
    let graph = graph.graph;
    let set = |state: ObjectId| match graph.object(state) {
        Object::Dict(pairs) => pairs.iter().all(|&(key, _)| {
            graph.text(key).is_some_and(|key| !key.starts_with("__") || matches!(key, "__doc__" | "__name__"))
        }),
        Object::None => true,
        _ => false,
    };
    match graph.tuple(state) {
        // Attributes of the object, and of its slots.
        Some(&[state, slots]) => set(state) && set(slots),
        _ => set(state),
    }
}

/// Callable that makes the object, if imported.
fn called<'a>(graph: Snapshot<'a>, id: ObjectId) -> Option<(&'a str, &'a str)> {
    graph.made(id).and_then(|made| graph.global(made.callable))
}

fn is_text(graph: Snapshot<'_>, id: ObjectId) -> bool {
    matches!(graph.object(id), Object::Text(_) | Object::ByteString(_))
}

/// Returns true for bytes, also in the text encoding of protocol 2.
fn is_bytes(graph: Snapshot<'_>, id: ObjectId) -> bool {
    match graph.object(id) {
        Object::Bytes(_) | Object::ByteArray(_) => true,
        Object::Reduced(_) => {
            called(graph, id) == Some(("_codecs", "encode"))
                || matches!(bytes_of(graph.graph, id, None), Ok(Some(_)))
        }
        _ => is_text(graph, id),
    }
}

fn is_latin1(graph: Snapshot<'_>, codec: ObjectId) -> bool {
    matches!(graph.text(codec), Some("latin1" | "latin-1" | "iso-8859-1"))
}

fn is_int(graph: Snapshot<'_>, id: ObjectId) -> bool {
    matches!(graph.object(id), Object::Int(_) | Object::Bool(_))
}

fn is_number(graph: Snapshot<'_>, id: ObjectId) -> bool {
    matches!(graph.object(id), Object::Int(_) | Object::Bool(_) | Object::BigInt(_) | Object::Float(_))
}

/// Returns true for a value without items.
fn is_atom(graph: Snapshot<'_>, id: ObjectId) -> bool {
    id == ObjectId::NONE || is_number(graph, id) || is_text(graph, id)
}

/// Returns true for a literal container.
fn is_container(graph: Snapshot<'_>, id: ObjectId) -> bool {
    matches!(
        graph.object(id),
        Object::List(_) | Object::Tuple(_) | Object::Set(_) | Object::FrozenSet(_) | Object::Dict(_)
    )
}

/// Numbers of a literal shape.
fn ints(graph: Snapshot<'_>, shape: ObjectId) -> Option<Vec<i64>> {
    graph.sequence(shape)?.iter().map(|&id| graph.int(id)).collect()
}

/// Number of elements of a shape; `None` if it is not a valid shape.
fn count(shape: &[i64]) -> Option<u64> {
    shape.iter().try_fold(1u64, |count, &dim| count.checked_mul(u64::try_from(dim).ok()?))
}
