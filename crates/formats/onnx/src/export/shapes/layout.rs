//! Shapes, order of dimensions, and joining and splitting of tensors.

use super::{
    List, count_up, expand_to, joint_shape, known_int, known_list, list, reshape_to, signed, sizes_of, within,
};
use crate::export::builder::{Builder, Value, check_rank};
use crate::export::math;
use crate::export::operator::Op;
use crate::model::{Attr, Dim};
use weighbridge_core::error::Result;
use weighbridge_core::tensor::DType;

/// `reshape`: the same elements with other sizes; 0 copies the size of the dimension, -1 is the rest.
pub(super) fn reshape(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let shape = list(b, op, "shape", "Shape", "ShapeTensor")?;
    let shape = shape.ok_or_else(|| op.malformed("lacks its shape"))?;
    let y = reshaped(b, &x, &shape);
    b.bind(op, "Out", y);
    Ok(())
}

/// Returns the size for -1 where it follows from known sizes alone.
fn rest(x: &Value, sizes: &[i64]) -> Option<i64> {
    let dims = x.dims.as_ref()?;
    let product = |sizes: &[i64]| sizes.iter().try_fold(1i64, |product, size| product.checked_mul(*size));
    let given: Vec<i64> = sizes.iter().copied().filter(|size| *size > 0).collect();
    let given = product(&given)?;
    let own: Vec<i64> = match x.sizes() {
        // Without elements, 0 copies nothing, and the rest is that of the sizes other than 0.
        Some(own) if own.contains(&0) && sizes.contains(&0) => {
            own.into_iter().filter(|size| *size != 0).collect()
        }
        _ => {
            let kept = dims.iter().enumerate().filter(|(place, _)| sizes.get(*place) != Some(&0));
            kept.map(|(_, dim)| dim.size()).collect::<Option<_>>()?
        }
    };
    let own = product(&own)?;
    (own % given == 0).then_some(own / given)
}

fn reshaped(b: &mut Builder<'_>, x: &Value, shape: &List) -> Value {
    if let Some(mut sizes) = shape.known() {
        let is_empty = x.sizes().is_some_and(|own| own.contains(&0));
        let places = sizes.iter().enumerate().filter(|(_, size)| **size == -1).map(|(place, _)| place);
        if let ([place], Some(rest)) = (&places.collect::<Vec<_>>()[..], rest(x, &sizes))
            && (rest > 0 || is_empty)
        {
            sizes[*place] = rest;
        }
        let shape = b.ints(&sizes);
        // Without elements, 0 copies nothing.
        return if is_empty { reshape_to(b, x, &[shape]) } else { b.binary("Reshape", x, &shape) };
    }
    let mut y = b.binary("Reshape", x, &shape.value);
    if let Some(dims) = &mut y.dims {
        for (dim, item) in dims.iter_mut().zip(&shape.items) {
            if let Some(size) = item.filter(|size| *size > 0) {
                *dim = Dim::Size(size);
            }
        }
    }
    y
}

/// `transpose`: permutes the dimensions.
pub(super) fn transpose(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let order = op.ints("axis").ok_or_else(|| op.malformed("lacks its order of dimensions"))?;
    let mut order: Vec<usize> = order.iter().map(|axis| b.axis(op, &x, *axis)).collect::<Result<_>>()?;
    let mut sorted = order.clone();
    sorted.sort_unstable();
    if x.rank() != Some(order.len()) || sorted.iter().enumerate().any(|(place, axis)| place != *axis) {
        return Err(op.malformed("has an order that is not a permutation"));
    }
    let y = match math::pair_of(&x) {
        // The parts of complex numbers stay last.
        Some(pair) => {
            order.push(order.len());
            math::complex_of(&b.transpose(&pair, &order))
        }
        None => b.transpose(&x, &order),
    };
    b.bind(op, "Out", y);
    Ok(())
}

