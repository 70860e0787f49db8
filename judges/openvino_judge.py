"""OpenVINO as the judge of what Weighbridge reads from its models.

    python judges/openvino_judge.py target/release/weighbridge

Needs: the packages of judges/openvino.txt.

- Every constant of the golden files and of random models, as Weighbridge converts it to safetensors, has the dtype, the shape and the bits
  that OpenVINO reads.
- The layers of the program are those of OpenVINO, and inputs and outputs are the same.
"""
import json
import pathlib
import random
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import make_openvino as openvino  # noqa: E402
import numpy as np  # noqa: E402
from make_openvino import op, ov  # noqa: E402

COMMAND = [sys.argv[1]]
CHECKS = FAILURES = 0
SAFE = {"bool": "BOOL", "u8": "U8", "i8": "I8", "u16": "U16", "i16": "I16", "u32": "U32", "i32": "I32", "u64": "U64", "i64": "I64", "f16": "F16", "bf16": "BF16", "f32": "F32", "f64": "F64", "f8_e4m3": "F8_E4M3", "f8_e5m2": "F8_E5M2", "f8_e8m0": "F8_E8M0", "f4": "F4"}


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


def tensors_of(path):
    """Reads a file of safetensors by its own rules: numpy lacks some of its dtypes."""
    data = path.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    header.pop("__metadata__", None)
    return {name: (one["dtype"], one["shape"], data[end + one["data_offsets"][0]:end + one["data_offsets"][1]]) for name, one in header.items()}


def judge(path, folder):
    model = ov.Core().read_model(str(path))
    constants, kinds = openvino.read(model)
    target = folder / "m.safetensors"
    run("convert", path, target, "--force", "--allow-loss")
    found = tensors_of(target)
    check(len(found) == len(constants), f"{path.name}: {len(found)} constants, not {len(constants)}")
    # Of two constants with one name, the library may list the second one first.
    wanted = {}
    for name, layer in constants:
        wanted.setdefault(name, []).append(openvino.described(layer)[:3])
    for name, own in found.items():
        own = (own[0], own[1], own[2])
        options = [(SAFE[dtype], shape, content) for dtype, shape, content in wanted.get(name, wanted.get(name.rsplit("~", 1)[0], []))]
        check(own in options, f"{path.name}: {name} {own[:2]} {[one[:2] for one in options]}")
    program = json.loads(run("program", path, "--json"))["program"]
    own = sorted(one["type"] for block in program["blocks"] for one in block["operators"])
    check(own == sorted(kinds), f"{path.name}: layers {own} {sorted(kinds)}")
    ports = sorted(one["name"] for one in program["inputs"])
    check(ports == sorted(one.get_friendly_name() for one in model.get_parameters()), f"{path.name}: inputs {ports}")
    sizes = [one["shape"] for one in program["outputs"]]
    theirs = [[size.get_length() if size.is_static else -1 for size in one.get_output_partial_shape(0)] for one in model.get_results()]
    check(sorted(sizes) == sorted(theirs), f"{path.name}: outputs {sizes} {theirs}")
    run("verify", path)


def random_model(rng):
    x = openvino.parameter([1, rng.randint(1, 6)])
    y, width = x, x.get_output_shape(0)[1]
    for number in range(rng.randint(1, 8)):
        way, seed = rng.random(), rng.randint(0, 2**31)
        if way < 0.5:
            outputs = rng.randint(1, 9)
            y = openvino.linear(y, outputs, width, seed % 10**6, f"layer/{number}")
            width = outputs
        elif way < 0.7:
            kind = rng.choice(["i8", "u8", "i4", "u4", "f16", "bf16"])
            weight = openvino.raw(kind, (width, width), seed % 10**6)
            weight.set_friendly_name(f"packed.{number}")
            y = op.matmul(y, op.convert(weight, "f32"), False, True)
        else:
            y = rng.choice([op.relu, op.tanh, op.sigmoid])(y)
    return ov.Model([y], [x], f"random & {rng.randint(0, 99)}")


def main():
    rng = random.Random(7)
    np.seterr(all="ignore")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for file in sorted(openvino.FILES):
            judge(openvino.GOOD / f"{file}.xml", folder)
        for number in range(40):
            path = folder / f"random{number}.xml"
            ov.save_model(random_model(rng), str(path), compress_to_fp16=rng.random() < 0.4)
            judge(path, folder)
    print(f"{CHECKS} checks, {FAILURES} failures")
    sys.exit(FAILURES > 0)


if __name__ == "__main__":
    main()
