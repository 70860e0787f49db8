//! Operators on sequences.
//!
//! A tensor of Paddle may be a batch of sequences: level-of-detail data (LoD) beside the tensor says which rows form which sequence.
//! ONNX has no such data. An exported graph takes one sequence: the rows of a tensor with LoD are the steps of one sequence, and
//! `sequence_*` operators, `gru`, `lstm`, `crf_decoding` and others are translated for it. Operators that a program of several
//! sequences needs (`beam_search`, several levels) have no translation.

mod decode;
mod dynamic;
mod fused;
mod recurrent;

use super::builder::{Builder, Value};
use super::infer::Inferred;
use super::operator::{Op, Row, row};

use crate::constant::Constant;
use crate::model::{Attr, Dim};
use weighbridge_core::error::Result;
use weighbridge_core::tensor::DType;

/// Maximum size of a window of steps.
const MAX_WINDOW: i64 = 1024;

/// Operators of this family.
#[rustfmt::skip]
pub(super) const ROWS: &[Row] = &[
    row("rnn", "rnn", "Input PreState WeightList SequenceLength DropoutStateIn", "Out DropoutState State Reserve", recurrent::rnn),
    row("gru", "gru", "Input H0 Weight Bias", "BatchGate BatchResetHiddenPrev BatchHidden Hidden", dynamic::gru),
    row("gru_unit", "gru_unit", "Input HiddenPrev Weight Bias", "Gate ResetHiddenPrev Hidden", dynamic::gru_unit),
    row("lstm", "lstm", "Input H0 C0 Weight Bias", "Hidden Cell BatchGate BatchCellPreAct", dynamic::lstm),
    row("fusion_gru", "fusion_gru", "X H0 WeightX WeightH Bias", "ReorderedH0 XX BatchedInput BatchedOut Hidden", dynamic::fusion_gru),
    row("fusion_lstm", "fusion_lstm", "X WeightX WeightH Bias H0 C0",
        "Hidden Cell XX BatchedInput BatchedHidden BatchedCell ReorderedH0 ReorderedC0 CheckedCell", dynamic::fusion_lstm),
    row("multi_gru", "", "X WeightX WeightH Bias", "Hidden", dynamic::multi_gru),
    row("crf_decoding", "crf_decoding", "Emission Transition Label Length", "ViterbiPath", decode::crf_decoding),
    row("viterbi_decode", "viterbi_decode", "Input Transition Length", "Scores Path", decode::viterbi_decode),
    row("gather_tree", "gather_tree", "Ids Parents", "Out", decode::gather_tree),
    row("ctc_align", "ctc_align", "Input InputLength", "Output OutputLength", decode::ctc_align),
    row("edit_distance", "edit_distance", "Hyps Refs HypsLength RefsLength", "SequenceNum Out", decode::edit_distance),
    row("sequence_mask", "sequence_mask", "X MaxLenTensor", "Y", decode::sequence_mask),
    row("lod_reset", "lod_reset", "X Y", "Out", lod_reset),
    row("sequence_pool", "sequence_pool", "X", "Out MaxIndex", sequence_pool),
    row("sequence_softmax", "sequence_softmax", "X", "Out", sequence_softmax),
    row("sequence_expand", "sequence_expand", "X Y", "Out", sequence_expand),
    row("sequence_expand_as", "", "X Y", "Out", sequence_expand_as),
    row("sequence_conv", "sequence_conv", "X PaddingData Filter", "Out", sequence_conv)
        .renamed("context_length=contextLength context_start=contextStart context_stride=contextStride padding_trainable=paddingTrainable"),
    row("sequence_reverse", "", "X", "Y", sequence_reverse),
    row("sequence_pad", "", "X PadValue", "Out Length", sequence_pad),
    row("sequence_unpad", "", "X Length", "Out", sequence_unpad),
    row("sequence_concat", "", "X", "Out", sequence_concat),
    row("sequence_slice", "", "X Offset Length", "Out", sequence_slice),
    row("sequence_reshape", "", "X", "Out", sequence_reshape),
    row("sequence_enumerate", "", "X", "Out", sequence_enumerate),
    row("sequence_erase", "", "X", "Out", sequence_erase),
    row("row_conv", "row_conv", "X Filter", "Out", row_conv),
    row("fusion_seqconv_eltadd_relu", "fusion_seqconv_eltadd_relu", "X Filter Bias", "Out ColMat", fused::sequence_conv_relu)
        .renamed("context_length=contextLength context_start=contextStart context_stride=contextStride"),
    row("fusion_seqpool_concat", "fusion_seqpool_concat", "X", "Out", fused::sequence_pool_concat),
    row("fusion_seqexpand_concat_fc", "", "X FCWeight FCBias", "Out FCOut", fused::sequence_expand_fc),
    row("fused_embedding_seq_pool", "", "W Ids", "Out", fused::embedding_pool),
    row("fused_embedding_fc_lstm", "fused_embedding_fc_lstm", "Ids Embeddings WeightH Bias H0 C0",
        "Hidden Cell XX BatchedInput BatchedHidden BatchedCell ReorderedH0 ReorderedC0", dynamic::embedding_lstm),
    row("add_position_encoding", "add_position_encoding", "X", "Out", fused::add_position_encoding),
    row("sequence_scatter", "", "X Ids Updates", "Out", fused::sequence_scatter),
    row("im2sequence", "im2sequence", "X Y", "Out", im2sequence),
];

