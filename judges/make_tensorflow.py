"""Golden files of TensorFlow, written by TensorFlow, Keras and tf-keras: testdata/tensorflow.

    python judges/make_tensorflow.py

Needs: tensorflow, tf-keras, keras, python-snappy (see judges/tensorflow.txt). `expected.json` has what TensorFlow reads: dtype, shape and
elements of every tensor.
"""
import hashlib
import json
import os
import pathlib
import shutil
import struct

os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="-1", KERAS_BACKEND="tensorflow")
import keras
import ml_dtypes
import numpy as np
import tensorflow as tf
import tf_keras
from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow.core.protobuf import tensor_bundle_pb2
from tensorflow.core.protobuf import trackable_object_graph_pb2

ROOT = pathlib.Path(__file__).resolve().parent.parent / "testdata" / "tensorflow"
GOOD, BAD, CODE = ROOT / "good", ROOT / "bad", ROOT / "code"
v1 = tf.compat.v1
NAMES = {
    "float32": "f32", "float64": "f64", "int32": "i32", "uint8": "u8", "int16": "i16", "int8": "i8", "complex64": "c64", "int64": "i64",
    "bool": "bool", "qint8": "i8", "quint8": "u8", "qint32": "i32", "bfloat16": "bf16", "qint16": "i16", "quint16": "u16", "uint16": "u16",
    "complex128": "c128", "float16": "f16", "uint32": "u32", "uint64": "u64", "float8_e5m2": "f8_e5m2", "float8_e4m3fn": "f8_e4m3",
    "float8_e4m3fnuz": "f8_e4m3fnuz", "float8_e5m2fnuz": "f8_e5m2fnuz", "int4": "i8", "uint4": "u8",
}
SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"
OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"


def values(dtype, shape, seed=0):
    dtype = tf.as_dtype(dtype)
    count = int(np.prod(shape, dtype=np.int64))
    base = (np.arange(count) * 7 + seed) % 100
    if dtype.is_complex:
        return (base - 1j * base[::-1]).reshape(shape).astype(dtype.as_numpy_dtype)
    if dtype.is_bool:
        return (base % 3 == 0).reshape(shape)
    if dtype.is_floating:
        return (base / 8 - 4).reshape(shape).astype(dtype.as_numpy_dtype)
    return (base % 8).reshape(shape).astype(dtype.as_numpy_dtype)


# Checkpoints of objects.

def every_dtype(folder):
    words = [w for w in NAMES if not w.startswith("q") and not w.startswith("float8") and "int4" not in w]
    tree = {w: tf.Variable(values(w, (2, 3), i), name="of_" + w) for i, w in enumerate(words)}
    tf.train.Checkpoint(**tree).write(str(folder / "ckpt"))


def raw_dtypes(folder):
    """Written by the operator SaveV2: dtypes that variables do not have on a CPU, slices, text."""
    names, data = [], []
    for i, word in enumerate(NAMES):
        data.append(tf.constant(values("float32" if word.startswith(("q", "float8", "int4", "uint4")) else word, (2, 3), i)))
        if word.startswith(("int4", "uint4")):
            data[-1] = tf.cast(tf.constant(values("int32", (2, 3), i)), word)
        if word.startswith("float8"):
            data[-1] = tf.constant(values(word, (2, 3), i), word)
        if word.startswith("q"):
            data[-1] = tf.quantization.quantize(data[-1], -8.0, 8.0, tf.as_dtype(word)).output
        names.append("raw/" + word)
    names += ["scalar", "empty", "empty/rows", "text/scalar", "text/list", "text/none"]
    data += [tf.constant(1.5), tf.zeros([0]), tf.zeros([3, 0, 2], tf.int64), tf.constant("hi"), tf.constant(["a", "", "\u00e4" * 200]), tf.zeros([0], tf.string)]
    tf.raw_ops.SaveV2(prefix=str(folder / "raw"), tensor_names=names, shape_and_slices=[""] * len(names), tensors=data)


