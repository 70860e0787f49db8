"""Real Paddle 2.6.2 judges programs that Weighbridge ran.

    python judges/paddle_exec.py target/debug/weighbridge

Paddle builds programs that save, load and convert, and runs each with its own executor in one folder;
`weighbridge run` runs the same serialised program in another one. The files of both folders must be the
same, byte for byte, and what was fetched must be too. The files that they load were saved by Paddle.
Exit code 0: no difference.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import paddle
from paddle.framework import core

COMMAND = os.path.abspath(sys.argv[1])
TYPES = core.VarDesc.VarType
DTYPES = {
    "bool": (TYPES.BOOL, "?"),
    "u8": (TYPES.UINT8, "u1"),
    "i8": (TYPES.INT8, "i1"),
    "i16": (TYPES.INT16, "<i2"),
    "i32": (TYPES.INT32, "<i4"),
    "i64": (TYPES.INT64, "<i8"),
    "f16": (TYPES.FP16, "<f2"),
    "bf16": (TYPES.BF16, "<u2"),
    "f32": (TYPES.FP32, "<f4"),
    "f64": (TYPES.FP64, "<f8"),
}
passed = failed = 0


def check(what, condition, note=""):
    global passed, failed
    if condition:
        passed += 1
    else:
        failed += 1
        print("FAILED", what, note)


class Builder:
    """A program that is made operator by operator."""

    def __init__(self):
        self.program = paddle.static.Program()
        self.block = self.program.global_block()

    def var(self, name, dtype="f32", kind=TYPES.LOD_TENSOR):
        if kind == TYPES.RAW:
            self.block.create_var(name=name, type=kind, persistable=True)
        else:
            self.block.create_var(name=name, shape=[1], dtype=DTYPES[dtype][0], type=kind, persistable=True)
        return name

    def op(self, kind, inputs, outputs, **attributes):
        slots = [{slot: [names] if isinstance(names, str) else names for slot, names in side.items()} for side in (inputs, outputs)]
        for name in [name for names in slots[1].values() for name in names]:
            if not self.block.has_var(name):
                self.var(name, kind=TYPES.RAW if "Y" in slots[1] else TYPES.LOD_TENSOR)
        self.block.append_op(type=kind, inputs=slots[0], outputs=slots[1], attrs=attributes)

    def fill(self, name, dtype, shape, value, text=""):
        self.var(name, dtype)
        self.op("fill_constant", {}, {"Out": name}, shape=shape, dtype=int(DTYPES[dtype][0]), value=value, str_value=text)

    def save(self, name, path, **attributes):
        self.op("save", {"X": name}, {}, file_path=path, **attributes)

    def save_combine(self, names, path, **attributes):
        self.op("save_combine", {"X": names}, {"Y": "raw"}, file_path=path, **attributes)

    def load(self, path, name, **attributes):
        self.op("load", {}, {"Out": name}, file_path=path, **attributes)

    def load_combine(self, path, names, **attributes):
        self.op("load_combine", {}, {"Out": names}, file_path=path, **attributes)

    def cast(self, source, name, from_type, to_type):
        self.var(name, to_type)
        self.op("cast", {"X": source}, {"Out": name}, in_dtype=int(DTYPES[from_type][0]), out_dtype=int(DTYPES[to_type][0]))


def files(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def paddle_runs(program, folder):
    """Paddle runs it in that folder; an error is returned."""
    old = os.getcwd()
    os.chdir(folder)
    try:
        with paddle.static.scope_guard(paddle.static.Scope()):
            paddle.static.Executor(paddle.CPUPlace()).run(program)
    except Exception as error:
        return error
    finally:
        os.chdir(old)


def we_run(program, folder, *words):
    path = folder.parent / "program.pdmodel"
    path.write_bytes(program.desc.serialize_to_string())
    return subprocess.run([COMMAND, "run", path, "--folder", folder, *words], capture_output=True, text=True)


def same(what, build, given=None):
    """Both run what `build` builds, in folders with the files `given`; the files must be the same."""
    builder = Builder()
    build(builder)
    with tempfile.TemporaryDirectory() as name:
        theirs, ours = Path(name, "theirs"), Path(name, "ours")
        for folder in (theirs, ours):
            folder.mkdir()
            for path, content in (given or {}).items():
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_bytes(content)
        error = paddle_runs(builder.program, theirs)
        result = we_run(builder.program, ours)
        check(f"{what}: both run, or neither", (error is None) == (result.returncode == 0), f"{error} | {result.stderr}")
        one, other = files(theirs), files(ours)
        check(f"{what}: the same files", one == other, f"{sorted(one)} {sorted(other)} " + str([k for k in one if one[k] != other.get(k)]))
        return other


def stream(array, dtype, lod=()):
    """The bytes of a tensor's file, from Paddle itself."""
    with tempfile.TemporaryDirectory() as folder, paddle.static.scope_guard(paddle.static.Scope()):
        tensor = core.LoDTensor()
        tensor.set(array, paddle.CPUPlace())
        if lod:
            tensor.set_lod([list(level) for level in lod])
        path = os.path.join(folder, "t")
        core.save_lod_tensor(tensor, path)
        return Path(path).read_bytes()


