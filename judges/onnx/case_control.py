"""Cases of branches, loops and lists of tensors."""

import numpy as np
import paddle

from cases import bools, case, floats, ints
from run import IS_PIR

nn = paddle.static.nn
F32, I64, BOOL = "float32", "int64", "bool"
ROWS = ([None, 3], [floats(2, 3), floats(5, 3, seed=1)])
FLAG = ([1], [np.array([True]), np.array([False])])
FLAG0 = ([], [np.array(True), np.array(False)])


def full(value, dtype=F32, shape=(1,)):
    return paddle.full(list(shape), value, dtype)


def python(function):
    """Returns a function that translates the Python control flow of `function` to operators."""
    from paddle.jit.dy2static.convert_call_func import convert_call

    def make(*args):
        return convert_call(function)(*args)

    return make


# ---- branches

case("cond/rank 1", lambda p, x: nn.cond(p, lambda: x + 1.0, lambda: x * 2.0), {"p": FLAG, "x": ROWS})
case("cond/rank 0", lambda p, x: nn.cond(p, lambda: x + 1.0, lambda: x * 2.0), {"p": FLAG0, "x": ROWS})
case(
    "cond/computed",
    lambda x: nn.cond(x.sum() > 0.0, lambda: x - 1.0, lambda: x * 2.0),
    {"x": ([2], [np.array([1, 2], F32), np.array([-1, -2], F32)])},
)
case(
    "cond/several outputs",
    lambda p, x: nn.cond(p, lambda: (x + 1.0, x * 3.0, x.sum()), lambda: (x * 2.0, x - 1.0, x.max())),
    {"p": FLAG, "x": ROWS},
)
case(
    "cond/outputs that are inputs",
    lambda p, x, y: nn.cond(p, lambda: (x, y), lambda: (y, x)),
    {"p": FLAG, "x": floats(2, 3), "y": floats(2, 3, seed=1)},
)
case(
    "cond/one output twice", lambda p, x: nn.cond(p, lambda: (x, x), lambda: (x + 1.0, x)), {"p": FLAG, "x": ROWS}
)
case("cond/constants", lambda p: nn.cond(p, lambda: full(3, I64), lambda: full(5, I64)), {"p": FLAG})
case(
    "cond/other shapes",
    lambda p, x: nn.cond(p, lambda: paddle.concat([x, x]), lambda: x),
    {"p": FLAG, "x": ROWS},
)
case(
    "cond/dtypes",
    lambda p, x, i, z: nn.cond(p, lambda: (x, i + 1, z), lambda: (x * 2.0, i, paddle.logical_not(z))),
    {"p": FLAG, "x": floats(2, dtype="float64"), "i": ints(3, dtype="int32"), "z": bools(4)},
)


def nested(p, q, x):
    def inner():
        return nn.cond(q, lambda: x + 1.0, lambda: x - 1.0)

    return nn.cond(p, inner, lambda: nn.cond(q, lambda: x * 2.0, lambda: x * 3.0))


PAIRS = [np.array([v]) for v in (True, True, False, False)]
OTHERS = [np.array([v]) for v in (True, False, True, False)]
case("cond/nested", nested, {"p": ([1], PAIRS), "q": ([1], OTHERS), "x": floats(2, 3)})


def chain(p, q, x):
    y = nn.cond(p, lambda: x + 1.0, lambda: x * 2.0)
    z = nn.cond(q, lambda: y - 5.0, lambda: y)
    return nn.cond(p, lambda: (y, z), lambda: (z, y + z))


case("cond/chain", chain, {"p": ([1], PAIRS), "q": ([1], OTHERS), "x": floats(2, 3)})


def shared(p, x):
    y = nn.cond(p, lambda: x + 1.0, lambda: x * 2.0)
    z = nn.cond(p, lambda: x - 1.0, lambda: x * 4.0)
    return y, z, y + z


case("cond/one condition twice", shared, {"p": FLAG, "x": ROWS})