def special_values(folder):
    bits = np.array([0, 0x80000000, 0x7F800000, 0xFF800000, 0x7FC00001, 0xFFBADBAD, 1, 0x007FFFFF], np.uint32)
    tree = {"f32": tf.Variable(bits.view(np.float32)), "i64": tf.Variable([2**63 - 1, -2**63]), "u64": tf.Variable(np.array([2**64 - 1], np.uint64)),
            "bf16": tf.Variable(np.array([0x7FC1, 0x8000, 0xFF80], np.uint16).view(ml_dtypes.bfloat16))}
    tf.train.Checkpoint(**tree).write(str(folder / "ckpt"))


def odd_names(folder):
    tree = tf.train.Checkpoint()
    for name in ["a.b", "a/b", "a", "\u00fcber", "with space", "x" * 200]:
        setattr(tree, name, tf.Variable(values("float32", (2,)), name="v"))
    tree.nested = {"k": [tf.Variable(1.0), {"deep": tf.Variable(2)}]}
    tree.text = tf.Variable(["one", "two"])
    tree.write(str(folder / "ckpt"))


def dense_model(kit, seed):
    kit.utils.set_random_seed(seed)
    model = kit.Sequential([kit.layers.Input((3,)), kit.layers.Dense(4, name="hidden"), kit.layers.BatchNormalization(name="norm"), kit.layers.Dense(2, name="out")])
    return model


def train(model, optimizer, steps=2):
    model.compile(optimizer=optimizer, loss="mse")
    model.fit(values("float32", (8, 3)), values("float32", (8, 2)), epochs=steps, batch_size=8, verbose=0)
    return model


def keras_3(make):
    def write(folder):
        model = train(dense_model(keras, 1), make())
        tf.train.Checkpoint(model=model, optimizer=model.optimizer, step=tf.Variable(7, dtype=tf.int64)).write(str(folder / "ckpt"))
    return write


def tf_keras_weights(make):
    def write(folder):
        train(dense_model(tf_keras, 2), make()).save_weights(str(folder / "weights"))
    return write


def tf_keras_checkpoint(make):
    def write(folder):
        model = train(dense_model(tf_keras, 3), make())
        tf.train.Checkpoint(net=model, opt=model.optimizer).write(str(folder / "ckpt"))
    return write


def two_optimizers(folder):
    """Two optimizers with slots of equal names for one variable."""
    w = tf.Variable(values("float32", (3, 2)), name="w")
    one, two = tf_keras.optimizers.legacy.Adam(0.1), tf_keras.optimizers.legacy.Adam(0.2)
    for optimizer in (one, two):
        optimizer.apply_gradients([(tf.ones_like(w), w)])
    tf.train.Checkpoint(w=w, one=one, two=two).write(str(folder / "ckpt"))


def embedding(folder):
    layer = tf_keras.layers.Embedding(10, 4, name="words")
    layer(tf.constant([1]))
    tf.train.Checkpoint(layer=layer).write(str(folder / "ckpt"))


def manager(folder):
    step, w = tf.Variable(0, dtype=tf.int64), tf.Variable(values("float32", (2, 2)))
    keeper = tf.train.CheckpointManager(tf.train.Checkpoint(step=step, w=w), str(folder), max_to_keep=3, step_counter=step)
    for _ in range(4):
        step.assign_add(1)
        w.assign_add(tf.ones_like(w))
        keeper.save()
    # The paths are relative, the times those of the run.
    text = (folder / "checkpoint").read_text()
    lines = [line for line in text.splitlines() if "timestamp" not in line and "preserved" not in line]
    (folder / "checkpoint").write_text("\n".join(lines) + "\n")


def hash_table(folder):
    table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
    table.insert(tf.constant(["a", "b"]), tf.constant([1, 2], tf.int64))
    tf.train.Checkpoint(table=table, w=tf.Variable(1.0)).write(str(folder / "ckpt"))


def iterator(folder):
    data = iter(tf.data.Dataset.range(5).shuffle(3, seed=1))
    next(data)
    tf.train.Checkpoint(data=data, w=tf.Variable(1.0)).write(str(folder / "ckpt"))


def split_by_size(folder):
    tree = tf.train.Checkpoint(a=tf.Variable(values("float32", (20, 3))), b=tf.Variable(values("float32", (5,))), c=tf.Variable(values("int32", (7, 2, 2))))
    policy = tf.train.experimental.MaxShardSizePolicy(max_shard_size=100)
    tree.write(str(folder / "ckpt"), tf.train.CheckpointOptions(experimental_sharding_callback=policy))


