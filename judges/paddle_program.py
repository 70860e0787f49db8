"""Real Paddle judges programs that Weighbridge wrote.

    mkdir OUT && cargo run -p weighbridge --example paddle_programs -- testdata/paddle/good OUT
    python judges/paddle_program.py GOLDEN OUT

GOLDEN is a folder of golden models with parameters (p262/cnn_static_infer/model.pdiparams, ...), OUT what
the example wrote. Runs with Paddle 2.6 and 3.x. Exit code 0: Paddle agrees with everything.
"""

import os
import shutil
import sys
import tempfile

os.environ.setdefault("FLAGS_enable_pir_api", "0")

import numpy as np
import paddle
from google.protobuf import text_format
from paddle.base.proto import framework_pb2 as schema

paddle.enable_static()
GOLDEN, OUT = sys.argv[1:3]
failures = 0


def report(what, good, note=""):
    global failures
    failures += not good
    print("ok  " if good else "FAIL", what, note)


def read(path):
    with open(path, "rb") as file:
        return file.read()


def message(path):
    program = schema.ProgramDesc()
    program.ParseFromString(read(path))
    return program


def golden(folder):
    base = os.path.join(GOLDEN, "p262", folder)
    for name in ("model.pdmodel", "train.pdmodel", "main.pdmodel"):
        if os.path.exists(os.path.join(base, name)):
            return os.path.join(base, name)
    raise FileNotFoundError(base)


def infer(path, folder, names=None):
    """The outputs of a program with the golden parameters and inputs of that folder."""
    base = os.path.join(GOLDEN, "p262", folder)
    program = paddle.static.Program.parse_from_string(read(path))
    exe = paddle.static.Executor(paddle.CPUPlace())
    scope = paddle.static.Scope()
    with paddle.static.scope_guard(scope):
        original = paddle.static.Program.parse_from_string(read(golden(folder)))
        keep = [v for v in original.list_vars() if v.persistable and v.name not in ("feed", "fetch")]
        paddle.static.io.load_vars(exe, base, original, vars=keep, filename="model.pdiparams")
        for old in keep:
            new = names(old.name) if names else old.name
            if new != old.name:
                value = np.array(scope.find_var(old.name).get_tensor())
                scope.var(new).get_tensor().set(value, paddle.CPUPlace())
                scope.erase([old.name])
        feed = {}
        fetches = {}
        for op in program.global_block().ops:
            if op.type == "feed":
                name = op.output("Out")[0]
                feed[name] = np.load(os.path.join(base, f"input_{name}.npy"))
            if op.type == "fetch":
                fetches[op.attr("col")] = op.input("X")[0]
        fetch_list = [fetches[k] for k in sorted(fetches)]
        found = exe.run(program, feed=feed, fetch_list=fetch_list)
    return found, [np.load(os.path.join(base, f"output_{k}.npy")) for k in range(len(fetch_list))]


def main():
    folders = sorted({name.split(".")[0] for name in os.listdir(OUT) if name.endswith(".same.pdmodel")})
    assert len(folders) == 6, folders
    for folder in folders:
        before = message(golden(folder))
        at = lambda word: os.path.join(OUT, f"{folder}.{word}.pdmodel")
        report(f"{folder}: same bytes", read(at("same")) == read(golden(folder)))
        report(f"{folder}: text and back", read(at("text")) == read(golden(folder)))
        text = read(os.path.join(OUT, f"{folder}.txt")).decode()
        if "DENSE_TENSOR" in schema.VarType.Type.keys():
            # Paddle 3 has other names for the same fields.
            for old, new in (("LOD_TENSOR", "DENSE_TENSOR"), ("lod_tensor {", "dense_tensor {"), ("lod_level:", "legacy_lod_level:")):
                text = text.replace(old, new)
        parsed = text_format.Parse(text, schema.ProgramDesc())
        report(f"{folder}: Paddle's schema reads the text", parsed == before)
        for word in ("renamed", "strip-source", "strip-all"):
            after = message(at(word))
            report(f"{folder}.{word}: serialised as Paddle does", after.SerializeToString() == read(at(word)))
            program = paddle.static.Program.parse_from_string(read(at(word)))
            report(f"{folder}.{word}: parsed", len(program.blocks) == len(before.blocks))
            if word != "renamed":
                sources = [a for b in after.blocks for o in b.ops for a in o.attrs if a.name == "op_callstack"]
                report(f"{folder}.{word}: no source", not sources)
        expected = {v.name for b in before.blocks for v in b.vars if v.persistable and v.type.type not in (9, 10)}
        found = {v.name for b in message(at("renamed")).blocks for v in b.vars if v.persistable and v.type.type not in (9, 10)}
        report(f"{folder}.renamed: all parameters", found == {f"renamed/{n}" for n in expected})

    for folder in ("cnn_static_infer", "seq_static_infer", "control_flow"):
        for word in ("same", "text", "renamed", "strip-source", "strip-all"):
            names = (lambda n: f"renamed/{n}") if word == "renamed" else None
            found, expected = infer(os.path.join(OUT, f"{folder}.{word}.pdmodel"), folder, names)
            good = len(found) == len(expected) and all(
                np.allclose(a, b, rtol=1e-5, atol=1e-6) for a, b in zip(found, expected)
            )
            report(f"{folder}.{word}: runs and gives the golden outputs", good)

    train_strip()
    saved_and_loaded()
    addition()
    print(f"Paddle {paddle.__version__}: {failures} failures")
    sys.exit(1 if failures else 0)


