//! Complex numbers and Fourier transforms.
//!
//! ONNX Runtime has no complex dtypes. A complex value of the program is a real tensor with a last dimension of size 2: the
//! real and the imaginary parts. Its [`Value`] keeps the complex dtype and dimensions of the program, so no translation but
//! those of this module may read it: [`mishandles_complex`] checks that.

use super::super::builder::{Builder, Value};
use super::super::operator::Op;
use super::{bind, run2, scalar, with_number};
use crate::model::{Attr, Dim};
use weighbridge_core::error::Result;
use weighbridge_core::tensor::DType;

/// Operators that read complex values.
const COMPLEX: &[&str] = &[
    "abs",
    "add",
    "angle",
    "as_real",
    "conj",
    "divide",
    "elementwise_add",
    "elementwise_div",
    "elementwise_mul",
    "elementwise_sub",
    "fft_c2c",
    "fft_c2r",
    "imag",
    "multiply",
    "real",
    "scale",
    "slice",
    "subtract",
    "transpose",
    "transpose2",
];

/// Returns true for a complex dtype.
fn is_complex(dtype: DType) -> bool {
    matches!(dtype, DType::C64 | DType::C128)
}

/// Refuses an operator that reads complex values without a translation for them.
///
/// # Errors
/// [`weighbridge_core::Kind::Unsupported`] for such an operator, and for complex inputs and parameters of the program.
pub(in super::super) fn mishandles_complex(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    for name in op.inputs.iter().flat_map(|(_, names)| names) {
        let Some(value) = b.assigned(name).filter(|value| is_complex(value.dtype)) else { continue };
        if !COMPLEX.contains(&op.kind) {
            return Err(op.refuse("complex numbers, which ONNX Runtime lacks"));
        }
        if !b.is_made(&value.name) {
            return Err(op.refuse("complex numbers as inputs, as parameters or in bodies of control flow"));
        }
    }
    Ok(())
}

/// Returns the tensor with the parts of a complex value in its last dimension.
fn pair(x: &Value) -> Value {
    let dtype = if x.dtype == DType::C128 { DType::F64 } else { DType::F32 };
    let dims = x.dims.as_ref().map(|dims| dims.iter().cloned().chain([Dim::Size(2)]).collect());
    Value { dtype, dims, ..x.clone() }
}

/// Returns the tensor with the parts of a complex value; `None` for a real value.
pub(in super::super) fn pair_of(x: &Value) -> Option<Value> {
    is_complex(x.dtype).then(|| pair(x))
}

/// Returns the complex value whose parts are in the last dimension of a tensor.
pub(in super::super) fn complex_of(pair: &Value) -> Value {
    let dtype = if pair.dtype == DType::F64 { DType::C128 } else { DType::C64 };
    let dims = pair.dims.as_ref().map(|dims| dims[..dims.len().saturating_sub(1)].to_vec());
    Value { dtype, dims, ..pair.clone() }
}

/// Returns the real and imaginary parts; `None` for a real value.
pub(super) fn parts(b: &mut Builder<'_>, x: &Value) -> Option<(Value, Value)> {
    if !is_complex(x.dtype) {
        return None;
    }
    let pair = pair(x);
    let (first, second) = (b.int(0), b.int(1));
    Some((b.gather(&pair, &first, -1), b.gather(&pair, &second, -1)))
}

/// Returns a complex value of its parts.
fn joined(b: &mut Builder<'_>, re: &Value, im: &Value) -> Value {
    let (re, im) = (b.unsqueeze(re, &[-1]), b.unsqueeze(im, &[-1]));
    let pair = b.concat(&[&re, &im], -1);
    complex_of(&pair)
}

/// Returns √(re² + im²).
pub(super) fn magnitude(b: &mut Builder<'_>, re: &Value, im: &Value) -> Value {
    let (p, q) = (run2(b, "Mul", re, re), run2(b, "Mul", im, im));
    let sum = run2(b, "Add", &p, &q);
    b.unary("Sqrt", &sum)
}