# Checkpoints of names, as in TensorFlow 1.

def graph_saver(make, **options):
    def write(folder):
        with tf.Graph().as_default(), v1.Session(config=v1.ConfigProto(device_count={"CPU": 3})) as session:
            v1.set_random_seed(5)
            make()
            session.run(v1.global_variables_initializer())
            for operation in v1.get_collection("train"):
                session.run(operation)
            v1.train.Saver(**options).save(session, str(folder / "model.ckpt"), global_step=12, write_meta_graph=False)
    return write


def names_with(optimizer, average=False):
    def make():
        step = v1.train.get_or_create_global_step()
        with v1.variable_scope("dense"):
            w = v1.get_variable("kernel", (3, 2), initializer=v1.random_normal_initializer(seed=1))
            b = v1.get_variable("bias", (2,), initializer=v1.zeros_initializer())
        v1.get_variable("not/Adam", (2,), initializer=v1.zeros_initializer(), trainable=False)
        loss = v1.reduce_sum(v1.square(v1.matmul(v1.constant(values("float32", (4, 3))), w) + b))
        done = optimizer().minimize(loss, global_step=step)
        if average:
            with v1.control_dependencies([done]):
                done = v1.train.ExponentialMovingAverage(0.9).apply([w, b])
        v1.add_to_collection("train", done)
    return make


def partitioned():
    for name, shape, parts in [("rows", (7, 3), 3), ("vector", (5,), 2), ("even", (4, 2, 2), 4)]:
        v1.get_variable(name, shape, initializer=v1.random_normal_initializer(seed=3), partitioner=v1.fixed_size_partitioner(parts))
    v1.get_variable("columns", (3, 130), initializer=v1.random_normal_initializer(seed=4), partitioner=v1.fixed_size_partitioner(2, axis=1))
    v1.get_variable("whole", (2,), initializer=v1.zeros_initializer())
    v1.get_variable("step", (), dtype=tf.int64, initializer=v1.zeros_initializer())


def devices():
    for i in range(3):
        with v1.device(f"/cpu:{i}"):
            v1.get_variable(f"w{i}", (i + 1, 2), initializer=v1.random_normal_initializer(seed=i))


# Tables of other writers: blocks of all sizes, compressed with snappy.

def masked(data):
    import google_crc32c
    crc = google_crc32c.value(data)
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


def varint(value):
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out) + bytes([value])


def block(pairs, interval):
    out, restarts, last = bytearray(), [], b""
    for i, (key, value) in enumerate(pairs):
        shared = 0
        if i % interval == 0:
            restarts.append(len(out))
        else:
            shared = len(os.path.commonprefix([key, last]))
        out += varint(shared) + varint(len(key) - shared) + varint(len(value)) + key[shared:] + value
        last = key
    restarts = restarts or [0]
    return bytes(out) + b"".join(struct.pack("<I", r) for r in restarts) + struct.pack("<I", len(restarts))


def table(pairs, block_pairs=4, interval=3, compress=True):
    """A table in the format of LevelDB."""
    import cramjam
    out, index = bytearray(), []

    def put(data):
        kind = 0
        if compress:
            data, kind = bytes(cramjam.snappy.compress_raw(data)), 1
        at = len(out)
        out.extend(data + bytes([kind]) + masked(data + bytes([kind])))
        return varint(at) + varint(len(data))
    pairs = sorted(pairs)
    for at in range(0, len(pairs), block_pairs):
        part = pairs[at:at + block_pairs]
        index.append((part[-1][0], put(block(part, interval))))
    handles = put(block([], 1)) + put(block(index, 1))
    return bytes(out) + handles.ljust(40, b"\0") + struct.pack("<Q", 0xDB4775248B80FB57)


