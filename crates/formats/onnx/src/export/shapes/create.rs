//! Creation of tensors: constants, ranges, diagonals, one-hot codes.

use super::index::diagonal_places;
use super::layout::merge;
use super::{count_up, expand_to, known_int, list, scalar, select, signed, sizes_of, wide, within};
use crate::constant::{Constant, Data};
use crate::export::builder::{Builder, Value};
use crate::export::operator::{Op, only};
use crate::model::Attr;
use weighbridge_core::error::Result;
use weighbridge_core::tensor::DType;

/// `shape`: the sizes of the dimensions, in 32 bits; `shape64` in 64 bits.
pub(super) fn shape(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "Input")?;
    let shape = b.shape_of(&x);
    let shape = b.cast(&shape, if op.kind == "shape64" { DType::I64 } else { DType::I32 });
    b.bind(op, "Out", shape);
    Ok(())
}

/// Returns the number of elements as a scalar.
fn count_of(b: &mut Builder<'_>, x: &Value) -> Value {
    let sizes = x.sizes();
    match sizes.and_then(|sizes| sizes.iter().try_fold(1i64, |product, size| product.checked_mul(*size))) {
        Some(count) => b.int(count),
        None => b.unary("Size", x),
    }
}

/// `size`, `numel`: the number of elements.
pub(super) fn size(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "Input")?;
    let count = count_of(b, &x);
    b.bind(op, "Out", count);
    Ok(())
}

/// `is_empty`: whether the tensor has no elements.
pub(super) fn is_empty(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let count = count_of(b, &x);
    let zero = b.int(0);
    let y = b.binary("Equal", &count, &zero);
    b.bind(op, "Out", y);
    Ok(())
}

// ---- constants

/// Fails for dtypes that constants do not have.
fn check_dtype(op: &Op<'_>, dtype: DType) -> Result<()> {
    if dtype.is_float()
        || matches!(dtype, DType::Bool | DType::U8 | DType::I8 | DType::I16 | DType::I32 | DType::I64)
    {
        return Ok(());
    }
    Err(op.refuse(format_args!("constants of dtype {dtype} are not supported")))
}

/// Returns the number of an attribute as a tensor of one element. `str_value` has the number with all its digits.
fn filler(op: &Op<'_>, dtype: DType) -> Result<Constant> {
    check_dtype(op, dtype)?;
    let name = if op.text("str_value", "").is_empty() { "value" } else { "str_value" };
    let is_fraction = matches!(op.text(name, ""), text if text.contains(['.', 'e', 'n']));
    if !dtype.is_float() && !is_fraction {
        return Ok(Constant::of_ints(&[op.int(name, 0)], dtype, &[1]));
    }
    Ok(Constant::of_floats(&[op.float(name, 0.0)], dtype, &[1]))
}

/// Returns a tensor of equal elements; `shape` has rank 1.
fn filled(b: &mut Builder<'_>, shape: &Value, filler: Constant) -> Value {
    let dtype = filler.dtype;
    let inner = if dtype == DType::BF16 { DType::F32 } else { dtype };
    let filler = filler.cast(inner);
    let y = b.node("ConstantOfShape", &[shape], vec![("value", Attr::Tensor(filler))]);
    b.cast(&y, dtype)
}

/// `fill_constant`, `full`: a tensor of equal elements, by a number or a tensor of one element.
pub(super) fn fill_constant(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let shape = list(b, op, "shape", "ShapeTensor", "ShapeTensorList")?;
    let shape = shape.ok_or_else(|| op.malformed("lacks its shape"))?;
    if shape.items.iter().flatten().any(|size| *size < 0) {
        return Err(op.malformed("has a negative size"));
    }
    let value = b.optional(op, "ValueTensor")?;
    let default = value.as_ref().map_or(DType::F32, |value| value.dtype);
    let dtype = op.dtype("dtype").unwrap_or(default);
    let mut y = match value {
        Some(value) => {
            let value = b.cast(&value, dtype);
            match b.known(&value)?.filter(|constant| constant.len() == 1) {
                Some(constant) => filled(b, &shape.value, Constant { shape: vec![1], ..(*constant).clone() }),
                None => expand_to(b, &value, &shape.value),
            }
        }
        None => filled(b, &shape.value, filler(op, dtype)?),
    };
    if let Some(dims) = &mut y.dims {
        for (dim, item) in dims.iter_mut().zip(&shape.items) {
            if let Some(size) = item {
                *dim = crate::model::Dim::Size(*size);
            }
        }
    }
    b.bind(op, "Out", y);
    Ok(())
}

