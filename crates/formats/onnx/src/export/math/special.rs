//! Gamma functions, running extremes, losses.

use super::super::builder::{Builder, Value};
use super::super::infer::Inferred;
use super::super::operator::Op;
use super::{bind, float_input, ints_of, is_float, reduction, run, run1, run2, scalar, unary, with_number};
use crate::model::Attr;
use weighbridge_core::error::Result;
use weighbridge_core::tensor::DType;

/// Returns `positive` of x from 1/2 on; below, what `reflected` makes of x and of `positive` of 1 - x.
fn by_reflection(
    b: &mut Builder<'_>,
    x: &Value,
    positive: fn(&mut Builder<'_>, &Value) -> Value,
    reflected: fn(&mut Builder<'_>, &Value, &Value) -> Value,
) -> Value {
    let is_left = with_number(b, "Less", x, 0.5);
    let one = scalar(1.0, x.dtype);
    let mirror = run2(b, "Sub", &one, x);
    let right = run(b, "Where", &[&is_left, &mirror, x], Vec::new());
    let value = positive(b, &right);
    let left = reflected(b, x, &value);
    run(b, "Where", &[&is_left, &left, &value], Vec::new())
}

/// `lgamma`: log|Γ(x)|, by Stirling's series at x + 8; to the left of 1/2 by the reflection log(π / |sin πx|) - lgamma(1-x).
pub(super) fn lgamma(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = float_input(b, op, "X")?;
    let wide = b.cast(&x, DType::F64);
    let y = by_reflection(
        b,
        &wide,
        |b, x| {
            let mut product = x.clone();
            for step in 1..8 {
                let factor = with_number(b, "Add", x, f64::from(step));
                product = b.binary("Mul", &product, &factor);
            }
            let far = with_number(b, "Add", x, 8.0);
            let log = b.unary("Log", &far);
            let base = with_number(b, "Sub", &far, 0.5);
            let sum = b.binary("Mul", &base, &log);
            let sum = b.binary("Sub", &sum, &far);
            let sum = with_number(b, "Add", &sum, 0.918_938_533_204_672_8);
            let inverse = b.unary("Reciprocal", &far);
            let terms = series(b, &inverse, &[1.0 / 12.0, -1.0 / 360.0, 1.0 / 1260.0, -1.0 / 1680.0]);
            let terms = b.binary("Mul", &terms, &inverse);
            let sum = b.binary("Add", &sum, &terms);
            let product = b.unary("Log", &product);
            let result = b.binary("Sub", &sum, &product);
            // The logarithm of an infinite product would be taken from infinity.
            let limit = with_number(b, "Less", x, 1e30);
            run(b, "Where", &[&limit, &result, &sum], Vec::new())
        },
        |b, x, mirrored| {
            let angle = with_number(b, "Mul", x, std::f64::consts::PI);
            let sine = b.unary("Sin", &angle);
            let size = b.unary("Abs", &sine);
            // At integers the function is infinite.
            let whole = b.unary("Floor", x);
            let is_whole = b.binary("Equal", &whole, x);
            let size = run(b, "Where", &[&is_whole, &scalar(0.0, DType::F64), &size], Vec::new());
            let log = b.unary("Log", &size);
            let rest = with_number(b, "Sub", mirrored, std::f64::consts::PI.ln());
            let sum = b.binary("Add", &log, &rest);
            b.unary("Neg", &sum)
        },
    );
    let y = b.cast(&y, x.dtype);
    bind(b, op, y);
    Ok(())
}

/// `digamma`: the derivative of `lgamma`.
pub(super) fn digamma(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = float_input(b, op, "X")?;
    let wide = b.cast(&x, DType::F64);
    let y = by_reflection(
        b,
        &wide,
        |b, x| {
            let mut sum = b.unary("Reciprocal", x);
            for step in 1..8 {
                let term = with_number(b, "Add", x, f64::from(step));
                let term = b.unary("Reciprocal", &term);
                sum = b.binary("Add", &sum, &term);
            }
            let far = with_number(b, "Add", x, 8.0);
            let log = b.unary("Log", &far);
            let inverse = b.unary("Reciprocal", &far);
            let half = with_number(b, "Mul", &inverse, 0.5);
            let square = b.binary("Mul", &inverse, &inverse);
            let terms = series(b, &inverse, &[1.0 / 12.0, -1.0 / 120.0, 1.0 / 252.0, -1.0 / 240.0]);
            let terms = b.binary("Mul", &terms, &square);
            let value = b.binary("Sub", &log, &half);
            let value = b.binary("Sub", &value, &terms);
            b.binary("Sub", &value, &sum)
        },
        |b, x, mirrored| {
            let angle = with_number(b, "Mul", x, std::f64::consts::PI);
            let (sine, cosine) = (b.unary("Sin", &angle), b.unary("Cos", &angle));
            let ratio = b.binary("Div", &cosine, &sine);
            let ratio = with_number(b, "Mul", &ratio, std::f64::consts::PI);
            let value = b.binary("Sub", mirrored, &ratio);
            let whole = b.unary("Floor", x);
            let is_whole = b.binary("Equal", &whole, x);
            run(b, "Where", &[&is_whole, &scalar(f64::NAN, DType::F64), &value], Vec::new())
        },
    );
    let y = b.cast(&y, x.dtype);
    bind(b, op, y);
    Ok(())
}

/// Returns the polynomial in x² with these coefficients, the constant first.
fn series(b: &mut Builder<'_>, x: &Value, coefficients: &[f64]) -> Value {
    let square = b.binary("Mul", x, x);
    let mut sum = scalar(0.0, x.dtype);
    for coefficient in coefficients.iter().rev() {
        let product = b.binary("Mul", &sum, &square);
        sum = with_number(b, "Add", &product, *coefficient);
    }
    sum
}

/// `cummax`, `cummin`: the largest or smallest element up to each along an axis, and its last place: a `Scan` that carries
/// both. From a NaN on, the results are NaN.
pub(super) fn extremes(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "x")?;
    let rank = b.rank(op, &x)?;
    let axis = b.axis(op, &x, op.int("axis", -1))?;
    let wanted = op.dtype("dtype").unwrap_or(DType::I64);
    if rank == 0 {
        let zero = scalar(0.0, wanted);
        b.bind(op, "out", x);
        b.bind(op, "indices", zero);
        return Ok(());
    }
    let dims = x.dims.clone().unwrap_or_default();
    let mut rest = dims.clone();
    rest.remove(axis);
    let signed = i64::try_from(axis).unwrap_or(0);
    let first = b.slice(&x, signed, 0, 1);
    let first = b.squeeze(&first, &[signed]);
    let shape = b.shape_of(&first);
    let start = b.filled(&shape, 0.0, DType::I64);
    let count = b.dim(&x, axis);
    let count = super::as_scalar(b, &count);
    let places = b.node("Range", &[&ints_of(vec![0], &[]), &count, &ints_of(vec![1], &[])], Vec::new());
    let best = b.formal("best", x.dtype, Some(rest.clone()), false);
    let at = b.formal("at", DType::I64, Some(rest.clone()), false);
    let item = b.formal("item", x.dtype, Some(rest.clone()), false);
    let place = b.formal("place", DType::I64, Some(Vec::new()), false);
    let kind = if op.kind == "cummax" { "GreaterOrEqual" } else { "LessOrEqual" };
    let formals = [best.clone(), at.clone(), item.clone(), place.clone()];
    let (graph, _) = b.body(&formals, |b| {
        let mut better = run2(b, kind, &item, &best);
        if is_float(x.dtype) {
            let nan = run1(b, "IsNaN", &item);
            better = b.binary("Or", &better, &nan);
        }
        let best = run(b, "Where", &[&better, &item, &best], Vec::new());
        let at = b.node("Where", &[&better, &place, &at], Vec::new());
        let (best_copy, at_copy) = (b.identity(&best), b.identity(&at));
        Ok(vec![best, at, best_copy, at_copy])
    })?;
    let attributes = vec![
        ("body", Attr::Graph(Box::new(graph))),
        ("num_scan_inputs", Attr::Int(2)),
        ("scan_input_axes", Attr::Ints(vec![signed, 0])),
        ("scan_output_axes", Attr::Ints(vec![signed, signed])),
    ];
    let results = vec![
        Inferred::new(x.dtype, Some(rest.clone())),
        Inferred::new(DType::I64, Some(rest)),
        Inferred::new(x.dtype, Some(dims.clone())),
        Inferred::new(DType::I64, Some(dims)),
    ];
    let results = b.typed("Scan", &[&first, &start, &x, &places], attributes, results);
    let [_, _, values, places] = &results[..] else { return Ok(()) };
    b.bind(op, "out", values.clone());
    let places = b.cast(places, wanted);
    b.bind(op, "indices", places);
    Ok(())
}

/// `bce_loss`: -(label * log(x) + (1 - label) * log(1 - x)); the logarithms are at least -100.
pub(super) fn bce_loss(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (x, label) = (b.input(op, "X")?, b.input(op, "Label")?);
    let one = scalar(1.0, x.dtype);
    let loss = |b: &mut Builder<'_>, x: &Value, label: &Value| {
        let log = run1(b, "Log", x);
        let log = with_number(b, "Max", &log, -100.0);
        run2(b, "Mul", label, &log)
    };
    let (no_x, no_label) = (run2(b, "Sub", &one, &x), run2(b, "Sub", &one, &label));
    let (yes, no) = (loss(b, &x, &label), loss(b, &no_x, &no_label));
    let sum = run2(b, "Add", &yes, &no);
    let y = run1(b, "Neg", &sum);
    bind(b, op, y);
    Ok(())
}