def pairs_of(data):
    """The pairs of an uncompressed table."""
    def uvarint(data, at):
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value, at

    def entries(offset, size):
        data_of = data[offset:offset + size]
        end = len(data_of) - 4 - 4 * struct.unpack("<I", data_of[-4:])[0]
        at, key = 0, b""
        while at < end:
            shared, at = uvarint(data_of, at)
            own, at = uvarint(data_of, at)
            size, at = uvarint(data_of, at)
            key = key[:shared] + data_of[at:at + own]
            yield key, data_of[at + own:at + own + size]
            at += own + size
    footer = data[-48:]
    _, at = uvarint(footer, 0)
    _, at = uvarint(footer, at)
    offset, at = uvarint(footer, at)
    size, _ = uvarint(footer, at)
    for _, handle in entries(offset, size):
        first, at = uvarint(handle, 0)
        length, _ = uvarint(handle, at)
        yield from entries(first, length)


def compressed(folder):
    tree = {f"layer_{i:02}": tf.Variable(values("float32", (2,), i)) for i in range(30)}
    tf.train.Checkpoint(**tree).write(str(folder / "ckpt"))
    path = folder / "ckpt.index"
    path.write_bytes(table(pairs_of(path.read_bytes())))


def small_blocks(folder):
    every_dtype(folder)
    path = folder / "ckpt.index"
    path.write_bytes(table(pairs_of(path.read_bytes()), block_pairs=1, interval=1, compress=False))


# SavedModel.

class Module(tf.Module):
    def __init__(self):
        super().__init__()
        self.w = tf.Variable(values("float32", (3, 2)), name="w")
        self.table = tf.Variable(values("int64", (4,)), trainable=False, name="table")
        self.k = tf.constant(values("float32", (20,)))

    @tf.function(input_signature=[tf.TensorSpec((None, 3), tf.float32, name="x")])
    def __call__(self, x):
        return {"y": tf.matmul(x, self.w) + tf.cast(self.table[0], tf.float32) + self.k[3]}


def saved_module(folder):
    module = Module()
    tf.saved_model.save(module, str(folder), signatures=module.__call__.get_concrete_function())


def saved_assets(folder):
    words = folder.parent / "words.txt"
    words.write_text("a\nb\n")
    module = tf.Module()
    module.asset = tf.saved_model.Asset(str(words))
    module.w = tf.Variable([1.0, 2.0], name="w")
    tf.saved_model.save(module, str(folder))
    words.unlink()


def saved_text(folder):
    saved_module(folder)
    message = saved_model_pb2.SavedModel.FromString((folder / "saved_model.pb").read_bytes())
    from google.protobuf import text_format
    (folder / "saved_model.pbtxt").write_text(text_format.MessageToString(message))
    (folder / "saved_model.pb").unlink()


def saved_v1(folder):
    folder.rmdir()
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, (None, 3), name="x")
        w = v1.get_variable("w", initializer=values("float32", (3, 2)))
        y = v1.matmul(x, w, name="y")
        session.run(v1.global_variables_initializer())
        v1.saved_model.simple_save(session, str(folder), {"x": x}, {"y": y})


def saved_constant(folder):
    """No variables: the elements are in the graph."""
    k = tf.constant(values("float32", (3, 4)))
    module = tf.Module()
    module.f = tf.function(lambda x: tf.matmul(x, k), input_signature=[tf.TensorSpec((None, 3), tf.float32)])
    tf.saved_model.save(module, str(folder))


def saved_keras_2(folder):
    model = tf_keras.Sequential([tf_keras.layers.Input((3,)), tf_keras.layers.Dense(2, name="out")])
    tf_keras.utils.set_random_seed(3)
    model.save(str(folder), include_optimizer=False)


def saved_keras_2_lambda(folder):
    model = tf_keras.Sequential([tf_keras.layers.Input((2,)), tf_keras.layers.Lambda(lambda x: x + 1, name="code")])
    model.save(str(folder), include_optimizer=False)


def saved_keras_3(folder):
    keras.utils.set_random_seed(4)
    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(2, name="out")])
    model.export(str(folder), verbose=False)


# Graphs.

def frozen_v1(path):
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, (None, 3), name="x")
        w = v1.get_variable("w", initializer=values("float32", (3, 2)), use_resource=False)
        r = v1.get_variable("r", initializer=values("float32", (2,)), use_resource=True)
        v1.nn.softmax(v1.matmul(x, w) + r, name="y")
        session.run(v1.global_variables_initializer())
        graph = v1.graph_util.convert_variables_to_constants(session, session.graph_def, ["y"])
    path.write_bytes(graph.SerializeToString(deterministic=True))


