"""Judge of the Python package: the libraries that own the formats read the same names, types and values, and read what its
faces wrote.

usage: python_judge.py [TESTDATA]

Run with any Python in which the package is installed or on PYTHONPATH, and as many as there are of numpy, safetensors, torch,
h5py, paddlepaddle and torchbiggraph (1.0.0 with torch 2.2). A library that is not installed judges nothing; numpy must be there.
primitiv has no library that could be asked: the JSON beside its golden files was filled by it, and what is written is read
by a few lines here that take nothing but what primitiv takes.
"""

import hashlib
import importlib
import io
import json
import os
import pickle
import platform
import struct
import sys
import tempfile
import warnings
from collections import OrderedDict
from pathlib import Path

import numpy as np

import weighbridge
from weighbridge import biggraph, paddle as paddle_face, primitiv

ROOT = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent / "testdata").resolve()
os.environ.setdefault("GLOG_minloglevel", "3")
warnings.simplefilter("ignore")
passed = failed = 0
versions = []


def check(what, condition, note=""):
    global passed, failed
    passed, failed = passed + bool(condition), failed + (not condition)
    if not condition:
        print("FAILED", what, str(note)[:500])


def attempt(what, work, *words):
    """Does a part of the judgement; an exception in it is one failure."""
    try:
        work(*words)
    except Exception as error:  # a judge goes on
        check(f"{what}: {type(error).__name__}", False, error)


def library(name):
    """The module, or None where it is not installed."""
    try:
        found = importlib.import_module(name)
    except ImportError:
        return None
    versions.append(f"{name} {getattr(found, '__version__', '')}".strip())
    return found


def bits(array):
    """The little-endian bytes of an array, row by row."""
    array = np.asarray(array)
    return np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"), copy=False)).tobytes()


def holds(what, tensor, shape, dtype, content):
    """A tensor of the package has this form and these bytes, as bytes and, where numpy has the type, as an array."""
    check(f"{what} form", (list(tensor.shape), tensor.dtype) == (list(shape), dtype), (tensor, shape, dtype))
    check(f"{what} bytes", tensor.bytes() == content)
    try:
        array = tensor.numpy()
    except weighbridge.UnsupportedError:
        return
    check(f"{what} array", list(array.shape) == list(shape) and bits(array) == content)


NUMPY = {
    "b1": "bool", "u1": "u8", "i1": "i8", "u2": "u16", "i2": "i16", "u4": "u32", "i4": "i32", "u8": "u64", "i8": "i64",
    "f2": "f16", "f4": "f32", "f8": "f64", "c8": "c64", "c16": "c128",
}


def numpys(folder):
    for path in sorted([*(ROOT / "npy" / "good").rglob("*.npy"), *(ROOT / "npz" / "good").rglob("*.npz")]):
        what = path.relative_to(ROOT)
        try:
            loaded = np.load(path)
            arrays = {"value": loaded} if path.suffix == ".npy" else {name: loaded[name] for name in loaded.files}
            # What is no array in an archive, numpy gives as bytes.
            arrays = {name: array for name, array in arrays.items() if isinstance(array, np.ndarray)}
            opened = weighbridge.open(path)
        except (ValueError, weighbridge.Error) as error:
            print("left out", what, str(error).splitlines()[0])
            continue
        # What is left out, such as a member packed in a way that is not known here, is said.
        missing = set(arrays) - set(opened)
        omitted = [note for note in opened.notes if note.omission]
        check(f"{what} names", set(opened) <= set(arrays) and len(missing) <= len(omitted), (list(arrays), list(opened)))
        for name, tensor in opened.items():
            array = arrays[name]
            holds(f"{what} {name}", tensor, array.shape, NUMPY[array.dtype.str[1:]], bits(array))


def safetensors_files(folder):
    names = {"BOOL": "bool", "BF16": "bf16", "F8_E4M3": "f8_e4m3", "F8_E5M2": "f8_e5m2"}
    for path in sorted((ROOT / "safetensors" / "good").rglob("*.safetensors")):
        what = path.relative_to(ROOT)
        try:
            told = dict(safetensors.deserialize(path.read_bytes()))
        except safetensors.SafetensorError as error:
            print("left out", what, error)
            continue
        opened = weighbridge.open(path)
        check(f"{what} names", sorted(told) == sorted(t.name for t in opened.values()), list(opened))
        for name, own in told.items():
            dtype = names.get(own["dtype"], own["dtype"].lower())
            holds(f"{what} {name}", opened[(name,)] if (name,) in paths(opened) else opened[name], own["shape"], dtype, bytes(own["data"]))


