//! Recurrent layers.
//!
//! Layers become `LSTM`, `GRU` and `RNN`. Their weights are arranged for ONNX in the graph, so that the stored tensors stay those of
//! Paddle. Layers with activations, outputs or dtypes that these operators lack become a `Scan` over the steps.

use super::super::builder::{Builder, Value};
use super::super::operator::Op;
use super::scan;
use crate::model::Attr;
use weighbridge_core::error::Result;
use weighbridge_core::tensor::DType;

/// Recurrent operator of ONNX.
pub(super) struct Layer<'a> {
    pub(super) kind: &'static str,
    pub(super) hidden: i64,
    pub(super) direction: &'static str,
    pub(super) activations: Vec<&'a str>,
    /// True if the reset gate applies after the product with the state.
    pub(super) resets_after: bool,
}

/// Operands of a recurrent operator, in the order of ONNX; [`Value::none`] for an omitted one.
pub(super) struct Operands {
    /// Steps: [T, N, I].
    pub(super) x: Value,
    /// Weights of the input: [D, gates * H, I].
    pub(super) w: Value,
    /// Weights of the state: [D, gates * H, H].
    pub(super) r: Value,
    /// Biases of both: [D, 2 * gates * H].
    pub(super) bias: Value,
    pub(super) lengths: Value,
    pub(super) h0: Value,
    pub(super) c0: Value,
    pub(super) peepholes: Value,
}

