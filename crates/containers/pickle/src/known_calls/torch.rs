//! The forms of PyTorch's calls.

use super::seen::Seen;
use super::{FEW, attributes, called, count, ints, is_atom, is_int, is_number, is_text};
use crate::graph::{Graph, Object, ObjectId};
use std::collections::HashMap;

pub(super) fn given(graph: Seen<'_>, module: &str, name: &str, args: &[ObjectId]) -> bool {
    match (module, name) {
        ("torch._utils", name) => rebuilt(graph, name, args),
        // They call the first argument with the third, and make another class of tensors of it.
        ("torch._tensor", _) => match *args {
            [function, class, args, state] => {
                let (Some(("torch._utils", name)), Some(args)) = (graph.global(function), graph.tuple(args))
                else {
                    return false;
                };
                rebuilt(graph, name, args) && graph.global(class).is_some() && attributes(graph, state)
            }
            _ => false,
        },
        ("torch", "Size") => match *args {
            [] => true,
            [extents] => ints(graph, extents).is_some(),
            _ => false,
        },
        ("torch", "device") => match *args {
            [kind, ref number @ ..] => {
                is_text(graph, kind) && number.len() <= 1 && number.iter().all(|&id| is_int(graph, id))
            }
            _ => false,
        },
        ("torch.nn.parameter", "UninitializedParameter") => args.iter().all(|&id| {
            is_atom(graph, id)
                || is_device(graph, id)
                || graph.global(id).is_some_and(|(module, _)| module == "torch")
        }),
        ("torch.nn.parameter", _) => match *args {
            [tensor, ref wanted @ ..] => {
                is_tensor(graph, tensor) && wanted.len() <= 1 && wanted.iter().all(|&id| is_int(graph, id))
            }
            _ => false,
        },
        ("torch.serialization", _) => matches!(*args, [layout] if is_text(graph, layout)),
        // Storages, tensors and types of numbers are not called: what has a size would be given one.
        _ => false,
    }
}

/// The functions that put tensors together.
fn rebuilt(graph: Seen<'_>, name: &str, args: &[ObjectId]) -> bool {
    let view = |storage, offset, extents, strides| {
        is_storage(graph, storage)
            && is_int(graph, offset)
            && is_shape(graph, extents)
            && is_shape(graph, strides)
    };
    let kind = |id: ObjectId| graph.global(id).is_some_and(|(module, _)| module == "torch");
    let hooks = |id: ObjectId| is_hooks(graph, id);
    let device = |id: ObjectId| is_text(graph, id) || is_device(graph, id);
    let rest = |rest: &[ObjectId]| matches!(*rest, [] | [_]) && rest.iter().all(|&id| is_plain(graph, id));
    match (name, args) {
        ("_rebuild_tensor", &[storage, offset, extents, strides]) => view(storage, offset, extents, strides),
        ("_rebuild_tensor_v2", &[storage, offset, extents, strides, wanted, h, ref more @ ..]) => {
            view(storage, offset, extents, strides) && is_int(graph, wanted) && hooks(h) && rest(more)
        }
        ("_rebuild_tensor_v3", &[storage, offset, extents, strides, wanted, h, k, ref more @ ..]) => {
            view(storage, offset, extents, strides)
                && is_int(graph, wanted)
                && hooks(h)
                && kind(k)
                && rest(more)
        }
        // It is made before it is given its storage.
        ("_rebuild_qtensor", &[storage, offset, extents, strides, parameters, wanted, h]) => {
            view(storage, offset, extents, strides)
                && is_within(graph, storage, offset, extents, strides)
                && graph.tuple(parameters).is_some_and(|all| is_parts(graph, all))
                && is_int(graph, wanted)
                && hooks(h)
        }
        ("_rebuild_parameter", &[tensor, wanted, h]) => {
            is_tensor(graph, tensor) && is_int(graph, wanted) && hooks(h)
        }
        ("_rebuild_parameter_with_state", &[tensor, wanted, h, state]) => {
            is_tensor(graph, tensor) && is_int(graph, wanted) && hooks(h) && attributes(graph, state)
        }
        ("_rebuild_sparse_tensor", &[layout, parts]) => {
            (kind(layout) || called(graph, layout) == Some(("torch.serialization", "_get_layout")))
                && graph.tuple(parts).is_some_and(|all| is_parts(graph, all))
        }
        ("_rebuild_nested_tensor", args) => args.iter().all(|&id| is_stored(graph, id)),
        ("_rebuild_meta_tensor_no_storage", &[k, extents, strides, wanted]) => {
            kind(k) && is_shape(graph, extents) && is_shape(graph, strides) && is_int(graph, wanted)
        }
        ("_rebuild_device_tensor_from_numpy", &[array, k, d, wanted]) => {
            let array = called(graph, array).is_some_and(|(module, _)| module.starts_with("numpy"));
            array && kind(k) && device(d) && is_int(graph, wanted)
        }
        // It is copied to the device, all its elements.
        ("_rebuild_device_tensor_from_cpu_tensor", &[tensor, k, d, wanted]) => {
            is_stored(graph, tensor) && kind(k) && device(d) && is_int(graph, wanted)
        }
        _ => false,
    }
}

