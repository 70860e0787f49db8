"""Cases of messages along the edges of graphs, and of other operators of programs of later versions."""

import numpy as np
import paddle
import paddle.geometric as G
import paddle.nn.functional as F

from cases import IS_PIR, case, floats, ints

NODES, EDGES = 5, 9
DTYPES = ("float32", "float64", "int32", "int64")
REDUCTIONS = ("sum", "mean", "max", "min")


def data(*shape, dtype="float32", seed=0):
    """Returns random numbers of a dtype."""
    return floats(*shape, seed=seed, dtype=dtype) if dtype.startswith("f") else ints(*shape, seed=seed, dtype=dtype)


def edges(count=EDGES, nodes=NODES, seed=0, dtype="int64"):
    """Returns the sources and targets of random edges; the last node is no target."""
    return ints(count, seed=seed, low=0, high=nodes, dtype=dtype), ints(count, seed=seed + 1, low=0, high=nodes - 1, dtype=dtype)


def graphs(*shape, dtype="float32", index="int64"):
    """Returns open inputs: rows of nodes, sources and targets, for several graphs."""
    sizes = ((NODES, EDGES), (3, 20), (7, 1), (2, 2))
    rows = [data(nodes, *shape, dtype=dtype, seed=nodes) for nodes, _ in sizes]
    pairs = [edges(count, nodes, nodes, index) for nodes, count in sizes]
    return {
        "x": ([None, *shape], rows),
        "s": ([None], [pair[0] for pair in pairs]),
        "d": ([None], [pair[1] for pair in pairs]),
    }


# ---- messages

for reduction in REDUCTIONS:
    make = lambda x, s, d, r=reduction: G.send_u_recv(x, s, d, r)
    for dtype in DTYPES:
        source, target = edges()
        case(f"send_u_recv/{reduction} {dtype}", make, {"x": data(NODES, 3, dtype=dtype), "s": source, "d": target})
        case(f"send_u_recv/open {reduction} {dtype}", make, graphs(3, dtype=dtype))
    case(f"send_u_recv/i32 {reduction}", make, graphs(2, index="int32"))
    case(f"send_u_recv/rank 1 {reduction}", make, graphs())
    case(f"send_u_recv/rank 3 {reduction}", make, graphs(2, 3))
    case(f"send_u_recv/out_size {reduction}", lambda x, s, d, r=reduction: G.send_u_recv(x, s, d, r, out_size=9), graphs(3))
    case(f"send_u_recv/fewer {reduction}", lambda x, s, d, r=reduction: G.send_u_recv(x, s, d, r, out_size=NODES - 1), {"x": data(NODES, 3), "s": source, "d": target})
    given = {**graphs(3), "n": ([1], [np.array([8], "int32"), np.array([0], "int32"), np.array([6], "int32"), np.array([9], "int32")])}
    case(f"send_u_recv/computed out_size {reduction}", lambda x, s, d, n, r=reduction: G.send_u_recv(x, s, d, r, out_size=n), given)
    equal = np.array([[1, -0.5], [1, -0.5], [2, 2], [-np.inf, np.inf]], "float32")
    case(f"send_u_recv/equal and infinite {reduction}", make, {"x": equal, "s": np.array([0, 1, 2, 0, 1, 3]), "d": np.array([3, 3, 3, 1, 1, 0])})
    for message in ("add", "sub", "mul", "div"):
        make = lambda x, y, s, d, m=message, r=reduction: G.send_ue_recv(x, y, s, d, m, r)
        rows = {**graphs(3), "y": ([None, 3], [data(count, 3, seed=9) for count in (EDGES, 20, 1, 2)])}
        case(f"send_ue_recv/{message} {reduction}", make, {key: rows[key] for key in ("x", "y", "s", "d")})
make = lambda x, y, s, d: G.send_ue_recv(x, y, s, d, "mul", "sum")
for own, other in (((4,), ()), ((4,), (1,)), ((2, 4), (2, 1)), ((1, 4), (2, 4)), ((4,), (2, 4)), ((2, 4), (4,)), ((), ()), ((), (2,))):
    source, target = edges()
    case(f"send_ue_recv/broadcast {own} {other}", make, {"x": data(NODES, *own), "y": ([None] * (1 + len(other)), [data(EDGES, *other)]), "s": ([None], [source]), "d": ([None], [target])})
for dtype in DTYPES:
    make = lambda x, y, s, d: G.send_ue_recv(x, y, s, d, "add", "max")
    case(f"send_ue_recv/{dtype}", make, {"x": data(NODES, 3, dtype=dtype), "y": data(EDGES, 3, dtype=dtype), "s": source, "d": target})
for message in ("add", "sub", "mul", "div"):
    make = lambda x, y, s, d, m=message: G.send_uv(x, y, s, d, m)
    rows = {**graphs(3), "y": ([None, 3], [data(count, 3, seed=9) for count in (NODES, 3, 7, 2)])}
    case(f"send_uv/{message}", make, {key: rows[key] for key in ("x", "y", "s", "d")})
    case(f"send_uv/f64 {message}", make, {"x": data(NODES, 2, 1, dtype="float64"), "y": data(NODES, 3, dtype="float64", seed=3), "s": source, "d": target})

