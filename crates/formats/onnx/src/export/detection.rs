//! Selection of boxes: suppression of overlapping ones, and decoding of those of YOLO.

use super::builder::{Builder, Value};
use super::operator::{Op, Row, row};
use crate::constant::Constant;
use crate::model::Attr;
use weighbridge_core::error::Result;
use weighbridge_core::tensor::DType;

/// Operators of this family.
#[rustfmt::skip]
pub(super) const ROWS: &[Row] = &[
    row("nms", "nms", "Boxes", "KeepBoxesIdxs", nms).renamed("threshold=iou_threshold"),
    row("multiclass_nms multiclass_nms2 multiclass_nms3", "multiclass_nms3", "BBoxes Scores RoisNum", "Out Index NmsRoisNum", multiclass_nms),
    row("matrix_nms", "matrix_nms", "BBoxes Scores", "Out Index RoisNum", matrix_nms),
    row("yolo_box", "yolo_box", "X ImgSize", "Boxes Scores", yolo_box),
];

/// Score of boxes that are not candidates.
const LOWEST: f64 = f32::MIN as f64;

// ---- short forms

/// Returns a value plus a number.
pub(super) fn plus(b: &mut Builder<'_>, x: &Value, number: f64) -> Value {
    let number = b.scalar(number, x.dtype);
    b.binary("Add", x, &number)
}

/// Returns a value times a number.
pub(super) fn times(b: &mut Builder<'_>, x: &Value, number: f64) -> Value {
    let number = b.scalar(number, x.dtype);
    b.binary("Mul", x, &number)
}

/// Returns 0, 1, 2, …: as many as `count`, of rank 1, states.
pub(super) fn range(b: &mut Builder<'_>, count: &Value) -> Value {
    let (zero, one) = (b.int(0), b.int(1));
    let count = b.reshape(count, &[]);
    b.node("Range", &[&zero, &count, &one], Vec::new())
}

/// Returns one column of the last axis, which is removed.
pub(super) fn column(b: &mut Builder<'_>, x: &Value, place: i64) -> Value {
    let place = b.int(place);
    b.gather(x, &place, -1)
}

/// Returns columns as the last axis.
pub(super) fn stack(b: &mut Builder<'_>, columns: &[Value]) -> Value {
    let columns: Vec<Value> = columns.iter().map(|column| b.unsqueeze(column, &[-1])).collect();
    let columns: Vec<&Value> = columns.iter().collect();
    b.concat(&columns, -1)
}

/// Returns the values and the places of the largest (or least) elements along the last axis, in order.
pub(super) fn top(b: &mut Builder<'_>, x: &Value, count: &Value, is_largest: bool) -> (Value, Value) {
    let attributes = vec![("axis", Attr::Int(-1)), ("largest", Attr::Int(i64::from(is_largest)))];
    let mut results = b.nodes("TopK", &[x, count], attributes, 2);
    let places = results.pop().unwrap_or_else(Value::none);
    (results.pop().unwrap_or_else(Value::none), places)
}

/// Returns the elements of the first axis for which a mask is true.
fn compress(b: &mut Builder<'_>, x: &Value, mask: &Value) -> Value {
    b.node("Compress", &[x, mask], vec![("axis", Attr::Int(0))])
}

/// Returns how many elements have each value from 0 up to `count`.
pub(super) fn counts(b: &mut Builder<'_>, x: &Value, count: &Value) -> Value {
    let all = range(b, count);
    let all = b.unsqueeze(&all, &[1]);
    let row = b.unsqueeze(x, &[0]);
    let equal = b.binary("Equal", &all, &row);
    let equal = b.cast(&equal, DType::I64);
    b.reduce("ReduceSum", &equal, &[1], false)
}

// ---- suppression

/// Adds a `NonMaxSuppression`: rows of image, class and box, by image, class and falling score.
fn suppress(b: &mut Builder<'_>, boxes: &Value, scores: &Value, overlap: f64, least: Option<f64>) -> Value {
    let count = b.dim(boxes, 1);
    let (boxes, scores) = (b.cast(boxes, DType::F32), b.cast(scores, DType::F32));
    let overlap = Value::of(Constant::filled(overlap, DType::F32, &[1]));
    let least = match least {
        Some(least) => Value::of(Constant::filled(least, DType::F32, &[1])),
        None => Value::none(),
    };
    b.node("NonMaxSuppression", &[&boxes, &scores, &count, &overlap, &least], Vec::new())
}