/// True for the state of a parameter as PyTorch before 0.4 has it.
pub(super) fn old_state(graph: Seen<'_>, state: ObjectId) -> bool {
    graph.tuple(state).is_some_and(|all| all.iter().all(|&id| is_atom(graph, id) || is_hooks(graph, id)))
}

/// True for a reference to a storage, or for one that is loaded from bytes, which is found where it is imported.
fn is_storage(graph: Seen<'_>, id: ObjectId) -> bool {
    matches!(graph.object(id), Object::PersistentId(_))
        || called(graph, id) == Some(("torch.storage", "_load_from_bytes"))
}

/// The elements of a storage that is referred to.
fn elements_of(graph: Seen<'_>, id: ObjectId) -> Option<u64> {
    let Object::PersistentId(id) = graph.object(id) else { return None };
    let &[_, _, _, _, elements, ..] = graph.tuple(*id)? else { return None };
    u64::try_from(graph.int(elements)?).ok()
}

/// True for a tensor that lies within its storage, and has no more elements: who copies it makes no more than the file has.
fn is_stored(graph: Seen<'_>, id: ObjectId) -> bool {
    let Some(made) = graph.made(id).filter(|_| is_tensor(graph, id)) else { return false };
    let Some(&[storage, offset, extents, strides, ..]) = graph.tuple(made.args) else { return false };
    is_within(graph, storage, offset, extents, strides)
}

/// True for a view that lies within its storage, and has no more elements.
fn is_within(
    graph: Seen<'_>,
    storage: ObjectId,
    offset: ObjectId,
    extents: ObjectId,
    strides: ObjectId,
) -> bool {
    let end = || {
        let (extents, strides) = (ints(graph, extents)?, ints(graph, strides)?);
        let elements = count(&extents)?;
        let mut end = u64::try_from(graph.int(offset)?).ok()?;
        if extents.len() != strides.len() {
            return None;
        }
        if elements > 0 {
            end = end.checked_add(1)?;
            for (extent, stride) in extents.into_iter().zip(strides) {
                let steps = u64::try_from(extent).ok()?.checked_sub(1)?;
                end = end.checked_add(steps.checked_mul(u64::try_from(stride).ok()?)?)?;
            }
        }
        Some(end.max(elements))
    };
    end().zip(elements_of(graph, storage)).is_some_and(|(end, most)| end <= most)
}

/// The class and the number of elements.
type Said<'a> = (Option<(&'a str, &'a str)>, Option<i64>);

/// What is said of storages. PyTorch takes what is said first for all that follows, and some calls trust what was said to them.
#[derive(Default)]
pub(crate) struct Storages<'a> {
    known: HashMap<&'a str, Said<'a>>,
}

impl<'a> Storages<'a> {
    /// Takes in a reference to a storage; false where it says something else than one before.
    pub(crate) fn agree(&mut self, graph: &'a Graph, id: ObjectId) -> bool {
        let Some(&[kind, class, key, _, elements, ..]) = graph.tuple(id) else { return true };
        if graph.text(kind) != Some("storage") {
            return true;
        }
        let Some(key) = graph.text(key) else { return false };
        let (class, elements) = (graph.global(class), graph.int(elements));
        let &mut (first, number) = self.known.entry(key).or_insert((class, elements));
        // Of no bytes there may be views of any class.
        number == elements && (first == class || elements == Some(0))
    }
}

fn is_tensor(graph: Seen<'_>, id: ObjectId) -> bool {
    called(graph, id)
        .is_some_and(|(module, _)| matches!(module, "torch._utils" | "torch._tensor" | "torch.nn.parameter"))
}

fn is_device(graph: Seen<'_>, id: ObjectId) -> bool {
    called(graph, id) == Some(("torch", "device"))
}

fn is_shape(graph: Seen<'_>, id: ObjectId) -> bool {
    ints(graph, id).is_some() || called(graph, id) == Some(("torch", "Size"))
}

fn is_hooks(graph: Seen<'_>, id: ObjectId) -> bool {
    id == ObjectId::NONE
        || matches!(graph.object(id), Object::Dict(_))
        || called(graph, id) == Some(("collections", "OrderedDict"))
}

fn is_plain(graph: Seen<'_>, id: ObjectId) -> bool {
    id == ObjectId::NONE || matches!(graph.object(id), Object::Dict(_))
}

/// True for the parts of a sparse or quantized tensor.
fn is_parts(graph: Seen<'_>, parts: &[ObjectId]) -> bool {
    parts.len() <= FEW && parts.iter().all(|&id| is_part(graph, id))
}

fn is_part(graph: Seen<'_>, id: ObjectId) -> bool {
    is_number(graph, id)
        || is_plain(graph, id)
        || is_stored(graph, id)
        || is_shape(graph, id)
        || graph.global(id).is_some_and(|(module, _)| module == "torch")
}
