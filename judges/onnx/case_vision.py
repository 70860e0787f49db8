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

# ---- detection


def boxes(*shape, seed=0, extent=50.0, dtype="float32"):
    """Returns boxes (x1, y1, x2, y2)."""
    low = floats(*shape, 2, seed=seed, low=0, high=extent)
    size = floats(*shape, 2, seed=seed + 100, low=1, high=extent / 2)
    return np.concatenate([low, low + size], -1).astype(dtype)


for count, threshold in ((30, 0.3), (1, 0.5), (60, 0.1), (40, 1.0)):
    case(f"nms/{count} {threshold}", lambda x, t=threshold: paddle.vision.ops.nms(x, t), {"x": boxes(count)})
case("nms/open", lambda x: paddle.vision.ops.nms(x, 0.3), {"x": ([None, 4], [boxes(30), boxes(50, seed=1)])})


def multiclass(x, s, kind="multiclass_nms3", **more):
    attributes = {"background_label": -1, "score_threshold": 0.1, "nms_top_k": 1000, "nms_threshold": 0.5, "nms_eta": 1.0, "keep_top_k": 100, "normalized": True, **more}
    if IS_PIR:
        order = ("score_threshold", "nms_top_k", "keep_top_k", "nms_threshold", "normalized", "nms_eta", "background_label")
        return list(paddle._C_ops.multiclass_nms3(x, s, None, *(attributes[k] for k in order)))
    outs = {"Out": "float32"}
    if kind != "multiclass_nms":
        outs["Index"] = "int32"
    if kind == "multiclass_nms3":
        outs["NmsRoisNum"] = "int32"
    return raw(kind, {"BBoxes": x, "Scores": s}, outs, attributes)


NMS = (
    {},
    {"background_label": 0},
    {"background_label": 2, "keep_top_k": 7},
    {"nms_top_k": 5},
    {"nms_top_k": -1, "keep_top_k": -1},
    {"keep_top_k": 10, "nms_threshold": 0.2},
    {"normalized": False, "nms_threshold": 0.3},
    {"score_threshold": 0.99999},
    {"score_threshold": 0.9, "keep_top_k": 3, "nms_top_k": 20},
)
for more in NMS:
    for batch in (1, 3):
        data = {"x": boxes(batch, 40), "s": floats(batch, 4, 40, low=0, high=1)}
        case(f"multiclass_nms/{batch} {more}", lambda x, s, m=more: multiclass(x, s, **m), data)
    data = {"x": ([None, None, 4], [boxes(2, 40), boxes(1, 30)]), "s": ([None, 4, None], [floats(2, 4, 40, low=0, high=1), floats(1, 4, 30, low=0, high=1)])}
    case(f"multiclass_nms/open {more}", lambda x, s, m=more: multiclass(x, s, **m), data)
    case(f"multiclass_nms/1 open {more}", lambda x, s, m=more: multiclass(x, s, "multiclass_nms", **m), data, only="2.6")
    case(f"multiclass_nms/2 open {more}", lambda x, s, m=more: multiclass(x, s, "multiclass_nms2", **m), data, only="2.6")
ties = np.round(floats(2, 3, 40, low=0, high=1) * 8).astype("float32") / 8
case("multiclass_nms/equal scores", lambda x, s: multiclass(x, s, score_threshold=0.125, nms_top_k=11, keep_top_k=9), {"x": boxes(2, 40), "s": ties})
case("multiclass_nms/equal boxes", lambda x, s: multiclass(x, s), {"x": np.repeat(boxes(2, 10), 4, 1), "s": floats(2, 3, 40, low=0, high=1)})

for more in ({}, {"use_gaussian": True}, {"normalized": False}, {"background_label": 0, "keep_top_k": 6}, {"nms_top_k": 7}, {"post_threshold": 0.4}, {"score_threshold": 0.9999, "post_threshold": 0.9999}, {"keep_top_k": -1, "nms_top_k": -1}):
    given = {"score_threshold": 0.1, "post_threshold": 0.1, "nms_top_k": 20, "keep_top_k": 15, "background_label": -1, **more}
    make = lambda x, s, g=given: paddle.vision.ops.matrix_nms(x, s, return_index=True, **g)
    case(f"matrix_nms/{more}", make, {"x": boxes(2, 40), "s": floats(2, 4, 40, low=0, high=1)})
    case(f"matrix_nms/open {more}", make, {"x": ([None, None, 4], [boxes(2, 40), boxes(1, 30)]), "s": ([None, 4, None], [floats(2, 4, 40, low=0, high=1), floats(1, 4, 30, low=0, high=1)])})

for more in ({}, {"clip_bbox": False}, {"scale_x_y": 1.2}, {"conf_thresh": 0.5}, {"iou_aware": True, "iou_aware_factor": 0.4}):
    channels = 3 * (8 if not more.get("iou_aware") else 9)
    make = lambda x, s, m=more: paddle.vision.ops.yolo_box(x, s, [10, 13, 16, 30, 33, 23], 3, **{"conf_thresh": 0.01, "downsample_ratio": 32, **m})
    data = {"x": floats(2, channels, 4, 5), "s": np.array([[120, 150], [128, 128]], "int32")}
    case(f"yolo_box/{more}", make, data)
    case(f"yolo_box/open {more}", make, {"x": ([None, channels, None, None], [data["x"]]), "s": ([None, 2], [data["s"]])})