def paths(opened):
    return {tensor.path for tensor in opened.values()}


def torch_files(folder):
    names = {f"torch.{own}": name for own, name in (
        ("float32", "f32"), ("float64", "f64"), ("float16", "f16"), ("bfloat16", "bf16"), ("int64", "i64"), ("int32", "i32"),
        ("int16", "i16"), ("int8", "i8"), ("uint8", "u8"), ("bool", "bool"), ("complex64", "c64"), ("complex128", "c128"),
        ("float8_e4m3fn", "f8_e4m3"), ("float8_e5m2", "f8_e5m2"))}
    for path in sorted((ROOT / "torch" / "good").rglob("*.pt")):
        what = path.relative_to(ROOT)
        try:
            loaded = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:  # classes of its own, or a script
            print("left out", what, str(error).splitlines()[0][:80])
            continue
        if isinstance(loaded, torch.nn.Module):
            loaded = loaded.state_dict()
        found = {}
        flatten(loaded, (), found)
        found = {name: tensor for key, own in found.items() for name, tensor in parts(key, own)}
        opened = weighbridge.open(path)
        check(f"{what} names", len(found) == len(opened) and set(found) <= set(opened), (list(found), list(opened)))
        for name in set(found) & set(opened):
            tensor = found[name].detach().resolve_conj().resolve_neg().contiguous()
            content = bytes(tensor.reshape(-1).view(torch.uint8).numpy()) if tensor.numel() else b""
            holds(f"{what} {name}", opened[name], tensor.shape, names[str(tensor.dtype)], content)
            own = opened[name].torch()
            check(f"{what} {name} torch", (own.dtype, own.shape) == (tensor.dtype, tensor.shape))


def parts(name, tensor):
    """The tensors that a sparse one consists of, by the names that the package gives them; any other tensor itself."""
    if tensor.layout == torch.sparse_coo:
        return [(f"{name}.indices", tensor._indices()), (f"{name}.values", tensor._values())]
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        own = [("crow_indices", tensor.crow_indices()), ("col_indices", tensor.col_indices())]
    elif tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        own = [("ccol_indices", tensor.ccol_indices()), ("row_indices", tensor.row_indices())]
    else:
        return [(name, tensor)]
    return [*((f"{name}.{part}", values) for part, values in own), (f"{name}.values", tensor.values())]


def flatten(value, path, found):
    """The tensors in dicts and lists, by the text of their paths."""
    if isinstance(value, torch.Tensor):
        found[".".join(path) or "value"] = value
    elif isinstance(value, dict):
        for key, one in value.items():
            flatten(one, (*path, str(key)), found)
    elif isinstance(value, (list, tuple)):
        for place, one in enumerate(value):
            flatten(one, (*path, str(place)), found)


def hdf5_files(folder):
    for path in sorted([*(ROOT / "hdf5" / "good").glob("*.h5"), *(ROOT / "hdf5" / "small").glob("*.h5")]):
        what = path.relative_to(ROOT)
        opened = weighbridge.open(path, format="hdf5")
        compared = 0
        with h5py.File(path, "r") as file:
            for tensor in opened.values():
                try:
                    dataset = file["/".join(part if isinstance(part, str) else os.fsdecode(part) for part in tensor.path)]
                    array = dataset[()]
                except Exception as error:  # names that h5py cannot be given
                    print("left out", what, tensor.name, str(error)[:60])
                    continue
                if isinstance(array, h5py.Empty):
                    check(f"{what} {tensor.name} is empty", tensor.size == 0)
                    continue
                array = np.asarray(array)
                if array.dtype.kind not in "biufc" or NUMPY.get(array.dtype.str[1:]) != tensor.dtype:
                    check(f"{what} {tensor.name} size", array.size == tensor.size or tensor.dtype == "u8", (array.dtype, tensor))
                    continue
                compared += 1
                holds(f"{what} {tensor.name}", tensor, array.shape, NUMPY[array.dtype.str[1:]], bits(array))
        check(f"{what} was compared", compared > 0 or len(opened) == 0 or "texts" in path.name, len(opened))


def as_arrays(value):
    """What paddle.load gives, with every tensor as an array."""
    if isinstance(value, paddle.Tensor) or type(value).__name__ in ("LoDTensor", "DenseTensor"):
        return np.array(value)
    if isinstance(value, dict):
        return type(value)((key, as_arrays(one)) for key, one in value.items())
    if isinstance(value, (list, tuple)):
        return type(value)(as_arrays(one) for one in value)
    return value


