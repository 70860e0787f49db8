"""Judge of torch files: PyTorch loads what Weighbridge wrote, and Weighbridge opens what PyTorch wrote; both compared
bit for bit with what numpy, safetensors and torch itself read.

usage: torch_judge.py PATH-OF-THE-COMMAND    (needs torch 2.2 or later, numpy, safetensors)
"""

import argparse
import collections
import datetime
import itertools
import json
import pathlib
import pickle
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
        done = run("convert", source, target, "--force", "--allow-loss")
        if done.returncode != 0:
            # Only what torch has no type for may be refused.
            check(f"{what} is written", "does not support" in done.stderr, done.stderr)
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


def keeps_parameters(folder):
    """Parameters of every type that takes gradients, tied ones too, are loaded again and require gradients as they did."""
    types = [t for t in NAMES if t.is_floating_point or t.is_complex]
    numbers = torch.tensor([[0.0, 1.0], [1.0, -2.0]])
    state = {f"{NAMES[t]}.{grad}": torch.nn.Parameter(numbers.to(t), requires_grad=grad) for t in types for grad in (True, False)}
    state.update({f"{name} tied": tensor for name, tensor in list(state.items())})
    state.update({NAMES[t]: torch.nn.Parameter(torch.tensor([0, 1]).to(t), requires_grad=False) for t in NAMES if t not in types})
    source, again = folder / "p.pt", folder / "q.pt"
    for legacy in (False, True):
        torch.save(state, source, _use_new_zipfile_serialization=not legacy)
        done = [run("convert", source, again, "--force"), run("edit", source, "--in-place=rewrite", "--rename", "f32.True=one")]
        check("parameters are written", all(d.returncode == 0 for d in done), [d.stderr for d in done])
        for path in (again, source):
            loaded = torch.load(path, weights_only=True)
            check("parameters", len(loaded) == len(state), list(loaded))
            for (name, tensor), (key, own) in zip(loaded.items(), state.items()):
                same = (tensor.dtype, tensor.requires_grad) == (own.dtype, own.requires_grad) and raw(tensor) == raw(own)
                check(f"parameter {key}", same, (name, tensor))


class Net(torch.nn.Module):
    """Layers with buffers, weights that are tied, and as many matrices of one shape as mix-ups need."""

    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = (torch.nn.Linear(6, 6) for _ in range(3))
        self.conv, self.bn = torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4)
        self.emb, self.out = torch.nn.Embedding(10, 6), torch.nn.Linear(6, 10, bias=False)
        self.out.weight = self.emb.weight

    def forward(self, x):
        y = self.out(self.fc3(torch.relu(self.fc2(self.fc1(x)))))
        return y.sum() + self.bn(self.conv(torch.randn(2, 3, 8, 8))).pow(2).sum()


