"""PyTorch-BigGraph edges, embeddings and checkpoints, without PyTorch-BigGraph.

>>> from weighbridge import biggraph
>>> with biggraph.open("graph") as checkpoint:
...     users = checkpoint["user"]
...     print(users["alice"].tolist(), list(users.names))
[0.0, 1.0] ['alice', 'bob', 'carol', 'dan']

- `open` returns a `Checkpoint`: `Table`s, parameters of relations, optimizer state and `Config`;
- `edges` and `buckets` return edges as arrays;
- `evaluate` ranks edges by a checkpoint, and `rank` a single one; `weighbridge.neighbors` finds the nearest rows;
- `CheckpointStore` writes versions from a training loop, and finds the version to resume from.
"""

from __future__ import annotations

from typing import List

from ..verbs import EvaluateReport, RankReport, evaluate, rank
from .checkpoint import Checkpoint, open  # noqa: A004
from .config import Config
from .edges import Bucket, Edges, buckets, edges
from .store import CheckpointStore, Version
from .table import Table

__all__: List[str] = [
    "Bucket",
    "Checkpoint",
    "CheckpointStore",
    "Config",
    "Edges",
    "EvaluateReport",
    "RankReport",
    "Table",
    "Version",
    "buckets",
    "edges",
    "evaluate",
    "open",
    "rank",
]