def same(one, other):
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        both = isinstance(one, np.ndarray) and isinstance(other, np.ndarray)
        return both and (one.dtype, one.shape) == (other.dtype, other.shape) and bits(one) == bits(other)
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and (one == other or one != one)


def paddle_files(folder):
    """Paddle loads from the golden pickles what the package loads, and the same from what the package wrote."""
    era = "p262" if paddle.__version__.startswith("2.") else "p331"
    pickles = [p for end in ("pdparams", "pdopt", "pdckpt", "pdtensor", "pd") for p in (ROOT / "paddle" / "good").rglob(f"*.{end}")]
    compared = 0
    for path in sorted(pickles):
        what = path.relative_to(ROOT)
        own = paddle_face.load(path, copy=True)
        try:
            told = as_arrays(paddle.load(str(path)))
        except Exception as error:  # of the other era, or no state that Paddle loads
            check(f"{what} is loaded by its own Paddle", era not in path.parts, error)
            continue
        compared += 1
        check(f"{what} is loaded as Paddle does", same(own, told), (own, told))
        for protocol in (2, 3, 4):
            again = folder / f"{compared}-{protocol}.pdparams"
            paddle_face.save(own, again, protocol, bfloat16=True)
            loaded = paddle.load(str(again))
            check(f"{what} again, protocol {protocol}", same(as_arrays(loaded), told), (loaded, told))
    check("pickles were compared", compared > 40, compared)
    layer = paddle.nn.Sequential(paddle.nn.Linear(4, 3), paddle.nn.BatchNorm1D(3))
    state = {name: np.array(value) for name, value in layer.state_dict().items()}
    paddle_face.save({name: array + 1 for name, array in state.items()}, folder / "layer.pdparams")
    missing = layer.set_state_dict(paddle.load(str(folder / "layer.pdparams")))
    check("a layer takes it", not any(map(len, missing or ((), ()))), missing)
    for name, value in layer.state_dict().items():
        check(f"layer {name}", same(np.array(value), state[name] + 1))
    # Its own tensors, with their own names.
    paddle_face.save(OrderedDict(layer.state_dict()), folder / "own.pdparams")
    table = pickle.loads((folder / "own.pdparams").read_bytes())["StructuredToParameterName@@"]
    check("names of variables", table == {name: value.name for name, value in layer.state_dict().items()}, table)
    # What Paddle writes of its own tensors, byte by byte.
    optimizer = paddle.optimizer.Adam(parameters=layer.parameters(), learning_rate=paddle.optimizer.lr.StepDecay(0.1, 2))
    layer(paddle.ones([2, 4])).sum().backward()
    optimizer.step()
    states = {
        "layer": layer.state_dict(),
        "optimizer": optimizer.state_dict(),
        "nested": {"epoch": 3, "model": layer.state_dict(), "more": (paddle.ones([2]), [1.5, None])},
        "bf16": {"w": paddle.ones([2]).astype("bfloat16")},
    }
    for name, state in states.items():
        for protocol in (2, 3, 4):
            own, told = folder / f"{name}{protocol}.own", folder / f"{name}{protocol}.told"
            paddle.save(state, str(told), protocol=protocol)
            paddle_face.save(state, own, protocol, numpy_version=int(np.__version__.split(".")[0]))
            check(f"{name} byte by byte, protocol {protocol}", own.read_bytes() == told.read_bytes())
    if era == "p262":
        paddle.enable_static()
        for name in ("cnn_static_infer", "seq_jit", "control_flow"):
            program = paddle_face.load_program(ROOT / "paddle" / "good" / "p262" / name / "model.pdmodel")
            for own in (program, program.strip(source=True, unused=True)):
                target = folder / f"{name}{own is program}.pdmodel"
                own.save(target)
                told = paddle.static.deserialize_program(target.read_bytes())
                kinds = [operator.type for block in told.blocks for operator in block.ops]
                check(f"{name} operators", kinds == [operator.type for operator in own.ops], kinds)
                for number, block in enumerate(told.blocks):
                    names = sorted(block.vars)
                    check(f"{name} variables", names == sorted(v.name for v in own.blocks[number].vars), names)
        paddle.disable_static()