/// Returns a threshold of overlaps, which ONNX has from 0 to 1.
fn overlap_threshold(op: &Op<'_>, name: &str, default: f64) -> Result<f64> {
    match op.float(name, default) {
        threshold if (0.0..=1.0).contains(&threshold) => Ok(threshold),
        other => Err(op.refuse(format_args!("an overlap threshold of {other} is not supported"))),
    }
}

/// `nms`: places of the boxes that no kept box before them overlaps by more than the threshold.
fn nms(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let boxes = b.input(op, "Boxes")?;
    let overlap = overlap_threshold(op, "iou_threshold", 1.0)?;
    // Earlier boxes have higher scores.
    let count = b.dim(&boxes, 0);
    let places = range(b, &count);
    let scores = b.unary("Neg", &places);
    let scores = b.unsqueeze(&scores, &[0, 1]);
    let boxes = b.unsqueeze(&boxes, &[0]);
    let chosen = suppress(b, &boxes, &scores, overlap, None);
    let y = column(b, &chosen, 2);
    b.bind(op, "KeepBoxesIdxs", y);
    Ok(())
}

/// Returns scores (images, classes, boxes) without those of the background class.
fn without_background(b: &mut Builder<'_>, op: &Op<'_>, scores: &Value) -> Value {
    let background = op.int("background_label", 0);
    let count = scores.size(1);
    if background < 0 || count.is_some_and(|count| background >= count) {
        return scores.clone();
    }
    let classes = b.dim(scores, 1);
    let classes = range(b, &classes);
    let own = b.int(background);
    let is_background = b.binary("Equal", &classes, &own);
    let is_background = b.unsqueeze(&is_background, &[1]);
    let lowest = b.scalar(LOWEST, scores.dtype);
    b.node("Where", &[&is_background, &lowest, scores], Vec::new())
}

/// Returns the least of a limit and a size, of rank 1; the size if the limit is negative.
fn limited(b: &mut Builder<'_>, limit: i64, size: &Value) -> Value {
    if limit < 0 {
        return size.clone();
    }
    let limit = b.ints(&[limit]);
    b.binary("Min", &limit, size)
}

/// `multiclass_nms`, also 2 and 3: for each class, the boxes above the score threshold that no better box overlaps by more than
/// the overlap threshold, among the best `nms_top_k`; of all classes of an image, the best `keep_top_k`. Rows of class, score
/// and box, by image, class and falling score.
fn multiclass_nms(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (boxes, scores) = (b.input(op, "BBoxes")?, b.input(op, "Scores")?);
    if b.rank(op, &scores)? != 3 || b.rank(op, &boxes)? != 3 || !op.input("RoisNum").is_empty() {
        return Err(op.refuse("boxes of each class (scores with two dimensions) are not supported"));
    }
    if boxes.size(2).is_some_and(|size| size != 4) {
        return Err(op.refuse("polygons are not supported"));
    }
    if op.float("nms_eta", 1.0) < 1.0 {
        return Err(op.refuse("an adaptive overlap threshold (nms_eta) is not supported"));
    }
    let overlap = overlap_threshold(op, "nms_threshold", 0.3)?;
    let mut candidates = b.cast(&scores, DType::F32);
    candidates = without_background(b, op, &candidates);
    let first = op.int("nms_top_k", -1);
    if first > -1 && scores.size(2).is_none_or(|count| count > first) {
        let count = b.dim(&scores, 2);
        let count = limited(b, first, &count);
        let (best, places) = top(b, &candidates, &count, true);
        let shape = b.shape_of(&candidates);
        let others = b.filled(&shape, LOWEST, DType::F32);
        candidates = b.node("ScatterElements", &[&others, &places, &best], vec![("axis", Attr::Int(2))]);
    }
    let corners = if op.bool("normalized", true) {
        boxes.clone()
    } else {
        // Pixels at both edges count.
        let more = Value::of(Constant::of_floats(&[0.0, 0.0, 1.0, 1.0], boxes.dtype, &[4]));
        b.binary("Add", &boxes, &more)
    };
    let least = op.float("score_threshold", 0.0);
    let chosen = suppress(b, &corners, &candidates, overlap, Some(least));
    let chosen = best_of_images(b, op, &chosen, &scores);
    let kept = b.node("GatherND", &[&scores, &chosen], Vec::new());
    let kept = b.unsqueeze(&kept, &[1]);
    let pairs = b.ints(&[0, 2]);
    let pairs = b.gather(&chosen, &pairs, 1);
    let rows = b.node("GatherND", &[&boxes, &pairs], Vec::new());
    let class = b.slice(&chosen, 1, 1, 2);
    let class = b.cast(&class, boxes.dtype);
    let mut y = b.concat(&[&class, &kept, &rows], 1);
    if op.kind == "multiclass_nms" {
        y = or_nothing(b, &y)?;
    }
    let (image, number) = (b.slice(&chosen, 1, 0, 1), b.slice(&chosen, 1, 2, 3));
    let count = b.dim(&boxes, 1);
    let start = b.binary("Mul", &image, &count);
    let index = b.binary("Add", &start, &number);
    let index = b.cast(&index, b.declared_dtype(op, "Index").unwrap_or(DType::I32));
    let images = b.dim(&boxes, 0);
    let image = b.squeeze(&image, &[1]);
    let numbers = counts(b, &image, &images);
    let numbers = b.cast(&numbers, DType::I32);
    b.bind(op, "Out", y);
    b.bind(op, "Index", index);
    b.bind(op, "NmsRoisNum", numbers);
    Ok(())
}