/// Translates sums, differences, products and quotients of complex values. Returns false for real operands.
pub(super) fn elementwise(b: &mut Builder<'_>, op: &Op<'_>) -> Result<bool> {
    let (x, y) = (b.input(op, "X")?, b.input(op, "Y")?);
    if !is_complex(x.dtype) && !is_complex(y.dtype) {
        return Ok(false);
    }
    if op.int("axis", -1) >= 0 && x.rank() != y.rank() {
        return Err(op.refuse("an axis for complex numbers"));
    }
    let real_dtype = pair(if is_complex(x.dtype) { &x } else { &y }).dtype;
    let of = |b: &mut Builder<'_>, value: &Value| {
        parts(b, value).unwrap_or_else(|| (b.cast(value, real_dtype), scalar(0.0, real_dtype)))
    };
    let ((a, c), (p, q)) = (of(b, &x), of(b, &y));
    let times = |b: &mut Builder<'_>, p: &Value, q: &Value| {
        let (ap, cq) = (run2(b, "Mul", &a, p), run2(b, "Mul", &c, q));
        let (aq, cp) = (run2(b, "Mul", &a, q), run2(b, "Mul", &c, p));
        (run2(b, "Sub", &ap, &cq), run2(b, "Add", &aq, &cp))
    };
    let (re, im) = match op.kind {
        "elementwise_add" | "add" => (run2(b, "Add", &a, &p), run2(b, "Add", &c, &q)),
        "elementwise_sub" | "subtract" => (run2(b, "Sub", &a, &p), run2(b, "Sub", &c, &q)),
        "elementwise_mul" | "multiply" => times(b, &p, &q),
        _ => {
            let (pp, qq) = (run2(b, "Mul", &p, &p), run2(b, "Mul", &q, &q));
            let size = run2(b, "Add", &pp, &qq);
            let minus = b.unary("Neg", &q);
            let (re, im) = times(b, &p, &minus);
            (run2(b, "Div", &re, &size), run2(b, "Div", &im, &size))
        }
    };
    // A sum with a real operand of more dimensions leaves the parts with different ones.
    let (re, im) = if re.rank() == im.rank() && re.sizes() == im.sizes() && re.sizes().is_some() {
        (re, im)
    } else {
        let zero = with_number(b, "Mul", &re, 0.0);
        let im = run2(b, "Add", &im, &zero);
        let zero = with_number(b, "Mul", &im, 0.0);
        (run2(b, "Add", &re, &zero), im)
    };
    let z = joined(b, &re, &im);
    b.bind(op, "Out", z);
    Ok(true)
}

/// `as_complex`: the last dimension of size 2 becomes the parts.
pub(super) fn as_complex(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let copy = b.identity(&x);
    b.bind(op, "Out", complex_of(&copy));
    Ok(())
}

/// `as_real`: the parts become a last dimension of size 2.
pub(super) fn as_real(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let y = b.identity(&pair(&x));
    b.bind(op, "Out", y);
    Ok(())
}

/// `complex`: X + i Y.
pub(super) fn complex(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (mut x, mut y) = (b.input(op, "X")?, b.input(op, "Y")?);
    if x.sizes().is_none() || x.sizes() != y.sizes() {
        let (p, q) = (with_number(b, "Mul", &x, 0.0), with_number(b, "Mul", &y, 0.0));
        (x, y) = (run2(b, "Add", &x, &q), run2(b, "Add", &y, &p));
    }
    let z = joined(b, &x, &y);
    b.bind(op, "Out", z);
    Ok(())
}

/// `real`, `imag`: a part of a complex number.
pub(super) fn part(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let Some((re, im)) = parts(b, &x) else { return Err(op.refuse("the part of a real number")) };
    b.bind(op, "Out", if op.kind == "real" { re } else { im });
    Ok(())
}

/// `conj`: the imaginary part changes its sign.
pub(super) fn conj(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let y = match parts(b, &x) {
        Some((re, im)) => {
            let im = b.unary("Neg", &im);
            joined(b, &re, &im)
        }
        None => x,
    };
    b.bind(op, "Out", y);
    Ok(())
}

/// `angle`: the angle of a complex number; of a real number, 0 or π.
pub(super) fn angle(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let y = match parts(b, &x) {
        Some((re, im)) => super::angle(b, &im, &re),
        None => {
            let zero = with_number(b, "Mul", &x, 0.0);
            super::angle(b, &zero, &x)
        }
    };
    bind(b, op, y);
    Ok(())
}

/// Transforms a tensor of pairs, or of real numbers with a last dimension of 1, along an axis; without a factor forward,
/// with 1/n inverse.
fn transform(b: &mut Builder<'_>, x: &Value, axis: usize, forward: bool, one_sided: bool) -> Value {
    let x = b.unsqueeze(x, &[0]);
    let axis = i64::try_from(axis).unwrap_or(0) + 1;
    let mut attributes =
        vec![("inverse", Attr::Int(i64::from(!forward))), ("onesided", Attr::Int(i64::from(one_sided)))];
    let y = if b.opset >= 20 {
        let (none, axis) = (Value::none(), b.int(axis));
        b.node("DFT", &[&x, &none, &axis], attributes)
    } else {
        attributes.push(("axis", Attr::Int(axis)));
        b.node("DFT", &[&x], attributes)
    };
    b.squeeze(&y, &[0])
}

