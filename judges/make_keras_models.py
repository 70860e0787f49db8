"""Golden files of Keras models: testdata/hdf5/models, written by Keras 3 and tf-keras.

    python judges/make_keras_models.py

Needs: tensorflow, tf-keras, keras (see judges/tensorflow.txt). `expected.json` has what h5py reads of every file: the datasets in the
order of the file, with dtype, shape and hash.
"""

import hashlib
import io
import json
import os
import sys
import zipfile
from pathlib import Path

os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="-1", KERAS_BACKEND="tensorflow")
import h5py
import keras
import numpy as np
import tf_keras

ROOT = Path(__file__).resolve().parent.parent / "testdata" / "hdf5" / "models"


def data(*shape):
    count = int(np.prod(shape))
    return ((np.arange(count) * 7 % 23) / 8 - 1).reshape(shape).astype("f4")


# Models: a function makes the model, and names its inputs for predictions. `k` is Keras 3 or tf-keras.


def dense(k):
    model = k.Sequential(
        [
            k.layers.Input((3,)),
            k.layers.Dense(4, activation="relu", name="hidden"),
            k.layers.BatchNormalization(name="bn"),
            k.layers.Dropout(0.5, seed=3, name="drop"),
            k.layers.Dense(2, name="head"),
        ],
        name="dense",
    )
    return model, [data(5, 3)]


def functional(k):
    first, second = k.Input((3,), name="first"), k.Input((3,), name="second")
    shared = k.layers.Dense(4, name="shared")
    both = k.layers.Concatenate(name="both")([shared(first), shared(second)])
    sums = k.layers.Add(name="sums")([shared(first), both[:, :4]])
    outputs = [k.layers.Dense(2, name="left")(both), k.layers.Dense(1, use_bias=False, name="right")(sums)]
    return k.Model([first, second], outputs, name="functional"), [data(5, 3), data(5, 3) * 2]


def conv(k):
    model = k.Sequential(
        [
            k.layers.Input((6, 6, 2)),
            k.layers.Conv2D(3, 3, name="conv"),
            k.layers.BatchNormalization(scale=False, name="bn"),
            k.layers.DepthwiseConv2D(2, name="depthwise"),
            k.layers.SeparableConv2D(2, 2, name="separable"),
            k.layers.GlobalAveragePooling2D(name="pool"),
        ],
        name="conv",
    )
    return model, [data(2, 6, 6, 2)]


def recurrent(k):
    model = k.Sequential(
        [
            k.layers.Input((4,), dtype="int32"),
            k.layers.Embedding(7, 3, name="embed"),
            k.layers.Bidirectional(k.layers.GRU(2, return_sequences=True), name="both"),
            k.layers.LSTM(3, name="lstm"),
        ],
        name="recurrent",
    )
    return model, [(np.arange(12) % 7).reshape(3, 4).astype("i4")]


def nested(k):
    inner = k.Sequential(
        [k.layers.Input((4,)), k.layers.Dense(3, name="first"), k.layers.BatchNormalization(name="bn"), k.layers.Dense(4, name="second")],
        name="inner",
    )
    given = k.Input((4,), name="given")
    end = k.layers.TimeDistributed(k.layers.Dense(2), name="each")(k.layers.Reshape((2, 2), name="shape")(inner(given)))
    return k.Model(given, end, name="outer"), [data(5, 4)]


def attention(k):
    given = k.Input((3, 4), name="given")
    seen = k.layers.MultiHeadAttention(2, 2, name="attention")(given, given)
    end = k.layers.LayerNormalization(name="norm")(k.layers.Add(name="residual")([given, seen]))
    return k.Model(given, end, name="attention"), [data(2, 3, 4)]


def half(k):
    given = k.Input((3,), name="given", dtype="float16")
    end = k.layers.Dense(2, dtype="float16", name="low")(given)
    end = k.layers.Dense(2, dtype="float64", name="high")(end)
    return k.Model(given, end, name="half"), [data(4, 3).astype("f2")]


def statistics(k):
    normalization = k.layers.Normalization(name="normalization")
    normalization.adapt(data(8, 3))
    model = k.Sequential([k.layers.Input((3,)), normalization, k.layers.Dense(1, name="head")], name="statistics")
    return model, [data(4, 3)]


def vocabulary(k):
    given = k.Input((2,), dtype="string", name="given")
    words = k.layers.StringLookup(name="words")
    words.adapt(np.array([["red", "green"], ["blue", "red"]]))
    end = k.layers.Embedding(5, 2, name="embed")(words(given))
    import tensorflow as tf

    return k.Model(given, end, name="vocabulary"), [tf.constant([["red", "blue"], ["black", "green"]])]


def trained(made, k, optimizer):
    model, inputs = made(k)
    outputs = model(inputs[0] if len(inputs) == 1 else inputs)
    targets = [np.ones_like(part) for part in outputs] if isinstance(outputs, list) else np.ones_like(outputs)
    loss = [k.losses.MeanSquaredError() for _ in outputs] if isinstance(outputs, list) else k.losses.MeanSquaredError()
    model.compile(optimizer=optimizer, loss=loss)
    model.fit(inputs if len(inputs) > 1 else inputs[0], targets, epochs=2, batch_size=len(inputs[0]), verbose=0)
    return model