/// `squeeze`: removes dimensions of size 1: the given ones, or all. Given dimensions of another size stay.
pub(super) fn squeeze(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let axes = known_list(b, op, "axes", "AxesTensor", "AxesTensor")?.unwrap_or_default();
    let rank = b.rank(op, &x)?;
    let y = if axes.is_empty() && x.sizes().is_none() {
        // The rank of the result depends on the sizes.
        let shape = b.shape_of(&x);
        let one = b.ints(&[1]);
        let is_one = b.binary("Equal", &shape, &one);
        let others = b.unary("Not", &is_one);
        let shape = b.node("Compress", &[&shape, &others], vec![("axis", Attr::Int(0))]);
        b.node("Reshape", &[&x, &shape], vec![("allowzero", Attr::Int(1))])
    } else {
        let mut places = Vec::new();
        if axes.is_empty() {
            places.extend(0..rank);
        } else if rank > 0 {
            for axis in &axes {
                places.push(b.axis(op, &x, *axis)?);
            }
        }
        places.sort_unstable();
        places.dedup();
        places.retain(|place| x.size(*place).is_none_or(|size| size == 1));
        let places: Vec<i64> = places.into_iter().map(signed).collect();
        b.squeeze(&x, &places)
    };
    b.bind(op, "Out", y);
    Ok(())
}

/// `unsqueeze`: inserts dimensions of size 1, one after another in the order of the axes.
pub(super) fn unsqueeze(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let axes = known_list(b, op, "axes", "AxesTensor", "AxesTensorList")?.unwrap_or_default();
    check_rank(axes.len())?;
    let mut is_new: Vec<bool> = vec![false; b.rank(op, &x)?];
    for axis in axes {
        let count = signed(is_new.len()) + 1;
        let place = if axis < 0 { axis.saturating_add(count) } else { axis };
        let place = usize::try_from(place).ok().filter(|place| *place <= is_new.len());
        let place =
            place.ok_or_else(|| op.malformed(format_args!("has the axis {axis} for {count} dimensions")))?;
        is_new.insert(place, true);
    }
    let places: Vec<i64> =
        is_new.iter().enumerate().filter(|(_, is_new)| **is_new).map(|(place, _)| signed(place)).collect();
    let y = b.unsqueeze(&x, &places);
    b.bind(op, "Out", y);
    Ok(())
}

/// `flatten`: merges the dimensions before the axis into one, and those from the axis on into another.
pub(super) fn flatten(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let axis = op.int("axis", 1);
    let y = b.node("Flatten", &[&x], vec![("axis", Attr::Int(axis))]);
    b.bind(op, "Out", y);
    Ok(())
}

/// `flatten_contiguous_range`: merges the dimensions `start_axis` to `stop_axis` into one.
pub(super) fn flatten_range(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let rank = b.rank(op, &x)?;
    let y = if rank == 0 {
        b.reshape(&x, &[1])
    } else {
        let start = b.axis(op, &x, op.int("start_axis", 1))?;
        let stop = b.axis(op, &x, op.int("stop_axis", 1))?;
        if start > stop {
            return Err(op.malformed("has a start axis after its stop axis"));
        }
        merge(b, &x, start, stop)
    };
    b.bind(op, "Out", y);
    Ok(())
}

/// Merges the dimensions `start` to `stop` into one.
pub(super) fn merge(b: &mut Builder<'_>, x: &Value, start: usize, stop: usize) -> Value {
    let rank = x.rank().unwrap_or(0);
    if start == stop {
        return x.clone();
    }
    let merged: Option<i64> =
        (start..=stop).map(|axis| x.size(axis)).try_fold(1i64, |product, size| product.checked_mul(size?));
    let after_known = (stop + 1..rank).all(|axis| x.size(axis).is_some_and(|size| size > 0));
    if after_known || merged.is_some_and(|merged| merged > 0) {
        // 0 copies the size of a dimension: of the same place, so not behind the merged one.
        let mut sizes = vec![0; start];
        sizes.push(merged.filter(|merged| *merged > 0).unwrap_or(-1));
        let open = (stop + 1..rank).filter(|axis| x.size(*axis).is_none()).count();
        if open == 0 || (open == 1 && sizes[start] > 0) {
            sizes.extend((stop + 1..rank).map(|axis| x.size(axis).unwrap_or(-1)));
            return b.reshape(x, &sizes);
        }
    }
    let mut sizes = sizes_of(b, x, 0..start);
    sizes.push(match merged {
        Some(merged) => b.ints(&[merged]),
        None => product(b, x, start..stop + 1),
    });
    sizes.extend(sizes_of(b, x, stop + 1..rank));
    reshape_to(b, x, &sizes)
}

