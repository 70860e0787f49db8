"""Cases of arithmetic, activations, comparisons, reductions, matrix products."""

import numpy as np
import paddle
import paddle.nn.functional as F

from cases import CASES, bools, case, floats, ints, raw
from run import IS_PIR

OPEN = ([None, 3], [floats(2, 3), floats(5, 3, seed=1), floats(1, 3, seed=2)])
SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.5, -2.5], "float32")


def unary(name, call, x=None, dtypes=("float32", "float64"), low=-2.0, high=2.0, zero_d=True, empty=True):
    """Adds cases of a function of one tensor: open dimensions, dtypes, without dimensions, without elements."""
    arrays = [floats(2, 3, low=low, high=high), floats(4, 3, seed=1, low=low, high=high)]
    case(f"{name}/open", call, {"x": ([None, 3], arrays)})
    for dtype in dtypes:
        case(f"{name}/{dtype}", call, {"x": floats(3, 5, low=low, high=high, dtype=dtype) if dtype[0] == "f" else ints(3, 5, low=int(low), high=int(high), dtype=dtype)})
    if zero_d:
        case(f"{name}/scalar", call, {"x": floats(low=low, high=high)})
    if empty:
        case(f"{name}/empty", call, {"x": ([None, 3], [floats(0, 3)])})


# ---- arithmetic

BINARY = {
    "add": (paddle.add, "elementwise_add", ("float32", "float64", "int32", "int64", "uint8", "int8", "int16", "bool")),
    "subtract": (paddle.subtract, "elementwise_sub", ("float32", "float64", "int32", "int64", "uint8", "int8", "int16")),
    "multiply": (paddle.multiply, "elementwise_mul", ("float32", "float64", "int32", "int64", "uint8", "int8", "int16", "bool")),
    "divide": (paddle.divide, "elementwise_div", ("float32", "float64", "int32", "int64")),
    "maximum": (paddle.maximum, "elementwise_max", ("float32", "float64", "int32", "int64")),
    "minimum": (paddle.minimum, "elementwise_min", ("float32", "float64", "int32", "int64")),
    "pow": (paddle.pow, "elementwise_pow", ("float32", "float64", "int32", "int64")),
    "remainder": (paddle.remainder, "elementwise_mod", ("float32", "float64", "int32", "int64")),
    "floor_divide": (paddle.floor_divide, "elementwise_floordiv", ("float32", "float64", "int32", "int64", "uint8", "int8", "int16")),
    "fmax": (paddle.fmax, "elementwise_fmax", ("float32", "float64", "int32", "int64")),
    "fmin": (paddle.fmin, "elementwise_fmin", ("float32", "float64", "int32", "int64")),
    "heaviside": (paddle.heaviside, "elementwise_heaviside", ("float32", "float64", "int32", "int64")),
}


def operand(dtype, *shape, seed=0, positive=False):
    if dtype == "bool":
        return bools(*shape, seed=seed)
    if dtype.startswith("float"):
        return floats(*shape, seed=seed, low=0.2 if positive else -3.0, high=3.0, dtype=dtype)
    low = 1 if positive or dtype == "uint8" else -9
    return ints(*shape, seed=seed, low=low, high=10, dtype=dtype)


def nonzero(array):
    return array if array.dtype.kind == "b" else np.where(array == 0, 3, array).astype(array.dtype)


for name, (call, kind, dtypes) in BINARY.items():
    for dtype in dtypes:
        x, y = operand(dtype, 4, 5, positive=name == "pow"), nonzero(operand(dtype, 4, 5, seed=1))
        y = np.abs(y) if name == "pow" and dtype[0] == "i" else y
        case(f"{name}/{dtype}", call, {"x": x, "y": y})
    x, y = floats(2, 3, 4, low=0.5), floats(3, 4, seed=1, low=0.5)
    case(f"{name}/broadcast", call, {"x": x, "y": y})
    case(f"{name}/broadcast both", call, {"x": floats(2, 1, 4, low=0.5), "y": floats(5, 1, seed=1, low=0.5)})
    case(f"{name}/open", call, {"x": ([None, 3], [floats(2, 3, low=0.5), floats(5, 3, low=0.5)]), "y": floats(3, low=0.5)})
    case(f"{name}/scalar", call, {"x": floats(low=0.5), "y": floats(seed=1, low=0.5)})
    case(f"{name}/scalar right", call, {"x": floats(2, 3, low=0.5), "y": floats(seed=1, low=0.5)})
    case(f"{name}/empty", call, {"x": ([None, 3], [floats(0, 3)]), "y": floats(3)})
    for label, ys, axis in [("middle", (3, 4), 1), ("first", (2,), 0), ("ones", (3, 1), 1), ("last", (5,), -1)]:
        if name in ("fmax", "fmin", "heaviside"):
            continue
        case(
            f"{name}/axis {label}",
            lambda x, y, kind=kind, axis=axis: raw(kind, {"X": x, "Y": y}, ["Out"], {"axis": axis}),
            {"x": floats(2, 3, 4, 5, low=0.5), "y": floats(*ys, seed=1, low=0.5)},
            only="2.6",
        )
for name in ("remainder", "floor_divide"):
    case(
        f"{name}/signs",
        BINARY[name][0],
        {"x": np.array([7, -7, 7, -7, 0, 6, -6], "int64"), "y": np.array([3, 3, -3, -3, 5, 3, 3], "int64")},
    )
    case(
        f"{name}/float signs",
        BINARY[name][0],
        {"x": np.array([7.5, -7.5, 7.5, -7.5, 0, 6, -6], "float32"), "y": np.array([2, 2, -2, -2, 5, 3, 3], "float32")},
    )
case("divide/int signs", paddle.divide, {"x": np.array([7, -7, 7, -7], "int32"), "y": np.array([3, 3, -3, -3], "int32")})
for name in ("fmax", "fmin"):
    case(f"{name}/nan", BINARY[name][0], {"x": SPECIAL, "y": SPECIAL[::-1].copy()})