/// Reads the axes of a transform, from the front.
fn axes(b: &mut Builder<'_>, op: &Op<'_>, x: &Value) -> Result<Vec<usize>> {
    let axes = op.ints("axes").unwrap_or_default();
    if b.rank(op, x)? == 0 {
        return Err(op.malformed("needs dimensions"));
    }
    let axes: Vec<usize> = axes.iter().map(|axis| b.axis(op, x, *axis)).collect::<Result<_>>()?;
    if axes.is_empty() { Err(op.refuse("no axes")) } else { Ok(axes) }
}

/// Applies the normalization. `count` is the number of elements of a transform; ONNX has divided by it if inverse.
fn normalized(b: &mut Builder<'_>, op: &Op<'_>, x: &Value, count: &Value, forward: bool) -> Value {
    let power = match (op.text("normalization", "backward"), forward) {
        ("ortho", true) => -0.5,
        ("ortho", false) => 0.5,
        ("forward", true) => -1.0,
        ("forward", false) => 1.0,
        _ => return x.clone(),
    };
    let count = b.cast(count, x.dtype);
    let factor = with_number(b, "Pow", &count, power);
    run2(b, "Mul", x, &factor)
}

/// Returns the product of the sizes of some axes.
fn count(b: &mut Builder<'_>, x: &Value, axes: &[usize]) -> Value {
    let mut product = b.ints(&[1]);
    for axis in axes {
        let size = b.dim(x, *axis);
        product = b.binary("Mul", &product, &size);
    }
    product
}

/// `fft_c2c`: the transform of complex numbers along axes.
pub(super) fn c2c(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    if !is_complex(x.dtype) {
        return Err(op.malformed("needs complex numbers"));
    }
    let axes = axes(b, op, &x)?;
    let forward = op.bool("forward", true);
    let x = pair(&x);
    let count = count(b, &x, &axes);
    let mut y = x.clone();
    for axis in &axes {
        y = transform(b, &y, *axis, forward, false);
    }
    y.dims.clone_from(&x.dims);
    let y = normalized(b, op, &y, &count, forward);
    b.bind(op, "Out", complex_of(&y));
    Ok(())
}

/// `fft_r2c`: the transform of real numbers along axes; of the last axis only the first half if `onesided`.
pub(super) fn r2c(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let axes = axes(b, op, &x)?;
    let (forward, one_sided) = (op.bool("forward", true), op.bool("onesided", true));
    let count = count(b, &x, &axes);
    let Some((last, others)) = axes.split_last() else { return Ok(()) };
    // ONNX has no one-sided inverse of real numbers: it is the conjugate of the forward transform, divided by the count.
    let column = b.unsqueeze(&x, &[-1]);
    let mut y = transform(b, &column, *last, true, one_sided);
    for axis in others {
        y = transform(b, &y, *axis, true, false);
    }
    if let (Some(dims), Some(own)) = (&mut y.dims, &x.dims) {
        dims[..own.len()].clone_from_slice(own);
        if one_sided {
            dims[*last] = own[*last].size().map_or(Dim::Open, |size| Dim::Size(size / 2 + 1));
        }
    }
    if !forward {
        let signs = scalar_pair(1.0, -1.0, y.dtype);
        y = run2(b, "Mul", &y, &signs);
        let count = b.cast(&count, y.dtype);
        y = run2(b, "Div", &y, &count);
    }
    let y = normalized(b, op, &y, &count, forward);
    b.bind(op, "Out", complex_of(&y));
    Ok(())
}

/// Returns a constant of two numbers.
pub(super) fn scalar_pair(first: f64, second: f64, dtype: DType) -> Value {
    Value::of(crate::constant::Constant::of_floats(&[first, second], dtype, &[2]))
}

/// `fft_c2r`: the real numbers whose one-sided transform along axes is given: that of the last axis is completed by the
/// conjugates of its elements.
pub(super) fn c2r(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    const MAX_SIZE: i64 = 1 << 20;
    let x = b.input(op, "X")?;
    if !is_complex(x.dtype) {
        return Err(op.malformed("needs complex numbers"));
    }
    let axes = axes(b, op, &x)?;
    let forward = op.bool("forward", true);
    let Some((last, others)) = axes.split_last() else { return Ok(()) };
    let half = x.size(*last).filter(|half| (1..=MAX_SIZE).contains(half));
    let half = half.ok_or_else(|| op.refuse("an open number of frequencies"))?;
    let size = match op.int("last_dim_size", 0) {
        size if size > 0 => size,
        _ => 2 * (half - 1),
    };
    if size < 1 || size / 2 + 1 > half {
        return Err(op.refuse("fewer frequencies than the size needs"));
    }
    let mut y = pair(&x);
    let count = count(b, &y, others);
    let count = b.binary("Mul", &count, &b.ints(&[size]));
    for axis in others {
        let dims = y.dims.clone();
        y = transform(b, &y, *axis, forward, false);
        y.dims = dims;
    }
    let axis = i64::try_from(*last).unwrap_or(0);
    let low: Vec<i64> = (0..=size / 2).collect();
    let high: Vec<i64> = (1..size - size / 2).rev().collect();
    let (low, high) = (b.ints(&low), b.ints(&high));
    let signs = scalar_pair(1.0, -1.0, y.dtype);
    let (first, second) = (b.gather(&y, &low, axis), b.gather(&y, &high, axis));
    let second = run2(b, "Mul", &second, &signs);
    let whole = b.concat(&[&first, &second], axis);
    let dims = whole.dims.clone();
    let mut y = transform(b, &whole, *last, forward, false);
    y.dims = dims;
    let y = normalized(b, op, &y, &count, forward);
    let y = b.gather(&y, &b.int(0), -1);
    b.bind(op, "Out", y);
    Ok(())
}

