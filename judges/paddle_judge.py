"""Judge: real Paddle loads every form that Weighbridge writes, and sees the same values and the same outputs.

usage: paddle_judge.py PATH-OF-THE-COMMAND [FOLDER-OF-REAL-MODELS]

Run once with paddlepaddle 2.6.2 and once with 3.3.1. The truth is what this Paddle reads from the golden files themselves,
and the arrays that it wrote beside them.
"""

import hashlib
import json
import pickle
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import safetensors.numpy

from paddle_runs import OLD, VERSION, core, load_state, paddle, run_pir, run_protobuf, same_bits

ROOT = Path(__file__).resolve().parent.parent
GOOD = ROOT / "testdata" / "paddle" / "good"
MADE = ROOT / "testdata" / "paddle" / "made"
COMMAND = Path(sys.argv[1]).resolve()
passed = failed = 0


def tool(*words):
    done = subprocess.run([COMMAND, *map(str, words)], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"weighbridge {' '.join(map(str, words))}: {done.stderr.strip()}")
    return done.stdout


def check(what, condition):
    global passed, failed
    if condition:
        passed += 1
    else:
        failed += 1
        print("FAILED", what)


def attempt(what, work):
    """Runs a group of checks; an exception in it is one failure."""
    try:
        work()
    except Exception as error:  # a judge goes on
        check(f"{what}: {type(error).__name__}: {str(error)[:600]}", False)


def golden_io(folder):
    """The inputs and outputs that Paddle wrote beside a golden model."""
    io = json.loads((folder / "expected.json").read_text()).get("io")
    if not io:
        return None, None
    feeds = {name: np.load(folder / item["file"]) for name, item in io["inputs"].items()}
    return feeds, [np.load(folder / item["file"]) for item in io["outputs"]]


def same_values(what, truth, values, names=None):
    wanted = {(names or {}).get(name, name): array for name, array in truth.items()}
    check(f"{what}: names {sorted(set(wanted) ^ set(values))[:5]}", wanted.keys() == values.keys())
    for name in wanted.keys() & values.keys():
        check(f"{what}: {name}", same_bits(wanted[name], values[name]))


def same_outputs(what, truth, outputs):
    if truth is None:
        return
    check(f"{what}: number of outputs", len(truth) == len(outputs))
    for k, (a, b) in enumerate(zip(truth, outputs)):
        check(f"{what}: output {k}", a.shape == b.shape and np.allclose(a, b, rtol=1e-5, atol=1e-5))


def program_of(folder):
    for name in ("model.pdmodel", "__model__", "inference.pdmodel", "model.json", "__model__.json"):
        if (folder / name).exists():
            return name
    raise RuntimeError(f"no program in {folder}")


def params_of(folder):
    for name in ("model.pdiparams", "__params__", "inference.pdiparams"):
        if (folder / name).exists():
            return name
    return None


def load(folder, feeds):
    """Values and outputs of a model that Weighbridge wrote into a folder."""
    program = program_of(folder)
    if program.endswith(".json"):
        return run_pir(folder / program[:-5], feeds)
    return run_protobuf(folder, program, params_of(folder), feeds)


