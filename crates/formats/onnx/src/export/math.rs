//! Arithmetic, activations, comparisons, reductions, matrix products.

mod activation;
mod compare;
mod fourier;
mod matrix;
mod reduce;
mod special;
mod unary;

pub(super) use fourier::{complex_of, mishandles_complex, pair_of};
use reduce::reduction;

use super::builder::{Attrs, Builder, Value};
use super::operator::{Op, Row, row};
use crate::constant::{Constant, Data};
use crate::model::Attr;
use activation as act;
use weighbridge_core::error::Result;
use weighbridge_core::tensor::DType;

/// Operators of this family.
#[rustfmt::skip]
pub(super) const ROWS: &[Row] = &[
    // Arithmetic.
    row("elementwise_add grad_add", "add grad_add", "X Y", "Out", elementwise),
    row("elementwise_sub minus", "subtract", "X Y", "Out", elementwise),
    row("elementwise_mul", "multiply", "X Y", "Out", elementwise),
    row("elementwise_div", "divide", "X Y", "Out", elementwise),
    row("elementwise_max", "maximum", "X Y", "Out", elementwise),
    row("elementwise_min", "minimum", "X Y", "Out", elementwise),
    row("elementwise_pow", "elementwise_pow", "X Y", "Out", elementwise),
    row("elementwise_mod", "remainder", "X Y", "Out", elementwise),
    row("elementwise_floordiv", "floor_divide", "X Y", "Out", elementwise),
    row("elementwise_fmax", "fmax", "X Y", "Out", elementwise),
    row("elementwise_fmin", "fmin", "X Y", "Out", elementwise),
    row("elementwise_heaviside", "heaviside", "X Y", "Out", elementwise),
    row("copysign", "copysign", "x y", "out", copysign),
    row("atan2", "atan2", "X1 X2", "Out", atan2),
    row("sum", "add_n", "X", "Out", sum),
    row("scale", "scale", "X ScaleTensor", "Out", scale),
    row("pow", "pow", "X FactorTensor", "Out", pow).renamed("y=factor"),
    row("clip", "clip", "X Min Max", "Out", clip),
    row("cast", "cast", "X", "Out", cast).renamed("dtype=out_dtype"),
    row("increment", "increment", "X", "Out", increment).renamed("value=step"),
    row("lerp", "lerp", "X Y Weight", "Out", lerp),
    row("label_smooth", "label_smooth", "X PriorDist", "Out", label_smooth),
    // Functions of one number.
    row("abs", "abs", "X", "Out", unary::abs),
    row("exp log sqrt sin cos tan asin acos atan sinh cosh asinh acosh atanh erf reciprocal sigmoid tanh softsign ceil floor",
        "exp log sqrt sin cos tan asin acos atan sinh cosh asinh acosh atanh erf reciprocal sigmoid tanh softsign ceil floor",
        "X", "Out", unary::direct),
    row("log1p expm1 log2 log10 rsqrt square logsigmoid tanh_shrink trunc negative erfinv",
        "log1p expm1 log2 log10 rsqrt square logsigmoid tanh_shrink trunc negative erfinv", "X", "Out", unary::composed),
    row("round", "round", "X", "Out", unary::round),
    row("sign", "sign", "X", "Out", unary::sign),
    row("logit", "logit", "X", "Out", unary::logit),
    row("isnan_v2 isinf_v2 isfinite_v2 isnan isinf isfinite", "isnan isinf isfinite", "X", "Out", unary::is_special),
    // Activations.
    row("relu", "relu", "X", "Out", act::relu),
    row("relu6", "relu6", "X", "Out", act::relu6),
    row("gelu", "gelu", "X", "Out", act::gelu),
    row("hard_sigmoid", "hardsigmoid", "X", "Out", act::hard_sigmoid),
    row("hard_swish", "hardswish", "X", "Out", act::hard_swish),
    row("swish silu", "swish silu", "X", "Out", act::swish),
    row("swiglu", "swiglu", "x y", "out", act::swiglu),
    row("mish", "mish", "X", "Out", act::mish),
    row("softplus", "softplus", "X", "Out", act::softplus),
    row("soft_relu", "", "X", "Out", act::soft_relu),
    row("softshrink", "softshrink", "X", "Out", act::shrink).renamed("threshold=lambda"),
    row("hard_shrink", "hard_shrink hardshrink", "X", "Out", act::shrink),
    row("leaky_relu", "leaky_relu", "X", "Out", act::leaky_relu).renamed("negative_slope=alpha"),
    row("rrelu", "rrelu", "X", "Out Noise", act::rrelu),
    row("elu", "elu", "X", "Out", act::elu),
    row("selu", "selu", "X", "Out", act::selu),
    row("celu", "celu", "X", "Out", act::celu),
    row("prelu", "prelu", "X Alpha", "Out", act::prelu),
    row("thresholded_relu", "thresholded_relu", "X", "Out", act::thresholded_relu),
    row("brelu", "hardtanh", "X", "Out", act::hardtanh),
    row("stanh", "stanh", "X", "Out", act::stanh),
    row("maxout", "maxout", "X", "Out", act::maxout),
    row("softmax log_softmax", "softmax log_softmax", "X", "Out", act::softmax),
    // Comparisons, logic.
    row("equal", "equal", "X Y", "Out", compare::compare),
    row("not_equal", "not_equal", "X Y", "Out", compare::compare),
    row("less_than", "less_than", "X Y", "Out", compare::compare),
    row("less_equal", "less_equal", "X Y", "Out", compare::compare),
    row("greater_than", "greater_than", "X Y", "Out", compare::compare),
    row("greater_equal", "greater_equal", "X Y", "Out", compare::compare),
    row("equal_all", "equal_all", "X Y", "Out", compare::equal_all),
    row("logical_and", "logical_and", "X Y", "Out", compare::logical),
    row("logical_or", "logical_or", "X Y", "Out", compare::logical),
    row("logical_xor", "logical_xor", "X Y", "Out", compare::logical),
    row("logical_not", "logical_not", "X", "Out", compare::logical_not),
    row("bitwise_and", "bitwise_and", "X Y", "Out", compare::bitwise),
    row("bitwise_or", "bitwise_or", "X Y", "Out", compare::bitwise),
    row("bitwise_xor", "bitwise_xor", "X Y", "Out", compare::bitwise),
    row("bitwise_not", "bitwise_not", "X", "Out", compare::bitwise_not),
    row("bitwise_left_shift bitwise_right_shift", "bitwise_left_shift bitwise_right_shift", "x y", "out", compare::shift),
    row("isclose allclose", "isclose allclose", "Input Other Rtol Atol", "Out", compare::isclose),
    row("where", "where", "Condition X Y", "Out", compare::select),
    // Reductions.
    row("reduce_sum", "sum", "X AxisTensor", "Out", reduce::reduce).renamed("dtype=out_dtype"),
    row("reduce_mean", "mean", "X AxisTensor", "Out", reduce::reduce),
    row("mean", "mean_all", "X", "Out", reduce::reduce),
    row("reduce_max reduce_amax", "max amax", "X AxisTensor", "Out", reduce::reduce),
    row("reduce_min reduce_amin", "min amin", "X AxisTensor", "Out", reduce::reduce),
    row("reduce_prod", "prod", "X AxisTensor", "Out", reduce::reduce),
    row("reduce_all", "all", "X AxisTensor", "Out", reduce::logical),
    row("reduce_any", "any", "X AxisTensor", "Out", reduce::logical),
    row("logsumexp", "logsumexp", "X", "Out", reduce::reduce),
    row("frobenius_norm", "frobenius_norm", "X AxisTensor", "Out", reduce::reduce),
    row("p_norm", "p_norm", "X", "Out", reduce::p_norm),
    row("norm", "norm", "X", "Out Norm", reduce::norm),
    row("squared_l2_norm", "squared_l2_norm", "X", "Out", reduce::whole_norm),
    row("l1_norm", "l1_norm", "X", "Out", reduce::whole_norm),
    row("clip_by_norm", "clip_by_norm", "X", "Out", reduce::clip_by_norm),
    row("dist", "dist", "X Y", "Out", reduce::dist),
    row("cumsum", "cumsum", "X AxisTensor", "Out", reduce::cumsum),
    row("cumprod", "cumprod", "X", "Out", reduce::cumprod),
    row("logcumsumexp", "logcumsumexp", "X", "Out", reduce::cumprod),
    row("arg_max", "argmax", "X AxisTensor", "Out", reduce::arg),
    row("arg_min", "argmin", "X AxisTensor", "Out", reduce::arg),
    // Matrices.
    row("matmul_v2", "matmul", "X Y", "Out", matrix::matmul).renamed("transpose_x=trans_x transpose_y=trans_y"),
    row("matmul", "", "X Y", "Out", matrix::matmul),
    row("mul", "matmul_with_flatten", "X Y", "Out", matrix::mul),
    row("bmm", "bmm", "X Y", "Out", matrix::product),
    row("mv", "mv", "X Vec", "Out", matrix::product),
    row("multi_dot", "multi_dot", "X", "Out", matrix::multi_dot),
    row("dot", "dot", "X Y", "Out", matrix::dot),
    row("addmm baddbmm", "addmm baddbmm", "Input X Y", "Out", matrix::addmm).renamed("beta=Beta alpha=Alpha"),
    row("matrix_power", "matrix_power", "X", "Out", matrix::matrix_power),
    row("einsum", "einsum", "Operands", "Out", matrix::einsum),
    row("kron", "kron", "X Y", "Out", matrix::kron),
    row("cross", "cross", "X Y", "Out", matrix::cross).renamed("axis=dim"),
    row("determinant", "det", "Input", "Out", matrix::determinant),
    row("bilinear_tensor_product", "bilinear", "X Y Weight Bias", "Out", matrix::bilinear),
    // Gamma functions, running extremes, losses.
    row("lgamma", "lgamma gammaln", "X", "Out", special::lgamma),
    row("digamma", "digamma", "X", "Out", special::digamma),
    row("cummax", "cummax", "x", "out indices", special::extremes),
    row("cummin", "cummin", "x", "out indices", special::extremes),
    row("bce_loss", "bce_loss", "X Label", "Out", special::bce_loss),
    row("huber_loss", "huber_loss", "X Y", "Out Residual", special::huber_loss),
    row("log_loss", "log_loss", "Predicted Labels", "Loss", special::log_loss),
    row("kldiv_loss", "kldiv_loss", "X Target", "Loss", special::kldiv_loss),
    row("sigmoid_cross_entropy_with_logits", "sigmoid_cross_entropy_with_logits", "X Label pos_weight", "Out",
        special::sigmoid_cross_entropy),
    // Complex numbers.
    row("fft_r2c", "fft_r2c", "X", "Out", fourier::r2c),
    row("fft_c2c", "fft_c2c", "X", "Out", fourier::c2c),
    row("fft_c2r", "fft_c2r", "X", "Out", fourier::c2r),
    row("frame", "frame", "X", "Out", fourier::frame),
    row("overlap_add", "overlap_add", "X", "Out", fourier::overlap_add),
    row("as_complex", "as_complex", "X", "Out", fourier::as_complex),
    row("as_real", "as_real", "X", "Out", fourier::as_real),
    row("complex", "complex", "X Y", "Out", fourier::complex),
    row("real", "real", "X", "Out", fourier::part),
    row("imag", "imag", "X", "Out", fourier::part),
    row("conj", "conj", "X", "Out", fourier::conj),
    row("angle", "angle", "X", "Out", fourier::angle),
];

