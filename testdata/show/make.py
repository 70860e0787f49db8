"""Makes cases.json: arrays and what numpy's str() says of them.

Run with numpy 2.3 or later: `python make.py > cases.json`. Each case has dtype, shape, the elements as
little-endian row-major bytes in hex (a pattern that is repeated until the array is full), and the text.
"""

import json
import sys

import numpy as np

rng = np.random.default_rng(20240229)
NAMES = {
    "bool": "?", "u8": "u1", "i8": "i1", "u16": "u2", "i16": "i2", "u32": "u4", "i32": "i4", "u64": "u8",
    "i64": "i8", "f16": "f2", "f32": "f4", "f64": "f8", "c64": "c8", "c128": "c16",
}
FLOATS = ["f16", "f32", "f64", "c64", "c128"]
INTS = ["u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64"]
cases = []


def add(name, shape, pattern):
    """A case whose elements are those of `pattern`, again and again."""
    dtype = np.dtype("<" + NAMES[name]) if name != "bool" else np.dtype("?")
    with np.errstate(all="ignore"):
        pattern = np.ascontiguousarray(np.asarray(pattern).astype(dtype).ravel())
    count = int(np.prod(shape, dtype=np.int64))
    array = np.resize(pattern, count).reshape(shape) if count else np.empty(shape, dtype)
    cases.append({"dtype": name, "shape": list(shape), "hex": pattern.tobytes().hex() if count else "", "str": str(array)})


def bits(name, count):
    """Elements with random bits: every magnitude, denormals, infinities, NaNs."""
    dtype = np.dtype(NAMES[name])
    raw = rng.integers(0, 256, count * dtype.itemsize, dtype=np.uint8)
    return raw.view(dtype)


def some(name, count, scale=1.0):
    if name == "bool":
        return rng.integers(0, 2, count)
    if name in INTS:
        info = np.iinfo(NAMES[name])
        return rng.integers(info.min, info.max, count, dtype=NAMES[name], endpoint=True)
    values = rng.standard_normal(count) * scale
    return values + 1j * rng.standard_normal(count) * scale if name[0] == "c" else values


# Every type in every number of dimensions, and sizes of zero.
for name in NAMES:
    for shape in [(), (1,), (7,), (30,), (3, 4), (2, 3, 4), (2, 1, 3, 2), (1, 1, 1, 1), (2, 25), (0,), (0, 3), (3, 0, 2)]:
        add(name, shape, some(name, max(int(np.prod(shape)), 1)))
    for shape in [(1001,), (1000,), (7, 200), (6, 300), (300, 6), (40, 30), (10, 11, 12), (2, 8, 70), (4, 5, 6, 10)]:
        add(name, shape, some(name, 97))

# Lone values: the rules of scalars differ from those of arrays.
nan, inf = np.nan, np.inf
alone = [
    0.0, -0.0, 1.0, -1.0, 0.5, 0.1, 1 / 3, -2 / 3, 1e-4, 9.9e-5, 0.0001, 0.00011, 999.0, 999.5, 1000.0, 1024.0, 65504.0,
    123456.0, 999999.0, 999999.9, 1e6, 1234567.0, 16777216.0, 1e7, 12345678.9, 1e8, 123456789.123, 1e15, 9999999999999998.0,
    1e16, 1.5e16, 1e17, 1e22, 1e23, 1.7976931348623157e308, 2.2250738585072014e-308, 5e-324, 1e-45, 1.1754944e-38, 6e-8,
    3.4028235e38, nan, inf, -inf, np.pi, np.e * 1e10, 2.0**-44, 2.0**-12, 2.0**-6, 3 * 2.0**-6, 2.0**60, 2.0**-20, 1e-7,
]
for name in ["f16", "f32", "f64"]:
    for x in alone:
        add(name, (), [x])
        add(name, (2,), [x, -x])
parts = [0.0, -0.0, 1.0, -1.5, nan, inf, -inf, 1e-7, 1234567.0, 1e16, 1 / 3]
for name in ["c64", "c128"]:
    for re in parts:
        for im in parts:
            z = np.array([complex(re, im)])
            add(name, (), z)
            if rng.random() < 0.3:
                add(name, (3,), [complex(re, im), 1 + 2j, complex(im, re)])

