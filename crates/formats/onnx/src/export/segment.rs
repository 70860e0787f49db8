//! Messages along the edges of graphs, and reductions of segments.
//!
//! Each row of a tensor belongs to a target row; the rows of a target are reduced. A target without rows is 0.

use super::builder::{Builder, Value};
use super::operator::{Op, Row, row};
use super::shapes::limit;
use crate::model::{Attr, Dim};
use weighbridge_core::error::Result;
use weighbridge_core::tensor::DType;

/// Operators of this family.
#[rustfmt::skip]
pub(super) const ROWS: &[Row] = &[
    row("graph_send_recv", "send_u_recv", "X Src_index Dst_index Out_size", "Out Dst_count", send_recv),
    row("graph_send_ue_recv", "send_ue_recv", "X Y Src_index Dst_index Out_size", "Out Dst_count", send_recv),
    row("graph_send_uv", "send_uv", "x y src_index dst_index", "out", send_uv),
    row("segment_pool", "segment_pool", "X SegmentIds", "Out SummedIds", segment_pool),
];

/// `graph_send_recv`: for each edge, the row of x at its source is sent to the target of the edge; the rows that a target gets
/// are reduced. `graph_send_ue_recv` first adds the row of y for the edge, or multiplies by it. There are as many targets as
/// rows of x, or as `out_size` says if it is positive.
fn send_recv(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let (sources, targets) = (indices(b, op, "Src_index")?, indices(b, op, "Dst_index")?);
    let count = target_count(b, op, &x)?;
    let mut messages = b.gather(&x, &sources, 0);
    if let Some(y) = b.optional(op, "Y")? {
        messages = message(b, op, messages, y)?;
    }
    let y = reduced(b, op, &messages, &targets, &count, op.text("reduce_op", "SUM"))?;
    b.bind(op, "Out", y);
    Ok(())
}

/// `graph_send_uv`: for each edge, the sum or product of the row of x at its source and of the row of y at its target.
fn send_uv(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (x, y) = (b.input(op, "x")?, b.input(op, "y")?);
    let (sources, targets) = (indices(b, op, "src_index")?, indices(b, op, "dst_index")?);
    let (x, y) = (b.gather(&x, &sources, 0), b.gather(&y, &targets, 0));
    let z = message(b, op, x, y)?;
    b.bind(op, "out", z);
    Ok(())
}

/// `segment_pool`: the reductions of the rows with the segment number 0, 1, ... The numbers are sorted.
fn segment_pool(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (x, segments) = (b.input(op, "X")?, indices(b, op, "SegmentIds")?);
    let last = b.slice(&segments, 0, -1, i64::MAX);
    let one = b.ints(&[1]);
    let count = b.binary("Add", &last, &one);
    let y = reduced(b, op, &x, &segments, &count, op.text("pooltype", "SUM"))?;
    b.bind(op, "Out", y);
    Ok(())
}

/// Returns indices as 64-bit integers of rank 1.
fn indices(b: &mut Builder<'_>, op: &Op<'_>, slot: &str) -> Result<Value> {
    let value = b.input(op, slot)?;
    let value = b.cast(&value, DType::I64);
    Ok(if value.rank() == Some(1) { value } else { b.reshape(&value, &[-1]) })
}

/// Returns the number of targets as a tensor of rank 1.
fn target_count(b: &mut Builder<'_>, op: &Op<'_>, x: &Value) -> Result<Value> {
    b.axis(op, x, 0)?;
    let own = b.dim(x, 0);
    let given = match b.optional(op, "Out_size")? {
        Some(size) => match b.known_ints(&size)? {
            Some(known) => Ok(known),
            None => Err(size),
        },
        None => Ok(op.ints("out_size").unwrap_or_default()),
    };
    Ok(match given {
        Ok(known) => known.first().filter(|size| **size > 0).map_or(own, |size| b.ints(&[*size])),
        Err(size) => {
            let size = b.cast(&size, DType::I64);
            let size = b.reshape(&size, &[1]);
            let zero = b.ints(&[0]);
            let is_given = b.binary("Greater", &size, &zero);
            b.node("Where", &[&is_given, &size, &own], Vec::new())
        }
    })
}

/// Returns the sum or product of two rows for each edge. The dimensions of a row are aligned at the last one.
fn message(b: &mut Builder<'_>, op: &Op<'_>, x: Value, y: Value) -> Result<Value> {
    let kind = match op.text("message_op", "ADD") {
        "ADD" => "Add",
        "MUL" => "Mul",
        other => {
            return Err(op.refuse(format_args!("the message {}", weighbridge_core::text::escape(other))));
        }
    };
    let rank = b.rank(op, &x)?.max(b.rank(op, &y)?);
    let aligned = |b: &mut Builder<'_>, value: &Value| {
        let missing = rank - value.rank().unwrap_or(rank);
        let axes: Vec<i64> = (1..).take(missing).collect();
        b.unsqueeze(value, &axes)
    };
    let (x, y) = (aligned(b, &x), aligned(b, &y));
    let y = b.cast(&y, x.dtype);
    Ok(b.binary(kind, &x, &y))
}

