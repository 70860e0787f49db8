//! Functions of one number.

use super::super::builder::{Builder, Value};
use super::super::operator::Op;
use super::{bind, float_input, is_float, run, run1, run2, scalar, with_number};
use weighbridge_core::error::Result;

/// `abs`: the absolute value; of a complex number, its magnitude.
pub(super) fn abs(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let y = match super::fourier::parts(b, &x) {
        Some((re, im)) => super::fourier::magnitude(b, &re, &im),
        None => run1(b, "Abs", &x),
    };
    bind(b, op, y);
    Ok(())
}

/// Functions that ONNX has too. Integers become floats, except for `ceil` and `floor`.
pub(super) fn direct(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let kind = match op.kind {
        "exp" => "Exp",
        "log" => "Log",
        "sqrt" => "Sqrt",
        "sin" => "Sin",
        "cos" => "Cos",
        "tan" => "Tan",
        "asin" => "Asin",
        "acos" => "Acos",
        "atan" => "Atan",
        "sinh" => "Sinh",
        "cosh" => "Cosh",
        "asinh" => "Asinh",
        "acosh" => "Acosh",
        "atanh" => "Atanh",
        "erf" => "Erf",
        "reciprocal" => "Reciprocal",
        "sigmoid" => "Sigmoid",
        "tanh" => "Tanh",
        "softsign" => "Softsign",
        "ceil" => "Ceil",
        _ => "Floor",
    };
    let x = b.input(op, "X")?;
    if matches!(kind, "Ceil" | "Floor") && !is_float(x.dtype) {
        bind(b, op, x);
        return Ok(());
    }
    let x = float_input(b, op, "X")?;
    let y = run1(b, kind, &x);
    b.bind(op, "Out", y);
    Ok(())
}

/// Functions that nodes of ONNX compose: `log1p`, `expm1` (accurate near 0), `log2`, `log10`, `rsqrt` = 1/√x, `square`,
/// `logsigmoid` = -log(1 + exp(-x)), `tanh_shrink` = x - tanh(x), `trunc` (without the fraction), `erfinv`.
pub(super) fn composed(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let y = match op.kind {
        "square" => run2(b, "Mul", &x, &x),
        "negative" => run1(b, "Neg", &x),
        "trunc" => truncated(b, &x),
        kind => {
            let x = float_input(b, op, "X")?;
            match kind {
                "log1p" => log1p(b, &x),
                "expm1" => expm1(b, &x),
                "log2" => logarithm(b, &x, std::f64::consts::LN_2),
                "log10" => logarithm(b, &x, std::f64::consts::LN_10),
                "rsqrt" => {
                    let root = run1(b, "Sqrt", &x);
                    run1(b, "Reciprocal", &root)
                }
                "tanh_shrink" => {
                    let tanh = run1(b, "Tanh", &x);
                    run2(b, "Sub", &x, &tanh)
                }
                "erfinv" => erfinv(b, &x),
                _ => {
                    let negative = run1(b, "Neg", &x);
                    let soft = softplus(b, &negative);
                    run1(b, "Neg", &soft)
                }
            }
        }
    };
    b.bind(op, "Out", y);
    Ok(())
}

/// Returns log(x) / `base`.
fn logarithm(b: &mut Builder<'_>, x: &Value, base: f64) -> Value {
    let log = run1(b, "Log", x);
    with_number(b, "Div", &log, base)
}

/// Returns log(1 + x), accurate near 0: there it is x * log(u) / (u - 1) with u = 1 + x rounded.
pub(super) fn log1p(b: &mut Builder<'_>, x: &Value) -> Value {
    let one = scalar(1.0, x.dtype);
    let u = run2(b, "Add", x, &one);
    let log = run1(b, "Log", &u);
    let rest = run2(b, "Sub", &u, &one);
    let ratio = run2(b, "Div", x, &rest);
    let corrected = run2(b, "Mul", &log, &ratio);
    let is_tiny = run2(b, "Equal", &u, &one);
    let near = run(b, "Where", &[&is_tiny, x, &corrected], Vec::new());
    let size = run1(b, "Abs", x);
    let is_near = with_number(b, "Less", &size, 0.5);
    run(b, "Where", &[&is_near, &near, &log], Vec::new())
}

