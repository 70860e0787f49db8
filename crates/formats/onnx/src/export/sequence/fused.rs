//! Operators that passes of Paddle's inference library make of several operators on sequences, and embeddings of sequences.

use super::super::builder::{Builder, Value};
use super::super::operator::Op;
use super::{decode, dynamic, known_sizes, neighbours, pooled, recurrent};
use crate::constant::Constant;
use crate::model::Attr;
use weighbridge_core::error::Result;
use weighbridge_core::tensor::DType;

/// `fusion_seqconv_eltadd_relu`: `sequence_conv`, a bias, and max(0, x).
pub(super) fn sequence_conv_relu(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    dynamic::refuse_read(b, op, &["ColMat"])?;
    let bias = b.input(op, "Bias")?;
    let product = neighbours(b, op)?;
    let sum = b.binary("Add", &product, &bias);
    let out = b.unary("Relu", &sum);
    b.bind(op, "Out", out);
    Ok(())
}

/// `fusion_seqpool_concat`: `sequence_pool` of each input, side by side.
pub(super) fn sequence_pool_concat(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let inputs = b.inputs(op, "X")?;
    let mut parts = Vec::new();
    for input in &inputs {
        parts.push(pooled(b, op, input, "SUM")?);
    }
    if parts.is_empty() || op.int("axis", 1) != 1 {
        return Err(op.refuse("another axis than 1"));
    }
    let out = b.concat(&parts.iter().collect::<Vec<_>>(), 1);
    b.bind(op, "Out", out);
    Ok(())
}

/// `fusion_seqexpand_concat_fc`: the first input is a sequence, the others are rows for all of its steps. Their concatenation is
/// multiplied by weights.
pub(super) fn sequence_expand_fc(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    dynamic::refuse_read(b, op, &["FCOut"])?;
    let mut parts = b.inputs(op, "X")?;
    let weight = b.input(op, "FCWeight")?;
    let Some((first, others)) = parts.split_first_mut() else {
        return Err(op.malformed("lacks its inputs"));
    };
    let (rows, one) = (b.dim(first, 0), b.ints(&[1]));
    let repeats = b.concat(&[&rows, &one], 0);
    for other in others {
        *other = b.binary("Tile", other, &repeats);
    }
    let all = b.concat(&parts.iter().collect::<Vec<_>>(), 1);
    let mut out = b.binary("MatMul", &all, &weight);
    if let Some(bias) = b.optional(op, "FCBias")? {
        let bias = b.reshape(&bias, &[-1]);
        out = b.binary("Add", &out, &bias);
    }
    let name = op.text("fc_activation", "identity");
    let out = recurrent::activate(b, op, name, &out)?;
    b.bind(op, "Out", out);
    Ok(())
}

/// `fused_embedding_seq_pool`: sum of the rows of `W` for the labels [T, 1] of a sequence; labels equal to `padding_idx` count as 0.
pub(super) fn embedding_pool(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (weight, ids) = (b.input(op, "W")?, b.input(op, "Ids")?);
    if op.text("combiner", "sum") != "sum" || ids.size(1) != Some(1) {
        return Err(op.refuse("another combination than the sum of one label a step"));
    }
    let ids = b.cast(&ids, DType::I64);
    let padding = op.int("padding_idx", -1);
    let mut rows;
    if padding >= 0 {
        let (padding, zero) = (b.int(padding), b.int(0));
        let is_padding = b.binary("Equal", &ids, &padding);
        let ids = b.node("Where", &[&is_padding, &zero, &ids], Vec::new());
        let ids = b.squeeze(&ids, &[1]);
        rows = b.gather(&weight, &ids, 0);
        let nothing = b.scalar(0.0, weight.dtype);
        rows = b.node("Where", &[&is_padding, &nothing, &rows], Vec::new());
    } else {
        let ids = b.squeeze(&ids, &[1]);
        rows = b.gather(&weight, &ids, 0);
    }
    let out = b.reduce("ReduceSum", &rows, &[0], true);
    b.bind(op, "Out", out);
    Ok(())
}

/// `add_position_encoding`: alpha * x + beta * e, for a sequence [T, D] or a batch [N, T, D]. Step t has in e, for k below D / 2, the
/// sine and, D / 2 later, the cosine of t / 10000^(k / (D / 2 - 1)).
pub(super) fn add_position_encoding(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let rank = b.rank(op, &x)?;
    if !(2..=3).contains(&rank) {
        return Err(op.refuse("another number of dimensions than 2 or 3"));
    }
    let size = known_sizes(op, &x, rank - 1)?;
    let half = size / 2;
    if size % 2 != 0 || half > 1 << 15 {
        return Err(op.refuse("rows of an odd or large number of elements"));
    }
    #[allow(clippy::cast_precision_loss)]
    let divisor = |k: i64| match half {
        1 => 10000.0,
        half => 10000f64.powf(k as f64 / (half - 1) as f64),
    };
    let divisors: Vec<f64> = (0..half).map(divisor).collect();
    let divisors = Value::of(Constant::of_floats(&divisors, x.dtype, &[half]));
    let steps = b.dim(&x, rank - 2);
    let steps = decode::iota(b, &steps);
    let steps = b.cast(&steps, x.dtype);
    let steps = b.unsqueeze(&steps, &[1]);
    let angles = b.binary("Div", &steps, &divisors);
    let (sine, cosine) = (b.unary("Sin", &angles), b.unary("Cos", &angles));
    let encoding = b.concat(&[&sine, &cosine], 1);
    let (alpha, beta) = (b.scalar(op.float("alpha", 1.0), x.dtype), b.scalar(op.float("beta", 1.0), x.dtype));
    let (scaled, added) = (b.binary("Mul", &x, &alpha), b.binary("Mul", &encoding, &beta));
    let out = b.binary("Add", &scaled, &added);
    b.bind(op, "Out", out);
    Ok(())
}

/// `sequence_scatter`: adds the steps of `Updates` to the elements `Ids` of the one row of X.
pub(super) fn sequence_scatter(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (x, ids) = (b.input(op, "X")?, b.input(op, "Ids")?);
    let updates = b.input(op, "Updates")?;
    let ids = b.cast(&ids, DType::I64);
    let (ids, updates) = (b.reshape(&ids, &[1, -1]), b.reshape(&updates, &[1, -1]));
    let attributes = vec![("axis", Attr::Int(1)), ("reduction", Attr::Text("add".to_owned()))];
    let out = b.node("ScatterElements", &[&x, &ids, &updates], attributes);
    b.bind(op, "Out", out);
    Ok(())
}