# Mixed magnitudes around every rule that turns the exponent on, and oddities beside finite values.
for name in FLOATS:
    for low, high in [(-4, 2), (-5, 0), (-3, 1), (0, 3), (0, 4), (2, 5), (3, 6), (5, 8), (6, 9), (-8, 8), (-40, 38), (-300, 300)]:
        for count in [5, 23]:
            values = rng.choice([-1, 1], count) * 10 ** rng.uniform(low, high, count)
            add(name, (count,), values + (1j * rng.permutation(values) if name[0] == "c" else 0))
            rounded = np.array([float(f"{v:.3g}") for v in values])
            add(name, (count,), rounded)
    for odd in [[nan], [inf], [-inf], [nan, inf], [nan, -inf, inf], [nan, 1.0], [inf, 1.0], [-inf, 1.0], [-inf, 0.125],
                [nan, 1e-9, 1.0], [-inf, 1e10, -1.5], [0.0, -0.0], [0.0, 1e-10], [0.0, 1e10], [-0.0, 5.0], [nan, 1e300, 1e-300],
                [100.0, 0.1], [100.1, 0.1], [1000.0, 1.0], [1001.0, 1.0], [1000.5, 1.0], [0.0001, 0.1], [0.00009999, 0.09],
                [99999999.0], [100000000.0], [999999.0], [1000000.0], [999.0], [1000.0], [0.999999999], [9.999999999, 0.1],
                [9.9999999999e9, 1.0], [1.000000001, 2.0], [0.12345678901234567, 12.5], [1.23456789e-5, 0.5]]:
        add(name, (len(odd),), odd)
        add(name, (2, len(odd)), odd)
        if name[0] == "c":
            add(name, (len(odd),), [complex(x, y) for x, y in zip(odd, odd[::-1])])
            add(name, (len(odd),), [complex(y, x) for x, y in zip(odd, [1.0, -2.5, 3.25])])

# Random bits, whole ranges of integers, and values that are exact ties between short decimals.
for name in NAMES:
    if name != "bool":
        for _ in range(6):
            add(name, (9,), bits(name, 9))
for name in ["f16", "f32", "f64"]:
    for _ in range(12):
        add(name, (8,), rng.integers(1, 64, 8) * 2.0 ** -rng.integers(5, 24, 8))
        add(name, (8,), rng.integers(1, 2000, 8) * 2.0 ** -rng.integers(4, 12, 8))
    add(name, (40,), 2.0 ** -np.arange(40))
    add(name, (30,), 2.0 ** np.arange(-15, 15))
    add(name, (11,), np.arange(11) / 10)
    add(name, (101,), np.linspace(0, 1, 101))
for name in INTS:
    info = np.iinfo(NAMES[name])
    add(name, (4,), np.array([info.min, info.max, 0, 1], dtype=NAMES[name]))
    add(name, (), np.array([info.min], dtype=NAMES[name]))

# Lines: where they break, and where breaking would not help.
add("i64", (14, 2), [2**62, -(2**62)])
add("c128", (8,), [complex(1 / 3, -2 / 3e9)])
add("c128", (2, 2, 2), [complex(-1e300 / 3, 1e-300 / 3)])
for rank in [5, 8, 20, 40, 60, 64]:
    add("f64", (1,) * rank, [1 / 3])
    add("f64", (1,) * (rank - 1) + (5,), [1 / 3, 100.0])
for width in range(10, 22):
    add("u8", (60,), np.arange(width))
    add("bool", (width,), [1, 0, 0])
# Summaries whose format is decided by the ends alone.
ends = np.zeros(1003)
ends[500] = 1e30
add("f64", (1003,), ends)
ends[1] = -1.5
add("f32", (17, 59), ends)
add("i32", (1009,), np.where(np.arange(1009) == 600, -(10**9), np.arange(1009)))
for name in FLOATS:
    add(name, (33, 34), bits(name, 61))
    add(name, (12, 13, 14), some(name, 101, 1e3))

for case in cases:
    assert case["str"].isascii()
sys.stdout.write("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")
print(len(cases), "cases by numpy", np.__version__, file=sys.stderr)