impl Layer<'_> {
    /// Adds the operator. Results: all states [T, D, N, H], the last state, and for `LSTM` the last cell.
    pub(super) fn run(&self, b: &mut Builder<'_>, on: &Operands) -> Vec<Value> {
        let count = if self.direction == "bidirectional" { 2 } else { 1 };
        let names = || std::iter::repeat_n(&self.activations, count).flatten();
        let texts = names().map(|name| onnx_activation(name).unwrap_or("Tanh").to_owned()).collect();
        let mut attributes = vec![
            ("hidden_size", Attr::Int(self.hidden)),
            ("direction", Attr::Text(self.direction.to_owned())),
            ("activations", Attr::Texts(texts)),
        ];
        let linear = names().filter(|name| onnx_activation(name) == Some("Affine")).count();
        if linear > 0 {
            attributes.push(("activation_alpha", Attr::Floats(vec![1.0; linear])));
            attributes.push(("activation_beta", Attr::Floats(vec![0.0; linear])));
        }
        if self.kind == "GRU" {
            attributes.push(("linear_before_reset", Attr::Int(i64::from(self.resets_after))));
        }
        let mut inputs = vec![&on.x, &on.w, &on.r, &on.bias, &on.lengths, &on.h0];
        if self.kind == "LSTM" {
            inputs.extend([&on.c0, &on.peepholes]);
        }
        let results = if self.kind == "LSTM" { 3 } else { 2 };
        b.nodes(self.kind, &inputs, attributes, results)
    }

    /// Adds the operator as `Scan`s over the steps, for dtypes that ONNX Runtime has no kernel for. Results as of [`run`](Self::run).
    fn step_by_step(&self, b: &mut Builder<'_>, op: &Op<'_>, on: &Operands) -> Result<Vec<Value>> {
        let states: &[&Value] = if self.kind == "LSTM" { &[&on.h0, &on.c0] } else { &[&on.h0] };
        let lengths = (!on.lengths.is_none()).then(|| {
            let lengths = b.cast(&on.lengths, DType::I64);
            b.reshape(&lengths, &[-1, 1])
        });
        let count = if self.direction == "bidirectional" { 2 } else { 1 };
        let mut parts: Vec<Vec<Value>> = vec![Vec::new(); states.len() + 1];
        for place in 0..count {
            let own = |b: &mut Builder<'_>, value: &Value| {
                let value = if count == 1 { value.clone() } else { b.slice(value, 0, place, place + 1) };
                b.squeeze(&value, &[0])
            };
            let (w, r, bias) = (own(b, &on.w), own(b, &on.r), own(b, &on.bias));
            let (w, r) = (b.transpose(&w, &[1, 0]), b.transpose(&r, &[1, 0]));
            let gates = w.size(1).unwrap_or(0);
            let (input_bias, state_bias) = (b.slice(&bias, 0, 0, gates), b.slice(&bias, 0, gates, i64::MAX));
            let product = b.binary("MatMul", &on.x, &w);
            let inputs = b.binary("Add", &product, &input_bias);
            let is_reverse = place == 1;
            let (one, zero) = (b.int(1), b.scalar(0.0, on.x.dtype));
            let mut first = b.int(0);
            if is_reverse {
                let steps = b.dim(&on.x, 0);
                let steps = b.squeeze(&steps, &[0]);
                first = b.binary("Sub", &steps, &one);
            }
            let mut initial: Vec<Value> = states.iter().map(|state| own(b, state)).collect();
            initial.push(first);
            let results = scan(b, &initial, &[inputs], is_reverse, |b, values| {
                let [before @ .., step, x] = values else { return Err(op.malformed("lacks a state")) };
                let Some(h) = before.first() else { return Err(op.malformed("lacks a state")) };
                let product = b.binary("MatMul", h, &r);
                let product = b.binary("Add", &product, &state_bias);
                let mut next = self.step(b, op, (x, &product), before)?;
                let mut shown = next.first().cloned().unwrap_or_else(Value::none);
                if let Some(lengths) = &lengths {
                    let is_live = b.binary("Less", step, lengths);
                    shown = b.node("Where", &[&is_live, &shown, &zero], Vec::new());
                    for (next, before) in next.iter_mut().zip(before) {
                        *next = b.node("Where", &[&is_live, next, before], Vec::new());
                    }
                }
                next.push(b.binary(if is_reverse { "Sub" } else { "Add" }, step, &one));
                next.push(shown);
                Ok(next)
            })?;
            let y = results.last().cloned().unwrap_or_else(Value::none);
            parts[0].push(b.unsqueeze(&y, &[1]));
            for (list, state) in parts[1..].iter_mut().zip(&results) {
                list.push(b.unsqueeze(state, &[0]));
            }
        }
        let join = |(place, list): (usize, &Vec<Value>)| {
            b.concat(&list.iter().collect::<Vec<_>>(), i64::from(place == 0))
        };
        Ok(parts.iter().enumerate().map(join).collect())
    }

    /// Adds one step: the next states from the products of the input and of the state, gates in the order of ONNX.
    fn step(
        &self,
        b: &mut Builder<'_>,
        op: &Op<'_>,
        (x, product): (&Value, &Value),
        before: &[Value],
    ) -> Result<Vec<Value>> {
        let size = self.hidden;
        let gate = |b: &mut Builder<'_>, value: &Value, place: i64| {
            b.slice(value, 1, place * size, (place + 1) * size)
        };
        let sum = b.binary("Add", x, product);
        let act = |place: usize| self.activations.get(place).copied().unwrap_or("tanh");
        match (self.kind, before) {
            ("LSTM", [_, c]) => {
                let [input, output, forget, candidate] = [0, 1, 2, 3].map(|place| gate(b, &sum, place));
                let [input, output, forget] =
                    [input, output, forget].map(|value| activate(b, op, act(0), &value));
                let candidate = activate(b, op, act(1), &candidate)?;
                let (new, kept) = (b.binary("Mul", &candidate, &input?), b.binary("Mul", c, &forget?));
                let cell = b.binary("Add", &new, &kept);
                let shown = activate(b, op, act(2), &cell)?;
                Ok(vec![b.binary("Mul", &output?, &shown), cell])
            }
            ("GRU", [h]) if self.resets_after => {
                let [update, reset] = [0, 1].map(|place| gate(b, &sum, place));
                let [update, reset] = [update, reset].map(|value| activate(b, op, act(0), &value));
                let (own, other) = (gate(b, x, 2), gate(b, product, 2));
                let other = b.binary("Mul", &other, &reset?);
                let candidate = b.binary("Add", &own, &other);
                let candidate = activate(b, op, act(1), &candidate)?;
                let change = b.binary("Sub", h, &candidate);
                let change = b.binary("Mul", &change, &update?);
                Ok(vec![b.binary("Add", &candidate, &change)])
            }
            ("RNN", [_]) => Ok(vec![activate(b, op, act(0), &sum)?]),
            _ => Err(op.refuse(format_args!("the dtype {}", x.dtype))),
        }
    }
}

