"""The library onnx and ONNX Runtime judge models that Weighbridge reads and writes.

The tensors that Weighbridge lists are those of `numpy_helper.to_array`. A model written without changes is the same file. A renamed,
cast or moved model passes `onnx.checker.check_model(full_check=True)`, loads in ONNX Runtime, and gives the same outputs.

usage: files.py PATH-OF-THE-COMMAND [MODEL ...]
"""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper as nh

sys.path.insert(0, str(Path(__file__).parent.parent))
import make_onnx

COMMAND, MODELS = sys.argv[1], [Path(p) for p in sys.argv[2:]]
GOOD = make_onnx.GOOD
onnxruntime.set_default_logger_severity(3)
passed = failed = 0


def check(what, condition):
    global passed, failed
    passed, failed = passed + bool(condition), failed + (not condition)
    if not condition:
        print("FAILED", what)


def run(*words, code=(0,)):
    done = subprocess.run([COMMAND, *map(str, words)], capture_output=True, text=True)
    if done.returncode not in code:
        check(f"{words}: {done.returncode} {done.stderr[-500:]}", False)
    return done


def listed(path):
    document = json.loads(run("ls", path, "--json", "--hash").stdout)
    document = document[0] if isinstance(document, list) else document
    return {t["name"]: t for t in document["tensors"]}


def model_of(target):
    return target / "model.onnx" if target.is_dir() else target


def outputs(path, feeds=None):
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    if feeds is None:
        rng = np.random.default_rng(1)
        feeds = {}
        for value in session.get_inputs():
            dims = [d if isinstance(d, int) and d > 0 else 2 for d in value.shape]
            kind = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(bool)": bool, "tensor(int32)": np.int32}[value.type]
            feeds[value.name] = (rng.standard_normal(dims) * 3).astype(kind)
    return feeds, session.run(None, feeds)


def same(a, b):
    return all(np.array_equal(x, y, equal_nan=True) for x, y in zip(a, b, strict=True))


def tensors(path):
    for name, want in make_onnx.expected(path).items():
        found = TENSORS.get(name)
        check(f"{path.name}: {name} is listed", found is not None)
        if found:
            check(f"{path.name}: {name} {found['dtype']} {found['shape']}", (found["dtype"], found["shape"]) == (want["dtype"], want["shape"]))
            if "sha256" in want:
                check(f"{path.name}: elements of {name}", found["sha256"] == want["sha256"])


def identical(path, work):
    target = work / f"same_{path.parent.name}_{path.stem}"
    run("convert", path, target, "--to", "onnx", "--force")
    check(f"{path.name}: the same bytes", model_of(target).read_bytes() == path.read_bytes())
    for tensor in make_onnx.tensors_of(onnx.load(path, load_external_data=False)).values():
        for entry in tensor.external_data:
            if entry.key == "location":
                check(f"{path.name}: the same data", (target / entry.value).read_bytes() == (path.parent / entry.value).read_bytes())


def near(a, b):
    return all(x.dtype == y.dtype and np.allclose(x, y, rtol=0.02, atol=0.02) for x, y in zip(a, b, strict=True))


def runs(path, target, what, equal=same):
    """The written model is valid, and gives the outputs of the original."""
    try:
        onnx.checker.check_model(str(model_of(target)), full_check=True)
        feeds, before = outputs(path)
        check(f"{path.name} {what}: equal outputs", equal(before, outputs(model_of(target), feeds)[1]))
    except Exception as error:
        check(f"{path.name} {what}: {str(error)[:300]}", False)


def can_run(path):
    try:
        onnx.checker.check_model(str(path), full_check=True)
        outputs(path)
        return True
    except Exception:
        return False


