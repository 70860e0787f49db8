//! Quantized and sparse tensors, several tensors in the index and one in torch, matched by attributes and names.

use std::collections::{HashMap, HashSet};
use weighbridge_core::checkpoint::{Attributes, Checkpoint, Loss, Name, TensorEntry, TensorPath, Value};
use weighbridge_core::error::Result;
use weighbridge_core::tensor::{DType, Order};
use weighbridge_pickle::ObjectId;
use weighbridge_torch_archive::{
    QUANTIZED, REQUIRES_GRAD, SPARSE_COALESCED, SPARSE_SIZE, Sparse, index_names,
};

/// Scale and zero point of a quantized tensor; tensors by their index.
pub(super) enum IndexedQuantizer {
    /// One scale and zero point for the whole tensor.
    Tensor { scale: f64, zero_point: i64 },
    /// Tensors of scales and zero points along a dimension.
    Channel { scale: usize, zero_point: usize, axis: i64 },
}

/// A composite tensor.
pub(super) enum Composite {
    /// A quantized tensor, represented by its integers.
    Quantized { scheme: String, quantizer: IndexedQuantizer },
    /// A sparse tensor, represented by its values. The objects of `sparse` are not made yet; `indices` holds the indexes of its
    /// index tensors.
    Sparse { name: String, sparse: Sparse, indices: Vec<usize> },
}

/// Composite tensors of a checkpoint.
#[derive(Default)]
pub(super) struct Composites {
    /// By the index of the representing tensor.
    pub(super) whole: HashMap<usize, Composite>,
    /// Indexes of their other parts.
    pub(super) parts: HashSet<usize>,
    /// Losses for incomplete composites.
    pub(super) losses: Vec<Loss>,
}

impl Composites {
    /// Finds the composite tensors of the checkpoint; `names` are the names in the output.
    ///
    /// # Errors
    /// Errors of reading a scale or zero point.
    pub(super) fn of(checkpoint: &Checkpoint, names: &[String]) -> Result<Self> {
        let mut all = Self::default();
        let is_of = |entry: &TensorEntry, key| entry.attributes.contains_key(key);
        if !checkpoint.tensors.iter().any(|t| is_of(t, QUANTIZED) || is_of(t, Attributes::SPARSE_LAYOUT)) {
            return Ok(all);
        }
        let places: HashMap<&TensorPath, usize> =
            checkpoint.tensors.iter().enumerate().map(|(place, entry)| (&entry.path, place)).collect();
        let taken: HashSet<&str> = names.iter().map(String::as_str).collect();
        for (place, (entry, name)) in checkpoint.tensors.iter().zip(names).enumerate() {
            let at = |base: &[Name], last: &str| {
                let parts = base.iter().cloned().chain([Name::from(last)]).collect::<Vec<_>>();
                let found = *places.get(&TensorPath::new(parts))?;
                Some((found, checkpoint.tensors.get(found)?))
            };
            if is_of(entry, QUANTIZED) {
                match quantized(entry, at)? {
                    Some((whole, parts)) => {
                        all.whole.insert(place, whole);
                        all.parts.extend(parts);
                    }
                    None => {
                        let detail =
                            "scale or zero point is missing or invalid: only the integers are written";
                        all.losses.push(Loss::new("parts-missing", entry.name(), detail));
                    }
                }
            }
            if is_of(entry, Attributes::SPARSE_LAYOUT) {
                let found = sparse(entry, name, at).filter(|(name, ..)| !taken.contains(name.as_str()));
                match found {
                    Some((name, sparse, indices)) => {
                        all.parts.extend(&indices);
                        all.whole.insert(place, Composite::Sparse { name, sparse, indices });
                    }
                    None => {
                        let detail = "the indices are missing or invalid: only the values are written";
                        all.losses.push(Loss::new("parts-missing", entry.name(), detail));
                    }
                }
            }
        }
        Ok(all)
    }
}

/// Finds the quantized tensor of these integers and the indexes of its other parts; `None` if they do not match.
fn quantized<'a>(
    entry: &TensorEntry,
    at: impl Fn(&[Name], &str) -> Option<(usize, &'a TensorEntry)>,
) -> Result<Option<(Composite, [usize; 2])>> {
    let Some(scheme) = entry.text_attribute(QUANTIZED) else { return Ok(None) };
    let base = entry.path.parts();
    let (Some((scale, scales)), Some((zero_point, zeros))) = (at(base, "scale"), at(base, "zero_point"))
    else {
        return Ok(None);
    };
    if !matches!(entry.dtype(), DType::I8 | DType::U8 | DType::I32) || entry.role.slot().is_some() {
        return Ok(None);
    }
    let quantizer = match (scheme, entry.attributes.get(Attributes::QUANTIZED_AXIS)) {
        ("per_tensor_affine", None) => match (number(scales)?, number(zeros)?) {
            (Some(Number::Float(scale)), Some(Number::Int(zero_point))) => {
                IndexedQuantizer::Tensor { scale, zero_point }
            }
            _ => return Ok(None),
        },
        ("per_channel_affine" | "per_channel_affine_float_qparams", Some(&Value::I64(axis))) => {
            let channels = usize::try_from(axis).ok().and_then(|axis| entry.shape.dims().get(axis));
            let fits = |part: &TensorEntry| part.shape.rank() == 1 && part.shape.dims().first() == channels;
            if !fits(scales) || !fits(zeros) || !scales.dtype().is_float() {
                return Ok(None);
            }
            IndexedQuantizer::Channel { scale, zero_point, axis }
        }
        _ => return Ok(None),
    };
    Ok(Some((Composite::Quantized { scheme: scheme.to_owned(), quantizer }, [scale, zero_point])))
}

