"""Weighbridge compared with PaddlePaddle and safetensors, in one run, in turn: medians and ratios.

usage: paddle.py PADDLE_2.6_PYTHON PADDLE_3.3_PYTHON [FOLDER-WITH-A-REAL-MODEL]

Build first: cargo build --profile dist && cargo build --profile dist -p weighbridge-benches --examples. Both Pythons need numpy and safetensors.
Makes a combined file of 1 GiB (64 tensors of 16 MiB) and one of 20,000 tensors of 16 floats, everything in the page cache;
no program syncs. Loading and saving are timed inside each process; listing is timed as a whole process.
"""

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

PEER = r"""
import os, sys, time
os.environ["GLOG_minloglevel"] = "3"
import numpy as np
job, source, target = sys.argv[1:4]
def timed(work):
    begun = time.perf_counter(); kept = work(); print(time.perf_counter() - begun); return kept
if job.startswith("safetensors"):
    import safetensors.numpy as st
    if job == "safetensors-load":
        timed(lambda: st.load_file(source))
    else:
        tensors = st.load_file(source)
        timed(lambda: st.save_file(tensors, target))
    sys.exit()
import paddle
from paddle.base import core
paddle.enable_static()
count, shape = (64, [2048, 2048]) if "big" in source else (20000, [4, 4])
names = ["w%05d" % k for k in range(count)]
if paddle.__version__.startswith("3"):
    tensors = [core.DenseTensor() for _ in names]
    for t in tensors: t.set(np.zeros([1], "float32"), paddle.CPUPlace())
    if job == "load":
        timed(lambda: core.load_combine_func(source, names, tensors, False, paddle.CPUPlace()))
    else:
        core.load_combine_func(source, names, tensors, False, paddle.CPUPlace())
        timed(lambda: core.save_combine_func(tensors, names, target, True, False, False))
else:
    program = paddle.static.Program()
    variables = [program.global_block().create_var(name=n, shape=shape, dtype="float32", persistable=True) for n in names]
    executor = paddle.static.Executor(paddle.CPUPlace())
    folder, name = os.path.split(source)
    load = lambda: paddle.static.load_vars(executor, folder, program, vars=variables, filename=name)
    if job == "load":
        timed(load)
    else:
        load()
        folder, name = os.path.split(target)
        timed(lambda: paddle.static.save_vars(executor, folder, program, vars=variables, filename=name))
"""

LIST = r"""
import os, sys
os.environ["GLOG_minloglevel"] = "3"
import paddle
paddle.enable_static()
executor = paddle.static.Executor(paddle.CPUPlace())
program, _, _ = paddle.static.load_inference_model(sys.argv[1], executor)
for v in sorted(program.list_vars(), key=lambda v: v.name):
    if v.persistable: print(v.name, v.dtype if v.type == paddle.base.core.VarDesc.VarType.LOD_TENSOR else "", )
"""


def make(path, count, shape):
    block = bytes(range(256)) * (shape[0] * shape[1] * 4 // 256 + 1)
    desc = bytes([8, 5]) + b"".join(b"\x10" + varint(n) for n in shape)
    with open(path, "wb") as file:
        for _ in range(count):
            file.write(struct.pack("<IQIi", 0, 0, 0, len(desc)) + desc + block[: shape[0] * shape[1] * 4])


def varint(n):
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def run(*words):
    done = subprocess.run(list(map(str, words)), check=True, capture_output=True, text=True)
    return done.stdout


def inner(*words):
    return float(run(*words).split()[-1])


def whole(*words):
    begun = time.perf_counter()
    run(*words)
    return time.perf_counter() - begun


def compare(what, ours, peers):
    """Times each side in turn, RUNS times, and prints medians and ratios."""
    times = {name: [] for name in ["ours", *peers]}
    for _ in range(RUNS):
        times["ours"].append(ours())
        for name, peer in peers.items():
            times[name].append(peer())
    own = statistics.median(times["ours"])
    for name in peers:
        ratio = statistics.median(a / b for a, b in zip(times["ours"], times[name]))
        print(f"{what:<34} {name:<24} ours {own:8.4f} s  other {statistics.median(times[name]):8.4f} s  ratio {ratio:.4f}", flush=True)


def main():
    old, new = sys.argv[1:3]
    job, command = BUILT / "examples" / "paddle_job", BUILT / "weighbridge"
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        big, small, out = folder / "big.pdiparams", folder / "small.pdiparams", folder / "out"
        make(big, 64, (2048, 2048))
        make(small, 20000, (4, 4))
        bridge = folder / "big.safetensors"
        run(command, "convert", big, bridge, "--no-sync")

        def fresh(work):
            out.unlink(missing_ok=True)
            return work()

        def peer(python, what, source):
            return lambda: fresh(lambda: inner(python, "-W", "ignore", "-c", PEER, what, source, out))

        compare("load 1 GiB", lambda: inner(job, "load", big), {
            "Paddle 2.6.2": peer(old, "load", big), "Paddle 3.3.1": peer(new, "load", big),
            "safetensors (Python)": peer(new, "safetensors-load", bridge)})
        compare("save 1 GiB", lambda: fresh(lambda: inner(job, "save", big, out)), {
            "Paddle 2.6.2": peer(old, "save", big), "Paddle 3.3.1": peer(new, "save", big),
            "safetensors (Python)": peer(new, "safetensors-save", bridge)})
        compare("load 20,000 small tensors", lambda: inner(job, "load", small), {"Paddle 3.3.1": peer(new, "load", small)})
        own = statistics.median(whole(command, "ls", small) for _ in range(RUNS))
        print(f"ls of 20,000 small tensors, whole process: {own:.4f} s")
        own = statistics.median(whole(command, "ls", big) for _ in range(RUNS))
        print(f"ls of the 1 GiB file, whole process: {own:.4f} s")
    if len(sys.argv) > 3:
        model = Path(sys.argv[3])
        compare("list a real model, whole process", lambda: whole(command, "ls", model), {
            "Paddle 2.6.2": lambda: whole(old, "-W", "ignore", "-c", LIST, model / "inference")})


main()