def train_strip():
    """A training program without training runs: parameters of any value give a finite output."""
    program = paddle.static.Program.parse_from_string(read(os.path.join(OUT, "cnn_static_train.strip-all.pdmodel")))
    exe = paddle.static.Executor(paddle.CPUPlace())
    scope = paddle.static.Scope()
    block = program.global_block()
    report("cnn_static_train.strip-all: no training", not [o for o in block.ops if "grad" in o.type or o.type == "adam"])
    with paddle.static.scope_guard(scope):
        feed = {}
        for var in block.vars.values():
            if var.name in ("feed", "fetch"):
                continue
            shape = [2 if d < 0 else d for d in var.shape]
            if var.persistable:
                scope.var(var.name).get_tensor().set(np.full(shape, 0.1, "float32"), paddle.CPUPlace())
            elif getattr(var, "need_check_feed", False) or var.desc.need_check_feed():
                integers = var.dtype in (paddle.int64, paddle.int32) or "INT64" in str(var.dtype)
                feed[var.name] = np.ones(shape, "int64" if integers else "float32")
        soft = [o.output("Out")[0] for o in block.ops if o.type == "softmax"] or [block.ops[-1].output("Out")[0]]
        (found,) = exe.run(program, feed=feed, fetch_list=soft[:1])
    report("cnn_static_train.strip-all: runs", bool(np.isfinite(found).all()), str(found.shape))


def saved_and_loaded():
    values = {
        "w": np.arange(6, dtype="float32").reshape(2, 3) - 2.5,
        "b": np.array([1e300, -0.0, np.inf]),
        "权": np.array(2**40 + 1, dtype="int64"),
    }
    folder = os.path.join(OUT, "files")
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    for save, load in (("save", "load"), ("save_combine", "load_combine")):
        exe = paddle.static.Executor(paddle.CPUPlace())
        scope = paddle.static.Scope()
        with paddle.static.scope_guard(scope):
            for name, value in values.items():
                scope.var(name).get_tensor().set(value, paddle.CPUPlace())
            exe.run(paddle.static.Program.parse_from_string(read(os.path.join(OUT, f"{save}.pdmodel"))))
        report(f"{save}: wrote files", len(os.listdir(folder)) > 0, str(sorted(os.listdir(folder))))
        scope = paddle.static.Scope()
        with paddle.static.scope_guard(scope):
            exe.run(paddle.static.Program.parse_from_string(read(os.path.join(OUT, f"{load}.pdmodel"))))
            for name, value in values.items():
                found = np.array(scope.find_var(name).get_tensor())
                same = found.dtype == value.dtype and found.shape == value.shape and found.tobytes() == value.tobytes()
                report(f"{load}: {name}", same)


def addition():
    path = os.path.join(OUT, "add.pdmodel")
    x = np.arange(6, dtype="float32").reshape(2, 3)
    y = np.full((2, 3), 10, "float32")
    exe = paddle.static.Executor(paddle.CPUPlace())
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(path, os.path.join(folder, "m.pdmodel"))
        open(os.path.join(folder, "m.pdiparams"), "wb").close()
        with paddle.static.scope_guard(paddle.static.Scope()):
            program, feeds, fetches = paddle.static.load_inference_model(os.path.join(folder, "m"), exe)
            report("add: feeds and fetches", feeds == ["x", "y"] and [f.name for f in fetches] == ["z", "y"], str(feeds))
            z, second = exe.run(program, feed={"x": x, "y": y}, fetch_list=fetches)
    report("add: runs", (z == x + y).all() and (second == y).all())


main()
