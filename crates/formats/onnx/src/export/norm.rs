//! Normalizations and losses over classes.

use super::builder::{Builder, Value};
use super::layers::{channels_back, channels_first, is_channel_last};
use super::operator::{Op, Row, row};
use crate::model::Attr;
use weighbridge_core::error::Result;
use weighbridge_core::tensor::DType;

/// Operators of this family.
#[rustfmt::skip]
pub(super) const ROWS: &[Row] = &[
    row("batch_norm sync_batch_norm inplace_abn", "batch_norm sync_batch_norm", "X Mean Variance Scale Bias", "Y MeanOut VarianceOut SavedMean SavedVariance ReserveSpace", batch_norm).renamed("data_format=data_layout"),
    row("layer_norm", "layer_norm", "X Scale Bias", "Y Mean Variance", layer_norm),
    row("group_norm", "group_norm", "X Scale Bias", "Y Mean Variance", group_norm).renamed("data_format=data_layout"),
    row("instance_norm", "instance_norm", "X Scale Bias", "Y SavedMean SavedVariance", instance_norm),
    row("data_norm", "data_norm", "scale_w bias X BatchSize BatchSum BatchSquareSum", "Y Means Scales", data_norm),
    row("lrn", "lrn", "X", "Out MidOut", lrn),
    row("affine_channel", "affine_channel", "X Scale Bias", "Out", affine_channel),
    row("spectral_norm", "spectral_norm", "Weight U V", "Out", spectral_norm),
    row("softmax_with_cross_entropy", "cross_entropy_with_softmax", "Logits Label", "Softmax Loss", softmax_with_cross_entropy),
    row("cross_entropy cross_entropy2", "", "X Label", "Y", cross_entropy),
    row("renorm", "renorm", "X", "Out", renorm),
];

/// Maximum iterations of `spectral_norm`.
const MAX_ITERATIONS: i64 = 64;

/// Returns 1, 2, … as axes from `from` up to `rank`.
fn axes_from(from: usize, rank: usize) -> Vec<i64> {
    (from..rank).map(|axis| i64::try_from(axis).unwrap_or(0)).collect()
}

/// Returns a vector of the channels in the shape that multiplies the channels of a value (channels first).
fn per_channel(b: &mut Builder<'_>, vector: &Value, rank: usize, dtype: DType) -> Value {
    let vector = b.cast(vector, dtype);
    let vector = if vector.rank() == Some(1) { vector } else { b.reshape(&vector, &[-1]) };
    b.unsqueeze(&vector, &axes_from(1, rank.saturating_sub(1).max(1)))
}

/// Returns the mean and the variance over axes, with the axes kept.
fn moments(b: &mut Builder<'_>, x: &Value, axes: &[i64]) -> (Value, Value, Value) {
    let mean = b.reduce("ReduceMean", x, axes, true);
    let centered = b.binary("Sub", x, &mean);
    let squares = b.binary("Mul", &centered, &centered);
    let variance = b.reduce("ReduceMean", &squares, axes, true);
    (mean, centered, variance)
}

/// Returns (x - mean) / sqrt(variance + epsilon) over axes.
fn standardized(b: &mut Builder<'_>, op: &Op<'_>, x: &Value, axes: &[i64]) -> Value {
    let (_, centered, variance) = moments(b, x, axes);
    let epsilon = b.scalar(op.float("epsilon", 1e-5), x.dtype);
    let shifted = b.binary("Add", &variance, &epsilon);
    let deviation = b.unary("Sqrt", &shifted);
    b.binary("Div", &centered, &deviation)
}

/// Returns a value multiplied by a scale and with a bias added, if present; both broadcast as they are.
fn affine(b: &mut Builder<'_>, x: &Value, scale: Option<&Value>, bias: Option<&Value>) -> Value {
    let mut y = x.clone();
    if let Some(scale) = scale {
        y = b.binary("Mul", &y, scale);
    }
    if let Some(bias) = bias {
        y = b.binary("Add", &y, bias);
    }
    y
}

/// Returns a value in a dtype of at least 32 bits.
fn wide(b: &mut Builder<'_>, x: &Value) -> Value {
    if x.dtype == DType::F64 { x.clone() } else { b.cast(x, DType::F32) }
}

#[allow(clippy::cast_possible_truncation)] // Attributes of ONNX have 32 bits.
fn epsilon(op: &Op<'_>) -> (&'static str, Attr) {
    ("epsilon", Attr::Float(op.float("epsilon", 1e-5) as f32))
}

