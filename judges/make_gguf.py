"""Golden files of GGUF, written by the Python package `gguf`: testdata/gguf.

    python judges/make_gguf.py [PYTHON-WITH-GGUF-0.2.1]

Needs: gguf 0.19, numpy. `expected.json` has what the package reads: dtype, shape and elements of every tensor, and the metadata. Files of
version 1 are written by gguf 0.2.1, if its Python is given; the present package does not read them.
"""
import hashlib
import json
import pathlib
import struct
import subprocess
import sys

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Q
from gguf import GGUFEndian
from gguf import GGUFValueType as V
from gguf import quants

ROOT = pathlib.Path(__file__).resolve().parent.parent / "testdata" / "gguf"
GOOD, BAD = ROOT / "good", ROOT / "bad"
PLAIN = {Q.F32: "f32", Q.F16: "f16", Q.BF16: "bf16", Q.F64: "f64", Q.I8: "i8", Q.I16: "i16", Q.I32: "i32", Q.I64: "i64"}
NUMPY = {Q.F32: "f4", Q.F16: "f2", Q.BF16: "u2", Q.F64: "f8", Q.I8: "i1", Q.I16: "i2", Q.I32: "i4", Q.I64: "i8"}
QUANTIZED = [q for q in Q if q not in PLAIN]
# Types that the package cannot dequantize.
OPAQUE = [Q.Q8_1, Q.Q8_K, Q.Q1_0]
TYPES = {V.UINT8: "u8", V.INT8: "i8", V.UINT16: "u16", V.INT16: "i16", V.UINT32: "u32", V.INT32: "i32", V.FLOAT32: "f32", V.BOOL: "bool",
         V.STRING: "str", V.UINT64: "u64", V.INT64: "i64", V.FLOAT64: "f64"}


def random_bytes(rng, kind, rows, blocks):
    """Blocks of random bytes whose values are finite."""
    size = gguf.GGML_QUANT_SIZES[kind][1]
    data = rng.integers(0, 256, (rows, blocks * size), dtype=np.uint8)
    while kind not in OPAQUE:
        with np.errstate(all="ignore"):
            values = quants.dequantize(data, kind).reshape(rows * blocks, -1)
        bad = ~np.isfinite(values).all(axis=1)
        if not bad.any():
            break
        cells = data.reshape(rows * blocks, size)
        cells[bad] = rng.integers(0, 256, (int(bad.sum()), size), dtype=np.uint8)
    return data


def quantized(rng, kind, rows, blocks):
    """Blocks that the package makes of random numbers, if it can, else random bytes."""
    values = rng.standard_normal((rows, blocks * gguf.GGML_QUANT_SIZES[kind][0])).astype(np.float32)
    try:
        return quants.quantize(values, kind)
    except NotImplementedError:
        return random_bytes(rng, kind, rows, blocks)


def plain(rng, kind, shape):
    """Elements of any bits, NaN included."""
    dtype = np.dtype(NUMPY[kind])
    count = int(np.prod(shape, dtype=int))
    return np.frombuffer(rng.integers(0, 256, count * dtype.itemsize, dtype=np.uint8).tobytes(), dtype).reshape(shape)


def write(path, tensors=(), metadata=(), alignment=None, endian=GGUFEndian.LITTLE, arch="test", **more):
    """`tensors`: (name, array, type); `metadata`: (key, value, type, type of the items)."""
    writer = gguf.GGUFWriter(path, arch, endianess=endian, **more)
    if arch is None:
        writer.kv_data[0].clear()
    if alignment:
        writer.add_custom_alignment(alignment)
    for key, value, kind, *item in metadata:
        writer.add_key_value(key, value, kind, *item)
    for name, array, kind in tensors:
        # The package swaps the bytes of elements, but not those of blocks.
        data = np.ascontiguousarray(array).astype(array.dtype)
        if kind == Q.BF16:
            writer.add_tensor(name, data, raw_dtype=kind)
        elif kind in PLAIN:
            writer.add_tensor(name, data)
        else:
            writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