def keeps_state_in_step(folder):
    """Training checkpoints: state is that of the parameter that torch would give it to, or of none that is known."""
    torch.manual_seed(2)
    rank = lambda wanted: lambda net: [p for p in net.parameters() if (p.dim() > 1) == wanted]
    decayed = lambda net: [{"params": rank(True)(net)}, {"params": rank(False)(net), "weight_decay": 0}]
    halves = lambda net: [{"params": list(net.fc2.parameters())}, {"params": list(net.fc1.parameters())}]
    # What is optimized, by which optimizer, and whether whose state it is can be known.
    cases = {
        "adam": (lambda net: torch.optim.Adam(net.parameters()), True),
        "amsgrad": (lambda net: torch.optim.AdamW(net.parameters(), amsgrad=True), True),
        "sgd": (lambda net: torch.optim.SGD(net.parameters(), 0.1, momentum=0.9), True),
        "rmsprop": (lambda net: torch.optim.RMSprop(net.parameters(), centered=True), True),
        "nadam": (lambda net: torch.optim.NAdam(net.parameters()), True),
        "asgd": (lambda net: torch.optim.ASGD(net.parameters()), True),
        "adagrad": (lambda net: torch.optim.Adagrad(net.parameters()), True),
        "decayed": (lambda net: torch.optim.AdamW(decayed(net)), True),
        "halves": (lambda net: torch.optim.Adam(halves(net)), False),
        "part": (lambda net: torch.optim.Adam(net.fc2.parameters()), False),
        "conv": (lambda net: torch.optim.Adam([net.conv.weight]), True),
    }
    for name, (make, known) in cases.items():
        for legacy in (False, True):
            what, net = f"{name}{' legacy' if legacy else ''}", Net()
            optimizer = make(net)
            net(torch.randn(4, 6)).backward()
            optimizer.step()
            source, turned, bridge, again = (folder / f for f in ("c.pt", "t.pt", "c.safetensors", "again.pt"))
            saved = {"model": net.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}
            torch.save(saved, source, _use_new_zipfile_serialization=not legacy)
            names = {id(p): f"model.{n}" for n, p in net.named_parameters()}
            owners = [names[id(p)] for group in optimizer.param_groups for p in group["params"]]
            found = {t["name"]: t for t in listed(source)["tensors"]}
            state = {n: t for n, t in found.items() if n.startswith("optimizer.")}
            check(f"{what} roles", state and all(t["role"] == "optimizer" for t in state.values()))
            for key, entry in state.items():
                owner = owners[int(key.split(".")[2])]
                check(f"{what} {key}", entry.get("state_of") == (owner if known else None), entry)
            # Element (i, j) of the parameter and of its state stay together.
            target = "model.conv.weight" if name == "conv" else "model.fc2.weight"
            axes = (3, 1, 0, 2) if name == "conv" else (1, 0)
            rule = f"{target}={','.join(map(str, axes))}"
            done = run("edit", source, turned, "--force", "--transpose", rule)
            told = "state-not-transposed" in done.stderr + done.stdout
            check(f"{what} transposed", done.returncode == 0 and told != known, done.stderr + done.stdout)
            denied = run("edit", source, turned, "--force", "--transpose", rule, "--deny-loss")
            check(f"{what} denied", "state-not-transposed" in denied.stderr or known, denied.stderr)
            loaded, flat = torch.load(turned, weights_only=True), torch.load(source)
            for key, tensor in loaded.items():
                if key.startswith("model."):
                    original, owner = flat["model"][key[len("model."):]], key
                else:
                    _, _, number, slot = key.split(".")
                    original = flat["optimizer"]["state"][int(number)][slot]
                    owner = owners[int(number)] if known else None
                if owner == target and original.dim() == len(axes):
                    original = original.permute(axes)
                check(f"{what} {key} elements", tensor.shape == original.shape and raw(tensor) == raw(original))
            # By way of another form it is the same, but for weights that are tied, which are written twice there.
            done = [run("convert", *words, "--force") for words in ((source, bridge), (bridge, again), (source, turned))]
            check(f"{what} there and back", all(d.returncode == 0 for d in done), [d.stderr for d in done])
            known_of = lambda t: [t.get(key) for key in ("name", "role", "shape", "sha256", "state_of", "state_of_guessed")]
            both = [[known_of(t) for t in listed(file)["tensors"]] for file in (source, turned, again)]
            check(f"{what} the same", both[0] == both[1] == both[2], both)
            dropped = run("convert", source, bridge, "--force", "--no-state")
            check(f"{what} dropped", all(t["name"].startswith("model.") for t in listed(bridge)["tensors"]), dropped.stderr)


def bytes_behind(folder):
    """torch and numpy load what has other bytes behind its archive; so does a lenient reading, up to 64 KiB."""
    state = {"a": torch.randn(5, 4), "b": torch.arange(3)}
    path, table = folder / "b.pt", folder / "b.npz"
    torch.save(state, path)
    np.savez(table, a=state["a"].numpy())
    # How far torch looks depends on the length of the file: it reads backwards in blocks.
    for file, load, most in ((path, torch.load, 40000), (table, lambda p: dict(np.load(p)), 65535)):
        whole = file.read_bytes()
        for more in (1, 100, most):
            file.write_bytes(whole + b"\7" * more)
            check(f"{file.name} and {more} bytes", list(load(file)) == [t["name"] for t in json.loads(
                run("ls", file, "--json", "--lenient").stdout)["tensors"]])
            report = json.loads(run("verify", file, "--json").stdout)
            codes = [f["code"] for f in report["findings"] if f["severity"] == "error"]
            check(f"{file.name} and {more} bytes told", codes == ["trailing-bytes"] and report["verdict"] == "unsound", codes)


class Config:
    """An object of a class of one's own."""

    def __init__(self):
        self.layers, self.name = [1, 2], "small"