/// Returns exp(x) - 1, accurate near 0: there it is 2t / (1 - t) with t = tanh(x/2).
pub(super) fn expm1(b: &mut Builder<'_>, x: &Value) -> Value {
    let half = with_number(b, "Mul", x, 0.5);
    let t = run1(b, "Tanh", &half);
    let one = scalar(1.0, x.dtype);
    let below = run2(b, "Sub", &one, &t);
    let double = run2(b, "Add", &t, &t);
    let near = run2(b, "Div", &double, &below);
    let exp = run1(b, "Exp", x);
    let far = run2(b, "Sub", &exp, &one);
    let size = run1(b, "Abs", x);
    let is_near = with_number(b, "Less", &size, 0.5);
    run(b, "Where", &[&is_near, &near, &far], Vec::new())
}

/// Returns log(1 + exp(x)) as max(x, 0) + log1p(exp(-|x|)).
pub(super) fn softplus(b: &mut Builder<'_>, x: &Value) -> Value {
    if super::computed("Softplus", x.dtype) == x.dtype {
        return b.unary("Softplus", x);
    }
    let size = run1(b, "Abs", x);
    let negative = run1(b, "Neg", &size);
    let small = run1(b, "Exp", &negative);
    let log = log1p(b, &small);
    let positive = run1(b, "Relu", x);
    run2(b, "Add", &positive, &log)
}

/// Returns the number without its fraction.
fn truncated(b: &mut Builder<'_>, x: &Value) -> Value {
    if !is_float(x.dtype) {
        return x.clone();
    }
    let (up, down) = (run1(b, "Ceil", x), run1(b, "Floor", x));
    let is_negative = with_number(b, "Less", x, 0.0);
    run(b, "Where", &[&is_negative, &up, &down], Vec::new())
}

/// Returns the nearest integer; halves are rounded away from 0.
pub(super) fn nearest(b: &mut Builder<'_>, x: &Value) -> Value {
    let size = run1(b, "Abs", x);
    let down = run1(b, "Floor", &size);
    let rest = run2(b, "Sub", &size, &down);
    let is_up = with_number(b, "GreaterOrEqual", &rest, 0.5);
    let up = with_number(b, "Add", &down, 1.0);
    let whole = run(b, "Where", &[&is_up, &up, &down], Vec::new());
    let sign = run1(b, "Sign", x);
    run2(b, "Mul", &sign, &whole)
}

/// `round`: the nearest integer; with `decimals`, of x * 10^decimals. Halves are rounded away from 0 by Paddle 2, to the
/// even integer by Paddle 3.
pub(super) fn round(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let whole = |b: &mut Builder<'_>, x: &Value| {
        if op.is_pir { run1(b, "Round", x) } else { nearest(b, x) }
    };
    let y = match op.int("decimals", 0) {
        _ if !is_float(x.dtype) => x,
        0 => whole(b, &x),
        decimals => {
            let decimals = i32::try_from(decimals.clamp(-300, 300)).unwrap_or(0);
            let power = 10f64.powi(decimals.abs());
            let (up, down) = if decimals > 0 { ("Mul", "Div") } else { ("Div", "Mul") };
            let scaled = with_number(b, up, &x, power);
            let rounded = whole(b, &scaled);
            with_number(b, down, &rounded, power)
        }
    };
    bind(b, op, y);
    Ok(())
}

/// `sign`: -1, 0 or 1.
pub(super) fn sign(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let y = run1(b, "Sign", &x);
    bind(b, op, y);
    Ok(())
}

