"""Writes testdata/hdf5/keras with Keras 3: a whole model in the form of Keras 2, numbered weights, and an archive, stored and
deflated, all with the state of the optimizer; and weights with a dataset of the optimizer that is not read.

    KERAS_BACKEND=torch python judges/make_keras.py testdata/hdf5/keras

Needs keras, h5py and one of its backends that can train.
"""

import io
import json
import sys
import zipfile
from pathlib import Path

import h5py
import keras
import numpy as np

folder = Path(sys.argv[1])
keras.utils.set_random_seed(0)
model = keras.Sequential(
    [
        keras.layers.Input((3,)),
        keras.layers.Dense(2, name="dense"),
        keras.layers.BatchNormalization(name="bn"),
        keras.layers.Dense(1, name="head"),
    ]
)
model.compile(optimizer=keras.optimizers.Adam(1e-3), loss="mse")
inputs = np.ones((4, 3), "f4") * np.arange(4)[:, None]
model.fit(inputs, np.arange(4.0)[:, None], epochs=1, verbose=0)
model.save(folder / "whole.h5")
model.save_weights(folder / "numbered.weights.h5")
model.save(folder / "model.keras")

archive = zipfile.ZipFile(folder / "model.keras")
# The weights of `padded.keras` have a megabyte of zeros behind them.
for stem, padding in [("deflated", 0), ("padded", 1 << 20)]:
    with zipfile.ZipFile(folder / f"{stem}.keras", "w", zipfile.ZIP_DEFLATED) as deflated:
        for name in ["config.json", "metadata.json", "model.weights.h5"]:
            member = zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0))
            member.compress_type = zipfile.ZIP_DEFLATED
            more = bytes(padding if name == "model.weights.h5" else 0)
            deflated.writestr(member, archive.read(name) + more)

found = {}


def visit(name, item):
    if isinstance(item, h5py.Dataset):
        found[name] = [list(item.shape), str(item.dtype), item[()].tobytes().hex()]


h5py.File(io.BytesIO(archive.read("model.weights.h5"))).visititems(visit)
(folder / "model.json").write_text(json.dumps(found, indent=0))

with h5py.File(folder / "skipped.weights.h5", "w") as file:
    file["layers/dense/vars/0"] = np.ones((2, 2), "f4")
    file["optimizer/vars/0"] = np.ones(1, "i8")
    file["optimizer/vars/1"] = np.zeros(2, [("a", "f4"), ("b", "i4")])