/// Returns the dtype in which ONNX Runtime computes an operator of ONNX on operands of `dtype`: the same, or one that it
/// has a kernel for. All values of a smaller integer dtype, of `bool` and of `bf16` are exact in the wider one.
fn computed(kind: &str, dtype: DType) -> DType {
    use DType::{BF16, Bool, F16, F32, F64, I8, I16, I32, I64, U8};
    const FLOATS: &[DType] = &[F32, F64, F16];
    const WIDE: &[DType] = &[F32, F64, F16, I64, I32];
    const MOST: &[DType] = &[F32, F64, F16, I64, I32, I8, U8];
    const ALL: &[DType] = &[F32, F64, F16, I64, I32, I16, I8, U8];
    let kernels = match kind {
        "Add" | "Sub" | "Mul" | "Div" | "Mod" | "Less" | "Greater" | "LessOrEqual" | "GreaterOrEqual"
        | "Abs" | "Sign" | "Shrink" => ALL,
        "Neg" => &[F32, F64, F16, I64, I32, I16, I8],
        "Equal" => &[F32, F64, F16, I64, I32, I16, I8, U8, Bool],
        "Min" | "Max" | "Where" | "Clip" | "ReduceMax" | "ReduceMin" | "ArgMax" | "ArgMin" => MOST,
        "Pow" | "ReduceSum" | "ReduceMean" | "ReduceProd" | "ReduceL1" | "ReduceL2" | "ReduceSumSquare"
        | "MatMul" | "CumSum" | "Einsum" => WIDE,
        "Relu" => &[F32, F64, F16, I32],
        "Sigmoid" | "Tanh" | "LogSoftmax" | "Softmax" | "Exp" | "Log" | "Sqrt" | "Ceil" | "Floor"
        | "Round" | "Reciprocal" | "Sin" | "Cos" | "IsNaN" | "ReduceLogSumExp" | "DFT" => FLOATS,
        "IsInf" => &[F32, F64],
        "Celu" => &[F32],
        _ => &[F32, F16],
    };
    if kernels.contains(&dtype) {
        return dtype;
    }
    let wider: &[DType] = match dtype {
        Bool | U8 | I8 | I16 => &[I32, F32],
        I32 | DType::U16 => &[I64, F64, F32],
        BF16 | F16 | F64 => &[F32],
        _ => &[I64, F64, F32],
    };
    wider.iter().copied().find(|wider| kernels.contains(wider)).unwrap_or(F32)
}

