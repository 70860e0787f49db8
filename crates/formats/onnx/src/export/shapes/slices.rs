//! Slices, assignment to slices, padding, rolling.

use super::create::elements;
use super::{List, count_up, expand_to, joint_shape, list, reshape_to, select, signed, within};
use crate::export::builder::{Builder, Value};
use crate::export::math;
use crate::export::operator::Op;
use crate::model::Attr;
use weighbridge_core::error::Result;
use weighbridge_core::tensor::DType;

/// Ranges of some axes.
struct Ranges {
    axes: Vec<usize>,
    starts: List,
    ends: List,
    steps: Option<List>,
}

impl Ranges {
    /// Reads the ranges; slots of tensors are named `StartsTensor` and so on, or with `List` behind.
    fn of(b: &mut Builder<'_>, op: &Op<'_>, x: &Value, steps: &str) -> Result<Self> {
        let axes = op.ints("axes").ok_or_else(|| op.malformed("lacks its axes"))?;
        let axes = axes.iter().map(|axis| b.axis(op, x, *axis)).collect::<Result<Vec<_>>>()?;
        let missing = || op.malformed("lacks its starts or ends");
        let starts = list(b, op, "starts", "StartsTensor", "StartsTensorList")?.ok_or_else(missing)?;
        let ends = list(b, op, "ends", "EndsTensor", "EndsTensorList")?.ok_or_else(missing)?;
        let slot = if steps == "strides" { "StridesTensor" } else { "StepsTensor" };
        let steps = list(b, op, steps, slot, &format!("{slot}List"))?.filter(|steps| !steps.items.is_empty());
        let steps = steps.filter(|steps| steps.items.iter().any(|step| *step != Some(1)));
        let counts = [&starts, &ends].into_iter().chain(&steps).map(|list| list.items.len());
        if counts.into_iter().any(|count| count != axes.len()) {
            return Err(op.malformed("has different numbers of axes, starts and ends"));
        }
        Ok(Self { axes, starts, ends, steps })
    }

    /// Makes the range of a removed axis, which begins at the last place, end at the end of the axis.
    fn complete(&mut self, b: &Builder<'_>, removed: &[usize]) {
        let (Some(starts), Some(mut ends)) = (self.starts.known(), self.ends.known()) else { return };
        for (place, axis) in self.axes.iter().enumerate() {
            if removed.contains(axis) && starts[place] == -1 && ends[place] == 0 {
                ends[place] = i64::MAX;
            }
        }
        self.ends = List::of(b, &ends);
    }

    /// Translates the ends of steps backwards in `ProgramDesc`: -1 is before the first place. With `at_most_first`, other ends
    /// before the first place count as the first.
    fn before_first(&mut self, b: &mut Builder<'_>, x: &Value, at_most_first: bool) {
        let Some(steps) = self.steps.as_ref().and_then(List::known) else { return };
        let (minus, lowest, zero) = (b.ints(&[-1]), b.ints(&[-i64::MAX]), b.ints(&[0]));
        let mut ends = Vec::new();
        for (place, step) in steps.iter().enumerate() {
            let end = self.ends.items[place];
            if *step > 0 || end.is_some_and(|end| end >= 0) {
                ends.push(self.ends.item(b, place));
                continue;
            }
            let own = self.ends.item(b, place);
            let size = b.dim(x, self.axes[place]);
            let clamped = match (end, x.size(self.axes[place])) {
                _ if !at_most_first => own.clone(),
                (Some(end), Some(size)) => b.ints(&[end.saturating_add(size).max(0)]),
                _ => {
                    let end = b.binary("Add", &own, &size);
                    let end = b.binary("Max", &end, &zero);
                    let is_front = b.binary("Less", &own, &zero);
                    b.node("Where", &[&is_front, &end, &own], Vec::new())
                }
            };
            ends.push(match end {
                Some(-1) => lowest.clone(),
                Some(_) => clamped,
                None => {
                    let is_first = b.binary("Equal", &own, &minus);
                    b.node("Where", &[&is_first, &lowest, &clamped], Vec::new())
                }
            });
        }
        let items = ends
            .iter()
            .map(|end| end.constant.as_ref().and_then(|c| c.as_ints()).and_then(|e| e.first().copied()));
        let items = items.collect();
        self.ends = List { items, value: b.concat(&ends.iter().collect::<Vec<_>>(), 0) };
    }