/// Returns the rows, or one row with -1 if there are none.
fn or_nothing(b: &mut Builder<'_>, rows: &Value) -> Result<Value> {
    let count = b.dim(rows, 0);
    let count = b.squeeze(&count, &[0]);
    let zero = b.int(0);
    let is_empty = b.binary("Equal", &count, &zero);
    let nothing = Value::of(Constant::filled(-1.0, rows.dtype, &[1, 1]));
    let (empty, _) = b.body(&[], |_| Ok(vec![nothing]))?;
    let given = rows.clone();
    let (full, _) = b.body(&[], |_| Ok(vec![given]))?;
    let attributes =
        vec![("then_branch", Attr::Graph(Box::new(empty))), ("else_branch", Attr::Graph(Box::new(full)))];
    let result = super::infer::Inferred::open(rows.dtype, 2);
    let mut results = b.typed("If", &[&is_empty], attributes, vec![result]);
    Ok(results.pop().unwrap_or_else(Value::none))
}

/// Returns the rows (image, class, box) with the best `keep_top_k` scores of each image, in their order.
fn best_of_images(b: &mut Builder<'_>, op: &Op<'_>, chosen: &Value, scores: &Value) -> Value {
    let keep = op.int("keep_top_k", -1);
    if keep < 0 {
        return chosen.clone();
    }
    let kept = b.node("GatherND", &[scores, chosen], Vec::new());
    let kept = b.cast(&kept, DType::F32);
    let count = b.dim(&kept, 0);
    let best = if scores.size(0) == Some(1) {
        let limit = limited(b, keep, &count);
        top(b, &kept, &limit, true).1
    } else {
        // Sorted by score, then by image: the sort key has the rank by score in its lower part.
        let (_, order) = top(b, &kept, &count, true);
        let image = b.slice(chosen, 1, 0, 1);
        let image = b.squeeze(&image, &[1]);
        let image_by_score = b.gather(&image, &order, 0);
        let ranks = range(b, &count);
        let key = b.binary("Mul", &image_by_score, &count);
        let key = b.binary("Add", &key, &ranks);
        let (_, sorted) = top(b, &key, &count, false);
        let order = b.gather(&order, &sorted, 0);
        let image_sorted = b.gather(&image, &order, 0);
        let images = b.dim(scores, 0);
        let numbers = counts(b, &image, &images);
        let axis = b.int(0);
        let starts = b.node("CumSum", &[&numbers, &axis], vec![("exclusive", Attr::Int(1))]);
        let start = b.gather(&starts, &image_sorted, 0);
        let rank = b.binary("Sub", &ranks, &start);
        let keep = b.int(keep);
        let is_kept = b.binary("Less", &rank, &keep);
        compress(b, &order, &is_kept)
    };
    let limit = b.dim(&best, 0);
    let (order, _) = top(b, &best, &limit, false);
    b.gather(chosen, &order, 0)
}