case("add/mixed", lambda x, y: x + y, {"x": floats(2, 3), "y": floats(2, 3, dtype="float64")}, only="3.3")
case("grad_add/float32", lambda x, y: raw("grad_add", {"X": x, "Y": y}, ["Out"]), {"x": floats(2, 3), "y": floats(2, 3)}, only="2.6")
case("minus/float32", lambda x, y: raw("minus", {"X": x, "Y": y}, ["Out"]), {"x": floats(2, 3), "y": floats(2, 3)}, only="2.6")
for dtype in ("float32", "float64", "int32", "int64"):
    case(
        f"atan2/{dtype}",
        paddle.atan2,
        {"x": operand(dtype, 40), "y": operand(dtype, 40, seed=3)},
    )
case("atan2/axes", paddle.atan2, {"x": np.array([0, 1, -1, 0, 0], "float32"), "y": np.array([0, 0, 0, 1, -1], "float32")})
for dtype in ("float32", "float64", "int32", "int64"):
    case(f"sum/{dtype}", lambda x, y: paddle.add_n([x, y, x]), {"x": operand(dtype, 2, 3), "y": operand(dtype, 2, 3)})
case("sum/one", lambda x: paddle.add_n([x]), {"x": floats(2, 3)})
for dtype in ("float32", "float64", "int32", "int64", "uint8", "int8", "int16"):
    for after in (True, False):
        case(
            f"scale/{dtype} {after}",
            lambda x, after=after: paddle.scale(x, 2.5, 1.5, bias_after_scale=after),
            {"x": operand(dtype, 2, 3)},
        )
    case(f"scale/small {dtype}", lambda x: paddle.scale(x, -0.7, 0.0), {"x": operand(dtype, 2, 3)})
case("scale/tensor", lambda x, s: paddle.scale(x, s, 1.0), {"x": floats(2, 3), "s": floats(1)})
case("scale/scalar", lambda x: x * 3 + 1, {"x": floats()})
case("scale/int plus", lambda x: x * 3 + 1, {"x": ints(2, 3)})
case("scale/minus", lambda x: 1 - x, {"x": floats(2, 3)})
for dtype in ("float32", "float64", "int32", "int64"):
    # Paddle does not return from a negative power of an integer.
    for factor in (2, 3, 0.5, -1, 0) if dtype[0] == "f" else (2, 3, 0):
        case(f"pow/{factor} {dtype}", lambda x, factor=factor: paddle.pow(x, factor), {"x": operand(dtype, 2, 3, positive=True)})
for dtype in ("float32", "float64", "int32", "int64"):
    case(f"clip/{dtype}", lambda x: paddle.clip(x, -1, 2), {"x": operand(dtype, 4, 5)})
    case(f"clip/low {dtype}", lambda x: paddle.clip(x, min=-1), {"x": operand(dtype, 4, 5)})
    case(f"clip/high {dtype}", lambda x: paddle.clip(x, max=2), {"x": operand(dtype, 4, 5)})
    case(f"clip/tensors {dtype}", lambda x, a, b: paddle.clip(x, a, b), {"x": operand(dtype, 4, 5), "a": np.array([-1], dtype), "b": np.array([2], dtype)})
case("clip/nan", lambda x: paddle.clip(x, -1, 2), {"x": SPECIAL})
case("clip/scalar", lambda x: paddle.clip(x, -1, 1), {"x": floats()})
ALL = ("float32", "float64", "float16", "int32", "int64", "uint8", "int8", "int16", "bool")
for source in ALL:
    for target in ALL:
        x = floats(4, 5, low=0 if target == "uint8" else -3, high=3).astype(source)
        case(f"cast/{source} {target}", lambda x, target=target: paddle.cast(x, target), {"x": x})
case("cast/special", lambda x: paddle.cast(x, "bool"), {"x": SPECIAL})
case("cast/scalar", lambda x: paddle.cast(x, "int64"), {"x": floats()})
for dtype in ("float32", "int64", "int32"):
    case(f"increment/{dtype}", lambda x: paddle.increment(x * 1, 2), {"x": np.array([3], dtype)})
case("lerp/tensor", paddle.lerp, {"x": floats(2, 3), "y": floats(2, 3, seed=1), "w": floats(2, 3, seed=2)})
case("lerp/number", lambda x, y: paddle.lerp(x, y, 0.3), {"x": floats(2, 3, dtype="float64"), "y": floats(2, 3, dtype="float64")})
case("label_smooth/uniform", lambda x: F.label_smooth(x, epsilon=0.1), {"x": OPEN})
case("label_smooth/prior", lambda x, p: F.label_smooth(x, p, 0.2), {"x": floats(2, 3), "p": floats(1, 3)})

# ---- functions of one number

for name in "exp sin cos tan sinh cosh asinh tanh erf expm1 abs square sign atan ceil floor round trunc neg".split():
    unary(name, getattr(paddle, name))
for name in "log log2 log10 sqrt rsqrt lgamma digamma".split()[:5]:
    unary(name, getattr(paddle, name), low=0.1, high=5.0)
unary("reciprocal", paddle.reciprocal, low=0.2, high=4.0)
unary("log1p", paddle.log1p, low=-0.9, high=3.0)
unary("asin", paddle.asin, low=-1.0, high=1.0)
unary("acos", paddle.acos, low=-1.0, high=1.0)
unary("atanh", paddle.atanh, low=-0.9, high=0.9)
unary("acosh", paddle.acosh, low=1.1, high=4.0)
unary("erfinv", paddle.erfinv, low=-0.999, high=0.999)
unary("logit", paddle.logit, low=0.05, high=0.95)
case("erfinv/ends", paddle.erfinv, {"x": np.array([1, -1, 0, 0.99999, 1e-6], "float32")})
case("logit/eps", lambda x: paddle.logit(x, 0.2), {"x": floats(10, low=-0.5, high=1.5)})
case("logit/outside", paddle.logit, {"x": floats(10, low=-0.5, high=1.5)})
SMALL = np.array([1e-7, -1e-7, 1e-4, -1e-4, 0, 0.49, 0.51, 1e-10], "float32")
case("log1p/small", lambda x: paddle.log1p(x) * 1e6, {"x": SMALL})
case("expm1/small", lambda x: paddle.expm1(x) * 1e6, {"x": SMALL})
for name in "exp log log1p log2 log10 rsqrt abs square expm1 floor ceil round trunc reciprocal tanh erf atanh".split():
    case(f"{name}/special", getattr(paddle, name), {"x": SPECIAL})
