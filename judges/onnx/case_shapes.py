"""Cases of shapes, slices, indices, and creation of tensors."""

import numpy as np
import paddle

from cases import bools, case, floats, ints, raw
from run import IS_PIR

F = paddle.nn.functional
DTYPES = ["float32", "float64", "int32", "int64", "bool", "uint8", "int8", "int16", "float16"]


def of(dtype, *shape, seed=0):
    """Returns random elements of a dtype."""
    if dtype == "bool":
        return bools(*shape, seed=seed)
    if dtype.startswith("float"):
        return floats(*shape, seed=seed, dtype=dtype)
    return ints(*shape, seed=seed, low=0, high=7, dtype=dtype)


def index(*values, dtype="int64"):
    return np.array(values, dtype=dtype)


def at(value, dtype="int64"):
    """Returns a number as a tensor that the program computes."""
    return paddle.full([], value, dtype) if IS_PIR else paddle.full([1], value, dtype)


OPEN = ([None, 3, 4], [floats(2, 3, 4), floats(5, 3, 4, seed=1), floats(1, 3, 4, seed=2)])
ALL_OPEN = ([None, None, None], [floats(2, 3, 4), floats(1, 5, 2, seed=1), floats(4, 1, 1, seed=2)])
X = {"x": floats(2, 3, 4)}
IMAGE = ([None, 8, None, None], [floats(2, 8, 4, 6), floats(1, 8, 2, 8)])
EMPTY = np.zeros((0, 3), "float32")

# ---- layout
for name, shape in {"plain": [4, 6], "rest": [2, -1], "copied": [0, -1], "copied both": [0, 0, 2, 2], "flat": [-1], "rank 4": [1, 2, 3, 4]}.items():
    case(f"reshape/{name}", lambda x, s=shape: paddle.reshape(x, s), X)
case("reshape/open", lambda x: paddle.reshape(x, [0, -1]), {"x": OPEN})
case("reshape/open rest", lambda x: paddle.reshape(x, [-1, 6]), {"x": OPEN})
case("reshape/scalar", lambda x: paddle.reshape(x, []), {"x": floats(1, 1)})
case("reshape/of scalar", lambda x: paddle.reshape(x, [1, 1]), {"x": floats()})
case("reshape/empty", lambda x: paddle.reshape(x, [0, 3, 1]), {"x": EMPTY}, only="3.3")
case("reshape/of shape", lambda x: paddle.reshape(x, [paddle.shape(x)[0], -1]), {"x": OPEN})
case("reshape/of sizes", lambda x: paddle.reshape(x, [paddle.shape(x)[2], paddle.shape(x)[0], 3]), {"x": OPEN})
case("reshape/tensor", lambda x, s: paddle.reshape(x, s), {"x": floats(2, 6), "s": ([2], [index(3, 4, dtype="int32"), index(12, 1, dtype="int32")])})
for dtype in DTYPES:
    case(f"reshape/{dtype}", lambda x: paddle.reshape(x, [3, 2]), {"x": of(dtype, 2, 3)})
    if IS_PIR or dtype not in ("uint8", "int8", "int16"):
        case(f"transpose/{dtype}", lambda x: paddle.transpose(x, [1, 0]), {"x": of(dtype, 2, 3)})
case("transpose/open", lambda x: paddle.transpose(x, [2, 0, 1]), {"x": ALL_OPEN})
case("transpose/negative", lambda x: paddle.transpose(x, [0, -1, 1]), X)
for name, axes in {"one": [1], "two": [1, -1], "all": None, "not one": [0, 1], "negative": [-1]}.items():
    case(f"squeeze/{name}", lambda x, a=axes: paddle.squeeze(x, a), {"x": floats(2, 1, 3, 1)})
case("squeeze/open", lambda x: paddle.squeeze(x, [1]), {"x": ([None, 1, None], [floats(2, 1, 3), floats(1, 1, 1)])})
case("squeeze/open all", lambda x: paddle.squeeze(x), {"x": ([None, 1, 3], [floats(2, 1, 3), floats(1, 1, 3)])})
case("squeeze/scalar", lambda x: paddle.squeeze(x), {"x": floats()})
for name, axes in {"front": [0], "end": [-1], "both": [0, -1], "order": [1, 0], "negative": [-1, -2], "int": 1}.items():
    case(f"unsqueeze/{name}", lambda x, a=axes: paddle.unsqueeze(x, a), X)
case("unsqueeze/scalar", lambda x: paddle.unsqueeze(x, 0), {"x": floats()})
case("unsqueeze/open", lambda x: paddle.unsqueeze(x, [1, 3]), {"x": ALL_OPEN})
for start, stop in [(0, -1), (1, -1), (0, 1), (1, 2), (2, 2), (-2, -1)]:
    case(f"flatten/{start} to {stop}", lambda x, a=start, z=stop: paddle.flatten(x, a, z), X)
    case(f"flatten/{start} to {stop} open", lambda x, a=start, z=stop: paddle.flatten(x, a, z), {"x": ALL_OPEN})
case("flatten/scalar", lambda x: paddle.flatten(x), {"x": floats()})
case("flatten/middle of four", lambda x: paddle.flatten(x, 1, 2), {"x": ([None, None, None, None], [floats(2, 3, 4, 5), floats(1, 2, 1, 3)])})
for axis in (0, 1, 2, 3):
    case(f"flatten2/{axis}", lambda x, a=axis: raw("flatten2", {"X": x}, ["Out", "XShape"], {"axis": a})[0], {"x": ALL_OPEN}, only="2.6")
for axis in (0, 1, -1):
    case(f"concat/{axis}", lambda x, y, a=axis: paddle.concat([x, y], a), {"x": floats(2, 3, 4), "y": floats(2, 3, 4, seed=1)})
    case(f"stack/{axis}", lambda x, y, a=axis: paddle.stack([x, y], a), {"x": OPEN, "y": OPEN})
for dtype in DTYPES:
    if dtype != "uint8" and (IS_PIR or dtype != "int16"):
        case(f"concat/{dtype}", lambda x, y: paddle.concat([x, y], 1), {"x": of(dtype, 2, 3), "y": of(dtype, 2, 1)})
