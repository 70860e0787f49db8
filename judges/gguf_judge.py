"""Judge of GGUF: the Python package `gguf` reads the same tensors, values and metadata as Weighbridge, and reads what Weighbridge writes.

usage: gguf_judge.py PATH-OF-THE-COMMAND [SEED]    (needs gguf 0.19, numpy, safetensors)

Golden files and files made of random tensors are converted to safetensors and npz, dequantized too, and back to GGUF.
"""

import json
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import gguf
import numpy as np
from safetensors.numpy import save_file

sys.path.insert(0, str(Path(__file__).parent))
import make_gguf as m
from make_gguf import Q, V

COMMAND = sys.argv[1]
RANDOM_FILES = 12
passed = failed = 0


def check(what, condition):
    global passed, failed
    passed, failed = passed + bool(condition), failed + (not condition)
    if not condition:
        print("FAILED", what)


def run(*words, code=0):
    done = subprocess.run([COMMAND, *map(str, words)], capture_output=True, text=True)
    check(f"{words}: exit code {done.returncode}: {done.stderr[-400:]}", done.returncode == code)
    return done


def convert(source, target, *words):
    run("convert", source, target, "--force", *words)
    return target


def safetensors(path):
    """Dtype, shape and bytes by name; numpy has no bf16."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    start = 8 + length
    return {n: (t["dtype"].lower(), t["shape"], data[start + t["data_offsets"][0] : start + t["data_offsets"][1]]) for n, t in header.items()}


def rows(tensors):
    return {n: (t["dtype"], t["shape"], t["array"].tobytes()) for n, t in tensors.items()}


def content(path):
    """Types, shapes and bytes that the package reads."""
    reader = gguf.GGUFReader(path)
    return {t.name: (t.tensor_type, t.shape.tolist(), t.data.tobytes()) for t in reader.tensors}


def metadata(path):
    return {key: pair for key, pair in m.metadata_of(path).items() if not key.startswith(("weighbridge.", "split."))}


def one_file(path, work):
    name, theirs = path.name, m.tensors_of(path)
    is_big_endian = gguf.GGUFReader(path).endianess == gguf.GGUFEndian.BIG
    found = safetensors(convert(path, work / "a.safetensors"))
    check(f"{name}: tensors in safetensors", found == rows(theirs))
    copied = convert(path, work / "same.gguf")
    check(f"{name}: the same bytes", copied.read_bytes() == path.read_bytes())

    quantized = [t for t in theirs.values() if "quantization" in t]
    opaque = [t for t in quantized if "values" not in t]
    bf16 = [word for n, t in theirs.items() if t["dtype"] == "bf16" for word in ("--drop", n)]
    if opaque:
        refused = run("convert", path, work / "b.npz", "--force", "--dequantize", code=2)
        check(f"{name}: types without values are refused", "not-dequantized" in refused.stderr)
    else:
        arrays = dict(np.load(convert(path, work / "b.npz", "--dequantize", *bf16)))
        arrays = {key: array for key, array in arrays.items() if not key.startswith("weighbridge.")}
        check(f"{name}: arrays in npz", arrays.keys() == {n for n, t in theirs.items() if t["dtype"] != "bf16"})
        for tensor, array in arrays.items():
            wanted = theirs[tensor].get("values", theirs[tensor]["array"])
            same = (array.dtype, array.shape, array.tobytes()) == (wanted.dtype, wanted.shape, wanted.tobytes())
            check(f"{name}: {tensor} in npz", same)

    if is_big_endian and quantized:
        return
    back = convert(work / "a.safetensors", work / "back.gguf")
    check(f"{name}: metadata from safetensors", metadata(back) == metadata(path))
    check(f"{name}: tensors from safetensors", rows(m.tensors_of(back)) == rows(theirs))
    if not theirs:
        return
    first = next(iter(theirs))
    rename = f"{json.dumps([*first.split('.')])}=renamed.weight"
    run("edit", path, work / "edited.gguf", "--force", "--rename", rename, "--set", "alignment=128")
    edited = rows(m.tensors_of(work / "edited.gguf"))
    wanted = rows(theirs)
    check(f"{name}: renamed", edited == {"renamed.weight" if n == first else n: row for n, row in wanted.items()} and list(edited)[0] == "renamed.weight")
    aligned = dict(metadata(path), **{"general.alignment": ["u32", 128]})
    check(f"{name}: metadata and alignment", metadata(work / "edited.gguf") == aligned)


def random_file(path, rng):
    tensors = []
    for number in range(int(rng.integers(1, 9))):
        kind = list(Q)[int(rng.integers(len(Q)))]
        lead = tuple(int(d) for d in rng.integers(1, 4, int(rng.integers(0, 3))))
        if kind in m.PLAIN:
            array = m.plain(rng, kind, (*lead, int(rng.integers(1, 40))))
        else:
            count, blocks = int(np.prod(lead, dtype=int)), int(rng.integers(1, 4))
            make = m.quantized if rng.random() < 0.4 else m.random_bytes
            array = make(rng, kind, count, blocks).reshape(*lead, -1)
        tensors.append((f"t{number}.weight", array, kind))
    pick = rng.permutation(len(m.METADATA) + len(m.ARRAYS))[: int(rng.integers(0, 12))]
    pairs = [(m.METADATA + m.ARRAYS)[i] for i in pick]
    m.write(path, tensors, pairs, alignment=int(2 ** rng.integers(3, 10)))


def others(work, rng):
    """Arrays of other formats become GGUF."""
    arrays = {f"layer.{k}": m.plain(rng, k, (3, 4)) for k in m.PLAIN if k != Q.BF16}
    save_file(arrays, work / "arrays.safetensors", {"note": "text"})
    np.savez(work / "arrays.npz", **arrays)
    for source in ("arrays.safetensors", "arrays.npz"):
        target = convert(work / source, work / "arrays.gguf")
        read = m.tensors_of(target)
        check(f"{source}: version 3", gguf.GGUFReader(target).fields["GGUF.version"].contents() == 3)
        check(f"{source}: names", read.keys() == arrays.keys())
        for name, array in arrays.items():
            check(f"{source}: {name}", (read[name]["array"].dtype, read[name]["array"].tobytes()) == (array.dtype, array.tobytes()))
    check("metadata of safetensors", m.metadata_of(convert(work / "arrays.safetensors", work / "a.gguf"))["note"] == ["str", "text"])
    np.savez(work / "bytes.npz", x=np.zeros(3, np.uint8))
    check("u8 is refused", "no-such-dtype" in run("convert", work / "bytes.npz", work / "b.gguf", "--force", code=2).stderr)


def shards(work):
    folder = m.GOOD / "shards"
    wanted = [content(path) for path in m.shard_files()]
    merged = {name: row for part in wanted for name, row in part.items()}
    for source in (folder, m.shard_files()[0]):
        one = convert(source, work / "merged.gguf", "--to", "gguf")
        check(f"{source.name}: tensors of all shards", content(one) == merged and list(content(one)) == list(merged))
        check(f"{source.name}: metadata of the first shard", metadata(one) == metadata(m.shard_files()[0]))


def version_1(work):
    truth = json.loads((m.ROOT / "expected.json").read_text())["version_1.gguf"]
    path = m.GOOD / "version_1.gguf"
    found = safetensors(convert(path, work / "one.safetensors"))
    check("version 1: tensors", {n: (r["dtype"], r["shape"], r["sha256"]) for n, r in truth["tensors"].items()} == {n: (d, s, m.digest(np.frombuffer(b, np.uint8))) for n, (d, s, b) in found.items()})
    check("version 1: metadata", metadata(convert(work / "one.safetensors", work / "one.gguf")) == truth["metadata"])
    check("version 1: the same bytes", convert(path, work / "copy.gguf").read_bytes() == path.read_bytes())


with tempfile.TemporaryDirectory() as folder:
    work = Path(folder)
    truth = json.loads((m.ROOT / "expected.json").read_text())
    for path in m.good():
        check(f"{path.name}: expected.json is what the package reads", json.loads(json.dumps(m.expected(path))) == truth[str(path.relative_to(m.GOOD))])
        if path.parent == m.GOOD:
            one_file(path, work)
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else int(np.random.default_rng().integers(2**32))
    rng = np.random.default_rng(seed)
    for number in range(RANDOM_FILES):
        path = work / f"random_{number}.gguf"
        random_file(path, rng)
        one_file(path, work)
    others(work, rng)
    shards(work)
    version_1(work)
print(f"seed of the random files: {seed}")
print(f"{passed + failed} checks, {failed} failures")
sys.exit(1 if failed else 0)
