//! Gathering and scattering by indices, selection, sorting.

use super::{count_up, expand_to, joint_shape, known_int, select, signed, sizes_of, vector, wide};
use crate::constant::Constant;
use crate::export::builder::{Builder, Value};
use crate::export::operator::Op;
use crate::model::Attr;
use weighbridge_core::error::Result;
use weighbridge_core::tensor::DType;

/// Returns indices in a dtype that ONNX accepts.
fn indices(b: &mut Builder<'_>, value: &Value) -> Value {
    if value.dtype == DType::I32 { value.clone() } else { b.cast(value, DType::I64) }
}

/// `gather`: the slices of an axis at the indices, which have rank 0 or 1; a trailing dimension of 1 is removed from them.
pub(super) fn gather(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (x, index) = (b.input(op, "X")?, b.input(op, "Index")?);
    let axis = known_int(b, op, "axis", "Axis", 0)?;
    let axis = b.axis(op, &x, axis)?;
    let index = indices(b, &index);
    let index = if b.rank(op, &index)? > 1 { b.reshape(&index, &[-1]) } else { index };
    let y = b.gather(&x, &index, signed(axis));
    b.bind(op, "Out", y);
    Ok(())
}

/// `gather_nd`: the slices at the coordinates in the last dimension of the indices.
pub(super) fn gather_nd(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (x, index) = (b.input(op, "X")?, b.input(op, "Index")?);
    let index = b.cast(&index, DType::I64);
    let last =
        b.rank(op, &index)?.checked_sub(1).ok_or_else(|| op.malformed("has indices without dimensions"))?;
    let y = if index.size(last) == Some(0) {
        let mut sizes = sizes_of(b, &index, 0..last);
        sizes.push(b.shape_of(&x));
        let shape = b.concat(&sizes.iter().collect::<Vec<_>>(), 0);
        expand_to(b, &x, &shape)
    } else {
        b.binary("GatherND", &x, &index)
    };
    b.bind(op, "Out", y);
    Ok(())
}

/// `index_select`: the slices of an axis at the indices.
pub(super) fn index_select(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (x, index) = (b.input(op, "X")?, b.input(op, "Index")?);
    let axis = b.axis(op, &x, op.int("dim", 0))?;
    let index = indices(b, &index);
    let index = if index.rank() == Some(1) { index } else { b.reshape(&index, &[-1]) };
    let y = b.gather(&x, &index, signed(axis));
    b.bind(op, "Out", y);
    Ok(())
}

/// `index_sample`: the elements of each row at the indices of the row.
pub(super) fn index_sample(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (x, index) = (b.input(op, "X")?, b.input(op, "Index")?);
    let index = indices(b, &index);
    let y = b.node("GatherElements", &[&x, &index], vec![("axis", Attr::Int(1))]);
    b.bind(op, "Out", y);
    Ok(())
}

/// `take_along_axis`: the elements of an axis at the indices, which have the rank of the input.
pub(super) fn take_along_axis(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (x, index) = (b.input(op, "Input")?, b.input(op, "Index")?);
    let axis = b.axis(op, &x, op.int("Axis", 0))?;
    let index = indices(b, &index);
    let y = b.node("GatherElements", &[&x, &index], vec![("axis", Attr::Int(signed(axis)))]);
    b.bind(op, "Result", y);
    Ok(())
}

/// Adds a node that scatters, with a reduction.
fn scatter_node(
    b: &mut Builder<'_>,
    kind: &str,
    inputs: &[&Value],
    axis: Option<usize>,
    reduction: &str,
) -> Value {
    let mut attributes: Vec<_> = axis.map(|axis| ("axis", Attr::Int(signed(axis)))).into_iter().collect();
    if reduction != "none" {
        attributes.push(("reduction", Attr::Text(reduction.to_owned())));
    }
    b.node(kind, inputs, attributes)
}

