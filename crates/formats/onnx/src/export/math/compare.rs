//! Comparisons, logic, selection.

use super::super::builder::{Builder, Value};
use super::super::infer::Inferred;
use super::super::operator::{Op, only};
use super::{bind, ints_of, is_float, operands, reduction, run, run2, scalar};
use crate::model::Attr;
use weighbridge_core::error::Result;
use weighbridge_core::tensor::DType;
use weighbridge_core::topology::AttributeValue;

/// Comparisons of two operands with broadcast.
pub(super) fn compare(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (x, y) = operands(b, op, ["X", "Y"])?;
    let kind = match op.kind {
        "equal" | "not_equal" => "Equal",
        "less_than" => "Less",
        "less_equal" => "LessOrEqual",
        "greater_than" => "Greater",
        _ => "GreaterOrEqual",
    };
    let z = run2(b, kind, &x, &y);
    let z = if op.kind == "not_equal" { b.unary("Not", &z) } else { z };
    b.bind(op, "Out", z);
    Ok(())
}

/// `equal_all`: true if the shapes and all elements are equal.
pub(super) fn equal_all(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (x, y) = operands(b, op, ["X", "Y"])?;
    let compared = |b: &mut Builder<'_>| {
        let z = run2(b, "Equal", &x, &y);
        super::reduce::all(b, &z, None, false)
    };
    let z = match (x.sizes(), y.sizes()) {
        (Some(p), Some(q)) if p == q => compared(b),
        (Some(_), Some(_)) => scalar(0.0, DType::Bool),
        _ if b.rank(op, &x)? != b.rank(op, &y)? => scalar(0.0, DType::Bool),
        _ => {
            let (p, q) = (b.shape_of(&x), b.shape_of(&y));
            let same = b.binary("Equal", &p, &q);
            let same = super::reduce::all(b, &same, None, false);
            let (then, _) = b.body(&[], |b| Ok(vec![compared(b)]))?;
            let (otherwise, _) = b.body(&[], |b| Ok(vec![b.identity(&scalar(0.0, DType::Bool))]))?;
            let attributes = vec![
                ("then_branch", Attr::Graph(Box::new(then))),
                ("else_branch", Attr::Graph(Box::new(otherwise))),
            ];
            let result = Inferred::new(DType::Bool, Some(Vec::new()));
            b.typed("If", &[&same], attributes, vec![result]).pop().unwrap_or_else(Value::none)
        }
    };
    b.bind(op, "Out", z);
    Ok(())
}

/// `logical_and`, `logical_or`, `logical_xor`: operands that are not booleans are true unless 0.
pub(super) fn logical(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (x, y) = (b.input(op, "X")?, b.input(op, "Y")?);
    let (x, y) = (b.cast(&x, DType::Bool), b.cast(&y, DType::Bool));
    let kind = match op.kind {
        "logical_and" => "And",
        "logical_or" => "Or",
        _ => "Xor",
    };
    let z = b.binary(kind, &x, &y);
    b.bind(op, "Out", z);
    Ok(())
}

/// `logical_not`: true for 0 and false.
pub(super) fn logical_not(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let x = b.cast(&x, DType::Bool);
    let y = b.unary("Not", &x);
    b.bind(op, "Out", y);
    Ok(())
}

/// `bitwise_and`, `bitwise_or`, `bitwise_xor`. ONNX has them for integers from version 18 on; before, they are computed on
/// the bits as numbers.
pub(super) fn bitwise(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (x, y) = operands(b, op, ["X", "Y"])?;
    let (of_bools, of_ints) = match op.kind {
        "bitwise_and" => ("And", "BitwiseAnd"),
        "bitwise_or" => ("Or", "BitwiseOr"),
        _ => ("Xor", "BitwiseXor"),
    };
    let z = if x.dtype == DType::Bool {
        b.binary(of_bools, &x, &y)
    } else if b.opset >= 18 {
        b.binary(of_ints, &x, &y)
    } else {
        on_bits(b, of_bools, &x, &y)
    };
    bind(b, op, z);
    Ok(())
}

