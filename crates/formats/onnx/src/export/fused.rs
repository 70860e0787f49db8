//! Operators that join several others, from optimised programs and from `paddle.incubate`.
//!
//! Most are computed by the translations of the operators they join: [`step`] runs one on values of the graph.

use super::builder::{Builder, Value};
use super::layers;
use super::operator::{Op, Row, row};
use super::table::Index;
use crate::model::Attr;
use weighbridge_core::error::Result;
use weighbridge_core::tensor::DType;
use weighbridge_core::topology::AttributeValue;

/// Operators of this family.
#[rustfmt::skip]
pub(super) const ROWS: &[Row] = &[
    row("fc", "fc gemm_epilogue", "Input W Bias", "Out", fc),
    row("fused_conv2d fused_conv3d", "fused_conv2d fused_conv3d fused_depthwise_conv2d", "Input Filter Bias ResidualData", "Output", conv),
    row("fused_elementwise_add fused_elementwise_sub fused_elementwise_mul fused_elementwise_div", "fused_elementwise_add fused_elementwise_sub fused_elementwise_mul fused_elementwise_div", "X Y", "Out", elementwise),
    row("fused_matmul", "fused_matmul", "X Y ResidualData", "Out", matmul)
        .renamed("fused_reshape_x=fused_reshape_X fused_transpose_x=fused_transpose_X fused_reshape_y=fused_reshape_Y fused_transpose_y=fused_transpose_Y fused_reshape_out=fused_reshape_Out fused_transpose_out=fused_transpose_Out"),
    row("fused_transpose", "fused_transpose", "X", "Out XShape", transpose),
    row("fused_softplus", "fused_softplus", "X", "Out", softplus),
    row("fused_elemwise_activation fused_elemwise_add_activation", "fused_elemwise_activation fused_elemwise_add_activation", "X Y", "Out IntermediateOut", elementwise_activation),
    row("skip_layernorm", "skip_layernorm", "X Y Scale Bias", "Out", skip_layer_norm),
    row("fused_fc_elementwise_layernorm", "fused_fc_elementwise_layernorm", "X W Y Bias0 Scale Bias1", "Out Mean Variance", fc_layer_norm),
    row("fused_embedding_eltwise_layernorm", "fused_embedding_eltwise_layernorm", "Ids Embs Bias Scale", "Out", embeddings),
    row("fused_bias_dropout_residual_layer_norm", "fused_bias_dropout_residual_layer_norm", "X Residual Bias LnScale LnBias", "Y BiasDropoutResidualOut DropoutMaskOut LnMean LnVariance", residual_layer_norm),
    row("fused_bias_residual_layernorm", "fused_bias_residual_layernorm", "x bias residual norm_weight norm_bias", "out residual_out mean variance", bias_layer_norm),
    row("fused_bias_act", "fused_bias_act", "x bias dequant_scales shift smooth", "out", bias_activation),
    row("fused_dropout_add", "fused_dropout_add", "x y seed_tensor", "out seed_offset", dropout_add),
    row("fused_softmax_mask", "fused_softmax_mask", "X Mask", "Out", masked_softmax),
    row("multihead_matmul", "multihead_matmul", "Input W Bias BiasQK", "Out", multihead),
    row("self_dp_attention", "self_dp_attention", "X", "Out", self_attention),
    row("fusion_squared_mat_sub", "fusion_squared_mat_sub", "X Y", "SquaredX SquaredY SquaredXY Out", squared_difference),
    row("fusion_repeated_fc_relu", "fusion_repeated_fc_relu", "X W Bias", "ReluOut Out", repeated_fc),
];

/// Names of the operand and the result of a step. No program has them: they contain a control character.
const OPERANDS: [&str; 4] = ["\u{1}0", "\u{1}1", "\u{1}2", "\u{1}3"];
const RESULT: &str = "\u{1}y";

/// Translates an operator of the table on values, and returns its result.
fn step(
    b: &mut Builder<'_>,
    op: &Op<'_>,
    kind: &str,
    inputs: &[(&str, &Value)],
    attributes: &[(&str, AttributeValue)],
    output: &str,
) -> Result<Value> {
    let row = Index::new().find(kind, false);
    let row = row.ok_or_else(|| op.refuse(format_args!("{kind} is not supported")))?;
    let mut slots = Vec::new();
    for ((slot, value), name) in inputs.iter().zip(OPERANDS) {
        b.set(name, (*value).clone());
        slots.push((*slot, vec![name]));
    }
    let attributes = attributes.iter().map(|(name, value)| (*name, value)).collect();
    let inner = Op::step(kind, op.shown, slots, (output, RESULT), attributes);
    (row.translate)(b, &inner)?;
    b.get(RESULT)
}