case("concat/open", lambda x, y: paddle.concat([x, y], 0), {"x": OPEN, "y": floats(2, 3, 4, seed=3)})
case("concat/one", lambda x: paddle.concat([x], 0), X)
case("concat/axis tensor", lambda x, y: paddle.concat([x, y], paddle.full([1], 1, "int32")), {"x": floats(2, 3), "y": floats(2, 1)})
case("concat/empty", lambda x, y: paddle.concat([x, y], 0), {"x": EMPTY, "y": floats(2, 3)})
case("stack/scalars", lambda x, y: paddle.stack([x, y]), {"x": floats(), "y": floats(seed=1)})
case("stack/one", lambda x: paddle.stack([x], -1), X)
case("unstack/1", lambda x: paddle.unstack(x, 1), X)
case("unstack/-1", lambda x: paddle.unstack(x, -1), {"x": OPEN})
case("unbind/0", lambda x: paddle.unbind(x, 0), X)
case("unbind/2 open", lambda x: paddle.unbind(x, 2), {"x": OPEN})
case("unbind/one", lambda x: paddle.unbind(x, 0), {"x": floats(1, 3)})
case("split/num", lambda x: paddle.split(x, 2, 2), {"x": OPEN})
case("split/num open", lambda x: paddle.split(x, 2, 0), {"x": ([None, 3], [floats(4, 3), floats(2, 3)])})
case("split/sections", lambda x: paddle.split(x, [1, 3], 2), {"x": OPEN})
case("split/rest", lambda x: paddle.split(x, [1, -1, 1], -1), {"x": OPEN})
case("split/rest open", lambda x: paddle.split(x, [1, -1], 0), {"x": ([None, 3], [floats(4, 3), floats(2, 3)])})
case("split/one", lambda x: paddle.split(x, 1, 1), X)
case("split/one section", lambda x: paddle.split(x, [3], 1), X)
case("split/axis tensor", lambda x: paddle.split(x, [1, 2], at(1, "int32")), X)
case("split/section tensors", lambda x: paddle.split(x, [at(1, "int32"), 2], 1), X)
case("split/section of shape", lambda x, y: paddle.split(x, [paddle.shape(y)[0], -1], 1), {"x": floats(2, 3), "y": ([None], [floats(1), floats(2)])})
case("split/zero section", lambda x: paddle.split(x, [0, 3], 1), X)
for dtype in DTYPES:
    if IS_PIR and dtype != "int16" or dtype not in ("uint8", "int8", "int16"):
        case(f"split/{dtype}", lambda x: paddle.split(x, 2, 1), {"x": of(dtype, 3, 4)})
for name, shape in {"plain": [2, 3], "kept": [2, -1], "more": [4, 2, 3], "kept more": [4, -1, 3]}.items():
    case(f"expand/{name}", lambda x, s=shape: paddle.expand(x, s), {"x": floats(1, 3) if "kept more" != name else floats(2, 1)})
case("expand/open", lambda x: paddle.expand(x, [2, -1, 3]), {"x": ([None, 1], [floats(2, 1), floats(1, 1), floats(4, 1)])})
case("expand/of shape", lambda x, y: paddle.expand(x, paddle.shape(y)), {"x": floats(1, 3), "y": ([None, 3], [floats(2, 3), floats(5, 3)])})
case("expand/of sizes", lambda x, y: paddle.expand(x, [paddle.shape(y)[0], -1, -1]), {"x": floats(1, 3), "y": ([None, 3], [floats(2, 3), floats(5, 3)])})
case("expand/scalar", lambda x: paddle.expand(x, [2, 3]), {"x": floats()})
for dtype in DTYPES:
    if IS_PIR or dtype not in ("uint8", "int8", "int16"):
        case(f"expand/{dtype}", lambda x: paddle.expand(x, [2, 3]), {"x": of(dtype, 1, 3)})
    if dtype not in ("uint8", "int8", "int16") and (IS_PIR or dtype != "float16"):
        case(f"tile/{dtype}", lambda x: paddle.tile(x, [2, 1]), {"x": of(dtype, 2, 3)})
case("expand_as/plain", lambda x, y: paddle.expand_as(x, y), {"x": floats(1, 3), "y": floats(2, 3)})
case("expand_as/open", lambda x, y: paddle.expand_as(x, y), {"x": floats(1, 3), "y": ([None, None, 3], [floats(2, 2, 3), floats(5, 1, 3)])})
case("expand v1/plain", lambda x: raw("expand", {"X": x}, ["Out"], {"expand_times": [2, 1, 3]})[0], X, only="2.6")
for name, times in {"plain": [2, 1, 3], "fewer": [2], "more": [2, 1, 1, 2], "ones": [1, 1, 1], "zero": [0, 1, 1]}.items():
    case(f"tile/{name}", lambda x, t=times: paddle.tile(x, t), X, only="3.3" if name == "zero" else None)
case("tile/open", lambda x: paddle.tile(x, [2, 1, 3]), {"x": ALL_OPEN})
case("tile/of shape", lambda x, y: paddle.tile(x, [paddle.shape(y)[0], 2]), {"x": floats(1, 3), "y": ([None], [floats(2), floats(1)])})
case("tile/scalar", lambda x: paddle.tile(x, [3]), {"x": floats()})
case("broadcast_tensors/plain", lambda x, y: paddle.broadcast_tensors([x, y]), {"x": floats(1, 3), "y": floats(2, 1)})
case("broadcast_tensors/open", lambda x, y: paddle.broadcast_tensors([x, y]), {"x": ([None, 3], [floats(1, 3), floats(2, 3)]), "y": ([None, None, 1], [floats(4, 2, 1), floats(1, 1, 1)])})
case("meshgrid/two", lambda x, y: paddle.meshgrid(x, y), {"x": ([None], [floats(2), floats(5)]), "y": floats(3)})
case("meshgrid/three", lambda x, y, z: paddle.meshgrid(x, y, z), {"x": floats(2), "y": floats(3), "z": floats(1)})
case("pixel_shuffle/plain", lambda x: F.pixel_shuffle(x, 2), {"x": IMAGE})
case("pixel_shuffle/last", lambda x: F.pixel_shuffle(x, 2, "NHWC"), {"x": floats(2, 3, 4, 8)})
case("pixel_unshuffle/plain", lambda x: F.pixel_unshuffle(x, 2), {"x": floats(2, 8, 4, 6)})
case("pixel_unshuffle/last", lambda x: F.pixel_unshuffle(x, 2, "NHWC"), {"x": floats(2, 4, 4, 3)})
case("channel_shuffle/plain", lambda x: F.channel_shuffle(x, 4), {"x": IMAGE})
case("channel_shuffle/last", lambda x: F.channel_shuffle(x, 2, "NHWC"), {"x": floats(2, 4, 4, 6)})
case("shuffle_channel/plain", lambda x: raw("shuffle_channel", {"X": x}, ["Out"], {"group": 4})[0], {"x": IMAGE}, only="2.6")
case("temporal_shift/plain", lambda x: F.temporal_shift(x, 2), {"x": ([None, 8, 2, 3], [floats(4, 8, 2, 3), floats(2, 8, 2, 3)])})
case("temporal_shift/ratio", lambda x: F.temporal_shift(x, 3, 0.3), {"x": floats(6, 5, 2, 3)})
case("temporal_shift/last", lambda x: F.temporal_shift(x, 2, 0.2, data_format="NHWC"), {"x": floats(4, 2, 3, 8)})
case("repeat_interleave/plain", lambda x: paddle.repeat_interleave(x, 2, 1), {"x": ALL_OPEN})
case("repeat_interleave/flat", lambda x: paddle.repeat_interleave(x, 3), X)
case("repeat_interleave/tensor", lambda x, r: paddle.repeat_interleave(x, r, 1), {"x": floats(2, 3), "r": ([3], [index(1, 0, 2), index(2, 3, 1)])})
case("partial_concat/plain", lambda x, y: raw("partial_concat", {"X": [x, y]}, ["Out"], {"start_index": 1, "length": 2})[0], {"x": floats(2, 4), "y": floats(2, 4, seed=1)}, only="2.6")
case("partial_concat/to the end", lambda x, y: raw("partial_concat", {"X": [x, y]}, ["Out"], {"start_index": -2, "length": -1})[0], {"x": floats(2, 4), "y": floats(2, 4)}, only="2.6")

