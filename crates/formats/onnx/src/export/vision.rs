//! Regions, prior boxes and the coding of boxes.

use super::builder::{Builder, Value};
use super::detection::{column, counts, plus, range, stack, times, top};
use super::operator::{Op, Row, row};
use crate::constant::Constant;
use crate::model::Attr;
use weighbridge_core::error::Result;
use weighbridge_core::tensor::DType;

/// Operators of this family.
#[rustfmt::skip]
pub(super) const ROWS: &[Row] = &[
    row("roi_align", "roi_align", "X ROIs RoisNum", "Out", roi_align),
    row("roi_pool", "roi_pool", "X ROIs RoisNum", "Out Argmax", roi_pool),
    row("prior_box", "prior_box", "Input Image", "Boxes Variances", prior_box),
    row("density_prior_box", "", "Input Image", "Boxes Variances", density_prior_box),
    row("anchor_generator", "anchor_generator", "Input", "Anchors Variances", anchor_generator),
    row("box_coder", "box_coder", "PriorBox PriorBoxVar TargetBox", "OutputBox", box_coder),
    row("iou_similarity", "", "X Y", "Out", iou_similarity),
    row("distribute_fpn_proposals", "distribute_fpn_proposals", "FpnRois RoisNum", "MultiFpnRois MultiLevelRoIsNum RestoreIndex", distribute_fpn_proposals),
    row("collect_fpn_proposals", "collect_fpn_proposals", "MultiLevelRois MultiLevelScores MultiLevelRoIsNum", "FpnRois RoisNum", collect_fpn_proposals).renamed("post_nms_topn=post_nms_topN"),
];

/// Maximum number of prior boxes of a cell.
const MAX_PRIORS: usize = 1 << 12;
/// Maximum number of levels of a pyramid.
const MAX_LEVELS: i64 = 64;

// ---- regions

/// Returns the image of each row, from the number of rows of each image.
fn image_of_rows(b: &mut Builder<'_>, numbers: &Value, rows: &Value) -> Value {
    let numbers = b.cast(numbers, DType::I64);
    let axis = b.int(0);
    let ends = b.node("CumSum", &[&numbers, &axis], Vec::new());
    let ends = b.unsqueeze(&ends, &[0]);
    let row = range(b, rows);
    let row = b.unsqueeze(&row, &[1]);
    let is_behind = b.binary("GreaterOrEqual", &row, &ends);
    let is_behind = b.cast(&is_behind, DType::I64);
    b.reduce("ReduceSum", &is_behind, &[1], false)
}

/// Returns the image of each region: that stated by `RoisNum`, or the only image.
fn image_of_regions(b: &mut Builder<'_>, op: &Op<'_>, regions: &Value) -> Result<Value> {
    let rows = b.dim(regions, 0);
    Ok(match b.optional(op, "RoisNum")? {
        Some(numbers) => image_of_rows(b, &numbers, &rows),
        None => b.filled(&rows, 0.0, DType::I64),
    })
}

/// Returns a positive size of the output of a region.
fn output(op: &Op<'_>, name: &str) -> Result<i64> {
    match op.int(name, 1) {
        size if size > 0 => Ok(size),
        size => Err(op.malformed(format_args!("has {name} {size}"))),
    }
}

#[allow(clippy::cast_possible_truncation)] // Attributes of ONNX have 32 bits.
fn spatial_scale(op: &Op<'_>) -> (&'static str, Attr) {
    ("spatial_scale", Attr::Float(op.float("spatial_scale", 1.0) as f32))
}

/// `roi_align`: each region as a small map, averaged over samples by bilinear interpolation. `aligned` moves the region by half
/// a pixel.
fn roi_align(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (x, regions) = (b.input(op, "X")?, b.input(op, "ROIs")?);
    let images = image_of_regions(b, op, &regions)?;
    let mode = if op.bool("aligned", false) { "half_pixel" } else { "output_half_pixel" };
    let attributes = vec![
        ("coordinate_transformation_mode", Attr::Text(mode.to_owned())),
        ("mode", Attr::Text("avg".to_owned())),
        ("output_height", Attr::Int(output(op, "pooled_height")?)),
        ("output_width", Attr::Int(output(op, "pooled_width")?)),
        ("sampling_ratio", Attr::Int(op.int("sampling_ratio", -1).max(0))),
        spatial_scale(op),
    ];
    let (map, regions) = (b.cast(&x, DType::F32), b.cast(&regions, DType::F32));
    let y = b.node("RoiAlign", &[&map, &regions, &images], attributes);
    let y = b.cast(&y, x.dtype);
    b.bind(op, "Out", y);
    Ok(())
}