def changed(path, work):
    names = [t.name for t in onnx.load(path, load_external_data=False).graph.initializer if t.data_type != T.STRING]
    if names:
        target = work / f"renamed_{path.parent.name}"
        rules = [f"{json.dumps([*n.split('.')])}=renamed.{i}" for i, n in enumerate(names)]
        run("edit", path, target, "--to", "onnx", "--force", *[w for r in rules for w in ("--rename", r)])
        runs(path, target, "renamed")
        check(f"{path.name} renamed", {f"renamed.{i}" for i in range(len(names))} <= set(listed(target)))
    target = work / f"f16_{path.parent.name}"
    # Floats of 4 and 8 bits cannot be cast in every model.
    done = run("convert", path, target, "--to", "onnx", "--force", "--cast", "f16", "--allow-loss", code=(0, 2))
    if done.returncode == 0:
        runs(path, target, "cast to f16", near)
    else:
        check(f"{path.name}: {done.stderr}", "f4" in done.stderr or "opset" in done.stderr)
    for setting in ("yes", "no"):
        target = work / f"external_{setting}_{path.parent.name}"
        shutil.rmtree(target, ignore_errors=True)
        target.unlink(missing_ok=True)
        run("convert", path, target, "--to", "onnx", "--force", "--set", f"external_data={setting}")
        runs(path, target, f"external_data={setting}")
        check(f"{path.name} external_data={setting}: equal tensors", {n: t["sha256"] for n, t in listed(target).items()} == {n: t["sha256"] for n, t in TENSORS.items()})


def cast(work):
    """A cast of weights that operators cast back."""
    w = np.random.default_rng(2).standard_normal((4, 3)).astype(np.float32)
    graph = h.make_graph([h.make_node("Cast", ["w"], ["w32"], to=1), h.make_node("MatMul", ["x", "w32"], ["y"])], "g",
                         [h.make_tensor_value_info("x", 1, [2, 4])], [h.make_tensor_value_info("y", 1, [2, 3])], [nh.from_array(w, "w")],
                         value_info=[h.make_tensor_value_info("w", 1, [4, 3])])
    path = work / "cast.onnx"
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8), path)
    target = work / "cast16.onnx"
    run("edit", path, target, "--cast", "f16", "--allow-loss", "--force")
    onnx.checker.check_model(str(target), full_check=True)
    made = onnx.load(target)
    check("cast: dtype", made.graph.initializer[0].data_type == T.FLOAT16 and made.graph.value_info[0].type.tensor_type.elem_type == T.FLOAT16)
    feeds, found = outputs(target)
    check("cast: outputs", np.allclose(found[0], feeds["x"] @ w.astype(np.float16).astype(np.float32), rtol=1e-5))


def large(work):
    """Tensors of 5 MB, moved out and in; many tensors in one file."""
    rng = np.random.default_rng(3)
    parts = [nh.from_array(rng.standard_normal((512, 512), dtype=np.float32), f"w{i}") for i in range(5)]
    nodes = [h.make_node("MatMul", ["x" if i == 0 else f"h{i - 1}", f"w{i}"], [f"h{i}" if i < 4 else "y"]) for i in range(5)]
    graph = h.make_graph(nodes, "g", [h.make_tensor_value_info("x", 1, [1, 512])], [h.make_tensor_value_info("y", 1, [1, 512])], parts)
    path = work / "large.onnx"
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8), path)
    target = work / "large_out"
    run("convert", path, target, "--to", "onnx", "--force", "--set", "external_data=yes")
    check("moved out", (target / "model.onnx").stat().st_size < 5000 and (target / "model.onnx.data").stat().st_size >= 5 << 20)
    runs(path, target, "moved out")
    back = work / "large_back.onnx"
    run("convert", target, back, "--force", "--set", "external_data=no")
    runs(path, back, "moved in")
    split = work / "split"
    split.mkdir(exist_ok=True)
    onnx.save(onnx.load(path), split / "net.onnx", save_as_external_data=True, all_tensors_to_one_file=False)
    target = work / "split_out"
    run("edit", split / "net.onnx", target, "--to", "onnx", "--force", "--rename", "w2=middle")
    runs(split / "net.onnx", target, "in files of their own")


with tempfile.TemporaryDirectory() as folder:
    work = Path(folder)
    for path in MODELS or sorted(GOOD.rglob("*.onnx")):
        TENSORS = listed(path)
        tensors(path)
        identical(path, work)
        if can_run(path):
            changed(path, work)
        report = run("verify", path, code=(0, 1, 3))
        check(f"{path.name}: sound: {report.stdout[-300:]}", report.returncode == 0 or "text" in report.stdout)
    cast(work)
    large(work)
print(f"onnx {onnx.__version__}, onnxruntime {onnxruntime.__version__}: {passed} checks, {failed} failed")
sys.exit(failed > 0)