# ---- segments

SEGMENTS = [np.array([0, 0, 1, 1, 1]), np.array([0, 2, 2]), np.array([1, 1, 1, 5]), np.array([0])]
for reduction in REDUCTIONS:
    make = lambda x, s, r=reduction: getattr(G, f"segment_{r}")(x, s)
    for dtype in (*DTYPES, "float16"):
        rows = [data(len(segments), 3, dtype=dtype, seed=len(segments)) for segments in SEGMENTS]
        case(f"segment_pool/{reduction} {dtype}", make, {"x": ([None, 3], rows), "s": ([None], SEGMENTS)})
    case(f"segment_pool/rank 1 {reduction}", make, {"x": data(5), "s": SEGMENTS[0]})
    case(f"segment_pool/rank 3 {reduction}", make, {"x": data(5, 2, 3), "s": SEGMENTS[0].astype("int32")})

# ---- gates, products

swiglu = None if not IS_PIR else F.swiglu if hasattr(F, "swiglu") else paddle.incubate.nn.functional.swiglu
for dtype in ("float32", "float64"):
    case(f"swiglu/{dtype}", lambda x, y: swiglu(x, y), {"x": data(2, 3, dtype=dtype), "y": data(2, 3, dtype=dtype, seed=1)}, only="3.3")
    case(f"swiglu/halves {dtype}", lambda x: swiglu(x), {"x": ([None, None, 6], [data(2, 3, 6, dtype=dtype), data(1, 4, 6, dtype=dtype)])}, only="3.3")
for beta, alpha in ((1.0, 1.0), (0.5, 2.0), (0.0, -1.5)):
    make = lambda i, x, y, beta=beta, alpha=alpha: paddle.baddbmm(i, x, y, beta, alpha)
    case(f"baddbmm/{beta} {alpha}", make, {"i": floats(2, 3, 5), "x": floats(2, 3, 4), "y": floats(2, 4, 5)}, only="3.3")
    case(f"baddbmm/f64 {beta} {alpha}", make, {"i": floats(2, 1, 5, dtype="float64"), "x": floats(2, 3, 4, dtype="float64"), "y": floats(2, 4, 5, dtype="float64")}, only="3.3")
    opened = lambda *shape: ([None, *shape[1:]], [floats(2, *shape[1:]), floats(3, *shape[1:], seed=4)])
    case(f"baddbmm/open {beta} {alpha}", make, {"i": opened(2, 3, 5), "x": opened(2, 3, 4), "y": opened(2, 4, 5)}, only="3.3")
for power in (0, 1, 2, 3, 4, 7, 10):
    make = lambda x, n=power: paddle.linalg.matrix_power(x, n)
    case(f"matrix_power/{power}", make, {"x": floats(3, 3, low=-1, high=1)})
    case(f"matrix_power/batch f64 {power}", make, {"x": floats(2, 1, 4, 4, low=-1, high=1, dtype="float64")})
    if not IS_PIR:
        case(f"matrix_power/open {power}", make, {"x": ([None, 3, 3], [floats(2, 3, 3, low=-1, high=1), floats(1, 3, 3)])})

EQUATIONS = {
    "bii->bi": [(2, 3, 3)], "ii->i": [(3, 3)], "ii->": [(3, 3)], "ii": [(3, 3)], "iii->i": [(3, 3, 3)], "iji->ij": [(2, 3, 2)],
    "iji->ji": [(2, 3, 2)], "...ii->...i": [(2, 4, 3, 3)], "ibi,i->b": [(2, 3, 2), (2,)], "ii,ij->j": [(2, 2), (2, 3)],
    "bii,bij->bj": [(4, 3, 3), (4, 3, 2)], "ij,jj->i": [(2, 3), (3, 3)], "ii,jj->ij": [(2, 2), (3, 3)], "bii": [(2, 3, 3)],
}
for equation, shapes in EQUATIONS.items():
    make = lambda *operands, e=equation: paddle.einsum(e, *operands)
    for dtype in ("float32", "float64"):
        case(f"einsum/repeated {equation} {dtype}", make, {f"x{place}": data(*shape, dtype=dtype, seed=place) for place, shape in enumerate(shapes)})
for equation, shape in (("bii->bi", (3, 3)), ("bii->b", (3, 3)), ("bii", (3, 3)), ("biji->bj", (3, 2, 3))):
    case(f"einsum/open repeated {equation}", lambda x, e=equation: paddle.einsum(e, x), {"x": ([None, *shape], [floats(2, *shape), floats(4, *shape)])})

# ---- norms

for p in (0.5, 1.0, 2.0, 3.0):
    for axis in (0, 1, -1):
        make = lambda x, p=p, a=axis: paddle.renorm(x, p, a, 1.5)
        case(f"renorm/{p} {axis}", make, {"x": ([None, 3, 4], [floats(2, 3, 4), floats(1, 3, 4), np.zeros((2, 3, 4), "float32"), floats(2, 3, 4, low=-0.1, high=0.1)])})
        case(f"renorm/f64 {p} {axis}", make, {"x": floats(2, 3, dtype="float64")})