/// Returns the name of an activation in recurrent operators of ONNX.
fn onnx_activation(name: &str) -> Option<&'static str> {
    Some(match name {
        "sigmoid" => "Sigmoid",
        "tanh" => "Tanh",
        "relu" => "Relu",
        "identity" => "Affine",
        _ => return None,
    })
}

/// Applies an activation by its name in Paddle.
pub(super) fn activate(b: &mut Builder<'_>, op: &Op<'_>, name: &str, x: &Value) -> Result<Value> {
    Ok(match name {
        "sigmoid" => b.unary("Sigmoid", x),
        "tanh" => b.unary("Tanh", x),
        "relu" => b.unary("Relu", x),
        "identity" => x.clone(),
        name => return Err(op.refuse(format_args!("the activation {name}"))),
    })
}

/// Returns the activation attribute, checked.
pub(super) fn activation<'a>(op: &Op<'a>, attribute: &str, default: &'a str) -> Result<&'a str> {
    let name = op.text(attribute, default);
    match onnx_activation(name) {
        Some(_) => Ok(name),
        None => Err(op.refuse(format_args!("the activation {name}"))),
    }
}

/// Returns blocks of `size` rows in another order.
pub(super) fn ordered(b: &mut Builder<'_>, rows: &Value, size: i64, order: &[i64]) -> Value {
    let is_same = order.iter().enumerate().all(|(place, own)| usize::try_from(*own) == Ok(place));
    if is_same {
        return rows.clone();
    }
    let blocks: Vec<Value> =
        order.iter().map(|place| b.slice(rows, 0, place * size, (place + 1) * size)).collect();
    b.concat(&blocks.iter().collect::<Vec<_>>(), 0)
}

/// Returns the size of a dimension that must be known.
pub(super) fn known_size(op: &Op<'_>, value: &Value, axis: usize) -> Result<i64> {
    let size = value.size(axis).filter(|size| *size > 0 && *size < 1 << 24);
    size.ok_or_else(|| op.refuse("the sizes of its weights are unknown"))
}

