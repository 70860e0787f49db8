//! Reductions, norms, sums along an axis, places of extremes.

use super::super::builder::{Builder, Value};
use super::super::infer::Inferred;
use super::super::operator::{Op, only};
use super::{as_scalar, bind, computed, is_float, run1, run2, scalar, with_number};
use crate::model::Attr;
use weighbridge_core::error::Result;
use weighbridge_core::tensor::DType;

/// Adds a reduction over axes; `None` and an empty list mean all. The dtype is one that ONNX Runtime computes in.
pub(in super::super) fn reduction(
    b: &mut Builder<'_>,
    kind: &str,
    x: &Value,
    axes: Option<&[i64]>,
    keep: bool,
) -> Value {
    let work = computed(kind, x.dtype);
    let operand = b.cast(x, work);
    let y = match axes.filter(|axes| !axes.is_empty()) {
        Some(axes) => b.reduce(kind, &operand, axes, keep),
        None => b.node(kind, &[&operand], vec![("keepdims", Attr::Int(i64::from(keep)))]),
    };
    b.cast(&y, x.dtype)
}

/// Axes of a reduction, and whether they are kept with size 1.
struct Over {
    axes: Option<Vec<i64>>,
    keep: bool,
}

/// Reads the axes of a reduction of x: `None` for all.
fn over(b: &mut Builder<'_>, op: &Op<'_>, x: &Value) -> Result<Over> {
    let mut keep = op.bool("keep_dim", op.bool("keepdim", op.bool("keepdims", false)));
    let mut axes = op.ints("dim").or_else(|| op.ints("axis"));
    let values = b.inputs(op, "AxisTensor")?;
    let list = b.inputs(op, "AxisTensorList")?;
    for (place, value) in values.iter().chain(&list).enumerate() {
        let known = b.known_ints(value)?;
        let known = known.ok_or_else(|| op.refuse("axes that the program computes"))?;
        axes = if place == 0 { Some(known) } else { axes.map(|axes| [axes, known].concat()) };
    }
    if !op.is_pir && op.kind == "mean" {
        (keep, axes) = (false, None);
    }
    let is_all = op.bool("reduce_all", false) || axes.as_ref().is_none_or(Vec::is_empty);
    if is_all || x.rank() == Some(0) {
        return Ok(Over { axes: None, keep });
    }
    let mut front = Vec::new();
    for axis in axes.unwrap_or_default() {
        front.push(i64::try_from(b.axis(op, x, axis)?).unwrap_or(0));
    }
    front.sort_unstable();
    front.dedup();
    Ok(Over { axes: Some(front), keep })
}

/// Sums, means, extremes, products, logsumexp and the Euclidean norm over axes. A sum of booleans or 32-bit integers is of
/// 64 bits, unless the program states another dtype.
pub(super) fn reduce(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let mut x = b.input(op, "X")?;
    let over = over(b, op, &x)?;
    let kind = match op.kind.trim_start_matches("reduce_") {
        "sum" => "ReduceSum",
        "mean" | "mean_all" => "ReduceMean",
        "max" | "amax" => "ReduceMax",
        "min" | "amin" => "ReduceMin",
        "prod" => "ReduceProd",
        "logsumexp" => "ReduceLogSumExp",
        _ => "ReduceL2",
    };
    let declared = b.declared_dtype(op, "Out").filter(|_| op.is_pir);
    let is_narrow = matches!(x.dtype, DType::Bool | DType::I32);
    let promoted = (kind == "ReduceSum" && is_narrow && !op.is_pir).then_some(DType::I64);
    let wanted = op.dtype("out_dtype").or(declared).or(promoted);
    if let Some(dtype) = wanted.filter(|dtype| is_float(*dtype) || super::is_integer(*dtype)) {
        x = b.cast(&x, dtype);
    }
    let y = reduction(b, kind, &x, over.axes.as_deref(), over.keep);
    bind(b, op, y);
    Ok(())
}

/// Returns true where any element over the axes is true.
pub(super) fn any(b: &mut Builder<'_>, x: &Value, axes: Option<&[i64]>, keep: bool) -> Value {
    let numbers = b.cast(x, DType::I64);
    let count = reduction(b, "ReduceSum", &numbers, axes, keep);
    b.cast(&count, DType::Bool)
}

/// Returns true where all elements over the axes are true.
pub(super) fn all(b: &mut Builder<'_>, x: &Value, axes: Option<&[i64]>, keep: bool) -> Value {
    let inverse = b.unary("Not", x);
    let found = any(b, &inverse, axes, keep);
    b.unary("Not", &found)
}

/// `reduce_all`, `reduce_any`: all elements are true, or any; numbers are true unless 0.
pub(super) fn logical(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let over = over(b, op, &x)?;
    let x = b.cast(&x, DType::Bool);
    let is_all = op.kind.trim_start_matches("reduce_") == "all";
    let reduced = if is_all { all } else { any };
    let y = reduced(b, &x, over.axes.as_deref(), over.keep);
    b.bind(op, "Out", y);
    Ok(())
}