def with_weights(p, x):
    w = paddle.static.create_parameter([3, 4], F32)
    v = paddle.static.create_parameter([3, 4], F32)
    return nn.cond(p, lambda: paddle.matmul(x, w), lambda: paddle.matmul(x, w) + paddle.matmul(x, v))


case("cond/weights", with_weights, {"p": FLAG, "x": ROWS})


def assigned(p, x):
    out = x * 1.0

    def change():
        paddle.assign(x + 10.0, out)

    nn.cond(p, change, None)
    return out + 1.0


case("cond/assigns outside", assigned, {"p": FLAG, "x": floats(2, 3)}, only="2.6")
case(
    "case/three",
    lambda i, x: nn.case([(i < 1, lambda: x + 1.0), (i < 3, lambda: x * 2.0)], lambda: x - 3.0),
    {"i": ([1], [np.array([v], I64) for v in (0, 2, 5)]), "x": ROWS},
)
case(
    "case/no default",
    lambda i, x: nn.case([(i < 1, lambda: (x + 1.0, x)), (i < 3, lambda: (x, x * 2.0))]),
    {"i": ([1], [np.array([v], I64) for v in (0, 2, 5)]), "x": ROWS},
)
for dtype in ("int64", "int32"):
    case(
        f"switch_case/{dtype}",
        lambda i, x: nn.switch_case(i, {1: lambda: x + 1.0, 4: lambda: x * 2.0, 2: lambda: x * 7.0}, lambda: x - 3.0),
        {"i": ([1], [np.array([v], dtype) for v in (1, 4, 2, 0, 9)]), "x": ROWS},
    )
case(
    "switch_case/list",
    lambda i, x: nn.switch_case(i, [lambda: (x + 1.0, x), lambda: (x * 2.0, x - 1.0)]),
    {"i": ([1], [np.array([v], I64) for v in (0, 1, 7)]), "x": ROWS},
)

# ---- loops

COUNTS = ([1], [np.array([v], I64) for v in (3, 0, 1, 7)])


def counting(n, x):
    def body(i, y):
        return i + 1, y * 2.0

    return nn.while_loop(lambda i, y: i < n, body, [full(0, I64), x])


case("while/counts", counting, {"n": COUNTS, "x": ROWS})


def counting_in_place(n, x):
    def body(i, y):
        return paddle.increment(i), y + x

    return nn.while_loop(lambda i, y: i < n, body, [full(0, I64), x])


case("while/increment", counting_in_place, {"n": COUNTS, "x": ROWS})


def swapping(n, x, y):
    def body(i, a, b):
        return i + 1, b, a + b

    return nn.while_loop(lambda i, a, b: i < n, body, [full(0, I64), x, y])


case("while/swaps", swapping, {"n": COUNTS, "x": floats(2, 3), "y": floats(2, 3, seed=2)})


def growing(n, x):
    def body(i, y):
        return i + 1, paddle.concat([y, x])

    return nn.while_loop(lambda i, y: i < n, body, [full(0, I64), x])


case("while/grows", growing, {"n": COUNTS, "x": ROWS})
case("while/grows from constant size", growing, {"n": COUNTS, "x": floats(2, 3)}, only="3.3")


def growing_by_size(n, x):
    def body(i, y):
        return i + 1, paddle.concat([y, y[-1:] + paddle.shape(y)[0].astype("float32")])

    _, y = nn.while_loop(lambda i, y: i < n, body, [full(0, I64), x * 1.0])
    return y, paddle.shape(y), paddle.argsort(y, axis=0), paddle.flatten(y)


case("while/grows by its size", growing_by_size, {"n": COUNTS, "x": floats(1, 3)})


def assigned_again(x):
    y = paddle.concat([x, x])
    flat, order = paddle.flatten(y), paddle.argsort(y, axis=0)
    paddle.assign(paddle.ones([5, 3]), output=y)
    return flat, order, y * 2.0