/// `huber_loss`: half the square of y - x up to delta, then linear. The second result is y - x.
pub(super) fn huber_loss(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (x, y) = (b.input(op, "X")?, b.input(op, "Y")?);
    let delta = op.float("delta", 1.0);
    let residual = run2(b, "Sub", &y, &x);
    let size = run1(b, "Abs", &residual);
    let square = run2(b, "Mul", &residual, &residual);
    let near = with_number(b, "Mul", &square, 0.5);
    let far = with_number(b, "Sub", &size, delta / 2.0);
    let far = with_number(b, "Mul", &far, delta);
    let is_near = with_number(b, "LessOrEqual", &size, delta);
    let loss = run(b, "Where", &[&is_near, &near, &far], Vec::new());
    b.bind(op, "Residual", residual);
    bind(b, op, loss);
    Ok(())
}

/// `log_loss`: -label * log(x + epsilon) - (1 - label) * log(1 - x + epsilon).
pub(super) fn log_loss(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (x, label) = (b.input(op, "Predicted")?, b.input(op, "Labels")?);
    let epsilon = op.float("epsilon", 1e-4);
    let one = scalar(1.0, x.dtype);
    let (no_x, no_label) = (run2(b, "Sub", &one, &x), run2(b, "Sub", &one, &label));
    let term = |b: &mut Builder<'_>, x: &Value, label: &Value| {
        let moved = with_number(b, "Add", x, epsilon);
        let log = run1(b, "Log", &moved);
        run2(b, "Mul", label, &log)
    };
    let (yes, no) = (term(b, &x, &label), term(b, &no_x, &no_label));
    let sum = run2(b, "Add", &yes, &no);
    let y = run1(b, "Neg", &sum);
    b.bind(op, "Loss", y);
    Ok(())
}