/// Computes an operator of booleans on each bit of two integers, in a new last dimension.
fn on_bits(b: &mut Builder<'_>, kind: &str, x: &Value, y: &Value) -> Value {
    let powers = ints_of((0..63).map(|bit| 1i64 << bit).collect(), &[63]);
    let two = ints_of(vec![2], &[]);
    let zero = ints_of(vec![0], &[]);
    let bits = |b: &mut Builder<'_>, value: &Value| {
        let value = b.cast(value, DType::I64);
        let column = b.unsqueeze(&value, &[-1]);
        // Division that rounds down shifts the two's complement.
        let rest = b.binary("Mod", &column, &powers);
        let whole = b.binary("Sub", &column, &rest);
        let shifted = b.binary("Div", &whole, &powers);
        let low = b.binary("Mod", &shifted, &two);
        let low = b.cast(&low, DType::Bool);
        let sign = b.binary("Less", &column, &zero);
        b.concat(&[&low, &sign], -1)
    };
    let (p, q) = (bits(b, x), bits(b, y));
    let z = b.binary(kind, &p, &q);
    let z = b.cast(&z, DType::I64);
    // ONNX Runtime adds integers as floats of 53 bits, so the two halves are added apart.
    let mut weights: Vec<i64> = (0..32).map(|bit| 1i64 << bit).collect();
    let half = |b: &mut Builder<'_>, start: i64, weights: &[i64]| {
        let weights = ints_of(weights.to_vec(), &[32]);
        let part = b.slice(&z, -1, start, start + 32);
        let part = b.binary("Mul", &part, &weights);
        reduction(b, "ReduceSum", &part, Some(&[-1]), false)
    };
    let low = half(b, 0, &weights);
    weights[31] = -(1i64 << 31);
    let high = half(b, 32, &weights);
    let high = b.binary("Mul", &high, &ints_of(vec![1i64 << 32], &[]));
    let z = b.binary("Add", &high, &low);
    b.cast(&z, x.dtype)
}

/// `bitwise_not`: -x - 1; of a byte, 255 - x.
pub(super) fn bitwise_not(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let y = if x.dtype == DType::Bool {
        b.unary("Not", &x)
    } else {
        let all = scalar(if x.dtype == DType::U8 { 255.0 } else { -1.0 }, x.dtype);
        run2(b, "Sub", &all, &x)
    };
    bind(b, op, y);
    Ok(())
}

/// `bitwise_left_shift`, `bitwise_right_shift`: the bits of x moved by y places. Bits from outside are 0; moved to the right by an
/// arithmetic shift, they are the sign. So they are, all of them, where y is negative or at least the number of bits.
pub(super) fn shift(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (x, y) = operands(b, op, ["x", "y"])?;
    let width: i64 = match x.dtype {
        DType::U8 | DType::I8 => 8,
        DType::I16 => 16,
        DType::I32 => 32,
        DType::I64 => 64,
        other => return Err(op.refuse(format_args!("shifts of {other}"))),
    };
    let int = |number: i64| ints_of(vec![number], &[]);
    let is_left = op.kind == "bitwise_left_shift";
    let is_signed = !is_left && x.dtype != DType::U8 && op.bool("is_arithmetic", true);
    let (number, y) = (b.cast(&x, DType::I64), b.cast(&y, DType::I64));
    let (from, to) = (b.binary("GreaterOrEqual", &y, &int(0)), b.binary("Less", &y, &int(width)));
    let is_inside = b.binary("And", &from, &to);
    let outside = int(if is_signed { width - 1 } else { 0 });
    let places = b.node("Where", &[&is_inside, &y, &outside], Vec::new());
    let is_negative = b.binary("Less", &number, &int(0));
    let flip = |b: &mut Builder<'_>, value: &Value| {
        let flipped = b.binary("Sub", &int(-1), value);
        b.node("Where", &[&is_negative, &flipped, value], Vec::new())
    };
    // ONNX shifts unsigned numbers.
    let start = if is_signed {
        flip(b, &number)
    } else if is_left || width == 64 {
        number.clone()
    } else {
        let wrapped = b.binary("Add", &number, &int(1i64 << width));
        b.node("Where", &[&is_negative, &wrapped, &number], Vec::new())
    };
    let (bits, places) = (b.cast(&start, DType::U64), b.cast(&places, DType::U64));
    let direction = if is_left { "LEFT" } else { "RIGHT" };
    let moved = b.node("BitShift", &[&bits, &places], vec![("direction", Attr::Text(direction.to_owned()))]);
    let moved = b.cast(&moved, DType::I64);
    let z =
        if is_signed { flip(b, &moved) } else { b.node("Where", &[&is_inside, &moved, &int(0)], Vec::new()) };
    let z = b.cast(&z, x.dtype);
    b.bind(op, "out", z);
    Ok(())
}

