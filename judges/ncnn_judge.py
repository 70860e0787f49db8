"""ncnn as the judge of what Weighbridge reads from its models.

    python judges/ncnn_judge.py target/release/weighbridge

Needs: the packages of judges/biggraph.txt and judges/ncnn.txt.

- ncnn loads the golden files and random networks through a reader that records the bytes of each weight. They are those of the
  tensors that Weighbridge lists, and nothing else is read.
- The tensors that Weighbridge converts to safetensors are those from which the files were made: parameters of modules of PyTorch
  that pnnx converted, and arrays.
- Weights that are written anew from these tensors give the same outputs, bit for bit, and the outputs of PyTorch within rounding.
- The bytes that ncnn reads after each word and for each storage of constants are those that Weighbridge lists.
- The layers of the program, its inputs and its outputs are those of ncnn.
"""
import ctypes
import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import make_ncnn  # noqa: E402
import ncnn  # noqa: E402
import numpy as np  # noqa: E402
import safetensors.torch  # noqa: E402
import torch  # noqa: E402

COMMAND = [sys.argv[1]]
CHECKS = FAILURES = 0
# Outputs that ncnn does not compute: a layer of the application, and products of integers of 32 bits.
NOT_RUN = {"custom", "requantized"}
# Modules whose batch pnnx keeps.
WITH_BATCH = {"constant", "half_constant"}
# Layers that ncnn does not own.
KEPT = []
pointer = ctypes.pythonapi.PyCapsule_GetPointer
pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


def check(good, what):
    global CHECKS, FAILURES
    CHECKS += 1
    if not good:
        FAILURES += 1
        print("FAILURE:", what)


def run(*words):
    done = subprocess.run([*COMMAND, *map(str, words)], capture_output=True, text=True)
    if done.returncode:
        check(False, f"{words}: exit code {done.returncode}: {done.stderr}{done.stdout}")
    return done.stdout


class Reader(ncnn.DataReader):
    """A reader of bytes that records what is read."""

    def __init__(self, data):
        super().__init__()
        self.data, self.at, self.reads = data, 0, []

    def scan(self, form, target):
        return 0

    def read(self, target, size):
        part = self.data[self.at:self.at + size]
        ctypes.memmove(pointer(target, None), part, len(part))
        self.reads.append((self.at, size))
        self.at += len(part)
        return len(part)


class Mine(ncnn.Layer):
    """A layer of the application."""

    def __init__(self):
        super().__init__()
        self.one_blob_only, self.support_inplace = True, True


def mine():
    KEPT.append(Mine())
    return KEPT[-1]


def loaded(network, data):
    """Loads a network with its weights, and returns what was read of them."""
    net = ncnn.Net()
    net.opt.use_fp16_packed = net.opt.use_fp16_storage = net.opt.use_fp16_arithmetic = net.opt.use_bf16_storage = False
    net.opt.num_threads = 1
    net.register_custom_layer("Mine", mine, lambda layer: None)
    reader = Reader(data)
    if network.name.endswith(".param.bin"):
        good = net.load_param_bin(str(network)) == 0
    else:
        good = net.load_param(str(network)) == 0
    good = good and net.load_model(reader) == 0
    check(good, f"{network.name}: ncnn does not load it")
    return net, reader


def outputs(net, arrays, is_binary):
    """Runs a network: inputs by their blobs."""
    extractor = net.create_extractor()
    for place, (blob, array) in enumerate(arrays.items()):
        # Blobs of binary networks have no names.
        extractor.input(place if is_binary else blob, ncnn.Mat(np.ascontiguousarray(array)).clone())
    found = []
    for blob in net.output_indexes():
        code, result = extractor.extract(blob)
        found.append(None if code else np.array(result))
    return found


def numpy_of(tensor):
    """Returns a tensor as an array: bf16 as its bits."""
    return tensor.view(torch.int16).numpy().view("<u2") if tensor.dtype == torch.bfloat16 else tensor.numpy()