def biggraph_files(folder):
    """BigGraph's own manager reads the golden checkpoints as the package does, and what the package wrote."""
    from torchbiggraph.checkpoint_manager import CheckpointManager

    for base in (ROOT / "biggraph" / "set1", ROOT / "biggraph" / "set2"):
        for name in ("ckpt_std_zip", "ckpt_dyn_affine", "ckpt_dyn_complex_diagonal", "ckpt_feat", "ckpt_weighted"):
            golden = biggraph.open(base / name)
            compare_biggraph(f"{base.name}/{name}", CheckpointManager(str(base / name)), golden)
            target = folder / f"{base.name}{name}"
            store = biggraph.CheckpointStore(target, keep=2)
            names = {own: table.names for own, table in golden.items() if table.names is not None}
            store.save(golden)
            state = {own: {slot: t.numpy() for slot, t in slots.items()} for own, slots in golden.state.items()}
            for own, table in golden.items():
                state[own] = table.state["sum"].numpy() + 1
            store.save(
                {own: table.numpy() * 2 for own, table in golden.items()},
                parameters={own: tensor.numpy() for own, tensor in golden.parameters.items()},
                state=state,
                names=names,
                config=golden.config,
                optimizer=golden.optimizer,
            )
            latest = store.latest()
            check(f"{name} versions", len(store.versions) == 2, store.versions)
            manager = CheckpointManager(str(target))
            check(f"{name} version", manager.checkpoint_version == latest.version, manager.checkpoint_version)
            compare_biggraph(f"{name} written", manager, latest)
            for own, table in golden.items():
                check(f"{name} {own} doubled", same(latest[own].numpy(), table.numpy() * 2))


def compare_biggraph(what, manager, checkpoint):
    for name, table in checkpoint.items():
        start = 0
        for part, count in enumerate(table.partitions):
            rows, optimizer = manager.read(name, part)
            check(f"{what} {name} {part}", same(rows.numpy(), table[start : start + count]))
            sums = optimizer["state"][0]["sum"] if isinstance(optimizer, dict) else None
            check(f"{what} {name} {part} sum", sums is not None and same(sums.numpy(), table.state["sum"][start : start + count]))
            start += count
    told, optimizer = manager.read_model()
    keys = {tensor.attributes["state_dict_key"]: tensor for tensor in checkpoint.parameters.values()}
    check(f"{what} parameters", set(told or {}) == set(keys), (list(told or {}), list(keys)))
    for key in set(told or {}) & set(keys):
        check(f"{what} {key}", same(told[key].numpy(), keys[key].numpy()))
    remembered = (optimizer or {}).get("state", {})
    check(f"{what} state", len(remembered) == len(checkpoint.state), (len(remembered), len(checkpoint.state)))


class Primitiv:
    """Reads what primitiv reads: exactly these markers, nothing else."""

    def __init__(self, path):
        self.file = io.BytesIO(Path(path).read_bytes())

    def take(self, marker, form):
        found = self.file.read(1)
        assert found == marker, (found, marker)
        return struct.unpack(form, self.file.read(struct.calcsize(form)))[0]

    def uint(self):
        return self.take(b"\xce", ">I")

    def float(self):
        return self.take(b"\xca", ">f")

    def length(self, fix, most, longer):
        first = self.file.read(1)[0]
        if fix <= first <= fix + most:
            return first - fix
        form = longer[first]
        return struct.unpack(form, self.file.read(struct.calcsize(form)))[0]

    def text(self):
        return self.file.read(self.length(0xA0, 31, {0xD9: ">B", 0xDA: ">H", 0xDB: ">I"}))

    def tensor(self):
        dims = [self.uint() for _ in range(self.length(0x90, 15, {0xDC: ">H", 0xDD: ">I"}))]
        batch = self.uint()
        form = {b"\xc4": ">B", b"\xc5": ">H", b"\xc6": ">I"}[self.file.read(1)]
        values = np.frombuffer(self.file.read(struct.unpack(form, self.file.read(struct.calcsize(form)))[0]), "<u4")
        assert len(values) == batch * int(np.prod(dims or [1]))
        return dims, batch, " ".join(f"{value:08x}" for value in values)

    def parameter(self):
        return self.tensor(), {self.text(): self.tensor() for _ in range(self.uint())}

    def object(self):
        assert (self.uint(), self.uint()) == (0, 1)
        kind = self.uint() >> 8
        if kind == 3:
            address = lambda: tuple(self.text() for _ in range(self.length(0x90, 15, {0xDC: ">H", 0xDD: ">I"})))  # noqa: E731
            found = [(address(), self.parameter()) for _ in range(self.uint())]
        elif kind == 4:
            size = lambda: self.length(0x80, 15, {0xDE: ">H", 0xDF: ">I"})  # noqa: E731
            found = {self.text(): self.uint() for _ in range(size())}, {self.text(): self.float() for _ in range(size())}
        else:
            found = self.parameter() if kind == 2 else self.tensor()
        assert not self.file.read(1)
        return found