/// Returns the reductions of the rows of each target.
fn reduced(
    b: &mut Builder<'_>,
    op: &Op<'_>,
    rows: &Value,
    targets: &Value,
    count: &Value,
    kind: &str,
) -> Result<Value> {
    let rank = b.rank(op, rows)?;
    let (own, dims) = (rows.dtype, rows.dims.clone());
    let rows = b.cast(rows, if own == DType::F16 { DType::F32 } else { own });
    let y = match kind {
        "SUM" => scattered(b, &rows, targets, count, "add"),
        "MEAN" => {
            let sums = scattered(b, &rows, targets, count, "add");
            let counts = row_counts(b, targets, count);
            let one = b.int(1);
            let counts = b.binary("Max", &counts, &one);
            let counts = b.cast(&counts, rows.dtype);
            let counts = b.unsqueeze(&counts, &axes_behind(rank));
            b.binary("Div", &sums, &counts)
        }
        "MAX" | "MIN" => {
            let counts = row_counts(b, targets, count);
            let y = if b.opset >= 18 {
                scattered(b, &rows, targets, count, if kind == "MAX" { "max" } else { "min" })
            } else {
                sorted_first(b, &rows, targets, &counts, kind == "MAX")
            };
            let zero = b.int(0);
            let is_some = b.binary("Greater", &counts, &zero);
            let is_some = b.unsqueeze(&is_some, &axes_behind(rank));
            let blank = b.scalar(0.0, y.dtype);
            b.node("Where", &[&is_some, &y, &blank], Vec::new())
        }
        other => {
            return Err(op.refuse(format_args!("the reduction {}", weighbridge_core::text::escape(other))));
        }
    };
    let mut y = b.cast(&y, own);
    y.dims = dims.map(|dims| {
        let count = count.constant.as_ref().and_then(|c| c.as_ints()).and_then(<[i64]>::first);
        let count = count.map_or(Dim::Open, |count| Dim::Size(*count));
        std::iter::once(count).chain(dims.into_iter().skip(1)).collect()
    });
    Ok(y)
}

/// Returns 1, 2, … as the axes behind the first one.
fn axes_behind(rank: usize) -> Vec<i64> {
    (1..).take(rank.saturating_sub(1)).collect()
}

/// Combines the rows of each target: `add`, `max` or `min`. A target without rows is the neutral element.
fn scattered(b: &mut Builder<'_>, rows: &Value, targets: &Value, count: &Value, reduction: &str) -> Value {
    let shape = b.shape_of(rows);
    let shape = b.slice(&shape, 0, 1, i64::MAX);
    let shape = b.concat(&[count, &shape], 0);
    let neutral = match reduction {
        "add" => b.scalar(0.0, rows.dtype),
        reduction => limit(rows.dtype, reduction == "max"),
    };
    let start = b.binary("Expand", &neutral, &shape);
    let targets = b.unsqueeze(targets, &[1]);
    b.node("ScatterND", &[&start, &targets, rows], vec![("reduction", Attr::Text(reduction.to_owned()))])
}

/// Returns the number of rows of each target.
fn row_counts(b: &mut Builder<'_>, targets: &Value, count: &Value) -> Value {
    let shape = b.shape_of(targets);
    let ones = b.filled(&shape, 1.0, DType::I64);
    scattered(b, &ones, targets, count, "add")
}

/// Returns the largest or smallest row of each target, element by element; any number for a target without rows. Two sorts put
/// the elements of a target together with the one wanted first: `TopK` keeps the order of equal elements.
fn sorted_first(b: &mut Builder<'_>, rows: &Value, targets: &Value, counts: &Value, largest: bool) -> Value {
    let all = b.dim(rows, 0);
    let sorted = |b: &mut Builder<'_>, value: &Value, largest: bool| {
        let attributes = vec![("axis", Attr::Int(0)), ("largest", Attr::Int(largest.into()))];
        let mut results = b.nodes("TopK", &[value, &all], attributes, 2);
        let places = results.pop().unwrap_or_else(Value::none);
        (results.pop().unwrap_or_else(Value::none), places)
    };
    let (values, places) = sorted(b, rows, largest);
    let owners = b.gather(targets, &places, 0);
    let (_, places) = sorted(b, &owners, false);
    let values = b.node("GatherElements", &[&values, &places], vec![("axis", Attr::Int(0))]);
    // A target behind all others without rows would begin behind the last element.
    let end = b.shape_of(&values);
    let end = b.slice(&end, 0, 1, i64::MAX);
    let one = b.ints(&[1]);
    let end = b.concat(&[&one, &end], 0);
    let end = b.filled(&end, 0.0, values.dtype);
    let values = b.concat(&[&values, &end], 0);
    let zero = b.int(0);
    let starts = b.node("CumSum", &[counts, &zero], vec![("exclusive", Attr::Int(1))]);
    b.gather(&values, &starts, 0)
}
