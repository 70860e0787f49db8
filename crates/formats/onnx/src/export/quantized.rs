//! Quantization.
//!
//! Paddle keeps quantized values as floats: `n` = 127 steps for 8 bits, a scale that belongs to the largest step. Its rounding differs
//! from `QuantizeLinear` of ONNX where a value lies between two steps, so the arithmetic is written out, in the order of Paddle.

use super::builder::{Builder, Value};
use super::operator::{Op, Row, row};
use crate::constant::Constant;
use weighbridge_core::error::Result;
use weighbridge_core::tensor::DType;

/// Operators of this family.
#[rustfmt::skip]
pub(super) const ROWS: &[Row] = &[
    row("quantize_linear", "quantize_linear", "X Scale ZeroPoint InAccum InState", "Y OutState OutAccum OutScale", quantize_linear),
    row("dequantize_linear", "dequantize_linear", "X Scale ZeroPoint InAccum InState", "Y OutState OutAccum OutScale", dequantize_linear),
    row("fake_quantize_abs_max", "fake_quantize_abs_max", "X", "Out OutScale", fake_quantize),
    row("fake_quantize_dequantize_abs_max", "fake_quantize_dequantize_abs_max", "X", "Out OutScale", fake_quantize_dequantize),
    row("fake_quantize_moving_average_abs_max", "fake_quantize_moving_average_abs_max", "X InScale InAccum InState", "Out OutScale OutState OutAccum", fake_quantize),
    row("fake_quantize_dequantize_moving_average_abs_max", "fake_quantize_dequantize_moving_average_abs_max", "X InScale InAccum InState", "Out OutScale OutState OutAccum", fake_quantize_dequantize),
    row("fake_quantize_range_abs_max", "fake_quantize_range_abs_max", "X InScale Iter", "Out OutScale OutScales", fake_quantize),
    row("fake_channel_wise_quantize_abs_max", "fake_channel_wise_quantize_abs_max", "X", "Out OutScale", fake_quantize),
    row("fake_channel_wise_quantize_dequantize_abs_max", "fake_channel_wise_quantize_dequantize_abs_max", "X", "Out OutScale", fake_quantize_dequantize),
    row("fake_dequantize_max_abs", "fake_dequantize_max_abs", "X Scale", "Out", fake_dequantize),
    row("fake_channel_wise_dequantize_max_abs", "fake_channel_wise_dequantize_max_abs", "X Scales", "Out", fake_channel_dequantize),
    row("moving_average_abs_max_scale", "", "X InAccum InState", "Out OutScale OutState OutAccum", observe),
];

/// Rounding of a value between two steps.
#[derive(Clone, Copy, PartialEq)]
enum Rounding {
    /// To the even step, then limited to -n-1..n.
    Even,
    /// Limited to the scale first, then away from zero.
    Away,
}

impl Rounding {
    fn of(op: &Op<'_>, default: i64) -> Self {
        if op.int("round_type", default) == 0 { Self::Even } else { Self::Away }
    }
}

/// Returns the number of the largest step.
fn steps(op: &Op<'_>) -> Result<f64> {
    let bits = op.int("bit_length", 8);
    if !(1..=16).contains(&bits) {
        return Err(op.malformed(format_args!("quantizes to {bits} bits")));
    }
    #[allow(clippy::cast_precision_loss)] // At most 16 bits.
    let steps = ((1_i64 << (bits - 1)) - 1) as f64;
    Ok(op.float("qmax", steps))
}

/// Returns the scale with the rank of `x`: one number, or one for each index of an axis.
fn along(b: &mut Builder<'_>, op: &Op<'_>, scale: &Value, x: &Value, axis: i64) -> Result<Value> {
    let scale = b.cast(scale, DType::F32);
    // A small parameter is a constant, so that what follows from it is computed while exporting.
    let scale = match b.known(&scale)? {
        Some(constant) => Value::of((*constant).clone()),
        None => scale,
    };
    if axis < 0 || x.rank() == Some(0) {
        return Ok(b.reshape(&scale, &[]));
    }
    let rank = b.rank(op, x)?;
    let axis = b.axis(op, x, axis)?;
    let mut sizes = vec![1; rank];
    sizes[axis] = -1;
    Ok(b.reshape(&scale, &sizes))
}

