//! Pooling.

use super::builder::{Builder, Value};
use super::layers::{
    Window, channels_back, channels_first, is_used, numbers, pad_spatial, shape_with, single, spatial,
};
use super::operator::{Op, Row, row};
use crate::constant::Constant;
use crate::model::Attr;
use weighbridge_core::error::Result;
use weighbridge_core::tensor::DType;

/// Operators of this family.
#[rustfmt::skip]
pub(super) const ROWS: &[Row] = &[
    row("pool2d", "pool2d", "X KernelSize", "Out", pool).renamed("kernel_size=ksize"),
    row("pool3d", "pool3d", "X", "Out", pool).renamed("kernel_size=ksize"),
    row("lp_pool2d", "lp_pool2d", "X KernelSize", "Out", lp_pool).renamed("kernel_size=ksize"),
    row("max_pool2d_with_index max_pool3d_with_index", "max_pool2d_with_index max_pool3d_with_index", "X", "Out Mask", max_with_index).renamed("kernel_size=ksize"),
    row("unpool", "unpool", "X Indices OutputSize", "Out", unpool).renamed("padding=paddings"),
    row("unpool3d", "unpool3d", "X Indices", "Out", unpool),
];

/// Padding of the maximum: the least number of 32 bits.
const LOWEST: f64 = f32::MIN as f64;
/// Maximum sizes of the output of adaptive pooling that is composed.
const MAX_ADAPTIVE: i64 = 1 << 12;

/// Reads the kernel sizes: an attribute, or an operand.
fn kernel(b: &mut Builder<'_>, op: &Op<'_>, count: usize) -> Result<Vec<i64>> {
    let Some(operand) = b.optional(op, "KernelSize")? else {
        return numbers(op, "ksize", count, 1, i64::MIN);
    };
    match b.known_ints(&operand)? {
        Some(list) if list.len() == count => Ok(list),
        Some(list) if list.len() == 1 => Ok(vec![list[0]; count]),
        Some(_) => Err(op.malformed("has a kernel of another rank than its input")),
        None => Err(op.refuse("kernel sizes that are computed in the program are not supported")),
    }
}

/// Returns the number of spatial dimensions.
fn spatial_count(b: &Builder<'_>, op: &Op<'_>, x: &Value) -> Result<usize> {
    match b.rank(op, x)? {
        rank @ 3.. => Ok(rank - 2),
        _ => Err(op.malformed("needs spatial dimensions")),
    }
}

fn axes(count: usize) -> Vec<i64> {
    (2..).take(count).collect()
}

/// `pool2d`, `pool3d`: maximum or mean of windows. A global window is the whole image; an adaptive one splits the image into as
/// many windows as `ksize` states.
fn pool(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let count = spatial_count(b, op, &x)?;
    let kernel = kernel(b, op, count)?;
    let first = channels_first(b, op, &x)?;
    let is_max = match op.text("pooling_type", "max") {
        "max" => true,
        "avg" => false,
        other => return Err(op.refuse(format_args!("the pooling type {other} is not supported"))),
    };
    let adaptive = op.bool("adaptive", false);
    let is_global = op.bool("global_pooling", false) || adaptive && kernel.iter().all(|size| *size == 1);
    let y = if is_global {
        global(b, &first, is_max)
    } else if adaptive {
        adapted(b, op, &first, &kernel, is_max)?
    } else {
        let mut window = Window::read(op, Some(kernel), count)?;
        window.dilations = vec![1; count];
        window.resolve(&first);
        if is_max { max(b, op, &first, &window)? } else { mean(b, op, &first, &window)? }
    };
    let y = channels_back(b, op, &y)?;
    b.bind(op, "Out", y);
    Ok(())
}

/// Reduces all spatial dimensions to size 1.
fn global(b: &mut Builder<'_>, x: &Value, is_max: bool) -> Value {
    let count = x.rank().unwrap_or(2).saturating_sub(2);
    match (is_max, x.dtype) {
        (true, DType::F32 | DType::F16) => b.unary("GlobalMaxPool", x),
        (false, DType::F32 | DType::F16) => b.unary("GlobalAveragePool", x),
        (true, _) => reduce(b, "ReduceMax", x, &axes(count), true),
        (false, _) => reduce(b, "ReduceMean", x, &axes(count), true),
    }
}