    /// Adds the `Slice` node.
    fn cut(&self, b: &mut Builder<'_>, x: &Value) -> Value {
        if self.axes.is_empty() {
            return x.clone();
        }
        let axes: Vec<i64> = self.axes.iter().copied().map(signed).collect();
        let axes = b.ints(&axes);
        let mut inputs = vec![x, &self.starts.value, &self.ends.value, &axes];
        inputs.extend(self.steps.as_ref().map(|steps| &steps.value));
        b.node("Slice", &inputs, Vec::new())
    }

    /// Returns the first places of removed axes, if each has one place.
    fn single(&self, b: &mut Builder<'_>, removed: &[usize]) -> Option<Vec<(usize, Value)>> {
        if self.steps.is_some() {
            return None;
        }
        let mut firsts = Vec::new();
        for axis in removed {
            let place = self.axes.iter().position(|own| own == axis)?;
            match (self.starts.items[place], self.ends.items[place]) {
                (Some(start), Some(end)) if start.checked_add(1) != Some(end) && start != -1 => return None,
                _ => {}
            }
            firsts.push((*axis, self.starts.item(b, place)));
        }
        Some(firsts)
    }
}

/// `slice`, `strided_slice`: ranges of some axes. Bounds beyond the size are cut to it; axes in `decrease_axis` are removed.
pub(super) fn slice(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "Input")?;
    if x.is_sequence {
        return Err(op.refuse("slices of lists are not supported"));
    }
    let mut ranges = Ranges::of(b, op, &x, "strides")?;
    let removed = op.ints("decrease_axis").unwrap_or_default();
    let removed: Vec<usize> = removed.iter().map(|axis| b.axis(op, &x, *axis)).collect::<Result<_>>()?;
    ranges.complete(b, &removed);
    if !op.is_pir {
        ranges.before_first(b, &x, true);
    }
    // The parts of complex numbers are a dimension behind all others.
    let parts = math::pair_of(&x);
    let data = parts.as_ref().unwrap_or(&x);
    let y = match ranges.single(b, &removed) {
        Some(mut firsts) => {
            let kept: Vec<usize> =
                (0..ranges.axes.len()).filter(|place| !removed.contains(&ranges.axes[*place])).collect();
            let mut pick = |list: &List| {
                let values: Vec<Value> = kept.iter().map(|place| list.item(b, *place)).collect();
                let value = if values.is_empty() {
                    b.ints(&[])
                } else {
                    b.concat(&values.iter().collect::<Vec<_>>(), 0)
                };
                List { items: kept.iter().map(|place| list.items[*place]).collect(), value }
            };
            let (starts, ends) = (pick(&ranges.starts), pick(&ranges.ends));
            let axes = kept.iter().map(|place| ranges.axes[*place]).collect();
            let mut y = Ranges { axes, starts, ends, steps: None }.cut(b, data);
            firsts.sort_by_key(|(axis, _)| std::cmp::Reverse(*axis));
            for (axis, first) in firsts {
                let first = super::scalar(b, &first, DType::I64);
                y = b.gather(&y, &first, signed(axis));
            }
            y
        }
        None => {
            let y = ranges.cut(b, data);
            let removed: Vec<i64> = removed.into_iter().map(signed).collect();
            b.squeeze(&y, &removed)
        }
    };
    let y = if parts.is_some() { math::complex_of(&y) } else { y };
    b.bind(op, "Out", y);
    Ok(())
}

