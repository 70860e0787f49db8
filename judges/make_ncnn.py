"""Golden files of ncnn: testdata/ncnn.

    python judges/make_ncnn.py

Needs: the packages of judges/biggraph.txt and judges/ncnn.txt.

- pnnx converts modules of PyTorch (`TORCH`). `expected.json` has the parameters of the modules in the layout of ncnn.
- The tools in the package do not quantize, and write no binary networks. Such files, and layers that pnnx does not write, are
  written here (`WRITTEN`), and loaded by ncnn.
"""
import hashlib
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent / "testdata" / "ncnn"
GOOD, BAD = ROOT / "good", ROOT / "bad"
FLAGS = {"f32": 0, "plain": 0x0002C056, "f16": 0x01306B47, "bf16": 0x01348B83, "i8": 0x000D4B38, "table": 1}
# Numbers of types in the binary form.
NUMBERS = {"Input": 16, "Convolution": 6, "InnerProduct": 15, "ReLU": 26, "Gemm": 74, "Split": 33}
DTYPES = {"<f4": "f32", "<f2": "f16", "|i1": "i8", "|u1": "u8", "<u2": "bf16"}


def values(shape, seed):
    return np.random.RandomState(seed).standard_normal(shape).astype("<f4")


def integers(shape, seed, low=-127, high=128):
    return np.random.RandomState(seed).randint(low, high, shape).astype("i1")


def scales(shape, seed):
    return (np.random.RandomState(seed).rand(*shape) * 10 + 40).astype("<f4")


class Net:
    """A network with its weights, written by the rules of ncnn."""

    def __init__(self, **inputs):
        self.layers, self.data, self.tensors, self.attributes, self.inputs = [], b"", {}, {}, inputs
        for name, shape in inputs.items():
            sizes = list(reversed(shape))
            keys = [0, 1, 2] if len(sizes) < 4 else [0, 1, 11, 2]
            self.layer("Input", name, [], [name], dict(zip(keys, sizes)))

    def layer(self, kind, name, inputs, outputs, params=None, weights=()):
        self.layers.append((kind, name, inputs, outputs, params or {}))
        for suffix, array, storage in weights:
            self.add(f"{name}.{suffix}", array, storage)
        return self

    def add(self, name, array, storage):
        array = np.ascontiguousarray(array)
        if storage in FLAGS:
            self.data += struct.pack("<I", FLAGS[storage])
        if storage == "f16":
            array = array.astype("<f2")
        if storage == "bf16":
            # The upper half of each float; numpy has no such dtype.
            array = (array.view("<u4") >> 16).astype("<u2")
        if storage == "table":
            table = values((256,), len(self.data))
            self.data += table.tobytes()
            self.tensors[name] = array.astype("u1")
            self.tensors[f"{name}.table"] = table
        else:
            self.tensors[name] = array
        content = self.tensors[name].tobytes()
        self.data += content + b"\0" * (-len(content) % 4)

    def blobs(self):
        found = []
        for _, _, inputs, outputs, _ in self.layers:
            found += [name for name in [*inputs, *outputs] if name not in found]
        return found

    def text(self):
        lines = ["7767517", f"{len(self.layers)} {len(self.blobs())}"]
        for kind, name, inputs, outputs, params in self.layers:
            words = [f"{kind:<24} {name:<24} {len(inputs)} {len(outputs)}", *inputs, *outputs]
            for key, value in params.items():
                if isinstance(value, list):
                    words.append(f"{-23300 - key}={len(value)}," + ",".join(map(str, value)))
                elif isinstance(value, tuple):
                    words.append(f"{key}=" + ",".join(map(str, value)))
                else:
                    words.append(f"{key}={value}")
            lines.append(" ".join(words))
        return "\n".join(lines) + "\n"

    def binary(self):
        def number(value):
            return struct.pack("<f" if isinstance(value, float) else "<i", value)

        blobs = self.blobs()
        out = struct.pack("<3i", 7767517, len(self.layers), len(blobs))
        for kind, _, inputs, outputs, params in self.layers:
            out += struct.pack("<3i", NUMBERS[kind], len(inputs), len(outputs))
            out += b"".join(struct.pack("<i", blobs.index(name)) for name in [*inputs, *outputs])
            for key, value in params.items():
                if isinstance(value, (list, tuple)):
                    out += struct.pack("<2i", -23300 - key, len(value)) + b"".join(map(number, value))
                elif isinstance(value, str):
                    content = value.strip('"').encode()
                    out += struct.pack("<2i", -23400 - key, len(content)) + content + b"\0" * (-len(content) % 4)
                else:
                    out += struct.pack("<i", key) + number(value)
            out += struct.pack("<i", -233)
        return out

    def write(self, folder, name, is_binary=False):
        if is_binary:
            (folder / f"{name}.param.bin").write_bytes(self.binary())
        else:
            (folder / f"{name}.param").write_text(self.text())
        (folder / f"{name}.bin").write_bytes(self.data)


