//! Recurrent layers over one sequence with level-of-detail data: `dynamic_gru`, `dynamic_lstm` and their fused forms.

use super::super::builder::{Builder, Value};
use super::super::operator::Op;
use super::recurrent::{Layer, Operands, activate, activation, known_size, ordered};
use super::{scan, sequence};
use weighbridge_core::error::Result;
use weighbridge_core::tensor::DType;

/// Weights of a layer over one sequence, as Paddle arranges them.
struct Cells {
    /// Input: [T, gates * H] if there are no weights for it, else [T, I].
    x: Value,
    /// Weights of the input: [I, gates * H].
    w: Option<Value>,
    /// Weights of the state: parts with H rows each.
    r: Vec<Value>,
    /// Biases: [gates * H].
    bias: Option<Value>,
    hidden: i64,
    h0: Option<Value>,
    c0: Option<Value>,
}

impl Cells {
    /// Returns the weights for ONNX, with the gates in another order, each multiplied by a factor.
    fn operands(&self, b: &mut Builder<'_>, order: &[i64], factors: Option<&Value>) -> Operands {
        let gates = i64::try_from(order.len()).unwrap_or(1);
        let arranged = |b: &mut Builder<'_>, value: &Value| {
            let value = ordered(b, value, self.hidden, order);
            let Some(factors) = factors else { return value };
            let factors = if value.rank() == Some(1) { b.squeeze(factors, &[1]) } else { factors.clone() };
            b.binary("Mul", &value, &factors)
        };
        let w = match &self.w {
            Some(w) => b.transpose(w, &[1, 0]),
            None => {
                let size = gates * self.hidden;
                let shape = b.ints(&[size, size]);
                let zeros = b.filled(&shape, 0.0, self.x.dtype);
                b.unary("EyeLike", &zeros)
            }
        };
        let w = arranged(b, &w);
        let parts: Vec<Value> = self.r.iter().map(|part| b.transpose(part, &[1, 0])).collect();
        let r = b.concat(&parts.iter().collect::<Vec<_>>(), 0);
        let r = arranged(b, &r);
        let bias = match &self.bias {
            Some(bias) => {
                let bias = arranged(b, bias);
                let shape = b.ints(&[gates * self.hidden]);
                let zeros = b.filled(&shape, 0.0, self.x.dtype);
                let both = b.concat(&[&bias, &zeros], 0);
                b.unsqueeze(&both, &[0])
            }
            None => Value::none(),
        };
        let state = |b: &mut Builder<'_>, state: &Option<Value>| match state {
            Some(state) => b.unsqueeze(state, &[0]),
            None => Value::none(),
        };
        let (h0, c0) = (state(b, &self.h0), state(b, &self.c0));
        Operands {
            x: b.unsqueeze(&self.x, &[1]),
            w: b.unsqueeze(&w, &[0]),
            r: b.unsqueeze(&r, &[0]),
            bias,
            lengths: Value::none(),
            h0,
            c0,
            peepholes: Value::none(),
        }
    }

    /// Returns the inputs of the gates, one row a step: [T, 1, gates * H].
    fn gates(&self, b: &mut Builder<'_>) -> Value {
        let mut gates = match &self.w {
            Some(w) => b.binary("MatMul", &self.x, w),
            None => self.x.clone(),
        };
        if let Some(bias) = &self.bias {
            gates = b.binary("Add", &gates, bias);
        }
        b.unsqueeze(&gates, &[1])
    }

    /// Returns an initial state: [1, H].
    fn initial(&self, b: &mut Builder<'_>, state: &Option<Value>) -> Value {
        match state {
            Some(state) => state.clone(),
            None => {
                let shape = b.ints(&[1, self.hidden]);
                b.filled(&shape, 0.0, self.x.dtype)
            }
        }
    }
}

/// Returns the two parts of the weights of a GRU's state: [H, 2 * H] for both gates, then [H, H] for the candidate. They follow each
/// other in the stored tensor, which is declared as [H, 3 * H].
fn gru_weights(b: &mut Builder<'_>, weight: &Value, hidden: i64) -> Vec<Value> {
    let flat = b.reshape(weight, &[-1]);
    let gates = b.slice(&flat, 0, 0, 2 * hidden * hidden);
    let candidate = b.slice(&flat, 0, 2 * hidden * hidden, 3 * hidden * hidden);
    vec![b.reshape(&gates, &[hidden, 2 * hidden]), b.reshape(&candidate, &[hidden, hidden])]
}

