//! Pooling.

use super::builder::{Builder, Value};
use super::layers::{Window, channels_back, channels_first, numbers, single, spatial};
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
    let computed = b.optional(op, "ksize")?;
    let Some(operand) = b.optional(op, "KernelSize")?.or(computed) else {
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
        if is_max { max(b, op, &first, &window) } else { mean(b, op, &first, &window) }
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
        (true, _) => b.reduce("ReduceMax", x, &axes(count), true),
        (false, _) => b.reduce("ReduceMean", x, &axes(count), true),
    }
}

/// Paddings before and after the spatial dimensions, which may depend on sizes that are known at run time.
struct Pads {
    begins: Value,
    ends: Value,
}

/// Returns the window with more padding after the image, if `ceil_mode` needs it: the last window may begin where less than a
/// whole one is left.
fn ceil(op: &Op<'_>, x: &Value, window: &Window) -> Window {
    let mut window = window.clone();
    if !op.bool("ceil_mode", false) || window.is_same {
        return window;
    }
    let kernel = window.kernel.clone().unwrap_or_default();
    for (place, kernel) in kernel.iter().enumerate() {
        let stride = window.strides[place];
        let more = match spatial(x, place) {
            Some(size) => {
                let span = size + window.begins[place] + window.ends[place] - kernel;
                let over = span.rem_euclid(stride);
                if over == 0 { 0 } else { stride - over }
            }
            None => stride - 1,
        };
        window.ends[place] += more;
    }
    window
}

/// Returns true if a pooling node can have the paddings: each is less than the kernel.
fn fits(op: &Op<'_>, window: &Window) -> bool {
    let kernel = window.kernel.iter().flatten();
    if window.is_same {
        // ONNX Runtime computes a negative padding for windows that are apart.
        return kernel.zip(&window.strides).all(|(kernel, stride)| kernel >= stride);
    }
    let pads = window.begins.iter().zip(&window.ends);
    op.kind != "lp_pool2d" && kernel.zip(pads).all(|(kernel, (begin, end))| begin < kernel && end < kernel)
}

/// Returns the paddings of a window as values; those of the algorithm `SAME` are computed in the graph.
fn pads(b: &mut Builder<'_>, op: &Op<'_>, x: &Value, window: &Window) -> Pads {
    if !window.is_same {
        return Pads { begins: b.ints(&window.begins), ends: b.ints(&window.ends) };
    }
    let kernel = window.kernel.clone().unwrap_or_default();
    let count = kernel.len();
    let size = spatial_sizes(b, x, count);
    let (kernel, strides) = (b.ints(&kernel), b.ints(&window.strides));
    let (ones, zeros, twos) = (b.ints(&vec![1; count]), b.ints(&vec![0; count]), b.ints(&vec![2; count]));
    // The paddings complete ceil(size / stride) windows.
    let last = b.binary("Sub", &size, &ones);
    let last = b.binary("Div", &last, &strides);
    let span = b.binary("Mul", &last, &strides);
    let span = b.binary("Add", &span, &kernel);
    let total = b.binary("Sub", &span, &size);
    let total = b.binary("Max", &total, &zeros);
    let begins = b.binary("Div", &total, &twos);
    let mut ends = b.binary("Sub", &total, &begins);
    if op.bool("ceil_mode", false) {
        let more = b.binary("Sub", &strides, &ones);
        ends = b.binary("Add", &ends, &more);
    }
    Pads { begins, ends }
}

/// Returns the spatial sizes of a value (channels first).
fn spatial_sizes(b: &mut Builder<'_>, x: &Value, count: usize) -> Value {
    let sizes: Vec<Value> = (2..2 + count).map(|axis| b.dim(x, axis)).collect();
    let sizes: Vec<&Value> = sizes.iter().collect();
    b.concat(&sizes, 0)
}

/// Returns the value with its paddings.
fn padded(b: &mut Builder<'_>, x: &Value, pads: &Pads, filler: f64) -> Value {
    let zeros = b.ints(&[0, 0]);
    let all = b.concat(&[&zeros, &pads.begins, &zeros, &pads.ends], 0);
    if all.constant.as_ref().and_then(|all| all.as_ints()).is_some_and(|all| all.iter().all(|pad| *pad == 0))
    {
        return x.clone();
    }
    let filler = b.scalar(filler, x.dtype);
    b.node("Pad", &[x, &all, &filler], vec![("mode", Attr::Text("constant".to_owned()))])
}

/// Returns the maximum of each window.
fn max(b: &mut Builder<'_>, op: &Op<'_>, x: &Value, window: &Window) -> Value {
    let whole = ceil(op, x, window);
    let mut attributes = whole.attributes();
    if fits(op, &whole) {
        attributes.push(whole.pads());
        return b.node("MaxPool", &[x], attributes);
    }
    let pads = pads(b, op, x, &whole);
    let x = padded(b, x, &pads, LOWEST);
    b.node("MaxPool", &[&x], attributes)
}