def tells_what_tensors_stand_in(folder):
    """What Python holds for unequal is a difference, and what it holds for equal is none: kinds of containers and keys."""
    a, b = torch.arange(6.0), torch.arange(3)
    shapes = {
        "list": [a, b], "tuple": (a, b), "numbers": {0: a, 1: b}, "texts": {"0": a, "1": b},
        "ordered": collections.OrderedDict([("0", a), ("1", b)]),
    }
    values = {"list": [1, 2], "tuple": (1, 2), "set": {1, 2}, "size": torch.Size([1, 2]), "frozen": frozenset([1, 2]),
              "numbers": {1: 2}, "texts": {"1": 2}}
    alike = [{"texts", "ordered"}, {"tuple", "size"}, {"set", "frozen"}]
    one, other = folder / "one.pt", folder / "other.pt"

    def code(left, right, legacy):
        torch.save(left, one, _use_new_zipfile_serialization=not legacy)
        torch.save(right, other)
        return run("diff", one, other).returncode

    for legacy in (False, True):
        for left, right in itertools.product(shapes, repeat=2):
            same = left == right or {left, right} in alike
            check(f"{left} and {right}", code(shapes[left], shapes[right], legacy) == (0 if same else 1))
            inner = code({"a": {"b": shapes[left]}, "c": b}, {"a": {"b": shapes[right]}, "c": b}, legacy)
            check(f"{left} and {right} within", inner == (0 if same else 1))
        for left, right in itertools.product(values, repeat=2):
            same = left == right or {left, right} in alike or values[left] == values[right]
            found = code({"w": a, "m": [values[left]]}, {"w": a, "m": [values[right]]}, legacy)
            check(f"values {left} and {right}", found == (0 if same else 1), found)
    # By way of another form there are flat names: no difference but of the root, which is a dict by then.
    for name, root in (("list", {"a": [a, b], "m": (1, 2), "o": {"state": {0: {"x": a}}}}), ("root", [a, b])):
        torch.save(root, one)
        run("convert", one, folder / "b.safetensors", "--force")
        run("convert", folder / "b.safetensors", other, "--force")
        check(f"{name} as safetensors", run("diff", one, folder / "b.safetensors").returncode == 0)
        check(f"{name} there and back", run("diff", one, other).returncode == (1 if name == "root" else 0))


class Parts(torch.nn.Module):
    """What has an observer, which reads its tensors by its version, and a norm, in places that are told."""

    def __init__(self, parts):
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)