def convolution(net, name, source, target, outputs, inputs, size, storage, seed, bias=True, int8=0, **more):
    weight = integers((outputs, inputs, size, size), seed) if storage == "i8" else values((outputs, inputs, size, size), seed)
    weights = [("weight", weight, storage)] + ([("bias", values((outputs,), seed + 1), None)] if bias else [])
    if int8:
        weights += [("weight.scale", scales((outputs,), seed + 2), None), ("input_scale", scales((1,), seed + 3), None)]
    if int8 > 100:
        weights.append(("output_scale", scales((1,), seed + 4), None))
    params = {0: outputs, 1: size, 5: int(bias), 6: weight.size, **({8: int8} if int8 else {}), **{int(key[1:]): value for key, value in more.items()}}
    net.layer("Convolution", name, [source], [target], params, weights)
    if storage == "i8":
        net.attributes[f"{name}.weight"] = ("per_channel_divided", 0)


def product(net, name, source, target, outputs, inputs, storage, seed, int8=0):
    weight = integers((outputs, inputs), seed) if storage in ("i8", "table") else values((outputs, inputs), seed)
    weights = [("weight", weight, storage), ("bias", values((outputs,), seed + 1), None)]
    if int8:
        weights += [("weight.scale", scales((outputs,), seed + 2), None), ("input_scale", scales((1,), seed + 3), None)]
        net.attributes[f"{name}.weight"] = ("per_channel_divided", 0) if storage == "i8" else None
    if storage == "table":
        net.attributes[f"{name}.weight"] = ("lookup_table", None)
    net.layer("InnerProduct", name, [source], [target], {0: outputs, 1: 1, 2: weight.size, **({8: int8} if int8 else {})}, weights)


def int8_conv():
    net = Net(data=(3, 8, 8))
    convolution(net, "conv", "data", "a", 4, 3, 3, "i8", 100, int8=2)
    # Floats that ncnn itself quantizes.
    convolution(net, "late", "a", "b", 5, 4, 1, "f32", 110, int8=2, bias=False)
    product(net, "fc", "b", "c", 3, 180, "i8", 120, int8=2)
    return net


def int8_output():
    net = Net(data=(3, 6, 6))
    convolution(net, "conv1", "data", "a", 4, 3, 1, "i8", 130, int8=102)
    convolution(net, "conv2", "a", "b", 2, 4, 3, "i8", 140, int8=2)
    return net


def int8_depthwise():
    net = Net(data=(4, 6, 6))
    for place, (name, term, count) in enumerate([("channels", 1, 4), ("whole", 2, 1)]):
        weights = [("weight", integers((4, 1, 3, 3), 150 + place), "i8"), ("bias", values((4,), 155 + place), None)]
        weights += [("weight.scale", scales((count,), 160 + place), None), ("input_scale", scales((1,), 165 + place), None)]
        net.layer("ConvolutionDepthWise", name, ["data" if place == 0 else "a"], ["a" if place == 0 else "b"], {0: 4, 1: 3, 5: 1, 6: 36, 7: 4, 8: term}, weights)
        net.attributes[f"{name}.weight"] = ("per_channel_divided", 0) if term == 1 else ("per_tensor_divided", None)
    # Two groups of two channels each.
    weights = [("weight", integers((4, 2, 3, 3), 170), "i8"), ("weight.scale", scales((2,), 171), None), ("input_scale", scales((1,), 172), None)]
    weights.append(("output_scale", scales((1,), 173), None))
    net.layer("ConvolutionDepthWise", "groups", ["b"], ["c"], {0: 4, 1: 3, 4: 1, 6: 72, 7: 2, 8: 101}, weights)
    net.attributes["groups.weight"] = ("blockwise_divided", None)
    return net


def int8_recurrent():
    net = Net(data=(5, 6))
    weights = [("weight_xc", integers((2, 16, 6), 180), "i8"), ("bias_c", values((2, 4, 4), 181), "f32"), ("weight_hc", integers((2, 16, 3), 182), "i8")]
    weights += [("weight_hr", values((2, 3, 4), 183), "f32"), ("weight_xc.scale", scales((2, 16), 184), None), ("weight_hc.scale", scales((2, 16), 185), None)]
    net.layer("LSTM", "lstm", ["data"], ["a"], {0: 3, 1: 192, 2: 2, 3: 4, 8: 2}, weights)
    weights = [("weight_xc", integers((1, 12, 6), 186), "i8"), ("bias_c", values((1, 4, 4), 187), "f32"), ("weight_hc", integers((1, 12, 4), 188), "i8")]
    weights += [("weight_xc.scale", scales((1, 12), 189), None), ("weight_hc.scale", scales((1, 12), 190), None)]
    net.layer("GRU", "gru", ["a"], ["b"], {0: 4, 1: 72, 8: 2}, weights)
    weights = [("weight_xc", integers((1, 4, 4), 191), "i8"), ("bias_c", values((1, 1, 4), 192), "f32"), ("weight_hc", integers((1, 4, 4), 193), "i8")]
    weights += [("weight_xc.scale", scales((1, 4), 194), None), ("weight_hc.scale", scales((1, 4), 195), None)]
    net.layer("RNN", "rnn", ["b"], ["c"], {0: 4, 1: 16, 8: 2}, weights)
    for name in ("lstm.weight_xc", "lstm.weight_hc", "gru.weight_xc", "gru.weight_hc", "rnn.weight_xc", "rnn.weight_hc"):
        net.attributes[name] = ("blockwise_divided", None)
    return net


