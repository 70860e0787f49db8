"""Golden files of Caffe, written with the messages of Caffe: testdata/caffe.

    python judges/make_caffe.py

Needs: the packages of judges/caffe.txt. Of the package caffe-ssd only `caffe_pb2` is used, which Caffe generates from caffe.proto.
`expected.json` has what these messages contain: dtype, shape and elements of every blob. Half-precision elements are fields of
NVIDIA's Caffe, which these messages keep as unknown fields.
"""
import hashlib
import importlib.util
import json
import pathlib
import sysconfig

import numpy as np
from google.protobuf import text_format

ROOT = pathlib.Path(__file__).resolve().parent.parent / "testdata" / "caffe"
GOOD, BAD = ROOT / "good", ROOT / "bad"
RAW = {0: ("f64", "<f8"), 1: ("f32", "<f4"), 2: ("f16", "<f2"), 3: ("i32", "<i4"), 4: ("u32", "<u4")}


def messages():
    """Loads the messages without the rest of the package, which needs libraries of CUDA."""
    path = pathlib.Path(sysconfig.get_paths()["purelib"]) / "caffe" / "proto" / "caffe_pb2.py"
    spec = importlib.util.spec_from_file_location("caffe_pb2", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


pb = messages()


def varint(value):
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def values(dims, seed):
    return np.random.RandomState(seed).standard_normal(dims).astype(np.float32)


def fill(blob, data, legacy=False, double=False, diff=None):
    """Fills a blob as Blob::ToProto does; `legacy` as releases before 2015 did."""
    data = np.asarray(data)
    if legacy:
        sizes = [1] * (4 - data.ndim) + list(data.shape)
        blob.num, blob.channels, blob.height, blob.width = sizes
    else:
        blob.shape.dim.extend(data.shape)
    (blob.double_data if double else blob.data).extend(data.ravel().tolist())
    if diff is not None:
        (blob.double_diff if double else blob.diff).extend(np.asarray(diff).ravel().tolist())


def raw(blob, data, number):
    """Adds the elements as NVIDIA's Caffe does: `raw_data_type` and `raw_data`."""
    blob.shape.dim.extend(data.shape)
    payload = data.astype(RAW[number][1]).tobytes()
    blob.MergeFromString(b"\x50" + varint(number) + b"\x62" + varint(len(payload)) + payload)


LENET = """
name: "lenet"
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 1 dim: 8 dim: 8 } } }
layer { name: "conv1" type: "Convolution" bottom: "data" top: "conv1" param { lr_mult: 1 } param { lr_mult: 2 }
  convolution_param { num_output: 3 kernel_size: 3 pad: 1 stride: 1 weight_filler { type: "xavier" } } }
layer { name: "bn1" type: "BatchNorm" bottom: "conv1" top: "conv1" batch_norm_param { use_global_stats: true } }
layer { name: "scale1" type: "Scale" bottom: "conv1" top: "conv1" scale_param { bias_term: true } }
layer { name: "relu1" type: "ReLU" bottom: "conv1" top: "conv1" }
layer { name: "pool1" type: "Pooling" bottom: "conv1" top: "pool1" pooling_param { pool: MAX kernel_size: 2 stride: 2 } }
layer { name: "ip1" type: "InnerProduct" bottom: "pool1" top: "ip1" inner_product_param { num_output: 4 } }
layer { name: "prob" type: "Softmax" bottom: "ip1" top: "prob" }
"""
LENET_BLOBS = {"conv1": [(3, 1, 3, 3), (3,)], "bn1": [(3,), (3,), (1,)], "scale1": [(3,), (3,)], "ip1": [(4, 48), (4,)]}


def lenet(**more):
    net = text_format.Parse(LENET, pb.NetParameter())
    seed = 0
    for layer in net.layer:
        for shape in LENET_BLOBS.get(layer.name, []):
            seed += 1
            data = np.abs(values(shape, seed)) if layer.name == "bn1" else values(shape, seed)
            fill(layer.blobs.add(), data, **more)
    return net


def single(kind, shapes, name=None, **more):
    net = pb.NetParameter(name=kind.lower())
    layer = net.layer.add(name=name or kind.lower() + "1", type=kind, bottom=["x"], top=["y"])
    for seed, shape in enumerate(shapes):
        fill(layer.blobs.add(), values(shape, seed), **more)
    return net


def first_version():
    net = pb.NetParameter(name="v1", input=["data"], input_dim=[1, 1, 4, 4])
    layer = net.layers.add(name="conv1", type=pb.V1LayerParameter.CONVOLUTION, bottom=["data"], top=["conv1"], blobs_lr=[1, 2])
    layer.convolution_param.num_output = 2
    layer.convolution_param.kernel_size.append(3)
    fill(layer.blobs.add(), values((2, 1, 3, 3), 1), legacy=True)
    fill(layer.blobs.add(), values((2,), 2), legacy=True)
    net.layers.add(name="relu1", type=pb.V1LayerParameter.RELU, bottom=["conv1"], top=["conv1"])
    layer = net.layers.add(name="fc", type=pb.V1LayerParameter.INNER_PRODUCT, bottom=["conv1"], top=["fc"])
    layer.inner_product_param.num_output = 3
    fill(layer.blobs.add(), values((3, 8), 3), legacy=True)
    fill(layer.blobs.add(), values((3,), 4), legacy=True)
    return net


def oldest_version():
    net = pb.NetParameter(name="v0", input=["data"], input_dim=[1, 1, 4, 4])
    for name, kind, bottom, shapes in (("conv1", "conv", "data", [(2, 1, 3, 3), (2,)]), ("relu1", "relu", "conv1", []), ("fc", "innerproduct", "conv1", [(3, 8), (3,)])):
        outer = net.layers.add(bottom=[bottom], top=["conv1" if kind == "relu" else name])
        layer = outer.layer
        layer.name, layer.type = name, kind
        if shapes:
            layer.num_output = shapes[0][0]
        if kind == "conv":
            layer.kernelsize = 3
        for seed, shape in enumerate(shapes):
            fill(layer.blobs.add(), values(shape, seed), legacy=True)
    return net


def half():
    net = text_format.Parse(LENET, pb.NetParameter())
    for layer in net.layer:
        for seed, shape in enumerate(LENET_BLOBS.get(layer.name, [])):
            raw(layer.blobs.add(), np.abs(values(shape, seed)), 2)
    return net


def raw_types():
    net = pb.NetParameter(name="raw")
    layer = net.layer.add(name="l", type="Parameter", top=["y"])
    for number in range(5):
        raw(layer.blobs.add(), np.arange(6).reshape(2, 3), number)
    return net


def names():
    net = pb.NetParameter(name="names")
    for name in ("inception_3a/1x1", "a.b", "权重", "twice", "twice", ""):
        layer = net.layer.add(name=name, type="InnerProduct", bottom=["x"], top=["y"])
        fill(layer.blobs.add(), values((2, 2), len(name)))
    return net


def chunks():
    """Elements in two packed fields, and with a tag each: both are valid protobuf."""
    data = values((4,), 1)
    shape = b"\x3a\x03\x0a\x01\x04"
    packed = shape + b"\x2a\x08" + data[:2].tobytes() + b"\x2a\x08" + data[2:].tobytes()
    tagged = shape + b"".join(b"\x2d" + value.tobytes() for value in data)
    layer = b"\x0a\x01l\x12\x04Bias" + b"".join(b"\x3a" + varint(len(blob)) + blob for blob in (packed, tagged))
    return b"\x0a\x01n\xa2\x06" + varint(len(layer)) + layer


def odd_blobs():
    net = pb.NetParameter(name="odd")
    layer = net.layer.add(name="l", type="Parameter", top=["y"])
    layer.blobs.add().data.append(2.5)
    fill(layer.blobs.add(), np.zeros((0, 3), np.float32))
    fill(layer.blobs.add(), values((1, 2, 1, 2, 1), 5))
    layer.blobs.add().shape.dim.extend([2, 2])
    return net


def python_layer():
    net = pb.NetParameter(name="python")
    layer = net.layer.add(name="p", type="Python", bottom=["x"], top=["y"])
    layer.python_param.module, layer.python_param.layer, layer.python_param.param_str = "my_layers", "ProposalLayer", "{'stride': 16}"
    fill(net.layer.add(name="ip", type="InnerProduct", bottom=["y"], top=["z"]).blobs.add(), values((2, 2), 0))
    return net


def state(count, **more):
    made = pb.SolverState(iter=1000, learned_net="lenet_iter_1000.caffemodel", current_step=1)
    shapes = [shape for shapes in LENET_BLOBS.values() for shape in shapes]
    for number in range(count):
        for seed, shape in enumerate(shapes):
            fill(made.history.add(), values(shape, 100 * number + seed), **more)
    return made


FILES = {
    "lenet.caffemodel": lenet,
    "double.caffemodel": lambda: lenet(double=True),
    "legacy_shapes.caffemodel": lambda: lenet(legacy=True),
    "half.caffemodel": half,
    "raw_types.caffemodel": raw_types,
    "v1.caffemodel": first_version,
    "v0.caffemodel": oldest_version,
    "snapshot_iter_10.caffemodel": lambda: single("Deconvolution", [(2, 3, 2, 2), (3,)]),
    "gradients.caffemodel": lambda: gradients(),
    "embed.caffemodel": lambda: single("Embed", [(5, 3), (3,)]),
    "prelu.caffemodel": lambda: single("PReLU", [(4,)]),
    "lstm.caffemodel": lambda: single("LSTM", [(8, 3), (8,), (8, 2)]),
    "rnn.caffemodel": lambda: single("RNN", [(2, 3), (2,), (2, 2), (1, 2), (1,)]),
    "normalize.caffemodel": lambda: single("Normalize", [(4,)]),
    "unknown_type.caffemodel": lambda: single("MyLayer", [(2, 2), (3,)]),
    "names.caffemodel": names,
    "chunks.caffemodel": chunks,
    "odd_blobs.caffemodel": odd_blobs,
    "python.caffemodel": python_layer,
    "sgd.solverstate": lambda: state(1),
    "adam.solverstate": lambda: state(2),
    "double.solverstate": lambda: state(1, double=True),
    "legacy.solverstate": lambda: state(1, legacy=True),
}


def gradients():
    net = pb.NetParameter(name="g")
    layer = net.layer.add(name="ip", type="InnerProduct", bottom=["x"], top=["y"])
    fill(layer.blobs.add(), values((2, 3), 0), diff=values((2, 3), 1))
    fill(layer.blobs.add(), values((2,), 2), double=True, diff=values((2,), 3))
    return net


def unknown(blob):
    """Returns type and bytes of the fields of NVIDIA's Caffe."""
    number, data = 0, None
    for field in blob.UnknownFields():
        if field.field_number == 10:
            number = field.data
        if field.field_number == 12:
            data = field.data
    return number, data


def entries(blob, name):
    """Returns the tensors of a blob as Weighbridge lists them."""
    old = [blob.num, blob.channels, blob.height, blob.width]
    is_old = any(blob.HasField(key) for key in ("num", "channels", "height", "width"))
    shape = old if is_old else list(blob.shape.dim)
    found = {}
    groups = ((name, (blob.data, "f32", "<f4"), (blob.double_data, "f64", "<f8")), (name + ".diff", (blob.diff, "f32", "<f4"), (blob.double_diff, "f64", "<f8")))
    for own, *fields in groups:
        for data, dtype, code in fields:
            if len(data):
                found[own] = (dtype, shape, np.array(data, code).tobytes())
    number, data = unknown(blob)
    if data is not None:
        found[name] = (RAW[number][0], shape, data)
    if not found and int(np.prod(shape)) == 0:
        found[name] = ("f32", shape, b"")
    return found


def listed(path):
    """Reads a file with the messages of Caffe; returns dtype, shape and bytes of each blob."""
    found = {}
    if path.suffix == ".solverstate":
        message = pb.SolverState.FromString(path.read_bytes())
        for number, blob in enumerate(message.history):
            found.update(entries(blob, f"history.{number}"))
        return found
    net = pb.NetParameter.FromString(path.read_bytes())
    seen, twice = set(), 1
    old = [layer.layer if layer.HasField("layer") else layer for layer in net.layers]
    for layer in old + list(net.layer):
        name = layer.name
        if len(layer.blobs) and name in seen:
            twice += 1
            name = f"{name}~{twice}"
        if len(layer.blobs):
            seen.add(name)
        for number, blob in enumerate(layer.blobs):
            found.update(entries(blob, f"{name}.{number}"))
    return found


def damage():
    good = (GOOD / "lenet.caffemodel").read_bytes()

    def changed(name, change):
        net = lenet()
        change({layer.name: layer for layer in net.layer})
        (BAD / f"{name}.caffemodel").write_bytes(net.SerializeToString())

    changed("shape-differs", lambda layers: layers["ip1"].blobs[0].shape.dim.append(2))
    changed("negative", lambda layers: layers["conv1"].blobs[0].shape.dim.__setitem__(0, -3))
    changed("overflow", lambda layers: layers["conv1"].blobs[0].shape.dim.extend([2**62, 2**62]))
    changed("two-fields", lambda layers: layers["conv1"].blobs[0].double_data.extend([1.0]))
    changed("many-dimensions", lambda layers: layers["conv1"].blobs[0].shape.dim.extend([1] * 100))
    changed("raw-type", lambda layers: raw_of_type(layers["prob"].blobs.add(), 9))
    (BAD / "truncated.caffemodel").write_bytes(good[:-60])
    (BAD / "group.caffemodel").write_bytes(good + b"\x0b")
    (BAD / "past-the-end.caffemodel").write_bytes(good.replace(b"\x0a\x05relu1", b"\x0a\x55relu1"))
    (BAD / "long-number.caffemodel").write_bytes(good + b"\x28" + b"\xff" * 11)
    (BAD / "truncated.solverstate").write_bytes((GOOD / "sgd.solverstate").read_bytes()[:-30])
    (BAD / "unclosed.prototxt").write_text("name: 'n'\nlayer {\n  name: 'a'\n  type: 'ReLU'\n")
    (BAD / "deep.prototxt").write_text("layer { type: 'x' " + "a { " * 500)


def raw_of_type(blob, number):
    blob.shape.dim.extend([1])
    blob.MergeFromString(b"\x50" + varint(number) + b"\x62\x04\x00\x00\x00\x00")


def main():
    GOOD.mkdir(parents=True, exist_ok=True)
    BAD.mkdir(parents=True, exist_ok=True)
    for name, make in FILES.items():
        made = make()
        (GOOD / name).write_bytes(made if isinstance(made, bytes) else made.SerializeToString())
    (GOOD / "lenet.prototxt").write_text(LENET)
    without = first_version()
    for layer in without.layers:
        layer.ClearField("blobs")
    (GOOD / "v1.prototxt").write_text(text_format.MessageToString(without))
    without = oldest_version()
    for layer in without.layers:
        layer.layer.ClearField("blobs")
    (GOOD / "v0.prototxt").write_text(text_format.MessageToString(without))
    damage()
    expected = {}
    for name in sorted(FILES):
        found = listed(GOOD / name)
        if name == "chunks.caffemodel":
            # Elements with a tag each are not read; messages do not show the difference.
            del found["l.1"]
        expected[name] = {key: {"dtype": dtype, "shape": shape, "sha256": hashlib.sha256(data).hexdigest()} for key, (dtype, shape, data) in found.items()}
    (ROOT / "expected.json").write_text(json.dumps(expected, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