case("round/halves", paddle.round, {"x": np.array([0.5, 1.5, 2.5, -0.5, -1.5, 0.49999997, 3.2, -3.7, 1e9], "float32")})
if IS_PIR:
    C = paddle._C_ops
    case("squared_l2_norm/pir", lambda x: C.squared_l2_norm(x), {"x": floats(2, 3, 4)})
    case("l1_norm/pir", lambda x: C.l1_norm(x), {"x": floats(2, 3, 4)})
    case("clip_by_norm/pir", lambda x: C.clip_by_norm(x, 1.0), {"x": floats(2, 3, 4)})
    case("norm/pir", lambda x: C.norm(x, 1, 1e-3, False)[0], {"x": floats(2, 3, 4)})
    case("mean_all/pir", lambda x: C.mean_all(x), {"x": floats(2, 3, 4)})
    case("frobenius_norm/pir", lambda x: C.frobenius_norm(x, [0, 2], True, False), {"x": floats(2, 3, 4)})
    for exclusive in (False, True):
        for reverse in (False, True):
            for kind in ("cumsum", "logcumsumexp"):
                call = getattr(C, kind)
                case(f"{kind}/pir {exclusive} {reverse}", lambda x, call=call, e=exclusive, r=reverse: call(x, 1, False, e, r), {"x": floats(2, 3, 4)})
    for decimals in (2, -1):
        case(f"round/decimals {decimals}", lambda x, d=decimals: paddle.round(x, d), {"x": floats(10, low=-90, high=90)})
for name in "abs square sign neg".split():
    for dtype in ("int32", "int64"):
        case(f"{name}/{dtype}", getattr(paddle, name), {"x": ints(3, 4, dtype=dtype)})
for name in "exp expm1 sin cos tanh log sqrt rsqrt log1p log2 log10 floor ceil trunc round sigmoid erf reciprocal".split():
    call = F.sigmoid if name == "sigmoid" else getattr(paddle, name)
    for dtype in ("int32", "int64"):
        case(f"{name}/{dtype}", call, {"x": ints(3, 4, low=1, dtype=dtype)})
for name in "isnan isinf isfinite".split():
    case(f"{name}/float32", getattr(paddle, name), {"x": SPECIAL})
    case(f"{name}/float64", getattr(paddle, name), {"x": SPECIAL.astype("float64")})
    case(f"{name}/int64", getattr(paddle, name), {"x": ints(3, 4)})
    case(f"{name}/int32", getattr(paddle, name), {"x": ints(3, 4, dtype="int32")})
    case(f"{name}/scalar", getattr(paddle, name), {"x": floats()})

# ---- activations

ACTIVATIONS = {
    "relu": F.relu,
    "relu6": F.relu6,
    "sigmoid": F.sigmoid,
    "gelu": F.gelu,
    "gelu tanh": lambda x: F.gelu(x, approximate=True),
    "hard_sigmoid": F.hardsigmoid,
    "hard_sigmoid slope": lambda x: F.hardsigmoid(x, 0.3, 0.4),
    "hard_swish": F.hardswish,
    "swish": F.swish,
    "silu": F.silu,
    "mish": F.mish,
    "softplus": F.softplus,
    "softplus beta": lambda x: F.softplus(x, beta=2.0, threshold=3.0),
    "softsign": F.softsign,
    "softshrink": F.softshrink,
    "softshrink 1": lambda x: F.softshrink(x, 1.0),
    "hard_shrink": F.hardshrink,
    "hard_shrink 1": lambda x: F.hardshrink(x, 1.0),
    "tanh_shrink": F.tanhshrink,
    "leaky_relu": F.leaky_relu,
    "leaky_relu 0.3": lambda x: F.leaky_relu(x, 0.3),
    "elu": F.elu,
    "elu 0.5": lambda x: F.elu(x, 0.5),
    "selu": F.selu,
    "selu 2": lambda x: F.selu(x, 2.0, 1.5),
    "celu": F.celu,
    "celu 0.7": lambda x: F.celu(x, 0.7),
    "thresholded_relu": F.thresholded_relu,
    "thresholded_relu 0.3": lambda x: F.thresholded_relu(x, 0.3),
    "logsigmoid": F.log_sigmoid,
    "hardtanh": F.hardtanh,
    "hardtanh 0.5": lambda x: F.hardtanh(x, -0.5, 0.7),
    "stanh": paddle.stanh,
    "stanh 0.5": lambda x: paddle.stanh(x, 0.5, 1.2),
    "rrelu": lambda x: F.rrelu(x, 0.1, 0.3, training=False),
}
for name, call in ACTIVATIONS.items():
    unary(name.replace(" ", "/", 1), call, low=-8.0, high=8.0)
case("thresholded_relu/value", lambda x: F.thresholded_relu(x, 0.3, -1.5), {"x": floats(3, 4)}, only="3.3")
for dtype in ("int32", "int64"):
    case(f"relu/{dtype}", F.relu, {"x": ints(3, 4, dtype=dtype)})
for name in ("relu6", "sigmoid", "silu", "softplus", "leaky_relu", "elu", "hard_swish", "hard_sigmoid", "gelu", "hardtanh"):
    case(f"{name}/special", ACTIVATIONS[name], {"x": SPECIAL})
for kind, attrs in {
    "brelu": {"t_min": -1.0, "t_max": 1.5},
    "soft_relu": {"threshold": 2.0},
    "swish": {"beta": 1.5},
    "relu6": {"threshold": 4.0},
    "mish": {"threshold": 20.0},
}.items():
    case(f"{kind}/raw", lambda x, kind=kind, attrs=attrs: raw(kind, {"X": x}, ["Out"], attrs), {"x": floats(3, 4, low=-8, high=8)}, only="2.6")


def prelu(shape, alpha, mode, data_format="NCHW"):
    def make(x):
        weight = paddle.static.create_parameter(
            alpha, "float32", default_initializer=paddle.nn.initializer.Assign(floats(*alpha, low=0.1, high=0.9))
        )
        if mode is None:
            return F.prelu(x, weight, data_format)
        return raw("prelu", {"X": x, "Alpha": weight}, ["Out"], {"mode": mode, "data_format": data_format})

    return make, {"x": ([None, *shape[1:]], [floats(*shape), floats(shape[0] + 1, *shape[1:])])}


