//! Dtypes and dimensions of the results of nodes.
//!
//! The rules are those of the operators of ONNX. A result whose dimensions depend on elements that are not known is open.

use super::builder::{Attrs, Dims, Value};
use crate::dtype;
use crate::model::{Attr, Dim};
use weighbridge_core::tensor::DType;

/// Type of a result.
#[derive(Debug, Clone)]
pub(super) struct Inferred {
    /// Dtype of the elements.
    pub(super) dtype: DType,
    /// Dimensions; `None` if the rank is unknown.
    pub(super) dims: Dims,
    /// True for a list of tensors.
    pub(super) is_sequence: bool,
}

impl Inferred {
    /// Creates the type of a tensor.
    pub(super) fn new(dtype: DType, dims: Dims) -> Self {
        Self { dtype, dims, is_sequence: false }
    }

    /// Creates the type of a tensor with a number of open dimensions.
    pub(super) fn open(dtype: DType, rank: usize) -> Self {
        Self::new(dtype, Some(vec![Dim::Open; rank]))
    }
}

/// Attributes with defaults.
pub(super) struct Read<'a>(pub(super) &'a Attrs);

impl Read<'_> {
    fn get(&self, name: &str) -> Option<&Attr> {
        self.0.iter().find(|(own, _)| *own == name).map(|(_, value)| value)
    }

    pub(super) fn int(&self, name: &str, default: i64) -> i64 {
        match self.get(name) {
            Some(Attr::Int(value)) => *value,
            _ => default,
        }
    }

    pub(super) fn ints(&self, name: &str) -> Option<&[i64]> {
        match self.get(name) {
            Some(Attr::Ints(values)) => Some(values),
            _ => None,
        }
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        match self.get(name) {
            Some(Attr::Text(text)) => Some(text),
            _ => None,
        }
    }

    pub(super) fn tensor(&self, name: &str) -> Option<&crate::constant::Constant> {
        match self.get(name) {
            Some(Attr::Tensor(tensor)) => Some(tensor),
            _ => None,
        }
    }
}

/// Returns an axis counted from the front.
pub(super) fn front(axis: i64, rank: usize) -> Option<usize> {
    let rank = i64::try_from(rank).ok()?;
    usize::try_from(if axis < 0 { axis + rank } else { axis }).ok()
}

/// Returns the dimensions of a broadcast of several shapes.
pub(super) fn broadcast<'a>(shapes: impl IntoIterator<Item = &'a Dims>) -> Dims {
    let mut out: Vec<Dim> = Vec::new();
    for shape in shapes {
        let shape = shape.as_ref()?;
        while out.len() < shape.len() {
            out.insert(0, Dim::Size(1));
        }
        let skip = out.len() - shape.len();
        for (own, other) in out[skip..].iter_mut().zip(shape) {
            *own = match (&*own, other) {
                (Dim::Size(1), other) => other.clone(),
                (one, Dim::Size(1)) => one.clone(),
                (Dim::Size(size), _) | (_, Dim::Size(size)) => Dim::Size(*size),
                (one, other) if one == other => one.clone(),
                _ => Dim::Open,
            };
        }
    }
    Some(out)
}

/// Returns the product of dimensions, if known.
fn product(dims: &[Dim]) -> Dim {
    let sizes: Option<Vec<i64>> = dims.iter().map(Dim::size).collect();
    match (sizes, dims) {
        (Some(sizes), _) => {
            sizes.iter().try_fold(1i64, |p, s| p.checked_mul(*s)).map_or(Dim::Open, Dim::Size)
        }
        (None, [one]) => one.clone(),
        _ => Dim::Open,
    }
}

fn constant_ints(value: Option<&&Value>) -> Option<Vec<i64>> {
    value.and_then(|value| value.constant.as_ref()).and_then(|c| c.as_ints().map(<[i64]>::to_vec))
}