def model_forms(folder, work):
    """A golden model through every form that keeps it."""
    what = f"{folder.parent.name}/{folder.name}"
    feeds, outputs = golden_io(folder)
    truth, own = load(folder, feeds)
    same_outputs(f"{what}: as it is", outputs, own)
    pir = program_of(folder).endswith(".json")

    def arrived(name, target, names=None):
        values, out = load(target, feeds)
        same_values(f"{what}: {name}", truth, values, names)
        same_outputs(f"{what}: {name}", outputs, out)

    inference = work / "inference"
    tool("convert", folder, inference, "--to", "paddle", "--kind", "inference")
    arrived("inference", inference)
    tool("convert", folder, work / "m.safetensors")
    back = work / "back"
    tool("convert", work / "m.safetensors", back, "--to", "paddle", "--kind", "inference", "--program", folder / program_of(folder))
    arrived("through safetensors", back)
    tool("convert", folder, work / "m.npz")
    again = work / "again"
    tool("convert", work / "m.npz", again, "--to", "paddle", "--kind", "inference", "--program", folder / program_of(folder))
    arrived("through npz", again)
    for protocol in (2, 4):
        state = work / f"state{protocol}.pdparams"
        tool("convert", folder, state, "--set", f"protocol={protocol}", "--names", "variable")
        loaded = {".".join(path): array for path, array in load_state(state).items()}
        same_values(f"{what}: pdparams of protocol {protocol}", truth, loaded)
        from_state = work / f"from-state{protocol}"
        tool("convert", state, from_state, "--to", "paddle", "--kind", "inference", "--program", folder / program_of(folder))
        arrived(f"from pdparams of protocol {protocol}", from_state)

    if not pir:
        separate = work / "separate"
        tool("convert", folder, separate, "--to", "paddle", "--kind", "separate")
        arrived("separate", separate)
        legacy = work / "legacy"
        tool("convert", separate, legacy, "--to", "paddle", "--kind", "inference", "--set", "era=1")
        check(f"{what}: names of the first era", {p.name for p in legacy.iterdir()} >= {"__model__", "__params__"})
        arrived("first era", legacy)
        modern = work / "modern"
        tool("convert", legacy, modern, "--to", "paddle", "--kind", "inference", "--set", "era=2")
        arrived("second era", modern)

    # A program without its source, and what nothing uses.
    stripped = work / "stripped"
    tool("program", folder, "--strip", "source,training,gradients,state,unused", "--output", stripped)
    values, out = load(stripped, feeds)
    same_outputs(f"{what}: stripped", outputs, out)
    for name, array in values.items():
        check(f"{what}: stripped: {name}", same_bits(truth[name], array))
    if not pir:
        check(f"{what}: no source is left", b"op_callstack" not in (stripped / program_of(stripped)).read_bytes())

    # Two parameters under new names that sort the other way round.
    names = sorted(truth)
    if len(names) > 1:
        new = {names[0]: "zzz_first", names[-1]: "aaa_last"}
        renamed = work / "renamed"
        rules = [word for old, to in new.items() for word in ("--rename", f"{json.dumps(old.split('.'))}={to}")]
        tool("convert", folder, renamed, "--to", "paddle", "--kind", "inference", *rules)
        arrived("renamed", renamed, new)


def state_forms(path, work):
    """A golden pickle, rewritten in each protocol."""
    what = f"{path.parent.name}/{path.name}"
    truth = load_state(path)
    for protocol in (2, 3, 4):
        target = work / f"p{protocol}.pdparams"
        tool("convert", path, target, "--set", f"protocol={protocol}", "--force")
        values = load_state(target)
        same_values(f"{what}: protocol {protocol}", truth, values)
    # safetensors has no complex128, npz has no bfloat16, which is uint16 here.
    dtypes = {a.dtype for a in truth.values()}
    for ending, lacks in (("safetensors", np.complex128), ("npz", np.uint16)):
        if np.dtype(lacks) in dtypes:
            continue
        bridge = work / f"state.{ending}"
        tool("convert", path, bridge, "--force")
        target = work / "back.pdparams"
        tool("convert", bridge, target, "--force")
        same_values(f"{what}: through {ending}", truth, load_state(target))


def merged(folder, name, work):
    """Parameters and their optimizer's state in one file: the keys and values of both, and the names and roles of a folder of them."""
    target = work / "both.pdparams"
    files = [folder / f"{name}.pdparams", folder / f"{name}.pdopt"]
    told = json.loads(tool("merge", *files, "-o", target, "--json"))
    lost = [loss["subject"] for loss in told["losses"] if loss["code"].startswith("read-as")]
    check(f"{folder.name}: merged without a doubt: {lost}", not lost)
    truth = {**load_state(files[0]), **load_state(files[1])}
    same_values(f"{folder.name}: merged", truth, load_state(target))
    roles = lambda path: sorted((t["name"], t["role"]) for t in json.loads(tool("ls", path, "--json"))["tensors"])
    beside = work / "beside"
    beside.mkdir()
    for file in files:
        shutil.copy(file, beside)
    check(f"{folder.name}: roles", roles(target) == roles(beside))
    tool("merge", *files, "-o", work / "both.safetensors")
    check(f"{folder.name}: roles elsewhere", roles(work / "both.safetensors") == roles(beside))


def trained(optimizer, sizes):
    """A network of these layers under the names that a process gives them first, its optimizer, and a step of training."""
    with paddle.utils.unique_name.guard():
        net = paddle.nn.Sequential(*(paddle.nn.Linear(*size, bias_attr=False) for size in sizes))
        own = getattr(paddle.optimizer, optimizer)(learning_rate=0.1, parameters=net.parameters())

    def step(gradients):
        sum((p * paddle.to_tensor(g)).sum() for p, g in zip(net.parameters(), gradients)).backward()
        # The first step names the state.
        with paddle.utils.unique_name.guard():
            own.step()
        own.clear_grad()

    return net, own, step


