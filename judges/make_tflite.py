"""Golden files of TensorFlow Lite, converted by TensorFlow: testdata/tflite.

    python judges/make_tflite.py

Needs: the packages of judges/tensorflow.txt. `expected.json` has what the schema that TensorFlow generates reads from the files: dtype,
shape and elements of every constant, its scales and zero points, and the operators of each subgraph.
"""
import hashlib
import json
import os
import pathlib
import re
import tempfile

os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import flatbuffers  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from tensorflow.lite.python import schema_py_generated as schema  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent / "testdata" / "tflite"
GOOD, BAD = ROOT / "good", ROOT / "bad"
WORDS = {number: word for word, number in vars(schema.TensorType).items() if isinstance(number, int)}
# The generated schema of TensorFlow 2.21 ends before these.
WORDS |= {21: "FLOAT8_E4M3FN", 22: "FLOAT8_E5M2"}
OPERATORS = {number: word for word, number in vars(schema.BuiltinOperator).items() if isinstance(number, int)}
DTYPES = {
    "FLOAT32": "f32", "FLOAT16": "f16", "INT32": "i32", "UINT8": "u8", "INT64": "i64", "BOOL": "bool", "INT16": "i16", "COMPLEX64": "c64", "INT8": "i8",
    "FLOAT64": "f64", "COMPLEX128": "c128", "UINT64": "u64", "UINT32": "u32", "UINT16": "u16", "BFLOAT16": "bf16", "FLOAT8_E4M3FN": "f8_e4m3",
    "FLOAT8_E5M2": "f8_e5m2",
}
PACKED = {"INT4": "int4", "INT2": "int2", "UINT4": "uint4"}


def values(shape, seed):
    return np.random.RandomState(seed).standard_normal(shape).astype("f4")


def mlp():
    tf.keras.utils.set_random_seed(1)
    return tf.keras.Sequential([tf.keras.Input((12,), name="x"), tf.keras.layers.Dense(16, activation="relu", name="fc1"), tf.keras.layers.Dense(4, name="fc2")])


def conv():
    tf.keras.utils.set_random_seed(2)
    return tf.keras.Sequential([
        tf.keras.Input((8, 8, 3), batch_size=1, name="image"),
        tf.keras.layers.Conv2D(6, 3, strides=2, padding="same", activation="relu6", name="conv"),
        tf.keras.layers.DepthwiseConv2D(3, name="depth"),
        tf.keras.layers.GlobalAveragePooling2D(name="pool"),
        tf.keras.layers.Dense(3, activation="softmax", name="head"),
    ])


def keras(model, **settings):
    """Converts a model of Keras. Settings are attributes of the converter."""
    with tempfile.TemporaryDirectory() as folder:
        model.export(folder, verbose=False)
        return converted(tf.lite.TFLiteConverter.from_saved_model(folder), **settings)


def converted(converter, ops=(), **settings):
    for key, value in settings.items():
        setattr(converter, key, value)
    if ops:
        converter.target_spec.supported_ops = list(ops)
    return converter.convert()


def samples(shape):
    def generate():
        for seed in range(8):
            yield [values(shape, seed)]
    return generate


DEFAULT = [tf.lite.Optimize.DEFAULT]
OPS = tf.lite.OpsSet


def float16():
    converter = tf.lite.TFLiteConverter.from_keras_model(conv())
    converter.optimizations = DEFAULT
    converter.target_spec.supported_types = [tf.float16]
    return converter.convert()


def functions(*functions, trackable=None, **settings):
    return converted(tf.lite.TFLiteConverter.from_concrete_functions(list(functions), trackable or tf.Module()), **settings)


def function(body, *specs):
    return tf.function(body).get_concrete_function(*specs)


def spec(shape, dtype=tf.float32, name="x"):
    return tf.TensorSpec(shape, dtype, name=name)


def control():
    weights = tf.constant(values((3, 3), 3))

    def body(x):
        x = tf.while_loop(lambda i, x: i < 4, lambda i, x: (i + 1, tf.matmul(x, weights)), (tf.constant(0), x))[1]
        return tf.cond(tf.reduce_sum(x) > 0, lambda: x + values((3,), 4), lambda: x * values((3,), 5))
    return functions(function(body, spec((1, 3))))


