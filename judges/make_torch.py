"""Makes testdata/torch with PyTorch 2.2.2: good/*.pt with good/expected.json, bad/*.pt.

usage: make_torch.py
"""

import collections
import functools
import io
import json
import os
import pickle
import zipfile
from pathlib import Path

import numpy as np
import torch

ROOT = Path(__file__).resolve().parent.parent / "testdata" / "torch"
GOOD, BAD = ROOT / "good", ROOT / "bad"
NAMES = {
    torch.float32: "f32", torch.float64: "f64", torch.float16: "f16", torch.bfloat16: "bf16", torch.int64: "i64",
    torch.int32: "i32", torch.int16: "i16", torch.int8: "i8", torch.uint8: "u8", torch.bool: "bool",
    torch.complex64: "c64", torch.complex128: "c128", torch.float8_e4m3fn: "f8_e4m3", torch.float8_e5m2: "f8_e5m2",
}
expected = {}


def saved(thing, legacy=False):
    stream = io.BytesIO()
    torch.save(thing, stream, _use_new_zipfile_serialization=not legacy)
    return stream.getvalue()


def raw(tensor):
    tensor = tensor.detach().contiguous()
    return bytes(tensor.reshape(-1).view(torch.uint8).numpy()).hex() if tensor.numel() else ""


def put(name, data, tensors, kind="state_dict"):
    (GOOD / name).write_bytes(data)
    expected[name] = {
        "kind": kind,
        "tensors": [
            {"name": key, "dtype": NAMES[t.dtype], "shape": list(t.shape), "hex": raw(t)} for key, t in tensors.items()
        ],
    }


def both(name, thing, tensors=None, kind="state_dict"):
    put(f"{name}.pt", saved(thing), thing if tensors is None else tensors, kind)
    put(f"{name}_legacy.pt", saved(thing, True), thing if tensors is None else tensors, kind)


def rezipped(data, method=zipfile.ZIP_STORED, folder="archive", edit=lambda name, data: data, add=()):
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w", method) as new:
        for name in old.namelist():
            content = edit(name, old.read(name))
            if content is not None:
                new.writestr(zipfile.ZipInfo(name.replace("archive", folder, 1)), content, method)
        for name, content in add:
            new.writestr(zipfile.ZipInfo(name), content)
    return out.getvalue()


class Sub(torch.Tensor):
    pass


Two = collections.namedtuple("Two", "a b")


class Argued:
    """Says how it is made: with a tensor as an argument."""

    def __reduce__(self):
        return Argued, (torch.arange(3.0),)


class Call:
    def __reduce__(self):
        return os.system, ("true",)