def frozen_v2(path):
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2
    module = Module()
    frozen = convert_variables_to_constants_v2(module.__call__.get_concrete_function())
    path.write_bytes(frozen.graph.as_graph_def().SerializeToString(deterministic=True))


FIELDS = {"float32": "float_val", "float64": "double_val", "int32": "int_val", "uint8": "int_val", "int16": "int_val", "int8": "int_val",
          "uint16": "int_val", "int64": "int64_val", "bool": "bool_val", "float16": "half_val", "bfloat16": "half_val", "uint32": "uint32_val",
          "uint64": "uint64_val", "complex64": "scomplex_val", "complex128": "dcomplex_val", "float8_e5m2": "float8_val", "float8_e4m3fn": "float8_val"}


def typed(word, data, shape):
    """A constant with its elements in the field of its dtype."""
    from tensorflow.core.framework import tensor_pb2
    dtype = tf.as_dtype(word)
    message = tensor_pb2.TensorProto(dtype=dtype.as_datatype_enum, tensor_shape=tf.TensorShape(shape).as_proto())
    data = np.asarray(data, dtype.as_numpy_dtype).ravel()
    field = getattr(message, FIELDS[word]) if word not in ("float8_e5m2", "float8_e4m3fn") else None
    if field is None:
        message.float8_val = data.tobytes()
    elif word in ("float16", "bfloat16"):
        field.extend(int(v) for v in data.view(np.uint16))
    elif dtype.is_complex:
        field.extend(float(part) for v in data for part in (v.real, v.imag))
    else:
        field.extend(data.tolist())
    return message


def graph_of(constants):
    graph = tf.Graph().as_graph_def()
    for name, message in constants.items():
        node = graph.node.add(name=name, op="Const")
        node.attr["dtype"].type = message.dtype
        node.attr["value"].tensor.CopyFrom(message)
    return graph


def typed_values(path):
    """Elements in typed fields; the last one is repeated; none is zero."""
    constants = {}
    for i, word in enumerate(FIELDS):
        constants["all_" + word] = typed(word, values(word, (2, 3), i), (2, 3))
        constants["one_" + word] = typed(word, values(word, (1,), 5), (2, 2))
        constants["last_" + word] = typed(word, values(word, (3,), 9), (7,))
        constants["none_" + word] = typed(word, np.zeros(0), (2,))
    constants["negative"] = typed("int32", [-1, -2], (2,))
    constants["long"] = typed("int64", [-2**63, 2**63 - 1], (2,))
    constants["scalar"] = typed("float32", [2.5], ())
    constants["empty"] = typed("float32", [], (0, 4))
    constants["filled"] = tf.make_tensor_proto(np.full((64,), 3.0, np.float32))
    constants["content"] = tf.make_tensor_proto(values("int16", (5, 5)))
    constants["text"] = tf.make_tensor_proto(["a", "b"])
    path.write_bytes(graph_of(constants).SerializeToString(deterministic=True))


def control_flow(path):
    @tf.function(input_signature=[tf.TensorSpec((), tf.int32, name="n")])
    def f(n):
        total = tf.constant(0)
        while n > 0:
            total += n
            n -= 1
        return tf.cond(total > 3, lambda: total, lambda: total * 2)
    path.write_bytes(f.get_concrete_function().graph.as_graph_def().SerializeToString(deterministic=True))


def calls_python(path):
    with tf.Graph().as_default() as graph:
        v1.py_func(lambda x: x, [v1.constant(1.0)], tf.float32, name="code")
        v1.read_file(v1.constant("/etc/hostname"), name="read")
        v1.write_file(v1.constant("/tmp/x"), v1.constant("x"), name="write")
        v1.matching_files(v1.constant("/tmp/*"), name="list")
    path.write_bytes(graph.as_graph_def().SerializeToString(deterministic=True))


def custom_operator(path):
    graph = graph_of({"c": typed("float32", [1.0], (2,))})
    graph.node.add(name="own", op="CompanyOwnOp", input=["c"])
    path.write_bytes(graph.SerializeToString(deterministic=True))