class Two(tf.Module):
    def __init__(self):
        super().__init__()
        self.w = tf.Variable(values((4, 3), 6), name="w")

    @tf.function(input_signature=[spec((None, 4))])
    def encode(self, x):
        return {"code": tf.matmul(x, self.w)}

    @tf.function(input_signature=[spec((None, 3), name="code")])
    def decode(self, code):
        return {"x": tf.matmul(code, self.w, transpose_b=True)}


def signatures(**settings):
    module = Two()
    with tempfile.TemporaryDirectory() as folder:
        tf.saved_model.save(module, folder, signatures={"encode": module.encode, "decode": module.decode})
        return converted(tf.lite.TFLiteConverter.from_saved_model(folder, signature_keys=["encode", "decode"]), **settings)


class Counter(tf.Module):
    def __init__(self):
        super().__init__()
        self.total = tf.Variable(tf.zeros((2,)), name="total")

    @tf.function(input_signature=[spec((2,))])
    def add(self, x):
        self.total.assign_add(x)
        return {"total": self.total.read_value()}


def variables():
    module = Counter()
    with tempfile.TemporaryDirectory() as folder:
        tf.saved_model.save(module, folder, signatures={"add": module.add})
        return converted(tf.lite.TFLiteConverter.from_saved_model(folder), experimental_enable_resource_variables=True)


def dtypes():
    """A constant of each dtype that the converter keeps, each an output of its own."""
    every = [np.float64, np.int64, np.int32, np.int16, np.int8, np.uint8, np.uint16, np.uint32, np.uint64, np.bool_, np.complex64, np.complex128]

    def body(x):
        found = {}
        for seed, dtype in enumerate(every):
            data = tf.constant((values((3,), seed) * 9).astype(dtype))
            found[np.dtype(dtype).name] = tf.gather(data, x)
        return found
    return functions(function(body, spec((2,), tf.int32)), ops=[OPS.TFLITE_BUILTINS, OPS.SELECT_TF_OPS])


def strings():
    return functions(function(lambda x: tf.gather(tf.constant(["a", "", "wörter"]), x), spec((2,), tf.int32)))


def flex():
    return functions(function(lambda x: tf.linalg.inv(x) + values((2, 2), 7), spec((2, 2))), ops=[OPS.TFLITE_BUILTINS, OPS.SELECT_TF_OPS])


def flex_files():
    return functions(function(lambda name: tf.io.read_file(name), spec((), tf.string)), ops=[OPS.TFLITE_BUILTINS, OPS.SELECT_TF_OPS])


def custom():
    return functions(function(lambda x: tf.raw_ops.Betainc(a=x, b=x, x=x) * values((2,), 8), spec((2,))), allow_custom_ops=True)


def lstm():
    tf.keras.utils.set_random_seed(3)
    model = tf.keras.Sequential([tf.keras.Input((5, 4), batch_size=1), tf.keras.layers.LSTM(3, unroll=False, name="lstm")])
    return keras(model, ops=[OPS.TFLITE_BUILTINS, OPS.SELECT_TF_OPS], _experimental_lower_tensor_list_ops=False)


def attention():
    def body(x):
        q, k, v = (tf.einsum("bti,ij->btj", x, values((4, 4), seed)) for seed in (9, 10, 11))
        return tf.nn.softmax(tf.matmul(q, k, transpose_b=True)) @ v
    return functions(function(body, spec((1, 6, 4))))


def embedding():
    table = tf.constant(values((10, 4), 12))
    return functions(function(lambda x: tf.nn.embedding_lookup(table, x), spec((3,), tf.int32)))


class Same(tf.Module):
    def __init__(self):
        super().__init__()
        self.w = tf.Variable(values((4, 4), 13), name="w")

    @tf.function(input_signature=[spec((1, 4))])
    def plain(self, x):
        return {"y": tf.matmul(x, self.w)}

    @tf.function(input_signature=[spec((1, 4))])
    def rectified(self, x):
        return {"y": tf.matmul(tf.nn.relu(x), self.w)}