def composites():
    """Tensors that are several in the index, and arrays of numpy: what is saved, what is listed, and the kind."""
    table = torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.0, -0.25]])
    whole = torch.quantize_per_tensor(table, 0.05, 3, torch.quint8)
    wide = torch.quantize_per_tensor(table[0], 0.001, -7, torch.qint32)
    scales, zeros = torch.tensor([0.1, 0.2], dtype=torch.float64), torch.tensor([0, 5])
    rows = torch.quantize_per_channel(table, scales, zeros, 0, torch.qint8)
    quantized = {
        "q": whole.int_repr(), "q.scale": torch.tensor(0.05, dtype=torch.float64), "q.zero_point": torch.tensor(3),
        "b": torch.ones(2), "layer.wide": wide.int_repr(), "layer.wide.scale": torch.tensor(0.001, dtype=torch.float64),
        "layer.wide.zero_point": torch.tensor(-7), "rows": rows.int_repr(), "rows.scale": scales, "rows.zero_point": zeros,
    }
    yield "quantized", {"q": whole, "b": torch.ones(2), "layer.wide": wide, "rows": rows}, quantized, "state_dict"
    coo = torch.sparse_coo_tensor(torch.tensor([[0, 0, 1], [2, 2, 0]]), torch.tensor([1.0, 2.0, 3.0]), (2, 3))
    hybrid = torch.sparse_coo_tensor(torch.tensor([[1, 0]]), table, (4, 3)).coalesce()
    csr, csc, bsr = table.to_sparse_csr(), table.to_sparse_csc(), torch.eye(4).to_sparse_bsr((2, 2))
    sparse = {
        "coo.indices": coo._indices(), "coo.values": coo._values(),
        "emb.weight.indices": hybrid.indices(), "emb.weight.values": hybrid.values(),
        "csr.crow_indices": csr.crow_indices(), "csr.col_indices": csr.col_indices(), "csr.values": csr.values(),
        "csc.ccol_indices": csc.ccol_indices(), "csc.row_indices": csc.row_indices(), "csc.values": csc.values(),
        "bsr.crow_indices": bsr.crow_indices(), "bsr.col_indices": bsr.col_indices(), "bsr.values": bsr.values(),
    }
    yield "sparse", {"coo": coo, "emb.weight": hybrid, "csr": csr, "csc": csc, "bsr": bsr}, sparse, "state_dict"
    shared = np.arange(6, dtype=np.float32).reshape(2, 3)
    arrays = {
        "w": torch.ones(2), "a": shared, "again": shared, "turned": np.asfortranarray(shared), "scalar": np.array(2.5),
        "big": np.array([1, 2], dtype=">i4"), "long": np.arange(3000, dtype=np.int64), "empty": np.zeros((0, 2)),
        "deep": [{"x": np.array([True, False])}],
    }
    listed = {key: value if isinstance(value, torch.Tensor) else torch.from_numpy(np.ascontiguousarray(value.astype(value.dtype.newbyteorder("="))).reshape(value.shape))
              for key, value in arrays.items() if key != "deep"}
    listed["deep.0.x"] = torch.tensor([True, False])
    yield "arrays", arrays, listed, "object"