#[allow(clippy::cast_possible_truncation)] // Attributes of Paddle have 32 bits.
fn float(value: f64) -> AttributeValue {
    AttributeValue::Float(value as f32)
}

fn size(value: usize) -> AttributeValue {
    AttributeValue::Int(i64::try_from(value).unwrap_or(i64::MAX))
}

/// Adds an activation by its name.
fn activate(b: &mut Builder<'_>, op: &Op<'_>, kind: &str, x: Value) -> Result<Value> {
    let (kind, attributes): (&str, Vec<(&str, AttributeValue)>) = match kind {
        "" | "identity" | "none" => return Ok(x),
        "gelu" | "gelu_erf" => ("gelu", vec![("approximate", AttributeValue::Bool(false))]),
        "gelu_tanh" => ("gelu", vec![("approximate", AttributeValue::Bool(true))]),
        "silu" => ("swish", Vec::new()),
        "hardswish" => ("hard_swish", Vec::new()),
        "relu" | "relu6" | "tanh" | "sigmoid" | "sqrt" | "abs" | "mish" | "exp" | "swish" | "hard_swish" => {
            (kind, Vec::new())
        }
        other => {
            let other = weighbridge_core::text::escape(other);
            return Err(op.refuse(format_args!("the fused activation {other} is not supported")));
        }
    };
    step(b, op, kind, &[("X", &x)], &attributes, "Out")
}

/// Adds an activation of oneDNN, whose numbers are the attributes `fuse_alpha` and `fuse_beta`.
fn activate_onednn(b: &mut Builder<'_>, op: &Op<'_>, x: Value) -> Result<Value> {
    let kind = op.text("fuse_activation", "");
    let (alpha, beta) = (op.float("fuse_alpha", 0.0), op.float("fuse_beta", 0.0));
    let (kind, attributes) = match kind {
        "swish" | "hard_swish" | "hardswish" | "relu6" | "hard_sigmoid" | "hardsigmoid" | "clip"
            if !op.has("fuse_alpha") =>
        {
            return Err(op.refuse(format_args!("the fused activation {kind} lacks its numbers")));
        }
        "leaky_relu" => ("leaky_relu", vec![("alpha", float(alpha))]),
        "swish" => ("swish", vec![("beta", float(alpha))]),
        // The limits are alpha and beta, or 0 and alpha in older programs.
        "relu6" if beta == 0.0 => ("relu6", vec![("threshold", float(alpha))]),
        "relu6" => ("clip", vec![("min", float(alpha)), ("max", float(beta))]),
        "hard_sigmoid" | "hardsigmoid" => {
            ("hard_sigmoid", vec![("slope", float(alpha)), ("offset", float(beta))])
        }
        "hard_swish" | "hardswish" => {
            let attributes = [("slope", float(alpha)), ("offset", float(beta))];
            let gate = step(b, op, "hard_sigmoid", &[("X", &x)], &attributes, "Out")?;
            return Ok(b.binary("Mul", &x, &gate));
        }
        "clip" => ("clip", vec![("min", float(alpha)), ("max", float(beta))]),
        other => return activate(b, op, other, x),
    };
    step(b, op, kind, &[("X", &x)], &attributes, "Out")
}

/// Refuses integers of 8 bits, whose scales are attributes.
fn no_integers(op: &Op<'_>, x: &Value) -> Result<()> {
    if op.text("mkldnn_data_type", "") == "int8" || matches!(x.dtype, DType::I8 | DType::U8) {
        return Err(op.refuse("integers of 8 bits of oneDNN are not supported"));
    }
    Ok(())
}

/// Adds the activation, and after it the scale, that oneDNN fuses into an operator.
fn finish(b: &mut Builder<'_>, op: &Op<'_>, x: Value) -> Result<Value> {
    let y = activate_onednn(b, op, x)?;
    let scale = op.float("fused_output_scale", 1.0);
    #[allow(clippy::float_cmp)] // The default is exact.
    if scale == 1.0 {
        return Ok(y);
    }
    let scale = b.scalar(scale, y.dtype);
    Ok(b.binary("Mul", &y, &scale))
}

