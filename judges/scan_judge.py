"""Judges `weighbridge scan`: Python's own pickletools, zipfile and tarfile see no import that it does not list.

    python judges/scan_judge.py WEIGHBRIDGE TESTDATA

Needs numpy and h5py. For every pickle in TESTDATA, alone, one behind the other, as a member of an archive, in an array of
objects: the instructions that import, by `pickletools.genops`, are those that `scan` lists, at the same offsets
and under the same names. Names that come from the stack are those that Python's own unpickler asks for, which is
given no class at all. From the first byte of a file that `scan` calls clean, of each of its members as zipfile and
tarfile read them, and of each of its values as h5py reads them, Python's unpickler asks for nothing but what `scan`
lists. Nothing is executed.
"""

import io
import json
import pickle
import pickletools
import subprocess
import sys
import tarfile
import warnings
import zipfile
from collections import Counter
from pathlib import Path

import h5py
import numpy as np

IMPORTS = ("GLOBAL", "INST", "STACK_GLOBAL")
MAGIC = 0x1950A86A20F9469CFC6C


class Inert:
    """Stands for every class and function: may be made, called and filled, and does nothing."""

    def __init__(self, *args, **kwargs):
        pass

    def __new__(cls, *args, **kwargs):
        return object.__new__(cls)

    def __call__(self, *args, **kwargs):
        return Inert()

    def __setstate__(self, state):
        pass

    def __setitem__(self, key, value):
        pass

    def append(self, item):
        pass

    def extend(self, items):
        pass

    def __hash__(self):
        return 1


class Names(pickle._Unpickler):
    """Writes down what would be imported."""

    def __init__(self, data, refuse=False):
        super().__init__(io.BytesIO(data))
        self.found = []
        self.refuse = refuse

    def find_class(self, module, name):
        self.found.append((module, name))
        return Inert

    def persistent_load(self, key):
        if self.refuse:
            raise pickle.UnpicklingError("there is nothing beside the pickle")
        return Inert()

    def get_extension(self, code):
        self.append(Inert)


def instructions(data, start):
    """Imports and byte strings of the pickle at `start`, and where it ends; None for the end of a broken one."""
    imports, blobs, end = [], [], None
    stream = io.BytesIO(data)
    stream.seek(start)
    try:
        for op, arg, at in pickletools.genops(stream):
            if op.name in IMPORTS:
                imports.append((at, op.name, tuple(arg.split(" ", 1)) if arg else None))
            elif isinstance(arg, (bytes, bytearray, str)):
                blobs.append((at, stream.tell()))
        end = stream.tell()
    except (ValueError, UnicodeDecodeError, IndexError, OverflowError, MemoryError):
        pass
    return imports, blobs, end


def names(data, start):
    """What Python's machine asks for, as far as it comes."""
    machine = Names(data[start:])
    try:
        machine.load()
        return machine.found, True
    except Exception:  # Whatever a crafted pickle brings about.
        return machine.found, False


def judge(path, data, ours, untold, most, faults):
    """Holds one run of pickles against what we list. `untold`: where we say that a name could not be followed, or
    that the pickle breaks. Returns the number of imports.
    """
    start, count, blobs, seen = 0, 0, [], set()
    listed = {found["offset"]: found for found in ours}
    for _ in range(most):
        imports, strings, end = instructions(data, start)
        blobs += strings
        asked, whole = names(data, start)
        for number, (at, opcode, name) in enumerate(imports):
            seen.add(at)
            count += 1
            found = listed.get(at)
            if found is None and opcode == "STACK_GLOBAL" and at in untold:
                continue
            if found is None or found["opcode"] != opcode:
                faults.append(f"{path}: {opcode} at {at} is not listed")
                continue
            told = (found["module"], found["name"])
            if name is not None and name != told:
                faults.append(f"{path}: at {at} pickletools sees {name}, we {told}")
            # Python asks in the order of the file.
            if whole and asked[number] != told:
                faults.append(f"{path}: at {at} Python asks for {asked[number]}, we tell {told}")
        if end is None or end >= len(data):
            break
        start = end
    for at in set(listed) - seen:
        # Pickles in the bytes of a pickle are looked at by us alone; so is what stands behind a break.
        nested = any(first < at < last for first, last in blobs)
        if not nested and end is not None:
            faults.append(f"{path}: we list an import at {at} that pickletools does not see")
    return count


def is_pickle(data):
    """True where the bytes are a pickle, or begin one that imports."""
    if data[:1] not in (b"\x80", b"(", b"c", b"]", b"}"):
        return False
    imports, _, end = instructions(data, 0)
    return bool(imports) or (end is not None and end > 2)


def of_legacy(data):
    """How many pickles a file in torch's old form has: five, then storages, unless another one stands there."""
    start = 0
    for _ in range(5):
        start = instructions(data, start)[2]
        if start is None:
            return 5
    return 6 if is_pickle(data[start:]) else 5


def objects(data):
    """The pickle in an array of objects; None for other arrays, and for what is none."""
    stream = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(stream)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _, _, dtype = np.lib.format._read_array_header(stream, version)
    except Exception:
        return None
    return data[stream.tell():] if dtype.hasobject else None


def archives(data):
    """Where each archive of a file of torch.distributed.checkpoint begins, and its bytes: they stand one behind another."""
    start = 0
    while start < len(data):
        end = data.find(b"PK\5\6", start)
        if end < 0:
            return
        yield start, data[start:end + 22]
        start = end + 22


