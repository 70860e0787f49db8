//! Activations.
//!
//! ONNX Runtime lacks kernels of most of them for `f64`: there they are composed of arithmetic.

use super::super::builder::{Builder, Value};
use super::super::operator::Op;
use super::unary::{expm1, softplus as softplus_of};
use super::{bind, float_input, reduction, run, run1, run2, scalar, with_number};
use crate::model::Attr;
use weighbridge_core::error::Result;
use weighbridge_core::tensor::DType;

/// Returns a number as an attribute of a node.
#[allow(clippy::cast_possible_truncation)]
fn attribute(number: f64) -> Attr {
    Attr::Float(number as f32)
}

/// Returns true if ONNX Runtime has a kernel of the activation, or casts to `f32` lose nothing.
fn has_kernel(kind: &str, x: &Value) -> bool {
    x.dtype != DType::F64 || super::computed(kind, x.dtype) == DType::F64
}

/// Returns `then` where x is below a number, else `otherwise`.
fn where_below(b: &mut Builder<'_>, x: &Value, number: f64, then: &Value, otherwise: &Value) -> Value {
    let below = with_number(b, "Less", x, number);
    run(b, "Where", &[&below, then, otherwise], Vec::new())
}

/// Returns `y`, but NaN where x is NaN: comparisons are false there.
fn or_nan(b: &mut Builder<'_>, x: &Value, y: &Value) -> Value {
    let is_nan = run1(b, "IsNaN", x);
    run(b, "Where", &[&is_nan, x, y], Vec::new())
}

/// Returns x limited to a range.
fn limited(b: &mut Builder<'_>, x: &Value, low: f64, high: f64) -> Value {
    let (low, high) = (scalar(low, x.dtype), scalar(high, x.dtype));
    run(b, "Clip", &[x, &low, &high], Vec::new())
}

/// `relu`: max(x, 0).
pub(super) fn relu(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let y = if x.dtype == DType::I64 { with_number(b, "Max", &x, 0.0) } else { run1(b, "Relu", &x) };
    bind(b, op, y);
    Ok(())
}

/// `relu6`: min(max(x, 0), threshold); the threshold is 6 by default.
pub(super) fn relu6(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let y = limited(b, &x, 0.0, op.float("threshold", 6.0));
    bind(b, op, y);
    Ok(())
}

/// `gelu`: x/2 * (1 + erf(x/√2)); if approximate, x/2 * (1 + tanh(√(2/π) * (x + 0.044715 x³))).
pub(super) fn gelu(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_PI};
    let x = b.input(op, "X")?;
    let inner = if op.bool("approximate", false) {
        let square = run2(b, "Mul", &x, &x);
        let cube = run2(b, "Mul", &square, &x);
        let cube = with_number(b, "Mul", &cube, 0.044_715);
        let sum = run2(b, "Add", &x, &cube);
        let scaled = with_number(b, "Mul", &sum, FRAC_2_PI.sqrt());
        run1(b, "Tanh", &scaled)
    } else {
        let scaled = with_number(b, "Mul", &x, FRAC_1_SQRT_2);
        run1(b, "Erf", &scaled)
    };
    let one_more = with_number(b, "Add", &inner, 1.0);
    let half = with_number(b, "Mul", &x, 0.5);
    let y = run2(b, "Mul", &half, &one_more);
    bind(b, op, y);
    Ok(())
}

/// `hard_sigmoid`: max(0, min(1, slope * x + offset)).
pub(super) fn hard_sigmoid(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let (slope, offset) = (op.float("slope", 0.2), op.float("offset", 0.5));
    let y = if has_kernel("HardSigmoid", &x) {
        let attributes = vec![("alpha", attribute(slope)), ("beta", attribute(offset))];
        run(b, "HardSigmoid", &[&x], attributes)
    } else {
        let scaled = with_number(b, "Mul", &x, slope);
        let moved = with_number(b, "Add", &scaled, offset);
        limited(b, &moved, 0.0, 1.0)
    };
    bind(b, op, y);
    Ok(())
}