/// Returns the types of the results of a node.
pub(super) fn infer(kind: &str, inputs: &[&Value], attributes: &Attrs, results: usize) -> Vec<Inferred> {
    let read = Read(attributes);
    let none = Value::none();
    let first: &Value = inputs.first().copied().unwrap_or(&none);
    let (dtype, dims) = (first.dtype, first.dims.clone());
    let one = |dtype: DType, dims: Dims| vec![Inferred::new(dtype, dims)];
    let mut out = match kind {
        "Add" | "Sub" | "Mul" | "Div" | "Pow" | "Mod" | "Min" | "Max" | "Mean" | "Sum" | "BitShift"
        | "BitwiseAnd" | "BitwiseOr" | "BitwiseXor" => one(dtype, broadcast(inputs.iter().map(|v| &v.dims))),
        "And" | "Or" | "Xor" | "Equal" | "Less" | "Greater" | "LessOrEqual" | "GreaterOrEqual" => {
            one(DType::Bool, broadcast(inputs.iter().map(|v| &v.dims)))
        }
        "Where" => {
            let dtype = inputs.get(1).map_or(dtype, |v| v.dtype);
            one(dtype, broadcast(inputs.iter().map(|v| &v.dims)))
        }
        "PRelu" => one(dtype, dims),
        "Not" | "IsNaN" | "IsInf" => one(DType::Bool, dims),
        "Cast" => one(dtype::from_number(read.int("to", 1)).unwrap_or(DType::F32), dims),
        "Shape" => one(DType::I64, first.rank().map(|rank| vec![size(rank)])),
        "Size" => one(DType::I64, Some(Vec::new())),
        "Reshape" => one(dtype, reshape(first, inputs.get(1), read.int("allowzero", 0) != 0)),
        "Transpose" => one(dtype, transpose(first, read.ints("perm"))),
        "Unsqueeze" => one(dtype, unsqueeze(first, constant_ints(inputs.get(1)))),
        "Squeeze" => one(dtype, squeeze(first, inputs.get(1).map(|v| constant_ints(Some(v))))),
        "Flatten" => one(dtype, flatten(first, read.int("axis", 1))),
        "Concat" => one(dtype, concat(inputs, read.int("axis", 0))),
        "Split" => return split(first, inputs.get(1), read.int("axis", 0), results),
        "Slice" => one(dtype, slice(inputs)),
        "Gather" => one(dtype, gather(first, inputs.get(1), read.int("axis", 0))),
        "GatherElements" => one(dtype, inputs.get(1).and_then(|v| v.dims.clone())),
        "GatherND" => one(dtype, gather_nd(first, inputs.get(1), read.int("batch_dims", 0))),
        "Expand" => one(dtype, expand(first, inputs.get(1))),
        "Tile" => one(dtype, tile(first, constant_ints(inputs.get(1)))),
        "Pad" => one(dtype, pad(first, inputs)),
        "ReduceSum" | "ReduceMean" | "ReduceMax" | "ReduceMin" | "ReduceProd" | "ReduceL1" | "ReduceL2"
        | "ReduceLogSum" | "ReduceLogSumExp" | "ReduceSumSquare" => one(dtype, reduce(first, inputs, &read)),
        "ArgMax" | "ArgMin" => {
            one(DType::I64, reduced(first, Some(&[read.int("axis", 0)]), read.int("keepdims", 1) != 0))
        }
        "TopK" => return top_k(first, inputs.get(1), read.int("axis", -1)),
        "MatMul" => one(dtype, matmul(inputs)),
        "Gemm" => one(dtype, gemm(inputs, &read)),
        "Conv" => one(dtype, conv(inputs, &read)),
        "ConvTranspose" => one(dtype, conv_transpose(inputs, &read)),
        "MaxPool" | "AveragePool" | "LpPool" => one(dtype, pool(first, &read)),
        "GlobalAveragePool" | "GlobalMaxPool" => {
            one(dtype, dims.map(|dims| keep_two(&dims, |_| Dim::Size(1))))
        }
        "Range" => one(dtype, Some(vec![Dim::Open])),
        "ConstantOfShape" => {
            let dtype = read.tensor("value").map_or(DType::F32, |tensor| tensor.dtype);
            one(dtype, from_shape(inputs.first()))
        }
        "NonZero" => one(DType::I64, Some(vec![first.rank().map_or(Dim::Open, size), Dim::Open])),
        "OneHot" => {
            let dtype = inputs.get(2).map_or(DType::F32, |v| v.dtype);
            let depth = constant_ints(inputs.get(1)).and_then(|d| d.first().copied());
            one(dtype, one_hot(first, depth, read.int("axis", -1)))
        }
        "Resize" => one(dtype, resize(first, inputs)),
        "LSTM" | "GRU" | "RNN" => return recurrent(kind, inputs, &read, results),
        "DepthToSpace" | "SpaceToDepth" => one(dtype, blocks(kind, first, read.int("blocksize", 1))),
        "GridSample" => one(dtype, grid_sample(first, inputs.get(1))),
        "NonMaxSuppression" => one(DType::I64, Some(vec![Dim::Open, Dim::Size(3)])),
        "QuantizeLinear" => one(inputs.get(2).map_or(DType::U8, |v| v.dtype), dims),
        "DequantizeLinear" => one(inputs.get(1).map_or(DType::F32, |v| v.dtype), dims),
        "SequenceLength" => one(DType::I64, Some(Vec::new())),
        "SequenceEmpty" => {
            let dtype = dtype::from_number(read.int("dtype", 1)).unwrap_or(DType::F32);
            vec![Inferred { dtype, dims: None, is_sequence: true }]
        }
        "SequenceConstruct" => {
            let dims = inputs[1..].iter().fold(dims, |dims, other| common(&dims, &other.dims));
            vec![Inferred { dtype, dims, is_sequence: true }]
        }
        "SequenceInsert" => {
            let element = inputs.get(1).and_then(|v| v.dims.clone());
            let dims = if first.dims.is_none() { None } else { common(&first.dims, &element) };
            let dtype = inputs.get(1).map_or(dtype, |v| v.dtype);
            vec![Inferred { dtype, dims, is_sequence: true }]
        }
        "SequenceErase" => vec![Inferred { dtype, dims, is_sequence: true }],
        "SplitToSequence" => {
            let dims = dims.map(|dims| vec![Dim::Open; dims.len()]);
            vec![Inferred { dtype, dims, is_sequence: true }]
        }
        "SequenceAt" => one(dtype, dims),
        "ConcatFromSequence" => {
            let extra = usize::from(read.int("new_axis", 0) != 0);
            one(dtype, dims.map(|dims| vec![Dim::Open; dims.len() + extra]))
        }
        "Einsum" => {
            let right =
                read.text("equation").and_then(|e| e.split_once("->")).map(|(_, right)| right.to_owned());
            let rank = right.filter(|right| !right.contains('.')).map(|right| right.trim().len());
            one(dtype, rank.map(|rank| vec![Dim::Open; rank]))
        }
        "DFT" => {
            let dims = dims.map(|mut dims| {
                if let Some(last) = dims.last_mut() {
                    *last = if read.int("inverse", 0) != 0 && read.int("onesided", 0) != 0 {
                        Dim::Size(1)
                    } else {
                        Dim::Size(2)
                    };
                }
                let rank = dims.len();
                let axis = constant_ints(inputs.get(2)).and_then(|a| a.first().copied());
                let axis = front(axis.unwrap_or(read.int("axis", 1)), rank);
                if let Some(axis) = axis.filter(|axis| *axis < rank) {
                    dims[axis] = Dim::Open;
                }
                dims
            });
            one(dtype, dims)
        }
        "EyeLike" => {
            let to = read.int("dtype", 0);
            one(dtype::from_number(to).unwrap_or(dtype), dims)
        }
        "RoiAlign" => {
            let channels = first.dims.as_ref().and_then(|d| d.get(1).cloned()).unwrap_or(Dim::Open);
            let rois = inputs.get(1).and_then(|v| v.dims.as_ref()).and_then(|d| d.first().cloned());
            let (h, w) = (read.int("output_height", 1), read.int("output_width", 1));
            one(dtype, Some(vec![rois.unwrap_or(Dim::Open), channels, Dim::Size(h), Dim::Size(w)]))
        }
        "Det" => one(dtype, dims.map(|dims| dims[..dims.len().saturating_sub(2)].to_vec())),
        "Compress" => one(
            dtype,
            match (dims, read.0.iter().any(|(name, _)| *name == "axis")) {
                (Some(mut dims), true) => {
                    if let Some(axis) =
                        front(read.int("axis", 0), dims.len()).filter(|axis| *axis < dims.len())
                    {
                        dims[axis] = Dim::Open;
                    }
                    Some(dims)
                }
                _ => Some(vec![Dim::Open]),
            },
        ),
        "Dropout" => {
            vec![Inferred::new(dtype, dims.clone()), Inferred::new(DType::Bool, dims)]
        }
        "Unique" => vec![
            Inferred::new(
                dtype,
                match (dims, read.0.iter().any(|(name, _)| *name == "axis")) {
                    (Some(mut dims), true) => {
                        if let Some(axis) = front(read.int("axis", 0), dims.len()).filter(|a| *a < dims.len())
                        {
                            dims[axis] = Dim::Open;
                        }
                        Some(dims)
                    }
                    (None, true) => None,
                    (_, false) => Some(vec![Dim::Open]),
                },
            ),
            Inferred::open(DType::I64, 1),
            Inferred::open(DType::I64, 1),
            Inferred::open(DType::I64, 1),
        ],
        // Identity, activations, normalizations, scatters: as the first input.
        _ => vec![Inferred { dtype, dims, is_sequence: first.is_sequence }],
    };
    while out.len() < results {
        out.push(Inferred::new(dtype, None));
    }
    out.truncate(results);
    out
}