/// `batch_norm`: (x - mean) / sqrt(variance + epsilon) * scale + bias for each channel. The statistics are those stored, or
/// those of the batch where the operator is in training mode.
fn batch_norm(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let first = channels_first(b, op, &x)?;
    let rank = b.rank(op, &first)?;
    let (mean, variance) = (b.optional(op, "Mean")?, b.optional(op, "Variance")?);
    let (scale, bias) = (b.optional(op, "Scale")?, b.optional(op, "Bias")?);
    let is_stored = op.bool("is_test", false) && !op.bool("trainable_statistics", false)
        || op.bool("use_global_stats", false);
    for (slot, value) in [("MeanOut", &mean), ("VarianceOut", &variance)] {
        match value {
            Some(value) if is_stored || !b.is_used(op, slot) => b.bind(op, slot, value.clone()),
            _ => return Err(op.refuse("statistics that change while the program runs are not supported")),
        }
    }
    let (Some(mean), Some(variance)) = (mean, variance) else {
        return Err(op.malformed("lacks its statistics"));
    };
    let input = wide(b, &first);
    let y = if is_stored {
        let mut given = Vec::new();
        for (value, filler) in [(scale, 1.0), (bias, 0.0), (Some(mean.clone()), 0.0), (Some(variance), 1.0)] {
            given.push(match value {
                Some(value) => b.cast(&value, input.dtype),
                None => {
                    let shape = b.shape_of(&mean);
                    b.filled(&shape, filler, input.dtype)
                }
            });
        }
        let [scale, bias, mean, variance] = &given[..] else {
            return Err(op.malformed("lacks its statistics"));
        };
        b.node("BatchNormalization", &[&input, scale, bias, mean, variance], vec![epsilon(op)])
    } else {
        let axes: Vec<i64> = [0].into_iter().chain(axes_from(2, rank)).collect();
        let y = standardized(b, op, &input, &axes);
        let scale = scale.map(|scale| per_channel(b, &scale, rank, input.dtype));
        let bias = bias.map(|bias| per_channel(b, &bias, rank, input.dtype));
        affine(b, &y, scale.as_ref(), bias.as_ref())
    };
    let y = match (op.text("activation", ""), op.kind) {
        (_, kind) if kind != "inplace_abn" => y,
        ("" | "identity", _) => y,
        (other, _) => return Err(op.refuse(format_args!("the activation {other} is not supported"))),
    };
    let y = b.cast(&y, x.dtype);
    let y = channels_back(b, op, &y)?;
    b.bind(op, "Y", y);
    Ok(())
}

/// `layer_norm`: (x - mean) / sqrt(variance + epsilon) over the dimensions from `begin_norm_axis` on, with a scale and a bias
/// for each of their elements.
fn layer_norm(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let rank = b.rank(op, &x)?;
    let begin = b.axis(op, &x, op.int("begin_norm_axis", 1))?;
    let input = wide(b, &x);
    let last = i64::try_from(begin).unwrap_or(0);
    let shape = match x.sizes().and_then(|sizes| sizes.get(begin..).map(<[i64]>::to_vec)) {
        Some(sizes) => b.ints(&sizes),
        None => {
            let parts: Vec<Value> = (begin..rank).map(|axis| b.dim(&x, axis)).collect();
            let parts: Vec<&Value> = parts.iter().collect();
            b.concat(&parts, 0)
        }
    };
    let mut given = Vec::new();
    for slot in ["Scale", "Bias"] {
        given.push(match b.optional(op, slot)? {
            Some(value) if value.rank() == Some(1) && rank - begin == 1 => b.cast(&value, input.dtype),
            Some(value) => {
                let value = b.cast(&value, input.dtype);
                b.binary("Reshape", &value, &shape)
            }
            None if slot == "Bias" => Value::none(),
            None => b.filled(&shape, 1.0, input.dtype),
        });
    }
    let [scale, bias] = &given[..] else { return Err(op.malformed("lacks its scale")) };
    let attributes = vec![("axis", Attr::Int(last)), epsilon(op)];
    let y = b.node("LayerNormalization", &[&input, scale, bias], attributes);
    let y = b.cast(&y, x.dtype);
    if b.is_used(op, "Mean") || b.is_used(op, "Variance") {
        let (mean, _, variance) = moments(b, &input, &axes_from(begin, rank));
        for (slot, value) in [("Mean", mean), ("Variance", variance)] {
            let value = b.reshape(&value, &[-1]);
            let value = b.cast(&value, b.declared_dtype(op, slot).unwrap_or(value.dtype));
            b.bind(op, slot, value);
        }
    }
    b.bind(op, "Y", y);
    Ok(())
}

