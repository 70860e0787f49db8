//! Interpolation and sampling of images.

use super::builder::{Builder, Value};
use super::layers::{channels_back, channels_first};
use super::operator::{Op, Row, row};
use crate::constant::Constant;
use crate::model::Attr;
use weighbridge_core::error::Result;
use weighbridge_core::tensor::DType;

/// Operators of this family.
#[rustfmt::skip]
pub(super) const ROWS: &[Row] = &[
    row(
        "nearest_interp nearest_interp_v2 bilinear_interp bilinear_interp_v2 bicubic_interp bicubic_interp_v2 linear_interp linear_interp_v2 trilinear_interp trilinear_interp_v2",
        "nearest_interp bilinear_interp bicubic_interp linear_interp trilinear_interp legacy_nearest_interp legacy_bilinear_interp",
        "X OutSize SizeTensor Scale", "Out", interpolate,
    ).renamed("data_format=data_layout"),
    row("grid_sampler", "grid_sample", "X Grid", "Output", grid_sample),
    row("affine_grid", "affine_grid", "Theta OutputShape", "Output", affine_grid),
];

/// Number of positions for which two computations of a coordinate are compared.
const COMPARED: i64 = 1 << 13;

/// Target of an interpolation.
enum Target {
    /// Sizes of the result: a vector.
    Sizes(Value),
    /// Scales, known: one a spatial dimension.
    Scales(Vec<f64>),
    /// Scales as a vector of one element, or of one a spatial dimension.
    Computed(Value),
}

/// `nearest_interp`, `bilinear_interp`, `bicubic_interp`, `linear_interp`, `trilinear_interp`, also `_v2`: image of another size.
///
/// The source coordinate of position i is ratio * i, with the ratio (in - 1) / (out - 1) for `align_corners`; else the ratio is
/// in / out, or 1 / scale in `_v2`, and in mode 0 of linear and in cubic interpolation the coordinate is that of pixel centers:
/// ratio * (i + 0.5) - 0.5. For a size of 1 the ratio is 0. The nearest element is that at floor(coordinate), and at
/// floor(coordinate + 0.5) for `align_corners`.
fn interpolate(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let rank = b.rank(op, &x)?;
    if !(3..=5).contains(&rank) {
        return Err(op.malformed(format_args!("has an image of {rank} dimensions")));
    }
    let first = channels_first(b, op, &x)?;
    let target = target(b, op, rank - 2)?;
    let mode = ["nearest", "bicubic"].into_iter().find(|mode| op.kind.contains(mode)).unwrap_or("linear");
    let y = match mode {
        "nearest" => nearest(b, op, &first, &target)?,
        mode => {
            let is_aligned = op.bool("align_corners", true);
            let coordinates = match (is_aligned, mode, op.int("align_mode", 1)) {
                (true, ..) => "align_corners",
                (false, "linear", mode) if mode != 0 => "asymmetric",
                // Paddle 3 has no exception for a size of 1 here.
                _ if op.is_pir && ["linear_interp", "trilinear_interp"].contains(&op.kind) => "half_pixel",
                // The coordinate of the only position of a size of 1 is 0.
                _ => "pytorch_half_pixel",
            };
            smooth(b, op, &first, &target, if mode == "linear" { "linear" } else { "cubic" }, coordinates)?
        }
    };
    let y = channels_back(b, op, &y)?;
    b.bind(op, "Out", y);
    Ok(())
}

/// Returns true for the first version of an operator, whose ratio does not depend on a scale.
fn is_first_version(op: &Op<'_>) -> bool {
    !op.is_pir && !op.kind.ends_with("_v2") || op.kind.starts_with("legacy")
}