fn size(count: usize) -> Dim {
    i64::try_from(count).map_or(Dim::Open, Dim::Size)
}

/// Returns the dimensions that two values share.
pub(super) fn common(a: &Dims, b: &Dims) -> Dims {
    let (a, b) = (a.as_ref()?, b.as_ref()?);
    if a.len() != b.len() {
        return None;
    }
    Some(a.iter().zip(b).map(|(a, b)| if a == b { a.clone() } else { Dim::Open }).collect())
}

fn reshape(x: &Value, shape: Option<&&Value>, allow_zero: bool) -> Dims {
    let shape = shape?;
    let Some(sizes) = constant_ints(Some(shape)) else {
        let rank = shape.size(0).and_then(|rank| usize::try_from(rank).ok())?;
        return Some(vec![Dim::Open; rank]);
    };
    let mut dims: Vec<Dim> = Vec::new();
    for (place, size) in sizes.iter().enumerate() {
        dims.push(match size {
            0 if !allow_zero => x.dims.as_ref().and_then(|d| d.get(place).cloned()).unwrap_or(Dim::Open),
            size if *size < 0 => Dim::Open,
            size => Dim::Size(*size),
        });
    }
    // The size of -1 follows from the others.
    if let (Some(place), Some(all)) = (sizes.iter().position(|s| *s == -1), x.sizes()) {
        let rest: Option<Vec<i64>> =
            dims.iter().enumerate().filter(|(p, _)| *p != place).map(|(_, d)| d.size()).collect();
        if let Some(rest) = rest {
            let total = all.iter().try_fold(1i64, |p, s| p.checked_mul(*s));
            let rest = rest.iter().try_fold(1i64, |p, s| p.checked_mul(*s));
            if let (Some(total), Some(rest)) = (total, rest)
                && rest > 0
            {
                dims[place] = Dim::Size(total / rest);
            }
        }
    }
    Some(dims)
}