def transposed(optimizer, form, work):
    """A transpose of the parameters takes the state along: the training goes on from the file as it went on without."""
    rng = np.random.default_rng(5)
    sizes = [(3, 4), (4, 2)]
    net, own, step = trained(optimizer, sizes)
    gradients = [[rng.standard_normal(size).astype("float32") for size in sizes] for _ in range(3)]
    step(gradients[0])
    step(gradients[1])
    both = {**net.state_dict(), **own.state_dict()}
    nested = {"net": net.state_dict(), "opt": own.state_dict()}
    files, path = [work / "net.pdparams", work / "net.pdopt"], work / "x.pdparams"
    for part, file in zip((net, own), files):
        paddle.save(part.state_dict(), str(file))
    if form == "merged":
        tool("merge", *files, "-o", path)
    elif form == "folder":
        path = work / "in"
        path.mkdir()
        for file in files:
            file.rename(path / file.name)
    else:
        paddle.save({"flat": both, "nested": nested, "list": [nested["net"], nested["opt"]]}[form], str(path))
    target = work / "y.pdparams"
    told = json.loads(tool("edit", path, target, "--transpose", "*.weight", "--json"))
    what = f"{optimizer}, {form}, transposed"
    check(f"{what}: {told['losses']}", not told["losses"])
    loaded = paddle.load(str(target))
    parts = {"nested": lambda: (loaded["net"], loaded["opt"]), "list": lambda: tuple(loaded)}
    params, state = parts.get(form, lambda: (loaded, dict(loaded)))()
    other, again, step_on = trained(optimizer, [size[::-1] for size in sizes])
    other.set_state_dict(params)
    again.set_state_dict(state)
    for was, now in zip(net.parameters(), other.parameters()):
        check(f"{what}: {was.name}", same_bits(now.numpy(), np.ascontiguousarray(was.numpy().T)))
    step(gradients[2])
    step_on([np.ascontiguousarray(g.T) for g in gradients[2]])
    for was, now in zip(net.parameters(), other.parameters()):
        check(f"{what}: {was.name} after a step", same_bits(now.numpy(), np.ascontiguousarray(was.numpy().T)))


def streams(work):
    """Single tensors, written again, as Paddle loads them."""
    for path in sorted((GOOD / "p262/lod_tensors").glob("*.bin")):
        target = work / path.name
        tool("convert", path, target, "--to", "paddle", "--kind", "tensor", "--force")
        read = core.load_lod_tensor if OLD else core.load_dense_tensor
        make = core.LoDTensor if OLD else core.DenseTensor
        a, b = make(), make()
        read(a, str(path))
        read(b, str(target))
        lod = (lambda t: t.lod()) if OLD else (lambda t: None)
        check(f"tensor {path.name}", same_bits(np.array(a), np.array(b)) and lod(a) == lod(b))
        check(f"tensor {path.name}: bytes", path.read_bytes() == target.read_bytes())


def casts(work):
    """`--cast` with the rounding of this Paddle gives the bits of its own cast."""
    rng = np.random.default_rng(7)
    bits = rng.integers(0, 1 << 32, 20000, dtype=np.uint32)
    # This Paddle's own NaN is one pattern; payloads are the business of other tests.
    values = bits.view(np.float32)
    values = np.concatenate([values[~np.isnan(values)], np.float32([0, -0.0, np.inf, -np.inf, 65504, 65519, 65520, 1e-8, 6e-8])])
    np.save(work / "cast.npy", values)
    paddle.disable_static()
    for name, dtype in (("f16", "float16"), ("bf16", "bfloat16")):
        target = work / f"cast-{name}.pdiparams"
        rounding = "paddle-2.6" if OLD else "paddle-3.3"
        tool("convert", work / "cast.npy", target, "--to", "paddle", "--kind", "tensor", "--cast", name, "--rounding", rounding, "--force")
        tensor = (core.LoDTensor if OLD else core.DenseTensor)()
        (core.load_lod_tensor if OLD else core.load_dense_tensor)(tensor, str(target))
        truth = paddle.to_tensor(values).astype(dtype).numpy()
        check(f"cast to {name} as Paddle {VERSION}", np.array(tensor).tobytes() == truth.tobytes())


