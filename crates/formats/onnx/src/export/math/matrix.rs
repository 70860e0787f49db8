//! Products of matrices and what goes with them.

use super::super::builder::{Builder, Value};
use super::super::operator::Op;
use super::{bind, reduction, run, run1, run2, with_number};
use crate::model::Attr;
use weighbridge_core::error::Result;

/// Swaps the last two dimensions.
fn transposed(b: &mut Builder<'_>, op: &Op<'_>, value: &Value) -> Result<Value> {
    let rank = b.rank(op, value)?;
    let mut order: Vec<usize> = (0..rank).collect();
    if rank > 1 {
        order.swap(rank - 1, rank - 2);
    }
    Ok(b.transpose(value, &order))
}

/// `matmul_v2`: product of the last two dimensions, each transposed first where an attribute says so. The older `matmul`
/// multiplies the product by alpha.
pub(super) fn matmul(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (mut x, mut y) = (b.input(op, "X")?, b.input(op, "Y")?);
    if op.int("head_number", 1) > 1 {
        return Err(op.refuse("products by heads"));
    }
    let is_old = !op.is_pir && op.kind == "matmul";
    let names = if is_old { ["transpose_X", "transpose_Y"] } else { ["trans_x", "trans_y"] };
    for (value, name) in [(&mut x, names[0]), (&mut y, names[1])] {
        if op.bool(name, false) {
            if is_old && b.rank(op, value)? < 2 {
                return Err(op.refuse("transposed vectors"));
            }
            *value = transposed(b, op, value)?;
        }
    }
    let mut product = run2(b, "MatMul", &x, &y);
    let alpha = op.float("alpha", 1.0);
    if is_old && alpha != 1.0 {
        product = with_number(b, "Mul", &product, alpha);
    }
    bind(b, op, product);
    Ok(())
}

/// `bmm`, `mv`: the product of matrices, or of a matrix and a vector.
pub(super) fn product(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let y = b.input(op, if op.kind == "mv" { "Vec" } else { "Y" })?;
    let product = run2(b, "MatMul", &x, &y);
    bind(b, op, product);
    Ok(())
}

/// `multi_dot`: the product of several matrices.
pub(super) fn multi_dot(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let values = b.inputs(op, "X")?;
    let (first, rest) = values.split_first().ok_or_else(|| op.malformed("lacks its inputs"))?;
    let mut product = first.clone();
    for value in rest {
        product = run2(b, "MatMul", &product, value);
    }
    bind(b, op, product);
    Ok(())
}

/// `mul`: the product of two matrices: of x, whose first `x_num_col_dims` dimensions are rows, and of y, whose first
/// `y_num_col_dims` are.
pub(super) fn mul(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (x, y) = (b.input(op, "X")?, b.input(op, "Y")?);
    let (m, n) = (b.rank(op, &x)?, b.rank(op, &y)?);
    let split = |name: &str, rank: usize| -> Result<usize> {
        let count = usize::try_from(op.int(name, 1)).ok().filter(|count| *count > 0 && *count < rank);
        count.ok_or_else(|| op.malformed(format_args!("has {name} outside the dimensions")))
    };
    let (rows, inner) = (split("x_num_col_dims", m)?, split("y_num_col_dims", n)?);
    if n == 2 && rows + 1 == m {
        let product = run2(b, "MatMul", &x, &y);
        bind(b, op, product);
        return Ok(());
    }
    let flat = |b: &mut Builder<'_>, value: &Value, rank: usize, axis: usize| {
        if rank == 2 {
            return value.clone();
        }
        b.node("Flatten", &[value], vec![("axis", Attr::Int(i64::try_from(axis).unwrap_or(1)))])
    };
    let (left, right) = (flat(b, &x, m, rows), flat(b, &y, n, inner));
    let mut product = run2(b, "MatMul", &left, &right);
    if rows != 1 || n - inner != 1 {
        let (p, q) = (b.shape_of(&x), b.shape_of(&y));
        let p = b.slice(&p, 0, 0, i64::try_from(rows).unwrap_or(0));
        let q = b.slice(&q, 0, i64::try_from(inner).unwrap_or(0), i64::MAX);
        let shape = b.concat(&[&p, &q], 0);
        let dims =
            x.dims.iter().flat_map(|dims| &dims[..rows]).chain(y.dims.iter().flat_map(|dims| &dims[inner..]));
        let dims = dims.cloned().collect();
        product = b.binary("Reshape", &product, &shape);
        product.dims = Some(dims);
    }
    bind(b, op, product);
    Ok(())
}

/// `dot`: the sum of the products along the last dimension.
pub(super) fn dot(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (x, y) = (b.input(op, "X")?, b.input(op, "Y")?);
    let product = run2(b, "Mul", &x, &y);
    let z =
        if x.rank() == Some(0) { product } else { reduction(b, "ReduceSum", &product, Some(&[-1]), false) };
    bind(b, op, z);
    Ok(())
}

/// `addmm`, `baddbmm`: Beta * Input + Alpha * (X times Y).
pub(super) fn addmm(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (input, x, y) = (b.input(op, "Input")?, b.input(op, "X")?, b.input(op, "Y")?);
    let product = run2(b, "MatMul", &x, &y);
    let scaled = |b: &mut Builder<'_>, value: Value, factor: f64| {
        if factor == 1.0 { value } else { with_number(b, "Mul", &value, factor) }
    };
    let product = scaled(b, product, op.float("Alpha", 1.0));
    let input = scaled(b, input, op.float("Beta", 1.0));
    let z = run2(b, "Add", &input, &product);
    bind(b, op, z);
    Ok(())
}