/// `hard_swish`: x * min(max(x + 3, 0), 6) / 6.
#[allow(clippy::float_cmp)]
pub(super) fn hard_swish(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    // The attributes had a meaning in the first versions only.
    if [op.float("threshold", 6.0), op.float("scale", 6.0), op.float("offset", 3.0)] != [6.0, 6.0, 3.0] {
        return Err(op.refuse("other numbers than 6, 6 and 3"));
    }
    let y = if has_kernel("HardSwish", &x) {
        run1(b, "HardSwish", &x)
    } else {
        let moved = with_number(b, "Add", &x, 3.0);
        let gate = limited(b, &moved, 0.0, 6.0);
        let product = run2(b, "Mul", &x, &gate);
        with_number(b, "Div", &product, 6.0)
    };
    bind(b, op, y);
    Ok(())
}

/// `swish`, `silu`: x * sigmoid(beta * x); beta is 1 by default.
pub(super) fn swish(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = float_input(b, op, "X")?;
    let beta = op.float("beta", 1.0);
    let scaled = if beta == 1.0 { x.clone() } else { with_number(b, "Mul", &x, beta) };
    let gate = run1(b, "Sigmoid", &scaled);
    let y = run2(b, "Mul", &x, &gate);
    bind(b, op, y);
    Ok(())
}

/// `swiglu`: x * sigmoid(x) * y; without y, the halves of the last dimension of x are x and y.
pub(super) fn swiglu(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "x")?;
    let (x, y) = match b.optional(op, "y")? {
        Some(y) => (x, y),
        None => {
            let mut attributes = vec![("axis", Attr::Int(-1))];
            if b.opset >= 18 {
                attributes.push(("num_outputs", Attr::Int(2)));
            }
            let mut halves = b.nodes("Split", &[&x], attributes, 2);
            let last = halves.pop().unwrap_or_else(Value::none);
            (halves.pop().unwrap_or_else(Value::none), last)
        }
    };
    let gate = run1(b, "Sigmoid", &x);
    let gated = run2(b, "Mul", &x, &gate);
    let z = run2(b, "Mul", &gated, &y);
    b.bind(op, "out", z);
    Ok(())
}

/// `mish`: x * tanh(softplus(x)).
pub(super) fn mish(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let soft = softplus_of(b, &x);
    let gate = run1(b, "Tanh", &soft);
    let y = run2(b, "Mul", &x, &gate);
    bind(b, op, y);
    Ok(())
}

/// `softplus`: log(1 + exp(beta * x)) / beta; x itself where beta * x is above the threshold.
pub(super) fn softplus(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let (beta, threshold) = (op.float("beta", 1.0), op.float("threshold", 20.0));
    let scaled = if beta == 1.0 { x.clone() } else { with_number(b, "Mul", &x, beta) };
    let soft = softplus_of(b, &scaled);
    let soft = if beta == 1.0 { soft } else { with_number(b, "Div", &soft, beta) };
    let is_linear = with_number(b, "Greater", &scaled, threshold);
    let y = run(b, "Where", &[&is_linear, &x, &soft], Vec::new());
    bind(b, op, y);
    Ok(())
}

/// `soft_relu`: log(1 + exp(x)), with x limited to -threshold..threshold.
pub(super) fn soft_relu(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let threshold = op.float("threshold", 40.0);
    let x = limited(b, &x, -threshold, threshold);
    let y = softplus_of(b, &x);
    bind(b, op, y);
    Ok(())
}