def real_models(folder, work):
    """Models that ship in public packages."""
    for model in sorted(folder.glob("**/inference.pdmodel")):
        what = f"real {model.parent.name}"
        rng = np.random.default_rng(1)
        shape = (1, 3, 48, 320) if "rec" in what else (1, 3, 48, 192) if "cls" in what else (1, 3, 320, 320)
        feeds = {"x": rng.standard_normal(shape).astype(np.float32)}
        truth, outputs = run_protobuf(model.parent, model.name, "inference.pdiparams", feeds)
        listed = json.loads(tool("ls", model, "--json"))["tensors"]
        check(f"{what}: all names", sorted(t["name"] for t in listed) == sorted(truth))
        bridge = work / f"{model.parent.name}.safetensors"
        tool("convert", model, bridge, "--names", "structured")
        back = work / model.parent.name
        tool("convert", bridge, back, "--to", "paddle", "--kind", "inference", "--program", model)
        values, out = load(back, feeds)
        same_values(f"{what}: through safetensors", truth, values)
        same_outputs(f"{what}: through safetensors", outputs, out)
        params = next(p for p in back.iterdir() if p.name.endswith("pdiparams"))
        original = (model.parent / "inference.pdiparams").read_bytes()
        check(f"{what}: the same bytes", hashlib.sha256(params.read_bytes()).digest() == hashlib.sha256(original).digest())
        stripped = work / f"{model.parent.name}-stripped"
        tool("program", model, "--strip", "source", "--output", stripped)
        _, out = load(stripped, feeds)
        same_outputs(f"{what}: stripped", outputs, out)
    for folder in sorted(folder.glob("**/lac_small/model_baseline")):
        listed = json.loads(tool("ls", folder, "--json"))["tensors"]
        check("jieba: all names", sorted(t["name"] for t in listed) == sorted(p.name for p in folder.iterdir()))
        bridge = work / "jieba.safetensors"
        tool("convert", folder, bridge)
        arrays = safetensors.numpy.load_file(bridge)
        for path in folder.iterdir():
            tensor = core.LoDTensor()
            core.load_lod_tensor(tensor, str(path))
            check(f"jieba: {path.name}", same_bits(np.array(tensor), arrays[path.name]))
        back = work / "jieba"
        tool("convert", bridge, back, "--to", "paddle", "--kind", "separate")
        for path in folder.iterdir():
            check(f"jieba: {path.name}: bytes", path.read_bytes() == (back / path.name).read_bytes())


def stream(array):
    """A tensor as Paddle keeps it in a file."""
    number = {"float32": 5, "int8": 21, "int32": 2}[array.dtype.name]
    dims = b"".join(b"\x10" + varint(extent) for extent in array.shape)
    desc = b"\x08" + varint(number) + dims
    return bytes(16) + len(desc).to_bytes(4, "little") + desc + array.tobytes()


def varint(number):
    out = bytearray()
    while number >= 128:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes(out + bytes([number]))


def quantized(work):
    """A model of PostTrainingQuantization through every change; and scales of all shapes that are called the same."""
    folder = MADE / "ptq"
    feeds = {"x": np.random.default_rng(3).standard_normal((2, 1, 6, 6)).astype("float32")}
    truth, outputs = load(folder, feeds)
    tool("verify", folder)

    def arrived(what, target, names=None):
        values, out = load(target, feeds)
        same_values(f"quantized: {what}", truth, values, names)
        same_outputs(f"quantized: {what}", outputs, out)
        tool("verify", target)

    tool("convert", folder, work / "same", "--to", "paddle", "--kind", "inference")
    arrived("converted", work / "same")
    tool("convert", folder, work / "m.safetensors")
    tool("convert", work / "m.safetensors", work / "back", "--to", "paddle", "--kind", "inference", "--program", folder / "inference.pdmodel")
    arrived("through safetensors", work / "back")
    tool("program", folder, "--strip", "all", "--output", work / "stripped")
    arrived("stripped", work / "stripped")
    new = {"conv2d_0.w_0": "zz", "conv2d_0.w_0@scale": "zz@scale"}
    tool("program", folder, "--rename", "conv2d_0.w_0=zz", "--output", work / "renamed")
    arrived("renamed with its scale", work / "renamed", new)
    tool("convert", folder, work / "alone", "--to", "paddle", "--kind", "inference", "--rename", '["fc_0","w_0"]=aa')
    # A rule for a path holds for those below it.
    point = "quantized.dequantized@zero_point"
    arrived("renamed without its scale", work / "alone", {"fc_0.w_0": "aa", f"fc_0.w_0.{point}": f"aa.{point}"})
    # Scales with and without extents of 1.
    for form in ((), (1,), (1, 1)):
        shaped = work / f"shaped{len(form)}"
        shutil.copytree(folder, shaped)
        values = {}
        for name, array in truth.items():
            is_scale = "@scale" in name
            values[name] = array.reshape(form + tuple(e for e in array.shape if e != 1)) if is_scale else array
        (shaped / "inference.pdiparams").write_bytes(b"".join(stream(values[name]) for name in sorted(values)))
        _, out = load(shaped, feeds)
        same_outputs(f"quantized: scales with {len(form)} extents of 1", outputs, out)
        tool("verify", shaped)
    # Paddle itself does not run what is for Paddle Lite.
    told = json.loads(tool("verify", MADE / "lite", "--json"))
    check("quantized for Paddle Lite: found", any(f["code"] == "for-paddle-lite" for f in told["findings"]))
    try:
        load(MADE / "lite", feeds)
        check("quantized for Paddle Lite: refused by Paddle", False)
    except Exception:
        check("quantized for Paddle Lite: refused by Paddle", True)


