//! Convolutions, and the parts that windowed operators share: paddings, data layouts, dtypes without kernels.

use super::builder::{Attrs, Builder, Value};
use super::operator::{Op, Row, row};
use crate::constant::Constant;
use crate::model::Attr;
use weighbridge_core::error::Result;
use weighbridge_core::tensor::DType;

/// Operators of this family.
#[rustfmt::skip]
pub(super) const ROWS: &[Row] = &[
    row("conv2d depthwise_conv2d conv3d", "conv2d depthwise_conv2d conv3d", "Input Filter Bias ResidualData", "Output", conv),
    row("conv2d_transpose depthwise_conv2d_transpose", "conv2d_transpose depthwise_conv2d_transpose", "Input Filter OutputSize", "Output", conv_transpose),
    row("conv3d_transpose", "conv3d_transpose", "Input Filter", "Output", conv_transpose),
    row("deformable_conv deformable_conv_v1", "deformable_conv", "Input Offset Filter Mask", "Output", deformable),
    row("unfold", "unfold", "X", "Y", unfold),
    row("fold", "fold", "X", "Y", fold),
];

/// Largest number that an attribute of a window may have: attributes of Paddle have 32 bits.
const MAX_NUMBER: i64 = i32::MAX as i64;
/// Maximum elements of a kernel of `fold`.
const MAX_KERNEL: i64 = 1 << 10;

// ---- parts of windowed operators

/// Geometry of a window that slides over the spatial dimensions.
#[derive(Debug, Clone)]
pub(super) struct Window {
    /// Kernel sizes, if known.
    pub(super) kernel: Option<Vec<i64>>,
    /// Strides.
    pub(super) strides: Vec<i64>,
    /// Dilations.
    pub(super) dilations: Vec<i64>,
    /// Paddings before the first elements.
    pub(super) begins: Vec<i64>,
    /// Paddings after the last elements.
    pub(super) ends: Vec<i64>,
    /// True if the paddings follow from the size of the input, by the algorithm `SAME`.
    pub(super) is_same: bool,
}

impl Window {
    /// Reads the attributes of an operator with `count` spatial dimensions.
    pub(super) fn read(op: &Op<'_>, kernel: Option<Vec<i64>>, count: usize) -> Result<Self> {
        if kernel.as_ref().is_some_and(|kernel| kernel.iter().any(|k| !(1..=MAX_NUMBER).contains(k))) {
            return Err(op.malformed("has a kernel size that is not positive"));
        }
        let strides = numbers(op, "strides", count, 1, 1)?;
        let mut dilations = numbers(op, "dilations", count, 1, 1)?;
        let (begins, ends) = paddings(op, count)?;
        let zeros = vec![0; count];
        let (begins, ends, is_same) = match op.text("padding_algorithm", "EXPLICIT") {
            "SAME" => {
                dilations = vec![1; count];
                (zeros.clone(), zeros, true)
            }
            "VALID" => (zeros.clone(), zeros, false),
            _ => (begins, ends, false),
        };
        Ok(Self { kernel, strides, dilations, begins, ends, is_same })
    }

    /// Replaces the algorithm `SAME` by paddings, if the sizes of the input (channels first) are known. The total padding is
    /// that for ceil(size / stride) outputs; of an odd one, the end has one more.
    pub(super) fn resolve(&mut self, x: &Value) {
        if !self.is_same {
            return;
        }
        let Some(kernel) = self.kernel.clone() else { return };
        let mut pads = Vec::new();
        for (place, (kernel, stride)) in kernel.iter().zip(&self.strides).enumerate() {
            let total = match (spatial(x, place), stride) {
                (Some(size), stride) => ((size + stride - 1) / stride - 1) * stride + kernel - size,
                (None, 1) => kernel - 1,
                (None, _) => return,
            };
            pads.push(total.max(0));
        }
        self.begins = pads.iter().map(|total| total / 2).collect();
        self.ends = pads.iter().map(|total| total - total / 2).collect();
        self.is_same = false;
    }

    /// Returns the attributes of a node, without paddings.
    pub(super) fn attributes(&self) -> Attrs {
        let mut attributes = vec![("strides", Attr::Ints(self.strides.clone()))];
        if let Some(kernel) = &self.kernel {
            attributes.push(("kernel_shape", Attr::Ints(kernel.clone())));
        }
        attributes
    }