def keeps_versions(folder):
    """The versions of modules go along where tensors get other names and other forms, so that torch loads the same values."""
    from torch.ao.quantization import MinMaxObserver

    one, other = folder / "one.pt", folder / "other.pt"
    eps = lambda value=1e-7: MinMaxObserver(eps=value)

    def loaded(net, path=other):
        state = torch.load(path)
        net.load_state_dict(state, strict=True)
        return getattr(state, "_metadata", None)

    torch.save(eps(0.5).state_dict(), one)
    run("edit", one, other, "--prefix", "net", "--force", "--deny-loss")
    net = Parts({"net": eps()})
    versions = loaded(net)
    check("prefix", net.net.eps == 0.5 and list(versions) == ["net"], versions)
    run("edit", other, "--in-place=rewrite", "--strip-prefix", "net")
    net = eps()
    check("the prefix taken away", loaded(net) == {"": {"version": 3}} and net.eps == 0.5)
    # By way of other forms.
    for form in ("safetensors", "npz", "h5"):
        check(f"to {form}", run("convert", one, folder / f"b.{form}", "--force", "--deny-loss").returncode == 0)
        run("convert", folder / f"b.{form}", other, "--force", "--deny-loss")
        net = eps()
        check(f"by way of {form}", loaded(net) == {"": {"version": 3}} and net.eps == 0.5)
        check(f"the same by way of {form}", run("diff", one, other).returncode == 0)
    torch.save(dict(torch.load(one)), other)
    check("versions that are gone are a difference", run("diff", one, other).returncode == 1)
    # A norm and an observer change places, and what has no tensors stays.
    norm = torch.nn.BatchNorm1d(2)
    norm.num_batches_tracked += 7
    net = torch.nn.Sequential(norm, eps(0.5), torch.nn.ReLU())
    torch.save(net.state_dict(), one)
    done = run("edit", one, other, "--rename", "0=1", "--rename", "1=0", "--force", "--deny-loss")
    net = torch.nn.Sequential(eps(), torch.nn.BatchNorm1d(2), torch.nn.ReLU())
    check("swapped", done.returncode == 0 and sorted(loaded(net)) == ["", "0", "1", "2"], done.stderr)
    check("swapped values", net[0].eps == 0.5 and net[1].num_batches_tracked == 7)
    done = run("edit", one, other, "--rename", "1=x.eps", "--rename", "0=y.bn", "--force", "--deny-loss")
    net = Parts({"x": Parts({"eps": eps()}), "y": Parts({"bn": torch.nn.BatchNorm1d(2)})})
    check("deeper", loaded(net)["x.eps"]["version"] == 3 and net.x.eps.eps == 0.5, done.stderr)
    # Apart: torch reads what has no version as an old one.
    done = run("edit", one, other, "--rename", "1.eps=2.eps", "--force", "--deny-loss")
    check("an observer in two parts", done.returncode == 2 and "module-versions" in done.stderr, done.stderr)
    # A state dict within a checkpoint, alone.
    torch.save({"model": net.state_dict(), "epoch": 3}, one)
    done = run("edit", one, other, "--strip-prefix", "model", "--force")
    net = Parts({"x": Parts({"eps": eps()}), "y": Parts({"bn": torch.nn.BatchNorm1d(2)})})
    check("out of a checkpoint", loaded(net)[""] == {"version": 1} and net.x.eps.eps == 0.5, done.stderr)
    run("convert", one, other, "--force")
    net = Parts({"model": Parts({"x": Parts({"eps": eps()}), "y": Parts({"bn": torch.nn.BatchNorm1d(2)})})})
    check("a checkpoint as a flat dict", "model.x.eps" in loaded(net) and net.model.x.eps.eps == 0.5)
    # Joined, below the names of the files.
    torch.save(eps(0.5).state_dict(), folder / "a.pt")
    torch.save(norm.state_dict(), folder / "b.pt")
    done = run("merge", folder / "a.pt", folder / "b.pt", "-o", other, "--prefix-each", "--force", "--deny-loss")
    net = Parts({"a": eps(), "b": torch.nn.BatchNorm1d(2)})
    check("merged", loaded(net) == {"a": {"version": 3}, "b": {"version": 2}} and net.a.eps == 0.5, done.stderr)
    done = run("merge", folder / "a.pt", folder / "b.pt", "-o", other, "--force")
    check("two at the root", "metadata-conflict" in done.stderr + done.stdout, done.stderr)


def tells_what_is_no_text(folder):
    """What is told as a text, and is none, is another thing than the text; a tensor alone is no dict. Both forms are alike."""
    one, other = folder / "one.pt", folder / "other.pt"
    w = torch.ones(2)
    texts = {torch.float32: "torch.float32", torch.device("cpu"): "cpu"}
    pairs = [(w, {"value": w}), (w, [w])] + [({"w": w, "s": [a]}, {"w": w, "s": [b]}) for a, b in texts.items()]
    layers = [torch.nn.Linear(2, 2), torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))]
    for legacy in (False, True):
        for left, right in pairs:
            torch.save(left, one, _use_new_zipfile_serialization=not legacy)
            torch.save(right, other)
            check(f"{left} and {right}", run("diff", one, other).returncode == 1)
        for root in [left for left, _ in pairs] + layers:
            torch.save(root, one, _use_new_zipfile_serialization=not legacy)
            torch.save(root, other)
            # Of a module all but the tensors is left out, so that it cannot be told whether it is the same.
            wanted = 3 if isinstance(root, torch.nn.Module) else 0
            check(f"{root} in both forms", run("diff", one, other).returncode == wanted)


