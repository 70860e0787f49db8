"""Cases of convolutions, pooling, normalizations."""

import itertools

import numpy as np
import paddle
import paddle.nn.functional as F

from cases import IS_PIR, case, floats, ints, raw

OPEN4 = [None, None, None, None]


def images(channels, *sizes, batch=2, dtype="float32"):
    """Returns images with open batch and spatial sizes, and arrays of several sizes."""
    arrays = [floats(b, channels, *(s + more for s in sizes), seed=more, dtype=dtype) for b, more in ((batch, 0), (1, 3), (3, 1))]
    return [None, channels] + [None] * len(sizes), arrays


def parameter(array):
    """Returns a stored tensor."""
    initializer = paddle.nn.initializer.Assign(array)
    attr = paddle.ParamAttr(initializer=initializer)
    return paddle.static.create_parameter(list(array.shape), str(array.dtype), attr=attr)


# ---- convolutions

for stride, padding, dilation in itertools.product((1, 2), (0, 1, [1, 2], [1, 0, 2, 1], "SAME", "VALID"), (1, 2)):
    if padding == "VALID" and dilation == 2:
        continue
    name = f"s{stride} p{padding} d{dilation}"
    make = lambda x, s=stride, p=padding, d=dilation: F.conv2d(x, parameter(floats(6, 4, 3, 3)), None, s, p, d)
    case(f"conv2d/{name}", make, {"x": images(4, 9, 10)})
    make = lambda x, s=stride, p=padding, d=dilation: F.conv2d(x, parameter(floats(6, 4, 3, 2)), None, s, p, d, data_format="NHWC")
    case(f"conv2d/NHWC {name}", make, {"x": ([None, 9, 10, 4], [floats(2, 9, 10, 4), floats(1, 9, 10, 4)])})
case("conv2d/groups", lambda x: F.conv2d(x, parameter(floats(6, 2, 3, 3)), None, 1, 1, groups=2), {"x": images(4, 7, 8)})
case("conv2d/large kernel of SAME", lambda x: F.conv2d(x, parameter(floats(6, 4, 5, 4)), None, 3, "SAME"), {"x": floats(2, 4, 11, 8)})
case("conv2d/small kernel of SAME", lambda x: F.conv2d(x, parameter(floats(6, 4, 1, 1)), None, 2, "SAME"), {"x": images(4, 7, 8)})
case("conv2d/filters as input", lambda x, w: F.conv2d(x, w, None, 1, 1), {"x": images(4, 7, 8), "w": floats(6, 4, 3, 3)})
case("conv2d/open filters", lambda x, w: F.conv2d(x, w, None, 1, 1), {"x": floats(2, 4, 7, 8), "w": ([None, 4, 3, 3], [floats(6, 4, 3, 3), floats(2, 4, 3, 3)])})
case("conv2d/f64", lambda x: F.conv2d(x, parameter(floats(6, 4, 3, 3, dtype="float64")), None, 1, 1), {"x": images(4, 7, 8, dtype="float64")})
case("conv2d/depthwise", lambda x: F.conv2d(x, parameter(floats(4, 1, 3, 3)), None, 2, 1, groups=4), {"x": images(4, 7, 8)})
case("conv2d/depthwise multiplier", lambda x: F.conv2d(x, parameter(floats(8, 1, 3, 3)), None, 1, "SAME", 2, groups=4), {"x": images(4, 7, 8)})
case("conv2d/depthwise NHWC", lambda x: F.conv2d(x, parameter(floats(4, 1, 3, 3)), None, 1, 1, groups=4, data_format="NHWC"), {"x": floats(2, 7, 8, 4)})
for stride, padding, dilation in itertools.product((1, 2), (0, [1, 0, 2, 1, 0, 1], "SAME"), (1, 2)):
    make = lambda x, s=stride, p=padding, d=dilation: F.conv3d(x, parameter(floats(4, 2, 3, 2, 3)), None, s, p, d)
    case(f"conv3d/s{stride} p{padding} d{dilation}", make, {"x": images(2, 7, 6, 7)})
case("conv3d/NDHWC", lambda x: F.conv3d(x, parameter(floats(4, 2, 3, 2, 3)), None, 1, 1, data_format="NDHWC"), {"x": floats(2, 5, 6, 7, 2)})
case("conv3d/groups", lambda x: F.conv3d(x, parameter(floats(4, 1, 3, 2, 3)), None, 2, 1, groups=2), {"x": floats(2, 2, 5, 6, 7)})