/// `softshrink`: x moved towards 0 by lambda, 0 between. `hard_shrink`: x, but 0 between -threshold and threshold.
pub(super) fn shrink(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let (limit, bias) = match op.kind {
        "softshrink" => (op.float("lambda", 0.5), op.float("lambda", 0.5)),
        _ => (op.float("threshold", 0.5), 0.0),
    };
    let attributes = vec![("lambd", attribute(limit)), ("bias", attribute(bias))];
    let y = run(b, "Shrink", &[&x], attributes);
    let y = or_nan(b, &x, &y);
    bind(b, op, y);
    Ok(())
}

/// Returns x, times a slope where x is negative.
fn leaky(b: &mut Builder<'_>, x: &Value, slope: f64) -> Value {
    if has_kernel("LeakyRelu", x) {
        return run(b, "LeakyRelu", &[x], vec![("alpha", attribute(slope))]);
    }
    let small = with_number(b, "Mul", x, slope);
    where_below(b, x, 0.0, &small, x)
}

/// `leaky_relu`: x, times alpha where x is negative.
pub(super) fn leaky_relu(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let y = leaky(b, &x, op.float("alpha", 0.02));
    bind(b, op, y);
    Ok(())
}

/// `rrelu` in inference: `leaky_relu` with the mean of lower and upper.
pub(super) fn rrelu(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    if !op.bool("is_test", false) {
        return Err(op.refuse("random slopes of training"));
    }
    let x = b.input(op, "X")?;
    let slope = f64::midpoint(op.float("lower", 0.125), op.float("upper", 1.0 / 3.0));
    let y = leaky(b, &x, slope);
    bind(b, op, y);
    Ok(())
}

/// `elu`: x, but alpha * (exp(x) - 1) where x is negative.
pub(super) fn elu(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let alpha = op.float("alpha", 1.0);
    let y = if has_kernel("Elu", &x) {
        run(b, "Elu", &[&x], vec![("alpha", attribute(alpha))])
    } else {
        exponential(b, &x, alpha, 1.0)
    };
    bind(b, op, y);
    Ok(())
}

/// Returns x, but alpha * (exp(x / width) - 1) where x is negative.
fn exponential(b: &mut Builder<'_>, x: &Value, alpha: f64, width: f64) -> Value {
    let scaled = with_number(b, "Div", x, width);
    let grown = expm1(b, &scaled);
    let grown = with_number(b, "Mul", &grown, alpha);
    where_below(b, x, 0.0, &grown, x)
}

/// `selu`: scale * x, but scale * alpha * (exp(x) - 1) where x is not positive.
pub(super) fn selu(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let scale = op.float("scale", 1.050_700_987_355_480_5);
    let alpha = op.float("alpha", 1.673_263_242_354_377_2);
    let y = if has_kernel("Selu", &x) {
        run(b, "Selu", &[&x], vec![("alpha", attribute(alpha)), ("gamma", attribute(scale))])
    } else {
        let y = exponential(b, &x, alpha, 1.0);
        with_number(b, "Mul", &y, scale)
    };
    bind(b, op, y);
    Ok(())
}

/// `celu`: x, but alpha * (exp(x / alpha) - 1) where x is negative.
pub(super) fn celu(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let alpha = op.float("alpha", 1.0);
    let y = if x.dtype == DType::F32 {
        run(b, "Celu", &[&x], vec![("alpha", attribute(alpha))])
    } else {
        exponential(b, &x, alpha, alpha)
    };
    bind(b, op, y);
    Ok(())
}

/// `prelu`: x, times alpha where x is negative. `mode`: one alpha for all, one for each channel (dimension 1, or the last
/// of `NHWC`), or one for each element of a sample.
pub(super) fn prelu(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (x, alpha) = (b.input(op, "X")?, b.input(op, "Alpha")?);
    let rank = b.rank(op, &x)?;
    let slope = match op.text("mode", "all") {
        "all" => super::as_scalar(b, &alpha),
        "channel" if rank >= 2 => {
            let is_last = op.text("data_format", "NCHW").ends_with('C');
            let mut sizes = vec![1; if is_last { 1 } else { rank - 1 }];
            sizes[0] = -1;
            b.reshape(&alpha, &sizes)
        }
        "element" if alpha.rank() == Some(rank) => alpha,
        mode => return Err(op.refuse(format_args!("the mode {mode}"))),
    };
    let y = if x.dtype == DType::F64 {
        let small = run2(b, "Mul", &x, &slope);
        where_below(b, &x, 0.0, &small, &x)
    } else {
        run2(b, "PRelu", &x, &slope)
    };
    bind(b, op, y);
    Ok(())
}