case("assign/another shape later", assigned_again, {"x": floats(2, 3)}, only="2.6")


def invariant(n, x, w):
    def body(i, y):
        return i + 1, paddle.matmul(y, w) + x

    return nn.while_loop(lambda i, y: i < n, body, [full(0, I64), x])[1]


case("while/invariant", invariant, {"n": COUNTS, "x": floats(2, 3), "w": floats(3, 3)})


def nested_loops(n, x):
    def body(i, y):
        def inner(j, z):
            return j + 1, z + 1.0

        _, z = nn.while_loop(lambda j, z: j < i, inner, [full(0, I64), y])
        return i + 1, z * 2.0

    return nn.while_loop(lambda i, y: i < n, body, [full(0, I64), x])


case("while/nested", nested_loops, {"n": COUNTS, "x": ROWS})


def cond_in_loop(n, x):
    def body(i, y):
        return i + 1, nn.cond(y.sum() > 0.0, lambda: y - 3.0, lambda: y * -2.0)

    return nn.while_loop(lambda i, y: i < n, body, [full(0, I64), x])


case("while/cond in the body", cond_in_loop, {"n": COUNTS, "x": floats(2, 3)})


def loop_in_cond(p, n, x):
    def looped():
        return nn.while_loop(lambda i, y: i < n, lambda i, y: (i + 1, y + 1.0), [full(0, I64), x])[1]

    return nn.cond(p, looped, lambda: x * 5.0)


case("cond/loop in a branch", loop_in_cond, {"p": FLAG, "n": COUNTS, "x": ROWS})


def until(x):
    return nn.while_loop(lambda y: y.sum() < 100.0, lambda y: [y * 2.0], [x])


case("while/until", until, {"x": floats(2, 3, low=0.5)})


def flag_loop(n, x):
    def body(go, i, y):
        i = i + 1
        return i < n, i, y + 1.0

    return nn.while_loop(lambda go, i, y: go, body, [full(True, BOOL), full(0, I64), x])


case("while/carries its condition", flag_loop, {"n": COUNTS, "x": ROWS})


def mixed(n, x):
    def body(i, y, k, z):
        return i + 1, y * 2.0, k + 3, paddle.logical_not(z)

    return nn.while_loop(
        lambda i, y, k, z: i < n, body, [full(0, I64), x, full(1, "int32", (2,)), full(True, BOOL)]
    )


case("while/dtypes", mixed, {"n": COUNTS, "x": floats(2, 3, dtype="float64")})


def decode(n, x, w):
    """A greedy decoder: the tokens grow by one each step."""

    def body(i, tokens, state):
        scores = paddle.matmul(state, w)
        token = paddle.argmax(scores, axis=-1, keepdim=True)
        return i + 1, paddle.concat([tokens, token], axis=1), paddle.tanh(scores)

    start = paddle.zeros([2, 1], I64)
    return nn.while_loop(lambda i, t, s: i < n, body, [full(0, I64), start, x])[1:]


case("while/decoder", decode, {"n": COUNTS, "x": floats(2, 4), "w": floats(4, 4)})


def assigned_in_loop(n, x):
    total = x * 1.0

    def body(i):
        paddle.assign(total + x, total)
        return [paddle.increment(i)]

    nn.while_loop(lambda i: i < n, body, [full(0, I64)])
    return total + 0.0


case("while/assigns outside", assigned_in_loop, {"n": COUNTS, "x": ROWS}, only="2.6")


def old_and_new(p, x):
    """A branch reads the value of before, though the branch changes it."""
    old = x * 1.0

    def then():
        paddle.assign(old * 3.0, old)
        return old + 1.0

    new = nn.cond(p, then, lambda: old - 1.0)
    return new, old + 0.0


case("cond/assigns a variable and returns", old_and_new, {"p": FLAG, "x": ROWS})
# ---- lists of tensors

