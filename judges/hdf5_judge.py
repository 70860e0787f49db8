"""h5py judges HDF5 files that Weighbridge wrote.

    mkdir OUT && cargo run -p weighbridge --example hdf5_samples -- OUT
    python judges/hdf5_judge.py OUT [WEIGHBRIDGE TESTDATA]

OUT is what the example wrote. With the weighbridge binary and the folder of test data, tensors of other
formats are converted to HDF5 as well and compared with what numpy and safetensors read of them. Runs with
HDF5 1.14 (h5py 3.11) and 2.0 (h5py 3.16). Exit code 0: h5py agrees with everything.
"""

import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile

import h5py
import numpy as np

import hdf5_virtual

failures = 0
counted = 0


def check(what, good, note=""):
    global failures, counted
    counted += 1
    if not good:
        failures += 1
        print("FAIL", what, note)


TYPES = {"f16": "f2", "f32": "f4", "f64": "f8", "c64": "c8", "c128": "c16", "bool": "u1"}
TYPES.update({f"{s}{n * 8}": f"{s}{n}" for s in "iu" for n in (1, 2, 4, 8)})


def raw(length, dtype):
    """Bytes 1, 2, 3 ... as the example makes them."""
    numbers = (np.arange(length, dtype="u8") % 251 + 1).astype("u1")
    return numbers % 2 if dtype == "bool" else numbers


def bits(dataset):
    """The bytes of a dataset as they are in the file."""
    offset, size = dataset.id.get_offset(), dataset.id.get_storage_size()
    if offset is None:
        return b""
    with open(dataset.file.filename, "rb") as file:
        file.seek(offset)
        return file.read(size)


def types(path):
    with h5py.File(path, "r") as file:
        for dtype in [k for k in file if k != "opaque"]:
            group = file[dtype]
            size = {"bf16": 2, "f8_e5m2": 1}.get(dtype) or np.dtype(TYPES[dtype]).itemsize
            for name, shape in (("scalar", ()), ("empty", (0, 3)), ("matrix", (2, 3)), ("columns", (2, 3, 4))):
                data = group[name]
                check(f"{dtype}/{name}", data.shape == shape, data.shape)
                expected = raw(int(np.prod(shape)) * size, dtype)
                if name == "columns":
                    cells = expected.reshape((4, 3, 2, size)).transpose(2, 1, 0, 3)
                    expected = np.ascontiguousarray(cells)
                check(f"{dtype}/{name} bytes", bits(data) == expected.tobytes())
                offset = data.id.get_offset()
                check(f"{dtype}/{name} aligned", offset is None or offset % 64 == 0)
                values = np.asarray(data[()])
                if dtype == "bool":
                    check(f"{dtype}/{name} type", values.dtype == bool, values.dtype)
                    check(f"{dtype}/{name} values", values.astype("u1").tobytes() == expected.tobytes())
                elif dtype == "bf16":
                    wide = expected.tobytes()
                    wide = np.frombuffer(wide, "u2").astype("u4") << 16
                    same = np.array_equal(values.astype("f4").ravel(), wide.view("f4"), equal_nan=True)
                    check(f"{dtype}/{name} values", same, values.dtype)
                elif dtype == "f8_e5m2":
                    wide = np.frombuffer(expected.tobytes(), "u1").astype("u2") << 8
                    same = np.array_equal(values.astype("f2").ravel(), wide.view("f2"), equal_nan=True)
                    check(f"{dtype}/{name} values", same, values.dtype)
                else:
                    check(f"{dtype}/{name} type", values.dtype == np.dtype(TYPES[dtype]), values.dtype)
                    check(f"{dtype}/{name} values", values.tobytes() == expected.tobytes())
        for length in (0, 1, 1000):
            data = file[f"opaque/{length}"]
            check(f"opaque/{length}", data.dtype == np.dtype("V1") and data.shape == (length,), data.dtype)
            check(f"opaque/{length} tag", data.id.get_type().get_tag() == b"")
            check(f"opaque/{length} bytes", data[()].tobytes() == b"\7" * length)


def members(path):
    with h5py.File(path, "r") as file:
        for count in (0, 1, 7, 8, 9, 255, 256, 257, 5000, 9000):
            group = file[f"groups/{count}"]
            names = sorted(f"member {i}" for i in range(count))
            check(f"{count} members", list(group) == names and len(group) == count)
            check(f"{count} members found", all(group[n][0] == 1 for n in names))
            check("a member that is not there", "member x" not in group and "" not in list(group))
        deep = file["/".join(["deep"] * 300)]
        check("deep", len(deep) == 0)
        names = ["größe", "重み", "a.b", "..", "with space", "\U0001f600", "~", "A", "a", "line\nfeed", "n" * 70_000]
        check("names", set(file["names"]) == set(names), list(file["names"]))
        for name in names:
            check("a name", list(file["names"][name]) == [0x0201, 0x0403])


