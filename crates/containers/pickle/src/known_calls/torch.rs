//! Call forms of PyTorch.

use super::snapshot::Snapshot;
use super::{MAX_INNER_ITEMS, attributes, called, count, ints, is_atom, is_int, is_number, is_text};
use crate::graph::{Graph, Object, ObjectId};
use std::collections::HashMap;

/// Returns true if the arguments have the form for that name.
pub(super) fn args_match(graph: Snapshot<'_>, module: &str, name: &str, args: &[ObjectId]) -> bool {
    match (module, name) {
        ("torch._utils", name) => rebuilt(graph, name, args),
        // They call the first argument with the third, and change the class of the result.
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
            [dims] => ints(graph, dims).is_some(),
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
        // Storages, tensors and dtypes are never called: a size argument would allocate memory.
        _ => false,
    }
}

/// Returns true if the arguments have the form for a function of `torch._utils` that rebuilds a tensor.
fn rebuilt(graph: Snapshot<'_>, name: &str, args: &[ObjectId]) -> bool {
    let view = |storage, offset, dims, strides| {
        is_storage(graph, storage)
            && is_int(graph, offset)
            && is_shape(graph, dims)
            && is_shape(graph, strides)
    };
    let kind = |id: ObjectId| graph.global(id).is_some_and(|(module, _)| module == "torch");
    let hooks = |id: ObjectId| is_hooks(graph, id);
    let device = |id: ObjectId| is_text(graph, id) || is_device(graph, id);
    let rest = |rest: &[ObjectId]| matches!(*rest, [] | [_]) && rest.iter().all(|&id| is_plain(graph, id));
    match (name, args) {
        ("_rebuild_tensor", &[storage, offset, dims, strides]) => view(storage, offset, dims, strides),
        ("_rebuild_tensor_v2", &[storage, offset, dims, strides, wanted, h, ref more @ ..]) => {
            view(storage, offset, dims, strides) && is_int(graph, wanted) && hooks(h) && rest(more)
        }
        ("_rebuild_tensor_v3", &[storage, offset, dims, strides, wanted, h, k, ref more @ ..]) => {
            view(storage, offset, dims, strides) && is_int(graph, wanted) && hooks(h) && kind(k) && rest(more)
        }
        // torch allocates this tensor before it sets the storage.
        ("_rebuild_qtensor", &[storage, offset, dims, strides, parameters, wanted, h]) => {
            view(storage, offset, dims, strides)
                && is_within(graph, storage, offset, dims, strides)
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
        ("_rebuild_meta_tensor_no_storage", &[k, dims, strides, wanted]) => {
            kind(k) && is_shape(graph, dims) && is_shape(graph, strides) && is_int(graph, wanted)
        }
        ("_rebuild_device_tensor_from_numpy", &[array, k, d, wanted]) => {
            let array = called(graph, array).is_some_and(|(module, _)| module.starts_with("numpy"));
            array && kind(k) && device(d) && is_int(graph, wanted)
        }
        // torch copies all elements to the device.
        ("_rebuild_device_tensor_from_cpu_tensor", &[tensor, k, d, wanted]) => {
            is_stored(graph, tensor) && kind(k) && device(d) && is_int(graph, wanted)
        }
        _ => false,
    }
}

/// Returns true for the state of a parameter in PyTorch before 0.4.
pub(super) fn old_state(graph: Snapshot<'_>, state: ObjectId) -> bool {
    graph.tuple(state).is_some_and(|all| all.iter().all(|&id| is_atom(graph, id) || is_hooks(graph, id)))
}

/// Returns true for a reference to a storage, or a storage loaded from bytes; the import of the latter is checked separately.
fn is_storage(graph: Snapshot<'_>, id: ObjectId) -> bool {
    matches!(graph.object(id), Object::PersistentId(_))
        || called(graph, id) == Some(("torch.storage", "_load_from_bytes"))
}

/// Number of elements of the storage behind a persistent id.
fn elements_of(graph: Snapshot<'_>, id: ObjectId) -> Option<u64> {
    let Object::PersistentId(id) = graph.object(id) else { return None };
    let &[_, _, _, _, elements, ..] = graph.tuple(*id)? else { return None };
    u64::try_from(graph.int(elements)?).ok()
}

/// Returns true for a tensor within its storage that has no more elements than it: a copy takes no more than the file has.
fn is_stored(graph: Snapshot<'_>, id: ObjectId) -> bool {
    let Some(made) = graph.made(id).filter(|_| is_tensor(graph, id)) else { return false };
    let Some(&[storage, offset, dims, strides, ..]) = graph.tuple(made.args) else { return false };
    is_within(graph, storage, offset, dims, strides)
}

/// Returns true for a view within its storage that has no more elements than it.
fn is_within(
    graph: Snapshot<'_>,
    storage: ObjectId,
    offset: ObjectId,
    dims: ObjectId,
    strides: ObjectId,
) -> bool {
    let end = || {
        let (dims, strides) = (ints(graph, dims)?, ints(graph, strides)?);
        let elements = count(&dims)?;
        let mut end = u64::try_from(graph.int(offset)?).ok()?;
        if dims.len() != strides.len() {
            return None;
        }
        if elements > 0 {
            end = end.checked_add(1)?;
            for (dim, stride) in dims.into_iter().zip(strides) {
                let steps = u64::try_from(dim).ok()?.checked_sub(1)?;
                end = end.checked_add(steps.checked_mul(u64::try_from(stride).ok()?)?)?;
            }
        }
        Some(end.max(elements))
    };
    end().zip(elements_of(graph, storage)).is_some_and(|(end, most)| end <= most)
}

/// Class and number of elements of a storage, as a persistent id states them.
type StorageClaim<'a> = (Option<(&'a str, &'a str)>, Option<i64>);

/// Claims about storages. PyTorch uses the first claim for all references, while some calls rely on their own claim.
#[derive(Default)]
pub(crate) struct Storages<'a> {
    known: HashMap<&'a str, StorageClaim<'a>>,
}

