"""Judge of torch files: PyTorch loads what Weighbridge wrote, and Weighbridge opens what PyTorch wrote; both compared
bit for bit with what numpy, safetensors and torch itself read.

usage: torch_judge.py PATH-OF-THE-COMMAND    (needs torch 2.2 or later, numpy, safetensors)
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import safetensors
import safetensors.torch
import torch

ROOT = Path(__file__).resolve().parent.parent / "testdata"
COMMAND = sys.argv[1]
passed = failed = 0
NAMES = {
    torch.float32: "f32", torch.float64: "f64", torch.float16: "f16", torch.bfloat16: "bf16", torch.int64: "i64",
    torch.int32: "i32", torch.int16: "i16", torch.int8: "i8", torch.uint8: "u8", torch.bool: "bool",
    torch.complex64: "c64", torch.complex128: "c128", torch.float8_e4m3fn: "f8_e4m3", torch.float8_e5m2: "f8_e5m2",
}
NAMES.update({getattr(torch, f"uint{n}"): f"u{n}" for n in (16, 32, 64) if hasattr(torch, f"uint{n}")})
# Types that this version of torch lacks.
ABSENT = {"u16", "u32", "u64", "f8_e8m0", "f8_e4m3fnuz", "f8_e5m2fnuz"} - set(NAMES.values())


def check(what, condition, note=""):
    global passed, failed
    passed, failed = passed + bool(condition), failed + (not condition)
    if not condition:
        print("FAILED", what, note)


def run(*words):
    return subprocess.run([COMMAND, *map(str, words)], capture_output=True, text=True)


def listed(path):
    """What the command says of a file, or None where it refuses it."""
    done = run("ls", path, "--json", "--hash")
    return json.loads(done.stdout) if done.returncode == 0 else None


def raw(tensor):
    """The bytes of a tensor, row by row."""
    tensor = tensor.detach().resolve_conj().contiguous()
    return bytes(tensor.reshape(-1).view(torch.uint8).numpy()) if tensor.numel() else b""


def bits(array):
    """The little-endian bytes of an array, row by row."""
    return np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"), copy=False)).tobytes()


def told_by_owner(path):
    """{name: (shape, bytes)} as the library that owns the format reads it."""
    if path.suffix == ".safetensors":
        with safetensors.safe_open(path, "pt") as file:
            return {name: (list(file.get_tensor(name).shape), raw(file.get_tensor(name))) for name in file.keys()}
    with np.load(path) as arrays:
        return {name: (list(arrays[name].shape), bits(arrays[name])) for name in arrays.files}


def loads_what_was_written(folder):
    """Every file of other formats becomes a file that torch loads without running anything."""
    sources = [p for kind in ("safetensors", "npz") for p in sorted((ROOT / kind / "good").rglob(f"*.{kind}"))]
    sources += sorted((ROOT / "primitiv" / "good").rglob("*.model"))[:40]
    sources += sorted((ROOT / "paddle" / "good").rglob("*.pdparams"))[:20]
    counted = 0
    for source in sources:
        what, target = str(source.relative_to(ROOT)), folder / "a.pt"
        index = listed(source)
        if index is None:
            continue
        done = run("convert", source, target, "--force")
        if done.returncode != 0:
            # Only what torch has no type for may be refused.
            check(f"{what} is written", "no type for" in done.stderr, done.stderr)
            continue
        if {t["dtype"] for t in index["tensors"]} & ABSENT:
            continue
        loaded = torch.load(target, weights_only=True)
        counted += 1
        check(f"{what} names", len(loaded) == len(index["tensors"]), list(loaded))
        for (name, tensor), entry in zip(loaded.items(), index["tensors"]):
            found = (list(tensor.shape), NAMES[tensor.dtype], tensor.is_contiguous())
            check(f"{what} {name} form", found == (entry["shape"], entry["dtype"], True), (found, entry))
        # Both ways to the same elements: by way of torch, and by the owner of the format or safetensors.
        owned, absent = source, []
        if source.suffix not in (".safetensors", ".npz"):
            owned = folder / "owned.safetensors"
            absent = [t["name"] for t in index["tensors"] if t["dtype"] == "c128"]
            done = run("convert", source, owned, "--force", *[word for name in absent for word in ("--drop", name)])
            check(f"{what} to safetensors", done.returncode == 0, done.stderr)
        try:
            owner = told_by_owner(owned)
        except (ValueError, TypeError, AttributeError, KeyError, safetensors.SafetensorError) as error:
            print("left out", what, error)
            continue
        for name, tensor in loaded.items():
            if name in owner:
                check(f"{what} {name} elements", (list(tensor.shape), raw(tensor)) == owner[name])
        missing = [name for name in loaded if name not in owner and name not in absent]
        check(f"{what} names of the owner", not missing or source.suffix == ".npz", missing)
    check("files were compared", counted > 40, counted)


def opens_what_torch_writes(folder):
    """State dicts of both forms become safetensors with the same elements."""
    torch.manual_seed(1)
    base = torch.randn(6, 8)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Linear(5, 2))
    tied = torch.randn(3, 3)
    # safetensors has no complex numbers of 128 bits, and its library for torch none of 64.
    types = [t for t in NAMES if not t.is_complex]
    states = {
        "module": model.state_dict(),
        "types": {NAMES[t]: torch.tensor([0, 1, 1, 0]).to(t) for t in types},
        "views": {"t": base.t(), "rows": base[2:4], "steps": base[::2, 1::3], "spread": base[:1].expand(4, 8)},
        "tied": {"a": tied, "b": tied},
        "ends": {"empty": torch.zeros(0, 3), "scalar": torch.tensor(2.5), "odd": torch.tensor([np.nan, -0.0, np.inf])},
        "parameters": {"p": torch.nn.Parameter(torch.randn(2, 2))},
        "large": {"big": torch.randn(1000, 1000), "half": torch.randn(300, 7).half()},
    }
    for name, state in states.items():
        for legacy in (False, True):
            what = f"{name}{' legacy' if legacy else ''}"
            source, target, again = folder / "s.pt", folder / "s.safetensors", folder / "again.pt"
            torch.save(state, source, _use_new_zipfile_serialization=not legacy)
            done = run("convert", source, target, "--force")
            check(f"{what} to safetensors", done.returncode == 0, done.stderr)
            if done.returncode != 0:
                continue
            back = safetensors.torch.load_file(target)
            check(f"{what} names", sorted(back) == sorted(state), sorted(back))
            for key, tensor in state.items():
                same = key in back and back[key].dtype == tensor.dtype and back[key].shape == tensor.shape
                check(f"{what} {key}", same and raw(back[key]) == raw(tensor))
            done = run("convert", source, again, "--force")
            check(f"{what} to torch", done.returncode == 0, done.stderr)
            loaded = torch.load(again, weights_only=True)
            check(f"{what} order", list(loaded) == list(state), list(loaded))
            for key, tensor in state.items():
                check(f"{what} {key} again", loaded[key].dtype == tensor.dtype and raw(loaded[key]) == raw(tensor))


with tempfile.TemporaryDirectory() as name:
    loads_what_was_written(Path(name))
    opens_what_torch_writes(Path(name))
print(f"torch {torch.__version__}: {passed} passed, {failed} failed")
sys.exit(1 if failed else 0)
