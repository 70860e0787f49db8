"""numpy, safetensors, torch, h5py and pyarrow judge what is salvaged: they write files, these are
damaged, and the libraries read what was saved of them. Every tensor there is the original's.

usage: salvage_judge.py PATH-OF-THE-COMMAND

A library that is not installed judges nothing; one of them at least must be there.
"""

import importlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

COMMAND = sys.argv[1]


def has(name):
    try:
        importlib.import_module(name)
        return True
    except ImportError:
        return False


passed = failed = 0
RANDOM = np.random.default_rng(7)


def check(what, condition):
    global passed, failed
    if condition:
        passed += 1
    else:
        failed += 1
        print("FAILED", what)


def model():
    """Tensors of several types and sizes."""
    types = ["f4", "f8", "i8", "f2", "u1", "i4"]
    of = lambda k: (RANDOM.standard_normal((k + 3, 17)) * 9).astype(types[k % len(types)])
    return {f"layer{k}.w": of(k) for k in range(12)}


def run(*words):
    done = subprocess.run([COMMAND, *map(str, words)], capture_output=True, text=True)
    return done.returncode, done.stdout


def saved(path, folder, target="saved.npz"):
    """What is salvaged from a file, as numpy or safetensors reads it, and the report."""
    target = folder / target
    target.unlink(missing_ok=True)
    code, out = run("convert", path, target, "--salvage", "--json", "-q")
    report = json.loads(out)
    if "error" in report:
        return code, report, {}
    if target.suffix == ".npz":
        with np.load(target) as arrays:
            found = {name: arrays[name] for name in arrays.files if name != "weighbridge.metadata"}
    else:
        from safetensors.numpy import load_file

        found = load_file(target)
    verdict, _ = run("verify", target)
    check(f"{path.name}: what was written is sound", verdict == 0)
    return code, report, found


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def judge(what, path, whole, folder, ends, flips=()):
    """Cuts a file at some of its parts, and changes some of its bytes."""
    bytes_ = path.read_bytes()
    least = 0
    damaged = path.with_name("damaged" + path.suffix)
    for share in ends:
        damaged.write_bytes(bytes_[: int(len(bytes_) * share)])
        code, report, found = saved(damaged, folder)
        check(f"{what} cut at {share}: all that is given is right", all(same(whole[n], found[n]) for n in found))
        check(f"{what} cut at {share}: no less than of a shorter one", len(found) >= least)
        least = len(found)
        if found:
            is_whole = found.keys() == whole.keys() and all(same(whole[n], found[n]) for n in found)
            code_of = "damaged" if is_whole and code == 0 else "missing-damaged"
            check(f"{what} cut at {share}: exit code", code == (0 if code_of == "damaged" else 1))
            lost = [loss for loss in report["losses"] if loss["code"] == code_of]
            check(f"{what} cut at {share}: the damage is said", len(lost) > 0)
    check(f"{what}: most of it comes back at last", 0 < least)
    some = 0
    for at in flips:
        changed = bytearray(bytes_)
        changed[at] ^= 0x5A
        damaged.write_bytes(changed)
        code, report, found = saved(damaged, folder)
        check(f"{what} changed at {at}: all that is given is right", all(same(whole[n], found[n]) for n in found))
        some += len(found)
    check(f"{what}: something of changed files comes back", some > 0 or not flips)


def reached(path, size):
    """The datasets of an HDF5 file whose names, entries and elements all stand in its first `size` bytes, as far as h5py
    itself can tell: it reads them from a copy in which every other byte is zero."""
    import h5py

    bytes_ = path.read_bytes()
    copy = path.with_name("zeros.h5")
    copy.write_bytes(bytes_[:size] + bytes(len(bytes_) - size))
    found = {}
    try:
        file = h5py.File(path, "r")
        zeros = h5py.File(copy, "r")
    except OSError:
        return found
    names = []
    file.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
    for name in names:
        end = file[name].id.get_offset() + file[name].id.get_storage_size()
        if end > size:
            continue
        try:
            found[name.replace("/", ".")] = zeros[name][()]
        except (KeyError, OSError, RuntimeError, ValueError):
            pass
    file.close()
    zeros.close()
    return found