case("prelu/all", *prelu((2, 3, 4, 5), (1,), None))
case("prelu/channel", *prelu((2, 3, 4, 5), (3,), None))
case("prelu/channel last", *prelu((2, 3, 4, 5), (5,), None, "NHWC"))
case("prelu/channel 2", *prelu((2, 3), (3,), None))
case("prelu/channel 3", *prelu((2, 3, 4), (3,), None, "NCL"))
case("prelu/channel old", *prelu((2, 3, 4, 5), (1, 3, 1, 1), "channel"), only="2.6")
case("prelu/element", *prelu((2, 3, 4, 5), (1, 3, 4, 5), "element"), only="2.6")
case("maxout/1", lambda x: F.maxout(x, 2, 1), {"x": ([None, 6, None, 4], [floats(2, 6, 3, 4), floats(1, 6, 5, 4)])})
case("maxout/last", lambda x: F.maxout(x, 3, -1), {"x": ([None, 2, 2, 6], [floats(2, 2, 2, 6)])})
case("glu/last", lambda x: F.glu(x), {"x": floats(2, 6)})
for name, call in {"softmax": F.softmax, "log_softmax": F.log_softmax}.items():
    for axis in (-1, 0, 1, 2):
        case(f"{name}/{axis}", lambda x, call=call, axis=axis: call(x, axis), {"x": ([None, 3, None], [floats(2, 3, 4), floats(1, 3, 6)])})
    case(f"{name}/float64", lambda x, call=call: call(x), {"x": floats(2, 3, dtype="float64")})
    case(f"{name}/scalar", lambda x, call=call: call(x), {"x": floats()})
    case(f"{name}/dtype", lambda x, call=call: call(x, dtype="float64"), {"x": floats(2, 3)})
    case(f"{name}/empty", lambda x, call=call: call(x), {"x": ([None, 3], [floats(0, 3)])})

# ---- comparisons, logic

for name in "equal not_equal less_than less_equal greater_than greater_equal".split():
    call = getattr(paddle, name)
    for dtype in ("float32", "float64", "int32", "int64", "uint8", "int8", "int16", "bool"):
        case(f"{name}/{dtype}", call, {"x": np.abs(operand(dtype, 20)), "y": np.abs(operand(dtype, 20, seed=1))})
    case(f"{name}/broadcast", call, {"x": ints(2, 1, 4), "y": ints(3, 1)})
    case(f"{name}/scalar", call, {"x": ints(), "y": ints(seed=1)})
    case(f"{name}/nan", call, {"x": SPECIAL, "y": SPECIAL})
    case(f"{name}/open", call, {"x": ([None, 3], [ints(2, 3), ints(5, 3)]), "y": ints(3)})
    case(f"{name}/empty", call, {"x": ([None, 3], [ints(0, 3)]), "y": ints(3)})
case("equal_all/open", paddle.equal_all, {"x": ([None, 2], [ints(3, 2), ints(4, 2)]), "y": ([None, 2], [ints(3, 2)])})
case("equal_all/same", paddle.equal_all, {"x": ints(3), "y": ints(3)})
case("equal_all/other", paddle.equal_all, {"x": ([None], [ints(3), ints(4)]), "y": ints(3)})
case("equal_all/shape", paddle.equal_all, {"x": ints(3), "y": ints(2)})
for name in "logical_and logical_or logical_xor".split():
    for dtype in ("bool", "float32", "int64", "int32", "int8", "float64", "int16"):
        case(f"{name}/{dtype}", getattr(paddle, name), {"x": operand(dtype, 3, 4), "y": operand(dtype, 3, 4, seed=1)})
    case(f"{name}/broadcast", getattr(paddle, name), {"x": bools(3, 1), "y": bools(4)})
for dtype in ("bool", "float32", "int64"):
    case(f"logical_not/{dtype}", paddle.logical_not, {"x": operand(dtype, 3, 4)})
for name in "bitwise_and bitwise_or bitwise_xor".split():
    for dtype in ("bool", "uint8", "int8", "int16", "int32", "int64"):
        x = operand(dtype, 3, 4)
        case(f"{name}/{dtype}", getattr(paddle, name), {"x": x, "y": operand(dtype, 3, 4, seed=1)})
    big = np.array([2**62 + 5, -(2**63), -1, 2**63 - 1, 12345678901], "int64")
    case(f"{name}/big", getattr(paddle, name), {"x": big, "y": big[::-1].copy()})
    case(f"{name}/broadcast", getattr(paddle, name), {"x": ints(3, 1), "y": ints(4, seed=1)})
for dtype in ("bool", "uint8", "int8", "int16", "int32", "int64"):
    case(f"bitwise_not/{dtype}", paddle.bitwise_not, {"x": operand(dtype, 3, 4)})
for name in ("isclose", "allclose"):
    call = getattr(paddle, name)
    x = np.array([1.0, 2.0, np.nan, np.inf, -np.inf, 3.0], "float32")
    y = np.array([1.0, 2.001, np.nan, np.inf, np.inf, 3.0000001], "float32")
    case(f"{name}/default", call, {"x": x, "y": y})
    case(f"{name}/nan", lambda x, y, call=call: call(x, y, equal_nan=True), {"x": x, "y": y})
    case(f"{name}/wide", lambda x, y, call=call: call(x, y, 0.01, 0.1), {"x": x[:2], "y": y[:2]})
    case(f"{name}/float64", lambda x, y, call=call: call(x, y, 0.01, 0.1), {"x": floats(20, dtype="float64"), "y": floats(20, dtype="float64") * 1.01})
for dtype in ("float32", "float64", "int32", "int64", "bool"):
    case(f"where/{dtype}", paddle.where, {"c": bools(3, 4), "x": operand(dtype, 3, 4), "y": operand(dtype, 3, 4, seed=1)})