fn transpose(x: &Value, order: Option<&[i64]>) -> Dims {
    let dims = x.dims.as_ref()?;
    match order {
        Some(order) if order.len() == dims.len() => order
            .iter()
            .map(|axis| usize::try_from(*axis).ok().and_then(|axis| dims.get(axis).cloned()))
            .collect(),
        Some(_) => None,
        None => Some(dims.iter().rev().cloned().collect()),
    }
}

fn unsqueeze(x: &Value, axes: Option<Vec<i64>>) -> Dims {
    let dims = x.dims.as_ref()?;
    let axes = axes?;
    let rank = dims.len() + axes.len();
    let mut places: Vec<usize> = axes.iter().map(|axis| front(*axis, rank)).collect::<Option<_>>()?;
    places.sort_unstable();
    let mut out = dims.clone();
    for place in places {
        if place > out.len() {
            return None;
        }
        out.insert(place, Dim::Size(1));
    }
    Some(out)
}

/// `axes`: `None` if the node has no axes, `Some(None)` if they are not known.
#[allow(clippy::option_option)]
fn squeeze(x: &Value, axes: Option<Option<Vec<i64>>>) -> Dims {
    let dims = x.dims.as_ref()?;
    let Some(axes) = axes else {
        let known = dims.iter().all(|dim| dim.size().is_some());
        return known.then(|| dims.iter().filter(|dim| **dim != Dim::Size(1)).cloned().collect());
    };
    let places: Vec<usize> = axes?.iter().map(|axis| front(*axis, dims.len())).collect::<Option<_>>()?;
    let kept = dims.iter().enumerate().filter(|(place, _)| !places.contains(place));
    Some(kept.map(|(_, dim)| dim.clone()).collect())
}

