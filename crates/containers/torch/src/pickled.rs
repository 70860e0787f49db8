//! Tensors in a plain pickle from `pickle.dumps`: each holds its storage as a file in the legacy form.

use super::layout::{View, entry};
use super::legacy;
use super::rebuild::{is_flagged, sequence};
use super::saved::Saved;
use super::storage::{Class, reference};
use std::sync::Arc;
use weighbridge_core::checkpoint::{Extent, TensorEntry, TensorPath};
use weighbridge_core::error::{Error, Kind, Result};
use weighbridge_core::limits::Limits;
use weighbridge_io::source::{MemorySource, RangeSource, SourceRef};
use weighbridge_pickle::{Graph, Location, ObjectId, Stored, bytes_of};

/// Reads a tensor of a plain pickle; returns it with the object that holds its storage. `None` for other objects, for sparse,
/// quantized and other special tensors, and for a storage that is encoded as text. `source` is the source of the pickle.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`] for a damaged storage, or a tensor that exceeds it; [`weighbridge_core::Kind::Limit`].
pub fn pickled(
    graph: &Graph,
    id: ObjectId,
    source: &SourceRef,
    limits: &Limits,
) -> Result<Option<(TensorEntry, ObjectId)>> {
    let Some(call) = graph.call(id) else { return Ok(None) };
    let call = match call {
        (("torch._utils", "_rebuild_parameter"), &[data, ..]) => graph.call(data),
        call => Some(call),
    };
    let (storage, [offset, size, stride], rest) = match call {
        Some((
            ("torch._utils", "_rebuild_tensor_v2"),
            &[storage, offset, size, stride, _grad, _hooks, ref rest @ ..],
        )) => (storage, [offset, size, stride], rest),
        Some((("torch._utils", "_rebuild_tensor"), &[storage, offset, size, stride])) => {
            (storage, [offset, size, stride], &[][..])
        }
        _ => return Ok(None),
    };
    let Some((("torch.storage", "_load_from_bytes"), &[held])) = graph.call(storage) else { return Ok(None) };
    if is_flagged(graph, rest) {
        return Ok(None);
    }
    let Some(bytes) = bytes_of(graph, held, None)? else { return Ok(None) };
    let (nested, start): (SourceRef, Option<u64>) = match (bytes.place, &bytes.short) {
        (Location::Source(span), _) if span.stored == Stored::Raw => {
            (Arc::new(RangeSource::new(source.clone(), span.offset, span.len)?), Some(span.offset))
        }
        (_, Some(short)) => (Arc::new(MemorySource::new(source.label(), short.to_vec())), None),
        _ => return Ok(None),
    };
    let saved = match Saved::of_legacy(&nested, limits, legacy::read) {
        Err(error) if error.kind() == Kind::Unsupported => return Ok(None),
        saved => saved?,
    };
    let inner = saved.graph();
    let Some(found) = reference(inner, inner.object(saved.root())) else { return Ok(None) };
    let Class::Of(dtype) = found.class else { return Ok(None) };
    let bad = || Error::corrupt("torch-tensor", "the offset, shape or strides are not non-negative integers");
    let number = |id: ObjectId| graph.int(id).and_then(|n| u64::try_from(n).ok()).ok_or_else(bad);
    let numbers = |id: ObjectId| -> Result<Vec<u64>> {
        let all = sequence(graph, id).ok_or_else(bad)?;
        Limits::check("dimensions", "dimensions", all.len() as u64, limits.dimensions)?;
        all.iter().map(|&n| number(n)).collect()
    };
    let view = View {
        storage: saved.storage(&found)?,
        storage_elements: found.elements,
        storage_unit: found.class.element_size(found.class_name).unwrap_or(1),
        part: found.view,
        dtype,
        offset: number(offset)?,
        size: numbers(size)?,
        stride: numbers(stride)?,
    };
    let mut entry = entry(&view, TensorPath::value(), &saved)?;
    if entry.bytes() > nested.len() {
        // Many tensors could each repeat their elements.
        return Ok(None);
    }
    if let Some(start) = start {
        let moved = |extent: &mut Extent| {
            if Arc::ptr_eq(&extent.source, &nested) {
                extent.source = source.clone();
                extent.offset += start;
            }
        };
        entry.extents.iter_mut().for_each(moved);
    }
    Ok(Some((entry, held)))
}
