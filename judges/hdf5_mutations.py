#!/usr/bin/env python3
"""h5py judges damaged HDF5 files that Weighbridge calls sound.

    python judges/hdf5_mutations.py WEIGHBRIDGE [COUNT [SEED]]

Changes 1 to 3 bytes of small files that h5py writes, COUNT times (1,500 if it is not given), and lets
Weighbridge verify each file. Of the files called sound h5py must refuse no more than 0.5 %, and each must
convert to the values that h5py reads, or not at all. The same COUNT and SEED give the same files.
Needs h5py and numpy. Exit code 0: the rules hold.
"""

import concurrent.futures
import json
import multiprocessing
import os
import random
import shutil
import subprocess
import sys
import tempfile

import h5py
import numpy as np

REFUSED = 0.005
BATCH = 250
# Seconds that h5py may take for a file of 12 KB.
TIMEOUT = 20
FORK = multiprocessing.get_context("fork")


def write(path, libver, **chunked):
    rng = np.random.default_rng(7)
    with h5py.File(path, "w", libver=libver) as f:
        f["a"] = rng.standard_normal((6, 5)).astype("f4")
        f["a"].attrs["unit"] = "m"
        f["c"] = 2.5
        f.create_dataset("g/b", data=np.arange(40).reshape(8, 5), **chunked)
        f["g"].attrs["epoch"] = 3
        f.attrs["names"] = np.array([1.5, 2.5])


def bases(folder):
    """The files to damage: oldest and newest forms, each index of chunks, filters."""
    forms = {
        "plain": {"chunks": (3, 2)},
        "gzip": {"chunks": (3, 2), "compression": "gzip"},
        "shuffle": {"chunks": (3, 2), "compression": "gzip", "shuffle": True, "fletcher32": True},
        "grows": {"chunks": (3, 2), "maxshape": (None, 5)},
        "both": {"chunks": (3, 2), "maxshape": (None, None), "fletcher32": True},
        "contiguous": {},
    }
    out = []
    for libver in ("earliest", "v108", "latest"):
        for name, form in forms.items():
            path = os.path.join(folder, f"{name}_{libver}.h5")
            write(path, libver, **form)
            # The newest has checksums nearly everywhere: there is less to find.
            out += [path] * {"earliest": 3, "v108": 2, "latest": 1}[libver]
    return out


def damaged(bases, count, seed, folder):
    """Files with 1 to 3 other bytes, mostly near what is not zero."""
    rng = random.Random(seed)
    contents = {path: open(path, "rb").read() for path in bases}
    used = {path: [i for i, b in enumerate(c) if b] for path, c in contents.items()}
    out = []
    for number in range(count):
        base = rng.choice(bases)
        bytes_ = bytearray(contents[base])
        for _ in range(rng.randint(1, 3)):
            near = rng.choice(used[base]) + rng.randint(-8, 8) if rng.random() < 0.8 else rng.randrange(len(bytes_))
            at = min(max(near, 0), len(bytes_) - 1)
            kind = rng.random()
            if kind < 0.4:
                bytes_[at] ^= 1 << rng.randrange(8)
            elif kind < 0.8:
                bytes_[at] = rng.randrange(256)
            else:
                bytes_[at] = rng.choice([0, 1, 0x7F, 0x80, 0xFF])
        if bytes(bytes_) == contents[base]:
            continue
        path = os.path.join(folder, f"{number}.h5")
        with open(path, "wb") as out_file:
            out_file.write(bytes_)
        out.append((path, base))
    return out


def sound(binary, paths):
    """The paths that are called sound."""
    done = subprocess.run([binary, "verify", "-q", "--json", *paths], capture_output=True, text=True)
    reports = json.loads(done.stdout)["paths"]
    assert len(reports) == len(paths), (len(reports), len(paths), done.stderr[:300])
    return [path for path, report in zip(paths, reports) if report["verdict"] == "sound"]