/// Activations of a GRU.
struct GruStyle<'a> {
    gate: &'a str,
    candidate: &'a str,
    /// True if the update gate keeps the state: u * h + (1 - u) * c. Otherwise (1 - u) * h + u * c.
    keeps: bool,
}

/// Results of a step of a GRU.
struct GruStep {
    /// Activated gates: [N, 3 * H].
    gate: Value,
    /// State multiplied by the reset gate.
    reset: Value,
    hidden: Value,
}

/// Adds a step of a GRU: gates are update, reset, candidate.
fn gru_step(
    b: &mut Builder<'_>,
    op: &Op<'_>,
    (x, h): (&Value, &Value),
    weights: &[Value],
    hidden: i64,
    style: &GruStyle<'_>,
) -> Result<GruStep> {
    let [gate_weight, candidate_weight] = weights else { return Err(op.malformed("lacks weights")) };
    let both = b.slice(x, 1, 0, 2 * hidden);
    let product = b.binary("MatMul", h, gate_weight);
    let both = b.binary("Add", &both, &product);
    let both = activate(b, op, style.gate, &both)?;
    let (update, reset) = (b.slice(&both, 1, 0, hidden), b.slice(&both, 1, hidden, 2 * hidden));
    let reset = b.binary("Mul", &reset, h);
    let product = b.binary("MatMul", &reset, candidate_weight);
    let candidate = b.slice(x, 1, 2 * hidden, 3 * hidden);
    let candidate = b.binary("Add", &candidate, &product);
    let candidate = activate(b, op, style.candidate, &candidate)?;
    let (from, to) = if style.keeps { (&candidate, h) } else { (h, &candidate) };
    let step = b.binary("Sub", to, from);
    let step = b.binary("Mul", &step, &update);
    Ok(GruStep { gate: b.concat(&[&both, &candidate], 1), hidden: b.binary("Add", from, &step), reset })
}

/// Translates a GRU over one sequence to its hidden states [T, H].
fn gru_over(b: &mut Builder<'_>, op: &Op<'_>, cells: &Cells, is_reverse: bool) -> Result<Value> {
    let style = GruStyle {
        gate: activation(op, "gate_activation", "sigmoid")?,
        candidate: activation(op, "activation", "tanh")?,
        keeps: op.bool("origin_mode", false),
    };
    if cells.x.dtype == DType::F32 && (style.keeps || style.gate == "sigmoid") {
        // 1 - sigmoid(a) = sigmoid(-a)
        let factors = (!style.keeps).then(|| {
            let signs = [-1.0, 1.0, 1.0].map(|sign| {
                let shape = b.ints(&[cells.hidden, 1]);
                b.filled(&shape, sign, DType::F32)
            });
            b.concat(&signs.each_ref(), 0)
        });
        let operands = cells.operands(b, &[0, 1, 2], factors.as_ref());
        let layer = Layer {
            kind: "GRU",
            hidden: cells.hidden,
            direction: if is_reverse { "reverse" } else { "forward" },
            activations: vec![style.gate, style.candidate],
            resets_after: false,
        };
        let y = layer.run(b, &operands).into_iter().next().unwrap_or_else(Value::none);
        return Ok(b.squeeze(&y, &[1, 2]));
    }
    let (gates, initial) = (cells.gates(b), cells.initial(b, &cells.h0));
    let results = scan(b, &[initial], &[gates], is_reverse, |b, values| {
        let [h, x] = values else { return Err(op.malformed("lacks a state")) };
        let step = gru_step(b, op, (x, h), &cells.r, cells.hidden, &style)?;
        Ok(vec![step.hidden.clone(), step.hidden])
    })?;
    let all = results.into_iter().nth(1).unwrap_or_else(Value::none);
    Ok(b.squeeze(&all, &[1]))
}

/// Returns the steps of one sequence, as floats.
fn steps(b: &mut Builder<'_>, op: &Op<'_>, slot: &str) -> Result<Value> {
    let x = sequence(b, op, slot)?;
    match x.dtype {
        DType::F32 | DType::F64 => Ok(x),
        dtype => Err(op.refuse(format_args!("the dtype {dtype}"))),
    }
}