/// Returns the overlaps of boxes: the shared area as a part of the united one, for each pair of the last axis but one of `x`
/// and of `y`.
pub(super) fn overlaps(b: &mut Builder<'_>, x: &Value, y: &Value, normalized: bool) -> Value {
    let more = if normalized { 0.0 } else { 1.0 };
    let zero = b.scalar(0.0, x.dtype);
    let mut sides = Vec::new();
    let mut areas: Vec<(Value, Value)> = Vec::new();
    let mut is_apart = None;
    for place in 0..2 {
        let mut corners = Vec::new();
        for (value, axis) in [(x, -1), (y, -2)] {
            let (low, high) = (column(b, value, place), column(b, value, place + 2));
            let (low, high) = (b.unsqueeze(&low, &[axis]), b.unsqueeze(&high, &[axis]));
            let length = b.binary("Sub", &high, &low);
            let is_bad = b.binary("Less", &length, &zero);
            let length = plus(b, &length, more);
            // An inverted box has no area.
            let length = b.node("Where", &[&is_bad, &zero, &length], Vec::new());
            corners.push((low, high, length));
        }
        let [(low, high, length), (other_low, other_high, other_length)] = &corners[..] else { break };
        let (begin, end) = (b.binary("Max", low, other_low), b.binary("Min", high, other_high));
        let side = b.binary("Sub", &end, &begin);
        for (one, two) in [(low, other_high), (other_low, high)] {
            let own = b.binary("Greater", one, two);
            is_apart = Some(match is_apart {
                Some(others) => b.binary("Or", &others, &own),
                None => own,
            });
        }
        sides.push(plus(b, &side, more));
        areas.push((length.clone(), other_length.clone()));
    }
    let ([width, height], [(w, other_w), (h, other_h)], Some(is_apart)) = (&sides[..], &areas[..], is_apart)
    else {
        return Value::none();
    };
    let shared = b.binary("Mul", width, height);
    let (own, other) = (b.binary("Mul", w, h), b.binary("Mul", other_w, other_h));
    let all = b.binary("Add", &own, &other);
    let united = b.binary("Sub", &all, &shared);
    let part = b.binary("Div", &shared, &united);
    b.node("Where", &[&is_apart, &zero, &part], Vec::new())
}