/// Returns the product of sizes as a tensor of rank 1.
fn product(b: &mut Builder<'_>, x: &Value, axes: std::ops::Range<usize>) -> Value {
    let mut total = b.ints(&[1]);
    for axis in axes {
        let size = b.dim(x, axis);
        total = b.binary("Mul", &total, &size);
    }
    total
}

/// `concat`: joins tensors along an axis.
pub(super) fn concat(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let values = b.inputs(op, "X")?;
    let axis = known_int(b, op, "axis", "AxisTensor", 0)?;
    let first = values.first().ok_or_else(|| op.malformed("lacks its inputs"))?;
    let axis = signed(b.axis(op, first, axis)?);
    let values: Vec<Value> = values
        .iter()
        .map(|value| if value.rank() == Some(0) { b.reshape(value, &[1]) } else { value.clone() })
        .collect();
    if values.iter().any(|value| value.dtype != values[0].dtype) {
        return Err(op.refuse("the inputs have different dtypes"));
    }
    let y = b.concat(&values.iter().collect::<Vec<_>>(), axis);
    b.bind(op, "Out", y);
    Ok(())
}

/// `partial_concat`: joins a range of columns of each matrix.
pub(super) fn partial_concat(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (start, length) = (op.int("start_index", 0), op.int("length", -1));
    let end = match start.saturating_add(length) {
        _ if length < 0 => i64::MAX,
        // A range that begins before the end counts from there.
        0 => i64::MAX,
        end => end,
    };
    let values = b.inputs(op, "X")?;
    let parts: Vec<Value> = values.iter().map(|value| b.slice(value, 1, start, end)).collect();
    if parts.is_empty() {
        return Err(op.malformed("lacks its inputs"));
    }
    let y = b.concat(&parts.iter().collect::<Vec<_>>(), 1);
    b.bind(op, "Out", y);
    Ok(())
}

/// Joins tensors of one shape along a new axis of the result.
fn stacked(b: &mut Builder<'_>, values: &[Value], axis: i64) -> Value {
    let parts: Vec<Value> = values.iter().map(|value| b.unsqueeze(value, &[axis])).collect();
    b.concat(&parts.iter().collect::<Vec<_>>(), axis)
}

/// `stack`: joins tensors of one shape along a new axis.
pub(super) fn stack(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let values = b.inputs(op, "X")?;
    let first = values.first().ok_or_else(|| op.malformed("lacks its inputs"))?;
    let rank = signed(b.rank(op, first)?) + 1;
    let axis = op.int("axis", 0);
    let axis = if axis < 0 { axis.saturating_add(rank) } else { axis };
    if !(0..rank).contains(&axis) {
        return Err(op.malformed(format_args!("has the axis {axis} for {rank} dimensions")));
    }
    let y = stacked(b, &values, axis);
    b.bind(op, "Y", y);
    Ok(())
}

/// Maximum number of parts of a tensor.
const MAX_PARTS: usize = 1 << 14;

/// Checks that an operator has an output for each part. In PIR, `builtin.slice` may take only some out of the list.
fn check_parts(op: &Op<'_>, slot: &str, parts: usize) -> Result<()> {
    let outputs = op.output(slot).len();
    let is_partial = op.is_pir && (outputs..=MAX_PARTS).contains(&parts);
    if parts > 0 && (parts == outputs || is_partial) {
        return Ok(());
    }
    Err(op.malformed(format_args!("has {outputs} outputs for {parts} parts")))
}