def int8_products():
    net = Net(data=(5, 8))
    weights = [("B", integers((6, 8), 200), "i8"), ("C", values((6,), 201).reshape(1, 6), "f32"), ("B.scale", scales((1,), 202), None)]
    net.layer("Gemm", "right", ["data"], ["a"], {3: 1, 5: 1, 6: 1, 8: 6, 9: 8, 10: 4, 18: 2}, weights)
    weights = [("A", integers((4, 5), 203), "i8"), ("A.scale", scales((4,), 204), None)]
    net.layer("Gemm", "left", ["a"], ["b"], {4: 1, 6: 1, 7: 4, 9: 5, 10: -1, 18: 2}, weights)
    weights = []
    for part, seed in (("q", 210), ("k", 212), ("v", 214), ("out", 216)):
        weights += [(f"{part}_weight", integers((6, 6), seed), "i8"), (f"{part}_bias", values((6,), seed + 1), None)]
    weights += [(f"{part}_weight.scale", scales((6 if part != "out" else 1,), 220 + place), None) for place, part in enumerate(("q", "k", "v", "out"))]
    net.layer("MultiHeadAttention", "attention", ["b"], ["c"], {0: 6, 1: 2, 2: 36, 18: 2}, weights)
    for name, scheme in {
        "right.B": ("per_tensor_divided", None), "left.A": ("per_channel_divided", 0), "attention.q_weight": ("per_channel_divided", 0),
        "attention.k_weight": ("per_channel_divided", 0), "attention.v_weight": ("per_channel_divided", 0), "attention.out_weight": ("per_tensor_divided", None),
    }.items():
        net.attributes[name] = scheme
    return net


