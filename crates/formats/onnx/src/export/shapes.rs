//! Shapes, slices, indices, and creation of tensors.
//!
//! | module | operators |
//! | --- | --- |
//! | `layout` | reshape, transpose, concat, split, expand, tile, order of channels |
//! | `slices` | slice, crop, assignment to a slice, padding, roll, flip |
//! | `index` | gather and scatter, selection, sorting |
//! | `create` | constants, ranges, diagonals, one-hot |

mod create;
mod index;
mod layout;
mod slices;

pub(super) use index::limit;

use super::builder::{Builder, Value};
use super::infer::broadcast;
use super::operator::{Op, Row, row};
use crate::model::{Attr, Dim};
use weighbridge_core::error::Result;
use weighbridge_core::tensor::DType;

/// Operators of this family.
#[rustfmt::skip]
pub(super) const ROWS: &[Row] = &[
    row("reshape reshape2", "reshape", "X Shape", "Out", layout::reshape),
    row("transpose transpose2", "transpose", "X", "Out", layout::transpose).renamed("perm=axis"),
    row("squeeze squeeze2", "squeeze", "X AxesTensor", "Out", layout::squeeze),
    row("unsqueeze unsqueeze2", "unsqueeze", "X AxesTensor", "Out", layout::unsqueeze),
    row("flatten flatten2", "", "X", "Out", layout::flatten),
    row("flatten_contiguous_range", "flatten", "X", "Out", layout::flatten_range),
    row("concat", "concat", "X AxisTensor", "Out", layout::concat),
    row("partial_concat", "partial_concat", "X", "Out", layout::partial_concat),
    row("stack", "stack", "X", "Y", layout::stack),
    row("unstack", "unstack", "X", "Y", layout::unstack),
    row("unbind", "unbind", "X", "Out", layout::unstack),
    row("split", "split", "X SectionsTensorList AxisTensor", "Out", layout::split),
    row("", "split_with_num", "X AxisTensor", "Out", layout::split),
    row("expand", "", "X", "Out", layout::expand_times),
    row("expand_v2", "expand", "X Shape", "Out", layout::expand),
    row("expand_as_v2", "expand_as", "X Y", "Out", layout::expand_as),
    row("tile", "tile", "X RepeatTimes", "Out", layout::tile),
    row("broadcast_tensors", "broadcast_tensors", "X", "Out", layout::broadcast_tensors),
    row("meshgrid", "meshgrid", "X", "Out", layout::meshgrid),
    row("pixel_shuffle", "pixel_shuffle", "X", "Out", layout::pixel_shuffle),
    row("pixel_unshuffle", "pixel_unshuffle", "X", "Out", layout::pixel_unshuffle),
    row("channel_shuffle", "channel_shuffle", "X", "Out", layout::channel_shuffle),
    row("shuffle_channel", "shuffle_channel", "X", "Out", layout::channel_shuffle),
    row("temporal_shift", "temporal_shift", "X", "Out", layout::temporal_shift),
    row("repeat_interleave", "repeat_interleave", "X", "Out", layout::repeat_interleave).renamed("repeats=Repeats axis=dim"),
    row("", "repeat_interleave_with_tensor_index", "X RepeatsTensor", "Out", layout::repeat_interleave).renamed("axis=dim"),

    row("slice", "slice", "Input StartsTensor EndsTensor", "Out", slices::slice),
    row("strided_slice", "strided_slice", "Input StartsTensor EndsTensor StridesTensor", "Out", slices::slice),
    row("crop", "", "X Y Offsets", "Out", slices::crop),
    row("crop_tensor", "crop", "X Shape Offsets", "Out", slices::crop),
    row("set_value", "set_value", "Input StartsTensorList EndsTensorList StepsTensorList", "Out", slices::set_value),
    row("set_value_with_tensor", "set_value_with_tensor", "Input ValueTensor StartsTensorList EndsTensorList StepsTensorList", "Out", slices::set_value),
    row("pad", "pad", "X PadValue", "Out", slices::pad),
    row("pad2d", "", "X Paddings", "Out", slices::pad2d),
    row("pad3d", "pad3d", "X Paddings", "Out", slices::pad3d).renamed("pad_value=value"),
    row("roll", "roll", "X ShiftsTensor", "Out", slices::roll),
    row("flip reverse", "flip reverse", "X", "Out", slices::flip),

    row("gather", "gather", "X Index Axis", "Out", index::gather),
    row("gather_nd", "gather_nd", "X Index", "Out", index::gather_nd),
    row("index_select", "index_select", "X Index", "Out", index::index_select).renamed("axis=dim"),
    row("index_sample", "index_sample", "X Index", "Out", index::index_sample),
    row("take_along_axis", "take_along_axis", "Input Index", "Result", index::take_along_axis).renamed("axis=Axis"),
    row("put_along_axis", "put_along_axis", "Input Index Value", "Result", index::put_along_axis).renamed("axis=Axis reduce=Reduce include_self=Include_self"),
    row("scatter", "scatter", "X Ids Updates", "Out", index::scatter),
    row("scatter_nd_add", "scatter_nd_add", "X Index Updates", "Out", index::scatter_nd_add),
    row("index_add", "index_add", "X Index AddValue", "Out", index::index_add),
    row("index_put", "index_put", "x indices value", "out", index::index_put),
    row("lookup_table", "", "W Ids", "Out", index::lookup),
    row("lookup_table_v2", "embedding", "Ids W", "Out", index::lookup),
    row("where_index", "nonzero", "Condition", "Out", index::nonzero),
    row("masked_select", "masked_select", "X Mask", "Y", slices::masked_select),
    row("", "masked_fill", "X Mask Value", "Out", slices::masked_fill),
    row("top_k", "", "X K", "Out Indices", index::top_k),
    row("top_k_v2", "topk", "X K", "Out Indices", index::top_k),
    row("argsort", "argsort", "X", "Out Indices", index::argsort),
    row("kthvalue", "kthvalue", "X", "Out Indices", index::kthvalue),
    row("unique", "unique", "X", "Out Indices Index Counts", index::unique),
    row("unique_consecutive", "unique_consecutive", "X", "Out Index Counts", index::unique_consecutive),
    row("searchsorted", "searchsorted", "SortedSequence Values", "Out", index::searchsorted),
    row("bincount", "bincount", "X Weights MinLength", "Out", index::bincount),
    row("multiplex", "multiplex", "X Ids", "Out", index::multiplex),
    row("", "median", "X", "Out MedianIndex", index::median),
    row("shard_index", "shard_index", "X", "Out", index::shard_index),

    row("shape", "shape shape64", "Input", "Out", create::shape),
    row("size", "numel", "Input", "Out", create::size),
    row("is_empty", "is_empty", "X", "Out", create::is_empty),
    row("fill_constant", "full_with_tensor", "ValueTensor ShapeTensor", "Out", create::fill_constant),
    row("", "full", "", "Out", create::fill_constant),
    row("", "full_int_array", "", "Out", create::full_int_array),
    row("empty", "empty", "ShapeTensor", "Out", create::fill_constant),
    row("fill_any_like fill_zeros_like fill_zeros_like2", "full_like", "X ValueTensor", "Out", create::fill_like),
    row("fill_any", "fill", "X ValueTensor", "Out", create::fill_like),
    row("fill_constant_batch_size_like", "full_batch_size_like", "Input", "Out", create::fill_batch_like),
    row("assign share_data memcpy memcpy_h2d memcpy_d2h", "assign share_data memcpy memcpy_h2d memcpy_d2h assign_out", "X Output", "Out", create::assign),
    row("assign_value", "assign_value", "Output", "Out", create::assign_value),
    row("range", "arange", "Start End Step", "Out", create::range),
    row("linspace", "linspace", "Start Stop Num", "Out", create::linspace),
    row("logspace", "logspace", "Start Stop Num Base", "Out", create::logspace),
    row("eye", "eye", "Rows Columns", "Out", create::eye),
    row("one_hot", "", "X depth_tensor", "Out", create::one_hot),
    row("one_hot_v2", "one_hot", "X depth_tensor", "Out", create::one_hot),
    row("tril_triu", "tril triu", "X", "Out", create::tril_triu),
    row("tril_indices triu_indices", "tril_indices triu_indices", "", "out", create::tril_indices).renamed("row=rows col=cols"),
    row("diag_v2", "diag", "X", "Out", create::diag),
    row("diag_embed", "diag_embed", "Input", "Out", create::diag_embed),
    row("diagonal", "diagonal", "Input", "Out", create::diagonal),
    row("trace", "trace", "Input", "Out", create::trace),
    row("dropout", "dropout", "X Seed Probability", "Out Mask", create::dropout).renamed("mode=dropout_implementation"),
];