/// Returns a bias [1, n] as [n].
fn flat(b: &mut Builder<'_>, bias: Option<Value>) -> Option<Value> {
    bias.map(|bias| b.reshape(&bias, &[-1]))
}

/// Refuses results that the translation does not compute, if something reads them.
pub(super) fn refuse_read(b: &Builder<'_>, op: &Op<'_>, slots: &[&str]) -> Result<()> {
    match slots.iter().find(|slot| b.is_used(op, slot)) {
        Some(slot) => Err(op.refuse(format_args!("its result {slot}"))),
        None => Ok(()),
    }
}

/// `gru`: a GRU over one sequence, whose input [T, 3 * H] already is multiplied by weights. Gates: update, reset, candidate. The state
/// is multiplied by the reset gate before its product with weights. `origin_mode` decides what the update gate keeps.
pub(super) fn gru(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    refuse_read(b, op, &["BatchGate", "BatchResetHiddenPrev", "BatchHidden"])?;
    let (x, weight) = (steps(b, op, "Input")?, b.input(op, "Weight")?);
    let hidden = known_size(op, &weight, 0)?;
    let bias = b.optional(op, "Bias")?;
    let cells = Cells {
        x,
        w: None,
        r: gru_weights(b, &weight, hidden),
        bias: flat(b, bias),
        hidden,
        h0: b.optional(op, "H0")?,
        c0: None,
    };
    let y = gru_over(b, op, &cells, op.bool("is_reverse", false))?;
    b.bind(op, "Hidden", y);
    Ok(())
}

/// `fusion_gru`: `gru` with the weights of the input: [I, 3 * H].
pub(super) fn fusion_gru(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    refuse_read(b, op, &["XX", "ReorderedH0", "BatchedInput", "BatchedOut"])?;
    if op.bool("origin_mode", false) {
        return Err(op.refuse("origin_mode, which the kernels of Paddle compute differently"));
    }
    let (x, weight) = (steps(b, op, "X")?, b.input(op, "WeightH")?);
    let hidden = known_size(op, &weight, 0)?;
    let bias = b.optional(op, "Bias")?;
    let cells = Cells {
        x,
        w: Some(b.input(op, "WeightX")?),
        r: gru_weights(b, &weight, hidden),
        bias: flat(b, bias),
        hidden,
        h0: b.optional(op, "H0")?,
        c0: None,
    };
    let y = gru_over(b, op, &cells, op.bool("is_reverse", false))?;
    b.bind(op, "Hidden", y);
    Ok(())
}

/// `multi_gru`: layers of `fusion_gru` in both directions; the states of both are the input of the next layer.
pub(super) fn multi_gru(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let mut x = steps(b, op, "X")?;
    let (inputs, states) = (b.inputs(op, "WeightX")?, b.inputs(op, "WeightH")?);
    let biases = b.inputs(op, "Bias")?;
    let has_biases = biases.len() == inputs.len();
    let is_complete = inputs.len() % 2 == 0 && inputs.len() == states.len() && !inputs.is_empty();
    if !is_complete || !(has_biases || biases.is_empty()) {
        return Err(op.malformed("has another number of weights than its layers need"));
    }
    if inputs.iter().any(|weight| weight.dtype != DType::F32) {
        return Err(op.refuse("quantized weights"));
    }
    for number in 0..inputs.len() / 2 {
        let mut sides = Vec::new();
        for place in [2 * number, 2 * number + 1] {
            let hidden = known_size(op, &states[place], 0)?;
            let bias = biases.get(place).cloned();
            let cells = Cells {
                x: x.clone(),
                w: Some(inputs[place].clone()),
                r: gru_weights(b, &states[place], hidden),
                bias: flat(b, bias),
                hidden,
                h0: None,
                c0: None,
            };
            sides.push(gru_over(b, op, &cells, place % 2 == 1)?);
        }
        x = b.concat(&sides.iter().collect::<Vec<_>>(), 1);
    }
    b.bind(op, "Hidden", x);
    Ok(())
}