/// `crop`: a range of each axis by offset and size; the size -1 is the rest.
pub(super) fn crop(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let rank = b.rank(op, &x)?;
    let shape = match b.optional(op, "Y")? {
        Some(y) => {
            let value = b.shape_of(&y);
            let sizes = (0..b.rank(op, &y)?).map(|axis| y.size(axis)).collect();
            Some(List { items: sizes, value })
        }
        None => list(b, op, "shape", "Shape", "ShapeTensor")?,
    };
    let shape = shape.ok_or_else(|| op.malformed("lacks its shape"))?;
    let offsets = match list(b, op, "offsets", "Offsets", "OffsetsTensor")? {
        Some(offsets) if !offsets.items.is_empty() => offsets,
        _ => List::of(b, &vec![0; rank]),
    };
    if shape.items.len() != rank || offsets.items.len() != rank {
        return Err(op.malformed("has another number of sizes than of dimensions"));
    }
    let mut ends = Vec::new();
    for (place, size) in shape.items.iter().enumerate() {
        ends.push(match size {
            Some(size) if *size < 0 => b.ints(&[i64::MAX]),
            size => {
                let (offset, own) = (offsets.item(b, place), shape.item(b, place));
                let end = b.binary("Add", &offset, &own);
                if size.is_some() {
                    end
                } else {
                    let (zero, last) = (b.ints(&[0]), b.ints(&[i64::MAX]));
                    let is_rest = b.binary("Less", &own, &zero);
                    b.node("Where", &[&is_rest, &last, &end], Vec::new())
                }
            }
        });
    }
    let ends = if ends.is_empty() { b.ints(&[]) } else { b.concat(&ends.iter().collect::<Vec<_>>(), 0) };
    let ends = List { items: vec![None; rank], value: ends };
    let y = Ranges { axes: (0..rank).collect(), starts: offsets, ends, steps: None }.cut(b, &x);
    b.bind(op, "Out", y);
    Ok(())
}

/// `set_value`: a copy of the input whose slice is replaced by a value, which is broadcast to the slice. Axes in `decrease_axes`
/// are removed from the shape of the slice, and axes of size 1 inserted at `none_axes`.
pub(super) fn set_value(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "Input")?;
    let rank = b.rank(op, &x)?;
    let value = match b.optional(op, "ValueTensor")? {
        Some(value) => b.cast(&value, x.dtype),
        None => Value::of(elements(op, x.dtype)?),
    };
    let mut ranges = Ranges::of(b, op, &x, "steps")?;
    let removed = op.ints("decrease_axes").unwrap_or_default();
    let removed: Vec<usize> = removed.iter().map(|axis| b.axis(op, &x, *axis)).collect::<Result<_>>()?;
    ranges.complete(b, &removed);
    if !op.is_pir {
        ranges.before_first(b, &x, false);
    }

    // The flat places of the slice.
    let shape = b.shape_of(&x);
    let count = b.node("ReduceProd", &[&shape], vec![("keepdims", Attr::Int(0))]);
    let places = count_up(b, &count);
    let places = b.node("Reshape", &[&places, &shape], vec![("allowzero", Attr::Int(1))]);
    let places = ranges.cut(b, &places);
    let removed: Vec<i64> = removed.into_iter().map(signed).collect();
    let mut places = b.squeeze(&places, &removed);
    let mut new = op.ints("none_axes").unwrap_or_default();
    new.sort_unstable();
    if !new.is_empty() {
        places = b.unsqueeze(&places, &new);
    }

    let extra = b.rank(op, &value)?.saturating_sub(places.rank().unwrap_or(rank));
    let extra: Vec<i64> = (0..signed(extra)).collect();
    let value = b.squeeze(&value, &extra);
    let shape_of_places = b.shape_of(&places);
    let value = expand_to(b, &value, &shape_of_places);
    let (value, places) = (b.reshape(&value, &[-1]), b.reshape(&places, &[-1]));
    let flat = b.reshape(&x, &[-1]);
    let flat = b.node("ScatterElements", &[&flat, &places, &value], vec![("axis", Attr::Int(0))]);
    let mut y = b.node("Reshape", &[&flat, &shape], vec![("allowzero", Attr::Int(1))]);
    y.dims = x.dims;
    b.bind(op, "Out", y);
    Ok(())
}

// ---- padding

/// Dtypes of `Pad` in ONNX Runtime.
const PAD: &[DType] = &[DType::F32, DType::F64, DType::I32, DType::I64, DType::I8, DType::U8, DType::Bool];