METADATA = [
    ("m.u8", 200, V.UINT8), ("m.i8", -100, V.INT8), ("m.u16", 60000, V.UINT16), ("m.i16", -30000, V.INT16), ("m.u32", 4_000_000_000, V.UINT32),
    ("m.i32", -2_000_000_000, V.INT32), ("m.f32", 0.1, V.FLOAT32), ("m.true", True, V.BOOL), ("m.false", False, V.BOOL),
    ("m.str", "text with ünïcode", V.STRING), ("m.empty", "", V.STRING), ("m.u64", 2**64 - 1, V.UINT64), ("m.i64", -(2**63), V.INT64),
    ("m.f64", 0.1, V.FLOAT64), ("m.nan", float("nan"), V.FLOAT32), ("m.inf", float("inf"), V.FLOAT64), ("m.line", "a\nb", V.STRING),
]
ARRAYS = [
    ("a.u8", [0, 255], V.ARRAY, V.UINT8), ("a.i8", [-128, 127], V.ARRAY, V.INT8), ("a.u16", [0, 65535], V.ARRAY, V.UINT16),
    ("a.i16", [-1, 1], V.ARRAY, V.INT16), ("a.u32", [1, 2, 3], V.ARRAY, V.UINT32), ("a.i32", [-1, 0, 1], V.ARRAY, V.INT32),
    ("a.f32", [0.5, -0.25], V.ARRAY, V.FLOAT32), ("a.bool", [True, False], V.ARRAY, V.BOOL), ("a.str", ["x", "", "ß"], V.ARRAY, V.STRING),
    ("a.u64", [2**63], V.ARRAY, V.UINT64), ("a.i64", [-(2**40)], V.ARRAY, V.INT64), ("a.f64", [1e300], V.ARRAY, V.FLOAT64),
]
TEMPLATE = "{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] }}{% endfor %}"
TOKENIZER = [
    ("tokenizer.ggml.model", "llama", V.STRING), ("tokenizer.ggml.tokens", [f"<{i}>" if i < 3 else f"▁t{i}" for i in range(300)], V.ARRAY, V.STRING),
    ("tokenizer.ggml.scores", [-float(i) / 4 for i in range(300)], V.ARRAY, V.FLOAT32), ("tokenizer.ggml.token_type", [1 + i % 6 for i in range(300)], V.ARRAY, V.INT32),
    ("tokenizer.ggml.bos_token_id", 1, V.UINT32), ("tokenizer.ggml.add_bos_token", True, V.BOOL), ("tokenizer.chat_template", TEMPLATE, V.STRING),
]


def every_plain(rng):
    tensors = [(f"w.{word}", plain(rng, kind, (3, 5)), kind) for kind, word in PLAIN.items()]
    more = [("vector", plain(rng, Q.F32, (7,)), Q.F32), ("cube", plain(rng, Q.F16, (2, 3, 4)), Q.F16), ("four", plain(rng, Q.I8, (2, 1, 3, 2)), Q.I8)]
    return tensors + more


def model(rng):
    """A small model as conversions of llama.cpp write it."""
    tensors = [("token_embd.weight", quantized(rng, Q.Q8_0, 10, 2), Q.Q8_0)]
    for i in range(2):
        tensors += [(f"blk.{i}.attn_norm.weight", rng.standard_normal(64).astype(np.float32), Q.F32),
                    (f"blk.{i}.attn_q.weight", quantized(rng, Q.Q4_0, 64, 2), Q.Q4_0), (f"blk.{i}.ffn_up.weight", quantized(rng, Q.Q5_1, 8, 2), Q.Q5_1)]
    return [*tensors, ("output_norm.weight", rng.standard_normal(64).astype(np.float32), Q.F32), ("output.weight", rng.standard_normal((10, 64)).astype(np.float16), Q.F16)]


HPARAMS = [("general.name", "tiny", V.STRING), ("general.file_type", 2, V.UINT32), ("general.quantization_version", 2, V.UINT32), ("llama.block_count", 2, V.UINT32),
           ("llama.attention.layer_norm_rms_epsilon", 1e-5, V.FLOAT32), *TOKENIZER]

VERSION_1 = """
import sys, gguf, numpy as np
w = gguf.GGUFWriter(sys.argv[1], "test", use_temp_file=False)
w.add_name("version 1"); w.add_uint8("m.u8", 7); w.add_array("a.str", ["x", "yz"]); w.add_array("a.i32", [1, -2])
w.add_tensor("a.weight", np.arange(6, dtype=np.float32).reshape(2, 3)); w.add_tensor("b.weight", np.arange(5, dtype=np.float16))
w.write_header_to_file(); w.write_kv_data_to_file(); w.write_tensors_to_file(); w.close()
"""


