"""Makes the golden and the damaged safetensors files beside this script.

    pip install safetensors numpy
    python make.py

Every file in `good` is written by the original library. Beside it stands what the original reads back from it,
as JSON: names in the order of the data, dtypes, shapes, the bytes of each tensor in hexadecimal, and the metadata.
Every file in `bad` breaks one rule; the table in `crates/formats/safetensors/src/tests.rs` says which.
"""

import json
import pathlib
import struct

import numpy as np
import safetensors
import safetensors.numpy

HERE = pathlib.Path(__file__).parent


def header_of(blob):
    (length,) = struct.unpack("<Q", blob[:8])
    return json.loads(blob[8 : 8 + length])


def keep(name, write, expected):
    """Keeps what `write` gives, with the truth beside it. The original orders its metadata by chance: ask again."""
    while True:
        blob = write()
        metadata = header_of(blob).get("__metadata__", {})
        if list(metadata) == sorted(metadata):
            break
    tensors = [
        {"name": key, "dtype": value["dtype"], "shape": list(value["shape"]), "hex": bytes(value["data"]).hex()}
        for key, value in safetensors.deserialize(blob)
    ]
    assert {t["name"]: bytes.fromhex(t["hex"]) for t in tensors} == expected, name
    offsets = header_of(blob)
    tensors.sort(key=lambda t: (offsets[t["name"]]["data_offsets"], list(offsets).index(t["name"])))
    folder = HERE / "good"
    (folder / f"{name}.safetensors").write_bytes(blob)
    truth = {"tensors": tensors, "metadata": metadata}
    (folder / f"{name}.json").write_text(json.dumps(truth, indent=1, sort_keys=True) + "\n")


def arrays(name, tensors, metadata=None):
    expected = {key: value.tobytes() for key, value in tensors.items()}
    keep(name, lambda: safetensors.numpy.save(tensors, metadata), expected)


def raw(name, tensors):
    """Types that numpy lacks: (dtype, shape, bytes)."""
    memory = {k: np.frombuffer(b, "u1") for k, (_, _, b) in tensors.items()}
    table = {
        k: safetensors.TensorSpec(dtype=d, shape=s, data_ptr=memory[k].ctypes.data, data_len=memory[k].nbytes)
        for k, (d, s, _) in tensors.items()
    }
    keep(name, lambda: bytes(safetensors.serialize(table)), {k: b for k, (_, _, b) in tensors.items()})


def good():
    rng = np.random.default_rng(1)
    types = "bool uint8 int8 uint16 int16 float16 uint32 int32 float32 uint64 int64 float64 complex64".split()
    arrays("dtypes", {t: (rng.random((2, 3)) * 3).astype(t) for t in types})
    bits = np.array([0x7FC00001, 0xFF800001, 0x80000000, 1, 0x7F800000, 0xFF800000], dtype="<u4")
    arrays("bits", {"nan": bits.view("<f4"), "column": rng.random((3, 1))})
    arrays(
        "shapes",
        {
            "scalar": np.array(1.5, "f4"),
            "one": np.ones((1,), "u1"),
            "none": np.zeros((0,), "f4"),
            "flat": np.zeros((3, 0, 2), "i8"),
            "deep": np.arange(16, dtype="i2").reshape((1, 2, 1, 2, 1, 2, 1, 2)),
        },
    )
    names = ["", "a.b", "a.b.c", ".", "größe", "重み", "e\u0301", "\x00\x1f\x7f", 'quote"back\\slash/', "\u202e", "🦀"]
    arrays("names", {n: np.array([i], "u2") for i, n in enumerate(names)})
    arrays("metadata", {"w": np.ones(2, "f4")}, {"format": "np", "größe\n": "\x00 \"x\"", "": ""})
    arrays("empty", {})
    arrays("metadata-only", {}, {"only": "this"})
    arrays(
        "mlp",
        {
            "fc1.weight": rng.random((4, 3), dtype="f4"),
            "fc1.bias": rng.random(4, dtype="f4"),
            "fc2.weight": rng.random((2, 4), dtype="f4"),
            "step": np.array(7, "i8"),
        },
        {"format": "pt"},
    )
    raw(
        "small-floats",
        {
            "bf16": ("bfloat16", [2, 2], bytes(range(8))),
            "e4m3": ("float8_e4m3fn", [3], b"\x7e\x7f\x80"),
            "e5m2": ("float8_e5m2", [3], b"\x7b\x7c\x7d"),
            "e8m0": ("float8_e8m0fnu", [2], b"\x00\x7f"),
            "e4m3fnuz": ("float8_e4m3fnuz", [2], b"\x7f\x80"),
            "e5m2fnuz": ("float8_e5m2fnuz", [2], b"\x7f\x80"),
            "f4": ("float4_e2m1fn_x2", [2, 2], b"\x12\x34\x56\x78"),
        },
    )