k, t, old = keras.optimizers, tf_keras.optimizers, tf_keras.optimizers.legacy
FOLDERS = {
    "every_dtype": every_dtype, "raw_dtypes": raw_dtypes, "special_values": special_values, "odd_names": odd_names,
    "keras3_adam": keras_3(lambda: k.Adam(0.01)), "keras3_sgd": keras_3(lambda: k.SGD(0.01, momentum=0.9)), "keras3_rmsprop": keras_3(lambda: k.RMSprop(0.01, centered=True)),
    "tfkeras_weights": tf_keras_weights(lambda: t.Adam(0.01)), "tfkeras_adam": tf_keras_checkpoint(lambda: t.Adam(0.01, amsgrad=True)),
    "tfkeras_sgd": tf_keras_checkpoint(lambda: t.SGD(0.01, momentum=0.9)), "legacy_adam": tf_keras_checkpoint(lambda: old.Adam(0.01)),
    "legacy_rmsprop": tf_keras_checkpoint(lambda: old.RMSprop(0.01, momentum=0.5)), "two_optimizers": two_optimizers, "embedding": embedding,
    "manager": manager, "hash_table": hash_table, "iterator": iterator, "split_by_size": split_by_size,
    "names_adam": graph_saver(names_with(lambda: v1.train.AdamOptimizer(0.1))), "names_momentum": graph_saver(names_with(lambda: v1.train.MomentumOptimizer(0.1, 0.9), True)),
    "names_rmsprop": graph_saver(names_with(lambda: v1.train.RMSPropOptimizer(0.1))), "names_ftrl": graph_saver(names_with(lambda: v1.train.FtrlOptimizer(0.1))),
    "partitioned": graph_saver(partitioned), "sharded": graph_saver(devices, sharded=True), "compressed": compressed, "small_blocks": small_blocks,
    "saved_module": saved_module, "saved_assets": saved_assets, "saved_text": saved_text, "saved_v1": saved_v1, "saved_constant": saved_constant,
    "saved_keras_2": saved_keras_2, "saved_keras_3": saved_keras_3,
}
GRAPHS = {"frozen_v1": frozen_v1, "frozen_v2": frozen_v2, "typed_values": typed_values, "control_flow": control_flow}
# Files that run code, or need that of a library.
CODES = {"calls_python": calls_python, "custom_operator": custom_operator}


def described(array):
    array = np.asarray(array)
    data = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")) if array.dtype.kind in "iufc" else np.ascontiguousarray(array)
    return {"dtype": NAMES[array.dtype.name], "shape": list(array.shape), "sha256": hashlib.sha256(data.tobytes()).hexdigest()}


def expected_of_checkpoint(prefix):
    """What TensorFlow reads, by key. Text is None."""
    reader = tf.train.load_checkpoint(str(prefix))
    found = {}
    for key, dtype in sorted(reader.get_variable_to_dtype_map().items()):
        if dtype in (tf.string, tf.variant, tf.resource):
            found[key] = None
            continue
        # numpy reads 8-bit floats through the operator.
        shape = reader.get_variable_to_shape_map()[key]
        tensor = tf.raw_ops.RestoreV2(prefix=str(prefix), tensor_names=[key], shape_and_slices=[""], dtypes=[dtype])[0]
        found[key] = described(tensor.numpy() if dtype not in (tf.qint8, tf.quint8, tf.qint16, tf.quint16, tf.qint32) else tf.bitcast(tensor, dict(
            qint8=tf.int8, quint8=tf.uint8, qint16=tf.int16, quint16=tf.uint16, qint32=tf.int32)[dtype.name]).numpy())
        assert found[key]["shape"] == list(shape)
    return found


def full_names(prefix):
    """The names of variables, by key, as the graph of objects has them."""
    reader = tf.train.load_checkpoint(str(prefix))
    if not reader.has_tensor(OBJECT_GRAPH):
        return {}
    graph = trackable_object_graph_pb2.TrackableObjectGraph.FromString(reader.get_tensor(OBJECT_GRAPH))
    return {a.checkpoint_key: a.full_name for node in graph.nodes for a in node.attributes if a.full_name}