/// Returns the target: `SizeTensor`, else `OutSize`, else a scale, else the sizes of the attributes.
fn target(b: &mut Builder<'_>, op: &Op<'_>, count: usize) -> Result<Target> {
    let members = b.inputs(op, "SizeTensor")?;
    if !members.is_empty() {
        let members: Vec<Value> = members
            .iter()
            .map(|member| {
                let member = b.cast(member, DType::I64);
                if member.rank() == Some(1) { member } else { b.reshape(&member, &[1]) }
            })
            .collect();
        if members.len() != count && !(members.len() == 1 && members[0].size(0) == i64::try_from(count).ok())
        {
            return Err(op.malformed("has another number of sizes than spatial dimensions"));
        }
        let members: Vec<&Value> = members.iter().collect();
        return Ok(Target::Sizes(b.concat(&members, 0)));
    }
    if let Some(size) = b.optional(op, "OutSize")? {
        let size = match b.known_ints(&size)? {
            Some(known) => b.ints(&known),
            None => b.cast(&size, DType::I64),
        };
        return Ok(Target::Sizes(size));
    }
    let scales = match b.optional(op, "Scale")? {
        Some(scale) => match b.known(&scale)? {
            Some(known) => known.to_floats(),
            None => return Ok(Target::Computed(b.cast(&scale, DType::F32))),
        },
        None => op.floats("scale").unwrap_or_default(),
    };
    if !scales.is_empty() && scales.iter().all(|scale| *scale > 0.0 && scale.is_finite()) {
        let scales = if scales.len() == 1 { vec![scales[0]; count] } else { scales };
        if scales.len() != count {
            return Err(op.malformed("has another number of scales than spatial dimensions"));
        }
        return Ok(Target::Scales(scales));
    }
    let names = ["out_d", "out_h", "out_w"];
    let sizes: Vec<i64> = names[3 - count..].iter().map(|name| op.int(name, -1)).collect();
    if sizes.iter().any(|size| *size <= 0) {
        return Err(op.malformed(format_args!("has the output sizes {sizes:?}")));
    }
    Ok(Target::Sizes(b.ints(&sizes)))
}

/// Returns the spatial sizes of the result as a vector: for scales, the sizes of the input times the scales, truncated.
fn target_sizes(b: &mut Builder<'_>, x: &Value, target: &Target) -> Value {
    let scales = match target {
        Target::Sizes(sizes) => return sizes.clone(),
        Target::Scales(scales) => {
            let count = i64::try_from(scales.len()).unwrap_or(0);
            Value::of(Constant::of_floats(scales, DType::F32, &[count]))
        }
        Target::Computed(scales) => scales.clone(),
    };
    let rank = x.rank().unwrap_or(2);
    let sizes: Vec<Value> = (2..rank).map(|axis| b.dim(x, axis)).collect();
    let sizes: Vec<&Value> = sizes.iter().collect();
    let sizes = b.concat(&sizes, 0);
    let sizes = b.cast(&sizes, DType::F32);
    let sizes = b.binary("Mul", &sizes, &scales);
    b.cast(&sizes, DType::I64)
}