# ---- slices
SLICES = {
    "range": lambda x: x[:, 1:3],
    "negative": lambda x: x[:, -2:, :-1],
    "index": lambda x: x[1],
    "index negative": lambda x: x[-1],
    "index last": lambda x: x[..., -1],
    "indices": lambda x: x[0, 1, 2],
    "mixed": lambda x: x[0, 1:, -1],
    "new": lambda x: x[:, None, 1],
    "beyond": lambda x: x[:, 1:100],
    "nothing": lambda x: x[:, 2:1],
    "step": lambda x: x[:, ::2],
    "step negative": lambda x: x[:, ::-1],
    "step negative range": lambda x: x[:, :, 3:0:-2],
    "step negative index": lambda x: x[0, ::-1, 1],
    "step and end": lambda x: x[:, :, 1:-1:2],
}
for name, make in SLICES.items():
    only = "3.3" if name == "nothing" else None
    case(f"slice/{name}", make, X, only=only)
    case(f"slice/{name} open", make, only=only, inputs={"x": ([None, 3, None], [floats(2, 3, 4), floats(3, 3, 5)])})
case("slice/function", lambda x: paddle.slice(x, [0, 2], [0, -3], [1, -1]), X)
case("slice/tensor", lambda x: paddle.slice(x, [0, 2], [0, at(1, "int32")], [1, 3]), X)
case("slice/of shape", lambda x, y: x[:, : paddle.shape(y)[0]], {"x": floats(2, 3), "y": ([None], [floats(1), floats(2)])})
case("slice/index tensor", lambda x, i: paddle.slice(x, [1], i, i + 1), {"x": floats(2, 3), "i": ([1], [index(0, dtype="int32"), index(1, dtype="int32")])})
case("slice/shape element", lambda x: paddle.shape(x)[1] + 0, {"x": ALL_OPEN})
case("slice/shape range", lambda x: paddle.shape(x)[1:], {"x": ALL_OPEN})
for dtype in DTYPES:
    case(f"slice/{dtype}", lambda x: x[1:, 0], {"x": of(dtype, 3, 4)})
case("strided_slice/plain", lambda x: paddle.strided_slice(x, [1, 2], [0, 3], [3, 0], [2, -1]), X)
case("strided_slice/tensor", lambda x: paddle.strided_slice(x, [1, 2], [0, at(1, "int32")], [3, 4], [2, 1]), X)
case("strided_slice/negative ends", lambda x: paddle.strided_slice(x, [1, 2], [-1, -1], [-3, -5], [-1, -2]), X)
case("strided_slice/to the front", lambda x: paddle.strided_slice(x, [2], [3], [-1], [-1]), X)
for end in (-100, -5, -4, -3):
    case(f"strided_slice/end {end}", lambda x, e=end: paddle.strided_slice(x, [2], [3], [e], [-1]), {"x": ALL_OPEN})
    case(f"strided_slice/end {end} known", lambda x, e=end: paddle.strided_slice(x, [2], [3], [e], [-1]), X)
case("strided_slice/end tensor", lambda x, e: paddle.strided_slice(x, [0], [3], e, [-1]), {"x": floats(5), "e": ([1], [index(i, dtype="int32") for i in (-1, -2, -7, 1)])})
case("strided_slice/beyond", lambda x: paddle.strided_slice(x, [2], [100], [-100], [-2]), X)
case("crop/plain", lambda x: paddle.crop(x, [1, 2, 2], [0, 1, 1]), X)
case("crop/rest", lambda x: paddle.crop(x, [1, -1, 2], [0, 1, 1]), X)
case("crop/open", lambda x: paddle.crop(x, [-1, 2, 2], [0, 1, 1]), {"x": OPEN})
case("crop/no offsets", lambda x: paddle.crop(x, [1, 2, 2]), X)
case("crop/tensors", lambda x, s: paddle.crop(x, s, [0, 1, 1]), {"x": floats(2, 3, 4), "s": ([3], [index(1, 2, 2, dtype="int32"), index(2, 1, 3, dtype="int32")])})
case("crop v1/plain", lambda x: raw("crop", {"X": x}, ["Out"], {"offsets": [0, 1, 1], "shape": [2, 2, 2]})[0], X, only="2.6")


def put(place, value):
    """Returns a program that assigns to a slice of a copy."""

    def make(x, *others):
        y = paddle.assign(x)
        made = value(*others) if callable(value) else value
        if hasattr(paddle.static, "setitem"):
            return paddle.static.setitem(y, place, made)
        y[place] = made
        return y

    return make


s_ = np.s_
for name, place in {"index": s_[1], "negative index": s_[-1], "range": s_[:, 1:], "step": s_[:, ::2], "step negative": s_[:, ::-1], "last": s_[..., -1], "all": s_[:], "indices": s_[0, 1, 2], "new": s_[:, None, 1]}.items():
    case(f"set_value/{name}", put(place, 3.0), X)
    case(f"set_value/{name} open", put(place, 3.0), {"x": ([None, 3, None], [floats(2, 3, 4), floats(3, 3, 5)])})
case("set_value/tensor", put(s_[:, 1], lambda v: v), {"x": floats(2, 3, 4), "v": floats(2, 4)})
case("set_value/tensor broadcast", put(s_[:, 1:], lambda v: v), {"x": OPEN, "v": floats(4)})
case("set_value/tensor more", put(s_[0], lambda v: v), {"x": floats(2, 3, 4), "v": floats(1, 3, 4)})
case("set_value/tensor scalar", put(s_[0], lambda v: v), {"x": floats(2, 3, 4), "v": floats()})
case("set_value/array", put(s_[0, 0], np.array([1, 2, 3, 4], "float32")), X)
case("set_value/of shape", lambda x, z: put(s_[:, : paddle.shape(z)[0]], 1.0)(x), {"x": floats(2, 3), "z": ([None], [floats(1), floats(2)])})
for dtype in ["float32", "float64", "int32", "int64", "bool", "float16"]:
    case(f"set_value/{dtype}", put(s_[:, 1], True if dtype == "bool" else 3), {"x": of(dtype, 2, 3)})
