"""Finds the nearest neighbours of an entity by cosine similarity of embeddings, in numpy.

    python examples/python/biggraph_neighbours.py CHECKPOINT TYPE NAME [COUNT]

CHECKPOINT is a PyTorch-BigGraph checkpoint folder; TYPE an entity type; NAME the name of an entity.
"""

from __future__ import annotations

import sys
from typing import List, Tuple

import numpy

from weighbridge import biggraph

BLOCK = 1 << 16
"""Rows per block, so that a table may be larger than memory."""


def nearest(table: biggraph.Table, name: str, count: int = 10) -> List[Tuple[str, float]]:
    """Returns the nearest entities with their cosine similarity, nearest first."""
    own = table.row_of(name)
    wanted = unit(table[own])
    scores = numpy.concatenate(
        [unit(table[start : start + BLOCK]) @ wanted for start in range(0, len(table), BLOCK)]
    )
    scores[own] = -numpy.inf
    count = min(count, len(table) - 1)
    best = numpy.argpartition(-scores, range(count))[:count]
    return [(table.names[int(row)], float(scores[row])) for row in best]


def unit(rows: numpy.ndarray) -> numpy.ndarray:
    """Scales rows to length 1; zero rows stay zero."""
    length = numpy.linalg.norm(rows, axis=-1, keepdims=True)
    return rows / numpy.where(length == 0, 1, length)


def main(folder: str, entity: str, name: str, count: str = "10") -> None:
    with biggraph.open(folder) as checkpoint:
        for other, score in nearest(checkpoint[entity], name, int(count)):
            print(f"{score:.4f}  {other}")


if __name__ == "__main__":
    main(*sys.argv[1:])