/// `roi_pool`: each region as a small map of maxima.
fn roi_pool(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (x, regions) = (b.input(op, "X")?, b.input(op, "ROIs")?);
    if b.is_used(op, "Argmax") {
        return Err(op.refuse("places as a result are not supported"));
    }
    let images = image_of_regions(b, op, &regions)?;
    let images = b.cast(&images, DType::F32);
    let images = b.unsqueeze(&images, &[1]);
    let (map, own) = (b.cast(&x, DType::F32), b.cast(&regions, DType::F32));
    let rows = b.concat(&[&images, &own], 1);
    let (high, wide) = (output(op, "pooled_height")?, output(op, "pooled_width")?);
    let attributes = vec![("pooled_shape", Attr::Ints(vec![high, wide])), spatial_scale(op)];
    let dim = |value: &Value, axis: usize| {
        value.size(axis).map_or(crate::model::Dim::Open, crate::model::Dim::Size)
    };
    let dims =
        vec![dim(&regions, 0), dim(&x, 1), crate::model::Dim::Size(high), crate::model::Dim::Size(wide)];
    let result = super::infer::Inferred::new(DType::F32, Some(dims));
    let mut results = b.typed("MaxRoiPool", &[&map, &rows], attributes, vec![result]);
    let y = results.pop().unwrap_or_else(Value::none);
    let y = b.cast(&y, x.dtype);
    b.bind(op, "Out", y);
    Ok(())
}

// ---- prior boxes

/// Prior box of a cell: the distance of its center from that of the cell, and half its size.
struct Prior {
    shift: [f64; 2],
    half: [f64; 2],
}

/// Axis of a grid of cells: number of cells, distance of their centers, offset of the first as a part of it, and the divisor of
/// the coordinates.
struct Grid {
    cells: Value,
    step: Value,
    offset: f64,
    divisor: Option<Value>,
}

/// Returns the boxes around the centers of the cells (rows, columns, priors, 4) and the repeated variances.
fn prior_boxes(
    b: &mut Builder<'_>,
    op: &Op<'_>,
    grids: &[Grid; 2],
    priors: &[Prior],
    dtype: DType,
) -> Result<(Value, Value)> {
    if priors.is_empty() || priors.len() > MAX_PRIORS {
        return Err(op.malformed(format_args!("has {} prior boxes", priors.len())));
    }
    let count = i64::try_from(priors.len()).unwrap_or(0);
    let number = b.ints(&[count]);
    let shape = b.concat(&[&grids[1].cells, &grids[0].cells, &number], 0);
    let (mut lows, mut highs) = (Vec::new(), Vec::new());
    for (place, grid) in grids.iter().enumerate() {
        let vector = |read: &dyn Fn(&Prior) -> f64| {
            let list: Vec<f64> = priors.iter().map(read).collect();
            Value::of(Constant::of_floats(&list, dtype, &[count]))
        };
        let (shift, half) = (vector(&|prior| prior.shift[place]), vector(&|prior| prior.half[place]));
        let cell = range(b, &grid.cells);
        let cell = b.cast(&cell, dtype);
        let center = plus(b, &cell, grid.offset);
        let center = b.binary("Mul", &center, &grid.step);
        let center = b.unsqueeze(&center, if place == 0 { &[1] } else { &[1, 2] });
        let center = b.binary("Add", &center, &shift);
        for (kind, sides) in [("Sub", &mut lows), ("Add", &mut highs)] {
            let mut side = b.binary(kind, &center, &half);
            if let Some(divisor) = &grid.divisor {
                side = b.binary("Div", &side, divisor);
            }
            sides.push(b.binary("Expand", &side, &shape));
        }
    }
    lows.append(&mut highs);
    let boxes = stack(b, &lows);
    let variances = op.floats("variances").unwrap_or_default();
    let length = i64::try_from(variances.len()).unwrap_or(0);
    let variances = Value::of(Constant::of_floats(&variances, dtype, &[length]));
    let length = b.ints(&[length]);
    let shape = b.concat(&[&shape, &length], 0);
    let variances = b.binary("Expand", &variances, &shape);
    Ok((boxes, variances))
}

/// Returns the boxes with coordinates from 0 to 1.
fn clipped(b: &mut Builder<'_>, boxes: &Value) -> Value {
    let (zero, one) = (b.scalar(0.0, boxes.dtype), b.scalar(1.0, boxes.dtype));
    b.node("Clip", &[boxes, &zero, &one], Vec::new())
}