impl<'a> Storages<'a> {
    /// Records a reference to a storage; returns false if it contradicts an earlier one.
    pub(crate) fn agree(&mut self, graph: &'a Graph, id: ObjectId) -> bool {
        let Some(&[kind, class, key, _, elements, ..]) = graph.tuple(id) else { return true };
        if graph.text(kind) != Some("storage") {
            return true;
        }
        let Some(key) = graph.text(key) else { return false };
        let (class, elements) = (graph.global(class), graph.int(elements));
        let &mut (first, number) = self.known.entry(key).or_insert((class, elements));
        // An empty storage may have views of any class.
        number == elements && (first == class || elements == Some(0))
    }
}

fn is_tensor(graph: Snapshot<'_>, id: ObjectId) -> bool {
    called(graph, id)
        .is_some_and(|(module, _)| matches!(module, "torch._utils" | "torch._tensor" | "torch.nn.parameter"))
}

fn is_device(graph: Snapshot<'_>, id: ObjectId) -> bool {
    called(graph, id) == Some(("torch", "device"))
}

fn is_shape(graph: Snapshot<'_>, id: ObjectId) -> bool {
    ints(graph, id).is_some() || called(graph, id) == Some(("torch", "Size"))
}

fn is_hooks(graph: Snapshot<'_>, id: ObjectId) -> bool {
    id == ObjectId::NONE
        || matches!(graph.object(id), Object::Dict(_))
        || called(graph, id) == Some(("collections", "OrderedDict"))
}

fn is_plain(graph: Snapshot<'_>, id: ObjectId) -> bool {
    id == ObjectId::NONE || matches!(graph.object(id), Object::Dict(_))
}

/// Returns true for the parts of a sparse or quantized tensor.
fn is_parts(graph: Snapshot<'_>, parts: &[ObjectId]) -> bool {
    parts.len() <= MAX_INNER_ITEMS && parts.iter().all(|&id| is_part(graph, id))
}

fn is_part(graph: Snapshot<'_>, id: ObjectId) -> bool {
    is_number(graph, id)
        || is_plain(graph, id)
        || is_stored(graph, id)
        || is_shape(graph, id)
        || graph.global(id).is_some_and(|(module, _)| module == "torch")
}