/// Pads axes, each by a number of places before and after.
fn padded(
    b: &mut Builder<'_>,
    op: &Op<'_>,
    x: &Value,
    pads: &[(usize, Value, Value)],
    mode: &str,
    filler: &Value,
) -> Result<Value> {
    if mode == "circular" {
        let mut y = x.clone();
        for (axis, before, after) in pads {
            let (Some(before), Some(after)) = (b.known_ints(before)?, b.known_ints(after)?) else {
                return Err(op.refuse("circular padding that is known only at run time"));
            };
            y = wrapped(
                b,
                &y,
                *axis,
                before.first().copied().unwrap_or(0),
                after.first().copied().unwrap_or(0),
            );
        }
        return Ok(y);
    }
    let zero = b.ints(&[0]);
    let mut bounds = Vec::new();
    for side in 0..2 {
        for axis in 0..b.rank(op, x)? {
            let own = pads.iter().find(|(own, ..)| *own == axis);
            bounds.push(own.map_or(&zero, |(_, before, after)| if side == 0 { before } else { after }));
        }
    }
    if bounds.is_empty() {
        return Ok(x.clone());
    }
    let bounds = b.concat(&bounds, 0);
    let mode = match mode {
        "constant" => "constant",
        "reflect" => "reflect",
        "edge" | "replicate" => "edge",
        other => return Err(op.refuse(format_args!("the mode {}", weighbridge_core::text::escape(other)))),
    };
    let attributes = vec![("mode", Attr::Text(mode.to_owned()))];
    Ok(within(b, x, PAD, |b, x| {
        if mode == "constant" {
            let filler = super::scalar(b, filler, x.dtype);
            b.node("Pad", &[x, &bounds, &filler], attributes)
        } else {
            b.node("Pad", &[x, &bounds], attributes)
        }
    }))
}

/// Continues an axis with its other end.
fn wrapped(b: &mut Builder<'_>, x: &Value, axis: usize, before: i64, after: i64) -> Value {
    let at = signed(axis);
    let mut parts = Vec::new();
    if before > 0 {
        parts.push(b.slice(x, at, -before, i64::MAX));
    }
    parts.push(x.clone());
    if after > 0 {
        parts.push(b.slice(x, at, 0, after));
    }
    b.concat(&parts.iter().collect::<Vec<_>>(), at)
}

/// Returns the constant that fills the padding.
fn filler(b: &mut Builder<'_>, op: &Op<'_>, name: &str, x: &Value) -> Value {
    b.scalar(op.float(name, 0.0), x.dtype)
}

/// `pad`: constant padding; `paddings` has the places before and after each axis.
pub(super) fn pad(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let paddings = op.ints("paddings").unwrap_or_default();
    if b.rank(op, &x)?.checked_mul(2) != Some(paddings.len()) {
        return Err(op.malformed("has another number of paddings than of dimensions"));
    }
    let value = match b.optional(op, "PadValue")? {
        Some(value) => b.cast(&value, x.dtype),
        None => filler(b, op, "pad_value", &x),
    };
    let pads: Vec<_> = paddings
        .chunks(2)
        .enumerate()
        .map(|(axis, pair)| (axis, b.ints(&pair[..1]), b.ints(&pair[1..])))
        .collect();
    let y = padded(b, op, &x, &pads, "constant", &value)?;
    b.bind(op, "Out", y);
    Ok(())
}

/// `pad2d`: pads images; `paddings` are top, bottom, left, right.
pub(super) fn pad2d(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let axes: &[usize] = if op.text("data_format", "NCHW") == "NHWC" { &[1, 2] } else { &[2, 3] };
    pad_axes(b, op, axes, "pad_value")
}

/// `pad3d`: pads volumes; `paddings` are left, right, top, bottom, front, back.
pub(super) fn pad3d(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let axes: &[usize] = if op.text("data_format", "NCDHW") == "NDHWC" { &[3, 2, 1] } else { &[4, 3, 2] };
    pad_axes(b, op, axes, "value")
}

fn pad_axes(b: &mut Builder<'_>, op: &Op<'_>, axes: &[usize], name: &str) -> Result<()> {
    let x = b.input(op, "X")?;
    let paddings = list(b, op, "paddings", "Paddings", "Paddings")?;
    let paddings = paddings.ok_or_else(|| op.malformed("lacks its paddings"))?;
    if paddings.items.len() != axes.len() * 2 || b.rank(op, &x)? != axes.len() + 2 {
        return Err(op.malformed("has another number of paddings than of dimensions"));
    }
    let mut pads = Vec::new();
    for (place, axis) in axes.iter().enumerate() {
        pads.push((*axis, paddings.item(b, place * 2), paddings.item(b, place * 2 + 1)));
    }
    let value = filler(b, op, name, &x);
    let y = padded(b, op, &x, &pads, op.text("mode", "constant"), &value)?;
    b.bind(op, "Out", y);
    Ok(())
}