/// Returns the axes of the grid of cells of a map in an image: columns and rows.
fn image_grids(b: &mut Builder<'_>, op: &Op<'_>, dtype: DType) -> Result<[Grid; 2]> {
    let (map, image) = (b.input(op, "Input")?, b.input(op, "Image")?);
    let steps = [op.float("step_w", 0.0), op.float("step_h", 0.0)];
    let offset = op.float("offset", 0.5);
    let is_computed = steps.contains(&0.0);
    let mut axis = |place: usize| {
        let (cells, size) = (b.dim(&map, 3 - place), b.dim(&image, 3 - place));
        let size = b.cast(&size, dtype);
        let step = if is_computed {
            let cells = b.cast(&cells, dtype);
            b.binary("Div", &size, &cells)
        } else {
            b.scalar(steps[place], dtype)
        };
        Grid { cells, step, offset, divisor: Some(size) }
    };
    Ok([axis(0), axis(1)])
}

/// `prior_box`: boxes of several sizes and ratios around each cell of a map, as parts of the image.
fn prior_box(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let dtype = b.input(op, "Input")?.dtype;
    let grids = image_grids(b, op, dtype)?;
    let (least, most) =
        (op.floats("min_sizes").unwrap_or_default(), op.floats("max_sizes").unwrap_or_default());
    let mut ratios = vec![1.0f64];
    for ratio in op.floats("aspect_ratios").unwrap_or_default() {
        if ratios.len() > MAX_PRIORS {
            break;
        }
        if ratios.iter().all(|own| (own - ratio).abs() >= 1e-6) {
            ratios.push(ratio);
            if op.bool("flip", true) {
                ratios.push(1.0 / ratio);
            }
        }
    }
    let is_ordered = op.bool("min_max_aspect_ratios_order", false);
    if least.len().saturating_mul(ratios.len() + 1) > MAX_PRIORS {
        return Err(op.malformed("has too many prior boxes"));
    }
    let mut priors = Vec::new();
    let mut push =
        |wide: f64, high: f64| priors.push(Prior { shift: [0.0, 0.0], half: [wide / 2.0, high / 2.0] });
    for (place, size) in least.iter().enumerate() {
        let square = most.get(place).map(|most| (size * most).sqrt());
        if is_ordered {
            push(*size, *size);
            square.iter().for_each(|side| push(*side, *side));
        }
        for ratio in ratios.iter().filter(|ratio| !is_ordered || (**ratio - 1.0).abs() >= 1e-6) {
            push(size * ratio.sqrt(), size / ratio.sqrt());
        }
        if !is_ordered {
            square.iter().for_each(|side| push(*side, *side));
        }
    }
    let (mut boxes, variances) = prior_boxes(b, op, &grids, &priors, dtype)?;
    if op.bool("clip", true) {
        boxes = clipped(b, &boxes);
    }
    b.bind(op, "Boxes", boxes);
    b.bind(op, "Variances", variances);
    Ok(())
}

/// `density_prior_box`: boxes of fixed sizes and ratios at a number of places (`densities`, squared) in each cell of a map.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)]
fn density_prior_box(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let dtype = b.input(op, "Input")?.dtype;
    let grids = image_grids(b, op, dtype)?;
    let mut steps = [0.0; 2];
    for (step, grid) in steps.iter_mut().zip(&grids) {
        let known = b.known(&grid.step)?.and_then(|step| super::operator::only(&step));
        *step = known.ok_or_else(|| op.refuse("the sizes of the map and the image are unknown"))?;
    }
    let average = f64::midpoint(steps[0], steps[1]).trunc();
    let sizes = op.floats("fixed_sizes").unwrap_or_default();
    let ratios = op.floats("fixed_ratios").unwrap_or_default();
    let mut priors = Vec::new();
    for (size, density) in sizes.iter().zip(op.ints("densities").unwrap_or_default()) {
        if !(1..=64).contains(&density) || priors.len() > MAX_PRIORS {
            return Err(op.malformed(format_args!("has the density {density}")));
        }
        let shift = (average / density as f64).trunc();
        let start = shift / 2.0 - average / 2.0;
        for ratio in &ratios {
            if priors.len() > MAX_PRIORS {
                break;
            }
            let half = [size * ratio.sqrt() / 2.0, size / ratio.sqrt() / 2.0];
            for place in 0..density * density {
                let (row, column) = ((place / density) as f64, (place % density) as f64);
                priors.push(Prior { shift: [start + column * shift, start + row * shift], half });
            }
        }
    }
    let (boxes, mut variances) = prior_boxes(b, op, &grids, &priors, dtype)?;
    // The first corner is at least 0, the second at most 1.
    let (zero, one) = (b.scalar(0.0, dtype), b.scalar(1.0, dtype));
    let low = b.slice(&boxes, -1, 0, 2);
    let low = b.binary("Max", &low, &zero);
    let high = b.slice(&boxes, -1, 2, 4);
    let high = b.binary("Min", &high, &one);
    let mut boxes = b.concat(&[&low, &high], -1);
    if op.bool("clip", true) {
        boxes = clipped(b, &boxes);
    }
    if op.bool("flatten_to_2d", false) {
        boxes = b.reshape(&boxes, &[-1, 4]);
        variances = b.reshape(&variances, &[-1, 4]);
    }
    b.bind(op, "Boxes", boxes);
    b.bind(op, "Variances", variances);
    Ok(())
}