/// Adds a linear or cubic `Resize`.
fn smooth(
    b: &mut Builder<'_>,
    op: &Op<'_>,
    x: &Value,
    target: &Target,
    mode: &str,
    coordinates: &str,
) -> Result<Value> {
    if !x.dtype.is_float() {
        return Err(op.refuse(format_args!("interpolation of {} is not supported", x.dtype)));
    }
    // ONNX Runtime interpolates images: a signal is one row.
    let is_signal = x.rank() == Some(3);
    let input = if matches!(x.dtype, DType::F32 | DType::F16) { x.clone() } else { b.cast(x, DType::F32) };
    let image = if is_signal { b.unsqueeze(&input, &[2]) } else { input.clone() };
    let (mut scales, mut sizes) = (Value::none(), Value::none());
    let own_ratio = is_first_version(op) || coordinates == "align_corners";
    match target {
        Target::Scales(list) if !own_ratio => {
            let list: Vec<f64> =
                [1.0, 1.0].iter().chain(is_signal.then_some(&1.0)).chain(list).copied().collect();
            let count = i64::try_from(list.len()).unwrap_or(0);
            scales = Value::of(Constant::of_floats(&list, DType::F32, &[count]));
        }
        Target::Computed(list) if !own_ratio => {
            let count = x.rank().unwrap_or(2) - 2;
            let list = b.reshape(list, &[-1]);
            let shape = b.ints(&[i64::try_from(count).unwrap_or(0)]);
            let list = b.binary("Expand", &list, &shape);
            let ones = vec![1.0; if is_signal { 3 } else { 2 }];
            let length = i64::try_from(ones.len()).unwrap_or(0);
            let ones = Value::of(Constant::of_floats(&ones, DType::F32, &[length]));
            scales = b.concat(&[&ones, &list], 0);
        }
        target => {
            let spatial = target_sizes(b, x, target);
            if mode == "cubic" && coordinates != "align_corners" {
                let known = b.known_ints(&spatial)?.unwrap_or_default();
                if known.contains(&1) {
                    return Err(op.refuse("cubic interpolation to a size of 1 is not supported"));
                }
            }
            let (batch, channels) = (b.dim(x, 0), b.dim(x, 1));
            let one = b.ints(&[1]);
            let parts: &[&Value] =
                if is_signal { &[&batch, &channels, &one, &spatial] } else { &[&batch, &channels, &spatial] };
            sizes = b.concat(parts, 0);
        }
    }
    let mut attributes = vec![
        ("mode", Attr::Text(mode.to_owned())),
        ("coordinate_transformation_mode", Attr::Text(coordinates.to_owned())),
    ];
    if mode == "cubic" {
        attributes.push(("cubic_coeff_a", Attr::Float(-0.75)));
    }
    let y = b.node("Resize", &[&image, &Value::none(), &scales, &sizes], attributes);
    let y = if is_signal { b.squeeze(&y, &[2]) } else { y };
    Ok(b.cast(&y, x.dtype))
}

/// Computation of the source of a position in nearest interpolation, in 32 bits as Paddle computes it.
#[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss)]
fn source(position: i64, ratio: f32, is_aligned: bool) -> i64 {
    let coordinate = ratio * position as f32;
    if is_aligned { (coordinate + 0.5) as i64 } else { coordinate as i64 }
}

/// Returns the ratio of an axis, and the scale by which ONNX Runtime divides.
#[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss)]
fn ratio(size: i64, out: i64, is_aligned: bool, scale: Option<f64>) -> (f32, f32) {
    let scaled = |scale: f64| (1.0 / scale as f32, scale as f32);
    match (is_aligned, scale) {
        _ if out <= 1 => (0.0, 1.0),
        (true, _) => ((size - 1) as f32 / (out - 1) as f32, 1.0),
        (false, Some(scale)) => scaled(scale),
        (false, None) => (size as f32 / out as f32, out as f32 / size as f32),
    }
}