zero, one, two = (lambda value=value: full(value, I64) for value in (0, 1, 2))


def straight(x, y):
    array = paddle.tensor.create_array(F32)
    paddle.tensor.array_write(x, zero(), array)
    paddle.tensor.array_write(y, one(), array)
    length = paddle.tensor.array_length(array)
    return paddle.tensor.array_read(array, one()), paddle.tensor.array_read(array, zero()) + 1.0, length


case("array/straight", straight, {"x": ROWS, "y": floats(4)})


def overwritten(x, y):
    array = paddle.tensor.create_array(F32)
    paddle.tensor.array_write(x, zero(), array)
    first = paddle.tensor.array_read(array, zero()) * 1.0
    paddle.tensor.array_write(y, zero(), array)
    return first, paddle.tensor.array_read(array, zero()), paddle.tensor.array_length(array)


case("array/overwritten", overwritten, {"x": floats(2, 3), "y": floats(2, 3, seed=1)})


def to_tensor(axis, stack):
    def make(x, y):
        array = paddle.tensor.create_array(F32)
        paddle.tensor.array_write(x, zero(), array)
        paddle.tensor.array_write(y, one(), array)
        joined, sizes = paddle.tensor.manipulation.tensor_array_to_tensor(array, axis=axis, use_stack=stack)
        # Paddle 2.6 does not compute the sizes, and 3.3 those of a negative axis.
        return (joined, sizes) if IS_PIR and axis >= 0 else joined

    return make


# A negative axis crashes Paddle 2.6, and 3.3 if it stacks.
for axis in (0, 1, -1):
    for stack in (False, True)[: 1 if axis < 0 else 2]:
        inputs = {"x": floats(2, 3), "y": floats(2, 3, seed=1)}
        name = f"array/to tensor {axis} {'stack' if stack else 'concat'}"
        case(name, to_tensor(axis, stack), inputs, only="3.3" if axis < 0 else None)
case(
    "array/to tensor of other sizes",
    to_tensor(1, False),
    {"x": ([2, None], [floats(2, 3), floats(2, 1)]), "y": floats(2, 2)},
    only="2.6",
)


def filled_in_loop(dtype=F32):
    def make(n, x):
        array = paddle.tensor.create_array(dtype)

        def body(i, y):
            paddle.tensor.array_write(y, i, array)
            return i + 1, y + y

        i, y = nn.while_loop(lambda i, y: i < n, body, [full(0, I64), x])
        result, sizes = paddle.tensor.manipulation.tensor_array_to_tensor(array, axis=0, use_stack=True)
        return result, y, paddle.tensor.array_length(array)

    return make


SOME = ([1], [np.array([v], I64) for v in (3, 1, 7)])
case("array/filled in a loop", filled_in_loop(), {"n": SOME, "x": ROWS}, only="2.6")
case("array/integers filled in a loop", filled_in_loop(I64), {"n": SOME, "x": ints(2, 3)}, only="2.6")


def filled_pir(n, x):
    array = paddle.tensor.create_array(F32)

    def body(i, y):
        paddle.tensor.array_write(y, i, array)
        return i + 1, y + y

    i, y = nn.while_loop(lambda i, y: i < n, body, [full(0, I64), x])
    result, sizes = paddle.tensor.manipulation.tensor_array_to_tensor(array, axis=0, use_stack=True)
    return result, sizes, y, paddle.tensor.array_length(array)


case("array/filled in a loop, sizes", filled_pir, {"n": SOME, "x": floats(2, 3)}, only="3.3")


def carried(n, x):
    array = paddle.tensor.create_array(F32)
    array = paddle.tensor.array_write(x, zero(), array)

    def body(i, array):
        last = paddle.tensor.array_read(array, i - 1)
        array = paddle.tensor.array_write(last * 2.0, i, array)
        return i + 1, array

    i, array = nn.while_loop(lambda i, array: i < n, body, [full(1, I64), array])
    result, sizes = paddle.tensor.manipulation.tensor_array_to_tensor(array, axis=0)
    return result, paddle.tensor.array_length(array)


