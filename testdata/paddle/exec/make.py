"""Makes the tables of this folder: what the operators of PaddlePaddle 2.6.2 compute on the CPU.

Run with PaddlePaddle 2.6.2: `python make.py`. Elements are given as the hexadecimal digits of their
little-endian bytes. Floats that do not fit into an integer are left out: C++ does not say what they become.
"""

import json
from pathlib import Path

import numpy as np
import paddle
from paddle.framework import core

HERE = Path(__file__).resolve().parent
TYPES = core.VarDesc.VarType
# Paddle's type, and numpy's for the bits: numpy has no bf16.
DTYPES = {
    "bool": (TYPES.BOOL, "?"),
    "u8": (TYPES.UINT8, "u1"),
    "i8": (TYPES.INT8, "i1"),
    "i16": (TYPES.INT16, "<i2"),
    "i32": (TYPES.INT32, "<i4"),
    "i64": (TYPES.INT64, "<i8"),
    "f16": (TYPES.FP16, "<f2"),
    "bf16": (TYPES.BF16, "<u2"),
    "f32": (TYPES.FP32, "<f4"),
    "f64": (TYPES.FP64, "<f8"),
    "c64": (TYPES.COMPLEX64, "<c8"),
    "c128": (TYPES.COMPLEX128, "<c16"),
}
REAL = [name for name in DTYPES if name[0] != "c"]
INTEGERS = {"u8": (0, 255), "i8": (-128, 127), "i16": (-(2**15), 2**15 - 1)}
INTEGERS |= {"i32": (-(2**31), 2**31 - 1), "i64": (-(2**63), 2**63 - 1)}


def floats():
    """Numbers of all sizes, infinities, a NaN; as f64."""
    edges = [0.0, 0.1, 0.9, 1.0, 1.5, 2.7, 100.25, 126.5, 255.9, 300.0, 40000.0, 65504.0, 65519.0, 65520.0, 3e9, 1e18]
    edges += [6.1e-5, 6.0e-5, 1e-8, 1e-40, 3e38, 1.0009765, 1.00048833, np.inf]
    steps = [(k * 7919 % 1000) / 37.0 * 1.7 ** (k % 19 - 9) for k in range(40)]
    values = edges + steps
    return np.array(values + [-x for x in values] + [np.nan])


def bits(values, name):
    """An array of that type from f64 values."""
    with np.errstate(over="ignore"):
        if name == "bf16":
            return (values.astype("<f4").view("<u4") >> 16).astype("<u2")
        return values.astype(DTYPES[name][1])


def numbers(array, name):
    """The values of an array as f64."""
    if name == "bf16":
        return (array.astype("<u4") << 16).view("<f4").astype("f8")
    return array.astype("f8")


def inputs(name):
    if name == "bool":
        return np.array([0, 1, 1, 0], "?")
    if name in ("u8", "i8"):
        return np.arange(256, dtype="u1").view(DTYPES[name][1])
    if name in INTEGERS:
        low, high = INTEGERS[name]
        more = [2049, 4097, -4099, 65519, 65520, 70000, 2**24 + 1, -(2**24) - 3, 2**31 + 5, 2**53 + 1, (1 << 54) + (1 << 30) + 1, (1 << 62) + (1 << 37) + 1]
        return np.array([x for x in [0, 1, -1, 255, 256, 300, low, high, *more] if low <= x <= high], DTYPES[name][1])
    if name[0] == "c":
        return np.array([1 + 2j, 0, 3j, -2.5, 0.1 - 0.7j, 1e10 + 1e-10j], DTYPES[name][1])
    return bits(floats(), name)


def run(kind, given, made, attributes):
    """The result of one operator. `given`: {slot: (type, array)}."""
    program, scope = paddle.static.Program(), paddle.static.Scope()
    with paddle.static.program_guard(program), paddle.static.scope_guard(scope):
        block = program.global_block()
        slots = {}
        for slot, (name, array) in given.items():
            block.create_var(name=slot, shape=list(array.shape), dtype=DTYPES[name][0], persistable=True)
            scope.var(slot).get_tensor().set(array, paddle.CPUPlace())
            slots[slot] = [slot]
        block.create_var(name="out", dtype=DTYPES[made][0], persistable=True)
        block.append_op(type=kind, inputs=slots, outputs={"Out": ["out"]}, attrs=dict(attributes))
        paddle.static.Executor(paddle.CPUPlace()).run(program)
        return np.array(scope.find_var("out").get_tensor())


