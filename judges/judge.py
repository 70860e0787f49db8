"""Judges: numpy and safetensors read what Weighbridge wrote and compare it with the golden JSON, bit for bit.

usage: judge.py PATH-OF-THE-COMMAND

The golden JSON beside each file in testdata/primitiv/good was filled by the original library through its own API; nothing
of Weighbridge took part in it. Each file is converted to safetensors, npz and (one tensor) npy, read by the library that
owns the format, and compared; then it is converted back and must be the same file.
"""

import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import safetensors
import safetensors.numpy

ROOT = Path(__file__).resolve().parent.parent
GOOD = ROOT / "testdata" / "primitiv" / "good"
INDEX = "weighbridge.index"
passed = failed = 0


def run(*words):
    return subprocess.run([COMMAND, *map(str, words)], check=True, capture_output=True, text=True).stdout


def check(what, condition):
    global passed, failed
    if condition:
        passed += 1
    else:
        failed += 1
        print("FAILED", what)


def golden(tensor):
    """The array that a golden JSON describes: column-major, batch last."""
    words = tensor["bits"].split()
    bits = np.array([int(word, 16) for word in words], dtype=np.uint32)
    dims = list(tensor["dims"]) + ([tensor["batch"]] if tensor["batch"] > 1 else [])
    return bits.reshape(dims, order="F")


def part(text, hexed):
    return text.encode() if text is not None else bytes.fromhex(hexed)


def parts(entry):
    hexed = entry.get("key_hex") or [None] * len(entry["key"])
    return tuple(part(text, h) for text, h in zip(entry["key"], hexed))


def expected(truth):
    """{(path, slot): array} for everything in a golden JSON."""
    tensors = {}

    def parameter(path, content):
        tensors[path, None] = golden(content["value"])
        for stat in content["stats"]:
            name = stat.get("name", stat.get("key"))
            hexed = stat.get("name_hex", stat.get("key_hex"))
            tensors[path, part(name, hexed)] = golden(stat.get("tensor", stat.get("value", stat)))

    kind = truth["data_type"]
    if kind == "Model":
        for entry in truth["parameters"]:
            parameter(parts(entry), entry["parameter"])
    elif kind == "Parameter":
        parameter((b"value",), truth.get("parameter", truth))
    elif kind == "Tensor":
        tensors[(b"value",), None] = golden(truth.get("tensor", truth))
    return tensors


def name_bytes(json_name):
    return bytes.fromhex(json_name["hex"]) if isinstance(json_name, dict) else json_name.encode()


def carried(index, arrays):
    """{(path, slot): array} from the arrays of a bridge file and the index that it carries."""
    rows = json.loads(index)["tensors"]
    check("the index names every array", sorted(row["name"] for row in rows) == sorted(arrays))
    tensors = {}
    for row in rows:
        path = row.get("path", row["name"].split("."))
        slot = name_bytes(row["slot"]) if "slot" in row else None
        tensors[tuple(map(name_bytes, path)), slot] = arrays[row["name"]]
    return tensors


def compare(what, got, want):
    check(f"{what}: names", sorted(map(repr, got)) == sorted(map(repr, want)))
    for key, array in want.items():
        other = got.get(key)
        same = other is not None and other.dtype == np.float32 and other.shape == array.shape
        check(f"{what}: {key}", same and np.array_equal(other.view(np.uint32) if other.ndim else
                                                        other.reshape(1).view(np.uint32).reshape(()), array))