/// `logit`: log(x / (1 - x)), with x limited to eps..1-eps; without eps, NaN outside 0..1.
pub(super) fn logit(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let mut x = float_input(b, op, "X")?;
    let eps = op.float("eps", 0.0);
    if eps > 0.0 {
        let (low, high) = (scalar(eps, x.dtype), scalar(1.0 - eps, x.dtype));
        x = run(b, "Clip", &[&x, &low, &high], Vec::new());
    }
    let one = scalar(1.0, x.dtype);
    let rest = run2(b, "Sub", &one, &x);
    let ratio = run2(b, "Div", &x, &rest);
    let y = run1(b, "Log", &ratio);
    bind(b, op, y);
    Ok(())
}

/// `isnan_v2`, `isinf_v2`, `isfinite_v2` test each number; the older `isnan` and `isinf` test for any, `isfinite` for all.
pub(super) fn is_special(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let kind = op.kind.trim_end_matches("_v2");
    let y = match (kind, is_float(x.dtype)) {
        ("isnan", true) => run1(b, "IsNaN", &x),
        ("isinf", true) => run1(b, "IsInf", &x),
        (_, true) => {
            let (nan, inf) = (run1(b, "IsNaN", &x), run1(b, "IsInf", &x));
            let either = b.binary("Or", &nan, &inf);
            b.unary("Not", &either)
        }
        ("isfinite", false) => run2(b, "Equal", &x, &x),
        (_, false) => run2(b, "Less", &x, &x),
    };
    let y = match (op.is_pir, op.kind) {
        (false, "isnan" | "isinf") => super::reduce::any(b, &y, None, false),
        (false, "isfinite") => super::reduce::all(b, &y, None, false),
        _ => y,
    };
    b.bind(op, "Out", y);
    Ok(())
}

/// Returns the inverse of the error function: an approximation by polynomials of w = -log(1 - x²), those of M. Giles for
/// single precision (2010).
fn erfinv(b: &mut Builder<'_>, x: &Value) -> Value {
    const NEAR: [f64; 9] = [
        2.810_226_36e-08,
        3.432_739_39e-07,
        -3.523_387_7e-06,
        -4.391_506_54e-06,
        0.000_218_580_87,
        -0.001_253_725_03,
        -0.004_177_681_64,
        0.246_640_727,
        1.501_409_41,
    ];
    const FAR: [f64; 9] = [
        -0.000_200_214_257,
        0.000_100_950_558,
        0.001_349_343_22,
        -0.003_673_428_44,
        0.005_739_507_73,
        -0.007_622_461_3,
        0.009_438_870_47,
        1.001_674_06,
        2.832_976_82,
    ];
    let square = run2(b, "Mul", x, x);
    let negative = run1(b, "Neg", &square);
    let log = log1p(b, &negative);
    let w = run1(b, "Neg", &log);
    let polynomial = |b: &mut Builder<'_>, w: &Value, terms: &[f64]| {
        let mut sum = scalar(0.0, x.dtype);
        for term in terms {
            let product = run2(b, "Mul", &sum, w);
            sum = with_number(b, "Add", &product, *term);
        }
        sum
    };
    let near = with_number(b, "Sub", &w, 2.5);
    let near = polynomial(b, &near, &NEAR);
    let root = run1(b, "Sqrt", &w);
    let far = with_number(b, "Sub", &root, 3.0);
    let far = polynomial(b, &far, &FAR);
    let is_near = with_number(b, "Less", &w, 5.0);
    let slope = run(b, "Where", &[&is_near, &near, &far], Vec::new());
    let y = run2(b, "Mul", &slope, x);
    // The ends are infinite.
    let size = run1(b, "Abs", x);
    let is_end = with_number(b, "Equal", &size, 1.0);
    let infinite = with_number(b, "Mul", x, f64::INFINITY);
    run(b, "Where", &[&is_end, &infinite, &y], Vec::new())
}