/// `full_int_array`: a tensor of rank 1 with these integers.
pub(super) fn full_int_array(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let values = op.ints("value").ok_or_else(|| op.malformed("lacks its values"))?;
    let dtype = op.dtype("dtype").unwrap_or(DType::I64);
    check_dtype(op, dtype)?;
    b.bind(op, "Out", Value::of(Constant::of_ints(&values, dtype, &[signed(values.len())])));
    Ok(())
}

/// `fill_any_like`, `full_like`, `fill_zeros_like`: a tensor of equal elements with the shape of another.
pub(super) fn fill_like(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let dtype = op.dtype("dtype").unwrap_or(x.dtype);
    let shape = b.shape_of(&x);
    let y = match b.optional(op, "ValueTensor")? {
        None => filled(b, &shape, filler(op, dtype)?),
        Some(value) => match b.known(&value)?.filter(|constant| constant.len() == 1) {
            Some(constant) => {
                check_dtype(op, dtype)?;
                filled(b, &shape, Constant { shape: vec![1], ..constant.cast(dtype) })
            }
            None => {
                let value = b.cast(&value, dtype);
                expand_to(b, &value, &shape)
            }
        },
    };
    b.bind(op, "Out", y);
    Ok(())
}

/// `fill_constant_batch_size_like`: a tensor of equal elements; one of its sizes is that of a dimension of the input.
pub(super) fn fill_batch_like(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "Input")?;
    let sizes = op.ints("shape").ok_or_else(|| op.malformed("lacks its shape"))?;
    let from = b.axis(op, &x, op.int("input_dim_idx", 0))?;
    let to = usize::try_from(op.int("output_dim_idx", 0)).unwrap_or(usize::MAX);
    let mut parts = Vec::new();
    for (place, size) in sizes.iter().enumerate() {
        parts.push(match size {
            _ if place == to => b.dim(&x, from),
            size if *size < 0 => return Err(op.malformed("has a negative size")),
            size => b.ints(&[*size]),
        });
    }
    let shape = if parts.is_empty() { b.ints(&[]) } else { b.concat(&parts.iter().collect::<Vec<_>>(), 0) };
    let y = filled(b, &shape, filler(op, op.dtype("dtype").unwrap_or(DType::F32))?);
    b.bind(op, "Out", y);
    Ok(())
}

/// `assign`, `share_data`, `memcpy`: the input itself. `assign_out_` also changes its second operand.
pub(super) fn assign(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    if let Some(name) = op.input("Output").first() {
        b.set(name, x.clone());
    }
    b.bind(op, "Out", x);
    Ok(())
}

/// Names of attributes with elements.
const ELEMENTS: [&str; 7] =
    ["values", "bool_values", "int32_values", "int64_values", "fp32_values", "fp64_values", "fp16_values"];

/// Returns the tensor in the attributes of an operator.
pub(super) fn elements(op: &Op<'_>, dtype: DType) -> Result<Constant> {
    check_dtype(op, dtype)?;
    let shape = op.ints("shape").unwrap_or_else(|| vec![1]);
    let count = shape.iter().try_fold(1i64, |product, size| product.checked_mul(*size)).unwrap_or(-1);
    let is_bad = shape.iter().any(|size| *size < 0);
    let count =
        usize::try_from(if is_bad { -1 } else { count }).map_err(|_| op.malformed("has a bad shape"))?;
    if count == 0 {
        let data = if dtype.is_float() { Data::Floats(Vec::new()) } else { Data::Ints(Vec::new()) };
        return Ok(Constant { dtype, shape, data });
    }
    for name in ELEMENTS {
        let found = if dtype.is_float() {
            op.floats(name).map(|values| (values.len(), Constant::of_floats(&values, dtype, &shape)))
        } else {
            op.ints(name).map(|values| (values.len(), Constant::of_ints(&values, dtype, &shape)))
        };
        if let Some((_, constant)) = found.filter(|(own, _)| *own == count) {
            return Ok(constant);
        }
    }
    Err(op.malformed("has another number of elements than its shape"))
}

