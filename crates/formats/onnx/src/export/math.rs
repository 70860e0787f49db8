//! Arithmetic, activations, comparisons, reductions, matrix products.

use super::builder::Builder;
use super::operator::{Op, Row, row};
use weighbridge_core::error::Result;

/// Operators of this family.
#[rustfmt::skip]
pub(super) const ROWS: &[Row] = &[
    row("relu", "relu", "X", "Out", relu),
    row("scale", "scale", "X ScaleTensor", "Out", scale),
    row("matmul_v2", "matmul", "X Y", "Out", matmul).renamed("transpose_x=trans_x transpose_y=trans_y"),
];

/// `relu`: max(x, 0).
fn relu(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let y = b.unary("Relu", &x);
    b.bind(op, "Out", y);
    Ok(())
}

/// `scale`: x * scale + bias, or (x + bias) * scale if `bias_after_scale` is false. Integers are computed as integers.
fn scale(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let factor = match b.optional(op, "ScaleTensor")? {
        Some(factor) => b.cast(&factor, x.dtype),
        None => b.scalar(op.float("scale", 1.0), x.dtype),
    };
    let bias = b.scalar(op.float("bias", 0.0), x.dtype);
    let is_one = factor.constant.as_ref().and_then(|c| super::operator::only(c)) == Some(1.0);
    let is_zero = op.float("bias", 0.0) == 0.0;
    let mut y = x.clone();
    let after = op.bool("bias_after_scale", true);
    if !after && !is_zero {
        y = b.binary("Add", &y, &bias);
    }
    if !is_one {
        y = b.binary("Mul", &y, &factor);
    }
    if after && !is_zero {
        y = b.binary("Add", &y, &bias);
    }
    b.bind(op, "Out", y);
    Ok(())
}

/// `matmul_v2`: product of the last two dimensions, each transposed first where an attribute says so.
fn matmul(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (mut x, mut y) = (b.input(op, "X")?, b.input(op, "Y")?);
    for (value, name) in [(&mut x, "trans_x"), (&mut y, "trans_y")] {
        let rank = b.rank(op, value)?;
        if op.bool(name, false) && rank > 1 {
            let mut order: Vec<usize> = (0..rank).collect();
            order.swap(rank - 1, rank - 2);
            *value = b.transpose(value, &order);
        }
    }
    let product = b.binary("MatMul", &x, &y);
    b.bind(op, "Out", product);
    Ok(())
}
