"""coremltools as the judge of what Weighbridge reads from models of Core ML.

    python judges/coreml_judge.py target/release/weighbridge

Needs: the packages of judges/coreml.txt.

- Every tensor of the golden files and of random models, as Weighbridge lists and converts it, has the name, the dtype, the shape and the bits
  that coremltools reads: from its messages, and from files of weights with its reader of blobs.
- Constants of programs are those that the frontend of coremltools loads.
- Layers and operations are the same, and so are inputs, outputs and metadata.
- Damaged files are refused.
"""
import contextlib
import io
import json
import pathlib
import random
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import make_coreml as coreml  # noqa: E402
import numpy as np  # noqa: E402
from coremltools.converters.mil.frontend.milproto.load import load as load_program  # noqa: E402
from make_coreml import ct, cto, mb, values  # noqa: E402

COMMAND = [sys.argv[1]]
CHECKS = FAILURES = 0
SAFE = {"bool": "BOOL", "u8": "U8", "i8": "I8", "u16": "U16", "i16": "I16", "u32": "U32", "i32": "I32", "u64": "U64", "i64": "I64", "f16": "F16", "bf16": "BF16", "f32": "F32", "f64": "F64"}


def check(good, what):
    global CHECKS, FAILURES
    CHECKS += 1
    if not good:
        FAILURES += 1
        print("FAILURE:", what)


def run(*words, fails=False):
    done = subprocess.run([*COMMAND, *map(str, words)], capture_output=True, text=True)
    if (done.returncode != 0) != fails:
        check(False, f"{words}: exit code {done.returncode}: {done.stderr}{done.stdout}")
    return done.stdout


def tensors_of(path):
    data = path.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    header.pop("__metadata__", None)
    return {name: (one["dtype"], one["shape"], data[end + one["data_offsets"][0]:end + one["data_offsets"][1]]) for name, one in header.items()}


def judge(path, folder):
    spec, wanted, kinds = coreml.read(path)
    listed = json.loads(run("ls", path, "--json"))["tensors"]
    names = [".".join(one["path"]) for one in listed]
    check(sorted(names) == sorted(wanted), f"{path.name}: names {sorted(set(names) ^ set(wanted))}")
    for name, one in zip(names, listed):
        theirs = wanted.get(name, (None, None, None, {}))
        check((one["dtype"], one["shape"]) == theirs[:2], f"{path.name}: {name} is {one['dtype']} {one['shape']}, not {theirs[:2]}")
        own = {key: one[key] for key in ("packed_dtype", "packed_shape") if key in one}
        check(own == theirs[3], f"{path.name}: {name} {own} {theirs[3]}")
    if wanted:
        target = folder / "m.safetensors"
        run("convert", path, target, "--force", "--allow-loss")
        found = tensors_of(target)
        check(len(found) == len(wanted), f"{path.name}: {len(found)} tensors written, not {len(wanted)}")
        for name, (dtype, shape, data, _) in wanted.items():
            check(found.get(name) == (SAFE[dtype], shape, data), f"{path.name}: {name} has other elements")
    shown = json.loads(run("program", path, "--json"))["program"]
    own = sorted(one["type"] for block in shown["blocks"] for one in block["operators"])
    check(own == sorted(kinds), f"{path.name}: operators {own} {sorted(kinds)}")
    description = spec.description
    if not description.input and description.functions:
        (description,) = [one for one in description.functions if one.name == description.defaultFunctionName]
    for key, ports in [("inputs", description.input), ("outputs", description.output)]:
        check([one["name"] for one in shown[key]] == [one.name for one in ports], f"{path.name}: {key}")
        sizes = [list(one.type.multiArrayType.shape) or None if one.type.WhichOneof("Type") == "multiArrayType" else None for one in ports]
        check([one["shape"] or None for one in shown[key]] == sizes, f"{path.name}: sizes of {key} {[one['shape'] for one in shown[key]]} {sizes}")
    if path.suffix == ".mlpackage":
        frontend(path, spec, dict(zip(names, listed)), folder)