for mode in ("constant", "reflect", "replicate", "circular"):
    case(f"pad3d/{mode}", lambda x, m=mode: F.pad(x, [1, 2, 0, 1], m, data_format="NCHW"), {"x": IMAGE})
    case(f"pad3d/{mode} last", lambda x, m=mode: F.pad(x, [1, 2, 0, 1], m, data_format="NHWC"), {"x": floats(2, 3, 4, 2)})
    case(f"pad3d/{mode} line", lambda x, m=mode: F.pad(x, [1, 2], m, data_format="NCL"), X)
    case(f"pad3d/{mode} volume", lambda x, m=mode: F.pad(x, [1, 0, 2, 1, 0, 1], m, data_format="NCDHW"), {"x": floats(1, 2, 3, 4, 5)})
    case(f"pad3d/{mode} volume last", lambda x, m=mode: F.pad(x, [1, 0, 2, 1, 0, 1], m, data_format="NDHWC"), {"x": floats(1, 3, 4, 5, 2)})
case("pad3d/value", lambda x: F.pad(x, [1, 2, 0, 1], value=1.5), {"x": IMAGE})
case("pad3d/tensor", lambda x: F.pad(x, paddle.full([4], 1, "int32")), {"x": IMAGE})
case("pad3d/of shape", lambda x, y: F.pad(x, paddle.cast(paddle.shape(y), "int32"), "replicate"), {"x": IMAGE, "y": ([None, 1, 0, 2], [np.zeros((1, 1, 0, 2), "float32"), np.zeros((2, 1, 0, 2), "float32")])})
for dtype in DTYPES:
    if dtype not in ("bool", "uint8", "int8", "int16", "float16"):
        case(f"pad3d/{dtype}", lambda x: F.pad(x, [1, 2, 0, 1], value=2), {"x": of(dtype, 1, 2, 3, 4)})
case("pad/plain", lambda x: F.pad(x, [1, 2, 0, 1], value=2.0), {"x": floats(2, 3)})
case("pad/int", lambda x: F.pad(x, [1, 2, 0, 1], value=2), {"x": ints(2, 3)})
case("pad/open", lambda x: F.pad(x, [0, 0, 1, 2, 0, 1], value=2.0), {"x": ALL_OPEN})
for name, (shifts, axes) in {"one": (1, 0), "two": ([1, -1], [0, 2]), "flat": (5, None), "beyond": (7, 1), "negative": (-2, -1)}.items():
    case(f"roll/{name}", lambda x, s=shifts, a=axes: paddle.roll(x, s, a), X)
    case(f"roll/{name} open", lambda x, s=shifts, a=axes: paddle.roll(x, s, a), {"x": ALL_OPEN})
for dtype in DTYPES:
    if dtype not in ("uint8", "int8", "int16", "float16"):
        case(f"flip/{dtype}", lambda x: paddle.flip(x, [0]), {"x": of(dtype, 2, 3)})
case("flip/open", lambda x: paddle.flip(x, [0, -1]), {"x": ALL_OPEN})
case("reverse/plain", lambda x: raw("reverse", {"X": x}, ["Out"], {"axis": [1]})[0], X, only="2.6")

# ---- indices
# Paddle 2.6 reads beyond the sizes for a negative axis.
for axis in (0, 1, -1):
    case(f"gather/{axis}", lambda x, i, a=axis: paddle.gather(x, i, a), {"x": floats(3, 3, 4), "i": index(2, 0, 1, 1)}, only="3.3" if axis < 0 else None)
case("gather/open", lambda x, i: paddle.gather(x, i), {"x": OPEN, "i": ([None], [index(1, 0), index(3, 4, 4), index(0)])})
case("gather/column", lambda x, i: paddle.gather(x, i), {"x": floats(3, 4), "i": index([2], [0])})
case("gather/scalar", lambda x, i: paddle.gather(x, i), {"x": floats(3, 4), "i": np.array(2)})
case("gather/axis tensor", lambda x, i: paddle.gather(x, i, at(1, "int32")), {"x": floats(3, 4), "i": index(2, 0)})
case("gather/int32", lambda x, i: paddle.gather(x, i), {"x": floats(3, 4), "i": index(2, 0, dtype="int32")})
case("gather/empty", lambda x, i: paddle.gather(x, i), {"x": floats(3, 4), "i": ([None], [np.zeros(0, "int64"), index(1)])})
for dtype in DTYPES:
    if dtype not in ("int8", "float16") and (IS_PIR or dtype not in ("bool", "int16")):
        case(f"gather/{dtype}", lambda x, i: paddle.gather(x, i), {"x": of(dtype, 3, 4), "i": index(2, 0)})
for name, i in {"full": index([0, 1, 2], [1, 2, 3]), "partial": index([0, 1], [1, 2]), "rows": index([1]), "flat": index(1, 2), "deep": index([[0], [1]], [[1], [0]])}.items():
    case(f"gather_nd/{name}", lambda x, i: paddle.gather_nd(x, i), {"x": floats(2, 3, 4), "i": i})
case("gather_nd/int32", lambda x, i: paddle.gather_nd(x, i), {"x": floats(2, 3, 4), "i": index([0, 1], dtype="int32")})
case("gather_nd/open", lambda x, i: paddle.gather_nd(x, i), {"x": OPEN, "i": ([None, 2], [index([0, 1]), index([1, 1], [2, 2]), index([0, 0])])})
case("gather_nd/none", lambda x, i: paddle.gather_nd(x, i), {"x": floats(2, 3), "i": np.zeros((2, 0), "int64")})
case("getitem/tensor", lambda x, i: x[i], {"x": floats(3, 4), "i": index(2, 0)})
case("getitem/two tensors", lambda x, i, j: x[i, j], {"x": floats(3, 4), "i": index(2, 0), "j": index(1, 3)})
case("getitem/mask", lambda x, m: x[m], {"x": floats(3, 4), "m": bools(3, 4)})
case("getitem/row mask", lambda x, m: x[m], {"x": floats(3, 4), "m": np.array([True, False, True])})
case("index_select/1", lambda x, i: paddle.index_select(x, i, 1), {"x": OPEN, "i": index(2, 0)})
case("index_select/int32", lambda x, i: paddle.index_select(x, i, -1), {"x": floats(2, 3), "i": index(2, 0, 0, 1, dtype="int32")})
case("index_sample/plain", lambda x, i: paddle.index_sample(x, i), {"x": ([None, 4], [floats(2, 4), floats(1, 4)]), "i": ([None, 2], [index([0, 1], [3, 3]), index([2, 1])])})
for axis, i in {0: index([[0, 1, 0, 1]], [[1, 1, 1, 0]]), 1: index([[0], [1]], [[2], [1]]), -1: index([[3, 0]])}.items():
    case(f"take_along_axis/{axis}", lambda x, i, a=axis: paddle.take_along_axis(x, i, a), {"x": floats(2, 3, 4), "i": i})
