//! Which objects are tensors: calls of the functions that torch rebuilds them with.

use super::composite::{self, Quantizer, Sparse};
use super::layout::{View, entry};
use super::saved::Saved;
use super::storage::{Class, Reference, dtype_of, reference};
use super::{CLASS, QUANTIZED, REQUIRES_GRAD};
use weighbridge_core::checkpoint::{Attributes, TensorEntry, TensorPath, Value};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::tensor::DType;
use weighbridge_core::text::escape;
use weighbridge_pickle::{Graph, Location, NdArray, ObjectId, Options};

/// More flags than these no tensor has; they are walked each time that it is met.
const MOST_FLAGS: usize = 64;
/// More states than these are given to no tensor.
const MOST_STATES: usize = 16;
/// Parameters of parameters and subclasses of subclasses are followed so far.
const DEEPEST: usize = 8;

/// What an object is, seen as a tensor.
enum Found<'a> {
    Tensor(Parts<'a>),
    /// The integers of a quantized tensor, their scheme, and what they mean.
    Quantized(Parts<'a>, &'a str, Quantizer),
    Sparse(Sparse),
    /// An array of numpy.
    Array,
    /// A tensor of a kind that has no place in the index; says which, in parts: it is put together only when it is told.
    Other([&'a str; 3]),
    /// A tensor by its call, but with arguments that no tensor has.
    Bad,
}

/// The arguments of a tensor's call.
struct Parts<'a> {
    reference: Reference<'a>,
    dtype: DType,
    offset: ObjectId,
    size: ObjectId,
    stride: ObjectId,
    requires_grad: bool,
    class: Option<(&'a str, &'a str)>,
}

/// True for a call that rebuilds a tensor of any kind.
pub fn is_tensor(graph: &Graph, id: ObjectId) -> bool {
    find(graph, id, 0).is_some()
}

/// True for a tensor that is no quantized, sparse or other one: it is one entry.
pub(super) fn is_dense(graph: &Graph, id: ObjectId) -> bool {
    matches!(find(graph, id, 0), Some(Found::Tensor(_)))
}

/// What the integers of a quantized tensor mean; `None` for any other object.
pub(super) fn quantizer(graph: &Graph, id: ObjectId) -> Option<Quantizer> {
    match find(graph, id, 0)? {
        Found::Quantized(_, _, quantizer) => Some(quantizer),
        _ => None,
    }
}

/// The sparse tensor that the object is.
pub(super) fn sparse(graph: &Graph, id: ObjectId) -> Option<Sparse> {
    match find(graph, id, 0)? {
        Found::Sparse(sparse) => Some(sparse),
        _ => None,
    }
}

pub(super) fn storage_key(graph: &Graph, id: ObjectId, options: &Options) -> Option<String> {
    match find(graph, id, 0)? {
        Found::Tensor(parts) | Found::Quantized(parts, ..) => Some(parts.reference.key.to_owned()),
        // Arrays may share their bytes, which stand in the pickle.
        Found::Array => match NdArray::of(graph, id, options).ok()??.payload?.place {
            Location::Source(span) => Some(format!("pickle {}", span.offset)),
            _ => Some(format!("object {}", id.index())),
        },
        _ => None,
    }
}

/// The tensor of an object: see [`Saved::tensor`].
pub(super) fn tensor(saved: &Saved, id: ObjectId, path: TensorPath) -> Result<Option<TensorEntry>> {
    let graph = saved.graph();
    let (parts, quantized) = match find(graph, id, 0) {
        None => return Ok(None),
        Some(Found::Tensor(parts)) => (parts, None),
        Some(Found::Quantized(parts, scheme, quantizer)) => (parts, Some((scheme, quantizer))),
        Some(Found::Array) => return array(saved, id, path).map(Some),
        Some(found) => {
            let error = match found {
                Found::Other(_) | Found::Sparse(_) => {
                    let kind =
                        if let Found::Other(kind) = found { kind.concat() } else { "sparse".to_owned() };
                    Error::unsupported("torch-tensor-kind", "tensors of this kind are not read")
                        .found(escape(&kind))
                }
                _ => Error::corrupt("torch-tensor", "no tensor is rebuilt from such arguments"),
            };
            let at = graph.made(id).map_or(0, |made| made.offset);
            return Err(error.in_file(saved.source.label()).on_tensor(&path).at(at));
        }
    };
    let place = |e: Error| {
        let at = graph.made(id).map_or(0, |made| made.offset);
        e.in_file(saved.source.label()).on_tensor(&path).at(at)
    };
    let view = view(saved, &parts).map_err(place)?;
    let mut entry = entry(&view, path.clone(), saved).map_err(place)?;
    saved.count_inflated(&view).map_err(place)?;
    if parts.requires_grad {
        entry.attributes.insert(REQUIRES_GRAD.to_owned(), Value::Bool(true));
    }
    if let Some((scheme, quantizer)) = quantized {
        entry.attributes.insert(QUANTIZED.to_owned(), Value::Text(scheme.to_owned()));
        if let Quantizer::Channel { axis, .. } = quantizer {
            entry.attributes.insert(Attributes::QUANTIZED_AXIS.to_owned(), Value::I64(axis));
        }
    }
    if let Some((module, name)) = parts.class {
        entry.attributes.insert(CLASS.to_owned(), Value::Text(format!("{module}.{name}")));
    }
    Ok(Some(entry))
}

/// The tensor of an array of numpy.
fn array(saved: &Saved, id: ObjectId, path: TensorPath) -> Result<TensorEntry> {
    let graph = saved.graph();
    let place = |e: Error| {
        let at = graph.made(id).map_or(0, |made| made.offset);
        e.in_file(saved.source().label()).on_tensor(&path).at(at)
    };
    let other = |what: String| {
        place(Error::unsupported("torch-tensor-kind", "tensors of this kind are not read").found(what))
    };
    let options = Options::with_limits(saved.limits.clone());
    let Some(array) = NdArray::of(graph, id, &options).map_err(place)? else {
        return Err(other("a numpy array of a class of its own".to_owned()));
    };
    let (Some(dtype), Some((source, offset, encoding))) =
        (array.dtype, array.elements(saved.source()).map_err(place)?)
    else {
        return Err(other(format!("a numpy array of {}", escape(&array.descr))));
    };
    let mut entry =
        TensorEntry::dense(path.clone(), dtype, array.shape, &source, offset, encoding).map_err(place)?;
    entry.attributes.insert(CLASS.to_owned(), Value::Text("numpy.ndarray".to_owned()));
    Ok(entry)
}

/// The attributes that Python code gave a tensor, which are none of torch's: see [`Saved::states`].
pub(super) fn states(graph: &Graph, mut id: ObjectId) -> Vec<ObjectId> {
    let mut states = Vec::new();
    if NdArray::is_one(graph, id) {
        // Its state is its elements.
        return states;
    }
    for _ in 0..=DEEPEST {
        states.extend(graph.made(id).map(|made| made.states.as_slice()).unwrap_or_default());
        let Some((mut callable, mut args)) = graph.call(id) else { break };
        let data = loop {
            match (callable, args) {
                (("torch._utils", "_rebuild_parameter"), &[data, ..]) => break Some(data),
                (
                    ("torch._utils", "_rebuild_parameter_with_state"),
                    &[data, _grad, _hooks, ref state @ ..],
                ) => {
                    states.extend(state);
                    break Some(data);
                }
                (
                    ("torch._tensor", "_rebuild_from_type" | "_rebuild_from_type_v2"),
                    &[function, _class, inner, state],
                ) if states.len() < DEEPEST * (MOST_STATES + 1) => {
                    states.push(state);
                    match (graph.global(function), graph.tuple(inner)) {
                        (Some(function), Some(inner)) => (callable, args) = (function, inner),
                        _ => break None,
                    }
                }
                _ => break None,
            }
        };
        match data {
            Some(data) => id = data,
            None => break,
        }
    }
    states.retain(|&state| state != ObjectId::NONE && !graph.pairs(state).is_some_and(<[_]>::is_empty));
    states
}

/// The numbers of a tensor.
fn view(saved: &Saved, parts: &Parts<'_>) -> Result<View> {
    let graph = saved.graph();
    let bad = || Error::corrupt("torch-tensor", "a number of the tensor is not a length");
    let number = |id: ObjectId| graph.int(id).and_then(|n| u64::try_from(n).ok()).ok_or_else(bad);
    let numbers = |id: ObjectId| -> Result<Vec<u64>> {
        weighbridge_core::limits::Limits::check(
            "dimensions",
            "dimensions",
            sequence(graph, id).map_or(0, <[_]>::len) as u64,
            saved.limits.dimensions,
        )?;
        sequence(graph, id).ok_or_else(bad)?.iter().map(|&n| number(n)).collect()
    };
    Ok(View {
        storage: saved.storage(&parts.reference)?,
        storage_elements: parts.reference.elements,
        storage_unit: parts.reference.class.element_size(parts.reference.class_name).unwrap_or(1),
        part: parts.reference.view,
        dtype: parts.dtype,
        offset: number(parts.offset)?,
        size: numbers(parts.size)?,
        stride: numbers(parts.stride)?,
    })
}

/// A tuple or list, or a `torch.Size` of one.
pub(super) fn sequence(graph: &Graph, id: ObjectId) -> Option<&[ObjectId]> {
    if let Some(items) = graph.sequence(id) {
        return Some(items);
    }
    match graph.call(id)? {
        (("torch", "Size"), &[items]) => graph.sequence(items),
        _ => None,
    }
}

/// What the object is; `None` where it is no call that makes a tensor.
fn find(graph: &Graph, id: ObjectId, depth: usize) -> Option<Found<'_>> {
    if NdArray::is_one(graph, id) {
        return Some(Found::Array);
    }
    let (callable, args) = graph.call(id)?;
    let found = made(graph, callable, args, depth)?;
    // One state is what an honest pickle gives; many tensors may share what has many.
    let many = graph.made(id).is_some_and(|made| made.states.len() > MOST_STATES);
    Some(if many { Found::Other(["a tensor that is given state again and again", "", ""]) } else { found })
}