/// Adds a node of one result in the dtype that [`computed`] gives. A result in that dtype is cast back.
fn run(b: &mut Builder<'_>, kind: &str, inputs: &[&Value], attributes: Attrs) -> Value {
    let data = if kind == "Where" { inputs.get(1) } else { inputs.first() };
    let own = data.map_or(DType::F32, |value| value.dtype);
    let work = computed(kind, own);
    if work == own {
        return b.node(kind, inputs, attributes);
    }
    let mut operands = Vec::new();
    for (place, value) in inputs.iter().enumerate() {
        let is_condition = kind == "Where" && place == 0;
        let is_data = !value.is_none() && !is_condition && value.dtype == own;
        operands.push(if is_data { b.cast(value, work) } else { (*value).clone() });
    }
    let operands: Vec<&Value> = operands.iter().collect();
    let result = b.node(kind, &operands, attributes);
    if result.dtype == work { b.cast(&result, own) } else { result }
}

/// Adds a node of one input and no attributes, as [`run`].
fn run1(b: &mut Builder<'_>, kind: &str, x: &Value) -> Value {
    run(b, kind, &[x], Vec::new())
}

/// Adds a node of two inputs and no attributes, as [`run`].
fn run2(b: &mut Builder<'_>, kind: &str, x: &Value, y: &Value) -> Value {
    run(b, kind, &[x, y], Vec::new())
}