    /// Returns the paddings as an attribute of a node.
    pub(super) fn pads(&self) -> (&'static str, Attr) {
        if self.is_same {
            return ("auto_pad", Attr::Text("SAME_UPPER".to_owned()));
        }
        ("pads", Attr::Ints(self.begins.iter().chain(&self.ends).copied().collect()))
    }
}

/// Returns the size of a spatial dimension (channels first), if it is known and plausible.
pub(super) fn spatial(x: &Value, place: usize) -> Option<i64> {
    x.size(place + 2).filter(|size| (0..=MAX_NUMBER).contains(size))
}

/// Returns a list attribute of `count` numbers, each at least `low`; a single number is that of all dimensions.
pub(super) fn numbers(op: &Op<'_>, name: &str, count: usize, default: i64, low: i64) -> Result<Vec<i64>> {
    let list = match op.ints(name).filter(|list| !list.is_empty()) {
        None => vec![default; count],
        Some(list) if list.len() == 1 => vec![list[0]; count],
        Some(list) => list,
    };
    if list.len() != count || list.iter().any(|number| !(low..=MAX_NUMBER).contains(number)) {
        return Err(op.malformed(format_args!("has {name} {list:?} for {count} spatial dimensions")));
    }
    Ok(list)
}

/// Returns the explicit paddings before and after each spatial dimension. Paddle has one number a dimension, or two.
fn paddings(op: &Op<'_>, count: usize) -> Result<(Vec<i64>, Vec<i64>)> {
    let list = op.ints("paddings").unwrap_or_default();
    if list.len() == count * 2 && count > 0 {
        let pairs = numbers(op, "paddings", count * 2, 0, 0)?;
        return Ok((
            pairs.iter().step_by(2).copied().collect(),
            pairs.iter().skip(1).step_by(2).copied().collect(),
        ));
    }
    let list = numbers(op, "paddings", count, 0, 0)?;
    Ok((list.clone(), list))
}

/// Returns true if the channels are the last dimension.
pub(super) fn is_channel_last(op: &Op<'_>) -> bool {
    let layout = op.text("data_format", op.text("data_layout", "NCHW"));
    layout.len() > 2 && layout.ends_with('C')
}

/// Moves the channels from the last dimension to the second, if they are last.
pub(super) fn channels_first(b: &mut Builder<'_>, op: &Op<'_>, x: &Value) -> Result<Value> {
    let rank = b.rank(op, x)?;
    if !is_channel_last(op) || rank < 3 {
        return Ok(x.clone());
    }
    let order: Vec<usize> = [0, rank - 1].into_iter().chain(1..rank - 1).collect();
    Ok(b.transpose(x, &order))
}

/// Moves the channels back to the last dimension, if the operator has them there.
pub(super) fn channels_back(b: &mut Builder<'_>, op: &Op<'_>, y: &Value) -> Result<Value> {
    let rank = b.rank(op, y)?;
    if !is_channel_last(op) || rank < 3 {
        return Ok(y.clone());
    }
    let order: Vec<usize> = [0].into_iter().chain(2..rank).chain([1]).collect();
    Ok(b.transpose(y, &order))
}

/// Returns a value in 32 bits, for nodes that ONNX Runtime has in 32 and 16 bits only.
pub(super) fn single(b: &mut Builder<'_>, x: &Value) -> Value {
    if matches!(x.dtype, DType::F32 | DType::F16) { x.clone() } else { b.cast(x, DType::F32) }
}

/// Pads the spatial dimensions of a value (channels first) with a number.
fn pad_spatial(b: &mut Builder<'_>, x: &Value, begins: &[i64], ends: &[i64], filler: f64) -> Value {
    if begins.iter().chain(ends).all(|pad| *pad == 0) {
        return x.clone();
    }
    let pads: Vec<i64> = [0, 0].iter().chain(begins).chain(&[0, 0]).chain(ends).copied().collect();
    let (pads, filler) = (b.ints(&pads), b.scalar(filler, x.dtype));
    b.node("Pad", &[x, &pads, &filler], vec![("mode", Attr::Text("constant".to_owned()))])
}

/// Returns a value of sizes for `Reshape`: the parts one after the other; each has rank 1.
pub(super) fn sizes(b: &mut Builder<'_>, parts: &[&Value]) -> Value {
    b.concat(parts, 0)
}

// ---- convolutions