def judge_fills():
    def build(b):
        for dtype in DTYPES:
            b.fill(f"{dtype}/one", dtype, [2, 3], 1.5)
            b.fill(f"{dtype}/text", dtype, [], 0.0, "0.1")
            b.fill(f"{dtype}/none", dtype, [0, 4], 7.0)
        names = sorted(f"{dtype}/{which}" for dtype in DTYPES for which in ("one", "text", "none"))
        b.save_combine(names, "all/in/one.pdiparams")
        # This Paddle cannot save i8 as f16.
        b.save_combine([name for name in names if not name.startswith("i8")], "half", save_as_fp16=True)
        for name in names:
            if not name.startswith("bool"):
                b.save(name, f"./apart//{name}")

    saved = same("fill_constant, save, save_combine", build)
    check("there are files", len(saved) == 2 + 3 * 9)


def judge_numbers():
    random = np.random.RandomState(20240229)
    given, lod = {}, [[0, 2, 5, 40]]
    for dtype in DTYPES:
        wide = random.randn(40, 3) * 40
        if dtype == "bf16":
            array = (wide.astype("<f4").view("<u4") >> 16).astype("<u2")
        elif dtype in ("u8", "bool"):
            array = np.abs(wide).astype(DTYPES[dtype][1])
        else:
            array = wide.clip(-120, 120).astype(DTYPES[dtype][1])
        given[f"in/{dtype}"] = stream(array, dtype, lod)

    def cast(b):
        for source in DTYPES:
            # An integer of 8 bits without a sign has no room for the negative ones of others.
            for target in [t for t in DTYPES if t != "u8" or source in ("u8", "bool", "i8", "i16", "i32", "i64")]:
                name = f"{source}-{target}"
                if not b.block.has_var(source):
                    b.var(source, source)
                    b.load_combine(f"in/{source}", [source])
                b.cast(source, name, source, target)
                b.save_combine([name], name)

    same("cast", cast, given)

    def scale(b):
        for dtype in DTYPES:
            b.var(dtype, dtype)
            b.load_combine(f"in/{dtype}", [dtype])
            for k, (factor, bias, after) in enumerate([(2.0, 0.0, True), (0.3, 0.7, True), (0.3, 0.7, False), (1.7, 2.9, False)]):
                name = b.var(f"{dtype}-{k}", dtype)
                b.op("scale", {"X": dtype}, {"Out": name}, scale=factor, bias=bias, bias_after_scale=after)
                b.op("assign", {"X": name}, {"Out": b.var(name + "'", dtype)})
                b.save_combine([name + "'"], name)

    same("scale, assign", scale, given)

    def part(b):
        b.load("w", "w", seek=7, shape=[2, 5])
        b.save("w", "part")
        b.load("w", "w", load_as_fp16=True)
        b.save("w", "half")

    same("seek and load_as_fp16", part, {"w": stream(random.randn(9, 4).astype("<f4"), "f32")})