/// `put_along_axis`: a copy of the input with values assigned, added, multiplied, or compared at the indices of an axis. Without
/// `include_self`, the elements of the input at the indices do not count.
pub(super) fn put_along_axis(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (x, index, value) = (b.input(op, "Input")?, b.input(op, "Index")?, b.input(op, "Value")?);
    let axis = Some(b.axis(op, &x, op.int("Axis", 0))?);
    let (index, value) = (indices(b, &index), b.cast(&value, x.dtype));
    let shape = b.shape_of(&index);
    let value = if value.rank() == index.rank() && value.dims == index.dims {
        value
    } else {
        expand_to(b, &value, &shape)
    };
    let (reduction, neutral) = match op.text("Reduce", "assign") {
        "assign" => ("none", 0.0),
        "add" | "mean" => ("add", 0.0),
        "mul" | "multiply" => ("mul", 1.0),
        "amax" => ("max", 0.0),
        "amin" => ("min", 0.0),
        other => {
            return Err(op.refuse(format_args!("the reduction {}", weighbridge_core::text::escape(other))));
        }
    };
    let is_mean = op.text("Reduce", "assign") == "mean";
    let include = op.bool("Include_self", true);
    if is_mean && !x.dtype.is_float() {
        return Err(op.refuse("the mean of integers is not supported"));
    }
    if matches!(reduction, "max" | "min") && (b.opset < 18 || !include) {
        let y = put_extreme(b, op, [&x, &index, &value], reduction, include)?;
        b.bind(op, "Result", y);
        return Ok(());
    }
    let mut start = x.clone();
    if !include && reduction != "none" {
        let blank = b.filled(&shape, neutral, x.dtype);
        start = scatter_node(b, "ScatterElements", &[&x, &index, &blank], axis, "none");
    }
    let mut y = scatter_node(b, "ScatterElements", &[&start, &index, &value], axis, reduction);
    if is_mean {
        let own = b.shape_of(&x);
        let mut counts = b.filled(&own, 1.0, x.dtype);
        if !include {
            let zeros = b.filled(&shape, 0.0, x.dtype);
            counts = scatter_node(b, "ScatterElements", &[&counts, &index, &zeros], axis, "none");
        }
        let ones = b.filled(&shape, 1.0, x.dtype);
        let counts = scatter_node(b, "ScatterElements", &[&counts, &index, &ones], axis, "add");
        y = b.binary("Div", &y, &counts);
    }
    b.bind(op, "Result", y);
    Ok(())
}

/// Compares each place of an axis with all indices: the largest or smallest of the values whose index is that place.
fn put_extreme(
    b: &mut Builder<'_>,
    op: &Op<'_>,
    [x, index, value]: [&Value; 3],
    kind: &str,
    include: bool,
) -> Result<Value> {
    let axis = b.axis(op, x, op.int("Axis", 0))?;
    let rank = b.rank(op, x)?;
    if rank == 0
        || (0..rank).any(|place| place != axis && x.size(place) != index.size(place))
        || index.rank() != Some(rank)
    {
        return Err(op.refuse("the sizes of the indices and of the input are not known to be equal"));
    }
    let mut order: Vec<usize> = (0..rank).filter(|place| *place != axis).collect();
    order.push(axis);
    let (own, index, value) =
        (b.transpose(x, &order), b.transpose(index, &order), b.transpose(value, &order));
    let size = b.dim(x, axis);
    let (places, index) = (count_up(b, &size), b.cast(&index, DType::I64));
    let (places, index, value) =
        (b.unsqueeze(&places, &[1]), b.unsqueeze(&index, &[-2]), b.unsqueeze(&value, &[-2]));
    let is_here = b.binary("Equal", &index, &places);
    let is_max = kind == "max";
    let dtype = wide(x.dtype, TOP_K);
    let blank = limit(dtype, is_max);
    let (own, value, blank) = (b.cast(&own, dtype), b.cast(&value, dtype), blank);
    let candidates = select(b, &is_here, &value, &blank);
    let best = b.reduce(if is_max { "ReduceMax" } else { "ReduceMin" }, &candidates, &[-1], false);
    let y = if include {
        b.binary(if is_max { "Max" } else { "Min" }, &own, &best)
    } else {
        let is_here = b.cast(&is_here, DType::I32);
        let is_any = b.reduce("ReduceMax", &is_here, &[-1], false);
        let is_any = b.cast(&is_any, DType::Bool);
        select(b, &is_any, &best, &own)
    };
    let mut back: Vec<usize> = (0..rank - 1).collect();
    back.insert(axis, rank - 1);
    let y = b.transpose(&y, &back);
    Ok(b.cast(&y, x.dtype))
}