for stride, padding, dilation in itertools.product((1, 2, 3), (0, 1, [1, 2, 0, 1], "SAME", "VALID"), (1, 2)):
    name = f"s{stride} p{padding} d{dilation}"
    data = images(4, 5, 6) if padding != "SAME" else floats(2, 4, 5, 6)
    make = lambda x, s=stride, p=padding, d=dilation: F.conv2d_transpose(x, parameter(floats(4, 3, 3, 2)), None, s, p, dilation=d)
    case(f"conv2d_transpose/{name}", make, {"x": data})
    if stride > 1:
        make = lambda x, s=stride, p=padding, d=dilation: F.conv2d_transpose(x, parameter(floats(4, 3, 3, 2)), None, s, p, output_padding=1, dilation=d)
        case(f"conv2d_transpose/more {name}", make, {"x": data})
for size in ([11, 13], [12, 14]):
    make = lambda x, s=size: F.conv2d_transpose(x, parameter(floats(4, 3, 3, 3)), None, 2, 0, output_size=s)
    case(f"conv2d_transpose/output_size {size}", make, {"x": floats(2, 4, 5, 6)})
    make = lambda x, s=size: F.conv2d_transpose(x, parameter(floats(4, 3, 3, 3)), None, 2, [0, 0, 0, 0], output_size=s, data_format="NHWC")
    case(f"conv2d_transpose/NHWC output_size {size}", make, {"x": floats(2, 5, 6, 4)})
case("conv2d_transpose/output_size open", lambda x: F.conv2d_transpose(x, parameter(floats(4, 3, 3, 3)), None, 2, 1, output_size=[10, 11]), {"x": ([None, 4, None, None], [floats(2, 4, 5, 6)])})
case("conv2d_transpose/groups", lambda x: F.conv2d_transpose(x, parameter(floats(4, 3, 3, 3)), None, 2, 1, groups=2), {"x": images(4, 5, 6)})
case("conv2d_transpose/depthwise", lambda x: F.conv2d_transpose(x, parameter(floats(4, 1, 3, 3)), None, 2, 1, groups=4), {"x": images(4, 5, 6)})
case("conv2d_transpose/f64", lambda x: F.conv2d_transpose(x, parameter(floats(4, 3, 3, 3, dtype="float64")), None, 2, 1), {"x": floats(2, 4, 5, 6, dtype="float64")})
case("conv3d_transpose/groups", lambda x: F.conv3d_transpose(x, parameter(floats(4, 3, 3, 2, 3)), None, 2, 1, groups=2), {"x": images(4, 3, 4, 5)})
case("conv3d_transpose/more", lambda x: F.conv3d_transpose(x, parameter(floats(4, 3, 3, 2, 3)), None, 2, [1, 1, 0, 1, 1, 0], output_padding=1), {"x": images(4, 3, 4, 5)})
case("conv3d_transpose/output_size", lambda x: F.conv3d_transpose(x, parameter(floats(4, 3, 3, 3, 3)), None, 2, 0, output_size=[8, 9, 12]), {"x": floats(2, 4, 3, 4, 5)})


def deform(x, offset, mask=None, w=None, **more):
    return paddle.vision.ops.deform_conv2d(x, offset, parameter(w), None, mask=mask, **more)