def bad():
    def blob(header, data=b"", length=None):
        header = header if isinstance(header, bytes) else header.encode()
        return struct.pack("<Q", len(header) if length is None else length) + header + data

    def info(dtype='"F32"', shape="[2]", offsets="[0,8]", more=""):
        return f'{{"dtype":{dtype},"shape":{shape},"data_offsets":{offsets}{more}}}'

    def one(data=bytes(8), **fields):
        return blob('{"a":' + info(**fields) + "}", data)

    def two(a, b, data):
        return blob('{"a":' + info(offsets=a) + ',"b":' + info(offsets=b) + "}", data)

    whole = '{"a":' + info() + "}"
    files = {
        "empty": b"",
        "half-a-length": b"\x10\0\0\0",
        "no-header": blob(""),
        "header-too-long": blob("{}", length=100_000_001),
        "header-length-max": blob("{}", length=2**64 - 1),
        "header-past-end": blob("{}", length=3),
        "not-utf8": blob(b'{"\xff":' + info().encode() + b"}", bytes(8)),
        "bad-json": blob('{"a":' + info() + ",}", bytes(8)),
        "json-cut": blob('{"a":' + info(), bytes(8)),
        "json-array": blob("[]"),
        "leading-space": blob(" " + whole, bytes(8)),
        "byte-order-mark": blob("\ufeff" + whole, bytes(8)),
        "padded-with-nul": blob(whole + "\0\0", bytes(8)),
        "text-after-object": blob(whole + " x", bytes(8)),
        "control-character": blob('{"a\n":' + info() + "}", bytes(8)),
        "lone-surrogate": blob('{"\\ud800":' + info() + "}", bytes(8)),
        "duplicate-name": blob('{"a":' + info() + ',"a":' + info('"I32"') + "}", bytes(8)),
        "duplicate-name-escaped": blob('{"a":' + info() + ',"\\u0061":' + info('"I32"') + "}", bytes(8)),
        "duplicate-field": one(more=',"dtype":"I32"'),
        "duplicate-metadata": blob('{"__metadata__":{"k":"1"},"__metadata__":{"k":"2"}}'),
        "duplicate-metadata-key": blob('{"__metadata__":{"k":"1","k":"2"}}'),
        "metadata-number": blob('{"__metadata__":{"k":1}}'),
        "metadata-null": blob('{"__metadata__":{"k":null}}'),
        "metadata-list": blob('{"__metadata__":[]}'),
        "metadata-tensor": blob('{"__metadata__":' + info() + "}", bytes(8)),
        "tensor-null": blob('{"a":null}'),
        "tensor-list": blob('{"a":["F32",[2],[0,8]]}', bytes(8)),
        "dtype-unknown": one(dtype='"F128"'),
        "dtype-lower-case": one(dtype='"f32"'),
        "dtype-number": one(dtype="5"),
        "dtype-object": one(dtype='{"F32":null}'),
        "missing-dtype": blob('{"a":{"shape":[2],"data_offsets":[0,8]}}', bytes(8)),
        "missing-shape": blob('{"a":{"dtype":"F32","data_offsets":[0,8]}}', bytes(8)),
        "missing-offsets": blob('{"a":{"dtype":"F32","shape":[2]}}', bytes(8)),
        "shape-negative": one(shape="[-2]"),
        "shape-fraction": one(shape="[2.0]"),
        "shape-text": one(shape='["2"]'),
        "shape-past-u64": one(shape="[18446744073709551616]"),
        "shape-overflow": one(shape="[4294967296,4294967296]"),
        "shape-overflow-in-bits": one(shape="[576460752303423488]"),
        "shape-overflow-and-zero": one(b"", shape="[4294967296,4294967296,0]", offsets="[0,0]"),
        "shape-65-dimensions": one(shape="[2" + ",1" * 64 + "]"),
        "part-of-a-byte": one(dtype='"F4"', shape="[3]", offsets="[0,2]"),
        "length-mismatch": one(shape="[3]"),
        "length-mismatch-zero": one(b"", shape="[2]", offsets="[0,0]"),
        "offset-negative": one(offsets="[-8,0]"),
        "offset-past-u64": one(offsets="[0,18446744073709551616]"),
        "offsets-max": one(dtype='"U8"', shape="[8]", offsets="[18446744073709551607,18446744073709551615]"),
        "offsets-one": one(offsets="[8]"),
        "offsets-three": one(offsets="[0,8,16]"),
        "offsets-swapped": one(offsets="[8,0]"),
        "end-before-begin": two("[0,8]", "[8,0]", bytes(16)),
        "hole-first": one(bytes(16), offsets="[8,16]"),
        "hole": two("[0,8]", "[16,24]", bytes(24)),
        "overlap": two("[0,8]", "[4,12]", bytes(12)),
        "overlap-same": two("[0,8]", "[0,8]", bytes(8)),
        "overlap-empty": blob('{"a":' + info() + ',"b":' + info(shape="[0]", offsets="[4,4]") + "}", bytes(8)),
        "trailing-bytes": one(bytes(9)),
        "trailing-bytes-no-tensor": blob("{}", b"\0"),
        "truncated": one(bytes(7)),
        "truncated-second": two("[0,8]", "[8,16]", bytes(12)),
        "deep": blob('{"a":' + "[" * 3000 + "]" * 3000 + "}"),
    }
    for name, content in files.items():
        (HERE / "bad" / f"{name}.safetensors").write_bytes(content)


for folder in ("good", "bad"):
    (HERE / folder).mkdir(exist_ok=True)
good()
bad()