def keeps_what_stands_beside(folder):
    """Numbers of numpy and objects of plain values are metadata, to the bit; a checkpoint with them is sound."""
    path, again = folder / "c.pt", folder / "c.safetensors"
    numbers = {"f64": np.float64(0.1), "f32": np.float32(0.1), "i64": np.int64(-(2**63)), "u8": np.uint8(255), "b": np.bool_(True),
               "f16": np.float16(0.1), "big": np.dtype(">f8").type(0.1)}
    beside = {
        "epoch": 3, "best": numbers, "args": argparse.Namespace(lr=np.float64(0.5), name="x", at=datetime.datetime(2020, 1, 2)),
        "path": pathlib.PurePosixPath("a/b"), "counts": collections.Counter("abc"), "config": Config(),
        "by": collections.defaultdict(int, {"a": 1}),
    }
    for legacy in (False, True):
        torch.save({"model": {"w": torch.arange(6.0)}, **beside}, path, _use_new_zipfile_serialization=not legacy)
        report = json.loads(run("verify", path, "--json").stdout)
        check("beside is sound", report["verdict"] == "sound", report["findings"])
        for file in (path, again):
            told = json.loads(run("info", file, "--json").stdout)["metadata"]
            for key, number in numbers.items():
                found = type(number)(told["best"][key]) if key != "b" else np.bool_(told["best"][key])
                check(f"{key} of {file.name}", found.tobytes() == number.tobytes(), told["best"])
            check("args", told["args"]["@class"] == "argparse.Namespace" and told["args"]["state"]["lr"] == 0.5, told["args"])
            check("config", told["config"] == {"@class": "__main__.Config", "state": {"layers": [1, 2], "name": "small"}})
            check("by", told["by"]["pairs"] == {"a": 1}, told["by"])
            done = run("convert", path, again, "--force")
            check("nothing is left out", "omitted" not in done.stderr + done.stdout, done.stderr)
        check("beside is the same", run("diff", path, again).returncode == 0)
        beside["args"].lr = np.float64(0.25)
        torch.save({"model": {"w": torch.arange(6.0)}, **beside}, folder / "d.pt")
        check("another value is one", run("diff", path, folder / "d.pt").returncode == 1)
        beside["args"].lr = np.float64(0.5)


def opens_many_small_views(folder):
    """Tensors of one element, 40,000 of them: a small file, which is read with the others."""
    path = folder / "views.pt"
    big = torch.arange(40000.0)
    for what, root in {
        "unbound": list(big.unbind()),
        "parts": [big[i:i + 1] for i in range(len(big))],
        "named": {f"layer.{i}.w": big[i:i + 1] for i in range(len(big))},
        "whole": {"flat": big, "parts": list(big.unbind())},
        "overlapping": [big[i:i + 2] for i in range(len(big) - 1)],
    }.items():
        for legacy in (False, True):
            torch.save(root, path, _use_new_zipfile_serialization=not legacy)
            check(f"{what} is small", path.stat().st_size < 6_000_000)
            index = listed(path)
            tensors = index["tensors"] if index else []
            check(f"{what} opens", len(tensors) >= len(big) - 1)
            check(f"{what} is sound", run("verify", path).returncode == 0)
    show = run("show", path, "39998")
    check("the last one", show.returncode == 0 and "39998" in show.stdout and "39999" in show.stdout, show.stdout + show.stderr)


def quantized():
    """{name: quantized tensor} of all schemes and types that are read."""
    table = torch.randn(4, 6, 2)
    tensors = {f"whole {t}": torch.quantize_per_tensor(table, 0.03, 2, t) for t in (torch.qint8, torch.quint8, torch.qint32)}
    for axis in (0, 1, 2):
        scales = torch.rand(table.shape[axis], dtype=torch.float64) + 0.01
        zeros = torch.randint(0, 5, (table.shape[axis],))
        for t in (torch.qint8, torch.quint8, torch.qint32):
            tensors[f"axis {axis} {t}"] = torch.quantize_per_channel(table, scales, zeros, axis, t)
    rows = torch.rand(5, 4)
    tensors["float"] = torch.quantize_per_channel(rows, torch.rand(5) + 0.01, torch.rand(5), 0, torch.quint8)
    tensors["turned"] = tensors["whole torch.qint8"].transpose(0, 1)
    tensors["empty"] = torch.quantize_per_tensor(torch.zeros(0, 3), 0.5, 0, torch.qint8)
    return tensors