/// Splits along an axis: into parts of known sizes, or into equal parts.
pub(super) fn pieces(
    b: &mut Builder<'_>,
    x: &Value,
    axis: usize,
    sizes: Option<&Value>,
    count: usize,
) -> Vec<Value> {
    let at = signed(axis);
    let mut sizes = sizes.cloned();
    if let (None, Some(all)) = (&sizes, x.size(axis))
        && all % signed(count.max(1)) == 0
    {
        sizes = Some(b.ints(&vec![all / signed(count.max(1)); count]));
    }
    let known =
        sizes.as_ref().and_then(|s| s.constant.as_ref()).and_then(|c| c.as_ints()).map(<[i64]>::to_vec);
    if let (Some(_), Some(known)) = (&x.constant, &known) {
        let mut start = 0i64;
        let mut parts = Vec::new();
        for size in known {
            let end = start.saturating_add(*size);
            parts.push(b.slice(x, at, start, end));
            start = end;
        }
        return parts;
    }
    if count == 1 {
        return vec![x.clone()];
    }
    let mut attributes = vec![("axis", Attr::Int(at))];
    match sizes {
        Some(sizes) => b.nodes("Split", &[x, &sizes], attributes, count),
        None => {
            if b.opset >= 18 {
                attributes.push(("num_outputs", Attr::Int(signed(count))));
            }
            b.nodes("Split", &[x], attributes, count)
        }
    }
}

/// `unstack`, `unbind`: splits along an axis, and removes the axis.
pub(super) fn unstack(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let slot = if op.output("Y").is_empty() { "Out" } else { "Y" };
    let axis = b.axis(op, &x, op.int("axis", 0))?;
    let outputs = op.output(slot).len();
    let count = x.size(axis).map_or(outputs, |size| usize::try_from(size).unwrap_or(usize::MAX));
    check_parts(op, slot, count)?;
    let parts = pieces(b, &x, axis, None, count);
    for (name, part) in op.output(slot).iter().zip(parts) {
        b.next_part();
        let part = b.squeeze(&part, &[signed(axis)]);
        b.set(name, part);
    }
    Ok(())
}

/// `split`: splits along an axis into equal parts, or parts of these sizes; one size may be -1, the rest.
pub(super) fn split(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let axis = known_int(b, op, "axis", "AxisTensor", 0)?;
    let axis = b.axis(op, &x, axis)?;
    let number = op.int("num", 0);
    let sections = match number {
        0 => list(b, op, "sections", "SectionsTensorList", "SectionsTensorList")?
            .filter(|s| !s.items.is_empty()),
        _ => None,
    };
    let count = match &sections {
        Some(sections) => sections.items.len(),
        None => usize::try_from(number).unwrap_or(0),
    };
    check_parts(op, "Out", count)?;
    let sizes = match sections {
        None => None,
        Some(sections) => Some(match sections.known() {
            Some(known) if !known.contains(&-1) => sections.value,
            _ => {
                // The other sizes and the -1 add up to one less than they take together.
                let all = b.node("ReduceSum", &[&sections.value], vec![("keepdims", Attr::Int(1))]);
                let size = b.dim(&x, axis);
                let (rest, one) = (b.binary("Sub", &size, &all), b.ints(&[1]));
                let rest = b.binary("Sub", &rest, &one);
                let parts: Vec<Value> = (0..count)
                    .map(|place| match sections.items[place] {
                        Some(-1) => rest.clone(),
                        Some(size) => b.ints(&[size]),
                        None => {
                            let (own, zero) = (sections.item(b, place), b.ints(&[0]));
                            let is_rest = b.binary("Less", &own, &zero);
                            b.node("Where", &[&is_rest, &rest, &own], Vec::new())
                        }
                    })
                    .collect();
                b.concat(&parts.iter().collect::<Vec<_>>(), 0)
            }
        }),
    };
    let parts = pieces(b, &x, axis, sizes.as_ref(), count);
    b.bind_all(op, "Out", parts);
    Ok(())
}