/// `kldiv_loss`: target * (log(target) - x), 0 where the target is not positive; summed, or the mean of all or of the batch.
pub(super) fn kldiv_loss(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (x, target) = (b.input(op, "X")?, b.input(op, "Target")?);
    let loss = if op.bool("log_target", false) {
        let rest = run2(b, "Sub", &target, &x);
        let weight = run1(b, "Exp", &target);
        run2(b, "Mul", &weight, &rest)
    } else {
        let log = run1(b, "Log", &target);
        let rest = run2(b, "Sub", &log, &x);
        let loss = run2(b, "Mul", &target, &rest);
        let is_some = with_number(b, "Greater", &target, 0.0);
        run(b, "Where", &[&is_some, &loss, &scalar(0.0, x.dtype)], Vec::new())
    };
    let y = match op.text("reduction", "mean") {
        "none" => loss,
        "sum" => reduction(b, "ReduceSum", &loss, None, false),
        "batchmean" if b.rank(op, &x)? > 0 => {
            let sum = reduction(b, "ReduceSum", &loss, None, false);
            let count = b.dim(&x, 0);
            let count = super::as_scalar(b, &count);
            let count = b.cast(&count, x.dtype);
            run2(b, "Div", &sum, &count)
        }
        "mean" => reduction(b, "ReduceMean", &loss, None, false),
        other => return Err(op.refuse(format_args!("the reduction {other}"))),
    };
    b.bind(op, "Loss", y);
    Ok(())
}

/// `sigmoid_cross_entropy_with_logits`: max(x, 0) - x * label + log(1 + exp(-|x|)). Paddle 2 multiplies the logarithm by
/// `pos_weight`, Paddle 3 that of 1 + exp(-x). Elements with the label `ignore_index` are 0; normalized, the others are
/// divided by their count.
pub(super) fn sigmoid_cross_entropy(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (x, label) = (b.input(op, "X")?, b.input(op, "Label")?);
    let size = run1(b, "Abs", &x);
    let below = run1(b, "Neg", &size);
    let soft = unary::softplus(b, &below);
    let weight = b.optional(op, "pos_weight")?;
    let loss = match weight {
        Some(weight) if op.is_pir => {
            // (1 - label) * x + weight * log(1 + exp(-x)).
            let negative = run1(b, "Neg", &x);
            let positive = run1(b, "Relu", &negative);
            let soft = run2(b, "Add", &positive, &soft);
            let soft = run2(b, "Mul", &weight, &soft);
            let rest = run2(b, "Sub", &scalar(1.0, x.dtype), &label);
            let rest = run2(b, "Mul", &rest, &x);
            run2(b, "Add", &rest, &soft)
        }
        weight => {
            let soft = match weight {
                Some(weight) => run2(b, "Mul", &weight, &soft),
                None => soft,
            };
            let positive = run1(b, "Relu", &x);
            let product = run2(b, "Mul", &x, &label);
            let rest = run2(b, "Sub", &positive, &product);
            run2(b, "Add", &rest, &soft)
        }
    };
    #[allow(clippy::cast_precision_loss)]
    let ignored = scalar(op.int("ignore_index", -100) as f64, label.dtype);
    let is_ignored = run2(b, "Equal", &label, &ignored);
    let mut y = run(b, "Where", &[&is_ignored, &scalar(0.0, x.dtype), &loss], Vec::new());
    if op.bool("normalize", false) {
        let counted = b.unary("Not", &is_ignored);
        let ones = b.cast(&counted, x.dtype);
        let count = reduction(b, "ReduceSum", &ones, None, false);
        let count = with_number(b, "Max", &count, 1e-5);
        y = run2(b, "Div", &y, &count);
    }
    bind(b, op, y);
    Ok(())
}