def constants_of(graph, functions=True):
    found = {}
    for where, nodes in [("", graph.node), *((f.signature.name + "/", f.node_def) for f in graph.library.function if functions)]:
        for node in nodes:
            if node.op == "Const":
                text = node.attr["value"].tensor.dtype == types_pb2.DT_STRING
                found[where + node.name] = None if text else described(tf.make_ndarray(node.attr["value"].tensor))
    return found


def expected(path):
    if path.is_file():
        graph = v1.GraphDef.FromString(path.read_bytes())
        return {"constants": constants_of(graph), "operators": len(graph.node) + sum(len(f.node_def) for f in graph.library.function)}
    variables = path / "variables" / "variables"
    made = {}
    if (path / "saved_model.pb").exists():
        message = saved_model_pb2.SavedModel.FromString((path / "saved_model.pb").read_bytes())
        graph = message.meta_graphs[0].graph_def
        made["operators"] = len(graph.node) + sum(len(f.node_def) for f in graph.library.function)
        made["signatures"] = sorted(message.meta_graphs[0].signature_def)
        # Values that functions capture are constants of the main graph.
        stored = expected_of_checkpoint(variables) if variables.with_name("variables.index").exists() else {}
        if not any(stored.values()) or OBJECT_GRAPH in stored:
            constants = constants_of(graph, functions=not any(stored.values()))
            made["constants"] = {name: value for name, value in constants.items() if value}
    if (path / "saved_model.pb").exists() or (path / "saved_model.pbtxt").exists():
        prefix = variables
    else:
        prefix = max(path.glob("*.index")).with_suffix("")
    if prefix.with_name(prefix.name + ".index").exists():
        made["tensors"], made["names"] = expected_of_checkpoint(prefix), full_names(prefix)
    return made


