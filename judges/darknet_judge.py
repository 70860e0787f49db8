"""OpenCV as the judge of files of Darknet.

    python judges/darknet_judge.py target/release/weighbridge

Needs: the packages of judges/caffe.txt (Python 3.8 to 3.11).

- OpenCV loads the golden files and random networks with their weights. Its parameters of every layer have the bits of the tensors that
  Weighbridge converts to safetensors. OpenCV has no sections `local`, `batchnorm` and `network`: these have the order of save_weights
  of Darknet.
- Layers of the program follow each other as in the network.
"""
import json
import pathlib
import random
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import cv2  # noqa: E402
import make_darknet as darknet  # noqa: E402
import numpy as np  # noqa: E402
import safetensors.numpy  # noqa: E402

COMMAND = [sys.argv[1]]
CHECKS = FAILURES = 0
# Blobs of OpenCV, in its order.
NORMALIZED = ["mean", "variance", "scale", "bias"]
NOT_IN_OPENCV = {"inputs", "local", "normalized"}


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


def judge(name, net, folder, source):
    target = folder / "m.safetensors"
    run("convert", source / f"{name}.weights", target, "--force", "--allow-loss")
    found = safetensors.numpy.load_file(str(target))
    check(list(sorted(found)) == sorted(key for key, _ in net.tensors), f"{name}: names {sorted(found)}")
    for key, data in net.tensors:
        own = found.get(key)
        check(own is not None and own.shape == data.shape and own.tobytes() == data.tobytes(), f"{name}: {key}")
    program = json.loads(run("program", source / f"{name}.weights", "--json"))["program"]
    kinds = [one["type"] for one in program["blocks"][0]["operators"]]
    sections = [line[1:-1] for line in net.text.splitlines() if line.startswith("[")][1:]
    check(kinds == sections, f"{name}: layers {kinds} {sections}")
    if name not in NOT_IN_OPENCV:
        opencv(name, found, source)


def opencv(name, found, source):
    net = cv2.dnn.readNetFromDarknet(str(source / f"{name}.cfg"), str(source / f"{name}.weights"))
    layers = sorted({key.rsplit(".", 1)[0] for key in found})
    known = net.getLayerNames()
    count = 0
    for layer in layers:
        kind, number = layer.rsplit("_", 1)
        normalized = f"{layer}.scale" in found
        own_name = f"fullyConnected_{number}" if kind == "connected" else layer
        theirs = own_name if own_name in known else None
        check(theirs is not None, f"{name}: {layer} in {known}")
        if theirs is None:
            continue
        parts = [(theirs, 0, "weight")] + ([(f"bn_{number}", place, part) for place, part in enumerate(NORMALIZED)] if normalized else [(theirs, 1, "bias")])
        for own, place, part in parts:
            blob = net.getParam(own, place)
            data = found[f"{layer}.{part}"]
            check(blob.size == data.size and blob.astype("<f4").tobytes() == data.tobytes(), f"{name}: {layer}.{part} in OpenCV")
            count += 1
    print(f"{name}: {len(found)} tensors, {count} in OpenCV")


def random_net(rng):
    net = darknet.Net()
    channels = 3
    for _ in range(rng.randint(1, 6)):
        way = rng.random()
        if way < 0.7 or channels == 3:
            filters = rng.randint(1, 6)
            net.conv(filters, channels, rng.choice([1, 3, 5]), normalize=rng.random() < 0.6, stride=rng.choice([1, 2]))
            channels = filters
        elif way < 0.85:
            net.layer("maxpool", size=2, stride=1)
        else:
            net.layer("upsample", stride=2)
    return net


def main():
    rng = random.Random(7)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for file, make in darknet.FILES.items():
            judge(file, make(), folder, darknet.GOOD)
        for number in range(40):
            net = random_net(rng)
            (folder / f"random{number}.cfg").write_text(net.text)
            (folder / f"random{number}.weights").write_bytes(net.weights())
            judge(f"random{number}", net, folder, folder)
    print(f"{CHECKS} checks, {FAILURES} failures")
    sys.exit(FAILURES > 0)


if __name__ == "__main__":
    main()