/// Maximum length of a list of sizes or indices.
const MAX_LIST: i64 = 64;

/// List of integers of an operator: an attribute, a tensor, or tensors of one element each.
struct List {
    /// Elements, if known.
    items: Vec<Option<i64>>,
    /// Elements: 64-bit integers, rank 1.
    value: Value,
}

impl List {
    /// Creates a list of known elements.
    fn of(b: &Builder<'_>, items: &[i64]) -> Self {
        Self { items: items.iter().map(|item| Some(*item)).collect(), value: b.ints(items) }
    }

    /// Returns the elements, if all are known.
    fn known(&self) -> Option<Vec<i64>> {
        self.items.iter().copied().collect()
    }

    /// Returns an element as a tensor of rank 1.
    fn item(&self, b: &mut Builder<'_>, place: usize) -> Value {
        match self.items.get(place) {
            Some(Some(item)) => b.ints(&[*item]),
            _ => {
                let place = i64::try_from(place).unwrap_or(0);
                let place = b.ints(&[place]);
                b.gather(&self.value, &place, 0)
            }
        }
    }
}

/// Returns a tensor of integers as 64-bit integers of rank 1.
fn vector(b: &mut Builder<'_>, value: &Value) -> Value {
    let value = b.cast(value, DType::I64);
    if value.rank() == Some(1) { value } else { b.reshape(&value, &[-1]) }
}