case("where/broadcast", paddle.where, {"c": bools(3, 1), "x": floats(4), "y": floats(2, 3, 4)})
case("where/scalar", paddle.where, {"c": bools(), "x": floats(), "y": floats(seed=1)})
case("where/numbers", lambda c: paddle.where(c, 1.0, 0.0), {"c": bools(3, 4)})

# ---- reductions

GRID = [(None, False), (None, True), (0, False), (-1, True), (1, False), ([0, 2], False), ([-1, 0], True), ([0, 1, 2], False)]
for name in "sum mean max min prod amax amin".split():
    call = getattr(paddle, name)
    for axis, keep in GRID:
        case(
            f"reduce_{name}/{axis} {keep}",
            lambda x, call=call, axis=axis, keep=keep: call(x, axis, keepdim=keep),
            {"x": ([None, 3, None], [floats(2, 3, 4), floats(5, 3, 1)])},
        )
    for dtype in ("float64", "int32", "int64", "bool", "uint8", "int16"):
        if name in ("sum",) or dtype in ("float64", "int32", "int64"):
            case(f"reduce_{name}/{dtype}", lambda x, call=call: call(x, 1), {"x": operand(dtype, 3, 4)})
            case(f"reduce_{name}/all {dtype}", lambda x, call=call: call(x), {"x": operand(dtype, 3, 4)})
    case(f"reduce_{name}/scalar", lambda x, call=call: call(x), {"x": floats()})
    case(f"reduce_{name}/scalar axis", lambda x, call=call: call(x, 0), {"x": floats()})
for name in ("sum", "prod"):
    for dtype in ("float64", "int32", "int64", "float32"):
        case(f"reduce_{name}/to {dtype}", lambda x, name=name, dtype=dtype: getattr(paddle, name)(x, 1, dtype=dtype), {"x": ints(3, 4, dtype="int32")})
    case(f"reduce_{name}/empty", lambda x, name=name: getattr(paddle, name)(x, 0), {"x": ([None, 3], [floats(0, 3)])})
case("mean/raw", lambda x: raw("mean", {"X": x}, ["Out"]), {"x": floats(2, 3)}, only="2.6")
for name in ("all", "any"):
    call = getattr(paddle, name)
    for axis, keep in GRID:
        case(
            f"reduce_{name}/{axis} {keep}",
            lambda x, call=call, axis=axis, keep=keep: call(x, axis, keepdim=keep),
            {"x": ([None, 3, None], [bools(2, 3, 4), bools(5, 3, 1)])},
        )
    case(f"reduce_{name}/scalar", lambda x, call=call: call(x), {"x": bools()})
    case(f"reduce_{name}/empty", lambda x, call=call: call(x), {"x": ([None, 3], [bools(0, 3)])})
    case(f"reduce_{name}/int64", lambda x, call=call: call(x, 0), {"x": ints(4, 5)})
for axis, keep in GRID:
    shape = ([None, 3, None], [floats(2, 3, 4), floats(5, 3, 1)])
    case(f"logsumexp/{axis} {keep}", lambda x, axis=axis, keep=keep: paddle.logsumexp(x, axis, keep), {"x": shape})
    if not isinstance(axis, list) or len(axis) == 2:
        case(f"norm/fro {axis} {keep}", lambda x, axis=axis, keep=keep: paddle.linalg.norm(x, "fro" if not isinstance(axis, int) else 2, axis, keep), {"x": floats(2, 3, 4)})
    if isinstance(axis, int) or axis is None:
        for p in (0, 1, 2, 3, 0.5, float("inf"), -float("inf")):
            case(f"p_norm/{p} {axis} {keep}", lambda x, p=p, axis=axis, keep=keep: paddle.linalg.norm(x, p, axis, keep), {"x": floats(2, 3, 4)})
case("logsumexp/large", lambda x: paddle.logsumexp(x), {"x": floats(5, low=900, high=1000)})
case("logsumexp/float64", lambda x: paddle.logsumexp(x, 0), {"x": floats(3, 4, dtype="float64")})
case("p_norm/float64", lambda x: paddle.linalg.norm(x, 3, 0), {"x": floats(3, 4, dtype="float64")})
case("norm/normalize", lambda x: F.normalize(x, axis=1), {"x": OPEN})
case("norm/normalize 1", lambda x: F.normalize(x, p=1, axis=0), {"x": OPEN})
case("norm/raw", lambda x: raw("norm", {"X": x}, ["Out", "Norm"], {"axis": 1, "epsilon": 1e-3})[0], {"x": floats(2, 3, 4)}, only="2.6")
case("squared_l2_norm/raw", lambda x: raw("squared_l2_norm", {"X": x}, ["Out"]), {"x": floats(2, 3, 4)}, only="2.6")
case("l1_norm/raw", lambda x: raw("l1_norm", {"X": x}, ["Out"]), {"x": floats(2, 3, 4)}, only="2.6")
case("clip_by_norm/raw", lambda x: raw("clip_by_norm", {"X": x}, ["Out"], {"max_norm": 1.0}), {"x": floats(2, 3, 4)}, only="2.6")
case("clip_by_norm/small", lambda x: raw("clip_by_norm", {"X": x}, ["Out"], {"max_norm": 100.0}), {"x": floats(2, 3, 4)}, only="2.6")
for p in (0, 1, 2, 3, float("inf"), -float("inf")):
    case(f"dist/{p}", lambda x, y, p=p: paddle.dist(x, y, p), {"x": floats(2, 3), "y": floats(3, seed=1)})
case("cosine_similarity/1", lambda x, y: F.cosine_similarity(x, y, axis=1), {"x": OPEN, "y": floats(3, seed=4).reshape(1, 3)})
for axis in (None, 0, 1, -1):
    for dtype in ("float32", "float64", "int32", "int64"):
        case(f"cumsum/{axis} {dtype}", lambda x, axis=axis: paddle.cumsum(x, axis), {"x": operand(dtype, 2, 3, 4)})
    if axis is not None:
        case(f"cumprod/{axis}", lambda x, axis=axis: paddle.cumprod(x, axis), {"x": ([None, 3, None], [floats(2, 3, 4), floats(1, 3, 5)])})
    case(f"logcumsumexp/{axis}", lambda x, axis=axis: paddle.logcumsumexp(x, axis), {"x": ([None, 3, None], [floats(2, 3, 4), floats(1, 3, 5)])})
    for exclusive in (False, True):
        for reverse in (False, True):
            attrs = {"axis": axis if axis is not None else -1, "flatten": axis is None, "exclusive": exclusive, "reverse": reverse}
            for kind in ("cumsum", "logcumsumexp"):
                case(f"{kind}/raw {axis} {exclusive} {reverse}", lambda x, kind=kind, attrs=attrs: raw(kind, {"X": x}, ["Out"], attrs), {"x": floats(2, 3, 4)}, only="2.6")