/// Returns the sum with a bias, if present.
fn biased(b: &mut Builder<'_>, op: &Op<'_>, x: Value, slot: &str) -> Result<Value> {
    match b.optional(op, slot)? {
        Some(bias) => {
            let bias = if bias.rank() == Some(2) { b.reshape(&bias, &[-1]) } else { bias };
            Ok(b.binary("Add", &x, &bias))
        }
        None => Ok(x),
    }
}

/// Returns the product of a value with its last dimensions joined and a matrix.
fn product(b: &mut Builder<'_>, op: &Op<'_>, x: &Value, w: &Value, dims: i64) -> Result<Value> {
    let attributes =
        [("x_num_col_dims", AttributeValue::Int(dims)), ("y_num_col_dims", AttributeValue::Int(1))];
    step(b, op, "mul", &[("X", x), ("Y", w)], &attributes, "Out")
}

/// `fc`: activation(x W + bias); the dimensions of x from `in_num_col_dims` on are joined.
fn fc(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (x, w) = (b.input(op, "Input")?, b.input(op, "W")?);
    no_integers(op, &x)?;
    if op.bool("use_quantizer", false) {
        return Err(op.refuse("integers of 8 bits of oneDNN are not supported"));
    }
    // Padded weights have 4 more rows and columns.
    let w = if op.bool("padding_weights", false) {
        let w = b.slice(&w, 0, 0, -4);
        b.slice(&w, 1, 0, -4)
    } else {
        w
    };
    let y = product(b, op, &x, &w, op.int("in_num_col_dims", 1))?;
    let y = biased(b, op, y, "Bias")?;
    let y = activate(b, op, op.text("activation_type", ""), y)?;
    let y = finish(b, op, y)?;
    let y = reshaped(b, op, y, "fused_reshape2_shape");
    b.bind(op, "Out", y);
    Ok(())
}

/// `fused_conv2d`: activation(convolution + bias + residual).
fn conv(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "Input")?;
    no_integers(op, &x)?;
    if op.ints("split_channels").is_some_and(|channels| !channels.is_empty()) {
        return Err(op.refuse("an output that is split is not supported"));
    }
    let y = layers::convolution(b, op)?;
    let y = match b.optional(op, "ResidualData")? {
        Some(residual) => b.binary("Add", &y, &residual),
        None => y,
    };
    let y = activate(b, op, op.text("activation", ""), y)?;
    let y = finish(b, op, y)?;
    b.bind(op, "Output", y);
    Ok(())
}

/// `fused_elementwise_*`: activation of a sum, difference, product or quotient.
fn elementwise(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (x, y) = (b.input(op, "X")?, b.input(op, "Y")?);
    no_integers(op, &x)?;
    let kind = op.kind.trim_start_matches("fused_");
    let attributes = [("axis", AttributeValue::Int(op.int("axis", -1)))];
    let y = step(b, op, kind, &[("X", &x), ("Y", &y)], &attributes, "Out")?;
    let y = finish(b, op, y)?;
    let y = b.unsqueeze(&y, &op.ints("fused_unsqueeze2_axes").unwrap_or_default());
    b.bind(op, "Out", y);
    Ok(())
}

/// Reshapes a value by an attribute, if present.
fn reshaped(b: &mut Builder<'_>, op: &Op<'_>, x: Value, shape: &str) -> Value {
    match op.ints(shape).filter(|sizes| !sizes.is_empty()) {
        Some(sizes) => b.reshape(&x, &sizes),
        None => x,
    }
}

/// Reshapes and transposes a value by attributes, if present.
fn rearranged(b: &mut Builder<'_>, op: &Op<'_>, x: &Value, shape: &str, order: &str) -> Result<Value> {
    let y = reshaped(b, op, x.clone(), shape);
    permuted(b, op, &y, order)
}

