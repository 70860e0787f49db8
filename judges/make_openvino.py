"""Golden files of OpenVINO, saved by its own library: testdata/openvino.

    python judges/make_openvino.py

Needs: the packages of judges/openvino.txt. `expected.json` has what the library reads from the files: dtype, shape and elements of every
constant, and the types of the layers.
"""
import hashlib
import json
import pathlib

import numpy as np
import openvino as ov
from openvino import opset13 as op

ROOT = pathlib.Path(__file__).resolve().parent.parent / "testdata" / "openvino"
GOOD, BAD = ROOT / "good", ROOT / "bad"
DTYPES = {"boolean": "bool", "f8e4m3": "f8_e4m3", "f8e5m2": "f8_e5m2", "f8e8m0": "f8_e8m0", "f4e2m1": "f4"}
PACKED = {"u1": 1, "u2": 2, "i4": 4, "u4": 4, "nf4": 4}
# Types of layers that files name otherwise.
STORED = {"Relu": "ReLU", "PRelu": "PReLU", "Softmax": "SoftMax"}
NUMBERS = ["f32", "f16", "bf16", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "boolean", "f8e4m3", "f8e5m2", "f8e8m0"]


def values(shape, seed):
    return np.random.RandomState(seed).standard_normal(shape).astype("f4")


def constant(name, shape, seed):
    return op.constant(values(shape, seed), name=name)


def parameter(shape, dtype=np.float32, name="x"):
    return op.parameter(shape, dtype, name=name)


def linear(x, outputs, inputs, seed, name):
    return op.add(op.matmul(x, constant(f"{name}.weight", (outputs, inputs), seed), False, True), constant(f"{name}.bias", (1, outputs), seed + 1))


def mlp():
    x = parameter([-1, 12])
    return ov.Model([linear(op.relu(linear(x, 16, 12, 1, "fc1")), 4, 16, 3, "fc2")], [x], "mlp")


def conv():
    x = parameter([1, 3, 8, 8], name="image")
    y = op.convolution(x, constant("conv.weight", (4, 3, 3, 3), 5), [2, 2], [1, 1], [1, 1], [1, 1])
    y = op.group_convolution(y, constant("depth.weight", (4, 1, 1, 3, 3), 6), [1, 1], [1, 1], [1, 1], [1, 1])
    return ov.Model([op.softmax(op.reduce_mean(y, op.constant([2, 3]), False), 1)], [x], "conv")


def raw(kind, shape, seed):
    """A constant of random bits."""
    own = getattr(ov.Type, kind)
    data = np.random.RandomState(seed).randint(0, 2 if kind == "boolean" else 256, int(np.prod(shape)) * 8).astype(np.uint8)
    tensor = ov.Tensor(own, ov.Shape(list(shape)))
    plain = tensor.data.reshape(-1).view(np.uint8)
    plain[:] = data[: plain.size]
    made = op.constant(tensor, shared_memory=True)
    made.set_friendly_name(kind)
    return made


def dtypes(kinds):
    return lambda: ov.Model([op.result(raw(kind, (2, 8), seed)) for seed, kind in enumerate(kinds)], [], "dtypes")


def control():
    x, steps = parameter([1, 3]), parameter([], np.int64, "steps")
    inner, number = parameter([1, 3], name="inner"), parameter([], np.int64, "number")
    body = ov.Model([op.matmul(inner, constant("inside", (3, 3), 7), False, False), op.constant(True)], [inner, number], "body")
    loop = op.loop(steps, op.constant(True))
    loop.set_function(body)
    loop.set_special_body_ports([1, 1])
    loop.set_merged_input(inner, x.output(0), body.get_results()[0].output(0))
    y = loop.get_iter_value(body.get_results()[0].output(0), -1)
    flag = parameter([1], np.bool_, "flag")
    branch = op.if_op(flag)
    one, two = parameter([1, 3], name="one"), parameter([1, 3], name="two")
    then, other = (ov.Model([op.add(value, constant(name, (1, 3), seed))], [value], name) for value, name, seed in ((one, "then", 8), (two, "else", 9)))
    branch.set_then_body(then)
    branch.set_else_body(other)
    branch.set_input(y, one, two)
    z = branch.set_output(then.get_results()[0], other.get_results()[0])
    return ov.Model([z], [x, steps, flag], "control")


def compressed():
    """Weights of 8 bits with their scales, as NNCF compresses them."""
    x = parameter([1, 6])
    weight = op.constant(np.random.RandomState(10).randint(-127, 128, (4, 6)).astype(np.int8), name="weight")
    scaled = op.multiply(op.convert(weight, "f16"), op.constant(np.abs(values((4, 1), 11)).astype("f2"), name="scale"))
    return ov.Model([op.matmul(x, op.convert(scaled, "f32"), False, True)], [x], "compressed")


def split():
    x = parameter([1, 4])
    parts = op.split(op.matmul(x, constant('w & "quoted" <name>', (4, 3), 12), False, False), op.constant(1), 3)
    return ov.Model([op.add(parts.output(0), parts.output(2))], [x], "split")