for name, stride, padding, dilation, dg, groups in (("plain", 1, 1, 1, 1, 1), ("strided", 2, [1, 0], [1, 2], 1, 2), ("dilated", 1, 0, 2, 1, 1), ("groups", 1, 1, 1, 2, 1), ("both groups", [2, 1], 1, 1, 2, 2)):
    x, w = floats(2, 4, 7, 8), floats(6, 4 // groups, 3, 3)
    pair = lambda v: v if isinstance(v, list) else [v] * 2
    high, wide = [(s + 2 * p - d * 2 - 1) // t + 1 for s, p, d, t in zip((7, 8), pair(padding), pair(dilation), pair(stride))]
    offset, mask = floats(2, 18 * dg, high, wide, low=-3, high=3), floats(2, 9 * dg, high, wide)
    more = dict(stride=stride, padding=padding, dilation=dilation, deformable_groups=dg, groups=groups)
    case(f"deformable_conv/{name}", lambda x, o, m, w=w, more=more: deform(x, o, m, w, **more), {"x": x, "o": offset, "m": mask})
    case(f"deformable_conv/v1 {name}", lambda x, o, w=w, more=more: deform(x, o, None, w, **more), {"x": x, "o": offset})
    case(f"deformable_conv/open {name}", lambda x, o, m, w=w, more=more: deform(x, o, m, w, **more), {"x": ([None, 4, None, None], [x]), "o": ([None, 18 * dg, None, None], [offset]), "m": ([None, 9 * dg, None, None], [mask])})

for kernel, stride, padding, dilation in ((3, 1, 0, 1), ([2, 3], 2, 1, 1), (3, [1, 2], [1, 2], 2), (2, 2, [1, 0, 2, 1], 1)):
    make = lambda x, k=kernel, s=stride, p=padding, d=dilation: F.unfold(x, k, s, p, d)
    case(f"unfold/k{kernel} s{stride} p{padding} d{dilation}", make, {"x": images(3, 7, 8)})
for size, kernel, stride, padding, dilation in (([5, 6], 2, 1, 0, 1), ([7, 8], 3, 2, 1, 1), ([8, 7], [2, 3], [1, 2], [1, 0], 2), ([7, 8], 2, 3, [1, 0, 2, 1], 1)):
    pads = padding if isinstance(padding, list) else [padding] * 2
    pads = pads if len(pads) == 4 else pads * 2
    two = lambda v: v if isinstance(v, list) else [v] * 2
    count = 1
    for i in range(2):
        count *= (size[i] + pads[i] + pads[i + 2] - two(dilation)[i] * (two(kernel)[i] - 1) - 1) // two(stride)[i] + 1
    width = 3 * two(kernel)[0] * two(kernel)[1]
    make = lambda x, z=size, k=kernel, s=stride, p=padding, d=dilation: F.fold(x, z, k, s, p, d)
    case(f"fold/{size} k{kernel} s{stride} p{padding} d{dilation}", make, {"x": floats(2, width, count) if IS_PIR else ([None, width, count], [floats(2, width, count), floats(1, width, count)])})
case("im2sequence/plain", lambda x: raw("im2sequence", {"X": x}, ["Out"], {"kernels": [2, 3], "strides": [1, 2], "paddings": [0, 1, 1, 0]}), {"x": ([None, 3, None, None], [floats(2, 3, 5, 6), floats(1, 3, 4, 7)])}, only="2.6")

for stride, padding, dilation in ((1, 0, 1), (2, 1, 1), (1, "SAME", 1), (2, [1, 2], 2)):
    make = lambda x, s=stride, p=padding, d=dilation: F.conv1d(x, parameter(floats(6, 4, 3)), parameter(floats(6)), s, p, d)
    case(f"conv2d/1-D s{stride} p{padding} d{dilation}", make, {"x": images(4, 9)})
    make = lambda x, s=stride, p=padding, d=dilation: F.conv1d(x, parameter(floats(6, 4, 3)), parameter(floats(6)), s, p, d, data_format="NLC")
    case(f"conv2d/1-D NLC s{stride} p{padding} d{dilation}", make, {"x": floats(2, 9, 4)})
    make = lambda x, s=stride, p=padding, d=dilation: F.conv1d_transpose(x, parameter(floats(4, 6, 3)), parameter(floats(6)), s, p, dilation=d)
    case(f"conv2d_transpose/1-D s{stride} p{padding} d{dilation}", make, {"x": floats(2, 4, 9)})
case("conv2d/bias", lambda x: F.conv2d(x, parameter(floats(6, 4, 3, 3)), parameter(floats(6)), 1, 1), {"x": images(4, 7, 8)})
case("conv2d/bias NHWC", lambda x: F.conv2d(x, parameter(floats(6, 4, 3, 3)), parameter(floats(6)), 1, 1, data_format="NHWC"), {"x": floats(2, 7, 8, 4)})
case("conv2d_transpose/bias", lambda x: F.conv2d_transpose(x, parameter(floats(4, 6, 3, 3)), parameter(floats(6)), 2, 1), {"x": images(4, 7, 8)})
case("conv2d_transpose/computed output_size", lambda x, z: F.conv2d_transpose(x, parameter(floats(4, 3, 3, 3)), None, 2, 0, output_size=z), {"x": ([None, 4, None, None], [floats(2, 4, 5, 6)]), "z": np.array([11, 14], "int32")})
case("conv3d/bias", lambda x: F.conv3d(x, parameter(floats(6, 4, 3, 3, 3)), parameter(floats(6)), 1, 1), {"x": images(4, 5, 6, 7)})

# ---- pooling

PADS = (0, 1, [1, 0, 1, 1], "SAME", "VALID")
for kernel, stride, padding, ceil in itertools.product((2, 3, [3, 1]), (1, 2, 3), PADS, (False, True)):
    if padding == "VALID" and ceil or kernel == [3, 1] and padding not in (0, "SAME"):
        continue
    name = f"k{kernel} s{stride} p{padding}{' ceil' if ceil else ''}"
    fixed = floats(2, 3, 8, 9, low=-3, high=1)
    data = (OPEN4[:1] + [3] + OPEN4[:2], [fixed, floats(1, 3, 9, 10, low=-3, high=1), floats(1, 3, 10, 8, low=-3, high=1)])
    make = lambda x, k=kernel, s=stride, p=padding, c=ceil: F.max_pool2d(x, k, s, p, ceil_mode=c)
    case(f"pool2d/max {name}", make, {"x": data})
    case(f"pool2d/max fixed {name}", make, {"x": fixed})
    for exclusive in (True, False):
        make = lambda x, k=kernel, s=stride, p=padding, c=ceil, e=exclusive: F.avg_pool2d(x, k, s, p, ceil_mode=c, exclusive=e)
        case(f"pool2d/avg {'exclusive ' if exclusive else ''}{name}", make, {"x": data})
        case(f"pool2d/avg fixed {'exclusive ' if exclusive else ''}{name}", make, {"x": fixed})
for size in (1, 2, 3, [3, 5], [None, 4], [1, 3], 11):
    for kind in ("max", "avg"):
        make = lambda x, z=size, k=kind: getattr(F, f"adaptive_{k}_pool2d")(x, z)
        case(f"pool2d/adaptive {kind} {size}", make, {"x": floats(2, 3, 8, 9)})
        if size != [None, 4]:
            case(f"pool2d/adaptive open {kind} {size}", make, {"x": images(3, 8, 9)})
case("pool2d/adaptive avg NHWC", lambda x: F.adaptive_avg_pool2d(x, [2, 4], data_format="NHWC"), {"x": floats(2, 7, 8, 3)})
case("pool2d/avg NHWC", lambda x: F.avg_pool2d(x, 2, 2, data_format="NHWC"), {"x": floats(2, 7, 8, 3)})
case("pool2d/max NHWC", lambda x: F.max_pool2d(x, 3, 2, 1, data_format="NHWC"), {"x": ([None, None, None, 3], [floats(2, 7, 8, 3)])})
for kind in ("max", "avg"):
    make = lambda x, k=kind: getattr(F, f"adaptive_{k}_pool2d")(x, 1)
    case(f"pool2d/global f64 {kind}", make, {"x": images(3, 8, 9, dtype="float64")})
    make = lambda x, k=kind: getattr(F, f"{k}_pool2d")(x, 3, 2, 1)
    case(f"pool2d/f64 {kind}", make, {"x": images(3, 8, 9, dtype="float64")})
    make = lambda x, k=kind: raw("pool2d", {"X": x}, ["Out"], {"pooling_type": k, "ksize": [1, 1], "global_pooling": True})
    case(f"pool2d/global raw {kind}", make, {"x": images(3, 8, 9)}, only="2.6")
    for ceil in (False, True):
        make = lambda x, k=kind, c=ceil: getattr(F, f"{k}_pool3d")(x, [2, 3, 2], 2, [0, 1, 1], ceil_mode=c)
        case(f"pool3d/{kind} {ceil}", make, {"x": images(3, 5, 6, 7)})
        make = lambda x, k=kind, c=ceil: getattr(F, f"{k}_pool1d")(x, 3, 2, 1, ceil_mode=c)
        case(f"pool2d/1-D {kind} {ceil}", make, {"x": images(3, 8)})
    make = lambda x, k=kind: getattr(F, f"adaptive_{k}_pool3d")(x, [2, 3, 4])
    case(f"pool3d/adaptive {kind}", make, {"x": images(3, 5, 6, 7)})
case("pool3d/NDHWC", lambda x: F.avg_pool3d(x, 2, 2, 0, data_format="NDHWC"), {"x": floats(2, 5, 6, 7, 3)})
case("pool3d/inclusive", lambda x: F.avg_pool3d(x, 3, 2, 1, exclusive=False, ceil_mode=True), {"x": floats(2, 3, 5, 6, 8)})
for order in (1.0, 2.0, 3.0):
    make = lambda x, o=order: paddle.nn.LPPool2D(o, 3, 2, 1)(x)
    case(f"lp_pool2d/{order}", make, {"x": floats(2, 3, 8, 9, low=0.1)}, only="3.3")
for kernel, stride, padding, ceil in ((2, 2, 0, False), (3, 2, 1, False), (3, 2, 1, True), (2, 1, 0, False)):
    make = lambda x, k=kernel, s=stride, p=padding, c=ceil: F.max_pool2d(x, k, s, p, return_mask=True, ceil_mode=c)
    case(f"max_pool2d_with_index/k{kernel} s{stride} p{padding}{' ceil' if ceil else ''}", make, {"x": images(3, 8, 9)}, only="3.3" if ceil else None)
    make = lambda x, k=kernel, s=stride, p=padding, c=ceil: F.max_pool3d(x, k, s, p, return_mask=True, ceil_mode=c)
    case(f"max_pool3d_with_index/k{kernel} s{stride} p{padding}{' ceil' if ceil else ''}", make, {"x": images(3, 6, 7, 8)}, only="3.3" if ceil else None)
case("max_pool2d_with_index/adaptive", lambda x: F.adaptive_max_pool2d(x, [2, 3], return_mask=True), {"x": floats(2, 3, 8, 9)})
case("max_pool2d_with_index/adaptive without places", lambda x: F.adaptive_max_pool2d(x, [3, 5], return_mask=True)[0], {"x": images(3, 8, 9)})
case("max_pool2d_with_index/global", lambda x: F.adaptive_max_pool2d(x, 1, return_mask=True), {"x": floats(2, 3, 8, 9)})
case("max_pool2d_with_index/equal elements", lambda x: F.max_pool2d(x, 2, 2, return_mask=True), {"x": np.zeros((2, 3, 4, 4), "float32")})


def unpooled(x, **more):
    y, places = F.max_pool2d(x, 2, 2, return_mask=True)
    return F.max_unpool2d(y, places, 2, 2, **more)


case("unpool/fixed", unpooled, {"x": floats(2, 3, 6, 8)})
case("unpool/output_size", lambda x: unpooled(x, output_size=[9, 9]), {"x": floats(2, 3, 9, 9)})


def unpooled3(x):
    y, places = F.max_pool3d(x, 2, 2, return_mask=True)
    return F.max_unpool3d(y, places, 2, 2)


case("unpool3d/plain", unpooled3, {"x": floats(2, 3, 4, 6, 8)})

# ---- normalizations


def statistics(count, dtype="float32"):
    given = [floats(count, seed=s, low=0.5, dtype=dtype) for s in range(4)]
    return [parameter(array) for array in given]


def batch(x, layout="NCHW", training=False, dtype="float32", count=4):
    mean, variance, scale, bias = statistics(count, dtype)
    return F.batch_norm(x, mean, variance, scale, bias, training=training, data_format=layout)


for rank in (2, 3, 4, 5):
    layout, last = (None, "NC", "NCL", "NCHW", "NCDHW")[rank - 1], (None, "NC", "NLC", "NHWC", "NDHWC")[rank - 1]
    case(f"batch_norm/rank {rank}", lambda x, l=layout: batch(x, l), {"x": images(4, *range(3, rank + 1))})
    case(f"batch_norm/last {rank}", lambda x, l=last: batch(x, l), {"x": floats(*range(2, rank + 1), 4)})
case("batch_norm/f64", lambda x: batch(x, dtype="float64"), {"x": images(4, 5, 6, dtype="float64")})
case("batch_norm/layer", lambda x: paddle.static.nn.batch_norm(x, is_test=True), {"x": images(4, 5, 6)}, only="2.6")
case("batch_norm/global", lambda x: paddle.static.nn.batch_norm(x, use_global_stats=True), {"x": images(4, 5, 6)}, only="2.6")


def layer(x, shape, scale=True, bias=True, dtype="float32"):
    count = int(np.prod(shape))
    w, b = parameter(floats(count, dtype=dtype)), parameter(floats(count, seed=1, dtype=dtype))
    return F.layer_norm(x, list(shape), w if scale else None, b if bias else None)


for scale, bias in itertools.product((True, False), (True, False)):
    make = lambda x, s=scale, b=bias: layer(x, (6,), s, b)
    case(f"layer_norm/last {scale} {bias}", make, {"x": ([None, None, 6], [floats(2, 3, 6), floats(1, 5, 6)])})
    make = lambda x, s=scale, b=bias: layer(x, (5, 6), s, b)
    case(f"layer_norm/two {scale} {bias}", make, {"x": ([None, 5, 6], [floats(2, 5, 6), floats(1, 5, 6)])})
case("layer_norm/f64", lambda x: layer(x, (6,), dtype="float64"), {"x": floats(2, 3, 6, dtype="float64")})
case("layer_norm/static", lambda x: paddle.static.nn.layer_norm(x, begin_norm_axis=2), {"x": ([None, 3, 4, 5], [floats(2, 3, 4, 5)])}, only="2.6")
case("layer_norm/empty", lambda x: layer(x, (6,)), {"x": ([None, 3, 6], [floats(2, 3, 6), floats(0, 3, 6)])})
case(
    "layer_norm/statistics",
    lambda x: raw("layer_norm", {"X": x}, ["Y", "Mean", "Variance"], {"begin_norm_axis": 1, "epsilon": 1e-3}),
    {"x": floats(2, 3, 6)},
    only="2.6",
)


def group(x, groups, layout="NCHW", scale=True, bias=True, dtype="float32"):
    layer = paddle.nn.GroupNorm(groups, 6, data_format=layout)
    w, b = parameter(floats(6, dtype=dtype)), parameter(floats(6, seed=1, dtype=dtype))
    if IS_PIR:
        return F.group_norm(x, groups, 1e-5, w if scale else None, b if bias else None, layout)
    given = {"X": x}
    if scale:
        given["Scale"] = w
    if bias:
        given["Bias"] = b
    return raw("group_norm", given, {"Y": dtype, "Mean": dtype, "Variance": dtype}, {"groups": groups, "epsilon": 1e-5, "data_layout": layout})[0]


for groups, scale, bias in ((1, True, True), (2, True, True), (6, True, True), (3, False, True), (3, True, False), (2, False, False)):
    case(f"group_norm/{groups} {scale} {bias}", lambda x, g=groups, s=scale, b=bias: group(x, g, "NCHW", s, b), {"x": images(6, 4, 5)})
    case(f"group_norm/NHWC {groups} {scale} {bias}", lambda x, g=groups, s=scale, b=bias: group(x, g, "NHWC", s, b), {"x": floats(2, 4, 5, 6)})
for rank in (2, 3, 5):
    case(f"group_norm/rank {rank}", lambda x: group(x, 2), {"x": floats(2, 6, *range(3, rank + 1))})
case("group_norm/f64", lambda x: group(x, 2, dtype="float64"), {"x": floats(2, 6, 3, 4, dtype="float64")})


def instance(x, scale=True, bias=True, dtype="float32"):
    w, b = parameter(floats(4, dtype=dtype)), parameter(floats(4, seed=1, dtype=dtype))
    return F.instance_norm(x, weight=w if scale else None, bias=b if bias else None)


for rank in (3, 4, 5):
    case(f"instance_norm/rank {rank}", instance, {"x": images(4, *range(3, rank + 1))})
case("instance_norm/bare", lambda x: instance(x, False, False), {"x": images(4, 5, 6)})
case("instance_norm/open channels", lambda x: instance(x, False, False), {"x": ([None, None, None, None], [floats(2, 3, 4, 5), floats(1, 2, 3, 6)])})
case("instance_norm/f64", lambda x: instance(x, dtype="float64"), {"x": floats(2, 4, 5, 6, dtype="float64")})
data_norm = {"BatchSize": 0.5, "BatchSum": -2, "BatchSquareSum": 0.5}
for shift in (False, True):

    def make(x, shift=shift):
        given = {k: parameter(floats(4, seed=n, low=low)) for n, (k, low) in enumerate(data_norm.items())}
        if shift:
            given |= {"scale_w": parameter(floats(4, seed=4)), "bias": parameter(floats(4, seed=5))}
        return raw("data_norm", {"X": x, **given}, ["Y", "Means", "Scales"], {"enable_scale_and_shift": shift, "epsilon": 1e-4})

    case(f"data_norm/{shift}", make, {"x": ([None, 4], [floats(3, 4), floats(1, 4)])}, only="2.6")
for axis in (-1, 0, 1):
    case(f"norm/test axis {axis}", lambda x, a=axis: raw("norm", {"X": x}, ["Out", "Norm"], {"axis": a, "epsilon": 1e-6, "is_test": True})[0], {"x": floats(2, 3, 4)}, only="2.6")
for size, layout in ((5, "NCHW"), (1, "NCHW"), (3, "NHWC")):
    case(f"lrn/raw {size} {layout}", lambda x, n=size, l=layout: raw("lrn", {"X": x}, ["Out", "MidOut"], {"n": n, "k": 1.5, "alpha": 0.02, "beta": 0.6, "data_format": l})[0], {"x": floats(2, 7, 5, 6)}, only="2.6")
for layout in ("NCHW", "NHWC"):
    make = lambda x, l=layout: raw("affine_channel", {"X": x, "Scale": parameter(floats(3)), "Bias": parameter(floats(3, seed=1))}, ["Out"], {"data_layout": l})
    case(f"affine_channel/{layout}", make, {"x": floats(2, 3, 4, 3)}, only="2.6")
for dim, iterations in ((0, 1), (1, 2), (0, 0)):
    make = lambda x, d=dim, i=iterations: paddle.static.nn.spectral_norm(x, dim=d, power_iters=i)
    case(f"spectral_norm/{dim} {iterations}", make, {"x": floats(4, 5, 3)}, only="2.6")
    make = lambda x, u, v, d=dim, i=iterations: raw("spectral_norm", {"Weight": x, "U": u, "V": v}, ["Out"], {"dim": d, "power_iters": i})
    case(f"spectral_norm/raw {dim} {iterations}", make, {"x": floats(4, 5, 3), "u": floats((4, 5)[dim]), "v": floats((15, 12)[dim])}, only="2.6")
if IS_PIR:
    case("affine_channel/PIR", lambda x: paddle._C_ops.affine_channel(x, parameter(floats(3)), parameter(floats(3, seed=1)), "NCHW"), {"x": floats(2, 3, 4, 3)}, only="3.3")
    case("norm/PIR", lambda x: paddle._C_ops.norm(x, 1, 1e-6, False)[0], {"x": floats(2, 3, 4)}, only="3.3")

# ---- losses

for axis, soft in itertools.product((-1, 1), (False, True)):
    labels = floats(2, 5, 5, low=0, high=1) if soft else ints(*((2, 5, 1) if axis == -1 else (2, 1, 5)), low=0, high=5)
    if not soft:
        labels.flat[0] = -100
    make = lambda x, y, a=axis, s=soft: F.softmax_with_cross_entropy(x, y, soft_label=s, axis=a, return_softmax=True)
    case(f"softmax_with_cross_entropy/axis {axis} {soft}", make, {"x": floats(2, 5, 5), "y": labels})
case("cross_entropy/hard", lambda x, y: raw("cross_entropy", {"X": x, "Label": y}, ["Y"]), {"x": floats(3, 5, low=0.1, high=1), "y": ints(3, 1, low=0, high=5)}, only="2.6")
case("cross_entropy/soft", lambda x, y: raw("cross_entropy", {"X": x, "Label": y}, ["Y"], {"soft_label": True}), {"x": floats(3, 5, low=0.1, high=1), "y": floats(3, 5, low=0, high=1)}, only="2.6")
case("cross_entropy/2", lambda x, y: raw("cross_entropy2", {"X": x, "Label": y}, ["Y", "XShape", "MatchX"])[0], {"x": floats(3, 5, low=0.1, high=1), "y": ints(3, 1, low=0, high=5)}, only="2.6")