/// Returns a list of integers: from the tensors of a slot, the tensor of a slot, or the attribute. `None` if absent.
fn list(
    b: &mut Builder<'_>,
    op: &Op<'_>,
    attribute: &str,
    tensor: &str,
    tensors: &str,
) -> Result<Option<List>> {
    let mut names = op.input(tensors);
    if names.is_empty() {
        names = op.input(tensor);
    }
    let mut parts = Vec::new();
    for name in names {
        let value = b.get(name)?;
        let known = b.known_ints(&value)?;
        let value = match &known {
            Some(known) => b.ints(known),
            None => vector(b, &value),
        };
        parts.push((known, value));
    }
    if parts.is_empty() {
        return Ok(op.ints(attribute).map(|items| List::of(b, &items)));
    }
    let mut items = Vec::new();
    for (known, value) in &parts {
        match (known, value.size(0)) {
            (Some(known), _) => items.extend(known.iter().map(|item| Some(*item))),
            (None, Some(count)) if count <= MAX_LIST => {
                items.extend((0..count).map(|_| None));
            }
            _ if parts.len() > 1 => items.push(None),
            _ => return Err(op.refuse(format_args!("the length of {attribute} is unknown"))),
        }
    }
    let values: Vec<&Value> = parts.iter().map(|(_, value)| value).collect();
    Ok(Some(List { items, value: b.concat(&values, 0) }))
}

/// Returns a list of integers that must be known.
fn known_list(
    b: &mut Builder<'_>,
    op: &Op<'_>,
    attribute: &str,
    tensor: &str,
    tensors: &str,
) -> Result<Option<Vec<i64>>> {
    match list(b, op, attribute, tensor, tensors)? {
        None => Ok(None),
        Some(list) => match list.known() {
            Some(items) => Ok(Some(items)),
            None => Err(op.refuse(format_args!("{attribute} is known only at run time"))),
        },
    }
}

/// Returns an integer that must be known: the element of a tensor, or the attribute.
fn known_int(b: &mut Builder<'_>, op: &Op<'_>, attribute: &str, tensor: &str, default: i64) -> Result<i64> {
    let Some(value) = b.optional(op, tensor)? else { return Ok(op.int(attribute, default)) };
    match b.known(&value)?.and_then(|constant| super::operator::only(&constant)) {
        #[allow(clippy::cast_possible_truncation)] // The framework casts so.
        Some(number) => Ok(number as i64),
        None => Err(op.refuse(format_args!("{attribute} is known only at run time"))),
    }
}