fn made<'a>(
    graph: &'a Graph,
    (module, name): (&'a str, &'a str),
    args: &'a [ObjectId],
    depth: usize,
) -> Option<Found<'a>> {
    if depth > DEEPEST {
        return Some(Found::Other(["a tensor within a tensor, again and again", "", ""]));
    }
    match (module, name, args) {
        ("torch._utils", "_rebuild_tensor", &[storage, offset, size, stride]) => {
            Some(plain(graph, (storage, None), [offset, size, stride], None))
        }
        (
            "torch._utils",
            "_rebuild_tensor_v2",
            &[storage, offset, size, stride, grad, _hooks, ref rest @ ..],
        ) => Some(flagged(graph, rest, plain(graph, (storage, None), [offset, size, stride], Some(grad)))),
        (
            "torch._utils",
            "_rebuild_tensor_v3",
            &[storage, offset, size, stride, grad, _hooks, dtype, ref rest @ ..],
        ) => {
            let found = plain(graph, (storage, Some(dtype)), [offset, size, stride], Some(grad));
            Some(flagged(graph, rest, found))
        }
        (
            "torch._utils",
            "_rebuild_parameter" | "_rebuild_parameter_with_state",
            &[data, grad, _hooks, ..],
        ) => match find(graph, data, depth + 1) {
            Some(Found::Tensor(parts)) => {
                Some(Found::Tensor(Parts { requires_grad: graph.truth(grad) == Some(true), ..parts }))
            }
            Some(Found::Sparse(sparse)) => {
                Some(Found::Sparse(Sparse { requires_grad: graph.truth(grad) == Some(true), ..sparse }))
            }
            Some(other) => Some(other),
            None => Some(Found::Bad),
        },
        // A subclass: the call that makes the tensor, its arguments, and the class that it is given.
        (
            "torch._tensor",
            "_rebuild_from_type" | "_rebuild_from_type_v2",
            &[function, class, inner, _state],
        ) => {
            let found = made(graph, graph.global(function)?, graph.tuple(inner)?, depth + 1)?;
            Some(match (found, graph.global(class)) {
                (Found::Tensor(parts), class) => {
                    let own = class.filter(|class| *class != ("torch", "Tensor"));
                    Found::Tensor(Parts { class: own.or(parts.class), ..parts })
                }
                (other, _) => other,
            })
        }
        ("torch._utils", "_rebuild_qtensor", &[storage, offset, size, stride, parameters, _grad, _hooks]) => {
            Some(quantized(graph, storage, [offset, size, stride], parameters))
        }
        ("torch._utils", "_rebuild_sparse_tensor", &[layout, parts]) => {
            let unread = Found::Other(["sparse, of a layout that is not read", "", ""]);
            Some(composite::sparse(graph, layout, parts).map_or(unread, Found::Sparse))
        }
        ("torch._utils", name, _) if name.starts_with("_rebuild_") => {
            let usual = matches!(
                name,
                "_rebuild_tensor"
                    | "_rebuild_tensor_v2"
                    | "_rebuild_tensor_v3"
                    | "_rebuild_parameter"
                    | "_rebuild_parameter_with_state"
            );
            Some(if usual { Found::Bad } else { Found::Other([kind(name), "", ""]) })
        }
        _ => None,
    }
}