/// Adds a node of a value and a number in the dtype of the value, as [`run`].
fn with_number(b: &mut Builder<'_>, kind: &str, x: &Value, number: f64) -> Value {
    let number = scalar(number, x.dtype);
    run2(b, kind, x, &number)
}

/// Returns a scalar constant; a number outside the range of an integer dtype becomes its limit.
fn scalar(number: f64, dtype: DType) -> Value {
    let (low, high) = match dtype {
        DType::U8 => (0.0, 255.0),
        DType::I8 => (-128.0, 127.0),
        DType::I16 => (-32768.0, 32767.0),
        DType::I32 => (-2_147_483_648.0, 2_147_483_647.0),
        _ => (f64::NEG_INFINITY, f64::INFINITY),
    };
    Value::of(Constant::scalar(number.clamp(low, high), dtype))
}

/// Returns true for a dtype of real numbers with fractions.
fn is_float(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16 | DType::F32 | DType::F64)
}

/// Returns an input as floats: integers become the declared dtype of the result, or `f32`.
fn float_input(b: &mut Builder<'_>, op: &Op<'_>, slot: &str) -> Result<Value> {
    let x = b.input(op, slot)?;
    if is_float(x.dtype) {
        return Ok(x);
    }
    let declared = b.declared_dtype(op, "Out").filter(|dtype| is_float(*dtype));
    Ok(b.cast(&x, declared.unwrap_or(DType::F32)))
}

