//! Detection of arrays in a pickle, and the location of their elements.

use super::structure::Form;
use weighbridge_core::checkpoint::TensorEntry;
use weighbridge_core::error::Result;
use weighbridge_core::tensor::{DType, Encoding, Shape};
use weighbridge_io::source::SourceRef;
use weighbridge_pickle::{Graph, NdArray, Object, ObjectId, Options, Reduced, lod_tensor};
use weighbridge_torch_archive as torch;

/// Array with the location of its elements.
#[derive(Debug, Clone)]
pub(super) struct Array {
    /// Type of the elements, as stored by numpy.
    pub(super) dtype: DType,
    /// Shape of the array.
    pub(super) shape: Shape,
    /// Source of the elements.
    pub(super) source: SourceRef,
    /// Offset of the first byte in `source`.
    pub(super) offset: u64,
    /// Byte order and element order.
    pub(super) encoding: Encoding,
    /// Object from which the array was made. Arrays that share it take almost no space in the file.
    pub(super) made_of: Option<ObjectId>,
}

/// Tensor view of an object.
#[derive(Debug)]
pub(super) enum Found {
    /// A tensor.
    Tensor(Form, Option<String>, Array),
    /// Array with an element type that tensors do not support; contains its description.
    Inert(String),
}

/// Returns the tensor that Paddle would make from the object, or `None` if it is not a tensor.
///
/// # Errors
/// Errors of [`NdArray::of`]; [`weighbridge_core::Kind::Corrupt`] if the elements are not in the file.
pub(super) fn find(
    graph: &Graph,
    id: ObjectId,
    source: &SourceRef,
    options: &Options,
) -> Result<Option<Found>> {
    let (form, name, array) = match named(graph, id) {
        Some((form, name, array)) => (form, Some(name), array),
        None => match lod_tensor(graph, id) {
            Some(array) => (Form::Lod, None, array),
            None => (Form::Array, None, id),
        },
    };
    let Some(found) = NdArray::of(graph, array, options)? else {
        let found = torch::pickled(graph, array, source, &options.limits)?;
        return Ok(found.and_then(|(entry, held)| of_torch(&entry, held)));
    };
    let made_of = graph.made(array).and_then(Reduced::state).or(Some(array));
    Ok(Some(match locate(&found, source, made_of)? {
        Some(array) => Found::Tensor(form, name.map(str::to_owned), array),
        None => Found::Inert(format!("numpy.ndarray of {}", found.descr)),
    }))
}

/// Converts a PyTorch tensor whose storage is in the object `held`.
fn of_torch(entry: &TensorEntry, held: ObjectId) -> Option<Found> {
    let extent = entry.single_extent()?;
    let array = Array {
        dtype: entry.stored,
        shape: entry.shape.clone(),
        source: extent.source.clone(),
        offset: extent.offset,
        encoding: extent.encoding,
        made_of: Some(held),
    };
    Some(Found::Tensor(Form::Array, None, array))
}

/// Returns a pair of a name and a possible array.
fn named(graph: &Graph, id: ObjectId) -> Option<(Form, &str, ObjectId)> {
    let (form, pair) = match graph.object(id) {
        Object::Tuple(_) => (Form::Pair, id),
        _ => match graph.call(id)? {
            (("builtins" | "__builtin__", "tuple"), &[pair]) => (Form::Tensor, pair),
            _ => return None,
        },
    };
    match graph.tuple(pair)? {
        &[name, array] => Some((form, graph.text(name)?, array)),
        _ => None,
    }
}

/// Locates the elements of an array; `None` if tensors do not support their type.
fn locate(array: &NdArray, source: &SourceRef, made_of: Option<ObjectId>) -> Result<Option<Array>> {
    let Some(dtype) = array.dtype else { return Ok(None) };
    let Some((source, offset, encoding)) = array.elements(source)? else { return Ok(None) };
    Ok(Some(Array { dtype, shape: array.shape.clone(), source, offset, encoding, made_of }))
}
