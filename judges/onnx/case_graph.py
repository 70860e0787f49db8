"""Cases of messages along the edges of graphs, and of other operators of programs of later versions."""

import numpy as np
import paddle
import paddle.geometric as G

from cases import case, floats, ints

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