/// Returns the norm of order p over axes: the sum of |x|^p to the power of 1/p; for infinite p the largest or smallest
/// magnitude, for 0 the number of elements that are not 0.
fn norm_of(b: &mut Builder<'_>, x: &Value, order: f64, axes: Option<&[i64]>, keep: bool) -> Value {
    if order == 2.0 {
        return reduction(b, "ReduceL2", x, axes, keep);
    }
    let size = run1(b, "Abs", x);
    if order == f64::INFINITY {
        return reduction(b, "ReduceMax", &size, axes, keep);
    }
    if order == f64::NEG_INFINITY {
        return reduction(b, "ReduceMin", &size, axes, keep);
    }
    if order == 1.0 {
        return reduction(b, "ReduceSum", &size, axes, keep);
    }
    if order == 0.0 {
        let some = b.cast(x, DType::Bool);
        let ones = b.cast(&some, x.dtype);
        return reduction(b, "ReduceSum", &ones, axes, keep);
    }
    let powers = with_number(b, "Pow", &size, order);
    let sum = reduction(b, "ReduceSum", &powers, axes, keep);
    with_number(b, "Pow", &sum, 1.0 / order)
}

/// `p_norm`: the norm of order `porder` along an axis, or of all elements if `asvector`.
pub(super) fn p_norm(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let keep = op.bool("keepdim", false);
    let axes = if op.bool("asvector", false) || x.rank() == Some(0) {
        None
    } else {
        Some(vec![i64::try_from(b.axis(op, &x, op.int("axis", -1))?).unwrap_or(0)])
    };
    let y = norm_of(b, &x, op.float("porder", 2.0), axes.as_deref(), keep);
    bind(b, op, y);
    Ok(())
}

/// `norm`: x / √(sum(x²) + epsilon) along an axis; the second result is the root.
pub(super) fn norm(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let axis = i64::try_from(b.axis(op, &x, op.int("axis", -1))?).unwrap_or(0);
    let sum = reduction(b, "ReduceSumSquare", &x, Some(&[axis]), true);
    let sum = with_number(b, "Add", &sum, op.float("epsilon", 1e-10));
    let root = run1(b, "Sqrt", &sum);
    let y = run2(b, "Div", &x, &root);
    b.bind(op, "Norm", root);
    bind(b, op, y);
    Ok(())
}

/// `squared_l2_norm`: the sum of the squares of all elements, of shape \[1\]. `l1_norm`: the sum of the magnitudes.
pub(super) fn whole_norm(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let is_square = op.kind == "squared_l2_norm";
    let y = reduction(b, if is_square { "ReduceSumSquare" } else { "ReduceL1" }, &x, None, false);
    let y = if is_square { b.reshape(&y, &[1]) } else { y };
    bind(b, op, y);
    Ok(())
}

/// `clip_by_norm`: x, scaled to the norm `max_norm` if its norm is larger.
pub(super) fn clip_by_norm(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let limit = scalar(op.float("max_norm", 1.0), x.dtype);
    let norm = reduction(b, "ReduceL2", &x, None, false);
    let larger = run2(b, "Max", &norm, &limit);
    let factor = run2(b, "Div", &limit, &larger);
    let y = run2(b, "Mul", &x, &factor);
    bind(b, op, y);
    Ok(())
}

/// `dist`: the norm of order p of x - y.
pub(super) fn dist(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (x, y) = (b.input(op, "X")?, b.input(op, "Y")?);
    let z = run2(b, "Sub", &x, &y);
    let z = norm_of(b, &z, op.float("p", 2.0), None, false);
    bind(b, op, z);
    Ok(())
}

/// Returns the axis of an operator as an attribute or an input, from the front.
fn axis_of(b: &mut Builder<'_>, op: &Op<'_>, x: &Value) -> Result<usize> {
    let axis = match b.optional(op, "AxisTensor")? {
        Some(axis) => {
            let known = b.known(&axis)?.and_then(|c| only(&c));
            let known = known.ok_or_else(|| op.refuse("an axis that the program computes"))?;
            #[allow(clippy::cast_possible_truncation)]
            let known = known as i64;
            known
        }
        None => op.int("axis", op.int("dim", -1)),
    };
    b.axis(op, x, axis)
}

/// Returns the operand and axis of a sum along an axis. Flattened and without dimensions, the operand is a vector.
fn along(b: &mut Builder<'_>, op: &Op<'_>) -> Result<(Value, usize)> {
    let x = b.input(op, "X")?;
    if op.bool("flatten", false) || x.rank() == Some(0) {
        return Ok((b.reshape(&x, &[-1]), 0));
    }
    let axis = axis_of(b, op, &x)?;
    Ok((x, axis))
}

/// Assigns a result that has the shape of X, unless flattened.
fn bind_along(b: &mut Builder<'_>, op: &Op<'_>, y: Value) -> Result<()> {
    let is_scalar = b.input(op, "X")?.rank() == Some(0) && !op.bool("flatten", false);
    let y = if is_scalar { as_scalar(b, &y) } else { y };
    bind(b, op, y);
    Ok(())
}