def blocks():
    """Products whose weights have a scale for each block of a row."""
    net = Net(data=(3, 40))
    for place, (name, term, bits, block) in enumerate([("four", 400, 4, 32), ("six", 611, 6, 64), ("eight", 802, 8, 128)]):
        count = -(-40 // block)
        packed = (40 * bits + 7) // 8
        weights = [("B", integers((40, packed), 230 + place), "bytes"), ("B.scale", scales((40, count), 235 + place), None)]
        if term % 100 >= 10:
            weights.append(("B.input_scale", scales((40,), 240 + place), None))
        source, target = (["data", "a", "b", "c"])[place:place + 2]
        net.layer("Gemm", name, [source], [target], {3: 1, 5: 1, 8: 40, 9: 40, 18: term}, weights)
        net.attributes[f"{name}.B"] = ("blockwise_divided", None)
        if bits < 8:
            net.tensors[f"{name}.B"] = net.tensors[f"{name}.B"].view("u1")
            net.attributes[f"{name}.B"] += (f"i{bits}", [40, 40])
    parts = ("q", "k", "v", "out")
    weights = []
    for place, part in enumerate(parts):
        weights += [(f"{part}_weight", integers((40, 20), 245 + place), "bytes"), (f"{part}_bias", values((40,), 250 + place), None)]
    weights += [(f"{part}_weight.scale", scales((40, 2), 255 + place), None) for place, part in enumerate(parts)]
    weights += [(f"{part}_weight.input_scale", scales((40,), 260 + place), None) for place, part in enumerate(parts)]
    net.layer("MultiHeadAttention", "attention", ["c"], ["d"], {0: 40, 1: 2, 2: 1600, 18: 410}, weights)
    for part in parts:
        net.tensors[f"attention.{part}_weight"] = net.tensors[f"attention.{part}_weight"].view("u1")
        net.attributes[f"attention.{part}_weight"] = ("blockwise_divided", None, "i4", [40, 40])
    return net


def table():
    net = Net(data=(12,))
    product(net, "fc", "data", "a", 5, 12, "table", 270)
    product(net, "plain", "a", "b", 3, 5, "plain", 275)
    return net


def brain():
    """Weights in bf16 as those of each other storage."""
    net = Net(data=(3, 6, 6))
    net.layer("MemoryData", "plane", [], ["p"], {0: 6, 1: 6, 2: 3, 21: 0}, [("data", values((3, 6, 6), 400), "bf16")])
    net.layer("BinaryOp", "add", ["data", "p"], ["a"], {0: 0})
    convolution(net, "conv", "a", "b", 5, 3, 3, "bf16", 401)
    product(net, "fc", "b", "c", 4, 80, "bf16", 405)
    # As long as a table of 256 numbers with its indices.
    product(net, "wide", "c", "d", 256, 4, "bf16", 410)
    product(net, "last", "d", "e", 2, 256, "f16", 415)
    return net


def constants():
    """Constants of one byte for each element."""
    net = Net(data=(3,))
    net.layer("ReLU", "relu", ["data"], ["out"], {0: 0.5})
    for place, storage in enumerate((3, 4, 6, 8)):
        net.layer("MemoryData", f"data{storage}", [], [f"d{storage}"], {0: 3, 1: 2 + place, 21: storage}, [("data", integers((2 + place, 3), 420 + place), "bytes")])
    return net


def plain():
    """Layers whose weights have no word before them."""
    net = Net(data=(4, 5, 6))
    net.layer("BatchNorm", "bn", ["data"], ["a"], {0: 4, 1: 1e-5}, [("slope", values((4,), 280), None), ("mean", values((4,), 281), None), ("var", values((4,), 282) ** 2 + 1, None), ("bias", values((4,), 283), None)])
    net.layer("Scale", "scale", ["a"], ["b"], {0: 4, 1: 1}, [("scale", values((4,), 284), None), ("bias", values((4,), 285), None)])
    net.layer("Bias", "bias", ["b"], ["c"], {0: 4}, [("bias", values((4,), 286), None)])
    net.layer("PReLU", "prelu", ["c"], ["d"], {0: 4}, [("slope", values((4,), 287), None)])
    net.layer("Normalize", "normalize", ["d"], ["e"], {1: 0, 2: 1e-6, 3: 4}, [("scale", values((4,), 288), None)])
    net.layer("Padding", "padding", ["e"], ["f"], {0: 1, 1: 1, 2: 1, 3: 1, 6: 4}, [("per_channel_pad", values((4,), 289), None)])
    net.layer("InstanceNorm", "instance", ["f"], ["g"], {0: 4, 1: 1e-5}, [("gamma", values((4,), 290), None), ("beta", values((4,), 291), None)])
    net.layer("GroupNorm", "group", ["g"], ["h"], {0: 2, 1: 4, 2: 1e-5}, [("gamma", values((4,), 292), None), ("beta", values((4,), 293), None)])
    net.layer("LayerNorm", "layer", ["h"], ["i"], {0: 8, 1: 1e-5}, [("gamma", values((8,), 294), None), ("beta", values((8,), 295), None)])
    net.layer("RMSNorm", "rms", ["i"], ["j"], {0: 8, 1: 1e-5}, [("gamma", values((8,), 296), None)])
    # Without weights of their own.
    net.layer("LayerNorm", "bare", ["j"], ["k"], {0: 8, 1: 1e-5, 2: 0})
    net.layer("Padding", "zeros", ["k"], ["l"], {0: 1})
    return net


def inputs():
    """Layers whose weights are inputs, and constants."""
    net = Net(data=(3, 6, 6))
    net.layer("MemoryData", "filters", [], ["w"], {0: 3, 1: 3, 11: 3, 2: 2}, [("data", values((2, 3, 3, 3), 300), None)])
    net.layer("Convolution", "conv", ["data", "w"], ["a"], {0: 2, 1: 3, 6: 54, 19: 1})
    net.layer("MemoryData", "factors", [], ["s"], {0: 2, 21: 0}, [("data", values((2,), 301), "f16")])
    net.layer("Scale", "scale", ["a", "s"], ["b"], {0: -233})
    net.layer("MemoryData", "plane", [], ["p"], {0: 4, 1: 4, 2: 2, 21: 0}, [("data", values((2, 4, 4), 302), "f32")])
    net.layer("BinaryOp", "add", ["b", "p"], ["c"], {0: 0})
    net.layer("MemoryData", "small", [], ["u"], {0: 3, 21: 3}, [("data", integers((3,), 304), "bytes")])
    net.layer("MemoryData", "row", [], ["r"], {0: 4, 1: 4}, [("data", values((4, 4), 303), None)])
    net.layer("BinaryOp", "mul", ["c", "r"], ["d"], {0: 2})
    return net


def embed():
    net = Net(data=(5,))
    weights = [("weight", integers((7, 6), 310), "i8"), ("bias", values((6,), 311), None), ("weight.scale", scales((1,), 312), None)]
    net.layer("Embed", "embed", ["data"], ["a"], {0: 6, 1: 7, 2: 1, 3: 42, 18: 2}, weights)
    net.attributes["embed.weight"] = ("per_tensor_divided", None)
    return net


def deformable():
    net = Net(data=(2, 5, 5), offset=(18, 5, 5))
    weights = [("weight", values((3, 2, 3, 3), 320), "f16"), ("bias", values((3,), 321), None)]
    net.layer("DeformableConv2D", "deform", ["data", "offset"], ["a"], {0: 3, 1: 3, 4: 1, 5: 1, 6: 54}, weights)
    return net


def requantized():
    net = Net(data=(4, 3, 3))
    net.layer("Quantize", "quantize", ["data"], ["a"], {0: 4}, [("scale", scales((4,), 330), None)])
    net.layer("Requantize", "requantize", ["a"], ["b"], {0: 4, 1: 1, 2: 4}, [("scale_in", scales((4,), 331), None), ("scale_out", scales((1,), 332), None), ("bias", values((4,), 333), None)])
    net.layer("Dequantize", "dequantize", ["b"], ["c"], {1: 4}, [("scale", scales((1,), 334), None), ("bias", values((4,), 335), None)])
    return net


def gemm():
    net = Net(data=(5, 8))
    net.layer("Split", "split", ["data"], ["x0", "x1", "x2", "x3"])
    net.layer("Gemm", "columns", ["x0"], ["a"], {5: 1, 6: 1, 8: 3, 9: 8, 10: 0}, [("B", values((8, 3), 340), "f32"), ("C", values((1,), 341), "f32")])
    net.layer("Gemm", "turned", ["x1"], ["b"], {2: 1, 4: 1, 6: 1, 7: 4, 8: 8, 9: 5, 10: 3}, [("A", values((5, 4), 342), "f16"), ("C", values((4, 8), 343), "f16")])
    net.layer("Gemm", "rows", ["x2"], ["c"], {4: 1, 6: 1, 7: 4, 8: 8, 9: 5, 10: 2}, [("A", values((4, 5), 344), "f32"), ("C", values((4, 1), 345), "f32")])
    net.layer("Gemm", "lone", ["x3"], ["d"], {4: 1, 6: 1, 7: 4, 9: 5, 10: 1}, [("A", values((4, 5), 346), "f32"), ("C", values((4,), 347), "f32")])
    return net


def custom():
    """A layer of the application without weights."""
    net = Net(data=(4,))
    product(net, "fc1", "data", "a", 5, 4, "f32", 350)
    net.layer("Mine", "mine", ["a"], ["b"], {0: 3, 1: "text"})
    product(net, "fc2", "b", "c", 2, 5, "f16", 355)
    return net


def spelled():
    """Lists and texts in each of their forms, a shape that is stated, and names that are not words."""
    net = Net(data=(3, 4))
    net.layer("Reshape", "reshape/1", ["data"], ["a"], {0: 4, 1: 3, 30: (2, 4, 3, 1)})
    net.layer("MatMul", "product", ["a", "b"], ["c"], {0: 0})
    net.layer("Clip", "clip.0", ["c"], ["out"], {0: -1.5, 1: 2e3, 9: '"two words"', 10: "word", 30: [2, 5, 3, 1]})
    net.layer("Slice", "slice", ["out"], ["p", "q"], {0: [-233, -233], 1: 0, 30: (2, 5, 1, 1, 2, 5, 2, 1)})
    net.layers.insert(1, ("MemoryData", "层", [], ["b"], {0: 5, 1: 4}))
    net.add("层.data", values((4, 5), 360), None)
    return net


def binary():
    net = Net(data=(3, 6, 6))
    net.layer("Split", "split", ["data"], ["x0", "x1"])
    convolution(net, "conv", "x0", "a", 4, 3, 3, "f16", 370, _9=2, _10=[0.125])
    net.layer("ReLU", "relu", ["a"], ["b"], {0: 0.25})
    product(net, "fc", "b", "c", 3, 64, "f32", 375)
    convolution(net, "conv2", "x1", "d", 2, 3, 1, "f32", 380, bias=False)
    return net


def binary_text():
    net = Net(data=(3, 4))
    net.layer("ReLU", "relu", ["data"], ["a"], {0: 0.5, 9: '"a text"'})
    net.layer("Gemm", "gemm", ["a"], ["b"], {3: 1, 5: 1, 6: 1, 8: 2, 9: 4, 10: -1}, [("B", values((2, 4), 390), "f32")])
    return net


WRITTEN = {
    "int8_conv": int8_conv, "int8_output": int8_output, "int8_depthwise": int8_depthwise, "int8_recurrent": int8_recurrent, "int8_products": int8_products, "blocks": blocks,
    "table": table, "plain": plain, "inputs": inputs, "embed": embed, "deformable": deformable, "requantized": requantized, "gemm": gemm, "custom": custom, "spelled": spelled,
    "binary": binary, "binary_text": binary_text, "brain": brain, "constants": constants,
}
BINARY = {"binary", "binary_text"}


def torch_models():
    """Modules of PyTorch: name, module, inputs, parameters in the layout of ncnn, and true for elements of 16 bits."""
    import torch
    from torch import nn

    def arrays(module):
        return {key: value.detach().numpy().astype("<f4") for key, value in module.state_dict().items()}

    def turned(weight, groups=1):
        """The weights of a transposed convolution: outputs first."""
        parts = np.split(weight, groups)
        return np.concatenate([part.swapaxes(0, 1) for part in parts])

    def linear(module, name):
        own = arrays(module)
        return {f"{name}.weight": own["weight"], f"{name}.bias": own["bias"]}

    def random(module, seed):
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for value in [*module.parameters(), *module.buffers()]:
                if value.is_floating_point():
                    value.copy_(torch.randn(value.shape, generator=generator) * 0.5)
            for key, value in module.named_buffers():
                if key.endswith("running_var"):
                    value.copy_(value * value + 0.5)
        return module.eval()

    def gates(weight, order):
        """Gates of a recurrent layer, in another order."""
        parts = np.split(weight, len(order))
        return np.concatenate([parts[place] for place in order])

    def recurrent(module, name, order, is_gru=False):
        own, found = arrays(module), {}
        ways = [""] + (["_reverse"] if module.bidirectional else [])
        found[f"{name}.weight_xc"] = np.stack([gates(own[f"weight_ih_l0{way}"], order) for way in ways])
        found[f"{name}.weight_hc"] = np.stack([gates(own[f"weight_hh_l0{way}"], order) for way in ways])
        rows = []
        for way in ways:
            one, two = own[f"bias_ih_l0{way}"], own[f"bias_hh_l0{way}"]
            if is_gru:
                size = len(one) // 3
                both = np.concatenate([one[:2 * size] + two[:2 * size], one[2 * size:], two[2 * size:]])
            else:
                both = gates(one + two, order)
            rows.append(both.reshape(-1, module.hidden_size))
        found[f"{name}.bias_c"] = np.stack(rows)
        if getattr(module, "proj_size", 0):
            found[f"{name}.weight_hr"] = np.stack([own[f"weight_hr_l0{way}"] for way in ways])
        return found

    class First(nn.Module):
        """A recurrent layer without its states."""

        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            return self.inner(x)[0]

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.MultiheadAttention(8, 2, batch_first=True)

        def forward(self, x):
            return self.inner(x, x, x, need_weights=False)[0]

    class Constant(nn.Module):
        def __init__(self):
            super().__init__()
            self.shift = nn.Parameter(torch.zeros(3, 5))

        def forward(self, x):
            return x + self.shift

    class Branches(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(3, 4, 1)

        def forward(self, x, y):
            return torch.cat([self.one(x) + self.two(y), x], 1)

    models = []

    def model(name, make, shapes, expected, is_half=False, seed=0):
        module = random(make(), seed + len(models))
        models.append((name, module, [one if torch.is_tensor(one) else torch.randn(one, generator=torch.Generator().manual_seed(9)) for one in shapes], expected(module), is_half))

    def mlp():
        return nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 5))

    def conv():
        return nn.Sequential(nn.Conv2d(3, 8, (3, 5), padding=(1, 2)), nn.PReLU(8), nn.Conv2d(8, 8, 3, groups=8, padding=1, bias=False), nn.Sigmoid(), nn.Conv2d(8, 6, 3, groups=2))

    def filters(**layers):
        """The weights of convolutions: the name in the network, and the place in the module with its groups if it is transposed."""

        def found(module):
            own, entries = arrays(module), {}
            for name, (place, groups) in layers.items():
                weight = own[f"{place}.weight"]
                entries[f"{name}.weight"] = turned(weight, groups) if groups else weight
                if f"{place}.bias" in own:
                    entries[f"{name}.bias"] = own[f"{place}.bias"]
            return entries

        return found

    def products(*names):
        return lambda module: {name: value for place, layer in names for name, value in linear(module[place], layer).items()}

    def convs(module):
        return {**filters(conv_0=(0, 0), convdwsigmoid_0=(2, 0), convdw_4=(4, 0))(module), "prelu_1.slope": arrays(module)["1.weight"]}

    def normed(module):
        own = arrays(module)
        found = {"bn_0.slope": own["0.weight"], "bn_0.bias": own["0.bias"], "bn_0.mean": own["0.running_mean"], "bn_0.var": own["0.running_var"]}
        for name, place in (("in_2", 2), ("gn_1", 4), ("ln_3", 6)):
            found.update({f"{name}.gamma": own[f"{place}.weight"], f"{name}.beta": own[f"{place}.bias"]})
        return found

    def attended(module):
        own, found = arrays(module.inner), {}
        for place, part in enumerate("qkv"):
            found[f"attention_0.{part}_weight"] = np.split(own["in_proj_weight"], 3)[place]
            found[f"attention_0.{part}_bias"] = np.split(own["in_proj_bias"], 3)[place]
        return {**found, "attention_0.out_weight": own["out_proj.weight"], "attention_0.out_bias": own["out_proj.bias"]}

    def worded(module):
        own = arrays(module)
        return {"embed_1.weight": own["0.weight"], "gemm_0.B": own["1.weight"], "gemm_0.C": own["1.bias"].reshape(1, -1)}

    def rows(name, order, is_gru=False):
        return lambda module: recurrent(module.inner, name, order, is_gru)

    def branched(module):
        own = arrays(module)
        return {f"conv_{place}.{part}": own[f"{name}.{part}"] for place, name in enumerate(("one", "two")) for part in ("weight", "bias")}

    def transposed():
        return nn.Sequential(nn.ConvTranspose2d(4, 6, (2, 3), stride=2), nn.Sigmoid(), nn.ConvTranspose2d(6, 4, 3, groups=2), nn.Sigmoid(), nn.ConvTranspose2d(4, 4, 3, groups=4, bias=False))

    def line():
        return nn.Sequential(nn.Conv1d(3, 4, 3), nn.Sigmoid(), nn.Conv1d(4, 6, 3, groups=2), nn.Sigmoid(), nn.ConvTranspose1d(6, 2, 3), nn.Sigmoid(), nn.ConvTranspose1d(2, 4, 2, groups=2))

    def space():
        return nn.Sequential(nn.Conv3d(2, 4, (2, 3, 1)), nn.Sigmoid(), nn.Conv3d(4, 4, 3, groups=4, padding=1), nn.Sigmoid(), nn.ConvTranspose3d(4, 2, (1, 2, 3)), nn.Sigmoid(), nn.ConvTranspose3d(2, 4, 2, groups=2))

    def norms():
        return nn.Sequential(nn.BatchNorm2d(4), nn.Sigmoid(), nn.InstanceNorm2d(4, affine=True), nn.Sigmoid(), nn.GroupNorm(2, 4), nn.Sigmoid(), nn.LayerNorm(5), nn.PReLU())

    model("mlp", mlp, [(1, 12)], products((0, "fcrelu_0"), (2, "linear_1")))
    model("half_mlp", mlp, [(1, 12)], products((0, "fcrelu_0"), (2, "linear_1")), True)
    model("conv", conv, [(1, 3, 8, 8)], convs)
    model("half_conv", conv, [(1, 3, 8, 8)], convs, True)
    turns = filters(deconvsigmoid_0=(0, 1), deconvdwsigmoid_0=(2, 2), deconvdw_4=(4, 4))
    model("transposed", transposed, [(1, 4, 4, 4)], turns)
    model("half_transposed", transposed, [(1, 4, 4, 4)], turns, True)
    model("line", line, [(1, 3, 12)], filters(conv1dsigmoid_0=(0, 0), convdw1dsigmoid_0=(2, 0), deconv1d_1=(4, 1), deconvdw1d_6=(6, 2)))
    model("space", space, [(1, 2, 5, 6, 7)], filters(conv3d_0=(0, 0), convdw3d_5=(2, 0), deconv3d_1=(4, 1), deconvdw3d_6=(6, 2)))
    model("norms", norms, [(1, 4, 5, 5)], normed)
    model("lstm", lambda: First(nn.LSTM(6, 4, batch_first=True, bidirectional=True)), [(1, 5, 6)], rows("lstm_0", [0, 1, 3, 2]))
    model("half_lstm", lambda: First(nn.LSTM(6, 4, batch_first=True)), [(1, 5, 6)], rows("lstm_0", [0, 1, 3, 2]), True)
    model("projected", lambda: First(nn.LSTM(6, 4, batch_first=True, proj_size=3)), [(1, 5, 6)], rows("lstm_0", [0, 1, 3, 2]))
    model("gru", lambda: First(nn.GRU(6, 4, batch_first=True, bidirectional=True)), [(1, 5, 6)], rows("gru_0", [0, 1, 2], True))
    model("rnn", lambda: First(nn.RNN(6, 4, batch_first=True)), [(1, 5, 6)], rows("rnn_0", [0]))
    model("attention", Attention, [(1, 5, 8)], attended)
    model("words", lambda: nn.Sequential(nn.Embedding(9, 6), nn.Linear(6, 2)), [torch.tensor([[1, 8, 3, 0]])], worded)
    model("constant", Constant, [(1, 3, 5)], lambda m: {"shift.data": arrays(m)["shift"]})
    model("half_constant", Constant, [(1, 3, 5)], lambda m: {"shift.data": arrays(m)["shift"]}, True)
    model("branches", Branches, [(1, 3, 5, 5), (1, 3, 5, 5)], branched)
    model("relu", nn.ReLU, [(1, 4)], lambda module: {})
    return models