/// Returns the number of steps by the scale, computed as Paddle does; a scale of 0 counts as a small number.
fn factor(b: &mut Builder<'_>, scale: &Value, steps: f64) -> Value {
    if let Some(constant) = &scale.constant {
        #[allow(clippy::cast_possible_truncation)] // Paddle computes in 32 bits.
        let factor = |scale: &f64| {
            let scale = *scale as f32;
            let inverse = if scale <= 1e-30 { 1.0 / (scale + 1e-6) } else { 1.0 / scale };
            f64::from(steps as f32 * inverse)
        };
        let factors: Vec<f64> = constant.to_floats().iter().map(factor).collect();
        return Value::of(Constant::of_floats(&factors, DType::F32, &constant.shape));
    }
    let (one, least, more) =
        (b.scalar(1.0, DType::F32), b.scalar(1e-30, DType::F32), b.scalar(1e-6, DType::F32));
    let is_small = b.binary("LessOrEqual", scale, &least);
    let larger = b.binary("Add", scale, &more);
    let scale = b.node("Where", &[&is_small, &larger, scale], Vec::new());
    let inverse = b.binary("Div", &one, &scale);
    let steps = b.scalar(steps, DType::F32);
    b.binary("Mul", &inverse, &steps)
}

/// Rounds to steps. `scale` has the rank of `x`, or is a scalar.
fn to_steps(b: &mut Builder<'_>, x: &Value, scale: &Value, steps: f64, rounding: Rounding) -> Value {
    let factor = factor(b, scale, steps);
    if rounding == Rounding::Even {
        let y = b.binary("Mul", x, &factor);
        let y = b.unary("Round", &y);
        let (low, high) = (b.scalar(-steps - 1.0, DType::F32), b.scalar(steps, DType::F32));
        return b.node("Clip", &[&y, &low, &high], Vec::new());
    }
    let negative = b.unary("Neg", scale);
    let y = b.binary("Min", x, scale);
    let y = b.binary("Max", &y, &negative);
    let y = b.binary("Mul", &y, &factor);
    away(b, &y)
}

/// Rounds half-way values away from zero.
fn away(b: &mut Builder<'_>, x: &Value) -> Value {
    let sign = b.unary("Sign", x);
    let size = b.unary("Abs", x);
    let low = b.unary("Floor", &size);
    let rest = b.binary("Sub", &size, &low);
    let half = b.scalar(0.5, DType::F32);
    let is_more = b.binary("GreaterOrEqual", &rest, &half);
    let more = b.cast(&is_more, DType::F32);
    let size = b.binary("Add", &low, &more);
    b.binary("Mul", &size, &sign)
}

/// Multiplies by the scale and divides by the number of steps.
fn from_steps(b: &mut Builder<'_>, x: &Value, scale: &Value, steps: f64) -> Value {
    let steps = b.scalar(steps, DType::F32);
    let y = b.binary("Mul", x, scale);
    b.binary("Div", &y, &steps)
}

/// `quantize_linear`: step of each value. The zero point is not used by Paddle.
fn quantize_linear(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    if op.bool("only_observer", false) {
        let y = b.identity(&x);
        b.bind(op, "Y", y);
        return Ok(());
    }
    if !op.bool("is_test", true) {
        return Err(op.refuse("scales that are adapted while running are not supported"));
    }
    let scale = b.input(op, "Scale")?;
    let scale = along(b, op, &scale, &x, op.int("quant_axis", -1))?;
    let x = b.cast(&x, DType::F32);
    let y = to_steps(b, &x, &scale, steps(op)?, Rounding::of(op, 0));
    b.bind(op, "Y", y);
    Ok(())
}

/// `dequantize_linear`: step * scale / n, in the dtype of the scale.
fn dequantize_linear(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (x, scale) = (b.input(op, "X")?, b.input(op, "Scale")?);
    let dtype = scale.dtype;
    let x = b.cast(&x, DType::F32);
    if op.bool("only_observer", false) {
        let y = b.identity(&x);
        b.bind(op, "Y", y);
        return Ok(());
    }
    let scale = along(b, op, &scale, &x, op.int("quant_axis", -1))?;
    let y = from_steps(b, &x, &scale, steps(op)?);
    let y = b.cast(&y, dtype);
    b.bind(op, "Y", y);
    Ok(())
}