def groups(folder, libver, count, nested):
    """Groups of which a part is in the file: all that h5py reaches there comes back, and as it was."""
    import h5py

    what = f"hdf5, {libver}, {count} datasets, nested: {nested}"
    path = folder / "groups.h5"
    whole = {}
    with h5py.File(path, "w", libver=libver) as file:
        for k in range(count):
            name = (f"block{k % 3}/" if nested else "") + f"w{k}"
            whole[name.replace("/", ".")] = RANDOM.standard_normal((24, 24)).astype("f4")
            file[name] = whole[name.replace("/", ".")]
    bytes_ = path.read_bytes()
    damaged = folder / "damaged.h5"
    least = 0
    for share in range(4, 100, 8):
        size = len(bytes_) * share // 100
        damaged.write_bytes(bytes_[:size])
        code, report, found = saved(damaged, folder)
        right = all(name in whole and same(whole[name], found[name]) for name in found)
        check(f"{what}, cut at {share} %: all that is given is right", right)
        missing = set(reached(path, size)) - set(found)
        check(f"{what}, cut at {share} %: what h5py reaches comes back, not {missing}", not missing)
        check(f"{what}, cut at {share} %: no less than of a shorter one", len(found) >= least)
        least = len(found)
    marks = [mark for mark in (b"SNOD", b"BTLF", b"FHDB", b"OCHK") if mark in bytes_]
    for mark in marks:
        lost, at, places = 0, bytes_.find(mark), 0
        while at >= 0:
            damaged.write_bytes(bytes_[:at] + b"????" + bytes_[at + 4 :])
            code, report, found = saved(damaged, folder)
            right = all(name in whole and same(whole[name], found[name]) for name in found)
            check(f"{what}, {mark} lost at {at}: all that is given is right", right)
            lost, places = lost + len(whole) - len(found), places + 1
            at = bytes_.find(mark, at + 1)
        if mark == b"SNOD" and not nested:
            check(f"{what}: each node costs its own members", lost == len(whole))


ENDS = [0.2, 0.4, 0.6, 0.75, 0.9, 0.97, 0.999]


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        whole = model()
        for what, save in [("npz", np.savez), ("deflated npz", np.savez_compressed)]:
            path = folder / "numpy.npz"
            save(path, **whole)
            flips = range(3, path.stat().st_size, max(1, path.stat().st_size // 150))
            judge(what, path, whole, folder, ENDS, flips)
        array = RANDOM.standard_normal((40, 6)).astype("f4")
        path = folder / "rows.npy"
        np.save(path, array)
        path.write_bytes(path.read_bytes()[:-7])
        code, _, found = saved(path, folder)
        check("npy: rows before the break", code == 1 and same(array[:39], found["value"]))
        if has("safetensors"):
            from safetensors.numpy import save_file

            path = folder / "model.safetensors"
            save_file(whole, path)
            judge("safetensors", path, whole, folder, ENDS, range(0, 8))
            damaged = folder / "header.safetensors"
            text = path.read_bytes().replace(b'"dtype"', b'"dtyqe"', 1)
            damaged.write_bytes(text)
            code, report, found = saved(damaged, folder, "saved.safetensors")
            check("safetensors: one bad entry hides no other", len(found) == len(whole) - 1 and code == 1)
            check("safetensors: these are right", all(same(whole[n], found[n]) for n in found))
        if has("torch"):
            import torch

            state = {n: torch.from_numpy(a.copy()) for n, a in whole.items()}
            path = folder / "model.pt"
            torch.save(state, path)
            flips = range(5, path.stat().st_size, max(1, path.stat().st_size // 120))
            judge("torch", path, whole, folder, ENDS, flips)
            torch.save(state, path, _use_new_zipfile_serialization=False)
            judge("torch legacy", path, whole, folder, ENDS[1:])
        if has("h5py"):
            import h5py

            path = folder / "model.h5"
            with h5py.File(path, "w", libver="latest") as file:
                for n, a in whole.items():
                    file.create_dataset(n, data=a, fletcher32=True, chunks=a.shape)
            judge("hdf5", path, whole, folder, ENDS[4:])
            for libver in ["earliest", "latest"]:
                for count in [5, 8, 10, 17, 40]:
                    for nested in [False, True]:
                        groups(folder, libver, count, nested)
        if has("pyarrow"):
            import pyarrow as pa

            table = RANDOM.standard_normal((900, 5)).astype("f4")
            column = pa.FixedSizeListArray.from_arrays(pa.array(table.ravel()), 5)
            batches = pa.table({"vector": column}).to_batches(max_chunksize=100)
            path = folder / "table.arrow"
            with pa.ipc.new_file(str(path), batches[0].schema) as sink:
                for batch in batches:
                    sink.write_batch(batch)
            path.write_bytes(path.read_bytes()[: int(path.stat().st_size * 0.6)])
            code, _, found = saved(path, folder)
            rows = next(iter(found.values()), np.zeros((0, 5), "f4"))
            right = 0 < len(rows) < 900 and len(rows) % 100 == 0 and same(table[: len(rows)], rows)
            check("arrow: batches before the break", code == 1 and right)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


sys.exit(main())