fn flatten(x: &Value, axis: i64) -> Dims {
    let dims = x.dims.as_ref()?;
    let axis = front(axis, dims.len())?.min(dims.len());
    Some(vec![product(&dims[..axis]), product(&dims[axis..])])
}

fn concat(inputs: &[&Value], axis: i64) -> Dims {
    let mut out = inputs.first()?.dims.clone()?;
    let axis = front(axis, out.len()).filter(|axis| *axis < out.len())?;
    for value in &inputs[1..] {
        let Some(dims) = value.dims.as_ref() else {
            out[axis] = Dim::Open;
            continue;
        };
        if dims.len() != out.len() {
            return None;
        }
        for (place, (own, other)) in out.iter_mut().zip(dims).enumerate() {
            if place == axis {
                *own = match (own.size(), other.size()) {
                    (Some(a), Some(b)) => a.checked_add(b).map_or(Dim::Open, Dim::Size),
                    _ => Dim::Open,
                };
            } else if own.size().is_none() && other.size().is_some() {
                *own = other.clone();
            }
        }
    }
    Some(out)
}

fn split(x: &Value, sizes: Option<&&Value>, axis: i64, results: usize) -> Vec<Inferred> {
    let sizes = constant_ints(sizes);
    let part = |place: usize| {
        let mut dims = x.dims.clone()?;
        let axis = front(axis, dims.len()).filter(|axis| *axis < dims.len())?;
        dims[axis] = match (&sizes, dims[axis].size()) {
            (Some(sizes), _) => sizes.get(place).map_or(Dim::Open, |size| Dim::Size(*size)),
            (None, Some(all)) if usize::try_from(all).is_ok_and(|all| all.is_multiple_of(results)) => {
                Dim::Size(all / i64::try_from(results).unwrap_or(1))
            }
            _ => Dim::Open,
        };
        Some(dims)
    };
    (0..results).map(|place| Inferred::new(x.dtype, part(place))).collect()
}

fn slice(inputs: &[&Value]) -> Dims {
    let x = inputs.first()?;
    let mut dims = x.dims.clone()?;
    let starts = constant_ints(inputs.get(1));
    let ends = constant_ints(inputs.get(2));
    let axes = match inputs.get(3).filter(|v| !v.is_none()) {
        Some(axes) => constant_ints(Some(axes)),
        None => starts.as_ref().map(|s| (0..i64::try_from(s.len()).unwrap_or(0)).collect()),
    };
    let steps = match inputs.get(4).filter(|v| !v.is_none()) {
        Some(steps) => constant_ints(Some(steps)),
        None => Some(vec![1; axes.as_ref().map_or(0, Vec::len)]),
    };
    let Some(axes) = axes else {
        return Some(vec![Dim::Open; dims.len()]);
    };
    for (place, axis) in axes.iter().enumerate() {
        let axis = front(*axis, dims.len()).filter(|axis| *axis < dims.len())?;
        let bound = |list: &Option<Vec<i64>>| list.as_ref().and_then(|list| list.get(place).copied());
        let known = (dims[axis].size(), bound(&starts), bound(&ends), bound(&steps));
        dims[axis] = match known {
            (Some(size), Some(start), Some(end), Some(step)) => {
                crate::export::fold::slice_range(size, start, end, step)
                    .map_or(Dim::Open, |(_, count)| Dim::Size(count))
            }
            _ => Dim::Open,
        };
    }
    Some(dims)
}

fn gather(x: &Value, indices: Option<&&Value>, axis: i64) -> Dims {
    let dims = x.dims.as_ref()?;
    let indices = indices?.dims.as_ref()?;
    let axis = front(axis, dims.len()).filter(|axis| *axis < dims.len())?;
    Some(dims[..axis].iter().chain(indices).chain(&dims[axis + 1..]).cloned().collect())
}

fn gather_nd(x: &Value, indices: Option<&&Value>, batch: i64) -> Dims {
    let dims = x.dims.as_ref()?;
    let indices = indices?.dims.as_ref()?;
    let depth = usize::try_from(indices.last()?.size()?).ok()?;
    let from = usize::try_from(batch).ok()?.checked_add(depth)?;
    Some(indices[..indices.len() - 1].iter().chain(dims.get(from..)?).cloned().collect())
}

