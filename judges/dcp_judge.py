"""Judge of distributed checkpoints: Weighbridge opens what torch.distributed.checkpoint wrote, and torch loads what Weighbridge
wrote; both are compared bit for bit with what torch itself loads.

usage: dcp_judge.py PATH-OF-THE-COMMAND    (needs torch 2.2 or later, numpy, safetensors)
"""
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import warnings

import numpy as np
import safetensors.torch
import torch
import torch.distributed.checkpoint as dcp

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import make_dcp  # noqa: E402

warnings.filterwarnings("ignore")
COMMAND = sys.argv[1]
passed = failed = 0


def check(what, condition, note=""):
    global passed, failed
    passed, failed = passed + bool(condition), failed + (not condition)
    if not condition:
        print("FAILED", what, note)


def run(*words):
    return subprocess.run([COMMAND, *map(str, words)], capture_output=True, text=True)


def convert(source, target, *options):
    done = run("convert", source, target, "--force", *options)
    check(f"convert {source} {target}", done.returncode in (0, 1), done.stderr)
    return target


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and make_dcp.raw(a) == make_dcp.raw(b)


def tensors(state):
    return {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}


def equal(a, b):
    """Equal values, whose types may be those of another release of torch."""
    return type(a) is type(b) and (a == b or repr(a) == repr(b))


def unflattened(state, prefix=""):
    """Tensors of nested dicts and lists, by flat name."""
    found = {}
    pairs = state.items() if isinstance(state, dict) else enumerate(state)
    for key, value in pairs:
        name = f"{prefix}{key}"
        if isinstance(value, torch.Tensor):
            found[name] = value
        elif isinstance(value, (dict, list)):
            found.update(unflattened(value, name + "."))
    return found


def read_by_weighbridge(name, folder, state, work):
    """Every tensor through safetensors, and those that numpy has through npz."""
    wanted = tensors(state)
    # safetensors has no complex numbers of 128 bits.
    without = [word for key, tensor in wanted.items() if tensor.dtype == torch.complex128 for word in ("--drop", key)]
    found = safetensors.torch.load_file(convert(folder, work / f"{name}.safetensors", *without))
    for key, tensor in wanted.items():
        check(f"{name}: {key} in safetensors", key in without or (key in found and same(found[key], tensor)))
    plain = {key: tensor for key, tensor in wanted.items() if tensor.dtype in (torch.float32, torch.int64, torch.float64)}
    if len(plain) == len(wanted) and wanted:
        path = convert(folder, work / f"{name}.npz")
        found = np.load(path)
        for key, tensor in wanted.items():
            check(f"{name}: {key} in npz", found[key].tobytes() == make_dcp.raw(tensor) and found[key].shape == tuple(tensor.shape))


def written_by_weighbridge(name, folder, state, work):
    """torch loads the rewritten checkpoint: the same tensors and values, by flat name and as nested dicts."""
    target = convert(folder, work / f"{name}.out", "--to", "dcp")
    found = make_dcp.loaded(str(target))
    for key, value in state.items():
        if isinstance(value, torch.Tensor):
            check(f"{name}: {key} of the written checkpoint", key in found and same(found[key], value))
        elif key in found:
            check(f"{name}: value {key} of the written checkpoint", equal(found[key], value), (found[key], value))
    if not make_dcp.OLD:
        from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
        nested = {}
        for number, source in enumerate((folder, target)):
            path = work / f"{name}.{number}.pt"
            try:
                dcp_to_torch_save(str(source), str(path))
            except Exception as error:  # noqa: BLE001: values that torch does not load without their classes
                check(f"{name}: dcp_to_torch_save", number == 0, error)
                return
            nested[number] = unflattened(torch.load(path, weights_only=False))
        check(f"{name}: names of dcp_to_torch_save", nested[0].keys() <= nested[1].keys())
        for key in nested[0].keys() & nested[1].keys():
            check(f"{name}: {key} by dcp_to_torch_save", same(nested[0][key], nested[1][key]))


def fresh(number, work):
    """A checkpoint of random tensors."""
    rng = random.Random(number)
    state = {}
    for place in range(rng.randrange(1, 12)):
        shape = [rng.randrange(0, 6) for _ in range(rng.randrange(0, 4))]
        dtype = rng.choice([torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.float64, torch.complex64])
        tensor = torch.randn(shape).to(dtype)
        if tensor.dim() == 2 and rng.random() < 0.3:
            tensor = tensor.t()
        state[f"block{place // 3}.w{place}"] = tensor
    state["step"], state["run"] = rng.randrange(100), {"lr": rng.random(), "name": f"run {number}"}
    folder = work / f"fresh{number}"
    make_dcp.save(state, str(folder), thread_count=rng.choice([1, 2]))
    return folder


def from_others(work):
    """Checkpoints of other formats become distributed ones."""
    state = {"a.w": torch.randn(5, 3), "a.b": torch.randn(3).bfloat16(), "n": torch.tensor(7), "none": torch.zeros(0, 2)}
    safetensors.torch.save_file(state, work / "other.safetensors")
    torch.save(state, work / "other.pt")
    for source in ("other.safetensors", "other.pt"):
        found = make_dcp.loaded(str(convert(work / source, work / f"{source}.dcp", "--to", "dcp")))
        check(f"names of {source}", state.keys() <= found.keys(), list(found))
        for key, tensor in state.items():
            check(f"{source}: {key}", key in found and same(found[key], tensor))
    # A model loads its part by name.
    model = torch.nn.Linear(3, 2)
    torch.save(model.state_dict(), work / "linear.pt")
    target = convert(work / "linear.pt", work / "linear.dcp", "--to", "dcp")
    other = torch.nn.Linear(3, 2)
    own = other.state_dict()
    options = {"storage_reader": dcp.FileSystemReader(str(target)), "no_dist": True}
    (dcp.load_state_dict if make_dcp.OLD else dcp.load)(own, **options)
    other.load_state_dict(own)
    check("a model loads its parameters", all(same(a, b) for a, b in zip(model.state_dict().values(), other.state_dict().values())))


def main():
    expected = json.loads((make_dcp.ROOT / "expected.json").read_text())
    with tempfile.TemporaryDirectory() as place:
        work = pathlib.Path(place)
        for name in expected:
            # A release does not know the dtypes and classes of later ones.
            if make_dcp.OLD and not name.startswith("t22"):
                continue
            folder = make_dcp.ROOT / "good" / name
            state = make_dcp.loaded(str(folder))
            done = run("verify", folder)
            # A whole module is an object of a class that is not read.
            known = 3 if name == "t22_objects" else 0
            check(f"verify {name}", done.returncode == known, done.stdout + done.stderr)
            read_by_weighbridge(name, folder, state, work)
            written_by_weighbridge(name, folder, state, work)
        for number in range(12):
            folder = fresh(number, work)
            state = make_dcp.loaded(str(folder))
            read_by_weighbridge(folder.name, folder, state, work)
            written_by_weighbridge(folder.name, folder, state, work)
        from_others(work)
    print(f"torch {torch.__version__}: {passed + failed} checks, {failed} failures")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