case("cumsum/dtype", lambda x: paddle.cumsum(x, 0, dtype="float64"), {"x": floats(4, 5)})
case("cumsum/scalar", lambda x: paddle.cumsum(x, 0), {"x": floats()})
case("cumsum/open", lambda x: paddle.cumsum(x, 0), {"x": OPEN})
case("cumprod/float64", lambda x: paddle.cumprod(x, 1), {"x": floats(4, 5, dtype="float64")})
case("cumprod/int64", lambda x: paddle.cumprod(x, 1), {"x": ints(4, 5)})
case("cumprod/int32", lambda x: paddle.cumprod(x, 1), {"x": ints(4, 5, dtype="int32")})
for name in ("argmax", "argmin"):
    call = getattr(paddle, name)
    for axis, keep in [(None, False), (None, True), (0, False), (-1, True), (1, False)]:
        for dtype in ("int64", "int32"):
            case(
                f"{name}/{axis} {keep} {dtype}",
                lambda x, call=call, axis=axis, keep=keep, dtype=dtype: call(x, axis, keep, dtype),
                {"x": ([None, 3, None], [floats(2, 3, 4), floats(5, 3, 1)])},
            )
    for dtype in ("float64", "int32", "int64", "uint8", "int16"):
        case(f"{name}/{dtype}", lambda x, call=call: call(x, 0), {"x": operand(dtype, 6, 5)})
    case(f"{name}/scalar", lambda x, call=call: call(x), {"x": floats()})
    case(f"{name}/ties", lambda x, call=call: call(x, 1), {"x": ints(6, 20, low=0, high=3).astype("float32")})

# ---- matrices

for label, a, b, tx, ty in [
    ("2 2", (2, 3), (3, 4), False, False),
    ("transposed", (3, 2), (4, 3), True, True),
    ("batch", (5, 2, 3), (5, 3, 4), False, False),
    ("batch broadcast", (5, 1, 2, 3), (6, 3, 4), False, False),
    ("batch transposed", (5, 3, 2), (5, 4, 3), True, True),
    ("1 1", (3,), (3,), False, False),
    ("1 2", (3,), (3, 4), False, False),
    ("2 1", (2, 3), (3,), False, False),
    ("1 3", (3,), (5, 3, 4), False, False),
    ("1 2 transposed", (3,), (4, 3), True, True),
    ("3 2", (5, 2, 3), (3, 4), False, False),
]:
    for dtype in ("float32", "float64"):
        case(f"matmul/{label} {dtype}", lambda x, y, tx=tx, ty=ty: paddle.matmul(x, y, tx, ty), {"x": floats(*a, dtype=dtype), "y": floats(*b, dtype=dtype, seed=1)})
    if len(a) > 1 or not tx:
        case(
            f"matmul/old {label}",
            lambda x, y, tx=tx, ty=ty: raw("matmul", {"X": x, "Y": y}, ["Out"], {"transpose_X": tx, "transpose_Y": ty, "alpha": 0.5}),
            {"x": floats(*a), "y": floats(*b, seed=1)},
            only="2.6",
        )
case("matmul/open", lambda x, y: paddle.matmul(x, y), {"x": OPEN, "y": floats(3, 4)})
case("matmul/empty", lambda x, y: paddle.matmul(x, y), {"x": ([None, 3], [floats(0, 3)]), "y": floats(3, 4)})
for dtype in ("int32", "int64"):
    case(f"matmul/{dtype}", lambda x, y: paddle.matmul(x, y), {"x": ints(2, 3, dtype=dtype), "y": ints(3, 4, dtype=dtype)})
for label, a, b, m, n in [("2 2", (2, 3), (3, 4), 1, 1), ("4 2", (2, 3, 2, 2), (4, 5), 2, 1), ("flat", (2, 3, 4), (12, 5), 1, 1), ("rows", (2, 3, 4), (4, 5), 2, 1), ("both", (2, 3, 4), (3, 4, 5, 6), 1, 2)]:
    case(
        f"mul/{label}",
        lambda x, y, m=m, n=n: raw("mul", {"X": x, "Y": y}, ["Out"], {"x_num_col_dims": m, "y_num_col_dims": n}),
        {"x": ([None, *a[1:]], [floats(*a), floats(a[0] + 1, *a[1:])]), "y": floats(*b)},
        only="2.6",
    )
case("mul/linear", lambda x: paddle.static.nn.fc(x, 4, num_flatten_dims=1), {"x": ([None, 3, 2], [floats(2, 3, 2), floats(4, 3, 2)])})
for dtype in ("float32", "float64"):
    case(f"bmm/{dtype}", paddle.bmm, {"x": floats(2, 3, 4, dtype=dtype), "y": floats(2, 4, 5, dtype=dtype)})
    case(f"mv/{dtype}", paddle.mv, {"x": floats(3, 4, dtype=dtype), "y": floats(4, dtype=dtype)})
    case(f"dot/{dtype}", paddle.dot, {"x": floats(4, dtype=dtype), "y": floats(4, dtype=dtype)})
    case(f"addmm/{dtype}", lambda i, x, y: paddle.addmm(i, x, y, 0.5, 2.0), {"i": floats(3, 5, dtype=dtype), "x": floats(3, 4, dtype=dtype), "y": floats(4, 5, dtype=dtype)})
    case(f"determinant/{dtype}", paddle.linalg.det, {"x": floats(2, 3, 3, dtype=dtype)})