def pnnx(name, module, arguments, is_half, folder):
    """Converts a module, and returns the files of ncnn: network and weights."""
    import pnnx
    import torch

    path = folder / f"{name}.pt"
    torch.jit.trace(module, tuple(arguments), check_trace=False).save(str(path))
    shapes = ",".join(str(list(one.shape)).replace(" ", "") + {torch.float32: "f32", torch.int64: "i64"}[one.dtype] for one in arguments)
    subprocess.run([pnnx.EXEC_PATH, path.name, f"inputshape={shapes}", f"fp16={int(is_half)}"], cwd=folder, check=True, capture_output=True)
    return (folder / f"{name}.ncnn.param").read_text(), (folder / f"{name}.ncnn.bin").read_bytes()


def half(expected, network):
    """Parameters that pnnx stores in 16 bits: those that follow a word."""
    plain = {"bias", "slope", "mean", "var", "gamma", "beta", "scale", "q_bias", "k_bias", "v_bias", "out_bias"}
    data = {line.split()[1] for line in network.splitlines() if line.startswith("MemoryData") and "21=0" not in line}
    return {name: array if name.rsplit(".", 1)[1] in plain or name.rsplit(".", 1)[0] in data else array.astype("<f2") for name, array in expected.items()}


def described(tensors, attributes, kinds):
    entries = {}
    for name, array in tensors.items():
        array = np.ascontiguousarray(array)
        entry = {"dtype": DTYPES[array.dtype.str], "shape": list(array.shape), "sha256": hashlib.sha256(array.tobytes()).hexdigest()}
        scheme = attributes.get(name)
        if scheme:
            entry["quantized"] = scheme[0]
            if scheme[1] is not None:
                entry["quantized_axis"] = scheme[1]
            if len(scheme) > 2:
                entry["packed_dtype"], entry["packed_shape"] = scheme[2:]
        entries[name] = entry
    return {"tensors": entries, "layers": kinds}