def sparse():
    """{name: sparse tensor} of all layouts."""
    table = torch.tensor([[0.0, 1.5, 0.0, -2.0], [0.0] * 4, [3.0, 0.0, 0.0, 0.25], [0.0, 0.0, 7.0, 0.0]])
    twice = torch.sparse_coo_tensor(torch.tensor([[1, 1, 0], [2, 2, 3]]), torch.tensor([1.0, 2.0, 3.0]), (2, 4))
    return {
        "coo": twice, "coalesced": twice.coalesce(), "hybrid": torch.sparse_coo_tensor(torch.tensor([[2, 0]]), table[:2], (5, 4)),
        "none": torch.sparse_coo_tensor((2, 3)), "half": table.half().to_sparse(), "counts": (table * 4).long().to_sparse(),
        "csr": table.to_sparse_csr(), "csc": table.to_sparse_csc(), "bsr": table.to_sparse_bsr((2, 2)), "bsc": table.to_sparse_bsc((2, 2)),
        "batch": torch.stack([table, table * 2]).to_sparse_csr(),
        "short": torch.sparse_csr_tensor(torch.tensor([0, 1, 2], dtype=torch.int32), torch.tensor([1, 0], dtype=torch.int32), torch.ones(2), (2, 2)),
        "trained": torch.nn.Parameter(twice.coalesce()),
    }


def meaning(tensor):
    """All that torch says of a quantized or sparse tensor."""
    common = (tensor.dtype, tensor.layout, tuple(tensor.shape), tensor.is_quantized, tensor.is_sparse, tensor.requires_grad)
    if tensor.is_quantized:
        scheme = tensor.qscheme()
        if scheme == torch.per_tensor_affine:
            more = (tensor.q_scale(), tensor.q_zero_point())
        else:
            more = (raw(tensor.q_per_channel_scales()), raw(tensor.q_per_channel_zero_points()), tensor.q_per_channel_axis())
        return (*common, scheme, raw(tensor.int_repr()), *more)
    if tensor.layout == torch.sparse_coo:
        return (*common, tensor.is_coalesced(), tensor._indices().tolist(), tensor._values().dtype, raw(tensor._values()))
    if tensor.layout == torch.strided:
        return (*common, raw(tensor))
    by_row = tensor.layout in (torch.sparse_csr, torch.sparse_bsr)
    indices = (tensor.crow_indices(), tensor.col_indices()) if by_row else (tensor.ccol_indices(), tensor.row_indices())
    return (*common, *((i.dtype, i.tolist()) for i in indices), raw(tensor.values()))


def keeps_composites(folder):
    """Quantized and sparse tensors are parts in other formats, and the same tensors again in torch."""
    torch.manual_seed(3)
    source, again = folder / "c.pt", folder / "again.pt"
    state = {**quantized(), **sparse(), "dense": torch.ones(2), "tied": None}
    state["tied"] = state["whole torch.quint8"]
    wanted = {name: meaning(tensor) for name, tensor in state.items()}
    for legacy in (False, True):
        torch.save(state, source, _use_new_zipfile_serialization=not legacy)
        told = run("info", source)
        check("composites are noted", all(f"{kind} tensors (" in told.stdout and "listed as" in told.stdout for kind in ("quantized", "sparse")), told.stdout)
        check("composites are sound", run("verify", source).returncode == 0, run("verify", source).stdout)
        for form in ("pt", "safetensors", "npz", "h5"):
            between = folder / f"between.{form}"
            done = run("convert", source, between, "--force")
            check(f"composites to {form}", done.returncode == 0 and "skipped" not in done.stdout, done.stdout + done.stderr)
            done = run("convert", between, again, "--force")
            check(f"composites from {form}", done.returncode == 0, done.stdout + done.stderr)
            # Torch takes no quantized tensor where it loads weights alone, also of its own making.
            loaded = torch.load(again)
            check(f"names by way of {form}", list(loaded) == list(state), list(loaded))
            for name, tensor in loaded.items():
                check(f"{name} by way of {form}", meaning(tensor) == wanted[name], (meaning(tensor), wanted[name]))
            check(f"the same by way of {form}", run("diff", source, between).returncode == 0, run("diff", source, between).stdout)
        # The parts are what torch says that they are.
        parts = safetensors.torch.load_file(folder / "between.safetensors")
        for name, tensor in quantized().items():
            check(f"{name} has parts", {f"{name}.scale", f"{name}.zero_point"} <= set(parts), list(parts))
        check("int_repr", raw(parts["axis 0 torch.qint8"]) == raw(state["axis 0 torch.qint8"].int_repr()))
        # Under another name, and below a prefix.
        done = run("edit", source, again, "--force", "--rename", "coo=embedding", "--prefix", "net", "--rename", "float=rows")
        check("renamed", done.returncode == 0, done.stdout + done.stderr)
        loaded = torch.load(again)
        check("renamed values", meaning(loaded["net.embedding"]) == wanted["coo"] and meaning(loaded["net.rows"]) == wanted["float"])
    torch.save(sparse(), source)
    run("convert", source, again, "--force")
    loaded = torch.load(again, weights_only=True)
    check("sparse weights alone", all(meaning(tensor) == wanted[name] for name, tensor in loaded.items()), list(loaded))
    # Layers that torch itself quantizes.
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2))
    dynamic = torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, dtype=torch.qint8)
    torch.save(dynamic.state_dict(), source)
    done = run("convert", source, folder / "between.safetensors", "--force")
    check("layers", done.returncode == 0, done.stdout + done.stderr)
    parts = safetensors.torch.load_file(folder / "between.safetensors")
    weight = dynamic.state_dict()["0._packed_params._packed_params"][0]
    check("the weight of a layer", raw(parts["0._packed_params._packed_params.0"]) == raw(weight.int_repr()), list(parts))


