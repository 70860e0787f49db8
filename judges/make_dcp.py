"""Golden files of distributed checkpoints, written by torch.distributed.checkpoint: testdata/dcp/good.

    python judges/make_dcp.py ERA [NAME ...]

ERA is the prefix of the folders, such as `t22` for torch 2.2. Several ranks run as processes of one machine, connected by
gloo. `expected.json` has what torch reads: dtype, shape and elements of every tensor, and every other value.
Needs: torch, numpy.
"""
import hashlib
import json
import pathlib
import shutil
import socket
import sys
import tempfile
import warnings

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

warnings.filterwarnings("ignore")
ROOT = pathlib.Path(__file__).resolve().parent.parent / "testdata" / "dcp"
# These releases have `save` and `load` for process groups only, and do not save every dtype.
OLD = tuple(map(int, torch.__version__.split(".")[:2])) < (2, 3)
NAMES = {
    torch.float32: "f32", torch.float64: "f64", torch.float16: "f16", torch.bfloat16: "bf16", torch.int64: "i64",
    torch.int32: "i32", torch.int16: "i16", torch.int8: "i8", torch.uint8: "u8", torch.bool: "bool",
    torch.complex64: "c64", torch.complex128: "c128", torch.float8_e4m3fn: "f8_e4m3", torch.float8_e5m2: "f8_e5m2",
}
for own, name in {"uint16": "u16", "uint32": "u32", "uint64": "u64", "float8_e8m0fnu": "f8_e8m0", "float8_e4m3fnuz": "f8_e4m3fnuz",
                  "float8_e5m2fnuz": "f8_e5m2fnuz"}.items():
    if hasattr(torch, own) and not OLD:
        NAMES[getattr(torch, own)] = name


def raw(tensor):
    """Bytes of a tensor, row by row."""
    tensor = tensor.detach().contiguous()
    return bytes(tensor.reshape(-1).view(torch.uint8).numpy()) if tensor.numel() else b""


def loaded(folder):
    """Every tensor and value of a checkpoint, as torch loads them without a process group."""
    described = dcp.FileSystemReader(folder).read_metadata().state_dict_metadata
    state = {}
    for name, entry in described.items():
        tensor = isinstance(entry, TensorStorageMetadata)
        state[name] = torch.empty(entry.size, dtype=entry.properties.dtype) if tensor else None

    class Planner(DefaultLoadPlanner):
        def load_bytes(self, item, value):
            state[item.dest_index.fqn] = torch.load(value, weights_only=False)

    options = {"storage_reader": dcp.FileSystemReader(folder), "planner": Planner(flatten_state_dict=False), "no_dist": True}
    (dcp.load_state_dict if OLD else dcp.load)(dict(state), **options)
    return state


def save(state, folder, **options):
    options = {"storage_writer": FileSystemWriter(folder, **options), "no_dist": not dist.is_initialized()}
    (dcp.save_state_dict if OLD else dcp.save)(state, **options)


def filled(shape, dtype=torch.float32, start=0):
    count = 1
    for dim in shape:
        count *= dim
    return (torch.arange(count, dtype=torch.float32) * 0.5 + start).to(dtype).reshape(shape)


def trained(layers=3):
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2, bias=False)][:layers])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    model(torch.rand(5, 3)).sum().backward()
    optimizer.step()
    return model, optimizer


def linear(folder):
    save({"weight": filled((2, 3)), "bias": filled((2,))}, folder)


def training(folder):
    """Model and optimizer with names, and plain values."""
    from torch.distributed.checkpoint.state_dict import get_state_dict
    model, optimizer = trained()
    own, state = get_state_dict(model, optimizer)
    save({"model": own, "optim": state, "step": 5, "loss": 0.25, "run": {"name": "first", "tags": ["a", "b"], "done": False}}, folder)


def numbered(folder):
    """The state of an optimizer by the numbers of its parameters."""
    model, optimizer = trained()
    save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, folder)