/// `rnn`: layers of `LSTM`, `GRU`, `RNN_TANH` or `RNN_RELU` cells, in one direction or two. The input is [T, N, C]. `WeightList` holds
/// for each layer and direction the weights of the input and of the state, then in the same order the biases. The gates of an LSTM
/// are input, forget, cell, output; those of a GRU are reset, update, candidate, and the reset gate applies after the product with the
/// state. Steps beyond `SequenceLength` give zeros and keep the state; the second direction begins at the last step within it.
pub(super) fn rnn(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let mut x = b.input(op, "Input")?;
    let (kind, order, activations): (_, &[i64], Vec<&str>) = match op.text("mode", "RNN_TANH") {
        "LSTM" => ("LSTM", &[0, 3, 1, 2], vec!["sigmoid", "tanh", "tanh"]),
        "GRU" => ("GRU", &[1, 0, 2], vec!["sigmoid", "tanh"]),
        "RNN_TANH" => ("RNN", &[0], vec!["tanh"]),
        "RNN_RELU" => ("RNN", &[0], vec!["relu"]),
        mode => return Err(op.refuse(format_args!("the mode {mode}"))),
    };
    if op.float("dropout_prob", 0.0) > 0.0 && !op.bool("is_test", false) && op.int("num_layers", 1) > 1 {
        return Err(op.refuse("dropout of training between its layers"));
    }
    let dtype = x.dtype;
    // ONNX Runtime computes 32-bit floats; 16-bit floats are computed with them, 64-bit floats step by step.
    let computed = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
    x = b.cast(&x, computed);
    let weights = b.inputs(op, "WeightList")?;
    let directions: usize = if op.bool("is_bidirec", false) { 2 } else { 1 };
    let cells = weights.len() / 4;
    let layers = usize::try_from(op.int("num_layers", 1)).unwrap_or(0);
    if layers.checked_mul(directions) != Some(cells) || weights.len() % 4 != 0 || cells == 0 {
        return Err(op.malformed("has another number of weights than its layers need"));
    }
    let hidden = known_size(op, &weights[1], 1)?;
    let gates = i64::try_from(order.len()).unwrap_or(1);
    let states = b.inputs(op, "PreState")?;
    if states.len() != if kind == "LSTM" { 2 } else { 1 } {
        return Err(op.malformed("has another number of states than its mode needs"));
    }
    let lengths = match b.optional(op, "SequenceLength")? {
        Some(lengths) => b.cast(&lengths, DType::I32),
        None => Value::none(),
    };
    let direction = if directions == 2 { "bidirectional" } else { "forward" };
    let layer = Layer { kind, hidden, direction, activations, resets_after: true };
    let mut last: Vec<Vec<Value>> = vec![Vec::new(); states.len()];
    for number in 0..layers {
        let (mut w, mut r, mut bias) = (Vec::new(), Vec::new(), Vec::new());
        for cell in number * directions..(number + 1) * directions {
            let biases = 2 * cells + 2 * cell;
            for (own, list) in [(2 * cell, &mut w), (2 * cell + 1, &mut r)] {
                if weights[own].size(0) != Some(gates * hidden) {
                    return Err(op.malformed("has weights of another size than its state"));
                }
                let weight = b.cast(&weights[own], computed);
                let weight = ordered(b, &weight, hidden, order);
                list.push(b.unsqueeze(&weight, &[0]));
            }
            let mut both = Vec::new();
            for own in [biases, biases + 1] {
                let own = b.cast(&weights[own], computed);
                both.push(ordered(b, &own, hidden, order));
            }
            let both = b.concat(&both.iter().collect::<Vec<_>>(), 0);
            bias.push(b.unsqueeze(&both, &[0]));
        }
        let [w, r, bias] = [w, r, bias].map(|list| b.concat(&list.iter().collect::<Vec<_>>(), 0));
        let first = i64::try_from(number * directions).unwrap_or(0);
        let end = i64::try_from((number + 1) * directions).unwrap_or(0);
        let mut initial = Vec::new();
        for state in &states {
            let state = b.cast(state, computed);
            initial.push(if layers == 1 { state } else { b.slice(&state, 0, first, end) });
        }
        let (h0, c0) = (initial.first().cloned(), initial.get(1).cloned());
        let operands = Operands {
            x: x.clone(),
            w,
            r,
            bias,
            lengths: lengths.clone(),
            h0: h0.unwrap_or_else(Value::none),
            c0: c0.unwrap_or_else(Value::none),
            peepholes: Value::none(),
        };
        let results = match computed {
            DType::F64 => layer.step_by_step(b, op, &operands)?,
            _ => layer.run(b, &operands),
        };
        let Some((y, finals)) = results.split_first() else { continue };
        // [T, D, N, H] to [T, N, D * H].
        x = if directions == 1 {
            b.squeeze(y, &[1])
        } else {
            let y = b.transpose(y, &[0, 2, 1, 3]);
            b.reshape(&y, &[0, 0, 2 * hidden])
        };
        for (list, state) in last.iter_mut().zip(finals) {
            list.push(state.clone());
        }
    }
    let out = b.cast(&x, dtype);
    b.bind(op, "Out", out);
    let mut finals = Vec::new();
    for list in &last {
        let state = b.concat(&list.iter().collect::<Vec<_>>(), 0);
        finals.push(b.cast(&state, dtype));
    }
    b.bind_all(op, "State", finals);
    Ok(())
}