/// Returns the rows of one sequence.
fn sequence(b: &mut Builder<'_>, op: &Op<'_>, slot: &str) -> Result<Value> {
    let name = op.input(slot).first().copied().unwrap_or("");
    if b.declaration(name).is_some_and(|variable| variable.lod_level > 1) {
        return Err(op.refuse("sequences of sequences"));
    }
    b.input(op, slot)
}

/// Adds a `Scan` over the first dimension of the inputs, from the last element if reversed. `make` gets the states and one element of
/// each input, and returns the next states and one element of each result. Results: the last states, then the collected results.
fn scan(
    b: &mut Builder<'_>,
    initial: &[Value],
    inputs: &[Value],
    is_reverse: bool,
    make: impl FnOnce(&mut Builder<'_>, &[Value]) -> Result<Vec<Value>>,
) -> Result<Vec<Value>> {
    let mut formals = Vec::new();
    for state in initial {
        formals.push(b.formal("state", state.dtype, state.dims.clone(), false));
    }
    for input in inputs {
        let dims = input.dims.as_ref().map(|dims| dims.iter().skip(1).cloned().collect());
        formals.push(b.formal("element", input.dtype, dims, false));
    }
    let values = formals.clone();
    let (mut graph, results) = b.body(&formals, |b| make(b, &values))?;
    let length = inputs.first().and_then(|input| input.dims.as_ref()).and_then(|dims| dims.first().cloned());
    let mut types = Vec::new();
    for (place, result) in results.iter().enumerate() {
        let dims = match initial.get(place) {
            Some(state) => {
                graph.outputs[place].shape.clone_from(&state.dims);
                state.dims.clone()
            }
            None => result.dims.as_ref().map(|dims| {
                let mut all = vec![length.clone().unwrap_or(Dim::Open)];
                all.extend(dims.iter().cloned());
                all
            }),
        };
        types.push(Inferred::new(result.dtype, dims));
    }
    let collected = results.len().saturating_sub(initial.len());
    let count = i64::try_from(inputs.len()).unwrap_or(0);
    let mut attributes = vec![("body", Attr::Graph(Box::new(graph))), ("num_scan_inputs", Attr::Int(count))];
    if is_reverse {
        attributes.push(("scan_input_directions", Attr::Ints(vec![1; inputs.len()])));
        if collected > 0 {
            attributes.push(("scan_output_directions", Attr::Ints(vec![1; collected])));
        }
    }
    let operands: Vec<&Value> = initial.iter().chain(inputs).collect();
    Ok(b.typed("Scan", &operands, attributes, types))
}

/// Returns the number of rows for each column of [T, N]: a vector of N elements.
fn count_of(b: &mut Builder<'_>, value: &Value) -> Value {
    let (rows, columns) = (b.dim(value, 0), b.dim(value, 1));
    b.binary("Expand", &rows, &columns)
}

/// Returns shifted copies of a value along an axis: at place t, copy k holds element t + start + k, or the filler if outside.
fn shifted(
    b: &mut Builder<'_>,
    x: &Value,
    axis: usize,
    (start, count): (i64, i64),
    filler: &Value,
) -> Result<Vec<Value>> {
    let (before, after) = ((-start).max(0), (start + count - 1).max(0));
    let rank = x.rank().unwrap_or(axis + 1);
    let mut pads = vec![0; 2 * rank];
    (pads[axis], pads[rank + axis]) = (before, after);
    let pads = b.ints(&pads);
    let padded = if before + after == 0 { x.clone() } else { b.node("Pad", &[x, &pads, filler], Vec::new()) };
    Ok(windows(b, &padded, axis, (start + before, count), before + after))
}

/// Returns windows of a value that is longer by `extra` than a window: window k begins at first + k.
fn windows(
    b: &mut Builder<'_>,
    x: &Value,
    axis: usize,
    (first, count): (i64, i64),
    extra: i64,
) -> Vec<Value> {
    let axis = i64::try_from(axis).unwrap_or(0);
    let window = |place: i64| {
        let (start, tail) = (first + place, extra - first - place);
        match (start, tail) {
            (0, 0) => x.clone(),
            (start, tail) => b.slice(x, axis, start, if tail == 0 { i64::MAX } else { -tail }),
        }
    };
    (0..count).map(window).collect()
}

/// Checks a window of steps: its first step relative to the current one, and its length.
fn check_window(op: &Op<'_>, start: i64, count: i64) -> Result<()> {
    if (1..=MAX_WINDOW).contains(&count) && (-MAX_WINDOW..=MAX_WINDOW).contains(&start) {
        return Ok(());
    }
    Err(op.refuse(format_args!("a window of {count} steps from step {start}")))
}

// ---- operators

/// `lod_reset`: the same rows, divided into other sequences.
fn lod_reset(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    if op.input("Y").is_empty() && op.ints("target_lod").is_some_and(|offsets| offsets.len() > 2) {
        return Err(op.refuse("several sequences in one tensor"));
    }
    let out = b.identity(&x);
    b.bind(op, "Out", out);
    Ok(())
}

/// `sequence_pool`: sum, average, sum divided by the square root of the length, maximum, first or last row of a sequence. Paddle
/// allows an empty sequence among others only.
fn sequence_pool(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    dynamic::refuse_read(b, op, &["MaxIndex"])?;
    let x = sequence(b, op, "X")?;
    let out = pooled(b, op, &x, "AVERAGE")?;
    b.bind(op, "Out", out);
    Ok(())
}

/// Returns a sequence pooled to one row, by the attribute `pooltype` or its default.
fn pooled(b: &mut Builder<'_>, op: &Op<'_>, x: &Value, default: &str) -> Result<Value> {
    Ok(match op.text("pooltype", default).to_ascii_uppercase().as_str() {
        "SUM" => b.reduce("ReduceSum", x, &[0], true),
        "AVERAGE" => b.reduce("ReduceMean", x, &[0], true),
        "SQRT" => {
            let sum = b.reduce("ReduceSum", x, &[0], true);
            let count = b.dim(x, 0);
            let count = b.cast(&count, x.dtype);
            let root = b.unary("Sqrt", &count);
            b.binary("Div", &sum, &root)
        }
        "MAX" => b.reduce("ReduceMax", x, &[0], true),
        "FIRST" => b.slice(x, 0, 0, 1),
        "LAST" => b.slice(x, 0, -1, i64::MAX),
        kind => return Err(op.refuse(format_args!("the kind {kind}"))),
    })
}

/// `sequence_softmax`: softmax over the steps of a sequence, [T] or [T, 1].
fn sequence_softmax(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = sequence(b, op, "X")?;
    let out = b.node("Softmax", &[&x], vec![("axis", Attr::Int(0))]);
    b.bind(op, "Out", out);
    Ok(())
}

/// Returns X, a row or a sequence, repeated once for each row of Y.
fn repeated(b: &mut Builder<'_>, op: &Op<'_>) -> Result<Value> {
    let (x, y) = (sequence(b, op, "X")?, sequence(b, op, "Y")?);
    let rank = b.rank(op, &x)?;
    let rows = b.dim(&y, 0);
    let others = b.ints(&vec![1; rank.saturating_sub(1)]);
    let repeats = b.concat(&[&rows, &others], 0);
    Ok(b.binary("Tile", &x, &repeats))
}

/// `sequence_expand`: X, repeated as often as the sequence Y has steps.
fn sequence_expand(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let out = repeated(b, op)?;
    b.bind(op, "Out", out);
    Ok(())
}

/// `sequence_expand_as`: the row X, repeated as often as the sequence Y has steps.
fn sequence_expand_as(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let out = repeated(b, op)?;
    b.bind(op, "Out", out);
    Ok(())
}

/// `sequence_conv`: each step with its neighbours from `contextStart`, `contextLength` in number, multiplied by the filter
/// [contextLength * D, M]. Outside the sequence are zeros, or the rows of `PaddingData`: those before it first.
fn sequence_conv(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let out = neighbours(b, op)?;
    b.bind(op, "Out", out);
    Ok(())
}

/// Returns each step with its neighbours, multiplied by the filter.
fn neighbours(b: &mut Builder<'_>, op: &Op<'_>) -> Result<Value> {
    let (x, filter) = (sequence(b, op, "X")?, b.input(op, "Filter")?);
    let (start, count) = (op.int("contextStart", 0), op.int("contextLength", 1));
    check_window(op, start, count)?;
    if b.rank(op, &x)? < 2 {
        return Err(op.malformed("needs rows"));
    }
    if op.int("contextStride", 1) != 1 {
        return Err(op.refuse("a stride"));
    }
    let copies = if op.bool("paddingTrainable", false) {
        let padding = b.input(op, "PaddingData")?;
        let (before, after) = ((-start).max(0), (start + count - 1).max(0));
        let top = b.slice(&padding, 0, 0, before);
        let bottom = b.slice(&padding, 0, before, before + after);
        let padded = b.concat(&[&top, &x, &bottom], 0);
        windows(b, &padded, 0, (start + before, count), before + after)
    } else {
        let zero = b.scalar(0.0, x.dtype);
        shifted(b, &x, 0, (start, count), &zero)?
    };
    let all = b.concat(&copies.iter().collect::<Vec<_>>(), 1);
    Ok(b.binary("MatMul", &all, &filter))
}

/// `sequence_reverse`: the steps of a sequence from the last to the first.
fn sequence_reverse(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = sequence(b, op, "X")?;
    let (start, end) = (b.ints(&[-1]), b.ints(&[i64::MIN]));
    let (axis, step) = (b.ints(&[0]), b.ints(&[-1]));
    let out = b.node("Slice", &[&x, &start, &end, &axis, &step], Vec::new());
    b.bind(op, "Y", out);
    Ok(())
}

/// `sequence_pad`: the sequence as a batch of one, filled up to `padded_length` steps with `PadValue`, and its length.
fn sequence_pad(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (x, value) = (sequence(b, op, "X")?, b.input(op, "PadValue")?);
    let rows = b.dim(&x, 0);
    let size = op.int("padded_length", -1);
    let mut out = x.clone();
    if size >= 0 {
        let all = b.ints(&[size]);
        let missing = b.binary("Sub", &all, &rows);
        let shape = b.shape_of(&x);
        let others = b.slice(&shape, 0, 1, i64::MAX);
        let shape = b.concat(&[&missing, &others], 0);
        let value = b.cast(&value, x.dtype);
        // A value of one element fills all; else it is a row.
        let value =
            if value.rank() == Some(1) && x.rank() == Some(1) { b.squeeze(&value, &[0]) } else { value };
        let filler = b.binary("Expand", &value, &shape);
        out = b.concat(&[&x, &filler], 0);
        if let Some(first) = out.dims.as_mut().and_then(|dims| dims.first_mut()) {
            *first = Dim::Size(size);
        }
    }
    let out = b.unsqueeze(&out, &[0]);
    b.bind(op, "Out", out);
    b.bind(op, "Length", rows);
    Ok(())
}

/// `sequence_unpad`: the steps within the lengths of a batch [N, T, ...], one after another.
fn sequence_unpad(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (x, lengths) = (b.input(op, "X")?, b.input(op, "Length")?);
    let lengths = b.cast(&lengths, DType::I64);
    let lengths = b.reshape(&lengths, &[-1, 1]);
    let steps = b.dim(&x, 1);
    let steps = decode::iota(b, &steps);
    let is_within = b.binary("Less", &steps, &lengths);
    let is_within = b.reshape(&is_within, &[-1]);
    let shape = b.shape_of(&x);
    let others = b.slice(&shape, 0, 2, i64::MAX);
    let rest = b.ints(&[-1]);
    let shape = b.concat(&[&rest, &others], 0);
    let flat = b.binary("Reshape", &x, &shape);
    let out = b.node("Compress", &[&flat, &is_within], vec![("axis", Attr::Int(0))]);
    b.bind(op, "Out", out);
    Ok(())
}

/// `sequence_concat`: sequences one after another.
fn sequence_concat(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let values = b.inputs(op, "X")?;
    if values.is_empty() {
        return Err(op.malformed("lacks its inputs"));
    }
    let out = b.concat(&values.iter().collect::<Vec<_>>(), 0);
    b.bind(op, "Out", out);
    Ok(())
}

/// `sequence_slice`: `Length` steps from step `Offset`.
fn sequence_slice(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = sequence(b, op, "X")?;
    let (start, length) = (b.input(op, "Offset")?, b.input(op, "Length")?);
    let (start, length) = (b.cast(&start, DType::I64), b.cast(&length, DType::I64));
    let (start, length) = (b.reshape(&start, &[1]), b.reshape(&length, &[1]));
    let (end, axis) = (b.binary("Add", &start, &length), b.ints(&[0]));
    let out = b.node("Slice", &[&x, &start, &end, &axis], Vec::new());
    b.bind(op, "Out", out);
    Ok(())
}

/// `sequence_reshape`: the elements of a sequence in rows of `new_dim`.
fn sequence_reshape(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = sequence(b, op, "X")?;
    let size = op.int("new_dim", 0);
    if size <= 0 {
        return Err(op.malformed("has rows without elements"));
    }
    let out = b.reshape(&x, &[-1, size]);
    b.bind(op, "Out", out);
    Ok(())
}

/// `sequence_enumerate`: for each step its label and those after it, `win_size` in number; `pad_value` beyond the end.
fn sequence_enumerate(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = sequence(b, op, "X")?;
    let count = op.int("win_size", 1);
    check_window(op, 0, count)?;
    let dtype = x.dtype;
    let labels = b.cast(&x, DType::I64);
    let labels = b.reshape(&labels, &[-1, 1]);
    let filler = b.int(op.int("pad_value", 0));
    let copies = shifted(b, &labels, 0, (0, count), &filler)?;
    let out = b.concat(&copies.iter().collect::<Vec<_>>(), 1);
    let out = b.cast(&out, dtype);
    b.bind(op, "Out", out);
    Ok(())
}

/// `sequence_erase`: the steps whose labels are not among `tokens`.
fn sequence_erase(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = sequence(b, op, "X")?;
    let tokens = op.ints("tokens").unwrap_or_default();
    let Some(_) = tokens.first() else {
        let out = b.identity(&x);
        b.bind(op, "Out", out);
        return Ok(());
    };
    let labels = b.cast(&x, DType::I64);
    let labels = b.reshape(&labels, &[-1, 1]);
    let tokens = b.ints(&tokens);
    let is_token = b.binary("Equal", &labels, &tokens);
    let count = b.cast(&is_token, DType::I64);
    let count = b.reduce("ReduceSum", &count, &[1], false);
    let zero = b.int(0);
    let is_kept = b.binary("Equal", &count, &zero);
    let out = b.node("Compress", &[&x, &is_kept], vec![("axis", Attr::Int(0))]);
    b.bind(op, "Out", out);
    Ok(())
}

/// `row_conv`: sum of each step and the steps after it, each multiplied by a row of the filter. The steps are those of a sequence
/// [T, D], or of a batch [N, T, D].
fn row_conv(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (x, filter) = (sequence(b, op, "X")?, b.input(op, "Filter")?);
    let rank = b.rank(op, &x)?;
    let count = filter.size(0).unwrap_or(0);
    check_window(op, 0, count)?;
    if rank < 2 {
        return Err(op.malformed("needs rows"));
    }
    let zero = b.scalar(0.0, x.dtype);
    let copies = shifted(b, &x, rank - 2, (0, count), &zero)?;
    let mut sum: Option<Value> = None;
    for (place, copy) in (0..).zip(&copies) {
        let factors = b.slice(&filter, 0, place, place + 1);
        let term = b.binary("Mul", copy, &factors);
        sum = Some(match sum {
            Some(sum) => b.binary("Add", &sum, &term),
            None => term,
        });
    }
    b.bind(op, "Out", sum.unwrap_or(x));
    Ok(())
}

/// `im2sequence`: the patches of an image as the steps of a sequence, row by row: each [C * height * width].
fn im2sequence(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    if !op.input("Y").is_empty() {
        return Err(op.refuse("sizes of images as an input"));
    }
    let pair = |name: &str, default: &[i64], count: usize| {
        let values = op.ints(name).unwrap_or_else(|| default.to_vec());
        if values.len() == count { Ok(values) } else { Err(op.malformed(format_args!("has a bad {name}"))) }
    };
    let kernels = pair("kernels", &[], 2)?;
    let (strides, pads) = (pair("strides", &[1, 1], 2)?, pair("paddings", &[0, 0, 0, 0], 4)?);
    let channels = known_sizes(op, &x, 1)?;
    let (height, width) = (kernels[0], kernels[1]);
    let size = channels.checked_mul(height).and_then(|size| size.checked_mul(width));
    let size = size.filter(|size| (1..=1 << 11).contains(size) && height > 0 && width > 0);
    let Some(size) = size else { return Err(op.refuse("patches of more than 2048 elements")) };
    if x.dtype != DType::F32 {
        return Err(op.refuse("another dtype than 32-bit floats"));
    }
    // A convolution that copies: output channel n is element n of the patch.
    let side = usize::try_from(size).unwrap_or(0);
    let mut eye = vec![0.0; side * side];
    eye.iter_mut().step_by(side + 1).for_each(|element| *element = 1.0);
    let shape = [size, channels, height, width];
    let kernel = Value::of(Constant::of_floats(&eye, DType::F32, &shape));
    let attributes = vec![
        ("kernel_shape", Attr::Ints(kernels)),
        ("strides", Attr::Ints(strides)),
        ("pads", Attr::Ints(pads)),
    ];
    let patches = b.node("Conv", &[&x, &kernel], attributes);
    let patches = b.transpose(&patches, &[0, 2, 3, 1]);
    let out = b.reshape(&patches, &[-1, size]);
    b.bind(op, "Out", out);
    Ok(())
}

/// Returns a size that must be known.
fn known_sizes(op: &Op<'_>, x: &Value, axis: usize) -> Result<i64> {
    x.size(axis).filter(|size| *size > 0).ok_or_else(|| op.refuse("an unknown size of its input"))
}