def rebuilt(entries, tensors, reader):
    """Writes weights anew from tensors: by the order in which ncnn reads them."""
    out, reads = b"", {at for at, _ in reader.reads}
    by_place = {one["pieces"][0]["offset"]: one["name"] for one in entries}
    for at in sorted(by_place):
        name = by_place[at]
        if name.endswith(".table"):
            continue
        array = tensors[name]
        is_indices = f"{name}.table" in tensors
        # A read of a word ends where that of the elements begins.
        start = at - (1024 if is_indices else 0)
        has_word = start - 4 in reads and not any(place <= start - 4 < place + size for place, size in own_ranges(entries))
        if has_word:
            kind = {"<f4": "f32", "<f2": "f16", "<u2": "bf16", "|i1": "i8", "|u1": "i8"}[array.dtype.str]
            out += struct.pack("<I", make_ncnn.FLAGS["table" if is_indices else kind])
        if is_indices:
            out += tensors[f"{name}.table"].tobytes()
        content = array.tobytes()
        out += content + b"\0" * (-len(content) % 4)
    return out


def own_ranges(entries):
    return [(piece["offset"], piece["bytes"]) for one in entries for piece in one["pieces"]]


def judge(name, network, folder, wanted, arrays=None, reference=None, is_run=True):
    weights = network.with_name(network.name.removesuffix(".param.bin").removesuffix(".param") + ".bin")
    data = weights.read_bytes()
    is_binary = network.name.endswith(".param.bin")
    net, reader = loaded(network, data)
    # The bytes of the weights.
    entries = json.loads(run("ls", network, "--json", "--extents"))["tensors"]
    check(reader.at == len(data), f"{name}: ncnn reads {reader.at} of {len(data)} bytes")
    left = list(reader.reads)
    for one in entries:
        (piece,) = one["pieces"]
        place = (piece["offset"], piece["bytes"] + -piece["bytes"] % 4)
        check(place in left and piece["file"].endswith(weights.name), f"{name}: {one['name']} at {place} of {left}")
        if place in left:
            left.remove(place)
    starts = {one["pieces"][0]["offset"] for one in entries}
    check(all(size == 4 and at + 4 in starts for at, size in left), f"{name}: other bytes are read: {left}")
    # Their elements.
    target = folder / "m.safetensors"
    run("convert", weights if len(data) else network, target, "--force", "--allow-loss")
    found = {key: numpy_of(tensor) for key, tensor in safetensors.torch.load_file(str(target)).items()}
    check(sorted(found) == sorted(wanted), f"{name}: {sorted(found)}, not {sorted(wanted)}")
    for key, array in wanted.items():
        own = found.get(key)
        check(own is not None and own.dtype == array.dtype and own.shape == array.shape and own.tobytes() == array.tobytes(), f"{name}: {key}")
    # The same outputs from weights that are written anew.
    if is_run and arrays is not None:
        again, _ = loaded(network, rebuilt(entries, found, reader))
        first, second = outputs(net, arrays, is_binary), outputs(again, arrays, is_binary)
        check(first and all(one is not None for one in first), f"{name}: ncnn does not run it")
        for one, two in zip(first, second):
            check(one is not None and two is not None and one.tobytes() == two.tobytes(), f"{name}: outputs of weights that are written anew")
        for one, two in zip(first, reference or []):
            check(one is not None and one.size == two.size and np.allclose(one.reshape(-1), two.reshape(-1), rtol=1e-3, atol=1e-3), f"{name}: outputs of PyTorch")
    # The program.
    program = json.loads(run("program", network, "--json"))["program"]
    operators = program["blocks"][0]["operators"]
    check([one["type"] for one in operators] == [layer_type(layer) for layer in net.layers()], f"{name}: layers")
    if network.name.endswith(".param"):
        names = [attribute["value"] for one in operators for attribute in one["attributes"] if attribute["name"] == "name"]
        check(names == [layer.name for layer in net.layers()], f"{name}: names of layers {names}")
        check([one["name"] for one in program["inputs"]] == list(net.input_names()), f"{name}: inputs")
        check([one["name"] for one in program["outputs"]] == list(net.output_names()), f"{name}: outputs")
    run("verify", network)