/// Returns the number that is not greater than any other of the dtype, or not less.
pub(in crate::export) fn limit(dtype: DType, lowest: bool) -> Value {
    let constant = match (dtype, lowest) {
        (DType::I32, true) => Constant::of_ints(&[i64::from(i32::MIN)], dtype, &[]),
        (DType::I32, false) => Constant::of_ints(&[i64::from(i32::MAX)], dtype, &[]),
        (DType::I64, true) => Constant::of_ints(&[i64::MIN], dtype, &[]),
        (DType::I64, false) => Constant::of_ints(&[i64::MAX], dtype, &[]),
        (_, true) => Constant::scalar(f64::NEG_INFINITY, dtype),
        (_, false) => Constant::scalar(f64::INFINITY, dtype),
    };
    Value::of(constant)
}

/// `scatter`: a copy of the input whose rows at the indices are replaced; without `overwrite`, they are zeroed and the updates added.
pub(super) fn scatter(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (x, index, updates) = (b.input(op, "X")?, b.input(op, "Ids")?, b.input(op, "Updates")?);
    let index = b.cast(&index, DType::I64);
    let updates = if index.rank() == Some(0) { b.unsqueeze(&updates, &[0]) } else { updates };
    let index = b.reshape(&index, &[-1, 1]);
    let y = if op.bool("overwrite", true) {
        b.node("ScatterND", &[&x, &index, &updates], Vec::new())
    } else {
        let shape = b.shape_of(&updates);
        let zeros = b.filled(&shape, 0.0, x.dtype);
        let blank = b.node("ScatterND", &[&x, &index, &zeros], Vec::new());
        scatter_node(b, "ScatterND", &[&blank, &index, &updates], None, "add")
    };
    b.bind(op, "Out", y);
    Ok(())
}

/// `scatter_nd_add`: a copy of the input with the updates added at the coordinates in the last dimension of the indices.
pub(super) fn scatter_nd_add(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (x, index, updates) = (b.input(op, "X")?, b.input(op, "Index")?, b.input(op, "Updates")?);
    let index = b.cast(&index, DType::I64);
    let last =
        b.rank(op, &index)?.checked_sub(1).ok_or_else(|| op.malformed("has indices without dimensions"))?;
    if index.size(last) == Some(0) {
        return Err(op.refuse("coordinates without elements are not supported"));
    }
    let y = scatter_node(b, "ScatterND", &[&x, &index, &updates], None, "add");
    b.bind(op, "Out", y);
    Ok(())
}

/// `index_add`: a copy of the input with slices added at the indices of an axis.
pub(super) fn index_add(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (x, index, value) = (b.input(op, "X")?, b.input(op, "Index")?, b.input(op, "AddValue")?);
    let axis = b.axis(op, &x, op.int("axis", 0))?;
    let behind: Vec<i64> = (1..signed(b.rank(op, &x)?.saturating_sub(axis))).collect();
    let index = indices(b, &index);
    let index = b.unsqueeze(&index, &behind);
    let shape = b.shape_of(&value);
    let index = expand_to(b, &index, &shape);
    let y = scatter_node(b, "ScatterElements", &[&x, &index, &value], Some(axis), "add");
    b.bind(op, "Out", y);
    Ok(())
}

/// `index_put`: a copy of the input with values at the coordinates that several tensors of indices, or a mask, give.
pub(super) fn index_put(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (x, value) = (b.input(op, "x")?, b.input(op, "value")?);
    let parts = b.inputs(op, "indices")?;
    let (coordinates, depth) = match &parts[..] {
        [mask] if mask.dtype == DType::Bool => {
            let found = b.unary("NonZero", mask);
            (b.transpose(&found, &[1, 0]), b.rank(op, mask)?)
        }
        parts if parts.iter().any(|part| part.dtype == DType::Bool) || parts.is_empty() => {
            return Err(op.refuse("masks together with other indices are not supported"));
        }
        parts => {
            let shape = joint_shape(b, op, &parts.iter().collect::<Vec<_>>())?;
            let mut columns = Vec::new();
            for part in parts {
                let part = b.cast(part, DType::I64);
                let part = expand_to(b, &part, &shape);
                columns.push(b.unsqueeze(&part, &[-1]));
            }
            (b.concat(&columns.iter().collect::<Vec<_>>(), -1), parts.len())
        }
    };
    let rank = b.rank(op, &coordinates)?.saturating_sub(1);
    let mut sizes = sizes_of(b, &coordinates, 0..rank);
    sizes.extend(sizes_of(b, &x, depth..b.rank(op, &x)?));
    let shape = if sizes.is_empty() { b.ints(&[]) } else { b.concat(&sizes.iter().collect::<Vec<_>>(), 0) };
    let value = b.cast(&value, x.dtype);
    let value = expand_to(b, &value, &shape);
    let reduction = if op.bool("accumulate", false) { "add" } else { "none" };
    let y = scatter_node(b, "ScatterND", &[&x, &coordinates, &value], None, reduction);
    b.bind(op, "out", y);
    Ok(())
}