/// Assigns the result `Out`. PIR declares the dtype of each result; a result of another dtype is cast.
fn bind(b: &mut Builder<'_>, op: &Op<'_>, value: Value) {
    let declared = b.declared_dtype(op, "Out").filter(|_| op.is_pir);
    let value = match declared {
        Some(dtype) if dtype != value.dtype && (is_float(dtype) || is_integer(dtype)) => {
            b.cast(&value, dtype)
        }
        _ => value,
    };
    b.bind(op, "Out", value);
}

/// Returns true for booleans and integers.
fn is_integer(dtype: DType) -> bool {
    use DType::{Bool, I8, I16, I32, I64, U8};
    matches!(dtype, Bool | U8 | I8 | I16 | I32 | I64)
}

/// Returns the operands of a binary operator for the broadcast of ONNX. With `axis`, the operand of the smaller rank is
/// aligned at that dimension of the other.
fn operands(b: &mut Builder<'_>, op: &Op<'_>, slots: [&str; 2]) -> Result<(Value, Value)> {
    let (mut x, mut y) = (b.input(op, slots[0])?, b.input(op, slots[1])?);
    if x.dtype != y.dtype {
        let declared = b.declared_dtype(op, "Out").filter(|dtype| *dtype != DType::Bool);
        let dtype = match (is_float(x.dtype), is_float(y.dtype)) {
            (false, true) => y.dtype,
            _ => x.dtype,
        };
        let dtype = declared.filter(|dtype| *dtype == x.dtype || *dtype == y.dtype).unwrap_or(dtype);
        x = b.cast(&x, dtype);
        y = b.cast(&y, dtype);
    }
    let axis = op.int("axis", -1);
    if axis >= 0 {
        let (m, n) = (b.rank(op, &x)?, b.rank(op, &y)?);
        if m > n {
            y = aligned(b, op, &y, axis, m, n)?;
        } else if n > m {
            x = aligned(b, op, &x, axis, n, m)?;
        }
    }
    Ok((x, y))
}

/// Aligns the dimensions of a value of rank `own` at `axis` of `rank` dimensions: adds dimensions at the end, or removes
/// those of size 1.
fn aligned(
    b: &mut Builder<'_>,
    op: &Op<'_>,
    value: &Value,
    axis: i64,
    rank: usize,
    own: usize,
) -> Result<Value> {
    let axis = usize::try_from(axis).ok().filter(|axis| *axis <= rank);
    let axis = axis.ok_or_else(|| op.malformed("has an axis outside the dimensions"))?;
    let range = |from: usize, to: usize| -> Vec<i64> {
        (from..to).filter_map(|place| i64::try_from(place).ok()).collect()
    };
    if axis + own <= rank {
        return Ok(b.unsqueeze(value, &range(own, rank - axis)));
    }
    let extra = range(rank - axis, own);
    let is_one = |place: &i64| usize::try_from(*place).ok().and_then(|place| value.size(place)) == Some(1);
    if !extra.iter().all(is_one) {
        return Err(op.malformed("has operands that do not broadcast"));
    }
    Ok(b.squeeze(value, &extra))
}

/// Arithmetic on two operands with broadcast.
///
/// - `elementwise_div` of integers truncates; `elementwise_floordiv` rounds down.
/// - `elementwise_mod`: the remainder has the sign of the divisor.
/// - `elementwise_fmax`, `elementwise_fmin`: an operand that is not NaN is preferred.
/// - `elementwise_heaviside`: 0 for negative x, y for 0, 1 for positive x.
fn elementwise(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    if fourier::elementwise(b, op)? {
        return Ok(());
    }
    let (x, y) = operands(b, op, ["X", "Y"])?;
    let z = match op.kind {
        "elementwise_add" | "add" | "grad_add" => run2(b, "Add", &x, &y),
        "elementwise_sub" | "minus" | "subtract" => run2(b, "Sub", &x, &y),
        "elementwise_mul" | "multiply" => run2(b, "Mul", &x, &y),
        "elementwise_div" | "divide" => divide(b, op, &x, &y),
        "elementwise_max" | "maximum" => run2(b, "Max", &x, &y),
        "elementwise_min" | "minimum" => run2(b, "Min", &x, &y),
        "elementwise_pow" => power(b, &x, &y),
        "elementwise_mod" | "remainder" => remainder(b, &x, &y),
        "elementwise_floordiv" | "floor_divide" => floor_divide(b, &x, &y),
        "elementwise_fmax" | "fmax" => prefer_number(b, "Max", &x, &y),
        "elementwise_fmin" | "fmin" => prefer_number(b, "Min", &x, &y),
        _ => {
            let (zero, one) = (scalar(0.0, x.dtype), scalar(1.0, x.dtype));
            let is_positive = run2(b, "Greater", &x, &zero);
            let step = run(b, "Where", &[&is_positive, &one, &zero], Vec::new());
            let is_zero = run2(b, "Equal", &x, &zero);
            run(b, "Where", &[&is_zero, &y, &step], Vec::new())
        }
    };
    bind(b, op, z);
    Ok(())
}

