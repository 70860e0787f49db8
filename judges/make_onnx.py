"""Golden files of ONNX, written by the library `onnx`: testdata/onnx.

    python judges/make_onnx.py

Needs: onnx 1.19, numpy. `expected.json` has what the library reads: dtype, shape and elements of every tensor.
"""
import hashlib
import json
import pathlib
import struct

import ml_dtypes  # noqa: F401: numpy dtypes of onnx
import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper as nh

ROOT = pathlib.Path(__file__).resolve().parent.parent / "testdata" / "onnx"
GOOD, BAD = ROOT / "good", ROOT / "bad"
NAMES = {
    1: "f32", 2: "u8", 3: "i8", 4: "u16", 5: "i16", 6: "i32", 7: "i64", 9: "bool", 10: "f16", 11: "f64", 12: "u32", 13: "u64",
    14: "c64", 15: "c128", 16: "bf16", 17: "f8_e4m3", 18: "f8_e4m3fnuz", 19: "f8_e5m2", 20: "f8_e5m2fnuz", 23: "f4", 24: "f8_e8m0",
}
WIDTH = {**dict.fromkeys((2, 3, 9, 17, 18, 19, 20, 24), 1), **dict.fromkeys((4, 5, 10, 16), 2), **dict.fromkeys((1, 6, 12), 4),
         **dict.fromkeys((7, 11, 13, 14), 8), 15: 16}


def value(name, dtype, shape):
    return h.make_tensor_value_info(name, dtype, shape)


def model(nodes, inputs, outputs, initializers=(), opset=17, ir=8, extra_opsets=(), **more):
    graph = h.make_graph(nodes, more.pop("name", "main"), inputs, outputs, list(initializers), value_info=more.pop("value_info", []))
    opsets = [h.make_opsetid("", opset), *[h.make_opsetid(d, v) for d, v in extra_opsets]]
    made = h.make_model(graph, opset_imports=opsets, ir_version=ir, producer_name="make_onnx", producer_version="1", **more)
    return made


def raw(name, dtype, dims, data):
    return T(name=name, data_type=dtype, dims=dims, raw_data=data)


def every_dtype_raw():
    """One initializer of each dtype, as bytes."""
    tensors = []
    for number, width in WIDTH.items():
        data = bytes((7 * i + number) % 251 for i in range(6 * width))
        if number == 9:
            data = bytes([0, 1, 1, 0, 1, 0])
        tensors.append(raw("w_" + NAMES[number], number, [2, 3], data))
    tensors.append(raw("w_f4", 23, [2, 4], bytes([0x10, 0x32, 0x54, 0x76])))
    tensors.append(raw("scalar", 1, [], struct.pack("<f", 1.5)))
    tensors.append(raw("none", 1, [0, 4], b""))
    return model([h.make_node("Identity", ["w_f32"], ["y"])], [], [value("y", 1, [2, 3])], tensors, opset=23, ir=11)


def typed_fields():
    """Elements in the field of their dtype."""
    make = [
        T(name="float", data_type=1, dims=[2, 2], float_data=[1, -2, 3.5, float("nan")]),
        T(name="int32", data_type=6, dims=[3], int32_data=[1, -1, 2**31 - 1]),
        T(name="bool", data_type=9, dims=[3], int32_data=[0, 1, 1]),
        T(name="int8", data_type=3, dims=[3], int32_data=[-128, 0, 127]),
        T(name="uint8", data_type=2, dims=[3], int32_data=[255, 0, 127]),
        T(name="int16", data_type=5, dims=[2], int32_data=[-32768, 32767]),
        T(name="uint16", data_type=4, dims=[2], int32_data=[65535, 1]),
        T(name="float16", data_type=10, dims=[2], int32_data=[0x3C00, 0xC000]),
        T(name="bfloat16", data_type=16, dims=[2], int32_data=[0x3F80, 0xC000]),
        T(name="float8", data_type=17, dims=[2], int32_data=[0x38, 0xC0]),
        T(name="int64", data_type=7, dims=[4], int64_data=[1, -1, 2**63 - 1, -(2**63)]),
        T(name="double", data_type=11, dims=[2], double_data=[1.5, -2.25]),
        T(name="uint32", data_type=12, dims=[2], uint64_data=[1, 2**32 - 1]),
        T(name="uint64", data_type=13, dims=[2], uint64_data=[1, 2**64 - 1]),
        T(name="complex64", data_type=14, dims=[2], float_data=[1, 2, 3, -4]),
        T(name="complex128", data_type=15, dims=[1], double_data=[1, -2]),
        T(name="empty", data_type=7, dims=[0]),
    ]
    return model([h.make_node("Identity", ["float"], ["y"])], [], [value("y", 1, [2, 2])], make)