/// Transposes a value by an attribute, if present.
fn permuted(b: &mut Builder<'_>, op: &Op<'_>, x: &Value, order: &str) -> Result<Value> {
    let Some(order) = op.ints(order).filter(|order| !order.is_empty()) else { return Ok(x.clone()) };
    let mut places = Vec::new();
    for axis in &order {
        let place = b.axis(op, x, *axis)?;
        if places.contains(&place) {
            return Err(op.malformed("has an order of dimensions that names one twice"));
        }
        places.push(place);
    }
    if places.len() != b.rank(op, x)? {
        return Err(op.malformed("has an order of dimensions of another rank"));
    }
    Ok(b.transpose(x, &places))
}

/// `fused_matmul`: activation(alpha * x y + residual), with x, y and the result reshaped and transposed.
fn matmul(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (x, y) = (b.input(op, "X")?, b.input(op, "Y")?);
    no_integers(op, &x)?;
    let x = rearranged(b, op, &x, "fused_reshape_X", "fused_transpose_X")?;
    let y = rearranged(b, op, &y, "fused_reshape_Y", "fused_transpose_Y")?;
    let attributes = [
        ("trans_x", AttributeValue::Bool(op.bool("trans_x", false))),
        ("trans_y", AttributeValue::Bool(op.bool("trans_y", false))),
    ];
    let product = step(b, op, "matmul_v2", &[("X", &x), ("Y", &y)], &attributes, "Out")?;
    let alpha = op.float("matmul_alpha", op.float("alpha", 1.0));
    #[allow(clippy::float_cmp)] // The default is exact.
    let y = if alpha == 1.0 {
        product
    } else {
        let alpha = b.scalar(alpha, product.dtype);
        b.binary("Mul", &product, &alpha)
    };
    let y = match b.optional(op, "ResidualData")? {
        Some(residual) => b.binary("Add", &y, &residual),
        None => y,
    };
    let y = finish(b, op, y)?;
    let y = permuted(b, op, &y, "fused_transpose_Out")?;
    let y = reshaped(b, op, y, "fused_reshape_Out");
    b.bind(op, "Out", y);
    Ok(())
}

/// `fused_transpose`: dimensions of size 1 removed, the others permuted, and inserted again or reshaped.
fn transpose(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    no_integers(op, &x)?;
    if op.float("scale", 1.0) != 1.0 || op.float("shift", 0.0) != 0.0 {
        return Err(op.refuse("integers of 8 bits of oneDNN are not supported"));
    }
    let x = b.squeeze(&x, &op.ints("fused_squeeze2_axes").unwrap_or_default());
    let y = permuted(b, op, &x, "axis")?;
    let y = b.unsqueeze(&y, &op.ints("fused_unsqueeze2_axes").unwrap_or_default());
    let y = reshaped(b, op, y, "fused_reshape2_shape");
    b.bind(op, "Out", y);
    Ok(())
}

/// `fused_softplus`: activation(softplus(x)).
fn softplus(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let attributes =
        [("beta", float(op.float("beta", 1.0))), ("threshold", float(op.float("threshold", 20.0)))];
    let y = step(b, op, "softplus", &[("X", &x)], &attributes, "Out")?;
    let y = finish(b, op, y)?;
    b.bind(op, "Out", y);
    Ok(())
}

/// `fused_elemwise_activation`: f(g(x, y)), or g(x, f(y)), as the list of functors has the activation first or second.
fn elementwise_activation(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (x, y) = (b.input(op, "X")?, b.input(op, "Y")?);
    let Some(AttributeValue::List(functors)) = op.attribute("functor_list") else {
        return Err(op.malformed("lacks its functors"));
    };
    let [AttributeValue::Text(outer), AttributeValue::Text(inner)] = &functors[..] else {
        return Err(op.malformed("needs two functors"));
    };
    let axis = [("axis", AttributeValue::Int(op.int("axis", -1)))];
    let single = |b: &mut Builder<'_>, kind: &str, x: &Value| match kind {
        "gelu" => activate(b, op, "gelu_tanh", x.clone()),
        "scale" => {
            let scale = b.scalar(op.float("scale", 0.0), x.dtype);
            Ok(b.binary("Mul", x, &scale))
        }
        kind => activate(b, op, kind, x.clone()),
    };
    let (between, z) = if outer.starts_with("elementwise_") {
        let right = single(b, inner, &y)?;
        let z = step(b, op, outer, &[("X", &x), ("Y", &right)], &axis, "Out")?;
        (right, z)
    } else {
        let sum = step(b, op, inner, &[("X", &x), ("Y", &y)], &axis, "Out")?;
        let z = single(b, outer, &sum)?;
        (sum, z)
    };
    b.bind(op, "IntermediateOut", between);
    b.bind(op, "Out", z);
    Ok(())
}