def shared():
    """One matrix in two subgraphs."""
    module = Same()
    with tempfile.TemporaryDirectory() as folder:
        tf.saved_model.save(module, folder, signatures={"plain": module.plain, "rectified": module.rectified})
        return converted(tf.lite.TFLiteConverter.from_saved_model(folder, signature_keys=["plain", "rectified"]))


def conv3d():
    return functions(function(lambda x: tf.nn.conv3d(x, values((1, 2, 2, 1, 2), 14), [1, 1, 1, 1, 1], "VALID"), spec((1, 2, 4, 4, 1))))


def objects(data):
    return schema.ModelT.InitFromObj(schema.Model.GetRootAs(data, 0))


def packed(model):
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def edited(make, change):
    model = objects(make())
    change(model)
    return packed(model)


def constants_of(model, number=0):
    return [tensor for tensor in model.subgraphs[number].tensors if model.buffers[tensor.buffer].data is not None]


def to_int4(model):
    """The first constant as 4-bit integers, two in a byte, with a scale for each row."""
    tensor = next(one for one in constants_of(model) if len(one.shape) == 2)
    count = int(np.prod(tensor.shape))
    tensor.type = schema.TensorType.INT4
    tensor.quantization = schema.QuantizationParametersT()
    tensor.quantization.scale = np.abs(values((int(tensor.shape[0]),), 15))
    tensor.quantization.zeroPoint = np.zeros(int(tensor.shape[0]), np.int64)
    model.buffers[tensor.buffer].data = np.random.RandomState(16).randint(0, 256, (count + 1) // 2).astype(np.uint8)


def small_floats(model):
    """Constants as bfloat16 and 8-bit floats."""
    kinds = [(schema.TensorType.BFLOAT16, 2), (21, 1), (22, 1)]
    for tensor, (kind, width) in zip(constants_of(model), kinds):
        tensor.type = kind
        model.buffers[tensor.buffer].data = np.random.RandomState(kind).randint(0, 256, int(np.prod(tensor.shape)) * width).astype(np.uint8)


def sparse(model):
    """The first matrix in rows of compressed columns."""
    tensor = next(one for one in constants_of(model) if len(one.shape) == 2)
    rows, columns = map(int, tensor.shape)
    dense, compressed = schema.DimensionMetadataT(), schema.DimensionMetadataT()
    dense.format, dense.denseSize = schema.DimensionType.DENSE, rows
    compressed.format = schema.DimensionType.SPARSE_CSR
    for name, data in (("Segments", np.arange(rows + 1)), ("Indices", np.arange(rows) % columns)):
        vector = schema.Int32VectorT()
        vector.values = data.astype(np.int32)
        setattr(compressed, "array" + name, vector)
        setattr(compressed, f"array{name}Type", schema.SparseIndexVector.Int32Vector)
    tensor.sparsity = schema.SparsityParametersT()
    tensor.sparsity.traversalOrder = np.arange(2, dtype=np.int32)
    tensor.sparsity.dimMetadata = [dense, compressed]
    model.buffers[tensor.buffer].data = values((rows,), 17).view(np.uint8)


def named(model):
    """Names that are missing, empty, equal or not ASCII."""
    for tensor, name in zip(constants_of(model), [None, b"", "权重".encode(), b"same"]):
        tensor.name = name
    model.subgraphs[0].tensors[-1].name = b"same"
    model.description = b"A model with odd names"


def uint8(model):
    """A quantized tensor of the first converter: unsigned, with the range that it was trained with."""
    tensor = constants_of(model)[0]
    tensor.type = schema.TensorType.UINT8
    tensor.quantization = schema.QuantizationParametersT()
    tensor.quantization.scale, tensor.quantization.zeroPoint = np.array([0.02], "f4"), np.array([128], np.int64)
    tensor.quantization.min, tensor.quantization.max = np.array([-2.56], "f4"), np.array([2.54], "f4")
    model.buffers[tensor.buffer].data = np.random.RandomState(18).randint(0, 256, int(np.prod(tensor.shape))).astype(np.uint8)


def int8(model, shape, **settings):
    return keras(model, optimizations=DEFAULT, representative_dataset=samples(shape), **settings)


FILES = {
    "float_mlp": lambda: keras(mlp()),
    "float_conv": lambda: keras(conv()),
    "dynamic_range": lambda: keras(mlp_wide(), optimizations=DEFAULT),
    "int8_mlp": lambda: int8(mlp(), (1, 12)),
    "int8_conv": lambda: int8(conv(), (1, 8, 8, 3), ops=[OPS.TFLITE_BUILTINS_INT8], inference_input_type=tf.int8, inference_output_type=tf.int8),
    "int16x8": lambda: int8(conv(), (1, 8, 8, 3), ops=[OPS.EXPERIMENTAL_TFLITE_BUILTINS_ACTIVATIONS_INT16_WEIGHTS_INT8]),
    "float16": float16,
    "control": control,
    "signatures": signatures,
    "buffers_outside": lambda: signatures(_experimental_use_buffer_offset=True),
    "variables": variables,
    "dtypes": dtypes,
    "strings": strings,
    "flex": flex,
    "flex_files": flex_files,
    "custom": custom,
    "lstm": lstm,
    "attention": attention,
    "embedding": embedding,
    "shared": shared,
    "conv3d": conv3d,
    "int4": lambda: edited(lambda: keras(mlp()), to_int4),
    "small_floats": lambda: edited(lambda: keras(conv()), small_floats),
    "sparse": lambda: edited(lambda: keras(mlp()), sparse),
    "names": lambda: edited(lambda: keras(mlp()), named),
    "uint8": lambda: edited(lambda: keras(mlp()), uint8),
}


def mlp_wide():
    """Weights of at least 1024 elements are quantized."""
    tf.keras.utils.set_random_seed(4)
    return tf.keras.Sequential([tf.keras.Input((32,), name="x"), tf.keras.layers.Dense(40, activation="tanh", name="fc1"), tf.keras.layers.Dense(32, name="fc2")])


def text(name, place, prefix="tensor"):
    return name.decode() if name else f"{prefix}_{place}"


def listed(data):
    """Returns the constants that Weighbridge lists: dtype, shape, bytes and attributes by name."""
    model = objects(data)
    found, skipped = {}, []

    def add(name, dtype, shape, content, **attributes):
        if name in found:
            name = f"{name}~{len(found)}"
        found[name] = (dtype, list(shape), bytes(content), attributes)
        return name
    for number, subgraph in enumerate(model.subgraphs):
        for place, tensor in enumerate(subgraph.tensors):
            name = text(tensor.name, place)
            if number:
                name = text(subgraph.name, number, "subgraph") + "." + name
            buffer = model.buffers[tensor.buffer]
            content = data[buffer.offset:buffer.offset + buffer.size] if buffer.offset > 1 else buffer.data
            if content is None or len(content) == 0:
                continue
            content = bytes(bytearray(content))
            word = WORDS[tensor.type]
            if word == "STRING" or tensor.sparsity is not None:
                skipped.append(name)
                continue
            shape = [] if tensor.shape is None else [int(size) for size in tensor.shape]
            attributes = {}
            quantization = tensor.quantization
            scale = None if quantization is None else quantization.scale
            scalar = scale is not None and len(scale) == 1
            if scale is not None and len(scale):
                if not scalar:
                    attributes["quantized_axis"] = quantization.quantizedDimension
                if word not in PACKED:
                    attributes["quantized"] = "per_tensor_affine" if scalar else "per_channel_affine"
            if word in PACKED:
                attributes |= {"packed_dtype": PACKED[word], "packed_shape": shape}
                name = add(name, "u8", [len(content)], content, **attributes)
            else:
                name = add(name, DTYPES[word], shape, content, **attributes)
            if scale is not None and len(scale):
                add(f"{name}.scale", "f32", [] if scalar else [len(scale)], np.asarray(scale, "<f4").tobytes())
                zero = np.asarray(quantization.zeroPoint, "<i8")
                add(f"{name}.zero_point", "i64", [] if scalar else [len(zero)], zero.tobytes())
    return found, skipped


def snake(name):
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def plain(value):
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, np.ndarray):
        return value.tolist()
    return [plain(one) for one in value] if isinstance(value, list) else value