// ---- order of elements

/// Rolls one axis; `shift` has one element.
fn rolled(b: &mut Builder<'_>, x: &Value, axis: usize, shift: &Value) -> Value {
    let size = b.dim(x, axis);
    // The remainder has the sign of the size.
    let start = match (x.size(axis), shift.constant.as_ref().and_then(|c| c.as_ints())) {
        (Some(0), _) => return x.clone(),
        (Some(size), Some([shift])) => b.ints(&[size - shift.rem_euclid(size)]),
        _ => {
            let one = b.ints(&[1]);
            let divisor = b.binary("Max", &size, &one);
            let shift = b.binary("Mod", shift, &divisor);
            b.binary("Sub", &size, &shift)
        }
    };
    let at = b.ints(&[signed(axis)]);
    let (zero, last) = (b.ints(&[0]), b.ints(&[i64::MAX]));
    let end = b.node("Slice", &[x, &start, &last, &at], Vec::new());
    let front = b.node("Slice", &[x, &zero, &start, &at], Vec::new());
    let mut y = b.concat(&[&end, &front], signed(axis));
    y.dims.clone_from(&x.dims);
    y
}

/// `roll`: moves elements along axes by a number of places, around the end; without axes, in the flat tensor.
pub(super) fn roll(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let shifts = list(b, op, "shifts", "ShiftsTensor", "ShiftsTensor")?;
    let shifts = shifts.ok_or_else(|| op.malformed("lacks its shifts"))?;
    let axes = op.ints("axis").unwrap_or_default();
    let y = if axes.is_empty() {
        let flat = b.reshape(&x, &[-1]);
        let shift = shifts.item(b, 0);
        let y = rolled(b, &flat, 0, &shift);
        let shape = b.shape_of(&x);
        reshape_to(b, &y, &[shape])
    } else {
        let mut y = x.clone();
        for (place, axis) in axes.iter().enumerate().take(shifts.items.len()) {
            let axis = b.axis(op, &x, *axis)?;
            let shift = shifts.item(b, place);
            y = rolled(b, &y, axis, &shift);
        }
        y
    };
    b.bind(op, "Out", y);
    Ok(())
}

/// `flip`, `reverse`: reverses the order along axes.
pub(super) fn flip(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let axes = op.ints("axis").unwrap_or_default();
    let mut places = axes.iter().map(|axis| b.axis(op, &x, *axis)).collect::<Result<Vec<_>>>()?;
    places.sort_unstable();
    places.dedup();
    let count = places.len();
    let list = |b: &Builder<'_>, value: i64| List::of(b, &vec![value; count]);
    let (starts, ends, steps) = (list(b, -1), list(b, -i64::MAX), list(b, -1));
    let y = if x.rank() == Some(0) {
        x
    } else {
        let mut y = Ranges { axes: places, starts, ends, steps: Some(steps) }.cut(b, &x);
        y.dims = x.dims;
        y
    };
    b.bind(op, "Out", y);
    Ok(())
}

/// `masked_fill`: the value where the mask is true, else the input; all are broadcast.
pub(super) fn masked_fill(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (x, mask, value) = (b.input(op, "X")?, b.input(op, "Mask")?, b.input(op, "Value")?);
    let value = b.cast(&value, x.dtype);
    let y = select(b, &mask, &value, &x);
    b.bind(op, "Out", y);
    Ok(())
}

/// `masked_select`: the elements where the mask is true, in order; both are broadcast.
pub(super) fn masked_select(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (x, mask) = (b.input(op, "X")?, b.input(op, "Mask")?);
    let shape = joint_shape(b, op, &[&x, &mask])?;
    let (x, mask) = (expand_to(b, &x, &shape), expand_to(b, &mask, &shape));
    let (x, mask) = (b.reshape(&x, &[-1]), b.reshape(&mask, &[-1]));
    let y = b.node("Compress", &[&x, &mask], vec![("axis", Attr::Int(0))]);
    b.bind(op, "Y", y);
    Ok(())
}