/// Returns a tolerance: an input, or an attribute with a number or its text.
fn tolerance(b: &mut Builder<'_>, op: &Op<'_>, slot: &str, name: &str, default: f64) -> Result<Value> {
    if let Some(value) = b.optional(op, slot)? {
        let value = super::as_scalar(b, &value);
        return Ok(b.cast(&value, DType::F64));
    }
    let number = match op.attribute(name) {
        Some(AttributeValue::Text(text) | AttributeValue::Word(text)) => text.parse().unwrap_or(default),
        _ => op.float(name, default),
    };
    Ok(scalar(number, DType::F64))
}

/// `isclose`: |x - y| <= atol + rtol * |y|, up to 1e-15; equal infinities are close, NaN is close to NaN if `equal_nan`.
/// `allclose`: true if all are close.
pub(super) fn isclose(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (x, y) = operands(b, op, ["Input", "Other"])?;
    let has_nan = is_float(x.dtype) && op.bool("equal_nan", false);
    let (x, y) = (b.cast(&x, DType::F64), b.cast(&y, DType::F64));
    let rtol = tolerance(b, op, "Rtol", "rtol", 1e-5)?;
    let atol = tolerance(b, op, "Atol", "atol", 1e-8)?;
    let distance = b.binary("Sub", &x, &y);
    let distance = b.unary("Abs", &distance);
    let size = b.unary("Abs", &y);
    let relative = b.binary("Mul", &rtol, &size);
    let limit = b.binary("Add", &atol, &relative);
    let within = b.binary("LessOrEqual", &distance, &limit);
    let equal = b.binary("Equal", &x, &y);
    let excess = b.binary("Sub", &distance, &limit);
    let excess = b.unary("Abs", &excess);
    let touches = b.binary("LessOrEqual", &excess, &scalar(1e-15, DType::F64));
    let close = b.binary("Or", &within, &equal);
    let mut close = b.binary("Or", &close, &touches);
    if has_nan {
        let (p, q) = (b.unary("IsNaN", &x), b.unary("IsNaN", &y));
        let both = b.binary("And", &p, &q);
        close = b.binary("Or", &close, &both);
    }
    if op.kind == "allclose" {
        close = super::reduce::all(b, &close, None, false);
    }
    b.bind(op, "Out", close);
    Ok(())
}

/// `where`: x where the condition is true, else y.
pub(super) fn select(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let condition = b.input(op, "Condition")?;
    let condition = b.cast(&condition, DType::Bool);
    if let Some(known) = condition.constant.as_ref().and_then(|c| only(c)) {
        let slot = if known == 0.0 { "Y" } else { "X" };
        let (x, y) = operands(b, op, ["X", "Y"])?;
        if x.sizes().is_some() && x.sizes() == y.sizes() && condition.rank() <= x.rank() {
            bind(b, op, if slot == "X" { x } else { y });
            return Ok(());
        }
    }
    let (x, y) = operands(b, op, ["X", "Y"])?;
    let z = run(b, "Where", &[&condition, &x, &y], Vec::new());
    bind(b, op, z);
    Ok(())
}