/// `thresholded_relu`: x above the threshold, else a value that is 0 by default.
pub(super) fn thresholded_relu(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let above = with_number(b, "Greater", &x, op.float("threshold", 1.0));
    let value = scalar(op.float("value", 0.0), x.dtype);
    let y = run(b, "Where", &[&above, &x, &value], Vec::new());
    let y = or_nan(b, &x, &y);
    bind(b, op, y);
    Ok(())
}

/// `brelu`, `hardtanh`: x limited to `t_min`..`t_max`.
pub(super) fn hardtanh(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let defaults = if op.is_pir { (-1.0, 1.0) } else { (0.0, 24.0) };
    let y = limited(b, &x, op.float("t_min", defaults.0), op.float("t_max", defaults.1));
    bind(b, op, y);
    Ok(())
}

/// `stanh`: `scale_b` * tanh(`scale_a` * x).
pub(super) fn stanh(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = float_input(b, op, "X")?;
    let scaled = with_number(b, "Mul", &x, op.float("scale_a", 0.67));
    let tanh = run1(b, "Tanh", &scaled);
    let y = with_number(b, "Mul", &tanh, op.float("scale_b", 1.7159));
    bind(b, op, y);
    Ok(())
}

/// `maxout`: the largest of each group of adjacent channels.
pub(super) fn maxout(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let axis = b.axis(op, &x, op.int("axis", 1))?;
    let rank = b.rank(op, &x)?;
    let groups = op.int("groups", 1);
    let channels = x.size(axis).filter(|size| groups > 0 && size % groups == 0);
    let channels = channels
        .ok_or_else(|| op.refuse("a number of channels that is open or no multiple of the groups"))?;
    // The size of an open dimension is copied before the channels; one after them is the rest.
    let mut sizes = vec![0; axis];
    sizes.extend([channels / groups, groups]);
    let mut parts = Vec::new();
    let shape = if axis + 1 == rank {
        b.ints(&sizes)
    } else {
        let head = b.ints(&sizes[axis..]);
        let all = b.shape_of(&x);
        let before = b.slice(&all, 0, 0, i64::try_from(axis).unwrap_or(0));
        let after = b.slice(&all, 0, i64::try_from(axis + 1).unwrap_or(0), i64::MAX);
        parts.extend([before, head, after]);
        b.concat(&parts.iter().collect::<Vec<_>>(), 0)
    };
    let split = b.binary("Reshape", &x, &shape);
    let y = reduction(b, "ReduceMax", &split, Some(&[i64::try_from(axis + 1).unwrap_or(0)]), false);
    bind(b, op, y);
    Ok(())
}

/// `softmax`: exp(x) / sum(exp(x)) along an axis. `log_softmax`: its logarithm.
pub(super) fn softmax(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = float_input(b, op, "X")?;
    let kind = if op.kind == "softmax" { "Softmax" } else { "LogSoftmax" };
    let y = if b.rank(op, &x)? == 0 {
        let row = b.reshape(&x, &[1]);
        let y = run(b, kind, &[&row], vec![("axis", Attr::Int(0))]);
        b.reshape(&y, &[])
    } else {
        let axis = b.axis(op, &x, op.int("axis", -1))?;
        run(b, kind, &[&x], vec![("axis", Attr::Int(i64::try_from(axis).unwrap_or(0)))])
    };
    bind(b, op, y);
    Ok(())
}
