//! Recognition of tensors: calls of torch's rebuild functions.

use super::composite::{self, Quantizer, Sparse};
use super::layout::{View, entry};
use super::saved::Saved;
use super::storage::{Class, Reference, dtype_of, reference};
use super::{CLASS, QUANTIZED, REQUIRES_GRAD};
use weighbridge_core::ErrorCode;
use weighbridge_core::checkpoint::{Attributes, TensorEntry, TensorPath, Value};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::tensor::DType;
use weighbridge_core::text::escape;
use weighbridge_pickle::{Graph, Location, NdArray, ObjectId, Options};

/// Maximum number of flags of a tensor; they are walked at each visit.
const MAX_FLAGS: usize = 64;
/// Maximum number of states of a tensor.
const MAX_STATES: usize = 16;
/// Maximum depth of parameters in parameters and subclasses in subclasses.
const MAX_DEPTH: usize = 8;

/// Kind of tensor that an object is.
enum Found<'a> {
    Tensor(Parts<'a>),
    /// Integers of a quantized tensor, with scheme, scale and zero point.
    Quantized(Parts<'a>, &'a str, Quantizer),
    Sparse(Sparse),
    /// A numpy array.
    Array,
    /// An unsupported kind of tensor; its description is in parts, joined only for a message.
    Other([&'a str; 3]),
    /// A rebuild call with malformed arguments.
    Bad,
}

/// Arguments of a rebuild call.
struct Parts<'a> {
    reference: Reference<'a>,
    dtype: DType,
    offset: ObjectId,
    size: ObjectId,
    stride: ObjectId,
    requires_grad: bool,
    class: Option<(&'a str, &'a str)>,
}

/// Returns true for a call that rebuilds a tensor, also of an unsupported kind.
pub fn is_tensor(graph: &Graph, id: ObjectId) -> bool {
    find(graph, id, 0).is_some()
}

/// Returns true for a dense tensor, which is one index entry.
pub(super) fn is_dense(graph: &Graph, id: ObjectId) -> bool {
    matches!(find(graph, id, 0), Some(Found::Tensor(_)))
}

/// Returns scale and zero point of a quantized tensor; `None` for any other object.
pub(super) fn quantizer(graph: &Graph, id: ObjectId) -> Option<Quantizer> {
    match find(graph, id, 0)? {
        Found::Quantized(_, _, quantizer) => Some(quantizer),
        _ => None,
    }
}

/// Returns a sparse tensor; `None` for any other object.
pub(super) fn sparse(graph: &Graph, id: ObjectId) -> Option<Sparse> {
    match find(graph, id, 0)? {
        Found::Sparse(sparse) => Some(sparse),
        _ => None,
    }
}

pub(super) fn storage_key(graph: &Graph, id: ObjectId, options: &Options) -> Option<String> {
    match find(graph, id, 0)? {
        Found::Tensor(parts) | Found::Quantized(parts, ..) => Some(parts.reference.key.to_owned()),
        // Arrays may share their bytes, which are in the pickle.
        Found::Array => match NdArray::of(graph, id, options).ok()??.payload?.place {
            Location::Source(span) => Some(format!("pickle {}", span.offset)),
            _ => Some(format!("object {}", id.index())),
        },
        _ => None,
    }
}

/// Reads the tensor of an object; see [`Saved::tensor`].
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
                    Error::unsupported("torch-tensor-kind", "unsupported kind of tensor").found(escape(&kind))
                }
                _ => Error::corrupt("torch-tensor", "malformed arguments of the tensor"),
            };
            let at = graph.made(id).map_or(0, |made| made.offset);
            return Err(error.in_file(saved.source.label()).on_tensor(&path).at(at));
        }
    };
    let place = |e: Error| {
        let e = e.in_file(saved.source.label()).on_tensor(&path);
        // The offset is that of the tensor in the pickle, not of a missing storage.
        if e.code() == ErrorCode::TorchStorageMissing {
            return e;
        }
        e.at(graph.made(id).map_or(0, |made| made.offset))
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

/// Reads the tensor of a numpy array.
fn array(saved: &Saved, id: ObjectId, path: TensorPath) -> Result<TensorEntry> {
    let graph = saved.graph();
    let place = |e: Error| {
        let at = graph.made(id).map_or(0, |made| made.offset);
        e.in_file(saved.source().label()).on_tensor(&path).at(at)
    };
    let other = |what: String| {
        place(Error::unsupported("torch-tensor-kind", "unsupported kind of tensor").found(what))
    };
    let options = Options::with_limits(saved.limits.clone());
    let Some(array) = NdArray::of(graph, id, &options).map_err(place)? else {
        return Err(other("numpy array of a subclass".to_owned()));
    };
    let (Some(dtype), Some((source, offset, encoding))) =
        (array.dtype, array.elements(saved.source()).map_err(place)?)
    else {
        return Err(other(format!("numpy array of dtype {}", escape(&array.descr))));
    };
    let mut entry =
        TensorEntry::dense(path.clone(), dtype, array.shape, &source, offset, encoding).map_err(place)?;
    entry.attributes.insert(CLASS.to_owned(), Value::Text("numpy.ndarray".to_owned()));
    Ok(entry)
}

/// Attributes that Python code set on a tensor; see [`Saved::states`].
pub(super) fn states(graph: &Graph, mut id: ObjectId) -> Vec<ObjectId> {
    let mut states = Vec::new();
    if NdArray::is_one(graph, id) {
        // The state of an array is its elements.
        return states;
    }
    for _ in 0..=MAX_DEPTH {
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
                ) if states.len() < MAX_DEPTH * (MAX_STATES + 1) => {
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

/// Reads offset, shape and strides of a tensor.
fn view(saved: &Saved, parts: &Parts<'_>) -> Result<View> {
    let graph = saved.graph();
    let bad = || Error::corrupt("torch-tensor", "the offset, shape or strides are not non-negative integers");
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

/// Items of a tuple or list, or of a `torch.Size` of one.
pub(super) fn sequence(graph: &Graph, id: ObjectId) -> Option<&[ObjectId]> {
    if let Some(items) = graph.sequence(id) {
        return Some(items);
    }
    match graph.call(id)? {
        (("torch", "Size"), &[items]) => graph.sequence(items),
        _ => None,
    }
}

/// Recognizes a tensor; `None` for any other object.
fn find(graph: &Graph, id: ObjectId, depth: usize) -> Option<Found<'_>> {
    if NdArray::is_one(graph, id) {
        return Some(Found::Array);
    }
    let (callable, args) = graph.call(id)?;
    let found = made(graph, callable, args, depth)?;
    // Picklers write one state at most; many tensors may share one with many states.
    let many = graph.made(id).is_some_and(|made| made.states.len() > MAX_STATES);
    Some(if many { Found::Other(["too many states", "", ""]) } else { found })
}

fn made<'a>(
    graph: &'a Graph,
    (module, name): (&'a str, &'a str),
    args: &'a [ObjectId],
    depth: usize,
) -> Option<Found<'a>> {
    if depth > MAX_DEPTH {
        return Some(Found::Other(["nested too deeply", "", ""]));
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
        // A subclass: the rebuild function, its class, arguments and state.
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
            let unsupported = Found::Other(["sparse with an unsupported layout", "", ""]);
            Some(composite::sparse(graph, layout, parts).map_or(unsupported, Found::Sparse))
        }
        ("torch._utils", name, _) if name.starts_with("_rebuild_") => {
            let is_supported = matches!(
                name,
                "_rebuild_tensor"
                    | "_rebuild_tensor_v2"
                    | "_rebuild_tensor_v3"
                    | "_rebuild_parameter"
                    | "_rebuild_parameter_with_state"
            );
            Some(if is_supported { Found::Bad } else { Found::Other(kind(name)) })
        }
        _ => None,
    }
}