def reads_arrays(folder):
    """Arrays of numpy in a checkpoint are tensors, as in a plain pickle."""
    source, target = folder / "a.pt", folder / "a.safetensors"
    arrays = {f"{t}": np.arange(6).reshape(2, 3).astype(t) for t in ("<f4", ">f8", "<i8", ">i2", "u1", "?", "<f2")}
    arrays.update(turned=np.asfortranarray(arrays["<f4"]), steps=np.arange(20.0)[::3], scalar=np.array(1.5), empty=np.zeros((0, 2)),
                  long=np.random.default_rng(1).standard_normal(70000))
    for legacy in (False, True):
        torch.save({"w": torch.ones(2), "arrays": arrays, "rng": np.random.default_rng(0).bit_generator.state}, source,
                   _use_new_zipfile_serialization=not legacy)
        done = run("convert", source, target, "--force")
        check("arrays are read", done.returncode == 0 and "skipped" not in done.stdout, done.stdout + done.stderr)
        with safetensors.safe_open(target, "np") as file:
            for name, array in arrays.items():
                found = file.get_tensor(f"arrays.{name}")
                check(f"array {name}", found.shape == array.shape and bits(found) == bits(array), found)


def reads_pickles(folder):
    """Tensors in a plain pickle are read; those that are not are named, and end a conversion with 1."""
    source, target = folder / "t.pkl", folder / "t.safetensors"
    base = torch.randn(30, 20)
    tensors = {"w": base, "turned": base.t(), "rows": base[3:5], "steps": base[::2, 1], "bf16": base.bfloat16(), "mask": base > 0, "empty": base[:0],
               "trained": torch.nn.Parameter(base[:2].clone()), "long": torch.arange(100000), "scalar": torch.tensor(2.5), "spread": base[:1].expand(3, 20)}
    for protocol in (2, 3, 4, 5):
        source.write_bytes(pickle.dumps({**tensors, "deep": [{"x": base}], "array": np.arange(4), "epoch": 3}, protocol))
        done = run("convert", source, target, "--force")
        found = safetensors.torch.load_file(target) if target.exists() else {}
        named = [name for name in (*tensors, "deep.0.x") if f"`{name}`" in done.stdout]
        check(f"pickle {protocol}", done.returncode == (1 if named else 0), done.stdout + done.stderr)
        check(f"pickle {protocol} is read", not named or protocol == 2, named)
        for name, tensor in {**tensors, "deep.0.x": base}.items():
            own = found.get(name)
            check(f"pickle {protocol} {name}", name in named or (own is not None and own.dtype == tensor.dtype and own.shape == tensor.shape and raw(own) == raw(tensor)))
        check(f"pickle {protocol} verifies", run("verify", source).returncode in ((0, 3) if protocol == 2 else (0,)), run("verify", source).stdout)
    source.write_bytes(pickle.dumps({"s": torch.eye(3).to_sparse()}))
    done = run("convert", source, target, "--force")
    check("a pickle that yields nothing", done.returncode == 1 and "1 tensor skipped: `s`" in done.stdout, done.stdout + done.stderr)