def layer_type(layer):
    """Returns the type of a layer; the binary form has numbers only."""
    return layer.type or next(name for name, number in make_ncnn.NUMBERS.items() if number == layer.typeindex)


def arrays_of(net, rng):
    return {name: np.abs(rng.standard_normal(shape)).astype("<f4") for name, shape in net.inputs.items()}


def random_net(rng):
    """A chain of layers of all types, with weights in any storage."""
    channels, seed = rng.randint(1, 5), rng.randint(0, 10**6)
    net, blob = make_ncnn.Net(data=(channels, 7, 7)), "data"
    for number in range(rng.randint(1, 8)):
        target, name = f"b{number}", f"layer/{number}.x"
        kind = rng.choice(["conv", "int8", "depth", "norm", "scale", "prelu", "relu", "pad"])
        seed += 10
        storage = rng.choice(["f32", "f16", "bf16", "plain"])
        values = lambda *shape: make_ncnn.values(shape, seed)
        if kind in ("conv", "int8"):
            size = rng.randint(1, 5)
            make_ncnn.convolution(net, name, blob, target, size, channels, 1, "i8" if kind == "int8" else storage, seed, bias=rng.random() < 0.5, int8=2 if kind == "int8" else 0)
            channels = size
        elif kind == "depth":
            net.layer("ConvolutionDepthWise", name, [blob], [target], {0: channels, 1: 3, 4: 1, 6: channels * 9, 7: channels}, [("weight", values(channels, 1, 3, 3), storage)])
        elif kind == "norm":
            net.layer("BatchNorm", name, [blob], [target], {0: channels, 1: 1e-3}, [("slope", values(channels), None), ("mean", values(channels), None), ("var", values(channels) ** 2, None), ("bias", values(channels), None)])
        elif kind == "scale":
            net.layer("Scale", name, [blob], [target], {0: channels}, [("scale", values(channels), None)])
        elif kind == "prelu":
            net.layer("PReLU", name, [blob], [target], {0: channels}, [("slope", values(channels), None)])
        elif kind == "pad":
            net.layer("Padding", name, [blob], [target], {0: 1, 3: 1, 6: channels}, [("per_channel_pad", values(channels), None)])
        else:
            net.layer("ReLU", name, [blob], [target], {0: 0.1})
        blob = target
    return net


def random_module(rng):
    """A module, its input, and its parameters by the order of its layers."""
    from torch import nn

    channels, layers = rng.randint(1, 6), []
    shape = (1, channels, 9, 9)
    for _ in range(rng.randint(1, 5)):
        size, window = rng.randint(1, 6), rng.choice([1, 2, 3])
        if rng.random() < 0.6:
            layers.append(nn.Conv2d(channels, size, window, bias=rng.random() < 0.5))
        else:
            layers.append(nn.ConvTranspose2d(channels, size, window, bias=rng.random() < 0.5))
        layers.append(nn.SELU() if rng.random() < 0.5 else nn.Tanh())
        channels = size
    return nn.Sequential(*layers).eval(), torch.rand(shape)


def layout(module, network):
    """The parameters of a random module in the layout of ncnn, by the names that pnnx gave."""
    names = [line.split()[1] for line in network.splitlines() if line.startswith(("Convolution ", "Deconvolution "))]
    layers = [layer for layer in module if hasattr(layer, "weight")]
    found = {}
    for name, layer in zip(names, layers):
        weight = layer.weight.detach().numpy()
        found[f"{name}.weight"] = weight.swapaxes(0, 1) if isinstance(layer, torch.nn.ConvTranspose2d) else weight
        if layer.bias is not None:
            found[f"{name}.bias"] = layer.bias.detach().numpy()
    return {name: np.ascontiguousarray(array) for name, array in found.items()}


