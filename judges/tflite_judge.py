"""TensorFlow Lite as the judge of what Weighbridge reads from its models.

    python judges/tflite_judge.py target/release/weighbridge

Needs: the packages of judges/tensorflow.txt.

- Every constant of the golden files and of random models, as Weighbridge converts it to safetensors, has the dtype, the shape and the bits
  of the interpreter of TensorFlow Lite, or those in the file by the schema of TensorFlow if the interpreter cannot hold the model.
- Operators, their inputs, outputs and options, and the signatures are those of the schema of TensorFlow.
- `verify` finds no fault in a golden file, and every byte has a use.
"""
import json
import pathlib
import random
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import make_tflite as tflite  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

COMMAND = [sys.argv[1]]
CHECKS = FAILURES = 0
SAFE = {"bool": "BOOL", "u8": "U8", "i8": "I8", "u16": "U16", "i16": "I16", "u32": "U32", "i32": "I32", "u64": "U64", "i64": "I64", "f16": "F16", "bf16": "BF16", "f32": "F32", "f64": "F64", "f8_e4m3": "F8_E4M3", "f8_e5m2": "F8_E5M2", "c64": "C64"}
# Types whose interpreter has no elements, or no type of numpy.
ENUMS = {
    "padding": tflite.schema.Padding, "fused_activation_function": tflite.schema.ActivationFunctionType, "weights_format": tflite.schema.FullyConnectedOptionsWeightsFormat,
    "in_data_type": tflite.schema.TensorType, "out_data_type": tflite.schema.TensorType, "out_type": tflite.schema.TensorType, "quantized_bias_type": tflite.schema.TensorType,
    "kernel_type": tflite.schema.LSTMKernelType, "mode": tflite.schema.MirrorPadMode, "output_type": tflite.schema.TensorType, "idx_out_type": tflite.schema.TensorType,
}


def check(good, what):
    global CHECKS, FAILURES
    CHECKS += 1
    if not good:
        FAILURES += 1
        print("FAILURE:", what)


def run(*words, codes=(0,)):
    done = subprocess.run([*COMMAND, *map(str, words)], capture_output=True, text=True)
    if done.returncode not in codes:
        check(False, f"{words}: exit code {done.returncode}: {done.stderr}{done.stdout}")
    return done.stdout


def tensors_of(path):
    """Reads a file of safetensors by its own rules: the package has no complex numbers in numpy."""
    data = path.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    header.pop("__metadata__", None)
    return {name: (one["dtype"], one["shape"], data[end + one["data_offsets"][0]:end + one["data_offsets"][1]]) for name, one in header.items()}


def judge(path, folder):
    data = path.read_bytes()
    wanted, skipped = tflite.listed(data)
    wide = [name for name, one in wanted.items() if one[0] == "c128"]
    target = folder / "m.safetensors"
    run("convert", path, target, "--force", "--allow-loss", *[word for name in wide for word in ("--drop", name)])
    found = tensors_of(target)
    names = sorted(set(wanted) - set(wide))
    check(sorted(found) == names, f"{path.name}: names {sorted(found)} {names}")
    for name in set(found) & set(names):
        dtype, shape, content, _ = wanted[name]
        check(found[name] == (SAFE[dtype], shape, content), f"{path.name}: {name} {found[name][:2]} {dtype} {shape}")
    interpreter(path, data, found)
    graph(path, data)
    run("verify", path, codes=(0, 3))


def interpreter(path, data, found):
    """Compares with the interpreter, which keeps the constants of the main subgraph in its memory."""
    try:
        opened = tf.lite.Interpreter(model_content=data, experimental_op_resolver_type=tf.lite.experimental.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES)
    except (RuntimeError, ValueError) as error:
        print(f"{path.name}: no interpreter: {str(error).splitlines()[0][:100]}")
        return
    try:
        opened.allocate_tensors()
    except RuntimeError as error:
        # An operator of another library. Constants are there before tensors are allocated.
        print(f"{path.name}: not run: {str(error).splitlines()[0][:100]}")
    model = tflite.objects(data)
    count = 0
    taken = set()
    for detail in opened.get_tensor_details():
        place = detail["index"]
        if place >= len(model.subgraphs[0].tensors):
            continue
        tensor = model.subgraphs[0].tensors[place]
        name = tflite.text(tensor.name, place)
        if name in taken or name not in found or (buffer := model.buffers[tensor.buffer]).data is None and buffer.offset <= 1:
            continue
        taken.add(name)
        if tflite.WORDS[tensor.type] in tflite.PACKED or tensor.sparsity is not None:
            continue
        try:
            value = opened.get_tensor(place)
        except ValueError as error:
            print(f"{path.name}: {name}: {str(error)[:80]}")
            continue
        count += 1
        _, shape, content = found[name]
        check(list(value.shape) == shape and value.tobytes() == content, f"{path.name}: {name} in the interpreter")
        scales = detail["quantization_parameters"]["scales"]
        zeros = detail["quantization_parameters"]["zero_points"]
        if len(scales):
            # The interpreter has 32-bit zero points.
            check(found[f"{name}.scale"][2] == scales.astype("<f4").tobytes(), f"{path.name}: {name} scale")
            check(np.array_equal(np.frombuffer(found[f"{name}.zero_point"][2], "<i8"), zeros), f"{path.name}: {name} zero points")
            axis = detail["quantization_parameters"]["quantized_dimension"]
            check(len(scales) == 1 or axis == tensor.quantization.quantizedDimension, f"{path.name}: {name} axis")
    print(f"{path.name}: {len(found)} tensors, {count} in the interpreter")