/// `assign_value`: a tensor in the attributes.
pub(super) fn assign_value(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let dtype = op.dtype("dtype").or_else(|| b.declared_dtype(op, "Out")).unwrap_or(DType::F32);
    let value = Value::of(elements(op, dtype)?);
    if let Some(name) = op.input("Output").first() {
        b.set(name, value.clone());
    }
    b.bind(op, "Out", value);
    Ok(())
}

// ---- ranges

/// Dtypes of `Range` in ONNX Runtime.
const RANGE: &[DType] = &[DType::F32, DType::F64, DType::I16, DType::I32, DType::I64];

/// `range`, `arange`: numbers from a start to before an end, by a step.
pub(super) fn range(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let start = b.input(op, "Start")?;
    let dtype = op.dtype("dtype").unwrap_or(start.dtype);
    let inner = wide(dtype, RANGE);
    let mut bounds = Vec::new();
    for slot in ["Start", "End", "Step"] {
        let value = b.input(op, slot)?;
        let value = match b.known(&value)? {
            Some(constant) => Value::of((*constant).clone()),
            None => value,
        };
        let value = b.cast(&value, dtype);
        bounds.push(scalar(b, &value, inner));
    }
    let y = b.node("Range", &bounds.iter().collect::<Vec<_>>(), Vec::new());
    let y = b.cast(&y, dtype);
    b.bind(op, "Out", y);
    Ok(())
}

/// Returns numbers at equal distances, in 64-bit floats: from the start in the first half, from the end in the second.
fn spaced(b: &mut Builder<'_>, op: &Op<'_>, dtype: DType) -> Result<Value> {
    let mut bounds = Vec::new();
    for slot in ["Start", "Stop"] {
        let value = b.input(op, slot)?;
        let value = b.cast(&value, dtype);
        bounds.push(scalar(b, &value, DType::F64));
    }
    let count = b.input(op, "Num")?;
    let count = match b.known(&count)? {
        Some(constant) => Value::of((*constant).clone()),
        None => count,
    };
    let count = scalar(b, &count, DType::I64);
    let (one, two) = (b.int(1), b.int(2));
    let last = b.binary("Sub", &count, &one);
    let steps = b.binary("Max", &last, &one);
    let steps = b.cast(&steps, DType::F64);
    let span = b.binary("Sub", &bounds[1], &bounds[0]);
    let step = b.binary("Div", &span, &steps);
    let places = count_up(b, &count);
    let half = b.binary("Div", &count, &two);
    let half = b.binary("Max", &half, &one);
    let is_first = b.binary("Less", &places, &half);
    let behind = b.binary("Sub", &last, &places);
    let mut sides = Vec::new();
    for (bound, places, kind) in [(&bounds[0], &places, "Add"), (&bounds[1], &behind, "Sub")] {
        let places = b.cast(places, DType::F64);
        let distance = b.binary("Mul", &places, &step);
        sides.push(b.binary(kind, bound, &distance));
    }
    Ok(b.node("Where", &[&is_first, &sides[0], &sides[1]], Vec::new()))
}

/// `linspace`: numbers at equal distances, both ends included.
pub(super) fn linspace(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let dtype = op.dtype("dtype").unwrap_or(b.input(op, "Start")?.dtype);
    let y = spaced(b, op, dtype)?;
    let y = b.cast(&y, dtype);
    b.bind(op, "Out", y);
    Ok(())
}

/// `logspace`: powers of a base, whose exponents are at equal distances.
pub(super) fn logspace(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let dtype = op.dtype("dtype").unwrap_or(b.input(op, "Start")?.dtype);
    let exponents = spaced(b, op, dtype)?;
    let base = b.input(op, "Base")?;
    let base = b.cast(&base, dtype);
    let base = scalar(b, &base, DType::F64);
    let y = b.binary("Pow", &base, &exponents);
    let y = b.cast(&y, dtype);
    b.bind(op, "Out", y);
    Ok(())
}

// ---- matrices

/// `eye`: ones on the diagonal, else zeros.
pub(super) fn eye(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let rows = known_int(b, op, "num_rows", "Rows", 0)?;
    let columns = match known_int(b, op, "num_columns", "Columns", -1)? {
        -1 => rows,
        columns => columns,
    };
    let dtype = op.dtype("dtype").unwrap_or(DType::F32);
    check_dtype(op, dtype)?;
    if rows < 0 || columns < 0 {
        return Err(op.malformed("has a negative size"));
    }
    let (height, width) = (b.ints(&[rows]), b.ints(&[columns]));
    let (rows, columns) = (count_up(b, &height), count_up(b, &width));
    let rows = b.unsqueeze(&rows, &[1]);
    let y = b.binary("Equal", &rows, &columns);
    let y = b.cast(&y, dtype);
    b.bind(op, "Out", y);
    Ok(())
}