/// Adds a reduction. Its axes are an attribute before version 18 of the operators (of `ReduceSum`, before 13).
pub(super) fn reduce(b: &mut Builder<'_>, kind: &str, x: &Value, axes: &[i64], keep: bool) -> Value {
    let keep = ("keepdims", Attr::Int(i64::from(keep)));
    if kind == "ReduceSum" || b.opset >= 18 {
        let axes = b.ints(axes);
        return b.node(kind, &[x, &axes], vec![keep]);
    }
    b.node(kind, &[x], vec![("axes", Attr::Ints(axes.to_vec())), keep])
}

/// Adds what a last window, that begins in the padding, needs: windows of `ceil_mode` are those of stride - 1 more padding.
fn ceil(op: &Op<'_>, x: &Value, window: &Window) -> Result<Window> {
    let mut window = window.clone();
    if !op.bool("ceil_mode", false) {
        return Ok(window);
    }
    let kernel = window.kernel.clone().unwrap_or_default();
    if window.is_same {
        // The padding completes the last window, unless windows are apart.
        if kernel.iter().zip(&window.strides).any(|(kernel, stride)| kernel < stride) {
            return Err(op.refuse("ceil_mode with the padding algorithm SAME needs known sizes"));
        }
        return Ok(window);
    }
    for place in 0..window.ends.len() {
        let more = match spatial(x, place) {
            Some(size) => {
                let span = size + window.begins[place] + window.ends[place] - kernel[place];
                let over = span.rem_euclid(window.strides[place]);
                if over == 0 { 0 } else { window.strides[place] - over }
            }
            None => window.strides[place] - 1,
        };
        window.ends[place] += more;
    }
    Ok(window)
}

/// Returns true if a pooling node can have the paddings: each is less than the kernel.
fn fits(window: &Window) -> bool {
    let kernel = window.kernel.iter().flatten();
    window.is_same
        || kernel
            .zip(window.begins.iter().zip(&window.ends))
            .all(|(kernel, (begin, end))| begin < kernel && end < kernel)
}

/// Returns the value with explicit paddings, and the window without them.
fn padded(b: &mut Builder<'_>, x: &Value, window: &Window, filler: f64) -> (Value, Window) {
    let padded = pad_spatial(b, x, &window.begins, &window.ends, filler);
    let zeros = vec![0; window.begins.len()];
    (padded, Window { begins: zeros.clone(), ends: zeros, ..window.clone() })
}

/// Returns the maximum of each window.
fn max(b: &mut Builder<'_>, op: &Op<'_>, x: &Value, window: &Window) -> Result<Value> {
    let mut window = ceil(op, x, window)?;
    let mut x = x.clone();
    if !fits(&window) {
        (x, window) = padded(b, &x, &window, LOWEST);
    }
    let mut attributes = window.attributes();
    attributes.push(window.pads());
    Ok(b.node("MaxPool", &[&x], attributes))
}

/// Returns the mean of each window. The divisor is the number of elements inside the image (`exclusive`), or the size of the
/// window without what `ceil_mode` adds beyond the padding.
fn mean(b: &mut Builder<'_>, op: &Op<'_>, x: &Value, window: &Window) -> Result<Value> {
    let exclusive = op.bool("exclusive", true);
    let input = single(b, x);
    let whole = ceil(op, x, window)?;
    let mut attributes = whole.attributes();
    let is_plain = whole.is_same || whole.ends == window.ends;
    if !exclusive && whole.is_same {
        return Err(op.refuse("means over the padding of the algorithm SAME need known sizes"));
    }
    let y = if fits(&whole) && (exclusive || is_plain && window.begins == window.ends) {
        attributes.push(whole.pads());
        attributes.push(("count_include_pad", Attr::Int(i64::from(!exclusive))));
        b.node("AveragePool", &[&input], attributes)
    } else {
        // The mean over the windows of the padded image, divided by the share of each that counts.
        let (image, bare) = padded(b, &input, &whole, 0.0);
        let mean = b.node("AveragePool", &[&image], bare.attributes());
        let one = b.ints(&[1]);
        let shape = shape_with(b, x, &[(0, &one), (1, &one)]);
        let mut ones = b.filled(&shape, 1.0, input.dtype);
        let (mut begins, mut ends) = (whole.begins.clone(), whole.ends.clone());
        if !exclusive {
            // Paddle counts as much padding after the image as before it.
            ones = pad_spatial(b, &ones, &window.begins, &window.begins, 1.0);
            for place in 0..begins.len() {
                begins[place] = 0;
                ends[place] -= window.begins[place];
            }
        }
        let ones = pad_spatial(b, &ones, &begins, &ends, 0.0);
        let share = b.node("AveragePool", &[&ones], bare.attributes());
        b.binary("Div", &mean, &share)
    };
    Ok(b.cast(&y, x.dtype))
}

