"""Golden files of MXNet, written by MXNet: testdata/mxnet.

    python judges/make_mxnet.py

Needs: Python 3.8, mxnet 1.9.1, numpy 1.23 (judges/mxnet.txt). `expected.json` has what MXNet reads: dtype, shape and elements of
every array. Versions 0 and 1, which old releases wrote, and dtypes that only MXNet 2 has are packed here; MXNet 1.9 reads the former.
"""
import hashlib
import json
import pathlib
import struct

import mxnet as mx
import numpy as np
from mxnet import gluon, nd
from mxnet import np as mnp

ROOT = pathlib.Path(__file__).resolve().parent.parent / "testdata" / "mxnet"
GOOD, BAD = ROOT / "good", ROOT / "bad"
NAMES = {"float32": "f32", "float64": "f64", "float16": "f16", "uint8": "u8", "int32": "i32", "int8": "i8", "int64": "i64",
         "bool": "bool", "int16": "i16", "uint16": "u16", "uint32": "u32", "uint64": "u64"}
ORDER = ["float32", "float64", "float16", "uint8", "int32", "int8", "int64", "bool", "int16", "uint16", "uint32", "uint64"]


def shape(dims):
    return struct.pack("<i", len(dims)) + b"".join(struct.pack("<q", d) for d in dims)


def array(version, values, device=(1, 0), dims=None, number=None):
    """Packs a dense array."""
    dims = values.shape if dims is None else dims
    if version == 0:
        head = struct.pack("<I", len(dims)) + b"".join(struct.pack("<I", d) for d in dims)
    else:
        head = struct.pack("<I", 0xF993FAC7 + version) + (struct.pack("<i", 0) if version > 1 else b"") + shape(dims)
    number = ORDER.index(values.dtype.name) if number is None else number
    return head + struct.pack("<iii", *device, number) + values.tobytes()


def packed(arrays, names):
    names = [name.encode() for name in names]
    tail = struct.pack("<Q", len(names)) + b"".join(struct.pack("<Q", len(name)) + name for name in names)
    return struct.pack("<QQQ", 0x112, 0, len(arrays)) + b"".join(arrays) + tail


def entry(values):
    data = np.ascontiguousarray(values)
    name = "bf16" if data.dtype.names else NAMES[data.dtype.name]
    return {"dtype": name, "shape": list(values.shape), "sha256": hashlib.sha256(data.tobytes()).hexdigest()}


def listed(path):
    """Reads a file with MXNet; returns the tensors as Weighbridge lists them."""
    with mx.util.np_shape("numpy_" in path.name):
        found = nd.load(str(path))
    if isinstance(found, list):
        found = {str(i): value for i, value in enumerate(found)}
    is_module = all(name.startswith(("arg:", "aux:")) for name in found)
    tensors = {}
    for name, value in found.items():
        name = name[4:] if is_module else name
        if value.stype == "default":
            tensors[name] = entry(value.asnumpy())
            continue
        tensors[name + ".data"] = entry(value.data.asnumpy())
        tensors[name + ".indices"] = entry(value.indices.asnumpy())
        if value.stype == "csr":
            tensors[name + ".indptr"] = entry(value.indptr.asnumpy())
    return tensors


def values(dtype, dims, seed=0):
    rng = np.random.RandomState(seed)
    return (rng.standard_normal(dims) * 5).astype(dtype) if dtype != "bool" else rng.standard_normal(dims) > 0


def mlp():
    x = mx.sym.Variable("data")
    x = mx.sym.FullyConnected(x, num_hidden=4, name="fc1")
    x = mx.sym.BatchNorm(x, name="bn1")
    x = mx.sym.Activation(x, act_type="relu", name="relu1")
    x = mx.sym.FullyConnected(x, num_hidden=3, name="fc2")
    return mx.sym.SoftmaxOutput(x, name="softmax")