/// `matrix_power`: the product of n equal matrices.
pub(super) fn matrix_power(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let mut square = b.input(op, "X")?;
    let mut left = op.int("n", 1);
    if left < 0 {
        return Err(op.refuse("a negative power: ONNX has no inverse of matrices"));
    }
    if left == 0 {
        let place = b.rank(op, &square)?.saturating_sub(1);
        let size = b.dim(&square, place);
        let size = super::as_scalar(b, &size);
        let (zero, one) = (b.int(0), b.int(1));
        let places = b.node("Range", &[&zero, &size, &one], Vec::new());
        let column = b.unsqueeze(&places, &[1]);
        let is_same = b.binary("Equal", &column, &places);
        let identity = b.cast(&is_same, square.dtype);
        let shape = b.shape_of(&square);
        let y = b.binary("Expand", &identity, &shape);
        bind(b, op, y);
        return Ok(());
    }
    let mut product: Option<Value> = None;
    while left > 0 {
        if left % 2 == 1 {
            product = Some(match product {
                Some(product) => run2(b, "MatMul", &product, &square),
                None => square.clone(),
            });
        }
        left /= 2;
        if left > 0 {
            square = run2(b, "MatMul", &square, &square);
        }
    }
    bind(b, op, product.unwrap_or(square));
    Ok(())
}

/// `einsum`: sums of products by an equation. A missing right side holds the letters that occur once, in order.
pub(super) fn einsum(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let values = b.inputs(op, "Operands")?;
    let equation: String = op.text("equation", "").split_whitespace().collect();
    let left = equation.split("->").next().unwrap_or("");
    let terms: Vec<&str> = left.split(',').collect();
    if terms.len() != values.len() {
        return Err(op.malformed("has an equation with another number of operands"));
    }
    let is_known = |c: char| c.is_ascii_alphabetic() || matches!(c, ',' | '.' | '-' | '>');
    if !equation.chars().all(is_known) {
        return Err(op.refuse("other characters than letters in the equation"));
    }
    let equation = if equation.contains("->") {
        equation
    } else {
        let mut letters: Vec<char> = left.chars().filter(char::is_ascii_alphabetic).collect();
        letters.sort_unstable();
        let once: String =
            letters.iter().filter(|c| letters.iter().filter(|other| other == c).count() == 1).collect();
        let dots = if left.contains("...") { "..." } else { "" };
        format!("{left}->{dots}{once}")
    };
    let operands: Vec<&Value> = values.iter().collect();
    let y = run(b, "Einsum", &operands, vec![("equation", Attr::Text(equation))]);
    bind(b, op, y);
    Ok(())
}

/// `kron`: each element of x times all of y, in blocks.
pub(super) fn kron(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (mut x, mut y) = (b.input(op, "X")?, b.input(op, "Y")?);
    let (m, n) = (b.rank(op, &x)?, b.rank(op, &y)?);
    let rank = m.max(n);
    let first =
        |count: usize| -> Vec<i64> { (0..count).filter_map(|place| i64::try_from(place).ok()).collect() };
    x = b.unsqueeze(&x, &first(rank - m));
    y = b.unsqueeze(&y, &first(rank - n));
    let (p, q) = (b.shape_of(&x), b.shape_of(&y));
    let sizes = b.binary("Mul", &p, &q);
    let odd: Vec<i64> = first(rank).iter().map(|place| 2 * place + 1).collect();
    let even: Vec<i64> = first(rank).iter().map(|place| 2 * place).collect();
    let (x, y) = (b.unsqueeze(&x, &odd), b.unsqueeze(&y, &even));
    let z = run2(b, "Mul", &x, &y);
    let z = b.binary("Reshape", &z, &sizes);
    bind(b, op, z);
    Ok(())
}

/// `cross`: the vector product along an axis of size 3: by default the first such axis.
pub(super) fn cross(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    const DEFAULT: i64 = 9;
    let (x, y) = (b.input(op, "X")?, b.input(op, "Y")?);
    let axis = match op.int("dim", DEFAULT) {
        DEFAULT => {
            let dims = x.dims.clone().unwrap_or_default();
            let place = dims.iter().position(|dim| dim.size() == Some(3));
            place.ok_or_else(|| op.refuse("no dimension of size 3"))?
        }
        axis => b.axis(op, &x, axis)?,
    };
    let axis = i64::try_from(axis).unwrap_or(0);
    let (next, last) = (b.ints(&[1, 2, 0]), b.ints(&[2, 0, 1]));
    let (p, q) = (b.gather(&x, &next, axis), b.gather(&y, &last, axis));
    let (r, s) = (b.gather(&x, &last, axis), b.gather(&y, &next, axis));
    let (left, right) = (run2(b, "Mul", &p, &q), run2(b, "Mul", &r, &s));
    let z = run2(b, "Sub", &left, &right);
    bind(b, op, z);
    Ok(())
}

/// `determinant`: that of the last two dimensions.
pub(super) fn determinant(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "Input")?;
    let y = run1(b, "Det", &x);
    bind(b, op, y);
    Ok(())
}

/// `bilinear_tensor_product`: x times `Weight[k]` times y for each k, plus the bias.
pub(super) fn bilinear(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (x, y, weight) = (b.input(op, "X")?, b.input(op, "Y")?, b.input(op, "Weight")?);
    let left = b.unsqueeze(&x, &[0]);
    let product = run2(b, "MatMul", &left, &weight);
    let scaled = run2(b, "Mul", &product, &y);
    let sums = reduction(b, "ReduceSum", &scaled, Some(&[-1]), false);
    let mut z = b.transpose(&sums, &[1, 0]);
    if let Some(bias) = b.optional(op, "Bias")? {
        z = run2(b, "Add", &z, &bias);
    }
    bind(b, op, z);
    Ok(())
}