/// The integers of a quantized tensor.
fn quantized(
    graph: &Graph,
    storage: ObjectId,
    [offset, size, stride]: [ObjectId; 3],
    parameters: ObjectId,
) -> Found<'_> {
    let Some(reference) = reference(graph, graph.object(storage)) else { return Found::Bad };
    let Some((scheme, quantizer)) = composite::quantizer(graph, parameters) else {
        return Found::Other(["quantized, by a scheme that is not read", "", ""]);
    };
    let Some(dtype) = composite::integers(&reference) else {
        return Found::Other(["quantized, with elements of a ", reference.class_name, ""]);
    };
    let parts = Parts { reference, dtype, offset, size, stride, requires_grad: false, class: None };
    Found::Quantized(parts, scheme, quantizer)
}

/// The kind of tensor that a function of torch rebuilds.
fn kind(name: &str) -> &str {
    match name {
        "_rebuild_sparse_csr_tensor" => "sparse",
        "_rebuild_nested_tensor" => "nested",
        "_rebuild_meta_tensor_no_storage" => "on the meta device: it has no elements",
        name => name,
    }
}

/// A tensor with a storage; `dtype` where the storage does not say it.
fn plain(
    graph: &Graph,
    (storage, dtype): (ObjectId, Option<ObjectId>),
    [offset, size, stride]: [ObjectId; 3],
    grad: Option<ObjectId>,
) -> Found<'_> {
    let Some(reference) = reference(graph, graph.object(storage)) else { return Found::Bad };
    let dtype = match (dtype, reference.class) {
        (Some(dtype), _) => match (dtype_of(graph, dtype), graph.global(dtype)) {
            (Some(dtype), _) => dtype,
            (None, Some((module, name))) => return Found::Other([module, ".", name]),
            (None, None) => return Found::Bad,
        },
        (None, Class::Of(dtype)) => dtype,
        (None, _) => return Found::Other(["elements of a ", reference.class_name, ""]),
    };
    let requires_grad = grad.and_then(|id| graph.truth(id)) == Some(true);
    Found::Tensor(Parts { reference, dtype, offset, size, stride, requires_grad, class: None })
}

/// True where the flags, which follow the other arguments, say that the elements shall be seen conjugated or negated.
pub(super) fn is_flagged(graph: &Graph, rest: &[ObjectId]) -> bool {
    let Some(&flags) = rest.first() else { return false };
    match graph.pairs(flags) {
        Some(pairs) => {
            pairs.len() > MOST_FLAGS || pairs.iter().any(|&(_, value)| graph.truth(value) != Some(false))
        }
        None => flags != ObjectId::NONE,
    }
}

/// A tensor whose elements shall be seen conjugated or negated has others than its storage.
fn flagged<'a>(graph: &'a Graph, rest: &[ObjectId], found: Found<'a>) -> Found<'a> {
    match found {
        Found::Tensor(_) if is_flagged(graph, rest) => Found::Other(["a conjugated or negated view", "", ""]),
        found => found,
    }
}