/// `lookup_table`, `embedding`: rows of a table; zeros for the index `padding_idx`. The first version has indices with a trailing
/// dimension of 1.
pub(super) fn lookup(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (table, ids) = (b.input(op, "W")?, b.input(op, "Ids")?);
    let mut ids = indices(b, &ids);
    if op.kind == "lookup_table" {
        let last =
            b.rank(op, &ids)?.checked_sub(1).ok_or_else(|| op.malformed("has indices without dimensions"))?;
        ids = b.squeeze(&ids, &[signed(last)]);
    }
    let mut y = b.gather(&table, &ids, 0);
    let padding = op.int("padding_idx", -1);
    if padding != -1 {
        let row = Value::of(Constant::of_ints(&[padding], ids.dtype, &[]));
        let is_padding = b.binary("Equal", &ids, &row);
        let is_padding = b.unsqueeze(&is_padding, &[-1]);
        let zero = b.scalar(0.0, y.dtype);
        y = select(b, &is_padding, &zero, &y);
    }
    b.bind(op, "Out", y);
    Ok(())
}

/// `where_index`, `nonzero`: the coordinates of the elements that are not zero, one row each.
pub(super) fn nonzero(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "Condition")?;
    let is_kernel = matches!(x.dtype, DType::Bool | DType::F32 | DType::I32 | DType::I64 | DType::U8);
    let x = if is_kernel { x } else { b.cast(&x, DType::Bool) };
    if x.rank() == Some(0) {
        return Err(op.refuse("coordinates in a tensor without dimensions"));
    }
    let found = b.unary("NonZero", &x);
    let y = b.transpose(&found, &[1, 0]);
    b.bind(op, "Out", y);
    Ok(())
}

// ---- order

/// Dtypes of `TopK` in ONNX Runtime.
const TOP_K: &[DType] = &[DType::F32, DType::F64, DType::I32, DType::I64];

/// Returns the first `count` elements of an axis in order, and their places.
fn ordered(b: &mut Builder<'_>, x: &Value, count: &Value, axis: usize, largest: bool) -> (Value, Value) {
    let dtype = wide(x.dtype, TOP_K);
    let inner = b.cast(x, dtype);
    let attributes = vec![("axis", Attr::Int(signed(axis))), ("largest", Attr::Int(largest.into()))];
    let mut results = b.nodes("TopK", &[&inner, count], attributes, 2);
    let places = results.pop().unwrap_or_else(Value::none);
    let values = results.pop().unwrap_or_else(Value::none);
    (b.cast(&values, x.dtype), places)
}

/// Assigns an element and the place 0: the results for a tensor without dimensions.
fn bind_single(b: &mut Builder<'_>, op: &Op<'_>, x: Value) {
    b.bind(op, "Out", x);
    let place = b.int(0);
    b.bind(op, "Indices", place);
}

/// `top_k`: the k largest or smallest elements of an axis, in order, and their places.
pub(super) fn top_k(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    if x.rank() == Some(0) {
        bind_single(b, op, x);
        return Ok(());
    }
    let axis = b.axis(op, &x, op.int("axis", -1))?;
    let count = match b.optional(op, "K")? {
        Some(count) => match b.known_ints(&count)? {
            Some(known) => b.ints(&known),
            None => vector(b, &count),
        },
        None => b.ints(&[op.int("k", 1)]),
    };
    let (values, places) = ordered(b, &x, &count, axis, op.bool("largest", true));
    b.bind(op, "Out", values);
    b.bind(op, "Indices", places);
    Ok(())
}