/// Interpolates by the nearest element: by `Resize` where it certainly finds the same elements, else by `Gather`.
#[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss)]
fn nearest(b: &mut Builder<'_>, op: &Op<'_>, x: &Value, target: &Target) -> Result<Value> {
    let is_aligned = op.bool("align_corners", true);
    let rank = x.rank().unwrap_or(2);
    let spatial = target_sizes(b, x, target);
    let outs = b.known_ints(&spatial)?;
    let scales = match target {
        Target::Scales(scales) if !is_first_version(op) => Some(scales.clone()),
        _ => None,
    };
    let mut agrees = x.dtype == DType::F32 && !matches!(target, Target::Computed(_));
    for axis in 2..rank {
        let out = outs.as_ref().and_then(|outs| outs.get(axis - 2).copied());
        let scale = scales.as_ref().and_then(|scales| scales.get(axis - 2).copied());
        let (positions, size, out) = match (x.size(axis), out, scale) {
            (Some(size), Some(out), _) => (out, size, out),
            // Without the sizes, a scale is enough.
            (_, _, Some(_)) if !is_aligned => (COMPARED, 1, COMPARED),
            _ => {
                agrees = false;
                break;
            }
        };
        let (ratio, divisor) = ratio(size, out, is_aligned, scale);
        agrees &= positions <= COMPARED
            && (0..positions).all(|position| {
                let other = if is_aligned {
                    (position as f32 * (size - 1) as f32 / (out - 1).max(1) as f32).round()
                } else {
                    (position as f32 / divisor).floor()
                };
                source(position, ratio, is_aligned) == other as i64
            });
    }
    if agrees {
        let (mut factors, mut sizes) = (Value::none(), Value::none());
        if let (Some(scales), false) = (&scales, is_aligned) {
            let list: Vec<f64> = [1.0, 1.0].iter().chain(scales).copied().collect();
            let count = i64::try_from(list.len()).unwrap_or(0);
            factors = Value::of(Constant::of_floats(&list, DType::F32, &[count]));
        } else {
            let (batch, channels) = (b.dim(x, 0), b.dim(x, 1));
            sizes = b.concat(&[&batch, &channels, &spatial], 0);
        }
        let (coordinates, rounding) =
            if is_aligned { ("align_corners", "round_prefer_ceil") } else { ("asymmetric", "floor") };
        let attributes = vec![
            ("mode", Attr::Text("nearest".to_owned())),
            ("coordinate_transformation_mode", Attr::Text(coordinates.to_owned())),
            ("nearest_mode", Attr::Text(rounding.to_owned())),
        ];
        return Ok(b.node("Resize", &[x, &Value::none(), &factors, &sizes], attributes));
    }
    let mut y = x.clone();
    for axis in 2..rank {
        let out = outs.as_ref().and_then(|outs| outs.get(axis - 2).copied());
        let scale = scales.as_ref().and_then(|scales| scales.get(axis - 2).copied());
        let indices = match (x.size(axis), out) {
            (Some(size), Some(out)) if out <= COMPARED => {
                let (ratio, _) = ratio(size, out, is_aligned, scale);
                let places: Vec<i64> = (0..out).map(|position| source(position, ratio, is_aligned)).collect();
                b.ints(&places)
            }
            _ => sources(b, x, &spatial, target, axis, is_aligned, scale),
        };
        y = b.gather(&y, &indices, i64::try_from(axis).unwrap_or(2));
    }
    Ok(y)
}

/// Returns the sources of an axis in nearest interpolation, computed in the graph.
fn sources(
    b: &mut Builder<'_>,
    x: &Value,
    spatial: &Value,
    target: &Target,
    axis: usize,
    is_aligned: bool,
    scale: Option<f64>,
) -> Value {
    let place = i64::try_from(axis - 2).unwrap_or(0);
    let out = {
        let index = b.int(place);
        b.gather(spatial, &index, 0)
    };
    let size = b.dim(x, axis);
    let size = b.squeeze(&size, &[0]);
    let (zero, one, single) = (b.int(0), b.int(1), b.scalar(1.0, DType::F32));
    let range = b.node("Range", &[&zero, &out, &one], Vec::new());
    let range = b.cast(&range, DType::F32);
    let (size, out) = (b.cast(&size, DType::F32), b.cast(&out, DType::F32));
    let ratio = match (is_aligned, scale, target) {
        (true, ..) => {
            let (size, out) = (b.binary("Sub", &size, &single), b.binary("Sub", &out, &single));
            let out = b.binary("Max", &out, &single);
            b.binary("Div", &size, &out)
        }
        (false, Some(scale), _) => {
            let scale = b.scalar(scale, DType::F32);
            b.binary("Div", &single, &scale)
        }
        (false, None, Target::Computed(scales)) => {
            let scales = b.reshape(scales, &[-1]);
            // One scale serves all dimensions.
            let index = if scales.size(0) == Some(1) { 0 } else { place };
            let index = b.int(index);
            let scale = b.gather(&scales, &index, 0);
            b.binary("Div", &single, &scale)
        }
        (false, None, _) => b.binary("Div", &size, &out),
    };
    let mut coordinates = b.binary("Mul", &range, &ratio);
    if is_aligned {
        let half = b.scalar(0.5, DType::F32);
        coordinates = b.binary("Add", &coordinates, &half);
    }
    b.cast(&coordinates, DType::I64)
}