/// `anchor_generator`: boxes of several sizes and ratios around each cell of a map, in pixels.
fn anchor_generator(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let map = b.input(op, "Input")?;
    let dtype = map.dtype;
    let steps = op.floats("stride").unwrap_or_else(|| vec![16.0, 16.0]);
    let [wide, high] = steps[..] else { return Err(op.malformed("needs two strides")) };
    if wide <= 0.0 || high <= 0.0 {
        return Err(op.malformed("has a stride that is not positive"));
    }
    let mut axis = |step: f64, place: usize| Grid {
        cells: b.dim(&map, place),
        step: b.scalar(step, dtype),
        offset: op.float("offset", 0.5) * (step - 1.0) / step,
        divisor: None,
    };
    let grids = [axis(wide, 3), axis(high, 2)];
    let mut priors = Vec::new();
    let sizes = op.floats("anchor_sizes").unwrap_or_default();
    for ratio in op.floats("aspect_ratios").unwrap_or_default() {
        if priors.len() > MAX_PRIORS {
            break;
        }
        let base = (wide * high / ratio).sqrt().round();
        let tall = (base * ratio).round();
        for size in &sizes {
            let half = [(size / wide * base - 1.0) / 2.0, (size / high * tall - 1.0) / 2.0];
            priors.push(Prior { shift: [0.0, 0.0], half });
        }
    }
    let (boxes, variances) = prior_boxes(b, op, &grids, &priors, dtype)?;
    b.bind(op, "Anchors", boxes);
    b.bind(op, "Variances", variances);
    Ok(())
}

// ---- coding

/// Center and size of boxes along an axis.
struct Span {
    low: Value,
    high: Value,
    size: Value,
    center: Value,
}

/// Returns the span of boxes along an axis; `more` is 1 if pixels at both edges count.
fn span(b: &mut Builder<'_>, boxes: &Value, place: i64, more: f64) -> Span {
    let (low, high) = (column(b, boxes, place), column(b, boxes, place + 2));
    let size = b.binary("Sub", &high, &low);
    let size = if more == 0.0 { size } else { plus(b, &size, more) };
    let half = times(b, &size, 0.5);
    let center = b.binary("Add", &low, &half);
    Span { low, high, size, center }
}

