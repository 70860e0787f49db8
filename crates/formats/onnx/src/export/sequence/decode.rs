//! Decoding of sequences of scores or labels: Viterbi, CTC, beams.

use super::super::builder::{Builder, Value};
use super::super::operator::Op;
use super::{count_of, scan};
use crate::model::Attr;
use weighbridge_core::error::Result;
use weighbridge_core::tensor::DType;

/// Scores of tags and of the steps between them.
struct Scores {
    /// Scores of the tags: [T, N, D].
    emissions: Value,
    /// Scores of a tag after a tag: [D, D], the earlier first.
    transitions: Value,
    /// Scores of the first tag: [D].
    first: Option<Value>,
    /// Scores of the last tag: [D].
    last: Option<Value>,
    /// Numbers of steps: [N, 1].
    lengths: Option<Value>,
}

/// Finds the best tags. Returns their score [N] and the tags [T, N, 1]; tags beyond the length repeat the last.
fn viterbi(b: &mut Builder<'_>, scores: &Scores) -> Result<(Value, Value)> {
    let shape = b.shape_of(&scores.emissions);
    let shape = b.slice(&shape, 0, 1, 3);
    let dtype = scores.emissions.dtype;
    let mut zeros = b.filled(&shape, 0.0, dtype);
    zeros.dims = scores.emissions.dims.as_ref().map(|dims| dims[1..].to_vec());
    let tags = b.dim(&scores.transitions, 0);
    let tags = iota(b, &tags);
    let transitions = b.unsqueeze(&scores.transitions, &[0]);
    let (start, zero, one) = (b.int(0), b.scalar(0.0, dtype), b.int(1));
    let forward =
        scan(b, &[zeros, start.clone()], std::slice::from_ref(&scores.emissions), false, |b, values| {
            let [alpha, step, x] = values else { return Ok(Vec::new()) };
            let all = b.unsqueeze(alpha, &[2]);
            let all = b.binary("Add", &all, &transitions);
            let best = b.reduce("ReduceMax", &all, &[1], false);
            let from = b.node("ArgMax", &[&all], vec![("axis", Attr::Int(1)), ("keepdims", Attr::Int(0))]);
            let is_first = b.binary("Equal", step, &start);
            let before =
                b.node("Where", &[&is_first, scores.first.as_ref().unwrap_or(&zero), &best], Vec::new());
            let mut next = b.binary("Add", &before, x);
            let mut from = from;
            if let Some(lengths) = &scores.lengths {
                let is_live = b.binary("Less", step, lengths);
                next = b.node("Where", &[&is_live, &next, alpha], Vec::new());
                from = b.node("Where", &[&is_live, &from, &tags], Vec::new());
            }
            let step = b.binary("Add", step, &one);
            Ok(vec![next, step, from])
        })?;
    let [alpha, _, from] = &forward[..] else { return Ok((Value::none(), Value::none())) };
    let ends = match &scores.last {
        Some(last) => b.binary("Add", alpha, last),
        None => alpha.clone(),
    };
    let score = b.reduce("ReduceMax", &ends, &[1], false);
    let tag = b.node("ArgMax", &[&ends], vec![("axis", Attr::Int(1)), ("keepdims", Attr::Int(1))]);
    let backward = scan(b, &[tag], std::slice::from_ref(from), true, |b, values| {
        let [tag, from] = values else { return Ok(Vec::new()) };
        let before = b.node("GatherElements", &[from, tag], vec![("axis", Attr::Int(1))]);
        Ok(vec![before, tag.clone()])
    })?;
    Ok((score, backward.into_iter().nth(1).unwrap_or_else(Value::none)))
}

/// Returns 0, 1, ... up to a count, which is a vector of one element.
pub(super) fn iota(b: &mut Builder<'_>, count: &Value) -> Value {
    let count = b.squeeze(count, &[0]);
    let (start, step) = (b.int(0), b.int(1));
    b.node("Range", &[&start, &count, &step], Vec::new())
}