/// `conv2d`, `depthwise_conv2d`, `conv3d`: convolution by the filters (output channels, channels of a group, sizes), with the
/// bias, the residual and the activation of optimised programs.
fn conv(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let y = convolution(b, op)?;
    let y = match b.optional(op, "ResidualData")? {
        Some(residual) => b.binary("Add", &y, &residual),
        None => y,
    };
    let activation = match op.text("fuse_activation", "") {
        "" | "identity" if op.bool("fuse_relu", false) => "relu",
        other => other,
    };
    let y = match activation {
        "" | "identity" => y,
        "relu" => b.unary("Relu", &y),
        "relu6" => {
            let (low, high) = (b.scalar(0.0, y.dtype), b.scalar(op.float("fuse_alpha", 6.0), y.dtype));
            b.node("Clip", &[&y, &low, &high], Vec::new())
        }
        other => return Err(op.refuse(format_args!("the fused activation {other} is not supported"))),
    };
    b.bind(op, "Output", y);
    Ok(())
}

/// Returns the number of spatial dimensions of a convolution.
fn spatial_count(b: &Builder<'_>, op: &Op<'_>, x: &Value, filter: &Value) -> Result<usize> {
    let rank = b.rank(op, filter)?;
    if rank < 3 || b.rank(op, x)? != rank {
        return Err(op.malformed("has an input and filters of different ranks"));
    }
    Ok(rank - 2)
}

/// Returns the kernel sizes of filters, if known.
fn kernel_of(filter: &Value) -> Option<Vec<i64>> {
    filter.dims.as_ref()?.get(2..)?.iter().map(crate::model::Dim::size).collect()
}

/// Adds a convolution with its bias; the result has the dtype and the data layout of the input.
pub(super) fn convolution(b: &mut Builder<'_>, op: &Op<'_>) -> Result<Value> {
    let (x, filter) = (b.input(op, "Input")?, b.input(op, "Filter")?);
    let count = spatial_count(b, op, &x, &filter)?;
    let first = channels_first(b, op, &x)?;
    let mut window = Window::read(op, kernel_of(&filter), count)?;
    window.resolve(&first);
    let mut attributes = window.attributes();
    attributes.push(("dilations", Attr::Ints(window.dilations.clone())));
    attributes.push(("group", Attr::Int(groups(op)?)));
    attributes.push(window.pads());
    let y = add_conv(b, op, "Conv", &first, &filter, attributes)?;
    channels_back(b, op, &y)
}

/// Returns the number of groups.
fn groups(op: &Op<'_>) -> Result<i64> {
    match op.int("groups", 1) {
        groups if groups > 0 => Ok(groups),
        groups => Err(op.malformed(format_args!("has {groups} groups"))),
    }
}

/// Adds a node of the convolution family with the bias of the operator; the result has the dtype of `x`.
fn add_conv(
    b: &mut Builder<'_>,
    op: &Op<'_>,
    kind: &'static str,
    x: &Value,
    filter: &Value,
    attributes: Attrs,
) -> Result<Value> {
    let input = single(b, x);
    let filter = b.cast(filter, input.dtype);
    let bias = match b.optional(op, "Bias")? {
        Some(bias) => {
            let bias = b.cast(&bias, input.dtype);
            if bias.rank() == Some(1) { bias } else { b.reshape(&bias, &[-1]) }
        }
        None => Value::none(),
    };
    let y = b.node(kind, &[&input, &filter, &bias], attributes);
    Ok(b.cast(&y, x.dtype))
}

/// `conv2d_transpose`, `depthwise_conv2d_transpose`, `conv3d_transpose`: gradient of a convolution with respect to its input.
/// Each spatial size is stride * (size - 1) + dilation * (kernel - 1) + 1 - paddings + `output_padding`, or `output_size`, which
/// is up to stride - 1 larger.
fn conv_transpose(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (x, filter) = (b.input(op, "Input")?, b.input(op, "Filter")?);
    let count = spatial_count(b, op, &x, &filter)?;
    let first = channels_first(b, op, &x)?;
    let mut window = Window::read(op, kernel_of(&filter), count)?;
    window.resolve(&first);
    if window.is_same {
        return Err(op.refuse("the padding algorithm SAME needs known sizes of input and filters"));
    }
    let mut more = numbers(op, "output_padding", count, 0, 0)?;
    let wanted = output_size(b, op, count)?;
    if wanted.is_some() {
        more = window.strides.iter().map(|stride| stride - 1).collect();
    }
    let mut attributes = window.attributes();
    attributes.push(("dilations", Attr::Ints(window.dilations.clone())));
    attributes.push(("group", Attr::Int(groups(op)?)));
    attributes.push(("output_padding", Attr::Ints(more)));
    attributes.push(window.pads());
    let mut y = add_conv(b, op, "ConvTranspose", &first, &filter, attributes)?;
    if let Some(size) = wanted {
        let axes: Vec<i64> = (2..).take(count).collect();
        let (starts, axes) = (b.ints(&vec![0; count]), b.ints(&axes));
        if b.known_ints(&size)?.is_none_or(|size| y.sizes().is_none_or(|own| own[2..] != size)) {
            y = b.node("Slice", &[&y, &starts, &size, &axes], Vec::new());
        }
    }
    let y = channels_back(b, op, &y)?;
    b.bind(op, "Output", y);
    Ok(())
}

