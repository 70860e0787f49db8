"""Writes testdata/hdf5/keras with Keras 3: a whole model in the form of Keras 2, and numbered weights, both with the state
of the optimizer.

    KERAS_BACKEND=torch python judges/make_keras.py testdata/hdf5/keras

Needs keras, h5py and one of its backends that can train.
"""

import sys
from pathlib import Path

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
