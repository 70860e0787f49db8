"""Trains an embedding table, saves a version after each epoch, and resumes from the last one when run again.

    python examples/python/resume_embeddings.py FOLDER [EPOCHS]

Entities are points on a ring; row-wise Adagrad pulls neighbours together, with torch if it is installed, else with numpy.
FOLDER is a PyTorch-BigGraph checkpoint folder: PyTorch-BigGraph can resume from it, too.
"""

from __future__ import annotations

import sys
from typing import List, Tuple

import numpy

from weighbridge.biggraph import CheckpointStore

try:
    import torch
except ImportError:
    torch = None

COUNT, DIMENSION, RATE = 64, 8, 0.1
NAMES = [f"point-{number}" for number in range(COUNT)]
CONFIG = {
    "entities": {"point": {"num_partitions": 2}},
    "relations": [{"name": "next_to", "lhs": "point", "rhs": "point", "operator": "none"}],
    "dimension": DIMENSION,
    "global_emb": False,
    "lr": RATE,
    "num_epochs": 10,
    "entity_path": ".",
    "edge_paths": ["."],
    "checkpoint_path": ".",
}


def gradient_numpy(rows: numpy.ndarray) -> Tuple[numpy.ndarray, float]:
    """Returns the gradient of the mean squared distance of neighbours, and that mean."""
    ahead = numpy.roll(rows, -1, 0) - rows
    behind = numpy.roll(rows, 1, 0) - rows
    return -2 * (ahead + behind) / len(rows), float((ahead**2).sum(1).mean())


def gradient_torch(rows: numpy.ndarray) -> Tuple[numpy.ndarray, float]:
    """Returns the same, computed with torch."""
    leaf = torch.from_numpy(rows.copy()).requires_grad_()
    loss = ((leaf.roll(-1, 0) - leaf) ** 2).sum(1).mean()
    loss.backward()
    return leaf.grad.numpy(), float(loss.detach())


def train(folder: str, epochs: int) -> List[float]:
    """Trains up to `epochs` epochs; returns the losses of the epochs run now."""
    gradient = gradient_numpy if torch is None else gradient_torch
    losses = []
    # The lock is held to the end, so no other process trains in this folder.
    with CheckpointStore(folder, keep=2) as store:
        latest = store.latest()
        if latest is None:
            rows = numpy.random.default_rng(1).normal(size=(COUNT, DIMENSION)).astype("float32")
            sums = numpy.zeros(COUNT, "float32")
        else:
            rows = latest["point"].numpy().copy()
            sums = latest["point"].state["sum"].numpy().copy()
        for epoch in range(store.version, epochs):
            slope, loss = gradient(rows)
            sums += (slope**2).mean(1)
            rows -= RATE * slope / (numpy.sqrt(sums)[:, None] + 1e-10)
            store.save(
                {"point": rows},
                state={"point": sums},
                # The names do not change, so they are written once.
                names={"point": NAMES} if latest is None and epoch == 0 else None,
                config=CONFIG,
                iteration={"num_epochs": epochs, "epoch_idx": epoch},
            )
            losses.append(loss)
    return losses


def main(folder: str, epochs: str = "10") -> None:
    for loss in train(folder, int(epochs)):
        print(f"{loss:.6f}")
    store = CheckpointStore(folder)
    print(f"version {store.version} of {store.versions}, {store.latest()['point']!r}")


if __name__ == "__main__":
    main(*sys.argv[1:])