def judge(path, folder):
    truth = json.loads(path.with_name(path.name + ".json").read_text())
    want = expected(truth)

    target = folder / "out.safetensors"
    run("convert", path, target, "--force")
    with safetensors.safe_open(target, framework="numpy") as opened:
        metadata = opened.metadata()
        arrays = {name: opened.get_tensor(name) for name in opened.keys()}
    compare(f"{path.name} as safetensors", carried(metadata[INDEX], arrays), want)
    header = int.from_bytes(target.read_bytes()[:8], "little")
    check(f"{path.name}: data begins at a multiple of 64", (8 + header) % 64 == 0)
    back = folder / ("back" + path.suffix)
    run("convert", target, back, "--force")
    check(f"{path.name}: back from safetensors", back.read_bytes() == path.read_bytes())

    target = folder / "out.npz"
    run("convert", path, target, "--force")
    with np.load(target, allow_pickle=False) as opened:
        arrays = {name: opened[name] for name in opened.files}
    metadata = json.loads(arrays.pop("weighbridge.metadata").tobytes())
    compare(f"{path.name} as npz", carried(metadata[INDEX], arrays), want)
    with zipfile.ZipFile(target) as archive:
        check(f"{path.name}: zip checksums", archive.testzip() is None)
        for member in archive.infolist():
            with archive.open(member) as opened:
                np.lib.format.read_magic(opened)
                np.lib.format.read_array_header_1_0(opened)
                header = opened.tell()
            raw = target.read_bytes()[member.header_offset:member.header_offset + 30]
            start = member.header_offset + 30 + int.from_bytes(raw[26:28], "little") + int.from_bytes(raw[28:30], "little")
            check(f"{path.name}: {member.filename} aligned", (start + header) % 64 == 0)
    run("convert", target, back, "--force")
    check(f"{path.name}: back from npz", back.read_bytes() == path.read_bytes())

    if truth["data_type"] == "Model" and len(want) > 1:
        judge_folders(path, folder, want, back)

    if truth["data_type"] == "Tensor":
        target = folder / "out.npy"
        run("convert", path, target, "--force")
        compare(f"{path.name} as npy", {((b"value",), None): np.load(target, allow_pickle=False)}, want)


def load_shards(folder):
    """The arrays of a folder as Hugging Face's loaders get them: by the list, shard by shard; and the list."""
    text = (folder / "model.safetensors.index.json").read_text(encoding="ascii")
    index = json.loads(text)
    check("the list is written as json.dumps writes it", text == json.dumps(index, indent=2, sort_keys=True) + "\n")
    arrays = {}
    for name in sorted(set(index["weight_map"].values())):
        with safetensors.safe_open(folder / name, framework="numpy") as opened:
            metadata = opened.metadata()
            check(f"{name}: no metadata but a format", metadata is None or list(metadata) == ["format"])
            here = {key: opened.get_tensor(key) for key in opened.keys()}
        check(f"{name}: what the list says", sorted(here) == sorted(k for k, v in index["weight_map"].items() if v == name))
        arrays.update(here)
    check("total_size", index["metadata"]["total_size"] == sum(array.nbytes for array in arrays.values()))
    return arrays, index


def judge_folders(path, folder, want, back):
    """A model as shards and as a folder of arrays."""
    most = max(array.nbytes for array in want.values())
    target = folder / "shards"
    # Another number of shards would leave some behind, which is refused.
    shutil.rmtree(target, ignore_errors=True)
    run("convert", path, target, "--to", "safetensors", "--set", f"shard={most or 1}", "--force")
    arrays, index = load_shards(target)
    compare(f"{path.name} as shards", carried(index["metadata"][INDEX], arrays), want)
    files = set(index["weight_map"].values())
    check(f"{path.name}: nothing else in the folder", len(list(target.iterdir())) == len(files) + 1)
    for name in files:
        size = sum(arrays[key].nbytes for key, file in index["weight_map"].items() if file == name)
        check(f"{path.name}: {name} is not too large", size <= (most or 1))
    report = json.loads(run("verify", target, "--json"))
    check(f"{path.name}: every shard and their list is accounted for", len(report["files"]) == len(files) + 1)
    for source in [target, target / "model.safetensors.index.json"]:
        run("convert", source, back, "--force")
        check(f"{path.name}: back from {source.name}", back.read_bytes() == path.read_bytes())

    target = folder / "arrays"
    shutil.rmtree(target, ignore_errors=True)
    run("convert", path, target, "--to", "npy", "--force")
    arrays = {file.name[:-len(".npy")]: np.load(file, mmap_mode="r") for file in target.glob("*.npy")}
    check(f"{path.name}: mapped", all(isinstance(array, np.memmap) for array in arrays.values()))
    compare(f"{path.name} as arrays", carried((target / f"{INDEX}.json").read_text(), arrays), want)
    run("convert", target, back, "--force")
    check(f"{path.name}: back from arrays", back.read_bytes() == path.read_bytes())


