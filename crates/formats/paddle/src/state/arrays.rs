//! Arrays in a pickle: which objects are tensors, and where their elements are.

use super::structure::Form;
use weighbridge_core::checkpoint::TensorEntry;
use weighbridge_core::error::Result;
use weighbridge_core::tensor::{DType, Encoding, Shape};
use weighbridge_io::source::SourceRef;
use weighbridge_pickle::{Graph, NdArray, Object, ObjectId, Options, Reduced, lod_tensor};
use weighbridge_torch_archive as torch;

/// The elements of an array.
#[derive(Debug, Clone)]
pub(super) struct Array {
    /// Their type, as numpy has it.
    pub(super) dtype: DType,
    /// The extents.
    pub(super) shape: Shape,
    /// What holds them.
    pub(super) source: SourceRef,
    /// Offset of the first byte in `source`.
    pub(super) offset: u64,
    /// How they lie there.
    pub(super) encoding: Encoding,
    /// What the array was made of: arrays that share it cost the file next to nothing.
    pub(super) made_of: Option<ObjectId>,
}

/// What an object is, seen as a tensor.
#[derive(Debug)]
pub(super) enum Found {
    /// A tensor.
    Tensor(Form, Option<String>, Array),
    /// An array of what no tensor holds; says what.
    Inert(String),
}

/// The tensor that the object would become when Paddle loads it; `None` where it is none.
///
/// # Errors
/// What [`NdArray::of`] says; [`weighbridge_core::Kind::Corrupt`] where the elements are not in the file.
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

/// A tensor of PyTorch, whose storage the object `held` has.
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

/// A pair of a name and what may be an array.
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

/// Where the elements of an array are; `None` where no tensor can hold them.
fn locate(array: &NdArray, source: &SourceRef, made_of: Option<ObjectId>) -> Result<Option<Array>> {
    let Some(dtype) = array.dtype else { return Ok(None) };
    let Some((source, offset, encoding)) = array.elements(source)? else { return Ok(None) };
    Ok(Some(Array { dtype, shape: array.shape.clone(), source, offset, encoding, made_of }))
}