def kinds(text):
    return [line.split()[0] for line in text.splitlines()[2:] if line.strip()]


def numbered(net):
    """A network whose layers have their types and numbers as names."""
    names = {name: f"{kind}_{number}" for number, (kind, name, *_) in enumerate(net.layers)}

    def renamed(entries):
        return {names[name.split(".")[0]] + "." + name.split(".", 1)[1]: value for name, value in entries.items()}

    net.tensors, net.attributes = renamed(net.tensors), renamed(net.attributes)
    return net


def damage():
    net = table()
    text, data, binary_net = net.text(), net.data, binary()

    def write(name, network, weights=data):
        if isinstance(network, str):
            network = network.encode()
        (BAD / name).write_bytes(network)
        if weights is not None:
            stem = name.removesuffix(".param.bin") if name.endswith(".param.bin") else name.removesuffix(".param")
            (BAD / f"{stem}.bin").write_bytes(weights)

    write("alone.param", text, None)
    write("truncated.param", text, data[:-5])
    write("longer.param", text, data + b"more")
    write("blobs.param", text.replace("7767517\n3 3", "7767517\n3 2"))
    write("layers.param", text.replace("7767517\n3 3", "7767517\n2 3"))
    write("lost.param", text.replace("7767517\n3 3", "7767517\n4 3"))
    write("number.param", text.replace("1 1 data a", "1 x data a"))
    write("key.param", text.replace(" 2=60", " 2=60 32=1"))
    write("list.param", text.replace(" 2=60", " 2=60 -23310=3,1,2"))
    write("negative.param", text.replace(" 2=60", " 2=-60"))
    write("none.param", text.replace(" 2=60", " 2=0"))
    write("overflow.param", text.replace("InnerProduct             plain ", "MemoryData               plain ").replace("1 1 a b 0=3 1=1 2=15", "1 1 a b 0=2147483647 1=2147483647 2=2147483647"))
    write("utf8.param", text.encode().replace(b" fc ", b" f\xff "))
    custom_text = custom().text()
    write("custom.param", custom_text, custom().data[:100] + b"\0" * 12 + custom().data[100:])
    write("cut_custom.param", custom_text, custom().data[:20])
    write("storage.param", inputs().text().replace("21=0", "21=7"), inputs().data)
    content = binary_net.binary()
    write("cut.param.bin", content[:-4], binary_net.data)
    write("longer.param.bin", content + b"\0\0\0\0", None)
    write("blob.param.bin", content[:24] + struct.pack("<i", 99) + content[28:], binary_net.data)
    write("text.param.bin", binary_text().binary().replace(struct.pack("<2i", -23409, 6), struct.pack("<2i", -23409, 256)), binary_text().data)


def main():
    GOOD.mkdir(parents=True, exist_ok=True)
    BAD.mkdir(parents=True, exist_ok=True)
    expected = {}
    for name, make in WRITTEN.items():
        net = make()
        net.write(GOOD, name, name in BINARY)
        if name in BINARY:
            net = numbered(net)
        expected[name] = described(net.tensors, net.attributes, [layer[0] for layer in net.layers])
    with tempfile.TemporaryDirectory() as folder:
        for name, module, arguments, tensors, is_half in torch_models():
            text, data = pnnx(name, module, arguments, is_half, pathlib.Path(folder))
            (GOOD / f"{name}.param").write_text(text)
            (GOOD / f"{name}.bin").write_bytes(data)
            if "-v" in sys.argv:
                print(text, len(data))
            expected[name] = described(half(tensors, text) if is_half else tensors, {}, kinds(text))
    damage()
    (ROOT / "expected.json").write_text(json.dumps(expected, indent=1, ensure_ascii=False) + "\n")
    print(f"{len(expected)} models")


if __name__ == "__main__":
    main()