def frontend(path, spec, listed, folder):
    """Compares constants with those of the program that coremltools loads."""
    if path.stem in ("blobs",):
        return  # It has an operation of the application.
    with contextlib.redirect_stderr(io.StringIO()):
        program = load_program(spec, spec.specificationVersion, str(path / "Data/com.apple.CoreML/weights"))
    found = tensors_of(folder / "m.safetensors")
    default = spec.description.defaultFunctionName or "main"
    for name, function in program.functions.items():
        for one in function.operations:
            if one.op_type != "const" or isinstance(one.val.val, str) or one.outputs[0].name not in listed:
                continue
            key = one.outputs[0].name if name == default else f"{name}.{one.outputs[0].name}"
            own = np.asarray(one.val.val)
            if "packed_dtype" not in listed[key]:
                check(found[key][2] == own.tobytes() and found[key][1] == list(own.shape), f"{path.name}: {key} differs from the loaded program")


def random_program(rng):
    width, target = rng.randint(2, 40), rng.choice([ct.target.iOS16, ct.target.iOS18])

    @mb.program(input_specs=[mb.TensorSpec(shape=(1, width))], opset_version=target)
    def made(x):
        size = width
        for number in range(rng.randint(1, 5)):
            outputs = rng.randint(1, 48)
            weight = mb.const(val=values((outputs, size), rng.randint(0, 10**6)), name=f"layer{number}/weight")
            x, size = mb.linear(x=x, weight=weight, bias=values(outputs, number)), outputs
            x = rng.choice([mb.relu, mb.tanh, mb.sigmoid])(x=x)
        return x
    own = coreml.converted(made, target, half=rng.random() < 0.5)
    way = rng.random()
    if way < 0.3:
        config = cto.OpLinearQuantizerConfig(weight_threshold=0, mode=rng.choice(["linear", "linear_symmetric"]), dtype=rng.choice(["int8", "uint8"]))
        own = cto.linear_quantize_weights(own, cto.OptimizationConfig(global_config=config))
    elif way < 0.6:
        config = cto.OpPalettizerConfig(nbits=rng.choice([1, 2, 3, 4, 6, 8] if target == ct.target.iOS18 else [1, 2, 4, 6, 8]), mode="uniform", weight_threshold=0)
        own = cto.palettize_weights(own, cto.OptimizationConfig(global_config=config))
    elif way < 0.8:
        config = cto.OpMagnitudePrunerConfig(target_sparsity=rng.uniform(0.1, 0.9), weight_threshold=0)
        own = cto.prune_weights(own, cto.OptimizationConfig(global_config=config))
    return own


def random_network(rng):
    size = rng.randint(1, 20)
    b = coreml.builder([("x", (size,))], [("y", None)])
    source = "x"
    for number in range(rng.randint(1, 6)):
        outputs = rng.randint(1, 24)
        coreml.dense(b, f"layer.{number}", source, f"v{number}", size, outputs, rng.randint(0, 10**6))
        source, size = f"v{number}", outputs
    b.add_copy("end", source, "y")
    model = ct.models.MLModel(b.spec, skip_model_load=True)
    bits = rng.choice([None, 16, 8, 7, 6, 5, 4, 3, 2, 1])
    if bits is None:
        return b.spec
    with contextlib.redirect_stdout(io.StringIO()):
        made = coreml.quantization_utils.quantize_weights(model, bits, rng.choice(["linear", "linear_lut"]))
    return made if isinstance(made, coreml.proto.Model_pb2.Model) else made.get_spec()


def main():
    rng = random.Random(7)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for file in coreml.FILES:
            judge(coreml.GOOD / file, folder)
        for number in range(20):
            path = folder / f"random{number}.mlmodel"
            path.write_bytes(random_network(rng).SerializeToString())
            judge(path, folder)
        for number in range(25):
            path = folder / f"random{number}.mlpackage"
            with contextlib.redirect_stderr(io.StringIO()):
                random_program(rng).save(str(path))
            judge(path, folder)
        bad = sorted(coreml.BAD.iterdir())
        for path in bad:
            run("ls", path, fails=True)
            check(True, path.name)
    print(f"{CHECKS} checks, {FAILURES} failures")
    sys.exit(FAILURES > 0)


if __name__ == "__main__":
    main()