/// `box_coder`: boxes as distances from prior boxes, in parts of their sizes and as logarithms (`encode_center_size`), or back.
fn box_coder(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (prior, target) = (b.input(op, "PriorBox")?, b.input(op, "TargetBox")?);
    let more = if op.bool("box_normalized", true) { 0.0 } else { 1.0 };
    let dtype = target.dtype;
    let variances = match b.optional(op, "PriorBoxVar")? {
        Some(variances) => Some(variances),
        None => op
            .floats("variance")
            .filter(|list| list.len() == 4)
            .map(|list| Value::of(Constant::of_floats(&list, dtype, &[4]))),
    };
    let is_encoding = op.text("code_type", "encode_center_size").to_ascii_lowercase().contains("encode");
    let axis = op.int("axis", 0);
    if !is_encoding && b.rank(op, &target)? != 3 || !matches!(axis, 0 | 1) {
        return Err(op.malformed("has boxes of an unsupported shape"));
    }
    // Priors are the columns, or with axis 1 the rows.
    let at = if is_encoding { 0 } else { axis };
    let prior = b.unsqueeze(&prior, &[at]);
    let variances = match variances {
        Some(variances) if variances.rank() == Some(2) => Some(b.unsqueeze(&variances, &[at])),
        other => other,
    };
    let mut parts = vec![Value::none(); 4];
    for place in 0..2usize {
        let own = i64::try_from(place).unwrap_or(0);
        let prior = span(b, &prior, own, more);
        let weight = |b: &mut Builder<'_>, part: usize| {
            variances.as_ref().map(|v| column(b, v, i64::try_from(part).unwrap_or(0)))
        };
        if is_encoding {
            let target = span(b, &target, own, more);
            let center = b.binary("Add", &target.low, &target.high);
            let center = times(b, &center, 0.5);
            let (center, size) = (b.unsqueeze(&center, &[1]), b.unsqueeze(&target.size, &[1]));
            let distance = b.binary("Sub", &center, &prior.center);
            let distance = b.binary("Div", &distance, &prior.size);
            let ratio = b.binary("Div", &size, &prior.size);
            let ratio = b.unary("Abs", &ratio);
            let ratio = b.unary("Log", &ratio);
            for (part, value) in [(place, distance), (place + 2, ratio)] {
                parts[part] = match weight(b, part) {
                    Some(weight) => b.binary("Div", &value, &weight),
                    None => value,
                };
            }
        } else {
            let mut coded = Vec::new();
            for part in [place, place + 2] {
                let value = column(b, &target, i64::try_from(part).unwrap_or(0));
                coded.push(match weight(b, part) {
                    Some(weight) => b.binary("Mul", &value, &weight),
                    None => value,
                });
            }
            let [distance, ratio] = &coded[..] else { return Err(op.malformed("lacks its boxes")) };
            let center = b.binary("Mul", distance, &prior.size);
            let center = b.binary("Add", &center, &prior.center);
            let size = b.unary("Exp", ratio);
            let size = b.binary("Mul", &size, &prior.size);
            let half = times(b, &size, 0.5);
            parts[place] = b.binary("Sub", &center, &half);
            let high = b.binary("Add", &center, &half);
            parts[place + 2] = if more == 0.0 { high } else { plus(b, &high, -more) };
        }
    }
    let y = stack(b, &parts);
    b.bind(op, "OutputBox", y);
    Ok(())
}

/// `iou_similarity`: shared area of each pair of boxes as a part of the united area.
fn iou_similarity(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (x, y) = (b.input(op, "X")?, b.input(op, "Y")?);
    let more = if op.bool("box_normalized", true) { 0.0 } else { 1.0 };
    let x = b.unsqueeze(&x, &[1]);
    let zero = b.scalar(0.0, x.dtype);
    let mut products: Option<[Value; 3]> = None;
    for place in 0..2 {
        let (own, other) = (span(b, &x, place, more), span(b, &y, place, more));
        let (begin, end) = (b.binary("Max", &own.low, &other.low), b.binary("Min", &own.high, &other.high));
        let shared = b.binary("Sub", &end, &begin);
        let shared = if more == 0.0 { shared } else { plus(b, &shared, more) };
        let shared = b.binary("Max", &shared, &zero);
        let sides = [own.size, other.size, shared];
        products = Some(match products {
            Some([a, c, d]) => [
                b.binary("Mul", &a, &sides[0]),
                b.binary("Mul", &c, &sides[1]),
                b.binary("Mul", &d, &sides[2]),
            ],
            None => sides,
        });
    }
    let Some([own, other, shared]) = products else { return Err(op.malformed("lacks its boxes")) };
    let all = b.binary("Add", &own, &other);
    let united = b.binary("Sub", &all, &shared);
    let united = plus(b, &united, 1e-10);
    let part = b.binary("Div", &shared, &united);
    b.bind(op, "Out", part);
    Ok(())
}

// ---- pyramids