/// Finds the sparse tensor of these values: its name, the tensor, and the indexes of its index tensors. `None` if they do not
/// match.
fn sparse<'a>(
    entry: &TensorEntry,
    name: &str,
    at: impl Fn(&[Name], &str) -> Option<(usize, &'a TensorEntry)>,
) -> Option<(String, Sparse, Vec<usize>)> {
    let (last, base) = entry.path.parts().split_last()?;
    let name = name.strip_suffix(".values").filter(|name| !name.is_empty())?;
    if last.as_str() != Some("values") || entry.role.slot().is_some() {
        return None;
    }
    let (layout, keys) = index_names(entry.text_attribute(Attributes::SPARSE_LAYOUT)?)?;
    let found: Vec<(usize, &TensorEntry)> = keys.iter().map(|key| at(base, key)).collect::<Option<_>>()?;
    let Value::List(size) = entry.attributes.get(SPARSE_SIZE)? else { return None };
    let dimension = |value: &Value| match value {
        Value::I64(dim) => u64::try_from(*dim).ok().map(|_| *dim),
        _ => None,
    };
    let size: Vec<i64> = size.iter().map(dimension).collect::<Option<_>>()?;
    let values = entry.shape.dims();
    let fits = match (layout, found.as_slice()) {
        ("coo", [(_, indices)]) => match *indices.shape.dims() {
            [sparse, count] => {
                let dense = values.split_first().map(|(first, rest)| (*first, rest.len() as u64));
                indices.dtype() == DType::I64
                    && dense.is_some_and(|(first, dense)| {
                        first == count && sparse.checked_add(dense) == Some(size.len() as u64)
                    })
            }
            _ => false,
        },
        // A batch of matrices has a batch of indices.
        (_, [(_, outer), (_, inner)]) => {
            let integers = |part: &TensorEntry| matches!(part.dtype(), DType::I32 | DType::I64);
            let rank = inner.shape.rank();
            integers(outer)
                && outer.dtype() == inner.dtype()
                && outer.shape.rank() == rank
                && rank > 0
                && values.get(..rank) == Some(inner.shape.dims())
        }
        _ => false,
    };
    if !fits {
        return None;
    }
    let is_true = |key| matches!(entry.attributes.get(key), Some(Value::Bool(true)));
    let sparse = Sparse {
        layout,
        indices: keys.iter().map(|&key| (key, ObjectId::NONE)).collect(),
        values: ObjectId::NONE,
        size,
        coalesced: (layout == "coo").then(|| is_true(SPARSE_COALESCED)),
        requires_grad: is_true(REQUIRES_GRAD),
    };
    Some((name.to_owned(), sparse, found.into_iter().map(|(place, _)| place).collect()))
}

/// Value of a tensor of one element.
enum Number {
    Float(f64),
    Int(i64),
}

/// Reads the element of a tensor of one element; `None` for other tensors, and for dtypes that no scale or zero point has.
fn number(entry: &TensorEntry) -> Result<Option<Number>> {
    if entry.elements() != 1 {
        return Ok(None);
    }
    let bytes = entry.read_tensor(Order::Row)?;
    let four = || bytes.as_slice().try_into().map(f32::from_le_bytes).ok();
    let two = || <[u8; 2]>::try_from(bytes.as_slice()).ok();
    Ok(match entry.dtype() {
        DType::F64 => bytes.as_slice().try_into().map(f64::from_le_bytes).ok().map(Number::Float),
        DType::F32 => four().map(|x| Number::Float(x.into())),
        DType::F16 => two().map(|x| Number::Float(weighbridge_core::tensor::f16::from_le_bytes(x).into())),
        DType::BF16 => two().map(|x| Number::Float(weighbridge_core::tensor::bf16::from_le_bytes(x).into())),
        DType::I64 => bytes.as_slice().try_into().map(i64::from_le_bytes).ok().map(Number::Int),
        DType::I32 => bytes.as_slice().try_into().map(i32::from_le_bytes).ok().map(|n| Number::Int(n.into())),
        _ => None,
    })
}