def make(old):
    rng = np.random.default_rng(7)
    write(GOOD / "plain.gguf", every_plain(rng))
    write(GOOD / "plain_big_endian.gguf", every_plain(rng), METADATA[:14] + ARRAYS, endian=GGUFEndian.BIG)
    for kind in QUANTIZED:
        made = [("made.weight", quantized(rng, kind, 3, 2), kind), ("random.weight", random_bytes(rng, kind, 2, 3), kind)]
        write(GOOD / f"{kind.name.lower()}.gguf", made)
    write(GOOD / "q8_0_big_endian.gguf", [("w", quantized(rng, Q.Q8_0, 2, 1), Q.Q8_0), ("b", plain(rng, Q.F32, (2,)), Q.F32)], endian=GGUFEndian.BIG)
    write(GOOD / "metadata.gguf", [], METADATA + ARRAYS)
    write(GOOD / "alignment_8.gguf", every_plain(rng)[:3], alignment=8)
    write(GOOD / "alignment_256.gguf", every_plain(rng)[:3], alignment=256)
    write(GOOD / "model.gguf", model(rng), HPARAMS)
    write(GOOD / "stack.gguf", [("experts", quantized(rng, Q.Q4_K, 6, 1).reshape(2, 3, -1), Q.Q4_K)])
    write(GOOD / "empty.gguf", arch=None)
    write(GOOD / "names.gguf", [(name, plain(rng, Q.I8, (3,)), Q.I8) for name in ("a.b", "", "ünï", "a/b", "a..b", "x" * 63)])
    write(GOOD / "no_elements.gguf", [("none", plain(rng, Q.F32, (0, 4)), Q.F32), ("scalar", plain(rng, Q.F32, ()), Q.F32), ("last", plain(rng, Q.F16, (1,)), Q.F16)])
    write(GOOD / "version_2.gguf", every_plain(rng)[:2], METADATA[:3])
    data = bytearray((GOOD / "version_2.gguf").read_bytes())
    data[4] = 2  # Versions 2 and 3 have the same layout.
    (GOOD / "version_2.gguf").write_bytes(data)
    (GOOD / "shards").mkdir(exist_ok=True)
    write(GOOD / "shards" / "model.gguf", model(rng), HPARAMS, split_max_tensors=4)
    if old:
        subprocess.run([old, "-c", VERSION_1, str(GOOD / "version_1.gguf")], check=True, stderr=subprocess.DEVNULL)
    damaged()


def damaged():
    """Files that must be rejected."""
    def header(tensors, pairs=b"", count=None, keys=0, version=3):
        return b"GGUF" + struct.pack("<IQQ", version, len(tensors) if count is None else count, keys) + pairs + b"".join(tensors)

    def text(value):
        return struct.pack("<Q", len(value)) + value

    def info(name=b"w", dims=(4,), kind=0, offset=0, rank=None):
        rank = len(dims) if rank is None else rank
        return text(name) + struct.pack("<I", rank) + struct.pack(f"<{len(dims)}Q", *dims) + struct.pack("<IQ", kind, offset)

    def pair(key, kind, value):
        return text(key) + struct.pack("<I", kind) + value

    def file(name, head, data=bytes(64)):
        (BAD / f"{name}.gguf").write_bytes(head + bytes(-len(head) % 32) + data)

    file("version-4", header([], version=4))
    file("version-0", header([], version=0))
    file("tensor-count", header([info()], count=2**62))
    file("pair-count", header([info()], keys=2**62))
    file("name-past-end", header([struct.pack("<Q", 2**63) + b"w"]))
    file("dims-overflow", header([info(dims=(2**40, 2**40))]))
    file("rank", header([info(rank=2**31)]))
    file("offset-past-end", header([info(offset=1 << 40)]))
    file("offset-overflow", header([info(offset=2**64 - 32)]))
    file("offset-unaligned", header([info(offset=4)]))
    file("unknown-type", header([info(kind=99)]))
    file("removed-type", header([info(kind=4)]))
    file("part-of-a-block", header([info(dims=(33,), kind=2)]))
    file("overlap", header([info(), info(b"v", (4,))]))
    file("duplicate-tensor", header([info(), info(offset=32)]))
    file("duplicate-key", header([info()], pair(b"k", 4, struct.pack("<I", 1)) * 2, keys=2))
    file("alignment-0", header([info()], pair(b"general.alignment", 4, struct.pack("<I", 0)), keys=1))
    file("alignment-24", header([info()], pair(b"general.alignment", 4, struct.pack("<I", 24)), keys=1))
    file("alignment-text", header([info()], pair(b"general.alignment", 8, text(b"32")), keys=1))
    file("value-type", header([info()], pair(b"k", 13, b""), keys=1))
    file("array-length", header([info()], pair(b"k", 9, struct.pack("<IQ", 0, 2**60)), keys=1))
    file("array-of-strings", header([info()], pair(b"k", 9, struct.pack("<IQ", 8, 2**60)), keys=1))
    file("array-of-arrays", header([info()], pair(b"k", 9, struct.pack("<IQ", 9, 1) * 200), keys=1))
    file("bool", header([info()], pair(b"k", 7, b"\x02"), keys=1))
    file("truncated", header([info(dims=(1000,))]))


