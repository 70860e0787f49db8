"""Converts the parameters of a PaddlePaddle model to a PyTorch state dict.

    python examples/python/paddle_to_torch.py STATE TARGET [EMBEDDING ...]

STATE is a file written by `paddle.save(layer.state_dict(), ...)`, for a model of convolutions, batch normalisations and
linear layers; TARGET the file for `torch.load`. Embedding layers must be listed: their tables look like the weights of
linear layers.
"""

from __future__ import annotations

import sys
from typing import Any, Dict, Sequence

import numpy
import torch

from weighbridge import paddle


def to_torch(state: Dict[str, Any], embeddings: Sequence[str] = ()) -> Dict[str, torch.Tensor]:
    """Converts a Paddle state dict to the names and layout of torch.

    The weight of a linear layer is (in, out) in Paddle and (out, in) in torch; tables of the layers `embeddings` have the same
    layout in both. The running mean and variance of a normalisation have different names.
    """
    moved = {}
    for name, array in state.items():
        if not isinstance(array, numpy.ndarray):
            continue  # such as the learning rate schedule
        layer, _, kind = name.rpartition(".")
        if kind == "weight" and array.ndim == 2 and layer not in embeddings:
            array = array.T
        kind = {"_mean": "running_mean", "_variance": "running_var"}.get(kind, kind)
        moved[f"{layer}.{kind}"] = torch.from_numpy(numpy.ascontiguousarray(array).copy())
    return moved


def main(source: str, target: str, *embeddings: str) -> None:
    state = paddle.load(source, bfloat16="float32")
    moved = to_torch(state, embeddings)
    torch.save(moved, target)
    for name, tensor in moved.items():
        print(name, tuple(tensor.shape))


if __name__ == "__main__":
    main(*sys.argv[1:])