def plain(made, k):
    return made(k)[0]


class Small:
    """Splits attributes of more than a few bytes, as Keras does with those above 64 KiB."""

    def __enter__(self):
        from tf_keras.src.saving.legacy import hdf5_format

        self.module, self.limit = hdf5_format, hdf5_format.HDF5_OBJECT_HEADER_LIMIT
        hdf5_format.HDF5_OBJECT_HEADER_LIMIT = 40

    def __exit__(self, *_):
        self.module.HDF5_OBJECT_HEADER_LIMIT = self.limit


# name of the file -> (Keras, function that makes the model, optimizer)
MODELS = {
    "dense.keras": (keras, dense, "adam"),
    "functional.keras": (keras, functional, "sgd"),
    "conv.keras": (keras, conv, None),
    "recurrent.keras": (keras, recurrent, None),
    "nested.keras": (keras, nested, "rmsprop"),
    "attention.keras": (keras, attention, None),
    "half.keras": (keras, half, None),
    "statistics.keras": (keras, statistics, None),
    "vocabulary.keras": (keras, vocabulary, None),
    "dense.weights.h5": (keras, dense, "adam"),
    "conv.weights.h5": (keras, conv, None),
    "nested.weights.h5": (keras, nested, None),
    "recurrent.weights.h5": (keras, recurrent, None),
    "dense.h5": (keras, dense, "adam"),
    "recurrent.h5": (keras, recurrent, None),
    "k2_dense.h5": (tf_keras, dense, "adam"),
    "k2_legacy.h5": (tf_keras, dense, "legacy"),
    "k2_functional.h5": (tf_keras, functional, "sgd"),
    "k2_recurrent.h5": (tf_keras, recurrent, None),
    "k2_nested.h5": (tf_keras, nested, None),
    "k2_split.h5": (tf_keras, dense, None),
    "k2_weights.h5": (tf_keras, conv, None),
    "k2_nested_weights.h5": (tf_keras, nested, None),
    "k2_dense.keras": (tf_keras, dense, "adam"),
    "k2_conv.weights.h5": (tf_keras, conv, None),
    "k1_weights.h5": (tf_keras, dense, None),
}


def make(name):
    k, made, optimizer = MODELS[name]
    k.utils.set_random_seed(7)
    if optimizer == "legacy":
        optimizer = k.optimizers.legacy.RMSprop(0.01, momentum=0.5)
    elif optimizer == "sgd":
        optimizer = k.optimizers.SGD(0.01, momentum=0.5)
    return trained(made, k, optimizer) if optimizer else plain(made, k)


def save(name, path):
    model = make(name)
    if name == "k1_weights.h5":
        version_1(model, path)
    elif "weights" in name:
        model.save_weights(path)
    elif name == "k2_split.h5":
        with Small():
            model.save(path)
    else:
        model.save(path)


def version_1(model, path):
    """Weights of the model with the names of Keras 1: it has no groups within those of layers."""
    words = {"kernel": "W", "bias": "b", "gamma": "gamma", "beta": "beta", "moving_mean": "running_mean", "moving_variance": "running_std"}
    with h5py.File(path, "w") as file:
        file.attrs["layer_names"] = [layer.name.encode() for layer in model.layers]
        file.attrs["keras_version"] = b"1.2.2"
        file.attrs["backend"] = b"tensorflow"
        for layer in model.layers:
            group = file.create_group(layer.name)
            names = [f"{layer.name}_{words[w.name.split('/')[-1].split(':')[0]]}" for w in layer.weights]
            group.attrs["weight_names"] = [name.encode() for name in names]
            for name, weight in zip(names, layer.get_weights()):
                group[name] = weight


def weights_of(path):
    """The HDF5 file of a model as h5py opens it."""
    if path.suffix == ".keras":
        return h5py.File(io.BytesIO(zipfile.ZipFile(path).read("model.weights.h5")), "r")
    return h5py.File(path, "r")


def datasets(path):
    found = {}

    def visit(name, item):
        if isinstance(item, h5py.Dataset):
            found[name] = item[()]

    with weights_of(path) as file:
        file.visititems(visit)
    return found


def main():
    ROOT.mkdir(parents=True, exist_ok=True)
    expected = {}
    for name in MODELS:
        path = ROOT / name
        path.unlink(missing_ok=True)
        save(name, path)
        rows = {}
        for key, value in datasets(path).items():
            value = np.asarray(value)
            rows[key] = [str(value.dtype), list(value.shape), hashlib.sha256(value.tobytes()).hexdigest()]
        expected[name] = rows
        print(f"{name}: {path.stat().st_size} bytes, {len(rows)} datasets")
    (ROOT / "expected.json").write_text(json.dumps(expected, indent=0, sort_keys=True) + "\n")


if __name__ == "__main__":
    sys.exit(main())