case("take_along_axis/same", lambda x, i: paddle.take_along_axis(x, i, 1), {"x": floats(2, 3), "i": index([0, 1, 1, 2], [2, 1, 0, 0])})
case("take_along_axis/narrow", lambda x, i: paddle.take_along_axis(x, i, 1, broadcast=False), {"x": floats(3, 4), "i": index([0, 1], [2, 3])}, only="3.3")
for reduce in ("assign", "add", "mul", "multiply", "amax", "amin", "mean"):
    if not IS_PIR and reduce in ("amax", "amin", "mean"):
        continue
    case(f"put_along_axis/{reduce}", lambda x, i, v, r=reduce: paddle.put_along_axis(x, i, v, 1, r), {"x": floats(2, 3), "i": index([0, 2], [2, 1]), "v": floats(2, 2, seed=3)})
    case(f"put_along_axis/{reduce} number", lambda x, i, r=reduce: paddle.put_along_axis(x, i, 3.0, 0, r), {"x": floats(2, 3), "i": index([0, 1, 1])}, only="3.3")
    if IS_PIR:
        case(f"put_along_axis/{reduce} without self", lambda x, i, v, r=reduce: paddle.put_along_axis(x, i, v, 1, r, include_self=False), {"x": floats(2, 3), "i": index([0, 0], [2, 1]), "v": floats(2, 2, seed=3)} if reduce != "assign" else {"x": floats(2, 3), "i": index([0, 1], [2, 1]), "v": floats(2, 2, seed=3)})
if IS_PIR:
    for reduce in ("amax", "amin"):
        for include in (True, False):
            case(f"put_along_axis/{reduce} int {include}", lambda x, i, v, r=reduce, c=include: paddle.put_along_axis(x, i, v, 0, r, include_self=c), {"x": ints(3, 2), "i": index([0, 1], [0, 1], [2, 1]), "v": ints(3, 2, seed=3)})
case("put_along_axis/int", lambda x, i, v: paddle.put_along_axis(x, i, v, 1, "add"), {"x": ints(2, 3), "i": index([0, 0], [2, 1]), "v": ints(2, 2, seed=3)})
for overwrite in (True, False):
    for name, i in {"plain": index(2, 0), "twice": index(1, 1), "int32": index(0, 2, dtype="int32"), "column": index([2], [1])}.items():
        if overwrite and name == "twice":
            continue
        case(f"scatter/{name} {overwrite}", lambda x, i, u, o=overwrite: paddle.scatter(x, i, u, o), {"x": floats(3, 4), "i": i, "u": floats(2, 4, seed=4)})
case("scatter/int", lambda x, i, u: paddle.scatter(x, i, u, False), {"x": ints(3, 4), "i": index(1, 1), "u": ints(2, 4, seed=4)})
case("scatter/open", lambda x, i, u: paddle.scatter(x, i, u), {"x": floats(3, 4), "i": ([None], [index(1, 0), index(2)]), "u": ([None, 4], [floats(2, 4), floats(1, 4)])})
case("scatter_nd_add/plain", lambda x, i, u: paddle.scatter_nd_add(x, i, u), {"x": floats(3, 4), "i": index([1, 2], [1, 2], [0, 3]), "u": floats(3, seed=4)})
case("scatter_nd_add/rows", lambda x, i, u: paddle.scatter_nd_add(x, i, u), {"x": floats(3, 4), "i": index([1], [0]), "u": floats(2, 4, seed=4)})
case("scatter_nd/plain", lambda i, u: paddle.scatter_nd(i, u, [3, 4]), {"i": index([1], [0]), "u": floats(2, 4, seed=4)})
case("index_add/0", lambda x, i, u: paddle.index_add(x, i, 0, u), {"x": floats(3, 4), "i": index(1, 1), "u": floats(2, 4, seed=4)})
case("index_add/1", lambda x, i, u: paddle.index_add(x, i, 1, u), {"x": floats(3, 4, 2), "i": index(1, 3, dtype="int32"), "u": floats(3, 2, 2, seed=4)})
for accumulate in (True, False):
    case(f"index_put/two {accumulate}", lambda x, i, j, v, a=accumulate: paddle.index_put(x, (i, j), v, a), {"x": floats(3, 4, 2), "i": index(1, 2), "j": index(0, 3), "v": floats(2, 2, seed=4)})
    case(f"index_put/broadcast {accumulate}", lambda x, i, j, v, a=accumulate: paddle.index_put(x, (i, j), v, a), {"x": floats(3, 4, 2), "i": index([1], [2]), "j": index(0, 3), "v": floats(1, seed=4)})
case("index_put/mask", lambda x, m, v: paddle.index_put(x, (m,), v), {"x": floats(3, 4), "m": bools(3, 4), "v": floats(1)})
case("index_fill/plain", lambda x, i: paddle.index_fill(x, i, 1, 2.0), {"x": floats(2, 3, 4), "i": index(2, 0)}, only="3.3")


def table(*shape):
    return paddle.create_parameter(list(shape), "float32", default_initializer=paddle.nn.initializer.Assign(floats(*shape, seed=9)))


for padding in (None, 1, -1):
    case(f"embedding/{padding}", lambda i, p=padding: F.embedding(i, table(5, 3), padding_idx=p), {"i": ([None, 2], [index([0, 1], [4, 2]), index([1, 1])])})
case("embedding/int32", lambda i: F.embedding(i, table(5, 3)), {"i": index([0, 1], [4, 2], dtype="int32")})
case("embedding/computed table", lambda i, w: F.embedding(i, w, padding_idx=2), {"i": index(0, 2), "w": floats(3, 2)})
for padding in (-1, 2):
    case(f"lookup_table/{padding}", lambda i, p=padding: raw("lookup_table", {"Ids": i, "W": table(5, 3)}, ["Out"], {"padding_idx": p})[0], {"i": ([None, 1], [index([0], [2]), index([1])])}, only="2.6")
for dtype in DTYPES:
    if dtype not in ("uint8", "int8", "float16"):
        case(f"nonzero/{dtype}", lambda x: paddle.nonzero(x), {"x": of(dtype, 3, 4)})
case("nonzero/tuple", lambda x: paddle.nonzero(x, as_tuple=True), {"x": bools(3, 4)})
case("nonzero/none", lambda x: paddle.nonzero(x), {"x": np.zeros((2, 3), "bool")})
case("masked_select/plain", lambda x, m: paddle.masked_select(x, m), {"x": OPEN, "m": ([None, 3, 4], [bools(2, 3, 4), bools(5, 3, 4), bools(1, 3, 4)])})
case("masked_select/int", lambda x, m: paddle.masked_select(x, m), {"x": ints(3, 4), "m": bools(3, 4)})
case("masked_select/broadcast", lambda x, m: paddle.masked_select(x, m), {"x": floats(3, 4), "m": bools(4)}, only="3.3")
case("masked_fill/plain", lambda x, m: paddle.masked_fill(x, m, 2.0), {"x": floats(3, 4), "m": bools(3, 4)})
case("masked_fill/broadcast", lambda x, m: paddle.masked_fill(x, m, 2), {"x": ints(3, 4), "m": bools(4)})
for axis in (0, 1, -1):
    for largest in (True, False):
        case(f"topk/{axis} {largest}", lambda x, a=axis, g=largest: paddle.topk(x, 2, a, g), {"x": floats(3, 4, 5)})