/// Recognizes a quantized tensor.
fn quantized(
    graph: &Graph,
    storage: ObjectId,
    [offset, size, stride]: [ObjectId; 3],
    parameters: ObjectId,
) -> Found<'_> {
    let Some(reference) = reference(graph, graph.object(storage)) else { return Found::Bad };
    let Some((scheme, quantizer)) = composite::quantizer(graph, parameters) else {
        return Found::Other(["quantized with an unsupported scheme", "", ""]);
    };
    let Some(dtype) = composite::integers(&reference) else {
        return Found::Other(["quantized in an unsupported ", reference.class_name, ""]);
    };
    let parts = Parts { reference, dtype, offset, size, stride, requires_grad: false, class: None };
    Found::Quantized(parts, scheme, quantizer)
}

/// Description of the tensor that an unsupported rebuild function makes.
fn kind(name: &str) -> [&str; 3] {
    match name {
        "_rebuild_sparse_csr_tensor" => ["sparse", "", ""],
        "_rebuild_nested_tensor" => ["nested", "", ""],
        "_rebuild_meta_tensor_no_storage" => ["on the meta device, without elements", "", ""],
        name => ["rebuilt by torch._utils.", name, ""],
    }
}

/// Recognizes a dense tensor; `dtype` is set if the storage is untyped.
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
        (None, _) => return Found::Other(["elements in an unsupported ", reference.class_name, ""]),
    };
    let requires_grad = grad.and_then(|id| graph.truth(id)) == Some(true);
    Found::Tensor(Parts { reference, dtype, offset, size, stride, requires_grad, class: None })
}

/// Returns true if the flags after the other arguments mark a conjugated or negated view.
pub(super) fn is_flagged(graph: &Graph, rest: &[ObjectId]) -> bool {
    let Some(&flags) = rest.first() else { return false };
    match graph.pairs(flags) {
        Some(pairs) => {
            pairs.len() > MAX_FLAGS || pairs.iter().any(|&(_, value)| graph.truth(value) != Some(false))
        }
        None => flags != ObjectId::NONE,
    }
}

/// Rejects a conjugated or negated view: its elements differ from those of its storage.
fn flagged<'a>(graph: &'a Graph, rest: &[ObjectId], found: Found<'a>) -> Found<'a> {
    match found {
        Found::Tensor(_) if is_flagged(graph, rest) => Found::Other(["conjugated or negated view", "", ""]),
        found => found,
    }
}