/// Returns the maximum or mean of adaptive windows: window i of n begins at floor(i * size / n) and ends before
/// ceil((i + 1) * size / n).
fn adapted(b: &mut Builder<'_>, op: &Op<'_>, x: &Value, out: &[i64], is_max: bool) -> Result<Value> {
    let mut y = x.clone();
    for (place, count) in out.iter().enumerate() {
        y = adapted_axis(b, op, &y, place + 2, *count, is_max)?;
    }
    Ok(y)
}

/// Pools one axis. Windows of the same length are a reshaped axis; others are gathered with the length of the longest.
fn adapted_axis(
    b: &mut Builder<'_>,
    op: &Op<'_>,
    x: &Value,
    axis: usize,
    count: i64,
    is_max: bool,
) -> Result<Value> {
    let kind = if is_max { "ReduceMax" } else { "ReduceMean" };
    let place = i64::try_from(axis).unwrap_or(2);
    let size = x.size(axis);
    if count <= 0 || size == Some(count) {
        return Ok(x.clone());
    }
    if count > MAX_ADAPTIVE {
        return Err(op.refuse("the output sizes of adaptive pooling are too large"));
    }
    if count == 1 {
        return Ok(reduce(b, kind, x, &[place], true));
    }
    if let Some(size) = size.filter(|size| size % count == 0) {
        let (windows, length) = (b.ints(&[count]), b.ints(&[size / count]));
        let mut parts: Vec<Value> = (0..x.rank().unwrap_or(0)).map(|axis| b.dim(x, axis)).collect();
        parts[axis] = windows;
        parts.insert(axis + 1, length);
        let parts: Vec<&Value> = parts.iter().collect();
        let shape = b.concat(&parts, 0);
        let split = b.binary("Reshape", x, &shape);
        return Ok(reduce(b, kind, &split, &[place + 1], false));
    }
    let size = b.dim(x, axis);
    let vector = |numbers: Vec<i64>| Value::of(Constant::of_ints(&numbers, DType::I64, &[count, 1]));
    let (firsts, nexts) = (vector((0..count).collect()), vector((1..=count).collect()));
    let (all, less) = (b.ints(&[count]), b.ints(&[count - 1]));
    let starts = b.binary("Mul", &firsts, &size);
    let starts = b.binary("Div", &starts, &all);
    let ends = b.binary("Mul", &nexts, &size);
    let ends = b.binary("Add", &ends, &less);
    let ends = b.binary("Div", &ends, &all);
    let lengths = b.binary("Sub", &ends, &starts);
    let longest =
        match lengths.constant.as_ref().and_then(|c| c.as_ints()).and_then(|c| c.iter().max().copied()) {
            Some(longest) => b.int(longest),
            None => b.node("ReduceMax", &[&lengths], vec![("keepdims", Attr::Int(0))]),
        };
    let steps = b.node("Range", &[&b.int(0), &longest, &b.int(1)], Vec::new());
    let places = b.binary("Add", &starts, &steps);
    let last = b.binary("Sub", &ends, &b.ints(&[1]));
    let places = b.binary("Min", &places, &last);
    let windows = b.gather(x, &places, place);
    if is_max {
        return Ok(reduce(b, kind, &windows, &[place + 1], false));
    }
    let rest = i64::try_from(x.rank().unwrap_or(0)).unwrap_or(0) - place - 1;
    let trailing: Vec<i64> = (2..2 + rest).collect();
    let inside = b.binary("Less", &steps, &lengths);
    let inside = b.unsqueeze(&inside, &trailing);
    let zero = b.scalar(0.0, x.dtype);
    let windows = b.node("Where", &[&inside, &windows, &zero], Vec::new());
    let sum = reduce(b, "ReduceSum", &windows, &[place + 1], false);
    let lengths = b.cast(&lengths, x.dtype);
    let lengths = b.squeeze(&lengths, &[1]);
    let trailing: Vec<i64> = (1..=rest).collect();
    let lengths = b.unsqueeze(&lengths, &trailing);
    Ok(b.binary("Div", &sum, &lengths))
}

