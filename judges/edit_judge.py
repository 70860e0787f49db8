"""numpy and safetensors judge what edit, shard and merge write: the same values under the right names, casts and the
report on them, edits in place and their undo, and folders of shards as transformers writes and reads them.

usage: edit_judge.py PATH-OF-THE-COMMAND
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

COMMAND = sys.argv[1]
passed = failed = 0


def check(what, condition):
    global passed, failed
    if condition:
        passed += 1
    else:
        failed += 1
        print("FAILED", what)


def run(*words):
    done = subprocess.run([COMMAND, *map(str, words), "--json"], capture_output=True, text=True)
    return done.returncode, json.loads(done.stdout) if done.stdout else None


def done(what, *words):
    code, report = run(*words)
    check(f"{what}: ends with 0, not {report if code else code}", code == 0)
    return report


def same(what, found, expected):
    check(f"{what}: names {sorted(found)[:6]}", sorted(found) == sorted(expected))
    for name in found.keys() & expected.keys():
        a, b = found[name], np.asarray(expected[name], order="C")
        check(f"{what}: {name}", a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes())


def raw(path):
    """The header, and the bytes of each tensor: for types that numpy does not have."""
    data = Path(path).read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    header.pop("__metadata__", None)
    return {name: (row["dtype"], data[end + row["data_offsets"][0]:end + row["data_offsets"][1]]) for name, row in header.items()}


def bf16(x):
    """To nearest even, by the bits of an f32; wide values of an f64 are first cut to odd."""
    if x.dtype == np.float64:
        near = x.astype("f4")
        back = near.astype("f8")
        bits = near.view("u4").astype("i8")
        bits -= (np.abs(back) > np.abs(x)) & np.isfinite(x)
        bits |= (back != x) & ~np.isnan(x)
        bits = bits.astype("u4")
    else:
        bits = x.astype("f4").view("u4")
    rounded = ((bits.astype("u8") + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("u2")
    return np.where(np.isnan(x), (bits >> 16 | 0x40).astype("u2"), rounded)


def judge_cast(what, report, before, after):
    """The numbers of the report, by their definitions."""
    x, y = before.astype("f8").ravel(), after.astype("f8").ravel()
    both = np.isnan(x) & np.isnan(y)
    changed = ~((x == y) | both)
    over = changed & np.isinf(y)
    fine = changed & np.isfinite(y)
    apart = np.abs(x[fine] - y[fine])
    share = apart / np.abs(x[fine])
    expected = {
        "elements": x.size,
        "changed": int(changed.sum()),
        "overflowed": int(over.sum()),
        "underflowed": int((fine & (y == 0)).sum()),
        "worst_error": float(apart.max(initial=0)),
        "worst_relative": float(share.max(initial=0)),
    }
    check(f"{what}: {report} is {expected}", report == expected)


def casts(folder, rng):
    values = (rng.standard_normal(100_000) * 10.0 ** rng.integers(-12, 8, 100_000)).astype("f8")
    values[:6] = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-300]
    # What overflows only a little, ties, and the smallest that f16 has.
    values[6:14] = [65519.999, 65520.0, 65504.0, 1 + 2**-11, 1 + 3 * 2**-11, 2**-24, 2**-25, 2**-25 * 1.001]
    with np.errstate(over="ignore"):
        tensors = {"wide": values, "single": values.astype("f4").reshape(1000, 100), "ids": np.arange(7)}
        save_file(tensors, folder / "cast.safetensors")
        for to in ["f16", "f32", "f64"]:
            kind = f"f{int(to[1:]) // 8}"
            target = folder / f"cast-{to}.safetensors"
            planned = done(to, "edit", folder / "cast.safetensors", target, "--cast", to, "--plan")
            check(f"{to}: a plan writes nothing", not target.exists() and not planned["done"])
            report = done(to, "edit", folder / "cast.safetensors", target, "--cast", to)
            check(f"{to}: the plan counts what the run counts", planned["casts"] == report["casts"])
            found = load_file(target)
            expected = {name: x.astype(kind) if x.dtype.kind == "f" else x for name, x in tensors.items()}
            for name in expected:
                nan = np.isnan(expected[name]) if expected[name].dtype.kind == "f" else np.zeros(expected[name].shape, bool)
                check(f"{to}: {name}", found[name].dtype == expected[name].dtype and found[name][~nan].tobytes() == expected[name][~nan].tobytes())
            for name, cast in report["casts"].items():
                judge_cast(f"{to} {name}", cast, tensors[name], expected[name])
        target = folder / "cast-bf16.safetensors"
        report = done("bf16", "edit", folder / "cast.safetensors", target, "--cast", "*=bf16")
        found = raw(target)
        for name in ["wide", "single"]:
            bits = np.frombuffer(found[name][1], "u2").reshape(tensors[name].shape)
            good = ~np.isnan(tensors[name])
            check(f"bf16: {name}", found[name][0] == "BF16" and (bits == bf16(tensors[name]))[good].all())
            judge_cast(f"bf16 {name}", report["casts"][name], tensors[name], (bits.astype("u4") << 16).view("f4"))
    target = folder / "cast-some.safetensors"
    done("some", "edit", folder / "cast.safetensors", target, "--cast", "single=f16")
    check("some", [load_file(target)[n].dtype for n in ("single", "wide", "ids")] == ["f2", "f8", "i8"])


def model(rng):
    shapes = {"module.linear_0.w_0": (4, 7), "module.linear_0.b_0": (7,), "module.linear_12.w_0": (7, 3), "module.conv.w": (2, 3, 4, 5), "module.step": ()}
    return {name: rng.standard_normal(shape).astype("f4") for name, shape in shapes.items()}


RULES = r"""
version = 1
[[rule]]
strip-prefix = "module"
[[rule]]
rename-regex = ['linear_(\d+)\.w_0=fc{1}.weight', 'linear_(?<n>\d+)\.b_0=fc{n}.bias']
[[rule]]
transpose = ["fc*.weight", "conv.w=2,3,1,0"]
[[rule]]
set-metadata = { from = "made by", to = "a=b" }
"""


def edits(folder, rng):
    tensors = model(rng)
    source, target = folder / "model.safetensors", folder / "edited.safetensors"
    save_file(tensors, source, metadata={"format": "pt"})
    (folder / "rules.toml").write_text(RULES)
    expected = {
        "fc0.weight": tensors["module.linear_0.w_0"].T,
        "fc0.bias": tensors["module.linear_0.b_0"],
        "fc12.weight": tensors["module.linear_12.w_0"].T,
        "conv.w": tensors["module.conv.w"].transpose(2, 3, 1, 0),
        "step": tensors["module.step"],
    }
    for words in [("edit", source, target), ("convert", source, folder / "converted.safetensors")]:
        done(words[0], *words, "--rules", folder / "rules.toml")
        same(words[0], load_file(words[2]), expected)
        with safe_open(words[2], "np") as opened:
            check(f"{words[0]}: metadata", opened.metadata() == {"format": "pt", "made by": "a=b"})
    done("npz", "edit", target, folder / "edited.npz", "--drop", "conv*")
    with np.load(folder / "edited.npz") as arrays:
        names = [n for n in expected if not n.startswith("conv")]
        check("npz", all(arrays[name].tobytes() == np.ascontiguousarray(expected[name]).tobytes() for name in names))
        check("npz: names", set(arrays.files) - {"weighbridge.metadata"} == set(names))
    for words in [("--rename", "linear=x"), ("--rename-regex", "w_0=x"), ("--rename-glob", "linear*=x")]:
        check(f"nothing in the middle of a name: {words}", run("edit", source, folder / "no", *words)[0] == 2)


def in_place(folder, rng):
    path = folder / "place.safetensors"
    tensors = model(rng)
    save_file(tensors, path, metadata={"format": "pt"})
    before = path.read_bytes()
    report = done("in place", "edit", path, "--in-place", "--strip-prefix", "module", "--rename-regex", r"linear_(\d+)\.(\w)_0={1}.{2}")
    names = lambda name: re.sub(r"linear_(\d+)\.(\w)_0", r"\1.\2", name.removeprefix("module."))
    same("in place", load_file(path), {names(name): x for name, x in tensors.items()})
    after = path.read_bytes()
    data = 8 + int.from_bytes(before[:8], "little")
    check("in place: the data stay", len(after) == len(before) and after[data:] == before[data:] and report["bytes"] < data)
    check("in place: twice is refused", run("edit", path, "--in-place", "--prefix", "x")[0] == 2)
    done("undo", "edit", path, "--undo")
    check("undo: byte for byte", path.read_bytes() == before and not Path(f"{path}.weighbridge-undo").exists())
    # There and back again.
    for rename in ["module.conv=module.c0nv", "module.c0nv=module.conv"]:
        done("there and back", "edit", path, "--in-place", "--rename", rename)
        done("there and back", "edit", path, "--forget-undo")
    check("there and back: the same bytes", path.read_bytes() == before)
    # A header that must grow, with room and without.
    grow = ["--in-place", "--prefix", "a.long.name.that.needs.room"]
    code, report = run("edit", path, *grow)
    check("no room", code == 2 and report["error"]["code"] == "no-room" and path.read_bytes() == before)
    done("rewrite", "edit", path, "--in-place=rewrite", "--set", "header_padding=1000", "--prefix", "x")
    same("rewrite", load_file(path), {f"x.{name}": x for name, x in tensors.items()})
    done("room", "edit", path, *grow)
    same("room", load_file(path), {f"a.long.name.that.needs.room.x.{name}": x for name, x in tensors.items()})
    # npy: a transpose is a word in the header.
    a = rng.standard_normal((30, 40)).astype("f4")
    np.save(folder / "a.npy", a)
    done("npy", "edit", folder / "a.npy", "--in-place", "--transpose", "value")
    found = np.load(folder / "a.npy")
    check("npy", (found == a.T).all() and found.shape == (40, 30))


def in_order(path):
    """The names in a file, as its tensors stand."""
    raw = path.read_bytes()
    header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    header.pop("__metadata__", None)
    return sorted(header, key=lambda name: header[name]["data_offsets"])


def shards(folder, rng):
    tensors = {f"layer.{i}.w": rng.standard_normal((50, 20 + i)).astype("f4") for i in range(12)}
    tensors["big"] = rng.standard_normal((100, 100)).astype("f4")
    tensors["small"] = np.arange(3)
    source = folder / "whole.safetensors"
    save_file(tensors, source, metadata={"format": "pt"})
    total = sum(x.nbytes for x in tensors.values())
    for size, most in [("10KB", 10_000), ("16KiB", 16_384), ("5GB", 5 * 10**9)]:
        target = folder / f"shards-{size}"
        report = done(size, "shard", source, target, "--max-shard-size", size)
        again = folder / f"again-{size}"
        done(size, "shard", source, again, "--max-shard-size", size)
        files = sorted(p.name for p in target.iterdir())
        check(f"{size}: the same bytes", files == sorted(p.name for p in again.iterdir()) and all((target / n).read_bytes() == (again / n).read_bytes() for n in files))
        index = json.loads((target / "model.safetensors.index.json").read_text())
        check(f"{size}: total_size", index["metadata"]["total_size"] == total)
        names = [n for n in files if n.endswith(".safetensors")]
        wanted = [f"model-{i + 1:05}-of-{len(names):05}.safetensors" for i in range(len(names))]
        check(f"{size}: files {names}", names == wanted and set(index["weight_map"].values()) == set(names))
        found, held = {}, {}
        for name in names:
            own = load_file(target / name)
            held[name] = sum(x.nbytes for x in own.values())
            check(f"{size}: {name} is as large as it may be", held[name] <= most or len(own) == 1)
            check(f"{size}: the map of {name}", all(index["weight_map"][key] == name for key in own))
            with safe_open(target / name, "np") as opened:
                check(f"{size}: {name} says its format", opened.metadata() == {"format": "pt"})
            found |= own
        same(size, found, tensors)
        check(f"{size}: the order", in_order(source) == [key for name in names for key in in_order(target / name)])
        check(f"{size}: said", {s["name"] for s in report["shards"] if s["oversized"]} == {n for n in names if held[n] > most})
        joined = folder / f"joined-{size}.safetensors"
        done(size, "merge", target, "-o", joined)
        same(f"{size} merged", load_file(joined), tensors)
        with safe_open(joined, "np") as opened:
            check(f"{size} merged: metadata", opened.metadata() == {"format": "pt"})


def merges(folder, rng):
    one = {"w": rng.standard_normal(4).astype("f4"), "a": np.arange(2)}
    two = {"w": rng.standard_normal(5).astype("f4"), "b": np.arange(3)}
    save_file(one, folder / "one.safetensors", metadata={"step": "1", "format": "pt"})
    np.savez(folder / "two.npz", **two)
    target = folder / "merged.safetensors"
    words = ["merge", folder / "one.safetensors", folder / "two.npz", "-o", target, "--force"]
    code, report = run(*words)
    text = json.dumps(report)
    check("a collision names both files", code == 2 and "one.safetensors" in text and "two.npz" in text and not target.exists())
    done("first", *words, "--prefer", "first")
    same("first", load_file(target), two | one)
    done("last", *words, "--prefer", "last")
    same("last", load_file(target), one | two)
    done("each", *words, "--prefix-each")
    same("each", load_file(target), {f"one.{n}": x for n, x in one.items()} | {f"two.{n}": x for n, x in two.items()})


def main():
    for part in [casts, edits, in_place, shards, merges]:
        with tempfile.TemporaryDirectory() as name:
            part(Path(name), np.random.default_rng(11))
    print(f"{passed} passed, {failed} failed")
    return failed > 0


sys.exit(main())