def read(path):
    """All that h5py reads; an error where it refuses."""
    found = {}

    def visit(name, item):
        for key in item.attrs:
            item.attrs[key]
        if isinstance(item, h5py.Dataset):
            found[name] = item[()]

    with h5py.File(path, "r") as f:
        for key in f.attrs:
            f.attrs[key]
        f.visititems(visit)
    return found


def answer(path, pipe):
    try:
        pipe.send((read(path), None))
    except Exception as error:  # Whatever h5py says, it does not read the file.
        pipe.send((None, str(error)))


def read_apart(path):
    """What h5py reads, or what it says, in a process of its own: damage can make it crash or run on without an end."""
    here, there = FORK.Pipe(duplex=False)
    child = FORK.Process(target=answer, args=(path, there))
    child.start()
    there.close()
    try:
        return here.recv() if here.poll(TIMEOUT) else (None, "h5py does not come to an end")
    except EOFError:
        return None, "h5py crashed"
    finally:
        child.kill()
        child.join()


def convert(binary, path):
    """True where a file can be converted."""
    done = subprocess.run([binary, "convert", "-q", path, path + ".safetensors"], capture_output=True)
    return done.returncode == 0


def judge(path, is_converted):
    """What is wrong with a file that was called sound, or None."""
    expected, refusal = read_apart(path)
    if refusal is not None:
        return "refused", refusal
    if not is_converted:
        return None
    found = tensors(path + ".safetensors")
    expected = {name.replace("/", "."): np.asarray(value) for name, value in expected.items()}
    if set(found) != set(expected):
        return "differs", f"{sorted(found)} are not {sorted(expected)}"
    for name, array in found.items():
        value = expected[name]
        same = array.shape == value.shape and array.dtype == value.dtype.newbyteorder("<")
        if not same or array.tobytes() != value.astype(array.dtype).tobytes():
            return "differs", name
    return None


def tensors(path):
    """The tensors of a safetensors file by name, dots between the parts."""
    dtypes = {"F32": "<f4", "F64": "<f8", "F16": "<f2", "BOOL": "?"}
    dtypes.update({f"{sign}{8 * size}": f"<{sign.lower()}{size}" for sign in "IU" for size in (1, 2, 4, 8)})
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = file.read()
    out = {}
    for name, entry in header.items():
        if name != "__metadata__":
            first, last = entry["data_offsets"]
            array = np.frombuffer(data[first:last], dtypes[entry["dtype"]]).reshape(entry["shape"])
            out[name.lstrip("/").replace("/", ".")] = array
    return out


def main():
    binary = sys.argv[1]
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 1500
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    keep = os.environ.get("KEEP")
    with tempfile.TemporaryDirectory() as folder:
        files = bases(folder)
        distinct = sorted(set(files))
        assert sound(binary, distinct) == distinct, "a file that is not damaged is not called sound"
        cases = damaged(files, count, seed, folder)
        base_of = dict(cases)
        paths = [path for path, _ in cases]
        batches = [paths[i : i + BATCH] for i in range(0, len(paths), BATCH)]
        wrong = {"refused": [], "differs": []}
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            passed = [path for batch in pool.map(lambda b: sound(binary, b), batches) for path in batch]
            for path, is_converted in zip(passed, pool.map(lambda p: convert(binary, p), passed)):
                found = judge(path, is_converted)
                if not found:
                    continue
                wrong[found[0]].append(path)
                before, after = open(base_of[path], "rb").read(), open(path, "rb").read()
                changes = [(i, before[i], after[i]) for i in range(len(before)) if before[i] != after[i]]
                print(found[0], os.path.basename(base_of[path]), changes, found[1][:120])
                if keep:
                    shutil.copy(path, keep)
    refused, differs = len(wrong["refused"]), len(wrong["differs"])
    print(f"h5py {h5py.__version__}: {len(cases)} files, {len(passed)} called sound, {refused} refused, {differs} differ")
    sys.exit(differs > 0 or refused > REFUSED * len(passed))


if __name__ == "__main__":
    main()