def shard_files():
    return sorted((GOOD / "shards").glob("*.gguf"))


def digest(data):
    return hashlib.sha256(np.ascontiguousarray(data).tobytes()).hexdigest()


def little(array):
    return array.astype(array.dtype.newbyteorder("<"))


def tensors_of(path):
    """What the package reads: dtype, shape and elements by name."""
    reader = gguf.GGUFReader(path)
    found = {}
    for tensor in reader.tensors:
        shape = [int(d) for d in reversed(tensor.shape.tolist())]
        row = {"dtype": PLAIN.get(tensor.tensor_type, "u8"), "shape": shape}
        if tensor.tensor_type == Q.BF16:
            bits = np.frombuffer(tensor.data.tobytes(), ">u2" if reader.endianess == GGUFEndian.BIG else "<u2")
            row["array"] = bits.astype("<u2").reshape(shape)
        elif tensor.tensor_type in PLAIN:
            row["array"] = little(tensor.data)
        else:
            row.update(shape=[int(d) for d in tensor.data.shape], quantization=tensor.tensor_type.name, quantized_shape=shape, array=np.array(tensor.data))
            if tensor.tensor_type not in OPAQUE and reader.endianess == GGUFEndian.LITTLE:
                row["values"] = quants.dequantize(np.array(tensor.data), tensor.tensor_type)
        found[tensor.name] = row
    return found


def metadata_of(path):
    """Type and value of each key. Floats are hexadecimal."""
    found = {}
    for key, field in gguf.GGUFReader(path).fields.items():
        if key.startswith("GGUF."):
            continue
        kind, value = field.types[0], field.contents()
        name = f"[{TYPES[field.types[1]]}]" if kind == V.ARRAY else TYPES[kind]
        if name.strip("[]") in ("f32", "f64"):
            value = [float(x).hex() for x in value] if isinstance(value, list) else float(value).hex()
        found[key] = [name, value]
    return found


def expected(path):
    tensors = {}
    for name, row in tensors_of(path).items():
        row["sha256"] = digest(row.pop("array"))
        if "values" in row:
            row["values_sha256"] = digest(row.pop("values"))
        tensors[name] = row
    return {"tensors": tensors, "metadata": metadata_of(path)}


def good():
    return [path for path in sorted(GOOD.rglob("*.gguf")) if path.name != "version_1.gguf"]


if __name__ == "__main__":
    for folder in (GOOD, BAD):
        folder.mkdir(parents=True, exist_ok=True)
    make(sys.argv[1] if len(sys.argv) > 1 else None)
    truth = {str(path.relative_to(GOOD)): expected(path) for path in good()}
    if (GOOD / "version_1.gguf").exists():
        # As the script above passes them to gguf 0.2.1.
        rows = {"a.weight": np.arange(6, dtype="<f4").reshape(2, 3), "b.weight": np.arange(5, dtype="<f2")}
        tensors = {n: {"dtype": f"f{a.itemsize * 8}", "shape": list(a.shape), "sha256": digest(a)} for n, a in rows.items()}
        metadata = {"general.architecture": ["str", "test"], "general.name": ["str", "version 1"], "m.u8": ["u8", 7], "a.str": ["[str]", ["x", "yz"]], "a.i32": ["[i32]", [1, -2]]}
        truth["version_1.gguf"] = {"tensors": tensors, "metadata": metadata}
    (ROOT / "expected.json").write_text(json.dumps(truth, indent=1, ensure_ascii=False) + "\n")