case("topk/k tensor", lambda x: paddle.topk(x, at(2, "int32")), {"x": floats(3, 4)})
case("topk/of shape", lambda x, y: paddle.topk(x, paddle.shape(y)[0:1]), {"x": floats(3, 4), "y": ([None], [floats(1), floats(3)])})
case("topk/scalar", lambda x: paddle.topk(x, 1), {"x": floats()})
case("topk/v1", lambda x: raw("top_k", {"X": x}, {"Out": "float32", "Indices": "int64"}, {"k": 2}), {"x": floats(3, 4)}, only="2.6")
for dtype in ("float64", "int32", "int64", "float16"):
    distinct = np.stack([np.random.default_rng(i).permutation(6) for i in range(3)]).astype(dtype)
    if not IS_PIR and dtype == "float16":
        continue
    case(f"topk/{dtype}", lambda x: paddle.topk(x, 2), {"x": distinct})
    case(f"argsort/{dtype}", lambda x: paddle.argsort(x), {"x": distinct})
for axis in (0, 1, -1):
    for descending in (True, False):
        case(f"argsort/{axis} {descending}", lambda x, a=axis, d=descending: paddle.argsort(x, a, d), {"x": ALL_OPEN})
        case(f"sort/{axis} {descending}", lambda x, a=axis, d=descending: paddle.sort(x, a, d), {"x": OPEN})
# The order of equal elements is open, unless a stable order is asked for.
for descending in (True, False):
    case(f"argsort/equal {descending}", lambda x, d=descending: paddle.argsort(x, descending=d, stable=True), {"x": ints(3, 20, low=0, high=3)}, only="3.3")
case("argsort/scalar", lambda x: paddle.argsort(x), {"x": floats()})
case("kthvalue/plain", lambda x: paddle.kthvalue(x, 2, 1), {"x": floats(3, 4, 5)})
case("kthvalue/kept", lambda x: paddle.kthvalue(x, 2, keepdim=True), {"x": floats(3, 4)})
for dtype in ("float32", "float64", "int32", "int64"):
    values = ints(12, low=0, high=5, dtype=dtype)
    case(f"unique/{dtype}", lambda x: paddle.unique(x), {"x": values})
    case(f"unique/{dtype} all", lambda x: paddle.unique(x, True, True, True), {"x": values})
    case(f"unique_consecutive/{dtype}", lambda x: paddle.unique_consecutive(x, True, True), {"x": np.sort(values)})
case("unique/places of 32 bits", lambda x: paddle.unique(x, True, True, True, dtype="int32"), {"x": ints(3, 4, low=0, high=5)})
case("unique/axis", lambda x: paddle.unique(x, True, True, True, axis=0), {"x": ints(6, 2, low=0, high=2)})
case("unique/open", lambda x: paddle.unique(x), {"x": ([None], [ints(7, low=0, high=3), ints(1)])})
for right in (True, False):
    case(f"searchsorted/row {right}", lambda s, v, r=right: paddle.searchsorted(s, v, right=r), {"s": index(1, 3, 3, 5), "v": index([0, 3], [4, 9])})
    case(f"searchsorted/rows {right}", lambda s, v, r=right: paddle.searchsorted(s, v, out_int32=True, right=r), {"s": np.sort(floats(2, 5)), "v": floats(2, 3, seed=5)})
case("bincount/plain", lambda x: paddle.bincount(x), {"x": ([None], [index(1, 4, 1, 0), index(2)])})
case("bincount/least", lambda x: paddle.bincount(x, minlength=6), {"x": index(1, 4, 1, 0)})
case("bincount/weights", lambda x, w: paddle.bincount(x, w), {"x": index(1, 4, 1, 0), "w": floats(4)})
case("bincount/int32", lambda x: paddle.bincount(x), {"x": index(1, 4, 1, 0, dtype="int32")})
case("multiplex/plain", lambda x, y, i: paddle.multiplex([x, y], i), {"x": floats(3, 4), "y": floats(3, 4, seed=1), "i": index([1], [0], [1], dtype="int32")})
for axis in (None, 1, -1):
    case(f"median/{axis}", lambda x, a=axis: paddle.median(x, a), {"x": floats(3, 4, 5)})
    case(f"median/{axis} kept", lambda x, a=axis: paddle.median(x, a, True), {"x": floats(3, 5, 3)})
case("median/nan", lambda x: paddle.median(x, 1), {"x": np.array([[1, np.nan, 3], [3, 4, 5]], "float32")}, only="3.3")
case("median/int", lambda x: paddle.median(x, 1), {"x": ints(3, 4)}, only="3.3")
case("median/float64", lambda x: paddle.median(x, 1), {"x": floats(3, 4, dtype="float64")})
case("shard_index/plain", lambda x: paddle.shard_index(x, 20, 3, 1), {"x": ints(6, 1, low=0, high=20)})

# ---- creation
case("shape/plain", lambda x: paddle.shape(x), X)
case("shape/open", lambda x: paddle.shape(x), {"x": ALL_OPEN})
case("shape/scalar", lambda x: paddle.shape(x), {"x": floats()})
case("numel/plain", lambda x: paddle.numel(x), X)
case("numel/open", lambda x: paddle.numel(x), {"x": ALL_OPEN})
case("is_empty/open", lambda x: paddle.is_empty(x), {"x": ([None, 3], [floats(2, 3), EMPTY])})
for dtype in DTYPES:
    case(f"full/{dtype}", lambda x, d=dtype: [paddle.full([2, 3], 1, d), x + 0], {"x": floats(2)})
    if not IS_PIR and dtype in ("uint8", "int8"):
        continue
    case(f"full_like/{dtype}", lambda x, d=dtype: paddle.full_like(x, 1, d), {"x": OPEN})
    case(f"zeros_like/{dtype}", lambda x: paddle.zeros_like(x), {"x": of(dtype, 2, 3)})