/// Returns the spatial sizes that `output_size` states, as an attribute or an operand; `None` if absent.
fn output_size(b: &mut Builder<'_>, op: &Op<'_>, count: usize) -> Result<Option<Value>> {
    let mut members = b.inputs(op, "OutputSize")?;
    members.extend(b.inputs(op, "output_size")?);
    let mut size = members.first().cloned();
    if members.len() > 1 {
        let members: Vec<Value> = members.iter().map(|member| b.reshape(member, &[1])).collect();
        let members: Vec<&Value> = members.iter().collect();
        size = Some(b.concat(&members, 0));
    }
    let size = match size {
        Some(size) => match b.known_ints(&size)? {
            Some(known) => b.ints(&known),
            None => b.cast(&size, DType::I64),
        },
        None => b.ints(&op.ints("output_size").unwrap_or_default()),
    };
    match size.size(0) {
        Some(0) => Ok(None),
        Some(length) if usize::try_from(length) == Ok(count) => Ok(Some(size)),
        _ => Err(op.refuse("the number of sizes in output_size is not that of the spatial dimensions")),
    }
}

/// `deformable_conv`: convolution whose taps are moved by `Offset` (pairs of row and column for each tap of each deformable
/// group) and weighted by `Mask`. Taps are read by bilinear interpolation, with zeros outside the input.
fn deformable(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (x, filter) = (b.input(op, "Input")?, b.input(op, "Filter")?);
    let offset = b.input(op, "Offset")?;
    let dtype = x.dtype;
    let window = Window::read(op, kernel_of(&filter), spatial_count(b, op, &x, &filter)?)?;
    let (Some([kh, kw]), Some(filters), Some(inner)) =
        (window.kernel.as_deref(), filter.size(0), filter.size(1))
    else {
        return Err(op.refuse("the sizes of the filters are unknown"));
    };
    let taps = kh.checked_mul(*kw).filter(|taps| *taps <= MAX_KERNEL);
    let taps = taps.ok_or_else(|| op.refuse("the kernel is too large"))?;
    let groups_of_offsets = op.int("deformable_groups", 1);
    let channels = inner.checked_mul(groups(op)?).filter(|_| groups_of_offsets > 0);
    let channels = channels.ok_or_else(|| op.malformed("has no deformable groups"))?;
    // Groups become images of their own.
    let (x, offset, filter) =
        (b.cast(&x, DType::F32), b.cast(&offset, DType::F32), b.cast(&filter, DType::F32));
    let (high, wide) = (b.dim(&offset, 2), b.dim(&offset, 3));
    let (minus, zero, one) = (b.ints(&[-1]), b.ints(&[0]), b.ints(&[1]));
    let (tap_count, two) = (b.ints(&[taps]), b.ints(&[2]));
    let image = {
        let (c, h, w) = (b.ints(&[channels / groups_of_offsets]), b.dim(&x, 2), b.dim(&x, 3));
        let shape = sizes(b, &[&minus, &c, &h, &w]);
        b.binary("Reshape", &x, &shape)
    };
    let shape = sizes(b, &[&minus, &tap_count, &two, &high, &wide]);
    let offset = b.binary("Reshape", &offset, &shape);
    let mut coordinates = Vec::new();
    for (place, (size, out)) in [(b.dim(&x, 2), &high), (b.dim(&x, 3), &wide)].into_iter().enumerate() {
        let moved = {
            let part =
                b.slice(&offset, 2, i64::try_from(place).unwrap_or(0), i64::try_from(place + 1).unwrap_or(1));
            b.squeeze(&part, &[2])
        };
        let tap = |tap: i64| {
            (if place == 0 { tap / kw } else { tap % kw }) * window.dilations[place] - window.begins[place]
        };
        let starts: Vec<f64> = (0..taps).map(|t| as_float(tap(t))).collect();
        let starts = Value::of(Constant::of_floats(&starts, DType::F32, &[taps, 1, 1]));
        let steps = steps(b, out, window.strides[place]);
        let steps = b.reshape(&steps, if place == 0 { &[-1, 1] } else { &[1, -1] });
        let base = b.binary("Add", &starts, &steps);
        let at = b.binary("Add", &moved, &base);
        // Coordinates of GridSample: -1 and 1 are the outer edges.
        let (twice, one) = (b.scalar(2.0, DType::F32), b.scalar(1.0, DType::F32));
        let at = b.binary("Mul", &at, &twice);
        let at = b.binary("Add", &at, &one);
        let size = b.cast(&size, DType::F32);
        let at = b.binary("Div", &at, &size);
        let at = b.binary("Sub", &at, &one);
        coordinates.push(b.unsqueeze(&at, &[-1]));
    }
    let [rows, columns] = &coordinates[..] else { return Err(op.malformed("lacks offsets")) };
    let grid = b.concat(&[columns, rows], -1);
    let shape = sizes(b, &[&zero, &minus, &wide, &two]);
    let grid = b.binary("Reshape", &grid, &shape);
    // The name of the mode changed in version 20.
    let mode = Attr::Text(if b.opset >= 20 { "linear" } else { "bilinear" }.to_owned());
    let padding = Attr::Text("zeros".to_owned());
    let attributes = vec![("mode", mode), ("padding_mode", padding), ("align_corners", Attr::Int(0))];
    let mut read = b.node("GridSample", &[&image, &grid], attributes);
    if let Some(mask) = b.optional(op, "Mask")? {
        let mask = b.cast(&mask, DType::F32);
        let shape = sizes(b, &[&minus, &tap_count, &high, &wide]);
        let mask = b.binary("Reshape", &mask, &shape);
        let shape = sizes(b, &[&zero, &one, &minus, &wide]);
        let mask = b.binary("Reshape", &mask, &shape);
        read = b.binary("Mul", &read, &mask);
    }
    let all = channels.checked_mul(taps).ok_or_else(|| op.refuse("the filters are too large"))?;
    let shape = sizes(b, &[&minus, &b.ints(&[all]), &high, &wide]);
    let read = b.binary("Reshape", &read, &shape);
    let filter = b.reshape(&filter, &[filters, -1, 1, 1]);
    let y = b.node("Conv", &[&read, &filter], vec![("group", Attr::Int(groups(op)?))]);
    let y = b.cast(&y, dtype);
    b.bind(op, "Output", y);
    Ok(())
}