/// `one_hot`: 1 at the place of each index in a new last dimension, else 0. The first version has indices with a trailing dimension
/// of 1, which the new one replaces.
pub(super) fn one_hot(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let depth = match b.optional(op, "depth_tensor")? {
        None => b.int(op.int("depth", 1)),
        Some(depth) => match b.known_ints(&depth)? {
            Some(known) => b.ints(&known),
            None => depth,
        },
    };
    let places = count_up(b, &depth);
    let x = b.cast(&x, DType::I64);
    let x = if op.kind == "one_hot" && !op.is_pir { x } else { b.unsqueeze(&x, &[-1]) };
    let y = b.binary("Equal", &x, &places);
    let y = b.cast(&y, op.dtype("dtype").unwrap_or(DType::F32));
    b.bind(op, "Out", y);
    Ok(())
}

/// Dtypes of `Trilu` in ONNX Runtime.
const TRILU: &[DType] = &[DType::F32, DType::F64, DType::I64];

/// Adds a `Trilu` node.
fn triangle(b: &mut Builder<'_>, x: &Value, diagonal: i64, is_lower: bool) -> Value {
    let diagonal = b.int(diagonal);
    // 16-bit integers and booleans fit in 64 bits.
    let dtype = if x.dtype == DType::Bool { DType::I64 } else { wide(x.dtype, TRILU) };
    let inner = b.cast(x, dtype);
    let y = b.node("Trilu", &[&inner, &diagonal], vec![("upper", Attr::Int((!is_lower).into()))]);
    b.cast(&y, x.dtype)
}

/// `tril_triu`: the triangle of each matrix below or above a diagonal, else zeros.
pub(super) fn tril_triu(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let is_lower = op.kind == "tril" || op.kind != "triu" && op.bool("lower", false);
    let y = triangle(b, &x, op.int("diagonal", 0), is_lower);
    b.bind(op, "Out", y);
    Ok(())
}

/// `tril_indices`, `triu_indices`: the coordinates in a triangle of a matrix.
pub(super) fn tril_indices(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (rows, columns) = (op.int("rows", op.int("row", 0)), op.int("cols", op.int("col", 0)));
    let shape = b.ints(&[rows, columns]);
    let ones = b.filled(&shape, 1.0, DType::I64);
    let part = triangle(b, &ones, op.int("offset", 0), op.kind == "tril_indices");
    let y = b.unary("NonZero", &part);
    let y = b.cast(&y, op.dtype("dtype").unwrap_or(DType::I64));
    b.bind(op, "out", y);
    Ok(())
}

/// Returns matrices with the last dimension on a diagonal; `padding` elsewhere.
fn embedded(b: &mut Builder<'_>, op: &Op<'_>, x: &Value, offset: i64, padding: &Value) -> Result<Value> {
    let last = b.rank(op, x)?.checked_sub(1).ok_or_else(|| op.malformed("needs a dimension"))?;
    let extra = b.ints(&[offset.saturating_abs()]);
    let mut sizes = sizes_of(b, x, 0..last);
    sizes.push(extra);
    let shape = b.concat(&sizes.iter().collect::<Vec<_>>(), 0);
    let behind = b.filled(&shape, 0.0, x.dtype);
    let x = if offset == 0 { x.clone() } else { b.concat(&[x, &behind], signed(last)) };
    let side = b.dim(&x, last);
    let columns = count_up(b, &side);
    let rows = b.unsqueeze(&columns, &[1]);
    let distance = b.binary("Sub", &columns, &rows);
    let offset_value = b.int(offset);
    let is_diagonal = b.binary("Equal", &distance, &offset_value);
    let axis = if offset >= 0 { -1 } else { -2 };
    let x = b.unsqueeze(&x, &[axis]);
    Ok(select(b, &is_diagonal, &x, padding))
}