def flat_optimizer(folder):
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict
    model, optimizer = trained(2)
    own, state = get_state_dict(model, optimizer, options=StateDictOptions(flatten_optimizer_state_dict=True))
    save({"model": own, "optim": state}, folder)


def every_dtype(folder):
    state = {}
    for dtype, name in NAMES.items():
        width = torch.tensor([], dtype=dtype).element_size()
        data = torch.tensor([(7 * i + width) % 251 for i in range(6 * width)], dtype=torch.uint8)
        if dtype is torch.bool:
            data = torch.tensor([0, 1, 1, 0, 1, 0], dtype=torch.uint8)
        state["w_" + name] = data.view(dtype).reshape(2, 3)
    save(state, folder)


def shapes(folder):
    save({
        "scalar": torch.tensor(1.5), "none": torch.zeros(0, 4), "deep": filled((1, 2, 3, 1, 2)), "transposed": filled((3, 2)).t(),
        "column": filled((4, 3))[:, 1], "last": filled((1, 2, 3, 4)).to(memory_format=torch.channels_last),
        "trained": nn.Parameter(filled((2, 2))), "strided": filled((6, 4))[::2, ::2],
    }, folder)


def values(folder):
    """Values that are no tensors, and tensors in places that are not flattened."""
    save({
        "w": filled((2,)), "none": None, "big": 2**40, "text": "grün", "bytes": b"\0\1", "pair": (filled((3,)), 7),
        "list": [1, 2.5, "three"], "tensors": [filled((2,)), filled((1, 2), start=9)], "deep": {"a": {"b": {"c": 1}}}, "empty": {},
        "dtype": torch.float16, "device": torch.device("cpu"),
    }, folder)


def objects(folder):
    import collections
    import random
    save({"w": filled((2,)), "rng": random.Random(7).getstate()[:1], "module": nn.Linear(2, 1),
          "counts": collections.OrderedDict(a=1)}, folder)


def two_threads(folder):
    save({f"w{i}": filled((i + 1, 2), start=i) for i in range(5)} | {"step": 3}, folder, thread_count=2)


def file_each(folder):
    save({"a": filled((2,)), "b": filled((3, 1)), "step": 3}, folder, single_file_per_rank=False)


def tied(folder):
    shared = filled((3, 2))
    save({"embed.weight": shared, "head.weight": shared}, folder)


# Several ranks.

def mesh(*shape):
    from torch.distributed.device_mesh import init_device_mesh
    return init_device_mesh("cpu", shape)


def distribute(*arguments):
    try:
        from torch.distributed.tensor import distribute_tensor
    except ImportError:
        from torch.distributed._tensor import distribute_tensor
    return distribute_tensor(*arguments)


def placed(*letters):
    try:
        from torch.distributed.tensor import Replicate, Shard
    except ImportError:
        from torch.distributed._tensor import Replicate, Shard
    return [Replicate() if letter == "r" else Shard(letter) for letter in letters]


def rows(folder):
    """Rows over four ranks: equal parts, unequal ones, and a rank without any."""
    m = mesh(4)
    state = {"even": distribute(filled((8, 2)), m, placed(0)), "uneven": distribute(filled((7, 2)), m, placed(0)),
             "all": distribute(filled((3,)), m, placed("r")), "plain": filled((2,))}
    if not OLD:
        state["few"] = distribute(filled((2, 3)), m, placed(0))
    save(state, folder)


def columns(folder):
    m = mesh(2)
    save({"w": distribute(filled((3, 5)), m, placed(1)), "deep": distribute(filled((2, 3, 4)), m, placed(2)),
          "bf16": distribute(filled((2, 4), torch.bfloat16), m, placed(1))}, folder)


def grid(folder):
    m = mesh(2, 2)
    save({"w": distribute(filled((4, 6)), m, placed(0, 1)), "uneven": distribute(filled((5, 3)), m, placed(0, 1)),
          "hybrid": distribute(filled((2, 6)), m, placed("r", 1)), "same": distribute(filled((4, 4)), m, placed(0, "r"))}, folder)