def write():
    mx.random.seed(3)
    np.random.seed(3)
    # Module.
    module = mx.mod.Module(mlp())
    module.bind([("data", (2, 5))], [("softmax_label", (2,))])
    module.init_params(mx.init.Xavier())
    module.save_checkpoint(str(GOOD / "module"), 3)
    # HybridBlock.export, and save_parameters.
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Conv2D(2, 3, in_channels=1), gluon.nn.BatchNorm(), gluon.nn.Dense(3), gluon.nn.Embedding(4, 2))
    net.initialize()
    net.hybridize()
    net(nd.ones((1, 1, 5, 5)))
    net.export(str(GOOD / "exported"), 0)
    net.save_parameters(str(GOOD / "gluon.params"))
    net.collect_params().save(str(GOOD / "collected.params"))
    half = gluon.nn.Dense(3, in_units=2)
    half.initialize()
    half.cast("float16")
    half.save_parameters(str(GOOD / "half.params"))
    lstm = gluon.rnn.LSTM(3, num_layers=2, bidirectional=True, input_size=2)
    lstm.initialize()
    lstm.save_parameters(str(GOOD / "lstm.params"))

    class Loop(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            with self.name_scope():
                self.weight = self.params.get("weight", shape=(2,))

        def hybrid_forward(self, F, x, weight):
            step = lambda data, states: (data * weight + states[0], [states[0] * 2])
            out, _ = F.contrib.foreach(step, x, [F.zeros((2,))])
            return out

    loop = Loop()
    loop.initialize()
    loop.hybridize()
    loop(nd.ones((3, 2)))
    loop.export(str(GOOD / "loop"), 12)
    # Arrays.
    for dtype in ORDER[:8]:
        nd.save(str(GOOD / f"{dtype}.params"), {"w": nd.array(values(dtype, (2, 3)), dtype=dtype), "v": nd.array(values(dtype, (7,), 1), dtype=dtype)})
    nd.save(str(GOOD / "list.params"), [nd.array(values("float32", (2, 2))), nd.array(values("int32", (3,)), dtype="int32")])
    nd.save(str(GOOD / "empty.params"), {})
    nd.save(str(GOOD / "unicode.params"), {"权重.w": nd.ones((2,)), "a b": nd.zeros((1, 1, 1, 2)), "": nd.ones((3,))})
    rows = nd.sparse.row_sparse_array((values("float32", (2, 3)), [1, 4]), shape=(6, 3))
    csr = nd.sparse.csr_matrix((values("float64", (3,)), [0, 2, 1], [0, 2, 2, 3]), shape=(3, 4), dtype="float64")
    nd.save(str(GOOD / "sparse.params"), {"dense": nd.ones((2,)), "embed.rows": rows, "matrix": csr})
    # MXNet 1.9 writes a header at times before the rows are computed; it reads such files by their indices.
    whole, stated = (GOOD / "sparse.params").read_bytes(), struct.pack("<iiqq", 1, 2, 2, 3)
    assert whole.count(stated) == 1
    (GOOD / "sparse_unstated.params").write_bytes(whole.replace(stated, struct.pack("<iiqq", 1, 2, 0, 3)))
    nd.save(str(GOOD / "sparse_list.params"), [csr, rows])
    nd.save(str(GOOD / "sparse_empty.params"), {"r": nd.sparse.zeros("row_sparse", (3, 2)), "c": nd.sparse.zeros("csr", (3, 2))})
    with mx.util.np_shape(True):
        arrays = {"scalar": mnp.array(3.5), "none": mnp.zeros((0, 3)), "flag": mnp.array([True, False]), "w": mnp.ones((2, 2))}
        nd.save(str(GOOD / "numpy_shapes.params"), {name: value.as_nd_ndarray() for name, value in arrays.items()})
    # Old versions, other devices, and MXNet 2.
    old = [values("float32", (2, 3)), values("float16", (4,), 1), values("int32", (1, 2, 1), 2)]
    names = ["arg:w", "arg:h", "aux:n"]
    (GOOD / "version_0.params").write_bytes(packed([array(0, one) for one in old], names))
    (GOOD / "version_1.params").write_bytes(packed([array(1, one) for one in old], names))
    (GOOD / "mixed.params").write_bytes(packed([array(i, one) for i, one in enumerate(old)], names))
    (GOOD / "none.params").write_bytes(packed([array(1, old[0]), struct.pack("<Ii", 0xF993FAC8, 0), array(1, old[1])], ["a", "b", "c"]))
    (GOOD / "gpu.params").write_bytes(packed([array(2, old[0], (2, 1)), array(2, old[1])], ["w", "v"]))
    (GOOD / "bf16.params").write_bytes(packed([array(2, np.arange(6, dtype="uint16"), dims=(2, 3), number=12)], ["w"]))
    new = {f"w_{dtype}": values(dtype, (2, 3)) for dtype in ORDER[8:]}
    (GOOD / "mxnet2.params").write_bytes(packed([array(2, one) for one in new.values()], list(new)))
    # The JSON of old releases: `param` in place of `attrs`, and no version.
    old_symbol = {
        "nodes": [
            {"op": "null", "param": {}, "name": "data", "inputs": [], "backward_source_id": -1},
            {"op": "null", "param": {}, "name": "fc_weight", "inputs": [], "backward_source_id": -1},
            {"op": "null", "param": {}, "name": "fc_bias", "inputs": [], "backward_source_id": -1},
            {"op": "FullyConnected", "param": {"no_bias": "False", "num_hidden": "2"}, "name": "fc", "inputs": [[0, 0], [1, 0], [2, 0]], "backward_source_id": -1},
        ],
        "arg_nodes": [0, 1, 2],
        "heads": [[3, 0]],
    }
    (GOOD / "old-symbol.json").write_text(json.dumps(old_symbol, indent=2))
    parameters = [array(0, values("float32", (2, 3))), array(0, values("float32", (2,)))]
    (GOOD / "old-0010.params").write_bytes(packed(parameters, ["arg:fc_weight", "arg:fc_bias"]))
    mx.sym.load(str(GOOD / "old-symbol.json"))
    return new


def damage():
    good = (GOOD / "version_1.params").read_bytes()
    dense = (GOOD / "float32.params").read_bytes()

    def changed(name, bytes_, at, new):
        (BAD / f"{name}.params").write_bytes(bytes_[:at] + new + bytes_[at + len(new):])

    changed("truncated", good[:-70], 0, b"")
    changed("trailing", good + b"more", 0, b"")
    changed("count-too-large", good, 16, struct.pack("<Q", 2**40))
    changed("count-larger", good, 16, struct.pack("<Q", 4))
    changed("reserved", good, 8, b"\1")
    changed("version-unknown", good, 24, struct.pack("<I", 0xF993FACB))
    changed("storage-unknown", dense, 28, struct.pack("<i", 7))
    changed("dimensions", dense, 32, struct.pack("<i", 2**30))
    changed("dimensions-negative", dense, 32, struct.pack("<i", -2))
    changed("size-negative", dense, 36, struct.pack("<q", -5))
    changed("size-too-large", dense, 36, struct.pack("<q", 2**40))
    changed("shape-overflow", dense, 36, struct.pack("<qq", 2**62, 2**62))
    changed("dtype-unknown", dense, 60, struct.pack("<i", 99))
    names = good.index(struct.pack("<QQ", 3, 5))
    changed("names-fewer", good, names, struct.pack("<Q", 2))
    changed("name-too-long", good, names + 8, struct.pack("<Q", 2**50))
    (BAD / "cycle-symbol.json").write_text('{"nodes": [{"op": "relu", "name": "a", "inputs": [[0, 0, 0]]}], "heads": [[0, 0, 0]]}')
    (BAD / "cut-symbol.json").write_text('{"nodes": [{"op": "null", "name": "data", "inputs": []}, {"op"')
    deep = '{"nodes":[{"op":"while","name":"a","inputs":[],"subgraphs":[' * 90
    (BAD / "deep-symbol.json").write_text(deep)


def main():
    GOOD.mkdir(parents=True, exist_ok=True)
    BAD.mkdir(parents=True, exist_ok=True)
    new = write()
    damage()
    expected = {}
    for path in sorted(GOOD.glob("*.params")):
        if path.name == "mxnet2.params":
            expected[path.name] = {name: entry(value) for name, value in new.items()}
        elif path.name == "none.params":
            # Python of MXNet 1.9 fails on an array without elements.
            old = [values("float32", (2, 3)), values("float16", (4,), 1)]
            expected[path.name] = {"a": entry(old[0]), "c": entry(old[1])}
        else:
            expected[path.name] = listed(path)
    (ROOT / "expected.json").write_text(json.dumps(expected, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