def same(found, expected):
    if isinstance(expected, (str, int, float)) and np.ndim(found) != 0:
        return False
    if isinstance(expected, str):
        return isinstance(found, str) and found == expected
    return np.array_equal(found, expected)


def attributes(path):
    expected = {
        "i64": -5,
        "u64": 2**64 - 1,
        "u32": 7,
        "f32": np.float32(0.1),
        "f64": 0.1,
        "true": np.True_,
        "false": np.False_,
        "text": "größe 重み",
        "no text": "",
        "bytes": np.void(b"\0\1\xff"),
        "i64s": np.arange(-3, 5),
        "u64s": np.arange(5, dtype="u8"),
        "f64s": np.arange(5.0),
        "bools": np.array([True, False]),
        "texts": np.array(["a", "", "größe"], dtype=object),
        "none": np.zeros(0),
        "config/json": "{}",
        "größe": 1,
        "gräßer": "mehr",
        "long": "0123456789" * 500_000,
        "8000 numbers": np.arange(8000),
    }
    kinds = {"i64": "i8", "u64": "u8", "u32": "u4", "f32": "f4", "f64": "f8", "true": "?", "i64s": "i8"}
    with h5py.File(path, "r") as file:
        for where in ("/", "/g", "/g/d"):
            found = file[where].attrs
            check(f"number of attributes of {where}", len(found) == len(expected) + 200, len(found))
            for name, value in expected.items():
                check(f"{where} {name}", name in found and same(found[name], value), name in found and found[name])
            for name, kind in kinds.items():
                check(f"{where} {name} type", found.get_id(name).dtype == np.dtype(kind))
            for i in range(100):
                check(f"{where} many {i}", found[f"many {i}"] == i and found[f"text {i}"] == "t" * (37 * i))
            info = h5py.check_string_dtype(found.get_id("text").dtype)
            check("text is UTF-8 of variable length", info.encoding == "utf-8" and info.length is None)
        for left in range(12):
            text = file[f"left{left}"].attrs["text"]
            check(f"left {left}", text == "x" * (4096 - 32 - left * 8))
            check(f"closes {left}", file[f"left{left}"].attrs["closes"] == "y" * 70_000)


def everything(path):
    """All that can be read of a file."""
    found = {}

    def visit(name, item):
        attrs = {k: np.asarray(v).tolist() for k, v in item.attrs.items()}
        found[name] = (attrs, bits(item) if isinstance(item, h5py.Dataset) else sorted(item))

    with h5py.File(path, "r") as file:
        visit("", file)
        file.visititems(visit)
    return found


def grows(path):
    """h5py adds to every group and to every kind of object, and all that was there stays."""
    with tempfile.TemporaryDirectory() as folder:
        copy = os.path.join(folder, "copy.h5")
        shutil.copyfile(path, copy)
        before = everything(copy)
        groups = [name for name, (_, content) in before.items() if isinstance(content, list)]
        with h5py.File(copy, "r+") as file:
            for number, name in enumerate(groups):
                group = file[name or "/"]
                for k in range(20):
                    group[f"new {k} {number}"] = np.arange(5) + k
                group.attrs["new text"] = "new"
                group.attrs["new number"] = 4
                group.create_group("new group")["inside"] = 3
            for name, (_, content) in before.items():
                if not isinstance(content, list):
                    file[name].attrs["new text"] = "new"
        after = everything(copy)
        for name, (attrs, content) in before.items():
            new_attrs, new_content = after[name]
            check(f"{name} keeps its attributes", all(new_attrs[k] == v for k, v in attrs.items()))
            if isinstance(content, list):
                check(f"{name} keeps its members", set(content) < set(new_content))
            else:
                check(f"{name} keeps its elements", content == new_content)
        # Deleting half of what was there, and changing what is left.
        with h5py.File(copy, "r+") as file:
            datasets = [n for n, (_, c) in before.items() if not isinstance(c, list)]
            for name in datasets[::2]:
                del file[name]
            for attribute in list(file.attrs)[::3]:
                del file.attrs[attribute]
        left = everything(copy)
        check("deleted", not any(n in left for n in datasets[::2]))
        check("the rest stays", all(left[n][1] == before[n][1] for n in datasets[1::2]))