/// Returns the dimensions that a value of rank 1 states.
fn from_shape(shape: Option<&&Value>) -> Dims {
    if let Some(sizes) = constant_ints(shape) {
        return Some(sizes.iter().map(|size| dim(i128::from(*size))).collect());
    }
    let rank = shape.and_then(|shape| shape.size(0)).and_then(|rank| usize::try_from(rank).ok())?;
    Some(vec![Dim::Open; rank])
}

fn expand(x: &Value, shape: Option<&&Value>) -> Dims {
    broadcast([&x.dims, &from_shape(shape)])
}

fn tile(x: &Value, repeats: Option<Vec<i64>>) -> Dims {
    let dims = x.dims.as_ref()?;
    let Some(repeats) = repeats else { return Some(vec![Dim::Open; dims.len()]) };
    let times = |(dim, times): (&Dim, &i64)| match (dim, times) {
        (dim, 1) => dim.clone(),
        (dim, times) => dim.size().and_then(|size| size.checked_mul(*times)).map_or(Dim::Open, Dim::Size),
    };
    (repeats.len() == dims.len()).then(|| dims.iter().zip(&repeats).map(times).collect())
}

fn pad(x: &Value, inputs: &[&Value]) -> Dims {
    let dims = x.dims.as_ref()?;
    let rank = dims.len();
    let pads = constant_ints(inputs.get(1));
    let axes = match inputs.get(3).filter(|v| !v.is_none()) {
        Some(axes) => constant_ints(Some(axes)),
        None => Some((0..i64::try_from(rank).unwrap_or(0)).collect()),
    };
    let (Some(pads), Some(axes)) = (pads, axes) else { return Some(vec![Dim::Open; rank]) };
    if pads.len() != axes.len() * 2 {
        return None;
    }
    let mut out = dims.clone();
    for (place, axis) in axes.iter().enumerate() {
        let axis = front(*axis, rank).filter(|axis| *axis < rank)?;
        let more = pads[place].checked_add(pads[place + axes.len()])?;
        if more != 0 {
            out[axis] = out[axis].size().and_then(|s| s.checked_add(more)).map_or(Dim::Open, Dim::Size);
        }
    }
    Some(out)
}

fn reduce(x: &Value, inputs: &[&Value], read: &Read<'_>) -> Dims {
    let keep = read.int("keepdims", 1) != 0;
    match inputs.get(1).filter(|v| !v.is_none()) {
        Some(axes) => match constant_ints(Some(axes)) {
            Some(axes) => reduced(x, Some(&axes), keep),
            None if keep => Some(vec![Dim::Open; x.rank()?]),
            None => None,
        },
        None => reduced(x, read.ints("axes"), keep),
    }
}

/// Returns the dimensions after a reduction; `None` for the axes means all.
fn reduced(x: &Value, axes: Option<&[i64]>, keep: bool) -> Dims {
    let Some(axes) = axes.filter(|axes| !axes.is_empty()) else {
        return if keep { Some(vec![Dim::Size(1); x.rank()?]) } else { Some(Vec::new()) };
    };
    let dims = x.dims.as_ref()?;
    let places: Vec<usize> = axes.iter().map(|axis| front(*axis, dims.len())).collect::<Option<_>>()?;
    let mut out = Vec::new();
    for (place, dim) in dims.iter().enumerate() {
        match (places.contains(&place), keep) {
            (true, true) => out.push(Dim::Size(1)),
            (true, false) => {}
            (false, _) => out.push(dim.clone()),
        }
    }
    Some(out)
}

fn top_k(x: &Value, count: Option<&&Value>, axis: i64) -> Vec<Inferred> {
    let count = constant_ints(count).and_then(|count| count.first().copied());
    let dims = x.dims.clone().and_then(|mut dims| {
        let axis = front(axis, dims.len()).filter(|axis| *axis < dims.len())?;
        dims[axis] = count.map_or(Dim::Open, Dim::Size);
        Some(dims)
    });
    vec![Inferred::new(x.dtype, dims.clone()), Inferred::new(DType::I64, dims)]
}