case("full/fraction", lambda x: [paddle.full([2], 2.5, "float32"), paddle.full([2], 1 / 3, "float64"), x + 0], {"x": floats(2)})
case("full/large", lambda x: [paddle.full([2], 2**53 + 1, "int64"), x + 0], {"x": floats(2)})
# Paddle 3.3 cannot read a program with numbers that are not finite.
case("full/not finite", lambda x: [paddle.full([2], float("inf")), paddle.full([2], float("-inf")), paddle.full([2], float("nan")), x + 0], {"x": floats(2)}, only="2.6")
case("full/scalar", lambda x: [paddle.full([], 2.5), x + 0], {"x": floats(2)})
case("full/many", lambda x: [paddle.full([100, 100], 2.5), x + 0], {"x": floats(2)})
case("full/of shape", lambda x: paddle.full(paddle.shape(x), 2.5), {"x": ALL_OPEN})
case("full/of sizes", lambda x: paddle.full([paddle.shape(x)[0], 3], 2, "int64"), {"x": ALL_OPEN})
case("full/tensor", lambda x: paddle.full([2, 3], x, "float32"), {"x": floats(1)}, only="3.3")
case("fill_constant/tensor", lambda x: raw("fill_constant", {"ValueTensor": x}, ["Out"], {"shape": [2, 3], "dtype": 5})[0], {"x": floats(1)}, only="2.6")
case("fill_constant/text", lambda x: [raw("fill_constant", {}, {"Out": "int64"}, {"shape": [2], "dtype": 3, "value": 0.0, "str_value": "9007199254740993"})[0], x + 0], {"x": floats(1)}, only="2.6")
case("fill_constant_batch_size_like/plain", lambda x: raw("fill_constant_batch_size_like", {"Input": x}, ["Out"], {"shape": [-1, 4], "dtype": 5, "value": 1.5, "input_dim_idx": 0, "output_dim_idx": 0})[0], {"x": OPEN}, only="2.6")
case("fill_constant_batch_size_like/other", lambda x: raw("fill_constant_batch_size_like", {"Input": x}, {"Out": "int64"}, {"shape": [2, -1], "dtype": 3, "value": 7.0, "input_dim_idx": 2, "output_dim_idx": 1})[0], {"x": ALL_OPEN}, only="2.6")
case("fill_any/plain", lambda x: raw("fill_any", {"X": x}, ["Out"], {"value": 2.0})[0], {"x": OPEN}, only="2.6")
case("memcpy/plain", lambda x: raw("memcpy", {"X": x}, ["Out"], {"dst_place_type": 0})[0], X, only="2.6")
case("share_data/plain", lambda x: raw("share_data", {"X": x}, ["Out"])[0], X, only="2.6")
case("fill_zeros_like/plain", lambda x: raw("fill_zeros_like", {"X": x}, ["Out"])[0], {"x": OPEN}, only="2.6")
case("assign/plain", lambda x: paddle.assign(x), X)
case("assign/output", lambda x: paddle.assign(x, paddle.zeros([2, 3, 4])), X)
for dtype in ("float32", "float64", "int32", "int64", "bool"):
    case(f"assign_value/{dtype}", lambda x, d=dtype: [paddle.assign(of(d, 2, 3)), x + 0], {"x": floats(2)})
case("assign_value/one", lambda x: [paddle.assign(np.array([1.5], "float32")), x + 0], {"x": floats(2)})
for name, bounds in {"int": (5,), "start": (1, 7, 2), "negative": (5, -3, -2), "float": (0.0, 1.0, 0.3), "empty": (3, 1)}.items():
    case(f"arange/{name}", lambda x, v=bounds: [paddle.arange(*v), x + 0], {"x": floats(2)}, only="3.3" if name == "empty" else None)
for dtype in ("float32", "float64", "int32", "int64"):
    case(f"arange/{dtype}", lambda x, d=dtype: paddle.arange(0, paddle.shape(x)[0], 2, d), {"x": ([None], [floats(5), floats(2)])})
    case(f"linspace/{dtype}", lambda x, d=dtype: [paddle.linspace(0, 10, 7, d), x + 0], {"x": floats(2)})
    case(f"eye/{dtype}", lambda x, d=dtype: [paddle.eye(3, 4, d), paddle.eye(3, dtype=d), x + 0], {"x": floats(2)})
case("linspace/one", lambda x: [paddle.linspace(2, 10, 1), x + 0], {"x": floats(2)})
case("linspace/tensors", lambda x, y: paddle.linspace(x, y, 5), {"x": floats(1), "y": floats(1, seed=1)})
case("logspace/plain", lambda x: [paddle.logspace(0, 3, 4), paddle.logspace(1, 2, 5, 2.0, "float64"), x + 0], {"x": floats(2)})
case("one_hot/plain", lambda x: F.one_hot(x, 4), {"x": ([None, 2], [index([0, 3], [1, 2]), index([1, 1])])})
case("one_hot/int32", lambda x: F.one_hot(x, 4), {"x": index(0, 3, dtype="int32")})
case("one_hot/depth tensor", lambda x: F.one_hot(x, at(4, "int32")), {"x": index(0, 3)})
case("one_hot/scalar", lambda x: F.one_hot(x, 4), {"x": np.array(2)})
for dtype in DTYPES:
    if dtype not in ("uint8", "int8", "int16"):
        case(f"tril/{dtype}", lambda x: paddle.tril(x), {"x": of(dtype, 3, 4)})
for diagonal in (-1, 0, 2):
    case(f"tril/diagonal {diagonal}", lambda x, d=diagonal: paddle.tril(x, d), {"x": OPEN})
    case(f"triu/diagonal {diagonal}", lambda x, d=diagonal: paddle.triu(x, d), {"x": OPEN})
    case(f"tril_indices/{diagonal}", lambda x, d=diagonal: [paddle.tril_indices(3, 4, d), paddle.triu_indices(3, 4, d, dtype="int32"), x + 0], {"x": floats(2)})
    case(f"diag/vector {diagonal}", lambda x, d=diagonal: paddle.diag(x, d, 1.5), {"x": ([None], [floats(3), floats(1)])})
    case(f"diag/matrix {diagonal}", lambda x, d=diagonal: paddle.diag(x, d), {"x": ([None, None], [floats(3, 4), floats(4, 3)])})
    case(f"diag_embed/{diagonal}", lambda x, d=diagonal: paddle.diag_embed(x, d) if IS_PIR else F.diag_embed(x, d), {"x": OPEN})
    case(f"diag_embed/{diagonal} axes", lambda x, d=diagonal: paddle.diag_embed(x, d, 0, 2) if IS_PIR else F.diag_embed(x, d, 0, 2), {"x": floats(2, 3)})
    case(f"diag_embed/{diagonal} axes back", lambda x, d=diagonal: paddle.diag_embed(x, d, 2, 1) if IS_PIR else F.diag_embed(x, d, 2, 1), {"x": floats(2, 3)})
    case(f"diagonal/{diagonal}", lambda x, d=diagonal: paddle.diagonal(x, d), {"x": ALL_OPEN})
    case(f"diagonal/{diagonal} axes", lambda x, d=diagonal: paddle.diagonal(x, d, 2, 0), {"x": floats(2, 3, 4)})
    case(f"trace/{diagonal}", lambda x, d=diagonal: paddle.trace(x, d), {"x": floats(3, 4, 2)})