def unpacked():
    """Elements with a tag each, as writers without packed fields store them."""
    def tensor(name, dtype, dims, field, wire, elements):
        body = b"".join(b"\x08" + varint(d) for d in dims) + b"\x10" + varint(dtype)
        body += b"".join(bytes([field << 3 | wire]) + e for e in elements)
        return body + b"\x42" + varint(len(name)) + name.encode()
    parts = [
        tensor("floats", 1, [3], 4, 5, [struct.pack("<f", v) for v in (1, 2.5, -3)]),
        tensor("ints", 7, [3], 7, 0, [varint(v & 2**64 - 1) for v in (1, 300, -1)]),
        tensor("doubles", 11, [2], 10, 1, [struct.pack("<d", v) for v in (1, -2)]),
        # Two packed parts of one field.
        b"\x08\x04\x10\x06" + b"\x2a\x02\x01\x02" + b"\x2a\x03\x03\xac\x02" + b"\x42\x05parts",
    ]
    base = model([h.make_node("Identity", ["floats"], ["y"])], [], [value("y", 1, [3])])
    graph = base.graph.SerializeToString() + b"".join(b"\x2a" + varint(len(p)) + p for p in parts)
    whole = onnx.ModelProto()
    whole.CopyFrom(base)
    whole.ClearField("graph")
    data = whole.SerializeToString() + b"\x3a" + varint(len(graph)) + graph
    return data


def varint(number):
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def mlp(**more):
    rng = np.random.default_rng(7)
    w1, b1 = rng.standard_normal((4, 8), dtype=np.float32), rng.standard_normal(8, dtype=np.float32)
    w2, b2 = rng.standard_normal((8, 3), dtype=np.float32), rng.standard_normal(3, dtype=np.float32)
    nodes = [
        h.make_node("MatMul", ["x", "fc1.weight"], ["h0"], name="matmul_1"),
        h.make_node("Add", ["h0", "fc1.bias"], ["h1"]),
        h.make_node("Relu", ["h1"], ["h2"]),
        h.make_node("Gemm", ["h2", "fc2.weight", "fc2.bias"], ["y"], alpha=1.0, transB=0),
    ]
    made = model(nodes, [value("x", 1, ["N", 4])], [value("y", 1, ["N", 3])],
                 [nh.from_array(a, n) for n, a in (("fc1.weight", w1), ("fc1.bias", b1), ("fc2.weight", w2), ("fc2.bias", b2))],
                 value_info=[value("fc1.weight", 1, [4, 8]), value("h2", 1, ["N", 8])], **more)
    made.doc_string = "Two layers"
    entry = made.metadata_props.add()
    entry.key, entry.value = "task", "classify"
    return made


def old_ir():
    """Initializers that are inputs, as up to IR version 3, and a quantization annotation."""
    made = mlp(ir=3, opset=9)
    made.graph.input.append(value("fc1.weight", 1, [4, 8]))
    made.graph.input.append(value("fc1.bias", 1, [8]))
    made.graph.input.append(value("fc2.weight", 1, [8, 3]))
    made.graph.input.append(value("fc2.bias", 1, [3]))
    made.graph.quantization_annotation.add(
        tensor_name="h2", quant_parameter_tensor_names=[onnx.StringStringEntryProto(key="SCALE_TENSOR", value="fc1.bias")])
    return made


def control_flow():
    """If and Loop with tensors in their bodies, and constants."""
    then = h.make_graph([h.make_node("Mul", ["x", "w"], ["t"])], "then", [], [value("t", 1, [2, 2])],
                        [nh.from_array(np.full((2, 2), 2, np.float32), "w")])
    other = h.make_graph([h.make_node("Constant", [], ["k"], value=nh.from_array(np.eye(2, dtype=np.float32), "inner")),
                          h.make_node("Add", ["k", "shift"], ["k2"]), h.make_node("MatMul", ["x", "k2"], ["e"])], "else", [],
                         [value("e", 1, [2, 2])], [nh.from_array(np.ones((2, 2), np.float32), "w")])
    body = h.make_graph([h.make_node("Add", ["acc", "step"], ["acc2"]), h.make_node("Identity", ["go"], ["go2"])], "body",
                        [value("i", 7, []), value("go", 9, []), value("acc", 1, [2, 2])],
                        [value("go2", 9, []), value("acc2", 1, [2, 2])], [nh.from_array(np.full((1,), 0.5, np.float32), "step")])
    nodes = [
        h.make_node("Constant", [], ["three"], value=nh.from_array(np.array(3, np.int64))),
        h.make_node("Constant", [], ["yes"], value=nh.from_array(np.array(True))),
        h.make_node("ConstantOfShape", ["dims"], ["filled"], value=nh.from_array(np.array([0.25], np.float32), "value")),
        h.make_node("If", ["cond"], ["chosen"], name="choose", then_branch=then, else_branch=other),
        h.make_node("Loop", ["three", "yes", "chosen"], ["looped"], body=body),
        h.make_node("Add", ["looped", "filled"], ["y"]),
    ]
    return model(nodes, [value("x", 1, [2, 2]), value("cond", 9, [])], [value("y", 1, [2, 2])],
                 [nh.from_array(np.array([2, 2], np.int64), "dims"), nh.from_array(np.full((2, 2), 0.125, np.float32), "shift")])