/// `lp_pool2d`: root of order `norm_type` of the sum of powers of each window.
fn lp_pool(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let count = spatial_count(b, op, &x)?;
    let kernel = kernel(b, op, count)?;
    let order = op.float("norm_type", 2.0);
    if op.bool("adaptive", false) || op.bool("global_pooling", false) || order == 0.0 || !order.is_finite() {
        return Err(op.refuse("adaptive and global windows, and infinite orders are not supported"));
    }
    let first = channels_first(b, op, &x)?;
    let input = single(b, &first);
    let elements: i64 = kernel.iter().map(|size| (*size).max(1)).fold(1, i64::saturating_mul);
    let mut window = Window::read(op, Some(kernel), count)?;
    window.resolve(&first);
    let window = ceil(op, &first, &window)?;
    let power = b.scalar(order, input.dtype);
    let powers = b.binary("Pow", &input, &power);
    let (powers, window) = if window.is_same { (powers, window) } else { padded(b, &powers, &window, 0.0) };
    let mut attributes = window.attributes();
    attributes.push(window.pads());
    attributes.push(("count_include_pad", Attr::Int(1)));
    let mean = b.node("AveragePool", &[&powers], attributes);
    #[allow(clippy::cast_precision_loss)]
    let elements = b.scalar(elements as f64, input.dtype);
    let sum = b.binary("Mul", &mean, &elements);
    let root = b.scalar(1.0 / order, input.dtype);
    let y = b.binary("Pow", &sum, &root);
    let y = b.cast(&y, x.dtype);
    let y = channels_back(b, op, &y)?;
    b.bind(op, "Out", y);
    Ok(())
}

/// `max_pool2d_with_index`, `max_pool3d_with_index`: maximum of each window, and its place in the flattened image.
fn max_with_index(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let x = b.input(op, "X")?;
    let count = spatial_count(b, op, &x)?;
    let mut kernel = kernel(b, op, count)?;
    let needs_mask = is_used(b, op, "Mask");
    let adaptive = op.bool("adaptive", false);
    let is_global = op.bool("global_pooling", false) || adaptive && kernel.iter().all(|size| *size == 1);
    if !needs_mask && (is_global || adaptive) {
        let y = if is_global { global(b, &x, true) } else { adapted(b, op, &x, &kernel, true)? };
        b.bind(op, "Out", y);
        return Ok(());
    }
    let mut window = if is_global || adaptive {
        let sizes: Option<Vec<i64>> = (2..2 + count).map(|axis| x.size(axis)).collect();
        let sizes = sizes.ok_or_else(|| op.refuse("places in images of unknown sizes are not supported"))?;
        if is_global {
            kernel = vec![1; count];
        }
        let divides = |(size, count): (&i64, &i64)| *count > 0 && size % count == 0 && *size > 0;
        if !sizes.iter().zip(&kernel).all(divides) {
            return Err(op.refuse("places in adaptive windows of different lengths are not supported"));
        }
        let lengths: Vec<i64> = sizes.iter().zip(&kernel).map(|(size, count)| size / count).collect();
        let zeros = vec![0; count];
        Window {
            kernel: Some(lengths.clone()),
            strides: lengths,
            dilations: vec![1; count],
            begins: zeros.clone(),
            ends: zeros,
            is_same: false,
        }
    } else {
        Window::read(op, Some(kernel), count)?
    };
    window.dilations = vec![1; count];
    if !(is_global || adaptive) {
        window = ceil(op, &x, &window)?;
    }
    if !needs_mask {
        let y = max(b, op, &x, &window)?;
        b.bind(op, "Out", y);
        return Ok(());
    }
    if !fits(&window) {
        return Err(op.refuse("places in windows inside the padding are not supported"));
    }
    let mut attributes = window.attributes();
    attributes.push(window.pads());
    let mut inferred = super::infer::infer("MaxPool", &[&x], &attributes, 1);
    let dims = inferred.first().and_then(|own| own.dims.clone());
    inferred.push(super::infer::Inferred::new(DType::I64, dims));
    let mut results = b.typed("MaxPool", &[&x], attributes, inferred);
    let (Some(places), Some(y)) = (results.pop(), results.pop()) else {
        return Err(op.malformed("lacks its results"));
    };
    let mut elements = b.ints(&[1]);
    for axis in 2..2 + count {
        let size = b.dim(&x, axis);
        elements = b.binary("Mul", &elements, &size);
    }
    let places = b.binary("Mod", &places, &elements);
    let places = b.cast(&places, b.declared_dtype(op, "Mask").unwrap_or(DType::I32));
    b.bind(op, "Out", y);
    b.bind(op, "Mask", places);
    Ok(())
}