def bad():
    shutil.rmtree(BAD, ignore_errors=True)
    BAD.mkdir(parents=True)
    source = GOOD / "legacy_adam"
    index, data = (source / "ckpt.index").read_bytes(), (source / "ckpt.data-00000-of-00001").read_bytes()

    def put(name, index=index, data=data, shard="data-00000-of-00001"):
        (BAD / name).mkdir()
        (BAD / name / "ckpt.index").write_bytes(index)
        if data is not None:
            (BAD / name / f"ckpt.{shard}").write_bytes(data)

    def changed(change):
        """The table with its entries changed."""
        made = []
        for key, value in pairs_of(index):
            kind = tensor_bundle_pb2.BundleEntryProto if key else tensor_bundle_pb2.BundleHeaderProto
            message = kind.FromString(value)
            change(key.decode(), message)
            made.append((key, message.SerializeToString()))
        return table(made, block_pairs=1000, interval=16, compress=False)

    def entry(change):
        def only(key, message):
            if key == "net/layer-0/kernel" + SUFFIX or key == "net/layer_with_weights-0/kernel" + SUFFIX:
                change(message)
        made = changed(only)
        assert made != changed(lambda key, message: None)
        return made

    def header(change):
        return changed(lambda key, message: None if key else change(message))
    flipped = bytearray(data)
    flipped[30] ^= 4
    put("data_flipped", data=bytes(flipped))
    put("data_truncated", data=data[:300])
    put("data_missing", data=None)
    put("data_of_other_count", shard="data-00000-of-00002")
    flipped = bytearray(index)
    flipped[40] ^= 1
    put("index_flipped", bytes(flipped))
    put("index_truncated", index[:len(index) // 2])
    put("index_magic", index[:-1] + b"\0")
    put("index_handle", index[:-48] + varint(2**60) + varint(2**60) + index[-48 + len(varint(2**60) * 2):])
    put("index_trailing", index + b"more")
    put("big_endian", header(lambda m: setattr(m, "endianness", 1)))
    put("no_shards", header(lambda m: setattr(m, "num_shards", 0)))
    put("many_shards", header(lambda m: setattr(m, "num_shards", 2**31 - 1)))
    put("newer_version", header(lambda m: setattr(m.version, "min_consumer", 9)))
    put("offset_past_end", entry(lambda m: setattr(m, "offset", 2**40)))
    put("offset_negative", entry(lambda m: setattr(m, "offset", -8)))
    put("size_differs", entry(lambda m: setattr(m, "size", m.size + 4)))
    put("shape_overflow", entry(lambda m: setattr(m.shape.dim[0], "size", 2**62)))
    put("shape_negative", entry(lambda m: setattr(m.shape.dim[0], "size", -1)))
    put("shard_outside", entry(lambda m: setattr(m, "shard_id", 3)))
    put("unknown_dtype", entry(lambda m: setattr(m, "dtype", 99)))
    put("overlap", entry(lambda m: setattr(m, "offset", 0)))
    bomb = bytes(varint(2**31)) + b"\xfe" * 30
    put("snappy_bomb", bomb + b"\x01" + masked(bomb + b"\x01") + index[-48:])
    pairs = list(pairs_of(index))
    put("unsorted", table_as_is(pairs[::-1]))
    put("duplicate_key", table_as_is([*pairs, pairs[-1]]))
    part = GOOD / "partitioned"
    prefix = next(part.glob("*.index"))
    for name, drop in [("slice_missing", True), ("slices_overlap", False)]:
        made = []
        for key, value in pairs_of(prefix.read_bytes()):
            message = tensor_bundle_pb2.BundleEntryProto.FromString(value)
            if drop and key.startswith(b"\0") and b"rows" in key:
                drop = False
                continue
            if name == "slices_overlap" and key == b"rows":
                message.slices[1].CopyFrom(message.slices[0])
                value = message.SerializeToString()
            made.append((key, value))
        (BAD / name).mkdir()
        (BAD / name / "ckpt.index").write_bytes(table(made, compress=False))
        shutil.copy(next(part.glob("*.data-*")), BAD / name / "ckpt.data-00000-of-00001")
    frozen = (GOOD / "frozen_v1.pb").read_bytes()
    (BAD / "truncated.pb").write_bytes(frozen[:len(frozen) * 2 // 3])
    wrong = {"w": typed("float32", [1, 2, 3, 4], (3,))}
    (BAD / "too_many_values.pb").write_bytes(graph_of(wrong).SerializeToString())
    content = tf.make_tensor_proto(values("float32", (3, 2)))
    content.tensor_content = content.tensor_content[:-4]
    (BAD / "content_short.pb").write_bytes(graph_of({"w": content}).SerializeToString())
    content.tensor_shape.dim[0].size = -3
    (BAD / "shape_negative.pb").write_bytes(graph_of({"w": content}).SerializeToString())
    huge = typed("float32", [1.0], (2**20, 2**20))
    (BAD / "repeated_huge.pb").write_bytes(graph_of({"w": huge}).SerializeToString())


def table_as_is(pairs):
    out = bytearray()
    data = block(pairs, 1)
    out += data + b"\0" + masked(data + b"\0")
    meta = block([], 1)
    at = len(out)
    out += meta + b"\0" + masked(meta + b"\0")
    index = block([(pairs[-1][0] + b"~", varint(0) + varint(len(data)))], 1)
    where = len(out)
    out += index + b"\0" + masked(index + b"\0")
    handles = varint(at) + varint(len(meta)) + varint(where) + varint(len(index))
    return bytes(out) + handles.ljust(40, b"\0") + struct.pack("<Q", 0xDB4775248B80FB57)


def main():
    shutil.rmtree(GOOD, ignore_errors=True)
    for name, write in FOLDERS.items():
        (GOOD / name).mkdir(parents=True)
        write(GOOD / name)
    for name, write in GRAPHS.items():
        write(GOOD / f"{name}.pb")
    shutil.rmtree(CODE, ignore_errors=True)
    (CODE / "saved_keras_2_lambda").mkdir(parents=True)
    saved_keras_2_lambda(CODE / "saved_keras_2_lambda")
    for name, write in CODES.items():
        write(CODE / f"{name}.pb")
    large = [p for p in GOOD.rglob("*") if p.is_file() and p.stat().st_size > 100_000]
    assert not large, large
    made = {path.name: expected(path) for path in sorted(GOOD.iterdir())}
    (ROOT / "expected.json").write_text(json.dumps(made, indent=1) + "\n")
    bad()


if __name__ == "__main__":
    main()