/// Dtypes of `Tile` in ONNX Runtime.
const TILE: &[DType] =
    &[DType::F32, DType::F64, DType::I8, DType::I16, DType::I32, DType::I64, DType::U8, DType::Bool];

/// Repeats each dimension; missing ones are added in front.
fn tiled(b: &mut Builder<'_>, op: &Op<'_>, x: &Value, times: &List) -> Result<Value> {
    let rank = b.rank(op, x)?;
    let count = times.items.len();
    let missing = vec![1; rank.saturating_sub(count)];
    let missing = b.ints(&missing);
    let times = b.concat(&[&missing, &times.value], 0);
    let new: Vec<i64> = (0..signed(count.saturating_sub(rank))).collect();
    let x = b.unsqueeze(x, &new);
    if times.constant.as_ref().and_then(|c| c.as_ints()).is_some_and(|times| times.iter().all(|t| *t == 1)) {
        return Ok(x);
    }
    Ok(within(b, &x, TILE, |b, x| b.binary("Tile", x, &times)))
}

/// `tile`: repeats the tensor along each dimension.
pub(super) fn tile(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let times = list(b, op, "repeat_times", "RepeatTimes", "repeat_times_tensor")?;
    let times = times.ok_or_else(|| op.malformed("lacks its repeats"))?;
    let y = tiled(b, op, &x, &times)?;
    b.bind(op, "Out", y);
    Ok(())
}

/// `expand` of the first version: repeats the tensor along each dimension.
pub(super) fn expand_times(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let times = list(b, op, "expand_times", "ExpandTimes", "expand_times_tensor")?;
    let times = times.ok_or_else(|| op.malformed("lacks its repeats"))?;
    let y = tiled(b, op, &x, &times)?;
    b.bind(op, "Out", y);
    Ok(())
}

/// `expand`: broadcasts to a shape; -1 keeps the size.
pub(super) fn expand(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let shape = list(b, op, "shape", "Shape", "expand_shapes_tensor")?;
    let shape = shape.ok_or_else(|| op.malformed("lacks its shape"))?;
    let target = match shape.known() {
        Some(sizes) => b.ints(&sizes.iter().map(|s| if *s < 0 { 1 } else { *s }).collect::<Vec<_>>()),
        // -1 is the only negative number.
        None => b.unary("Abs", &shape.value),
    };
    let mut y = expand_to(b, &x, &target);
    if let Some(dims) = &mut y.dims {
        for (dim, item) in dims.iter_mut().zip(&shape.items) {
            if let Some(size) = item.filter(|size| *size >= 0) {
                *dim = Dim::Size(size);
            }
        }
    }
    b.bind(op, "Out", y);
    Ok(())
}

/// `expand_as`: broadcasts to the shape of `Y`, or to `target_shape`.
pub(super) fn expand_as(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let shape = match (b.optional(op, "Y")?, op.ints("target_shape")) {
        (Some(y), _) => b.shape_of(&y),
        (None, Some(sizes)) if sizes.iter().all(|size| *size >= 0) => b.ints(&sizes),
        _ => return Err(op.malformed("lacks its shape")),
    };
    let y = expand_to(b, &x, &shape);
    b.bind(op, "Out", y);
    Ok(())
}

/// `broadcast_tensors`: broadcasts tensors to a joint shape.
pub(super) fn broadcast_tensors(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let values = b.inputs(op, "X")?;
    let shape = joint_shape(b, op, &values.iter().collect::<Vec<_>>())?;
    let values = values.iter().map(|value| expand_to(b, value, &shape)).collect();
    b.bind_all(op, "Out", values);
    Ok(())
}