# ---- signs, bits

signs = [1.0, -2.0, 0.0, -0.0, np.inf, -np.inf, np.nan, 3.0]
for dtype in ("float32", "float64", "float16"):
    inverse = (lambda x: x) if dtype == "float16" else paddle.reciprocal
    make = lambda x, y, i=inverse: (paddle.copysign(x, y), i(paddle.copysign(paddle.zeros_like(x), y)))
    case(f"copysign/{dtype}", make, {"x": np.repeat(signs, 8).astype(dtype), "y": np.array(signs * 8, dtype)}, only="3.3")
    case(f"copysign/broadcast {dtype}", lambda x, y: paddle.copysign(x, y), {"x": ([None, 3], [data(2, 3, dtype=dtype), data(1, 3, dtype=dtype)]), "y": data(4, 1, 1, dtype=dtype)}, only="3.3")
case("copysign/number", lambda x: paddle.copysign(x, -2.0), {"x": floats(3, 2)}, only="3.3")
for dtype in ("uint8", "int8", "int16", "int32", "int64"):
    low = 0 if dtype == "uint8" else -5
    case(f"copysign/{dtype}", lambda x, y: paddle.copysign(x, y), {"x": ints(20, low=low, dtype=dtype), "y": ints(20, low=low, seed=1, dtype=dtype)}, only="3.3")
    limits = np.iinfo(dtype)
    numbers = np.array([0, 1, 5, 77, 100, limits.max, limits.min, limits.max - 3, limits.min + 5, low, low * 3], dtype)
    places = np.array([0, 1, 2, 3, 6, 7, 8, 15, 16, 31, 32, 63, 64, 100, *([-1, -7, limits.min] if low else [])], dtype)
    pair = {"x": np.repeat(numbers, len(places)), "y": np.tile(places, len(numbers))}
    for name in ("left", "right"):
        for arithmetic in (True, False):
            make = lambda x, y, n=name, a=arithmetic: getattr(paddle, f"bitwise_{n}_shift")(x, y, a)
            kind = "arithmetic" if arithmetic else "logical"
            case(f"bitwise_shift/{name} {kind} {dtype}", make, pair, only="3.3")
            case(f"bitwise_shift/broadcast {name} {kind} {dtype}", make, {"x": ([None, 3], [ints(2, 3, low=low, dtype=dtype), ints(4, 3, low=low, dtype=dtype)]), "y": np.array([0, 1, 3], dtype)}, only="3.3")

# ---- windows of signals

for hop in (1, 2, 3, 4):
    for dtype in DTYPES:
        make = lambda x, h=hop: paddle.signal.overlap_add(x, h)
        case(f"overlap_add/{hop} {dtype}", make, {"x": data(2, 4, 5, dtype=dtype)})
        case(f"overlap_add/rank 2 {hop} {dtype}", make, {"x": data(4, 1, dtype=dtype)})
        make = lambda x, h=hop: paddle.signal.overlap_add(x, h, axis=0)
        case(f"overlap_add/axis 0 {hop} {dtype}", make, {"x": data(5, 4, 2, 3, dtype=dtype)})
        case(f"overlap_add/axis 0 rank 2 {hop} {dtype}", make, {"x": data(5, 4, dtype=dtype)})
    case(f"overlap_add/open {hop}", lambda x, h=hop: paddle.signal.overlap_add(x, h), {"x": ([None, 2, 4, 3], [floats(1, 2, 4, 3), floats(3, 2, 4, 3)])})


def istft(x, *size, window=None, **more):
    """Returns the signal of a spectrum given as pairs of numbers; the window is constant."""
    if window is not None:
        initializer = paddle.ParamAttr(initializer=paddle.nn.initializer.Assign(window))
        made = paddle.static.create_parameter(list(window.shape), str(window.dtype), attr=initializer)
        type(made).__len__ = lambda own: own.shape[0]  # Paddle asks for the length, which values of static programs lack.
        window = made
    return paddle.signal.istft(paddle.as_complex(x), *size, window=window, **more)


for name, more in (
    ("plain", {}),
    ("window", {"window": np.hanning(18)[1:-1].astype("float32")}),
    ("not centered", {"center": False}),
    ("normalized", {"normalized": True}),
    ("length", {"length": 30}),
    ("two-sided", {"onesided": False}),
    ("short window", {"win_length": 12}),
):
    size = 16 if name == "two-sided" else 9
    case(f"overlap_add/istft {name}", lambda x, more=more: istft(x, 16, 4, **more), {"x": ([None, size, 7, 2], [floats(2, size, 7, 2), floats(1, size, 7, 2)])}, atol=1e-3)
case("overlap_add/istft of stft", lambda x: paddle.signal.istft(paddle.signal.stft(x, 16, 4), 16, 4), {"x": floats(2, 48)}, atol=1e-3)