def operators(data):
    """Returns the operators of each subgraph: kind, inputs, outputs and the fields of options."""
    model = objects(data)
    found = []
    for subgraph in model.subgraphs:
        names, taken = [], set()
        for place, tensor in enumerate(subgraph.tensors):
            name = text(tensor.name, place)
            names.append(f"{name}~{place}" if name in taken else name)
            taken.add(names[-1])
        block = []
        for operator in subgraph.operators or []:
            code = model.operatorCodes[operator.opcodeIndex]
            number = max(code.builtinCode, code.deprecatedBuiltinCode)
            kind = code.customCode.decode() if number == schema.BuiltinOperator.CUSTOM else OPERATORS[number]
            options = {}
            for one in (operator.builtinOptions, getattr(operator, "builtinOptions2", None)):
                if one is not None:
                    options |= {snake(key): plain(value) for key, value in vars(one).items() if value is not None}
            inputs, outputs = ([names[place] if place >= 0 else "" for place in ([] if some is None else some)] for some in (operator.inputs, operator.outputs))
            block.append({"kind": kind, "inputs": inputs, "outputs": outputs, "options": options})
        found.append(block)
    return found


def damage():
    good = (GOOD / "float_mlp.tflite").read_bytes()

    def write(name, data):
        (BAD / f"{name}.tflite").write_bytes(data)

    def changed(name, change):
        write(name, edited(lambda: good, change))

    def first(model):
        return constants_of(model)[0]

    changed("version", lambda model: setattr(model, "version", 2))
    changed("buffer", lambda model: setattr(first(model), "buffer", 900))
    def resize(model, size):
        tensor = first(model)
        tensor.shape = np.array([size, *tensor.shape[1:]], np.int32)

    changed("negative", lambda model: resize(model, -1))
    changed("overflow", lambda model: setattr(first(model), "shape", np.full(9, 2**31 - 1, np.int32)))
    changed("many-dimensions", lambda model: setattr(first(model), "shape", np.ones(100, np.int32)))
    changed("shape-differs", lambda model: resize(model, 77))
    changed("operator-code", lambda model: setattr(model.subgraphs[0].operators[0], "opcodeIndex", 99))
    changed("operand", lambda model: setattr(model.subgraphs[0].operators[0], "inputs", np.array([1000], np.int32)))
    changed("signature", lambda model: setattr(model.signatureDefs[0], "subgraphIndex", 9))
    write("truncated", (GOOD / "buffers_outside.tflite").read_bytes()[:-60])
    write("short", good[:30])
    write("root", b"\x18\0\0\0TFL3")
    root = int.from_bytes(good[:4], "little")
    write("vtable", good[:root] + (10**6).to_bytes(4, "little") + good[root + 4:])
    write("far-root", b"\xff\xff\xff\x7f" + good[4:])
    write("magic", good[:4] + b"TFL9" + good[8:])


def describe():
    expected = {}
    for name in FILES:
        data = (GOOD / f"{name}.tflite").read_bytes()
        found, skipped = listed(data)
        entries = {key: {"dtype": dtype, "shape": shape, "sha256": hashlib.sha256(content).hexdigest(), **more} for key, (dtype, shape, content, more) in found.items()}
        kinds = [[one["kind"] for one in block] for block in operators(data)]
        expected[f"{name}.tflite"] = {"tensors": entries, "skipped": skipped, "operators": kinds}
        print(name, len(data), len(found), skipped, flush=True)
    (ROOT / "expected.json").write_text(json.dumps(expected, indent=1, ensure_ascii=False) + "\n")


def main():
    GOOD.mkdir(parents=True, exist_ok=True)
    BAD.mkdir(parents=True, exist_ok=True)
    for name, make in FILES.items():
        (GOOD / f"{name}.tflite").write_bytes(make())
    damage()
    describe()


if __name__ == "__main__":
    main()