/// `grid_sampler`: elements of an image at the coordinates of a grid, from -1 to 1.
fn grid_sample(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (x, grid) = (b.input(op, "X")?, b.input(op, "Grid")?);
    let rank = b.rank(op, &x)?;
    if rank != 4 && b.opset < 20 {
        return Err(op.refuse("sampling of volumes needs opset 20"));
    }
    let mode = match (op.text("mode", "bilinear"), b.opset >= 20) {
        ("bilinear", true) => "linear",
        ("bilinear", false) => "bilinear",
        ("nearest", _) => "nearest",
        (other, _) => return Err(op.refuse(format_args!("the mode {other} is not supported"))),
    };
    let padding = op.text("padding_mode", "zeros");
    if !matches!(padding, "zeros" | "border" | "reflection") {
        return Err(op.refuse(format_args!("the padding mode {padding} is not supported")));
    }
    let (image, grid) = (b.cast(&x, DType::F32), b.cast(&grid, DType::F32));
    let attributes = vec![
        ("mode", Attr::Text(mode.to_owned())),
        ("padding_mode", Attr::Text(padding.to_owned())),
        ("align_corners", Attr::Int(i64::from(op.bool("align_corners", true)))),
    ];
    let y = b.node("GridSample", &[&image, &grid], attributes);
    let y = b.cast(&y, x.dtype);
    b.bind(op, "Output", y);
    Ok(())
}

/// `affine_grid`: grid of the coordinates of an image, from -1 to 1, moved by an affine map for each image. The coordinates are
/// those of the corners (`align_corners`) or of the centers of pixels.
fn affine_grid(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let theta = b.input(op, "Theta")?;
    let dtype = theta.dtype;
    let shape = match b.optional(op, "OutputShape")? {
        Some(shape) => match b.known_ints(&shape)? {
            Some(known) => b.ints(&known),
            None => b.cast(&shape, DType::I64),
        },
        None => b.ints(&op.ints("output_shape").unwrap_or_default()),
    };
    let rank = match shape.size(0) {
        Some(4) => 4usize,
        Some(5) => 5,
        _ => return Err(op.refuse("the number of dimensions of the output is unknown")),
    };
    let count = rank - 2;
    // Columns: the last axis first, then the others, then ones.
    let axes: Vec<i64> = (2..rank).map(|axis| i64::try_from(axis).unwrap_or(0)).collect();
    let spatial = {
        let places = b.ints(&axes);
        b.gather(&shape, &places, 0)
    };
    let one = b.ints(&[1]);
    let whole = b.concat(&[&spatial, &one], 0);
    let mut columns = Vec::new();
    for place in (0..count).rev() {
        let index = b.int(i64::try_from(place).unwrap_or(0));
        let size = b.gather(&spatial, &index, 0);
        let (zero, step) = (b.int(0), b.int(1));
        let range = b.node("Range", &[&zero, &size, &step], Vec::new());
        let (range, size) = (b.cast(&range, dtype), b.cast(&size, dtype));
        let (single, double) = (b.scalar(1.0, dtype), b.scalar(2.0, dtype));
        let twice = b.binary("Mul", &range, &double);
        let scaled = if op.bool("align_corners", true) {
            let last = b.binary("Sub", &size, &single);
            let last = b.binary("Max", &last, &single);
            b.binary("Div", &twice, &last)
        } else {
            let odd = b.binary("Add", &twice, &single);
            b.binary("Div", &odd, &size)
        };
        let coordinate = b.binary("Sub", &scaled, &single);
        let trailing: Vec<i64> = (1..).take(count - place).collect();
        let coordinate = b.unsqueeze(&coordinate, &trailing);
        columns.push(b.binary("Expand", &coordinate, &whole));
    }
    columns.push(b.filled(&whole, 1.0, dtype));
    let columns: Vec<&Value> = columns.iter().collect();
    let base = b.concat(&columns, -1);
    let width = i64::try_from(count + 1).unwrap_or(3);
    let base = b.reshape(&base, &[-1, width]);
    let turned = b.transpose(&theta, &[0, 2, 1]);
    let grid = b.binary("MatMul", &base, &turned);
    let batch = b.dim(&theta, 0);
    let last = b.ints(&[width - 1]);
    let shape = b.concat(&[&batch, &spatial, &last], 0);
    let grid = b.binary("Reshape", &grid, &shape);
    b.bind(op, "Output", grid);
    Ok(())
}