/// Divides; integers whose declared result is a float become floats before.
fn divide(b: &mut Builder<'_>, op: &Op<'_>, x: &Value, y: &Value) -> Value {
    let declared = b.declared_dtype(op, "Out").filter(|dtype| op.is_pir && is_float(*dtype));
    match declared {
        Some(dtype) if !is_float(x.dtype) => {
            let (x, y) = (b.cast(x, dtype), b.cast(y, dtype));
            run2(b, "Div", &x, &y)
        }
        _ => run2(b, "Div", x, y),
    }
}

/// Raises to a power. Powers of integers are computed as `f64`, and rounded.
fn power(b: &mut Builder<'_>, x: &Value, y: &Value) -> Value {
    if is_float(x.dtype) {
        return run2(b, "Pow", x, y);
    }
    let (base, exponent) = (b.cast(x, DType::F64), b.cast(y, DType::F64));
    let z = b.binary("Pow", &base, &exponent);
    let z = b.unary("Round", &z);
    b.cast(&z, x.dtype)
}

/// Returns the remainder with the sign of the divisor.
fn remainder(b: &mut Builder<'_>, x: &Value, y: &Value) -> Value {
    if !is_float(x.dtype) {
        return run2(b, "Mod", x, y);
    }
    let z = run(b, "Mod", &[x, y], vec![("fmod", Attr::Int(1))]);
    let zero = scalar(0.0, x.dtype);
    let (below, negative) = (run2(b, "Less", &z, &zero), run2(b, "Less", y, &zero));
    let differs = b.binary("Xor", &below, &negative);
    let is_zero = run2(b, "Equal", &z, &zero);
    let is_some = b.unary("Not", &is_zero);
    let change = b.binary("And", &differs, &is_some);
    let moved = run2(b, "Add", &z, y);
    run(b, "Where", &[&change, &moved, &z], Vec::new())
}

/// Divides and rounds down.
fn floor_divide(b: &mut Builder<'_>, x: &Value, y: &Value) -> Value {
    let rest = remainder(b, x, y);
    let whole = run2(b, "Sub", x, &rest);
    let z = run2(b, "Div", &whole, y);
    if is_float(x.dtype) { unary::nearest(b, &z) } else { z }
}

/// Returns the larger or smaller of two numbers; of a number and NaN, the number.
fn prefer_number(b: &mut Builder<'_>, kind: &str, x: &Value, y: &Value) -> Value {
    let z = run2(b, kind, x, y);
    if !is_float(x.dtype) {
        return z;
    }
    let (no_x, no_y) = (run1(b, "IsNaN", x), run1(b, "IsNaN", y));
    let z = run(b, "Where", &[&no_y, x, &z], Vec::new());
    run(b, "Where", &[&no_x, y, &z], Vec::new())
}

/// `copysign`: the absolute value of x with the sign of y, which zero has as well. ONNX hides the sign of NaN: NaN counts as
/// positive.
fn copysign(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (x, y) = operands(b, op, ["x", "y"])?;
    let zero = scalar(0.0, y.dtype);
    let mut is_negative = run2(b, "Less", &y, &zero);
    if is_float(y.dtype) {
        // The reciprocal of negative zero is negative infinity.
        let inverse = run1(b, "Reciprocal", &y);
        let is_below = run2(b, "Less", &inverse, &zero);
        is_negative = b.binary("Or", &is_negative, &is_below);
    }
    // `Where` of ONNX Runtime loses the sign of zero: the product keeps it.
    let size = run1(b, "Abs", &x);
    let z = if matches!(x.dtype, DType::Bool | DType::U8) {
        size
    } else {
        let (one, minus) = (scalar(1.0, x.dtype), scalar(-1.0, x.dtype));
        let sign = run(b, "Where", &[&is_negative, &minus, &one], Vec::new());
        run2(b, "Mul", &size, &sign)
    };
    b.bind(op, "out", z);
    Ok(())
}