// ---- normalization

/// Normalizes over the dimensions from `begin` on, with the scale and the bias in these slots.
fn normalized(
    b: &mut Builder<'_>,
    op: &Op<'_>,
    x: &Value,
    slots: [&str; 2],
    begin: usize,
    epsilon: f64,
) -> Result<Value> {
    let (scale, bias) = (b.optional(op, slots[0])?, b.optional(op, slots[1])?);
    let mut inputs = vec![("X", x)];
    inputs.extend(scale.as_ref().map(|scale| ("Scale", scale)));
    inputs.extend(bias.as_ref().map(|bias| ("Bias", bias)));
    let attributes = [("begin_norm_axis", size(begin)), ("epsilon", float(epsilon))];
    step(b, op, "layer_norm", &inputs, &attributes, "Y")
}

/// Returns the last axis of a value.
fn last(b: &Builder<'_>, op: &Op<'_>, x: &Value) -> Result<usize> {
    b.axis(op, x, -1)
}

/// `skip_layernorm`: `layer_norm` of x + y over the last dimension.
fn skip_layer_norm(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (x, y) = (b.input(op, "X")?, b.input(op, "Y")?);
    let sum = b.binary("Add", &x, &y);
    let begin = last(b, op, &x)?;
    let y = normalized(b, op, &sum, ["Scale", "Bias"], begin, op.float("epsilon", 1e-5))?;
    b.bind(op, "Out", y);
    Ok(())
}

/// `fused_fc_elementwise_layernorm`: `layer_norm` of activation(x W + bias) + y.
fn fc_layer_norm(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (x, w, y) = (b.input(op, "X")?, b.input(op, "W")?, b.input(op, "Y")?);
    let z = product(b, op, &x, &w, op.int("x_num_col_dims", 1))?;
    let z = biased(b, op, z, "Bias0")?;
    let z = activate(b, op, op.text("activation_type", ""), z)?;
    let z = b.binary("Add", &z, &y);
    let begin = b.axis(op, &y, op.int("begin_norm_axis", 1))?;
    let z = normalized(b, op, &z, ["Scale", "Bias1"], begin, op.float("epsilon", 1e-5))?;
    b.bind(op, "Out", z);
    Ok(())
}

/// `fused_embedding_eltwise_layernorm`: `layer_norm` of the sum of rows of several tables.
fn embeddings(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (ids, tables) = (b.inputs(op, "Ids")?, b.inputs(op, "Embs")?);
    if ids.len() != tables.len() {
        return Err(op.malformed("has another number of tables than of indices"));
    }
    let mut sum: Option<Value> = None;
    for (ids, table) in ids.iter().zip(&tables) {
        // Indices may have a last dimension of size 1.
        let ids = if ids.rank() == Some(3) { b.squeeze(ids, &[2]) } else { ids.clone() };
        let rows = b.gather(table, &ids, 0);
        sum = Some(match sum {
            Some(sum) => b.binary("Add", &sum, &rows),
            None => rows,
        });
    }
    let sum = sum.ok_or_else(|| op.malformed("lacks its tables"))?;
    let begin = last(b, op, &sum)?;
    let y = normalized(b, op, &sum, ["Scale", "Bias"], begin, op.float("epsilon", 1e-5))?;
    b.bind(op, "Out", y);
    Ok(())
}

/// Returns what dropout does in inference: nothing, or a product with 1 - p.
fn dropped(b: &mut Builder<'_>, op: &Op<'_>, x: Value, rate: f64, mode: &str) -> Result<Value> {
    if !op.bool("is_test", false) && rate != 0.0 {
        return Err(op.refuse("random numbers of training are not supported"));
    }
    if mode == "upscale_in_train" || rate == 0.0 {
        return Ok(x);
    }
    let kept = b.scalar(1.0 - rate, x.dtype);
    Ok(b.binary("Mul", &x, &kept))
}