case("determinant/one", paddle.linalg.det, {"x": floats(3, 3)})
case("addmm/vector", lambda i, x, y: paddle.addmm(i, x, y), {"i": floats(5), "x": floats(3, 4), "y": floats(4, 5)})
case("dot/batch", paddle.dot, {"x": floats(3, 4), "y": floats(3, 4)})
case("dot/int64", paddle.dot, {"x": ints(4), "y": ints(4)})
case("multi_dot/3", lambda x, y, z: paddle.linalg.multi_dot([x, y, z]), {"x": floats(2, 3), "y": floats(3, 4), "z": floats(4, 5)})
for equation, shapes in {
    "ij,jk->ik": [(2, 3), (3, 4)],
    "bij,bjk->bik": [(5, 2, 3), (5, 3, 4)],
    "i,i->": [(4,), (4,)],
    "ij->ji": [(2, 3)],
    "ij->": [(2, 3)],
    "i,j->ij": [(2,), (3,)],
    "...ij,...jk->...ik": [(5, 2, 3), (5, 3, 4)],
    "bhqd,bhkd->bhqk": [(2, 3, 4, 5), (2, 3, 6, 5)],
    "ij,jk": [(2, 3), (3, 4)],
    "a,ab,bc->c": [(2,), (2, 3), (3, 4)],
}.items():
    inputs = {f"x{place}": floats(*shape, seed=place) for place, shape in enumerate(shapes)}
    case(f"einsum/{equation}".replace(">", "").replace("...", "_"), lambda *xs, equation=equation: paddle.einsum(equation, *xs), inputs)
case("kron/2 2", paddle.kron, {"x": floats(2, 3), "y": floats(4, 5)})
case("kron/open", paddle.kron, {"x": OPEN, "y": floats(4, 5)})
case("kron/1 3", paddle.kron, {"x": floats(3), "y": floats(2, 4, 5)})
case("cross/default", paddle.cross, {"x": floats(2, 3, 3), "y": floats(2, 3, 3, seed=1)})
case("cross/last", lambda x, y: paddle.cross(x, y, -1), {"x": floats(2, 3, 3), "y": floats(2, 3, 3, seed=1)})
for offset in (0, 1, -2, 9):
    for axes in [(0, 1), (1, 2), (2, 0)]:
        case(f"diagonal/{offset} {axes}", lambda x, o=offset, a=axes: paddle.diagonal(x, o, *a), {"x": ([None, 3, None], [floats(4, 3, 5), floats(4, 3, 2)])})
        if offset < 9:
            case(f"trace/{offset} {axes}", lambda x, o=offset, a=axes: paddle.trace(x, o, *a), {"x": ([None, 3, None], [floats(4, 3, 5), floats(5, 3, 3)])})
case("diagonal/known", paddle.diagonal, {"x": floats(3, 5)})
case("trace/int64", paddle.trace, {"x": ints(3, 5)})
case("bilinear/bias", lambda x, y, w, b: F.bilinear(x, y, w, b), {"x": floats(2, 3), "y": floats(2, 4), "w": floats(5, 3, 4), "b": floats(1, 5)})

# ---- gamma functions, running extremes, losses

unary("lgamma", paddle.lgamma, low=-4.7, high=9.0)
unary("digamma", paddle.digamma, low=-4.7, high=9.0)
case("lgamma/large", paddle.lgamma, {"x": np.array([1, 2, 0.5, 100, 1e4, 1e20, 1e-6, -3.5, -0.1], "float32")})
case("digamma/large", paddle.digamma, {"x": np.array([1, 2, 0.5, 100, 1e4, 1e20, 1e-3, -3.5, -0.1], "float32")})
for name in ("cummax", "cummin"):
    call = getattr(paddle, name)
    for axis in (None, 0, 1, -1):
        case(f"{name}/{axis}", lambda x, call=call, axis=axis: call(x, axis), {"x": ([None, 3, None], [ints(2, 3, 9).astype("float32"), floats(1, 3, 5)])})
    for dtype in ("float64", "int32", "int64"):
        case(f"{name}/{dtype}", lambda x, call=call: call(x, 1, dtype="int32"), {"x": operand(dtype, 3, 9)})
    case(f"{name}/nan", lambda x, call=call: call(x, 0), {"x": np.array([1, 3, 2, np.nan, 5, 0], "float32")})
PROBABILITY, LABEL = floats(3, 4, low=0.05, high=0.95), bools(3, 4).astype("float32")
for reduction in ("none", "mean", "sum"):
    pair = {"x": PROBABILITY, "y": LABEL}
    case(f"bce_loss/{reduction}", lambda x, y, r=reduction: F.binary_cross_entropy(x, y, reduction=r), pair)
    case(f"sigmoid_cross_entropy_with_logits/{reduction}", lambda x, y, r=reduction: F.binary_cross_entropy_with_logits(x, y, reduction=r), {"x": floats(3, 4), "y": LABEL})
    case(f"huber_loss/{reduction}", lambda x, y, r=reduction: F.smooth_l1_loss(x, y, r, 0.7), {"x": floats(3, 4), "y": floats(3, 4, seed=1)})
for reduction in ("none", "mean", "sum", "batchmean"):
    case(f"kldiv_loss/{reduction}", lambda x, y, r=reduction: F.kl_div(x, y, r), {"x": floats(3, 4), "y": np.where(LABEL > 0, PROBABILITY, 0)})
case("log_loss/1", lambda x, y: F.log_loss(x, y), {"x": floats(5, 1, low=0.1, high=0.9), "y": bools(5, 1).astype("float32")})
case("sigmoid_cross_entropy_with_logits/weight", lambda x, y, w: F.binary_cross_entropy_with_logits(x, y, pos_weight=w), {"x": floats(3, 4), "y": LABEL, "w": floats(4, low=0.5)})
case("sigmoid_cross_entropy_with_logits/soft", lambda x, y, w: F.binary_cross_entropy_with_logits(x, y, pos_weight=w), {"x": floats(3, 4), "y": PROBABILITY, "w": floats(4, low=0.5)})
case("sigmoid_cross_entropy_with_logits/raw", lambda x, y: raw("sigmoid_cross_entropy_with_logits", {"X": x, "Label": y}, ["Out"], {"ignore_index": 1, "normalize": True}), {"x": floats(3, 4), "y": LABEL}, only="2.6")

# ---- complex numbers