/// Returns the mean of each window. The divisor is the number of elements inside the image (`exclusive`), or the size of the
/// window without elements behind the padding.
fn mean(b: &mut Builder<'_>, op: &Op<'_>, x: &Value, window: &Window) -> Value {
    let exclusive = op.bool("exclusive", true);
    let input = single(b, x);
    let whole = ceil(op, x, window);
    let mut attributes = whole.attributes();
    let is_plain = !whole.is_same && whole.ends == window.ends && whole.begins == whole.ends;
    let y = if fits(op, &whole) && (exclusive || is_plain) {
        attributes.push(whole.pads());
        attributes.push(("count_include_pad", Attr::Int(i64::from(!exclusive))));
        b.node("AveragePool", &[&input], attributes)
    } else {
        let pads = pads(b, op, x, &whole);
        let image = padded(b, &input, &pads, 0.0);
        let mut y = b.node("AveragePool", &[&image], attributes);
        let kernel = whole.kernel.clone().unwrap_or_default();
        for (place, kernel) in kernel.iter().enumerate() {
            // The divisor of each window along the axis; it is negative for a window behind the padding, as in Paddle.
            let axis = place + 2;
            let at = [i64::try_from(place).unwrap_or(0)];
            let index = b.ints(&at);
            let (begin, size) = (b.gather(&pads.begins, &index, 0), b.dim(x, axis));
            let count = b.dim(&y, axis);
            let count = b.squeeze(&count, &[0]);
            let range = b.node("Range", &[&b.int(0), &count, &b.int(1)], Vec::new());
            let starts = b.binary("Mul", &range, &b.ints(&[whole.strides[place]]));
            let starts = b.binary("Sub", &starts, &begin);
            let ends = b.binary("Add", &starts, &b.ints(&[*kernel]));
            // Paddle counts as much padding after the image as before it.
            let (low, high) = match exclusive {
                true => (b.binary("Max", &starts, &b.ints(&[0])), size),
                false => (starts, b.binary("Add", &size, &begin)),
            };
            let ends = b.binary("Min", &ends, &high);
            let counts = b.binary("Sub", &ends, &low);
            if counts
                .constant
                .as_ref()
                .and_then(|c| c.as_ints())
                .is_some_and(|c| c.iter().all(|c| c == kernel))
            {
                continue;
            }
            let counts = b.cast(&counts, y.dtype);
            #[allow(clippy::cast_precision_loss)]
            let kernel = b.scalar(*kernel as f64, y.dtype);
            let share = b.binary("Div", &counts, &kernel);
            let trailing: Vec<i64> = (1..).take(x.rank().unwrap_or(0).saturating_sub(axis + 1)).collect();
            let share = b.unsqueeze(&share, &trailing);
            y = b.binary("Div", &y, &share);
        }
        y
    };
    b.cast(&y, x.dtype)
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
        return Ok(b.reduce(kind, x, &[place], true));
    }
    if let Some(size) = size.filter(|size| size % count == 0) {
        let (windows, length) = (b.ints(&[count]), b.ints(&[size / count]));
        let mut parts: Vec<Value> = (0..x.rank().unwrap_or(0)).map(|axis| b.dim(x, axis)).collect();
        parts[axis] = windows;
        parts.insert(axis + 1, length);
        let parts: Vec<&Value> = parts.iter().collect();
        let shape = b.concat(&parts, 0);
        let split = b.binary("Reshape", x, &shape);
        return Ok(b.reduce(kind, &split, &[place + 1], false));
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
        return Ok(b.reduce(kind, &windows, &[place + 1], false));
    }
    let rest = i64::try_from(x.rank().unwrap_or(0)).unwrap_or(0) - place - 1;
    let trailing: Vec<i64> = (2..2 + rest).collect();
    let inside = b.binary("Less", &steps, &lengths);
    let inside = b.unsqueeze(&inside, &trailing);
    let zero = b.scalar(0.0, x.dtype);
    let windows = b.node("Where", &[&inside, &windows, &zero], Vec::new());
    let sum = b.reduce("ReduceSum", &windows, &[place + 1], false);
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
    let whole = ceil(op, &first, &window);
    let power = b.scalar(order, input.dtype);
    let powers = b.binary("Pow", &input, &power);
    let pads = pads(b, op, &first, &whole);
    let powers = padded(b, &powers, &pads, 0.0);
    let attributes = whole.attributes();
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
    let needs_mask = b.is_used(op, "Mask");
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
        window = ceil(op, &x, &window);
    }
    if !needs_mask {
        let y = max(b, op, &x, &window);
        b.bind(op, "Out", y);
        return Ok(());
    }
    if !fits(op, &window) {
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
    let computed = b.optional(op, "output_size")?;
    let operand = b.optional(op, "OutputSize")?.or(computed);
    let mut size = match &operand {
        Some(size) => match b.known_ints(size)? {
            Some(known) => b.ints(&known),
            None => b.cast(size, DType::I64),
        },
        None => b.ints(&op.ints("output_size").unwrap_or_default()),
    };
    // For an image of open sizes, Paddle stores sizes computed from -1.
    let is_open = b.known_ints(&size)?.is_some_and(|sizes| sizes.iter().any(|size| *size < 0));
    if is_open || size.size(0) == Some(0) {
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
        None => b.reduce("ReduceProd", &size, &[0], true),
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
