"""Cases of interpolation, sampling and detection."""

import itertools

import numpy as np
import paddle
import paddle.nn.functional as F

from cases import IS_PIR, case, floats, ints, raw


def images(channels, *sizes, batch=2, dtype="float32"):
    """Returns images with open batch and spatial sizes, and arrays of several sizes."""
    arrays = [floats(b, channels, *(s + more for s in sizes), seed=more, dtype=dtype) for b, more in ((batch, 0), (1, 3), (3, 1))]
    return [None, channels] + [None] * len(sizes), arrays


# ---- interpolation

MODES = [("nearest", False, 1), ("bilinear", False, 0), ("bilinear", False, 1), ("bilinear", True, 1), ("bicubic", False, 1), ("bicubic", True, 1)]
for mode, corners, align in MODES:
    name = f"{mode}{' corners' if corners else ''} {align}"
    for size in ([14, 10], [5, 9], [1, 1], [7, 5], [21, 15], [3, 20]):
        if mode == "bicubic" and not corners and 1 in size:
            continue
        make = lambda x, z=size, m=mode, c=corners, a=align: F.interpolate(x, z, mode=m, align_corners=c, align_mode=a)
        case(f"interpolate/{name} size {size}", make, {"x": floats(2, 3, 7, 5)})
        case(f"interpolate/{name} open size {size}", make, {"x": images(3, 7, 5)})
    for scale in (2, 0.5, [1.5, 2.5], 1.1, 3, 0.7):
        make = lambda x, s=scale, m=mode, c=corners, a=align: F.interpolate(x, scale_factor=s, mode=m, align_corners=c, align_mode=a)
        case(f"interpolate/{name} scale {scale}", make, {"x": floats(2, 3, 7, 5)})
        case(f"interpolate/{name} open scale {scale}", make, {"x": images(3, 17, 50)})
    make = lambda x, z, m=mode, c=corners, a=align: F.interpolate(x, z, mode=m, align_corners=c, align_mode=a)
    case(f"interpolate/{name} OutSize", make, {"x": images(3, 7, 5), "z": np.array([13, 8], "int32")})
    make = lambda x, z, w, m=mode, c=corners, a=align: F.interpolate(x, [z, w], mode=m, align_corners=c, align_mode=a)
    case(f"interpolate/{name} SizeTensor", make, {"x": images(3, 7, 5), "z": np.array([13], "int32"), "w": np.array([8], "int32")})
    make = lambda x, s, m=mode, c=corners, a=align: F.interpolate(x, scale_factor=s, mode=m, align_corners=c, align_mode=a)
    case(f"interpolate/{name} Scale", make, {"x": images(3, 7, 5), "s": np.array([1.7], "float32")})
    make = lambda x, m=mode, c=corners, a=align: F.interpolate(x, [13, 8], mode=m, align_corners=c, align_mode=a, data_format="NHWC")
    case(f"interpolate/{name} NHWC", make, {"x": floats(2, 7, 5, 3)})
    make = lambda x, m=mode, c=corners, a=align: F.interpolate(x, [13, 8], mode=m, align_corners=c, align_mode=a)
    case(f"interpolate/{name} f64", make, {"x": floats(2, 3, 7, 5, dtype="float64")})
    if mode == "bicubic":
        continue
    kind = mode + "_interp"
    for corners in (False, True):
        for given in ({"out_h": 13, "out_w": 8}, {"scale": 1.7, "out_h": -1, "out_w": -1}, {"scale": 2.0, "out_h": -1, "out_w": -1}):
            attributes = {"interp_method": mode, "align_corners": corners, "align_mode": align, **given}
            make = lambda x, k=kind, a=attributes: raw(k, {"X": x}, ["Out"], a)
            case(f"interpolate/v1 {name} {corners} {given}", make, {"x": images(3, 7, 5)}, only="2.6")
        attributes = {"interp_method": mode, "align_corners": corners, "align_mode": align, "out_h": 13, "out_w": 8}
        make = lambda x, k=kind, a=attributes: raw(k + "_v2", {"X": x}, ["Out"], a)
        case(f"interpolate/v2 {name} {corners}", make, {"x": floats(2, 3, 7, 5)}, only="2.6")