def converted(name, module, arguments, is_half, folder, network, tensors):
    """Judges what pnnx made of a module."""
    if is_half:
        tensors = make_ncnn.half(tensors, network.read_text())
    with torch.no_grad():
        result = module(*arguments)
    # ncnn has no batch. Numbers of rows are integers of 32 bits.
    arrays = {f"in{place}": (one.numpy() if name in WITH_BATCH else one.numpy()[0]).astype("<i4" if one.dtype == torch.int64 else "<f4") for place, one in enumerate(arguments)}
    reference = None if is_half else [result.numpy()]
    judge(name, network, folder, tensors, arrays, reference)


def storages(rng, folder):
    """The storage after each word, and that of each parameter of constants: the bytes that ncnn reads."""
    network, weights = folder / "word.param", folder / "word.bin"

    def read(storage, word):
        network.write_text(f"7767517\n1 1\nMemoryData data 0 1 data 0=6 21={storage}\n")
        net, reader = ncnn.Net(), Reader(struct.pack("<I", word) + bytes(4096))
        good = net.load_param(str(network)) == 0 and net.load_model(reader) == 0
        weights.write_bytes(reader.data[:reader.at])
        done = subprocess.run([*COMMAND, "ls", str(network), "--json", "--extents"], capture_output=True, text=True)
        if not good:
            check(done.returncode != 0, f"the storage {storage} is read, and ncnn refuses it")
            return
        found = json.loads(done.stdout)["tensors"] if done.returncode == 0 else []
        places = sorted((piece["offset"], piece["bytes"] + -piece["bytes"] % 4) for one in found for piece in one["pieces"])
        own = reader.reads[1:] if storage == 0 else reader.reads
        check(places == own, f"storage {storage}, word {word:#x}: {places}, not {own}")

    known = list(make_ncnn.FLAGS.values())
    near = [word + step for word in known for step in (-1, 1) if word + step >= 0]
    for word in [*known, *near, 1 << 24, 1 << 31, 2**32 - 1, *(rng.getrandbits(32) for _ in range(30))]:
        read(0, word)
    for storage in range(-2, 12):
        read(storage, 0)


def main():
    rng, numbers = random.Random(7), np.random.default_rng(7)
    torch.manual_seed(7)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        for name, make in make_ncnn.WRITTEN.items():
            net = make()
            arrays = arrays_of(net, numbers)
            if name == "embed":
                arrays = {"data": np.array([1, 6, 0, 3, 2], "<i4")}
            is_binary = name in make_ncnn.BINARY
            network = make_ncnn.GOOD / f"{name}.param{'.bin' if is_binary else ''}"
            check(network.read_bytes() == (net.binary() if is_binary else net.text().encode()), f"{name}: the golden file is that of the script")
            tensors = make_ncnn.numbered(net).tensors if is_binary else net.tensors
            judge(name, network, folder, tensors, arrays, is_run=name not in NOT_RUN)
        for name, module, arguments, tensors, is_half in make_ncnn.torch_models():
            converted(name, module, arguments, is_half, folder, make_ncnn.GOOD / f"{name}.param", tensors)
        storages(rng, folder)
        for number in range(40):
            net = random_net(rng)
            net.write(folder, f"random{number}")
            judge(f"random{number}", folder / f"random{number}.param", folder, net.tensors, arrays_of(net, numbers))
        for number in range(10):
            module, value = random_module(rng)
            name, is_half = f"module{number}", rng.random() < 0.5
            text, data = make_ncnn.pnnx(name, module, [value], is_half, folder)
            (folder / f"{name}.param").write_text(text)
            (folder / f"{name}.bin").write_bytes(data)
            converted(name, module, [value], is_half, folder, folder / f"{name}.param", layout(module, text))
    print(f"{CHECKS} checks, {FAILURES} failures")
    sys.exit(FAILURES > 0)


if __name__ == "__main__":
    main()