/// `crf_decoding`: best tags of one sequence [T, D], or of a batch [N, T, D] with `Length`; tags beyond a length are 0. The first two
/// rows of `Transition` are the scores of the first and the last tag. With `Label` the result is 1 for a tag equal to its label, else 0.
pub(super) fn crf_decoding(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (x, transition) = (b.input(op, "Emission")?, b.input(op, "Transition")?);
    let lengths = b.optional(op, "Length")?;
    let (first, last) = (b.slice(&transition, 0, 0, 1), b.slice(&transition, 0, 1, 2));
    let (first, last) = (b.squeeze(&first, &[0]), b.squeeze(&last, &[0]));
    let transitions = b.slice(&transition, 0, 2, i64::MAX);
    let is_batch = lengths.is_some();
    if b.rank(op, &x)? != if is_batch { 3 } else { 2 } {
        return Err(op.refuse("scores of another number of dimensions"));
    }
    let emissions = if is_batch { b.transpose(&x, &[1, 0, 2]) } else { b.unsqueeze(&x, &[1]) };
    let lengths = lengths.map(|lengths| {
        let lengths = b.cast(&lengths, DType::I64);
        b.reshape(&lengths, &[-1, 1])
    });
    let scores = Scores { emissions, transitions, first: Some(first), last: Some(last), lengths };
    let (_, path) = viterbi(b, &scores)?;
    let mut path = b.squeeze(&path, &[2]);
    if let Some(lengths) = &scores.lengths {
        path = b.transpose(&path, &[1, 0]);
        path = masked(b, &path, lengths);
    }
    if let Some(label) = b.optional(op, "Label")? {
        let label = b.cast(&label, DType::I64);
        let shape = b.shape_of(&path);
        let label = b.binary("Reshape", &label, &shape);
        let equal = b.binary("Equal", &path, &label);
        path = b.cast(&equal, DType::I64);
        if let Some(lengths) = &scores.lengths {
            path = masked(b, &path, lengths);
        }
    }
    b.bind(op, "ViterbiPath", path);
    Ok(())
}

/// Sets elements of [N, T] beyond the lengths [N, 1] to 0.
fn masked(b: &mut Builder<'_>, path: &Value, lengths: &Value) -> Value {
    let steps = b.dim(path, 1);
    let steps = iota(b, &steps);
    let is_live = b.binary("Less", &steps, lengths);
    let zero = b.int(0);
    b.node("Where", &[&is_live, path, &zero], Vec::new())
}

/// `viterbi_decode`: best tags of a batch [N, T, D] with lengths, and their scores. With `include_bos_eos_tag`, the last row of
/// `Transition` holds the scores of the first tag, and the row before those of the last. The tags have as many steps as the longest
/// sequence.
pub(super) fn viterbi_decode(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (x, transitions) = (b.input(op, "Input")?, b.input(op, "Transition")?);
    let lengths = b.input(op, "Length")?;
    let lengths = b.cast(&lengths, DType::I64);
    let rows = op.bool("include_bos_eos_tag", true).then(|| {
        [(-1, i64::MAX), (-2, -1)].map(|(start, end)| {
            let row = b.slice(&transitions, 0, start, end);
            b.squeeze(&row, &[0])
        })
    });
    let (first, last) = rows.map_or((None, None), |[first, last]| (Some(first), Some(last)));
    let column = b.reshape(&lengths, &[-1, 1]);
    let emissions = b.transpose(&x, &[1, 0, 2]);
    let (score, path) =
        viterbi(b, &Scores { emissions, transitions, first, last, lengths: Some(column.clone()) })?;
    let path = b.squeeze(&path, &[2]);
    let path = b.transpose(&path, &[1, 0]);
    let path = masked(b, &path, &column);
    let longest = b.reduce("ReduceMax", &lengths, &[0], true);
    let (start, axis) = (b.ints(&[0]), b.ints(&[1]));
    let path = b.node("Slice", &[&path, &start, &longest, &axis], Vec::new());
    b.bind(op, "Scores", score);
    b.bind(op, "Path", path);
    Ok(())
}

/// `gather_tree`: beams [T, N, K] traced back from the last step by the parents of each step.
pub(super) fn gather_tree(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (ids, parents) = (b.input(op, "Ids")?, b.input(op, "Parents")?);
    if b.rank(op, &ids)? != 3 {
        return Err(op.malformed("needs three dimensions"));
    }
    let shape = b.shape_of(&ids);
    let shape = b.slice(&shape, 0, 1, 3);
    let beams = b.dim(&ids, 2);
    let beams = iota(b, &beams);
    let mut beams = b.binary("Expand", &beams, &shape);
    beams.dims = ids.dims.as_ref().map(|dims| dims[1..].to_vec());
    let sources = b.cast(&parents, DType::I64);
    let results = scan(b, &[beams], &[ids.clone(), sources], true, |b, values| {
        let [beam, ids, parents] = values else { return Ok(Vec::new()) };
        let id = b.node("GatherElements", &[ids, beam], vec![("axis", Attr::Int(1))]);
        let parent = b.node("GatherElements", &[parents, beam], vec![("axis", Attr::Int(1))]);
        Ok(vec![parent, id])
    })?;
    let out = results.into_iter().nth(1).unwrap_or_else(Value::none);
    b.bind(op, "Out", out);
    Ok(())
}