def members(data):
    """Name and bytes of each member that Python reads; none where it refuses the archive."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = Counter(info.filename for info in archive.infolist())
            for info in archive.infolist():
                if info.is_dir() or info.file_size > 1 << 24 or names[info.filename] > 1:
                    continue
                try:
                    yield info.filename, archive.read(info)
                except Exception:
                    continue
    except Exception:
        return


def tar_members(data):
    """Name and bytes of each member that Python reads, as far as it reads."""
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
            for info in archive:
                if info.isreg() and info.size <= 1 << 24:
                    yield info.name, archive.extractfile(info).read()
    except Exception:
        return


def values(data):
    """Name and bytes of the datasets and attributes of an HDF5 file, and their texts, together and each, as h5py reads them."""
    try:
        file = h5py.File(io.BytesIO(data), "r")
    except Exception:
        return

    def of(name, value):
        if isinstance(value, h5py.Empty):
            return
        if isinstance(value, np.ndarray) and not value.dtype.hasobject:
            yield name, value.tobytes()
        array = np.asarray(value)
        if array.dtype.kind in "SOUV" and array.size <= 10_000:
            items = [item for item in array.ravel() if isinstance(item, (str, bytes, np.void))]
            items = [item.encode() if isinstance(item, str) else bytes(item) for item in items]
            yield f"{name}[:]", b"".join(items)
            for number, item in enumerate(items):
                yield f"{name}[{number}]", item

    with file:
        objects = [("", file)]
        file.visititems(lambda name, item: objects.append((name, item)))
        for name, item in objects:
            try:
                for key, value in item.attrs.items():
                    yield from of(f"{name}@{key}", value)
                if isinstance(item, h5py.Dataset) and item.size is not None and item.size <= 1 << 20:
                    yield from of(name, item[()])
            except Exception:
                continue


def asked_for(data):
    """What the unpickler asks for when it reads `data` from the first byte, up to five pickles as torch does; of
    these only what Python could find: names of letters, digits and underscores.
    """
    asked, start = [], 0
    for _ in range(5):
        machine = Names(data[start:], refuse=True)
        try:
            machine.load()
            whole = True
        except Exception:
            whole = False
        asked += machine.found
        end = instructions(data, start)[2]
        if not whole or end is None or end >= len(data):
            break
        start = end
    return [name for name in asked if all(part.isidentifier() for text in name for part in text.split("."))]


def unpickled(path, data, listed, faults, depth=3):
    """Of a clean file: whatever its format, unpickling it imports nothing that is not listed. Returns the number of
    pieces that were tried.
    """
    tried = 1
    for name in asked_for(data):
        if name not in listed:
            faults.append(f"{path}: is called clean, and unpickled it imports {name}")
    if depth == 0:
        return tried
    inner = list(members(data)) + list(tar_members(data)) + list(values(data))
    for name, bytes_ in inner:
        tried += unpickled(f"{path}!{name}", bytes_, listed, faults, depth - 1)
    return tried


def main(command, testdata):
    run = subprocess.run([command, "scan", testdata, "--json"], capture_output=True, check=False)
    report = json.loads(run.stdout)
    faults, counts = [], Counter()
    for file in report["files"]:
        path = Path(file["path"])
        if not path.is_file():
            continue
        data = path.read_bytes()
        if file["verdict"] == "clean" and len(data) <= 1 << 26:
            known = {(found["module"], found["name"]) for found in file["imports"]}
            counts["clean, unpickled"] += unpickled(path, data, known, faults)
        ours = {}
        for found in file["imports"]:
            ours.setdefault(found["member"], []).append(found)

        def look(name, data, member, most):
            counts["pickles"] += 1
            codes = ("unfollowed-import", "pickle-breaks")
            untold = {f["offset"] for f in file["findings"] if f["code"] in codes and f["member"] == member}
            counts["imports"] += judge(name, data, ours.get(member, []), untold, most, faults)

        array = objects(data)
        if array is not None:
            start = len(data) - len(array)
            shifted = [dict(found, offset=found["offset"] - start) for found in ours.get(None, [])]
            ours[None] = shifted
            look(path, array, None, 1)
        elif data[:2] == b"PK" and file["format"] == "dcp":
            for start, archive in archives(data):
                for name, bytes_ in members(archive):
                    counts["members"] += 1
                    if name.endswith(".pkl"):
                        member = f"(archive at byte {start})!{name}"
                        look(f"{path}!{member}", bytes_, member, 1)
        elif data[:2] == b"PK":
            inner = list(members(data))
            counts["members"] += len(inner)
            for name, bytes_ in inner:
                array = objects(bytes_)
                if name.endswith(".pkl") or (file["format"] == "zip" and bytes_[:1] == b"\x80" and is_pickle(bytes_)):
                    look(f"{path}!{name}", bytes_, name, 1)
                elif array is not None:
                    start = len(bytes_) - len(array)
                    ours[name] = [dict(found, offset=found["offset"] - start) for found in ours.get(name, [])]
                    look(f"{path}!{name}", array, name, 1)
        elif file["format"] in ("dcp", "joblib", "paddle", "pickle", "torch") and is_pickle(data):
            legacy = data[2:14] == pickle.dumps(MAGIC, 2)[2:14]
            look(path, data, None, of_legacy(data) if legacy else 10)
        elif is_pickle(data) and data[:1] == b"\x80" and file["verdict"] == "clean":
            faults.append(f"{path}: a pickle is called clean as {file['format']}")
    print(dict(counts))
    for fault in faults:
        print(fault)
    if counts["pickles"] < 200 or counts["imports"] < 300 or counts["members"] < 100 or counts["clean, unpickled"] < 1000:
        faults.append("too little was judged")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