def outer_values():
    """A branch that declares and uses a value of the main graph."""
    then = h.make_graph([h.make_node("Add", ["w", "v"], ["t"])], "then", [], [value("t", 1, [2])],
                        [nh.from_array(np.array([10, 20], np.float32), "v")], value_info=[value("w", 1, [2])])
    other = h.make_graph([h.make_node("Identity", ["w"], ["e"])], "else", [], [value("e", 1, [2])])
    return model([h.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other)], [value("c", 9, [])], [value("y", 1, [2])],
                 [nh.from_array(np.array([1, 2], np.float32), "w")])


def functions():
    made = model([h.make_node("Scale", ["x"], ["y"], domain="local")], [value("x", 1, [2])], [value("y", 1, [2])],
                 extra_opsets=[("local", 1)])
    made.functions.append(h.make_function(
        "local", "Scale", ["a"], ["b"],
        [h.make_node("Constant", [], ["k"], value=nh.from_array(np.array([2, 3], np.float32))), h.make_node("Mul", ["a", "k"], ["b"])],
        [h.make_opsetid("", 17)]))
    return made


def sparse():
    made = model([h.make_node("MatMul", ["x", "s"], ["y"])], [value("x", 1, [1, 3])], [value("y", 1, [1, 4])])
    values = nh.from_array(np.array([1.5, -2], np.float32), "s")
    indices = nh.from_array(np.array([2, 9], np.int64), "s_indices")
    made.graph.sparse_initializer.append(h.make_sparse_tensor(values, indices, [3, 4]))
    return made


def packed():
    """Elements of 4 bits, and text."""
    tensors = [
        raw("int4", 22, [3, 3], bytes([0x21, 0x43, 0x65, 0x87, 0x09])),
        T(name="uint4", data_type=21, dims=[3], int32_data=[0x21, 0x03]),
        T(name="words", data_type=8, dims=[2], string_data=[b"hello", "größe".encode()]),
        raw("scale", 1, [1], struct.pack("<f", 0.5)),
    ]
    return model([h.make_node("DequantizeLinear", ["int4", "scale"], ["y"])], [], [value("y", 1, [3, 3])], tensors, opset=21, ir=10)


def attributes():
    """Attributes of all kinds, and training information."""
    made = model([h.make_node("Many", ["x"], ["y"], domain="com.microsoft", f=0.5, i=-3, s="text", t=nh.from_array(np.ones(2, np.float32), "t"),
                              fs=[0.5, 1.5], ints=[1, -2, 3], ss=["a", "b"], ts=[nh.from_array(np.zeros(1, np.int32), "a"), nh.from_array(np.ones(1, np.int32), "b")])],
                 [value("x", 1, [1])], [value("y", 1, [1])], extra_opsets=[("com.microsoft", 1)])
    step = made.training_info.add()
    step.algorithm.CopyFrom(h.make_graph([h.make_node("Sub", ["p", "lr"], ["p2"])], "step", [], [value("p2", 1, [1])],
                                         [nh.from_array(np.array([0.1], np.float32), "lr"), nh.from_array(np.array([1], np.float32), "p")]))
    return made


def external(path, threshold=0):
    made = mlp()
    onnx.save_model(made, path, save_as_external_data=True, all_tensors_to_one_file=True, location=path.name + ".data", size_threshold=threshold,
                    convert_attribute=False)


def elements(tensor):
    """Bytes of the elements, little-endian, as the library reads them."""
    if tensor.data_type in (21, 22):
        return None
    if tensor.data_type == 23:
        return tensor.raw_data
    array = nh.to_array(tensor)
    return np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False).tobytes() if array.dtype.kind in "fiuc" and array.dtype.itemsize > 1 else np.ascontiguousarray(array).tobytes()