/// Returns the diagonal of the last two dimensions.
fn extracted(b: &mut Builder<'_>, op: &Op<'_>, x: &Value, offset: i64) -> Result<Value> {
    let rank = b.rank(op, x)?;
    if rank < 2 {
        return Err(op.malformed("needs two dimensions"));
    }
    let (height, width) = (b.dim(x, rank - 2), b.dim(x, rank - 1));
    let places = diagonal_places(b, &height, &width, offset);
    let flat = merge(b, x, rank - 2, rank - 1);
    Ok(b.gather(&flat, &places, signed(rank) - 2))
}

/// `diag`: a matrix with the input on a diagonal; or the diagonal of a matrix.
pub(super) fn diag(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let offset = op.int("offset", 0);
    let y = if b.rank(op, &x)? == 1 {
        let padding = b.scalar(op.float("padding_value", 0.0), x.dtype);
        embedded(b, op, &x, offset, &padding)?
    } else {
        extracted(b, op, &x, offset)?
    };
    b.bind(op, "Out", y);
    Ok(())
}

/// `diag_embed`: matrices, in the dimensions `dim1` and `dim2`, with the last dimension of the input on a diagonal.
pub(super) fn diag_embed(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "Input")?;
    let zero = b.scalar(0.0, x.dtype);
    let y = embedded(b, op, &x, op.int("offset", 0), &zero)?;
    let rank = b.rank(op, &x)? + 1;
    let whole = Value { dims: Some(vec![crate::model::Dim::Open; rank]), ..y.clone() };
    let (first, second) = (b.axis(op, &whole, op.int("dim1", -2))?, b.axis(op, &whole, op.int("dim2", -1))?);
    if first == second {
        return Err(op.malformed("has one dimension twice"));
    }
    let mut rest = 0..rank - 2;
    let order: Vec<usize> = (0..rank)
        .map(|place| match place {
            place if place == first => rank - 2,
            place if place == second => rank - 1,
            _ => rest.next().unwrap_or(0),
        })
        .collect();
    let y = b.transpose(&y, &order);
    b.bind(op, "Out", y);
    Ok(())
}

/// Returns the diagonal of the dimensions `axis1` and `axis2`, as the last dimension.
fn diagonal_of(b: &mut Builder<'_>, op: &Op<'_>) -> Result<Value> {
    let x = b.input(op, "Input")?;
    let (first, second) = (b.axis(op, &x, op.int("axis1", 0))?, b.axis(op, &x, op.int("axis2", 1))?);
    // The trace of Paddle 2 takes the axes in rising order.
    let is_sorted = op.kind == "trace" && !op.is_pir && second < first;
    let (first, second) = if is_sorted { (second, first) } else { (first, second) };
    let rank = b.rank(op, &x)?;
    if first == second || rank < 2 {
        return Err(op.malformed("needs two dimensions"));
    }
    let mut order: Vec<usize> = (0..rank).filter(|axis| *axis != first && *axis != second).collect();
    order.extend([first, second]);
    let x = b.transpose(&x, &order);
    extracted(b, op, &x, op.int("offset", 0))
}

/// `diagonal`: the diagonal of two dimensions, as the last dimension.
pub(super) fn diagonal(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let y = diagonal_of(b, op)?;
    b.bind(op, "Out", y);
    Ok(())
}

/// `trace`: the sum of the diagonal of two dimensions.
pub(super) fn trace(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = diagonal_of(b, op)?;
    let y = within(b, &x, &[DType::F32, DType::F64, DType::I32, DType::I64], |b, x| {
        let last = b.ints(&[-1]);
        b.node("ReduceSum", &[x, &last], vec![("keepdims", Attr::Int(0))])
    });
    b.bind(op, "Out", y);
    Ok(())
}

/// `dropout` at inference: the input; with `downgrade_in_infer`, times the share of elements kept in training.
pub(super) fn dropout(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    if !op.bool("is_test", false) {
        return Err(op.refuse("random elements are dropped in training"));
    }
    let y = if op.text("dropout_implementation", "downgrade_in_infer") == "upscale_in_train" {
        x
    } else {
        let share = match b.optional(op, "Probability")? {
            None => op.float("dropout_prob", 0.5),
            Some(share) => {
                let known = b.known(&share)?.and_then(|constant| only(&constant));
                known.ok_or_else(|| op.refuse("the probability is known only at run time"))?
            }
        };
        let kept = b.scalar(1.0 - share, x.dtype);
        b.binary("Mul", &x, &kept)
    };
    b.bind(op, "Out", y);
    Ok(())
}