fn matmul(inputs: &[&Value]) -> Dims {
    let a = inputs.first()?.dims.clone()?;
    let b = inputs.get(1)?.dims.clone()?;
    match (a.len(), b.len()) {
        (0, _) | (_, 0) => None,
        (1, 1) => Some(Vec::new()),
        (1, rank) => {
            let mut out = b;
            out.remove(rank - 2);
            Some(out)
        }
        (rank, 1) => {
            let mut out = a;
            out.remove(rank - 1);
            Some(out)
        }
        (m, n) => {
            let batch = broadcast([&Some(a[..m - 2].to_vec()), &Some(b[..n - 2].to_vec())])?;
            Some(batch.into_iter().chain([a[m - 2].clone(), b[n - 1].clone()]).collect())
        }
    }
}

fn gemm(inputs: &[&Value], read: &Read<'_>) -> Dims {
    let a = inputs.first()?.dims.as_ref()?;
    let b = inputs.get(1)?.dims.as_ref()?;
    let m = a.get(usize::from(read.int("transA", 0) != 0))?;
    let n = b.get(usize::from(read.int("transB", 0) == 0))?;
    Some(vec![m.clone(), n.clone()])
}

/// Returns the first two dimensions, and the others changed.
fn keep_two(dims: &[Dim], change: impl Fn(usize) -> Dim) -> Vec<Dim> {
    let of = |(place, dim): (usize, &Dim)| if place < 2 { dim.clone() } else { change(place - 2) };
    dims.iter().enumerate().map(of).collect()
}

/// Returns the spatial size after a window slides over it.
fn window(size: Option<i64>, kernel: i64, place: usize, count: usize, read: &Read<'_>) -> Dim {
    let at = |name: &str, place: usize, default: i64| {
        // Numbers of a program may be of any size.
        i128::from(read.ints(name).and_then(|list| list.get(place).copied()).unwrap_or(default))
    };
    let Some(size) = size.map(i128::from) else { return Dim::Open };
    let (stride, dilation) = (at("strides", place, 1), at("dilations", place, 1));
    if stride <= 0 {
        return Dim::Open;
    }
    match read.text("auto_pad") {
        Some("SAME_UPPER" | "SAME_LOWER") => return dim((size + stride - 1) / stride),
        Some("VALID" | "NOTSET") | None => {}
        Some(_) => return Dim::Open,
    }
    let pads = at("pads", place, 0) + at("pads", place + count, 0);
    let span = size + pads - dilation * (i128::from(kernel) - 1) - 1;
    if span < 0 {
        return Dim::Open;
    }
    let steps = if read.int("ceil_mode", 0) != 0 {
        // The last window must begin in the input or in the padding before it.
        let steps = (span + stride - 1) / stride;
        if steps * stride >= size + at("pads", place, 0) { steps - 1 } else { steps }
    } else {
        span / stride
    };
    dim(steps + 1)
}

/// Returns a computed size; open if it is negative or too large.
fn dim(size: i128) -> Dim {
    i64::try_from(size).ok().filter(|size| *size >= 0).map_or(Dim::Open, Dim::Size)
}

fn conv(inputs: &[&Value], read: &Read<'_>) -> Dims {
    let x = inputs.first()?.dims.as_ref()?;
    let w = inputs.get(1)?.dims.as_ref()?;
    if x.len() != w.len() || x.len() < 3 {
        return None;
    }
    let count = x.len() - 2;
    let spatial = |place: usize| match w[place + 2].size() {
        Some(kernel) => window(x[place + 2].size(), kernel, place, count, read),
        None => Dim::Open,
    };
    let mut out = keep_two(x, spatial);
    out[1] = w[0].clone();
    Some(out)
}

fn conv_transpose(inputs: &[&Value], read: &Read<'_>) -> Dims {
    let x = inputs.first()?.dims.as_ref()?;
    let w = inputs.get(1)?.dims.as_ref()?;
    if x.len() != w.len() || x.len() < 3 {
        return None;
    }
    let count = x.len() - 2;
    let at = |name: &str, place: usize, default: i64| {
        i128::from(read.ints(name).and_then(|list| list.get(place).copied()).unwrap_or(default))
    };
    let spatial = |place: usize| {
        if let Some(sizes) = read.ints("output_shape") {
            return sizes.get(place).map_or(Dim::Open, |size| Dim::Size(*size));
        }
        match (x[place + 2].size(), w[place + 2].size()) {
            (Some(size), Some(kernel)) => {
                let pads = at("pads", place, 0) + at("pads", place + count, 0);
                let kernel = (i128::from(kernel) - 1) * at("dilations", place, 1) + 1;
                let more = at("output_padding", place, 0);
                dim(at("strides", place, 1) * (i128::from(size) - 1) + more + kernel - pads)
            }
            _ => Dim::Open,
        }
    };
    let mut out = keep_two(x, spatial);
    out[1] = w[1].size().and_then(|c| c.checked_mul(read.int("group", 1))).map_or(Dim::Open, Dim::Size);
    Some(out)
}