def shown(key, value):
    if isinstance(value, bool) or value is None:
        return value
    if key in ENUMS and isinstance(value, int):
        words = {number: word for word, number in vars(ENUMS[key]).items() if isinstance(number, int)}
        return words[value]
    return value


def graph(path, data):
    program = json.loads(run("program", path, "--json"))["program"]
    wanted = tflite.operators(data)
    found = []
    for block in program["blocks"]:
        operators = []
        for operator in block["operators"]:
            inputs, outputs = ([name for slot in operator[key] for name in slot["arguments"]] for key in ("inputs", "outputs"))
            operators.append((operator["type"], inputs, outputs))
            options = {one["name"]: one["value"] for one in operator["attributes"]}
            place = len(found), len(operators) - 1
            theirs = wanted[place[0]][place[1]]["options"]
            for key, value in theirs.items():
                if isinstance(value, list) and not value and key not in options:
                    continue
                own = options.get(key)
                value = shown(key, value)
                good = own == value or isinstance(value, float) and np.float32(own) == np.float32(value)
                check(good, f"{path.name}: {operator['type']} {key}: {own} {value}")
        found.append(operators)
    names = [[(one["kind"], one["inputs"], one["outputs"]) for one in block] for block in wanted]
    check(found == names, f"{path.name}: operators\n{found}\n{names}")


def signatures(path):
    data = path.read_bytes()
    found = json.loads(run("ls", path, "--json"))["metadata"].get("signatures", {})
    try:
        wanted = tf.lite.Interpreter(model_content=data).get_signature_list()
    except (RuntimeError, ValueError):
        return
    keys = {key: {"inputs": sorted(one["inputs"]), "outputs": sorted(one["outputs"])} for key, one in found.items()}
    check(keys == {key: {"inputs": sorted(one["inputs"]), "outputs": sorted(one["outputs"])} for key, one in wanted.items()}, f"{path.name}: signatures {keys} {wanted}")


def random_model(rng):
    """A model of random layers, converted in a random way."""
    tf.keras.utils.set_random_seed(rng.randint(0, 2**31))
    layers = [tf.keras.Input((8, 8, rng.randint(1, 4)), batch_size=1)]
    shape = (1, 8, 8, layers[0].shape[-1])
    for _ in range(rng.randint(1, 3)):
        layers.append(rng.choice([
            lambda: tf.keras.layers.Conv2D(rng.randint(1, 9), rng.randint(1, 3), padding="same", activation=rng.choice([None, "relu", "tanh"])),
            lambda: tf.keras.layers.DepthwiseConv2D(rng.randint(1, 3), padding="same"),
            lambda: tf.keras.layers.Conv2DTranspose(rng.randint(1, 4), 2, padding="same"),
            lambda: tf.keras.layers.MaxPooling2D(2, padding="same"),
        ])())
    layers += [tf.keras.layers.Flatten(), tf.keras.layers.Dense(rng.randint(1, 40)), tf.keras.layers.Dense(rng.randint(1, 5))]
    converter = tf.lite.TFLiteConverter.from_keras_model(tf.keras.Sequential(layers))
    way = rng.choice(["float", "dynamic", "float16", "int8", "outside"])
    if way in ("dynamic", "float16", "int8"):
        converter.optimizations = tflite.DEFAULT
    if way == "float16":
        converter.target_spec.supported_types = [tf.float16]
    if way == "int8":
        converter.representative_dataset = tflite.samples(shape)
    converter._experimental_use_buffer_offset = way == "outside"
    return way, converter.convert()


def main():
    rng = random.Random(7)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for file in sorted(tflite.FILES):
            path = tflite.GOOD / f"{file}.tflite"
            judge(path, folder)
            signatures(path)
        for number in range(15):
            way, data = random_model(rng)
            path = folder / f"random_{number}_{way}.tflite"
            path.write_bytes(data)
            judge(path, folder)
            signatures(path)
    print(f"{CHECKS} checks, {FAILURES} failures")
    sys.exit(FAILURES > 0)


if __name__ == "__main__":
    main()