case("array/carried", carried, {"n": SOME, "x": ROWS})


def read_in_loop(n, x, y):
    array = paddle.tensor.create_array(F32)
    paddle.tensor.array_write(x, zero(), array)
    paddle.tensor.array_write(y, one(), array)

    def body(i, z):
        return i + 1, z + paddle.tensor.array_read(array, i % 2)

    return nn.while_loop(lambda i, z: i < n, body, [full(0, I64), x])


case("array/read in a loop", read_in_loop, {"n": COUNTS, "x": floats(2, 3), "y": floats(2, 3, seed=1)})


def in_branches(p, x):
    array = paddle.tensor.create_array(F32)
    paddle.tensor.array_write(x, zero(), array)
    value = nn.cond(
        p, lambda: paddle.tensor.array_read(array, zero()) + 1.0, lambda: paddle.tensor.array_read(array, zero())
    )
    return value


case("array/read in branches", in_branches, {"p": FLAG, "x": ROWS})

# ---- Python code


def python_if(x):
    if x.sum() > 0:
        y = x + 1.0
    else:
        y = x * 2.0
    return y


case("python/if", python(python_if), {"x": ([2], [np.array([1, 2], F32), np.array([-1, -2], F32)])})


def python_if_only(x):
    y = x * 3.0
    if x.sum() > 0:
        y = y + 1.0
    return y


case("python/if only", python(python_if_only), {"x": ([2], [np.array([1, 2], F32), np.array([-1, -2], F32)])})


def python_elif(x):
    total = x.sum()
    if total > 1:
        y = x + 1.0
    elif total > 0:
        y = x * 2.0
    else:
        y = -x
    return y, total


SIGNS = ([2], [np.array(v, F32) for v in ([1, 2], [0.2, 0.1], [-1, -2])])
case("python/elif", python(python_elif), {"x": SIGNS})


def python_while(n, x):
    i = paddle.zeros([1], I64)
    while i < n:
        x = x * 2.0
        i = i + 1
    return x


case("python/while", python(python_while), {"n": COUNTS, "x": ROWS})


def python_range(n, x):
    total = paddle.zeros_like(x)
    for i in range(n):
        total = total + x * i.astype(F32)
    return total


case("python/range", python(python_range), {"n": COUNTS, "x": ROWS})


def python_rows(x):
    total = paddle.zeros([3])
    for row in x:
        total = total * 0.5 + row
    return total


case("python/rows", python(python_rows), {"x": ROWS})


def python_break(n, x):
    for i in range(n):
        x = x * 2.0
        if x.sum() > 20.0:
            break
    return x


case("python/break", python(python_break), {"n": COUNTS, "x": floats(2, 3, low=0.5)})


def python_continue(n, x):
    for i in range(n):
        if i % 2 == 0:
            continue
        x = x + 1.0
    return x


case("python/continue", python(python_continue), {"n": COUNTS, "x": ROWS})


def python_return(x):
    if x.sum() > 0:
        return x + 1.0
    return x * 2.0


case("python/return", python(python_return), {"x": SIGNS})


def python_list(n, x):
    rows = []
    for i in range(n):
        x = x * 2.0
        rows.append(x)
    return paddle.stack(rows)


case("python/list", python(python_list), {"n": SOME, "x": floats(2, 3)})


def python_and(p, x):
    if p and x.sum() > 0:
        x = x + 1.0
    return x


case("python/and", python(python_and), {"p": FLAG, "x": floats(2, 3)})


def python_nested(n, x):
    y = x
    for i in range(n):
        if i > 1:
            k = paddle.zeros([1], I64)
            while k < i:
                y = y + 1.0
                k += 1
        else:
            y = y - 1.0
    return y


case("python/nested", python(python_nested), {"n": COUNTS, "x": ROWS})