/// `meshgrid`: grids of coordinates, one for each tensor of rank 1.
pub(super) fn meshgrid(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let values = b.inputs(op, "X")?;
    let count = values.len();
    check_rank(count)?;
    let mut parts = Vec::new();
    for (place, value) in values.iter().enumerate() {
        let mut sizes = vec![1; count];
        sizes[place] = -1;
        let size = value.size(0).filter(|_| value.rank() == Some(1));
        sizes[place] = size.unwrap_or(-1);
        let parted = if size == Some(0) {
            let sizes = b.ints(&sizes);
            reshape_to(b, value, &[sizes])
        } else {
            b.reshape(value, &sizes)
        };
        parts.push(parted);
    }
    let shape = joint_shape(b, op, &parts.iter().collect::<Vec<_>>())?;
    let grids = parts.iter().map(|part| expand_to(b, part, &shape)).collect();
    b.bind_all(op, "Out", grids);
    Ok(())
}

// ---- channels

/// Dtypes of `DepthToSpace` and `SpaceToDepth` in ONNX Runtime.
const BLOCKS: &[DType] = &[DType::F32, DType::F64];

/// Computes with the channels before the sizes of images.
fn channels_first(
    b: &mut Builder<'_>,
    op: &Op<'_>,
    make: impl FnOnce(&mut Builder<'_>, &Value) -> Result<Value>,
) -> Result<()> {
    let x = b.input(op, "X")?;
    if b.rank(op, &x)? != 4 {
        return Err(op.malformed("needs four dimensions"));
    }
    let is_last = op.text("data_format", "NCHW") == "NHWC";
    let y = if is_last {
        let x = b.transpose(&x, &[0, 3, 1, 2]);
        let y = make(b, &x)?;
        b.transpose(&y, &[0, 2, 3, 1])
    } else {
        make(b, &x)?
    };
    b.bind(op, "Out", y);
    Ok(())
}

/// Returns the positive number of an attribute.
fn positive(op: &Op<'_>, name: &str) -> Result<i64> {
    let number = op.int(name, 1);
    if (1..=1 << 20).contains(&number) {
        return Ok(number);
    }
    Err(op.malformed(format_args!("has the value {number} of {name}")))
}

/// `pixel_shuffle`: moves blocks of channels into squares of pixels; channel c * r * r + i * r + j goes to pixel (i, j) of channel c.
pub(super) fn pixel_shuffle(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let factor = positive(op, "upscale_factor")?;
    channels_first(b, op, |b, x| {
        let attributes = vec![("blocksize", Attr::Int(factor)), ("mode", Attr::Text("CRD".to_owned()))];
        Ok(within(b, x, BLOCKS, |b, x| b.node("DepthToSpace", &[x], attributes)))
    })
}

/// Maximum channels that are permuted by a list of indices.
const MAX_CHANNELS: i64 = 1 << 16;

/// Permutes channels: channel `i * columns + j` is taken from `j * rows + i`.
fn permute_channels(b: &mut Builder<'_>, x: &Value, rows: i64, columns: i64) -> Value {
    let order: Vec<i64> = (0..rows).flat_map(|i| (0..columns).map(move |j| j * rows + i)).collect();
    let order = b.ints(&order);
    b.gather(x, &order, 1)
}

/// `pixel_unshuffle`: moves squares of pixels into channels; the inverse of `pixel_shuffle`.
pub(super) fn pixel_unshuffle(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let factor = positive(op, "downscale_factor")?;
    channels_first(b, op, |b, x| {
        let channels = x.size(1).filter(|c| c.saturating_mul(factor * factor) <= MAX_CHANNELS);
        let channels = channels.ok_or_else(|| op.refuse("the number of channels is unknown or too large"))?;
        let attributes = vec![("blocksize", Attr::Int(factor))];
        let y = within(b, x, BLOCKS, |b, x| b.node("SpaceToDepth", &[x], attributes));
        Ok(if channels == 1 { y } else { permute_channels(b, &y, channels, factor * factor) })
    })
}

/// `channel_shuffle`: exchanges the order of groups and of channels in a group.
pub(super) fn channel_shuffle(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let groups = if op.has("groups") { positive(op, "groups")? } else { positive(op, "group")? };
    channels_first(b, op, |b, x| {
        let channels = x.size(1).filter(|c| *c <= MAX_CHANNELS && c % groups == 0);
        let channels = channels.ok_or_else(|| op.refuse("the number of channels is unknown or too large"))?;
        Ok(permute_channels(b, x, channels / groups, groups))
    })
}

/// `temporal_shift`: takes the first channels from the segment before, the next ones from the segment after.
pub(super) fn temporal_shift(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let segments = positive(op, "seg_num")?;
    channels_first(b, op, |b, x| {
        let channels = x.size(1).ok_or_else(|| op.refuse("the number of channels is unknown"))?;
        #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss)]
        // The framework computes in 32 bits and truncates.
        let (first, second) = {
            let ratio = op.float("shift_ratio", 0.25) as f32;
            ((channels as f32 * ratio) as i64, (channels as f32 * 2.0 * ratio) as i64)
        };
        let mut sizes = vec![b.ints(&[-1]), b.ints(&[segments])];
        sizes.extend(sizes_of(b, x, 1..4));
        let shape = b.concat(&sizes.iter().collect::<Vec<_>>(), 0);
        let y = b.binary("Reshape", x, &shape);
        let part = |b: &mut Builder<'_>, from: i64, to: i64| b.slice(&y, 2, from, to);
        let (before, after) = (part(b, 0, first), part(b, first, second));
        let rest = part(b, second, i64::MAX);
        let shifted = |b: &mut Builder<'_>, x: &Value, by: i64| {
            let kept = if by > 0 { b.slice(x, 1, 0, segments - 1) } else { b.slice(x, 1, 1, i64::MAX) };
            let edge = b.slice(x, 1, 0, 1);
            let shape = b.shape_of(&edge);
            let zeros = b.filled(&shape, 0.0, x.dtype);
            if by > 0 { b.concat(&[&zeros, &kept], 1) } else { b.concat(&[&kept, &zeros], 1) }
        };
        let (before, after) = (shifted(b, &before, 1), shifted(b, &after, -1));
        let joined = b.concat(&[&before, &after, &rest], 2);
        let mut sizes = vec![b.ints(&[-1])];
        sizes.extend(sizes_of(b, x, 1..4));
        let shape = b.concat(&sizes.iter().collect::<Vec<_>>(), 0);
        Ok(b.binary("Reshape", &joined, &shape))
    })
}