/// Returns the standardized groups of a value (batch, groups, rest), of any rank.
fn standardized_groups(b: &mut Builder<'_>, op: &Op<'_>, groups: &Value, count: i64) -> Value {
    if groups.dtype != DType::F32 {
        return standardized(b, op, groups, &axes_from(2, groups.rank().unwrap_or(3)));
    }
    let shape = b.ints(&[count]);
    let (ones, zeros) = (b.filled(&shape, 1.0, groups.dtype), b.filled(&shape, 0.0, groups.dtype));
    b.node("InstanceNormalization", &[groups, &ones, &zeros], vec![epsilon(op)])
}

/// `group_norm`: (x - mean) / sqrt(variance + epsilon) over groups of channels, with a scale and a bias for each channel.
fn group_norm(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let first = channels_first(b, op, &x)?;
    let rank = b.rank(op, &first)?;
    let count = op.int("groups", 1);
    if rank < 2 || count <= 0 {
        return Err(op.malformed(format_args!("has {count} groups for {rank} dimensions")));
    }
    let input = wide(b, &first);
    let groups = b.reshape(&input, &[0, count, -1]);
    let y = standardized_groups(b, op, &groups, count);
    let shape = b.shape_of(&first);
    let y = b.binary("Reshape", &y, &shape);
    let scale = b.optional(op, "Scale")?.map(|scale| per_channel(b, &scale, rank, input.dtype));
    let bias = b.optional(op, "Bias")?.map(|bias| per_channel(b, &bias, rank, input.dtype));
    let y = affine(b, &y, scale.as_ref(), bias.as_ref());
    let y = b.cast(&y, x.dtype);
    let y = channels_back(b, op, &y)?;
    if b.is_used(op, "Mean") || b.is_used(op, "Variance") {
        let (mean, _, variance) = moments(b, &groups, &[2]);
        for (slot, value) in [("Mean", mean), ("Variance", variance)] {
            let value = b.squeeze(&value, &[2]);
            let value = b.cast(&value, b.declared_dtype(op, slot).unwrap_or(value.dtype));
            b.bind(op, slot, value);
        }
    }
    b.bind(op, "Y", y);
    Ok(())
}

/// `instance_norm`: (x - mean) / sqrt(variance + epsilon) over the image of each channel, with a scale and a bias for each
/// channel.
fn instance_norm(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let rank = b.rank(op, &x)?;
    if rank < 2 {
        return Err(op.malformed("needs channels"));
    }
    if b.is_used(op, "SavedMean") || b.is_used(op, "SavedVariance") {
        return Err(op.refuse("statistics as results are not supported"));
    }
    let input = wide(b, &x);
    let (scale, bias) = (b.optional(op, "Scale")?, b.optional(op, "Bias")?);
    let channels = [Some(&x), scale.as_ref(), bias.as_ref()];
    let channels =
        channels.iter().flatten().enumerate().find_map(|(place, v)| v.size(usize::from(place == 0)));
    let y = match channels {
        Some(channels) if input.dtype == DType::F32 && rank > 2 => {
            let shape = b.ints(&[channels]);
            let mut given = Vec::new();
            for (value, filler) in [(scale, 1.0), (bias, 0.0)] {
                given.push(match value {
                    Some(value) => b.cast(&value, input.dtype),
                    None => b.filled(&shape, filler, input.dtype),
                });
            }
            let [scale, bias] = &given[..] else { return Err(op.malformed("lacks its scale")) };
            b.node("InstanceNormalization", &[&input, scale, bias], vec![epsilon(op)])
        }
        _ => {
            let image = if rank == 2 { b.unsqueeze(&input, &[2]) } else { input.clone() };
            let y = standardized(b, op, &image, &axes_from(2, rank.max(3)));
            let y = if rank == 2 { b.squeeze(&y, &[2]) } else { y };
            let scale = scale.map(|scale| per_channel(b, &scale, rank, input.dtype));
            let bias = bias.map(|bias| per_channel(b, &bias, rank, input.dtype));
            affine(b, &y, scale.as_ref(), bias.as_ref())
        }
    };
    let y = b.cast(&y, x.dtype);
    b.bind(op, "Y", y);
    Ok(())
}