/// `matrix_nms`: the score of each box is lowered by its overlaps with better boxes of its class; of all classes of an image, the
/// best `keep_top_k` above `post_threshold`, by falling score.
fn matrix_nms(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (boxes, scores) = (b.input(op, "BBoxes")?, b.input(op, "Scores")?);
    if b.rank(op, &scores)? != 3 || b.rank(op, &boxes)? != 3 || boxes.size(2).is_some_and(|size| size != 4) {
        return Err(op.refuse("these shapes of boxes are not supported"));
    }
    let (images, classes, all) = (b.dim(&scores, 0), b.dim(&scores, 1), b.dim(&scores, 2));
    let minus = b.ints(&[-1]);
    let candidates = without_background(b, op, &scores);
    let count = limited(b, op.int("nms_top_k", -1), &all);
    let (best, places) = top(b, &candidates, &count, true);
    // Boxes of the candidates: (images, classes, candidates, 4).
    let one = b.ints(&[1]);
    let shape = b.concat(&[&images, &minus, &one], 0);
    let flat = b.binary("Reshape", &places, &shape);
    let own = b.node("GatherND", &[&boxes, &flat], vec![("batch_dims", Attr::Int(1))]);
    let four = b.ints(&[4]);
    let shape = b.concat(&[&images, &classes, &count, &four], 0);
    let own = b.binary("Reshape", &own, &shape);
    let parts = overlaps(b, &own, &own, op.bool("normalized", true));
    // Row i, column j: only better boxes j < i count.
    let order = range(b, &count);
    let (below, above) = (b.unsqueeze(&order, &[1]), b.unsqueeze(&order, &[0]));
    let is_better = b.binary("Less", &above, &below);
    let (zero, one) = (b.scalar(0.0, scores.dtype), b.scalar(1.0, scores.dtype));
    let parts = b.node("Where", &[&is_better, &parts, &zero], Vec::new());
    let worst = b.reduce("ReduceMax", &parts, &[3], false);
    let worst = b.unsqueeze(&worst, &[2]);
    let decay = if op.bool("use_gaussian", false) {
        let (squares, own) = (b.binary("Mul", &worst, &worst), b.binary("Mul", &parts, &parts));
        let more = b.binary("Sub", &squares, &own);
        let more = times(b, &more, op.float("gaussian_sigma", 2.0));
        b.unary("Exp", &more)
    } else {
        let (own, others) = (b.binary("Sub", &one, &parts), b.binary("Sub", &one, &worst));
        b.binary("Div", &own, &others)
    };
    let is_nan = b.unary("IsNaN", &decay);
    let decay = b.node("Where", &[&is_nan, &one, &decay], Vec::new());
    let decay = b.node("Where", &[&is_better, &decay, &one], Vec::new());
    let decay = b.reduce("ReduceMin", &decay, &[3], false);
    let decay = b.binary("Min", &decay, &one);
    let lowered = b.binary("Mul", &decay, &best);
    let least = b.scalar(op.float("score_threshold", 0.0), scores.dtype);
    let is_candidate = b.binary("Greater", &best, &least);
    let least = b.scalar(op.float("post_threshold", 0.0), scores.dtype);
    let is_above = b.binary("Greater", &lowered, &least);
    let is_kept = b.binary("And", &is_candidate, &is_above);
    let lowest = b.scalar(LOWEST, scores.dtype);
    let lowered = b.node("Where", &[&is_kept, &lowered, &lowest], Vec::new());
    // The best of each image.
    let shape = b.concat(&[&images, &minus], 0);
    let lowered = b.binary("Reshape", &lowered, &shape);
    let places = b.binary("Reshape", &places, &shape);
    let both = b.binary("Mul", &classes, &count);
    let keep = limited(b, op.int("keep_top_k", -1), &both);
    let (final_scores, rows) = top(b, &lowered, &keep, true);
    let class = b.binary("Div", &rows, &count);
    let number = b.node("GatherElements", &[&places, &rows], vec![("axis", Attr::Int(1))]);
    let image = range(b, &images);
    let image = b.unsqueeze(&image, &[1]);
    let start = b.binary("Mul", &image, &all);
    let index = b.binary("Add", &start, &number);
    let is_kept = b.binary("Greater", &final_scores, &lowest);
    let kept_counts = b.cast(&is_kept, DType::I64);
    let kept_counts = b.reduce("ReduceSum", &kept_counts, &[1], false);
    let mask = b.reshape(&is_kept, &[-1]);
    let mut columns = Vec::new();
    for value in [&class, &final_scores, &index] {
        let value = b.reshape(value, &[-1, 1]);
        columns.push(compress(b, &value, &mask));
    }
    let [class, kept, index] = &columns[..] else { return Err(op.malformed("lacks its results")) };
    let flat = b.reshape(&boxes, &[-1, 4]);
    let numbers = b.squeeze(index, &[1]);
    let rows = b.gather(&flat, &numbers, 0);
    let class = b.cast(class, scores.dtype);
    let y = b.concat(&[&class, kept, &rows], 1);
    let index = b.cast(index, DType::I32);
    let kept_counts = b.cast(&kept_counts, DType::I32);
    b.bind(op, "Out", y);
    b.bind(op, "Index", index);
    b.bind(op, "RoisNum", kept_counts);
    Ok(())
}

// ---- YOLO