def judge_files():
    w = stream(np.arange(6, dtype="<f4"), "f32")

    def again(b):
        b.load("w", "w")
        b.save("w", "w", overwrite=False)

    same("overwrite is false", again, {"w": w})

    def over(b):
        b.load("w", "w")
        b.op("scale", {"X": "w"}, {"Out": "w"}, scale=3.0)
        b.save("w", "w")
        b.save("w", "new", overwrite=False)

    same("a file is replaced by what was made of it", over, {"w": w})
    same("a file that is not there", lambda b: b.load("w", "w"))
    same("two tensors, one is wanted", lambda b: b.load_combine("w", ["w"]), {"w": w + w})
    same("bytes behind a tensor", lambda b: (b.load("w", "w"), b.save("w", "v")), {"w": w + b"more"})

    def rows(b):
        b.var("s", kind=TYPES.SELECTED_ROWS)
        b.load("rows", "s")
        b.op("scale", {"X": "s"}, {"Out": b.var("t", kind=TYPES.SELECTED_ROWS)}, scale=2.0)
        b.save("t", "twice")
        b.save("s", "again")

    numbers = np.array([3, 0, 4, 4, 20], "<i8").tobytes()
    rows_file = bytes(4) + numbers + bytes(4) + b"\x06\0\0\0" + bytes([8, 5, 16, 3, 16, 2]) + w[-24:]
    same("selected rows", rows, {"rows": rows_file})


def judge_feeds():
    """Feeds and fetches, against Paddle's own executor."""
    program = paddle.static.Program()
    with tempfile.TemporaryDirectory() as name, paddle.static.program_guard(program), paddle.static.scope_guard(paddle.static.Scope()):
        x = paddle.static.data("x", [None, 3], "float32")
        y = paddle.static.data("y", [2], "int64")
        outs = [paddle.scale(x, 0.3, 0.7), paddle.cast(y, "float32"), paddle.scale(y, 3.0)]
        exe = paddle.static.Executor(paddle.CPUPlace())
        given = {"x": np.random.RandomState(1).randn(4, 3).astype("float32"), "y": np.array([5, -(2**40)])}
        theirs = exe.run(program, feed=given, fetch_list=outs)
        whole = paddle.static.normalize_program(program, [x, y], outs)
        for key, array in given.items():
            np.save(Path(name, key + ".npy"), array)
        folder = Path(name, "folder")
        folder.mkdir()
        np.savez(Path(name, "y.npz"), other=given["x"], y=given["y"])
        out = Path(name, "out.npz")
        words = ["--feed", f"x={name}/x.npy", "--feed", f"y={name}/y.npz:y", "--fetch", out]
        result = we_run(whole, folder, *words)
        check("feeds and fetches run", result.returncode == 0, result.stderr)
        loaded = np.load(out) if out.exists() else {}
        ours = [loaded[key] for key in loaded if key != "weighbridge.index"]
        equal = [a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes() for a, b in zip(ours, theirs)]
        check("fetched values, in order", len(ours) == 3 and all(equal), f"{ours} {theirs}")


def judge_refused():
    builder = Builder()
    builder.fill("w", "f32", [2], 1.0)
    builder.save("w", "first")
    builder.op("relu", {"X": "w"}, {"Out": "r"})
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "folder")
        folder.mkdir()
        result = we_run(builder.program, folder)
        check("an unknown operator is refused", result.returncode == 2 and "relu" in result.stderr, result.stderr)
        for path in ("../out", f"{name}/out", "/etc/hostname"):
            builder = Builder()
            builder.fill("w", "f32", [2], 1.0)
            builder.save("w", path)
            result = we_run(builder.program, folder, "--json")
            check(f"{path} is refused", result.returncode == 2 and "unsafe-name" in result.stdout, result.stdout)
        check("nothing was written", files(Path(name)).keys() == {"program.pdmodel"}, str(files(Path(name)).keys()))


def main():
    assert paddle.__version__ == "2.6.2", "the judge is 2.6.2"
    paddle.enable_static()
    judge_fills()
    judge_numbers()
    judge_files()
    judge_feeds()
    judge_refused()
    print(f"{passed} passed, {failed} failed")
    return failed > 0


sys.exit(main())