/// `unpool`, `unpool3d`: zeros with the elements of the input at the places in the flattened image that `Indices` states.
fn unpool(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let (x, indices) = (b.input(op, "X")?, b.input(op, "Indices")?);
    let count = spatial_count(b, op, &x)?;
    let operand = b.optional(op, "OutputSize")?;
    let mut size = match &operand {
        Some(size) => match b.known_ints(size)? {
            Some(known) => b.ints(&known),
            None => b.cast(size, DType::I64),
        },
        None => b.ints(&op.ints("output_size").unwrap_or_default()),
    };
    if size.size(0) == Some(0) {
        size = unpooled(b, op, &x, count)?;
    }
    if size.size(0).and_then(|length| usize::try_from(length).ok()) != Some(count) {
        return Err(op.refuse("the number of output sizes is not that of the spatial dimensions"));
    }
    let flat = b.reshape(&x, &[0, 0, -1]);
    let indices = b.cast(&indices, DType::I64);
    let indices = b.reshape(&indices, &[0, 0, -1]);
    let elements = match b.known_ints(&size)? {
        Some(known) => b.ints(&[known.iter().fold(1, |product: i64, size| product.saturating_mul(*size))]),
        None => reduce(b, "ReduceProd", &size, &[0], true),
    };
    let (batch, channels) = (b.dim(&x, 0), b.dim(&x, 1));
    let shape = b.concat(&[&batch, &channels, &elements], 0);
    let zero = Constant::filled(0.0, x.dtype, &[1]);
    let zeros = b.nodes("ConstantOfShape", &[&shape], vec![("value", Attr::Tensor(zero))], 1);
    let zeros = zeros.into_iter().next().unwrap_or_else(Value::none);
    let filled = b.node("ScatterElements", &[&zeros, &indices, &flat], vec![("axis", Attr::Int(2))]);
    let shape = b.concat(&[&batch, &channels, &size], 0);
    let y = b.binary("Reshape", &filled, &shape);
    b.bind(op, "Out", y);
    Ok(())
}

/// Returns the sizes that the pooled image had: (size - 1) * stride - 2 * padding + kernel.
fn unpooled(b: &mut Builder<'_>, op: &Op<'_>, x: &Value, count: usize) -> Result<Value> {
    let kernel = numbers(op, "ksize", count, 1, 1)?;
    let window = Window::read(op, Some(kernel.clone()), count)?;
    let mut sizes = Vec::new();
    for (place, kernel) in kernel.iter().enumerate() {
        let size = b.dim(x, place + 2);
        let size = b.binary("Sub", &size, &b.ints(&[1]));
        let size = b.binary("Mul", &size, &b.ints(&[window.strides[place]]));
        sizes.push(b.binary("Add", &size, &b.ints(&[kernel - 2 * window.begins[place]])));
    }
    let sizes: Vec<&Value> = sizes.iter().collect();
    Ok(b.concat(&sizes, 0))
}
