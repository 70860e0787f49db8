"""Weighbridge compared with the frameworks whose files it opens, and with `cp`, in one run, in turn: medians and ratios.

usage: frameworks.py FRAMEWORK=PYTHON ...

FRAMEWORK is one of tensorflow, keras, flax, orbax, mxnet, gguf, torch, dcp, joblib; PYTHON an interpreter that has it. Build first:
cargo build --profile dist && cargo build --profile dist -p weighbridge-benches --examples. Makes 1 GiB in 64 matrices of 2048 x 2048
in the format of each framework. Everything is in the page cache, and no program syncs. Loading into memory is timed inside each
process, listing and copies as whole processes. The framework loads as a user would; Weighbridge uses two threads.
"""

import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILT = ROOT / "target" / "dist"
RUNS = 5
COUNT, SIDE = 64, 2048

LOAD = {
    "tensorflow": """
import tensorflow as tf
def load():
    reader = tf.train.load_checkpoint(source)
    return [reader.get_tensor(name) for name, shape in reader.get_variable_to_shape_map().items() if shape]
""",
    "flax": """
from flax import serialization
def load():
    return serialization.msgpack_restore(open(source, "rb").read())
""",
    "mxnet": """
import numpy
numpy.bool = bool
import mxnet
def load():
    loaded = mxnet.nd.load(source)
    mxnet.nd.waitall()
    return loaded
""",
    "gguf": """
import gguf, numpy
def load():
    return [numpy.array(tensor.data) for tensor in gguf.GGUFReader(source).tensors]
""",
    "torch": """
import torch
def load():
    return torch.load(source, weights_only=True)
""",
    "dcp": """
import torch
from torch.distributed import checkpoint
def load():
    reader = checkpoint.FileSystemReader(source)
    entries = reader.read_metadata().state_dict_metadata
    state = {name: torch.empty(entry.size) for name, entry in entries.items() if hasattr(entry, "size")}
    checkpoint.load_state_dict(state, reader, no_dist=True)
    return state
""",
    "joblib": """
import joblib
def load():
    return joblib.load(source)
""",
    "keras": """
import keras
def load():
    return keras.saving.load_model(source, compile=False)
""",
    "orbax": """
import jax
from orbax import checkpoint
def load():
    return jax.block_until_ready(checkpoint.StandardCheckpointer().restore(source))
""",
}
# Formats that Weighbridge does not write from tensors alone: made by the framework.
MAKE = {
    "joblib": """
import joblib, numpy
joblib.dump({str(k): numpy.full((2048, 2048), k, 'f4') for k in range(64)}, target)
""",
    "keras": """
import keras
layers = [keras.layers.Dense(2048, use_bias=False) for _ in range(64)]
keras.Sequential([keras.Input((2048,)), *layers]).save(target)
""",
    "orbax": """
import jax.numpy
from orbax import checkpoint
writer = checkpoint.StandardCheckpointer()
writer.save(target, {str(k): jax.numpy.full((2048, 2048), k, 'float32') for k in range(64)})
writer.wait_until_finished()
""",
}
TIMED = """
import time
begun = time.perf_counter()
kept = load()
print(time.perf_counter() - begun)
"""
# The file of each framework, and the format that a copy of it is written in.
FILES = {
    "tensorflow": ("m", "tensorflow"),
    "flax": ("m.msgpack", "flax"),
    "mxnet": ("m.params", "mxnet"),
    "gguf": ("m.gguf", "gguf"),
    "torch": ("m.pt", "torch"),
    "dcp": ("m", "dcp"),
    "joblib": ("m.joblib", None),
    "keras": ("m.keras", None),
    "orbax": ("m", None),
}


def run(*words):
    return subprocess.run(list(map(str, words)), check=True, capture_output=True, text=True).stdout


def inner(*words):
    return float(run(*words).split()[-1])


def whole(*words):
    begun = time.perf_counter()
    run(*words)
    return time.perf_counter() - begun


def removed(path):
    for one in path.parent.iterdir() if path.parent.is_dir() else []:
        shutil.rmtree(one) if one.is_dir() else one.unlink()
    path.parent.mkdir(exist_ok=True)
    return path


def safetensors(path):
    block = bytes(range(256)) * (SIDE * SIDE * 4 // 256)
    size = len(block)
    entry = '"layer.%d.weight":{"dtype":"F32","shape":[%d,%d],"data_offsets":[%d,%d]}'
    header = "{%s}" % ",".join(entry % (k, SIDE, SIDE, k * size, (k + 1) * size) for k in range(COUNT))
    header += " " * (-len(header) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header.encode())
        for _ in range(COUNT):
            file.write(block)


def make(framework, python, source, path):
    if framework in MAKE:
        return run(python, "-W", "ignore", "-c", f"target = {str(path)!r}" + MAKE[framework])
    return run(BUILT / "weighbridge", "convert", source, path, "--to", FILES[framework][1], "--no-sync")


def main():
    job, command = BUILT / "examples" / "biggraph_job", BUILT / "weighbridge"
    print(f"{'':12} {'ls, ms':>8} {'load, s':>8} {'framework, s':>13} {'ratio':>6} {'copy, s':>8} {'cp, s':>8} {'ratio':>6}")
    for framework, python in (word.split("=", 1) for word in sys.argv[1:]):
        with tempfile.TemporaryDirectory(dir=ROOT / "target") as folder:
            folder = Path(folder)
            source, own, copied = folder / "source.safetensors", folder / "own", folder / "copied"
            safetensors(source)
            own.mkdir()
            name, format = FILES[framework]
            make(framework, python, source, own / name)
            source.unlink()
            # TensorFlow wants the prefix of the files in the folder.
            prefixes = [path.with_suffix("") for path in (own / name).glob("*.index")]
            wanted = prefixes[0] if prefixes else own / name
            peer = LOAD[framework].replace("source", repr(str(wanted))) + TIMED
            times = {key: [] for key in ["ls", "load", "peer", "copy", "cp"]}
            for _ in range(RUNS):
                times["ls"].append(whole(command, "ls", own / name))
                times["load"].append(inner(job, "load", own / name))
                times["peer"].append(inner(python, "-W", "ignore", "-c", peer))
            target = copied / name
            copies = {
                "copy": [command, "convert", own / name, target, "--to", format, "--no-sync"],
                "cp": ["cp", "-r", own, copied / "all"],
            }
            # The first round is not timed, and each copy goes first in half of the others: memory that a framework has freed is
            # slow on a virtual machine until it is used again.
            for number in range(0 if format is None else 1 + 2 * RUNS):
                for key in sorted(copies, reverse=number % 2 == 1):
                    removed(target)
                    taken = whole(*copies[key])
                    if number > 0:
                        times[key].append(taken)
            removed(target)

            def middle(key):
                return statistics.median(times[key]) if times[key] else float("nan")

            def ratio(a, b):
                return statistics.median(x / y for x, y in zip(times[a], times[b])) if times[b] else float("nan")

            print(
                f"{framework:12} {middle('ls') * 1000:8.1f} {middle('load'):8.3f} {middle('peer'):13.3f} {ratio('load', 'peer'):6.2f} "
                f"{middle('copy'):8.3f} {middle('cp'):8.3f} {ratio('copy', 'cp'):6.2f}",
                flush=True,
            )


main()
