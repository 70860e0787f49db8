"""Caffe's messages and OpenCV as the judges of files of Caffe.

    python judges/caffe_judge.py target/release/weighbridge

Needs: the packages of judges/caffe.txt.

- Every blob of the golden files and of random files, as Weighbridge converts it to safetensors and npz, has the dtype, the shape and
  the bits that the messages of Caffe contain.
- OpenCV loads a network with its weights; its parameters are those of Weighbridge.
- Layers of a network, in text and in binary, are those that the messages contain.
"""
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import cv2
import numpy as np
import safetensors.numpy
from google.protobuf import text_format

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import make_caffe as caffe  # noqa: E402

COMMAND = [sys.argv[1]]
CHECKS = FAILURES = 0
CODES = {"f16": "<f2", "f32": "<f4", "f64": "<f8", "i32": "<i4", "u32": "<u4"}
TYPES = ["InnerProduct", "Convolution", "BatchNorm", "Scale", "PReLU", "Embed", "Own"]


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


def judge(path, folder, skipped=()):
    wanted = {name: np.frombuffer(data, CODES[dtype]).reshape(shape) for name, (dtype, shape, data) in caffe.listed(path).items() if name not in skipped}
    for target in (folder / "m.safetensors", folder / "m.npz"):
        run("convert", path, target, "--force", "--allow-loss")
        if target.suffix == ".npz":
            with np.load(target) as data:
                found = {name: data[name] for name in data.files if not name.startswith("weighbridge") and name != "__metadata__"}
        else:
            found = safetensors.numpy.load_file(str(target))
        # A zip archive has no names with a slash at the start; these files have none.
        check(sorted(found) == sorted(wanted), f"{path.name}: names {sorted(found)} {sorted(wanted)}")
        for name in set(found) & set(wanted):
            left, right = found[name], wanted[name]
            good = left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()
            check(good, f"{path.name} {target.suffix}: {name}")


def opencv(folder):
    """OpenCV reads weights of the versions that it knows, with the network in text."""
    for weights, network in (("lenet", "lenet"), ("half", "lenet"), ("legacy_shapes", "lenet"), ("v1", "v1")):
        path = caffe.GOOD / f"{weights}.caffemodel"
        net = cv2.dnn.readNetFromCaffe(str(caffe.GOOD / f"{network}.prototxt"), str(path))
        target = folder / "cv.safetensors"
        run("convert", path, target, "--force", "--allow-loss", "--cast", "f32")
        found = safetensors.numpy.load_file(str(target))
        for layer in sorted({name.rsplit(".", 1)[0] for name in found}):
            count = sum(name.rsplit(".", 1)[0] == layer for name in found)
            for number in range(count):
                own = found[f"{layer}.{number}"]
                # OpenCV keeps all blobs of a layer, in its own shapes.
                theirs = net.getParam(layer, number)
                check(theirs.size == own.size and theirs.astype("f4").tobytes() == own.tobytes(), f"{weights} {layer}.{number} in OpenCV")


def networks():
    for name in ("lenet.prototxt", "lenet.caffemodel", "v1.prototxt", "half.caffemodel", "python.caffemodel"):
        path = caffe.GOOD / name
        message = caffe.pb.NetParameter()
        if path.suffix == ".prototxt":
            text_format.Parse(path.read_text(), message)
        else:
            message.ParseFromString(path.read_bytes())
        program = json.loads(run("program", path, "--json"))["program"]
        layers = [(layer.name, list(layer.bottom), list(layer.top)) for layer in [*message.layers, *message.layer]]
        found = []
        for operator in program["blocks"][0]["operators"]:
            inputs, outputs = ([name for slot in operator[key] for name in slot["arguments"]] for key in ("inputs", "outputs"))
            label = next(one["value"] for one in operator["attributes"] if one["name"] == "name")
            found.append((label, inputs, outputs))
        check(found == layers, f"{name}: layers {found} {layers}")


def random_file(path, rng):
    pb = caffe.pb
    if rng.random() < 0.3:
        message = pb.SolverState(iter=rng.randint(0, 10**6))
        blobs = [message.history.add() for _ in range(rng.randint(1, 6))]
    else:
        message = pb.NetParameter(name="random")
        blobs = []
        is_old = rng.random() < 0.4
        for number in range(rng.randint(1, 6)):
            if is_old:
                layer = message.layers.add(name=f"layer/{number}", type=rng.choice(pb.V1LayerParameter.LayerType.values()), bottom=["x"], top=["y"])
            else:
                layer = message.layer.add(name=f"layer/{number}", type=rng.choice(TYPES), bottom=["x"], top=["y"])
            blobs += [layer.blobs.add() for _ in range(rng.randint(0, 3))]
    for blob in blobs:
        dims = tuple(rng.randint(1, 5) for _ in range(rng.randint(1, 4)))
        data = np.random.RandomState(rng.randint(0, 2**31)).standard_normal(dims).astype("f4")
        way = rng.random()
        if way < 0.2:
            caffe.raw(blob, data * 10, rng.choice([0, 1, 2, 3]))
        else:
            caffe.fill(blob, data, legacy=way < 0.5, double=rng.random() < 0.3, diff=data if rng.random() < 0.2 else None)
    path = path.with_suffix(".solverstate" if isinstance(message, pb.SolverState) else ".caffemodel")
    path.write_bytes(message.SerializeToString())
    return path


def main():
    rng = random.Random(7)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for file in sorted(caffe.FILES):
            judge(caffe.GOOD / file, folder, ["l.1"] if file == "chunks.caffemodel" else [])
        for number in range(60):
            path = random_file(folder / f"random{number}", rng)
            if caffe.listed(path):
                judge(path, folder)
        opencv(folder)
        networks()
    print(f"{CHECKS} checks, {FAILURES} failures")
    sys.exit(FAILURES > 0)


if __name__ == "__main__":
    main()