def judge_show(path):
    """`show` prints what numpy prints."""
    for tensor in json.loads(run("ls", path, "--json"))["tensors"]:
        shown = run("show", path, tensor["name"]).rsplit("\n", 2)[0]
        with safetensors.safe_open(path, framework="numpy") as opened:
            array = opened.get_tensor(tensor["name"])
        check(f"show {tensor['name']}", shown == str(array))


def judge_foreign(folder):
    """Files that numpy and safetensors wrote come through unchanged, in every order and type."""
    rng = np.random.default_rng(7)
    arrays = {}
    for dtype in "?bBhHiIlLqQefdFD":
        for shape in [(), (0,), (5,), (3, 4), (2, 3, 4)]:
            raw = rng.integers(0, 256, int(np.prod(shape)) * np.dtype(dtype).itemsize, dtype=np.uint8)
            array = np.frombuffer(raw.tobytes(), dtype=dtype).reshape(shape)
            if dtype == "?":
                array = (raw & 1).astype(bool).reshape(shape)
            arrays[f"net.{np.dtype(dtype).name}.{len(shape)}_{sum(shape)}"] = array
    arrays.update({f"{name}.f": np.asfortranarray(array) for name, array in arrays.items()})
    arrays.update({f"{name}.big": array.astype(array.dtype.newbyteorder(">")) for name, array in list(arrays.items())
                   if array.dtype.itemsize > 1 and not name.endswith(".f")})

    def same(what, other, array):
        check(what, other.shape == array.shape and other.dtype == array.dtype.newbyteorder("<")
              and other.tobytes() == array.astype(array.dtype.newbyteorder("<")).tobytes())

    for save, name in [(np.savez, "plain.npz"), (np.savez_compressed, "packed.npz")]:
        save(folder / name, **arrays)
        run("convert", folder / name, folder / "copy.npz", "--force", "--deny-loss")
        with np.load(folder / "copy.npz") as opened:
            check(f"{name}: names", sorted(opened.files) == sorted(arrays))
            for key, array in arrays.items():
                same(f"{name}: {key}", opened[key], array)
        run("convert", folder / name, folder / "copy.safetensors", "--force", "--drop", "*complex128*", "--deny-loss")
        loaded = safetensors.numpy.load_file(folder / "copy.safetensors")
        for key, array in arrays.items():
            if "complex128" not in key:
                same(f"{name} as safetensors: {key}", loaded[key], array)
    one = {key: array for key, array in arrays.items() if "complex128" not in key and not key.endswith(".big")}
    safetensors.numpy.save_file({k: np.asarray(v, order="C") for k, v in one.items()}, folder / "one.safetensors", {"format": "np"})
    run("convert", folder / "one.safetensors", folder / "cut", "--to", "safetensors", "--set", "shard=64B", "--deny-loss")
    loaded, _ = load_shards(folder / "cut")
    check("shards: names", sorted(loaded) == sorted(one))
    for key, array in one.items():
        same(f"shards: {key}", loaded[key], array)
    run("convert", folder / "plain.npz", folder / "all", "--to", "npy", "--deny-loss")
    check("a folder of arrays has nothing else", sorted(f.stem for f in (folder / "all").iterdir()) == sorted(arrays))
    for key, array in arrays.items():
        loaded = np.load(folder / "all" / f"{key}.npy", mmap_mode="r" if array.size else None)
        same(f"arrays: {key}", loaded, array)
        check(f"arrays: {key}: order", loaded.flags.f_contiguous == array.flags.f_contiguous)
    for name, array in arrays.items():
        np.save(folder / "one.npy", array)
        run("convert", folder / "one.npy", folder / "two.npy", "--force")
        same(f"npy: {name}", np.load(folder / "two.npy"), array)


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = sorted(p for p in GOOD.rglob("*") if p.suffix in (".model", ".param", ".tensor", ".optimizer", ".shape"))
        check("there are golden files", len(files) > 100)
        for path in files:
            judge(path, folder)
        mlp = folder / "mlp.safetensors"
        run("convert", GOOD / "trained" / "trained_mlp_a.model", mlp)
        judge_show(mlp)
        judge_foreign(folder)
    print(f"{passed} passed, {failed} failed")
    return failed > 0


COMMAND = sys.argv[1]
sys.exit(main())