for norm in ("backward", "ortho", "forward"):
    for size in (8, 7):
        x = {"x": floats(2, size)}
        case(f"fft/rfft irfft {norm} {size}", lambda x, n=norm, s=size: paddle.fft.irfft(paddle.fft.rfft(x, norm=n) * 2.0, s, norm=n), x)
        case(f"fft/rfft {norm} {size}", lambda x, n=norm: paddle.as_real(paddle.fft.rfft(x, norm=n)), x)
        case(f"fft/fft {norm} {size}", lambda x, n=norm: paddle.as_real(paddle.fft.fft(paddle.fft.rfft(x, norm=n), norm=n)), x)
        case(f"fft/ifft {norm} {size}", lambda x, n=norm: paddle.as_real(paddle.fft.ifft(paddle.fft.rfft(x, norm=n), norm=n)), x)
        case(f"fft/hfft {norm} {size}", lambda x, n=norm, s=size: paddle.fft.hfft(paddle.fft.rfft(x, norm=n), s, norm=n), x)
        case(f"fft/ihfft {norm} {size}", lambda x, n=norm: paddle.as_real(paddle.fft.ihfft(x, norm=n)), x)
    case(f"fft/rfft2 {norm}", lambda x, n=norm: paddle.fft.irfft2(paddle.fft.rfft2(x, norm=n), norm=n), {"x": floats(2, 3, 4, 6)})
    case(f"fft/real fft {norm}", lambda x, n=norm: paddle.as_real(paddle.fft.fft(x, norm=n)), {"x": floats(2, 5)})
    case(f"fft/axis 0 {norm}", lambda x, n=norm: paddle.as_real(paddle.fft.rfft(x, axis=0, norm=n)), {"x": floats(6, 5)})
case("fft/open", lambda x: paddle.fft.irfft(paddle.fft.rfft(x), 8), {"x": ([None, 8], [floats(2, 8), floats(3, 8)])})
case("fft/vector", lambda x: paddle.abs(paddle.fft.rfft(x)), {"x": floats(8)})
case("fft/float64", lambda x: paddle.fft.irfft(paddle.fft.rfft(x)), {"x": floats(2, 8, dtype="float64")})
case("complex/arithmetic", lambda x, y: paddle.as_real((paddle.complex(x, y) * paddle.complex(y, x) + paddle.complex(x, x)) / paddle.complex(y, y) - paddle.complex(x, y)), {"x": floats(2, 3), "y": floats(2, 3, seed=1)})
case("complex/parts", lambda x: [paddle.real(paddle.as_complex(x)), paddle.imag(paddle.conj(paddle.as_complex(x))), paddle.angle(paddle.as_complex(x)), paddle.abs(paddle.as_complex(x))], {"x": floats(3, 4, 2)})
case("complex/broadcast", lambda x, y: paddle.as_real(paddle.complex(x, y)), {"x": floats(3, 1), "y": floats(4)})
case("angle/real", paddle.angle, {"x": floats(3, 4)})

# ---- what Paddle itself does not run: dtypes without kernels, tensors without elements

LACKING = {
    "2.6": [
        "add/uint8", "add/int8", "add/int16", "add/bool", "add/empty", "subtract/uint8", "subtract/int8",
        "subtract/int16", "subtract/empty", "multiply/uint8", "multiply/int8", "multiply/int16", "multiply/empty",
        "divide/empty", "maximum/empty", "minimum/empty", "pow/empty", "remainder/empty", "floor_divide/uint8",
        "floor_divide/int8", "floor_divide/int16", "floor_divide/empty", "fmax/empty", "fmin/empty",
        "heaviside/empty", "clip/tensors int64", "cast/int8 float32", "cast/int8 float64", "cast/int8 float16",
        "cast/int8 int32", "cast/int8 int64", "cast/int8 uint8", "cast/int8 int8", "cast/int8 int16",
        "cast/int8 bool", "sin/int32", "sin/int64", "cos/int32", "cos/int64", "tanh/int32", "tanh/int64",
        "sqrt/int32", "sqrt/int64", "rsqrt/int32", "rsqrt/int64", "floor/int32", "floor/int64", "ceil/int32",
        "ceil/int64", "round/int32", "round/int64", "sigmoid/int32", "sigmoid/int64", "erf/int32", "erf/int64",
        "reciprocal/int32", "reciprocal/int64", "rrelu/open", "rrelu/float32", "rrelu/float64", "rrelu/scalar",
        "rrelu/empty", "relu/int32", "relu/int64", "equal/empty", "not_equal/empty", "less_than/empty",
        "less_equal/empty", "greater_than/empty", "greater_equal/empty", "where/bool", "reduce_sum/uint8",
        "reduce_sum/all uint8", "reduce_mean/int32", "reduce_mean/all int32", "reduce_mean/int64",
        "reduce_mean/all int64", "reduce_sum/empty", "reduce_prod/empty", "reduce_all/empty", "reduce_any/empty",
        "matmul/old batch broadcast", "matmul/empty", "matmul/int32", "matmul/int64",
    ],
    "3.3": [
        "subtract/uint8", "subtract/int8", "multiply/uint8", "multiply/int8", "multiply/int16", "relu/int32",
        "relu/int64",
    ],
}
LACKING = set(LACKING["3.3" if IS_PIR else "2.6"])
CASES[:] = [one for one in CASES if one.name not in LACKING]

# ---- windows of signals

for name, shape, sets in (
    ("last", [None, 20], [floats(1, 20), floats(3, 20)]),
    ("open", [2, None], [floats(2, 20), floats(2, 9)]),
):
    case(f"frame/{name}", lambda x: paddle.signal.frame(x, 4, 3), {"x": (shape, sets)})
case("frame/first", lambda x: paddle.signal.frame(x, 4, 2, axis=0), {"x": floats(11, 3)})
case("frame/vector", lambda x: [paddle.signal.frame(x, 4, 2, axis=axis) for axis in (0, -1)], {"x": floats(11)})
case(
    "transpose/complex",
    lambda x: paddle.as_real(paddle.transpose(paddle.as_complex(x), [1, 2, 0])),
    {"x": ([None, 3, 4, 2], [floats(2, 3, 4, 2), floats(5, 3, 4, 2)])},
)