def main():
    GOOD.mkdir(parents=True, exist_ok=True)
    BAD.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    base = torch.arange(24.0).reshape(4, 6)
    plain = {"a.weight": torch.randn(2, 3), "a.bias": torch.randn(3)}
    both("plain", plain)
    both("types", {NAMES[t].replace("_", ""): torch.tensor([0, 1, 1, 0]).to(t) for t in NAMES})
    both("ends", {"empty": torch.zeros(0, 3), "scalar": torch.tensor(1.5), "nan": torch.tensor([float("nan"), -0.0])})
    both("views", {"rows": base[1:3], "columns": base[:, 2:5], "steps": base[::2, ::3], "turned": base.t(),
                   "whole": base, "spread": base[:1, :].expand(3, 6),
                   "permuted": torch.arange(24).reshape(2, 3, 4).permute(2, 0, 1),
                   "last": torch.arange(48.0).reshape(1, 3, 4, 4).to(memory_format=torch.channels_last),
                   "windows": torch.arange(5).unfold(0, 3, 1)})
    tied = torch.ones(2, 2)
    both("tied", {"a": tied, "b": tied, "c": tied.view(2, 2)})
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    both("module_state", model.state_dict())
    both("parameter", {"p": torch.nn.Parameter(torch.ones(2)), "s": torch.ones(2).as_subclass(Sub)})
    parameter, scaled = torch.nn.Parameter(torch.ones(2)), torch.ones(3)
    parameter.main_grad, parameter.tag, scaled.scale = torch.full((2,), 7.0), 5, torch.full((3,), 0.5)
    scaled.scale.of = "rows"
    both("attributes", {"p": parameter, "t": scaled, "p.main_grab": torch.zeros(1), "tied": parameter}, {
        "p": parameter, "t": scaled, "p.main_grab": torch.zeros(1), "tied": parameter,
        "p.main_grad": parameter.main_grad, "t.scale": scaled.scale,
    }, "object")
    optimizer = torch.optim.Adam(model.parameters(), lr=0.5)
    model(torch.randn(4, 3)).sum().backward()
    optimizer.step()
    state = optimizer.state_dict()
    tensors = {f"model.{k}": v for k, v in model.state_dict().items()}
    for number, slots in state["state"].items():
        tensors.update({f"optimizer.state.{number}.{k}": v for k, v in slots.items()})
    both("nested", {"model": model.state_dict(), "optimizer": state, "epoch": 3, "note": "text" * 100,
                    "list": [1, 2.5, None, True]}, tensors, "object")
    both("module", torch.nn.Linear(2, 2), {}, "object")
    for name in ["module.pt", "module_legacy.pt"]:
        loaded = torch.load(io.BytesIO((GOOD / name).read_bytes()))
        put(name, (GOOD / name).read_bytes(), dict(loaded.named_parameters()), "object")
    both("lone", torch.arange(3), {"value": torch.arange(3)}, "object")
    data = saved(plain)
    put("deflated.pt", rezipped(data, zipfile.ZIP_DEFLATED), plain)
    put("folder.pt", rezipped(data, folder="other name"), plain)
    cuda = lambda name, d: d.replace(b"X\x03\0\0\0cpu", b"X\x06\0\0\0cuda:0") if name.endswith("data.pkl") else d
    put("cuda.pt", rezipped(data, edit=cuda), plain)

    def big(name, content):
        if name.endswith("byteorder"):
            return b"big"
        return np.frombuffer(content, "<f4").astype(">f4").tobytes() if "/data/" in name else content

    put("big.pt", rezipped(data, edit=big), plain)
    one, other, third = torch.arange(4.0).reshape(2, 2), torch.ones(2), torch.arange(2)
    arguments = {"two": Two(one, other), "argued": Argued(), "partial": functools.partial(print, third, end=other + 1)}
    put("arguments.pt", saved(arguments), {
        "two.0": one, "two.1": other, "argued.0": torch.arange(3.0), "partial.1.0": third, "partial.end": other + 1,
    }, "object")
    for name, thing, tensors, kind in composites():
        both(name, thing, tensors, kind)
    script = io.BytesIO()
    linear = torch.nn.Linear(2, 2)
    torch.jit.save(torch.jit.script(linear), script)
    small = rezipped(script.getvalue(), edit=lambda n, d: None if "debug_pkl" in n else d)
    put("script.pt", small, dict(linear.named_parameters()), "object")
    bad = {
        "evil.pt": saved({"x": torch.ones(2), "y": Call()}),
        "evil_legacy.pt": saved({"x": torch.ones(2), "y": Call()}, True),
        "no_storage.pt": rezipped(data, edit=lambda n, d: None if n.endswith("/data/0") else d),
        "short_storage.pt": rezipped(data, edit=lambda n, d: d[:-4] if n.endswith("/data/0") else d),
        "outside.pt": rezipped(data, edit=lambda n, d: d.replace(b"K\x02K\x03\x86", b"K\x03K\x03\x86")),
        "crc.pt": data.replace(b"a.weight", b"a.wEight", 1),
        "conjugated.pt": saved({"x": torch.ones(2, dtype=torch.complex64).conj()}),
        "objects.pt": saved({"w": torch.ones(2), "x": np.array([1, "a"], dtype=object)}),
        "nested.pt": saved({"w": torch.ones(2), "x": torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])}),
        "cut_legacy.pt": saved(plain, True)[:-3],
    }
    for name, content in bad.items():
        (BAD / name).write_bytes(content)
    base = torch.arange(6.0).reshape(2, 3)
    pickled = {"w": base, "turned": base.t(), "half": base.half(), "p": torch.nn.Parameter(torch.ones(2)), "deep": [{"n": torch.arange(300)}],
               "skipped": base.to_sparse(), "epoch": 3}
    (ROOT / "pickled.pkl").write_bytes(pickle.dumps(pickled, 4))
    lines = ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in expected.items())
    (GOOD / "expected.json").write_text("{\n" + lines + "\n}\n")


main()