/// `yolo_box`: boxes and scores of a map (images, anchors * (5 + classes), rows, columns). The center is that of the cell plus a
/// sigmoid, the size the anchor times an exponential. Boxes whose confidence is below the threshold are zeros.
#[allow(clippy::similar_names)]
fn yolo_box(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (x, size) = (b.input(op, "X")?, b.input(op, "ImgSize")?);
    let anchors = op.ints("anchors").unwrap_or_default();
    let (count, classes) = (i64::try_from(anchors.len() / 2).unwrap_or(0), op.int("class_num", 1));
    if count == 0 || !(1..1 << 20).contains(&classes) || b.rank(op, &x)? != 4 {
        return Err(op.malformed("lacks anchors or classes"));
    }
    let dtype = x.dtype;
    let is_aware = op.bool("iou_aware", false);
    let (images, high, wide) = (b.dim(&x, 0), b.dim(&x, 2), b.dim(&x, 3));
    let (map, aware) = if is_aware {
        let aware = b.slice(&x, 1, 0, count);
        (b.slice(&x, 1, count, i64::MAX), Some(b.unary("Sigmoid", &aware)))
    } else {
        (x.clone(), None)
    };
    // (images, anchors, 5 + classes, rows, columns)
    let inner = b.ints(&[count, 5 + classes]);
    let shape = b.concat(&[&images, &inner, &high, &wide], 0);
    let map = b.binary("Reshape", &map, &shape);
    let channel = |b: &mut Builder<'_>, place: i64| {
        let place = b.int(place);
        b.gather(&map, &place, 2)
    };
    let confidence = channel(b, 4);
    let mut confidence = b.unary("Sigmoid", &confidence);
    if let Some(aware) = aware {
        let factor = op.float("iou_aware_factor", 0.5);
        let (own, other) = (b.scalar(1.0 - factor, dtype), b.scalar(factor, dtype));
        let (left, right) = (b.binary("Pow", &confidence, &own), b.binary("Pow", &aware, &other));
        confidence = b.binary("Mul", &left, &right);
    }
    let threshold = b.scalar(op.float("conf_thresh", 0.01), dtype);
    let is_low = b.binary("Less", &confidence, &threshold);
    let scale = op.float("scale_x_y", 1.0);
    let zero = b.scalar(0.0, dtype);
    let (mut lows, mut highs) = (Vec::new(), Vec::new());
    for (place, cells) in [&wide, &high].into_iter().enumerate() {
        let axis = i64::try_from(place).unwrap_or(0);
        // The image size is (rows, columns) for each image.
        let length = column(b, &size, 1 - axis);
        let length = b.cast(&length, dtype);
        let length = b.unsqueeze(&length, &[1, 2, 3]);
        let number = b.cast(cells, dtype);
        let cell = range(b, cells);
        let cell = b.cast(&cell, dtype);
        let cell = if place == 0 { cell } else { b.unsqueeze(&cell, &[1]) };
        let offset = channel(b, axis);
        let offset = b.unary("Sigmoid", &offset);
        let offset = times(b, &offset, scale);
        let offset = plus(b, &offset, -0.5 * (scale - 1.0));
        let center = b.binary("Add", &offset, &cell);
        let center = b.binary("Mul", &center, &length);
        let center = b.binary("Div", &center, &number);
        #[allow(clippy::cast_precision_loss)]
        let own: Vec<f64> =
            anchors.iter().skip(place).step_by(2).take(anchors.len() / 2).map(|a| *a as f64).collect();
        let own = Value::of(Constant::of_floats(&own, dtype, &[count, 1, 1]));
        let extent = channel(b, axis + 2);
        let extent = b.unary("Exp", &extent);
        let extent = b.binary("Mul", &extent, &own);
        let extent = b.binary("Mul", &extent, &length);
        #[allow(clippy::cast_precision_loss)]
        let input = times(b, &number, op.int("downsample_ratio", 32) as f64);
        let extent = b.binary("Div", &extent, &input);
        let half = times(b, &extent, 0.5);
        let (mut low, mut high) = (b.binary("Sub", &center, &half), b.binary("Add", &center, &half));
        if op.bool("clip_bbox", true) {
            low = b.binary("Max", &low, &zero);
            let last = plus(b, &length, -1.0);
            high = b.binary("Min", &high, &last);
        }
        lows.push(low);
        highs.push(high);
    }
    lows.append(&mut highs);
    let boxes = stack(b, &lows);
    let mask = b.unsqueeze(&is_low, &[-1]);
    let boxes = b.node("Where", &[&mask, &zero, &boxes], Vec::new());
    let tail = b.ints(&[-1, 4]);
    let shape = b.concat(&[&images, &tail], 0);
    let boxes = b.binary("Reshape", &boxes, &shape);
    let scores = b.slice(&map, 2, 5, i64::MAX);
    let scores = b.unary("Sigmoid", &scores);
    let confidence = b.unsqueeze(&confidence, &[2]);
    let scores = b.binary("Mul", &scores, &confidence);
    let mask = b.unsqueeze(&is_low, &[2]);
    let scores = b.node("Where", &[&mask, &zero, &scores], Vec::new());
    let scores = b.transpose(&scores, &[0, 1, 3, 4, 2]);
    let tail = b.ints(&[-1, classes]);
    let shape = b.concat(&[&images, &tail], 0);
    let scores = b.binary("Reshape", &scores, &shape);
    b.bind(op, "Boxes", boxes);
    b.bind(op, "Scores", scores);
    Ok(())
}