/// Returns the largest size of a value: of the tensor, or for each index of an axis.
fn abs_max(b: &mut Builder<'_>, op: &Op<'_>, x: &Value, axis: i64) -> Result<Value> {
    let size = b.unary("Abs", x);
    let rank = b.rank(op, x)?;
    let kept = if axis < 0 { None } else { Some(b.axis(op, x, axis)?) };
    let axes: Vec<i64> = (0..rank)
        .filter(|place| Some(*place) != kept)
        .filter_map(|place| i64::try_from(place).ok())
        .collect();
    if axes.is_empty() {
        return Ok(size);
    }
    Ok(b.reduce("ReduceMax", &size, &axes, kept.is_some()))
}

/// Returns the scale of a fake quantization with the rank of `x`: stored, or the largest size of the values.
fn scale_of(b: &mut Builder<'_>, op: &Op<'_>, x: &Value) -> Result<Value> {
    let axis = if op.kind.contains("channel_wise") { op.int("quant_axis", 0) } else { -1 };
    let is_test = op.bool("is_test", false);
    if op.kind.contains("moving_average") || op.kind.contains("range") {
        if !is_test {
            return Err(op.refuse("scales that are adapted while running are not supported"));
        }
        let scale = b.input(op, "InScale")?;
        return along(b, op, &scale, x, axis);
    }
    // A stored scale of channels is kept in the variable of the result.
    let stored = op.output("OutScale").first().copied().filter(|_| is_test && axis >= 0);
    if let Some(name) = stored
        && let Some(scale) = b.find(name)?
    {
        return along(b, op, &scale, x, axis);
    }
    abs_max(b, op, x, axis)
}

/// Assigns the scale of a fake quantization: rank 1.
fn bind_scale(b: &mut Builder<'_>, op: &Op<'_>, scale: &Value) {
    let scale = b.reshape(scale, &[-1]);
    b.bind(op, "OutScale", scale);
}

/// `fake_quantize_*`: step of each value, as a float.
fn fake_quantize(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let scale = scale_of(b, op, &x)?;
    let y = to_steps(b, &x, &scale, steps(op)?, Rounding::of(op, 1));
    bind_scale(b, op, &scale);
    b.bind(op, "Out", y);
    Ok(())
}

/// `fake_quantize_dequantize_*`: values rounded to steps.
fn fake_quantize_dequantize(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let scale = scale_of(b, op, &x)?;
    let steps = steps(op)?;
    let y = to_steps(b, &x, &scale, steps, Rounding::of(op, 1));
    let y = from_steps(b, &y, &scale, steps);
    bind_scale(b, op, &scale);
    b.bind(op, "Out", y);
    Ok(())
}

/// `fake_dequantize_max_abs`: x * scale / `max_range`.
fn fake_dequantize(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (x, scale) = (b.input(op, "X")?, b.input(op, "Scale")?);
    let scale = along(b, op, &scale, &x, -1)?;
    let x = b.cast(&x, DType::F32);
    let y = from_steps(b, &x, &scale, op.float("max_range", 127.0));
    b.bind(op, "Out", y);
    Ok(())
}

/// `fake_channel_wise_dequantize_max_abs`: x * scale / n with a scale for each channel, and then with a second scale if present.
fn fake_channel_dequantize(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let scales = b.inputs(op, "Scales")?;
    let bits = op.ints("quant_bits").unwrap_or_else(|| vec![8]);
    let range = |place: usize| match bits.get(place) {
        #[allow(clippy::cast_precision_loss)] // At most 16 bits.
        Some(bits @ 1..=16) => Ok(((1_i64 << (bits - 1)) - 1) as f64),
        _ => Err(op.malformed("lacks the number of bits of a scale")),
    };
    let x = b.cast(&x, DType::F32);
    let y = match &scales[..] {
        [one] => {
            let scale = along(b, op, one, &x, op.int("quant_axis", 0))?;
            from_steps(b, &x, &scale, range(0)?)
        }
        [channels, all] => {
            let scale = along(b, op, channels, &x, op.int("x_num_col_dims", 1))?;
            let all = along(b, op, all, &x, -1)?;
            let scale = b.binary("Mul", &scale, &all);
            from_steps(b, &x, &scale, range(0)? * range(1)?)
        }
        _ => return Err(op.malformed("needs one or two scales")),
    };
    b.bind(op, "Out", y);
    Ok(())
}

/// `moving_average_abs_max_scale`: the values, unchanged; the scale is for training.
fn observe(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let y = b.identity(&x);
    b.bind(op, "Out", y);
    Ok(())
}