def sharded(work):
    """States as PaddleNLP cuts them: one model, with all tensors of the shards."""
    folder = MADE / "paddlenlp"
    truth = {}
    for shard in sorted(folder.glob("*.pdparams")):
        truth.update(load_state(shard))
    for number, source in enumerate((folder, folder / "model_state.pdparams.index.json")):
        target = work / f"{number}.pdparams"
        tool("convert", source, target)
        same_values("PaddleNLP's shards", truth, load_state(target))
    tool("verify", folder)


def names_of_a_state(work):
    """Structured names of a model of 3.x: each is the tensor of that name in the state beside it."""
    truth = {path[0]: array for path, array in load_state(MADE / "names" / "inference.pdparams").items()}
    tool("convert", MADE / "names", work / "m.safetensors", "--names", "structured")
    named = {name: array for name, array in safetensors.numpy.load_file(work / "m.safetensors").items() if name in truth}
    check("names of a state: number", len(named) == 8)
    for name, array in named.items():
        check(f"names of a state: {name}", same_bits(truth[name], array))


def large_integers(work):
    """Integers of any length in a state."""
    source = MADE / "bigint.pdparams"
    for protocol in (2, 3, 4):
        target = work / f"{protocol}.pdparams"
        tool("convert", source, target, "--set", f"protocol={protocol}")
        truth, found = (paddle.load(str(path)) for path in (source, target))
        for key in ("seed", "other"):
            check(f"integers of protocol {protocol}: {key}", truth[key] == found[key] and abs(found[key]) >= 1 << 64)


MODELS = (
    ["cnn_static_infer", "cnn_jit", "cnn_legacy_separate", "seq_static_infer", "seq_jit", "seq_legacy_separate", "control_flow"]
    if OLD
    else ["cnn_pir", "cnn_jit", "seq_pir", "seq_jit", "control_flow_pir"]
)
STATES = ["cnn_state_dict", "seq_state_dict", "master_weights", "nested_ckpt", "split_big_param"] + (["py2_pickle"] if OLD else [])


def main():
    era = GOOD / ("p262" if OLD else "p331")

    def fresh(what, work):
        folder = Path(tempfile.mkdtemp())
        attempt(what, lambda: work(folder))
        shutil.rmtree(folder)

    for name in MODELS:
        fresh(name, lambda folder: model_forms(era / name, folder))
    for name in STATES:
        for path in sorted((era / name).iterdir()):
            if path.suffix in (".pdparams", ".pdopt", ".pdckpt", ".pdtensor", ".pd"):
                fresh(path.name, lambda folder: state_forms(path, folder))
    for name, stem in (("cnn_state_dict", "m_p4"), ("seq_state_dict", "m_p4"), ("master_weights", "lin_p4")):
        fresh(f"merged {name}", lambda folder: merged(era / name, stem, folder))
    for optimizer in ("Adam", "Momentum"):
        for form in ("merged", "folder", "flat", "nested", "list"):
            fresh(f"transposed {optimizer} {form}", lambda folder: transposed(optimizer, form, folder))
    if OLD:
        fresh("quantized", quantized)
    else:
        fresh("sharded", sharded)
        fresh("names of a state", names_of_a_state)
        fresh("large integers", large_integers)
    fresh("streams", streams)
    fresh("casts", casts)
    if OLD and len(sys.argv) > 2:
        fresh("real models", lambda folder: real_models(Path(sys.argv[2]), folder))
    print(f"Paddle {VERSION}: {passed} checks passed, {failed} failed")
    sys.exit(1 if failed else 0)


main()