/// `data_norm`: (x - sum / size) * sqrt(size / square sum), with a scale and a bias if `enable_scale_and_shift`.
fn data_norm(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    if op.int("slot_dim", -1) > 0 {
        return Err(op.refuse("slots without shows are not supported"));
    }
    let (size, sum, squares) =
        (b.input(op, "BatchSize")?, b.input(op, "BatchSum")?, b.input(op, "BatchSquareSum")?);
    let means = b.binary("Div", &sum, &size);
    let ratio = b.binary("Div", &size, &squares);
    let scales = b.unary("Sqrt", &ratio);
    let centered = b.binary("Sub", &x, &means);
    let mut y = b.binary("Mul", &centered, &scales);
    if op.bool("enable_scale_and_shift", false) {
        let (scale, bias) = (b.input(op, "scale_w")?, b.input(op, "bias")?);
        y = affine(b, &y, Some(&scale), Some(&bias));
    }
    b.bind(op, "Means", means);
    b.bind(op, "Scales", scales);
    b.bind(op, "Y", y);
    Ok(())
}

/// `lrn`: x / (k + alpha * sum of squares of n neighbouring channels) ^ beta.
#[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss)] // Attributes of ONNX have 32 bits.
fn lrn(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let first = channels_first(b, op, &x)?;
    let size = op.int("n", 5);
    if size <= 0 {
        return Err(op.malformed(format_args!("has {size} channels in a window")));
    }
    if b.is_used(op, "MidOut") {
        return Err(op.refuse("the divisor as a result is not supported"));
    }
    let input = b.cast(&first, DType::F32);
    let attributes = vec![
        ("size", Attr::Int(size)),
        ("alpha", Attr::Float((op.float("alpha", 1e-4) * size as f64) as f32)),
        ("beta", Attr::Float(op.float("beta", 0.75) as f32)),
        ("bias", Attr::Float(op.float("k", 2.0) as f32)),
    ];
    let y = b.node("LRN", &[&input], attributes);
    let y = b.cast(&y, x.dtype);
    let y = channels_back(b, op, &y)?;
    b.bind(op, "Out", y);
    Ok(())
}

/// `affine_channel`: x * scale + bias for each channel.
fn affine_channel(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let rank = b.rank(op, &x)?;
    let (scale, bias) = (b.input(op, "Scale")?, b.input(op, "Bias")?);
    let y = if is_channel_last(op) || rank < 2 {
        affine(b, &x, Some(&scale), Some(&bias))
    } else {
        let (scale, bias) = (per_channel(b, &scale, rank, x.dtype), per_channel(b, &bias, rank, x.dtype));
        affine(b, &x, Some(&scale), Some(&bias))
    };
    b.bind(op, "Out", y);
    Ok(())
}

/// Returns v / (sqrt(sum of squares) + epsilon).
fn unit(b: &mut Builder<'_>, v: &Value, epsilon: &Value) -> Value {
    let squares = b.binary("Mul", v, v);
    let sum = b.reduce("ReduceSum", &squares, &[0, 1], true);
    let length = b.unary("Sqrt", &sum);
    let length = b.binary("Add", &length, epsilon);
    b.binary("Div", v, &length)
}

/// `spectral_norm`: the weight divided by an estimate of its largest singular value, after power iterations from U and V.
fn spectral_norm(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let weight = b.input(op, "Weight")?;
    let (u, v) = (b.input(op, "U")?, b.input(op, "V")?);
    let rank = b.rank(op, &weight)?;
    let axis = b.axis(op, &weight, op.int("dim", 0))?;
    let iterations = op.int("power_iters", 1);
    if !(0..=MAX_ITERATIONS).contains(&iterations) {
        return Err(op.refuse(format_args!("{iterations} power iterations are not supported")));
    }
    let order: Vec<usize> = [axis].into_iter().chain((0..rank).filter(|own| *own != axis)).collect();
    let matrix = b.transpose(&weight, &order);
    let matrix = b.reshape(&matrix, &[0, -1]);
    let turned = b.transpose(&matrix, &[1, 0]);
    let epsilon = b.scalar(op.float("eps", 1e-12), weight.dtype);
    let (mut u, mut v) = (b.reshape(&u, &[-1, 1]), b.reshape(&v, &[-1, 1]));
    for _ in 0..iterations {
        let next = b.binary("MatMul", &turned, &u);
        v = unit(b, &next, &epsilon);
        let next = b.binary("MatMul", &matrix, &v);
        u = unit(b, &next, &epsilon);
    }
    let product = b.binary("MatMul", &matrix, &v);
    let product = b.binary("Mul", &product, &u);
    let sigma = b.reduce("ReduceSum", &product, &[0, 1], false);
    let y = b.binary("Div", &weight, &sigma);
    b.bind(op, "Out", y);
    Ok(())
}