/// `frame`: windows of `frame_length` elements that begin every `hop_length` elements of the last axis (the windows are then the
/// last dimension), or of the first axis for `axis` 0 (the windows are then the first dimension).
pub(super) fn frame(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let (length, hop) = (op.int("frame_length", 0), op.int("hop_length", 0));
    if length < 1 || hop < 1 {
        return Err(op.malformed("needs windows and steps of at least one element"));
    }
    let is_last = op.int("axis", -1) != 0;
    let axis = if is_last { b.rank(op, &x)?.saturating_sub(1) } else { 0 };
    let size = b.dim(&x, b.axis(op, &x, i64::try_from(axis).unwrap_or(0))?);
    let size = b.squeeze(&size, &[0]);
    let (zero, one, step, window) = (b.int(0), b.int(1), b.int(hop), b.int(length));
    let starts = b.binary("Sub", &size, &window);
    let count = b.binary("Div", &starts, &step);
    let count = b.binary("Add", &count, &one);
    let places = b.node("Range", &[&zero, &count, &one], Vec::new());
    let starts = b.binary("Mul", &places, &step);
    let inside = b.node("Range", &[&zero, &window, &one], Vec::new());
    let (starts, inside) = match is_last {
        true => (b.unsqueeze(&starts, &[0]), b.unsqueeze(&inside, &[1])),
        false => (b.unsqueeze(&starts, &[1]), b.unsqueeze(&inside, &[0])),
    };
    let indices = b.binary("Add", &starts, &inside);
    let y = b.gather(&x, &indices, i64::try_from(axis).unwrap_or(0));
    b.bind(op, "Out", y);
    Ok(())
}

/// `overlap_add`: the sums of windows that begin every `hop_length` elements. The windows are the columns of the last two
/// dimensions; for `axis` 0, the rows of the first two.
pub(super) fn overlap_add(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let (rank, hop) = (b.rank(op, &x)?, op.int("hop_length", 0));
    if rank < 2 || hop < 1 {
        return Err(op.malformed("needs windows and steps of at least one element"));
    }
    let is_last = op.int("axis", -1) != 0;
    // The dimensions of the windows first.
    let order: Vec<usize> =
        if is_last { (rank - 2..rank).chain(0..rank - 2).collect() } else { (0..rank).collect() };
    let windows = b.transpose(&x, &order);
    let (inside, outside) = if is_last { (0, 1) } else { (1, 0) };
    let (length, count) = (b.dim(&windows, inside), b.dim(&windows, outside));
    let (zero, one, step) = (b.int(0), b.int(1), b.ints(&[hop]));
    let range = |b: &mut Builder<'_>, size: &Value| {
        let size = b.squeeze(size, &[0]);
        b.node("Range", &[&zero, &size, &one], Vec::new())
    };
    let starts = range(b, &count);
    let starts = b.binary("Mul", &starts, &step);
    let starts = b.unsqueeze(&starts, &[i64::from(!is_last), 2]);
    let places = range(b, &length);
    let places = b.unsqueeze(&places, &[i64::from(is_last), 2]);
    let places = b.binary("Add", &starts, &places);
    let last = b.binary("Sub", &count, &b.ints(&[1]));
    let last = b.binary("Mul", &last, &step);
    let size = b.binary("Add", &last, &length);
    let shape = b.shape_of(&windows);
    let shape = b.slice(&shape, 0, 2, i64::MAX);
    let shape = b.concat(&[&size, &shape], 0);
    let blank = b.filled(&shape, 0.0, x.dtype);
    let sums =
        b.node("ScatterND", &[&blank, &places, &windows], vec![("reduction", Attr::Text("add".to_owned()))]);
    let order: Vec<usize> =
        if is_last { (1..rank - 1).chain([0]).collect() } else { (0..rank - 1).collect() };
    let y = b.transpose(&sums, &order);
    b.bind(op, "Out", y);
    Ok(())
}