/// `ctc_align`: removes blanks and, with `merge_repeated`, repeated labels. One sequence [T, 1] becomes shorter; one without labels
/// becomes a single -1. A batch [N, T] with `InputLength` is filled with `padding_value`.
pub(super) fn ctc_align(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "Input")?;
    let dtype = x.dtype;
    let labels = b.cast(&x, DType::I64);
    let lengths = b.optional(op, "InputLength")?;
    let blank = b.int(op.int("blank", 0));
    let rank = b.rank(op, &x)?;
    if rank != 2 {
        return Err(op.refuse("labels of another number of dimensions than 2"));
    }
    let labels = if lengths.is_some() { labels } else { b.transpose(&labels, &[1, 0]) };
    let is_blank = b.binary("Equal", &labels, &blank);
    let mut is_kept = b.unary("Not", &is_blank);
    if op.bool("merge_repeated", true) {
        let before = b.slice(&labels, 1, 0, -1);
        let minus = b.int(-1);
        let pads = b.ints(&[0, 1, 0, 0]);
        let before = b.node("Pad", &[&before, &pads, &minus], Vec::new());
        let is_same = b.binary("Equal", &labels, &before);
        let is_new = b.unary("Not", &is_same);
        is_kept = b.binary("And", &is_kept, &is_new);
    }
    let Some(lengths) = lengths else {
        // A row for a sequence without labels.
        let (zero, minus) = (b.ints(&[0]), b.ints(&[-1]));
        let count = b.cast(&is_kept, DType::I64);
        let count = b.reduce("ReduceSum", &count, &[1], false);
        let is_empty = b.binary("Equal", &count, &zero);
        let flat = b.reshape(&is_kept, &[-1]);
        let is_kept = b.concat(&[&flat, &is_empty], 0);
        let flat = b.reshape(&labels, &[-1]);
        let all = b.concat(&[&flat, &minus], 0);
        let out = b.node("Compress", &[&all, &is_kept], vec![("axis", Attr::Int(0))]);
        let out = b.unsqueeze(&out, &[1]);
        let out = b.cast(&out, dtype);
        b.bind(op, "Output", out);
        return Ok(());
    };
    let lengths = b.cast(&lengths, DType::I64);
    let lengths = b.reshape(&lengths, &[-1, 1]);
    let size = b.dim(&labels, 1);
    let steps = iota(b, &size);
    let is_live = b.binary("Less", &steps, &lengths);
    is_kept = b.binary("And", &is_kept, &is_live);
    // The place of a label is the number of labels before; other elements go to a last column, which is cut off.
    let ones = b.cast(&is_kept, DType::I64);
    let axis = b.int(1);
    let places = b.node("CumSum", &[&ones, &axis], vec![("exclusive", Attr::Int(1))]);
    let places = b.node("Where", &[&is_kept, &places, &size], Vec::new());
    let rows = b.dim(&labels, 0);
    let one = b.ints(&[1]);
    let wide = b.binary("Add", &size, &one);
    let shape = b.concat(&[&rows, &wide], 0);
    #[allow(clippy::cast_precision_loss)]
    let filler = b.filled(&shape, op.int("padding_value", 0) as f64, DType::I64);
    let out = b.node("ScatterElements", &[&filler, &places, &labels], vec![("axis", Attr::Int(1))]);
    let out = b.slice(&out, 1, 0, -1);
    let out = b.cast(&out, dtype);
    b.bind(op, "Output", out);
    let count = b.reduce("ReduceSum", &ones, &[1], true);
    let count = b.cast(&count, dtype);
    b.bind(op, "OutputLength", count);
    Ok(())
}

/// `sequence_mask`: which places of a row of `maxlen` are within each length; a negative `maxlen` is the longest length.
pub(super) fn sequence_mask(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let lengths = b.cast(&x, DType::I64);
    let mut count = b.ints(&[op.int("maxlen", -1)]);
    if let Some(given) = b.optional(op, "MaxLenTensor")? {
        let given = b.cast(&given, DType::I64);
        count = b.reshape(&given, &[1]);
    }
    let known = b.known_ints(&count)?.and_then(|count| count.first().copied());
    if known.is_none_or(|count| count < 0) {
        let flat = b.reshape(&lengths, &[-1]);
        let longest = b.reduce("ReduceMax", &flat, &[0], true);
        count = match known {
            Some(_) => longest,
            None => {
                let zero = b.ints(&[0]);
                let is_open = b.binary("Less", &count, &zero);
                b.node("Where", &[&is_open, &longest, &count], Vec::new())
            }
        };
    }
    let places = iota(b, &count);
    let lengths = b.unsqueeze(&lengths, &[-1]);
    let is_within = b.binary("Less", &places, &lengths);
    let dtype = op.dtype("out_dtype").unwrap_or(DType::I64);
    let out = b.cast(&is_within, dtype);
    b.bind(op, "Y", out);
    Ok(())
}