def converted(binary, testdata):
    """Other formats become HDF5 with the elements that numpy reads of them, and come back."""
    sources = sorted(glob.glob(os.path.join(testdata, "npz", "good", "**", "*.npz"), recursive=True))
    for source in sources:
        with tempfile.TemporaryDirectory() as folder:
            target = os.path.join(folder, "a.h5")
            done = subprocess.run([binary, "convert", source, target, "--json"], capture_output=True, text=True)
            if done.returncode not in (0, 1):
                print("skip", os.path.basename(source), done.stderr.strip().splitlines()[:1])
                continue
            with np.load(source) as arrays, h5py.File(target, "r") as file:
                datasets = []
                file.visititems(lambda n, i: datasets.append(n) if isinstance(i, h5py.Dataset) else None)
                names = [n for n in arrays.files if n != "weighbridge.metadata"]
                # What is no array of numbers, or packed in a way that is not read, is named as a loss.
                losses = json.loads(done.stdout)["losses"]
                lost = [loss["subject"] for loss in losses if loss["tensor"]]
                check(f"{source} exit code", done.returncode == (1 if lost else 0), (done.returncode, lost))
                lost += [loss["detail"].split(":")[0] for loss in losses if loss["code"] == "omitted"]
                names = [n for n in names if n not in lost and f"{n}.npy" not in lost]
                check(f"{source} names", len(datasets) == len(names), (datasets, names, lost))
                for name in names:
                    path = name.replace(".", "/")
                    if path not in file or not isinstance(file[path], h5py.Dataset):
                        continue
                    array = arrays[name]
                    little = array.astype(array.dtype.newbyteorder("<"))
                    good = file[path].shape == array.shape and bits(file[path]) == np.ascontiguousarray(little).tobytes()
                    check(f"{source} {name}", good, (file[path].shape, array.shape))
            back = os.path.join(folder, "a.npz")
            done = subprocess.run([binary, "convert", target, back], capture_output=True, text=True)
            check(f"{source} comes back", done.returncode == 0, done.stderr)


def kept(binary, testdata):
    """HDF5 becomes HDF5, also through npz: attributes keep their types and extents, null datasets and groups stay."""
    def told(path):
        with h5py.File(path, "r") as file:
            objects = {"/": file}
            file.visititems(objects.__setitem__)
            out = {}
            for name, item in objects.items():
                own = {k: (repr(v), item.attrs.get_id(k).dtype.str, item.attrs.get_id(k).shape)
                       for k, v in item.attrs.items() if k != "weighbridge.index"}
                is_dataset = isinstance(item, h5py.Dataset)
                out[name] = (is_dataset and (item.shape, h5py.h5ds.is_scale(item.id)), own)
            return out

    source = os.path.join(testdata, "hdf5", "forms", "attributes.h5")
    before = told(source)
    with tempfile.TemporaryDirectory() as folder:
        for steps in (["a.h5"], ["a.npz", "b.h5"]):
            last = source
            for step in steps:
                target = os.path.join(folder, step)
                done = subprocess.run([binary, "convert", last, target, "--deny-loss"], capture_output=True, text=True)
                check(f"{source} to {steps}", done.returncode == 0, done.stderr)
                last = target
            after = told(last)
            check(f"{steps}: objects", sorted(before) == sorted(after), (sorted(before), sorted(after)))
            for name, was in before.items():
                check(f"{steps}: {name}", after.get(name) == was, (was, after.get(name)))


def main():
    out = sys.argv[1]
    types(os.path.join(out, "types.h5"))
    members(os.path.join(out, "members.h5"))
    attributes(os.path.join(out, "attributes.h5"))
    check("an empty file", everything(os.path.join(out, "empty.h5")) == {"": ({}, [])})
    for name in ("types", "members", "attributes", "empty"):
        grows(os.path.join(out, f"{name}.h5"))
    if len(sys.argv) > 3:
        converted(*sys.argv[2:4])
        kept(*sys.argv[2:4])
        compared, wrong = hdf5_virtual.judge(sys.argv[2], 10, 0)
        check("virtual datasets", compared and not wrong, wrong)
    print(f"h5py {h5py.__version__}, HDF5 {h5py.version.hdf5_version}: {counted} checks, {failures} failures")
    sys.exit(failures != 0)


if __name__ == "__main__":
    main()