/// `fused_bias_dropout_residual_layer_norm`: `layer_norm` of residual + dropout(x + bias) over the last dimension.
fn residual_layer_norm(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (x, residual) = (b.input(op, "X")?, b.input(op, "Residual")?);
    let y = biased(b, op, x, "Bias")?;
    let mode = op.text("dropout_implementation", "downgrade_in_infer");
    let y = dropped(b, op, y, op.float("dropout_rate", 0.5), mode)?;
    let sum = b.binary("Add", &y, &residual);
    let begin = last(b, op, &sum)?;
    let y = normalized(b, op, &sum, ["LnScale", "LnBias"], begin, op.float("ln_epsilon", 1e-5))?;
    b.bind(op, "BiasDropoutResidualOut", sum);
    b.bind(op, "Y", y);
    Ok(())
}

/// `fused_bias_residual_layernorm`: `layer_norm` of x + bias + alpha * residual.
fn bias_layer_norm(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "x")?;
    if op.float("quant_scale", -1.0) > 0.0 {
        return Err(op.refuse("a quantized result is not supported"));
    }
    let y = biased(b, op, x, "bias")?;
    let y = match b.optional(op, "residual")? {
        Some(residual) => {
            let alpha = b.scalar(op.float("residual_alpha", 1.0), residual.dtype);
            let residual = b.binary("Mul", &residual, &alpha);
            b.binary("Add", &y, &residual)
        }
        None => y,
    };
    // Without a scale, the sum alone is computed.
    let z = if op.input("norm_weight").is_empty() && op.input("norm_bias").is_empty() {
        b.identity(&y)
    } else {
        let begin = b.axis(op, &y, op.int("begin_norm_axis", 1))?;
        normalized(b, op, &y, ["norm_weight", "norm_bias"], begin, op.float("epsilon", 1e-5))?
    };
    b.bind(op, "residual_out", y);
    b.bind(op, "out", z);
    Ok(())
}

/// `fused_bias_act`: activation(x + bias); `swiglu` and `geglu` multiply the activation of one half by the other half.
fn bias_activation(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "x")?;
    if op.float("quant_scale", -1.0) > 0.0
        || ["dequant_scales", "shift", "smooth"].iter().any(|slot| !op.input(slot).is_empty())
    {
        return Err(op.refuse("quantized values are not supported"));
    }
    let x = biased(b, op, x, "bias")?;
    let y = match op.text("act_method", "gelu") {
        method @ ("swiglu" | "geglu") => {
            let halves = b.nodes("Split", &[&x], split_in_two(b.opset), 2);
            let [left, right] = &halves[..] else { return Err(op.malformed("cannot be split")) };
            let kind = if method == "swiglu" { "swish" } else { "gelu" };
            let left = activate(b, op, kind, left.clone())?;
            b.binary("Mul", &left, right)
        }
        method => activate(b, op, method, x)?,
    };
    b.bind(op, "out", y);
    Ok(())
}

/// Returns the attributes of a split of the last axis in two halves.
fn split_in_two(opset: i64) -> Vec<(&'static str, Attr)> {
    let mut attributes = vec![("axis", Attr::Int(-1))];
    if opset >= 18 {
        attributes.push(("num_outputs", Attr::Int(2)));
    }
    attributes
}

/// `fused_dropout_add`: dropout(x) + y.
fn dropout_add(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (x, y) = (b.input(op, "x")?, b.input(op, "y")?);
    let x = dropped(b, op, x, op.float("p", 0.5), op.text("mode", "downgrade_in_infer"))?;
    let z = b.binary("Add", &x, &y);
    b.bind(op, "out", z);
    Ok(())
}

// ---- attention

/// `fused_softmax_mask`: softmax(x + mask) over the last dimension.
fn masked_softmax(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (x, mask) = (b.input(op, "X")?, b.input(op, "Mask")?);
    let sum = b.binary("Add", &x, &mask);
    let y = b.node("Softmax", &[&sum], vec![("axis", Attr::Int(-1))]);
    b.bind(op, "Out", y);
    Ok(())
}

/// Returns softmax(alpha * q kᵀ + mask) v, for values of the dimensions batch, heads, length, size of a head.
fn attention(b: &mut Builder<'_>, [q, k, v]: [&Value; 3], alpha: f64, mask: Option<&Value>) -> Value {
    let k = b.transpose(k, &[0, 1, 3, 2]);
    let scores = b.binary("MatMul", q, &k);
    let alpha = b.scalar(alpha, scores.dtype);
    let scores = b.binary("Mul", &scores, &alpha);
    let scores = match mask {
        Some(mask) => b.binary("Add", &scores, mask),
        None => scores,
    };
    let weights = b.node("Softmax", &[&scores], vec![("axis", Attr::Int(-1))]);
    b.binary("MatMul", &weights, v)
}