/// `argsort`: the elements of an axis in order, and their places.
pub(super) fn argsort(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    if x.rank() == Some(0) {
        bind_single(b, op, x);
        return Ok(());
    }
    let axis = b.axis(op, &x, op.int("axis", -1))?;
    let count = b.dim(&x, axis);
    let (mut values, mut places) = ordered(b, &x, &count, axis, op.bool("descending", false));
    values.dims.clone_from(&x.dims);
    places.dims.clone_from(&x.dims);
    b.bind(op, "Out", values);
    b.bind(op, "Indices", places);
    Ok(())
}

/// `kthvalue`: the k-th smallest element of an axis, and its place.
pub(super) fn kthvalue(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    if x.rank() == Some(0) {
        bind_single(b, op, x);
        return Ok(());
    }
    let axis = b.axis(op, &x, op.int("axis", -1))?;
    let k = op.int("k", 1);
    if k < 1 {
        return Err(op.malformed(format_args!("has the value {k} of k")));
    }
    let count = b.ints(&[k]);
    let (values, places) = ordered(b, &x, &count, axis, false);
    for (slot, value) in [("Out", values), ("Indices", places)] {
        let last = b.slice(&value, signed(axis), k - 1, k);
        let last = if op.bool("keepdim", false) { last } else { b.squeeze(&last, &[signed(axis)]) };
        b.bind(op, slot, last);
    }
    Ok(())
}

/// `median`: the middle element of the axes; the mean of the middle two if `mode` is `avg`. It is not a number if an element is not.
pub(super) fn median(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let rank = b.rank(op, &x)?;
    let is_mean = op.text("mode", "avg") == "avg";
    if !is_mean {
        return Err(op.refuse("only the mean of the middle elements is supported"));
    }
    let axes = op.ints("axis").unwrap_or_default();
    let axes = if rank == 0 { Vec::new() } else { axes };
    let mut reduced = axes.iter().map(|axis| b.axis(op, &x, *axis)).collect::<Result<Vec<_>>>()?;
    if reduced.is_empty() {
        reduced.extend(0..rank);
    }
    reduced.sort_unstable();
    reduced.dedup();
    let kept: Vec<usize> = (0..rank).filter(|axis| !reduced.contains(axis)).collect();
    let order: Vec<usize> = kept.iter().chain(&reduced).copied().collect();
    let moved = b.transpose(&x, &order);
    let moved = if rank == 0 || reduced.is_empty() {
        b.reshape(&moved, &[1])
    } else {
        super::layout::merge(b, &moved, kept.len(), rank - 1)
    };
    let dtype = if x.dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let moved = b.cast(&moved, dtype);
    let count = b.dim(&moved, kept.len());
    let (sorted, _) = ordered(b, &moved, &count, kept.len(), false);
    let (one, two) = (b.ints(&[1]), b.ints(&[2]));
    let last = b.binary("Sub", &count, &one);
    let places = [b.binary("Div", &last, &two), b.binary("Div", &count, &two)];
    let middle = places.map(|place| b.gather(&sorted, &place, signed(kept.len())));
    let sum = b.binary("Add", &middle[0], &middle[1]);
    let half = b.scalar(0.5, dtype);
    let mean = b.binary("Mul", &sum, &half);
    let is_nan = b.unary("IsNaN", &moved);
    let is_nan = b.cast(&is_nan, DType::I32);
    let is_nan = b.reduce("ReduceMax", &is_nan, &[-1], false);
    let is_nan = b.cast(&is_nan, DType::Bool);
    let is_nan = b.unsqueeze(&is_nan, &[-1]);
    let nan = b.scalar(f64::NAN, dtype);
    let mean = select(b, &is_nan, &nan, &mean);
    let y = b.squeeze(&mean, &[-1]);
    let y = if op.bool("keepdim", false) {
        let new: Vec<i64> = reduced.iter().copied().map(signed).collect();
        b.unsqueeze(&y, &new)
    } else {
        y
    };
    let y = b.cast(&y, if x.dtype.is_float() { x.dtype } else { dtype });
    b.bind(op, "Out", y);
    Ok(())
}