fn pool(x: &Value, read: &Read<'_>) -> Dims {
    let dims = x.dims.as_ref()?;
    let kernel = read.ints("kernel_shape")?;
    let count = kernel.len();
    Some(keep_two(dims, |place| match kernel.get(place) {
        Some(kernel) => window(dims[place + 2].size(), *kernel, place, count, read),
        None => Dim::Open,
    }))
}

fn one_hot(x: &Value, depth: Option<i64>, axis: i64) -> Dims {
    let mut dims = x.dims.clone()?;
    let axis = front(axis, dims.len() + 1).filter(|axis| *axis <= dims.len())?;
    dims.insert(axis, depth.map_or(Dim::Open, Dim::Size));
    Some(dims)
}

fn resize(x: &Value, inputs: &[&Value]) -> Dims {
    let dims = x.dims.as_ref()?;
    if let Some(sizes) = constant_ints(inputs.get(3)).filter(|sizes| sizes.len() == dims.len()) {
        return Some(sizes.iter().map(|size| Dim::Size(*size)).collect());
    }
    let scales = inputs.get(2).and_then(|v| v.constant.as_ref()).map(|c| c.to_floats());
    #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss)]
    if let Some(scales) = scales.filter(|scales| scales.len() == dims.len()) {
        let scaled = |(dim, scale): (&Dim, &f64)| match dim {
            dim if (*scale - 1.0).abs() < f64::EPSILON => dim.clone(),
            // ONNX computes in 32 bits.
            Dim::Size(size) => Dim::Size(f64::from(*size as f32 * *scale as f32).floor() as i64),
            _ => Dim::Open,
        };
        return Some(dims.iter().zip(&scales).map(scaled).collect());
    }
    Some(vec![Dim::Open; dims.len()])
}

fn recurrent(kind: &str, inputs: &[&Value], read: &Read<'_>, results: usize) -> Vec<Inferred> {
    let dtype = inputs.first().map_or(DType::F32, |v| v.dtype);
    let of = |axis: usize| {
        let dims = inputs.first().and_then(|v| v.dims.as_ref());
        dims.and_then(|dims| dims.get(axis).cloned()).unwrap_or(Dim::Open)
    };
    let directions = Dim::Size(if read.text("direction") == Some("bidirectional") { 2 } else { 1 });
    let hidden = Dim::Size(read.int("hidden_size", 0));
    let state = vec![directions.clone(), of(1), hidden.clone()];
    let mut out = vec![Inferred::new(dtype, Some(vec![of(0), directions, of(1), hidden]))];
    out.push(Inferred::new(dtype, Some(state.clone())));
    if kind == "LSTM" {
        out.push(Inferred::new(dtype, Some(state)));
    }
    out.truncate(results);
    out
}

fn blocks(kind: &str, x: &Value, block: i64) -> Dims {
    let dims = x.dims.as_ref().filter(|dims| dims.len() == 4 && block > 0)?;
    let map =
        |size: &Dim, change: &dyn Fn(i128) -> i128| size.size().map_or(Dim::Open, |s| dim(change(s.into())));
    let block = i128::from(block);
    let (more, less) = (|s: i128| s * block, |s: i128| s / block);
    Some(if kind == "DepthToSpace" {
        let channels = map(&dims[1], &|s| s / (block * block));
        vec![dims[0].clone(), channels, map(&dims[2], &more), map(&dims[3], &more)]
    } else {
        let channels = map(&dims[1], &|s| s * block * block);
        vec![dims[0].clone(), channels, map(&dims[2], &less), map(&dims[3], &less)]
    })
}

fn grid_sample(x: &Value, grid: Option<&&Value>) -> Dims {
    let dims = x.dims.as_ref()?;
    let grid = grid?.dims.as_ref()?;
    if grid.len() != dims.len() {
        return None;
    }
    Some(dims[..2].iter().chain(&grid[1..grid.len() - 1]).cloned().collect())
}