def names_what_it_skips(folder):
    """A tensor that is not in the target is named, and the exit code is 1 unless that is allowed or asked for."""
    source = folder / "s.pt"
    targets = {"convert": folder / "s.safetensors", "edit": folder / "e.pt", "shard": folder / "shards", "merge": folder / "m.npz"}
    kept = {"w": torch.arange(3.0), "epoch": 3, "config": {"a": [1, 2]}}
    lost = {
        "conj": torch.ones(2, dtype=torch.complex64).conj(), "nested": torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
        "objects": np.array([1, "a"], dtype=object), "records": np.zeros(2, dtype=[("a", "<i4")]), "meta": torch.ones(2, device="meta"),
        "packed": torch.quantize_per_channel(torch.rand(4, 4), torch.rand(4) + 0.1, torch.rand(4), 0, torch.quint4x2),
    }
    words = lambda verb: (verb, source, *(("-o",) if verb == "merge" else ()), targets[verb], "--force")
    for legacy in (False, True):
        for name, tensor in lost.items():
            torch.save({**kept, "deep": [{name: tensor}]}, source, _use_new_zipfile_serialization=not legacy)
            full = f"deep.0.{name}"
            for verb in targets:
                done = run(*words(verb))
                check(f"{verb} without {name}", done.returncode == 1 and f"1 tensor skipped: `{full}`" in done.stdout, done.stdout + done.stderr)
                check(f"{verb} may go without {name}", run(*words(verb), "--allow-loss").returncode == 0)
                check(f"{verb} must not go without {name}", run(*words(verb), "--deny-loss").returncode == 2)
            for verb in ("convert", "edit"):
                check(f"{verb} drops {name}", run(*words(verb), "--drop", full).returncode == 0)
            with safetensors.safe_open(targets["convert"], "pt") as file:
                check(f"{name} is not there", list(file.keys()) == ["w"], list(file.keys()))
        torch.save(kept, source, _use_new_zipfile_serialization=not legacy)
        for verb in targets:
            done = run(*words(verb))
            check(f"{verb} of values", done.returncode == 0 and "skipped" not in done.stdout, done.stdout + done.stderr)


def leaves_versions_to_torch(folder):
    """The versions of modules are no difference to a format that has no place for them, unless that is asked for."""
    state, one, other = torch.nn.BatchNorm1d(2).state_dict(), folder / "v.pt", folder / "v.safetensors"
    torch.save(state, one)
    safetensors.torch.save_file(dict(state), other)
    for left, right in ((one, other), (other, one)):
        done = run("diff", left, right)
        check("versions in one format", done.returncode == 0 and "_metadata" in done.stdout, done.stdout)
        check("versions are asked for", run("diff", left, right, "--metadata").returncode == 1)
    torch.save(dict(state), folder / "w.pt")
    check("versions in both formats", run("diff", one, folder / "w.pt").returncode == 1)


def opens_distributed_checkpoints(folder):
    """A folder of torch.distributed.checkpoint opens; another judge compares its values."""
    import torch.distributed.checkpoint as dcp

    path = folder / "dcp"
    dcp.save_state_dict({"w": torch.arange(6.0), "b": torch.ones(3)}, dcp.FileSystemWriter(path), no_dist=True)
    check("it is what is meant", {p.name for p in path.iterdir()} == {".metadata", "__0_0.distcp"})
    for verb, says in (("info", "PyTorch distributed checkpoint"), ("verify", "sound"), ("ls", "w")):
        done = run(verb, path)
        check(f"{verb} of a distributed checkpoint", done.returncode == 0 and says in done.stdout, done.stdout + done.stderr)


with tempfile.TemporaryDirectory() as name:
    loads_what_was_written(Path(name))
    opens_what_torch_writes(Path(name))
    keeps_parameters(Path(name))
    keeps_state_in_step(Path(name))
    bytes_behind(Path(name))
    tells_what_tensors_stand_in(Path(name))
    keeps_versions(Path(name))
    tells_what_is_no_text(Path(name))
    keeps_what_stands_beside(Path(name))
    opens_many_small_views(Path(name))
    keeps_composites(Path(name))
    reads_arrays(Path(name))
    reads_pickles(Path(name))
    names_what_it_skips(Path(name))
    leaves_versions_to_torch(Path(name))
    opens_distributed_checkpoints(Path(name))
print(f"torch {torch.__version__}: {passed} passed, {failed} failed")
sys.exit(1 if failed else 0)