def tensors_of(made):
    """Names of the index with the tensors of a model."""
    found = {}

    def graph(g, prefix):
        for node in g.node:
            nodes(node, prefix)
        for tensor in g.initializer:
            found[prefix + tensor.name] = tensor
        for s in g.sparse_initializer:
            found[prefix + s.values.name + ".values"] = s.values
            found[prefix + s.values.name + ".indices"] = s.indices

    def nodes(node, prefix):
        label = next((o for o in node.output if o), node.name)
        for a in node.attribute:
            at = f"{prefix}{label}.{a.name}"
            if a.type == a.TENSOR:
                found[prefix + label if (node.op_type, a.name) == ("Constant", "value") else at] = a.t
            elif a.type == a.GRAPH:
                graph(a.g, at + ".")
            elif a.type == a.TENSORS:
                for i, t in enumerate(a.tensors):
                    found[f"{at}.{i}"] = t

    graph(made.graph, "")
    for i, step in enumerate(made.training_info):
        graph(step.initialization, f"training_{i}.initialization.")
        graph(step.algorithm, f"training_{i}.algorithm.")
    for f in made.functions:
        for node in f.node:
            nodes(node, f"{f.domain}:{f.name}.")
    return found


def expected(path):
    made = onnx.load(path)
    out = {}
    for name, tensor in tensors_of(made).items():
        if tensor.data_type == 8:
            continue
        data = elements(tensor)
        if data is None:
            out[name] = {"dtype": "u8", "shape": [(int(np.prod(tensor.dims)) + 1) // 2]}
            continue
        out[name] = {"dtype": NAMES[tensor.data_type], "shape": list(tensor.dims), "sha256": hashlib.sha256(data).hexdigest()}
    return out


def main():
    GOOD.mkdir(parents=True, exist_ok=True)
    BAD.mkdir(parents=True, exist_ok=True)
    makers = [every_dtype_raw, typed_fields, unpacked, mlp, old_ir, control_flow, outer_values, functions, sparse, packed, attributes]
    for make in makers:
        made = make()
        data = made if isinstance(made, bytes) else made.SerializeToString()
        (GOOD / f"{make.__name__}.onnx").write_bytes(data)
    for name in ("external", "partly_external"):
        for old in (GOOD / name).glob("*"):
            old.unlink()
        (GOOD / name).mkdir(exist_ok=True)
        external(GOOD / name / "net.onnx", 0 if name == "external" else 100)
    listed = {}
    for path in sorted(GOOD.rglob("*.onnx")):
        listed[str(path.relative_to(GOOD))] = expected(path)
    (ROOT / "expected.json").write_text(json.dumps(listed, indent=1) + "\n")
    bad()


def bad():
    """Damaged models."""
    good = mlp()
    whole = good.SerializeToString()

    def save(name, change):
        made = mlp()
        change(made)
        (BAD / f"{name}.onnx").write_bytes(made.SerializeToString())

    def dims(made):
        made.graph.initializer[0].dims[0] = 5

    def negative(made):
        made.graph.initializer[0].dims[0] = -4

    def huge(made):
        made.graph.initializer[0].dims[:] = [2**62, 2**62]

    def both(made):
        made.graph.initializer[0].float_data.extend([1, 2])

    def field(made):
        del made.graph.initializer[1].dims[:]
        made.graph.initializer[1].dims.append(2)
        made.graph.initializer[1].ClearField("raw_data")
        made.graph.initializer[1].int64_data.extend([1, 2])

    def outside(name):
        def change(made):
            tensor = made.graph.initializer[0]
            tensor.ClearField("raw_data")
            tensor.data_location = T.EXTERNAL
            for key, text in (("location", name), ("offset", "0"), ("length", "128")):
                entry = tensor.external_data.add()
                entry.key, entry.value = key, text
        return change

    def number(made):
        outside("w.bin")(made)
        made.graph.initializer[0].external_data[1].value = "many"

    save("dims-differ", dims)
    save("dims-negative", negative)
    save("dims-overflow", huge)
    save("elements-twice", both)
    save("field-of-another-dtype", field)
    save("external-missing", outside("gone.data"))
    save("external-parent", outside("../secret.bin"))
    save("external-absolute", outside("/etc/passwd"))
    save("external-offset", number)
    (BAD / "truncated.onnx").write_bytes(whole[:-40])
    (BAD / "length-past-end.onnx").write_bytes(whole.replace(b"\x4a\x0c", b"\x4a\x0d"))
    (BAD / "group.onnx").write_bytes(whole.replace(b"\x12\x04main", b"\x13\x04main"))
    # A hundred nested graphs.
    inner = b""
    for _ in range(100):
        attribute = b"\x0a\x01g" + b"\x32" + varint(len(inner)) + inner
        node = b"\x2a" + varint(len(attribute)) + attribute
        inner = b"\x0a" + varint(len(node)) + node
    (BAD / "nested.onnx").write_bytes(b"\x08\x08\x3a" + varint(len(inner)) + inner)


if __name__ == "__main__":
    main()