/// Returns q, k and v of a value of the dimensions batch, length, 3, heads, size of a head.
fn three(b: &mut Builder<'_>, packed: &Value) -> [Value; 3] {
    let packed = b.transpose(packed, &[2, 0, 3, 1, 4]);
    [0, 1, 2].map(|place| {
        let place = b.int(place);
        b.gather(&packed, &place, 0)
    })
}

/// `multihead_matmul`: attention with q, k and v computed by one matrix of the dimensions input, 3, heads * size of a head.
fn multihead(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (x, w, bias) = (b.input(op, "Input")?, b.input(op, "W")?, b.input(op, "Bias")?);
    let heads = op.int("head_number", 1);
    let Some([input, 3, hidden]) = w.sizes().and_then(|sizes| <[i64; 3]>::try_from(sizes).ok()) else {
        return Err(op.refuse("weights of this shape are not supported"));
    };
    if heads <= 0 || hidden % heads != 0 {
        return Err(op.malformed(format_args!("has {heads} heads for {hidden} values")));
    }
    if b.rank(op, &x)? != 3 {
        return Err(op.refuse("an input of another rank than 3 is not supported"));
    }
    let w = b.reshape(&w, &[input, 3 * hidden]);
    let bias = b.reshape(&bias, &[3 * hidden]);
    let packed = b.binary("MatMul", &x, &w);
    let packed = b.binary("Add", &packed, &bias);
    let packed = b.reshape(&packed, &[0, 0, 3, heads, hidden / heads]);
    let [q, k, v] = three(b, &packed);
    let mask = b.optional(op, "BiasQK")?;
    let y = attention(b, [&q, &k, &v], op.float("alpha", 1.0), mask.as_ref());
    let y = b.transpose(&y, &[0, 2, 1, 3]);
    let y = b.reshape(&y, &[0, 0, hidden]);
    b.bind(op, "Out", y);
    Ok(())
}

/// `self_dp_attention`: attention with q, k and v in one value: batch, length, 3, heads, size of a head.
fn self_attention(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    if b.rank(op, &x)? != 5 {
        return Err(op.malformed("needs an input of 5 dimensions"));
    }
    let [q, k, v] = three(b, &x);
    let y = attention(b, [&q, &k, &v], op.float("alpha", 1.0), None);
    let y = b.transpose(&y, &[0, 2, 1, 3]);
    b.bind(op, "Out", y);
    Ok(())
}

// ---- matrices

/// `fusion_squared_mat_sub`: scalar * ((x y)² - x² y²).
fn squared_difference(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (x, y) = (b.input(op, "X")?, b.input(op, "Y")?);
    let product = b.binary("MatMul", &x, &y);
    let [x, y, square] = [x, y, product].map(|value| b.binary("Mul", &value, &value));
    let squares = b.binary("MatMul", &x, &y);
    let z = b.binary("Sub", &square, &squares);
    let scalar = b.scalar(op.float("scalar", 1.0), z.dtype);
    let z = b.binary("Mul", &z, &scalar);
    for (slot, value) in [("SquaredX", x), ("SquaredY", y), ("SquaredXY", square), ("Out", z)] {
        b.bind(op, slot, value);
    }
    Ok(())
}

/// `fusion_repeated_fc_relu`: relu(x W + bias), repeated with several matrices.
fn repeated_fc(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let mut x = b.input(op, "X")?;
    let (matrices, biases) = (b.inputs(op, "W")?, b.inputs(op, "Bias")?);
    if matrices.len() != biases.len() {
        return Err(op.malformed("has another number of biases than of matrices"));
    }
    let mut between = Vec::new();
    for (w, bias) in matrices.iter().zip(&biases) {
        let y = b.binary("MatMul", &x, w);
        let bias = b.reshape(bias, &[-1]);
        let y = b.binary("Add", &y, &bias);
        x = b.unary("Relu", &y);
        between.push(x.clone());
    }
    between.pop();
    b.bind_all(op, "ReluOut", between);
    b.bind(op, "Out", x);
    Ok(())
}