def sharded_tensor(folder):
    from torch.distributed._shard.sharded_tensor import init_from_local_shards, Shard
    rank = dist.get_rank()
    whole = filled((4, 3))
    local = Shard.from_tensor_and_offsets(whole[2 * rank:2 * rank + 2].clone(), shard_offsets=[2 * rank, 0], rank=rank)
    save({"table": init_from_local_shards([local], 4, 3), "step": 9}, folder)


def fsdp(folder):
    """A model sharded by FSDP, with the state of its optimizer."""
    from torch.distributed.checkpoint.state_dict import get_state_dict
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    try:
        from torch.distributed.fsdp import fully_shard
        fully_shard(model)
    except ImportError:
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
        model = parallelize_module(model, mesh(2), {"0": ColwiseParallel(), "2": RowwiseParallel()})
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.rand(5, 3)).sum().backward()
    optimizer.step()
    own, state = get_state_dict(model, optimizer)
    save({"model": own, "optim": state, "epoch": 1}, folder)


def saved_async(folder):
    m = mesh(2)
    state = {"w": distribute(filled((4, 3)), m, placed(0)), "b": filled((2,)), "step": 4}
    future = dcp.async_save(state, storage_writer=dcp.FileSystemWriter(folder))
    future.result()


ALONE = [linear, training, numbered, flat_optimizer, every_dtype, shapes, values, objects, two_threads, file_each, tied]
SEVERAL = {rows: 4, columns: 2, grid: 4, sharded_tensor: 2, fsdp: 2, saved_async: 2}


def rank(number, name, count, folder, port):
    warnings.filterwarnings("ignore")
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=number, world_size=count)
    globals()[name](folder)
    dist.barrier()
    dist.destroy_process_group()


def plain(value):
    """A value as JSON; a name for what JSON cannot hold."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    return f"object of {type(value).__module__}.{type(value).__qualname__}"


def main():
    era, *names = sys.argv[1:]
    expected = json.loads((ROOT / "expected.json").read_text()) if (ROOT / "expected.json").exists() else {}
    expected = {name: value for name, value in expected.items() if not name.startswith(era + "_") or names}
    for make in [*ALONE, *SEVERAL]:
        if make is saved_async and not hasattr(dcp, "async_save"):
            continue
        name = f"{era}_{make.__name__}"
        if names and make.__name__ not in names:
            continue
        target = ROOT / "good" / name
        shutil.rmtree(target, ignore_errors=True)
        with tempfile.TemporaryDirectory() as work:
            folder = pathlib.Path(work) / name
            try:
                if make in SEVERAL:
                    with socket.socket() as free:
                        free.bind(("127.0.0.1", 0))
                        port = free.getsockname()[1]
                    mp.spawn(rank, (make.__name__, SEVERAL[make], str(folder), port), nprocs=SEVERAL[make])
                else:
                    make(str(folder))
            except Exception as error:  # noqa: BLE001: a release without this feature
                print(name, "is not written:", str(error).strip().splitlines()[-1:])
                continue
            shutil.copytree(folder, target)
        tensors, others = {}, {}
        for key, value in loaded(str(target)).items():
            if isinstance(value, torch.Tensor):
                tensors[key] = {"dtype": NAMES[value.dtype], "shape": list(value.shape), "sha256": hashlib.sha256(raw(value)).hexdigest()}
            else:
                others[key] = plain(value)
        expected[name] = {"torch": torch.__version__, "tensors": tensors, "values": others}
        size = sum(file.stat().st_size for file in target.iterdir())
        print(name, len(tensors), "tensors", size, "bytes", *sorted(file.name for file in target.iterdir()))
        (ROOT / "expected.json").write_text(json.dumps(dict(sorted(expected.items())), indent=1) + "\n")


if __name__ == "__main__":
    main()