fn as_float(number: i64) -> f64 {
    #[allow(clippy::cast_precision_loss)]
    let float = number as f64;
    float
}

/// Returns 0, step, 2 * step, … as floats: as many as `count`, of rank 1, states.
fn steps(b: &mut Builder<'_>, count: &Value, step: i64) -> Value {
    let (zero, one) = (b.int(0), b.int(1));
    let count = b.squeeze(count, &[0]);
    let range = b.node("Range", &[&zero, &count, &one], Vec::new());
    let range = b.cast(&range, DType::F32);
    let step = b.scalar(as_float(step), DType::F32);
    b.binary("Mul", &range, &step)
}

// ---- windows as matrices

/// Returns the windows of an image: (batch, channels, kernel rows, kernel columns, rows, columns).
fn windows(b: &mut Builder<'_>, op: &Op<'_>, x: &Value, window: &Window) -> Result<Value> {
    let Some([_, _]) = window.kernel.as_deref() else { return Err(op.malformed("needs two kernel sizes")) };
    let mut y = pad_spatial(b, x, &window.begins, &window.ends, 0.0);
    for (place, kernel) in window.kernel.iter().flatten().enumerate() {
        if *kernel > MAX_KERNEL {
            return Err(op.refuse("the kernel is too large"));
        }
        let (stride, dilation) = (window.strides[place], window.dilations[place]);
        // The columns follow the kernel rows and the rows.
        let axis = 2 + 2 * place;
        let span = dilation * (kernel - 1) + 1;
        let size = b.dim(&y, axis);
        let last = b.binary("Sub", &size, &b.ints(&[span]));
        let steps = b.binary("Div", &last, &b.ints(&[stride]));
        let count = b.binary("Add", &steps, &b.ints(&[1]));
        let count = b.squeeze(&count, &[0]);
        let range = b.node("Range", &[&b.int(0), &count, &b.int(1)], Vec::new());
        let range = b.binary("Mul", &range, &b.ints(&[stride]));
        let taps: Vec<i64> = (0..*kernel).map(|tap| tap * dilation).collect();
        let taps = Value::of(Constant::of_ints(&taps, DType::I64, &[*kernel, 1]));
        let indices = b.binary("Add", &taps, &range);
        y = b.gather(&y, &indices, i64::try_from(axis).unwrap_or(2));
    }
    Ok(b.transpose(&y, &[0, 1, 2, 4, 3, 5]))
}