/// `multiplex`: row i of the input whose number is the i-th index.
pub(super) fn multiplex(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (values, ids) = (b.inputs(op, "X")?, b.input(op, "Ids")?);
    let parts: Vec<Value> = values.iter().map(|value| b.unsqueeze(value, &[1])).collect();
    if parts.is_empty() {
        return Err(op.malformed("lacks its inputs"));
    }
    let rows = b.concat(&parts.iter().collect::<Vec<_>>(), 1);
    let ids = b.cast(&ids, DType::I64);
    let ids = b.reshape(&ids, &[-1, 1]);
    let y = b.node("GatherND", &[&rows, &ids], vec![("batch_dims", Attr::Int(1))]);
    b.bind(op, "Out", y);
    Ok(())
}

/// Returns the dtype of places, which an attribute gives.
fn dtype_of_places(op: &Op<'_>) -> DType {
    op.dtype("dtype").filter(|dtype| *dtype == DType::I32).unwrap_or(DType::I64)
}

/// `unique`: the different elements, or slices of an axis, sorted; with the place of the first of each, the place of each
/// element among the results, and the counts.
pub(super) fn unique(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let axis = op.ints("axis").and_then(|axes| axes.first().copied());
    let is_sorted = op.bool("is_sorted", false);
    let dtype = wide(x.dtype, &[DType::F32, DType::F64, DType::I64]);
    let inner = b.cast(&x, dtype);
    let mut attributes = vec![("sorted", Attr::Int(is_sorted.into()))];
    let inner = match axis {
        Some(axis) => {
            attributes.push(("axis", Attr::Int(signed(b.axis(op, &x, axis)?))));
            inner
        }
        None => b.reshape(&inner, &[-1]),
    };
    let results = b.nodes("Unique", &[&inner], attributes, 4);
    let dtype = dtype_of_places(op);
    for ((slot, value), dtype) in
        ["Out", "Indices", "Index", "Counts"].iter().zip(results).zip([x.dtype, dtype, dtype, dtype])
    {
        let value = b.cast(&value, dtype);
        b.bind(op, slot, value);
    }
    Ok(())
}

/// `unique_consecutive`: the elements that differ from the one before; with the place of each element among the results, and the
/// lengths of the runs.
pub(super) fn unique_consecutive(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    if op.ints("axis").is_some_and(|axes| !axes.is_empty()) {
        return Err(op.refuse("runs of slices of an axis are not supported"));
    }
    let flat = b.reshape(&x, &[-1]);
    let kernel = wide(x.dtype, &[DType::F32, DType::F64, DType::I32, DType::I64, DType::Bool]);
    let inner = b.cast(&flat, kernel);
    let (before, after) = (b.slice(&inner, 0, 0, -1), b.slice(&inner, 0, 1, i64::MAX));
    let is_equal = b.binary("Equal", &before, &after);
    let is_new = b.unary("Not", &is_equal);
    // The first element, if there is one.
    let first = b.slice(&inner, 0, 0, 1);
    let shape = b.shape_of(&first);
    let first = b.filled(&shape, 1.0, DType::Bool);
    let is_new = b.concat(&[&first, &is_new], 0);
    let y = b.node("Compress", &[&flat, &is_new], vec![("axis", Attr::Int(0))]);
    b.bind(op, "Out", y);
    let dtype = dtype_of_places(op);
    if !op.output("Index").is_empty() {
        let steps = b.cast(&is_new, DType::I64);
        let (zero, one) = (b.int(0), b.int(1));
        let numbers = b.node("CumSum", &[&steps, &zero], Vec::new());
        let numbers = b.binary("Sub", &numbers, &one);
        let numbers = b.cast(&numbers, dtype);
        b.bind(op, "Index", numbers);
    }
    if !op.output("Counts").is_empty() {
        let found = b.unary("NonZero", &is_new);
        let starts = b.reshape(&found, &[-1]);
        let all = b.dim(&flat, 0);
        let ends = b.slice(&starts, 0, 1, i64::MAX);
        let ends = b.concat(&[&ends, &all], 0);
        let counts = b.binary("Sub", &ends, &starts);
        let counts = b.cast(&counts, dtype);
        b.bind(op, "Counts", counts);
    }
    Ok(())
}