/// `distribute_fpn_proposals`: regions by level of a pyramid: floor(log2(root of the area / scale) + level), and the place of each
/// region in the concatenated levels.
#[allow(clippy::cast_precision_loss)]
fn distribute_fpn_proposals(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let regions = b.input(op, "FpnRois")?;
    let (low, high) = (op.int("min_level", 2), op.int("max_level", 5));
    if low > high || high.saturating_sub(low) >= MAX_LEVELS {
        return Err(op.malformed(format_args!("has the levels {low} to {high}")));
    }
    let more = if op.bool("pixel_offset", true) { 1.0 } else { 0.0 };
    let dtype = regions.dtype;
    let zero = b.scalar(0.0, dtype);
    let (w, h) = (span(b, &regions, 0, 0.0).size, span(b, &regions, 1, 0.0).size);
    let least = b.binary("Min", &w, &h);
    let is_bad = b.binary("Less", &least, &zero);
    let (w, h) = (plus(b, &w, more), plus(b, &h, more));
    let area = b.binary("Mul", &w, &h);
    let area = b.node("Where", &[&is_bad, &zero, &area], Vec::new());
    let side = b.unary("Sqrt", &area);
    let scale = b.scalar(op.int("refer_scale", 224) as f64, dtype);
    let part = b.binary("Div", &side, &scale);
    let part = plus(b, &part, 1e-6);
    let level = b.unary("Log", &part);
    let level = times(b, &level, std::f64::consts::LOG2_E);
    let level = plus(b, &level, op.int("refer_level", 4) as f64);
    let level = b.unary("Floor", &level);
    let (first, last) = (b.scalar(low as f64, dtype), b.scalar(high as f64, dtype));
    let level = b.node("Clip", &[&level, &first, &last], Vec::new());
    let level = b.cast(&level, DType::I64);
    let images = match b.optional(op, "RoisNum")? {
        Some(numbers) => {
            let rows = b.dim(&regions, 0);
            let own = image_of_rows(b, &numbers, &rows);
            let count = b.dim(&numbers, 0);
            Some((own, count))
        }
        None => None,
    };
    let rows = b.dim(&regions, 0);
    let places = range(b, &rows);
    let (mut parts, mut numbers, mut order) = (Vec::new(), Vec::new(), Vec::new());
    for own in low..=high {
        let own = b.int(own);
        let mask = b.binary("Equal", &level, &own);
        let along = || vec![("axis", Attr::Int(0))];
        parts.push(b.node("Compress", &[&regions, &mask], along()));
        order.push(b.node("Compress", &[&places, &mask], along()));
        if let Some((images, count)) = &images {
            let images = b.node("Compress", &[images, &mask], along());
            let own = counts(b, &images, count);
            numbers.push(b.cast(&own, DType::I32));
        }
    }
    let order: Vec<&Value> = order.iter().collect();
    let order = b.concat(&order, 0);
    let (_, restored) = top(b, &order, &rows, false);
    let restored = b.cast(&restored, DType::I32);
    let restored = b.unsqueeze(&restored, &[1]);
    b.bind_all(op, "MultiFpnRois", parts);
    b.bind_all(op, "MultiLevelRoIsNum", numbers);
    b.bind(op, "RestoreIndex", restored);
    Ok(())
}

/// `collect_fpn_proposals`: the regions of all levels with the best scores, by image and falling score.
fn collect_fpn_proposals(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (regions, scores) = (b.inputs(op, "MultiLevelRois")?, b.inputs(op, "MultiLevelScores")?);
    let numbers = b.inputs(op, "MultiLevelRoIsNum")?;
    let count = op.int("post_nms_topN", 0);
    if count <= 0 || regions.is_empty() {
        return Err(op.malformed(format_args!("keeps {count} regions")));
    }
    let all: Vec<&Value> = regions.iter().collect();
    let all = b.concat(&all, 0);
    let scores: Vec<Value> = scores.iter().map(|own| b.reshape(own, &[-1])).collect();
    let scores: Vec<&Value> = scores.iter().collect();
    let scores = b.concat(&scores, 0);
    let rows = b.dim(&scores, 0);
    let limit = b.ints(&[count]);
    let limit = b.binary("Min", &limit, &rows);
    let (_, mut order) = top(b, &scores, &limit, true);
    if numbers.len() == regions.len() {
        let mut images = Vec::new();
        for (own, numbers) in regions.iter().zip(&numbers) {
            let rows = b.dim(own, 0);
            images.push(image_of_rows(b, numbers, &rows));
        }
        let images: Vec<&Value> = images.iter().collect();
        let images = b.concat(&images, 0);
        let images = b.gather(&images, &order, 0);
        let ranks = range(b, &limit);
        let key = b.binary("Mul", &images, &limit);
        let key = b.binary("Add", &key, &ranks);
        let (_, sorted) = top(b, &key, &limit, false);
        order = b.gather(&order, &sorted, 0);
        let batch = numbers.first().map_or_else(Value::none, |numbers| b.dim(numbers, 0));
        let totals = counts(b, &images, &batch);
        let totals = b.cast(&totals, DType::I32);
        b.bind(op, "RoisNum", totals);
    }
    let y = b.gather(&all, &order, 0);
    b.bind(op, "FpnRois", y);
    Ok(())
}