def names():
    x = parameter([1, 2])
    y = op.add(op.multiply(x, constant("same", (1, 2), 13)), constant("same", (1, 2), 14))
    return ov.Model([op.add(y, constant("权重/a.b", (1, 2), 15))], [x], "names")


def shared():
    x = parameter([1, 4])
    return ov.Model([op.matmul(op.relu(op.matmul(x, constant("one", (4, 4), 16), False, False)), constant("two", (4, 4), 16), False, False)], [x], "shared")


def empty():
    x = parameter([0, 3])
    return ov.Model([op.concat([x, op.constant(np.zeros((0, 3), "f4"), name="nothing"), constant("some", (2, 3), 17)], 0)], [x], "empty")


def relu():
    x = parameter([1, 4])
    return ov.Model([op.relu(x)], [x], "relu")


# Models that are stored with 16-bit constants.
HALVES = {"half_mlp": mlp, "half_conv": conv}
FILES = {
    "mlp": mlp, "conv": conv, "control": control, "compressed": compressed, "split": split, "names": names, "shared": shared, "empty": empty, "relu": relu,
    "dtypes": dtypes(NUMBERS), "packed": dtypes(["u1", "i4", "u4", "nf4", "f4e2m1"]), **HALVES,
}


def bodies(layer):
    """Returns the bodies of a layer, each with the part of the path that names it."""
    kind = layer.get_type_name()
    if kind == "If":
        return [(layer.get_function(0), ["then_body"]), (layer.get_function(1), ["else_body"])]
    return [(layer.get_function(), [])] if kind in ("Loop", "TensorIterator") else []


def read(model, path=()):
    """Returns the constants by their path, and the types of all layers, in any order."""
    found, kinds = [], []
    for layer in model.get_ordered_ops():
        kind = layer.get_type_name()
        if kind == "Constant":
            found.append((".".join([*path, layer.get_friendly_name()]), layer))
        elif kind != "Parameter":
            kinds.append(STORED.get(kind, kind))
        for body, part in bodies(layer):
            inner, more = read(body, (*path, layer.get_friendly_name(), *part))
            found += inner
            kinds += more
    return found, kinds


def described(layer):
    """Returns dtype, shape, bytes and attributes of a constant, as Weighbridge lists it."""
    word = layer.get_element_type().get_type_name()
    shape = list(layer.get_output_shape(0))
    data = layer.get_tensor_view().data if hasattr(layer, "get_tensor_view") else layer.data
    content = np.ascontiguousarray(data).tobytes()
    if word in PACKED:
        count = (int(np.prod(shape)) * PACKED[word] + 7) // 8
        return "u8", [count], content[:count], {"packed_dtype": word, "packed_shape": shape}
    return DTYPES.get(word, word), shape, content, {}


def library(path):
    return read(ov.Core().read_model(path))


def damage():
    text, data = (GOOD / "mlp.xml").read_text(), (GOOD / "mlp.bin").read_bytes()

    def write(name, text, data=data):
        (BAD / f"{name}.xml").write_text(text)
        if data is not None:
            (BAD / f"{name}.bin").write_bytes(data)

    write("no-constants", text, None)
    write("truncated", text, data[:-8])
    write("version", text.replace('version="11"', 'version="7"'))
    write("root", text.replace("<net ", "<network ").replace("</net>", "</network>"))
    write("unclosed", text[:-80])
    write("wrong-end", text.replace("</layers>", "</layer>"))
    write("doctype", text.replace("<net ", '<!DOCTYPE net [<!ENTITY a "b">]>\n<net ', 1))
    write("size", text.replace('size="768"', 'size="760"'))
    write("offset", text.replace('offset="0"', 'offset="99999"'))
    write("shape", text.replace('shape="16, 12"', 'shape="16, -12"'))
    write("overflow", text.replace('shape="16, 12"', 'shape="4294967295, 4294967295, 4294967295"'))
    write("edge", text.replace('from-layer="1"', 'from-layer="100"'))
    write("deep", '<net version="11">' + "<a>" * 500)


def main():
    GOOD.mkdir(parents=True, exist_ok=True)
    BAD.mkdir(parents=True, exist_ok=True)
    expected = {}
    for name, make in FILES.items():
        ov.save_model(make(), str(GOOD / f"{name}.xml"), compress_to_fp16=name in HALVES)
        constants, kinds = library(str(GOOD / f"{name}.xml"))
        entries = {}
        for key, layer in constants:
            dtype, shape, content, more = described(layer)
            if key in entries:
                key = f"{key}~{len(entries)}"
            entries[key] = {"dtype": dtype, "shape": shape, "sha256": hashlib.sha256(content).hexdigest(), **more}
        expected[name] = {"tensors": entries, "layers": sorted(kinds)}
        print(name, {key: (one["dtype"], one["shape"]) for key, one in entries.items()})
    damage()
    (ROOT / "expected.json").write_text(json.dumps(expected, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