/// `searchsorted`: the number of elements of a sorted row that are less than each value, or not greater with `right`.
pub(super) fn searchsorted(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (sorted, values) = (b.input(op, "SortedSequence")?, b.input(op, "Values")?);
    let kernel = wide(sorted.dtype, &[DType::F32, DType::F64, DType::I32, DType::I64]);
    let (sorted, values) = (b.cast(&sorted, kernel), b.cast(&values, kernel));
    let values = b.unsqueeze(&values, &[-1]);
    let sorted = match b.rank(op, &sorted)? {
        1 => sorted,
        rank => b.unsqueeze(&sorted, &[signed(rank) - 1]),
    };
    let is_before = if op.bool("right", false) {
        b.binary("LessOrEqual", &sorted, &values)
    } else {
        b.binary("Less", &sorted, &values)
    };
    let is_before = b.cast(&is_before, DType::I64);
    let last = b.ints(&[-1]);
    let y = b.node("ReduceSum", &[&is_before, &last], vec![("keepdims", Attr::Int(0))]);
    let y = b.cast(&y, if op.bool("out_int32", false) { DType::I32 } else { DType::I64 });
    b.bind(op, "Out", y);
    Ok(())
}

/// `bincount`: the count, or sum of weights, of each number 0, 1, ...; at least `minlength` results.
pub(super) fn bincount(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let least = known_int(b, op, "minlength", "MinLength", 0)?;
    let weights = b.optional(op, "Weights")?;
    let dtype = match &weights {
        Some(weights) if weights.dtype.is_float() => weights.dtype,
        Some(weights) if weights.dtype == DType::I32 => DType::I32,
        _ => DType::I64,
    };
    let x = b.cast(&x, DType::I64);
    let (floor, one) = (b.ints(&[least.max(0) - 1]), b.ints(&[1]));
    let all = b.concat(&[&x, &floor], 0);
    let most = b.node("ReduceMax", &[&all], vec![("keepdims", Attr::Int(1))]);
    let size = b.binary("Add", &most, &one);
    let zeros = b.filled(&size, 0.0, dtype);
    let weights = match weights {
        Some(weights) => b.cast(&weights, dtype),
        None => {
            let shape = b.shape_of(&x);
            b.filled(&shape, 1.0, dtype)
        }
    };
    let y = scatter_node(b, "ScatterElements", &[&zeros, &x, &weights], Some(0), "add");
    b.bind(op, "Out", y);
    Ok(())
}

/// `shard_index`: the index inside the shard, or `ignore_value` for indices of other shards.
pub(super) fn shard_index(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let (count, shards) = (op.int("index_num", 0), op.int("nshards", 0));
    if shards < 1 || count < 1 {
        return Err(op.malformed("lacks its number of indices or shards"));
    }
    let size = (count - 1) / shards + 1;
    let number = |value: i64| Value::of(Constant::of_ints(&[value], x.dtype, &[]));
    let (size, shard) = (number(size), number(op.int("shard_id", 0)));
    let own = b.binary("Div", &x, &size);
    let is_own = b.binary("Equal", &own, &shard);
    let place = b.binary("Mod", &x, &size);
    let ignored = number(op.int("ignore_value", -1));
    let y = select(b, &is_own, &place, &ignored);
    b.bind(op, "Out", y);
    Ok(())
}

/// Returns the places of the diagonal of a matrix, counted row by row; and their number.
pub(super) fn diagonal_places(b: &mut Builder<'_>, height: &Value, width: &Value, offset: i64) -> Value {
    let (down, right) = (b.ints(&[offset.min(0).saturating_neg()]), b.ints(&[offset.max(0)]));
    let (rows, columns) = (b.binary("Sub", height, &down), b.binary("Sub", width, &right));
    let (zero, one) = (b.ints(&[0]), b.ints(&[1]));
    let count = b.binary("Min", &rows, &columns);
    let count = b.binary("Max", &count, &zero);
    let places = count_up(b, &count);
    let step = b.binary("Add", width, &one);
    let places = b.binary("Mul", &places, &step);
    let start = b.binary("Mul", &down, width);
    let start = b.binary("Add", &start, &right);
    b.binary("Add", &places, &start)
}