/// `gru_unit`: one step of `gru` for a batch [N, 3 * H]. Activations are numbers: identity, sigmoid, tanh, relu.
pub(super) fn gru_unit(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let name = |attribute: &str, default: i64| match op.int(attribute, default) {
        0 => Ok("identity"),
        1 => Ok("sigmoid"),
        2 => Ok("tanh"),
        3 => Ok("relu"),
        number => Err(op.refuse(format_args!("the activation {number}"))),
    };
    let style = GruStyle {
        gate: name("gate_activation", 1)?,
        candidate: name("activation", 2)?,
        keeps: op.bool("origin_mode", false),
    };
    let mut x = b.input(op, "Input")?;
    let (h, weight) = (b.input(op, "HiddenPrev")?, b.input(op, "Weight")?);
    let hidden = known_size(op, &weight, 0)?;
    if let Some(bias) = b.optional(op, "Bias")? {
        let bias = b.reshape(&bias, &[-1]);
        x = b.binary("Add", &x, &bias);
    }
    let weights = gru_weights(b, &weight, hidden);
    let step = gru_step(b, op, (&x, &h), &weights, hidden, &style)?;
    b.bind(op, "Gate", step.gate);
    b.bind(op, "ResetHiddenPrev", step.reset);
    b.bind(op, "Hidden", step.hidden);
    Ok(())
}

/// Weights by which the cell enters the gates: input, forget, output.
type Peepholes = Option<[Value; 3]>;

/// Activations of an LSTM.
struct LstmStyle<'a> {
    gate: &'a str,
    cell: &'a str,
    candidate: &'a str,
}

/// Adds a step of an LSTM: gates are candidate, input, forget, output. Returns the hidden state and the cell.
fn lstm_step(
    b: &mut Builder<'_>,
    op: &Op<'_>,
    (x, h, c): (&Value, &Value, &Value),
    cells: &Cells,
    style: &LstmStyle<'_>,
    peepholes: &Peepholes,
) -> Result<(Value, Value)> {
    let weight = cells.r.first().ok_or_else(|| op.malformed("lacks weights"))?;
    let product = b.binary("MatMul", h, weight);
    let all = b.binary("Add", x, &product);
    let size = cells.hidden;
    let [candidate, mut input, mut forget, mut output] =
        [0, 1, 2, 3].map(|gate| b.slice(&all, 1, gate * size, (gate + 1) * size));
    let peep = |b: &mut Builder<'_>, gate: &mut Value, cell: &Value, place: usize| {
        if let Some(weights) = peepholes {
            let product = b.binary("Mul", cell, &weights[place]);
            *gate = b.binary("Add", gate, &product);
        }
    };
    peep(b, &mut input, c, 0);
    peep(b, &mut forget, c, 1);
    let candidate = activate(b, op, style.candidate, &candidate)?;
    let input = activate(b, op, style.gate, &input)?;
    let forget = activate(b, op, style.gate, &forget)?;
    let new = b.binary("Mul", &candidate, &input);
    let kept = b.binary("Mul", c, &forget);
    let cell = b.binary("Add", &new, &kept);
    peep(b, &mut output, &cell, 2);
    let output = activate(b, op, style.gate, &output)?;
    let shown = activate(b, op, style.cell, &cell)?;
    Ok((b.binary("Mul", &output, &shown), cell))
}

