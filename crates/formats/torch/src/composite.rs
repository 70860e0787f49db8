//! Tensors of the index that torch holds as one: quantized and sparse ones, known by their attributes and names.

use std::collections::{HashMap, HashSet};
use weighbridge_core::checkpoint::{Attributes, Checkpoint, Loss, Name, TensorEntry, TensorPath, Value};
use weighbridge_core::error::Result;
use weighbridge_core::tensor::{DType, Order};
use weighbridge_pickle::ObjectId;
use weighbridge_torch_archive::{
    QUANTIZED, REQUIRES_GRAD, SPARSE_COALESCED, SPARSE_SIZE, Sparse, index_names,
};

/// What the integers of a quantized tensor mean; the tensors by their places.
pub(super) enum Meaning {
    /// One scale and zero point.
    Tensor { scale: f64, zero_point: i64 },
    /// The tensors of scales and zero points along a dimension.
    Channel { scale: usize, zero_point: usize, axis: i64 },
}

/// A tensor that is written as one.
pub(super) enum Whole {
    /// Its integers stand for it.
    Quantized { scheme: String, quantizer: Meaning },
    /// Its values stand for it, under the name of both. The objects of `sparse` are not yet known, but the places of its
    /// `indices` are.
    Sparse { name: String, sparse: Sparse, indices: Vec<usize> },
}

/// The tensors that are written as one.
#[derive(Default)]
pub(super) struct Composites {
    /// By the place of the tensor that stands for it.
    pub(super) whole: HashMap<usize, Whole>,
    /// The places of their other parts.
    pub(super) parts: HashSet<usize>,
    /// Those that are not whole any more.
    pub(super) losses: Vec<Loss>,
}

impl Composites {
    /// Those of the checkpoint, whose tensors are written under `names`.
    ///
    /// # Errors
    /// What reading a scale or zero point says.
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
                            "its scale or zero point is gone or does not fit: its integers are written";
                        all.losses.push(Loss::new("parts-missing", entry.name(), detail));
                    }
                }
            }
            if is_of(entry, Attributes::SPARSE_LAYOUT) {
                let found = sparse(entry, name, at).filter(|(name, ..)| !taken.contains(name.as_str()));
                match found {
                    Some((name, sparse, indices)) => {
                        all.parts.extend(&indices);
                        all.whole.insert(place, Whole::Sparse { name, sparse, indices });
                    }
                    None => {
                        let detail = "its indices are gone or do not fit: its values are written alone";
                        all.losses.push(Loss::new("parts-missing", entry.name(), detail));
                    }
                }
            }
        }
        Ok(all)
    }
}

/// The quantized tensor of these integers, and the places of its other parts; `None` where they do not fit.
fn quantized<'a>(
    entry: &TensorEntry,
    at: impl Fn(&[Name], &str) -> Option<(usize, &'a TensorEntry)>,
) -> Result<Option<(Whole, [usize; 2])>> {
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
                Meaning::Tensor { scale, zero_point }
            }
            _ => return Ok(None),
        },
        ("per_channel_affine" | "per_channel_affine_float_qparams", Some(&Value::I64(axis))) => {
            let channels = usize::try_from(axis).ok().and_then(|axis| entry.shape.dims().get(axis));
            let fits = |part: &TensorEntry| part.shape.rank() == 1 && part.shape.dims().first() == channels;
            if !fits(scales) || !fits(zeros) || !scales.dtype().is_float() {
                return Ok(None);
            }
            Meaning::Channel { scale, zero_point, axis }
        }
        _ => return Ok(None),
    };
    Ok(Some((Whole::Quantized { scheme: scheme.to_owned(), quantizer }, [scale, zero_point])))
}

/// The sparse tensor of these values: its name, it, and the places of its indices. `None` where they do not fit.
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
    let extent = |value: &Value| match value {
        Value::I64(extent) => u64::try_from(*extent).ok().map(|_| *extent),
        _ => None,
    };
    let size: Vec<i64> = size.iter().map(extent).collect::<Option<_>>()?;
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

/// A number of a tensor of one element.
enum Number {
    Float(f64),
    Int(i64),
}

/// The only element of a tensor; `None` where there are others, and for types that no scale or zero point has.
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