/// `edit_distance`: number of insertions, deletions and substitutions between a sequence and its reference, divided by the length of
/// the reference with `normalized`; and the number of sequences. Both are one sequence [T, 1], or batches [N, T] with lengths.
pub(super) fn edit_distance(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (hyps, refs) = (b.input(op, "Hyps")?, b.input(op, "Refs")?);
    let given = (b.optional(op, "HypsLength")?, b.optional(op, "RefsLength")?);
    let zero = b.int(0);
    let mut sides = Vec::new();
    for (value, length) in [(hyps, given.0), (refs, given.1)] {
        if b.rank(op, &value)? != 2 {
            return Err(op.refuse("labels of another number of dimensions than 2"));
        }
        let value = b.cast(&value, DType::I64);
        // Columns are sequences: [T, N].
        sides.push(match length {
            Some(length) => {
                let length = b.cast(&length, DType::I64);
                (b.transpose(&value, &[1, 0]), b.reshape(&length, &[-1, 1]))
            }
            None => {
                let length = count_of(b, &value);
                (value, b.reshape(&length, &[-1, 1]))
            }
        });
    }
    let [(hyps, hyp_length), (refs, ref_length)] = &sides[..] else { return Ok(()) };
    // Row i of the table: distances of the first i labels to each beginning of the reference: [N, R + 1].
    let size = b.dim(refs, 0);
    let one = b.ints(&[1]);
    let wide = b.binary("Add", &size, &one);
    let places = iota(b, &wide);
    let count = b.dim(refs, 1);
    let shape = b.concat(&[&count, &wide], 0);
    let row = b.binary("Expand", &places, &shape);
    let across = b.transpose(refs, &[1, 0]);
    let (later, earlier) = (b.unsqueeze(&places, &[1]), b.unsqueeze(&places, &[0]));
    let is_later = b.binary("Less", &later, &earlier);
    let far = b.int(1 << 40);
    let step_one = b.int(1);
    let mut initial = row;
    initial.dims = None;
    let results = scan(b, &[initial, zero.clone()], std::slice::from_ref(hyps), false, |b, values| {
        let [row, step, label] = values else { return Ok(Vec::new()) };
        let deleted = b.binary("Add", row, &step_one);
        let label = b.unsqueeze(label, &[1]);
        let is_same = b.binary("Equal", &label, &across);
        let is_other = b.unary("Not", &is_same);
        let cost = b.cast(&is_other, DType::I64);
        let before = b.slice(row, 1, 0, -1);
        let replaced = b.binary("Add", &before, &cost);
        let pads = b.ints(&[0, 1, 0, 0]);
        let replaced = b.node("Pad", &[&replaced, &pads, &far], Vec::new());
        let best = b.binary("Min", &deleted, &replaced);
        // Insertions: least over earlier places k of best[k] + (j - k).
        let shifted = b.binary("Sub", &best, &places);
        let shifted = b.unsqueeze(&shifted, &[1]);
        let all = b.node("Where", &[&is_later, &far, &shifted], Vec::new());
        let least = b.reduce("ReduceMin", &all, &[2], false);
        let next = b.binary("Add", &least, &places);
        let is_live = b.binary("Less", step, hyp_length);
        let next = b.node("Where", &[&is_live, &next, row], Vec::new());
        let step = b.binary("Add", step, &step_one);
        Ok(vec![next, step])
    })?;
    let row = results.into_iter().next().unwrap_or_else(Value::none);
    let distance = b.node("GatherElements", &[&row, ref_length], vec![("axis", Attr::Int(1))]);
    let mut distance = b.cast(&distance, DType::F32);
    if op.bool("normalized", false) {
        let length = b.cast(ref_length, DType::F32);
        distance = b.binary("Div", &distance, &length);
    }
    let distance = b.reshape(&distance, &[-1, 1]);
    b.bind(op, "Out", distance);
    b.bind(op, "SequenceNum", count);
    Ok(())
}