/// Reads the window of `unfold` and `fold`, whose paddings are `[top, left, bottom, right]`.
fn matrix_window(op: &Op<'_>) -> Result<Window> {
    let kernel = numbers(op, "kernel_sizes", 2, 1, 1)?;
    let strides = numbers(op, "strides", 2, 1, 1)?;
    let dilations = numbers(op, "dilations", 2, 1, 1)?;
    let pads = match op.ints("paddings").unwrap_or_default().len() {
        4 => numbers(op, "paddings", 4, 0, 0)?,
        _ => numbers(op, "paddings", 2, 0, 0)?.repeat(2),
    };
    let (begins, ends) = (pads[..2].to_vec(), pads[2..].to_vec());
    Ok(Window { kernel: Some(kernel), strides, dilations, begins, ends, is_same: false })
}

/// `unfold`: windows of an image as columns (batch, channels * kernel elements, windows).
fn unfold(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let window = matrix_window(op)?;
    let parts = windows(b, op, &x, &window)?;
    let taps: i64 = window.kernel.iter().flatten().product();
    let rows = match x.size(1) {
        Some(channels) => b.ints(&[channels.saturating_mul(taps)]),
        None => {
            let channels = b.dim(&x, 1);
            b.binary("Mul", &channels, &b.ints(&[taps]))
        }
    };
    let shape = sizes(b, &[&b.ints(&[0]), &rows, &b.ints(&[-1])]);
    let y = b.binary("Reshape", &parts, &shape);
    b.bind(op, "Y", y);
    Ok(())
}

/// `fold`: sum of windows, given as columns, at their places in an image. Each tap of the kernel is a channel of a transposed
/// convolution by one-hot filters.
fn fold(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let window = matrix_window(op)?;
    let out = numbers(op, "output_sizes", 2, 0, 1)?;
    let Some([kh, kw]) = window.kernel.as_deref() else { return Err(op.malformed("needs two kernel sizes")) };
    let taps = kh.checked_mul(*kw).filter(|taps| *taps <= MAX_KERNEL);
    let taps = taps.ok_or_else(|| op.refuse("the kernel is too large"))?;
    let (mut counts, mut more) = (Vec::new(), Vec::new());
    for (place, kernel) in [kh, kw].into_iter().enumerate() {
        let span = window.dilations[place] * (kernel - 1) + 1;
        let rest = out[place] + window.begins[place] + window.ends[place] - span;
        if rest < 0 {
            return Err(op.malformed("has a kernel larger than its output"));
        }
        counts.push(rest / window.strides[place] + 1);
        more.push(rest % window.strides[place]);
    }
    let input = single(b, &x);
    let images = b.reshape(&input, &[-1, taps, counts[0], counts[1]]);
    let mut ones = vec![0.0; usize::try_from(taps * taps).unwrap_or(0)];
    ones.iter_mut().step_by(usize::try_from(taps + 1).unwrap_or(1)).for_each(|one| *one = 1.0);
    let filter = Value::of(Constant::of_floats(&ones, input.dtype, &[taps, 1, *kh, *kw]));
    let mut attributes = window.attributes();
    attributes.push(("dilations", Attr::Ints(window.dilations.clone())));
    attributes.push(("output_padding", Attr::Ints(more)));
    attributes.push(window.pads());
    let y = b.node("ConvTranspose", &[&images, &filter], attributes);
    let batch = b.dim(&x, 0);
    let shape = sizes(b, &[&batch, &b.ints(&[-1]), &b.ints(&out)]);
    let y = b.binary("Reshape", &y, &shape);
    let y = b.cast(&y, x.dtype);
    b.bind(op, "Y", y);
    Ok(())
}