/// `atan2`: the angle of the point (X2, X1).
fn atan2(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (mut y, mut x) = (b.input(op, "X1")?, b.input(op, "X2")?);
    if !is_float(x.dtype) {
        (y, x) = (b.cast(&y, DType::F64), b.cast(&x, DType::F64));
    }
    let angle = angle(b, &y, &x);
    bind(b, op, angle);
    Ok(())
}

/// Returns the angle of the point (x, y), between -π and π.
fn angle(b: &mut Builder<'_>, y: &Value, x: &Value) -> Value {
    use std::f64::consts::{FRAC_PI_2, PI};
    let zero = scalar(0.0, x.dtype);
    let ratio = run2(b, "Div", y, x);
    let base = run1(b, "Atan", &ratio);
    let below = run2(b, "Less", y, &zero);
    let (more, less) = (scalar(PI, x.dtype), scalar(-PI, x.dtype));
    let turn = run(b, "Where", &[&below, &less, &more], Vec::new());
    let turned = run2(b, "Add", &base, &turn);
    let is_left = run2(b, "Less", x, &zero);
    let sloped = run(b, "Where", &[&is_left, &turned, &base], Vec::new());
    // On the vertical axis.
    let sign = run1(b, "Sign", y);
    let vertical = with_number(b, "Mul", &sign, FRAC_PI_2);
    let on_axis = run2(b, "Equal", x, &zero);
    run(b, "Where", &[&on_axis, &vertical, &sloped], Vec::new())
}

/// `sum`: the sum of all its inputs.
fn sum(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let values = b.inputs(op, "X")?;
    let (first, rest) = values.split_first().ok_or_else(|| op.malformed("lacks its inputs"))?;
    if values.iter().any(|value| value.is_sequence) {
        return Err(op.refuse("sums of lists of tensors"));
    }
    let mut total = first.clone();
    for value in rest {
        total = run2(b, "Add", &total, value);
    }
    bind(b, op, total);
    Ok(())
}

/// `scale`: x * scale + bias, or (x + bias) * scale if `bias_after_scale` is false. The numbers are cast to the dtype of x.
fn scale(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    if let Some(parts) = fourier::pair_of(&x) {
        if b.optional(op, "ScaleTensor")?.is_some_and(|factor| fourier::pair_of(&factor).is_some()) {
            return Err(op.refuse("complex factors"));
        }
        let bias = match op.float("bias", 0.0) {
            0.0 => scalar(0.0, parts.dtype),
            bias => fourier::scalar_pair(bias, 0.0, parts.dtype),
        };
        let y = scaled(b, op, &parts, &bias)?;
        b.bind(op, "Out", fourier::complex_of(&y));
        return Ok(());
    }
    let bias = scalar(op.float("bias", 0.0), x.dtype);
    let y = scaled(b, op, &x, &bias)?;
    bind(b, op, y);
    Ok(())
}

/// Returns x * scale + bias.
fn scaled(b: &mut Builder<'_>, op: &Op<'_>, x: &Value, bias: &Value) -> Result<Value> {
    let factor = match b.optional(op, "ScaleTensor")? {
        Some(factor) => {
            let factor = as_scalar(b, &factor);
            b.cast(&factor, x.dtype)
        }
        None => scalar(op.float("scale", 1.0), x.dtype),
    };
    let is_one = factor.constant.as_ref().and_then(|c| super::operator::only(c)) == Some(1.0);
    let is_zero = bias.constant.as_ref().and_then(|c| super::operator::only(c)) == Some(0.0);
    let mut y = x.clone();
    let after = op.bool("bias_after_scale", true);
    if !after && !is_zero {
        y = run2(b, "Add", &y, bias);
    }
    if !is_one {
        y = run2(b, "Mul", &y, &factor);
    }
    if after && !is_zero {
        y = run2(b, "Add", &y, bias);
    }
    Ok(y)
}