for size in range(1, 40, 3):
    attributes = {"interp_method": "nearest", "align_corners": True, "out_h": size, "out_w": 2 * size}
    make = lambda x, a=attributes: raw("nearest_interp_v2", {"X": x}, ["Out"], a)
    case(f"interpolate/corners of nearest {size}", make, {"x": floats(1, 2, 14, 20)}, only="2.6")
    case(f"interpolate/corners of nearest open {size}", make, {"x": images(2, 14, 20)}, only="2.6")
    make = lambda x, z=size: F.interpolate(x, [z, 2 * z])
    case(f"interpolate/nearest sizes {size}", make, {"x": floats(1, 2, 14, 20)})
case("interpolate/nearest i32", lambda x: F.interpolate(x, [13, 8]), {"x": ints(2, 3, 7, 5, dtype="int32")})
for corners, align in ((False, 0), (False, 1), (True, 1)):
    for given in ({"size": [9]}, {"size": [3]}, {"scale_factor": 2.5}, {"size": [1]}):
        make = lambda x, g=given, c=corners, a=align: F.interpolate(x, mode="linear", align_corners=c, align_mode=a, data_format="NCW", **g)
        case(f"linear_interp/{corners} {align} {given}", make, {"x": images(3, 6)})
    for given in ({"size": [9, 4, 7]}, {"size": [1, 6, 3]}, {"scale_factor": [2.5, 1, 2]}):
        make = lambda x, g=given, c=corners, a=align: F.interpolate(x, mode="trilinear", align_corners=c, align_mode=a, data_format="NCDHW", **g)
        case(f"trilinear_interp/{corners} {align} {given}", make, {"x": images(3, 4, 5, 6)})
        case(f"trilinear_interp/fixed {corners} {align} {given}", make, {"x": floats(2, 3, 4, 5, 6)})
case("interpolate/nearest 3-D", lambda x: F.interpolate(x, [9, 4, 7], mode="nearest", data_format="NCDHW"), {"x": floats(2, 3, 4, 5, 6)})
case("interpolate/area", lambda x: F.interpolate(x, [4, 7], mode="area"), {"x": floats(2, 3, 8, 9)})

# ---- sampling

for mode, padding, corners in itertools.product(("bilinear", "nearest"), ("zeros", "border", "reflection"), (True, False)):
    make = lambda x, g, m=mode, p=padding, c=corners: F.grid_sample(x, g, m, p, c)
    case(f"grid_sampler/{mode} {padding} {corners}", make, {"x": images(3, 6, 7), "g": ([None, None, None, 2], [floats(2, 5, 4, 2), floats(1, 5, 4, 2), floats(3, 6, 5, 2)])})
case("grid_sampler/f64", F.grid_sample, {"x": floats(2, 3, 6, 7, dtype="float64"), "g": floats(2, 5, 4, 2, dtype="float64")})
for corners in (True, False):
    make = lambda t, c=corners: F.affine_grid(t, [2, 3, 5, 6], c)
    case(f"affine_grid/{corners}", make, {"t": floats(2, 2, 3)})
    make = lambda t, c=corners: F.affine_grid(t, [2, 3, 4, 5, 6], c)
    case(f"affine_grid/volume {corners}", make, {"t": floats(2, 3, 4)})
    make = lambda t, s, c=corners: F.affine_grid(t, s, c)
    case(f"affine_grid/shape as input {corners}", make, {"t": floats(2, 2, 3), "s": np.array([2, 3, 5, 6], "int32")})
for size in ([1, 9], [4, 1]):
    make = lambda x, z=size: F.interpolate(x, z, mode="bilinear", align_corners=False, align_mode=0)
    case(f"interpolate/bilinear one {size}", make, {"x": images(3, 7, 5)})
