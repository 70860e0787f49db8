//! Quantized and sparse tensors, which consist of several tensors.

use super::rebuild::{self, sequence};
use super::storage::Reference;
use weighbridge_core::tensor::DType;
use weighbridge_pickle::{Graph, Object, ObjectId};

/// Scale and zero point of a quantized tensor.
#[derive(Debug, Clone, Copy)]
pub enum Quantizer {
    /// One scale and zero point for the whole tensor.
    Tensor {
        /// The scale.
        scale: f64,
        /// The zero point.
        zero_point: i64,
    },
    /// One scale and zero point per index of a dimension, as tensors.
    Channel {
        /// The tensor of the scales.
        scales: ObjectId,
        /// The tensor of the zero points.
        zero_points: ObjectId,
        /// The dimension.
        axis: i64,
    },
}

/// A sparse tensor.
#[derive(Debug, Clone)]
pub struct Sparse {
    /// `coo`, `csr`, `csc`, `bsr` or `bsc`.
    pub layout: &'static str,
    /// The tensors of indices, each with its name.
    pub indices: Vec<(&'static str, ObjectId)>,
    /// The tensor of values.
    pub values: ObjectId,
    /// The shape.
    pub size: Vec<i64>,
    /// For layout `coo`: true if the indices are unique and sorted.
    pub coalesced: Option<bool>,
    /// True for a trainable parameter.
    pub requires_grad: bool,
}

/// Returns the names of the index tensors of a layout, outer ones first.
pub fn index_names(layout: &str) -> Option<(&'static str, &'static [&'static str])> {
    Some(match layout {
        "coo" => ("coo", &["indices"]),
        "csr" => ("csr", &["crow_indices", "col_indices"]),
        "bsr" => ("bsr", &["crow_indices", "col_indices"]),
        "csc" => ("csc", &["ccol_indices", "row_indices"]),
        "bsc" => ("bsc", &["ccol_indices", "row_indices"]),
        _ => return None,
    })
}

/// Returns the integer type of a quantized storage; `None` for packed integers.
pub(super) fn integers(reference: &Reference<'_>) -> Option<DType> {
    Some(match reference.class_name {
        "QInt8Storage" => DType::I8,
        "QUInt8Storage" => DType::U8,
        "QInt32Storage" => DType::I32,
        _ => return None,
    })
}

/// Returns the storage class for quantized tensors of that integer type.
pub(super) fn storage_of(dtype: DType) -> Option<&'static str> {
    Some(match dtype {
        DType::I8 => "QInt8Storage",
        DType::U8 => "QUInt8Storage",
        DType::I32 => "QInt32Storage",
        _ => return None,
    })
}

/// Reads the scheme and the quantizer from the parameters of `_rebuild_qtensor`.
pub(super) fn quantizer(graph: &Graph, parameters: ObjectId) -> Option<(&str, Quantizer)> {
    let (&scheme, rest) = graph.tuple(parameters)?.split_first()?;
    let ("torch", scheme) = graph.global(scheme)? else { return None };
    let quantizer = match (scheme, rest) {
        ("per_tensor_affine", &[scale, zero_point]) => {
            let scale = match graph.object(scale) {
                Object::Float(scale) => *scale,
                _ => return None,
            };
            Quantizer::Tensor { scale, zero_point: graph.int(zero_point)? }
        }
        ("per_channel_affine" | "per_channel_affine_float_qparams", &[scales, zero_points, axis]) => {
            let dense = |id| rebuild::is_dense(graph, id);
            if !dense(scales) || !dense(zero_points) {
                return None;
            }
            Quantizer::Channel { scales, zero_points, axis: graph.int(axis)? }
        }
        _ => return None,
    };
    Some((scheme, quantizer))
}

/// Reads the sparse tensor from the arguments of `_rebuild_sparse_tensor`.
pub(super) fn sparse(graph: &Graph, layout: ObjectId, parts: ObjectId) -> Option<Sparse> {
    let name = match (graph.global(layout), graph.call(layout)) {
        (Some(("torch", name)), _) => name,
        (_, Some((("torch.serialization", "_get_layout"), &[name]))) => {
            graph.text(name)?.strip_prefix("torch.")?
        }
        _ => return None,
    };
    let (layout, names) = index_names(name.strip_prefix("sparse_")?)?;
    let (indices, rest) = graph.tuple(parts)?.split_at_checked(names.len())?;
    let (values, size, coalesced) = match (layout, rest) {
        ("coo", &[values, size, ref coalesced @ ..]) if coalesced.len() < 2 => {
            (values, size, Some(coalesced.first().and_then(|&id| graph.truth(id)) == Some(true)))
        }
        (_, &[values, size]) => (values, size, None),
        _ => return None,
    };
    if !indices.iter().chain([&values]).all(|&id| rebuild::is_dense(graph, id)) {
        return None;
    }
    let size = sequence(graph, size)?.iter().map(|&dim| graph.int(dim)).collect::<Option<Vec<i64>>>()?;
    let indices = names.iter().copied().zip(indices.iter().copied()).collect();
    Some(Sparse { layout, indices, values, size, coalesced, requires_grad: false })
}