/// Returns minus the logarithm of the probability of each label, or of the mean under soft labels; the axis keeps size 1.
fn loss(b: &mut Builder<'_>, op: &Op<'_>, logs: &Value, label: &Value, axis: usize) -> Result<Value> {
    let place = i64::try_from(axis).unwrap_or(0);
    if op.bool("soft_label", false) {
        let label = b.cast(label, logs.dtype);
        let product = b.binary("Mul", logs, &label);
        let sum = b.reduce("ReduceSum", &product, &[place], true);
        return Ok(b.unary("Neg", &sum));
    }
    let rank = b.rank(op, logs)?;
    let label = b.cast(label, DType::I64);
    let label = match label.rank() {
        Some(own) if own == rank => label,
        Some(own) if own + 1 == rank => b.unsqueeze(&label, &[place]),
        _ => return Err(op.refuse("the number of dimensions of the label does not fit")),
    };
    let ignored = b.int(op.int("ignore_index", -100));
    let is_ignored = b.binary("Equal", &label, &ignored);
    let zero = b.int(0);
    let safe = b.node("Where", &[&is_ignored, &zero, &label], Vec::new());
    let chosen = b.node("GatherElements", &[logs, &safe], vec![("axis", Attr::Int(place))]);
    let chosen = b.unary("Neg", &chosen);
    let none = b.scalar(0.0, logs.dtype);
    Ok(b.node("Where", &[&is_ignored, &none, &chosen], Vec::new()))
}

/// `softmax_with_cross_entropy`: softmax along the axis, and minus the logarithm of the probability of each label.
fn softmax_with_cross_entropy(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (logits, label) = (b.input(op, "Logits")?, b.input(op, "Label")?);
    let axis = b.axis(op, &logits, op.int("axis", -1))?;
    let along = || vec![("axis", Attr::Int(i64::try_from(axis).unwrap_or(0)))];
    let is_logits = op.bool("use_softmax", true);
    let softmax = if is_logits { b.node("Softmax", &[&logits], along()) } else { logits.clone() };
    if b.is_used(op, "Loss") {
        let logs =
            if is_logits { b.node("LogSoftmax", &[&logits], along()) } else { b.unary("Log", &logits) };
        let loss = loss(b, op, &logs, &label, axis)?;
        b.bind(op, "Loss", loss);
    }
    b.bind(op, "Softmax", softmax);
    Ok(())
}

/// `cross_entropy`: minus the logarithm of the probability of each label, along the last dimension.
fn cross_entropy(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (x, label) = (b.input(op, "X")?, b.input(op, "Label")?);
    let rank = b.rank(op, &x)?;
    if rank == 0 {
        return Err(op.malformed("needs classes"));
    }
    let logs = b.unary("Log", &x);
    let y = loss(b, op, &logs, &label, rank - 1)?;
    b.bind(op, "Y", y);
    Ok(())
}

/// `renorm`: slices of an axis whose p-norm is greater than `max_norm` are scaled to that norm.
fn renorm(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let axis = b.axis(op, &x, op.int("axis", 0))?;
    let p = op.float("p", 2.0);
    if !p.is_finite() || p <= 0.0 {
        return Err(op.refuse(format_args!("the norm of order {p}")));
    }
    let axes: Vec<i64> = axes_from(0, b.rank(op, &x)?);
    let axes: Vec<i64> = axes.into_iter().filter(|other| usize::try_from(*other) != Ok(axis)).collect();
    let size = b.unary("Abs", &x);
    let (order, root) = (b.scalar(p, x.dtype), b.scalar(1.0 / p, x.dtype));
    let powers = b.binary("Pow", &size, &order);
    let sums = if axes.is_empty() { powers } else { b.reduce("ReduceSum", &powers, &axes, true) };
    let norm = b.binary("Pow", &sums, &root);
    let (most, one) = (b.scalar(op.float("max_norm", 0.0), x.dtype), b.scalar(1.0, x.dtype));
    let is_above = b.binary("Greater", &norm, &most);
    let factor = b.binary("Div", &most, &norm);
    let factor = b.node("Where", &[&is_above, &factor, &one], Vec::new());
    let y = b.binary("Mul", &x, &factor);
    b.bind(op, "Out", y);
    Ok(())
}