/// Returns a place or count as a signed number.
fn signed(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Computes in a dtype that the runtime has a kernel for, and casts the result back.
fn within(
    b: &mut Builder<'_>,
    x: &Value,
    kernels: &[DType],
    make: impl FnOnce(&mut Builder<'_>, &Value) -> Value,
) -> Value {
    let dtype = wide(x.dtype, kernels);
    let inner = b.cast(x, dtype);
    let result = make(b, &inner);
    b.cast(&result, x.dtype)
}

/// Returns the dtype itself, or a dtype among the kernels that holds all its values.
fn wide(dtype: DType, kernels: &[DType]) -> DType {
    if kernels.contains(&dtype) {
        return dtype;
    }
    let candidates = match dtype {
        DType::F16 | DType::BF16 => &[DType::F32, DType::F64][..],
        DType::F32 => &[DType::F64],
        DType::Bool => &[DType::U8, DType::I32, DType::I64, DType::F32],
        DType::U8 | DType::I8 | DType::I16 | DType::I32 => &[DType::I32, DType::I64, DType::F64],
        _ => &[],
    };
    candidates.iter().copied().find(|wider| kernels.contains(wider)).unwrap_or(dtype)
}

/// Dtypes of `Where` in ONNX Runtime.
const WHERE: &[DType] = &[DType::F32, DType::F64, DType::I32, DType::I64, DType::U8];

/// Returns `x` where the mask is true, else `y`; both have the dtype of `x`.
fn select(b: &mut Builder<'_>, mask: &Value, x: &Value, y: &Value) -> Value {
    let dtype = wide(x.dtype, WHERE);
    let (inner, other) = (b.cast(x, dtype), b.cast(y, dtype));
    let chosen = b.node("Where", &[mask, &inner, &other], Vec::new());
    b.cast(&chosen, x.dtype)
}

/// Returns a value of one element as a scalar.
fn scalar(b: &mut Builder<'_>, value: &Value, dtype: DType) -> Value {
    super::control::scalar(b, value, dtype)
}

/// Returns the range 0, 1, ... of a size: 64-bit integers, rank 1.
fn count_up(b: &mut Builder<'_>, size: &Value) -> Value {
    let size = scalar(b, size, DType::I64);
    let (zero, one) = (b.int(0), b.int(1));
    b.node("Range", &[&zero, &size, &one], Vec::new())
}

/// Returns the shape after broadcasting: 64-bit integers, rank 1.
fn joint_shape(b: &mut Builder<'_>, op: &Op<'_>, values: &[&Value]) -> Result<Value> {
    let dims = broadcast(values.iter().map(|value| &value.dims));
    let dims = dims.ok_or_else(|| op.refuse("the number of dimensions of an input is unknown"))?;
    if let Some(sizes) = dims.iter().map(Dim::size).collect::<Option<Vec<i64>>>() {
        return Ok(b.ints(&sizes));
    }
    let mut joint: Option<Value> = None;
    for value in values {
        let missing = vec![1; dims.len().saturating_sub(value.rank().unwrap_or(0))];
        let (missing, shape) = (b.ints(&missing), b.shape_of(value));
        let shape = b.concat(&[&missing, &shape], 0);
        joint = Some(match joint {
            None => shape,
            Some(joint) => {
                let one = b.int(1);
                let is_one = b.binary("Equal", &joint, &one);
                b.node("Where", &[&is_one, &shape, &joint], Vec::new())
            }
        });
    }
    Ok(joint.unwrap_or_else(Value::none))
}

/// Expands to a shape, which is a tensor of rank 1.
fn expand_to(b: &mut Builder<'_>, x: &Value, shape: &Value) -> Value {
    let own = x.sizes();
    let target = shape.constant.as_ref().and_then(|c| c.as_ints());
    if own.is_some_and(|own| target == Some(&own)) {
        return x.clone();
    }
    within(b, x, EXPAND, |b, x| b.binary("Expand", x, shape))
}

/// Dtypes of `Expand` in ONNX Runtime.
const EXPAND: &[DType] = &[
    DType::F32,
    DType::F64,
    DType::F16,
    DType::I8,
    DType::I16,
    DType::I32,
    DType::I64,
    DType::U8,
    DType::Bool,
];

/// Reshapes to sizes, some of them tensors of rank 1.
fn reshape_to(b: &mut Builder<'_>, x: &Value, sizes: &[Value]) -> Value {
    let sizes: Vec<&Value> = sizes.iter().collect();
    let shape = b.concat(&sizes, 0);
    let is_zero = shape.constant.as_ref().and_then(|c| c.as_ints()).is_none_or(|s| s.contains(&0));
    let attributes = if is_zero { vec![("allowzero", Attr::Int(1))] } else { Vec::new() };
    b.node("Reshape", &[x, &shape], attributes)
}

/// Returns the sizes of some dimensions, each as a tensor of rank 1.
fn sizes_of(b: &mut Builder<'_>, x: &Value, axes: std::ops::Range<usize>) -> Vec<Value> {
    axes.map(|axis| b.dim(x, axis)).collect()
}