def said_name(said, key):
    return bytes.fromhex(said[f"{key}_hex"]) if f"{key}_hex" in said else said[key].encode()


def said_tensor(said):
    return said["dims"], said["batch"], said["bits"]


def said_parameter(said):
    return said_tensor(said["value"]), {said_name(own, "name"): said_tensor(own["tensor"]) for own in said["stats"]}


def primitiv_files(folder):
    """The golden JSON says what primitiv had in memory; what is built anew from it in Python is read as the same."""
    for path in sorted(p.with_suffix("") for p in (ROOT / "primitiv" / "good").rglob("*.json")):
        said = json.loads(Path(f"{path}.json").read_text("utf-8"))
        target = folder / path.name
        what = path.name
        kind = said["data_type"]
        if kind == "Model":
            key = lambda own: tuple(map(bytes.fromhex, own["key_hex"])) if "key_hex" in own else tuple(k.encode() for k in own["key"])  # noqa: E731
            truth = [(key(own), said_parameter(own["parameter"])) for own in said["parameters"]]
            loaded = primitiv.load(path)
            # Built anew, in another order.
            model = primitiv.Model()
            for address, parameter in reversed(loaded.walk()):
                stats = {name: parameter.stats.tensor(name) for name in reversed(list(parameter.stats))}
                model[address] = primitiv.Parameter(np.ascontiguousarray(parameter.value), stats)
            model.save(target)
        elif kind == "Parameter":
            truth = said_parameter(said["parameter"])
            parameter = primitiv.load(path)
            primitiv.Parameter(parameter.value.copy("C"), dict(parameter.stats) if batchless(said) else {
                name: parameter.stats.tensor(name) for name in parameter.stats
            }).save(target)
        elif kind == "Tensor":
            truth = said_tensor(said["tensor"])
            tensor = primitiv.load(path)
            primitiv.Tensor(tensor.numpy().copy("C"), tensor.batch).save(target)
        elif kind == "Optimizer":
            uints = {said_name(own, "key"): own["value"] for own in said["uint_configs"]}
            floats = {said_name(own, "key"): own["bits"] for own in said["float_configs"]}
            primitiv.load(path).save(target)
            found = Primitiv(target).object()
            same_bits = {key: struct.pack(">f", value).hex() for key, value in found[1].items()} == floats
            check(f"{what} written", found[0] == uints and same_bits, found)
            continue
        else:
            shape = primitiv.load(path)
            check(what, [list(shape.dims), shape.batch] == [said["shape"]["dims"], said["shape"]["batch"]])
            continue
        check(f"{what} read", Primitiv(path).object() == truth)
        check(f"{what} written", Primitiv(target).object() == truth, target)
    adam = primitiv.Adam(alpha=0.25)
    adam.epoch = 7
    adam.save(folder / "made.optimizer")
    uints, floats = Primitiv(folder / "made.optimizer").object()
    check("a new Adam", uints == {b"Optimizer.epoch": 7} and floats[b"Adam.alpha"] == 0.25 and len(floats) == 7, floats)


def batchless(said):
    return all(own["tensor"]["batch"] == 1 for own in said["parameter"]["stats"])


safetensors, torch, h5py, paddle = map(library, ("safetensors", "torch", "h5py", "paddle"))
upstream = library("torchbiggraph") if torch else None
PARTS = [
    ("numpy", numpys, True),
    ("primitiv", primitiv_files, True),
    ("safetensors", safetensors_files, safetensors),
    ("torch", torch_files, torch),
    ("HDF5", hdf5_files, h5py),
    ("PaddlePaddle", paddle_files, paddle),
    ("BigGraph", biggraph_files, upstream),
]
for title, work, there in PARTS:
    if there:
        before = passed + failed
        with tempfile.TemporaryDirectory() as name:
            attempt(title, work, Path(name))
        print(f"{title}: {passed + failed - before} checks")
print(f"Python {platform.python_version()}, numpy {np.__version__}, {', '.join(versions) or 'nothing else'}: {passed} passed, {failed} failed")
sys.exit(1 if failed else 0)