def casts():
    for source in REAL:
        for target in REAL:
            array = inputs(source)
            if target in INTEGERS and source not in INTEGERS and source != "bool":
                low, high = INTEGERS[target]
                cut = np.trunc(numbers(array, source))
                array = array[(cut >= low) & (cut < high + 1.0)]
            types = {"in_dtype": int(DTYPES[source][0]), "out_dtype": int(DTYPES[target][0])}
            out = run("cast", {"X": (source, array)}, target, types)
            yield {"from": source, "to": target, "in": array.tobytes().hex(), "out": out.tobytes().hex()}


def scales():
    for name in DTYPES:
        array = inputs(name)
        choices = [(2.0, 0.0, True), (0.3, 0.7, True), (0.3, 0.7, False), (1.7, 2.9, True), (100.5, 27.9, False)]
        if name != "u8":
            choices += [(-1.0, 0.0, True), (1.7, -2.9, True), (-3.0, -2.5, False)]
        for scale, bias, after in choices:
            attributes = {"scale": scale, "bias": bias, "bias_after_scale": after}
            out = run("scale", {"X": (name, array)}, name, attributes)
            yield {"dtype": name, **attributes, "in": array.tobytes().hex(), "out": out.tobytes().hex()}


def fills():
    texts = ["", "0.1", "3.9", " 5x", "abc", "120", "1e2", "0"]
    wide = ["inf", "-inf", "nan", "1e400", "9007199254740993", "-2.5", "65519"]
    for name in DTYPES:
        for text in texts + ([] if name in INTEGERS else wide):
            for value in [1.5] if text else [0.0, 1.5, 100.0, 0.1]:
                attributes = {"shape": [3], "dtype": int(DTYPES[name][0]), "value": value, "str_value": text}
                out = run("fill_constant", {}, name, attributes)
                yield {"dtype": name, "value": value, "text": text, "out": out.tobytes().hex()}


def program():
    """Feeds x, scales it to y, makes w; saves w, then w and y together; fetches y."""
    made = paddle.static.Program()
    block = made.global_block()
    block.create_var(name="feed", type=TYPES.FEED_MINIBATCH, persistable=True)
    block.create_var(name="fetch", type=TYPES.FETCH_LIST, persistable=True)
    block.create_var(name="raw", type=TYPES.RAW, persistable=True)
    for name in "xyw":
        block.create_var(name=name, shape=[2], dtype=TYPES.FP32)
    steps = [
        ("feed", {"X": ["feed"]}, {"Out": ["x"]}, {"col": 0}),
        ("scale", {"X": ["x"]}, {"Out": ["y"]}, {"scale": 2.0, "bias": 1.0}),
        ("fill_constant", {}, {"Out": ["w"]}, {"shape": [2], "dtype": int(TYPES.FP32), "value": 0.5}),
        ("save", {"X": ["w"]}, {}, {"file_path": "deep/w"}),
        ("save_combine", {"X": ["w", "y"]}, {"Y": ["raw"]}, {"file_path": "all.pdiparams"}),
        ("fetch", {"X": ["y"]}, {"Out": ["fetch"]}, {"col": 0}),
    ]
    for kind, inputs, outputs, attributes in steps:
        block.append_op(type=kind, inputs=inputs, outputs=outputs, attrs=attributes)
    for op in block.ops:
        op.desc.remove_attr("op_callstack")
    made.desc.flush()
    return made.desc.serialize_to_string()


def main():
    assert paddle.__version__ == "2.6.2", "the tables are those of 2.6.2"
    paddle.enable_static()
    for name, rows in [("cast", casts), ("scale", scales), ("fill", fills)]:
        lines = ",\n".join(json.dumps(row) for row in rows())
        (HERE / f"{name}.json").write_text(f"[\n{lines}\n]\n")
    (HERE / "save.pdmodel").write_bytes(program())


main()
