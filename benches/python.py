"""The Python package compared with the packages of the formats: `python benches/python.py [FOLDER]`.

Needs `weighbridge` (`pip install .` builds the shipped package), and paddle, safetensors and h5py; rows of missing packages are
skipped. Each pair is timed in one process, in turn, everything in the page cache; prints the medians, and the median of the
ratios. "Touch" reads one number of every page of every tensor. The files, 3 GB, are made in FOLDER (default: the temporary
folder).
"""

import gc
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import numpy

import weighbridge

# Another file in this folder has the name of a package.
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder) != HERE]

RUNS = 7
TENSORS, SIDE = 64, 2048  # 1 GiB of f32
ROWS, WIDTH = 2_000_000, 100  # 800 MB of f32


def touch(arrays):
    """Returns the sum of one number of every page."""
    return float(sum(array.reshape(-1, order="A")[::1024].sum() for array in arrays))


def pair(job, ours, other, goal=""):
    """Times two functions in turn and prints a row."""
    times = ([], [])
    for run in range(RUNS + 1):
        for side, work in zip(times, (ours, other)):
            gc.collect()
            begun = time.perf_counter()
            result = work()
            took = time.perf_counter() - begun
            del result
            if run:
                side.append(took)
    ratio = statistics.median(a / b for a, b in zip(*times))
    first, second = map(statistics.median, times)
    print(f"| {job} | {first:.3f} | {second:.3f} | {ratio:.2f} | {goal} |", flush=True)


def seconds(command):
    """Returns the median time of a process."""
    times = []
    for _ in range(RUNS):
        begun = time.perf_counter()
        subprocess.run(command, check=True)
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


def state():
    rng = numpy.random.default_rng(1)
    return {f"layer{i:02}.weight": rng.standard_normal((SIDE, SIDE), dtype=numpy.float32) for i in range(TENSORS)}


def ours(path):
    """Touches all tensors of a file."""
    with weighbridge.open(path) as checkpoint:
        return touch(tensor.numpy() for tensor in checkpoint.values())


def safetensors_rows(folder):
    import safetensors
    from safetensors.numpy import load_file

    path = os.path.join(folder, "model.safetensors")
    weighbridge.save(path, state(), force=True)

    def by_handle():
        with safetensors.safe_open(path, framework="np") as file:
            return touch(file.get_tensor(name) for name in file.keys())

    pair("open and touch 1 GiB of safetensors / `safetensors.numpy.load_file`", lambda: ours(path), lambda: touch(load_file(path).values()))
    pair("open and touch 1 GiB of safetensors / `safe_open`", lambda: ours(path), by_handle)
    pair("load 1 GiB as writable arrays / `safetensors.numpy.load_file`", lambda: weighbridge.load(path, copy=True), lambda: load_file(path))
    os.remove(path)


def paddle_rows(folder):
    import paddle

    path = os.path.join(folder, "model.pdparams")
    paddle.save({name: paddle.to_tensor(array) for name, array in state().items()}, path)
    version = paddle.__version__
    pair(f"open and touch 1 GiB of `.pdparams` / `paddle.load` {version}", lambda: ours(path), lambda: touch(paddle.load(path, return_numpy=True).values()))
    os.remove(path)


def h5py_rows(folder):
    import h5py

    path = os.path.join(folder, "embeddings_all_0.v1.h5")
    with h5py.File(path, "w") as file:
        table = numpy.random.default_rng(2).standard_normal((ROWS, WIDTH), dtype=numpy.float32)
        file.create_dataset("embeddings", data=table)
        file.attrs["format_version"] = 1
    del table

    def whole():
        with h5py.File(path) as file:
            return touch([file["embeddings"][...]])

    def slices(table):
        return touch(table[start : start + 1000] for start in range(0, ROWS, 50_000))

    def some():
        with h5py.File(path) as file:
            return slices(file["embeddings"])

    def our_slices():
        with weighbridge.open(path) as checkpoint:
            return slices(next(iter(checkpoint.values())))

    pair("open and touch an 800 MB table of BigGraph / `h5py`", lambda: ours(path), whole)
    pair("40 slices of 1,000 rows of it / `h5py`", our_slices, some)
    os.remove(path)


def threads(folder):
    """Copies with two threads and with one: the GIL is released during copies."""
    path = os.path.join(folder, "model.npz")
    weighbridge.save(path, state(), force=True)
    tensors = list(weighbridge.open(path).values())

    def read(part):
        for tensor in part:
            tensor.bytes("F")

    def both():
        workers = [threading.Thread(target=read, args=(tensors[i::2],)) for i in range(2)]
        [worker.start() for worker in workers]
        [worker.join() for worker in workers]

    pair("1 GiB transposed to column-major order, two threads / one thread", both, lambda: read(tensors), "below 1")
    os.remove(path)


def leak(folder, rounds=100_000):
    """Opens and drops a checkpoint and views of it, many times; prints the growth of memory."""
    path = os.path.join(folder, "small.safetensors")
    weighbridge.save(path, {"a": numpy.zeros((64, 64), numpy.float32), "b": numpy.ones(7)}, force=True)

    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")

    begun = time.perf_counter()
    for i in range(rounds):
        checkpoint = weighbridge.open(path)
        views = {name: tensor.numpy() for name, tensor in checkpoint.items()}
        part = checkpoint["a"][3:5]
        del checkpoint
        assert part[0, 0] == 0 and views["b"][0] == 1
        if i == rounds // 10:
            before = resident()
    grown = resident() - before
    took = (time.perf_counter() - begun) / rounds
    print(f"\n{rounds:,} checkpoints opened, read and dropped: {took * 1e6:.0f} us each, memory grew by {grown >> 10} KiB after the first tenth")
    assert grown < 8 << 20, grown


def main():
    folder = tempfile.mkdtemp(dir=sys.argv[1] if len(sys.argv) > 1 else None)
    try:
        bare = seconds([sys.executable, "-c", "pass"])
        print(f"import weighbridge: {(seconds([sys.executable, '-c', 'import weighbridge']) - bare) * 1e3:.0f} ms (goal: 50)\n")
        print("| job / compared with | ours, s | other, s | ratio | goal |\n| --- | --- | --- | --- | --- |")
        for rows in (safetensors_rows, h5py_rows, paddle_rows, threads):
            try:
                rows(folder)
            except ImportError as error:
                print(f"(skipped: {error})")
        leak(folder)
    finally:
        for name in os.listdir(folder):
            os.remove(os.path.join(folder, name))
        os.rmdir(folder)


if __name__ == "__main__":
    main()