case("diag/int", lambda x: paddle.diag(x), {"x": ints(3)})
case("trace/int", lambda x: paddle.trace(x), {"x": ints(3, 4)})
for mode in ("upscale_in_train", "downscale_in_infer"):
    case(f"dropout/{mode}", lambda x, m=mode: F.dropout(x, 0.3, training=False, mode=m), {"x": OPEN})
    case(f"dropout/{mode} axis", lambda x, m=mode: F.dropout(x, 0.3, axis=1, training=False, mode=m), {"x": OPEN})
    case(f"dropout/{mode} all", lambda x, m=mode: F.dropout(x, 1.0, training=False, mode=m), {"x": OPEN})

# ---- dtypes of scattering and selection
for dtype in ("float64", "int32", "int64"):
    case(f"scatter/{dtype}", lambda x, i, u: paddle.scatter(x, i, u, False), {"x": of(dtype, 3, 4), "i": index(1, 1), "u": of(dtype, 2, 4, seed=4)})
    case(f"scatter_nd_add/{dtype}", lambda x, i, u: paddle.scatter_nd_add(x, i, u), {"x": of(dtype, 3, 4), "i": index([1], [1]), "u": of(dtype, 2, 4, seed=4)})
    case(f"index_add/{dtype}", lambda x, i, u: paddle.index_add(x, i, 0, u), {"x": of(dtype, 3, 4), "i": index(1, 1), "u": of(dtype, 2, 4, seed=4)})
    case(f"put_along_axis/{dtype}", lambda x, i, v: paddle.put_along_axis(x, i, v, 1, "add"), {"x": of(dtype, 2, 3), "i": index([0, 0], [2, 1]), "v": of(dtype, 2, 2, seed=3)})
    case(f"take_along_axis/{dtype}", lambda x, i: paddle.take_along_axis(x, i, 1), {"x": of(dtype, 2, 3), "i": index([0, 1, 1, 2], [2, 1, 0, 0])})
    case(f"index_put/{dtype}", lambda x, i, v: paddle.index_put(x, (i,), v, True), {"x": of(dtype, 3, 4), "i": index(1, 1), "v": of(dtype, 2, 4)})
    case(f"gather_nd/{dtype}", lambda x, i: paddle.gather_nd(x, i), {"x": of(dtype, 2, 3), "i": index([0, 1])})
    case(f"masked_select/{dtype}", lambda x, m: paddle.masked_select(x, m), {"x": of(dtype, 3, 4), "m": bools(3, 4)})
    case(f"index_sample/{dtype}", lambda x, i: paddle.index_sample(x, i), {"x": of(dtype, 2, 4), "i": index([0, 1], [3, 3])})
    case(f"index_select/{dtype}", lambda x, i: paddle.index_select(x, i, 1), {"x": of(dtype, 2, 4), "i": index(0, 3)})
    case(f"roll/{dtype}", lambda x: paddle.roll(x, 1, 1), {"x": of(dtype, 2, 4)})
    case(f"stack/{dtype}", lambda x: paddle.stack([x, x], 1), {"x": of(dtype, 2, 4)})
    case(f"unbind/{dtype}", lambda x: paddle.unbind(x, 1), {"x": of(dtype, 2, 4)})
    case(f"crop/{dtype}", lambda x: paddle.crop(x, [1, 2], [1, 1]), {"x": of(dtype, 2, 4)})
    case(f"strided_slice/{dtype}", lambda x: paddle.strided_slice(x, [1], [0], [4], [2]), {"x": of(dtype, 2, 4)})
    case(f"meshgrid/{dtype}", lambda x, y: paddle.meshgrid(x, y), {"x": of(dtype, 2), "y": of(dtype, 3)})
    case(f"diag/{dtype}", lambda x: paddle.diag(x, 1, 2), {"x": of(dtype, 3)})
    case(f"diagonal/{dtype}", lambda x: paddle.diagonal(x), {"x": of(dtype, 3, 4)})
    case(f"searchsorted/{dtype}", lambda s, v: paddle.searchsorted(s, v), {"s": np.sort(of(dtype, 5)), "v": of(dtype, 3, seed=2)})
    case(f"repeat_interleave/{dtype}", lambda x: paddle.repeat_interleave(x, 2, 0), {"x": of(dtype, 2, 3)})
    case(f"pad/{dtype}", lambda x: F.pad(x, [1, 2, 0, 1], value=2), {"x": of(dtype, 2, 3)})
for dtype in ("float64", "float16"):
    case(f"dropout/{dtype}", lambda x: F.dropout(x, 0.25, training=False, mode="downscale_in_infer"), {"x": of(dtype, 2, 3)}, only=None if dtype == "float64" else "3.3")
case("pixel_shuffle/float64", lambda x: F.pixel_shuffle(x, 2), {"x": of("float64", 1, 4, 2, 3)})
case("pixel_unshuffle/float64", lambda x: F.pixel_unshuffle(x, 2), {"x": of("float64", 1, 2, 4, 2)})

# ---- tensors without elements
for name, make in {
    "concat": lambda x: paddle.concat([x, x], 1),
    "stack": lambda x: paddle.stack([x, x]),
    "split": lambda x: paddle.split(x, 3, 1),
    "slice": lambda x: x[:, 1:],
    "transpose": lambda x: paddle.transpose(x, [1, 0]),
    "flatten": lambda x: paddle.flatten(x),
    "reshape": lambda x: paddle.reshape(x, [-1, 3]),
    "reshape rest": lambda x: paddle.reshape(x, [0, -1]),
    "squeeze": lambda x: paddle.squeeze(paddle.unsqueeze(x, 0)),
    "tile": lambda x: paddle.tile(x, [2, 2]),
    "flip": lambda x: paddle.flip(x, [0]),
    "roll": lambda x: paddle.roll(x, 1, 0),
    "argsort": lambda x: paddle.argsort(x, 1),
    "nonzero": lambda x: paddle.nonzero(x),
    "numel": lambda x: paddle.numel(x),
    "full_like": lambda x: paddle.full_like(x, 2.0),
    "index_select": lambda x: paddle.index_select(x, paddle.assign(index(0, 2)), 1),
}.items():
    case(f"empty/{name}", make, {"x": ([None, 3], [EMPTY, floats(2, 3)])}, only="3.3")
    case(f"empty/{name} known", make, {"x": EMPTY}, only="3.3")
for name, (sizes, shape) in {"rest": ((0, 3, 4), [0, -1]), "front": ((2, 0, 3), [0, -1]), "no copy": ((0, 3), [3, -1]), "two": ((0, 3, 4), [-1, 0, 2]), "middle": ((0, 3, 4), [2, 0, -1])}.items():
    case(f"reshape/empty {name}", lambda x, s=shape: paddle.reshape(x, s), {"x": np.zeros(sizes, "float32")}, only="3.3")