/// `cumsum`: the sum of the elements up to each along an axis, or of those before it if `exclusive`; from the end if
/// `reverse`.
pub(super) fn cumsum(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (mut x, axis) = along(b, op)?;
    let declared = b.declared_dtype(op, "Out").filter(|_| op.is_pir);
    if let Some(dtype) = declared.filter(|dtype| super::is_integer(*dtype) || is_float(*dtype)) {
        x = b.cast(&x, dtype);
    }
    let axis = b.int(i64::try_from(axis).unwrap_or(0));
    let flag = |name| Attr::Int(i64::from(op.bool(name, false)));
    let attributes = vec![("exclusive", flag("exclusive")), ("reverse", flag("reverse"))];
    let dtype = x.dtype;
    let x = b.cast(&x, computed("CumSum", dtype));
    let y = b.node("CumSum", &[&x, &axis], attributes);
    let y = b.cast(&y, dtype);
    bind_along(b, op, y)
}

/// `cumprod`, `logcumsumexp`: the product, or the logarithm of the sum of the exponentials, of the elements up to each
/// along an axis: a `Scan` that carries the value so far.
pub(super) fn cumprod(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (x, axis) = along(b, op)?;
    let dims = x.dims.clone().ok_or_else(|| op.refuse("the number of dimensions of an input is unknown"))?;
    let is_product = op.kind == "cumprod";
    let mut rest = dims.clone();
    if axis < rest.len() {
        rest.remove(axis);
    }
    // The state before the first element: 1, or the lowest number.
    let shape = b.shape_of(&x);
    let (before, after) = {
        let axis = i64::try_from(axis).unwrap_or(0);
        (b.slice(&shape, 0, 0, axis), b.slice(&shape, 0, axis + 1, i64::MAX))
    };
    let shape = b.concat(&[&before, &after], 0);
    let start = if is_product { 1.0 } else { lowest(x.dtype) };
    let initial = b.filled(&shape, start, x.dtype);
    let state = b.formal("state", x.dtype, Some(rest.clone()), false);
    let item = b.formal("item", x.dtype, Some(rest.clone()), false);
    let (inputs, exclusive) = ([state.clone(), item.clone()], op.bool("exclusive", false));
    let (graph, _) = b.body(&inputs, |b| {
        let next = if is_product { run2(b, "Mul", &state, &item) } else { log_add(b, &state, &item) };
        let copy = b.identity(if exclusive { &state } else { &next });
        Ok(vec![next, copy])
    })?;
    let direction = i64::from(op.bool("reverse", false));
    let axis = i64::try_from(axis).unwrap_or(0);
    let attributes = vec![
        ("body", Attr::Graph(Box::new(graph))),
        ("num_scan_inputs", Attr::Int(1)),
        ("scan_input_axes", Attr::Ints(vec![axis])),
        ("scan_output_axes", Attr::Ints(vec![axis])),
        ("scan_input_directions", Attr::Ints(vec![direction])),
        ("scan_output_directions", Attr::Ints(vec![direction])),
    ];
    let results = vec![Inferred::new(x.dtype, Some(rest)), Inferred::new(x.dtype, Some(dims))];
    let y = b.typed("Scan", &[&initial, &x], attributes, results).pop().unwrap_or_else(Value::none);
    bind_along(b, op, y)
}

/// Returns the lowest finite number of a dtype.
fn lowest(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => -65_504.0,
        DType::F64 => f64::MIN,
        _ => f64::from(f32::MIN),
    }
}

/// Returns log(exp(x) + exp(y)).
fn log_add(b: &mut Builder<'_>, x: &Value, y: &Value) -> Value {
    let top = run2(b, "Max", x, y);
    let mut powers = Vec::new();
    for value in [x, y] {
        let below = run2(b, "Sub", value, &top);
        powers.push(run1(b, "Exp", &below));
    }
    let [p, q] = &powers[..] else { return top };
    let sum = run2(b, "Add", p, q);
    let log = run1(b, "Log", &sum);
    run2(b, "Add", &top, &log)
}

/// `arg_max`, `arg_min`: the place of the first extreme along an axis, or in the flattened operand.
pub(super) fn arg(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let kind = if op.kind.ends_with("max") { "ArgMax" } else { "ArgMin" };
    let rank = b.rank(op, &x)?;
    let keep = op.bool("keepdims", false);
    let is_flat = op.bool("flatten", false) || rank == 0;
    let (operand, axis) = if is_flat { (b.reshape(&x, &[-1]), 0) } else { (x.clone(), axis_of(b, op, &x)?) };
    let operand = b.cast(&operand, computed(kind, x.dtype));
    let axis = i64::try_from(axis).unwrap_or(0);
    let attributes = vec![("axis", Attr::Int(axis)), ("keepdims", Attr::Int(i64::from(keep && !is_flat)))];
    let mut y = b.node(kind, &[&operand], attributes);
    if is_flat && keep {
        y = b.reshape(&y, &vec![1; rank]);
    }
    let dtype = match op.dtype("dtype") {
        Some(dtype @ (DType::I32 | DType::I64)) => dtype,
        _ => DType::I64,
    };
    let y = b.cast(&y, dtype);
    b.bind(op, "Out", y);
    Ok(())
}