// ---- repeats and windows

/// `repeat_interleave`: repeats each element of an axis: all equally often, or each as often as a tensor says.
pub(super) fn repeat_interleave(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let axis = b.axis(op, &x, op.int("dim", 0))?;
    let repeats = b.optional(op, "RepeatsTensor")?;
    let size = b.dim(&x, axis);
    let places = match repeats {
        None => {
            let times = op.int("Repeats", 1).max(0);
            let times = b.int(times);
            let total = b.binary("Mul", &size, &times);
            let places = count_up(b, &total);
            b.binary("Div", &places, &times)
        }
        Some(repeats) => {
            let repeats = b.cast(&repeats, DType::I64);
            let repeats = expand_to(b, &repeats, &size);
            // Place p belongs to the first element whose sum of repeats exceeds p.
            let zero = b.int(0);
            let sums = b.node("CumSum", &[&repeats, &zero], Vec::new());
            let total = b.node("ReduceSum", &[&repeats], vec![("keepdims", Attr::Int(0))]);
            let places = count_up(b, &total);
            let places = b.unsqueeze(&places, &[1]);
            let is_past = b.binary("GreaterOrEqual", &places, &sums);
            let is_past = b.cast(&is_past, DType::I64);
            let last = b.ints(&[1]);
            b.node("ReduceSum", &[&is_past, &last], vec![("keepdims", Attr::Int(0))])
        }
    };
    let y = b.gather(&x, &places, signed(axis));
    b.bind(op, "Out", y);
    Ok(())
}
