"""Runs a character LSTM trained with primitiv, in numpy.

    python examples/python/primitiv_lstm.py MODEL INPUT [INPUT ...]

MODEL is a model file with the parameters `emb`, `lstm.w`, `lstm.b`, `wy` and `by`; the inputs are character
numbers. Prints the number of the most likely next character after each.
"""

from __future__ import annotations

import sys
from typing import List, Sequence

import numpy

from weighbridge import primitiv


def sigmoid(x: numpy.ndarray) -> numpy.ndarray:
    return 1 / (1 + numpy.exp(-x))


def run(model: primitiv.Model, characters: Sequence[int]) -> List[numpy.ndarray]:
    """Returns the scores of the next character after each input."""
    # Element (i, j) is element (i, j) in primitiv: no transposition needed.
    embedding = model["emb"].value
    w, b = model["lstm.w"].value, model["lstm.b"].value
    wy, by = model["wy"].value, model["by"].value
    size = len(b) // 4
    h = c = numpy.zeros(size, "float32")
    scores = []
    for character in characters:
        x = embedding[:, character]
        i, f, o, j = numpy.split(w @ numpy.concatenate([x, h]) + b, 4)
        c = sigmoid(i) * numpy.tanh(j) + sigmoid(f) * c
        h = sigmoid(o) * numpy.tanh(c)
        scores.append(wy @ h + by)
    return scores


def main(path: str, *characters: str) -> None:
    model = primitiv.load(path)
    for address, parameter in model.walk():
        print(".".join(address), parameter.shape, "and", ", ".join(parameter.stats) or "no stats")
    for score in run(model, [int(character) for character in characters]):
        print(int(score.argmax()))


if __name__ == "__main__":
    main(*sys.argv[1:])