/// Translates an LSTM over one sequence; binds `Hidden` and `Cell`, [T, H] each. The input may include the biases of the gates.
fn lstm_over(
    b: &mut Builder<'_>,
    op: &Op<'_>,
    mut cells: Cells,
    bias: Option<Value>,
    is_biased: bool,
) -> Result<()> {
    let style = LstmStyle {
        gate: activation(op, "gate_activation", "sigmoid")?,
        cell: activation(op, "cell_activation", "tanh")?,
        candidate: activation(op, "candidate_activation", "tanh")?,
    };
    let size = cells.hidden;
    let mut peepholes: Peepholes = None;
    if let Some(bias) = flat(b, bias) {
        if op.bool("use_peepholes", true) {
            if bias.size(0) != Some(7 * size) {
                return Err(op.malformed("has a bias without the weights of its peepholes"));
            }
            peepholes = Some([4, 5, 6].map(|part| b.slice(&bias, 0, part * size, (part + 1) * size)));
        }
        cells.bias = match bias.size(0) {
            _ if is_biased => None,
            Some(count) if count == 4 * size => Some(bias),
            _ => Some(b.slice(&bias, 0, 0, 4 * size)),
        };
    }
    let is_reverse = op.bool("is_reverse", false);
    if cells.x.dtype == DType::F32 && !b.is_used(op, "Cell") {
        // Gates of ONNX: input, output, forget, candidate.
        let mut operands = cells.operands(b, &[1, 3, 2, 0], None);
        if let Some([input, forget, output]) = &peepholes {
            let all = b.concat(&[input, output, forget], 0);
            operands.peepholes = b.unsqueeze(&all, &[0]);
        }
        let layer = Layer {
            kind: "LSTM",
            hidden: size,
            direction: if is_reverse { "reverse" } else { "forward" },
            activations: vec![style.gate, style.candidate, style.cell],
            resets_after: false,
        };
        let y = layer.run(b, &operands).into_iter().next().unwrap_or_else(Value::none);
        let y = b.squeeze(&y, &[1, 2]);
        b.bind(op, "Hidden", y);
        return Ok(());
    }
    let gates = cells.gates(b);
    let initial = [cells.initial(b, &cells.h0), cells.initial(b, &cells.c0)];
    let results = scan(b, &initial, &[gates], is_reverse, |b, values| {
        let [h, c, x] = values else { return Err(op.malformed("lacks a state")) };
        let (h, c) = lstm_step(b, op, (x, h, c), &cells, &style, &peepholes)?;
        Ok(vec![h.clone(), c.clone(), h, c])
    })?;
    for (slot, value) in ["Hidden", "Cell"].iter().zip(&results[2..]) {
        let value = b.squeeze(value, &[1]);
        b.bind(op, slot, value);
    }
    Ok(())
}

/// `lstm`: an LSTM over one sequence, whose input [T, 4 * H] already is multiplied by weights. Gates: candidate, input, forget, output.
/// With peepholes the bias holds three more parts, by which the cell enters the input, forget and output gates.
pub(super) fn lstm(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    refuse_read(b, op, &["BatchGate", "BatchCellPreAct"])?;
    let (x, weight) = (steps(b, op, "Input")?, b.input(op, "Weight")?);
    let hidden = known_size(op, &weight, 0)?;
    let bias = b.optional(op, "Bias")?;
    let (h0, c0) = (b.optional(op, "H0")?, b.optional(op, "C0")?);
    lstm_over(b, op, Cells { x, w: None, r: vec![weight], bias: None, hidden, h0, c0 }, bias, false)
}

/// `fusion_lstm`: `lstm` with the weights of the input: [I, 4 * H].
pub(super) fn fusion_lstm(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let unread =
        ["XX", "BatchedInput", "BatchedHidden", "BatchedCell", "ReorderedH0", "ReorderedC0", "CheckedCell"];
    refuse_read(b, op, &unread)?;
    let (x, weight) = (steps(b, op, "X")?, b.input(op, "WeightH")?);
    let hidden = known_size(op, &weight, 0)?;
    let w = Some(b.input(op, "WeightX")?);
    let bias = b.optional(op, "Bias")?;
    let (h0, c0) = (b.optional(op, "H0")?, b.optional(op, "C0")?);
    lstm_over(b, op, Cells { x, w, r: vec![weight], bias: None, hidden, h0, c0 }, bias, false)
}

/// `fused_embedding_fc_lstm`: `lstm` whose inputs are rows of `Embeddings` for the labels [T, 1]. The rows include the biases
/// of the gates, so the bias only holds the weights of the peepholes.
pub(super) fn embedding_lstm(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let unread = ["XX", "BatchedInput", "BatchedHidden", "BatchedCell", "ReorderedH0", "ReorderedC0"];
    refuse_read(b, op, &unread)?;
    let (ids, table) = (b.input(op, "Ids")?, b.input(op, "Embeddings")?);
    let weight = b.input(op, "WeightH")?;
    let hidden = known_size(op, &weight, 0)?;
    let ids = b.cast(&ids, DType::I64);
    let ids = b.reshape(&ids, &[-1]);
    let x = b.gather(&table, &ids, 0);
    let bias = b.optional(op, "Bias")?;
    let (h0, c0) = (b.optional(op, "H0")?, b.optional(op, "C0")?);
    lstm_over(b, op, Cells { x, w: None, r: vec![weight], bias: None, hidden, h0, c0 }, bias, true)
}