/// Returns a value of one element as a scalar.
fn as_scalar(b: &mut Builder<'_>, value: &Value) -> Value {
    if value.rank() == Some(0) { value.clone() } else { b.reshape(value, &[]) }
}

/// `pow`: x to the power of a number, which is cast to the dtype of x.
fn pow(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let y = match b.optional(op, "FactorTensor")? {
        Some(factor) => {
            let factor = as_scalar(b, &factor);
            let factor = b.cast(&factor, x.dtype);
            power(b, &x, &factor)
        }
        None => match op.float("factor", 1.0) {
            2.0 => run2(b, "Mul", &x, &x),
            factor => power(b, &x, &scalar(factor, x.dtype)),
        },
    };
    bind(b, op, y);
    Ok(())
}

/// `clip`: min(max(x, Min), Max). The limits are cast to the dtype of x.
fn clip(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let mut limits = Vec::new();
    for (slot, name) in [("Min", "min"), ("Max", "max")] {
        limits.push(match b.optional(op, slot)? {
            Some(limit) => match b.known(&limit)?.and_then(|c| super::operator::only(&c)) {
                Some(number) => scalar(number, x.dtype),
                None => {
                    let limit = as_scalar(b, &limit);
                    b.cast(&limit, x.dtype)
                }
            },
            None if op.has(name) => scalar(op.float(name, 0.0), x.dtype),
            None => Value::none(),
        });
    }
    let [low, high] = &limits[..] else { return Ok(()) };
    let y = run(b, "Clip", &[&x, low, high], Vec::new());
    bind(b, op, y);
    Ok(())
}

/// `cast`: converts the elements. Floats lose their fractions as integers; all but 0 become true.
fn cast(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let dtype = op.dtype("out_dtype").or_else(|| b.declared_dtype(op, "Out"));
    let dtype = dtype.ok_or_else(|| op.malformed("lacks its dtype"))?;
    if x.is_sequence || !(is_float(dtype) || is_integer(dtype)) {
        return Err(op.refuse(format_args!("a cast to {}", dtype.name())));
    }
    let y = b.cast(&x, dtype);
    b.bind(op, "Out", y);
    Ok(())
}

/// `increment`: x + step.
fn increment(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let y = with_number(b, "Add", &x, op.float("step", 1.0));
    // The operator changes its operand.
    if let Some(name) = op.input("X").first().filter(|_| op.shown.ends_with('_')) {
        b.set(name, y.clone());
    }
    b.bind(op, "Out", y);
    Ok(())
}

/// `lerp`: x + weight * (y - x).
fn lerp(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (x, y, weight) = (b.input(op, "X")?, b.input(op, "Y")?, b.input(op, "Weight")?);
    let span = run2(b, "Sub", &y, &x);
    let weight = b.cast(&weight, x.dtype);
    let way = run2(b, "Mul", &weight, &span);
    let z = run2(b, "Add", &x, &way);
    bind(b, op, z);
    Ok(())
}

/// `label_smooth`: (1 - epsilon) * x + epsilon * prior; the prior is uniform over the last dimension by default.
fn label_smooth(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let epsilon = op.float("epsilon", 0.0);
    let kept = with_number(b, "Mul", &x, 1.0 - epsilon);
    let prior = match b.optional(op, "PriorDist")? {
        Some(prior) => {
            let prior = b.cast(&prior, x.dtype);
            with_number(b, "Mul", &prior, epsilon)
        }
        None => {
            let last = b.axis(op, &x, -1)?;
            let count = b.dim(&x, last);
            let count = b.cast(&count, x.dtype);
            let epsilon = scalar(epsilon, x.dtype);
            run2(b, "Div", &epsilon, &count)
        }
    };
    let y = run2(b, "Add", &kept, &prior);
    bind(b, op, y);
    Ok(())
}

/// Returns a constant of 64-bit integers of any shape.
fn ints_of(values: Vec<i64>, shape: &[i64]) -> Value {
    Value::of(Constant { dtype: DType::I64, shape: shape.to_vec(), data: Data::Ints(values) })
}
